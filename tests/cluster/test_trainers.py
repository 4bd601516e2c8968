"""Training loops of the user's own on a real Ray: the same numbers after SIGKILLs, by one worker
and by two; under ASHA; with a hyperparameter that a loop ignores.
"""

import pytest
import yaml

import clsweep
from tests.cluster.conftest import clsweep as command

pytestmark = pytest.mark.slow

# A walk that hangs on every draw before it. With a folder of marks it is killed once, in epoch 3.
WALK = """
import os
import random
import signal

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


def run(folder, text=WALK, **changes):
    folder.mkdir()
    (folder / "walk.py").write_text(text)
    path, out = folder / "study.yaml", folder / "out"
    path.write_text(yaml.safe_dump({**STUDY, **changes}, sort_keys=False))
    code, output = command("run", path, "--out", out)
    return code, output, clsweep.open_results(out)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loop_that_is_killed_ends_with_the_numbers_of_one_that_is_not(tmp_path, workers):
    resources, marks = {"workers": workers}, tmp_path / "marks"
    marks.mkdir()
    code, output, undisturbed = run(tmp_path / "plain", resources=resources)
    assert code == 0, output
    kills = WALK.replace("MARKS = None", f"MARKS = {str(marks)!r}")
    code, output, disturbed = run(tmp_path / "killed", kills, resources=resources)
    assert code == 0, output
    assert len(list(marks.iterdir())) == 2
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


def test_a_search_stops_some_and_refuses_what_ignores_its_hyperparameter(tmp_path):
    code, output, results = run(
        tmp_path / "asha",
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
    assert stopped["epochs_trained"].isin([1, 3]).all()
    assert (walks.loc[walks["status"] == "finished", "epochs_trained"] == 9).all()
    failed = idle[idle["status"] == "failed"]
    assert len(failed)
    assert failed["error_message"].str.contains("'idle' was never read").all()
    assert failed["error_message"].str.startswith("walk.py:").all()
