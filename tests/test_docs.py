"""What README and documentation say of commands, places and each other."""

import re
import shlex
import sys
from pathlib import Path

import pytest
import typer

from clsweep.catalog import COMPONENT, DATASET, DIAGNOSTIC, METRIC, PARAM, builtin
from clsweep.cli.main import app
from clsweep.questions.registry import formulas

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.fixture(scope="module")
def generate():
    sys.path.insert(0, str(DOCS))
    import generate

    return generate


def commands(page):
    """The command lines of a page that begin with `clsweep`."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:bash)?\n(.*?)```", text, re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("clsweep ")]


LINES = list(dict.fromkeys(line for page in PAGES for line in commands(page)))


@pytest.mark.parametrize("line", LINES)
def test_every_command_line_is_one(line):
    words = shlex.split(line, comments=True)[1:]
    command = typer.main.get_command(app).commands[words[0]]
    command.make_context(words[0], words[1:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    generated = {"reference/catalog.md", "reference/commands.md", "reference/columns.md"}
    targets = {link for link in LINK.findall(page.read_text(encoding="utf-8")) if " " not in link}
    assert [t for t in targets - generated if not (page.parent / t).exists()] == []


def test_the_reference_has_every_name(generate):
    pages = generate.pages()
    components = (name for named in COMPONENT.values() for name in named)
    rows = [*PARAM, *DATASET, *METRIC, *DIAGNOSTIC, *components]
    words = set(re.findall(r"[\w-]+", pages["catalog"]))
    assert [name for name in rows if name not in words] == []
    assert all(f"## clsweep {name}" in pages["commands"] for name in ("run", "report", "recommend"))
    columns = [column for columns in formulas().values() for column in columns]
    words = set(re.findall(r"[\w-]+", pages["columns"].replace("\\", "")))
    assert [name for name in columns if not set(re.findall(r"[\w-]+", name)) <= words] == []


def tutorial_study():
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    return text[text.index("```yaml") + 7 : text.index("```", text.index("```yaml") + 7)]


def test_the_tutorial_s_study_is_refused_as_it_says_and_plans_without(cli_command, tmp_path):
    path = tmp_path / "batches.yaml"
    path.write_text(tutorial_study())
    code, _, err = cli_command("plan", str(path))
    assert code == 2
    assert "'gray_prob'" in err
    path.write_text(tutorial_study().replace(", gray_prob: 0", ""))
    code, out, _ = cli_command("plan", str(path))
    assert code == 0
    assert "24 trials in all" in out


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    sphinx = pytest.importorskip("sphinx.cmd.build")
    assert sphinx.build_main(["-q", "-W", "-b", "html", str(DOCS), str(tmp_path)]) == 0
    assert "sd_star" in (tmp_path / "reference" / "columns.html").read_text(encoding="utf-8")


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_bytes()) <= 8000


def places():
    """The rows of the table "to add", as lists of their cells."""
    text = (DOCS / "extending.md").read_text(encoding="utf-8")
    table = text[text.index("| to add |") :].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


@pytest.mark.parametrize("cells", places(), ids=lambda cells: cells[0])
def test_every_place_of_the_table_is_there(cells):
    names = re.findall(r"`([^`]+)`", " ".join(cells))
    paths = [name for name in names if "/" in name]
    tables = [name for name in names if name.isupper() and name != "COLUMNS"]
    assert paths or tables
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [table for table in tables if not hasattr(builtin, table)] == []


def test_every_built_in_function_lies_where_the_table_says():
    kinds = "a loss, a framework, an encoder, a data set, a metric, a diagnostic"
    assert {*kinds.split(", ")} <= {cells[0] for cells in places()}
    text = " ".join(" ".join(cells) for cells in places())
    rows = (*builtin.COMPONENTS, *builtin.DATASETS, *builtin.METRICS, *builtin.DIAGNOSTICS)
    modules = {row.impl.partition(":")[0] for row in rows if row.impl}
    files = {f"{module.replace('.', '/')}.py" for module in modules}
    assert files - {"clsweep/train/mutual_information.py"} <= set(re.findall(r"`([^`]+)`", text))
