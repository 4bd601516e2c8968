"""The losses against the papers' equations, written out as loops. `tests/benchmarks/losses.py`
shows the difference to lightly's.

Shapes: N samples, D features, K negatives of a query, M to choose from, C classes; `z1_ND`, `z2_ND`
are two views.
"""

import math
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clsweep.objective import contrastive as contrast_terms
from clsweep.objective.losses import (
    abscl,
    align_uniform,
    barlow,
    cosine,
    dcl,
    decoupled_cross_entropy,
    dimcl,
    infonce,
    npc_multiplier,
    supcon,
)
from tests.objective.loops import (
    BLOCKWISE,
    CLASSIFIERS,
    CONTRASTIVE,
    EXACT,
    FORMS,
    QUERIES,
    SINGLE_VIEW,
    SIZES,
    anchors_of,
    assert_finite,
    assert_same,
    contrast,
    dot,
    inputs_of,
    logits,
    losses_of,
    of_inputs,
    raw_views,
    value_and_grad,
    views,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tau", [0.05, 0.5])
@pytest.mark.parametrize("name", CONTRASTIVE)
def test_value_and_gradient_are_those_of_the_papers(name, tau, form):
    (loss, settings), sizes = CONTRASTIVE[name], SIZES if form == "batch" else QUERIES
    if (name, form) == ("eqco", "batch"):
        return  # it has none
    for size in sizes:
        inputs, index_NK = inputs_of(form, size[0], 4 if form != "batch" else size[1], size[1])

        def expected(*z: Tensor, index_NK: Any = index_NK) -> Tensor:
            return contrast(anchors_of(*z, index_NK=index_NK), loss, tau=tau, **settings)

        assert_same(of_inputs(loss, index_NK, tau=tau, **settings), expected, *inputs)


@pytest.mark.parametrize("alpha", [None, 500.0])
@pytest.mark.parametrize("form", FORMS)
def test_npc_multiplier_is_equation_4_and_parts_infonce_from_dcl(form, alpha):
    """InfoNCE - DCL = -mean log q_B; EqCo's margin multiplies U by alpha/K."""
    inputs, index_NK = inputs_of(form, 6, 4, 7)
    expected = []
    for anchor, positive, others in anchors_of(*inputs, index_NK=index_NK):
        margin = 1.0 if alpha is None else alpha / len(others)
        e = math.exp(dot(anchor, positive).item() / 0.3)
        u = margin * sum(math.exp(dot(anchor, other).item() / 0.3) for other in others)
        expected.append(1 - e / (e + u))
    more = {} if alpha is None else {"alpha": alpha}
    q_b = of_inputs(npc_multiplier, index_NK, tau=0.3, **more)(*inputs)
    assert not q_b.requires_grad
    torch.testing.assert_close(q_b.flatten().tolist(), expected, **EXACT)
    if alpha is None:
        parts = [of_inputs(loss, index_NK, tau=0.3)(*inputs) for loss in (dcl, infonce)]
        torch.testing.assert_close((parts[0] - parts[1]).detach(), q_b.log().mean(), **EXACT)


# Alignment and uniformity.


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("weight", "alpha", "t"), [(1.0, 2.0, 2.0), (0.3, 1.0, 0.5), (0.0, 1.5, 7.0)]
)
def test_align_uniform_is_that_of_wang_and_isola(weight, alpha, t, form):
    def distance(a_D: Tensor, b_D: Tensor) -> Tensor:
        return torch.sqrt(dot(a_D - b_D, a_D - b_D))

    def expected(z1_ND: Tensor, z2_ND: Tensor, *given: Tensor) -> Tensor:
        """Queries average over query and negative, a batch over the pairs of each view."""
        pairs = [[(z[i], z[j]) for j in range(len(z)) for i in range(j)] for z in (z1_ND, z2_ND)]
        if given:
            anchors = anchors_of(z1_ND, z2_ND, *given, index_NK=index_NK)
            pairs = [[(query, other) for query, _, others in anchors for other in others]]
        alignment = [distance(a, b) ** alpha for a, b in zip(z1_ND, z2_ND, strict=True)]
        potentials = [
            sum(torch.exp(-t * distance(a, b) ** 2) for a, b in some) / len(some) for some in pairs
        ]
        uniformity = sum(torch.log(potential) for potential in potentials) / len(potentials)
        return weight * sum(alignment) / len(alignment) + uniformity

    for size in SIZES if form == "batch" else [(1, 4), (4, 4)]:
        inputs, index_NK = inputs_of(form, *size)
        settings = {"align_weight": weight, "align_alpha": alpha, "uniform_t": t}
        assert_same(of_inputs(align_uniform, index_NK, **settings), expected, *inputs)


