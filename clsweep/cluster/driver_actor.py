"""The results folder and the mailbox for trials on other machines: an actor beside the driver.

The results folder may be a folder of that machine alone, or an object store that lets in that
machine alone. A trial beside the driver uses the folder directly.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clsweep.catalog.rows import Row
from clsweep.cluster.schedulers.asha import AshaConfig, AshaScheduler
from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder, checkpoint_file, encoder_file
from clsweep.results.weights import about_encoder, pack_weights

NAMESPACE = "clsweep"


class FolderUnreachableError(RequestError):
    """A trial's file could not be written or read: the study stops, as for a row that cannot be."""


class DriverActor:
    """The actor: calls of the mailbox, of the results folder and of the ASHA scheduler."""

    def __init__(
        self, path: str, run: str | None, journal: str, config: AshaConfig | None, scratch: str
    ):
        self._folder, self._scratch = ResultsFolder(path, run), scratch
        self._scheduler = AshaScheduler(journal, config) if config else None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A function of `mailbox`, in the folder of the driver's machine."""
        return function(self._scratch, *arguments)

    def file(self, method: str, *arguments: Any) -> Any:
        """A method of the results folder."""
        return getattr(self._folder, method)(*arguments)

    def may_go_on(self, objective: str, config: int, seed: int, epoch: int, score: float) -> bool:
        return self._scheduler is None or self._scheduler.may_go_on(
            objective, config, seed, epoch, score
        )


@contextlib.contextmanager
def started_actor(
    folder: ResultsFolder, config: AshaConfig | None, *, needed: bool
) -> Iterator[str | None]:
    """The name of this run's actor for the time of the run; None if no trial needs one."""
    if not needed:
        yield None
        return
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(node_id(), soft=False)
    options = {"max_restarts": -1, "max_task_retries": 3, "scheduling_strategy": here}
    name = f"clsweep-run-{uuid.uuid4().hex}"
    remote = ray.remote(num_cpus=0, **options)(DriverActor).options(name=name, namespace=NAMESPACE)
    place = folder.local_path or folder.path
    actor = remote.remote(place, folder.held.run, folder.journal_path, config, folder.scratch)
    try:
        yield name
    finally:
        ray.kill(actor)  # nobody writes to the folder once its run has ended


def node_id() -> str:
    """Ray's id of this machine."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def call(driver: str, method: str, *arguments: Any) -> Any:
    """The result of a method of a run's actor.

    Raises:
        FolderUnreachableError: the actor, or a call of the folder, failed.
    """
    import ray

    try:
        actor = ray.get_actor(driver, namespace=NAMESPACE)
        return ray.get(getattr(actor, method).remote(*arguments))
    except (ray.exceptions.RayError, ValueError) as error:  # ValueError: no such actor
        raise FolderUnreachableError(_reason(error)) from None


@dataclass(frozen=True)
class TrialFiles:
    """A trial's files in the results folder; the checkpoints' side is what `train_trial` takes.

    Args:
        path: the results folder.
        run: which holds it.
        driver: name of the run's actor, where the folder is on another machine; else None.
    """

    path: str
    run: str | None
    driver: str | None
    trial_id: str

    def load(self) -> bytes | None:
        return self._do("checkpoint", self.trial_id)

    def save(self, payload: bytes) -> None:
        self._do("write", checkpoint_file(self.trial_id), payload)

    def keep_encoder(self, row: Row, weights: Mapping[str, Any], normalisation: Row) -> None:
        """Keep an encoder, a state dict on the CPU; on the disk when this returns."""
        arrays = {name: tensor.numpy() for name, tensor in weights.items()}
        payload = pack_weights(arrays, about_encoder(row, normalisation))
        self._do("write", encoder_file(self.trial_id), payload)

    def _do(self, method: str, *arguments: Any) -> Any:
        if self.driver is not None:
            return call(self.driver, "file", method, *arguments)
        try:
            return getattr(ResultsFolder(self.path, self.run), method)(*arguments)
        except RequestError as error:
            raise FolderUnreachableError(_reason(error)) from None


def _reason(error: BaseException) -> str:
    return str(getattr(error, "cause", None) or error).strip().splitlines()[0]
