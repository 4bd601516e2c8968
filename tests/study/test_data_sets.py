"""What a study may say of its data set, and the sizes that its plan then has."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from PIL import Image

from clsweep.cli.plan import plan_data
from clsweep.data import image_files, store_form
from clsweep.data.datasets import transferred_splits
from clsweep.display.numbers import byte_size
from clsweep.study.design import placed_baselines, plan_row, plan_trials
from clsweep.study.document import shipped_studies
from clsweep.study.extend import extension_errors
from tests.study.conftest import BASE, FINAL, refusals

TREE = {
    "seeds": [0],
    "base": BASE | {"batch_size": 8, "knn_k": 5},
    "space": {},
    "objectives": {"dcl": {"framework": "simclr", "loss": "dcl", "views": "all_pairs"}},
}
SIZES = ("image_size", "num_train", "num_classes")


@pytest.fixture
def load(load_tree):
    return lambda dataset, *more: load_tree(f"dataset={{{dataset}}}", *more, **TREE)


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
        for row, _ in placed_baselines(study, plan_trials(study))
    )


def test_the_plan_has_the_sizes_of_an_image_folder_and_opens_no_image(load, root, monkeypatch):
    monkeypatch.setattr(Image, "open", lambda *_: pytest.fail("opened"))
    folder = f"name: imagefolder, root: {root}, val_fraction: 0.25"
    study = load(folder)
    assert sizes(study) == (224, 24, 2)
    assert study.dataset.num_test == 6
    assert study.plan()["small_view_size"].tolist() == [96], "3/7 of 224"
    assert sizes(load(folder, "dataset.image_size=64")) == (64, 24, 2)


def test_a_plan_says_where_chance_holds_images_out(load, root):
    dataset = f"name: imagefolder, root: {root}, val_fraction: 0.25"
    assert not [line for line in plan_data(load(dataset)) if "chance" in line]
    shutil.rmtree(root / "val")
    lines = plan_data(load(dataset))
    assert lines[0].endswith(": 15 images to train, 5 to score (validation split)")
    parts = "Parts by chance, as no part is held out: 20 images to train on, 4 to test"
    assert parts in lines


def test_classes_without_a_test_image_are_noted(load, root):
    dataset = f"name: imagefolder, root: {root}, val_fraction: 0.25"
    assert not [note for note in load(dataset).notes if "no test image" in note]
    shutil.rmtree(root / "val" / "b")
    assert f"no test image in {root} is of 1 of 2 classes: b" in load(dataset).notes
    shutil.rmtree(root / "val")  # a fifth takes its place, with images of each
    assert not [note for note in load(dataset).notes if "no test image" in note]


def test_spellings_of_one_class_are_noted(load, root):
    """Names of a table that was typed by hand are classes of their own."""
    dataset = f"name: imagefolder, root: {root}, val_fraction: 0.25"
    assert not [note for note in load(dataset).notes if "may be spellings" in note]
    for name in ("black bear", "Black_bear", "01", "1", "10", "B"):
        (root / "train" / name).mkdir()
        for i in range(4):
            (root / "train" / name / f"{i}.png").touch()
    [note] = [note for note in load(dataset).notes if "may be spellings" in note]
    pairs = "01 and 1, B and b, Black_bear and black bear"
    assert note == f"classes in {root} that may be spellings of one: {pairs}"


@pytest.mark.parametrize(
    ("times", "says"), [(16, ""), (1, "reach 4,095 at most: they use 16 of the 256 steps")]
)
def test_pictures_of_12_bits_in_16_are_noted(times, says, load, root):
    """They are nearly black, in 16 steps of grey."""
    levels = np.arange(4096, dtype=np.uint16).reshape(64, 64) * times
    for path in [*root.rglob("*.JPEG")]:
        path.unlink()
        Image.fromarray(levels).save(path.with_suffix(".png"))
    lines = plan_data(load(f"name: imagefolder, root: {root}, val_fraction: 0.25"))
    assert [says in line for line in lines if "16 bits" in line] == [True] * bool(says)


def test_a_plan_goes_without_the_folder_where_its_sizes_are_stated(load, tmp_path):
    dataset = f"name: imagefolder, root: {tmp_path}/later, val_fraction: 0.25"
    study = load(f"{dataset}, num_train: 500, num_classes: 20")
    assert sizes(study) == (224, 500, 20)
    assert study.dataset.split_sizes(0.25) == (375, 125)
    assert study.dataset.split_sizes(None) == (500, None), "nothing is known of the other part"
    assert any("is not there: planned with the sizes stated" in note for note in study.notes)
    [line] = refusals(load, f"{dataset}, num_train: 500")
    assert "given no such folder" in line


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ("num_train: 100", "expected at most 24, the images of imagefolder, given 100"),
        ("num_classes: 3", "expected dataset.num_classes to be 2, as in its files, given 3"),
        ("num_test: 7", "expected dataset.num_test to be 6, as in its files, given 7"),
    ],
)
def test_a_folder_has_the_sizes_that_a_study_states(load, root, stated, says):
    dataset = f"name: imagefolder, root: {root}, val_fraction: 0.25"
    [line] = refusals(load, f"{dataset}, {stated}")
    assert says in line
    assert sizes(load(f"{dataset}, num_classes: 2")) == (224, 24, 2)


def test_nothing_is_reckoned_with_images_that_nobody_has_counted(load, tmp_path):
    absent = f"name: imagefolder, root: {tmp_path}/later, num_train: 500, num_classes: 20"
    lines = plan_data(load(absent, FINAL))
    unknown = "500 images to train; to score (test split): unknown until the files are here"
    cache = lines.pop(1)
    assert lines == [f"Data: imagefolder: {unknown}", "Metric: knn_top1 in %, max is best"]
    assert cache.endswith("reckoned with ImageNet's JPEGs, as the files are not here")
    assert load(absent, FINAL, "base.tsne_points=400"), "they may be there"
    first, _, second, _ = plan_data(load(f"{absent}, num_test: 2000", FINAL))
    assert first == "Data: imagefolder: 500 images to train, 2,000 to score (test split)"
    assert second.endswith("one scored image is 0.05 points")
    [line] = refusals(load, f"{absent}, num_test: 19", FINAL)
    assert "at least 20 images, one per class" in line
    assert "given 19" in line


IMAGENETS = {
    "imagenet100": (126_689, 5_000, 100),  # of CMC, whose list the papers take
    "imagenet1k": (1_281_167, 50_000, 1_000),
}


@pytest.mark.parametrize("path", sorted(set(shipped_studies().values())), ids=lambda p: p.stem)
def test_the_papers_studies_state_the_true_counts(path):
    for place in mappings(yaml.safe_load(path.read_text())):
        if (root := str(place.get("root"))).startswith("data/imagenet"):
            stated = tuple(place[key] for key in ("num_train", "num_test", "num_classes"))
            assert stated == IMAGENETS[Path(root).name]


def mappings(value):
    """All mappings of a tree."""
    if isinstance(value, dict):
        yield value
        value = [*value.values()]
    for each in value if isinstance(value, list) else ():
        yield from mappings(each)


def test_a_missing_folder_is_refused_at_its_place(load, tmp_path):
    [line] = refusals(load, "name: imagefolder", f"dataset.root={tmp_path / 'none'}")
    assert line.startswith("--set dataset.root=/")
    assert f": dataset.root: {tmp_path / 'none'}: expected train" in line
    assert line.endswith("given no such folder")


def test_folders_are_absolute_but_for_a_home(load):
    place = load("name: stl10, root: here, cache: there").sections.dataset.place
    assert [place.root, place.cache] == [str(Path(p).absolute()) for p in ("here", "there")]
    place = load("name: cifar10, root: ~/data").sections.dataset.place
    assert (place.root, place.cache) == ("~/data", "~/.cache/clsweep")


def test_pictures_of_one_folder_are_kept_in_one_form(load_tree, root, monkeypatch):
    """Pixels of the smallest crops alone take more than the limit."""
    for path in root.rglob("*.JPEG"):
        Image.new("RGB", (40, 40)).save(path)
    largest = {"base": {"crop_scale": 1.0}}
    levels = [
        {"name": "imagefolder", "label": "small", "base": {"crop_scale": 0.25}},
        {"name": "imagefolder", "label": "large", **largest},
        {"name": "imagefolder", "label": "stated", "store_as": "pixels", **largest},
        {"name": "imagefolder", "label": "other", "root": f"{root}/", **largest},
    ]
    tree = TREE | {"dataset": {"root": str(root), "image_size": 16}}

    def forms(*levels):
        """Of each level the form and the shorter side."""
        study = load_tree(**tree, factors={"dataset": [*levels]})
        return [(cell.dataset.store_as, cell.dataset.store_size) for cell in study.cells]

    num_bytes = 30 * 3 * 32**2
    monkeypatch.setattr(store_form, "MOST_PIXEL_BYTES", num_bytes - 1)
    assert forms(*levels) == [("jpeg", 19), ("jpeg", 19), ("pixels", 19), ("jpeg", 19)]
    assert forms(levels[1], levels[3]) == [("pixels", 19)] * 2
    monkeypatch.setattr(store_form, "MOST_PIXEL_BYTES", num_bytes)
    assert forms(*levels) == [("pixels", size) for size in (32, 19, 19, 19)]


@pytest.mark.parametrize("stated", ["dataset", "factors.dataset.a"])
def test_pictures_that_lay_in_another_form_say_how_to_keep_it(load_tree, root, stated):
    tree = TREE | {"dataset": {"root": str(root), "image_size": 16}}
    if stated == "dataset":
        tree["dataset"]["name"] = "imagefolder"
    else:
        levels = [{"name": "imagefolder", "label": label} for label in ("a", "b")]
        tree["factors"] = {"dataset": levels}
    now = load_tree(**tree)
    before = load_tree(f"{stated}.store_as=jpeg", **tree)
    rows = [plan_row(before, trial) for trial in plan_trials(before)]
    assert {row["store_as"] for row in rows} == ({"jpeg"} if len(rows) == 1 else {"jpeg", "pixels"})
    [line] = extension_errors(before.document.tree, rows, now, plan_trials(now))
    setting = f"{stated}.store_as=jpeg"
    assert line.endswith(f"; --set {setting} keeps it: the recorded plan has the former")
    again = load_tree(setting, **tree)
    assert extension_errors(before.document.tree, rows, again, plan_trials(again)) == []


def test_a_plan_says_what_copies_and_caches_take_and_where_the_disk_is_too_small(
    load_tree, root, monkeypatch
):
    """Two crops of one bucket are two caches of one copy."""
    for path in root.rglob("*.JPEG"):
        Image.new("RGB", (40, 40)).save(path)
    num_files = 30
    copied = sum(path.stat().st_size for path in root.rglob("*.JPEG"))
    cached = num_files * 3 * (32**2 + 19**2)
    levels = [
        {"name": "imagefolder", "label": f"{scale}", "base": {"crop_scale": scale}}
        for scale in (0.25, 1.0)
    ]

    def notes(place, free):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(store_form.shutil, "disk_usage", lambda _: usage)
        dataset = {"root": place, "image_size": 16, "cache": "/nvme"}
        lines = plan_data(load_tree(**TREE, dataset=dataset, factors={"dataset": levels}))
        return [line for line in lines if "/nvme" in line]

    advice = "there already, name another folder with --set dataset.cache=FOLDER"
    each = f"note: copies and cache take {byte_size(copied + cached, 3)} in /nvme"
    each += " of each machine that trains"
    assert notes(f"file://{root}", copied + cached) == [each]
    free = f"this machine has {byte_size(copied + cached - 1, 3)} free there. Unless"
    assert notes(f"file://{root}", copied + cached - 1) == [f"{each}; {free} they are {advice}"]
    assert notes(str(root), cached) == []
    [line] = notes(str(root), cached - 1)
    assert line.startswith(f"note: the cache takes {byte_size(cached, 3)} in /nvme; this")
    assert line.endswith(f"Unless it is {advice}")


def test_a_plan_says_what_scores_are_transferred_to(load_tree, root):
    (root / "train" / "A").mkdir()
    for name in ("A/0.JPEG", "A/1.JPEG", "A/2.JPEG", "A/notes.txt"):
        (root / "train" / name).touch()
    data = {"name": "digits", "transfer_root": str(root), "val_fraction": 0.2}
    base = {**TREE["base"], "transfer_dataset": "imagefolder"}
    metric = {"name": "transfer_linear_top1"}
    study = load_tree(**{**TREE, "dataset": data, "base": base, "metric": metric})
    assert plan_data(study)[0] == (
        "Data: digits: 1,150 images to train; those of transfer_dataset are scored"
    )
    assert [*study.notes[:4]] == [
        f"not read in {root}: train/*.txt",
        f"no test image in {root} is of 1 of 3 classes: A",
        f"classes in {root} that may be spellings of one: A and a",
        f"scores are transferred to {root}: 22 images to fit on, 5 to score, 3 classes: A, a, b",
    ]


def test_a_plan_reads_some_pictures_once_and_a_trial_none_for_that(load_tree, root, monkeypatch):
    """The sample of a transfer data set, too."""
    for number, path in enumerate(sorted(root.rglob("*.JPEG"))):
        Image.linear_gradient("L").resize((40, 40 + number)).save(path)
    reads, read_bytes = [], image_files.read_bytes
    monkeypatch.setattr(
        image_files, "read_bytes", lambda file: reads.append(file) or read_bytes(file)
    )
    levels = [{"name": "imagefolder", "label": label} for label in ("a", "b")]
    base = {**TREE["base"], "transfer_dataset": "imagefolder"}
    of_both = {"root": str(root), "transfer_root": str(root), "image_size": 16,
               "cache": str(root.parent / "cache")}  # fmt: skip
    tree = {**TREE, "dataset": of_both, "base": base, "factors": {"dataset": levels}}
    study = load_tree(**tree)
    train = [path for path in root.rglob("*.JPEG") if "train" in path.parts]
    assert sorted(reads) == sorted(train)
    cell = study.cells[0]
    row = plan_row(study, plan_trials(study)[0])
    assert len(transferred_splits(row, cell.sections.dataset.place).test) == 6
    assert len(reads) == len(train)
