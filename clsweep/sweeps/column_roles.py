"""The roles of a sweep's columns: metric, seed, objective and hyperparameters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations, islice
from typing import Any

from clsweep.analysis.read_sweeps import MIN_POINTS
from clsweep.catalog import METRIC, PARAM
from clsweep.catalog.ownership import aliases
from clsweep.errors import RequestError, nearest
from clsweep.sweeps.exported_rows import STEP_NAMES
from clsweep.sweeps.foreign_sweep import (
    ForeignSweep,
    ForeignTrial,
    comparable_setting,
    objective_of_trial,
)

_SEEDS = (
    "seed", "random_seed", "random_state", "rng_seed", "manual_seed", "global_seed",
    "__trial_index__",  # of Tune's Repeater
)  # fmt: skip
# By which the tables of Optuna, MLflow, W&B and Ray Tune tell settings from all else.
SETTING_PREFIXES = ("params_", "params.", "config.", "config/")
_SEED_WORD = re.compile(r"^seeds?[-_ ]?[a-z]+$|(^|[-_ a-z])seeds?$")  # seed_everything, torch_seed
_REPEATS = {"run", "rep", "repeat", "repetition", "replicate", "replication", "trial", "fold"}
_DATASET = re.compile(r"(^|[./]|params_)(dataset|dataset_name|(dataset|data)[./]name)$")
_ATTRIBUTES = "user_attrs_"  # of Optuna, where a seed may stand
_LOGGED = {"lr", "learning_rate"}  # at each step, where a schedule changes it
_MOST_CELLS = 1_000_000  # looked at for columns that are settings beside what differs between seeds
SETTING_NAMES = {*PARAM, *aliases()} - {"epoch"}  # of which many trials have each its own value


def is_of_a_run(name: str) -> bool:
    """True for names of settings and seeds, which no run changes; a rate is also logged as such."""
    bare = bare_name(name)
    known = bare in SETTING_NAMES or bare.lower() in _SEEDS or _SEED_WORD.search(bare.lower())
    return name.startswith(SETTING_PREFIXES) or bool(known and bare not in _LOGGED)


def bare_name(column: str) -> str:
    """The name of a setting without what a tool puts before it."""
    return re.split(r"[./]|params_", column)[-1]


def choose_metric(trials: Sequence[ForeignTrial], sweep: ForeignSweep, name: str | None) -> str:
    """The metric of that name, else the one that the source optimised, or the only one."""
    known = dict.fromkeys(name for trial in trials for name in trial.results)
    if name is not None:
        texts = [trial.settings[name] for trial in trials if trial.settings.get(name) is not None]
        if sweep.mixed and texts and name not in known:
            raise RequestError(f"{name}: expected a number, given {texts[0]!r}")
        if f"{name} is empty in all trials" in sweep.notes:
            raise RequestError(f"{name}: expected numbers, given a column that is empty")
        return _require_column(name, known, "metric")
    if sweep.metric in known:
        return sweep.metric
    ours = [name for name in known if name in METRIC]
    candidates = ours or [name for name in known if name in sweep.modes] or [*known]
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise RequestError("metric: expected trials with results, found none")
    raise RequestError(f"metric: name one with --metric: {', '.join(candidates)}")


def choose_mode(metric: str, sweep: ForeignSweep, mode: str | None) -> str:
    """The given mode, which agrees with that of the source or the catalog; else that one."""
    known: str = sweep.modes.get(metric) or (METRIC[metric].mode if metric in METRIC else "")
    if mode is not None and mode not in ("max", "min"):
        raise RequestError(f"--mode: expected max or min, given {mode!r}")
    if mode and known and mode != known:
        raise RequestError(f"--mode: expected {known} for {metric}, given {mode}")
    if not (mode or known):
        raise RequestError(
            f"is a high or a low {metric} best? Say it with --mode max or --mode min"
        )
    return mode or known


def choose_seed_and_objective(
    trials: Sequence[ForeignTrial],
    seed: str | None,
    objective: str | None,
    metric: str | None,
) -> tuple[str | None, str | None]:
    """The settings or labels that are these, if there are any; the metric's column is neither."""
    columns = dict.fromkeys(name for t in trials for name in (*t.settings, *t.labels))
    columns.pop(metric or "", None)
    seed = _find_seed(trials, columns) if seed is None else seed
    if objective is None and "objective" in columns:
        objective = "objective"
    for name, option in ((seed, "seed"), (objective, "objective")):
        if name is not None:
            _require_column(name, columns, option)
    return seed, objective


def _find_seed(trials: Sequence[ForeignTrial], names: Collection[str]) -> str | None:
    """The setting or label that is called a seed; else the one that numbers repeats. Of several the
    one that differs between trials, or that is called plainly so.

    Raises:
        RequestError: several are left.
    """
    # without what a tool puts before and behind a name; slashes part it as points do
    bare = {n: n.removeprefix(_ATTRIBUTES).removeprefix(SETTING_PREFIXES[0]) for n in names}
    plain = {n: text.replace("/", ".").removesuffix(".value") for n, text in bare.items()}
    ends = {n: text.rpartition(".")[2].lower() for n, text in plain.items()}
    values = {n: [{**t.labels, **t.settings}.get(n) for t in trials] for n in names}
    texts = {name: [*map(repr, values[name])] for name in names}
    varying = [name for name in names if len({*texts[name]}) > 1]
    numbers = [name for name in varying if {*map(type, values[name])} == {int}]

    def is_crossed(name: str) -> bool:
        """True where another setting has all of its values beside each of these."""
        num, others = len({*texts[name]}), (texts[other] for other in varying if other != name)
        return any(len({*zip(texts[name], x, strict=True)}) == num * len({*x}) for x in others)

    for candidates in (
        [name for name in varying if ends[name] in _SEEDS],
        [name for name in numbers if _SEED_WORD.search(ends[name])],
        [name for name in numbers if ends[name] in _REPEATS and is_crossed(name)],
        [name for name in names if ends[name] in _SEEDS][:1],  # the same everywhere
    ):
        if len(candidates) > 1:
            raise RequestError(f"seed: name one with --seed: {', '.join(candidates)}")
        if candidates:
            return candidates[0]
    return None


