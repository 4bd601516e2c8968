"""k-nearest-neighbour classification of the features of a frozen network."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from clsweep.train.accuracy import Hits, named_hits, top_hits
from clsweep.train.device import widest_float
from clsweep.train.finite import require_finite

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
        knn_temperature: of the votes; never the loss's tau, so that no sweep changes the protocol.

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
        return torch.ones_like(similarity_Bk, dtype=widest_float(similarity_Bk.device))

    sizes = {"num_classes": num_classes, "knn_k": knn_k}
    return _votes(*arrays, **sizes, weigh=weigh, nearest_wins=True)


def _votes(
    *arrays: Tensor,
    num_classes: int,
    knn_k: int,
    weigh: Callable[[Tensor], Tensor],
    nearest_wins: bool = False,
) -> Hits:
    """Scores by the votes of the knn_k most similar rows; weigh: their similarities, the largest
    first, to the votes' weights. `nearest_wins`: of classes with equally many whole votes.
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
        if nearest_wins:  # by less than half a vote, the less the nearer the first one is
            ranks_Bk = torch.arange(knn_k, device=votes_BC.device).to(votes_BC).expand_as(rows_Bk)
            first_BC = torch.full_like(votes_BC, knn_k - 1)
            first_BC.scatter_reduce_(1, bank_labels_N[rows_Bk], ranks_Bk, "amin")
            votes_BC -= first_BC / (2 * knn_k)
        # Fewer than five classes may have votes: the rest of the five are no guesses.
        hits.append(top_hits(votes_BC, labels_B, guess_above=0.0))
    return named_hits("knn", torch.cat(hits, dim=1))
