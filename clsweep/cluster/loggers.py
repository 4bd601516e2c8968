"""Trials as runs of TensorBoard, W&B and MLflow: a run each, grouped by configuration with its
seeds inside.

The driver writes what happens to a file, and a process of each logger follows it: no study waits
for one. What goes wrong there is one line, and the study goes on.

A sink, in such a process, is told that a trial begins (its `IDENTITY`, and under "params" the
effective values), of each epoch (values with `epoch` among them), and of the end (values of the
whole trial). A trial that begins again logs to the same run. Its epochs come again from the first
one, and none stands there twice.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

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

IDENTITY = ("trial_id", "objective", "config", "seed")
CLOSE_S = 15.0  # to write what is left at the end of a run
ORPHANED_S = 60.0  # to finish once nobody writes any more
_PAUSE_S = 0.2  # between two looks at the file


class Loggers:
    """All loggers of a run; a context manager. No method waits or raises, and any thread may call.

    Args:
        wanted: what the study and the command ask for; a name that comes twice counts once.
        place: a folder of this machine, for loggers that write files.
        say: prints a line.
    """

    def __init__(self, wanted: Sequence[LoggerSection], study: Study, place: str, say: Say):
        self._wanted = {logger.name: logger for logger in reversed(wanted)}
        self._about = {"study": study.sections.name, "place": os.path.abspath(place)}
        self._say, self._processes = say, dict[str, subprocess.Popen[bytes]]()
        self._last_epoch: dict[str, int] = {}  # of each trial that has begun and not ended
        self._lock, self._closing = threading.RLock(), contextlib.ExitStack()

    def __enter__(self) -> Loggers:
        for name, logger in self._wanted.items():
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
                self._say_no_more(name, str(error))
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock, self._closing:
            self._put("close")
            deadline = time.monotonic() + CLOSE_S
            for name, process in list(self._processes.items()):
                try:
                    process.wait(max(0.0, deadline - time.monotonic()))
                    self._over(name)
                except subprocess.TimeoutExpired:
                    self._over(name, f"it did not end within {CLOSE_S:.0f} s")

    def started(self, row: Row) -> None:
        """A trial begins, or begins again: then its epochs come again, too."""
        params = {name: row[name] for name in row if name in PARAM and row[name] is not None}
        parts = {part: row[part] for part in (*OBJECTIVE_PARTS, "dataset") if part in row}
        with self._lock:
            self._last_epoch[row["trial_id"]] = -1
            self._put("begin", {**{name: row[name] for name in IDENTITY}, "params": parts | params})

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
                self._over(name, str(error))
        for name, process in list(self._processes.items()):
            if process.poll() is not None and event != ("close",):
                self._over(name)

    def _over(self, name: str, reason: str = "") -> None:
        """The process of a logger has ended, or is to end now for a reason."""
        process = self._processes.pop(name)
        process.kill()
        message = process.communicate()[0].decode(errors="replace").strip()
        if reason or message != "done":
            self._say_no_more(name, reason or (message or "its process ended").splitlines()[-1])

    def _say_no_more(self, name: str, reason: str) -> None:
        self._say(f"{name} logs no more, the study goes on: {reason[:300]}")


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
    """Those of the study, and those that the command names.

    Raises:
        RequestError: there is no logger of that name.
    """
    try:
        return [*study.sections.loggers, *map(LoggerSection.model_validate, names)]
    except ValidationError as error:
        raise RequestError(f"--log: {error.errors()[0]['ctx']['error']}") from None


class TensorBoard:
    """Event files in PLACE/tensorboard/OBJECTIVE/config-N/seed-S, for its HParams tab too."""

    def __init__(self, about: Row):
        self._place = about["options"].get("path") or os.path.join(about["place"], "tensorboard")
        self._writers: dict[str, Any] = {}
        self._params: dict[str, Row] = {}
        self._steps: dict[str, int] = {}

    def begin(self, trial: Row) -> None:
        from tensorboardX import SummaryWriter

        name = trial["trial_id"]
        if name in self._writers:
            self._writers.pop(name).close()
        names = (
            file_slug(trial["objective"]),
            f"config-{trial['config']}",
            f"seed-{trial['seed']}",
        )
        folder = os.path.join(self._place, *names)
        for earlier in glob.glob(os.path.join(glob.escape(folder), "events.out.tfevents.*")):
            os.remove(earlier)
        self._writers[name] = SummaryWriter(logdir=folder)
        self._params[name], self._steps[name] = trial["params"], 0

    def epoch(self, trial_id: str, values: _Values) -> None:
        self._steps[trial_id] = int(values["epoch"])
        scalars = {name: value for name, value in values.items() if name != "epoch"}
        self._add(self._writers[trial_id], scalars, self._steps[trial_id])

    def end(self, trial_id: str, values: _Values, status: str, error: str) -> None:
        from tensorboardX.summary import hparams

        writer, step = self._writers.pop(trial_id), self._steps.pop(trial_id)
        results = {f"result/{name}": value for name, value in values.items()}
        self._add(writer, results, step)
        writer.add_text("status", f"{status} {error}".strip(), step)
        for summary in hparams(self._params.pop(trial_id), results):
            writer.file_writer.add_summary(summary)
        writer.close()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _add(self, writer: Any, values: _Values, step: int) -> None:
        """As one event: an event for each value takes many times as long."""
        from tensorboardX.proto.summary_pb2 import Summary

        summaries = [Summary.Value(tag=name, simple_value=x) for name, x in values.items()]
        writer.file_writer.add_summary(Summary(value=summaries), step)


class WandB:
    """Runs of a project, grouped by configuration. Offline ones lie in PLACE/wandb."""

    def __init__(self, about: Row):
        self._about, self._options = about, about["options"]
        self._runs: dict[str, Any] = {}

    def begin(self, trial: Row) -> None:
        import wandb

        if trial["trial_id"] in self._runs:
            self._runs.pop(trial["trial_id"]).finish()
        place = self._options.get("path") or self._about["place"]
        os.makedirs(place, exist_ok=True)
        identity = _identity(self._about, trial["trial_id"])
        # An offline run cannot be gone on with: its epochs come again.
        for earlier in glob.glob(f"{glob.escape(place)}/wandb/offline-run-*-{identity}"):
            shutil.rmtree(earlier)
        self._runs[trial["trial_id"]] = wandb.init(
            project=self._options.get("project") or self._about["study"],
            entity=self._options.get("entity"),
            dir=place,
            id=identity,
            name=trial["trial_id"],
            group=_group(trial),
            job_type=trial["objective"],
            config={**trial["params"], **{name: trial[name] for name in IDENTITY}},
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", disable_git=True),
        )

    def epoch(self, trial_id: str, values: _Values) -> None:
        run, step = self._runs[trial_id], int(values["epoch"])
        if step >= run.step:
            run.log(dict(values), step=step)

    def end(self, trial_id: str, values: _Values, status: str, error: str) -> None:
        run = self._runs.pop(trial_id)
        run.summary.update({**values, "status": status, "error": error})
        run.finish(exit_code=1 if status == "failed" else 0)

    def close(self) -> None:
        for run in self._runs.values():
            run.finish(exit_code=1)


class MLflow:
    """Runs of an experiment below a run of their configuration, in PLACE/mlflow.db or at a URI."""

    def __init__(self, about: Row):
        from mlflow.tracking import MlflowClient

        uri = about["options"].get("uri") or os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            os.makedirs(about["place"], exist_ok=True)
            uri = f"sqlite:///{about['place']}/mlflow.db"
        self._client, self._about = MlflowClient(tracking_uri=uri), about
        name = about["options"].get("experiment") or about["study"]
        known = self._client.get_experiment_by_name(name)
        self._experiment = known.experiment_id if known else self._client.create_experiment(name)
        self._runs: dict[str, str] = {}
        self._last: dict[str, int] = {}
        self._groups: dict[str, str] = {}

    def begin(self, trial: Row) -> None:
        from mlflow.entities import Param

        group = _group(trial)
        if group not in self._groups:
            self._groups[group] = self._run(group, {"clsweep.objective": trial["objective"]})[0]
        tags = {"mlflow.parentRunId": self._groups[group], "clsweep.group": group}
        run, last = self._run(trial["trial_id"], tags)
        self._runs[trial["trial_id"]], self._last[trial["trial_id"]] = run, last
        params = {**trial["params"], **{name: trial[name] for name in IDENTITY}}
        self._client.log_batch(run, params=[Param(n, str(value)) for n, value in params.items()])

    def _run(self, name: str, tags: Mapping[str, str]) -> tuple[str, int]:
        """Id of the run that has this name in these results, and its last epoch."""
        tag = {"clsweep.id": _identity(self._about, name)}
        which = f"tags.`clsweep.id` = '{tag['clsweep.id']}'"
        for known in self._client.search_runs([self._experiment], which, max_results=1):
            self._client.update_run(known.info.run_id, status="RUNNING")
            return known.info.run_id, int(known.data.metrics.get("epoch", -1))
        run = self._client.create_run(self._experiment, run_name=name, tags={**tags, **tag})
        return run.info.run_id, -1

    def epoch(self, trial_id: str, values: _Values) -> None:
        if values["epoch"] > self._last[trial_id]:
            self._last[trial_id] = int(values["epoch"])
            self._log(trial_id, values)

    def _log(self, trial_id: str, values: _Values) -> None:
        from mlflow.entities import Metric

        now, step = int(time.time() * 1000), max(0, self._last[trial_id])
        metrics = [Metric(name, value, now, step) for name, value in values.items()]
        self._client.log_batch(self._runs[trial_id], metrics=metrics)

    def end(self, trial_id: str, values: _Values, status: str, error: str) -> None:
        self._log(trial_id, {f"result/{name}": value for name, value in values.items()})
        run = self._runs.pop(trial_id)
        for name, text in {"clsweep.status": status, "clsweep.error": error}.items():
            self._client.set_tag(run, name, text[:5000])
        self._client.set_terminated(run, "FAILED" if status == "failed" else "FINISHED")

    def close(self) -> None:
        for run in self._runs.values():
            self._client.set_terminated(run, "KILLED")
        for run in self._groups.values():
            self._client.set_terminated(run)


SINKS: Mapping[str, Callable[[Row], Any]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}


def _group(trial: Row) -> str:
    return f"{trial['objective']} config-{trial['config']}"


def _identity(about: Row, name: str) -> str:
    """Of a run, the same whenever these results are gone on with."""
    text = "\n".join((about["study"], about["place"], name))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _events(file: int) -> Iterator[tuple[str, list[Any]]]:
    """Lines that the driver writes to an open file, until it says that this is all, or is gone."""
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


def _serve() -> None:
    """Log until there is nothing more; the last thing to be said is `done`, or what went wrong."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the clients print is nobody's
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    ending, code, about = "done", 0, json.loads(sys.argv[1])
    try:
        sink = SINKS[about["logger"]](about)
        for kind, event in _events(about["events"]):
            getattr(sink, kind)(*event)
        sink.close()
    except BaseException as error:
        text = str(error).strip() or "no reason given"
        ending, code = f"{type(error).__name__}: {text.splitlines()[0]}", 1
        if isinstance(error, ImportError):
            ending += f". pip install 'clsweep[{about['logger']}]' brings its client"
    print(ending, file=answer, flush=True)
    os._exit(code)  # a client's threads and exit handlers may hang


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    time.sleep(ORPHANED_S)
    os._exit(1)


if __name__ == "__main__":
    _serve()
