"""Whatever is killed, cut or full, at whatever moment: the same command ends the study as if
nothing had happened.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
import yaml

import clsweep
from clsweep.cli.status import status_headline, status_rows
from clsweep.results.folder import LEFTOVERS
from tests.cluster.conftest import study_tree, wait_until
from tests.cluster.disturbed import (
    STATES,
    TIMEOUT_S,
    TRIAL,
    TRIAL_CALLED,
    WORKER,
    Disturbed,
    assert_as_undisturbed,
    assert_same_numbers,
    assert_tidy,
    moments,
)
from tests.cluster.fake_cluster import FakeCluster, static_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

BASE: dict[str, Any] = {**study_tree()["base"], "epochs": 16}  # type: ignore[dict-item]
STUDY = {
    "base": BASE,
    "search": {"method": "qmc", "trials_per_objective": 2},
    "checkpoints": {"every_s": 0},
}
ONE_OBJECTIVE = {"objectives": {"dcl": {"framework": "simclr", "loss": "dcl"}}}
LIVE = {
    **STUDY,
    **ONE_OBJECTIVE,
    "search": {"method": "tpe", "trials_per_objective": 4},
    "scheduler": {"name": "asha", "reduction_factor": 2},
}
GROUPS = {
    **LIVE,
    "seeds": [0],
    "search": {"method": "tpe", "trials_per_objective": 2},
    "resources": {"workers": 2},
}

Begin = Callable[..., Disturbed]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """A study, not yet started: `begin(tree)`, or with other options than two trials at once."""
    begun: list[Disturbed] = []

    def prepare(tree: dict[str, Any], *options: object, out: str | Path | None = None) -> Disturbed:
        path = tmp_path / "study.yaml"
        path.write_text(yaml.safe_dump(study_tree(**tree), sort_keys=False))
        begun.append(
            Disturbed(path, out or tmp_path / "out", *(options or ("--max-concurrent", 2)))
        )
        return begun[-1]

    yield prepare
    for study in begun:
        study.stop()


Undisturbed = Callable[..., Path]


@pytest.fixture(scope="module")
def run_undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    """The folder of a study that nothing happened to."""
    with contextlib.ExitStack() as stack:

        def run(tree: dict[str, Any], *options: object) -> Path:
            folder = tmp_path_factory.mktemp("undisturbed")
            (folder / "study.yaml").write_text(yaml.safe_dump(study_tree(**tree), sort_keys=False))
            study = Disturbed(folder / "study.yaml", folder / "out", *options)
            stack.callback(study.stop)
            study.run_to_the_end()
            return folder / "out"

        yield run


@pytest.fixture(scope="module")
def undisturbed(run_undisturbed: Undisturbed) -> Path:
    return run_undisturbed(STUDY)


@pytest.fixture(scope="module")
def undisturbed_live(run_undisturbed: Undisturbed) -> Path:
    return run_undisturbed(LIVE, "--max-concurrent", 1)


@pytest.fixture(scope="module")
def undisturbed_groups(run_undisturbed: Undisturbed) -> Path:
    return run_undisturbed(GROUPS, "--max-concurrent", 1)


def num_resumes(study: Disturbed) -> pd.Series[int]:
    return clsweep.open_results(study.out).trials.set_index("trial_id")["num_resumes"]


def headline(study: Disturbed) -> str:
    """What `clsweep status` says; the command itself would take as long as some trials."""
    results = clsweep.open_results(study.out)
    return status_headline(results, status_rows(results))


def assert_kept(study: Disturbed, before: pd.DataFrame) -> None:
    """What had ended has not run again: the rows are what they were, their times too."""
    after = (
        clsweep.open_results(study.out)
        .trials.set_index("trial_id")
        .loc[before["trial_id"]]
        .reset_index()
    )
    pd.testing.assert_frame_equal(
        after[before.columns], before, check_dtype=False
    )  # a column may have lost its gaps


# What is killed.


def test_trials_whose_process_is_killed_go_on(
    begin: Begin, undisturbed: Path, tmp_path: Path
) -> None:
    study, draw = begin(STUDY), random.Random("trial")
    study.start()
    for moment in moments("trial", 3):
        study.reach(moment)
        study.wait_until(lambda: len(study.under_way()) == 2, "two trials under way")
        study.kill(TRIAL_CALLED, draw)
    code, output = study.wait()
    assert code == 0, output
    # A process may be between the end of its trial and the next: then it is no loss.
    lost = output.count("lost its process or machine; it goes on from its last checkpoint")
    assert 1 <= lost <= 3
    assert num_resumes(study).sum() > 0
    assert_as_undisturbed(study, undisturbed, tmp_path)


@pytest.mark.parametrize("num_kills", [2, pytest.param(4, marks=pytest.mark.soak)])
def test_a_killed_study_goes_on(
    begin: Begin, undisturbed: Path, tmp_path: Path, num_kills: int
) -> None:
    study, under_way, sessions = begin(STUDY), set(), []
    # the same command comes while some of the killed one's processes are there
    for moment in moments("driver", num_kills):
        study.start()
        study.reach(moment)
        assert study.strays() == []
        sessions.append(json.loads((Path(study.out) / LEFTOVERS).read_text())["ray"])
        study.kill_driver()
        under_way |= study.under_way()
    study.run_to_the_end()
    assert (num_resumes(study)[sorted(under_way)] > 0).all()
    assert_as_undisturbed(study, undisturbed, tmp_path)
    assert study.strays() == []
    assert not [*filter(os.path.exists, sessions)]


INT, TERM = signal.SIGINT, signal.SIGTERM


@pytest.mark.parametrize(
    "signals",
    [
        [[INT], [TERM, TERM]],
        pytest.param([[INT], [TERM], [INT, INT], [TERM, TERM]], marks=pytest.mark.soak),
    ],
    ids=len,
)
def test_an_interrupted_study_goes_on(
    begin: Begin, undisturbed: Path, tmp_path: Path, signals: list[list[signal.Signals]]
) -> None:
    study, under_way = begin(STUDY), set()
    for sent, moment in zip(signals, moments("signal", len(signals)), strict=True):
        study.start()
        study.reach(moment)
        study.wait_until(lambda: "running: " in headline(study), "the status to say so")
        study.signal(*sent)
        under_way |= study.under_way()
    kept = clsweep.open_results(study.out).trials
    study.run_to_the_end()
    assert (num_resumes(study)[sorted(under_way)] > 0).all()
    assert_kept(study, kept)
    assert_as_undisturbed(study, undisturbed, tmp_path)


# What is damaged or full.


def test_damaged_checkpoints_and_torn_files_only_cost_time(
    begin: Begin, undisturbed: Path, tmp_path: Path
) -> None:
    study = begin(STUDY)
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
    out = Path(study.out)
    with (out / "optuna.journal").open("ab") as journal:
        journal.write(b'{"op_code": 6, "worker_id": "torn off in the mid')
    for folder in ("parts/trials", "parts/epochs", "checkpoints"):
        (out / folder).mkdir(parents=True, exist_ok=True)
        (out / folder / ".5f1c.tmp").write_bytes(b"PAR1")
    study.run_to_the_end()
    assert num_resumes(study)[[cut.stem, flipped.stem]].tolist() == [0, 0]
    assert_as_undisturbed(study, undisturbed, tmp_path)


@pytest.mark.parametrize(
    "full",
    [
        "/parts/",
        pytest.param("/checkpoints/", marks=pytest.mark.soak),
        pytest.param("/optuna.journal", marks=pytest.mark.soak),
    ],
)
def test_a_full_disk_stops_the_study_until_there_is_room(
    begin: Begin, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    flag = tmp_path / "flag"
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "full_disk"), prepend=os.pathsep)
    monkeypatch.setenv("CLSWEEP_TEST_FULL_DISK", str(flag))
    study = begin(STUDY)
    study.start()
    study.wait_until(lambda: study.files("parts/trials", ".parquet"), "a row")
    (tmp_path / "flag.tmp").write_text(full)
    (tmp_path / "flag.tmp").rename(flag)  # nobody reads it half written
    code, output = study.wait()
    assert code == 2, output
    assert "No space left on device" in output
    assert "The study stopped. What has finished is kept; the same command continues it." in output
    kept = clsweep.open_results(study.out).trials
    assert 1 <= len(kept) < 8
    flag.unlink()
    study.run_to_the_end()
    assert_kept(study, kept)
    assert_as_undisturbed(study, undisturbed, tmp_path)


def test_a_file_system_without_locks_and_links_is_enough(
    begin: Begin, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "odd_disk"), prepend=os.pathsep)
    study = begin(STUDY)
    monkeypatch.setenv("CLSWEEP_TEST_ODD_DISK", study.out)
    study.run_to_the_end()
    assert_as_undisturbed(study, undisturbed, tmp_path)


# A path that comes to name another folder.


@pytest.mark.parametrize("change", ["deleted", "moved", "replaced"])
def test_a_study_whose_folder_is_another_one_ends_and_leaves_it_alone(
    begin: Begin, tmp_path: Path, change: str
) -> None:
    study, out, moved = begin(STUDY), tmp_path / "out", tmp_path / "moved"
    study.start()
    study.wait_until(lambda: study.files("parts/trials", ".parquet"), "a row")
    out.rename(moved)
    if change == "deleted":
        shutil.rmtree(moved)
    if change == "replaced":
        other = begin({**STUDY, "base": {**BASE, "epochs": 2, "lr": 0.25}}, out=out)
        other.run_to_the_end()
    code, output = study.wait()
    assert code == 2, output
    assert len(re.findall("out: this results folder was deleted, moved or replaced", output)) == 1
    assert out.exists() == (change == "replaced")
    assert study.scratch() == []
    if change == "replaced":
        trials = clsweep.open_results(out).trials
        assert len(trials) == 8
        assert set(trials["lr"]) == {0.25}
        assert_tidy(other)


# What fails.


def test_a_trial_that_dies_again_and_again_fails_until_it_is_retried(
    begin: Begin, undisturbed: Path, tmp_path: Path
) -> None:
    study, draw = (
        begin({**STUDY, "resources": {"max_restarts": 1}}, "--max-concurrent", 1),
        random.Random(),
    )
    study.start()
    study.reach(1)
    study.kill_under_way()
    study.kill(TRIAL_CALLED, draw)  # the next process, which takes seconds to begin
    code, output = study.wait()
    assert code == 1, output
    trials = clsweep.open_results(study.out).trials
    is_failed = trials["status"] == "failed"
    assert sorted(trials["status"]) == ["failed"] + ["finished"] * 7
    [failed] = trials[is_failed].to_dict("records")
    assert failed["error_class"] == "ActorDiedError"
    assert failed["error_message"].startswith("the trial's process died")
    assert_tidy(study)

    study.run_to_the_end("--retry-failed")
    assert num_resumes(study)[failed["trial_id"]] > 0
    assert_kept(study, trials[~is_failed].reset_index(drop=True))
    assert_as_undisturbed(study, undisturbed, tmp_path, retried=[failed["trial_id"]])


# What is extended.


def test_an_extended_study_runs_only_what_is_new(
    begin: Begin, undisturbed: Path, tmp_path: Path
) -> None:
    search = {"method": "qmc", "trials_per_objective": 1}
    begin({**STUDY, **ONE_OBJECTIVE, "seeds": [0], "search": search}).run_to_the_end()
    before = clsweep.open_results(tmp_path / "out")
    numbers, epochs = before.trials, before.epochs

    study = begin(STUDY)
    study.run_to_the_end()
    assert_as_undisturbed(study, undisturbed, tmp_path)
    after = clsweep.open_results(study.out)
    assert_kept(study, numbers)
    kept_epochs = after.epochs[after.epochs["trial_id"].isin(numbers["trial_id"])].reset_index(
        drop=True
    )
    pd.testing.assert_frame_equal(kept_epochs, epochs)

    for change, said in {
        "base.epochs=5": "base.epochs: 16 -> 5",
        "seeds=[1,2]": "seeds: [0, 1] -> [1, 2]",
    }.items():
        code, output = study.run("--set", change)
        assert code == 2, output
        assert said in output
    pd.testing.assert_frame_equal(clsweep.open_results(study.out).trials, after.trials)


# What a scheduler stops.


def test_a_killed_search_stops_the_same_trials(
    begin: Begin, undisturbed_live: Path, tmp_path: Path
) -> None:
    study, (first, second) = begin(LIVE, "--max-concurrent", 1), moments("live", 2, last=25)
    study.start()
    study.reach(first)
    study.kill_driver()
    study.start()
    study.reach(second)
    study.kill(TRIAL_CALLED, random.Random("live"))
    code, output = study.wait()
    assert code == 0, output
    assert_same_numbers(study.out, undisturbed_live)
    assert_stopped_by_asha(study, tmp_path)


def assert_stopped_by_asha(study: Disturbed, tmp_path: Path) -> None:
    """Some trials have fewer epochs than the others, and the journal says of whose configurations
    it is so.
    """
    assert_tidy(study)
    trials = clsweep.open_results(study.out).trials
    assert set(trials["status"]) == {"finished", "stopped"}
    is_stopped = trials["status"] == "stopped"
    assert (trials["epochs_trained"] < trials["epochs"]).tolist() == is_stopped.tolist()
    for objective, rows in trials[trials["seed"] == 0].groupby("objective"):
        states = {
            entry.user_attrs["config"]: entry.state
            for entry in study.entries(str(objective), tmp_path)
        }
        assert states == {row["config"]: STATES[row["status"]] for row in rows.to_dict("records")}


# What happens to others: machines of a cluster, an object store.


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[FakeCluster]:
    with static_cluster([1, 1, 1]) as cluster:
        yield cluster
    assert cluster.leftovers() == []


@pytest.fixture
def cluster(three_nodes: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    for name, value in three_nodes.environment.items():
        monkeypatch.setenv(name, value)
    for _ in range(3 - len(three_nodes.worker_nodes())):
        three_nodes.add_node(1)
    wait_until(lambda: len(three_nodes.worker_nodes()) == 3, "three nodes")
    return three_nodes


def processes(cluster: FakeCluster, title: str) -> list[psutil.Process]:
    found = []
    for process in cluster.processes():
        with contextlib.suppress(psutil.Error):
            found += [process] if title in " ".join(process.cmdline()) else []
    return found


def kill_node_of(cluster: FakeCluster, title: str) -> None:
    """Kill a machine on which a process of that title is running."""
    wait_until(lambda: any(map(cluster.kill_node, nodes_of(cluster, title)[:1])), title, TIMEOUT_S)


def nodes_of(cluster: FakeCluster, title: str) -> list[str]:
    """Machines on which a process of that title is running, by Ray's id."""
    parents = set()
    for process in processes(cluster, title):
        with contextlib.suppress(psutil.NoSuchProcess):
            parents |= {parent.pid for parent in process.parents()}
    ids = [node["NodeID"] for node in cluster.worker_nodes()]
    return [i for i in ids if parents & {p.pid for p in processes(cluster, f"--node_id={i}")}]


