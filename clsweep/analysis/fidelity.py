"""Early epochs as judges of the last one: rank correlation, and the loss of choosing by them.

They are of one long run. A run that is planned short has a schedule of its own, and other scores.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis.array_types import Array
from clsweep.analysis.cross_fit import cross_fitted
from clsweep.analysis.reasons import Reason, note, noted, with_notes
from clsweep.analysis.score_table import EPSILON
from clsweep.analysis.sweep import Sweep

FIDELITY_COLUMNS = with_notes(
    "objective budget epoch rho rho_low rho_high regret low high enough num_configs num_trials"
)
# Parts of the epochs that are looked at, as near as scores are; all where there are fewer.
BUDGETS = (0.05, *(tenth / 10 for tenth in range(1, 10)))
LEAST = 3  # settings: two have a rank correlation of 1 or -1


def fidelity(sweep: Sweep, curves: pd.DataFrame, *, within: float) -> list[dict[str, Any]]:
    """A row of `FIDELITY_COLUMNS` for each budget of a sweep, the smallest first; one that says why
    where there is none.

    curves: epochs of finished trials, in any order: config, seed, epoch, the `part` of its epochs
        that the trial was trained by then, and the `score` in the metric's own sign.
    within: the largest loss, in units of the metric, at which a budget is enough.
    """
    given, common = sweep.measured, {"objective": sweep.objective}
    notes = [*replace(given, num_stopped=0).missing]
    if stopped := given.num_stopped:
        notes.append(note(Reason.FULL_LENGTH, stopped=stopped, trials=given.num_trials))
    why, tables = given.no_score or given.seeds_apart, _tables(given, curves)
    if why or not tables:
        return [common | noted(*notes, why=why or note(Reason.NO_EARLY_SCORE))]
    rows: list[dict[str, Any]] = []
    for budget, (epoch, early) in tables.items():
        known = np.isfinite(early) & np.isfinite(given.scores)
        alive, why = known.any(axis=1), None if given.has_repeats else note(Reason.ONE_SEED)
        row: dict[str, Any] = common | {"budget": budget, "epoch": epoch, "enough": False}
        row |= {"num_configs": int(alive.sum()), "num_trials": int(known.sum())}
        if row["num_configs"] < LEAST:
            why = note(Reason.FEW_PAIRED, configs=row["num_configs"], least=LEAST)
        else:
            pair = np.where(known, np.stack([early, given.scores]), np.nan)[:, alive]
            (loss, rho), (half, half_rho) = cross_fitted(pair, _of_fold)
            if not stopped:  # for bad ranks, of which the others say little
                ends = zip(("", "_low", "_high"), (0, -half_rho, half_rho), strict=True)
                row |= {f"rho{end}": float(np.clip(rho + off, -1, 1)) for end, off in ends}
            if given.has_repeats:
                ends = zip(("regret", "low", "high"), (0, -half, half), strict=True)
                row |= {name: max(0.0, float(loss + off)) for name, off in ends}
        rows.append(row | noted(*notes, why=why))
    # From the last one on down to the first that is not shown to be enough: a fixed sequence of
    # tests needs no correction (Maurer, Hothorn and Lehmacher 1995).
    for row in reversed(rows):
        if not row.get("high", np.inf) <= within:
            break
        row["enough"] = True
    return rows


def _of_fold(looks: Array, scores: Array) -> Array:
    """(..., 2) the loss of the pick by the early looks against that by the last ones, and
    Spearman's rank correlation of the scores, of (..., 2, n) each.
    """
    best = looks.max(axis=-1, keepdims=True)
    first = looks >= best - EPSILON * np.abs(best)  # mostly one; of equals the mean
    levels = np.where(first, scores[..., 1:, :], 0.0).sum(axis=-1) / first.sum(axis=-1)
    up, down = (
        sign * (sign * scores).argsort(axis=-1, kind="stable").argsort(axis=-1) for sign in (1, -1)
    )
    ranks = up + down - (up + down).mean(axis=-1, keepdims=True)  # ties share theirs
    size = np.sqrt(np.square(ranks).sum(axis=-1).prod(axis=-1))
    rho = ranks.prod(axis=-2).sum(axis=-1) / np.where(size > 0, size, 1.0)
    return np.stack([levels[..., 1] - levels[..., 0], rho], axis=-1)


def _tables(sweep: Sweep, curves: pd.DataFrame) -> dict[float, tuple[float, Array]]:
    """Part of the epochs -> the epoch, and the scores there (n, S), larger is better. What fewer
    than half of the trials have is none.
    """
    early = curves[curves["score"].notna() & (curves["part"] < 1 - 1e-9)]
    early = early[early["config"].isin(sweep.configs) & early["seed"].isin(sweep.seeds)]
    early = early.assign(part=early["part"].round(6))
    num = early.groupby("part").size()
    parts = num.index[2 * num >= np.isfinite(sweep.scores).sum()].to_numpy(dtype=float)
    if len(parts) > len(BUDGETS):
        parts = parts[sorted({int(np.abs(parts - budget).argmin()) for budget in BUDGETS})]
    tables = {}
    for part in parts:
        at = early[early["part"] == part]
        table = at.pivot_table(index="config", columns="seed", values="score", aggfunc="last")
        values = table.reindex(index=sweep.configs, columns=sweep.seeds).to_numpy(dtype=float)
        tables[float(part)] = float(at["epoch"].median()), sweep.sign * values
    return tables
