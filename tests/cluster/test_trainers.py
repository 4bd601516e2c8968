"""Training loops of the user's own on a real Ray: the same numbers after a SIGKILL, by two workers,
under ASHA and racing; and what they report, as tables and intervals have it.
"""

import numpy as np
import pytest
import yaml

import clsweep
from tests.cluster.conftest import clsweep as command

pytestmark = pytest.mark.slow

# A walk that hangs on every draw before it, killed once, in a file's absence, behind its epoch 3.
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


@trainer(
    params=[Param(name="stride", kind="float", default=1.0, low=0, **TEXT)],
    uses=["lr"],
    metrics=[SCORE],
)
def walk(trial):
    file, config = trial.checkpoint_folder / "inner" / "walk.pt", trial.config
    place = torch.load(file) if file.exists() else torch.zeros(40)
    for epoch in range(trial.epoch + 1, config["epochs"] + 1):
        drawn = torch.randn(40) + random.random() + np.random.rand()
        place = place + config["stride"] * config["lr"] * drawn
        if trial.world_size > 1:
            assert dist.get_world_size() == 2
            dist.all_reduce(place)
            place /= 2
        file.parent.mkdir(exist_ok=True)
        torch.save(place, file)
        mark = f"{MARKS}/{trial.seed}-{config['stride']}"
        if KILLS and epoch == 3 and trial.rank == 0 and not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        trial.report(epoch, {"walk_top1": place > 0, "train_loss": place.mean()})
        if trial.should_stop:
            return


@trainer(params=[Param(name="idle", kind="int", default=1, **TEXT)], metrics=[SCORE])
def ignores(trial):
    return trial.config["epochs"]


@trainer(metrics=[SCORE])
def forgets(trial):
    for epoch in range(1, trial.config["epochs"] + 1):
        trial.report(epoch, torch.rand(1).item() * 100)
"""
STUDY = {
    "name": "own",
    "dataset": {"name": "own"},
    "metric": {"name": "walk_top1", "mode": "max"},
    "seeds": [0, 1],
    "base": {"epochs": 5},
    "objectives": {
        "walk": {"trainer": "walk.py:walk", "space": {"stride": {"grid": [0.5, 2.0]}}}
    },
    "search": {"method": "grid"},
    "checkpoints": {"every_s": 0},
}  # fmt: skip


def run(folder, name="out", *, kills=False, **changes):
    folder.mkdir(exist_ok=True)
    (folder / "marks").mkdir(exist_ok=True)
    # the digest of a plug-in is of its text, so both studies have the same one
    (folder / "walk.py").write_text(
        WALK.replace("{MARKS}", str(folder / "marks")).replace("KILLS", str(kills))
    )
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump({**STUDY, **changes}, sort_keys=False))
    code, output = command("run", path, "--out", folder / name)
    return code, output, folder / name


NUMBERS = ["walk_top1", "train_loss", "epochs_trained", "status"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loop_that_is_killed_ends_with_the_numbers_of_one_that_is_not(tmp_path, workers):
    resources = {"resources": {"workers": workers}}
    results = []
    for kills in (False, True):
        code, output, out = run(tmp_path / str(kills), kills=kills, **resources)
        assert code == 0, output
        results.append(clsweep.open_results(out))
    plain, killed = (each.trials.set_index("trial_id") for each in results)
    assert plain[NUMBERS].equals(killed[NUMBERS])
    assert (killed["num_resumes"] == 1).all()
    assert (plain["num_resumes"] == 0).all()
    assert plain["train_loss"].nunique() == 4
    epochs = [each.epochs.set_index(["trial_id", "epoch"])["train_loss"] for each in results]
    assert epochs[0].sort_index().equals(epochs[1].sort_index())
    assert epochs[0].groupby("trial_id").size().eq(5).all()
    table = results[1].robustness()
    assert np.isfinite(table[["sd_star", "sd_star_low", "sd_star_high"]].to_numpy()).all()
    assert set(plain["stride"]) == {0.5, 2.0}
