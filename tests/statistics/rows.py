"""Rows of tables that sentences are made of, most of which no planted study has."""

import math

import pandas as pd

from clsweep.analysis.reasons import Reason, note
from clsweep.sweeps.notes import note_text
from tests.statistics.given import sentences_of

NAN, INF = math.nan, math.inf
LOST = {"winner": "", "resolved": False}

# A row of each table, which is resolved in favour of dcl.
PAIR = {
    "a": "dcl", "b": "simclr", "region": "", "num_pairs": 30, "num_seeds": 3, "p": 0.001,
    "p_holm": 0.002, "needs_seeds": NAN, "needs_configs": NAN, "needs_low": NAN, "needs_high": NAN,
    "winner": "dcl", "resolved": True, "reason": "", "note": "",
}  # fmt: skip
RATIO = PAIR | {"estimate": 0.52, "low": 0.35, "high": 0.78, "value_a": 0.98, "value_b": 1.87}
LEAD = PAIR | {"estimate": 1.8, "low": 1.2, "high": 2.4, "value_a": 90.0, "value_b": 88.2}
EFFECT = {
    "objective": "dcl", "method": "sobol", "term": "tau", "order": 1, "null": 0.05,
    "resolved": True, "reason": "", "note": "", "first": 0.1, "first_low": 0.05, "first_high": 0.2,
    "total": 0.71, "total_low": 0.6, "total_high": 0.8,
}  # fmt: skip
BAND = {
    "objective": "dcl", "band_param": "tau", "band_low": 0.07, "band_high": 0.5, "band_ratio": 7.14,
    "band_sure_low": 0.07, "band_sure_high": 0.5, "band_end": "", "band_bins": NAN,
    "level_noise": 0.1, "noise_of": "seeds",
}  # fmt: skip
REGION = {
    "by": "tau", "region": "tau=0.1", "objective": "dcl", "winner": "dcl", "resolved": True,
    "reason": "", "runner_up": "simclr", "mean": 90.0, "lead": 1.0, "low": 0.4, "high": 1.6,
    "p_holm": 0.01, "note": "",
}  # fmt: skip
COST = {
    "objective": "dcl", "best_level": 90.0, "k_within": 4.0, "k_low": 2.0, "k_high": 7.0,
    "default_at": "tau=0.1", "default": 88.0, "tunability": 2.1, "tunability_low": 1.5,
    "tunability_high": 2.7, "reason": "", "note": "",
}  # fmt: skip
FAILURE = {
    "objective": "simclr", "param": "tau", "region": "tau=0.05", "trials": 30, "failed": 12,
    "rate": 0.4, "p_holm": 0.001, "resolved": True,
}  # fmt: skip
LINK = {
    "objective": "dcl", "diagnostic": "q_b_mean", "rho": -0.7, "low": -0.8, "high": -0.5,
    "p_holm": 0.01, "resolved": True, "reason": "",
}  # fmt: skip
FRESH = {
    "objective": "dcl", "rank": 1, "config": 0, "at": "tau=0.1", "search": 94.9, "fresh": 94.1,
    "fresh_low": 93.8, "fresh_high": 94.4, "fresh_seeds": 5, "fresh_failed": 0,
    "low": 94.6, "high": 95.2, "test": 93.5, "test_low": 93.1, "test_high": 93.9,
}  # fmt: skip
TABLES = {  # of a question: the table that it is told of, and its row
    "robustness": ("compare_std", RATIO),
    "comparison-mean": ("compare_mean", LEAD),
    "sensitivity": ("sensitivity", EFFECT),
    "bands": ("robustness", BAND),
    "winners": ("winners", REGION),
    "tuning-cost": ("tuning_cost", COST),
    "failure-regions": ("failure_regions", FAILURE),
    "links": ("links", LINK),
    "recommendation": ("confirmation", FRESH),
}


def sentences(question, *changes, about=()):
    """What is said of a table with a row of its kind for each of `changes`."""
    table, row = TABLES[question]
    owner = "robustness" if question == "bands" else question
    return sentences_of(owner, about=about, **{table: [row | change for change in changes]})


SWAPPED = {"a": "simclr", "b": "dcl"}
SEEN = LOST | {"estimate": 0.8, "low": 0.4, "high": 1.9, "p_holm": 0.4}
NO_ENDS = {"low": NAN, "high": NAN}
ANOVA = {"method": "anova", "total": NAN, "total_low": NAN, "total_high": NAN}
SMALL = ANOVA | {"term": "lr", "first": 0.005, "first_low": 0.003, "first_high": 0.008,
                 "null": 0.001}  # fmt: skip
APART = {"term": "tau x lr", "order": 2, "resolved": False, "cell": "tau=0.07, lr=1",
         "effect": -3.1, "effect_low": -5.2, "effect_high": -1.0}  # fmt: skip
