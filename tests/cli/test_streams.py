"""Every command where its output is closed, full or narrow, its folder gone, or its arguments odd:
no traceback, one exit code, one line.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import clsweep
from clsweep.cluster import ray_session

REPOSITORY = Path(clsweep.__file__).parents[1]
FOLDER = str(REPOSITORY / "docs" / "results" / "quickstart")
TABLES = ("robustness", "sensitivity", "picks", "compare", "pareto", "recommend")
# Those that answer at once, of which the first says more than a pipe holds, and all the others.
LONGEST, *FEW = [
    ["catalog", "--format", "csv"], ["--help"], ["plan", "quickstart"], ["--version"],
]  # fmt: skip
MANY = [
    *[[name, FOLDER] for name in (*TABLES, "trials", "reproduce")],
    *[["trials", FOLDER, "--format", form] for form in ("csv", "json", "md")],
    ["robustness", FOLDER, "--explain"], ["status", FOLDER], ["status", FOLDER, "--follow"],
    ["report", FOLDER, "--out", "report"], ["plan", "quickstart", "--trials"], ["schema"],
    ["new", "loss", "abc"], ["catalog", "tau"], ["trials", "--help"],
    ["run", "quickstart", "--out", "copied", "--address", "127.0.0.1:1"],
]  # fmt: skip
# As a shell says it, with what the command is to end with.
FAULTS = {
    "no reader": ("{} | true; exit ${{PIPESTATUS[0]}}", 0),
    "no reader of both": ("{} 2>&1 | true; exit ${{PIPESTATUS[0]}}", 0),
    "a reader of one line": ("{} | head -1 > /dev/null; exit ${{PIPESTATUS[0]}}", 0),
    "a full disk": ("{} > /dev/full", 2),
    "ASCII": ("PYTHONIOENCODING=ascii {} > /dev/null", 0),
    "another locale": ("LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 {} > /dev/null", 0),
    "no output": ("{} >&-", 0),
    "nothing open": ("{} <&- >&- 2>&-", 0),
}


def ended(line, folder, **more):
    """The exit code, and what was said on standard error."""
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **more}, timeout=300,
    )  # fmt: skip
    return done.returncode, done.stderr


def called(words):
    return shlex.join([sys.executable, "-m", "clsweep", *words])


@pytest.mark.parametrize("fault", FAULTS)
def test_output_that_nobody_takes_ends_a_command_in_silence(fault, tmp_path):
    line, code = FAULTS[fault]
    few = FEW[[*FAULTS].index(fault) % len(FEW)]  # written as the command leaves
    for words in (LONGEST, few) if "reader" in fault or "disk" in fault else (LONGEST,):
        found, said = ended(line.format(called(words)), tmp_path)
        assert found == code, (words, said)
        assert len(said.splitlines()) == (code == 2), (words, said)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "fault"),
    # the faults in turn: what meets them is the same for every command
    [(words, [*FAULTS][i % len(FAULTS)]) for i, words in enumerate(MANY)],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_so_does_every_command(words, fault, tmp_path):
    line, code = FAULTS[fault]
    shutil.copytree(FOLDER, tmp_path / "copied")  # a run writes its lock there
    found, said = ended(line.format(called(words)), tmp_path)
    assert found == code, said
    assert len(said.splitlines()) == (code == 2), said


def test_a_study_that_runs_goes_on_without_its_reader(tmp_path):
    script = (
        "import sys; sys.argv[1:] = ['run']\n"
        "from clsweep.cli import main\n"
        "def app(**_):\n"
        "    for _ in range(3): print('x' * 99_999, flush=True)\n"
        "    open('done', 'x').close()\n"
        "main.app = app; main.run_app()"
    )
    line = shlex.join([sys.executable, "-c", script])
    assert ended(f"{line} | true; exit ${{PIPESTATUS[0]}}", tmp_path) == (0, "")
    (tmp_path / "done").unlink()
    code, said = ended(f"{line} > /dev/full", tmp_path)
    assert (tmp_path / "done").exists()
    assert (code, said) == (2, "standard output cannot be written: No space left on device\n")


@pytest.mark.parametrize("words", [["catalog"], ["plan", "quickstart"], ["run", "quickstart"]])
def test_a_working_folder_that_is_gone(words, tmp_path):
    code, said = ended(f"mkdir d; cd d; rmdir ../d; {called(words)} > /dev/null", tmp_path)
    assert code == (0 if words == ["catalog"] else 2)
    assert len(said.splitlines()) == (code == 2), said


LONG = "n" * 300  # which no file system takes
ODD = {
    "nothing": "",
    "a long name": LONG,
    "a long path": "/".join(["p" * 200] * 30),
    "control characters": "a\nb\x1b[31mc",
    "no UTF-8": "x\udcff",
}
EVERYWHERE = ("nothing", "control characters")
ROTATED = [name for name in ODD if name not in EVERYWHERE]  # each place meets one of them
PLACES = [
    *[[name, "{}"] for name in (*TABLES, "status", "trials", "plan", "check", "report", "confirm")],
    ["run", "{}"], ["run", "quickstart", "--address", "127.0.0.1:1", "--out", "{}/{}"],
    ["try", "{}", "-o", "simclr"],
    ["export", "{}", "--out", "e.pt"], ["export", f"{FOLDER}/simclr-0000-s0", "--out", "{}"],
    ["import", "optuna", "{}"], ["import", "ray", "{}"],
    ["schema", "--plugin", "{}"], ["catalog", "--plugin", "{}"], ["catalog", "{}"],
    ["new", "loss", "{}"], ["compare", FOLDER, "{}", "simclr"],
    *[["trials", FOLDER, f"--{name}={{}}"] for name in ("where", "sort", "columns")],
    *[["robustness", FOLDER, f"--{name}={{}}"] for name in ("by", "metric", "mode", "scale")],
    ["plan", "quickstart", "--set={}"], ["plan", "quickstart", "--preset={}"],
    ["sensitivity", FOLDER, "--objective={}"], ["confirm", FOLDER, "--seeds={}"],
]  # fmt: skip
UNWRITABLE = [
    ["report", FOLDER], ["schema"], ["new", "loss", "abc"], ["new", "cluster", "slurm"],
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_an_argument_of_any_kind_gets_one_line(odd, cli_command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray_session, "_PATIENCE_S", 0.1)
    places = PLACES if odd in EVERYWHERE else PLACES[ROTATED.index(odd) :: len(ROTATED)]
    unwritable = [[*words, "--out", f"{{}}/{LONG}"] for words in UNWRITABLE]
    for words in [*places, *(unwritable if odd == "no UTF-8" else ())]:
        given = [word.replace("{}", ODD[odd]) for word in words]
        code, out, said = cli_command(*given)
        assert code == 2, (words, out, said)
        assert "Traceback" not in said
        assert "\x1b" not in out + said
        assert len(said.splitlines()) <= 6, (words, said)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]


@pytest.mark.parametrize("name", ["seed", "lr", "error_message", "epochs"])
def test_what_was_planned_is_no_score(name, cli_command):
    code, _, said = cli_command("robustness", FOLDER, "--metric", name, "--mode", "max")
    assert code == 2
    assert said == f"{FOLDER}: metric: expected a column of scores, given {name!r}\n"


@pytest.mark.slow
def test_a_user_without_a_name_and_a_home(tmp_path):
    few = pd.read_parquet(f"{FOLDER}/trials.parquet").query("objective == 'simclr' and seed < 2")
    few.to_parquet(tmp_path / "few.parquet")
    script = (
        "import pwd, sys\n"
        "def nobody(_): raise KeyError('uid not found')\n"
        "pwd.getpwuid = nobody\n"
        "sys.argv[1:] = ['report', 'few.parquet', '--out', 'report']\n"
        "from clsweep.cli.main import run_app; run_app()"
    )
    line = f"env -u HOME -u USER -u LOGNAME {shlex.join([sys.executable, '-c', script])}"
    assert ended(line, tmp_path) == (0, "")
