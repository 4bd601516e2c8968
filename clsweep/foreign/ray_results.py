"""Results of Ray Tune: a folder for each trial with params.json and result.json or progress.csv."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from clsweep.errors import RequestError
from clsweep.foreign.reading import flat, numbers, parsed, told
from clsweep.foreign.sweep import ForeignSweep, ForeignTrial

STATUS = {"TERMINATED": "finished", "ERROR": "failed"}  # others: running
# What Tune adds to every report.
BOOKKEEPING = {
    "timestamp", "checkpoint_dir_name", "should_checkpoint", "done", "training_iteration",
    "trial_id", "date", "time_this_iter_s", "time_total_s", "pid", "hostname", "node_ip", "config",
    "time_since_restore", "iterations_since_restore", "timesteps_total", "episodes_total",
    "timesteps_since_restore", "experiment_tag",
}  # fmt: skip


def read_ray(source: Path) -> ForeignSweep:
    """The trials of an experiment, or of several in one folder, a group for each; of each metric
    the last value. A trial that ended after fewer iterations than others of its experiment was
    stopped, unless a setting says how many there are.

    Raises:
        RequestError: no trial is there, or a file is damaged.
    """
    files = sorted(source.glob("*/params.json")) or sorted(source.glob("*/*/params.json"))
    if not files:
        raise RequestError(
            f"{source}: expected the folder of an experiment of Ray Tune "
            "(TRIAL/params.json), found none"
        )
    states: dict[Path, dict[str, Any]] = {}
    trials, lengths = [], []
    for file in files:
        trial, experiment = file.parent, file.parents[1]
        with told(file, "a trial of Ray"):
            if experiment not in states:
                states[experiment] = _state(experiment)
            reports = _reports(trial)
            # of a trial that was tried again, error.txt is that of an earlier attempt
            unknown = "ERROR" if (trial / "error.txt").exists() else "TERMINATED"
            status = states[experiment]["status"].get(trial.name, unknown)
            last = reports[-1] if reports else {}
            results = {n: last[n] for n in last if n not in BOOKKEEPING and n[:7] != "config/"}
            trials.append(
                ForeignTrial(
                    group=experiment.name,
                    status=STATUS.get(status, "running"),
                    settings=flat(json.loads(file.read_text("utf-8"))),
                    results=numbers(results),
                )
            )
        lengths.append(int(last.get("training_iteration") or len(reports)))
    metrics = {state["metric"] for state in states.values()}
    for name in dict.fromkeys(trial.group for trial in trials):
        ended = [
            (trial, length)
            for trial, length in zip(trials, lengths, strict=True)
            if trial.group == name and trial.status == "finished"
        ]
        _mark_stopped(ended)
    return ForeignSweep(trials=trials, metric=metrics.pop() if len(metrics) == 1 else "")


def _state(experiment: Path) -> dict[str, Any]:
    """The metric that Tune optimised, and the status of each trial by its folder; newest file."""
    files = sorted(experiment.glob("experiment_state-*.json"))
    state = json.loads(files[-1].read_text("utf-8")) if files else {}
    rows = [json.loads(row[0]) for row in state.get("trial_data", [])]
    return {
        "metric": state.get("runner_data", {}).get("_metric") or "",
        "status": {Path(row.get("relative_logdir") or "").name: row["status"] for row in rows},
    }


def _reports(folder: Path) -> list[dict[str, Any]]:
    """All that a trial reported, in order. A last line that was cut off, as its writer died, is
    left out.
    """
    lines, table = folder / "result.json", folder / "progress.csv"
    if lines.exists() and lines.stat().st_size:
        return _json_lines(lines)
    if not table.exists():
        return []
    with table.open(newline="", encoding="utf-8") as file:
        whole = [line for line in file if line.endswith("\n")]
    return [{n: parsed(v) for n, v in row.items()} for row in csv.DictReader(whole)]


def _json_lines(file: Path) -> list[dict[str, Any]]:
    lines = file.read_text("utf-8").splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found += [json.loads(line)] if line else []
        except ValueError as error:
            if number < len(lines):
                raise RequestError(f"{file}:{number}: expected a report: {error}") from None
    return found


def _mark_stopped(ended: list[tuple[ForeignTrial, int]]) -> None:
    """Those that ended after fewer iterations than the longest; none where a setting says how long
    each is: a whole number of iterations, or of so many a report.
    """
    lengths = np.array([length for _, length in ended], dtype=float)
    for name in dict.fromkeys(name for trial, _ in ended for name in trial.settings):
        values = [trial.settings.get(name) for trial, _ in ended]
        asked = np.array([v if isinstance(v, int | float) else np.nan for v in values], dtype=float)
        is_whole = (asked >= np.maximum(lengths, 1)).all() and (asked % 1 == 0).all()
        if is_whole and (np.abs(lengths - lengths.max() * asked / asked.max()) < 1).all():
            return
    longest = max((length for _, length in ended), default=0)
    for trial, length in ended:
        if length < longest:
            trial.status = "stopped"
