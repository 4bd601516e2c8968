"""Where the study file meets the catalog: what joins which objective, what overrides what, what is
said about it.
"""

import pytest

from clsweep.catalog.ownership import owned_params
from clsweep.cli.plan import plan_notes
from clsweep.study.design import plan_row, plan_trials
from tests.study.conftest import FINAL, GAUSSIAN, ONE, parts, refusals

TREE = {
    "dataset": {"name": "cifar10"},
    "seeds": [0],
    "base": {"encoder": "conv4", "epochs": 20, "lr": 0.5},
    "space": {
        "tau": {"low": 0.05, "high": 1.0, "log": True, "grid": [0.1, 0.2]},
        "sigma": {"grid": [0.5, 1.0]},
    },
    "objectives": {
        "infonce": {"framework": "simclr", "loss": "infonce"},
        "dclw": {"framework": "simclr", "loss": "dclw"},
    },
    "presets": {"quick": {"base": {"epochs": 2, "lr": 0.01}, "seeds": [4, 5]}},
}
UNTRAINED = "objectives.untrained={framework: simclr, loss: dcl, base: {epochs: 0}}"


def objectives(study):
    return {objective.name: objective for objective in study.objectives}


# Ownership.


def test_a_shared_parameter_that_one_objective_does_not_own_is_a_skip(load):
    study = load()
    spaces = {name: set(each.space) for name, each in objectives(study).items()}
    assert spaces == {"infonce": {"tau"}, "dclw": {"tau", "sigma"}}
    assert objectives(study)["infonce"].skips == {"none of its parts uses it": ("sigma",)}
    assert "skip: 'infonce' does not own sigma: none of its parts uses it" in plan_notes(study)
    assert not objectives(study)["dclw"].skips


def test_an_objective_has_every_hyperparameter_that_it_owns_and_no_other(load):
    for objective in load().objectives:
        assert objective.owned == owned_params(objective.parts, encoder="conv4", dataset="cifar10")
        assert not objective.fixed.keys() & objective.space.keys()


def test_a_recipe_is_a_default_and_what_is_written_counts(load):
    found = objectives(
        load("base.recipe=byol", "objectives.dclw.base={recipe: ecpp_cifar, jitter_strength: 0.7}")
    )
    names = ("crop_scale", "jitter_strength", "blur_prob")
    assert [found["infonce"].fixed[name] for name in names] == [0.08, 0.5, 1.0]
    assert [found["dclw"].fixed[name] for name in names] == [0.2, 0.7, 0.0]
    assert "second_blur_prob" in found["infonce"].owned
    assert "second_blur_prob" not in found["dclw"].owned
    found = objectives(
        load("base={recipe: byol, blur_prob: 0.3}", "space.jitter_strength={grid: [0.5, 1.0]}")
    )
    assert found["dclw"].fixed["blur_prob"] == 0.3
    assert "jitter_strength" not in found["dclw"].fixed


def test_numbers_are_brought_to_the_type_of_the_parameter(load):
    fixed = objectives(load("base.lr=1", "base.batch_size=64.0"))["infonce"].fixed
    assert (fixed["lr"], type(fixed["lr"])) == (1.0, float)
    assert (fixed["batch_size"], type(fixed["batch_size"])) == (64, int)


# What overrides what.


OWN, LR = "objectives.dclw", "lr={choices: [0.1, 1]}"
SWEPT = "space.epochs={choices: [5, 10]}"


