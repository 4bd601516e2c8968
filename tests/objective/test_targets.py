"""LeJEPA, SwAV and DINO against their papers' algorithms, written out as loops over samples.

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
from clsweep.objective.targets import DINO, LeJEPA, SwAV, soft_cross_entropy
from clsweep.objective.views import all_pairs, core_pairs, multicrop_pairs
from clsweep.train.loop import train_epoch
from clsweep.train.state import TrialState, new_state
from tests.contracts.combinations import small_config, some_digits
from tests.objective.test_assignment import cross_entropy_reference, sinkhorn_reference
from tests.objective.test_frameworks import (
    TWO,
    D,
    N,
    assert_same_gradient,
    build,
    cos,
    generator,
    images,
    loss_of,
    mean,
    momentum,
    random_views,
)

pytestmark = pytest.mark.usefixtures("one_thread")

K, TAU = 7, 0.1
LEJEPA = {"framework": "lejepa", "loss": "mse", "regularizer": "sigreg", "views": "two"}
MULTICROP: dict[str, Any] = {"pairs": multicrop_pairs(4), "targets": (0, 1)}
PREDICTIONS = [(0, 1), (0, 2), (0, 3), (1, 0), (1, 2), (1, 3)]  # (target, view) of these


def swav(**more: Any) -> Any:
    own = {"sinkhorn_epsilon": 0.05, "sinkhorn_iterations": 3, "swav_queue": 0}
    own |= {"swav_queue_start": 0, "num_prototypes": K, "freeze_epochs": 0}
    return build(SwAV, partial(soft_cross_entropy, tau=TAU), **own | more)


def dino(**more: Any) -> Any:
    own = {"teacher_tau": 0.07, "teacher_tau_start": 0.04, "teacher_tau_epochs": 5}
    own |= {"center_momentum": 0.9, "num_prototypes": K, "freeze_epochs": 0}
    return build(DINO, partial(soft_cross_entropy, tau=TAU), **momentum(**own) | more)


def cosines(z_ND: Tensor, rows_KD: Tensor) -> Tensor:
    return torch.stack([torch.stack([cos(z_D, row) for row in rows_KD]) for z_D in z_ND])


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
def test_lejepa_predicts_the_mean_of_the_targets(
    pairs: Any, targets: tuple[int, ...], centres: tuple[int, ...]
) -> None:
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


def test_lejepa_with_sigreg_is_the_total_of_its_paper() -> None:
    """(1 - lambda) prediction + lambda mean over views of SIGReg; lightly's loss of the same
    slices.
    """
    from lightly.loss.lejepa_loss import LeJEPALoss

    z = random_views(4)
    regularizer = partial(sigreg, num_slices=6, sigreg_points=17, sigreg_t_max=5.0)
    objective = build(
        LeJEPA, losses.mse, **MULTICROP, regularizer=regularizer, of_all_views=True, lam=0.05
    )
    prepared = objective.prepare({"online": z}, generator(3))
    seed = int(prepared["seed"][0])
    theirs = LeJEPALoss(0.05, sigreg_t_max=5.0, sigreg_num_vectors=6).double()
    slices = torch.randn(6, D, generator=generator(seed)).double()
    theirs.sigreg._generate_unit_vectors = lambda *_: F.normalize(slices, dim=1).T
    expected = theirs(local_proj=torch.stack([z[2], z[3]]), global_proj=torch.stack([z[0], z[1]]))
    torch.testing.assert_close(
        objective.loss(prepared).total, expected, rtol=1e-6, atol=1e-8
    )  # its points are of float32


def test_the_regularizer_draws_alike_for_one_step_and_anew_for_the_next() -> None:
    """And alike where an epoch begins again."""
    z, regularizer = random_views(), partial(sigreg, num_slices=4)

    def values(seed: int) -> list[float]:
        objective = build(SimCLR, regularizer=regularizer, of_all_views=True, lam=0.5)
        objective.begin_epoch(0, seed)
        first, second = (objective.prepare({"online": z}, generator()) for _ in range(2))
        return [objective.loss(e).regularizer.item() for e in (first, first, second)]

    first = values(1)
    assert first[0] == first[1] != first[2]
    assert values(1) == first
    assert not {*first} & {*values(2)}


def test_each_epoch_and_seed_of_a_trial_has_draws_of_its_own() -> None:
    def slices(seed: int, num_epochs: int) -> int:
        config = small_config(LEJEPA, seed=seed)
        state = new_state(config, torch.device("cpu"))
        for _ in range(num_epochs):
            train_epoch(state, state.objective, some_digits(16), config)
        return int(state.objective.comparison.draw()["seed"][0])

    found = [slices(0, 1), slices(0, 2), slices(1, 1)]
    assert len(set(found)) == 3
    assert slices(0, 2) == found[1]


def test_the_regularizers_draws_leave_the_negatives_alone() -> None:
    """With a weight of 0 it is the baseline bit for bit, also where negatives are drawn."""
    shared = generator()
    regularizer = partial(sigreg, num_slices=4)
    objective = build(SimCLR, regularizer=regularizer, of_all_views=True, lam=0.5)
    objective.prepare({"online": random_views()}, shared)
    assert torch.equal(shared.get_state(), generator().get_state())


# SwAV.


@pytest.mark.parametrize("pair_of", [{}, MULTICROP], ids=["two", "multicrop"])
def test_swav_predicts_the_codes_of_the_global_views(pair_of: dict[str, Any]) -> None:
    """Eq. 1-3 and Algorithm 1 of the paper's appendix: the mean over targets and other views."""
    objective, predictions = swav(**pair_of), PREDICTIONS if pair_of else [(0, 1), (1, 0)]
    z, rows_KD = random_views(4 if pair_of else 2), objective.prototypes.weight
    torch.testing.assert_close(rows_KD.norm(dim=1), torch.ones(K, dtype=torch.float64))
    scores = {view: cosines(z_ND, rows_KD) for view, z_ND in z.items()}
    codes = {view: sinkhorn_reference(scores[view].detach(), 0.05, 3) for view in (0, 1)}
    terms = [cross_entropy_reference(scores[v], codes[i], TAU) for i, v in predictions]
    # the prototypes have no gradient through their own length, which is 1 before a step
    inputs = [*z.values()]
    assert_same_gradient(loss_of(objective, online=z), mean(terms), *inputs)


