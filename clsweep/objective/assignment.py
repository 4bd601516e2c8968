"""Soft assignments of samples to prototypes, and the loss of predicting them (SwAV, DINO).

Shapes: N samples, K prototypes. Scores are products of unit vectors. Half types are computed in
float32, whatever autocast says.
"""

from __future__ import annotations

import torch
from torch import Tensor

from clsweep.objective.contrast import check_positive, shape_of, wide


def soft_cross_entropy(scores_NK: Tensor, targets_NK: Tensor, tau: float) -> Tensor:
    """Cross-entropy with soft targets (SwAV Eq. 2; DINO Eq. 3): l = -sum_k q_k log softmax(s /
    tau)_k, the mean over samples.

    Args:
        scores_NK: float (N, K), scores of one view, N >= 1, K >= 2.
        targets_NK: float (N, K), another view's assignment q: its rows are >= 0 and sum to 1.
            Which side has a gradient is the framework's business.
        tau: temperature of the prediction, > 0.

    Raises:
        ValueError: shapes differ, no samples, K < 2, tau <= 0.
    """
    check_positive(tau=tau)
    if scores_NK.shape != targets_NK.shape or scores_NK.ndim != 2:
        raise ValueError(
            f"expected scores and targets of one shape (N, K), given {shape_of(scores_NK)} and "
            f"{shape_of(targets_NK)}"
        )
    if len(scores_NK) < 1 or scores_NK.shape[1] < 2:
        raise ValueError(
            f"expected at least 1 sample and 2 prototypes, given (N, K) = {shape_of(scores_NK)}"
        )
    log_p_NK = torch.log_softmax(wide(scores_NK) / tau, dim=1)
    return -(wide(targets_NK) * log_p_NK).sum(1).mean()


@torch.no_grad()
def sinkhorn(scores_NK: Tensor, epsilon: float, iterations: int) -> Tensor:
    """The codes of a batch by Sinkhorn-Knopp (SwAV Eq. 3-5): rows sum to 1, and all prototypes get
    about the same share.

    Q = diag(u) exp(s / epsilon) diag(v). Each iteration gives every prototype the same sum over the
    samples, then every sample the sum 1. In logarithms, where the authors' code takes exp(s /
    epsilon): finite for any epsilon.

    Args:
        scores_NK: of the global batch, and of what is queued with it.
        epsilon: smoothness of the assignment, > 0: the smaller, the nearer to one prototype each.
        iterations: >= 1.

    Returns:
        (N, K) in float32 or wider, without gradient.
    """
    check_positive(epsilon=epsilon, iterations=iterations)
    log_q_NK = wide(scores_NK) / epsilon
    for _ in range(iterations):
        log_q_NK = log_q_NK - log_q_NK.logsumexp(0)
        log_q_NK = log_q_NK - log_q_NK.logsumexp(1, keepdim=True)
    return log_q_NK.exp()
