"""A small study on one GPU without Ray: trials that share it, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import torch
from _machine import is_gpu, seconds
from _speed import precision_on
from _work import config_of

from clsweep.train.loop import train_trial
from clsweep.train.memory import limited_memory

Row = dict[str, Any]
TRIALS, AT_ONCE = 8, 4
SHARE = 1 / AT_ONCE  # of the GPU, as `gpus_per_worker: 0.25`
TOLERANCE = 0.05  # of the loss after some epochs: a GPU sums in another order at every run


def study(device: torch.device, small: bool) -> Iterator[Row]:
    """Seconds of trials at once beside those of one alone, `times` as fast as one after another,
    and whether a trial ends as it does alone.

    A first trial in every process is not timed: it loads what others find loaded.
    """
    trials, at_once = (2, 2) if small else (TRIALS, AT_ONCE)
    encoder, batch = ("conv4-16", 32) if small else ("resnet18", 256)
    shape = {"num_train": 8 * batch if small else 8192, "epochs": 2 if small else 4}
    configs = [
        config_of(encoder, 32, batch, precision_on(device), seed=seed, **shape, eval_every=4)
        for seed in range(trials)
    ]
    run = partial(trial, device=str(device), share=SHARE)
    if device.type == "cuda" and not is_gpu(device):  # pretended in this process alone
        yield {"what": "processes: not on this device", "s": seconds(lambda: run(configs[0]))}
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        begin_all(pool, configs[0], run, 1)
        start = time.perf_counter()
        (alone,) = pool.map(run, configs[:1])
        alone_s = time.perf_counter() - start
    yield {"what": "a trial alone", "s": alone_s, "GiB": alone["peak_memory_gib"]}
    with ProcessPoolExecutor(at_once, context) as pool:
        begin_all(pool, configs[0], run, at_once)
        start = time.perf_counter()
        results = list(pool.map(run, configs))
        all_s = time.perf_counter() - start
    peaks = [result["peak_memory_gib"] for result in results if result["peak_memory_gib"]]
    yield {"what": f"{trials} trials, {at_once} at once", "s": all_s,
           "GiB": max(peaks, default=None), "times": trials * alone_s / all_s}  # fmt: skip
    difference = abs(results[0]["train_loss"] / alone["train_loss"] - 1)
    yield {"what": "loss of a trial among others, relative difference to alone",
           "ok": difference <= TOLERANCE, "figure": difference, "limit": TOLERANCE}  # fmt: skip


def begin_all(pool: ProcessPoolExecutor, config: Row, run: Any, processes: int) -> None:
    """A trial of an epoch in every process, at the same time."""
    list(pool.map(run, [{**config, "epochs": 1}] * processes))


def trial(config: Row, device: str, share: float) -> Row:
    """A trial that is held to its share of the GPU: the numbers of its result."""
    where = torch.device(device)
    with limited_memory(where, share):
        result = train_trial(config, lambda _: None, device=where)
    return {name: value for name, value in result.items() if isinstance(value, float)}
