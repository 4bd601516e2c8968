"""Sweeps that leave nothing to measure: every statistic says why, quietly, and has its columns."""

import numpy as np
import pandas as pd
import pytest

from clsweep.analysis import compare as comparison
from clsweep.analysis import (
    marginals,
    recommend,
    region_winners,
    robustness,
    sensitivity,
    tolerance_curve,
    tuning,
)
from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.analysis.reasons import Reason
from clsweep.analysis.sweep import FAILED_AS
from clsweep.statistics.health import failure_regions
from tests.analysis.draws import drawing
from tests.analysis.truths import trials_of
from tests.statistics.given import of

NAN = float("nan")
PAIR = [[90.0, 91.0], [80.0, 81.0]]
RNG = np.random.default_rng(8)
ASKED = {
    "robustness": lambda sweeps: robustness.robustness(sweeps),
    "robustness by": lambda sweeps: robustness.robustness(sweeps, by="tau"),
    "tolerance": lambda sweeps: tolerance_curve.tolerance_curve(sweeps),
    "marginals": lambda sweeps: marginals.marginal_levels(sweeps),
    "sensitivity": lambda sweeps: sensitivity.sensitivity(sweeps),
    "compare": lambda sweeps: comparison.compare(sweeps),
    "compare std": lambda sweeps: comparison.compare(sweeps, stat="std"),
    "compare within": lambda sweeps: comparison.compare(sweeps, stat="within"),
    "winners": lambda sweeps: region_winners.region_winners(sweeps, by="tau"),
    "best_of_k": lambda sweeps: tuning.expected_best_of_k(sweeps),
    "tuning_cost": lambda sweeps: tuning.cost_of_tuning(sweeps, defaults={"dcl": {"tau": 0.0}}),
    "recommend": lambda sweeps: recommend.recommend(sweeps),
    "failure_regions": lambda sweeps: failure_regions(of(sweeps)),
}
OTHER = trials_of([[70.0, 72.0], [74.0, 71.0]], objective="other", tau=[0.0, 0.1])
TWO = {"compare std": "few_settings", "compare within": "few_settings"}  # that both have
ALL = [name for name in ASKED if name not in ("winners", "failure_regions")]
ONE = {"robustness": "one_config", "robustness by": "not_swept", "tolerance": "one_config",
       "sensitivity": "nothing_swept", "tuning_cost": "one_config",
       "recommend": "nothing_swept"}  # fmt: skip
