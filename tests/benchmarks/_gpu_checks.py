"""Whether a device computes what it should: each check gives rows with `ok`, a figure and its
limit. `ok` is None where a device has nothing to check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from _work import config_of, random_images
from torch import Tensor
from torch.nn.functional import normalize

from clsweep.objective.losses import dcl, infonce
from clsweep.train.evaluate import knn_scores
from clsweep.train.images import batches, made_at_once
from clsweep.train.loop import accumulate_gradient
from clsweep.train.state import TrialState, new_state

Row = dict[str, Any]
LOSSES = {"infonce": infonce, "dcl": dcl}
TAU = 0.2


def losses_in_float64(device: torch.device, small: bool) -> Iterator[Row]:
    """Losses and gradients in float32 there, beside the definition in float64 on the CPU."""
    for num_samples in (64,) if small else (64, 512, 2048):
        generator = torch.Generator().manual_seed(num_samples)
        z1_ND, z2_ND = (
            normalize(torch.randn(num_samples, 128, generator=generator, dtype=torch.float64))
            for _ in range(2)
        )
        for name, loss in LOSSES.items():
            expected = _value_and_grad(lambda a, b, n=name: defined(a, b, n), z1_ND, z2_ND)
            given = (z.float().to(device) for z in (z1_ND, z2_ND))
            found = _value_and_grad(lambda a, b, of=loss: of(a, b, TAU), *given)
            error = max(_relative(a, b) for a, b in zip(found, expected, strict=True))
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
    """The same views, gradient of a step and kNN scores as on a CPU, in float32."""
    config = config_of("conv4-16", 32, 32, "fp32")
    cpu, there = (_first_step(config, where) for where in (torch.device("cpu"), device))
    yield _row("views of the same draws: largest difference", _largest(there[0], cpu[0]), 2e-3)
    yield _row("loss of a step: relative difference", _relative(there[1], cpu[1]), 1e-4)
    yield _row("gradient of a step: relative difference", _relative(there[2], cpu[2]), 1e-2)
    generator = torch.Generator().manual_seed(0)
    size = 500 if small else 5000
    features_ND, labels_N = torch.randn(size, 64, generator=generator), torch.arange(size) % 10
    features_ND = features_ND + torch.nn.functional.one_hot(labels_N, 64)
    half = size // 2
    scores = [
        knn_scores(
            features_ND[:half].to(where),
            labels_N[:half].to(where),
            features_ND[half:].to(where),
            labels_N[half:].to(where),
            num_classes=10,
            knn_k=50,
        )["knn_top1"]
        .double()
        .mean()
        * 100
        for where in (torch.device("cpu"), device)
    ]
    yield _row("kNN score: points of difference", abs(float(scores[0] - scores[1])), 0.1)


def half_agrees(device: torch.device, small: bool) -> Iterator[Row]:
    """A step in bf16 beside the same step in fp32."""
    for encoder in ("conv4-16",) if small else ("conv4-16", "resnet18"):
        full, half = (
            _first_step(config_of(encoder, 32, 64, name), device) for name in ("fp32", "bf16")
        )
        yield _row(
            f"{encoder}: loss in bf16, relative difference", _relative(half[1], full[1]), 0.03
        )
        angle = 1 - float(torch.cosine_similarity(half[2].flatten(), full[2].flatten(), dim=0))
        yield _row(f"{encoder}: gradient in bf16, 1 - cosine", angle, 0.15)


def never_waits(device: torch.device, _small: bool) -> Iterator[Row]:
    """No step waits for the GPU: torch raises where one does."""
    if device.type != "cuda":
        what = "no synchronisation to be seen on this device"
        yield {"what": what, "ok": None, "figure": None, "limit": None}
        return
    for framework, loss in (("simclr", "infonce"), ("moco", "dcl"), ("barlow_twins", "barlow")):
        # views are made for many batches at once: enough of them that a step makes some
        objective = {"framework": framework, "loss": loss}
        config = config_of("conv4-16", 32, 32, "bf16", **objective)
        rows = 2 * made_at_once(random_images(config, device), config)
        config = config_of("conv4-16", 32, 32, "bf16", num_train=rows, **objective)
        state, images = new_state(config, device), random_images(config, device)
        running = batches(images, config, 0, state.view_generator)
        _step(state, next(running))
        torch.cuda.set_sync_debug_mode("error")
        try:
            for batch in running:
                _step(state, batch)
            waits = ""
        except RuntimeError as error:
            waits = f": {str(error).splitlines()[0]}"
        finally:
            torch.cuda.set_sync_debug_mode("default")
        yield _row(f"{framework}, {loss}: steps that wait{waits}", float(bool(waits)), 0.5)


CHECKS: dict[str, Callable[[torch.device, bool], Iterator[Row]]] = {
    "losses beside float64": losses_in_float64,
    "device beside CPU": agrees_with_the_cpu,
    "bf16 beside fp32": half_agrees,
    "no waiting in a step": never_waits,
}


def _first_step(config: Row, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Views, loss and gradient of the first batch; on the CPU."""
    state, images = new_state(config, device), random_images(config, device)
    batch = next(batches(images, config, 0, state.view_generator))
    views = torch.cat(batch.chunks[0]())
    state.objective.train()
    _, losses = accumulate_gradient(state, state.objective, batch)
    grads = [p.grad.flatten() for p in state.objective.parameters() if p.grad is not None]
    return views.detach().float().cpu(), losses.total.detach().cpu(), torch.cat(grads).cpu()


def _step(state: TrialState, batch: Any) -> None:
    state.objective.train()
    state.optimizer.zero_grad(set_to_none=True)
    prepared, _ = accumulate_gradient(state, state.objective, batch)
    state.optimizer.step()
    state.objective.after_step(prepared, 0.5, state.draw_generator)


def _value_and_grad(loss: Callable[..., Tensor], *z: Tensor) -> list[Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in z]
    value = loss(*leaves)
    return [value.detach(), *torch.autograd.grad(value, leaves)]


def _relative(found: Tensor, expected: Tensor) -> float:
    """Norm of the difference as a share of the expected norm."""
    found, expected = found.detach().double().cpu(), expected.detach().double().cpu()
    return float((found - expected).norm() / expected.norm())


def _largest(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max())


def _row(what: str, figure: float, limit: float) -> Row:
    return {"what": what, "ok": bool(figure <= limit), "figure": figure, "limit": limit}