def test_trials_of_a_lost_machine_go_on_elsewhere(
    begin: Begin, cluster: FakeCluster, undisturbed: Path, tmp_path: Path
) -> None:
    study = begin(STUDY, "--address", cluster.address, "--max-concurrent", 2)
    study.start()
    for moment in moments("node", 2):
        study.reach(moment)
        study.wait_until(lambda: study.under_way(), "a trial under way")
        kill_node_of(cluster, TRIAL_CALLED)
    code, output = study.wait()
    assert code == 0, output
    assert num_resumes(study).sum() > 0
    assert_as_undisturbed(study, undisturbed, tmp_path)


def test_a_search_of_worker_groups_survives_the_loss_of_each_part(
    begin: Begin, cluster: FakeCluster, undisturbed_groups: Path, tmp_path: Path
) -> None:
    study, draw = begin(GROUPS, "--address", cluster.address), random.Random("groups")
    first, second, third = moments("groups", 3, last=15)
    study.start()
    study.reach(first)
    study.kill(WORKER, draw, of=lambda title: processes(cluster, title))
    study.reach(second)
    kill_node_of(cluster, WORKER)
    study.reach(third)
    study.kill_driver()
    wait_until(
        lambda: not processes(cluster, WORKER) + processes(cluster, TRIAL),
        "the trials to end",
        TIMEOUT_S,
    )
    wait_until(lambda: cluster.placement_groups() == [], "the placement groups to go", TIMEOUT_S)
    study.run_to_the_end()
    assert num_resumes(study).sum() > 0
    assert_same_numbers(study.out, undisturbed_groups)
    assert_stopped_by_asha(study, tmp_path)
    assert cluster.placement_groups() == []


def test_a_store_that_refuses_for_a_while_is_waited_for(
    begin: Begin, undisturbed: Path, tmp_path: Path, s3: str, s3_server: Any
) -> None:
    study = begin(STUDY, out=s3)
    study.start()
    for moment in moments("store", 2):
        study.reach(moment)
        num_requests = len(s3_server.requests)
        s3_server.refuse = lambda _: ("503 Slow Down", "SlowDown")
        study.wait_until(
            lambda n=num_requests: len(s3_server.requests) > n + 30, "requests to be refused"
        )
        s3_server.refuse = lambda _: None
    code, output = study.wait()
    assert code == 0, output
    assert num_resumes(study).sum() == 0
    assert_as_undisturbed(study, undisturbed, tmp_path)


@pytest.mark.soak
def test_a_killed_study_in_a_store_goes_on_at_once(
    begin: Begin, undisturbed: Path, tmp_path: Path, s3: str
) -> None:
    study, [moment] = begin(STUDY, out=s3), moments("stored", 1)
    study.start()
    study.reach(moment)
    study.kill_driver()
    under_way = study.under_way()
    study.run_to_the_end()
    assert (num_resumes(study)[sorted(under_way)] > 0).all()
    assert_as_undisturbed(study, undisturbed, tmp_path)
