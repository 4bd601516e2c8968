"""What is asked by name, of a study or later."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clsweep.analysis.contrasts import Contrast
from clsweep.catalog import PARAM
from clsweep.errors import RequestError, nearest
from clsweep.study.extend import ADDED, parse_contrasts

if TYPE_CHECKING:
    from clsweep.findings.material import Material

NUMBERS = ("margin", "published")


def added(asked: Mapping[str, Any], material: Material) -> tuple[Contrast, ...]:
    """The contrasts of the studies, and those that are asked once there are trials, which say so.
    StudyError has a line for each mistake of shape; RequestError names what the study has
    otherwise.
    """
    told = parse_contrasts(asked, lambda keys, what: f"{'.'.join(map(str, keys))}: {what}")
    tree = {"contrasts": told, "metric": {"name": material.metric}}
    for each in contrasts_of(tree):
        at = f"contrasts.{each.name}"
        if len(set(each.of)) == 1 and each.minus is None:
            raise RequestError(f"{at}: expected two objectives, or minus: nothing is subtracted")
        for name in (*each.at, *(each.minus or ())):
            if name not in (params := material.params):
                hint = f"{nearest(name, params)} Swept: {', '.join(params) or 'nothing'}"
                raise RequestError(f"{at}: no objective sweeps '{name:.80}'.{hint}")
    known = {each.name: replace(each, added_after=0) for each in material.contrasts}
    new = [each for each in contrasts_of(tree) if known.get(each.name) != each]
    if twice := [each.name for each in new if each.name in known]:
        raise RequestError(f"contrasts.{twice[0]}: the study asks another by this name: rename it")
    return (*material.contrasts, *(replace(c, added_after=len(material.trials)) for c in new))


def contrasts_of(tree: Mapping[str, Any], before: str = "") -> list[Contrast]:
    """Those of a checked study; `before` stands before the names of its objectives."""
    found = []
    for name, asked in (tree.get("contrasts") or {}).items():
        of = dict.fromkeys([asked["of"]] if isinstance(asked["of"], str) else asked["of"])
        told = {key: value for key, value in asked.items() if value is not None}
        given: dict[str, Any] = {key: dict(told[key]) for key in ("at", "minus") if key in told}
        for side in given.values():  # as the tables have them
            for key in set(side) & set(PARAM):
                with suppress(ValueError):  # no value of it: that of no setting
                    side[key] = PARAM[key].coerce(side[key])
        given |= {key: float(told[key]) for key in NUMBERS if key in told}
        given["metric"] = told.get("metric") or (tree.get("metric") or {}).get("name", "knn_top1")
        given |= {"added_after": told.get(ADDED, 0), "family": before}
        parts = tuple(f"{before}{each}" for each in of)
        found.append(Contrast(name=f"{before}{name}", of=parts, **given))
    return found
