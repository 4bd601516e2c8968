"""One trial on Ray: a Tune trainable around a Ray Train `TorchTrainer` around `train_trial`.

Imports nothing heavy at module level: the driver hands these functions to Ray without loading torch
itself.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from clsweep.catalog.plugins import Plugin, error_place, plug_in
from clsweep.catalog.rows import Row
from clsweep.cluster.driver_actor import FolderUnreachableError, TrialFiles, call, node_id
from clsweep.cluster.error_causes import describe, is_lost, message_of, root_cause
from clsweep.cluster.heartbeat import TrialHeartbeat
from clsweep.cluster.mailbox import append_epoch, request_checkpoints, write_state
from clsweep.cluster.preemption import saved_on_term
from clsweep.cluster.schedulers.asha import AshaConfig
from clsweep.cluster.stall import LONGER
from clsweep.data.locations import DataPlace
from clsweep.display.printing import say
from clsweep.errors import RequestError
from clsweep.study.design import placed_baselines
from clsweep.study.schema import ResourcesSection

if TYPE_CHECKING:
    import torch

    from clsweep.results.folder import ResultsFolder
    from clsweep.study.design import PlannedTrial, Study

LONGEST_WAIT_S = 7 * 24 * 3600.0  # of one worker for another


@dataclass(frozen=True, kw_only=True)
class TrialContext:
    """The context that all trials of a run share and no hyperparameter decides."""

    places: Mapping[str, DataPlace]  # of each objective's data set
    resources: ResourcesSection
    results: str  # the results folder
    run: str | None = None  # which holds it
    near: str | None  # the driver's machine, by Ray's id; None: this very one
    scratch: str | None = None  # a folder of the driver's machine that its run removes
    one_machine: bool = False  # all trials are on the driver's
    driver: str | None = None  # actor of the run, for those on other machines
    metric: str | None = None  # what a scheduler judges the epochs by
    checkpoint_every_s: float | None = None  # None: no checkpoints
    keep_end: bool = False  # a checkpoint after the last epoch
    keep_encoder: bool = False
    test: bool = False  # score the test split too
    plugins: Sequence[Plugin] = ()
    path: Sequence[str] = ()  # where the driver looks for modules

    @classmethod
    def of(
        cls,
        study: Study,
        folder: ResultsFolder,
        *,
        driver: str | None = None,
        one_machine: bool = False,
        test: bool = False,
    ) -> TrialContext:
        sections, checkpoints = study.sections, study.sections.checkpoints
        return cls(
            places={
                o.name: replace(study.of(o.name).sections.dataset.place, run=folder.held.run or "")
                for o in study.objectives
            },
            results=folder.local_path or folder.path,
            run=folder.held.run,
            near=node_id(),
            scratch=folder.scratch,
            one_machine=one_machine,
            driver=driver,
            metric=sections.metric.name if AshaConfig.of(study) else None,
            checkpoint_every_s=None if checkpoints.keep == "none" else float(checkpoints.every_s),
            keep_end=checkpoints.keep == "best",
            keep_encoder=sections.encoders.keep != "none"
            and all(cell.dataset.kind == "images" for cell in study.cells or (study,))
            and not test,
            test=test,
            plugins=study.document.plugins,
            path=[*filter(None, sys.path)],
            resources=sections.resources,
        )

    def hide_gpus(self) -> None:
        """Where the study asks for no GPU, this process sees none from now on: neither may a part
        of the user's own. A Ray that others have started shows it all of them.
        """
        if not self.resources.gpus_per_worker:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def plug_in(self) -> None:
        """Make the study's plug-ins those of this process, which finds what else is of the user's
        own where the driver does, last of all.
        """
        sys.path += [place for place in self.path if place not in sys.path]
        plug_in(self.plugins)

    def files(self, trial_id: str) -> TrialFiles:
        """The trial's files in the results folder, seen from the machine of the caller."""
        driver = None if self._is_near() else self.driver
        return TrialFiles(self.results, self.run, driver, trial_id)

    def temporary_folder(self) -> tempfile.TemporaryDirectory[str]:
        """A folder of the caller's machine. Where its process is killed, the run removes it, if it
        is the driver's machine.
        """
        place = self.scratch if self._is_near() else None
        if place:
            os.makedirs(place, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix="clsweep-", dir=place, ignore_cleanup_errors=True)

    def call(self, function: Callable[..., object], *arguments: object) -> Any:
        """A function of `mailbox` on the folder that trials and their run share. What cannot be
        told is not worth a trial.
        """
        with contextlib.suppress(OSError, FolderUnreachableError):
            if self._is_near() and self.scratch:
                return function(self.scratch, *arguments)
            if self.driver:
                return call(self.driver, "call", function, *arguments)
        return None

    def _is_near(self) -> bool:
        return self.near is None or self.near == node_id()

    def may_go_on(self, row: Row, epoch: Row) -> bool:
        """The scheduler's answer after an epoch; without one, or a score to judge by, yes."""
        score = None if self.metric is None else epoch.get(self.metric)
        if self.driver is None or score is None or epoch["epoch"] == row["epochs"]:
            return True
        trial = row["objective"], row["config"], row["seed"]
        return bool(call(self.driver, "may_go_on", *trial, epoch["epoch"], score))


