"""Why a table has no number, and what to beware of in one: causes with their figures, no words.

`clsweep.findings.notes` turns them into what a reader is told, for the command line and the report
alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum, auto
from typing import Any


class Reason(StrEnum):
    """One cause each. In brackets: the figures that a `Note` of it has."""

    # The samples say nothing of the space as a whole.
    ADAPTIVE_SAMPLER = auto()  # the sampler favours good configurations (samplers)
    MIXED_SAMPLERS = auto()  # not one even design (samplers)
    TRIALS_STOPPED = auto()  # stopping hid the bad configurations (stopped, trials)

    TRIALS_SKIPPED = auto()  # racing gave bad configurations fewer seeds (skipped, trials)

    # There is nothing to measure.
    NO_SCORE = auto()  # no trial has finished
    ONE_CONFIG = auto()  # one configuration was tried
    ONE_SCORED = auto()  # one configuration has a score
    NOT_SWEPT = auto()  # this hyperparameter takes one value (param)
    NOTHING_SWEPT = auto()  # all of them do
    OFF_AXIS = auto()  # these are missing somewhere, or have no place on their axis (params)
    FEW_SETTINGS = auto()  # too few for a spread (least, stat)
    FEW_PAIRED = auto()  # configurations with diagnostic and metric (configs, least)
    NO_PAIR = auto()  # no setting and seed has the scores of both (a, b)
    NO_COUNTERPART = auto()  # a has one setting, at which b has no score (a, at, b)
    NOBODY_COMPETES = auto()  # no objective sweeps this hyperparameter evenly
    YARDSTICKS = auto()  # the scores were made in different ways (a, b)
    PRINTED_SPREAD = auto()  # a paper's number is a spread over settings, without an interval
    OTHER_SCALE = auto()  # the run fixes these otherwise than the paper (params)
    NO_NEIGHBOURHOOD = auto()  # no configuration has enough neighbours
    NEIGHBOURS_FAILED = auto()  # none has enough neighbours, or one of them failed

    # It was measured, and nothing can be told.
    EQUAL_SCORES = auto()  # of all trials
    EQUAL_MEANS = auto()  # of all configurations
    EQUAL_RANKS = auto()  # the diagnostic or the metric is the same everywhere
    FEW_FOR_SURROGATE = auto()  # configurations (configs, least)
    FEW_FOR_IMPORTANCE = auto()  # configurations (configs, least)
    SURROGATE_WEAK = auto()  # it predicts too little of the possible (r2, ceiling)
    SURROGATE_WEAK_ONE_SEED = auto()  # and the possible is not known (r2)
    NO_EFFECT_PASSES = auto()  # no F test against the seed noise does
    NO_DIFFERENCE = auto()  # none was seen
    FAILURES_DECIDE = auto()  # counted or left out, failed trials give different winners
    NO_NOISE = auto()  # the seeds show none, or one side has no repeat: no interval
    NO_NOISE_OF_SETTINGS = auto()  # one setting, or none differs: no interval
    ONE_SEED = auto()  # no interval
    ONE_SEED_NO_SPREAD = auto()  # the spread cannot be told from the seed noise (stat)
    NOBODY_ELSE = auto()  # has a score here
    SEVERAL_SETTINGS = auto()  # may be the one of a paper's number (configs)
    PROTOCOL_UNKNOWN = auto()  # the study does not plan a paper's number at the paper's scale

    # What it would take.
    NEEDS_CONFIGS = auto()  # or more seeds (needs_configs)
    NEEDS_SEEDS = auto()  # for noise of a quarter of the spread (needs_seeds)
    NEEDS_SEEDS_FOR_POWER = auto()  # to find the largest effect seen (needs_seeds)
    NO_EFFECT_SEEN = auto()  # beyond what the noise makes
    NO_SPREAD_SEEN = auto()  # beyond what the noise makes

    # What is missing.
    UNFINISHED = auto()  # (configs, planned)
    TRIALS_FAILED = auto()  # and are left out (failed, trials)
    TRIALS_FAILED_AS_WORST = auto()  # count as the worst score of the table (failed, trials, level)
    WORST_UNKNOWN = auto()  # configurations failed on most seeds: ends are open (lost)
    TRIALS_FAILED_AS_CHANCE = auto()  # count as a guess (failed, trials, level)
    LEFT_OUT = auto()  # configurations without a score are (lost, configs)
    LOST_TRIES = auto()  # tries that bring nothing (lost, configs)
    ONE_CONFIG_FINISHED = auto()  # no SD
    ONE_VALUE_SCORED = auto()  # of these hyperparameters (params)
    FAILING_VALUES = auto()  # more than half of their trials failed (values)
    NO_WHOLE_CONFIG = auto()  # none has finished on all seeds (seeds)
    RACED = auto()  # so means rest on unequal numbers of seeds (fewest, most)
    FEWER_SEEDS = auto()  # than others have (seeds, most)
    HIGHER_ON_FEWER = auto()  # a configuration that is not taken for it (at, seeds, most)
    SEEDS_FAILED = auto()  # of this configuration (failed, seeds)
    NEIGHBOUR_FAILED = auto()  # on every seed
    DEFAULT_WITHOUT_SCORE = auto()
    DEFAULT_UNKNOWN = auto()  # of these hyperparameters (params)
    DEFAULT_NOT_TRIED = auto()  # nor a configuration near it (at)
    DEFAULT_NEAREST = auto()  # a near configuration stands for it (at)

    # How sure the numbers are.
    UNEVEN_CELLS = auto()  # the seed noise differs between cells
    SEEDS_AS_BLOCKS = auto()  # a seed shifts all cells, which is no noise of their differences
    UNEVEN_UNSEEN = auto()  # one with more noise would be (settings, seeds, factor)
    COPIES = auto()  # of other configurations, to the last digit at all seeds (copies, configs)
    ONE_PER_VALUE = auto()  # one configuration per value: no interval
    NOT_CORRECTED = auto()  # the SD holds the seed noise
    OPTIMISTIC = auto()  # picked and scored on the same noise
    PESSIMISTIC = auto()  # these columns, for that reason (columns)
    PICKED = auto()  # for its score, which is too good
    CEILING_UNKNOWN = auto()  # one seed: what a surrogate can explain is not known
    SHARES_WITH_NOISE = auto()  # one seed: the shares hold effects and seed noise
    OF_WHAT_WAS_TRIED = auto()  # a search's tries: no share of the variance over the space
    FEW_SAMPLED = auto()  # the intervals may be too narrow (settings)
    FEW_FLIPS = auto()  # p is that of the noise of all regions (pairs)
    P_FLOOR = auto()  # of so many pairs or settings (draws, unit, p_min)
    P_PER_SETTING = auto()  # the hypothesis is no difference at any setting
    SEED_SHIFT = auto()  # a seed shifts all settings: its means are the draws (chance)
    SEED_SHIFT_OF_LEVELS = auto()  # and all levels: their intervals hold it (p, seeds)
    SPREAD_WITHIN_NOISE = auto()  # it counts as 0
    SAME_AS_BEST = auto()  # configuration
    AT_EDGE = auto()  # of the swept range (params)

    # What the numbers are made of.
    BINNED = auto()  # numbers are cut by rank (param, bins)
    BAND_OF_BINS = auto()  # (param, bins)
    BAND_AT_END = auto()  # of the swept values
    NOISE_OF_CONFIGS = auto()  # that share a value or bin (unit)
    UNBALANCED = auto()  # values rest on different settings of the others (param)
    SHARED_SETTINGS = auto()  # of the others alone are averaged (param, settings)
    AVERAGED = auto()  # over what the other objective does not sweep (params)
    UNPAIRED_FEW_MATCH = auto()  # settings (a, b: configurations)
    UNPAIRED_NONE_SHARED = auto()  # hyperparameters (a, b: configurations)
    COMMON_SETTINGS = auto()  # of both alone (common, a, b)
    PAIRS_LEFT_OUT = auto()  # without a score on one side (lost, pairs)
    SEEDS_LEFT_OUT = auto()  # without a partner (seeds)
    SEEDS_IN_ORDER = auto()  # with other labels on either side are paired so (a, b)
    SEEDS_BY_ORDER = auto()  # hardly any is in both: each side has noise of its own

    # What was recorded.
    SEVERAL_DEVICES = auto()
    SEVERAL_VERSIONS = auto()  # (package)
    VERSIONS_UNKNOWN = auto()
    WORKERS_UNKNOWN = auto()  # one is counted
    TIMES_UNKNOWN = auto()  # of all trials
    SOME_TIMES_UNKNOWN = auto()  # (unknown, trials)


# The others say, as the reason of a row, that nothing was measured.
UNRESOLVED = frozenset(
    {
        Reason.EQUAL_SCORES,
        Reason.EQUAL_MEANS,
        Reason.EQUAL_RANKS,
        Reason.FEW_FOR_SURROGATE,
        Reason.FEW_FOR_IMPORTANCE,
        Reason.SURROGATE_WEAK,
        Reason.SURROGATE_WEAK_ONE_SEED,
        Reason.NO_EFFECT_PASSES,
        Reason.NO_DIFFERENCE,
        Reason.FAILURES_DECIDE,
        Reason.NO_NOISE,
        Reason.NO_NOISE_OF_SETTINGS,
        Reason.ONE_SEED,
        Reason.ONE_SEED_NO_SPREAD,
        Reason.NOBODY_ELSE,
        Reason.SEVERAL_SETTINGS,
        Reason.PROTOCOL_UNKNOWN,
    }
)

# A `Reason`, and a tuple of `Note`, which is text in the tables of `Findings`.
COLUMNS = {
    "reason": "why nothing was measured or resolved; empty where something was",
    "note": "that, what is missing, and what to beware of",
}


@dataclass(frozen=True, kw_only=True)
class Note:
    """A cause with its figures.

    Attributes:
        figures: names and values; a tuple of names is a list.
        about: the objective that it is about, where the row has several.
    """

    reason: Reason
    figures: tuple[tuple[str, Any], ...] = ()
    about: str = ""

    def of(self, objective: str) -> Note:
        """The same about one objective."""
        return replace(self, about=objective)


def note(reason: Reason, **figures: Any) -> Note:
    """A note with these figures."""
    return Note(reason=reason, figures=tuple(figures.items()))


def noted(*notes: Note, why: Note | None = None) -> dict[str, Any]:
    """The `COLUMNS` of a row; `why` it has nothing to say comes first."""
    return {
        "reason": why.reason if why else "",
        "note": tuple(dict.fromkeys((why, *notes) if why else notes)),
    }
