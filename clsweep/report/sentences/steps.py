"""What to do next, each with its command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from clsweep.display.numbers import count
from clsweep.report.model import Step
from clsweep.report.sentences.words import listed


def finish(num: int) -> Step:
    """The study is not over."""
    return Step(
        sentence=f"{count(num)} trials are left: run the same command again and only they run"
    )


def confirm(folder: str, objectives: Sequence[str], seeds: Sequence[int]) -> Step:
    """Run the best settings of these objectives on fresh seeds; `seeds` are those to name."""
    named = f" --seeds {','.join(map(str, seeds))}" if seeds else ""
    return Step(
        sentence=f"Run the best of {listed(objectives)} on fresh seeds and on the test set",
        command=f"clsweep confirm {shlex.quote(folder)}{named}",
    )


def more_seeds(num: int) -> Step:
    """So many seeds would resolve the first open comparison."""
    return Step(
        sentence=f"Run about {count(num)} seeds for the first open comparison: add them to seeds "
        "in the study file. What has run is kept"
    )


def look(folder: str, metric: str, mode: str) -> Step:
    """The best trials in the terminal."""
    sort = f"-{metric}" if mode == "max" else metric
    return Step(
        sentence="See the best trials with all their settings",
        command=f"clsweep trials {shlex.quote(folder)} --sort {sort} --top 10",
    )
