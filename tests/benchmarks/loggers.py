"""What a logger costs a trial: in the driver, which the study waits for, and in its own process.

python tests/benchmarks/loggers.py
"""

from __future__ import annotations

import tempfile
import time
from types import SimpleNamespace
from typing import Any

from clsweep.cluster.loggers.relay import Loggers
from clsweep.cluster.loggers.sinks import TensorBoard
from clsweep.study.schema import LoggerSection

TRIALS, EPOCHS, VALUES = 200, 20, 25


def trials() -> list[dict[str, Any]]:
    params = {"tau": 0.1, "batch_size": 64, "lr": 0.1, "encoder": "conv4", "loss": "dcl"}
    return [
        {"trial_id": f"dcl-{i:04}-s0", "objective": "dcl", "config": i, "seed": 0, **params}
        for i in range(TRIALS)
    ]


def epochs() -> list[dict[str, Any]]:
    values = {f"value_{i}": i / 7 for i in range(VALUES)}
    return [{"epoch": epoch, **values} for epoch in range(1, EPOCHS + 1)]


def in_the_driver(place: str) -> float:
    """Seconds of processor time a trial, with those of the thread that writes."""
    study: Any = SimpleNamespace(sections=SimpleNamespace(name="study"))
    loggers = Loggers([LoggerSection(name="tensorboard")], study, place, print)
    rows, told = trials(), epochs()
    with loggers:
        time.sleep(3)  # its process has started
        start = time.process_time()
        for row in rows:
            loggers.started(row)
            for num in range(1, EPOCHS + 1):
                loggers.reported(row["trial_id"], told[:num])
            loggers.ended(row, {"status": "finished", "knn_top1": 70.0, "epochs": told})
            time.sleep(0.02)  # trials do not end all at once
        return (time.process_time() - start) / TRIALS


def in_its_process(place: str) -> float:
    """Seconds of processor time a trial, beside the study."""
    sink = TensorBoard({"options": {}, "place": place})
    rows, told = trials(), epochs()
    start = time.process_time()
    for row in rows:
        sink.begin({**row, "params": {"tau": 0.1, "loss": "dcl"}})
        for epoch in told:
            sink.epoch(row["trial_id"], epoch)
        sink.end(row["trial_id"], {"knn_top1": 70.0}, "finished", "")
    sink.close()
    return (time.process_time() - start) / TRIALS


if __name__ == "__main__":
    print(f"{TRIALS} trials of {EPOCHS} epochs with {VALUES} values, TensorBoard")
    with tempfile.TemporaryDirectory() as folder:
        print(f"the driver: {1e3 * in_the_driver(folder + '/a'):.2f} ms a trial")
        print(f"its own process: {1e3 * in_its_process(folder + '/b'):.1f} ms a trial")
