"""What a reader is told of a reason: the one place where the notes of the analysis become text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from clsweep.analysis.reasons import UNRESOLVED, Note, Reason
from clsweep.display.numbers import count, mentioned, number
from clsweep.study.factors import FACTORS
from clsweep.version import VERSION_COLUMNS, public_version

if TYPE_CHECKING:
    import pandas as pd

NOTES_APART = "; "  # in one line; no text has it
MANY_NAMES = 4  # in front of one note

SIZES = ("encoder", "width")  # hyperparameters that make another network
CAPACITY = (
    "{names} swept: the networks differ in capacity and cost, so the best of them may only be the "
    "largest"
)
TEXTS: Mapping[Reason, str] = {
    Reason.ADAPTIVE_SAMPLER: "{samplers} samples favour good configurations",
    Reason.MIXED_SAMPLERS: "{samplers} mixed, not one even design",
    Reason.TRIALS_STOPPED: "{stopped} of {trials} trials were stopped early, which hides the bad "
    "ones",
    Reason.TRIALS_SKIPPED: "racing skipped {skipped} of {trials} planned trials, those of bad "
    "configurations",
    Reason.NO_SCORE: "no finished trial",
    Reason.ONE_CONFIG: "one configuration: no spread, and nothing to tune",
    Reason.ONE_SCORED: "one configuration has a score",
    Reason.NOT_SWEPT: "does not sweep {param}",
    Reason.NOTHING_SWEPT: "no hyperparameter takes two values",
    Reason.OFF_AXIS: "{params}: missing at some configurations, or without a place on the axis: "
    "left out, and averaged over",
    Reason.FEW_SETTINGS: "fewer than {least} settings: no {stat}",
    Reason.FEW_PAIRED: "{configs} configurations have both, at least {least} are needed",
    Reason.NO_PAIR: "no pair of {a} and {b} has both scores",
    Reason.NO_COUNTERPART: "{a} has one setting ({at}), at which {b} has no score",
    Reason.NOBODY_COMPETES: "no objective to compare",
    Reason.YARDSTICKS: "scored by different yardsticks: {a} against {b}",
    Reason.OTHER_SCALE: "not the paper's: {params}",
    Reason.NO_NEIGHBOURHOOD: "no configuration has a neighbour in every direction",
    Reason.NEIGHBOURS_FAILED: "each configuration has a neighbour that failed, or too few "
    "neighbours",
    Reason.EQUAL_SCORES: "every trial has the same score",
    Reason.EQUAL_MEANS: "every configuration has the same mean",
    Reason.EQUAL_RANKS: "the same in all configurations: no correlation",
    Reason.FEW_FOR_SURROGATE: "{configs} configurations are too few for a surrogate, which needs "
    "{least}",
    Reason.FEW_FOR_IMPORTANCE: "{configs} configurations are too few to rank hyperparameters, "
    "which needs {least}",
    Reason.SURROGATE_WEAK: "the surrogate explains R2 = {r2} of a possible {ceiling}",
    Reason.SURROGATE_WEAK_ONE_SEED: "the surrogate explains R2 = {r2}: with one seed the "
    "possible one is unknown",
    Reason.NO_EFFECT_PASSES: "no effect passes its test against the seed noise",
    Reason.FAILURES_DECIDE: "counted or left out, the failed trials give different winners",
    Reason.NO_DIFFERENCE: "no difference seen",
    Reason.NO_NOISE: "no interval: the seeds show no noise, or one side has no repeat",
    Reason.NO_NOISE_OF_SETTINGS: "no interval: one setting, or none differs",
    Reason.ONE_SEED: "one seed: no interval",
    Reason.ONE_SEED_NO_SPREAD: "one seed: no {stat}, which needs the seed noise",
    Reason.NOBODY_ELSE: "nobody else has a score here",
    Reason.PRINTED_SPREAD: "a spread over settings, which clsweep robustness measures",
    Reason.SEVERAL_SETTINGS: "{configs} configurations have the printed settings",
    Reason.PROTOCOL_UNKNOWN: "the study does not plan it at the paper's scale",
    Reason.NEEDS_CONFIGS: "needs more configurations, about {needs_configs}, or more seeds",
    Reason.NEEDS_SEEDS: "needs about {needs_seeds} seeds for the seed noise to be a quarter of the "
    "spread",
    Reason.NEEDS_SEEDS_FOR_POWER: "the largest that was seen needs about {needs_seeds} seeds for "
    "80 % power",
    Reason.NO_EFFECT_SEEN: "none was seen beyond what the noise makes",
    Reason.NO_SPREAD_SEEN: "no spread was seen beyond what the seed noise makes",
    Reason.UNFINISHED: "{configs} of {planned} planned configurations so far",
    Reason.TRIALS_FAILED: "{failed} of {trials} trials failed and are left out",
    Reason.TRIALS_FAILED_AS_WORST: "{failed} of {trials} trials failed and count as the worst "
    "score seen ({level})",
    Reason.WORST_UNKNOWN: "configurations that failed on most seeds: {lost}: how bad they are is "
    "not known, so intervals are open at the end that they could move",
    Reason.TRIALS_FAILED_AS_CHANCE: "{failed} of {trials} trials failed and count as chance "
    "({level})",
    Reason.LEFT_OUT: "{lost} of {configs} configurations have no score and are left out",
    Reason.LOST_TRIES: "{lost} of {configs} configurations have no score and are tries that bring "
    "nothing",
    Reason.ONE_CONFIG_FINISHED: "one configuration finished: no SD",
    Reason.ONE_VALUE_SCORED: "{params}: one value with a score, so not measured",
    Reason.FAILING_VALUES: "most trials at {values} failed: in no band",
    Reason.NO_WHOLE_CONFIG: "no configuration has finished on all {seeds} seeds",
    Reason.RACED: "racing: the means of configurations rest on {fewest} to {most} seeds",
    Reason.FEWER_SEEDS: "rests on {seeds} of {most} seeds",
    Reason.HIGHER_ON_FEWER: "{at} scores higher, on {seeds} of {most} seeds alone",
    Reason.SEEDS_FAILED: "{failed} of its {seeds} seeds failed",
    Reason.NEIGHBOUR_FAILED: "a neighbour failed on every seed",
    Reason.DEFAULT_WITHOUT_SCORE: "the default has no score",
    Reason.DEFAULT_UNKNOWN: "no default of {params} is given",
    Reason.DEFAULT_NOT_TRIED: "the default ({at}) is not among the configurations",
    Reason.DEFAULT_NEAREST: "the nearest configuration stands for the default ({at})",
    Reason.UNEVEN_CELLS: "the seed noise differs between configurations: tests by each one's own",
    Reason.SEEDS_AS_BLOCKS: "a seed shifts all scores alike: tests by what is left of the noise",
    Reason.UNEVEN_UNSEEN: "{settings} settings of {seeds} seeds: up to {factor} times the "
    "noise at the worst of them may go unseen, and intervals are then too narrow",
    Reason.COPIES: "{copies} of {configs} configurations repeat the scores of others at every "
    "seed: copies carry one draw of the noise",
    Reason.ONE_PER_VALUE: "one configuration per value: no interval",
    Reason.NOT_CORRECTED: "SD not corrected for seed noise",
    Reason.OPTIMISTIC: "picked and scored on the same noise, so optimistic",
    Reason.PESSIMISTIC: "{columns}: the best is picked and scored on the same noise, so "
    "pessimistic",
    Reason.PICKED: "picked on its own noise, so optimistic",
    Reason.CEILING_UNKNOWN: "one seed: the surrogate's ceiling is not known",
    Reason.SHARES_WITH_NOISE: "one seed: effects and seed noise cannot be told apart, so the "
    "shares hold both",
    Reason.OF_WHAT_WAS_TRIED: "over what the search tried: it tried good regions more often, so "
    "this is no share of the variance over the space",
    Reason.FEW_SAMPLED: "{settings} sampled settings: intervals may be too narrow",
    Reason.FEW_FLIPS: "{pairs} pairs are few for sign flips: p by the noise of all regions",
    Reason.P_FLOOR: "{draws} {unit} can give no p below {p_min}",
    Reason.P_PER_SETTING: "p is for no difference at any setting",
    Reason.SEED_SHIFT: "a seed seems to shift all settings (chance {chance}), so the seeds "
    "are the draws",
    Reason.SEED_SHIFT_OF_LEVELS: "a seed shifts all scores (F test, p = {p}): the intervals of "
    "levels rest on {seeds} seeds",
    Reason.SPREAD_WITHIN_NOISE: "a spread that does not exceed the seed noise counts as 0",
    Reason.SAME_AS_BEST: "same as the best",
    Reason.AT_EDGE: "at the edge of the swept {params}: the optimum may lie outside",
    Reason.BINNED: "{param} cut by rank into {bins} bins of equal count",
    Reason.BAND_OF_BINS: "band over {bins} bins of {param}, of equal count",
    Reason.BAND_AT_END: "band reaches the end of the swept values",
    Reason.NOISE_OF_CONFIGS: "noise is the configurations that share a {unit}",
    Reason.UNBALANCED: "unbalanced: values of {param} rest on different settings of the others, so "
    "no band",
    Reason.SHARED_SETTINGS: "averaged over the settings of the others that every value of "
    "{param} has a score at ({settings} of them)",
    Reason.AVERAGED: "averaged over its {params}",
    Reason.UNPAIRED_FEW_MATCH: "unpaired, few of their settings match: {a} against {b} "
    "configurations",
    Reason.UNPAIRED_NONE_SHARED: "unpaired, they sweep no hyperparameter in common: {a} against "
    "{b} configurations",
    Reason.COMMON_SETTINGS: "over the {common} settings of both, of {a} and {b}",
    Reason.PAIRS_LEFT_OUT: "{lost} of {pairs} pairs lack a score on one side and are left out",
    Reason.SEEDS_LEFT_OUT: "seeds without a partner are left out: {seeds}",
    Reason.SEEDS_IN_ORDER: "seeds in one of both are paired in their order: {a} with {b}",
    Reason.SEEDS_BY_ORDER: "hardly any seed in common: settings are paired, seeds are not",
    Reason.SEVERAL_DEVICES: "several devices",
    Reason.SEVERAL_VERSIONS: "several versions of {package}",
    Reason.VERSIONS_UNKNOWN: "versions not recorded",
    Reason.WORKERS_UNKNOWN: "workers not recorded: one counted",
    Reason.TIMES_UNKNOWN: "wall_time_s not recorded",
    Reason.SOME_TIMES_UNKNOWN: "{unknown} of {trials} trials do not say how long they took",
}


# What a table of scores is of where `evaluation` says so.
SCORED_ON_TEST = (
    "scored on the test split, after training on all training images. Nothing was held back to "
    "choose by, so the best of several is too good"
)
CONFIRMED_ON_TEST = (
    "search and fresh are both of the test split: fresh seeds take the luck of the seeds out, not "
    "that of the images that picked"
)


def version_notes(trials: pd.DataFrame) -> list[str]:
    """That several versions of what trains have made the trials, as they may differ in scores."""
    told = []
    for column in VERSION_COLUMNS:
        if column in trials:
            found = trials[column].dropna().astype(str).map(public_version).value_counts(sort=False)
            each = [f"{version:.40} ({count(num)} trials)" for version, num in found.items()]
            name, more = column.partition("_")[0], f" and {len(each) - 3} more" * (len(each) > 3)
            told += [f"{name} {', '.join(each[:3])}{more}"] if len(each) > 1 else []
    return [f"trials of several versions, whose scores may differ: {'; '.join(told)}"] * bool(told)


def said(reason: str, figures: Mapping[str, Any]) -> str:
    """The text of a reason: `3 of 60 trials failed`."""
    return TEXTS[Reason(reason)].format_map({k: _text(value) for k, value in figures.items()})


def _text(figure: Any) -> str:
    if isinstance(figure, tuple):
        return ", ".join(map(mentioned, figure))
    if isinstance(figure, Integral):
        return count(int(figure))
    return number(float(figure)) if isinstance(figure, Real) else str(figure)


def text_of(*notes: Note) -> str:
    """Notes in one line; the objective that one is about stands before it."""
    return NOTES_APART.join(
        f"{note.about}: {text}" if note.about else text
        for note in notes
        for text in (said(note.reason, dict(note.figures)),)
    )


def is_measured(reason: str) -> bool:
    """Whether a row with this reason was measured, if not resolved."""
    return not reason or reason in UNRESOLVED


def status(reason: str) -> str:
    """What a row without a claim is."""
    return "not resolved" if is_measured(reason) else "not measured"


def verdict(row: Mapping[str, Any]) -> str:
    """The winner of a row, or that there is none."""
    return row["winner"] or status(row["reason"])


def worded(frame: pd.DataFrame) -> pd.DataFrame:
    """A table of the analysis with its notes as text."""
    if "note" not in frame:
        return frame
    notes: Iterable[tuple[Note, ...]] = frame["note"]
    return frame.assign(note=[text_of(*each) for each in notes])


def levels_of(frame: pd.DataFrame) -> list[str]:
    """The factors whose levels a table has side by side: its first columns."""
    return list(itertools.takewhile(lambda name: name in FACTORS, map(str, frame)))


def notes(frame: pd.DataFrame) -> list[str]:
    """The notes of a table, each once, with the objectives or pairs that it is about unless that is
    all of them.
    """
    if "note" not in frame:
        return []
    about: dict[str, list[str]] = {}
    levels = levels_of(frame)
    for row in frame.to_dict("records"):
        texts = row["note"].split(NOTES_APART) if isinstance(row["note"], str) else []
        if texts and texts[0] and (reason := row.get("reason", "")):
            texts[0] = f"{status(reason)}: {texts[0]}"
        cell = "/".join(row[name] for name in levels)
        who = f"{cell}/{_about(row)}" if cell else _about(row)
        for text in filter(None, texts):
            about.setdefault(text, []).append(who)
    return [_note(text, list(dict.fromkeys(who)), len(frame)) for text, who in about.items()]


def _about(row: Mapping[Any, Any]) -> str:
    if "a" in row:
        return f"{row['a']} - {row['b']}"
    name = str(row.get("objective") or row.get("region", ""))
    # The best may well be known where the robust one is not.
    return f"{name} ({row['kind']})" if row.get("kind") and row["reason"] else name


def _note(text: str, who: Sequence[str], num_rows: int) -> str:
    if len(who) > MANY_NAMES:
        return f"{', '.join(who[:MANY_NAMES])} and {len(who) - MANY_NAMES} more: {text}"
    return text if len(who) == num_rows > 1 else f"{', '.join(who)}: {text}"
