"""A paper's numbers beside what was measured: difference, interval, verdict.

Shape legend: n = configurations of an objective, S_i = scores of configuration i.

The model is x_is = theta_i + e_is, and a printed number y is one more run of its configuration,
rounded to its last decimal of size r. So for the mean m_i, with s^2 the noise of the seeds pooled
over the configurations of the objective, and by what a seed does to all (`noise`),

    m_i +- t s / sqrt(S_i)                                 the measured level
    m_i - y +- t sqrt(s^2 / S_i + s^2 + r^2 / 12)          the difference, a prediction interval

A printed standard deviation takes the place of the second s. Of how many runs a printed number is
the mean is rarely known: as one run, it is never trusted too much.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis.noise import noise_of
from clsweep.analysis.reasons import Note, Reason, note, noted, with_notes
from clsweep.display.numbers import setting


class Verdict(StrEnum):
    """Verdict on a printed number, from a measured one."""

    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_RESOLVED = "not resolved"
    OTHER_SCALE = "other scale"
    NOT_MEASURED = "not measured"
    REFERENCE_ONLY = "reference only"


Trials = list[dict[Any, Any]]
RESOLVABLE = (Verdict.AGREES, Verdict.DIFFERS, Verdict.NOT_RESOLVED)
_PLACES = ("dataset", "encoder")
_FIRST = (*_PLACES, "num_train", "epochs", "batch_size")  # of what differs in scale
REPRODUCE_COLUMNS = with_notes(
    "item value spread delta_to measured low high num_seeds difference difference_low "
    "difference_high within verdict differs_in here there printed_note"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Printed:
    """The printed numbers of one table, and the trials of one run that may answer them.

    Attributes:
        paper, item: what the table is called.
        rows: one row a printed number: objective, dataset, encoder, `settings`, metric, value,
            spread, rounding (the size of its last decimal) and note; texts may be empty, numbers
            and settings NaN.
        settings: the columns that hold hyperparameters, NaN = all values, or none.
        reference_only: methods that the study does not train.
        stand_ins: the paper's encoder -> the study's.
        trials: the run's: objective, dataset, encoder, config, seed, status, hyperparameters and
            metrics.
        cells: what the study plans at the paper's scale, a row for each configuration, the
            likeliest first.
        fixed: metric -> the columns of `cells` that its numbers depend on.
        within: metric -> the largest difference that still agrees.
    """

    paper: str
    item: str
    rows: pd.DataFrame
    settings: tuple[str, ...]
    trials: pd.DataFrame
    cells: pd.DataFrame
    fixed: Mapping[str, Sequence[str]]
    within: Mapping[str, float]
    reference_only: frozenset[str] = frozenset()
    stand_ins: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def finished(self) -> dict[str, Trials]:
        """The trials that have finished, by objective."""
        ended = self.trials[self.trials["status"] == "finished"]
        return {str(name): group.to_dict("records") for name, group in ended.groupby("objective")}

    @cached_property
    def cells_of(self) -> dict[str, Trials]:
        """The cells at the paper's scale, by objective."""
        groups = self.cells.groupby("objective", sort=False)
        return {str(name): group.to_dict("records") for name, group in groups}


