"""The first screen: question, answer, leaderboard, one chart, what to do next."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from clsweep.display.numbers import count, settings, work
from clsweep.findings.material import Material
from clsweep.findings.notes import version_notes
from clsweep.questions import comparison, leaderboard, reproduction
from clsweep.questions.answers import Asked
from clsweep.questions.column import with_levels
from clsweep.questions.leaderboard import board, cautions, verdict_of
from clsweep.questions.learning import learning, learning_figures
from clsweep.questions.marginals import marginal_figures, marginals
from clsweep.questions.model import Figure, Sentences, Table
from clsweep.questions.recommend import recommend
from clsweep.questions.reproduction import printed_numbers, summary
from clsweep.questions.robustness import unmeasured
from clsweep.questions.search import history, history_figure
from clsweep.questions.words import counted, known, listed
from clsweep.report.model import Section, Step

MANY_VALUES = 3  # of the protocol: more are given as a range

DESIGNS = {
    "grid": "a grid",
    "qmc": "a quasi-random design",
    "random": "a random design",
    "tpe": "a TPE search",
    "gp": "a Gaussian-process search",
}
MAX_HEROES, SMALL_HEIGHT = 4, 190
MANY_SEEDS = 30  # what needs more is too small a difference to go after
KEYS = ("objective", "config")  # of a configuration


def question(asked: Asked) -> str:
    """`Which of 3 objectives is best? digits, conv4, 8 epochs, ..., 4 min of work.`"""
    material, printed = asked.material, printed_numbers(asked)
    ours = board(asked).query("kind == 'objective'")
    if not printed.empty:
        items = list(dict.fromkeys(printed["item"]))
        said = f"Do the numbers of {listed(items)} come out as printed?"
        return f"{said} {_protocol(material, ours)}."
    swept = list(dict.fromkeys(name for sweep in material.sweeps for name in sweep.params))
    what = f"Which of {len(ours)} objectives is best"
    if len(ours) == 1:
        what = f"How good is {ours['objective'].iloc[0]}"
    if not swept:
        said = f"{what}?"
    elif any(sweep.not_measured for sweep in material.sweeps):
        said = f"{what}, and at which {_named(swept)}?"
    else:
        said = f"{what}, and how much depends on {_named(swept)}?"
    return f"{said} {_protocol(material, ours)}."


def _named(names: list[str]) -> str:
    return listed(names) if len(names) <= MANY_VALUES else f"{len(names)} hyperparameters"


def _protocol(material: Material, ours: pd.DataFrame) -> str:
    """`digits, conv4, 8 epochs, 3 seeds, the whole grid of 15 settings, 60 trials, 2 min`."""
    trials = material.trials
    seeds = max((len(sweep.seeds) for sweep in material.sweeps), default=0)
    configs = sum(len(sweep.configs) for sweep in material.sweeps)
    planned = sum(sweep.num_planned for sweep in material.sweeps)
    samplers = list(dict.fromkeys(name for s in material.sweeps for name in s.samplers))
    design = " and ".join(DESIGNS.get(name, name) for name in samplers)
    parts = [
        _values(trials, "dataset"),
        _values(trials, "encoder"),
        f"{epochs} epochs" if (epochs := _values(trials, "epochs")) else "",
        counted(seeds, "seed", "seeds"),
        f"{design} of {_out_of(configs, planned)}",
        counted(len(trials), "trial", "trials"),
    ]
    hours = ours["hours"].sum(min_count=1)
    if known(hours):
        parts.append(f"{work(hours)} of work")
    return ", ".join(part for part in parts if part)


def _out_of(num: int, planned: int) -> str:
    """`20 configurations`, `20 configurations, 6 so far`."""
    whole = counted(max(num, planned), "configuration", "configurations")
    return whole if num >= planned else f"{whole}, {count(num)} so far"


def _values(trials: pd.DataFrame, name: str) -> str:
    if name not in trials:
        return ""
    values = trials[name].dropna().unique().tolist()
    if not values:
        return ""
    texts = settings(sorted(values, key=lambda v: (isinstance(v, str), v)))
    return listed(texts) if len(texts) <= MANY_VALUES else f"{texts[0]} to {texts[-1]}"


def verdicts(asked: Asked) -> Sentences:
    """Who scores best, and who depends least on its settings; of a reproduction, whether the
    paper's numbers agree, and one of these.
    """
    pairs = comparison.means(asked), comparison.spreads(asked)
    said = verdict_of(board(asked), *pairs, asked.words)
    against = summary(printed_numbers(asked))
    return (*against, *said[: 1 if against else None])


def notes(asked: Asked) -> Sentences:
    return (
        *cautions(board(asked), asked.words, is_search=asked.is_search),
        *asked.material.notes,
        *version_notes(asked.material.trials),
    )


def board_table(asked: Asked) -> Table:
    """The leaderboard as a table."""
    (table,) = leaderboard.QUESTION.tables_of(asked)
    kinds = table.frame["kind"]
    return replace(
        table,
        shown=with_levels(table.frame, table.shown),
        soft=tuple(i for i, kind in enumerate(kinds) if kind == "reference"),
    )


def hero(asked: Asked) -> tuple[Figure, ...]:
    """The charts that answer at a glance: of a paper's table beside it, of a search its history, of
    a sweep the metric against each hyperparameter, else how training went.
    """
    material = asked.material
    if drawn := reproduction.figures(asked):
        return tuple(drawn[:MAX_HEROES])
    if asked.is_search:
        course = history_figure(asked.ask(history), material)
        return () if course is None else (course,)
    order = {name: place for place, name in enumerate(asked.swept)}
    found = asked.ask(marginals)
    if not found.empty:
        found = found.sort_values("param", key=lambda names: names.map(order), kind="stable")
    if figures := marginal_figures(found, material)[:MAX_HEROES]:
        return tuple(figures if len(figures) == 1 else map(_small, figures))
    return tuple(learning_figures(asked.ask(learning), material)[:1])


def _small(figure: Figure) -> Figure:
    """One of several side by side."""
    return replace(figure, chart=figure.chart.properties(height=SMALL_HEIGHT))


def unresolved(asked: Asked, sections: Sequence[Section]) -> Sentences:
    """Every question that stays open, each with what would resolve it. Of a search, robustness
    alone is withheld; that nothing else is asked of the space needs no saying.
    """
    if asked.is_search:
        sections = [part for part in sections if part.id == "search"]
        own = unmeasured(asked.material.sweeps)
    else:
        own = ()
    return tuple(dict.fromkeys([*own, *(each for part in sections for each in part.open)]))


def next_steps(asked: Asked) -> tuple[Step, ...]:
    """What to do next, the most useful first."""
    material = asked.material
    found = [_finish(material.left)] if material.left else []
    if not material.left:
        found += [
            _confirm(folder, names, material.fresh_seeds.get(folder, ()))
            for folder, names in _to_confirm(asked).items()
        ]
    needed = [
        math.ceil(value)
        for pair in (comparison.means(asked), comparison.spreads(asked))
        for value in pair["needs_seeds"].dropna()
    ]
    if needed and min(needed) <= MANY_SEEDS and not asked.is_search:
        found.append(_more_seeds(min(needed)))
    if len(material.sources) == 1 and len(found) < 2 and material.confirmable:
        found.append(_look(material.sources[0], material.metric, material.mode))
    return tuple(found)


def _to_confirm(asked: Asked) -> dict[str, list[str]]:
    """Folder -> the objectives whose best has finished on all seeds and has not run again on fresh
    ones.
    """
    confirmed, sweeps = asked.material.confirmation, asked.material.sweeps
    known = set() if confirmed.empty else set(zip(*(confirmed[key] for key in KEYS), strict=True))
    num_seeds = {sweep.objective: len(sweep.seeds) for sweep in sweeps}
    left: dict[str, list[str]] = {}
    for row in asked.ask(recommend).query("kind == 'best'").to_dict("records"):
        name, folder = row["objective"], asked.material.confirmable.get(row["objective"])
        is_whole = row["num_seeds"] == num_seeds[name]
        if folder and is_whole and tuple(row[key] for key in KEYS) not in known:
            left.setdefault(folder, []).append(name)
    return left


def _finish(num: int) -> Step:
    """The study is not over."""
    return Step(
        sentence=f"{count(num)} trials are left: run the same command again and only they run"
    )


def _confirm(folder: str, objectives: Sequence[str], seeds: Sequence[int]) -> Step:
    """Run the best settings of these objectives on fresh seeds; `seeds` are those to name."""
    named = f" --seeds {','.join(map(str, seeds))}" if seeds else ""
    return Step(
        sentence=f"Run the best of {listed(objectives)} on fresh seeds and on the test set",
        command=f"clsweep confirm {shlex.quote(folder)}{named}",
    )


def _more_seeds(num: int) -> Step:
    """So many seeds would resolve the first open comparison."""
    return Step(
        sentence=f"Run about {count(num)} seeds for the first open comparison: add them to seeds "
        "in the study file. What has run is kept"
    )


def _look(folder: str, metric: str, mode: str) -> Step:
    """The best trials in the terminal."""
    sort = f"-{metric}" if mode == "max" else metric
    return Step(
        sentence="See the best trials with all their settings",
        command=f"clsweep trials {shlex.quote(folder)} --sort {sort} --top 10",
    )
