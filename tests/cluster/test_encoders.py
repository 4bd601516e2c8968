"""Which encoders a real run leaves, and what they are worth."""

from pathlib import Path

import pytest
import torch

import clsweep
from clsweep.errors import RequestError


def stored(out):
    """The files of encoders, whole or not."""
    folder = out / "encoders"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def best(trials):
    """What shall be stored: of each objective the best by the mean over both seeds, of equals the
    first.
    """
    finished = trials.query("status == 'finished'")
    means = finished.groupby(["objective", "config"])["knn_top1"].mean().reset_index()
    first = means.loc[means.groupby("objective")["knn_top1"].idxmax()]
    wanted = finished.merge(first[["objective", "config"]])
    return sorted(f"{trial_id}.safetensors" for trial_id in wanted["trial_id"])


def knn_top1(encoder, row):
    """The score of an encoder on the study's own yardstick."""
    from clsweep.data.datasets import load_splits
    from clsweep.data.locations import DataPlace
    from clsweep.train.evaluation import score_encoder
    from clsweep.train.images import on_device

    cpu, splits = torch.device("cpu"), load_splits(row, DataPlace())
    train, val = (on_device(split, splits.train, cpu) for split in (splits.train, splits.val))
    return score_encoder(encoder, train, val, row, last=False)[0]["knn_top1"]


@pytest.mark.slow
def test_the_best_encoder_of_each_objective_is_kept_and_is_the_one_that_was_scored(finished):
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
