"""What a search did, in sentences: how it went, what went with good scores, what stopping saved."""

from __future__ import annotations

import pandas as pd

from clsweep.display.cells import records_of
from clsweep.display.numbers import count, number, work
from clsweep.findings.notes import is_measured
from clsweep.report.sentences.words import Open, Sentences, Wording, known, listed

LATE = 0.8  # of the tries: an improvement after so many of them says that the search still moved


def course(history: pd.DataFrame, words: Wording) -> Sentences:
    """When each objective's best was found, from `Findings.history`."""
    out = []
    for name, rows in history.groupby("objective", sort=False):
        best = rows["best"].dropna()
        if best.empty:
            continue
        last = best.iloc[-1]
        found = rows.loc[rows["best"] == last].iloc[0]
        late = found["tried"] > LATE * len(rows) and len(rows) > 4
        more = " It still improved near the end, so more tries may help." if late else ""
        out.append(
            f"{name} found its best, {words.level(last)}, at try {count(found['tried'])} of "
            f"{count(len(rows))}.{more}"
        )
    return tuple(out)


def importances(table: pd.DataFrame) -> Sentences:
    """Which hyperparameters went with the score, from `Findings.importance`."""
    out: list[str] = []
    for name, frame in table.groupby("objective", sort=False):
        rows = records_of(frame)
        found = [
            f"{row['param']} ({number(row['importance'])}, by chance up to {number(row['null'])})"
            for row in sorted(rows, key=lambda row: -row["importance"])
            if row["resolved"]
        ]
        if found:
            verb = "goes" if len(found) == 1 else "go"
            out.append(f"Among the tries of {name}, {listed(found)} {verb} with the score.")
        elif any(is_measured(row["reason"]) for row in rows):
            why = "" if not rows[0]["reason"] else f": {rows[0]['note']}"
            out.append(Open(f"Which hyperparameter matters for {name} is not resolved{why}."))
    return tuple(out)


def savings(table: pd.DataFrame) -> Sentences:
    """What stopping early saved, from `Findings.saved`."""
    out = []
    for row in records_of(table):
        hours = f", about {work(row['saved_hours'])}" if known(row["saved_hours"]) else ""
        out.append(
            f"{row['objective']}: {count(row['stopped'])} of {count(row['trials'])} trials were "
            f"stopped early, which saved {number(100 * row['saved'])} % of the epochs{hours}."
        )
    return tuple(out)
