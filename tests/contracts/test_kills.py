"""Processes that are killed: the same command ends the study as if nothing had happened.

Nothing is lost, doubled or left behind, what had ended has not run again, the scores are the same
to the bit, and a search is the same search. Each kind of blow falls once; a study on a real Ray
takes several of them, one after the other.

| killed                                     | when                               |
|--------------------------------------------|------------------------------------|
| a trial, by SIGTERM                        | in an epoch: it saves first        |
| a trial, by SIGKILL                        | in an epoch; again as it resumes   |
| a worker of a trial of two                 | in an epoch                        |
| the driver, by SIGINT, SIGTERM, SIGHUP     | while trials run; while Ray starts |
| the driver, by SIGKILL                     | while trials run; compacting       |
| gcs_server, raylet, agent of Ray           | while trials run                   |
| a machine of a cluster                     | in an epoch                        |
| who has the folder's lock                  | while others wait for it           |

A trial alone is killed in `test_resuming.py`, at any step. What remains of a killed run has tests
where it lies: of Ray in `tests/cluster/test_leftovers.py`, of decoded images in
`tests/data/test_cache.py`, half a line of the journal in `tests/results/test_journal.py`.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import psutil
import pytest

import clsweep
from clsweep.cli.status import status_headline, status_rows
from clsweep.cluster.ray_session import PREFIX
from clsweep.errors import BusyError
from clsweep.results.folder import ResultsFolder, checkpoint_file
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from tests.cluster.conftest import _hears_ctrl_c, start, wait_until  # noqa: F401
from tests.cluster.fake_cluster import static_cluster
from tests.cluster.without_ray import without_ray
from tests.contracts.disturbed import (
    TIMEOUT_S,
    TRIAL,
    TRIAL_CALLED,
    WORKER,
    Disturbed,
    assert_as_undisturbed,
    assert_same_numbers,
    assert_stopped_by_asha,
    assert_tidy,
)
from tests.planted import study_at, study_tree

# One process that is killed.

LEAVES = """
import signal, sys, threading, time
from clsweep.cluster.preemption import saved_on_term
from clsweep.train.save_request import SaveRequest

signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))  # as Ray's
notice = SaveRequest(lambda: print("saved", flush=True))

def trial():
    with saved_on_term(notice):
        time.sleep(0.2)  # the main thread sets the handler meanwhile
        print("begun", flush=True)
        while not notice.is_given:
            time.sleep(0.01)
        notice.answer()
        time.sleep(60)

threading.Thread(target=trial, daemon=True).start()
while True:
    time.sleep(0.01)
"""
HOLDS = """
import sys
from clsweep.results.folder import ResultsFolder
with ResultsFolder(sys.argv[1]).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_sigterm_ends_a_trials_process_once_it_has_saved():
    command = [sys.executable, "-c", LEAVES]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        process.terminate()
        assert process.wait(20) == 7
        assert process.stdout.read() == "saved\n"


@pytest.mark.parametrize("store", ["disk", "s3"])
def test_the_lock_of_a_killed_process_is_free_at_once_on_its_machine(store, request, tmp_path):
    place = str(tmp_path / "out") if store == "disk" else request.getfixturevalue("s3")
    command = [sys.executable, "-c", HOLDS, place]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == "held\n"
        assert ResultsFolder(place).is_running()
        with pytest.raises(BusyError), ResultsFolder(place).lock():
            pass
        process.kill()
    with ResultsFolder(place).lock():
        pass


@pytest.fixture
def folder(tmp_path):
    """A results folder of this machine, and the rows of its first three trials."""
    study = load_study(study_at(tmp_path / "study.yaml"))
    rows = [plan_row(study, trial) for trial in plan_trials(study)]
    folder = ResultsFolder(str(tmp_path / "out"))
    folder.create(study.document.dump(), rows)
    return folder, [row | {"status": "finished", "knn_top1": 90.0} for row in rows[:3]]


def test_an_interrupted_compaction_leaves_one_row_per_trial(folder, monkeypatch):
    results, rows = folder
    remove = results.files.remove

    def add_rows():
        for row in rows:
            results.add_trial(row, epochs=[{"epoch": 1, "train_loss": 2.0}])

    add_rows()
    expected = results.trials()
    for num_removed in (0, 3, 5, 6):  # of the six parts; then nothing is interrupted
        left = iter(range(num_removed))

        def interrupted(name, left=left, is_last=num_removed == 6):
            if next(left, None) is None and not is_last:
                raise KeyboardInterrupt
            remove(name)

        monkeypatch.setattr(results.files, "remove", interrupted)
        with contextlib.nullcontext() if num_removed == 6 else pytest.raises(KeyboardInterrupt):
            results.compact()
        assert results.trials() == expected
        assert results.side_table("epochs").num_rows == 3
        add_rows()


