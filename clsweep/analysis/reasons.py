"""Why a table has no number, and what to beware of in one: the one table of causes.

Tables hold causes with their figures, no words. `clsweep.sweeps.notes` fills the words in, for
the command line and the report alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

# One cause each, with what a reader is told of it; in braces the figures of a `Note` of it.
TEXTS = {
    # The samples say nothing of the space as a whole.
    "ADAPTIVE_SAMPLER": "{samplers} samples favour good configurations",
    "MIXED_SAMPLERS": "{samplers} mixed, not one even design",
    "TRIALS_STOPPED": "{stopped} of {trials} trials were stopped early, which hides the bad ones",
    "TRIALS_SKIPPED": "racing skipped {skipped} of {trials} planned trials, those of bad "
    "configurations",
    # There is nothing to measure.
    "NO_SCORE": "no finished trial has a score",
    "ALL_FAILED": "all trials failed ({trials})",
    "ONE_CONFIG": "one configuration: no spread, and nothing to tune",
    "ONE_SCORED": "one configuration has a score",
    "NOT_SWEPT": "does not sweep {param}",
    "NOTHING_SWEPT": "no hyperparameter takes two values",
    "OFF_AXIS": "{params}: missing at some configurations, or without a place on the axis: left "
    "out, and averaged over",
    "FEW_SETTINGS": "fewer than {least} settings: no {stat}",
    "FEW_PAIRED": "a rank correlation needs {least} configurations with both scores, given "
    "{configs}",
    "NO_PAIR": "no pair of {a} and {b} has both scores",
    "NO_COUNTERPART": "{a} has one setting ({at}), at which {b} has no score",
    "NO_SETTING": "no setting has {at}",
    "NO_VALUE": "no trial has {metric}",
    "SAME_SETTINGS": "the same settings are added and subtracted",
    "OPEN_SETTINGS": "{lost} of {configs} settings have no score",
    "NOBODY_COMPETES": "no objective to compare",
    "YARDSTICKS": "scored by different yardsticks: {a} against {b}",
    "OTHER_METRIC": "the metric is {a} in one study and {b} in the other",
    "OTHER_IMAGES": "scored on other images",
    "NONE_IN_COMMON": "no setting of the swept hyperparameters is in both studies",
    "NONE_IN_BOTH": "no objective is in both studies",
    "PRINTED_SPREAD": "a spread over settings, which clsweep robustness measures",
    "OTHER_SCALE": "not the paper's: {params}",
    "NO_NEIGHBOURHOOD": "no configuration has a neighbour in every direction",
    "NEIGHBOURS_FAILED": "each configuration has a neighbour that failed, or too few neighbours",
    "NO_EARLY_SCORE": "no score before the last epoch: eval_every sets when a trial is scored",
    "NO_CURVE": "fewer than {least} values of {param} at all but one value of {by}, or too few "
    "settings",
    # It was measured, and nothing can be told: `UNRESOLVED`.
    "EQUAL_SCORES": "every trial has the same score",
    "EQUAL_MEANS": "every configuration has the same mean",
    "EQUAL_RANKS": "the same in all configurations: no correlation",
    "FEW_FOR_SURROGATE": "{configs} configurations are too few for a surrogate, which needs "
    "{least}",
    "SURROGATE_WEAK": "the surrogate explains R2 = {r2} of a possible {ceiling}",
    "SURROGATE_WEAK_ONE_SEED": "the surrogate explains R2 = {r2}: with one seed the possible one "
    "is unknown",
    "NO_SPREAD_SEEN": "no spread was seen beyond what the seed noise makes",
    "NO_DIFFERENCE": "no difference seen",
    "BEST_NOT_BOUNDED": "the best {param} is bounded at {num} of {levels} values of {by}: "
    "elsewhere the curve is too flat, or the seeds too few",
    "ONE_BEST": "one {param} may be best everywhere",
    "IMAGES_DECIDE": "no number of seeds helps, as the {images} scored images decide",
    "RESOLVED_ALONE": "would be resolved alone, but not as one of {tests} (p by Holm)",
    "RESOLVED_BY_INTERVAL": "the interval shows a difference, but the test does not",
    "RESOLVED_BY_TEST": "the test shows a difference, but the interval does not",
    "BEHIND_NOT_SHOWN": "not resolved against {others}",
    "FAILURES_DECIDE": "counted or left out, the failed trials give different winners",
    "SAME_SCORES": "both score the same at every seed",
    "NO_NOISE": "no interval: the seeds show no noise, or one side has no repeat",
    "NO_NOISE_OF_SETTINGS": "no interval: one setting, or none differs",
    "ONE_DECIDES": "more than half of a sample's settings: one of them decides, so no interval",
    "ONE_SEED": "one seed: no interval",
    "ONE_SEED_NO_SPREAD": "one seed: no {stat}, which needs the seed noise",
    "NOBODY_ELSE": "nobody else has a score here",
    "SEVERAL_SETTINGS": "{configs} configurations have the printed settings",
    "PROTOCOL_UNKNOWN": "the study does not plan it at the paper's scale",
    "SEEDS_APART": "{parts} parts of the settings share no seed: what their seeds give cannot be "
    "told from what the settings do",
    # What it would take.
    "NEEDS_CONFIGS": "needs more configurations, about {needs_configs}, or more seeds",
    "NEEDS_SEEDS": "needs about {needs_seeds} seeds for the seed noise to be a quarter of the "
    "spread",
    # What is missing.
    "UNFINISHED": "{configs} of {planned} planned configurations so far",
    "TRIALS_FAILED": "{failed} of {trials} trials failed and are left out",
    "TRIALS_FAILED_AS_WORST": "{failed} of {trials} trials failed and count as the worst score "
    "seen ({level})",
    "WORST_UNKNOWN": "configurations that failed on most seeds: {lost}: how bad they are is not "
    "known, so intervals are open at the end that they could move",
    "TRIALS_FAILED_AS_CHANCE": "{failed} of {trials} trials failed and count as chance ({level})",
    "LEFT_OUT": "{lost} of {configs} configurations have no score and are left out",
    "STOPPED_LEFT_OUT": "{lost} of {configs} configurations were stopped early and are left out",
    "LOST_TRIES": "{lost} of {configs} configurations have no score and are tries that bring "
    "nothing",
    "ONE_CONFIG_FINISHED": "one configuration finished: no SD",
    "ONE_VALUE_SCORED": "{params}: one value with a score, so not measured",
    "FAILING_VALUES": "most trials at {values} failed: in no band",
    "NO_WHOLE_CONFIG": "no configuration has finished on all {seeds} seeds",
    "RACED_SEEDS": "racing skipped trials of bad configurations: the space is judged by the "
    "{seeds} seeds that all of the study ran on, its best ones by all seeds",
    "RACED": "racing: the means of configurations rest on {fewest} to {most} seeds",
    "FEWER_SEEDS": "rests on {seeds} of {most} seeds",
    "FRESH_OF_OTHERS": "the fresh seeds are of other settings, so they do not count",
    "HIGHER_ON_FEWER": "{at} scores higher, on {seeds} of {most} seeds alone",
    "SEEDS_FAILED": "{failed} of its {seeds} seeds failed",
    "NEIGHBOUR_FAILED": "a neighbour failed on every seed",
    "DEFAULT_WITHOUT_SCORE": "the default has no score",
    "DEFAULT_UNKNOWN": "no default of {params} is given",
    "DEFAULT_NOT_TRIED": "the default ({at}) is not among the configurations",
    "FROM_FIRST": "no default among the settings: from the first one ({at})",
    "DEFAULT_NEAREST": "the nearest configuration stands for the default ({at})",
    # How sure the numbers are.
    "UNEVEN_CELLS": "the seed noise looks uneven (Cochran's test): tests by each setting's own",
    "COPIES": "{copies} of {configs} configurations repeat the scores of others at every seed: "
    "copies carry one draw of the noise",
    "ONE_PER_VALUE": "one configuration per value: no interval",
    "NOT_CORRECTED": "SD not corrected for seed noise",
    "NOISY_SHARE": "the share near the best counts means with seed noise, without which every "
    "setting may be near",
    "PESSIMISTIC": "{columns}: the best is picked and scored on the same noise, so pessimistic",
    "ON_FRESH": "on {seeds} fresh seeds",
    "FRESH_ASIDE": "on the study's seeds, as both best settings share no two fresh ones: those of "
    "{of} are set aside",
    "BY_STUDY_SEEDS": "shares and levels but the best are by the study's own seeds, whose best, "
    "{at}, fresh seeds overturned",
    "OVERTURNED": "fresh seeds prefer it to {at}, the best on the study's own, which flatters it a "
    "little",
    "TIED": "tied by its mean with {at}: of equals the one planned first is named",
    "PICKED": "picked on its own noise, so optimistic",
    "CEILING_UNKNOWN": "one seed: the surrogate's ceiling is not known",
    "SHARES_WITH_NOISE": "one seed: effects and seed noise cannot be told apart, so the shares "
    "hold both",
    "TRIED_WHERE_GOOD": "the search tried mostly good settings: elsewhere this rests on few, and "
    "on the smoothness of the surrogate (R2 = {r2} of settings left out)",
    "BEST_NOT_USABLE": "{at} of the best setting is no usable value: by the surrogate its level is "
    "not surely near the best",
    "FULL_LENGTH": "by trials of full length alone: {stopped} of {trials} were stopped early",
    "EARLY_OF_LONG": "lr_schedule {schedules}: this is about stopping these runs early, not about "
    "runs planned as short, whose rate would have fallen by then",
    "FEW_SAMPLED": "{settings} sampled settings: intervals may be too narrow",
    "UNSEEN": "{settings} sampled settings may all miss a part of the space, of up to {percent} % "
    "(rule of three): no interval holds for what is worse there",
    "SPREAD_WITHIN_NOISE": "a spread that does not exceed the noise counts as 0",
    "ASKED_LATER": "asked after {trials} trials had ended, so it is no prediction",
    "THESE_IMAGES": "for the scored images alone",
    "SAME_AS_BEST": "same as the best",
    "AT_EDGE": "at the edge of the swept {params}: the optimum may lie outside",
    "NO_LINE": "no straight line goes through the best values: the shift is their trend, its "
    "interval as much wider",
    "NO_CURVE_FITS": "no parabola or cubic fits the scores: the best {param} lies between the "
    "neighbours of values that may be best",
    # What the numbers are made of.
    "WITHIN_BRANCH": "{param} is swept at {at} alone: over these {num} of {configs} configurations",
    "NESTED": "{term}: nested, so one factor of {levels} settings, which all count alike",
    "BINNED": "{param} cut by rank into {bins} bins of equal count",
    "NOISE_OF_CONFIGS": "noise is the configurations that share a {unit}",
    "UNBALANCED": "unbalanced: values of {param} rest on different settings of the others, so no "
    "band",
    "LEAST_SQUARES": "least-squares means, as {lost} settings have no score: as if every value of "
    "{param} had been tried at all settings of the others",
    "AVERAGED": "averaged over its {params}",
    "UNPAIRED_FEW_MATCH": "unpaired, few of their settings match: {a} against {b} configurations",
    "UNPAIRED_NONE_SHARED": "unpaired, they sweep no hyperparameter in common: {a} against {b} "
    "configurations",
    "COMMON_SETTINGS": "over the {common} settings of both, of {a} and {b}",
    "PAIRS_LEFT_OUT": "{lost} of {pairs} pairs lack a score on one side and are left out",
    "SEEDS_LEFT_OUT": "seeds without a partner are left out: {seeds}",
    "SEEDS_IN_ORDER": "seeds in one of both are paired in their order: {a} with {b}",
    "SEEDS_OF_EACH": "other seeds: unpaired, by the seeds of each study",
    "SEEDS_BY_ORDER": "hardly any seed in common: settings are paired, seeds are not",
    # What was recorded.
    "SEVERAL_DEVICES": "several devices",
    "SEVERAL_VERSIONS": "several versions of {package}",
    "VERSIONS_UNKNOWN": "versions not recorded",
    "WORKERS_UNKNOWN": "workers not recorded: one counted",
    "TIMES_UNKNOWN": "wall_time_s not recorded",
    "SECOND_OF_THESE_IMAGES": "intervals of {metric} are for these images alone",
    "SECOND_UNKNOWN": "{metric} not recorded",
    "SOME_TIMES_UNKNOWN": "{unknown} of {trials} trials do not say how long they took, or "
    "on how many workers",
}
_of_names: Any = StrEnum  # which no checker of types reads
Reason = _of_names("Reason", {name: name.lower() for name in TEXTS})

# The others say, as the reason of a row, that nothing was measured.
_CAUSES = list(Reason)
UNRESOLVED = frozenset(
    _CAUSES[_CAUSES.index(Reason.EQUAL_SCORES) : _CAUSES.index(Reason.NEEDS_CONFIGS)]
)


@dataclass(frozen=True, kw_only=True)
class Note:
    """A cause with its figures.

    Attributes:
        figures: names and values; a tuple of names is a list.
        about: the objective that it is about, where the row has several.
    """

    reason: str
    figures: tuple[tuple[str, Any], ...] = ()
    about: str = ""

    def of(self, objective: str) -> Note:
        """The same about one objective."""
        return replace(self, about=objective)


def note(reason: str, **figures: Any) -> Note:
    """A note with these figures."""
    return Note(reason=reason, figures=tuple(figures.items()))


def noted(*notes: Note, why: Note | None = None) -> dict[str, Any]:
    """The columns of a row that say why: the `Reason` that it has nothing to say, and a tuple of
    `Note`, which is text in the tables of `Statistics`; `why` comes first.
    """
    return {
        "reason": why.reason if why else "",
        "note": tuple(dict.fromkeys((why, *notes) if why else notes)),
    }


def with_notes(names: str) -> tuple[str, ...]:
    """The columns of a table in their order, by names with blanks between, and those of `noted`."""
    return (*names.split(), *noted())
