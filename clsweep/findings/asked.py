"""What is asked by name, of a study or later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clsweep.analysis.contrasts import Contrast
from clsweep.catalog import PARAM
from clsweep.errors import RequestError, nearest
from clsweep.study.continuation import ADDED, parse_contrasts

if TYPE_CHECKING:
    from clsweep.findings.material import Material

NUMBERS = ("margin", "published")


def added(asked: Mapping[str, Any], material: Material) -> tuple[Contrast, ...]:
    """The contrasts of the studies, and those that are asked once there are trials, which say so.

    Raises:
        StudyError: a line for each mistake of their shape.
        RequestError: a name that the study has for another one.
    """
    told = parse_contrasts(asked, lambda keys, what: f"{'.'.join(map(str, keys))}: {what}")
    tree = {"contrasts": told, "metric": {"name": material.metric}}
    for each in contrasts_of(tree):
        _require_sense(each, material.params)
    known = {each.name: replace(each, added_after=0) for each in material.contrasts}
    new = [each for each in contrasts_of(tree) if known.get(each.name) != each]
    if twice := [each.name for each in new if each.name in known]:
        raise RequestError(f"contrasts.{twice[0]}: the study asks another by this name: rename it")
    return (*material.contrasts, *(replace(c, added_after=len(material.trials)) for c in new))


def _require_sense(asked: Contrast, params: Sequence[str]) -> None:
    """Raises RequestError for one that names nothing that is swept, or subtracts nothing."""
    at = f"contrasts.{asked.name}"
    if len(set(asked.of)) == 1 and asked.minus is None:
        raise RequestError(f"{at}: expected two objectives, or minus: nothing is subtracted")
    for name in (*asked.at, *(asked.minus or ())):
        if name not in params:
            hint = f"{nearest(name, params)} Swept: {', '.join(params) or 'nothing'}"
            raise RequestError(f"{at}: no objective sweeps '{name:.80}'.{hint}")


def contrasts_of(tree: Mapping[str, Any], before: str = "") -> list[Contrast]:
    """Those of a checked study; `before` stands before the names of its objectives."""
    found = []
    for name, asked in (tree.get("contrasts") or {}).items():
        of = dict.fromkeys([asked["of"]] if isinstance(asked["of"], str) else asked["of"])
        at, minus = (
            None if asked.get(key) is None else _coerced(asked[key]) for key in ("at", "minus")
        )
        metric = asked.get("metric") or (tree.get("metric") or {}).get("name", "knn_top1")
        contrast = Contrast(
            name=f"{before}{name}", of=tuple(f"{before}{each}" for each in of), metric=metric,
            at=at or {}, minus=minus, added_after=asked.get(ADDED) or 0, family=before,
        )  # fmt: skip
        numbers: dict[str, Any] = {
            key: float(asked[key]) for key in NUMBERS if asked.get(key) is not None
        }
        found.append(replace(contrast, **numbers))
    return found


def _coerced(values: Mapping[str, Any]) -> dict[str, Any]:
    """As the tables have them; what is no value of a hyperparameter is that of no setting."""
    found = dict(values)
    for name in set(values) & set(PARAM):
        with suppress(ValueError):
            found[name] = PARAM[name].coerce(values[name])
    return found
