"""The order of a search's configurations, against means taken by hand, and what `status` and a
running study show of it.
"""

import itertools

import pytest

from clsweep.results.standings import Standings, TrialCounts

METRIC = "knn_top1"


def plan(*, seeds=2, **configs):
    """So many configurations of each objective, as `a-1-0` for the first seed, interleaved as in a
    plan.
    """
    return [
        {"trial_id": f"{name}-{config}-{seed}", "objective": name, "config": config}
        for config in range(max(configs.values()))
        for name, num in configs.items()
        if config < num
        for seed in range(seeds)
    ]


def ended(trial_id, score, status="finished"):
    return {"trial_id": trial_id, "status": status, METRIC: score}


def scored(name, *pairs):
    numbered = itertools.product(enumerate(pairs), (0, 1))
    return [ended(f"{name}-{config}-{seed}", pair[seed]) for (config, pair), seed in numbered]


def order(rows, mode="max", **configs):
    rankings = Standings(plan(**configs), rows, metric=METRIC, mode=mode).rankings()
    return {
        ranking.objective: [ranked.config for ranked in ranking.configs] for ranking in rankings
    }


def test_the_best_has_the_best_mean_not_the_best_trial():
    rows = scored("dcl", (99.0, 51.0), (80.0, 82.0), (76.0, 76.0)) + scored(
        "simclr", (1.0, 2.0), (3.0, 0.5)
    )
    assert order(rows, dcl=3, simclr=2) == {"dcl": [1, 2, 0], "simclr": [1, 0]}
    best = Standings(plan(dcl=3), rows, metric=METRIC, mode="max").rankings()[0].configs[0]
    assert (best.rank, best.score, best.num_seeds) == (1, 81.0, 2)


def test_where_less_is_better_the_lowest_mean_is_best():
    rows = scored("dcl", (9.0, 5.0), (8.0, 8.0), (6.0, 6.0))
    assert order(rows, mode="min", dcl=3) == {"dcl": [2, 0, 1]}


def test_of_equal_means_the_one_planned_first_is_better():
    seeds = [(0.1, 0.3), (0.2, 0.2), (0.3, 0.1)]
    for shuffled in itertools.permutations(seeds):
        assert order(scored("dcl", *shuffled), dcl=3) == {"dcl": [0, 1, 2]}


@pytest.mark.parametrize(
    "row",
    [
        [],
        [ended("dcl-1-1", None, "failed")],
        [ended("dcl-1-1", 95.0, "stopped")],
        [ended("dcl-1-1", float("nan"))],
        [ended("dcl-1-1", None)],
    ],
    ids=["not run", "failed", "stopped", "not a number", "without a score"],
)
def test_what_has_not_finished_on_every_seed_takes_no_part(row):
    rows = [*scored("dcl", (50.0, 50.0)), ended("dcl-1-0", 99.0), *row]
    (ranking,) = Standings(plan(dcl=2), rows, metric=METRIC, mode="max").rankings()
    assert [ranked.config for ranked in ranking.configs] == [0]
    assert ranking.num_left_out == 1


def test_an_objective_without_any_finished_configuration_has_none():
    assert order(scored("dcl", (1.0, 2.0)), dcl=1, simclr=2) == {"dcl": [0], "simclr": []}


def tally(scores, metric=METRIC):
    rows = [
        {**row, metric: scores[name], "tau": row["config"] / 10}
        | {"status": "failed" if scores[name] is None else "finished"}
        for row in plan(dcl=2)
        if (name := row["trial_id"].removeprefix("dcl-")) in scores
    ]
    (shown,) = TrialCounts(
        plan(dcl=2), rows, metric=metric, mode="max", axes={"dcl": ["tau"]}
    ).rows()
    return shown


def test_no_configuration_on_all_seeds_is_no_best():
    shown = tally({"0-0": 99.0, "1-0": 80.0, "1-1": None})
    assert (shown["best knn_top1 %"], shown["seeds"], shown["at"]) == (None, None, "")
    assert (shown["finished"], shown["failed"]) == (2, 1)


def test_the_unit_is_the_metrics_own():
    scores = {"0-0": 1.0, "0-1": 2.0}
    assert tally(scores, "mi_estimate")["best mi_estimate nats"] == 1.5
    assert tally(scores, "train_loss")["best train_loss"] == 1.5
