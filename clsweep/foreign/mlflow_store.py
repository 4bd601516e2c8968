"""An MLflow store: its SQLite file, or a folder `mlruns` of files."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import yaml

from clsweep.errors import RequestError, nearest
from clsweep.foreign.reading import is_sqlite, opened, parsed, told
from clsweep.foreign.sweep import ForeignSweep, ForeignTrial

# As a database says it, and by the numbers of a store of files.
PARENT = "mlflow.parentRunId"
STATUS = {"FINISHED": "finished", "FAILED": "failed", "KILLED": "failed"}
NUMBERS = {3: "FINISHED", 4: "FAILED", 5: "KILLED"}


def read_mlflow(source: Path, experiment: str | None) -> ForeignSweep:
    """The runs of a store that were not deleted, a group for each experiment; of each metric the
    last value. A run that others are nested in is their sweep, not a trial.

    Args:
        experiment: read this one alone.

    Raises:
        RequestError: no store, or an unknown experiment.
    """
    with told(source, "an MLflow store", yaml.YAMLError, sqlite3.DatabaseError):
        is_database = source.is_file() and is_sqlite(source)
        runs, parents = _from_sqlite(source) if is_database else _from_files(source)
    trials = [trial for name, trial in runs.items() if name not in parents]
    groups = dict.fromkeys(trial.group for trial in trials)
    if experiment is not None and experiment not in groups:
        raise RequestError(
            f"{source}: no experiment {experiment!r} with runs.{nearest(experiment, groups)} "
            f"Experiments: {', '.join(groups)}"
        )
    num = len(runs) - len(trials)
    notes = [f"left out: runs that others are nested in ({num})"] if num else []
    return ForeignSweep(trials=[t for t in trials if experiment in (None, t.group)], notes=notes)


def _from_sqlite(source: Path) -> tuple[dict[str, ForeignTrial], set[str]]:
    """Runs by their id, and the ids that others name as their parent."""
    params: dict[str, dict[str, Any]] = {}
    metrics: dict[str, dict[str, float]] = {}
    with opened(source) as base:
        for run, key, value in base.execute("SELECT run_uuid, key, value FROM params"):
            params.setdefault(run, {})[key] = parsed(value)
        for run, key, value in base.execute(
            "SELECT run_uuid, key, value FROM latest_metrics WHERE NOT is_nan"
        ):
            metrics.setdefault(run, {})[key] = value
        runs = base.execute(
            "SELECT r.run_uuid, r.name, r.status, e.name FROM runs r JOIN experiments e "
            "ON r.experiment_id = e.experiment_id WHERE r.lifecycle_stage = 'active' "
            "ORDER BY r.start_time, r.run_uuid"
        ).fetchall()
        nested = base.execute("SELECT run_uuid, value FROM tags WHERE key = ?", (PARENT,))
        active = {run for run, *_ in runs}
        parents = {parent for run, parent in nested if run in active}
    return {
        run: ForeignTrial(
            group=group, status=STATUS.get(status, "running"), settings=params.get(run, {}),
            results=metrics.get(run, {}), labels={"run_name": name or ""},
        )
        for run, name, status, group in runs
    }, parents  # fmt: skip


class _Loader(yaml.SafeLoader):
    """Without aliases, a few of which can stand for any number of values; MLflow has none."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("expected no aliases")
        return super().compose_node(parent, index)


def _from_files(source: Path) -> tuple[dict[str, ForeignTrial], set[str]]:
    """As `_from_sqlite`, of a store of files: EXPERIMENT/RUN/params/NAME, metrics/NAME and
    tags/NAME, beside two meta.yaml.
    """
    found, parents = [], set()
    for meta in source.glob("*/*/meta.yaml"):
        run = yaml.load(meta.read_text("utf-8"), _Loader)
        if run.get("lifecycle_stage") != "active" or "run_id" not in run:
            continue
        of = yaml.load((meta.parents[1] / "meta.yaml").read_text("utf-8"), _Loader)
        status = run["status"]
        trial = ForeignTrial(
            group=str(of["name"]),
            status=STATUS.get(NUMBERS.get(status, str(status)), "running"),
            settings={k: parsed(v.strip()) for k, v in _texts(meta.parent / "params").items()},
            results={k: _last(v) for k, v in _texts(meta.parent / "metrics").items()},
            labels={"run_name": run.get("run_name") or ""},
        )
        found.append((run["start_time"] or 0, run["run_id"], trial))
        tag = meta.parent / "tags" / PARENT
        parents |= {tag.read_text("utf-8").strip()} if tag.is_file() else set()
    if not found:
        raise ValueError("no runs below it (EXPERIMENT/RUN/meta.yaml)")
    return {name: trial for _, name, trial in sorted(found, key=lambda item: item[:2])}, parents


def _texts(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in files}


def _last(text: str) -> float:
    """The value of the latest step, of several the one logged last: as MLflow's own."""
    lines = [line.split() for line in text.splitlines() if line.strip()]  # time, value, step
    return float(max(lines, key=lambda line: (int(line[2]), int(line[0])))[1])
