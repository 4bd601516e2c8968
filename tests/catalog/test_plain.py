"""A configuration made without a study is the one that a study plans."""

import pytest

from clsweep.errors import RequestError
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from studies.records.plain import plain_config
from tests.planted import study_at

GIVEN = {"encoder": "conv4", "width": 8, "epochs": 2, "batch_size": 32, "precision": "fp32"}


def test_it_is_what_a_study_plans(tmp_path):
    parts = {"framework": "moco", "loss": "dcl"}
    base = {**GIVEN, "linear_probe": "sgd", "optimizer": "adamw", "lr": 0.01}
    sizes = {"image_size": 16, "num_train": 1000}
    data = {"name": "synthetic", **sizes}
    tree = {"seeds": [3], "space": {}, "dataset": data, "base": base, "objectives": {"it": parts}}
    study = load_study(study_at(tmp_path / "plain.yaml", **tree))
    planned = plan_row(study, plan_trials(study)[0])
    made = plain_config("synthetic", seed=3, **parts, **sizes, **base)
    of_a_plan = {"trial_id", "study", "objective", "config", "sampler", "store_size"}
    of_a_plan |= {"store_as", "images_digest"}
    assert made == {name: value for name, value in planned.items() if name not in of_a_plan}


@pytest.mark.parametrize("wrong", [{"momentun": 0.9}, {"precision": "auto"}, {"loss": "cosine"}])
def test_what_a_trial_does_not_take_is_refused(wrong):
    with pytest.raises(RequestError, match=next(iter(wrong))):
        plain_config("synthetic", **{**GIVEN, **wrong})


def test_the_loss_is_the_frameworks_own():
    assert plain_config("synthetic", framework="simsiam", **GIVEN)["loss"] == "cosine"
