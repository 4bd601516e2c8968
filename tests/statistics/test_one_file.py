"""A statistic is one file and one row: with them all of it is in a report."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest

import clsweep
from clsweep.report import glossary
from clsweep.report.sections import build_report, formula_report
from clsweep.statistics import registry
from clsweep.statistics.charts import alt
from clsweep.statistics.computed import Statistics
from clsweep.statistics.report_objects import Figure
from clsweep.statistics.statistic import Column, Statistic, between
from tests.planted import planted


def medians(of: Statistics) -> pd.DataFrame:
    """The middle score of each objective."""
    groups = of.data.trials.groupby("objective")[of.data.metric]
    ends = {"low": groups.min(), "high": groups.max(), "num": groups.size()}
    return pd.DataFrame({"median": groups.median(), **ends}).reset_index()


def bar(frame: pd.DataFrame) -> Figure:
    """A bar each."""
    chart = alt.Chart(frame).mark_bar().encode(x="median:Q", y="objective:N")
    return Figure(name="medians", title="Middles", caption="Bars.", chart=chart, data=frame)


QUESTION = Statistic(
    name="medians",
    title="Middle of {metric}",
    header="Middle of {metric}",
    table=medians,
    columns=(
        Column("objective"),
        Column("midpoint", between("median", ""), "as many trials are better as worse"),
        Column("tried", "num", "trials with a score", drop_order=1),
    ),
    levels="median",
    has_notes=False,
    sentences=lambda asked: (f"{len(asked.compute(medians))} objectives have a midpoint.",),
    figures=lambda asked: [bar(asked.compute(medians))],
    formulas={"medians": {"median": "half of the scores lie below"}},
    terms={"midpoint": "Half lies below."},
)


@pytest.fixture
def found(monkeypatch):
    """Results, asked with one question more."""
    place = [chapter.id for chapter in registry.SECTIONS].index("tuning")
    with_it = dataclasses.replace(
        registry.SECTIONS[place], questions=(*registry.SECTIONS[place].questions, QUESTION)
    )
    chapters = (*registry.SECTIONS[:place], with_it, *registry.SECTIONS[place + 1 :])
    for module in ("clsweep.statistics.registry", "clsweep.report.sections"):
        monkeypatch.setattr(f"{module}.SECTIONS", chapters)
    caches = (registry.formulas, glossary.terms, glossary.pattern)
    for cache in caches:
        cache.cache_clear()
    yield clsweep.analyse(planted(lambda at: 80 - at["tau"], grid={"tau": [0.1, 0.2, 0.4]}))
    for cache in caches:
        cache.cache_clear()


def test_a_report_has_its_sentence_table_figure_formula_and_term(found):
    report = build_report(found)
    (section,) = [part for part in report.sections if part.id == "tuning"]
    assert "1 objectives have a midpoint." in section.sentences
    table = section.tables[-1]
    assert (table.name, table.title) == ("medians", "Middle of knn_top1")
    assert table.caption == "midpoint: as many trials are better as worse"
    assert list(table.shown) == ["objective", "midpoint"]  # the rest is in its file
    assert "[" in table.shown["midpoint"][0]
    assert "medians" in {figure.name for figure in section.figures}
    assert report.terms["midpoint"] == "Half lies below."
    (formulas,) = formula_report(report.title).tables
    assert "half of the scores lie below" in set(formulas.frame["meaning"])
