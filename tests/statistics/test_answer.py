"""The first screen in words: who won, by how much, how sure, and what stands against it."""

import math
from pathlib import Path

import pandas as pd
import pytest

import clsweep
from clsweep.analysis.reasons import Reason
from clsweep.display.numbers import Wording
from clsweep.report.first_screen import MANY_SEEDS, next_steps
from clsweep.report.sections import build_report
from clsweep.statistics.compare import difference_forest, means
from clsweep.statistics.computed import context_of
from clsweep.statistics.verdicts import TUNED, best, verdict_of
from tests.planted import planted

WORDS = Wording(metric="knn_top1", unit="%", within=1.0)
PAIR = {
    "a": "simclr", "b": "dcl", "reason": "", "note": "", "needs_seeds": math.nan,
    "needs_configs": math.nan, "fresh_seeds": 0,
}  # fmt: skip
MEAN = PAIR | {
    "estimate": 2.0, "low": 1.0, "high": 3.0, "p_holm": 0.01, "winner": "simclr", "resolved": True,
    "value_a": 92.0, "value_b": 90.0,
}  # fmt: skip
SPREAD = MEAN | {"estimate": 0.5, "low": 0.3, "high": 0.8, "value_a": 1.0, "value_b": 2.0}


def board(*rows):
    blank = {
        "kind": "objective", "at": "tau=0.1", "score": 92.0, "low": 91.0, "high": 93.0,
        "num_seeds": 3, "fresh": math.nan, "hours": 0.1, "sd_star": 1.0, "yardstick": "",
    }  # fmt: skip
    return pd.DataFrame([blank | row for row in rows])


BOTH = board({"objective": "simclr"}, {"objective": "dcl", "score": 90.0})


FREE = {"resolved": False, "winner": "", "reason": Reason.NO_DIFFERENCE, "low": -1.0}
BYOL = pd.concat([BOTH, board({"objective": "byol", "score": 85.0})], ignore_index=True)
LAST = pd.concat([BOTH, board({"objective": "untrained", "score": 80.0})], ignore_index=True)
LOST = {"resolved": False, "winner": "", "reason": Reason.ADAPTIVE_SAMPLER}
VERDICTS = [  # means, spreads, board; the means stand for both, when tuned and without tuning
    ([{}], [{}], pd.concat([BOTH, board({"objective": "byol", "score": math.nan})])),
    ([{"a": "dcl", "b": "simclr", "estimate": -2.0, "low": -3.0, "high": -1.0}], [{}], BOTH),
    ([FREE], [FREE], BOTH),
    ([FREE], [{}], BOTH.assign(score=92.0)),
    ([FREE | {"estimate": 0.0}], [{}], BOTH),
    ([{}], [{}], BOTH.assign(at="")),
    # simclr leads dcl, dcl leads byol by more.
    ([FREE | {"estimate": 0.3, "low": -9.0, "high": 8.0},
      FREE | {"a": "dcl", "b": "byol", "estimate": 5.0, "high": 9.0},
      FREE | {"b": "byol", "estimate": 1.0, "high": 9.0}], [{}], BYOL),
    # simclr beats dcl, the second best, and not untrained, the last.
    ([{}, FREE | {"b": "untrained", "estimate": 9.0, "low": 0.5, "high": 18.0},
      FREE | {"a": "dcl", "b": "untrained", "estimate": 7.0, "low": -2.0, "high": 16.0}], [{}],
     LAST),
    ([LOST], [LOST], BOTH),
]  # fmt: skip


def verdict(means, spreads, table):
    """What the first screen says of such pairs, for tests/test_pages.py."""
    tables = (MEAN, means), (MEAN, means), (SPREAD, spreads)
    pairs = ([row | change for change in of] for row, of in tables)
    return verdict_of(table, *map(pd.DataFrame, pairs), WORDS)


RAW = board({"objective": "simclr"}, {"objective": "raw pixels", "kind": "reference"})
DCL = board({"objective": "dcl", "score": 89.0})
LEAST = Wording(metric="loss", unit="", mode="min")
CAUTIONS = {  # what stands against the answer: a board, its words, whether a search was tuned
    "a reference that nobody beats": (RAW.assign(score=[92.0, 95.5]), WORDS, False),
    "a reference that is beaten": (RAW.assign(score=[92.0, 90.0]), WORDS, False),
    "one that the second does not beat": (
        pd.concat([RAW.assign(score=[92.0, 90.0]), DCL], ignore_index=True), WORDS, False,
    ),
    "a reference of another data set": (
        RAW.assign(score=[92.0, 95.5], yardstick=["dataset digits", "dataset fashion"]), WORDS,
        False,
    ),
    "less is better": (RAW.assign(score=[92.0, 90.0]), LEAST, False),
    "the best of a search": (BOTH, WORDS, True),
    "the best of a search on fresh seeds": (BOTH.assign(fresh=91.0), WORDS, True),
}  # fmt: skip


