"""`--set KEY=VALUE`: it changes the study, or is refused in a line."""

import re

import pytest

from clsweep.errors import StudyError
from clsweep.study.settings import apply_setting
from tests.study.conftest import LEVELS, PLAIN, refusals

TEXT = """\
name: small
base: {epochs: 6, lr: 0.5}
presets:
  cpu: {base: {lr: 0.25, width: 8}}
"""
TREE = LEVELS


def refusal(read, setting):
    with pytest.raises(StudyError) as caught:
        read(TEXT, setting)
    return str(caught.value)


@pytest.mark.parametrize(
    ("setting", "keys", "value"),
    [
        ("base.lr=1e-3", ("base", "lr"), 1e-3),
        ("name=a=b", ("name",), "a=b"),
        ("seeds=[5, 6]", ("seeds",), [5, 6]),
        ("space.tau={choices: [0.1, 0.2]}", ("space", "tau"), {"choices": [0.1, 0.2]}),
        ("a.b.c='1'", ("a", "b", "c"), "1"),
    ],
)
def test_set_puts_a_yaml_value_at_dotted_keys(read, setting, keys, value):
    node = read(TEXT, setting).tree
    for key in keys:
        node = node[key]
    assert node == value
    assert type(node) is type(value)


def test_set_to_null_removes_the_key(read):
    assert read(TEXT, "base.lr=null").tree["base"] == {"epochs": 6}


def test_names_may_hold_dots(load):
    parts = {"framework": "simclr", "loss": "dcl"}
    changes = PLAIN | {
        "objectives": {"v1": parts, "v1.5": parts},
        "contrasts": {"a.b": {"of": ["v1", "v1.5"]}},
    }
    study = load("objectives.v1.5.base.lr=0.7", "contrasts.a.b.margin=2", **changes)
    assert {o.name: o.fixed["lr"] for o in study.objectives} == {"v1": 0.03, "v1.5": 0.7}
    assert study.sections.contrasts["a.b"].margin == 2
    [left] = load("contrasts=null", "objectives.v1=null", **changes).objectives
    assert left.name == "v1.5"


def test_a_section_with_nothing_below_it_is_set_and_unset(read):
    document = read("name: small\ndataset:\nbase: {epochs: }\n")
    apply_setting(document, "dataset.root=/x")
    assert document.tree["dataset"] == {"root": "/x"}
    assert document.place(("dataset", "root")) == "--set dataset.root=/x"
    apply_setting(document, "base.epochs=3")
    assert document.tree["base"] == {"epochs": 3}
    document.tree["dataset"] = None
    with pytest.raises(StudyError, match="null removes a key, and none is there"):
        apply_setting(document, "dataset.root=null")
    apply_setting(document, "dataset=null")
    assert "dataset" not in document.tree


def test_the_last_setting_wins_and_settings_beat_the_preset(read):
    document = read(TEXT, "base.lr=1", "base.lr=2", preset="cpu")
    assert document.tree["base"] == {"epochs": 6, "lr": 2, "width": 8}


def test_the_place_of_a_setting_and_of_all_below_it_is_the_setting(read):
    document = read(TEXT, "seeds=[3, 4]", "confirm.top=2")
    assert document.place(("seeds",)) == "--set seeds=[3, 4]"
    assert document.place(("seeds", 1)) == "--set seeds=[3, 4]"
    assert document.place(("confirm", "top")) == "--set confirm.top=2"
    assert document.place(("confirm",)) == "--set confirm.top=2"


FORMS = ["", "base.lr", "=1", ".=1", "base.=1", "base..lr=1", "base.lr=", "base.lr= "]


@pytest.mark.parametrize("setting", FORMS)
def test_a_setting_of_another_form_is_refused(read, setting):
    """Also `base.lr=$LR` where the shell has no LR."""
    expected = "expected KEY=VALUE with a dotted key, as in base.epochs=10; null removes a key."
    assert refusal(read, setting) == f"--set {setting}: {expected}"


@pytest.mark.parametrize("value", ["[1", "{a: ", "'", "*nothing"])
def test_a_setting_that_is_no_yaml_is_refused_in_a_short_line(read, value):
    expected = f"--set base.lr={value}: the value is not valid YAML."
    assert refusal(read, f"base.lr={value}") == expected


# Levels of factors.


def cells_of(study):
    """Of each cell its data set's section and the base of its first objective, by its name."""
    return {
        cell.objectives[0].cell: (cell.sections.dataset, cell.objectives[0].fixed)
        for cell in study.cells
    }


