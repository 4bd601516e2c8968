"""The layers of an objective beside its encoder: heads (projectors, predictors and critics are all
multi-layer perceptrons), batch norm over groups, memories of earlier embeddings.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from clsweep.model.transfer import to_device

Norm = Literal["none", "hidden", "all", "bare"]
Activation = Callable[[], nn.Module]
RELU: Activation = partial(nn.ReLU, inplace=True)


def mlp(
    num_in: int,
    hidden: int,
    num_out: int,
    *,
    layers: int = 2,
    norm: Norm = "none",
    activation: Activation = RELU,
) -> nn.Sequential:
    """num_in -> hidden -> ... -> num_out with `layers` linear maps and `activation` between them;
    the output is not normalised.

    Args:
        norm: batch norm after no linear map, after the hidden ones, after all, or ("bare") after
            all of which the last has no scale and shift. A linear map before a batch norm has no
            bias: it would be subtracted again.
    """
    widths = [num_in, *[hidden] * (layers - 1), num_out]
    modules: list[nn.Module] = []
    for i in range(layers):
        is_last = i == layers - 1
        normalised = norm in ("all", "bare") or (norm == "hidden" and not is_last)
        modules.append(nn.Linear(widths[i], widths[i + 1], bias=not normalised))
        if normalised:
            modules.append(nn.BatchNorm1d(widths[i + 1], affine=not (is_last and norm == "bare")))
        if not is_last:
            modules.append(activation())
    return nn.Sequential(*modules)


# Batch norm over groups of a batch, as if each group lay on a GPU of its own: MoCo's shuffling BN.
#
# Shapes: N samples, C channels, G groups of S samples each.


class FollowingBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm, of features (N, C) or images (N, C, H, W), whose running statistics follow
    whatever its forward takes for the batch's.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        """Of both alike."""

    @torch.no_grad()
    def follow(self, mean_C: Tensor, var_C: Tensor) -> None:
        """Let the running statistics follow those of the batch."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        self.running_mean.lerp_(mean_C, self.momentum)
        self.running_var.lerp_(var_C, self.momentum)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)


class GroupedBatchNorm(FollowingBatchNorm):
    """Batch norm with statistics of each group of `group_size` samples apart.

    Group g has the samples g S to (g + 1) S - 1, or, `is_strided`, every G-th one from g on. The
    running statistics, used in evaluation, follow the mean over the groups.
    """

    group_size: int
    is_strided: bool

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, C) or (N, C, H, W), of one view alone; in training S must divide N."""
        if not self.training:
            return super().forward(x)
        num_groups, (num, channels, *pixels) = len(x) // self.group_size, x.shape
        # the groups become channels of a batch of S samples
        split = (self.group_size, num_groups) if self.is_strided else (num_groups, self.group_size)
        by_group = x.view(*split, channels, *pixels)
        by_group = by_group if self.is_strided else by_group.transpose(0, 1)
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        mean, var = (x.new_zeros(num_groups * channels, dtype=dtype) for _ in range(2))
        y = F.batch_norm(
            by_group.reshape(self.group_size, -1, *pixels),
            mean,
            var,
            self.weight.repeat(num_groups) if self.affine else None,
            self.bias.repeat(num_groups) if self.affine else None,
            training=True,
            momentum=1.0,  # mean and var become those of the groups
            eps=self.eps,
        )
        if self.track_running_stats:
            self.follow(*(each.view(num_groups, channels).mean(0) for each in (mean, var)))
        y = y.reshape(self.group_size, num_groups, channels, *pixels)
        return (y if self.is_strided else y.transpose(0, 1)).reshape(num, channels, *pixels)


def group_norms(module: nn.Module, group_size: int, *, is_strided: bool) -> None:
    """Give the batch norms of a module groups of their own: same parameters and buffers."""
    for child in module.modules():
        if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
            norm = cast(GroupedBatchNorm, child)
            norm.__class__ = GroupedBatchNorm
            norm.group_size, norm.is_strided = group_size, is_strided


# Memories of earlier embeddings: MoCo's queue of keys, NNCLR's support set and SwAV's queues.


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
