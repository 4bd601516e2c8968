"""Sentences of a report: each gate on both sides, on given tables."""

import math

import numpy as np
import pandas as pd
import pytest

from clsweep.display.numbers import Wording, interval, joined, known, number
from clsweep.statistics.report_objects import Unresolved
from tests.statistics.given import sentences_of
from tests.statistics.rows import LOST, NAN, PAIR, TABLES, sentences

INF = math.inf
OPEN_RATIO = "Whether dcl or simclr is more robust is not resolved"
AT_2 = {"region": "tau=0.2"}


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
    (sentence,) = sentences(question, change)
    assert sentence.startswith(GATES[question][0])
    assert isinstance(sentence, Unresolved)
    assert not any(word in sentence for word in ("nan", "inf "))
    if question == "winners":
        (mixed,) = sentences(question, {}, AT_2 | change)
        assert mixed == "Along tau, dcl is ahead at 0.1; at 0.2 it is not resolved."


def test_of_nothing_nothing_is_said():
    empty = pd.DataFrame(columns=list(PAIR))
    assert sentences_of("comparison-mean", compare_mean=empty) == sentences_of("robustness") == ()
    for name in ("sensitivity", "winners", "tuning-cost", "failure-regions", "links"):
        assert sentences_of(name, **{TABLES[name][0]: []}) == (), name
    assert sentences_of("recommendation") == ()


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
    assert [*map(words.amount, (1, 1.8)), words.level(94.1)] == ["1 point", "1.8 points", "94.10 %"]
    assert words.level(97.04, 95.0, 99.125) == "97.04 % [95.00, 99.12]"  # as in the tables
    assert words.level(0.81234, 0.8115, 0.8132) == "0.81234 % [0.81150, 0.81320]"
    assert words.level(0.81, NAN, 1.0) == words.level(0.81, None, None) == "0.8100 %"
    assert [*map(nats.amount, (1, 0.2)), nats.level(2.5)] == ["1 nat", "0.2 nats", "2.50 nats"]
    assert Wording(metric="x").amount(0.02) == "0.02"
    assert [joined([]), joined(["a"]), joined(["a", "b", "c"])] == ["", "a", "a, b and c"]
