"""Linear classification of frozen features: an exact fit for short trials, and the protocol of the
papers.

Shapes: N rows of the bank (the training split), M queries, D features, C classes, B rows at once.

The probes take the features of unaugmented images, computed once. The papers crop and flip the
images anew in every epoch of their classifier, and their figures lie somewhat higher. `probe_views:
augmented` does so too: every epoch of the probe then costs a forward pass of all labelled images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from clsweep.catalog.rows import parse_numbers
from clsweep.data.splits import SPLIT_SEED, stratified
from clsweep.model.transfer import to_device
from clsweep.train.accuracy import Hits, named_hits, top_hits
from clsweep.train.device import widest_float
from clsweep.train.finite import are_finite, require_finite
from clsweep.train.optim import Groups, Moment, adam, constant, cosine, lars, sgd

LARS_TRUST = 1e-3  # SimSiam (2021)
BLOCK_ROWS = 8192  # rows held in float64 at once

ProbeSchedule = Literal["cosine", "step", "constant"]
Optimizer = Literal["sgd", "lars", "adam"]
Views = Literal["plain", "augmented"]
Redraw = Callable[[int], Tensor]  # epoch -> features (N, D) of the bank's images, augmented anew
_ROUNDING = 1e-9


class Tuning(TypedDict):
    """The hyperparameters of `sgd_fit`.

    Args:
        probe_schedule: "cosine": half a cosine towards 0 over all steps; "step": x probe_gamma
            from 60 % of the epochs on, and again from 80 % on; "constant".
        probe_optimizer: "lars" scales the weight's gradient, with its decay, by 0.001 |w| / (|g| +
            probe_weight_decay |w|), by 1 while w is 0, and leaves the bias alone, decay included
            (You et al. 2017; SimSiam 2021); "adam" has probe_momentum as beta1, and beta2 0.999.
        probe_weight_decay: L2 penalty of weight and bias.
        seed: of the order of the rows.
    """

    num_classes: int
    probe_epochs: int
    probe_schedule: ProbeSchedule
    probe_gamma: float
    probe_optimizer: Optimizer
    probe_momentum: float
    probe_weight_decay: float
    probe_batch_size: int
    seed: int


def ridge_probe(
    bank_ND: Tensor,
    bank_labels_N: Tensor,
    query_MD: Tensor,
    query_labels_M: Tensor,
    *,
    num_classes: int,
    probe_l2: float,
) -> Hits:
    """Accuracy of the ridge regression on one-hot targets that `ridge_fit` solves exactly.

    Features are centred and divided by their standard deviation (population), both of the bank, so
    that their scale does not count. Computed in float64, or float32 on a device without it; nothing
    is random.

    Args:
        bank_ND, query_MD: features, float32 or wider, any scale.
        bank_labels_N, query_labels_M: int64 classes in [0, num_classes).
        probe_l2: penalty in units of N, > 0: means the same at every size of the bank.

    Returns:
        {"linear_top1", "linear_top5"}: whether each query is right, bool (M,).

    Raises:
        ValueError: features that are not finite, or a probe_l2 that is too small to solve with.
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
    probe_lr: float,
    probe_views: Views,
    redraw: Redraw | None = None,
    **tuning: Unpack[Tuning],
) -> Hits:
    """Accuracy of a linear layer that `sgd_fit` trains on the features as they are: the protocol of
    the papers.

    Settings of the papers, of 100 epochs and batches of 256: lr 0.25, momentum 0.9, "cosine" (ECPP
    appendix A, CIFAR-10); lr 0.3, momentum 0.995, weight decay 1e-6, "cosine" (ECPP, ImageNet); lr
    30, "step" (DCL A.4). Or LARS, base lr 1.2, "cosine", 90 epochs and batches of 4096 (DCL A.4,
    silent on whether that is scaled with the batch). They fit a ResNet's pooled features.

    Args:
        bank_ND, query_MD: features, float32 or wider; computed in float32.
        bank_labels_N, query_labels_M: int64 classes in [0, num_classes).
        probe_lr: initial learning rate, > 0, not scaled by the batch size.
        probe_views: "plain": train on bank_ND; "augmented": on what `redraw` gives for every epoch.

    Returns:
        {"linear_top1", "linear_top5"}: whether each query is right, bool (M,).

    Raises:
        ValueError: features that are not finite, or a training that overflows.
    """
    require_finite(bank_ND, query_MD)
    views = redraw if probe_views == "augmented" else None
    ((weight_DC, bias_C),) = sgd_fit(
        bank_ND, bank_labels_N, probe_lrs=(probe_lr,), redraw=views, **tuning
    )
    if not are_finite(weight_DC, bias_C):  # what has overflowed stays so
        raise ValueError(
            f"the linear probe has overflowed at probe_lr {probe_lr}; a smaller probe_lr is needed"
        )
    return _scores(lambda x_BD: x_BD.float() @ weight_DC + bias_C, query_MD, query_labels_M)


