"""The sigmoid loss against Algorithm 1 of its paper, written out as loops, and as it is trained."""

import math

import pytest
import torch

from clsweep.catalog import COMPONENT, implementation
from clsweep.objective.build import build_objective
from clsweep.objective.sigmoid import Sigmoid
from tests.contracts.combinations import COMBINATIONS, small_config
from tests.objective.loops import EXACT, SIZES, dot, views

pytestmark = pytest.mark.usefixtures("one_thread")


def in_loops(z1_ND, z2_ND, log_t, b):
    total = torch.zeros((), dtype=torch.float64)
    for i, image in enumerate(z1_ND):
        for j, other in enumerate(z2_ND):
            logit = torch.exp(log_t) * dot(image, other) + b
            total = total - torch.log(1 / (1 + torch.exp(-logit if i == j else logit)))
    return total / len(z1_ND)


@pytest.mark.parametrize(("scale", "bias"), [(10.0, -10.0), (1.0, 0.0), (3.7, -2.3)])
@pytest.mark.parametrize("size", SIZES)
def test_value_and_every_gradient_are_those_of_the_paper(size, scale, bias):
    loss, inputs = Sigmoid(sigmoid_scale=scale, sigmoid_bias=bias), views(*size)
    wanted = [
        torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (math.log(scale), bias)
    ]
    expected, actual = in_loops(*inputs, *wanted), loss(*inputs)
    torch.testing.assert_close(actual, expected, **EXACT)
    *of_views, of_scale, of_bias = torch.autograd.grad(actual, [*inputs, *loss.parameters()])
    expected = torch.autograd.grad(expected, [*inputs, *wanted])
    torch.testing.assert_close(of_views, [*expected[:2]], **EXACT)
    own = [x.double() for x in (of_scale, of_bias)]  # in float32, as the parameters are
    torch.testing.assert_close(own, [*expected[2:]], rtol=1e-6, atol=1e-6)
    *_, of_scale, of_bias = torch.autograd.grad(
        loss.double()(*inputs), [*inputs, *loss.parameters()]
    )
    torch.testing.assert_close([of_scale, of_bias], [*expected[2:]], **EXACT)


def test_it_begins_as_in_the_paper_unless_told_otherwise():
    loss = implementation(COMPONENT["loss"]["sigmoid"])()
    assert (loss.log_scale.item(), loss.bias.item()) == (pytest.approx(math.log(10), 1e-7), -10)
    config = small_config(COMBINATIONS["simclr-sigmoid-none-two"], sigmoid_scale=4.0)
    assert build_objective(config).criterion.log_scale.item() == pytest.approx(math.log(4))


def test_far_logits_have_finite_values_and_gradients():
    inputs, loss = views(4, 3, dtype=torch.float32), Sigmoid(sigmoid_scale=1e4)
    value = loss(*inputs)
    gradients = torch.autograd.grad(value, [*inputs, *loss.parameters()])
    assert all(torch.isfinite(x).all() for x in (value, *gradients))


def test_its_scale_must_be_positive():
    with pytest.raises(ValueError, match="sigmoid_scale: expected a value > 0, given 0"):
        Sigmoid(sigmoid_scale=0)
