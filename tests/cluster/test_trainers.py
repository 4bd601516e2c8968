"""Training loops of the user's own on a real Ray: the same numbers after SIGKILLs and Ctrl-C, by
one worker and by two, whichever it is; stalled; under ASHA; with a hyperparameter that one ignores.
"""

import os
import signal

import pytest
import yaml

import clsweep
from tests.cluster.conftest import clsweep as command
from tests.cluster.conftest import start, wait_until
from tests.cluster.without_ray import without_ray

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # and all but two of the soak

# A walk that hangs on every draw before it. With a folder of marks it is killed once, in epoch 3.
WALK = """
import os
import random
import signal
import time

import numpy as np
import torch
import torch.distributed as dist

from clsweep.catalog import Metric, Param, trainer

TEXT = {"doc": "of a walk", "source": "this test"}
SCORE = Metric(name="walk_top1", mode="max", doc="share of a walk")
MARKS = None


@trainer(
    params=[Param(name="stride", kind="float", default=1.0, low=0, **TEXT)],
    uses=["lr"],
    metrics=[SCORE],
)
def walk(trial):
    file, config = trial.checkpoint_folder / "inner" / "walk.pt", trial.config
    model = torch.nn.Linear(40, 1, bias=False)
    if trial.world_size > 1:
        assert dist.get_world_size() == trial.world_size
        model = torch.nn.parallel.DistributedDataParallel(model)
    if file.exists():
        model.load_state_dict(torch.load(file))
    for epoch in range(trial.epoch + 1, config["epochs"] + 1):
        drawn = torch.randn(8, 40) + random.random() + np.random.rand() + trial.rank
        loss = model(drawn).square().mean()
        loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight -= config["stride"] * config["lr"] * weight.grad
                weight.grad = None
        file.parent.mkdir(exist_ok=True)
        torch.save(model.state_dict(), file)
        mark = f"{MARKS}/{trial.seed}"
        if MARKS and epoch == 3 and trial.rank == 0 and not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        is_right = torch.cat([weight.detach().flatten() for weight in model.parameters()]) > 0
        trial.report(epoch, {"walk_top1": is_right, "train_loss": loss})
        if trial.should_stop:
            return


@trainer(params=[Param(name="grade", kind="float", default=1.0, low=0, **TEXT)], metrics=[SCORE])
def graded(trial):
    for epoch in range(trial.epoch + 1, trial.config["epochs"] + 1):
        trial.report(epoch, 10 * trial.config["grade"] + epoch)


@trainer(params=[Param(name="idle", kind="int", default=1, **TEXT)], metrics=[SCORE])
def ignores(trial):
    for epoch in range(1, trial.config["epochs"] + 1):
        trial.report(epoch, 50.0)
"""
STUDY = {
    "name": "own",
    "dataset": {"name": "own"},
    "metric": {"name": "walk_top1", "mode": "max"},
    "seeds": [0, 1],
    "base": {"epochs": 5},
    "objectives": {"walk": {"trainer": "walk.py:walk"}},
    "search": {"method": "grid"},
    "checkpoints": {"every_s": 0},
}  # fmt: skip


def write(folder, text=WALK, **changes):
    """The arguments of a run of the study, and its results folder."""
    folder.mkdir()
    (folder / "walk.py").write_text(text)
    path, out = folder / "study.yaml", folder / "out"
    path.write_text(yaml.safe_dump({**STUDY, **changes}, sort_keys=False))
    return ("run", path, "--out", out), out


def run(folder, text=WALK, **changes):
    arguments, out = write(folder, text, **changes)
    code, output = command(*arguments)
    return code, output, clsweep.open_results(out)


