"""Processes, folders and placement groups that killed runs and lost trials leave behind.

Temporary folders of a run say whose they are. The next run on the machine removes those of runs
that are no more, and ends the processes of their Ray, some of which take a minute to see that they
are alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

from clsweep.cluster.ray_session import OWNER
from clsweep.machine import here, living


def remove_orphaned_groups() -> None:
    """Remove the placement groups of this run whose creator is dead, which Ray keeps for the whole
    job. Ray Train has a process that removes them: it may be killed too, for want of memory, and
    knows of a group only once all of its workers have started.
    """
    import ray
    from ray._private.state import state
    from ray.core.generated.gcs_pb2 import PlacementGroupTableData
    from ray.util.placement_group import PlacementGroup, remove_placement_group

    job = ray.get_runtime_context().get_job_id()
    for data in state._connect_and_get_accessor().get_placement_group_table():
        group = PlacementGroupTableData.FromString(data)
        creator = state.actor_table(group.creator_actor_id.hex(), None, None)
        if group.creator_job_id.hex() == job and creator.get("State") == "DEAD":
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(group.placement_group_id)))


_PATIENCE_S = 5.0  # for killed processes to go


def end_all_of(folder: str) -> None:
    """Kill all other processes of the Ray that has a folder, and wait for them to go."""
    import psutil

    killed = set()
    for process in psutil.process_iter():
        if process.pid != os.getpid() and _is_of(process.pid, folder):
            with contextlib.suppress(psutil.Error):
                process.kill()
                killed.add(process.pid)
    deadline = time.monotonic() + _PATIENCE_S
    while killed & living().keys() and time.monotonic() < deadline:
        time.sleep(0.02)


def remove_leftovers() -> None:
    """Remove what killed runs of this user have left on this machine: temporary folders, and the
    processes of a Ray that had one. Of a folder that is another user's nothing is read.
    """
    places = {Path(place).resolve() for place in (tempfile.gettempdir(), "/tmp")}
    for owner_file in [file for place in places for file in place.glob(f"clsweep-*/{OWNER}")]:
        folder = owner_file.parent
        with contextlib.suppress(OSError, ValueError):
            if folder.lstat().st_uid == owner_file.lstat().st_uid == os.getuid():
                machine, pid, start = owner_file.read_text().split()
                if machine == here() and str(living().get(int(pid))) != start:
                    end_all_of(str(folder))
                    shutil.rmtree(folder, ignore_errors=True)


def _is_of(pid: int, folder: str) -> bool:
    """True if a process is this user's, and has a file in that folder open: Ray's logs."""
    import psutil

    try:
        process = psutil.Process(pid)
        return process.uids().real == os.getuid() and any(
            file.path.startswith(f"{folder}/") for file in process.open_files()
        )
    except psutil.Error:
        return False
