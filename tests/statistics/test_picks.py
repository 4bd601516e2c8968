"""Picks without labels: a loop of its own, planted pools, how often the intervals cover, and the
way from a table to the screen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import clsweep
from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.analysis.reasons import Reason
from clsweep.statistics.picks import PICK_COLUMNS, PICKS, picks
from tests.analysis import truths
from tests.statistics.given import of


def trials_of(acc: Any, **columns: Any) -> Any:
    return truths.trials_of(acc, tau=np.arange(len(acc)) / 10, **columns)


def read(trials: Any, mode: str = "max", **options: Any) -> Any:
    sweeps = read_sweeps(trials, metric="acc", params=["tau"], mode=mode)
    return picks(of(sweeps, trials=trials, metric="acc", **options))


def test_the_pick_and_its_loss_against_a_loop():
    rng = np.random.default_rng(0)
    acc = 80 + 3 * rng.normal(size=(14, 1)) + 0.2 * rng.normal(size=(14, 3))
    rank, align = rng.normal(size=(14, 3)), rng.normal(size=(14, 3))
    table = read(trials_of(acc, rankme=rank, alignment=align))
    assert list(table) == list(PICK_COLUMNS)
    assert list(table["score"]) == ["rankme", "alignment"], "no trial has lidar"
    means = acc.mean(axis=1)
    best = np.mean([acc[np.delete(acc, s, 1).mean(axis=1).argmax(), s] for s in range(3)])
    for row, pick, good in (
        (table.iloc[0], rank.mean(axis=1).argmax(), rank.mean(axis=1)),
        (table.iloc[1], align.mean(axis=1).argmin(), -align.mean(axis=1)),
    ):
        assert (row["config"], row["of"], row["num_configs"]) == (pick, "dcl", 14)
        assert row["picked"] == pytest.approx(means[pick])
        assert row["best"] == pytest.approx(np.clip(best, means[pick], means.max()))
        assert row["regret"] == pytest.approx(row["best"] - row["picked"])
        assert row["low"] <= row["regret"] <= row["high"]
        assert row["rho"] == pytest.approx(stats.spearmanr(good, means)[0])
        assert row["rho_low"] < row["rho"] < row["rho_high"]


@pytest.mark.parametrize("lost", [[(0, 0)], [(11, 2), (5, 0), (5, 1)], [(3, 0), (3, 1), (3, 2)]])
def test_a_study_with_failed_trials(lost):
    level = 80 + np.arange(12)
    acc = level[:, None] + 1e-6 * np.random.default_rng(2).normal(size=(12, 3))
    trials = trials_of(acc, rankme=np.tile(-level[:, None], 3))
    gone = [config * 3 + seed for config, seed in lost]
    trials.loc[gone, ["acc", "rankme"]] = np.nan
    trials.loc[gone, "status"] = "failed"
    others = pd.concat([trials, trials.assign(objective="simclr")[trials["seed"] < 2]])
    for row in read(others).to_dict("records"):
        assert row["config"] == 0, "the worst"
        assert row["regret"] == pytest.approx(11, abs=1e-4)


def test_low_values_of_the_metric_may_be_good():
    loss = np.array([[1.0, 1.1], [2.0, 2.1], [3.0, 3.2]])
    row = read(trials_of(loss, rankme=loss), mode="min").iloc[0]
    assert row["picked"] == pytest.approx(3.1)
    assert row["best"] == pytest.approx(1.05)
    assert row["regret"] == pytest.approx(2.05)


def test_those_of_another_yardstick_are_not_pooled():
    acc = 80 + np.random.default_rng(2).normal(size=(12, 3))
    both = [trials_of(acc, objective=name, rankme=acc) for name in ("dcl", "byol")]
    trials = pd.concat(both, ignore_index=True)
    assert list(read(trials)["objective"]) == ["dcl", "byol", "all"]
    apart = read(trials, yardsticks={"dcl": "knn_k 1", "byol": "knn_k 5"})
    assert list(apart["objective"]) == ["dcl", "byol"]


def test_a_pick_loses_no_less_against_the_best_of_all_than_against_its_own():
    """Of equal objectives the best of all was picked among more, and on worse seeds."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        names = ("dcl", "byol", "barlow")
        acc = {name: 80 + rng.normal(size=(6, 3)) for name in names}
        rank = {name: rng.normal(size=(6, 3)) for name in names}
        frames = [trials_of(acc[n], objective=n, rankme=rank[n]) for n in names]
        table = read(pd.concat(frames, ignore_index=True)).set_index("objective")
        levels = [  # as of each alone
            np.clip(
                np.mean([own[np.delete(own, s, 1).mean(axis=1).argmax(), s] for s in range(3)]),
                own.mean(),
                own.mean(axis=1).max(),
            )
            for own in acc.values()
        ]
        name = max(names, key=lambda n: rank[n].mean(axis=1).max())
        pick = acc[name].mean(axis=1)[rank[name].mean(axis=1).argmax()]
        assert table.loc["all", "of"] == name
        assert table.loc["all", "regret"] >= table.loc[name, "regret"]
        assert table.loc["all", "regret"] == pytest.approx(max(0.0, max(levels) - pick))


