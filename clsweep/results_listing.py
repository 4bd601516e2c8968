"""The rows that the commands print about results: status, failures, trials and confirmation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from clsweep.api import Results
from clsweep.errors import RequestError, nearest
from clsweep.objective.catalog import METRICS
from clsweep.objective.ownership import REFERENCE_PARAMS
from clsweep.results.tables import TEST_FIELDS, params_in
from clsweep.results.tally import STATUSES, Tally

Row = dict[str, Any]


def status_rows(results: Results) -> list[Row]:
    """Planned, finished, running, failed and best per objective."""
    names = ["trial_id", "objective", "status", results.metric, *_varied(results.plan_table)]
    plan, trials = (_select(table, names).to_pylist() for table in (results.plan_table, results.trials_table))
    tally = Tally.of(plan, trials, metric=results.metric, mode=results.mode)
    running = results.folder.heartbeat().get("running", ()) if results.folder.is_running() else ()
    if running:
        objective_of = {row["trial_id"]: row["objective"] for row in plan}
        for trial_id in running:
            if trial_id in objective_of:  # else of an extension that is newer than this plan
                tally.objectives[objective_of[trial_id]].running += 1
    return tally.rows()


def _varied(plan: pa.Table) -> list[str]:
    """Hyperparameters that may differ between trials: not those with one value throughout, which are most."""
    return [n for n in params_in(plan.column_names) if plan[n].null_count or pc.count_distinct(plan[n]).as_py() > 1]


def _select(table: pa.Table, names: Sequence[str]) -> pa.Table:
    return table.select([name for name in names if name in table.column_names])


def status_headline(results: Results, rows: Sequence[Row]) -> str:
    """One sentence: running and how long still, finished, or interrupted."""
    left = sum(row["planned"] - sum(row[status] for status in STATUSES if status in row) for row in rows)
    if results.folder.is_running():
        return f"running: {results.folder.heartbeat().get('headline', '')}"
    if left:
        return f"not running; {left} trials are left. Continue with the clsweep command that began it."
    return "complete"


def failure_rows(results: Results) -> list[Row]:
    """Failed trials grouped by error, most frequent first."""
    trials = results.trials_table.select(["trial_id", "status", "error_class", "error_message"])
    errors: dict[tuple[str, str], list[str]] = {}
    for row in trials.filter(pc.equal(trials["status"], "failed")).to_pylist():
        errors.setdefault((row["error_class"], (row["error_message"] or "")[:300]), []).append(row["trial_id"])
    rows = [
        {"trials": len(trial_ids), "error": error, "message": message, "first": trial_ids[0]}
        for (error, message), trial_ids in errors.items()
    ]
    return sorted(rows, key=lambda row: -row["trials"])


def trial_rows(
    results: Results, where: str | None, sort: str | None, top: int | None, *, every_column: bool
) -> tuple[list[Row], list[str]]:
    """Trial rows, selected and sorted, and their columns; for eyes, only those that tell trials apart."""
    frame = results.trials
    varied = [name for name in params_in(frame.columns) if frame[name].nunique(dropna=False) > 1]
    per_objective = frame.groupby("objective")[varied].nunique(dropna=False)
    swept = [name for name in varied if (per_objective[name] > 1).any()]
    if where:
        frame = frame[_selected(frame, where)]
    if sort:
        column = sort.removeprefix("-")
        if column not in frame:
            raise RequestError(f"--sort {sort}: no such column.{nearest(column, frame.columns)}")
        frame = frame.sort_values(column, ascending=not sort.startswith("-"), kind="stable")
    if top:
        frame = frame.head(top)
    if not every_column:
        shown = ["trial_id", "objective", *swept, "seed", "status", *_measured(frame), "train_loss"]
        shown += ["images_per_s", "wall_time_s"]
        if (frame["status"] == "stopped").any():
            shown.append("epochs_trained")
        if (frame["status"] == "failed").any():
            shown.append("error_message")
        frame = frame[shown]
    return _records(frame.astype(object).where(frame.notna(), None)), list(frame.columns)


def _measured(frame: pd.DataFrame) -> list[str]:
    """The metrics that any trial has, on the test split too."""
    names = [metric.name for metric in METRICS] + [field.name for field in TEST_FIELDS]
    return [name for name in names if name in frame and frame[name].notna().any()]


def reference_notes(references: pd.DataFrame, *, metric: str) -> list[str]:
    """What is reached without training, one line; told apart by what the metric depends on."""
    frame = references.dropna(subset=[metric]) if metric in references else pd.DataFrame()
    if frame.empty:
        return []
    probed = metric.startswith("linear")
    others = ("knn",) if probed else ("linear_probe", "probe")  # the other yardstick
    by = [n for n in REFERENCE_PARAMS if not n.startswith(others) and n in frame and frame[n].notna().any()]
    by = ["dataset", *by] if frame["dataset"].nunique() > 1 else by
    frame = frame.drop_duplicates(["reference", "seed", *by])
    parts = []
    for kind, group in frame.groupby("reference", sort=True):
        differing = [n for n in by if n != "encoder" and group[n].nunique(dropna=False) > 1]
        for _, seeds in group.groupby(by, dropna=False):
            values = seeds[differing].iloc[0].dropna()
            named = ", ".join(f"{n} {value}" for n, value in values.items())
            encoder = f" {seeds['encoder'].iloc[0]}" if kind == "untrained" else ""
            spread = f" (sd {seeds[metric].std():.2f}, {len(seeds)} seeds)" if len(seeds) > 1 else ""
            label = f"{str(kind).replace('_', ' ')}{encoder}{f' ({named})' if named else ''}"
            parts.append(f"{label} {seeds[metric].mean():.2f}{spread}")
    return [f"without training, {metric}: {'; '.join(parts)}"]


def _selected(frame: pd.DataFrame, where: str) -> pd.Series[bool]:
    """Which rows an expression selects; a row without a value that it asks for is not selected."""
    try:
        # With types that know missing values no comparison with one holds; of texts pandas' eval makes objects again.
        mask = frame.convert_dtypes().eval(where)
    except Exception as error:  # whatever the user's expression raises
        reason = str(error).splitlines()[0]
        raise RequestError(f"--where {where!r}: {reason}. Columns: {', '.join(frame.columns)}") from None
    if not isinstance(mask, pd.Series) or not pd.api.types.is_bool_dtype(mask):
        raise RequestError(f"--where {where!r}: expected a condition, as in \"tau < 0.1 and status == 'finished'\"")
    return mask.fillna(False).astype(bool)


def confirm_rows(results: Results, *, top: int | None, intervals_apart: bool) -> list[Row]:
    """One row per confirmed configuration; for eyes, an interval stands beside its number."""
    frame = results.confirm(top=top)
    rows = _records(frame)
    if intervals_apart:
        return rows
    shown = [
        {
            "objective": row["objective"],
            "config": row["config"],
            "at": row["at"],
            "search": row["search"],
            "seeds": row["search_seeds"],
            "fresh": _with_interval(row, "fresh", "fresh_low", "fresh_high"),
            "fresh seeds": row["fresh_seeds"],
            "failed": row["fresh_failed"],
            "test": _with_interval(row, "test", "test_low", "test_high"),
            "search - fresh": row["difference"],
        }
        for row in rows
    ]
    empty = [] if frame["test"].notna().any() else ["test"]
    empty += [] if frame["fresh_failed"].any() else ["failed"]
    return [{name: value for name, value in row.items() if name not in empty} for row in shown]


def confirm_notes(results: Results, *, top: int | None) -> list[str]:
    """What the columns mean, and what the table does not have."""
    frame = results.confirm(top=top)
    where = "fresh: on seeds that took no part in picking the best, with the 95 % t-interval of the mean"
    if frame["test"].notna().any():
        where += "; test: these trials on the test split"
    notes = [f"search: mean over the study's seeds, by which the best were picked, which flatters them; {where}"]
    if (frame["fresh_seeds"] == 1).any():
        notes.append("one fresh seed has no interval; give further ones with --seeds")
    for ranking in results.ranking:
        if ranking.num_left_out:
            left_out = f"{ranking.num_left_out} of {ranking.num_left_out + len(ranking.configs)} configurations"
            notes.append(f"{ranking.objective}: {left_out} left out, not finished on all seeds of the study")
    missing = len(results.to_confirm(top)) - len(frame)
    if missing:
        notes.append(f"not confirmed yet: {missing} of the configurations that are the best now")
    return notes


def confirm_headline(results: Results) -> list[str]:
    """One line on how far the confirmation is, if there is one."""
    folder = results.folder.confirmation
    if not folder.exists():
        return []
    done, planned = folder.trials().num_rows, folder.plan().num_rows
    return [f"confirmed: {done} of {planned} trials; see clsweep confirm {results.path}"]


def _with_interval(row: Row, name: str, low: str, high: str, digits: int = 2) -> str:
    if row[name] != row[name]:
        return ""
    interval = f" [{row[low]:.{digits}f}, {row[high]:.{digits}f}]" if row[low] == row[low] else ""
    return f"{row[name]:.{digits}f}{interval}"


def _records(frame: pd.DataFrame) -> list[Row]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
