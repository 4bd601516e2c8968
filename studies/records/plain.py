"""The configuration of one trial without a study: the catalog's defaults, and what is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clsweep.catalog import DATASET, OBJECTIVE_PARTS, SELECTED_PARTS
from clsweep.catalog.ownership import default_of, effective, losses_on, owned_params, refusal
from clsweep.errors import RequestError

_PARTS = {"framework": "simclr", "regularizer": "none", "views": "two"}
_DATA = ("image_size", "num_train", "num_classes")


def plain_config(dataset: str, *, seed: int = 0, **given: Any) -> dict[str, Any]:
    """What `train_trial` takes, for a script that trains without a study file.

    Args:
        dataset: images, by the catalog's name.
        given: hyperparameters; framework, loss (by default the framework's first), regularizer and
            views; val_fraction; image_size, num_train and num_classes, where they are not the
            catalog's. `precision` is among them: a trial needs one.

    Raises:
        RequestError: parts that make no objective, a name that the trial does not own, or no
            precision.
    """
    usual = _PARTS | {"loss": losses_on(given.get("framework", _PARTS["framework"]))[0]}
    parts: dict[str, str] = {part: given.pop(part, usual[part]) for part in OBJECTIVE_PARTS}
    numbers = {name: given.pop(name) for name in _DATA if name in given}
    val_fraction = given.pop("val_fraction", 0.1)
    data = replace(DATASET[dataset], **numbers)
    if wrong := refusal(parts, data):
        raise RequestError(": ".join(wrong))
    selected: dict[str, str] = {
        part: str(given.get(part, default_of(part, parts))) for part in SELECTED_PARTS
    }
    names = owned_params(parts, dataset=data, trained=given.get("epochs") != 0, **selected)
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise RequestError(f"{', '.join(unknown)}: expected hyperparameters of {parts}")
    if given.get("precision", "auto") == "auto":
        raise RequestError("precision: expected fp32, bf16 or fp16, as no plan decides it")
    params = {name: given.get(name, default_of(name, parts, **selected)) for name in names}
    return {
        **parts,
        "seed": seed,
        "dataset": dataset,
        "val_fraction": val_fraction,
        "score_on": "validation",
        "image_size": data.image_size,
        "channels": data.channels,
        "num_train": data.num_train + data.num_unlabeled,
        "num_unlabeled": data.num_unlabeled,
        "num_classes": data.num_classes,
        **effective(parts, params, data),
    }
