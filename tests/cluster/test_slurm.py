"""The batch file of `clsweep new cluster slurm`, as SLURM would run it.

There is no SLURM here. Stand-ins for `srun` and `scontrol` do what theirs say they do; Ray, its
`symmetric-run` and clsweep are the real ones. A node is a namespace of this machine, with processes
and an address of its own, so that `ray stop` ends what is on that node and nothing else.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

import clsweep
from clsweep.cli.new import FILES, TEMPLATES, Scheduler
from tests.cluster.conftest import study_tree, wait_until

BATCH = TEMPLATES / FILES[Scheduler.slurm]
BIN = Path(sys.executable).parent

SCONTROL = """#!/bin/bash
case "$1" in
    show) printf '%s\\n' $3 ;;
    requeue) echo "$2" >> "$FAKE/requeued" ;;
esac
"""
# srun sends a SIGTERM on to every process of the step, and to what is left a SIGKILL later.
SRUN = """#!{python}
import os, signal, subprocess, sys, time

nodes = [int(pid) for pid in os.environ["FAKE_NODES"].split()]
command = sys.argv[1:]
while command[0].startswith("--"):
    command.pop(0)

def processes(node):
    same = os.readlink(f"/proc/{{node}}/ns/pid")
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if int(name) != node and os.readlink(f"/proc/{{name}}/ns/pid") == same:
                yield int(name)
        except OSError:
            pass

def end(*_):
    for number, patience_s in ((signal.SIGTERM, 25), (signal.SIGKILL, 5)):
        for node in nodes:
            for process in processes(node):
                os.kill(process, number)
        until = time.monotonic() + patience_s
        while any(list(processes(node)) for node in nodes) and time.monotonic() < until:
            time.sleep(0.2)

signal.signal(signal.SIGTERM, end)
tasks = [
    subprocess.Popen(["nsenter", f"--target={{node}}", "--net", "--pid", "--mount", *command])
    for node in nodes
]
sys.exit(max(abs(task.wait()) for task in tasks))
"""


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Starts the batch file: its arguments, and what SLURM sets in its environment."""

    def write(name: str, text: str) -> None:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    write("scontrol", SCONTROL)
    write("srun", SRUN.format(python=sys.executable))
    write("clsweep", f'#!/bin/bash\nexec {sys.executable} -m clsweep "$@"\n')
    write("activate", f"export PATH={tmp_path / 'bin'}:{BIN}:$PATH\n")

    def start(*arguments: object, nodes: str, **environment: str) -> subprocess.Popen[bytes]:
        slurm = {
            "SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": nodes,
            "SLURM_JOB_NUM_NODES": str(len(nodes.split())), "SLURM_CPUS_PER_TASK": "1",
            "FAKE": str(tmp_path), "CLSWEEP_ENV": str(tmp_path), "HOME": str(tmp_path),
            "PYTHONPATH": str(Path(clsweep.__file__).parents[1]),
        }  # fmt: skip
        log = (tmp_path / "slurm.out").open("ab")
        return subprocess.Popen(
            ["bash", BATCH, *map(str, arguments)],
            env=os.environ | slurm | environment, stdout=log, stderr=log, cwd=tmp_path,
        )  # fmt: skip

    return start


# Without Ray: the batch file's own part.

