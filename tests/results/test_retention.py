"""Which encoders and checkpoints stay: all that the best configuration needs, and few others."""

import random
from pathlib import Path

import pandas as pd
import pytest

from clsweep.results.folder import ResultsFolder, checkpoint_file, encoder_file
from clsweep.results.retention import Retention


def plan(*, seeds=2, **configs):
    """So many configurations of each objective, as `a-1-s0`, in a plan's order."""
    return [
        {"trial_id": f"{name}-{config}-s{seed}", "objective": name, "config": config}
        for config in range(max(configs.values()))
        for name, num in configs.items()
        if config < num
        for seed in range(seeds)
    ]


def row(trial_id, score, status=None):
    status = status or ("failed" if score is None else "finished")
    return {"trial_id": trial_id, "status": status, "knn_top1": score}


@pytest.fixture
def folder(tmp_path):
    return ResultsFolder(str(tmp_path / "out"))


def keep(folder, planned, *rows, **changes):
    """The rule, where these trials have ended."""
    given = {"encoders": "best", "checkpoints": "none", "mode": "max", **changes}
    return Retention(folder, planned, rows, metric="knn_top1", **given)


def store(folder, *trial_ids):
    for trial_id in trial_ids:
        folder.write(encoder_file(trial_id), b"weights")
        folder.write(checkpoint_file(trial_id), b"state")


def end(retention, folder, *rows):
    for each in rows:
        store(folder, each["trial_id"])
        retention.record(each)


def test_a_configuration_with_a_seed_to_come_keeps_those_it_has(folder):
    retention = keep(folder, plan(a=3))
    end(retention, folder, row("a-1-s0", 10.0), row("a-0-s0", 50.0), row("a-0-s1", 50.0))
    assert folder.stored("encoders") == ["a-0-s0", "a-0-s1", "a-1-s0"]
    end(retention, folder, row("a-1-s1", 95.0))  # on the mean of both it is the best
    assert folder.stored("encoders") == ["a-1-s0", "a-1-s1"]


def test_a_trial_under_way_keeps_its_encoder_until_its_row_is_there(folder):
    retention = keep(folder, plan(seeds=1, a=3), row("a-0-s0", 90.0))
    store(folder, "a-0-s0", "a-1-s0", "a-2-s0")
    retention.record(row("a-1-s0", 80.0))
    assert folder.stored("encoders") == ["a-0-s0", "a-2-s0"]


def test_a_configuration_that_the_scheduler_stopped_keeps_nothing(folder):
    retention = keep(folder, plan(a=2), row("a-0-s0", 20.0), row("a-0-s1", 20.0))
    store(folder, "a-0-s0", "a-0-s1")
    end(retention, folder, row("a-1-s1", 90.0), row("a-1-s0", 30.0, "stopped"))
    assert folder.stored("encoders") == ["a-0-s0", "a-0-s1"]


def test_where_every_configuration_lost_a_seed_the_best_of_them_stays(folder):
    retention = keep(folder, plan(seeds=3, a=3))
    end(retention, folder, row("a-0-s0", 99.0), row("a-0-s1", None), row("a-0-s2", None))
    end(retention, folder, row("a-1-s0", 70.0), row("a-1-s1", 70.0), row("a-1-s2", float("nan")))
    assert folder.stored("encoders") == ["a-1-s0", "a-1-s1"], "more seeds before a higher mean"
    end(retention, folder, *(row(f"a-2-s{seed}", 50.0) for seed in range(3)))
    # a whole one before all others
    assert folder.stored("encoders") == ["a-2-s0", "a-2-s1", "a-2-s2"]


@pytest.mark.parametrize("rule", ["all", "best", "none"])
def test_a_failed_trial_keeps_none(folder, rule):
    store(folder, "a-0-s0", "a-0-s1")
    retention = keep(folder, plan(a=1), row("a-0-s0", 50.0), encoders=rule)
    retention.record(row("a-0-s1", None))
    assert folder.stored("encoders") == ["a-0-s0"]


@pytest.mark.parametrize(
    ("rule", "left"),
    [("all", ["a-0-s0", "a-1-s0"]), ("best", ["a-1-s0"]), ("none", ["a-0-s0", "a-1-s0"])],
)
def test_the_rule_holds_again_after_an_interruption(folder, rule, left):
    # a-2 has no row yet; b-0 failed after it had sent its encoder
    store(folder, "a-0-s0", "a-1-s0", "a-2-s0", "b-0-s0")
    unfinished = Path(folder.path, "encoders", ".0123.tmp")
    unfinished.write_bytes(b"half")
    rows = row("a-0-s0", 60.0), row("a-1-s0", 70.0), row("b-0-s0", None)
    keep(folder, plan(seeds=1, a=3, b=1), *rows, encoders=rule).apply()
    assert folder.stored("encoders") == left
    assert not unfinished.exists()


