"""Runs of trackio: its SQLite file of a project, or the folder of all projects."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clsweep.errors import RequestError
from clsweep.sweeps.foreign_sweep import (
    ForeignSweep,
    ForeignTrial,
    count_in_epochs,
    parse_settings,
    reports_by_epoch,
)
from clsweep.sweeps.parsing import flatten, numeric_results
from clsweep.sweeps.source_files import (
    open_sqlite,
    refuse_damaged,
    refuse_links_out,
    select_groups,
)

_FLOATS = {text: float(text) for text in ("NaN", "Infinity", "-Infinity")}  # as trackio has them


def read_trackio(source: Path, project: str | None) -> ForeignSweep:
    """The runs that logged a metric, a group for each project; of each metric the last value. No
    run has a state: a short one counts as stopped, beside the longest (`trial_ends`).

    Args:
        project: read this one alone.

    Raises:
        RequestError: no database, a damaged one, or an unknown project.
    """
    is_folder = source.is_dir()
    files = sorted(source.glob("*.db")) if is_folder else [source]
    refuse_links_out(source, *files)
    trials: list[ForeignTrial] = []
    for file in files:
        with refuse_damaged(file, "a project of trackio", sqlite3.DatabaseError):
            trials += _runs(file)
    groups = dict.fromkeys(trial.group for trial in trials)
    if not trials:
        expected = "a file PROJECT.db of trackio or its folder, with runs"
        raise RequestError(f"{source}: expected {expected}, found none")
    names = select_groups(groups, project, "project", source)
    trials = [trial for trial in trials if trial.group in names]
    parse_settings(trials)
    notes = []
    if waiting := len([*source.glob("inbox/**/*.jsonl")]) if is_folder else 0:
        notes.append(f"left out: {waiting} files in inbox, which `trackio show` takes over")
    return ForeignSweep(trials=trials, by_step=count_in_epochs(trials), notes=notes)


def _runs(file: Path) -> list[ForeignTrial]:
    """The runs of a project, in the order of their first reports; by their names, where an earlier
    trackio gave them no ids.
    """
    with open_sqlite(file) as base:
        names = {row[1] for row in base.execute("PRAGMA table_info(metrics)")}
        key = "run_id" if "run_id" in names else "run_name"
        given = base.execute(f"SELECT {key}, config FROM configs")
        configs = {run: _table(text) for run, text in given}
        reports = base.execute(f"SELECT {key}, run_name, step, metrics FROM metrics ORDER BY id")
        runs: dict[str, list[tuple[str, int, dict[str, Any]]]] = {}
        for run, name, step, text in reports:
            runs.setdefault(run, []).append((name, int(step), _table(text)))
    return [_trial(file.stem, run, rows, configs.get(run, {})) for run, rows in runs.items()]


def _trial(
    project: str,
    run: str,
    reports: list[tuple[str, int, dict[str, Any]]],
    config: Mapping[str, Any],
) -> ForeignTrial:
    last: dict[str, float] = {}
    results = []
    for _, _, report in sorted(reports, key=lambda row: row[1]):
        plain = {n: v for n, v in report.items() if not (isinstance(v, dict) and "_type" in v)}
        results.append(numeric_results(plain))
        last |= results[-1]
    group = config.get("_Group")
    labels = {"id": run, "name": reports[-1][0]} | ({"group": group} if group else {})
    return ForeignTrial(
        group=project,
        status="finished",  # one that raised or was killed looks like a whole one
        settings=flatten({n: v for n, v in config.items() if not n.startswith("_")}),
        results=last,
        labels=labels,
        reports=reports_by_epoch(results),
        length=max(step for _, step, _ in reports) + 1,
    )


def _table(text: str | bytes) -> dict[str, Any]:
    """A table of JSON, which trackio keeps as bytes, with its texts for nan and inf as numbers."""
    table = json.loads(text)
    if not isinstance(table, dict):
        raise ValueError(f"expected a table of names and values, given {str(table)[:40]!r}")
    texts = {name: value for name, value in table.items() if isinstance(value, str)}
    return table | {name: _FLOATS[text] for name, text in texts.items() if text in _FLOATS}
