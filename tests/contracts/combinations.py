"""Every valid combination of framework, loss, regularizer and views as a small configuration, by
its name, and the few of them that cover all pairs and all triples of parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from clsweep.catalog import COMPONENT, DATASET, OBJECTIVE_PARTS, SELECTED_PARTS
from clsweep.catalog.ownership import default_of, effective, owned_params, refusal
from clsweep.data.datasets import Splits, load_splits
from clsweep.data.locations import DataPlace
from clsweep.train.images import Images, on_device

Config = dict[str, Any]
SPLIT: Config = {
    "val_fraction": 0.1,
    "image_size": 8,
    "num_train": 1437,
    "num_classes": 10,
}  # of digits

BATCH = 16
# Small everywhere, and no number like another one, so that a wrong axis shows. Two sizes of views,
# where there are more than two; a queue that a batch does not divide.
SMALL: Config = {
    "encoder": "conv4", "width": 4, "epochs": 2, "batch_size": BATCH, "lr_rule": "none",
    "eval_every": 1, "precision": "fp32", "knn_k": 5, "proj_dim": 10, "proj_hidden": 12,
    "pred_hidden": 14, "support_size": 40, "momentum": 0.9, "num_views": 4, "small_view_size": 6,
    "num_prototypes": 11, "freeze_epochs": 0, "swav_queue": 24, "swav_queue_start": 0,
    "teacher_tau_epochs": 3, "num_slices": 13, "sigreg_points": 9,
}  # fmt: skip
QUEUE = 40


def small_config(
    parts: Mapping[str, str], *, dataset: str = "digits", seed: int = 0, **changes: Any
) -> Config:
    """What a trial of these parts is given, all at their defaults except for `SMALL` and the
    changes.
    """
    chosen = SMALL | ({"num_negatives": QUEUE} if parts["framework"] == "moco" else {}) | changes
    selected = {name: chosen[name] for name in SELECTED_PARTS if name in chosen}
    owned = owned_params(parts, dataset=dataset, **selected)
    assert set(changes) <= set(owned), "a change that nobody reads"
    params = {name: chosen.get(name, default_of(name, parts, **selected)) for name in owned}
    return {
        **parts,
        "dataset": dataset,
        **SPLIT,
        "seed": seed,
        **effective(parts, params, DATASET[dataset]),
    }


def combinations(dataset: str) -> dict[str, dict[str, str]]:
    """The four parts of every objective that the data set admits."""
    every = (
        dict(zip(OBJECTIVE_PARTS, names, strict=True))
        for names in itertools.product(*(COMPONENT[part] for part in OBJECTIVE_PARTS))
    )
    return {"-".join(parts.values()): parts for parts in every if refusal(parts, dataset) is None}


def covering_pairs(cases: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Names of a few cases that hold together every pair of parts that any case holds.

    Greedy: the case with the most that is not covered yet, of equals the first. Most faults need
    one or two parts to show (Kuhn, Wallace and Gallo, 2004, "Software fault interactions").
    """
    parts = {name: pairs_of(case) for name, case in cases.items()}
    left = set().union(*parts.values())
    chosen: list[str] = []
    while left:
        chosen.append(max(parts, key=lambda name: len(parts[name] & left)))
        left -= parts[chosen[-1]]
    return tuple(chosen)


def pairs_of(case: Sequence[str]) -> set[tuple[tuple[int, str], ...]]:
    """Every pair of parts of a case; a part is its position and its name."""
    return set(itertools.combinations(enumerate(case), 2))


