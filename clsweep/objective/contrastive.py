"""The core of the contrastive losses: positive logits, the log-sum-exp of the negatives, and their
fused gradient.

Shapes, forms and the letters p and n are those of `losses.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._guards import active_fake_mode

# Similarities that are held at a time. On a CPU, by measurement: fewer make thin products, more
# leave its cache.
BLOCK_ELEMENTS = {"cpu": 2**20, "cuda": 2**24}
MakeT = TypeVar("MakeT", bound=Callable[..., Any])


def of_all_steps(make: MakeT) -> MakeT:
    """A function that keeps the tensors it has made last, for the next steps to take.

    Tensors without values, of a step that is only counted, are not kept: what a real tensor does
    with them changes nothing, without a word. Those made in inference serve training too.
    """
    cached = lru_cache(maxsize=8)(torch.inference_mode(False)(make))

    def made(*args: Any) -> Any:
        return make(*args) if active_fake_mode() else cached(*args)

    return cast(MakeT, made)


class Negatives(NamedTuple):
    """The negatives of the queries, as `infonce` says; in the batch form rows is None."""

    rows: Tensor | None
    index_NK: Tensor | None
    skip_own: bool

    def count(self, num_queries: int) -> int:
        """K, the negatives of one query."""
        if self.rows is None:
            return 2 * (num_queries - 1)
        if self.index_NK is not None:
            return self.index_NK.shape[1]
        num_rows = self.rows.shape[-2]
        return num_rows - num_rows // num_queries if self.skip_own else num_rows


def mean_loss(p: Tensor, n: Tensor, *, coupled: bool) -> Tensor:
    """The one term between InfoNCE, log(1 + exp(n - p)) = -log sigmoid(p - n), and DCL, n - p."""
    return (-F.logsigmoid(p - n) if coupled else n - p).mean()


def pair_loss(
    z1_ND: Tensor, z2_ND: Tensor, tau: float, negatives: Negatives, *, coupled: bool
) -> Tensor:
    if negatives.rows is None:
        check_positive(tau=tau)
        check_pair(z1_ND, z2_ND, negatives)
        return batch_loss(z1_ND, z2_ND, tau, coupled=coupled)
    return mean_loss(*query_terms(z1_ND, z2_ND, tau, negatives), coupled=coupled)


def batch_loss(
    z1_ND: Tensor, z2_ND: Tensor, tau: float, *, coupled: bool, absolute: bool = False
) -> Tensor:
    if torch.is_grad_enabled() and (z1_ND.requires_grad or z2_ND.requires_grad):
        loss: Tensor = _BatchLoss.apply(z1_ND, z2_ND, tau, coupled, absolute)
        return loss
    p_2N, n_2N, _ = batch_terms(z1_ND, z2_ND, tau, absolute=absolute)
    return mean_loss(p_2N, n_2N, coupled=coupled)


class _BatchLoss(torch.autograd.Function):
    """The mean loss of the 2N anchors; forward makes its gradient, from the similarities."""

    @staticmethod
    def forward(
        ctx: Any, z1_ND: Tensor, z2_ND: Tensor, tau: float, coupled: bool, absolute: bool
    ) -> Tensor:
        ctx.dtypes = z1_ND.dtype, z2_ND.dtype
        p_2N, n_2N, grad = batch_terms(z1_ND, z2_ND, tau, absolute=absolute, grad_coupled=coupled)
        ctx.save_for_backward(grad)
        return mean_loss(p_2N, n_2N, coupled=coupled)

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        # create_graph=True: it would count as a constant, without a word
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the gradient of this loss is made in forward and has no gradient of its own"
            )
        (grad_2ND,) = ctx.saved_tensors
        grads = (grad_2ND * grad_loss).chunk(2)
        return *(g.to(dtype) for g, dtype in zip(grads, ctx.dtypes, strict=True)), None, None, None


def batch_terms(
    z1_ND: Tensor,
    z2_ND: Tensor,
    tau: float,
    *,
    absolute: bool = False,
    grad_coupled: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """p and n of the 2N anchors and, if `grad_coupled` is a bool, the mean loss's gradient (2N, D)
    by Proposition 1.

    The 2N x 2N similarities are made one block of rows at a time, in one buffer, and changed in
    place. `absolute`: negatives count by |s|.
    """
    z = wide(torch.cat([z1_ND.detach(), z2_ND.detach()]))
    num_anchors, num_samples = len(z), len(z1_ND)
    # the anchor and its positive: no negatives
    same_sample = _same_sample(num_samples, z.device)
    p = (z[:num_samples] * z[num_samples:]).expand(2, -1, -1).sum(2).div_(tau).flatten()
    n = torch.empty_like(p)
    q_b = torch.empty_like(p) if grad_coupled else torch.ones_like(p)
    grad = None if grad_coupled is None else torch.zeros_like(z)
    num_rows = _rows_at_once(num_samples, z.device)
    buffer = z.new_empty(num_rows, num_anchors)
    with no_autocast(z):
        for start in range(0, num_anchors, num_rows):
            rows = slice(start, start + num_rows)
            block = buffer[: len(p[rows])].addmm_(z[rows], z.T, beta=0, alpha=1 / tau)
            if absolute:
                sign = block.sign()
                block.abs_()
            block.scatter_(1, same_sample[rows], -torch.inf)
            largest = block.amax(1, keepdim=True)
            # U / exp(largest); the block now holds U's terms
            u = block.sub_(largest).exp_().sum(1, keepdim=True)
            torch.add(largest, u.log(), out=n[rows, None])
            if grad is None:
                continue
            # Proposition 1: all forces of an anchor carry q_B; DCL's, Proposition 2, carry 1 in its
            # place.
            if grad_coupled:
                torch.sigmoid(n[rows] - p[rows], out=q_b[rows])
            share = q_b[rows, None] / (tau * num_anchors) / u
            if absolute:
                block.mul_(sign)
            grad[rows].addcmul_(block @ z, share)  # from its negatives on the anchor
            grad.addmm_(block.T, z[rows] * share)  # from the anchor on its negatives
    if grad is not None:
        # Between a sample's two views: each pulls as an anchor and is pulled as a positive.
        (first, second), (z1, z2), (q1, q2) = grad.chunk(2), z.chunk(2), q_b.chunk(2)
        force = (q1 + q2)[:, None] / (tau * num_anchors)
        first.addcmul_(force, z2, value=-1)
        second.addcmul_(force, z1, value=-1)
    return p, n, grad


def _rows_at_once(num_samples: int, device: torch.device) -> int:
    """Anchors whose similarities are held at a time: on a GPU all of them, if they may be, as every
    block costs some twenty launches.
    """
    is_cpu = device.type == "cpu"
    most = BLOCK_ELEMENTS["cpu" if is_cpu else "cuda"] // (2 * num_samples)
    return max(1, min(num_samples if is_cpu else 2 * num_samples, most))


@of_all_steps
def _same_sample(num_samples: int, device: torch.device) -> Tensor:
    """Of each of the 2N anchors, its own row and its positive's, int64 (2N, 2)."""
    anchors = torch.arange(2 * num_samples, device=device)
    return torch.stack([anchors, anchors.roll(num_samples)], dim=1)


