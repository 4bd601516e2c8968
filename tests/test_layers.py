"""The layers of the design, read off the imports of every module, those inside of functions included."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import clsweep

PACKAGE = Path(clsweep.__file__).parent
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
STUDY = Path(__file__).parents[1] / "studies" / "quickstart.yaml"

ERRORS = "clsweep.errors"
CATALOG = ["clsweep.objective.catalog", "clsweep.objective.ownership"]  # what exists, and who owns what
HEAVY = {"torch", "torchvision", "ray", "optuna"}

# layer: (packages that it never imports, what else of clsweep it may import)
LAYERS = {
    "objective": ({"ray", "optuna"}, ["clsweep.model", "clsweep.data", ERRORS]),
    "model": ({"ray", "optuna"}, [*CATALOG, ERRORS]),
    "data": ({"ray", "optuna"}, [*CATALOG, ERRORS]),
    "train": ({"ray", "optuna"}, ["clsweep.objective", "clsweep.model", "clsweep.data", ERRORS]),
    "study": (
        {"ray", "torch", "torchvision"},
        ["clsweep.data.availability", "clsweep.data.folders", *CATALOG, ERRORS],
    ),
    "cluster": (
        set(),
        [
            *("clsweep.study", "clsweep.train", "clsweep.results", "clsweep.data.availability", "clsweep.data.sources"),
            *(*CATALOG, ERRORS),
        ],
    ),
    "results": ({"ray", "torch", "torchvision"}, ["clsweep.study", *CATALOG, ERRORS]),
    "analysis": ({"ray", "torch", "torchvision", "optuna"}, [ERRORS]),
    "report": (
        {"ray", "torch", "torchvision", "optuna"},
        ["clsweep.analysis", "clsweep.results", "clsweep.console", ERRORS],
    ),
}


def imports(module, *, top_level_only=False):
    """Absolute names that a module of the package imports; `from a import b` counts as `a.b`. Type-checking is free."""
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    found, waiting = set(), [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: expected an absolute import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif not (top_level_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            waiting += ast.iter_child_nodes(node)
    return found


def roots(names):
    return {name.partition(".")[0] for name in names}


def within(name, package):
    return name == package or name.startswith(package + ".")


def in_layer(layer):
    return [module for module in MODULES if module.startswith(f"{layer}/")]


def test_imports_are_found_wherever_they_stand():
    assert "ray" in roots(imports("cluster/runner.py"))
    assert "torch" in roots(imports("train/loop.py", top_level_only=True))
    assert "torch" in roots(imports("trying.py"))
    assert "torch" not in roots(imports("trying.py", top_level_only=True))
    assert "optuna" in roots(imports("study/design.py"))


def test_every_folder_is_a_known_layer():
    folders = {module.partition("/")[0] for module in MODULES if "/" in module}
    assert folders == set(LAYERS)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_none_of_the_packages_below_or_beside_it(layer):
    never, _ = LAYERS[layer]
    for module in in_layer(layer):
        assert not roots(imports(module)) & never, module


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_the_layers_under_it(layer):
    _, allowed = LAYERS[layer]
    for module in in_layer(layer):
        own = {name for name in imports(module) if within(name, "clsweep")}
        wrong = {name for name in own if not any(within(name, a) for a in [f"clsweep.{layer}", *allowed])}
        assert not wrong, module


@pytest.mark.parametrize("module", [m for m in MODULES if not m.startswith("cluster/")])
def test_only_cluster_imports_ray(module):
    assert "ray" not in roots(imports(module))


@pytest.mark.parametrize("module", ["__init__.py", "cli.py", "console.py", "errors.py", "objective/catalog.py"])
def test_what_every_command_loads_is_light(module):
    allowed = {"typer", "rich", "clsweep"} | set(sys.stdlib_module_names)
    assert roots(imports(module, top_level_only=True)) <= allowed


def test_the_command_line_imports_nothing_of_the_layers_at_the_top():
    own = {name for name in imports("cli.py", top_level_only=True) if within(name, "clsweep")}
    assert all(within(name, "clsweep.console") or within(name, ERRORS) for name in own)


def test_the_catalog_and_the_errors_import_nothing_of_clsweep():
    for module in ("objective/catalog.py", "objective/__init__.py", "errors.py", "console.py"):
        assert not [name for name in imports(module) if within(name, "clsweep")]


# In a fresh interpreter.

REPORT = "import sys, json; print(json.dumps(sorted(m for m in sys.modules if '.' not in m)), file=sys.stderr)"
COMMAND = (
    "sys.argv = ['clsweep', *{words!r}]\nfrom clsweep.cli import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
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


def test_importing_clsweep_loads_nothing_heavy():
    loaded, _ = loaded_by("import clsweep")
    assert "clsweep" in loaded
    assert not loaded & (HEAVY | {"numpy", "pandas", "pyarrow", "yaml", "typer"})


def test_loading_a_study_in_python_loads_neither_torch_nor_ray():
    loaded, out = loaded_by(f"import clsweep; print(len(clsweep.load_study({str(STUDY)!r}).plan()))")
    assert int(out) > 0
    assert not loaded & {"torch", "torchvision", "ray"}


@pytest.mark.parametrize(
    "words", [["catalog"], ["plan", str(STUDY)], ["plan", str(STUDY), "--trials"], ["status", "nowhere"]], ids=" ".join
)
def test_looking_commands_load_neither_torch_nor_ray(words):
    loaded, out = loaded_by(COMMAND.format(words=words))
    assert out or words[0] == "status"
    assert not loaded & {"torch", "torchvision", "ray"}


def test_catalog_and_plan_do_not_wait_for_pandas():
    for words in (["catalog"], ["plan", str(STUDY)]):
        loaded, _ = loaded_by(COMMAND.format(words=words))
        assert not loaded & {"pandas", "numpy", "optuna", "pyarrow"}
