"""Diagnostics of a representation and its training, beside the score.

Shapes: N samples, D dimensions, C classes, B rows at once. z are representations, raw (not
normalised), float32 or wider, of any scale and on any device; n(z) is a row of unit length, and a
row of zeros stays zero. Functions that return a tensor return a scalar without waiting for the
device, float64 where it has that. Inputs are finite, which the caller has checked; outputs then are
finite too, for a collapsed representation as well.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clsweep.catalog import COMPONENT, DIAGNOSTICS, METRICS, MIN_TSNE_POINTS, implementation
from clsweep.catalog.ownership import num_others
from clsweep.catalog.rows import Diagnostic, Metric
from clsweep.objective.losses import both_ways_scale, npc_multiplier
from clsweep.train.device import widest_float
from clsweep.train.spectrum import centred_svdvals, smooth_rank

_BLOCK_ELEMENTS = 2**22  # pairs held at once: 32 MiB in float64
NUM_BINS = 20
HELD = 2**18  # values of steps that wait to be summed up: 2 MiB in float64
NEGATIVES = ("negatives", "index_NK", "skip_own")  # what a loss is called with, of a framework's
_ROUNDING = 1e-6  # by which a value of [0, 1] may leave it


def alignment(z1_ND: Tensor, z2_ND: Tensor) -> Tensor:
    """mean_i ||n(z1_i) - n(z2_i)||^2 of two views of the same samples, in [0, 4]; 0: they agree.

    Wang & Isola (2020) with alpha = 2.
    """
    assert z1_ND.shape == z2_ND.shape
    return (_unit(z1_ND, dim=1) - _unit(z2_ND, dim=1)).square().sum(dim=1).mean()


def uniformity(z_ND: Tensor) -> Tensor:
    """log mean_{i<j} exp(-2 ||n(z_i) - n(z_j)||^2), in [-8, 0]; 0: all in one point, or fewer than
    two samples.

    Wang & Isola (2020) with t = 2. Spread evenly over a sphere of many dimensions it tends to -4.
    Exact over all pairs, in blocks of rows.
    """
    n_ND = _unit(z_ND, dim=1)
    num_rows, square_N = len(n_ND), n_ND.square().sum(dim=1)
    block = max(1, _BLOCK_ELEMENTS // max(1, num_rows))
    total = n_ND.new_zeros(())
    for first in range(0, num_rows, block):
        rows_B, from_first_N = slice(first, first + block), slice(first, num_rows)
        distance_BN = (
            square_N[rows_B, None]
            + square_N[from_first_N]
            - 2 * n_ND[rows_B] @ n_ND[from_first_N].T
        )
        # Exponents lie in [-8, 0]: the sum needs no maximum taken out.
        total += distance_BN.clamp_(min=0).mul_(-2).exp_().triu_(diagonal=1).sum()
    num_pairs = num_rows * (num_rows - 1) // 2
    return (total / num_pairs).log() if num_pairs else total


def feature_diversity(z1_ND: Tensor, z2_ND: Tensor) -> Tensor:
    """1 - 1/(D (D-1)) sum_i sum_{j != i} |cos(g_i, h_j)|, columns g_i of z1 and h_j of z2; in [0,
    1] (DimCL Eq. 7).

    Columns as they are, not centred. A column of zeros is similar to none, so that all zeros, like
    a single dimension, count as 1: read it beside `std_per_dim`.
    """
    assert z1_ND.shape == z2_ND.shape
    dim = z1_ND.shape[1]
    similarity_DD = (_unit(z1_ND, dim=0).T @ _unit(z2_ND, dim=0)).abs().fill_diagonal_(0)
    return 1 - similarity_DD.sum() / max(1, dim * (dim - 1))


def effective_rank(z_ND: Tensor) -> Tensor:
    """exp(-sum_k p_k log p_k), p = singular values of the centred (N, D) matrix over their sum; in
    [1, min(N-1, D)].

    Roy & Vetterli (2007). Does not change with the scale or the mean of z. 0 where all rows are the
    same. Singular values within the rounding of the raw z, eps ||z||_F, are taken as 0: else a
    collapsed encoder, whose rows differ by rounding alone, would have full rank.
    """
    eps = min(torch.finfo(z_ND.dtype).eps, torch.finfo(torch.float32).eps)
    z_ND = z_ND.to(widest_float(z_ND.device))
    values_K = centred_svdvals(z_ND)
    values_K = torch.where(values_K > eps * torch.linalg.matrix_norm(z_ND), values_K, 0.0)
    return smooth_rank(values_K, smoothing=0.0)


def std_per_dim(z_ND: Tensor) -> Tensor:
    """sqrt(D) mean_d std_i n(z_i)_d, in [0, 1]; 0: collapsed to a point, 1: as spread as an
    isotropic Gaussian.

    The check of SimSiam (2021), whose std tends to 1 / sqrt(D); the factor makes dimensions
    comparable. Population std.
    """
    return math.sqrt(z_ND.shape[1]) * _unit(z_ND, dim=1).std(dim=0, correction=0).mean()


def intra_class_distance(features_ND: Tensor, labels_N: Tensor, num_classes: int) -> Tensor | None:
    """Mean Euclidean distance of features of unit length to the centroid of their class, in [0, 1]
    (what DimCL Table 12 compares).

    The paper gives neither the scale nor the formula of its figures: they are not comparable with
    these.

    Args:
        features_ND: any scale.
        labels_N: int64 classes in [0, num_classes).
    """
    if not num_classes:  # images without classes
        return None
    n_ND, centroid_CD, _ = _centroids(features_ND, labels_N, num_classes)
    return torch.linalg.vector_norm(n_ND - centroid_CD[labels_N], dim=1).mean()


def inter_class_distance(features_ND: Tensor, labels_N: Tensor, num_classes: int) -> Tensor | None:
    """Mean distance between the centroids of all pairs of classes present, in [0, 2]; 0 with fewer
    than two. Arguments as in `intra_class_distance`.
    """
    if not num_classes:
        return None
    _, centroid_CD, count_C = _centroids(features_ND, labels_N, num_classes)
    distance_CC = torch.cdist(centroid_CD, centroid_CD, compute_mode="donot_use_mm_for_euclid_dist")
    present_C = (count_C > 0).to(centroid_CD.dtype)
    pairs_CC = (present_C[:, None] * present_C).triu(diagonal=1)
    return (distance_CC * pairs_CC).sum() / pairs_CC.sum().clamp(min=1)


def _centroids(
    features_ND: Tensor, labels_N: Tensor, num_classes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Features of unit length (N, D), the centroid of each class (C, D) and its samples (C,)."""
    n_ND = _unit(features_ND, dim=1)
    member_NC = F.one_hot(labels_N, num_classes).to(n_ND.dtype)
    count_C = member_NC.sum(dim=0)
    return n_ND, (member_NC.T @ n_ND) / count_C.clamp(min=1)[:, None], count_C


