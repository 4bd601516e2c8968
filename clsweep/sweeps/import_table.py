"""A table of trials that every statistic reads, made of another tool's sweep."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clsweep.errors import RequestError
from clsweep.sweeps.column_roles import (
    choose_metric,
    choose_mode,
    choose_params,
    choose_seed_and_objective,
    find_dataset,
)
from clsweep.sweeps.foreign_sweep import (
    OWN_LABELS,
    ForeignSweep,
    ForeignTrial,
    comparable_setting,
    objective_of_trial,
    unnamed_objective_notes,
)
from clsweep.sweeps.null_choices import name_chosen_nulls, settle_empty_cells
from clsweep.sweeps.parsing import UNWRITABLE
from clsweep.sweeps.sampler_guess import set_samplers
from clsweep.sweeps.trial_ends import mark_ends

_RESERVED = ("objective", "config", "seed", "status", "sampler", "trial_id", "study")
_BEYOND = re.compile(r"[+-]?([0-9.]+[eE]\+?[0-9]+|inf|infinity)", re.IGNORECASE)
_UNREAD = re.compile("^not read|is empty in")  # notes on columns that may tell trials apart


@dataclass
class ImportedTable:
    """Trials of another tool as a table.

    Attributes:
        rows: one a trial.
        options: metric, mode, params, scales and seed, which the rows themselves do not say.
        epochs: objective, config, seed, epoch and metric of each report, where the tool keeps them.
        notes: lines on how they were read.
    """

    rows: list[dict[str, Any]]
    options: dict[str, Any]
    epochs: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def import_sweep(
    sweep: ForeignSweep,
    *,
    objective: str | None = None,
    seed: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    params: Sequence[str] | None = None,
    sampler: str | None = None,
) -> ImportedTable:
    """One row a trial that has ended, with objective, config, seed, status, sampler, the metric and
    the settings. What is None, the source is to say.

    Args:
        sweep: as its tool's reader gives it.
        objective: the setting or label that tells the objectives apart.
        seed: the setting or label that is the seed.
        metric: which result is analysed.
        mode: which of its values are best.
        params: the settings that are hyperparameters.
        sampler: how the configurations were chosen, grid, qmc, random, tpe or gp.

    Raises:
        RequestError: nothing has ended, a name is unknown, or what is not named can be several.
    """
    notes = [*sweep.notes]
    trials = _ended(sweep.trials, notes)
    metric = choose_metric(trials, sweep, metric)
    mode = choose_mode(metric, sweep, mode)
    may_be_none = seed is None and not sweep.mixed
    role = metric if sweep.mixed else None
    seed, objective = choose_seed_and_objective(trials, seed, objective, role)
    notes += unnamed_objective_notes(trials, objective)
    notes += mark_ends(sweep, trials, metric, mode, objective)
    names = choose_params(trials, sweep, (role, seed, objective), params, notes)
    objectives = [objective_of_trial(trial, objective) for trial in trials]
    notes += name_chosen_nulls(trials, names, objectives)
    score = _free(metric, _RESERVED)
    columns: dict[str, str] = {}  # a setting that is called like a label or the metric gets a `_`
    dataset = find_dataset(trials, names)  # of which each has statistics of its own
    for name in names:
        column = "dataset" if name == dataset else name
        columns[name] = _free(column, (*_RESERVED, score, *columns.values()))
    rows = _rows(trials, columns, (objective, seed), (metric, score), mixed=sweep.mixed)
    epochs = _epochs(rows, trials, metric, score)
    if sweep.mixed:
        rows = settle_empty_cells(rows, [*columns.values()], notes)
    notes += _check_cells(rows, [*columns.values()])
    rows = _without_reruns(rows, seed is not None, notes)
    if seed and not _is_seed(rows, seed, may_be_none, notes):
        rows, seed, epochs = [row | {"seed": number} for number, row in enumerate(rows)], None, []
    rows = [{name: value for name, value in row.items() if name} for row in rows]
    notes += _read_notes(rows, metric, mode, seed, objective)
    drawn = {columns[name] for name in sweep.continuous & {*columns}}
    notes += set_samplers(rows, [*columns.values()], drawn, sampler)
    varying = [name for name in columns.values() if len({repr(row[name]) for row in rows}) > 1]
    scales = {columns[n]: s for n, s in sweep.scales.items() if s and columns.get(n) in varying}
    options = {"metric": score, "mode": mode, "params": varying, "scales": scales}
    notes.append(f"hyperparameters: {', '.join(varying) or 'none varies'}")
    return ImportedTable(rows, options | {"seed": seed or ""}, epochs, notes)


def _ended(trials: Sequence[ForeignTrial], notes: list[str]) -> list[ForeignTrial]:
    """Those that have ended, without the settings that clsweep's own loggers put there."""
    ended = [trial for trial in trials if trial.status != "running"]
    if not ended:
        raise RequestError("expected trials that have ended, found none")
    if running := len(trials) - len(ended):
        notes.append(f"left out: {running} of {len(trials)} trials, which have not ended")
    for trial in ended if all({*trial.settings} >= OWN_LABELS for trial in ended) else ():
        for name in ("trial_id", "config"):
            del trial.settings[name]
    return ended


