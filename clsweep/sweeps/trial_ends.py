"""The end of each trial, by its score and the number of its reports."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from clsweep.errors import RequestError
from clsweep.sweeps.foreign_sweep import (
    ForeignSweep,
    ForeignTrial,
    comparable_setting,
    objective_of_trial,
)

# Settings that say how long a trial is, and those of whose values its reports an epoch depend.
_LENGTH = re.compile("epoch|iter|step|round|budget|max_t|estimators|trees|updates", re.IGNORECASE)
_PACE = re.compile("batch|accum|world|devices|workers|subset|fraction|every|interval|freq|samples")


def mark_ends(
    sweep: ForeignSweep, trials: Sequence[ForeignTrial], metric: str, column: str | None
) -> list[str]:
    """Mark trials that finished without a score as failed, and those that did after fewer reports
    than the longest of their objective as stopped, unless a setting says how many each is to send.

    Returns:
        notes on them.
    """
    alike: dict[tuple[str, ...], list[ForeignTrial]] = {}
    lost = 0
    for trial in trials:
        text = trial.settings.get(metric)
        if sweep.mixed and metric not in trial.results and isinstance(text, str):
            raise RequestError(f"{metric}: expected a number, given {text!r}")
        if trial.status == "finished" and not math.isfinite(trial.results.get(metric, math.nan)):
            trial.status, lost = "failed", lost + 1
        if trial.status == "finished" and trial.length:
            pace = [n for n in sorted(trial.settings) if sweep.by_step and _PACE.search(n)]
            values = [repr(comparable_setting(trial.settings[name])) for name in pace]
            key = trial.group, objective_of_trial(trial, column), *values
            alike.setdefault(key, []).append(trial)
    short = [
        trial
        for each in alike.values()
        for trial, length in zip(each, _expected_lengths(each), strict=True)
        if (trial.length or 0) <= length - max(1, 0.01 * length)
    ]
    for trial in short:
        trial.status = "finished" if trial.returned else "stopped"
    ended = Counter(trial.status for trial in short)
    notes = {
        f"failed: {lost} that ended without a finite {metric}": lost,
        f"stopped: {ended['stopped']} that sent fewer reports than the longest": ended["stopped"],
        f"finished: {ended['finished']} that returned after fewer reports": ended["finished"],
    }
    return [note for note, num in notes.items() if num]


def _expected_lengths(trials: Sequence[ForeignTrial]) -> list[float]:
    """The number of reports that each is to send: as many as the longest, or as a setting says."""
    lengths = [trial.length or 0 for trial in trials]
    for name in filter(_LENGTH.search, trials[0].settings):
        given = [trial.settings.get(name) for trial in trials]
        sizes = [value for value in given if isinstance(value, int | float) and value > 0]
        if len(sizes) == len(trials):
            expected = [max(lengths) * value / max(sizes) for value in sizes]
            reached = dict(sorted(zip(expected, lengths, strict=True)))  # the longest of each
            if all(abs(length - value) < 1 for value, length in reached.items()):
                return expected
    return [max(lengths)] * len(lengths)
