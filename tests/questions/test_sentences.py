"""Sentences of a report: each gate on both sides, on given tables."""

import math
import re

import numpy as np
import pandas as pd
import pytest

from clsweep.analysis.reading import read_sweeps
from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.robustness.table import robustness
from clsweep.findings.notes import text_of
from clsweep.questions import pairs
from clsweep.questions.model import Open, Wording
from clsweep.questions.words import interval, known, listed, number
from tests.analysis.draws import drawing
from tests.planted import planted
from tests.questions.given import said

NAN, INF = math.nan, math.inf
LEAST = {"metric": "loss", "unit": "", "mode": "min"}
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
    "rate": 0.4, "low": 0.23, "high": 0.59, "p_holm": 0.001, "resolved": True,
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


def told(question, *changes, about=()):
    """What is said of a table with a row of its kind for each of `changes`."""
    table, row = TABLES[question]
    asked = "robustness" if question == "bands" else question
    return said(asked, about=about, **{table: [row | change for change in changes]})


SWAPPED = {"a": "simclr", "b": "dcl"}
ROBUST = (
    "dcl is more robust than simclr: the spread of knn_top1 due to hyperparameters is 0.52 times "
    "as large [0.35, 0.78] (SD* 0.98 against 1.87 points)."
)
HIGHER = (
    "dcl scores 1.8 points higher than simclr without tuning, on average over the shared space "
    "[1.2, 2.4]."
)
OPEN_RATIO = "Whether dcl or simclr is more robust is not resolved"
SEEN = LOST | {"estimate": 0.8, "low": 0.4, "high": 1.9, "p_holm": 0.4}
NO_ENDS = {"low": NAN, "high": NAN}
EVEN = LOST | {"p_holm": 1.0}
TAU = "tau matters most (total effect 0.71 [0.6, 0.8], an inert one reaches 0.05)"
ANOVA = {"method": "anova", "total": NAN, "total_low": NAN, "total_high": NAN}
LR = {"term": "lr", "total": 0.3, "total_low": 0.2, "total_high": 0.4}
SMALL = ANOVA | {"term": "lr", "first": 0.005, "first_low": 0.003, "first_high": 0.008,
                 "null": 0.001}  # fmt: skip
NOISE = ANOVA | {"first": 0.14, "first_low": 0.0, "first_high": 0.6, "null": 0.3,
                 "resolved": False, "needs_low": 9.0, "needs_high": INF}  # fmt: skip
APART = {"cell": "tau=0.07, lr=1", "effect": -3.1, "effect_low": -5.2, "effect_high": -1.0}
LARGE = ANOVA | {"first": 0.7, "first_low": 0.6, "first_high": 0.8}
SMALL_SAID = "(share of the variance 0.005 [0.003, 0.008], an inert one reaches 0.001)"
NO_EFFECT = {"term": "", "first": NAN, "total": NAN, "resolved": False}
NOISY = {"band_sure_low": NAN, "band_sure_high": NAN, "level_noise": 0.44}
USABLE = "Usable band of tau, within 1 point of the best: dcl"
AT_2 = {"region": "tau=0.2"}
TRY = "Configurations tried at random come within 1 point of the objective's best: dcl after about"
GAIN = "Tuning dcl gains 2.1 points [1.5, 2.7] over its default (tau=0.1)."
KEEPS = "The best dcl setting keeps 94.10 %"
ONE_FRESH = {"test": NAN, "fresh_seeds": 1, "fresh_low": NAN, "fresh_high": NAN}

