"""Which later versions of a study go on in the folder of the former: those whose plan holds the
recorded one.
"""

from __future__ import annotations

import pytest

from clsweep.results.folder import ResultsFolder
from clsweep.study.continuation import defining, difference, extension
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study

STUDY = """\
name: extended
dataset: {name: digits}
seeds: [3, 5]
base: {encoder: conv4, epochs: 6, batch_size: 32, eval_every: 1}
space:
  tau: {low: 0.05, high: 0.8, log: true, grid: [0.1, 0.2, 0.4]}
objectives:
  infonce: {framework: simclr, loss: infonce}
  DCL-w 2: {framework: simclr, loss: dclw, space: {sigma: {low: 0.1, high: 2, grid: [0.5, 1]}}}
  untrained: {framework: simclr, loss: infonce, base: {epochs: 0}}
  views: {framework: simclr, loss: infonce, views: core, base: {tau: 0.1},
          space: {num_views: {choices: [2, 3, 4, 5]}}}
search: {method: grid}
"""
SIX = "trials_per_objective: 6"
DRAWN, LIVE = ("qmc", "random"), ("tpe", "gp")
METHODS = ("grid", *DRAWN, *LIVE)
SEEDS, BUDGET = "seeds=[9, 5, 3]", "search.trials_per_objective=13"
OBJECTIVE = (
    "objectives.byol={framework: byol, loss: cosine, space: {lr: {low: 0.1, high: 1, grid: [0.1]}}}"
)


def extended(tree, rows, now):
    return extension(tree, rows, now, plan_trials(now))


@pytest.fixture
def study(tmp_path):
    def load(method, *settings):
        path = tmp_path / "study.yaml"
        path.write_text(STUDY)
        search = (
            f"search={{method: {method}}}"
            if method == "grid"
            else f"search={{method: {method}, {SIX}}}"
        )
        return load_study(path, settings=[search, *settings])

    return load


@pytest.fixture
def reasons(tmp_path, study):
    """Why a study with `settings` does not extend the one without (or with `former`), as Parquet
    and YAML keep it.
    """

    def compare(method, *settings, former=()):
        old, new = study(method, *former), study(method, *former, *settings)
        folder = ResultsFolder(str(tmp_path / "results"))
        folder.create(old.document.dump(), [plan_row(old, trial) for trial in plan_trials(old)])
        return extended(folder.study(), folder.plan().to_pylist(), new)

    return compare


@pytest.mark.parametrize("method", METHODS)
def test_the_same_study_extends_itself(reasons, method):
    assert reasons(method) == []


@pytest.mark.parametrize("method", METHODS)
def test_a_further_objective_is_an_extension(reasons, method):
    """Its hyperparameters are no columns of the recorded plan."""
    assert reasons(method, OBJECTIVE) == []


@pytest.mark.parametrize("method", [*DRAWN, *LIVE])
def test_a_larger_budget_is_an_extension(reasons, method):
    assert reasons(method, BUDGET) == []


@pytest.mark.parametrize("method", ["grid", *DRAWN])
def test_further_seeds_are_an_extension_in_whatever_order(reasons, method):
    assert reasons(method, SEEDS) == []


@pytest.mark.parametrize("method", DRAWN)
def test_all_of_it_at_once_is_an_extension(reasons, method):
    assert reasons(method, SEEDS, BUDGET, OBJECTIVE) == []


@pytest.mark.parametrize("method", METHODS)
def test_where_it_runs_and_what_it_keeps_may_change(reasons, method):
    settings = [
        "resources={workers: 2, max_restarts: 0}",
        "encoders={keep: all}",
        "checkpoints={keep: none}",
        "loggers=[tensorboard]",
    ]
    assert (
        reasons(
            method,
            *settings,
            "confirm={seeds: [77]}",
            "dataset.root=elsewhere",
            "dataset.cache=there",
        )
        == []
    )


@pytest.mark.parametrize("method", LIVE)
def test_a_live_search_has_the_seeds_that_it_began_with(reasons, method):
    [reason] = reasons(method, SEEDS)
    assert (
        reason
        == f"seeds: [3, 5] -> [9, 5, 3]: {method} has chosen the configurations of 'infonce' by "
        "the former"
    )


