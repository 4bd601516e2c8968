"""Losses at the limits: where training may go, and what is refused."""

import math
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor

from clsweep.objective.losses import (
    abscl,
    align_uniform,
    barlow,
    cosine,
    dcl,
    dclw,
    dimcl,
    eqco,
    infonce,
    npc_multiplier,
)
from tests.objective.loops import (
    CLASSIFIERS,
    COLUMN_WISE,
    CONTRASTIVE,
    FORMS,
    SINGLE_VIEW,
    assert_finite,
    assert_same,
    inputs_of,
    logits,
    losses_of,
    of_inputs,
    raw_views,
    value_and_grad,
    views,
)

pytestmark = pytest.mark.usefixtures("one_thread")

# Numerics.


def degenerate(case: str, inputs: list[Tensor]) -> list[Tensor]:
    if case == "collapsed":
        return [inputs[0][:1].expand_as(z) for z in inputs]
    if case == "zero":
        return [torch.zeros_like(z) for z in inputs]
    first, second, *rest = inputs
    return [first, {"opposite": -first, "easy": first}.get(case, second), *rest]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", ["random", "collapsed", "opposite", "easy"])
@pytest.mark.parametrize("form", FORMS)
def test_finite_wherever_training_may_go(form, case, dtype):
    for num, tau in product((2, 64), (0.005, 10.0)):
        inputs, index_NK = inputs_of(form, num, 4)
        inputs = [z.detach().to(dtype).clone() for z in degenerate(case, inputs)]
        for name, loss in losses_of(form, index_NK, tau):
            value, grad = value_and_grad(loss, *(z.requires_grad_() for z in inputs))
            assert value.dtype == torch.float32, "half precision is too coarse for 1/tau = 200"
            assert_finite(value, grad, name)
            if name in ("infonce", "dcl", "dclw"):
                exact = loss(*(z.detach().double() for z in inputs))
                torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-5 / tau)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", ["random", "collapsed", "opposite", "easy", "zero"])