def test_the_best_is_among_those_that_are_stored(folder):
    store(folder, "a-1-s0")  # a-0 ran while none were kept
    keep(folder, plan(seeds=1, a=2), row("a-0-s0", 90.0), row("a-1-s0", 80.0)).apply()
    assert folder.stored("encoders") == ["a-1-s0"]


def test_with_further_seeds_the_new_best_has_at_least_those(folder):
    rows = [row("a-0-s0", 80.0), row("a-1-s0", 70.0)]
    end(keep(folder, plan(seeds=1, a=2)), folder, *rows)
    assert folder.stored("encoders") == ["a-0-s0"]
    retention = keep(folder, plan(seeds=2, a=2), *rows)
    retention.apply()
    end(retention, folder, row("a-0-s1", 10.0))
    assert folder.stored("encoders") == ["a-0-s0", "a-0-s1"]
    end(retention, folder, row("a-1-s1", 70.0))
    assert folder.stored("encoders") == ["a-1-s1"]


def test_a_failed_seed_that_is_tried_again_makes_its_configuration_open(folder):
    others = [row("a-1-s0", 50.0), row("a-1-s1", 50.0)]
    store(folder, "a-1-s0", "a-1-s1")
    retention = keep(
        folder, plan(a=2), *others, row("a-0-s1", 90.0)
    )  # the failed row of a-0-s0 does not stand
    store(folder, "a-0-s1")
    retention.apply()
    end(retention, folder, row("a-0-s0", 90.0))
    assert folder.stored("encoders") == ["a-0-s0", "a-0-s1"]


def test_checkpoints_go_by_the_same_rule_and_those_of_failed_trials_stay(folder):
    retention = keep(folder, plan(a=3), encoders="none", checkpoints="best")
    end(retention, folder, row("a-0-s0", 99.0), row("a-0-s1", 51.0), row("a-1-s0", 80.0))
    assert folder.stored("checkpoints") == ["a-0-s0", "a-0-s1", "a-1-s0"]
    end(retention, folder, row("a-1-s1", 80.0), row("a-2-s0", None), row("a-2-s1", 85.0))
    assert folder.stored("checkpoints") == ["a-1-s0", "a-1-s1", "a-2-s0"]


def test_checkpoints_of_ended_trials_go_unless_the_best_are_asked_for(folder):
    retention = keep(folder, plan(a=1), encoders="none", checkpoints="last")
    store(folder, "a-0-s0", "a-0-s1")
    retention.record(row("a-0-s0", 99.0))
    assert folder.stored("checkpoints") == ["a-0-s1"]


@pytest.mark.parametrize(("mode", "num_scores"), [("max", 20), ("max", 2), ("min", 20), ("min", 2)])
def test_a_large_sweep_holds_few_encoders_and_loses_none_that_the_best_needs(
    folder, mode, num_scores
):
    """Trials start in plan order, four at once, and end in any order; some fail. With two scores
    many are the best, of which the first planned one is: on all its seeds.
    """
    rng, seeds, places = random.Random(f"{mode} {num_scores}"), 3, 4
    planned = plan(seeds=seeds, a=20, b=20)
    retention, waiting = keep(folder, planned, mode=mode), list(planned)
    running, rows = [], []
    while waiting or running:
        while waiting and len(running) < places:
            running.append(waiting.pop(0)["trial_id"])
        trial_id = running.pop(rng.randrange(len(running)))
        score = None if rng.random() < 0.1 else float(rng.randrange(num_scores))
        rows.append(row(trial_id, score))
        end(retention, folder, rows[-1])
        assert len(folder.stored("encoders")) <= (2 + places) * seeds
    frame = pd.DataFrame(rows)
    frame[["objective", "config", "seed"]] = frame["trial_id"].str.split("-", expand=True)
    frame["config"] = frame["config"].astype(int)
    whole = frame.groupby(["objective", "config"])["knn_top1"].agg(["mean", "count"])
    whole = whole[whole["count"] == seeds].round(9).reset_index()
    order = [mode == "min", True]
    best = whole.sort_values(["mean", "config"], ascending=order).groupby("objective")
    keys = best.first()["config"].items()
    expected = [f"{name}-{config}-s{seed}" for name, config in keys for seed in range(seeds)]
    assert folder.stored("encoders") == expected
