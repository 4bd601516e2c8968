"""A part of every kind that `clsweep new` has no skeleton for, as a user would write it."""

import zlib

import numpy as np
import torch
from torch import nn

from clsweep.catalog import COMPONENT, Component, Dataset, Diagnostic, Param
from clsweep.data.cache import Source
from clsweep.data.datasets import from_cache
from clsweep.objective.frameworks import SimCLR
from clsweep.train.accuracy import top_hits

__all__ = ["ROWS", "from_cache"]
TEXT = {"source": "-", "doc": "my own"}


def own_penalty(z1_ND, z2_ND):
    return (z1_ND.square().mean() + z2_ND.square().mean()) / 2


class OwnFramework(SimCLR):
    """Either view is the first of the pair in turn."""

    def compare(self, e, i, j, criterion):
        return [*super().compare(e, i, j, criterion), *super().compare(e, j, i, criterion)]


def own_views(num_views):
    return tuple((i, i + 1) for i in range(num_views - 1))


def own_mask(x_NCHW, u_NK, *, own_width, own_level):
    place_W = torch.arange(x_NCHW.shape[3], device=x_NCHW.device) / x_NCHW.shape[3]
    past_NW = place_W - u_NK[:, :1] * (1 - own_width)
    is_masked_NW = (past_NW >= 0) & (past_NW < own_width)
    return x_NCHW.masked_fill(is_masked_NW[:, None, None], own_level)


class OwnEncoder(nn.Module):
    def __init__(self, *, width):
        super().__init__()
        self.num_features = 4 * width
        self.layers = nn.Sequential(
            nn.Conv2d(3, 2 * width, 3, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1),
            nn.ReLU(),
        )

    def forward(self, x_NCHW):
        return self.layers(x_NCHW).mean((2, 3))


class OwnOptimizer(torch.optim.Optimizer):
    """Steps along the signs of the mean gradient; what it remembers lies in `state`."""

    def __init__(self, groups, *, lr, own_beta):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0, "beta": own_beta})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                mean.lerp_(p.grad, 1 - group["beta"])
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(mean.sign(), alpha=group["lr"])


def own_schedule(at, *, own_power):
    return (1 - at.progress) ** own_power


def own_probe(bank_ND, bank_labels_N, query_MD, query_labels_M, *, num_classes, own_root):
    bank_ND, query_MD = (x.sign() * x.abs() ** own_root for x in (bank_ND, query_MD))
    one_hot_NK = torch.nn.functional.one_hot(bank_labels_N, num_classes).to(bank_ND.dtype)
    mean_KD = one_hot_NK.T @ bank_ND / one_hot_NK.sum(0)[:, None]
    logits_MK = query_MD @ mean_KD.T - mean_KD.square().sum(1) / 2  # the nearest mean is highest
    top1_M, top5_M = top_hits(logits_MK, query_labels_M)
    return {"linear_top1": top1_M, "linear_top5": top5_M}


def read(part, row):
    pixels = np.random.default_rng([row, part == "test"]).integers(0, 200, (16, 16, 3), np.uint8)
    pixels[row % 10] += 50  # a brighter row says the class
    return zlib.compress(pixels.tobytes())


def own_files(dataset, place):
    def fill(part, rows, images):
        for image, row in zip(images, rows, strict=True):
            pixels = np.frombuffer(zlib.decompress(read(part, row)), np.uint8)
            image[:] = pixels.reshape(16, 16, 3)
        return []

    counts = {"train": dataset.num_train, "test": dataset.num_test}
    labels = {part: np.arange(count) % dataset.num_classes for part, count in counts.items()}
    return Source(
        name="own_files", place=str(place.root_folder), image_size=dataset.image_size,
        labels=labels, classes=tuple(map(str, range(dataset.num_classes))), fill=fill,
        describe=lambda: ["version 1"],
    )  # fmt: skip


def own_length(z1_ND):
    return z1_ND.norm(dim=1).mean()


PROJECTOR = ("proj_dim", "proj_hidden", "proj_layers")
RECIPE = {"crop_scale": 0.2, "second_blur_prob": 0.0, "augmentation": "random_erasing",
          "erase_max": 0.2}  # fmt: skip
ROWS = [
    Component(part="regularizer", name="own_penalty", impl="own_penalty", owns=("lam",), **TEXT),
    Component(part="framework", name="own_framework", impl="OwnFramework", owns=PROJECTOR,
              losses=("infonce", "dcl"), views_of_negatives=2, **TEXT),
    Component(part="views", name="own_views", impl="own_views", defaults={"num_views": 3},
              owns=COMPONENT["views"]["all_pairs"].owns, **TEXT),
    Component(part="augmentation", name="own_mask", impl="own_mask", num_draws=1,
              owns=("own_width", "own_level"), **TEXT),
    Component(part="recipe", name="own_recipe", owns=("second_blur_prob",), defaults=RECIPE,
              **TEXT),
    Component(part="encoder", name="own_encoder", impl="OwnEncoder", owns=("width",),
              num_features=(4, "width"), **TEXT),
    Component(part="optimizer", name="own_optimizer", impl="OwnOptimizer",
              owns=("own_beta", "decay_exclude"), defaults={"lr": 1e-3}, **TEXT),
    Component(part="lr_schedule", name="own_schedule", impl="own_schedule", owns=("own_power",),
              **TEXT),
    Component(part="linear_probe", name="own_probe", impl="own_probe", owns=("own_root",), **TEXT),
    Dataset(name="own_files", impl="from_cache", arrays="own_files", num_train=1000, num_test=200,
            image_size=16, channels=3, num_classes=10, doc="my own images"),
    Diagnostic(name="own_length", impl="own_length", takes=("z1_ND",), **TEXT),
    Param(name="own_width", kind="float", default=0.25, low=0, high=1, **TEXT),
    Param(name="own_level", kind="float", default=0.0, low=0, high=1, **TEXT),
    Param(name="own_beta", kind="float", default=0.9, low=0, high=0.9999, **TEXT),
    Param(name="own_power", kind="float", default=2.0, low=0, **TEXT),
    Param(name="own_root", kind="float", default=0.5, low=0, sweepable=False, **TEXT),
]  # fmt: skip
