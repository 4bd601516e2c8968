"""Fronts of planted scores and costs."""

import numpy as np
import pandas as pd

import clsweep
from clsweep.analysis import recommend, sweep
from clsweep.analysis.noise import noise_of
from clsweep.statistics import pareto as question
from clsweep.statistics.pareto import on_front
from tests.planted import planted


def dominated(costs, scores, i):
    return any(
        costs[j] <= costs[i]
        and scores[j] >= scores[i]
        and (costs[j] < costs[i] or scores[j] > scores[i])
        for j in np.flatnonzero(np.isfinite(costs + scores))
    )


def test_a_front_is_what_nothing_dominates():
    rng = np.random.default_rng(0)
    for _ in range(20):
        costs, scores = rng.integers(0, 6, (2, 25)).astype(float)  # with ties
        costs[rng.random(25) < 0.1] = np.nan
        scores[rng.random(25) < 0.1] = np.nan
        known = np.isfinite(costs + scores)
        expected = [known[i] and not dominated(costs, scores, i) for i in range(25)]
        assert on_front(costs, scores).tolist() == expected


def trials():
    """The wider the better, up to 64; the costlier always. Another objective is dearer and worse,
    but for its last.
    """
    grid = {"width": [8, 16, 32, 64, 128]}
    level = {8: 50.0, 16: 60.0, 32: 70.0, 64: 80.0, 128: 75.0}
    first = planted(lambda x: level[x["width"]], grid=grid, noise=0.0, objective="a")
    other = planted(
        lambda x: level[x["width"]] + (15 if x["width"] == 128 else -20),
        grid=grid, noise=0.0, objective="b",
    )  # fmt: skip
    frame = pd.concat([first, other], ignore_index=True)
    seconds = frame["width"] + 100.0 * (frame["objective"] == "b")
    return frame.assign(wall_time_s=seconds, workers=2)


def test_the_front_of_a_study_is_over_its_objectives():
    found = clsweep.analyse(trials(), params=["width"])
    table = found.pareto()
    front = table[table["on_front"]]
    assert front["objective"].tolist() == ["a", "a", "a", "a", "b"]
    assert front["seconds"].tolist() == [16, 32, 64, 128, 456]
    assert front["score"].tolist() == [50, 60, 70, 80, 90]
    assert len(table) == 10
    lines = question.PARETO.shown(table, found.data, 1.0)
    assert len(lines) == 5
    assert lines["at"].iloc[-1] == "width=128"


def test_what_ties_is_named_as_the_recommendation_names_it():
    """Equal but for rounding: of two objectives the dearer is beaten, of one both are shown."""
    frame = trials()
    wide = frame["width"] == 128
    frame.loc[wide & (frame["objective"] == "a"), ["knn_top1", "wall_time_s"]] = [80.0, 48.0]
    frame.loc[wide & (frame["objective"] == "b"), "knn_top1"] = 80.0 * (1 + 2**-52)
    found = clsweep.analyse(frame, params=["width"])
    shown = found.pareto().query("on_front")
    assert shown[["objective", "at"]].to_numpy().tolist() == [
        ["a", f"width={width}"] for width in (8, 16, 32, 128, 64)
    ]
    picks = found.recommend().query("kind == 'best'").set_index("objective")
    assert picks.loc["a", "at"] == "width=64"
    for note in (picks.loc["a", "note"], shown["note"].iloc[0]):
        assert "tied by its mean with width=128: of" in note
    assert "tied" not in picks.loc["b", "note"]


def test_of_a_metric_that_is_better_when_less_the_least_is_on_the_front():
    frame = trials().assign(loss=lambda t: -t["knn_top1"])
    table = clsweep.analyse(frame, metric="loss", mode="min", params=["width"]).pareto()
    assert table[table["on_front"]]["score"].tolist() == [-50, -60, -70, -80, -90]
    timeless = frame.drop(columns="wall_time_s")
    table = clsweep.analyse(timeless, metric="loss", mode="min", params=["width"]).pareto()
    assert not table["on_front"].any()
    assert "not recorded" in table["note"].iloc[0]


def test_seeds_that_failed_leave_a_configuration_out():
    frame = trials()
    lost = (frame["objective"] == "a") & (frame["width"] == 64) & (frame["seed"] == 0)
    frame.loc[lost, ["status", "knn_top1"]] = "failed", np.nan
    table = clsweep.analyse(frame, params=["width"]).pareto()
    assert table[table["on_front"]]["score"].tolist() == [50, 60, 70, 75, 90]


def test_the_noise_of_many_configurations_is_estimated_once(monkeypatch):
    """A table of 10,000 took minutes where each configuration asked anew."""
    asked = []

    def count(*args, **options):
        asked.append(args)
        return noise_of(*args, **options)

    monkeypatch.setattr(sweep, "noise_of", count)
    found = clsweep.analyse(trials(), params=["width"])
    table = found.pareto()
    assert len(asked) == 2, "of each objective"
    row = table[table["objective"] == "a"].set_index("config").loc[2]
    alone = recommend.config_level(found.data.sweeps[0], 2)
    assert (row["score"], row["low"], row["high"]) == (alone["score"], alone["low"], alone["high"])


def test_the_best_of_each_has_its_level_when_tuned_and_one_setting_alone_was_not_picked():
    grid = {"width": [8, 16, 32]}
    frames = [
        planted(lambda x: 80.0 - abs(x["width"] - 16) / 8, grid=grid, objective="a", seed=1),
        planted(lambda _: 70.0, grid={"width": [8]}, objective="one", seed=2),
    ]
    seconds = [1.0] * len(frames[0]) + [0.5] * len(frames[1])
    found = clsweep.analyse(pd.concat(frames, ignore_index=True).assign(wall_time_s=seconds))
    table = found.pareto()
    best = found.recommend().query("kind == 'best'").set_index(["objective", "config"])
    tuned = table[table["when_tuned"].notna()].set_index(["objective", "config"])["when_tuned"]
    assert tuned.to_dict() == best["when_tuned"].to_dict()
    assert (table["note"][~table["on_front"]] == "").all()
    table = table[table["on_front"]]
    picked = table["note"].str.contains("picked on its own noise")
    assert picked.groupby(table["objective"]).unique().map(list).to_dict() == {
        "a": [True], "one": [False]
    }  # fmt: skip
