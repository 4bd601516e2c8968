"""The mechanism beside the metric: means of the diagnostics, and which of them go along with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from clsweep.analysis import CONFIDENCE, SIGNIFICANCE, reasons
from clsweep.analysis.holm import holm
from clsweep.analysis.reasons import Note, Reason, note, noted
from clsweep.analysis.regions import cut
from clsweep.analysis.sweep import Array, Sweep, check_by, check_columns
from clsweep.display.numbers import setting

# then the metric under its own name, and every diagnostic that any trial has
COLUMNS = {
    "objective": "name, in order of first appearance",
    "at": 'value of `by`, or a bin of its values, such as "batch_size=256"; empty for the whole '
    "objective",
    "num_trials": "finished trials with a finite metric",
    **reasons.COLUMNS,
}
LINK_COLUMNS = {
    "objective": "name, in order of first appearance",
    "diagnostic": "name",
    "num_configs": "configurations with a mean of both",
    "rho": "Spearman's rank correlation between the configurations' means of diagnostic and metric",
    "low": "interval: tanh( atanh(rho) -+ z sqrt( (1 + rho^2 / 2) / (n - 3) ) ) (Bonett and "
    "Wright 2000)",
    "high": "",
    "p_holm": "of rho = 0, on the scale of the interval; Holm over all diagnostics and objectives",
    "resolved": "whether p_holm is below the level of significance: the diagnostic is higher "
    "(rho > 0) or lower with the metric, an association and no cause",
    **reasons.COLUMNS,
}
MIN_CONFIGS = 10
NEEDED = ("objective", "config", "status")


def mechanism(
    trials: pd.DataFrame,
    sweeps: Sequence[Sweep],
    *,
    metric: str,
    diagnostics: Sequence[str],
    by: str | None = None,
) -> pd.DataFrame:
    """Mean metric and diagnostics per objective and value of `by`: COLUMNS, with the means before
    the note.

    Means are over configurations, each the mean of its finished trials that have a finite metric,
    so that a failed seed does not change a configuration's weight. A diagnostic that no trial has
    is left out as a column; without any the table is empty. The regions of `by` are those of
    `regions.cut`, the same for all objectives; an objective that does not sweep `by` has one row,
    at its own value. Samples that do not cover the space evenly (`Sweep.not_measured`) have one row
    without means, and the note.

    trials, metric: those that `sweeps` were read from; the metric in its own sign.
    diagnostics: columns, which `trials` may lack.

    Raises ValueError for a missing column, and a `by` that no objective sweeps.
    """
    check_columns(trials, *NEEDED, metric)
    check_by(by, sweeps)
    if by is not None:
        check_columns(trials, by)
    tables = [config_means(trials, sweep, metric, diagnostics) for sweep in sweeps]
    tables = [means.reindex(columns=[metric, *diagnostics, "num"]) for means in tables]
    found = [name for name in diagnostics if any(means[name].notna().any() for means in tables)]
    start, end = [name for name in COLUMNS if name not in reasons.COLUMNS], [*reasons.COLUMNS]
    if not found:
        return pd.DataFrame(columns=[*start, metric, *end])
    rows: list[dict[str, Any]] = []
    row: dict[str, Any]
    measured = [sweep for sweep in sweeps if by in sweep.params and not sweep.not_measured]
    regions = cut(by, measured) if by is not None and measured else None
    for sweep, means in zip(sweeps, tables, strict=True):
        if why := sweep.nothing:
            row = {"objective": sweep.objective, "at": "", "num_trials": int(means["num"].sum())}
            rows.append(row | noted(why=why))
            continue
        codes, texts = pd.Series(0, index=sweep.configs), [""]
        if regions is not None and regions.param in sweep.params:
            codes[:], texts = regions.place(sweep.settings[regions.param]), list(regions.named)
        elif by is not None:
            own = trials.loc[trials["objective"].astype(str) == sweep.objective, by].dropna()
            texts = [f"{by}={setting(own.iloc[0])}" if len(own) else ""]
        for code, group in means.groupby(codes.reindex(means.index)):
            row = {"objective": sweep.objective, "at": texts[int(code)]}
            row["num_trials"] = int(group["num"].sum())
            row |= {name: group[name].mean() for name in (metric, *found)}
            rows.append(row | noted())
    return pd.DataFrame(rows, columns=[*start, metric, *found, *end])


def links(
    trials: pd.DataFrame,
    sweeps: Sequence[Sweep],
    *,
    metric: str,
    diagnostics: Sequence[str],
) -> pd.DataFrame:
    """Rank correlation of every diagnostic with the metric over configurations; the columns of
    `LINK_COLUMNS`.

    A hyperparameter that moves both links them, so this is an association and says nothing of
    cause. Needs at least 10 configurations; the configurations count as a sample, which errs on the
    wide side for a grid. "With the metric" is in the metric's own sign. Samples that do not cover
    the space evenly (`Sweep.not_measured`) are not measured.

    Raises ValueError for a missing column.
    """
    check_columns(trials, *NEEDED, metric)
    rows: list[dict[str, Any]] = []
    for sweep in sweeps:
        means = config_means(trials, sweep, metric, diagnostics)
        for name in diagnostics:
            if name in means and means[name].notna().any():
                row = {"objective": sweep.objective, "diagnostic": name}
                pairs = means[[name, metric]].dropna().to_numpy()
                rows.append(row | rank_correlation(pairs, sweep.not_measured))
    table = pd.DataFrame(rows, columns=[*LINK_COLUMNS, "p"])
    table["p_holm"] = holm(table.pop("p").to_numpy(dtype=float))
    table["resolved"] = table["p_holm"] < SIGNIFICANCE
    return table


def config_means(
    trials: pd.DataFrame, sweep: Sweep, metric: str, diagnostics: Sequence[str]
) -> pd.DataFrame:
    """Means of the metric and the diagnostics at hand, and `num` trials; a row per configuration
    with a score.
    """
    names = [metric, *(name for name in diagnostics if name in trials.columns)]
    group = trials[trials["objective"].astype(str) == sweep.objective]
    values = pd.DataFrame(
        group[names].to_numpy(dtype=float, na_value=np.nan), index=group.index, columns=names
    )
    values = values.where(np.isfinite(values))
    scored = (group["status"] == "finished") & values[metric].notna()
    # Those of which a trial was stopped count nowhere.
    scored &= group["config"].isin(sweep.configs[sweep.measured.alive])
    scored &= group["seed"].isin(sweep.seeds)
    grouped = values[scored].groupby(group.loc[scored, "config"], sort=False)
    return grouped.mean().assign(num=grouped.size())


def rank_correlation(pairs: Array, withheld: Note | None) -> dict[str, Any]:
    """Spearman's rho of the two columns (n, 2), its interval and p; NaN with a note where there is
    none.
    """
    num = len(pairs)
    if num < MIN_CONFIGS:
        withheld = withheld or note(Reason.FEW_PAIRED, configs=num, least=MIN_CONFIGS)
    row: dict[str, Any] = {"num_configs": num, "p": np.nan, **noted(why=withheld)}
    if withheld:
        return row
    # To 10 digits: equal values whose means over the seeds differ in the last bit are ties.
    size = np.abs(pairs).max(axis=0)
    digits = 10.0 ** (9 - np.floor(np.log10(np.where(size > 0, size, 1.0))))
    ranks = pd.DataFrame(np.round(pairs * digits)).rank().to_numpy()
    ranks = ranks - ranks.mean(axis=0)
    size = np.sqrt(np.square(ranks).sum(axis=0))
    if not size.all():
        return row | noted(why=note(Reason.EQUAL_RANKS))
    rho = float(np.clip(ranks[:, 0] @ ranks[:, 1] / (size[0] * size[1]), -1.0, 1.0))
    # Ranks in full agreement are not certainty: the interval and p take half a swap of neighbours
    # off.
    most = 1 - 6 / (num * (num**2 - 1))
    used = float(np.clip(rho, -most, most))
    place, error = np.arctanh(used), np.sqrt((1 + used**2 / 2) / (num - 3))
    half = float(special.ndtri((1 + CONFIDENCE) / 2)) * error
    low, high = np.tanh(place - half), np.tanh(place + half)
    # In the tails not as small as that of t, which let 6 % through.
    p = float(2 * special.ndtr(-abs(place) / error))
    return row | {"rho": rho, "low": min(float(low), rho), "high": max(float(high), rho), "p": p}
