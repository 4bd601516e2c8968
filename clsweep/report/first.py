"""The first screen: question, answer, leaderboard, one chart, what to do next."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from clsweep.analysis.reasons import Reason
from clsweep.analysis.tuned import whole
from clsweep.display.cells import records_of
from clsweep.display.numbers import count, setting_column, work
from clsweep.findings.notes import cause, version_notes, worded
from clsweep.findings.notes import notes as notes_of
from clsweep.questions import comparison, leaderboard, reproduction
from clsweep.questions.answers import Asked
from clsweep.questions.column import with_levels
from clsweep.questions.contrasts import contrasts
from clsweep.questions.contrasts import summary as asked_before
from clsweep.questions.health import health
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
KEYS = ["objective", "config"]  # of a configuration


def question(asked: Asked) -> str:
    """`Which of 3 objectives is best? digits, conv4, 8 epochs, ..., 4 min of work.`"""
    material, printed = asked.material, printed_numbers(asked)
    ours = board(asked).query("kind == 'objective'")
    what = f"Which of {len(ours)} objectives is best"
    if len(ours) == 1:
        what = f"How good is {ours['objective'].iloc[0]}"
    swept = list(dict.fromkeys(name for sweep in material.sweeps for name in sweep.params))
    many = f"{len(swept)} hyperparameters"
    named = listed(swept) if len(swept) <= MANY_VALUES else many
    if not printed.empty:
        items = list(dict.fromkeys(printed["item"]))
        what = f"Do the numbers of {listed(items)} come out as printed"
    elif swept and any(sweep.not_measured for sweep in material.spaces):
        what += f", and at which {named}"
    elif swept:
        what += f", and how much depends on {named}"
    return f"{what}? {_protocol(asked)}."


def _protocol(asked: Asked) -> str:
    """`digits, conv4, 8 epochs, 3 seeds, the whole grid of 15 settings, 60 trials, 2 min`."""
    trials, sweeps = asked.material.trials, asked.material.sweeps
    num = sum(len(sweep.configs) for sweep in sweeps)
    planned = sum(sweep.num_planned for sweep in sweeps)
    samplers = list(dict.fromkeys(name for sweep in sweeps for name in sweep.samplers))
    design = " and ".join(DESIGNS.get(name, name) for name in samplers)
    configs = counted(max(num, planned), "configuration", "configurations")
    skipped = int((trials["status"] == "skipped").sum())
    epochs, hours = _values(trials, "epochs"), asked.ask(health)["hours"].sum(min_count=1)
    parts = [
        _values(trials, "dataset"),
        _values(trials, "encoder"),
        f"{epochs} epoch{'s' * (epochs != '1')}" if epochs else "",
        counted(max((len(sweep.seeds) for sweep in sweeps), default=0), "seed", "seeds"),
        f"{design} of {configs}{f', {count(num)} so far' if num < planned else ''}",
        counted(len(trials) - skipped, "trial", "trials"),
        f"{count(skipped)} skipped" if skipped else "",
        f"{work(hours)} of work" if known(hours) else "",
    ]
    return ", ".join(part for part in parts if part)


def _values(trials: pd.DataFrame, name: str) -> str:
    values = trials[name].dropna().unique().tolist() if name in trials else []
    texts = setting_column(sorted(values, key=lambda value: (isinstance(value, str), value)))
    return listed(texts) if len(texts) <= MANY_VALUES else f"{texts[0]} to {texts[-1]}"


def verdicts(asked: Asked) -> Sentences:
    """Who is best when tuned, who without tuning, and who depends least on its settings; whether a
    paper's numbers agree, or how many contrasts are answered, and the first two of these.
    """
    pairs = comparison.tuned(asked), comparison.means(asked), comparison.spreads(asked)
    said = verdict_of(board(asked), *pairs, asked.words)
    against = summary(printed_numbers(asked))
    rows = records_of(asked.ask(contrasts)) if asked.material.contrasts else []
    return (*against, *asked_before(rows), *said[: 2 if against or rows else None])


def notes(asked: Asked) -> Sentences:
    """What limits the answer; of each objective what failed, and what that counts as."""
    found = {x.objective: x.failures or (x.no_score,) for x in asked.material.sweeps}
    rows = {"objective": list(found), "note": [tuple(filter(None, n)) for n in found.values()]}
    return (
        *cautions(board(asked), asked.words, is_search=asked.is_search),
        *notes_of(worded(pd.DataFrame(rows).assign(reason=""))),
        *asked.material.notes,
        *version_notes(asked.material.trials),
    )


def board_table(asked: Asked) -> Table:
    """The leaderboard as a table."""
    (table,) = leaderboard.QUESTION.tables_of(asked)
    soft = [i for i, kind in enumerate(table.frame["kind"]) if kind == "reference"]
    return replace(table, shown=with_levels(table.frame, table.shown), soft=tuple(soft))


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
    figures = marginal_figures(found, material)[:MAX_HEROES]
    if len(figures) > 1:  # side by side
        figures = [replace(f, chart=f.chart.properties(height=SMALL_HEIGHT)) for f in figures]
    return tuple(figures or learning_figures(asked.ask(learning), material)[:1])


def unresolved(asked: Asked, sections: Sequence[Section]) -> Sentences:
    """Every question that stays open, each with what would resolve it. Of a search, robustness
    alone is withheld; that nothing else is asked of the space needs no saying.
    """
    own: Sentences = ()
    if asked.is_search:
        sections = [part for part in sections if part.id == "search"]
        own = unmeasured(asked.material.spaces)
    return tuple(dict.fromkeys([*own, *(each for part in sections for each in part.open)]))


def next_steps(asked: Asked) -> tuple[Step, ...]:
    """What to do next, the most useful first."""
    material, found = asked.material, []
    if material.left:
        left = f"{counted(material.left, 'trial is', 'trials are')} left"
        found.append(Step(f"{left}: run the same command again and only they run"))
    for folder, names in {} if material.left else _to_confirm(asked).items():
        of = material.confirming[folder]
        num = {sweep.objective: int(whole(sweep).sum()) for sweep in material.sweeps}
        trials = {name: min(of.top, num[name]) * len(of.seeds) for name in names}
        seeds = "" if of.is_named else f" --seeds {','.join(map(str, of.seeds))}"
        best = f"Run the best of {listed(names)} on fresh seeds and on the test set"
        command = f"clsweep confirm {shlex.quote(folder)}{seeds}"
        # Of what has run on fresh seeds before, less is left.
        cost = _cost(asked, trials) if material.confirmation.empty else ""
        found.append(Step(f"{best}{cost}", command))
    found += [] if asked.is_search else _more_seeds(asked)
    if len(material.sources) == 1 and len(found) < 2 and material.confirmable:
        sort = f"{'-' * (material.mode == 'max')}{material.metric}"
        folder = shlex.quote(material.sources[0])
        listing = f"clsweep trials {folder} --sort {sort} --top 10"
        found.append(Step("See the best trials with all their settings", listing))
    return tuple(found)


def _more_seeds(asked: Asked) -> list[Step]:
    """The open comparison that takes the fewest seeds; one whose needs have no upper end may be of
    no difference at all. Else one that no number of seeds decides, but more images.
    """
    untuned = " without tuning" * asked.words.swept
    which = {"mean": f"scores better{untuned}", "std": "depends less on its settings"}
    pairs = pd.concat([comparison.means(asked), comparison.spreads(asked)])
    open_ones = pairs.query(f"needs_high < inf and needs_seeds <= {MANY_SEEDS}")
    if open_ones.empty:
        how = "" if asked.material.on_test else " (a larger dataset.val_fraction, in a new study)"
        rows = records_of(pairs[pairs["reason"] == Reason.IMAGES_DECIDE])[:1]
        said = [f"for {row['a']} against {row['b']} {cause(row)}" for row in rows]
        return [Step(f"Score more images{how}: {each}") for each in said]
    row = open_ones.loc[open_ones["needs_seeds"] == open_ones["needs_seeds"].min()].iloc[0]
    needed, names = math.ceil(row["needs_seeds"]), (row["a"], row["b"])
    place = asked.material.confirmable  # a study's seeds are those of all its objectives
    theirs = {place.get(name) for name in names}
    sweeps = [x for x in asked.material.sweeps if place.get(x.objective) in theirs]
    more = {x.objective: x.num_planned * max(0, needed - len(x.seeds)) for x in sweeps}
    how = ". Add them to seeds in the study file: what has run is kept"
    return [
        Step(
            f"Run {count(needed)} seeds in all, to see which of {listed(names)} "
            f"{which[row['stat']]}{_cost(asked, more)}{how * bool(asked.material.confirming)}"
        )
    ]


def _cost(asked: Asked, trials: Mapping[str, int]) -> str:
    """`: 18 trials, about 5 min of work`, by what those of each objective took; nothing of a cell
    of a study with factors, as the other cells run too.
    """
    if asked.answers.levels:
        return ""
    took = asked.ask(health).set_index("objective")
    each = (took["hours"] / took["trials"]).reindex(list(trials))
    hours = sum(each[name] * num for name, num in trials.items())
    about = f", about {work(hours)} of work" if known(hours) else ""
    return f": {counted(sum(trials.values()), 'trial', 'trials')}{about}"


def _to_confirm(asked: Asked) -> dict[str, list[str]]:
    """Folder -> the objectives whose best has finished, and has not run on fresh seeds."""
    confirmed = asked.material.confirmation.reindex(columns=KEYS)
    known = set(confirmed.itertuples(index=False, name=None))
    num_seeds = {sweep.objective: len(sweep.seeds) for sweep in asked.material.sweeps}
    left: dict[str, list[str]] = {}
    for row in asked.ask(recommend).query("kind == 'best'").to_dict("records"):
        name, folder = row["objective"], asked.material.confirmable.get(row["objective"])
        is_whole = row["num_seeds"] == num_seeds[name]
        if folder and is_whole and tuple(row[key] for key in KEYS) not in known:
            left.setdefault(folder, []).append(name)
    return left
