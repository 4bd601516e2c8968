"""What to do next, each with its command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from clsweep.report.model import Step
from clsweep.report.sentences.words import listed


def confirm(folder: str, objectives: Sequence[str]) -> Step:
    """Run the best settings of these objectives on fresh seeds."""
    return Step(
        sentence=f"Run the best of {listed(objectives)} on fresh seeds and on the test set",
        command=f"clsweep confirm {shlex.quote(folder)}",
    )


def more_seeds(num: int) -> Step:
    """So many seeds would resolve the first open comparison."""
    return Step(
        sentence=f"About {num} seeds would resolve the first open comparison. Add them under "
        "seeds: in the study file and run it again with the same --out; what has run is kept"
    )


def look(folder: str, metric: str, mode: str) -> Step:
    """The best trials in the terminal."""
    sort = f"-{metric}" if mode == "max" else metric
    return Step(
        sentence="See the best trials with all their settings",
        command=f"clsweep trials {shlex.quote(folder)} --sort {sort} --top 10",
    )
