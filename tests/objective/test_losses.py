"""The losses against the papers' equations, written out as loops, and against lightly and
pytorch-metric-learning.

Shapes: N samples, D features, K negatives of a query, M to choose from, C classes; `z1_ND`, `z2_ND`
are two views.
"""

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clsweep.objective import contrast as contrast_terms
from clsweep.objective import losses
from clsweep.objective.losses import (
    abscl,
    align_uniform,
    barlow,
    cosine,
    cross_entropy,
    dcl,
    dclw,
    decoupled_cross_entropy,
    dimcl,
    eqco,
    infonce,
    npc_multiplier,
)

pytestmark = pytest.mark.usefixtures("one_thread")

Loss = Callable[..., Tensor]
SIZES = [(2, 3), (3, 2), (5, 8), (9, 4)]
LOSSES = {"infonce": infonce, "dcl": dcl, "dclw": partial(dclw, sigma=0.5)}
COLUMN_LOSSES = {"dimcl": dimcl, "abscl": abscl}
FORMS = ["shared", "own", "index"]
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def views(
    num_samples: int, dim: int, *, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Two views that are alike, as views of one image are, normalised; leaves that collect
    gradient.
    """
    z1_ND, z2_ND = (
        F.normalize(z, dim=1).to(dtype).requires_grad_()
        for z in raw_views(num_samples, dim, seed=seed)
    )
    return z1_ND, z2_ND


def raw_views(num_samples: int, dim: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(num_samples, dim, generator=generator, dtype=torch.float64)
    z1_ND, z2_ND = (
        base + torch.randn(base.shape, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    return z1_ND.detach().requires_grad_(), z2_ND.detach().requires_grad_()


def queries(
    form: str, num_queries: int, dim: int, num_negatives: int
) -> tuple[list[Tensor], Tensor | None]:
    """[queries, positives, negatives], all of them leaves, and index_NK."""
    generator = torch.Generator().manual_seed(num_negatives)
    shape = {
        "shared": (num_negatives,),
        "own": (num_queries, num_negatives),
        "index": (num_negatives + 3,),
    }[form]
    negatives = F.normalize(
        torch.randn(*shape, dim, generator=generator, dtype=torch.float64), dim=-1
    )
    index_NK = None
    if form == "index":  # drawn for each query, some rows twice
        index_NK = torch.randint(len(negatives), (num_queries, num_negatives), generator=generator)
    return [*views(num_queries, dim, seed=1), negatives.requires_grad_()], index_NK


def value_and_grad(loss: Loss, *inputs: Tensor) -> tuple[Tensor, Tensor]:
    value = loss(*inputs)
    return value.detach(), torch.cat(
        [grad.flatten() for grad in torch.autograd.grad(value, inputs)]
    )


def assert_same(actual: Loss, expected: Loss, *inputs: Tensor, tolerance: float = 1e-10) -> None:
    """In value and gradient."""
    found, wanted = value_and_grad(actual, *inputs), value_and_grad(expected, *inputs)
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def dot(a_D: Tensor, b_D: Tensor) -> Tensor:
    """A loop, so that not even a matrix product is shared with the package."""
    return sum((a * b for a, b in zip(a_D, b_D, strict=True)), torch.zeros((), dtype=a_D.dtype))


def negatives(num_samples: int, i: int) -> list[tuple[int, int]]:
    """(l, j) of Eq. 2's sum: both views of every other sample."""
    return [(view, j) for view in range(2) for j in range(num_samples) if j != i]


def batch_anchors(z1_ND: Tensor, z2_ND: Tensor) -> list[tuple[Tensor, Tensor, list[Tensor]]]:
    """Anchor, positive and negatives of the 2N terms."""
    z, num_samples = (z1_ND, z2_ND), len(z1_ND)
    return [
        (z[k][i], z[1 - k][i], [z[view][j] for view, j in negatives(num_samples, i)])
        for k in range(2)
        for i in range(num_samples)
    ]


def query_anchors(
    queries_ND: Tensor, positives_ND: Tensor, given: Tensor, index_NK: Tensor | None
) -> list[tuple[Tensor, Tensor, list[Tensor]]]:
    """Query, positive key and negatives of the N terms."""
    rows = [given if given.ndim == 2 else given[i] for i in range(len(queries_ND))]
    if index_NK is not None:
        rows = [[given[j] for j in index_NK[i].tolist()] for i in range(len(queries_ND))]
    return [(queries_ND[i], positives_ND[i], list(rows[i])) for i in range(len(queries_ND))]


def contrast(
    anchors: list[tuple[Tensor, Tensor, list[Tensor]]],
    *,
    tau: float,
    loss: str,
    sigma: float = math.inf,
    delta: float = 3.0,
    detach: bool = True,
    alpha: float = 1.0,
    absolute: bool = False,
) -> Tensor:
    """DCL Eq. 1-2 (infonce), 6 (dcl), 7 (dclw) and A.8 (exponential), EqCo Eq. 10: plain loops,
    plain exp; the mean.
    """
    similarities = [dot(anchor, positive) for anchor, positive, _ in anchors]
    weighing = [s.detach() if detach else s for s in similarities]
    expected_vmf = sum(torch.exp(s / sigma) for s in weighing) / len(weighing)
    total = torch.zeros((), dtype=torch.float64)
    for (anchor, _, others), similarity, s in zip(anchors, similarities, weighing, strict=True):
        positive = similarity / tau
        u = torch.zeros((), dtype=torch.float64)
        for other in others:
            negative = dot(anchor, other)
            u = u + torch.exp((negative.abs() if absolute else negative) / tau)
        if loss == "infonce":
            total = total - torch.log(torch.exp(positive) / (torch.exp(positive) + u))
        elif loss == "eqco":
            total = total - torch.log(
                torch.exp(positive) / (torch.exp(positive) + alpha / len(others) * u)
            )
        else:
            w = {
                "dcl": 1.0,
                "dclw": 2 - torch.exp(s / sigma) / expected_vmf,
                "exponential": delta * torch.exp(-sigma * s),
            }
            total = total - w[loss] * positive + torch.log(u)
    return total / len(anchors)


def reference(z1_ND: Tensor, z2_ND: Tensor, **settings: Any) -> Tensor:
    return contrast(batch_anchors(z1_ND, z2_ND), **settings)


def query_reference(
    queries_ND: Tensor,
    positives_ND: Tensor,
    given: Tensor,
    *,
    index_NK: Tensor | None,
    **settings: Any,
) -> Tensor:
    return contrast(query_anchors(queries_ND, positives_ND, given, index_NK), **settings)


def in_query_form(loss: Loss, index_NK: Tensor | None, **settings: Any) -> Loss:
    """`loss` as a function of queries, positives and negatives."""
    return lambda q, k, given: loss(q, k, negatives=given, index_NK=index_NK, **settings)


def query_cases(index_NK: Tensor | None, tau: float) -> dict[str, Loss]:
    """Every loss of queries and negatives."""
    cases = {name: in_query_form(loss, index_NK, tau=tau) for name, loss in QUERY_LOSSES.items()}
    return {**cases, "align_uniform": in_query_form(align_uniform, index_NK)}


def equation_3(z1_ND: Tensor, z2_ND: Tensor, *, tau: float, coupled: bool) -> tuple[Tensor, Tensor]:
    """Gradient of the mean loss by Proposition 1, for both k, and q_B of Eq. 4; without q_B if not
    `coupled`.
    """
    z, num_samples = torch.stack([z1_ND, z2_ND]).detach(), len(z1_ND)
    grad, q_b = torch.zeros_like(z), torch.zeros(2, num_samples, dtype=torch.float64)
    for k in range(2):
        for i in range(num_samples):
            anchor, positive = z[k, i], z[1 - k, i]
            e = {
                (view, j): math.exp(dot(anchor, z[view, j]) / tau)
                for view, j in negatives(num_samples, i)
            }
            u_ik, e_positive = sum(e.values()), math.exp(dot(anchor, positive) / tau)
            q_b[k, i] = 1 - e_positive / (e_positive + u_ik)
            force = (q_b[k, i] if coupled else 1.0) / tau
            grad[k, i] -= force * (positive - sum(e[at] / u_ik * z[at] for at in e))
            grad[1 - k, i] -= force * anchor
            for at in e:
                grad[at] += force * e[at] / u_ik * anchor
    return grad.flatten() / (2 * num_samples), q_b


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tau", [0.05, 0.1, 0.5, 3.0])
@pytest.mark.parametrize("loss", ["infonce", "dcl"])
def test_value_and_gradient_are_those_of_the_paper(
    loss: str, tau: float, size: tuple[int, int]
) -> None:
    expected = partial(reference, tau=tau, loss=loss)
    assert_same(partial(LOSSES[loss], tau=tau), expected, *views(*size))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tau", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("sigma", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("detach", [True, False])
def test_dclw_value_and_gradient_are_those_of_the_paper(
    detach: bool, sigma: float, tau: float, size: tuple[int, int]
) -> None:
    for weighting, loss in (("vmf", "dclw"), ("exponential", "exponential")):
        settings = {"tau": tau, "sigma": sigma, "delta": 2.5}
        ours = partial(dclw, **settings, weighting=weighting, dclw_detach=detach)
        expected = partial(reference, **settings, loss=loss, detach=detach)
        assert_same(ours, expected, *views(*size))


QUERY_LOSSES: dict[str, Loss] = {
    "infonce": infonce,
    "dcl": dcl,
    "dclw": partial(dclw, sigma=0.4),
    "exponential": partial(dclw, sigma=0.4, weighting="exponential"),
    "eqco": partial(eqco, alpha=700.0),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("num_queries", "num_negatives"), [(1, 1), (4, 3), (5, 9)])
@pytest.mark.parametrize("tau", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("loss", QUERY_LOSSES)
def test_query_form_value_and_gradient_are_those_of_the_papers(
    loss: str, tau: float, num_queries: int, num_negatives: int, form: str
) -> None:
    inputs, index_NK = queries(form, num_queries, 4, num_negatives)
    expected = partial(
        query_reference, index_NK=index_NK, tau=tau, loss=loss, sigma=0.4, alpha=700.0
    )
    assert_same(in_query_form(QUERY_LOSSES[loss], index_NK, tau=tau), expected, *inputs)


@pytest.mark.parametrize("form", FORMS)
def test_eqco_of_as_many_negatives_as_it_has_is_infonce(form: str) -> None:
    inputs, index_NK = queries(form, 5, 4, 6)
    actual = in_query_form(eqco, index_NK, tau=0.1, alpha=6)
    assert_same(actual, in_query_form(infonce, index_NK, tau=0.1), *inputs, tolerance=1e-12)


@pytest.mark.parametrize("alpha", [0.5, 16.0, 65536.0])
@pytest.mark.parametrize("num_negatives", [1, 4, 16])
def test_gradient_of_eqco_is_within_the_bound_of_its_theorem_2(
    num_negatives: int, alpha: float
) -> None:
    """Inequality 12 holds for any negatives; Eq. 7 for the mean over negatives drawn
    independently.
    """
    generator = torch.Generator().manual_seed(0)
    tau, num_draws = 0.2, 2000
    for seed in range(3):
        query_D, key_D = (z[0].detach() for z in views(2, 8, seed=seed))
        population_MD = F.normalize(
            torch.randn(50, 8, generator=generator, dtype=torch.float64), dim=1
        )
        drawn_NKD = population_MD[
            torch.randint(50, (num_draws, num_negatives), generator=generator)
        ]
        queries_ND = query_D.repeat(num_draws, 1).requires_grad_()
        keys_ND = key_D.repeat(num_draws, 1)
        loss = partial(eqco, positives_ND=keys_ND, negatives=drawn_NKD, tau=tau, alpha=alpha)
        _, grad = value_and_grad(loss, queries_ND)
        norms_N = num_draws * grad.reshape(num_draws, -1).norm(dim=1)
        s_0, s_NK, s_M = ((z @ query_D / tau).exp() for z in (key_D, drawn_NKD, population_MD))
        assert (norms_N <= 2 / tau * (1 - s_0 / (s_0 + alpha * s_NK.mean(1))) + 1e-12).all()
        assert norms_N.mean() <= 2 / tau * (1 - s_0 / (s_0 + alpha * s_M.mean()))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tau", [0.07, 0.5])
def test_proposition_1_gradient_of_infonce_carries_q_b(tau: float, size: tuple[int, int]) -> None:
    z1_ND, z2_ND = views(*size)
    expected, q_b = equation_3(z1_ND, z2_ND, tau=tau, coupled=True)
    assert q_b.min() < 0.9, "the coupling must be visible in this example"
    _, grad = value_and_grad(partial(infonce, tau=tau), z1_ND, z2_ND)
    torch.testing.assert_close(grad, expected, **EXACT)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tau", [0.07, 0.5])
def test_gradient_of_dcl_is_that_of_infonce_without_q_b(tau: float, size: tuple[int, int]) -> None:
    z1_ND, z2_ND = views(*size)
    expected, _ = equation_3(z1_ND, z2_ND, tau=tau, coupled=False)
    _, grad = value_and_grad(partial(dcl, tau=tau), z1_ND, z2_ND)
    torch.testing.assert_close(grad, expected, **EXACT)


@pytest.mark.parametrize("tau", [0.07, 1.0])
def test_dclw_becomes_dcl_as_sigma_grows(tau: float) -> None:
    z1_ND, z2_ND = views(6, 4)
    limit = value_and_grad(partial(dcl, tau=tau), z1_ND, z2_ND)
    gaps = [
        (value_and_grad(partial(dclw, tau=tau, sigma=sigma), z1_ND, z2_ND)[0] - limit[0])
        .abs()
        .item()
        for sigma in (1.0, 10.0, 100.0, 1e3)
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.01 * gaps[0]
    at_infinity = value_and_grad(partial(dclw, tau=tau, sigma=math.inf), z1_ND, z2_ND)
    torch.testing.assert_close(at_infinity, limit, rtol=1e-12, atol=1e-12)


def test_losses_are_ordered() -> None:
    """InfoNCE adds a positive term to DCL's denominator, so it is larger, by -log q_B on average
    (Eq. 4).
    """
    z1_ND, z2_ND = views(7, 5)
    _, q_b = equation_3(z1_ND, z2_ND, tau=0.2, coupled=True)
    gap = infonce(z1_ND, z2_ND, tau=0.2) - dcl(z1_ND, z2_ND, tau=0.2)
    torch.testing.assert_close(gap.detach(), -q_b.log().mean(), **EXACT)


@pytest.mark.parametrize("loss", LOSSES)
def test_swapping_views_and_reordering_samples_change_nothing(loss: str) -> None:
    z1_ND, z2_ND = views(7, 5)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(3))
    value = LOSSES[loss](z1_ND, z2_ND, tau=0.1)
    torch.testing.assert_close(LOSSES[loss](z2_ND, z1_ND, tau=0.1), value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        LOSSES[loss](z1_ND[order], z2_ND[order], tau=0.1), value, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("form", [None, *FORMS])
def test_npc_multiplier_is_equation_4_and_parts_infonce_from_dcl(form: str | None) -> None:
    """InfoNCE - DCL = -mean log q_B; and q_B is what Proposition 1 says its gradient carries."""
    if form is None:
        inputs, settings = list(views(6, 4)), {"tau": 0.3}
        _, expected = equation_3(*inputs, tau=0.3, coupled=True)
        arguments: dict[str, Any] = {}
    else:
        inputs, index_NK = queries(form, 5, 4, 7)
        arguments, settings = {"negatives": inputs[2], "index_NK": index_NK}, {"tau": 0.3}
        e = [
            (
                math.exp(dot(q, k).item() / 0.3),
                sum(math.exp(dot(q, other).item() / 0.3) for other in others),
            )
            for q, k, others in query_anchors(*inputs, index_NK)
        ]
        expected = torch.tensor(
            [1 - positive / (positive + u) for positive, u in e], dtype=torch.float64
        )
    q_b = npc_multiplier(*inputs[:2], **settings, **arguments)
    assert not q_b.requires_grad
    torch.testing.assert_close(q_b, expected.flatten(), **EXACT)
    gap = dcl(*inputs[:2], **settings, **arguments) - infonce(*inputs[:2], **settings, **arguments)
    torch.testing.assert_close(gap.detach(), q_b.log().mean(), **EXACT)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_dcl_is_equation_4_of_ecpp(tau: float, size: tuple[int, int]) -> None:
    """Written as there: for each n, one sum over m != n of exp(sim(z_n, z_m)) + exp(sim(z_n,
    z'_m)), both ways.
    """

    def ecpp(z_ND: Tensor, other_ND: Tensor) -> Tensor:
        terms = []
        for a_ND, b_ND in ((z_ND, other_ND), (other_ND, z_ND)):
            for n in range(len(z_ND)):
                others = [m for m in range(len(z_ND)) if m != n]
                within = torch.stack(
                    [torch.exp(F.cosine_similarity(a_ND[n], a_ND[m], dim=0) / tau) for m in others]
                )
                across = torch.stack(
                    [torch.exp(F.cosine_similarity(a_ND[n], b_ND[m], dim=0) / tau) for m in others]
                )
                positive = torch.exp(F.cosine_similarity(a_ND[n], b_ND[n], dim=0) / tau)
                terms.append(-torch.log(positive / (within + across).sum()))
        return torch.stack(terms).mean()

    def ours(a_ND: Tensor, b_ND: Tensor) -> Tensor:
        return dcl(F.normalize(a_ND, dim=1), F.normalize(b_ND, dim=1), tau)

    assert_same(ours, ecpp, *raw_views(*size))


# Alignment and uniformity.


def distance(a_D: Tensor, b_D: Tensor) -> Tensor:
    return torch.sqrt(dot(a_D - b_D, a_D - b_D))


def align_uniform_reference(
    z1_ND: Tensor,
    z2_ND: Tensor,
    given: Tensor | None = None,
    *,
    weight: float,
    alpha: float,
    t: float,
    index_NK: Tensor | None = None,
) -> Tensor:
    alignment = sum(distance(a, b) ** alpha for a, b in zip(z1_ND, z2_ND, strict=True)) / len(z1_ND)
    if given is None:
        pairs = [[(z[i], z[j]) for j in range(len(z)) for i in range(j)] for z in (z1_ND, z2_ND)]
    else:
        anchors = query_anchors(z1_ND, z2_ND, given, index_NK)
        pairs = [[(query, other) for query, _, others in anchors for other in others]]
    potentials = [
        sum(torch.exp(-t * distance(a, b) ** 2) for a, b in some) / len(some) for some in pairs
    ]
    return weight * alignment + sum(torch.log(potential) for potential in potentials) / len(
        potentials
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("weight", "alpha", "t"), [(1.0, 2.0, 2.0), (0.3, 1.0, 0.5), (0.0, 1.5, 7.0), (2.0, 4.0, 2.0)]
)
def test_align_uniform_is_that_of_wang_and_isola(
    weight: float, alpha: float, t: float, size: tuple[int, int]
) -> None:
    actual = partial(align_uniform, align_weight=weight, align_alpha=alpha, uniform_t=t)
    expected = partial(align_uniform_reference, weight=weight, alpha=alpha, t=t)
    assert_same(actual, expected, *views(*size))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_queries", [1, 4])
def test_align_uniform_of_queries_averages_over_query_and_negative(
    num_queries: int, form: str
) -> None:
    inputs, index_NK = queries(form, num_queries, 4, 5)
    actual = in_query_form(
        align_uniform, index_NK, align_weight=0.7, align_alpha=1.5, uniform_t=3.0
    )
    expected = partial(align_uniform_reference, weight=0.7, alpha=1.5, t=3.0, index_NK=index_NK)
    assert_same(actual, expected, *inputs)


@pytest.mark.parametrize("align_alpha", [1.0, 1.3, 2.0, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_alignment_has_a_finite_gradient_where_views_coincide(
    dtype: torch.dtype, align_alpha: float
) -> None:
    z1_ND, _ = views(6, 4, dtype=dtype)
    z2_ND = z1_ND.detach().clone().requires_grad_()
    value, grad = value_and_grad(partial(align_uniform, align_alpha=align_alpha), z1_ND, z2_ND)
    assert torch.isfinite(value)
    assert torch.isfinite(grad).all()
    assert value == align_uniform(z1_ND, z2_ND, align_weight=0.0).detach(), (
        "no distance, no alignment term"
    )


# Losses without negatives.


@pytest.mark.parametrize("size", [(1, 4), *SIZES])
def test_cosine_is_the_mean_negative_similarity(size: tuple[int, int]) -> None:
    def expected(p_ND: Tensor, z_ND: Tensor) -> Tensor:
        terms = [
            -dot(p, z) / torch.sqrt(dot(p, p) * dot(z, z)) for p, z in zip(p_ND, z_ND, strict=True)
        ]
        return sum(terms) / len(terms)

    assert_same(cosine, expected, *raw_views(*size))


@pytest.mark.parametrize("scale", [0.024, 4.0])
@pytest.mark.parametrize("loss", [cosine, barlow])
def test_a_scale_multiplies_value_and_gradient(loss: Callable[..., Tensor], scale: float) -> None:
    inputs = raw_views(5, 8)
    assert_same(partial(loss, loss_scale=scale), lambda a, b: scale * loss(a, b), *inputs)
    with pytest.raises(ValueError, match="loss_scale"):
        loss(*inputs, loss_scale=0.0)


def test_four_times_the_cosine_is_byols_loss_of_both_directions() -> None:
    """|p / |p| - z / |z||^2 of both, added (BYOL Eq. 2), but for the constant 4 of the value."""
    p1, p2, z1, z2 = (*raw_views(5, 8), *(2 * z for z in raw_views(5, 8)))

    def published(p1: Tensor, p2: Tensor) -> Tensor:
        pairs = ((p1, z2), (p2, z1))
        return sum(
            (F.normalize(p, dim=1) - F.normalize(z, dim=1)).square().sum(1).mean() for p, z in pairs
        )

    def ours(p1: Tensor, p2: Tensor) -> Tensor:
        return 4 + (cosine(p1, z2, 4.0) + cosine(p2, z1, 4.0)) / 2

    assert_same(ours, published, p1, p2)


def standardised_columns(z_ND: Tensor, *, centre: bool = True, unit: bool = False) -> list[Tensor]:
    """(x - mean) / std of each column, biased; with `unit` then divided by its norm."""
    columns = []
    for d in range(z_ND.shape[1]):
        column_N = z_ND[:, d]
        if centre:
            mean = sum(column_N) / len(column_N)
            variance = sum((x - mean) ** 2 for x in column_N) / len(column_N)
            column_N = torch.stack([(x - mean) / torch.sqrt(variance) for x in column_N])
        columns.append(column_N / torch.sqrt(dot(column_N, column_N)) if unit else column_N)
    return columns


@pytest.mark.parametrize("size", [(3, 1), (2, 3), (5, 8), (9, 4)])
@pytest.mark.parametrize("off_diag", [0.0, 0.0051, 1.0])
def test_barlow_is_that_of_its_paper(off_diag: float, size: tuple[int, int]) -> None:
    def expected(z1_ND: Tensor, z2_ND: Tensor) -> Tensor:
        columns1, columns2 = standardised_columns(z1_ND), standardised_columns(z2_ND)
        total = torch.zeros((), dtype=torch.float64)
        for i in range(len(columns1)):
            for j in range(len(columns2)):
                c_ij = dot(columns1[i], columns2[j]) / len(z1_ND)
                total = total + ((1 - c_ij) ** 2 if i == j else off_diag * c_ij**2)
        return total

    assert_same(partial(barlow, off_diag=off_diag), expected, *raw_views(*size))


# Contrast between columns.


def column_reference(
    z1_ND: Tensor, z2_ND: Tensor, *, dim_tau: float, dim_standardize: bool, absolute: bool
) -> Tensor:
    """DimCL Eq. 5 and 4, for the columns of both views."""
    columns = (
        torch.stack(standardised_columns(z, centre=dim_standardize, unit=True))
        for z in (z1_ND, z2_ND)
    )
    return reference(*columns, tau=dim_tau, loss="infonce", absolute=absolute)


@pytest.mark.parametrize("size", [(3, 2), (2, 3), (5, 8), (9, 4)])
@pytest.mark.parametrize("dim_tau", [0.05, 0.1, 1.0])
@pytest.mark.parametrize("dim_standardize", [True, False])
@pytest.mark.parametrize("loss", COLUMN_LOSSES)
def test_column_losses_are_those_of_the_paper(
    loss: str, dim_standardize: bool, dim_tau: float, size: tuple[int, int]
) -> None:
    settings = {"dim_tau": dim_tau, "dim_standardize": dim_standardize}
    expected = partial(column_reference, **settings, absolute=loss == "abscl")
    # two samples, centred, are +-1/sqrt(2) whatever they were: the gradient is 0, up to 1/dim_tau
    # roundings
    assert_same(partial(COLUMN_LOSSES[loss], **settings), expected, *raw_views(*size))


def test_dimcl_is_infonce_of_the_transposed_batch() -> None:
    def columns(z_ND: Tensor) -> Tensor:
        return F.normalize((z_ND - z_ND.mean(0)) / z_ND.std(0, correction=0), dim=0).T

    inputs = raw_views(7, 5)
    standard, raw = (partial(dimcl, dim_tau=0.1, dim_standardize=is_so) for is_so in (True, False))
    assert_same(standard, lambda a, b: infonce(columns(a), columns(b), 0.1), *inputs)
    assert_same(raw, lambda a, b: infonce(F.normalize(a.T), F.normalize(b.T), 0.1), *inputs)
    assert (standard(*inputs) - raw(*inputs)).abs() > 0.01


@pytest.mark.parametrize("dim_tau", [0.05, 0.5])
def test_abscl_is_larger_than_dimcl_by_the_opposite_columns(dim_tau: float) -> None:
    z1_ND, z2_ND = (z.detach() for z in raw_views(8, 5))
    assert abscl(z1_ND, z2_ND, dim_tau) > dimcl(z1_ND, z2_ND, dim_tau) + 0.01
    flipped = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0], dtype=torch.float64)
    torch.testing.assert_close(
        abscl(flipped * z1_ND, flipped * z2_ND, dim_tau), abscl(z1_ND, z2_ND, dim_tau), **EXACT
    )
    positive = (z1_ND.abs(), z2_ND.abs(), dim_tau)  # all products of such columns are positive
    torch.testing.assert_close(
        abscl(*positive, dim_standardize=False), dimcl(*positive, dim_standardize=False), **EXACT
    )


# Classifiers.


def logits(num_samples: int, num_classes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num_classes)
    logits_NC = 3 * torch.randn(num_samples, num_classes, generator=generator, dtype=torch.float64)
    return logits_NC.requires_grad_(), torch.randint(
        num_classes, (num_samples,), generator=generator
    )


@pytest.mark.parametrize(("num_samples", "num_classes"), [(1, 2), (4, 3), (6, 10)])
def test_classifier_losses_differ_by_the_true_class_in_the_denominator(
    num_samples: int, num_classes: int
) -> None:
    logits_NC, labels_N = logits(num_samples, num_classes)

    def expected(x_NC: Tensor, *, decoupled: bool) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for x_C, y in zip(x_NC, labels_N.tolist(), strict=True):
            u = sum(torch.exp(x_C[c]) for c in range(num_classes) if not (decoupled and c == y))
            total = total - x_C[y] + torch.log(u)
        return total / num_samples

    for loss, decoupled in ((cross_entropy, False), (decoupled_cross_entropy, True)):
        actual = partial(loss, labels_N=labels_N)
        assert_same(actual, partial(expected, decoupled=decoupled), logits_NC)
    torch_own = partial(F.cross_entropy, target=labels_N)
    assert_same(partial(cross_entropy, labels_N=labels_N), torch_own, logits_NC)


def test_decoupled_cross_entropy_is_the_limit_of_cross_entropy_on_hard_samples() -> None:
    """The less likely the true class, the less its logit matters in the denominator."""
    logits_NC, labels_N = logits(5, 4)
    true_class_NC = F.one_hot(labels_N, 4)
    gaps = [
        (cross_entropy(x_NC, labels_N) - decoupled_cross_entropy(x_NC, labels_N)).item()
        for x_NC in (logits_NC.detach() - lower * true_class_NC for lower in (0.0, 5.0, 10.0, 40.0))
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] > 0.1
    assert abs(gaps[-1]) < 1e-12


# lightly, a second oracle.


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tau", [0.05, 0.5])
@pytest.mark.parametrize("loss", LOSSES)
def test_lightly_agrees(loss: str, tau: float, size: tuple[int, int]) -> None:
    import lightly.loss as lightly

    oracle = {
        "infonce": lightly.NTXentLoss(temperature=tau),
        "dcl": lightly.DCLLoss(temperature=tau),
        "dclw": lightly.DCLWLoss(temperature=tau, sigma=0.5),
    }[loss]
    # lightly normalises inside; so do both here, that the gradients are of the same function
    x1_ND, x2_ND = (2.5 * z.detach() for z in views(*size))
    x1_ND.requires_grad_(), x2_ND.requires_grad_()

    def ours(a: Tensor, b: Tensor) -> Tensor:
        return LOSSES[loss](F.normalize(a, dim=1), F.normalize(b, dim=1), tau=tau)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its weights are built with torch.tensor(tensor)
        assert_same(ours, oracle, x1_ND, x2_ND)


def test_dcl_is_one_joint_log_sum_exp_and_not_lightlys_former_sum_of_two() -> None:
    """lightly's DCL once added a log-sum-exp per view: that is the log of a product, not Eq. 2's
    sum.
    """
    z1_ND, z2_ND = views(5, 4)

    def former(a_ND: Tensor, b_ND: Tensor) -> Tensor:
        own = torch.eye(len(a_ND), dtype=torch.bool)
        aa, ab = ((a_ND @ other.T / 0.1).masked_fill(own, -torch.inf) for other in (a_ND, b_ND))
        return (aa.logsumexp(1) + ab.logsumexp(1) - (a_ND * b_ND).sum(1) / 0.1).mean()

    former_value, former_grad = value_and_grad(
        lambda a, b: (former(a, b) + former(b, a)) / 2, z1_ND, z2_ND
    )
    value, grad = value_and_grad(partial(dcl, tau=0.1), z1_ND, z2_ND)
    torch.testing.assert_close(
        value, reference(z1_ND, z2_ND, tau=0.1, loss="dcl").detach(), **EXACT
    )
    assert (former_value - value).abs() > 1.0
    assert (former_grad - grad).abs().max() > 0.1


def test_dclw_weights_average_over_the_global_batch_and_lightlys_over_one_workers() -> None:
    """With its negatives gathered, lightly still weighs each worker's positives by that worker's
    own mean.
    """
    from lightly.loss import dcl_loss as loss

    z1_ND, z2_ND = (z.detach() for z in views(8, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = loss.negative_mises_fisher_weights(z1_ND, z2_ND, 0.5)
        shares = [
            loss.negative_mises_fisher_weights(z1_ND[rows], z2_ND[rows], 0.5)
            for rows in (slice(4), slice(4, 8))
        ]
    assert (torch.cat(shares) - whole).abs().max() > 0.05
    positive = (z1_ND * z2_ND).sum(1)
    # Eq. 7 - Eq. 6 leaves the weights alone: mean of (1 - w) s_pos / tau
    gap = dclw(z1_ND, z2_ND, tau=0.1, sigma=0.5) - dcl(z1_ND, z2_ND, tau=0.1)
    torch.testing.assert_close(gap, ((1 - whole) * positive / 0.1).mean(), **EXACT)
    assert (gap - ((1 - torch.cat(shares)) * positive / 0.1).mean()).abs() > 1e-3


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_lightlys_memory_bank_agrees_with_the_query_form(tau: float, size: tuple[int, int]) -> None:
    import lightly.loss as lightly

    (q_ND, k_ND, queue_KD), _ = queries("shared", *size, 7)
    oracle = lightly.NTXentLoss(temperature=tau, memory_bank_size=(7, size[1]))

    def theirs(q: Tensor, k: Tensor) -> Tensor:
        oracle.memory_bank.bank = queue_KD.detach().clone()  # it enqueues the keys after use
        return oracle(q, k)

    def ours(q: Tensor, k: Tensor) -> Tensor:
        return infonce(
            F.normalize(q, dim=1), F.normalize(k, dim=1), tau, negatives=queue_KD.detach()
        )

    assert_same(ours, theirs, q_ND, k_ND)


@pytest.mark.parametrize("size", [(1, 4), *SIZES])
def test_lightlys_negative_cosine_agrees(size: tuple[int, int]) -> None:
    import lightly.loss as lightly

    assert_same(cosine, lightly.NegativeCosineSimilarity(), *raw_views(*size))


def test_barlow_is_lightlys_but_for_the_eps_that_it_adds_to_each_variance() -> None:
    """lightly standardises by batch normalisation, whose 1e-5 shrinks the columns of small
    projections.
    """
    import lightly.loss as lightly

    theirs, ours = lightly.BarlowTwinsLoss(lambda_param=0.0051), partial(barlow, off_diag=0.0051)
    large, small = (
        [(scale * z).detach().requires_grad_() for z in raw_views(9, 4)] for scale in (1e4, 0.01)
    )
    # the gradient is 1/scale of that of ordinary columns: compare per unit of the columns
    for (value, grad), (expected, expected_grad) in [
        (value_and_grad(ours, *large), value_and_grad(theirs, *large))
    ]:
        torch.testing.assert_close((value, 1e4 * grad), (expected, 1e4 * expected_grad), **EXACT)
    assert (theirs(*small) - ours(*small)).abs() > 0.01 * ours(*small)
    torch.testing.assert_close(ours(*small), ours(*large), **EXACT)

    def with_eps(z1_ND: Tensor, z2_ND: Tensor) -> Tensor:
        c1, c2 = ((z - z.mean(0)) / (z.var(0, correction=0) + 1e-5).sqrt() for z in (z1_ND, z2_ND))
        c = c1.T @ c2 / len(c1)
        weight = torch.full_like(c, 0.0051).fill_diagonal_(1.0)
        return (weight * (c - torch.eye(len(c))) ** 2).sum()

    torch.testing.assert_close(with_eps(*small), theirs(*small), **EXACT)


# pytorch-metric-learning, a third.


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_pytorch_metric_learning_agrees(tau: float, size: tuple[int, int]) -> None:
    from pytorch_metric_learning.losses import NTXentLoss, SelfSupervisedLoss

    oracle = SelfSupervisedLoss(NTXentLoss(temperature=tau))
    assert_same(lambda a, b: infonce(F.normalize(a), F.normalize(b), tau), oracle, *views(*size))


def test_pytorch_metric_learning_agrees_with_the_query_form_with_other_keys_as_negatives() -> None:
    from pytorch_metric_learning.losses import NTXentLoss

    (q_ND, k_ND, queue_MD), _ = queries("shared", 5, 4, 6)
    index_NK = torch.tensor(
        [[j for j in range(11) if j != n] for n in range(5)]
    )  # all but one's own key

    def theirs(q: Tensor, k: Tensor, queue: Tensor) -> Tensor:
        return NTXentLoss(temperature=0.2)(
            q, torch.arange(5), ref_emb=torch.cat([k, queue]), ref_labels=torch.arange(11)
        )

    def ours(*inputs: Tensor) -> Tensor:
        q, k, queue = (F.normalize(x) for x in inputs)
        return infonce(q, k, 0.2, negatives=torch.cat([k, queue]), index_NK=index_NK)

    assert_same(ours, theirs, q_ND, k_ND, queue_MD)


def test_infonce_keeps_its_gradient_where_pytorch_metric_learnings_saturates() -> None:
    """Its logarithm of a ratio is cut off at the smallest float: a pair far apart at a small tau
    learns nothing.
    """
    from pytorch_metric_learning.losses import NTXentLoss, SelfSupervisedLoss

    z1_ND = F.normalize(torch.tensor([[1.0, 0.0, 0.1], [0.9, 0.1, 0.0]])).requires_grad_()
    z2_ND = (-z1_ND.detach()).requires_grad_()
    value, grad = value_and_grad(SelfSupervisedLoss(NTXentLoss(temperature=0.005)), z1_ND, z2_ND)
    assert value < 90
    assert not grad.any()
    value, grad = value_and_grad(partial(infonce, tau=0.005), z1_ND, z2_ND)
    expected = partial(infonce, tau=0.005)(z1_ND.double(), z2_ND.double())
    torch.testing.assert_close(value.double(), expected.detach(), rtol=1e-5, atol=1e-5)
    assert value > 390
    assert grad.norm() > 100


# Gradients of the batch form, made in forward block by block.


BLOCKWISE: dict[str, Loss] = {
    "infonce": partial(infonce, tau=0.1),
    "dcl": partial(dcl, tau=0.1),
    "dclw": partial(dclw, tau=0.1),
    "dimcl": partial(dimcl, dim_tau=0.1),
    "abscl": partial(abscl, dim_tau=0.1),
}
SINGLE_VIEW: dict[str, Loss] = BLOCKWISE | {
    "exponential": partial(dclw, tau=0.3, weighting="exponential"),
    "align_uniform": align_uniform,
    "cosine": cosine,
    "barlow": barlow,
}


@pytest.mark.parametrize("rows", [1, 4, 5, 8, 9])
@pytest.mark.parametrize("loss", BLOCKWISE)
def test_size_of_the_blocks_changes_nothing(
    loss: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = views(9, 9)  # 18 anchors, be they rows or columns
    whole, q_b = value_and_grad(BLOCKWISE[loss], *inputs), npc_multiplier(*inputs, 0.1)
    monkeypatch.setitem(contrast_terms.BLOCK_ELEMENTS, "cpu", rows * 18 + 1)
    torch.testing.assert_close(
        value_and_grad(BLOCKWISE[loss], *inputs), whole, rtol=1e-12, atol=1e-12
    )
    torch.testing.assert_close(npc_multiplier(*inputs, 0.1), q_b, rtol=1e-12, atol=1e-12)


class Largest(TorchDispatchMode):
    """Records the size of the largest tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.numel = max(
            [self.numel, *(x.numel() for x in tree_leaves(result) if isinstance(x, Tensor))]
        )
        return result


@pytest.mark.parametrize("loss", BLOCKWISE)
def test_all_similarities_are_never_held_at_once(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = views(64, 64, dtype=torch.float32)
    with Largest() as at_most:
        value_and_grad(BLOCKWISE[loss], *inputs)
    assert at_most.numel <= 128 * 128 // 2
    monkeypatch.setitem(contrast_terms.BLOCK_ELEMENTS, "cpu", 8 * 128)
    with Largest() as blocks:
        value_and_grad(BLOCKWISE[loss], *inputs)
    assert blocks.numel == 2 * 64 * 64, "the projections of both views are the largest then"


@pytest.mark.parametrize("loss", [*QUERY_LOSSES, "align_uniform"])
def test_drawn_negatives_are_never_copied_for_each_query(loss: str) -> None:
    inputs, index_NK = queries("index", 8, 64, 20)
    settings = {} if loss == "align_uniform" else {"tau": 0.1}
    with Largest() as at_most:
        value_and_grad(
            in_query_form(QUERY_LOSSES.get(loss, align_uniform), index_NK, **settings), *inputs
        )
    assert at_most.numel <= 23 * 64 + 2 * 8 * 64 < 8 * 20 * 64


@pytest.mark.parametrize("loss", SINGLE_VIEW)
def test_evaluation_without_gradient_gives_the_same_value(loss: str) -> None:
    inputs = views(6, 4)
    expected, _ = value_and_grad(SINGLE_VIEW[loss], *inputs)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            value = SINGLE_VIEW[loss](*inputs)
        assert not value.requires_grad
        torch.testing.assert_close(value, expected, rtol=0, atol=0)
    assert not SINGLE_VIEW[loss](*(z.detach() for z in inputs)).requires_grad


@pytest.mark.parametrize("loss", SINGLE_VIEW)
def test_gradient_scales_repeats_and_reaches_one_view_alone(loss: str) -> None:
    z1_ND, z2_ND = views(6, 4)
    _, grad = value_and_grad(SINGLE_VIEW[loss], z1_ND, z2_ND)
    value = SINGLE_VIEW[loss](z1_ND, z2_ND)
    for _ in range(2):
        (tripled,) = torch.autograd.grad(3 * value, z2_ND, retain_graph=True)
        torch.testing.assert_close(tripled.flatten(), 3 * grad[24:], rtol=1e-12, atol=1e-12)
    _, alone = value_and_grad(lambda z: SINGLE_VIEW[loss](z1_ND.detach(), z), z2_ND)
    torch.testing.assert_close(alone, grad[24:], rtol=1e-12, atol=1e-12)


def test_gradient_of_the_gradient_is_refused_and_not_silently_zero() -> None:
    inputs = views(4, 3)
    with pytest.raises(RuntimeError, match="no gradient of its own"):
        torch.autograd.grad(infonce(*inputs, 0.1), inputs, create_graph=True)


@pytest.mark.parametrize("form", [None, *FORMS])
def test_gradcheck(form: str | None) -> None:
    if form is None:
        cases = SINGLE_VIEW | {
            name: partial(dclw, tau=0.3, weighting=name, dclw_detach=False)
            for name in ("vmf", "exponential")
        }
        del cases["dclw"]  # its weights are constants to the gradient alone
        for loss in cases.values():
            assert torch.autograd.gradcheck(
                loss, raw_views(5, 4) if loss is barlow else views(5, 4)
            )
        return
    inputs, index_NK = queries(form, 3, 4, 5)
    for name in ("infonce", "dcl", "eqco"):
        assert torch.autograd.gradcheck(
            in_query_form(QUERY_LOSSES[name], index_NK, tau=0.3), inputs
        )
    assert torch.autograd.gradcheck(in_query_form(align_uniform, index_NK), inputs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("form", [None, *FORMS])
def test_gradients_have_the_inputs_type_and_values_at_least_float32(
    form: str | None, dtype: torch.dtype
) -> None:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    if form is None:
        inputs, cases = list(views(6, 4, dtype=dtype)), SINGLE_VIEW
    else:
        inputs, index_NK = queries(form, 6, 4, 5)
        inputs = [z.detach().to(dtype).requires_grad_() for z in inputs]
        cases = query_cases(index_NK, 0.1)
    for name, loss in cases.items():
        value, grad = value_and_grad(loss, *inputs)
        assert value.dtype == wide, name
        assert {g.dtype for g in torch.autograd.grad(loss(*inputs), inputs)} == {dtype}, name
        exact = [z.detach().double().requires_grad_() for z in inputs]
        exact_value, exact_grad = value_and_grad(loss, *exact)
        torch.testing.assert_close(value.double(), exact_value, rtol=1e-5, atol=1e-5)
        tolerance = (
            {"rtol": 1e-2, "atol": 1e-2}
            if dtype == torch.bfloat16
            else {"rtol": 2e-3, "atol": 2e-3}
        )
        torch.testing.assert_close(grad.double(), exact_grad, **tolerance)


# Numerics.


def assert_finite(value: Tensor, grad: Tensor, name: str = "") -> None:
    assert torch.isfinite(value), name
    assert torch.isfinite(grad).all(), name


@pytest.mark.parametrize("num_samples", [2, 3, 64])
@pytest.mark.parametrize("tau", [0.005, 0.05, 1.0, 10.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", ["random", "collapsed", "opposite", "easy"])
@pytest.mark.parametrize("loss", LOSSES)
def test_finite_wherever_training_may_go(
    loss: str, case: str, dtype: torch.dtype, tau: float, num_samples: int
) -> None:
    z1_ND, z2_ND = views(num_samples, 4, dtype=dtype)
    if case == "collapsed":
        z1_ND, z2_ND = (
            z1_ND[:1].detach().repeat(num_samples, 1).requires_grad_() for _ in range(2)
        )
    elif case == "opposite":
        z2_ND = (-z1_ND).detach().requires_grad_()
    elif case == "easy":
        z2_ND = z1_ND.detach().clone().requires_grad_()
    value, grad = value_and_grad(partial(LOSSES[loss], tau=tau), z1_ND, z2_ND)
    assert value.dtype == torch.float32, "half precision is too coarse for 1/tau = 200"
    assert_finite(value, grad)
    exact = LOSSES[loss](z1_ND.detach().double(), z2_ND.detach().double(), tau=tau)
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-5 / tau)


@pytest.mark.parametrize("sigma", [0.001, 1e6])
def test_dclw_is_finite_at_extreme_widths(sigma: float) -> None:
    loss = partial(dclw, tau=0.1, sigma=sigma)
    assert_finite(*value_and_grad(loss, *views(16, 4, dtype=torch.float32)))


@pytest.mark.parametrize("num_samples", [2, 3, 64])
@pytest.mark.parametrize("tau", [0.005, 0.1, 10.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", ["random", "collapsed", "opposite", "easy"])
@pytest.mark.parametrize("form", FORMS)
def test_query_form_is_finite_wherever_training_may_go(
    form: str, case: str, dtype: torch.dtype, tau: float, num_samples: int
) -> None:
    inputs, index_NK = queries(form, num_samples, 4, 5)
    if case == "collapsed":
        inputs = [inputs[0][:1].expand_as(z) for z in inputs]
    elif case == "opposite":
        inputs[1] = -inputs[0]
    elif case == "easy":
        inputs[1] = inputs[0]
    inputs = [z.detach().to(dtype).clone().requires_grad_() for z in inputs]
    for name, loss in query_cases(index_NK, tau).items():
        assert_finite(*value_and_grad(loss, *inputs), name)


COLUMN_WISE: dict[str, Loss] = {
    "dimcl": partial(dimcl, dim_tau=0.1),
    "abscl": partial(abscl, dim_tau=0.1),
    "raw dimcl": partial(dimcl, dim_tau=0.1, dim_standardize=False),
    "barlow": barlow,
}


@pytest.mark.parametrize("num_samples", [2, 3, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", ["random", "collapsed", "opposite", "easy", "zero"])
@pytest.mark.parametrize("dim_tau", [0.005, 0.1, 10.0])
def test_column_losses_are_finite_wherever_training_may_go(
    dim_tau: float, case: str, dtype: torch.dtype, num_samples: int
) -> None:
    z1_ND, z2_ND = (z.detach() for z in raw_views(num_samples, 4))
    if case == "collapsed":
        z1_ND = z2_ND = z1_ND[:1].repeat(num_samples, 1)
    elif case in ("opposite", "easy"):
        z2_ND = -z1_ND if case == "opposite" else z1_ND
    elif case == "zero":
        z1_ND = z2_ND = torch.zeros_like(z1_ND)
    inputs = [z.to(dtype).clone().requires_grad_() for z in (z1_ND, z2_ND)]
    for name, loss in (COLUMN_LOSSES | {"barlow": barlow, "cosine": cosine}).items():
        call = partial(loss, dim_tau=dim_tau) if name in COLUMN_LOSSES else loss
        assert_finite(*value_and_grad(call, *inputs), name)


@pytest.mark.parametrize("constant", [0.0, 1e-3, 1.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("loss", COLUMN_WISE)
def test_a_constant_column_leaves_the_others_their_gradient(
    loss: str, dtype: torch.dtype, constant: float
) -> None:
    z1_ND, z2_ND = (z.detach().to(dtype) for z in raw_views(16, 5))
    _, ordinary = value_and_grad(
        COLUMN_WISE[loss], z1_ND.clone().requires_grad_(), z2_ND.clone().requires_grad_()
    )
    z1_ND[:, 2] = z2_ND[:, 2] = constant
    value, grad = value_and_grad(COLUMN_WISE[loss], z1_ND.requires_grad_(), z2_ND.requires_grad_())
    assert_finite(value, grad)
    grad = grad.reshape(2, 16, 5)
    others = grad[..., [0, 1, 3, 4]].abs().max()
    assert others < 10 * ordinary.abs().max(), "the others do not notice"
    assert grad.abs().max() < 1e4 * ordinary.abs().max(), "no more than its variance's floor allows"


@pytest.mark.parametrize("loss", COLUMN_WISE)
def test_the_floor_does_not_touch_columns_of_small_but_ordinary_variance(loss: str) -> None:
    inputs = raw_views(16, 5)
    small = [(1e-3 * z).detach().requires_grad_() for z in inputs]
    value, grad = value_and_grad(COLUMN_WISE[loss], *inputs)
    torch.testing.assert_close(
        value_and_grad(COLUMN_WISE[loss], *small), (value, 1e3 * grad), rtol=1e-10, atol=1e-8
    )


def test_a_projection_of_length_zero_has_a_finite_cosine_and_gradient() -> None:
    p_ND, z_ND = (z.detach().float() for z in raw_views(4, 3))
    p_ND[1] = 0
    value, grad = value_and_grad(cosine, p_ND.requires_grad_(), z_ND.requires_grad_())
    assert torch.isfinite(value)
    assert grad.abs().max() <= 1e4


@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("loss", [cross_entropy, decoupled_cross_entropy])
def test_classifier_losses_are_finite_at_large_logits(
    loss: Loss, dtype: torch.dtype, scale: float
) -> None:
    logits_NC, labels_N = logits(6, 5)
    x_NC = (scale * logits_NC).detach().to(dtype).requires_grad_()
    value, grad = value_and_grad(lambda x: loss(x, labels_N), x_NC)
    assert value.dtype == torch.float32
    assert_finite(value, grad)


@pytest.mark.parametrize("form", [None, *FORMS])
def test_autocast_does_not_reach_the_similarities(form: str | None) -> None:
    if form is None:
        inputs = list(views(16, 8, dtype=torch.float32))
        cases = SINGLE_VIEW | {"infonce at 0.05": partial(infonce, tau=0.05)}
    else:
        inputs, index_NK = queries(form, 6, 8, 5)
        inputs = [z.detach().float().requires_grad_() for z in inputs]
        cases = query_cases(index_NK, 0.05)
    for name, loss in cases.items():
        outside, grad_outside = value_and_grad(loss, *inputs)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = loss(*inputs)
        assert inside == outside, name
        grads = torch.autograd.grad(inside, inputs)  # backward belongs outside of autocast
        torch.testing.assert_close(
            torch.cat([g.flatten() for g in grads]), grad_outside, rtol=0, atol=0
        )


# Errors.


NOT_POSITIVE = [0.0, -0.1, math.nan]


@pytest.mark.parametrize("value", NOT_POSITIVE)
@pytest.mark.parametrize("loss", [*LOSSES.values(), npc_multiplier])
def test_tau_must_be_positive(loss: Loss, value: float) -> None:
    with pytest.raises(ValueError, match=r"^tau: expected a value > 0, given"):
        loss(*views(4, 3), tau=value)
    with pytest.raises(ValueError, match=r"^tau: expected a value > 0, given"):
        loss(*views(4, 3), tau=value, negatives=torch.ones(2, 3))


@pytest.mark.parametrize("value", NOT_POSITIVE)
@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("sigma", partial(dclw, tau=0.1)),
        ("delta", partial(dclw, tau=0.1, weighting="exponential")),
        ("uniform_t", align_uniform),
        ("dim_tau", dimcl),
        ("dim_tau", abscl),
        ("tau", partial(eqco, negatives=torch.ones(2, 3), alpha=4)),
        ("alpha", partial(eqco, negatives=torch.ones(2, 3), tau=0.1)),
    ],
)
def test_parameters_must_be_positive(name: str, loss: Loss, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: expected a value > 0, given"):
        loss(*views(4, 3), **{name: value})


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (partial(align_uniform, align_alpha=0.9), "align_alpha >= 1, given 1.0 and 0.9"),
        (partial(align_uniform, align_alpha=math.nan), "align_alpha >= 1, given 1.0 and nan"),
        (partial(align_uniform, align_weight=-1.0), "align_weight >= 0"),
        (partial(barlow, off_diag=-1.0), "off_diag: expected a value >= 0, given -1.0"),
        (
            partial(dclw, tau=0.1, weighting="vmv"),
            "weighting: expected 'vmf' or 'exponential', given 'vmv'",
        ),
        (
            partial(infonce, tau=0.1, index_NK=torch.zeros(4, 1).long()),
            "index_NK: expected together with negatives",
        ),
    ],
)
def test_other_parameters_have_their_ranges(loss: Loss, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loss(*views(4, 3))


@pytest.mark.parametrize("loss", [*SINGLE_VIEW, "npc_multiplier"])
def test_a_single_sample_is_too_few_for_what_needs_others(loss: str) -> None:
    call = SINGLE_VIEW.get(loss, partial(npc_multiplier, tau=0.1))
    if loss == "cosine":
        assert torch.isfinite(call(*views(1, 3)))
        with pytest.raises(ValueError, match="at least 1 samples, given 0"):
            call(torch.ones(0, 3), torch.ones(0, 3))
        return
    lacking = "statistics" if loss in ("barlow", "dimcl", "abscl") else "negatives"
    with pytest.raises(
        ValueError, match=f"at least 2 samples, given 1: a single one has no {lacking}"
    ):
        call(*views(1, 3))


@pytest.mark.parametrize("loss", COLUMN_LOSSES)
def test_a_single_column_has_no_negatives(loss: str) -> None:
    with pytest.raises(ValueError, match="at least 2 dimensions: a single column has no negatives"):
        COLUMN_LOSSES[loss](*views(4, 1), 0.1)


@pytest.mark.parametrize("loss", [*SINGLE_VIEW, "npc_multiplier"])
@pytest.mark.parametrize(
    "shapes", [((4, 3), (5, 3)), ((4, 3), (4, 2)), ((4, 3, 1), (4, 3, 1)), ((4,), (4,))]
)
def test_shapes_must_match(loss: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="two views of one shape"):
        SINGLE_VIEW.get(loss, partial(npc_multiplier, tau=0.1))(
            *(torch.ones(shape) for shape in shapes)
        )


@pytest.mark.parametrize(
    ("shape", "index_NK", "message"),
    [
        ((3,), None, r"negatives: expected \(K, 3\) or \(4, K, 3\), given \(3,\)"),
        ((5, 2), None, r"negatives: expected \(K, 3\)"),
        ((5, 2, 3), None, r"or \(4, K, 3\), given \(5, 2, 3\)"),
        ((1, 4, 2, 3), None, r"negatives: expected \(K, 3\)"),
        ((0, 3), None, r"negatives: expected at least 1, given \(0, 3\)"),
        ((4, 0, 3), None, r"negatives: expected at least 1"),
        (
            (4, 2, 3),
            torch.zeros(4, 1).long(),
            r"expected shared ones \(M, 3\) beside index_NK, given \(4, 2, 3\)",
        ),
        (
            (5, 3),
            torch.zeros(3, 1).long(),
            r"index_NK: expected int64 \(4, K\) with K >= 1, given torch.int64 \(3, 1\)",
        ),
        ((5, 3), torch.zeros(4).long(), r"index_NK: expected int64 \(4, K\)"),
        ((5, 3), torch.zeros(4, 0).long(), r"index_NK: expected int64 \(4, K\) with K >= 1"),
        ((5, 3), torch.zeros(4, 2), r"given torch.float32 \(4, 2\)"),
    ],
)
@pytest.mark.parametrize("loss", [*QUERY_LOSSES, "align_uniform", "npc_multiplier"])
def test_negatives_must_fit(
    loss: str, shape: tuple[int, ...], index_NK: Tensor | None, message: str
) -> None:
    others = {"align_uniform": align_uniform, "npc_multiplier": partial(npc_multiplier, tau=0.1)}
    call = partial(QUERY_LOSSES[loss], tau=0.1) if loss in QUERY_LOSSES else others[loss]
    with pytest.raises(ValueError, match=message):
        call(*views(4, 3), negatives=torch.ones(shape), index_NK=index_NK)


@pytest.mark.parametrize("loss", [cross_entropy, decoupled_cross_entropy])
@pytest.mark.parametrize(
    ("logits_NC", "labels_N", "message"),
    [
        (
            torch.ones(4, 1),
            torch.zeros(4).long(),
            r"logits: expected \(N, C\) of N >= 1 samples and C >= 2 classes",
        ),
        (torch.ones(0, 3), torch.zeros(0).long(), r"logits: expected .* given \(0, 3\)"),
        (torch.ones(4), torch.zeros(4).long(), r"logits: expected .* given \(4,\)"),
        (
            torch.ones(4, 3),
            torch.zeros(3).long(),
            r"labels: expected int64 \(4,\), given torch.int64 \(3,\)",
        ),
        (torch.ones(4, 3), torch.zeros(4, 3).long(), r"labels: expected int64 \(4,\)"),
        (
            torch.ones(4, 3),
            torch.zeros(4),
            r"labels: expected int64 \(4,\), given torch.float32 \(4,\)",
        ),
    ],
)
def test_logits_and_labels_must_fit(
    loss: Loss, logits_NC: Tensor, labels_N: Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        loss(logits_NC, labels_N)


@pytest.mark.parametrize("label", [-100, 3])
@pytest.mark.parametrize("loss", [cross_entropy, decoupled_cross_entropy])
def test_a_label_outside_of_the_classes_is_an_error_and_never_skipped(
    loss: Loss, label: int
) -> None:
    with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
        loss(torch.ones(2, 3), torch.tensor([0, label]))


# skip_own: all shared negatives but a query's own views.


@pytest.mark.parametrize("num_views", [1, 2])
@pytest.mark.parametrize(
    "loss",
    [
        partial(losses.infonce, tau=0.1),
        partial(losses.dcl, tau=0.1),
        partial(losses.dclw, tau=0.1, sigma=0.3),
        partial(losses.eqco, tau=0.1, alpha=40.0),
        losses.align_uniform,
    ],
    ids=["infonce", "dcl", "dclw", "eqco", "align_uniform"],
)
def test_skipping_own_views_is_an_index_of_the_others(
    loss: Callable[..., Tensor], num_views: int
) -> None:
    num_samples = 5
    queries_ND, keys_ND = views(num_samples, 4)
    pool_MD = torch.cat(views(num_samples, 4, seed=1)[:num_views])
    index_NK = torch.tensor(
        [[m for m in range(len(pool_MD)) if m % num_samples != n] for n in range(num_samples)]
    )
    outcome = []
    for chosen in ({"skip_own": True}, {"index_NK": index_NK}):
        value = loss(queries_ND, keys_ND, negatives=pool_MD, **chosen)
        outcome.append(
            (
                value,
                torch.autograd.grad(value, (queries_ND, keys_ND, pool_MD), allow_unused=True)[::2],
            )
        )
    torch.testing.assert_close(outcome[0], outcome[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("negatives", "chosen"),
    [
        (torch.ones(7, 4), {}),
        (torch.ones(5, 3, 4), {}),
        (torch.ones(5, 4), {"index_NK": torch.zeros(5, 2, dtype=torch.int64)}),
    ],
    ids=["not a multiple", "per query", "with an index"],
)
def test_own_views_can_only_be_skipped_among_whole_views(
    negatives: Tensor, chosen: dict[str, Tensor]
) -> None:
    with pytest.raises(ValueError, match="skip_own: expected a multiple of 5 shared negatives"):
        losses.dcl(*views(5, 4), 0.1, negatives=negatives, skip_own=True, **chosen)


def test_skip_own_without_negatives_is_refused() -> None:
    with pytest.raises(ValueError, match="skip_own: expected together with negatives"):
        losses.dcl(*views(5, 4), 0.1, skip_own=True)


def test_npc_multiplier_of_eqco_is_that_of_its_gradient() -> None:
    """EqCo Eq. 12: the margin multiplies U by alpha/K; the force on the positive is the multiplier
    / tau.
    """
    queries_ND, keys_ND = views(5, 4)
    negatives = views(7, 4, seed=1)[0].detach()
    value = losses.eqco(queries_ND, keys_ND, negatives, 0.2, 500.0)
    (grad_ND,) = torch.autograd.grad(value, keys_ND)
    q_N = losses.npc_multiplier(queries_ND, keys_ND, 0.2, alpha=500.0, negatives=negatives)
    torch.testing.assert_close(
        grad_ND, -q_N[:, None] * queries_ND.detach() / 0.2 / 5, rtol=1e-10, atol=1e-10
    )
    plain_N = losses.npc_multiplier(queries_ND, keys_ND, 0.2, negatives=negatives)
    assert (q_N > plain_N).all()


def test_eqco_needs_negatives() -> None:
    with pytest.raises(ValueError, match=r"negatives: expected .* given none"):
        losses.eqco(*views(5, 4), None, 0.1, 10.0)  # type: ignore[arg-type]


def test_a_single_query_cannot_skip_its_own() -> None:
    with pytest.raises(ValueError, match="skip_own: expected at least 2 queries"):
        losses.dcl(*views(1, 4), 0.1, negatives=torch.ones(2, 4), skip_own=True)