@pytest.mark.parametrize(
    ("key", "cell", "value"),
    [
        ("factors.dataset.cifar10.root=/x", "cifar10/conv4", "/x"),
        ("factors.dataset.0.root=/x", "cifar10/conv4", "/x"),
        ("factors.dataset.v1.5.root=/x", "v1.5/conv4", "/x"),  # its label holds a dot
        ("factors.dataset.1.root=/x", "v1.5/conv4", "/x"),
        ("dataset.root=/x", "cifar10/conv4", "/x"),  # the other level has its own
    ],
)
def test_the_root_of_a_level_is_set_by_its_label_or_number(load, key, cell, value):
    before, after = cells_of(load()), cells_of(load(key))
    assert after[cell][0].root == value
    other = ({"cifar10/conv4", "v1.5/conv4"} - {cell}).pop()
    assert after[other] == before[other]


@pytest.mark.parametrize(
    ("key", "cell", "param", "value"),
    [
        ("factors.encoder.wide.width=32", "cifar10/wide", "width", 32),
        ("factors.encoder.1.base.lr=0.4", "cifar10/wide", "lr", 0.4),
        ("factors.dataset.v1.5.base.lr=0.4", "v1.5/wide", "lr", 0.4),
        ("factors.dataset.cifar10.objectives.simclr.base.lr=0.4", "cifar10/wide", "lr", 0.4),
        ("factors.dataset.v1.5.base={lr: 0.4}", "v1.5/wide", "lr", 0.4),
        ("base.lr=0.4", "cifar10/conv4", "lr", 0.4),
        ("factors.dataset.v1.5.base.lr=null", "v1.5/wide", "lr", 0.2),
    ],
)
def test_what_a_level_lays_over_the_study_is_set_too(load, key, cell, param, value):
    assert cells_of(load(key))[cell][1][param] == value


def test_a_preset_comes_first_and_its_levels_are_set_likewise(load):
    study = load("factors.dataset.stl10.root=/x", preset="one")
    assert {cell.sections.dataset.root for cell in study.cells} == {"/x"}
    [line] = refusals(load, "dataset.root=/x", preset="one")
    assert line.startswith("--set dataset.root=/x: dataset.root: has no effect: ")
    assert line.endswith(" replaces it. Expected: factors.dataset.stl10.root")
    [line] = refusals(load, "presets.one.dataset.root=/x", preset="one")
    assert line.endswith("Expected dataset.root without presets.one")


# Settings that nothing uses; those that are refused are in `mistakes.txt`.


@pytest.mark.parametrize(
    "settings",
    [
        ["dataset.download=true"],
        ["factors.dataset.cifar10.download=true"],
        ["search.seed=3"],
        ["contrasts.small.margin=1"],
        ["contrasts.small.at.tau=0.2"],
        ["contrasts=null"],
        ["base.transfer_dataset=stl10", "dataset.cache=/x"],
        ["base.transfer_dataset=stl10", "factors.dataset.v1.5.cache=/x"],
        ["base.transfer_dataset=stl10", "dataset.transfer_root=/x"],
        ["factors.dataset.v1.5.root=s3://mine/cifar", "factors.dataset.v1.5.cache=/x"],
        ["dataset.root=/x", "dataset.root=/y"],  # the last one counts
        ["base={epochs: 3, lr: 0.1, knn_k: 5}", "base.lr=0.3"],
        ["space.tau={choices: [0.1, 0.2, 0.4]}"],
    ],
)
def test_a_setting_with_an_effect_is_taken(load, settings):
    assert load(*settings)


def test_levels_that_a_setting_does_not_reach_are_noted(load):
    settings = ("dataset.root=/x", "base.lr=0.5", "base.width=4")
    factors = {"dataset": [*TREE["factors"]["dataset"], "digits"], "encoder": ["conv4", "resnet20"]}
    both = "{0}/conv4, {0}/resnet20"
    study = load(*settings, factors=factors)
    notes = [re.sub(r"\S+:\d+ replaces", "AT replaces", note) for note in study.notes]
    assert [note for note in notes if "--set" in note] == [
        "--set dataset.root=/x: dataset.root: has no effect: AT replaces "
        f"it. Expected: factors.dataset.v1.5.root (in {both.format('v1.5')})",
        "--set dataset.root=/x: dataset.root: has no effect: digits needs no files "
        f"(in {both.format('digits')})",
        "--set base.lr=0.5: base.lr: has no effect: AT replaces it. "
        f"Expected: factors.dataset.v1.5.base.lr (in {both.format('v1.5')})",
    ]
    assert not [note for note in load("dataset.val_fraction=0.3").notes if "--set" in note]


def test_a_condition_leaves_the_value_elsewhere_in_use(load):
    space = {
        "batch_size": {"choices": [16, 32]},
        "lr": {"choices": [1, 2], "when": {"batch_size": 16}},
    }
    one = {"objectives": {"a": {"framework": "simclr", "loss": "infonce"}}, "space": space}
    study = load("base.lr=0.01", **PLAIN | one)
    assert {*study.plan()["lr"]} == {0.01, 1, 2}
