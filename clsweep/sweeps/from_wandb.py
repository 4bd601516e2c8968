"""Runs of Weights & Biases: folders of offline runs, or a table that was exported."""

from __future__ import annotations

import ast
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clsweep.catalog.rows import Row
from clsweep.display.numbers import count
from clsweep.errors import RequestError
from clsweep.sweeps.column_roles import (
    SETTING_NAMES,
    SETTING_PREFIXES,
    bare_name,
    is_of_a_run,
)
from clsweep.sweeps.exported_rows import rows_of_csv, rows_of_runs, runs_of_json
from clsweep.sweeps.foreign_sweep import (
    ENDED,
    OWN_LABELS,
    ForeignSweep,
    ForeignTrial,
    count_in_epochs,
    parse_settings,
    reports_by_epoch,
)
from clsweep.sweeps.from_ray import BOOKKEEPING
from clsweep.sweeps.parsing import flatten, numeric_results, parse_text
from clsweep.sweeps.source_files import refuse_damaged, refuse_links_out
from clsweep.sweeps.wandb_records import read_records, values_of_items

_STATES = {"finished": "finished", "failed": "failed", "crashed": "failed", "killed": "failed"}
# and as the tables of Optuna, MLflow and others say it, in a column that may be called otherwise
_STATES |= {"complete": "finished", "completed": "finished", "terminated": "finished"}
_STATES |= {"fail": "failed", "error": "failed", "pruned": "stopped", "stopped": "stopped"}
_STATES |= dict.fromkeys(("running", "scheduled", "waiting", "pending", "paused"), "running")
_STATE_COLUMNS = ("State", "state", "Status", "status")
_NUMBERING = ("_", "Unnamed: ")  # W&B's own columns, and those of pandas that number rows
# Columns of an export that are neither settings nor results.
_LABELS = (
    "Name", "ID", "State", "Notes", "User", "Tags", "Created", "Runtime", "Sweep", "Agent", "Group",
    "GitHub", "GPU Count", "GPU Type", "Hostname", "Job Type", "Relative Time (Process)", "Updated",
    "name", "id", "state", "notes", "user", "tags", "created", "created_at", "runtime", "url",
    "run_id",
)  # fmt: skip
_IDS = {"ID", "id", "run_id", "trial_id"}
_TABLES, _LISTS = ("csv", "tsv"), ("json", "jsonl", "ndjson")
_PARENT = "tags.mlflow.parentRunId"
_RAY_TABLE = {"training_iteration", "time_this_iter_s"}  # of Tune's `get_dataframe`
# Settings and results of a run, as W&B's interfaces call them otherwise.
_ALIASES = {
    "json_config": "config", "rawconfig": "config", "summary_metrics": "summary",
    "summaryMetrics": "summary",
}  # fmt: skip


def read_wandb(source: Path) -> ForeignSweep:
    """All runs of a folder of offline runs, or of an exported table. The web page's CSV does not
    say which columns are settings and which are results.

    Raises:
        RequestError: neither is there, or it is damaged.
    """
    name = source.name if source.is_file() else ""  # a folder is often called wandb
    kind = name.lower().removesuffix(".gz").rpartition(".")[2]
    is_table, mixed = kind in _TABLES + _LISTS, False
    notes: list[str] = []
    with refuse_damaged(source, "runs of W&B", EOFError, zlib.error):
        if is_table:
            rows, mixed = _read_export(source, kind, notes)
        else:
            files = [source] if kind == "wandb" else sorted(source.rglob("run-*.wandb"))
            if not files:
                raise RequestError(
                    f"{source}: expected an exported .{', .'.join(_TABLES + _LISTS)} or .gz of "
                    "one, or folders of offline runs (run-*.wandb), found none"
                )
            refuse_links_out(source, *files)
            rows = {str(file): _offline(file) for file in files}
    trials = _join_rows(rows, is_table=is_table)
    if copies := len(rows) - len(trials):
        notes.append(f"left out: {copies} earlier rows or files of runs that come again")
    notes += _drop_empty_cells(trials) if mixed else []
    parse_settings(trials, typed=not mixed)
    by_step = count_in_epochs(trials)
    return ForeignSweep(trials=trials, mixed=mixed, by_step=by_step, notes=notes)


