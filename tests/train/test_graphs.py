"""When the encoder runs as CUDA graphs, with a stand-in for the capture where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clsweep.train import graphs
from clsweep.train.graphs import graph_encoder, input_shapes
from clsweep.train.images import batches
from clsweep.train.precision import Precision
from clsweep.train.state import new_state
from tests.contracts.combinations import BATCH, CASES, some_digits

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = Precision("fp32", torch.device("cpu"))
SHAPE = torch.Size((6, 3, 8, 8))


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, 5),
    ).train()


def captured(
    monkeypatch: pytest.MonkeyPatch, forward: Callable[..., Tensor], seconds: list[float]
) -> None:
    """A capture that warms up, as the real one does, and puts `forward(eager, x)` before the
    module's own.
    """

    def capture(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        eager = module.forward
        for _ in range(3):
            eager(*args).sum().backward()
        module.forward = lambda x: forward(eager, x)

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", capture)
    monkeypatch.setattr(graphs, "_seconds", lambda *_: seconds.pop(0))


def kept(module: nn.Module) -> bool:
    return "forward" in module.__dict__


def untouched(module: nn.Module) -> bool:
    same = all(
        torch.equal(a, b)
        for a, b in zip(module.state_dict().values(), encoder().state_dict().values(), strict=True)
    )
    return same and all(p.grad is None for p in module.parameters())


@pytest.mark.parametrize(("graph_s", "expected"), [(0.5, True), (0.99, False), (1.2, False)])
def test_a_graph_is_kept_if_it_is_faster(
    monkeypatch: pytest.MonkeyPatch, graph_s: float, expected: bool
) -> None:
    captured(monkeypatch, lambda eager, x: eager(x), [1.0, graph_s])
    module = encoder()
    assert graph_encoder(module, [SHAPE], CPU) is kept(module) is expected
    assert untouched(module), "neither weights nor statistics nor gradients of the trial"


def fail(*_: Any) -> Tensor:
    raise RuntimeError("operation not permitted when stream is capturing")


@pytest.mark.parametrize(
    "forward",
    [lambda eager, x: eager(x) + 0.1, lambda eager, x: eager(x).detach() + eager(x) * 0, fail],
)
def test_a_graph_that_computes_something_else_is_dropped(
    monkeypatch: pytest.MonkeyPatch, forward: Any
) -> None:
    captured(monkeypatch, forward, [1.0, 0.1])
    module = encoder()
    assert not graph_encoder(module, [SHAPE], CPU)
    assert not kept(module)
    assert untouched(module)


def test_views_of_two_sizes_are_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", fail)
    assert not graph_encoder(encoder(), [SHAPE, torch.Size((6, 3, 6, 6))], CPU)


def test_input_shapes_are_those_of_a_step_and_leave_no_trace() -> None:
    config = CASES["simclr-dcl-none-ecpp"]
    state = new_state(config, torch.device("cpu"))
    before = {name: x.clone() for name, x in state.objective.state_dict().items()}
    batch = next(batches(some_digits(BATCH), config, 0, torch.Generator()))
    shapes = input_shapes(state.objective.train(), state.objective.encoder, batch.chunks[0](), CPU)
    assert shapes == [(2 * BATCH, 3, 8, 8), (2 * BATCH, 3, 6, 6)]
    assert all(torch.equal(before[name], x) for name, x in state.objective.state_dict().items())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_a_real_graph_trains_as_the_eager_encoder(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is forced to be kept, over some steps of SGD."""
    device = torch.device("cuda")
    monkeypatch.setattr(graphs, "WORTHWHILE", float("inf"))
    precision, x = Precision(name, device), torch.randn(SHAPE, device=device)
    weights = []
    for is_graphed in (False, True):
        module = encoder().to(device)
        if is_graphed:
            assert graph_encoder(module, [SHAPE], precision)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            with precision.autocast():
                features = module(x)
            features.float().square().mean().backward()
            optimizer.step()
        weights.append([p.detach() for p in module.parameters()])
    for a, b in zip(*weights, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3 if name == "fp32" else 1e-2)
