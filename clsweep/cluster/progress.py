"""What a running study shows: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from clsweep.study.design import PlannedTrial

PLAIN_INTERVAL_S = 10.0


@dataclass
class ObjectiveState:
    """Counts of one objective; `best` is the best score so far, `best_at` its swept values."""

    name: str
    planned: int = 0
    finished: int = 0
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
        """Count one finished or failed trial."""
        state = self.objectives.setdefault(row["objective"], ObjectiveState(row["objective"]))
        if row["status"] == "failed":
            state.failed += 1
            return
        state.finished += 1
        score = row[self.metric]
        if state.best is None or (score > state.best if self.mode == "max" else score < state.best):
            state.best, state.best_at = score, describe_params(row, self.swept)

    def total(self, count: str) -> int:
        return sum(getattr(state, count) for state in self.objectives.values())

    def rows(self) -> list[dict[str, Any]]:
        """The table of `clsweep run` and `clsweep status`."""
        return [
            {
                "objective": s.name,
                "planned": s.planned,
                "finished": s.finished,
                "running": s.running,
                "failed": s.failed,
                f"best {self.metric} %": s.best,
                "at": s.best_at,
            }
            for s in self.objectives.values()
        ]


class Progress:
    """Shows a `Tally` while trials start, report and end. A context manager; nothing is shown before and after."""

    def __init__(self, tally: Tally, *, concurrent: int, console: Console | None = None):
        self.tally, self._concurrent = tally, max(1, concurrent)
        self._console = console or Console()
        self._start = self._last_line = time.monotonic()
        self._num_images = 0.0
        self._trial_times: list[float] = []
        self._running: dict[str, str] = {}  # trial id -> what it last said
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=2, transient=True)

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def started(self, row: Mapping[str, Any]) -> None:
        self.tally.objectives[row["objective"]].running += 1
        self._running[row["trial_id"]] = "running"
        if not self._console.is_terminal and time.monotonic() - self._last_line > PLAIN_INTERVAL_S:
            self._last_line = time.monotonic()
            self._console.print(Text(self.headline()), soft_wrap=True)

    def epoch(self, row: Mapping[str, Any], epoch: Mapping[str, Any]) -> None:
        text = f"epoch {epoch['epoch']}/{row['epochs']}"
        if epoch.get("train_loss") is not None:
            text += f", loss {epoch['train_loss']:.3f}"
        self._running[row["trial_id"]] = text

    def ended(self, row: Mapping[str, Any]) -> None:
        """A trial finished or failed; a failure is shown at once."""
        self.tally.objectives[row["objective"]].running -= 1
        self._running.pop(row["trial_id"], None)
        self.tally.add(row)
        self._trial_times.append(row["wall_time_s"] or 0.0)
        self._num_images += row["num_images"] or 0
        if row["status"] == "failed":
            reason = f"{row['error_class']}: {row['error_message'].splitlines()[0]}"
            self._console.print(Text(f"{row['trial_id']} failed: {reason}"), soft_wrap=True)

    @property
    def running(self) -> list[str]:
        return list(self._running)

    def headline(self) -> str:
        """`12 of 39 trials, 2 running, 1 failed; 5,300 images/s; about 2 min left`."""
        done = self.tally.total("finished") + self.tally.total("failed")
        parts = [f"{done} of {self.tally.total('planned')} trials", f"{len(self._running)} running"]
        if failed := self.tally.total("failed"):
            parts.append(f"{failed} failed")
        text = ", ".join(parts)
        elapsed = time.monotonic() - self._start
        if self._num_images:
            text += f"; {self._num_images / elapsed:,.0f} images/s"
        if self._trial_times:
            left = self.tally.total("planned") - done
            text += (
                f"; about {duration(left * sum(self._trial_times) / len(self._trial_times) / self._concurrent)} left"
            )
        return text

    def _render(self) -> Group:
        done = self.tally.total("finished") + self.tally.total("failed")
        table = Table(box=None, pad_edge=False, padding=(0, 1))
        rows = self.tally.rows()
        for column in rows[0]:
            table.add_column(Text(column), justify="left" if column in ("objective", "at") else "right")
        for row in rows:
            cells = (f"{v:.2f}" if isinstance(v, float) else "" if v is None else str(v) for v in row.values())
            table.add_row(*(Text(cell) for cell in cells))
        running = [Text(f"  {trial_id}: {text}", style="dim") for trial_id, text in list(self._running.items())[:8]]
        top = Table.grid(padding=(0, 1))
        top.add_row(ProgressBar(total=self.tally.total("planned"), completed=done, width=30), Text(self.headline()))
        return Group(top, table, *running)


def swept_params(planned: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """Hyperparameters that take more than one value in some objective (a live search fills them in row by row)."""
    from clsweep.results.tables import params_in

    values: dict[tuple[str, str], set[Any]] = {}
    for row in (*planned, *rows):
        for name in params_in(row):
            values.setdefault((name, row["objective"]), set()).add(row[name])
    return list(dict.fromkeys(name for (name, _), seen in values.items() if len(seen) > 1))


def describe_params(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """`tau=0.2, batch_size=64`, without the parameters that the row's objective does not own."""
    values = ((name, row.get(name)) for name in names)
    shown = (f"{n}={v:.4g}" if isinstance(v, float) else f"{n}={v}" for n, v in values if v is not None and v == v)
    return ", ".join(shown)


def trial_rows(trials: Sequence[PlannedTrial]) -> list[dict[str, Any]]:
    """Planned trials as far as a tally needs them."""
    return [{"objective": t.objective, **t.params} for t in trials]


def duration(seconds: float) -> str:
    """`45 s`, `3 min`, `2 h 05 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
