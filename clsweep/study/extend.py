"""A study as its results folder has recorded it, and whether another version of it only adds
trials.

Of a recorded study the shape is checked: its data set and its components may be missing where its
results are only read.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from clsweep.catalog import PARAM
from clsweep.catalog.ownership import is_as_planned
from clsweep.catalog.plugin_import import PluginError
from clsweep.catalog.plugins import Plugin, declare
from clsweep.catalog.rows import Row
from clsweep.errors import StudyError, mistake_lines
from clsweep.study.design import PlannedTrial, Study, plan_row, trial_id
from clsweep.study.document import Document, Keys, parse_document, require_same
from clsweep.study.factors import split_name
from clsweep.study.key_mistakes import explained
from clsweep.study.schema import (
    LIVE_METHODS,
    ContrastSection,
    DatasetSection,
    EvaluationSection,
    MetricSection,
    SchedulerSection,
    SearchSection,
    StudySections,
    parse_sections,
)
from clsweep.study.space import declared_spaces, parse_dimension

ABSENT = "(absent)"
# Where a study runs and what it keeps may change between two sessions of it: every row records its
# workers and devices, and `confirm` comes after the study. Contrasts and the question decide
# nothing of a trial.
NOT_DEFINING = (
    "resources", "encoders", "checkpoints", "loggers", "confirm", "contrasts", "question",
)  # fmt: skip
_NOT_DEFINING_DATA = ("root", "cache", "download", "num_test", "store_as")  # rows have its value


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
        document.error(("objectives", name), f"expected a printable name, given {name!r:.80}")
        for name in document.tree["objectives"]
        if not name.isprintable()
    ]
    sections: dict[Keys, Any] = {(): document.tree}
    sections |= {("objectives", name): each for name, each in document.tree["objectives"].items()}
    errors += [
        document.error((*keys, "space", name), message)
        for keys, section in sections.items()
        for name, raw in section.get("space", {}).items()
        if (message := _mistake(name, raw))
    ]
    if errors:
        raise StudyError("\n".join(errors))
    return document


def _mistake(name: str, raw: object) -> str:
    if name not in PARAM:  # of a catalog that is not installed here
        return "" if isinstance(raw, Mapping) else f"expected a mapping, given {raw!r:.80}"
    try:
        parse_dimension(PARAM[name], raw)
    except ValueError as error:
        return str(error)
    return ""


def defining(tree: Mapping[str, Any]) -> Row:
    """Keys that define the plan and its numbers. Not the precision, which `auto` leaves open: the
    rows of the plan say it; nor the budget, by which some of it is run. Levels of a factor stand by
    their labels, in whatever order and way they are written.
    """
    parts = copy.deepcopy({key: tree[key] for key in tree if key not in NOT_DEFINING})
    factors = parts.get("factors") or {}
    for name, levels in factors.items():
        written = [{"name": level} if isinstance(level, str) else level for level in levels]
        factors[name] = {level.pop("label", level["name"]): level for level in written}
    levels = [level for each in factors.values() for level in each.values()]
    for section in (parts.get("dataset") or {}, *levels):
        for key in _NOT_DEFINING_DATA:
            section.pop(key, None)
    (parts.get("search") or {}).pop("budget", None)
    for section in (parts, *parts.get("objectives", {}).values(), *levels):
        section.get("base", {}).pop("precision", None)
        if not section.get("base", True):
            del section["base"]
    return parts


def tree_changes(old: object, new: object, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The keys by which two study trees differ, `base.epochs`, with the values of both."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*old, *(key for key in new if key not in old)]:
            values = old.get(key, ABSENT), new.get(key, ABSENT)
            yield from tree_changes(*values, f"{at}.{key}" if at else str(key))
    elif old != new:
        yield at, old, new


def tree_difference(old: object, new: object, at: str = "") -> list[str]:
    """The same, one line per key: `base.epochs: 10 -> 20`."""
    return [f"{key}: {before!r} -> {now!r}" for key, before, now in tree_changes(old, new, at)]


def extension_errors(
    old_tree: Mapping[str, Any],
    old_plan_rows: Iterable[Mapping[str, Any]],
    study: Study,
    planned: Iterable[PlannedTrial],
) -> list[str]:
    """Why `study` is no extension of a recorded one, a line each; none if all of the recorded plan
    is in its plan.

    An extension has further seeds, further configurations or further objectives, and is otherwise
    the same study. What a grid's spaces say may change as long as all recorded trials are cells.

    Args:
        old_tree: the recorded `study.yaml`.
        old_plan_rows: the rows of the recorded `plan.parquet`.
        study: the study as it is now.
        planned: its trials, numbered as the recorded ones (`numbered_as`).
    """
    rows = list(old_plan_rows)
    old, new = (_with_defaults(defining(tree)) for tree in (old_tree, study.document.tree))
    before, now = _without_growth(old, old), _without_growth(new, old)
    changes = [
        *tree_changes(_without_base_of_spaces(before, new), _without_base_of_spaces(now, new))
    ]
    if not (lost := _changed_trials(rows, study, planned)):  # a default may be written out
        spaces = (*declared_spaces(old_tree).values(), *(each.space for each in study.objectives))
        swept = {name for space in spaces for name in space}
        changes = [each for each in changes if not _is_fixed(each, swept)]
    changed = [f"{key}: {former!r} -> {latter!r}" for key, former, latter in changes]
    of_spaces = tree_difference(old, new) if _is_plain_grid(old) else []
    of_spaces = [line for line in of_spaces if re.match(r"(\S+\.)?space[.:]", line)]
    reasons = [
        _changed_seeds(old, new, rows),
        _shrunk_budget(old["search"], new["search"]),
        *(f"{line}: the recorded trials were planned with the former" for line in changed),
    ]
    if errors := [*filter(None, reasons)]:
        return errors
    return [*of_spaces, *lost] if lost else []


def numbered_as(
    rows: Iterable[Mapping[str, Any]], study: Study, planned: Sequence[PlannedTrial]
) -> list[PlannedTrial]:
    """The trials of a grid that may have grown: each configuration of the recorded rows keeps its
    number, and new ones follow.
    """
    if study.sections.search.method != "grid":
        return list(planned)
    names = {each.name: tuple(each.space) for each in study.objectives}
    numbers: dict[str, dict[tuple[Any, ...], int]] = {name: {} for name in names}
    for row in rows:
        if row["objective"] in names and row["sampler"] == "grid":
            cell = tuple(map(row.get, names[row["objective"]]))
            numbers[row["objective"]].setdefault(cell, row["config"])
    following = {n: itertools.count(max(each.values(), default=-1) + 1)
                 for n, each in numbers.items()}  # fmt: skip
    config_numbers: dict[tuple[str, int], int] = {}
    numbered = []
    for trial in planned:
        name = trial.objective
        if (name, trial.config) not in config_numbers:
            cell = tuple(map(plan_row(study, trial).get, names[name]))
            known = numbers[name].get(cell)
            config_numbers[name, trial.config] = next(following[name]) if known is None else known
        config = config_numbers[name, trial.config]
        identity = trial_id(name, config, trial.seed)
        numbered.append(replace(trial, config=config, trial_id=identity))
    return numbered


_WITH_DEFAULTS: dict[str, type[BaseModel]] = {
    "dataset": DatasetSection, "evaluation": EvaluationSection, "metric": MetricSection,
    "search": SearchSection, "scheduler": SchedulerSection,
}  # fmt: skip


def _with_defaults(tree: Row) -> Row:
    """A study with the defaults of its sections, which are the same written out or not."""
    full = dict(tree)
    for key, section in _WITH_DEFAULTS.items():
        defaults = {name: field.default for name, field in section.model_fields.items()
                    if isinstance(field.default, (int, float, str))
                    and name not in _NOT_DEFINING_DATA}  # fmt: skip
        full[key] = defaults | (tree.get(key) or {})
    return full


def _is_plain_grid(tree: Row) -> bool:
    """True if no choice of what to run, or to stop, has rested on what was there to choose from."""
    scheduler = tree.get("scheduler", {}).get("name", "fifo")
    return bool(tree["search"]["method"] == "grid" and scheduler == "fifo")


def _without_growth(tree: Row, former: Row) -> Row:
    """A study less what may grow: seeds, budget, objectives and levels of its factors that it did
    not have formerly, and the spaces of a grid.
    """
    fixed = {"space"} if _is_plain_grid(tree) else set()
    less = {key: tree[key] for key in tree if key not in {"seeds", "factors"} | fixed}
    grows = {"trials_per_objective"} | ({"first"} if _is_plain_grid(tree) else set())
    less["search"] = {key: value for key, value in tree["search"].items() if key not in grows}
    less["objectives"] = _known(tree["objectives"], former["objectives"], fixed)
    if factors := tree.get("factors"):
        levels = former.get("factors", {})
        less["factors"] = {
            name: _known(each, levels.get(name, {}), fixed) for name, each in factors.items()
        }
    return less


def _is_fixed(change: tuple[str, Any, Any], swept: Collection[str]) -> bool:
    """True if a change is of a base, and of nothing that is swept: the rows of a plan have it."""
    key, *sides = change
    *above, name = key.split(".")
    names = {name} if above[-1:] == ["base"] else set[str]()
    if name == "base":
        names = {each for side in sides if isinstance(side, Mapping) for each in side}
    return bool(names) and names.isdisjoint(swept)


def _without_base_of_spaces(less: Row, tree: Row) -> Row:
    """A study `less` its base values of what the spaces of a plain grid, `tree`, sweep: the rows of
    the plan have them.
    """
    if not _is_plain_grid(tree):
        return less
    less = copy.deepcopy(less)
    parts = (tree, *tree["objectives"].values())
    swept = {name for part in parts for name in part.get("space", {})}
    for section in (less, *less["objectives"].values()):
        base = section.pop("base", {})
        if fixed := {name: value for name, value in base.items() if name not in swept}:
            section["base"] = fixed
    return less


def _known(each: Row, former: Row, without: set[str]) -> Row:
    return {
        name: {key: part[key] for key in part if key not in without}
        for name, part in each.items()
        if name in former
    }


def _changed_seeds(old: Row, new: Row, rows: Iterable[Mapping[str, Any]]) -> str:
    """Seeds may come at the end, but not to a live search: it has chosen its configurations, and
    asha has stopped some, by those that there were; as a race has left out trials by the first.
    """
    before, now = old["seeds"], new["seeds"]
    line = f"seeds: {before} -> {now}"
    if gone := [str(seed) for seed in before if seed not in now]:
        return f"{line}: trials of {', '.join(gone)} are recorded"
    scheduler = old.get("scheduler", {}).get("name")
    live = next((row for row in rows if row["sampler"] in LIVE_METHODS), None)
    if live and (len(before) != len(now) or (scheduler == "asha" and before[0] != now[0])):
        by = f"{live['sampler']} has chosen the configurations of '{live['objective']}'"
        return f"{line}: {by} by the former"
    if scheduler == "racing" and now[: len(before)] != before:
        return f"{line}: racing went by the former in their order; add further ones at the end"
    return ""


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
        planned_row, reason = now.get(row["trial_id"]), ""
        if planned_row is None:
            reason = "no longer planned"
        elif row["sampler"] != planned_row["sampler"]:
            why = "so many configurations are all that there are, and are enumerated"
            reason = f"sampler: {row['sampler']!r} -> {planned_row['sampler']!r}: {why}"
        elif values := changed_values(row, planned_row):
            advice = form_advice(study, row["objective"], row, planned_row)
            reason = f"{values}{advice and f'; {advice}'}: the recorded plan has the former"
        if reason:
            reasons.setdefault(row["objective"], f"trial {row['trial_id']}: {reason}")
    return list(reasons.values())


def form_advice(
    study: Study, objective: str, row: Mapping[str, Any], planned: Mapping[str, Any]
) -> str:
    """The option that keeps pictures in the recorded form, where another one is planned now."""
    if (form := row.get("store_as")) is None or form == planned.get("store_as"):
        return ""
    level = split_name(study.document.tree, objective).get("dataset")
    key = f"factors.dataset.{level}" if level else "dataset"
    return f"--set {key}.store_as={form} keeps it"


def changed_values(row: Mapping[str, Any], planned: Mapping[str, Any]) -> str:
    """Where a recorded row of a plan differs from the row as it is planned now: `tau: 0.1 -> 0.2`;
    empty if nowhere. Of the precision it says how to keep it.
    """
    # no column: nobody owned it
    names = [*row, *(name for name in planned if name in PARAM and name not in row)]
    changed = [n for n in names if not is_as_planned(n, row.get(n), planned.get(n))]
    lines = [f"{name}: {row.get(name)!r} -> {planned.get(name)!r}" for name in changed[:3]]
    former, now = row.get("precision"), planned.get("precision")
    if "precision" in changed and None not in (former, now):
        lines.append(f"--set base.precision={former} keeps it")
    return "; ".join(lines)


# Contrasts of a study that goes on.

ADDED = "added_after"  # trials that had ended when a contrast came, of a recorded study


def parse_contrasts(contrasts: Mapping[str, Any], place: Callable[[Keys, str], str]) -> Row:
    """Contrasts outside of a study, checked in their shape.

    Args:
        place: makes the line of a mistake from its keys and what it is.

    Raises:
        StudyError: one line per mistake.
    """
    if not isinstance(contrasts, Mapping):
        raise StudyError(place(("contrasts",), f"expected a mapping, given {contrasts!r:.80}"))
    lines = []
    for name, each in contrasts.items():
        try:
            ContrastSection.model_validate(each)
        except ValidationError as error:
            mistakes = (explained(one, StudySections, ("contrasts",)) for one in error.errors())
            lines += [place(("contrasts", name, *keys), message) for keys, message in mistakes]
    if lines:
        raise StudyError(mistake_lines(lines))
    return dict(contrasts)


def with_added(new: Mapping[str, Any], old: Mapping[str, Any], ended: int) -> dict[str, Any]:
    """The contrasts of a study that goes on: those that came once trials had ended say after how
    many. Those that were asked before stay, whatever became of their lines: what takes the place of
    one has its name with a number.
    """
    if not ended:
        return dict(new)
    contrasts: dict[str, Any] = copy.deepcopy(dict(old))
    known = [_bare(each) for each in contrasts.values()]
    for name, contrast in new.items():
        if _bare(contrast) in known:
            continue
        names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
        free = next(each for each in names if each not in contrasts)
        contrasts[free] = _bare(contrast) | {ADDED: ended}
    return contrasts


def _bare(contrast: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in contrast.items() if key != ADDED}
