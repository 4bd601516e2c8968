"""A new loss, framework, encoder, data set, metric or diagnostic is one row and one function: each
is installed here from this file, and goes through catalog, plan, trial and results.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import clsweep
from clsweep.catalog import (
    COLUMNS,
    COMPONENT,
    DIAGNOSTIC,
    METRIC,
    PARAM,
    Component,
    Dataset,
    Diagnostic,
    Metric,
    Param,
    install,
)
from clsweep.catalog.guard import PartError
from clsweep.cli.export import snippet
from clsweep.cli.plan import catalog_tables, plan_matrix
from clsweep.data.datasets import Split
from clsweep.data.found import DataPlace
from clsweep.errors import StudyError
from clsweep.objective.build import build_objective
from clsweep.objective.frameworks import SimCLR
from clsweep.objective.views import all_pairs
from clsweep.results.folder import ResultsFolder
from clsweep.results.reading import StudyResults
from clsweep.results.schemas import SIDE_TABLES
from clsweep.results.weights import about_encoder
from clsweep.study.design import Study, plan_row, plan_trials
from clsweep.study.resolve import load_study
from clsweep.train.loop import train_trial
from clsweep.train.scores import score_reference

pytestmark = pytest.mark.usefixtures("one_thread")

STUDY = """
name: installed
dataset: {name: digits}
seeds: [0]
base: {encoder: conv4, width: 4, epochs: 1, batch_size: 256, knn_k: 20, linear_probe: none}
objectives:
  new: {framework: simclr, loss: infonce}
search: {method: grid}
"""
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
    """The study above with other settings."""

    def load(*settings: str) -> Study:
        path = tmp_path / "study.yaml"
        path.write_text(STUDY)
        return load_study(path, settings=settings)

    return load


def trained(study: Study) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Plan row, epochs and result of the study's first trial."""
    row, epochs = plan_row(study, plan_trials(study)[0]), []
    return row, epochs, train_trial(row, epochs.append)


def listed(kind: str) -> list[str]:
    return [next(iter(row.values())) for row in catalog_tables(kind)[kind]]


def hinge(z1_ND: Tensor, z2_ND: Tensor, tau: float, margin: float) -> Tensor:
    return torch.relu(margin - (z1_ND * z2_ND).sum(1) / tau).mean()


LOSS = (
    Component(part="loss", name="hinge", owns=("tau", "margin"), on=("simclr",),
              impl=f"{HERE}:hinge", **TEXT),
    Param(name="margin", kind="float", default=1.5, low=0, symbol="m", **TEXT),
)  # fmt: skip


def test_a_loss(installed, study):
    installed(*LOSS)
    assert "hinge" in listed("losses")
    frameworks = catalog_tables("frameworks")["frameworks"]
    assert [row["framework"] for row in frameworks if "hinge" in row["losses"]] == ["simclr"]
    with pytest.raises(StudyError, match="'hinge' makes no sense on framework byol"):
        study("objectives.new.loss=hinge", "objectives.new.framework=byol")
    found = study("objectives.new.loss=hinge", "base.margin=20", "base.lr=1e-9")
    assert {"param": "margin", "new": "20"} in plan_matrix(found)
    row, _, result = trained(found)
    assert (row["margin"], row["tau"]) == (20.0, 0.1)
    assert 10 < result["train_loss"] < 20  # views of an untrained encoder are much alike
    assert {"q_b_mean", "alignment"} <= set(result)


class Mirrored(SimCLR):
    """Both views count as the first of the pair, in turn."""

    def compare(self, e, i, j, criterion):
        return [*super().compare(e, i, j, criterion), *super().compare(e, j, i, criterion)]


def test_a_framework(installed, study):
    installed(Component(part="framework", name="mirrored", impl=f"{HERE}:Mirrored",
                        owns=("proj_dim", "proj_hidden", "proj_layers"), losses=("infonce", "dcl"),
                        views_of_negatives=2, **TEXT))  # fmt: skip
    assert "mirrored" in listed("frameworks")
    row, _, result = trained(study("objectives.new.framework=mirrored"))
    _, _, plain = trained(study())
    assert row["framework"] == "mirrored"
    assert result["train_loss"] == pytest.approx(plain["train_loss"], rel=1e-4)  # is symmetric
    with pytest.raises(StudyError, match="Expected one of: infonce, dcl"):
        study("objectives.new.framework=mirrored", "objectives.new.loss=eqco")


