"""Scores of a frozen network: k-nearest-neighbour classification of its features, and its own
classifier.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

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
) -> dict[str, float]:
    """Weighted kNN accuracy (Wu et al. 2018): the most similar bank rows vote with weight exp(s /
    knn_temperature).

    Args:
        bank_ND, query_MD: features, any scale; compared by cosine similarity s in float32.
        bank_labels_N, query_labels_M: int64 classes in [0, num_classes).
        knn_k: number of voters k, at most N.
        knn_temperature: of the votes; never the loss's tau, so that no sweep moves the yardstick.

    Returns:
        {"knn_top1", "knn_top5"} in percent.

    Raises:
        ValueError: knn_k > N, or features that are not finite (a diverged encoder has no score).
    """
    return _votes(
        bank_ND,
        bank_labels_N,
        query_MD,
        query_labels_M,
        num_classes=num_classes,
        knn_k=knn_k,
        # The largest weight of a row is 1: only the ratios count, and exp cannot overflow.
        weigh=lambda similarity_Bk: (
            (similarity_Bk - similarity_Bk[:, :1]) / knn_temperature
        ).exp(),
    )


def uniform_knn_scores(
    bank_ND: Tensor,
    bank_labels_N: Tensor,
    query_MD: Tensor,
    query_labels_M: Tensor,
    *,
    num_classes: int,
    knn_k: int,
) -> dict[str, float]:
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

    return _votes(
        bank_ND,
        bank_labels_N,
        query_MD,
        query_labels_M,
        num_classes=num_classes,
        knn_k=knn_k,
        weigh=weigh,
    )


def classifier_scores(logits_MC: Tensor, labels_M: Tensor) -> dict[str, float]:
    """{"classifier_top1", "classifier_top5"} in percent of a trained classifier's logits.

    Raises ValueError for logits that are not finite.
    """
    require_finite(logits_MC)
    return percent("classifier", top_hits(logits_MC, labels_M), len(labels_M))


def _votes(
    bank_ND: Tensor,
    bank_labels_N: Tensor,
    query_MD: Tensor,
    query_labels_M: Tensor,
    *,
    num_classes: int,
    knn_k: int,
    weigh: Callable[[Tensor], Tensor],
) -> dict[str, float]:
    """Scores by the votes of the knn_k most similar rows; weigh: their similarities, the largest
    first, to the votes' weights.
    """
    if not 1 <= knn_k <= len(bank_ND):
        raise ValueError(
            f"knn_k: expected 1 to {len(bank_ND)} (the size of the bank), given {knn_k}"
        )
    require_finite(bank_ND, query_MD)
    bank_DN = F.normalize(bank_ND.float(), dim=1).T.contiguous()
    hits = torch.zeros(2, dtype=torch.int64, device=query_MD.device)
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
        hits += top_hits(votes_BC, labels_B, guess_above=0.0)
    return percent("knn", hits, len(query_labels_M))


def top_hits(scores_BC: Tensor, labels_B: Tensor, *, guess_above: float | None = None) -> Tensor:
    """Number of rows whose label has the highest score, and one of the five highest: int64 (2,), on
    the device.

    A class whose score is not above `guess_above` is no guess; None: every class may be one.
    """
    highest_B5, ranked_B5 = scores_BC.topk(min(5, scores_BC.shape[1]), dim=1)
    correct_B5 = ranked_B5 == labels_B[:, None]
    if guess_above is not None:
        correct_B5 &= highest_B5 > guess_above
    return torch.stack([correct_B5[:, 0].sum(), correct_B5.sum()])


def percent(name: str, hits: Tensor, num_rows: int) -> dict[str, float]:
    """{NAME_top1, NAME_top5} in percent from the sums of `top_hits` over `num_rows` rows; waits for
    the device.
    """
    top1, top5 = (100 * hits.cpu().double() / num_rows).tolist()
    return {f"{name}_top1": top1, f"{name}_top5": top5}


def require_finite(*features: Tensor) -> None:
    """ValueError if a feature is not finite: a diverged encoder has no score."""
    if not all(torch.isfinite(x).all() for x in features):
        raise ValueError("the encoder's features are not finite: it has diverged")


def widest_float(device: torch.device) -> torch.dtype:
    """float64, or float32 on a device that has no float64 (Apple's)."""
    return torch.float32 if device.type == "mps" else torch.float64
