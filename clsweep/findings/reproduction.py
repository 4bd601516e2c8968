"""A paper's table: its numbers with the trials that may answer them, out of a results folder alone;
and its own layout, objectives down, the swept setting across, in each cell the measured number over
the printed one and what they say together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from clsweep.analysis.reference import COLUMNS, RESOLVABLE, Printed, Verdict
from clsweep.catalog import DIAGNOSTICS, METRIC
from clsweep.catalog.ownership import metric_params, yardstick_params
from clsweep.display.cells import records_of
from clsweep.display.numbers import count, is_number, setting, settings
from clsweep.findings.reading_rules import tolerance_of
from clsweep.findings.tables import notes
from clsweep.results.reading import StudyResults, to_frame
from clsweep.study.printed import PrintedTable, parse_printed

ABOUT = ("paper", "item")
PLACES = ("dataset", "encoder", "metric")
KEYS = (*ABOUT, "objective", *PLACES)
PARTS = ("measured", "paper", "verdict")  # of a cell, one under the other
LEGEND = (
    "measured: mean over the seeds +- half of its 95 % interval, - where there is none; paper: the "
    "printed number; agrees: they differ by {within} at most, with 95 % confidence; differs: they "
    "are not the same, with 95 % confidence; other scale: the run fixes something otherwise than "
    "the paper"
)
# What a trial is called, and what changes how its numbers are computed but not what they are of.
NOT_FIXED = frozenset(
    {"trial_id", "study", "objective", "config", "seed", "sampler", "images_digest"}
    | {"precision", "chunk_size", "eval_every", "tsne_points"}
)
# An image folder by its number of classes, as papers' tables name it.
FOLDERS = {100: "imagenet100", 1000: "imagenet1k"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """One part of a paper's table: one metric, and one data set and encoder unless they stand
    across.

    Attributes:
        title: what part it is.
        across: the setting or place that its columns are.
        labels: the objective of each row, with the settings that do not stand across.
        rows: of `reproduce`, what it is made of.
        shown: "objective", "" and a column for each value across; three rows an objective.
    """

    paper: str
    item: str
    title: str
    across: str
    labels: tuple[str, ...]
    rows: pd.DataFrame
    shown: pd.DataFrame

    @property
    def is_measured(self) -> bool:
        return bool(self.rows["measured"].notna().any())


def settings_of(frame: pd.DataFrame) -> list[str]:
    """The columns of `reproduce` that hold hyperparameters."""
    return [str(name) for name in frame if name not in (*KEYS, *COLUMNS)]


def layouts(frame: pd.DataFrame) -> list[Layout]:
    """Every part of every table, in the paper's order; printed spreads stand in none."""
    found = []
    for _, item in frame[frame["value"].notna()].groupby(list(ABOUT), sort=False):
        across = _across(item)
        places = [name for name in PLACES if name != across]
        found += [
            _layout(rows, across, places)
            for _, rows in item.groupby(places, sort=False, dropna=False)
        ]
    return found


def remarks(frame: pd.DataFrame) -> list[str]:
    """What a reader of one or more tables must know: scales, reasons, misprints."""
    rows = frame[frame["measured"].notna()]
    scales = rows.loc[rows["verdict"] == Verdict.OTHER_SCALE, ["here", "there"]].drop_duplicates()
    said = [f"other scale: here {here}; in the paper {there}" for here, there in scales.to_numpy()]
    said += notes(rows[rows["verdict"] != Verdict.OTHER_SCALE])
    said += [
        f"{setting_of(row, settings_of(frame))}: {row['printed_note']}"
        for row in records_of(frame)
        if row["printed_note"] and (row["measured"] == row["measured"] or is_spread(row))
    ]
    return list(dict.fromkeys(said))


def is_spread(row: Mapping[str, Any]) -> bool:
    """Whether a printed number is a spread alone."""
    return not is_number(row["value"])


def legend(frame: pd.DataFrame) -> str:
    """What the cells hold, with the differences that still agree."""
    allowed = sorted({float(value) for value in frame["within"].dropna()}) or [1.0]
    return LEGEND.format(within=" or ".join(map(setting, allowed)))


