"""The catalog's rows hold together, and match what can be built."""

import math

import pytest

from clsweep.errors import nearest
from clsweep.objective import catalog
from clsweep.objective.catalog import COMPONENT, COMPONENTS, DATASETS, METRICS, OBJECTIVE_PARTS, PARAM, PARAMS

FLOAT = catalog.Param(name="x", kind="float", default=0.5, low=0, low_open=True, high=1, doc="-", source="-")
INT = catalog.Param(name="n", kind="int", default=4, low=2, doc="-", source="-")
WORD = catalog.Param(name="w", kind="choice", default="a", choices=("a", "b"), doc="-", source="-")
PARTS = {"framework": "simclr", "loss": "infonce", "regularizer": "none", "views": "two"}


@pytest.mark.parametrize("param", PARAMS, ids=lambda p: p.name)
def test_a_default_is_valid_and_of_its_type(param):
    value = param.coerce(param.default)
    assert value == param.default
    assert type(value) is {"float": float, "int": int, "choice": str}[param.kind]


@pytest.mark.parametrize("param", PARAMS, ids=lambda p: p.name)
def test_every_parameter_has_an_owner(param):
    owners = [c.name for c in COMPONENTS if param.name in c.owns]
    assert owners or param.name in (*catalog.TRAINING_OWNS, *catalog.TRIAL_OWNS)
    assert catalog.owners_of(param.name)


@pytest.mark.parametrize("param", PARAMS, ids=lambda p: p.name)
def test_a_parameter_says_what_it_is_where_it_is_from_and_its_bounds(param):
    assert param.doc
    assert param.source
    assert param.low < param.high
    assert bool(param.choices) == (param.kind == "choice")


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda c: f"{c.part}-{c.name}")
def test_a_component_owns_parameters_that_exist_and_says_what_it_is(component):
    assert set(component.owns) <= set(PARAM)
    assert len(set(component.owns)) == len(component.owns)
    assert component.doc
    assert component.source


def test_training_owns_parameters_that_exist():
    assert {*catalog.TRAINING_OWNS, *catalog.TRIAL_OWNS} <= set(PARAM)


@pytest.mark.parametrize("rows", [PARAMS, DATASETS, METRICS], ids=["params", "datasets", "metrics"])
def test_names_are_unique(rows):
    names = [row.name for row in rows]
    assert len(names) == len(set(names))


def test_names_are_unique_within_a_part():
    assert sum(len(components) for components in COMPONENT.values()) == len(COMPONENTS)


def test_no_parameter_is_called_like_a_column_of_the_plan():
    from clsweep.study.design import _ID_COLUMNS

    assert not set(PARAM) & set(_ID_COLUMNS)


def test_encoders_are_the_choices_of_the_parameter_encoder():
    assert PARAM["encoder"].choices == tuple(COMPONENT["encoder"])


# What can be built.


@pytest.mark.parametrize(
    ("part", "built"), [("framework", "FRAMEWORKS"), ("loss", "LOSSES"), ("views", "VIEWS"), ("encoder", "ENCODERS")]
)
def test_what_the_catalog_lists_is_what_can_be_built(part, built):
    from clsweep.objective import build

    assert set(COMPONENT[part]) == set(getattr(build, built))


def test_every_dataset_has_a_loader():
    from clsweep.data.datasets import LOADERS

    assert [d.name for d in DATASETS] == list(LOADERS)


def test_the_digits_are_as_large_as_the_catalog_says():
    from pathlib import Path

    from clsweep.data.datasets import LOADERS

    digits = catalog.DATASET["digits"]
    train, test = LOADERS["digits"](Path("nowhere"), False)
    assert (len(train.labels), len(test.labels)) == (digits.num_train, digits.num_test)
    assert train.images.shape[1:] == (digits.image_size, digits.image_size, digits.channels)
    assert len(set(train.labels)) == digits.num_classes


# Values.


@pytest.mark.parametrize(
    ("param", "given", "value"), [(FLOAT, 1, 1.0), (FLOAT, 0.1, 0.1), (INT, 64.0, 64), (WORD, "b", "b")]
)
def test_a_valid_value_comes_in_the_parameters_type(param, given, value):
    coerced = param.coerce(given)
    assert coerced == value
    assert type(coerced) is type(value)


@pytest.mark.parametrize(
    ("param", "given", "message"),
    [
        (FLOAT, 0, "expected a value in (0, 1], given 0"),
        (FLOAT, 1.5, "expected a value in (0, 1], given 1.5"),
        (FLOAT, True, "expected a number, given True"),
        (FLOAT, math.nan, "expected a number, given nan"),
        (FLOAT, math.inf, "expected a number, given inf"),
        (FLOAT, "0.5", "expected a number, given '0.5'"),
        (FLOAT, None, "expected a number, given None"),
        (INT, 2.5, "expected an integer, given 2.5"),
        (INT, 1, "expected a value in [2, inf), given 1"),
        (INT, 2**63, "expected an integer, given 9223372036854775808"),
        (WORD, "c", "expected a | b, given 'c'"),
        (WORD, ["a"], "expected a | b, given ['a']"),
    ],
)
def test_an_invalid_value_is_refused(param, given, message):
    with pytest.raises(ValueError, match=r"^expected ") as caught:
        param.coerce(given)
    assert str(caught.value) == message


@pytest.mark.parametrize("given", [10**400, "x" * 500, [0] * 500])
def test_a_long_value_does_not_fill_the_message(given):
    with pytest.raises(ValueError, match=r"^expected ") as caught:
        FLOAT.coerce(given)
    assert len(str(caught.value)) < 120


# Ownership.


def test_owned_parameters_come_in_catalog_order_and_once():
    owned = catalog.owned_params(PARTS, encoder="conv4", dataset="cifar10")
    assert list(owned) == [p.name for p in PARAMS if p.name in owned]


def test_an_objective_owns_what_its_parts_bring():
    owned = set(catalog.owned_params(PARTS | {"loss": "dclw"}, encoder="resnet18", dataset="cifar10"))
    brought = {name for part in OBJECTIVE_PARTS for name in COMPONENT[part][(PARTS | {"loss": "dclw"})[part]].owns}
    assert owned == brought | {*catalog.TRAINING_OWNS, *catalog.TRIAL_OWNS, "stem"}


def test_one_channel_images_own_no_colour_parameters():
    gray = catalog.owned_params(PARTS, encoder="conv4", dataset="digits")
    colour = catalog.owned_params(PARTS, encoder="conv4", dataset="cifar10")
    assert set(colour) - set(gray) == {p.name for p in PARAMS if p.needs_rgb}


def test_the_untrained_encoder_owns_only_what_can_change_its_score():
    owned = catalog.owned_params(PARTS, encoder="conv4", dataset="cifar10", trained=False)
    assert set(owned) == {*catalog.TRIAL_OWNS, "width"}


@pytest.mark.parametrize(
    ("name", "owners"),
    [("lr", "training"), ("epochs", "every trial"), ("sigma", "loss dclw"), ("width", "encoder conv4")],
)
def test_owners_are_named_for_a_reader(name, owners):
    assert catalog.owners_of(name) == owners


def test_nearest_names_one_candidate_or_none():
    assert nearest("sigmma", PARAM) == " Did you mean 'sigma'?"
    assert nearest("zzzzz", PARAM) == ""


def test_split_sizes_add_up():
    for dataset in DATASETS:
        train, val = dataset.split_sizes(0.1)
        assert train + val == dataset.num_train
        assert val == pytest.approx(0.1 * dataset.num_train, abs=0.5)
