"""Speed does not change results: a plain loop, image by image through torchvision, ends at the same
kNN accuracy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn
from torchvision.transforms import v2

from clsweep.data.datasets import Split, Splits, load_splits
from clsweep.data.found import DataPlace
from clsweep.objective.build import build_objective
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from clsweep.train.loop import train_trial

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]

SEEDS = range(5)
STUDY = """
name: agreement
dataset: {name: digits, val_fraction: 0.4}
seeds: [0]
base: {encoder: conv4, width: 16, epochs: 10, batch_size: 32, lr: 0.15, lr_rule: none,
       warmup_epochs: 1, knn_k: 20, tau: 0.2, crop_scale: 0.5, flip_prob: 0, blur_prob: 0.2,
       jitter_strength: 0.4}
objectives:
  simclr: {framework: simclr, loss: infonce}
search: {method: grid}
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("study") / "study.yaml"
    path.write_text(STUDY)
    study = load_study(path)
    return plan_row(study, plan_trials(study)[0])


def pictures(split: Split) -> list[Image.Image]:
    return [Image.fromarray(x[..., 0]) for x in split.images[split.rows]]


def three_channels(x_1HW: Tensor) -> Tensor:
    return x_1HW.expand(3, -1, -1)


class PlainLoop:
    """SimCLR as one would write it down: float32, NCHW, one image at a time, cross entropy over
    similarities.
    """

    def __init__(self, config: dict[str, Any], splits: Splits, seed: int):
        torch.manual_seed(1000 + seed)
        self.config, self.splits = config, splits
        objective = build_objective(config)  # another seed than the fast path's
        self.encoder, self.projector = objective.encoder, objective.projector
        pixels = splits.train.images[splits.train.rows] / 255
        to_tensor = [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]
        self.to_input = v2.Compose(
            [*to_tensor, v2.Normalize([pixels.mean()], [pixels.std()]), v2.Lambda(three_channels)]
        )
        self.augment = v2.Compose(
            [
                v2.RandomResizedCrop(8, scale=(0.5, 1.0)),
                v2.RandomApply([v2.ColorJitter(0.32, 0.32, 0.32, 0.08)], p=0.8),
                v2.RandomApply([v2.GaussianBlur(3, sigma=(0.1, 2.0))], p=0.2),
                self.to_input,
            ]
        )

    def train(self) -> None:
        images = pictures(self.splits.train)
        parameters = [*self.encoder.parameters(), *self.projector.parameters()]
        groups = [
            {
                "params": [p for p in parameters if p.ndim > 1],
                "weight_decay": self.config["weight_decay"],
            },
            {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.SGD(groups, lr=1.0, momentum=0.9, foreach=False)
        batch, epochs = self.config["batch_size"], self.config["epochs"]
        steps = len(images) // batch
        for step in range(epochs * steps):
            if step % steps == 0:
                order = torch.randperm(len(images))
            rows = order[step % steps * batch : (step % steps + 1) * batch]
            warm, total = steps * self.config["warmup_epochs"], epochs * steps
            share = (
                (step + 1) / warm
                if step < warm
                else 0.5 + 0.5 * math.cos(math.pi * (step - warm) / (total - warm))
            )
            for group in optimizer.param_groups:
                group["lr"] = self.config["lr"] * share
            x = torch.stack([self.augment(images[i]) for _ in range(2) for i in rows])
            optimizer.zero_grad()
            self.loss(self.projector(self.encoder(x))).backward()
            optimizer.step()

    def loss(self, z: Tensor) -> Tensor:
        z = F.normalize(z, dim=1)
        logits = (z @ z.T / self.config["tau"]).masked_fill(
            torch.eye(len(z), dtype=torch.bool), -math.inf
        )
        return F.cross_entropy(logits, torch.arange(len(z)).roll(len(z) // 2))

    def knn_top1(self) -> float:
        self.encoder.eval()
        splits = (self.splits.train, self.splits.val)
        with torch.no_grad():
            bank, query = (
                F.normalize(
                    self.encoder(torch.stack([self.to_input(x) for x in pictures(s)])), dim=1
                ).numpy()
                for s in splits
            )
        voters = KNeighborsClassifier(
            self.config["knn_k"],
            metric="cosine",
            algorithm="brute",
            weights=lambda d: np.exp((1 - d) / self.config["knn_temperature"]),
        )
        voters.fit(bank, self.splits.train.labels)
        return 100 * float(np.mean(voters.predict(query) == self.splits.val.labels))


def test_knn_of_the_fast_path_is_that_of_a_plain_loop_within_seed_noise(
    config: dict[str, Any],
) -> None:
    splits = load_splits(config, DataPlace())
    fast, plain, untrained = [], [], []
    for seed in SEEDS:
        fast.append(train_trial({**config, "seed": seed}, lambda _: None)["knn_top1"])
        untrained.append(
            train_trial({**config, "seed": seed, "epochs": 0}, lambda _: None)["knn_top1"]
        )
        loop = PlainLoop(config, splits, seed)
        loop.train()
        plain.append(loop.knn_top1())
    error = math.sqrt((np.var(fast, ddof=1) + np.var(plain, ddof=1)) / len(SEEDS))
    difference = np.mean(fast) - np.mean(plain)
    for name, scores in {"fast": fast, "plain": plain, "untrained": untrained}.items():
        print(name, np.round(scores, 1))
    print(f"difference {difference:.2f} +- {error:.2f}")
    assert error < 2.0, "otherwise nothing is compared"
    assert abs(difference) < 2.9 * error, (
        f"{difference:.2f} points, standard error {error:.2f}"
    )  # t, 8 d.f., 98 %
    assert min(np.mean(fast), np.mean(plain)) > np.mean(untrained) + 2, "both have learnt"


def test_modules_are_plain_ones(config: dict[str, Any]) -> None:
    """The reference must not borrow what it is compared with: its convolutions and norms are
    torch's.
    """
    for module in PlainLoop(config, load_splits(config, DataPlace()), seed=0).encoder.modules():
        assert type(module).__module__.startswith("torch.") or not isinstance(
            module, nn.Conv2d | nn.BatchNorm2d
        )