def reproduce(printed: Iterable[Printed]) -> pd.DataFrame:
    """One row per printed number: paper, item, objective, dataset, encoder, the settings, metric
    and `REPRODUCE_COLUMNS`.

    Of a number that several runs may answer the rows that say most stay: one at the paper's scale
    before one at another, that before none.
    """
    tables = [each for each in printed if not each.rows.empty]
    settings = list(dict.fromkeys(name for each in tables for name in each.settings))
    before = ["paper", "item", "objective", *_PLACES, *settings, "metric"]
    columns = [*before, *(name for name in REPRODUCE_COLUMNS if name not in before)]
    rows = [
        {"paper": each.paper, "item": each.item}
        | {name: row[name] for name in ("objective", *_PLACES, *each.settings, "metric")}
        | {"value": row["value"], "spread": row["spread"], "delta_to": row.get("delta_to", "")}
        | {"printed_note": row["note"]}
        | _answer(row, each)
        for each in tables
        for row in each.rows.to_dict("records")
    ]
    table = pd.DataFrame(rows, columns=columns)
    # How much a verdict says: any of those at the paper's scale, then as they stand above.
    ranks = {name: 0 if name in RESOLVABLE else i for i, name in enumerate(Verdict, 1)}
    rank = table["verdict"].map({str(name): rank for name, rank in ranks.items()})
    same = table.assign(rank=rank).groupby(before, dropna=False, sort=False)["rank"]
    best = table[rank == same.transform("min")]
    twice = best.duplicated(before) & ~best["verdict"].isin(RESOLVABLE)
    return best[~twice].reset_index(drop=True)


def _answer(row: Mapping[Any, Any], printed: Printed) -> dict[str, Any]:
    """Measured numbers, verdict and notes of one printed number."""
    if row["objective"] in printed.reference_only:
        return _judgement(Verdict.REFERENCE_ONLY)
    if math.isnan(row["value"]):
        return _judgement(Verdict.NOT_MEASURED, why=note(Reason.PRINTED_SPREAD))
    mine = printed.finished.get(row["objective"])
    if mine is None:
        return _judgement(Verdict.NOT_MEASURED, why=note(Reason.NO_SCORE))
    trials = _matching(_in_place(mine, row, printed), row, printed.settings)
    if isinstance(trials, Note):
        return _judgement(Verdict.NOT_MEASURED, why=trials)
    scored = [trial for trial in trials if not _is_empty(trial.get(row["metric"]))]
    if not scored:
        return _judgement(Verdict.NOT_MEASURED, why=note(Reason.NO_SCORE))
    # a configuration's number is of its data set and encoder, where they are factors
    configs = {tuple(str(trial.get(name)) for name in (*_PLACES, "config")) for trial in scored}
    if len(configs) > 1:
        why = note(Reason.SEVERAL_SETTINGS, configs=len(configs))
        return _judgement(Verdict.NOT_RESOLVED, why=why)
    return _measured(row, printed, scored[0])


def _measured(row: Mapping[Any, Any], printed: Printed, trial: Mapping[str, Any]) -> dict[str, Any]:
    mine, names = printed.finished[row["objective"]], ("config", "seed", row["metric"])
    for name in _PLACES:  # noise is pooled within a data set and an encoder
        if not _is_empty(here := trial.get(name)):
            mine = [other for other in mine if other[name] == here]
    frame = pd.DataFrame([[other[name] for name in names] for other in mine], columns=names)
    table = frame.dropna().pivot_table(index="config", columns="seed", values=row["metric"])
    scores, at = table.to_numpy(dtype=float), table.index.tolist().index(trial["config"])
    mean, num = float(np.nanmean(scores[at])), int(np.isfinite(scores[at]).sum())
    noise, is_unknown = noise_of(scores, by_seed=True), math.isnan(row["spread"])
    half, known = float(noise.half_widths[at]), row["rounding"] ** 2 / 12
    known += 0.0 if is_unknown else row["spread"] ** 2
    half_apart = float(noise.over(1.0 / noise.counts + is_unknown, known)[at])
    if not half > 0:  # no noise is seen
        half = half_apart = math.nan
    columns: dict[str, Any] = {"measured": mean, "num_seeds": num}
    columns |= {"low": mean - half, "high": mean + half}
    if not (cells := _cells(row, printed)):
        return columns | _judgement(Verdict.NOT_RESOLVED, why=note(Reason.PROTOCOL_UNKNOWN))
    # Where a study has two protocols for a number, its run follows the nearer.
    aparts = (_apart(row, trial, cell, printed.fixed[row["metric"]]) for cell in cells)
    if apart := min(aparts, key=len):
        why = note(Reason.OTHER_SCALE, params=tuple(name for name, *_ in apart))
        columns["differs_in"] = ", ".join(name for name, *_ in apart)
        columns["here"] = ", ".join(f"{name}={setting(here) or '-'}" for name, here, _ in apart)
        columns["there"] = ", ".join(f"{name}={setting(there)}" for name, _, there in apart)
        return columns | _judgement(Verdict.OTHER_SCALE, why=why)
    within = printed.within[row["metric"]]
    difference = mean - row["value"]
    low, high = difference - half_apart, difference + half_apart
    columns |= {"difference": difference, "difference_low": low, "difference_high": high}
    columns["within"] = within
    if math.isnan(half_apart):
        why = note(Reason.ONE_SEED if num == 1 else Reason.NO_NOISE)
        return columns | _judgement(Verdict.NOT_RESOLVED, why=why)
    if -within <= low and high <= within:
        return columns | _judgement(Verdict.AGREES)
    return columns | _judgement(Verdict.DIFFERS if low > 0 or high < 0 else Verdict.NOT_RESOLVED)


