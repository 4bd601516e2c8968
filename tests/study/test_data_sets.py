"""What a study may say of its data set, and the sizes that its plan then has."""

from pathlib import Path

import pytest
from PIL import Image

from clsweep.errors import StudyError
from clsweep.study.design import placed_references, plan_row, plan_trials
from clsweep.study.resolve import load_study

STUDY = """\
name: data
dataset: {%s}
seeds: [0]
base: {encoder: conv4, epochs: 2, batch_size: 8, knn_k: 5}
objectives:
  dcl: {framework: simclr, loss: dcl, views: all_pairs}
search: {method: grid}
"""
SIZES = ("image_size", "num_train", "num_classes")


@pytest.fixture
def load(tmp_path):
    def load_text(dataset, *settings):
        path = tmp_path / "study.yaml"
        path.write_text(STUDY % dataset)
        return load_study(path, settings=settings)

    return load_text


@pytest.fixture
def root(tmp_path):
    """24 images to train on in 2 classes; names are all that a plan reads."""
    for part, count in (("train", 12), ("val", 3)):
        for name in ("a", "b"):
            folder = tmp_path / "images" / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                (folder / f"{i}.JPEG").touch()
    return tmp_path / "images"


def refusal(load, *arguments):
    with pytest.raises(StudyError) as caught:
        load(*arguments)
    [line] = str(caught.value).splitlines()
    return line


def sizes(study):
    [row] = {tuple(plan_row(study, trial)[name] for name in SIZES) for trial in plan_trials(study)}
    return row


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ("name: digits", (8, 1437, 10)),
        ("name: cifar100", (32, 50_000, 100)),
        ("name: stl10", (96, 105_000, 10)),
        ("name: synthetic", (32, 10_000, 10)),
        ("name: synthetic, image_size: 64, num_train: 500, num_classes: 3", (64, 500, 3)),
    ],
)
def test_the_plan_has_the_sizes_of_its_data_set(load, dataset, expected):
    study = load(dataset)
    assert sizes(study) == expected
    assert all(
        tuple(row[name] for name in SIZES) == expected
        for row, _ in placed_references(study, plan_trials(study))
    )


def test_the_plan_has_the_sizes_of_an_image_folder(load, root):
    study = load(f"name: imagefolder, root: {root}, val_fraction: 0.25")
    assert sizes(study) == (224, 24, 2)
    assert study.dataset.num_test == 6
    assert study.plan()["small_view_size"].tolist() == [96], "3/7 of 224"
    assert sizes(
        load(f"name: imagefolder, root: {root}, val_fraction: 0.25", "dataset.image_size=64")
    ) == (64, 24, 2)


def test_a_plan_goes_without_the_folder_where_its_sizes_are_stated(load, tmp_path):
    dataset = f"name: imagefolder, root: {tmp_path}/later, val_fraction: 0.25"
    study = load(f"{dataset}, num_train: 500, num_classes: 20")
    assert sizes(study) == (224, 500, 20)
    assert study.dataset.num_test > 0, "some are taken to be there"
    assert any("is not there: planned with the sizes stated" in note for note in study.notes)
    assert "given no such folder" in refusal(load, f"{dataset}, num_train: 500")


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ("num_train: 100", "expected at most 24, the images of imagefolder, given 100"),
        ("num_classes: 3", "expected dataset.num_classes to be 2, as in its files, given 3"),
    ],
)
def test_a_folder_has_the_sizes_that_a_study_states(load, root, stated, says):
    dataset = f"name: imagefolder, root: {root}, val_fraction: 0.25"
    assert says in refusal(load, f"{dataset}, {stated}")
    assert sizes(load(f"{dataset}, num_classes: 2")) == (224, 24, 2)


def test_a_plan_opens_no_image(load, root, monkeypatch):
    monkeypatch.setattr(Image, "open", lambda *_: pytest.fail("opened"))
    load(f"name: imagefolder, root: {root}, val_fraction: 0.25")


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        ("name: digits, image_size: 32",
         "dataset.image_size: expected on imagefolder, imagefiles, arrays, huggingface, "
         "webdataset, synthetic only, given on digits; null removes a key"),
        ("name: digits, num_train: 1500", "dataset.num_train: expected at most 1437, the images "
                                          "of digits, given 1500"),
        ("name: digits, num_train: 500, fraction: 0.5", "expected num_train or fraction, given "
                                                        "both"),
        ("name: digits, fraction: 1.5", "dataset.fraction: expected a value < 1, given 1.5"),
        ("name: digits, channels: 3", "dataset.channels: expected on imagefolder, imagefiles, "
                                      "arrays, huggingface, webdataset only, given on digits"),
        ("name: digits, range: [1, 0]", "dataset.range: expected [low, high], given [1, 0]"),
        ("name: digits, transfer_root: x", "dataset.transfer_root: has no effect without "
                                           "base.transfer_dataset"),
        ("name: cifar10, num_classes: 5", "dataset.num_classes: expected on imagefolder, "
                                          "imagefiles, arrays, huggingface, webdataset, "
                                          "synthetic only, given on cifar10"),
        ("name: synthetic, image_size: 4", "dataset.image_size: expected a value >= 8, given 4"),
        ("name: synthetic, image_size: 32.5", "dataset.image_size: expected an integer, given "
                                              "32.5"),
        ("name: synthetic, num_classes: 400, num_train: 1000", "expected at least 400 images, "
                                                               "one per class"),
        ("name: digits, cache: 3", "dataset.cache: expected a text, given 3"),
        ("name: digits, imagesize: 3", "dataset.imagesize: unknown key. Did you mean "
                                       "'image_size'?"),
    ],
)  # fmt: skip
def test_a_key_that_a_data_set_does_not_take_is_refused(load, dataset, says):
    line = refusal(load, dataset)
    assert ":2: " in line
    assert says in line


def test_a_missing_folder_is_refused_at_its_place(load, tmp_path):
    line = refusal(load, "name: imagefolder", f"dataset.root={tmp_path / 'none'}")
    assert line.startswith("--set dataset.root=/")
    assert f": dataset.root: {tmp_path / 'none'}: expected train" in line
    assert line.endswith("given no such folder")


def test_unlabeled_images_train_but_do_not_vote(load):
    assert load("name: stl10", "base.knn_k=4500", "base.batch_size=50000")
    line = refusal(load, "name: stl10", "base.knn_k=4501")
    assert "expected at most 4500, the images with a class that stl10 trains on, given 4501" in line
    line = refusal(load, "name: stl10", "base.batch_size=104501")
    assert "expected at most 104500, the images that stl10 trains on, given 104501" in line


def test_unlabeled_images_cannot_be_classified(load):
    supervised = "objectives.dcl={framework: supervised, loss: cross_entropy}"
    line = refusal(load, "name: stl10", supervised)
    assert (
        "'supervised' trains on the classes of the images, and 100,000 of stl10 have none" in line
    )
    assert load("name: synthetic", supervised)


def test_folders_are_absolute_but_for_a_home(load):
    place = load("name: digits, root: here, cache: there").sections.dataset.place
    assert (place.root, place.cache) == (
        str(Path("here").absolute()),
        str(Path("there").absolute()),
    )
    place = load("name: digits, root: ~/data").sections.dataset.place
    assert (place.root, place.cache) == ("~/data", "~/.cache/clsweep")
    assert place.cache_folder == Path.home() / ".cache" / "clsweep"
