"""The frameworks against their papers' equations, written out as loops over samples: what is
compared with what.

Most tests give a framework its embeddings by hand, so that no encoder stands between them and the
equation. Shapes: N samples, D features, K negatives of a query.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clsweep.objective import losses
from clsweep.objective.framework import Comparison
from clsweep.objective.frameworks import (
    BYOL,
    NNCLR,
    BarlowTwins,
    MICritic,
    MoCo,
    SimCLR,
    SiMo,
    SimSiam,
    Supervised,
)
from clsweep.objective.views import Pairs, all_pairs, core_pairs, multicrop_pairs
from clsweep.train.images import batches
from clsweep.train.state import new_state
from tests.contracts.combinations import combinations, small_config, some_digits

pytestmark = pytest.mark.usefixtures("one_thread")

N, D, TAU = 6, 5, 0.3
TWO: Pairs = ((0, 1),)
Rows = Sequence[Tensor]


class Flat(nn.Module):
    """A small linear encoder of images of 2 x 2 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.num_features = nn.Linear(12, 7), 7

    def forward(self, x_NCHW: Tensor) -> Tensor:
        features: Tensor = self.layer(x_NCHW.flatten(1))
        return features


def build(
    framework: Any,
    criterion: Callable[..., Tensor] | None = None,
    *,
    pairs: Pairs = TWO,
    seed: int = 0,
    **more: Any,
) -> Any:
    """A framework with a small encoder, float64; what is no argument of a comparison is one of the
    framework.
    """
    names = ("pair_reduction", "regularizer", "lam", "targets", "of_all_views")
    of_comparison = {name: more.pop(name) for name in names if name in more}
    torch.manual_seed(seed)
    comparison = Comparison(
        criterion=criterion or partial(losses.infonce, tau=TAU), pairs=pairs, **of_comparison
    )
    if framework is not Supervised:
        more = {"proj_dim": D, "proj_hidden": 8, "proj_layers": 2} | more
    return framework(encoder=Flat(), comparison=comparison, **more).double()


def momentum(**more: Any) -> dict[str, Any]:
    return {"momentum": 0.9, "momentum_schedule": "constant"} | more


def one_way(**more: Any) -> dict[str, Any]:
    return momentum(symmetric=False) | more


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_views(num_views: int = 2, *, seed: int = 0, dim: int = D) -> dict[int, Tensor]:
    """Raw embeddings of views that are alike, by view; leaves."""
    g = generator(seed)
    base = torch.randn(N, dim, generator=g, dtype=torch.float64)
    return {
        view: (base + torch.randn(N, dim, generator=g, dtype=torch.float64)).requires_grad_()
        for view in range(num_views)
    }


def images(num_views: int = 2) -> list[Tensor]:
    return [
        torch.randn(N, 3, 2, 2, generator=generator(view), dtype=torch.float64)
        for view in range(num_views)
    ]


def loss_of(objective: Any, seed: int = 0, **embeddings: dict[int, Tensor]) -> Tensor:
    total: Tensor = objective.loss(objective.prepare(embeddings, generator(seed))).total
    return total


def cos(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum() / (a.norm() * b.norm())


def one_loss(
    query: Tensor, positive: Tensor, negatives: Rows, *, margin: float = 1.0, tau: float = TAU
) -> Tensor:
    """-log(e^p / (e^p + margin sum e^n)) of one query, from cosines."""
    p = torch.exp(cos(query, positive) / tau)
    return -torch.log(p / (p + margin * sum(torch.exp(cos(query, row) / tau) for row in negatives)))


def mean(terms: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(terms)).mean()


def assert_same_gradient(actual: Tensor, expected: Tensor, *inputs: Tensor) -> None:
    """Value, and gradient in what a framework is given."""
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual, inputs), torch.autograd.grad(expected, inputs)
    )


def rows_of_others(views: Sequence[Tensor], sample: int) -> list[Tensor]:
    return [view[n] for view in views for n in range(N) if n != sample]


# SimCLR.


def test_simclr_contrasts_every_anchor_with_the_other_samples_of_both_views() -> None:
    """DCL Eq. 1-2: 2N anchors, 2(N-1) negatives each."""
    z = random_views()
    expected = mean(
        [
            one_loss(z[a][n], z[1 - a][n], rows_of_others([z[0], z[1]], n))
            for a in (0, 1)
            for n in range(N)
        ]
    )
    assert_same_gradient(loss_of(build(SimCLR), online=z), expected, *z.values())


@pytest.mark.parametrize(
    "criterion",
    [partial(losses.dcl, tau=TAU), partial(losses.dclw, tau=TAU, sigma=0.4), losses.align_uniform],
    ids=["dcl", "dclw", "align_uniform"],
)
def test_simclr_is_the_public_loss_of_normalised_projections(
    criterion: Callable[..., Tensor],
) -> None:
    z = random_views()
    expected = criterion(F.normalize(z[0], dim=1), F.normalize(z[1], dim=1))
    torch.testing.assert_close(loss_of(build(SimCLR, criterion), online=z), expected)


