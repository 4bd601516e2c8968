"""Losses of the distribution of projections: variances and correlations, or all of it.

Shapes: V views, N samples of the global batch, D features, M slices, T points. Projections are raw.
Half types are computed in float32, whatever autocast says; gradients have the inputs' type.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from clsweep.model.transfer import to_device
from clsweep.objective.contrastive import (
    check_positive,
    check_views,
    no_autocast,
    of_all_steps,
    shape_of,
    wide,
)

_TARGET_STD = 1.0  # gamma of VICReg
_VARIANCE_EPS = 1e-4  # epsilon of VICReg


def vicreg(
    z1_ND: Tensor,
    z2_ND: Tensor,
    sim_coeff: float = 25.0,
    std_coeff: float = 25.0,
    cov_coeff: float = 1.0,
) -> Tensor:
    """VICReg (Bardes et al. 2022, Eq. 1-6): l = sim s(z1, z2) + std [v(z1) + v(z2)] / 2 + cov
    [c(z1) + c(z2)].

    s = mean over samples and dimensions of (z1 - z2)^2. v = mean_d max(0, 1 - sqrt(var_d + 1e-4)).
    c = sum_{i != j} C_ij^2 / D. Variance and covariance C have N - 1 in the denominator.

    The coefficients 25, 25 and 1 belong to the authors' code, which is the reading here. The
    paper's Eq. 5 sums s over dimensions where the code takes their mean. Its Eq. 6 adds v of both
    views where the code halves their sum.

    Args:
        z1_ND, z2_ND: float (N, D), raw, N >= 2.
        sim_coeff, std_coeff, cov_coeff: weights of invariance, variance and covariance, >= 0.

    Returns:
        A scalar; NaN where its gradient exceeds all numbers of inputs of float16.

    Raises:
        ValueError: shapes differ, N < 2 (no statistics), a negative weight.
    """
    weights = {"sim_coeff": sim_coeff, "std_coeff": std_coeff, "cov_coeff": cov_coeff}
    for name, value in weights.items():
        if not value >= 0:
            raise ValueError(f"{name}: expected a value >= 0, given {value}")
    check_views(z1_ND, z2_ND, 2, "statistics")
    is_half = z1_ND.dtype == torch.float16
    z1_ND, z2_ND = wide(z1_ND), wide(z2_ND)
    (std1, cov1), (std2, cov2) = _std_and_covariance(z1_ND), _std_and_covariance(z2_ND)
    invariance = F.mse_loss(z1_ND, z2_ND)
    loss = sim_coeff * invariance + std_coeff * (std1 + std2) / 2 + cov_coeff * (cov1 + cov2)
    if is_half:  # else a finite loss would hide an infinite gradient
        largest = cov_coeff * torch.maximum(_largest_slope(z1_ND), _largest_slope(z2_ND))
        loss = torch.where(largest > torch.finfo(torch.float16).max, torch.nan, loss)
    return loss


def wmse(z1_ND: Tensor, z2_ND: Tensor, whitening_size: int, *, order_N: Tensor) -> Tensor:
    """W-MSE (Ermolov et al. 2021, Eq. 5-6): l = mean over samples of |n(w1) - n(w2)|^2, the
    whitened projections at unit length; in [0, 4].

    Each view's projections are whitened in sub-batches, w = L^-1 (z - mean), where L L^T is the
    Cholesky factorisation of the sub-batch's covariance, with its size - 1 in the denominator.

    Args:
        z1_ND, z2_ND: float (N, D), raw.
        whitening_size: samples of a sub-batch, > D; it divides N.
        order_N: int64, the samples in the order in which sub-batches take them.

    Returns:
        Scalar; NaN where a sub-batch does not span all dimensions, as a collapsed one: where what
        the others leave of one is within the rounding of float32, or of a half type's numbers.

    Raises:
        ValueError: shapes differ, a sub-batch that does not fit.
    """
    check_views(z1_ND, z2_ND)
    if len(z1_ND) % whitening_size or whitening_size <= z1_ND.shape[1]:
        expected = f"more than {z1_ND.shape[1]}, the dimensions, and a divisor of {len(z1_ND)}"
        raise ValueError(f"whitening_size: expected {expected}, given {whitening_size}")
    parts = (z_ND[order_N].unflatten(0, (-1, whitening_size)) for z_ND in (z1_ND, z2_ND))
    first, second = (F.normalize(_whiten(part), dim=-1) for part in parts)
    return (first - second).square().sum(-1).mean()


def sigreg(
    z_VND: Tensor,
    num_slices: int = 256,
    sigreg_points: int = 17,
    sigreg_t_max: float = 5.0,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Sketched isotropic Gaussian regularization (LeJEPA Definition 2, Algorithm 1): how far the
    projections of each view are from N(0, I).

    The mean over views and random unit slices a of Epps and Pulley's statistic of x_n = <a, z_n>,
    N integral |mean_n exp(i t x_n) - exp(-t^2/2)|^2 exp(-t^2/2) dt.

    The integral runs over [-t_max, t_max] by the trapezoidal rule. Its integrand is even: as in the
    authors' code the points lie on [0, t_max] and count twice. Algorithm 1 has t_max = 5 and its 17
    points on the whole interval; the authors' code has t_max = 3. All views share the slices.

    Args:
        z_VND: float (..., N, D), raw, N >= 1.
        num_slices: M, >= 1. sigreg_points: T, >= 2. sigreg_t_max: > 0.
        generator: of the CPU, from which the slices are drawn in float32; None: torch's own.

    Raises:
        ValueError: shapes that do not fit, a parameter out of its range.
    """
    check_positive(num_slices=num_slices, sigreg_t_max=sigreg_t_max)
    if not sigreg_points > 1:
        raise ValueError(f"sigreg_points: expected a value > 1, given {sigreg_points}")
    if z_VND.ndim < 2 or z_VND.numel() == 0:
        raise ValueError(f"expected projections (..., N, D), given {shape_of(z_VND)}")
    z_VND, num_samples = wide(z_VND), z_VND.shape[-2]
    slices_MD = torch.randn(num_slices, z_VND.shape[-1], generator=generator)
    slices_MD = to_device(slices_MD, z_VND.device).to(z_VND.dtype)
    t_T, phi_T = _points(sigreg_t_max, sigreg_points, z_VND.device, z_VND.dtype)
    with no_autocast(z_VND):
        x_VNM = z_VND @ F.normalize(slices_MD, dim=1).T
    angle_VNMT = x_VNM[..., None] * t_T
    real_VMT, imaginary_VMT = angle_VNMT.cos().mean(-3), angle_VNMT.sin().mean(-3)
    distance_VMT = (real_VMT - phi_T).square() + imaginary_VMT.square()
    return 2 * num_samples * torch.trapezoid(distance_VMT * phi_T, t_T).mean()