def mi_bound(config: Mapping[str, Any], base_loss: float) -> float | None:
    """An estimate of the mutual information between the views, nats (EqCo Eq. 4, Fig. 1).

    log(1 + K) - l for infonce with K negatives, in expectation a lower bound; log(1 + alpha) - l
    for eqco, which may lie above the truth where alpha is not K. The other losses give none, nor
    does a loss that is scaled by a temperature with a schedule.
    """
    if config.get("scale_by_tau"):
        if config["tau_schedule"] != "constant":
            return None
        base_loss /= both_ways_scale(config["tau"])
    if config["loss"] == "eqco":
        return math.log1p(config["alpha"]) - base_loss
    if config["loss"] == "infonce":
        num_negatives = config.get("num_negatives") or num_others(
            config["framework"], config["batch_size"]
        )
        return math.log1p(num_negatives) - base_loss
    return None


@torch.no_grad()
def diagnostics_of(at_hand: Mapping[str, Any]) -> dict[str, float]:
    """Every diagnostic of the catalog that takes no more than what is `at_hand`, by name, but those
    of steps; without those that such a trial has not.
    """
    return _taken([row for row in DIAGNOSTICS if not row.summary], at_hand)


@torch.no_grad()
def score_without_labels(at_hand: Mapping[str, Any]) -> dict[str, float]:
    """Every metric of the catalog without labels that `at_hand` is enough for, by name."""
    return _taken([row for row in METRICS if row.takes], at_hand)


def _taken(
    rows: Sequence[Diagnostic] | Sequence[Metric], at_hand: Mapping[str, Any]
) -> dict[str, float]:
    """The values of the rows that `at_hand` is enough for, by name.

    Waits for the device once, and once inside of the singular values.
    """
    taken = {
        row.name: implementation(row)(*(at_hand[name] for name in row.takes))
        for row in rows
        if set(row.takes) <= set(at_hand)
    }
    values = {name: value for name, value in taken.items() if value is not None}
    scalars = {name: x for name, x in values.items() if isinstance(x, Tensor)}
    if scalars:
        stacked = torch.stack([x.to(widest_float(x.device)) for x in scalars.values()])
        values |= dict(zip(scalars, stacked.tolist(), strict=True))
    return values


