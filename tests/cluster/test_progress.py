"""What a running study says, to a file: often enough, of every long trial, and no wrong time."""

import io

import pytest
from rich.console import Console

from clsweep.cluster import progress as module
from clsweep.cluster.mailbox import read_states, write_state
from clsweep.cluster.progress import Estimate, RunProgress
from clsweep.cluster.stall import RunningTrial
from clsweep.results.standings import TrialCounts

STATE = {"epoch": 3, "epochs": 10, "step": 5, "steps": 10, "loss": 2.5, "images_per_s": 640.0}


def plan(**epochs):
    """Two trials of each objective, which trains so many epochs."""
    return [
        {"trial_id": f"{name}-{i}", "objective": name, "config": i, "seed": 0, "epochs": n}
        for name, n in epochs.items()
        for i in range(2)
    ]


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def progress_of(rows, out, *, recorded=(), **given):
    tally = TrialCounts(rows, [], metric="knn_top1", mode="max", axes={})
    given = {"concurrent": 1, "console": Console(file=out, width=200), **given}
    return RunProgress(tally, Estimate(rows, recorded), **given)


@pytest.fixture
def shown():
    """A progress of two objectives, and what it has printed."""
    out, rows = io.StringIO(), plan(dcl=10, untrained=0)
    return progress_of(rows, out), rows, out


def ended(row, seconds, score=50.0, status="finished"):
    return row | {
        "status": status, "wall_time_s": seconds, "num_images": 0, "knn_top1": score,
        "error_class": "Error", "error_message": "why",
    }  # fmt: skip


def test_a_line_comes_every_ten_seconds_and_later_every_minute(clock, shown):
    progress, rows, out = shown
    progress.started(rows[0])
    times = []
    while clock[0] < 600:
        clock[0] += 2
        before = out.getvalue()
        progress.heard({"dcl-0": STATE})
        if out.getvalue() != before:
            times.append(clock[0])
    gaps = [b - a for a, b in zip([0, *times], times, strict=False)]
    assert max(gap for gap, at in zip(gaps, times, strict=True) if at <= 180) <= 10
    assert max(gaps) <= 60
    assert "dcl-0: epoch 3/10, step 5/10, loss 2.500, 640 images/s" in out.getvalue()


def test_a_trial_that_copies_its_images_says_so_and_is_not_silent(clock, shown):
    progress, rows, out = shown
    progress.started(rows[0])
    for done in range(100):
        clock[0] += 8
        progress.heard({"dcl-0": {"preparing": f"copying images, {done} of 100 GiB"}})
    assert "dcl-0: copying images, 93 of 100 GiB" in out.getvalue()
    assert "silent" not in out.getvalue()
    assert progress.states() == {"dcl-0": {"preparing": "copying images, 99 of 100 GiB"}}
    for _ in range(9):
        clock[0] += 8
        progress.heard({"dcl-0": {"preparing": "copying images, 99 of 100 GiB"}})
    assert "dcl-0: silent for 72 s at copying images, 99 of" in progress.headline(named=2)
    progress.heard({"dcl-0": STATE})
    assert "dcl-0: epoch 3/10" in progress.headline(named=2)


def test_the_time_left_is_by_what_was_seen(clock, shown):
    """Not by a slow start, nor by what an earlier attempt has done."""
    progress, rows, _ = shown
    progress.started(rows[0])
    clock[0] = 60.0  # a process that took its time
    progress.heard({"dcl-0": STATE})  # a quarter of it, before the line was cut
    assert "left" not in progress.headline()
    clock[0] = 160.0
    progress.heard({"dcl-0": STATE | {"epoch": 5}})  # a fifth more, in 100 s
    # 500 s a trial, of which 1.55 are left, and two untrained ones of a 21st part: 823 s
    assert "about 14 min left" in progress.headline()


def test_a_long_trial_that_ends_has_its_line_and_a_short_one_none(shown):
    progress, rows, out = shown
    for row, seconds in zip(rows, (1.0, 1440.0), strict=False):
        progress.started(row)
        progress.ended(ended(row, seconds))
    assert out.getvalue().splitlines() == ["dcl-1 finished in 24 min: knn_top1 50.00"]


