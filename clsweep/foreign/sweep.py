"""What every foreign source is read into, before it becomes a table of trials; and SQLite files,
which other tools keep, opened so that they cannot be changed.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(kw_only=True)
class ForeignTrial:
    """One run of another tool.

    Attributes:
        group: the study, experiment or project that it is of.
        status: "finished", "stopped" (early, by a scheduler), "failed", or "running".
        settings: hyperparameters by name, as they were given.
        results: the last value of each metric.
        labels: what else the tool noted of it; it may name the objective or the seed.
    """

    group: str
    status: str
    settings: Mapping[str, Any]
    results: Mapping[str, float]
    labels: Mapping[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class ForeignSweep:
    """All trials of a source, and what the source says of them.

    Attributes:
        metric: the metric that was optimised, "" where the source does not say.
        mode: which of its values are best, "max" or "min", or "" as above.
        scales: hyperparameter -> "log", where the source drew it on such an axis.
        continuous: hyperparameters that were drawn from a range: no grid of them is one.
        mixed: the source does not tell settings from results; the trials have all in both.
    """

    trials: list[ForeignTrial]
    metric: str = ""
    mode: str = ""
    scales: dict[str, str] = field(default_factory=dict)
    continuous: set[str] = field(default_factory=set)
    mixed: bool = False


def flat(tree: Mapping[str, Any], root: str = "") -> dict[str, Any]:
    """Nested settings under dotted names; a list is a text."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{root}{name}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{key}.")
        else:
            found[key] = json.dumps(value) if isinstance(value, list) else value
    return found


def numbers(tree: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among nested results; true and false are none."""
    return {
        name: float(value)
        for name, value in flat(tree).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def parsed(text: str) -> Any:
    """The number, truth value or text that a tool wrote as text."""
    if text in ("True", "False"):
        return text == "True"
    if text in ("None", ""):
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(15) == b"SQLite format 3"


def opened(path: Path) -> contextlib.closing[sqlite3.Connection]:
    """A connection to a SQLite file that cannot change it."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    return contextlib.closing(sqlite3.connect(uri, uri=True))
