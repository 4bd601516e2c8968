"""A study that is started, disturbed and started again, and what must hold whatever has happened to
it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import tempfile
import uuid
from pathlib import Path

import optuna
import pandas as pd
import psutil
import pyarrow.fs as pafs
import pytest
import yaml
from optuna.trial import TrialState

import clsweep
from clsweep.results.journal import open_storage
from tests.cluster.conftest import start, wait_until

MARK = "CLSWEEP_TEST_MARK"
TIMEOUT_S = 500.0
# In the titles of Ray's processes. A trial's says `.train` only while Tune waits for its next
# epoch: between two calls it trains on under the shorter title.
TRIAL_CALLED, TRIAL, WORKER = "ImplicitFunc.train", "ImplicitFunc", "RayTrainWorker"
STATES = {"finished": TrialState.COMPLETE, "stopped": TrialState.PRUNED, "failed": TrialState.FAIL}
# What says how a trial was run, not what came out.
MEASURED = [
    "time_s", "images_per_s", "wall_time_s", "peak_memory_gib", "started_at", "num_resumes",
    "git_commit",
]  # fmt: skip


class Disturbed:
    """`clsweep run` of one study into one folder, as often as it takes.

    Args:
        path: of the study file.
        out: the results folder, of this machine or of an object store.
        options: of every command.
    """

    def __init__(self, path, out, *options):
        self.path, self.out, self._options = path, str(out), options
        self._fs, self._base = pafs.FileSystem.from_uri(self.out)
        self._marks = {}  # of all commands, by the session of each
        self._files_of_a_trial = yaml.safe_load(path.read_text())["base"]["epochs"] + 1
        self._seen = set()

    def start(self, *options):
        mark = uuid.uuid4().hex
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(MARK, mark)
            self.driver = start("run", self.path, "--out", self.out, *self._options, *options)
        self._marks[self.driver.pid] = mark

    def wait(self):
        """Exit code and output, once the command has ended and left no process behind. What killed
        ones have left is not waited for: Ray's agents take a minute to see that they are alone.
        """
        output, _ = self.driver.communicate(timeout=TIMEOUT_S)
        self.wait_for_processes()
        assert "Traceback" not in output, output
        return self.driver.returncode, output

    def run(self, *options):
        self.start(*options)
        return self.wait()

    def run_to_the_end(self, *options):
        code, output = self.run(*options)
        assert code == 0, output
        return output

    def advance(self, num_files):
        """Return as soon as the study has written so many more checkpoints and rows. A command that
        has written none may not yet be ready for a signal.
        """
        enough = self._num_written() + num_files
        self.wait_until(lambda: self._num_written() >= enough, f"{enough} files")

    def wait_until(self, condition, what):
        """Return as soon as the condition holds, while the study runs."""

        def holds():
            assert self.driver.poll() is None, (
                f"ended before {what}: {self.driver.communicate()[0]}"
            )
            return bool(condition())

        wait_until(holds, what, TIMEOUT_S)

    def wait_for_processes(self, title=""):
        """Return once those of this title have ended, or all."""
        wait_until(lambda: not self.processes(title), "the processes to end", timeout_s=400)

    def kill(self, title, draw, *, of=None):
        """SIGKILL to one of the processes of that title, as soon as there is one: the command's,
        or those that `of` finds.
        """

        def killed():
            processes = (of or self.processes)(title)
            return bool(processes) and _kill(draw.choice(processes))

        self.wait_until(killed, title)

    def kill_of_ray(self, title):
        """SIGKILL to the process of Ray of that name. The raylet's own arguments name the others:
        what a process is stands first.
        """

        def of_ray(title):
            processes = []
            for process in self.processes(title):
                with contextlib.suppress(psutil.Error):
                    processes += [process] if title in process.cmdline()[0] else []
            return processes

        self.kill(title, random.Random(0), of=of_ray)

    def kill_under_way(self):
        """SIGKILL to the only trial's process, while it has a checkpoint and no row."""

        def killed():
            for process in self.processes(TRIAL_CALLED):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.suspend()
                    if self.under_way():
                        return _kill(process)
                    process.resume()
            return False

        self.wait_until(killed, "a trial under way")

    def hold(self, condition, what):
        """Return with the command held still at a moment at which the condition holds."""

        def held():
            if not condition():
                return False
            self.driver.send_signal(signal.SIGSTOP)
            if condition():
                return True
            self.driver.send_signal(signal.SIGCONT)
            return False

        self.wait_until(held, what)

    def kill_driver(self):
        self.driver.kill()
        self.driver.wait()

    def stop(self):
        """End what a test that failed has left."""
        for process in self.processes(earlier=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def signal(self, *signals):
        """Send these, one right after the other: the command ends as after Ctrl-C, and leaves
        nothing running.
        """
        for number in signals:
            self.driver.send_signal(number)
        code, output = self.wait()
        assert code == 130, output
        assert f"Resume with: clsweep run {self.path} --out {self.out}" in output
        return output

    def processes(self, title="", *, earlier=False):
        """All living processes that the latest command has started, wherever their parents have
        gone; those of earlier ones too, if asked for.
        """
        marks = self._marks if earlier else dict([*self._marks.items()][-1:])
        return marked_processes(marks, title)

    def strays(self):
        """All living processes of the commands before the latest."""
        return marked_processes(dict([*self._marks.items()][:-1]))

    def files(self, folder, suffix=""):
        return [Path(info.path) for info in self._infos(folder) if info.path.endswith(suffix)]

    def scratch(self, pattern=""):
        """What the latest command keeps in its temporary folder."""
        place = Path(tempfile.gettempdir())
        return [*place.glob(f"clsweep-{self.driver.pid}-*/{pattern}")]

    def checkpoints(self):
        """Trials that have one, by id."""
        return {path.stem for path in self.files("checkpoints", ".ckpt")}

    def under_way(self):
        """Trials that have a checkpoint and no row."""
        checkpoints = self.checkpoints()
        return checkpoints - set(clsweep.open_results(self.out).trials["trial_id"])

    def entries(self, objective, tmp_path):
        """What the Optuna journal has of an objective."""
        copy = tmp_path / f"{uuid.uuid4().hex}.journal"
        with self._fs.open_input_stream(f"{self._base}/optuna.journal") as stream:
            copy.write_bytes(stream.read())
        return optuna.load_study(study_name=objective, storage=open_storage(str(copy))).trials

    def _infos(self, folder):
        selector = pafs.FileSelector(f"{self._base}/{folder}", recursive=True, allow_not_found=True)
        with contextlib.suppress(FileNotFoundError):  # the folder went while it was listed
            return [info for info in self._fs.get_file_info(selector) if info.is_file]
        return []

    def _num_written(self):
        """Checkpoints and rows so far. Between two looks many come and go on a busy machine: a
        trial that has its row counts for all that it wrote.
        """
        for folder in ("checkpoints", "parts/trials"):
            infos = self._infos(folder)
            self._seen |= {
                (info.path, info.mtime_ns) for info in infos if not info.path.endswith(".tmp")
            }
        rows = {Path(path).stem for path, _ in self._seen if path.endswith(".parquet")}
        under_way = [path for path, _ in self._seen if Path(path).stem not in rows]
        return len(rows) * self._files_of_a_trial + len(under_way)


def _kill(process):
    """True if the process was there; it no longer is."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    wait_until(lambda: not _is_alive(process), "a killed process to end")
    return True


def _is_alive(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def marked_processes(marks, title=""):
    """All living processes of that title that belong to commands, whose marks are by session."""
    return [process for process in psutil.process_iter() if _is_of(process, title, marks)]


def _is_of(process, title, marks):
    try:
        if process.status() == psutil.STATUS_ZOMBIE or title not in " ".join(process.cmdline()):
            return False
        # Ray writes its processes' titles over their environment; their session stays.
        return os.getsid(process.pid) in marks or process.environ().get(MARK, "") in marks.values()
    except (psutil.Error, OSError):
        return False


def assert_as_undisturbed(study, undisturbed, tmp_path, *, retried=()):
    """The trials, numbers and references of the undisturbed study, and nothing lost, doubled or
    left behind.
    """
    assert_same_numbers(study.out, undisturbed)
    assert_tidy(study)
    assert_journal(study, tmp_path, retried=retried)


def assert_same_numbers(out, undisturbed):
    ours, theirs = clsweep.open_results(out), clsweep.open_results(undisturbed)
    assert ours.trials["trial_id"].is_unique
    assert list(ours.trials["trial_id"]) == list(ours.plan["trial_id"])
    for table in ("plan", "trials", "epochs", "histograms", "points", "hits", "references"):
        a, b = (_numbers(getattr(results, table)) for results in (ours, theirs))
        pd.testing.assert_frame_equal(a, b, obj=table)
    trained = ours.epochs.groupby("trial_id")["epoch"].agg(list)
    for trial_id, num_epochs in ours.trials.set_index("trial_id")["epochs_trained"].items():
        assert trained[trial_id] == list(range(1, num_epochs + 1))


def _numbers(table):
    """Less what was measured, in an order that does not depend on which trial ended first."""
    keys = [
        name
        for name in ("trial_id", "epoch", "bin_low", "index", "reference", "seed")
        if name in table
    ]
    return table.drop(columns=MEASURED, errors="ignore").sort_values(keys, ignore_index=True)


def assert_tidy(study):
    """Nothing is left of what only an unfinished study needs, and the journal says what the rows
    say.
    """
    trials = clsweep.open_results(study.out).trials
    assert study.checkpoints() == set(trials.query("status == 'failed'")["trial_id"])
    assert [
        path for path in study.files("") if path.suffix == ".tmp" or ".lock." in path.name
    ] == []
    assert study.files("parts") == []
    assert study.scratch() == []


def assert_journal(study, tmp_path, *, retried=()):
    """One entry for each drawn trial, and one more for each that was run again after it had
    failed.
    """
    trials = clsweep.open_results(study.out).trials
    for objective, rows in trials.groupby("objective"):
        entries = study.entries(str(objective), tmp_path)
        names = [entry.user_attrs["trial_id"] for entry in entries]
        again = [trial_id for trial_id in retried if trial_id in set(rows["trial_id"])]
        assert sorted(names) == sorted([*rows["trial_id"], *again])
        latest = dict(zip(names, entries, strict=True))
        for row in rows.to_dict("records"):
            assert latest[row["trial_id"]].state == STATES[row["status"]]
            assert latest[row["trial_id"]].value == (
                None if row["status"] == "failed" else row["knn_top1"]
            )


def assert_stopped_by_asha(study, tmp_path):
    """Some trials have fewer epochs than the others, and the journal says of whose configurations
    it is so.
    """
    assert_tidy(study)
    trials = clsweep.open_results(study.out).trials
    assert set(trials["status"]) == {"finished", "stopped"}
    is_stopped = trials["status"] == "stopped"
    assert (trials["epochs_trained"] < trials["epochs"]).tolist() == is_stopped.tolist()
    states = {entry.user_attrs["config"]: entry.state for entry in study.entries("dcl", tmp_path)}
    assert states == {row["config"]: STATES[row["status"]] for row in trials.to_dict("records")}
