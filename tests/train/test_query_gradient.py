"""The gradient of a query's loss in the query, against that of each query's loss written out.

N samples, D features; everything in float64.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from clsweep.train.diagnostics import query_grad_norm
from clsweep.train.loop import accumulate_gradient
from clsweep.train.state import new_state
from tests.contracts.combinations import BATCH, CASES, Config
from tests.train.test_step import CPU, first_batch

pytestmark = pytest.mark.usefixtures("one_thread")


def gradient_norm(
    query: Tensor, positive: Tensor, negatives: Tensor, tau: float, *,
    alpha: float = 0.0, w: float = 1.0,
) -> float:  # fmt: skip
    """Of the loss whose gradient is EqCo's Eq. 11, where alpha = K is InfoNCE, one term at a time;
    without alpha of -w q k_0 / tau + log sum exp(q k_i / tau) (DCL Eq. 6 and 7).
    """
    query = query.clone().requires_grad_()
    positive_logit = query @ positive / tau
    u = sum(torch.exp(query @ k / tau) for k in negatives)
    if alpha:
        u = torch.exp(positive_logit) + alpha / len(negatives) * u
    (torch.log(u) - w * positive_logit).backward()
    return float(query.grad.norm())


def one_step(config: Config) -> tuple[Any, Any, Any]:
    state = new_state(config, CPU)
    objective = state.objective.double().train()
    prepared, _ = accumulate_gradient(state, objective, first_batch(config, torch.float64))
    return objective, prepared, query_grad_norm(objective, prepared, config)


def weights(z1: Tensor, z2: Tensor, sigma: float) -> list[float]:
    """DCL Eq. 7, the mean over the batch."""
    e = [math.exp(float(a @ b) / sigma) for a, b in zip(z1, z2, strict=True)]
    return [2 - x / (sum(e) / len(e)) for x in e]


@pytest.mark.parametrize("loss", ["infonce", "dcl", "dclw"])
def test_every_anchor_of_simclr_is_a_query(loss):
    config = CASES[f"simclr-{loss}-none-two"]
    tau = float(config["tau"])
    _, prepared, norms = one_step(config)
    views = [prepared["unit"][v].detach() for v in (0, 1)]
    expected = []
    for a, b in ((0, 1), (1, 0)):
        w_N = weights(*views, float(config["sigma"])) if loss == "dclw" else [1.0] * BATCH
        for n in range(BATCH):
            others = torch.stack([view[m] for view in views for m in range(BATCH) if m != n])
            pair = views[a][n], views[b][n], others, tau
            alpha = len(others) if loss == "infonce" else 0
            expected.append(gradient_norm(*pair, alpha=alpha, w=w_N[n]))
    assert norms.tolist() == [pytest.approx(expected, rel=1e-9)]


@pytest.mark.parametrize(
    "name",
    ["moco-infonce-none-two-num_negatives=6-symmetric=True", "moco-eqco-barlow-two"],
)
def test_queries_of_moco_against_its_queue(name):
    """The loss alone: a regularizer beside it does not count."""
    config = CASES[name]
    objective, prepared, norms = one_step(config)
    rows, expected = objective.queue.rows_KD, []
    alpha = config["alpha"] if config["loss"] == "eqco" else len(rows)
    for a, b in ((0, 1), (1, 0))[: 2 if config["symmetric"] else 1]:
        for q, k in zip(prepared["unit"][a].detach(), prepared["keys"][b], strict=True):
            expected.append(gradient_norm(q, k, rows, float(config["tau"]), alpha=float(alpha)))
    assert norms.tolist() == [pytest.approx(expected, rel=1e-9)]
    assert norms.max() <= 2 / config["tau"], "Theorem 2"


@pytest.mark.parametrize(
    ("name", "are_there"),
    [
        ("simclr-align_uniform-barlow-core", None),
        ("byol-cosine-none-two", None),
        ("supervised-cross_entropy-dimcl-two", None),
        ("nnclr-infonce-none-core", 0),
    ],
)
def test_who_has_none(name, are_there):
    """Nothing is contrasted at a temperature, or the query, a neighbour, carries no gradient."""
    *_, norms = one_step(CASES[name])
    assert (None if norms is None else norms.numel()) == are_there
