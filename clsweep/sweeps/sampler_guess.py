"""The sampler of a sweep that does not name it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis.read_sweeps import followers, is_numeric_column
from clsweep.errors import RequestError, nearest

_ASSUMED = "tpe"  # of an unknown sampler: the one that no robustness is computed from
_SAMPLERS = ("grid", "qmc", "random", "tpe", "gp")


def set_samplers(
    rows: Sequence[dict[str, Any]], names: Sequence[str], continuous: set[str], sampler: str | None
) -> list[str]:
    """Set the sampler of each row: the given one; else a complete grid is one, and others are not
    known.

    Returns:
        a note on it.
    """
    if sampler is not None and sampler not in _SAMPLERS:
        hint = nearest(sampler, _SAMPLERS)
        raise RequestError(f"--sampler: expected {', '.join(_SAMPLERS)}, given {sampler!r}.{hint}")
    unknown = []
    for name in dict.fromkeys(row["objective"] for row in rows):
        mine = [row for row in rows if row["objective"] == name]
        recorded = {row["sampler"] for row in mine}
        own = recorded.pop() if len(recorded) == 1 else ""
        own = sampler or own or ("grid" if _is_grid(mine, names, continuous) else _ASSUMED)
        unknown += [] if sampler or own != _ASSUMED else [name]
        for row in mine:
            row["sampler"] = own
    if not unknown:
        return [f"sampler: {rows[0]['sampler']}"]
    return [
        f"sampler of {', '.join(unknown)}: not known, so read as one that favours good settings "
        f"({_ASSUMED}); if it was not, say --sampler random, qmc or grid"
    ]


def _is_grid(rows: Sequence[Mapping[str, Any]], names: Sequence[str], continuous: set[str]) -> bool:
    """True where every combination of values was tried, as a sample does not by chance; what
    follows from others is no axis. Along one axis it always does, so there each value must stand in
    two trials at least.
    """
    configs = {row["config"]: [row[name] for name in names] for row in rows}
    settings = pd.DataFrame([*configs.values()], columns=[*names])
    sizes = settings.nunique(dropna=False)
    if {name for name in names if sizes[name] > 1} & continuous:
        return False
    # several axes of a grid have all values equally often, and tell the configurations apart
    several = [name for name in names if 1 < sizes[name] < len(configs)]
    even = [n for n in several if settings[n].value_counts(dropna=False).nunique() == 1]
    if several and len(settings[even].drop_duplicates()) < len(configs):
        return False
    following = followers(settings, is_grid=True)
    axes = [name for name in names if sizes[name] > 1 and name not in following]
    if len(configs) < math.prod(int(sizes[name]) for name in axes):
        return False
    if len(axes) > 1:
        return True
    # numbers of a sample follow from each other, too
    sure = followers(settings, is_grid=False)
    if any(is_numeric_column(settings[name]) for name in following if name not in sure):
        return False
    values = [[row[name] for row in rows] for name in axes]
    recurs = all(count > 1 for each in values for count in Counter(map(repr, each)).values())
    return recurs and not any(_is_drawn({*each}) for each in values)


def _is_drawn(values: Iterable[Any]) -> bool:
    """True where numbers of many digits stand in no even steps, as a grid's do."""
    known = sorted(float(value) for value in values if isinstance(value, int | float))
    if all(float(f"{value:.6g}") == value for value in known):
        return False
    steps = [np.diff(known), np.diff(np.log(known))] if known[0] > 0 else [np.diff(known)]
    return len(known) < 3 or all(np.ptp(step) > 1e-6 * step.max() for step in steps)
