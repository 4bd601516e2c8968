"""Trials on the user's own files and with encoders beyond the catalog: they score what they can."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from clsweep.catalog import METRICS
from clsweep.catalog.open_encoders import with_digest
from clsweep.catalog.ownership import is_taken
from clsweep.cluster.resources import prepare_files
from clsweep.cluster.runner import _BEFORE, _OF_PICTURES, _changed_images
from clsweep.data.datasets import transferred_splits
from clsweep.errors import RequestError, StudyError
from clsweep.study.design import placed_baselines, plan_row, plan_trials
from clsweep.study.resolve import load_study
from clsweep.train.evaluation import score_reference
from tests.contracts.attempts import assert_same, attempt, chain
from tests.planted import study_at

pytestmark = pytest.mark.usefixtures("one_thread", "nothing_loaded")

BASE = {"encoder": "conv4", "width": 4, "epochs": 3, "batch_size": 8, "knn_k": 3, "proj_dim": 8}


def five_channels(folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    images = rng.integers(0, 65536, (60, 12, 12, 5)) // 2 + labels[:, None, None, None] * 10_000
    np.savez(folder / "set.npz", images=images.astype(np.uint16), labels=labels)
    return {"name": "arrays", "root": str(folder / "set.npz")}


def pictures(folder: Path, *, name: str = "pictures") -> dict[str, Any]:
    rng = np.random.default_rng(0)
    for part, count in (("train", 14), ("val", 3)):
        for c in range(3):
            at = folder / name / part / f"c{c}"
            at.mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 128, (20 + i, 40 - i, 3), dtype=np.uint8) + 60 * c
                Image.fromarray(pixels.astype(np.uint8)).save(at / f"{i}.png")
    return {"name": "imagefolder", "root": str(folder / name), "image_size": 16}


def jpegs(folder: Path) -> dict[str, Any]:
    return pictures(folder) | {"store_as": "jpeg"}


def study(folder: Path, dataset: dict[str, Any], base: dict[str, Any], **others: Any) -> Any:
    tree = {
        "seeds": [0], "space": {},
        "base": {n: v for n, v in BASE.items() if n != "width" or "encoder" not in base} | base,
        "dataset": {"val_fraction": 0.2, "cache": str(folder / "cache")} | dataset,
        "objectives": {"dcl": {"framework": "simclr", "loss": "dcl"}}, **others,
    }  # fmt: skip
    return load_study(study_at(folder / "study.yaml", **tree))


def row_of(resolved: Any) -> dict[str, Any]:
    [trial] = plan_trials(resolved)
    return plan_row(resolved, trial)


@pytest.mark.parametrize("dataset", [five_channels, pictures, jpegs])
def test_a_trial_on_ones_own_files(dataset, tmp_path):
    resolved = study(tmp_path, dataset(tmp_path), {})
    row, place = row_of(resolved), resolved.sections.dataset.place
    whole = attempt(row, place=place)
    assert whole.result["status"] == "finished"
    channels = len(whole.result["normalisation"]["mean"])
    assert channels == row["channels"]
    first = next(iter(whole.result["encoder"].values()))
    assert first.shape[1] == channels
    for reference, _ in placed_baselines(resolved, plan_trials(resolved)):
        assert score_reference(reference, place=place)["knn_top1"] > 50


def test_images_without_classes_are_scored_on_a_second_set(tmp_path):
    dataset = pictures(tmp_path)
    flat = dataset | {"name": "imagefiles", "transfer_root": dataset["root"]}
    base = {"transfer_dataset": "imagefolder", "epochs": 1}
    metric = {"name": "transfer_linear_top1"}
    resolved = study(tmp_path, flat, base, metric=metric)
    row = row_of(resolved)
    assert (row["num_classes"], row["num_train"], row["num_unlabeled"]) == (0, 42, 42)
    assert all(row["images_digest"].split("+"))
    result = attempt(row, place=resolved.sections.dataset.place).result
    assert result["transfer_linear_top1"] > 33
    assert "knn_top1" not in result
    taken = {m.name for m in METRICS if is_taken(m, row)}
    assert "transfer_linear_top1" in taken
    assert not {m.name for m in METRICS if m.of == "features" and m.needs_labels} & taken
    for metric_name, says in (
        (
            "knn_top1",
            "expected one that every objective has: transfer_linear.*given knn_top1, which",
        ),
        ("transfer_linear_top1", "expected a data set with classes, given imagefiles"),
    ):
        to = {"transfer_dataset": "imagefiles"} if metric_name[0] == "t" else {}
        with pytest.raises(StudyError, match=says):
            study(tmp_path, flat, base | to, metric={"name": metric_name})


def test_scores_of_ones_own_files_are_transferred_to_others_of_ones_own(tmp_path):
    arrays = five_channels(tmp_path)["root"]
    images = np.load(arrays)["images"][..., :3]
    np.savez(arrays, images=images, labels=np.arange(60) % 3)
    own = pictures(tmp_path)
    for dataset, name, root in (
        (own, "arrays", arrays),
        (own, "imagefolder", pictures(tmp_path, name="another")["root"]),
        ({"name": "digits"}, "imagefolder", own["root"]),
    ):
        base = {"transfer_dataset": name, "epochs": 1, "linear_probe": "ridge"}
        resolved = study(tmp_path, dataset | {"transfer_root": root}, base)
        prepare_files(resolved)  # as before a run: caches of both
        row = row_of(resolved)
        form = row.get("store_as") or "pixels" if name == "imagefolder" else None
        assert row.get("transfer_store_as") == form
        result = attempt(row, place=resolved.sections.dataset.place).result
        assert result["transfer_linear_top1"] > 33
        assert row["images_digest"].partition("+")[2]
    (Path(own["root"]) / "train" / "c0" / "1.png").unlink()
    with pytest.raises(RequestError, match="expected the images of imagefolder that were planned"):
        transferred_splits(row, resolved.sections.dataset.place)
    (tmp_path / "another" / "train" / "c0" / "0.png").write_text("no picture")
    resolved = study(tmp_path, own | {"transfer_root": str(tmp_path / "another")},
                  {"transfer_dataset": "imagefolder"})  # fmt: skip
    with pytest.raises(RequestError, match=r"c0/0\.png: no image, or cut within"):
        prepare_files(resolved)


@pytest.mark.parametrize(
    ("given", "base", "form"),
    [
        ({}, {"crop_scale": 0.25}, ("pixels", 32)),  # 16 / sqrt(0.25), of the smallest crop
        ({}, {"crop_scale": 1.0}, ("pixels", 19)),  # 256 / 224 of 16, for the scores
        ({}, {"crop_scale": 0.25, "view_size": 24}, ("pixels", 48)),
        ({}, {"epochs": 0}, ("pixels", 19)),
        ({"store_size": 20}, {}, ("pixels", 20)),
        # as large as the largest crop needs
        ({"store_as": "jpeg"}, {"crop_scale": 0.25}, ("jpeg", 19)),
        ({"store_as": "jpeg"}, {"crop_scale": 0.1, "crop_max": 0.25}, ("jpeg", 32)),
        ({"store_as": "jpeg"}, {"epochs": 0}, ("jpeg", 19)),
    ],
)
def test_pictures_are_stored_as_large_as_crops_and_scores_need(given, base, form, tmp_path):
    row = row_of(study(tmp_path, pictures(tmp_path) | given, base))
    assert (row["store_as"], row["store_size"]) == form


def test_what_has_no_pictures_has_no_form(tmp_path):
    with pytest.raises(StudyError, match=r"dataset\.store_as: expected on imagefolder"):
        study(tmp_path, {"name": "digits", "store_as": "jpeg"}, {})


def test_a_plan_that_does_not_say_its_form_was_of_pixels(tmp_path):
    before = pa.table({"objective": ["dcl"], "store_size": [32]})
    folder: Any = SimpleNamespace(plan=lambda _: before)
    pixels = {**pictures(tmp_path), "store_size": 32}
    assert not _changed_images(folder, study(tmp_path, pixels, {}), _OF_PICTURES, _BEFORE)
    jpegs = study(tmp_path, pixels | {"store_as": "jpeg"}, {})
    [line] = _changed_images(folder, jpegs, _OF_PICTURES, _BEFORE)
    advice = "--set dataset.store_as=pixels keeps it"
    assert line == f"images in imagefolder.store_as: 'pixels' -> 'jpeg'. {advice}"
    digits = study(tmp_path, {"name": "digits"}, {})
    none: Any = SimpleNamespace(plan=lambda _: pa.table({"objective": ["dcl"]}))
    assert not _changed_images(none, digits, _OF_PICTURES, _BEFORE), "it has no pictures"


def test_an_encoder_begins_with_weights_and_its_file_is_part_of_the_trial(tmp_path):
    dataset = five_channels(tmp_path)
    resolved = study(tmp_path, dataset, {"epochs": 1})
    row, place = row_of(resolved), resolved.sections.dataset.place
    trained = attempt(row, place=place).result["encoder"]
    torch.save(trained, tmp_path / "a.pt")
    base = row | {"init": with_digest(tmp_path / "a.pt"), "epochs": 0, "reference": "untrained"}
    started = attempt(base, place=place).result["encoder"]
    assert all(torch.equal(started[name], tensor) for name, tensor in trained.items())
    from_scratch = attempt(row | {"epochs": 0}, place=place).result["encoder"]
    assert not torch.equal(*(next(iter(x.values())) for x in (started, from_scratch)))


@pytest.mark.slow
def test_a_study_names_what_is_wrong_with_an_encoder_where_it_stands(tmp_path):
    dataset = five_channels(tmp_path)
    for base, says in (
        ({"encoder": "timm/vit_tny_patch16_224"}, r"base\.encoder: unknown model 'vit_tny"),
        ({"encoder": "timm/vit_tiny_patch16_224"}, r"base\.encoder: .*12 x 12 pixels and 5 chan"),
        ({"init": "none.pt"}, r"base\.init: expected a file of weights, given none\.pt: No such"),
    ):
        with pytest.raises(StudyError, match=says) as caught:
            study(tmp_path, dataset, base)
        assert len(str(caught.value).splitlines()) == 1
    torch.save({"layers.0.weight": torch.zeros(4, 3, 3, 3)}, tmp_path / "a.pt")
    with pytest.raises(StudyError, match=r"base\.init: .*expected weights of shape \(4, 5, 3, 3\)"):
        study(tmp_path, dataset, {"init": str(tmp_path / "a.pt")})


@pytest.mark.slow
@pytest.mark.parametrize("method", ["grid", "tpe"])
def test_encoders_of_others_are_swept_beside_the_catalogs(tmp_path, method):
    names = ["conv4", "timm/resnet10t", "tests.model.own_encoders:pooled"]
    many, base = {"trials_per_objective": 3}, {"pooling": "max", "epochs": 1}
    search = {"method": method, **(many if method == "tpe" else {})}
    space = {"encoder": {"choices": names}, "view_size": {"choices": [12, 16]}}
    resolved = study(tmp_path, five_channels(tmp_path), base, space=space, search=search)
    planned, place = plan_trials(resolved), resolved.sections.dataset.place
    for name, width in zip(names, (16, 512, 6), strict=True):
        row = plan_row(resolved, planned[0], {"encoder": name, "view_size": 16})
        assert row["proj_hidden"] == width
        if method == "tpe":  # its row has a place in the tables
            assert {*row} <= {*plan_row(resolved, planned[0])}
        assert row.get("pooling") == ("max" if name.startswith("timm/") else None)
        if method == "grid":
            assert attempt(row, place=place).result["status"] == "finished"
    if method == "tpe":
        assert plan_row(resolved, planned[0])["proj_hidden"] == 0  # not known yet
    space = {"encoder": {"choices": [*names, "timm/resnt10t", "timm/test_vit"]}}
    with pytest.raises(StudyError) as caught:
        study(tmp_path, five_channels(tmp_path), base, space=space)
    lines = str(caught.value).splitlines()
    assert [("space.encoder: " in line) for line in lines] == [True, True]
    assert "unknown model 'resnt10t' of timm. Did you mean 'resnet10t'" in lines[0]
    assert "timm/test_vit: does not take images of 12 x 12 pixels" in lines[1]


@pytest.mark.slow
def test_a_vit_on_five_channels_is_planned_trained_and_gone_on_with(tmp_path):
    base = {"encoder": "timm/vit_tiny_patch16_224", "view_size": 32, "epochs": 2}
    resolved = study(tmp_path, five_channels(tmp_path), base)
    row, place = row_of(resolved), resolved.sections.dataset.place
    assert row["proj_hidden"] == 192
    assert_same(chain(row, kills=[1], place=place)[-1], attempt(row, place=place))
