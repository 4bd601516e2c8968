"""Images of another data set, on which a trained encoder is scored."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from clsweep.catalog import DATASET
from clsweep.data.availability import DataPlace
from clsweep.data.datasets import Splits, load_splits
from clsweep.data.found import sized_dataset
from clsweep.data.pictures import needed_size
from clsweep.train.images import Images, scored_images
from clsweep.train.scores import Transfer

CROP_SCALE = 0.08  # of the views that a probe or fine-tuning sees


def transfer_of(
    config: Mapping[str, Any],
    splits: Splits,
    place: DataPlace,
    device: torch.device,
    *,
    test: bool = False,
) -> Transfer | None:
    """How to get the images of `transfer_dataset`, labelled training images and those to score;
    None where the trial names no data set.

    They are normalised as the encoder was trained, with the statistics of `splits`, and resized to
    the trial's views. They are split as the trial's own images are.

    Args:
        splits: of the trial's own data set.
        test: score the test split of the other one.
    """
    name = config["transfer_dataset"]
    return None if name == "none" else partial(_images, name, config, splits, place, device, test)


def _images(
    name: str,
    config: Mapping[str, Any],
    splits: Splits,
    place: DataPlace,
    device: torch.device,
    test: bool,
) -> tuple[Images, Images]:
    # pictures have the channels of the trial's own images
    channels = {"channels": config.get("channels")} if DATASET[name].keeps_whole else {}
    row = sized_dataset(name, place.transferred, **channels)
    sizes = {
        "dataset": name,
        "val_fraction": config["val_fraction"],
        "image_size": row.image_size,
        "num_train": row.num_train + row.num_unlabeled,
        "num_unlabeled": row.num_unlabeled,
        "num_classes": row.num_classes,
        "channels": row.channels,
        "store_size": needed_size(config["view_size"] or config["image_size"], CROP_SCALE),
        "images_digest": row.images_digest,
    }
    other = load_splits(sizes, place.transferred)
    bank, query = (
        scored_images(split, splits, config, device)
        for split in (other.train, other.test if test else other.val)
    )
    return bank.labelled(), query
