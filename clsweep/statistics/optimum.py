"""The best value of a hyperparameter at each level of another one, and by how much it moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis.holm import holm
from clsweep.analysis.optimum import Curves, curves_of, p_of_one_best, pairs_of, shift_of
from clsweep.analysis.reasons import Note, Reason, note, noted, with_notes
from clsweep.analysis.sweep import Sweep, check_by
from clsweep.catalog.rows import Row
from clsweep.display.numbers import THRESHOLD, interval, known, number
from clsweep.statistics.column_formulas import described
from clsweep.statistics.computed import Statistics
from clsweep.statistics.report_objects import Sentences, Unresolved
from clsweep.statistics.statistic import Column, Statistic, p_of
from clsweep.sweeps.notes import cause, records_of, status_text

SHIFT_COLUMNS = with_notes(
    "objective of by of_scale by_scale levels bounded shift low high p p_holm law resolved"
)
LEVEL_COLUMNS = with_notes("objective of by level place best low high is_low_end is_high_end")
LAWS = {1.0: "linear", 0.5: "square root", -0.5: "inverse square root", -1.0: "inverse"}


def _pairs(
    of: Statistics, param: str | None, by: str | None
) -> Iterator[tuple[Sweep, dict[str, Any], Curves | Note]]:
    """Each sweep with the start of a row, and its curves."""
    for name in (param, by):
        check_by(name, of.data.sweeps)
    own = [sweep.scales[param] for sweep in of.data.sweeps if param in sweep.params]
    if own and param and {*own} == {"category"}:
        raise ValueError(f"of: expected numbers, which have an order, given {param!r}: categories")
    for sweep in of.data.spaces:
        for x, y in pairs_of(sweep, param, by):
            yield sweep, {"objective": sweep.objective, "of": x, "by": y}, curves_of(sweep, x, y)


def optimum(of: Statistics, *, param: str | None = None, by: str | None = None) -> pd.DataFrame:
    """One row per objective and pair of hyperparameters, see `analysis.optimum`."""
    rows = [_shift_row(*each) for each in _pairs(of, param, by)]
    adjusted = holm(np.array([row["p"] for row in rows], dtype=float))
    for row, p_holm in zip(rows, adjusted, strict=True):
        _decide(row, float(p_holm))
    return pd.DataFrame(rows, columns=list(SHIFT_COLUMNS))


def _decide(row: dict[str, Any], p_holm: float) -> None:
    """Puts into a row whether its shift is resolved, or why not."""
    excludes = row["by_scale"] == "category" or row["low"] > 0 or row["high"] < 0
    row["p_holm"] = p_holm
    row["resolved"] = bool(excludes and row["bounded"] >= 2 and p_holm <= THRESHOLD)
    if row["resolved"]:
        return
    row["law"] = ""
    if not row["reason"]:
        figures = {"num": row["bounded"], "levels": row["levels"]}
        why = note(Reason.BEST_NOT_BOUNDED, param=row["of"], by=row["by"], **figures)
        if row["bounded"] >= 2:
            why = note(Reason.ONE_BEST, param=row["of"])
        row |= noted(*row["note"], why=why)


def _shift_row(sweep: Sweep, start: dict[str, Any], curves: Curves | Note) -> dict[str, Any]:
    scales = {f"{key}_scale": sweep.scales[start[key]] for key in ("of", "by")}
    start = {**start, **scales, "law": "", **dict.fromkeys(("shift", "low", "high", "p"), np.nan)}
    if isinstance(curves, Note):
        return start | {"levels": 0, "bounded": 0} | noted(*sweep.measured.missing, why=curves)
    bounded = int(np.isfinite(curves.intervals).any(axis=0).sum())
    start |= {"levels": len(curves.at), "bounded": bounded}
    if scales["by_scale"] == "category":
        return start | {"p": p_of_one_best(curves)} | noted(*sweep.measured.missing)
    shift, law = shift_of(curves), ""
    if set(scales.values()) == {"log"} and shift.is_line:
        law = " or ".join(name for at, name in LAWS.items() if shift.low <= at <= shift.high)
    notes = [*sweep.measured.missing, *[note(Reason.NO_LINE)] * (not shift.is_line)]
    ends = {"shift": shift.estimate, "low": shift.low, "high": shift.high, "p": shift.p}
    return start | ends | {"law": law} | noted(*notes)


def optima(of: Statistics, *, param: str | None = None, by: str | None = None) -> pd.DataFrame:
    """One row per level of each pair of `optimum`."""
    rows = []
    for sweep, start, curves in _pairs(of, param, by):
        if isinstance(curves, Note):
            rows.append(start | {"level": ""} | noted(why=curves))
            continue
        is_log = sweep.scales[start["of"]] == "log", sweep.scales[start["by"]] == "log"
        for k, label in enumerate(curves.labels):
            at = [curves.best[k], *curves.intervals[:, k], curves.x[k, 0], curves.x[k, -1]]
            best, low, high, first, last = np.exp2(at) if is_log[0] else at
            low, high = (low if low > 0 or not is_log[0] else -np.inf), high
            row = {"level": label, "best": best, "low": low, "high": high}
            row["place"] = np.exp2(curves.at[k]) if is_log[1] else curves.at[k]
            row |= {"is_low_end": np.isinf(low), "is_high_end": np.isinf(high)}
            is_open = row["is_low_end"] and row["is_high_end"]
            why = note(Reason.BEST_NOT_BOUNDED, param=start["of"], by=start["by"], num=0, levels=1)
            edge = [note(Reason.AT_EDGE, params=(start["of"],))] * (best in (first, last))
            rows.append(start | row | noted(*edge, why=why if is_open else None))
    return pd.DataFrame(rows, columns=list(LEVEL_COLUMNS))


def _moved(row: Row) -> str:
    """`x 1.98 [1.70, 2.30]` where the axis is log, `+0.1 [0.05, 0.2]` where not; one end alone
    where the other is open.
    """

    def text(value: float) -> str:
        return number(2.0**value) if row["of_scale"] == "log" else number(value)

    if not known(row["shift"]) or row["bounded"] < 2:
        return ""
    before = "x " if row["of_scale"] == "log" else "+" * (row["shift"] > 0)
    ends = [row["low"], row["high"]]
    if known(*ends):
        return f"{before}{text(row['shift'])} [{text(ends[0])}, {text(ends[1])}]"
    if known(row["low"]):
        return f"{before}{text(row['low'])} or more"
    return f"{before}{text(row['high'])} or less" if known(row["high"]) else ""


def _step(row: Row) -> str:
    return {"log": "a doubling", "linear": "1 more"}.get(row["by_scale"], "")


def _verdict(row: Row) -> str:
    if not row["resolved"]:
        return status_text(row["reason"])
    if row["by_scale"] == "category":
        return "differs"
    return "moves up" if row["low"] > 0 else "moves down"


def _best(row: Row) -> str:
    if not known(row["best"]) or (row["is_low_end"] and row["is_high_end"]):
        return ""
    if known(row["low"], row["high"]):
        return f"{number(row['best'])}{interval(row['low'], row['high'])}"
    return (
        f"{number(row['high'])} or less" if row["is_low_end"] else f"{number(row['low'])} or more"
    )


def moves(frame: pd.DataFrame) -> Sentences:
    """A sentence on each shift that is resolved, or that none is."""
    lines = []
    for row in records_of(frame[frame["resolved"].astype(bool)]):
        law = f" (as a {row['law']} law has it)" if row["law"] else ""
        if row["by_scale"] == "category":
            lines.append(f"{row['objective']}: the best {row['of']} differs with {row['by']}.")
            continue
        step = {"log": "each doubling", "linear": "each 1 more"}[row["by_scale"]]
        lines.append(
            f"{row['objective']}: the best {row['of']} moves by {_moved(row)} with {step} of "
            f"{row['by']}{law}."
        )
    none = Unresolved("No best value is shown to move with another hyperparameter.")
    return tuple(lines) if lines else (none,) * bool(len(frame))


_text: Callable[[Row], str] = lambda row: f"{row['of']} along {row['by']}"  # noqa: E731
OPTIMUM = Statistic(
    name="optimum",
    title="Does the best value move with another hyperparameter?",
    table=optimum,
    columns=(
        Column("objective"),
        Column("best value of", _text, "the others averaged over"),
        Column(
            "moves by", _moved,
            "with its 95 % interval: a factor (x) of a hyperparameter on a log axis, else a "
            "difference. Where best values lie at or beyond an end of the range, one side is open",
        ),
        Column("for", _step, "each doubling of the other one on a log axis, else each 1 more"),
        Column(
            "law", "law", "linear: as much as the other; square root: as its root. Those that the "
            "interval has", drop_order=1,
        ),
        Column("p Holm", p_of("p_holm"), "adjusted over the rows", drop_order=2),
        Column("verdict", _verdict),
        Column("why", cause, drop_order=3),
    ),
    formulas={
        "optimum": described(
            SHIFT_COLUMNS,
            of="the hyperparameter whose best value is looked for",
            by="the one along which it may move",
            of_scale="log, linear or category",
            by_scale="the same of the other",
            levels="levels of the other that have a curve",
            bounded="of these, those whose best value has an end",
            shift="s on both axes: log2 of a factor where of is log, by each doubling where by is. "
            "Both log: the exponent of by",
            low="interval of the shift; infinite where it is open",
            p="of no shift, F(1, df); of categories of one best value, F(K - 1, df)",
            p_holm="the same, corrected for all rows (Holm)",
            law="those of the powers 1, 1/2, -1/2, -1 that the interval has; where it is resolved",
            resolved="p_holm <= 0.05, an interval without 0, and two bounded levels or more",
        )
    },
)  # fmt: skip
OPTIMA = Statistic(
    name="optima",
    title="The best value at each level",
    table=optima,
    columns=(
        Column("objective"),
        Column("best value of", _text),
        Column("at", "level", "of the second; of a sample two places, a standard deviation apart "
               "from its mean"),
        Column("best", _best, "with its 95 % interval, or the one end that it has"),
        Column("verdict", lambda row: status_text(row["reason"]) * bool(row["reason"])),
    ),
    has_notes=False,
    formulas={
        "optima": described(
            LEVEL_COLUMNS,
            of="the hyperparameter whose best value is looked for",
            by="the one along which it may move",
            level="its level as text",
            place="the same as a number",
            best="where the curve is highest, within the values that were tried",
            low="interval of the best value; infinite where that may lie at or beyond the end",
            is_low_end="the lower end is open",
            is_high_end="the upper end is open",
        )
    },
)  # fmt: skip
