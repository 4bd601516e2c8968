"""What a running study shows: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from clsweep.catalog.rows import Row
from clsweep.cluster.estimate import Estimate, Running, share_of
from clsweep.display.numbers import count, duration, fixed
from clsweep.display.text import cell, printable, shortened
from clsweep.results.tally import Tally

# Between plain lines: at the beginning, and later.
PLAIN_S, LATER_PLAIN_S, BEGINNING_S = 10.0, 60.0, 180.0
LONG_TRIAL_S = 20.0  # one that takes longer has a line of its own
SHOWN = 8  # trials under way that are named on a terminal
NAMED = 2  # and in a plain line


@dataclass
class _Trial:
    """One under way, and what it last said."""

    row: Row
    state: Row = field(default_factory=dict)
    heard: list[tuple[float, float]] = field(default_factory=list)  # first and last: when, share

    def hear(self, state: Row, now: float) -> None:
        if state != self.state:
            self.state = dict(state)
            self.heard = [*self.heard[:1], (now, share_of(state))]

    def under_way(self) -> Running:
        if not self.heard:
            return Running(self.row)
        (begun, first), (now, share) = self.heard[0], self.heard[-1]
        return Running(self.row, share, gained=share - first, seconds=now - begun)

    def text(self) -> str:
        """`epoch 3/20, step 120/390, loss 2.310, 1,240 images/s`."""
        return said(self.state) if self.state else "running"


def said(state: Row) -> str:
    """What a trial under way last said, as text."""
    return (
        f"epoch {state['epoch']}/{state['epochs']}, step {state['step']}/{state['steps']}, "
        f"loss {fixed(state['loss'], 3)}, {count(state['images_per_s'])} images/s"
    )


class Progress:
    """Shows a `Tally` while trials start, speak and end. A context manager; nothing is shown before
    and after.

    Args:
        planned: rows of the plan.
        recorded: rows of the trials that have ended before.
        like: rows of trials that tell how long these take, as `Estimate` reads them.
        concurrent: trials at once.
    """

    def __init__(
        self,
        tally: Tally,
        *,
        planned: Sequence[Row] = (),
        recorded: Sequence[Row] = (),
        like: Sequence[Row] = (),
        concurrent: int,
        console: Console | None = None,
    ):
        self.tally, self._concurrent = tally, max(1, concurrent)
        self._console = console or Console()
        self._start = self._last_line = time.monotonic()
        self._num_images = 0.0
        self._estimate = Estimate(planned, recorded, like)
        self._running: dict[str, _Trial] = {}
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

    def announce(self, num: int) -> None:
        """Say how many trials are about to run, and for how long if others have told."""
        is_all = num == self._estimate.num_left
        seconds = self._estimate.seconds_left([], self._concurrent) if is_all else None
        long = "" if not seconds else f", about {duration(seconds)} once they run"
        trials = "1 trial" if num == 1 else f"{num:,} trials"
        self.say(f"{trials} to run, {self._concurrent} at once{long}")

    def started(self, row: Row) -> None:
        self._running[row["trial_id"]] = _Trial(row)
        self._count_running()

    def heard(self, states: Mapping[str, Row]) -> None:
        """What trials under way last said, by their ids; a plain line if one is due."""
        now = time.monotonic()
        for trial_id, state in states.items():
            if trial := self._running.get(trial_id):
                trial.hear(state, now)
        pause = PLAIN_S if now - self._start < BEGINNING_S else LATER_PLAIN_S
        if not self._console.is_terminal and now - self._last_line >= pause:
            self._last_line = now
            self.say(self.headline(named=NAMED))

    def lost(self, row: Row) -> None:
        """A trial lost its process or machine."""
        self._stopped(row)
        name = row["trial_id"]
        self.say(f"{name} lost its process or machine; it goes on from its last checkpoint")

    def ended(self, row: Row) -> None:
        """A trial has its row; a failure, and the end of a long one, is shown at once."""
        self._stopped(row)
        self.tally.add(row)
        self._estimate.ended(row)
        self._num_images += row["num_images"] or 0
        if row["status"] == "failed":
            message = shortened(row["error_message"].partition("\n")[0], 300)
            reason = f"{row['error_class']}: {message}"
            self.say(f"{row['trial_id']} failed: {reason}")
        elif not self._console.is_terminal and (row["wall_time_s"] or 0) >= LONG_TRIAL_S:
            score = row.get(self.tally.metric)
            told = "" if score is None else f": {self.tally.metric} {fixed(score)}"
            self.say(f"{row['trial_id']} {row['status']} in {duration(row['wall_time_s'])}{told}")

    def _stopped(self, row: Row) -> None:
        self._running.pop(row["trial_id"], None)
        self._count_running()

    def _count_running(self) -> None:
        running = Counter(trial.row["objective"] for trial in self._running.values())
        for name, state in self.tally.objectives.items():
            state.running = running[name]

    @property
    def running(self) -> list[str]:
        return list(self._running)

    def headline(self, named: int = 0) -> str:
        """`12 of 39 trials, 2 running, 1 failed; 5,300 images/s; about 2 min left`.

        named: where no more trials are under way, each is said with its epoch.
        """
        done, running = self.tally.num_done, list(self._running.items())
        parts = [f"{done} of {self.tally.total('planned')} trials", f"{len(running)} running"]
        parts += [
            f"{num} {name}"
            for name in ("stopped", "skipped", "failed")
            if (num := self.tally.total(name))
        ]
        texts = [", ".join(parts)]
        if pace := self._images_per_s():
            texts.append(f"{count(pace)} images/s")
        if best := self._best():
            texts.append(best)
        under_way = [trial.under_way() for _, trial in running]
        seconds = self._estimate.seconds_left(under_way, self._concurrent)
        if seconds is not None:
            texts.append(f"about {duration(seconds)} left")
        if len(running) <= named:
            texts += [f"{trial_id}: {t.text()}" for trial_id, t in running if t.state]
        return "; ".join(texts)

    def _images_per_s(self) -> float:
        """What the trials under way say, or where they say nothing the mean of those that ended."""
        told = sum(trial.state.get("images_per_s", 0.0) for trial in self._running.values())
        return told or self._num_images / max(1e-3, time.monotonic() - self._start)

    def _best(self) -> str:
        """`best knn_top1 91.2 (dcl)`: the best mean of a configuration that ran on all seeds."""
        best = self.tally.standings.leader()
        return f"best {self.tally.metric} {fixed(best.score)} ({best.objective})" if best else ""

    def say(self, text: str) -> None:
        """A line, above the table where there is one."""
        self._console.print(Text(printable(text)), soft_wrap=True)

    def _render(self) -> Group:
        table = Table(box=None, pad_edge=False, padding=(0, 1))
        rows = self.tally.rows()
        for column in rows[0]:
            table.add_column(
                Text(column), justify="left" if column in ("objective", "at") else "right"
            )
        for row in rows:
            table.add_row(*(Text(cell(value)) for value in row.values()))
        shown = list(self._running.items())
        running = [Text(f"  {name}: {trial.text()}", style="dim") for name, trial in shown[:SHOWN]]
        if len(shown) > SHOWN:
            running.append(Text(f"  and {len(shown) - SHOWN} more", style="dim"))
        top = Table.grid(padding=(0, 1))
        top.add_row(
            ProgressBar(total=self.tally.total("planned"), completed=self.tally.num_done, width=30),
            Text(self.headline()),
        )
        return Group(top, table, *running)
