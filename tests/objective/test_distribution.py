"""VICReg's, SIGReg's and W-MSE's terms against the papers' equations, written out as loops.

Shapes: V views, N samples, D features, M slices; z1 and z2 are two views.
"""

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from clsweep.objective.distribution import sigreg, vicreg, wmse
from clsweep.objective.frameworks import WMSE
from clsweep.objective.views import all_pairs
from tests.objective.built import build
from tests.objective.loops import assert_same, dot, raw_views, value_and_grad

pytestmark = pytest.mark.usefixtures("one_thread")


def centred_columns(z_ND: Tensor) -> list[Tensor]:
    return [z_ND[:, d] - sum(z_ND[:, d]) / len(z_ND) for d in range(z_ND.shape[1])]


def vicreg_reference(
    z1_ND: Tensor, z2_ND: Tensor, sim_coeff: float, std_coeff: float, cov_coeff: float
) -> Tensor:
    """Eq. 1-6 with the means of the authors' code, over single numbers."""
    num_samples, dim = z1_ND.shape
    total = torch.zeros((), dtype=torch.float64)
    for n in range(num_samples):
        for d in range(dim):
            total = total + sim_coeff * (z1_ND[n, d] - z2_ND[n, d]) ** 2 / (num_samples * dim)
    for z_ND in (z1_ND, z2_ND):
        columns = centred_columns(z_ND)
        for i, a in enumerate(columns):
            for j, b in enumerate(columns):
                covariance = dot(a, b) / (num_samples - 1)
                if i == j:
                    hinge = (1 - torch.sqrt(covariance + 1e-4)).clamp(min=0)
                    total = total + std_coeff * hinge / dim / 2
                else:
                    total = total + cov_coeff * covariance**2 / dim
    return total


@pytest.mark.parametrize("size", [(3, 1), (5, 8), (9, 4)])
@pytest.mark.parametrize("scale", [0.2, 1.0])  # below 1 every deviation is pushed up
def test_vicreg_is_that_of_its_paper(scale, size):
    inputs = [(scale * z).detach().requires_grad_() for z in raw_views(*size)]
    given = {"sim_coeff": 3.0, "std_coeff": 5.0, "cov_coeff": 2.0}
    assert_same(partial(vicreg, **given), partial(vicreg_reference, **given), *inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_vicreg_is_finite_where_all_samples_are_one(dtype):
    inputs = [torch.full((4, 3), 3.0, dtype=dtype, requires_grad=True) for _ in range(2)]
    value, grad = value_and_grad(vicreg, *inputs)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, torch.tensor(25.0 * (1 - 0.01)))  # sqrt(1e-4) is left
    assert torch.isfinite(grad).all()


# SIGReg.


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def unit_slices(num_slices: int, dim: int, seed: int = 0) -> list[Tensor]:
    rows = torch.randn(num_slices, dim, generator=generator(seed)).double()
    return [row / torch.sqrt(dot(row, row)) for row in rows]


def epps_pulley(x_N: list[Tensor], num_points: int, t_max: float) -> Tensor:
    """N integral |mean exp(i t x) - phi|^2 phi, by trapezoids between all points of [-t_max,
    t_max], in complex numbers.
    """
    half = [t_max * k / (num_points - 1) for k in range(num_points)]
    points = [-t for t in reversed(half[1:])] + half

    def integrand(t: float) -> Tensor:
        phi = math.exp(-t * t / 2)
        empirical = sum(torch.exp(1j * t * x) for x in x_N) / len(x_N)
        return (empirical - phi).abs() ** 2 * phi

    values = [integrand(t) for t in points]
    steps = zip(points, points[1:], values, values[1:], strict=False)
    return len(x_N) * sum((b - a) * (left + right) / 2 for a, b, left, right in steps)


def sigreg_reference(*views: Tensor, num_slices: int, num_points: int, t_max: float) -> Tensor:
    """Algorithm 2: the mean over views and slices of Algorithm 1."""
    slices = unit_slices(num_slices, views[0].shape[1])
    terms = [
        epps_pulley([dot(a, z_D) for z_D in z_ND], num_points, t_max)
        for z_ND in views
        for a in slices
    ]
    return torch.stack(terms).mean()


@pytest.mark.parametrize(
    ("size", "num_slices", "num_points", "t_max"), [((1, 4), 1, 2, 1.0), ((5, 3), 4, 9, 5.0)]
)
def test_sigreg_is_the_statistic_of_its_paper(num_slices, num_points, t_max, size):
    def ours(*views: Tensor) -> Tensor:
        return sigreg(torch.stack(views), num_slices, num_points, t_max, generator=generator())

    expected = partial(sigreg_reference, num_slices=num_slices, num_points=num_points, t_max=t_max)
    assert_same(ours, expected, *raw_views(*size))


def test_sigreg_tells_a_gaussian_from_what_is_none():
    """Of N samples of N(0, I) the statistic's mean does not depend on N; of others it grows with
    N: a planted truth that no formula is shared with.
    """

    def of(z_ND: Tensor) -> float:
        return float(sigreg(z_ND, 50, generator=generator(1)))

    small, large = (torch.randn(n, 8, generator=generator(2)).double() for n in (100, 1000))
    assert 0.3 < of(large) / of(small) < 3
    for other in (0.3 * large, 3 * large, large + 0.5, large.sign() * (large[:, :1] > 0)):
        assert of(other) > 20 * of(large)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_sigreg_is_finite_wherever_training_may_go(scale, dtype):
    z_ND = (scale * raw_views(6, 4)[0]).detach().to(dtype).requires_grad_()
    value, grad = value_and_grad(lambda z: sigreg(z, generator=generator()), z_ND)
    assert value.dtype == torch.float32
    assert torch.isfinite(value)
    assert torch.isfinite(grad).all()
    assert grad.dtype == dtype


