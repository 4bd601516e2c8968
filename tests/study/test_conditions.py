"""Hyperparameters that some configurations lack: what has no effect is planned once, and `when`."""

import pandas as pd
import pytest

from clsweep.cli.plan import plan_notes
from clsweep.errors import StudyError
from clsweep.study.design import num_saved, plan_trials
from clsweep.study.space import only_swept, only_swept_rows

SPACE = {
    "tau": {"grid": [0.1, 0.5]},
    "momentum_schedule": {"choices": ["constant", "cosine"]},
    "momentum_end": {"grid": [0.999, 1.0]},
}
CHOICES = {n: {"choices": next(iter(d.values()))} for n, d in SPACE.items()}
RANGE = CHOICES | {"momentum_end": {"low": 0.9991, "high": 1.0}, "tau": {"low": 0.1, "high": 1.0}}


TREE = {
    "seeds": [0],
    "base": {"encoder": "conv4", "epochs": 1, "weight_decay": 1e-5, "batch_size": 128},
    "objectives": {"moco": {"framework": "moco", "loss": "infonce"}},
}


@pytest.fixture
def planned(load):
    """A study of a space, and the swept values of its configurations."""

    def of_space(space, **search):
        study = load(space=space, search={"method": "grid"} | search)
        names = study.objectives[0].space
        return study, [tuple(t.params[name] for name in names) for t in plan_trials(study)]

    return of_space


@pytest.mark.parametrize("search", [{}, {"method": "random", "trials_per_objective": 7}])
def test_what_has_no_effect_is_planned_once(planned, search):
    study, configs = planned(CHOICES if search else SPACE, **search)
    ends = [("constant", None), ("cosine", 0.999), ("cosine", 1.0)]
    assert len(configs) == 6
    assert {*configs} == {(tau, *each) for tau in (0.1, 0.5) for each in ends}
    assert num_saved(study, study.objectives[0]) == 2
    without = "note: without effect: momentum_end where momentum_schedule is constant. "
    assert f"{without}Planned once there, that is 2 trials fewer" in plan_notes(study)


@pytest.mark.parametrize("method", ["random", "qmc"])
def test_a_sample_has_as_many_different_configurations_as_were_asked(planned, method):
    _, configs = planned(RANGE, method=method, trials_per_objective=16)
    assert len(set(configs)) == 16
    assert {schedule == "constant" for _, schedule, end in configs if end is None} == {True}


def test_beside_when_a_hyperparameter_has_the_value_of_base(planned):
    when = {"momentum_schedule": "constant"}
    space = SPACE | {"weight_decay": {"grid": [0.001, 0.01], "when": when}}
    _, configs = planned(space)
    assert len(set(configs)) == len(configs) == 2 * (2 + 2)
    assert {decay for _, schedule, _, decay in configs if schedule == "cosine"} == {1e-5}
    assert {decay for _, schedule, _, decay in configs if schedule != "cosine"} == {0.001, 0.01}


BESIDE = {"tau": {"choices": [0.1, 0.5]}}
SCHEDULE, END = "momentum_schedule", {"momentum_end": {"choices": [0.9995, 1.0]}}
STRENGTHS, PROBS = {"choices": [0, 1]}, {"choices": [0, 0.8]}
AT = {"when": {"tau": 0.1}}  # elsewhere it is what base says
# What base says, the space beside tau, and of it what is planned at 0.1 and at 0.5.
ELSEWHERE = [
    # where the schedule is not swept it is that of base, and has an end of its own
    ({SCHEDULE: "cosine"}, {SCHEDULE: {"choices": ["constant", "cosine"], **AT}, **END},
     {("constant", None), ("cosine", 0.9995), ("cosine", 1.0)},
     {("cosine", 0.9995), ("cosine", 1.0)}),
    # or none, although no swept value says so
    ({}, {SCHEDULE: {"choices": ["cosine"], **AT}, **END},
     {("cosine", 0.9995), ("cosine", 1.0)}, {("constant", None)}),
    # two that switch each other off
    ({"jitter_strength": 0.5, "jitter_prob": 0.5},
     {"jitter_strength": STRENGTHS | AT, "jitter_prob": PROBS | AT},
     {(1, 0.8), (0, None), (None, 0)}, {(0.5, 0.5)}),
    ({"jitter_strength": 0.5}, {"jitter_strength": STRENGTHS | AT, "jitter_prob": PROBS},
     {(1, 0.8), (0, None), (None, 0)}, {(0.5, 0.8), (None, 0)}),
]  # fmt: skip


@pytest.mark.parametrize(("base", "space", "at", "elsewhere"), ELSEWHERE)
def test_what_is_not_swept_somewhere_has_the_effect_of_its_value(load, base, space, at, elsewhere):
    """So what hangs on it is swept there, or has none."""
    study = load(base=TREE["base"] | base, space=BESIDE | space)
    names = study.objectives[0].space
    configs = [tuple(trial.params[name] for name in names) for trial in plan_trials(study)]
    expected = {(0.1, *each) for each in at} | {(0.5, *each) for each in elsewhere}
    assert len(configs) == len(expected)
    assert {*configs} == expected


def test_of_a_recorded_study_when_may_name_what_this_version_lacks():
    space = {"gone": {"grid": [1, 2]}, "tau": {"grid": [0.1], "when": {"gone": 2}}}
    tree = {"space": space, "objectives": {"dcl": {}}}
    trials = pd.DataFrame({"objective": "dcl", "gone": [1, 2], "tau": [0.5, 0.1]})
    assert only_swept(tree, trials)["tau"].fillna(-1).tolist() == [-1, 0.1]
    rows = only_swept_rows(tree, trials.to_dict("records"))
    assert [row["tau"] for row in rows] == [None, 0.1]


def test_gp_needs_the_whole_space(planned):
    with pytest.raises(StudyError, match="some lack momentum_end"):
        planned(RANGE, method="gp", trials_per_objective=8)