def q_b(objective: Any, prepared: Any, config: Mapping[str, Any]) -> Tensor | None:
    """The coupling q_B of a step's anchors (DCL Eq. 4), in [0, 1], with eqco's margin; of a
    decoupled loss what InfoNCE's would be. None where samples are not contrasted at a temperature.
    """
    if not _contrasts_samples(config):
        return None

    def multiplier(z1_ND: Tensor, z2_ND: Tensor, *_: Any, **given: Any) -> Tensor:
        negatives = {name: given[name] for name in NEGATIVES if name in given}
        tau, alpha = config["tau"], config.get("alpha")
        return npc_multiplier(z1_ND, z2_ND, tau=tau, alpha=alpha, **negatives)

    return cast(Tensor, objective.over_pairs(prepared, multiplier))


def query_grad_norm(objective: Any, prepared: Any, config: Mapping[str, Any]) -> Tensor | None:
    """||dl_n / dq_n|| of every query of a step (EqCo Eq. 7, A.2 and Fig. 4), >= 0, per unit of
    length of q: the base loss l_n of the query alone, with its positive and negatives held fixed.

    q is the normalised projection, in which the loss is differentiated freely (EqCo Eq. 11); with
    infonce and eqco the norm is at most 2 / tau. Every anchor of a batch is a query. None where
    samples are not contrasted at a temperature. No values where queries carry no gradient (nnclr),
    or the loss knows no single query.
    """
    if not _contrasts_samples(config):
        return None
    criterion = objective.comparison.criterion
    if isinstance(criterion, nn.Module) and next(criterion.buffers(), None) is not None:
        return None  # to call it once more may change them
    norms = partial(_gradient_norms, criterion)
    return cast(Tensor, objective.over_pairs(prepared, norms))


def _contrasts_samples(config: Mapping[str, Any]) -> bool:
    """Samples are contrasted with other samples at a temperature."""
    framework = COMPONENT["framework"][config["framework"]]
    is_contrast = framework.pairs_views and framework.views_of_negatives > 0
    return is_contrast and "tau" in COMPONENT["loss"][config["loss"]].owns


def _gradient_norms(
    criterion: Callable[..., Tensor], z1_ND: Tensor, z2_ND: Tensor, *more: Any, **given: Any
) -> Tensor:
    """Norm of each query's gradient, (N,); in batch form (2N,), each view's anchors as queries."""
    if "negatives" not in given:
        call = getattr(criterion, "forward", criterion)
        if "negatives" not in inspect.signature(call).parameters:
            return z1_ND.new_empty(0)  # an installed loss of the batch as a whole
        both: dict[str, Any] = {"negatives": torch.cat([z1_ND, z2_ND]), "skip_own": True}
        directions = (z1_ND, z2_ND), (z2_ND, z1_ND)
        given |= both
        return torch.cat([_gradient_norms(criterion, *z, *more, **given) for z in directions])
    if not z1_ND.requires_grad:
        return z1_ND.new_empty(0)
    queries_ND = z1_ND.detach().requires_grad_()
    given["negatives"] = given["negatives"].detach()
    loss = criterion(queries_ND, z2_ND.detach(), *more, **given)  # a mean over the queries
    (grad_ND,) = torch.autograd.grad(loss * len(queries_ND), queries_ND)
    return torch.linalg.vector_norm(grad_ND, dim=1)