def test_a_silent_trial_is_named_and_ended_and_its_pace_is_forgotten(clock, shown):
    """Start-up and scores have a patience of their own; slow steps have a longer one."""
    _, rows, out = shown
    progress = progress_of(rows, out, concurrent=4, stall_s=100.0)
    names = ["quick", "slow", "starts", "scores"]
    for name in names:
        progress.started({**rows[0], "trial_id": name, "batch_size": 64})
    states = {
        "quick": STATE, "slow": STATE | {"images_per_s": 6.4},
        "scores": {"epoch": 3, "epochs": 10, "step": 10, "steps": 10, "scoring": 1},
    }  # fmt: skip
    ended = {}
    while clock[0] < 3000:
        clock[0] += 2.0
        progress.heard(states)
        for name, place in progress.stalled().items():
            ended.setdefault(name, (clock[0], place))
        if clock[0] == 20:
            assert "; 646 images/s; " in progress.headline(named=9)
        if clock[0] == 240:
            assert "images/s" not in progress.headline()
            assert "quick: silent for 4 min at epoch 3/10, step 5/10" in progress.headline()
            assert "2 more silent" in progress.headline()
            assert progress.states()["starts"] == {"silent_s": 240}
            assert "images_per_s" not in progress.states()["quick"]
    assert ended == {
        "quick": (102, "silent for 2 min at epoch 3/10, step 5/10"),
        "slow": (202, "silent for 3 min at epoch 3/10, step 5/10"),
        "starts": (2400, "silent for 40 min at its start"),
        "scores": (2402, "silent for 40 min at epoch 3/10, scoring"),
    }


def test_time_in_which_the_run_itself_stood_still_is_no_silence(clock, shown):
    progress, rows, _ = shown
    progress.started(rows[0])
    for seconds in (2.0, 10_000.0, 2.0):
        clock[0] += seconds
        progress.heard({"dcl-0": STATE})
    assert progress.states() == {"dcl-0": STATE}


def test_every_line_names_that_memory_is_waited_for(clock, shown):
    progress, _, out = shown
    progress.waits = True
    for _ in range(2):
        clock[0] += module.PLAIN_S
        progress.heard({})
    assert out.getvalue() == "0 of 4 trials, 0 running; waits for memory\n" * 2
    progress.waits = False
    assert progress.headline() == "0 of 4 trials, 0 running"


def test_a_failure_of_any_length_is_one_line_and_no_order(shown):
    progress, rows, out = shown
    message = "\x1b[31m" + "x" * 10**6 + "\nsecond"
    progress.ended(ended(rows[0], None, status="failed") | {"error_message": message})
    printed = out.getvalue()
    assert printed.startswith("dcl-0 failed: Error: \\x1b[31mxxx")
    assert (len(printed.splitlines()), len(printed) < 1000, "\x1b" in printed) == (1, True, False)


def test_an_untrained_baseline_does_not_set_the_estimate():
    rows = plan(untrained=0, dcl=10)
    estimate = Estimate(rows)
    estimate.ended(ended(rows[0], 2.0))
    assert estimate.seconds_left([], 1) is None, "of dcl nothing is known"
    half = RunningTrial(rows[2], 0.5, gained=0.5, seconds=600.0)
    # a 21st part for the other untrained one, half a trial, a whole one
    assert estimate.seconds_left([half], 1) == pytest.approx(1200 / 21 + 600 + 1200)
    estimate.ended(ended(rows[2], 1200.0))
    assert estimate.seconds_left([], 1) == pytest.approx(1200 / 21 + 1200)
    assert estimate.seconds_left([], 2) == pytest.approx((1200 / 21 + 1200) / 2)
    assert estimate.seconds_left([RunningTrial(rows[3], 0.25)], 9) == pytest.approx(900), (
        "the longest"
    )


def test_what_a_trial_says_is_heard_until_it_ends(tmp_path):
    assert read_states(str(tmp_path), ["a"]) == {}
    for step in (1, 2):
        write_state(str(tmp_path), "a", STATE | {"step": step})
    write_state(str(tmp_path), "b", STATE)
    (tmp_path / "states" / "c").write_text("{half")
    assert read_states(str(tmp_path), ["a", "c"]) == {"a": STATE | {"step": 2}}
    assert read_states(str(tmp_path), ["b"]) == {}, "b was not running any more"


def test_before_trials_run_others_of_their_objectives_say_how_long(shown):
    _, rows, out = shown
    recorded = [ended({"trial_id": "dcl-0", "objective": "dcl"}, 240.0)]
    for known, num, printed in (
        ([], 4, "4 trials to run, 1 at once\n"),
        (recorded, 3, "3 trials to run, 1 at once, about 4 min once they run\n"),
        (recorded, 1, "1 trial to run, 1 at once\n"),  # as --limit asks
        ([recorded[0] | {"status": "failed"}], 3, "3 trials to run, 1 at once\n"),
    ):
        out.truncate(0), out.seek(0)
        progress_of(rows, out, recorded=known).announce(num)
        assert out.getvalue() == printed
