"""A results folder with every kind of file that a run leaves, and ways to damage each of them."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from clsweep.cluster.confirm import confirming_study, plan_confirmation
from clsweep.cluster.search import PlanSearch
from clsweep.objective.build import build_encoder
from clsweep.results.folder import ResultsFolder, checkpoint_file, encoder_file
from clsweep.results.journal import open_storage
from clsweep.results.weights import about_encoder, pack_weights
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from clsweep.train.checkpoints import identity_of, pack_checkpoint

STUDY = """\
name: small
dataset: {name: digits}
metric: {name: knn_top1, mode: max}
seeds: [0, 1]
base: {encoder: conv4, width: 4, epochs: 2, batch_size: 32}
space: {tau: {low: 0.05, high: 1.0, log: true, grid: [0.1, 0.3, 0.9]}}
objectives:
  infonce: {framework: simclr, loss: infonce}
  dcl: {framework: simclr, loss: dcl}
search: {method: grid}
confirm: {top: 1, seeds: [7, 8]}
"""
KEPT = "dcl-0000-s0"

MUST = {"trial_id", "objective", "config", "seed", "status", "knn_top1", "reference"}
COLUMNS = MUST | {
    "sampler", "study", "tau", "width", "precision", "dataset", "num_classes", "epoch",
}  # fmt: skip
COLUMNS |= {"train_loss", "wall_time_s", "error_message", "started_at", "share", "index", "x"}

Change = Callable[[Path], None]


@dataclass(frozen=True)
class Damage:
    """One file changed. `is_fine`: it may be what a user, a run or an earlier version has made of
    it, so that other numbers without an error are right.
    """

    name: str
    file: str
    change: Change
    is_fine: bool = False


def make_folder(root: Path) -> Path:
    """A search of which one trial is left and one waits for compaction, with its confirmation;
    the study file is beside it.
    """
    file, out = root / "small.yaml", root / "out"
    file.write_text(STUDY)
    study = load_study(file)
    planned = plan_trials(study)
    rows = [plan_row(study, trial) for trial in planned]
    folder = ResultsFolder(str(out))
    with folder.lock():
        folder.create(study.document.dump(), rows)
        for row in rows[:-2]:
            _end(folder, row)
        folder.compact()
        _end(folder, rows[-2])
        folder.add_references(
            [{"reference": "raw_pixels", "dataset": "digits", "knn_k": 5, "knn_top1": 91.0}]
        )
        folder.write(
            checkpoint_file(KEPT),
            pack_checkpoint({"state": {"weight": torch.ones(9)}}, identity_of(rows[0])),
        )
        PlanSearch(
            study, planned[-1:], folder.trials().to_pylist(), open_storage(folder.journal_path)
        )
        folder.held.beat({"state": "ended", "running": [], "headline": "done", "time": 1.0})
    row = next(row for row in rows if row["trial_id"] == KEPT)
    torch.manual_seed(0)
    weights = {name: tensor.numpy() for name, tensor in build_encoder(row).state_dict().items()}
    folder.write(
        encoder_file(KEPT), pack_weights(weights, about_encoder(row, {"mean": [0.5], "std": [0.2]}))
    )
    again = confirming_study(folder)
    fresh = [plan_row(again, trial) for trial in plan_confirmation(again, folder)]
    with folder.confirmation.lock():
        folder.confirmation.create(again.document.dump(), fresh)
        for row in fresh[:-1]:
            _end(folder.confirmation, row, test_knn_top1=70.0)
        folder.confirmation.compact()
    return out


def _end(folder: ResultsFolder, row: dict[str, Any], **more: Any) -> None:
    score = 80.0 + 10 * row["tau"] + row["seed"] + (row["objective"] == "dcl")
    folder.add_trial(
        {**row, "status": "finished", "knn_top1": score, "wall_time_s": 1.0, **more},
        epochs=[{"epoch": epoch, "train_loss": 2.0 - epoch, "knn_top1": score} for epoch in (1, 2)],
        histograms=[{"epoch": 2, "bin_low": 0.0, "bin_high": 1.0, "share": 1.0}],
        points=[{"index": 0, "label": 3, "x": 0.5, "y": -1.0}],
        hits=[_hits_of(row, score)],
    )


def _hits_of(row: dict[str, Any], score: float) -> dict[str, Any]:
    """Of 100 images, as many right as the score says."""
    right = np.random.default_rng(row["seed"]).permutation(100) < round(score)
    bits = np.packbits(right).tobytes()
    place = {"metric": "knn_top1", "split": "validation", "images": "0f", "num_images": 100}
    return {**place, "bits": bits}


def damages(out: Path, *, seed: int = 0) -> Iterator[Damage]:
    """All that is done to the files of a folder, one at a time."""
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        file = str(path.relative_to(out))
        yield from _of_any(file, path, random.Random(f"{seed} {file}"))
        if path.suffix == ".parquet":
            yield from _of_table(file, pq.read_table(path))


def _of_any(file: str, path: Path, rng: random.Random) -> Iterator[Damage]:
    data = path.read_bytes()
    # Nothing says that there was such a file, or the run goes on as if there had been none.
    optional = ("histograms.", "points.", "hits.", "references.", "parts/")
    contents = {
        "empty": b"",
        "half": data[: len(data) // 2],
        "cut": data[:-1],
        "longer": data + b"\0",
        "zeros": bytes(len(data)),
        "noise": rng.randbytes(999),
        "letters": b"\xc3\xa4\n" * 99,
    }
    for name, content in contents.items():
        if content != data:
            yield Damage(name, file, _written(content))
    for number in range(12 if data else 0):
        flipped = bytearray(data)
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        # A study file may be edited: a bit may make another one of it.
        yield Damage(f"flip {number}", file, _written(bytes(flipped)), file.endswith("study.yaml"))
    outside = path.parents[file.count("/") + 1] / f"outside{path.suffix}"
    outside.write_bytes(data)
    nodes: dict[str, Change] = {
        "removed": lambda _: None,
        "folder": lambda path: path.mkdir(),
        "pipe": lambda path: os.mkfifo(path),
        "socket": _socket,
        "loop": lambda path: path.symlink_to(path.name),
        "dead link": lambda path: path.symlink_to("nowhere"),
        "link out": lambda path: path.symlink_to(outside),
        "a gigabyte of nothing": _sparse,
    }
    for name, make in nodes.items():
        is_fine = name == "removed" and any(part in file for part in optional)
        yield Damage(name, file, _instead(make), is_fine)


def _of_table(file: str, table: pa.Table) -> Iterator[Damage]:
    """Without our checksum: what somebody else wrote, or an earlier version."""
    name = Path(file).name

    def of(change: str, edited: pa.Table, *, is_fine: bool = False) -> Damage:
        sink = pa.BufferOutputStream()
        pq.write_table(edited, sink)
        return Damage(change, file, _written(sink.getvalue().to_pybytes()), is_fine)

    def with_(column: str, values: pa.Array | list[Any]) -> pa.Table:
        return table.set_column(table.schema.get_field_index(column), column, [values])

    rows = table.num_rows
    for column in sorted(COLUMNS & {*table.column_names}):
        is_fine = column not in MUST
        is_fine |= "epochs" in file and column == "knn_top1"
        is_fine |= name == "references.parquet" and column != "reference"
        yield of(f"no {column}", table.drop_columns([column]), is_fine=is_fine)
        for kind, other in {
            "text": pa.array(["x"] * rows),
            "number": pa.array([0.5] * rows),
            "list": pa.array([[1]] * rows),
            "null": pa.nulls(rows),
            "bytes": pa.array([b"\xff"] * rows),
            "bad text": pa.array([b"\xff"] * rows).view(pa.string()),
        }.items():
            yield of(f"{column} as {kind}", with_(column, other), is_fine=True)
    for column in {"trial_id", "config", "seed", "status", "objective"} & {*table.column_names}:
        values = table[column].to_pylist()
        gap = pa.array([None, *values[1:]], table[column].type)
        yield of(f"a gap in {column}", with_(column, gap))
    sides = ("epochs", "histograms", "points", "hits", "references")
    is_side = name.startswith(sides) or ("parts/" in file and "trials" not in file)
    yield of("every row twice", pa.concat_tables([table, table]), is_fine=is_side)


def _written(data: bytes) -> Change:
    return lambda path: path.write_bytes(data) and None


def _instead(make: Change) -> Change:
    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


def _socket(path: Path) -> None:
    server, before = socket.socket(socket.AF_UNIX), os.getcwd()
    os.chdir(path.parent)  # a socket's path is short
    try:
        server.bind(path.name)
    finally:
        os.chdir(before)
        server.close()


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**30)
