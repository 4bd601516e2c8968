"""The differences of two studies: their facts, and by how much each answer has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pandas as pd

from clsweep.analysis.compare import LARGEST_P, compare
from clsweep.analysis.contrast import Contrast, contrast_table
from clsweep.analysis.holm import holm
from clsweep.analysis.reasons import Note, Reason, note, noted, with_notes
from clsweep.analysis.sweep import CHANCE, Sweep, as_far_as_levels, counted_alike
from clsweep.catalog.rows import Row
from clsweep.display.numbers import interval, is_number, joined, known, number
from clsweep.results.reading import StudyTables
from clsweep.results.recorded_facts import DATA, SETTINGS, VERSIONS, facts_apart, planned_values
from clsweep.statistics.contrast import named_contrasts, outcome, sweeps_by
from clsweep.statistics.statistic import Column, Statistic, between, level_cell
from clsweep.sweeps.from_studies import yardsticks_of
from clsweep.sweeps.notes import records_of, status_text, worded
from clsweep.sweeps.study_data import StudyData

ANSWERS, SAME = "answers", "the same"
MEAN, SD_STAR, BEST = "mean", "SD*", "best"
DIFF_COLUMNS = with_notes(
    "part objective what first second at_first at_second difference low high p p_holm verdict"
)
_CHANGED = {MEAN: ("fell", "rose"), SD_STAR: ("is smaller", "is larger")}
_MOST_LETTERS = 19  # of a fact on a screen
_MOST_NAMED = 3  # changes in the first line


class Opened(Protocol):
    """The results of one folder, or of a cell of a study with factors."""

    levels: Mapping[str, str]

    @property
    def data(self) -> StudyData: ...
    @property
    def tables(self) -> StudyTables: ...
    @property
    def cells(self) -> Sequence[Opened]: ...


def diff(a: Opened, b: Opened) -> pd.DataFrame:
    """One row for each fact in which two studies differ, and for each answer of both: the columns
    `DIFF_COLUMNS`.

    part: settings, versions, data or answers.
    difference: second - first in the metric's own sign, of SD* second / first; with its 95 %
        interval. Common settings are compared. At the same seeds they are paired, by t with S - 1
        degrees of freedom; else each study's seeds vary by themselves, and their variances add up
        (Welch 1947). The best levels are those of `compare --tuned`.
    p_holm: p, corrected for all answers of the table (Holm 1979).

    RequestError where no trial of one has ended.
    """
    answers = [row for each in _cells(a, b) for row in _answers(*each)]
    corrected = holm(np.array([row.get("p", np.nan) for row in answers], dtype=float))
    for row, p_holm in zip(answers, corrected, strict=True):
        row |= {"p_holm": p_holm, "verdict": row.get("verdict") or _verdict(row, p_holm)}
    facts = [{**row, **noted()} for row in facts_apart(a.tables, b.tables)]
    frame = pd.DataFrame([*facts, *answers], columns=list(DIFF_COLUMNS))
    texts = ["objective", "at_first", "at_second", "verdict"]
    return worded(frame.assign(**frame[texts].fillna("")))


def _cells(a: Opened, b: Opened) -> Iterator[tuple[str, Opened, Opened]]:
    """The parts of both that are analysed by themselves, with what stands before objectives."""
    if not a.cells and not b.cells:
        yield "", a, b
    for one, other in ((x, y) for x in a.cells for y in b.cells if x.levels == y.levels):
        yield f"{'/'.join(one.levels.values())}/", one, other


def _answers(before: str, a: Opened, b: Opened) -> Iterator[Row]:
    data, other = _for_same_images(a.data, b.data)
    if (data.metric, data.mode) != (other.metric, other.mode):
        why = note(Reason.OTHER_METRIC, a=data.metric, b=other.metric)
        yield _refused(before.rstrip("/"), why)
        return
    sweeps, others = (
        {x.objective: _with_constants(x, tables, names) for x in spaces}
        for spaces, tables, names in (
            (data.spaces, a.tables, b.tables.params),
            (other.spaces, b.tables, a.tables.params),
        )
    )
    tuned = {x.objective: x for x in data.sweeps}, {x.objective: x for x in other.sweeps}
    yardsticks = yardsticks_of({"A/": a.tables, "B/": b.tables}, data.metric)
    compared = []
    for name in (name for name in sweeps if name in others):
        one, two = (yardsticks.get(f"{side}/{name}", "") for side in "AB")
        images = [x.images and x.images.digest for x in (sweeps[name], others[name])]
        if one != two:
            yield _refused(f"{before}{name}", note(Reason.YARDSTICKS, a=one, b=two))
        elif all(images) and images[0] != images[1]:
            yield _refused(f"{before}{name}", note(Reason.OTHER_IMAGES))
        else:
            compared.append(name)
            for row in _of_objective(sweeps[name], others[name], *(x[name] for x in tuned)):
                yield {"part": ANSWERS, "objective": f"{before}{name}", **row}
    for row in _contrasts(data, other, compared):
        yield {"part": ANSWERS, "objective": before.rstrip("/"), **row}
    if not any(name in others for name in sweeps):
        yield _refused(before.rstrip("/"), note(Reason.NONE_IN_BOTH))


def _for_same_images(a: StudyData, b: StudyData) -> tuple[StudyData, StudyData]:
    """Both without the images that each trial has right, where one of them does not say it: the
    intervals of both are then for these images.
    """
    if a.images == b.images:
        return a, b
    bare = [replace(x, sweeps=tuple(replace(s, hits=None) for s in x.sweeps)) for x in (a, b)]
    return replace(bare[0], hits={}), replace(bare[1], hits={})


def heading_data(a: StudyData, b: StudyData) -> StudyData:
    """The data by which the tables of a difference say what their intervals are for."""
    return _for_same_images(a, b)[0]


def _with_constants(sweep: Sweep, tables: StudyTables, names: Sequence[str]) -> Sweep:
    """The same with those of these hyperparameters that its study holds fixed."""
    planned = {name: planned_values(tables.plan_table, sweep.objective, name) for name in names}
    fixed = {name: values[0] for name, values in planned.items() if len(values) == 1}
    return replace(sweep, constants={**sweep.constants, **fixed})


def _refused(objective: str, why: Note) -> Row:
    row = {"part": ANSWERS, "objective": objective, "what": "", "verdict": "not compared"}
    return row | noted(why=why)


def _in_common(a: Sweep, b: Sweep) -> tuple[list[Sweep], list[Note]]:
    """The settings that both have tried, on the seeds of both where at least half are."""
    names = sorted({*a.params, *b.params})
    keys_of = [_settings(x, names) for x in (a, b)]
    rows = [
        np.flatnonzero([key in set(other) for key in keys])
        for keys, other in zip(keys_of, keys_of[::-1], strict=True)
    ]
    if not len(rows[0]) and (a.is_grid or b.is_grid):
        return [], []
    sides, notes = [a, b], list[Note]()
    if len(rows[0]):
        sides = [_at(x, at) for x, at in zip((a, b), rows, strict=True)]
        if {len(rows[0])} != {len(a.configs), len(b.configs)}:
            sizes = {"a": len(a.configs), "b": len(b.configs)}
            notes.append(note(Reason.COMMON_SETTINGS, common=len(rows[0]), **sizes))
    seeds = np.intersect1d(a.seeds, b.seeds)
    if 2 * len(seeds) >= min(len(a.seeds), len(b.seeds)):
        sides = [_on_seeds(x, seeds) for x in sides]
        left = tuple(np.setxor1d(a.seeds, b.seeds).tolist())
        notes += [note(Reason.SEEDS_LEFT_OUT, seeds=left)] if left else []
    else:
        notes.append(note(Reason.SEEDS_OF_EACH))
    return sides, notes


def _settings(sweep: Sweep, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """These hyperparameters of each of its configurations, also those that take one value here."""
    fixed = {name: sweep.constants.get(name) for name in names if name not in sweep.params}
    rows = sweep.settings.assign(**fixed)[[*names]].to_numpy()
    return [tuple(float(v) if is_number(v) else str(v) for v in row) for row in rows]


def _at(sweep: Sweep, rows: Any) -> Sweep:
    """Those configurations alone, as a sweep over what still takes two values among them."""
    few = sweep.at(rows, num_planned=len(rows))
    swept = tuple(name for name in few.params if few.settings[name].nunique() > 1)
    return replace(few, params=swept, settings=few.settings[[*swept]])


def _on_seeds(sweep: Sweep, seeds: Any) -> Sweep:
    at = [sweep.seeds.tolist().index(seed) for seed in seeds]
    scores, failed = sweep.scores[:, at], sweep.failed[:, at]
    return replace(sweep, scores=scores, failed=failed, seeds=sweep.seeds[at])


def _of_objective(a: Sweep, b: Sweep, *tuned: Sweep) -> Iterator[Row]:
    a, b, *sides = (x.renamed(name) for x, name in zip((a, b, *tuned), "ABAB", strict=True))
    common, notes = _in_common(a, b)
    if common:
        yield {"what": MEAN, **_mean(common, notes)}
        if a.params and b.params:
            yield {"what": SD_STAR, **_compared(common, "std", 1.0)}
    else:
        yield {"what": MEAN} | noted(why=note(Reason.NONE_IN_COMMON))
    yield {"what": BEST, **_compared(sides, "tuned", a.sign)}


def _mean(common: Sequence[Sweep], notes: Sequence[Note]) -> Row:
    """The difference of the means over the common settings."""
    common = counted_alike(*common)  # as the difference counts failed trials
    contrast = Contrast(name="", of=("B", "A"), metric="")
    [row] = records_of(contrast_table([contrast], {"": common}))
    [row] = records_of(as_far_as_levels(pd.DataFrame([row]), common))
    return _row(row, [x.sign * float(np.nanmean(x.means)) for x in common], notes=notes)


def _compared(sides: Sequence[Sweep], stat: str, sign: float) -> Row:
    """The rows of `compare`, second against first."""
    [row] = records_of(compare(sides[::-1], stat=stat))
    low, high = sorted((sign * row["low"], sign * row["high"]))
    row |= {"estimate": sign * row["estimate"], "low": low, "high": high}
    at = {"at_first": row["at_b"], "at_second": row["at_a"]}
    is_same = is_number(row["estimate"]) and _equal(*sides)
    ends = dict.fromkeys(("low", "high", "p"), np.nan)
    same = {"verdict": SAME, **ends} if is_same else {}
    return at | _row(row, [row["value_b"], row["value_a"]]) | same


def _equal(a: Sweep, b: Sweep) -> bool:
    """True for the same scores, at every setting and seed."""
    arrays = ((x.scores, x.seeds, x.configs) for x in (a, b))
    return all(
        x.shape == y.shape and (x == y)[(x == x) | (y == y)].all()
        for x, y in zip(*arrays, strict=True)
    )


def _row(row: Row, levels: Sequence[Any], *, notes: Sequence[Note] = ()) -> Row:
    names = {"difference": row["estimate"], **{n: row[n] for n in ("low", "high", "p")}}
    kept_notes = tuple(n for n in row["note"] if n.reason not in _OF_PAIRS)
    is_same = levels[0] == levels[1] and not known(row["p"])
    same = {"verdict": SAME, "reason": "", "note": tuple(notes)} if is_same else {}
    columns = {"first": levels[0], "second": levels[1], **names}
    return columns | {"reason": row["reason"], "note": (*kept_notes, *notes)} | same


# What is told of pairs among all objectives of a table, of which these are others.
_OF_PAIRS = (Reason.RESOLVED_ALONE, Reason.IMAGES_DECIDE, Reason.NO_DIFFERENCE)


def _contrasts(a: StudyData, b: StudyData, compared: Sequence[str]) -> Iterator[Row]:
    """The contrasts that both studies declare, of objectives that are compared."""
    theirs = {each.name: each for each in b.contrasts}
    alone = [
        {row["contrast"]: row for row in records_of(named_contrasts(data, data.contrasts))}
        for data in (a, b)
    ]
    for each in a.contrasts:
        other = theirs.get(each.name)
        alike = other and (each.of, each.at, each.minus, each.metric) == (
            other.of, other.at, other.minus, other.metric,
        )  # fmt: skip
        if not alike or not {*each.of} <= {*compared}:
            continue
        sides = [
            {x.objective: x for x in sweeps_by(data, each.metric) if x.objective in each.of}
            for data in (a, b)
        ]
        # + B1 - B2 + A2 - A1: the sign of `Contrast.of` changes from one to the next
        of = [("B", n) for n in each.of] + [("A", n) for n in each.of[::-1]]
        named = [
            side[n].renamed(f"{at}/{n}")
            for at, side in zip("AB", sides, strict=True)
            for n in each.of
        ]
        contrast = replace(each, of=tuple("/".join(pair) for pair in of))
        [row] = records_of(contrast_table([contrast], {each.metric: named}))
        own = [rows[each.name] for rows in alone]
        verdicts = {"at_first": outcome(own[0]), "at_second": outcome(own[1])}
        # failed trials at one level in both, as the difference counts them
        fixed = [replace(x, failed_as=CHANCE) for x in counted_alike(*named)]
        of_each = [replace(each, of=tuple(f"{at}/{n}" for n in each.of)) for at in "AB"]
        levels = contrast_table(of_each, {each.metric: fixed})["estimate"].tolist()
        yield {"what": each.name, **verdicts, **_row(row, levels)}


def _verdict(row: Row, p_holm: float) -> str:
    null = 1.0 if row["what"] == SD_STAR else 0.0
    ends = row.get("low", np.nan), row.get("high", np.nan)
    if row["reason"] or not p_holm <= LARGEST_P or not (ends[0] > null or ends[1] < null):
        return status_text(row["reason"])
    return _CHANGED.get(row["what"], _CHANGED[MEAN])[row["difference"] > null]


# For eyes


def headline(frame: pd.DataFrame) -> str:
    """`The same study on other versions: no answer is shown to change.`"""
    return f"{_subject(frame)}: {_outcome(records_of(frame[frame['part'] == ANSWERS]))}."


def _subject(frame: pd.DataFrame) -> str:
    names = {part: [*dict.fromkeys(x["what"])] for part, x in frame.groupby("part", sort=False)}
    settings = names.get(SETTINGS, [])
    others = [part for part in (VERSIONS, DATA) if part in names]
    if not settings:
        return f"The same study on {f'other {joined(others)}' if others else 'the same versions'}"
    few = settings[:_MOST_NAMED]
    more = [f"{len(settings) - len(few)} more"] if len(settings) > len(few) else []
    on = f", on other {joined(others)}" if others else ""
    return f"The same study but for {joined([*few, *more])}{on}"


def _outcome(rows: Sequence[Row]) -> str:
    changed = [row for row in rows if row["verdict"].split(" ")[-1] in _WORDS]
    compared = [row for row in rows if row["verdict"] != "not compared"]
    if not compared:
        return f"no answer is compared, as {rows[0]['note']}"
    if not changed:
        all_same = all(row["verdict"] == SAME for row in compared)
        return "every answer is the same" if all_same else "no answer is shown to change"
    texts = [_change(row) for row in changed[:_MOST_NAMED]]
    more = [f"{len(changed) - _MOST_NAMED} more"] if len(changed) > _MOST_NAMED else []
    return joined([*texts, *more])


_WORDS = {word.split(" ")[-1] for pair in _CHANGED.values() for word in pair}


def _change(row: Row) -> str:
    size = number(abs(row["difference"]))
    by = f"{size} times" if row["what"] == SD_STAR else f"by {size}"
    name = f"{row['objective']}'s {row['what']}" if row["objective"] else row["what"]
    return f"{name} {row['verdict']} {by}{interval(row['low'], row['high'])}"


def _short(text: str) -> str:
    return f"{text[: _MOST_LETTERS - 3]}..." if len(text) > _MOST_LETTERS else text


FACTS = Statistic(
    name="diff-facts",
    title="What differs",
    columns=(
        Column("part"),
        Column("what"),
        Column("objective"),
        Column("A", lambda row: _short(row["first"])),
        Column("B", lambda row: _short(row["second"])),
    ),
)
CHANGES = Statistic(
    name="diff-answers",
    title="Answers by {metric}, with 95 % intervals{images}",
    columns=(
        Column("objective"),
        Column(
            "what",
            means="the mean over the common settings, their SD*, the best level, or a contrast",
        ),
        Column("A", level_cell("first")),
        Column("B", level_cell("second")),
        Column("B - A", between("difference", ""), "of SD* the ratio B / A"),
        Column("p Holm", lambda row: row["p_holm"], drop_order=3),
        Column("in A", "at_first", "the best setting, or the contrast's verdict", drop_order=1),
        Column("in B", "at_second", drop_order=1),
        Column("verdict", means="not resolved: the studies cannot tell"),
    ),
    levels="first",
)
