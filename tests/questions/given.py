"""Questions that are asked of given tables in place of trials."""

from types import SimpleNamespace

import pandas as pd

from clsweep.findings.material import Material
from clsweep.questions import registry
from clsweep.questions.answers import Answers, asked_of

BLANK = {
    "title": "t", "sources": ("results/t",), "trials": pd.DataFrame(), "metric": "knn_top1",
    "unit": "%", "mode": "max", "params": ("tau",),
}  # fmt: skip
QUESTIONS = {question.name: question for question in registry.questions()}


def material_of(sweeps=(), **given):
    """Scores in percent of `sweeps`."""
    return Material(**BLANK | {"sweeps": tuple(sweeps)} | given)


def of(sweeps=(), **given):
    """The answers on `material_of` these."""
    return Answers(material_of(sweeps, **given))


class Given(Answers):
    """Knows `tables`, by the name of the statistic, and of a comparison its stat; others are those
    of the trials.
    """

    def __init__(self, material, tables):
        self._material, self._tables = material, tables

    @property
    def material(self):
        return self._material

    def side_table(self, kind):
        return self._tables.get(kind, pd.DataFrame())

    def ask(self, table, *args, **options):
        name = f"{table.__name__} {options.get('stat', '')}".strip()
        known = self._tables.get(name)
        return super().ask(table, *args, **options) if known is None else known


def figures_of(question, answers):
    """Name -> figure of one question in a report."""
    drawn = QUESTIONS[question].draw(asked_of(answers))
    return {figure.name: figure for figure in drawn if figure is not None}


def sentences_of(question, *, about=(), **tables):
    """What a report says of rows of tables; `compare_std` is that of this stat.

    Every objective in the tables sweeps tau; `about` is of the material.
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
    if (
        "confirmation" in frames and "recommend" not in frames
    ):  # of which the search's first is the best
        frames["recommend"] = (
            frames["confirmation"].query("rank == 1").assign(kind="best", preferred_at="")
        )
    return QUESTIONS[question].say(asked_of(Given(material_of(sweeps, **dict(about)), frames)))
