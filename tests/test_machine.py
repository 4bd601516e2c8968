import os
import subprocess
import sys

import pytest

from clsweep.machine import num_cores

PINNED = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"


def written(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "250000 100000\n"}, 2),  # whole cores
        ({"cpu.max": "50000 100000\n"}, 1),  # at least one
        ({"cpu.max": "3200000 100000\n"}, 8),  # no more than there are
        ({"cpu.max": "nonsense\n"}, 8),
    ],
)
def test_a_containers_quota_counts(tmp_path, monkeypatch, files, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert num_cores(written(tmp_path, files)) == cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="nothing is pinned here")
def test_a_pinned_process_counts_its_cores():
    code = PINNED + "from clsweep.machine import num_cores\nprint(num_cores())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "1"
