"""The driver's desk: an actor on the driver's machine, where trials on other machines leave files
and ask questions.

The results folder may be a folder of that machine alone, or an object store that lets in that
machine alone: trials elsewhere reach it through the desk. A trial beside the driver uses the folder
directly.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clsweep.catalog.rows import Row
from clsweep.cluster.asha import Judge, Rules
from clsweep.cluster.said import ask_to_save, report, say
from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder
from clsweep.results.weights import about_encoder, pack

NAMESPACE = "clsweep"


class FolderUnreachableError(RequestError):
    """A trial's file could not be written or read: the study stops, as for a row that cannot be
    written.
    """


class Desk:
    """What the actor does."""

    def __init__(self, path: str, run: str | None, journal: str, rules: Rules | None, scratch: str):
        self._folder, self._scratch = ResultsFolder(path, run), scratch
        self._judge = Judge(journal, rules) if rules else None

    def say(self, trial_id: str, state: Row, saved: str = "") -> str:
        return say(self._scratch, trial_id, state, saved)

    def report(self, trial_id: str, epoch: Row, is_first: bool) -> None:
        report(self._scratch, trial_id, epoch, is_first=is_first)

    def ask_to_save(self, demand: str) -> None:
        ask_to_save(self._scratch, demand)

    def checkpoint(self, trial_id: str) -> bytes | None:
        return self._folder.checkpoint(trial_id)

    def add_checkpoint(self, trial_id: str, payload: bytes) -> None:
        self._folder.add_checkpoint(trial_id, payload)

    def add_encoder(self, trial_id: str, payload: bytes) -> None:
        self._folder.add_encoder(trial_id, payload)

    def may_go_on(self, objective: str, config: int, seed: int, epoch: int, score: float) -> bool:
        return self._judge is None or self._judge.may_go_on(objective, config, seed, epoch, score)


@contextlib.contextmanager
def desk_here(folder: ResultsFolder, rules: Rules | None, *, needed: bool) -> Iterator[str | None]:
    """The name of this run's desk for the time of the run; None if nobody will come to it."""
    if not needed:
        yield None
        return
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(node_id(), soft=False)
    options = {
        "num_cpus": 0,
        "max_restarts": -1,
        "max_task_retries": 3,
        "scheduling_strategy": here,
    }
    name = f"clsweep-run-{uuid.uuid4().hex}"
    desk = ray.remote(**options)(Desk).options(name=name, namespace=NAMESPACE)
    place = folder.local_path or folder.path
    actor = desk.remote(place, folder.held.run, folder.journal_path, rules, folder.scratch)
    try:
        yield name
    finally:
        ray.kill(actor)  # nobody writes to the folder once its run has ended


def node_id() -> str:
    """Ray's id of this machine."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def ask(desk: str, question: str, *arguments: Any) -> Any:
    """The answer of a run's desk to one of its methods.

    Raises:
        FolderUnreachableError: the desk, or what it does with the folder, failed.
    """
    import ray

    try:
        return ray.get(
            getattr(ray.get_actor(desk, namespace=NAMESPACE), question).remote(*arguments)
        )
    except (ray.exceptions.RayError, ValueError) as error:  # ValueError: no such actor
        raise FolderUnreachableError(_reason(error)) from None


@dataclass(frozen=True)
class TrialFiles:
    """The files of one trial in the results folder; the checkpoints' side is what `train_trial`
    takes.

    Args:
        path: the results folder.
        run: which holds it.
        desk: of the run, where the folder is on another machine; else None.
    """

    path: str
    run: str | None
    desk: str | None
    trial_id: str

    def load(self) -> bytes | None:
        payload: bytes | None = self._do("checkpoint")
        return payload

    def save(self, payload: bytes) -> None:
        self._do("add_checkpoint", payload)

    def keep_encoder(self, row: Row, weights: Mapping[str, Any], normalisation: Row) -> None:
        """Keep an encoder, a state dict on the CPU; on the disk when this returns."""
        arrays = {name: tensor.numpy() for name, tensor in weights.items()}
        self._do("add_encoder", pack(arrays, about_encoder(row, normalisation)))

    def _do(self, method: str, *arguments: Any) -> Any:
        if self.desk is not None:
            return ask(self.desk, method, self.trial_id, *arguments)
        try:
            return getattr(ResultsFolder(self.path, self.run), method)(self.trial_id, *arguments)
        except RequestError as error:
            raise FolderUnreachableError(_reason(error)) from None


def _reason(error: BaseException) -> str:
    return str(getattr(error, "cause", None) or error).strip().splitlines()[0]
