"""Contrasts by name: those of a study, and later ones."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clsweep.analysis.contrast import Contrast
from clsweep.catalog import PARAM
from clsweep.errors import RequestError, nearest
from clsweep.study.extend import ADDED, parse_contrasts

if TYPE_CHECKING:
    from clsweep.sweeps.study_data import StudyData

_NUMBERS = ("margin", "published")


def contrasts_with(more: Mapping[str, Any], data: StudyData) -> tuple[Contrast, ...]:
    """The contrasts of the studies, and those that are asked once there are trials, which say so.
    StudyError has a line for each mistake of shape; RequestError names what the study has
    otherwise.
    """
    parsed = parse_contrasts(more, lambda keys, what: f"{'.'.join(map(str, keys))}: {what}")
    tree = {"contrasts": parsed, "metric": {"name": data.metric}}
    for each in contrasts_of(tree):
        at = f"contrasts.{each.name}"
        if len(set(each.of)) == 1 and each.minus is None:
            raise RequestError(f"{at}: expected two objectives, or minus: nothing is subtracted")
        for name in (*each.at, *(each.minus or ())):
            if name not in (params := data.params):
                hint = f"{nearest(name, params)} Swept: {', '.join(params) or 'nothing'}"
                raise RequestError(f"{at}: no objective sweeps '{name:.80}'.{hint}")
    known = {each.name: replace(each, added_after=0) for each in data.contrasts}
    new = [each for each in contrasts_of(tree) if known.get(each.name) != each]
    if twice := [each.name for each in new if each.name in known]:
        raise RequestError(f"contrasts.{twice[0]}: the study asks another by this name: rename it")
    return (*data.contrasts, *(replace(c, added_after=len(data.trials)) for c in new))


def contrasts_of(tree: Mapping[str, Any], before: str = "") -> list[Contrast]:
    """Those of a checked study; `before` stands before the names of its objectives."""
    contrasts = []
    for name, entry in (tree.get("contrasts") or {}).items():
        of = dict.fromkeys([entry["of"]] if isinstance(entry["of"], str) else entry["of"])
        values = {key: value for key, value in entry.items() if value is not None}
        given: dict[str, Any] = {key: dict(values[key]) for key in ("at", "minus") if key in values}
        for side in given.values():  # as the tables have them
            for key in set(side) & set(PARAM):
                with suppress(ValueError):  # no value of it: that of no setting
                    side[key] = PARAM[key].coerce(side[key])
        given |= {key: float(values[key]) for key in _NUMBERS if key in values}
        given["metric"] = values.get("metric") or (tree.get("metric") or {}).get("name", "knn_top1")
        given |= {"added_after": values.get(ADDED, 0), "family": before}
        parts = tuple(f"{before}{each}" for each in of)
        contrasts.append(Contrast(name=f"{before}{name}", of=parts, **given))
    return contrasts
