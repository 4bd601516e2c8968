"""A paper's printed numbers with the trials that may answer them, out of a results folder alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from clsweep.analysis.reference import Printed
from clsweep.catalog import DIAGNOSTICS, METRIC
from clsweep.catalog.ownership import metric_params, yardstick_params
from clsweep.findings.reading_rules import tolerance_of
from clsweep.results.reading import StudyResults, to_frame
from clsweep.study.printed import PrintedTable, parse_printed

# What a trial is called, and what changes how its numbers are computed but not what they are of.
NOT_FIXED = frozenset(
    {"trial_id", "study", "objective", "config", "seed", "sampler", "images_digest"}
    | {"precision", "chunk_size", "eval_every", "tsne_points"}
)

# An image folder by its number of classes, as papers' tables name it.
FOLDERS = {100: "imagenet100", 1000: "imagenet1k"}


def printed_of(study: StudyResults, *, within: float | None = None) -> list[Printed]:
    """The tables of a folder's `references`, none where it has none.

    Args:
        within: the largest difference that still agrees: 1 point by default, for a metric that is
            not percent about a twentieth of the range that was printed.
    """
    if not (files := study.folder.printed()):
        return []
    cells = _named(to_frame(study.folder.paper_cells()))
    trials = _named(study.trials)
    tables = [parse_printed(text, study.folder.place(name)) for name, text in files.items()]
    return [printed_table(table, trials, cells, within) for table in tables if table.rows]


def printed_table(
    table: PrintedTable, trials: pd.DataFrame, cells: pd.DataFrame, within: float | None = None
) -> Printed:
    """One table with the trials of a run and the cells at the paper's scale."""
    rows = _typed(table)
    metrics = rows["metric"].unique()
    return Printed(
        paper=table.first("paper"),
        item=table.first("item"),
        rows=rows,
        settings=table.settings,
        trials=trials,
        cells=cells,
        fixed={name: _fixed(name, map(str, cells.columns)) for name in metrics},
        within={
            name: _within(name, rows.loc[rows["metric"] == name, "value"], within)
            for name in metrics
        },
        reference_only=table.reference_only,
        stand_ins=table.stand_ins,
    )


def _typed(table: PrintedTable) -> pd.DataFrame:
    """The rows with numbers where they are numbers, and the size of each value's last decimal."""
    rows = pd.DataFrame(list(table.rows))
    decimals = rows["value"].str.partition(".")[2].str.len()
    numbers = {name: pd.to_numeric(rows[name]).astype(float) for name in ("value", "spread")}
    swept = {name: _typed_settings(rows[name]) for name in table.settings}
    return rows.assign(**swept, **numbers, rounding=10.0**-decimals)


def _typed_settings(column: pd.Series[str]) -> pd.Series[Any]:
    """A column of settings as numbers, empty cells NaN; as texts where one is no number."""
    values = pd.to_numeric(column.where(column != ""), errors="coerce")
    return column if (values.isna() & (column != "")).any() else values.astype(float)


def _fixed(metric: str, columns: Iterable[str]) -> tuple[str, ...]:
    """The columns of a plan that the numbers of a metric depend on."""
    others = set(yardstick_params())
    if metric in METRIC:
        others -= set(metric_params(metric))
    return tuple(name for name in columns if name not in NOT_FIXED | others)


def _within(metric: str, printed: pd.Series[float], within: float | None) -> float:
    """What still agrees, unless it is said."""
    if within is not None:
        return within
    units = {row.name: row.unit for row in METRIC.values()}
    units |= {row.name: row.unit for row in DIAGNOSTICS}
    return tolerance_of(units.get(metric, "%"), float(printed.max() - printed.min()))


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """With the image folders under the names of the papers' tables."""
    folders = table["num_classes"].map(FOLDERS)
    is_folder = (table["dataset"] == "imagefolder") & folders.notna()
    return table.assign(dataset=table["dataset"].where(~is_folder, folders))
