"""LeJEPA, SwAV and DINO against their papers' algorithms, written out as loops over samples:
Sinkhorn's codes, the loss of predicting them, and the frameworks.

Shapes: N samples, D features, K prototypes.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clsweep.objective import losses
from clsweep.objective.distribution import sigreg
from clsweep.objective.frameworks import SimCLR
from clsweep.objective.targets import DINO, LeJEPA, SwAV, sinkhorn, soft_cross_entropy
from clsweep.objective.views import all_pairs, core_pairs, multicrop_pairs
from clsweep.train.loop import train_epoch
from clsweep.train.state import TrialState, new_state
from tests.contracts.combinations import small_config, some_digits
from tests.objective.built import (
    TWO,
    D,
    K,
    N,
    assert_same_gradient,
    build,
    cos,
    generator,
    loss_of,
    mean,
    random_views,
)
from tests.objective.loops import EXACT, assert_same, value_and_grad

pytestmark = pytest.mark.usefixtures("one_thread")

TAU = 0.1
LEJEPA = {"framework": "lejepa", "loss": "mse", "regularizer": "sigreg", "views": "two"}
MULTICROP: dict[str, Any] = {"pairs": multicrop_pairs(4), "targets": (0, 1)}
PREDICTIONS = [(0, 1), (0, 2), (0, 3), (1, 0), (1, 2), (1, 3)]  # (target, view) of these


def cosines(z_ND: Tensor, rows_KD: Tensor) -> Tensor:
    return torch.stack([torch.stack([cos(z_D, row) for row in rows_KD]) for z_D in z_ND])


# Codes, and the loss of predicting them.


def scores(num_samples: int, num_prototypes: int, *, seed: int = 0) -> Tensor:
    """Cosines."""
    x = torch.rand(num_samples, num_prototypes, generator=generator(seed), dtype=torch.float64)
    return (2 * x - 1).requires_grad_()


def codes(num_samples: int, num_prototypes: int) -> Tensor:
    return torch.softmax(5 * scores(num_samples, num_prototypes, seed=1).detach(), dim=1)


def cross_entropy_reference(scores_NK: Tensor, targets_NK: Tensor, tau: float) -> Tensor:
    """SwAV Eq. 2, of single numbers."""
    total = torch.zeros((), dtype=torch.float64)
    for s_K, q_K in zip(scores_NK, targets_NK, strict=True):
        partition = sum(torch.exp(s / tau) for s in s_K)
        for s, q in zip(s_K, q_K, strict=True):
            total = total - q * torch.log(torch.exp(s / tau) / partition)
    return total / len(scores_NK)


def sinkhorn_reference(scores_NK: Tensor, epsilon: float, iterations: int) -> Tensor:
    """The authors' loop: prototypes as rows, in exponentials, with marginals 1/K and 1/N."""
    q = [[math.exp(float(s) / epsilon) for s in column] for column in scores_NK.T]
    num_prototypes, num_samples = len(q), len(q[0])
    for _ in range(iterations):
        for row in q:
            total = sum(row)
            row[:] = [x / total / num_prototypes for x in row]
        for n in range(num_samples):
            total = sum(row[n] for row in q)
            for row in q:
                row[n] /= total * num_samples
    return torch.tensor(q, dtype=torch.float64).T * num_samples


@pytest.mark.parametrize("size", [(1, 2), (3, 5), (6, 4)])
def test_codes_and_their_loss_are_those_of_the_paper(size):
    for epsilon, iterations in ((0.05, 3), (0.2, 1), (1.0, 10)):
        actual = sinkhorn(scores(*size), epsilon, iterations)
        expected = sinkhorn_reference(scores(*size).detach(), epsilon, iterations)
        torch.testing.assert_close(actual, expected, **EXACT)
        assert not actual.requires_grad
    for tau in (0.05, 0.1, 1.0):
        given = {"targets_NK": codes(*size), "tau": tau}
        expected_loss = partial(cross_entropy_reference, **given)
        assert_same(partial(soft_cross_entropy, **given), expected_loss, scores(*size))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_half_types_are_computed_in_float32_and_a_small_epsilon_overflows_nothing(dtype):
    """exp(1 / 0.001) is no float."""
    given = scores(6, 4).detach().to(dtype).requires_grad_()
    value, grad = value_and_grad(lambda s: soft_cross_entropy(s, codes(6, 4).to(dtype), 0.1), given)
    assert (value.dtype, grad.dtype) == (torch.float32, dtype)
    actual = sinkhorn(given, 0.001, 3)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual.sum(1), torch.ones(6))


