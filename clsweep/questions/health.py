"""What it cost, and what failed."""

from __future__ import annotations

import pandas as pd

from clsweep.analysis import health as analysis
from clsweep.display.cells import records_of
from clsweep.display.numbers import is_number
from clsweep.findings.material import Material
from clsweep.questions.answers import Answers, Asked
from clsweep.questions.column import Column, Question, p_of, share
from clsweep.questions.model import Sentences
from clsweep.questions.words import counted, interval, number, passes

ERROR_COLUMNS = ("objective", "error_class", "error_message")


def health(of: Answers) -> pd.DataFrame:
    """Trials, failures, hours, devices and versions per objective."""
    return analysis.health(of.material.trials)


def failure_regions(of: Answers) -> pd.DataFrame:
    """Where in the swept space trials fail more often than elsewhere."""
    return analysis.failure_regions(of.material.sweeps)


def _errors(asked: Asked) -> pd.DataFrame:
    """Failed trials by objective and error, most frequent first."""
    trials = asked.material.trials
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
            share = f"{number(100 * row['rate'])} %{interval(100 * row['low'], 100 * row['high'])}"
            trials = counted(row["trials"], "trial", "trials")
            out.append(
                f"{row['objective']} fails more often at {row['region']} than elsewhere: "
                f"{number(row['failed'])} of {trials} ({share})."
            )
    return tuple(out)


def cost(frame: pd.DataFrame, _: Material) -> pd.DataFrame:
    """Trials, hours, devices and versions, with the total of all objectives."""
    if not frame["skipped"].any():
        frame = frame.drop(columns="skipped")
    if len(frame) < 2:
        return frame
    counted = ("trials", "finished", "stopped", "skipped", "failed")
    sums = {name: frame[name].sum() for name in counted if name in frame}
    hours = frame["hours"].sum(min_count=1)
    total = {"objective": "all", **sums, "hours": hours if is_number(hours) else None}
    total |= {"device": "", "versions": ""}
    return pd.concat([frame, pd.DataFrame([total])], ignore_index=True)


QUESTION = Question(
    name="health",
    title="Trials, hours and versions",
    caption="One row per objective. hours: worker hours of all its trials.",
    table=health,
    rows=cost,
    formulas={"health": analysis.COLUMNS},
)
ERRORS = Question(
    name="failures",
    title="Failed trials by error",
    caption="Most frequent first.",
    frame=_errors,
    has_notes=False,
)
REGIONS = Question(
    name="failure-regions",
    title="Failed trials by region of the space",
    caption="Rates with 95 % intervals; p: against the rest of the objective's trials, adjusted by "
    "Holm.",
    table=failure_regions,
    columns=(
        Column("objective"),
        Column("region"),
        Column("trials"),
        Column("failed"),
        Column("rate", share("rate", "")),
        Column("p Holm", p_of("p_holm")),
        Column("verdict", lambda row: "more failures here" if row["resolved"] else ""),
    ),
    has_notes=False,
    say=lambda asked: failures(asked.ask(failure_regions)),
    formulas={"failure regions": analysis.REGION_COLUMNS},
)