def run_trial(config: Mapping[str, Any]) -> None:
    """Tune's function: runs one plan row and reports its outcome.

    A trial that raises is reported, not raised: its actor goes on with the next trial, unless its
    GPU is lost to it. What is raised else is the loss of a process or a machine: the trial goes on
    from its checkpoint elsewhere.
    """
    row: Row = config["row"]
    context: TrialContext = config["context"]
    context.hide_gpus()
    import torch
    from ray import tune

    started_at, start = datetime.now(UTC), time.perf_counter()
    outcome = _outcome(row, context)
    is_sound = has_freed()
    outcome.setdefault("wall_time_s", time.perf_counter() - start)
    outcome["started_at"] = started_at.isoformat()
    outcome["torch_version"] = str(torch.__version__)  # its own type would load torch in the driver
    tune.report({"outcome": outcome})
    if not is_sound:
        raise BrokenDeviceError("this process can do nothing on its GPU any more")


class BrokenDeviceError(RuntimeError):
    """Ends the process of a trial that has said how it ended: the next one gets another."""


def _outcome(row: Row, context: TrialContext) -> Row:
    """Outcome of a trial. One that lacks memory beside its images goes on from its checkpoint once
    more, with these on the host; a group of workers begins as a new one, of one mind.
    """
    try:
        with context.temporary_folder() as ray_dir:
            return _fit(row, context, ray_dir)
    except Exception as error:
        if is_lost(error):
            raise
        lacks_room = getattr(root_cause(error), "beside_images", False)
        outcome = {"status": "failed", "epochs": [], **describe(error)}
    resources = context.resources
    if lacks_room and resources.images_on == "auto" and has_freed():
        resources = resources.model_copy(update={"images_on": "host"})
        return _outcome(row, replace(context, resources=resources))
    return outcome


def has_freed() -> bool:
    """Give the memory back that this process keeps, as it goes on beside others that share its GPU;
    whether it could. Once an assertion has failed on the device, no call to it succeeds any more.
    """
    import torch

    gc.collect()
    try:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
    except RuntimeError:
        return False
    return True


def _fit(row: Row, context: TrialContext, ray_dir: str) -> Row:
    """One worker: Ray Train's local mode, inside this Tune actor, which holds the resources.
    Several: a worker group of Ray Train, for which this actor only waits.
    """
    import ray.train
    from ray.train.torch import TorchConfig, TorchTrainer

    resources, scaling = context.resources, dict[str, Any](num_workers=0)
    run: dict[str, Any] = {"name": row["trial_id"], "storage_path": ray_dir}
    config = None
    if resources.workers > 1:
        from clsweep.cluster.rendezvous import FileRendezvous

        backend = "nccl" if resources.gpus_per_worker else "gloo"
        meet_in_file = partial(FileRendezvous, folder=ray_dir)
        # One may wait for another as long as that may prepare images; who stalls is ended before.
        timeout_s = round(min(LONGER * resources.stall_s, LONGEST_WAIT_S))
        meeting = meet_in_file if context.one_machine else TorchConfig
        config = meeting(backend=backend, timeout_s=timeout_s)
        held = {"CPU": resources.cpus_per_worker, "GPU": resources.gpus_per_worker}
        each = {name: amount for name, amount in held.items() if amount}
        scaling = {"num_workers": resources.workers, "resources_per_worker": each}
        run["failure_config"] = ray.train.FailureConfig(max_failures=0, controller_failure_limit=1)
    result: Any = TorchTrainer(
        # The workers' results agree; that of the first is kept.
        lambda _: _train(row, context),
        train_loop_config={},
        torch_config=config,
        scaling_config=ray.train.ScalingConfig(use_gpu=resources.gpus_per_worker > 0, **scaling),
        run_config=ray.train.RunConfig(**run),
    ).fit()
    if result.error:
        raise result.error
    # metrics that travel by reports alone can be lost
    assert isinstance(result.return_value, dict), f"a trial returned {result.return_value!r}"
    return result.return_value


