"""Batch norm over groups of a batch, as if each group lay on a GPU of its own: MoCo's shuffling BN.

Shapes: N samples, C channels, G groups of S samples each.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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
