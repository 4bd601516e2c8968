"""Where the workers of a group meet on one machine: in a file. The store that torch would start for
them listens on every interface of the machine.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import ray
from ray.train.torch import TorchConfig
from ray.train.torch.config import (
    _set_torch_distributed_env_vars,
    _setup_torch_process_group,
    _TorchBackend,
)


@dataclass
class FileRendezvous(TorchConfig):
    """Ray Train's configuration of a worker group whose workers share a disk.

    Args:
        backend: of torch's collectives, gloo or nccl.
        folder: where the file lies while the group works.
    """

    folder: str = ""

    @property
    def backend_cls(self) -> type[_FileBackend]:
        return _FileBackend


class _FileBackend(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: FileRendezvous) -> None:
        """As in Ray Train, but for the place. A group that is started again has another file:
        what an earlier one has left in its own would mislead it.
        """
        worker_group.execute(_set_torch_distributed_env_vars)
        setup = {
            "backend": backend_config.backend,
            "world_size": len(worker_group),
            "init_method": f"file://{backend_config.folder}/{uuid.uuid4().hex}",
            "timeout_s": backend_config.timeout_s,
        }
        ray.get(
            [
                worker_group.execute_single_async(
                    rank, _setup_torch_process_group, world_rank=rank, **setup
                )
                for rank in range(len(worker_group))
            ]
        )
