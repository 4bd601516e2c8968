"""What a surrogate says of a real search of Optuna's, against the truth and Optuna's fANOVA."""

from functools import cache

import numpy as np
import optuna
import pandas as pd
import pytest

import clsweep
from clsweep.analysis.importance import importance
from clsweep.analysis.marginals import marginal_levels
from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.analysis.reasons import Reason, note
from clsweep.display.numbers import mentioned
from clsweep.statistics import verdicts
from tests.planted import planted

RANGES = {"tau": (0.05, 1.0), "lr": (1e-4, 1.0), "decay": (1e-6, 1e-2)}
SLOPES = {"tau": 25.0, "lr": 60.0, "decay": 0.0}


def place(name, value):
    low, high = RANGES[name]
    return np.log(value / low) / np.log(high / low)


def part(name, value):
    """What one hyperparameter takes from the best level of 90, at 0.6 of its axis."""
    return SLOPES[name] * (place(name, value) - 0.6) ** 2


def mean_part(name):
    return SLOPES[name] * np.mean((np.linspace(0, 1, 10_001) - 0.6) ** 2)


@cache
def search(seed, num=40):
    """The trials of a search, and Optuna's own study of it."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rng, rows = np.random.default_rng(seed), []
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))

    def objective(trial):
        at = {name: trial.suggest_float(name, *ends, log=True) for name, ends in RANGES.items()}
        scores = 90 - sum(part(*each) for each in at.items()) + 0.5 * rng.normal(size=2)
        common = {"objective": "dcl", "config": trial.number, "sampler": "tpe", **at}
        rows.extend(common | {"seed": s, "acc": x} for s, x in enumerate(scores))
        return scores.mean()

    study.optimize(objective, num)
    return pd.DataFrame(rows).assign(status="finished"), study


def sweeps_of(trials, **reading):
    return read_sweeps(trials, metric="acc", params=list(RANGES), bounds=RANGES, **reading)


def test_a_single_hyperparameter_has_no_importance_but_a_verdict():
    def level(at):
        return 80 - 20 * abs(at["lr"] - 0.5)

    trials = planted(level, ranges={"lr": (0, 1)}, num_configs=32).assign(sampler="tpe")
    [row] = clsweep.analyse(trials).importance().to_dict("records")
    assert (row["resolved"], row["r2"] > 0.9) == (True, True)
    assert 0.4 < row["usable_low"] <= row["usable_high"] < 0.6
    assert np.isnan([row["importance"], row["low"], row["high"], row["null"]]).all()
    assert verdicts.importance_verdict(clsweep.analyse(trials))[0] == (
        f"dcl depends on lr: it predicts settings left out (R2 = {row['r2']:.3g})."
    )


def test_importances_are_those_of_the_space_and_in_the_order_of_fanova():
    trials, study = search(1, num=60)
    table = importance(sweeps_of(trials), within=2.0).set_index("param")
    fanova = optuna.importance.get_param_importances(
        study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
    )
    assert table.index.tolist() == list(fanova) == ["lr", "tau", "decay"]
    axis = np.linspace(0, 1, 10_001)
    variances = {name: np.var(SLOPES[name] * (axis - 0.6) ** 2) for name in RANGES}
    for name, variance in variances.items():
        row = table.loc[name]
        assert row["low"] - 0.01 <= variance / sum(variances.values()) <= row["high"] + 0.01
        assert row["resolved"] == (name != "decay")
        assert row["r2"] > 0.9
        assert Reason.TRIED_WHERE_GOOD in [each.reason for each in row["note"]]
    assert table.loc["decay", ["usable_low", "usable_high"]].isna().all()
    ends = table.loc["lr", ["usable_low", "usable_high"]]
    assert max(part("lr", end) for end in ends) <= 2.0
    assert place("lr", ends.iloc[0]) < 0.6 < place("lr", ends.iloc[1])


@pytest.mark.slow
def test_a_best_setting_that_is_not_usable_is_named():
    """One setting is lucky far from where the level is good."""

    def level(at):
        return 90.0 - 30 * (at["lr"] - 0.3) ** 2

    trials = planted(level, ranges={"lr": (0, 1), "tau": (0, 1)}, num_configs=60)
    top = trials["config"] == trials.loc[trials["lr"].sub(0.7).abs().idxmin(), "config"]
    trials.loc[top, "knn_top1"] += 6.0
    sweeps = read_sweeps(trials.assign(sampler="tpe"), metric="knn_top1", params=["lr", "tau"])
    table = importance(sweeps, within=2.0).set_index("param")
    at = f"lr={mentioned(trials.loc[top, 'lr'].iloc[0])}"
    cautions = note(Reason.BEST_NOT_USABLE, at=at)
    assert table.loc["lr", "usable_high"] < 0.6
    assert cautions in table.loc["lr", "note"]
    assert cautions not in table.loc["tau", "note"]
    usual = importance(sweeps_of(search(0)[0]), within=2.0)
    assert Reason.BEST_NOT_USABLE not in {each.reason for row in usual["note"] for each in row}


@pytest.mark.slow
def test_bands_of_curves_hold_the_truth_where_the_search_hardly_looked():
    held = []
    for seed in range(6):
        for row in marginal_levels(sweeps_of(search(seed)[0])).to_dict("records"):
            name = row["param"]
            others = sum(mean_part(each) for each in RANGES if each != name)
            held.append(row["low"] <= 90 - others - part(name, row["position"]) <= row["high"])
    assert len(held) == 6 * 3 * 17
    assert np.mean(held) > 0.85  # the seeds of searches are few, and the values of one go together


@pytest.mark.parametrize("level", [lambda _: 90.0, lambda at: 90.0 - at["tau"]])
def test_too_few_or_noise_alone_says_so_and_draws_nothing(level):
    trials = planted(level, ranges={"tau": (0.1, 1), "lr": (0.1, 1)}, num_configs=9, noise=3.0)
    sweeps = read_sweeps(trials.assign(sampler="tpe"), metric="knn_top1", params=["tau", "lr"])
    (row,) = importance(sweeps, within=1.0).to_dict("records")
    assert row["reason"] == Reason.FEW_FOR_SURROGATE
    assert not row["resolved"]
    assert marginal_levels(sweeps)["mean"].isna().all()
    results = clsweep.analyse(trials.assign(sampler="tpe"))
    [why] = verdicts.robustness_verdict(results, by="tau")
    assert (why,) == verdicts.robustness_verdict(results)
    assert "not measured: tpe samples favour good configurations" in why


@pytest.mark.slow
def test_of_a_search_that_stops_trials_those_of_full_length_count():
    whole, trials = search(0)[0], search(0)[0].copy()
    stopped = trials["config"] % 4 == 3
    trials.loc[stopped, ["status", "acc"]] = ["stopped", 0.0]
    (first, *_) = importance(sweeps_of(trials), within=2.0).to_dict("records")
    assert first["num_configs"] == 30
    (cautions,) = [each for each in first["note"] if each.reason == Reason.FULL_LENGTH]
    assert dict(cautions.figures) == {"stopped": 20, "trials": 80}
    assert note(Reason.STOPPED_LEFT_OUT, lost=10, configs=40) in first["note"]
    assert Reason.LEFT_OUT not in [each.reason for each in first["note"]]
    (same, *_) = importance(sweeps_of(whole[~stopped]), within=2.0).to_dict("records")
    assert same["importance"] == first["importance"]
