"""Memory that each trial leaves in the driver and in Ray's GCS: Tune alone, and Tune in a session
of clsweep. Both run trials that do nothing, in processes that are used again.

    python tests/benchmarks/tune_memory.py [--trials 1500]
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from _machine import machine, options
from overhead import python

from clsweep.cluster import ENVIRONMENT
from clsweep.cluster.ray_session import ray_session
from clsweep.display.printing import print_table

WARM = 100  # trials that are not counted
SIDES = ("Tune alone", "in a session")


def measure(side: str, num_trials: int) -> dict[str, float]:
    """KiB a trial that no other process shares, by the line through each tenth trial."""
    import ray
    from ray import tune

    samples: list[tuple[int, float, float]] = []

    class Sampler(tune.Callback):
        num = 0

        def on_trial_complete(self, **_: Any) -> None:
            self.num += 1
            if self.num >= WARM and self.num % 10 == 0:
                here = psutil.Process()
                gcs = next(each for each in here.children(True) if each.name() == "gcs_server")
                sizes = (each.memory_full_info().uss / 1024 for each in (here, gcs))
                samples.append((self.num, *sizes))

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
    nums, *memory = np.array(samples).T
    driver, gcs = (float(np.polyfit(nums, each, 1)[0]) for each in memory)
    return {"driver KiB / trial": driver, "GCS KiB / trial": gcs}


def main() -> None:
    given = options(__doc__, trials=1500, side="")
    os.environ.update(ENVIRONMENT)  # without Tune's own loggers, which hold every trial too
    if given.side:
        print(json.dumps(measure(given.side, given.trials)))
        return
    rows = []
    for side in SIDES:
        printed = python(Path(__file__), "--side", side, "--trials", given.trials)
        rows.append({"run": side, **json.loads(printed.splitlines()[-1])})
    print_table(rows, title=f"\n{given.trials} trials; {machine()}", digits=2)


if __name__ == "__main__":
    main()
