"""Sinkhorn's codes and the loss of predicting them, against the papers' equations as loops and
against lightly.

Shapes: N samples, K prototypes.
"""

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from clsweep.objective.targets import sinkhorn, soft_cross_entropy
from tests.objective.test_losses import EXACT, assert_same, value_and_grad

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = [(1, 2), (3, 5), (6, 4)]


def scores(num_samples: int, num_prototypes: int, *, seed: int = 0) -> Tensor:
    """Cosines."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(num_samples, num_prototypes, generator=generator, dtype=torch.float64)
    return (2 * x - 1).requires_grad_()


def codes(num_samples: int, num_prototypes: int) -> Tensor:
    return torch.softmax(5 * scores(num_samples, num_prototypes, seed=1).detach(), dim=1)


def cross_entropy_reference(scores_NK: Tensor, targets_NK: Tensor, tau: float) -> Tensor:
    """SwAV Eq. 2, of single numbers."""
    total = torch.zeros((), dtype=torch.float64)
    for s_K, q_K in zip(scores_NK, targets_NK, strict=True):
        partition = sum(torch.exp(s / tau) for s in s_K)
        total = total - sum(
            q * torch.log(torch.exp(s / tau) / partition) for s, q in zip(s_K, q_K, strict=True)
        )
    return total / len(scores_NK)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tau", [0.05, 0.1, 1.0])
def test_soft_cross_entropy_is_that_of_the_paper(tau: float, size: tuple[int, int]) -> None:
    given = {"targets_NK": codes(*size), "tau": tau}
    expected = partial(cross_entropy_reference, **given)
    assert_same(partial(soft_cross_entropy, **given), expected, scores(*size))


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


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("epsilon", "iterations"), [(0.05, 3), (0.2, 1), (1.0, 10)])
def test_codes_are_those_of_the_authors_loop(
    epsilon: float, iterations: int, size: tuple[int, int]
) -> None:
    found = sinkhorn(scores(*size), epsilon, iterations)
    torch.testing.assert_close(
        found, sinkhorn_reference(scores(*size).detach(), epsilon, iterations), **EXACT
    )
    assert not found.requires_grad
    torch.testing.assert_close(found.sum(1), torch.ones(size[0], dtype=torch.float64))


def test_lightlys_sinkhorn_and_swav_loss_agree() -> None:
    from lightly.loss import SwaVLoss
    from lightly.loss.swav_loss import sinkhorn as theirs

    views = [scores(6, 4, seed=view) for view in range(4)]
    torch.testing.assert_close(
        sinkhorn(views[0], 0.05, 3), theirs(views[0].detach(), 3, 0.05), **EXACT
    )

    def ours(*views: Tensor) -> Tensor:
        """The two global views are the codes of all others."""
        terms = [
            soft_cross_entropy(views[v], sinkhorn(views[i], 0.05, 3), 0.1)
            for i in range(2)
            for v in range(4)
            if v != i
        ]
        return torch.stack(terms).mean()

    assert_same(ours, lambda *v: SwaVLoss()(list(v[:2]), list(v[2:]))[0], *views)


def test_many_iterations_give_every_prototype_the_same_share() -> None:
    shares = sinkhorn(scores(12, 3), 0.5, 200).sum(0)
    torch.testing.assert_close(shares, torch.full((3,), 4.0, dtype=torch.float64))


def test_a_small_epsilon_overflows_nothing() -> None:
    """exp(1 / 0.001) is no float."""
    found = sinkhorn(scores(6, 4).float(), 0.001, 3)
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found.sum(1), torch.ones(6))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_half_types_are_computed_in_float32(dtype: torch.dtype) -> None:
    given = scores(6, 4).detach().to(dtype).requires_grad_()
    value, grad = value_and_grad(lambda s: soft_cross_entropy(s, codes(6, 4).to(dtype), 0.1), given)
    assert (value.dtype, grad.dtype) == (torch.float32, dtype)
    assert sinkhorn(given, 0.05, 3).dtype == torch.float32


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((4, 3), (4, 2)), r"one shape \(N, K\), given \(4, 3\) and \(4, 2\)"),
        (((4,), (4,)), r"one shape \(N, K\)"),
        (((0, 3), (0, 3)), "at least 1 sample and 2 prototypes"),
        (((4, 1), (4, 1)), "at least 1 sample and 2 prototypes"),
    ],
)
def test_shapes_must_match(shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        soft_cross_entropy(*(torch.ones(shape) for shape in shapes), tau=0.1)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_temperatures_must_be_positive(value: float) -> None:
    with pytest.raises(ValueError, match=r"^tau: expected a value > 0"):
        soft_cross_entropy(scores(2, 2), codes(2, 2), value)
    with pytest.raises(ValueError, match=r"^epsilon: expected a value > 0"):
        sinkhorn(scores(2, 2), value, 3)
