"""What every foreign source is read into, and how that becomes a table of trials that every
statistic reads.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clsweep.catalog import METRIC, PARAM
from clsweep.catalog.ownership import aliases
from clsweep.errors import RequestError, nearest
from clsweep.sweeps.source_files import ADDRESS, parsed


@dataclass(kw_only=True)
class ForeignTrial:
    """One run of another tool.

    Attributes:
        group: the study, experiment or project that it is of.
        status: "finished", "stopped" (early, by a scheduler), "failed", or "running".
        settings: hyperparameters by name, as they were given.
        results: the last value of each metric.
        labels: what else the tool noted of it; it may name the objective or the seed.
        length: how many reports it sent; None where its status is known without them.
        returned: it is known to have ended by itself, however few they were.
        sampler: how its settings were chosen, "" where the tool does not say.
    """

    group: str
    status: str
    settings: dict[str, Any]
    results: dict[str, float]
    labels: Mapping[str, Any] = field(default_factory=dict)
    length: float | None = None
    returned: bool = False
    sampler: str = ""


@dataclass(kw_only=True)
class ForeignSweep:
    """All trials of a source, and what the source says of them.

    Attributes:
        metric: the metric that was optimised, "" where the source does not say.
        mode: which of its values are best, "max" or "min", or "" as above.
        scales: hyperparameter -> "log" or "linear", where the source drew it so; "" where on both.
        continuous: hyperparameters that were drawn from a range: no grid of them is one.
        mixed: the source does not tell settings from results; the trials have all in both.
        by_step: trials report each step or so, of which batches and the like settle the number.
        notes: lines on what was left out.
    """

    trials: list[ForeignTrial]
    metric: str = ""
    mode: str = ""
    scales: dict[str, str] = field(default_factory=dict)
    continuous: set[str] = field(default_factory=set)
    mixed: bool = False
    by_step: bool = False
    notes: list[str] = field(default_factory=list)


def read_numbers(trials: Collection[ForeignTrial], *, typed: bool = True) -> None:
    """Make numbers of a setting's texts, such as YAML's 1e-3, where all are and no two the same.

    typed: other values have types already. Else each text is read by itself, unless 1.1 and 1.10
        are among them, which no tool writes of one number.
    """
    for name in {name: None for trial in trials for name in trial.settings}:
        having = [trial.settings for trial in trials if name in trial.settings]
        found = {each[name]: parsed(each[name]) for each in having if isinstance(each[name], str)}
        alike = [text for text in found if typed or PLAIN.fullmatch(text)]
        values = {found[text] for text in alike if type(found[text]) in (int, float)}
        for each in having:
            value = found.get(each[name], each[name])
            if len(values) == len(alike) or (value is None and not typed):
                each[name] = value


PLAIN = re.compile(r"[+-]?[0-9]+\.[0-9]+")
SEEDS = (
    "seed", "random_seed", "random_state", "rng_seed", "manual_seed", "global_seed",
    "__trial_index__",  # of Tune's Repeater
)  # fmt: skip
SETTINGS = {*PARAM, *aliases()} - {"epoch"}  # of which many trials have each its own value
RESERVED = ("objective", "config", "seed", "status", "sampler", "trial_id", "study")
OWN = {"trial_id", "objective", "config", "seed"}  # what clsweep's own loggers tell of each trial
ENDS = ("finished", "stopped", "failed")
LARGEST = 1e60  # settings beyond it are texts: no axis holds them
# Settings that say how long a trial is, and those of whose values its reports an epoch depend.
LONG = re.compile("epoch|iter|step|round|budget|max_t|estimators|trees|updates", re.IGNORECASE)
PACE = re.compile("batch|accum|world|devices|workers|subset|fraction|every|interval|freq|samples")
ASSUMED = "tpe"  # of an unknown sampler: the one that no robustness is computed from
SAMPLERS = ("grid", "qmc", "random", "tpe", "gp")


@dataclass(kw_only=True)
class Imported:
    """Rows with `told`, what they do not say themselves, and lines on how they were read."""

    rows: list[dict[str, Any]]
    told: dict[str, Any]
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
) -> Imported:
    """One row a trial that has ended, with objective, config, seed, status, sampler, the metric and
    the settings. What is None, the source is to say.

    Args:
        sweep: what a tool kept.
        objective: the setting or label that tells the objectives apart.
        seed: the setting or label that is the seed.
        metric: which result is analysed.
        mode: which of its values are best.
        params: the settings that are hyperparameters.
        sampler: how the configurations were chosen, one of `SAMPLERS`.

    Raises:
        RequestError: nothing has ended, a name is unknown, or what is not named can be several.
    """
    trials = [trial for trial in sweep.trials if trial.status != "running"]
    if not trials:
        raise RequestError("expected trials that have ended, found none")
    notes = [*sweep.notes]
    if running := len(sweep.trials) - len(trials):
        notes.append(f"left out: {running} of {len(sweep.trials)} trials, which have not ended")
    for trial in trials if all({*trial.settings} >= OWN for trial in trials) else ():
        for name in ("trial_id", "config"):  # which are no settings
            del trial.settings[name]
    metric = _metric(trials, sweep, metric)
    mode = _mode(metric, sweep, mode)
    may_be_none = seed is None and not sweep.mixed
    role = metric if sweep.mixed else None
    seed, objective = _seed_and_objective(trials, seed, objective, role)
    notes += _mark_ends(sweep, trials, metric, objective)
    names = _params(trials, sweep, {role, seed, objective}, params, notes)
    score = _free(metric, RESERVED)
    columns: dict[str, str] = {}  # a setting that is called like a label or the metric gets a `_`
    for name in names:
        columns[name] = _free(name, (*RESERVED, score, *columns.values()))
    rows = _rows(trials, columns, (objective, seed), (metric, score))
    if sweep.mixed:
        _add_unread(rows, trials, names)
    rows = _without_reruns(rows, notes)
    if seed and not _tells_apart(rows, seed, may_be_none, notes):
        rows, seed = [row | {"seed": number} for number, row in enumerate(rows)], None
    rows = [{name: value for name, value in row.items() if name} for row in rows]
    notes += _read_notes(rows, metric, mode, seed, objective)
    drawn = {columns[name] for name in sweep.continuous & {*columns}}
    notes += _set_samplers(rows, [*columns.values()], drawn, sampler)
    varying = [name for name in columns.values() if len({repr(row[name]) for row in rows}) > 1]
    scales = {columns[n]: s for n, s in sweep.scales.items() if s and columns.get(n) in varying}
    told = {"metric": score, "mode": mode, "params": varying, "scales": scales}
    notes.append(f"hyperparameters: {', '.join(varying) or 'none varies'}")
    return Imported(rows=rows, told=told | {"seed": seed or ""}, notes=notes)


def _rows(
    trials: Sequence[ForeignTrial],
    columns: Mapping[str, str],
    named: tuple[str | None, str | None],
    scored: tuple[str, str],
) -> list[dict[str, Any]]:
    """One a trial.

    columns: of each setting.
    named: the settings or labels that are objective and seed.
    scored: the metric and its column.
    """
    (objective, seed), (metric, column) = named, scored
    numbers: dict[str, dict[str, int]] = {}  # of the configurations of each objective
    rows = []
    for number, trial in enumerate(trials):
        given, score = {**trial.labels, **trial.settings}, trial.results.get(metric, math.nan)
        settings = [_setting(trial.settings.get(name)) for name in columns]
        name = _objective(trial, objective)
        known = numbers.setdefault(name, {})  # the same settings are one configuration
        rows.append(
            {
                "objective": name,
                "seed": _setting(given.get(seed)) if seed else number,
                "status": trial.status,
                "config": known.setdefault(repr(settings), len(known)),
                "sampler": trial.sampler,
                column: score if math.isfinite(score) else None,
                **dict(zip(columns.values(), settings, strict=True)),
            }
        )
    return rows


def _free(name: str, taken: Iterable[str]) -> str:
    """The name, with as many `_` behind it as it takes to be no other column's."""
    taken = {*taken}
    while name in taken:
        name += "_"
    return name


