"""The layers of the design, read off the imports of every file of the package, those inside of
functions included.
"""

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from clsweep.study.resolve import load_study
from tests.planted import recorded, study_at
from tests.test_words import FILES, PACKAGE, TREES

STUDY = Path(__file__).parents[1] / "studies" / "quickstart.yaml"
RAY, TORCH, OPTUNA = {"ray"}, {"torch", "torchvision"}, {"optuna"}
HEAVY = RAY | TORCH | OPTUNA

# From the ground up. A layer (a folder, or a module of the top level) may import those named here
# and itself; of the heavy packages none of its files names those in the set, not in a function
# either.
LAYERS = {
    "version": (HEAVY, ""),
    "errors": (HEAVY, ""),
    "files": (HEAVY, ""),
    "machine": (HEAVY, ""),
    "outages": (HEAVY, "errors"),
    "processes": (HEAVY, ""),
    "display": (HEAVY, "errors processes"),
    "catalog": (HEAVY, "display errors files"),
    "model": (RAY | OPTUNA, "catalog display errors"),
    "data": (RAY | OPTUNA, "catalog display errors files machine outages"),
    "objective": (RAY | OPTUNA, "model data catalog display errors"),
    "study": (RAY | TORCH, "data catalog display errors files"),
    "analysis": (HEAVY, "display errors"),
    "results": (
        RAY | TORCH,
        "study analysis catalog display errors files machine outages version",
    ),
    "sweeps": (RAY | TORCH, "analysis results study catalog display errors version"),
    "statistics": (HEAVY, "sweeps analysis results study catalog display processes errors"),
    "train": (RAY | OPTUNA, "objective model data catalog display errors version"),
    "cluster": (set(), "train results study analysis data catalog display errors machine version"),
    "report": (
        HEAVY,
        "statistics sweeps analysis results catalog display machine processes errors version",
    ),
    "trained": (RAY | OPTUNA, "train results study objective catalog display errors"),
    "opened_results": (
        HEAVY,
        "trained report statistics sweeps analysis results study catalog display errors",
    ),
    "api": (
        RAY | TORCH | OPTUNA,
        "opened_results cluster train statistics sweeps analysis results study catalog display "
        "errors",
    ),
    "cli": (
        RAY | OPTUNA,
        "api opened_results trained report cluster train statistics sweeps analysis "
        "results study objective model data catalog display errors machine version",
    ),
    "clsweep": (HEAVY, "api opened_results study"),
    "__main__": (HEAVY, "cli"),
}


@cache
def imports(module):
    """Absolute names that a file imports, and those that only a type checker reads; `from a import
    b` counts as `a.b`.
    """
    found, typing = set(), set()
    waiting = [(TREES[module], found)]
    while waiting:
        node, place = waiting.pop()
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            waiting += [(each, typing) for each in node.body]
            waiting += [(each, place) for each in node.orelse]
        elif isinstance(node, ast.Import):
            place |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: expected an absolute import"
            place |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif not isinstance(node, ast.expr):
            waiting += [(each, place) for each in ast.iter_child_nodes(node)]
    return found, typing


def files_of(names):
    """The files of the package among imported names: `clsweep.api.run` is of `clsweep.api`."""
    candidates = {name if name in FILES else name.rpartition(".")[0] for name in names}
    return {name for name in candidates if name in FILES}


def roots(names):
    return {name.partition(".")[0] for name in names}


def layer_of(module):
    return "clsweep" if module == "clsweep" else module.split(".")[1]


def circle(edges):
    """The files of one circle, the first again at its end; empty if there is none."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        path.append(name)
        found = next(filter(None, map(visit, sorted(edges[name]))), [])
        path.pop()
        done.add(name)
        return found

    return next(filter(None, map(visit, sorted(edges))), [])


def test_every_file_belongs_to_a_layer():
    assert {layer_of(module) for module in FILES} <= {*LAYERS}


def test_the_layers_themselves_stand_one_on_another():
    names = list(LAYERS)
    for layer, (_, allowed) in LAYERS.items():
        assert all(names.index(under) < names.index(layer) for under in allowed.split()), layer


@pytest.mark.parametrize("module", FILES)
def test_a_file_imports_only_the_layers_under_its_own(module):
    never, allowed = LAYERS[layer_of(module)]
    found, _ = imports(module)
    assert not roots(found) & never
    under = {layer_of(file) for file in files_of(found)}
    assert under <= {layer_of(module), *allowed.split()}


def test_no_circle_of_imports():
    edges = {module: files_of(set.union(*imports(module))) - {module} for module in FILES}
    assert not (path := circle(edges)), " -> ".join(path)


# In a fresh interpreter.

REPORT = (
    "import sys, json; print(json.dumps(sorted(m for m in sys.modules if '.' not in m)), "
    "file=sys.stderr)"
)
COMMAND = (
    "sys.argv = ['clsweep', *{words!r}]\nfrom clsweep.cli.main import run_app\ntry:\n    "
    "run_app()\nexcept SystemExit:\n    pass\n"
)


def loaded_by(code):
    """Top-level modules in memory after `code` has run in another interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\n{REPORT}"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
        check=True,
    )
    return set(json.loads(done.stderr.splitlines()[-1])), done.stdout


LIBRARIES = {"numpy", "pandas", "pyarrow", "scipy"}


@pytest.mark.parametrize(
    ("code", "shown", "never"),
    [
        ("import clsweep; print('done')", "done", LIBRARIES | HEAVY | {"yaml", "typer"}),
        (
            f"import clsweep; print(len(clsweep.load_study({str(STUDY)!r}).plan()))",
            "80",
            TORCH | RAY,
        ),
        (COMMAND.format(words=["catalog"]), "infonce", LIBRARIES | HEAVY),
        (COMMAND.format(words=["plan", str(STUDY), "--trials"]), "trial_id", LIBRARIES | HEAVY),
    ],
    ids=["the package", "a study", "catalog", "plan"],
)
def test_what_only_looks_loads_nothing_heavy(code, shown, never):
    loaded, out = loaded_by(code)
    assert shown in out
    assert not loaded & never


def test_status_of_one_objective_does_not_wait_for_pandas(tmp_path):
    one = {"simclr": {"framework": "simclr", "loss": "infonce"}}
    study = load_study(study_at(tmp_path / "study.yaml", objectives=one, space={}))
    out = recorded(tmp_path / "out", study, lambda _: {"knn_top1": 50.0})
    loaded, shown = loaded_by(COMMAND.format(words=["status", out]))
    assert "50" in shown
    assert not loaded & (HEAVY | {"pandas", "scipy"})
