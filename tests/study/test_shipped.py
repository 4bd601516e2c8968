"""Shipped studies are found by name, from any folder, and from what is installed."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from clsweep.cli.plan import catalog_tables
from clsweep.errors import StudyError
from clsweep.study.document import shipped_studies, study_question
from clsweep.study.resolve import load_study

ROOT = Path(__file__).parents[2]


def test_every_study_of_the_folder_is_found_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {p.relative_to(ROOT / "studies").as_posix() for p in ROOT.glob("studies/**/*.yaml")}
    assert {f"{name}.yaml" for name in shipped_studies()} == files
    assert load_study("quickstart").name == "quickstart"


def test_a_file_of_the_users_own_goes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "studies" / "quickstart.yaml").read_text()
    Path("quickstart").write_text(text.replace("name: quickstart", "name: mine"))
    assert load_study("quickstart").name == "mine"


@pytest.mark.parametrize("path", ["quikstart", "studies/quickstart.yaml"])
def test_what_is_not_there_names_the_shipped_study_that_may_be_meant(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StudyError, match=rf"^{path}: no such study file. Did you mean 'quicks"):
        load_study(path)


def test_the_catalog_lists_them_with_what_they_ask():
    rows = {row["study"]: row["what"] for row in catalog_tables("studies")["studies"]}
    assert rows.keys() == shipped_studies().keys()
    asked = "Is SimCLR or SimSiam better, and which of them forgives a wrong learning rate?"
    assert rows["quickstart"] == asked


def test_a_question_may_run_over_lines_and_end_with_a_full_stop(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text("# DCL Fig. 1: batch sizes\n# from 32 to 512. ResNet-18.\nname: x\n# no.\n")
    assert study_question(file) == "DCL Fig. 1: batch sizes from 32 to 512."


@pytest.mark.slow
def test_the_wheel_holds_them_and_all_that_a_plan_needs(tmp_path):
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(tmp_path)]
    subprocess.run([*pip, str(ROOT)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("clsweep-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        packed.extractall(tmp_path / "installed")
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "clsweep", "studies"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    other = "clsweep/light/"  # the other project of this package
    expected = {
        name if name.startswith("clsweep/") else f"clsweep/{name}"
        for name in tracked
        if not name.startswith(other)
    }
    assert {name for name in names if ".dist-info/" not in name} == expected
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'installed')!r})\n"
        "from clsweep.study.resolve import load_study; import clsweep\n"
        "print(clsweep.__file__, load_study('quickstart').document.source)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path, check=True, capture_output=True, text=True, env={},
    ).stdout  # fmt: skip
    assert done.count(str(tmp_path / "installed")) == 2
