"""One word, one place: names that a reader meets are found at the first guess.

No public name and no file name stands in two rooms, but for a statistic: its numbers are
`analysis/X`, its columns and sentences `statistics/X`. A docstring names only modules that exist.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import get_args

import pytest

import clsweep
from clsweep.cli.main import app
from clsweep.study.schema import SchedulerSection

PACKAGE = Path(clsweep.__file__).parent
FILES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
TREES = {module: ast.parse(path.read_text(encoding="utf-8")) for module, path in FILES.items()}
ROOMS = sorted({module.split(".")[1] for module in TREES if module.count(".")})
RIDDLES = {"found", "told", "said", "asked", "kept"}
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# Begins that say less than the thing itself.
VAGUE = re.compile(r"(What|Whether|How|That|If) ")
OF_COMMANDS = {"api", "cli", "statistics", "analysis"}
# What plug-ins import keeps its name, though a loss and a schedule are both a cosine.
OF_PLUGINS = {"clsweep.objective.losses", "clsweep.train.optim", "clsweep.data.augmentations"}
COMMANDS = {each.name or each.callback.__name__ for each in app.registered_commands} | {"main"}
SCHEDULERS = get_args(SchedulerSection.model_fields["name"].annotation)
DOTTED = re.compile(r"`(?:clsweep\.)?([a-z_]+(?:\.(?!yaml|md|json|parquet)\w+)+)`")


def public_names(tree):
    """Functions, classes and constants at the top of a file."""
    for node in tree.body:
        if isinstance(node, DEFINITIONS):
            yield node.name
        elif isinstance(node, ast.Assign) and not is_type_variable(node.value):
            yield from (each.id for each in node.targets if isinstance(each, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def is_type_variable(node):
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "TypeVar"


def bound_names(tree):
    """Names that a file gives to anything, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, DEFINITIONS):
            yield node.name, node.lineno


def docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS | ast.Module) and (text := ast.get_docstring(node)):
            yield text, getattr(node, "lineno", 1)


def in_room(room):
    return {name: tree for name, tree in TREES.items() if name.split(".")[1:2] == [room]}


def rooms_of(modules):
    return sorted(module.split(".")[1] for module in modules)


def is_statistic(modules):
    """The numbers of a statistic beside what is shown of it."""
    return rooms_of(modules) == ["analysis", "statistics"]


def is_command(name, modules):
    """A command's function, beside the function of Python that does the same."""
    rooms = rooms_of(modules)
    return name in COMMANDS and len({*rooms}) == len(rooms) and {*rooms} <= OF_COMMANDS


def test_no_file_name_stands_in_two_places():
    places = defaultdict(list)
    for module in TREES:
        places[module.rpartition(".")[2]].append(module)
    assert not [each for each in places.values() if len(each) > 1 and not is_statistic(each)]


@pytest.mark.parametrize("room", ROOMS)
def test_no_public_name_stands_in_two_places(room):
    places = defaultdict(list)
    for module, tree in TREES.items():
        for name in public_names(tree):
            if not name.startswith("_"):
                places[name].append(module)
    here = {name: each for name, each in places.items() if {*each} & in_room(room).keys()}
    assert not {
        name: each
        for name, each in here.items()
        if len(each) > 1 and not is_command(name, each) and not {*each} <= OF_PLUGINS
    }


@pytest.mark.parametrize("room", ROOMS)
def test_no_result_is_a_riddle(room):
    assert not [
        f"{module}:{line} {name}"
        for module, tree in in_room(room).items()
        for name, line in bound_names(tree)
        if name.strip("_") in RIDDLES
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_a_docstring_says_the_thing_first(room):
    assert not [
        f"{module}:{line} {text.splitlines()[0]}"
        for module, tree in in_room(room).items()
        for text, line in docstrings(tree)
        if VAGUE.match(text)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_a_docstring_names_only_what_exists(room):
    names = {module.removeprefix("clsweep.") for module in TREES}
    names |= {f"{module}.{name}" for module in names for name in known(module)}
    short = {".".join(name.split(".")[-2:]) for name in names}
    rooms = {name.split(".")[0] for name in names} | {name.rpartition(".")[2] for name in names}
    assert not [
        f"{module}:{line} {word}"
        for module, tree in in_room(room).items()
        for text, line in docstrings(tree)
        for word in DOTTED.findall(text)
        if word.split(".")[0] in ROOMS and word not in names | short | rooms
    ]


def known(module):
    tree = TREES[f"clsweep.{module}".removesuffix(".clsweep")]
    yield from public_names(tree)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            members = [*public_names(node), *(n for n, _ in bound_names(node))]
            yield from (f"{node.name}.{name}" for name in members)


def words_of(module):
    """`clsweep.cli.try_trial` has the words cli, try and trial."""
    return {word for part in module.split(".")[1:] for word in part.split("_")}


@pytest.mark.parametrize("name", sorted({*COMMANDS, *SCHEDULERS} - {"main", "fifo"}))
def test_what_a_user_types_has_a_file_of_its_name(name):
    assert any(name in words_of(module) for module in TREES), f"no file of the word {name}"


def test_files_are_short_those_of_the_tests_too():
    for path in (*FILES.values(), *Path(__file__).parent.rglob("*.py")):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 500, path


@pytest.mark.parametrize("room", ROOMS)
def test_functions_are_short(room):
    for module, tree in in_room(room).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                num_lines = node.end_lineno - node.lineno + 1
                assert num_lines <= 60, f"{module}:{node.lineno} {node.name}: {num_lines} lines"
