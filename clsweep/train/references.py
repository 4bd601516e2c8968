"""What the yardsticks say of data that no training has touched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from clsweep.data.datasets import load_splits
from clsweep.objective.build import build_encoder
from clsweep.train.images import on_device
from clsweep.train.scores import score_encoder, score_features
from clsweep.train.seeds import seeded


def score_reference(
    config: Mapping[str, Any], *, data_root: str = "data", download: bool = False, device: str = "cpu"
) -> dict[str, float]:
    """kNN and linear-probe scores on the validation split, percent.

    Args:
        config: reference ("raw_pixels": the normalised pixels themselves, "untrained": the features of the encoder as
            `seed` initialises it), dataset, val_fraction and the hyperparameters of encoder, kNN and linear probe.

    Raises:
        RequestError: the data set is not there.
    """
    splits = load_splits(config["dataset"], val_fraction=config["val_fraction"], root=data_root, download=download)
    train, val = (on_device(split, splits[0], torch.device(device)) for split in splits[:2])
    if config["reference"] == "untrained":
        encoder = seeded(build_encoder, config).to(device)
        return score_encoder(encoder, train, val, config, last=True)[0]
    bank_ND, query_MD = (
        ((images.pixels_NCHW.float() / 255 - images.mean_1C11) / images.std_1C11).flatten(1) for images in (train, val)
    )
    config = {"seed": 0, **config}  # pixels have no seed; the shuffles of an SGD probe need one
    return score_features(bank_ND, train.labels_N, query_MD, val.labels_N, config, last=True)
