"""A whole study on arrays of five channels with an encoder of one's own: planned, run by one worker
and by two, its encoder loaded and begun with.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import clsweep as clsweep_api
from tests.cluster.conftest import clsweep as command

NETWORK = """\
from torch import nn


def small(channels):
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
"""


@pytest.mark.slow
def test_a_study_on_five_channels_with_an_encoder_of_ones_own(
    write_study: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, labels = np.random.default_rng(0), np.arange(120) % 3
    images = rng.integers(0, 30_000, (120, 12, 12, 5)) + labels[:, None, None, None] * 10_000
    np.savez(tmp_path / "set.npz", images=images.astype(np.uint16), labels=labels)
    (tmp_path / "my_networks.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    dataset = {"name": "arrays", "root": "set.npz", "cache": "cache", "val_fraction": 0.25}
    base = {"encoder": "my_networks:small", "epochs": 1, "batch_size": 16, "knn_k": 3}
    path = write_study(
        dataset=dataset, base=base, seeds=[0], space={},
        objectives={"dcl": {"framework": "simclr", "loss": "dcl"}},
    )  # fmt: skip
    scores = []
    for workers in (1, 2):
        code, output = command(
            "run", path, "--out", f"out{workers}", "--set", f"resources.workers={workers}"
        )
        assert code == 0, output
        results = clsweep_api.open_results(f"out{workers}")
        [trial] = results.trials.to_dict("records")
        assert (trial["status"], trial["channels"], trial["encoder"], trial["proj_hidden"]) == (
            "finished", 5, "my_networks:small", 8
        )  # fmt: skip
        scores.append(trial["train_loss"])
    assert abs(scores[0] - scores[1]) < 1e-3
    monkeypatch.syspath_prepend(str(tmp_path))
    encoder = results.encoder("dcl-0000-s0", trust=True)
    assert encoder(torch.zeros(2, 5, 12, 12)).shape == (2, 8)
    code, output = command("export", "out1/dcl-0000-s0", "--out", "a.safetensors", "--trust")
    assert code == 0, output
    code, output = command(
        "run", path, "--out", "further", "--set", "base.init=a.safetensors",
        "--set", "base.epochs=0",
    )  # fmt: skip
    assert code == 0, output
    [further] = clsweep_api.open_results("further").trials.to_dict("records")
    first = clsweep_api.open_results("out1").trials.to_dict("records")[0]
    assert further["linear_top1"] == pytest.approx(first["linear_top1"], abs=1e-6)
    assert further["init"].startswith(str(tmp_path / "a.safetensors#"))
    code, output = command("report", "further", "--out", "report")
    assert code == 0, output
