"""Speed does not change results: a loop as one would write it down, in torch and scikit-learn, on
the same views has the losses and the accuracy of a trial.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn

from clsweep.data.locations import DataPlace
from clsweep.train import loop
from clsweep.train.images import batches, on_device
from clsweep.train.state import new_state
from tests.contracts.attempts import attempt
from tests.contracts.combinations import CASES, few_images

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
CONFIG: dict[str, Any] = CASES["simclr-infonce-none-two"] | {
    "epochs": 6, "lr": 0.15, "warmup_epochs": 2, "weight_decay": 0.01, "tau": 0.2
}  # fmt: skip


def loss(z_2ND: Tensor) -> Tensor:
    z_2ND = F.normalize(z_2ND, dim=1)
    logits = (z_2ND @ z_2ND.T / CONFIG["tau"]).fill_diagonal_(-math.inf)
    return F.cross_entropy(logits, torch.arange(len(logits)).roll(len(logits) // 2))


def test_losses_and_knn_of_a_trial_are_those_of_a_plain_loop(monkeypatch):
    monkeypatch.setattr(loop, "load_splits", few_images)
    actual = attempt(CONFIG)
    splits, state = few_images(CONFIG, DataPlace()), new_state(CONFIG, CPU)
    train, val = splits.train, splits.val
    images = on_device(train, train, CPU)
    encoder = state.objective.encoder
    model = nn.Sequential(encoder, state.objective.projector).train()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.01},
        {"params": [p for p in model.parameters() if p.ndim == 1]},
    ]
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    steps = len(train) // CONFIG["batch_size"]
    for epoch, row in enumerate(actual.rows):
        losses = []
        for step, batch in enumerate(batches(images, CONFIG, epoch, state.view_generator)):
            warm, done = 2 * steps, epoch * steps + step
            cosine = 0.5 + 0.5 * math.cos(math.pi * (done - warm) / (4 * steps))
            for group in optimizer.param_groups:
                group["lr"] = 0.15 * ((done + 1) / warm if done < warm else cosine)
            optimizer.zero_grad()
            losses.append(loss(model(torch.cat(batch.chunks[0]()))))
            losses[-1].backward()
            optimizer.step()
        assert row["train_loss"] == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)
    pixels = [torch.tensor(x.images[x.rows] / 255).permute(0, 3, 1, 2) for x in (train, val)]
    mean, std = pixels[0].mean(), pixels[0].std(correction=0)
    with torch.no_grad():
        inputs = [((x - mean) / std).float().expand(-1, 3, -1, -1) for x in pixels]
        bank, queries = map(encoder.eval(), inputs)
    voters = KNeighborsClassifier(
        CONFIG["knn_k"], metric="cosine", weights=lambda d: np.exp((1 - d) / 0.1)
    ).fit(bank, train.labels)
    expected = 100 * voters.score(queries, val.labels)
    assert actual.result["knn_top1"] == pytest.approx(expected)
    assert 15 < expected < 85, "neither trivial nor hopeless"