def _rows(
    trials: Sequence[ForeignTrial],
    columns: Mapping[str, str],
    named: tuple[str | None, str | None],
    scored: tuple[str, str],
    *,
    mixed: bool,
) -> list[dict[str, Any]]:
    """One row a trial; of a `mixed` sweep with the texts that are not read, for the time being:
    trials with others are no copies.

    columns: of each setting.
    named: the settings or labels that are objective and seed.
    scored: the metric and its column.
    """
    (objective, seed), (metric, column) = named, scored
    numbers: dict[str, dict[str, int]] = {}  # of the configurations of each objective
    rows = []
    for number, trial in enumerate(trials):
        given, score = {**trial.labels, **trial.settings}, trial.results.get(metric, math.nan)
        settings = [comparable_setting(trial.settings.get(name)) for name in columns]
        name = objective_of_trial(trial, objective)
        known = numbers.setdefault(name, {})  # the same settings are one configuration
        rows.append(
            {
                "objective": name,
                "seed": comparable_setting(given.get(seed)) if seed else number,
                "status": trial.status,
                "config": known.setdefault(repr(settings), len(known)),
                "sampler": trial.sampler,
                column: score if math.isfinite(score) else None,
                **dict(zip(columns.values(), settings, strict=True)),
            }
        )
        if mixed:
            texts = {name: x for name, x in trial.settings.items() if type(x) is str}
            rows[-1][""] = {name: text for name, text in texts.items() if name not in columns}
    return rows


def _epochs(
    rows: Sequence[Mapping[str, Any]], trials: Sequence[ForeignTrial], metric: str, column: str
) -> list[dict[str, Any]]:
    """The reports of finished trials that have the metric, numbered from 1 as epochs; one that is
    not finite counts, and has no value.
    """
    return [
        {
            **{name: row[name] for name in ("objective", "config", "seed")},
            "epoch": number,
            column: x if math.isfinite(x) else None,
        }
        for row, trial in zip(rows, trials, strict=True)
        if row["status"] == "finished"
        for number, x in enumerate((r[metric] for r in trial.reports if metric in r), 1)
    ]


