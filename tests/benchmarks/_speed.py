"""How fast a device trains: images per second, and where a step's time goes."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from _machine import is_gpu, matmul_peak, milliseconds
from _work import config_of, ours, peer, peer_name, random_images
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from clsweep.objective.build import build_objective
from clsweep.train.evaluation import score_encoder
from clsweep.train.images import batches
from clsweep.train.memory import PeakMemory
from clsweep.train.state import new_state

Row = dict[str, Any]
# encoder, pixels a side, batch: in order of worth
CASES = (
    ("resnet18", 32, 512), ("resnet18", 32, 64), ("resnet18", 32, 256), ("resnet18", 32, 1024),
    ("resnet50", 224, 256), ("resnet18", 96, 256), ("resnet18", 32, 32), ("resnet50", 32, 256),
    ("resnet18", 224, 256), ("resnet50", 96, 256), ("resnet18", 32, 4096), ("resnet50", 32, 1024),
    ("resnet50", 224, 32), ("resnet50", 32, 4096), ("resnet18", 96, 1024), ("resnet18", 96, 4096),
)  # fmt: skip
SMALL_CASES = (("conv4-16", 32, 32),)


def precision_on(device: torch.device) -> str:
    return "bf16" if device.type == "cuda" else "fp32"


def throughput(device: torch.device, small: bool) -> Iterator[Row]:
    """Images a second of both loops, and the memory of clsweep's."""
    seconds = 0.3 if small else 4.0
    loaders = 0 if small else os.cpu_count() or 1
    for encoder, size, batch in SMALL_CASES if small else CASES:
        config = config_of(encoder, size, batch, precision_on(device))
        row: Row = {"encoder": encoder, "size": size, "batch": batch}
        row |= {"precision": config["precision"]}
        memory = PeakMemory(device)
        row["images/s"] = rate(lambda c=config: ours(c, device), device, seconds)
        row["GiB"] = memory.peak_gib()
        row["peer"] = peer_name()
        row["peer images/s"] = rate(lambda c=config: peer(c, device, loaders), device, seconds)
        both = row["images/s"], row["peer images/s"]
        row["times"] = both[0] / both[1] if None not in both else None
        yield row


def stages(device: torch.device, small: bool) -> Iterator[Row]:
    """Milliseconds of a step's stages, and the networks' share of the matmul peak."""
    budget_s = 0.1 if small else 1.0
    peak = matmul_peak(device, precision_on(device), budget_s=budget_s, small=small)
    named = f"matmul peak, {peak / 1e12:.3g} TFLOP/s"
    first = {"stage": named, "ms": None, "share of peak %": None}
    yield {"encoder": "", "size": None, "batch": None, **first}
    for encoder, size, batch in SMALL_CASES if small else CASES[:4]:
        config = config_of(encoder, size, batch, precision_on(device))
        for row in stages_of(config, device, peak, budget_s=budget_s):
            yield {"encoder": encoder, "size": size, "batch": batch, **row}


def stages_of(config: Row, device: torch.device, peak: float, *, budget_s: float) -> Iterator[Row]:
    """peak: FLOP per second of matrix products."""
    batch = config["batch_size"]
    state, images = new_state(config, device), random_images(config, device)
    objective = state.objective.train()
    views = next(batches(images, config, 0, state.view_generator)).chunks[0]()
    z = [torch.randn(batch, 128, device=device, requires_grad=True) for _ in range(2)]

    def epoch_of_views() -> None:
        for made in batches(images, config, 0, state.view_generator):
            made.chunks[0]()

    def networks() -> None:
        with state.precision.autocast():
            online = objective(views)["online"]
        torch.cat(list(online.values())).float().square().mean().backward()

    def loss() -> None:
        prepared = objective.prepare({"online": dict(enumerate(z))}, state.draw_generator)
        objective.loss(prepared).total.backward()

    def evaluation() -> None:
        score_encoder(objective.encoder, images, images, config, last=False)

    flops = _flops(config, views)
    work: dict[str, tuple[Callable[[], object], int]] = {
        "views": (epoch_of_views, len(images) // batch),
        "networks, forward + backward": (networks, 1),
        "loss, forward + backward": (loss, 1),
        "optimiser": (state.optimizer.step, 1),
        f"evaluation of {len(images)} images": (evaluation, 1),
    }
    for stage, (run, per) in work.items():
        objective.train()
        ms = milliseconds(run, device, budget_s=budget_s) / per
        share = 100 * flops / (ms / 1000) / peak if run is networks else None
        yield {"stage": stage, "ms": ms, "share of peak %": share}


def busy(device: torch.device, _small: bool) -> Iterator[Row]:
    """Share of an epoch in which the GPU computes; kernels of one stream do not overlap."""
    if not is_gpu(device):
        yield {"encoder": "", "size": None, "batch": None, "GPU busy %": None}
        return
    for encoder, size, batch in CASES[:4]:
        running = ours(config_of(encoder, size, batch, "bf16"), device)
        next(running)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as recorded:
            start = time.perf_counter()
            next(running)
            torch.cuda.synchronize()
            wall_us = 1e6 * (time.perf_counter() - start)
        used_us = sum(
            event.self_device_time_total
            for event in recorded.key_averages()
            if event.device_type == torch.autograd.DeviceType.CUDA  # not what launched it
        )
        yield {"encoder": encoder, "size": size, "batch": batch,
               "GPU busy %": 100 * used_us / wall_us}  # fmt: skip


def rate(make: Callable[[], Iterator[int]], device: torch.device, seconds: float) -> float | None:
    """Images a second of the clock after what happens once; None where memory is too small."""
    try:
        running = make()
        next(running)
        return _timed(running, device, seconds)
    except torch.OutOfMemoryError:
        return None
    finally:
        running = None  # type: ignore[assignment]
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _timed(running: Iterator[int], device: torch.device, seconds: float) -> float:
    _synchronise(device)
    start, images = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        images += next(running)
        _synchronise(device)  # else the clock would stop before the work that it has queued
    return images / (time.perf_counter() - start)


def _flops(config: Row, views: list[torch.Tensor]) -> int:
    """Of forward and backward of the networks, as plain operations of torch."""
    objective = build_objective(config)
    network = nn.Sequential(objective.encoder, objective.projector).to(views[0].device)
    with FlopCounterMode(display=False) as counter:
        torch.cat([network(x[:2].contiguous()) for x in views]).square().mean().backward()
    return int(counter.get_total_flops()) * len(views[0]) // 2


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
