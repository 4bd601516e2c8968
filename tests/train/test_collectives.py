"""The global batch norm of one worker against torch's. That any number of workers train as one is
of tests/contracts/test_world_size.py.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from clsweep.train.collectives import GlobalBatchNorm

pytestmark = pytest.mark.usefixtures("one_thread")


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(dtype)


@pytest.mark.parametrize("tracked", [True, False])
def test_half_types_go_through_the_global_batch_norm_as_through_torchs(tracked):
    """Autocast gives it bf16. Statistics are float32: a mean ten times the spread must not cost
    more digits.
    """
    x = (10 + random(64, 8, 4, 4, seed=0)).bfloat16()
    ours, torchs = (
        kind(8, track_running_stats=tracked) for kind in (GlobalBatchNorm, nn.BatchNorm2d)
    )
    y, expected = ours(x), torchs(x)
    assert y.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(y, expected, rtol=0.02, atol=0.02)
    if tracked:
        torch.testing.assert_close(ours.running_mean, torchs.running_mean)
        torch.testing.assert_close(ours.running_var, torchs.running_var, rtol=1e-4, atol=1e-4)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": Tensor.contiguous,
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "neither": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "flat": lambda x: x.mean((2, 3)),
}


@pytest.mark.parametrize(
    ("dtype", "affine"), [(torch.float32, True), (torch.float64, False), (torch.bfloat16, True)]
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_the_global_batch_norm_are_torchs_in_every_layout(layout, affine, dtype):
    is_half, is_flat = dtype == torch.bfloat16, layout == "flat"
    x, grad = (
        LAYOUTS[layout](shift + scale * random(6, 5, 4, 7, seed=seed)).to(dtype)
        for seed, scale, shift in ((0, 3, 2), (1, 1, 0))
    )
    if layout == "neither":
        grad = grad.mean((2, 3), keepdim=True).expand_as(x)  # as that of a mean over the map
    made = GlobalBatchNorm, nn.BatchNorm1d if is_flat else nn.BatchNorm2d
    grads = []
    for kind, at in zip(made, (dtype, torch.float64), strict=True):
        norm = kind(5, affine=affine, dtype=torch.float32 if is_half and at == dtype else at)
        with torch.no_grad():
            for i, p in enumerate(norm.parameters()):
                p.copy_(1 + 0.5 * random(5, seed=2 + i))
        leaf = x.detach().to(at).requires_grad_()
        norm(leaf).backward(grad.to(at))
        grads.append([leaf.grad, *(p.grad for p in norm.parameters())])
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}.get(dtype, 0.01)
    assert [g.dtype for g in grads[0][1:]] == [torch.float32 if is_half else dtype] * 2 * affine
    for actual, expected in zip(*grads, strict=True):
        scale = expected.abs().max()
        torch.testing.assert_close(
            actual.double() / scale, expected / scale, rtol=0, atol=tolerance
        )


def test_the_gradient_of_the_global_batch_norm_has_none_of_its_own():
    """It would count as a constant, without a word."""
    x = random(4, 3, 2, 2, seed=0, dtype=torch.float32).requires_grad_()
    (first,) = torch.autograd.grad(GlobalBatchNorm(3)(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