def test_simclr_of_images_is_the_loss_of_its_own_projections() -> None:
    objective, x = build(SimCLR), images()
    by_hand = {view: objective.projector(objective.encoder(x[view])) for view in (0, 1)}
    assert objective(x).keys() == {"online"}
    torch.testing.assert_close(
        loss_of(objective, **objective(x)), loss_of(objective, online=by_hand)
    )


@pytest.mark.parametrize("num_negatives", [1, 4, 2 * (N - 1)])
def test_simclr_with_eqco_draws_other_samples_for_every_anchor(num_negatives: int) -> None:
    """EqCo 2.3: K of the 2(N-1) others, without repeats, weighed by alpha / K."""
    alpha, z = 64.0, random_views()
    objective = build(
        SimCLR, partial(losses.eqco, tau=TAU, alpha=alpha), num_negatives=num_negatives
    )
    prepared = objective.prepare({"online": z}, generator(1))
    both, terms = torch.cat([z[0], z[1]]), []
    for view in (0, 1):
        index_NK = drawn(prepared, view, 2)
        assert_other_samples(index_NK, num_negatives, num_views=2)
        for n in range(N):
            negatives = [both[row] for row in index_NK[n]]
            terms.append(
                one_loss(z[view][n], z[1 - view][n], negatives, margin=alpha / num_negatives)
            )
    assert_same_gradient(objective.loss(prepared).total, mean(terms), *z.values())
    if num_negatives == 4:
        assert not torch.equal(prepared["index"][0], prepared["index"][1])


def drawn(prepared: Any, view: int, num_views: int) -> Tensor:
    """The rows of (views x samples) that are an anchor view's negatives; none are drawn where all
    are taken.
    """
    if prepared["index"]:
        index_NK: Tensor = prepared["index"][view]
        return index_NK
    return torch.tensor(
        [
            [v * N + other for v in range(num_views) for other in range(N) if other != n]
            for n in range(N)
        ]
    )


def assert_other_samples(index_NK: Tensor, num_negatives: int, *, num_views: int) -> None:
    """For every sample so many distinct rows of (views x samples), none of which is its own."""
    assert index_NK.shape == (N, num_negatives)
    for n, row in enumerate(index_NK.tolist()):
        assert len(set(row)) == num_negatives
        assert set(row) <= {
            v * N + other for v in range(num_views) for other in range(N) if other != n
        }


# MoCo.


def filled_moco(num_negatives: int = 9, **more: Any) -> Any:
    return build(MoCo, **momentum(num_negatives=num_negatives, symmetric=False, **more))


def test_moco_contrasts_queries_with_their_keys_and_the_queue() -> None:
    objective, z, keys = filled_moco(), random_views(), random_views(seed=1)
    queue = list(objective.queue.rows_KD)
    expected = mean([one_loss(z[0][n], keys[1][n], queue) for n in range(N)])
    actual = loss_of(objective, online={0: z[0]}, target={1: keys[1]})
    assert_same_gradient(actual, expected, z[0])


def test_moco_with_eqco_weighs_the_queue_as_alpha_keys() -> None:
    alpha, z, keys = 100.0, random_views(), random_views(seed=1)
    criterion = partial(losses.eqco, tau=TAU, alpha=alpha)
    objective = build(MoCo, criterion, **momentum(num_negatives=9, symmetric=False))
    queue = list(objective.queue.rows_KD)
    expected = mean([one_loss(z[0][n], keys[1][n], queue, margin=alpha / 9) for n in range(N)])
    actual = loss_of(objective, online={0: z[0]}, target={1: keys[1]})
    assert_same_gradient(actual, expected, z[0])


def test_moco_symmetric_is_the_mean_of_both_directions_and_queues_both_views() -> None:
    z, keys = random_views(), random_views(seed=1)
    objective = build(MoCo, **momentum(num_negatives=2 * N + 3, symmetric=True))
    queue = list(objective.queue.rows_KD.clone())
    there, back = (
        mean([one_loss(z[a][n], keys[1 - a][n], queue) for n in range(N)]) for a in (0, 1)
    )
    prepared = objective.prepare({"online": z, "target": keys}, generator())
    assert_same_gradient(objective.loss(prepared).total, (there + back) / 2, *z.values())
    objective.after_step(prepared, 0.5, generator())
    expected = torch.cat(
        [F.normalize(keys[0], dim=1), F.normalize(keys[1], dim=1), torch.stack(queue[-3:])]
    )
    torch.testing.assert_close(objective.queue.rows_KD, expected)


