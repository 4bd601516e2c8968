"""The frameworks against their papers' equations, written out as loops over samples: what is
compared with what.

Most tests give a framework its embeddings by hand, so that no encoder stands between them and the
equation. Shapes: N samples, D features, K negatives of a query.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from clsweep.objective import losses
from clsweep.objective.framework import unit
from clsweep.objective.frameworks import (
    BYOL,
    NNCLR,
    BarlowTwins,
    MICritic,
    MoCo,
    MoCoV3,
    SimCLR,
    SiMo,
    SimSiam,
    SupCon,
    Supervised,
)
from clsweep.objective.targets import DINO
from clsweep.objective.views import all_pairs, core_pairs, multicrop_pairs
from clsweep.train.state import new_state
from tests.contracts.combinations import small_config
from tests.objective.built import (
    CONTRAST,
    LABELS,
    TAU,
    N,
    assert_same_gradient,
    build,
    cos,
    drawn,
    generator,
    images,
    loss_of,
    mean,
    one_loss,
    random_views,
    rows_of_others,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("num_samples", "dim"), [(1, 3), (7, 1), (64, 10), (33, 128)])
def test_projections_of_all_views_are_normalised_as_torch_does_each(num_samples, dim, dtype):
    """To the last bit, beside another use of the same projections; also rows of (nearly) zeros."""
    raw = [torch.randn(num_samples, dim, generator=generator(n), dtype=dtype) for n in range(3)]
    raw[0][0], raw[1][0] = 0, 1e-14
    out = torch.randn(num_samples, dim, generator=generator(5), dtype=dtype)
    actual, expected = ([x.clone().requires_grad_() for x in raw] for _ in range(2))
    ours, theirs = (
        [*unit(dict(enumerate(actual))).values()],
        [F.normalize(x, dim=1) for x in expected],
    )
    for leaves, units in ((actual, ours), (expected, theirs)):
        uses = [x.square().sum() + (z * out).sum() for x, z in zip(leaves, units, strict=True)]
        torch.stack(uses).sum().backward()
    assert all(map(torch.equal, ours, theirs))
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(actual, expected, strict=True))


# Contrast within the batch.


def test_simclr_contrasts_every_anchor_with_the_other_samples_of_both_views():
    """DCL Eq. 1-2: 2N anchors, 2(N-1) negatives each."""
    z = random_views()
    expected = [
        one_loss(z[a][n], z[1 - a][n], rows_of_others([z[0], z[1]], n))
        for a in (0, 1)
        for n in range(N)
    ]
    assert_same_gradient(loss_of(build(SimCLR), online=z), mean(expected), *z.values())


@pytest.mark.parametrize(("num_views", "num_negatives"), [(2, 1), (3, 4), (2, 2 * (N - 1))])
def test_simclr_with_eqco_draws_other_samples_of_its_pair_for_every_anchor(
    num_views, num_negatives
):
    """EqCo 2.3: K of the 2(N-1) others, without repeats, weighed by alpha / K."""
    z, pairs = random_views(num_views), all_pairs(num_views)
    objective = build(SimCLR, CONTRAST["eqco"], num_negatives=num_negatives, pairs=pairs)
    prepared, terms = objective.prepare({"online": z}, generator(1)), []
    for i, j in pairs:
        both = torch.cat([z[i], z[j]])
        for a, b in ((i, j), (j, i)):
            index_NK = drawn(prepared, a, 2, num_negatives)
            for n in range(N):
                negatives = [both[row] for row in index_NK[n]]
                terms.append(one_loss(z[a][n], z[b][n], negatives, margin=50 / num_negatives))
    assert_same_gradient(objective.loss(prepared).total, mean(terms), *z.values())
    if num_negatives == 4:
        assert not torch.equal(prepared["index"][0], prepared["index"][1])


@pytest.mark.parametrize(("num_negatives", "symmetric"), [(1, False), (3, True), (N - 1, False)])
def test_simo_contrasts_queries_with_other_samples_keys_of_this_batch(num_negatives, symmetric):
    z, keys = random_views(), random_views(seed=1)
    given = {"num_negatives": num_negatives, "symmetric": symmetric}
    objective = build(SiMo, CONTRAST["eqco"], **given)
    prepared = objective.prepare({"online": z, "target": keys}, generator(2))
    terms = []
    for a, b in ((0, 1), (1, 0))[: 1 + symmetric]:
        index_NK = drawn(prepared, b, 1, num_negatives)
        for n in range(N):
            negatives = [keys[b][row] for row in index_NK[n]]
            terms.append(one_loss(z[a][n], keys[b][n], negatives, margin=50 / num_negatives))
    assert_same_gradient(
        objective.loss(prepared).total, mean(terms), *[z[0], z[1]][: 1 + symmetric]
    )
    assert not [name for name, _ in objective.named_buffers() if "rows" in name], "no queue"


def test_simo_draws_afresh_for_every_step_and_key_view():
    """That each draw is uniform is of test_negatives.py."""
    objective, z = build(SiMo, pairs=core_pairs(3), num_negatives=2), random_views(3)
    g, embeddings = generator(), {"online": {0: z[0]}, "target": {1: z[1], 2: z[2]}}
    steps = [objective.prepare(embeddings, g)["index"] for _ in range(3)]
    draws = [index[view].sort(dim=1).values for index in steps for view in (1, 2)]
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(draws, 2))


# MoCo.


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("loss", "margin"), [("infonce", 1.0), ("eqco", 50 / 15)])
def test_moco_contrasts_queries_with_their_keys_and_the_queue(loss, margin, symmetric):
    """The mean of both directions; and after the step the keys that were compared are queued."""
    z, keys, size = random_views(), random_views(seed=1), 2 * N + 3
    objective = build(MoCo, CONTRAST[loss], num_negatives=size, symmetric=symmetric)
    queue, ways = list(objective.queue.rows_KD.clone()), ((0, 1), (1, 0))[: 1 + symmetric]
    expected = [
        one_loss(z[a][n], keys[b][n], queue, margin=margin) for a, b in ways for n in range(N)
    ]
    prepared = objective.prepare(
        {"online": z, "target": keys if symmetric else {1: keys[1]}}, generator()
    )
    total = objective.loss(prepared).total
    assert_same_gradient(total, mean(expected), *[z[0], z[1]][: 1 + symmetric])
    objective.after_step(prepared, 0.5, generator())
    put = [F.normalize(keys[view], dim=1) for view in ((0, 1) if symmetric else (1,))]
    left = torch.stack(queue[N * len(put) :])
    torch.testing.assert_close(objective.queue.rows_KD, torch.cat([*put, left]))


@pytest.mark.parametrize("framework", ["moco", "simo"])
def test_shuffled_keys_and_queries_are_grouped_differently(framework):
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
            for kind, rows in (("online", near), ("target", far)):  # their weights are the same
                expected = plain.projector(plain.encoder(x[rows]))
                torch.testing.assert_close(e[kind][view][rows], expected, rtol=1e-4, atol=1e-5)


# Momentum.


@pytest.mark.parametrize(
    ("framework", "more"),
    [
        (MoCo, {"num_negatives": 4}),
        (SiMo, {"num_negatives": 2}),
        (BYOL, {}),
        (MoCoV3, {}),
        (DINO, {}),
    ],
)
def test_momentum_copies_start_as_the_encoder_follow_it_and_give_the_targets(framework, more):
    """target <- m target + (1 - m) online, of encoder, projector and prototypes, not of a predictor
    (EqCo B.1).
    """
    objective, x = build(framework, **more), images()
    followed = [objective.encoder, objective.projector]
    followed += [objective.prototypes] if framework is DINO else []
    online = [p for module in followed for p in module.parameters()]
    target = list(objective.target.parameters())
    assert all(torch.equal(a, b) and a is not b for a, b in zip(online, target, strict=True))
    with torch.no_grad():
        for p in online:
            p.add_(torch.randn(p.shape, generator=generator(1), dtype=p.dtype))
    expected = [0.9 * t.detach() + 0.1 * o.detach() for t, o in zip(target, online, strict=True)]
    objective.after_step(objective.prepare(objective(x), generator()), 0.5, generator())
    torch.testing.assert_close([p.data for p in target], expected)
    embeddings, (encoder, projector, *_) = objective.eval()(x), objective.target
    for view, z in embeddings["target"].items():
        torch.testing.assert_close(z, projector(encoder(x[view])))
        assert not torch.allclose(z, objective.projector(objective.encoder(x[view])))
        assert not z.requires_grad


def test_momentum_schedules():
    """BYOL: m = 1 - (1 - m0) (cos(pi k / K) + 1) / 2, from m0 to 1 or another end; or constant."""
    middle = (math.sqrt(0.5) + 1) / 2
    for given, expected in (
        ({"momentum_schedule": "constant"}, [0.9] * 4),
        ({"momentum_schedule": "cosine"}, [0.9, 1 - 0.1 * middle, 0.95, 1.0]),
        (
            {"momentum_schedule": "cosine", "momentum_end": 0.98},
            [0.9, 0.98 - 0.08 * middle, 0.94, 0.98],
        ),
    ):
        objective = build(BYOL, **given)
        values = [objective.momentum_at(progress) for progress in (0.0, 0.25, 0.5, 1.0)]
        assert values == pytest.approx(expected, abs=1e-12)


# Predictors.


def test_byol_compares_predictions_with_the_targets_of_the_other_view():
    p, t = random_views(), random_views(seed=1)
    expected = mean([-cos(p[a][n], t[1 - a][n]) for a in (0, 1) for n in range(N)])
    actual = loss_of(build(BYOL), online=random_views(seed=2), predicted=p, target=t)
    assert_same_gradient(actual, expected, *p.values())


@pytest.mark.parametrize("framework", [BYOL, MoCoV3, SimSiam, NNCLR])
def test_predictions_are_of_the_projections(framework):
    objective, x = build(framework).eval(), images()
    embeddings = objective(x)
    for view in (0, 1):
        online = objective.projector(objective.encoder(x[view]))
        torch.testing.assert_close(embeddings["online"][view], online)
        torch.testing.assert_close(embeddings["predicted"][view], objective.predictor(online))


@pytest.mark.parametrize("regularized", [False, True])
@pytest.mark.parametrize(("loss", "margin"), [("infonce", 1), ("eqco", 50 / (N - 1))])
def test_moco_v3_contrasts_predictions_with_the_keys_of_the_other_view(loss, margin, regularized):
    """Algorithm 1: 2 tau (ctr(q1, k2) + ctr(q2, k1)); the regularizer is of the projections, as it
    is. Without the scale it is the mean of all terms.
    """
    z, q, k = (random_views(seed=seed) for seed in range(3))
    ways = [
        mean([one_loss(q[a][n], k[1 - a][n], rows_of_others([k[1 - a]], n), margin=margin)
              for n in range(N)])
        for a in (0, 1)
    ]  # fmt: skip
    more = {"regularizer": losses.barlow, "lam": 0.25} if regularized else {}
    for is_scaled, expected in ((True, 2 * TAU * sum(ways)), (False, mean(ways))):
        objective = build(MoCoV3, CONTRAST[loss], scale_by_tau=is_scaled, **more)
        actual = loss_of(objective, online=z, predicted=q, target=k)
        if regularized:
            expected = 0.25 * losses.barlow(z[0], z[1]) + 0.75 * expected
        given = [*q.values(), *(z.values() if regularized else ())]
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
        gradients = (torch.autograd.grad(x, given, retain_graph=True) for x in (actual, expected))
        torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


def test_the_scale_of_moco_v3_follows_the_schedule_of_tau():
    q, k = random_views(seed=1), random_views(seed=2)
    objective, other = build(MoCoV3, scale_by_tau=True), build(MoCoV3)
    for each in (objective, other):
        each.compare_at(0.7)
    scaled, plain = (loss_of(x, online=q, predicted=q, target=k) for x in (objective, other))
    torch.testing.assert_close(scaled, 4 * 0.7 * plain, rtol=1e-10, atol=1e-10)


def test_simsiam_compares_predictions_with_stopped_projections():
    """Value and gradient of -1/2 (cos(p1, stop z2) + cos(p2, stop z1)); the projections get none of
    it.
    """
    z, p = random_views(), random_views(seed=1)
    actual = loss_of(build(SimSiam), online=z, predicted=p)
    expected = mean([-cos(p[a][n], z[1 - a].detach()[n]) for a in (0, 1) for n in range(N)])
    assert_same_gradient(actual, expected, *p.values())
    loss_of(build(SimSiam), online=z, predicted=p).backward()
    assert z[0].grad is z[1].grad is None


def test_nnclr_contrasts_nearest_neighbours_with_the_other_views_predictions():
    """NNCLR Eq. 2: -log(exp(NN(z_i) p_i / tau) / sum_k exp(NN(z_i) p_k / tau)), k over the batch,
    both ways. The neighbours carry no gradient; after the step the first view's projections are
    kept.
    """
    objective, z, p = build(NNCLR), random_views(), random_views(seed=1)
    support, terms = objective.support.rows_KD.clone(), []
    for a in (0, 1):
        for n in range(N):
            neighbour = support[int(torch.stack([cos(z[a][n], row) for row in support]).argmax())]
            terms.append(one_loss(neighbour, p[1 - a][n], rows_of_others([p[1 - a]], n)))
    prepared = objective.prepare({"online": z, "predicted": p}, generator())
    total = objective.loss(prepared).total
    assert_same_gradient(total, mean(terms), *p.values())
    loss_of(objective, online=z, predicted=p).backward()
    assert z[0].grad is None
    assert torch.equal(objective.support.rows_KD, support), "not before"
    objective.after_step(prepared, 0.5, generator())
    support_now = torch.cat([F.normalize(z[0].detach(), dim=1), support[N:]])
    torch.testing.assert_close(objective.support.rows_KD, support_now)


# Barlow Twins, supervised, critic.


def test_barlow_twins_compares_the_projections_of_both_views():
    z = random_views()
    expected = losses.barlow(z[0], z[1], off_diag=0.02)
    assert_same_gradient(loss_of(build(BarlowTwins), online=z), expected, *z.values())


def test_supervised_is_the_cross_entropy_of_every_view_and_regularizes_its_features():
    objective = build(Supervised, regularizer=losses.barlow, lam=0.2)
    embeddings = objective(images())
    online, logits = embeddings["online"], embeddings["logits"]
    for view, x in enumerate(images()):
        torch.testing.assert_close(online[view], objective.encoder(x))
        torch.testing.assert_close(logits[view], objective.classifier(objective.encoder(x)))
    out = objective.loss(objective.prepare(embeddings, generator()), LABELS)
    base = mean([F.cross_entropy(logits[view], LABELS) for view in (0, 1)])
    regularizer = losses.barlow(online[0], online[1])
    torch.testing.assert_close(out.total, 0.2 * regularizer + 0.8 * base)


def test_supcon_compares_the_views_of_all_images_by_class_at_once():
    objective = build(SupCon, criterion := partial(losses.supcon, tau=0.2))
    embeddings = objective(images())
    out = objective.loss(objective.prepare(embeddings, generator()), LABELS)
    rows = torch.cat([F.normalize(embeddings["online"][view], dim=1) for view in (0, 1)])
    expected = criterion(rows, LABELS.repeat(2))
    torch.testing.assert_close(out.total, expected, rtol=1e-10, atol=1e-10)


def test_critic_scores_pairs_by_dot_products_of_two_networks():
    """EqCo Appendix C: x against its y and the other y, one direction; nothing is normalised."""
    torch.manual_seed(0)
    criterion = partial(losses.infonce, tau=1.0)
    critic = MICritic(dim=3, criterion=criterion, critic_hidden=8, critic_dim=4).double()
    x, y = (torch.randn(N, 3, generator=generator(seed), dtype=torch.float64) for seed in (0, 1))
    scores = critic.of_x(x) @ critic.of_y(y).T
    torch.testing.assert_close(critic(x, y), F.cross_entropy(scores, torch.arange(N)))


# Regularizers.


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("framework", [MoCo, SiMo])
def test_a_view_that_is_only_a_key_is_regularized_as_the_momentum_encoder_sees_it(
    framework, symmetric
):
    """DimCL Algorithm 1: z_b = f'(y_b). A further online pass would change the statistics of the
    base method. Where both views are queries, it is their online projections.
    """
    given = {"symmetric": symmetric, "num_negatives": 4, "regularizer": losses.barlow, "lam": 0.1}
    objective, (first, second) = build(framework, **given), images()
    with torch.no_grad():
        for p in objective.target.parameters():
            p.mul_(0.5)
    prepared = objective.prepare(objective(images()), generator())
    if symmetric:
        z = objective.projector(objective.encoder(torch.cat([first, second]))).chunk(2)
    else:
        key = objective.target[1](objective.target[0](second))
        z = objective.projector(objective.encoder(first)), key
    torch.testing.assert_close(objective.loss(prepared).regularizer, losses.barlow(*z))


# Several views.

# Each with a loss that has pairs, and the embeddings that it takes.
PAIRWISE: dict[Any, tuple[str, dict[str, Any]]] = {
    SimCLR: ("online", {"criterion": CONTRAST["dcl"]}),
    MoCo: ("online target", {"criterion": CONTRAST["dcl"], "num_negatives": 4}),
    BYOL: ("online predicted target", {}),
    SimSiam: ("online predicted", {}),
    NNCLR: ("online predicted", {"criterion": CONTRAST["dcl"]}),
    BarlowTwins: ("online", {}),
}


@pytest.mark.parametrize("framework", PAIRWISE)
def test_the_loss_of_several_views_is_the_mean_or_sum_over_their_pairs(framework):
    """Each pair alone, as an objective of one pair, with the same memory; with a regularizer, which
    ECPP Eq. 3 sums with the rest of a pair's loss.
    """
    names, given = PAIRWISE[framework]
    given = given | {"regularizer": losses.barlow, "lam": 0.2}
    embeddings = {name: random_views(4, seed=seed) for seed, name in enumerate(names.split())}
    for pairs in (core_pairs(4), multicrop_pairs(4), all_pairs(4)):
        alone = [loss_of(build(framework, pairs=(pair,), **given), **embeddings) for pair in pairs]
        for reduction, factor in (("mean", 1), ("sum", len(pairs))):
            objective = build(framework, pairs=pairs, pair_reduction=reduction, **given)
            torch.testing.assert_close(loss_of(objective, **embeddings), factor * mean(alone))
