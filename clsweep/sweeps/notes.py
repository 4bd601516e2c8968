"""The rows of a statistic's table: whether one was measured and is resolved, and notes as text."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from clsweep.analysis.reasons import TEXTS, UNRESOLVED, Note
from clsweep.catalog.ownership import baseline_params, evaluation_params, metric_params
from clsweep.catalog.rows import Row
from clsweep.display.numbers import (
    THRESHOLD,
    count,
    fixed,
    known,
    mentioned,
    number,
    setting,
)
from clsweep.study.factors import FACTORS
from clsweep.version import VERSION_COLUMNS, public_version

if TYPE_CHECKING:
    import pandas as pd

_TURNED = {"a": "b", "b": "a", "value_a": "value_b", "value_b": "value_a"}
_ALPHA = THRESHOLD + 1e-12
NOTES_APART = "; "  # in one line; no text has it
MANY_NAMES = 4  # in front of one note
P_LEAST = 1e-15

SIZES = ("encoder", "width")  # hyperparameters that make another network
CAPACITY = (
    "{names} swept: the networks differ in capacity and cost, so the best of them may only be the "
    "largest"
)

OF_A_LOSS = (
    "{metric}: each objective has a scale of its own, which its settings change as well. A lower "
    "loss need not be a better encoder"
)
WITH_LABELS = (
    "{names} trains on the classes of its images: its scores are those of supervised training, and "
    "none of them was reached or picked without labels"
)
# What a table of scores is of where `evaluation` says so.
SCORED_ON_TEST = (
    "scored on the test split, after training on all training images. Nothing was held back to "
    "choose by, so the best of several is too good"
)
CONFIRMED_ON_TEST = (
    "search and fresh are both of the test split: fresh seeds take the luck of the seeds out, not "
    "that of the images that picked"
)


def version_notes(trials: pd.DataFrame | Mapping[str, list[Any]]) -> list[str]:
    """A note where several versions of clsweep or torch trained: their scores may differ."""
    parts = []
    for column in VERSION_COLUMNS:
        if column in trials:
            values, counts = trials[column], Counter[str]()
            each = Counter(values) if isinstance(values, list) else values.value_counts(sort=False)
            for version, num in each.items():
                if isinstance(version, str):
                    counts[public_version(version)] += int(num)
            texts = [f"{version:.40} ({count(num)} trials)" for version, num in counts.items()]
            name, more = column.partition("_")[0], f" and {len(texts) - 3} more" * (len(texts) > 3)
            parts += [f"{name} {', '.join(texts[:3])}{more}"] if len(texts) > 1 else []
    return [f"trials of several versions, whose scores may differ: {'; '.join(parts)}"] * bool(
        parts
    )


def as_text(reason: str, figures: Mapping[str, Any]) -> str:
    """The text of a reason: `3 of 60 trials failed`."""

    def text(name: str, figure: Any) -> str:
        if name == "p":  # what is left of one behind the digits of floats is no number
            return f"= {number(figure)}" if figure >= P_LEAST else f"< {P_LEAST:.0e}"
        if name == "stat":
            return {"std": "SD*", "within": "share near the best"}[figure]
        if isinstance(figure, tuple):
            return ", ".join(map(mentioned, figure))
        if isinstance(figure, Integral):
            return count(int(figure))
        return number(float(figure)) if isinstance(figure, Real) else str(figure)

    return TEXTS[reason.upper()].format_map({k: text(k, value) for k, value in figures.items()})


def note_text(*notes: Note) -> str:
    """Notes in one line; the objective that one is about stands before it."""
    return NOTES_APART.join(
        f"{note.about}: " * bool(note.about) + as_text(note.reason, dict(note.figures))
        for note in notes
    )


def cause(row: Mapping[str, Any]) -> str:
    """Why a row of a worded table says nothing: the first of its notes."""
    return str(row["note"]).split(NOTES_APART)[0] if row["reason"] else ""


def doubt_of(row: Mapping[str, Any]) -> str:
    """Why a row resolves nothing in spite of its interval: its cause, else its last note."""
    return cause(row) or str(row["note"]).split(NOTES_APART)[-1]


def is_measured(reason: str) -> bool:
    """True if a row with this reason was measured, if not resolved."""
    return not reason or reason in UNRESOLVED


def status_text(reason: str) -> str:
    """`not resolved` or `not measured`: the state of a row without a claim."""
    return "not resolved" if is_measured(reason) else "not measured"


def winner_or_status(row: Mapping[str, Any]) -> str:
    """The winner of a row, or that there is none."""
    return row["winner"] or status_text(row["reason"])


def worded(frame: pd.DataFrame) -> pd.DataFrame:
    """A table of the analysis with its notes as text."""
    return frame.assign(note=[note_text(*n) for n in frame["note"]]) if "note" in frame else frame


def factors_in_front(frame: pd.DataFrame) -> list[str]:
    """The factors whose levels a table has side by side: its first columns."""
    return list(itertools.takewhile(lambda name: name in FACTORS, map(str, frame)))


def notes_of(frame: pd.DataFrame) -> list[str]:
    """The notes of a table, each once, behind those that it is about unless all are."""
    if "note" not in frame:
        return []
    about: dict[str, list[str]] = {}
    pairs: dict[str, set[str]] = {}
    levels, rows = factors_in_front(frame), frame.to_dict("records")
    kinds = [kind for kind in dict.fromkeys(map(_kind_of, rows)) if kind]
    for row in rows:
        texts = row["note"].split(NOTES_APART) if isinstance(row["note"], str) else []
        sides = tuple(f"{row[side]}: " for side in "ab" if "a" in row)
        if texts and texts[0] and (reason := row.get("reason", "")):
            # What is told of one side is the same in its other pairs, whatever has no number there.
            prefix = "" if texts[0].startswith(sides) else f"{status_text(reason)}: "
            texts[0] = prefix + texts[0]
        columns = ("contrast", "objective", "region", "what")
        who = next((str(row[name]) for name in columns if row.get(name)), "")
        if "a" in row:
            who = f"{row['a']} - {row['b']}"
        if kind := _kind_of(row):
            who = f"{who} ({kind})"  # the best may well be known where the robust one is not
        cell = "/".join(row[name] for name in levels)
        who = f"{cell}/{who}" if cell else who
        for text in filter(None, texts):
            about.setdefault(text, []).append(who)
        for side in sides:
            pairs.setdefault(side, set()).add(who)
    for side, every in pairs.items():  # what all pairs of one have is of that one
        for text in [text for text in about if text.startswith(side) and {*about[text]} == every]:
            del about[text]
            about.setdefault(text.removeprefix(side), []).append(side.removesuffix(": "))
    lines = []
    for text, those in about.items():
        names = list(dict.fromkeys(those))
        is_all = len(names) == len(frame) > 1
        names = _of_kinds(names, kinds, len(rows) // len(kinds)) if kinds else names
        of_each = "each: " * bool(re.match(r"[\d,]+ of [\d,]+ ", text))  # no count of them together
        more = f" and {len(names) - MANY_NAMES} more" if len(names) > MANY_NAMES else ""
        whose = of_each if is_all else f"{', '.join(names[:MANY_NAMES])}{more}: "
        lines.append(f"{whose}{text}")
    return lines


def _kind_of(row: Mapping[Any, Any]) -> str:
    """Which of several rows about the same one it is; empty where there is but one."""
    return str(row.get("kind") or (row.get("region", "") if "a" in row else ""))


def _of_kinds(names: list[str], kinds: Sequence[str], everybody: int) -> list[str]:
    """`dcl (best)` and `dcl (robust)` as `dcl`; one kind of everybody as `best`."""
    those = [name.rpartition(" (")[::2] for name in names]
    if everybody == len(those) > 1 and len({kind for _, kind in those}) == 1:
        return [those[0][1].rstrip(")")]
    out = [
        start if {f"{start} ({kind})" for kind in kinds} <= {*names} else name
        for name, (start, _) in zip(names, those, strict=True)
    ]
    return list(dict.fromkeys(out))


def reference_notes(references: Sequence[Mapping[str, Any]], *, metric: str) -> list[str]:
    """Scores without training, one line; told apart by what the metric depends on."""
    import numpy as np

    rows = [row for row in references if row.get(metric) is not None]
    others = set(evaluation_params()) - set(metric_params(metric))  # of the other metrics
    by = [name for name in ("dataset", *baseline_params()) if name not in others]
    scores_at: dict[tuple[Any, ...], dict[int | None, float]] = {}
    for row in rows:
        at = (row["reference"], *(row.get(name) for name in by))
        scores_at.setdefault(at, {}).setdefault(row.get("seed"), row[metric])
    parts = []
    for kind, *values in sorted(scores_at, key=lambda at: [(value is None, value) for value in at]):
        alike = [at for at in scores_at if at[0] == kind]
        named = ", ".join(
            f"{name} {setting(value)}"
            for i, (name, value) in enumerate(zip(by, values, strict=True), 1)
            if name != "encoder" and value is not None and len({at[i] for at in alike}) > 1
        )
        encoder = f" {values[by.index('encoder')]}" if kind == "untrained" else ""
        label = f"{kind.replace('_', ' ')}{encoder}{f' ({named})' if named else ''}"
        scores = list(scores_at[kind, *values].values())
        part = f"{label} {fixed(float(np.mean(scores)))}"
        if len(scores) > 1:
            part += f" (sd {fixed(float(np.std(scores, ddof=1)))}, {len(scores)} seeds)"
        parts.append(part)
    return [f"without training, {metric}: {'; '.join(parts)}"] if parts else []


def references_apart(references: pd.DataFrame, metric: str) -> dict[str, pd.DataFrame]:
    """Scores without training by name, a row a seed: raw pixels, and each network."""
    if references.empty or metric not in references:
        return {}
    scored = references[references[metric].notna()]
    is_raw = scored["reference"] == "raw_pixels"
    references_by = {"raw pixels": scored[is_raw].head(1)} if is_raw.any() else {}
    own = scored[~is_raw]
    by = [n for n in baseline_params() if n not in evaluation_params() and n in own]
    by = [name for name in by if own[name].nunique(dropna=False) > 1]
    for _, group in own.groupby(by, sort=False, dropna=False) if by else [((), own)][: len(own)]:
        values = group[by].iloc[0].dropna().to_dict()
        name = f"untrained {values.pop('encoder', 'encoder')}"
        settings = ", ".join(f"{n} {setting(v)}" for n, v in values.items())
        references_by[f"{name} ({settings})" if settings else name] = group.drop_duplicates("seed")
    return references_by


def text_in(value: Any) -> str:
    """A cell of text; a missing one is empty."""
    return value if isinstance(value, str) else ""


def is_true(value: Any) -> bool:
    """True if a cell says yes; a missing one does not."""
    return value in (True, 1)


def passes(row: Row, *columns: str) -> bool:
    """The gate of a claim: resolved, with a small corrected p-value and these columns known."""
    needed = known(row["p_holm"], *(row[name] for name in columns))
    return is_true(row["resolved"]) and needed and row["p_holm"] <= _ALPHA


def is_resolved(row: Row, null: float) -> bool:
    """True if there is a winner, and interval and p-value agree with it."""
    if not passes(row):
        return False
    # The ratio of spreads is small where a is the better.
    above = (row["winner"] == row["a"]) == (null == 0.0)
    bound = row["low"] if above else row["high"]
    return known(bound) and (bound > null if above else bound < null)


def seen_from(row: Row, name: str, *, null: float = 0.0) -> Row:
    """A pair as one of both sees it: `a` is that one, and the numbers are turned with it."""
    if row["a"] == name:
        return row
    low, high, lead = row["low"], row["high"], row["estimate"]
    turned = {"estimate": -lead, "low": -high, "high": -low}
    if null == 1.0:
        turned = {"estimate": _inverse(lead), "low": _inverse(high), "high": _inverse(low)}
    return row | turned | {new: row[old] for new, old in _TURNED.items()}


def _inverse(value: float) -> float:
    """1 / value; 0 of infinity and of what is not known, which then counts as open."""
    return 1 / value if known(value) and value > 0 else 0.0


def records_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame by the names of its columns."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def in_cell(frame: pd.DataFrame, levels: Mapping[str, str | Sequence[str]]) -> pd.DataFrame:
    """A table with the factors in front: those of one cell, or of each row."""
    others = [name for name in frame if name not in levels]
    return frame.assign(**levels)[[*levels, *others]]
