"""What README and documentation say of commands, places and each other."""

import ast
import importlib
import re
import shlex
import sys
from pathlib import Path

import pytest
import typer
import yaml

import clsweep
from clsweep.catalog import COMPONENT, DATASET, DIAGNOSTIC, METRIC, PARAM, builtin
from clsweep.catalog.ownership import baseline_params
from clsweep.cli.main import app
from clsweep.results import schemas
from clsweep.statistics.registry import formulas

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BESIDE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "tests/README.md")]
PAGES = [*BESIDE, *sorted(DOCS.glob("*.md"))]
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def of_docs(name):
    """A module of the documentation's folder."""
    sys.path.insert(0, str(DOCS))
    return importlib.import_module(name)


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


def test_the_reference_has_every_name():
    pages = of_docs("generate").pages()
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


def test_the_hooks_before_a_commit_are_the_commands_of_make_check():
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    lines = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe[1].splitlines()]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["entry"] for hook in hooks] == lines
    assert not any(hook["pass_filenames"] for hook in hooks)


def test_the_package_says_that_it_is_typed():
    assert (Path(clsweep.__file__).parent / "py.typed").read_bytes() == b""


def columns_of(title):
    """The columns that a table of `results.md` names: name, type and unit of each.

    A row may stand for those of another table, which it links to: behind a prefix, without others.
    """
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    section = re.search(rf"^### {title}$(.*?)(?=^##|\Z)", text, re.DOTALL | re.MULTILINE | re.I)
    for line in re.findall(r"^\| (?!column )(.*) \|$", section[1], re.MULTILINE):
        first, kind, unit, what = (cell.strip() for cell in line.split("|"))
        assert what
        names = re.findall(r"`([^`]+)`", first)
        if link := re.search(r"\(#(\w+)\)", first):
            prefix, *without = names or [""]
            for name, *about in columns_of(link[1]):
                if name not in without:
                    yield prefix + name, *about
        elif names != ["clsweep catalog params"]:
            yield from ((name, kind, unit) for name in names)


SCHEMAS = {
    "plan": schemas.plan_schema([]),
    "trials": schemas.trials_schema([]),
    "references": schemas.references_schema(),
    **{name: schemas.side_schema(name) for name in schemas.SIDE_TABLES},
}


@pytest.mark.parametrize("table", SCHEMAS)
def test_every_column_of_a_table_is_listed_with_its_type_and_unit(table):
    params = baseline_params() if table == "references" else ()
    columns = [column for column in SCHEMAS[table] if column.name not in params]
    listed = [*columns_of(table)]
    assert sorted((name, kind) for name, kind, _ in listed) == sorted(
        (column.name, str(column.type)) for column in columns
    )
    units = {name: unit for name, _, unit in listed}
    for row in (*builtin.METRICS, *builtin.DIAGNOSTICS):
        assert units.get(row.name, row.unit) == row.unit
    for name, unit in units.items():
        if in_name := re.search(r"_(s|gib)$", name):
            assert unit.rpartition("/")[2].lower() == in_name[1]


def public_names():
    """Of each public module the names that are public."""
    text = (DOCS / "extending.md").read_text(encoding="utf-8")
    table = text[text.index("| module | names") :].partition("\n\n")[0].splitlines()[2:]
    rows = [re.findall(r"`([^`]+)`", line) for line in table]
    return {module: set(names) for module, *names in rows}


def test_what_is_public_is_there():
    assert "clsweep.objective.framework" in public_names()
    for module, names in public_names().items():
        assert [name for name in names if not hasattr(importlib.import_module(module), name)] == []


@pytest.mark.parametrize(
    "path",
    [*(ROOT / "clsweep/cli/skeletons").iterdir(), ROOT / "tests/catalog/own_rows.py"],
    ids=lambda path: path.name,
)
def test_parts_of_one_s_own_import_what_is_public(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("clsweep."):
            public = public_names().get(node.module, {each.name for each in node.names})
            assert node.module in {"clsweep.catalog", *public_names()}
            assert {each.name for each in node.names} <= public


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
