"""Runs that are killed between two writes that belong together, by a SIGKILL of their own at that
very point: what is left can be read, and the next command of the study sets it right.
"""

import subprocess
import sys

import pytest
import yaml
from optuna.trial import TrialState

import clsweep
from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder
from tests.contracts.disturbed import Disturbed, assert_tidy
from tests.planted import study_at

# A run that dies as it writes a file or tells the search of a trial for the NUMBER-th time. For
# files, the results are laid out, and Ray does not start.
DIES = """
import os, signal, sys
from clsweep.cluster import runner, search
from clsweep.results import folder
import clsweep

path, out, point, number, *settings = sys.argv[1:]
owner, name = {"tell": (search.PlanSearch, "tell"), "write": (folder.ResultsFolder, "write")}[point]
function, calls = getattr(owner, name), []

def dies(self, *arguments, **options):
    calls.append(arguments)
    if len(calls) == int(number):
        os.kill(os.getpid(), signal.SIGKILL)
    return function(self, *arguments, **options)

setattr(owner, name, dies)
if point == "write":
    runner._Run._session = lambda self: self.lay_out()
clsweep.run(clsweep.load_study(path, settings=settings), out=out)
"""


def killed(*arguments):
    command = [sys.executable, "-c", DIES, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False).returncode == -9


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_extension_is_whole_wherever_it_is_cut_off(number, tmp_path, cli_command):
    """At each of the writes of a longer plan and its study: the first leaves the former pair, and
    each of the others what the command was about to make.
    """
    path, out = study_at(tmp_path / "study.yaml"), tmp_path / "out"
    folder = ResultsFolder(str(out))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clsweep.cluster.runner._Run._session", lambda self: self.lay_out())
        clsweep.run(clsweep.load_study(path), out=out)
        num_planned, study = folder.plan().num_rows, folder.study()
        assert killed(path, out, "write", number, "seeds=[0,1,2,3,4]")
        assert (out / "study.extended.yaml").exists() == (number > 1)
        results, is_longer = clsweep.open_results(out), number == 3
        assert (len(results.plan) > num_planned) == is_longer
        assert (results.study["seeds"] == study["seeds"]) != is_longer
        assert cli_command("status", str(out))[0] == 0
        reader = ResultsFolder(str(out))
        reader.check()
        with folder.lock():  # as any command that writes
            pass
        assert reader.study()["seeds"] == results.study["seeds"]
        assert not (out / "study.extended.yaml").exists()
        again = clsweep.open_results(out)
        assert again.study == results.study
        assert (
            yaml.safe_load((out / "study.yaml").read_text())["seeds"] == study["seeds"]
        ) != is_longer
        clsweep.run(clsweep.load_study(path, settings=["seeds=[0,1,2,3,4]"]), out=out)
    whole = clsweep.open_results(out)
    assert whole.study["seeds"] == [0, 1, 2, 3, 4]
    assert sorted(path.name for path in out.glob("*.yaml")) == ["study.yaml"]


def test_a_study_that_is_edited_is_refused_as_before(tmp_path):
    path, out = study_at(tmp_path / "study.yaml"), tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clsweep.cluster.runner._Run._session", lambda self: self.lay_out())
        clsweep.run(clsweep.load_study(path), out=out)
    study = out / "study.yaml"
    (out / "study.extended.yaml").write_text(study.read_text().replace("epochs:", "epochs: 9 #"))
    study.write_text(study.read_text().replace("epochs:", "epochs: 8 #"))
    with pytest.raises(RequestError, match=r"study\.yaml has changed since"):
        clsweep.open_results(out)


@pytest.mark.slow
def test_a_row_without_its_journal_entry_gets_it_from_the_next_command(tmp_path):
    """The last trial's: nothing is left to run then, and nothing runs."""
    search = {"method": "tpe", "trials_per_objective": 2}
    path = study_at(tmp_path / "study.yaml", search=search, seeds=[0])
    study = Disturbed(path, tmp_path / "out")
    num_trials = 4
    try:
        assert killed(path, study.out, "tell", num_trials)
        rows = clsweep.open_results(study.out).trials
        assert len(rows) == num_trials
        names = sorted(set(rows["objective"]))

        def states():
            return [e.state for name in names for e in study.entries(name, tmp_path)]

        assert states().count(TrialState.RUNNING) == 1
        assert "Nothing is left to run." in study.run_to_the_end()
        assert states() == [TrialState.COMPLETE] * num_trials
        after = clsweep.open_results(study.out).trials
        assert after["started_at"].tolist() == rows["started_at"].tolist()
    finally:
        study.stop()
    assert_tidy(study)
