"""The tables of the analysis for eyes: an interval stands beside its number, what is empty everywhere is left out.

Frames come from `clsweep.analysis`; what is returned has texts and numbers under headings. The command line prints it,
the report sets it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

Row = dict[str, Any]

MANY_NAMES = 4  # in front of one note

ROBUSTNESS_LEGEND = (
    "sd: spread over the swept configurations; sd*: without the seeds' noise; within {within}: share of the space "
    "within {within} points of the best; worst 10 %: level of that tenth; the best and the worst are picked on other "
    "seeds than they are scored on"
)
MORE_LEGEND = (
    "regret: mean loss against the best; tolerance area: mean share of the space within 0 to D points of the best; "
    "IQM: mean of the middle half; usable band: values around the best that lose no more than that; per doubling: "
    "slope on log2 of the parameter"
)
SENSITIVITY_LEGEND = (
    "alone: first-order share; in all: with its interactions; null line: what a parameter without any effect reaches; "
    "top 10 %: share in what decides whether the best tenth is reached (PED-ANOVA); R2: what the surrogate predicts of "
    "unseen configurations, of what seed noise leaves to predict"
)
COMPARISON_TITLES = {
    "mean": "Difference of {metric}, a - b, over what both sweep, with 95 % intervals",
    "std": "Ratio of the spreads of {metric} due to hyperparameters (sd* of a / sd* of b), with 95 % intervals",
    "within": "Difference of the shares of the space within {within} points of the best of {metric}",
}
_TESTED = (
    "p: by flipping signs, least p: the least it could be; detectable: what would be found in four of five studies"
)
COMPARISON_LEGENDS = {
    "mean": f"positive: a is better; P(a > b): a's chance to be ahead in a pair; {_TESTED}",
    "std": "below 1: a depends less on its hyperparameters",
    "within": "positive: more of a's space is within {within} points of a's own best",
}


def robustness(frame: pd.DataFrame, *, within: float) -> pd.DataFrame:
    """One row per objective: the spread, and what it costs."""
    return _shown(
        {
            "objective": row["objective"],
            "configs": row["num_configs"],
            "seeds": row["num_seeds"],
            "failed": row["num_failed"],
            "mean": row["mean"],
            "sd": interval(row, "sd"),
            "sd*": interval(row, "sd_star"),
            "range": row["range"],
            "best": row["best"],
            "at": row["best_at"],
            f"within {within:g}": interval(row, "share_within", "share"),
            "worst 10 %": interval(row, "worst_10", digits=1),
        }
        for row in _rows(frame)
    )


def robustness_more(frame: pd.DataFrame) -> pd.DataFrame:
    """The further statistics of the same table."""
    return _shown(
        (
            {
                "objective": row["objective"],
                "worst": row["worst"],
                "at": row["worst_at"],
                "regret": interval(row, "regret"),
                "tolerance area": interval(row, "tolerance_area"),
                "IQM": interval(row, "iqm"),
                "usable band": _band(row),
                "hi/lo": row["band_ratio"],
                "per doubling": interval(row, "slope"),
            }
            for row in _rows(frame)
        ),
        droppable=("usable band", "hi/lo", "per doubling"),
    )


def robustness_by(frame: pd.DataFrame, *, within: float) -> pd.DataFrame:
    """One row per hyperparameter and objective, over its values alone."""
    return _shown(
        (
            {
                "by": row["by"],
                "objective": row["objective"],
                "sd": interval(row, "sd"),
                "sd*": interval(row, "sd_star"),
                "range": row["range"],
                "best at": row["best_at"],
                "worst at": row["worst_at"],
                f"within {within:g}": interval(row, "share_within", "share"),
                "usable band": _band(row, named=False),
                "hi/lo": row["band_ratio"],
                "per doubling": interval(row, "slope"),
            }
            for row in _rows(frame)
        ),
        droppable=("usable band", "hi/lo", "per doubling"),
    )


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """As it is, without columns that have no value, and without the notes, which stand apart."""
    kept = [name for name in frame.columns if name != "note" and frame[name].notna().any()]
    return frame[kept].rename(columns=lambda name: str(name).replace("_", " "))


def sensitivity(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per objective and term; an objective that is not resolved has its note in the place of numbers."""
    return _shown(
        (
            {
                "objective": row["objective"],
                "term": row["term"] or "not resolved",
                "alone": interval(row, "first"),
                "in all": interval(row, "total"),
                "null line": row["null"],
                "resolved": {True: "yes", False: "no"}.get(row["resolved"], "") if row["term"] else "",
                "top 10 %": row["top10"],
                "its null": row["top10_null"],
                "R2": row["r2"],
                "of possible": row["r2_ceiling"] if _is_number(row["r2"]) else None,
                "configs": row["num_configs"],
            }
            for row in _rows(frame)
        ),
        droppable=("alone", "in all", "null line", "top 10 %", "its null", "R2", "of possible"),
    )


