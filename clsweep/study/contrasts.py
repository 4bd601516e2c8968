"""What a study asks before it runs: named differences between objectives, or between settings.

    contrasts:
      small_batch:
        of: [dcl, simclr]              # dcl - simclr
        at: {batch_size: 16, tau: 0.07}
        minus: {batch_size: 128, tau: 0.07}   # less the same difference there
        margin: 1.0                    # what is smaller counts as none
        published: 2.6                 # what a paper found

A side is the mean over all configurations of an objective that have these values. `at` alone
compares two objectives there, `minus` beside it one objective with itself, or two differences.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from clsweep.catalog import DIAGNOSTIC, METRIC, PARAM, Value
from clsweep.catalog.rows import Row
from clsweep.display.numbers import setting
from clsweep.errors import MAX_LINES, StudyError, nearest
from clsweep.study.check_training import Draft
from clsweep.study.document import Keys
from clsweep.study.schema import ContrastSection, explained
from clsweep.study.space import Objective

ADDED = "added_after"  # trials that had ended when a contrast came, of a recorded study


def check_contrasts(draft: Draft, objectives: Sequence[Objective]) -> None:
    """Note every mistake of the contrasts."""
    known = {objective.name: objective for objective in objectives}
    for name, asked in draft.sections.contrasts.items():
        for keys, message in _mistakes(asked, known):
            draft.error(("contrasts", name, *keys), message)


def _mistakes(asked: ContrastSection, known: Mapping[str, Objective]) -> Iterator[tuple[Keys, str]]:
    for name in asked.sides:
        if name not in known:
            hint = f"{nearest(name, known)} Expected one of: {', '.join(known)}"
            yield ("of",), f"unknown objective '{name:.80}'.{hint}"
    if asked.metric is not None and asked.metric not in (*METRIC, *DIAGNOSTIC):
        hint = nearest(asked.metric, [*METRIC, *DIAGNOSTIC])
        yield ("metric",), f"unknown metric '{asked.metric:.80}'.{hint} See clsweep catalog metrics"
    if len(asked.sides) == 1 and asked.minus is None:
        yield (), f"expected two objectives, or minus: nothing is subtracted from {asked.sides[0]}"
    if asked.minus is not None and asked.minus == asked.at:
        yield ("minus",), "expected other settings than at, given the same"
    own = [known[name] for name in asked.sides if name in known]
    for key in ("at", "minus"):
        for param, raw in (getattr(asked, key) or {}).items():
            if own and (message := _mistake_at(param, raw, own)):
                yield (key, param), message
        for objective in own:
            if message := _never_together(getattr(asked, key) or {}, objective):
                yield (key,), message


def _mistake_at(param: str, raw: object, own: Sequence[Objective]) -> str:
    """Why no configuration of some objective would be meant by this value."""
    swept = list(dict.fromkeys(name for objective in own for name in objective.space))
    if param not in swept:
        names = " and ".join(objective.name for objective in own)
        hint = nearest(param, swept)
        return f"{names} sweep no '{param:.80}'.{hint} Swept: {', '.join(swept) or 'nothing'}"
    try:
        value = PARAM[param].coerce(raw)
    except ValueError as error:
        return str(error)
    for objective in (each for each in own if param in each.owned):  # others are without it
        values = _values(objective, param)
        if values is None:
            return "expected a hyperparameter with choices: of a range no setting has one value"
        if value not in values:
            told = ", ".join(map(setting, values)) or "nothing"
            return f"expected a value that {objective.name} has: {told}; given {setting(value)}"
    return ""


def _never_together(at: Mapping[str, object], objective: Objective) -> str:
    """Why no configuration has these values of a space whose dimensions hang on each other."""
    known = {name: raw for name, raw in at.items() if name in objective.space}
    for name, conditions in objective.conditions.of.items():
        if name not in known or known[name] == objective.space[name].otherwise:
            continue
        for condition in conditions:
            other = known.get(condition.other)
            if other is not None and (other in condition.values) != condition.needed:
                values = f"{name}={setting(known[name])} at {condition.other}={setting(other)}"
                return f"expected values that {objective.name} has together: it tries no {values}"
    return ""


def _values(objective: Objective, param: str) -> list[Value] | None:
    """Those that it takes; None of a range."""
    if param not in objective.space:
        return [objective.fixed[param]]
    values, dimension = objective.values[param], objective.space[param]
    if values is None:
        return None
    beside = [] if dimension.otherwise is None else [dimension.otherwise]
    return [*values, *beside]


def parse_contrasts(asked: Mapping[str, Any], place: Callable[[Keys, str], str]) -> Row:
    """Contrasts outside of a study, checked in their shape.

    Args:
        place: makes the line of a mistake from its keys and what it is.

    Raises:
        StudyError: one line per mistake.
    """
    if not isinstance(asked, Mapping):
        raise StudyError(place(("contrasts",), f"expected a mapping, given {asked!r:.80}"))
    lines = []
    for name, each in asked.items():
        try:
            ContrastSection.model_validate(each)
        except ValidationError as error:
            told = (explained(one, ("contrasts",)) for one in error.errors())
            lines += [place(("contrasts", name, *keys), message) for keys, message in told]
    if lines:
        raise StudyError("\n".join(dict.fromkeys(lines[:MAX_LINES])))
    return dict(asked)


def with_added(new: Mapping[str, Any], old: Mapping[str, Any], ended: int) -> dict[str, Any]:
    """The contrasts of a study that goes on: those that came once trials had ended say after how
    many. Those that were asked before stay, whatever became of their lines: what takes the place of
    one has its name with a number.
    """
    if not ended:
        return dict(new)
    kept: dict[str, Any] = copy.deepcopy(dict(old))
    known = [_bare(each) for each in kept.values()]
    for name, asked in new.items():
        if _bare(asked) in known:
            continue
        names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
        free = next(each for each in names if each not in kept)
        kept[free] = _bare(asked) | {ADDED: ended}
    return kept


def _bare(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in asked.items() if key != ADDED}
