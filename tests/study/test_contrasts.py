"""What a study asks by name: mistakes of it, and what is said of it once it has begun."""

import copy

import pytest

import clsweep
from clsweep.cli.plan import contrast_rows, unforeseen
from clsweep.errors import RequestError, StudyError
from clsweep.study.extend import with_added
from tests.cluster.conftest import clsweep as command

ASKED = {"small": {"of": ["dcl", "simclr"], "at": {"tau": 0.1}, "margin": 1, "published": 2.5}}
TREE = {
    "seeds": [0, 1, 2],
    "space": {"tau": {"choices": [0.1, 0.5]}, "lr": {"low": 0.1, "high": 1.0, "grid": [0.1, 1]}},
}


@pytest.fixture
def study(load):
    return lambda contrasts, **changes: load(contrasts=contrasts, **changes)


def test_of_a_range_no_setting_has_one_value(study):
    asked = {"small": ASKED["small"] | {"at": {"lr": 0.1}}}
    assert study(asked).sections.contrasts["small"].at == {"lr": 0.1}  # a point of the grid
    random = {"method": "random", "trials_per_objective": 3}
    with pytest.raises(StudyError, match="of a range no setting has one value"):
        study(asked, search=random)


def test_values_that_never_meet_are_refused(study):
    """`epochs` is swept at one batch size alone, and stands at its base value elsewhere."""
    space = {"batch_size": {"choices": [64, 128]}}
    space["epochs"] = {"choices": [2, 4], "when": {"batch_size": 128}}
    asked = {"small": ASKED["small"] | {"at": {"batch_size": 64, "epochs": 4}}}
    with pytest.raises(StudyError, match="it tries no epochs=4 at batch_size=64"):
        study(asked, space=space)
    for epochs in (2, 4):
        asked["small"]["at"] = {"batch_size": 128, "epochs": epochs}
        assert study(asked, space=space)
    asked["small"]["at"] = {"batch_size": 64, "epochs": 2}
    assert study(asked, space=space)


def test_what_comes_after_the_first_trial_says_so_and_what_was_asked_stays():
    old = copy.deepcopy(ASKED)
    changed = {"small": old["small"] | {"margin": 3}, "new": {"of": ["dcl", "simclr"]}}
    assert with_added(changed, old, 0) == changed  # no trial has ended
    found = with_added(changed, old, 7)
    assert found["small"] == old["small"]  # what was asked is not taken back
    assert found["small_2"] == changed["small"] | {"added_after": 7}
    assert found["new"] == {"of": ["dcl", "simclr"], "added_after": 7}
    for again in ({}, old, changed, found):
        assert with_added(again, found, 9) == found


def test_a_plan_says_what_each_will_find(study):
    asked = ASKED | {"more": {"of": "dcl", "at": {"tau": 0.1}, "minus": {"tau": 0.5}}}
    asked["coupling"] = asked["more"] | {"metric": "q_b_mean"}
    rows = contrast_rows(study(asked), {})
    assert [row["contrast"] for row in rows] == ["small", "more", "coupling"]
    assert all(row["finds from"].endswith(" SD") for row in rows)
    small, more, coupling = contrast_rows(study(asked), {}, 2.0)
    assert float(small["finds from"]) == pytest.approx(2 * float(rows[0]["finds from"][:-3]), 0.02)
    assert coupling["finds from"].endswith(" SD")  # --noise is of the metric
    assert contrast_rows(study({}), {}) == []
    pilot = {"dcl": (8.0, 2.0), "simclr": (0.0, 2.0)}  # dcl alone: 2, both: sqrt 2
    wide, of_dcl, _ = contrast_rows(study(asked), pilot)
    assert float(wide["finds from"]) == pytest.approx(float(small["finds from"]) / 2**0.5, 0.02)
    assert of_dcl["finds from"] == more["finds from"]
    sampled = {
        "search": {"method": "random", "trials_per_objective": 4},
        "space": {"tau": {"choices": [0.1, 0.5]}, "lr": {"low": 0.1, "high": 1.0}},
    }
    for changes, why in (({"seeds": [3]}, "one seed"), (sampled, "sampled settings")):
        planned = study(asked, **changes)
        assert contrast_rows(planned, pilot)[0] == {
            "contrast": "small", "margin": 1, "published": 2.5
        }  # fmt: skip
        assert why in unforeseen(planned)


def test_a_plan_with_factors_says_the_same_of_each_cell(study):
    plain = contrast_rows(study(ASKED), {})
    data = [{"name": "digits"}, {"name": "synthetic", "image_size": 16, "num_train": 500}]
    assert contrast_rows(study(ASKED, dataset={}, factors={"dataset": data}), {}) == plain


@pytest.mark.slow
@pytest.mark.usefixtures("no_ray")
def test_contrasts_of_a_run_and_those_that_come_later(study, tmp_path):
    """Asked before, added by a second run, and asked of the results alone."""
    small = {"seeds": [0, 1], "space": {"tau": {"choices": [0.1, 0.5]}}}
    results = clsweep.run(study(ASKED, **small), out=tmp_path / "out", limit=3)
    assert results.contrasts()["reason"].tolist() == ["unfinished"]
    more = ASKED | {"late": {"of": "dcl", "at": {"tau": 0.1}, "minus": {"tau": 0.5}}}
    results = clsweep.run(study(more, **small), out=tmp_path / "out")
    table = results.contrasts().set_index("contrast")
    assert table["added_after"].to_dict() == {"small": 0, "late": 3}
    trials = results.trials
    assert len(trials) == 8
    sides = trials[trials["tau"] == 0.1].groupby("objective")[results.metric].mean()
    assert table.loc["small", "estimate"] == pytest.approx(sides["dcl"] - sides["simclr"])
    asked = {"now": {"of": ["simclr", "dcl"]}, "small": ASKED["small"]}
    assert results.contrasts(asked)["added_after"].tolist() == [0, 3, 8]
    with pytest.raises(RequestError, match=r"contrasts\.late: the study asks another by this name"):
        results.contrasts({"late": {"of": ["simclr", "dcl"]}})
    with pytest.raises(RequestError, match="unknown objective 'byol'"):
        results.contrasts({"now": {"of": ["byol", "dcl"]}})

    code, output = command("contrast", tmp_path / "out", "--study", tmp_path / "study.yaml")
    assert (code, output.count("asked after 3 trials")) == (0, 1)
    code, output = command("report", tmp_path / "out", "--out", tmp_path / "report")
    assert (code, "Of 1 contrast asked beforehand" in output) == (0, True)
    assert (tmp_path / "report" / "tables" / "contrasts.csv").exists()
