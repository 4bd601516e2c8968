"""Whether a device computes what it should: each check gives rows with `ok`, a figure and its
limit. `ok` is None where a device has nothing to check, and `what` then says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from _work import config_of, random_images
from torch import Tensor
from torch.nn.functional import normalize

from clsweep.objective.build import build_objective
from clsweep.objective.framework import Embeddings
from clsweep.objective.losses import dcl, infonce
from clsweep.train.images import batches
from clsweep.train.knn import knn_scores
from clsweep.train.loop import accumulate_gradient
from clsweep.train.state import new_state, seeded

Row = dict[str, Any]
LOSSES = {"infonce": infonce, "dcl": dcl}
TAU = 0.2
CPU = torch.device("cpu")
NARROW = {"proj_hidden": 512, "proj_dim": 512}
# Of each framework one at least; between them every loss, regularizer and kind of views, and drawn
# negatives.
OBJECTIVES: dict[str, Row] = {
    "simclr, infonce": {},
    "simclr, dcl": {"loss": "dcl"},
    "simclr, dclw, abscl, ecpp": {"loss": "dclw", "regularizer": "abscl", "views": "ecpp"},
    "simclr, eqco of drawn negatives": {"loss": "eqco", "num_negatives": 7},
    "simclr, align_uniform": {"loss": "align_uniform"},
    "simclr, sigmoid": {"loss": "sigmoid"},
    "supcon, supcon": {"framework": "supcon"},
    "moco, infonce": {"framework": "moco", "num_negatives": 48},
    "moco, dcl, dimcl, core": {"framework": "moco", "loss": "dcl", "regularizer": "dimcl",
                               "views": "core", "num_negatives": 48},
    "moco_v3, infonce": {"framework": "moco_v3"},
    "simo, eqco of drawn negatives": {"framework": "simo", "loss": "eqco", "num_negatives": 7},
    "byol, cosine": {"framework": "byol"},
    "simsiam, cosine, multicrop": {"framework": "simsiam", "views": "multicrop"},
    "barlow_twins, barlow": {"framework": "barlow_twins", **NARROW},
    "vicreg, vicreg": {"framework": "vicreg", **NARROW},
    "wmse, wmse": {"framework": "wmse", "proj_dim": 12, "whitening_size": 32},
    "lejepa, mse, sigreg, all_pairs": {"framework": "lejepa", "regularizer": "sigreg",
                                       "views": "all_pairs"},
    "swav, multicrop": {"framework": "swav", "views": "multicrop"},
    "dino, multicrop": {"framework": "dino", "views": "multicrop", "num_prototypes": 1024},
    "nnclr, infonce, barlow": {"framework": "nnclr", "regularizer": "barlow"},
    "supervised, cross_entropy": {"framework": "supervised"},
    "supervised, decoupled_cross_entropy": {"framework": "supervised",
                                            "loss": "decoupled_cross_entropy"},
}  # fmt: skip


def losses_in_float64(device: torch.device, small: bool) -> Iterator[Row]:
    """Losses and gradients in float32 there, beside float64 on the CPU: of InfoNCE and DCL the
    definition, of every objective the same code.
    """
    yield from _losses_as_defined(device, small)
    for name, parts in OBJECTIVES.items():
        expected = _loss_of(parts, CPU, torch.float64)
        given = _loss_of(parts, device, torch.float32)
        error = max(_relative(a, b) for a, b in zip(given, expected, strict=True))
        yield _row(f"{name}: loss and gradient, relative error", error, 1e-4)


def _loss_of(parts: Row, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    """Loss of drawn embeddings, and their gradients."""
    config = config_of("conv4-16", 32, 32, "fp32", **parts)
    objective = seeded(build_objective, config).to(device, dtype).train()
    objective.begin_epoch(0, 0)
    draws = torch.Generator().manual_seed(1)
    labels_N = torch.arange(config["batch_size"], device=device) % config["num_classes"]
    shapes = _embedding_shapes(config)
    leaves: Embeddings = {
        kind: {
            view: torch.randn(shape, generator=draws, dtype=torch.float64).to(device, dtype)
            for view, shape in views.items()
        }
        for kind, views in shapes.items()
    }
    learned = [z for kind, views in leaves.items() if kind != "target" for z in views.values()]
    for z in learned:
        z.requires_grad_()
    prepared = objective.prepare(leaves, torch.Generator().manual_seed(2))
    value = objective.loss(prepared, labels_N).total
    gradients = torch.autograd.grad(value, learned, allow_unused=True)
    return [value.detach(), *(g for g in gradients if g is not None)]


def _embedding_shapes(config: Row) -> dict[str, dict[int, torch.Size]]:
    """Of what an objective's networks give, by kind and view."""
    images = random_images(config, CPU)
    views = next(batches(images, config, 0, torch.Generator())).chunks[0]()
    with torch.no_grad():
        embeddings = seeded(build_objective, config)(views)
    return {
        kind: {view: z.shape for view, z in views.items()} for kind, views in embeddings.items()
    }


