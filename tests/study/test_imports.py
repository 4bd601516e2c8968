"""The modules of the study room stand in an order: none needs one that needs it, not even for a
type.
"""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import clsweep

ROOT = Path(clsweep.__file__).parents[1]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "clsweep").rglob("*.py")
}
ROOM = {name for name in MODULES if f"{name}.".startswith("clsweep.study.")}


def imported_by(text: str) -> set[str]:
    """Modules of the package that a module's text imports, wherever the line stands."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return names & MODULES.keys()


def reached_from(start: set[str]) -> dict[str, set[str]]:
    """What each module imports, of those that are imported by way of `start`."""
    graph: dict[str, set[str]] = {}
    waiting = set(start)
    while waiting:
        name = waiting.pop()
        graph[name] = imported_by(MODULES[name].read_text(encoding="utf-8"))
        waiting |= graph[name] - graph.keys()
    return graph


def test_no_circle_within_the_room_nor_through_another() -> None:
    graph = reached_from(ROOM)
    assert graph["clsweep.study.check_training"] >= {"clsweep.study.schema"}
    below = {name: imports for name, imports in graph.items() if name not in ROOM}
    assert not {name for name, imports in below.items() if imports & ROOM}
    TopologicalSorter({name: graph[name] for name in ROOM}).prepare()


def test_a_circle_for_types_alone_would_be_found() -> None:
    text = "if TYPE_CHECKING:\n    from clsweep.study.resolve import load_study\n"
    assert imported_by(text) == {"clsweep.study.resolve"}
    with pytest.raises(CycleError):
        TopologicalSorter({"a": imported_by(text), "clsweep.study.resolve": {"a"}}).prepare()
