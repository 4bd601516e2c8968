"""Fine-tuning of a trained encoder on a share of the labels.

Shapes: N labelled training images, M scored ones, B of them at once, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clsweep.catalog import FINETUNE_SHARES
from clsweep.catalog.rows import parse_numbers
from clsweep.data.augment import Recipe
from clsweep.data.random_streams import derived_seed
from clsweep.data.splits import SPLIT_SEED, stratified
from clsweep.model.transfer import to_device
from clsweep.train.accuracy import top_hits
from clsweep.train.finite import require_finite
from clsweep.train.images import Images
from clsweep.train.optim import Moment, cosine

MOMENTUM = 0.9  # SimCLR B.5, with Nesterov's step
CROP_AND_FLIP = Recipe(crop_scale=0.08, jitter_prob=0.0, gray_prob=0.0, blur_prob=0.0)


@dataclass(frozen=True, eq=False)
class Network:
    """A trained encoder with the images that it is fine-tuned on and scored on.

    copy: a new encoder with the trained weights, on the images' device.
    """

    copy: Callable[[], Any]
    bank: Images
    query: Images
    at_once: int  # images that go through the encoder together


class FineTuning(TypedDict):
    """The hyperparameters of `fine_tuned`; `seed` is that of the order and the views."""

    num_classes: int
    finetune_lr: float
    finetune_epochs: int
    finetune_batch_size: int
    finetune_weight_decay: float
    seed: int


def finetune_scores(
    _bank_ND: Tensor,
    bank_labels_N: Tensor,
    _query_MD: Tensor,
    query_labels_M: Tensor,
    *,
    finetune_labels: str,
    network: Network,
    **tuning: Unpack[FineTuning],
) -> dict[str, Tensor | None]:
    """Accuracy of a copy of the encoder and a new linear classifier, trained by SGD (SimCLR B.5).

    Images are cropped (8 % and more) and flipped anew at every epoch; they are scored as they are.
    The labelled images are stratified by class, the same in every trial. Steps are Nesterov's with
    momentum 0.9, on a cosine to 0; the classifier starts at 0. Computed in float32.

    Args:
        finetune_labels: shares of the bank to train on, of `FINETUNE_SHARES`; each from the trained
            encoder anew.

    Returns:
        {"finetune_1pct_top1", ...}: whether each image is right, bool (M,); None for a share that
        was not asked for.

    Raises:
        ValueError: the training has diverged.
    """
    shares = parse_numbers(finetune_labels)
    scores: dict[str, Tensor | None] = {}
    for share, name in FINETUNE_SHARES.items():
        scores[f"finetune_{name}_top1"] = None
        if share in shares:
            trained = fine_tuned(network, labelled_rows(bank_labels_N, share), **tuning)
            scores[f"finetune_{name}_top1"] = _top1(trained, network, query_labels_M)
    return scores


def labelled_rows(labels_N: Tensor, share: float) -> Tensor:
    """Sorted rows of a share of the images, classes in proportion; int64 on the CPU."""
    if share == 1:
        return torch.arange(len(labels_N))
    _, chosen = stratified(labels_N.cpu().numpy(), round(share * len(labels_N)), SPLIT_SEED)
    return torch.from_numpy(chosen)


@torch.enable_grad()
def fine_tuned(network: Network, rows_R: Tensor, **tuning: Unpack[FineTuning]) -> nn.Module:
    """Encoder and classifier after training on these rows of the bank; a last batch of one image is
    left out, as batch norm cannot see it.
    """
    encoder, images = network.copy(), network.bank
    lr, num_epochs = tuning["finetune_lr"], tuning["finetune_epochs"]
    batch_size, weight_decay = tuning["finetune_batch_size"], tuning["finetune_weight_decay"]
    classifier = nn.Linear(encoder.num_features, tuning["num_classes"]).to(images.device)
    for parameter in classifier.parameters():
        nn.init.zeros_(parameter)
    model = nn.Sequential(encoder, classifier).train()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=lr, momentum=MOMENTUM, weight_decay=weight_decay, nesterov=True
    )
    generator = torch.Generator().manual_seed(derived_seed(tuning["seed"], "fine-tuning"))
    recipe = views_of(images)
    num_steps, step = num_epochs * sum(len(part) > 1 for part in rows_R.split(batch_size)), 0
    for _ in range(num_epochs):
        order_R = rows_R[torch.randperm(len(rows_R), generator=generator)]
        for chosen_B in order_R.split(batch_size):
            if len(chosen_B) == 1:
                continue
            for group in optimizer.param_groups:
                group["lr"] = lr * cosine(Moment(step, num_steps))
            draws = images.draw([recipe], chosen_B, generator)
            (x_BCHW,) = images.views(chosen_B, draws)
            optimizer.zero_grad(set_to_none=True)
            labels_B = images.labels_N[to_device(chosen_B, images.device)]
            F.cross_entropy(model(x_BCHW), labels_B).backward()
            optimizer.step()
            step += 1
    return model.eval()


def views_of(images: Images) -> Recipe:
    """Crops and flips at the size at which images are scored."""
    return replace(CROP_AND_FLIP, output_size=images.scored_size)


@torch.no_grad()
def _top1(model: nn.Module, network: Network, labels_M: Tensor) -> Tensor:
    logits = [
        model(network.query.plain(chosen))
        for chosen in torch.arange(len(labels_M)).split(network.at_once)
    ]
    logits_MC = torch.cat(logits)
    require_finite(logits_MC)
    return top_hits(logits_MC, labels_M)[0].cpu()
