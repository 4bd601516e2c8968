"""Some steps of a trial, by one worker or by two, which this file forks where it is a script."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from clsweep.catalog.plugins import Plugin, activate, active, place_of, to_json
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
    """The loss of each step, and the gradient of the first by parameter."""

    losses: list[float]
    gradient: dict[str, Tensor]


def take_steps(config: Mapping[str, Any], place: DataPlace, *, count: int = NUM_STEPS) -> Steps:
    """The first steps of a trial, as `train_epoch` takes them; of a group, this worker's."""
    device = torch.device("cpu")
    splits = load_splits(config, place)
    images = scored_images(splits.train, splits, config, device)
    state = new_state(config, device)
    objective = state.objective.train()
    model = distributed(objective) if world_size() > 1 else objective
    how: dict[str, Any] = {
        "precision": state.precision,
        "generator": state.draw_generator,
        "scaler": state.scaler,
    }
    objective.begin_epoch(0)
    losses, gradient = list[float](), dict[str, Tensor]()
    for step, batch in zip(
        range(count), batches(images, config, 0, state.view_generator), strict=False
    ):
        state.optimizer.zero_grad()
        prepared, found = accumulate_gradient(model, batch, **how)
        losses.append(float(found.total.detach()))
        if step == 0:
            named = objective.named_parameters()
            gradient = {n: p.grad.clone() for n, p in named if p.grad is not None}
        state.optimizer.step()
        objective.after_step(prepared, (step + 1) / count, state.draw_generator)
    return Steps(losses, gradient)


class TwoWorkers:
    """Two workers for steps of one trial after another, with the plug-ins of this process. They are
    forked off a process that imports everything once, from the beginning of the context on.
    """

    def __enter__(self) -> Self:
        path = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "clsweep.train.worlds"],
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def take_steps(self, config: Mapping[str, Any], place: DataPlace) -> list[Steps]:
        """What each of the two workers gets.

        Raises:
            RuntimeError: one of them fails, in one line.
        """
        with tempfile.TemporaryDirectory(prefix="clsweep-") as name:
            folder = Path(name)
            (folder / "plugins.json").write_bytes(to_json(active()))
            (folder / "config.json").write_text(json.dumps([dict(config), asdict(place)]))
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            print(folder, file=self._process.stdin, flush=True)
            self._process.stdout.readline()
            failures = [path.read_text() for path in sorted(folder.glob("*.txt"))]
            saved = [folder / f"{rank}.pt" for rank in range(2)]
            if failures or not all(path.exists() for path in saved):
                raise RuntimeError(failures[0] if failures else "a worker died")
            return [Steps(**torch.load(path, weights_only=True)) for path in saved]


def _serve() -> None:
    """Answer each folder that the input names when both workers have ended."""
    torch.set_num_threads(1)
    replies, sys.stdout = sys.stdout, sys.stderr  # a plug-in may print
    context = multiprocessing.get_context("fork")
    for line in sys.stdin:
        folder = Path(line.rstrip("\n"))
        workers = [
            context.Process(target=_work, args=(folder, rank), daemon=True) for rank in range(2)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(TIMEOUT_S)
            worker.kill()
        print("ended", file=replies, flush=True)


def _work(folder: Path, rank: int) -> None:
    plugins = json.loads((folder / "plugins.json").read_bytes())
    activate([Plugin.unpacked(packed) for packed in plugins])
    config, place = json.loads((folder / "config.json").read_text())
    place_to_meet, timeout = f"file://{folder / 'store'}", timedelta(seconds=TIMEOUT_S / 2)
    dist.init_process_group(
        "gloo", init_method=place_to_meet, rank=rank, world_size=2, timeout=timeout
    )
    try:
        found = vars(take_steps(config, DataPlace(**place)))
    except Exception as error:
        reason, at = (str(error).strip().splitlines() or [""])[0], place_of(error)
        text = f"{at}{': ' if at else ''}{type(error).__name__}: {reason}"
        (folder / f"{rank}.txt").write_text(text)
        os._exit(1)  # the other one need not wait for this one's farewell
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    _serve()