@pytest.mark.parametrize(
    ("settings", "expected", "note"),
    [
        # The base of an objective overrides the shared base, and the shared space;
        ([f"{OWN}.base.lr=0.1"], {"infonce.lr": 0.5, "dclw.lr": 0.1}, ""),
        ([f"{OWN}.base.tau=0.3"], {"dclw.tau": 0.3, "infonce.tau": (0.1, 0.2)}, ""),
        # its space the shared space,
        ([f"{OWN}.space.tau.grid=[0.7]"], {"dclw.tau": (0.7,), "infonce.tau": (0.1, 0.2)}, ""),
        # and the shared base: that is said, but not where an objective fixes it again.
        ([f"{OWN}.space.{LR}"], {"dclw.lr": (0.1, 1.0), "infonce.lr": 0.5}, "dclw"),
        (
            [f"space.{LR}", f"{OWN}.base.lr=0.3"],
            {"dclw.lr": 0.3, "infonce.lr": (0.1, 1)},
            "infonce",
        ),
        # An untrained objective keeps its zero epochs beside a sweep of epochs.
        (
            [UNTRAINED, SWEPT],
            {"untrained.epochs": 0, "untrained.tau": None, "infonce.epochs": (5, 10)},
            "",
        ),
    ],
)
def test_what_is_nearer_to_an_objective_counts(load, settings, expected, note):
    """What it fixes, or the points that it sweeps."""
    study = load(*settings)
    for place, value in expected.items():
        name, param = place.split(".")
        objective = objectives(study)[name]
        swept = objective.space.get(param)
        assert (swept.points if swept else objective.fixed.get(param)) == value
        assert not swept or param not in objective.fixed
    replaced = [line for line in plan_notes(study) if "base.lr is replaced" in line]
    assert replaced == [f"note: base.lr is replaced by the space of {note}"] * bool(note)


# Several mistakes.


def test_mistakes_are_reported_together_and_each_once(load):
    given = ["base.batch_siz=3", "base.lr=-1", "objectives.dclw.views=twoo", "space.tau.low=2"]
    for more, expected in (
        ([], ["base.batch_siz", "base.lr", "objectives.dclw.views", "space.tau"]),
        (["objectives.x={}"], ["objectives.x.framework", "objectives.x.loss"]),
    ):
        lines = refusals(load, *given, *more)
        assert sorted(line.split(": ")[1] for line in lines) == expected


# The resolved study.


@pytest.mark.parametrize(
    ("settings", "preset"),
    [
        ((), None),
        (
            ("objectives.dclw.space.lr={low: 1e-4, high: 1, log: true, grid: [1e-3, 1e-2]}",),
            "quick",
        ),
        (
            ("search={method: qmc, trials_per_objective: 8}", "space.sigma={low: 0.1, high: 2}"),
            "quick",
        ),
        (("name='true'", "search.seed=7"), None),
    ],
)
def test_the_merged_study_loads_again_to_the_same_plan(load, settings, preset):
    study = load(*settings, preset=preset)
    again = load(**study.document.tree)
    assert again.sections == study.sections
    assert plan_trials(again) == plan_trials(study)
    assert again.plan().equals(study.plan())


# What the parts decide.


@pytest.mark.parametrize(
    ("base", "says"),
    [
        ("epochs: 10, teacher_tau_epochs: 10", ""),
        ("epochs: 1, teacher_tau_epochs: 0", ""),
        ("epochs: 10, teacher_tau_epochs: 31", "trains 10 of the 31 teacher_tau_epochs, which is "
                                               "30% of the way from teacher_tau_start"),
        ("epochs: 1, teacher_tau_epochs: 1", "which is 0% of the way"),
    ],
)  # fmt: skip
def test_a_teachers_temperature_that_is_never_reached_is_said(load, base, says):
    study = load(parts("dino soft_cross_entropy"), f"objectives.a.base={{{base}}}", **ONE)
    notes = [note for note in plan_notes(study) if "teacher_tau" in note]
    assert len(notes) == bool(says)
    assert all(says in note for note in notes)


def test_pairs_of_more_than_two_views_are_compared_both_ways_by_default(load):
    for views, both_ways in (("two", False), ("ecpp", True)):
        [objective] = load(parts(f"moco dcl views={views}"), **ONE).objectives
        assert objective.fixed["symmetric"] is both_ways


def test_small_crops_follow_crop_scale_unless_they_are_given(load):
    scales = "space.crop_scale={choices: [0.2, 0.5]}"
    frame = load(parts("simclr dcl views=all_pairs"), scales, **ONE).plan()
    assert (frame["small_crop_scale"] == frame["crop_scale"]).all()


