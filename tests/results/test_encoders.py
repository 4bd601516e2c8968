"""Encoders in the results folder: whole files or none, and which of them stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clsweep.errors import RequestError
from clsweep.results.encoders import pack, unpack
from clsweep.results.kept import KeptFiles
from clsweep.results.store import ResultsFolder

WEIGHTS = {"conv.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "bn.num_batches_tracked": np.array(7)}
ABOUT = {"trial_id": "dcl-0000-s0", "encoder": "conv4", "width": 8, "normalisation": {"mean": [0.5], "std": [0.2]}}

Row = dict[str, Any]
Keep = Callable[..., KeptFiles]


def row(trial_id: str, score: float | None, **changes: Any) -> Row:
    status = "finished" if score is not None else "failed"
    return {"trial_id": trial_id, "objective": trial_id[0], "status": status, "knn_top1": score, **changes}


@pytest.fixture
def folder(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder(str(tmp_path / "out"))


@pytest.fixture
def keep(folder: ResultsFolder) -> Keep:
    def rule(keep: str, *rows: Row, mode: str = "max") -> KeptFiles:
        return KeptFiles(folder, rows, encoders=keep, checkpoints="none", metric="knn_top1", mode=mode)

    return rule


def store(folder: ResultsFolder, *trial_ids: str) -> None:
    for trial_id in trial_ids:
        folder.add_encoder(trial_id, b"weights")


def test_what_is_packed_is_unpacked() -> None:
    column_major = {**WEIGHTS, "conv.weight": np.asfortranarray(WEIGHTS["conv.weight"])}
    weights, about = unpack(pack(column_major, ABOUT), "here")
    assert about == ABOUT
    assert set(weights) == set(WEIGHTS)
    for name, array in WEIGHTS.items():
        assert weights[name].dtype == array.dtype
        np.testing.assert_array_equal(weights[name], array)


@pytest.mark.parametrize("length", [0, 5, 40, -1])
def test_a_damaged_file_is_named(length: int) -> None:
    with pytest.raises(RequestError, match=r"out/x\.safetensors: expected an encoder of clsweep, found a damaged file"):
        unpack(pack(WEIGHTS, ABOUT)[:length], "out/x.safetensors")


def test_a_file_of_somebody_else_is_refused() -> None:
    from safetensors.numpy import save

    with pytest.raises(RequestError, match="expected an encoder of clsweep"):
        unpack(save(WEIGHTS), "x.safetensors")


def test_an_encoder_is_stored_whole_or_not_at_all(folder: ResultsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    store(folder, "a-0")
    assert folder.encoders() == ["a-0"]
    assert folder.encoder("a-0") == b"weights"

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RequestError, match=r"a-1\.safetensors: cannot be written: .*No space left"):
        store(folder, "a-1")
    assert [path.name for path in Path(folder.path, "encoders").iterdir()] == ["a-0.safetensors"]


def test_the_best_of_every_objective_stays(folder: ResultsFolder, keep: Keep) -> None:
    kept = keep("best")
    for trial in (row("a-0", 70.0), row("a-1", 80.0), row("b-0", 10.0), row("a-2", 75.0), row("b-1", float("nan"))):
        store(folder, trial["trial_id"])
        kept.record(trial)
    assert folder.encoders() == ["a-1", "b-0"]


def test_a_lower_value_is_better_where_the_study_says_so(folder: ResultsFolder, keep: Keep) -> None:
    store(folder, "a-0", "a-1")
    keep("best", row("a-0", 1.0), row("a-1", 2.0), mode="min").settle()
    assert folder.encoders() == ["a-0"]


@pytest.mark.parametrize("order", [("a-0", "a-1"), ("a-1", "a-0")])
def test_of_equals_the_first_stays_in_whatever_order_they_end(
    folder: ResultsFolder, keep: Keep, order: tuple[str, str]
) -> None:
    kept = keep("best")
    for trial_id in order:
        store(folder, trial_id)
        kept.record(row(trial_id, 50.0))
    assert folder.encoders() == ["a-0"]


def test_a_trial_under_way_keeps_its_encoder_until_its_row_is_there(folder: ResultsFolder, keep: Keep) -> None:
    kept = keep("best", row("a-0", 90.0))
    store(folder, "a-0", "a-1", "a-2")
    kept.record(row("a-1", 80.0))
    assert folder.encoders() == ["a-0", "a-2"]


@pytest.mark.parametrize("rule", ["all", "best", "none"])
def test_a_failed_trial_keeps_none(folder: ResultsFolder, keep: Keep, rule: str) -> None:
    store(folder, "a-0", "a-1")
    kept = keep(rule, row("a-0", 50.0))
    kept.record(row("a-1", None))
    assert folder.encoders() == ["a-0"]


@pytest.mark.parametrize(("rule", "left"), [("all", ["a-0", "a-1"]), ("best", ["a-1"]), ("none", ["a-0", "a-1"])])
def test_the_rule_holds_again_after_an_interruption(
    folder: ResultsFolder, keep: Keep, rule: str, left: list[str]
) -> None:
    store(folder, "a-0", "a-1", "a-2", "b-0")  # a-2 has no row yet; b-0 failed after it had sent its encoder
    unfinished = Path(folder.path, "encoders", ".0123.tmp")
    unfinished.write_bytes(b"half")
    keep(rule, row("a-0", 60.0), row("a-1", 70.0), row("b-0", None)).settle()
    assert folder.encoders() == left
    assert not unfinished.exists()


def test_the_best_is_among_those_that_are_stored(folder: ResultsFolder, keep: Keep) -> None:
    store(folder, "a-1")  # a-0 ran while none were kept
    keep("best", row("a-0", 90.0), row("a-1", 80.0)).settle()
    assert folder.encoders() == ["a-1"]