def _setting(value: Any) -> Any:
    """A value as it is compared: 1 and 1.0 are one number, what is beyond all axes is a text, which
    tells no addresses.
    """
    if isinstance(value, str):
        return ADDRESS.sub("", value)
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, int | float) or abs(value) > LARGEST:
        return str(value)
    return int(value) if value % 1 == 0 and abs(value) < 2**53 else value


def _objective(trial: ForeignTrial, column: str | None) -> str:
    found = {**trial.labels, **trial.settings}.get(column) if column else None
    return trial.group if found in (None, "") else str(found)


def _mark_ends(
    sweep: ForeignSweep, trials: Sequence[ForeignTrial], metric: str, column: str | None
) -> list[str]:
    """Those that finished without a score have failed. Those that did after fewer reports than the
    longest of their objective were stopped, unless a setting says how many each is to send.

    Returns notes on them.
    """
    alike: dict[tuple[str, ...], list[ForeignTrial]] = {}
    lost = 0
    for trial in trials:
        text = trial.settings.get(metric)
        if sweep.mixed and metric not in trial.results and isinstance(text, str):
            raise RequestError(f"{metric}: expected a number, given {text!r}")
        if trial.status == "finished" and not math.isfinite(trial.results.get(metric, math.nan)):
            trial.status, lost = "failed", lost + 1
        if trial.status == "finished" and trial.length:
            pace = [n for n in sorted(trial.settings) if sweep.by_step and PACE.search(n)]
            values = [repr(_setting(trial.settings[name])) for name in pace]
            alike.setdefault((trial.group, _objective(trial, column), *values), []).append(trial)
    short = [
        trial
        for each in alike.values()
        for trial, asked in zip(each, _expected(each), strict=True)
        if (trial.length or 0) <= asked - max(1, 0.01 * asked)
    ]
    for trial in short:
        trial.status = "finished" if trial.returned else "stopped"
    ended = Counter(trial.status for trial in short)
    notes = {
        f"failed: {lost} that ended without a finite {metric}": lost,
        f"stopped: {ended['stopped']} that sent fewer reports than the longest": ended["stopped"],
        f"finished: {ended['finished']} that returned after fewer reports": ended["finished"],
    }
    return [said for said, num in notes.items() if num]


