"""Verdicts that do not hang on what a failed trial counts as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis.reasons import Reason, note, noted
from clsweep.analysis.sweep import Sweep


def gated(
    sweeps: Sequence[Sweep], table: Callable[[Sequence[Sweep]], pd.DataFrame], keys: Sequence[str]
) -> pd.DataFrame:
    """`table` of the sweeps, whose rows are known by `keys`; where failed trials count in the
    scores, a winner is one only if it also is with the failed trials left out.

    An objective that crashes where it is bad looks better, and more robust, without its failures.
    Counted as the worst score, failures that have other causes make it look worse. So each interval
    is the union of both, and a winner that only one of both finds is none
    (`Reason.FAILURES_DECIDE`).
    """
    found = table(sweeps)
    counted = {s.objective: s.num_failed for s in sweeps if np.isfinite(s.failed_level)}
    if not any(counted.values()):
        return found
    without = table([sweep.without_failed() for sweep in sweeps])
    others = {tuple(row[key] for key in keys): row for row in without.to_dict("records")}
    rows = []
    records: list[dict[str, Any]] = [
        {str(k): v for k, v in r.items()} for r in found.to_dict("records")
    ]
    for row in records:
        involved = (row["a"], row["b"]) if "a" in row else tuple(counted)
        other = others.get(tuple(row[key] for key in keys))
        if any(counted.get(name) for name in involved):
            low, high = (other["low"], other["high"]) if other else (np.nan, np.nan)
            row |= {"low": np.fmin(row["low"], low), "high": np.fmax(row["high"], high)}
            if row["winner"] != (other["winner"] if other else ""):
                why = note(Reason.FAILURES_DECIDE)
                row |= {"winner": "", "resolved": False, **noted(*row["note"], why=why)}
        rows.append(row)
    return pd.DataFrame(rows, columns=found.columns)
