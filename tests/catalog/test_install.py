"""Rows that are installed: what they may be called and name, and what stays of them."""

import copy

import pytest

from clsweep.catalog import (
    COMPONENT,
    DIAGNOSTIC,
    FIXED_COLUMNS,
    METRIC,
    PARAM,
    Component,
    Dataset,
    Diagnostic,
    Metric,
    Param,
    install,
)
from clsweep.catalog.plugin_guard import PartError
from clsweep.results.folder import ResultsFolder
from clsweep.results.reading import StudyTables
from clsweep.results.weights import about_encoder
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from clsweep.train.loop import train_trial
from tests.planted import study_at

pytestmark = pytest.mark.usefixtures("one_thread")

BASE = {"encoder": "conv4", "width": 4, "epochs": 1, "batch_size": 256, "linear_probe": "none"}
ONE = {"framework": "simclr", "loss": "infonce"}
TREE = {"seeds": [0], "base": BASE, "space": {}, "objectives": {"new": ONE}}
TEXT = {"source": "this test", "doc": "installed"}
HERE = __name__


@pytest.fixture
def installed(request):
    """Installs rows until the test is over."""

    def add(*rows):
        request.addfinalizer(install(rows))

    return add


@pytest.fixture
def study(tmp_path):
    path = study_at(tmp_path / "study.yaml", **TREE)
    return lambda *settings: load_study(path, settings=settings)


LOSS = (
    Component(part="loss", name="hinge", owns=("tau", "margin"), on=("simclr",),
              impl="a:b", **TEXT),
    Param(name="margin", kind="float", default=1.5, low=0, symbol="m", **TEXT),
)  # fmt: skip


def test_what_an_encoder_takes_is_kept_beside_its_weights(installed, study):
    installed(Component(part="encoder", name="headed", impl="a:b", takes=("num_classes",),
                        num_features=4, **TEXT))  # fmt: skip
    found = study("base.encoder=headed", "base.width=null")
    about = about_encoder(plan_row(found, plan_trials(found)[0]), {})
    assert about["num_classes"] == 10


METRIC_ROWS = (
    Metric(name="mean_norm", mode="min", unit="", every_epoch=True, owns=("norm_power",),
           impl="a:b", doc="installed"),
    Param(name="norm_power", kind="float", default=1.0, low=0, sweepable=False, **TEXT),
)  # fmt: skip


def misnamed(*_, **__):
    return {"mean": 0.0}


def test_a_metric_that_its_function_does_not_give_fails_the_trial(installed, study):
    installed(Metric(name="mean_norm", mode="min", impl=f"{HERE}:misnamed", doc="installed"))
    found = study()
    with pytest.raises(PartError, match="expected a score of this name, given mean"):
        train_trial(plan_row(found, plan_trials(found)[0]), [].append)


def test_a_parameter_that_this_version_does_not_know_stays_one(study, tmp_path):
    remove = install(LOSS)
    try:
        found = study("objectives.new.loss=hinge")
        rows = [plan_row(found, trial) for trial in plan_trials(found)]
        folder = ResultsFolder(str(tmp_path / "results"))
        folder.create(found.document.dump(), rows[:1])
        folder.add_trial({**rows[0], "status": "finished"})
    finally:
        remove()
    assert "margin" not in PARAM
    for _ in range(2):  # from the part, and compacted by this version
        results = StudyTables(ResultsFolder(folder.path))
        assert "margin" in results.params
        assert results.trials["margin"].to_list() == results.plan["margin"].to_list() == [1.5]
        results.folder.compact()
    assert "num_train" not in results.params


def test_what_was_installed_can_be_taken_out_again():
    before = copy.deepcopy((COMPONENT, PARAM, METRIC))
    remove = install([*LOSS, *METRIC_ROWS])
    assert "hinge" in COMPONENT["loss"]
    assert "mean_norm" in METRIC
    remove()
    assert before == (COMPONENT, PARAM, METRIC)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Component(part="loss", name="dcl", impl="a:b", **TEXT), "loss 'dcl': expected a new name"),
        (Metric(name="tau", mode="max", impl="a:b", doc="-"), "metric 'tau': expected a new name"),
        (Component(part="loss", name="x", owns=("kappa",), **TEXT), "owns: no parameter 'kappa'"),
        (Component(part="encoder", name="x", impl="a:b", **TEXT), "num_features: expected"),
        (Component(part="loss", name="x", on=("simcrl",), **TEXT), "on: no framework 'simcrl'"),
        (Component(part="framework", name="x", losses=("x",), **TEXT), "losses: no loss 'x'"),
        (Component(part="framework", name="x", owns_with={"dlc": ()}, **TEXT), "no loss 'dlc'"),
        (Component(part="recipe", name="x", defaults={"blur": 1.0}, **TEXT), "parameter 'blur'"),
        (Component(part="recipe", name="x", owns=("second_erase_prob",), **TEXT), "no parameter"),
        (Component(part="recipe", name="x", owns=("blur_prob",), **TEXT), "of second views 'bl"),
        (Component(part="views", name="x", impl="a:b", **TEXT), "owns: expected also augmentation"),
        (Diagnostic(name="x", impl="a:b", takes=("z_ND",), **TEXT), "takes: no value 'z_ND'"),
        (Diagnostic(name="x", impl="a:b", takes=("z1_ND",), summary="cv", **TEXT), "no value 'z1"),
        (Component(part="regularizer", name="x", impl="a:b", **TEXT), "owns: expected also lam"),
        (Metric(name="x", mode="max", doc="-"), "expected impl or part"),
        (Dataset(name="x", impl="a:b", num_train=1, num_test=1, image_size=8, channels=3,
                 num_classes=2, owns=("tau",), doc="-"), "owns: expected of kind pairs alone"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_is_refused_and_nothing_stays(row, message):
    before = dict(PARAM)
    with pytest.raises(ValueError, match=message):
        install([LOSS[1], row])
    assert before == PARAM


def test_names_of_columns_are_taken():
    from clsweep.results import schemas

    fixed = (*schemas.ID_FIELDS, *schemas._LOSS_FIELDS, *schemas._RUN_FIELDS)
    tables = [*map(schemas.side_schema, ("histograms", "epochs")), schemas.references_schema()]
    names = {field.name for field in fixed} | {field.name for table in tables for field in table}
    of_histograms = {"diagnostic", "bin_low", "bin_high", "share"}
    assert names <= {*FIXED_COLUMNS, *PARAM, *METRIC, *DIAGNOSTIC} | of_histograms
    for name in ("train_loss", "trial_id", "test_mine"):
        with pytest.raises(ValueError, match="expected a new name"):
            install([Metric(name=name, mode="max", impl="x:y", doc="-")])