def test_numbers_that_stand_for_what_there_is_are_planned_as_numbers(load):
    sizes = "space.batch_size={choices: [16, 64]}"
    frame = load(parts("simo eqco"), sizes, **ONE).plan()
    assert frame["num_negatives"].tolist() == [size - 1 for size in frame["batch_size"]]
    assert set(frame["proj_hidden"]) == {128}
    assert set(frame["alpha"]) == {65536.0}


def test_pairs_of_vectors_own_no_hyperparameter_of_images(load):
    study = load(**GAUSSIAN)
    [objective] = study.objectives
    assert set(objective.owned) == {
        "tau", "alpha", "batch_size", "lr", "epochs", "mutual_information", "critic_hidden",
        "critic_dim",
        "estimate_batches",
    }  # fmt: skip
    assert study.plan()["val_fraction"].isna().all()
    said = "note: 'a' may estimate more than the mutual information"
    assert any(note.startswith(said) for note in plan_notes(study))
    study = load(**GAUSSIAN | {"objectives": {"a": {"framework": "mi_critic", "loss": "infonce"}}})
    assert not any("mutual information" in note for note in plan_notes(study))


# Training.


@pytest.mark.parametrize(
    ("batch", "chunk", "expected"), [(256, 0, 256), (256, 64, 64), (256, 256, 256), (64, 256, 64)]
)
def test_the_effective_chunk_is_at_most_a_batch(load, batch, chunk, expected):
    frame = load(f"base.batch_size={batch}", f"base.chunk_size={chunk}").plan()
    assert set(frame["chunk_size"]) == {expected}


def test_an_optimizer_brings_its_own_hyperparameters_and_defaults(load):
    plain = objectives(load())["infonce"]
    lars = objectives(load("base.optimizer=lars"))["infonce"]
    adamw = objectives(
        load("objectives.infonce.base.optimizer=adamw", "objectives.infonce.base.lr=0.002")
    )["infonce"]
    assert {"sgd_momentum"} == set(plain.fixed) - set(adamw.fixed)
    assert {"lars_trust", "lars_clip"} == set(lars.fixed) - set(plain.fixed)
    assert {"adam_beta1", "adam_beta2"} == set(adamw.fixed) - set(plain.fixed)
    assert (plain.fixed["weight_decay"], adamw.fixed["weight_decay"]) == (5e-4, 1e-2)


def test_the_study_alone_decides_what_auto_is(load):
    """Whatever machine reads it: with GPUs bf16, without fp32; rows of the plan never say auto."""
    for settings in ([], ["base.precision=auto"], ["objectives.infonce.base.precision=auto"]):
        for gpus, expected in ((0, "fp32"), (0.5, "bf16"), (1, "bf16")):
            study = load(*settings, f"resources.gpus_per_worker={gpus}")
            planned = {plan_row(study, trial).get("precision") for trial in plan_trials(study)}
            assert planned - {None} == {expected}
    asked = load("base.precision=bf16")
    assert plan_row(asked, plan_trials(asked)[0])["precision"] == "bf16"


# Evaluation.


def test_a_published_protocol_trains_on_all_and_is_scored_on_the_test_split(load):
    rows = load(FINAL).plan()
    assert set(rows["score_on"]) == {"test"}
    assert rows["val_fraction"].isna().all()
    default = load().plan()
    assert set(default["score_on"]) == {"validation"}
    assert set(default["val_fraction"]) == {0.1}


def test_a_linear_score_at_every_scored_epoch_lets_asha_judge(load):
    asha = ["scheduler.name=asha", "search={method: tpe, trials_per_objective: 2}",
            "space.tau={low: 0.1, high: 1}", "space.sigma={low: 0.1, high: 1}",
            "metric.name=linear_top1", "base.eval_every=1", "base.epochs=9"]  # fmt: skip
    assert any("or set linear_every: scored" in line for line in refusals(load, *asha))
    load(*asha, "base.linear_every=scored")