def test_column_losses_are_finite_wherever_training_may_go(case, dtype):
    for num_samples in (2, 3, 64):
        raw = [z.detach() for z in raw_views(num_samples, 4)]
        inputs = [z.to(dtype).clone().requires_grad_() for z in degenerate(case, raw)]
        for loss, dim_tau in product((dimcl, abscl), (0.005, 0.1, 10.0)):
            assert_finite(*value_and_grad(partial(loss, dim_tau=dim_tau), *inputs))
        for loss in (barlow, cosine):
            assert_finite(*value_and_grad(loss, *inputs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("loss", COLUMN_WISE)
def test_a_constant_column_leaves_the_others_their_gradient(loss, dtype):
    inputs = [z.detach().to(dtype).requires_grad_() for z in raw_views(16, 5)]
    _, ordinary = value_and_grad(COLUMN_WISE[loss], *inputs)
    for constant in (0.0, 1e-3, 100.0):
        with torch.no_grad():
            for z_ND in inputs:
                z_ND[:, 2] = constant
        value, grad = value_and_grad(COLUMN_WISE[loss], *inputs)
        assert_finite(value, grad)
        others = grad.reshape(2, 16, 5)[..., [0, 1, 3, 4]].abs().max()
        assert others < 10 * ordinary.abs().max(), "the others do not notice"
        # not centred, it is an ordinary column of small values
        size = constant if loss.startswith("raw") and constant == 1e-3 else 1.0
        assert size * grad.abs().max() < 10 * ordinary.abs().max(), "nor does it get more"


@pytest.mark.parametrize("loss", COLUMN_WISE)
def test_the_floor_does_not_touch_columns_of_small_but_ordinary_variance(loss):
    inputs = raw_views(16, 5)
    small = [(1e-3 * z).detach().requires_grad_() for z in inputs]
    value, grad = value_and_grad(COLUMN_WISE[loss], *inputs)
    torch.testing.assert_close(
        value_and_grad(COLUMN_WISE[loss], *small), (value, 1e3 * grad), rtol=1e-10, atol=1e-8
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@CLASSIFIERS
def test_classifier_losses_are_finite_at_large_logits(loss, dtype):
    logits_NC, labels_N = logits(6, 5)
    x_NC = (1e3 * logits_NC).detach().to(dtype).requires_grad_()
    value, grad = value_and_grad(lambda x: loss(x, labels_N), x_NC)
    assert value.dtype == torch.float32
    assert_finite(value, grad)


@pytest.mark.parametrize("form", FORMS)
def test_autocast_does_not_reach_the_similarities(form):
    inputs, index_NK = inputs_of(form, 16, 8)
    inputs = [z.detach().float().requires_grad_() for z in inputs]
    cases = dict(losses_of(form, index_NK, 0.05)) | (SINGLE_VIEW if form == "batch" else {})
    for name, loss in cases.items():
        outside, grad_outside = value_and_grad(loss, *inputs)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = loss(*inputs)
        assert inside == outside, name
        grads = torch.autograd.grad(inside, inputs)  # backward belongs outside of autocast
        assert torch.equal(torch.cat([g.flatten() for g in grads]), grad_outside), name


# Errors.


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        *(("tau", loss) for loss in (infonce, dcl, dclw, npc_multiplier)),
        *(("tau", partial(loss, negatives=torch.ones(2, 3))) for loss in (dcl, npc_multiplier)),
        ("sigma", partial(dclw, tau=0.1)),
        ("delta", partial(dclw, tau=0.1, weighting="exponential")),
        ("uniform_t", align_uniform),
        ("dim_tau", dimcl),
        ("dim_tau", abscl),
        ("tau", partial(eqco, negatives=torch.ones(2, 3), alpha=4)),
        ("alpha", partial(eqco, negatives=torch.ones(2, 3), tau=0.1)),
        ("loss_scale", cosine),
        ("loss_scale", barlow),
    ],
)
def test_parameters_must_be_positive(name, loss):
    for value in (0.0, math.nan):
        with pytest.raises(ValueError, match=rf"^{name}: expected a value > 0, given"):
            loss(*views(4, 3), **{name: value})


ROW = torch.zeros(5, 1).long()


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (partial(align_uniform, align_alpha=math.nan), "align_alpha >= 1, given 1.0 and nan"),
        (partial(align_uniform, align_weight=-1.0), "align_weight >= 0"),
        (partial(barlow, off_diag=-1.0), "off_diag: expected a value >= 0, given -1.0"),
        (partial(dclw, tau=0.1, weighting="vmv"), "expected 'vmf' or 'exponential', given 'vmv'"),
        (partial(infonce, tau=0.1, index_NK=ROW), "index_NK: expected together with negatives"),
        (partial(dcl, tau=0.1, skip_own=True), "skip_own: expected together with negatives"),
        (partial(eqco, negatives=None, tau=0.1, alpha=9.0), r"negatives: expected .* given none"),
        *(
            (partial(dcl, tau=0.1, skip_own=True, **chosen), "expected a multiple of 5 shared neg")
            for chosen in (
                {"negatives": torch.ones(7, 4)},
                {"negatives": torch.ones(5, 3, 4)},
                {"negatives": torch.ones(5, 4), "index_NK": ROW},
            )
        ),
    ],
)
def test_other_parameters_have_their_ranges(loss, message):
    with pytest.raises(ValueError, match=message):
        loss(*views(5, 4))


@pytest.mark.parametrize("name", [*SINGLE_VIEW, "npc_multiplier"])
def test_what_needs_others_says_so_and_shapes_must_match(name):
    loss = (SINGLE_VIEW | {"npc_multiplier": partial(npc_multiplier, tau=0.1)})[name]
    for first, second in (((4, 3), (5, 3)), ((4, 3, 1), (4, 3, 1)), ((4,), (4,))):
        with pytest.raises(ValueError, match="two views of one shape"):
            loss(torch.ones(first), torch.ones(second))
    lacking = "statistics" if name in ("barlow", "dimcl", "abscl") else "negatives"
    num = 0 if name == "cosine" else 1
    message = f"at least 2 samples, given 1: a single one has no {lacking}"
    with pytest.raises(ValueError, match=message if num else "at least 1 samples, given 0"):
        loss(torch.ones(num, 3), torch.ones(num, 3))


