"""Memories of earlier embeddings: MoCo's queue of keys, NNCLR's support set and SwAV's queues."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from clsweep.model.transfer import to_device


class FeatureQueue(nn.Module):
    """The latest `size` rows that were put in; random unit vectors until then, as in MoCo.

    Rows and position are part of the state dict, so a checkpoint continues with the same memory.
    Every worker puts in the rows of the global batch, so all have the same memory without a word.
    """

    rows_KD: Tensor

    def __init__(self, size: int, dim: int):
        super().__init__()
        self.register_buffer("rows_KD", F.normalize(torch.randn(size, dim), dim=1))
        self._next = 0  # the oldest row, which is written next
        self._places: Tensor | None = None  # of the next rows, on their device
        self.is_full = False  # no random row is left

    @torch.no_grad()
    def put(self, rows_ND: Tensor, generator: Generator) -> None:
        """Replace the oldest rows; of a larger batch, keep random ones (EqCo 2.3, K < N)."""
        size, device = len(self.rows_KD), self.rows_KD.device
        rows_ND = rows_ND.to(self.rows_KD.dtype)
        if len(rows_ND) > size:
            chosen = torch.randperm(len(rows_ND), generator=generator)[:size]
            rows_ND = rows_ND[to_device(chosen, device)]
        num = len(rows_ND)
        # the device counts for itself: no step differs from another by a number of the host's
        if self._places is None or len(self._places) != num or self._places.device != device:
            self._places = (torch.arange(num, device=device) + self._next) % size
        self.rows_KD.index_copy_(0, self._places, rows_ND)
        self._places.add_(num).remainder_(size)
        self.is_full |= self._next + num >= size
        self._next = (self._next + num) % size

    @torch.no_grad()
    def nearest(self, queries_ND: Tensor) -> Tensor:
        """For each query, the row with the largest dot product (N, D)."""
        return self.rows_KD[(queries_ND.to(self.rows_KD.dtype) @ self.rows_KD.T).argmax(dim=1)]

    def get_extra_state(self) -> dict[str, int]:
        return {"next": self._next, "is_full": self.is_full}

    def set_extra_state(self, state: Any) -> None:
        self._next, self.is_full = int(state["next"]), bool(state["is_full"])
        self._places = None
