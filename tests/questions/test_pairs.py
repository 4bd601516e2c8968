import math

import pandas as pd
import pytest

from clsweep.analysis.reasons import Reason
from clsweep.questions import pairs
from clsweep.questions.model import Open

ROW = {"a": "dcl", "b": "simclr", "p_holm": 0.001, "low": 1.0, "high": 3.0, "reason": ""}
WON = ROW | {"winner": "dcl", "resolved": True}
LOST = ROW | {"winner": "simclr", "resolved": True, "low": -3.0, "high": -1.0}
OPEN = ROW | {"winner": "", "resolved": False, "p_holm": math.nan}


def at_values(*rows, stat="mean"):
    values = ("0.1", "0.2", "0.5")
    frame = [row | {"region": f"tau={at}"} for at, row in zip(values, rows, strict=False)]
    return pairs.by_value(pd.DataFrame(frame), "tau", stat=stat)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((WON, WON, OPEN), "dcl is better than simclr at 0.1 and 0.2; at 0.5 it is not resolved."),
        ((WON, LOST), "dcl is better than simclr at 0.1 and simclr is better than dcl at 0.2."),
        ((WON, WON), "dcl is better than simclr at every value."),
        ((OPEN, LOST), "simclr is better than dcl at 0.2; at 0.1 it is not resolved."),
    ],
)  # fmt: skip
def test_who_is_ahead_at_which_values(rows, said):
    assert at_values(*rows) == (f"Along tau, {said}",)


def test_nothing_that_is_resolved_is_an_open_question():
    (said,) = at_values(OPEN, OPEN)
    assert said == "Whether dcl or simclr is better is not resolved at any value of tau."
    assert isinstance(said, Open)


def test_a_ratio_of_spreads_below_one_is_the_more_robust_of_the_first():
    robust = WON | {"low": 0.2, "high": 0.8}
    assert at_values(robust, OPEN, stat="std") == (
        "Along tau, dcl is more robust than simclr at 0.1; at 0.2 it is not resolved.",
    )


def test_of_what_was_not_measured_nothing_is_said():
    lost = OPEN | {"reason": Reason.NOT_SWEPT}
    assert at_values(lost) == ()
