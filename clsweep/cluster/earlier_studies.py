"""Earlier studies that a search learns from, `search.from`: their configurations as evidence or,
where more differs than what is swept, as guides: by their ranks alone.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from clsweep.catalog import PARAM, Value
from clsweep.catalog.ownership import ALL_THERE_IS, is_as_planned
from clsweep.catalog.rows import SECONDS, Row
from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder
from clsweep.results.journal import Outcome
from clsweep.results.reading import open_folder
from clsweep.results.standings import Standings
from clsweep.study.design import Study, plan_row, plan_trials
from clsweep.study.schema import LIVE_METHODS
from clsweep.study.space import Objective

# what a planned row says of itself, and no number hangs on
_NAMES_ONLY = ("trial_id", "study", "objective", "config", "seed", "sampler", "plugins")
_Params = dict[str, Value]
# Values of those that take part, and the mean over the seeds of each objective of the search.
Scored = tuple[Any, ...]


@dataclass
class EarlierTrials:
    """Configurations of earlier studies in the space of one objective.

    Attributes:
        evidence: configurations that differ from those of this study in what is swept alone.
        guides: others, whose scores can be compared with one another and not with those to come.
        notes: what was taken of each folder, and why not more.
    """

    evidence: list[Scored] = field(default_factory=list)
    guides: list[Scored] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def earlier_trials(study: Study) -> dict[str, EarlierTrials]:
    """The earlier trials of each objective that a live search sweeps.

    Raises:
        RequestError: a folder has no results.
    """
    trials = {trial.objective: trial for trial in plan_trials(study)}  # the last: all is open there
    earlier = {
        o.name: EarlierTrials() for o in study.objectives if trials[o.name].sampler in LIVE_METHODS
    }
    for path in _distinct(study.sections.search.from_):
        try:
            folder = open_folder(path)
        except RequestError as error:
            raise RequestError(f"search.from: {error}") from None
        configs = defaultdict(list)
        for means, row in _finished(folder, *study.sections.goals):
            configs[row["objective"]].append((means, row))
        for objective in study.objectives:
            if objective.name in earlier:
                planned = plan_row(study, trials[objective.name])
                _take(earlier[objective.name], path, objective, planned, configs[objective.name])
    return earlier


def _distinct(paths: Sequence[str]) -> list[str]:
    """The folders, of two spellings of one the first."""
    return [*{p if "://" in p else os.path.realpath(p): p for p in reversed(paths)}.values()][::-1]


def earlier_notes(study: Study) -> list[str]:
    """Each earlier study and what the search takes of it, a line for each objective."""
    if not study.sections.search.from_:
        return []
    return [f"note: {note}" for each in earlier_trials(study).values() for note in each.notes]


def _finished(
    folder: ResultsFolder, metric: str, second: str = ""
) -> Iterator[tuple[list[float], Row]]:
    """Means of the metric and of the second objective, if any, of each configuration that finished
    on all its seeds, and one of its rows; of each objective the best first.
    """
    plan = folder.plan().to_pylist()
    known = [*plan[0]] if plan else []
    weighed = ["wall_time_s", "workers"] if second == SECONDS else [second] if second else []
    names = dict.fromkeys([*known, "status", metric, *weighed])
    rows = folder.trials([*names]).to_pylist()
    mode = folder.study().get("metric", {}).get("mode", "max")
    by_config = defaultdict(list)
    for row in rows:
        by_config[row["objective"], row["config"]].append(row)
    for ranking in Standings(plan, rows, metric=metric, mode=mode).rankings():
        for each in ranking.configs:
            own = by_config[each.objective, each.config]
            values = [Outcome.of(row, metric, second).second for row in own]
            measured = [value for value in values if value is not None]
            means = [fmean(measured)] if measured else []
            if len(measured) == len(own) or not second:
                yield [each.score, *means], own[0]


def _take(
    earlier: EarlierTrials,
    path: str,
    objective: Objective,
    planned: Row,
    configs: list[tuple[list[float], Row]],
) -> None:
    """Add what one folder says of an objective."""
    place = f"search.from: {path}: {objective.name}"
    inside = [
        ((params, *means), row)
        for means, row in configs
        if (params := _params_of(objective, row)) is not None
    ]
    if not inside:
        reason = "none lies in its space" if configs else "it has none of this name and metric"
        earlier.notes.append(f"{place}: no configuration: {reason}")
        return
    alike = [each for each, row in inside if not _differing(objective, planned, row)]
    earlier.evidence += alike
    number = len(alike or inside)
    configurations = "1 configuration" if number == 1 else f"{number} configurations"
    if alike:
        earlier.notes.append(f"{place}: {configurations} as evidence")
        return
    earlier.guides += [each for each, _ in inside]
    differing = "; ".join(_differing(objective, planned, inside[0][-1])[:3])
    earlier.notes.append(f"{place}: {configurations} by their ranks alone, as {differing}")


def _params_of(objective: Objective, row: Mapping[str, Any]) -> _Params | None:
    """The swept values of a recorded configuration; None outside of the objective's space."""
    values: dict[str, Value | None] = {}
    for name in objective.space:
        raw = row.get(name)
        try:
            values[name] = None if raw is None else PARAM[name].coerce(raw)
        except ValueError:
            return None
    taken = objective.conditions.taken(values)
    needed = (n for n in objective.space if objective.conditions.takes_part(n, values))
    is_whole = all(name in taken for name in needed)
    is_inside = all(
        objective.space[name].holds(value, is_gridded=False) for name, value in taken.items()
    )
    return taken if is_whole and is_inside else None


def _differing(objective: Objective, planned: Row, row: Mapping[str, Any]) -> list[str]:
    """Where a configuration differed beside the swept values: `epochs: 100 -> 10`."""
    names = [name for name in planned if name not in _NAMES_ONLY and name not in objective.space]
    return [
        f"{name}: {row.get(name)!r} -> {planned[name]!r}"
        for name in names
        if not is_as_planned(name, row.get(name), planned[name])
        # else it hangs on what is swept
        and not (name in ALL_THERE_IS and planned[name] in (0, None))
    ]
