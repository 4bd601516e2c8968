"""What a running study shows: a live table on a terminal, plain lines elsewhere, and how long it
still takes, by the work of its trials.
"""

from __future__ import annotations

import math
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
from clsweep.display.numbers import count, duration, fixed
from clsweep.display.printing import laid_out
from clsweep.display.text import printable, shortened
from clsweep.results.standings import TrialCounts, drop_order

# Between plain lines: at the beginning, and later.
PLAIN_S, LATER_PLAIN_S, BEGINNING_S = 10.0, 60.0, 180.0
LONG_TRIAL_S = 20.0  # one that takes longer has a line of its own
SHOWN = 8  # trials under way that are named on a terminal
NAMED = 2  # and in a plain line
LONGEST_BEAT_S = 10.0  # more time between two looks is no silence: we were stopped
# Silence is said from then on, or after so many steps; after more of them a trial is stalled.
SILENT_S, SILENT_STEPS, STALLED_STEPS = 30.0, 5, 20
# As long may it take to prepare images or to train classifiers, before and between the steps.
LONGER = 24


def work_of(row: Row) -> float:
    """Views that a trial passes through its networks, in passes over the data; one more for its
    scores. Trials whose epochs a search has yet to choose count alike.
    """
    epochs = 1 if row["epochs"] is None else row["epochs"]
    return 1.0 + epochs * (row.get("num_views") or 2)


@dataclass
class Running:
    """A trial under way, and what it last said, see `train.progress_reporter.ProgressReporter`.

    Attributes:
        share: of its training that is done, 0 to 1.
        gained: the part of it that was seen to be done, in `seconds`. Neither an earlier attempt
            nor the start of the process is in it.
        step_s: of its slowest steps.
    """

    row: Row
    share: float = 0.0
    gained: float = 0.0
    seconds: float = 0.0
    state: Row = field(default_factory=dict)
    silent_s: float = 0.0
    step_s: float = 0.0
    _begun: tuple[float, float] | None = None  # when it was first heard, and its share then

    def hear(self, state: Row, now: float, passed: float) -> None:
        self.silent_s += passed
        if state and state != self.state:
            done = state["epoch"] - 1 + state["step"] / state["steps"]
            self.share = min(1.0, done / state["epochs"]) if state["epochs"] else 0.0
            self.state, self.silent_s = dict(state), 0.0
            self._begun = self._begun or (now, self.share)
            self.seconds, self.gained = now - self._begun[0], self.share - self._begun[1]
            if pace := state.get("images_per_s"):
                self.step_s = max(self.step_s, self.row.get("batch_size", 0) / pace)

    @property
    def is_silent(self) -> bool:
        return self.silent_s >= max(SILENT_S, SILENT_STEPS * self.step_s)

    def is_stalled(self, stall_s: float) -> bool:
        if not self.state or "scoring" in self.state:
            return self.silent_s >= LONGER * stall_s
        return self.silent_s >= max(stall_s, STALLED_STEPS * self.step_s)

    def told(self) -> Row:
        """What it last said; where it is silent, for how long instead of its pace."""
        if not self.is_silent:
            return self.state
        state = {name: said for name, said in self.state.items() if name != "images_per_s"}
        return state | {"silent_s": round(self.silent_s)}

    def text(self) -> str:
        """`epoch 3/20, step 120/390, loss 2.310, 1,240 images/s`."""
        if self.is_silent:
            return self.silence()
        place, state = self._place().removeprefix("at "), self.state
        if "images_per_s" not in state:
            return place
        return f"{place}, loss {fixed(state['loss'], 3)}, {count(state['images_per_s'])} images/s"

    def silence(self) -> str:
        """`silent for 4 min at epoch 3/20, step 120/390`."""
        return f"silent for {duration(self.silent_s)} {self._place()}"

    def _place(self) -> str:
        if not (state := self.state):
            return "at its start"
        step = "scoring" if "scoring" in state else f"step {state['step']}/{state['steps']}"
        return f"at epoch {state['epoch']}/{state['epochs']}, {step}"


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

    def seconds_left(self, running: Sequence[Running], concurrent: int) -> float | None:
        """Until the last trial has ended; None where none has told how long its work takes."""
        works = [work_of(trial.row) for trial in running]
        done = self._work + sum(t.gained * work for t, work in zip(running, works, strict=True))
        if done <= 0:
            return None
        pace = (self._seconds + sum(trial.seconds for trial in running)) / done
        last = [(1 - t.share) * work for t, work in zip(running, works, strict=True)]
        return pace * max([(self._work_left - sum(works) + sum(last)) / concurrent, *last])


class Progress:
    """Shows `TrialCounts` while trials start, speak and end. A context manager; nothing is shown
    before and after.

    Args:
        estimate: of how long the study still takes.
        concurrent: trials at once.
        stall_s: patience with a trial that says nothing within an epoch.
        may_wait: a trial may be waiting for its processes before it says anything.
    """

    def __init__(
        self,
        tally: TrialCounts,
        estimate: Estimate,
        *,
        concurrent: int,
        stall_s: float = math.inf,
        may_wait: bool = False,
        console: Console | None = None,
    ):
        self.tally, self._estimate, self._concurrent = tally, estimate, max(1, concurrent)
        self._console = console or Console()
        self._start = self._last_line = self._last_heard = time.monotonic()
        self._stall_s, self._may_wait = stall_s, may_wait
        self._num_images = 0.0
        self.waits = False  # for memory
        self._running: dict[str, Running] = {}
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
        is_all = num == len(self._estimate.left)
        seconds = self._estimate.seconds_left([], self._concurrent) if is_all else None
        long = "" if not seconds else f", about {duration(seconds)} once they run"
        trials = "1 trial" if num == 1 else f"{num:,} trials"
        self.say(f"{trials} to run, {self._concurrent} at once{long}")

    def started(self, row: Row) -> None:
        self._running[row["trial_id"]] = Running(row)
        self._count_running()

    def heard(self, states: Mapping[str, Row]) -> None:
        """What trials under way last said, by their ids; a plain line if one is due."""
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
        """What the trials under way say, and for how long they have said nothing."""
        return {name: told for name, t in list(self._running.items()) if (told := t.told())}

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
            told = "" if score is None else f": {self.tally.metric} {fixed(score)}"
            self.say(f"{row['trial_id']} {row['status']} in {duration(row['wall_time_s'])}{told}")

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
        pace = sum(trial.told().get("images_per_s", 0.0) for trial in running.values())
        pace = pace or self._num_images / max(1e-3, time.monotonic() - self._start)
        if pace and not (running and all(trial.is_silent for trial in running.values())):
            texts.append(f"{count(pace)} images/s")
        if best := tally.standings.leader():  # the best mean of a configuration on all seeds
            texts.append(f"best {tally.metric} {fixed(best.score)} ({best.objective})")
        seconds = self._estimate.seconds_left([*running.values()], self._concurrent)
        if seconds is not None:
            texts.append(f"about {duration(seconds)} left")
        is_few, most = len(running) <= named, max(named, NAMED)
        shown = [(name, t) for name, t in running.items() if t.is_silent or (is_few and t.state)]
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
