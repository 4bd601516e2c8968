"""`clsweep plan --estimate --gpu NAME`: a study reckoned for a GPU that is not here."""

import json
import re

import pytest

from clsweep.catalog.known_gpus import GPUS, step_bytes
from clsweep.cli.gpu_memory import memory_notes
from clsweep.cluster import resources
from clsweep.study.document import preset_names, shipped_studies
from clsweep.study.resolve import load_study
from studies.records.plain import plain_config

STUDY = """\
name: large
dataset: {{name: imagefolder, root: nowhere, image_size: 224, num_train: 100000, num_classes: 10}}
evaluation: {{train_on: all, score_on: test}}
seeds: [0, 1]
base: {{encoder: resnet18, stem: standard, epochs: 2, eval_every: 2, {base}}}
objectives:
  simclr: {{framework: simclr, loss: infonce}}
space: {{batch_size: {{choices: [{sizes}]}}}}
search: {{method: grid}}
resources: {{gpus_per_worker: 1}}
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "_gpus_here", lambda: 0)

    def write(sizes="64, 1024", base="precision: auto"):
        path = tmp_path / "study.yaml"
        path.write_text(STUDY.format(sizes=sizes, base=base))
        return str(path)

    return write


def test_hours_and_money_of_a_gpu_and_images_that_are_not_here(cli_command, study):
    path = study()
    code, out, err = cli_command("plan", path, "--estimate", "--gpu", "L4", "--format", "json")
    assert (code, err) == (0, "")
    [row] = json.loads(out)
    assert row["gpu_hours"] == pytest.approx(row["trial_s"] * 4 / 3600)
    # 2 epochs of 100,000 images, of which a GPU sees 10.6 billion operations of each view
    least = 2 * 2e5 * 10.6e9 / (GPUS["l4"].half_tflops * 1e12)
    assert least < row["trial_s"] < 20 * least
    code, out, _ = cli_command("plan", path, "--estimate", "--gpu", "l4", "--price", "2")
    assert code == 0
    money = re.search(r"([\d.]+) EUR at 2 EUR an hour of one, ([\d.]+) to ([\d.]+)$", out, re.M)
    given, low, high = map(float, money.groups())
    assert given == pytest.approx(2 * row["gpu_hours"], rel=0.1)
    assert (low, high) == (pytest.approx(given / 2, rel=0.1), pytest.approx(given * 2, rel=0.1))
    assert "an estimate, likely within a factor of 2: no l4 was asked" in " ".join(out.split())
    assert max(len(line) for line in out.splitlines() if "Next" not in line) <= 80


def test_memory_that_does_not_fit_is_said_with_what_does(cli_command, study):
    """What is named fits, and what is less does not."""
    path = study()
    ask = ("plan", path, "--gpu", "t4", "--set", "base.precision=fp16")
    _, out, _ = cli_command(*ask)
    out = " ".join(out.split())
    assert "more than t4 holds" in out
    workers = int(re.search(r"resources\.workers=(\d+) fits", out)[1])
    chunk = int(re.search(r"base\.chunk_size=(\d+)", out)[1])
    assert (workers, chunk) == (2, 512)
    for advice in (f"resources.workers={workers}", f"base.chunk_size={chunk}"):
        code, out, _ = cli_command(*ask, "--set", advice)
        assert code == 0
        assert "more than t4" not in " ".join(out.split())
    _, out, _ = cli_command("plan", study("64, 1023"), "--gpu", "t4", *ask[-2:])
    assert "workers=" not in out  # 1023 images are no two halves
    _, out, _ = cli_command("plan", path, "--gpu", "a100-80")
    assert "holds" not in out


def test_what_cannot_be_reckoned_is_refused(cli_command, study):
    path = study("64")
    code, _, err = cli_command("plan", path, "--estimate", "--gpu", "v100-80")
    assert code == 2
    assert "unknown GPU 'v100-80'" in err
    assert "h200" in err
    code, _, err = cli_command("plan", path, "--estimate", "--gpu", "t4")
    assert code == 2
    assert "t4 has no bf16 arithmetic. Expected: fp16 or fp32" in err
    code, _, err = cli_command("plan", path, "--estimate", "--gpu", "t4", "--trials")
    assert code == 2
    assert len(err.splitlines()) == 1


def test_who_has_no_gpu_is_told_the_way(cli_command, study):
    code, _, err = cli_command("plan", study(), "--estimate", "--price", "1.01")
    assert code == 2
    assert ". For a GPU that is not here: --gpu, as in --gpu a10g" in err
    _, out, _ = cli_command("plan", study())
    *_, following = out.splitlines()
    assert following.startswith("Next: clsweep plan ")
    assert "--gpu a10g" in following
    assert "--estimate" not in following


@pytest.mark.parametrize(
    ("encoder", "stem", "size", "framework"),
    [("resnet18", "standard", 224, "simclr"), ("resnet18", "small", 32, "simclr"),
     ("resnet50", "standard", 224, "moco"), ("resnet50", "small", 32, "byol")],
)  # fmt: skip
def test_the_memory_that_a_plan_says_is_about_what_is_counted(encoder, stem, size, framework):
    from clsweep.train.step_cost import step_cost

    shape = {"encoder": encoder, "stem": stem, "image_size": size, "framework": framework}
    row = plain_config("synthetic", **shape, batch_size=256, precision="bf16", num_train=1024)
    for workers in (1, 2):
        counted = step_cost(row, workers).peak
        assert step_bytes(row, workers) == pytest.approx(counted, rel=0.15)


def test_a_plan_says_by_itself_which_gpus_cannot_hold_a_step(cli_command):
    _, out, _ = cli_command("plan", "dcl/table_01", "--preset", "imagenet")
    out = " ".join(out.split())
    for size, workers in ((24, 8), (40, 4), (80, 2)):
        preset = f"resources.workers={workers} (--preset gpu{size})"
        assert f"one of {size} GB needs {preset}" in out
        _, fits, _ = cli_command("plan", "dcl/table_01", "--preset", f"imagenet,gpu{size}")
        assert f"one of {size} GB needs" not in " ".join(fits.split())
    _, out, _ = cli_command("plan", "dcl/table_01", "--preset", "cifar10")
    assert "GB needs" not in out


@pytest.mark.parametrize("name", [name for name, path in shipped_studies().items()
                                  if "gpu24" in preset_names(path)])  # fmt: skip
def test_the_presets_of_the_papers_hold_each_step(name):
    """In whichever other preset of the study the images are large."""
    path = shipped_studies()[name]
    others = [preset for preset in preset_names(path) if not preset.startswith(("gpu", "cpu"))]
    for size in (24, 40, 80):
        own = f"gpu{size}" if f"gpu{size}" in preset_names(path) else ""
        for preset in (None, *others):
            both = ",".join(filter(None, (preset, own))) or None
            notes = " ".join(memory_notes(load_study(path, preset=both)))
            assert f"one of {size} GB needs" not in notes, both


def test_trials_that_share_a_gpu_share_its_memory_and_its_speed(cli_command, study):
    """Four at a time take as many hours of GPUs, each four times as long."""
    path, ask = study("512", "precision: bf16"), ("--gpu", "a10g", "--format")
    rows = []
    for share in (1, 0.25):
        given = ("plan", path, *ask, "json", "--set", f"resources.gpus_per_worker={share}")
        rows += json.loads(cli_command(*given)[1])
    whole, shared = rows
    assert shared["trial_s"] == pytest.approx(4 * whole["trial_s"], rel=0.05)
    assert shared["gpu_hours"] == pytest.approx(whole["gpu_hours"], rel=0.05)
    assert 6 < whole["peak_gib"] < 20
    given = ("plan", path, *ask, "table", "--set", "resources.gpus_per_worker=0.25")
    assert "more than a10g holds" in " ".join(cli_command(*given)[1].split())
    assert memory_notes(load_study(path)) == []
    assert memory_notes(load_study(path, settings=["resources.gpus_per_worker=0.25"]))
