"""The tables for eyes: no number is rounded away, whatever the unit of the metric is."""

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import clsweep
from clsweep.analysis.reasons import Reason
from clsweep.display.numbers import Number, Wording, p_value, texts_of
from clsweep.statistics import compare, pair_sentences, recommend, robustness, tuning, verdicts
from clsweep.statistics.statistic import plain, points
from clsweep.sweeps.notes import notes_of
from tests.planted import planted
from tests.statistics.rows import COST

GRID = {"tau": [0.05, 0.1, 0.2, 0.4], "batch_size": [32, 64, 128]}


def trials(scale):
    """Two objectives of accuracies in percent times `scale`."""

    def steep(at):
        return scale * (80 - 3 * abs(math.log2(at["tau"] / 0.1)))

    def flat(at):
        return scale * (78 - abs(math.log2(at["tau"] / 0.2)))

    of = {"grid": GRID, "noise": 0.3 * scale}
    return pd.concat(
        [planted(steep, objective="simclr", **of), planted(flat, seed=1, **of)], ignore_index=True
    )


def tables_of(scale):
    """Every shown table with numbers in the unit of the metric."""
    analysis = clsweep.analyse(trials(scale))
    robust, within = analysis.robustness(within=scale), scale
    tables = {
        "robustness": (robustness.ROBUSTNESS, robust),
        "more": (robustness.ROBUSTNESS_MORE, robust),
        "mean": (compare.MEANS, analysis.compare(within=within)),
        "std": (compare.SPREADS, analysis.compare(stat="std", within=within)),
        "recommendation": (recommend.RECOMMEND, analysis.recommend()),
    }
    return {
        name: question.shown(frame, analysis.data, within)
        for name, (question, frame) in tables.items()
    }


@pytest.fixture(scope="module")
def tables():
    return {scale: tables_of(scale) for scale in (1.0, 1e-2, 1e-7)}


def test_accuracies_in_percent_have_two_decimals(tables):
    robust = tables[1.0]["robustness"]
    for name in ("mean", "sd", "sd*", "range", "best level"):
        assert all(
            re.fullmatch(r"\d+\.\d\d( \[\d+\.\d\d, \d+\.\d\d\])?", text) for text in robust[name]
        ), name
    assert all(re.fullmatch(r"\d+\.\d \[\d+\.\d, \d+\.\d\]", text) for text in robust["worst"])
    assert re.fullmatch(r"-?\d\.\d\d \[.*", tables[1.0]["mean"]["lead"].iloc[0])


def test_values_keep_what_tells_them_apart(tables):
    mean = tables[1e-7]["mean"].iloc[0]
    a, b, lead = (float(mean[name].split()[0]) for name in ("value a", "value b", "lead"))
    assert a != b
    assert a - b == pytest.approx(lead, rel=0, abs=1.1e-9)
    assert tables[1e-7]["robustness"]["best level"].str.fullmatch(r"\d\.\d+e-06").all()
    assert tables[1e-2]["robustness"]["best level"].str.fullmatch(r"0\.\d{3,}").all()
    assert (tables[1e-2]["std"][["value a", "value b"]].map(len) >= len("0.012")).all().all()


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ([(0.48, 0.4, 0.55), (12.345, 11, 13)], ["0.48 [0.40, 0.55]", "12.35 [11.00, 13.00]"]),
        ([(0.0213, 0.0198, 0.0226)], ["0.0213 [0.0198, 0.0226]"]),
        (
            [(50.0, 49.0, 51.0), (50.0, 49.9996, 50.0004)],
            ["50.0000 [49.0000, 51.0000]", "50.0000 [49.9996, 50.0004]"],
        ),
        (
            [(-2.2e-6, -3e-6, -1.4e-6), (-0.001, -0.5, 0.5)],
            ["-2.20e-06 [-3.00e-06, -1.40e-06]", "0.00 [-0.50, 0.50]"],
        ),
        ([(0.5, 0.4, 0.6), (1e-15, 0.0, 2e-15)], ["0.50 [0.40, 0.60]", "0.00 [0.00, 0.00]"]),
        ([(41.4, 26.9, math.inf), None], ["41.40 [26.90, inf]", ""]),
        ([(3.5e12, 3e12, 4e12)], ["3.50e+12 [3.00e+12, 4.00e+12]"]),
        ([(0.5, math.nan, math.nan), (0.25, math.nan, 1.0)], ["0.50", "0.25"]),
        ([], []),
    ],
)
def test_decimals_of_a_column(numbers, texts):
    of = [None if one is None else Number(value=one[0], low=one[1], high=one[2]) for one in numbers]
    assert texts_of(of) == texts


def test_a_plain_table_keeps_names_and_digits():
    frame = pd.DataFrame({"objective": ["a", "b"], "knn_top1": [0.81347, 0.81349],
                          "q_b_mean": [2e-5, 3e-5], "batch_size": [32.0, np.nan],
                          "empty": np.nan, "trials": [1, 2], "reason": "",
                          "note": ["", "x"]})  # fmt: skip
    table = plain(frame)
    assert list(table) == ["objective", "knn_top1", "q_b_mean", "batch_size", "trials"]
    assert table["q_b_mean"].tolist() == ["2e-05", "3e-05"]
    assert table["batch_size"].tolist() == ["32", ""]
    assert table["trials"].tolist() == [1, 2]


def test_columns_of_a_default_are_left_out_where_there_is_none():
    data = clsweep.analyse(trials(1.0)).data
    row = COST | {"best_level": 79.0, "k_within": 3, "k_low": 2, "k_high": 5, "default_at": ""}
    row |= dict.fromkeys(["default", "tunability", "tunability_low", "tunability_high"], math.nan)
    table = tuning.TUNING_COST.shown(pd.DataFrame([row]), data, 1)
    assert table.to_dict("records") == [
        {"objective": "dcl", "best level": "79.00", "tries to within 1": "3 [2, 5]"}
    ]
    given = row | {"default_at": "tau=0.1", "default": 78.0, "tunability": 1.0}
    table = tuning.TUNING_COST.shown(pd.DataFrame([row, given]), data, 1)
    assert table["gain over it"].tolist() == ["", "1.00"]


