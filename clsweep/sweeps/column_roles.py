"""The roles of a sweep's columns: metric, seed, objective and hyperparameters."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from clsweep.analysis.read_sweeps import MIN_POINTS
from clsweep.catalog import METRIC, PARAM
from clsweep.catalog.ownership import aliases
from clsweep.errors import RequestError, nearest
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
_ATTRIBUTES = "user_attrs_"  # of Optuna, where a seed may stand
SETTING_NAMES = {*PARAM, *aliases()} - {"epoch"}  # of which many trials have each its own value


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
    candidates = [name for name in known if name in METRIC] or list(known)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise RequestError("metric: expected trials with results, found none")
    raise RequestError(f"metric: name one with --metric: {', '.join(candidates)}")


def choose_mode(metric: str, sweep: ForeignSweep, mode: str | None) -> str:
    """The given mode, which agrees with that of the source or the catalog; else that one."""
    own = sweep.mode if metric == sweep.metric else ""
    known: str = own or (METRIC[metric].mode if metric in METRIC else "")
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
    if seed is None:
        # without what a tool puts before and behind a name; slashes part it as points do
        bare = {n: n.removeprefix(_ATTRIBUTES).removeprefix(SETTING_PREFIXES[0]) for n in columns}
        plain = {n: text.replace("/", ".").removesuffix(".value") for n, text in bare.items()}
        ends = {n: text.rpartition(".")[2].lower() for n, text in plain.items()}
        seeds = [name for name, end in ends.items() if end in _SEEDS]
        if len(seeds) > 1:
            raise RequestError(f"seed: name one with --seed: {', '.join(seeds)}")
        seed = seeds[0] if seeds else None
    if objective is None and "objective" in columns:
        objective = "objective"
    for name, option in ((seed, "seed"), (objective, "objective")):
        if name is not None:
            _require_column(name, columns, option)
    return seed, objective


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
    settings = list(dict.fromkeys(name for trial in trials for name in trial.settings))
    if params is not None:
        wrong = [name for name in params if name in taken]
        if wrong:
            raise RequestError(f"--param: {wrong[0]!r} has another role already")
        return [_require_column(name, settings, "param") for name in dict.fromkeys(params)]
    names = [name for name in settings if name not in taken]
    if not sweep.mixed:
        if ids := _ids(trials, names, *taken[1:]):
            each = f"{', '.join(ids)}, another in each trial; --param names them"
            notes.append(f"not read as hyperparameters: {each}")
        return [name for name in names if name not in ids]
    # each value stands in two trials on average, as a measured number does not
    num_values = {name: len({repr(t.settings.get(name)) for t in trials}) for name in names}
    known = {n for n in names if n in SETTING_NAMES or n.startswith(SETTING_PREFIXES)}
    measured = [n for n in names if 2 * num_values[n] > len(trials) and n not in known]
    others = [n for n in names if n in measured or n == "epoch"]  # which says how far each came
    if others:
        notes.append(f"not read as hyperparameters: {', '.join(others)}; --param names them")
    return [name for name in names if name not in others]


def _ids(
    trials: Sequence[ForeignTrial], names: Sequence[str], seed: str | None, objective: str | None
) -> list[str]:
    """The texts and whole numbers that only number the trials: another one in each, where the other
    settings and the seeds recur, and tell the trials apart.
    """
    num, given = len(trials), [{**trial.labels, **trial.settings} for trial in trials]

    def texts(of: Sequence[str]) -> list[str]:
        return [repr([comparable_setting(values.get(name)) for name in of]) for values in given]

    ids = [
        name
        for name in names
        if len({*texts([name])}) == num and all(type(v.get(name)) in (str, int) for v in given)
    ]
    if seed is None or num < MIN_POINTS or not ids:
        return []
    objectives = [objective_of_trial(trial, objective) for trial in trials]
    settings = [*zip(objectives, texts([n for n in names if n not in ids]), strict=True)]
    seeds = texts([seed])
    recur = 2 * max(len({*settings}), len({*seeds})) <= num
    return ids if recur and len({*zip(settings, seeds, strict=True)}) == num else []
