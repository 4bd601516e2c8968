"""Which later versions of a study go on in the folder of the former: those whose plan holds the
recorded one.
"""

from __future__ import annotations

import pytest

from clsweep.results.folder import ResultsFolder
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.extend import extension_errors, numbered_as
from tests.study.conftest import SEARCHED

VIEWS = {
    "framework": "simclr",
    "loss": "infonce",
    "views": "core",
    "base": {"tau": 0.1},
    "space": {"num_views": {"choices": [2, 3, 4, 5]}},
}
TREE = SEARCHED | {
    "base": SEARCHED["base"] | {"eval_every": 1},
    "objectives": SEARCHED["objectives"] | {"views": VIEWS},
}
DRAWN, LIVE = ("qmc", "random"), ("tpe", "gp")
METHODS = ("grid", *DRAWN, *LIVE)
SEEDS, BUDGET = "seeds=[9, 5, 3]", "search.trials_per_objective=13"
ELSEWHERE = [
    "resources={workers: 2, max_restarts: 0}", "encoders={keep: all}", "checkpoints={keep: none}",
    "loggers=[tensorboard]", "confirm={seeds: [77]}", "question=Why?",
]  # fmt: skip
OBJECTIVE = (
    "objectives.byol={framework: byol, loss: cosine, space: {lr: {low: 0.1, high: 1, grid: [0.1]}}}"
)


def extended(tree, rows, now):
    return extension_errors(tree, rows, now, numbered_as(rows, now, plan_trials(now)))


@pytest.fixture
def reasons(tmp_path, study):
    """Why a study with `settings` does not extend the one without (or with `former`), as Parquet
    and YAML keep it.
    """

    def compare(method, *settings, former=()):
        budget = None if method == "grid" else 6
        old = study(method, budget, *former)
        new = study(method, budget, *former, *settings)
        folder = ResultsFolder(str(tmp_path / "results"))
        folder.create(old.document.dump(), [plan_row(old, trial) for trial in plan_trials(old)])
        return extended(folder.study(), folder.plan().to_pylist(), new)

    return compare


# Methods, settings of the later study, settings of both.
EXTENDS: list[tuple[tuple[str, ...], list[str], list[str]]] = [
    (METHODS, [OBJECTIVE], []),  # its hyperparameters are no columns of the recorded plan
    (LIVE, [BUDGET], []),
    (("grid",), [SEEDS], []),
    (DRAWN, [SEEDS, BUDGET, OBJECTIVE], []),
    (("tpe",), ["seeds=[5, 3]"], []),
    (LIVE, [SEEDS], ["space.tau={choices: [0.1, 0.2]}", "objectives.DCL-w 2=null"]),
    (("grid",), ["search.trials_per_objective=6"], ["search.trials_per_objective=7"]),
    (("grid",), ["search.trials_per_objective=6"], []),
    (("grid",), ELSEWHERE, []),
    (("grid",), ["dataset.root=elsewhere", "dataset.cache=there"], ["dataset.name=stl10"]),
    (("grid",), ["space.tau.grid=[0.05, 0.1, 0.15, 0.2, 0.4]", SEEDS], []),
    (("grid",), ["objectives.views.space.num_views.choices=[5, 4, 3, 2, 8]"], []),
    (("grid",), ["space.lr={choices: [0.1, 0.03, 0.3]}"], []),
    # moved from the base to the space
    (("grid",), ["base.lr=null", "space.lr={choices: [0.1, 0.03, 0.3]}"], ["base.lr=0.1"]),
    (("grid", "tpe"), ["base.precision=fp32", "resources.gpus_per_worker=1"], []),
    (("grid",), ["objectives.infonce.base.precision=fp32"], []),
    (("grid",), ["base.precision=auto"], ["base.precision=fp32"]),
    # defaults that are written out
    (
        METHODS,
        [
            "search.seed=0",
            "scheduler={name: fifo}",
            "metric.name=knn_top1",
            "dataset.val_fraction=0.1",
            "base.lr=0.03",
            "objectives.infonce.base.warmup_epochs=0",
        ],
        [],
    ),
    (("tpe",), ["scheduler.grace_epochs=1"], ["scheduler={name: asha}"]),
]


@pytest.mark.parametrize(
    ("method", "settings", "former"),
    [(method, *case) for methods, *case in EXTENDS for method in methods],
)
def test_a_plan_that_holds_the_recorded_one_is_an_extension(reasons, method, settings, former):
    assert reasons(method, *settings, former=former) == []


