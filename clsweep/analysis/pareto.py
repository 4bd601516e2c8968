"""Accuracy against cost: which configurations no other one beats in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis import reasons
from clsweep.analysis.reasons import Note, Reason, note, noted
from clsweep.analysis.recommend import levels_of
from clsweep.analysis.sweep import Array, Sweep
from clsweep.analysis.tuned import no_whole, pick, whole

COLUMNS = {
    "objective": "name; objectives that are scored alike share a front",
    "config": "number of the configuration within its objective",
    "at": "its swept hyperparameters, of those on the front and by_fresh",
    "seconds": "worker seconds of a trial, wall_time_s x workers: mean over the seeds that say it",
    "score": "mean over the seeds; those on the front are picked by it, so optimistic",
    "low": "t-interval of score by the seed noise, pooled where it is even",
    "high": "",
    "num_seeds": "seeds that score rests on",
    "on_front": "whether no configuration scored alike is as cheap and better, or cheaper and as "
    "good, by these means",
    "by_fresh": "whether it is the best of its objective because fresh seeds overturned the pick "
    "by these means",
    **reasons.COLUMNS,
}


def pareto(
    trials: pd.DataFrame, sweeps: Sequence[Sweep], *, yardsticks: Mapping[str, str]
) -> pd.DataFrame:
    """One row per configuration with the columns of `COLUMNS`, the cheapest first in each group of
    objectives that are scored alike.

    A configuration takes part with a score on every planned seed (`tuned.whole`) and a known time.
    Scores and times are means, so a near tie on the front is no finding. Where devices differ, or
    times are not known, the notes say so.

    trials: objective, config and, where recorded, wall_time_s, workers and device.
    yardsticks: objectives with different ones have fronts of their own; those without one share
        one.
    """
    seconds = _seconds(trials)
    devices = trials["device"].nunique() if "device" in trials else 0
    notes = (note(Reason.PICKED), *([note(Reason.SEVERAL_DEVICES)] if devices > 1 else []))
    groups: dict[str, list[Sweep]] = {}
    for sweep in sweeps:
        groups.setdefault(yardsticks.get(sweep.objective, ""), []).append(sweep)
    frames = []
    for group in groups.values():
        tables = [_rows(sweep.measured, seconds, notes) for sweep in group]
        known = pd.concat(tables, ignore_index=True).reindex(columns=list(COLUMNS))
        signs = {sweep.objective: sweep.sign for sweep in group}
        scores = known["score"] * known["objective"].map(signs).astype(float)
        known["on_front"] = on_front(known["seconds"].to_numpy(float), scores.to_numpy(float))
        places = [(sweep, row) for sweep, t in zip(group, tables, strict=True) for row in t.index]
        known["at"] = [
            sweep.label(row) if is_told else ""
            for (sweep, row), is_told in zip(
                places, known["on_front"] | known["by_fresh"].astype(bool), strict=True
            )
        ]
        frames.append(known.sort_values("seconds", kind="stable"))
    return pd.concat(frames, ignore_index=True)


def on_front(costs: Array, scores: Array) -> Any:
    """(n,) bool, points that no other is at least as good as in both and better in one: a low cost
    and a high score. A point without either is none.
    """
    known = np.isfinite(costs) & np.isfinite(scores)
    front = np.zeros(len(costs), dtype=bool)
    best, last = -np.inf, np.nan
    for i in np.lexsort((-scores, costs)):
        is_twin = bool(scores[i] == best and costs[i] == last)
        if known[i] and (scores[i] > best or is_twin):
            front[i], best, last = True, scores[i], costs[i]
    return front


def _seconds(trials: pd.DataFrame) -> Mapping[tuple[str, Any], float]:
    """Mean worker seconds of the trials of each configuration that finished and say it."""
    if "wall_time_s" not in trials:
        return {}
    finished = trials[trials["status"] == "finished"]
    workers = finished["workers"].fillna(1) if "workers" in finished else 1
    spent = pd.to_numeric(finished["wall_time_s"]) * workers
    groups = spent.groupby([finished["objective"].astype(str), finished["config"]])
    means: dict[Any, float] = groups.mean().dropna().to_dict()
    return means


def _rows(
    sweep: Sweep, seconds: Mapping[tuple[str, Any], float], notes: tuple[Note, ...]
) -> pd.DataFrame:
    """One row per configuration that takes part, by its row of the sweep; else one that says why
    none does.
    """
    start = {"objective": sweep.objective, "at": "", "on_front": False, "by_fresh": False}
    if why := sweep.no_score:
        return pd.DataFrame([{**start, **noted(why=why)}])
    spent = np.array([seconds.get((sweep.objective, config), np.nan) for config in sweep.configs])
    may = whole(sweep)
    part = np.flatnonzero(may & np.isfinite(spent))
    if not part.size:
        why = note(Reason.TIMES_UNKNOWN) if may.any() else no_whole(sweep)
        return pd.DataFrame([{**start, **noted(*sweep.failures, why=why)}])
    levels = {name: values[part] for name, values in levels_of(sweep).items()}
    told = noted(*notes, *sweep.failures)
    said = {name: [value] * len(part) for name, value in told.items()}
    best = pick(sweep)
    overturned = [best is not None and best.row != best.first and best.row == row for row in part]
    columns = {"config": sweep.configs[part], "seconds": spent[part], **levels, **said}
    columns["by_fresh"] = overturned
    return pd.DataFrame({**start, **columns}, index=part)