@pytest.mark.parametrize(
    ("shapes", "tau", "message"),
    [
        (((4, 3), (4, 2)), 0.1, r"one shape \(N, K\), given \(4, 3\) and \(4, 2\)"),
        (((4,), (4,)), 0.1, r"one shape \(N, K\)"),
        (((0, 3), (0, 3)), 0.1, "at least 1 sample and 2 prototypes"),
        (((4, 1), (4, 1)), 0.1, "at least 1 sample and 2 prototypes"),
        *((((2, 2), (2, 2)), tau, "^tau: expected a value > 0") for tau in (0.0, math.nan)),
    ],
)
def test_what_does_not_fit_is_refused(shapes, tau, message):
    with pytest.raises(ValueError, match=message):
        soft_cross_entropy(*(torch.ones(shape) for shape in shapes), tau=tau)
    if "tau" in message:
        with pytest.raises(ValueError, match=r"^epsilon: expected a value > 0"):
            sinkhorn(scores(2, 2), tau, 3)


# LeJEPA.


@pytest.mark.parametrize(
    ("pairs", "targets", "centres"),
    [
        (TWO, (0, 1), (0, 1)),
        (all_pairs(4), (0, 1, 2, 3), (0, 1, 2, 3)),
        (multicrop_pairs(4), (0, 1), (0, 1)),
        (core_pairs(4), (0,), (0,)),
    ],
    ids=["two", "all", "global", "first"],
)
def test_lejepa_predicts_the_mean_of_the_targets(pairs, targets, centres):
    """Algorithm 2: the mean over views, samples and dimensions."""
    num_views = max(max(pair) for pair in pairs) + 1
    z = random_views(num_views)
    terms = []
    for n in range(N):
        for d in range(D):
            centre = sum(z[view][n, d] for view in centres) / len(centres)
            terms += [(centre - z[view][n, d]) ** 2 for view in range(num_views)]
    objective = build(LeJEPA, losses.mse, pairs=pairs, targets=targets)
    assert_same_gradient(loss_of(objective, online=z), mean(terms), *z.values())


def test_the_regularizer_draws_alike_for_one_step_and_anew_for_the_next():
    """And alike where an epoch begins again; the negatives' generator is left alone."""
    z, regularizer, shared = random_views(), partial(sigreg, num_slices=4), generator()

    def values(seed: int) -> list[float]:
        objective = build(SimCLR, regularizer=regularizer, of_all_views=True, lam=0.5)
        objective.begin_epoch(0, seed)
        first, second = (objective.prepare({"online": z}, shared) for _ in range(2))
        slices = generator(int(first["seed"][0]))
        expected = regularizer(torch.stack([*z.values()]), generator=slices)  # of all views
        assert objective.loss(first).regularizer == expected
        return [objective.loss(e).regularizer.item() for e in (first, first, second)]

    first = values(1)
    assert first[0] == first[1] != first[2]
    assert values(1) == first
    assert not {*first} & {*values(2)}
    assert torch.equal(shared.get_state(), generator().get_state())


def test_each_epoch_and_seed_of_a_trial_has_draws_of_its_own():
    def slices(seed: int, num_epochs: int) -> int:
        config = small_config(LEJEPA, seed=seed)
        state = new_state(config, torch.device("cpu"))
        for _ in range(num_epochs):
            train_epoch(state, state.objective, some_digits(16), config)
        return int(state.objective.comparison.draw()["seed"][0])

    actual = [slices(0, 1), slices(0, 2), slices(1, 1)]
    assert len(set(actual)) == 3
    assert slices(0, 2) == actual[1]


# SwAV.


@pytest.mark.parametrize("pair_of", [{}, MULTICROP], ids=["two", "multicrop"])
def test_swav_predicts_the_codes_of_the_global_views(pair_of):
    """Eq. 1-3 and Algorithm 1 of the paper's appendix: the mean over targets and other views."""
    objective, predictions = build(SwAV, **pair_of), PREDICTIONS if pair_of else [(0, 1), (1, 0)]
    z, rows_KD = random_views(4 if pair_of else 2), objective.prototypes.weight
    torch.testing.assert_close(rows_KD.norm(dim=1), torch.ones(K, dtype=torch.float64))
    # the prototypes have no gradient through their own length, which is 1 before a step
    scores = {
        view: torch.stack([(rows_KD * z_D / z_D.norm()).sum(1) for z_D in z_ND])
        for view, z_ND in z.items()
    }
    codes = {view: sinkhorn_reference(scores[view].detach(), 0.05, 3) for view in (0, 1)}
    terms = [cross_entropy_reference(scores[v], codes[i], TAU) for i, v in predictions]
    assert_same_gradient(loss_of(objective, online=z), mean(terms), *z.values(), rows_KD)


def test_prototypes_of_swav_are_normalised_after_every_step():
    objective = build(SwAV)
    prepared = objective.prepare({"online": random_views()}, generator())
    with torch.no_grad():
        objective.prototypes.weight.mul_(3.0)
    direction = F.normalize(objective.prototypes.weight.detach(), dim=1)
    objective.after_step(prepared, 0.5, generator())
    torch.testing.assert_close(objective.prototypes.weight.detach(), direction)


