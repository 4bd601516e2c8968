"""A paper's number against a measured one: the interval by its formula and by simulation, and what
is compared with what.
"""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from clsweep.analysis.reasons import Reason
from clsweep.analysis.reproduce import Printed, Verdict, reproduce
from tests.analysis import truths
from tests.analysis.truths import least_squares

# Rows of one noise, whose seeds differ in their mean by what the freedom of 6 allows for.
EVEN = np.array([[90.0, 91.0, 92.0], [81.0, 81.4, 79.6], [71.2, 69.6, 70.6]])
TAUS = [0.1, 0.2, 0.5]


def trials_of(scores, *, objective="dcl", taus=TAUS, **fixed):
    about = {"dataset": "cifar10", "encoder": "resnet18", "epochs": 200} | fixed
    trials = truths.trials_of(scores, objective=objective, tau=taus).assign(**about)
    return trials.dropna(subset="acc", ignore_index=True).rename(columns={"acc": "knn_top1"})


def rows_of(values, *, objective="dcl", taus=TAUS, spread=math.nan, **more):
    about = {"dataset": "cifar10", "encoder": "resnet18", "metric": "knn_top1", "note": ""}
    about |= {"objective": objective, "spread": spread, "rounding": 0.1, **more}
    return pd.DataFrame({"tau": taus, "value": values}).assign(**about)


def printed(rows, trials, *, cells=None, within=1.0, settings=("tau",), **more):
    cells = trials.drop_duplicates("config") if cells is None else cells
    return Printed(
        paper="A paper",
        item="Table 1",
        rows=rows,
        settings=settings,
        trials=trials,
        cells=cells.drop(columns="knn_top1", errors="ignore"),
        fixed={"knn_top1": ("dataset", "encoder", "epochs")},
        within={"knn_top1": within},
        **more,
    )


def answer(*args, **options):
    return reproduce([printed(*args, **options)])


def test_the_intervals_are_those_of_the_formula():
    table = answer(rows_of([90.0, 80.0, 70.0]), trials_of(EVEN)).iloc[0]
    _, effects, variance, freedom, _ = least_squares(EVEN)
    by_seeds = stats.t.ppf(0.975, 2) ** 2 * np.square(effects).sum() / 2
    by_rest = stats.t.ppf(0.975, freedom) ** 2 * variance * 2 / 3
    level = 91.0 + math.sqrt((by_seeds + by_rest) / 3)
    # the rounding of 0.1 / sqrt(12) is known, so it adds a few degrees of freedom
    rest = variance * (1 / 3 + 1) * 2 / 3
    whole = rest + 0.1**2 / 12
    reach = stats.t.ppf(0.975, freedom * (whole / rest) ** 2)
    half = math.sqrt(reach**2 * whole + by_seeds * (1 / 3 + 1))
    names = ["measured", "high", "difference", "difference_low", "difference_high", "num_seeds"]
    assert table[names].to_list() == pytest.approx([91.0, level, 1.0, 1 - half, 1 + half, 3])


def test_a_printed_spread_takes_the_place_of_the_noise_of_a_run():
    exact, own, wide = (
        answer(rows_of([90.0, 80.0, 70.0], spread=spread), trials_of(EVEN))["difference_high"][0]
        for spread in (0.0, math.nan, 30.0)
    )
    assert wide - 1.0 == pytest.approx(1.96 * 30.0, rel=0.01)
    assert exact < own < wide


@pytest.mark.parametrize(
    ("offset", "within", "verdict"),
    [
        (0.05, 1.0, Verdict.AGREES),
        (0.3, 1.0, Verdict.AGREES),  # apart, and by less than matters
        (0.3, 0.2, Verdict.DIFFERS),
        (-3.0, 1.0, Verdict.DIFFERS),
        (0.05, 0.01, Verdict.NOT_RESOLVED),
    ],
)
def test_the_verdict_follows_the_interval(offset, within, verdict):
    scores = np.array([[90.0, 90.05, 90.1], [80.0, 80.05, 80.1], [70.1, 70.05, 70.0]])
    values = [90.05 - offset, 80.0, 70.0]
    assert answer(rows_of(values), trials_of(scores), within=within)["verdict"][0] == verdict


def test_one_seed_has_no_interval_and_no_verdict():
    table = answer(rows_of([90.0, 80.0, 70.0]), trials_of(EVEN[:, :1]))
    assert (table["verdict"] == Verdict.NOT_RESOLVED).all()
    assert (table["reason"] == Reason.ONE_SEED).all()
    assert table[["low", "high", "difference_low", "difference_high"]].isna().all(axis=None)
    assert table["difference"][1] == pytest.approx(1.0)