def test_a_single_column_has_no_negatives_and_a_single_query_none_but_its_own():
    for loss in (dimcl, abscl):
        with pytest.raises(ValueError, match="at least 2 dimensions: a single column has no neg"):
            loss(*views(4, 1), 0.1)
    with pytest.raises(ValueError, match="skip_own: expected at least 2 queries"):
        dcl(*views(1, 4), 0.1, negatives=torch.ones(2, 4), skip_own=True)


@pytest.mark.parametrize(
    ("shape", "index_NK", "message"),
    [
        ((3,), None, r"negatives: expected \(K, 3\) or \(4, K, 3\), given \(3,\)"),
        ((5, 2, 3), None, r"or \(4, K, 3\), given \(5, 2, 3\)"),
        ((0, 3), None, r"negatives: expected at least 1, given \(0, 3\)"),
        ((4, 2, 3), ROW[:4], r"shared ones \(M, 3\) beside index_NK, given \(4, 2, 3\)"),
        ((5, 3), ROW[:3], r"int64 \(4, K\) with K >= 1, given torch.int64 \(3, 1\)"),
        ((5, 3), torch.zeros(4, 0).long(), r"index_NK: expected int64 \(4, K\) with K >= 1"),
        ((5, 3), torch.zeros(4, 2), r"given torch.float32 \(4, 2\)"),
    ],
)
def test_negatives_must_fit(shape, index_NK, message):
    multiplier = of_inputs(npc_multiplier, index_NK, tau=0.1)
    for loss in (*dict(losses_of("own", index_NK, 0.1)).values(), multiplier):
        with pytest.raises(ValueError, match=message):
            loss(*views(4, 3), torch.ones(shape))


@CLASSIFIERS
@pytest.mark.parametrize(
    ("shape", "labels_N", "message"),
    [
        ((4, 1), torch.zeros(4).long(), r"expected \(N, C\) of N >= 1 samples and C >= 2 classes"),
        ((0, 3), torch.zeros(0).long(), r"logits: expected .* given \(0, 3\)"),
        ((4,), torch.zeros(4).long(), r"logits: expected .* given \(4,\)"),
        ((4, 3), torch.zeros(3).long(), r"expected int64 \(4,\), given torch.int64 \(3,\)"),
        ((4, 3), torch.zeros(4), r"labels: expected int64 \(4,\), given torch.float32 \(4,\)"),
        ((2, 3), torch.tensor([0, -100]), "out of bounds"),  # never skipped
        ((2, 3), torch.tensor([0, 3]), "out of bounds"),
    ],
)
def test_logits_and_labels_must_fit(loss, shape, labels_N, message):
    with pytest.raises((ValueError, RuntimeError, IndexError), match=message):
        loss(torch.ones(shape), labels_N)


# skip_own: all shared negatives but a query's own views.


@pytest.mark.parametrize("num_views", [1, 2])
def test_skipping_own_views_is_an_index_of_the_others(num_views):
    num = 5
    inputs = [*views(num, 4), torch.cat(views(num, 4, seed=1)[:num_views]).detach()]
    inputs[2].requires_grad_()
    index_NK = torch.tensor(
        [[m for m in range(num * num_views) if m % num != n] for n in range(num)]
    )
    cases = [CONTRASTIVE[name] for name in ("infonce", "dcl", "dclw", "eqco")]
    for loss, own in (*cases, (align_uniform, None)):
        settings = {} if own is None else {"tau": 0.1, **own}
        skipping = of_inputs(loss, skip_own=True, **settings)
        assert_same(skipping, of_inputs(loss, index_NK, **settings), *inputs, tolerance=1e-12)
