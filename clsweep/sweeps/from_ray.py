"""Results of Ray Tune: a folder for each trial with params.json, result.json or progress.csv."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clsweep.errors import RequestError
from clsweep.sweeps.foreign_sweep import ForeignSweep, ForeignTrial, parse_settings
from clsweep.sweeps.parsing import ADDRESS, flatten, numeric_results, parse_text
from clsweep.sweeps.source_files import refuse_damaged, refuse_links_out

_STATUS = {"TERMINATED": "finished", "ERROR": "failed", "CUT": "stopped"}  # others: running
_REACHED = "REACHED"  # of those that ended as they met the criterion to stop
_STATUS |= {_REACHED: "finished"}
_FILES = ("params.json", "result.json", "progress.csv")
_ERROR, _STATE = "error.txt", "experiment_state-*.json"
_FAILURE = re.compile(r"occurred at ([-_0-9]+)")  # in error.txt, as a report tells its date
# What Tune adds to every report.
BOOKKEEPING = {
    "timestamp", "checkpoint_dir_name", "should_checkpoint", "done", "training_iteration",
    "trial_id", "date", "time_this_iter_s", "time_total_s", "pid", "hostname", "node_ip", "config",
    "time_since_restore", "iterations_since_restore", "timesteps_total", "episodes_total",
    "timesteps_since_restore", "experiment_tag", "experiment_id", "warmup_time",
}  # fmt: skip


def read_ray(source: Path) -> ForeignSweep:
    """The trials of an experiment, or of several in one folder, a group for each; of each metric
    the last value. The last report of a trial that a scheduler stopped says `done`; that of a
    function which returned does not.

    Raises:
        RequestError: no trial is there, a file is damaged, or settings changed within a trial.
    """
    source = source.resolve()  # the folder "." has no name
    folders = _folders(source)
    with refuse_damaged(source, "experiments of Ray"):
        states = {experiment: _state(experiment) for experiment in {of.parent for of in folders}}
    trials: dict[tuple[str, str], ForeignTrial] = {}  # by their ids and settings
    # a copy has a name that its experiment does not know
    known = {path / name for path, (_, statuses) in states.items() for name in statuses}
    known |= folders
    for trial in sorted(folders, key=lambda f: (f.name not in states[f.parent][1], f)):
        _, statuses = states[trial.parent]
        with refuse_damaged(trial, "a trial of Ray"):
            reports = _reports(trial)
            if len({*map(_config, reports)} - {"{}"}) > 1:
                raise RequestError(
                    f"{trial}: expected the same settings in all reports, given others in some, "
                    "as population-based training makes them: no trial has one setting"
                )
            last = {name: value for report in reports for name, value in report.items()}
            results = {n: last[n] for n in last if n not in BOOKKEEPING and n[:7] != "config/"}
            settings = _settings(trial / "params.json", last)
            if settings is None:
                folders.remove(trial)
                continue
            read = ForeignTrial(
                group=trial.parent.name,
                status=_status(trial, statuses, last),
                settings=flatten(settings),
                results=numeric_results(results, "/"),
                reports=[numeric_results(report, "/") for report in reports],
                length=int(last.get("training_iteration") or len(reports)),
                # and TERMINATED as its experiment says, not for want of one
                returned=statuses.get(trial.name) == _REACHED
                or (last.get("done") is False and trial.name in statuses),
            )
            key = str(last.get("trial_id", trial)), repr(sorted(read.settings.items()))
            if key not in trials or (read.length or 0) > (trials[key].length or 0):
                trials[key] = read  # and a copy may be of before its end
    _finish_longest([*trials.values()])
    if not trials:
        expected = "the folder of an experiment of Ray Tune (TRIAL/params.json or result.json)"
        raise RequestError(f"{source}: expected {expected}, found none")
    parse_settings(trials.values())
    notes = []
    if copies := len(folders) - len(trials):
        notes.append(f"left out: {copies} folders of trials that are copies of others")
    if lacking := len(known - folders):
        notes.append(f"left out: {lacking} trials whose folder or files are gone")
    metrics = {metric for metric, _ in states.values()}
    metric = metrics.pop() if len(metrics) == 1 else ""
    return ForeignSweep(trials=[*trials.values()], metric=metric, notes=notes)


def _finish_longest(trials: Sequence[ForeignTrial]) -> None:
    """Mark as finished, in place, what was stopped when it was as long as the longest that is:
    HyperBand pauses its trials also at their last report, and ends them there.
    """
    longest: dict[str, float] = {}
    for trial in trials:
        if trial.status == "finished":
            longest[trial.group] = max(trial.length or 0, longest.get(trial.group, 0))
    for trial in trials:
        if trial.status == "stopped" and (trial.length or 0) >= longest.get(trial.group, math.inf):
            trial.status, trial.returned = "finished", False


def _folders(source: Path) -> set[Path]:
    """The folders of trials. RequestError for a link out of the source where one would be read."""
    files = [file for name in _FILES for at in ("*", "*/*") for file in source.glob(f"{at}/{name}")]
    folders = {file.parent for file in files if file.exists() and file.stat().st_size}
    # a checkpoint below a trial may have a file of that name
    folders -= {folder for folder in folders if folder.parent in folders}
    refuse_links_out(source, *(of / name for of in folders for name in (*_FILES, _ERROR)))
    refuse_links_out(source, *source.glob(_STATE), *source.glob(f"*/{_STATE}"))
    return folders


def _status(trial: Path, known: dict[str, str], last: Mapping[str, Any]) -> str:
    """As the experiment says. It may have died before it named a trial; without one nothing is
    known but error.txt, which of a trial that was tried again is that of an earlier attempt: Ray
    says when it was.
    """
    unknown = "TERMINATED" if last.get("done") or not known else "RUNNING"
    if (error := trial / _ERROR).exists():
        failures = _FAILURE.findall(error.read_text("utf-8", errors="replace"))
        went_on = failures and failures[-1] < str(last.get("date", ""))
        unknown = unknown if went_on else "ERROR"
    status = known.get(trial.name, unknown)
    if status == "PAUSED" and not {"RUNNING", "PENDING"} & {*known.values()}:
        return "stopped"  # a scheduler never went on with it
    return _STATUS.get(status, "running")


def _settings(file: Path, last: Mapping[str, Any]) -> dict[str, Any] | None:
    """The settings of params.json; where its writer died or it is gone, those of the reports: a
    table, or of progress.csv the columns config/net/width, which newer ones lack.
    """
    columns = {n[7:].replace("/", "."): last[n] for n in last if n[:7] == "config/"}
    reported: dict[str, Any] = last.get("config") or columns
    try:
        return dict(json.loads(file.read_text("utf-8")))
    except FileNotFoundError:
        return reported or None
    except ValueError:
        if not reported:
            raise
        return reported


def _config(report: Mapping[str, Any]) -> str:
    """The settings that a report names, as a text; of functions without their addresses."""
    table = {name: value for name, value in report.items() if name[:7] == "config/"}
    return ADDRESS.sub("", json.dumps(report.get("config") or table, sort_keys=True))


def _state(experiment: Path) -> tuple[str, dict[str, str]]:
    """The metric that Tune optimised, and the status of each trial by its folder: of the newest
    file that was written whole. One that a budget of time ended was never done: CUT. One whose last
    report met a criterion of `RunConfig(stop=...)` is REACHED.
    """
    for file in sorted(experiment.glob(_STATE), reverse=True):
        with contextlib.suppress(ValueError):
            state = json.loads(file.read_text("utf-8"))
            status: dict[str, str] = {}
            for texts in state.get("trial_data", state.get("checkpoints", [])):
                given = [texts] if isinstance(texts, str | dict) else texts  # before Ray 2.4
                row, *ran = (json.loads(t) if isinstance(t, str) else t for t in given)
                last = {**row, **dict(*ran)}.get("last_result") or {}
                name = Path(row.get("relative_logdir") or row.get("logdir") or "").name
                status[name] = row["status"]
                if row["status"] == "TERMINATED" and last.get("done") is False:
                    status[name] = "CUT"
                elif row["status"] == "TERMINATED" and _meets(row.get("stopping_criterion"), last):
                    status[name] = _REACHED
            return state.get("runner_data", {}).get("_metric") or "", status
    return "", {}


def _meets(criterion: Any, last: Mapping[str, Any]) -> bool:
    """True where a result is as large as the criterion to stop asks for one of them."""
    results = numeric_results(last, "/")
    least_of = criterion if isinstance(criterion, Mapping) else {}
    return any(
        isinstance(least, int | float) and results.get(name, -math.inf) >= least
        for name, least in least_of.items()
    )


def _reports(folder: Path) -> list[dict[str, Any]]:
    """All that a trial reported, in order. A last line that was cut off, as its writer died, is
    left out; what a row of a CSV lacks was not reported.
    """
    lines, table = folder / "result.json", folder / "progress.csv"
    if not lines.exists() or not lines.stat().st_size:
        if not table.exists():
            return []
        with table.open(newline="", encoding="utf-8", errors="replace") as file:
            rows = [*csv.reader(line for line in file if line.endswith("\n"))]
        names = rows[0] if rows else []
        if numbered := [name for name in names if isinstance(parse_text(name), int | float)]:
            raise RequestError(f"{table}:1: expected names of columns, given {numbered[0]}")
        for number, row in enumerate(rows[1:], 2):
            if len(row) != len(names):
                expected = f"expected {len(names)} cells, given {len(row)}"
                raise RequestError(f"{table}:{number}: {expected}")
        texts = [dict(zip(names, row, strict=True)) for row in rows[1:]]
        return [{n: parse_text(text) for n, text in row.items() if text} for row in texts]
    given = lines.read_text("utf-8", errors="replace").splitlines(keepends=True)
    reports = []
    for number, line in enumerate(given, 1):
        try:
            reports += [json.loads(line)] if line.strip() else []
        except ValueError as error:
            if number < len(given) or line.endswith("}\n"):  # another report is behind the cut
                raise RequestError(f"{lines}:{number}: expected a report: {error}") from None
    return reports
