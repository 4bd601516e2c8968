"""Scores of a frozen encoder: weighted k-nearest-neighbour classification of its features."""

from __future__ import annotations

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
    k: int = 200,
    temperature: float = 0.1,
) -> dict[str, float]:
    """Weighted kNN accuracy (Wu et al. 2018): the k most similar bank rows vote with weight exp(s / temperature).

    Args:
        bank_ND, query_MD: features, any scale; compared by cosine similarity s in float32.
        bank_labels_N, query_labels_M: int64 classes in [0, num_classes).
        k: number of voters, at most N.
        temperature: of the votes; never the loss's tau, so that no sweep moves the yardstick.

    Returns:
        {"knn_top1", "knn_top5"} in percent.

    Raises:
        ValueError: k > N, or features that are not finite (a diverged encoder has no score).
    """
    if not 1 <= k <= len(bank_ND):
        raise ValueError(f"k: expected 1 to {len(bank_ND)} (the size of the bank), given {k}")
    if not (torch.isfinite(bank_ND).all() and torch.isfinite(query_MD).all()):
        raise ValueError("the encoder's features are not finite: it has diverged")
    bank_DN = F.normalize(bank_ND.float(), dim=1).T.contiguous()
    hits = torch.zeros(2, dtype=torch.int64, device=query_MD.device)
    chunk = max(1, CHUNK_ELEMENTS // len(bank_ND))
    for queries_BD, labels_B in zip(query_MD.split(chunk), query_labels_M.split(chunk), strict=True):
        similarity_Bk, rows_Bk = (F.normalize(queries_BD.float(), dim=1) @ bank_DN).topk(k, dim=1)
        votes_BC = torch.zeros(len(queries_BD), num_classes, device=query_MD.device)
        # The largest weight of a row is 1: only the ratios count, and exp cannot overflow.
        weights_Bk = ((similarity_Bk - similarity_Bk[:, :1]) / temperature).exp()
        votes_BC.scatter_add_(1, bank_labels_N[rows_Bk], weights_Bk)
        most_B5, ranked_B5 = votes_BC.topk(min(5, num_classes), dim=1)
        # Fewer than five classes may have votes: the rest of the five are no guesses.
        correct_B5 = (ranked_B5 == labels_B[:, None]) & (most_B5 > 0)
        hits += torch.stack([correct_B5[:, 0].sum(), correct_B5.sum()])
    top1, top5 = (100 * hits.double() / len(query_labels_M)).tolist()
    return {"knn_top1": top1, "knn_top5": top5}