def marked(folder, does="os.kill(os.getpid(), signal.SIGKILL)", rank=0):
    """The loops with a folder of marks: there, the worker of this rank does this once."""
    folder.mkdir()
    text = WALK.replace("MARKS = None", f"MARKS = {str(folder)!r}")
    text = text.replace("trial.rank == 0", f"trial.rank == {rank}")
    return text.replace("os.kill(os.getpid(), signal.SIGKILL)", does)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The results by the number of workers, each made once."""
    known = {}

    def results(workers):
        if workers not in known:
            folder = tmp_path_factory.mktemp("plain") / "study"
            if workers == 1:  # Ray changes no number
                arguments, out = write(folder)
                with without_ray():
                    clsweep.run(clsweep.load_study(arguments[1]), out=out)
                known[workers] = clsweep.open_results(out)
            else:
                code, output, known[workers] = run(folder, resources={"workers": workers})
                assert code == 0, output
        return known[workers]

    return results


def assert_as_undisturbed(undisturbed, disturbed):
    plain, killed = (each.trials.set_index("trial_id") for each in (undisturbed, disturbed))
    numbers = ["walk_top1", "train_loss", "epochs_trained", "status"]
    assert plain[numbers].equals(killed[numbers])
    assert plain["train_loss"].nunique() == 2
    assert (killed["num_resumes"] == 1).all()
    losses = [
        each.epochs.set_index(["trial_id", "epoch"])["train_loss"].sort_index()
        for each in (undisturbed, disturbed)
    ]
    assert losses[0].equals(losses[1])
    assert losses[0].groupby("trial_id").size().eq(5).all()


in_soak = pytest.mark.soak


@pytest.mark.parametrize(
    ("workers", "rank"),
    [(1, 0), pytest.param(2, 0, marks=in_soak), pytest.param(2, 1, marks=in_soak)],
)
def test_a_loop_that_is_killed_ends_with_the_numbers_of_one_that_is_not(
    tmp_path, undisturbed, workers, rank
):
    kills = marked(tmp_path / "marks", rank=rank)
    code, output, disturbed = run(tmp_path / "killed", kills, resources={"workers": workers})
    assert code == 0, output
    assert len(list((tmp_path / "marks").iterdir())) == 2
    assert_as_undisturbed(undisturbed(workers), disturbed)


@pytest.mark.soak
def test_a_loop_goes_on_after_ctrl_c(tmp_path, undisturbed):
    waits = marked(tmp_path / "marks", "time.sleep(10_000)")
    arguments, out = write(tmp_path / "paused", waits)
    process = start(*arguments, "--max-concurrent", 2)
    wait_until(lambda: len(os.listdir(tmp_path / "marks")) == 2, "both trials in epoch 3")
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    code, output = command(*arguments)
    assert code == 0, output
    assert_as_undisturbed(undisturbed(1), clsweep.open_results(out))


@pytest.mark.soak
@pytest.mark.parametrize(("workers", "rank"), [(1, 0), (2, 0), (2, 1)])
def test_a_loop_that_hangs_is_stalled_and_the_others_go_on(tmp_path, workers, rank):
    hangs = marked(tmp_path / "marks", "time.sleep(10_000)", rank)
    both = {name: {"trainer": f"walk.py:{name}"} for name in ("walk", "graded")}
    resources = {"stall_s": 15, "workers": workers}
    code, output, results = run(tmp_path / "hung", hangs, objectives=both, resources=resources)
    assert (code, "Traceback" in output) == (1, False), output
    trials = results.trials.set_index("objective")
    assert set(trials.loc["graded", "status"]) == {"finished"}
    assert set(trials.loc["walk", "error_class"]) == {"StalledError"}
    for message in trials.loc["walk", "error_message"]:
        assert message.startswith("silent for ")
        assert f"at epoch {3 if rank else 2}/5" in message  # as the first worker has said


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=in_soak)])
def test_a_search_stops_some_and_refuses_what_ignores_its_hyperparameter(tmp_path, workers):
    code, output, results = run(
        tmp_path / "asha",
        resources={"workers": workers},
        base={"epochs": 9},
        objectives={
            "walk": {"trainer": "walk.py:walk", "space": {"stride": {"low": 0.1, "high": 20.0}}},
            "idle": {"trainer": "walk.py:ignores", "space": {"idle": {"low": 1, "high": 9}}},
        },
        search={"method": "tpe", "trials_per_objective": 6},
        scheduler={"name": "asha"},
    )
    assert code != 2, output
    trials = results.trials
    walks, idle = (trials[trials["objective"] == name] for name in ("walk", "idle"))
    assert set(walks["status"]) == {"finished", "stopped"}, output
    stopped = walks[walks["status"] == "stopped"]
    first = stopped[stopped["seed"] == stopped["seed"].min()]  # others hear of it a little later
    assert first["epochs_trained"].isin([1, 3]).all()
    assert stopped["epochs_trained"].between(1, 8).all()
    assert (walks.loc[walks["status"] == "finished", "epochs_trained"] == 9).all()
    failed = idle[idle["status"] == "failed"]
    assert len(failed)
    assert failed["error_message"].str.contains("'idle' was never read").all()
    assert failed["error_message"].str.startswith("walk.py:").all()
