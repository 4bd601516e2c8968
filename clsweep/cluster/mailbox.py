"""States of trials and requests of their run: small files in a folder of the driver's machine.
Writing raises OSError.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Collection
from pathlib import Path

from clsweep.catalog.rows import Row

_STATES, _REQUEST, _EPOCHS = "states", "request", "epochs"
LEAVE_S = 10.0  # of the time that a signal leaves, what a run gives its trials


def write_state(scratch: str, trial_id: str, state: Row, saved: str = "") -> str:
    """Replace what a trial said before; what the run asks.

    Args:
        saved: the latest demand for which the trial has saved a checkpoint.
    """
    _write(f"{scratch}/{_STATES}/{trial_id}", json.dumps({"state": state, "saved": saved}))
    return checkpoint_request(scratch)


def read_states(scratch: str, running: Collection[str]) -> dict[str, Row]:
    """The last state of each of these trials, if it has one; those of others are dropped."""
    states = _read(scratch)
    for name in states.keys() - set(running):
        drop_state(scratch, name)
    return {name: states[name]["state"] for name in running if name in states}


def drop_state(scratch: str, trial_id: str) -> None:
    """Drop what a trial said before it was lost, or ended."""
    with contextlib.suppress(OSError):
        os.unlink(f"{scratch}/{_STATES}/{trial_id}")


def append_epoch(scratch: str, trial_id: str, epoch: Row, is_first: bool) -> None:
    """Add the row of an epoch to those of the trial, or begin them anew."""
    folder = Path(scratch, _EPOCHS)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / trial_id).open("w" if is_first else "a", encoding="utf-8") as file:
        file.write(json.dumps(epoch, default=float) + "\n")


def read_epochs(scratch: str, running: Collection[str]) -> dict[str, list[Row]]:
    """The rows of these trials' epochs; those of others are forgotten."""
    rows: dict[str, list[Row]] = {}
    for path in _files(f"{scratch}/{_EPOCHS}"):
        with contextlib.suppress(OSError, ValueError):
            if path.name not in running:
                path.unlink()
                continue
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            # the last one may be half written
            rows[path.name] = [json.loads(line) for line in lines if line.endswith("\n")]
    return rows


def request_checkpoints(scratch: str, demand: str) -> None:
    """Ask all trials that speak for a checkpoint, once for every demand."""
    _write(f"{scratch}/{_REQUEST}", demand)


def checkpoint_request(scratch: str) -> str:
    """The run's latest demand, empty if there is none."""
    with contextlib.suppress(OSError):
        return Path(scratch, _REQUEST).read_text(encoding="utf-8")
    return ""


def checkpoint_all(scratch: str, running: Collection[str], timeout_s: float = LEAVE_S) -> None:
    """Ask for checkpoints, and wait until those of these trials have one that have spoken."""
    demand, end = f"leaving {time.time_ns()}", time.monotonic() + timeout_s
    with contextlib.suppress(OSError):
        request_checkpoints(scratch, demand)
        while time.monotonic() < end:
            states = _read(scratch)
            if all(states[name]["saved"] == demand for name in states.keys() & set(running)):
                break
            time.sleep(0.05)


def _read(scratch: str) -> dict[str, Row]:
    states: dict[str, Row] = {}
    for path in _files(f"{scratch}/{_STATES}"):
        with contextlib.suppress(OSError, ValueError):
            states[path.name] = json.loads(path.read_text(encoding="utf-8"))
    return states


def _files(folder: str) -> list[Path]:
    with contextlib.suppress(FileNotFoundError):
        return [path for path in Path(folder).iterdir() if path.suffix != ".new"]
    return []


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(f"{path}.new").write_text(text, encoding="utf-8")
    os.replace(f"{path}.new", path)
