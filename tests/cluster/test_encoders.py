"""Which encoders a real run leaves, whether it was interrupted or not, and what they are worth."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
import torch

import clsweep
from clsweep.errors import RequestError
from tests.cluster.conftest import Finished, start, wait_until
from tests.cluster.conftest import clsweep as command

WriteStudy = Callable[..., Path]

BASE = {
    "encoder": "conv4",
    "width": 8,
    "epochs": 3,
    "batch_size": 128,
    "flip_prob": 0,
    "precision": "fp32",
}
DCL = {"framework": "simclr", "loss": "dcl"}


def stored(out: Path) -> list[str]:
    """The files of encoders, whole or not."""
    folder = out / "encoders"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def best(trials: pd.DataFrame) -> list[str]:
    """What shall be stored: of each objective the best by the mean over both seeds, of equals the
    first, and what has a seed to come.
    """
    by = ["objective", "config"]
    means = trials.query("status == 'finished'").groupby(by)["knn_top1"].agg(["mean", "size"])
    whole = means.query("size == 2").reset_index().sort_values("config")
    whole = whole.sort_values("mean", ascending=False, kind="stable").groupby("objective").head(1)
    is_best = trials.set_index(by).index.isin(whole.set_index(by).index)
    is_open = trials.groupby(by)["trial_id"].transform("size") < 2
    wanted = trials[(is_best | is_open) & (trials["status"] == "finished")]
    return sorted(f"{trial_id}.safetensors" for trial_id in wanted["trial_id"])


def knn_top1(encoder: Any, row: dict[str, Any]) -> float:
    """The score of an encoder on the study's own yardstick."""
    from clsweep.data.availability import DataPlace
    from clsweep.data.datasets import load_splits
    from clsweep.train.images import on_device
    from clsweep.train.scores import score_encoder

    cpu, splits = torch.device("cpu"), load_splits(row, DataPlace())
    train, val = (on_device(split, splits.train, cpu) for split in (splits.train, splits.val))
    return score_encoder(encoder, train, val, row, last=False)[0]["knn_top1"]


def test_the_best_encoder_of_each_objective_is_kept_and_is_the_one_that_was_scored(
    finished: Finished,
) -> None:
    results, out = clsweep.open_results(finished.out), finished.out
    assert stored(out) == best(results.trials)
    checkpoints = {path.stem for path in (out / "checkpoints").iterdir()}
    trained = {Path(name).stem for name in stored(out) if not name.startswith("untrained")}
    assert checkpoints == trained, "an untrained encoder has none"
    for trial_id in sorted(checkpoints):
        assert results.checkpoint(trial_id)["state"]["epoch"] == 2
    with pytest.raises(RequestError, match=f"Stored: {min(checkpoints)}"):
        results.checkpoint("untrained-0000-s0")
    for trial_id in (name.removesuffix(".safetensors") for name in stored(out)):
        row = results.trials.query("trial_id == @trial_id").to_dict("records")[0]
        # one of 144 images is 0.7
        assert knn_top1(results.encoder(trial_id), row) == pytest.approx(row["knn_top1"], abs=0.8)


@pytest.mark.slow
def test_what_is_kept_may_change_between_two_sessions(
    write_study: WriteStudy, tmp_path: Path
) -> None:
    path, out = write_study(base={**BASE, "epochs": 1}, encoders={"keep": "all"}), tmp_path / "out"
    code, output = command("run", path, "--out", out, "--limit", 6)
    assert code == 0, output
    first = [f"{trial_id}.safetensors" for trial_id in clsweep.open_results(out).trials["trial_id"]]
    assert stored(out) == sorted(first)
    (out / "encoders" / "dcl-9999-s0.safetensors").write_bytes(
        b"of a trial that was stopped before its row"
    )
    (out / "encoders" / ".0123.tmp").write_bytes(b"half an encoder")
    code, output = command("run", path, "--out", out, "--set", "encoders.keep=none")
    assert code == 0, output
    trials = clsweep.open_results(out).trials
    assert len(trials) == 8
    assert stored(out) == sorted(first), "none: no further ones"
    code, output = command("run", path, "--out", out, "--set", "encoders.keep=best")
    assert code == 0, output
    assert "Nothing is left to run" in output
    assert stored(out) == best(trials[trials["trial_id"].isin([Path(name).stem for name in first])])


@pytest.mark.soak  # minutes: run when retention changes
def test_after_an_interruption_the_rule_still_holds(
    write_study: WriteStudy, tmp_path: Path
) -> None:
    path, out = write_study(base={**BASE, "epochs": 40}, seeds=[0, 1]), tmp_path / "out"
    process = start("run", path, "--out", out, "--max-concurrent", 2)
    wait_until(lambda: len(stored(out)) >= 2, "two encoders")
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=240)
    psutil.wait_procs(children, timeout=120)
    kept = clsweep.open_results(out).trials
    assert len(kept) < 8
    assert stored(out) == best(kept)
    code, output = command("run", path, "--out", out)
    assert code == 0, output
    assert stored(out) == best(clsweep.open_results(out).trials)


@pytest.mark.slow
def test_an_encoder_that_cannot_be_written_stops_the_study(
    write_study: WriteStudy, tmp_path: Path
) -> None:
    path, out = write_study(base={**BASE, "epochs": 0}, seeds=[0, 1]), tmp_path / "out"
    assert command("run", path, "--out", out, "--limit", 1)[0] == 0
    shutil.rmtree(out / "encoders")
    # No folder can be made where a link leads nowhere that exists; unlike a full disk, that is
    # easily arranged.
    (out / "encoders").symlink_to("/proc/nowhere/encoders")
    code, output = command("run", path, "--out", out)
    assert code == 2, output
    assert "encoders/" in output
    assert "cannot be written" in output
    assert "the same command continues it" in output
    assert "Traceback" not in output
    assert len(clsweep.open_results(out).trials) == 1
    (out / "encoders").unlink()
    code, output = command("run", path, "--out", out)
    assert code == 0, output
    trials = clsweep.open_results(out).trials
    assert trials["status"].tolist() == ["finished"] * len(trials)


@pytest.mark.slow
def test_the_first_of_two_workers_sends_the_encoder(
    write_study: WriteStudy, tmp_path: Path
) -> None:
    path = write_study(base=BASE, seeds=[0], space={}, objectives={"dcl": DCL})
    encoders = {}
    for workers in (1, 2):
        out = tmp_path / str(workers)
        code, output = command("run", path, "--out", out, "--set", f"resources.workers={workers}")
        assert code == 0, output
        encoders[workers] = clsweep.open_results(out).encoder("dcl-0000-s0").state_dict()
    assert set(encoders[1]) == set(encoders[2])
    for name, tensor in encoders[
        1
    ].items():  # steps in float32 carry the rounding of sums in another order along
        torch.testing.assert_close(encoders[2][name], tensor, rtol=1e-2, atol=5e-3)
