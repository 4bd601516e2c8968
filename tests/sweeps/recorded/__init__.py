"""Sweeps as their tools wrote them, packed; paths, users and hosts are made up.

Optuna 2.10, MLflow 3.17.2 (one sweep as files and as a database; one of Optuna 4.5 in
its `MlflowStorage`, less the tables of others), Ray 2.60, trackio 0.43.0,
hydra-optuna-sweeper 1.3.0 and wandb 0.31.0.
"""

import gzip
import tarfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def unpack(name: str, target: Path) -> Path:
    """The folder or file of that name, in a folder that may be written to."""
    packed = FOLDER / name
    if packed.name.endswith(".tar.gz"):
        with tarfile.open(packed) as archive:
            archive.extractall(target, filter="data")
        return target
    file = target / packed.name.removesuffix(".gz")
    file.write_bytes(gzip.decompress(packed.read_bytes()))
    return file


def wandb_log(records: list[Any]) -> bytes:
    """The file that an offline run of W&B makes of its protocol buffers, each of a few bytes."""
    pieces = [record.SerializeToString() for record in records]
    heads = [bytes(4) + len(piece).to_bytes(2, "little") + b"\x01" for piece in pieces]
    return b":W&B" + bytes(3) + b"".join(map(bytes.__add__, heads, pieces))
