"""The losses, side by side, as pure functions of projections.

Shapes: N samples, D features. `z1_ND` and `z2_ND` are the two views' L2-normalised projections of the *global* batch,
so that every loss is the same number at any number of workers. All are means over the 2N terms, in log-sum-exp form:
no bare exponential, finite at tau = 0.005 in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor


def infonce(z1_ND: Tensor, z2_ND: Tensor, *, tau: float) -> Tensor:
    """InfoNCE, SimCLR's loss (DCL Eq. 1-2): l = -s_pos/tau + log(exp(s_pos/tau) + U).

    Args:
        z1_ND, z2_ND: float (N, D), L2-normalised, N >= 2.
        tau: temperature, > 0.

    Returns:
        Scalar: mean over the 2N anchors. U sums over the 2(N-1) other samples of both views.

    Raises:
        ValueError: shapes differ, N < 2 (no negatives), tau <= 0.
    """
    positive_2N, negatives_2N = _log_terms(z1_ND, z2_ND, tau)
    return (torch.logaddexp(positive_2N, negatives_2N) - positive_2N).mean()


def dcl(z1_ND: Tensor, z2_ND: Tensor, *, tau: float) -> Tensor:
    """Decoupled contrastive loss (DCL Eq. 6): l = -s_pos/tau + log U.

    InfoNCE without the positive in the denominator; U is one joint log-sum-exp over both views.
    Arguments, result and errors as in `infonce`.
    """
    positive_2N, negatives_2N = _log_terms(z1_ND, z2_ND, tau)
    return (negatives_2N - positive_2N).mean()


def dclw(z1_ND: Tensor, z2_ND: Tensor, *, tau: float, sigma: float) -> Tensor:
    """Weighted decoupled contrastive loss (DCL Eq. 7): l = -w s_pos/tau + log U.

    w = 2 - exp(s_pos/sigma) / mean_i exp(s_pos/sigma): negative von Mises-Fisher weights with mean 1 over the global
    batch. The paper does not say whether the gradient passes through w; here w is a constant.

    Args:
        sigma: width of the weighting, > 0; the larger, the closer to `dcl`.

    The other arguments, the result and the errors are those of `infonce`.
    """
    if not sigma > 0:
        raise ValueError(f"sigma: expected a value > 0, given {sigma}")
    positive_2N, negatives_2N = _log_terms(z1_ND, z2_ND, tau)
    with torch.no_grad():
        # softmax = exp / sum: N times it is exp / mean, without overflow for a small sigma
        weight_2N = 2 - len(positive_2N) * torch.softmax(positive_2N * (tau / sigma), dim=0)
    return (negatives_2N - weight_2N * positive_2N).mean()


def _log_terms(z1_ND: Tensor, z2_ND: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    """s_pos/tau and log U of the 2N anchors, in float32 or wider whatever the projections' type."""
    if z1_ND.shape != z2_ND.shape or z1_ND.ndim != 2:
        raise ValueError(f"expected two views of one shape (N, D), given {tuple(z1_ND.shape)} and {tuple(z2_ND.shape)}")
    num_samples = len(z1_ND)
    if num_samples < 2:
        raise ValueError("expected a batch of at least 2 samples: a single one has no negatives")
    if not tau > 0:
        raise ValueError(f"tau: expected a value > 0, given {tau}")
    z = torch.cat([z1_ND, z2_ND])
    z = z.float() if z.dtype in (torch.bfloat16, torch.float16) else z
    with torch.autocast(z.device.type, enabled=False):
        logits = z @ z.T / tau
    positive = logits.diagonal(num_samples)  # anchors of view 1; those of view 2 have the same, by symmetry
    # Neither the anchor itself nor its positive is a negative.
    same_sample = torch.eye(num_samples, dtype=torch.bool, device=z.device).repeat(2, 2)
    negatives = torch.logsumexp(logits.masked_fill(same_sample, -torch.inf), dim=1)
    return positive.repeat(2), negatives
