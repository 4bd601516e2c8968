"""The global batch: what one worker needs of the others; all works without a process group, too."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from clsweep.model.grouped_norm import FollowingBatchNorm, GroupedBatchNorm
from clsweep.objective.contrastive import wide

T = TypeVar("T")
ModuleT = TypeVar("ModuleT", bound=nn.Module)


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def gather(x: Tensor) -> Tensor:
    """The rows of all workers in rank order, (N, ...) -> (world_size * N, ...), with gradient to
    this worker's rows.

    Made for losses that every worker computes in full from the gathered rows. The gradient of the
    *sum* over the workers of that loss is passed on, so that the averaging of
    DistributedDataParallel leaves the gradient of one.
    """
    gathered: Tensor = _Gather.apply(x)
    return gathered


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.num_rows = len(x)
        return _of_all(x).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        first = rank() * ctx.num_rows
        # The loss is the same on every worker, so the sum over workers needs no communication.
        return grads[0][first : first + ctx.num_rows] * world_size()


class GlobalGroupedBatchNorm(GroupedBatchNorm):
    """Groups of the global batch: statistics are summed over workers, wherever samples lie."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        pixels = list(range(2, x.ndim))
        dtype, x = (x.dtype, wide(x))
        row_N = rank() * len(x) + torch.arange(len(x))
        num_groups = len(x) * world_size() // self.group_size
        group_N = row_N % num_groups if self.is_strided else row_N // self.group_size
        group_N = group_N.to(x.device)
        member_NG = F.one_hot(group_N, num_groups).to(x.dtype)
        count = self.group_size * x[0, 0].numel()

        def mean_of(values: Tensor) -> Tensor:
            sum_NC = values.sum(dim=pixels) if pixels else values
            sum_GC = member_NG.T @ sum_NC
            if world_size() > 1:  # its gradient is summed likewise
                from torch.distributed.nn.functional import all_reduce

                sum_GC = all_reduce(sum_GC)
            return sum_GC / count

        def of_samples(values_GC: Tensor) -> Tensor:
            return values_GC[group_N].view(*x.shape[:2], *[1] * len(pixels))

        mean_GC = mean_of(x)
        centred = x - of_samples(mean_GC)
        var_GC = mean_of(centred.square())
        if self.track_running_stats:
            self.follow(mean_GC.mean(0), var_GC.mean(0) * (count / (count - 1)))
        y = centred * of_samples(torch.rsqrt(var_GC + self.eps))
        if self.affine:
            shape = [1, -1] + [1] * len(pixels)
            y = y * self.weight.view(shape) + self.bias.view(shape)
        return y.to(dtype)


class _Normalise(torch.autograd.Function):
    """Batch norm of this worker's share x (N, C, ...) by the statistics of the global batch, with
    torch's own kernels and one message each way. Gives y, and the mean and variance (C,).

    As in SyncBatchNorm, the gradients of scale and shift are this worker's share of the sum.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight_C: Tensor | None, bias_C: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        x = _dense(x, like=x)
        mean_C, var_C = _statistics(x)
        y = torch.native_batch_norm(x, weight_C, bias_C, mean_C, var_C, False, 0.0, eps)[0]
        ctx.save_for_backward(x, weight_C, mean_C, var_C)
        ctx.eps = eps
        ctx.mark_non_differentiable(mean_C, var_C)
        return y, mean_C, var_C

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_C, mean_C, var_C = ctx.saved_tensors
        # scale grad + an affine map of x; for half types torch has no fast sum with float32 scales
        is_half, is_affine = x.dtype != mean_C.dtype, weight_C is not None
        grad = _dense(grad, like=x)
        scaled, weight_grad_C, bias_grad_C = torch.ops.aten.native_batch_norm_backward(
            grad, x, weight_C, mean_C, var_C, None, None, False, ctx.eps, [is_half, True, True]
        )
        count = x.numel() // x.shape[1] * world_size()
        scale_C = torch.rsqrt(var_C + ctx.eps) * (weight_C if is_affine else 1)
        slope_C, shift_C = _of_all(torch.stack([weight_grad_C, bias_grad_C])).sum(0) * (
            -scale_C / count
        )
        grad_x = torch.native_batch_norm(x, slope_C, shift_C, mean_C, var_C, False, 0.0, ctx.eps)[0]
        if is_half:
            grad_x += scaled
        else:
            grad_x.addcmul_(grad, scale_C.view(1, -1, *[1] * (x.ndim - 2)))
        return (grad_x, *((weight_grad_C, bias_grad_C) if is_affine else (None, None)), None)


def _statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance (C,) of the global batch, in float32 or wider."""
    unused_C = wide(x.new_zeros(x.shape[1]))  # its type is that of the result
    mine = torch.stack(torch.ops.aten.batch_norm_update_stats(x, unused_C, unused_C, 0.0))
    mean_WC, var_WC = _of_all(mine).unbind(1)
    between_C, mean_C = torch.var_mean(mean_WC, dim=0, correction=0)
    return mean_C, var_WC.mean(0) + between_C


