"""Checkpoints of a trial: an attempt goes on from that of an earlier one, and leaves its own.

A checkpoint, bytes, is checked before it is believed. One that is damaged, or of another trial,
counts as none: the trial begins again, and only time is lost.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

import torch

from clsweep.catalog.rows import Row
from clsweep.train.collectives import of_first, rank
from clsweep.train.save_request import SaveRequest
from clsweep.train.state import TrialState
from clsweep.version import VERSION

ReportEpoch = Callable[[Row], bool | None]

# of an attempt's time that checkpoints may take, if they are not asked for after every epoch
SAVING_SHARE = 0.05


class CheckpointStore(Protocol):
    """Where one trial keeps its latest checkpoint. What it raises fails the trial."""

    def load(self) -> bytes | None:
        """The payload saved last, by this or an earlier process; None if there is none."""

    def save(self, payload: bytes) -> None:
        """Keep this in place of the one before: a process that dies leaves one of the two."""


@dataclass(frozen=True)
class Checkpoints:
    """Those of one trial, and when it saves them.

    Args:
        store: the trial's own.
        every_s: at least so many seconds between two of them, and twenty times what one takes,
            within an epoch too; 0: after every epoch, and nowhere else.
        keep_end: save one after the last epoch too, to stay when the trial is over.
        save_request: asks for one after the step that is being taken.
    """

    store: CheckpointStore
    every_s: float = 60.0
    keep_end: bool = False
    save_request: SaveRequest = field(default_factory=SaveRequest)


class TrialCheckpointer:
    """The checkpoints of a trial and its log: the row of every epoch, and the rows of the side
    tables.

    In a process group every worker makes one. The first alone reads and saves checkpoints, and what
    its report answers holds for all.

    Args:
        config, report: as in `train_trial`.
        checkpoints: None: neither read nor saved.
        device: of the trial, for messages between workers.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        report: ReportEpoch,
        checkpoints: Checkpoints | None,
        device: torch.device,
    ):
        self._config, self._report, self._device = config, report, device
        self._checkpoints = checkpoints if rank() == 0 else None
        self._started_at = self._saved_at = monotonic()
        self._saving_s = 0.0
        self._state: TrialState | None = None
        self._identity = b""
        self._was_stopped = False
        self.has_state = True  # False: nothing yet that another attempt could go on from
        self.rows: list[Row] = []
        self.histograms: list[Row] = []
        self.points: list[Row] = []
        self.hits: list[Row] = []  # of the latest scores
        self.num_resumes, self.earlier_s = 0, 0.0

    def resume(self, state: TrialState) -> None:
        """Bring the state, and the log, to where the latest checkpoint left them; stay at the
        beginning without one.

        The rows of the epochs that this skips are reported again.
        """
        self._state = state
        payload = None
        if self._checkpoints is not None:
            self._identity = identity_of(self._config)
            payload = verified(self._checkpoints.store.load(), self._identity)
        payload = of_first(payload, self._device)
        if payload is None:
            return
        saved = unpack_checkpoint(payload)
        state.load_state_dict(saved["state"])
        self.rows, self.histograms = saved["rows"], saved["histograms"]
        self.points, self.hits = saved["points"], saved["hits"]
        self.num_resumes, self.earlier_s = saved["num_resumes"] + 1, saved["time_s"]
        if self.rows:
            self._tell(self.rows)
        if state.under_way is not None:  # it was told to go on, and did
            self._was_stopped = False

    @property
    def epochs_trained(self) -> int:
        return int(self.rows[-1]["epoch"]) if self.rows else 0

    @property
    def goes_on(self) -> bool:
        """There is another epoch to train."""
        return not self._was_stopped and self.epochs_trained < self._config["epochs"]

    def after_step(self) -> float:
        """Save a checkpoint if one is due or asked for; the seconds that this took."""
        if self._checkpoints is None or not self._is_asked_for(self._checkpoints):
            return 0.0
        self._save(self._checkpoints)
        return self._saving_s

    def end_epoch(
        self,
        row: Row,
        histogram: Sequence[Row] = (),
        points: Sequence[Row] = (),
        hits: Sequence[Row] | None = None,
    ) -> None:
        """Log an epoch, save a checkpoint if one is due, and report: what was told is then not
        trained again.

        hits: of its scores; None: it has none.
        """
        self.rows.append(row)
        self.histograms += histogram
        self.points += points
        self.hits = self.hits if hits is None else list(hits)
        has_state = self.has_state and self._state is not None
        if (checkpoints := self._checkpoints) is not None and has_state:
            is_due = checkpoints.every_s == 0 or self._is_asked_for(checkpoints)
            if (is_due and self.goes_on) or (checkpoints.keep_end and not self.goes_on):
                self._save(checkpoints)
        self._tell([row])

    def result(self, images_per_epoch: int) -> Row:
        """The last epoch's metrics, losses and diagnostics, and what the attempts came to in all.

        `num_resumes` counts the checkpoints that the numbers have passed through, `earlier_s` the
        time before the last of them; what an attempt did after its last checkpoint left nothing and
        is in neither.
        """
        result = {
            n: value
            for n, value in self.rows[-1].items()
            if n not in ("epoch", "lr", "weight_decay", "tau", "time_s", "images_per_s")
        }
        result |= {
            "status": "stopped" if self.epochs_trained < self._config["epochs"] else "finished",
            "epochs_trained": self.epochs_trained,
            "num_resumes": self.num_resumes,
            "earlier_s": self.earlier_s,
            "num_images": self.epochs_trained * images_per_epoch,
            "histograms": self.histograms,
            "points": self.points,
        }
        if result["num_images"]:
            result["images_per_s"] = result["num_images"] / sum(row["time_s"] for row in self.rows)
        return result

    def _tell(self, rows: Sequence[Row]) -> None:
        for row in rows:
            answer = self._report(dict(row))  # a copy: the log is ours
        # The last one counts. Where an earlier epoch would be judged otherwise by now, the trial
        # has gone on from it: it stops where it is judged next.
        self._was_stopped = of_first(answer is False, self._device)

    def _is_asked_for(self, checkpoints: Checkpoints) -> bool:
        """A checkpoint is requested, or the latest is too old."""
        pause = max(checkpoints.every_s, self._saving_s / SAVING_SHARE)
        is_late = checkpoints.every_s > 0 and monotonic() - self._saved_at >= pause
        return checkpoints.save_request.is_given or is_late

    def _save(self, checkpoints: Checkpoints) -> None:
        assert self._state is not None
        start = monotonic()
        contents = {
            "state": self._state.state_dict(),
            "rows": self.rows,
            "histograms": self.histograms,
            "points": self.points,
            "hits": self.hits,
            "num_resumes": self.num_resumes,
            "time_s": self.earlier_s + start - self._started_at,
        }
        checkpoints.store.save(pack_checkpoint(contents, self._identity))
        self._saved_at = monotonic()
        self._saving_s = self._saved_at - start
        checkpoints.save_request.answer()