# W-MSE.


def gram_schmidt_whitening(z_SD: Tensor) -> Tensor:
    """Cholesky whitening without a factorisation: column by column, what the earlier ones leave of
    it, at unit variance.
    """
    done: list[Tensor] = []
    for column in centred_columns(z_SD):
        left = column
        for other in done:
            left = left - dot(column, other) / (len(z_SD) - 1) * other
        done.append(left / torch.sqrt(dot(left, left) / (len(z_SD) - 1)))
    return torch.stack(done, dim=1)


def wmse_reference(z1_ND: Tensor, z2_ND: Tensor, groups: list[list[int]]) -> Tensor:
    """Eq. 5-6: 2 - 2 cos of whitened projections, one sample at a time."""
    terms = []
    for group in groups:
        for a, b in zip(*(gram_schmidt_whitening(z[group]) for z in (z1_ND, z2_ND)), strict=True):
            terms.append(2 - 2 * dot(a, b) / torch.sqrt(dot(a, a) * dot(b, b)))
    return sum(terms) / len(terms)


@pytest.mark.parametrize(("size", "dim"), [(12, 5), (6, 4)])
def test_wmse_is_that_of_its_paper(size, dim):
    inputs, order = raw_views(12, dim), torch.randperm(12, generator=generator())
    groups = order.view(-1, size).tolist()
    actual = partial(wmse, whitening_size=size, order_N=order)
    assert_same(actual, partial(wmse_reference, groups=groups), *inputs, tolerance=1e-8)


def test_wmse_draws_its_sub_batches_for_every_step_and_for_all_views_alike():
    objective = build(WMSE, partial(wmse, whitening_size=6), proj_dim=4, pairs=all_pairs(3))
    online = dict(enumerate((*raw_views(12, 4), raw_views(12, 4, seed=1)[0])))
    shared, orders = generator(), []
    for _ in range(2):
        prepared = objective.prepare({"online": online}, shared)
        groups = prepared["order"][0].view(-1, 6).tolist()
        orders.append(groups)
        pairs = ((0, 1), (0, 2), (1, 2))
        expected = torch.stack([wmse_reference(online[i], online[j], groups) for i, j in pairs])
        torch.testing.assert_close(objective.loss(prepared).total, expected.mean())
    assert orders[0] != orders[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_wmse_of_a_collapsed_batch_is_nan_and_of_half_types_float32(dtype):
    order = torch.arange(12)
    z1_ND, z2_ND = (z.detach().to(dtype) for z in raw_views(12, 4))
    assert wmse(z1_ND, z2_ND, 12, order_N=order).dtype == torch.float32
    assert wmse(z1_ND, torch.ones_like(z2_ND), 12, order_N=order).isnan()


@pytest.mark.parametrize("scale", [1.0, 10.0, 1e4])
def test_vicreg_in_float16_is_nan_where_its_gradient_has_no_number(scale):
    """By the gradient that float64 has; below it both are what float32 gives."""
    exact = [(scale * z).detach().half().double().requires_grad_() for z in raw_views(32, 8)]
    value = vicreg(*exact)
    slopes = torch.cat(torch.autograd.grad(value, exact))
    half = [z.detach().half().requires_grad_() for z in exact]
    loss = vicreg(*half)
    if slopes.abs().max() > 65504:
        assert loss.isnan()
        assert scale == 1e4
        return
    loss.backward()
    torch.testing.assert_close(loss, value.float(), rtol=1e-5, atol=0)
    torch.testing.assert_close(
        torch.cat([z.grad for z in half]).double(),
        slopes,
        rtol=1e-2,
        atol=1e-4 * float(slopes.abs().max()),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_wmse_of_projections_of_too_low_a_rank_is_nan(shift, dtype):
    """The rounding of a network's type makes the matrix of full rank by chance. A trial hands it
    on as float32.
    """
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        draw = partial(torch.randn, generator=generator)
        z1_ND, z2_ND = draw(128, 16) + shift, draw(128, 16) + shift

        def loss(*views: Tensor) -> Tensor:
            rounded = (z_ND.to(dtype).float() for z_ND in views)
            return wmse(*rounded, 64, order_N=torch.arange(128))

        assert loss(z1_ND, z2_ND).isfinite()
        assert loss(z1_ND[:, :8] @ draw(8, 16), z2_ND).isnan()
        if dtype != torch.bfloat16:  # the rounding of three columns may be above that of one
            z1_ND[:64, 3] = z1_ND[:64, 0] + z1_ND[:64, 1]
            assert loss(z1_ND, z2_ND).isnan()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *(
            (partial(vicreg, *raw_views(4, 3), **{name: value}), f"{name}: expected a value >= 0")
            for name in ("sim_coeff", "std_coeff", "cov_coeff")
            for value in (-1.0, math.nan)
        ),
        (partial(vicreg, torch.ones(1, 3), torch.ones(1, 3)), "a single one has no statistics"),
        (partial(vicreg, torch.ones(4, 3), torch.ones(4, 2)), "two views of one shape"),
        (partial(sigreg, torch.ones(4, 3), num_slices=0), "num_slices: expected a value > 0"),
        (partial(sigreg, torch.ones(4, 3), sigreg_points=1), "sigreg_points: expected a value > 1"),
        (partial(sigreg, torch.ones(4, 3), sigreg_t_max=0.0), "sigreg_t_max: expected a value > 0"),
        (partial(sigreg, torch.ones(3)), r"expected projections \(..., N, D\), given \(3,\)"),
        *(
            (
                partial(wmse, *raw_views(12, 4), size, order_N=torch.arange(12)),
                "more than 4, the dimensions, and a divisor of 12",
            )
            for size in (4, 5, 24)
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
