"""The first screen: question, answer, leaderboard, one chart, what to do next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from clsweep.findings import tables as shown
from clsweep.findings.notes import version_notes
from clsweep.report.computed import Tables
from clsweep.report.model import Figure, Section, Step, Table
from clsweep.report.pieces import words_of
from clsweep.report.sentences import answer, objectives, reproduction, steps
from clsweep.report.sentences.words import Sentences

MAX_HEROES, SMALL_HEIGHT = 4, 190
MANY_SEEDS = 30  # what needs more is too small a difference to go after
KEYS = ("objective", "config")  # of a configuration


def verdicts(tables: Tables) -> Sentences:
    """The answer; of a reproduction, whether the paper's numbers agree."""
    words = words_of(tables)
    said = answer.verdict(tables.board, tables.means, tables.spreads, words)
    against = reproduction.summary(tables.printed)
    return (*against, *said[: 1 if against else None])


def notes(tables: Tables) -> Sentences:
    words = words_of(tables)
    return (
        *answer.cautions(tables.board, words, is_search=tables.is_search),
        *tables.material.notes,
        *version_notes(tables.material.trials),
    )


def board(tables: Tables) -> Table:
    """The leaderboard as a table."""
    return Table(
        name="leaderboard",
        title="Leaderboard",
        caption=shown.LEADERBOARD_LEGEND.format(within=shown.points(tables.within)),
        frame=tables.board,
        shown=shown.with_levels(
            tables.board, shown.leaderboard(tables.board, metric=tables.material.metric_title)
        ),
        soft=tuple(i for i, kind in enumerate(tables.board["kind"]) if kind == "reference"),
    )


def hero(tables: Tables) -> tuple[Figure, ...]:
    """The charts that answer at a glance: of a paper's table beside it, of a search its history, of
    a sweep the metric against each hyperparameter, else how training went.
    """
    from clsweep.report.figures import all as figures  # a terminal's verdict needs no Altair

    material = tables.material
    if drawn := figures.reproduction_figures(tables.measured_layouts, material):
        return tuple(drawn[:MAX_HEROES])
    if tables.is_search:
        history = figures.history_figure(tables.findings.history(), material)
        return () if history is None else (history,)
    order = {name: place for place, name in enumerate(tables.swept)}
    marginals = tables.findings.marginals()
    if not marginals.empty:
        marginals = marginals.sort_values(
            "param", key=lambda names: names.map(order), kind="stable"
        )
    if found := figures.marginal_figures(marginals, material)[:MAX_HEROES]:
        return tuple(found if len(found) == 1 else map(_small, found))
    return tuple(figures.learning_figures(tables.findings.learning(), material)[:1])


def _small(figure: Figure) -> Figure:
    """One of several side by side."""
    return replace(figure, chart=figure.chart.properties(height=SMALL_HEIGHT))


def unresolved(tables: Tables, sections: Sequence[Section]) -> Sentences:
    """Every question that stays open, each with what would resolve it. Of a search, robustness
    alone is withheld; that nothing else is asked of the space needs no saying.
    """
    if tables.is_search:
        sections = [part for part in sections if part.id == "search"]
        own = objectives.unmeasured(tables.material.sweeps)
    else:
        own = ()
    return tuple(dict.fromkeys([*own, *(each for part in sections for each in part.open)]))


def next_steps(tables: Tables) -> tuple[Step, ...]:
    """What to do next, the most useful first."""
    material = tables.material
    found = [steps.finish(material.left)] if material.left else []
    if not material.left:
        found += [
            steps.confirm(folder, names, material.fresh_seeds.get(folder, ()))
            for folder, names in _to_confirm(tables).items()
        ]
    needed = [
        math.ceil(value)
        for pair in (tables.means, tables.spreads)
        for value in pair["needs_seeds"].dropna()
    ]
    if needed and min(needed) <= MANY_SEEDS and not tables.is_search:
        found.append(steps.more_seeds(min(needed)))
    if len(material.sources) == 1 and len(found) < 2 and material.confirmable:
        found.append(steps.look(material.sources[0], material.metric, material.mode))
    return tuple(found)


def _to_confirm(tables: Tables) -> dict[str, list[str]]:
    """Folder -> the objectives whose best has finished on all seeds and has not run again on fresh
    ones.
    """
    confirmed, sweeps = tables.material.confirmation, tables.material.sweeps
    known = set() if confirmed.empty else set(zip(*(confirmed[key] for key in KEYS), strict=True))
    num_seeds = {sweep.objective: len(sweep.seeds) for sweep in sweeps}
    left: dict[str, list[str]] = {}
    for row in tables.findings.recommend().query("kind == 'best'").to_dict("records"):
        name, folder = row["objective"], tables.material.confirmable.get(row["objective"])
        is_whole = row["num_seeds"] == num_seeds[name]
        if folder and is_whole and tuple(row[key] for key in KEYS) not in known:
            left.setdefault(folder, []).append(name)
    return left
