"""3 x 3 convolutions with a quarter of the multiplications, for float32 on a CPU.

Winograd's minimal filtering F(4 x 4, 3 x 3), Lavin & Gray 2016 (arXiv:1509.09308), eq. 12: a 4 x 4
block of the output is Y = A^T [(G g G^T) * (B^T d B)] A, with the 3 x 3 filter g and the 6 x 6 tile
d of the input around the block. Over all channels and blocks the elementwise product is 36 matrix
products. With the points 0, 1, -1, 2, -1/2 the errors are half of those with the paper's 0, ±1, ±2:
r.m.s. 1e-6 to 2e-6 of the output's standard deviation (64, 512 channels).

Shapes: a chunk of n images has T = n * rows * columns blocks. Tiles and blocks are held with their
pixels in front, (6, 6, n, rows, columns, C) and (4, 4, n, rows, columns, O).
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

ModuleT = TypeVar("ModuleT", bound=nn.Module)

# By measurement: with fewer channels the transforms cost more than they save.
LEAST_CHANNELS = 64
# T, by measurement: fewer blocks make thin products, more leave the core's cache.
CHUNK_BLOCKS = 256


class WinogradConv2d(nn.Conv2d):
    """nn.Conv2d, by its state dict too, with Winograd's forward for the inputs that fit it."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        if not self._takes(x_NCHW):
            return super().forward(x_NCHW)
        return _Convolution.apply(x_NCHW, self.weight)

    def _takes(self, x_NCHW: Tensor) -> bool:
        return (
            x_NCHW.device.type == "cpu"
            and x_NCHW.dtype == self.weight.dtype == torch.float32
            and not torch.is_autocast_enabled("cpu")
            and x_NCHW.ndim == 4
            and x_NCHW.shape[2] % 4 == x_NCHW.shape[3] % 4 == 0
            and x_NCHW.is_contiguous(memory_format=torch.channels_last)
        )


def use_winograd(module: ModuleT) -> ModuleT:
    """`module` with Winograd's algorithm in its 3 x 3 convolutions of stride 1, where faster."""
    for child in module.modules():  # same parameters, another forward
        if type(child) is nn.Conv2d and _is_faster(child):
            child.__class__ = WinogradConv2d
    return module


def _is_faster(conv: nn.Conv2d) -> bool:
    same_size = conv.kernel_size == (3, 3) and conv.padding == (1, 1)
    same_size &= conv.stride == conv.dilation == (1, 1)
    plain = conv.padding_mode == "zeros" and conv.groups == 1 and conv.bias is None
    return same_size and plain and min(conv.in_channels, conv.out_channels) >= LEAST_CHANNELS


