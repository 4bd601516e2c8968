"""Which encoders and checkpoints stay in a results folder: whatever an interruption left, from rows
and files alone.

`best` keeps those of each objective's best configuration (`results.ranking`), of all its seeds: its
score is a mean over them, and so will be what is measured on its encoders. The seeds of a
configuration end one after another, so a file goes only when its configuration can no longer
become the best:

- A trial without a row is under way: its files stay.
- A configuration with a seed still to come, of which the scheduler stopped or skipped none, is
  open: its files stay.
- Of the others that have files, the best one's stay. One that lost a seed comes after all that are
  whole, so an objective in which every configuration lost a seed keeps something too.

Seeds of a configuration start together. So at most (objectives + trials at once) x seeds encoders
lie in the folder, however many configurations the study has. A race runs seed by seed, and keeps
the files of all configurations that are still in it. What was removed does not come back:
further seeds may make another configuration the best, of which then those seeds' files are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clsweep.analysis.best import Place
from clsweep.catalog.rows import Row
from clsweep.results.folder import ResultsFolder
from clsweep.results.ranking import Standings


class KeptFiles:
    """Applies a study's rules to what its trials have stored.

    Args:
        folder: a results folder that this run holds.
        planned: trial_id, objective and config of every planned trial.
        rows: of the trials that have ended.
        encoders: all | best | none; `best` is those of each objective's best configuration, and
            none keeps no further ones.
        checkpoints: last | best | none; of trials that have ended, `best` keeps those of each
            objective's best configuration. Those of failed trials stay, for another attempt.
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
            self._prune_encoders()
        if self._checkpoints != "none":
            self._prune_checkpoints()

    def settle(self) -> None:
        """While no trial runs: remove also what trials left that were stopped before they had a
        row.
        """
        self._folder.remove_unfinished()
        for trial_id in self._folder.encoders():
            if trial_id not in self._status:
                self._folder.remove_encoder(trial_id)
        self._prune_encoders()
        self._prune_checkpoints()

    def _note(self, row: Row) -> None:
        self._standings.add(row)
        self._status[row["trial_id"]] = row["status"]

    def _prune_encoders(self) -> None:
        stored = [trial_id for trial_id in self._folder.encoders() if trial_id in self._status]
        wanted = self._of_the_best(stored) if self._encoders == "best" else set(stored)
        for trial_id in stored:
            if trial_id not in wanted or self._status[trial_id] == "failed":
                self._folder.remove_encoder(trial_id)

    def _prune_checkpoints(self) -> None:
        stored = [trial_id for trial_id in self._folder.checkpoints() if trial_id in self._status]
        wanted = self._of_the_best(stored) if self._checkpoints == "best" else set()
        for trial_id in stored:
            if trial_id not in wanted and self._status[trial_id] != "failed":
                self._folder.remove_checkpoint(trial_id)

    def _of_the_best(self, stored: Sequence[str]) -> set[str]:
        """Those trials whose configuration is open, or the best of its objective among them."""
        wanted: set[str] = set()
        by_config: dict[tuple[str, int], list[str]] = {}
        for trial_id in stored:
            if (key := self._standings.scored(trial_id)) is not None:
                by_config.setdefault(key, []).append(trial_id)
        best: dict[str, tuple[Place, list[str]]] = {}
        for key, trial_ids in by_config.items():
            if self._standings.is_open(*key):
                wanted.update(trial_ids)
            elif (place := self._standings.place(*key)) is not None:
                objective = key[0]
                best[objective] = min((place, trial_ids), best.get(objective, (place, trial_ids)))
        return wanted.union(*(trial_ids for _, trial_ids in best.values()))
