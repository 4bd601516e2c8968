"""Which objective wins where: the best mean at each value or bin of one hyperparameter, and whether
that is sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis import CONFIDENCE, reasons, resample
from clsweep.analysis.comparison.evidence import Evidence, mean_difference
from clsweep.analysis.comparison.pairing import PER_BIN, Pairing, pair
from clsweep.analysis.comparison.table import gated
from clsweep.analysis.holm import holm
from clsweep.analysis.nested import branch, holding
from clsweep.analysis.reasons import Reason, note, noted
from clsweep.analysis.regions import cut, means_by
from clsweep.analysis.sweep import Sweep, check_by
from clsweep.analysis.threads import in_threads

COLUMNS = {
    "by": "the hyperparameter",
    "region": 'a value or a bin of it, such as "tau=0.1" or "tau=0.05..0.08"',
    "value_low": "edges of the bin, equal for a value; NaN for a category",
    "value_high": "",
    "objective": "the one with the best mean there, over all its configurations in the region",
    "mean": "its mean, in the metric's own sign",
    "runner_up": "the second best mean",
    "lead": "mean difference of best and runner-up over their pairs, positive = better; best was "
    "picked for it, so optimistic",
    "low": "interval of the lead",
    "high": "",
    "p_holm": "the largest p of best against each of the others, corrected for all regions (Holm)",
    "winner": "the objective, where it is resolved against every other; else empty",
    "resolved": "whether there is one",
    **reasons.COLUMNS,
}
TEXT = ("region", "objective", "runner_up", "winner")


def winners(sweeps: Sequence[Sweep], *, by: str) -> pd.DataFrame:
    """One row per value or bin of `by`, with the columns of `COLUMNS`, among the objectives that
    sweep it evenly.

    The best was picked on the same scores that test it. So it wins only if it is resolved against
    every other: each interval of `evidence.mean_difference` excludes zero, and the largest of the
    p-values, corrected over the regions, is <= 1 - confidence (an intersection-union test, Berger
    1982). With two equal objectives that happens as seldom as the two-sided test says, with more of
    them less often.

    Raises ValueError for a `by` that no objective sweeps.
    """
    check_by(by, sweeps)
    return gated(sweeps, lambda sweeps: _winners(sweeps, by), ("region",))


def _winners(sweeps: Sequence[Sweep], by: str) -> pd.DataFrame:
    lacking = note(Reason.NOT_SWEPT, param=by)
    notes = [lacking.of(sweep.objective) for sweep in sweeps if by not in sweep.params]
    notes += [s.nothing.of(s.objective) for s in sweeps if by in s.params and s.nothing]
    notes += [each.of(s.objective) for s in sweeps for each in branch(s, by)]
    competing = [holding(s, by) for s in sweeps if by in s.params and not s.nothing]
    if not competing:
        blank = {**dict.fromkeys(COLUMNS, np.nan), **dict.fromkeys(TEXT, ""), "by": by}
        blank |= {"resolved": False, **noted(*notes, why=note(Reason.NOBODY_COMPETES))}
        return pd.DataFrame([blank], columns=list(COLUMNS))
    regions = cut(by, competing, per_bin=PER_BIN)
    # (objectives, regions): mean of the configurations there that have a score; NaN for none
    at = [regions.place(sweep.settings[by][sweep.alive]) for sweep in competing]
    levels = [sweep.means[sweep.alive] for sweep in competing]
    means = np.stack([means_by(*each, len(regions)) for each in zip(at, levels, strict=True)])

    @cache
    def parts_of(a: int, b: int) -> tuple[Pairing, dict[str, Pairing]]:
        whole = pair(competing[a], competing[b])
        return whole, whole.split(regions)

    def contest(k: int) -> dict[str, Any] | None:
        """The best of a region against every other."""
        row: dict[str, Any]
        known = np.argsort(-means[:, k], kind="stable")[: np.isfinite(means[:, k]).sum()].tolist()
        if not known:
            return None
        best, *others = known
        row = {"by": by, "region": regions.named[k], "p_holm": np.nan, "excludes": False}
        row |= {"value_low": regions.low[k], "value_high": regions.high[k]}
        row["objective"] = competing[best].objective
        row["mean"] = competing[best].sign * float(means[best, k])
        row["runner_up"] = competing[others[0]].objective if others else ""
        if not others:
            return row | noted(*notes, why=note(Reason.NOBODY_ELSE))
        tests, said = [], list(notes)
        for other in others:
            whole, parts = parts_of(best, other)
            said += whole.notes
            if row["region"] not in parts:
                names = {"a": competing[best].objective, "b": competing[other].objective}
                said.append(note(Reason.NO_PAIR, **names))
                tests.append(Evidence(np.nan))
                continue
            rng = np.random.default_rng(resample.SEED)
            test, _, more = mean_difference(parts[row["region"]], whole, len(parts), rng)
            said += more
            tests.append(test)
        ps = [test.p for test in tests]
        row |= {"lead": tests[0].estimate, "low": tests[0].low, "high": tests[0].high}
        row["p_holm"] = max(ps) if np.isfinite(ps).all() else np.nan
        row["excludes"] = all(test.low > 0 for test in tests)
        return row | noted(*said)

    rows = [row for row in in_threads(contest, range(len(regions))) if row]
    adjusted = holm(np.array([row["p_holm"] for row in rows]))
    for row, p_holm in zip(rows, adjusted, strict=True):
        row["p_holm"] = p_holm
        row["resolved"] = bool(row["excludes"] and p_holm <= 1.0 - CONFIDENCE + 1e-12)
        row["winner"] = row["objective"] if row["resolved"] else ""
    return pd.DataFrame(rows, columns=list(COLUMNS))
