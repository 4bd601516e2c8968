import os
import subprocess
import sys

import pytest

from clsweep.machine import num_cores

PINNED = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("", 8),
        ("max 100000", 8),
        ("250000 100000", 2),  # whole cores
        ("50000 100000", 1),  # at least one
        ("3200000 100000", 8),  # no more than there are
        ("nonsense", 8),
    ],
)
def test_a_containers_quota_counts(tmp_path, monkeypatch, quota, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    if quota:
        (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert num_cores(tmp_path) == cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="nothing is pinned here")
def test_a_pinned_process_counts_its_cores():
    code = PINNED + "from clsweep.machine import num_cores\nprint(num_cores())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_a_process_stands_back_as_far_as_rays_workers_and_no_further():
    script = "import os; from clsweep.machine import stand_back; stand_back(); stand_back()"
    command = [sys.executable, "-c", f"{script}; print(os.nice(0))"]
    assert int(subprocess.run(command, capture_output=True, check=True).stdout) == max(
        15, os.nice(0)
    )
