"""Questions that are asked of given tables in place of trials."""

from types import SimpleNamespace

import pandas as pd

from clsweep.statistics import registry
from clsweep.statistics.computed import Statistics, context_of
from clsweep.sweeps.study_data import StudyData

BLANK = {
    "title": "t", "sources": ("results/t",), "trials": pd.DataFrame(), "metric": "knn_top1",
    "unit": "%", "mode": "max", "params": ("tau",),
}  # fmt: skip
QUESTIONS = {question.name: question for question in registry.all_statistics()}


def data_of(sweeps=(), **given):
    """Scores in percent of `sweeps`."""
    return StudyData(**BLANK | {"sweeps": tuple(sweeps)} | given)


def of(sweeps=(), **given):
    """The answers on `data_of` these."""
    return Statistics(data_of(sweeps, **given))


class Given(Statistics):
    """Knows `tables`, by the name of the statistic, and of a comparison its stat; others are those
    of the trials.
    """

    def __init__(self, data, tables):
        self._data, self._tables = data, tables

    @property
    def data(self):
        return self._data

    def side_table(self, kind):
        return self._tables.get(kind, pd.DataFrame())

    def compute(self, table, *args, **options):
        name = f"{table.__name__} {options.get('stat', '')}".strip()
        known = self._tables.get(name)
        return super().compute(table, *args, **options) if known is None else known


def figures_of(question, answers):
    """Name -> figure of one question in a report."""
    drawn = QUESTIONS[question].figures(context_of(answers))
    return {figure.name: figure for figure in drawn if figure is not None}


def sentences_of(question, *, about=(), **tables):
    """What a report says of rows of tables; `compare_std` is that of this stat.

    Every objective in the tables sweeps tau; `about` is of the data.
    """
    frames = {name.replace("_", " ", 1) if name.startswith("compare") else name: pd.DataFrame(rows)
              for name, rows in tables.items()}  # fmt: skip
    named = ("objective", "a", "b", "runner_up")
    columns = [frame[name] for frame in frames.values() for name in named if name in frame]
    same = {"params": ("tau",), "not_measured": None, "samplers": ("grid",)}
    names = pd.concat(columns).unique() if columns else ()
    sweeps = [SimpleNamespace(objective=name, **same) for name in names]
    for sweep in sweeps:
        sweep.of_space = sweep
    empty = pd.DataFrame(columns=["objective", "a", "b", "reason"])
    frames = {"compare std": empty, "robustness": empty} | frames
    if "confirmation" in frames:  # of which the search's first is the best
        first = frames["confirmation"].query("rank == 1")
        frames.setdefault("recommend", first.assign(kind="best", preferred_at=""))
    return QUESTIONS[question].sentences(context_of(Given(data_of(sweeps, **dict(about)), frames)))
