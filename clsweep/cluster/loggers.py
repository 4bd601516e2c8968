"""Trials as runs of TensorBoard, W&B and MLflow, grouped by configuration with its seeds inside.

The driver writes events to a file, and a process of each logger follows it: no study waits for one.
An error there is one line, and the study goes on.

A trial that begins again logs to the same run. Its epochs come again from the first one, and none
stands there twice.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import ValidationError

from clsweep.catalog import OBJECTIVE_PARTS, PARAM
from clsweep.catalog.rows import Row
from clsweep.errors import RequestError
from clsweep.results.schemas import SIDE_TABLES
from clsweep.study.design import Study
from clsweep.study.schema import LoggerSection
from clsweep.study.space import file_slug

Say = Callable[[str], None]
_Values = Mapping[str, float]

_IDENTITY = ("trial_id", "objective", "config", "seed")
CLOSE_S = 15.0  # to write what is left at the end of a run
_ORPHANED_S = 60.0  # to finish once nobody writes any more
_PAUSE_S = 0.2  # between two looks at the file
_DONE = "done"  # the answer of a process that has logged everything
_LAST_LINE = "{} logs no more, the study goes on: {}"


class Loggers:
    """All loggers of a run; a context manager. No method waits or raises, and any thread may call.

    Args:
        sections: of the study and the command; a name that comes twice counts once.
        folder: of this machine, for loggers that write files.
        say: prints a line.
    """

    def __init__(self, sections: Sequence[LoggerSection], study: Study, folder: str, say: Say):
        self._sections = {logger.name: logger for logger in reversed(sections)}
        self._about = {"study": study.sections.name, "folder": os.path.abspath(folder)}
        self._say, self._processes = say, dict[str, subprocess.Popen[bytes]]()
        self._last_epoch: dict[str, int] = {}  # of each trial that has begun and not ended
        self._lock, self._closing = threading.RLock(), contextlib.ExitStack()

    def __enter__(self) -> Loggers:
        for name, logger in self._sections.items():
            try:
                if not self._processes:  # without a name: a killed run leaves none behind
                    self._events = self._closing.enter_context(tempfile.TemporaryFile())
                events = self._events.fileno()
                about = {"logger": name, "options": logger.options, "events": events}
                self._processes[name] = subprocess.Popen(
                    [sys.executable, "-m", __name__, json.dumps(about | self._about)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[events],
                    start_new_session=True,  # Ctrl-C is the driver's
                )
            except OSError as error:
                self._say(_LAST_LINE.format(name, str(error)[:300]))
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock, self._closing:
            self._put("close")
            deadline = time.monotonic() + CLOSE_S
            for name, process in list(self._processes.items()):
                try:
                    process.wait(max(0.0, deadline - time.monotonic()))
                    self._stop(name)
                except subprocess.TimeoutExpired:
                    self._stop(name, f"it did not end within {CLOSE_S:.0f} s")

    def started(self, row: Row) -> None:
        """A trial begins, or begins again: then its epochs come again, too."""
        params = {part: row[part] for part in (*OBJECTIVE_PARTS, "dataset") if part in row}
        params |= {name: row[name] for name in row if name in PARAM and row[name] is not None}
        with self._lock:
            self._last_epoch[row["trial_id"]] = -1
            self._put("begin", {**{name: row[name] for name in _IDENTITY}, "params": params})

    def reported(self, trial_id: str, epochs: Sequence[Row]) -> None:
        """The epochs so far of a trial; those that are new are logged."""
        with self._lock:
            last = self._last_epoch.get(trial_id)
            if last is None:  # it has ended meanwhile
                return
            for epoch in epochs:
                if epoch["epoch"] > last:
                    last = self._last_epoch[trial_id] = epoch["epoch"]
                    self._put("epoch", trial_id, _numbers(epoch))

    def ended(self, row: Row, outcome: Row) -> None:
        """A trial has its outcome, whose epochs are logged that were not reported."""
        trial_id = row["trial_id"]
        measured = {name: x for name, x in outcome.items() if name not in SIDE_TABLES}
        error = str(outcome.get("error_message") or "")
        with self._lock:
            if trial_id not in self._last_epoch:  # of a process that died before it began
                self.started(row)
            self.reported(trial_id, outcome.get("epochs", ()))
            self._put("end", trial_id, _numbers(measured), outcome["status"], error)
            del self._last_epoch[trial_id]

    def _put(self, *event: object) -> None:
        try:
            if self._processes:
                self._events.write(json.dumps(event, default=str).encode() + b"\n")
                self._events.flush()
        except OSError as error:
            for name in list(self._processes):
                self._stop(name, str(error))
        for name, process in list(self._processes.items()):
            if process.poll() is not None and event != ("close",):
                self._stop(name)

    def _stop(self, name: str, reason: str = "") -> None:
        """Take leave of a logger whose process has ended, or is to end now for a reason."""
        process = self._processes.pop(name)
        process.kill()
        answer = process.communicate()[0].decode(errors="replace").strip()
        if reason or answer != _DONE:
            reason = reason or (answer or "its process ended").splitlines()[-1]
            self._say(_LAST_LINE.format(name, reason[:300]))


def _numbers(values: Row) -> dict[str, float]:
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def sink_place(address: str, study: str) -> str:
    """A folder of this machine for what loggers write of results in an object store: that of no
    other results, whatever their study is called.
    """
    digest = hashlib.sha256(address.encode()).hexdigest()[:8]
    return os.path.join("results", f"{study}-{digest}")


def wanted_loggers(study: Study, names: Sequence[str]) -> list[LoggerSection]:
    """Loggers of the study, and those that the command names.

    Raises:
        RequestError: there is no logger of that name.
    """
    try:
        return [*study.sections.loggers, *map(LoggerSection.model_validate, names)]
    except ValidationError as error:
        raise RequestError(f"--log: {error.errors()[0]['ctx']['error']}") from None


class TensorBoard:
    """Event files in FOLDER/tensorboard/OBJECTIVE/config-N/seed-S, for its HParams tab too."""

    def __init__(self, about: Row, trial: Row):
        from tensorboardX import SummaryWriter

        root = about["options"].get("path") or os.path.join(about["folder"], "tensorboard")
        name, at = file_slug(trial["objective"]), (trial["config"], trial["seed"])
        parts = (name, f"config-{at[0]}", f"seed-{at[1]}")
        folder = os.path.join(root, *parts)
        for earlier in glob.glob(os.path.join(glob.escape(folder), "events.out.tfevents.*")):
            os.remove(earlier)
        self._writer, self._params = SummaryWriter(logdir=folder), trial["params"]
        self.last_epoch = 0

    def log(self, values: _Values) -> None:
        """As one event: an event for each value takes many times as long."""
        from tensorboardX.proto.summary_pb2 import Summary

        scalars = [
            Summary.Value(tag=name, simple_value=x) for name, x in values.items() if name != "epoch"
        ]
        self._writer.file_writer.add_summary(Summary(value=scalars), self.last_epoch)

    def end(self, values: _Values, status: str, error: str) -> None:
        from tensorboardX.summary import hparams

        results = _results(values)
        self.log(results)
        self._writer.add_text("status", f"{status} {error}".strip(), self.last_epoch)
        for summary in hparams(self._params, results):
            self._writer.file_writer.add_summary(summary)
        self._writer.close()

    def close(self) -> None:
        self._writer.close()


class WandB:
    """A run of a project, grouped by configuration. Offline ones lie in FOLDER/wandb."""

    def __init__(self, about: Row, trial: Row):
        import wandb

        options = about["options"]
        folder = options.get("path") or about["folder"]
        os.makedirs(folder, exist_ok=True)
        identity = _identity(about, trial["trial_id"])
        # An offline run cannot be gone on with: its epochs come again.
        for earlier in glob.glob(f"{glob.escape(folder)}/wandb/offline-run-*-{identity}"):
            shutil.rmtree(earlier)
        self._run = wandb.init(
            project=options.get("project") or about["study"],
            entity=options.get("entity"),
            dir=folder,
            id=identity,
            name=trial["trial_id"],
            group=_group(trial),
            job_type=trial["objective"],
            config=_config(trial),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", disable_git=True),
        )
        self.last_epoch = self._run.step - 1

    def log(self, values: _Values) -> None:
        self._run.log(dict(values), step=self.last_epoch)

    def end(self, values: _Values, status: str, error: str) -> None:
        self._run.summary.update({**values, "status": status, "error": error})
        self._run.finish(exit_code=1 if status == "failed" else 0)

    def close(self) -> None:
        self._run.finish(exit_code=1)


class MLflow:
    """A run of an experiment below a run of its configuration, in FOLDER/mlflow.db or at a URI."""

    _num_open: ClassVar = Counter[str]()  # trials under way, by the id of their configuration's run

    def __init__(self, about: Row, trial: Row):
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        uri = about["options"].get("uri") or os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            os.makedirs(about["folder"], exist_ok=True)
            uri = f"sqlite:///{about['folder']}/mlflow.db"
        self._client, self._about, group = MlflowClient(tracking_uri=uri), about, _group(trial)
        self._parent, _ = self._open(group, {"clsweep.objective": trial["objective"]})
        self._num_open[self._parent] += 1
        tags = {"mlflow.parentRunId": self._parent, "clsweep.group": group}
        self._run, self.last_epoch = self._open(trial["trial_id"], tags)
        params = [Param(name, str(value)) for name, value in _config(trial).items()]
        self._client.log_batch(self._run, params=params)

    def _open(self, name: str, tags: Mapping[str, str]) -> tuple[str, int]:
        """Id of the run that has this name in these results, and its last epoch."""
        title = self._about["options"].get("experiment") or self._about["study"]
        known = self._client.get_experiment_by_name(title)
        experiment = known.experiment_id if known else self._client.create_experiment(title)
        identity = _identity(self._about, name)
        query = f"tags.`clsweep.id` = '{identity}'"
        for run in self._client.search_runs([experiment], query, max_results=1):
            self._client.update_run(run.info.run_id, status="RUNNING")
            return run.info.run_id, int(run.data.metrics.get("epoch", -1))
        tags = {**tags, "clsweep.id": identity}
        return self._client.create_run(experiment, run_name=name, tags=tags).info.run_id, -1

    def log(self, values: _Values) -> None:
        from mlflow.entities import Metric

        now, step = int(time.time() * 1000), max(0, self.last_epoch)
        metrics = [Metric(name, value, now, step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self, values: _Values, status: str, error: str) -> None:
        self.log(_results(values))
        for name, text in {"clsweep.status": status, "clsweep.error": error}.items():
            self._client.set_tag(self._run, name, text[:5000])
        self.close("FAILED" if status == "failed" else "FINISHED")

    def close(self, status: str = "KILLED") -> None:
        self._client.set_terminated(self._run, status)
        self._num_open[self._parent] -= 1
        if not self._num_open[self._parent]:
            self._client.set_terminated(self._parent)


# A sink is one run: made where a trial begins, with its identity and, under "params", the effective
# values. `last_epoch` is the last one that stands there.
_SINKS: Mapping[str, Callable[[Row, Row], Any]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}


def _group(trial: Row) -> str:
    return f"{trial['objective']} config-{trial['config']}"


def _config(trial: Row) -> Row:
    return {**trial["params"], **{name: trial[name] for name in _IDENTITY}}


def _results(values: _Values) -> dict[str, float]:
    return {f"result/{name}": value for name, value in values.items()}


def _identity(about: Row, name: str) -> str:
    """Id of a run, the same whenever these results are gone on with."""
    text = "\n".join((about["study"], about["folder"], name))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _events(file: int) -> Iterator[tuple[str, list[Any]]]:
    """Events that the driver writes to an open file, until its last one, or until it is gone."""
    driver, at, rest = os.getppid(), 0, b""
    while True:
        data = os.pread(file, 2**20, at)
        at += len(data)
        *lines, rest = (rest + data).split(b"\n")
        for kind, *event in map(json.loads, lines):
            if kind == "close":
                return
            yield kind, event
        if not data:
            if os.getppid() != driver:
                return
            time.sleep(_PAUSE_S)


def _follow(about: Row) -> None:
    """Log the driver's events, by a sink a trial."""
    runs: dict[str, Any] = {}
    for kind, event in _events(about["events"]):
        trial_id = event[0]["trial_id"] if kind == "begin" else event[0]
        if kind == "epoch":
            run, values = runs[trial_id], event[1]
            if values["epoch"] > run.last_epoch:
                run.last_epoch = int(values["epoch"])
                run.log(values)
            continue
        run = runs.pop(trial_id, None)
        if kind == "end":
            run.end(*event[1:])
            continue
        if run is not None:
            run.close()
        runs[trial_id] = _SINKS[about["logger"]](about, event[0])
    for run in runs.values():
        run.close()


def _serve() -> None:
    """Log until there is nothing more. The last line of the answer is `done`, or the error."""
    file = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the clients print is nobody's
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    answer, about = _DONE, json.loads(sys.argv[1])
    try:
        _follow(about)
    except BaseException as error:
        text = str(error).strip() or "no reason given"
        answer = f"{type(error).__name__}: {text.splitlines()[0]}"
        if isinstance(error, ImportError):
            answer += f". pip install 'clsweep[{about['logger']}]' brings its client"
    print(answer, file=file, flush=True)
    os._exit(0)  # a client's threads and exit handlers may hang


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    time.sleep(_ORPHANED_S)
    os._exit(1)


if __name__ == "__main__":
    _serve()
