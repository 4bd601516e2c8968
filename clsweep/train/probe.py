"""Linear classification of frozen features: an exact fit for short trials, and the protocol of the
papers.

Shapes: N rows of the bank (the training split), M queries, D features, C classes, B rows at once.

Both probes take the features of unaugmented images, computed once. The papers crop and flip the
images anew in every epoch of their classifier, which costs an encoder's forward pass each time:
their figures lie somewhat higher.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from clsweep.train.evaluate import percent, require_finite, top_hits, widest_float
from clsweep.train.optim import Moment, cosine

BATCH_SIZE = 256  # DCL A.4, ECPP appendix A
MOMENTUM = 0.9
BLOCK_ROWS = 8192  # rows held in float64 at once

Schedule = Literal["cosine", "step"]


def ridge_probe(
    bank_ND: Tensor,
    bank_labels_N: Tensor,
    query_MD: Tensor,
    query_labels_M: Tensor,
    *,
    num_classes: int,
    probe_l2: float,
) -> dict[str, float]:
    """Accuracy of the ridge regression on one-hot targets that `ridge_fit` solves exactly.

    Features are centred and divided by their standard deviation (population), both of the bank, so
    that their scale does not count. Computed in float64, or float32 on a device without it; nothing
    is random.

    Args:
        bank_ND, query_MD: features, float32 or wider, any scale.
        bank_labels_N, query_labels_M: int64 classes in [0, num_classes).
        probe_l2: penalty in units of N, > 0: means the same at every size of the bank.

    Returns:
        {"linear_top1", "linear_top5"} in percent.

    Raises:
        ValueError: features that are not finite, or a probe_l2 that is not positive or too small to
            solve with.
    """
    require_finite(bank_ND, query_MD)
    standardise = Standardiser.of(bank_ND)
    weight_DC, bias_C = ridge_fit(
        bank_ND, bank_labels_N, standardise=standardise, num_classes=num_classes, probe_l2=probe_l2
    )
    return _scores(lambda x_BD: standardise(x_BD) @ weight_DC + bias_C, query_MD, query_labels_M)


def ridge_fit(
    bank_ND: Tensor,
    bank_labels_N: Tensor,
    *,
    standardise: Standardiser,
    num_classes: int,
    probe_l2: float,
) -> tuple[Tensor, Tensor]:
    """argmin over W, b of ||X W + b - Y||^2 + probe_l2 N ||W||^2: weight (D, C) and bias (C,) for
    standardised X.

    Y is one-hot. The columns of X have mean 0, so b is the mean of Y and W solves a D x D system,
    by Cholesky. It is scikit-learn's Ridge with alpha = probe_l2 * N; RidgeClassifier with that
    alpha picks the same classes.
    """
    if not (math.isfinite(probe_l2) and probe_l2 > 0):
        raise ValueError(f"probe_l2: expected a number above 0, given {probe_l2}")
    (num_rows, dim), dtype = bank_ND.shape, standardise.mean_D.dtype
    gram_DD = torch.zeros(dim, dim, dtype=dtype, device=bank_ND.device)
    target_DC = torch.zeros(dim, num_classes, dtype=dtype, device=bank_ND.device)
    count_C = torch.zeros(num_classes, dtype=dtype, device=bank_ND.device)
    for rows_BD, labels_B in zip(
        bank_ND.split(BLOCK_ROWS), bank_labels_N.split(BLOCK_ROWS), strict=True
    ):
        x_BD, y_BC = standardise(rows_BD), F.one_hot(labels_B, num_classes).to(dtype)
        gram_DD.addmm_(x_BD.T, x_BD)
        target_DC.addmm_(x_BD.T, y_BC)
        count_C += y_BC.sum(dim=0)
    gram_DD.diagonal().add_(probe_l2 * num_rows)
    factor_DD, info = torch.linalg.cholesky_ex(gram_DD)
    if info.item():
        raise ValueError(
            f"probe_l2: {probe_l2} is too small to solve the ridge regression; a larger one is "
            "needed"
        )
    return torch.cholesky_solve(target_DC, factor_DD), count_C / num_rows


@dataclass(frozen=True)
class Standardiser:
    """x -> (x - mean) / std per feature, in the widest float type; a constant feature becomes 0."""

    mean_D: Tensor
    std_D: Tensor

    @classmethod
    def of(cls, x_ND: Tensor) -> Standardiser:
        """Mean and population standard deviation of the columns of x_ND."""
        dtype = widest_float(x_ND.device)
        # Sums of the differences to the first row: a constant feature has a mean without rounding,
        # and a std of 0.
        first_D = x_ND[0].to(dtype)
        sum_D, squares_D = torch.zeros_like(first_D), torch.zeros_like(first_D)
        for x_BD in x_ND.split(BLOCK_ROWS):
            sum_D += (x_BD.to(dtype) - first_D).sum(dim=0)
        mean_D = first_D + sum_D / len(x_ND)
        for x_BD in x_ND.split(BLOCK_ROWS):
            squares_D += (x_BD.to(dtype) - mean_D).square().sum(dim=0)
        std_D = (squares_D / len(x_ND)).sqrt()
        return cls(mean_D, torch.where(std_D > 0, std_D, 1.0))

    def __call__(self, x_BD: Tensor) -> Tensor:
        return (x_BD.to(self.mean_D.dtype) - self.mean_D) / self.std_D


def sgd_probe(
    bank_ND: Tensor,
    bank_labels_N: Tensor,
    query_MD: Tensor,
    query_labels_M: Tensor,
    *,
    num_classes: int,
    probe_lr: float,
    probe_epochs: int,
    probe_schedule: Schedule,
    seed: int,
) -> dict[str, float]:
    """Accuracy of a linear layer that `sgd_fit` trains on the features as they are: the protocol of
    the papers.

    The settings of the papers: lr 0.25, 100 epochs, "cosine" (ECPP appendix A, CIFAR-10); lr 30,
    100 epochs, "step" (DCL A.4). They fit the scale of a ResNet's pooled features. Too large an lr
    shows as a poor score: the gradient is bounded by the features, so only extreme values overflow.

    Args:
        bank_ND, query_MD: features, float32 or wider; computed in float32.
        bank_labels_N, query_labels_M: int64 classes in [0, num_classes).
        probe_lr: initial learning rate, > 0, not scaled by the batch size.
        probe_epochs: passes over the bank, at least 1.
        probe_schedule, seed: see `sgd_fit`.

    Returns:
        {"linear_top1", "linear_top5"} in percent.

    Raises:
        ValueError: features that are not finite, a training that overflows, or arguments out of
            bounds.
    """
    require_finite(bank_ND, query_MD)
    weight_DC, bias_C = sgd_fit(
        bank_ND,
        bank_labels_N,
        num_classes=num_classes,
        probe_lr=probe_lr,
        probe_epochs=probe_epochs,
        probe_schedule=probe_schedule,
        seed=seed,
    )
    return _scores(lambda x_BD: x_BD.float() @ weight_DC + bias_C, query_MD, query_labels_M)


def sgd_fit(
    bank_ND: Tensor,
    bank_labels_N: Tensor,
    *,
    num_classes: int,
    probe_lr: float,
    probe_epochs: int,
    probe_schedule: Schedule,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Softmax regression by SGD, momentum 0.9, no weight decay, batches of 256: weight (D, C), bias
    (C,), float32.

    Weights start at 0: the problem is convex, so the start breaks no symmetry and needs no draw.
    The order of the rows is drawn on the CPU from `seed`, alike for every device; the last batch of
    an epoch may be smaller.

    Args:
        probe_schedule: "cosine": half a cosine towards 0 over all steps; "step": x 0.1 from 60 % of
            the epochs on, and again from 80 % on.
    """
    if not (math.isfinite(probe_lr) and probe_lr > 0):
        raise ValueError(f"probe_lr: expected a number above 0, given {probe_lr}")
    if probe_epochs < 1:
        raise ValueError(f"probe_epochs: expected at least 1, given {probe_epochs}")
    if probe_schedule not in ("cosine", "step"):
        raise ValueError(f"probe_schedule: expected 'cosine' or 'step', given {probe_schedule!r}")
    bank_ND, device = bank_ND.float(), bank_ND.device
    weight_DC = torch.zeros(bank_ND.shape[1], num_classes, device=device)
    bias_C = torch.zeros(num_classes, device=device)
    velocity_DC, velocity_C = torch.zeros_like(weight_DC), torch.zeros_like(bias_C)
    generator = torch.Generator().manual_seed(seed)
    num_steps, step = probe_epochs * math.ceil(len(bank_ND) / BATCH_SIZE), 0
    for epoch in range(probe_epochs):
        order_N = torch.randperm(len(bank_ND), generator=generator).to(device)
        for rows_B in order_N.split(BATCH_SIZE):
            x_BD = bank_ND[rows_B]
            # The gradient of the loss with respect to the logits: (softmax - one-hot) / B.
            grad_BC = torch.addmm(bias_C, x_BD, weight_DC).softmax(dim=1)
            grad_BC -= F.one_hot(bank_labels_N[rows_B], num_classes)
            grad_BC /= len(rows_B)
            velocity_DC.mul_(MOMENTUM).addmm_(x_BD.T, grad_BC)
            velocity_C.mul_(MOMENTUM).add_(grad_BC.sum(dim=0))
            if probe_schedule == "cosine":
                lr = probe_lr * cosine(Moment(step, num_steps))
            else:
                lr = probe_lr * 0.1 ** (
                    (5 * epoch >= 3 * probe_epochs) + (5 * epoch >= 4 * probe_epochs)
                )
            weight_DC.sub_(velocity_DC, alpha=lr)
            bias_C.sub_(velocity_C, alpha=lr)
            step += 1
    # What has overflowed stays so: one look at the end is enough.
    if not (torch.isfinite(weight_DC).all() and torch.isfinite(bias_C).all()):
        raise ValueError(
            f"the linear probe has overflowed at probe_lr {probe_lr}; a smaller probe_lr is needed"
        )
    return weight_DC, bias_C


def _scores(
    classify: Callable[[Tensor], Tensor], query_MD: Tensor, query_labels_M: Tensor
) -> dict[str, float]:
    """Top-1 and top-5 of `classify`, which maps rows (B, D) to one score a class."""
    hits = torch.zeros(2, dtype=torch.int64, device=query_MD.device)
    for rows_BD, labels_B in zip(
        query_MD.split(BLOCK_ROWS), query_labels_M.split(BLOCK_ROWS), strict=True
    ):
        hits += top_hits(classify(rows_BD), labels_B)
    return percent("linear", hits, len(query_labels_M))
