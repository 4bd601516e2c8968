"""The schedule and the optimiser against formulas written out by hand."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clsweep.train.optim import build_optimizer, lr_at, peak_lr

pytestmark = pytest.mark.usefixtures("one_thread")


def config(**changes: Any) -> dict[str, Any]:
    values = {
        "lr": 0.2,
        "batch_size": 64,
        "lr_rule": "none",
        "weight_decay": 0.1,
        "optimizer": "sgd",
    }
    return (
        values
        | {"sgd_momentum": 0.9, "lars_trust": 0.02, "adam_beta1": 0.8, "adam_beta2": 0.95}
        | changes
    )


@pytest.mark.parametrize(
    ("rule", "batch_size", "expected"),
    [
        ("none", 64, 0.2),
        ("none", 1024, 0.2),
        ("sqrt", 64, 0.1),
        ("sqrt", 1024, 0.4),
        ("linear", 64, 0.05),
        ("linear", 256, 0.2),
        ("linear", 1024, 0.8),
    ],
)
def test_peak_lr(rule: str, batch_size: int, expected: float) -> None:
    assert peak_lr(config(lr_rule=rule, batch_size=batch_size)) == pytest.approx(
        expected, rel=1e-12
    )


def test_lr_without_warmup_is_half_a_cosine() -> None:
    actual = [lr_at(step, peak=3.0, num_steps=8, num_warmup_steps=0) for step in range(8)]
    assert actual[0] == 3.0
    assert actual[4] == pytest.approx(1.5, rel=1e-12)
    assert actual[7] == pytest.approx(1.5 * (1 + math.cos(math.pi * 7 / 8)), rel=1e-12)
    assert actual == sorted(actual, reverse=True)


def test_lr_warms_up_to_the_peak_and_then_falls() -> None:
    """4 warm-up steps of 12, peak 2: quarters of the peak, then a cosine over the other 8."""
    actual = [lr_at(step, peak=2.0, num_steps=12, num_warmup_steps=4) for step in range(12)]
    assert actual[:4] == pytest.approx([0.5, 1.0, 1.5, 2.0], rel=1e-12)  # warm-up ends at the peak
    assert actual[4] == pytest.approx(2.0, rel=1e-12)
    assert actual[6] == pytest.approx(1 + math.sqrt(0.5), rel=1e-12)
    assert actual[8] == pytest.approx(1.0, rel=1e-12)  # the middle of the cosine
    assert actual[11] == pytest.approx(
        1 - math.cos(math.pi / 8), rel=1e-12
    )  # the last step still moves


def test_lr_is_torchs_cosine_schedule() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.7)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    for step in range(10):
        actual = lr_at(step, peak=0.7, num_steps=10, num_warmup_steps=0)
        assert actual == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        optimizer.step()
        schedule.step()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(36, 2), nn.Linear(2, 2)
    )
    module[4].weight.requires_grad_(False)
    return module.double()


def test_every_trainable_parameter_is_in_one_group_and_only_matrices_decay() -> None:
    module = network()
    decay = {
        id(p): group["weight_decay"]
        for group in build_optimizer(module, config()).param_groups
        for p in group["params"]
    }
    names = {name: decay.get(id(p)) for name, p in module.named_parameters()}
    assert names == {
        "0.weight": 0.1,
        "0.bias": 0.0,
        "1.weight": 0.0,
        "1.bias": 0.0,
        "3.weight": 0.1,
        "3.bias": 0.0,
        "4.weight": None,  # frozen
        "4.bias": 0.0,
    }
    num_listed = sum(
        len(group["params"]) for group in build_optimizer(module, config()).param_groups
    )
    assert num_listed == len(decay) == 7


def three_steps(
    optimizer: str, update: Callable[[str, Tensor, Tensor, int], Tensor], **changes: Any
) -> None:
    """Three steps beside `update(name, parameter, gradient, step)`, which returns the parameter
    after the step.
    """
    module = network()
    built = build_optimizer(module, config(lr_rule="linear", optimizer=optimizer, **changes))
    x_NCHW = torch.randn(
        5, 3, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    expected = {
        name: p.detach().clone() for name, p in module.named_parameters() if p.requires_grad
    }
    for step in range(3):
        built.zero_grad()
        module(x_NCHW).square().mean().backward()
        grads = {name: p.grad.clone() for name, p in module.named_parameters() if p.requires_grad}
        expected = {name: update(name, p, grads[name], step) for name, p in expected.items()}
        built.step()
        actual = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def test_three_steps_of_sgd() -> None:
    """g = gradient + decay p; v = momentum v + g (v = g at first); p = p - lr v."""
    velocity: dict[str, Tensor] = {}

    def update(name: str, p: Tensor, grad: Tensor, step: int) -> Tensor:
        g = grad + (0.1 if p.ndim > 1 else 0.0) * p
        velocity[name] = 0.9 * velocity[name] + g if step else g
        return p - 0.05 * velocity[name]

    three_steps("sgd", update)


@pytest.mark.parametrize("decay", [0.1, 0.0])
def test_three_steps_of_lars(decay: float) -> None:
    """g = trust |p| / (|gradient| + decay |p|) x (gradient + decay p) of weights, decayed or not;
    then as in SGD.
    """
    velocity: dict[str, Tensor] = {}

    def update(name: str, p: Tensor, grad: Tensor, step: int) -> Tensor:
        g = grad
        if p.ndim > 1:
            g = 0.02 * p.norm() / (grad.norm() + decay * p.norm()) * (grad + decay * p)
        velocity[name] = 0.9 * velocity[name] + g if step else g
        return p - 0.05 * velocity[name]

    three_steps("lars", update, weight_decay=decay)


def test_three_steps_of_adamw() -> None:
    """p = p - lr (decay p + m / (sqrt v + 1e-8)), m and v the means of gradient and its square
    without their bias.
    """
    means: dict[str, tuple[Tensor, Tensor]] = {}

    def update(name: str, p: Tensor, grad: Tensor, step: int) -> Tensor:
        m, v = means.get(name, (torch.zeros_like(p), torch.zeros_like(p)))
        m, v = means[name] = 0.8 * m + 0.2 * grad, 0.95 * v + 0.05 * grad**2
        m, v = m / (1 - 0.8 ** (step + 1)), v / (1 - 0.95 ** (step + 1))
        return p - 0.05 * ((0.1 if p.ndim > 1 else 0.0) * p + m / (v.sqrt() + 1e-8))

    three_steps("adamw", update)
