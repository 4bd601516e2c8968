"""How far a study is, as counts per objective: from the plan, the rows that exist and the trials
that run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clsweep.catalog import METRIC
from clsweep.catalog.rows import Row
from clsweep.display.numbers import mentioned
from clsweep.results.checked import STATUSES
from clsweep.results.ranking import Standings


@dataclass
class ObjectiveState:
    """Counts of one objective."""

    name: str
    planned: int = 0
    finished: int = 0
    stopped: int = 0  # by the scheduler
    skipped: int = 0  # by the scheduler, before they began
    failed: int = 0
    running: int = 0


@dataclass
class Tally:
    """The state of a study as counts, from the rows that exist and the trials that run, and each
    objective's best configuration so far.

    Attributes:
        metric: by which the configurations stand in `standings`.
        axes: what each objective sweeps: the hyperparameters that tell its configurations apart.
    """

    metric: str
    axes: Mapping[str, Sequence[str]]
    standings: Standings
    objectives: dict[str, ObjectiveState] = field(default_factory=dict)
    _at: dict[tuple[str, int], str] = field(default_factory=dict)  # of the best: its swept values

    @classmethod
    def of(
        cls,
        planned: Sequence[Row],
        rows: Sequence[Row],
        *,
        metric: str,
        mode: str,
        axes: Mapping[str, Sequence[str]],
    ) -> Tally:
        """Counts over plan rows and trial rows, both as mappings."""
        standings = Standings(planned, metric=metric, mode=mode)
        tally = cls(metric=metric, axes=axes, standings=standings)
        for row in planned:
            name = row["objective"]
            tally.objectives.setdefault(name, ObjectiveState(name)).planned += 1
        for row in rows:
            tally.add(row)
        return tally

    def add(self, row: Row) -> None:
        """Count one trial that has ended."""
        state = self.objectives.setdefault(row["objective"], ObjectiveState(row["objective"]))
        setattr(state, row["status"], getattr(state, row["status"]) + 1)
        self.standings.add(row)
        best = self.standings.best(row["objective"])
        if best is not None and best.config == row["config"]:
            axes = self.axes.get(best.objective, ())
            self._at[best.objective, best.config] = describe_params(row, axes)

    @property
    def num_done(self) -> int:
        return sum(self.total(status) for status in STATUSES)

    def total(self, count: str) -> int:
        return sum(getattr(state, count) for state in self.objectives.values())

    def rows(self) -> list[dict[str, Any]]:
        """The table of `clsweep run` and `clsweep status`; the best is a mean over so many
        seeds.
        """
        fewer = [name for name in ("stopped", "skipped") if self.total(name)]
        unit = METRIC[self.metric].unit if self.metric in METRIC else ""
        rows = []
        for s in self.objectives.values():
            best = self.standings.best(s.name)
            rows.append(
                {
                    "objective": s.name,
                    "planned": s.planned,
                    "finished": s.finished,
                    "running": s.running,
                    **{name: getattr(s, name) for name in fewer},
                    "failed": s.failed,
                    f"best {self.metric} {unit}".rstrip(): best.score if best else None,
                    "seeds": best.num_seeds if best else None,
                    "at": self._at[s.name, best.config] if best else "",
                }
            )
        return rows


def describe_params(row: Row, names: Sequence[str]) -> str:
    """`tau=0.2, batch_size=64`, without the parameters that the row's objective does not own."""
    texts = ((name, mentioned(row.get(name))) for name in names)
    return ", ".join(f"{name}={text}" for name, text in texts if text)