class StepStatistics:
    """The catalog's diagnostics of the steps of one epoch, such as q_B (DCL Eq. 4, Fig. 1)
    and the gradient norms (DCL A.9, Fig. 5; EqCo Fig. 4).

    Adding never waits for the device; what reads the sums does.
    """

    def __init__(self) -> None:
        self._rows = [row for row in DIAGNOSTICS if row.summary]
        binned = {row.impl for row in self._rows if row.histogram}
        self._sums = {row.impl: _Sums(row.impl in binned) for row in self._rows}

    def add_step(self, at_hand: Mapping[str, Any], *, finite_only: bool = False) -> None:
        """The diagnostics of one step, taken of what is `at_hand`: `Diagnostic` says what.

        finite_only: leave out a diagnostic whose values are not finite.
        """
        takes = {row.impl: row for row in self._rows}  # one call for mean and variation
        for impl, row in takes.items():
            values = implementation(row)(*(at_hand[name] for name in row.takes))
            if values is not None:
                self.add(impl, values, finite_only=finite_only)

    def add(self, impl: str, values: Tensor, *, finite_only: bool = False) -> None:
        """Values of one step, of any shape, that the function `impl` gave."""
        if values.numel():
            self._sums[impl].add(values, finite_only=finite_only)

    def state_dict(self) -> dict[str, Any]:
        """The sums so far."""
        moments = {impl: sums.moments() for impl, sums in self._sums.items()}
        return {
            "moments": {
                impl: (num, *(torch.tensor(x, dtype=torch.float64) for x in of_values))
                for impl, (num, *of_values) in moments.items()
                if num
            },
            "counts": {
                impl: sums.counts for impl, sums in self._sums.items() if sums.counts is not None
            },
        }

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        for impl, (num, mean, squares) in state["moments"].items():
            self._sums[impl].so_far = (num, mean.item(), squares.item())
        for impl, counts in state["counts"].items():
            self._sums[impl].counts = counts.to(device)

    def summary(self) -> dict[str, float]:
        """Mean and coefficient of variation of all values of all steps, as the catalog's rows ask.

        cv = population std / mean, and 0 where the mean is 0. Rows of which nothing was added are
        missing.
        """
        values: dict[str, float] = {}
        for row in self._rows:
            num, mean, squares = self._sums[row.impl].moments()
            if num:
                # torch's root: in a last bit it is not Python's, and rows stay what they were
                std = torch.tensor(squares / num, dtype=torch.float64).sqrt().item()
                cv = std / (mean or 1.0)
                values[row.name] = mean if row.summary == "mean" else cv
        return values

    def histogram(self) -> list[dict[str, Any]]:
        """The values of each diagnostic that asks for it, q_B and its like, in 20 equal bins of [0,
        1]: rows {"diagnostic", "bin_low", "bin_high", "share"}; bin_low <= value < bin_high.

        1 falls in the last bin. The shares of one sum to 1; no rows of one that nothing was added
        of.

        Raises:
            ValueError: values are outside.
        """
        bars: list[dict[str, Any]] = []
        edges = [i / NUM_BINS for i in range(NUM_BINS + 1)]
        for row in self._rows:
            num, *_ = self._sums[row.impl].moments()
            if row.histogram and num:
                *counts, outside = cast(Tensor, self._sums[row.impl].counts).tolist()
                if outside:
                    raise ValueError(f"{row.name}: expected values in [0, 1], given others")
                bars += [
                    {"diagnostic": row.name, "bin_low": low, "bin_high": high, "share": n / num}
                    for low, high, n in zip(edges, edges[1:], counts, strict=False)
                ]
        return bars


Moments = tuple[int, float, float]  # number, mean, sum of the squared differences to the mean


class _Sums:
    """Moments and histogram of the values of one diagnostic.

    A step costs the device a copy. The sums are made for many steps S of V values at once, and the
    steps' are joined on the host.
    """

    def __init__(self, is_binned: bool) -> None:
        self.counts: Tensor | None = None  # of the bins, and of values outside
        self._is_binned, self._finite_only = is_binned, False
        self.so_far: Moments = (0, 0.0, 0.0)
        self._values: list[Tensor] = []  # of steps that are not summed up yet, each (V,)
        self._of_steps: list[tuple[int, Tensor]] = []  # V; each step's mean and squares (2, S)

    @torch.no_grad()
    def add(self, values: Tensor, *, finite_only: bool) -> None:
        """Values of a step; `finite_only`, alike for all of them, leaves out a step with others."""
        # a copy: what a diagnostic gives may be changed in place later
        values = values.to(widest_float(values.device), copy=True).flatten()
        waiting, self._finite_only = self._values, finite_only
        if waiting and (len(waiting[0]) != len(values) or len(waiting) * len(values) >= HELD):
            self._sum_up()
        self._values.append(values)

    @torch.no_grad()
    def _sum_up(self) -> None:
        values_SV = torch.stack(self._values)
        mean_S = values_SV.mean(dim=1)
        squares_S = (values_SV - mean_S[:, None]).square().sum(dim=1)
        self._of_steps.append((values_SV.shape[1], torch.stack([mean_S, squares_S])))
        self._values = []
        if self._is_binned:
            bins_SV = (values_SV * NUM_BINS).long().clamp_(0, NUM_BINS - 1)
            bins_SV.masked_fill_((values_SV - 0.5).abs() > 0.5 + _ROUNDING, NUM_BINS)
            is_added_S = mean_S.isfinite() if self._finite_only else torch.ones_like(mean_S)
            each_SV = is_added_S.long()[:, None].expand_as(bins_SV)
            if self.counts is None:
                self.counts = each_SV.new_zeros(NUM_BINS + 1)
            self.counts.scatter_add_(0, bins_SV.flatten(), each_SV.flatten())

    def moments(self) -> Moments:
        """Those of all steps; waits for the device."""
        if self._values:
            self._sum_up()
        for num, of_steps_2S in self._of_steps:
            for mean, squares in of_steps_2S.T.tolist():
                if math.isfinite(mean) or not self._finite_only:
                    self.so_far = _joined(self.so_far, (num, mean, squares))
        self._of_steps = []
        return self.so_far


