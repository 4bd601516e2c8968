"""What every foreign source is read into, and how that becomes a table of trials that every
statistic reads; and SQLite files, which other tools keep, opened so that they cannot be changed.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clsweep.catalog import METRIC
from clsweep.errors import RequestError, nearest


@dataclass(kw_only=True)
class ForeignTrial:
    """One run of another tool.

    Attributes:
        group: the study, experiment or project that it is of.
        status: "finished", "stopped" (early, by a scheduler), "failed", or "running".
        settings: hyperparameters by name, as they were given.
        results: the last value of each metric.
        labels: what else the tool noted of it; it may name the objective or the seed.
    """

    group: str
    status: str
    settings: Mapping[str, Any]
    results: Mapping[str, float]
    labels: Mapping[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class ForeignSweep:
    """All trials of a source, and what the source says of them.

    Attributes:
        metric: the metric that was optimised, "" where the source does not say.
        mode: which of its values are best, "max" or "min", or "" as above.
        scales: hyperparameter -> "log", where the source drew it on such an axis.
        continuous: hyperparameters that were drawn from a range: no grid of them is one.
        mixed: the source does not tell settings from results; the trials have all in both.
        notes: lines on what was left out.
    """

    trials: list[ForeignTrial]
    metric: str = ""
    mode: str = ""
    scales: dict[str, str] = field(default_factory=dict)
    continuous: set[str] = field(default_factory=set)
    mixed: bool = False
    notes: list[str] = field(default_factory=list)


DAMAGED: tuple[type[Exception], ...] = (
    OSError, ValueError, LookupError, TypeError, AttributeError, SyntaxError, RecursionError,
)  # fmt: skip


@contextlib.contextmanager
def told(place: Path, kind: str, *damaged: type[Exception]) -> Iterator[None]:
    """Say in one line of whatever a damaged file comes to that it is no such thing.

    damaged: what it may come to beside `DAMAGED`.
    """
    try:
        yield
    except RequestError:
        raise
    except DAMAGED + damaged as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise RequestError(f"{place}: cannot be read as {kind}: {reason}") from None


def flat(tree: Mapping[str, Any], root: str = "") -> dict[str, Any]:
    """Nested settings under dotted names; a list is a text."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{root}{name}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{key}.")
        else:
            found[key] = json.dumps(value) if isinstance(value, list) else value
    return found