def query_terms(
    z1_ND: Tensor, z2_ND: Tensor, tau: float, negatives: Negatives
) -> tuple[Tensor, Tensor]:
    """p and n of the N queries."""
    check_positive(tau=tau)
    if negatives.rows is None:
        raise ValueError("negatives: expected (K, D), (N, K, D) or shared ones, given none")
    check_pair(z1_ND, z2_ND, negatives)
    queries_ND = wide(z1_ND) / tau
    p_N = (queries_ND * wide(z2_ND)).sum(1)
    with no_autocast(queries_ND):
        return p_N, torch.logsumexp(products(queries_ND, negatives), dim=1)


def products(queries_ND: Tensor, negatives: Negatives) -> Tensor:
    """Inner products (N, K) of each query with its negatives; own views, if skipped, are -inf."""
    assert negatives.rows is not None
    rows = wide(negatives.rows)
    if rows.ndim == 3:
        return (rows @ queries_ND[:, :, None])[:, :, 0]
    products_NM = queries_ND @ rows.T
    if negatives.skip_own:
        num_queries = len(queries_ND)
        products_NM.view(num_queries, -1, num_queries).diagonal(dim1=0, dim2=2).fill_(-torch.inf)
        return products_NM
    # Gathered from the products: gathering rows would hold N x K x D numbers.
    return products_NM if negatives.index_NK is None else products_NM.gather(1, negatives.index_NK)


