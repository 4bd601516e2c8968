"""Fronts of planted scores and costs."""

import numpy as np
import pandas as pd
import pytest

import clsweep
from clsweep.analysis import recommend, sweep
from clsweep.analysis.noise import noise_of
from clsweep.errors import RequestError
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


def second_trials():
    """Beside the score, which rises with the width, two more that are measured: one that falls with
    it, of which less is better, and one that rises and falls.
    """
    frame = trials()
    away = np.abs(np.log2(frame["width"] / 32))
    noise = np.random.default_rng(0).normal(0, 0.1, len(frame))
    return frame.assign(uniformity=-3 + frame["width"] / 100, linear_top1=90 - 5 * away + noise)


@pytest.mark.parametrize(
    ("metric", "expected"), [("uniformity", {8, 16, 32, 64}), ("linear_top1", {32, 64})]
)
def test_against_another_metric_the_front_is_what_nothing_dominates_in_both(metric, expected):
    frame = second_trials()
    ours = frame[frame["objective"] == "a"]
    opened = clsweep.analyse(ours, params=["width"])
    table = opened.pareto(against=metric)
    front = table[table["on_front"]]
    assert {int(at.removeprefix("width=")) for at in front["at"]} == expected
    assert "seconds" not in table
    means = ours.groupby("config")[metric].mean()
    assert table.set_index("config")["second"].to_dict() == pytest.approx(means.to_dict())
    measured = table[["second", "second_low", "second_high"]].to_numpy()
    alone = clsweep.analyse(ours, metric=metric, params=["width"]).pareto()
    own = alone.set_index("config").loc[table["config"], ["score", "low", "high"]].to_numpy()
    np.testing.assert_allclose(measured, own)
    shown = question.pareto_of(metric).shown(table, opened.data, 1.0)
    assert metric in shown


def test_a_second_metric_is_one_that_the_trials_have():
    opened = clsweep.analyse(second_trials(), params=["width"])
    for metric, words in {
        "uniformty": "no other metric .uniformty.. Did you mean .uniformity.\\? Expected one of: s",
        "knn_top1": "expected another metric than the study's, given 'knn_top1'",
        "wall_time_s": "nothing says which",
    }.items():
        with pytest.raises(RequestError, match=words):
            opened.pareto(against=metric)


def test_intervals_of_a_metric_without_hits_say_whose_images_they_are_for():
    opened = clsweep.open_results("docs/results/tau-digits")
    whole = opened.pareto(against="uniformity")
    notes = whole[whole["on_front"]]["note"]
    assert notes.str.contains("intervals of uniformity are for these images alone").all()
    fixed = clsweep.open_results("docs/results/tau-digits", images="fixed")
    assert not fixed.pareto(against="uniformity")["note"].str.contains("these images").any()


def test_a_metric_that_half_of_the_trials_lack_is_that_of_the_others():
    frame = second_trials()
    frame.loc[frame["objective"] == "b", "uniformity"] = np.nan
    table = clsweep.analyse(frame, params=["width"]).pareto(against="uniformity")
    assert set(table[table["on_front"]]["objective"]) == {"a"}
    [why] = table[table["objective"] == "b"]["note"].unique()
    assert why == "uniformity not recorded"


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
