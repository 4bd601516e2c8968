"""The catalog's rows hold together, and match what can be built."""

import math
from dataclasses import replace

import pytest

from clsweep import catalog
from clsweep.catalog import (
    COMPONENT,
    PARAM,
    check_row,
    implementation,
    ownership,
    signature_mismatch,
)
from clsweep.catalog.builtin import COMPONENTS, DATASETS, DIAGNOSTICS, METRICS, PARAMS
from clsweep.catalog.rows import named
from clsweep.results.schemas import ID_FIELDS

TEXT = {"doc": "-", "source": "-"}
FLOAT = catalog.Param(name="x", kind="float", default=0.5, low=0, low_open=True, high=1, **TEXT)
INT = catalog.Param(name="n", kind="int", default=4, low=2, **TEXT)
WORD = catalog.Param(name="w", kind="choice", default="a", choices=("a", "b"), **TEXT)
NUMBERS = replace(FLOAT, kind="numbers", default="0.5")
GRID = {"probe_lr_grid", "probe_val_share"}
SGD = {
    "probe_epochs", "probe_schedule", "probe_gamma", "probe_optimizer", "probe_momentum",
    "probe_weight_decay", "probe_batch_size", "probe_views",
}  # fmt: skip
PARTS = {"framework": "simclr", "loss": "infonce", "regularizer": "none", "views": "two"}


@pytest.mark.parametrize("param", PARAMS, ids=lambda p: p.name)
def test_a_parameter_has_an_owner_a_default_of_its_type_and_says_what_it_is(param):
    value = param.coerce(param.default)
    assert value == param.default
    kinds = {"float": float, "int": int, "choice": str, "bool": bool, "numbers": str, "names": str}
    assert type(value) is kinds[param.kind]
    assert ownership.owners_of(param.name)
    assert param.doc
    assert param.source
    assert param.low < param.high
    assert bool(param.choices) == (param.kind in ("choice", "names"))
    for other, value in param.inert_when:
        assert PARAM[other].coerce(value) == value


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda c: f"{c.part}-{c.name}")
def test_a_component_says_what_it_is(component):
    assert len(set(component.owns)) == len(component.owns)
    assert component.doc
    assert component.source
    assert component.impl or component.part in ("recipe", "weighting") or component.name == "none"
    for name, value in component.defaults.items():
        assert type(PARAM[name].coerce(value)) is type(value)


@pytest.mark.parametrize(
    "row", [*COMPONENTS, *METRICS, *DATASETS, *DIAGNOSTICS], ids=lambda row: row.name
)
def test_what_a_row_names_is_in_the_catalog(row):
    check_row(row)


def test_names_are_unique():
    columns = [row.name for row in (*PARAMS, *METRICS, *DIAGNOSTICS, *ID_FIELDS)]
    assert len(columns) == len(set(columns))
    assert not {alias for param in PARAMS for alias in param.aliases} & PARAM.keys()
    assert len({row.name for row in DATASETS}) == len(DATASETS)
    assert sum(len(components) for components in COMPONENT.values()) == len(COMPONENTS)


@pytest.mark.parametrize("part", catalog.SELECTED_PARTS)
def test_what_a_parameter_selects_are_the_components_of_its_name(part):
    assert PARAM[part].choices == tuple(COMPONENT[part])
    # an objective's space would depend on its own values; of encoders, see test_factors.py
    assert PARAM[part].sweepable == (part == "encoder")


# What can be built.


CALLED = [row for row in (*COMPONENTS, *DATASETS, *METRICS, *DIAGNOSTICS) if row.impl]


@pytest.mark.parametrize("row", CALLED, ids=lambda row: f"{getattr(row, 'part', '')}{row.name}")
def test_what_a_row_names_is_there_and_is_called_as_that_of_a_plug_in(row):
    if row.name not in ("wmse", "classifier_top1", "classifier_top5"):  # with more, or with less
        assert not signature_mismatch(row, implementation(row))


@pytest.mark.parametrize("dataset", [d for d in DATASETS if d.arrays], ids=lambda d: d.name)
def test_what_makes_the_arrays_of_a_data_set_is_there(dataset):
    assert callable(named(dataset.arrays))


def test_a_name_that_is_not_there_is_said():
    for place in ("clsweep.objective.losses:dlc", "clsweep.no_such:dcl", "dcl"):
        with pytest.raises(LookupError, match=f"expected module:function, given '{place}'"):
            named(place)


# Values.