def near_pairs(num_views: int, *, reach: int, seed: int) -> tuple[tuple[int, int], ...]:
    assert seed == 0
    return tuple((i, j) for i, j in all_pairs(num_views) if j - i <= reach)


def test_views(installed, study):
    installed(
        Component(part="views", name="near", impl=f"{HERE}:near_pairs",
                  owns=(*COMPONENT["views"]["all_pairs"].owns, "reach"), takes=("seed",), **TEXT),
        Param(name="reach", kind="int", default=1, low=1, **TEXT),
    )  # fmt: skip
    found = study("objectives.new.views=near", "base.num_views=4", "base.reach=2")
    objective = build_objective(plan_row(found, plan_trials(found)[0]))
    assert objective.comparison.pairs == ((0, 1), (0, 2), (1, 2), (1, 3), (2, 3))


class Patches(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.patch, self.num_features = nn.Conv2d(3, 2 * width, 4, stride=4), 2 * width

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return self.patch(x_NCHW).mean((2, 3))


def test_an_encoder(installed, study):
    installed(Component(part="encoder", name="patches", impl=f"{HERE}:Patches", owns=("width",),
                        num_features=(2, "width"), blocks=("patch",), **TEXT))  # fmt: skip
    assert "patches" in listed("encoders")
    assert trained(study("base.encoder=patches", "base.feature_layer=patch"))[2]["knn_top1"] > 20
    assert "patches" in PARAM["encoder"].choices
    row, _, result = trained(study("base.encoder=patches"))
    assert (row["encoder"], row["width"], row["proj_hidden"]) == ("patches", 4, 8)
    assert result["encoder"]["patch.weight"].shape == (8, 3, 4, 4)
    lines = snippet(Path("out.pt"), row)
    assert f"from {HERE} import Patches" in lines
    assert "network = Patches(width=4)" in lines


def test_what_an_encoder_takes_is_kept_beside_its_weights(installed, study):
    installed(Component(part="encoder", name="headed", impl="a:b", takes=("num_classes",),
                        num_features=4, **TEXT))  # fmt: skip
    found = study("base.encoder=headed", "base.width=null")
    about = about_encoder(plan_row(found, plan_trials(found)[0]), {})
    assert about["num_classes"] == 10
    assert "network = b(num_classes=10)" in snippet(Path("out.pt"), about)


def stripes(dataset: Dataset, _place: DataPlace) -> tuple[Split, Split]:
    """Images whose class is their only bright row."""

    def split(count: int) -> Split:
        labels = np.arange(count) % dataset.num_classes
        images = np.zeros((count, dataset.image_size, dataset.image_size, 1), np.uint8)
        images[np.arange(count), 2 * labels] = 255
        return Split.whole(images, labels)

    return split(dataset.num_train), split(dataset.num_test)


def test_a_data_set(installed, study):
    installed(Dataset(name="stripes", impl=f"{HERE}:stripes", num_train=400, num_test=40,
                      image_size=8, channels=1, num_classes=4, doc="installed"))  # fmt: skip
    assert "stripes" in listed("datasets")
    found = study("dataset.name=stripes", "base.batch_size=64")
    row, _, result = trained(found)
    assert (row["dataset"], row["num_train"], row["num_classes"]) == ("stripes", 400, 4)
    assert result["num_images"] == 360 // 64 * 64
    pixels = {**row, "reference": "raw_pixels"}
    assert score_reference(pixels, place=DataPlace())["knn_top1"] == 100
    moved = study("base.transfer_dataset=stripes", "base.linear_probe=ridge", "base.width=8")
    assert trained(moved)[2]["transfer_linear_top1"] > 60


def mean_norm(bank_ND, bank_labels_N, query_MD, query_labels_M, *, num_classes, norm_power):
    assert len(bank_ND) == len(bank_labels_N) > len(query_MD) == len(query_labels_M)
    assert num_classes == 10
    return {"mean_norm": float((query_MD.norm(dim=1) ** norm_power).mean())}


METRIC_ROWS = (
    Metric(name="mean_norm", mode="min", unit="", every_epoch=True, owns=("norm_power",),
           impl=f"{HERE}:mean_norm", doc="installed"),
    Param(name="norm_power", kind="float", default=1.0, low=0, sweepable=False, **TEXT),
)  # fmt: skip


def test_a_metric(installed, study, tmp_path):
    installed(*METRIC_ROWS)
    assert "mean_norm" in listed("metrics")
    found = study("metric={name: mean_norm, mode: min}", "base.epochs=2", "base.eval_every=1")
    row, epochs, result = trained(found)
    assert row["norm_power"] == 1.0
    assert [epoch["mean_norm"] > 0 for epoch in epochs] == [True, True]
    assert result["mean_norm"] == epochs[1]["mean_norm"]
    folder = written(tmp_path / "results", found, row, result)
    assert folder.trials(["mean_norm"]).to_pylist() == [{"mean_norm": result["mean_norm"]}]


def misnamed(*_, **__):
    return {"mean": 0.0}


def test_a_metric_that_its_function_does_not_give_fails_the_trial(installed, study):
    installed(Metric(name="mean_norm", mode="min", impl=f"{HERE}:misnamed", doc="installed"))
    with pytest.raises(PartError, match="expected a score of this name, given mean"):
        trained(study())


def largest(z1_ND: Tensor) -> Tensor:
    return z1_ND.abs().max()


def batch_share(prepared, config):
    return torch.tensor(len(prepared["online"][0]) / config["batch_size"])


def test_a_diagnostic(installed, study, tmp_path):
    installed(
        Diagnostic(name="largest", impl=f"{HERE}:largest", takes=("z1_ND",), **TEXT),
        Diagnostic(name="share_cv", impl=f"{HERE}:batch_share", takes=("prepared", "config"),
                   summary="cv", **TEXT),
        Diagnostic(name="share_mean", impl=f"{HERE}:batch_share", takes=("prepared", "config"),
                   summary="mean", **TEXT),
    )  # fmt: skip
    assert "largest" in listed("diagnostics")
    found = study()
    row, epochs, result = trained(found)
    assert epochs[0]["largest"] == result["largest"] > 0
    assert (result["share_mean"], result["share_cv"]) == (1, 0)
    trials = written(tmp_path / "results", found, row, result).trials().to_pandas()
    assert trials["largest"].to_list() == [result["largest"]]
    several = pd.concat([trials.assign(config=i, tau=0.1 * (1 + i)) for i in range(3)])
    table = clsweep.analyse(several.assign(seed=0), metric="knn_top1", params=["tau"]).mechanism()
    assert table["largest"].to_list() == pytest.approx([result["largest"]])


def written(path: Path, study: Study, row: dict[str, Any], result: dict[str, Any]) -> ResultsFolder:
    """A results folder with one trial."""
    folder = ResultsFolder(str(path))
    folder.create(study.document.dump(), [row])
    dropped = ("encoder", "normalisation", *SIDE_TABLES, "earlier_s")
    outcome = {name: value for name, value in result.items() if name not in dropped}
    folder.add_trial(row | outcome)
    return folder


def test_a_parameter_that_this_version_does_not_know_stays_one(study, tmp_path):
    remove = install(LOSS)
    try:
        found = study("objectives.new.loss=hinge")
        rows = [plan_row(found, trial) for trial in plan_trials(found)]
        folder = written(tmp_path / "results", found, rows[0], {"status": "finished"})
    finally:
        remove()
    assert "margin" not in PARAM
    for _ in range(2):  # from the part, and compacted by this version
        results = StudyResults(ResultsFolder(folder.path))
        assert "margin" in results.params
        assert results.trials["margin"].to_list() == results.plan["margin"].to_list() == [1.5]
        results.folder.compact()
    assert "num_train" not in results.params


def test_what_was_installed_can_be_taken_out_again():
    before = {part: dict(rows) for part, rows in COMPONENT.items()}, dict(PARAM), dict(METRIC)
    remove = install([*LOSS, *METRIC_ROWS])
    assert "hinge" in COMPONENT["loss"]
    assert "mean_norm" in METRIC
    remove()
    after = {part: dict(rows) for part, rows in COMPONENT.items()}, dict(PARAM), dict(METRIC)
    assert after == before


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
    assert names <= {
        *COLUMNS,
        *PARAM,
        *METRIC,
        *DIAGNOSTIC,
        "diagnostic",
        "bin_low",
        "bin_high",
        "share",
    }
    for name in ("train_loss", "trial_id", "test_mine"):
        with pytest.raises(ValueError, match="expected a new name"):
            install([Metric(name=name, mode="max", impl="x:y", doc="-")])
