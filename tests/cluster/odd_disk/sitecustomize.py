"""On PYTHONPATH, a file system that lacks what many a cluster's lacks: every Python of a study
imports this before anything else.

Below the folder that CLSWEEP_TEST_ODD_DISK names there are no locks (as on Lustre without `flock`),
no symbolic links (as on FAT), and the names in a folder cannot be flushed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from typing import Any

FOLDER = os.environ["CLSWEEP_TEST_ODD_DISK"]
flock, fsync, symlink = fcntl.flock, os.fsync, os.symlink


def refuse(number: int) -> None:
    raise OSError(number, os.strerror(number))


def path_of(file: Any) -> str:
    descriptor = file if isinstance(file, int) else file.fileno()
    return os.readlink(f"/proc/self/fd/{descriptor}")


def flock_there(file: Any, operation: int) -> None:
    if path_of(file).startswith(FOLDER):
        refuse(errno.ENOSYS)
    flock(file, operation)


def fsync_there(file: Any) -> None:
    if path_of(file).startswith(FOLDER) and stat.S_ISDIR(os.stat(path_of(file)).st_mode):
        refuse(errno.EINVAL)
    fsync(file)


def symlink_there(source: Any, path: Any, *arguments: Any, **options: Any) -> None:
    if os.path.abspath(path).startswith(FOLDER):
        refuse(errno.EPERM)
    symlink(source, path, *arguments, **options)


fcntl.flock, os.fsync, os.symlink = flock_there, fsync_there, symlink_there
