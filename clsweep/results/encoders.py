"""Trained encoders in a results folder: `encoders/TRIAL_ID.safetensors`, and which of them are kept."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from clsweep.errors import RequestError
from clsweep.results.store import ResultsFolder

Row = Mapping[str, Any]
Weights = dict[str, np.ndarray]

ABOUT = "clsweep"  # the key of the file's metadata under which all that a reader needs stands as JSON


def pack(weights: Mapping[str, np.ndarray], about: Row) -> bytes:
    """A state dict as a safetensors file."""
    from safetensors.numpy import save

    contiguous = {name: np.array(array, order="C") for name, array in weights.items()}
    return save(contiguous, metadata={"format": "pt", ABOUT: json.dumps(dict(about))})


def unpack(payload: bytes, place: str) -> tuple[Weights, dict[str, Any]]:
    """The state dict of a safetensors file that `pack` made, and what it says of itself.

    Raises:
        RequestError: the file at `place` is damaged, or not one of ours.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        weights = {name: array.copy() for name, array in load(payload).items()}
        (length,) = struct.unpack("<Q", payload[:8])
        about: dict[str, Any] = json.loads(json.loads(payload[8 : 8 + length])["__metadata__"][ABOUT])
    except (SafetensorError, struct.error, ValueError, LookupError) as error:
        reason = str(error).splitlines()[0]
        raise RequestError(f"{place}: expected an encoder of clsweep, found a damaged file: {reason}") from None
    return weights, about


class KeptEncoders:
    """Applies a study's rule to the stored encoders: whatever an interruption left, from the rows and the files alone.

    Args:
        folder: a results folder that this run holds.
        rows: of the trials that have finished or failed.
        keep: all | best | none; `best` is that of each objective, and none keeps no further ones.
        metric, mode: what is best.
    """

    def __init__(self, folder: ResultsFolder, rows: Iterable[Row], *, keep: str, metric: str, mode: str):
        self._folder, self._keep, self._metric = folder, keep, metric
        self._sign = 1 if mode == "max" else -1
        self._scores: dict[str, tuple[str, float | None]] = {}  # trial id -> objective and score, None if it failed
        for row in rows:
            self._note(row)

    def record(self, row: Row) -> None:
        """After the row of a trial was written: remove what it supersedes, or its own encoder if it failed."""
        self._note(row)
        if self._keep == "best" or row["status"] == "failed":
            self._prune(self._folder.encoders())

    def settle(self) -> None:
        """While no trial runs: remove also what trials left that were stopped before they had a row."""
        self._folder.remove_unfinished_encoders()
        stored = self._folder.encoders()
        for trial_id in stored:
            if trial_id not in self._scores:
                self._folder.remove_encoder(trial_id)
        self._prune(stored)

    def _note(self, row: Row) -> None:
        score = row.get(self._metric)
        known = self._sign * score if score is not None and math.isfinite(score) else -math.inf
        self._scores[row["trial_id"]] = (row["objective"], known if row["status"] == "finished" else None)

    def _prune(self, stored: Sequence[str]) -> None:
        recorded = [trial_id for trial_id in stored if trial_id in self._scores]
        # of each objective; of equals the first by id, in whatever order they end
        best: dict[str, tuple[float, str]] = {}
        for trial_id in recorded:
            objective, score = self._scores[trial_id]
            if score is not None and (objective not in best or score > best[objective][0]):
                best[objective] = (score, trial_id)
        winners = {trial_id for _, trial_id in best.values()}
        for trial_id in recorded:
            is_failed = self._scores[trial_id][1] is None
            if is_failed or (self._keep == "best" and trial_id not in winners):
                self._folder.remove_encoder(trial_id)
