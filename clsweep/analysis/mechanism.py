"""The mechanism beside the metric: means of the diagnostics, and which of them go along with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from clsweep.analysis.multiple import holm
from clsweep.analysis.regions import Regions, cut
from clsweep.analysis.sweep import Array, Sweep, text_of
from clsweep.errors import nearest

DIAGNOSTICS = {
    "q_b_mean": "negative-positive coupling multiplier (DCL Eq. 4)",
    "q_b_cv": "its coefficient of variation",
    "grad_norm_mean": "gradient norm of the last two blocks (DCL A.9)",
    "grad_norm_cv": "its coefficient of variation",
    "feature_diversity": "DimCL Eq. 7, 0 to 1",
    "effective_rank": "of the representation",
    "alignment": "of two views (DCL A.5)",
    "uniformity": "on the hypersphere (DCL A.5)",
    "mi_bound": "bound of the mutual information, nats (EqCo Eq. 4)",
    "std_per_dim": "1 isotropic, 0 collapsed",
    "intra_class_distance": "DimCL Table 12",
    "inter_class_distance": "DimCL Table 12",
}
COLUMNS = {  # then the metric under its own name, and every diagnostic of DIAGNOSTICS that any trial has
    "objective": "name, in order of first appearance",
    "at": 'value of `by`, or a bin of its values, such as "batch_size=256"; empty for the whole objective',
    "num_trials": "finished trials with a finite metric",
    "note": "what was not measured and why",
}
LINK_COLUMNS = {
    "objective": "name, in order of first appearance",
    "diagnostic": "name",
    "num_configs": "configurations with a mean of both",
    "rho": "Spearman's rank correlation between the configurations' means of diagnostic and metric",
    "low": "interval: tanh( atanh(rho) -+ z sqrt( (1 + rho^2 / 2) / (n - 3) ) ) (Bonett and Wright 2000)",
    "high": "",
    "p_holm": "of rho = 0, on the scale of the interval; Holm over all diagnostics and objectives",
    "verdict": '"higher with the metric", "lower with the metric" or "not resolved"; an association, no cause',
    "note": "what was not measured and why",
}
MIN_CONFIGS = 10


def mechanism(trials: pd.DataFrame, sweeps: Sequence[Sweep], *, metric: str, by: str | None = None) -> pd.DataFrame:
    """Mean metric and diagnostics per objective and value of `by`: COLUMNS, with the means before the note.

    Means are over configurations, each the mean of its finished trials that have a finite metric, so that a failed seed
    does not change a configuration's weight. A diagnostic that no trial has is left out as a column; without any the
    table is empty. The regions of `by` are those of `regions.cut`, the same for all objectives; an
    objective that does not sweep `by` has one row, at its own value. Samples that do not cover the space evenly
    (`Sweep.not_measured`) have one row without means, and the note.

    trials, metric: those that `sweeps` were read from; the metric in its own sign.

    Raises ValueError for a missing column, and a `by` that no objective sweeps.
    """
    _check(trials, metric)
    swept = list(dict.fromkeys(name for sweep in sweeps for name in sweep.params))
    if by is not None and by not in swept:
        raise ValueError(f"by: no objective sweeps {by!r}.{nearest(by, swept)} Swept: {', '.join(swept)}")
    if by is not None:
        _check(trials, by)
    tables = [_config_means(trials, sweep, metric) for sweep in sweeps]
    tables = [means.reindex(columns=[metric, *DIAGNOSTICS, "num"]) for means in tables]
    found = [name for name in DIAGNOSTICS if any(means[name].notna().any() for means in tables)]
    start, end = [name for name in COLUMNS if name != "note"], ["note"]
    if not found:
        return pd.DataFrame(columns=[*start, metric, *end])
    rows: list[dict[str, Any]] = []
    measured = [sweep for sweep in sweeps if by in sweep.params and not sweep.not_measured]
    regions = cut(by, measured) if by is not None and measured else None
    for sweep, means in zip(sweeps, tables, strict=True):
        if note := sweep.not_measured or ("" if len(means) else "no trial finished"):
            rows.append({"objective": sweep.objective, "at": "", "num_trials": int(means["num"].sum()), "note": note})
            continue
        codes, texts = _places(sweep, trials, by, regions)
        for code, group in means.groupby(codes.reindex(means.index)):
            row = {"objective": sweep.objective, "at": texts[int(code)], "num_trials": int(group["num"].sum())}
            rows.append({**row, **{name: group[name].mean() for name in (metric, *found)}, "note": ""})
    return pd.DataFrame(rows, columns=[*start, metric, *found, *end])


def links(
    trials: pd.DataFrame,
    sweeps: Sequence[Sweep],
    *,
    metric: str,
    confidence: float = 0.95,
    significance: float = 0.05,
) -> pd.DataFrame:
    """Rank correlation of every diagnostic with the metric over configurations; the columns of `LINK_COLUMNS`.

    A hyperparameter that moves both links them, so this is an association and says nothing of cause. Needs at least 10
    configurations; the configurations count as a sample, which errs on the wide side for a grid. "With the metric" is
    in the metric's own sign. Samples that do not cover the space evenly (`Sweep.not_measured`) are not measured.

    Raises ValueError for a missing column and an option out of range.
    """
    _check(trials, metric)
    for name, value in {"confidence": confidence, "significance": significance}.items():
        if not 0 < value < 1:
            raise ValueError(f"{name}: expected between 0 and 1, got {value!r}")
    rows: list[dict[str, Any]] = []
    for sweep in sweeps:
        means = _config_means(trials, sweep, metric)
        for name in DIAGNOSTICS:
            if name in means and means[name].notna().any():
                row = {"objective": sweep.objective, "diagnostic": name}
                rows.append(row | _link(means[[name, metric]].dropna().to_numpy(), sweep.not_measured, confidence))
    table = pd.DataFrame(rows, columns=[*LINK_COLUMNS, "p"])
    table["p_holm"] = holm(table.pop("p").to_numpy(dtype=float))
    words = np.where(table["rho"].to_numpy(dtype=float) > 0, "higher with the metric", "lower with the metric")
    table["verdict"] = np.where(table["p_holm"] < significance, words, "not resolved")
    return table


def _check(trials: pd.DataFrame, name: str) -> None:
    columns = [str(column) for column in trials.columns]
    for column in ("objective", "config", "status", name):
        if column not in columns:
            raise ValueError(f"trials: no column {column!r}.{nearest(column, columns)} Columns: {', '.join(columns)}")


def _config_means(trials: pd.DataFrame, sweep: Sweep, metric: str) -> pd.DataFrame:
    """Means of the metric and the diagnostics at hand, and `num` trials; a row per configuration with a score."""
    names = [metric, *(name for name in DIAGNOSTICS if name in trials.columns)]
    group = trials[trials["objective"].astype(str) == sweep.objective]
    values = pd.DataFrame(group[names].to_numpy(dtype=float, na_value=np.nan), index=group.index, columns=names)
    values = values.where(np.isfinite(values))
    scored = (group["status"] == "finished") & values[metric].notna()
    scored &= group["config"].isin(sweep.configs[sweep.alive])  # not those of which a trial was stopped
    grouped = values[scored].groupby(group.loc[scored, "config"], sort=False)
    return grouped.mean().assign(num=grouped.size())


def _places(
    sweep: Sweep, trials: pd.DataFrame, by: str | None, regions: Regions | None
) -> tuple[pd.Series[Any], Sequence[str]]:
    """Configuration -> number of its region of `by`, and the regions' texts."""
    if regions is not None and regions.param in sweep.params:
        return pd.Series(regions.place(sweep.settings[regions.param]), index=sweep.configs), regions.named
    text = ""
    if by is not None:
        own = trials.loc[trials["objective"].astype(str) == sweep.objective, by].dropna()
        text = f"{by}={text_of(own.iloc[0])}" if len(own) else ""
    return pd.Series(0, index=sweep.configs), [text]


