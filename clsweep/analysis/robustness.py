"""How much an objective's metric moves over its hyperparameters: one row per objective, with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis import resample
from clsweep.errors import nearest

# Every column, in order. m_i is the mean of configuration i over its finished seeds; units are those of the metric.
COLUMNS = {
    "objective": "name, in order of first appearance",
    "num_configs": "configurations tried, with or without a finished seed",
    "num_seeds": "different seeds tried",
    "num_failed": "trials that failed, or finished without a finite metric",
    "mean": "mean_i m_i",
    "sd": "sqrt( sum_i (m_i - mean)^2 / (n - 1) ): the spread seen with this many seeds, seed noise included",
    "sd_low": "interval of sd, for the spread to expect with this many seeds",
    "sd_high": "",
    "sd_star": "sqrt( max(0, sd^2 - s_w^2 / S) ): the spread due to hyperparameters alone; s_w^2 = pooled "
    "within-configuration seed variance, S = harmonic mean of seeds per configuration",
    "sd_star_low": "interval of sd_star",
    "sd_star_high": "",
    "range": "best - worst (always >= 0)",
    "best": "m_i of the best configuration; picked on its own noise, so optimistic",
    "best_at": 'its swept hyperparameters, such as "tau=0.2"',
    "worst": "m_i of the worst configuration",
    "worst_at": "its swept hyperparameters",
    "share_within": "#{i: m_i >= L - within} / number of configurations; L = level of the best, picked without the "
    "seed that scores it (cross-fitted, resample.best_level). A configuration that failed on every seed is not within",
    "share_low": "interval of share_within",
    "share_high": "",
    "worst_10": "level of the worst 10 % of configurations, at least one, cross-fitted likewise (resample.tail_level). "
    "A configuration that failed on every seed counts at `chance`, or is left out when chance is not given",
    "worst_10_low": "interval of worst_10",
    "worst_10_high": "",
    "note": "what was not measured and why",
}
STATISTICS = {"sd": "sd", "sd_star": "sd_star", "share": "share_within", "worst_10": "worst_10"}
TEXT = ("best_at", "worst_at", "note")
EVEN_SAMPLERS = ("grid", "qmc", "random")
ADAPTIVE_SAMPLERS = ("tpe", "gp", "confirm")  # the last: the best of a search once more
STATUSES = ("finished", "stopped", "failed")
MAX_BINS = 6
FEW_RANDOM = 32  # below this the bootstrap of an SD over a random sample covered 66-91 % instead of 95 %


def robustness(
    trials: pd.DataFrame,
    *,
    metric: str,
    params: Sequence[str],
    mode: str = "max",
    by: str | None = None,
    within: float = 1.0,
    chance: float | None = None,
    planned: Mapping[str, int] | None = None,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """One row per objective with the columns of `COLUMNS`; `trials` is not changed.

    trials: one row a trial: objective, config, seed, status ("finished" | "stopped" | "failed"), sampler, `metric`,
        `params`.
    params: the hyperparameter columns. An objective *sweeps* those that take two or more values in its rows.
    mode: "max" or "min"; with "min" best is the lowest, and worst_10 the level of the highest tenth.
    by: the marginal effect of one hyperparameter: configurations are first averaged over the other swept ones at each
        of its values, and every statistic is then over those values. On a grid the noise is the seeds. In a qmc or
        random design it is the configurations that share a value, whose other hyperparameters differ; values that do
        not repeat are cut by rank into at most 6 bins of equal count. An objective's only swept hyperparameter needs
        no averaging: its row is that of by=None. A configuration that failed on every seed is left out of its average.
    within, chance: in units of the metric.
    planned: number of planned configurations per objective. An objective of which fewer have run says so, and what has
        run of its grid counts as a sample of the space.
    Intervals: percentile bootstrap (see `resample`); a grid is the whole space, a qmc or random design a sample of it.
    sampler tpe or gp does not sample evenly: counts and best only. One seed: no interval and no sd_star.

    Raises ValueError for an empty table, a missing column, a repeated (objective, config, seed), a configuration with
    two settings, an unknown sampler or status, an option out of range, and a `by` that no objective sweeps.
    """
    options = _Options(
        sign=1.0 if mode == "max" else -1.0,
        by=by,
        within=within,
        chance=chance,
        planned=planned or {},
        confidence=confidence,
        num_resamples=num_resamples,
        seed=seed,
    )
    _check_options(options, mode)
    _check_table(trials, metric, params)
    groups = [(group, _swept(group, params)) for _, group in trials.groupby("objective", sort=False, observed=True)]
    swept = list(dict.fromkeys(name for _, names in groups for name in names))
    if by is not None and by not in swept:
        raise ValueError(f"by: no objective sweeps {by!r}.{nearest(by, swept)} Swept: {', '.join(swept)}")
    return pd.DataFrame([_row(group, names, metric, options) for group, names in groups], columns=list(COLUMNS))


@dataclass(frozen=True, kw_only=True)
class _Options:
    """The options of `robustness`; `sign` turns the metric so that larger is better."""

    sign: float
    by: str | None
    within: float
    chance: float | None
    planned: Mapping[str, int]
    confidence: float
    num_resamples: int
    seed: int


def _row(group: pd.DataFrame, names: list[str], metric: str, options: _Options) -> dict[str, Any]:
    """The row of one objective, which sweeps `names`."""
    score, by = _scores(group, metric), options.by
    num_stopped = int((group["status"] == "stopped").sum())
    num_failed = int((score.isna() & ~_in_stopped_config(group) | (group["status"] == "failed")).sum())
    row: dict[str, Any] = {**dict.fromkeys(COLUMNS, np.nan), **dict.fromkeys(TEXT, "")}
    row["objective"] = group["objective"].iloc[0]
    row["num_configs"], row["num_seeds"] = group["config"].nunique(), group["seed"].nunique()
    row["num_failed"] = num_failed
    notes = [f"{num_failed} of {len(group)} trials failed"] if num_failed else []
    if num_stopped:
        notes.append(f"{num_stopped} of {len(group)} trials stopped early, which count in no score")
    num_planned = options.planned.get(row["objective"], row["num_configs"])
    unfinished = row["num_configs"] < num_planned
    if unfinished:
        notes.append(f"{row['num_configs']} of {num_planned} planned configurations so far")
    samplers = list(dict.fromkeys(group["sampler"]))
    adaptive = [name for name in samplers if name in ADAPTIVE_SAMPLERS]
    if by is not None and by not in names:
        notes.append(f"does not sweep {by}")
    elif score.isna().all():
        notes.append("no finished trial")
    elif adaptive or len(samplers) > 1:
        why = "samples favour good configurations" if adaptive else "mixed, not one even design"
        notes.append(f"robustness not measured: {', '.join(adaptive or samplers)} {why}")
        table, labels, _ = _table(group, score, names, None)
        row |= _extremes(options.sign * table, labels, options.sign, with_worst=False)
    else:
        table, labels, table_notes = _table(group, score, names, by)
        notes += table_notes
        averaged = by is not None and len(names) > 1
        sampled = samplers[0] != "grid" or unfinished
        row |= _measure(options.sign * table, notes, options, sampled=sampled, averaged=averaged)
        row |= _extremes(options.sign * table, labels, options.sign, with_worst=True)
    row["note"] = "; ".join(notes)
    return row


def _check_options(options: _Options, mode: str) -> None:
    for name, value, valid, expected in [
        ("mode", mode, mode in ("max", "min"), "'max' or 'min'"),
        ("within", options.within, options.within >= 0, ">= 0"),
        ("confidence", options.confidence, 0 < options.confidence < 1, "between 0 and 1"),
        ("num_resamples", options.num_resamples, options.num_resamples >= 1, ">= 1"),
    ]:
        if not valid:
            raise ValueError(f"{name}: expected {expected}, got {value!r}")


def _check_table(trials: pd.DataFrame, metric: str, params: Sequence[str]) -> None:
    keys = ["objective", "config", "seed"]
    labels, columns = [*keys, "status", "sampler"], [str(name) for name in trials.columns]
    for column in [*labels, metric, *params]:
        if column not in trials.columns:
            raise ValueError(f"trials: no column {column!r}.{nearest(column, columns)} Columns: {', '.join(columns)}")
    if trials.empty:
        raise ValueError("trials: the table has no rows, so there is nothing to measure")
    if gaps := [column for column in labels if trials[column].isna().any()]:
        raise ValueError(f"trials: missing values in {', '.join(gaps)}")
    for column, known in {"status": STATUSES, "sampler": EVEN_SAMPLERS + ADAPTIVE_SAMPLERS}.items():
        if unknown := [value for value in dict.fromkeys(trials[column]) if value not in known]:
            raise ValueError(f"trials: {column} is expected to be one of {', '.join(known)}; got {unknown[0]!r}")
    if not pd.api.types.is_numeric_dtype(trials[metric]) and trials[metric].notna().any():
        raise ValueError(f"trials: metric {metric!r} is expected to be numbers, got {trials[metric].dtype}")
    if len(repeated := trials.loc[trials.duplicated(keys), keys]):
        objective, config, seed = repeated.iloc[0]
        raise ValueError(f"trials: objective {objective!r}, config {config}, seed {seed} appears more than once")


def _swept(group: pd.DataFrame, params: Sequence[str]) -> list[str]:
    """Hyperparameters with two or more values in one objective; each configuration must have one value of each."""
    for name in params:
        values = group.groupby("config")[name].nunique(dropna=False)
        if (values > 1).any():
            at = f"objective {group['objective'].iloc[0]!r}, config {values.idxmax()}"
            raise ValueError(f"trials: {at} has several values of {name}")
    return [name for name in params if group[name].nunique(dropna=False) > 1]


def _scores(group: pd.DataFrame, metric: str) -> "pd.Series[float]":
    """The metric of finished trials, NaN elsewhere: a failed trial's leftover value and an infinity are no score.

    A configuration of which a trial was stopped has none: what its other trials reached would stand for it.
    """
    score = pd.to_numeric(group[metric]).astype(float)
    return score.where((group["status"] == "finished") & np.isfinite(score) & ~_in_stopped_config(group))


def _in_stopped_config(group: pd.DataFrame) -> "pd.Series[bool]":
    return group["config"].isin(group.loc[group["status"] == "stopped", "config"])


def _table(
    group: pd.DataFrame, score: "pd.Series[float]", names: list[str], by: str | None
) -> tuple[resample.Array, list[str], list[str]]:
    """Scores (rows x repeats, NaN = none), a label per row, and notes. Rows: configurations, or the values of `by`."""
    data = pd.DataFrame({"config": group["config"], "seed": group["seed"], "score": score})
    wide = data.pivot(index="config", columns="seed", values="score")
    settings = group.drop_duplicates("config").set_index("config").loc[wide.index, names]
    if by is None or len(names) == 1:
        labels = [
            ", ".join(f"{name}={_text(row[name])}" for name in names) or f"config {config}"
            for config, row in zip(wide.index, settings.to_dict("records"), strict=True)
        ]
        return wide.to_numpy(), labels, []
    grid = group["sampler"].iloc[0] == "grid"
    levels, texts, notes = _levels(settings[by], by, allow_bins=not grid)
    scores, means = wide.to_numpy(), wide.mean(axis=1).to_numpy()[:, None]
    counts = np.bincount(levels)
    if grid:
        # A missing seed stands at its configuration's mean, else the cell's average would be over other settings.
        present = np.isfinite(scores)
        filled = pd.DataFrame(np.where(present, scores, means)).groupby(levels).mean().to_numpy()
        table = np.where(pd.DataFrame(present).groupby(levels).any().to_numpy(), filled, np.nan)
        if len(set(counts)) > 1:
            notes.append(f"unbalanced: values of {by} rest on different settings of the others")
    else:
        table = np.full((len(counts), counts.max()), np.nan)
        for level, count in enumerate(counts):
            table[level, :count] = means[levels == level, 0]
        notes.append(f"noise is the configurations that share a {'bin' if notes else 'value'}")
    if lost := int(np.isnan(means).sum()):
        notes.append(f"{lost} configurations failed on every seed and are left out of the averages over {by}")
    return table, texts, notes


def _levels(values: "pd.Series[Any]", by: str, *, allow_bins: bool) -> tuple[np.ndarray, list[str], list[str]]:
    """Level number of each configuration, text per level, notes. Numbers that hardly repeat are binned by rank."""
    num = len(values)
    if allow_bins and pd.api.types.is_numeric_dtype(values) and values.notna().all() and 2 * values.nunique() > num:
        bins = max(1, min(MAX_BINS, num // 2))
        ranks = values.rank(method="first").to_numpy().astype(int) - 1
        levels = ranks * bins // num
        texts = [f"{by}={_text(values[levels == b].min())}..{_text(values[levels == b].max())}" for b in range(bins)]
        return levels, texts, [f"{by} cut by rank into {bins} bins of equal count"]
    levels, uniques = pd.factorize(values, sort=False, use_na_sentinel=False)
    return levels, [f"{by}={_text(value)}" for value in uniques], []


def _measure(
    table: resample.Array,
    notes: list[str],
    options: _Options,
    *,
    sampled: bool,
    averaged: bool,
) -> dict[str, Any]:
    """Mean, statistics and intervals of a table whose larger values are better; appends to `notes`."""
    sign, chance = options.sign, options.chance
    alive = np.isfinite(table).any(axis=1)
    values, num_lost = table[alive], int((~alive).sum())
    row: dict[str, Any] = {"mean": sign * float(resample.row_means(values).mean())}
    if len(table) == 1:
        notes.append("one configuration: no spread to measure")
        return row
    if num_lost:
        counted = "left out of worst_10" if chance is None else f"at chance level ({chance:g}) in worst_10"
        notes.append(f"{num_lost} of {len(table)} configurations failed on every seed: not within, {counted}")
    if len(values) == 1:
        notes.append("one configuration finished: no SD")
    level = None if chance is None else sign * chance
    point = resample.statistics(values, within=options.within, num_lost=num_lost, chance=level)
    bounds = resample.intervals(
        values,
        within=options.within,
        num_lost=num_lost,
        chance=level,
        confidence=options.confidence,
        num_resamples=options.num_resamples,
        population=sampled and not averaged,
        seed=options.seed,
    )
    if not bounds:
        repeat = "configuration per value" if sampled and averaged else "seed"
        notes += [
            f"one {repeat}: no interval, SD not corrected for seed noise",
            "share_within and worst_10 are picked and scored on the same noise, so pessimistic",
        ]
    elif sampled and not averaged and len(values) < FEW_RANDOM:
        notes.append(f"{len(values)} sampled configurations: intervals may be too narrow")
    for key, column in STATISTICS.items():
        factor = sign if key == "worst_10" else 1.0
        row[column] = factor * float(point[key])
        if key in bounds:
            row[f"{key}_low"], row[f"{key}_high"] = sorted(factor * bound for bound in bounds[key])
    return row


def _extremes(table: resample.Array, labels: list[str], sign: float, *, with_worst: bool) -> dict[str, Any]:
    """Best and worst row of a table whose larger values are better, in the metric's own sign."""
    alive = np.flatnonzero(np.isfinite(table).any(axis=1))
    means = resample.row_means(table[alive])
    top, low = int(means.argmax()), int(means.argmin())
    row: dict[str, Any] = {"best": sign * float(means[top]), "best_at": labels[alive[top]]}
    if with_worst and len(alive) > 1:
        row |= {"worst": sign * float(means[low]), "worst_at": labels[alive[low]], "range": means[top] - means[low]}
    return row


def _text(value: Any) -> str:
    """Short text of a setting; a whole number stays whole (a column with gaps holds integers as floats)."""
    if not isinstance(value, float):  # np.float64 is a float
        return str(value)
    return str(int(value)) if value.is_integer() else f"{value:.4g}"