def test_moco_encodes_what_it_needs_and_no_more() -> None:
    """Queries are the first views of the pairs, keys the second ones; a regularizer changes none of
    it.
    """
    kinds: dict[str, tuple[dict[str, Any], set[int], set[int]]] = {
        "two": ({"symmetric": False}, {0}, {1}),
        "symmetric": ({"symmetric": True}, {0, 1}, {0, 1}),
        "regularized": ({"symmetric": False, "regularizer": losses.barlow, "lam": 0.1}, {0}, {1}),
        "core": ({"symmetric": False, "pairs": core_pairs(4)}, {0}, {1, 2, 3}),
        "multicrop": ({"symmetric": False, "pairs": multicrop_pairs(4)}, {0, 1}, {1, 2, 3}),
        "all": ({"symmetric": False, "pairs": all_pairs(4)}, {0, 1, 2}, {1, 2, 3}),
        "all, symmetric": ({"symmetric": True, "pairs": all_pairs(4)}, {0, 1, 2, 3}, {0, 1, 2, 3}),
    }
    for name, (arguments, online, target) in kinds.items():
        objective = build(MoCo, **momentum(num_negatives=4, **arguments))
        views = images(max(online | target) + 1)
        embeddings = objective(views)
        assert (set(embeddings["online"]), set(embeddings["target"])) == (online, target), name
        for view in target:
            encoder, projector = objective.target
            torch.testing.assert_close(embeddings["target"][view], projector(encoder(views[view])))


def test_moco_queue_is_first_in_first_out_and_wraps_around() -> None:
    """Against a list: after every step the memory holds the latest K keys; the batch is not among
    its own negatives.
    """
    size = 2 * N + 1
    objective = filled_moco(size)
    latest = list(objective.queue.rows_KD.clone())
    for step in range(5):
        z, keys = random_views(seed=step), random_views(seed=50 + step)
        prepared = objective.prepare({"online": {0: z[0]}, "target": {1: keys[1]}}, generator())
        expected = mean([one_loss(z[0][n], keys[1][n], latest) for n in range(N)])
        torch.testing.assert_close(objective.loss(prepared).total, expected)
        objective.after_step(prepared, 0.5, generator())
        latest = [*latest, *F.normalize(keys[1].detach(), dim=1)][-size:]
        assert sorted_rows(objective.queue.rows_KD) == sorted_rows(latest)


def sorted_rows(rows: Any) -> list[list[float]]:
    return sorted(torch.as_tensor(row).tolist() for row in rows)


def test_moco_with_a_queue_smaller_than_the_batch_keeps_random_distinct_keys_of_it() -> None:
    """EqCo 2.3, K < N."""
    objective, kept = filled_moco(4), set()
    keys = F.normalize(random_views(seed=1)[1].detach(), dim=1)
    for seed in range(60):
        prepared = objective.prepare({"online": {0: keys}, "target": {1: keys}}, generator())
        objective.after_step(prepared, 0.5, generator(seed))
        rows = [
            next(n for n in range(N) if torch.allclose(row, keys[n], atol=1e-12))
            for row in objective.queue.rows_KD
        ]
        assert len(set(rows)) == 4
        kept.add(frozenset(rows))
    assert kept == {frozenset(rows) for rows in itertools.combinations(range(N), 4)}, (
        "any of the batch, no few of them"
    )


@pytest.mark.parametrize("framework", ["moco", "simo"])
def test_shuffled_keys_and_queries_are_grouped_differently(framework: str) -> None:
    """MoCo 3.3: a group's embeddings are what the network makes of that group and view alone."""
    parts = {"framework": framework, "loss": "infonce", "regularizer": "none", "views": "two"}
    changes = {"key_norm": "shuffle", "norm_group": 4, "symmetric": True}
    objective = new_state(small_config(parts, **changes), torch.device("cpu")).objective.train()
    plain = new_state(small_config(parts), torch.device("cpu")).objective.train()
    g = generator()
    views = [torch.randn(16, 3, 8, 8, generator=g) for _ in range(2)]
    e = objective(views)
    for view, x in enumerate(views):
        for group in range(4):
            near, far = slice(4 * group, 4 * group + 4), slice(group, None, 4)
            expected = plain.projector(plain.encoder(x[near]))
            torch.testing.assert_close(e["online"][view][near], expected, rtol=1e-4, atol=1e-5)
            expected = plain.projector(plain.encoder(x[far]))  # the copy's weights are the same
            torch.testing.assert_close(e["target"][view][far], expected, rtol=1e-4, atol=1e-5)