NOBODY = {"winners": "nobody_else"}
# Scores [config][seed], options, and the reason that each statistic gives; others have an answer.
EDGES = {
    "no score": (np.full((4, 2), NAN), {}, dict.fromkeys(ALL, "all_failed") | NOBODY),
    "none, left out": (np.full((4, 2), NAN), {"failed_as": "left out"},
                       dict.fromkeys(ALL, "all_failed") | NOBODY),
    "one configuration": ([[90.0, 91.0]], {}, ONE | TWO | NOBODY),
    "one seed": ([[90.0], [91.0]], {}, TWO | {"compare": "one_seed"}),
    "one failed": ([[60.0, 91.0], [NAN, NAN]], {}, TWO),
    "one left out": (
        [[90.0, 91.0], [NAN, NAN]], {"failed_as": "left out"},
        TWO | NOBODY | {"sensitivity": "one_scored", "recommend": "neighbours_failed",
                        "marginals": "no_score"}),
    "gaps": ([[90.0, NAN], [NAN, 80.0], [85.0, 86.0]], {},
             TWO | NOBODY),
    "gaps, left out": ([[90.0, NAN], [NAN, 80.0], [85.0, 86.0]], {"failed_as": "left out"},
                       TWO | NOBODY | {"compare": "one_seed"}),
    "equal scores": (np.full((4, 2), 50.1), {}, TWO | NOBODY | {"sensitivity": "equal_scores"}),
    "equal means": (np.tile([1.0, 2.0], (12, 1)), {"sampler": "qmc"},
                    TWO | {"sensitivity": "equal_means"}),
    "two of a sample": (PAIR, {"sampler": "random"},
                        TWO | {"sensitivity": "few_for_surrogate",
                               "recommend": "no_neighbourhood"}),
    "few of a sample": (RNG.normal(size=(9, 2)), {"sampler": "qmc"},
                        TWO | {"sensitivity": "few_for_surrogate"}),
    "off the axis": (RNG.normal(size=(20, 2)),
                     {"sampler": "qmc", "tau": np.r_[NAN, RNG.random(19)]},
                     TWO | NOBODY | {"sensitivity": "off_axis"}),
    "unfinished": (RNG.normal(size=(4, 2)), {"planned": {"dcl": 9}},
                   TWO | NOBODY | {"sensitivity": "unfinished"}),
    "a category": (PAIR, {"scales": {"tau": "category"}}, TWO | {"recommend": "no_neighbourhood"}),
    "a search": (RNG.normal(size=(20, 2)), {"sampler": "tpe"},
                 dict.fromkeys(ALL, "adaptive_sampler") | NOBODY | {"marginals": "surrogate_weak"}),
    "stopped early": (PAIR, {"status": ["finished", "stopped", "finished", "finished"]},
                      dict.fromkeys(ALL, "trials_stopped") | NOBODY | {"marginals": "one_scored"}),
}  # fmt: skip
# What robustness says there all the same.
KNOWN = {
    "one configuration": {"best": 90.5, "mean": 90.5},
    "one failed": {"sd": 15.5 / 2**0.5, "share_within": 0.5},  # 75.5 and the worst score seen, 60
    "one left out": {"share_within": 1.0, "num_failed": 2},
    "stopped early": {"best": 80.5, "num_failed": 0},
}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.filterwarnings("error")
def test_every_statistic_is_quiet_and_says_why_it_has_no_answer(edge):
    scores, options, reasons = EDGES[edge]
    given = {"sampler": "grid", "status": None, "tau": np.arange(len(scores)) / 10} | options
    made = {name: given.pop(name) for name in ("sampler", "status", "tau")}
    other = OTHER.assign(sampler="random" if made["sampler"] == "tpe" else made["sampler"])
    trials = pd.concat([trials_of(scores, **made), other])
    sweeps = read_sweeps(trials, metric="acc", params=["tau"], **given)
    doubts = {Reason.RESOLVED_ALONE, Reason.RESOLVED_BY_INTERVAL, Reason.RESOLVED_BY_TEST}
    doubts.add(Reason.ONE_DECIDES)  # of many tries from a sample
    for name, ask in ASKED.items():
        with drawing(60):
            frame = ask(sweeps)
        if "reason" not in frame:
            continue
        of_first = frame.get("a", frame.get("objective")) == "dcl"
        rows = frame if name == "winners" else frame[of_first]
        assert set(rows["reason"]) - {"", *doubts} == {reasons.get(name, "")} - {""}, name
        assert [*map(type, frame["note"])] == [tuple] * len(frame)
        if name == "robustness":
            known = KNOWN.get(edge, {})
            assert rows.iloc[0][list(known)].to_dict() == pytest.approx(known)
        for low in [each for each in rows if each.endswith("low") and "value" not in each]:
            ends = rows[[low, f"{low.removesuffix('low')}high"]].astype(float)
            is_open = ends.isna().any(axis=1)
            assert (is_open | (ends.iloc[:, 0] <= ends.iloc[:, 1])).all(), (name, low)
        if reasons.get(name) and name != "recommend":
            first = {"winners": "lead", "tolerance": "share"}.get(name, "low")
            numbers = [each for each in (first, "sd", "first") if each in rows]
            silent = rows.loc[rows["reason"] != "", numbers]
            assert silent.isna().all(axis=None) or name == "winners", name


@pytest.mark.parametrize("failed_as", FAILED_AS)
def test_of_nothing_the_columns_are_there(failed_as):
    sweeps = read_sweeps(OTHER, metric="acc", params=["tau"], failed_as=failed_as, chance=10.0)
    for name in ("marginals", "sensitivity", "failure_regions"):
        assert list(ASKED[name]([])) == list(ASKED[name](sweeps)), name
