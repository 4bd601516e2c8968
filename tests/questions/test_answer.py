"""The first screen in words: who won, by how much, how sure, and what stands against it."""

import math

import numpy as np
import pandas as pd
import pytest

import clsweep
from clsweep.analysis.reasons import Reason
from clsweep.questions import pairs
from clsweep.questions.leaderboard import cautions, verdict_of
from clsweep.questions.model import Open, Wording, left_open
from clsweep.report.sections import build_report
from tests.planted import planted

WORDS = Wording(metric="knn_top1", unit="%", within=1.0)
PAIR = {
    "a": "simclr", "b": "dcl", "reason": "", "note": "", "needs_seeds": math.nan,
    "needs_configs": math.nan,
}  # fmt: skip
MEAN = PAIR | {
    "estimate": 2.0, "low": 1.0, "high": 3.0, "p_holm": 0.01, "winner": "simclr", "resolved": True,
    "value_a": 92.0, "value_b": 90.0,
}  # fmt: skip
SPREAD = MEAN | {"estimate": 0.5, "low": 0.3, "high": 0.8, "value_a": 1.0, "value_b": 2.0}


def board(*rows):
    blank = {
        "kind": "objective", "at": "tau=0.1", "score": 92.0, "low": 91.0, "high": 93.0,
        "num_seeds": 3, "fresh": math.nan, "hours": 0.1, "sd_star": 1.0,
    }  # fmt: skip
    return pd.DataFrame([blank | row for row in rows])


BOTH = board({"objective": "simclr"}, {"objective": "dcl", "score": 90.0})


def verdict(means=(MEAN,), spreads=(SPREAD,), table=BOTH):
    return verdict_of(table, pd.DataFrame(means), pd.DataFrame(spreads), WORDS)


def test_a_resolved_lead_is_a_win_with_its_size_and_interval():
    best, robust = verdict()
    assert best == (
        "simclr is best: it scores 2 points higher than dcl on average over the swept settings "
        "[1, 3]."
    )
    assert robust == "simclr depends least on its settings: SD* 1, against 2 of dcl."


def test_the_loser_of_the_table_may_stand_first_in_the_pair():
    turned = MEAN | {"a": "dcl", "b": "simclr", "estimate": -2.0, "low": -3.0, "high": -1.0}
    assert verdict(means=[turned])[0] == verdict()[0]


def test_without_a_winner_none_is_named():
    row = {"resolved": False, "winner": "", "reason": Reason.NO_DIFFERENCE, "low": -1.0}
    best, robust = verdict(means=[MEAN | row], spreads=[SPREAD | row])
    assert best.startswith("No winner is shown: simclr leads dcl by 2 points")
    assert "[-1, 3]" in best
    assert robust.startswith("No objective is shown")


def test_who_leads_the_others_by_more_does_not_lead_whom_it_lies_behind():
    free = {"resolved": False, "winner": "", "reason": Reason.NO_DIFFERENCE, "low": -9.0}
    rows = [
        MEAN | free | {"estimate": 0.3, "high": 8.0},  # simclr against dcl
        MEAN | free | {"a": "dcl", "b": "byol", "estimate": 5.0, "high": 9.0},
        MEAN | free | {"b": "byol", "estimate": 1.0, "high": 9.0},
    ]
    table = pd.concat([BOTH, board({"objective": "byol", "score": 85.0})], ignore_index=True)
    (best, *_) = verdict(means=rows, table=table)
    assert best.startswith("No winner is shown: simclr leads dcl by 0.3 points")
    assert "[-9, 8]" in best


def test_whom_it_beats_is_not_whom_it_may_lead_by_chance():
    """byol is the second best, and beaten; untrained, the last, is not."""
    free = {"resolved": False, "winner": "", "reason": Reason.NO_DIFFERENCE}
    last = {"objective": "untrained", "score": 80.0}
    rows = [
        MEAN,  # simclr beats dcl
        MEAN | free | {"b": "untrained", "estimate": 9.0, "low": 0.5, "high": 18.0},
        MEAN | free | {"a": "dcl", "b": "untrained", "estimate": 7.0, "low": -2.0, "high": 16.0},
    ]
    table = pd.concat([BOTH, board(last)], ignore_index=True)
    (best, *_) = verdict(means=rows, table=table)
    assert best == (
        "No winner is shown: simclr leads untrained by 9 points on average over the swept settings "
        "[0.5, 18], which may be chance among 3 pairs. It is better than dcl."
    )


def test_a_search_names_its_best_settings_alone():
    lost = {"resolved": False, "winner": "", "reason": Reason.ADAPTIVE_SAMPLER}
    assert verdict(means=[MEAN | lost], spreads=[SPREAD | lost]) == (
        "The best setting is of simclr at tau=0.1: 92 % [91, 93].",
        "The best of dcl reaches 90 % [91, 93].",
    )


def test_a_reference_that_nobody_beats_is_said():
    raw = board({"objective": "simclr"}, {"objective": "raw pixels", "kind": "reference"})
    for score, is_said in {95.5: True, 90.0: False}.items():
        table = raw.assign(score=[92.0, score])
        assert bool(cautions(table, WORDS, is_search=False)) == is_said
    least = Wording(metric="loss", unit="", mode="min")
    assert cautions(raw.assign(score=[92.0, 90.0]), least, is_search=False)


