"""Memory of one trial, also where several trials run in one process after another: its peak, its
reuse, its share of a GPU, and what went wrong when it ran out.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

import torch

from clsweep.catalog.known_gpus import CONTEXT_BYTES
from clsweep.display.numbers import byte_size, setting
from clsweep.errors import RequestError
from clsweep.train.device import trial_device
from clsweep.train.images import are_resident, images_on

_MMAP_MAX, _TRIM_THRESHOLD = -4, -1  # of glibc's mallopt
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
# How torch, its CPU allocator and the libraries under it say that there is no memory left. cuBLAS
# that does not start, and cuDNN that has no way to convolve, mostly lack their workspace.
_EXHAUSTED = re.compile(
    "out of memory|can't allocate memory|not enough memory|cannot allocate memory|bad_alloc"
    "|STATUS_ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED"
    "|unable to find an engine|unable to find a valid cudnn algorithm",
    re.IGNORECASE,
)
_HELPS = "What helps: a smaller batch_size, a smaller chunk_size where it goes in chunks,"
_OF_IMAGES = "the images on the host (resources.images_on=host),"
_OF_A_GPU = "or more workers or a larger share of the GPU (resources.gpus_per_worker)"
_OF_A_MACHINE = "or fewer trials at once (--max-concurrent), which share the machine's memory"


def keep_freed_memory() -> None:
    """Let glibc reuse freed memory: it would map every tensor above 32 MiB anew, with a page fault
    each 4 KiB.

    By measurement a fifth to a third of a CPU step. What the process has kept goes back when the
    next trial starts.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # another C library
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


class PeakMemory:
    """Counts from its construction: what PyTorch reserves on a GPU, resident memory on a CPU."""

    def __init__(self, device: torch.device):
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)  # what an earlier trial of this process left free is none of this one's
        try:
            _RESET.write_text("5")  # resets the high-water mark of this process
            self._measurable = True
        except OSError:
            self._measurable = False

    def peak_gib(self) -> float | None:
        """Peak in GiB, or None where the system does not tell."""
        if self._device.type == "cuda":
            return float(torch.cuda.max_memory_reserved(self._device)) / 2**30
        if not self._measurable:
            return None
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**20


class OutOfMemoryError(RuntimeError):
    """A trial needs more memory than it has; equal failures are alike.

    beside_images: on a GPU where its images lie too.
    """

    beside_images = False


def _torchs(share: float, device: torch.device) -> float:
    """Of a share of a GPU what torch may allocate; of a whole one all, as nobody else is there."""
    if share >= 1:
        return 1.0
    _, total = torch.cuda.mem_get_info(device)
    context = CONTEXT_BYTES / total
    if share <= context:
        raise RequestError(
            f"resources.gpus_per_worker: expected more than {context:.2f} of this GPU, which a "
            f"process takes for itself ({byte_size(CONTEXT_BYTES)} of {byte_size(total)}), given "
            f"{setting(share)}. Nearest that leaves as much to a trial: {2 * context:.2f}"
        )
    return share - context


@contextlib.contextmanager
def limited_memory(
    device: str | torch.device, gpus_per_worker: float, where: str = "auto"
) -> Iterator[None]:
    """Hold a trial to its share of the GPU, so that one that does not fit fails alone, have its
    images where they shall be, see `images_on`, and say in a user's words what helps.

    Raises:
        OutOfMemoryError: in place of what torch, numpy or Python raise.
        RequestError: the share holds no process at all.
    """
    device = trial_device(device)
    if device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(_torchs(gpus_per_worker, device), device)
    try:
        with images_on(where):
            yield
    except (MemoryError, RuntimeError) as error:
        if not (
            isinstance(error, MemoryError | torch.OutOfMemoryError) or _EXHAUSTED.search(str(error))
        ):
            raise
        beside_images = are_resident()
        helps = [_HELPS, *[_OF_IMAGES] * beside_images]
        helps.append(_OF_A_GPU if device.type == "cuda" else _OF_A_MACHINE)
        failure = OutOfMemoryError(f"out of memory. {' '.join(helps)}")
        failure.beside_images = beside_images
        raise failure from error
