"""The schedule and the optimiser against formulas written out by hand."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from clsweep.train.optim import build_optimizer, build_schedule, lr_at, peak_lr
from tests.operations import Operations

pytestmark = pytest.mark.usefixtures("one_thread")


def config(**changes: Any) -> dict[str, Any]:
    return {
        "lr": 0.2, "batch_size": 64, "lr_rule": "none", "weight_decay": 0.1, "optimizer": "sgd",
        "sgd_momentum": 0.9, "lars_trust": 0.02, "lars_clip": False, "adam_beta1": 0.8,
        "adam_beta2": 0.95, "decay_exclude": "norm_bias", "grad_clip": 0.0, **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("none", {64: 0.2, 1024: 0.2}), ("sqrt", {64: 0.1, 1024: 0.4}),
     ("linear", {64: 0.05, 256: 0.2, 1024: 0.8})],
)  # fmt: skip
def test_peak_lr(rule, expected):
    actual = {size: peak_lr(config(lr_rule=rule, batch_size=size)) for size in expected}
    assert actual == pytest.approx(expected, rel=1e-12)


PER_EPOCH, EPOCHS, WARMUP = 7, 20, 2


@pytest.mark.parametrize("warmup", [0, WARMUP])
@pytest.mark.parametrize(
    ("name", "torchs"),
    [
        ("constant", lambda o, _: lr_scheduler.ConstantLR(o, 1.0, 1)),
        ("linear", lambda o, n: lr_scheduler.LinearLR(o, 1.0, 0.0, n)),
        ("cosine", lambda o, n: lr_scheduler.CosineAnnealingLR(o, n)),
    ],
)
def test_schedules_are_torchs_after_a_warm_up(name, torchs, warmup):
    num_warmup = warmup * PER_EPOCH
    actual = rates({"lr_schedule": name}, num_warmup)
    assert actual[:num_warmup] == pytest.approx(
        [0.7 * (step + 1) / num_warmup for step in range(num_warmup)], rel=1e-12
    )
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.7)
    reference = torchs(optimizer, EPOCHS * PER_EPOCH - num_warmup)
    for rate in actual[num_warmup:]:
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        optimizer.step()
        reference.step()


def rates(chosen: dict[str, Any], num_warmup: int) -> list[float]:
    """Of all steps of a trial."""
    num_steps = EPOCHS * PER_EPOCH
    given = {"num_steps": num_steps, "num_warmup_steps": num_warmup}
    schedule = build_schedule(chosen)
    return [lr_at(step, peak=0.7, schedule=schedule, **given) for step in range(num_steps)]


@pytest.mark.parametrize(("shares", "epochs"), [("0.6, 0.8", [12, 16]), ("0.35, 0.55", [7, 11])])
def test_steps_are_torchs_at_whole_epochs(shares, epochs):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.7)
    reference = lr_scheduler.MultiStepLR(optimizer, epochs, gamma=0.2)
    chosen = {"lr_schedule": "step", "lr_milestones": shares, "lr_gamma": 0.2}
    for step, rate in enumerate(rates(chosen, PER_EPOCH)):
        if step >= PER_EPOCH:
            assert rate == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12), step
        optimizer.step()
        if step % PER_EPOCH == PER_EPOCH - 1:
            reference.step()


@pytest.mark.parametrize("share", [0.25, 0.9, 1.0])
def test_wsd_is_the_peak_and_then_one_less_a_root(share):
    """Hägele et al. (2024): from step N - D on, D = share N, it is 1 - sqrt((n - (N - D)) / D)."""
    num_warmup = PER_EPOCH if share < 1 else 0
    actual = rates({"lr_schedule": "wsd", "lr_decay_share": share}, num_warmup)
    last, decaying = len(actual), share * len(actual)
    for n, rate in enumerate(actual[num_warmup:], start=num_warmup):
        done = (n - (last - decaying)) / decaying
        expected = 0.7 if n <= last - decaying else 0.7 * (1 - done**0.5)
        assert rate == pytest.approx(expected, rel=1e-10, abs=1e-12), n
    assert sum(rate < 0.7 for rate in actual[num_warmup:]) == pytest.approx(decaying, abs=1.1)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(36, 2), nn.Linear(2, 2)
    )
    module[4].weight.requires_grad_(False)
    return module.double()


@pytest.mark.parametrize(
    ("excluded", "of_vectors", "sizes"), [("norm_bias", 0.0, [2, 5]), ("none", 0.1, [7])]
)
def test_every_trainable_parameter_is_in_one_group_and_only_matrices_decay(
    excluded, of_vectors, sizes
):
    module = network()
    groups = build_optimizer(module, config(decay_exclude=excluded)).param_groups
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    names = {name: decay.get(id(p)) for name, p in module.named_parameters()}
    vectors = ("0.bias", "1.weight", "1.bias", "3.bias", "4.bias")
    frozen = {"4.weight": None}
    assert names == {"0.weight": 0.1, "3.weight": 0.1} | dict.fromkeys(vectors, of_vectors) | frozen
    assert [len(group["params"]) for group in groups] == sizes


@pytest.mark.parametrize(
    ("trust", "decay", "clip"),
    [(0.02, 0.1, False), (0.004, 0.0, True), (5.0, 0.1, True)],
)
def test_three_steps_of_lars(trust, decay, clip):
    """g = trust |p| / (|gradient| + decay |p|) x (gradient + decay p) of weights, decayed or not;
    then as in SGD. Clipped, as solo-learn: the scale over the rate is at most 1.
    """
    plain, clipped = {}, []

    def update(name: str, p: Tensor, grad: Tensor) -> Tensor:
        if p.ndim > 1:
            scale = float(trust * p.norm() / (grad.norm() + decay * p.norm()))
            clipped.append(clip and scale / 0.05 > 1)
            grad = (min(scale / 0.05, 1.0) if clip else scale) * (grad + decay * p)
        plain[name] = 0.9 * plain[name] + grad if name in plain else grad
        return p - 0.05 * plain[name]

    module = network()
    given = {"weight_decay": decay, "lars_trust": trust, "lars_clip": clip, "lr_rule": "linear"}
    built = build_optimizer(module, config(optimizer="lars", **given))
    x_NCHW = torch.randn(5, 3, 5, 5, generator=torch.Generator().manual_seed(1)).double()
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    expected = {name: p.detach().clone() for name, p in trained.items()}
    for _ in range(3):
        built.zero_grad()
        module(x_NCHW).square().mean().backward()
        expected = {name: update(name, p, trained[name].grad) for name, p in expected.items()}
        built.step()
        actual = {name: p.detach() for name, p in trained.items()}
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    assert any(clipped) == (trust == 5.0)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_a_longer_gradient_is_clipped_to_the_norm_of_all_weights_together(name):
    """l > c: g c / (l + 1e-6), l the root of the sum of all squares; else g. Then torch's own step.
    A weight that has no gradient, as a frozen one, counts nothing.
    """
    # Drawn: of constant images the normalised layers have gradients that are rounding alone, and
    # Adam makes steps of whole length of them, on each processor others.
    x_NCHW = torch.randn(
        2, 3, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    lengths, moved = [], []
    for is_ours in (True, False):
        module = network()
        clip = {"grad_clip": 0.5} if is_ours else {"grad_clip": 0.0}
        optimizer = build_optimizer(module, config(optimizer=name, **clip))
        trained = [p for p in module.parameters() if p.requires_grad]
        for size in (3.0, 0.01, 2.0):
            optimizer.zero_grad()
            (size * module(x_NCHW).square().mean()).backward()
            length = math.sqrt(sum(g * g for p in trained for g in p.grad.flatten().tolist()))
            lengths.append(length)
            for p in trained if not is_ours and length > 0.5 else ():
                p.grad *= 0.5 / (length + 1e-6)
            optimizer.step()
        moved.append([p.detach().clone() for p in module.parameters()])
    assert max(lengths) > 0.5 > min(lengths)
    torch.testing.assert_close(*moved, rtol=1e-10, atol=1e-9)


def test_clipped_lars_moves_a_weight_of_zeros_as_sgd_and_none_without_gradient():
    module = nn.Linear(3, 2, bias=False)
    built = build_optimizer(module, config(optimizer="lars", lars_clip=True, sgd_momentum=0.0))
    for weight, gradient, moved in ((0.0, 1.0, -0.2), (1.0, 0.0, 0.0)):
        nn.init.constant_(module.weight, weight)
        module.weight.grad = torch.full_like(module.weight, gradient)
        built.step()
        torch.testing.assert_close(module.weight.detach(), torch.full((2, 3), weight + moved))


@pytest.mark.parametrize(
    ("name", "torchs", "given"),
    [
        ("sgd", torch.optim.SGD, {"momentum": 0.9}),
        ("adam", torch.optim.Adam, {}),
        ("adamw", torch.optim.AdamW, {}),
    ],
)
def test_an_optimiser_is_torchs_to_the_last_bit(name, torchs, given):
    """Its state goes through a checkpoint in between."""
    moved = []
    for is_ours in (True, False):
        module = network()

        def make(module: nn.Module = module, is_ours: bool = is_ours) -> torch.optim.Optimizer:
            ours = build_optimizer(module, config(optimizer=name))
            options = ("params", "lr", "weight_decay", "betas")
            groups = [{k: g[k] for k in options if k in g} for g in ours.param_groups]
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


def operations(name: str, num_layers: int) -> list[list[str]]:
    """Of the first step and of the second, by an optimiser of so many layers on no device."""
    module = nn.Sequential(*(nn.Linear(2, 2) for _ in range(num_layers)))
    built, steps = build_optimizer(module, config(optimizer=name)), []
    for _ in range(2):
        for p in module.parameters():
            p.grad = torch.ones_like(p)
        with Operations() as seen:
            built.step()
        steps.append(seen.names)
    return steps


def test_gradients_of_lars_take_as_many_operations_however_many_weights_there_are():
    """On a GPU each is a launch. Those of the plain step are left out: it is one kernel there."""
    of_sgd = {"aten::mul_", "aten::add_", "aten::clone", "aten::detach"}
    few, many = ([n for n in operations("lars", num)[1] if n not in of_sgd] for num in (2, 9))
    assert few == many
    assert len(few) < 20


def test_all_momenta_begin_as_zeros_in_one_operation():
    first, second = operations("sgd", 5)
    assert [name for name in first if "zero" in name] == ["aten::_foreach_zero_"]
    assert not [name for name in second if "zero" in name or "empty" in name]


def test_momenta_lie_in_memory_as_their_weights():
    """Fused kernels go by that alone."""
    module = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    built = build_optimizer(module, config())
    module(torch.ones(1, 3, 5, 5)).sum().backward()
    built.step()
    assert built.state[module.weight]["momentum_buffer"].stride() == module.weight.stride()
