"""The first screen: question, answer, leaderboard, one chart, what to do next."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from clsweep.analysis.best_setting import nameable_rows
from clsweep.analysis.reasons import Reason
from clsweep.display.numbers import count, joined, known, num_of, setting_column, work
from clsweep.report.content import Section, Step
from clsweep.statistics import compare, leaderboard, reproduce
from clsweep.statistics.computed import ReportContext, Statistics, context_of, of_each
from clsweep.statistics.contrast import contrasts, contrasts_summary
from clsweep.statistics.health import health
from clsweep.statistics.leaderboard import cautions, standings
from clsweep.statistics.learning import learning, learning_figures
from clsweep.statistics.marginals import marginal_figures, marginals
from clsweep.statistics.recommend import recommend
from clsweep.statistics.report_objects import Figure, Sentences, Table
from clsweep.statistics.reproduce import agreement_summary, printed_numbers
from clsweep.statistics.robustness import not_measured
from clsweep.statistics.search_history import history, history_figure
from clsweep.statistics.statistic import with_levels
from clsweep.statistics.verdicts import verdict_of
from clsweep.sweeps.notes import cause, notes_of, records_of, worded

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
_KEYS = ["objective", "config"]  # of a configuration


def answer_of(statistics: Statistics) -> tuple[Sentences, tuple[Step, ...]]:
    """The verdicts and the next steps of the report, without what they would be shown in."""
    parts = [context_of(part) for part in statistics.cells or (statistics,)]
    steps = {step.sentence: step for part in parts for step in next_steps(part)}
    return of_each(statistics, verdicts), tuple(steps.values())


def question_line(context: ReportContext) -> str:
    """`Which of 3 objectives is best? digits, conv4, 8 epochs, ..., 4 min of work.`, in the study's
    own words where it has some.
    """
    if own := context.data.question:
        return f"{own} {_protocol(context)}."
    data, printed = context.data, printed_numbers(context)
    ours = context.compute(standings).query("kind == 'objective'")
    names = ours["objective"].unique()  # once, of all cells
    what = f"Which of {len(names)} objectives is best"
    if len(names) == 1:
        what = f"How good is {names[0]}"
    swept = list(dict.fromkeys(name for sweep in data.sweeps for name in sweep.params))
    many = f"{len(swept)} hyperparameters"
    named = joined(swept) if len(swept) <= MANY_VALUES else many
    if not printed.empty:
        items = list(dict.fromkeys(printed["item"]))
        what = f"Do the numbers of {joined(items)} come out as printed"
    elif swept and data.unmeasured:
        what += f", and at which {named}"
    elif swept:
        what += f", and how much depends on {named}"
    return f"{what}? {_protocol(context)}."


def _protocol(context: ReportContext) -> str:
    """`digits, conv4, 8 epochs, 3 seeds, the whole grid of 15 settings, 60 trials, 2 min`."""
    trials, sweeps = context.data.trials, context.data.sweeps
    num = sum(len(sweep.configs) for sweep in sweeps)
    planned = sum(sweep.num_planned for sweep in sweeps)
    samplers = list(dict.fromkeys(name for sweep in sweeps for name in sweep.samplers))
    design = " and ".join(DESIGNS.get(name, name) for name in samplers)
    configs = num_of(max(num, planned), "configuration", "configurations")
    skipped = int((trials["status"] == "skipped").sum())
    epochs, hours = _values(trials, "epochs"), context.compute(health)["hours"].sum(min_count=1)
    parts = [
        _values(trials, "dataset"),
        _values(trials, "encoder"),
        f"{epochs} epoch{'s' * (epochs != '1')}" if epochs else "",
        num_of(max((len(sweep.seeds) for sweep in sweeps), default=0), "seed", "seeds"),
        f"{design} of {configs}{f', {count(num)} so far' if num < planned else ''}",
        num_of(len(trials) - skipped, "trial", "trials"),
        f"{count(skipped)} skipped" if skipped else "",
        f"{work(hours)} of work" if known(hours) else "",
    ]
    return ", ".join(part for part in parts if part)


def _values(trials: pd.DataFrame, name: str) -> str:
    values = trials[name].dropna().unique().tolist() if name in trials else []
    texts = setting_column(sorted(values, key=lambda value: (isinstance(value, str), value)))
    return joined(texts) if len(texts) <= MANY_VALUES else f"{texts[0]} to {texts[-1]}"


def verdicts(context: ReportContext) -> Sentences:
    """Who is best when tuned, who without tuning, and who depends least on its settings; whether a
    paper's numbers agree, or how many contrasts are answered, and the first two of these.
    """
    pairs = compare.tuned(context), compare.means(context), compare.spreads(context)
    sentences = verdict_of(context.compute(standings), *pairs, context.words)
    against = agreement_summary(printed_numbers(context))
    rows = records_of(context.compute(contrasts)) if context.data.contrasts else []
    return (*against, *contrasts_summary(rows), *sentences[: 2 if against or rows else None])


def limits(context: ReportContext) -> Sentences:
    """Limits of what the scores say; of each objective its failures, and what these count as."""
    failures = {x.objective: x.failures or (x.no_score,) for x in context.data.sweeps}
    notes = [tuple(filter(None, each)) for each in failures.values()]
    rows = {"objective": [*failures], "note": notes}
    return (
        *cautions(context.compute(standings), context.words, is_search=context.is_search),
        *notes_of(worded(pd.DataFrame(rows).assign(reason=""))),
    )


def board_table(context: ReportContext) -> Table:
    """The leaderboard as a table."""
    (table,) = leaderboard.LEADERBOARD.tables_of(context)
    soft = [i for i, kind in enumerate(table.frame["kind"]) if kind == "reference"]
    return replace(table, shown=with_levels(table.frame, table.shown), soft=tuple(soft))


def headline_figures(context: ReportContext) -> tuple[Figure, ...]:
    """The charts that answer at a glance: of a paper's table beside it, of a search its history, of
    a sweep the metric against each hyperparameter, else how training went.
    """
    data = context.data
    if drawn := reproduce.figures(context):
        return tuple(drawn[:MAX_HEROES])
    if context.is_search:
        course = history_figure(context.compute(history), data)
        return () if course is None else (course,)
    order = {name: place for place, name in enumerate(context.swept)}
    table = context.compute(marginals)
    if not table.empty:
        table = table.sort_values("param", key=lambda names: names.map(order), kind="stable")
    figures = marginal_figures(table, data)[:MAX_HEROES]
    if len(figures) > 1:  # side by side
        figures = [replace(f, chart=f.chart.properties(height=SMALL_HEIGHT)) for f in figures]
    return tuple(figures or learning_figures(context.compute(learning), data)[:1])


def unresolved(context: ReportContext, sections: Sequence[Section]) -> Sentences:
    """Every question that stays open, each with what would resolve it. Of a search, robustness
    alone is withheld; that nothing else is asked of the space needs no saying.
    """
    own: Sentences = ()
    if context.is_search:
        sections = [part for part in sections if part.id == "search"]
        own = not_measured(context.data.spaces)
    return tuple(dict.fromkeys([*own, *(each for part in sections for each in part.open)]))


def next_steps(context: ReportContext) -> tuple[Step, ...]:
    """Next steps, the most useful first."""
    data, steps = context.data, []
    if data.left:
        left = f"{num_of(data.left, 'trial is', 'trials are')} left"
        steps.append(Step(f"{left}: run the same command again and only they run"))
    for folder, names in {} if data.left else _to_confirm(context).items():
        of = data.confirming[folder]
        num = {sweep.objective: int(nameable_rows(sweep).sum()) for sweep in data.sweeps}
        trials = {name: min(of.top, num[name]) * len(of.seeds) for name in names}
        seeds = "" if of.is_named else f" --seeds {','.join(map(str, of.seeds))}"
        trained = [name for name in names if name not in data.untrained] or names
        best = f"Run the best of {joined(trained)} on fresh seeds and on the test set"
        command = f"clsweep confirm {shlex.quote(folder)}{seeds}"
        # Of what has run on fresh seeds before, less is left.
        cost = _cost(context, trials) if data.confirmation.empty else ""
        steps.append(Step(f"{best}{cost}", command))
    steps += [] if context.is_search else _more_seeds(context)
    if len(data.sources) == 1 and len(steps) < 2 and data.confirmable:
        sort = f"{'-' * (data.mode == 'max')}{data.metric}"
        folder = shlex.quote(data.sources[0])
        listing = f"clsweep trials {folder} --sort {sort} --top 10"
        steps.append(Step("See the best trials with all their settings", listing))
    return tuple(steps)


def _more_seeds(context: ReportContext) -> list[Step]:
    """The open comparison that takes the fewest seeds; one whose needs have no upper end may be of
    no difference at all. Else one that no number of seeds decides, but more images. None with an
    encoder that is not trained, which is there to be passed and not to be picked.
    """
    untuned = " without tuning" * context.words.swept
    which = {"mean": f"scores better{untuned}", "std": "depends less on its settings"}
    pairs = pd.concat([compare.means(context), compare.spreads(context)])
    pairs = pairs[~pairs[["a", "b"]].isin(context.data.untrained).any(axis=1)]
    open_ones = pairs.query(f"needs_high < inf and needs_seeds <= {MANY_SEEDS}")
    if open_ones.empty:
        how = "" if context.data.on_test else " (a larger dataset.val_fraction, in a new study)"
        rows = records_of(pairs[pairs["reason"] == Reason.IMAGES_DECIDE])[:1]
        undecided = [f"for {row['a']} against {row['b']} {cause(row)}" for row in rows]
        return [Step(f"Score more images{how}: {each}") for each in undecided]
    row = open_ones.loc[open_ones["needs_seeds"] == open_ones["needs_seeds"].min()].iloc[0]
    needed, names = math.ceil(row["needs_seeds"]), (row["a"], row["b"])
    place = context.data.confirmable  # a study's seeds are those of all its objectives
    theirs = {place.get(name) for name in names}
    sweeps = [x for x in context.data.sweeps if place.get(x.objective) in theirs]
    more = {x.objective: x.num_planned * max(0, needed - len(x.seeds)) for x in sweeps}
    how = ". Add them to seeds in the study file: what has run is kept"
    return [
        Step(
            f"Run {count(needed)} seeds in all, to see which of {joined(names)} "
            f"{which[row['stat']]}{_cost(context, more)}{how * bool(context.data.confirming)}"
        )
    ]


def _cost(context: ReportContext, trials: Mapping[str, int]) -> str:
    """`: 18 trials, about 5 min of work`, by what those of each objective took; nothing of a cell
    of a study with factors, as the other cells run too.
    """
    if context.statistics.levels:
        return ""
    took = context.compute(health).set_index("objective")
    each = (took["hours"] / took["trials"]).reindex(list(trials))
    hours = sum(each[name] * num for name, num in trials.items())
    about = f", about {work(hours)} of work" if known(hours) else ""
    return f": {num_of(sum(trials.values()), 'trial', 'trials')}{about}"


def _to_confirm(context: ReportContext) -> dict[str, list[str]]:
    """Folder -> the objectives whose best has finished, and has not run on fresh seeds."""
    confirmed = context.data.confirmation.reindex(columns=_KEYS)
    known = set(confirmed.itertuples(index=False, name=None))
    num_seeds = {sweep.objective: len(sweep.seeds) for sweep in context.data.sweeps}
    left: dict[str, list[str]] = {}
    for row in context.compute(recommend).query("kind == 'best'").to_dict("records"):
        name, folder = row["objective"], context.data.confirmable.get(row["objective"])
        is_whole = row["num_seeds"] == num_seeds[name]
        if folder and is_whole and tuple(row[key] for key in _KEYS) not in known:
            left.setdefault(folder, []).append(name)
    return left