def test_swavs_queue_shares_the_assignment_once_it_is_full():
    """3.2: only the codes of the batch are used; the queue of a view holds its own projections."""
    objective, g = build(SwAV, swav_queue=2 * N - 1, swav_queue_start=2), generator()
    steps = [random_views(seed=seed) for seed in range(6)]

    def codes_of(e: Any, queued: list[Tensor]) -> Tensor:
        rows_KD = objective.prototypes.weight.detach()
        together = torch.cat([e["unit"][0].detach(), *queued])
        return sinkhorn_reference(together @ rows_KD.T, 0.05, 3)[:N]

    for epoch, step in ((0, 0), (1, 1), (2, 2), (2, 3)):  # it fills from epoch 2 on
        objective.begin_epoch(epoch)
        e = objective.prepare({"online": steps[step]}, g)
        torch.testing.assert_close(e["codes"][0], codes_of(e, []))
        objective.after_step(e, 0.1, g)
    e = objective.prepare({"online": steps[4]}, g)
    latest = [F.normalize(steps[step][0].detach(), dim=1) for step in (2, 3)]
    torch.testing.assert_close(e["codes"][0], codes_of(e, [torch.cat(latest)[1:]]))
    assert (e["codes"][0] - codes_of(e, [])).abs().max() > 1e-3


# DINO.


@pytest.mark.parametrize("pair_of", [{}, MULTICROP], ids=["two", "multicrop"])
def test_dino_predicts_the_teachers_centred_sharpened_scores(pair_of):
    """Eq. 1-3 with the centre of Eq. 4: the teacher's temperature is that of the epoch."""
    objective, predictions = build(DINO, **pair_of), PREDICTIONS if pair_of else [(0, 1), (1, 0)]
    z, teacher = random_views(4 if pair_of else 2), random_views(2, seed=9)
    objective.centre_K.copy_(torch.linspace(-0.2, 0.3, K, dtype=torch.float64))
    with torch.no_grad():
        objective.target[-1].weight.mul_(torch.arange(1.0, K + 1)[:, None]).neg_()
    objective.begin_epoch(2)
    temperature = 0.04 + (0.07 - 0.04) * 2 / 4
    weight, teachers = objective.prototypes.weight, objective.target[-1].weight
    scores = {view: cosines(z_ND, weight) for view, z_ND in z.items()}
    codes = {}
    for view in (0, 1):
        logits = cosines(teacher[view].detach(), teachers) - objective.centre_K
        e = torch.exp(logits / temperature)
        codes[view] = torch.stack([row / sum(row) for row in e])
    terms = [cross_entropy_reference(scores[v], codes[i], TAU) for i, v in predictions]
    target = {view: x.detach() for view, x in teacher.items()}
    prepared = objective.prepare({"online": z, "target": target}, generator())
    assert_same_gradient(objective.loss(prepared).total, mean(terms), *z.values(), weight)
    mean_K = cosines(torch.cat([target[view] for view in (0, 1)]), teachers).detach().mean(0)
    centre_K = 0.9 * objective.centre_K + 0.1 * mean_K
    objective.after_step(prepared, 0.5, generator())
    torch.testing.assert_close(objective.centre_K, centre_K)


def test_the_teachers_temperature_rises_linearly_and_stays():
    """The authors' np.linspace(start, end, epochs), then the end."""
    objective = build(DINO, teacher_tau_epochs=4)
    expected = [0.04, 0.05, 0.06, 0.07, 0.07, 0.07]
    assert [objective.teacher_tau_at(epoch) for epoch in range(6)] == pytest.approx(expected)
    assert build(DINO, teacher_tau_epochs=1).teacher_tau_at(0) == 0.04
    assert build(DINO, teacher_tau_epochs=0).teacher_tau_at(0) == 0.07


def test_dinos_head_has_gelu():
    kinds = [type(module).__name__ for module in build(DINO).projector]
    assert kinds == ["Linear", "GELU", "Linear"]


# In training.


def trained(framework: str, epochs: int, **changes: Any) -> TrialState:
    parts = {"loss": "soft_cross_entropy", "regularizer": "none", "views": "two"}
    config = small_config({"framework": framework, **parts}, epochs=3, weight_decay=0.1, **changes)
    state = new_state(config, torch.device("cpu"))
    for _ in range(epochs):
        train_epoch(state, state.objective, some_digits(67), config)
    return state


@pytest.mark.parametrize(
    ("framework", "optimizer"), [("swav", "sgd"), ("swav", "lars"), ("dino", "adamw")]
)
def test_frozen_prototypes_do_not_move_at_all_and_then_learn(framework, optimizer):
    """Neither by weight decay nor by momentum, as the authors' `grad = None` has it."""
    start, frozen, free = (
        trained(framework, epochs, freeze_epochs=1, optimizer=optimizer)
        .objective.prototypes.weight.detach()
        for epochs in (0, 1, 2)
    )  # fmt: skip
    torch.testing.assert_close(frozen, start, rtol=1e-6, atol=1e-7)  # swav normalises again
    assert (free - frozen).abs().max() > 1e-4
    moved = trained(framework, 1, freeze_epochs=0, optimizer=optimizer)
    assert (moved.objective.prototypes.weight - start).abs().max() > 1e-4
