"""Scores without labels from the table to the screen and the report."""

import numpy as np
import pandas as pd
import pytest

import clsweep
from clsweep.statistics.picks import PICKS
from tests.analysis import truths


@pytest.fixture(scope="module")
def trials():
    """RankMe knows the best of dcl and of simclr, and overrates simclr."""
    rng = np.random.default_rng(0)
    tau = np.arange(1, 13) / 10
    frames = []
    for name, level in (("dcl", 80.0), ("simclr", 70.0)):
        acc = level - 20 * np.square(tau - 0.5)[:, None] + 0.1 * rng.normal(size=(12, 3))
        frame = truths.trials_of(acc, objective=name, tau=tau, uniformity=acc)
        frames.append(frame.assign(rankme=frame["acc"] + 2 * (80 - level)))
    return pd.concat(frames, ignore_index=True).rename(columns={"acc": "knn_top1"})


def test_what_the_scores_would_have_picked(trials):
    found = clsweep.analyse(trials)
    assert (found.data.metric, found.data.params) == ("knn_top1", ("tau",))
    table = found.picks().set_index(["objective", "score"])
    assert table.loc[("dcl", "rankme"), "regret"] == 0
    assert table.loc[("all", "rankme"), "of"] == "simclr"
    assert table.loc[("all", "rankme"), "low"] > 8
    assert table.loc[("dcl", "uniformity"), "rho"] == pytest.approx(-1), "low values are good"
    lost = clsweep.analyse(trials.assign(status=["failed"] + ["finished"] * 71)).picks()
    own = lost.groupby("objective")["note"].agg(lambda notes: notes.str.contains("failed").all())
    assert own.to_dict() == {"all": False, "dcl": True, "simclr": False}, "said of it once"
    lines = PICKS.shown(found.picks(), found.data, 1.0)
    assert lines["picks"].iloc[-2].startswith("simclr ")
    assert "best" not in lines, "a level of its own in each row"
    assert (lines["best or picked"].astype(float) >= lines["picked"].astype(float)).all()


def test_nothing_is_picked_without_labels_of_what_trained_with_them(trials):
    framework = trials["objective"].map({"dcl": "simclr", "simclr": "supcon"})
    table = clsweep.analyse(trials.assign(framework=framework)).picks()
    assert set(table["objective"]) == {"dcl"}


def test_a_metric_without_labels_judges_none(trials):
    assert clsweep.analyse(trials, metric="rankme").picks().empty
    assert clsweep.analyse(trials.drop(columns=["rankme", "uniformity"])).picks().empty


def test_the_command_prints_it(trials, tmp_path, cli_command):
    trials.to_parquet(tmp_path / "trials.parquet")
    code, out, _ = cli_command("picks", str(tmp_path / "trials.parquet"))
    assert code == 0
    assert "rankme" in out
    assert "[" in out
    options = ("--metric", "uniformity")
    code, out, _ = cli_command("picks", str(tmp_path / "trials.parquet"), *options)
    assert code == 0
    assert "give a --metric of labels" in out
