"""The rows that the commands print about trials, and what is said of those on fresh seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import pandas as pd

from clsweep.catalog import METRICS
from clsweep.catalog.rows import Row
from clsweep.cli.status import MOST_OF_ERROR
from clsweep.cli.where import selected
from clsweep.display.numbers import is_number, setting_column, texts_of
from clsweep.errors import RequestError, listed, nearest
from clsweep.opened_results import Results
from clsweep.results.schemas import TRIAL_STATUSES, test_fields
from clsweep.statistics.recommend import fewer_fresh
from clsweep.statistics.statistic import level_cell
from clsweep.study.factors import factors_of
from clsweep.study.space import declared_axes
from clsweep.sweeps.fresh_seeds import ranking as ranking_of
from clsweep.sweeps.fresh_seeds import unconfirmed
from clsweep.sweeps.notes import CONFIRMED_ON_TEST, records_of, version_notes

# Columns of trials that a screen without room does without.
TRIALS_SPARE = ("train_loss", "images_per_s", "wall_time_s")
# What is shown of trials that ended so.
_OF_STATUS = {"stopped": "epochs_trained", "skipped": "skipped_because", "failed": "error_message"}


def table_status(results: Results) -> list[Row]:
    """Of a table of trials per objective, within its cell if it has several, how many ended how,
    and the best configuration.
    """
    rows: list[Row] = []
    for cell in results.cells or (results,):
        frame, metric = cell.trials, cell.data.metric
        picked = records_of(cell.recommend().query("kind == 'best'"))
        best = {row["objective"]: row for row in picked}
        for name, mine in frame.groupby("objective", sort=False):
            counts = {status: int((mine["status"] == status).sum()) for status in TRIAL_STATUSES}
            own = best.get(name, {})
            shown = {n: num for n, num in counts.items() if num or n in ("finished", "failed")}
            best_columns = {f"best {metric}": own.get("score"), "at": own.get("at")}
            rows.append({**cell.levels, "objective": name, **shown, **best_columns})
    return rows


def trial_rows(
    results: Results,
    where: Sequence[str],
    sort: str | None,
    top: int | None,
    *,
    columns: Sequence[str] = (),
    every_column: bool,
) -> tuple[list[Row], list[str]]:
    """Trial rows, selected and sorted, and their columns: those asked for, or for eyes those that
    tell trials apart.
    """
    frame = results.trials
    for condition in where:
        frame = frame[selected(frame, condition)]
    score, mode = results.data.metric, results.data.mode
    if top and not sort and score in frame:  # the best ones
        sort = score if mode == "min" else f"-{score}"
    if sort:
        column = _known(sort.removeprefix("-"), f"--sort {sort}", frame)
        frame = frame.sort_values(column, ascending=not sort.startswith("-"), kind="stable")
    if top:
        frame = frame.head(top)
    if columns:
        frame = frame[list(dict.fromkeys(_known(name, "--columns", frame) for name in columns))]
    if not every_column:
        tree, params = results.study if results.studies else {}, results.data.params
        axes = declared_axes(tree, frame.columns).values() if results.studies else [params]
        swept = [name for name in frame.columns if any(name in each for each in axes)]
        if not columns:
            names = ["trial_id", *factors_of(tree), "objective", *swept, "seed", "status"]
            statuses = set(frame["status"])
            of_status = [name for status, name in _OF_STATUS.items() if status in statuses]
            names = [*names, *_measured(frame), score, *TRIALS_SPARE, *of_status]
            frame = frame[[name for name in dict.fromkeys(names) if name in frame]]
        texts = {name: setting_column(frame[name].tolist()) for name in swept if name in frame}
        texts |= {name: _scores(frame[name].tolist()) for name in _measured(frame)}
        if "error_message" in frame:
            texts["error_message"] = frame["error_message"].str.slice(0, MOST_OF_ERROR).tolist()
        frame = frame.assign(**texts)
    return records_of(frame.astype(object).where(frame.notna(), None)), list(frame.columns)


def _known(name: str, option: str, frame: pd.DataFrame) -> str:
    if name not in frame:
        known = [*map(str, frame.columns)]
        expected = (
            f"{nearest(name, known)} Expected some of: {listed(known)} (--format csv has all)"
        )
        raise RequestError(f"{option}: no column {name!r:.80}.{expected}")
    return name


def trials_spare(results: Results) -> list[str]:
    """Columns that a narrow `clsweep trials` leaves out; the study's own metric stays."""
    metric = results.tables.metric if results.studies else results.data.metric
    others = [name for name in _measured(results.trials) if name != metric]
    statuses = results.trials["status"]
    same_status = [] if (statuses != statuses.iloc[:1].squeeze()).any() else ["status"]
    return [*TRIALS_SPARE, *reversed(others), *same_status, "objective"]


def _scores(values: Sequence[Any]) -> list[str]:
    """A column of scores: as fine as they are spread."""
    known = [value for value in values if is_number(value) and math.isfinite(value)]
    spread = statistics.pstdev(known) if known else math.nan
    is_fine = max(map(abs, known), default=2) <= 1  # a share, not percent
    shown = level_cell("score", lambda _: spread)
    each = list(dict.fromkeys(values))  # a share of some images has few values
    texts = texts_of([shown({"score": value}) for value in each], is_fine=is_fine)
    return list(map(dict(zip(each, texts, strict=True)).__getitem__, values))


def _measured(frame: pd.DataFrame) -> list[str]:
    """The metrics that any trial has, on the test split too."""
    names = [metric.name for metric in METRICS] + [field.name for field in test_fields()]
    return [name for name in names if name in frame and frame[name].notna().any()]


def confirm_notes(results: Results, *, top: int | None) -> list[str]:
    """Notes on rows that the table lacks, and on scores that do not compare."""
    frame, by = results.confirm(top=top), (results.data.metric, results.data.mode)
    notes = [CONFIRMED_ON_TEST] if results.tables.score_on == "test" else []
    is_tested = not notes and f"test_{results.data.metric}" in {f.name for f in test_fields()}
    if is_tested and frame["fresh"].notna().any() and frame["test"].isna().all():
        notes.append("no score on the test split: none of its images has a class")
    fewer = fewer_fresh(frame)
    for at in frame.index[fewer.notna()]:
        which = " ".join(filter(None, frame.loc[at, ["objective", "at"]]))
        notes.append(f"{which}: on {fewer[at]}, so its mean does not compare with the others'")
    if (frame["fresh_seeds"] == 1).any():
        notes.append("one fresh seed has no interval; give further ones with --seeds")
    notes += [
        f"{ranking.objective}: {left_out} of {left_out + len(ranking.configs)} configurations left "
        "out, not finished on all seeds of the study"
        for ranking in ranking_of(results.tables, *by)
        if (left_out := ranking.num_left_out)
    ]
    notes += version_notes(results.tables.versions)
    if missing := unconfirmed(results.tables, top, by=by):
        notes.append(f"not confirmed yet: {missing} of the configurations that are the best now")
    return notes
