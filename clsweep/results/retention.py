"""Encoders and checkpoints that stay in a results folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clsweep.analysis.score_table import RankKey
from clsweep.catalog.rows import Row
from clsweep.results.folder import ResultsFolder, checkpoint_file, encoder_file
from clsweep.results.standings import Standings


class Retention:
    """Retention of encoders and checkpoints, by rows and files alone, after any interruption.

    `best` keeps those of each objective's best configuration, of all its seeds, as its score is a
    mean over them. A file goes only when its configuration can no longer become the best:

    - A trial without a row is under way: its files stay.
    - A configuration with a seed to come, and none stopped or skipped, is open: they stay.
    - Of the others that have files, the best one's stay, one that lost a seed after all others.

    So at most (objectives + trials at once) x seeds encoders lie in the folder. A race runs seed by
    seed, and keeps those of all configurations that are still in it. What was removed does not come
    back if further seeds make another configuration the best.

    Args:
        folder: a results folder that this run holds.
        planned: trial_id, objective and config of every planned trial.
        rows: of the trials that have ended.
        encoders: all | best | none, which keeps no further ones.
        checkpoints: last | best | none, of trials that have ended. Those of failed trials stay, for
            another attempt.
        metric, mode: what is best. Only a finished trial can be: it has had all its epochs.
    """

    def __init__(
        self,
        folder: ResultsFolder,
        planned: Iterable[Row],
        rows: Iterable[Row],
        *,
        encoders: str,
        checkpoints: str,
        metric: str,
        mode: str,
    ):
        self._folder, self._encoders, self._checkpoints = folder, encoders, checkpoints
        self._standings = Standings(planned, metric=metric, mode=mode)
        self._status: dict[str, str] = {}  # of the trials that have a row
        for row in rows:
            self._note(row)

    def record(self, row: Row) -> None:
        """After the row of a trial was written: remove what it supersedes, or its own files."""
        self._note(row)
        if self._encoders == "best" or row["status"] == "failed":
            self._prune("encoders")
        if self._checkpoints != "none":
            self._prune("checkpoints")

    def apply(self) -> None:
        """While no trial runs: remove too what trials left that stopped before they had a row."""
        self._folder.remove_unfinished()
        for trial_id in self._folder.stored("encoders"):
            if trial_id not in self._status:
                self._folder.remove(encoder_file(trial_id))
        self._prune("encoders")
        self._prune("checkpoints")

    def _note(self, row: Row) -> None:
        self._standings.add(row)
        self._status[row["trial_id"]] = row["status"]

    def _prune(self, kind: str) -> None:
        """Remove the files of a kind that go: of a failed trial its encoder does."""
        is_encoder = kind == "encoders"
        how = self._encoders if is_encoder else self._checkpoints
        stored = [name for name in self._folder.stored(kind) if name in self._status]
        wanted = self._of_the_best(stored) if how == "best" else set(stored * is_encoder)
        failed = {trial_id for trial_id in stored if self._status[trial_id] == "failed"}
        for trial_id in set(stored) - (wanted - failed if is_encoder else wanted | failed):
            self._folder.remove((encoder_file if is_encoder else checkpoint_file)(trial_id))

    def _of_the_best(self, stored: Sequence[str]) -> set[str]:
        """Those trials whose configuration is open, or the best of its objective among them."""
        wanted: set[str] = set()
        by_config: dict[tuple[str, int], list[str]] = {}
        for trial_id in stored:
            if (key := self._standings.scored(trial_id)) is not None:
                by_config.setdefault(key, []).append(trial_id)
        best: dict[str, tuple[RankKey, list[str]]] = {}
        for key, trial_ids in by_config.items():
            if self._standings.is_open(*key):
                wanted.update(trial_ids)
            elif (place := self._standings.place(*key)) is not None:
                objective = key[0]
                best[objective] = min((place, trial_ids), best.get(objective, (place, trial_ids)))
        return wanted.union(*(trial_ids for _, trial_ids in best.values()))
