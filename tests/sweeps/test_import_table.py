"""A sweep of another tool becomes a table of trials, or a line says what is missing."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from clsweep.errors import RequestError
from clsweep.sweeps.foreign_sweep import (
    ForeignSweep,
    ForeignTrial,
    comparable_setting,
    parse_settings,
)
from clsweep.sweeps.import_table import ImportedTable, import_sweep
from clsweep.sweeps.parsing import parse_text


def trial(status: str = "finished", group: str = "tau", **settings: Any) -> ForeignTrial:
    """A run whose accuracy is known: 80 less 10 lr, and its seed's shift of 0.1."""
    level = 80 - 10 * settings.get("lr", 0) + 0.1 * (settings.get("seed") or 0)
    level -= settings.get("gain", 0)
    results = {} if status == "failed" else {"acc": level, "loss": 100 - level}
    return ForeignTrial(group=group, status=status, settings=settings, results=results)


def grid(**more: Any) -> list[ForeignTrial]:
    pairs = itertools.product((0.1, 0.2), ("sgd", "adam"), (0, 1))
    return [trial(lr=lr, opt=opt, seed=seed, **more) for lr, opt, seed in pairs]


def imported(trials: list[ForeignTrial], **options: Any) -> ImportedTable:
    about = {"metric": "acc", "mode": "max"} | options
    return import_sweep(ForeignSweep(trials=trials), **about)


@pytest.mark.parametrize("seed", ["seed", "config.seed.value"])  # as W&B's raw one is called
def test_a_grid_with_a_seed(seed):
    trials = grid(epochs=3)
    for each in trials:
        each.settings[seed] = each.settings.pop("seed")
    table = imported(trials)
    first = {"objective": "tau", "config": 0, "seed": 0, "status": "finished", "sampler": "grid"}
    assert table.rows[0] == first | {"acc": 79.0, "lr": 0.1, "opt": "sgd", "epochs": 3}
    assert [(row["config"], row["seed"]) for row in table.rows] == [
        (config, seed) for config in range(4) for seed in (0, 1)
    ]
    options = {"metric": "acc", "mode": "max", "params": ["lr", "opt"], "scales": {}}
    assert table.options == options | {"seed": seed}


def test_a_sampler_that_is_not_known_is_not_taken_for_an_even_one():
    sample = [trial(lr=lr) for lr in (0.1, 0.25, 0.3)]
    table = imported(sample)
    assert {row["sampler"] for row in table.rows} == {"tpe"}
    assert any("not known" in note for note in table.notes)
    assert {row["sampler"] for row in imported(sample, sampler="random").rows} == {"random"}
    drawn = ForeignSweep(trials=grid(), continuous={"lr"})
    rows = import_sweep(drawn, metric="acc", mode="max").rows
    assert {row["sampler"] for row in rows} == {"tpe"}
    assert {row["sampler"] for row in imported(grid()[:-2]).rows} == {"tpe"}


def test_an_objective_is_a_setting_that_is_named():
    table = imported(grid(), objective="opt")
    assert [row["objective"] for row in table.rows] == ["sgd", "sgd", "adam", "adam"] * 2
    assert table.options["params"] == ["lr"]
    assert {row["config"] for row in table.rows} == {0, 1}


def test_without_a_seed_every_trial_is_a_repeat_of_its_own():
    table = imported([trial(lr=0.1), trial(lr=0.2)] * 2)
    assert [row["seed"] for row in table.rows] == [0, 1, 2, 3]
    assert [row["config"] for row in table.rows] == [0, 1, 0, 1]
    assert {row["sampler"] for row in table.rows} == {"grid"}


def test_what_did_not_end_or_was_run_again_is_left_out_and_said():
    table = imported([*grid(), trial("running", lr=0.3, opt="sgd", seed=0),
                      trial("failed", lr=0.1, opt="sgd", seed=0),
                      trial("failed", lr=0.3, opt="sgd", seed=0)])  # fmt: skip
    assert [row["status"] for row in table.rows] == ["finished"] * 8 + ["failed"]
    assert "left out: 1 of 11 trials, which have not ended" in table.notes
    assert "left out: 1 failed trials that were run again" in table.notes


