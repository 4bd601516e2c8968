"""A study on Ray: what is left of the plan, run by one Tuner over all objectives, recorded trial by trial."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clsweep.cluster.capacity import cluster_nodes, require_capacity
from clsweep.cluster.encoders import encoder_writer
from clsweep.cluster.progress import Progress
from clsweep.cluster.recorder import Recorder
from clsweep.cluster.references import References
from clsweep.cluster.trial import TrialContext, run_trial
from clsweep.data.availability import require_data
from clsweep.data.sources import prepare
from clsweep.errors import RequestError
from clsweep.results.encoders import KeptEncoders
from clsweep.results.journal import open_storage
from clsweep.results.store import ResultsFolder
from clsweep.results.tally import Tally
from clsweep.study.design import PlannedTrial, plan_row, plan_trials, reference_rows, split_columns
from clsweep.study.document import preset_names
from clsweep.study.resolve import Study

Row = dict[str, Any]

TOKEN_FILE = Path("~/.ray/auth_token")  # where Ray looks for its token


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """How a run ended. `ran` counts the trials of this run, `left` the planned ones that have no row yet."""

    path: str
    ran: int
    finished: int
    failed: int
    left: int
    interrupted: bool = False


def run_study(
    study: Study,
    *,
    out: str | os.PathLike[str],
    address: str = "local",
    resume: bool = True,
    max_concurrent: int | None = None,
    limit: int | None = None,
) -> RunSummary:
    """Run what is left of a study and record it in `out`.

    Args:
        study: a validated study.
        out: results folder; an existing one is continued if it holds the same study.
        address: "local" starts Ray in this process, "auto" or a URL joins a cluster. Ray that is already
            initialised is used as it is.
        resume: False refuses a folder that already has results.
        max_concurrent: at most so many trials at once; as many as the cluster holds by default.
        limit: at most so many trials in this run.

    Raises:
        RequestError: the folder holds another study or another run, or the cluster can never hold a trial.
    """
    folder, planned = ResultsFolder(str(out)), plan_trials(study)
    if folder.local_path is None:
        raise RequestError(f"--out {out}: expected a local folder; copy the finished results to the object store")
    with folder.lock():
        recorded = _recorded(folder, study, resume)
        kept = _kept_encoders(study, folder, recorded)
        kept.settle()
        done = {row["trial_id"] for row in recorded}
        left = [trial for trial in planned if trial.trial_id not in done][:limit]
        interrupted = False
        owed = bool(reference_rows(study, planned)) and not folder.references().num_rows
        if left or owed:
            _require_data(study, address)
            try:
                interrupted = _run_left(study, folder, planned, left, recorded, kept, address, max_concurrent)
            finally:
                folder.remove_scratch()
        if left or folder.has_parts():
            folder.compact()
            kept.settle()
        statuses = folder.trials()["status"].to_pylist()
    return RunSummary(
        path=folder.path,
        ran=len(statuses) - len(recorded),
        finished=statuses.count("finished"),
        failed=statuses.count("failed"),
        left=len(planned) - len(statuses),
        interrupted=interrupted,
    )


def _recorded(folder: ResultsFolder, study: Study, resume: bool) -> list[Row]:
    """The rows that a folder already has of this very study; none if it is new."""
    if not folder.exists():
        return []
    if not resume:
        raise RequestError(f"{folder.path}: holds results already. Continue them with --resume, or give another --out.")
    changes = difference(_defining(folder.study()), _defining(study.document.tree)) or _changed_images(folder, study)
    if changes:
        shown = "\n".join(f"  {change}" for change in changes[:10])
        raise RequestError(
            f"{folder.path}: holds results of another version of this study. Give another --out, or undo:\n{shown}"
        )
    return folder.trials().to_pylist()


def _kept_encoders(study: Study, folder: ResultsFolder, recorded: Sequence[Row]) -> KeptEncoders:
    sections = study.sections
    metric, keep = sections.metric, sections.encoders.keep
    return KeptEncoders(folder, recorded, keep=keep, metric=metric.name, mode=metric.mode)


def _defining(tree: Mapping[str, Any]) -> dict[str, Any]:
    """What defines the plan and its numbers. Where a study runs and what it keeps may change between two sessions of
    it: every row records its workers and devices, and `confirm` comes after the study."""
    kept = {key: value for key, value in tree.items() if key not in ("resources", "encoders", "confirm")}
    dataset = kept["dataset"].items()
    return kept | {"dataset": {key: value for key, value in dataset if key not in ("root", "cache", "download")}}


def _changed_images(folder: ResultsFolder, study: Study) -> list[str]:
    """How the user's own images have changed since the plan was made, which no file of the study says."""
    planned: Row = next(iter(folder.plan().slice(0, 1).to_pylist()), {})
    now = split_columns(study)
    known = [name for name in ("num_train", "num_classes", "images_digest") if name in planned]  # none in old folders
    sizes = {name: now[name] for name in known}
    return difference({name: planned.get(name) for name in sizes}, sizes, at=f"images in {study.dataset.name}")


