"""Studies whose images lie in a bucket: the rows are those of a folder. Real Ray and kills."""

from __future__ import annotations

from pathlib import Path

import filelock
import pytest

from clsweep.catalog import DATASET
from clsweep.data.bucket_copy import local_place
from clsweep.data.locations import DataPlace
from tests.cluster.conftest import wait_until
from tests.cluster.fake_cluster import static_cluster
from tests.contracts.disturbed import Disturbed, assert_same_numbers
from tests.data.bucket_files import by_class, files_below, gets, upload
from tests.planted import study_at


def study_of(folder: Path, root: str, cache: str) -> Path:
    """A study of pictures in the named place, eight trials."""
    folder.mkdir()
    return study_at(
        folder / "study.yaml",
        dataset={"name": "imagefolder", "root": root, "image_size": 16, "cache": cache},
        base={"encoder": "conv4", "width": 8, "epochs": 4, "batch_size": 16, "knn_k": 5,
              "eval_every": 1},
        checkpoints={"every_s": 0},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nodes_of_two_kinds_copy_the_images_each_and_one_is_killed(
    tmp_path, s3, s3_server, monkeypatch
):
    """A cluster whose head has neither images nor a trial; its nodes have homes of their own."""
    folder = by_class(tmp_path / "images", 20)
    upload(folder, s3)
    local = Disturbed(study_of(tmp_path / "a", str(folder), "~/cache"), tmp_path / "a" / "out")
    with static_cluster([]) as cluster:
        homes = [tmp_path / name for name in ("home0", "home1", "home2")]
        for home in homes:
            home.mkdir()
        for home, num_cpus in zip(homes, (1, 2), strict=False):
            with monkeypatch.context() as of_node:
                of_node.setenv("HOME", str(home))
                cluster.add_node(num_cpus)
        wait_until(lambda: len(cluster.worker_nodes()) == 2, "the nodes")
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        join = ("--address", cluster.address, "--max-concurrent", 3)
        remote = Disturbed(study_of(tmp_path / "b", s3, "~/cache"), tmp_path / "b" / "out", *join)
        before = len(s3_server.requests)
        try:
            remote.start()
            copies = [home / "cache" / "copies" for home in homes]
            remote.wait_until(
                lambda: all([*copy.glob("*.run")] for copy in copies[:2]), "two copies"
            )
            remote.advance(3)
            [larger] = (n for n in cluster.worker_nodes() if n["Resources"]["CPU"] == 2)
            assert cluster.kill_node(larger["NodeID"])
            with monkeypatch.context() as of_node:
                of_node.setenv("HOME", str(homes[2]))
                cluster.add_node(2)
            code, output = remote.wait()
            assert code == 0, output
        finally:
            remote.stop()
        num_reads = gets(s3_server, before)
    assert len(num_reads) == 44
    fewest = min(num_reads.values())
    assert fewest in (2, 3)  # the third node copies only where a trial comes to it
    assert max(num_reads.values()) - fewest <= 1  # the plan looks at the sizes of some pictures
    for copy in copies[:2]:
        [root] = (path for path in copy.iterdir() if path.suffix == "")
        assert files_below(root) == files_below(folder)
    local.run_to_the_end()
    assert_same_numbers(remote.out, local.out)


def test_the_folder_is_made_by_the_process_that_has_the_lock(tmp_path, monkeypatch):
    """Another one may be removing it, empty as it is, to make it anew."""
    by_class(tmp_path / "set", 2)
    place = DataPlace(root=f"file://{tmp_path / 'set'}", cache=str(tmp_path / "cache"))
    seen, acquire = [], filelock.FileLock.acquire

    def look(lock):
        seen.extend(Path(place.cache, "copies").iterdir())
        return acquire(lock)

    monkeypatch.setattr(filelock.FileLock, "acquire", look)
    local_place(DATASET["imagefolder"], place)
    assert seen == []
