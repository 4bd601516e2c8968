"""Cost and failures: counts, hours, versions, and where more fails than elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis import SIGNIFICANCE
from clsweep.analysis.holm import holm
from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.regions import cut
from clsweep.analysis.sweep import Sweep
from clsweep.display.numbers import is_number, num_of, number
from clsweep.statistics.computed import ReportContext, Statistics
from clsweep.statistics.report_objects import Sentences
from clsweep.statistics.statistic import Column, Statistic, fraction, p_of
from clsweep.sweeps.notes import passes, records_of
from clsweep.sweeps.study_data import StudyData, worker_seconds

HEALTH_COLUMNS = {
    "objective": "name, in order of first appearance",
    "trials": "trials that ran",
    "finished": "of them finished",
    "stopped": "stopped early by the scheduler",
    "skipped": "planned trials that a race left out, which are no trials that ran",
    "failed": "failed",
    "hours": "worker hours: sum of wall_time_s x workers / 3600, of the trials that say both",
    "device": "devices that they ran on",
    "versions": 'versions that they ran with; "a / b" where there were several',
    "note": "what was not recorded, and what differs between trials",
}
REGION_FORMULAS = {
    "objective": "name; objectives without a failure have no rows",
    "param": "swept hyperparameter",
    "region": 'one of its values, or a bin of them, such as "tau=0.1" or "tau=0.05..0.08"',
    "trials": "trials that finished or failed there; stopped ones count in neither",
    "failed": "trials that failed, or finished without a finite metric",
    "rate": "failed / trials",
    "p_holm": "Fisher's exact test, one-sided, of configurations with a failure here against the "
    "rest of the objective; Holm over all regions of the objective",
    "resolved": "whether more failed here: p_holm is below the level of significance",
    "configs": "configurations there",
    "failed_configs": "of them with a failure",
}
_COUNTED = ("finished", "stopped", "skipped", "failed")
PACKAGES = ("clsweep", "torch", "ray", "optuna")
ERROR_COLUMNS = ("objective", "error_class", "error_message")


def health(of: Statistics) -> pd.DataFrame:
    """One row per objective: trials, failures, hours, devices and versions (`HEALTH_COLUMNS`)."""
    groups = of.data.trials.groupby("objective", sort=False, observed=True)
    rows = [_health(str(name), group) for name, group in groups]
    return pd.DataFrame(rows, columns=list(HEALTH_COLUMNS))


def _health(objective: str, group: pd.DataFrame) -> dict[str, Any]:
    counts = {name: int((group["status"] == name).sum()) for name in _COUNTED}
    group = group[group["status"] != "skipped"]
    seconds = worker_seconds(group)
    unknown, hours, notes = int(seconds.isna().sum()), np.nan, []
    if unknown == len(group):
        notes.append(note(Reason.TIMES_UNKNOWN))
    else:
        hours = float(seconds.sum() / 3600)
        if "workers" not in group or group["workers"].isna().all():
            notes.append(note(Reason.WORKERS_UNKNOWN))
        if unknown:
            notes.append(note(Reason.SOME_TIMES_UNKNOWN, unknown=unknown, trials=len(group)))
    # the different values of a column in order of first appearance
    made = group.reindex(columns=["device", *(f"{name}_version" for name in PACKAGES)])
    devices, *versions = (made[name].dropna().astype(str).unique().tolist() for name in made)
    if len(devices) > 1:
        notes.append(note(Reason.SEVERAL_DEVICES))
    made_with = dict(zip(PACKAGES, versions, strict=True))
    notes += [note(Reason.SEVERAL_VERSIONS, package=n) for n, v in made_with.items() if len(v) > 1]
    if not any(versions):
        notes.append(note(Reason.VERSIONS_UNKNOWN))
    texts = [f"{name} {' / '.join(each)}" for name, each in made_with.items() if each]
    return {
        "objective": objective,
        "trials": len(group),
        **counts,
        "hours": hours,
        "device": ", ".join(devices),
        "versions": ", ".join(texts),
        "note": tuple(notes),
    }


def failure_regions(of: Statistics) -> pd.DataFrame:
    """One row per objective with any failure, swept hyperparameter and value or bin; the columns of
    `REGION_FORMULAS`.

    What makes one seed fail often makes all seeds of the configuration fail. So the test counts
    configurations with any failure. One failing corner shows in the regions of each hyperparameter.
    """
    tables = [_regions(each) for each in of.data.sweeps if each.num_failed and each.params]
    if not tables:
        return pd.DataFrame(columns=list(REGION_FORMULAS))
    return pd.concat(tables, ignore_index=True)[list(REGION_FORMULAS)]


def _regions(sweep: Sweep) -> pd.DataFrame:
    from scipy.stats import hypergeom

    failed = sweep.failed.sum(axis=1)
    ended = (sweep.failed | np.isfinite(sweep.scores)).sum(axis=1)
    tables = []
    for name in sweep.params:
        regions = cut(name, [sweep])
        codes = regions.place(sweep.settings[name])
        trials, losses, configs, hit = (
            np.bincount(codes, each, len(regions)).astype(int)
            for each in (ended, failed, ended > 0, failed > 0)
        )
        region: dict[str, Any] = {"objective": sweep.objective, "param": name}
        region |= {"region": regions.named, "trials": trials, "failed": losses}
        region |= {"configs": configs, "failed_configs": hit}
        region["rate"] = np.where(trials > 0, losses / np.maximum(trials, 1), np.nan)
        # Hypergeometric: as many of all the configurations with a failure in this region, or more.
        region["p"] = hypergeom.sf(hit - 1, configs.sum(), hit.sum(), configs)
        tables.append(pd.DataFrame(region))
    table = pd.concat(tables)
    p_holm = holm(table["p"].to_numpy())
    return table.assign(p_holm=p_holm, resolved=p_holm < SIGNIFICANCE)


def _errors(context: ReportContext) -> pd.DataFrame:
    """Failed trials by objective and error, most frequent first."""
    trials = context.data.trials
    failed = trials[trials["status"] == "failed"]
    known = [name for name in ERROR_COLUMNS if name in failed]
    groups = failed.assign(trials=1).groupby(known, dropna=False, sort=False)
    counts = groups["trials"].sum().reset_index()
    return counts.sort_values("trials", ascending=False, kind="stable", ignore_index=True)


def failures(regions: pd.DataFrame) -> Sentences:
    """Where trials fail more often than elsewhere, from `failure_regions`."""
    out = []
    for row in records_of(regions):
        if passes(row, "rate") and row["failed"] > 0:
            seen = f"{number(row['failed'])} of {num_of(row['trials'], 'trial', 'trials')}"
            more = f"{row['objective']} fails more often at {row['region']} than elsewhere"
            out.append(f"{more}: {seen} ({number(100 * row['rate'])} %).")
    return tuple(out)


def cost(frame: pd.DataFrame, _: StudyData) -> pd.DataFrame:
    """Trials, hours, devices and versions, with the total of all objectives."""
    if not frame["skipped"].any():
        frame = frame.drop(columns="skipped")
    if len(frame) < 2:
        return frame
    sums = {name: frame[name].sum() for name in ("trials", *_COUNTED) if name in frame}
    hours = frame["hours"].sum(min_count=1)
    total = {"objective": "all", **sums, "hours": hours if is_number(hours) else None}
    total |= {"device": "", "versions": ""}
    return pd.concat([frame, pd.DataFrame([total])], ignore_index=True)


HEALTH = Statistic(
    name="health",
    title="Trials, hours and versions",
    caption="One row per objective. hours: worker hours of all its trials.",
    table=health,
    rows=cost,
    formulas={"health": HEALTH_COLUMNS},
)
FAILURE_MESSAGES = Statistic(
    name="failures", title="Failed trials by error", caption="Most frequent first.", frame=_errors
)
FAILURE_REGIONS = Statistic(
    name="failure-regions",
    title="Failed trials by region of the space",
    caption="p: of settings with a failure there, against the rest of the objective, adjusted by "
    "Holm.",
    table=failure_regions,
    columns=(
        Column("objective"),
        Column("region"),
        Column("trials"),
        Column("failed"),
        Column("rate", fraction("rate")),
        Column("p Holm", p_of("p_holm")),
        Column("verdict", lambda row: "more failures here" if row["resolved"] else ""),
    ),
    sentences=lambda context: failures(context.compute(failure_regions)),
    formulas={"failure regions": REGION_FORMULAS},
)
