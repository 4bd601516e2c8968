"""What ran and what failed: counts, cost and versions, and where in the space more fails than
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from clsweep.analysis import CONFIDENCE, SIGNIFICANCE
from clsweep.analysis.holm import holm
from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.regions import Codes, cut
from clsweep.analysis.sweep import Array, Sweep, check_columns

COLUMNS = {
    "objective": "name, in order of first appearance",
    "trials": "trials that ran",
    "finished": "of them finished",
    "stopped": "stopped early by the scheduler",
    "skipped": "planned trials that a race left out, which are no trials that ran",
    "failed": "failed",
    "hours": "worker hours: sum of wall_time_s x workers / 3600, of the trials that say how long "
    "they took",
    "device": "devices that they ran on",
    "versions": 'versions that they ran with; "a / b" where there were several',
    "note": "what was not recorded, and what differs between trials",
}
REGION_COLUMNS = {
    "objective": "name; objectives without a failure have no rows",
    "param": "swept hyperparameter",
    "region": 'one of its values, or a bin of them, such as "tau=0.1" or "tau=0.05..0.08"',
    "trials": "trials that finished or failed there; stopped ones count in neither",
    "failed": "trials that failed, or finished without a finite metric",
    "rate": "failed / trials",
    "low": "Clopper-Pearson interval of rate on trials / deff (Korn and Graubard 1998), deff = by "
    "how much the "
    "failures of one configuration go together: 1 = independently, number of seeds = always",
    "high": "",
    "p_holm": "Fisher's exact test, one-sided, of configurations with a failure here against the "
    "rest of the objective; Holm over all regions of the objective",
    "resolved": "whether more failed here: p_holm is below the level of significance",
    "configs": "configurations there",
    "failed_configs": "of them with a failure",
}
COUNTED = ("finished", "stopped", "skipped", "failed")
PACKAGES = ("clsweep", "torch", "ray", "optuna")


def health(trials: pd.DataFrame) -> pd.DataFrame:
    """One row per objective with the columns of `COLUMNS`; `trials` is not changed.

    trials: one row a trial: objective, status ("finished" | "stopped" | "skipped" | "failed") and,
        where recorded, wall_time_s, workers (one where it is not said), device, clsweep_version,
        torch_version, ray_version, optuna_version.

    Raises ValueError for a missing column.
    """
    check_columns(trials, "objective", "status")
    groups = trials.groupby("objective", sort=False, observed=True)
    rows = [_health(str(name), group) for name, group in groups]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _health(objective: str, group: pd.DataFrame) -> dict[str, Any]:
    counts = {name: int((group["status"] == name).sum()) for name in COUNTED}
    group = group[group["status"] != "skipped"]
    recorded = group.reindex(columns=["wall_time_s", "workers"]).apply(pd.to_numeric)
    seconds, workers = recorded.to_numpy(dtype=float, na_value=np.nan).T
    unknown, hours, notes = int(np.isnan(seconds).sum()), np.nan, []
    if unknown == len(group):
        notes.append(note(Reason.TIMES_UNKNOWN))
    else:
        hours = float(np.nansum(seconds * np.where(np.isnan(workers), 1.0, workers)) / 3600)
        if "workers" not in group:
            notes.append(note(Reason.WORKERS_UNKNOWN))
        if unknown:
            notes.append(note(Reason.SOME_TIMES_UNKNOWN, unknown=unknown, trials=len(group)))
    # the different values of a column in order of first appearance
    made = group.reindex(columns=["device", *(f"{name}_version" for name in PACKAGES)])
    devices, *versions = (made[name].dropna().astype(str).unique().tolist() for name in made)
    if len(devices) > 1:
        notes.append(note(Reason.SEVERAL_DEVICES))
    several = [name for name, found in zip(PACKAGES, versions, strict=True) if len(found) > 1]
    notes += [note(Reason.SEVERAL_VERSIONS, package=name) for name in several]
    if not any(versions):
        notes.append(note(Reason.VERSIONS_UNKNOWN))
    texts = [f"{n} {' / '.join(v)}" for n, v in zip(PACKAGES, versions, strict=True) if v]
    return {
        "objective": objective,
        "trials": len(group),
        **counts,
        "hours": hours,
        "device": ", ".join(devices),
        "versions": ", ".join(texts),
        "note": tuple(notes),
    }


def failure_regions(sweeps: Sequence[Sweep]) -> pd.DataFrame:
    """One row per objective with any failure, swept hyperparameter and value or bin; the columns of
    `REGION_COLUMNS`.

    What makes one seed fail often makes all seeds of the configuration fail, so trials are not
    independent. The test counts configurations with any failure instead; the interval of the rate
    shrinks the number of trials. Regions of different hyperparameters overlap: one failing corner
    shows in each of them.
    """
    rows = [row for sweep in sweeps if sweep.num_failed for row in _failures(sweep)]
    return pd.DataFrame(rows, columns=list(REGION_COLUMNS))


def _failures(sweep: Sweep) -> list[dict[str, Any]]:
    from scipy.stats import hypergeom

    failed = sweep.failed.sum(axis=1)
    ended = (sweep.failed | np.isfinite(sweep.scores)).sum(axis=1)
    rows: list[dict[str, Any]] = []
    p_values: list[float] = []
    for name in sweep.params:
        regions = cut(name, [sweep])
        codes = regions.place(sweep.settings[name])
        trials, losses = (np.bincount(codes, x, len(regions)) for x in (ended, failed))
        configs, hit = (
            np.bincount(codes, x, len(regions)).astype(int) for x in (ended > 0, failed > 0)
        )
        low, high = _rate_interval(codes, ended, failed)
        # Hypergeometric: as many of all the configurations with a failure in this region, or more.
        p_values += hypergeom.sf(hit - 1, configs.sum(), hit.sum(), configs).tolist()
        told = {
            "region": regions.named,
            "trials": trials.astype(int).tolist(),
            "failed": losses.astype(int).tolist(),
            "rate": np.where(trials > 0, losses / np.maximum(trials, 1), np.nan),
            "low": low,
            "high": high,
            "configs": configs,
            "failed_configs": hit,
        }
        rows += [
            {"objective": sweep.objective, "param": name, **dict(zip(told, cells, strict=True))}
            for cells in zip(*told.values(), strict=True)
        ]
    for row, p in zip(rows, holm(np.array(p_values)).tolist(), strict=True):
        row |= {"p_holm": p, "resolved": p < SIGNIFICANCE}
    return rows


def _rate_interval(codes: Codes, ended: Codes, failed: Codes) -> tuple[Array, Array]:
    """Clopper-Pearson limits of the failure rate of each region, its trials divided by the design
    effect.

    deff = sum_i (f_i - p_r t_i)^2 / sum_i t_i p_r (1 - p_r) x n / (n - R), over the n
    configurations of all R regions, between 1 and the seeds of a configuration.
    """
    trials, losses = (np.bincount(codes, each).astype(float) for each in (ended, failed))
    rates = losses / np.maximum(trials, 1)
    spread = np.square(failed - rates[codes] * ended).sum()
    expected = (trials * rates * (1 - rates)).sum()
    num, num_regions = int((ended > 0).sum()), int((trials > 0).sum())
    most = max(1.0, float(ended.max()))
    effect = most
    if expected > 0 and num > num_regions:
        effect = float(np.clip(spread / expected * num / (num - num_regions), 1.0, most))
    size, hits, tail = trials / effect, losses / effect, (1 - CONFIDENCE) / 2
    with np.errstate(invalid="ignore"):
        low = np.where(hits > 0, special.betaincinv(hits, size - hits + 1, tail), 0.0)
        high = np.where(hits < size, special.betaincinv(hits + 1, size - hits, 1 - tail), 1.0)
    none = trials == 0
    return np.where(none, np.nan, low), np.where(none, np.nan, high)
