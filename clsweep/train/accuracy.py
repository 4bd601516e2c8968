"""Scores of a frozen network: k-nearest-neighbour classification of its features, its own
classifier, and what needs no labels, its rank and its spectrum.

Shapes of the latter: N images, D dimensions, V views of each image. Features are raw, float32 or
wider, finite. Each gives a scalar on the features' device, finite for a collapsed encoder too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

Hits = dict[str, Tensor]  # by metric, whether each image that is scored is right: bool (M,)
Outcomes = dict[str, float | Tensor]  # the same, beside scores that are numbers
CHUNK_ELEMENTS = 2**25  # similarities held at once: 128 MiB in float32


def knn_scores(
    bank_ND: Tensor,
    bank_labels_N: Tensor,
    query_MD: Tensor,
    query_labels_M: Tensor,
    *,
    num_classes: int,
    knn_k: int = 200,
    knn_temperature: float = 0.1,
) -> Hits:
    """Weighted kNN accuracy (Wu et al. 2018): the most similar bank rows vote with weight exp(s /
    knn_temperature).

    Args:
        bank_ND, query_MD: features, any scale; compared by cosine similarity s in float32.
        bank_labels_N, query_labels_M: int64 classes in [0, num_classes).
        knn_k: number of voters k, at most N.
        knn_temperature: of the votes; never the loss's tau, so that no sweep moves the yardstick.

    Returns:
        {"knn_top1", "knn_top5"}: whether each query is right, bool (M,).

    Raises:
        ValueError: features that are not finite (a diverged encoder has no score).
    """

    def weigh(similarity_Bk: Tensor) -> Tensor:
        # The largest weight of a row is 1: only the ratios count, and exp cannot overflow.
        return ((similarity_Bk - similarity_Bk[:, :1]) / knn_temperature).exp()

    arrays = bank_ND, bank_labels_N, query_MD, query_labels_M
    return _votes(*arrays, num_classes=num_classes, knn_k=knn_k, weigh=weigh)


def uniform_knn_scores(*arrays: Tensor, num_classes: int, knn_k: int) -> Hits:
    """kNN accuracy of equal votes (DCL Table 11: 5-NN); of equally many votes, the class with the
    nearest neighbour counts.

    Arguments, result and errors as of `knn_scores`.
    """

    def weigh(similarity_Bk: Tensor) -> Tensor:
        ranks_k = torch.arange(knn_k, device=similarity_Bk.device)
        # All that is added to the votes is below one half, and a neighbour's exceeds the sum of
        # those behind it.
        weights_k = 1 + torch.exp2(-(ranks_k + 2).to(widest_float(similarity_Bk.device)))
        return weights_k.expand(similarity_Bk.shape)

    return _votes(*arrays, num_classes=num_classes, knn_k=knn_k, weigh=weigh)


def classifier_scores(logits_MC: Tensor, labels_M: Tensor) -> Hits:
    """{"classifier_top1", "classifier_top5"}, bool (M,), of a trained classifier's logits.

    Raises ValueError for logits that are not finite.
    """
    require_finite(logits_MC)
    return named_hits("classifier", top_hits(logits_MC, labels_M))


def _votes(
    *arrays: Tensor, num_classes: int, knn_k: int, weigh: Callable[[Tensor], Tensor]
) -> Hits:
    """Scores by the votes of the knn_k most similar rows; weigh: their similarities, the largest
    first, to the votes' weights.
    """
    bank_ND, bank_labels_N, query_MD, query_labels_M = arrays
    require_finite(bank_ND, query_MD)
    bank_DN = F.normalize(bank_ND.float(), dim=1).T.contiguous()
    hits = []
    chunk = max(1, CHUNK_ELEMENTS // len(bank_ND))
    for queries_BD, labels_B in zip(
        query_MD.split(chunk), query_labels_M.split(chunk), strict=True
    ):
        similarity_Bk, rows_Bk = (F.normalize(queries_BD.float(), dim=1) @ bank_DN).topk(
            knn_k, dim=1
        )
        weights_Bk = weigh(similarity_Bk)
        votes_BC = weights_Bk.new_zeros(len(queries_BD), num_classes)
        votes_BC.scatter_add_(1, bank_labels_N[rows_Bk], weights_Bk)
        # Fewer than five classes may have votes: the rest of the five are no guesses.
        hits.append(top_hits(votes_BC, labels_B, guess_above=0.0))
    return named_hits("knn", torch.cat(hits, dim=1))


def top_hits(scores_BC: Tensor, labels_B: Tensor, *, guess_above: float | None = None) -> Tensor:
    """Whether a row's label has the highest score, and one of the five highest: bool (2, B).

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
        name: found
        for name, found in outcomes.items()
        if isinstance(found, Tensor) and found.dtype == torch.bool and found.dim() == 1
    }


def in_percent(outcomes: Mapping[str, float | Tensor]) -> dict[str, float]:
    """Numbers as they are; of outcomes of images the share that is right."""
    shares = {name: 100 * int(x.sum()) / len(x) for name, x in hits_among(outcomes).items()}
    return {name: shares[name] if name in shares else float(x) for name, x in outcomes.items()}


def are_finite(*tensors: Tensor) -> bool:
    """Whether all numbers are; waits for the device."""
    return all(bool(torch.isfinite(x).all()) for x in tensors)


def require_finite(*features: Tensor) -> None:
    """ValueError if a feature is not finite: a diverged encoder has no score."""
    if not are_finite(*features):
        raise ValueError("the encoder's features are not finite: it has diverged")


def widest_float(device: torch.device) -> torch.dtype:
    """float64, or float32 on a device that has no float64 (Apple's)."""
    return torch.float32 if device.type == "mps" else torch.float64


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
    return _smooth_rank(torch.linalg.svdvals(_some(features_ND)))


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
    return _smooth_rank(torch.linalg.svdvals(scaled_DN).square())


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


def _smooth_rank(values_K: Tensor) -> Tensor:
    total = values_K.sum()
    p_K = values_K / torch.where(total > 0, total, 1.0) + SMOOTHING
    return torch.where(total > 0, torch.special.entr(p_K).sum().exp(), 0.0)
