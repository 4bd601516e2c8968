"""Experiments of Ray Tune, as it writes them: how their trials ended, and what was set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clsweep.errors import RequestError
from clsweep.sweeps.from_ray import read_ray
from clsweep.sweeps.import_table import import_sweep
from tests.sweeps.recorded import unpack

DATE = "2026-11-27_17-01-26"


def ray_trial(root, name, config, scores, /, **last):
    """A trial's folder as Ray 2.60 writes it; last: what else its last report has."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "params.json").write_text(json.dumps(config))
    rows = [
        {"acc": value, "training_iteration": i + 1, "date": DATE, "config": config}
        for i, value in enumerate(scores)
    ]
    rows[-1:] = [row | last for row in rows[-1:]]
    (folder / "result.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def ray_state(root: Path, name: str = "1", **status: str) -> None:
    rows = [
        [json.dumps({"relative_logdir": n, "status": s.removeprefix("CUT ")}),
         json.dumps({"last_result": {"done": False}} if s.startswith("CUT ") else {})]
        for n, s in status.items()
    ]  # fmt: skip
    state = {"trial_data": rows, "runner_data": {"_metric": "acc"}}
    (root / f"experiment_state-{name}.json").write_text(json.dumps(state))


def statuses(source: Path) -> list[str]:
    """How the trials of Ray's ended, in the order of their folders."""
    rows = import_sweep(read_ray(source), metric="acc", mode="max").rows
    return [row["status"] for row in rows]


def test_a_recorded_experiment(tmp_path):
    """Of two trials the second failed in its second step."""
    sweep = read_ray(unpack("ray.tar.gz", tmp_path))
    assert (sweep.metric, sweep.notes) == ("acc", [])
    whole, lost = sweep.trials
    assert (whole.group, whole.status, whole.length) == ("exp", "finished", 3)
    assert (lost.group, lost.status, lost.length) == ("exp", "failed", 1)
    for trial, lr, acc in ((whole, 0.1, 82.1), (lost, 0.2, 80.2)):
        assert trial.settings == {"lr": lr, "net.width": 4}
        assert trial.results == {"acc": pytest.approx(acc)}


def test_a_trial_of_ray_that_met_its_criterion_has_finished(tmp_path):
    """`RunConfig(stop={"acc": 0.9})`: one met it after 2 reports, a scheduler cut one after 1."""
    scores = {"met": [0.5, 0.95], "cut": [0.4], "long": [0.1, 0.2, 0.3]}
    rows = []
    for lr, (name, values) in enumerate(scores.items()):
        ray_trial(tmp_path, name, {"lr": lr}, values, done=True)
        row = {"relative_logdir": name, "status": "TERMINATED", "stopping_criterion": {"acc": 0.9}}
        rows.append(
            [json.dumps(row), json.dumps({"last_result": {"acc": values[-1], "done": True}})]
        )
    (tmp_path / "experiment_state-1.json").write_text(json.dumps({"trial_data": rows}))
    table = import_sweep(read_ray(tmp_path), metric="acc", mode="max")
    assert {row["lr"]: row["status"] for row in table.rows} == {
        0: "finished", 1: "stopped", 2: "finished",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("scores", "ended", "note"),
    [
        # `stop=` a function, of which no file tells: the short ones have reached its target
        (([0.5, 0.91], [0.95], [0.1, 0.2, 0.3]), "finished", "finished: 2 that sent fewer reports"),
        (([0.5, 0.2], [0.95], [0.1, 0.2, 0.3]), "stopped", "1 of those stopped have a better acc"),
        (([0.5, 0.2], [0.1], [0.1, 0.2, 0.3]), "stopped", "stopped: 2 that sent fewer reports"),
    ],
)  # fmt: skip
def test_what_is_short_and_better_than_all_others_has_reached_a_target(
    scores, ended, note, tmp_path
):
    for mode, sign in (("max", 1), ("min", -1)):
        for lr, values in enumerate(scores):
            at = tmp_path / mode, f"t{lr}"
            ray_trial(*at, {"lr": lr}, [sign * value for value in values], done=True)
        ray_state(tmp_path / mode, t0="TERMINATED", t1="TERMINATED", t2="TERMINATED")
        table = import_sweep(read_ray(tmp_path / mode), metric="acc", mode=mode)
        assert [row["status"] for row in table.rows] == [ended, ended, "finished"]
        assert any(each.startswith(note) for each in table.notes)


def test_a_trial_of_ray_with_fewer_reports_was_stopped(tmp_path):
    for lr, count in ((0.1, 3), (0.2, 1), (0.3, 3)):
        ray_trial(tmp_path / "exp", f"t{lr}", {"lr": lr, "net": {"w": 4}}, [80 + lr] * count)
    for name, date in (("t0.1", "2026-11-27_17-00-58"), ("t0.3", "2026-11-27_17-01-27")):
        (tmp_path / "exp" / name / "error.txt").write_text(f"Failure # 1 (occurred at {date})\n")
    trials = read_ray(tmp_path).trials
    assert statuses(tmp_path) == ["finished", "stopped", "failed"]
    assert [t.settings for t in trials] == [{"lr": lr, "net.w": 4} for lr in (0.1, 0.2, 0.3)]
    assert [t.results for t in trials] == [{"acc": 80 + lr} for lr in (0.1, 0.2, 0.3)]
    assert {t.group for t in trials} == {"exp"}


def test_a_report_of_ray_that_was_cut_off_is_left_out_at_the_end_alone(tmp_path):
    ray_trial(tmp_path / "exp", "t", {"lr": 0.1}, [80.0, 81.0])
    file = tmp_path / "exp" / "t" / "result.json"
    file.write_bytes(file.read_bytes() + '{"acc": 9, "é'.encode()[:-1])
    assert [trial.results for trial in read_ray(tmp_path).trials] == [{"acc": 81.0}]
    file.write_bytes(file.read_bytes() + b'{"acc": 82.0}\n')  # and went on behind it
    with pytest.raises(RequestError, match=r"result\.json:3: expected a report"):
        read_ray(tmp_path)
    for each in (file, file.with_name("params.json")):  # which the reports tell, too
        each.unlink()
    table = file.with_name("progress.csv")
    table.write_text("acc,config/net/lr\r\n80.5,0.1\r\n81.5,0")
    trials = [(trial.results, trial.settings) for trial in read_ray(tmp_path).trials]
    assert trials == [({"acc": 80.5}, {"net.lr": 0.1})]
    for text, says in (
        ("80.5,0.1\n", "1: expected names of columns, given 80.5"),
        ("acc,b\n8,1\n9\n8,1\n", "3: expected 2 cells, given 1"),
    ):
        table.write_text(text)
        with pytest.raises(RequestError, match=f"progress.csv:{says}"):
            read_ray(tmp_path)


@pytest.mark.parametrize(
    ("settings", "lengths", "ended"),
    [
        ([(1, 0.1), (1, 0.1), (3, 0.1), (3, 0.1)], [1, 1, 3, 3], "all"),
        ([(3, 0.1), (9, 0.1), (3, 0.2), (9, 0.2)], [1, 3, 1, 3], "all"),  # a report per 3 epochs
        ([(4, 0.1), (10, 0.1), (4, 0.2), (10, 0.2)], [2, 4, 2, 4], "all"),  # and at the end
        ([(9, 0.1), (9, 0.2), (9, 0.3), (9, 0.3)], [1, 2, 3, 3], "the longest"),
        ([(9, 0.4), (9, 0.1), (9, 0.1), (9, 0.2)], [3, 1, 1, 3], "the longest"),
    ],
)
def test_a_setting_says_how_long_trials_of_ray_are_or_none_does(settings, lengths, ended, tmp_path):
    """That lengths are the same wherever a learning rate is says nothing."""
    for number, ((epochs, lr), length) in enumerate(zip(settings, lengths, strict=True)):
        ray_trial(tmp_path / "exp", f"t{number}", {"epochs": epochs, "lr": lr}, [80.0] * length)
    ray_trial(tmp_path / "of another length", "t", {"epochs": 9, "lr": 1.0}, [80.0] * 7)
    finished = [status == "finished" for status in statuses(tmp_path)[:4]]
    assert finished == [ended == "all" or length == 3 for length in lengths]


def test_a_trial_of_ray_that_was_tried_again_ended_as_its_experiment_says(tmp_path):
    ended = {"retried": "TERMINATED", "lost": "ERROR", "going": "RUNNING"}
    for name in ended:
        ray_trial(tmp_path / "exp", name, {"lr": 0.1}, [80.0])
        (tmp_path / "exp" / name / "error.txt").write_text("of the first attempt")
    ray_state(tmp_path / "exp", **ended)
    expected = ["running", "failed", "finished"]
    assert [t.status for t in read_ray(tmp_path / "exp").trials] == expected
    for is_text in (True, False):  # as Ray 2.3 and Ray 0.8 wrote it
        old = [
            {"logdir": f"/home/a/exp/{name}", "status": status, "last_result": {"done": True}}
            for name, status in ended.items()
        ]
        state = {"checkpoints": [json.dumps(each) if is_text else each for each in old]}
        (tmp_path / "exp" / "experiment_state-1.json").write_text(json.dumps(state))
        assert [t.status for t in read_ray(tmp_path / "exp").trials] == expected


@pytest.mark.parametrize(
    ("trials", "expected"),
    [  # of each: what its experiment says, how many reports, whether the last is `done`
        # `epochs` are 1, 2 and 4
        ([("TERMINATED", 1, True), ("TERMINATED", 2, True), ("TERMINATED", 4, False)],
         ["finished", "finished", "finished"]),
        ([("TERMINATED", 1, True), ("TERMINATED", 1, True), ("TERMINATED", 4, False)],
         ["stopped", "stopped", "finished"]),
        ([("TERMINATED", 1, False), ("TERMINATED", 3, False), ("TERMINATED", 4, False)],
         ["finished", "finished", "finished"]),  # they returned
        ([("CUT TERMINATED", 1, False), ("TERMINATED", 3, False), ("CUT ERROR", 4, False)],
         ["stopped", "finished", "failed"]),  # by a budget of time
        ([("TERMINATED", 1, True), ("TERMINATED", 3, True), ("TERMINATED", 4, True)],
         ["stopped", "stopped", "finished"]),
        ([("PAUSED", 1, False), ("PAUSED", 1, False), ("TERMINATED", 2, True)],
         ["stopped", "stopped", "finished"]),  # and nothing goes on
        # HyperBand pauses and ends trials at their last report, too
        ([("PAUSED", 2, False), ("PAUSED", 1, False), ("CUT TERMINATED", 2, False),
          ("TERMINATED", 2, True)],
         ["finished", "stopped", "finished", "finished"]),
        ([("PAUSED", 1, False), ("RUNNING", 1, False), ("TERMINATED", 2, True)], ["finished"]),
        ([("", 1, False), ("", 2, True), ("TERMINATED", 2, True)], ["finished", "finished"]),
        ([("TERMINATED", 0, None), ("PENDING", 1, False), ("TERMINATED", 2, False)],
         ["failed", "finished"]),
    ],
)  # fmt: skip
def test_how_trials_of_ray_ended(trials, expected, tmp_path):
    for number, (_, count, done) in enumerate(trials):
        config = {"lr": 0.1 * number, "epochs": 2**number}
        ray_trial(tmp_path / "exp", f"t{number}", config, [80.0] * count, done=done)
    named = {f"t{number}": status for number, (status, *_) in enumerate(trials) if status}
    ray_state(tmp_path / "exp", **named)
    assert statuses(tmp_path / "exp") == expected


def test_an_experiment_of_ray_with_copies_and_a_state_that_was_cut_off(tmp_path, monkeypatch):
    for name, at in (("a", "exp"), ("b", "exp"), (".copy of a", "exp"), ("a", ".")):
        scores = [70.0] if at == "." else [70.0, 80.0]  # of before its end
        ray_trial(tmp_path / at, name, {"lr": 0.1}, scores, trial_id=f"1_{name[-1]}")
    ray_state(tmp_path / "exp", a="TERMINATED", b="ERROR", gone="ERROR")
    (tmp_path / "exp" / "experiment_state-2.json").write_text("")
    (tmp_path / "exp" / "progress alone").mkdir()  # which says no settings
    (tmp_path / "exp" / "progress alone" / "progress.csv").write_text("acc\n80\n")
    checkpoint = tmp_path / "exp" / "a" / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "params.json").write_text("{}")
    (tmp_path / "exp" / "b" / "params.json").write_text('{"lr": 0')
    monkeypatch.chdir(tmp_path / "exp")
    sweep = read_ray(Path())
    assert [(t.group, t.status) for t in sweep.trials] == [("exp", "finished"), ("exp", "failed")]
    assert sweep.metric == "acc"
    assert [trial.settings for trial in sweep.trials] == [{"lr": 0.1}] * 2
    assert sweep.notes == [
        "left out: 1 folders of trials that are copies of others",
        "left out: 2 trials whose folder or files are gone",
    ]
    assert [trial.results["acc"] for trial in read_ray(tmp_path).trials] == [80.0, 80.0]
    ray_trial(tmp_path / "exp", "c", {"lr": 0.2}, [80.0], trial_id="1_a")  # of another experiment
    assert len(read_ray(tmp_path).trials) == 3


def test_names_and_settings_of_ray_are_read_as_it_means_them(tmp_path):
    for index in range(2):
        config = {"act": f"<function relu at 0x7F{index}>", "__trial_index__": index}
        score = f"tensor({70.0 + index}, device='cuda:0')" if index else 70.0
        ray_trial(tmp_path / "exp", f"t{index}", config, [80.0], eval={"acc": score})
        with (tmp_path / "exp" / f"t{index}" / "result.json").open("a") as file:
            file.write('{"done": true}\n')
    rows = import_sweep(read_ray(tmp_path / "exp"), metric="eval/acc", mode="max").rows
    values = [(row["config"], row["seed"], row["act"], row["eval/acc"]) for row in rows]
    assert values == [(0, 0, "<function relu>", 70.0), (0, 1, "<function relu>", 71.0)]
    ray_trial(tmp_path / "pbt", "t", {"lr": 0.1}, [80.0, 81.0], config={"lr": 0.2})
    with pytest.raises(RequestError, match="expected the same settings in all reports"):
        read_ray(tmp_path / "pbt")
