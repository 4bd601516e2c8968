"""Trials that are killed and started again, as far as one process can do so: nothing but the
store's bytes survives.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from clsweep.train.checkpoints import Checkpoints
from clsweep.train.loop import train_trial
from clsweep.train.save_request import SaveRequest

Row = dict[str, Any]
# Of the machine, not of the trial.
MEASURED = ("time_s", "images_per_s", "peak_memory_gib", "earlier_s", "compile_s")


class Killed(BaseException):
    """Nothing catches a kill."""


@dataclass
class MemoryStore:
    """Keeps the bytes; `on_save` is called with each payload before it counts."""

    payload: bytes | None = None
    saved: list[bytes] = field(default_factory=list)
    on_save: Callable[[bytes], None] | None = None

    def load(self) -> bytes | None:
        return self.payload

    def save(self, payload: bytes) -> None:
        if self.on_save is not None:
            self.on_save(payload)
        self.payload = payload
        self.saved.append(payload)


@dataclass
class Attempt:
    """What one attempt reported, and its result if it came to one."""

    rows: list[Row] = field(default_factory=list)
    result: Row = field(default_factory=dict)


def attempt(
    config: Mapping[str, Any],
    store: MemoryStore | None = None,
    *,
    kill_at: int | None = None,
    stop_at: int | None = None,
    every_s: float = 0.0,
    keep_end: bool = False,
    notice: SaveRequest | None = None,
    **options: Any,
) -> Attempt:
    """One attempt at a trial, killed as it reports an epoch, or told to stop there."""
    made = Attempt()

    def report(row: Row) -> bool | None:
        made.rows.append(dict(row))
        row.clear()  # whoever is told may do with it what he likes
        if made.rows[-1]["epoch"] == kill_at:
            raise Killed
        return False if made.rows[-1]["epoch"] == stop_at else None

    checkpoints = Checkpoints(store, every_s, keep_end, notice or SaveRequest()) if store else None
    with contextlib.suppress(Killed):
        made.result = train_trial(config, report, checkpoints=checkpoints, **options)
    return made


def chain(config: Mapping[str, Any], *, kills: list[int], **options: Any) -> list[Attempt]:
    """Attempts one after another, each but the last killed at its epoch, with a checkpoint after
    every epoch.
    """
    store = MemoryStore()
    return [attempt(config, store, kill_at=epoch, **options) for epoch in (*kills, None)]


def assert_same(actual: Attempt, expected: Attempt) -> None:
    """All rows and results but what only measures the machine or counts attempts, and the weights:
    bit for bit.
    """
    assert unmeasured(actual.rows) == unmeasured(expected.rows)
    (result, weights), (wanted, wanted_weights) = map(_parts, (actual.result, expected.result))
    assert result == wanted
    assert weights.keys() == wanted_weights.keys()
    assert all(torch.equal(weights[name], x) for name, x in wanted_weights.items())


def unmeasured(rows: list[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in MEASURED} for row in rows]


def _parts(result: Row) -> tuple[Row, Row]:
    [rest] = unmeasured([result])
    rest.pop("num_resumes", None)
    return rest, rest.pop("encoder", {})
