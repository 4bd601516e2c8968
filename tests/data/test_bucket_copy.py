"""Images in a bucket: a plan from their names, a copy on each machine. Real requests and kills."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.fs as pafs
import pytest

from clsweep import outages
from clsweep.catalog import DATASET
from clsweep.data import bucket_copy, buckets, preparation
from clsweep.data.bucket_copy import local_place
from clsweep.data.buckets import INDEX
from clsweep.data.image_files import SAMPLED_PICTURES
from clsweep.data.locations import AbsentError, DataPlace
from clsweep.data.sources import dataset_layout, sized_dataset
from clsweep.display.numbers import byte_size
from clsweep.errors import RequestError, StudyError
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from tests.data.bucket_files import by_class, files_below, gets, upload, write_images
from tests.data.own import layout_of, write_tar
from tests.planted import study_at
from tests.s3_server import ACCESS_DENIED, SLOW_DOWN

FOLDER = DATASET["imagefolder"]


@pytest.fixture(autouse=True)
def _listed_anew(monkeypatch):
    monkeypatch.setattr(buckets, "RECENT_S", -1.0)


@pytest.fixture
def folder(tmp_path, request) -> Path:
    """So many images of each class as a test asks for."""
    return by_class(tmp_path / "images", getattr(request, "param", 8))


@pytest.fixture
def place(folder, s3, tmp_path) -> DataPlace:
    """Of the images of `folder`, which a bucket has."""
    upload(folder, s3)
    return DataPlace(root=s3, cache=str(tmp_path / "cache"))


# The plan.

SPELLED = ("e\u0301t\u00e9", "\u00e9te\u0301")  # one word in two ways, which differ in both


def names_in(*folders: str, count: int = 12) -> list[str]:
    return [f"{folder}{i}.png" for folder in folders for i in range(count)]


ODD = [
    *("train/a/x/1.png", "train/a/0.png", "train/a.b/0.png", "train/a.b/1.png", "train/a/x.png"),
    *("train/a/@eaDir/1.png", "train/.d/x.png", "train/a/2.png", "train/loose.png", "labels.png"),
    *(f"train/b/{i}.JPG" for i in range(11)), "val/a/.h.png", "val/a/1.png",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("imagefolder", names_in("train/b/", "train/a/", "test/a/", "test/b/")),
        ("imagefolder", names_in("train/b/", "train/a b/", "train/a/", "train/a.b/")),
        ("imagefolder", ODD),
        ("imagefolder", names_in(*(f"train/{c}/" for c in (*SPELLED, "f", "z")), count=6)),
        ("imagefiles", names_in("", "z/", "a/b/", "val/")),
        ("imagefiles", names_in("", "train/b/", "train/", "valid/")),
    ],
)
def test_a_plan_from_names_is_that_of_the_folder(name, names, tmp_path):
    root = write_images(tmp_path / "set", *names)
    local, remote = DataPlace(root=str(root)), DataPlace(root=f"file://{root}")
    a, b = layout_of(name, root), layout_of(name, remote.root)
    assert a.classes == b.classes
    assert a.digest == b.digest
    for part in ("train", "test"):
        assert a.labels[part].tolist() == b.labels[part].tolist()
    here = sized_dataset(name, local)
    row = sized_dataset(name, remote)
    assert replace(row, sample=None) == replace(here, sample=None)
    assert row.sample.are_jpegs is (names is ODD)  # most of these are
    assert row.sample.pictures == here.sample.pictures


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["train/a/0.png", "train/b/0.png", "dev/a/0.png"], "given dev, train"),
        (["train/a/0.png", "train/b/0.png", "val/c/0.png"], "/val: expected classes that train/"),
        (["train/a/0.txt.png", "train/a/1.png"], "expected 2 to 1000 classes, given 1"),
        ([*names_in("train/a/", "train/b/"), "val/0.png"], "/val/: expected images to score"),
        ([*names_in("train/a/", "train/b/"), "train/c/.x.png"], "train/c: expected an image in it"),
    ],
)
def test_names_of_another_layout_are_refused_in_a_line(names, says, tmp_path):
    place = DataPlace(root=f"file://{write_images(tmp_path / 'set', *names)}")
    with pytest.raises(RequestError) as caught:
        sized_dataset("imagefolder", place)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def arrays(root: Path) -> Path:
    root.mkdir(parents=True)
    labels = np.repeat([3, 7, 9], 20)
    np.save(root / "train_images.npy", np.arange(60 * 64, dtype=np.uint8).reshape(60, 8, 8))
    np.save(root / "train_labels.npy", labels)
    return root


def shards(root: Path) -> Path:
    images = write_images(root.parent / "loose", *(f"{i}.png" for i in range(20)))
    files = {f"{i}.png": (images / f"{i}.png").read_bytes() for i in range(20)}
    write_tar(root / "train-0.tar", files | {f"{i}.cls": b"%d" % (i % 2) for i in range(20)})
    return root


def with_table(root: Path) -> Path:
    write_images(root, *(f"{i}.png" for i in range(20)))
    lines = [
        f"{i}.png,{'ant' if i % 2 else 'bee'},{'val' if i < 4 else 'train'}" for i in range(20)
    ]
    (root / "labels.csv").write_text("\n".join(["file,label,split", *lines]))
    return root


@pytest.mark.parametrize(
    ("name", "make"), [("arrays", arrays), ("webdataset", shards), ("imagefolder", with_table)]
)
def test_files_that_must_be_read_are_planned_by_the_index_of_the_first_copy(
    name, make, tmp_path, s3, s3_server
):
    root = make(tmp_path / "set")
    upload(root, s3)
    place = DataPlace(root=s3, cache=str(tmp_path / "cache"))
    with pytest.raises(AbsentError, match=f"{INDEX}.* given none.* State dataset.num_train"):
        sized_dataset(name, place)
    stated = sized_dataset(name, place, num_train=50, num_classes=3, image_size=8)
    assert stated.images_digest is None
    writes = ("PUT", "POST")
    s3_server.refuse = lambda of: ACCESS_DENIED if of["REQUEST_METHOD"] in writes else None
    local_place(DATASET[name], place)
    s3_server.refuse = lambda _: None
    with pytest.raises(AbsentError):
        sized_dataset(name, place)
    here = local_place(DATASET[name], place)
    assert files_below(Path(here.root)) == files_below(root)
    expected = replace(sized_dataset(name, DataPlace(root=str(root))), sample=None)
    assert replace(sized_dataset(name, place), sample=None) == expected
    assert sized_dataset(name, place, num_train=50, num_classes=3, image_size=8) == stated
    assert local_place(DATASET[name], place) == here
    # of other files, or of nobody's making, it does not count
    fs, base = pafs.FileSystem.from_uri(s3)
    infos = fs.get_file_info(pafs.FileSelector(base))
    [index] = (info.path for info in infos if info.base_name.startswith(INDEX))
    with fs.open_input_stream(index) as stream:
        content = json.loads(stream.read())
    for change in (
        *({"stamp": "0"}, {"image_size": "8"}, {"digest": None}, {"classes": ["a"]}, {"counts": 3}),
        *({"counts": {"train": train, "test": []}} for train in ([[0, 10**12]], [[-2, 5]])),
    ):
        with fs.open_output_stream(index) as stream:
            stream.write(json.dumps(content | change).encode())
        with pytest.raises(AbsentError):
            sized_dataset(name, place)
    with fs.open_output_stream(f"{base}/{INDEX}.json") as stream:  # as earlier versions named it
        stream.write(json.dumps(content).encode())
    assert replace(sized_dataset(name, place), sample=None) == expected


def test_data_sets_of_one_folder_have_an_index_each(tmp_path, s3):
    """One object each: arrays in two files, and the numbers of one in two ranges, in one run."""
    (tmp_path / "set").mkdir()
    images, labels = np.arange(40 * 64).reshape(40, 8, 8), np.arange(40)
    for name, num_classes in (("a.npz", 2), ("b.npz", 4)):
        np.savez(tmp_path / "set" / name, images=images, labels=labels % num_classes)
    upload(tmp_path / "set", s3)
    places = [
        DataPlace(root=s3.replace("/out?", f"/out/{name}?"), cache=str(tmp_path / "cache"),
                  value_range=limits, run="one")
        for name, limits in (("a.npz", "0, 2560"), ("b.npz", "0, 2560"), ("a.npz", "0, 9999"))
    ]  # fmt: skip
    for place, name in zip(places, ("a.npz", "b.npz", "a.npz"), strict=True):
        here = replace(place, root=str(tmp_path / "set" / name))
        at = local_place(DATASET["arrays"], place), here
        assert len({dataset_layout(DATASET["arrays"], each).digest for each in at}) == 1
    rows = [sized_dataset("arrays", place) for place in places]
    assert [row.num_classes for row in rows] == [2, 4, 2]
    assert rows[0].images_digest != rows[2].images_digest


@pytest.mark.parametrize("folder", [40], indirect=True)
def test_a_plan_says_what_is_copied_and_reads_some_pictures(place, s3_server, tmp_path):
    data = {"name": "imagefolder", "root": place.root, "cache": place.cache, "image_size": 16}
    before = len(s3_server.requests)
    base = {"encoder": "conv4", "batch_size": 8, "knn_k": 5}
    [note] = load_study(study_at(tmp_path / "study.yaml", dataset=data, base=base)).notes
    assert re.match(r"each machine that trains copies [\d.]+ KiB in 84 files from s3:", note)
    assert sorted(gets(s3_server, before).values()) == [1] * SAMPLED_PICTURES


# The copy.


def test_a_copy_is_made_once_and_compared_once_a_run(place, folder, s3_server, capsys):
    before = len(s3_server.requests)
    here = local_place(FOLDER, replace(place, run="first"))
    assert capsys.readouterr().err.startswith("Copying ")
    assert files_below(Path(here.root)) == files_below(folder)
    assert set(gets(s3_server, before).values()) == {1}
    for run, num_requests in (("first", 0), ("second", 1), ("second", 0), ("", 1), ("", 1)):
        before = len(s3_server.requests)
        assert Path(local_place(FOLDER, replace(place, run=run)).root) == Path(here.root)
        assert len(s3_server.requests) - before == num_requests, run


def test_what_changes_in_the_bucket_changes_here_and_nothing_else(place, folder, s3, s3_server):
    root = Path(local_place(FOLDER, place).root)
    times = {path: os.stat(path).st_mtime_ns for path in root.rglob("*.png")}
    changed, lost = folder / "train" / "ants" / "0.png", folder / "val" / "bees" / "1.png"
    changed.write_bytes(b"another content of another length")
    (folder / "train" / "ants" / "new.png").write_bytes(b"new")
    lost.unlink()
    fs, base = pafs.FileSystem.from_uri(s3)
    fs.delete_file(f"{base}/val/bees/1.png")
    upload(folder / "train" / "ants" / "new.png", s3.replace("/out?", "/out/train/ants/new.png?"))
    upload(changed, s3.replace("/out?", "/out/train/ants/0.png?"))
    before = len(s3_server.requests)
    assert Path(local_place(FOLDER, place).root) == root
    assert files_below(root) == files_below(folder)
    assert len(gets(s3_server, before)) == 2
    same = {path: time for path, time in times.items() if path.exists() and path.name != "0.png"}
    assert {path: os.stat(path).st_mtime_ns for path in same} == same


def test_an_object_of_the_same_length_and_another_time_is_copied_again(folder, tmp_path):
    place = DataPlace(root=f"file://{folder}", cache=str(tmp_path / "cache"))
    root = Path(local_place(FOLDER, place).root)
    changed = folder / "train" / "ants" / "0.png"
    content = changed.read_bytes()[::-1]
    changed.write_bytes(content)
    os.utime(changed, (1, 1))
    local_place(FOLDER, place)
    assert (root / "train" / "ants" / "0.png").read_bytes() == content


def test_an_object_that_changes_while_it_is_copied_is_copied_as_it_is_then(place, s3, s3_server):
    fs, base = pafs.FileSystem.from_uri(s3)
    changing, content = threading.Lock(), b"longer " * 1000

    def change(environ):
        is_first = environ["REQUEST_METHOD"] == "GET" and "ants/3.png" in environ["PATH_INFO"]
        if is_first and changing.acquire(blocking=False):
            with fs.open_output_stream(f"{base}/train/ants/4.png") as stream:
                stream.write(content)

    s3_server.refuse = change
    root = Path(local_place(FOLDER, place).root)
    assert (root / "train" / "ants" / "4.png").read_bytes() == content


SCRIPT = """
import sys
from clsweep.catalog import DATASET
from clsweep.data.bucket_copy import local_place
from clsweep.data.locations import DataPlace
place = DataPlace(root=sys.argv[1], cache=sys.argv[2], run="x")
print(local_place(DATASET["imagefolder"], place).root)
"""


def start(place: DataPlace) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", SCRIPT, place.root, place.cache]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("folder", [40], indirect=True)
def test_a_killed_copy_goes_on_with_what_is_there(place, folder, s3_server):
    enough, killed, num = threading.Event(), threading.Event(), iter(range(10**6))

    def hold(environ):
        is_read = environ["REQUEST_METHOD"] == "GET" and ".png" in environ["PATH_INFO"]
        if is_read and next(num) >= 40:
            enough.set()
            killed.wait(60)

    s3_server.refuse = hold
    process = start(place)
    assert enough.wait(60)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    killed.set()
    s3_server.refuse = lambda _: None
    [root] = (path for path in (Path(place.cache) / "copies").iterdir() if path.suffix == "")
    there = files_below(root)
    assert 0 < len(there) <= 40
    whole = files_below(folder)
    assert there.items() < whole.items()
    before = len(s3_server.requests)
    local_place(FOLDER, place)
    assert files_below(root) == whole
    assert len(gets(s3_server, before)) == len(whole) - len(there)
    assert sorted(path.suffix for path in root.parent.iterdir()) == ["", ".lock", ".run"]


@pytest.mark.parametrize("folder", [40], indirect=True)
def test_trials_of_a_machine_make_one_copy(place, folder, s3_server):
    before = len(s3_server.requests)
    processes = [start(place) for _ in range(3)]
    outputs = [process.communicate(timeout=120) for process in processes]
    roots = {root.strip() for root, _ in outputs}
    assert len(roots) == 1, outputs
    assert files_below(Path(roots.pop())) == files_below(folder)
    assert set(gets(s3_server, before).values()) == {1}


def refusal(place: DataPlace) -> str:
    with pytest.raises(RequestError) as caught:
        local_place(FOLDER, place)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_disk_without_room_is_refused_before_anything_is_copied(place, monkeypatch, s3_server):
    before, usage = len(s3_server.requests), type("Usage", (), {"free": 1000})
    monkeypatch.setattr(bucket_copy.shutil, "disk_usage", lambda _: usage)
    assert "KiB free for a copy of s3://" in (line := refusal(place))
    assert line.endswith("given: 1,000 B. Name another folder with --set dataset.cache=FOLDER")
    assert not gets(s3_server, before)


def test_a_folder_that_cannot_be_written_is_named(place, tmp_path):
    (tmp_path / "cache").write_text("a file")
    assert "expected a folder that can be written for a copy of s3://" in refusal(place)


@pytest.mark.parametrize("verb", ["list", "read"])
def test_refused_access_is_said_at_once(verb, place, s3_server):
    def refuse(environ):
        is_list = "list-type" in environ["QUERY_STRING"]
        return ACCESS_DENIED if is_list == (verb == "list") else None

    s3_server.refuse = refuse
    line = refusal(place)
    assert "given: access is denied; expected credentials" in line
    assert "State" not in line
    if verb == "list":
        with pytest.raises(AbsentError, match=r"access is denied.* State dataset.num_train"):
            sized_dataset("imagefolder", place)


def test_places_that_are_not_there_are_said_in_a_line(place, s3, s3_server, monkeypatch):
    monkeypatch.setattr(outages, "_PATIENCE_S", 0.0)
    for root, given in (
        (s3_server.uri("nobodys/images"), "there is no such bucket"),
        (s3.replace("/out?", "/none?"), "no such place"),
        (s3.replace(s3_server.address, "127.0.0.1:9"), "the store cannot be reached"),
        ("foo://bucket/images", "Unrecognized filesystem"),
    ):
        assert f"given: {given}" in refusal(replace(place, root=root))


def test_a_short_outage_is_waited_for(place, folder, s3_server):
    num = iter(range(10**6))
    s3_server.refuse = lambda _: SLOW_DOWN if 5 < next(num) < 40 else None
    root = Path(local_place(FOLDER, place).root)
    assert files_below(root) == files_below(folder)


@pytest.mark.slow
def test_a_plan_waits_for_a_short_outage_and_is_not_made_in_a_long_one(
    place, s3_server, monkeypatch
):
    """Without the digest of the files, a plan would be another one when the store is back."""
    stated = {"num_train": 16, "num_classes": 2}
    expected = sized_dataset("imagefolder", place, **stated)
    num = iter(range(10**6))
    s3_server.refuse = lambda _: SLOW_DOWN if next(num) < 12 else None
    assert sized_dataset("imagefolder", place, **stated).images_digest == expected.images_digest
    assert next(num) > 12
    monkeypatch.setattr(outages, "_PATIENCE_S", 0.0)
    s3_server.refuse = lambda _: SLOW_DOWN
    with pytest.raises(RequestError, match=r"the store answers SLOW_DOWN.* Try again") as caught:
        sized_dataset("imagefolder", place, **stated)
    assert not isinstance(caught.value, AbsentError)
    monkeypatch.setattr(buckets, "RECENT_S", 60.0)
    before = len(s3_server.requests)
    with pytest.raises(RequestError, match="SLOW_DOWN"):  # as the next cell of the study hears
        sized_dataset("imagefolder", place, **stated)
    assert len(s3_server.requests) == before


@pytest.mark.slow
def test_pictures_by_which_a_plan_reckons_are_waited_for(place, s3_server, monkeypatch):
    """Without them it might choose another form of the pictures than the plan of the next run."""
    s3_server.refuse = lambda of: SLOW_DOWN if of["PATH_INFO"][-4:] == ".png" else None
    monkeypatch.setattr(outages, "_PATIENCE_S", 0.0)
    with pytest.raises(RequestError, match=r"HTTP status 503.* Try again later"):
        sized_dataset("imagefolder", place)


@pytest.mark.parametrize("name", ["train/../../../evil.png", "train//evil.png", "./evil.png"])
def test_no_name_of_an_object_leads_out_of_the_folder(name, place, s3, s3_server):
    key = s3.partition("://")[2].partition("?")[0]
    uri = f"http://{s3_server.address}/{key}/{name}"
    request = urllib.request.Request(uri, b"evil", method="PUT")
    urllib.request.urlopen(request).close()
    assert "expected objects whose names can be those of files, given" in refusal(place)
    assert not [*Path(place.cache).parent.rglob("evil.png")]


@pytest.mark.parametrize("target", ["elsewhere", "elsewhere/0.png", "images", "nowhere"])
def test_no_link_of_a_disk_is_followed(target, folder, tmp_path):
    """Out of the folder, back into it, or nowhere."""
    write_images(tmp_path / "elsewhere", "0.png")
    (folder / "train" / "ants" / "link.png").symlink_to(tmp_path / target)
    place = DataPlace(root=f"file://{folder}", cache=str(tmp_path / "cache"))
    says = "expected no links in a folder that is copied, given train/ants/link.png"
    assert says in refusal(place)
    assert not [*(tmp_path / "cache").rglob("*.png")]


def test_a_cache_inside_of_what_is_copied_is_refused(folder, tmp_path):
    (tmp_path / "alias").symlink_to(folder)
    root = f"file://{tmp_path / 'alias'}"
    place = DataPlace(root=root, cache=str(folder / "cache"))
    says = "expected dataset.cache outside of it"
    assert says in refusal(place)
    assert not [*(folder / "cache").rglob("*.png")]
    dataset = {"name": "imagefolder", "root": root, "cache": place.cache, "image_size": 16}
    base = {"encoder": "conv4", "batch_size": 8, "knn_k": 2}
    path = study_at(tmp_path / "study.yaml", dataset=dataset, base=base)
    with pytest.raises(StudyError, match=rf"dataset\.root: .*{says}"):
        load_study(path)
    assert load_study(path, settings=[f"dataset.cache={tmp_path}/images2"])


def test_a_study_names_no_key_and_fetches_nothing_into_a_bucket(tmp_path):
    for change, says in (
        ({"root": "s3://KEY:SECRET@bucket/images"}, "expected no key in the place of the images"),
        ({"root": "s3://bucket/images", "download": True}, "expected download: false"),
        ({"root": "data", "transfer_root": "s3://a:b@bucket/x"}, "expected no key"),
        ({"root": "s3://KEY:SE/SECRET@bucket/x"}, "expected no key"),
        ({"root": "s3://KEY%3ASECRET@bucket/x"}, "expected no key"),
        ({"root": "s3://bucket/x?secret_key=SECRET"}, "given the option secret_key"),
        ({"root": "abfs://c@account/x?sig=SECRET"}, "given the option sig"),
    ):
        path = study_at(tmp_path / "study.yaml", dataset={"name": "imagefolder"} | change)
        with pytest.raises(StudyError, match=says) as caught:
            load_study(path)
        assert "SECRET" not in str(caught.value)


def test_known_sets_come_from_a_bucket_by_their_folder(tmp_path, s3):
    """Of a folder of many data sets, a trial copies its own."""
    for name in ("FashionMNIST/raw/x", "cifar-10-batches-py/y"):
        (tmp_path / "data" / name).parent.mkdir(parents=True)
        (tmp_path / "data" / name).write_text(name)
    upload(tmp_path / "data", s3)
    place = DataPlace(root=s3, cache=str(tmp_path / "cache"))
    root = Path(local_place(DATASET["fashion_mnist"], place).root)
    assert files_below(root) == {"FashionMNIST/raw/x": b"FashionMNIST/raw/x"}
    assert local_place(DATASET["digits"], place) == place


def test_who_listens_hears_how_far_the_copy_and_the_cache_are(folder, tmp_path, monkeypatch):
    """What a trial tells its run before its first epoch."""
    from clsweep.train.loop import train_trial

    monkeypatch.setattr(preparation, "TELL_EVERY_S", 0.0)
    data = {"name": "imagefolder", "root": f"file://{folder}", "image_size": 16}
    data["cache"] = str(tmp_path / "cache")
    base = {"encoder": "conv4", "width": 4, "epochs": 1, "batch_size": 8, "knn_k": 5}
    study = load_study(study_at(tmp_path / "study.yaml", dataset=data, base=base))
    row, heard = plan_row(study, plan_trials(study)[0]), []
    train_trial(row, lambda _: True, place=study.sections.dataset.place, tell=heard.append)
    texts = [state["preparing"] for state in heard if "preparing" in state]
    copied, decoded = ([t for t in texts if t.startswith(word)] for word in ("copying", "decoding"))
    size = byte_size(sum(file.stat().st_size for file in folder.rglob("*.png")))
    assert copied[-1] == f"copying images, {size} of {size}"
    assert decoded[-1] == "decoding image 20 of 20"
    assert "epoch" in heard[len(texts)]
