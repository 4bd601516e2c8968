"""What is said of a paper's numbers: how many agree, and which differ."""

from __future__ import annotations

import pandas as pd

from clsweep.analysis.reference import Verdict
from clsweep.display.cells import records_of
from clsweep.findings.reproduction import closing, setting_of, settings_of
from clsweep.report.sentences.words import Sentences, interval, number


def summary(frame: pd.DataFrame) -> Sentences:
    """The count of the verdicts; nothing where no number is printed."""
    return () if frame.empty else (f"Against the paper: {closing(frame)}.",)


def differing(frame: pd.DataFrame) -> Sentences:
    """The numbers that differ, a sentence each, the largest difference first."""
    rows = frame[frame["verdict"] == Verdict.DIFFERS]
    rows = rows.loc[rows["difference"].abs().sort_values(ascending=False).index]
    return tuple(
        f"{row['item']}, {setting_of(row, settings_of(frame))}: {row['metric']} is "
        f"{number(row['measured'])}, printed {number(row['value'])}, a difference of "
        f"{number(row['difference'])}{interval(row['difference_low'], row['difference_high'])}."
        for row in records_of(rows)
    )
