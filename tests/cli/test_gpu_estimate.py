"""`clsweep plan --estimate --gpu NAME`: a study reckoned for a GPU that is not here."""

import json
import re

import pytest

from clsweep.catalog.known_gpus import GPUS
from clsweep.cluster import resources

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
    assert "For a GPU that is not here: --gpu, as in --gpu a10g" in err