TOLD = [
    # Spreads, from the winner's side; no ratio is made with a zero, and an open end is called so.
    ("robustness", [{}], [ROBUST]),
    ("robustness", [SWAPPED | {"estimate": 1 / 0.52, "low": 1 / 0.78, "high": 1 / 0.35,
                               "value_a": 1.87, "value_b": 0.98}], [ROBUST]),
    ("robustness", [SEEN | {"needs_seeds": 8.0, "needs_low": 5.0, "needs_high": 40.0}],
     [f"{OPEN_RATIO} (SD* ratio dcl / simclr 0.8 [0.4, 1.9]); it needs 5 to 40 seeds (80 % "
      "interval; 8 if it is as large as it looks)."]),
    ("robustness", [SEEN | {"note": "few settings"}],
     [f"{OPEN_RATIO} (SD* ratio dcl / simclr 0.8 [0.4, 1.9])."]),
    ("robustness", [SEEN | {"needs_configs": 90.0, "needs_low": 50.0, "needs_high": INF}],
     [f"{OPEN_RATIO} (SD* ratio dcl / simclr 0.8 [0.4, 1.9]); it needs 50 configurations or more, "
      "how many cannot be said yet."]),
    ("robustness", [SEEN | NO_ENDS | {"stat": "std", "reason": Reason.ONE_SEED_NO_SPREAD,
                                  "note": "one seed: no std, which needs the seed noise; b"}],
     [f"{OPEN_RATIO}: one seed: no std, which needs the seed noise."]),
    ("robustness", [SEEN | {"needs_seeds": 8.0, "reason": Reason.FAILURES_DECIDE, "note":
             "counted or left out, the failed trials give different winners; 3 of 9 failed"}],
     [f"{OPEN_RATIO} (SD* ratio dcl / simclr 0.8 [0.4, 1.9]): counted or left out, the failed "
      "trials give different winners."]),
    ("robustness", [{"estimate": 0.0, "low": 0.0, "value_a": 0.0}],
     ["dcl is more robust than simclr: its knn_top1 has no spread due to hyperparameters that "
      "shows above the noise, against SD* 1.87 points."]),
    ("robustness", [EVEN | {"estimate": 0.8, "low": 0.0, "high": 1.9}],
     [f"{OPEN_RATIO} (SD* ratio dcl / simclr 0.8, at most 1.9)."]),
    ("robustness", [EVEN | {"estimate": 0.8, "low": 0.3, "high": INF}],
     [f"{OPEN_RATIO} (SD* ratio dcl / simclr 0.8, at least 0.3)."]),
    ("robustness", [{"low": 0.0}], [ROBUST.replace(" [0.35, 0.78]", ", at most 0.78")]),
    ("robustness", [SWAPPED | {"estimate": 2.0, "low": 1.25, "high": INF, "value_a": 2.0,
                               "value_b": 1.0}],
     ["dcl is more robust than simclr: the spread of knn_top1 due to hyperparameters is 0.5 times "
      "as large, at most 0.8 (SD* 1 against 2 points)."]),
    # Pairs that were not measured share a sentence for each reason, and so do many open ones.
    ("robustness", [LOST | {"b": name, "note": "dcl: tpe samples", "reason": "adaptive_sampler"}
                    for name in ("simclr", "eqco")],
     ["The spreads of dcl and simclr; dcl and eqco are not compared: dcl: tpe samples."]),
    ("robustness", [LOST | {"a": a, "b": b, "needs_seeds": 5, "p_holm": NAN}
                    for a, b in ("ab", "ac", "ad", "bc")],
     ["Which objective is more robust is not resolved for 4 pairs: a and b; a and c; a and d; "
      "b and c."]),
    # Means.
    ("comparison-mean", [{}], [HIGHER]),
    ("comparison-mean", [SWAPPED | {"estimate": -1.8, "low": -2.4, "high": -1.2}], [HIGHER]),
    ("comparison-mean", [{"a": "<b>.x[0]", "winner": "<b>.x[0]"}],
     [HIGHER.replace("dcl", "<b>.x[0]")]),
    ("comparison-mean", [LOST | {"estimate": 0.3, "low": -0.4, "high": 1.0, "needs_seeds": 1.0}],
     ["Whether dcl or simclr scores better without tuning is not resolved (dcl leads by 0.3 "
      "points [-0.4, 1])."]),
    # Effects: one matters most only above all other intervals.
    ("sensitivity", [{}, LR],
     [f"dcl: {TAU}.",
      "dcl: lr (total effect 0.3 [0.2, 0.4], an inert one reaches 0.05) matters too."]),
    ("sensitivity", [{}, LR | {"total": 0.02, "total_low": 0.0, "resolved": False}],
     [f"dcl: {TAU}."]),
    ("sensitivity", [{}, LR | {"total": 0.5, "total_low": 0.4, "total_high": 0.61}],
     ["dcl: tau (total effect 0.71 [0.6, 0.8], an inert one reaches 0.05) and lr (total effect 0.5 "
      "[0.4, 0.61], an inert one reaches 0.05) matter.",
      "dcl: which of them matters most is not resolved."]),
    *[("sensitivity", [{}, LR | {"total_low": low, "total_high": high}],
       [f"dcl: {TAU.replace(' most', '')}.",
        "dcl: that the others matter less is not resolved."])
      for low, high in ((NAN, NAN), (0.0, INF))],
    ("sensitivity", [{}], [f"dcl: {TAU.replace(' most', '')}."]),
    ("sensitivity", [{"total": NAN, "r2": 0.991}],
     ["dcl depends on tau: it predicts settings left out (R2 = 0.991)."]),
    ("sensitivity", [SMALL], [f"dcl: lr {SMALL_SAID} has a small effect."]),
    ("sensitivity", [LARGE, SMALL],
     ["dcl: tau matters most on its own (share of the variance 0.7 [0.6, 0.8], an inert one "
      "reaches 0.05).", f"dcl: lr {SMALL_SAID} has a small effect."]),
    ("sensitivity", [NOISE, NOISE | {"term": "tau x lr", "order": 2, "first": 0.27}],
     ["dcl: no hyperparameter's effect on its own is resolved; an inert one reaches 0.3.",
      "dcl: as measured, tau x lr has 0.27 [0, 0.6] and tau has 0.14 [0, 0.6] of the variance.",
      "dcl: tau x lr is not resolved; it needs 9 seeds or more, how many cannot be said yet."]),
    ("sensitivity", [SMALL, SMALL | {"term": "tau x lr", "order": 2, "resolved": False} | APART],
     [f"dcl: lr {SMALL_SAID} has a small effect.",
      "dcl: tau=0.07 with lr=1 is 3.1 points below what tau and lr alone predict [1, 5.2]."]),
    ("sensitivity", [SMALL, SMALL | {"term": "tau x lr", "order": 2, "resolved": False} | APART
                     | {"opposite": "lr=0.1"}],
     [f"dcl: lr {SMALL_SAID} has a small effect.",
      "dcl: tau=0.07 with lr=1 is 3.1 points below what tau and lr alone predict [1, 5.2], and "
      "with lr=0.1 as far above."]),
    ("sensitivity", [SMALL, SMALL | {"term": "tau x lr", "order": 2, "resolved": False} | APART
                     | {"effect_high": 0.1}],
     [f"dcl: lr {SMALL_SAID} has a small effect."]),
    ("sensitivity", [SMALL | {"term": "tau x lr", "order": 2}, SMALL],
     [f"dcl: lr {SMALL_SAID} has a small effect.",
      f"dcl: the effects of tau and lr depend on each other a little {SMALL_SAID}."]),
    ("sensitivity",
     [ANOVA | {"first": 0.5, "first_low": 0.4, "first_high": 0.6},
      {"method": "anova", "term": "lr", "first": 0.2, "first_low": 0.1, "first_high": 0.3},
      ANOVA | {"term": "tau x lr", "order": 2, "first": 0.2, "first_low": 0.1, "first_high": 0.3},
      ANOVA | {"term": "seed noise", "order": 0, "first": 0.9, "resolved": False}],
     ["dcl: tau matters most on its own (share of the variance 0.5 [0.4, 0.6], an inert one "
      "reaches 0.05).",
      "dcl: lr (share of the variance 0.2 [0.1, 0.3], an inert one reaches 0.05) matters too.",
      "dcl: the effects of tau and lr depend on each other (share of the variance 0.2 [0.1, 0.3], "
      "an inert one reaches 0.05)."]),
    ("sensitivity",
     [ANOVA | {"first": 0.35, "first_low": 0.0, "first_high": 0.65, "null": 0.32}],
     ["dcl: no hyperparameter's effect on its own is resolved: tau by the test alone, not by the "
      "interval.", "dcl: as measured, tau has 0.35 [0, 0.65] of the variance."]),
    ("sensitivity", [NO_EFFECT | {"reason": Reason.SURROGATE_WEAK, "note": "needs about 80"}],
     ["What matters for dcl is not resolved: needs about 80."]),
    ("sensitivity", [NO_EFFECT | {"reason": Reason.ADAPTIVE_SAMPLER, "note": "tpe samples"}],
     ["What matters for dcl is not measured: tpe samples."]),
    ("sensitivity", [NO_EFFECT | {"reason": Reason.NOTHING_SWEPT, "note": "x"}], []),
    ("sensitivity", [NO_EFFECT | {"note": NAN}], ["What matters for dcl is not resolved."]),
    # Bands, as far as they are shown.
    ("bands", [{}, {"objective": "simclr", "band_high": 0.07, "band_sure_high": 0.07,
                    "band_ratio": 1.0}, {"band_param": "lr"}],
     [f"{USABLE} from 0.07 to 0.5 (a factor of 7.14); simclr at 0.07 alone.",
      "Usable band of lr, within 1 point of the best: dcl from 0.07 to 0.5 (a factor of 7.14)."]),
    *[("bands", [change], [f"{USABLE} {text}."]) for change, text in (
        ({"band_ratio": NAN}, "from 0.07 to 0.5"),
        ({"band_sure_low": 0.1}, "at least from 0.1 to 0.5"),  # no factor: it may be larger
        ({"band_sure_low": 0.1, "band_sure_high": 0.1}, "at least at 0.1"),
        ({"band_end": "low"}, "from 0.07, the lowest swept value, to 0.5"),
        ({"band_end": "high"}, "from 0.07 to 0.5, the highest swept value"),
        ({"band_end": "both"}, "at every swept value, 0.07 to 0.5"),
        ({"band_end": "both", "band_sure_low": 0.1},
         "at least from 0.1 to 0.5, the highest swept value"),
        ({"band_end": "low", "band_sure_low": 0.1}, "at least from 0.1 to 0.5"),
        ({"band_bins": 6, "band_sure_low": 0.1, "band_sure_high": 0.3},
         "at least from 0.1 to 0.3, the middles of bins"),
        ({"band_bins": 6, "band_sure_low": 0.1, "band_sure_high": 0.1},
         "at least at 0.1, the middle of a bin"),
        ({"num_failed": 1}, "from 0.07 to 0.5 (a factor of 7.14), with 1 failed trial"),
    )],
    ("bands", [NOISY, NOISY | {"objective": "simclr"}],
     ["The usable band of tau is not resolved for dcl and simclr: the noise is too large to "
      "tell levels 1 point apart."]),
    ("bands", [NOISY | {"noise_of": "configurations"}],
     ["The usable band of tau is not resolved for dcl: the configurations that share a value or "
      "bin differ too much to tell levels 1 point apart, which more of them would mend, not more "
      "seeds."]),
    *[("bands", [change], []) for change in (
        {"level_noise": NAN}, {"band_low": NAN}, {"band_high": INF}, {"band_param": ""},
        {"band_param": NAN})],
    # Winners along a hyperparameter.
    ("winners", [{}, AT_2 | {"lead": 1.5}],
     ["dcl is ahead at every value of tau, 1 to 1.5 points before the next."]),
    ("winners", [{}, AT_2, {"region": "tau=0.5", "objective": "simclr", "winner": "simclr"},
                 {"region": "tau=1", "p_holm": 0.3}],
     ["Along tau, dcl is ahead at 0.1 and 0.2 and simclr is ahead at 0.5; at 1 it is not "
      "resolved."]),
    # What tuning costs and gains.
    ("tuning-cost", [{}, {"objective": "eqco", "k_within": 1.0, "k_low": 1.0, "k_high": 1.0}],
     [f"{TRY} 4 tries [2, 7]; eqco after about 1 try [1, 1].", GAIN,
      GAIN.replace("dcl", "eqco")]),
    ("tuning-cost", [{"k_high": NAN, "tunability_low": -0.1}],
     ["How many tries it takes to come within 1 point of the objective's best is not resolved for "
      "dcl.",
      "Whether tuning dcl gains anything over its default (tau=0.1) is not resolved (2.1 points "
      "[-0.1, 2.7])."]),
    ("tuning-cost", [{"note": text_of(note(Reason.DEFAULT_NEAREST, at="tau=0.07"))}],
     [f"{TRY} 4 tries [2, 7].", GAIN.replace("its", "the setting nearest to its")]),
    ("tuning-cost", [{"tunability": NAN}], [f"{TRY} 4 tries [2, 7]."]),
    ("tuning-cost", [{"reason": Reason.ONE_CONFIG}], []),
    # Failures, links, fresh seeds.
    ("failure-regions", [{}],
     ["simclr fails more often at tau=0.05 than elsewhere: 12 of 30 trials (40 % [23, 59])."]),
    *[("failure-regions", [change], []) for change in (
        {"resolved": False}, {"p_holm": 0.2}, {"p_holm": NAN}, {"rate": NAN}, {"failed": 0})],
    ("links", [{}],
     ["Over the settings of dcl, q_b_mean is lower (Spearman -0.7 [-0.8, -0.5]) where knn_top1 is "
      "higher: an association, not a cause."]),
    ("links", [{}, {"diagnostic": "effective_rank", "rho": 0.5, "low": 0.2, "high": 0.7}],
     ["Over the settings of dcl, q_b_mean is lower (Spearman -0.7 [-0.8, -0.5]) and effective_rank "
      "is higher (Spearman 0.5 [0.2, 0.7]) where knn_top1 is higher: associations, not causes."]),
    ("recommendation", [{}],
     [f"{KEEPS} [93.80, 94.40] on 5 fresh seeds; the search said 94.90 %, 0.8 points too good "
      "[0.376, 1.22]; the test split says 93.50 % [93.10, 93.90]."]),
    ("recommendation", [ONE_FRESH], [f"{KEEPS} on 1 fresh seed; the search said 94.90 %."]),
    ("recommendation", [{"fresh": NAN, "fresh_seeds": 0, "fresh_failed": 5}],
     ["The best dcl setting failed on every fresh seed."]),
    ("recommendation", [{"fresh": NAN}], []),
    ("recommendation", [{"rank": 2, "config": 7, "fresh": 50.0}, ONE_FRESH,
                         ONE_FRESH | {"objective": "eqco"}],
     [f"{KEEPS} on 1 fresh seed; the search said 94.90 %.",
      "The best eqco setting keeps 94.10 % on 1 fresh seed; the search said 94.90 %."]),
]  # fmt: skip


