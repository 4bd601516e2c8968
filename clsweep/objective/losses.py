"""The losses, side by side, as pure functions of what the networks put out.

Shapes: N samples, D features, K negatives of a query, M negatives that queries choose from, C
classes. In batch form `z1_ND` and `z2_ND` are the two views of the *global* batch, so that every
loss is the same number at any number of workers; the mean runs over all 2N anchors, each with the
2(N-1) views of other samples as negatives. In query form (`negatives` given) `z1_ND` are queries
and `z2_ND` their positive keys, the mean runs over the N queries, and negatives are the rows of
`negatives`: (K, D) for all queries, (N, K, D) for each its own, with `index_NK` the rows
`index_NK[n]` of shared (M, D) ones (an index outside of [0, M) is torch's error), or with
`skip_own` all shared rows but n, n + N and so on, which are views of query n itself.

Below, p = s_pos/tau is a positive logit and n = log U the log-sum-exp of an anchor's negative ones:
no bare exponential, finite at tau = 0.005. Half types are computed in float32, whatever autocast
says; gradients have the inputs' type.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from clsweep.objective.contrastive import (
    Negatives,
    batch_loss,
    batch_terms,
    check_pair,
    check_positive,
    check_views,
    mean_loss,
    no_autocast,
    pair_loss,
    products,
    query_terms,
    shape_of,
    wide,
)

# Least variance, or squared norm, to divide by: what is smaller has collapsed.
FLOOR = 1e-8


def infonce(
    z1_ND: Tensor,
    z2_ND: Tensor,
    tau: float,
    *,
    negatives: Tensor | None = None,
    index_NK: Tensor | None = None,
    skip_own: bool = False,
) -> Tensor:
    """InfoNCE, SimCLR's and MoCo's loss (DCL Eq. 1-2): l = -p + log(exp(p) + U).

    Args:
        z1_ND, z2_ND: float (N, D), L2-normalised; N >= 2 in batch form, N >= 1 in query form.
        tau: temperature, > 0.
        negatives: float (K, D) or (N, K, D), L2-normalised: the query form. None: the batch form.
        index_NK: int64 (N, K), which of the shared negatives (M, D) each query takes.
        skip_own: every query takes all of the shared negatives but its own views, the rows n, n +
            N, ...

    Returns:
        Scalar in float32 or wider: the mean over anchors or queries.

    Raises:
        ValueError: shapes that do not fit, no negatives, tau <= 0.
    """
    return pair_loss(z1_ND, z2_ND, tau, Negatives(negatives, index_NK, skip_own), coupled=True)


def dcl(
    z1_ND: Tensor,
    z2_ND: Tensor,
    tau: float,
    *,
    negatives: Tensor | None = None,
    index_NK: Tensor | None = None,
    skip_own: bool = False,
) -> Tensor:
    """Decoupled contrastive loss (DCL Eq. 6, ECPP Eq. 4): l = -p + log U.

    InfoNCE without the positive in the denominator; U is one joint log-sum-exp over both views.
    Arguments, result and errors as in `infonce`.
    """
    return pair_loss(z1_ND, z2_ND, tau, Negatives(negatives, index_NK, skip_own), coupled=False)


def dclw(
    z1_ND: Tensor,
    z2_ND: Tensor,
    tau: float,
    sigma: float = 0.5,
    *,
    weighting: str = "vmf",
    delta: float = 3.0,
    dclw_detach: bool = True,
    negatives: Tensor | None = None,
    index_NK: Tensor | None = None,
    skip_own: bool = False,
) -> Tensor:
    """Weighted decoupled contrastive loss (DCL Eq. 7): l = -w p + log U.

    The paper does not say whether the gradient passes through w: here w is a constant unless
    `dclw_detach` is False.

    Args:
        sigma: > 0; of "vmf" the width (the larger, the closer to `dcl`), of "exponential" the rate.
        weighting: "vmf", w = 2 - exp(s_pos/sigma) / mean_i exp(s_pos/sigma): negative von
            Mises-Fisher weights with mean 1 over the global batch; or "exponential", w = delta
            exp(-sigma s_pos) (A.8).
        delta: scale of the exponential weights, > 0.

    The other arguments, the result and the errors are those of `infonce`; an unknown weighting is a
    ValueError too.
    """
    check_positive(sigma=sigma, delta=delta)
    if weighting not in ("vmf", "exponential"):
        raise ValueError(f"weighting: expected 'vmf' or 'exponential', given {weighting!r}")
    decoupled = pair_loss(
        z1_ND, z2_ND, tau, Negatives(negatives, index_NK, skip_own), coupled=False
    )
    s_N = (wide(z1_ND) * wide(z2_ND)).sum(1)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not dclw_detach):
        if weighting == "vmf":
            # softmax = exp / sum: N times it is exp / mean, without overflow for a small sigma
            w_N = 2 - len(s_N) * torch.softmax(s_N / sigma, dim=0)
        else:
            w_N = delta * torch.exp(-sigma * s_N)
    return decoupled + ((1 - w_N) * s_N / tau).mean()


def eqco(
    queries_ND: Tensor,
    positives_ND: Tensor,
    negatives: Tensor,
    tau: float,
    alpha: float,
    *,
    index_NK: Tensor | None = None,
    skip_own: bool = False,
) -> Tensor:
    """InfoNCE with EqCo's margin m = tau log(alpha/K) (EqCo Eq. 5, 10): l = -p + log(exp(p) +
    alpha/K U).

    K negatives stand for alpha of them: the mutual-information bound and the gradient's size no
    longer depend on K.

    Args:
        alpha: number of negatives to be equivalent to, > 0; `infonce` where it is K.

    The other arguments, the result and the errors are those of the query form of `infonce`.
    """
    check_positive(alpha=alpha)
    chosen = Negatives(negatives, index_NK, skip_own)
    p_N, n_N = query_terms(queries_ND, positives_ND, tau, chosen)
    return mean_loss(p_N, n_N + math.log(alpha / chosen.count(len(queries_ND))), coupled=True)


def align_uniform(
    z1_ND: Tensor,
    z2_ND: Tensor,
    align_weight: float = 1.0,
    align_alpha: float = 2.0,
    uniform_t: float = 2.0,
    *,
    negatives: Tensor | None = None,
    index_NK: Tensor | None = None,
    skip_own: bool = False,
) -> Tensor:
    """Alignment and uniformity (Wang & Isola 2020; DCL A.5, "Hypersphere"): weight E|z1 - z2|^a +
    log E exp(-t d^2).

    In batch form the uniformity is the mean of the two views' own, over the pairs i < j within a
    view; in query form its expectation runs over all (query, negative). Where two views coincide
    the distance has the subgradient 0, so that the gradient is finite for every align_alpha >= 1.

    Args:
        z1_ND, z2_ND, negatives, index_NK, skip_own: as in `infonce`.
        align_weight: >= 0. align_alpha: power of the distance, >= 1. uniform_t: of the Gaussian
            potential, > 0.

    Raises:
        ValueError: shapes that do not fit, no negatives, a parameter out of its range.
    """
    check_positive(uniform_t=uniform_t)
    if not (align_weight >= 0 and align_alpha >= 1):
        given = f"{align_weight} and {align_alpha}"
        raise ValueError(f"expected align_weight >= 0 and align_alpha >= 1, given {given}")
    chosen = Negatives(negatives, index_NK, skip_own)
    check_pair(z1_ND, z2_ND, chosen)
    z1_ND, z2_ND = wide(z1_ND), wide(z2_ND)
    alignment = torch.linalg.vector_norm(z1_ND - z2_ND, dim=1).pow(align_alpha).mean()
    with no_autocast(z1_ND):
        if negatives is None:
            uniformity = (_uniformity(z1_ND, uniform_t) + _uniformity(z2_ND, uniform_t)) / 2
        else:
            negatives = wide(negatives)
            squares = negatives.square().sum(-1)  # (K,) or (N, K)
            squares = squares if index_NK is None else squares[index_NK]
            products_NK = products(z1_ND, chosen)
            distances_NK = z1_ND.square().sum(1, keepdim=True) + squares - 2 * products_NK
            num = len(z1_ND) * chosen.count(len(z1_ND))
            uniformity = _log_mean_exp(-uniform_t * distances_NK, num)
    return align_weight * alignment + uniformity


def cosine(p_ND: Tensor, z_ND: Tensor, loss_scale: float = 1.0) -> Tensor:
    """Negative cosine similarity, the loss of BYOL and SimSiam: l = -loss_scale <p, z> / (|p| |z|),
    the mean over samples.

    Normalises inside. No gradient is stopped here: which side is a target is the framework's
    business.

    Args:
        p_ND, z_ND: float (N, D), raw, N >= 1. A norm below 1e-4 counts as 1e-4.
        loss_scale: > 0. BYOL's Eq. 2 is 2 - 2 cos, summed over both directions: 4 in a mean of
            both, and a constant that has no gradient.

    Raises:
        ValueError: shapes differ, no samples, loss_scale <= 0.
    """
    check_positive(loss_scale=loss_scale)
    check_views(p_ND, z_ND)
    p_ND, z_ND = (F.normalize(wide(x), dim=1, eps=FLOOR**0.5) for x in (p_ND, z_ND))
    return -loss_scale * (p_ND * z_ND).sum(1).mean()


def mse(z_ND: Tensor, target_ND: Tensor) -> Tensor:
    """Squared error of a prediction, LeJEPA's loss (LeJEPA Algorithm 2): l = mean over samples and
    dimensions of (z - target)^2.

    Args:
        z_ND, target_ND: float (N, D), raw, N >= 1.

    Raises:
        ValueError: shapes differ, no samples.
    """
    check_views(z_ND, target_ND)
    return F.mse_loss(wide(z_ND), wide(target_ND))


def barlow(
    z1_ND: Tensor, z2_ND: Tensor, off_diag: float = 0.0051, loss_scale: float = 1.0
) -> Tensor:
    """Barlow Twins (Zbontar et al. 2021, Eq. 1-2): l = loss_scale [sum_i (1 - C_ii)^2 + off_diag
    sum_{i != j} C_ij^2].

    C is the correlation over the batch of view 1's columns with view 2's, each standardised by its
    biased standard deviation. A sum, as in the paper, not a mean.

    Args:
        z1_ND, z2_ND: float (N, D), raw, N >= 2. A column's variance below 1e-8 counts as 1.
        off_diag: weight of the redundancy term, >= 0.
        loss_scale: > 0; 1 in the paper, 0.024 in the authors' code.

    Raises:
        ValueError: shapes differ, N < 2 (no statistics), off_diag < 0, loss_scale <= 0.
    """
    check_positive(loss_scale=loss_scale)
    if not off_diag >= 0:
        raise ValueError(f"off_diag: expected a value >= 0, given {off_diag}")
    check_views(z1_ND, z2_ND, 2, "statistics")
    columns1_DN, columns2_DN = _unit_columns(z1_ND, centre=True), _unit_columns(z2_ND, centre=True)
    with no_autocast(columns1_DN):
        correlation_DD = columns1_DN @ columns2_DN.T  # the columns are standardised / sqrt(N)
    diagonal_D = correlation_DD.diagonal()
    off_diagonal = correlation_DD - torch.diag_embed(diagonal_D)
    return loss_scale * ((1 - diagonal_D).square().sum() + off_diag * off_diagonal.square().sum())


def dimcl(z1_ND: Tensor, z2_ND: Tensor, dim_tau: float, *, dim_standardize: bool = True) -> Tensor:
    """Dimensional contrastive learning (DimCL Eq. 5): `infonce` between the columns of the batch
    instead of its rows.

    A column is L2-normalised along the batch; its negatives are the 2D-2 columns of the other
    dimensions, of both views. Like the authors' code each column is standardised first (with the
    normalisation: it is centred), of which the paper's equation says nothing. The columns of both
    views are queries, where Eq. 5 has one view's.

    Args:
        z1_ND, z2_ND: float (N, D), raw, N >= 2, D >= 2. A column's variance below 1e-8 counts as
            1.
        dim_tau: temperature, > 0.
        dim_standardize: False takes the columns as they are, only normalised.

    Raises:
        ValueError: shapes differ, N < 2 (no statistics), D < 2 (no negatives), dim_tau <= 0.
    """
    return _column_contrast(z1_ND, z2_ND, dim_tau, dim_standardize, absolute=False)


def abscl(z1_ND: Tensor, z2_ND: Tensor, dim_tau: float, *, dim_standardize: bool = True) -> Tensor:
    """AbsCL (DimCL Eq. 4): `dimcl` with |s| for the negatives: opposite columns are redundant too.

    Arguments, result and errors as in `dimcl`.
    """
    return _column_contrast(z1_ND, z2_ND, dim_tau, dim_standardize, absolute=True)


def cross_entropy(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """Cross-entropy of a classifier: l = -logit_y + log sum_c exp(logit_c), the mean over samples.

    Args:
        logits_NC: float (N, C), N >= 1, C >= 2.
        labels_N: int64 (N,) in [0, C); torch's error outside of it.

    Raises:
        ValueError: shapes or types that do not fit, C < 2.
    """
    return mean_loss(*_class_terms(logits_NC, labels_N), coupled=True)


def decoupled_cross_entropy(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """Cross-entropy without the true class in the denominator (DCL A.7): l = -logit_y + log sum_{c
    != y} exp(logit_c).

    Arguments, result and errors as in `cross_entropy`. Unlike it, this loss has no lower bound.
    """
    return mean_loss(*_class_terms(logits_NC, labels_N), coupled=False)


def both_ways_scale(tau: float) -> float:
    """2 tau times the sum of two directions, as a multiple of their mean (MoCo v3 Algorithm 1)."""
    return 4 * tau


def supcon(z_ND: Tensor, labels_N: Tensor, tau: float) -> Tensor:
    """Supervised contrastive loss (SupCon Eq. 2, L_out): l_i = -mean_p log(exp(s_ip/tau) / sum_a
    exp(s_ia/tau)), the mean over anchors i, where Eq. 2 has their sum.

    p are the other rows of the anchor's class, a all rows but the anchor. The authors' code also
    multiplies by tau / 0.07.

    Args:
        z_ND: float (N, D), L2-normalised: all views of all samples, two of each or more.
        labels_N: int64 (N,), the class of each row.
        tau: temperature, > 0.

    Raises:
        ValueError: shapes or types that do not fit, N < 2, tau <= 0.
    """
    check_positive(tau=tau)
    check_views(z_ND, z_ND, 2, "positives")
    if labels_N.shape != z_ND.shape[:1] or labels_N.dtype != torch.int64:
        given = f"{labels_N.dtype} {shape_of(labels_N)}"
        raise ValueError(f"labels: expected int64 ({len(z_ND)},), given {given}")
    z_ND = wide(z_ND)
    with no_autocast(z_ND):
        logits_NN = z_ND @ z_ND.T / tau
    own_NN = torch.eye(len(z_ND), dtype=torch.bool, device=z_ND.device)
    positive_NN = (labels_N[:, None] == labels_N) & ~own_NN
    others_N = torch.logsumexp(logits_NN.masked_fill(own_NN, -torch.inf), dim=1)
    positives_N = (logits_NN * positive_NN).sum(1) / positive_NN.sum(1)
    return (others_N - positives_N).mean()


def npc_multiplier(
    z1_ND: Tensor,
    z2_ND: Tensor,
    tau: float,
    *,
    alpha: float | None = None,
    negatives: Tensor | None = None,
    index_NK: Tensor | None = None,
    skip_own: bool = False,
) -> Tensor:
    """The negative-positive coupling of InfoNCE (DCL Eq. 4): q_B = U / (exp(p) + U), no gradient.

    With `alpha` that of EqCo, whose margin makes U alpha/K U (EqCo Eq. 12). A decoupled loss has
    none: for it, this is the coupling that InfoNCE would have. The other arguments and the errors
    are those of `infonce`.

    Returns:
        (2N,) in batch form, the anchors of view 1 first; (N,) in query form.
    """
    chosen = Negatives(negatives, index_NK, skip_own)
    with torch.no_grad():
        if negatives is None:
            check_positive(tau=tau)
            check_pair(z1_ND, z2_ND, chosen)
            p, n, _ = batch_terms(z1_ND, z2_ND, tau)
        else:
            p, n = query_terms(z1_ND, z2_ND, tau, chosen)
        margin = 0.0 if alpha is None else math.log(alpha / chosen.count(len(z1_ND)))
        return torch.sigmoid(n + margin - p)


def _column_contrast(
    z1_ND: Tensor, z2_ND: Tensor, dim_tau: float, centre: bool, *, absolute: bool
) -> Tensor:
    check_positive(dim_tau=dim_tau)
    check_views(z1_ND, z2_ND, 2, "statistics")
    if z1_ND.shape[1] < 2:
        raise ValueError("expected at least 2 dimensions: a single column has no negatives")
    columns1_DN, columns2_DN = (_unit_columns(z_ND, centre=centre) for z_ND in (z1_ND, z2_ND))
    return batch_loss(columns1_DN, columns2_DN, dim_tau, coupled=True, absolute=absolute)


def _class_terms(logits_NC: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """The true class's logit and the log-sum-exp of the others."""
    if logits_NC.ndim != 2 or len(logits_NC) < 1 or logits_NC.shape[1] < 2:
        expected = "(N, C) of N >= 1 samples and C >= 2 classes"
        raise ValueError(f"logits: expected {expected}, given {shape_of(logits_NC)}")
    if labels_N.shape != logits_NC.shape[:1] or labels_N.dtype != torch.int64:
        given = f"{labels_N.dtype} {shape_of(labels_N)}"
        raise ValueError(f"labels: expected int64 ({len(logits_NC)},), given {given}")
    logits_NC, labels_N1 = wide(logits_NC), labels_N[:, None]
    others_NC = logits_NC.scatter(1, labels_N1, -torch.inf)
    return logits_NC.gather(1, labels_N1)[:, 0], torch.logsumexp(others_NC, dim=1)


def _unit_columns(z_ND: Tensor, *, centre: bool) -> Tensor:
    """The columns along the batch as rows (D, N), L2-normalised, `centre`d first: standardised.

    A collapsed column stays as small as it is: the gradient of an ordinary one is then all it gets.
    """
    z_ND = wide(z_ND)
    if centre:
        z_ND = z_ND - z_ND.mean(0)
    variance_D = z_ND.square().mean(0)
    variance_D = torch.where(variance_D < FLOOR, 1.0, variance_D)
    return (z_ND * (variance_D * len(z_ND)).rsqrt()).T


def _uniformity(z_ND: Tensor, t: float) -> Tensor:
    squares_N = z_ND.square().sum(1)
    exponents_NN = -t * (squares_N[:, None] + squares_N - 2 * z_ND @ z_ND.T)
    # Every pair i < j stands here twice, which the mean does not see.
    return _log_mean_exp(exponents_NN.fill_diagonal_(-torch.inf), len(z_ND) * (len(z_ND) - 1))


def _log_mean_exp(exponents: Tensor, count: int) -> Tensor:
    return torch.logsumexp(exponents.flatten(), dim=0) - math.log(count)