def _check_cells(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """Notes on columns with a number beyond all that are read as such, which is a text there, and
    on settings with texts beside numbers.

    Raises:
        RequestError: a name or text with NUL, or half of a surrogate pair, which no file can hold.
    """
    beyond: dict[str, list[str]] = {}
    for row in rows:
        for name, value in row.items():
            for text in (name, value):
                if isinstance(text, str) and UNWRITABLE.search(text):
                    expected = "expected a text without NUL and half characters"
                    raise RequestError(f"column {name!r:.40}: {expected}, given {text!r:.40}")
            if isinstance(value, str) and _BEYOND.fullmatch(value) and math.isinf(float(value)):
                beyond.setdefault(name, []).append(value)
    texts = {name: [row[name] for row in rows if isinstance(row[name], str)] for name in names}
    numbers = {
        n for n in names for row in rows if type(row[n]) in (int, float) and row[n] == row[n]
    }
    mixed = [name for name in names if name in numbers and texts[name]]
    return [
        *(f"{name} is {of[0]} in {len(of)} of {len(rows)} trials, no number that is read: its "
          "values are categories" for name, of in beyond.items()),
        *(f"{name} is a text in {len(texts[name])} of {len(rows)} trials ({texts[name][0]!r:.40}): "
          "its numbers are categories" for name in mixed if name not in beyond),
    ]  # fmt: skip


def _free(name: str, taken: Iterable[str]) -> str:
    """The name, with as many `_` behind it as it takes to be no other column's."""
    taken = {*taken}
    while name in taken:
        name += "_"
    return name


def _trial_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Objective, configuration and seed of a row, which make a trial."""
    return row["objective"], row["config"], repr(row["seed"])


def _without_reruns(
    rows: list[dict[str, Any]], has_seed: bool, notes: list[str]
) -> list[dict[str, Any]]:
    """Without the failed trials that were run again, with the same settings and seed.

    Without seeds they were where every setting without a failure was run as often as the others,
    and theirs has as many trials beside them.
    """
    if has_seed:
        failed_first = sorted(rows, key=lambda row: row["status"] != "failed")
        last = {_trial_key(row): row for row in failed_first}
        again = [row for row in rows if row is not last[_trial_key(row)]]
    else:
        settings = [(row["objective"], row["config"]) for row in rows]
        failed = {at for at, row in zip(settings, rows, strict=True) if row["status"] == "failed"}
        ran = Counter(
            at for at, row in zip(settings, rows, strict=True) if row["status"] != "failed"
        )
        sizes: dict[str, set[int]] = {}
        for at in ran.keys() - failed:
            sizes.setdefault(at[0], set()).add(ran[at])
        again = [
            row for at, row in zip(settings, rows, strict=True) if sizes.get(at[0]) == {ran[at]}
        ]
    left_out = {id(row) for row in again if row["status"] == "failed"}
    if left_out:
        notes.append(f"left out: {len(left_out)} failed trials that were run again")
    return [row for row in rows if id(row) not in left_out]


def _is_seed(rows: list[dict[str, Any]], seed: str, may_be_none: bool, notes: list[str]) -> bool:
    """True where the seed tells trials of the same settings apart, once copies are left out; one
    that is the same everywhere may be none.

    Raises:
        RequestError: a trial has none, or what tells them apart is not known.
    """
    if missing := sum(row["seed"] is None for row in rows):
        raise RequestError(f"seed: {missing} of {len(rows)} trials have no {seed}")
    each: dict[Any, dict[str, Any]] = {}
    if any(repr(each.setdefault(_trial_key(row), row)) != repr(row) for row in rows):
        if may_be_none and len({repr(row["seed"]) for row in rows}) == 1:
            return False
        unread = next((f" ({note})" for note in notes if _UNREAD.search(note)), "")
        same = f"the same {seed} stands in several trials of the same settings that differ"
        advice = "Name what tells them apart with --seed or --param"
        raise RequestError(f"seed: {same}. {advice}{unread}")
    if copies := len(rows) - len(each):
        notes.append(f"left out: {copies} trials that are copies of others")
        rows[:] = each.values()
    return True


def _read_notes(
    rows: Sequence[Mapping[str, Any]],
    metric: str,
    mode: str,
    seed: str | None,
    objective: str | None,
) -> list[str]:
    counts = Counter(row["objective"] for row in rows)
    shown = ", ".join(f"{name} ({count})" for name, count in counts.items())
    whence = f" by {objective}" if objective else ""
    notes = [
        f"objectives{whence}, with trials: {shown}",
        f"metric: the last {metric} of each trial; {mode} is best",
        f"seeds: {seed}" if seed else "seeds: none is named, so equal settings count as repeats",
    ]
    statuses = Counter(row["status"] for row in rows)
    ended = [f"{statuses[name]} {name}" for name in ("failed", "stopped") if statuses[name]]
    return [*notes, ", ".join([f"trials: {statuses['finished']} finished", *ended])]
