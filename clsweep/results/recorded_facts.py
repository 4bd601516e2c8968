"""The facts of two results folders that differ: settings, versions and data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from clsweep.catalog import PARAM
from clsweep.catalog.rows import Row
from clsweep.display.numbers import count, setting, setting_column
from clsweep.results.reading import StudyTables
from clsweep.results.schemas import SPLIT_COLUMNS
from clsweep.study.extend import ABSENT, NOT_DEFINING, tree_changes

SETTINGS, VERSIONS, DATA, OTHER_KEYS = "settings", "versions", "data", "other keys"
_MOST_VALUES = 12  # of a hyperparameter that are named; of more their number and their ends
_VERSIONS = (
    *("clsweep_version", "torch_version", "ray_version", "optuna_version", "git_commit"),
    *("plugins", "device", "workers", "gpus_per_worker", "cpus_per_worker"),
)
_MAY_BE_UNKNOWN = ("git_commit",)  # outside of a repository


def facts_apart(a: StudyTables, b: StudyTables) -> list[Row]:
    """One row a fact in which the folders differ: part, what, objective (empty: all that have it)
    and its texts `first` and `second`.

    Settings are the values that trials have had, and the keys of the study files that no such
    value stands for. Versions and data are those of the trials that have ended.
    """
    columns = {VERSIONS: _VERSIONS, DATA: ("dataset", *SPLIT_COLUMNS)}
    tables = a.trials_table, b.trials_table
    recorded = [
        _fact(part, name, first, second)
        for part, names in columns.items()
        for name in names
        for first, second in [[values_text(x[name].unique().to_pylist()) for x in tables]]
        if first != second and (name not in _MAY_BE_UNKNOWN or (first and second))
    ]
    recorded += _images_apart(a, b)
    values = list(_values_apart(a, b))
    known = {row["what"] for row in [*recorded, *values]}
    return [*_keys_apart(a.study, b.study, known), *values, *recorded]


def _fact(part: str, what: str, first: str, second: str, objective: str = "") -> Row:
    return {
        "part": part, "what": what, "objective": objective, "first": first, "second": second
    }  # fmt: skip


def _keys_apart(a: Row, b: Row, known: Iterable[str]) -> Iterator[Row]:
    """The keys of the study files, without those of which a value is `known` to differ."""
    known = {*known, *({"dataset.name"} if "dataset" in known else ())}
    for key, first, second in tree_changes(a, b):
        if not {key, *key.split(".")} & known - {"dataset"}:
            part = OTHER_KEYS if key.split(".")[0] in ("name", *NOT_DEFINING) else SETTINGS
            yield _fact(part, key, _short(first), _short(second))


def _values_apart(a: StudyTables, b: StudyTables) -> Iterator[Row]:
    """The hyperparameters whose planned values differ, with the objectives that they are of."""
    plans = a.plan_table, b.plan_table
    names = [plan["objective"].unique().to_pylist() for plan in plans]
    both = [name for name in names[0] if name in names[1]]
    for name in dict.fromkeys((*a.params, *b.params)):
        those: dict[tuple[str, str], list[str]] = {}
        for each in both:
            first, second = (values_text(planned_values(plan, each, name)) for plan in plans)
            if any(name not in plan.column_names for plan in plans):
                # An older folder has no such column: it ran at what is the default since.
                default = values_text([PARAM[name].default]) if name in PARAM else ""
                first, second = first or default, second or default
            if first or second:
                those.setdefault((first, second), []).append(each)
        for (first, second), named in those.items():
            if first != second:
                objective = "" if len(those) == 1 else ", ".join(named)
                yield _fact(SETTINGS, name, first, second, objective)


def planned_values(plan: pa.Table, objective: str, name: str) -> list[Any]:
    """The values that a hyperparameter takes in the plan of an objective; it may have none."""
    if name not in plan.column_names:
        return []
    rows = plan.filter(pc.equal(plan["objective"], objective))
    return list(rows[name].unique().to_pylist())


def _images_apart(a: StudyTables, b: StudyTables) -> list[Row]:
    """The scored images, by the digest of which they are in their order; where both say it."""
    first, second = (values_text(_digests(study)) for study in (a, b))
    is_apart = first and second and first != second
    return [_fact(DATA, "scored_images", first, second)] if is_apart else []


def _digests(study: StudyTables) -> list[str]:
    hits = study.folder.side_table("hits")
    rows = hits.filter(pc.equal(hits["split"], study.score_on)).select(["images", "num_images"])
    pairs = {(row["images"], row["num_images"]) for row in rows.to_pylist()}
    return [f"{image} ({count(num)})" for image, num in pairs]


def values_text(values: Iterable[Any]) -> str:
    """`0.1, 0.5`: the values of a column, in their order; of many their number and their ends."""
    there = [value for value in values if value is not None]
    is_text = any(isinstance(value, str) for value in there)
    there = sorted(there, key=str) if is_text else sorted(there)
    if len(there) > _MOST_VALUES and not is_text:
        return f"{count(len(there))} values, {setting(there[0])} to {setting(there[-1])}"
    return ", ".join(setting_column(there))


def _short(value: Any) -> str:
    """A value of a study file in a line."""
    if value is ABSENT:
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_short(each)}" for key, each in value.items()) or "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_short, value))}]"
    return " ".join(setting(value).split()) or "-"
