"""What is a user's own on a real Ray: plug-ins, arrays of five channels and a network of a module.
Run by two workers, whatever the environment says; exported, confirmed by one, and begun with.
"""

import numpy as np
import pytest
import torch
import yaml

import clsweep
from tests.cluster import conftest
from tests.cluster.conftest import assert_on_loopback, watched
from tests.cluster.conftest import clsweep as command
from tests.cluster.test_gpus import NETWORK
from tests.cluster.test_ray_session import OTHERS
from tests.cluster.without_ray import without_ray

pytestmark = pytest.mark.slow

MINE = """
import torch

from clsweep.catalog import Component, Param
from clsweep.objective.losses import dcl

TEXT = {"source": "this test", "doc": "own"}


def my_loss(z1_ND, z2_ND, tau, my_scale, my_shift, **memory):
    return my_scale * dcl(z1_ND, z2_ND, tau=tau, **memory) + my_shift


def stripe(x_NCHW, u_NK, other_NCHW, *, stripe_width, stripe_share):
    place_W = torch.arange(x_NCHW.shape[3]) - (u_NK[:, :1] * x_NCHW.shape[3]).floor()
    is_striped_NW = (place_W >= 0) & (place_W < stripe_width)
    mixed_NCHW = x_NCHW.lerp(other_NCHW, stripe_share)
    return torch.where(is_striped_NW[:, None, None], mixed_NCHW, x_NCHW)


ROWS = [
    Component(part="loss", name="my_loss", impl="my_loss", owns=("tau", "my_scale", "my_shift"),
              on=("simclr",), **TEXT),
    Param(name="my_scale", kind="float", default=1.0, low=0, symbol="s", **TEXT),
    Param(name="my_shift", kind="float", default=0.0, **TEXT),
    Component(part="augmentation", name="stripe", impl="stripe", num_draws=1, mixes=True,
              owns=("stripe_width", "stripe_share"), **TEXT),
    Param(name="stripe_width", kind="int", default=3, low=0, **TEXT),
    Param(name="stripe_share", kind="float", default=0.5, low=0, high=1, **TEXT),
]
"""
ARRAYS = {
    "name": "arrays",
    "plugins": ["mine.py"],
    "dataset": {"name": "arrays", "root": "set.npz", "cache": "cache", "val_fraction": 0.25},
    "seeds": [0],
    "base": {
        "encoder": "nets:small", "epochs": 2, "batch_size": 16, "knn_k": 3,
        "augmentation": ["stripe", "gaussian_noise"],
    },
    "objectives": {
        "mine": {"framework": "simclr", "loss": "my_loss"},
        "bad": {"framework": "simclr", "loss": "my_loss", "base": {"lr": 1e30}},
    },
    "search": {"method": "grid"},
}  # fmt: skip


def test_neither_the_environment_nor_the_working_folder_changes_what_a_run_is(
    tmp_path, monkeypatch, cli_command
):
    """A long TMPDIR, what others ask of Ray, modules that are named like torch's own: only the
    encoder of one's own is found there, by each of two workers. These listen on loopback, send the
    encoder, and fail with a row.
    """
    rng, labels = np.random.default_rng(0), np.arange(120) % 3
    images = rng.integers(0, 30_000, (120, 12, 12, 5)) + labels[:, None, None, None] * 10_000
    np.savez(tmp_path / "set.npz", images=images.astype(np.uint16), labels=labels)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "nets.py").write_text(NETWORK)
    path, long = tmp_path / "study.yaml", tmp_path / ("temporary-" * 9)
    path.write_text(yaml.safe_dump(ARRAYS, sort_keys=False))
    long.mkdir()
    shadows = [tmp_path / f"{name}.py" for name in ("numpy", "torch", "ray", "pandas", "wandb")]
    for shadow in shadows:
        shadow.write_text(f"open({str(tmp_path / 'run')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        for name, value in (OTHERS | {"TMPDIR": str(long)}).items():
            patch.setenv(name, value)
        python, *words = conftest.COMMAND
        patch.setattr(conftest, "COMMAND", [python, "-P", *words])
        code, output, sockets = watched("run", path, "--out", "out", "--set", "resources.workers=2")
    assert code == 1, output
    assert "1 finished, 1 failed, 0 left" in output
    assert_on_loopback(sockets, "ray::RayTrainWorker", "dashboard.py")
    results = clsweep.open_results("out")
    trials = results.trials.set_index("objective")
    assert (trials["workers"] == 2).all()
    assert trials.loc["bad", "error_class"] == "DivergedError"
    assert "the loss is " in trials.loc["bad", "error_message"]
    assert results.epochs.query("trial_id.str.startswith('mine')")["epoch"].tolist() == [1, 2]
    trial = trials.loc["mine"]
    assert (trial["status"], trial["channels"], trial["encoder"], trial["proj_hidden"]) == (
        "finished", 5, "nets:small", 8
    )  # fmt: skip
    assert not (tmp_path / "run").exists()
    for shadow in shadows:
        shadow.unlink()

    monkeypatch.syspath_prepend(str(tmp_path))
    encoder = results.encoder("mine-0000-s0", trust=True)
    assert encoder(torch.zeros(2, 5, 12, 12)).shape == (2, 8)
    code, _, error = cli_command("export", "out/mine-0000-s0", "--out", "a.safetensors", "--trust")
    assert code == 0, error
    confirm = ("confirm", "out", "--top", "1", "--seeds", "7", "--trust")
    code, output = command(*confirm, "--set", "resources.workers=1")
    assert code == 0, output
    further = ("--out", "further", "--set", "base.init=a.safetensors", "--set", "base.epochs=0")
    with without_ray():
        code, _, error = cli_command("run", str(path), *further)
    assert code == 0, error
    begun = clsweep.open_results("further").trials.set_index("objective").loc["mine"]
    first = clsweep.open_results("out").trials.set_index("objective").loc["mine"]
    assert begun["linear_top1"] == pytest.approx(first["linear_top1"], abs=1e-6)
    assert begun["init"].startswith(str(tmp_path / "a.safetensors#"))
