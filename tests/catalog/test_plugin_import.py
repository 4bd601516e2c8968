"""A plug-in is imported as Python imports a module: with those beside it, its file and its data;
all that it imports is its identity, and travels.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from clsweep.catalog.plugin_import import PluginError
from clsweep.catalog.plugins import Plugin, activate, active, error_place, plug_in, read_plugins
from clsweep.study.document import from_json, to_json

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


def test_what_travels_needs_no_folder(tmp_path):
    """As a process of another machine, and whoever trusts a results folder."""
    plugin = read(lay_out(tmp_path, **{"mine.py": MINE.replace("DATA = ", "DATA = 'own' or ")}))
    (kept,) = from_json(to_json([plugin]))
    assert str(tmp_path) not in json.dumps(kept.packed())
    shutil.rmtree(tmp_path)
    activate(())
    for name in [plugin.module, *(name for name in sys.modules if name.endswith("_xyz"))]:
        sys.modules.pop(name, None)
    plug_in([plugin])
    assert called(plugin) == (6, 5, "own")
    (here,) = active()
    assert here == plugin
    assert here.folder != plugin.folder


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