def test_one_group_of_the_whole_batch_is_batch_norm_over_it() -> None:
    parts = {"framework": "moco", "loss": "infonce", "regularizer": "none", "views": "two"}
    views = [torch.randn(16, 3, 8, 8, generator=generator(view)) for view in range(2)]
    shuffled, plain = (
        new_state(small_config(parts, **changes), torch.device("cpu")).objective.train()(views)
        for changes in ({"key_norm": "shuffle", "norm_group": 16}, {})
    )
    torch.testing.assert_close(shuffled["online"][0], plain["online"][0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(shuffled["target"][1], plain["target"][1], rtol=1e-4, atol=1e-5)


def test_moco_v1_has_one_linear_layer() -> None:
    objective = filled_moco(proj_layers=1)
    assert [type(module) for module in objective.projector] == [nn.Linear]


# SiMo.


@pytest.mark.parametrize("num_negatives", [1, 3, N - 1])
def test_simo_contrasts_queries_with_other_samples_keys_of_this_batch(num_negatives: int) -> None:
    alpha, z, keys = 50.0, random_views(), random_views(seed=1)
    objective = build(
        SiMo, partial(losses.eqco, tau=TAU, alpha=alpha), **one_way(num_negatives=num_negatives)
    )
    prepared = objective.prepare({"online": {0: z[0]}, "target": {1: keys[1]}}, generator(2))
    index_NK = drawn(prepared, 1, 1)
    assert_other_samples(index_NK, num_negatives, num_views=1)
    expected = mean(
        [
            one_loss(
                z[0][n],
                keys[1][n],
                [keys[1][row] for row in index_NK[n]],
                margin=alpha / num_negatives,
            )
            for n in range(N)
        ]
    )
    assert_same_gradient(objective.loss(prepared).total, expected, z[0])
    assert not [name for name, _ in objective.named_buffers() if "rows" in name], "no queue"


def test_simo_draws_afresh_at_every_step_and_for_every_key_view() -> None:
    objective = build(SiMo, pairs=core_pairs(3), **one_way(num_negatives=2))
    z, draws, g = random_views(3), [], generator()
    for _ in range(3):
        prepared = objective.prepare({"online": {0: z[0]}, "target": {1: z[1], 2: z[2]}}, g)
        draws += [prepared["index"][view].sort(dim=1).values for view in (1, 2)]
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(draws, 2))


def test_drawn_negatives_are_uniform() -> None:
    """Each of the other samples is drawn as often as any other; 6 standard deviations."""
    objective, g, times = build(SiMo, **one_way(num_negatives=2)), generator(), 2000
    keys, counts = {1: random_views()[1].detach()}, torch.zeros(N, N)
    for _ in range(times):
        index_NK = objective.prepare({"online": {0: keys[1]}, "target": keys}, g)["index"][1]
        counts.scatter_add_(1, index_NK, torch.ones(index_NK.shape))
    share = 2 / (N - 1)
    expected = share * times * (1 - torch.eye(N))
    assert (counts - expected).abs().max() < 6 * math.sqrt(times * share * (1 - share))


# BYOL.


def test_byol_compares_predictions_with_the_targets_of_the_other_view() -> None:
    p, t = random_views(), random_views(seed=1)
    objective = build(BYOL, losses.cosine, pred_hidden=4, **momentum())
    expected = mean([-cos(p[a][n], t[1 - a][n]) for a in (0, 1) for n in range(N)])
    actual = loss_of(objective, online=random_views(seed=2), predicted=p, target=t)
    assert_same_gradient(actual, expected, *p.values())


def test_byol_forward_predicts_from_projections_and_targets_from_the_momentum_copy() -> None:
    objective, x = build(BYOL, losses.cosine, pred_hidden=4, **momentum()).eval(), images()
    with torch.no_grad():
        for p in objective.target.parameters():
            p.mul_(0.5)
    embeddings = objective(x)
    encoder, projector = objective.target
    for view in (0, 1):
        online = objective.projector(objective.encoder(x[view]))
        torch.testing.assert_close(embeddings["online"][view], online)
        torch.testing.assert_close(embeddings["predicted"][view], objective.predictor(online))
        torch.testing.assert_close(embeddings["target"][view], projector(encoder(x[view])))
        assert not torch.allclose(embeddings["target"][view], online)


def test_byol_targets_carry_no_gradient() -> None:
    objective = build(BYOL, losses.cosine, pred_hidden=4, **momentum())
    embeddings = objective(images())
    assert not any(x.requires_grad for x in embeddings["target"].values())
    loss_of(objective, **embeddings).backward()
    assert all(p.grad is None and not p.requires_grad for p in objective.target.parameters())
    assert objective.encoder.layer.weight.grad.abs().max() > 0


@pytest.mark.parametrize("framework", ["moco", "simo", "byol"])
def test_momentum_copies_start_as_the_encoder_and_follow_it(framework: str) -> None:
    """target <- m target + (1 - m) online, of encoder and projector, not of a predictor (EqCo
    B.1).
    """
    arguments: dict[str, dict[str, Any]] = {
        "moco": {"framework": MoCo, "num_negatives": 4, "symmetric": False},
        "simo": {"framework": SiMo, "num_negatives": 2, "symmetric": False},
        "byol": {"framework": BYOL, "pred_hidden": 4, "criterion": losses.cosine},
    }
    objective = build(**momentum(**arguments[framework]))
    online = [*objective.encoder.parameters(), *objective.projector.parameters()]
    target = list(objective.target.parameters())
    assert len(online) == len(target)
    assert all(torch.equal(a, b) and a is not b for a, b in zip(online, target, strict=True))
    with torch.no_grad():
        for p in online:
            p.add_(torch.randn(p.shape, generator=generator(1), dtype=p.dtype))
    expected = [0.9 * t.detach() + 0.1 * o.detach() for t, o in zip(target, online, strict=True)]
    prepared = objective.prepare(objective(images()), generator())
    objective.after_step(prepared, 0.5, generator())
    for actual, x in zip(target, expected, strict=True):
        torch.testing.assert_close(actual.data, x)


def test_momentum_schedules() -> None:
    """BYOL: m = 1 - (1 - m0) (cos(pi k / K) + 1) / 2, from m0 to 1; or constant."""
    cosine = build(BYOL, losses.cosine, pred_hidden=4, momentum=0.9, momentum_schedule="cosine")
    constant = build(BYOL, losses.cosine, pred_hidden=4, momentum=0.9, momentum_schedule="constant")
    values = [cosine.momentum_at(progress) for progress in (0.0, 0.25, 0.5, 1.0)]
    assert values == pytest.approx([0.9, 1 - 0.1 * (math.sqrt(0.5) + 1) / 2, 0.95, 1.0], abs=1e-12)
    assert [constant.momentum_at(progress) for progress in (0.0, 0.5, 1.0)] == [0.9] * 3
    below = build(
        BYOL,
        losses.cosine,
        pred_hidden=4,
        momentum=0.9,
        momentum_schedule="cosine",
        momentum_end=0.98,
    )
    ends = [below.momentum_at(progress) for progress in (0.0, 0.25, 0.5, 1.0)]
    expected = [0.9, 0.98 - 0.08 * (math.sqrt(0.5) + 1) / 2, 0.94, 0.98]
    assert ends == pytest.approx(expected, abs=1e-12)
    before = [p.clone() for p in cosine.target.parameters()]
    with torch.no_grad():
        cosine.encoder.layer.weight.add_(1.0)
    cosine.after_step({}, 1.0, generator())
    assert all(torch.equal(a, b) for a, b in zip(before, cosine.target.parameters(), strict=True))


# SimSiam.


def test_simsiam_compares_predictions_with_stopped_projections() -> None:
    """Value and gradient of -1/2 (cos(p1, stop z2) + cos(p2, stop z1)); the projections get none of
    it.
    """
    z, p = random_views(), random_views(seed=1)
    loss_of(build(SimSiam, losses.cosine, pred_hidden=4), online=z, predicted=p).backward()
    assert z[0].grad is None
    assert z[1].grad is None
    actual = [p[view].grad for view in (0, 1)]
    p = random_views(seed=1)
    expected = mean([-cos(p[a][n], z[1 - a].detach()[n]) for a in (0, 1) for n in range(N)])
    expected.backward()
    torch.testing.assert_close(actual, [p[view].grad for view in (0, 1)])


def test_simsiam_gradient_runs_through_the_predictor_alone() -> None:
    """The same network with the stop written out by hand has the same gradient, and without it
    another.
    """
    x, gradients = images(), []
    for stop in (None, True, False):
        objective = build(SimSiam, losses.cosine, pred_hidden=4)
        if stop is None:
            loss = loss_of(objective, **objective(x))
        else:
            z0, z1 = objective.projector(objective.encoder(torch.cat(x))).chunk(2)
            p0, p1 = objective.predictor(torch.cat([z0, z1])).chunk(2)
            targets = [z.detach() if stop else z for z in (z0, z1)]
            loss = (losses.cosine(p0, targets[1]) + losses.cosine(p1, targets[0])) / 2
        loss.backward()
        gradients.append(objective.encoder.layer.weight.grad)
    torch.testing.assert_close(gradients[0], gradients[1])
    assert (gradients[0] - gradients[2]).abs().max() > 1e-3 * gradients[0].abs().max()


# NNCLR.


def nnclr(**more: Any) -> Any:
    return build(NNCLR, pred_hidden=4, **({"support_size": 9} | more))


def test_nnclr_contrasts_nearest_neighbours_with_the_other_views_predictions() -> None:
    """NNCLR Eq. 2: -log(exp(NN(z_i) p_i / tau) / sum_k exp(NN(z_i) p_k / tau)), k over the batch,
    both ways.
    """
    objective, z, p = nnclr(), random_views(), random_views(seed=1)
    support, terms = objective.support.rows_KD, []
    for a in (0, 1):
        for n in range(N):
            neighbour = support[int(torch.stack([cos(z[a][n], row) for row in support]).argmax())]
            terms.append(one_loss(neighbour, p[1 - a][n], rows_of_others([p[1 - a]], n)))
    assert_same_gradient(loss_of(objective, online=z, predicted=p), mean(terms), *p.values())


def test_nnclr_neighbours_carry_no_gradient() -> None:
    z, p = random_views(), random_views(seed=1)
    loss_of(nnclr(), online=z, predicted=p).backward()
    assert z[0].grad is None
    assert p[0].grad is not None


def test_nnclr_keeps_the_first_views_projections_after_the_step() -> None:
    objective, z, p = nnclr(support_size=N + 2), random_views(), random_views(seed=1)
    initial = objective.support.rows_KD.clone()
    prepared = objective.prepare({"online": z, "predicted": p}, generator())
    objective.loss(prepared)
    assert torch.equal(objective.support.rows_KD, initial), "not before"
    objective.after_step(prepared, 0.5, generator())
    torch.testing.assert_close(
        objective.support.rows_KD, torch.cat([F.normalize(z[0].detach(), dim=1), initial[N:]])
    )


# Barlow Twins, supervised, critic.


def test_barlow_twins_is_the_cross_correlation_of_projections() -> None:
    """Barlow Twins Eq. 1-2, as loops over pairs of dimensions."""
    z, off_diag = random_views(), 0.02
    expected = torch.zeros((), dtype=torch.float64)
    for i, j in itertools.product(range(D), repeat=2):
        a, b = z[0][:, i] - z[0][:, i].mean(), z[1][:, j] - z[1][:, j].mean()
        c = (a * b).sum() / (a.norm() * b.norm())
        expected = expected + ((1 - c) ** 2 if i == j else off_diag * c**2)
    objective = build(BarlowTwins, partial(losses.barlow, off_diag=off_diag))
    assert_same_gradient(loss_of(objective, online=z), expected, *z.values())


def test_supervised_is_the_cross_entropy_of_every_view() -> None:
    objective, labels_N = (
        build(Supervised, losses.cross_entropy, num_classes=3),
        torch.tensor([0, 2, 1, 1, 0, 2]),
    )
    embeddings = objective(images())
    for view, x in enumerate(images()):
        torch.testing.assert_close(embeddings["online"][view], objective.encoder(x))
        torch.testing.assert_close(
            embeddings["logits"][view], objective.classifier(objective.encoder(x))
        )
    expected = mean([F.cross_entropy(embeddings["logits"][view], labels_N) for view in (0, 1)])
    prepared = objective.prepare(embeddings, generator())
    torch.testing.assert_close(objective.loss(prepared, labels_N).total, expected)


def test_supervised_regularizes_its_features() -> None:
    labels_N = torch.tensor([0, 2, 1, 1, 0, 2])
    objective = build(
        Supervised, losses.cross_entropy, num_classes=3, regularizer=losses.barlow, lam=0.2
    )
    embeddings = objective(images())
    out = objective.loss(objective.prepare(embeddings, generator()), labels_N)
    torch.testing.assert_close(
        out.regularizer, losses.barlow(embeddings["online"][0], embeddings["online"][1])
    )
    torch.testing.assert_close(out.total, 0.2 * out.regularizer + 0.8 * out.base)


def test_critic_scores_pairs_by_dot_products_of_two_networks() -> None:
    """EqCo Appendix C: x against its y and the other y, one direction; nothing is normalised."""
    torch.manual_seed(0)
    critic = MICritic(
        dim=3, criterion=partial(losses.infonce, tau=1.0), critic_hidden=8, critic_dim=4
    ).double()
    x, y = (torch.randn(N, 3, generator=generator(seed), dtype=torch.float64) for seed in (0, 1))
    scores = critic.of_x(x) @ critic.of_y(y).T
    torch.testing.assert_close(critic(x, y), F.cross_entropy(scores, torch.arange(N)))


# Regularizers.


def test_the_regularizer_is_mixed_in_by_lam() -> None:
    """DimCL Eq. 6: lam reg + (1 - lam) base, each the mean over the same pairs."""
    z, lam = random_views(3), 0.3
    regularizer = partial(losses.dimcl, dim_tau=0.2)
    objective = build(SimCLR, pairs=all_pairs(3), regularizer=regularizer, lam=lam)
    out = objective.loss(objective.prepare({"online": z}, generator()))
    pairs = ((0, 1), (0, 2), (1, 2))
    torch.testing.assert_close(out.regularizer, mean([regularizer(z[i], z[j]) for i, j in pairs]))
    torch.testing.assert_close(out.base, loss_of(build(SimCLR, pairs=all_pairs(3)), online=z))
    torch.testing.assert_close(out.total, lam * out.regularizer + (1 - lam) * out.base)


def test_dimcl_contrasts_columns_of_the_projections_before_the_predictor() -> None:
    """DimCL Eq. 5, a loop over the 2D columns, each standardised; neither predictions nor targets
    enter.
    """
    z, dim_tau = random_views(), 0.4
    objective = build(
        BYOL,
        losses.cosine,
        pred_hidden=4,
        regularizer=partial(losses.dimcl, dim_tau=dim_tau),
        lam=0.5,
        **momentum(),
    )
    columns = [[(c - c.mean()) for c in z[view].T] for view in (0, 1)]
    expected = mean(
        [
            one_loss(
                columns[a][i],
                columns[1 - a][i],
                [columns[v][j] for v in (0, 1) for j in range(D) if j != i],
                tau=dim_tau,
            )
            for a in (0, 1)
            for i in range(D)
        ]
    )
    for seed in (1, 2):
        prepared = objective.prepare(
            {
                "online": z,
                "predicted": random_views(seed=seed),
                "target": random_views(seed=seed + 5),
            },
            generator(),
        )
        actual = objective.loss(prepared).regularizer
        torch.testing.assert_close(actual, expected)
    assert_same_gradient(actual, expected, *z.values())


@pytest.mark.parametrize("framework", ["moco", "simo"])
def test_a_view_that_is_only_a_key_is_regularized_as_the_momentum_encoder_sees_it(
    framework: str,
) -> None:
    """DimCL Algorithm 1: z_b = f'(y_b). A further online pass would change the statistics of the
    base method.
    """
    arguments: dict[str, dict[str, Any]] = {
        "moco": {"framework": MoCo, "num_negatives": 4, "symmetric": False},
        "simo": {"framework": SiMo, "num_negatives": 2, "symmetric": False},
    }
    objective = build(**momentum(**arguments[framework]), regularizer=losses.barlow, lam=0.1)
    with torch.no_grad():
        for p in objective.target.parameters():
            p.mul_(0.5)
    prepared = objective.prepare(objective(images()), generator())
    first, second = images()
    z0, z1 = (
        objective.projector(objective.encoder(first)),
        objective.target[1](objective.target[0](second)),
    )
    torch.testing.assert_close(objective.loss(prepared).regularizer, losses.barlow(z0, z1))


@pytest.mark.parametrize("framework", [MoCo, SiMo])
def test_where_both_views_are_queries_their_online_projections_are_regularized(
    framework: Any,
) -> None:
    arguments = momentum(symmetric=True, num_negatives=4, regularizer=losses.barlow, lam=0.1)
    objective = build(framework, **arguments)
    prepared = objective.prepare(objective(images()), generator())
    z0, z1 = objective.projector(objective.encoder(torch.cat(images()))).chunk(2)
    torch.testing.assert_close(objective.loss(prepared).regularizer, losses.barlow(z0, z1))


def test_simo_symmetric_is_the_mean_of_both_directions() -> None:
    z, keys = random_views(), random_views(seed=1)
    objective = build(SiMo, **momentum(symmetric=True, num_negatives=N - 1))
    both = objective.loss(objective.prepare({"online": z, "target": keys}, generator())).total
    plain = build(SiMo, **one_way(num_negatives=N - 1))
    one = [
        plain.loss(plain.prepare({"online": {0: z[a]}, "target": {1: keys[b]}}, generator())).total
        for a, b in ((0, 1), (1, 0))
    ]
    torch.testing.assert_close(both, mean(one))


# Several views.

KINDS = {"core": core_pairs, "multicrop": multicrop_pairs, "all_pairs": all_pairs}


@pytest.mark.parametrize("num_views", range(2, 9))
def test_number_of_pairs(num_views: int) -> None:
    """ECPP Table 1: K - 1, 2K - 3 and K(K - 1)/2 pairs of different views, none twice in either
    order.
    """
    expected = {
        "core": num_views - 1,
        "multicrop": 2 * num_views - 3,
        "all_pairs": num_views * (num_views - 1) // 2,
    }
    for kind, pairs in KINDS.items():
        made = pairs(num_views)
        assert len(made) == expected[kind]
        assert len({frozenset(pair) for pair in made}) == expected[kind]
        assert all(0 <= i < j < num_views for i, j in made)
        assert {view for pair in made for view in pair} == set(range(num_views))
    assert all(0 in pair for pair in core_pairs(num_views))
    assert all({0, 1} & set(pair) for pair in multicrop_pairs(num_views))


def pairwise(framework: str, pairs: Pairs, **more: Any) -> tuple[Any, dict[str, dict[int, Tensor]]]:
    """An objective over these pairs, and embeddings of four views."""
    z, p, t = (random_views(4, seed=seed) for seed in (0, 1, 2))
    contrast = partial(losses.dcl, tau=TAU)
    made: dict[str, tuple[Any, dict[str, dict[int, Tensor]]]] = {
        "simclr": (build(SimCLR, contrast, pairs=pairs, **more), {"online": z}),
        "moco": (
            build(
                MoCo, contrast, pairs=pairs, **momentum(num_negatives=4, symmetric=False, **more)
            ),
            {"online": z, "target": t},
        ),
        "byol": (
            build(BYOL, losses.cosine, pairs=pairs, pred_hidden=4, **momentum(**more)),
            {"online": z, "predicted": p, "target": t},
        ),
        "simsiam": (
            build(SimSiam, losses.cosine, pairs=pairs, pred_hidden=4, **more),
            {"online": z, "predicted": p},
        ),
        "nnclr": (nnclr(criterion=contrast, pairs=pairs, **more), {"online": z, "predicted": p}),
        "barlow_twins": (build(BarlowTwins, losses.barlow, pairs=pairs, **more), {"online": z}),
    }
    return made[framework]


FRAMEWORKS = ("simclr", "moco", "byol", "simsiam", "nnclr", "barlow_twins")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_loss_of_several_views_is_the_mean_over_their_pairs(framework: str, kind: str) -> None:
    """Each pair alone, as an objective of one pair, with the same memory."""
    pairs = KINDS[kind](4)
    objective, embeddings = pairwise(framework, pairs)
    alone = []
    for pair in pairs:
        other, _ = pairwise(framework, (pair,))
        alone.append(loss_of(other, **embeddings))
    torch.testing.assert_close(loss_of(objective, **embeddings), mean(alone))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_sum_over_pairs_is_so_many_times_the_mean(framework: str) -> None:
    """Regularizer included: ECPP Eq. 3 sums the whole loss of a pair."""
    mixed: dict[str, Any] = {"regularizer": losses.barlow, "lam": 0.2}
    for kind, factor in {"core": 3, "multicrop": 5, "all_pairs": 6}.items():
        values = [
            loss_of(objective, **embeddings)
            for objective, embeddings in (
                pairwise(framework, KINDS[kind](4), pair_reduction=reduction, **mixed)
                for reduction in ("mean", "sum")
            )
        ]
        torch.testing.assert_close(values[1], factor * values[0])


def test_drawn_negatives_of_several_views_come_from_the_pairs_own_two_views() -> None:
    alpha, z = 20.0, random_views(3)
    criterion = partial(losses.eqco, tau=TAU, alpha=alpha)
    objective = build(SimCLR, criterion, pairs=all_pairs(3), num_negatives=4)
    prepared, terms = objective.prepare({"online": z}, generator()), []
    for i, j in ((0, 1), (0, 2), (1, 2)):
        both = torch.cat([z[i], z[j]])
        for a, b in ((i, j), (j, i)):
            for n in range(N):
                negatives = [both[row] for row in prepared["index"][a][n]]
                terms.append(one_loss(z[a][n], z[b][n], negatives, margin=alpha / 4))
    torch.testing.assert_close(objective.loss(prepared).total, mean(terms))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_ecpp_is_equation_3_with_the_terms_of_equation_4(reduction: str) -> None:
    """Each pair of views alone: neither other views of the anchor's image nor views beside the two
    are negatives. A pair counts by the mean over its 2N terms.
    """
    z, terms = random_views(4), []
    for i, j in itertools.combinations(range(4), 2):
        for a, b in ((i, j), (j, i)):
            for n in range(N):
                u = sum(
                    torch.exp(cos(z[a][n], z[v][m]) / TAU)
                    for m in range(N)
                    for v in (a, b)
                    if m != n
                )
                terms.append(-torch.log(torch.exp(cos(z[a][n], z[b][n]) / TAU) / u))
    criterion = partial(losses.dcl, tau=TAU)
    objective = build(SimCLR, criterion, pairs=all_pairs(4), pair_reduction=reduction)
    expected = mean(terms) * (6 if reduction == "sum" else 1)
    assert_same_gradient(loss_of(objective, online=z), expected, *z.values())


def test_ecpp_of_two_views_is_dcl_of_two_views() -> None:
    """With the same crops: same draws, same loss, same gradient, bit for bit."""
    found = []
    for views, changes in {"two": {"crop_scale": 0.2}, "ecpp": {"num_views": 2}}.items():
        config = small_config(combinations("digits")[f"simclr-dcl-none-{views}"], **changes)
        state = new_state(config, torch.device("cpu"))
        batch = next(batches(some_digits(32), config, 0, state.view_generator))
        loss = loss_of(state.objective, **state.objective(batch.chunks[0]()))
        loss.backward()
        found.append([loss.detach(), *(p.grad for p in state.objective.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_views_of_one_size_go_through_together() -> None:
    """Batch norm sees all views of a size at once, and each view keeps its place."""
    objective = build(SimSiam, losses.cosine, pairs=all_pairs(3), pred_hidden=4)
    x = images(3)
    online = objective(x)["online"]
    expected = objective.projector(objective.encoder(torch.cat(x))).chunk(3)
    torch.testing.assert_close([online[view] for view in range(3)], list(expected))
    torch.testing.assert_close(
        torch.cat(expected).mean(0), torch.zeros(D, dtype=torch.float64), atol=1e-10, rtol=0
    )
