"""What a running study shows: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from clsweep.catalog.rows import Row
from clsweep.display.numbers import count, duration, fixed
from clsweep.display.text import cell
from clsweep.results.tally import Tally

PLAIN_INTERVAL_S = 10.0


class Progress:
    """Shows a `Tally` while trials start, report and end. A context manager; nothing is shown
    before and after.
    """

    def __init__(self, tally: Tally, *, concurrent: int, console: Console | None = None):
        self.tally, self._concurrent = tally, max(1, concurrent)
        self._console = console or Console()
        self._start = self._last_line = time.monotonic()
        self._num_images = 0.0
        self._trial_times: list[float] = []
        self._running: dict[str, tuple[str, str]] = {}  # trial id -> objective, what it last said
        self._live = Live(
            get_renderable=self._render, console=self._console, refresh_per_second=2, transient=True
        )

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def started(self, row: Row) -> None:
        self._set_running(row, "running")
        if not self._console.is_terminal and time.monotonic() - self._last_line > PLAIN_INTERVAL_S:
            self._last_line = time.monotonic()
            self.say(self.headline())

    def say(self, text: str) -> None:
        """A line above the table."""
        self._console.print(Text(text), soft_wrap=True)

    def epoch(self, row: Row, epoch: Row) -> None:
        text = f"epoch {epoch['epoch']}/{row['epochs']}"
        if epoch.get("train_loss") is not None:
            text += f", loss {fixed(epoch['train_loss'], 3)}"
        self._set_running(row, text)

    def lost(self, row: Row) -> None:
        """A trial lost its process or machine."""
        self._set_running(row, None)
        self.say(
            f"{row['trial_id']} lost its process or machine; it goes on from its last checkpoint"
        )

    def ended(self, row: Row) -> None:
        """A trial has its row; a failure is shown at once."""
        self._set_running(row, None)
        self.tally.add(row)
        if row["wall_time_s"]:  # a crashed trial did not say how long it took
            self._trial_times.append(row["wall_time_s"])
        self._num_images += row["num_images"] or 0
        if row["status"] == "failed":
            reason = f"{row['error_class']}: {row['error_message'].splitlines()[0]}"
            self.say(f"{row['trial_id']} failed: {reason}")

    def _set_running(self, row: Row, text: str | None) -> None:
        """What a trial last said; None: it runs no longer."""
        self._running.pop(row["trial_id"], None)
        if text is not None:
            self._running[row["trial_id"]] = (row["objective"], text)
        running = Counter(objective for objective, _ in self._running.values())
        for name, state in self.tally.objectives.items():
            state.running = running[name]

    @property
    def running(self) -> list[str]:
        return list(self._running)

    def headline(self) -> str:
        """`12 of 39 trials, 2 running, 1 failed; 5,300 images/s; about 2 min left`."""
        done = self.tally.num_done
        parts = [f"{done} of {self.tally.total('planned')} trials", f"{len(self._running)} running"]
        parts += [
            f"{num} {name}" for name in ("stopped", "failed") if (num := self.tally.total(name))
        ]
        text = ", ".join(parts)
        elapsed = time.monotonic() - self._start
        if self._num_images:
            text += f"; {count(self._num_images / elapsed)} images/s"
        if self._trial_times:
            left = self.tally.total("planned") - done
            seconds = left * sum(self._trial_times) / len(self._trial_times) / self._concurrent
            text += f"; about {duration(seconds)} left"
        return text

    def _render(self) -> Group:
        table = Table(box=None, pad_edge=False, padding=(0, 1))
        rows = self.tally.rows()
        for column in rows[0]:
            table.add_column(
                Text(column), justify="left" if column in ("objective", "at") else "right"
            )
        for row in rows:
            table.add_row(*(Text(cell(value)) for value in row.values()))
        running = [
            Text(f"  {trial_id}: {text}", style="dim")
            for trial_id, (_, text) in list(self._running.items())[:8]
        ]
        top = Table.grid(padding=(0, 1))
        top.add_row(
            ProgressBar(total=self.tally.total("planned"), completed=self.tally.num_done, width=30),
            Text(self.headline()),
        )
        return Group(top, table, *running)
