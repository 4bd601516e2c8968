"""A plug-in is imported as Python imports a module: with those beside it, its file and its data;
all that it imports is its identity, and travels. In every process it is the same.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from clsweep.catalog.plugin_import import PluginError
from clsweep.catalog.plugins import (
    Plugin,
    activate,
    active,
    error_place,
    execute,
    opened_plugins,
    plug_in,
    read_plugins,
)
from clsweep.objective.framework import LossShapeError
from clsweep.study.document import from_json, to_json
from tests.catalog.test_plugins import MINE as OWN_LOSS

MINE = """\
from pathlib import Path

from clsweep.catalog import Diagnostic
from helper_xyz import factor
import parts_xyz.deep

DATA = Path(__file__).with_name("data.txt").read_text()


def lazily():
    import late_xyz

    return late_xyz.VALUE


def mine(z1_ND):
    return factor() * parts_xyz.deep.VALUE


ROWS = [Diagnostic(name="mine", impl="mine", takes=("z1_ND",), source="-", doc="-")]
"""
FILES = {
    "mine.py": MINE,
    "helper_xyz.py": "def factor():\n    return 2\n",
    "parts_xyz/__init__.py": "",
    "parts_xyz/deep.py": "from .more import VALUE\n",
    "parts_xyz/more.py": "VALUE = 3\n",
    "late_xyz.py": "VALUE = 5\n",
    "stranger_xyz.py": "raise RuntimeError('nobody asked for it')\n",
    "json.py": "raise RuntimeError('not that of Python')\n",
    "data.txt": "own",
}


@pytest.fixture(autouse=True)
def _none_after():
    path = [*sys.path]
    yield
    activate(())
    assert sys.path == path, "folders of plug-ins are taken out with them"


def lay_out(folder: Path, **changes: str) -> Path:
    for name, text in {**FILES, **changes}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def read(folder: Path) -> Plugin:
    (plugin,) = read_plugins(["mine.py"], folder)
    activate([plugin])
    return plugin


def called(plugin: Plugin) -> tuple[int, int, str]:
    module = sys.modules[plugin.module]
    return module.mine(None), module.lazily(), module.DATA


def test_modules_beside_a_plug_in_its_file_and_its_data(tmp_path):
    plugin = read(lay_out(tmp_path))
    assert called(plugin) == (6, 5, "own")
    imported = {"mine.py", "helper_xyz.py", "late_xyz.py"}
    assert set(plugin.files) == imported | {
        f"parts_xyz/{n}.py" for n in ("__init__", "deep", "more")
    }
    assert not list(tmp_path.rglob("__pycache__"))


@pytest.mark.parametrize("name", ["helper_xyz.py", "parts_xyz/more.py", "late_xyz.py"])
def test_a_changed_module_is_another_plug_in(tmp_path, name):
    """Of the same length, within the same second: no bytecode stays behind."""
    first = read(lay_out(tmp_path))
    text = FILES[name].replace("2", "7").replace("3", "7").replace("5", "7")
    second = read(lay_out(tmp_path, **{name: text}))
    assert first.digest != second.digest
    assert 7 in called(second) or called(second)[0] in (14, 21)
    assert read(lay_out(tmp_path, **{name: text, "stranger_xyz.py": ""})).digest == second.digest


def test_two_studies_have_modules_of_one_name(tmp_path):
    one = read(lay_out(tmp_path / "one"))
    other = read(lay_out(tmp_path / "other", **{"late_xyz.py": "VALUE = 50\n"}))
    assert (called(other), sys.modules[one.module].mine(None)) == ((6, 50, "own"), 6)


# How a process comes by a plug-in that another one has read.
WAYS = {
    "of the user's own": lambda plugin: (activate([plugin]), execute([plugin])),
    "of a trial": lambda plugin: plug_in([plugin]),
    "of a trusted results folder": lambda plugin: activate(
        opened_plugins(from_json(to_json([plugin])))
    ),
}


@pytest.mark.parametrize("is_here", [True, False], ids=["its folder", "no folder"])
@pytest.mark.parametrize("way", WAYS)
def test_in_every_process_it_is_the_same(tmp_path, way, is_here):
    """As a process of another machine, and whoever trusts a results folder."""
    plugin = read(lay_out(tmp_path, **{"mine.py": MINE.replace("DATA = ", "DATA = 'own' or ")}))
    (sealed,) = from_json(to_json([plugin]))
    assert sealed == plugin.sealed()
    assert str(tmp_path) not in json.dumps(sealed.packed())
    if not is_here:
        shutil.rmtree(tmp_path)
    activate(())
    for name in [plugin.module, *(n for n in sys.modules if n.partition(".")[0].endswith("_xyz"))]:
        sys.modules.pop(name, None)
    WAYS[way](plugin)
    assert called(plugin) == (6, 5, "own")
    (here,) = active()
    assert (here.rows, here.digest, here.files) == (plugin.rows, plugin.digest, plugin.files)


def test_what_nobody_trusts_is_not_executed(tmp_path):
    plugin = read(lay_out(tmp_path))
    with pytest.raises(PluginError, match="nobody trusts it"):
        execute([plugin.sealed()])
    packed = json.loads(to_json([plugin]))
    packed[0]["files"]["mine.py"] += "#"
    with pytest.raises(ValueError, match="not of its digest"):
        Plugin.unpacked(packed[0])


def test_paths_out_of_the_folder_are_refused(tmp_path):
    packed = json.loads(to_json([read(lay_out(tmp_path))]))
    for path in ("../../evil.py", "/evil.py"):
        packed[0]["files"][path] = "x = 1\n"
        with pytest.raises(ValueError, match="paths below its folder"):
            Plugin.unpacked(packed[0])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("helper_xyz.py", "def factor(:\n", "helper_xyz.py:1: SyntaxError"),
        ("parts_xyz/more.py", "VALUE = 3\n1 / 0\n", "parts_xyz/more.py:2: ZeroDivisionError"),
        ("helper_xyz.py", "# none\n", "mine.py:4: ImportError: cannot import name 'factor'"),
        ("late_xyz.py", "#" * 300_000, "expected at most 256,000 bytes"),
    ],
)
def test_a_module_that_is_wrong_is_one_line(tmp_path, name, text, message):
    with pytest.raises(PluginError) as caught:
        read(lay_out(tmp_path, **{name: text}))
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_an_error_in_a_module_beside_has_its_place(tmp_path):
    broken = "def factor():\n    return 1 / 0\n"
    plugin = read(lay_out(tmp_path, **{"helper_xyz.py": broken}))
    with pytest.raises(ZeroDivisionError) as caught:
        called(plugin)
    assert error_place(caught.value) == "helper_xyz.py:2"


# Packages.


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of a plug-in, with more files, where Python finds it; its modules are forgotten."""
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)

    def lay_out(**files):
        folder = tmp_path / "own_rows_xyz"
        folder.mkdir()
        for name, text in {"__init__": "", **files}.items():
            (folder / f"{name}.py").write_text(text)

    yield lay_out
    for name in set(sys.modules) - known:
        if name.startswith("own_rows_xyz"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"__init__": "def (:\n", "mine": OWN_LOSS}, "own_rows_xyz/__init__.py:1: SyntaxError"),
        ({"__init__": "raise RuntimeError('loud')\n", "mine": OWN_LOSS},
         "own_rows_xyz/__init__.py:1: RuntimeError"),
        ({"mine": OWN_LOSS.replace("import torch\n", "import no_such_module_xyz\n")},
         "own_rows_xyz/mine.py:2: ModuleNotFoundError: "),
        ({"mine": OWN_LOSS.replace('name="my_dcl"', 'name="dcl"')},
         "own_rows_xyz/mine.py:19: loss 'dcl'"),
    ],
)  # fmt: skip
def test_a_package_that_cannot_be_used_is_one_line(package, tmp_path, files, message):
    package(**files)
    with pytest.raises(PluginError) as caught:
        activate(read_plugins(["own_rows_xyz.mine"], tmp_path))
    assert str(caught.value).startswith(message)


