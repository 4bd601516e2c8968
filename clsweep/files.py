"""Files of anybody, read whole, and files of ours, safe on the disk."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

# what a file system says to a call that it has not: locks, the flush of a folder
UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}


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


def sync(path: str | Path) -> None:
    """Return once a file, or the names in a folder, are on the disk, where the file system can say
    so.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)