def test_what_killed_writers_left_is_no_file_and_is_removed(folder):
    results, rows = folder

    def files():
        return sorted(path for path in Path(results.path).rglob("*") if path.is_file())

    results.add_trial(rows[0], epochs=[{"epoch": 1}])
    results.write(checkpoint_file("a-0"), b"1")
    whole = files()
    for name in ("", "checkpoints", "encoders", "parts/trials", "parts/epochs"):
        Path(results.path, name).mkdir(exist_ok=True)
        Path(results.path, name, ".0123.tmp").write_bytes(b"half")
    assert results.trials().num_rows == 1
    assert results.stored("checkpoints") == ["a-0"]
    results.remove_unfinished()
    assert files() == whole


# Studies on a real Ray.


@pytest.mark.slow
def test_a_run_that_is_ended_while_ray_starts_leaves_nothing(tmp_path, monkeypatch):
    """By a terminal that closes, and somebody who does not wait."""
    with tempfile.TemporaryDirectory(prefix="clsweep-test-", dir="/tmp") as name:
        monkeypatch.setenv("TMPDIR", name)  # short, as it leaves room for Ray's sockets
        process = start("run", study_at(tmp_path / "study.yaml"), "--out", tmp_path / "out")
        logs = f"{PREFIX}*/ray/session_*/logs/raylet.out"
        wait_until(lambda: [*Path(name).glob(logs)], "a raylet")
        started = psutil.Process(process.pid).children(recursive=True)
        for number in (signal.SIGHUP, signal.SIGINT):
            os.killpg(process.pid, number)
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 130, output
        assert "Traceback" not in output
        assert psutil.wait_procs(started, timeout=0.5)[1] == []
        assert [*Path(name).glob(f"{PREFIX}*")] == []


BASE = {**study_tree()["base"], "epochs": 16}
STUDY = {
    "base": BASE,
    "search": {"method": "qmc", "trials_per_objective": 2},
    "checkpoints": {"every_s": 0},
}
ONE_OBJECTIVE = {"objectives": {"dcl": {"framework": "simclr", "loss": "dcl"}}}
GROUPS = {
    **STUDY,
    **ONE_OBJECTIVE,
    "seeds": [0],
    "search": {"method": "tpe", "trials_per_objective": 2},
    "scheduler": {"name": "asha", "reduction_factor": 2},
    "resources": {"workers": 2},
}


