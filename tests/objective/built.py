"""Objectives on a small network, and their losses term by term."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from clsweep.objective import losses
from clsweep.objective.framework import Comparison
from clsweep.objective.frameworks import (
    BYOL,
    NNCLR,
    BarlowTwins,
    MoCo,
    MoCoV3,
    SiMo,
    SimSiam,
    Supervised,
)
from clsweep.objective.targets import DINO, SwAV, soft_cross_entropy
from clsweep.objective.views import Pairs

N, D, K, TAU = 6, 5, 7, 0.3
TWO: Pairs = ((0, 1),)
Rows = Sequence[Tensor]
CONTRAST = {
    "infonce": partial(losses.infonce, tau=TAU),
    "dcl": partial(losses.dcl, tau=TAU),
    "eqco": partial(losses.eqco, tau=TAU, alpha=50.0),
}
LABELS = torch.tensor([0, 2, 1, 1, 0, 2])


class Flat(nn.Module):
    """A small linear encoder of images of 2 x 2 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.num_features = nn.Linear(12, 7), 7

    def forward(self, x_NCHW: Tensor) -> Tensor:
        features: Tensor = self.layer(x_NCHW.flatten(1))
        return features


MOMENTUM = {"momentum": 0.9, "momentum_schedule": "constant"}
PROTOTYPES = {"num_prototypes": K, "freeze_epochs": 0}
# What each framework needs beside its pairs.
NEEDS: dict[Any, dict[str, Any]] = {
    MoCo: {**MOMENTUM, "symmetric": False},
    SiMo: {**MOMENTUM, "symmetric": False},
    BYOL: {**MOMENTUM, "pred_hidden": 4},
    MoCoV3: {**MOMENTUM, "pred_hidden": 4},
    SwAV: {
        **PROTOTYPES, "sinkhorn_epsilon": 0.05, "sinkhorn_iterations": 3, "swav_queue": 0,
        "swav_queue_start": 0,
    },
    DINO: {
        **MOMENTUM, **PROTOTYPES, "teacher_tau": 0.07, "teacher_tau_start": 0.04,
        "teacher_tau_epochs": 5, "center_momentum": 0.9,
    },
    SimSiam: {"pred_hidden": 4},
    NNCLR: {"pred_hidden": 4, "support_size": 9},
    Supervised: {"num_classes": 3},
}  # fmt: skip
CRITERION: dict[Any, Callable[..., Tensor]] = {
    BYOL: losses.cosine,
    SimSiam: losses.cosine,
    BarlowTwins: partial(losses.barlow, off_diag=0.02),
    Supervised: losses.cross_entropy,
    SwAV: partial(soft_cross_entropy, tau=0.1),
    DINO: partial(soft_cross_entropy, tau=0.1),
}


def build(
    framework: Any,
    criterion: Callable[..., Tensor] | None = None,
    *,
    pairs: Pairs = TWO,
    **more: Any,
) -> Any:
    """A framework with a small encoder, float64; what is no argument of a comparison is one of the
    framework.
    """
    names = ("pair_reduction", "regularizer", "lam", "targets", "of_all_views")
    of_comparison = {name: more.pop(name) for name in names if name in more}
    criterion = criterion or CRITERION.get(framework, CONTRAST["infonce"])
    torch.manual_seed(0)
    comparison = Comparison(criterion=criterion, pairs=pairs, **of_comparison)
    head = {"proj_dim": D, "proj_hidden": 8, "proj_layers": 2} if framework != Supervised else {}
    given = head | NEEDS.get(framework, {}) | more
    return framework(encoder=Flat(), comparison=comparison, **given).double()


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_views(num_views: int = 2, *, seed: int = 0) -> dict[int, Tensor]:
    """Raw embeddings of views that are alike, by view; leaves."""
    g = generator(seed)
    base = torch.randn(N, D, generator=g, dtype=torch.float64)
    return {
        view: (base + torch.randn(N, D, generator=g, dtype=torch.float64)).requires_grad_()
        for view in range(num_views)
    }


def images(num_views: int = 2) -> list[Tensor]:
    return [
        torch.randn(N, 3, 2, 2, generator=generator(view), dtype=torch.float64)
        for view in range(num_views)
    ]


def loss_of(objective: Any, seed: int = 0, **embeddings: dict[int, Tensor]) -> Tensor:
    total: Tensor = objective.loss(objective.prepare(embeddings, generator(seed))).total
    return total


def cos(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum() / (a.norm() * b.norm())


def one_loss(
    query: Tensor, positive: Tensor, negatives: Rows, *, margin: float = 1.0, tau: float = TAU
) -> Tensor:
    """-log(e^p / (e^p + margin sum e^n)) of one query, from cosines."""
    p = torch.exp(cos(query, positive) / tau)
    return -torch.log(p / (p + margin * sum(torch.exp(cos(query, row) / tau) for row in negatives)))


def mean(terms: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(terms)).mean()


def assert_same_gradient(actual: Tensor, expected: Tensor, *inputs: Tensor) -> None:
    """Value, and gradient in what a framework is given."""
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual, inputs), torch.autograd.grad(expected, inputs)
    )


def rows_of_others(views: Sequence[Tensor], sample: int) -> list[Tensor]:
    return [view[n] for view in views for n in range(N) if n != sample]


def drawn(prepared: Any, view: int, num_views: int, num_negatives: int) -> Tensor:
    """The rows of (views x samples) that are a view's negatives, for every sample so many distinct
    ones, none of them its own; none are drawn where all are taken.
    """
    others = [
        [v * N + other for v in range(num_views) for other in range(N) if other != n]
        for n in range(N)
    ]
    index_NK: Tensor = prepared["index"][view] if prepared["index"] else torch.tensor(others)
    assert index_NK.shape == (N, num_negatives)
    for row, allowed in zip(index_NK.tolist(), others, strict=True):
        assert len(set(row)) == num_negatives
        assert set(row) <= set(allowed)
    return index_NK