def test_a_note_on_the_missing_robust_setting_is_not_on_the_best():
    frame = planted(lambda s: 80 - s["tau"], ranges={"tau": (0.05, 1.0)}, num_configs=6)
    picks = clsweep.analyse(frame.assign(sampler="tpe")).recommend()
    assert picks["config"].notna().tolist() == [True, False]
    why = [text for text in notes_of(picks) if "not measured" in text]
    assert why == [
        f"{picks['objective'][0]} (robust): not measured: tpe samples favour good configurations"
    ]


def test_what_all_pairs_of_an_objective_have_is_said_of_it_once():
    sides = [planted(lambda s: s["tau"], grid={"tau": [1, 2]}, objective=name) for name in "abcd"]
    samplers = ("tpe", "tpe", "tpe", "grid")
    frame = pd.concat(x.assign(sampler=each) for x, each in zip(sides, samplers, strict=True))
    found = clsweep.analyse(frame).compare()
    assert notes_of(found) == ["a, b, c: tpe samples favour good configurations"]
    assert notes_of(found[:1]) == ["a, b: tpe samples favour good configurations"]
    searched = clsweep.analyse(frame[frame["objective"] != "d"])
    assert verdicts.compare_verdict(searched, stat="within") == ()  # nothing is measured
    (sentence,) = pair_sentences.compared(found[:1], "mean", Wording(metric="knn_top1"))
    why = "tpe samples favour good configurations"
    assert sentence == f"The means of a and b are not compared: {why}."
    even = found[:1].assign(estimate=0.0, low=-1.0, high=1.0, reason="no_difference", note="none")
    (sentence,) = pair_sentences.compared(even, "mean", Wording(metric="knn_top1"))
    assert "leads" not in sentence
    told = found.assign(note=["b: x", "", "", "b: x", "", ""], reason="")
    assert notes_of(told) == ["a - b, b - c: b: x"]  # not of the pair of b and d


def test_a_ratio_without_a_place_on_the_axis_says_what_the_table_says():
    """0 and infinity are arrows in the winner's colour, else nothing is resolved."""
    pairs = clsweep.analyse(trials(1.0)).compare(stat="std").iloc[[0] * 5]
    pairs = pairs.assign(
        a=list("vwxyz"),
        estimate=[0.0, np.inf, 0.0, np.nan, 1.5], low=[0.0, 1.8, np.nan, np.nan, 1.2],
        high=[0.5, np.inf, np.nan, np.nan, 2.0], p_holm=0.01, winner=["v", "b", "", "", "b"],
        resolved=[True, True, False, False, True], reason=["", "", "", Reason.NO_SCORE, ""],
    )  # fmt: skip
    figure = compare.ratio_forest(pairs, clsweep.analyse(trials(1.0)).data)
    assert figure.caption.endswith("points on to 0 or infinity, which the axis does not have.")
    sets = figure.chart.to_dict()["datasets"].values()
    (rows,) = (rows for rows in sets if "missing" in rows[0])
    drawn = [(row["resolved"], row["low_open"], row["high_open"], row["x"]) for row in rows]
    assert drawn == [
        (True, True, False, None), (True, False, True, None), (False, False, False, None),
        (False, False, False, None), (True, False, False, 1.5),
    ]  # fmt: skip
    said = [row["missing"] for row in rows if row["x"] is None]
    assert said == ["", "", "not resolved", "not measured"]
    assert (rows[0]["low"], rows[1]["high"]) == (0.5 / 1.5, 2.0 * 1.5), "beyond all others"


def test_a_p_value_above_the_threshold_does_not_read_as_the_threshold():
    found = clsweep.analyse(trials(1.0))
    texts = {0.05: "0.05", 0.05003: "0.05003", 0.0497: "0.0497", 0.0563: "0.06", 0.0012: "1.2e-03"}
    for p, text in texts.items():
        pairs = found.compare().assign(p=p, p_holm=p)
        table = compare.MEANS.shown(pairs, found.data, 1)
        assert table[["p", "p Holm"]].to_numpy().tolist() == [[text, text]]
    assert p_value(0.0503) == "0.0503"


def test_one_point_and_several():
    asked = {(1, "%"): "1 point", (0.5, "%"): "0.5 points", (2, "nats"): "2 nats", (0.1, ""): "0.1"}
    assert [points(*each) for each in asked] == list(asked.values())
    results = clsweep.analyse(trials(1.0))
    unit = replace(results.data, unit="nats")
    table = robustness.ROBUSTNESS.shown(results.robustness(), unit, 2)
    texts = " ".join(robustness.ROBUSTNESS.explained(table, unit, 2))
    assert "2 nats" in texts
    assert "point" not in texts


def test_what_columns_are_is_said_of_columns_that_there_are():
    found = clsweep.analyse(trials(1.0))
    by = robustness.ROBUSTNESS_BY
    table = by.shown(found.robustness(by="tau").assign(by="tau"), found.data, 1)
    silent = {"by", "objective", "best at", "worst at", "within 1"}
    said = {text.partition(": ")[0] for text in by.explained(table, found.data, 1)}
    assert set(table) - silent <= said
    some = table.columns[-1]
    fewer = by.explained(table.drop(columns=some), found.data, 1)
    assert said - {text.partition(": ")[0] for text in fewer} == {some}
    assert said.isdisjoint({"regret", "tolerance area", "IQM"})
