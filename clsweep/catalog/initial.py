"""The hyperparameter `init`: a file of weights, and the digest of what it held."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

NONE = "none"


def stated(path: Path) -> str:
    """PATH#DIGEST of a file as it is now.

    Raises:
        ValueError: it is not there, or no regular file.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError(f"expected a file of weights, given {path}, which is no regular file")
        return f"{path.absolute()}#{digest_of(path)}"
    except OSError as error:
        raise ValueError(f"expected a file of weights, given {path}: {error.strerror}") from None


def parted(init: str) -> tuple[str, str]:
    """Path and digest of `stated`; an empty digest where there is none."""
    path, _, digest = init.rpartition("#")
    return (path, digest) if path else (init, "")


def digest_of(path: Path) -> str:
    """Of all bytes of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