def _joined(so_far: Moments, more: Moments) -> Moments:
    """The moments of both together (Chan et al. 1979): no cancellation."""
    (num1, mean1, squares1), (num2, mean2, squares2) = so_far, more
    num, delta = num1 + num2, mean2 - mean1
    squares = squares1 + squares2 + delta * delta * (num1 * num2 / num)
    return num, mean1 + delta * (num2 / num), squares


def watched_parameters(encoder: nn.Module) -> list[nn.Parameter]:
    """The weights whose gradient norm is watched: of the last convolution of the last two residual
    blocks (DCL A.9).

    A residual block is a module with a `downsample`, as torchvision names its shortcut, which
    itself is not watched. An encoder without such blocks: its last two convolutions. Fewer where
    there are fewer.
    """
    blocks = [module for module in encoder.modules() if hasattr(module, "downsample")]
    watched = [conv for block in blocks[-2:] for conv in _convolutions(block)[-1:]]
    watched = watched if blocks else _convolutions(encoder)[-2:]
    return [conv.get_parameter("weight") for conv in watched]


def _convolutions(module: nn.Module) -> list[nn.Conv2d]:
    """Convolutions in the order of their definition, those of the module's shortcut left out."""
    return [
        child
        for name, child in module.named_modules()
        if isinstance(child, nn.Conv2d) and name.split(".")[0] != "downsample"
    ]


@torch.no_grad()
def grad_norm(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Mean over `parameters` of the Euclidean norm of their gradient: a scalar on the device.

    A parameter without a gradient is left out; no value (0,) if none has one. To be called after
    backward. Under DistributedDataParallel the gradients are averaged over the workers by then:
    every worker reads the same norm.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    return torch.stack(torch._foreach_norm(gradients)).mean() if gradients else torch.zeros(0)


def tsne_points(
    features_ND: Tensor, labels_N: Tensor, *, num_points: int, seed: int
) -> list[dict[str, Any]]:
    """t-SNE in two dimensions of the first `num_points` rows, scaled to unit length (DCL Fig. 4,
    DimCL Fig. 7-8).

    The first rows, so that every trial shows the same images. scikit-learn's TSNE from the
    principal components, with perplexity 30, or (n - 1) / 3 where there are few points. Runs on the
    CPU.

    Args:
        features_ND: any scale, on any device.
        labels_N: int64 classes.
        num_points: points at most.
        seed: of scikit-learn.

    Returns:
        Rows {"index", "label", "x", "y"}: index is the row of features_ND. No rows with fewer than
        5 points. Features that are all the same lie at the origin.
    """
    n_ND = _unit(features_ND[:num_points], dim=1).float().cpu()
    num = len(n_ND)
    if num < MIN_TSNE_POINTS:
        return []
    points_N2 = np.zeros((num, 2))
    if (n_ND != n_ND[0]).any():
        from sklearn.manifold import TSNE

        tsne = TSNE(init="pca", random_state=seed, perplexity=min(30.0, (num - 1) / 3))
        # The start takes two principal components: one dimension needs another, of zeros.
        points_N2 = tsne.fit_transform(F.pad(n_ND, (0, max(0, 2 - n_ND.shape[1]))).numpy())
    labels = labels_N[:num].tolist()
    return [
        {"index": i, "label": label, "x": float(x), "y": float(y)}
        for i, (label, (x, y)) in enumerate(zip(labels, points_N2, strict=True))
    ]


def _unit(x_ND: Tensor, *, dim: int) -> Tensor:
    """Rows (dim = 1) or columns (0) of unit length, float64 where the device has it; zeros stay."""
    x_ND = x_ND.to(widest_float(x_ND.device))
    return F.normalize(x_ND, dim=dim, eps=torch.finfo(x_ND.dtype).tiny)