def _expected(trials: Sequence[ForeignTrial]) -> list[float]:
    """How many reports each is to send: as many as the longest, or as a setting says."""
    lengths = [trial.length or 0 for trial in trials]
    for name in filter(LONG.search, trials[0].settings):
        given = [trial.settings.get(name) for trial in trials]
        asked = [value for value in given if isinstance(value, int | float) and value > 0]
        if len(asked) == len(trials):
            expected = [max(lengths) * value / max(asked) for value in asked]
            reached = dict(sorted(zip(expected, lengths, strict=True)))  # the longest of each
            if all(abs(length - value) < 1 for value, length in reached.items()):
                return expected
    return [max(lengths)] * len(lengths)


def _metric(trials: Sequence[ForeignTrial], sweep: ForeignSweep, asked: str | None) -> str:
    known = dict.fromkeys(name for trial in trials for name in trial.results)
    if asked is not None:
        texts = [trial.settings[asked] for trial in trials if trial.settings.get(asked) is not None]
        if sweep.mixed and texts and asked not in known:
            raise RequestError(f"{asked}: expected a number, given {texts[0]!r}")
        return _named(asked, known, "metric")
    if sweep.metric in known:
        return sweep.metric
    candidates = [name for name in known if name in METRIC] or list(known)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise RequestError("metric: expected trials with results, found none")
    raise RequestError(f"metric: name one with --metric: {', '.join(candidates)}")


def _mode(metric: str, sweep: ForeignSweep, asked: str | None) -> str:
    told = sweep.mode if metric == sweep.metric else ""
    known: str = told or (METRIC[metric].mode if metric in METRIC else "")
    if asked is not None and asked not in ("max", "min"):
        raise RequestError(f"--mode: expected max or min, given {asked!r}")
    if asked and known and asked != known:
        raise RequestError(f"--mode: expected {known} for {metric}, given {asked}")
    if not (asked or known):
        raise RequestError(
            f"is a high or a low {metric} best? Say it with --mode max or --mode min"
        )
    return asked or known


def _seed_and_objective(
    trials: Sequence[ForeignTrial],
    seed: str | None,
    objective: str | None,
    metric: str | None,
) -> tuple[str | None, str | None]:
    """The settings or labels that are these, if there are any; the metric's column is neither."""
    columns = dict.fromkeys(name for t in trials for name in (*t.settings, *t.labels))
    columns.pop(metric or "", None)
    if seed is None:
        plain = {name: name.replace("/", ".").removesuffix(".value") for name in columns}
        ends = {name: text.rpartition(".")[2].lower() for name, text in plain.items()}
        found = [name for name, end in ends.items() if end in SEEDS]
        if len(found) > 1:
            raise RequestError(f"seed: name one with --seed: {', '.join(found)}")
        seed = found[0] if found else None
    if objective is None and "objective" in columns:
        objective = "objective"
    for name, option in ((seed, "seed"), (objective, "objective")):
        if name is not None:
            _named(name, columns, option)
    return seed, objective


def _named(name: str, known: Iterable[str], option: str) -> str:
    known = list(known)
    if name not in known:
        hint = f"{nearest(name, known)} Columns: {', '.join(known) or 'none that fits'}"
        raise RequestError(f"--{option}: no column {name!r}.{hint}")
    return name