def _link(pairs: Array, withheld: str, confidence: float) -> dict[str, Any]:
    """Spearman's rho of the two columns (n, 2), its interval and p; NaN with a note where there is none."""
    num = len(pairs)
    row: dict[str, Any] = {"num_configs": num, "p": np.nan, "note": withheld}
    if withheld:
        return row
    if num < MIN_CONFIGS:
        return row | {"note": f"{num} configurations have both, at least {MIN_CONFIGS} are needed"}
    ranks = stats.rankdata(_rounded(pairs), axis=0)
    ranks -= ranks.mean(axis=0)
    size = np.sqrt(np.square(ranks).sum(axis=0))
    if not size.all():
        return row | {"note": "the same in all configurations: no correlation"}
    rho = float(np.clip(ranks[:, 0] @ ranks[:, 1] / (size[0] * size[1]), -1.0, 1.0))
    # Ranks in full agreement are not certainty: the interval and p take half a swap of neighbours off.
    most = 1 - 6 / (num * (num**2 - 1))
    used = float(np.clip(rho, -most, most))
    place, error = np.arctanh(used), np.sqrt((1 + used**2 / 2) / (num - 3))
    half = float(stats.norm.ppf((1 + confidence) / 2)) * error
    low, high = np.tanh(place - half), np.tanh(place + half)
    p = float(2 * stats.norm.sf(abs(place) / error))  # in the tails not as small as that of t, which let 6 % through
    return row | {"rho": rho, "low": min(float(low), rho), "high": max(float(high), rho), "p": p}


def _rounded(values: Array) -> Array:
    """To 10 digits: equal values whose means over the seeds differ in the last bit are ties, not an order."""
    size = np.abs(values).max(axis=0)
    digits = 10.0 ** (9 - np.floor(np.log10(np.where(size > 0, size, 1.0))))
    return np.asarray(np.round(values * digits))
