"""Parts of the user's own in a trial: what they draw, what they are given, what they give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clsweep.catalog.plugins import error_line
from clsweep.data.locations import DataPlace
from clsweep.errors import StudyError
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from clsweep.train import contracts
from clsweep.train.loop import train_trial
from tests.contracts.attempts import assert_same, attempt, chain

pytestmark = pytest.mark.usefixtures("one_thread", "nothing_loaded", "no_plugin_after")

MINE = """
import random
import numpy as np
import torch
from torch import nn
from clsweep.catalog import Component, Dataset, Diagnostic, Metric
from clsweep.data.datasets import Split
from clsweep.objective.losses import dcl

TEXT = {"source": "-", "doc": "-"}


class Mine(nn.Module):
    num_features = 8

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(192, 8)

    def forward(self, x):
        y = nn.functional.dropout(self.linear(x.flatten(1)), 0.5, self.training)
        return y + 0.01 * torch.randn(8) + np.random.rand() + random.random()


def mine(z1_ND, z2_ND, tau, **memory):
    return dcl(z1_ND, z2_ND, tau=tau, **memory) * (1 + torch.rand(()))


def chance(query_MD):
    return np.random.rand()


def coupling(prepared, config):
    return prepared["online"][0].sigmoid()


def data(dataset, place):
    images = np.load(place.root_folder / "images.npy")
    return tuple(Split.whole(images, np.arange(len(images)) % 2) for _ in range(2))


ROWS = [
    Component(part="encoder", name="mine", impl="Mine", num_features=8, **TEXT),
    Component(part="loss", name="mine", impl="mine", owns=("tau",), on=("simclr",), **TEXT),
    Metric(name="chance", mode="max", impl="chance", takes=("features_ND",), every_epoch=True,
           doc="-"),
    Diagnostic(name="coupling", impl="coupling", takes=("prepared", "config"), summary="mean",
               histogram=True, **TEXT),
    Dataset(name="mine", impl="data", num_train=40, num_test=40, image_size=8, channels=3,
            num_classes=2, doc="-"),
]
"""
STUDY = """
name: mine
plugins: [mine.py]
dataset: {name: digits}
seeds: [0]
base: {encoder: mine, epochs: 2, batch_size: 512, knn_k: 20, linear_probe: none, eval_every: 1}
objectives:
  new: {framework: simclr, loss: mine}
search: {method: grid}
"""


def config_of(folder: Path, text: str = MINE, *settings: str) -> dict[str, Any]:
    (folder / "mine.py").write_text(text)
    (folder / "study.yaml").write_text(STUDY)
    study = load_study(folder / "study.yaml", settings=settings)
    return plan_row(study, plan_trials(study)[0])


def test_what_is_drawn_is_the_seed_s_and_survives_kills(tmp_path):
    config = config_of(tmp_path)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    whole = attempt(config)
    assert torch.equal(torch.get_rng_state(), before[0]), "the caller's generators are its own"
    assert np.random.get_state()[1].tolist() == before[1]
    torch.manual_seed(1)
    np.random.seed(1)
    assert_same(attempt(config), whole)
    assert_same(chain(config, kills=[1])[-1], whole)
    other = attempt({**config, "seed": 1})
    assert other.result["chance"] != whole.result["chance"]


def test_a_histogram_is_of_its_diagnostic_alone(tmp_path):
    config = config_of(tmp_path)
    bars = train_trial(config, lambda _: None)["histograms"]
    named = {
        name: [bar for bar in bars if bar["diagnostic"] == name]
        for name in ("q_b_mean", "coupling")
    }
    assert len(bars) == sum(map(len, named.values())) == 2 * 2 * 20
    plain = config_of(tmp_path, MINE.replace("histogram=True, ", ""))
    alone = train_trial(plain, lambda _: None)["histograms"]
    assert alone == named["q_b_mean"]
    wide = config_of(tmp_path, MINE.replace(".sigmoid()", ".exp()"))
    with pytest.raises(ValueError, match=r"coupling: expected values in \[0, 1\]"):
        train_trial(wide, lambda _: None)


def test_both_passes_of_a_chunk_draw_the_same(tmp_path):
    contracts._goes_in_chunks(config_of(tmp_path), DataPlace())


def test_images_that_have_changed_are_another_data_set(tmp_path):
    images = np.random.default_rng(0).integers(0, 255, (40, 8, 8, 3), dtype=np.uint8)
    np.save(tmp_path / "images.npy", images)
    dataset = f"dataset={{name: mine, root: '{tmp_path}'}}"
    settings = dataset, "base.batch_size=8", "base.epochs=1"
    first = config_of(tmp_path, MINE, *settings)
    assert config_of(tmp_path, MINE, *settings)["images_digest"] == first["images_digest"]
    images[3, 0, 0, 0] ^= 1
    np.save(tmp_path / "images.npy", images)
    assert config_of(tmp_path, MINE, *settings)["images_digest"] != first["images_digest"]
    with pytest.raises(ValueError, match="expected the images that were planned with"):
        train_trial(first, lambda _: None, place=DataPlace(root=str(tmp_path)))
    np.save(tmp_path / "images.npy", images.astype(np.float32))
    with pytest.raises(StudyError, match=r"mine.py:\d+: mine: expected images uint8 .* float32"):
        config_of(tmp_path, MINE, *settings)
    (tmp_path / "images.npy").unlink()
    assert config_of(tmp_path, MINE, *settings)["images_digest"] is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("coupling(prepared, config):\n", "coupling(prepared, config):\n    config['lr'] = 77\n",
         "TypeError: 'mappingproxy' object does not support item assignment"),
        ("[0].sigmoid()", "[0].detach().sigmoid_()", "expected to leave what it is given"),
        ("x.flatten(1)), 0.5", "x.mul_(2).flatten(1)), 0.5", "expected to leave the images"),
        ("randn(8) + np", "randn(8)[:4] + np", "size"),
        ("return y +", "return y[:, :4].sum() +", "expected features of shape (1024, 8)"),
        ("* (1 + torch.rand(()))", "* 0 + 1", None),
        ("tau=tau, **memory)", "tau=tau, **memory).item()", "of floating point, with a gradient"),
        ("return np.random.rand()", "return 'high'", "number from 0 to 100, given str"),
        ("return np.random.rand()", "return query_MD.std(0)", "from 0 to 100, given float32"),
        ("return np.random.rand()", "return 1e40", "expected a finite number from 0 to 100"),
        ("tau, **memory):", "tau, mask, **memory):", "missing a required argument"),
        ("    return dcl(", "    raise SystemExit(0)\n    return dcl(", "sys.exit(0) would end"),
        ("    return dcl(", "    raise StopIteration\n    return dcl(", "StopIteration"),
        ("return np.random.rand()", "return float('nan')", "expected a finite number"),
        ("    return dcl(", "    raise GeneratorExit\n    return dcl(", "GeneratorExit would end"),
        ("    num_features = 8", "    num_features = 9", "expected one number, given 8 in its row"),
        ("    def forward", "    def backward", "expected a method forward"),
        ("return y + 0.01 * torch.randn(8)", "return y.half()", "(1024, 8) in torch.float32"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(tmp_path, old, new, message):
    assert old in MINE
    try:
        train_trial(config_of(tmp_path, MINE.replace(old, new)), lambda _: None)
    except StudyError as error:
        text = str(error)
    except Exception as error:
        text = error_line(error, "mine")
    else:
        text = ""
    assert (message or "") in text
    assert not text or "mine.py:" in text
    assert len(text.splitlines()) == (message is not None)
