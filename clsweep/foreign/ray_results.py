"""Results of Ray Tune: a folder for each trial with params.json and result.json or progress.csv."""

from __future__ import annotations

import contextlib
import csv
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clsweep.errors import RequestError
from clsweep.foreign.reading import flat, numbers, parsed, told
from clsweep.foreign.sweep import ForeignSweep, ForeignTrial

STATUS = {"TERMINATED": "finished", "ERROR": "failed", "CUT": "stopped"}  # others: running
ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of functions among settings
# What Tune adds to every report.
BOOKKEEPING = {
    "timestamp", "checkpoint_dir_name", "should_checkpoint", "done", "training_iteration",
    "trial_id", "date", "time_this_iter_s", "time_total_s", "pid", "hostname", "node_ip", "config",
    "time_since_restore", "iterations_since_restore", "timesteps_total", "episodes_total",
    "timesteps_since_restore", "experiment_tag",
}  # fmt: skip


def read_ray(source: Path) -> ForeignSweep:
    """The trials of an experiment, or of several in one folder, a group for each; of each metric
    the last value. The last report of a trial that a scheduler stopped says `done`; that of a
    function which returned does not.

    Raises:
        RequestError: no trial is there, a file is damaged, or settings changed within a trial.
    """
    source = source.resolve()  # the folder "." has no name
    files = {*source.glob("*/params.json"), *source.glob("*/*/params.json")}
    # a checkpoint below a trial may have a file of that name
    files -= {file for file in files if file.parents[1] / "params.json" in files}
    if not files:
        raise RequestError(
            f"{source}: expected the folder of an experiment of Ray Tune "
            "(TRIAL/params.json), found none"
        )
    folders = {file.parent for file in files}
    with told(source, "experiments of Ray"):
        states = {experiment: _state(experiment) for experiment in {of.parent for of in folders}}
    found: dict[str, ForeignTrial] = {}  # by its id
    for file in sorted(files):
        trial, (_, statuses) = file.parent, states[file.parents[1]]
        with told(file, "a trial of Ray"):
            reports = _reports(trial)
            if len({_config(report) for report in reports}) > 1:
                raise RequestError(
                    f"{trial}: expected the same settings in all reports, given others in some, "
                    "as population-based training makes them: no trial has one setting"
                )
            last = reports[-1] if reports else {}
            results = {n: last[n] for n in last if n not in BOOKKEEPING and n[:7] != "config/"}
            read = ForeignTrial(
                group=trial.parent.name,
                status=_status(trial, statuses, last.get("done")),
                settings=flat(json.loads(ADDRESS.sub("", file.read_text("utf-8")))),
                results=numbers(results, "/"),
                length=int(last.get("training_iteration") or len(reports)),
                # and TERMINATED as its experiment says, not for want of one
                returned=last.get("done") is False and trial.name in statuses,
            )
            found.setdefault(str(last.get("trial_id", file)), read)
    notes = []
    if copies := len(files) - len(found):
        notes.append(f"left out: {copies} folders of trials that are copies of others")
    named = {path / name for path, (_, statuses) in states.items() for name in statuses}
    if lacking := len(named - folders):
        notes.append(f"left out: {lacking} trials without a folder of reports")
    metrics = {metric for metric, _ in states.values()}
    metric = metrics.pop() if len(metrics) == 1 else ""
    return ForeignSweep(trials=[*found.values()], metric=metric, notes=notes)


def _status(trial: Path, known: dict[str, str], done: bool | None) -> str:
    """As the experiment says. It may have died before it named a trial; without one nothing is
    known but error.txt, which of a trial that was tried again is that of an earlier attempt.
    """
    unknown = "TERMINATED" if done or not known else "RUNNING"
    unknown = "ERROR" if (trial / "error.txt").exists() else unknown
    status = known.get(trial.name, unknown)
    if status == "PAUSED" and not {"RUNNING", "PENDING"} & {*known.values()}:
        return "stopped"  # a scheduler never went on with it
    return STATUS.get(status, "running")


def _config(report: Mapping[str, Any]) -> str:
    """The settings that a report names, as a text; of functions without their addresses."""
    table = {name: value for name, value in report.items() if name[:7] == "config/"}
    return ADDRESS.sub("", json.dumps(report.get("config") or table, sort_keys=True))


def _state(experiment: Path) -> tuple[str, dict[str, str]]:
    """The metric that Tune optimised, and the status of each trial by its folder: of the newest
    file that was written whole. One that a budget of time ended was never done: CUT.
    """
    for file in sorted(experiment.glob("experiment_state-*.json"), reverse=True):
        with contextlib.suppress(ValueError):
            state = json.loads(file.read_text("utf-8"))
            status: dict[str, str] = {}
            for texts in state.get("trial_data", []):
                row, ran = map(json.loads, (*texts, "{}")[:2])
                done = (ran.get("last_result") or {}).get("done")
                is_cut = row["status"] == "TERMINATED" and done is False
                name = Path(row.get("relative_logdir") or "").name
                status[name] = "CUT" if is_cut else row["status"]
            return state.get("runner_data", {}).get("_metric") or "", status
    return "", {}


def _reports(folder: Path) -> list[dict[str, Any]]:
    """All that a trial reported, in order. A last line that was cut off, as its writer died, is
    left out.
    """
    lines, table = folder / "result.json", folder / "progress.csv"
    if not lines.exists() or not lines.stat().st_size:
        if not table.exists():
            return []
        with table.open(newline="", encoding="utf-8") as file:
            whole = [line for line in file if line.endswith("\n")]
        return [{n: parsed(v) for n, v in row.items()} for row in csv.DictReader(whole)]
    given = lines.read_text("utf-8").splitlines()
    found = []
    for number, line in enumerate(given, 1):
        try:
            found += [json.loads(line)] if line else []
        except ValueError as error:
            if number < len(given):
                raise RequestError(f"{lines}:{number}: expected a report: {error}") from None
    return found
