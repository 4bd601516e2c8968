"""Weights that are cast at once, beside autocast's own casts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from clsweep.model.encoders import resnet18
from clsweep.model.half_weights import half_weights
from tests.operations import Operations

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")


class Doubled(nn.Linear):
    """A layer of the user's own, which does more with its weight."""

    def forward(self, x_ND: Tensor) -> Tensor:
        assert self.weight.dtype == torch.float32
        return super().forward(x_ND) + self.weight.sum()


def small() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, 6),
        Doubled(6, 5),
    )


def spectral() -> nn.Module:
    """Its hook makes the weight anew in every pass."""
    layer = nn.utils.spectral_norm(nn.Conv2d(3, 4, 3))
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(144, 5))


def frozen() -> nn.Module:
    network = small()
    network[0].requires_grad_(False)
    return network


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "small": small, "spectral norm": spectral, "frozen": frozen,
    "resnet18": partial(resnet18, stem="small"),
}  # fmt: skip


def passed(network: nn.Module, *, at_once: bool) -> tuple[dict[str, Tensor], list[str]]:
    """Output, gradients and buffers of a pass in bf16; and the operations of it."""
    x_NCHW = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    with Operations() as seen:
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            if at_once:
                with half_weights([network], CPU):
                    y = network(x_NCHW)
            else:
                y = network(x_NCHW)
        y.float().square().mean().backward()
    grads = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    return {"y": y.detach(), **grads, **dict(network.named_buffers())}, seen.names


@pytest.mark.parametrize("name", NETWORKS)
def test_output_and_gradients_are_autocasts_to_the_last_bit(name):
    torch.manual_seed(0)
    network = NETWORKS[name]().to(memory_format=torch.channels_last)
    plain, ours = (passed(copy.deepcopy(network), at_once=each)[0] for each in (False, True))
    torch.testing.assert_close(ours, plain, rtol=0, atol=0)
    assert {n: x.stride() for n, x in ours.items()} == {n: x.stride() for n, x in plain.items()}


def test_each_way_is_one_operation():
    """The input, and the gradient of what leaves, have their own."""
    plain, ours = (passed(resnet18(stem="small"), at_once=each)[1] for each in (False, True))
    assert ours.count("aten::_foreach_copy_") == 2
    assert plain.count("aten::_to_copy") - ours.count("aten::_to_copy") == 2 * 20


def test_afterwards_the_layers_have_their_parameters_also_where_a_pass_fails():
    network = small()
    before = dict(network.named_parameters())
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RuntimeError, match="shape"):
        with_halves(network, torch.zeros(1, 3, 9, 9))
    assert all(p is before[name] for name, p in network.named_parameters())
    assert network[0].weight is before["0.weight"]


def with_halves(network: nn.Module, x_NCHW: Tensor) -> Tensor:
    with half_weights([network], CPU):
        assert network[0].weight.dtype == torch.bfloat16
        return network(x_NCHW)


def test_without_autocast_nothing_is_cast():
    network = small()
    with half_weights([network], CPU):
        assert network[0].weight is network._modules["0"]._parameters["weight"]
