"""What the trials under way last said: a small file each in a folder of the driver's machine."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection

from clsweep.catalog.rows import Row

FOLDER = "said"


def say(scratch: str, trial_id: str, state: Row) -> None:
    """Replace what a trial said before.

    Raises:
        OSError: it cannot be written.
    """
    os.makedirs(f"{scratch}/{FOLDER}", exist_ok=True)
    path = f"{scratch}/{FOLDER}/{trial_id}"
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(state, file)
    os.replace(f"{path}.new", path)


def heard(scratch: str, running: Collection[str]) -> dict[str, Row]:
    """What each of these trials last said, if it did; what others said is forgotten."""
    states: dict[str, Row] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(f"{scratch}/{FOLDER}"):
            path = f"{scratch}/{FOLDER}/{name}"
            with contextlib.suppress(OSError, ValueError):
                if name in running:
                    with open(path, encoding="utf-8") as file:
                        states[name] = json.load(file)
                elif not name.endswith(".new"):
                    os.unlink(path)
    return states
