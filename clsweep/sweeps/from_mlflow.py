"""An MLflow store: its SQLite file, or a folder `mlruns` of files."""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from clsweep.sweeps.foreign_sweep import (
    ENDED,
    MAX_REPORTS,
    ForeignSweep,
    ForeignTrial,
    parse_settings,
    reports_by_epoch,
)
from clsweep.sweeps.parsing import parse_text
from clsweep.sweeps.source_files import (
    is_sqlite,
    open_sqlite,
    refuse_damaged,
    refuse_links_out,
    select_groups,
)

_PARENT = "mlflow.parentRunId"
_STATUS_TAG = "clsweep.status"  # of clsweep's own trials
# As a database has it, and by the numbers of a store of files.
_STATUS = {"FINISHED": "finished", "FAILED": "failed", "KILLED": "failed"}
_STATUS |= {"3": "finished", "4": "failed", "5": "failed", "PRUNED": "stopped"}
# Of Optuna's trials in `mlflow.optuna.storage`, which has KILLED for pruned ones.
_OPTUNA_TAGS = ("param_directions", "param_internal_val_", "numbers")
_DIRECTION_TAG, _MODES = "optuna.study_direction", {"MAXIMIZE": "max", "MINIMIZE": "min"}
_PARTS = ("tags", "params", "metrics")  # folders of a run
_INFINITE = 1.7e308  # as a database has it
# Metrics that were reported more often than once, and not at each step.
_HISTORY = """
SELECT run_uuid, key, step, CASE WHEN is_nan THEN 'nan' ELSE value END FROM metrics JOIN (
  SELECT run_uuid, key FROM metrics GROUP BY run_uuid, key HAVING COUNT(*) BETWEEN 2 AND ?
) USING (run_uuid, key) ORDER BY timestamp, metrics.rowid
"""

_Runs = dict[str, tuple[ForeignTrial, dict[str, str]]]  # by their id, with tags


def read_mlflow(source: Path, experiment: str | None) -> ForeignSweep:
    """The runs of a store that were not deleted, a group for each experiment; of each metric the
    last value. A run that others are nested in is no trial: it is their sweep, or the folds of a
    configuration, whose settings they have then.

    Args:
        experiment: read this one alone.

    Raises:
        RequestError: no store, or an unknown experiment.
    """
    with refuse_damaged(source, "an MLflow store", sqlite3.DatabaseError):
        is_database = source.is_file() and is_sqlite(source)
        runs, lost = (_runs_of_database(source), 0) if is_database else _runs_of_files(source)
    known = dict.fromkeys(trial.group for trial, _ in runs.values())
    groups = select_groups(known, experiment, "experiment with runs", source)
    names = [name for name, run in runs.items() if run[0].group in groups]
    inside: dict[str, _Runs] = {}  # which may be of another experiment
    for name, (trial, tags) in runs.items():
        inside.setdefault(tags.get(_PARENT, ""), {})[name] = trial, tags
    for name in reversed([*runs]):  # what began last is innermost
        if name in runs:
            _take_evaluations(runs[name][0], inside.get(name, {}), runs)
    rest = [name for name in names if name in runs]
    parents = {tags[_PARENT] for _, tags in runs.values() if tags.get(_PARENT) in rest}
    inherited: dict[str, None] = {}
    for trial, tags in map(runs.__getitem__, rest):
        seen: set[str] = set()
        while (parent := tags.get(_PARENT, "")) in runs and parent not in seen:
            of, tags = runs[parent]
            seen.add(parent)
            own = trial.settings
            # `best_C` beside a C of the nested run is what the search has found, as of autolog
            given = {n: v for n, v in of.settings.items() if n.removeprefix("best_") not in own}
            inherited |= dict.fromkeys(given)
            trial.settings = given | own
    notes = [f"left out: runs that others are nested in ({len(parents)})"] if parents else []
    if lost:
        notes.append(f"left out: {lost} runs whose meta.yaml is damaged or gone")
    if evaluations := len(names) - len(rest):
        notes.append(f"left out: {evaluations} runs that evaluate those that they are in")
    if inherited:
        notes.append(f"nested runs have from those that they are in: {', '.join(inherited)}")
    trials = [runs[name][0] for name in rest if name not in parents]
    parse_settings(trials, typed=False)
    modes = {_MODES.get(runs[name][1].get(_DIRECTION_TAG, ""), "") for name in parents}
    mode = modes.pop() if len(modes) == 1 else ""
    optimised = {"value": mode} if mode else {}
    return ForeignSweep(
        trials=trials, metric=next(iter(optimised), ""), modes=optimised, notes=notes
    )


