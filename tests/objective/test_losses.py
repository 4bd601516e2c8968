"""The losses against the DCL paper's equations, written out as loops, and against lightly.

Shapes: N samples, D features; `z1_ND` and `z2_ND` are the two views.
"""

import math
import warnings
from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clsweep.objective.losses import dcl, dclw, infonce

pytestmark = pytest.mark.usefixtures("one_thread")

PairLoss = Callable[[Tensor, Tensor], Tensor]
SIZES = [(2, 3), (3, 2), (5, 8), (9, 4)]
LOSSES = {"infonce": infonce, "dcl": dcl, "dclw": partial(dclw, sigma=0.5)}


def views(num_samples: int, dim: int, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Two views that are alike, as views of one image are, normalised; leaves that collect gradient."""
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(num_samples, dim, generator=generator, dtype=torch.float64)
    noisy = [base + torch.randn(base.shape, generator=generator, dtype=torch.float64) for _ in range(2)]
    z1_ND, z2_ND = (F.normalize(z, dim=1).to(dtype).requires_grad_() for z in noisy)
    return z1_ND, z2_ND


def value_and_grad(loss: PairLoss, z1_ND: Tensor, z2_ND: Tensor) -> tuple[Tensor, Tensor]:
    value = loss(z1_ND, z2_ND)
    return value.detach(), torch.stack(torch.autograd.grad(value, (z1_ND, z2_ND)))


def dot(a_D: Tensor, b_D: Tensor) -> Tensor:
    """A loop, so that not even a matrix product is shared with the package."""
    return sum((a * b for a, b in zip(a_D, b_D, strict=True)), torch.zeros((), dtype=a_D.dtype))


def negatives(num_samples: int, i: int) -> list[tuple[int, int]]:
    """(l, j) of Eq. 2's sum: both views of every other sample."""
    return [(view, j) for view in range(2) for j in range(num_samples) if j != i]


def reference(z1_ND: Tensor, z2_ND: Tensor, *, tau: float, loss: str, sigma: float = math.inf) -> Tensor:
    """DCL Eq. 1-2 (infonce), 6 (dcl) and 7 (dclw, w constant): plain loops, plain exp; the mean of the 2N terms."""
    z, num_samples = (z1_ND, z2_ND), len(z1_ND)
    expected_vmf = sum(math.exp(dot(z1_ND[i], z2_ND[i]).item() / sigma) for i in range(num_samples)) / num_samples
    total = torch.zeros((), dtype=torch.float64)
    for k in range(2):
        for i in range(num_samples):
            positive = dot(z1_ND[i], z2_ND[i]) / tau
            u_ik = torch.zeros((), dtype=torch.float64)
            for view, j in negatives(num_samples, i):
                u_ik = u_ik + torch.exp(dot(z[k][i], z[view][j]) / tau)
            if loss == "infonce":
                total = total - torch.log(torch.exp(positive) / (torch.exp(positive) + u_ik))
            else:
                w = 2 - math.exp(positive.item() * tau / sigma) / expected_vmf if loss == "dclw" else 1.0
                total = total - w * positive + torch.log(u_ik)
    return total / (2 * num_samples)


def equation_3(z1_ND: Tensor, z2_ND: Tensor, *, tau: float, coupled: bool) -> tuple[Tensor, Tensor]:
    """Gradient of the mean loss by Proposition 1, for both k, and q_B of Eq. 4; without q_B if not `coupled`."""
    z, num_samples = torch.stack([z1_ND, z2_ND]).detach(), len(z1_ND)
    grad, q_b = torch.zeros_like(z), torch.zeros(2, num_samples, dtype=torch.float64)
    for k in range(2):
        for i in range(num_samples):
            anchor, positive = z[k, i], z[1 - k, i]
            e = {(view, j): math.exp(dot(anchor, z[view, j]) / tau) for view, j in negatives(num_samples, i)}
            u_ik, e_positive = sum(e.values()), math.exp(dot(anchor, positive) / tau)
            q_b[k, i] = 1 - e_positive / (e_positive + u_ik)
            force = (q_b[k, i] if coupled else 1.0) / tau
            grad[k, i] -= force * (positive - sum(e[at] / u_ik * z[at] for at in e))
            grad[1 - k, i] -= force * anchor
            for at in e:
                grad[at] += force * e[at] / u_ik * anchor
    return grad / (2 * num_samples), q_b


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tau", [0.05, 0.1, 0.5, 3.0])
@pytest.mark.parametrize("loss", ["infonce", "dcl"])
def test_value_and_gradient_are_those_of_the_paper(loss: str, tau: float, size: tuple[int, int]) -> None:
    z1_ND, z2_ND = views(*size)
    actual = value_and_grad(partial(LOSSES[loss], tau=tau), z1_ND, z2_ND)
    expected = value_and_grad(partial(reference, tau=tau, loss=loss), z1_ND, z2_ND)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tau", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("sigma", [0.1, 0.5, 2.0])
def test_dclw_value_and_gradient_are_those_of_the_paper(sigma: float, tau: float, size: tuple[int, int]) -> None:
    z1_ND, z2_ND = views(*size)
    actual = value_and_grad(partial(dclw, tau=tau, sigma=sigma), z1_ND, z2_ND)
    expected = value_and_grad(partial(reference, tau=tau, loss="dclw", sigma=sigma), z1_ND, z2_ND)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tau", [0.07, 0.5])
def test_proposition_1_gradient_of_infonce_carries_q_b(tau: float, size: tuple[int, int]) -> None:
    z1_ND, z2_ND = views(*size)
    expected, q_b = equation_3(z1_ND, z2_ND, tau=tau, coupled=True)
    assert q_b.min() < 0.9, "the coupling must be visible in this example"
    _, grad = value_and_grad(partial(infonce, tau=tau), z1_ND, z2_ND)
    torch.testing.assert_close(grad, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tau", [0.07, 0.5])
def test_gradient_of_dcl_is_that_of_infonce_without_q_b(tau: float, size: tuple[int, int]) -> None:
    z1_ND, z2_ND = views(*size)
    expected, _ = equation_3(z1_ND, z2_ND, tau=tau, coupled=False)
    _, grad = value_and_grad(partial(dcl, tau=tau), z1_ND, z2_ND)
    torch.testing.assert_close(grad, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("tau", [0.07, 1.0])
def test_dclw_becomes_dcl_as_sigma_grows(tau: float) -> None:
    z1_ND, z2_ND = views(6, 4)
    limit = value_and_grad(partial(dcl, tau=tau), z1_ND, z2_ND)
    gaps = [
        (value_and_grad(partial(dclw, tau=tau, sigma=sigma), z1_ND, z2_ND)[0] - limit[0]).abs().item()
        for sigma in (1.0, 10.0, 100.0, 1e3)
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.01 * gaps[0]
    at_infinity = value_and_grad(partial(dclw, tau=tau, sigma=math.inf), z1_ND, z2_ND)
    torch.testing.assert_close(at_infinity, limit, rtol=1e-12, atol=1e-12)


def test_losses_are_ordered() -> None:
    """InfoNCE adds a positive term to DCL's denominator, so it is larger, by -log q_B on average (Eq. 4)."""
    z1_ND, z2_ND = views(7, 5)
    _, q_b = equation_3(z1_ND, z2_ND, tau=0.2, coupled=True)
    gap = infonce(z1_ND, z2_ND, tau=0.2) - dcl(z1_ND, z2_ND, tau=0.2)
    torch.testing.assert_close(gap.detach(), -q_b.log().mean(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("loss", LOSSES)
def test_swapping_views_and_reordering_samples_change_nothing(loss: str) -> None:
    z1_ND, z2_ND = views(7, 5)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(3))
    value = LOSSES[loss](z1_ND, z2_ND, tau=0.1)
    torch.testing.assert_close(LOSSES[loss](z2_ND, z1_ND, tau=0.1), value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(LOSSES[loss](z1_ND[order], z2_ND[order], tau=0.1), value, rtol=1e-12, atol=1e-12)


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
        expected = value_and_grad(oracle, x1_ND, x2_ND)
    torch.testing.assert_close(value_and_grad(ours, x1_ND, x2_ND), expected, rtol=1e-10, atol=1e-10)


def test_dcl_is_one_joint_log_sum_exp_and_not_lightlys_former_sum_of_two() -> None:
    """lightly's DCL once added a log-sum-exp per view: that is the log of a product, not Eq. 2's sum."""
    z1_ND, z2_ND = views(5, 4)

    def former(a_ND: Tensor, b_ND: Tensor) -> Tensor:
        own = torch.eye(len(a_ND), dtype=torch.bool)
        aa, ab = ((a_ND @ other.T / 0.1).masked_fill(own, -torch.inf) for other in (a_ND, b_ND))
        return (aa.logsumexp(1) + ab.logsumexp(1) - (a_ND * b_ND).sum(1) / 0.1).mean()

    former_value, former_grad = value_and_grad(lambda a, b: (former(a, b) + former(b, a)) / 2, z1_ND, z2_ND)
    value, grad = value_and_grad(partial(dcl, tau=0.1), z1_ND, z2_ND)
    torch.testing.assert_close(value, reference(z1_ND, z2_ND, tau=0.1, loss="dcl").detach(), rtol=1e-10, atol=1e-10)
    assert (former_value - value).abs() > 1.0
    assert (former_grad - grad).abs().max() > 0.1


def test_dclw_weights_average_over_the_global_batch_and_lightlys_over_one_workers() -> None:
    """With its negatives gathered, lightly still weighs each worker's positives by that worker's own mean."""
    from lightly.loss import dcl_loss as loss

    z1_ND, z2_ND = (z.detach() for z in views(8, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = loss.negative_mises_fisher_weights(z1_ND, z2_ND, 0.5)
        shares = [loss.negative_mises_fisher_weights(z1_ND[rows], z2_ND[rows], 0.5) for rows in (slice(4), slice(4, 8))]
    assert (torch.cat(shares) - whole).abs().max() > 0.05
    positive = (z1_ND * z2_ND).sum(1)
    # Eq. 7 - Eq. 6 leaves the weights alone: mean of (1 - w) s_pos / tau
    gap = dclw(z1_ND, z2_ND, tau=0.1, sigma=0.5) - dcl(z1_ND, z2_ND, tau=0.1)
    torch.testing.assert_close(gap, ((1 - whole) * positive / 0.1).mean(), rtol=1e-10, atol=1e-10)
    assert (gap - ((1 - torch.cat(shares)) * positive / 0.1).mean()).abs() > 1e-3


# Numerics.


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
        z1_ND, z2_ND = (z1_ND[:1].detach().repeat(num_samples, 1).requires_grad_() for _ in range(2))
    elif case == "opposite":
        z2_ND = (-z1_ND).detach().requires_grad_()
    elif case == "easy":
        z2_ND = z1_ND.detach().clone().requires_grad_()
    value, grad = value_and_grad(partial(LOSSES[loss], tau=tau), z1_ND, z2_ND)
    assert value.dtype == torch.float32, "half precision is too coarse for 1/tau = 200"
    assert torch.isfinite(value)
    assert torch.isfinite(grad).all()
    exact = LOSSES[loss](z1_ND.detach().double(), z2_ND.detach().double(), tau=tau)
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-5 / tau)


@pytest.mark.parametrize("sigma", [0.001, 1e6])
def test_dclw_is_finite_at_extreme_widths(sigma: float) -> None:
    value, grad = value_and_grad(partial(dclw, tau=0.1, sigma=sigma), *views(16, 4, dtype=torch.float32))
    assert torch.isfinite(value)
    assert torch.isfinite(grad).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_autocast_does_not_reach_the_similarities(loss: str) -> None:
    z1_ND, z2_ND = views(16, 8, dtype=torch.float32)
    outside, grad_outside = value_and_grad(partial(LOSSES[loss], tau=0.05), z1_ND, z2_ND)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = LOSSES[loss](z1_ND, z2_ND, tau=0.05)
    grad_inside = torch.stack(torch.autograd.grad(inside, (z1_ND, z2_ND)))  # backward belongs outside of autocast
    torch.testing.assert_close((inside, grad_inside), (outside, grad_outside), rtol=0, atol=0)


# Errors.


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("tau", [0.0, -0.1, math.nan])
def test_tau_must_be_positive(loss: str, tau: float) -> None:
    with pytest.raises(ValueError, match=r"tau: expected a value > 0, given"):
        LOSSES[loss](*views(4, 3), tau=tau)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan])
def test_sigma_must_be_positive(sigma: float) -> None:
    with pytest.raises(ValueError, match=r"sigma: expected a value > 0, given"):
        dclw(*views(4, 3), tau=0.1, sigma=sigma)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_single_sample_has_no_negatives(loss: str) -> None:
    with pytest.raises(ValueError, match="at least 2 samples"):
        LOSSES[loss](*views(1, 3), tau=0.1)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shapes", [((4, 3), (5, 3)), ((4, 3), (4, 2)), ((4, 3, 1), (4, 3, 1)), ((4,), (4,))])
def test_shapes_must_match(loss: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="two views of one shape"):
        LOSSES[loss](*(torch.ones(shape) for shape in shapes), tau=0.1)
