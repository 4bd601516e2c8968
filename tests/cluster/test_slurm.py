"""The batch file of `clsweep new cluster slurm`, as SLURM would run it.

No SLURM is needed. Stand-ins for its commands, for Ray and for clsweep do what theirs say they
do, on one node that is this machine.
"""

import getpass
import os
import signal
import stat
import subprocess

import pytest

from clsweep.cli.new import CLUSTER_FILES, CLUSTERS
from tests.cluster.conftest import wait_until

BATCH = CLUSTERS / CLUSTER_FILES["slurm"]
SLURM = {
    "SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "node-a node-b", "SLURM_JOB_NUM_NODES": "2",
    "SLURM_CPUS_ON_NODE": "64", "SLURM_GPUS_ON_NODE": "4",
}  # fmt: skip
COMMANDS = {
    "scontrol": """#!/bin/bash
case "$1" in
    show) printf '%s\\n' $3 ;;
    requeue) echo "$2" >> "$FAKE/requeued" ;;
esac
""",
    "srun": """#!/bin/bash
while [[ "$1" == --* ]]; do echo "$1" >> "$FAKE/srun"; shift; done
echo "$1" >> "$FAKE/steps"
exec "$@"
""",
    "ray": """#!/bin/bash
echo "$@" >> "$FAKE/ray"
[ "$1" = symmetric-run ] || exit 0
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
""",
    "clsweep": """#!/bin/bash
trap 'echo ended >> "$FAKE/ended"; exit 130' TERM
echo "$XDG_CACHE_HOME run:" "$@" > "$FAKE/clsweep"
for _ in $(seq 200); do [ -e "$FAKE/done" ] && exit "$(cat "$FAKE/done")"; sleep 0.1; done
""",
}


@pytest.fixture
def job(tmp_path):
    """Starts the batch file, and returns once the study has begun."""
    (tmp_path / "bin").mkdir()
    for name, text in (COMMANDS | {"activate": f"export PATH={tmp_path}/bin:$PATH\n"}).items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)

    def start(begins=True, **further):
        places = dict.fromkeys(("FAKE", "CLSWEEP_ENV", "HOME", "SLURM_TMPDIR"), str(tmp_path))
        log = (tmp_path / "slurm.out").open("ab")
        started = subprocess.Popen(
            ["bash", BATCH, "tau.yaml", "--out", "a folder"],
            env=os.environ | SLURM | places | further, stdout=log, stderr=log, cwd=tmp_path,
        )  # fmt: skip
        if begins:
            wait_until(lambda: (tmp_path / "clsweep").exists(), "the study", timeout_s=20)
        return started

    return start


def test_ray_knows_the_options(job, tmp_path):
    from ray.scripts.scripts import start
    from ray.scripts.symmetric_run import curate_and_validate_ray_start_args

    (tmp_path / "done").write_text("1")
    assert job().wait(20) == 1  # some trials failed
    generated, line = (tmp_path / "ray").read_text().splitlines()
    assert generated == "get-auth-token --generate"
    options = line.split()
    options = options[1 : options.index("--")]
    assert options[:4] == ["--address", "node-a:24711", "--min-nodes", "2"]
    left = curate_and_validate_ray_start_args(options)
    # an exclusive job has the whole of its nodes, more than it asked for; so has its step
    assert left == ["--num-cpus=64", "--num-gpus=4"]
    step = (tmp_path / "srun").read_text().split()
    assert {"--cpus-per-task=64", "--gpus-per-node=4"} <= set(step)
    assert {o.partition("=")[0] for o in left} <= {o for p in start.params for o in p.opts}
    place = tmp_path / f"clsweep-{getpass.getuser()}"
    assert (tmp_path / "clsweep").read_text() == (
        f"{place} run: run tau.yaml --out a folder --address auto\n"
    )
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert not (tmp_path / "requeued").exists()


def test_images_are_unpacked_once_a_node(job, tmp_path):
    (tmp_path / "done").write_text("0")
    (tmp_path / "dog").mkdir()
    (tmp_path / "dog" / "1.png").touch()
    images = tmp_path / "images.tar"
    subprocess.run(["tar", "-cf", images, "-C", tmp_path, "dog"], check=True)
    for _ in range(2):
        (tmp_path / "clsweep").unlink(missing_ok=True)
        assert job(CLSWEEP_IMAGES=str(images)).wait(20) == 0
        [root] = (tmp_path / f"clsweep-{getpass.getuser()}").glob("*-images.tar")
        if not (root / "mark").exists():
            (root / "dog" / "1.png").rename(root / "mark")
    assert f"run --set dataset.root={root} tau.yaml " in (tmp_path / "clsweep").read_text()
    assert (root / "mark").exists()
    assert not (root / "dog" / "1.png").exists(), "unpacked again"
    assert (tmp_path / "steps").read_text().split() == ["bash", "bash", "ray"] * 2


def test_a_place_that_somebody_else_could_have_made_is_refused(job, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"clsweep-{getpass.getuser()}").symlink_to(elsewhere)
    assert job(begins=False).wait(20) == 1
    assert "is not yours" in (tmp_path / "slurm.out").read_text()


@pytest.mark.parametrize(
    ("number", "code", "requeued"),
    [(signal.SIGUSR1, 0, "4711\n"), (signal.SIGTERM, 143, "")],
    ids=["time is over", "preempted or cancelled"],
)
def test_a_job_that_is_ended_ends_the_study_first(job, tmp_path, number, code, requeued):
    started = job()
    started.send_signal(number)
    assert started.wait(20) == code
    assert (tmp_path / "ended").read_text() == "ended\n"
    requeued_file = tmp_path / "requeued"
    assert (requeued_file.read_text() if requeued_file.exists() else "") == requeued


def test_what_slurm_reads_of_it():
    lines = BATCH.read_text().splitlines()
    options = [line.split()[1] for line in lines if line.startswith("#SBATCH ")]
    assert {"--requeue", "--exclusive", "--mem=0", "--signal=B:USR1@120"} <= set(options)
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert all(i < first for i, line in enumerate(lines) if line.startswith("#SBATCH"))
