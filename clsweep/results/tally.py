"""How far a study is, as counts per objective: from the plan, the rows that exist and the trials that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clsweep.results.tables import params_in

STATUSES = ("finished", "stopped", "failed")  # of a trial that has its row


@dataclass
class ObjectiveState:
    """Counts of one objective; `best` is the best score so far, `best_at` its swept values."""

    name: str
    planned: int = 0
    finished: int = 0
    stopped: int = 0  # by the scheduler
    failed: int = 0
    running: int = 0
    best: float | None = None
    best_at: str = ""


@dataclass
class Tally:
    """The state of a study as counts, from the rows that exist and the trials that run."""

    metric: str
    mode: str
    swept: Sequence[str]
    objectives: dict[str, ObjectiveState] = field(default_factory=dict)

    @classmethod
    def of(
        cls, planned: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], *, metric: str, mode: str
    ) -> Tally:
        """Counts over plan rows and trial rows, both as mappings."""
        tally = cls(metric=metric, mode=mode, swept=swept_params(planned, rows))
        for row in planned:
            name = row["objective"]
            tally.objectives.setdefault(name, ObjectiveState(name)).planned += 1
        for row in rows:
            tally.add(row)
        return tally

    def add(self, row: Mapping[str, Any]) -> None:
        """Count one trial that has ended; only a finished one may be the best, as it has had all its epochs."""
        state = self.objectives.setdefault(row["objective"], ObjectiveState(row["objective"]))
        setattr(state, row["status"], getattr(state, row["status"]) + 1)
        if row["status"] != "finished":
            return
        score = row[self.metric]
        if state.best is None or (score > state.best if self.mode == "max" else score < state.best):
            state.best, state.best_at = score, describe_params(row, self.swept)

    @property
    def num_done(self) -> int:
        return sum(self.total(status) for status in STATUSES)

    def total(self, count: str) -> int:
        return sum(getattr(state, count) for state in self.objectives.values())

    def rows(self) -> list[dict[str, Any]]:
        """The table of `clsweep run` and `clsweep status`."""
        has_stopped = self.total("stopped") > 0
        return [
            {
                "objective": s.name,
                "planned": s.planned,
                "finished": s.finished,
                "running": s.running,
                **({"stopped": s.stopped} if has_stopped else {}),
                "failed": s.failed,
                f"best {self.metric} %": s.best,
                "at": s.best_at,
            }
            for s in self.objectives.values()
        ]


def swept_params(planned: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """Hyperparameters that take more than one value in some objective (a live search fills them in row by row)."""
    values: dict[tuple[str, str], set[Any]] = {}
    for row in planned:
        for name in params_in(row):
            values.setdefault((name, row["objective"]), set()).add(row[name])
    for row in rows:
        for name in params_in(row):
            seen = values.setdefault((name, row["objective"]), set())
            if None in seen:  # not known before; a fixed `auto` that came to something was not swept
                seen.add(row[name])
    return list(dict.fromkeys(name for (name, _), seen in values.items() if len(seen) > 1))


def describe_params(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """`tau=0.2, batch_size=64`, without the parameters that the row's objective does not own."""
    values = ((name, row.get(name)) for name in names)
    shown = (f"{n}={v:.4g}" if isinstance(v, float) else f"{n}={v}" for n, v in values if v is not None and v == v)
    return ", ".join(shown)