def _in_place(trials: Trials, row: Mapping[Any, Any], printed: Printed) -> Trials:
    """The trials on the row's data set with its encoder; all where they have one that the table
    has not.
    """
    rows, stand_ins = printed.rows, printed.stand_ins
    for name in _PLACES:
        there = {stand_ins.get(value, value) for value in rows[name]}
        here = {trial.get(name) for trial in trials} if row[name] else set()
        if there & here or len(here) > 1:
            wanted = stand_ins.get(row[name], row[name])
            trials = [trial for trial in trials if trial.get(name) == wanted]
        rows = rows[rows[name] == row[name]]
    return trials


def _matching(trials: Trials, row: Mapping[Any, Any], settings: Sequence[str]) -> Trials | Note:
    """The trials that have the row's settings, or why there are none."""
    for name in settings:
        if _is_empty(row[name]):
            continue
        if all(_is_empty(trial.get(name)) for trial in trials):
            return note(Reason.NOT_SWEPT, param=name) if trials else []
        trials = [trial for trial in trials if _same(trial.get(name), row[name])]
    return trials


def _cells(row: Mapping[Any, Any], printed: Printed) -> Trials:
    """The configurations of the study at the paper's scale that the number may belong to."""
    wanted = {name: row[name] for name in printed.settings if not _is_empty(row[name])}
    wanted |= {n: printed.stand_ins.get(row[n], row[n]) for n in _PLACES if row[n]}

    def fits(cell: Mapping[str, Any]) -> bool:  # a live search has yet to choose what it sweeps
        return all(_is_empty(cell.get(n)) or _same(cell[n], value) for n, value in wanted.items())

    return [cell for cell in printed.cells_of.get(row["objective"], ()) if fits(cell)]


def _apart(
    row: Mapping[str, Any], trial: Mapping[str, Any], cell: Mapping[str, Any], fixed: Sequence[str]
) -> list[tuple[str, Any, Any]]:
    """Settings that the run fixes otherwise than the paper: name, value here, value there."""
    paper = dict(cell) | {name: row[name] for name in _PLACES if row[name]}
    names = [*_FIRST, *(name for name in fixed if name not in _FIRST)]
    return [
        (name, trial.get(name), paper[name])
        for name in names
        if not _is_empty(paper.get(name)) and not _same(trial.get(name), paper[name])
    ]


def _judgement(verdict: Verdict, *, why: Note | None = None) -> dict[str, Any]:
    return {"verdict": str(verdict), **noted(why=why)}


def _is_empty(value: Any) -> bool:
    return value is None or value == "" or bool(pd.isna(value))


def _same(a: Any, b: Any) -> bool:
    """True for two settings that are one; a number may be given as a text."""
    try:
        return math.isclose(float(a), float(b), rel_tol=1e-9)
    except (TypeError, ValueError):
        return str(a) == str(b)
