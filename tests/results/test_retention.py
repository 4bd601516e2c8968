"""Which encoders and checkpoints stay: all that the best configuration needs, and few others."""

import random
from pathlib import Path

import pandas as pd
import pytest

from clsweep.results.folder import ResultsFolder, checkpoint_file, encoder_file
from clsweep.results.retention import Retention
from tests.results.test_standings import plan


def rows_of(text):
    """Rows of `a-0-0 50, a-1-0 failed, a-1-1 30 stopped`."""
    rows = []
    for trial_id, score, *status in map(str.split, filter(None, text.split(", "))):
        failed = score == "failed"
        ended = {"status": "failed" if failed else (*status, "finished")[0]}
        rows.append(ended | {"trial_id": trial_id, "knn_top1": None if failed else float(score)})
    return rows


@pytest.fixture
def folder(tmp_path):
    return ResultsFolder(str(tmp_path / "out"))


def keep(folder, planned, *rows, **changes):
    """The rule, where these trials have ended."""
    given = {"encoders": "best", "checkpoints": "none", "mode": "max", **changes}
    return Retention(folder, planned, rows, metric="knn_top1", **given)


def store(folder, trial_ids):
    for trial_id in trial_ids:
        folder.write(encoder_file(trial_id), b"weights")
        folder.write(checkpoint_file(trial_id), b"state")


def end(retention, folder, *rows):
    for each in rows:
        store(folder, [each["trial_id"]])
        retention.record(each)


ONE_SEED = {"seeds": 1}
BEST_CHECKPOINTS = {"encoders": "none", "checkpoints": "best"}
# Plan, options, trials that have ended before, files that are there; then one after the other what
# ends (nothing: the rule is applied to what is there), and which files stay.
CASES = {
    "a seed to come keeps those that its configuration has": ({"a": 3}, {}, "", "", [
        ("a-1-0 10, a-0-0 50, a-0-1 50", "a-0-0 a-0-1 a-1-0"),
        ("a-1-1 95", "a-1-0 a-1-1"),  # on the mean of both it is the best
    ]),
    "a trial under way keeps its encoder until its row is there": (
        {**ONE_SEED, "a": 3}, {}, "a-0-0 90", "a-0-0 a-2-0", [("a-1-0 80", "a-0-0 a-2-0")],
    ),
    "what the scheduler stopped keeps nothing": (
        {"a": 2}, {}, "a-0-0 20, a-0-1 20", "a-0-0 a-0-1",
        [("a-1-1 90, a-1-0 30 stopped", "a-0-0 a-0-1")],
    ),
    "every configuration lost a seed": ({"seeds": 3, "a": 3}, {}, "", "", [
        ("a-0-0 99, a-0-1 failed, a-0-2 failed, a-1-0 70, a-1-1 70, a-1-2 nan",
         "a-1-0 a-1-1"),  # more seeds before a higher mean
        ("a-2-0 50, a-2-1 50, a-2-2 50", "a-2-0 a-2-1 a-2-2"),  # a whole one before others
    ]),
    **{f"a failed trial, {rule}": ({"a": 1}, {"encoders": rule}, "a-0-0 50", "a-0-0",
                                   [("a-0-1 failed", "a-0-0")])
       for rule in ("all", "best", "none")},
    # a-2 has no row yet; b-0 failed after it had sent its encoder
    **{f"after an interruption, {rule}": (
        {**ONE_SEED, "a": 3, "b": 1}, {"encoders": rule}, "a-0-0 60, a-1-0 70, b-0-0 failed",
        "a-0-0 a-1-0 a-2-0 b-0-0", [("", left)])
       for rule, left in (("all", "a-0-0 a-1-0"), ("best", "a-1-0"), ("none", "a-0-0 a-1-0"))},
    "the best is among those that are stored": (  # a-0 ran while none were kept
        {**ONE_SEED, "a": 2}, {}, "a-0-0 90, a-1-0 80", "a-1-0", [("", "a-1-0")],
    ),
    "the first of two seeds": (
        {**ONE_SEED, "a": 2}, {}, "", "", [("a-0-0 80, a-1-0 70", "a-0-0")],
    ),
    "with further seeds the new best has at least those": (
        {"a": 2}, {}, "a-0-0 80, a-1-0 70", "a-0-0",
        [("", "a-0-0"), ("a-0-1 10", "a-0-0 a-0-1"), ("a-1-1 70", "a-1-1")],
    ),
    "a failed seed that is tried again": (  # its failed row does not stand
        {"a": 2}, {}, "a-1-0 50, a-1-1 50, a-0-1 90", "a-1-0 a-1-1 a-0-1",
        [("", "a-0-1 a-1-0 a-1-1"), ("a-0-0 90", "a-0-0 a-0-1")],
    ),
    "checkpoints go by the same rule, and those of failed trials stay": (
        {"a": 3}, BEST_CHECKPOINTS, "", "", [
            ("a-0-0 99, a-0-1 51, a-1-0 80", "a-0-0 a-0-1 a-1-0"),
            ("a-1-1 80, a-2-0 failed, a-2-1 85", "a-1-0 a-1-1 a-2-0"),
    ]),
    "checkpoints of ended trials go unless the best are asked for": (
        {"a": 1}, {"encoders": "none", "checkpoints": "last"}, "", "a-0-1",
        [("a-0-0 99", "a-0-1")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_which_files_stay(folder, name):
    sizes, options, before, stored, steps = CASES[name]
    store(folder, stored.split())
    unfinished = Path(folder.path, "encoders", ".0123.tmp")
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    unfinished.write_bytes(b"half")
    retention = keep(folder, plan(**sizes), *rows_of(before), **options)
    for ended, left in steps:
        if ended:
            end(retention, folder, *rows_of(ended))
        else:
            retention.apply()
            assert not unfinished.exists()
        kind = "checkpoints" if options.get("checkpoints") else "encoders"
        assert folder.stored(kind) == left.split()


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
        score = "failed" if rng.random() < 0.1 else rng.randrange(num_scores)
        rows += rows_of(f"{trial_id} {score}")
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
    expected = [f"{name}-{config}-{seed}" for name, config in keys for seed in range(seeds)]
    assert folder.stored("encoders") == expected
