"""The gradient of a batch in chunks is that of the batch in one pass, and takes the memory of a
chunk.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from clsweep.errors import RequestError
from clsweep.train.contracts import in_one_graph
from clsweep.train.images import Batch, batches
from clsweep.train.loop import accumulate_gradient, train_epoch
from clsweep.train.state import Precision, TrialState, new_state
from tests.contracts.combinations import (
    BATCH,
    CASES,
    REPRESENTATIVES,
    Config,
    small_config,
    some_digits,
)

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
CHUNK = 4


def first_batch(config: Config, dtype: torch.dtype) -> Batch:
    batch = next(batches(some_digits(BATCH), config, 0, torch.Generator().manual_seed(2)))
    return Batch(
        batch.labels_N, [lambda make=make: [x.to(dtype) for x in make()] for make in batch.chunks]
    )


def accumulated(
    config: Config, *, accumulate: Any = accumulate_gradient, train: bool = True
) -> dict[str, Tensor]:
    """Gradients, and buffers after the step, of one batch, in float64."""
    state = new_state(config, CPU)
    objective = state.objective.double().train(train)
    _, losses = accumulate(state, objective, first_batch(config, torch.float64))
    actual = {name: p.grad for name, p in objective.named_parameters() if p.grad is not None}
    return actual | dict(objective.named_buffers()) | {"loss": losses.total.detach()}


def step(state: TrialState, batch: Batch) -> Any:
    return accumulate_gradient(state, state.objective, batch)


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor], atol: float) -> None:
    assert actual.keys() == expected.keys()
    for key, x in expected.items():
        torch.testing.assert_close(
            actual[key], x, rtol=1e-9, atol=atol, msg=lambda m, k=key: f"{k}: {m}"
        )


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_chunks_have_the_gradient_of_one_graph_of_them_all(name):
    config = CASES[name] | {"chunk_size": CHUNK}
    assert_same(accumulated(config), accumulated(config, accumulate=in_one_graph), 1e-9)


@pytest.mark.parametrize("name", [n for n in REPRESENTATIVES if n.startswith(("simclr", "moco"))])
def test_without_batch_statistics_the_gradient_is_that_of_the_whole_batch(name):
    config = CASES[name]
    chunked = accumulated(config | {"chunk_size": CHUNK}, train=False)
    assert_same(chunked, accumulated(config, train=False), 1e-8)


def test_a_scaled_loss_scales_the_gradient_of_chunks():
    """fp16's scaler, whose scale a GPU would choose."""
    config = CASES["byol-cosine-dimcl-all_pairs"] | {"chunk_size": CHUNK}
    plain, scaled = new_state(config, CPU), new_state(config, CPU)
    scaled.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for state in (plain, scaled):
        step(state, first_batch(config, torch.float32))
    for p, q in zip(plain.objective.parameters(), scaled.objective.parameters(), strict=True):
        if p.grad is not None:
            torch.testing.assert_close(q.grad, 1024 * p.grad, rtol=1e-4, atol=1e-3)


def test_a_scaled_gradient_is_clipped_as_it_is_after_the_scale_is_out():
    """fp16's scaler again. A clip of the scaled gradient would be shorter, a thousand times."""
    config = CASES["simclr-dcl-none-two"] | {"sgd_momentum": 0.0}
    moved = []
    for clip, scale in ((0.05, None), (0.05, 1024.0), (0.0, None)):
        state = new_state(config | {"grad_clip": clip}, CPU)
        before = [p.detach().clone() for p in state.objective.parameters()]
        state.scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=bool(scale))
        train_epoch(state, state.objective, some_digits(BATCH), config)
        after = [p.detach() for p in state.objective.parameters()]
        moved.append(torch.cat([(q - p).flatten() for p, q in zip(before, after, strict=True)]))
    torch.testing.assert_close(moved[1], moved[0], rtol=1e-4, atol=1e-7)
    assert moved[0].norm() < 0.9 * moved[2].norm()


def test_half_types_end_at_the_embeddings():
    config = CASES["byol-cosine-dimcl-all_pairs"] | {"precision": "bf16"}
    state = new_state(config, CPU)
    seen: list[torch.dtype] = []
    state.objective.encoder.register_forward_hook(lambda _, __, out: seen.append(out.dtype))
    prepared, failures = step(state, first_batch(config, torch.float32))
    assert set(seen) == {torch.bfloat16}, "the networks ran in it"
    assert {x.dtype for views in prepared.values() for x in views.values()} == {torch.float32}
    assert failures.total.dtype == torch.float32
    assert {p.grad.dtype for p in state.objective.parameters() if p.grad is not None} == {
        torch.float32
    }


@pytest.mark.parametrize("has_it", [False, True])  # the GPU's bf16
@pytest.mark.parametrize(
    ("device", "wanted", "refused"),
    [
        ("cpu", "fp32", ""),
        ("cpu", "bf16", ""),
        ("cpu", "fp16", "fp16 needs a GPU"),
        ("cpu", "auto", "given 'auto': auto is decided by the study's plan"),
        ("cuda", "fp32", ""),
        ("cuda", "fp16", ""),
        ("cuda", "bf16", "no bf16 arithmetic. Expected: fp16 or fp32, as in --set base.precision="),
        ("cuda", "auto", "given 'auto': auto is decided by the study's plan"),
    ],
)
def test_a_device_trains_in_what_was_planned_or_not_at_all(
    device, wanted, refused, has_it, monkeypatch
):
    """Otherwise the same plan would have other numbers on another machine."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_it)
    if refused and not ("bf16" in refused and has_it):
        with pytest.raises((RequestError, ValueError), match=refused):
            Precision.on(torch.device(device), wanted)
    else:
        assert Precision.on(torch.device(device), wanted).name == wanted


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_bf16_on_a_cpu_refuses_the_convolution_whose_gradient_torch_leaves_unset(precision):
    """ResNet-18 with ImageNet's stem has one pixel of an 8 x 8 image left for its last stages."""
    parts = {"framework": "simclr", "loss": "dcl", "regularizer": "none", "views": "two"}
    given = {"encoder": "resnet18", "stem": "standard", "precision": precision}
    config = small_config(parts, **given)
    state, batch = new_state(config, CPU), first_batch(config, torch.float32)
    if precision == "fp32":
        step(state, batch)
        return
    with pytest.raises(RequestError, match=r"bf16 on a CPU has no gradient .* over 1 x 1"):
        step(state, batch)
