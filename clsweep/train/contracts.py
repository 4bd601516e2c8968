"""What every trial relies on, tried on a configuration: a part of one's own is sound if it holds.

Each contract is a function that raises where it is broken. Two workers are two processes,
which this file forks where it is a script.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from clsweep.catalog import COMPONENT
from clsweep.catalog.plugins import Plugin, activate, active, execute, place_of
from clsweep.catalog.rows import Row
from clsweep.data.availability import DataPlace
from clsweep.data.datasets import load_splits
from clsweep.train.collectives import distributed, world_size
from clsweep.train.images import batches, scored_images
from clsweep.train.loop import accumulate_gradient, train_trial
from clsweep.train.state import new_state

# of the machine, not of the trial
MEASURED = ("time_s", "images_per_s", "peak_memory_gib", "earlier_s", "num_resumes")
WORLDS_TOLERANCE = 1e-3  # relative, of some steps in float32 summed in another order
BF16_TOLERANCE = 0.05  # 8 bits, through some layers and their batch norms


class BrokenContractError(Exception):
    """What was expected, and what was found."""


@dataclass(frozen=True)
class Verdict:
    """One contract: what it says, and why it is broken; nothing if it holds."""

    contract: str
    failure: str = ""


@dataclass
class _Tried:
    """A configuration, and what several contracts look at."""

    config: Mapping[str, Any]
    place: DataPlace
    column: str
    workers: TwoWorkers | None
    undisturbed: _Attempt | None = None


@dataclass
class _Attempt:
    rows: list[Row] = field(default_factory=list)
    result: Row = field(default_factory=dict)


def check_contracts(
    config: Mapping[str, Any],
    place: DataPlace,
    *,
    column: str = "",
    workers: TwoWorkers | None = None,
) -> Iterator[Verdict]:
    """Try the contracts one after another; behind a first one that is broken none is tried.

    Args:
        config: a row of the plan, of two epochs.
        column: a score or diagnostic that the trial must have.
        workers: try the contracts of single steps too.
    """
    tried = _Tried(config, place, column, workers)
    contracts = _OF_TRIALS | (_OF_STEPS if workers else {})
    for number, (name, contract) in enumerate(contracts.items()):
        verdict = Verdict(name, _failure(contract, tried))
        yield verdict
        if verdict.failure and not number:
            return


def counts(config: Mapping[str, Any], place: DataPlace, name: str, other: object) -> str:
    """Why a hyperparameter does not count: a trial with another value of it ends the same, or
    fails; empty if it counts.
    """

    def compared(tried: _Tried) -> None:
        changed = _attempt(replace(tried, config={**config, name: other}))
        if _is_equal(changed, _attempt(tried)):
            given = f"{name} = {config[name]} and {other}"
            raise BrokenContractError(f"expected other numbers, given the same with {given}")

    return _failure(compared, _Tried(config, place, "", None))


def _failure(contract: Callable[[_Tried], None], tried: _Tried) -> str:
    try:
        contract(tried)
    except Exception as error:
        return described(error, tried.config)
    return ""


def described(error: BaseException, config: Mapping[str, Any]) -> str:
    """An error in one line, with its place in a plug-in if it has one."""
    lines = str(error).strip().splitlines() or [""]
    if isinstance(error, BrokenContractError):
        return lines[0]
    loss = COMPONENT["loss"].get(config.get("loss", ""))
    place = place_of(error, loss.impl if loss else "")
    return f"{place}{': ' if place else ''}{type(error).__name__}: {lines[0]}"


# Trials.


def _trains(tried: _Tried) -> None:
    tried.undisturbed = _attempt(tried)
    found = tried.undisturbed.result
    if tried.column and found.get(tried.column) is None:
        raise BrokenContractError(f"expected a number in {tried.column}, given none")
    for name, value in found.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise BrokenContractError(f"{name}: expected a finite number, given {value}")


def _repeats(tried: _Tried) -> None:
    _require_same(_attempt(tried), tried.undisturbed, "a second trial")


def _resumes(tried: _Tried) -> None:
    store = _Store()
    _attempt(tried, store, kill_at=1)
    if store.payload is None:
        raise BrokenContractError("expected a checkpoint of the first epoch, found none")
    _require_same(_attempt(tried, store), tried.undisturbed, "a trial that went on")


class _KilledError(BaseException):
    """Nothing catches a kill."""


class _Store:
    payload: bytes | None = None

    def load(self) -> bytes | None:
        return self.payload

    def save(self, payload: bytes) -> None:
        self.payload = payload


def _attempt(tried: _Tried, store: _Store | None = None, *, kill_at: int = 0) -> _Attempt:
    made = _Attempt()

    def report(row: Row) -> None:
        made.rows.append(dict(row))
        if row["epoch"] == kill_at:
            raise _KilledError

    with contextlib.suppress(_KilledError):
        made.result = train_trial(
            tried.config, report, place=tried.place, checkpoints=store, checkpoint_every_s=0.0
        )
    return made


def _require_same(actual: _Attempt, expected: _Attempt | None, noun: str) -> None:
    """All numbers and weights, bit for bit."""
    assert expected is not None, "the first contract was tried"
    pairs = [*zip(actual.rows, expected.rows, strict=True), (actual.result, expected.result)]
    for found, wanted in pairs:
        for name, value in wanted.items():
            if name not in MEASURED and not _is_same(found.get(name), value):
                shown = "other values" if isinstance(value, dict | list) else found.get(name)
                given = "" if isinstance(value, dict | list) else f" {value}"
                raise BrokenContractError(f"{name}: expected{given} of {noun} too, given {shown}")


def _is_equal(actual: _Attempt, expected: _Attempt) -> bool:
    try:
        _require_same(actual, expected, "a trial")
    except BrokenContractError:
        return False
    return True


def _is_same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Tensor):
        return isinstance(found, Tensor) and torch.equal(found, wanted)
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(_is_same(found[k], wanted[k]) for k in wanted)
    return bool(found == wanted)


# Steps.


def _gives_gradients(tried: _Tried) -> None:
    steps = take_steps(tried.config, tried.place)
    _require_gradients(steps)
    if not any(g.abs().max() for g in steps.gradient.values()):
        raise BrokenContractError("expected a gradient, given zeros: does the loss see its inputs?")


def _require_gradients(steps: Steps) -> None:
    for name, gradient in steps.gradient.items():
        if not torch.isfinite(gradient).all():
            raise BrokenContractError(f"expected finite gradients, given others of {name}")


def _bears_half_precision(tried: _Tried) -> None:
    exact, half = (
        take_steps({**tried.config, "precision": name}, tried.place, count=1)
        for name in ("fp32", "bf16")
    )
    _require_gradients(half)
    (loss,), (wanted,) = half.losses, exact.losses
    if not abs(loss - wanted) <= BF16_TOLERANCE * (1 + abs(wanted)):
        raise BrokenContractError(f"loss: expected about {wanted:.4g} in bf16, given {loss:.4g}")


def _spreads(tried: _Tried) -> None:
    assert tried.workers is not None, "steps are asked for"
    alone = take_steps(tried.config, tried.place)
    for worker in tried.workers.take_steps(tried.config, tried.place):
        for found, wanted in zip(worker.losses, alone.losses, strict=True):
            if not abs(found - wanted) <= WORLDS_TOLERANCE * (1e-2 + abs(wanted)):
                raise BrokenContractError(
                    f"loss: expected {wanted:.6g} of two workers too, given {found:.6g}"
                )
        size = math.sqrt(sum(float(g.square().sum()) for g in alone.gradient.values()))
        for name, gradient in alone.gradient.items():
            if not float((worker.gradient[name] - gradient).norm()) <= WORLDS_TOLERANCE * size:
                raise BrokenContractError(f"gradient of {name}: expected that of one worker")


_OF_TRIALS: dict[str, Callable[[_Tried], None]] = {
    "trains, and all numbers are finite": _trains,
    "the same trial gives the same numbers": _repeats,
    "killed and resumed it ends the same": _resumes,
}
_OF_STEPS: dict[str, Callable[[_Tried], None]] = {
    "the loss has finite gradients": _gives_gradients,
    "half precision gives the loss of float32": _bears_half_precision,
    "two workers train as one": _spreads,
}


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
            [sys.executable, "-m", "clsweep.train.contracts"],
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
            packed = [plugin.packed() for plugin in active()]
            told = json.dumps([packed, dict(config), asdict(place)])
            (folder / "config.json").write_text(told)
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
    packed, config, place = json.loads((folder / "config.json").read_text())
    plugins = [Plugin.unpacked(each) for each in packed]
    activate(plugins)
    place_to_meet, timeout = f"file://{folder / 'store'}", timedelta(seconds=TIMEOUT_S / 2)
    dist.init_process_group(
        "gloo", init_method=place_to_meet, rank=rank, world_size=2, timeout=timeout
    )
    try:
        execute(plugins)
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
