"""The catalog's rows hold together, and match what can be built."""

import math

import pytest

from clsweep.errors import nearest
from clsweep.objective import catalog, ownership
from clsweep.objective.catalog import COMPONENT, COMPONENTS, DATASETS, METRICS, OBJECTIVE_PARTS, PARAM, PARAMS

FLOAT = catalog.Param(name="x", kind="float", default=0.5, low=0, low_open=True, high=1, doc="-", source="-")
INT = catalog.Param(name="n", kind="int", default=4, low=2, doc="-", source="-")
WORD = catalog.Param(name="w", kind="choice", default="a", choices=("a", "b"), doc="-", source="-")
PARTS = {"framework": "simclr", "loss": "infonce", "regularizer": "none", "views": "two"}


@pytest.mark.parametrize("param", PARAMS, ids=lambda p: p.name)
def test_a_default_is_valid_and_of_its_type(param):
    value = param.coerce(param.default)
    assert value == param.default
    assert type(value) is {"float": float, "int": int, "choice": str, "bool": bool}[param.kind]


@pytest.mark.parametrize("param", PARAMS, ids=lambda p: p.name)
def test_every_parameter_has_an_owner(param):
    owners = [c.name for c in COMPONENTS if param.name in {*c.owns, *sum(c.owns_with.values(), ())}]
    assert owners or param.name in (*ownership.TRAINING_OWNS, *ownership.TRIAL_OWNS)
    assert ownership.owners_of(param.name)


@pytest.mark.parametrize("param", PARAMS, ids=lambda p: p.name)
def test_a_parameter_says_what_it_is_where_it_is_from_and_its_bounds(param):
    assert param.doc
    assert param.source
    assert param.low < param.high
    assert bool(param.choices) == (param.kind == "choice")


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda c: f"{c.part}-{c.name}")
def test_a_component_owns_parameters_that_exist_and_says_what_it_is(component):
    assert {*component.owns, *sum(component.owns_with.values(), ()), *component.defaults} <= set(PARAM)
    assert set(component.losses) <= set(COMPONENT["loss"])
    assert len(set(component.owns)) == len(component.owns)
    assert component.doc
    assert component.source


def test_training_owns_parameters_that_exist():
    assert {*ownership.TRAINING_OWNS, *ownership.TRIAL_OWNS} <= set(PARAM)


@pytest.mark.parametrize("rows", [PARAMS, DATASETS, METRICS], ids=["params", "datasets", "metrics"])
def test_names_are_unique(rows):
    names = [row.name for row in rows]
    assert len(names) == len(set(names))


def test_names_are_unique_within_a_part():
    assert sum(len(components) for components in COMPONENT.values()) == len(COMPONENTS)


def test_no_parameter_is_called_like_a_column_of_the_plan():
    from clsweep.study.design import _ID_COLUMNS

    assert not set(PARAM) & set(_ID_COLUMNS)


@pytest.mark.parametrize("part", catalog.SELECTED_PARTS)
def test_what_a_parameter_selects_are_the_components_of_its_name(part):
    assert PARAM[part].choices == tuple(COMPONENT[part])
    assert not PARAM[part].sweepable, "an objective's space would depend on its own values"


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda c: f"{c.part}-{c.name}")
def test_a_components_defaults_are_valid(component):
    for name, value in component.defaults.items():
        coerced = PARAM[name].coerce(value)
        assert coerced == value
        assert type(coerced) is type(value)


@pytest.mark.parametrize("param", PARAMS, ids=lambda p: p.name)
def test_what_switches_a_parameter_off_is_a_value_of_another(param):
    for other, value in param.inert_when:
        assert PARAM[other].coerce(value) == value


# What can be built.


@pytest.mark.parametrize(
    ("part", "built"),
    [
        ("framework", "FRAMEWORKS"),
        ("loss", "LOSSES"),
        ("regularizer", "REGULARIZERS"),
        ("views", "VIEWS"),
        ("encoder", "ENCODERS"),
    ],
)
def test_what_the_catalog_lists_is_what_can_be_built(part, built):
    from clsweep.objective import build

    assert set(COMPONENT[part]) == set(getattr(build, built))