def test_prototypes_of_swav_are_normalised_after_every_step() -> None:
    objective = swav()
    prepared = objective.prepare({"online": random_views()}, generator())
    with torch.no_grad():
        objective.prototypes.weight.mul_(3.0)
    direction = F.normalize(objective.prototypes.weight.detach(), dim=1)
    objective.after_step(prepared, 0.5, generator())
    torch.testing.assert_close(objective.prototypes.weight.detach(), direction)


def test_the_gradient_of_swavs_prototypes_is_of_their_products() -> None:
    """The authors' layer is linear: d loss / d c_k = sum of d loss / d s_nk x z_n."""
    objective, z = swav(), random_views()
    loss = loss_of(objective, online=z)
    (grad_KD,) = torch.autograd.grad(loss, objective.prototypes.weight)
    expected = torch.zeros(K, D, dtype=torch.float64)
    units = {view: F.normalize(x.detach(), dim=1) for view, x in z.items()}
    rows_KD = objective.prototypes.weight.detach()
    for target, view in ((0, 1), (1, 0)):
        codes = sinkhorn_reference(units[target] @ rows_KD.T, 0.05, 3)
        p_NK = torch.softmax(units[view] @ rows_KD.T / TAU, dim=1)
        for n in range(N):
            for k in range(K):
                expected[k] += (p_NK[n, k] - codes[n, k]) / TAU / N / 2 * units[view][n]
    torch.testing.assert_close(grad_KD, expected)


def test_swavs_queue_shares_the_assignment_once_it_is_full() -> None:
    """3.2: only the codes of the batch are used; the queue of a view holds its own projections."""
    objective, g = swav(swav_queue=2 * N - 1, swav_queue_start=2), generator()
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
def test_dino_predicts_the_teachers_centred_sharpened_scores(pair_of: dict[str, Any]) -> None:
    """Eq. 1-3 with the centre of Eq. 4: the teacher's temperature is that of the epoch."""
    objective, predictions = dino(**pair_of), PREDICTIONS if pair_of else [(0, 1), (1, 0)]
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
    actual = loss_of(objective, online=z, target=target)
    assert_same_gradient(actual, mean(terms), *z.values(), weight)


