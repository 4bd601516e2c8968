"""Which objective wins where: the best mean at each value or bin of one hyperparameter, and whether
that is sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis import CONFIDENCE, reasons, resample
from clsweep.analysis.comparison import evidence
from clsweep.analysis.comparison.difference import gated, mean_difference, regions_of, split
from clsweep.analysis.comparison.pairing import Pairing, pair
from clsweep.analysis.holm import holm
from clsweep.analysis.reasons import Note, Reason, note, noted
from clsweep.analysis.regions import Regions
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
    every other: each interval of `difference.mean_difference` excludes zero, and the largest of the
    p-values, corrected over the regions, is <= 1 - confidence (an intersection-union test, Berger
    1982). With two equal objectives that happens as seldom as the two-sided test says, with more of
    them less often.

    Raises ValueError for a `by` that no objective sweeps.
    """
    check_by(by, sweeps)
    return gated(sweeps, lambda sweeps: _winners(sweeps, by), ("region",))


def _winners(sweeps: Sequence[Sweep], by: str) -> pd.DataFrame:
    notes = [
        note(Reason.NOT_SWEPT, param=by).of(sweep.objective)
        for sweep in sweeps
        if by not in sweep.params
    ]
    notes += [s.nothing.of(s.objective) for s in sweeps if by in s.params and s.nothing]
    competing = [s for s in sweeps if by in s.params and not s.nothing]
    if not competing:
        blank: dict[str, Any] = {
            **dict.fromkeys(COLUMNS, np.nan),
            **dict.fromkeys(TEXT, ""),
            "by": by,
            "resolved": False,
        }
        blank |= noted(*notes, why=note(Reason.NOBODY_COMPETES))
        return pd.DataFrame([blank], columns=list(COLUMNS))
    found = regions_of(by, competing)
    means = _region_means(competing, found)
    pairings: dict[tuple[int, int], tuple[Pairing, dict[str, Pairing]]] = {}

    def row_of(k: int) -> dict[str, Any] | None:
        order = [
            int(i) for i in np.argsort(-means[:, k], kind="stable") if np.isfinite(means[i, k])
        ]
        if not order:
            return None
        label = found.named[k]
        row: dict[str, Any] = {
            "by": by,
            "region": label,
            "value_low": found.low[k],
            "value_high": found.high[k],
        }
        return row | _contest(competing, order, means[:, k], found, label, pairings, notes)

    rows = [row for row in in_threads(row_of, range(len(found))) if row]
    adjusted = holm(np.array([row["p_holm"] for row in rows]))
    for row, p_holm in zip(rows, adjusted, strict=True):
        row["p_holm"] = p_holm
        row["resolved"] = bool(row["excludes"] and p_holm <= 1.0 - CONFIDENCE + 1e-12)
        row["winner"] = row["objective"] if row["resolved"] else ""
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _region_means(sweeps: Sequence[Sweep], regions: Regions) -> np.ndarray:
    """(objectives, regions): mean of the configurations there that have a score, larger is better;
    NaN for none.
    """
    out = np.full((len(sweeps), len(regions)), np.nan)
    for i, sweep in enumerate(sweeps):
        at = regions.place(sweep.settings[regions.param])[sweep.alive]
        count = np.bincount(at, minlength=len(regions))
        total = np.bincount(at, weights=sweep.means[sweep.alive], minlength=len(regions))
        out[i] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return out


def _contest(
    sweeps: Sequence[Sweep],
    order: list[int],
    means: np.ndarray,
    regions: Regions,
    region: str,
    pairings: dict[tuple[int, int], tuple[Pairing, dict[str, Pairing]]],
    notes: list[Note],
) -> dict[str, Any]:
    """The best of a region against every other; `pairings` keeps what is paired already."""
    best, *others = order
    row: dict[str, Any] = {
        **dict.fromkeys(("lead", "low", "high", "p_holm"), np.nan),
        "runner_up": "",
    }
    row |= {
        "objective": sweeps[best].objective,
        "mean": sweeps[best].sign * float(means[best]),
        "excludes": False,
    }
    if not others:
        return row | noted(*notes, why=note(Reason.NOBODY_ELSE))
    row["runner_up"] = sweeps[others[0]].objective
    tests, said = [], list(notes)
    for other in others:
        if (best, other) not in pairings:
            whole = pair(sweeps[best], sweeps[other])
            pairings[best, other] = whole, dict(split(whole, regions))
        whole, parts = pairings[best, other]
        said += whole.notes
        if region not in parts:
            names = {"a": sweeps[best].objective, "b": sweeps[other].objective}
            said.append(note(Reason.NO_PAIR, **names))
            tests.append(evidence.Evidence(estimate=np.nan))
            continue
        rng = np.random.default_rng(resample.SEED)
        result, _, more = mean_difference(parts[region], whole, len(parts), rng)
        said += more
        tests.append(result)
    ps = [test.p for test in tests]
    row |= {"lead": tests[0].estimate, "low": tests[0].low, "high": tests[0].high, **noted(*said)}
    return row | {
        "p_holm": max(ps) if np.isfinite(ps).all() else np.nan,
        "excludes": all(t.low > 0 for t in tests),
    }
