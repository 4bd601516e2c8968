"""What the trials under way last said, and what their run asks of them: small files in a folder of
the driver's machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Collection, Iterator

from clsweep.catalog.rows import Row

FOLDER, ASKED, EPOCHS = "said", "asked", "epochs"
LEAVE_S = 10.0  # of the time that a signal leaves, what a run gives its trials


def say(scratch: str, trial_id: str, state: Row, saved: str = "") -> str:
    """Replace what a trial said before; what the run asks.

    Args:
        saved: the latest demand for which the trial has saved a checkpoint.

    Raises:
        OSError: it cannot be written.
    """
    _write(f"{scratch}/{FOLDER}/{trial_id}", json.dumps({"state": state, "saved": saved}))
    return asked(scratch)


def heard(scratch: str, running: Collection[str]) -> dict[str, Row]:
    """What each of these trials last said, if it did; what others said is forgotten."""
    found = dict(_read(scratch))
    for name in found.keys() - set(running):
        forget(scratch, name)
    return {name: found[name]["state"] for name in running if name in found}


def forget(scratch: str, trial_id: str) -> None:
    """Drop what a trial said before it was lost, or ended."""
    with contextlib.suppress(OSError):
        os.unlink(f"{scratch}/{FOLDER}/{trial_id}")


def report(scratch: str, trial_id: str, epoch: Row, *, is_first: bool) -> None:
    """Add the row of an epoch to those of the trial, or begin them anew.

    Raises:
        OSError: it cannot be written.
    """
    os.makedirs(f"{scratch}/{EPOCHS}", exist_ok=True)
    path = f"{scratch}/{EPOCHS}/{trial_id}"
    with open(path, "w" if is_first else "a", encoding="utf-8") as file:
        file.write(json.dumps(epoch, default=float) + "\n")


def reported(scratch: str, running: Collection[str]) -> dict[str, list[Row]]:
    """The rows of these trials' epochs; those of others are forgotten."""
    rows: dict[str, list[Row]] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(f"{scratch}/{EPOCHS}"):
            path = f"{scratch}/{EPOCHS}/{name}"
            with contextlib.suppress(OSError, ValueError):
                if name not in running:
                    os.unlink(path)
                    continue
                with open(path, encoding="utf-8") as file:
                    # the last line may be half written
                    rows[name] = [json.loads(line) for line in file if line.endswith("\n")]
    return rows


def ask_to_save(scratch: str, demand: str) -> None:
    """Ask all trials that speak for a checkpoint, once for every demand.

    Raises:
        OSError: it cannot be written.
    """
    _write(f"{scratch}/{ASKED}", demand)


def asked(scratch: str) -> str:
    """The run's latest demand, empty if there is none."""
    with contextlib.suppress(OSError), open(f"{scratch}/{ASKED}", encoding="utf-8") as file:
        return file.read()
    return ""


def let_save(scratch: str, running: Collection[str], timeout_s: float = LEAVE_S) -> None:
    """Ask for checkpoints, and wait until those of these trials have one that have spoken."""
    demand, end = f"leaving {time.time_ns()}", time.monotonic() + timeout_s
    with contextlib.suppress(OSError):
        ask_to_save(scratch, demand)
        while time.monotonic() < end:
            if all(said["saved"] == demand for name, said in _read(scratch) if name in running):
                break
            time.sleep(0.05)


def _read(scratch: str) -> Iterator[tuple[str, Row]]:
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(f"{scratch}/{FOLDER}"):
            if not name.endswith(".new"):
                with (
                    contextlib.suppress(OSError, ValueError),
                    open(f"{scratch}/{FOLDER}/{name}", encoding="utf-8") as file,
                ):
                    yield name, json.load(file)


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.new", path)
