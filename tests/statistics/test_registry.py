"""Every question of the registry, asked of planted sweeps that leave more or less to say."""

import csv
import io
import json
import re

import numpy as np
import pytest

import clsweep
from clsweep.cli.options import OutputOptions
from clsweep.cli.statistic_tables import print_statistic
from clsweep.display.printing import Format
from clsweep.report.sections import build_report
from clsweep.statistics import registry
from clsweep.statistics.computed import context_of
from tests.planted import three_objectives

REQUIRED = ["objective", "config", "seed", "sampler", "status", "knn_top1", "tau", "batch_size"]
SWEEPS = {
    "gaps, and only required columns": lambda t: t[REQUIRED].drop(index=[3, 4, 5, 31, 62]),
    "one seed": lambda t: t[t["seed"] == 0],
    "one trial": lambda t: t.head(1),
    "all failed": lambda t: t.assign(status="failed", knn_top1=np.nan),
    "tpe": lambda t: t.assign(sampler="tpe"),
    "stopped early": lambda t: t.assign(status=t["status"].where(t["config"] % 3 > 0, "stopped")),
    "no parameter": lambda t: t.drop(columns=["tau", "batch_size"]),
    "constant": lambda t: t.assign(knn_top1=50.0),
}
WITHOUT_SPREAD = ("tpe", "stopped early", "all failed", "one trial")


@pytest.fixture(scope="module")
def trials():
    return three_objectives()


@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_every_question_answers_or_declines(trials, name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    found = clsweep.analyse(SWEEPS[name](trials).reset_index(drop=True))
    report = build_report(found)
    said = [sentence for section in report.sections for sentence in section.sentences]
    claims = any("more robust than" in sentence for sentence in said)
    assert claims == name.startswith("gaps")
    assert any("depends least" in sentence for sentence in report.verdicts) == claims
    ids = [section.id for section in report.sections]
    assert ("robustness" in ids) == (name not in WITHOUT_SPREAD)
    assert_whole(report)
    for question in registry.all_statistics():
        if len(frame := question.full(context_of(found))):
            formats_of(question, frame, found.data, capsys)


def assert_whole(report):
    """It has an answer, no section of nothing, no figure twice, and no cell of the unknown."""
    figures = [figure.name for figure in report.figures]
    assert len(figures) == len(set(figures))
    assert report.verdicts
    assert report.question
    assert not [section.id for section in report.sections if section.is_empty]
    tables = [table for table in report.tables if table.name != "formulas"]
    texts = [text for table in tables for text in table.shown.to_numpy().ravel()]
    assert not [text for text in texts if isinstance(text, str) and "nan" in text.lower()]


def formats_of(question, frame, data, capsys):
    """The same rows for programs and for eyes; a text is no markup."""

    def printed(kind):
        print_statistic(question, frame, data, style=OutputOptions(format=kind))
        return capsys.readouterr().out

    rows = json.loads(printed(Format.json))
    assert [list(rows[0]), len(rows)] == [list(map(str, frame)), len(frame)], question.name
    read = list(csv.reader(io.StringIO(printed(Format.csv), newline="")))
    assert [read[0], len(read) - 1] == [list(rows[0]), len(rows)], question.name
    assert "<b>" not in printed(Format.md).replace("\\<", "")
    columns = re.search(r"begin\{tabular\}\{(\w+)\}", printed(Format.latex) + r"\begin{tabular}{x}")
    lines = [line for line in printed(Format.latex).splitlines() if line.endswith(r" \\")]
    counts = {len(re.findall(r"(?<!\\)&", line)) + 1 for line in lines}
    assert counts <= {len(columns[1])}, question.name
    out = printed(Format.table)
    assert "nan" not in out
    if any(column.drop_order for column in question.columns):
        assert max(map(len, map(str.rstrip, out.splitlines()))) <= 80, question.name


def test_every_column_has_a_formula_but_an_upper_end():
    columns = [(t, *column) for t, each in registry.formulas().items() for column in each.items()]
    blank = [(table, name) for table, name, text in columns if not text]
    assert [each for each in blank if "high" not in each[1].split("_")] == []
    assert ("robustness", "share_low", "interval of share_within") in columns
