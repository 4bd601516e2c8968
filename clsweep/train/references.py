"""What the yardsticks say of data that no training has touched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clsweep.data.availability import DataPlace
from clsweep.data.datasets import load_splits
from clsweep.train.images import Images, scored_images
from clsweep.train.scores import augmented_features, score_encoder, score_features, transfer_of
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
    config = {"linear_every": "last", **config}  # there is no other epoch
    splits, where = load_splits(config, place), torch.device(device)
    scored = (splits.train, splits.val)
    if config["reference"] == "untrained":
        train, val = (scored_images(split, splits, config, where) for split in scored)
        transfer = transfer_of(config, splits, place, where)
        encoder = untrained_encoder(config, where)
        return score_encoder(encoder, train, val, config, last=True, transfer=transfer)[0]
    # at their own size, whatever that of the views
    whole = {**config, "view_size": 0}
    train, val = (scored_images(split, splits, whole, where) for split in scored)
    bank = train.labelled()
    if not (len(bank) and len(val.labelled())):
        return {}  # every score of pixels needs labels
    bank_ND, query_MD = _pixels(bank), _pixels(val)
    config = {"seed": 0, **config}  # pixels have no seed; the shuffles of an SGD probe need one
    config["redraw"] = lambda epoch: augmented_features(_Pixels(bank), bank, config, epoch)
    return score_features(bank_ND, bank.labels_N, query_MD, val.labels_N, config, last=True)


class _Pixels(nn.Module):
    """What an encoder is given as features: its channels, which gray images repeat, once."""

    def __init__(self, images: Images):
        super().__init__()
        self.num_channels = images.mean_1C11.shape[1]

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return _flat(x_NCHW[:, : self.num_channels])


def _pixels(images: Images) -> Tensor:
    """Normalised pixels (N, C H W) of all images, those of more than 64 pixels a side averaged down
    to 32.
    """
    pixels = _Pixels(images)
    blocks = torch.arange(len(images)).split(BLOCK)
    return torch.cat([pixels(images.plain(chosen)) for chosen in blocks])


def _flat(x_NCHW: Tensor) -> Tensor:
    return (F.adaptive_avg_pool2d(x_NCHW, 32) if x_NCHW.shape[-1] > 64 else x_NCHW).flatten(1)