def test_a_configuration_of_one_seed_has_the_noise_of_the_others():
    scores = EVEN.copy()
    scores[0, 1:] = math.nan
    table = answer(rows_of([90.0, 80.0, 70.0]), trials_of(scores))
    assert table["num_seeds"].tolist() == [1, 3, 3]
    width = table["high"] - table["low"]
    assert width[0] == pytest.approx(width[1] * math.sqrt(3))


def test_what_the_run_fixes_otherwise_is_named_and_no_difference_is_taken():
    cells = trials_of(EVEN).drop_duplicates("config")
    there = trials_of(EVEN, dataset="digits", encoder="conv4", epochs=8)
    table = answer(rows_of([20.0, 80.0, 70.0]), there, cells=cells)
    names = ["verdict", "differs_in", "here", "there"]
    assert table[names].drop_duplicates().values.tolist() == [
        [Verdict.OTHER_SCALE, "dataset, encoder, epochs", "dataset=digits, encoder=conv4, epochs=8",
         "dataset=cifar10, encoder=resnet18, epochs=200"]
    ]  # fmt: skip
    assert table["measured"].notna().all()
    assert table["difference"].isna().all()


def test_a_stand_in_for_the_papers_encoder_is_another_scale():
    rows = rows_of([90.0, 80.0, 70.0], encoder="small_alexnet")
    table = answer(rows, trials_of(EVEN), stand_ins={"small_alexnet": "resnet18"})
    assert set(table["differs_in"]) == {"encoder"}


def test_numbers_of_another_data_set_are_not_answered_by_this_one():
    rows = pd.concat([rows_of([90.0] * 3), rows_of([60.0] * 3, dataset="stl10")])
    table = answer(rows, trials_of(EVEN))
    assert table["verdict"].tolist()[3:] == [Verdict.NOT_MEASURED] * 3
    assert table["measured"].notna().tolist() == [True] * 3 + [False] * 3


def test_settings_that_were_not_run_are_not_measured():
    rows = rows_of([90.0, 80.0, 70.0, 60.0], taus=[*TAUS, 0.7])
    table = answer(rows, trials_of(EVEN))
    assert table["verdict"][3] == Verdict.NOT_MEASURED
    rows = rows_of([90.0] * 3, layer="projector")
    table = answer(rows, trials_of(EVEN), settings=("tau", "layer"))
    assert set(table["reason"]) == {Reason.NOT_SWEPT}


def test_failed_trials_answer_nothing():
    trials = trials_of(EVEN)
    trials.loc[trials["config"] == 0, "status"] = "failed"
    table = answer(rows_of([90.0, 80.0, 70.0]), trials)["verdict"]
    assert table.eq(Verdict.NOT_MEASURED).tolist() == [True, False, False]


def test_several_configurations_with_the_printed_settings_are_not_averaged():
    table = answer(rows_of([80.0], taus=[math.nan]), trials_of(EVEN)).iloc[0]
    assert (table["verdict"], table["reason"]) == (Verdict.NOT_RESOLVED, Reason.SEVERAL_SETTINGS)
    assert math.isnan(table["measured"])


def test_a_number_that_the_study_does_not_plan_has_no_verdict():
    trials = trials_of(EVEN)
    cells = trials[trials["tau"] != 0.1].drop_duplicates("config")
    table = answer(rows_of([90.0, 80.0, 70.0]), trials, cells=cells).iloc[0]
    assert (table["verdict"], table["reason"]) == (Verdict.NOT_RESOLVED, Reason.PROTOCOL_UNKNOWN)


def test_methods_for_reference_and_printed_spreads_are_not_compared():
    others = {"objective": "CMC"}, {"spread": 1.4}
    more = [rows_of([math.nan], taus=[math.nan], **other) for other in others]
    rows = pd.concat([rows_of([90.0] * 3), *more])
    table = answer(rows, trials_of(EVEN), reference_only=frozenset({"CMC"}))
    assert table["verdict"].tolist()[3:] == [Verdict.REFERENCE_ONLY, Verdict.NOT_MEASURED]
    assert table["reason"].tolist()[4] == Reason.PRINTED_SPREAD


def test_of_several_runs_the_one_that_says_most_answers():
    rows, cells = rows_of([91.0, 80.0, 70.0]), trials_of(EVEN).drop_duplicates("config")
    runs = {
        "part": trials_of(EVEN)[lambda t: t["config"] == 0],
        "small": trials_of(EVEN, epochs=8)[lambda t: t["config"] < 2],
    }
    for order in (["part", "small"], ["small", "part"]):
        table = reproduce(printed(rows, runs[name], cells=cells) for name in order)
        kinds = [Verdict.NOT_RESOLVED, Verdict.OTHER_SCALE, Verdict.NOT_MEASURED]
        assert table.sort_values("tau")["verdict"].tolist() == kinds
