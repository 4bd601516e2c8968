"""The schedule and the optimiser against formulas written out by hand."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from clsweep.catalog import PARAM
from clsweep.train.optim import build_optimizer, build_schedule, cosine, lr_at, peak_lr

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
        | {
            "sgd_momentum": 0.9,
            "lars_trust": 0.02,
            "lars_clip": False,
            "adam_beta1": 0.8,
            "adam_beta2": 0.95,
        }
        | {"decay_exclude": "norm_bias"}
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
    actual = [
        lr_at(step, peak=3.0, num_steps=8, num_warmup_steps=0, schedule=cosine) for step in range(8)
    ]
    assert actual[0] == 3.0
    assert actual[4] == pytest.approx(1.5, rel=1e-12)
    assert actual[7] == pytest.approx(1.5 * (1 + math.cos(math.pi * 7 / 8)), rel=1e-12)
    assert actual == sorted(actual, reverse=True)


def test_lr_warms_up_to_the_peak_and_then_falls() -> None:
    """4 warm-up steps of 12, peak 2: quarters of the peak, then a cosine over the other 8."""
    actual = [
        lr_at(step, peak=2.0, num_steps=12, num_warmup_steps=4, schedule=cosine)
        for step in range(12)
    ]
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
        actual = lr_at(step, peak=0.7, num_steps=10, num_warmup_steps=0, schedule=cosine)
        assert actual == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        optimizer.step()
        schedule.step()


def test_the_default_is_to_the_last_bit_what_it_was_without_a_choice() -> None:
    def former(step: int, peak: float, num_steps: int, num_warmup_steps: int) -> float:
        if step < num_warmup_steps:
            return peak * (step + 1) / num_warmup_steps
        progress = (step - num_warmup_steps) / (num_steps - num_warmup_steps)
        return peak * 0.5 * (1 + math.cos(math.pi * progress))

    schedule = build_schedule({"lr_schedule": PARAM["lr_schedule"].default})
    for peak, num_steps, warmup in ((0.3, 97, 0), (0.0123, 1000, 31), (7.7, 13, 12)):
        actual = [
            lr_at(step, peak=peak, num_steps=num_steps, num_warmup_steps=warmup, schedule=schedule)
            for step in range(num_steps)
        ]
        assert actual == [former(step, peak, num_steps, warmup) for step in range(num_steps)]


PER_EPOCH, EPOCHS, WARMUP = 7, 20, 2


@pytest.mark.parametrize(
    ("chosen", "torchs"),
    [
        ({"lr_schedule": "constant"}, lambda o, _: lr_scheduler.ConstantLR(o, 1.0, 1)),
        ({"lr_schedule": "linear"}, lambda o, n: lr_scheduler.LinearLR(o, 1.0, 0.0, n)),
        ({"lr_schedule": "cosine"}, lambda o, n: lr_scheduler.CosineAnnealingLR(o, n)),
    ],
    ids=["constant", "linear", "cosine"],
)
def test_schedules_are_torchs_after_a_warm_up(
    chosen: dict[str, Any], torchs: Callable[[Any, int], Any]
) -> None:
    num_steps, num_warmup = EPOCHS * PER_EPOCH, WARMUP * PER_EPOCH
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.7)
    reference = torchs(optimizer, num_steps - num_warmup)
    for step in range(num_steps):
        actual = lr_at(
            step,
            peak=0.7,
            num_steps=num_steps,
            num_warmup_steps=num_warmup,
            schedule=build_schedule(chosen),
        )
        if step < num_warmup:
            assert actual == pytest.approx(0.7 * (step + 1) / num_warmup, rel=1e-12)
            continue
        assert actual == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        optimizer.step()
        reference.step()


@pytest.mark.parametrize(("shares", "epochs"), [("0.6, 0.8", [12, 16]), ("0.35, 0.55", [7, 11])])
def test_steps_are_torchs_at_whole_epochs(shares: str, epochs: list[int]) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.7)
    reference = lr_scheduler.MultiStepLR(optimizer, epochs, gamma=0.2)
    schedule = build_schedule({"lr_schedule": "step", "lr_milestones": shares, "lr_gamma": 0.2})
    for step in range(EPOCHS * PER_EPOCH):
        actual = lr_at(
            step,
            peak=0.7,
            num_steps=EPOCHS * PER_EPOCH,
            num_warmup_steps=PER_EPOCH,
            schedule=schedule,
        )
        if step >= PER_EPOCH:
            assert actual == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12), step
        optimizer.step()
        if step % PER_EPOCH == PER_EPOCH - 1:
            reference.step()


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


def test_all_parameters_decay_where_none_is_excluded() -> None:
    module = network()
    groups = build_optimizer(module, config(decay_exclude="none")).param_groups
    assert [(len(g["params"]), g["weight_decay"]) for g in groups] == [(7, 0.1), (0, 0.0)]


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


@pytest.mark.parametrize(("trust", "decay"), [(0.02, 0.1), (0.004, 0.0), (5.0, 0.1)])
def test_three_steps_of_lars_that_never_steps_further_than_sgd(trust: float, decay: float) -> None:
    """As solo-learn: the scale is min(trust |p| / (|gradient| + decay |p|) / lr, 1)."""
    velocity: dict[str, Tensor] = {}
    clipped = []

    def update(name: str, p: Tensor, grad: Tensor, step: int) -> Tensor:
        g = grad
        if p.ndim > 1:
            scale = float(trust * p.norm() / (grad.norm() + decay * p.norm()) / 0.05)
            clipped.append(scale > 1)
            g = min(scale, 1.0) * (grad + decay * p)
        velocity[name] = 0.9 * velocity[name] + g if step else g
        return p - 0.05 * velocity[name]

    three_steps("lars", update, weight_decay=decay, lars_trust=trust, lars_clip=True)
    assert any(clipped) == (trust == 5.0)


def test_clipped_lars_moves_a_weight_of_zeros_as_sgd_and_none_without_gradient() -> None:
    module = nn.Linear(3, 2, bias=False)
    built = build_optimizer(module, config(optimizer="lars", lars_clip=True, sgd_momentum=0.0))
    for weight, gradient, moved in ((0.0, 1.0, -0.2), (1.0, 0.0, 0.0)):
        nn.init.constant_(module.weight, weight)
        module.weight.grad = torch.full_like(module.weight, gradient)
        built.step()
        torch.testing.assert_close(module.weight.detach(), torch.full((2, 3), weight + moved))


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


@pytest.mark.parametrize("decay_exclude", ["norm_bias", "none"])
def test_three_steps_of_adam(decay_exclude: str) -> None:
    """p = p - lr m / (sqrt v + 1e-8), of gradient + decay p: both means hold the penalty."""
    means: dict[str, tuple[Tensor, Tensor]] = {}

    def update(name: str, p: Tensor, grad: Tensor, step: int) -> Tensor:
        g = grad + (0.1 if p.ndim > 1 or decay_exclude == "none" else 0.0) * p
        m, v = means.get(name, (torch.zeros_like(p), torch.zeros_like(p)))
        m, v = means[name] = 0.8 * m + 0.2 * g, 0.95 * v + 0.05 * g**2
        m, v = m / (1 - 0.8 ** (step + 1)), v / (1 - 0.95 ** (step + 1))
        return p - 0.05 * m / (v.sqrt() + 1e-8)

    three_steps("adam", update, decay_exclude=decay_exclude)


@pytest.mark.parametrize(
    ("name", "torchs", "given"),
    [
        ("sgd", torch.optim.SGD, {"momentum": 0.9}),
        ("adam", torch.optim.Adam, {}),
        ("adamw", torch.optim.AdamW, {}),
    ],
)
def test_an_optimiser_is_torchs_to_the_last_bit(
    name: str, torchs: Callable[..., torch.optim.Optimizer], given: dict[str, float]
) -> None:
    """Its state goes through a checkpoint in between."""
    moved = []
    for is_ours in (True, False):
        module = network()

        def make(module: nn.Module = module, is_ours: bool = is_ours) -> torch.optim.Optimizer:
            ours = build_optimizer(module, config(optimizer=name))
            kept = ("params", "lr", "weight_decay", "betas")
            groups = [{k: g[k] for k in kept if k in g} for g in ours.param_groups]
            return ours if is_ours else torchs(groups, fused=True, **given)

        optimizer = make()
        x_NCHW = torch.ones(2, 3, 5, 5, dtype=torch.float64)
        for step in range(4):
            if step == 2:
                state = optimizer.state_dict()
                optimizer = make()
                optimizer.load_state_dict(state)
            optimizer.zero_grad()
            module(x_NCHW * step).square().mean().backward()
            optimizer.step()
        moved.append([p.detach().clone() for p in module.parameters()])
    torch.testing.assert_close(*moved, rtol=0, atol=0)
