"""Hyperparameters that some configurations lack, as they are nested in others: `momentum_end` in
`momentum_schedule`, where a constant schedule has no end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import combinations

from clsweep.analysis.reasons import Note, Reason, note
from clsweep.analysis.sweep import Sweep
from clsweep.display.numbers import setting_column

MAX_PARENTS = 2
KEPT = 256  # sweeps


@lru_cache(KEPT)
def parents_of(sweep: Sweep) -> Mapping[str, tuple[str, ...]]:
    """Each nested hyperparameter with the one or two others whose values say whether a
    configuration has it. What is missing without such a rule is not nested: it is a value.

    The values of these recur, numbers in two configurations on average: in a sample of a continuous
    space any column would say it.
    """
    lacks = sweep.settings[list(sweep.params)].isna()
    num_values = sweep.settings.nunique(dropna=False)
    most, found = (len(lacks) // 2, len(lacks) - 1), {}
    for name in sweep.params:
        others = [
            other
            for other in sweep.params
            if num_values[other] <= most[sweep.scales[other] == "category"]
            and not lacks[other].equals(lacks[name])
        ]
        sizes = range(1, MAX_PARENTS + 1) if lacks[name].any() else ()
        for chosen in (each for size in sizes for each in combinations(others, size)):
            columns = [sweep.settings[other] for other in chosen]
            if lacks[name].groupby(columns, dropna=False).nunique().max() == 1:
                found[name] = chosen
                break
    return found


def others_of(sweep: Sweep, name: str) -> list[str]:
    """The hyperparameters over whose settings the values of one are averaged alike: neither itself
    nor what is nested in it.
    """
    parents, inside = parents_of(sweep), {name}
    for _ in parents:
        inside |= {child for child, above in parents.items() if inside & {*above}}
    return [other for other in sweep.params if other not in inside]


@lru_cache(KEPT)
def holding(sweep: Sweep, name: str) -> Sweep:
    """The configurations that have a nested hyperparameter; the sweep itself for any other."""
    if name not in parents_of(sweep):
        return sweep
    rows = sweep.settings[name].notna().to_numpy()
    own = sweep.at(rows, num_planned=int(rows.sum()) + sweep.num_planned - len(rows))
    num_values = own.settings.nunique(dropna=False)
    swept = tuple(each for each in sweep.params if num_values[each] > 1)
    return replace(own, params=swept if name in swept else (*swept, name))


def branch(sweep: Sweep, name: str) -> tuple[Note, ...]:
    """That a nested hyperparameter is looked at where it is swept alone."""
    if name not in (parents := parents_of(sweep)):
        return ()
    own = holding(sweep, name)
    texts = [
        f"{other}={' or '.join(dict.fromkeys(setting_column(own.settings[other].tolist())))}"
        for other in parents[name]
    ]
    figures = {"num": len(own.configs), "configs": len(sweep.configs)}
    return (note(Reason.WITHIN_BRANCH, param=name, at=", ".join(texts), **figures),)


def folded(sweep: Sweep) -> tuple[Sweep, tuple[Note, ...]]:
    """The sweep with every nested hyperparameter and its parents made one categorical factor, named
    `momentum_schedule/momentum_end`; and a note of each.
    """
    families: list[set[str]] = []
    for child, above in parents_of(sweep).items():
        family = {child, *above}
        for other in [each for each in families if each & family]:
            families.remove(other)
            family |= other
        families.append(family)
    notes = []
    for family in families:
        names = [name for name in sweep.params if name in family]
        term = "/".join(names)
        texts = [setting_column(sweep.settings[name].tolist()) for name in names]
        levels = ["/".join(text or "none" for text in row) for row in zip(*texts, strict=True)]
        kept = [name for name in sweep.params if name not in family]
        table = sweep.settings[kept].assign(**{term: levels})
        scales = {**sweep.scales, term: "category"}
        sweep = replace(sweep, params=(*kept, term), settings=table, scales=scales)
        notes.append(note(Reason.NESTED, term=term, levels=len({*levels})))
    return sweep, tuple(notes)
