"""One trial on Ray: a Tune trainable around a Ray Train `TorchTrainer` around `train_trial`.

Imports nothing heavy at module level: the driver hands these functions to Ray without loading torch itself.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from clsweep.cluster.encoders import send_encoder
from clsweep.data.availability import DataPlace

if TYPE_CHECKING:
    from clsweep.study.resolve import Study

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TrialContext:
    """What all trials of a study share and no hyperparameter decides."""

    data: DataPlace
    workers: int
    gpus_per_worker: float
    cpus_per_worker: int
    cuda_graphs: bool
    ray_dir: str  # Ray's own files
    encoder_writer: str | None = None  # the actor that trained encoders go to

    @classmethod
    def of(cls, study: Study, ray_dir: str, *, encoder_writer: str | None = None) -> TrialContext:
        resources = study.sections.resources
        return cls(
            data=study.sections.dataset.place,
            ray_dir=ray_dir,
            encoder_writer=encoder_writer,
            workers=resources.workers,
            gpus_per_worker=float(resources.gpus_per_worker),
            cpus_per_worker=resources.cpus_per_worker,
            cuda_graphs=resources.cuda_graphs,
        )

    @classmethod
    def restored(cls, fields: Mapping[str, Any]) -> TrialContext:
        """From what `asdict` made of a context for the way through Ray."""
        return cls(**{**fields, "data": DataPlace(**fields["data"])})


def run_trial(config: Mapping[str, Any]) -> None:
    """Tune's function: runs one plan row and reports its outcome, whatever happens to it.

    A trial that raises is reported, not raised: its actor is healthy and goes on with the next trial.
    """
    import torch
    from ray import tune

    row: Row = config["row"]
    context = TrialContext.restored(config["context"])
    started_at, start = datetime.now(UTC), time.perf_counter()
    outcome: Row
    try:
        fit = _fit_here if context.workers == 1 else _fit_worker_group
        outcome = {"status": "finished", **fit(row, context)}
    except Exception as error:
        outcome = {"status": "failed", "epochs": [], **describe(error)}
    if context.gpus_per_worker or outcome["status"] == "failed":
        _free_memory()
    outcome |= {"started_at": started_at.isoformat(), "wall_time_s": time.perf_counter() - start}
    outcome |= {"torch_version": torch.__version__}
    tune.report({"outcome": outcome})


def describe(error: BaseException) -> Row:
    """Class, message and traceback of the error at the root of Ray's wrappers."""
    root = _root_cause(error)
    name = type(root).__name__
    return {
        "error_class": name,
        # Ray's own texts hold process ids and advice on Ray; equal failures shall have equal messages.
        "error_message": (_of_ray(root) and _LOST.get(name)) or str(root).strip() or name,
        "error_traceback": "".join(traceback.format_exception(root)),
    }


def _of_ray(error: BaseException) -> bool:
    return type(error).__module__.startswith("ray.")  # torch has an OutOfMemoryError too


_DIED = "the trial's process died: killed from outside, out of memory, or crashed"
_LOST = {
    "ActorDiedError": _DIED,
    "ActorUnavailableError": _DIED,
    "WorkerCrashedError": _DIED,
    "WorkerHealthCheckFailedError": _DIED,
    "NodeDiedError": "the node of the trial died",
    "OutOfMemoryError": "the node ran out of memory; Ray stopped the trial",
}


def _fit_here(row: Row, context: TrialContext) -> Row:
    """One worker: Ray Train's local mode, inside this Tune actor, which holds the resources."""
    import ray.train
    from ray import tune
    from ray.train.torch import TorchTrainer

    def train_here(_: Any) -> Row:
        return _train(row, context, report=lambda epoch: tune.report({"epoch": epoch}))

    trainer = TorchTrainer(
        train_here,
        train_loop_config={},
        scaling_config=ray.train.ScalingConfig(num_workers=0, use_gpu=context.gpus_per_worker > 0),
        run_config=ray.train.RunConfig(name=row["trial_id"], storage_path=context.ray_dir),
    )
    return _returned(trainer.fit())


