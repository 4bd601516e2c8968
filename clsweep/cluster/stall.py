"""A trial under way, and its silence: with `stall_s` of it a trial is stalled."""

from __future__ import annotations

from dataclasses import dataclass, field

from clsweep.catalog.rows import Row
from clsweep.display.numbers import count, duration, fixed

# Silence is said from then on, or after so many steps; after more of them a trial is stalled.
SILENT_S, SILENT_STEPS, STALLED_STEPS = 30.0, 5, 20
# As long may it take to prepare images or to train classifiers, before and between the steps.
LONGER = 24


@dataclass
class RunningTrial:
    """A trial under way, and what it last said, see `train.progress_reporter.ProgressReporter`.

    Attributes:
        share: of its training that is done, 0 to 1.
        gained: the part of it that was seen to be done, in `seconds`. Neither an earlier attempt
            nor the start of the process is in it.
        step_s: of its slowest steps; of a trainer, which reports no steps, of its slowest epoch.
        preparing: how far its images are, before it has a state.
    """

    row: Row
    share: float = 0.0
    gained: float = 0.0
    seconds: float = 0.0
    state: Row = field(default_factory=dict)
    silent_s: float = 0.0
    step_s: float = 0.0
    preparing: str = ""
    _begun: tuple[float, float] | None = None  # when it was first heard, and its share then

    def hear(self, state: Row, now: float, passed: float) -> None:
        self.silent_s += passed
        if "preparing" in state:
            if state["preparing"] != self.preparing:
                self.preparing, self.silent_s = state["preparing"], 0.0
        elif state and state != self.state:
            done = state["epoch"] - 1 + state["step"] / state["steps"]
            self.share = min(1.0, done / state["epochs"]) if state["epochs"] else 0.0
            self.state, self.silent_s = dict(state), 0.0
            self._begun = self._begun or (now, self.share)
            self.seconds, self.gained = now - self._begun[0], self.share - self._begun[1]
            self.step_s = max(self.step_s, state.get("epoch_s", 0.0))
            if pace := state.get("images_per_s"):
                self.step_s = max(self.step_s, self.row.get("batch_size", 0) / pace)

    @property
    def is_silent(self) -> bool:
        return self.silent_s >= max(SILENT_S, SILENT_STEPS * self.step_s)

    def is_stalled(self, stall_s: float) -> bool:
        if not self.state or "scoring" in self.state:
            return self.silent_s >= LONGER * stall_s
        return self.silent_s >= max(stall_s, STALLED_STEPS * self.step_s)

    def last_state(self) -> Row:
        """The state that it last said; where it is silent, seconds of that instead of its pace."""
        if not self.is_silent:
            return self.state or ({"preparing": self.preparing} if self.preparing else {})
        state = {name: value for name, value in self.state.items() if name != "images_per_s"}
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
            return f"at {self.preparing or 'its start'}"
        step = "scoring" if "scoring" in state else f"step {state['step']}/{state['steps']}"
        return f"at epoch {state['epoch']}/{state['epochs']}, {step}"