def test_every_dataset_has_a_loader():
    from clsweep.data.datasets import LOADERS

    assert [d.name for d in DATASETS if d.kind == "images"] == list(LOADERS)


def test_the_digits_are_as_large_as_the_catalog_says():
    from clsweep.data.availability import DataPlace
    from clsweep.data.datasets import LOADERS

    digits = catalog.DATASET["digits"]
    train, test = LOADERS["digits"](digits, DataPlace(root="nowhere"))
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
    owned = ownership.owned_params(PARTS, encoder="conv4", dataset="cifar10")
    assert list(owned) == [p.name for p in PARAMS if p.name in owned]


def test_an_objective_owns_what_its_parts_bring():
    owned = set(ownership.owned_params(PARTS | {"loss": "dclw"}, encoder="resnet18", dataset="cifar10"))
    brought = {name for part in OBJECTIVE_PARTS for name in COMPONENT[part][(PARTS | {"loss": "dclw"})[part]].owns}
    assert owned == brought | {*ownership.TRAINING_OWNS, *ownership.TRIAL_OWNS, "stem", "probe_l2", "sgd_momentum"}


def test_one_channel_images_own_no_colour_parameters():
    gray = ownership.owned_params(PARTS, encoder="conv4", dataset="digits")
    colour = ownership.owned_params(PARTS, encoder="conv4", dataset="cifar10")
    assert set(colour) - set(gray) == {p.name for p in PARAMS if p.needs_rgb}


def test_the_untrained_encoder_owns_only_what_can_change_its_score():
    owned = ownership.owned_params(PARTS, encoder="conv4", dataset="cifar10", trained=False)
    assert set(owned) == {*ownership.TRIAL_OWNS, "width", "probe_l2"}


@pytest.mark.parametrize(
    ("name", "owners"),
    [("lr", "training"), ("epochs", "every trial"), ("sigma", "loss dclw"), ("width", "encoder conv4")],
)
def test_owners_are_named_for_a_reader(name, owners):
    assert ownership.owners_of(name) == owners


@pytest.mark.parametrize(("framework", "loss"), [("simclr", "eqco"), ("moco", "dcl"), ("simo", "infonce")])
def test_negatives_are_owned_where_their_number_counts(framework, loss):
    parts = PARTS | {"framework": framework, "loss": loss}
    assert "num_negatives" in ownership.owned_params(parts, dataset="digits")
    assert "num_negatives" not in ownership.owned_params(PARTS, dataset="digits")


@pytest.mark.parametrize(
    ("selected", "brings"),
    [
        ({"weighting": "exponential"}, {"delta"}),
        ({"recipe": "byol"}, {"second_blur_prob", "second_solarize_prob"}),
        ({"linear_probe": "sgd"}, {"probe_lr", "probe_epochs", "probe_schedule"}),
        ({"linear_probe": "none"}, set()),
    ],
    ids=str,
)
def test_a_selected_component_brings_its_own_parameters(selected, brings):
    parts = PARTS | {"loss": "dclw"}
    base = set(ownership.owned_params(parts, dataset="digits", linear_probe="none"))
    assert set(ownership.owned_params(parts, dataset="digits", **{"linear_probe": "none", **selected})) == base | brings


@pytest.mark.parametrize(
    ("changes", "part", "says"),
    [
        ({"loss": "cosine"}, "loss", "makes no sense on framework simclr"),
        ({"framework": "byol"}, "loss", "Expected one of: cosine"),
        ({"framework": "supervised", "loss": "cross_entropy", "views": "ecpp"}, "views", "pairs no views"),
        ({"views": "ecpp"}, "views", "takes the positive out of the denominator"),
        ({"framework": "barlow_twins", "loss": "barlow", "regularizer": "barlow"}, "regularizer", "no effect"),
        ({"framework": "mi_critic"}, "framework", "does not work on digits"),
    ],
    ids=str,
)
def test_parts_that_make_no_objective_are_refused_with_the_reason(changes, part, says):
    refused = ownership.refusal(PARTS | changes, "digits")
    assert refused is not None
    assert refused[0] == part
    assert says in refused[1]


