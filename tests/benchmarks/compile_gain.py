"""CPU seconds of training steps with `compile: true` beside the same steps without.

    python -m tests.benchmarks.compile_gain conv4 16 resnet18 0

Blocks of steps alternate, so that another load of the machine falls on both. One thread, SimCLR
with DCL at batch 64, images of 32 x 32 pixels in float32. What compiling took stands beside.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch

from clsweep.train.compilation import compile_ahead
from clsweep.train.images import batches
from clsweep.train.loop import accumulate_gradient
from clsweep.train.state import new_state
from tests.contracts.combinations import COMBINATIONS, Config, small_config, some_digits

BATCH, STEPS, ROUNDS = 64, 6, 5


def stepper(config: Config, *, is_compiled: bool) -> tuple[Callable[[], float], float]:
    """Takes some steps, and says their CPU seconds; and the seconds of compiling."""
    state, images = new_state(config, torch.device("cpu")), some_digits(BATCH)
    state.objective.train()
    batch = next(batches(images, config, 0, state.view_generator))
    accumulate = partial(accumulate_gradient, state, state.objective, batch)
    compile_s = compile_ahead(state, accumulate) if is_compiled else 0.0

    def take() -> float:
        start = time.process_time()
        for _ in range(STEPS):
            state.optimizer.zero_grad(set_to_none=True)
            accumulate()
            state.optimizer.step()
        return (time.process_time() - start) / STEPS

    take()
    return take, compile_s


def main() -> None:
    torch.set_num_threads(1)
    for encoder, width in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        own = {"width": int(width)} if int(width) else {}
        parts = COMBINATIONS["simclr-dcl-none-two"]
        config = small_config(parts, encoder=encoder, batch_size=BATCH, view_size=32, **own)
        (plain, _), (fast, compile_s) = (
            stepper(config, is_compiled=is_compiled) for is_compiled in (False, True)
        )
        pairs = [(plain(), fast()) for _ in range(ROUNDS)]
        gains = sorted(a / b for a, b in pairs)
        ours, theirs = (statistics.median(each) * 1e3 for each in zip(*pairs, strict=True))
        spread = f"({gains[0]:.2f} to {gains[-1]:.2f})"
        print(
            f"{encoder} {width}: {ours:.0f} ms, compiled {theirs:.0f} ms, "
            f"{statistics.median(gains):.2f} times {spread}; compiling {compile_s:.0f} s"
        )


if __name__ == "__main__":
    main()