def _require_column(name: str, columns: Collection[str], option: str) -> str:
    if name not in columns:
        hint = f"{nearest(name, columns)} Columns: {', '.join(columns) or 'none that fits'}"
        raise RequestError(f"--{option}: no column {name!r}.{hint}")
    return name


def choose_params(
    trials: Sequence[ForeignTrial],
    sweep: ForeignSweep,
    taken: tuple[str | None, str | None, str | None],
    params: Sequence[str] | None,
    notes: list[str],
) -> list[str]:
    """The settings that are hyperparameters, apart from those that are `taken` as metric, seed and
    objective.
    """
    for trial in trials:  # a tag or an attribute that is named is one, too
        named = {name: trial.labels[name] for name in params or () if name in trial.labels}
        trial.settings = named | trial.settings
    settings = list(dict.fromkeys(name for trial in trials for name in trial.settings))
    if params is not None:
        wrong = [name for name in params if name in taken]
        if wrong:
            raise RequestError(f"--param: {wrong[0]!r} has another role already")
        return [_require_column(name, settings, "param") for name in dict.fromkeys(params)]
    names = [name for name in settings if name not in taken]
    others: list[str] = []
    if sweep.mixed:
        # each value stands in two trials on average, as a measured number does not
        num_values = {name: len({repr(t.settings.get(name)) for t in trials}) for name in names}
        known = {n for n in names if n in SETTING_NAMES or n.startswith(SETTING_PREFIXES)}
        measured = [n for n in names if 2 * num_values[n] > len(trials) and n not in known]
        others = [n for n in names if n in measured or bare_name(n).lower() in STEP_NAMES]
    names = [name for name in names if name not in others]
    unlike = _unlike_seeds(trials, names, *taken[1:])
    for left, why in ((others, ""), (unlike, ", where seeds of the same settings differ")):
        if left:
            texts = f"{', '.join(left)}{why}; --param names them"
            notes.append(f"not read as hyperparameters: {texts}")
    return [name for name in names if name not in unlike]


def _is_even(values: Sequence[int], seeds: Sequence[int]) -> bool:
    """True where each value stands equally often with each seed."""
    sizes, num_seeds = Counter(values), len({*seeds})
    cells = Counter(zip(values, seeds, strict=True))
    return all(num * num_seeds == sizes[value] for (value, _), num in cells.items())


def find_dataset(trials: Sequence[ForeignTrial], names: Sequence[str]) -> str | None:
    """The setting that names the data set: the only one that is called so, of texts."""
    called = [name for name in names if _DATASET.search(name)]
    texts = [n for n in called if all(type(t.settings.get(n)) is str for t in trials)]
    return texts[0] if len(texts) == 1 and "dataset" not in names else None


def _unlike_seeds(
    trials: Sequence[ForeignTrial], names: Sequence[str], seed: str | None, objective: str | None
) -> list[str]:
    """The settings that are none, as a node, a folder or a time: they differ between the seeds of
    the same settings.

    Of those that the catalog does not know the ones are settings that are even over the seeds, or
    the fewest, with which each combination has each seed once, but for a tenth. Texts and whole
    numbers that only number the trials are none where up to a half is lacking.
    """
    if seed is None or len(trials) < MIN_POINTS:
        return []
    given = [{**trial.labels, **trial.settings} for trial in trials]

    def numbered(values: Iterable[Any]) -> tuple[int, ...]:
        """Each value as the number of the first that equals it."""
        first: dict[Any, int] = {}
        return tuple(first.setdefault(value, len(first)) for value in values)

    columns = {
        name: numbered(repr(comparable_setting(values.get(name))) for values in given)
        for name in (*names, seed)
    }
    unknown = [name for name in names if bare_name(name) not in SETTING_NAMES]
    ids = {
        columns[name]
        for name in unknown
        if max(columns[name]) + 1 == len(trials)
        and all(type(values.get(name)) in (str, int) for values in given)
    }
    objectives = (objective_of_trial(trial, objective) for trial in trials)
    known = numbered(zip(objectives, *(columns[n] for n in names if n not in unknown), strict=True))
    ways = {*(columns[name] for name in unknown if max(columns[name]))}  # to part the trials
    has_run = [trial.status != "failed" for trial in trials]  # others may have been run again
    crossed = tuple(way for way in sorted(ways) if _is_even(way, columns[seed]))
    every = (chosen for size in range(len(ways)) for chosen in combinations(sorted(ways), size))
    for chosen in (crossed, *islice(every, _MOST_CELLS // len(trials))):
        settings = numbered(zip(known, *chosen, strict=True))
        cells = [*zip(settings, columns[seed], strict=True)]
        ran = [cell for cell, has in zip(cells, has_run, strict=True) if has]
        num, num_seeds = len({*settings}), len({*columns[seed]})
        is_whole = min(num, num_seeds) > 1 and 10 * len({*cells}) >= 9 * num * num_seeds
        recurs = ways - {*chosen} <= ids and 2 * max(num, num_seeds) <= len(trials)
        if len({*ran}) == len(ran) and (is_whole or recurs):
            return [n for n in unknown if len({*zip(settings, columns[n], strict=True)}) > num]
    return []
