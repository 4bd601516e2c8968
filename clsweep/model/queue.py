"""Memories of earlier embeddings: MoCo's queue of keys, NNCLR's support set and SwAV's queues."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn


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
        self.is_full = False  # no random row is left

    @torch.no_grad()
    def put(self, rows_ND: Tensor, generator: Generator) -> None:
        """Replace the oldest rows; of a batch larger than the memory, keep random rows (EqCo 2.3, K
        < N).
        """
        size = len(self.rows_KD)
        rows_ND = rows_ND.to(self.rows_KD.dtype)
        if len(rows_ND) > size:
            chosen = torch.randperm(len(rows_ND), generator=generator)[:size]
            rows_ND = rows_ND[chosen.to(rows_ND.device, non_blocking=True)]
        # In a ring the new rows are at most two slices; no index tensor has to travel to the
        # device.
        first = min(len(rows_ND), size - self._next)
        self.rows_KD[self._next : self._next + first] = rows_ND[:first]
        self.rows_KD[: len(rows_ND) - first] = rows_ND[first:]
        self.is_full |= self._next + len(rows_ND) >= size
        self._next = (self._next + len(rows_ND)) % size

    @torch.no_grad()
    def nearest(self, queries_ND: Tensor) -> Tensor:
        """For each query, the row with the largest dot product (N, D)."""
        return self.rows_KD[(queries_ND.to(self.rows_KD.dtype) @ self.rows_KD.T).argmax(dim=1)]

    def get_extra_state(self) -> dict[str, int]:
        return {"next": self._next, "is_full": self.is_full}

    def set_extra_state(self, state: Any) -> None:
        self._next, self.is_full = int(state["next"]), bool(state["is_full"])
