"""An Optuna storage: the SQLite file of `RDBStorage`, or the journal file of `JournalStorage`.

Optuna reads them itself: a journal as it lies, of a database a copy, which it may bring up to date.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import sqlite3
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clsweep.errors import RequestError
from clsweep.sweeps.foreign_sweep import ForeignSweep, ForeignTrial
from clsweep.sweeps.parsing import flatten
from clsweep.sweeps.source_files import is_sqlite, open_sqlite, refuse_damaged, select_groups

if TYPE_CHECKING:
    import optuna

_STATUS = {"COMPLETE": "finished", "PRUNED": "stopped", "FAIL": "failed"}  # others: running
_MODES = {"MINIMIZE": "min", "MAXIMIZE": "max"}


def read_optuna(source: Path, study: str | None) -> ForeignSweep:
    """The trials of a storage, a group for each study.

    Args:
        study: read this one alone.

    Raises:
        RequestError: no storage, an unknown study, or studies of other metrics or directions.
    """
    import optuna

    # Exception: whatever a damaged file comes to in the libraries below Optuna
    with (
        refuse_damaged(source, "an Optuna storage", Exception),
        warnings.catch_warnings(action="ignore"),  # of choices that are lists, as the user has seen
        _storage(source) as storage,
    ):
        names = optuna.get_all_study_names(storage)
        studies = {n: optuna.load_study(study_name=n, storage=storage) for n in names}
        read = {name: studies[name] for name in select_groups(studies, study, "study", source)}
        if not read:
            raise RequestError(f"{source}: expected a study of Optuna, found none")
        trials = {name: of.get_trials(deepcopy=False) for name, of in read.items()}
        metrics = {_metrics(of) for of in read.values()}
    if len(metrics) > 1:
        advice = f"Name one with --study: {', '.join(read)}"
        raise RequestError(f"{source}: {len(read)} studies of several metrics. {advice}")
    modes = dict(metrics.pop())
    sweep = ForeignSweep(
        trials=[], metric=next(iter(modes)) if len(modes) == 1 else "", modes=modes
    )
    again, broken = 0, 0
    for name, each in trials.items():
        retried = {n for trial in each for n in trial.system_attrs.get("retry_history", ())}
        sampler = "grid" if _is_whole_grid(each) else ""
        trials_once = [trial for trial in each if trial.number not in retried]
        sweep.trials += [_trial(name, trial, sweep, sampler) for trial in trials_once]
        again += len(each) - len(trials_once)
        limits = [trial.system_attrs.get("constraints") or () for trial in trials_once]
        broken += sum(any(limit > 0 for limit in of) for of in limits)
    if again:
        sweep.notes.append(f"left out: {again} failed trials that were run again")
    if broken:
        sweep.notes.append(f"{broken} trials break constraints, which no statistic heeds")
    return sweep


def _metrics(study: optuna.Study) -> tuple[tuple[str, str], ...]:
    """The names of the metrics, as in Optuna's own table, and which of their values are best."""
    modes = [_MODES.get(direction.name, "") for direction in study.directions]
    default = [f"values_{n}" for n in range(len(modes))] if len(modes) > 1 else ["value"]
    return tuple(zip(study.metric_names or default, modes, strict=True))


def _is_whole_grid(trials: Sequence[optuna.trial.FrozenTrial]) -> bool:
    """True where `GridSampler` chose all of these, and each point of its grid has been tried."""
    points = {trial.system_attrs.get("grid_id") for trial in trials if trial.state.is_finished()}
    spaces = [trial.system_attrs.get("search_space") for trial in trials]
    if not spaces or not spaces[0] or any(space != spaces[0] for space in spaces):
        return False
    return len(points) == math.prod(map(len, spaces[0].values()))


@contextlib.contextmanager
def _storage(source: Path) -> Iterator[optuna.storages.BaseStorage]:
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    if source.is_dir() or source.suffix == ".csv":
        given = "a folder" if source.is_dir() else "a table, which clsweep import wandb reads"
        raise RequestError(f"{source}: expected a journal or a SQLite file, given {given}")
    if not is_sqlite(source):
        lines = source.read_bytes().splitlines()
        for number, line in enumerate(lines[:-1], 1):  # Optuna leaves out a last one that is cut
            with refuse_damaged(Path(f"{source}:{number}"), "a line of an Optuna journal"):
                json.loads(line)
        yield JournalStorage(JournalFileBackend(str(source)))
        return
    with tempfile.TemporaryDirectory(prefix="clsweep-") as folder:
        copy = Path(folder) / "copy.db"
        with open_sqlite(source) as base, contextlib.closing(sqlite3.connect(copy)) as copied:
            base.backup(copied)
        storage = RDBStorage(f"sqlite:///{copy}", skip_compatibility_check=True)
        logging.disable(logging.WARNING)  # of the copy each step would be told, and each fault
        try:
            if storage.get_current_version() != storage.get_head_version():
                storage.upgrade()
            yield storage
        finally:
            logging.disable(logging.NOTSET)
            storage.remove_session()
            storage.engine.dispose()


def _trial(
    group: str, trial: optuna.trial.FrozenTrial, sweep: ForeignSweep, sampler: str
) -> ForeignTrial:
    from optuna.distributions import FloatDistribution, IntDistribution

    for name, kind in trial.distributions.items():
        if "grid_id" in trial.system_attrs:  # its values are the user's own
            continue
        if isinstance(kind, FloatDistribution | IntDistribution):
            axis = "log" if kind.log else "linear"
            same = sweep.scales.setdefault(name, axis) == axis
            sweep.scales[name] = axis if same else ""
        if isinstance(kind, FloatDistribution) and not kind.step:
            sweep.continuous.add(name)
    # other scores are attributes
    others = {name: value for name, value in trial.user_attrs.items() if type(value) is float}
    return ForeignTrial(
        group=group,
        status=_STATUS.get(trial.state.name, "running"),
        settings=flatten(trial.params),
        results=others | dict(zip(sweep.modes, trial.values or (), strict=False)),
        labels=trial.user_attrs,
        reports=[
            {sweep.metric: trial.intermediate_values[n]} for n in sorted(trial.intermediate_values)
        ],
        sampler=sampler,
    )