def _matrices(points: tuple[float, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """The Kronecker squares of F(4, 3)'s B^T, G and A^T: (36, 36), (36, 9) and (16, 36).

    Filter and block are polynomials, evaluated at the points and at infinity (Toom and Cook;
    section 4).
    """
    size = len(points) + 1
    b_t, g_, a_t = np.zeros((size, size)), np.zeros((size, 3)), np.zeros((4, size))
    for i, point in enumerate(points):
        others = np.delete(points, i)
        b_t[i, :-1] = np.poly(others)[::-1]
        g_[i] = point ** np.arange(3) / np.prod(point - others)
        a_t[:, i] = point ** np.arange(4)
    b_t[-1], g_[-1, -1], a_t[-1, -1] = np.poly(points)[::-1], 1, 1
    b, g, a = (
        torch.tensor(np.kron(matrix, matrix), dtype=torch.float32) for matrix in (b_t, g_, a_t)
    )
    return b, g, a


B_T, G, A_T = _matrices((0.0, 1.0, -1.0, 2.0, -0.5))


class _Convolution(torch.autograd.Function):
    """(N, C, H, W), (O, C, 3, 3) -> (N, O, H, W). Its gradient transposes the same linear maps."""

    @staticmethod
    def forward(ctx: Any, x_NCHW: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x_NCHW, weight)
        x, u_t = x_NCHW.permute(0, 2, 3, 1), _filters(weight).transpose(1, 2)
        y = x.new_empty(*x.shape[:3], len(weight))
        for images in _chunks(x):
            products = torch.bmm(_tiles(x[images]), u_t)
            blocks = _blocks(y[images])
            blocks.copy_((A_T @ products.flatten(1)).view(blocks.shape))
        return y.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, grad_NOHW: Tensor) -> tuple[Tensor | None, Tensor | None]:
        # create_graph=True: it would count as a constant, without a word
        if torch.is_grad_enabled():
            raise RuntimeError("the gradient of Winograd's convolution has no gradient of its own")
        x_NCHW, weight = ctx.saved_tensors
        needs_x, needs_weight = ctx.needs_input_grad
        x, grad_y = x_NCHW.permute(0, 2, 3, 1), grad_NOHW.permute(0, 2, 3, 1).contiguous()
        u = _filters(weight)
        grad_x, grad_u = torch.empty_like(x), torch.zeros_like(u)
        for images in _chunks(x):
            grad_products = (A_T.T @ _blocks(grad_y[images]).reshape(16, -1)).view(
                36, -1, len(weight)
            )
            if needs_weight:  # the tiles anew: they hold 36/16 of the input's numbers
                grad_u.baddbmm_(grad_products.transpose(1, 2), _tiles(x[images]))
            if needs_x:
                _add_tiles(torch.bmm(grad_products, u), grad_x[images])
        grad_weight = (G.T @ grad_u.flatten(1)).view(3, 3, *u.shape[1:]).permute(2, 3, 0, 1)
        grad_x = grad_x.permute(0, 3, 1, 2)
        return grad_x if needs_x else None, grad_weight if needs_weight else None


def _chunks(x_NHWC: Tensor) -> list[slice]:
    size = max(1, CHUNK_BLOCKS * 16 // x_NHWC.shape[1:3].numel())
    return [slice(start, start + size) for start in range(0, len(x_NHWC), size)]


def _blocks(y_nHWO: Tensor) -> Tensor:
    """A view of the 4 x 4 blocks."""
    return y_nHWO.unflatten(2, (-1, 4)).unflatten(1, (-1, 4)).permute(2, 4, 0, 1, 3, 5)


def _filters(weight: Tensor) -> Tensor:
    """G g G^T (36, O, C)."""
    return (G @ weight.permute(2, 3, 0, 1).reshape(9, -1)).view(36, *weight.shape[:2])


def _tiles(x_nHWC: Tensor) -> Tensor:
    """B^T d B (36, T, C). Tile pixels 1 to 4 are a block's own, 0 and 5 its neighbours' or zero."""
    blocks = _blocks(x_nHWC)
    d = x_nHWC.new_empty(6, 6, *blocks.shape[2:])
    d[1:5, 1:5] = blocks
    # above and below, then on both sides
    for tiles, axis in ((d[:, 1:5], 3), (d.transpose(0, 1), 4)):
        before, after = _neighbours(tiles, axis)
        after[0], before[5] = before[4], after[1]
        tiles[0].select(axis - 1, 0).zero_()
        tiles[5].select(axis - 1, -1).zero_()
    return (B_T @ d.view(36, -1)).view(36, -1, x_nHWC.shape[3])


def _add_tiles(v: Tensor, x_nHWC: Tensor) -> None:
    """The transpose of `_tiles`: x is the sum of the tiles that overlap."""
    blocks = _blocks(x_nHWC)
    d = (B_T.T @ v.view(36, -1)).view(6, 6, *blocks.shape[2:])
    for tiles, axis in ((d, 3), (d[1:5].transpose(0, 1), 4)):
        before, after = _neighbours(tiles, axis)
        before[4] += after[0]
        after[1] += before[5]
    blocks.copy_(d[1:5, 1:5])


def _neighbours(tiles: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """All tiles that have a next one along the axis, and those next ones."""
    num_pairs = tiles.shape[axis] - 1
    return tiles.narrow(axis, 0, num_pairs), tiles.narrow(axis, 1, num_pairs)
