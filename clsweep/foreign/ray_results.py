"""Results of Ray Tune: a folder for each trial with params.json and result.json or progress.csv."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clsweep.errors import RequestError
from clsweep.foreign.sweep import ForeignSweep, ForeignTrial, flat, numbers, parsed, told

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
    the last value. A trial that ended after fewer reports than others was stopped, unless a
    setting says how many there are.

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
    metrics = set()
    trials, lengths = [], []
    for file in files:
        experiment = file.parents[1]
        with told(file, "a trial of Ray"):
            if experiment not in states:
                states[experiment] = _state(experiment)
            state = states[experiment]
            trial, length = _trial(file, state["status"])
        metrics.add(state["metric"])
        trials.append(trial)
        lengths.append(length)
    _mark_stopped(trials, lengths)
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


def _trial(file: Path, status: Mapping[str, str]) -> tuple[ForeignTrial, int]:
    folder = file.parent
    settings = flat(json.loads(file.read_text("utf-8")))
    rows = _reports(folder)
    last = {n: v for n, v in (rows[-1] if rows else {}).items() if n not in BOOKKEEPING}
    last = {n: v for n, v in last.items() if not n.startswith("config/")}
    has_error = (folder / "error.txt").exists()
    state = "ERROR" if has_error else status.get(folder.name, "TERMINATED")
    return (
        ForeignTrial(
            group=folder.parent.name,
            status=STATUS.get(state, "running"),
            settings=settings,
            results=numbers(last),
        ),
        len(rows),
    )


def _reports(folder: Path) -> list[dict[str, Any]]:
    """All that a trial reported, in order."""
    lines, table = folder / "result.json", folder / "progress.csv"
    if lines.exists() and lines.stat().st_size:
        return [json.loads(line) for line in lines.read_text("utf-8").splitlines() if line]
    if not table.exists():
        return []
    with table.open(newline="", encoding="utf-8") as file:
        return [{n: parsed(v) for n, v in row.items()} for row in csv.DictReader(file)]


def _mark_stopped(trials: list[ForeignTrial], lengths: list[int]) -> None:
    ended = [(t, n) for t, n in zip(trials, lengths, strict=True) if t.status == "finished"]
    names = dict.fromkeys(name for trial, _ in ended for name in trial.settings)
    for name in names:
        found: dict[str, set[int]] = {}
        for trial, length in ended:
            found.setdefault(str(trial.settings.get(name)), set()).add(length)
        if len(found) < len(ended) and all(len(each) == 1 for each in found.values()):
            return  # as many reports as a setting says
    longest = max((n for _, n in ended), default=0)
    for trial, length in ended:
        if length < longest:
            trial.status = "stopped"
