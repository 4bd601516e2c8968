"""Checkpoints as bytes: what a trial needs to go on, checked before it is believed.

A checkpoint that is damaged, or of another trial, counts as none: the trial begins again, and only
time is lost.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any, Protocol

import torch

from clsweep.version import VERSION

FORMAT = 3  # of the contents; another one when state or log change their shape
_DIGEST_SIZE = hashlib.sha256().digest_size
# what a trial is called decides no number
_NAMES_ONLY = ("trial_id", "study", "objective", "config", "sampler")


class CheckpointStore(Protocol):
    """Where one trial keeps its latest checkpoint. What it raises fails the trial."""

    def load(self) -> bytes | None:
        """What was saved last, by this or an earlier process; None if there is nothing."""

    def save(self, payload: bytes) -> None:
        """Keep this in place of the one before, in one go: a process that dies meanwhile leaves one
        of the two.
        """


def identity_of(config: Mapping[str, Any]) -> bytes:
    """What two attempts must have in common for the second to go on from the first.

    All that decides the numbers, and the versions that a trial's row states. The device and the
    number of workers may change, as they may between two trials: what is computed is the same up to
    rounding.
    """
    deciding = {name: value for name, value in config.items() if name not in _NAMES_ONLY}
    # what follows is the build's device
    versions = [FORMAT, VERSION, torch.__version__.partition("+")[0]]
    return json.dumps([versions, deciding], sort_keys=True).encode()


def pack(contents: Mapping[str, Any], identity: bytes) -> bytes:
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


def unpack(payload: bytes) -> dict[str, Any]:
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
    contents = unpack(payload)
    if not isinstance(contents, dict) or "state" not in contents:
        raise ValueError("it has no state")
    return contents


def _digest(identity: bytes, body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(identity)
    digest.update(body)
    return digest.digest()