def test_what_a_search_and_too_few_trials_cannot_tell():
    rng = np.random.default_rng(3)
    single = read(trials_of(rng.normal(size=(12, 1)), rankme=rng.normal(size=(12, 1)))).iloc[0]
    assert single["reason"] == Reason.ONE_SEED
    assert np.isnan(single["low"])
    assert np.isfinite(single["regret"])
    assert np.isfinite(single["rho"])
    few = read(trials_of(rng.normal(size=(5, 3)), rankme=rng.normal(size=(5, 3)))).iloc[0]
    assert np.isfinite(few["low"])
    assert np.isnan(few["rho"])
    assert Reason.FEW_PAIRED in {note.reason for note in few["note"]}
    acc, rank = rng.normal(size=(20, 2)), rng.normal(size=(20, 2))
    searched = read(trials_of(acc, sampler="tpe", rankme=rank)).iloc[0]
    assert np.isfinite(searched["regret"])
    assert np.isnan(searched["rho"])
    assert Reason.ADAPTIVE_SAMPLER in {note.reason for note in searched["note"]}
    one = read(trials_of(rng.normal(size=(1, 3)), rankme=rng.normal(size=(1, 3)))).iloc[0]
    assert one["reason"] == Reason.ONE_SCORED
    assert np.isnan(one["regret"])


# From a table to the screen


@pytest.fixture(scope="module")
def pool():
    """RankMe knows the best of dcl and of simclr, and overrates simclr."""
    rng = np.random.default_rng(0)
    tau = np.arange(12) / 10
    frames = []
    for name, level in (("dcl", 80.0), ("simclr", 70.0)):
        acc = level - 20 * np.square(tau - 0.5)[:, None] + 0.1 * rng.normal(size=(12, 3))
        frame = trials_of(acc, objective=name, uniformity=acc)
        frames.append(frame.assign(rankme=frame["acc"] + 2 * (80 - level)))
    return pd.concat(frames, ignore_index=True).rename(columns={"acc": "knn_top1"})


def test_what_the_scores_would_have_picked(pool):
    found = clsweep.analyse(pool)
    assert (found.data.metric, found.data.params) == ("knn_top1", ("tau",))
    table = found.picks().set_index(["objective", "score"])
    own = table.loc[("dcl", "rankme")]
    assert own["regret"] == 0
    assert own["best"] == own["picked"], "though on other seeds the best is lower"
    assert table.loc[("all", "rankme"), "of"] == "simclr"
    assert table.loc[("all", "rankme"), "low"] > 8
    assert table.loc[("dcl", "uniformity"), "rho"] == pytest.approx(-1), "low values are good"
    lost = clsweep.analyse(pool.assign(status=["failed"] + ["finished"] * 71)).picks()
    own = lost.groupby("objective")["note"].agg(lambda notes: notes.str.contains("failed").all())
    assert own.to_dict() == {"all": False, "dcl": True, "simclr": False}, "said of it once"
    lines = PICKS.shown(found.picks(), found.data, 1.0)
    assert lines["picks"].iloc[-2].startswith("simclr ")
    assert "best" not in lines, "a level of its own in each row"
    assert (lines["best or picked"].astype(float) >= lines["picked"].astype(float)).all()


def test_nothing_is_picked_without_labels_of_what_trained_with_them(pool):
    framework = pool["objective"].map({"dcl": "simclr", "simclr": "supcon"})
    table = clsweep.analyse(pool.assign(framework=framework)).picks()
    assert set(table["objective"]) == {"dcl"}


def test_a_metric_without_labels_judges_none(pool):
    assert clsweep.analyse(pool, metric="rankme").picks().empty
    assert clsweep.analyse(pool.drop(columns=["rankme", "uniformity"])).picks().empty


def test_the_command_prints_it(pool, tmp_path, cli_command):
    pool.to_parquet(tmp_path / "trials.parquet")
    code, out, _ = cli_command("picks", str(tmp_path / "trials.parquet"))
    assert code == 0
    assert "rankme" in out
    assert "[" in out
    options = ("--metric", "uniformity")
    code, out, _ = cli_command("picks", str(tmp_path / "trials.parquet"), *options)
    assert code == 0
    assert "give a --metric of labels" in out


@pytest.mark.slow
@pytest.mark.parametrize(("shared", "shift"), [(0.0, 0.0), (0.9, 0.0), (-0.9, 0.0), (0.9, 8.0)])
@pytest.mark.parametrize(("num", "seeds", "spread"), [(12, 3, 1.0), (40, 3, 0.3), (6, 2, 1.0)])
def test_intervals_of_the_loss_cover(num, seeds, spread, shared, shift):
    """Also where the noise of a trial moves its score without labels as it moves the metric, and
    where a seed moves all.
    """
    rng, hits, runs, widths = np.random.default_rng(0), 0, 250, []
    for _ in range(runs):
        truth, noise = spread * rng.normal(size=(num, 1)), rng.normal(size=(num, seeds))
        own, shifts = rng.normal(size=(num, seeds)), shift * rng.normal(size=seeds)
        score = 0.5 * truth + shared * noise + np.sqrt(1 - shared**2) * own
        row = read(trials_of(truth + noise + shifts, rankme=score)).iloc[0]
        true = float(truth.max() - truth[row["config"], 0])
        hits += row["low"] - 1e-12 <= true <= row["high"]
        widths.append(row["high"] - row["low"])
    assert hits / runs > 0.92
    if seeds > 2:  # of two a shift is hardly seen
        assert np.median(widths) < 5
