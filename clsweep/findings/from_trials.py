"""What a report is made of, from a table of trials that came from anywhere."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from clsweep.catalog import METRICS
from clsweep.catalog.ownership import ALL_THERE_IS
from clsweep.errors import RequestError, nearest
from clsweep.findings.material import Material
from clsweep.findings.reading_rules import (
    SYMBOLS,
    chance_of,
    defaults_of,
    diagnostics_of,
    mode_of,
    sweeps_of,
    unit_of,
    within_of,
)
from clsweep.results.schemas import ID_FIELDS, outcome_fields, params_in

if TYPE_CHECKING:
    import pandas as pd

    from clsweep.analysis.sweep import Sweep

Followers = Mapping[str, Mapping[str, tuple[str, ...]]]  # objective -> axis -> what settles it


def of_trials(
    trials: pd.DataFrame,
    *,
    source: str = "table",
    metric: str | None = None,
    mode: str | None = None,
    params: Sequence[str] | None = None,
) -> Material:
    """A table of trials that came from anywhere, with the columns that `analysis.sweep.read_sweeps`
    asks for.

    Args:
        trials: one row a trial.
        source: what messages call it.
        metric: by default the first of the known metrics that it has.
        mode: "max" or "min", to be said of a metric that is not the catalog's.
        params: the hyperparameters. By default every column without another role that has one value
            in each configuration; with one seed, where outcomes have that too, the known ones. Of
            these, what others settle is no axis of its objective (`analysis.axes.followers`). Of
            two that settle each other, the one stays that clsweep does not derive, or else the
            first. Hyperparameters that are named here all stay; a note tells what settles what.

    Raises:
        RequestError: a column is missing, or says what it cannot.
    """
    columns = [str(column) for column in trials.columns]
    known = [m.name for m in METRICS if m.name in columns]
    scored = [m for m in known if trials[m].notna().any()]
    name = metric or next(iter([*scored, *known]), "")
    if name not in columns:
        asked = (
            f"no column {name!r}.{nearest(name, columns)}"
            if name
            else "none of the known metrics; name one."
        )
        raise RequestError(f"{source}: metric: {asked} Columns: {', '.join(columns)}")
    swept, notes = (params, []) if params is not None else _settings(trials, name, source)
    mode = mode_of(name, mode, None, source)
    sweeps = sweeps_of(trials, source, name, mode, swept)
    settled = _followers(sweeps)
    notes += _settled_notes(settled, sweeps, kept=params is not None)
    if params is None and any(settled.values()):
        axes = {s.objective: [n for n in s.params if n not in settled[s.objective]] for s in sweeps}
        sweeps = sweeps_of(trials, source, name, mode, axes)
        gone = set.intersection(*(set(swept) - set(each) for each in axes.values()))
        gone &= {name for found in settled.values() for name in found}
        swept = [name for name in swept if name not in gone]
    if "trial_id" not in trials:
        ids = [trials[column].astype(str) for column in ("objective", "config", "seed")]
        trials = trials.assign(trial_id=ids[0] + "-" + ids[1] + "-s" + ids[2])
    return Material(
        title=source,
        sources=(source,),
        trials=trials,
        metric=name,
        unit=unit_of(name),
        mode=mode,
        params=tuple(swept),
        diagnostics=diagnostics_of(trials),
        symbols=SYMBOLS,
        sweeps=sweeps,
        chance=chance_of(name, trials["num_classes"]) if "num_classes" in trials else None,
        defaults=defaults_of(trials, swept),
        notes=tuple(notes),
        within=within_of(name, sweeps),
    )


def _settings(trials: pd.DataFrame, metric: str, source: str) -> tuple[list[str], list[str]]:
    """The columns that are read as hyperparameters, and a note if others are not."""
    taken = {field.name for field in (*ID_FIELDS, *outcome_fields())} | {metric}
    others = [str(column) for column in trials.columns if str(column) not in taken]
    if _has_repeats(trials):
        swept = [column for column in others if _is_setting(trials, column)]
    else:
        swept = params_in(others)
        if others and not swept:
            why = "with one trial in each configuration they cannot be told from outcomes"
            raise RequestError(f"{source}: params: {why}; name them. Columns: {', '.join(others)}")
    left_out = [column for column in others if column not in swept]
    note = f"read as hyperparameters: {', '.join(swept)}; not: {', '.join(left_out)}"
    return swept, [note] if left_out else []


def _has_repeats(trials: pd.DataFrame) -> bool:
    """Whether any configuration has two trials; without, an outcome looks like a setting."""
    keys = ["objective", "config"]
    return not set(keys) <= set(trials.columns) or bool(trials.duplicated(keys).any())


def _is_setting(trials: pd.DataFrame, column: str) -> bool:
    """Whether a column has one value in each configuration."""
    keys = ["objective", "config"]
    if not set(keys) <= set(trials.columns):
        return True  # what is missing is said elsewhere
    try:
        return len(trials[[*keys, column]].drop_duplicates()) == len(trials[keys].drop_duplicates())
    except TypeError:  # lists and the like
        return False


def _followers(sweeps: Sequence[Sweep]) -> Followers:
    """What is settled by other axes, in each objective."""
    from clsweep.analysis.axes import followers

    found = {}
    for sweep in sweeps:
        preferred = sorted(sweep.params, key=lambda name: name in ALL_THERE_IS)
        is_grid = sweep.samplers == ("grid",)
        found[sweep.objective] = followers(sweep.settings[preferred], is_grid=is_grid)
    return found


def _settled_notes(settled: Followers, sweeps: Sequence[Sweep], *, kept: bool) -> list[str]:
    """One note on each axis that others settle, with the objectives if it is not so in all."""
    objectives: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for objective, found in settled.items():
        for name, leaders in found.items():
            objectives.setdefault((name, leaders), []).append(objective)
    notes = []
    for (name, leaders), where in objectives.items():
        sweeping = [sweep.objective for sweep in sweeps if name in sweep.params]
        place = "" if where == sweeping else f"{', '.join(where)}: "
        what = (
            "their effects cannot be told apart"
            if kept
            else f"{name} is left out; params keeps the axes that it names"
        )
        notes.append(f"{place}{name} has one value for each of {', '.join(leaders)}: {what}")
    return notes


def trials_file(path: str) -> str:
    """The Parquet file of trials that `path` is, or that a folder which is no study's holds; empty
    if there is none.
    """
    if path.endswith(".parquet"):
        return path
    table = os.path.join(path, "trials.parquet")
    return (
        table
        if os.path.isfile(table) and not os.path.exists(os.path.join(path, "study.yaml"))
        else ""
    )


def read_trials(file: str) -> pd.DataFrame:
    """A Parquet file, of this machine or an object store.

    Raises:
        RequestError: it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from clsweep.results.reading import to_frame

    try:
        return to_frame(pq.read_table(file))
    except FileNotFoundError:
        raise RequestError(f"{file}: expected a Parquet file of trials, found none") from None
    except (OSError, pa.ArrowException) as error:
        raise RequestError(
            f"{file}: cannot be read as a table of trials: {str(error).splitlines()[0]}"
        ) from None
