"""Whatever is killed, cut or full, at whatever moment: the same command ends the study as if
nothing had happened.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
import yaml

import clsweep
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
STUDY = {"base": BASE, "checkpoints": {"every_s": 0}}
LIVE = {
    **STUDY,
    "search": {"method": "tpe", "trials_per_objective": 4},
    "scheduler": {"name": "asha", "reduction_factor": 2},
}
ONE_OBJECTIVE = {"objectives": {"dcl": {"framework": "simclr", "loss": "dcl"}}}
GROUPS = {
    **LIVE,
    **ONE_OBJECTIVE,
    "seeds": [0],
    "search": {"method": "tpe", "trials_per_objective": 2},
    "resources": {"workers": 2},
}
DIVERGING = {"framework": "simclr", "loss": "infonce", "base": {"lr": 1e30}}

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
        study.kill(TRIAL_CALLED, draw)
    code, output = study.wait()
    assert code == 0, output
    assert output.count("lost its process or machine; it goes on from its last checkpoint") == 3
    assert num_resumes(study).sum() > 0
    assert_as_undisturbed(study, undisturbed, tmp_path)


def test_a_killed_study_goes_on(begin: Begin, undisturbed: Path, tmp_path: Path) -> None:
    study, under_way = begin(STUDY), set()
    for moment in moments(
        "driver", 3
    ):  # the same command comes while some of the killed one's processes are there
        study.start()
        study.reach(moment)
        study.kill_driver()
        under_way |= study.under_way()
    study.run_to_the_end()
    assert (num_resumes(study)[sorted(under_way)] > 0).all()
    assert_as_undisturbed(study, undisturbed, tmp_path)


def test_an_interrupted_study_goes_on(begin: Begin, undisturbed: Path, tmp_path: Path) -> None:
    study, under_way = begin(STUDY), set()
    signals = [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT] * 2, [signal.SIGTERM] * 2]
    for sent, moment in zip(signals, moments("signal", 4), strict=True):
        study.start()
        study.reach(moment)
        study.signal(*sent)
        under_way |= study.under_way()
    study.run_to_the_end()
    assert (num_resumes(study)[sorted(under_way)] > 0).all()
    assert_as_undisturbed(study, undisturbed, tmp_path)


# What is damaged or full.


def test_damaged_checkpoints_and_torn_files_only_cost_time(
    begin: Begin, undisturbed: Path, tmp_path: Path
) -> None:
    study = begin(STUDY)
    study.start()
    study.wait_until(
        lambda: len(study.checkpoints()) == 2 == len(study.under_way()), "two trials under way"
    )
    study.kill_driver()
    study.wait_for_processes(TRIAL)  # they would write another checkpoint
    cut, flipped, *_ = study.files("checkpoints", ".ckpt")
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
    flag.write_text(full)
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


# What fails.


def test_a_trial_that_dies_again_and_again_fails_until_it_is_retried(
    begin: Begin, undisturbed: Path, tmp_path: Path
) -> None:
    study, draw = (
        begin({**STUDY, "resources": {"max_restarts": 1}}, "--max-concurrent", 1),
        random.Random(),
    )
    study.start()
    for num_written in (1, 3):  # of the first trial
        study.reach(num_written)
        study.kill(TRIAL_CALLED, draw)
    code, output = study.wait()
    assert code == 1, output
    trials = clsweep.open_results(study.out).trials
    assert trials["status"].tolist() == ["failed"] + ["finished"] * 7
    failed = trials.iloc[0]
    assert failed["error_class"] == "ActorDiedError"
    assert failed["error_message"].startswith("the trial's process died")
    assert_tidy(study)

    study.run_to_the_end("--retry-failed")
    assert num_resumes(study)[failed["trial_id"]] > 0
    assert_kept(study, trials[1:].reset_index(drop=True))
    assert_as_undisturbed(study, undisturbed, tmp_path, retried=[failed["trial_id"]])


def test_a_study_whose_trials_all_fail_says_why(begin: Begin) -> None:
    study = begin({**STUDY, "objectives": {"bad": DIVERGING}})
    code, output = study.run()
    assert code == 1, output
    trials = clsweep.open_results(study.out).trials
    assert trials["status"].tolist() == ["failed"] * 4
    assert "0 finished, 4 failed, 0 left" in output
    grouped = [
        line
        for line in output.partition("Failed trials")[2].splitlines()
        if "DivergedError" in line
    ]
    assert len(grouped) == trials["error_message"].nunique()
    assert sum(int(line.split()[0]) for line in grouped) == 4


# What is extended.


def test_an_extended_study_runs_only_what_is_new(begin: Begin, tmp_path: Path) -> None:
    base = {**BASE, "epochs": 4}
    small = {
        "base": base,
        **ONE_OBJECTIVE,
        "seeds": [0],
        "search": {"method": "qmc", "trials_per_objective": 2},
    }
    large = {"base": base, "seeds": [0, 1], "search": {"method": "qmc", "trials_per_objective": 3}}
    begin(small).run_to_the_end()
    before = clsweep.open_results(tmp_path / "out")
    numbers, epochs = before.trials, before.epochs

    study, anew = begin(large), begin(large, out=tmp_path / "anew")
    study.run_to_the_end()
    anew.run_to_the_end()
    assert_as_undisturbed(study, anew.out, tmp_path)
    after = clsweep.open_results(study.out)
    assert_kept(study, numbers)
    kept_epochs = after.epochs[after.epochs["trial_id"].isin(numbers["trial_id"])].reset_index(
        drop=True
    )
    pd.testing.assert_frame_equal(kept_epochs, epochs)

    for change, said in {
        "base.epochs=5": "base.epochs: 4 -> 5",
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
    wait_until(lambda: processes(cluster, title), title, TIMEOUT_S)
    parents = {parent.pid for process in processes(cluster, title) for parent in process.parents()}
    ids = [node["NodeID"] for node in cluster.worker_nodes()]
    cluster.kill_node(
        next(i for i in ids if parents & {p.pid for p in processes(cluster, f"--node_id={i}")})
    )


def test_trials_of_a_lost_machine_go_on_elsewhere(
    begin: Begin, cluster: FakeCluster, undisturbed: Path, tmp_path: Path
) -> None:
    study = begin(STUDY, "--address", cluster.address, "--max-concurrent", 2)
    study.start()
    for moment in moments("node", 2):
        study.reach(moment)
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
    study.wait_until(lambda: processes(cluster, WORKER), "a worker group")
    draw.choice(processes(cluster, WORKER)).kill()
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