@pytest.mark.parametrize("align_alpha", [1.0, 1.3, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_alignment_has_a_finite_gradient_where_views_coincide(dtype, align_alpha):
    z1_ND, _ = views(6, 4, dtype=dtype)
    z2_ND = z1_ND.detach().clone().requires_grad_()
    value, grad = value_and_grad(partial(align_uniform, align_alpha=align_alpha), z1_ND, z2_ND)
    assert_finite(value, grad)
    assert value == align_uniform(z1_ND, z2_ND, align_weight=0.0), "no distance, no alignment term"


# Positives by class.


@pytest.mark.parametrize("tau", [0.07, 0.5])
@pytest.mark.parametrize("classes", [[0, 1, 0, 2], [3, 3, 3], [0, 1, 2]])
def test_supcon_is_equation_2_of_its_paper(classes, tau):
    """-1/|P(i)| sum_p log(exp(z_i z_p / tau) / sum_a exp(z_i z_a / tau)), of two views of each;
    the mean over anchors. Where no two images share a class it is infonce.
    """
    pair = views(len(classes), 3)

    def loops(z1_ND: Tensor, z2_ND: Tensor) -> Tensor:
        rows, of = [*z1_ND, *z2_ND], [*classes, *classes]
        total = torch.zeros((), dtype=torch.float64)
        for i, anchor in enumerate(rows):
            others = [a for a in range(len(rows)) if a != i]
            whole = sum(torch.exp(dot(anchor, rows[a]) / tau) for a in others)
            positives = [p for p in others if of[p] == of[i]]
            for p in positives:
                share = torch.exp(dot(anchor, rows[p]) / tau) / whole
                total = total - torch.log(share) / len(positives)
        return total / len(rows)

    def ours(z1_ND: Tensor, z2_ND: Tensor) -> Tensor:
        return supcon(torch.cat([z1_ND, z2_ND]), torch.tensor([*classes, *classes]), tau)

    assert_same(ours, loops, *pair)
    if len({*classes}) == len(classes):
        assert_same(ours, partial(infonce, tau=tau), *pair)


def test_supcon_is_finite_and_refuses_what_does_not_fit():
    z_ND, _ = views(4, 3, dtype=torch.bfloat16)
    labels_N = torch.tensor([0, 0, 1, 1])
    value = supcon(z_ND, labels_N, 0.005)
    assert value.dtype == torch.float32
    assert torch.isfinite(value)
    for wrong in ((z_ND, labels_N[:3], 0.1), (z_ND, labels_N.float(), 0.1), (z_ND, labels_N, 0.0)):
        with pytest.raises(ValueError, match=r"labels: expected int64|tau"):
            supcon(*wrong)


# Losses without negatives.


@pytest.mark.parametrize("size", [(1, 4), *SIZES])
def test_cosine_is_the_mean_negative_similarity(size):
    def expected(p_ND: Tensor, z_ND: Tensor) -> Tensor:
        terms = [
            -dot(p, z) / torch.sqrt(dot(p, p) * dot(z, z)) for p, z in zip(p_ND, z_ND, strict=True)
        ]
        return sum(terms) / len(terms)

    assert_same(cosine, expected, *raw_views(*size))


@pytest.mark.parametrize("loss", [cosine, barlow])
def test_a_scale_multiplies_value_and_gradient(loss):
    inputs = raw_views(5, 8)
    assert_same(partial(loss, loss_scale=0.024), lambda a, b: 0.024 * loss(a, b), *inputs)


def standardised_columns(z_ND: Tensor, *, centre: bool = True, unit: bool = False) -> list[Tensor]:
    """(x - mean) / std of each column, biased; with `unit` then divided by its norm."""
    columns = []
    for column_N in z_ND.T:
        if centre:
            mean = sum(column_N) / len(column_N)
            variance = sum((x - mean) ** 2 for x in column_N) / len(column_N)
            column_N = torch.stack([(x - mean) / torch.sqrt(variance) for x in column_N])
        columns.append(column_N / torch.sqrt(dot(column_N, column_N)) if unit else column_N)
    return columns


@pytest.mark.parametrize("size", [(3, 1), (2, 3), (9, 4)])
@pytest.mark.parametrize("off_diag", [0.0051, 1.0])
def test_barlow_is_that_of_its_paper(off_diag, size):
    def expected(z1_ND: Tensor, z2_ND: Tensor) -> Tensor:
        columns, total = [standardised_columns(z) for z in (z1_ND, z2_ND)], torch.zeros(())
        for i, j in product(range(size[1]), repeat=2):
            c_ij = dot(columns[0][i], columns[1][j]) / size[0]
            total = total + ((1 - c_ij) ** 2 if i == j else off_diag * c_ij**2)
        return total

    assert_same(partial(barlow, off_diag=off_diag), expected, *raw_views(*size))


@pytest.mark.parametrize("size", [(3, 2), (2, 3), (9, 4)])
@pytest.mark.parametrize("dim_tau", [0.05, 1.0])
@pytest.mark.parametrize("dim_standardize", [True, False])
@pytest.mark.parametrize("loss", [dimcl, abscl])
def test_column_losses_are_those_of_the_paper(loss, dim_standardize, dim_tau, size):
    """DimCL Eq. 5 and 4, for the columns of both views."""

    def expected(*z: Tensor) -> Tensor:
        columns = (
            torch.stack(standardised_columns(z_ND, centre=dim_standardize, unit=True)) for z_ND in z
        )
        return contrast(anchors_of(*columns), infonce, tau=dim_tau, absolute=loss is abscl)

    # two samples, centred, are +-1/sqrt(2) whatever they were: the gradient is 0, up to 1/dim_tau
    # roundings
    settings = {"dim_tau": dim_tau, "dim_standardize": dim_standardize}
    assert_same(partial(loss, **settings), expected, *raw_views(*size))


# Classifiers.


@pytest.mark.parametrize(("num_samples", "num_classes"), [(1, 2), (6, 5)])
@CLASSIFIERS
def test_classifier_losses_differ_by_the_true_class_in_the_denominator(
    loss, num_samples, num_classes
):
    logits_NC, labels_N = logits(num_samples, num_classes)
    left_out = loss is decoupled_cross_entropy

    def expected(x_NC: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for x_C, y in zip(x_NC, labels_N.tolist(), strict=True):
            u = sum(torch.exp(x_C[c]) for c in range(num_classes) if not (left_out and c == y))
            total = total - x_C[y] + torch.log(u)
        return total / num_samples

    assert_same(partial(loss, labels_N=labels_N), expected, logits_NC)


# Gradients of the batch form, made in forward block by block.


@pytest.mark.parametrize("rows", [1, 4, 9])
@pytest.mark.parametrize("loss", BLOCKWISE)
def test_size_of_the_blocks_changes_nothing(loss, rows, monkeypatch):
    inputs, actual = views(9, 9), []  # 18 anchors, be they rows or columns
    for _ in range(2):
        actual.append((*value_and_grad(BLOCKWISE[loss], *inputs), npc_multiplier(*inputs, 0.1)))
        monkeypatch.setitem(contrast_terms.BLOCK_ELEMENTS, "cpu", rows * 18 + 1)
    torch.testing.assert_close(*actual, rtol=1e-12, atol=1e-12)


class Largest(TorchDispatchMode):
    """Records the size of the largest tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = [x.numel() for x in tree_leaves(result) if isinstance(x, Tensor)]
        self.numel = max(self.numel, *made, 0)
        return result


@pytest.mark.parametrize("loss", BLOCKWISE)
def test_all_similarities_are_never_held_at_once(loss, monkeypatch):
    inputs = views(64, 64, dtype=torch.float32)
    with Largest() as at_most:
        value_and_grad(BLOCKWISE[loss], *inputs)
    assert at_most.numel <= 128 * 128 // 2
    monkeypatch.setitem(contrast_terms.BLOCK_ELEMENTS, "cpu", 8 * 128)
    with Largest() as blocks:
        value_and_grad(BLOCKWISE[loss], *inputs)
    assert blocks.numel == 2 * 64 * 64, "the projections of both views are the largest then"


def test_drawn_negatives_are_never_copied_for_each_query():
    inputs, index_NK = inputs_of("index", 8, 64, 20)
    for name, loss in losses_of("index", index_NK, 0.1):
        with Largest() as at_most:
            value_and_grad(loss, *inputs)
        assert at_most.numel <= 23 * 64 + 2 * 8 * 64 < 8 * 20 * 64, name


@pytest.mark.parametrize("loss", SINGLE_VIEW)
def test_gradient_scales_repeats_reaches_one_view_alone_and_may_be_off(loss):
    z1_ND, z2_ND = views(6, 4)
    expected, grad = value_and_grad(SINGLE_VIEW[loss], z1_ND, z2_ND)
    value = SINGLE_VIEW[loss](z1_ND, z2_ND)
    for _ in range(2):
        (tripled,) = torch.autograd.grad(3 * value, z2_ND, retain_graph=True)
        torch.testing.assert_close(tripled.flatten(), 3 * grad[24:], rtol=1e-12, atol=1e-12)
    _, alone = value_and_grad(lambda z: SINGLE_VIEW[loss](z1_ND.detach(), z), z2_ND)
    torch.testing.assert_close(alone, grad[24:], rtol=1e-12, atol=1e-12)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            value = SINGLE_VIEW[loss](z1_ND, z2_ND)
        assert not value.requires_grad
        assert torch.equal(value, expected)
    assert not SINGLE_VIEW[loss](z1_ND.detach(), z2_ND.detach()).requires_grad


def test_gradient_of_the_gradient_is_refused_and_not_silently_zero():
    inputs = views(4, 3)
    with pytest.raises(RuntimeError, match="no gradient of its own"):
        torch.autograd.grad(infonce(*inputs, 0.1), inputs, create_graph=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("form", FORMS)
def test_gradients_have_the_inputs_type_and_values_at_least_float32(form, dtype):
    exact, index_NK = inputs_of(form, 6, 4)
    inputs = [z.detach().to(dtype).requires_grad_() for z in exact]
    exact = [z.detach().double().requires_grad_() for z in inputs]
    cases = dict(losses_of(form, index_NK, 0.1)) | (SINGLE_VIEW if form == "batch" else {})
    tolerance = 1e-2 if dtype == torch.bfloat16 else 2e-3
    for name, loss in cases.items():
        value, grad = value_and_grad(loss, *inputs)
        assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32), name
        assert {g.dtype for g in torch.autograd.grad(loss(*inputs), inputs)} == {dtype}, name
        exact_value, exact_grad = value_and_grad(loss, *exact)
        torch.testing.assert_close(value.double(), exact_value, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(grad.double(), exact_grad, rtol=tolerance, atol=tolerance)
