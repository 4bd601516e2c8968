"""The frameworks: what is compared with what.

A framework turns one worker's views into embeddings (`forward`, local) and the embeddings of the global batch into a
loss (`loss`); the training loop gathers in between. So no framework knows how many workers there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PairLoss = Callable[[Tensor, Tensor], Tensor]


class SimCLR(nn.Module):
    """One encoder and one projector; the other samples of the batch are the negatives (DCL Fig. 2)."""

    def __init__(self, *, encoder: nn.Module, projector: nn.Module, pair_loss: PairLoss):
        super().__init__()
        self.encoder, self.projector, self.pair_loss = encoder, projector, pair_loss

    def forward(self, views_NCHW: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Normalised projections (N, D) of each view, computed in one pass so that batch norm sees all views."""
        z = F.normalize(self.projector(self.encoder(torch.cat(list(views_NCHW)))), dim=1)
        return tuple(z.chunk(len(views_NCHW)))

    def loss(self, embeddings: Sequence[Tensor]) -> Tensor:
        """The loss of the global batch's projections."""
        z1_ND, z2_ND = embeddings
        return self.pair_loss(z1_ND, z2_ND)