def _train(row: Row, context: TrialContext) -> Row:
    """Train on this worker's own device and threads; the result carries all epochs, so that no
    report can be lost.

    Tune is told of the end alone: a report waits for the driver, and one that leaves takes none.
    """
    import ray.train
    import torch

    from clsweep.train.checkpoints import Checkpoints
    from clsweep.train.collectives import gather
    from clsweep.train.loop import train_trial
    from clsweep.train.memory import keep_freed_memory, limited_memory

    torch.set_num_threads(context.resources.cpus_per_worker)
    keep_freed_memory()
    context.plug_in()
    device, files = _device(context), context.files(row["trial_id"])
    gather(torch.zeros(1, device=device))  # all workers are there, with their modules
    start = time.perf_counter()
    is_first = context.resources.workers == 1 or ray.train.get_context().get_world_rank() == 0
    heartbeat = TrialHeartbeat(
        partial(context.call, write_state, row["trial_id"]),
        relay=None if is_first else partial(context.call, request_checkpoints),
    )
    epochs: list[Row] = []

    def note(epoch: Row) -> bool:
        if is_first and row["epochs"]:
            context.call(append_epoch, row["trial_id"], epoch, not epochs)
        epochs.append(epoch)
        return not is_first or context.may_go_on(row, epoch)

    checkpoints = None
    if (every_s := context.checkpoint_every_s) is not None:
        checkpoints = Checkpoints(files, every_s, context.keep_end, heartbeat.notice)
    with (
        placed(row),
        limited_memory(device, context.resources.gpus_per_worker, context.resources.images_on),
        saved_on_term(heartbeat.notice) if checkpoints else contextlib.nullcontext(),
    ):
        result = train_trial(
            row,
            note,
            place=context.places[row["objective"]],
            device=device,
            checkpoints=checkpoints,
            test=context.test,
            tell=heartbeat.tell if is_first else None,
            folder=context.temporary_folder,
        )
    # no row: they go apart
    encoder, normalisation = (result.pop("encoder", None), result.pop("normalisation", None))
    if encoder is not None and context.keep_encoder and is_first:
        files.keep_encoder(row, encoder, normalisation)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    spent_s = result.pop("earlier_s", 0.0) + time.perf_counter() - start
    return {**result, "epochs": epochs, "device": name, "wall_time_s": spent_s}


@contextlib.contextmanager
def placed(row: Row) -> Iterator[None]:
    """An error of a plug-in says its file and line, also where Ray has passed it on. To exit is
    one, and so is whatever else it raises: Ray would take that for its own.
    """
    try:
        yield
    except BaseException as raised:
        place, error = error_place(raised, row.get("loss", "")), raised
        if not isinstance(raised, Exception) and (place or isinstance(raised, SystemExit)):
            error = RuntimeError(f"{type(raised).__name__}: {message_of(raised)}")
            error = error.with_traceback(raised.__traceback__)
        if place:
            error.plugin_place = place  # type: ignore[attr-defined]
        if error is raised:
            raise
        raise error from None


def _device(context: TrialContext) -> torch.device:
    import torch

    if not context.resources.gpus_per_worker:
        return torch.device("cpu")
    if context.resources.workers == 1:
        return _only_gpu()
    from ray.train.torch import get_device

    return get_device()


def _only_gpu() -> torch.device:
    """The GPU that Ray has assigned to this process, which sees no other.

    Raises:
        RequestError: torch cannot use it.
    """
    import torch

    from clsweep.train.device import why_unusable

    if why := why_unusable():
        place = f"a GPU of node {socket.gethostname()}, where torch can use none"
        raise RequestError(f"resources.gpus_per_worker: Ray has given this process {place}: {why}")
    return torch.device("cuda", 0)


def score_references(study: Study, planned: Sequence[PlannedTrial], context: TrialContext) -> Any:
    """The Ray task that scores a study's references, for `keep_references`."""
    import ray

    score = ray.remote(
        num_cpus=context.resources.cpus_per_worker,
        num_gpus=context.resources.gpus_per_worker,
        max_retries=context.resources.max_restarts,
    )(_score)
    return score.remote(placed_baselines(study, planned), context)


def keep_references(folder: ResultsFolder, task: Any) -> None:
    """Await the scores, and write `references.parquet`. Without it the study is whole: a failure is
    only said.
    """
    import ray

    while not ray.wait([task], timeout=1.0)[0]:
        pass  # where Ray is lost, we are interrupted here
    try:
        folder.add_references(ray.get(task))
    except ray.exceptions.RayError as error:
        say(f"The reference scores failed: {describe(error)['error_message'].splitlines()[0]}")


def _score(rows: Sequence[tuple[Row, DataPlace]], context: TrialContext) -> list[Row]:
    context.hide_gpus()
    import torch

    from clsweep.train.evaluation import score_reference
    from clsweep.train.memory import limited_memory

    torch.set_num_threads(context.resources.cpus_per_worker)
    context.plug_in()
    device = _only_gpu() if context.resources.gpus_per_worker else torch.device("cpu")
    resources = context.resources
    with limited_memory(device, resources.gpus_per_worker, resources.images_on):
        return [{**row, **score_reference(row, place=place, device=device)} for row, place in rows]