def difference(old: Any, new: Any, at: str = "") -> list[str]:
    """Where two study trees differ, one line per key: `base.epochs: 10 -> 20`."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = [*old, *(key for key in new if key not in old)]
        missing = "(absent)"
        return [
            line
            for key in keys
            for line in difference(old.get(key, missing), new.get(key, missing), f"{at}.{key}" if at else str(key))
        ]
    return [] if old == new else [f"{at}: {old!r} -> {new!r}"]


def _require_data(study: Study, address: str) -> None:
    """Fail before Ray starts if the data set is missing here, and decode it; on a cluster each node does so itself."""
    if address != "local":
        return
    place = study.sections.dataset.place
    try:
        if not place.download:
            require_data(study.dataset.name, place.root_folder)
    except RequestError as error:
        presets = preset_names(study.document.source)
        hint = f" This study has the presets: {', '.join(presets)}." if presets else ""
        raise RequestError(study.document.error(("dataset",), f"{error}{hint}")) from None
    prepare(study.dataset, place)


def _run_left(
    study: Study,
    folder: ResultsFolder,
    planned: Sequence[PlannedTrial],
    left: Sequence[PlannedTrial],
    recorded: Sequence[Row],
    kept: KeptEncoders,
    address: str,
    max_concurrent: int | None,
) -> bool:
    """Run the trials in `left`; True if the user interrupted."""
    resources = study.sections.resources
    with _ray(address, dashboard=resources.workers > 1), _terminable():
        from ray import tune

        capacity = require_capacity(study, cluster_nodes())
        plan_rows = [plan_row(study, trial) for trial in planned]
        if not folder.exists():  # only now: a refused request leaves no folder that would refuse the corrected one
            folder.create(study.document.dump(), plan_rows)
        concurrent = max(1, min(max_concurrent or capacity, capacity, len(left)))
        metric = study.sections.metric
        tally = Tally.of(plan_rows, recorded, metric=metric.name, mode=metric.mode)
        progress = Progress(tally, concurrent=concurrent)
        references = References(study, folder, planned)
        wanted = bool(left) and study.sections.encoders.keep != "none" and study.dataset.kind == "images"
        with (
            progress,
            Recorder(study, folder, progress, kept, num_recorded=len(recorded)) as recorder,
            encoder_writer(folder, wanted=wanted) as writer,
        ):
            try:
                if left:
                    _tuner(study, folder, left, recorded, concurrent, recorder, writer).fit()
                references.collect()
            except KeyboardInterrupt:
                return True
            except tune.TuneError as error:  # what a callback raises, wrapped: a row that could not be written, say
                if not isinstance(error.__context__, RequestError):
                    raise
                advice = "The study stopped. What has finished is kept; the same command continues it."
                raise RequestError(f"{error.__context__}\n{advice}") from None
    return False


def _tuner(
    study: Study,
    folder: ResultsFolder,
    left: Sequence[PlannedTrial],
    recorded: Sequence[Row],
    concurrent: int,
    recorder: Recorder,
    writer: str | None,
) -> Any:
    from ray import tune

    from clsweep.cluster.callback import TuneBridge
    from clsweep.cluster.search import PlanSearch

    resources, ray_dir = study.sections.resources, folder.scratch
    context = TrialContext.of(study, ray_dir, encoder_writer=writer)
    journal = open_storage(os.path.join(folder.local_path or ray_dir, "optuna.journal"))
    search = PlanSearch(study, left, recorded, journal, asdict(context))
    return tune.Tuner(
        tune.with_resources(run_trial, _trial_resources(study)),
        tune_config=tune.TuneConfig(
            search_alg=search,
            num_samples=-1,  # the search says when the plan is finished
            max_concurrent_trials=concurrent,
            # A worker group leaves nothing in its driver worth keeping, and hangs if its actor is reused.
            reuse_actors=resources.workers == 1,
            trial_dirname_creator=_trial_dirname,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=ray_dir,
            verbose=0,
            callbacks=[TuneBridge(recorder)],
            failure_config=tune.FailureConfig(max_failures=0),
        ),
    )


def _trial_resources(study: Study) -> dict[str, float]:
    """What the Tune actor holds. With a worker group it only waits: holding CPUs would starve the workers."""
    resources = study.sections.resources
    if resources.workers > 1:
        return {"CPU": 0, "node:__internal_head__": 0.001}
    held = {"CPU": resources.cpus_per_worker, "GPU": float(resources.gpus_per_worker)}
    return {name: amount for name, amount in held.items() if amount}


def _trial_dirname(trial: Any) -> str:
    return f"trial_{trial.trial_id}"


@contextlib.contextmanager
def _ray(address: str, *, dashboard: bool) -> Iterator[None]:
    """Ray for the time of a run; left alone if it was already initialised."""
    if address != "local" and TOKEN_FILE.expanduser().exists():
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # a client of a named cluster must say so, before Ray is loaded
    import ray

    from clsweep.cluster import ENVIRONMENT

    if ray.is_initialized():
        yield
        return
    for name in ("ray", "ray.tune", "ray.train", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # The line about a dead worker, with its page of advice: the trial's failed row says what happened.
    ray._private.worker._worker_logs_enabled = False
    quiet: Row = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address == "local":
            # The dashboard's process is what cleans up after worker groups. Objects are small: rows and contexts.
            ray.init("local", include_dashboard=dashboard, object_store_memory=2**28, **quiet)
        else:
            ray.init(address, runtime_env={"env_vars": ENVIRONMENT}, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise RequestError(
            f"--address {address}: no Ray cluster lets us in there: {reason}. Expected: local, auto on a machine of "
            f"the cluster, or HOST:PORT of its head; with token authentication, the cluster's token in {TOKEN_FILE}"
        ) from None
    try:
        yield
    finally:
        _shutdown()


def _shutdown() -> None:
    """Stop our Ray even if the user presses Ctrl-C again: a half-stopped one would leave processes behind."""
    import ray

    previous = signal.signal(signal.SIGINT, signal.SIG_IGN) if _in_main_thread() else None
    try:
        ray.shutdown()
    finally:
        if previous is not None:
            signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does."""
    if not _in_main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _in_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()