def _take_evaluations(trial: ForeignTrial, inside: _Runs, runs: _Runs) -> None:
    """Drop the runs that only evaluate the one that they are in: it has their results.

    Each has metrics that no other has, or it is the only one. Several have no settings, where one
    alone may. Else they are its trials or folds.
    """
    inside = {name: run for name, run in inside.items() if name in runs}
    if not (inside and trial.settings and trial.results):
        return
    trials = [trial, *(run for run, _ in inside.values())]
    names = [name for each in trials for name in each.results]
    is_apart, is_alone = len(names) == len({*names}), len(inside) == 1
    has_settings = any(each.settings for each in trials[1:])
    is_evaluated = is_apart and is_alone if has_settings else is_apart or is_alone
    for name in inside if is_evaluated else ():
        trial.results = {**runs.pop(name)[0].results, **trial.results}


def _trial(
    about: tuple[str, str | None, str],
    tags: Mapping[str, str],
    params: Mapping[str, str],
    metrics: Mapping[str, float],
    history: Iterable[tuple[str, int, float]],
) -> ForeignTrial:
    """A run. One that clsweep logged tells itself how it ended, and the results of the whole trial.

    about: its experiment, its own name, its status.
    metrics: the last value of each.
    history: metric, step and value of all, as they were reported.
    """
    by_step: dict[int, dict[str, float]] = {}
    reports, unnumbered = _numbered(history)
    for metric, step, value in reports:
        by_step.setdefault(step, {})[metric] = value if abs(value) <= _INFINITE else math.nan
    group, name, status = about
    if _OPTUNA_TAGS[0] in tags:
        status = "PRUNED" if status in ("KILLED", "5") else status
        tags = {tag: text for tag, text in tags.items() if not tag.startswith(_OPTUNA_TAGS)}
        metrics = {name: value for name, value in metrics.items() if name != "intermediate_value"}
    own = {tag: parse_text(text) for tag, text in tags.items() if not tag.startswith("mlflow.")}
    last = {**metrics, **{name: unnumbered[name] for name in unnumbered.keys() & metrics.keys()}}
    known = {name: value for name, value in last.items() if not math.isnan(value)}
    results = {n: math.copysign(math.inf, v) if abs(v) > _INFINITE else v for n, v in known.items()}
    whole = {n.removeprefix("result/"): v for n, v in results.items() if n[:7] == "result/"}
    own_status = tags.get(_STATUS_TAG, "")
    return ForeignTrial(
        group=group,
        status=own_status if own_status in ENDED else _STATUS.get(status, "running"),
        settings={**params},
        results=whole if whole and _STATUS_TAG in tags else results,
        labels={"run_name": name or "", **own},
        reports=reports_by_epoch([by_step[step] for step in sorted(by_step)]),
    )


def _numbered(
    history: Iterable[tuple[str, int, float]],
) -> tuple[list[tuple[str, int, float]], dict[str, float]]:
    """The reports, numbered in their order where a metric has several and no step: MLflow has 0 for
    all of these. Also the last value of each such metric: MLflow has the largest of a millisecond.
    """
    of_metric: dict[str, list[tuple[int, float]]] = {}
    for metric, step, value in history:
        of_metric.setdefault(metric, []).append((step, value))
    unnumbered = {
        metric: [value for _, value in reports]
        for metric, reports in of_metric.items()
        if len(reports) > 1 and not any(step for step, _ in reports)
    }
    return [
        (metric, step, value)
        for metric, reports in of_metric.items()
        for step, value in (enumerate(unnumbered[metric]) if metric in unnumbered else reports)
    ], {metric: values[-1] for metric, values in unnumbered.items()}