@pytest.mark.parametrize(
    ("param", "given", "value"),
    [
        (FLOAT, 1, 1.0),
        (FLOAT, 0.1, 0.1),
        (INT, 64.0, 64),
        (WORD, "b", "b"),
        (NUMBERS, [0.2, 1], "0.2, 1"),
        (NUMBERS, "0.2,1", "0.2, 1"),
        (NUMBERS, 0.5, "0.5"),
    ],
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
        (NUMBERS, [0.5, 0.2], "expected ascending numbers in (0, 1], given [0.5, 0.2]"),
        (NUMBERS, [0.5, 0.5], "expected ascending numbers in (0, 1], given [0.5, 0.5]"),
        (NUMBERS, [0.5, 2], "expected ascending numbers in (0, 1], given [0.5, 2]"),
        (NUMBERS, [], "expected ascending numbers in (0, 1], given []"),
        (NUMBERS, "a", "expected ascending numbers in (0, 1], given 'a'"),
        (NUMBERS, True, "expected ascending numbers in (0, 1], given True"),
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


def test_one_channel_images_own_no_colour_and_an_untrained_encoder_only_what_changes_its_score():
    gray = ownership.owned_params(PARTS, encoder="conv4", dataset="digits")
    colour = ownership.owned_params(PARTS, encoder="conv4", dataset="cifar10")
    assert set(colour) - set(gray) == {p.name for p in PARAMS if p.needs_rgb}
    owned = ownership.owned_params(PARTS, encoder="conv4", dataset="cifar10", trained=False)
    scored = {"width", "probe_l2", "knn_k", "knn_temperature"}
    assert set(owned) == {*ownership.trial_owns(), *scored}


@pytest.mark.parametrize(
    ("framework", "loss"), [("simclr", "eqco"), ("moco", "dcl"), ("simo", "infonce")]
)
def test_negatives_are_owned_where_their_number_counts(framework, loss):
    parts = PARTS | {"framework": framework, "loss": loss}
    assert "num_negatives" in ownership.owned_params(parts, dataset="digits")
    assert "num_negatives" not in ownership.owned_params(PARTS, dataset="digits")


@pytest.mark.parametrize(
    ("selected", "brings"),
    [
        ({"weighting": "exponential"}, {"delta"}),
        ({"recipe": "byol"}, {"second_blur_prob", "second_solarize_prob"}),
        ({"linear_probe": "sgd"}, {"probe_lr", *SGD}),
        ({"linear_probe": "sgd_grid"}, {*GRID, *SGD}),
        ({"linear_probe": "none"}, set()),
    ],
    ids=lambda value: str(value if isinstance(value, dict) else sorted(value)),
)
def test_a_selected_component_brings_its_own_parameters(selected, brings):
    parts = PARTS | {"loss": "dclw"}
    plain = {"dataset": "digits", "linear_probe": "none"}
    base, owned = (ownership.owned_params(parts, **plain | more) for more in ({}, selected))
    assert {*owned} == {*base} | brings


def test_every_framework_takes_every_regularizer_and_pair_frameworks_all_views():
    refused = set()
    for framework in COMPONENT["framework"].values():
        if framework.name == "mi_critic":
            continue
        named = {"framework": framework.name, "loss": framework.losses[0], "views": "two"}
        for regularizer in COMPONENT["regularizer"]:
            if ownership.refusal({**named, "regularizer": regularizer}, "digits"):
                refused.add((framework.name, regularizer))
        losses = [loss for loss in framework.losses if loss not in ("infonce", "eqco")]
        for views in COMPONENT["views"]:
            parts = {**named, "loss": losses[-1], "regularizer": "dimcl", "views": views}
            if ownership.refusal(parts, "digits"):
                refused.add((framework.name, views))
    # the loss itself; nothing keeps it from collapse; it pairs all views, or none
    assert refused == {
        ("barlow_twins", "barlow"), ("lejepa", "none"),
        *(("supcon", views) for views in COMPONENT["views"] if views not in ("two", "all_pairs")),
        *(("supervised", views) for views in COMPONENT["views"] if views != "two"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "parts", "recipe", "value"),
    [
        ("alpha", {"framework": "simo", "loss": "eqco"}, "simclr", 65536.0),
        ("alpha", {"loss": "eqco"}, "simclr", 256.0),
        ("num_negatives", {"framework": "moco"}, "simclr", 65536),
        ("crop_only_share", {"views": "ecpp", "loss": "dcl"}, "simclr", 0.5),
        ("crop_only_share", {"views": "all_pairs"}, "simclr", 0.0),
        ("proj_dim", {"framework": "byol", "loss": "cosine"}, "simclr", 256),
        # Those of a named recipe come first; simclr has no crop_scale of its own.
        ("crop_scale", {"loss": "dcl", "views": "ecpp"}, "simclr", 0.2),
        ("crop_scale", {"loss": "dcl", "views": "ecpp"}, "byol", 0.08),
        ("crop_scale", {"loss": "dcl"}, "moco_v2", 0.2),
        ("blur_prob", {"loss": "dcl"}, "simclr_cifar", 0.0),
        ("num_views", {"loss": "dcl", "views": "core"}, "byol", 4),
    ],
    ids=str,
)
def test_a_default_may_depend_on_the_parts_and_on_the_recipe(name, parts, recipe, value):
    assert ownership.default_of(name, PARTS | parts, recipe=recipe) == value


@pytest.mark.parametrize(
    ("framework", "batch_size", "effective"),
    [("simclr", 64, 126), ("simo", 64, 63), ("simo", None, 0)],
)
def test_all_negatives_are_written_as_their_number(framework, batch_size, effective):
    params = {"num_negatives": 0, "batch_size": batch_size}
    values = ownership.effective({"framework": framework}, params, catalog.DATASET["digits"])
    assert values["num_negatives"] == effective


@pytest.mark.parametrize(
    ("params", "width"), [({"encoder": "conv4", "width": 8}, 32), ({"encoder": "resnet50"}, 2048)]
)
def test_a_hidden_width_of_the_features_is_written_as_its_number(params, width):
    from clsweep.objective.build import build_encoder

    values = ownership.effective(PARTS, {"proj_hidden": 0, **params}, catalog.DATASET["cifar10"])
    assert values["proj_hidden"] == width
    assert build_encoder({"stem": "small", **params}).num_features == width