def test_every_framework_takes_every_regularizer_and_pair_frameworks_all_views():
    for framework in COMPONENT["framework"].values():
        if framework.name == "mi_critic":
            continue
        for regularizer in COMPONENT["regularizer"]:
            parts = {"framework": framework.name, "loss": framework.losses[0], "regularizer": regularizer}
            itself = framework.name == "barlow_twins" and regularizer == "barlow"
            assert (ownership.refusal(parts | {"views": "two"}, "digits") is not None) == itself
        for views in COMPONENT["views"]:
            fitting = next(loss for loss in reversed(framework.losses) if loss not in ("infonce", "eqco"))
            parts = {"framework": framework.name, "loss": fitting, "regularizer": "none", "views": views}
            refused = framework.name == "supervised" and views != "two"
            assert (ownership.refusal(parts, "digits") is not None) == refused


@pytest.mark.parametrize(
    ("name", "parts", "value"),
    [
        ("alpha", {"framework": "simo", "loss": "eqco"}, 65536.0),
        ("alpha", {"loss": "eqco"}, 256.0),
        ("num_negatives", {"framework": "moco"}, 65536),
        ("crop_only_share", {"views": "ecpp", "loss": "dcl"}, 0.5),
        ("crop_only_share", {"views": "all_pairs"}, 0.0),
        ("proj_dim", {"framework": "byol", "loss": "cosine"}, 256),
    ],
    ids=str,
)
def test_a_default_may_depend_on_the_parts(name, parts, value):
    assert ownership.default_of(name, PARTS | parts) == value


@pytest.mark.parametrize(
    ("name", "recipe", "views", "value"),
    [
        ("crop_scale", "simclr", "ecpp", 0.2),  # the recipe has none of its own
        ("crop_scale", "byol", "ecpp", 0.08),
        ("crop_scale", "moco_v2", "two", 0.2),
        ("blur_prob", "simclr_cifar", "two", 0.0),
        ("num_views", "byol", "core", 4),
    ],
)
def test_the_defaults_of_a_named_recipe_come_first(name, recipe, views, value):
    assert ownership.default_of(name, PARTS | {"loss": "dcl", "views": views}, recipe=recipe) == value


@pytest.mark.parametrize(
    ("framework", "batch_size", "effective"), [("simclr", 64, 126), ("simo", 64, 63), ("simo", None, 0)]
)
def test_all_negatives_are_written_as_their_number(framework, batch_size, effective):
    params = {"num_negatives": 0, "batch_size": batch_size}
    assert (
        ownership.effective({"framework": framework}, params, catalog.DATASET["digits"])["num_negatives"] == effective
    )


@pytest.mark.parametrize(
    ("params", "width"),
    [({"encoder": "conv4", "width": 8}, 32), ({"encoder": "resnet18"}, 512), ({"encoder": "resnet50"}, 2048)],
    ids=str,
)
def test_a_hidden_width_of_the_features_is_written_as_its_number(params, width):
    from clsweep.objective.build import build_encoder

    values = ownership.effective(PARTS, {"proj_hidden": 0, **params}, catalog.DATASET["cifar10"])
    assert values["proj_hidden"] == width
    assert build_encoder({"stem": "small", **params}).num_features == width


def test_nearest_names_one_candidate_or_none():
    assert nearest("sigmma", PARAM) == " Did you mean 'sigma'?"
    assert nearest("zzzzz", PARAM) == ""


def test_split_sizes_add_up():
    for dataset in DATASETS:
        train, val = dataset.split_sizes(0.1)
        assert train + val == dataset.num_train + dataset.num_unlabeled
        assert val == pytest.approx(0.1 * dataset.num_train, abs=0.5)