def _params(
    trials: Sequence[ForeignTrial],
    sweep: ForeignSweep,
    taken: set[str | None],
    asked: Sequence[str] | None,
    notes: list[str],
) -> list[str]:
    """The settings that are hyperparameters, apart from what has another role."""
    settings = list(dict.fromkeys(name for trial in trials for name in trial.settings))
    if asked is not None:
        wrong = [name for name in asked if name in taken]
        if wrong:
            raise RequestError(f"--param: {wrong[0]!r} has another role already")
        return [_named(name, settings, "param") for name in dict.fromkeys(asked)]
    names = [name for name in settings if name not in taken]
    if not sweep.mixed:
        return names
    # each value stands in two trials on average, as a measured number does not
    num_values = {name: len({repr(t.settings.get(name)) for t in trials}) for name in names}
    measured = [n for n in names if 2 * num_values[n] > len(trials) and n not in SETTINGS]
    others = [n for n in names if n in measured or n == "epoch"]  # which says how far each came
    if others:
        notes.append(f"not read as hyperparameters: {', '.join(others)}; --param names them")
    return [name for name in names if name not in others]


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a trial is of."""
    return row["objective"], row["config"], repr(row["seed"])


def _add_unread(
    rows: list[dict[str, Any]], trials: Sequence[ForeignTrial], names: Sequence[str]
) -> None:
    """Texts that are not read, for the time being: trials with others are no copies."""
    for row, trial in zip(rows, trials, strict=True):
        row[""] = {n: v for n, v in trial.settings.items() if n not in names and type(v) is str}


def _without_reruns(rows: list[dict[str, Any]], notes: list[str]) -> list[dict[str, Any]]:
    """Without the failed trials that were run again, with the same settings and seed."""
    failed_first = sorted(rows, key=lambda row: row["status"] != "failed")
    last = {_key(row): row for row in failed_first}
    kept = [row for row in rows if row["status"] != "failed" or row is last[_key(row)]]
    if again := len(rows) - len(kept):
        notes.append(f"left out: {again} failed trials that were run again")
    return kept


def _tells_apart(
    rows: list[dict[str, Any]], seed: str, may_be_none: bool, notes: list[str]
) -> bool:
    """Whether the seed tells trials of the same settings apart, once copies are left out; one that
    is the same everywhere may be none.

    Raises:
        RequestError: a trial has none, or what tells them apart is not known.
    """
    if missing := sum(row["seed"] is None for row in rows):
        raise RequestError(f"seed: {missing} of {len(rows)} trials have no {seed}")
    each: dict[Any, dict[str, Any]] = {}
    if any(repr(each.setdefault(_key(row), row)) != repr(row) for row in rows):
        if may_be_none and len({repr(row["seed"]) for row in rows}) == 1:
            return False
        unread = next((f" ({said})" for said in notes if said.startswith("not read")), "")
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


def _set_samplers(
    rows: Sequence[dict[str, Any]], names: Sequence[str], continuous: set[str], asked: str | None
) -> list[str]:
    """The sampler as asked; else a complete grid is one, and what else it was is not known."""
    if asked is not None and asked not in SAMPLERS:
        hint = nearest(asked, SAMPLERS)
        raise RequestError(f"--sampler: expected {', '.join(SAMPLERS)}, given {asked!r}.{hint}")
    unknown = []
    for name in dict.fromkeys(row["objective"] for row in rows):
        mine = [row for row in rows if row["objective"] == name]
        said = {row["sampler"] for row in mine}
        sampler = said.pop() if len(said) == 1 else ""
        sampler = asked or sampler or ("grid" if _is_grid(mine, names, continuous) else ASSUMED)
        unknown += [] if asked or sampler != ASSUMED else [name]
        for row in mine:
            row["sampler"] = sampler
    if not unknown:
        return [f"sampler: {rows[0]['sampler']}"]
    return [
        f"sampler of {', '.join(unknown)}: not known, so read as one that favours good settings "
        f"({ASSUMED}); if it was not, say --sampler random, qmc or grid"
    ]


def _is_grid(rows: Sequence[Mapping[str, Any]], names: Sequence[str], continuous: set[str]) -> bool:
    """Whether every combination of the values was tried, as a sample does not do by chance: along
    one axis it always does, so there each value must stand in two trials at least.
    """
    values = {name: Counter(repr(row[name]) for row in rows) for name in names}
    axes = {name: found for name, found in values.items() if len(found) > 1}
    num_configs = len({row["config"] for row in rows})
    if set(axes) & continuous or num_configs < math.prod(map(len, axes.values())):
        return False
    if len(axes) > 1:
        return True
    recurs = all(count > 1 for found in axes.values() for count in found.values())
    return recurs and not any(_is_drawn({row[name] for row in rows}) for name in axes)


def _is_drawn(values: Iterable[Any]) -> bool:
    """Whether numbers of many digits stand in no even steps, as a grid's do."""
    known = sorted(float(value) for value in values if isinstance(value, int | float))
    if all(float(f"{value:.6g}") == value for value in known):
        return False
    steps = [np.diff(known), np.diff(np.log(known))] if known[0] > 0 else [np.diff(known)]
    return len(known) < 3 or all(np.ptp(step) > 1e-6 * step.max() for step in steps)
