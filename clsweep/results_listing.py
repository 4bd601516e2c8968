"""The rows that the commands print about results: status, failures, trials and robustness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from clsweep.api import Results
from clsweep.errors import RequestError, nearest
from clsweep.objective.catalog import METRICS
from clsweep.objective.ownership import REFERENCE_PARAMS
from clsweep.results.tally import Tally, swept_params

Row = dict[str, Any]


def status_rows(results: Results) -> list[Row]:
    """Planned, finished, running, failed and best per objective."""
    plan, trials = results.folder.plan().to_pylist(), results.folder.trials().to_pylist()
    tally = Tally.of(plan, trials, metric=results.metric, mode=results.mode)
    objective_of = {row["trial_id"]: row["objective"] for row in plan}
    running = results.folder.heartbeat().get("running", ()) if results.folder.is_running() else ()
    for trial_id in running:
        tally.objectives[objective_of[trial_id]].running += 1
    return tally.rows()


def status_headline(results: Results, rows: Sequence[Row]) -> str:
    """One sentence: running and how long still, finished, or interrupted."""
    left = sum(row["planned"] - row["finished"] - row["failed"] for row in rows)
    if results.folder.is_running():
        return f"running: {results.folder.heartbeat().get('headline', '')}"
    if left:
        return f"not running; {left} trials are left. Continue with the clsweep run command that began it."
    return "complete"


def failure_rows(results: Results) -> list[Row]:
    """Failed trials grouped by error, most frequent first."""
    failed = results.trials.query("status == 'failed'")
    errors = list(zip(failed["error_class"], failed["error_message"].str.slice(0, 300), strict=True))
    first = dict(zip(reversed(errors), reversed(failed["trial_id"].tolist()), strict=True))
    return [
        {"trials": count, "error": error, "message": message, "first": first[error, message]}
        for (error, message), count in Counter(errors).most_common()
    ]


def trial_rows(
    results: Results, where: str | None, sort: str | None, top: int | None, *, every_column: bool
) -> tuple[list[Row], list[str]]:
    """Trial rows, selected and sorted, and their columns; for eyes, only those that tell trials apart."""
    frame = results.trials
    swept = swept_params(results.folder.trials().to_pylist())
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
        if (frame["status"] == "failed").any():
            shown.append("error_message")
        frame = frame[shown]
    return _records(frame.astype(object).where(frame.notna(), None)), list(frame.columns)


def _measured(frame: pd.DataFrame) -> list[str]:
    """The metrics that any trial has."""
    return [m.name for m in METRICS if m.name in frame and frame[m.name].notna().any()]


def reference_notes(results: Sequence[Results]) -> list[str]:
    """What is reached without training, one line per results folder; told apart by what the metric depends on."""
    notes = []
    for result in results:
        metric = result.metric
        frame = result.references.dropna(subset=[metric])
        if frame.empty:
            continue
        probed = metric.startswith("linear")
        others = ("knn",) if probed else ("linear_probe", "probe")  # the other yardstick
        by = [n for n in REFERENCE_PARAMS if not n.startswith(others) and frame[n].notna().any()]
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
        name = f"{result.study['name']}: " if len(results) > 1 else ""
        notes.append(f"without training, {name}{metric}: {'; '.join(parts)}")
    return notes


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


def robustness_rows(results: Sequence[Results], *, by: str | None, within: float, intervals_apart: bool) -> list[Row]:
    """One row per objective; for eyes, an interval stands beside its number."""
    rows = []
    for result in results:
        for row in _records(result.robustness(by=by, within=within)):
            if len(results) > 1:
                row["objective"] = f"{result.study['name']}/{row['objective']}"
            rows.append(row if intervals_apart else _compact(row, within))
    return rows


def robustness_notes(results: Sequence[Results], *, by: str | None, within: float) -> list[str]:
    """The notes of the table, one line each, and the legend."""
    legend = (
        "sd: spread over the swept configurations; sd*: without the seeds' noise; "
        f"within {within:g}: share of the space within {within:g} points of the best; worst 10 %: level of that tenth; "
        "the best and the worst are picked on other seeds than they are scored on"
    )
    frames = [result.robustness(by=by, within=within) for result in results]
    notes = [f"{row['objective']}: {row['note']}" for frame in frames for row in _records(frame) if row["note"]]
    return [legend, *reference_notes(results), *_precision_notes(results), *notes]


def _precision_notes(results: Sequence[Results]) -> list[str]:
    """Where trials of one configuration ran in several precisions, as `auto` chooses them by the device."""
    notes = []
    for result in results:
        trials = result.trials[result.trials["status"] == "finished"]
        if "precision" not in trials:
            continue
        mixed = trials.groupby(["objective", "config"])["precision"].nunique().groupby("objective").max()
        names = [str(name) for name, count in mixed.items() if count > 1]
        if names:
            notes.append(f"{', '.join(names)}: one configuration in several precisions; set base.precision to have one")
    return notes


def _compact(row: Row, within: float) -> Row:
    def with_interval(name: str, low: str, high: str, digits: int = 2) -> str:
        if row[name] != row[name]:
            return ""
        interval = f" [{row[low]:.{digits}f}, {row[high]:.{digits}f}]" if row[low] == row[low] else ""
        return f"{row[name]:.{digits}f}{interval}"

    return {
        "objective": row["objective"],
        "configs": row["num_configs"],
        "seeds": row["num_seeds"],
        "failed": row["num_failed"],
        "mean": row["mean"],
        "sd": with_interval("sd", "sd_low", "sd_high"),
        "sd*": with_interval("sd_star", "sd_star_low", "sd_star_high"),
        "range": row["range"],
        "best": row["best"],
        "at": row["best_at"],
        f"within {within:g}": with_interval("share_within", "share_low", "share_high"),
        "worst 10 %": with_interval("worst_10", "worst_10_low", "worst_10_high", 1),
    }


def _records(frame: pd.DataFrame) -> list[Row]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
