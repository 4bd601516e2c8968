"""What the pretended device refuses and writes down, each against what torch documents of a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.pretended.device import Log, MixedDevicesError, watched

HERE = "tests/pretended/test_device.py"

# Operations on x, (3, 4), on the device: the error of a GPU that refuses it, or what it does
# without a word.
OPERATIONS: dict[str, tuple[Callable[[torch.Tensor], Any], Any]] = {
    "add a matrix of the host": (lambda x: x + torch.ones(3, 4), MixedDevicesError),
    "add a number of the host": (lambda x: x + torch.tensor(2.0), {}),
    "write into a number of the host": (
        lambda x: torch.zeros(()).add_(x.sum()),
        MixedDevicesError,
    ),
    "multiply by a vector of the host": (lambda x: x @ torch.ones(4), MixedDevicesError),
    "join": (lambda x: torch.cat([x, torch.ones(3, 4)]), MixedDevicesError),
    "index the host": (lambda x: torch.ones(3)[x.long()[0]], MixedDevicesError),
    "draw with a generator of the host": (
        lambda x: x.normal_(generator=torch.Generator()),
        MixedDevicesError,
    ),
    "item": (lambda x: x.sum().item(), {"waits": "item"}),
    "truth": (lambda x: bool(x.any()), {"waits": "item"}),
    "tolist": (lambda x: x.tolist(), {"waits": "tolist"}),
    "to the host": (lambda x: x.cpu(), {"waits": "copy from the device"}),
    "to the host in its time": (lambda x: x.to("cpu", non_blocking=True), {}),
    "to the device": (lambda _: torch.ones(3).to("cuda"), {"waits": "copy to the device"}),
    "a list": (lambda _: torch.tensor([1, 2], device="cuda"), {"waits": "copy to the device"}),
    "pageable": (
        lambda _: torch.ones(3).to("cuda", non_blocking=True),
        {"pageable": "copy to the device"},
    ),
    "pinned": (lambda _: torch.ones(3).pin_memory().to("cuda", non_blocking=True), {}),
    "part of a pinned one": (lambda _: torch.ones(9).pin_memory()[4:].cuda(non_blocking=True), {}),
    "pinned, of another type": (
        lambda _: torch.ones(3).pin_memory().to("cuda", torch.float16, non_blocking=True),
        {"pageable": "copy to the device"},
    ),
    "into its place": (lambda x: x.copy_(torch.ones(3, 4)), {"waits": "copy to the device"}),
    "index by booleans": (lambda x: x[x > 0], {"waits": "index by booleans"}),
    "fill where true": (lambda x: x.masked_fill_(x > 0, 1.0), {}),
    "set where true": (lambda x: x.__setitem__(x > 0, 1.0), {}),
    "set rows where true": (
        lambda x: x.__setitem__(x[:, 0] > 0, x[0] + 1),
        {"waits": "index by booleans"},
    ),
    "index by the host": (lambda x: x[torch.tensor([0, 2])], {"waits": "index of the host"}),
    "nonzero": (lambda x: x.nonzero(), {"waits": "nonzero"}),
    "unique": (lambda x: x.unique(), {"waits": "unique"}),
    "factor": (
        lambda x: torch.linalg.cholesky(x @ x.T + torch.eye(3, device="cuda")),
        {"waits": "linalg"},
    ),
    "factor with a sign": (lambda x: torch.linalg.cholesky_ex(x @ x.T), {}),
    "synchronize": (lambda _: torch.cuda.synchronize(), {"waits": "synchronize"}),
    "event": (lambda _: _recorded().synchronize(), {"waits": "synchronize"}),
    "draw": (lambda x: x.normal_(), {"draws": "normal_"}),
    "draw a new one": (lambda _: torch.rand(3, device="cuda"), {"draws": "rand"}),
    "drop": (lambda x: torch.nn.functional.dropout(x, 0.5), {"draws": "native_dropout"}),
    "make one like one of the host": (
        lambda _: torch.zeros_like(torch.ones(3), device="cuda"),
        {},
    ),
    "drop nothing": (lambda x: torch.nn.functional.dropout(x, 0.5, training=False), {}),
    "as numpy": (lambda x: x.numpy(), TypeError),
    "another device": (lambda _: torch.ones(3, device="cuda:1"), RuntimeError),
    # torch's own checks, before any driver
    "a share of a device without a number": (
        lambda _: torch.cuda.set_per_process_memory_fraction(0.5, torch.device("cuda")),
        ValueError,
    ),
    "too large a share": (
        lambda _: torch.cuda.set_per_process_memory_fraction(1.5, 0),
        ValueError,
    ),
    "properties of another device": (
        lambda _: torch.cuda.get_device_properties(3),
        AssertionError,
    ),
}


def _recorded() -> torch.cuda.Event:
    event = torch.cuda.Event()
    event.record()
    return event


def log_of(name: str) -> Log:
    x = torch.eye(3, 4, device="cuda")
    with watched() as log:
        operation, _ = OPERATIONS[name]
        operation(x)
    return log


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_a_gpu_refuses_or_does_without_a_word(name, device):
    _, expected = OPERATIONS[name]
    if isinstance(expected, type):
        with pytest.raises(expected):
            device.call(log_of, name)
        return
    log = device.call(log_of, name)
    for kind in ("waits", "pageable", "draws"):
        noted = {(expected[kind], f"{HERE}:<lambda>")} if kind in expected else set()
        assert {*getattr(log, kind)} == noted


def a_network() -> tuple[list[torch.Tensor], Log, dict[str, Any]]:
    """Gradients of a network on the device and of the same one on the CPU."""
    conv, norm = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)
    network = torch.nn.Sequential(conv, norm, torch.nn.Flatten(), torch.nn.Linear(16, 1))
    weight, x = network[0].weight, torch.randn(5, 3, 4, 4)
    network(x).square().mean().backward()
    expected = [p.grad.clone() for p in network.parameters()]
    network.zero_grad()
    network.to("cuda")
    on_device = x.to("cuda")
    with watched(calls=True) as log:
        network(on_device).square().mean().backward()
    facts = {
        "parameters stay": network[0].weight is weight,
        "devices": {str(p.grad.device) for p in network.parameters()},
        "available": torch.cuda.is_available(),
    }
    return (
        [p.grad.cpu() - e for p, e in zip(network.parameters(), expected, strict=True)],
        log,
        facts,
    )


def test_a_network_goes_there_and_back_with_the_same_gradients(device):
    differences, log, facts = device.call(a_network)
    assert facts == {"parameters stay": True, "devices": {"cuda:0"}, "available": True}
    assert all(x.abs().max() < 1e-5 for x in differences)
    assert log.waits == Counter()
    names = [call.op for call in log.calls]
    assert names.count("convolution") == names.count("convolution_backward") == 1
    assert log.launches.total() == len(names)
    assert "clone" not in names, "gradients are taken as they are"


def launches_of_views() -> list[int]:
    x = torch.zeros(4, 6, device="cuda")
    made = []
    for look in (lambda: x.t()[1:].view(5, 4), lambda: torch.empty(3, device="cuda"), lambda: x + 1,
                 lambda: x.add_(1), lambda: torch._foreach_add([x, x], 1)):  # fmt: skip
        with watched() as log:
            look()
        made.append(log.num_launches)
    return made


def test_a_view_is_no_launch(device):
    assert device.call(launches_of_views) == [0, 0, 1, 1, 1]
