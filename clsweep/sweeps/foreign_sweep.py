"""A sweep of another tool, as every reader gives it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clsweep.display.numbers import count
from clsweep.sweeps.parsing import ADDRESS, parse_text

# The settings that clsweep's own loggers note of each trial.
OWN_LABELS = {"trial_id", "objective", "config", "seed"}
ENDED = ("finished", "stopped", "failed")
_LARGEST = 1e60  # settings beyond it are texts: no axis holds them
_DECIMALS = re.compile(r"[+-]?[0-9]+\.[0-9]+")


MAX_REPORTS = 10_000  # of a metric: what is reported more often is of steps


@dataclass(kw_only=True)
class ForeignTrial:
    """One run of another tool.

    Attributes:
        group: the study, experiment or project that it is of.
        status: "finished", "stopped" (early, by a scheduler), "failed", or "running".
        settings: hyperparameters by name, as they were given.
        results: the last value of each metric.
        labels: what else the tool noted of it; it may name the objective or the seed.
        length: how many reports it sent; None where its status is known without them.
        reports: the results of each, in order, where the tool keeps them.
        returned: it is known to have ended by itself, however few they were.
        sampler: how its settings were chosen, "" where the tool does not say.
    """

    group: str
    status: str
    settings: dict[str, Any]
    results: dict[str, float]
    labels: Mapping[str, Any] = field(default_factory=dict)
    length: float | None = None
    reports: Sequence[Mapping[str, Any]] = ()
    returned: bool = False
    sampler: str = ""


@dataclass(kw_only=True)
class ForeignSweep:
    """All trials of a source, and what the source says of them.

    Attributes:
        metric: the metric that was optimised, "" where the source does not say.
        modes: of each metric that was optimised, which values are best, "max" or "min", or "".
        scales: hyperparameter -> "log" or "linear", where the source drew it so; "" where on both.
        continuous: hyperparameters that were drawn from a range: no grid of them is one.
        mixed: the source does not tell settings from results; the trials have all in both.
        by_step: trials report each step or so, of which batches and the like settle the number.
        notes: lines on what was left out.
    """

    trials: list[ForeignTrial]
    metric: str = ""
    modes: dict[str, str] = field(default_factory=dict)
    scales: dict[str, str] = field(default_factory=dict)
    continuous: set[str] = field(default_factory=set)
    mixed: bool = False
    by_step: bool = False
    notes: list[str] = field(default_factory=list)


def reports_by_epoch(reports: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """The results of each report, without metrics of more than `MAX_REPORTS`."""
    number = Counter(name for report in reports for name in report)
    known = {name for name in number if number[name] <= MAX_REPORTS}
    return [
        {name: value for name, value in report.items() if name in known}
        for report in (reports if known else ())
    ]


def count_in_epochs(trials: Collection[ForeignTrial]) -> bool:
    """Make a trial's length its epochs, in place, where all that have a length report `epoch`.

    Returns:
        True where they do not: lengths are of steps.
    """
    reported = [trial for trial in trials if trial.length]
    by_step = not all("epoch" in trial.results for trial in reported)
    for trial in reported:
        trial.length = trial.length if by_step else trial.results["epoch"] + 1
    return by_step


def parse_settings(trials: Collection[ForeignTrial], *, typed: bool = True) -> None:
    """Make numbers of a setting's texts, such as YAML's 1e-3, where all are and no two the same.

    typed: other values have types already. Else each text is read by itself, unless 1.1 and 1.10
        are among them, which no tool writes of one number.
    """
    for name in {name: None for trial in trials for name in trial.settings}:
        having = [trial.settings for trial in trials if name in trial.settings]
        texts = [each[name] for each in having if isinstance(each[name], str)]
        parsed = {text: parse_text(text) for text in texts}
        alike = [text for text in parsed if typed or _DECIMALS.fullmatch(text)]
        values = {parsed[text] for text in alike if type(parsed[text]) in (int, float)}
        for each in having:
            value = parsed.get(each[name], each[name])
            if len(values) == len(alike) or (value is None and not typed):
                each[name] = value


def comparable_setting(value: Any) -> Any:
    """A value as it is compared: 1 and 1.0 are one number, what is beyond all axes is a text, which
    tells no addresses.
    """
    if isinstance(value, str):
        return ADDRESS.sub("", value)
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, int | float) or abs(value) > _LARGEST:
        return str(value)
    return int(value) if value % 1 == 0 and abs(value) < 2**53 else value


def objective_of_trial(trial: ForeignTrial, column: str | None) -> str:
    """The value of its column; the trial's group where it has none."""
    return _named_objective(trial, column) or trial.group


def unnamed_objective_notes(trials: Sequence[ForeignTrial], column: str | None) -> list[str]:
    """A note on trials whose cell of the objective is empty, for each group that they become."""
    groups = Counter(t.group for t in trials if column and not _named_objective(t, column))
    of = f"{column} is empty in {{}} of {count(len(trials))} trials, which are of {{!r}}"
    return [of.format(count(num), group) for group, num in groups.items()]


def _named_objective(trial: ForeignTrial, column: str | None) -> str:
    name = {**trial.labels, **trial.settings}.get(column) if column else None
    return "" if name is None else str(name)