def test_without_a_seed_a_trial_was_run_again_where_its_setting_has_as_many_as_others():
    """Of 0.3 one of two repeats failed, and 0.4 always fails."""
    lrs = [0.1, 0.1, 0.2, 0.2, 0.3, 0.4]
    trials = [
        *(trial(lr=lr) for lr in lrs),
        *(trial("failed", lr=lr) for lr in (0.2, 0.3, 0.4, 0.4)),
    ]
    trials[5].status = "failed"
    table = imported(trials)
    ended = [(row["lr"], row["status"]) for row in table.rows]
    assert ended == [
        *((lr, "finished") for lr in lrs[:5]),
        (0.4, "failed"),
        (0.3, "failed"),
        (0.4, "failed"),
        (0.4, "failed"),
    ]
    assert "left out: 1 failed trials that were run again" in table.notes
    table = imported([*trials, trial(lr=0.5)])  # which has another number of trials
    assert len(table.rows) == 11


def test_a_finished_trial_without_a_score_has_failed():
    none, infinite = trial(lr=0.3), trial(lr=0.4)
    none.results, infinite.results = {}, {"acc": float("inf")}
    rows = imported([trial(lr=0.1), none, infinite]).rows
    assert [row["status"] for row in rows] == ["finished", "failed", "failed"]
    assert [row["acc"] for row in rows] == [79.0, None, None]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("64_64", "64_64"), ("007", "007"), ("12e4567", "12e4567"), ("1" * 25, "1" * 25),
        ("\u0661", "\u0661"), ("1.5.2", "1.5.2"), ("e5", "e5"), (".", "."), ("-", "-"),
        ("1", 1), ("-3", -3), ("0.10", 0.1), ("1e-3", 0.001), (".5", 0.5), ("2.", 2.0),
        ("True", True), ("true", True), ("TRUE", True), ("none", "none"), ("null", None),
        ("None", None), ("", None), ("-inf", -float("inf")),
    ],
)  # fmt: skip
def test_a_text_is_a_number_where_it_is_plainly_one(text, value):
    assert parse_text(text) == value
    assert type(parse_text(text)) is type(value)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        (n, "dataset")
        for n in ("params.dataset", "config/data/name", "params_dataset", "dataset_name")
    ]
    + [(n, n) for n in ("dataset_size", "data.root", "name")],
)
def test_the_data_set_may_be_called_otherwise(name, column):
    rows = [trial(lr=lr, **{name: of}) for of in ("cifar10", "stl10") for lr in (0.1, 0.2)]
    assert imported(rows).options["params"] == ["lr", column]
    for each in rows:
        each.settings |= {"x.dataset": "a", "lr": 0.1}  # nobody knows which of two is it
    assert imported(rows).options["params"] == [name]