OPEN = re.compile("^(?!Along).* (not (resolved|compared|measured)|no hyperparameter's effect)")


@pytest.mark.parametrize(("question", "changes", "sentences"), TOLD)
def test_what_is_said_of_a_table(question, changes, sentences):
    found = told(question, *changes)
    assert list(found) == sentences
    is_open = [bool(OPEN.search(sentence)) for sentence in found]
    assert [isinstance(sentence, Open) for sentence in found] == is_open


GATES = {  # what any of these changes stops is not claimed, but told as open
    "robustness": (
        f"{OPEN_RATIO}",
        [{"p_holm": 0.06}, {"p_holm": NAN}, {"high": 1.0}, {"high": NAN}, {"winner": "simclr"},
         {"estimate": NAN}, {"estimate": INF}, {"value_a": NAN}, {"value_b": 0.0},
         {"winner": NAN, "resolved": NAN}, LOST],
    ),
    "comparison-mean": (
        "Whether dcl or simclr scores better without tuning is not resolved",
        [{"low": 0.0}, {"low": -0.1}, {"p_holm": 0.051}, {"winner": "simclr"}, {"high": NAN},
         {"estimate": NAN}, LOST],
    ),
    "sensitivity": (
        "dcl: no hyperparameter's effect is resolved",
        [{"resolved": False}, {"resolved": NAN}, {"resolved": None}, {"null": 0.8}, {"null": NAN},
         {"total_low": NAN}, {"total": 0.45, "total_low": 0.0}],
    ),
    "winners": (
        "Which objective is ahead is not resolved at any value of tau.",
        [LOST, {"low": 0.0}, {"low": NAN}, {"p_holm": NAN}, {"lead": NAN}, {"lead": -1.0}],
    ),
    "links": (
        "Which diagnostics go with knn_top1 is not resolved for dcl.",
        [{"resolved": False}, {"p_holm": 0.06}, {"high": 0.0}, {"rho": NAN}, {"rho": 0.7}],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("question", "change"), [(name, each) for name, (_, all) in GATES.items() for each in all]
)
def test_what_any_part_of_a_gate_stops_is_not_claimed(question, change):
    (sentence,) = told(question, change)
    assert sentence.startswith(GATES[question][0])
    assert isinstance(sentence, Open)
    assert not any(word in sentence for word in ("nan", "inf "))
    if question == "winners":
        (mixed,) = told(question, {}, AT_2 | change)
        assert mixed == "Along tau, dcl is ahead at 0.1; at 0.2 it is not resolved."


def test_of_nothing_nothing_is_said():
    empty = pd.DataFrame(columns=list(PAIR))
    assert said("comparison-mean", compare_mean=empty) == said("robustness") == ()
    for name in ("sensitivity", "winners", "tuning-cost", "failure-regions", "links"):
        assert said(name, **{TABLES[name][0]: []}) == (), name
    assert said("recommendation") == ()


def test_a_score_to_be_small_and_excesses_that_noise_explains():
    (lower,) = told("comparison-mean", {}, about=LEAST)
    assert "scores 1.8 lower than simclr" in lower
    for change in ({"search": 94.5}, {"low": NAN}, {"fresh_low": NAN, "fresh_high": NAN},
                   # An end at 100 % is no shorter interval: the other side explains the excess.
                   {"fresh": 98.6, "fresh_low": 95.2, "fresh_high": 100, "search": 99.9},
                   ):  # fmt: skip
        assert "too good" not in told("recommendation", change)[0]
    assert "too good" not in told("recommendation", {}, about=LEAST)[0]
    low = {"search": 93.1, "low": 92.8, "high": 93.4}
    assert "1 too good [0.576, 1.42]" in told("recommendation", low, about=LEAST)[0]


@pytest.mark.parametrize(("num", "among"), [(2, ""), (3, ", among 3 settings")])
@pytest.mark.parametrize("low", [-6.26, 1.5])
def test_an_interval_over_several_settings_says_so(num, among, low):
    ran = [FRESH | {"rank": rank, "config": rank} for rank in range(1, num + 1)]
    lead = {"over_first": 4.13, "over_first_low": low, "over_first_high": 14.5}
    named = FRESH | {"kind": "best", "config": 1, "preferred_at": "tau=0.5"} | lead
    first, _ = said("recommendation", confirmation=ran, recommend=[named])
    seen = f"4.13 points [{low}, 14.5]"
    assert (
        f"{seen}{among}, which is not resolved" in first
        if low < 0
        else first.endswith(f"first{among}.")
    )


WON = PAIR | {"low": 1.0, "high": 3.0}
LOSING = WON | {"winner": "simclr", "low": -3.0, "high": -1.0}
UNSEEN = WON | LOST


@pytest.mark.parametrize(
    ("rows", "stat", "text"),
    [
        ([WON, WON, UNSEEN], "mean",
         "Along tau, dcl is better than simclr at 0.1 and 0.2; at 0.5 it is not resolved."),
        ([WON, LOSING], "mean",
         "Along tau, dcl is better than simclr at 0.1 and simclr is better than dcl at 0.2."),
        ([WON, WON], "mean", "Along tau, dcl is better than simclr at every value."),
        ([UNSEEN, UNSEEN], "mean",
         "Whether dcl or simclr is better is not resolved at any value of tau."),
        ([RATIO, UNSEEN], "std",
         "Along tau, dcl is more robust than simclr at 0.1; at 0.2 it is not resolved."),
        ([WON, UNSEEN | {"reason": Reason.NOT_SWEPT}], "mean",
         "Along tau, dcl is better than simclr at every value."),
        ([UNSEEN | {"reason": Reason.NOT_SWEPT, "note": "it is open"}] * 2, "std",
         "The spreads of dcl and simclr are not compared: it is open."),
    ],
)  # fmt: skip
def test_who_is_ahead_at_which_values(rows, stat, text):
    rows = [row | {"region": f"tau={at}"} for at, row in zip((0.1, 0.2, 0.5), rows, strict=False)]
    assert list(pairs.by_value(pd.DataFrame(rows), "tau", stat=stat)) == [text]


# Numbers and words


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5234, "0.523"), (94.13, "94.1"), (0.0, "0"), (-0.0, "0"), (65536, "65,536"),
     (999.7, "1,000"), (-1.234, "-1.23"), (0.5, "0.5"), (1234.5, "1,234"), (1e-9, "1e-09")],
)  # fmt: skip
def test_numbers_have_three_digits_and_a_bound_is_not_its_gate(value, expected):
    assert number(value) == expected
    assert number(0.99996, apart_from=1.0) == "0.99996"
    assert (number(1.0, apart_from=1.0), number(1.0004, apart_from=1.0)) == ("1", "1.0004")
    assert interval(0.35, 0.9999, apart_from=1.0) == " [0.35, 0.9999]"
    assert interval(0.35, 0.78) == " [0.35, 0.78]"
    assert interval(0.35, INF) == interval(NAN, 1.0) == ""