def _variants() -> Iterator[tuple[str, Config]]:
    """Combinations of which one hyperparameter changes what is computed."""
    contrastive = ("infonce", "dcl", "dclw", "eqco", "align_uniform")
    variants: list[tuple[str, Config]] = [
        *(
            (f"moco-{loss}-none-{views}", {"symmetric": True})
            for loss in contrastive
            for views in ("two", "core")
        ),
        ("moco-eqco-dimcl-multicrop", {"symmetric": True}),
        ("moco-dcl-abscl-ecpp", {"symmetric": True}),
        ("moco-align_uniform-barlow-all_pairs", {"symmetric": True}),
        *((f"moco-{loss}-none-two", {"num_negatives": 6}) for loss in contrastive),
        ("moco-infonce-none-all_pairs", {"num_negatives": 6}),
        ("moco-infonce-none-two", {"num_negatives": 6, "symmetric": True}),
        ("moco-infonce-none-two", {"proj_layers": 1}),
        ("moco-infonce-none-two", {"key_norm": "shuffle", "norm_group": 4}),
        ("simo-eqco-none-all_pairs", {"key_norm": "shuffle", "norm_group": 8}),
        *(
            (f"simclr-eqco-{r}-{v}", {"num_negatives": 7})
            for r in ("none", "dimcl")
            for v in ("two", "all_pairs")
        ),
        *((f"simo-{loss}-none-two", {"num_negatives": 7}) for loss in contrastive),
        ("simo-eqco-dimcl-all_pairs", {"num_negatives": 7}),
        ("simo-infonce-none-two", {"momentum_schedule": "cosine"}),
        ("byol-cosine-none-two", {"momentum_schedule": "constant"}),
        ("byol-cosine-none-two", {"momentum_end": 0.999}),
        ("moco_v3-infonce-none-all_pairs", {"scale_by_tau": False}),
        ("moco_v3-eqco-abscl-multicrop", {"tau_schedule": "cosine"}),
        ("simclr-dclw-none-two", {"dclw_detach": False}),
        ("simclr-dclw-none-two", {"weighting": "exponential"}),
        ("nnclr-dclw-none-two", {"weighting": "exponential"}),
        ("simclr-dcl-dimcl-two", {"dim_standardize": False}),
        ("simclr-dcl-none-two", {"proj_layers": 3}),
        ("simclr-dcl-none-two", {"proj_norm": "hidden"}),
        ("simclr-infonce-dimcl-all_pairs", {"proj_norm": "bare"}),
        ("byol-cosine-dimcl-two", {"loss_scale": 4.0}),
        ("barlow_twins-barlow-none-two", {"loss_scale": 0.1}),
        ("simsiam-cosine-none-two", {"optimizer": "lars", "lars_clip": True}),
        ("simclr-infonce-none-core", {"pair_reduction": "sum"}),
        ("simclr-dcl-none-ecpp", {"num_views": 2}),
        ("byol-cosine-dimcl-all_pairs", {"num_views": 3}),
        ("nnclr-dcl-none-multicrop", {"num_views": 8}),
        ("swav-soft_cross_entropy-none-multicrop", {"num_global_views": 3}),
        ("swav-soft_cross_entropy-none-two", {"swav_queue": 0}),
        ("dino-soft_cross_entropy-none-multicrop", {"num_global_views": 4}),
        ("dino-soft_cross_entropy-sigreg-two", {"momentum_schedule": "constant"}),
        ("lejepa-mse-sigreg-multicrop", {"num_global_views": 3}),
        ("simsiam-cosine-none-two", {"linear_probe": "none"}),
        ("simsiam-cosine-none-two", {"linear_probe": "sgd"}),
        ("simclr-dcl-none-two", {"lr_schedule": "step"}),
        ("simclr-dcl-none-two", {"lr_schedule": "wsd"}),
        ("simclr-eqco-none-two", {"tau_schedule": "cosine"}),
        ("swav-soft_cross_entropy-none-two", {"tau_schedule": "cosine", "tau_period": 1}),
        ("nnclr-dclw-dimcl-two", {"tau_schedule": "cosine", "weight_decay_schedule": "cosine"}),
        ("simclr-dcl-none-two", {"optimizer": "adam"}),
        ("dino-soft_cross_entropy-none-two", {"grad_clip": 0.2}),
        ("simclr-dcl-none-all_pairs", {"view_size": 12}),
        ("simclr-dcl-none-two", {"knn_weights": "uniform", "feature_layer": "projector"}),
        ("simclr-dcl-none-ecpp", {"augmentation": "mixup, random_erasing, gaussian_noise"}),
    ]
    for name, changes in variants:
        yield (
            "-".join([name, *(f"{key}={value}" for key, value in changes.items())]),
            {"name": name, **changes},
        )


COMBINATIONS = combinations("digits")
VARIANTS = {
    variant: small_config(COMBINATIONS[changes.pop("name")], **changes)
    for variant, changes in _variants()
}
CASES = {name: small_config(parts) for name, parts in COMBINATIONS.items()} | VARIANTS
PAIR_CASES = {
    name: small_config(parts, dataset="gaussian_mi")
    for name, parts in combinations("gaussian_mi").items()
}
CRITIC = small_config(
    combinations("gaussian_mi")["mi_critic-eqco-none-two"],
    dataset="gaussian_mi", epochs=3, critic_hidden=8, critic_dim=4, estimate_batches=5,
)  # fmt: skip
PAIRS = covering_pairs({name: tuple(parts.values()) for name, parts in COMBINATIONS.items()})
# Of each framework one at least; between them every loss, regularizer, kind of views and memory,
# and drawn negatives.
REPRESENTATIVES = (
    "simclr-dclw-abscl-ecpp", "simclr-eqco-none-two-num_negatives=7",
    "simclr-align_uniform-none-two", "simclr-sigmoid-none-two",
    "moco-infonce-none-two-num_negatives=6-symmetric=True", "moco-dcl-dimcl-core",
    "simo-eqco-none-two-num_negatives=7",
    "byol-cosine-dimcl-all_pairs-num_views=3", "moco_v3-infonce-dimcl-two",
    "simsiam-cosine-none-multicrop",
    "barlow_twins-barlow-none-two", "vicreg-vicreg-none-two", "wmse-wmse-none-two",
    "lejepa-mse-sigreg-all_pairs", "swav-soft_cross_entropy-none-multicrop",
    "dino-soft_cross_entropy-none-multicrop", "nnclr-infonce-barlow-two",
    "supcon-supcon-dimcl-all_pairs",
    "supervised-cross_entropy-barlow-two", "supervised-decoupled_cross_entropy-none-two",
)  # fmt: skip


@cache
def some_digits(num_images: int) -> Images:
    """The first images of the training split of digits."""
    split = load_splits({"dataset": "digits", **SPLIT}, DataPlace()).train.take(
        np.arange(num_images)
    )
    return on_device(split, split, torch.device("cpu"))


def few_images(config: Mapping[str, Any], place: DataPlace, num_images: int = 40) -> Splits:
    """What `load_splits` gives, cut to some batches."""
    splits = load_splits(config, place)
    every = splits.train, splits.val, splits.test
    return Splits(*(split.take(np.arange(min(num_images, len(split)))) for split in every))
