"""An MLflow store: its SQLite file, or a folder `mlruns` of files."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from clsweep.foreign.reading import chosen, is_sqlite, opened, parsed, told
from clsweep.foreign.sweep import ENDS, ForeignSweep, ForeignTrial

# As a database says it, and by the numbers of a store of files.
PARENT = "mlflow.parentRunId"
ENDED = "clsweep.status"  # of clsweep's own trials
STATUS = {"FINISHED": "finished", "FAILED": "failed", "KILLED": "failed"}
NUMBERS = {3: "FINISHED", 4: "FAILED", 5: "KILLED"}
INFINITE = 1.7e308  # as a database has it

Runs = dict[str, tuple[ForeignTrial, dict[str, str]]]  # by their id, with tags


def read_mlflow(source: Path, experiment: str | None) -> ForeignSweep:
    """The runs of a store that were not deleted, a group for each experiment; of each metric the
    last value. A run that others are nested in is no trial: it is their sweep, or the folds of a
    configuration, whose settings they have then.

    Args:
        experiment: read this one alone.

    Raises:
        RequestError: no store, or an unknown experiment.
    """
    with told(source, "an MLflow store", yaml.YAMLError, sqlite3.DatabaseError):
        is_database = source.is_file() and is_sqlite(source)
        runs = _from_sqlite(source) if is_database else _from_files(source)
    known = dict.fromkeys(trial.group for trial, _ in runs.values())
    groups = chosen(known, experiment, "experiment with runs", source)
    runs = {n: run for n, run in runs.items() if run[0].group in groups}
    parents = {tags[PARENT] for _, tags in runs.values() if tags.get(PARENT) in runs}
    inherited: dict[str, None] = {}
    for trial, tags in runs.values():
        seen: set[str] = set()
        while (parent := tags.get(PARENT, "")) in runs and parent not in seen:
            of, tags = runs[parent]
            seen.add(parent)
            inherited |= dict.fromkeys(n for n in of.settings if n not in trial.settings)
            trial.settings = {**of.settings, **trial.settings}
    notes = [f"left out: runs that others are nested in ({len(parents)})"] if parents else []
    if inherited:
        notes.append(f"nested runs have from those that they are in: {', '.join(inherited)}")
    return ForeignSweep(trials=[t for n, (t, _) in runs.items() if n not in parents], notes=notes)


def _trial(
    group: str,
    name: str,
    status: str,
    tags: Mapping[str, str],
    params: dict[str, Any],
    metrics: Mapping[str, float],
) -> ForeignTrial:
    """A run. What clsweep logged says itself how it ended, and what the whole trial came to."""
    results = {
        n: math.copysign(math.inf, v) if abs(v) > INFINITE else v for n, v in metrics.items()
    }
    if ENDED in tags:
        whole = {n.removeprefix("result/"): v for n, v in results.items() if n[:7] == "result/"}
        results = whole or results
    return ForeignTrial(
        group=group,
        status=tags[ENDED] if tags.get(ENDED) in ENDS else STATUS.get(status, "running"),
        settings=params,
        results=results,
        labels={"run_name": name},
    )


def _from_sqlite(source: Path) -> Runs:
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    with opened(source) as base:
        for table in ("params", "latest_metrics WHERE NOT is_nan", "tags"):
            found = tables.setdefault(table.partition(" ")[0], {})
            for run, key, value in base.execute(f"SELECT run_uuid, key, value FROM {table}"):
                found.setdefault(run, {})[key] = parsed(value) if table == "params" else value
        runs = base.execute(
            "SELECT r.run_uuid, r.name, r.status, e.name FROM runs r JOIN experiments e "
            "ON r.experiment_id = e.experiment_id WHERE r.lifecycle_stage = 'active' "
            "AND e.lifecycle_stage = 'active' ORDER BY r.start_time, r.run_uuid"
        ).fetchall()
    read: Runs = {}
    for run, name, status, group in runs:
        params, metrics, tags = (
            tables[n].get(run, {}) for n in ("params", "latest_metrics", "tags")
        )
        read[run] = _trial(group, name or "", status, tags, params, metrics), tags
    return read


class _Loader(yaml.SafeLoader):
    """Without aliases, a few of which can stand for any number of values; MLflow has none."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("expected no aliases")
        return super().compose_node(parent, index)


def _from_files(source: Path) -> Runs:
    """Of a store of files: EXPERIMENT/RUN/params/NAME, metrics/NAME and tags/NAME, beside two
    meta.yaml.
    """
    found = []
    for meta in source.glob("*/*/meta.yaml"):
        run = yaml.load(meta.read_text("utf-8"), _Loader)
        if run.get("lifecycle_stage") != "active" or "run_id" not in run:
            continue
        of = yaml.load((meta.parents[1] / "meta.yaml").read_text("utf-8"), _Loader)
        status = NUMBERS.get(run["status"], str(run["status"]))
        tags = _texts(meta.parent / "tags")
        params = {k: parsed(v.strip()) for k, v in _texts(meta.parent / "params").items()}
        metrics = {k: _last(v) for k, v in _texts(meta.parent / "metrics").items()}
        trial = _trial(str(of["name"]), run.get("run_name") or "", status, tags, params, metrics)
        found.append((run["start_time"] or 0, run["run_id"], (trial, tags)))
    if not found:
        raise ValueError("no runs below it (EXPERIMENT/RUN/meta.yaml)")
    return {name: run for _, name, run in sorted(found, key=lambda item: item[:2])}


def _texts(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in files}


def _last(text: str) -> float:
    """The value of the latest step, of several the last, of these the highest: as MLflow's own."""
    lines = [line.split() for line in text.splitlines() if line.strip()]  # time, value, step
    return max((int(line[2]), int(line[0]), float(line[1])) for line in lines)[2]