def test_known_numbers_units_and_lists():
    unknown = [NAN, INF, -INF, None, pd.NA, "1", True, np.bool_(True), np.float64(NAN)]
    assert not any(map(known, unknown))
    assert known(0, 1.5, np.float64(2), np.int64(3))
    words, nats = Wording(metric="knn_top1", unit="%"), Wording(metric="mi", unit="nats")
    assert [*map(words.amount, (1.0, 1.8)), words.level(94.1)] == [
        "1 point",
        "1.8 points",
        "94.10 %",
    ]
    assert words.level(97.04, 95.0, 99.125) == "97.04 % [95.00, 99.12]"  # as in the tables
    assert words.level(0.81234, 0.8115, 0.8132) == "0.81234 % [0.81150, 0.81320]"
    assert words.level(0.81, NAN, 1.0) == words.level(0.81, None, None) == "0.8100 %"
    assert [*map(nats.amount, (1, 0.2)), nats.level(2.5)] == ["1 nat", "0.2 nats", "2.50 nats"]
    assert Wording(metric="x").amount(0.02) == "0.02"
    assert [listed([]), listed(["a"]), listed(["a", "b", "c"])] == ["", "a", "a, b and c"]


# Bands of planted grids


def planted_bands(level, grid, *, failed_as="worst", **options):
    """Sentences on the bands of a planted grid, for each of 100 draws of the noise."""
    for seed in range(100):
        trials = planted(level, grid=grid, seed=seed, **options)
        sweeps = read_sweeps(trials, metric="knn_top1", params=list(grid), failed_as=failed_as)
        with drawing(2):
            table = robustness(sweeps, by=next(iter(grid)))
        yield said("robustness", robustness=table)