def wide(z: Tensor) -> Tensor:
    """Half types in float32: they are too coarse for 1/tau = 200."""
    return z.float() if z.dtype in (torch.bfloat16, torch.float16) else z


def no_autocast(z: Tensor) -> torch.autocast:
    return torch.autocast(z.device.type, enabled=False)


def shape_of(x: Tensor) -> tuple[int, ...]:
    return tuple(x.shape)


def check_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name}: expected a value > 0, given {value}")


def check_views(z1_ND: Tensor, z2_ND: Tensor, least: int = 1, lacking: str = "") -> None:
    if z1_ND.shape != z2_ND.shape or z1_ND.ndim != 2:
        raise ValueError(
            f"expected two views of one shape (N, D), given {shape_of(z1_ND)} and {shape_of(z2_ND)}"
        )
    if len(z1_ND) < least:
        why = f": a single one has no {lacking}" if lacking else ""
        raise ValueError(f"expected a batch of at least {least} samples, given {len(z1_ND)}{why}")


def check_pair(z1_ND: Tensor, z2_ND: Tensor, negatives: Negatives) -> None:
    """Views in batch form; queries, keys and negatives in query form."""
    rows, index_NK, skip_own = negatives
    if rows is None:
        if index_NK is not None or skip_own:
            given = "skip_own" if skip_own else "index_NK"
            raise ValueError(f"{given}: expected together with negatives, given alone")
        return check_views(z1_ND, z2_ND, 2, "negatives")
    check_views(z1_ND, z2_ND)
    (num_queries, dim), shape = z1_ND.shape, shape_of(rows)
    if shape[-1:] != (dim,) or shape[:-2] not in ((), (num_queries,)) or len(shape) < 2:
        expected = f"(K, {dim}) or ({num_queries}, K, {dim})"
        raise ValueError(f"negatives: expected {expected}, given {shape}")
    if shape[-2] < 1:
        why = "there is nothing to contrast with"
        raise ValueError(f"negatives: expected at least 1, given {shape}: {why}")
    if skip_own and num_queries < 2:
        why = "nothing is left beside its own views"
        raise ValueError(f"skip_own: expected at least 2 queries, given 1: {why}")
    if skip_own and (index_NK is not None or len(shape) == 3 or shape[0] % num_queries):
        expected = f"expected a multiple of {num_queries} shared negatives and no index_NK"
        raise ValueError(f"skip_own: {expected}, given {shape}")
    if index_NK is None:
        return None
    if len(shape) == 3:
        expected = f"shared ones (M, {dim}) beside index_NK"
        raise ValueError(f"negatives: expected {expected}, given {shape}")
    is_whole = index_NK.ndim == 2 and len(index_NK) == num_queries and index_NK.shape[1] > 0
    if not is_whole or index_NK.dtype != torch.int64:
        given = f"{index_NK.dtype} {shape_of(index_NK)}"
        raise ValueError(f"index_NK: expected int64 ({num_queries}, K) with K >= 1, given {given}")
    return None
