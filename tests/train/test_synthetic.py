"""What the `synthetic` images are for: an encoder scores more than pixels, and a trained one more
than an untrained one. That holds for every framework that needs no labels, under the default views,
at every size.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from clsweep.catalog import COMPONENT
from clsweep.data.locations import DataPlace
from clsweep.train.evaluation import score_reference
from clsweep.train.loop import train_trial
from studies.records.plain import plain_config

# 2,000 images to train on and 500 to score: two standard errors are at most 4.5 points
COMMON = {
    "encoder": "conv4", "batch_size": 32, "epochs": 20, "num_train": 2500, "val_fraction": 0.2,
    "precision": "fp32",
}  # fmt: skip
WIDTHS = {16: 16, 32: 8, 64: 8}  # by image_size: a trial takes a minute or less on two cores
MARGIN = 10.0  # percentage points
ADAMW = {"optimizer": "adamw", "lr_rule": "none", "lr": 3e-3}
HEAD = {"proj_dim": 256, "proj_hidden": 256}
# Few steps need higher rates than the defaults, momentum encoders that follow sooner, smaller heads
# and shorter queues.
LEARNS: dict[str, dict[str, Any]] = {
    "simclr": ADAMW,
    "moco": {"lr": 0.4, "num_negatives": 256, "momentum": 0.99, "tau": 0.2, "symmetric": True},
    "moco_v3": ADAMW | HEAD | {"pred_hidden": 256, "momentum": 0.9},
    "simo": ADAMW | {"momentum": 0.9, "tau": 0.2, "symmetric": True},
    "byol": HEAD | {"lr": 1.2, "warmup_epochs": 1, "momentum": 0.9, "proj_layers": 3,
                    "pred_hidden": 256},
    "simsiam": HEAD | {"lr": 0.4, "warmup_epochs": 1, "pred_hidden": 256},
    "barlow_twins": ADAMW | HEAD,
    "vicreg": ADAMW | HEAD,
    "wmse": ADAMW | HEAD | {"proj_dim": 15},
    "lejepa": ADAMW | HEAD | {"regularizer": "sigreg", "proj_dim": 64},
    "swav": {"lr": 0.1, "batch_size": 64, "proj_hidden": 256, "num_prototypes": 20,
             "swav_queue": 0, "sinkhorn_epsilon": 0.02, "tau": 0.2},
    "dino": ADAMW | HEAD | {"lr": 5e-4, "proj_layers": 2, "num_prototypes": 256, "momentum": 0.99,
                            "teacher_tau": 0.02, "teacher_tau_epochs": 0},
    "nnclr": ADAMW | HEAD | {"pred_hidden": 256, "support_size": 512},
}  # fmt: skip
# other parts than a framework of its own
LEARNS |= {
    "dimcl": ADAMW | {"framework": "simclr", "regularizer": "dimcl"},
    "ecpp": ADAMW | {"framework": "simclr", "loss": "dcl", "views": "ecpp", "epochs": 10},
}
AT: dict[tuple[str, int], dict[str, Any]] = {
    # in 20 epochs, four seeds end between 57 and 91; in 40, between 87 and 92
    ("byol", 16): {"epochs": 40, "lr": 0.6, "proj_layers": 2},
    ("byol", 32): {"epochs": 40, "lr": 0.6, "proj_layers": 2},
    ("simsiam", 64): {"proj_layers": 2},
}
SLOW = ("moco", "byol", "swav")  # at 16 pixels; all others take half an hour


def config_of(name: str, image_size: int, **given: Any) -> dict[str, Any]:
    shape = {"image_size": image_size, "width": WIDTHS[image_size]}
    parts = {**COMMON, **shape, "framework": name, **LEARNS[name]}
    parts |= AT.get((name, image_size), {}) | given
    return plain_config("synthetic", **parts)


@cache
def references(image_size: int) -> tuple[float, float]:
    """linear_top1 of raw pixels and of the untrained encoder, percent."""
    config = config_of("simclr", image_size)
    raw, untrained = (
        score_reference({**config, "reference": name}, place=DataPlace())["linear_top1"]
        for name in ("raw_pixels", "untrained")
    )
    return raw, untrained


def assert_learns(config: dict[str, Any]) -> None:
    """Raw pixels < untrained < trained.

    kNN on pixels finds most classes: its scores are not in this order.
    """
    raw, untrained = references(config["image_size"])
    trained = train_trial(config, lambda _row: True)["linear_top1"]
    assert raw + MARGIN < untrained
    assert untrained + MARGIN < trained


def test_simclr_learns_in_four_epochs():
    assert_learns(config_of("simclr", 16, optimizer="sgd", lr_rule="linear", lr=0.24, epochs=4))


def test_every_framework_without_labels_is_held_to_it():
    rows = COMPONENT["framework"].values()
    names = {row.name for row in rows if row.kind == "images" and not row.needs_labels}
    assert names <= set(LEARNS)


@pytest.mark.parametrize(
    ("name", "image_size"),
    [
        pytest.param(name, size, marks=getattr(pytest.mark, tier))
        for name in LEARNS
        for size in WIDTHS
        for tier in ["slow" if name in SLOW and size == 16 else "soak"]
    ],
)
def test_every_framework_learns(name, image_size):
    assert_learns(config_of(name, image_size))