def _dense(x: Tensor, like: Tensor) -> Tensor:
    """`x` in an order of memory that torch's batch norm is fast with, that of `like`."""
    is_last = like.is_contiguous(memory_format=torch.channels_last)
    return x.contiguous(memory_format=torch.channels_last if is_last else torch.contiguous_format)


def _of_all(x: Tensor) -> Tensor:
    """The same tensor of every worker, (W, ...) in rank order."""
    if world_size() == 1:
        return x[None]
    gathered = x.new_empty(world_size(), *x.shape)
    dist.all_gather_into_tensor(gathered.view(-1), x.contiguous().view(-1))
    return gathered


class GlobalBatchNorm(FollowingBatchNorm):
    """Batch norm over the global batch where torch's SyncBatchNorm does not run: on CPUs."""

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, C) or (N, C, H, W)."""
        if not self.training:
            return super().forward(x)
        y, mean_C, var_C = _Normalise.apply(x, self.weight, self.bias, self.eps)
        if self.track_running_stats:
            count = x.numel() // x.shape[1] * world_size()
            self.follow(mean_C, var_C * (count / (count - 1)))
        return cast(Tensor, y)


def sync_batch_norm(module: ModuleT, device: torch.device) -> ModuleT:
    """`module` with batch statistics over the global batch or its groups; as it is if alone."""
    if world_size() == 1:
        return module
    grouped = [child for child in module.modules() if isinstance(child, GroupedBatchNorm)]
    for norm in grouped:  # same parameters and buffers, another forward
        norm.__class__ = GlobalGroupedBatchNorm
    if grouped:  # an objective has none beside them
        return module
    if device.type == "cuda":
        norms = (nn.BatchNorm1d, nn.BatchNorm2d)
        hooks = {at: m._forward_hooks for at, m in module.named_modules() if isinstance(m, norms)}
        converted: ModuleT = nn.SyncBatchNorm.convert_sync_batchnorm(module)
        for at, hook in hooks.items():  # what follows a norm, as an activation, is left behind
            converted.get_submodule(at)._forward_hooks = hook
        return converted
    for child in module.modules():
        if type(child) in (nn.BatchNorm1d, nn.BatchNorm2d):
            child.__class__ = GlobalBatchNorm
    return module


def distributed(module: nn.Module) -> nn.Module:
    """`module` with its gradients averaged over the workers.

    All workers compute the same buffers (statistics and memories are those of the global batch):
    none are sent.
    """
    with warnings.catch_warnings():
        # the argument has another name from torch 2.15 on
        warnings.simplefilter("ignore", FutureWarning)
        return nn.parallel.DistributedDataParallel(module, broadcast_buffers=False)


def gather_features(x_ND: Tensor, num_rows: int) -> Tensor:
    """Evaluation features of all workers, whose shares may differ, in the order of `share`."""
    if world_size() == 1:
        return x_ND
    longest = -(-num_rows // world_size())
    padded = F.pad(x_ND, (0, 0, 0, longest - len(x_ND)))
    return gather(padded)[:num_rows]


def worker_rows(num_rows: int) -> slice:
    """This worker's rows of an array that all workers split."""
    longest = -(-num_rows // world_size())
    return slice(min(rank() * longest, num_rows), min((rank() + 1) * longest, num_rows))


def of_first(value: T, device: torch.device) -> T:
    """Rank 0's value, of bytes, True, False or None, on every worker; what the others give does not
    count. Nothing is unpickled: any process of the machine may talk to a group of gloo.
    """
    if world_size() == 1:
        return value
    rest: tuple[Any, ...] = (None, False, True)
    is_bytes = isinstance(value, bytes)
    head = torch.tensor(len(cast(bytes, value)) if is_bytes else -1 - rest.index(value))
    head = head.to(device)
    dist.broadcast(head, src=0)
    size = int(head)
    if size <= 0:
        return cast(T, rest[-1 - size] if size else b"")
    data = torch.empty(size, dtype=torch.uint8, device=device)
    if rank() == 0:
        data.copy_(torch.frombuffer(bytearray(cast(bytes, value)), dtype=torch.uint8))
    dist.broadcast(data, src=0)
    return cast(T, data.cpu().numpy().tobytes())
