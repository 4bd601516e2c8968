"""A study as its results folder has recorded it, and whether another version of it only adds
trials.

Of a recorded study the shape is checked: its data set and its components may be missing where its
results are only read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from clsweep.catalog import PARAM
from clsweep.catalog.plugins import Plugin, PluginError, declare
from clsweep.catalog.rows import Row
from clsweep.errors import StudyError
from clsweep.study.design import PlannedTrial, Study, plan_row
from clsweep.study.document import Document, Keys, parse_document
from clsweep.study.plugged import require_same
from clsweep.study.schema import LIVE_METHODS, parse_sections
from clsweep.study.space import parse_dimension

_ABSENT = "(absent)"
# Where a study runs and what it keeps may change between two sessions of it: every row records its
# workers and devices, and `confirm` comes after the study.
_NOT_DEFINING = ("resources", "encoders", "checkpoints", "loggers", "confirm")
_NOT_DEFINING_DATA = ("root", "cache", "download")


def recorded_study(
    data: bytes, source: str, plugins: Callable[[], tuple[Plugin, ...]] = tuple
) -> Document:
    """The `study.yaml` of a results folder. `plugins` reads those that the folder keeps; nothing of
    them is executed.

    Raises:
        StudyError: it is not what clsweep wrote: one line per mistake, as of a study file.
    """
    document = parse_document(data, source)
    document.is_trusted = False
    if document.tree.get("plugins"):
        document.plugins = plugins()
        try:
            require_same(document.plugins, document.tree["plugins"])
            declare(document.plugins)
        except PluginError as error:
            raise StudyError(document.error(("plugins",), str(error))) from None
    parse_sections(document)
    errors = [
        document.error(keys, f"expected a printable name, given {keys[1]!r:.80}")
        for keys in (("objectives", name) for name in document.tree["objectives"])
        if not keys[1].isprintable()
    ]
    errors += [
        document.error((*keys, name), message)
        for keys, space in _spaces(document.tree)
        for name, raw in space.items()
        if (message := _mistake(name, raw))
    ]
    if errors:
        raise StudyError("\n".join(errors))
    return document


def _spaces(tree: Mapping[str, Any]) -> list[tuple[Keys, Mapping[str, Any]]]:
    own = [
        (("objectives", name, "space"), section.get("space", {}))
        for name, section in tree["objectives"].items()
    ]
    return [(("space",), tree.get("space", {})), *own]


def _mistake(name: str, raw: object) -> str:
    if name not in PARAM:  # of a catalog that is not installed here
        return "" if isinstance(raw, Mapping) else f"expected a mapping, given {raw!r:.80}"
    try:
        parse_dimension(PARAM[name], raw)
    except ValueError as error:
        return str(error)
    return ""


def defining(tree: Mapping[str, Any]) -> Row:
    """What defines the plan and its numbers, but for the precision, which `auto` leaves open here:
    the rows of the plan say it.
    """
    kept = {key: value for key, value in tree.items() if key not in _NOT_DEFINING}
    if isinstance(dataset := kept.get("dataset"), Mapping):
        kept["dataset"] = _anywhere(dataset)
    if factors := kept.get("factors"):
        kept["factors"] = {name: _by_label(levels) for name, levels in factors.items()}
    if isinstance(objectives := kept.get("objectives"), Mapping):
        kept["objectives"] = {name: _any_precision(value) for name, value in objectives.items()}
    return _any_precision(kept)


def _anywhere(dataset: Mapping[str, Any]) -> Row:
    """A data set, wherever its files are."""
    return {key: value for key, value in dataset.items() if key not in _NOT_DEFINING_DATA}


def _by_label(levels: Iterable[Any]) -> Row:
    """The levels of a factor, in whatever order and way they are written."""
    written = [{"name": level} if isinstance(level, str) else level for level in levels]
    return {
        level.get("label", level["name"]): {
            key: value for key, value in _any_precision(_anywhere(level)).items() if key != "label"
        }
        for level in written
    }


def _any_precision(section: Mapping[str, Any]) -> Row:
    """A study or an objective of it without `base.precision`."""
    base = {key: value for key, value in section.get("base", {}).items() if key != "precision"}
    return {
        key: base if key == "base" else value
        for key, value in section.items()
        if key != "base" or base
    }


def difference(old: object, new: object, at: str = "") -> list[str]:
    """Where two study trees differ, one line per key: `base.epochs: 10 -> 20`."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = [*old, *(key for key in new if key not in old)]
        return [
            line
            for key in keys
            for line in difference(
                old.get(key, _ABSENT), new.get(key, _ABSENT), f"{at}.{key}" if at else str(key)
            )
        ]
    return [] if old == new else [f"{at}: {old!r} -> {new!r}"]


def extension(
    old_tree: Mapping[str, Any],
    old_plan_rows: Iterable[Mapping[str, Any]],
    study: Study,
    planned: Iterable[PlannedTrial],
) -> list[str]:
    """Why `study` is no extension of a recorded one, a line each; none if all of the recorded plan
    is in its plan.

    An extension has further seeds, further configurations or further objectives, and is otherwise
    the same study.

    Args:
        old_tree: the recorded `study.yaml`.
        old_plan_rows: the rows of the recorded `plan.parquet`.
        study: the study as it is now.
        planned: its trials.
    """
    rows = list(old_plan_rows)
    return _changed_keys(
        defining(old_tree), defining(study.document.tree), rows
    ) or _changed_trials(rows, study, planned)