@pytest.mark.parametrize("method", LIVE)
def test_only_asha_minds_the_order_of_the_seeds(reasons, method):
    assert reasons(method, "seeds=[5, 3]") == []
    [reason] = reasons(method, "seeds=[5, 3]", former=["scheduler={name: asha}"])
    assert reason.startswith("seeds: [3, 5] -> [5, 3]: ")


@pytest.mark.parametrize("method", LIVE)
def test_a_live_study_whose_spaces_are_all_enumerated_may_have_more_seeds(reasons, method):
    small = ["space.tau={choices: [0.1, 0.2]}", "objectives.DCL-w 2=null"]
    assert reasons(method, SEEDS, former=small) == []


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_that_is_gone_is_named(reasons, method):
    [reason] = reasons(method, "seeds=[5, 9]")
    assert reason == "seeds: [3, 5] -> [5, 9]: trials of 3 are recorded"


@pytest.mark.parametrize("method", [*DRAWN, *LIVE])
def test_a_smaller_budget_is_refused(reasons, method):
    [reason] = reasons(method, "search.trials_per_objective=5")
    assert reason == "search.trials_per_objective: 6 -> 5: more are planned already"


def test_the_budget_of_a_grid_may_become_any_that_it_fits_in(reasons):
    assert (
        reasons("grid", "search.trials_per_objective=6", former=["search.trials_per_objective=7"])
        == []
    )
    assert reasons("grid", "search.trials_per_objective=6") == []


@pytest.mark.parametrize("method", [*DRAWN, *LIVE])
def test_a_space_that_comes_to_be_enumerated_is_refused(reasons, method):
    more = "{choices: [2, 3, 4, 5, 6, 7, 8]}"  # drawn with a budget of 6, all of them with 13
    found = reasons(method, BUDGET, former=[f"objectives.views.space.num_views={more}"])
    why = "so many configurations are all that there are, and are enumerated"
    assert found == [f"trial views-0000-s3: sampler: {method!r} -> 'grid': {why}"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("base.epochs=7", "base.epochs: 6 -> 7"),
        ("metric.name=knn_top5", "metric: '(absent)' -> {'name': 'knn_top5'}"),
        ("dataset.val_fraction=0.2", "dataset.val_fraction: '(absent)' -> 0.2"),
        ("name=other", "name: 'extended' -> 'other'"),
        ("search.seed=1", "search.seed: '(absent)' -> 1"),
        ("space.tau.high=0.7", "space.tau.high: 0.8 -> 0.7"),
        (
            "space.tau.grid=[0.1, 0.2, 0.4, 0.5]",
            "space.tau.grid: [0.1, 0.2, 0.4] -> [0.1, 0.2, 0.4, 0.5]",
        ),
        ("objectives.infonce.loss=dcl", "objectives.infonce.loss: 'infonce' -> 'dcl'"),
    ],
)
def test_what_the_recorded_trials_were_planned_with_is_named(reasons, method, setting, line):
    assert reasons(method, setting) == [f"{line}: the recorded trials were planned with the former"]


@pytest.mark.parametrize("method", METHODS)
def test_an_objective_that_is_gone_is_named(reasons, method):
    [reason] = reasons(method, "objectives.untrained=null")
    assert reason.startswith("objectives.untrained: {")
    assert reason.endswith("-> '(absent)': the recorded trials were planned with the former")


def test_another_method_and_another_scheduler_are_refused(reasons):
    [reason] = reasons("tpe", "search.method=gp")
    assert reason.startswith("search.method: 'tpe' -> 'gp': ")
    [reason] = reasons("tpe", "scheduler={name: asha}")
    assert reason.startswith("scheduler: '(absent)' -> {'name': 'asha'}: ")


def test_every_mistake_is_a_line_of_its_own(reasons):
    found = reasons(
        "qmc", "seeds=[5]", "search.trials_per_objective=5", "base.epochs=7", "space.tau.low=0.06"
    )
    assert [line.partition(":")[0] for line in found] == [
        "seeds",
        "search.trials_per_objective",
        "base.epochs",
        "space.tau.low",
    ]
    assert all("\n" not in line for line in found)