def closing(frame: pd.DataFrame) -> str:
    """`12 of 20 numbers agree, 3 differ, 5 not resolved; 40 not measured`."""
    counts = frame.loc[frame["value"].notna(), "verdict"].value_counts()
    num = {verdict: int(counts.get(verdict, 0)) for verdict in Verdict}
    comparable = sum(num[verdict] for verdict in RESOLVABLE)
    said = "no number is measured at the paper's scale"
    differ, open_ = num[Verdict.DIFFERS], num[Verdict.NOT_RESOLVED]
    if comparable:
        said = (
            f"{count(num[Verdict.AGREES])} of {count(comparable)} numbers agree, "
            f"{count(differ)} differ{'s' * (differ == 1)}, {count(open_)} not resolved"
        )
    others = {
        "at another scale": num[Verdict.OTHER_SCALE],
        "not measured": num[Verdict.NOT_MEASURED],
        "for reference only": num[Verdict.REFERENCE_ONLY],
    }
    return "; ".join([said, *(f"{count(n)} {what}" for what, n in others.items() if n)])


def unmeasured(parts: Sequence[Layout]) -> list[str]:
    """The parts of tables without a measured number, in a line."""
    titles = [f"{part.item}, {part.title}" for part in parts if not part.is_measured]
    return [f"not measured: {'; '.join(titles)}"] if titles else []


def setting_of(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """`dcl, tau=0.5, cifar10`: what a printed number is of."""
    return ", ".join([_label(row, names), *(row[name] for name in PLACES[:1] if row[name])])


def _across(item: pd.DataFrame) -> str:
    """The setting of most values, else what else tells the columns apart."""
    sizes = {name: item[name].nunique() for name in settings_of(item)}
    widest = max(sizes, key=lambda name: sizes[name], default="")
    if widest and sizes[widest] > 1:
        return widest
    return next((name for name in PLACES if item[name].nunique() > 1), "metric")


def _layout(rows: pd.DataFrame, across: str, places: Sequence[str]) -> Layout:
    others = [n for n in settings_of(rows) if n != across and rows[n].notna().any()]
    labels = [_label(row, others) for row in records_of(rows)]
    heads = _heads(rows, across)
    decimals = max(len(setting(value).partition(".")[2]) for value in rows["value"])
    turn = rows.assign(label=labels).groupby(["label", across], dropna=False).cumcount()
    table: dict[tuple[str, int], dict[str, dict[str, str]]] = {}
    for row, label, head, number in zip(records_of(rows), labels, heads, turn, strict=True):
        table.setdefault((label, number), {})[head] = _cell(row, decimals)
    order = list(dict.fromkeys(heads))
    shown = [
        {"objective": label if part == PARTS[0] else "", "": part}
        | {head: cells.get(head, {}).get(part, "") for head in order}
        for (label, _), cells in table.items()
        for part in PARTS
    ]
    first = rows.iloc[0]
    return Layout(
        paper=first["paper"],
        item=first["item"],
        title=f"{', '.join(first[name] for name in places if first[name])}, by {across}",
        across=across,
        labels=tuple(labels),
        rows=rows,
        shown=pd.DataFrame(shown),
    )


def _heads(rows: pd.DataFrame, across: str) -> list[str]:
    """The column of each row; of one without the setting it is `-`."""
    if across in PLACES:
        return rows[across].tolist()
    return [text or "-" for text in settings([_plain(value) for value in rows[across]])]


def _cell(row: Mapping[str, Any], decimals: int) -> dict[str, str]:
    is_measured = is_number(row["measured"])
    return {
        "measured": _level(row, decimals + 1) if is_measured else "-",
        "paper": f"{row['value']:.{decimals}f}",
        "verdict": row["verdict"] if row["verdict"] != Verdict.NOT_MEASURED else "",
    }


def _level(row: Mapping[str, Any], decimals: int) -> str:
    """`79.67 +-8.33`, with the first digit of the half width at least."""
    half = row["high"] - row["measured"]
    if not is_number(half):
        return f"{row['measured']:.{decimals}f}"
    decimals = max(decimals, math.ceil(-math.log10(half)) if half > 0 else 0)
    return f"{row['measured']:.{decimals}f} +-{half:.{decimals}f}"


def _label(row: Mapping[str, Any], others: Sequence[str]) -> str:
    texts = [f"{name}={setting(_plain(row[name]))}" for name in others if _plain(row[name])]
    return ", ".join([row["objective"], *texts])


def _plain(value: Any) -> Any:
    """A setting as a number where it is one; None where there is none."""
    if value is None or value == "" or value != value:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


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