def _read_export(source: Path, kind: str, notes: list[str]) -> tuple[dict[str, ForeignTrial], bool]:
    """The runs by their places, and whether their settings and results are mixed.

    Raises:
        RequestError: each row is a step of one run.
    """
    given = rows_of_csv(source, notes) if kind in _TABLES else runs_of_json(source, kind)
    runs = {at: {_ALIASES[n]: run[n] for n in _ALIASES if n in run} | run for at, run in given}
    mixed = not all(map(_is_apart, runs.values()))
    steps = _join_steps(runs, notes) if mixed else {}
    trials = {at: _trial(run, at) for at, run in _without_parents(runs, notes).items()}
    for at in steps.keys() & trials.keys():
        reports = reports_by_epoch([*map(numeric_results, steps[at])])
        trials[at] = replace(trials[at], length=len(steps[at]), reports=reports)
    ends = runs.values() if not steps else ()
    if early := sum(run.get("done") == "False" for run in ends if {*run} >= _RAY_TABLE):
        notes.append(
            f"{early} of {len(runs)} rows are no last report of their trial (done is False): the "
            "best one, or that of a trial which had not ended; they count as finished"
        )
    lengths = [trial.length or 0 for trial in trials.values() if not trial.labels]
    if mixed and len(lengths) == len(trials) > 1 and lengths == sorted({1, *lengths}):
        raise RequestError(f"{source}: expected a row for each run, given each step of one")
    return trials, mixed


def _join_steps(runs: dict[str, Row], notes: list[str]) -> dict[str, list[Row]]:
    """Make one row a run of a table that has one a step, in place: of each column the last value.

    Returns:
        the rows of each run, without empty cells; none where a row is a run.
    """
    counter, given = rows_of_runs(runs, lambda name: name in _IDS or is_of_a_run(name))
    if not given:
        return {}
    notes.append(
        f"{count(len(runs))} rows are the steps of {count(len(given))} runs, as {counter} counts "
        "them: of each the last value"
    )
    steps = {
        at: [{n: value for n, value in row.items() if value not in ("", None)} for row in rows]
        for at, rows in given.items()
    }
    for at in [*runs]:
        last = {name: value for row in steps.get(at, ()) for name, value in row.items()}
        row = dict.fromkeys(runs.pop(at), "") | last
        if at in steps:
            # a table of Tune's is told by its own column
            runs[at] = {n: row[n] for n in row if n != counter or {*row} >= _RAY_TABLE}
    return steps


def _without_parents(runs: dict[str, Row], notes: list[str]) -> dict[str, Row]:
    """The rows of MLflow's `search_runs` without those that other runs are nested in."""
    parents = {run.get(_PARENT) for run in runs.values()} - {None, ""}
    rest = {at: run for at, run in runs.items() if run.get("run_id") not in parents}
    if num := len(runs) - len(rest):
        notes.append(f"left out: runs that others are nested in ({num})")
    return rest


def _drop_empty_cells(trials: Sequence[ForeignTrial]) -> list[str]:
    """Leave out the settings whose cell is empty, in place.

    Returns:
        notes on those whose name the catalog knows and that no trial has.
    """
    names = dict.fromkeys(name for trial in trials for name in trial.settings)
    for trial in trials:
        trial.settings = {name: text for name, text in trial.settings.items() if text != ""}
    lost = names.keys() & SETTING_NAMES - {name for trial in trials for name in trial.settings}
    return [f"{name} is empty in all trials" for name in names if name in lost]


def _join_rows(rows: Mapping[str, ForeignTrial], *, is_table: bool) -> list[ForeignTrial]:
    """One trial a run. A run that was resumed has a file each time, which does not say whether it
    began anew, so its length is not known, and neither are its reports.

    Raises:
        RequestError: a table has different values of one run.
    """
    trials: dict[str, ForeignTrial] = {}
    for at, trial in rows.items():
        name = str(next((trial.labels[n] for n in ("ID", "id", "run_id") if n in trial.labels), at))
        earlier = trials.get(name, trial)
        if is_table and earlier != trial:
            raise RequestError(f"{at}: the run {name} stands twice, with different values")
        settings, results = earlier.settings | trial.settings, earlier.results | trial.results
        if not is_table and name in trials:
            trial = replace(trial, length=None, reports=())
        trials[name] = replace(trial, settings=settings, results=results)
    return [*trials.values()]


def _is_apart(run: Mapping[str, Any]) -> bool:
    """True where settings and results stand apart; a setting may be called `config`, too."""
    config = run.get("config")
    is_table = isinstance(config, str) and config.lstrip().startswith("{")
    return "config" in run and ("summary" in run or is_table or not isinstance(config, str))


