"""The rows that the commands print: catalog, plan, status, trials and robustness as lists of mappings."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clsweep.errors import RequestError, nearest
from clsweep.objective import catalog
from clsweep.objective.catalog import COMPONENT, DATASETS, METRICS, OBJECTIVE_PARTS, PARAMS, Part
from clsweep.study.design import count_configs, plan_row, plan_trials, sampler_of
from clsweep.study.resolve import Study

if TYPE_CHECKING:
    import pandas as pd

    from clsweep.api import Results

Row = dict[str, Any]

_PLURAL: dict[Part, str] = {
    "framework": "frameworks",
    "loss": "losses",
    "regularizer": "regularizers",
    "views": "views",
    "encoder": "encoders",
}

STALE_S = 60.0  # a run that has not said anything for so long is taken for dead


def catalog_tables(kind: str | None) -> dict[str, list[Row]]:
    """The tables of the catalog, or the one of this kind, by title."""
    tables = {plural: _component_rows(part) for part, plural in _PLURAL.items()}
    tables["datasets"] = [
        {"dataset": d.name, "train": d.num_train, "test": d.num_test, "size": d.image_size, "channels": d.channels,
         "classes": d.num_classes, "what": d.doc}
        for d in DATASETS
    ]  # fmt: skip
    tables["metrics"] = [{"metric": m.name, "mode": m.mode, "what": m.doc} for m in METRICS]
    tables["params"] = [
        {"param": p.name, "symbol": p.symbol, "owned by": catalog.owners_of(p.name), "bounds": p.bounds,
         "default": p.default, "swept": "yes" if p.sweepable else "no", "what": p.doc, "source": p.source}
        for p in PARAMS
    ]  # fmt: skip
    if kind is None:
        return tables
    if kind not in tables:
        raise RequestError(f"catalog: unknown kind '{kind}'.{nearest(kind, tables)} Expected: {', '.join(tables)}")
    return {kind: tables[kind]}


def plan_matrix(study: Study) -> list[Row]:
    """One row per hyperparameter in use, one column per objective: swept (*), fixed, or not owned (-)."""
    used = [p.name for p in PARAMS if any(p.name in o.owned for o in study.objectives)]
    parts = [{"param": part, **{o.name: o.parts[part] for o in study.objectives}} for part in OBJECTIVE_PARTS]
    return parts + [{"param": name, **{o.name: _matrix_cell(o, name) for o in study.objectives}} for name in used]


def plan_counts(study: Study) -> list[Row]:
    """Configurations and trials per objective; counted, not drawn."""
    num_seeds = len(study.sections.seeds)
    return [
        {"objective": o.name, "sampler": sampler_of(study, o), "configs": (n := count_configs(study, o)),
         "seeds": num_seeds, "trials": n * num_seeds}
        for o in study.objectives
    ]  # fmt: skip


def plan_notes(study: Study) -> list[str]:
    """What a user should know before running: skips, replaced values, small spaces, missing intervals."""
    notes = [f"note: {note}" for note in study.notes]
    notes += [
        f"skip: '{objective.name}' does not own {', '.join(names)}: {reason}"
        for objective in study.objectives
        for reason, names in objective.skips.items()
    ]
    limit = study.sections.search.trials_per_objective
    for row in plan_counts(study):
        if limit and row["configs"] < limit:
            number = "one configuration" if row["configs"] == 1 else f"{row['configs']} configurations"
            notes.append(f"note: '{row['objective']}' has only {number}: each runs once per seed")
    if len(study.sections.seeds) == 1:
        notes.append("note: one seed: the results will carry no intervals")
    return notes


def plan_trial_rows(study: Study) -> list[Row]:
    """Every planned trial with the parameters that differ somewhere."""
    rows = [plan_row(study, trial) for trial in plan_trials(study)]
    swept = [p.name for p in PARAMS if any(p.name in o.space for o in study.objectives)]
    shown = ("trial_id", "objective", "config", "seed", "sampler", *swept)
    return [{name: row.get(name) for name in shown} for row in rows]


def status_rows(results: Results) -> list[Row]:
    """Planned, finished, running, failed and best per objective."""
    from clsweep.cluster.progress import Tally

    plan, trials = results.folder.plan().to_pylist(), results.folder.trials().to_pylist()
    tally = Tally.of(plan, trials, metric=results.metric, mode=results.mode)
    objective_of = {row["trial_id"]: row["objective"] for row in plan}
    for trial_id in _running(results):
        tally.objectives[objective_of[trial_id]].running += 1
    return tally.rows()


def status_headline(results: Results, rows: Sequence[Row]) -> str:
    """One sentence: running and how long still, finished, or interrupted."""
    left = sum(row["planned"] - row["finished"] - row["failed"] for row in rows)
    if _alive(results):
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
) -> list[Row]:
    """Trial rows, selected and sorted; the columns for eyes are those that tell trials apart."""
    from clsweep.cluster.progress import swept_params

    frame = results.trials
    swept = swept_params(results.folder.trials().to_pylist())
    if where:
        try:
            frame = frame.query(where)
        except Exception as error:  # whatever the user's expression raises
            columns = ", ".join(results.trials.columns)
            raise RequestError(f"--where {where!r}: {str(error).splitlines()[0]}. Columns: {columns}") from None
    if sort:
        column = sort.removeprefix("-")
        if column not in frame:
            raise RequestError(f"--sort {sort}: no such column.{nearest(column, frame.columns)}")
        frame = frame.sort_values(column, ascending=not sort.startswith("-"), kind="stable")
    if top:
        frame = frame.head(top)
    if not every_column:
        shown = ["trial_id", "objective", *swept, "seed", "status", *(m.name for m in METRICS), "train_loss"]
        shown += ["images_per_s", "wall_time_s"]
        if (frame["status"] == "failed").any():
            shown.append("error_message")
        frame = frame[shown]
    return _records(frame.astype(object).where(frame.notna(), None))


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
    return [legend, *notes]


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


def _component_rows(part: Part) -> list[Row]:
    return [
        {part: c.name, "owns": ", ".join(c.owns), "what": c.doc, "source": c.source} for c in COMPONENT[part].values()
    ]


def _matrix_cell(objective: Any, name: str) -> str:
    if name in objective.space:
        return f"* {objective.space[name].describe()}"
    if name not in objective.fixed:
        return "-"
    value = objective.fixed[name]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _alive(results: Results) -> bool:
    beat = results.folder.heartbeat()
    return beat.get("state") == "running" and time.time() - beat.get("time", 0) < STALE_S


def _running(results: Results) -> list[str]:
    return list(results.folder.heartbeat().get("running", ())) if _alive(results) else []