def sgd_grid_probe(
    bank_ND: Tensor,
    bank_labels_N: Tensor,
    query_MD: Tensor,
    query_labels_M: Tensor,
    *,
    probe_lr_grid: str,
    probe_val_share: float,
    probe_views: Views,
    redraw: Redraw | None = None,
    **tuning: Unpack[Tuning],
) -> Hits:
    """As `sgd_probe`, with the best learning rate of a grid; the queries take no part in choosing.

    A share of the bank is held out, stratified by class and the same in every trial. Each rate is
    fitted on the rest and judged by its top-1 there, on plain features; of equal ones the smallest
    counts, and one that overflows never does. The best is then fitted on the whole bank.

    Raises:
        ValueError: as `sgd_probe`, or every rate overflows.
    """
    require_finite(bank_ND, query_MD)
    grid = parse_numbers(probe_lr_grid)
    views = redraw if probe_views == "augmented" else None
    held_out = round(probe_val_share * len(bank_ND))
    kept_K, judged_J = (
        torch.from_numpy(rows).to(bank_ND.device)
        for rows in stratified(bank_labels_N.cpu().numpy(), held_out, SPLIT_SEED)
    )
    kept_views = None if views is None else lambda epoch: views(epoch)[kept_K]
    fitted = bank_ND[kept_K], bank_labels_N[kept_K]
    fits = sgd_fit(*fitted, probe_lrs=grid, redraw=kept_views, **tuning)
    judged_JD, labels_J = bank_ND[judged_J].float(), bank_labels_N[judged_J]
    hits = [
        int(top_hits(judged_JD @ weight_DC + bias_C, labels_J)[0].sum())
        if are_finite(weight_DC, bias_C)
        else -1
        for weight_DC, bias_C in fits
    ]
    best = grid[hits.index(max(hits))]
    arrays = bank_ND, bank_labels_N, query_MD, query_labels_M
    return sgd_probe(*arrays, probe_lr=best, probe_views=probe_views, redraw=redraw, **tuning)


def sgd_fit(
    bank_ND: Tensor,
    bank_labels_N: Tensor,
    *,
    probe_lrs: Sequence[float],
    redraw: Redraw | None = None,
    **tuning: Unpack[Tuning],
) -> list[tuple[Tensor, Tensor]]:
    """Softmax regression by SGD with momentum, for each learning rate > 0: weight (D, C), bias
    (C,), float32.

    Weights start at 0: the problem is convex, so the start breaks no symmetry and needs no draw.
    The order of the rows is drawn on the CPU, alike for every device and rate; the last batch of an
    epoch may be smaller.

    Args:
        redraw: the bank's features in epoch 0, 1, ...; None: bank_ND in all of them.
    """
    num_classes, num_epochs = tuning["num_classes"], tuning["probe_epochs"]
    batch_size, schedule = tuning["probe_batch_size"], _SCHEDULES[tuning["probe_schedule"]]
    bank_ND, device = bank_ND.float(), bank_ND.device
    zeros, shapes = torch.zeros, ((bank_ND.shape[1], num_classes), (num_classes,))
    fits = [tuple(zeros(shape, device=device) for shape in shapes) for _ in probe_lrs]
    make, decay = _OPTIMIZERS[tuning["probe_optimizer"]], tuning["probe_weight_decay"]
    made = [
        make([{"params": [*fit], "weight_decay": decay}], tuning["probe_momentum"]) for fit in fits
    ]
    generator = torch.Generator().manual_seed(tuning["seed"])
    num_steps, step = num_epochs * math.ceil(len(bank_ND) / batch_size), 0
    for epoch in range(num_epochs):
        if redraw is not None:
            bank_ND = redraw(epoch).float()
        order_N = to_device(torch.randperm(len(bank_ND), generator=generator), device)
        for rows_B in order_N.split(batch_size):
            share = schedule(Moment(step, num_steps), epoch / num_epochs, tuning["probe_gamma"])
            x_BD, onehot_BC = bank_ND[rows_B], F.one_hot(bank_labels_N[rows_B], num_classes)
            for (weight_DC, bias_C), optimizer, lr in zip(fits, made, probe_lrs, strict=True):
                # The gradient of the loss with respect to the logits: (softmax - one-hot) / B.
                grad_BC = torch.addmm(bias_C, x_BD, weight_DC).softmax(dim=1)
                grad_BC = grad_BC.sub_(onehot_BC).div_(len(rows_B))
                weight_DC.grad, bias_C.grad = x_BD.T @ grad_BC, grad_BC.sum(dim=0)
                optimizer.param_groups[0]["lr"] = lr * share
                optimizer.step()
            step += 1
    return [(weight_DC, bias_C) for weight_DC, bias_C in fits]


# Share of the probe's rate at a moment, at a share of its epochs, with the factor of a step.
_SCHEDULES: dict[str, Callable[[Moment, float, float], float]] = {
    "cosine": lambda at, *_: cosine(at),
    "step": lambda _, done, by: by ** ((done >= 0.6 - _ROUNDING) + (done >= 0.8 - _ROUNDING)),
    "constant": lambda at, *_: constant(at),
}


# At a rate that every step sets, of a momentum; LARS leaves the bias alone.
_OPTIMIZERS: dict[str, Callable[[Groups, float], torch.optim.Optimizer]] = {
    "sgd": lambda groups, m: sgd(groups, lr=1.0, sgd_momentum=m),
    "lars": lambda groups, m: lars(groups, lr=1.0, sgd_momentum=m, lars_trust=LARS_TRUST),
    "adam": lambda groups, m: adam(groups, lr=1.0, adam_beta1=m, adam_beta2=0.999),
}


def _scores(classify: Callable[[Tensor], Tensor], query_MD: Tensor, query_labels_M: Tensor) -> Hits:
    """Top-1 and top-5 of `classify`, which maps rows (B, D) to one score a class."""
    blocks = zip(query_MD.split(BLOCK_ROWS), query_labels_M.split(BLOCK_ROWS), strict=True)
    hits = [top_hits(classify(rows_BD), labels_B) for rows_BD, labels_B in blocks]
    return named_hits("linear", torch.cat(hits, dim=1))
