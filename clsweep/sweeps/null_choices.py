"""Null as a value of a setting: the usual way to write "off" among numbers. It is a category there,
and only a setting that a trial does not have is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis.regions import MAX_VALUES
from clsweep.display.numbers import count, setting
from clsweep.sweeps.foreign_sweep import ForeignTrial, comparable_setting

NULL = "null"


def name_chosen_nulls(
    trials: Sequence[ForeignTrial], names: Sequence[str], objectives: Sequence[str]
) -> list[str]:
    """Make texts of the settings of which null was chosen, `null` among them.

    Two kinds stay as they are. Where the objective, or one or two others, decide which trials have
    null, it says no more than they do: a constant schedule has no end. Beside more than
    `MAX_VALUES` numbers each of these would be a category.

    objectives: of each trial.

    Returns:
        notes on the settings that became texts, and on those of many numbers.
    """
    columns = {n: [repr(comparable_setting(t.settings.get(n))) for t in trials] for n in names}
    named, many = [], []
    for name in names:
        is_null = [name in trial.settings and trial.settings[name] is None for trial in trials]
        values = {*columns[name]} - {"None"}
        if not any(is_null) or not values:
            continue
        others = [columns[other] for other in names if other != name]
        if _is_decided(is_null, [*others, objectives]):
            continue
        if len(values) > MAX_VALUES:
            many.append(name)
            continue
        named.append(name)
        for trial, is_chosen in zip(trials, is_null, strict=True):
            if name in trial.settings:
                value = comparable_setting(trial.settings[name])
                trial.settings[name] = NULL if is_chosen else setting(value)
    texts = {
        f"null is a value of {', '.join(named)}: numbers beside it are categories": named,
        f"null beside many numbers is read as missing: {', '.join(many)}": many,
    }
    return [text for text, those in texts.items() if those]


def name_empty_cells(
    trials: pd.DataFrame, params: Sequence[str], known: Collection[str] = ()
) -> tuple[pd.DataFrame, list[str]]:
    """The table with `null` in the empty cells of the hyperparameters that have them as a value,
    and notes.

    A table does not say which those are. They are where every objective that has some is a grid,
    whole with "empty" as one of the values, with as many trials at each setting. What is `known`
    stays as it is.
    """
    notes = []
    for name in params:
        is_empty = trials[name].isna()
        if is_empty.all() and "clsweep_version" not in trials:  # of whose own many lack a setting
            notes.append(f"{name} is empty in all trials")
        if not is_empty.any() or is_empty.all() or name in known:
            continue
        groups = [rows for _, rows in trials.groupby("objective") if rows[name].notna().any()]
        those = [rows for rows in groups if rows[name].isna().any()]
        if those and all(_is_whole_grid(rows, params, name) for rows in those):
            at = trials["objective"].isin([rows["objective"].iloc[0] for rows in those])
            texts = trials[name].map(setting).astype(object).where(~is_empty, None)
            trials = trials.assign(**{name: texts.where(~(is_empty & at), NULL)})
            num = f"{count(is_empty[at].sum())} of {count(at.sum())} trials"
            how = "the grid is whole with it, so it is read as a value, null"
            notes.append(f"{name} is empty in {num}: {how}")
    return trials, notes


def _is_whole_grid(rows: pd.DataFrame, params: Sequence[str], name: str) -> bool:
    """True if all combinations of few values, empty ones included, have the same number of trials,
    along a single axis two or more.
    """
    if "sampler" in rows and (rows["sampler"] != "grid").any():
        return False
    sizes = rows[list(params)].nunique(dropna=False)
    counts = rows.groupby(list(params), dropna=False).size()
    is_whole = len(counts) == sizes.astype(float).prod() and counts.nunique() == 1
    return bool(
        is_whole and sizes[name] <= MAX_VALUES and ((sizes > 1).sum() > 1 or counts.min() > 1)
    )


def settle_empty_cells(
    rows: list[dict[str, Any]], names: Sequence[str], notes: list[str]
) -> list[dict[str, Any]]:
    """The rows of a table that has empty cells: they are a value (`name_empty_cells`), or another
    setting decides where they are, or nobody knows them and their rows are left out.
    """
    frame = pd.DataFrame({n: [row[n] for row in rows] for n in ("objective", *names)}, dtype=object)
    frame, texts = name_empty_cells(frame, names)
    columns = {name: [*map(repr, frame[name])] for name in frame}
    is_lost = np.zeros(len(rows), dtype=bool)
    for name in names:
        is_empty = frame[name].isna().to_numpy()
        if not is_empty.any() or is_empty.all():
            continue
        others = [column for other, column in columns.items() if other != name]
        if not _is_decided(is_empty.tolist(), others):
            num = f"{count(is_empty.sum())} of {count(len(rows))} trials"
            texts.append(f"{name} is empty in {num}, which are left out")
            is_lost |= is_empty
    for name in names:
        for row, value in zip(rows, frame[name].tolist(), strict=True):
            row[name] = None if pd.isna(value) else value
    notes += texts
    return [row for row, lost in zip(rows, is_lost, strict=True) if not lost]


def _is_decided(is_null: Sequence[bool], columns: Sequence[Sequence[str]]) -> bool:
    """True if one or two columns say where nulls are: each of their values, in two trials on
    average, has nulls alone or none. One with nulls at the same places says nothing.
    """
    columns = [c for c in columns if [value in ("None", "nan") for value in c] != [*is_null]]
    for chosen in (each for size in (1, 2) for each in combinations(columns, size)):
        values = [*zip(*chosen, strict=True)]
        pairs, num = {*zip(values, is_null, strict=True)}, len({*values})
        if len(pairs) == num > 1 and 2 * num <= len(values):
            return True
    return False
