"""VICReg's terms against the paper's equations, written out as loops, and against lightly.

Shapes: N samples, D features; z1 and z2 are two views.
"""

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from clsweep.objective.distribution import vicreg
from tests.objective.test_losses import EXACT, dot, raw_views, value_and_grad

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = [(2, 3), (3, 1), (5, 8), (9, 4)]


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


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scale", [0.2, 1.0])  # below 1 every deviation is pushed up
@pytest.mark.parametrize("weights", [(25, 25, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_vicreg_is_that_of_its_paper(
    weights: tuple[float, float, float], scale: float, size: tuple[int, int]
) -> None:
    inputs = [(scale * z).detach().requires_grad_() for z in raw_views(*size)]
    names = ("sim_coeff", "std_coeff", "cov_coeff")
    chosen = dict(zip(names, map(float, weights), strict=True))
    expected = value_and_grad(partial(vicreg_reference, **chosen), *inputs)
    torch.testing.assert_close(
        value_and_grad(partial(vicreg, **chosen), *inputs), expected, **EXACT
    )


@pytest.mark.parametrize("size", SIZES)
def test_lightlys_vicreg_agrees(size: tuple[int, int]) -> None:
    import lightly.loss as lightly

    inputs = raw_views(*size)
    expected = value_and_grad(lightly.VICRegLoss(), *inputs)
    torch.testing.assert_close(value_and_grad(vicreg, *inputs), expected, **EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("constant", [0.0, 3.0])
def test_vicreg_is_finite_where_all_samples_are_one(dtype: torch.dtype, constant: float) -> None:
    z_ND = torch.full((4, 3), constant, dtype=dtype)
    inputs = [z_ND.clone().requires_grad_() for _ in range(2)]
    value, grad = value_and_grad(vicreg, *inputs)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, torch.tensor(25.0 * (1 - 0.01)))  # sqrt(1e-4) is left
    assert torch.isfinite(grad).all()


@pytest.mark.parametrize("name", ["sim_coeff", "std_coeff", "cov_coeff"])
@pytest.mark.parametrize("value", [-1.0, math.nan])
def test_weights_of_vicreg_are_not_negative(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected a value >= 0, given {value}"):
        vicreg(*raw_views(4, 3), **{name: value})


def test_vicreg_needs_two_samples_of_one_shape() -> None:
    with pytest.raises(ValueError, match="a single one has no statistics"):
        vicreg(torch.ones(1, 3), torch.ones(1, 3))
    with pytest.raises(ValueError, match="two views of one shape"):
        vicreg(torch.ones(4, 3), torch.ones(4, 2))
