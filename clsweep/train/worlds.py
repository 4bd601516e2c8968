"""Some steps of a trial, by one worker or by two: run as a script, this file is one of the two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from clsweep.catalog.plugins import active, activate, from_json, place_of, to_json
from clsweep.data.availability import DataPlace
from clsweep.data.datasets import load_splits
from clsweep.train.collectives import distributed, world_size
from clsweep.train.images import batches, scored_images
from clsweep.train.state import new_state
from clsweep.train.step import accumulate_gradient

NUM_STEPS = 3
TIMEOUT_S = 240.0


@dataclass(frozen=True)
class Steps:
    """The loss of each step, its shape, and the gradient of the first by parameter."""

    losses: list[float]
    shape: tuple[int, ...]
    gradient: dict[str, Tensor]


def take_steps(config: Mapping[str, Any], place: DataPlace, *, count: int = NUM_STEPS) -> Steps:
    """The first steps of a trial, as `train_epoch` takes them; of a process group, this worker's."""
    device = torch.device("cpu")
    splits = load_splits(config, place)
    images = scored_images(splits.train, splits, config, device)
    state = new_state(config, device)
    objective = state.objective.train()
    model = distributed(objective) if world_size() > 1 else objective
    how = {"precision": state.precision, "generator": state.draw_generator, "scaler": state.scaler}
    objective.begin_epoch(0)
    losses, shape, gradient = list[float](), tuple[int, ...](), dict[str, Tensor]()
    for step, batch in zip(
        range(count), batches(images, config, 0, state.view_generator), strict=False
    ):
        state.optimizer.zero_grad()
        prepared, found = accumulate_gradient(model, batch, **how)
        losses.append(float(found.total.detach()))
        if step == 0:
            shape = tuple(found.total.shape)
            named = objective.named_parameters()
            gradient = {n: p.grad.clone() for n, p in named if p.grad is not None}
        state.optimizer.step()
        objective.after_step(prepared, (step + 1) / count, state.draw_generator)
    return Steps(losses, shape, gradient)


def two_workers(config: Mapping[str, Any], place: DataPlace) -> list[Steps]:
    """What each of two workers gets, which are processes of their own with this one's plug-ins.

    Raises:
        RuntimeError: one of them fails, in one line.
    """
    with tempfile.TemporaryDirectory(prefix="clsweep-") as folder:
        (Path(folder) / "plugins.json").write_bytes(to_json(active()))
        (Path(folder) / "config.json").write_text(json.dumps([dict(config), asdict(place)]))
        workers = [_started(folder, rank) for rank in range(2)]
        try:
            said = [worker.communicate(timeout=TIMEOUT_S)[1] for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
        for worker, text in zip(workers, said, strict=True):
            if worker.returncode:
                raise RuntimeError((text.splitlines() or ["a worker died"])[-1])
        found = [torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in range(2)]
    return [Steps(**each) for each in found]


def _started(folder: str, rank: int) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-m", "clsweep.train.worlds", folder, str(rank)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _work(folder: Path, rank: int) -> None:
    activate(from_json((folder / "plugins.json").read_bytes()))
    config, place = json.loads((folder / "config.json").read_text())
    store = dist.FileStore(str(folder / "store"), 2)
    timeout = timedelta(seconds=TIMEOUT_S / 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timeout)
    torch.save(vars(take_steps(config, DataPlace(**place))), folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        _work(Path(sys.argv[1]), int(sys.argv[2]))
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        place = place_of(error)
        sys.exit(f"{place}{': ' if place else ''}{type(error).__name__}: {reason}")