def test_the_best_of_a_search_is_called_too_good_until_fresh_seeds_have_run():
    assert len(cautions(BOTH, WORDS, is_search=True)) == 1
    assert cautions(BOTH.assign(fresh=91.0), WORDS, is_search=True) == ()


@pytest.mark.parametrize(("num", "why"), [(1, "test of sign flips"), (6, "6 pairs compared")])
def test_an_interval_that_excludes_0_is_not_called_unresolved_without_a_word(num, why):
    open_row = MEAN | {"resolved": False, "winner": "", "p_holm": 0.08}
    rows = [open_row | {"a": f"o{i}"} for i in range(num)]
    said = " ".join(left_open(pairs.means(pd.DataFrame(rows), WORDS)))
    assert "excludes 0" in said
    assert why in said
    assert "0.08" in said
    even = pairs.means(pd.DataFrame([open_row | {"low": -1.0}]), WORDS)
    assert "excludes" not in " ".join(even)


def test_what_is_open_is_told_apart_from_what_is_claimed():
    open_row = MEAN | {"resolved": False, "winner": "", "p_holm": 0.4, "a": "dclw"}
    said = pairs.means(pd.DataFrame([MEAN, open_row]), WORDS)
    assert [isinstance(sentence, Open) for sentence in said] == [False, True]


GRID = {"tau": [0.05, 0.1, 0.2, 0.4], "batch_size": [32, 64]}


def report_of(*objectives, **options):
    trials = [
        planted(lambda at, e=edge: 90 - e * (1 + abs(math.log2(at["tau"] / 0.1))), objective=name,
                seed=i, **{"grid": GRID} | options)
        for i, (name, edge) in enumerate(objectives)
    ]  # fmt: skip
    return build_report(clsweep.analyse(pd.concat(trials, ignore_index=True)))


@pytest.fixture(scope="module")
def planted_report():
    return report_of(("flat", 0.5), ("steep", 6.0))


def test_the_planted_winner_wins_on_the_first_screen(planted_report):
    best, robust = planted_report.verdicts
    assert best.startswith("flat is best: it scores")
    assert robust.startswith("flat depends least on its settings")
    assert [figure.name for figure in planted_report.hero] == [
        "marginal-tau",
        "marginal-batch-size",
    ]
    assert planted_report.board.shown["objective"].tolist()[0] == "flat"


def test_the_question_says_what_was_run(planted_report):
    assert planted_report.question.startswith(
        "Which of 2 objectives is best, and how much depends on tau and batch_size?"
    )
    assert "3 seeds, a grid of 16 configurations, 48 trials" in planted_report.question


def test_sentences_of_the_first_screen_are_short(planted_report):
    texts = (*planted_report.verdicts, *planted_report.notes)
    sentences = [each for text in texts for each in text.split(". ")]
    assert max(len(sentence.split()) for sentence in sentences) <= 25


def test_no_section_is_empty_and_they_stand_in_the_order_of_questions(planted_report):
    names = [section.id for section in planted_report.sections]
    order = ["comparison", "robustness", "sensitivity", "recommendation", "tuning", "trials"]
    assert [name for name in names if name in order] == order
    assert "search" not in names
    figures = [figure.name for figure in planted_report.figures]
    assert len(figures) == len(set(figures))


def test_of_a_search_robustness_alone_is_withheld():
    trials = planted(
        lambda at: 90 - 20 * (at["tau"] - 0.4) ** 2,
        ranges={"tau": (0.05, 1.0), "lr": (0.1, 1.0)},
        num_configs=20,
    ).assign(sampler="tpe")
    report = build_report(clsweep.analyse(trials))
    assert {"robustness", "comparison", "sensitivity", "tuning"}.isdisjoint(
        section.id for section in report.sections
    )
    (search,) = [section for section in report.sections if section.id == "search"]
    assert {"search-top", "importance"} <= {table.name for table in search.tables}
    assert [figure.name for figure in report.hero] == ["history"]
    assert any("Among the tries of dcl, tau" in sentence for sentence in search.sentences)
    assert [s for s in report.open if "robustness" in s] == list(report.open)


def test_points_link_to_rows_of_the_table_of_trials(planted_report):
    (trials,) = [table for table in planted_report.tables if table.name == "trials"]
    (figure,) = [figure for figure in planted_report.figures if figure.name == "trials-tau"]
    chart = figure.chart.to_dict()
    links = {row["link"] for rows in chart["datasets"].values() for row in rows if "link" in row}
    assert links == {f"#{anchor}" for anchor in trials.anchors}
    assert len(set(trials.anchors)) == len(trials.shown) == 48


@pytest.mark.slow
def test_the_table_of_many_trials_has_the_drawn_and_the_best_ones():
    report = report_of(("flat", 0.5), grid={"tau": np.geomspace(0.05, 1, 400).tolist()})
    (trials,) = [table for table in report.tables if table.name == "trials"]
    assert len(trials.frame) == 1200
    assert len(trials.shown) + trials.more == 1200
    assert 750 <= len(trials.shown) <= trials.limit
    assert trials.shown["trial"].iloc[0] == trials.frame["trial_id"].iloc[0]