def _runs_of_database(source: Path) -> _Runs:
    """The runs by their ids, in the order of their start."""
    tables: list[dict[str, dict[str, Any]]] = []
    with open_sqlite(source) as base:
        for table in ("tags", "params", "latest_metrics WHERE NOT is_nan"):
            values: dict[str, dict[str, Any]] = {}
            tables.append(values)
            for run, key, value in base.execute(f"SELECT run_uuid, key, value FROM {table}"):
                values.setdefault(run, {})[key] = value
        history: dict[str, list[tuple[str, int, float]]] = {}
        for run, key, step, value in base.execute(_HISTORY, (MAX_REPORTS,)):
            history.setdefault(run, []).append((key, step, float(value)))
        runs = base.execute(
            "SELECT r.run_uuid, e.name, r.name, r.status FROM runs r JOIN experiments e "
            "ON r.experiment_id = e.experiment_id WHERE r.lifecycle_stage = 'active' "
            "AND e.lifecycle_stage = 'active' ORDER BY r.start_time, r.run_uuid"
        ).fetchall()
    trials: _Runs = {}
    for run, *about in runs:
        tags, params, metrics = (values.get(run, {}) for values in tables)
        own = history.get(run, ())
        trials[run] = _trial(tuple(about), tags, params, metrics, own), tags
    return trials


class _Loader(yaml.SafeLoader):
    """Without aliases, a few of which can stand for any number of values; MLflow has none."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("expected no aliases")
        return super().compose_node(parent, index)


def _runs_of_files(source: Path) -> tuple[_Runs, int]:
    """The runs of a store of files, and the number of those that have no meta.yaml that is whole.

    Its files are EXPERIMENT/RUN/params/NAME, metrics/NAME and tags/NAME, beside two meta.yaml; or
    those of one EXPERIMENT.
    """
    runs, lost = [], 0
    depth = "*" if (source / "meta.yaml").exists() else "*/*"
    # a run has a folder of metrics from its start
    known = [*source.glob(f"{depth}/meta.yaml"), *source.glob(f"{depth}/metrics")]
    for folder in sorted({path.parent for path in known}):
        if folder.parent.name in (".trash", "models"):  # the latter: of the registry of models
            continue
        parts = [folder / name for name in ("meta.yaml", *_PARTS)]
        links = (path for part in parts[1:] for path in part.rglob("*") if path.is_symlink())
        refuse_links_out(source, folder.parent / "meta.yaml", *parts, *links)
        with refuse_damaged(folder, "a run of MLflow"):
            run, of = _meta(folder), _meta(folder.parent)
            name = run.get("run_id", run.get("run_uuid"))
            if name is None or not {"start_time", "status"} <= {*run}:
                lost += 1
                continue
            if run.get("lifecycle_stage", "active") != "active":
                continue
            about = str(of.get("name", folder.parent.name)), run.get("run_name"), str(run["status"])
            tags, params, metrics = map(_texts, parts[1:])
            values = {name: _values(text) for name, text in metrics.items()}
            # of one step and millisecond MLflow's own last value is the largest
            last = {of: max(given, default=(0, 0, math.nan))[-1] for of, given in values.items()}
            history = ((of, step, x) for of, given in values.items() for step, _, x in given)
            trial = _trial(about, tags, params, last, history)
            runs.append((run["start_time"] or 0, name, (trial, tags)))
    if not runs:
        raise ValueError("no runs below it (EXPERIMENT/RUN/meta.yaml)")
    return {name: run for _, name, run in sorted(runs, key=lambda item: item[:2])}, lost


def _meta(folder: Path) -> dict[str, Any]:
    """The table of meta.yaml; empty where its writer died."""
    meta = None
    with contextlib.suppress(FileNotFoundError, yaml.YAMLError):
        meta = yaml.load((folder / "meta.yaml").read_text("utf-8"), _Loader)
    return meta if isinstance(meta, dict) else {}


def _texts(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("[!.]*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8").strip() for path in files}


def _values(text: str) -> list[tuple[int, int, float]]:
    """Step, time and value of each report, by step and time, else in the order of the file.

    A line that was cut off is none; before MLflow 1.0 they had no step.
    """
    lines = [line.split() for line in text.splitlines()]  # time, value, step, and of a data set 2
    size = min(max(map(len, lines), default=0), 3)
    whole = [line for line in lines if len(line) >= size > 1]
    whole.sort(key=lambda line: int(line[0]))
    reports = [
        (int(line[2]) if size > 2 else number, int(line[0]), float(line[1]))
        for number, line in enumerate(whole)
    ]
    return sorted(reports, key=lambda report: report[:2])
