"""The display of a running study: a live table on a terminal, plain lines elsewhere, and the time
left, by the work of its trials.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from clsweep.catalog.rows import Row
from clsweep.cluster.search_budget import SearchBudget
from clsweep.cluster.stall import RunningTrial
from clsweep.display.numbers import count, duration, fixed
from clsweep.display.printing import laid_out, printable, shortened
from clsweep.results.standings import TrialCounts, drop_order

# Between plain lines: at the beginning, and later.
PLAIN_S, LATER_PLAIN_S, BEGINNING_S = 10.0, 60.0, 180.0
LONG_TRIAL_S = 20.0  # one that takes longer has a line of its own
SHOWN = 8  # trials under way that are named on a terminal
NAMED = 2  # and in a plain line
LONGEST_BEAT_S = 10.0  # more time between two looks is no silence: we were stopped


def work_of(row: Row) -> float:
    """Views that a trial passes through its networks, in passes over the data; one more for its
    scores. Trials whose epochs a search has yet to choose count alike.
    """
    epochs = 1 if row["epochs"] is None else row["epochs"]
    return 1.0 + epochs * (row.get("num_views") or 2)


class Estimate:
    """Counts the work of a study down.

    Args:
        planned: rows of the plan.
        recorded: rows of those trials that have ended before.
    """

    def __init__(self, planned: Sequence[Row], recorded: Sequence[Row] = ()):
        self.left = {row["trial_id"]: row for row in planned}
        self._work_left = sum(map(work_of, self.left.values()))  # kept: every heartbeat asks
        self._seconds = self._work = 0.0  # of trials that ended
        for row in recorded:
            self.ended(row)

    def ended(self, row: Row) -> None:
        """A trial has its row; one that failed, or does not train, says nothing about how long the
        others take.
        """
        planned = self.left.pop(row["trial_id"], None)
        if planned is not None:
            self._work_left -= work_of(planned)
            if row.get("wall_time_s") and row["status"] != "failed" and planned["epochs"] != 0:
                self._seconds += row["wall_time_s"]
                self._work += work_of(planned)

    def seconds_left(self, running: Sequence[RunningTrial], concurrent: int) -> float | None:
        """Until the last trial has ended; None where none has told how long its work takes."""
        works = [work_of(trial.row) for trial in running]
        done = self._work + sum(t.gained * work for t, work in zip(running, works, strict=True))
        if done <= 0:
            return None
        pace = (self._seconds + sum(trial.seconds for trial in running)) / done
        last = [(1 - t.share) * work for t, work in zip(running, works, strict=True)]
        return pace * max([(self._work_left - sum(works) + sum(last)) / concurrent, *last])


class RunProgress:
    """Shows a `Tally` while trials start, speak and end. A context manager; nothing is shown before
    and after.

    Args:
        estimate: of how long the study still takes.
        concurrent: trials at once.
        stall_s: patience with a trial that says nothing within an epoch.
        may_wait: a trial may be waiting for its processes before it says anything.
        budget: of the search, which may end before its plan.
    """

    def __init__(
        self,
        tally: TrialCounts,
        estimate: Estimate,
        *,
        concurrent: int,
        stall_s: float = math.inf,
        may_wait: bool = False,
        budget: SearchBudget | None = None,
        console: Console | None = None,
    ):
        self.tally, self._estimate, self._concurrent = tally, estimate, max(1, concurrent)
        self._console = console or Console()
        self._start = self._last_line = self._last_heard = time.monotonic()
        self._stall_s, self._may_wait, self._budget = stall_s, may_wait, budget
        self._num_images = 0.0
        self.waits = False  # for memory
        self._running: dict[str, RunningTrial] = {}
        self._live = Live(
            get_renderable=self._render, console=self._console, refresh_per_second=2, transient=True
        )

    def __enter__(self) -> RunProgress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def announce(self, num: int) -> None:
        """Say how many trials are about to run, and for how long if others have told."""
        is_all = num == len(self._estimate.left)
        seconds = self._seconds_left([]) if is_all else None
        long = "" if not seconds else f", about {duration(seconds)} once they run"
        trials = "1 trial" if num == 1 else f"{num:,} trials"
        within = f" within {self._budget}" if self._budget and str(self._budget) else ""
        self.say(f"{trials} to run{within}, {self._concurrent} at once{long}")

    def _seconds_left(self, running: Sequence[RunningTrial]) -> float | None:
        seconds = self._estimate.seconds_left(running, self._concurrent)
        if seconds is None or self._budget is None:
            return seconds
        return min(seconds, self._budget.seconds_left())

    def started(self, row: Row) -> None:
        self._running[row["trial_id"]] = RunningTrial(row)
        self._count_running()

    def heard(self, states: Mapping[str, Row]) -> None:
        """Take in the states of trials under way, by their ids; a plain line if one is due."""
        now = time.monotonic()
        passed, self._last_heard = min(now - self._last_heard, LONGEST_BEAT_S), now
        for trial_id, trial in list(self._running.items()):
            trial.hear(states.get(trial_id, {}), now, passed)
        pause = PLAIN_S if now - self._start < BEGINNING_S else LATER_PLAIN_S
        if not self._console.is_terminal and now - self._last_line >= pause:
            self._last_line = now
            self.say(self.headline(named=NAMED))

    def stalled(self) -> dict[str, str]:
        """The trials that have said nothing for too long, and where they were."""
        return {
            trial_id: trial.silence()
            for trial_id, trial in list(self._running.items())
            if trial.is_stalled(self._stall_s) and (trial.state or not self._may_wait)
        }

    def states(self) -> dict[str, Row]:
        """States of the trials under way, with the seconds of their silence."""
        return {name: state for name, t in list(self._running.items()) if (state := t.last_state())}

    def lost(self, row: Row, reason: str, *, goes_on: bool) -> None:
        """A trial lost its process or machine."""
        self._stopped(row)
        then = "it goes on from its last checkpoint" if goes_on else "it stays open"
        why = f" ({reason})" if reason else ""
        self.say(f"{row['trial_id']} lost its process or machine{why}; {then}")

    def ended(self, row: Row) -> None:
        """A trial has its row; a failure, and the end of a long one, is shown at once."""
        self._stopped(row)
        self.tally.add(row)
        self._estimate.ended(row)
        self._num_images += row["num_images"] or 0
        if row["status"] == "failed":
            message = shortened(row["error_message"].partition("\n")[0], 300)
            self.say(f"{row['trial_id']} failed: {row['error_class']}: {message}")
        elif not self._console.is_terminal and (row["wall_time_s"] or 0) >= LONG_TRIAL_S:
            score = row.get(self.tally.metric)
            score_text = "" if score is None else f": {self.tally.metric} {fixed(score)}"
            self.say(
                f"{row['trial_id']} {row['status']} in {duration(row['wall_time_s'])}{score_text}"
            )

    def _stopped(self, row: Row) -> None:
        self._running.pop(row["trial_id"], None)
        self._count_running()

    def _count_running(self) -> None:
        running = Counter(trial.row["objective"] for trial in self._running.values())
        for name, counts in self.tally.objectives.items():
            counts["running"] = running[name]

    @property
    def running(self) -> list[str]:
        return list(self._running)

    def headline(self, named: int = 0) -> str:
        """`12 of 39 trials, 2 running, 1 failed; 5,300 images/s; about 2 min left`.

        named: where no more trials are under way, each is said with its epoch. Those that say
            nothing are named anyway.
        """
        tally, running = self.tally, dict(self._running)
        parts = [f"{tally.num_done} of {tally.total('planned')} trials", f"{len(running)} running"]
        ends = {name: tally.total(name) for name in ("stopped", "skipped", "failed")}
        parts += [f"{num} {name}" for name, num in ends.items() if num]
        texts = [", ".join(parts), *(["waits for memory"] if self.waits else [])]
        # what the trials under way say, or where they say nothing the mean of those that ended
        pace = sum(trial.last_state().get("images_per_s", 0.0) for trial in running.values())
        pace = pace or self._num_images / max(1e-3, time.monotonic() - self._start)
        if pace and not (running and all(trial.is_silent for trial in running.values())):
            texts.append(f"{count(pace)} images/s")
        if best := tally.standings.leader():  # the best mean of a configuration on all seeds
            texts.append(f"best {tally.metric} {fixed(best.score)} ({best.objective})")
        seconds = self._seconds_left([*running.values()])
        if seconds is not None:
            texts.append(f"about {duration(seconds)} left")
        is_few, most = len(running) <= named, max(named, NAMED)
        shown = [
            (name, t)
            for name, t in running.items()
            if t.is_silent or (is_few and (t.state or t.preparing))
        ]
        texts += [f"{name}: {t.text()}" for name, t in shown[:most]]
        texts += [f"{len(shown) - most} more silent"] if shown[most:] else []
        return "; ".join(texts)

    def say(self, text: str) -> None:
        """A line, above the table where there is one."""
        self._console.print(Text(printable(text)), soft_wrap=True)

    def _render(self) -> Group:
        rows, room = self.tally.rows(), self._console.width
        table = Table.grid()
        for head, *lines in laid_out(rows, room=room, spare=drop_order(rows))[0]:
            table.add_row(Text(head, style="bold"))
            table.add_row(Text("\n".join(lines)))
        lines = [f"{name}: {trial.text()}" for name, trial in list(self._running.items())]
        more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        running = [Text(f"  {line}", style="dim") for line in [*lines[:SHOWN], *more]]
        top = Table.grid(padding=(0, 1))
        top.add_row(
            ProgressBar(total=self.tally.total("planned"), completed=self.tally.num_done, width=30),
            Text(self.headline()),
        )
        return Group(top, table, *running)
