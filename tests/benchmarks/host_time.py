"""Host time of a training step: what Python and torch's dispatcher take before any device works.

clsweep's step of SimCLR beside lightly's documented one: two forward passes, NTXentLoss and SGD.
Both train resnet18 on 32 x 32 images in batches of 512. Tensors lie on the `meta` device, which
has shapes and computes nothing. A GPU that is faster than this time waits for the host.

Torch works out the shapes of meta tensors in Python, which takes many times what CUDA takes to
launch an operation. Here each shape is worked out once and then remembered (`_meta.py`), alike for
both sides. Autocast leaves meta tensors alone: its casts are missing on both sides, and
`launches.py` counts them. The views are clsweep's alone: lightly's are made by other processes.
Times are CPU time of the process, so that other work on the machine counts for little.

A round is as many steps as have their views made together.

    python tests/benchmarks/host_time.py [--rounds 15] [--batch 512] [--goal 0.6] [--profile]
"""

from __future__ import annotations

import contextlib
import cProfile
import pstats
import statistics
import sys
from collections.abc import Callable
from time import process_time
from typing import Any
from unittest import mock

import torch
from _machine import in_turn, machine, options
from _meta import META, EnoughError, like_a_device
from _work import config_of, lightly_step, simclr_network

from clsweep.display.printing import print_table
from clsweep.train import loop
from clsweep.train.images import Images, made_at_once
from clsweep.train.state import Precision, TrialState, new_state

GOAL = 0.6  # of lightly's step, ours without its views
OURS, WITH_VIEWS, LIGHTLY = "clsweep", "clsweep, with its views", "lightly"
Run = Callable[[], float]  # some steps: seconds of each


def main() -> None:
    given = options(__doc__, rounds=15, batch=512, goal=GOAL, profile=False)
    torch.set_num_threads(1)
    few = config_of("resnet18", 32, given.batch, "bf16")
    steps = made_at_once(meta_images(few), few) // given.batch
    with like_a_device():
        sides = {OURS: ours(given.batch, steps, ready=True),
                 WITH_VIEWS: ours(given.batch, steps, ready=False),
                 LIGHTLY: theirs(given.batch, steps)}  # fmt: skip
    with like_a_device(*sides.values()):
        in_turn(sides, 2)  # every shape once
        if given.profile:
            profiled(sides[OURS])
            return
        rows = compared(in_turn(sides, given.rounds), given.goal)
    print_table(rows, title=f"\nHost time of a step, batch {given.batch}, on {machine()}")
    share = rows[0]["of lightly's"]
    if share > given.goal:
        sys.exit(f"{OURS}: expected at most {given.goal} of lightly's, given {share:.3f}")


def compared(times: dict[str, list[float]], goal: float) -> list[dict[str, Any]]:
    """A row per side: median milliseconds of its rounds, and the median of their shares."""
    shares = {
        side: statistics.median(a / b for a, b in zip(each, times[LIGHTLY], strict=True))
        for side, each in times.items()
    }
    return [
        {"side": side, "ms": 1000 * statistics.median(each), "least": 1000 * min(each),
         "most": 1000 * max(each), "of lightly's": shares[side],
         "goal": goal if side == OURS else None}
        for side, each in times.items()
    ]  # fmt: skip


def ours(batch: int, steps: int, *, ready: bool) -> Run:
    """Steps of the training loop; `ready`: of views that are made before."""
    config = config_of("resnet18", 32, batch, "bf16", num_train=2 * batch * steps)
    state, images = new_state(config, META), meta_images(config)
    for group in state.optimizer.param_groups:
        group["fused"] = True  # as on CUDA
    state.optimizer._need_device_dtype_check_for_fused = False  # type: ignore[attr-defined]
    made = list(loop.batches(images, config, 0, state.view_generator)) if ready else []

    def run() -> float:
        if not ready:
            return steps_of(state, images, config, steps)
        with mock.patch.object(loop, "batches", return_value=made):
            return steps_of(state, images, config, steps)

    return run


def steps_of(state: TrialState, images: Images, config: dict[str, Any], steps: int) -> float:
    """Seconds of a step: the mean of `steps` after the first one of an epoch."""
    ends: list[float] = []

    def after_step() -> float:
        ends.append(process_time())
        if len(ends) > steps:
            raise EnoughError
        return 0.0

    state.under_way = None
    with contextlib.suppress(EnoughError):
        loop.train_epoch(state, state.objective, images, config, after_step=after_step)
    return (ends[-1] - ends[0]) / steps


def theirs(batch: int, steps: int) -> Run:
    """Steps of lightly's documented loop, of views that its loaders have made."""
    model = simclr_network(config_of("resnet18", 32, batch, "fp32")).to(META)
    step = lightly_step(model, torch.optim.SGD(model.parameters(), lr=0.06, foreach=True),
                        Precision.on(META, "bf16"))  # fmt: skip
    views = [torch.empty(batch, 3, 32, 32, device=META) for _ in range(2)]

    def run() -> float:
        start = process_time()
        for _ in range(steps):
            step(*views)
        return (process_time() - start) / steps

    return run


def meta_images(config: dict[str, Any]) -> Images:
    """A split of which only shapes are known, whole on the device."""
    count, size = config["num_train"], config["image_size"]
    return Images(
        pixels_NHWC=torch.empty(count, size, size, 3, dtype=torch.uint8, device=META),
        rows_N=None,
        labels_N=torch.empty(count, dtype=torch.int64, device=META),
        mean_1C11=torch.empty(1, 3, 1, 1, device=META),
        std_1C11=torch.empty(1, 3, 1, 1, device=META),
    )


def profiled(run: Run) -> None:
    run()
    with cProfile.Profile() as recorded:
        run()
    pstats.Stats(recorded).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
