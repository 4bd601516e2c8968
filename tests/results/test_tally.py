"""The counts and the best configuration that `status` and a running study show."""

from __future__ import annotations

from typing import Any

from clsweep.results.ranking import Tally

PLAN = [
    {"trial_id": f"dcl-{config}-{seed}", "objective": "dcl", "config": config, "tau": tau}
    for config, tau in enumerate((0.1, 0.2))
    for seed in (0, 1)
]


def tally(scores: dict[str, float | None], metric: str = "knn_top1") -> dict[str, Any]:
    rows = [
        {**row, "status": "failed" if (score := scores[row["trial_id"]]) is None else "finished"}
        | {metric: score}
        for row in PLAN
        if row["trial_id"] in scores
    ]
    (shown,) = Tally(PLAN, rows, metric=metric, mode="max", axes={"dcl": ["tau"]}).rows()
    return shown


def test_no_configuration_on_all_seeds_is_no_best():
    shown = tally({"dcl-0-0": 99.0, "dcl-1-0": 80.0, "dcl-1-1": None})
    assert (shown["best knn_top1 %"], shown["seeds"], shown["at"]) == (None, None, "")
    assert (shown["finished"], shown["failed"]) == (2, 1)


def test_the_unit_is_the_metrics_own():
    scores: dict[str, float | None] = {"dcl-0-0": 1.0, "dcl-0-1": 2.0}
    assert tally(scores, "mi_estimate")["best mi_estimate nats"] == 1.5
    assert tally(scores, "train_loss")["best train_loss"] == 1.5