def test_settings_are_compared_by_their_values():
    rows = imported([trial(lr=lr, seed=s) for lr, s in ((1, 0), (1.0, 1), (2, 0), (2.0, 1.0))]).rows
    assert [(row["config"], row["seed"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    given = (float("inf"), 10**70, 0.5, True, (1,), None, "<f at 0x7FA0>")
    assert [*map(comparable_setting, given)] == ["inf", str(10**70), 0.5, True, "(1,)", None, "<f>"]


@pytest.mark.parametrize(
    ("typed", "given", "read"),
    [
        (True, ["1e-3", 0.001, None, "0.01"], [0.001, 0.001, None, 0.01]),
        (True, ["1.1", "1.10", 2], ["1.1", "1.10", 2]),  # versions
        (True, ["16", "bf16", True], ["16", "bf16", True]),
        (False, ["1.1", "1.10", "2", "None", ""], ["1.1", "1.10", "2", None, None]),
        (False, ["1e-3", "0.001", "1", "1.0", "bf16"], [0.001, 0.001, 1, 1.0, "bf16"]),
    ],
)
def test_texts_of_a_setting_are_numbers_if_all_are(typed, given, read):
    trials = [trial(gain=0, name=value) for value in given]
    parse_settings(trials, typed=typed)
    assert [repr(each.settings["name"]) for each in trials] == [*map(repr, read)]


def test_a_text_beside_numbers_is_told():
    rows = [trial(lr=0.1, clip=clip, seed=s) for clip in (1, 0.5, "Average") for s in (0, 1)]
    notes = imported(rows).notes
    assert "clip is a text in 2 of 6 trials ('Average'): its numbers are categories" in notes
    assert not any("categories" in note for note in imported(grid()).notes)


def test_the_same_seed_twice_is_a_copy_no_seed_or_refused():
    table = imported([*grid(), *grid()])
    assert len(table.rows) == 8
    assert "left out: 8 trials that are copies of others" in table.notes
    repeats = [trial(lr=lr, seed=7, wd=0) for lr in (0.1, 0.2) for _ in range(2)]
    for number, each in enumerate(repeats):
        each.results = {"acc": 80.0 + number}
    assert [row["seed"] for row in imported(repeats).rows] == [0, 1, 2, 3]
    for options in ({"seed": "seed"}, {}):
        repeats[0].settings["seed"] = 7 if options else 8
        with pytest.raises(RequestError, match="the same seed stands in several trials"):
            imported([*repeats, repeats[0], trial(lr=0.1, seed=8, wd=0)], **options)


def test_settings_that_were_not_read_are_named_where_trials_look_the_same():
    rows = [trial(gain=gain, seed=0, lr=0.1 * gain) for gain in (1, 2)]
    sweep = ForeignSweep(trials=rows, mixed=True)
    table = import_sweep(sweep, metric="acc", mode="max")  # a known one is known by its name
    assert table.options["params"] == ["lr"]
    assert "not read as hyperparameters: gain; --param names them" in table.notes
    for row in rows:
        del row.settings["lr"]
    with pytest.raises(RequestError, match=r"--param \(not read as .*: gain; --param names"):
        import_sweep(sweep, metric="acc", mode="max")
    for row, name in zip(rows, "ab", strict=True):  # nor are they copies
        row.settings, row.results = {"seed": 0, "net": name}, {"acc": 80.0}
    with pytest.raises(RequestError, match=r"differ.*not read as hyperparameters: net"):
        import_sweep(sweep, metric="acc", mode="max")


def test_what_is_called_like_a_label_and_what_clsweep_logged_itself():
    rows = [trial(lr=lr, status_=1, sampler=name) for lr in (0.1, 0.2) for name in ("a", "b")]
    table = imported(rows)
    assert table.options["params"] == ["lr", "sampler_"]
    assert [row["sampler_"] for row in table.rows] == ["a", "b", "a", "b"]
    scored = [
        ForeignTrial(group="g", status="finished", settings={"lr": lr}, results={"config": lr})
        for lr in (0.1, 0.2)
    ]
    table = import_sweep(ForeignSweep(trials=scored), mode="max")
    assert [(row["config"], row["config_"]) for row in table.rows] == [(0, 0.1), (1, 0.2)]
    assert table.options["metric"] == "config_"
    own = {"objective": "dcl", "config": 0, "trial_id": "dcl-0"}
    table = imported(grid(**own))
    assert table.options["params"] == ["lr", "opt"]
    assert {row["objective"] for row in table.rows} == {"dcl"}


def test_a_grid_is_one_with_names_and_numbers_that_follow_from_its_axes():
    rows = grid()
    for each in rows:
        lr, opt = each.settings["lr"], each.settings["opt"]
        each.settings |= {"name": f"{opt}-{lr}", "min_lr": lr / 10, "nesterov": opt == "sgd"}
    assert {row["sampler"] for row in imported(rows).rows} == {"grid"}
    drawn = [trial(lr=lr, name=f"lr-{lr}", seed=s) for lr in (0.1, 0.23, 0.31) for s in (0, 1)]
    assert {row["sampler"] for row in imported(drawn).rows} == {"grid"}
    for each in drawn:  # a number that rises with another was drawn as well
        each.settings["wd"] = each.settings["lr"] / 7
    assert {row["sampler"] for row in imported(drawn).rows} == {"tpe"}


@pytest.mark.parametrize(
    ("values", "sampler"),
    [
        ((0.1, 0.01), "grid"),
        ((0.001, 0.03162277660168379, 1.0), "grid"),
        ((0.06608604673598285, 0.061512384090530385), "tpe"),
        ((0.06608604673598285, 0.061512384090530385, 0.5), "tpe"),
    ],
)
def test_one_axis_with_seeds_is_a_grid_unless_its_values_were_drawn(values, sampler):
    rows = imported([trial(lr=lr, seed=seed) for lr in values for seed in range(2)]).rows
    assert {row["sampler"] for row in rows} == {sampler}


@pytest.mark.parametrize("step", ["epoch", "trainer/global_step"])
def test_where_settings_and_results_are_mixed_what_recurs_is_a_setting(step):
    trials = [
        ForeignTrial(group="w", status=t.status, results={"lr": 0.0, **t.results},
                     settings={**t.settings, **t.results, step: t.settings["seed"]})
        for t in (trial(**t.settings, gain=0.01 * i) for i, t in enumerate(grid()))
    ]  # fmt: skip
    sweep = ForeignSweep(trials=trials, mixed=True)
    table = import_sweep(sweep, metric="acc", mode="max")
    assert table.options["params"] == ["lr", "opt"]
    assert f"not read as hyperparameters: gain, loss, {step}; --param names them" in table.notes
    for each in trials:
        each.settings["acc"] = "80%"
        del each.results["acc"]
    with pytest.raises(RequestError, match="acc: expected a number, given '80%'"):
        import_sweep(sweep, metric="acc")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"trials": [trial(**t.settings, **{"data.seed": n}) for n, t in enumerate(grid())]},
            r"seed: name one with --seed: seed, data\.seed",
        ),
        ({"trials": [*grid(), trial(lr=0.1, opt="sgd")]}, "seed: 1 of 9 trials have no seed"),
        ({"trials": [trial("running", lr=0.1)]}, "expected trials that have ended, found none"),
        ({"metric": None}, "metric: name one with --metric: acc, loss"),
        ({"metric": "ac"}, "--metric: no column 'ac'. Did you mean 'acc'"),
        ({"mode": None}, "is a high or a low acc best"),
        ({"mode": "maximum"}, "--mode: expected max or min"),
        ({"seed": "sede"}, "--seed: no column 'sede'. Did you mean 'seed'"),
        ({"objective": "loss"}, "--objective: no column 'loss'"),
        ({"params": ["seed"]}, "--param: 'seed' has another role already"),
        ({"params": ["lrr"]}, "--param: no column 'lrr'. Did you mean 'lr'"),
        ({"sampler": "sobol"}, "--sampler: expected grid, qmc, random, tpe, gp"),
    ],
)
def test_what_is_not_clear_is_asked_for(options, message):
    with pytest.raises(RequestError, match=message):
        imported(**{"trials": grid()} | options)