def _trial(run: Mapping[str, Any], at: str) -> ForeignTrial:
    """A run with `config` and `summary` apart, as in W&B's API, or all in one: a line of the web
    page's table. Its numbers stand among settings and results, until one is the metric. A column
    without a name numbers the rows.
    """
    if not _is_apart(run):
        row = {name: "" if value is None else str(value) for name, value in run.items()}
        known = [name for name in _STATE_COLUMNS if name in row]
        stated = [name for name in known if name in _LABELS or row[name].lower() in _STATES]
        of_ray = BOOKKEEPING | {"logdir"} if {*row} >= _RAY_TABLE else set[str]()
        others = {"", *_LABELS, *stated, *of_ray}
        values = {name: text for name, text in row.items() if name not in others}
        results = numeric_results(values)
        is_last = row.get("done") != "False"  # else the best row, or one of an unended trial
        reports = parse_text(row["training_iteration"]) if of_ray and is_last else None
        settings = {n: text for n, text in values.items() if not n.startswith(_NUMBERING)}
        named = {n: text for n, text in settings.items() if n.startswith(SETTING_PREFIXES)}
        plain = {*map(bare_name, named)}
        if not of_ray and settings.keys() & (SETTING_NAMES | {"seed"}) - plain:
            named = {}  # `params_m` beside `lr` is the size of a model
        beside = [n for n in settings if n not in named] if named else []
        return ForeignTrial(
            group="wandb",
            status=_status(row[stated[0]] if stated else None),
            length=reports or _length(results),
            settings=named or settings,
            results=results,
            labels={n: row[n] for n in (*_LABELS, *beside) if row.get(n)},
        )
    flat = {n: value for n, value in run.items() if n not in (*_LABELS, "config")}
    given = {"config": run.get("config"), "summary": run.get("summary", flat)}
    config, summary = (_table(each or {}, f"{at}: {name}") for name, each in given.items())
    settings = {}
    for name, entry in config.items():  # as it is, or its value beside a description
        is_wrapped = isinstance(entry, Mapping) and {"value"} <= {*entry} <= {"value", "desc"}
        if not name.startswith("_wandb"):
            settings[name] = entry["value"] if is_wrapped else entry
    status = _status(run.get("state"))
    is_own = {*settings} >= OWN_LABELS and summary.get("status") in ENDED  # by clsweep's own logger
    names = ("name", "group", "job_type", "id")
    return ForeignTrial(
        group=str(run.get("project") or "wandb"),
        status=summary["status"] if is_own else status,
        settings=flatten(settings),
        results=numeric_results({n: v for n, v in summary.items() if not n.startswith("_")}),
        labels={n: run[n] for n in names if isinstance(run.get(n), str)},
        length=None if is_own else _length(summary),
    )


def _status(state: str | None) -> str:
    return "finished" if state is None else _STATES.get(state.lower(), "running")


def _length(values: Mapping[str, Any]) -> float | None:
    step = values.get("_step")
    return step + 1 if isinstance(step, int | float) else None


def _table(given: Any, at: str) -> Mapping[str, Any]:
    """A table, which may be a text of JSON or, as the CSV of W&B's guide has it, of Python."""
    table = given
    if isinstance(given, str):
        try:
            table = json.loads(given)
        except ValueError:
            try:
                table = ast.literal_eval(_NamedNumbers().visit(ast.parse(given, mode="eval")))
            except (ValueError, SyntaxError):
                table = None
    if not isinstance(table, Mapping):
        raise RequestError(f"{at}: expected a table of names and values, given {str(given)[:40]!r}")
    return table


class _NamedNumbers(ast.NodeTransformer):
    """The names nan and inf as numbers."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(float(node.id)) if node.id in ("nan", "inf") else node


def _offline(file: Path) -> ForeignTrial:
    """The run of one file, with the last value of each metric and those of its history."""
    history: list[dict[str, float]] = []
    config: dict[str, Any] = {}
    last: dict[str, Any] = {}
    labels = {"id": file.stem.removeprefix("run-")}
    state = "running"
    for record in read_records(file):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            names = {"project": run.project, "group": run.run_group, "job_type": run.job_type}
            names["name"] = run.display_name
            labels |= {name: text for name, text in names.items() if text}
            config |= values_of_items(run.config.update)
        elif kind == "config":
            config |= values_of_items(record.config.update)
        elif kind == "summary":
            last |= flatten(values_of_items(record.summary.update))  # acc.max beside acc
        elif kind == "history":
            last |= (values := values_of_items(record.history.item))
            plain = {name: value for name, value in values.items() if not name.startswith("_")}
            history.append(numeric_results(plain))
        elif kind == "exit":
            state = "failed" if record.exit.exit_code else "finished"
    trial = _trial({"config": config, "summary": last, "state": state, **labels}, str(file))
    return replace(trial, reports=reports_by_epoch(history))
