"""The papers' tables in the layout of `clsweep reproduce`."""

from __future__ import annotations

import pytest

from clsweep.analysis.reference import Printed, reproduce
from clsweep.findings.from_studies import printed_table
from clsweep.questions.reproduction import layouts
from clsweep.study.printed import parse_printed
from tests.studies.references import REFERENCES, Reference, planned

TABLES = [each for each in REFERENCES if each.study and len(each.rows)]


def name(reference: Reference) -> str:
    return f"{reference.path.parent.name}/{reference.path.stem}"


@pytest.mark.parametrize("reference", TABLES, ids=name)
def test_every_printed_number_has_a_cell(reference: Reference) -> None:
    """A number that shared its place with another would not be seen."""
    shown = [part.shown for part in layouts(reproduce([answered(reference)]))]
    papers = [table[table[""] == "paper"].iloc[:, 2:] for table in shown]
    filled = sum(int((cells != "").sum().sum()) for cells in papers)
    assert filled == int((reference.rows["value"] != "").sum())


def answered(reference: Reference) -> Printed:
    """The table with one trial of each cell, without a score."""
    assert reference.study
    table = parse_printed(reference.path.read_text(encoding="utf-8"), reference.path.name)
    cells = planned(reference.study)
    scores = dict.fromkeys(reference.rows["metric"], float("nan"))
    trials = cells.assign(status="finished", config=range(len(cells)), **scores)
    return printed_table(table, trials, cells)
