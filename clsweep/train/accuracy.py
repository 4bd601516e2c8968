"""Accuracies: by metric, which images are right, and the share of them in percent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from clsweep.catalog.rows import Row
from clsweep.train.finite import require_finite

Hits = dict[str, Tensor]  # by metric, whether each image that is scored is right: bool (M,)
Outcomes = dict[str, float | Tensor]  # the same, beside scores that are numbers


def classifier_scores(logits_MC: Tensor, labels_M: Tensor) -> Hits:
    """{"classifier_top1", "classifier_top5"}, bool (M,), of a trained classifier's logits.

    Raises ValueError for logits that are not finite.
    """
    require_finite(logits_MC)
    return named_hits("classifier", top_hits(logits_MC, labels_M))


def top_hits(scores_BC: Tensor, labels_B: Tensor, *, guess_above: float | None = None) -> Tensor:
    """A row's label has the highest score, and one of the five highest: bool (2, B).

    A class whose score is not above `guess_above` is no guess; None: every class may be one.
    """
    highest_B5, ranked_B5 = scores_BC.topk(min(5, scores_BC.shape[1]), dim=1)
    correct_B5 = ranked_B5 == labels_B[:, None]
    if guess_above is not None:
        correct_B5 &= highest_B5 > guess_above
    return torch.stack([correct_B5[:, 0], correct_B5.any(dim=1)])


def named_hits(name: str, hits_2M: Tensor) -> Hits:
    """{NAME_top1, NAME_top5} of the rows of `top_hits`, on the CPU."""
    top1_M, top5_M = hits_2M.cpu()
    return {f"{name}_top1": top1_M, f"{name}_top5": top5_M}


def hits_among(outcomes: Mapping[str, float | Tensor]) -> Hits:
    """Those that are outcomes of images."""
    return {
        name: outcome
        for name, outcome in outcomes.items()
        if isinstance(outcome, Tensor) and outcome.dtype == torch.bool and outcome.dim() == 1
    }


def hits_row(metric: str, images: str, is_right: np.ndarray) -> Row:
    """Which images of a digest are right, a bit for each in their order: a row of the table `hits`
    without trial and split.
    """
    bits = np.packbits(is_right).tobytes()
    return {"metric": metric, "images": images, "num_images": len(is_right), "bits": bits}


def in_percent(outcomes: Mapping[str, float | Tensor]) -> dict[str, float]:
    """Numbers as they are; of outcomes of images the share that is right."""
    shares = {name: 100 * int(x.sum()) / len(x) for name, x in hits_among(outcomes).items()}
    return {name: shares[name] if name in shares else float(x) for name, x in outcomes.items()}