def test_all_modules_of_a_package_are_its_identity(package, tmp_path):
    package(helper="X = 1\n", mine=OWN_LOSS)
    (first,) = read_plugins(["own_rows_xyz.mine"], tmp_path)
    (tmp_path / "own_rows_xyz" / "helper.py").write_text("X = 2\n")
    (second,) = read_plugins(["own_rows_xyz.mine"], tmp_path)
    assert first.digest != second.digest
    with pytest.raises(PluginError, match="planned with version"):
        execute([first])


def test_an_error_of_a_package_has_its_file_and_line(package, tmp_path):
    helper = "def scaled(x):\n    return x / 0\n"
    text = OWN_LOSS.replace("import torch", "from own_rows_xyz.helper import scaled", 1)
    text = text.replace("return my_scale *", "return scaled(1) *")
    package(helper=helper, mine=text)
    (plugin,) = read_plugins(["own_rows_xyz.mine"], tmp_path)
    activate([plugin])
    execute([plugin])
    assert error_place(LossShapeError(), "my_dcl") == "own_rows_xyz/mine.py:10"
    with pytest.raises(ZeroDivisionError) as caught:
        sys.modules["own_rows_xyz.mine"].my_dcl(None, None, 1, 1)
    assert error_place(caught.value) == "own_rows_xyz/helper.py:2"