UNLIKE = (
    "not read as hyperparameters: {}, where seeds of the same settings differ; --param names them"
)


def test_what_differs_between_seeds_of_the_same_settings_is_no_setting():
    """A node, a folder, a time: beside two that the catalog knows and one that it does not."""
    cells = [*itertools.product((0.1, 0.2), "ab", ("c", "d"), range(3))]
    trials = [trial(lr=lr, opt=opt, neck=neck, seed=s) for lr, opt, neck, s in cells]
    for n, each in enumerate(trials):
        seed = each.settings["seed"]
        each.settings |= {"gpu": seed, "host": "xyz"[n * n % 3], "time": n + 0.5, "dir": f"r{n}"}
        each.settings["neck_dim"] = {"c": 64, "d": 128}[each.settings["neck"]]
    for rows in (trials, trials[:-2]):  # which lacks less than a tenth
        table = imported(rows)
        assert UNLIKE.format("gpu, host, time, dir") in table.notes
        assert table.options["params"] == ["lr", "opt", "neck", "neck_dim"]
        assert len({row["config"] for row in table.rows}) == 8
    assert {row["sampler"] for row in imported(trials).rows} == {"grid"}
    sweep = ForeignSweep(trials=trials, mixed=True)  # "time" is another number in each
    table = import_sweep(sweep, metric="acc", mode="max")
    assert UNLIKE.format("gpu, host") in table.notes
    assert table.options["params"] == ["lr", "opt", "neck", "neck_dim"]
    for each in trials:  # no seed says what differs between seeds
        del each.settings["seed"], each.settings["gpu"]
    assert "host" in imported(trials).options["params"]


