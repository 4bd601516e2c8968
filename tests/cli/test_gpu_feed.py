"""`clsweep plan --estimate --gpu NAME`: cores that read pictures for a GPU that is not here."""

import io
import re
import time
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from clsweep.catalog import DATASET
from clsweep.catalog.rows import PictureSample
from clsweep.train import reading_rate as reading
from clsweep.train.reading_rate import ReadingRate, reading_rate
from studies.records.plain import plain_config

STUDY = """\
name: large
dataset: {{name: imagefolder, root: {root}, image_size: 64, val_fraction: 0.2, {dataset}}}
seeds: [0]
base: {{encoder: resnet18, stem: standard, batch_size: 32, epochs: 2, eval_every: 2, knn_k: 20}}
objectives:
  simclr: {{framework: simclr, loss: infonce}}
search: {{method: grid}}
resources: {{gpus_per_worker: 1, cpus_per_worker: 1}}
"""
LINE = re.compile(
    r"(training|scoring) takes ([\d,]+) images a second on \w+; a trial's (\d+) cores? reads? "
    r"([\d,]+): ((?:not )?fed)"
)
ADVICE = re.compile(r"cpus_per_worker=(\d+) feeds it, (\d+) with dataset.store_as: pixels")


def jpeg(size=(500, 375)):
    levels = np.random.default_rng(0).integers(0, 256, (size[1] // 5, size[0] // 5, 3))
    file = io.BytesIO()
    Image.fromarray(levels.astype(np.uint8)).resize(size).save(file, "JPEG", quality=90)
    return file.getvalue()


@pytest.fixture
def plan(cli_command, tmp_path):
    """What `plan --gpu l4` says: the lines on reading, and all of it."""

    def ask(root="nowhere", dataset="num_train: 100000, num_classes: 10", **resources):
        path = tmp_path / "study.yaml"
        path.write_text(STUDY.format(root=root, dataset=dataset))
        settings = [f"--set=resources.{key}={value}" for key, value in resources.items()]
        code, out, err = cli_command("plan", str(path), "--estimate", "--gpu", "l4", *settings)
        assert (code, err) == (0, "")
        said = " ".join(out.split())
        return {part: tuple(rest) for part, *rest in LINE.findall(said)}, said

    return ask


def test_cores_that_are_named_feed_a_gpu_and_fewer_do_not(plan, monkeypatch):
    def rate(dataset, _config):
        return ReadingRate(700.0, 9e9) if dataset.store_as == "pixels" else ReadingRate(200.0, 9e9)

    monkeypatch.setattr(reading, "reading_rate", rate)
    parts, said = plan()
    taken = int(parts["training"][0].replace(",", ""))
    assert parts["training"][1:] == ("1", "200", "not fed")
    assert parts["scoring"][3] == "fed"
    assert float(re.search(r"not fed, ([\d.]+) times as long", said)[1]) == pytest.approx(
        taken / 200, rel=0.02
    )
    jpegs, pixels = map(int, ADVICE.search(said).groups())
    assert (jpegs, pixels) == (-(-taken // 200), -(-taken // 700))
    for cores, expected in ((jpegs, "fed"), (jpegs - 1, "not fed")):
        parts, _ = plan(cpus_per_worker=cores)
        assert parts["training"][3] == expected


def test_files_that_are_here_are_timed_and_others_are_made(plan, tmp_path):
    for number in range(130):
        path = tmp_path / "images" / "train" / f"c{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg((90, 70)))
    parts, said = plan(tmp_path / "images", "store_as: jpeg")
    assert set(parts) == {"training", "scoring"}
    assert "this machine's" in said
    assert "ImageNet's size" not in said
    _, said = plan()
    assert "ImageNet's size" in said
    _, said = plan(dataset="num_train: 100000, num_classes: 10, store_as: pixels")
    assert "store_as: pixels" not in said


@pytest.mark.parametrize("form", ["jpeg", "pixels"])
def test_the_rate_is_that_of_one_core(form):
    content = jpeg()
    row = replace(
        DATASET["imagefolder"], num_train=1000, channels=3, store_as=form, store_size=256,
        sample=PictureSample(1000, (content,) * 8),
    )  # fmt: skip
    config = plain_config("synthetic", image_size=224, num_train=1000, precision="fp32")
    rate = reading_rate(row, config)
    smaller = Image.open(io.BytesIO(content)).resize((341, 256))
    file = io.BytesIO()
    smaller.save(file, "JPEG", quality=80)
    seconds = []
    for _ in range(20):
        begin = time.thread_time()
        if form == "jpeg":
            smaller = np.asarray(Image.open(file))
        for _ in range(2):  # views of about half of it
            crop = Image.fromarray(np.asarray(smaller)[:180, :240])
            crop.resize((224, 224), Image.Resampling.BILINEAR)
        seconds.append(time.thread_time() - begin)
    # Pillow has other code: twice as slow on an AMD EPYC, and more beside other work
    assert 1 / 5 < rate.trained * min(seconds) < 5
    assert rate.trained / 2 < rate.scored < 4 * rate.trained
