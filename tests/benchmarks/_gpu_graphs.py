"""What a CUDA graph of a step would gain: the same work without a launch of each operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from _machine import is_gpu, milliseconds
from _speed import precision_on
from _work import config_of, random_images

from clsweep.objective.contrastive import wide
from clsweep.train.images import batches
from clsweep.train.state import new_state

Row = dict[str, Any]
CASES = tuple(("resnet18", 32, batch) for batch in (32, 64, 128, 256))
SMALL_CASES = (("conv4-16", 32, 32),)
WARM_UP = 3  # steps before the capture, on a stream of their own, as torch asks


def graphs(device: torch.device, small: bool) -> Iterator[Row]:
    """Milliseconds of networks, loss, backward and optimiser on views that stay: as they are
    launched, and as a graph.
    """
    for encoder, size, batch in SMALL_CASES if small else CASES:
        step, begin = step_of(config_of(encoder, size, batch, precision_on(device)), device)
        budget_s = 0.1 if small else 1.0
        eager = milliseconds(step, device, budget_s=budget_s)
        row: Row = {"encoder": encoder, "size": size, "batch": batch, "eager ms": eager}
        try:
            replay = captured(step, begin, device)
            graph = milliseconds(replay, device, budget_s=budget_s)
            row |= {"graph ms": graph, "times": eager / graph, "capture": "whole"}
        except Exception as error:  # what a step does that no graph holds
            first = (str(error).splitlines() or [""])[0]
            reason = f"{type(error).__name__}: {first}"
            row |= {"graph ms": None, "times": None, "capture": reason}
        yield row


def step_of(config: Row, device: torch.device) -> tuple[Callable[[], None], Callable[[], None]]:
    """A step without its views, and what has to come before one."""
    state, images = new_state(config, device), random_images(config, device)
    objective, optimizer = state.objective.train(), state.optimizer
    views = next(batches(images, config, 0, state.view_generator)).chunks[0]()

    def begin() -> None:
        optimizer.zero_grad(set_to_none=True)

    def step() -> None:
        begin()
        with state.precision.autocast():
            online = objective(views)["online"]
        embeddings = {"online": {view: wide(z_ND) for view, z_ND in online.items()}}
        prepared = objective.prepare(embeddings, state.draw_generator)
        objective.loss(prepared).total.backward()
        optimizer.step()

    return step, begin


def captured(
    step: Callable[[], None], begin: Callable[[], None], device: torch.device
) -> Callable[[], None]:
    """What replays the step; RuntimeError where the device has no graphs, or the step none."""
    if not is_gpu(device):
        raise RuntimeError("not on this device")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    begin()  # the graph's own memory is to have the gradients
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
