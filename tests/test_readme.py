"""What the README says of places in the code."""

import re
from pathlib import Path

import pytest

from clsweep.catalog import builtin

ROOT = Path(__file__).parents[1]


def places():
    """The rows of the table "to add", as lists of their cells."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text[text.index("| to add |") :].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_table_names_every_kind_of_addition():
    kinds = {cells[0] for cells in places()}
    assert kinds >= {
        "a loss",
        "a framework",
        "an encoder",
        "a data set",
        "a metric",
        "a diagnostic",
    }


@pytest.mark.parametrize("cells", places(), ids=lambda cells: cells[0])
def test_every_place_of_the_table_is_there(cells):
    names = re.findall(r"`([^`]+)`", " ".join(cells))
    paths = [name for name in names if "/" in name]
    tables = [name for name in names if name.isupper() and name != "COLUMNS"]
    assert paths or tables
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [table for table in tables if not hasattr(builtin, table)] == []


def test_every_built_in_function_lies_where_the_table_says():
    said = " ".join(" ".join(cells) for cells in places())
    rows = (*builtin.COMPONENTS, *builtin.DATASETS, *builtin.METRICS, *builtin.DIAGNOSTICS)
    modules = {row.impl.partition(":")[0] for row in rows if row.impl}
    files = {f"{module.replace('.', '/')}.py" for module in modules}
    assert files - {"clsweep/train/mutual_information.py"} <= set(re.findall(r"`([^`]+)`", said))