def test_lightlys_dino_loss_and_centre_agree() -> None:
    from lightly.loss import DINOLoss

    objective, z = dino(**MULTICROP, teacher_tau_epochs=0), random_views(4)
    teacher = {view: x.detach() for view, x in random_views(2, seed=9).items()}
    theirs = DINOLoss(K, teacher_temp=0.07, warmup_teacher_temp_epochs=0).double()
    for _ in range(3):  # the centre moves
        prepared = objective.prepare({"online": z, "target": teacher}, generator())
        student = [prepared["scores"][view] for view in range(4)]
        expected = theirs([prepared["logits"][view] for view in (0, 1)], student)
        torch.testing.assert_close(objective.loss(prepared).total, expected)
        objective.after_step(prepared, 0.5, generator())
        torch.testing.assert_close(objective.centre_K, theirs.center[0, 0])
    assert objective.centre_K.abs().max() > 1e-3


def test_the_teachers_temperature_rises_linearly_and_stays() -> None:
    """The authors' np.linspace(start, end, epochs), then the end."""
    objective = dino(teacher_tau_epochs=4)
    expected = [0.04, 0.05, 0.06, 0.07, 0.07, 0.07]
    assert [objective.teacher_tau_at(epoch) for epoch in range(6)] == pytest.approx(expected)
    assert dino(teacher_tau_epochs=1).teacher_tau_at(0) == 0.04
    assert dino(teacher_tau_epochs=0).teacher_tau_at(0) == 0.07


def test_the_teacher_is_a_copy_of_the_student_that_follows_all_of_it() -> None:
    objective = dino()
    own = [p for module in objective.followed for p in module.parameters()]
    copies = list(objective.target.parameters())
    assert all(torch.equal(a, b) for a, b in zip(own, copies, strict=True))
    assert not any(p.requires_grad for p in copies)
    with torch.no_grad():
        for p in own:
            p.add_(1.0)
    prepared = objective.prepare(objective(images()), generator())
    expected = [0.9 * b + 0.1 * a for a, b in zip(own, copies, strict=True)]
    objective.after_step(prepared, 0.5, generator())
    torch.testing.assert_close(copies, expected)


def test_dino_encodes_what_it_needs_and_no_more() -> None:
    for pairs, targets, online, target in (
        (TWO, (0, 1), {0, 1}, {0, 1}),
        (multicrop_pairs(4), (0, 1), {0, 1, 2, 3}, {0, 1}),
        (core_pairs(3), (0,), {1, 2}, {0}),
    ):
        e = dino(pairs=pairs, targets=targets)(images(max(max(p) for p in pairs) + 1))
        assert (set(e["online"]), set(e["target"])) == (online, target)


def test_dinos_head_has_gelu_and_weights_of_length_one() -> None:
    objective, z = dino(), random_views()
    kinds = [type(module).__name__ for module in objective.projector]
    assert kinds == ["Linear", "GELU", "Linear"]
    before = objective.prepare({"online": z, "target": z}, generator())["scores"][0]
    with torch.no_grad():
        objective.prototypes.weight.mul_(5.0)
    after = objective.prepare({"online": z, "target": z}, generator())["scores"][0]
    torch.testing.assert_close(before, after)
    assert before.abs().max() <= 1.0


# In training.


def trained(framework: str, epochs: int, **changes: Any) -> TrialState:
    parts = {"loss": "soft_cross_entropy", "regularizer": "none", "views": "two"}
    config = small_config({"framework": framework, **parts}, epochs=3, weight_decay=0.1, **changes)
    state = new_state(config, torch.device("cpu"))
    for _ in range(epochs):
        train_epoch(state, state.objective, some_digits(67), config)
    return state


@pytest.mark.parametrize("framework", ["swav", "dino"])
@pytest.mark.parametrize("optimizer", ["sgd", "lars", "adamw"])
def test_frozen_prototypes_do_not_move_at_all_and_then_learn(
    framework: str, optimizer: str
) -> None:
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


def test_the_epoch_of_a_trial_is_told_to_its_objective() -> None:
    state = trained("dino", 3)
    assert state.objective.epoch == 2  # the last one, counted from 0
    assert math.isclose(state.objective.teacher_tau_at(state.objective.epoch), 0.07)