W = {"w": [0.0, 0.25, 0.5, 0.75, 1.0]}


def test_a_band_holds_no_value_that_is_truly_worse():
    """One value of 5 is the best, the others are just outside; the claims that name one of them are
    at most 5 %.
    """
    found = planted_bands(lambda at: 70.0 if at["w"] == 0.5 else 68.99, W, noise=0.3)
    claims = [sentence for each in found for sentence in each if "Usable" in sentence]
    assert len(claims) >= 90
    right = ("dcl at 0.5 alone.", "dcl at least at 0.5.")
    assert sum(not sentence.endswith(right) for sentence in claims) <= 5


@pytest.mark.parametrize(
    ("failed_as", "bands"),
    [
        ("left out", {"at every swept value, 32 to 256"}),
        ("worst", {"at 32 alone", "from 128 to 256, the highest swept value"}),  # 4 points less
    ],
)
def test_a_configuration_that_failed_makes_no_band_of_the_others(failed_as, bands):
    """The batch size has no effect; that of 64 failed at the best tau, and the plain averages say 3
    points less.
    """
    grid = {"batch_size": [32, 64, 128, 256], "tau": [0.05, 0.1, 0.2, 0.5, 1.0]}
    level = dict(zip(grid["tau"], [80.0, 92.0, 80.0, 75.0, 70.0], strict=True))
    found = planted_bands(
        lambda at: level[at["tau"]],
        grid,
        noise=0.1,
        fail=lambda at: at["tau"] == 0.1 and at["batch_size"] == 64,
        failed_as=failed_as,
    )
    start = "Usable band of batch_size, within 1 point of the best: dcl "
    assert {each for (each,) in found} == {f"{start}{b}, with 3 failed trials." for b in bands}
