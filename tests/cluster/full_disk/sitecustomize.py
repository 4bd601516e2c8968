"""On PYTHONPATH, a disk that is full: every Python of a study, its trials' too, imports this before
anything else.

While the file exists that CLSWEEP_TEST_FULL_DISK names, what is written to a path with the text in
that file in it is cut in the middle and refused.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
from typing import Any

FLAG = os.environ["CLSWEEP_TEST_FULL_DISK"]
open_ = builtins.open


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
