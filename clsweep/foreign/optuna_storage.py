"""An Optuna storage: the SQLite file of `RDBStorage`, or the journal file of `JournalStorage`.

Optuna reads them itself: a journal as it lies, of a database a copy, which it may bring up to date.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from clsweep.errors import RequestError, nearest
from clsweep.foreign.reading import flat, is_sqlite, opened, told
from clsweep.foreign.sweep import ForeignSweep, ForeignTrial

if TYPE_CHECKING:
    import optuna

STATUS = {"COMPLETE": "finished", "PRUNED": "stopped", "FAIL": "failed"}  # others: running
DIRECTIONS = {"MINIMIZE": "min", "MAXIMIZE": "max"}


def read_optuna(source: Path, study: str | None) -> ForeignSweep:
    """The trials of a storage, a group for each study.

    Args:
        study: read this one alone.

    Raises:
        RequestError: no storage, an unknown study, studies of several directions or of more than
            one metric.
    """
    import optuna

    # Exception: whatever a damaged file comes to in the libraries below Optuna
    with (
        told(source, "an Optuna storage", Exception),
        warnings.catch_warnings(),
        _storage(source) as storage,
    ):
        warnings.simplefilter("ignore")  # of choices that are lists, as the user has seen
        names = optuna.get_all_study_names(storage)
        studies = {n: optuna.load_study(study_name=n, storage=storage) for n in names}
        if study is not None and study not in studies:
            known = f"{nearest(study, studies)} Studies: {', '.join(studies)}"
            raise RequestError(f"{source}: no study {study!r}.{known}")
        chosen = {n: s for n, s in studies.items() if study in (None, n)}
        if not chosen:
            raise RequestError(f"{source}: expected a study of Optuna, found none")
        for name, found in chosen.items():
            if len(found.directions) != 1:
                wrong = "expected one metric, found several"
                raise RequestError(f"{source}: study {name!r}: {wrong}")
        trials = {name: of.get_trials(deepcopy=False) for name, of in chosen.items()}
        metrics = {(of.metric_names or ["value"])[0] for of in chosen.values()}
        directions = {of.direction.name for of in chosen.values()}
    if len(directions) > 1 or len(metrics) > 1:
        raise RequestError(
            f"{source}: {len(chosen)} studies of several metrics. Name one with --study: "
            f"{', '.join(chosen)}"
        )
    sweep = ForeignSweep(trials=[], metric=metrics.pop(), mode=DIRECTIONS.get(directions.pop(), ""))
    for name, each in trials.items():
        sweep.trials += [_trial(name, trial, sweep) for trial in each]
    return sweep


@contextlib.contextmanager
def _storage(source: Path) -> Iterator[optuna.storages.BaseStorage]:
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    if not is_sqlite(source):
        yield JournalStorage(JournalFileBackend(str(source)))
        return
    with tempfile.TemporaryDirectory(prefix="clsweep-") as folder:
        copy = Path(folder) / "copy.db"
        with opened(source) as base, contextlib.closing(sqlite3.connect(copy)) as copied:
            base.backup(copied)
        storage = RDBStorage(f"sqlite:///{copy}", skip_compatibility_check=True)
        try:
            if storage.get_current_version() != storage.get_head_version():
                storage.upgrade()
            yield storage
        finally:
            storage.remove_session()
            storage.engine.dispose()


def _trial(group: str, trial: optuna.trial.FrozenTrial, sweep: ForeignSweep) -> ForeignTrial:
    from optuna.distributions import FloatDistribution

    for name, kind in trial.distributions.items():
        if getattr(kind, "log", False):
            sweep.scales[name] = "log"
        if isinstance(kind, FloatDistribution) and not kind.step:
            sweep.continuous.add(name)
    return ForeignTrial(
        group=group,
        status=STATUS.get(trial.state.name, "running"),
        settings=flat(trial.params),
        results={sweep.metric: trial.values[0]} if trial.values else {},
        labels=trial.user_attrs,
    )
