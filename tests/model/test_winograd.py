"""Winograd's convolution against torch's own: values, gradients, networks, and the inputs that it
leaves alone.
"""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clsweep.model.encoders import conv4, resnet18
from clsweep.model.winograd import CHUNK_BLOCKS, WinogradConv2d, use_winograd

pytestmark = pytest.mark.usefixtures("one_thread")


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def images(num_images: int, channels: int, height: int, width: int) -> Tensor:
    return normal(num_images, channels, height, width).contiguous(memory_format=torch.channels_last)


def convolution(num_in: int = 64, num_out: int = 64, **arguments) -> nn.Conv2d:
    return nn.Conv2d(num_in, num_out, 3, **{"padding": 1, "bias": False} | arguments)


def value_and_gradients(function, *inputs: Tensor) -> list[Tensor]:
    inputs = [x.detach().requires_grad_() for x in inputs]
    y = function(*inputs)
    y.backward(normal(*y.shape).to(y))
    return [y.detach(), *(x.grad for x in inputs)]


def assert_close(ours: Tensor, exact: Tensor, of_scale: float) -> None:
    """The root-mean-square error, as a share of the exact values' standard deviation."""
    assert ours.shape == exact.shape
    assert (ours - exact).square().mean().sqrt() <= of_scale * exact.std()


@pytest.mark.parametrize(
    ("num_images", "num_in", "num_out", "height", "width"),
    [
        (1, 64, 64, 4, 4),  # a single tile, all of whose edge is padding
        (5, 64, 96, 8, 12),
        (CHUNK_BLOCKS // 64 + 1, 96, 64, 32, 32),  # a second, shorter chunk
        (1, 64, 64, 100, 84),  # an image of more blocks than a chunk
    ],
)
def test_value_and_gradients_are_those_of_the_convolution(
    num_images, num_in, num_out, height, width
):
    x_NCHW, weight = images(num_images, num_in, height, width), normal(num_out, num_in, 3, 3)
    ours = use_winograd(convolution(num_in, num_out))
    assert type(ours) is WinogradConv2d

    def forward(x_NCHW: Tensor, weight: Tensor) -> Tensor:
        return torch.func.functional_call(ours, {"weight": weight}, (x_NCHW,))

    actual = value_and_gradients(forward, x_NCHW, weight)
    exact = value_and_gradients(
        lambda x, w: F.conv2d(x, w, padding=1), x_NCHW.double(), weight.double()
    )
    for mine, theirs in zip(actual, exact, strict=True):
        assert_close(mine, theirs, 5e-6)
        assert not torch.equal(mine, theirs.float())  # else nothing was tested
    assert actual[0].is_contiguous(memory_format=torch.channels_last)


def test_only_gradients_that_are_needed():
    ours, x_NCHW = use_winograd(convolution()), images(2, 64, 8, 8)
    both = value_and_gradients(
        lambda x, w: torch.func.functional_call(ours, {"weight": w}, (x,)), x_NCHW, ours.weight
    )
    ours(x_NCHW).backward(normal(2, 64, 8, 8))
    assert torch.equal(ours.weight.grad, both[2])
    ours.requires_grad_(False)
    assert torch.equal(value_and_gradients(ours, x_NCHW)[1], both[1])
    assert torch.equal(ours(x_NCHW), both[0])
    with torch.no_grad():
        assert torch.equal(ours(x_NCHW), both[0])


def test_other_convolutions_stay():
    others: dict[str, list[Any]] = {
        "num_in": [63], "num_out": [32], "stride": [2], "padding": [0, "same"], "dilation": [2],
        "groups": [2], "bias": [True], "padding_mode": ["circular"],
    }  # fmt: skip
    for name, values in others.items():
        for value in values:
            assert type(use_winograd(convolution(**{name: value}))) is nn.Conv2d, name


def test_other_inputs_are_convolved_by_torch():
    theirs = convolution()
    ours = use_winograd(copy.deepcopy(theirs))
    x_NCHW = images(2, 64, 8, 8)
    odd = images(2, 64, 7, 8), images(2, 64, 8, 6)
    for x in (x_NCHW.contiguous(), *odd, images(1, 64, 8, 8)[0], images(0, 64, 8, 8)):
        assert torch.equal(ours(x), theirs(x)), x.shape
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(ours(x_NCHW), theirs(x_NCHW))
    assert torch.equal(ours.double()(x_NCHW.double()), theirs.double()(x_NCHW.double()))


@pytest.mark.parametrize(
    ("build", "num_fast"),
    [
        (lambda: conv4(width=32), 1),
        pytest.param(lambda: resnet18(stem="small"), 13, marks=pytest.mark.slow),
    ],
)
def test_encoders_train_as_with_torchs_convolutions(build, num_fast):
    torch.manual_seed(0)
    theirs = build().to(memory_format=torch.channels_last)
    ours = use_winograd(copy.deepcopy(theirs))
    assert sum(type(module) is WinogradConv2d for module in ours.modules()) == num_fast
    x_NCHW = images(8, 3, 32, 32)
    exact = copy.deepcopy(theirs).double()
    for network, x in ((ours, x_NCHW), (exact, x_NCHW.double())):
        features = network(x)
        features.backward(normal(*features.shape).to(x))
    assert_close(
        ours(x_NCHW).detach(), exact(x_NCHW.double()).detach(), 2e-5
    )  # the second pass of the statistics
    for mine, truth in zip(ours.parameters(), exact.parameters(), strict=True):
        # A ReLU whose input is about zero passes a gradient or not: torch's own float32 is as far
        # away.
        assert_close(mine.grad, truth.grad, 0.05)
    for mine, truth in zip(ours.buffers(), exact.buffers(), strict=True):
        torch.testing.assert_close(mine, truth.to(mine.dtype), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        assert_close(ours.eval()(x_NCHW), exact.eval()(x_NCHW.double()), 2e-5)
