"""Points of the user's own, `search.first`, which a search tries before all others."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from clsweep.catalog import PARAM, Value
from clsweep.display.numbers import setting
from clsweep.study.check_training import Draft
from clsweep.study.schema import LIVE_METHODS
from clsweep.study.space import Objective


def first_points(
    draft: Draft, objective: Objective, defaults: Mapping[str, object]
) -> tuple[dict[str, Value | None], ...]:
    """The points of one objective, each with all that it sweeps; mistakes are those of the draft.

    A point names some of the hyperparameters; the others have their defaults. What another
    objective sweeps is passed over. Points that come to the same are one.

    Args:
        defaults: of what the objective sweeps, its base value or that of the catalog.
    """
    if not _may_begin(draft):  # which `check_first` says
        return ()
    points = dict[tuple[tuple[str, Value | None], ...], dict[str, Value | None]]()
    for number, given in enumerate(draft.sections.search.first):
        try:
            point = _settled(objective, {**defaults, **given}, given)
        except ValueError as error:
            name, message = error.args
            hint = "" if name in given else f", by default. Name {name} in this point"
            draft.error(("search", "first", number, name), f"{message}{hint}")
            continue
        points.setdefault(tuple(point.items()), point)
    return tuple(points.values())


def _settled(
    objective: Objective, raw: Mapping[str, object], given: Collection[str]
) -> dict[str, Value | None]:
    """A point as it is planned. ValueError, of a hyperparameter and a message, for a value that the
    objective's space does not have, or one that is `given` and has no effect beside the others.
    """
    values: dict[str, Value | None] = {}
    for name in objective.space:
        try:
            values[name] = PARAM[name].coerce(raw[name])
        except ValueError as error:
            raise ValueError(name, str(error)) from None
    taking_part = objective.conditions.taken(values)
    if idle := [name for name in objective.space if name in given and name not in taking_part]:
        reason = f"has no effect beside the point's other values in '{objective.name}'"
        raise ValueError(idle[0], reason)
    for name, taken in taking_part.items():
        dimension = objective.space[name]
        if not dimension.holds(taken, is_gridded=objective.is_gridded):
            swept = dimension.describe()
            if objective.is_gridded:
                swept = ", ".join(map(setting, dimension.points))
            expected = f"expected a value that '{objective.name}' sweeps, {swept}"
            raise ValueError(name, f"{expected}, given {setting(taken)}")
    return objective.conditions.settled(values)


def check_first(draft: Draft, objective: Objective) -> None:
    """Note a search that points of one's own would bend, or that has no room for them."""
    search, at = draft.sections.search, ("search", "first")
    if not search.first:
        return
    if not _may_begin(draft):
        draft.error(
            at,
            f"{search.method} is a sample of the space, which points of your own would bend. "
            f"Expected search.method grid, {' or '.join(LIVE_METHODS)}",
        )
    elif (limit := search.trials_per_objective) and len(objective.first) > limit:
        given = f"given {len(objective.first)} for '{objective.name}'"
        draft.error(at, f"expected at most trials_per_objective, {limit}, points, {given}")


def _may_begin(draft: Draft) -> bool:
    return draft.sections.search.method in ("grid", *LIVE_METHODS)
