"""Memory that each trial leaves in the driver and in Ray's GCS: Tune alone, Tune in a session of
clsweep, and a whole run of clsweep, with rows of ten epochs. The trials do nothing, in processes
that are used again.

    python tests/benchmarks/tune_memory.py [--trials 1500]
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from _machine import machine, options
from commands import epochs_of
from overhead import python, write_study

from clsweep.cluster import ENVIRONMENT
from clsweep.cluster.ray_session import ray_session
from clsweep.display.printing import print_table

WARM = 100  # trials that are not counted
PARTS = 4  # of the trials, each with a line of its own
SIDES = ("Tune alone", "in a session", "a run of clsweep")


class Samples:
    """MiB of driver and GCS that no other process shares, at each tenth trial, and the seconds."""

    def __init__(self) -> None:
        self.num, self.rows = 0, list[tuple[float, ...]]()

    def add(self) -> None:
        self.num += 1
        if self.num >= WARM and self.num % 10 == 0:
            here = psutil.Process()
            gcs = next(each for each in here.children(True) if each.name() == "gcs_server")
            sizes = (each.memory_full_info().uss / 2**20 for each in (here, gcs))
            self.rows.append((self.num, *sizes, time.perf_counter()))

    def lines(self) -> list[dict[str, float]]:
        """Of all and of each part: KiB a trial by the line through the samples."""
        samples, parts = np.array(self.rows), np.array_split(np.array(self.rows), PARTS)
        return [_line(part) for part in [samples, *parts]]


def _line(samples: np.ndarray) -> dict[str, float]:
    nums, driver, gcs, seconds = samples.T
    slopes = (1024 * float(np.polyfit(nums, each, 1)[0]) for each in (driver, gcs))
    last = {"trials": float(nums[-1]), "driver MiB": driver[-1], "GCS MiB": gcs[-1]}
    pace = (seconds[-1] - seconds[0]) / (nums[-1] - nums[0])
    return (
        last
        | dict(zip(("driver KiB / trial", "GCS KiB / trial"), slopes, strict=True))
        | {"s / trial": pace}
    )


def run_tune(side: str, num_trials: int, add: Callable[[], None]) -> None:
    import ray
    from ray import tune

    class Sampler(tune.Callback):
        def on_trial_complete(self, **_: Any) -> None:
            add()

        def __getstate__(self) -> dict[str, Any]:
            return {}

    if side == SIDES[0]:
        ray.init("local", include_dashboard=False, log_to_driver=False)
    session = ray_session("local", dashboard=False) if side == SIDES[1] else nullcontext()
    with tempfile.TemporaryDirectory() as folder, session:
        tune.Tuner(
            tune.with_resources(lambda config: {"score": config["lr"]}, {"CPU": 1}),
            param_space={"lr": tune.loguniform(1e-3, 1.0)},
            tune_config=tune.TuneConfig(
                num_samples=num_trials, max_concurrent_trials=2, reuse_actors=True
            ),
            run_config=tune.RunConfig(storage_path=folder, verbose=0, callbacks=[Sampler()]),
        ).fit()
        ray.shutdown()


def run_study(num_trials: int, add: Callable[[], None]) -> None:
    """Rows, journal, compactions and display are real, the trials' outcomes made up."""
    import clsweep
    from clsweep.cluster import tune_bridge

    complete, epochs = tune_bridge.TuneBridge.on_trial_complete, epochs_of(10)

    def untrained(config: dict[str, Any]) -> None:
        from ray import tune

        num = config["row"]["config"]
        scores = {"knn_top1": 50 + num % 49, "linear_top1": 60.0, "wall_time_s": 0.5}
        tune.report({"outcome": {"status": "finished", "epochs": epochs, **scores}})

    def sampled(bridge: tune_bridge.TuneBridge, *args: Any, **kwargs: Any) -> None:
        complete(bridge, *args, **kwargs)
        add()

    tune_bridge.run_trial = untrained  # type: ignore[assignment]
    tune_bridge.TuneBridge.on_trial_complete = sampled  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        study = clsweep.load_study(write_study(Path(folder), num_trials))
        clsweep.run(study, out=f"{folder}/out")


def main() -> None:
    given = options(__doc__, trials=1500, side="")
    os.environ.update(ENVIRONMENT)  # without Tune's own loggers, which hold every trial too
    if given.side:
        samples = Samples()
        if given.side == SIDES[2]:
            run_study(given.trials, samples.add)
        else:
            run_tune(given.side, given.trials, samples.add)
        print(json.dumps(samples.lines()))
        return
    print(f"{given.trials} trials; {machine()}")
    for side in SIDES:
        printed = python(Path(__file__), "--side", side, "--trials", given.trials)
        print_table(json.loads(printed.splitlines()[-1]), title=f"\n{side}", digits=2)


if __name__ == "__main__":
    main()