RAY = """#!/bin/bash
echo "$@" >> "$FAKE/ray"
[ "$1" = symmetric-run ] || exit 0
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
CLSWEEP = """#!/bin/bash
trap 'echo ended >> "$FAKE/ended"; exit 130' TERM
echo "$@" > "$FAKE/clsweep"
for _ in $(seq 200); do [ -e "$FAKE/done" ] && exit "$(cat "$FAKE/done")"; sleep 0.1; done
"""


@pytest.fixture
def plain(
    job: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> Callable[[], subprocess.Popen[bytes]]:
    """The job on one node that is this machine, with stand-ins for Ray and clsweep as well."""
    for name, text in {"ray": RAY, "clsweep": CLSWEEP, "srun": PLAIN_SRUN}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)

    def start() -> subprocess.Popen[bytes]:
        started = job("tau.yaml", "--out", "a folder", nodes="node-a node-b")
        wait_until(lambda: (tmp_path / "clsweep").exists(), "the study", timeout_s=20)
        return started

    return start


PLAIN_SRUN = """#!/bin/bash
while [[ "$1" == --* ]]; do shift; done
exec "$@"
"""


def test_ray_knows_the_options(
    plain: Callable[[], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    from ray.scripts.scripts import start
    from ray.scripts.symmetric_run import curate_and_validate_ray_start_args

    (tmp_path / "done").write_text("1")
    assert plain().wait(20) == 1  # some trials failed
    generated, line = (tmp_path / "ray").read_text().splitlines()
    assert generated == "get-auth-token --generate"
    options = line.split()
    options = options[1 : options.index("--")]
    assert options[:4] == ["--address", "node-a:24711", "--min-nodes", "2"]
    left = curate_and_validate_ray_start_args(options)
    assert left == ["--num-cpus=1", "--num-gpus=0"]
    assert {o.partition("=")[0] for o in left} <= {o for p in start.params for o in p.opts}
    assert (tmp_path / "clsweep").read_text() == "run tau.yaml --out a folder --address auto\n"
    assert not (tmp_path / "requeued").exists()


@pytest.mark.parametrize(
    ("number", "code", "requeued"),
    [(signal.SIGUSR1, 0, "4711\n"), (signal.SIGTERM, 143, "")],
    ids=["time is over", "preempted or cancelled"],
)
def test_a_job_that_is_ended_ends_the_study_first(
    plain: Callable[[], subprocess.Popen[bytes]],
    tmp_path: Path,
    number: signal.Signals,
    code: int,
    requeued: str,
) -> None:
    started = plain()
    started.send_signal(number)
    assert started.wait(20) == code
    assert (tmp_path / "ended").read_text() == "ended\n"
    told = tmp_path / "requeued"
    assert (told.read_text() if told.exists() else "") == requeued


def test_what_slurm_reads_of_it() -> None:
    lines = BATCH.read_text().splitlines()
    options = [line.split()[1] for line in lines if line.startswith("#SBATCH ")]
    assert {"--requeue", "--exclusive", "--signal=B:USR1@120"} <= set(options)
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert all(i < first for i, line in enumerate(lines) if line.startswith("#SBATCH"))


# With Ray, on two nodes.


def _can_make_nodes() -> bool:
    tools = all(map(shutil.which, ("unshare", "nsenter", "ip")))
    return tools and not subprocess.run(
        ["unshare", "-pnmf", "true"], capture_output=True, check=False
    ).returncode  # fmt: skip


@contextlib.contextmanager
def two_nodes() -> Iterator[list[int]]:
    """The first processes of two nodes that reach each other at 10.77.0.1 and 10.77.0.2."""
    command = ["unshare", "-pnmf", "--mount-proc", "--kill-child", "sleep", "900"]
    holders = [subprocess.Popen(command) for _ in range(2)]
    try:
        wait_until(lambda: all(map(_child, holders)), "the nodes", timeout_s=20)
        nodes = [_child(holder) for holder in holders]
        names = [f"clsweep{nodes[0]}", f"clsweep{nodes[1]}"]
        _ip("link", "add", names[0], "type", "veth", "peer", "name", names[1])
        os.makedirs("/tmp/ray", exist_ok=True)
        for number, (node, name) in enumerate(zip(nodes, names, strict=True), 1):
            _ip("link", "set", name, "netns", str(node))
            inside = ["nsenter", f"--target={node}", "--net", "--mount"]
            for line in (f"ip addr add 10.77.0.{number}/24 dev {name}", f"ip link set {name} up",
                         "ip link set lo up", "mount -t tmpfs none /tmp/ray"):  # fmt: skip
                subprocess.run([*inside, *line.split()], check=True)
        yield nodes
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()


def _child(process: subprocess.Popen[bytes]) -> int:
    """The only child of a process, 0 before it has one."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return int((path.read_text().split() or ["0"])[0])


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.mark.soak  # minutes: run when the batch file, or Ray, changes
@pytest.mark.skipif(not _can_make_nodes(), reason="may not make namespaces here")
def test_a_study_on_two_nodes_that_is_requeued_goes_on(
    job: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    base = {**study_tree()["base"], "epochs": 30}  # type: ignore[dict-item]
    study, out = tmp_path / "study.yaml", tmp_path / "out"
    study.write_text(yaml.safe_dump(study_tree(base=base)))
    with two_nodes() as nodes:
        known = {"nodes": "10.77.0.1 10.77.0.2", "FAKE_NODES": " ".join(map(str, nodes))}
        first = job(study, "--out", out, **known)
        parts = out / "parts" / "trials"
        wait_until(lambda: parts.is_dir() and any(parts.iterdir()), "a trial", timeout_s=240)
        first.send_signal(signal.SIGUSR1)
        assert first.wait(60) == 0, (tmp_path / "slurm.out").read_text()
        assert (tmp_path / "requeued").read_text() == "4711\n"
        half = len(list(parts.glob("*.parquet"))) or pq.read_table(out / "trials.parquet").num_rows
        assert 0 < half < 8
        again = job(study, "--out", out, SLURM_RESTART_COUNT="1", **known)
        assert again.wait(400) == 0, (tmp_path / "slurm.out").read_text()
    rows = pq.read_table(out / "trials.parquet").to_pylist()
    assert [row["status"] for row in rows] == ["finished"] * 8
    ends = sorted((row["started_at"].timestamp(), row["wall_time_s"]) for row in rows[half:])
    overlap = [a for (a, length), (b, _) in itertools.pairwise(ends) if b < a + length]
    assert overlap, "a node of one CPU each: two trials at once are on both"
