"""Plug-ins on a real Ray: one worker and two, killed and resumed, confirmed, and read without the
file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import clsweep
from tests.cluster.conftest import clsweep as command
from tests.cluster.disturbed import Disturbed

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
    "seeds": [0, 1],
    "base": {"width": 4, "epochs": 3, "batch_size": 128, "eval_every": 1, "linear_probe": "none"},
    "objectives": {
        "mine": {
            "framework": "simclr",
            "loss": "my_loss",
            "space": {"my_scale": {"grid": [1.0, 3.0]}},
        },
        "plain": {"framework": "simclr", "loss": "dcl"},
    },
    "search": {"method": "grid"},
}
SETS = {
    1: {"dataset": {"name": "digits"}, "base": {"encoder": "conv4"}},
    # a trial of a worker group takes half a minute: one seed
    2: {
        "dataset": {"name": "five", "root": "."},
        "base": {"encoder": "vit", "knn_k": 20},
        "seeds": [0],
    },
}
SAME = ["train_loss", "knn_top1", "spread"]


def five_channels(path: Path) -> None:
    draw, arrays = np.random.default_rng(0), {}
    for name, count in {"train": 400, "test": 80}.items():
        labels = np.arange(count) % 4
        images = draw.integers(0, 200, (count, 8, 8, 5), dtype=np.uint8)
        images[np.arange(count), labels] += 50
        arrays |= {f"{name}_images": images, f"{name}_labels": labels}
    np.savez(path, **arrays)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_study_with_plug_ins(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    five_channels(tmp_path / "five.npz")
    witness = tmp_path / "witness"
    (tmp_path / "mine.py").write_text(MINE + NOT_PLANNED.format(path=str(witness)))
    tree = {**STUDY, **SETS[workers], "resources": {"workers": workers}}
    tree["base"] = {**STUDY["base"], **SETS[workers]["base"]}
    path, out = tmp_path / "study.yaml", tmp_path / "out"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))

    run = Disturbed(path, out)
    run.start()
    run.reach(4 // workers)
    run.kill_driver()
    run.run_to_the_end()
    trials = trials_in_a_new_process(out)
    assert (trials["status"] == "finished").all()
    by_seed = trials.sort_values("seed").groupby("objective")
    ones = trials.query("objective == 'mine' and my_scale == 1").sort_values("seed")
    assert ones[SAME].to_numpy().tolist() == by_seed.get_group("plain")[SAME].to_numpy().tolist()
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


def test_a_loss_that_fails_fails_its_trials_alone(tmp_path: Path) -> None:
    body = "    return my_scale * dcl"
    raising = "    if my_shift == 1:\n        raise OSError('my own')\n"
    infinite = "    if my_shift == 2:\n        return z1_ND.sum() / 0\n"
    assert body in MINE
    text = MINE.replace(body, raising + infinite + body)
    (tmp_path / "mine.py").write_text(text)
    mine = {"framework": "simclr", "loss": "my_loss", "space": {"my_shift": {"grid": [0, 1, 2]}}}
    tree = {**STUDY, **SETS[1], "objectives": {"mine": mine}, "seeds": [0]}
    tree["base"] = {**STUDY["base"], **SETS[1]["base"]}
    path, out = tmp_path / "study.yaml", tmp_path / "out"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    code, output = command("run", path, "--out", out)
    assert (code, "Traceback" in output) == (1, False), output
    lines = text.splitlines()
    raised = f"mine.py:{lines.index(raising.splitlines()[1]) + 1}: OSError: my own"
    defined = next(i for i, line in enumerate(lines, 1) if line.startswith("def my_loss"))
    trials = clsweep.open_results(out).trials.sort_values("my_shift")
    assert trials["status"].tolist() == ["finished", "failed", "failed"]
    messages = trials["error_message"].tolist()[1:]
    assert messages[0] == raised
    assert messages[1].startswith(f"mine.py:{defined}: DivergedError: the loss is ")
    assert raised in output
