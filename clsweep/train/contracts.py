"""Contracts that every trial relies on, tried on a configuration: a sound part keeps them.

Each contract is a function that raises where it is broken.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from clsweep.catalog import COMPONENT, DIAGNOSTIC, METRIC, plugin_guard
from clsweep.catalog.plugins import Plugin, active, error_line, plug_in
from clsweep.catalog.rows import Row
from clsweep.data.datasets import load_splits
from clsweep.data.locations import DataPlace
from clsweep.errors import UserError
from clsweep.objective.framework import Embeddings, Losses
from clsweep.train.checkpoints import Checkpoints
from clsweep.train.collectives import distributed, world_size
from clsweep.train.images import Batch, batches, scored_images
from clsweep.train.loop import accumulate_gradient, begin_epoch, embed, train_trial
from clsweep.train.state import TrialState, new_state

# of the machine, not of the trial
_MEASURED = (
    "time_s", "images_per_s", "peak_memory_gib", "earlier_s", "compile_s", "num_resumes"
)  # fmt: skip
WORLDS_TOLERANCE = 1e-3  # relative, of some steps in float32 summed in another order
# Of a gradient: behind batch norms such sums differed by 1.02e-3 on an AMD EPYC, by less on a Xeon.
_GRADIENT_TOLERANCE = 3e-3
BF16_TOLERANCE = 0.05  # 8 bits, through some layers and their batch norms
NUM_STEPS = 3
_TIMEOUT_S = 240.0


class BrokenContractError(UserError):
    """A contract that does not hold: what was expected, and what was given."""


def _changes_nothing(
    config: Mapping[str, Any], place: DataPlace, column: str, undisturbed: list[Row]
) -> None:
    table: dict[str, Any] = DIAGNOSTIC if column in DIAGNOSTIC else METRIC
    before, _ = {**table}, table.pop(column)
    own = column, "hits", "histograms"
    try:
        _require_same(_rows(config, place), undisturbed, f"a trial without {column}", own)
    finally:
        table.clear()
        table.update(before)


def _resumes(config: Mapping[str, Any], place: DataPlace, undisturbed: list[Row]) -> None:
    for kill_at in (1, 0):  # after the first epoch, and after its first step
        store = _Store(is_last=kill_at == 0)
        _rows(config, place, store, kill_at=kill_at)
        if store.payload is None and not COMPONENT["framework"][config["framework"]].is_trainer:
            raise BrokenContractError("expected a checkpoint of the first epoch, found none")
        _require_same(_rows(config, place, store), undisturbed, "a trial that went on")


def check_contracts(
    config: Mapping[str, Any],
    place: DataPlace,
    *,
    column: str = "",
    of_steps: bool = False,
    tell: Callable[[str], object] = str,
) -> Iterator[tuple[str, str]]:
    """Try the contracts one after another; behind a first one that is broken none is tried.

    Args:
        config: a row of the plan, of two epochs.
        column: a score or diagnostic that the trial must have.
        of_steps: try the contracts of single steps too, also with two workers.
        tell: hears of each contract before it is tried.

    Yields:
        What a contract says, and why it is broken; empty if it holds.
    """
    undisturbed: list[Row] = []

    def trains() -> None:
        compared = plugin_guard.compares.set(True)
        try:
            undisturbed.extend(_rows(config, place))
        finally:
            plugin_guard.compares.reset(compared)
        result = undisturbed[-1]
        if column and result.get(column) is None:
            raise BrokenContractError(f"expected a number in {column}, given none")
        for name, value in result.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise BrokenContractError(f"{name}: expected a finite number, given {value}")

    def repeats() -> None:
        _require_same(_rows(config, place), undisturbed, "a second trial")

    contracts: dict[str, Callable[[], None]] = {
        "trains, and all numbers are finite": trains,
        "the same trial gives the same numbers": repeats,
        "killed and resumed it ends the same": partial(_resumes, config, place, undisturbed),
    }
    if column:
        changes_nothing = partial(_changes_nothing, config, place, column, undisturbed)
        contracts["it changes nothing of the trial"] = changes_nothing
    if of_steps:
        contracts |= {
            "in chunks it has the gradient of one pass": lambda: _goes_in_chunks(config, place),
            "the loss has finite gradients": lambda: _gives_gradients(config, place),
            "half precision gives the loss of float32": lambda: _bears_half(config, place),
            "two workers train as one": lambda: _spreads(config, place),
        }
    for name, contract in contracts.items():
        tell(name)
        failure = _failure(contract, config)
        yield name, failure
        if failure and contract is trains:
            return


def counts(
    config: Mapping[str, Any], place: DataPlace, name: str, others: Sequence[object], column: str
) -> str:
    """Why a hyperparameter does not count: trials with other values of it end the same, or one
    fails; empty if it counts. It is to change the `column` of a metric, or of another part anything
    but columns of the user's own, which may heed what the part ignores.
    """
    columns: list[Any] = [*METRIC.values(), *DIAGNOSTIC.values()]
    own = [row.name for row in columns if row.impl and not row.impl.startswith("clsweep.")]

    def is_heard(name: str) -> bool:
        return name == column if column else name not in own

    def heard(rows: Sequence[Row]) -> list[Row]:
        return [
            {name: value for name, value in row.items() if is_heard(name) and name != "hits"}
            | {"hits": [hit for hit in row.get("hits", ()) if is_heard(hit["metric"])]}
            for row in rows
        ]

    def compare() -> None:
        plain = heard(_rows(config, place))
        for other in others:
            changed = heard(_rows({**config, name: other}, place))
            try:
                _require_same(changed, plain, "a trial", without=(name, f"{name}_peak"))
            except BrokenContractError:
                return
        given = f"{', '.join(map(str, (config[name], *others[:-1])))} and {others[-1]}"
        raise BrokenContractError(f"expected other numbers, given the same with {name} = {given}")

    return _failure(compare, config)


def _failure(contract: Callable[[], None], config: Mapping[str, Any]) -> str:
    """An error in one line, with its place in a plug-in if it has one."""
    try:
        contract()
    except Exception as error:
        return error_line(error, config.get("loss", ""))
    return ""


class _KilledError(BaseException):
    """Nothing catches a kill."""


@dataclass
class _Store:
    """A checkpoint that is kept; `is_last` of all that its process does, and asked for at once."""

    is_last: bool = False
    payload: bytes | None = None

    def load(self) -> bytes | None:
        return self.payload

    def save(self, payload: bytes) -> None:
        self.payload = payload
        if self.is_last:
            self.is_last = False
            raise _KilledError


def _rows(
    config: Mapping[str, Any], place: DataPlace, store: _Store | None = None, kill_at: int = 0
) -> list[Row]:
    """The rows that a trial reports, and its result, if it is not killed at an epoch."""
    rows: list[Row] = []

    def report(row: Row) -> None:
        rows.append(dict(row))
        if row["epoch"] == kill_at:
            raise _KilledError

    checkpoints = Checkpoints(store, every_s=0.0) if store else None
    if store and checkpoints and store.is_last:
        checkpoints.save_request.give()
    with contextlib.suppress(_KilledError):
        rows.append(train_trial(config, report, place=place, checkpoints=checkpoints))
    return rows


def _require_same(
    actual: list[Row], expected: list[Row], noun: str, without: Sequence[str] = ()
) -> None:
    """All numbers and weights, bit for bit."""
    for row, wanted in zip(actual, expected, strict=True):
        for name, value in (dict.fromkeys(row) | wanted).items():
            if name not in (*_MEASURED, *without) and not _is_same(row.get(name), value):
                shown = "other values" if isinstance(value, dict | list) else row.get(name)
                given = "" if isinstance(value, dict | list) else f" {value}"
                raise BrokenContractError(f"{name}: expected{given} of {noun} too, given {shown}")


def _is_same(actual: Any, wanted: Any) -> bool:
    if isinstance(wanted, Tensor):
        return isinstance(actual, Tensor) and torch.equal(actual, wanted)
    if isinstance(wanted, dict):
        return actual.keys() == wanted.keys() and all(
            _is_same(actual[k], wanted[k]) for k in wanted
        )
    return bool(actual == wanted)


@dataclass(frozen=True)
class Steps:
    """The loss of each step, and of the first the gradient by parameter, and buffers after it."""

    losses: list[float]
    gradient: dict[str, Tensor]
    buffers: dict[str, Tensor]

    def require_finite(self) -> None:
        for name, gradient in self.gradient.items():
            if not torch.isfinite(gradient).all():
                raise BrokenContractError(f"expected finite gradients, given others of {name}")


def _gives_gradients(config: Mapping[str, Any], place: DataPlace) -> None:
    steps = take_steps(config, place)
    steps.require_finite()
    if not any(g.abs().max() for g in steps.gradient.values()):
        raise BrokenContractError("expected a gradient, given zeros: does the loss see its inputs?")


def _bears_half(config: Mapping[str, Any], place: DataPlace) -> None:
    exact, half = (
        take_steps({**config, "precision": name}, place, count=1) for name in ("fp32", "bf16")
    )
    half.require_finite()
    (loss,), (wanted,) = half.losses, exact.losses
    if not abs(loss - wanted) <= BF16_TOLERANCE * (1 + abs(wanted)):
        raise BrokenContractError(f"loss: expected about {wanted:.4g} in bf16, given {loss:.4g}")


def _goes_in_chunks(config: Mapping[str, Any], place: DataPlace) -> None:
    halves = {**config, "chunk_size": config["batch_size"] // 2}
    chunked = take_steps(halves, place, count=1)
    wanted = take_steps(halves, place, count=1, accumulate=in_one_graph)
    _require_alike(chunked.gradient, wanted.gradient, "gradient of {}: expected that of one pass")
    _require_alike(chunked.buffers, wanted.buffers, "buffer {}: expected to be changed once")


def _require_alike(actual: Mapping[str, Tensor], wanted: Mapping[str, Tensor], what: str) -> None:
    """All tensors, up to rounding of them all."""
    size = math.sqrt(sum(float(x.double().square().sum()) for x in wanted.values()))
    for name, x in wanted.items():
        if not float((actual[name] - x).double().norm()) <= _GRADIENT_TOLERANCE * size:
            raise BrokenContractError(what.format(name))


def _spreads(config: Mapping[str, Any], place: DataPlace) -> None:
    alone = take_steps(config, place)
    for worker in take_steps_of_two(config, place):
        for loss, wanted in zip(worker.losses, alone.losses, strict=True):
            if not abs(loss - wanted) <= WORLDS_TOLERANCE * (1e-2 + abs(wanted)):
                raise BrokenContractError(
                    f"loss: expected {wanted:.6g} of two workers too, given {loss:.6g}"
                )
        expected = "gradient of {}: expected that of one worker"
        _require_alike(worker.gradient, alone.gradient, expected)


def take_steps(
    config: Mapping[str, Any],
    place: DataPlace,
    *,
    count: int = NUM_STEPS,
    accumulate: Callable[..., tuple[Embeddings, Losses]] = accumulate_gradient,
) -> Steps:
    """The first steps of a trial, as `train_epoch` takes them; of a group, this worker's."""
    device = torch.device("cpu")
    splits = load_splits(config, place)
    images = scored_images(splits.train, splits, config, device)
    state = new_state(config, device)
    objective = state.objective.train()
    model = distributed(objective) if world_size() > 1 else objective
    so_far = begin_epoch(state, images, None)
    state.begin_epoch()
    losses, gradient, buffers = list[float](), dict[str, Tensor](), dict[str, Tensor]()
    for step, batch in zip(
        range(count), batches(images, config, 0, state.view_generator), strict=False
    ):
        state.optimizer.zero_grad()
        prepared, loss = accumulate(state, model, batch)
        losses.append(float(loss.total.detach()))
        if step == 0:
            named = objective.named_parameters()
            gradient = {n: p.grad.clone() for n, p in named if p.grad is not None}
            buffers = {n: b.clone() for n, b in objective.named_buffers()}
        state.optimizer.step()
        objective.after_step(prepared, (step + 1) / count, state.draw_generator)
        so_far.end_step(None)
    return Steps(losses, gradient, buffers)