def numbers(tree: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among nested results; true and false are none."""
    return {
        name: float(value)
        for name, value in flat(tree).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def parsed(text: str) -> Any:
    """The number, truth value or text that a tool wrote as text. Python's own reading of numbers
    would make 6464 of 64_64.
    """
    if text in ("True", "False"):
        return text == "True"
    if text in ("None", ""):
        return None
    for kind in (int, float) if text.isascii() and "_" not in text else ():
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(15) == b"SQLite format 3"


def opened(path: Path) -> contextlib.closing[sqlite3.Connection]:
    """A connection to a SQLite file that cannot change it.

    Raises:
        ValueError: it has views, which may have no end: neither tool makes one.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    base = sqlite3.connect(uri, uri=True)
    if base.execute("SELECT 1 FROM sqlite_master WHERE type = 'view'").fetchone():
        base.close()
        raise ValueError("expected tables, found a view")
    return contextlib.closing(base)


SEEDS = ("seed", "random_seed", "random_state", "rng_seed", "manual_seed", "global_seed")
RESERVED = ("objective", "config", "seed", "status", "sampler", "trial_id", "study")
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
    source: str,
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
        source: what messages call it.
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
        raise RequestError(f"{source}: expected trials that have ended, found none")
    notes = [*sweep.notes]
    if running := len(sweep.trials) - len(trials):
        notes.append(f"left out: {running} of {len(sweep.trials)} trials, which have not ended")
    metric = _metric(trials, sweep, metric, source)
    mode = _mode(metric, sweep, mode, source)
    seed, objective = _seed_and_objective(trials, seed, objective, source)
    names = _params(trials, sweep, {metric, seed, objective}, params, source, notes)
    # a setting that is called like a label or the metric gets a `_`
    columns = {name: f"{name}_" if name in (*RESERVED, metric) else name for name in names}
    numbers: dict[str, dict[str, int]] = {}  # of the configurations of each objective
    rows = []
    for number, trial in enumerate(trials):
        given, score = {**trial.labels, **trial.settings}, trial.results.get(metric, math.nan)
        settings = [trial.settings.get(name) for name in names]
        name = str(given.get(objective, trial.group) if objective else trial.group)
        known = numbers.setdefault(name, {})  # the same settings are one configuration
        is_lost = trial.status == "finished" and not math.isfinite(score)
        rows.append(
            {
                "objective": name,
                "seed": given.get(seed) if seed else number,
                "status": "failed" if is_lost else trial.status,
                "config": known.setdefault(repr(settings), len(known)),
                "sampler": ASSUMED,
                metric: score if math.isfinite(score) else None,
                **dict(zip(columns.values(), settings, strict=True)),
            }
        )
    rows = _without_reruns(rows, notes)
    if missing := sum(row["seed"] is None for row in rows):
        raise RequestError(f"{source}: seed: {missing} of {len(rows)} trials have no {seed}")
    notes += _read_notes(rows, metric, mode, seed, objective)
    drawn = {columns[name] for name in sweep.continuous & {*columns}}
    notes += _set_samplers(rows, [*columns.values()], drawn, sampler)
    varying = [name for name in columns.values() if len({repr(row[name]) for row in rows}) > 1]
    scales = {columns[n]: s for n, s in sweep.scales.items() if columns.get(n) in varying}
    told = {"metric": metric, "mode": mode, "params": varying, "scales": scales}
    notes.append(f"hyperparameters: {', '.join(varying) or 'none varies'}")
    return Imported(rows=rows, told=told, notes=notes)


def _metric(
    trials: Sequence[ForeignTrial], sweep: ForeignSweep, asked: str | None, source: str
) -> str:
    known = dict.fromkeys(name for trial in trials for name in trial.results)
    if asked is not None:
        return _named(asked, known, "metric", source)
    if sweep.metric in known:
        return sweep.metric
    candidates = [name for name in known if name in METRIC] or list(known)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise RequestError(f"{source}: metric: expected trials with results, found none")
    raise RequestError(f"{source}: metric: name one with --metric: {', '.join(candidates)}")


def _mode(metric: str, sweep: ForeignSweep, asked: str | None, source: str) -> str:
    told = sweep.mode if metric == sweep.metric else ""
    known: str = told or (METRIC[metric].mode if metric in METRIC else "")
    if asked is not None and asked not in ("max", "min"):
        raise RequestError(f"{source}: --mode: expected max or min, given {asked!r}")
    if asked and known and asked != known:
        raise RequestError(f"{source}: --mode: expected {known} for {metric}, given {asked}")
    if not (asked or known):
        raise RequestError(
            f"{source}: is a high or a low {metric} best? Say it with --mode max or --mode min"
        )
    return asked or known


def _seed_and_objective(
    trials: Sequence[ForeignTrial], seed: str | None, objective: str | None, source: str
) -> tuple[str | None, str | None]:
    """The settings or labels that are these, if there are any."""
    columns = dict.fromkeys(name for t in trials for name in (*t.settings, *t.labels))
    if seed is None:
        ends = {name: name.replace("/", ".").rpartition(".")[2].lower() for name in columns}
        found = [name for name, end in ends.items() if end in SEEDS]
        if len(found) > 1:
            raise RequestError(f"{source}: seed: name one with --seed: {', '.join(found)}")
        seed = found[0] if found else None
    if objective is None and "objective" in columns:
        objective = "objective"
    for name, option in ((seed, "seed"), (objective, "objective")):
        if name is not None:
            _named(name, columns, option, source)
    return seed, objective


def _named(name: str, known: Iterable[str], option: str, source: str) -> str:
    known = list(known)
    if name not in known:
        hint = f"{nearest(name, known)} Columns: {', '.join(known) or 'none that fits'}"
        raise RequestError(f"{source}: --{option}: no column {name!r}.{hint}")
    return name


def _params(
    trials: Sequence[ForeignTrial],
    sweep: ForeignSweep,
    taken: set[str | None],
    asked: Sequence[str] | None,
    source: str,
    notes: list[str],
) -> list[str]:
    """The settings that are hyperparameters, apart from what has another role."""
    settings = list(dict.fromkeys(name for trial in trials for name in trial.settings))
    if asked is not None:
        wrong = [name for name in asked if name in taken]
        if wrong:
            raise RequestError(f"{source}: --param: {wrong[0]!r} has another role already")
        return [_named(name, settings, "param", source) for name in dict.fromkeys(asked)]
    names = [name for name in settings if name not in taken]
    if not sweep.mixed:
        return names
    # each value stands in two trials on average, as a measured number does not
    num_values = {name: len({repr(t.settings.get(name)) for t in trials}) for name in names}
    others = [name for name in names if 2 * num_values[name] > len(trials)]
    if others:
        notes.append(f"not read as hyperparameters: {', '.join(others)}; --param names them")
    return [name for name in names if name not in others]


def _without_reruns(rows: list[dict[str, Any]], notes: list[str]) -> list[dict[str, Any]]:
    """Without the failed trials that were run again, with the same settings and seed."""
    keys = [(row["objective"], row["config"], repr(row["seed"])) for row in rows]
    each = list(zip(keys, rows, strict=True))
    finished = {key for key, row in each if row["status"] == "finished"}
    kept = [row for key, row in each if row["status"] != "failed" or key not in finished]
    if again := len(rows) - len(kept):
        notes.append(f"left out: {again} failed trials that were run again")
    return kept


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
    if others := [f"{statuses[name]} {name}" for name in ("failed", "stopped") if statuses[name]]:
        notes.append(f"trials: {statuses['finished']} finished, {', '.join(others)}")
    return notes


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
        sampler = asked or ("grid" if _is_grid(mine, names, continuous) else ASSUMED)
        unknown += [] if asked or sampler == "grid" else [name]
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
    if set(axes) & continuous:
        return False
    if len({row["config"] for row in rows}) < math.prod(map(len, axes.values())):
        return False
    return len(axes) > 1 or all(count > 1 for found in axes.values() for count in found.values())
