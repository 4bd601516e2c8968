"""On PYTHONPATH, a bad disk: every Python of a study, its trials' too, imports this before anything
else.

Below the folder that CLSWEEP_TEST_ODD_DISK names there are no locks (as on Lustre without `flock`),
no symbolic links (as on FAT), and the names in a folder cannot be flushed. While the file exists
that CLSWEEP_TEST_FULL_DISK names, what is written to a path with the text in that file in it is cut
in the middle and refused.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import os
import stat
from typing import Any

FOLDER, FLAG = os.environ["CLSWEEP_TEST_ODD_DISK"], os.environ["CLSWEEP_TEST_FULL_DISK"]
open_, flock, fsync, symlink = builtins.open, fcntl.flock, os.fsync, os.symlink


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


class FullFile(io.FileIO):
    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        super().write(view[: len(view) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def open_on_full_disk(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
    if mode in ("wb", "ab") and isinstance(file, str) and os.path.exists(FLAG):
        with open_(FLAG) as flag:
            if flag.read() in file:
                return FullFile(file, mode)
    return open_(file, mode, *arguments, **options)


builtins.open = open_on_full_disk
fcntl.flock, os.fsync, os.symlink = flock_there, fsync_there, symlink_there