@pytest.fixture
def begin(tmp_path):
    """A study, not yet started: `begin(tree)`, or with other options than two trials at once."""
    begun = []

    def prepare(tree, *options, out=""):
        place = out or tmp_path / "out"
        path = study_at(tmp_path / "study.yaml", **tree)
        begun.append(Disturbed(path, place, *(options or ("--max-concurrent", 2))))
        return begun[-1]

    yield prepare
    for study in begun:
        study.stop()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Of trials that no Ray ran: it changes no number."""
    folder = tmp_path_factory.mktemp("undisturbed")
    study = load_study(study_at(folder / "study.yaml", **STUDY))
    with without_ray():
        clsweep.run(study, out=folder / "out")
    return folder / "out"


def num_resumes(study):
    return clsweep.open_results(study.out).trials.set_index("trial_id")["num_resumes"]


def headline(study):
    """What `clsweep status` says; the command itself would take as long as some trials."""
    results = clsweep.open_results(study.out)
    return status_headline(results.tables, status_rows(results.tables))


def assert_kept(study, before):
    """What had ended has not run again: the rows are what they were, their times too."""
    after = clsweep.open_results(study.out).trials.set_index("trial_id").loc[before["trial_id"]]
    pd.testing.assert_frame_equal(
        after.reset_index()[before.columns], before, check_dtype=False
    )  # a column may have lost its gaps


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_an_extended_study_whose_parts_are_killed_goes_on(begin, undisturbed, tmp_path):
    """From one trial to eight: a trial's process, the command and the heart of Ray are killed, and
    the command is asked to end.
    """
    search = {"method": "qmc", "trials_per_objective": 1}
    begin({**STUDY, **ONE_OBJECTIVE, "seeds": [0], "search": search}).run_to_the_end()
    first = clsweep.open_results(tmp_path / "out")
    numbers, epochs = first.trials, first.epochs
    study, draw = begin(STUDY), random.Random("killed")
    for change, message in {
        "base.epochs=5": "base.epochs: 16 -> 5",
        "seeds=[1,2]": "seeds: [0] -> [1, 2]",
    }.items():
        code, output = study.run("--set", change)
        assert code == 2, output
        assert message in output

    study.start()
    study.advance(1)
    study.wait_until(lambda: "running: " in headline(study), "the status to say so")
    for _ in range(2):
        study.advance(draw.randint(1, 3))
        study.wait_until(lambda: len(study.under_way()) == 2, "two trials under way")
        study.kill(TRIAL_CALLED, draw)
    study.advance(2)
    output = study.signal(signal.SIGINT)
    # A process may be between the end of its trial and the next: then it is no loss.
    assert 1 <= output.count("lost its process or machine; it goes on from its last") <= 2
    under_way, ended_before = study.under_way(), clsweep.open_results(study.out).trials

    study.start()
    study.advance(draw.randint(2, 6))
    owners = Path(tempfile.gettempdir()).glob("clsweep-ray-*/owner")
    [session] = [each for each in owners if each.read_text().split()[1] == str(study.driver.pid)]
    study.kill_driver()
    under_way |= study.under_way()

    study.start()  # while some of the killed one's processes are there
    study.wait_until(lambda: not study.strays(), "the killed one's processes to go")
    study.advance(draw.randint(2, 6))
    assert not os.path.exists(session)
    study.signal(signal.SIGTERM, signal.SIGTERM)
    under_way |= study.under_way()

    study.start()
    study.advance(2)
    study.kill_of_ray("gcs_server")
    code, output = study.wait()
    assert "gcs_server, a process of Ray (" in output
    if code:  # it may wait for what is gone in a call that does not come back
        assert "the same command continues it" in output.splitlines()[-1]
        study.run_to_the_end()
    else:
        assert "has ended. Starting Ray once more." in output

    assert (num_resumes(study)[sorted(under_way)] > 0).all()
    assert_kept(study, numbers)
    assert_kept(study, ended_before)
    after = clsweep.open_results(study.out).epochs
    after = after[after["trial_id"].isin(numbers["trial_id"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(after, epochs)
    assert_as_undisturbed(study, undisturbed, tmp_path)
    assert study.strays() == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_study_survives_what_becomes_of_its_folder_its_ray_and_its_files(
    begin, undisturbed, tmp_path
):
    study, out, aside = begin(STUDY), tmp_path / "out", tmp_path / "aside"
    study.start()
    study.advance(2)
    other = shutil.copytree(undisturbed, tmp_path / "other")
    out.rename(aside)
    other.rename(out)  # the path comes to name another folder
    code, output = study.wait()
    assert code == 2, output
    assert output.count("out: this results folder was deleted, moved or replaced") == 1
    assert study.scratch() == []
    files = [path.relative_to(out) for path in out.rglob("*") if path.is_file()]
    assert len(files) == len([*filter(Path.is_file, undisturbed.rglob("*"))])
    for file in files:
        assert (out / file).read_bytes() == (undisturbed / file).read_bytes(), file
    shutil.rmtree(out)
    aside.rename(out)

    study.start()  # of Ray, the first loss costs a start, and the second ends the run
    study.advance(2)
    study.kill_of_ray("DashboardAgent")
    study.advance(3)
    study.kill_of_ray("raylet/raylet")
    code, output = study.wait()
    assert code not in (0, 130)
    assert "raylet, a process of Ray (" in output
    assert "has ended. Starting Ray once more." in output
    assert output.splitlines()[-1].endswith(
        "/ray/session_latest/logs. What has finished is kept; the same command continues it."
    )
    ended_before = clsweep.open_results(study.out).trials
    assert len(ended_before) < 8

    study.start()
    study.hold(
        lambda: len(study.checkpoints()) == 2 == len(study.under_way()), "two trials under way"
    )
    study.kill_driver()
    study.wait_for_processes(TRIAL)  # they would write another checkpoint
    cut, flipped = study.files("checkpoints", ".ckpt")
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    payload = bytearray(flipped.read_bytes())
    payload[len(payload) // 2] ^= 1
    flipped.write_bytes(payload)
    with (out / "optuna.journal").open("ab") as journal:
        journal.write(b'{"op_code": 6, "worker_id": "torn off in the mid')
    for folder in ("parts/trials", "parts/epochs", "checkpoints"):
        (out / folder).mkdir(parents=True, exist_ok=True)
        (out / folder / ".5f1c.tmp").write_bytes(b"PAR1")
    study.run_to_the_end()
    assert num_resumes(study)[[cut.stem, flipped.stem]].tolist() == [0, 0]
    assert_kept(study, ended_before)
    assert_as_undisturbed(study, undisturbed, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_trial_that_dies_again_and_again_fails_until_it_is_retried(begin, undisturbed, tmp_path):
    study = begin({**STUDY, "resources": {"max_restarts": 1}}, "--max-concurrent", 1)
    study.start()
    study.advance(1)
    study.kill_under_way()
    study.kill(TRIAL_CALLED, random.Random())  # the next process, which takes seconds to begin
    code, output = study.wait()
    assert code == 1, output
    trials = clsweep.open_results(study.out).trials
    assert sorted(trials["status"]) == ["failed"] + ["finished"] * 7
    [failed] = trials.query("status == 'failed'").to_dict("records")
    assert failed["error_class"] == "ActorDiedError"
    assert failed["error_message"].startswith("the trial's process died")
    assert_tidy(study)

    with without_ray():
        clsweep.run(load_study(study.path), out=study.out, retry_failed=True)
    assert num_resumes(study)[failed["trial_id"]] > 0
    assert_kept(study, trials.query("status == 'finished'").reset_index(drop=True))
    assert_as_undisturbed(study, undisturbed, tmp_path, retried=[failed["trial_id"]])


# What happens to others: machines of a cluster, an object store.


@pytest.fixture
def cluster():
    with static_cluster([1, 1, 1]) as cluster:
        yield cluster
    assert cluster.leftovers() == []


def processes(cluster, title):
    alive = []
    for process in cluster.processes():
        with contextlib.suppress(psutil.Error):
            alive += [process] if title in " ".join(process.cmdline()) else []
    return alive


def replace_node_of(cluster, title):
    """Kill a machine on which a process of that title is running; another one comes."""
    wait_until(lambda: any(map(cluster.kill_node, nodes_of(cluster, title)[:1])), title, TIMEOUT_S)
    cluster.add_node(1)


def nodes_of(cluster, title):
    """Machines on which a process of that title is running, by Ray's id."""
    parents = set()
    for process in cluster.processes(title):
        with contextlib.suppress(psutil.NoSuchProcess):
            parents |= {parent.pid for parent in process.parents()}
    ids = [node["NodeID"] for node in cluster.worker_nodes()]
    return [i for i in ids if parents & {p.pid for p in cluster.processes(f"--node_id={i}")}]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_two_studies_on_one_cluster_survive_the_loss_of_each_part(
    cluster, begin, undisturbed, tmp_path, monkeypatch
):
    """At once, each in a folder of its own: trials of one process, and a search whose trials have
    two workers. One has the cluster's token from the environment, one from its home.
    """
    folders = [tmp_path / name for name in ("plain", "groups")]
    token = tmp_path / ".ray" / "auth_token"
    for folder in (*folders, token.parent):
        folder.mkdir()
    join = ("--address", cluster.address, "--max-concurrent", 1)
    plain, groups = (
        Disturbed(study_at(folder / "study.yaml", **tree), folder / "out", *join)
        for folder, tree in zip(folders, (STUDY, GROUPS), strict=True)
    )
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    shutil.copy(cluster.environment["RAY_AUTH_TOKEN_PATH"], token)
    token.chmod(0o644)  # as Ray itself leaves it
    try:
        plain.start()
        plain.advance(2)
        plain.wait_until(plain.under_way, "a trial under way")
        replace_node_of(cluster, TRIAL_CALLED)
        with monkeypatch.context() as at_home:
            at_home.delenv("RAY_AUTH_TOKEN_PATH")
            at_home.setenv("HOME", str(tmp_path))
            groups.start()
            groups.advance(2)
            assert plain.driver.poll() is None, "two at once"
            groups.kill(WORKER, random.Random("w"), of=cluster.processes)
            groups.advance(2)
            replace_node_of(cluster, WORKER)
            groups.advance(2)
            groups.kill_driver()
            code, output = plain.wait()
            assert code == 0, output
            assert num_resumes(plain).sum() > 0
            assert_as_undisturbed(plain, undisturbed, tmp_path)
            wait_until(
                lambda: not cluster.processes(WORKER) + cluster.processes(TRIAL),
                "the trials to end",
                TIMEOUT_S,
            )
            wait_until(lambda: cluster.placement_groups() == [], "the groups to go", TIMEOUT_S)
            groups.run_to_the_end()
        assert token.stat().st_mode & 0o777 == 0o600
        assert cluster.placement_groups() == []
    finally:
        plain.stop()
        groups.stop()
    assert num_resumes(groups).sum() > 0
    alone = begin(GROUPS, "--max-concurrent", 1, out=tmp_path / "alone")
    alone.run_to_the_end()
    assert_same_numbers(groups.out, alone.out)
    assert_stopped_by_asha(groups, tmp_path)