def _changed_keys(old: Row, new: Row, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    shrunk = (
        _shrunk_seeds(old, new) or _reseeded_search(old, new, rows),
        _reordered_race(old, new),
        _shrunk_budget(old["search"], new["search"]),
    )
    changed = difference(_without_growth(old, {}), _without_growth(new, old))
    reasons = [f"{line}: the recorded trials were planned with the former" for line in changed]
    return [*filter(None, shrunk), *reasons]


def _without_growth(tree: Row, former: Row) -> Row:
    """A study less what may grow: seeds, budget, and objectives and levels of its factors that it
    did not have formerly.
    """
    known, levels = ((former or tree).get(key, {}) for key in ("objectives", "factors"))
    grown = {
        factor: {label: level for label, level in each.items() if label in levels.get(factor, {})}
        for factor, each in tree.get("factors", {}).items()
    }
    return {
        **{key: value for key, value in tree.items() if key not in ("seeds", "factors")},
        **({"factors": grown} if grown else {}),
        "search": {
            key: value for key, value in tree["search"].items() if key != "trials_per_objective"
        },
        "objectives": {name: value for name, value in tree["objectives"].items() if name in known},
    }


def _shrunk_seeds(old: Row, new: Row) -> str:
    kept = set(new["seeds"])
    gone = [str(seed) for seed in old["seeds"] if seed not in kept]
    return (
        f"seeds: {old['seeds']} -> {new['seeds']}: trials of {', '.join(gone)} are recorded"
        if gone
        else ""
    )


def _reseeded_search(old: Row, new: Row, rows: Iterable[Mapping[str, Any]]) -> str:
    """A live search has chosen its configurations, and asha has stopped some, by the seeds that
    there were.
    """
    live = next((row for row in rows if row["sampler"] in LIVE_METHODS), None)
    judged = old.get("scheduler", {}).get("name") == "asha"
    if live is None or (
        len(old["seeds"]) == len(new["seeds"])
        and not (judged and old["seeds"][0] != new["seeds"][0])
    ):
        return ""
    line = f"seeds: {old['seeds']} -> {new['seeds']}"
    return (
        f"{line}: {live['sampler']} has chosen the configurations of '{live['objective']}' by "
        "the former"
    )


def _reordered_race(old: Row, new: Row) -> str:
    """A race has left out trials by the seeds that came first."""
    if old.get("scheduler", {}).get("name") != "racing":
        return ""
    if new["seeds"][: len(old["seeds"])] == old["seeds"]:
        return ""
    line = f"seeds: {old['seeds']} -> {new['seeds']}"
    return f"{line}: racing went by the former in their order; add further ones at the end"


def _shrunk_budget(old: Row, new: Row) -> str:
    """The budget of a grid is a limit, which no grid may exceed; any other method needs one."""
    before, now = (search.get("trials_per_objective") for search in (old, new))
    if old["method"] == "grid" or before is None or now is None or now >= before:
        return ""
    return f"search.trials_per_objective: {before} -> {now}: more are planned already"


def _changed_trials(
    rows: Iterable[Mapping[str, Any]], study: Study, planned: Iterable[PlannedTrial]
) -> list[str]:
    """One line per objective: the first of its trials that is no longer planned as it was."""
    now = {trial.trial_id: plan_row(study, trial) for trial in planned}
    reasons: dict[str, str] = {}
    for row in rows:
        reason = _changed_trial(row, now.get(row["trial_id"]))
        if reason:
            reasons.setdefault(row["objective"], f"trial {row['trial_id']}: {reason}")
    return list(reasons.values())


def _changed_trial(row: Mapping[str, Any], planned: Mapping[str, Any] | None) -> str:
    if planned is None:
        return "no longer planned"
    if row["sampler"] != planned["sampler"]:
        why = "so many configurations are all that there are, and are enumerated"
        return f"sampler: {row['sampler']!r} -> {planned['sampler']!r}: {why}"
    values = changed_values(row, planned)
    return f"{values}: the recorded plan has the former" if values else ""


def changed_values(row: Mapping[str, Any], planned: Mapping[str, Any]) -> str:
    """Where a recorded row of a plan differs from the row as it is planned now: `tau: 0.1 -> 0.2`;
    empty if nowhere. Of the precision it says how to keep it.
    """
    # no column: nobody owned it
    names = [*row, *(name for name in planned if name in PARAM and name not in row)]
    changed = [name for name in names if row.get(name) != planned.get(name)]
    lines = [f"{name}: {row.get(name)!r} -> {planned.get(name)!r}" for name in changed[:3]]
    former, now = row.get("precision"), planned.get("precision")
    if "precision" in changed and None not in (former, now):
        lines.append(f"--set base.precision={former} keeps it")
    return "; ".join(lines)
