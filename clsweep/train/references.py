"""What the yardsticks say of data that no training has touched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clsweep.data.availability import DataPlace
from clsweep.data.datasets import load_splits
from clsweep.train.images import Images, on_device
from clsweep.train.scores import score_encoder, score_features
from clsweep.train.state import untrained_encoder

BLOCK = 1024  # images at once


def score_reference(
    config: Mapping[str, Any], *, place: DataPlace, device: str = "cpu"
) -> dict[str, float]:
    """kNN and linear-probe scores on the validation split, percent.

    Args:
        config: reference ("raw_pixels": the normalised pixels themselves, "untrained": the features
            of the encoder as `seed` initialises it), dataset, val_fraction and the hyperparameters
            of encoder, kNN and linear probe.

    Raises:
        RequestError: the data set is not there.
    """
    splits, where = load_splits(config, place), torch.device(device)
    train, val = (on_device(split, splits.train, where) for split in (splits.train, splits.val))
    if config["reference"] == "untrained":
        return score_encoder(untrained_encoder(config, where), train, val, config, last=True)[0]
    bank = train.labelled()
    bank_ND, query_MD = _pixels(bank), _pixels(val)
    config = {"seed": 0, **config}  # pixels have no seed; the shuffles of an SGD probe need one
    return score_features(bank_ND, bank.labels_N, query_MD, val.labels_N, config, last=True)


def _pixels(images: Images) -> Tensor:
    """Normalised pixels (N, C H W) of all images, those of more than 64 pixels a side averaged down
    to 32.
    """
    parts = []
    for chosen in torch.arange(len(images)).split(BLOCK):
        x_NCHW = (images.take(chosen).float() / 255 - images.mean_1C11) / images.std_1C11
        parts.append((F.adaptive_avg_pool2d(x_NCHW, 32) if images.size > 64 else x_NCHW).flatten(1))
    return torch.cat(parts)