# Precision, which the rows of the plan say.

KEEPS = "--set base.precision=fp32 keeps it: the recorded plan has the former"


@pytest.mark.parametrize("method", METHODS)
def test_another_precision_is_refused(reasons, method):
    for setting in ("base.precision=bf16", "resources.gpus_per_worker=1"):
        lines = reasons(method, setting)
        assert lines[0] == f"trial infonce-0000-s3: precision: 'fp32' -> 'bf16'; {KEEPS}"
        assert len(lines) == 3, "the untrained objective has none"
    [line] = reasons(method, "objectives.views.base.precision=bf16")
    assert line.startswith("trial views-0000-s3: precision: ")


@pytest.mark.parametrize("method", METHODS)
def test_the_same_precision_may_be_said_in_another_way(reasons, method):
    assert reasons(method, "base.precision=fp32", "resources.gpus_per_worker=1") == []
    assert reasons(method, "objectives.infonce.base.precision=fp32") == []
    assert reasons(method, "base.precision=auto", former=["base.precision=fp32"]) == []


# A plan that another version of the samplers has drawn.


def test_a_recorded_value_that_is_planned_otherwise_is_named(study):
    now = study("qmc")
    rows = [plan_row(now, trial) for trial in plan_trials(now)]
    tree = now.document.tree
    assert extended(tree, rows, now) == []
    index = next(i for i, row in enumerate(rows) if row["trial_id"] == "infonce-0002-s3")
    other = {**rows[index], "tau": rows[index]["tau"] * (1 + 2**-52)}
    found = extended(tree, [*rows[:index], other, *rows[index + 1 :]], now)
    expected = f"tau: {other['tau']!r} -> {rows[index]['tau']!r}: the recorded plan has the former"
    assert found == [f"trial infonce-0002-s3: {expected}"]


def test_one_line_per_objective(study):
    now = study("random")
    rows = [
        {**plan_row(now, trial), "lr": 123.0}
        for trial in plan_trials(now)
        if trial.objective != "untrained"
    ]
    assert [line.split(":")[0] for line in extended(now.document.tree, rows, now)] == [
        "trial infonce-0000-s3",
        "trial DCL_w_2-0000-s3",
        "trial views-0000-s3",
    ]


def test_a_trial_that_is_not_planned_is_named(study):
    now = study("random")
    row = {**plan_row(now, plan_trials(now)[0]), "trial_id": "infonce-0099-s3"}
    assert extended(now.document.tree, [row], now) == ["trial infonce-0099-s3: no longer planned"]


def test_a_hyperparameter_that_the_recorded_plan_did_not_have_is_named(study):
    """One that a later clsweep has added, with a default that the recorded trials need not have
    had.
    """
    now = study("random")
    rows = [plan_row(now, trial) for trial in plan_trials(now) if trial.objective == "infonce"]
    less = [{name: value for name, value in row.items() if name != "lr_rule"} for row in rows]
    [reason] = extended(now.document.tree, less, now)
    assert reason.startswith("trial infonce-0000-s3: lr_rule: None -> ")


# The parts.


def test_what_does_not_define_a_study_is_left_out():
    tree = {
        "name": "a",
        "dataset": {"name": "digits", "root": "x", "cache": "y", "download": True},
        "seeds": [0],
    }
    extra = {"resources": {}, "encoders": {}, "checkpoints": {}, "confirm": {}}
    assert defining({**tree, **extra}) == {"name": "a", "dataset": {"name": "digits"}, "seeds": [0]}


def test_a_difference_has_a_line_per_key():
    old = {"a": {"b": 1, "c": [1, 2]}, "d": 4}
    assert difference(old, {"a": {"b": 1, "c": [2, 1]}, "e": 5}) == [
        "a.c: [1, 2] -> [2, 1]",
        "d: 4 -> '(absent)'",
        "e: '(absent)' -> 5",
    ]
    assert difference(old, old) == []
