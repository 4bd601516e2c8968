"""Scores of a frozen network that need no labels: the rank and the spectrum of its features.

Shapes: N images, D dimensions, V views of each image. Features are raw, float32 or wider, finite.
Each gives a scalar on the features' device, finite for a collapsed encoder too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from clsweep.train.device import widest_float

MOST_IMAGES = 25_600  # RankMe 3.1: beyond them its value hardly changes
SMOOTHING = 1e-7  # epsilon of RankMe Eq. 1 and LiDAR Eq. 4
RIDGE = 1e-4  # delta of LiDAR Eq. 3
# The decay is fitted on these eigenvalues, counted from 1: those of the released code. The first
# ones follow no power law, the last ones are noise.
FIRST_RANK, LAST_RANK = 4, 50
FEWEST_RANKS = 3


def rankme(features_ND: Tensor) -> Tensor:
    """exp(-sum_k p_k log p_k), p_k = sigma_k / sum sigma + 1e-7, sigma the singular values of the
    features as they are; in [1, min(N, D)], and 0 where all features are 0.

    Garrido et al. (2023), Eq. 1. Does not change with rotation or scale. Other than
    `diagnostics.effective_rank` it is not centred: features in one point have rank 1.
    """
    return smooth_rank(torch.linalg.svdvals(_some(features_ND)))


def lidar(views_NVD: Tensor) -> Tensor:
    """The smooth rank of LDA: of the eigenvalues of S_w^-1/2 S_b S_w^-1/2, smoothed as RankMe.

    S_b is the covariance of the images' means over their views, S_w that of the views around their
    image's mean, plus 1e-4 on the diagonal. So directions count by what tells images apart, in
    units of what views of one image differ by. In [1, min(N - 1, D)]; 0 where all means are the
    same. Does not change with rotation, nor with scale while S_w is large beside 1e-4.

    Thilak et al. (2024), Eq. 1 to 4. Needs two views.
    """
    views_NVD = views_NVD.to(widest_float(views_NVD.device))
    # Relative to the first image, so that equal means are 0 without rounding.
    views_NVD = views_NVD - views_NVD[:1].mean(dim=1, keepdim=True)
    mean_N1D = views_NVD.mean(dim=1, keepdim=True)
    within_MD = (views_NVD - mean_N1D).flatten(0, 1)
    between_ND = mean_N1D[:, 0] - mean_N1D.mean(dim=0)
    identity_DD = torch.eye(views_NVD.shape[2], dtype=within_MD.dtype, device=within_MD.device)
    within_DD = within_MD.T @ within_MD / len(within_MD) + RIDGE * identity_DD
    lower_DD = torch.linalg.cholesky(within_DD)
    # The same eigenvalues as with the symmetric root.
    scaled_DN = torch.linalg.solve_triangular(lower_DD, between_ND.T, upper=False)
    return smooth_rank(torch.linalg.svdvals(scaled_DN).square())


def spectrum_decay(features_ND: Tensor) -> Tensor:
    """alpha of lambda_j ~ j^-alpha, lambda the eigenvalues of the features' covariance.

    Least squares in log-log over the eigenvalues 4 to 50, weighted by 1 / j as the released code
    does. Of features with fewer than six dimensions in use all eigenvalues count, and the next one
    as the rounding of float32: a collapse decays steeply. Does not change with rotation, scale or
    mean.

    Agrawal et al. (2022), Eq. 1.
    """
    features_ND = _some(features_ND)
    values_K = centred_svdvals(features_ND)
    rounding = torch.finfo(torch.float32).eps
    values_K = values_K[values_K > rounding * torch.linalg.matrix_norm(features_ND)]
    first = FIRST_RANK - 1
    if len(values_K) < first + FEWEST_RANKS:
        last = values_K.new_tensor([rounding] if len(values_K) else [1.0, rounding])
        first, values_K = 0, torch.cat([values_K / values_K[:1], last])
    log_lambda_J = 2 * values_K[first:LAST_RANK].log()
    ranks_J = torch.arange(first + 1, first + 1 + len(log_lambda_J), device=values_K.device)
    # the line through (x, y) by weighted least squares
    share_J = 1 / ranks_J / (1 / ranks_J).sum()
    x_J, y_J = ranks_J.to(values_K.dtype).log(), log_lambda_J
    x_J, y_J = x_J - (share_J * x_J).sum(), y_J - (share_J * y_J).sum()
    return -(share_J * x_J * y_J).sum() / (share_J * x_J.square()).sum()


def alpha_req(features_ND: Tensor) -> Tensor:
    """|alpha - 1| of `spectrum_decay`; 0 is best, where the spectrum is as flat as it may be and
    still smooth.

    Agrawal et al. (2022), 3.2: features generalise best near alpha = 1. That is a condition and no
    guarantee.
    """
    return (spectrum_decay(features_ND) - 1).abs()


def centred_svdvals(z_ND: Tensor) -> Tensor:
    """The singular values of centred rows; equal rows are 0 without rounding."""
    relative_ND = z_ND - z_ND[:1]  # to the first row
    return torch.linalg.svdvals(relative_ND - relative_ND.mean(dim=0))


def _some(features_ND: Tensor) -> Tensor:
    return features_ND[:MOST_IMAGES].to(widest_float(features_ND.device))


def smooth_rank(values_K: Tensor, smoothing: float = SMOOTHING) -> Tensor:
    """exp of the entropy of values >= 0 over their sum, each with `smoothing`; 0 if all are 0."""
    total = values_K.sum()
    p_K = values_K / torch.where(total > 0, total, 1.0) + smoothing
    return torch.where(total > 0, torch.special.entr(p_K).sum().exp(), 0.0)
