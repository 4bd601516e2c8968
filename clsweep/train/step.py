"""The loss of a global batch and its gradient: in one pass, or in chunks with the gradient of the
whole.

What is gathered of the workers and what a loss sees is always the whole batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Generator, Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from clsweep.objective.contrast import wide
from clsweep.objective.framework import Embeddings, Framework, Losses
from clsweep.train.collectives import gather, rank, world_size
from clsweep.train.images import Batch, Chunks
from clsweep.train.precision import Precision


def accumulate_gradient(
    model: nn.Module,
    batch: Batch,
    *,
    precision: Precision,
    generator: Generator,
    scaler: torch.amp.GradScaler,
) -> tuple[Embeddings, Losses]:
    """Add the gradient of a batch's loss to the parameters' `grad`; returns what the loss was made
    of, and its parts.

    A batch of several chunks takes two passes (gradient caching: Gao et al. 2021, GradCache): the
    first, without graphs, collects all embeddings; the loss is taken of them and gives each its
    gradient; the second makes the graph of one chunk at a time, for its embeddings' gradients to
    pass through. So the memory is that of a chunk, and every sample has the whole batch to be
    compared with. Batch norm sees one chunk at a time: the gradient is exactly that of a batch in
    one pass whose batch norms take the statistics of each chunk apart.

    Args:
        model: the objective, or what distributes it.
        generator: for negatives that are drawn.
        scaler: scales the loss, hence the gradient.
    """
    objective = cast(Framework, getattr(model, "module", model))
    is_whole = len(batch.chunks) == 1
    if is_whole:
        embeddings = gather_all(_embed(model, batch.chunks[0], precision))
    else:
        embeddings = _collect(objective, batch.chunks, precision)
    prepared = objective.prepare(embeddings, generator)
    losses = objective.loss(prepared, batch.labels_N)
    scaler.scale(losses.total).backward()
    if not is_whole:
        _pass_on(model, batch.chunks, precision, embeddings)
    return prepared, losses


def gather_all(embeddings: Embeddings) -> Embeddings:
    """The embeddings of the global batch, in one message."""
    if world_size() == 1:
        return embeddings
    mine = [(kind, view, z) for kind, views in embeddings.items() for view, z in views.items()]
    packed = gather(torch.cat([z for _, _, z in mine], dim=1))
    gathered: Embeddings = {kind: {} for kind in embeddings}
    parts = packed.split([z.shape[1] for _, _, z in mine], dim=1)
    for (kind, view, z), part in zip(mine, parts, strict=True):
        # the targets of momentum encoders came without a graph
        gathered[kind][view] = part if z.requires_grad else part.detach()
    return gathered


def _embed(
    model: nn.Module, make_views: Callable[[], list[Tensor]], precision: Precision
) -> Embeddings:
    """This worker's embeddings of its views; half types end here."""
    with precision.autocast():
        embeddings: Embeddings = model(make_views())
    return {
        kind: {view: wide(z) for view, z in views.items()} for kind, views in embeddings.items()
    }


def _collect(objective: nn.Module, chunks: Chunks, precision: Precision) -> Embeddings:
    """The first pass: the embeddings of all chunks, as leaves that take a gradient."""
    with torch.no_grad(), frozen_statistics(objective):
        parts = [gather_all(_embed(objective, chunk, precision)) for chunk in chunks]
    return {
        kind: {
            view: torch.cat([part[kind][view] for part in parts]).requires_grad_() for view in views
        }
        for kind, views in parts[0].items()
    }


def _pass_on(model: Any, chunks: Chunks, precision: Precision, leaves: Embeddings) -> None:
    """The second pass: the leaves' gradients, chunk by chunk, to the parameters."""
    for number, chunk in enumerate(chunks):
        is_last = number == len(chunks) - 1
        with contextlib.nullcontext() if world_size() == 1 or is_last else model.no_sync():
            embeddings = _embed(model, chunk, precision)
            outputs, grads = [], []
            for kind, views in embeddings.items():
                for view, z_ND in views.items():
                    grad = leaves[kind][view].grad
                    if z_ND.requires_grad and grad is not None:  # not the targets'
                        first = (number * world_size() + rank()) * len(z_ND)
                        outputs.append(z_ND)
                        # every worker has the whole loss: what they average is to be its gradient
                        grads.append(grad[first : first + len(z_ND)] * world_size())
            torch.autograd.backward(outputs, grads)


@contextlib.contextmanager
def frozen_statistics(module: nn.Module) -> Iterator[None]:
    """Batch norms take the statistics of their batch, as in training, but leave the running ones
    alone.
    """
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