GRID = {"tau": [0.05, 0.1, 0.2, 0.4], "batch_size": [32, 64]}


def report_of(*objectives):
    trials = [
        planted(lambda at, e=edge: 90 - e * (1 + abs(math.log2(at["tau"] / 0.1))), objective=name,
                seed=i, grid=GRID)
        for i, (name, edge) in enumerate(objectives)
    ]  # fmt: skip
    return build_report(clsweep.analyse(pd.concat(trials, ignore_index=True)))


def test_the_planted_winner_wins_on_the_first_screen():
    report = report_of(("flat", 0.5), ("steep", 6.0))
    assert report.verdicts[0].startswith("flat is best when tuned: it scores 5.")  # 89.5, 84
    assert [figure.name for figure in report.hero] == ["marginal-tau", "marginal-batch-size"]
    assert report.board.shown["objective"].tolist()[0] == "flat"
    sentences = [each for text in (*report.verdicts, *report.notes) for each in text.split(". ")]
    assert max(len(sentence.split()) for sentence in sentences) <= 25
    (trials,) = [table for table in report.tables if table.name == "trials"]
    assert trials.is_apart
    assert len(trials.frame) == 48


def test_those_score_the_same_whose_tuned_levels_are_equal():
    """Not those whose best means are: those of all three are 92, and simclr is 2.78 behind."""
    three = board(*({"objective": name} for name in ("dcl", "eqco", "simclr")))
    leads = {("dcl", "eqco"): 0.0, ("dcl", "simclr"): 2.78, ("eqco", "simclr"): 2.78}
    pairs = [
        MEAN | FREE | {"a": a, "b": b, "estimate": lead, "high": 9.0}
        for (a, b), lead in leads.items()
    ]
    named = best(three, pd.DataFrame(pairs), WORDS, TUNED)
    start = "Best when tuned is not resolved: dcl and eqco score the same, each at its best setting"
    assert named == (f"{start} [-1, 9].",)
    for pair in pairs:
        pair["estimate"] = 0.0
    (sentence,) = best(three, pd.DataFrame(pairs), WORDS, TUNED)
    assert sentence.endswith("dcl, eqco and simclr score the same, each at its best setting.")


def test_of_a_search_robustness_alone_is_withheld():
    trials = planted(
        lambda at: 90 - 20 * (at["tau"] - 0.4) ** 2,
        ranges={"tau": (0.05, 1.0), "lr": (0.1, 1.0)},
        num_configs=20,
    ).assign(sampler="tpe")
    report = build_report(clsweep.analyse(trials))
    (search,) = [section for section in report.sections if section.id == "search"]
    assert {"search-top", "importance"} <= {table.name for table in search.tables}
    assert [figure.name for figure in report.hero] == ["history"]
    assert any("dcl: tau (" in sentence for sentence in search.sentences)
    assert [s for s in report.open if "robustness" in s] == list(report.open)


@pytest.fixture(scope="module")
def digits():
    """A kept study of four objectives, one of them an encoder that is not trained."""
    folder = Path(__file__).parents[2] / "docs" / "results" / "tau-digits"
    return context_of(clsweep.open_results(folder))


def test_nobody_is_sent_to_compare_with_an_untrained_encoder(digits):
    """It is there to be passed: no seeds are bought for it, and it is no best to confirm."""
    assert digits.data.untrained == {"untrained"}
    pairs = means(digits)
    affordable = pairs.query(f"needs_high < inf and needs_seeds <= {MANY_SEEDS}")
    assert "untrained" in set(affordable["b"])  # the one that takes the fewest seeds
    sentences = [step.sentence for step in next_steps(digits)]
    assert sentences[0].startswith("Run the best of simclr, dcl and dclw on fresh seeds")
    assert not [each for each in sentences if "untrained" in each]


def test_a_grey_bar_that_excludes_zero_says_why(digits):
    pairs = means(digits)
    figure = difference_forest(pairs, digits.data)
    assert not figure.is_resolved
    rows = [row for each in figure.chart.to_dict()["datasets"].values() for row in each]
    drawn = {row["row"]: row for row in rows if "low" in row}
    assert len(drawn) == len(pairs) == 6
    for name, row in drawn.items():
        excludes = row["low"] > 0 or row["high"] < 0
        assert name.endswith("alone, but not as one of 18 (p by Holm)") == excludes
    assert sum(row["low"] > 0 for row in drawn.values()) == 3
