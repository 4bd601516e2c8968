"""The contrastive losses beside lightly's: seconds and peak memory of forward and backward, from
raw projections.

Both normalise inside of what is measured. Times are medians of runs in turn; each peak is that of a
process of its own, above what that process held before. Times mean little on a machine that is
busy, so its load is quoted too.

A last row has what it takes to draw negatives for every anchor of a batch, as EqCo does.

    python tests/benchmarks/losses.py [--samples 256 4096] [--threads 1 2] [--dim 128] [--repeats 5]
"""

from __future__ import annotations

import ctypes
import gc
import os
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from _machine import in_turn, machine, milliseconds, options, seconds
from _work import config_of
from torch import Tensor

from clsweep.display.printing import print_table
from clsweep.objective.build import build_objective
from clsweep.objective.losses import dcl, dclw, infonce
from clsweep.train.memory import PeakMemory

TAU = 0.1
OURS = {"infonce": infonce, "dcl": dcl, "dclw": dclw}
SIDES = ("ours", "lightly")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def value_of(side: str, loss: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss of projections of any length."""
    if side == "ours":
        return lambda x1, x2: OURS[loss](F.normalize(x1, dim=1), F.normalize(x2, dim=1), TAU)
    import lightly.loss

    peers = {
        "infonce": lightly.loss.NTXentLoss,
        "dcl": lightly.loss.DCLLoss,
        "dclw": lightly.loss.DCLWLoss,
    }
    peer: Callable[[Tensor, Tensor], Tensor] = peers[loss](temperature=TAU)
    return peer


def step(side: str, loss: str) -> Callable[[Tensor, Tensor], None]:
    """Forward and backward."""
    value = value_of(side, loss)
    return lambda x1, x2: value(x1, x2).backward()


def difference(loss: str, num_samples: int, dim: int) -> float:
    """Between the sides, of the gradients: the largest, as a share of the largest gradient."""
    inputs = projections(num_samples, dim)
    ours, theirs = (torch.autograd.grad(value_of(s, loss)(*inputs), inputs) for s in SIDES)
    pairs = zip(ours, theirs, strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def projections(num_samples: int, dim: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    base, noise1, noise2 = torch.randn(3, num_samples, dim, generator=generator)
    return tuple((base + noise).to(DEVICE).requires_grad_() for noise in (noise1, noise2))


def once(run: Callable[[Tensor, Tensor], None], x1_ND: Tensor, x2_ND: Tensor) -> None:
    x1_ND.grad = x2_ND.grad = None
    run(x1_ND, x2_ND)
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def median_seconds(loss: str, num_samples: int, dim: int, repeats: int) -> dict[str, float]:
    inputs = projections(num_samples, dim)
    runs = {side: step(side, loss) for side in SIDES}
    sides = {
        side: lambda run=run: seconds(lambda: once(run, *inputs)) for side, run in runs.items()
    }
    slowest = max(max(times) for times in in_turn(sides, 2).values())
    times = in_turn(sides, max(repeats, int(0.5 / slowest)))  # small sizes repeat for a second
    return {side: statistics.median(t) for side, t in times.items()}


def peak_mib(side: str, loss: str, num_samples: int, dim: int, threads: int) -> float:
    words = ["--child", side, loss, *map(str, (num_samples, dim, threads))]
    # Freed memory goes back to the system at once: what a warm-up leaves behind would hide the
    # peak.
    env = os.environ | {
        "MALLOC_TRIM_THRESHOLD_": "0",
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_TOP_PAD_": "0",
    }
    command = [sys.executable, __file__, *words]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def child(side: str, loss: str, num_samples: int, dim: int, threads: int) -> None:
    torch.set_num_threads(threads)
    inputs, run = projections(num_samples, dim), step(side, loss)
    for _ in range(2):  # code and work space that is loaded once
        once(run, *inputs)
    inputs[0].grad = inputs[1].grad = None
    gc.collect()
    if DEVICE.type == "cpu":
        ctypes.CDLL(None).malloc_trim(0)
    memory = PeakMemory(DEVICE)
    before = memory.peak_gib()
    once(run, *inputs)
    after = memory.peak_gib()
    assert before is not None
    assert after is not None, "this system does not tell the peak"
    print((after - before) * 1024)


def compared(
    loss: str, num_samples: int, dim: int, threads: int, repeats: int
) -> dict[str, object]:
    torch.set_num_threads(threads)
    s = median_seconds(loss, num_samples, dim, repeats)
    mib = {side: peak_mib(side, loss, num_samples, dim, threads) for side in SIDES}
    return {
        "loss": loss,
        "N": num_samples,
        "threads": threads,
        "ours ms": 1000 * s["ours"],
        "lightly ms": 1000 * s["lightly"],
        "times faster": s["lightly"] / s["ours"],
        "ours MiB": mib["ours"],
        "lightly MiB": mib["lightly"],
        "times less": mib["lightly"] / max(mib["ours"], 0.01),
        "difference": difference(loss, num_samples, dim),
    }


def drawn_negatives(num_samples: int, num_negatives: int) -> dict[str, object]:
    """CPU time between networks and loss: of unit vectors, and of the draws of two views."""
    config = config_of("conv4-16", 32, num_samples, "fp32", loss="eqco",
                       num_negatives=num_negatives)  # fmt: skip
    objective, generator = build_objective(config), torch.Generator().manual_seed(0)
    embeddings = {"online": dict(enumerate(projections(num_samples, 128)))}
    ms = milliseconds(lambda: objective.prepare(embeddings, generator), torch.device("cpu"))
    return {"N": num_samples, "K": num_negatives, "threads": torch.get_num_threads(), "CPU ms": ms}


def main() -> None:
    arguments = options(__doc__, samples=[256, 4096], threads=[1, 2], dim=128, repeats=5, child=[])
    warnings.simplefilter("ignore")  # lightly builds its weights with torch.tensor(tensor)
    if arguments.child:
        side, loss, *numbers = arguments.child
        child(side, loss, *map(int, numbers))
        return
    rows = [
        compared(loss, num_samples, arguments.dim, threads, arguments.repeats)
        for threads in arguments.threads
        for loss in OURS
        for num_samples in arguments.samples
    ]
    print_table(rows, title=f"\nForward and backward, D = {arguments.dim}, float32, on {machine()}")
    torch.set_num_threads(1)
    print_table([drawn_negatives(max(arguments.samples), min(256, max(arguments.samples)))],
                title="\nDrawing negatives for every anchor")  # fmt: skip


if __name__ == "__main__":
    main()