def in_one_graph(state: TrialState, model: Any, batch: Batch) -> tuple[Embeddings, Losses]:
    """The gradient of `accumulate_gradient` in one graph of all chunks instead of two passes."""
    parts = [embed(state, model, batch.chunks, number) for number in range(len(batch.chunks))]
    together = {
        kind: {view: torch.cat([part[kind][view] for part in parts]) for view in views}
        for kind, views in parts[0].items()
    }
    state.draw_for("loss")
    prepared = state.objective.prepare(together, state.draw_generator)
    losses = state.objective.loss(prepared, batch.labels_N)
    losses.total.backward()
    return prepared, losses


def start_forks() -> ForkServerContext:
    """The process that workers are forked off, once it runs. It imports what they need, for all of
    them, while this one goes on.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch._dynamo"])  # which distributing loads
    forkserver.ensure_running()
    return context


def take_steps_of_two(config: Mapping[str, Any], place: DataPlace) -> list[Steps]:
    """The steps of each of two workers, which are processes with the plug-ins of this one.

    Raises:
        RuntimeError: one of them fails, in one line.
    """
    context = start_forks()
    with tempfile.TemporaryDirectory(prefix="clsweep-") as name:
        folder = Path(name)
        given = folder, active(), dict(config), place
        workers = [context.Process(target=_work, args=(rank, *given)) for rank in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(_TIMEOUT_S)
            worker.kill()
        failures = [path.read_text() for path in sorted(folder.glob("*.txt"))]
        saved = [folder / f"{rank}.pt" for rank in range(2)]
        if failures or not all(path.exists() for path in saved):
            raise RuntimeError(failures[0] if failures else "a worker died")
        return [Steps(**torch.load(path, weights_only=True)) for path in saved]


def _work(
    rank: int, folder: Path, plugins: Sequence[Plugin], config: Mapping[str, Any], place: DataPlace
) -> None:
    sys.stdout = sys.stderr  # a plug-in may print
    torch.set_num_threads(1)
    place_to_meet, timeout = f"file://{folder / 'store'}", timedelta(seconds=_TIMEOUT_S / 2)
    dist.init_process_group(
        "gloo", init_method=place_to_meet, rank=rank, world_size=2, timeout=timeout
    )
    try:
        plug_in(plugins)
        steps = vars(take_steps(config, place))
    except Exception as error:
        (folder / f"{rank}.txt").write_text(error_line(error))
        os._exit(1)  # the other one need not wait for this one's farewell
    torch.save(steps, folder / f"{rank}.pt")
    dist.destroy_process_group()