@of_all_steps
def _points(
    most: float, number: int, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Points of the integral on [0, most] and exp(-t^2/2) there: of all steps the same."""
    t_T = to_device(torch.linspace(0, most, number), device).to(dtype)
    return t_T, torch.exp(-t_T.square() / 2)


def _whiten(z_GSD: Tensor) -> Tensor:
    """Rows of each sub-batch, (groups, size, D), with mean 0 and covariance I.

    In float64 where the device has it: in float32 the factorisation of a small sub-batch fails.
    """
    exact = torch.float32 if z_GSD.device.type == "mps" else torch.float64
    centred_GSD = z_GSD.to(exact) - z_GSD.to(exact).mean(1, keepdim=True)
    with no_autocast(centred_GSD):
        covariance_GDD = centred_GSD.mT @ centred_GSD / (centred_GSD.shape[1] - 1)
        factor_GDD, failed_G = torch.linalg.cholesky_ex(covariance_GDD)
        # What float32 leaves of a dimension that the others determine is rounding, and no variance;
        # so is what a half type may round off, in which a network has computed.
        rounding = torch.finfo(torch.float32).eps
        relative = z_GSD.new_full((), 64 * rounding, dtype=exact)
        for half in (torch.float16, torch.bfloat16):
            is_half = (z_GSD == z_GSD.to(half)).all()
            relative = torch.where(is_half, torch.finfo(half).eps / math.sqrt(12), relative)
        noise_GD = (relative * z_GSD.to(exact)).square().mean(1)
        noise_GD += rounding * covariance_GDD.diagonal(dim1=1, dim2=2)
        has_all_G = (factor_GDD.diagonal(dim1=1, dim2=2).square() > noise_GD).all(1)
        # not an error, which would wait for the device: a trial ends by its loss
        factor_GDD = torch.where(
            (has_all_G & (failed_G == 0))[:, None, None], factor_GDD, torch.nan
        )
        whitened_GDS = torch.linalg.solve_triangular(factor_GDD, centred_GSD.mT, upper=False)
    return whitened_GDS.mT.to(wide(z_GSD).dtype)


@torch.no_grad()
def _largest_slope(z_ND: Tensor) -> Tensor:
    """The largest derivative of VICReg's c of one view by a projection."""
    num_samples, dim = z_ND.shape
    centred_ND, covariance_DD = _covariance(z_ND)
    with no_autocast(centred_ND):
        slope_ND = centred_ND @ covariance_DD.fill_diagonal_(0)
    return slope_ND.abs().max() * (4 / (dim * (num_samples - 1)))


def _std_and_covariance(z_ND: Tensor) -> tuple[Tensor, Tensor]:
    """VICReg's v and c of one view."""
    _, covariance_DD = _covariance(z_ND)
    variance_D = covariance_DD.diagonal()
    hinge = F.relu(_TARGET_STD - torch.sqrt(variance_D + _VARIANCE_EPS)).mean()
    square_sum = (covariance_DD - torch.diag_embed(variance_D)).square().sum()
    return hinge, square_sum / z_ND.shape[1]


def _covariance(z_ND: Tensor) -> tuple[Tensor, Tensor]:
    """The centred projections, and their covariance, unbiased."""
    num_samples = len(z_ND)
    centred_ND = z_ND - z_ND.mean(0)
    with no_autocast(centred_ND):
        return centred_ND, centred_ND.T @ centred_ND / (num_samples - 1)