def comparison(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per pair or region."""
    stat = frame["stat"].iloc[0] if len(frame) else "mean"
    name = {"mean": "difference", "std": "ratio of sd*", "within": "difference of shares"}[stat]
    return _shown(
        (
            {
                "a": row["a"],
                "b": row["b"],
                "region": row["region"],
                "value a": row["value_a"],
                "value b": row["value_b"],
                name: interval(row, "estimate", ""),
                "p": row["p"],
                "p Holm": row["p_holm"],
                "least p": row["p_min"],
                "P(a > b)": row["superiority"] if stat == "mean" else None,
                "detectable": row["detectable"],
                "seeds": row["num_seeds"],
                "needs seeds": _whole(row["seeds_needed"]),
                "verdict": row["verdict"],
            }
            for row in _rows(frame)
        ),
        droppable=("region", "p", "p Holm", "least p", "P(a > b)", "detectable", "needs seeds"),
    )


def winners(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per region: who is ahead, by how much, and whether that is resolved."""
    return _shown(
        {
            "region": row["region"],
            "ahead": row["objective"],
            "mean": row["mean"],
            "next": row["runner_up"],
            "lead": interval(row, "lead", ""),
            "p Holm": row["p_holm"],
            "verdict": row["verdict"],
        }
        for row in _rows(frame)
    )


def tuning_cost(frame: pd.DataFrame, *, within: float) -> pd.DataFrame:
    """One row per objective: tries, and the gain over the default."""
    return _shown(
        {
            "objective": row["objective"],
            "best level": row["best_level"],
            f"tries to within {within:g}": _range(row["k_within"], row["k_low"], row["k_high"], digits=0),
            "default at": row["default_at"],
            "default": row["default"],
            "gain over it": interval(row, "tunability"),
        }
        for row in _rows(frame)
    )


def recommendation(frame: pd.DataFrame, confirmation: pd.DataFrame) -> pd.DataFrame:
    """Two rows per objective: the best, and the best worst neighbour; beside them what fresh seeds and the test say."""
    confirmed = {(row["objective"], row["config"]): row for row in _rows(confirmation)}
    rows = []
    for row in _rows(frame):
        again: Mapping[str, Any] = confirmed.get((row["objective"], row["config"]), {})
        rows.append(
            {
                "objective": row["objective"],
                "pick": row["kind"],
                "config": row["config"],
                "at": row["at"],
                "score": _range(row["score"], row["low"], row["high"]),
                "worst neighbour": row["neighbourhood_worst"],
                "neighbours": row["num_neighbours"],
                "fresh seeds": _range(*(again.get(name, math.nan) for name in ("fresh", "fresh_low", "fresh_high"))),
                "test": _range(*(again.get(name, math.nan) for name in ("test", "test_low", "test_high"))),
            }
        )
    return _shown(rows, droppable=("fresh seeds", "test", "worst neighbour", "neighbours"))


def failures(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per region with failures."""
    return _shown(
        {
            "objective": row["objective"],
            "region": row["region"],
            "trials": row["trials"],
            "failed": row["failed"],
            "rate": _range(row["rate"], row["low"], row["high"]),
            "p Holm": row["p_holm"],
            "verdict": row["verdict"],
        }
        for row in _rows(frame)
    )


def links(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per objective and diagnostic."""
    return _shown(
        {
            "objective": row["objective"],
            "diagnostic": row["diagnostic"],
            "configs": row["num_configs"],
            "rank correlation": _range(row["rho"], row["low"], row["high"]),
            "p Holm": row["p_holm"],
            "verdict": row["verdict"],
        }
        for row in _rows(frame)
    )


def notes(frame: pd.DataFrame) -> list[str]:
    """The notes of a table, each once, with the objectives or pairs that it is about unless that is all of them."""
    if "note" not in frame:
        return []
    about: dict[str, list[str]] = {}
    for row in _rows(frame):
        about.setdefault(row["note"], []).append(_about(row))
    return [_note(text, list(dict.fromkeys(who)), len(frame)) for text, who in about.items() if text]


def _about(row: Mapping[str, Any]) -> str:
    return f"{row['a']} - {row['b']}" if "a" in row else str(row.get("objective") or row.get("region", ""))


def _note(text: str, who: Sequence[str], num_rows: int) -> str:
    if len(who) > MANY_NAMES:
        return f"{', '.join(who[:MANY_NAMES])} and {len(who) - MANY_NAMES} more: {text}"
    return text if len(who) == num_rows > 1 else f"{', '.join(who)}: {text}"


def interval(row: Mapping[str, Any], name: str, stem: str | None = None, digits: int = 2) -> str:
    """A value with its interval: columns `name`, `<stem>_low` and `<stem>_high`; just `low` and `high` for stem ""."""
    before = name if stem is None else stem
    low, high = (f"{before}_{end}" if before else end for end in ("low", "high"))
    return _range(row[name], row[low], row[high], digits=digits)


def _range(value: Any, low: Any, high: Any, *, digits: int = 2) -> str:
    if not _is_number(value):
        return ""
    text = f"{value:.{digits}f}" if math.isfinite(value) else str(value)
    return f"{text} [{low:.{digits}f}, {high:.{digits}f}]" if _is_number(low) and _is_number(high) else text


def _is_number(value: Any) -> bool:
    return value is not None and value == value and isinstance(value, int | float)


def _band(row: Mapping[str, Any], *, named: bool = True) -> str:
    if not _is_number(row["band_low"]):
        return ""
    return f"{row['band_param'] + ' ' if named else ''}{row['band_low']:.4g} to {row['band_high']:.4g}"


def _whole(value: float) -> int | None:
    return math.ceil(value) if _is_number(value) and math.isfinite(value) else None


def _rows(frame: pd.DataFrame) -> list[Row]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _shown(rows: Any, droppable: Sequence[str] = ()) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows), dtype=object)
    empty = [name for name in droppable if name in frame and frame[name].isin(["", None]).all()]
    blank = [name for name in droppable if name in frame and frame[name].isna().all()]
    return frame.drop(columns=[*dict.fromkeys([*empty, *blank])])
