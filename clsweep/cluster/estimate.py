"""How long a study still takes: by the work of its trials, measured on those that have run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clsweep.catalog.rows import Row

KNOWN_SHARE = 0.5  # of the work that is left whose pace must be known, or nothing is said
WATCHED_S = 5.0  # of a trial under way, before its pace counts


def work_of(row: Row) -> float:
    """Views that a trial passes through its networks, in passes over the data; one more for its
    scores. Trials whose epochs a search has yet to choose count alike.
    """
    epochs = 1 if row["epochs"] is None else row["epochs"]
    return 1.0 + epochs * (row.get("num_views") or 2)


def share_of(state: Row) -> float:
    """How much of its training a trial has behind it, 0 to 1, by what it last said."""
    epochs = state["epoch"] - 1 + state["step"] / state["steps"]
    return min(1.0, epochs / state["epochs"]) if state["epochs"] else 0.0


@dataclass(frozen=True)
class Running:
    """A trial under way.

    Attributes:
        share: of its training that is done, 0 to 1.
        gained: the part of it that was seen to be done, in `seconds`. Neither an earlier attempt
            nor the start of the process is in it.
    """

    row: Row
    share: float = 0.0
    gained: float = 0.0
    seconds: float = 0.0


class Estimate:
    """Counts the work of a study down.

    Args:
        planned: rows of the plan.
        recorded: rows of those trials that have ended before.
        like: rows of trials of another study with the same objectives, with their epochs.
    """

    def __init__(
        self, planned: Sequence[Row], recorded: Sequence[Row] = (), like: Sequence[Row] = ()
    ):
        self._left = {row["trial_id"]: row for row in planned}
        self._work_left: dict[str, float] = defaultdict(float)  # kept: every heartbeat asks
        for row in self._left.values():
            self._work_left[row["objective"]] += work_of(row)
        self._seconds: dict[str, float] = defaultdict(float)  # by objective, of trials that ended
        self._work: dict[str, float] = defaultdict(float)
        for row in recorded:
            self.ended(row)
        for row in like:
            self._learn(row, work_of(row))

    def ended(self, row: Row) -> None:
        """A trial has its row."""
        planned = self._left.pop(row["trial_id"], None)
        if planned is not None:
            self._work_left[planned["objective"]] -= work_of(planned)
            self._learn(row, work_of(planned))

    def _learn(self, row: Row, work: float) -> None:
        """One that failed says nothing about the others."""
        if row.get("wall_time_s") and row["status"] != "failed":
            self._seconds[row["objective"]] += row["wall_time_s"]
            self._work[row["objective"]] += work

    @property
    def num_left(self) -> int:
        return len(self._left)

    def seconds_left(self, running: Sequence[Running], concurrent: int) -> float | None:
        """Until the last trial has ended; None where the pace of most of the work is unknown."""
        paces = self._paces(running)
        left = defaultdict(float, self._work_left)
        for trial in running:
            left[trial.row["objective"]] -= trial.share * work_of(trial.row)
        total = sum(left.values())
        known = {name: work for name, work in left.items() if name in paces}
        if not paces or sum(known.values()) < KNOWN_SHARE * total:
            return None
        common = sum(known[n] * paces[n] for n in known) / max(sum(known.values()), 1e-9)
        seconds = sum(work * paces.get(name, common) for name, work in left.items()) / concurrent
        last = (
            (1 - t.share) * work_of(t.row) * paces.get(t.row["objective"], common) for t in running
        )
        return max([seconds, *last])

    def _paces(self, running: Sequence[Running]) -> Mapping[str, float]:
        """Seconds for a unit of work by objective: of trials that ended, else of those under
        way.
        """
        paces = {name: self._seconds[name] / work for name, work in self._work.items() if work}
        begun: dict[str, list[float]] = defaultdict(list)
        for trial in running:
            if trial.gained > 0 and trial.seconds >= WATCHED_S:
                begun[trial.row["objective"]].append(
                    trial.seconds / (trial.gained * work_of(trial.row))
                )
        means = {name: sum(each) / len(each) for name, each in begun.items()}
        return means | paces