_FORMAT = 7  # of the contents; another one when state or log change their shape
_DIGEST_SIZE = hashlib.sha256().digest_size
# what a trial is called decides no number
_NAMES_ONLY = ("trial_id", "study", "objective", "config", "sampler")


def identity_of(config: Mapping[str, Any]) -> bytes:
    """All that two attempts have in common if the second may go on from the first.

    All that decides the numbers, and the versions that a trial's row states. The device and the
    number of workers may change, as they may between two trials: what is computed is the same up to
    rounding.
    """
    deciding = {name: value for name, value in config.items() if name not in _NAMES_ONLY}
    # what follows is the build's device
    versions = [_FORMAT, VERSION, torch.__version__.partition("+")[0]]
    return json.dumps([versions, deciding], sort_keys=True).encode()


def pack_checkpoint(contents: Mapping[str, Any], identity: bytes) -> bytes:
    """`contents`, of tensors and plain values only, behind a digest of identity and contents."""
    buffer = io.BytesIO()
    torch.save(contents, buffer)
    body = buffer.getbuffer()
    return b"".join([_digest(identity, body), body])


def verified(payload: bytes | None, identity: bytes) -> bytes | None:
    """The payload if it is whole and of this identity, else None."""
    if payload is None or payload[:_DIGEST_SIZE] != _digest(
        identity, memoryview(payload)[_DIGEST_SIZE:]
    ):
        return None
    return payload


def unpack_checkpoint(payload: bytes) -> dict[str, Any]:
    """The contents of a verified payload, tensors on the CPU."""
    body = io.BytesIO(memoryview(payload)[_DIGEST_SIZE:])
    contents: dict[str, Any] = torch.load(body, map_location="cpu", weights_only=True)
    return contents


def unpack_unverified(payload: bytes) -> dict[str, Any]:
    """The contents of a payload of which the identity is not known.

    Raises:
        Exception: it is damaged; which one, hangs on how.
    """
    # torch looks at no checksum of the archive
    with zipfile.ZipFile(io.BytesIO(memoryview(payload)[_DIGEST_SIZE:])) as archive:
        # torch packs nothing, and unpacks a thousand times as much
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise ValueError("it is compressed")
        if (wrong := archive.testzip()) is not None:
            raise ValueError(f"the checksum of {wrong} is wrong")
    contents = unpack_checkpoint(payload)
    if not isinstance(contents, dict) or "state" not in contents:
        raise ValueError("it has no state")
    return contents


def _digest(identity: bytes, body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(identity)
    digest.update(body)
    return digest.digest()