def _fit_worker_group(row: Row, context: TrialContext) -> Row:
    """Several workers: a worker group of Ray Train; this Tune actor only waits for it."""
    import ray.train
    from ray.train.torch import TorchConfig, TorchTrainer

    resources = {"CPU": context.cpus_per_worker, "GPU": context.gpus_per_worker}
    trainer = TorchTrainer(
        _train_worker,
        train_loop_config={"row": row, "context": asdict(context)},
        torch_config=TorchConfig(backend="nccl" if context.gpus_per_worker else "gloo"),
        scaling_config=ray.train.ScalingConfig(
            num_workers=context.workers,
            use_gpu=context.gpus_per_worker > 0,
            resources_per_worker={name: amount for name, amount in resources.items() if amount},
        ),
        run_config=ray.train.RunConfig(
            name=row["trial_id"],
            storage_path=context.ray_dir,
            failure_config=ray.train.FailureConfig(max_failures=0, controller_failure_limit=1),
        ),
    )
    return _returned(trainer.fit())


def _train_worker(config: Mapping[str, Any]) -> Row:
    """One worker of a group. The workers' results agree; rank 0's is kept."""
    return _train(config["row"], TrialContext.restored(config["context"]), report=lambda _: None)


def _train(row: Row, context: TrialContext, *, report: Any) -> Row:
    """Train on this worker's own device and threads; the result carries all epochs, so that no report can be lost."""
    import torch

    from clsweep.cluster.memory import limited_memory
    from clsweep.train.loop import train_trial
    from clsweep.train.memory import keep_freed_memory

    torch.set_num_threads(context.cpus_per_worker)
    keep_freed_memory()
    device = _device(context)
    epochs: list[Row] = []

    def note(epoch: Row) -> None:
        epochs.append(epoch)
        report(epoch)

    with limited_memory(row, device, context.gpus_per_worker):
        result = train_trial(row, note, place=context.data, device=device, cuda_graphs=context.cuda_graphs)
    encoder, normalisation = result.pop("encoder", None), result.pop("normalisation", None)  # no row: they go apart
    if encoder is not None and context.encoder_writer and _is_first_worker(context):
        send_encoder(context.encoder_writer, row, encoder, normalisation)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return {**result, "epochs": epochs, "device": name}


def _is_first_worker(context: TrialContext) -> bool:
    if context.workers == 1:
        return True
    import ray.train

    return bool(ray.train.get_context().get_world_rank() == 0)


def _device(context: TrialContext) -> Any:
    import torch

    if not context.gpus_per_worker:
        return torch.device("cpu")
    if context.workers == 1:
        return torch.device("cuda", 0)  # the GPU that Ray assigned to this actor is the only visible one
    from ray.train.torch import get_device

    return get_device()


def _returned(result: Any) -> Row:
    """What the train function returned; metrics that travel by reports alone can be lost."""
    if result.error:
        raise result.error
    assert isinstance(result.return_value, dict), f"a trial returned {result.return_value!r}"
    return result.return_value


def _root_cause(error: BaseException) -> BaseException:
    """Through Ray's wrappers, whose messages repeat tracebacks, to what went wrong."""
    for _ in range(10):
        failures = getattr(error, "worker_failures", None)
        inner = next(iter(failures.values()), None) if failures else None
        inner = inner or getattr(error, "_base_exc", None) or getattr(error, "cause", None)
        inner = inner or getattr(error, "health_check_failure", None) or getattr(error, "controller_failure", None)
        if not isinstance(inner, BaseException) or inner is error:
            return error
        error = inner
    return error


def _free_memory() -> None:
    """Give back what a trial left behind in a process that goes on, beside others that share its GPU."""
    import gc

    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
