"""What is a user's own on a real Ray: plug-ins, arrays of five channels and a network of a module.
Run by one worker and by two, whatever the environment says; confirmed, exported, begun with, and
read without the files.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

import clsweep
from tests.cluster.conftest import clsweep as command
from tests.cluster.test_session import OTHERS

pytestmark = pytest.mark.slow

MINE = """
import os

import numpy as np
import torch
from torch import nn

from clsweep.catalog import Component, Dataset, Metric, Param
from clsweep.data.datasets import Split
from clsweep.objective.losses import dcl

TEXT = {"source": "this test", "doc": "own"}


def my_loss(z1_ND, z2_ND, tau, my_scale, my_shift, **memory):
    return my_scale * dcl(z1_ND, z2_ND, tau=tau, **memory) + my_shift


class Vit(nn.Module):
    def __init__(self, width, channels, view_size):
        super().__init__()
        self.num_features = 4 * width
        self.patch = nn.Conv2d(channels, 4 * width, 4, stride=4)
        self.place = nn.Parameter(torch.zeros((view_size // 4) ** 2, 4 * width))
        layer = nn.TransformerEncoderLayer(4 * width, 2, 8 * width, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x_NCHW):
        return self.layers(self.patch(x_NCHW).flatten(2).mT + self.place).mean(1)


def stripe(x_NCHW, u_NK, other_NCHW, *, stripe_width, stripe_share):
    place_W = torch.arange(x_NCHW.shape[3]) - (u_NK[:, :1] * x_NCHW.shape[3]).floor()
    is_striped_NW = (place_W >= 0) & (place_W < stripe_width)
    mixed_NCHW = x_NCHW.lerp(other_NCHW, stripe_share)
    return torch.where(is_striped_NW[:, None, None], mixed_NCHW, x_NCHW)


def five(dataset, place):
    arrays = np.load(place.root_folder / "five.npz")
    names = ("train", "test")
    return tuple(Split.whole(arrays[f"{n}_images"], arrays[f"{n}_labels"]) for n in names)


def spread(bank_ND, bank_labels_N, query_MD, query_labels_M, *, num_classes):
    return {"spread": float(query_MD.std())}


ROWS = [
    Component(part="loss", name="my_loss", impl="my_loss", owns=("tau", "my_scale", "my_shift"),
              on=("simclr",), **TEXT),
    Param(name="my_scale", kind="float", default=1.0, low=0, symbol="s", **TEXT),
    Param(name="my_shift", kind="float", default=0.0, **TEXT),
    Component(part="encoder", name="vit", impl="Vit", owns=("width",),
              takes=("channels", "view_size"), num_features=(4, "width"), **TEXT),
    Component(part="augmentation", name="stripe", impl="stripe", num_draws=1, mixes=True,
              owns=("stripe_width", "stripe_share"), **TEXT),
    Param(name="stripe_width", kind="int", default=3, low=0, **TEXT),
    Param(name="stripe_share", kind="float", default=0.5, low=0, high=1, **TEXT),
    Dataset(name="five", impl="five", num_train=400, num_test=80, image_size=8, channels=5,
            num_classes=4, doc="own"),
    Metric(name="spread", mode="min", unit="rad", impl="spread", every_epoch=True, doc="own"),
]
"""
NOT_PLANNED = "\nwith open({path!r}, 'a') as file:\n    file.write('executed')\n"
STUDY = {
    "name": "mine",
    "plugins": ["mine.py"],
    "metric": {"name": "spread", "mode": "min"},
    "dataset": {"name": "five", "root": "."},
    "seeds": [0, 1],
    "base": {
        "encoder": "vit", "width": 4, "epochs": 3, "batch_size": 128, "eval_every": 1,
        "linear_probe": "none", "knn_k": 20, "augmentation": "stripe", "stripe_width": 2,
    },
    "objectives": {
        "mine": {
            "framework": "simclr",
            "loss": "my_loss",
            "space": {"my_scale": {"grid": [1.0, 3.0]}},
        },
        "plain": {"framework": "simclr", "loss": "dcl"},
    },
    "search": {"method": "grid"},
}  # fmt: skip
SAME = ["train_loss", "knn_top1", "spread"]
NETWORK = """
from torch import nn


def small(channels):
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
"""
ARRAYS = {
    "name": "arrays",
    "plugins": ["mine.py"],
    "dataset": {"name": "arrays", "root": "set.npz", "cache": "cache", "val_fraction": 0.25},
    "seeds": [0],
    "base": {
        "encoder": "nets:small", "epochs": 1, "batch_size": 16, "knn_k": 3,
        "augmentation": ["stripe", "gaussian_noise"],
    },
    "objectives": {"mine": {"framework": "simclr", "loss": "my_loss"}},
    "search": {"method": "grid"},
}  # fmt: skip


def test_a_study_with_plug_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw, arrays = np.random.default_rng(0), {}
    for name, count in {"train": 400, "test": 80}.items():
        labels = np.arange(count) % 4
        images = draw.integers(0, 200, (count, 8, 8, 5), dtype=np.uint8)
        images[np.arange(count), labels] += 50
        arrays |= {f"{name}_images": images, f"{name}_labels": labels}
    np.savez(tmp_path / "five.npz", **arrays)
    witness = tmp_path / "witness"
    (tmp_path / "mine.py").write_text(MINE + NOT_PLANNED.format(path=str(witness)))
    path, out = tmp_path / "study.yaml", tmp_path / "out"
    path.write_text(yaml.safe_dump(STUDY, sort_keys=False))

    code, output = command("run", path, "--out", out)
    assert code == 0, output
    trials = trials_in_a_new_process(out)
    assert (trials["status"] == "finished").all()
    by_seed = trials.sort_values("seed").groupby("objective")
    ones = trials.query("objective == 'mine' and my_scale == 1").sort_values("seed")
    assert ones[SAME].to_numpy().tolist() == by_seed.get_group("plain")[SAME].to_numpy().tolist()
    own = trials[["augmentation", "stripe_width", "stripe_share"]].drop_duplicates()
    assert own.to_numpy().tolist() == [["stripe", 2, 0.5]]
    assert trials["my_scale"].dropna().tolist().count(3.0) == len(by_seed.get_group("plain"))

    shutil.move(tmp_path / "mine.py", tmp_path / "gone")
    assert command("confirm", out, "--top", "1", "--seeds", "7", "--trust")[0] == 0
    before = witness.read_text()
    assert command("report", out)[0] == 0
    results = clsweep.open_results(out)
    assert (results.metric, results.mode) == ("spread", "min")
    assert "spread (rad)" in next(tmp_path.rglob("*.html")).read_text()
    assert witness.read_text() == before, "reading executes nothing"


def trials_in_a_new_process(out: Path) -> pd.DataFrame:
    """As whoever has none of the plug-ins reads them."""
    code = "import sys, clsweep; clsweep.open_results(sys.argv[1]).trials.to_pickle(sys.argv[2])"
    kept = out.parent / "trials.pickle"
    subprocess.run([sys.executable, "-c", code, out, kept], check=True)
    found: pd.DataFrame = pd.read_pickle(kept)
    return found


def test_neither_the_environment_nor_the_working_folder_changes_what_a_run_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long TMPDIR, what others ask of Ray, modules that are named like torch's own: only the
    encoder of one's own is found there, by one worker and by each of two.
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
    code = "from clsweep.cli.main import main; main()"
    scores = []
    for workers in (1, 2):
        out = f"out{workers}"
        words = ["run", path, "--out", out, "--set", f"resources.workers={workers}"]
        with monkeypatch.context() as patch:
            for name, value in (OTHERS | {"TMPDIR": str(long)}).items():
                patch.setenv(name, value)
            done = subprocess.run(
                [sys.executable, "-P", "-c", code, *words], capture_output=True, text=True
            )
        assert done.returncode == 0, done.stdout + done.stderr
        results = clsweep.open_results(out)
        [trial] = results.trials.to_dict("records")
        assert (trial["status"], trial["channels"], trial["encoder"], trial["proj_hidden"]) == (
            "finished", 5, "nets:small", 8
        )  # fmt: skip
        scores.append(trial["train_loss"])
    assert abs(scores[0] - scores[1]) < 1e-3
    assert not (tmp_path / "run").exists()
    for shadow in shadows:
        shadow.unlink()

    monkeypatch.syspath_prepend(str(tmp_path))
    encoder = results.encoder("mine-0000-s0", trust=True)
    assert encoder(torch.zeros(2, 5, 12, 12)).shape == (2, 8)
    done_code, output = command("export", "out1/mine-0000-s0", "--out", "a.safetensors", "--trust")
    assert done_code == 0, output
    further = ("--out", "further", "--set", "base.init=a.safetensors", "--set", "base.epochs=0")
    done_code, output = command("run", path, *further)
    assert done_code == 0, output
    [begun] = clsweep.open_results("further").trials.to_dict("records")
    [first] = clsweep.open_results("out1").trials.to_dict("records")
    assert begun["linear_top1"] == pytest.approx(first["linear_top1"], abs=1e-6)
    assert begun["init"].startswith(str(tmp_path / "a.safetensors#"))
