"""What the tests of losses share: embeddings, each loss in each of its forms, and the papers'
contrastive losses written out as loops.

Shapes: N samples, D features, K negatives of a query, M to choose from; `z1_ND`, `z2_ND` are two
views. A loss has a batch form, and a query form whose negatives are shared, each query's own, or an
index into shared ones.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

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
)
from clsweep.objective.sigmoid import Sigmoid

Loss = Callable[..., Tensor]
Anchors = list[tuple[Tensor, Tensor, list[Tensor]]]
SIZES = [(2, 3), (3, 2), (6, 4)]
QUERIES = [(1, 1), (4, 3)]  # and their negatives
FORMS = ["batch", "shared", "own", "index"]
EXACT = {"rtol": 1e-10, "atol": 1e-10}
# Of a weighted loss, each sigma with and without a gradient through the weights.
CONTRASTIVE: dict[str, tuple[Loss, dict[str, Any]]] = {
    "infonce": (infonce, {}),
    "dcl": (dcl, {}),
    "dclw": (dclw, {"sigma": 0.5}),
    "dclw-narrow": (dclw, {"sigma": 0.1, "dclw_detach": False}),
    "dclw-wide": (dclw, {"sigma": 2.0, "dclw_detach": False}),
    "dclw-endless": (dclw, {"sigma": math.inf}),
    "exponential": (dclw, {"weighting": "exponential", "sigma": 0.4, "delta": 2.5}),
    "exponential-undetached": (
        dclw,
        {"weighting": "exponential", "sigma": 2.0, "delta": 2.5, "dclw_detach": False},
    ),
    "eqco": (eqco, {"alpha": 700.0}),
}


def raw_views(num_samples: int, dim: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two views that are alike, as views of one image are; leaves that collect gradient."""
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(num_samples, dim, generator=generator, dtype=torch.float64)
    z1_ND, z2_ND = (
        base + torch.randn(base.shape, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    return z1_ND.requires_grad_(), z2_ND.requires_grad_()


def views(
    num_samples: int, dim: int, *, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """The same, normalised."""
    z1_ND, z2_ND = (F.normalize(z.detach(), dim=1) for z in raw_views(num_samples, dim, seed=seed))
    return z1_ND.to(dtype).requires_grad_(), z2_ND.to(dtype).requires_grad_()


def inputs_of(form: str, num: int, dim: int, num_negatives: int = 5) -> tuple[list[Tensor], Any]:
    """Both views, or queries, positives and negatives, all of them leaves; and index_NK."""
    if form == "batch":
        return list(views(num, dim)), None
    generator = torch.Generator().manual_seed(num_negatives)
    shape = {"shared": (num_negatives,), "own": (num, num_negatives), "index": (num_negatives + 3,)}
    rows = torch.randn(*shape[form], dim, generator=generator, dtype=torch.float64)
    index_NK = None
    if form == "index":  # drawn for each query, some rows twice
        index_NK = torch.randint(len(rows), (num, num_negatives), generator=generator)
    return [*views(num, dim, seed=1), F.normalize(rows, dim=-1).requires_grad_()], index_NK


def of_inputs(loss: Loss, index_NK: Tensor | None = None, **settings: Any) -> Loss:
    """`loss` as a function of the inputs above."""

    def call(z1_ND: Tensor, z2_ND: Tensor, *negatives: Tensor) -> Tensor:
        more = {"negatives": negatives[0], "index_NK": index_NK} if negatives else {}
        return loss(z1_ND, z2_ND, **more, **settings)

    return call


def losses_of(form: str, index_NK: Tensor | None, tau: float) -> Iterator[tuple[str, Loss]]:
    """Every loss that has this form."""
    for name, (loss, settings) in CONTRASTIVE.items():
        if name != "eqco" or form != "batch":
            yield name, of_inputs(loss, index_NK, tau=tau, **settings)
    yield "align_uniform", of_inputs(align_uniform, index_NK)


def value_and_grad(loss: Loss, *inputs: Tensor) -> tuple[Tensor, Tensor]:
    value = loss(*inputs)
    grads = torch.autograd.grad(value, inputs)
    return value.detach(), torch.cat([grad.flatten() for grad in grads])


def assert_same(actual: Loss, expected: Loss, *inputs: Tensor, tolerance: float = 1e-10) -> None:
    """In value and gradient."""
    actual, wanted = value_and_grad(actual, *inputs), value_and_grad(expected, *inputs)
    torch.testing.assert_close(actual, wanted, rtol=tolerance, atol=tolerance)


def dot(a_D: Tensor, b_D: Tensor) -> Tensor:
    """A loop, so that not even a matrix product is shared with the package."""
    return sum((a * b for a, b in zip(a_D, b_D, strict=True)), torch.zeros((), dtype=a_D.dtype))


def anchors_of(z1_ND: Tensor, z2_ND: Tensor, *negatives: Tensor, index_NK: Any = None) -> Anchors:
    """Anchor, positive and negatives: the 2N terms of a batch, whose negatives are both views of
    every other sample (Eq. 2's sum), or the N terms of queries.
    """
    z, rows = (z1_ND, z2_ND), range(len(z1_ND))
    if not negatives:
        return [
            (z[k][i], z[1 - k][i], [z[view][j] for view in range(2) for j in rows if j != i])
            for k in range(2)
            for i in rows
        ]
    (given,) = negatives
    own = [given if given.ndim == 2 else given[i] for i in rows]
    if index_NK is not None:
        own = [[given[j] for j in index_NK[i].tolist()] for i in rows]
    return [(z1_ND[i], z2_ND[i], list(own[i])) for i in rows]


def contrast(
    anchors: Anchors,
    loss: Loss,
    *,
    tau: float,
    sigma: float = math.inf,
    weighting: str = "vmf",
    delta: float = 3.0,
    dclw_detach: bool = True,
    alpha: float | None = None,
    absolute: bool = False,
) -> Tensor:
    """DCL Eq. 1-2 (infonce), 6 (dcl), 7 (dclw) and A.8 (exponential), EqCo Eq. 10: plain loops,
    plain exp; the mean.
    """
    similarities = [dot(anchor, positive) for anchor, positive, _ in anchors]
    weighing = [s.detach() if dclw_detach else s for s in similarities]
    expected_vmf = sum(torch.exp(s / sigma) for s in weighing) / len(weighing)
    total = torch.zeros((), dtype=torch.float64)
    for (anchor, _, others), similarity, s in zip(anchors, similarities, weighing, strict=True):
        positive, negatives = similarity / tau, [dot(anchor, other) for other in others]
        u = sum(torch.exp((n.abs() if absolute else n) / tau) for n in negatives)
        if loss in (infonce, eqco):
            margin = 1.0 if alpha is None else alpha / len(others)
            total = total - torch.log(torch.exp(positive) / (torch.exp(positive) + margin * u))
            continue
        w = torch.ones(())
        if loss is dclw and weighting == "vmf":
            w = 2 - torch.exp(s / sigma) / expected_vmf
        elif loss is dclw:
            w = delta * torch.exp(-sigma * s)
        total = total - w * positive + torch.log(u)
    return total / len(anchors)


def logits(num_samples: int, num_classes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num_classes)
    logits_NC = 3 * torch.randn(num_samples, num_classes, generator=generator, dtype=torch.float64)
    labels_N = torch.randint(num_classes, (num_samples,), generator=generator)
    return logits_NC.requires_grad_(), labels_N


CLASSIFIERS = pytest.mark.parametrize("loss", [cross_entropy, decoupled_cross_entropy])


BLOCKWISE: dict[str, Loss] = {
    "infonce": partial(infonce, tau=0.1),
    "dcl": partial(dcl, tau=0.1),
    "dclw": partial(dclw, tau=0.1),
    "dimcl": partial(dimcl, dim_tau=0.1),
    "abscl": partial(abscl, dim_tau=0.1),
}


COLUMN_WISE: dict[str, Loss] = {
    **{name: BLOCKWISE[name] for name in ("dimcl", "abscl")},
    "raw dimcl": partial(dimcl, dim_tau=0.1, dim_standardize=False),
    "barlow": barlow,
}


SINGLE_VIEW: dict[str, Loss] = BLOCKWISE | {
    "exponential": partial(dclw, tau=0.3, weighting="exponential"),
    "align_uniform": align_uniform,
    "cosine": cosine,
    "barlow": barlow,
    "sigmoid": Sigmoid().requires_grad_(False),
}


def assert_finite(value: Tensor, grad: Tensor, name: str = "") -> None:
    assert torch.isfinite(value), name
    assert torch.isfinite(grad).all(), name
