"""The objective that wins in each region of a hyperparameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis.array_types import Array
from clsweep.analysis.compare import LARGEST_P, doubt, robust_to_failures, without_rounding
from clsweep.analysis.evidence import Evidence
from clsweep.analysis.holm import holm
from clsweep.analysis.mean_tests import mean_difference
from clsweep.analysis.nested import branch_note, conditional
from clsweep.analysis.pairing import PAIRS_PER_BIN, Pairing, pair
from clsweep.analysis.reasons import Note, Reason, note, noted, with_notes
from clsweep.analysis.regions import Regions, cut, means_by
from clsweep.analysis.sweep import Sweep, check_by, counted_alike, in_threads

WINNER_COLUMNS = with_notes(
    "by region value_low value_high objective mean runner_up lead low high p_holm winner resolved"
)
WINNER_TEXT = ("region", "objective", "runner_up", "winner")


def region_winners(sweeps: Sequence[Sweep], *, by: str) -> pd.DataFrame:
    """One row per value or bin of `by`, with the columns of `WINNER_COLUMNS`, among the objectives
    that sweep it evenly.

    The best was picked on the same scores that test it. So it wins only if it is resolved against
    every other: each interval of `mean_tests.mean_difference` excludes zero, and the largest of the
    p-values, corrected over the regions, is <= 1 - confidence (an intersection-union test, Berger
    1982).

    Raises ValueError for a `by` that no objective sweeps.
    """
    check_by(by, sweeps)
    return robust_to_failures(sweeps, lambda sweeps: _winners(sweeps, by), ("region",))


def _met(
    whole: Pairing, parts: Mapping[str, Pairing], region: str, best: Sweep, other: Sweep
) -> tuple[Evidence, list[Note]]:
    """The difference of two in a region, and its notes."""
    if region not in parts:
        lacking = note(Reason.NO_PAIR, a=best.objective, b=other.objective)
        return Evidence(np.nan), [*whole.notes, lacking]
    return mean_difference(parts[region], whole)[0], [*whole.notes]


def _means_at(regions: Regions, sweep: Sweep) -> Array:
    """(R,) mean of the configurations in each region that have a score; NaN for none."""
    at = regions.place(sweep.settings[regions.param][sweep.alive])
    return means_by(at, sweep.means[sweep.alive], len(regions))


def _leads(regions: Regions, sweeps: Sequence[Sweep], means: Array) -> Array:
    """(n, n, R) mean of each objective less that of another one, NaN with itself. Failed trials
    count as the worst score of the two, as where these are tested.
    """
    leads = means[:, None] - means
    for one, other in combinations(range(len(sweeps)), 2):
        pair = sweeps[one], sweeps[other]
        if any(each.num_failed for each in pair):
            a, b = (_means_at(regions, each) for each in counted_alike(*pair))
            leads[one, other], leads[other, one] = a - b, b - a
    leads[np.diag_indices(len(sweeps))] = np.nan
    return leads


def _winners(sweeps: Sequence[Sweep], by: str) -> pd.DataFrame:
    lacking = note(Reason.NOT_SWEPT, param=by)
    notes = [lacking.of(sweep.objective) for sweep in sweeps if by not in sweep.params]
    notes += [s.nothing.of(s.objective) for s in sweeps if by in s.params and s.nothing]
    notes += [each.of(s.objective) for s in sweeps for each in branch_note(s, by)]
    competing = [conditional(s, by) for s in sweeps if by in s.params and not s.nothing]
    if not competing:
        blank = {**dict.fromkeys(WINNER_COLUMNS, np.nan), **dict.fromkeys(WINNER_TEXT, "")}
        nobody = {"by": by, "resolved": False, **noted(*notes, why=note(Reason.NOBODY_COMPETES))}
        return pd.DataFrame([blank | nobody], columns=list(WINNER_COLUMNS))
    regions = cut(by, competing, per_bin=PAIRS_PER_BIN)
    means = np.stack([_means_at(regions, sweep) for sweep in competing])
    leads = _leads(regions, competing, means)

    @cache
    def parts_of(ab: tuple[int, ...]) -> tuple[Pairing, dict[str, Pairing]]:
        whole = pair(*counted_alike(*(competing[place] for place in ab)))
        return whole, whole.split(regions)

    def contest(k: int) -> dict[str, Any] | None:
        """The best of a region against every other."""
        known = np.flatnonzero(np.isfinite(means[:, k])).tolist()
        if not known:
            return None
        best = max(known, key=lambda one: np.nanmin(np.append(leads[one, known, k], np.inf)))
        others = sorted({*known} - {best}, key=lambda other: leads[best, other, k])
        row: dict[str, Any] = {
            "by": by, "region": regions.named[k], "p_holm": np.nan, "excludes": False,
            "value_low": regions.low[k], "value_high": regions.high[k],
            "objective": competing[best].objective,
            "mean": competing[best].sign * float(means[best, k]),
            "runner_up": competing[others[0]].objective if others else "",
        }  # fmt: skip
        if not others:
            return row | noted(*notes, why=note(Reason.NOBODY_ELSE))
        tests, reasons_of_row = [], list(notes)
        for other in others:
            met = parts_of(tuple(sorted((best, other))))  # as `compare` has them
            test, more = _met(*met, row["region"], *(competing[at] for at in (best, other)))
            reasons_of_row += more
            tests.append(test if best < other else test.turned)
        lead = without_rounding(tests[0].estimate, abs(row["mean"]))
        row |= {"lead": lead, "low": tests[0].low, "high": tests[0].high}
        row["p_holm"] = float(np.max([test.p for test in tests]))  # NaN where one is
        row["excludes"] = all(test.low > 0 for test in tests)
        close = [at for at, test in zip(others, tests, strict=True) if not test.low > 0]
        row["close"] = " and ".join(competing[at].objective for at in close)
        return row | noted(*reasons_of_row)

    rows = [row for row in in_threads(contest, range(len(regions))) if row]
    adjusted = holm(np.array([row["p_holm"] for row in rows], dtype=float))
    tests = int(np.isfinite(adjusted).sum())
    for row, p_holm in zip(rows, adjusted, strict=True):
        _decide(row, p_holm, tests)
    return pd.DataFrame(rows, columns=list(WINNER_COLUMNS))


def _decide(row: dict[str, Any], p_holm: float, tests: int) -> None:
    """Puts the winner of a region into its row, or why there is none."""
    alone, excludes = row["p_holm"], row["excludes"]
    row["resolved"] = bool(excludes and p_holm <= LARGEST_P)
    row |= {"p_holm": p_holm, "winner": row["objective"] * row["resolved"]}
    if not row["resolved"] and not row["reason"]:
        why = doubt(alone, by_interval=excludes, tests=tests)
        if why is None and row.get("low", 0.0) > 0:  # the runner-up is beaten, others are not
            why = note(Reason.BEHIND_NOT_SHOWN, others=row["close"])
        row |= noted(*row["note"], why=why)
