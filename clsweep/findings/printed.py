"""A paper's printed numbers with the trials that may answer them, out of a results folder alone."""

from __future__ import annotations

import pandas as pd

from clsweep.analysis.reference import Printed
from clsweep.catalog import DIAGNOSTICS, METRIC
from clsweep.catalog.ownership import metric_params, yardstick_params
from clsweep.findings.material import tolerance_of
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
            not percent about a twentieth of the range that was printed, or its last decimal.
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
    rows = pd.DataFrame(list(table.rows))
    decimals = rows["value"].str.partition(".")[2].str.len()
    numbers = {name: pd.to_numeric(rows[name]).astype(float) for name in ("value", "spread")}
    for name in table.settings:  # numbers, empty cells NaN; texts where one is no number
        given = rows[name].where(rows[name] != "")
        values = pd.to_numeric(given, errors="coerce")
        if values.notna().equals(given.notna()):
            numbers[name] = values.astype(float)
    rows = rows.assign(**numbers, rounding=10.0**-decimals)
    units = {row.name: row.unit for row in METRIC.values()}
    units |= {row.name: row.unit for row in DIAGNOSTICS}
    fixed, allowed = {}, {}
    for name in rows["metric"].unique():
        own = rows[rows["metric"] == name]
        # The columns of a plan that the numbers of a metric depend on.
        others = set(yardstick_params())
        if name in METRIC:
            others -= set(metric_params(name))
        fixed[name] = tuple(c for c in map(str, cells.columns) if c not in NOT_FIXED | others)
        width = float(own["value"].max() - own["value"].min())
        least = max(tolerance_of(units.get(name, "%"), width), float(own["rounding"].max()))
        allowed[name] = least if within is None else within
    return Printed(
        paper=table.first("paper"),
        item=table.first("item"),
        rows=rows,
        settings=table.settings,
        trials=trials,
        cells=cells,
        fixed=fixed,
        within=allowed,
        reference_only=table.reference_only,
        stand_ins=table.stand_ins,
    )


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """With the image folders under the names of the papers' tables."""
    folders = table["num_classes"].map(FOLDERS)
    is_folder = (table["dataset"] == "imagefolder") & folders.notna()
    return table.assign(dataset=table["dataset"].where(~is_folder, folders))