FORMER = ": the recorded trials were planned with the former"
SEVEN = "objectives.views.space.num_views={choices: [2, 3, 4, 5, 6, 7, 8]}"
# As above, and how the one reason begins, of METHOD.
REFUSED: list[tuple[tuple[str, ...], str, list[str], str]] = [
    (LIVE, SEEDS, [], "seeds: [3, 5] -> [9, 5, 3]: METHOD has chosen the configurations of "
                      "'infonce' by the former"),
    (LIVE, "seeds=[5, 3]", ["scheduler={name: asha}"], "seeds: [3, 5] -> [5, 3]: "),
    (("grid", "qmc", "tpe"), "seeds=[5, 9]", [],
     "seeds: [3, 5] -> [5, 9]: trials of 3 are recorded"),
    (("qmc", "tpe"), "search.trials_per_objective=5", [],
     "search.trials_per_objective: 6 -> 5: more are planned already"),
    # drawn with a budget of 6, all of them with 13
    ((*DRAWN, *LIVE), BUDGET, [SEVEN],
     "trial views-0000-s3: sampler: 'METHOD' -> 'grid': so many configurations are all that there "
     "are, and are enumerated"),
    (("grid", "tpe"), "base.epochs=7", [], f"base.epochs: 6 -> 7{FORMER}"),
    (("grid",), "objectives.untrained=null", [], "objectives.untrained: {"),
    (("tpe",), "metric.name=knn_top5", [], f"metric.name: 'knn_top1' -> 'knn_top5'{FORMER}"),
    (("tpe",), "dataset.val_fraction=0.2", [], f"dataset.val_fraction: 0.1 -> 0.2{FORMER}"),
    (("tpe",), "base.lr=0.04", [], f"base.lr: '(absent)' -> 0.04{FORMER}"),
    # of what is swept elsewhere: no row of a live search has it
    (("tpe",), "base.lr=0.03", ["space.lr={choices: [0.1, 0.3], when: {num_views: 2}}",
                                "objectives.infonce=null", "objectives.DCL-w 2=null"],
     f"base.lr: '(absent)' -> 0.03{FORMER}"),
    (("tpe",), "name=other", [], f"name: 'small' -> 'other'{FORMER}"),
    (("tpe",), "search.seed=1", [], f"search.seed: 0 -> 1{FORMER}"),
    (("tpe",), "space.tau.high=0.7", [], f"space.tau.high: 0.8 -> 0.7{FORMER}"),
    (("tpe",), "space.tau.grid=[0.1, 0.2, 0.5]", [],
     f"space.tau.grid: [0.1, 0.2, 0.4] -> [0.1, 0.2, 0.5]{FORMER}"),
    (("grid",), "space.tau.grid=[0.1, 0.2, 0.3, 0.4]",
     ["scheduler={name: racing}", "seeds=[3, 5, 7]"],
     f"space.tau.grid: [0.1, 0.2, 0.4] -> [0.1, 0.2, 0.3, 0.4]{FORMER}"),
    (("tpe",), "objectives.infonce.loss=dcl", [],
     f"objectives.infonce.loss: 'infonce' -> 'dcl'{FORMER}"),
    (("tpe",), "search.method=gp", [], f"search.method: 'tpe' -> 'gp'{FORMER}"),
    (("tpe",), "scheduler={name: asha}", [],
     f"scheduler.name: 'fifo' -> 'asha'{FORMER}"),
    (("qmc",), "objectives.views.base.precision=bf16", [], "trial views-0000-s3: precision: "),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "setting", "former", "begins"),
    [(method, *case) for methods, *case in REFUSED for method in methods],
)
def test_another_plan_is_refused_in_a_line(reasons, method, setting, former, begins):
    [reason] = reasons(method, setting, former=former)
    assert reason.startswith(begins.replace("METHOD", method))


# Precision, which the rows of the plan say.

KEEPS = "--set base.precision=fp32 keeps it: the recorded plan has the former"


@pytest.mark.parametrize("method", ["grid", "tpe"])
def test_another_precision_is_refused(reasons, method):
    for setting in ("base.precision=bf16", "resources.gpus_per_worker=1"):
        lines = reasons(method, setting)
        assert lines[0] == f"trial infonce-0000-s3: precision: 'fp32' -> 'bf16'; {KEEPS}"
        assert len(lines) == 3, "the untrained objective has none"


# A plan that another version of the samplers has drawn.


def test_a_recorded_value_that_is_planned_otherwise_is_named(study):
    now = study("qmc", 6)
    rows = [plan_row(now, trial) for trial in plan_trials(now)]
    tree = now.document.tree
    assert extended(tree, rows, now) == []
    index = next(i for i, row in enumerate(rows) if row["trial_id"] == "infonce-0002-s3")
    other = {**rows[index], "tau": rows[index]["tau"] * (1 + 2**-52)}
    found = extended(tree, [*rows[:index], other, *rows[index + 1 :]], now)
    expected = f"tau: {other['tau']!r} -> {rows[index]['tau']!r}: the recorded plan has the former"
    assert found == [f"trial infonce-0002-s3: {expected}"]


def test_configurations_of_a_grown_grid_keep_their_numbers(study):
    old, new = study("grid"), study("grid", None, "space.tau.grid=[0.05, 0.1, 0.2, 0.4]")
    rows = [plan_row(old, trial) for trial in plan_trials(old)]
    now = [plan_row(new, trial) for trial in numbered_as(rows, new, plan_trials(new))]
    assert {row["trial_id"] for row in rows} < {row["trial_id"] for row in now}
    assert all(row in now for row in rows)
    added = [row for row in now if row not in rows]
    assert {row["tau"] for row in added} == {0.05}
    assert {(row["objective"], row["config"]) for row in added} == {
        ("infonce", 3), ("DCL-w 2", 6), ("DCL-w 2", 7)
    }  # fmt: skip
    again = numbered_as(now, new, plan_trials(new))
    assert [plan_row(new, trial) for trial in again] == now


def test_a_value_that_a_grid_lost_is_named(reasons):
    first, *lost = reasons("grid", "space.tau.grid=[0.1, 0.2, 0.8]")
    assert first == "space.tau.grid: [0.1, 0.2, 0.4] -> [0.1, 0.2, 0.8]"
    assert [line.partition(":")[2] for line in lost] == [" no longer planned"] * 2