def test_many_settings_are_told_from_much_that_differs_between_seeds():
    """Six of which the catalog knows none, beside thirty results: too many to try each choice."""
    cells = itertools.product(range(2), range(2), range(2), range(2), range(2), range(2), range(3))
    trials = []
    for number, cell in enumerate(cells):
        settings = dict(zip(["a1", "b1", "c1", "d1", "e1", "f1", "seed"], cell, strict=True))
        others = {f"m{n}": hash((number, n)) % 5 for n in range(30)}
        trials.append(trial(**settings, **others))
    table = imported(trials)
    assert table.options["params"] == ["a1", "b1", "c1", "d1", "e1", "f1"]
    assert {row["sampler"] for row in table.rows} == {"grid"}


@pytest.mark.parametrize(
    ("numbers", "is_left_out"),
    [
        ([f"run-{n}" for n in range(8)], True),
        ([*range(100, 108)], True),
        ([0.5 + n for n in range(8)], False),  # a number that was measured or drawn
        ([f"run-{n % 7}" for n in range(8)], False),
    ],
)
def test_what_only_numbers_the_trials_is_no_setting(numbers, is_left_out):
    """Also where a third of the seeds are lacking."""
    cells = [(0.1, "a", 0), (0.1, "a", 1), (0.1, "b", 1), (0.1, "b", 2)]
    cells += [(0.2, opt, 2 - seed) for _, opt, seed in cells]
    trials = [trial(lr=lr, opt=opt, seed=seed) for lr, opt, seed in cells]
    for each, number in zip(trials, numbers, strict=True):
        each.settings["run"] = number
    table = imported(trials)
    note = UNLIKE.format("run")
    assert (note in table.notes, "run" not in table.rows[0]) == (is_left_out, is_left_out)
    assert len({row["config"] for row in table.rows}) == (4 if is_left_out else 8)
    # a text that is another in each trial is a setting where no seed tells the trials apart
    for each in trials:
        del each.settings["seed"]
    assert "run" in imported(trials).rows[0]


@pytest.mark.parametrize("name", ["seed_everything", "torch_seed", "randomseed", "run", "x.fold"])
def test_a_seed_may_be_called_otherwise(name):
    trials = grid()
    for each in trials:
        each.settings[name] = each.settings.pop("seed")
    assert imported(trials).options["seed"] == name
    for each in trials:  # beside one that is the same everywhere
        each.settings |= {"data.seed": 42, "n_seeds": 2}
    table = imported(trials)
    assert (table.options["seed"], table.options["params"]) == (name, ["lr", "opt"])


def test_an_attribute_that_is_named_is_a_hyperparameter():
    trials = grid()
    for each in trials:
        each.labels = {"neck": each.settings.pop("opt"), "host": "a"}
    assert imported(grid()).rows == [
        {"opt" if name == "neck" else name: value for name, value in row.items()}
        for row in imported(trials, params=["lr", "neck"]).rows
    ]


def test_a_number_of_each_setting_is_no_seed():
    trials = [trial(lr=lr, run=n) for n, lr in enumerate((0.1, 0.2, 0.3)) for _ in range(2)]
    assert imported(trials).options["seed"] == ""
