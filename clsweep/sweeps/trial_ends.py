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
    sweep: ForeignSweep,
    trials: Sequence[ForeignTrial],
    metric: str,
    mode: str,
    column: str | None,
) -> list[str]:
    """Mark trials that finished without a score as failed, and those that did after fewer reports
    than the longest of their objective as stopped, unless a setting says how many each is to send,
    or each of several is better than all others: no scheduler stops the best, but a target does.

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
    ended, better = Counter[str](), 0
    for each in alike.values():
        pairs = [*zip(each, _expected_lengths(each), strict=True)]
        short = [t for t, length in pairs if (t.length or 0) <= length - max(1, 0.01 * length)]
        sign = 1 if mode == "max" else -1
        best = max(sign * trial.results[metric] for trial in each if trial not in short)
        above = [trial for trial in short if sign * trial.results[metric] > best]
        is_known = any(trial.returned for trial in short)  # the source says who ended by itself
        all_above = len(above) == len(short) > 1 and not is_known
        for trial in short:
            why = "returned" if trial.returned else "target" if all_above else ""
            trial.status = "finished" if why else "stopped"
            ended[why] += 1
            better += not why and trial in above
    notes = {
        f"failed: {lost} that ended without a finite {metric}": lost,
        f"stopped: {ended['']} that sent fewer reports than the longest": ended[""],
        f"{better} of those stopped have a better {metric} than all that finished": better,
        f"finished: {ended['returned']} that returned after fewer reports": ended["returned"],
        f"finished: {ended['target']} that sent fewer reports, each with a better {metric} than "
        "all others, as where a target was reached": ended["target"],
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
