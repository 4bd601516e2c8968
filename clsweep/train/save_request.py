"""A request that a trial saves now, because its process may be about to end."""

from __future__ import annotations

import threading
from collections.abc import Callable


class SaveRequest:
    """Given by any thread, at any time; the trial looks at `is_given` in every step.

    Args:
        on_saved: called in the trial's thread once a checkpoint was saved for it.
    """

    def __init__(self, on_saved: Callable[[], object] = lambda: None):
        self.is_given = False
        self._on_saved, self._saved = on_saved, threading.Event()

    def give(self) -> None:
        self._saved.clear()
        self.is_given = True

    def answer(self) -> None:
        """A checkpoint was saved."""
        if self.is_given:
            self.is_given = False
            self._on_saved()
            self._saved.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the answer; False if it does not come in time."""
        return self._saved.wait(timeout_s)