def _losses_as_defined(device: torch.device, small: bool) -> Iterator[Row]:
    for num_samples in (64,) if small else (64, 512, 2048):
        generator = torch.Generator().manual_seed(num_samples)
        z1_ND, z2_ND = (
            normalize(torch.randn(num_samples, 128, generator=generator, dtype=torch.float64))
            for _ in range(2)
        )
        for name, loss in LOSSES.items():
            expected = _value_and_grad(lambda a, b, n=name: defined(a, b, n), z1_ND, z2_ND)
            given = (z.float().to(device) for z in (z1_ND, z2_ND))
            values = _value_and_grad(lambda a, b, of=loss: of(a, b, TAU), *given)
            error = max(_relative(a, b) for a, b in zip(values, expected, strict=True))
            yield _row(f"{name}, N {num_samples}, and its gradient: relative error", error, 1e-4)


def defined(z1_ND: Tensor, z2_ND: Tensor, loss: str) -> Tensor:
    """DCL Eq. 1-2 and 6 as they are written, over the matrix of all pairs of views."""
    z = torch.cat([z1_ND, z2_ND])
    num_samples, similarity = len(z1_ND), z @ z.T / TAU
    own = torch.arange(2 * num_samples)
    positive = similarity[own, (own + num_samples) % (2 * num_samples)]
    left_out = torch.eye(num_samples, dtype=torch.bool).repeat(2, 2)  # both views of the anchor
    negatives = similarity.masked_fill(left_out, float("-inf")).logsumexp(1)
    if loss == "infonce":
        negatives = torch.logaddexp(negatives, positive)
    return (negatives - positive).mean()


def agrees_with_the_cpu(device: torch.device, small: bool) -> Iterator[Row]:
    """Views, and a step of every objective, as on a CPU in float32; then kNN scores."""
    for name, parts in OBJECTIVES.items():
        config = config_of("conv4-16", 32, 32, "fp32", **parts)
        cpu, there = (_first_step(config, where) for where in (CPU, device))
        views = max(_largest(a, b) for a, b in zip(there[0], cpu[0], strict=True))
        yield _row(f"{name}: views of the same draws, largest difference", views, 2e-3)
        loss, gradient = (_relative(a, b) for a, b in zip(there[1:], cpu[1:], strict=True))
        yield _row(f"{name}: loss of a step, relative difference", loss, 1e-3)
        yield _row(f"{name}: gradient of a step, relative difference", gradient, 3e-2)
    yield from _scores_agree(device, 500 if small else 5000)


def _scores_agree(device: torch.device, size: int) -> Iterator[Row]:
    generator = torch.Generator().manual_seed(0)
    features_ND, labels_N = torch.randn(size, 64, generator=generator), torch.arange(size) % 10
    features_ND = features_ND + torch.nn.functional.one_hot(labels_N, 64)
    half = size // 2
    parts = features_ND[:half], labels_N[:half], features_ND[half:], labels_N[half:]
    cpu, there = (
        knn_scores(*(part.to(where) for part in parts), num_classes=10, knn_k=50)["knn_top1"]
        .cpu().double().mean()
        for where in (CPU, device)
    )  # fmt: skip
    yield _row("kNN score: points of difference", abs(float(100 * (cpu - there))), 0.1)


def half_agrees(device: torch.device, small: bool) -> Iterator[Row]:
    """A step in bf16, and on a GPU in fp16, beside the same step in fp32."""
    names = ("bf16", "fp16") if device.type == "cuda" else ("bf16",)
    for encoder in ("conv4-16",) if small else ("conv4-16", "resnet18"):
        full = _first_step(config_of(encoder, 32, 64, "fp32"), device)
        for name in names:
            half = _first_step(config_of(encoder, 32, 64, name), device)
            loss = _relative(half[1], full[1])
            yield _row(f"{encoder}: loss in {name}, relative difference", loss, 0.03)
            # a loss scaler changes the length of the gradient, and not its direction
            angle = 1 - float(torch.cosine_similarity(half[2].flatten(), full[2].flatten(), dim=0))
            yield _row(f"{encoder}: gradient in {name}, 1 - cosine", angle, 0.15)
    if "fp16" not in names:
        yield {"what": "fp16: needs a GPU", "ok": None, "figure": None, "limit": None}


def _first_step(config: Row, device: torch.device) -> tuple[list[Tensor], Tensor, Tensor]:
    """Views, loss and gradient of the first batch; on the CPU."""
    state, images = new_state(config, device), random_images(config, device)
    state.begin_epoch()
    batch = next(batches(images, config, 0, state.view_generator))
    views = [view.detach().float().cpu() for view in batch.chunks[0]()]
    state.objective.train()
    _, losses = accumulate_gradient(state, state.objective, batch)
    grads = [p.grad.flatten() for p in state.objective.parameters() if p.grad is not None]
    return views, losses.total.detach().cpu(), torch.cat(grads).cpu()


def _value_and_grad(loss: Callable[..., Tensor], *z: Tensor) -> list[Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in z]
    value = loss(*leaves)
    return [value.detach(), *torch.autograd.grad(value, leaves)]


def _relative(given: Tensor, expected: Tensor) -> float:
    """Norm of the difference as a share of the expected norm."""
    given, expected = given.detach().double().cpu(), expected.detach().double().cpu()
    return float((given - expected).norm() / expected.norm())


def _largest(given: Tensor, expected: Tensor) -> float:
    return float((given - expected).abs().max())


def _row(what: str, figure: float, limit: float) -> Row:
    return {"what": what, "ok": bool(figure <= limit), "figure": figure, "limit": limit}
