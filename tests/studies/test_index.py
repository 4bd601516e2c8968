"""The table of studies/README.md and the files beside it say the same."""

from __future__ import annotations

import re

import pytest

from tests.studies.references import REFERENCES, STUDIES

TABLES = {"DCL": 18, "EqCo": 9, "DimCL": 12, "ECPP": 8}
FIGURES = {"DCL": 5, "EqCo": 4, "DimCL": 8, "ECPP": 5}
TEXTS = {("DCL", "A.8 (text)")}


def lines() -> list[list[str]]:
    """The cells of the table of items."""
    text = (STUDIES / "README.md").read_text(encoding="utf-8")
    table = text[text.index("| paper | item |") :].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


LINES = {(paper, item): rest for paper, item, *rest in lines()}


def test_every_table_and_figure_has_a_line():
    expected = {(paper, f"Table {i + 1}") for paper, n in TABLES.items() for i in range(n)}
    expected |= {(paper, f"Fig. {i + 1}") for paper, n in FIGURES.items() for i in range(n)}
    assert len(expected) == 69
    assert len(lines()) == len(LINES)
    assert LINES.keys() == expected | TEXTS


def test_every_study_is_listed_and_every_listed_study_is_there():
    listed = {file for study, *_ in LINES.values() for file in re.findall(r"`([^`]+)`", study)}
    there = {path.relative_to(STUDIES).as_posix() for path in STUDIES.glob("*/*.yaml")}
    assert listed == {file for file in there if not file.startswith("measured/")}
    text = (STUDIES / "README.md").read_text(encoding="utf-8")
    assert [file for file in there - listed if f"`{file}`" not in text] == []


@pytest.mark.parametrize(("paper", "item"), LINES, ids=" ".join)
def test_a_line_says_what_the_numbers_say(paper, item):
    """Its studies are those that the files of numbers name, and so is what is refused."""
    study, what, status, measured = LINES[paper, item]
    numbers = [
        reference
        for reference in REFERENCES
        if reference.path.parent.name == paper.lower() and reference.item == item
    ]
    studies = {f"`{r.study.relative_to(STUDIES).as_posix()}`" for r in numbers if r.study}
    assert set(study.split(", ")) == (studies or {"-"})
    refused = [f"refused: {kind}" for r in numbers for kind in r.table.header.get("refused", ())]
    assert [status] == (refused or ["plan-able" if studies else "reference only"])
    assert what
    assert (measured == "-") == (status != "plan-able")


def test_every_file_of_numbers_belongs_to_a_line():
    papers = {name.lower(): name for name in TABLES}
    for reference in REFERENCES:
        assert (papers[reference.path.parent.name], reference.item) in LINES, reference.path