NO_EFFECT = {"term": "", "first": NAN, "total": NAN, "resolved": False}
NOISY = {"band_sure_low": NAN, "band_sure_high": NAN, "level_noise": 0.44}
ONE_FRESH = {"test": NAN, "fresh_seeds": 1, "fresh_low": NAN, "fresh_high": NAN}
RARE = [
    # The loser first, a spread of zero, ends that are open or not known.
    ("robustness", SWAPPED | {"estimate": 2.0, "low": 1.25, "high": INF, "value_a": 2.0,
                              "value_b": 1.0}),
    ("robustness", {"estimate": 0.0, "low": 0.0, "value_a": 0.0}),
    ("robustness", SEEN | {"high": INF}),
    ("robustness", SEEN | NO_ENDS | {"reason": Reason.ONE_SEED_NO_SPREAD, "note": "one seed; b"}),
    ("robustness", SEEN | {"needs_configs": 90.0, "needs_low": 50.0, "needs_high": INF}),
    ("comparison-mean", SWAPPED | {"estimate": -1.8, "low": -2.4, "high": -1.2}),
    ("comparison-mean", LOST | {"estimate": -0.3, "low": -1.0, "high": 0.4}),
    ("comparison-mean", LOST | {"estimate": 0.3, "low": NAN, "high": 1.0}),
    ("sensitivity", {}, {"term": "lr", "total": 0.5, "total_low": 0.4, "total_high": 0.61}),
    ("sensitivity", {}, {"term": "lr", "total_low": NAN, "total_high": NAN}),
    ("sensitivity", {"total": NAN, "r2": 0.991}),
    ("sensitivity", SMALL, SMALL | APART | {"opposite": "lr=0.1"}),
    ("sensitivity", SMALL, SMALL | {"term": "tau x lr", "order": 2}),
    ("sensitivity", ANOVA | {"first": 0.35, "first_low": 0.0, "first_high": 0.65, "null": 0.32}),
    ("sensitivity", NO_EFFECT | {"reason": Reason.ADAPTIVE_SAMPLER, "note": "tpe samples"}),
    ("bands", {}, {"objective": "simclr", "band_sure_low": 0.1, "band_sure_high": 0.1},
     {"band_end": "both", "num_failed": 1}),
    ("bands", NOISY | {"noise_of": "configurations"}),
    ("tuning-cost", {"k_high": NAN, "tunability_low": -0.1}),
    ("tuning-cost", {"note": note_text(note(Reason.DEFAULT_NEAREST, at="tau=0.07"))}),
    ("failure-regions", {}),
    ("links", {}, {"diagnostic": "effective_rank", "rho": 0.5, "low": 0.2, "high": 0.7}),
    ("recommendation", {}),
    ("recommendation", ONE_FRESH),
    ("recommendation", {"fresh": NAN, "fresh_seeds": 0, "fresh_failed": 5}),
]  # fmt: skip
LEAST = {"metric": "loss", "unit": "", "mode": "min"}
# A score to be small, and excesses that noise explains.
RARE_OF = [
    ({}, "recommendation", {"search": 94.5}),
    ({}, "recommendation", {"low": NAN}),
    ({}, "recommendation", {"fresh_low": NAN, "fresh_high": NAN}),
    # An end at 100 % is no shorter interval: the other side explains the excess.
    ({}, "recommendation", {"fresh": 98.6, "fresh_low": 95.2, "fresh_high": 100, "search": 99.9}),
    (LEAST, "comparison-mean", {}),
    (LEAST, "recommendation", {}),
    (LEAST, "recommendation", {"search": 93.1, "low": 92.8, "high": 93.4}),
]
WON = PAIR | {"low": 1.0, "high": 3.0}
UNSEEN = WON | LOST
ALONG = [
    ([WON, WON | {"winner": "simclr", "low": -3.0, "high": -1.0}, UNSEEN], "mean"),
    ([RATIO, RATIO], "std"),
    ([UNSEEN, UNSEEN], "mean"),
    ([UNSEEN | {"reason": Reason.NOT_SWEPT, "note": "it is open"}], "std"),
]
ABC = pd.DataFrame({"objective": ["a", "b", "c"], "note": ["x", NAN, None]})
PAIRS = pd.DataFrame({"a": [*"aaab"], "b": [*"bbcc"], "region": ["tau=1", "tau=2", "tau=1", ""]})
COUNTED = "8 of 28 trials were stopped early"  # by a as by b, not by both together
NOTES = {
    "of one objective": ABC,
    "why it is not measured": ABC.assign(reason=[Reason.NO_SCORE, "", ""]),
    "none": ABC[["objective"]],
    "of each": ABC[:2].assign(note=COUNTED),
    "of one value of a pair": PAIRS.assign(note=["x", "", "", ""]),
    "of a pair at all values": PAIRS.assign(note=["x", "x", "y", "z"]),
    "of all": PAIRS.assign(note="x"),
    "of b in some of its pairs": PAIRS.assign(
        region="", b=[*"bccd"], note=["b: x", "", "", "b: x"]
    ),
}
CONTRAST = {
    "contrast": "small", "what": "dcl - simclr", "estimate": 2.0, "low": 1.0, "high": 3.0,
    "low_holm": 1.0, "high_holm": 3.0, "room": 9.0, "published": NAN, "margin": NAN,
    "reason": "", "note": "", "added_after": 0,
    "needs_seeds": NAN, "shown": True, "equivalent": False, "excluded": False,
}  # fmt: skip
CONTRASTS = [
    {},
    {"published": 5.0, "excluded": True},
    {"published": -5.0, "excluded": True},
    {"low_holm": -1.0, "shown": False, "published": 12.0, "excluded": True},
    {"low_holm": -1.0, "margin": 5.0, "shown": False, "equivalent": True},
    {"low_holm": -1.0, "shown": False, "published": 5.0, "excluded": True},
    {"low_holm": -1.0, "shown": False, "needs_seeds": 20.0, "needs_low": 8.0, "needs_high": 90.0},
    {
        "estimate": NAN,
        "low": NAN,
        "shown": False,
        "reason": "no_score",
        "note": "no finished trial has a score",
    },
]
