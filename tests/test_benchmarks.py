"""The benchmarks run: what they measure changes more often than they are asked."""

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

BENCHMARKS = Path(__file__).parent / "benchmarks"
LONG = pytest.mark.soak


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("analysis.py --configs 128 --objectives 2 --repeats 1", "clsweep report"),
        ("commands.py --trials 200 --parts 20 --repeats 1", "clsweep status"),
        ("launches.py --method DCL --batch 512", "optimiser"),
        # at any share of lightly's: a busy machine is no failure
        ("host_time.py --rounds 1 --batch 2048 --goal 99", "lightly"),
        ("decode.py --pictures 40 --passes 1", "bytes "),
        pytest.param(
            "jpeg_scores.py --photos photos --pairs 2 --epochs 2", "linear_top1: ", marks=LONG
        ),
        pytest.param("losses.py --samples 64 --repeats 1", "dclw", marks=LONG),
        pytest.param("driver.py --trials 100 200 --epochs 10", "peak MiB", marks=LONG),
        pytest.param("overhead.py --trials 6 --documented-trials 2", "ratio", marks=LONG),
        pytest.param(
            "throughput.py --encoder conv4-16 --batch 64 --rounds 1 --seconds 1",
            "lightly",
            marks=LONG,
        ),
    ],
)
def test_a_benchmark_runs_small(line, word, tmp_path):
    script, *options = line.split()
    (tmp_path / "photos").mkdir()
    for name in "abc" * ("photos" in line):
        Image.effect_noise((1300, 1200), 60).save(tmp_path / "photos" / f"{name}.jpg")
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *options],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert word in done.stdout
