"""Files of anybody, read whole."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: str | Path, most: int) -> bytes:
    """The content of a file of at most so many bytes. Neither a pipe nor a device is waited for.

    Raises:
        OSError: there is none, or it is another thing, or larger; `strerror` says which.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "expected a file, given a folder")
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "expected a regular file, given a pipe or a device")
        content = file.read(most + 1)
    if (size := max(status.st_size, len(content))) > most:
        raise OSError(errno.EFBIG, f"expected at most {most:,} bytes, given {size:,}")
    return content
