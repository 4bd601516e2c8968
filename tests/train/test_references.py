"""Scores without training, against scikit-learn and against a trial of no epochs."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from clsweep.data.datasets import load_splits
from clsweep.data.found import DataPlace
from clsweep.train.loop import train_trial
from clsweep.train.scores import score_reference

pytestmark = pytest.mark.usefixtures("one_thread")

SPLIT: dict[str, object] = {"dataset": "digits", "val_fraction": 0.2, "image_size": 8}
SPLIT |= {"num_train": 1437, "num_classes": 10}
YARDSTICK = {
    **SPLIT, "feature_layer": "encoder", "knn_weights": "similarity", "knn_k": 1,
    "knn_temperature": 0.1, "linear_probe": "none", "finetune": "none", "transfer_dataset": "none",
}  # fmt: skip
SGD = {
    "linear_probe": "sgd", "probe_lr": 0.25, "probe_epochs": 3, "probe_schedule": "cosine",
    "probe_optimizer": "sgd", "probe_momentum": 0.9, "probe_weight_decay": 0.0, "probe_gamma": 0.1,
    "probe_batch_size": 256, "probe_views": "plain",
}  # fmt: skip


@pytest.mark.parametrize("val_fraction", [0.2, None], ids=["validation", "test"])
def test_one_neighbour_of_the_raw_pixels_is_scikit_learns(val_fraction):
    split_of = SPLIT | {"val_fraction": val_fraction}
    splits = load_splits(split_of, DataPlace())
    train, val = splits.train, splits.test if val_fraction is None else splits.val
    pixels = [x.images[x.rows].reshape(len(x), -1).astype(float) / 255 for x in (train, val)]
    mean, std = pixels[0].mean(), pixels[0].std()
    bank, queries = ((x - mean) / std for x in pixels)
    oracle = KNeighborsClassifier(1, metric="cosine").fit(bank, train.labels)
    expected = 100 * np.mean(oracle.predict(queries) == val.labels)
    asked = {"reference": "raw_pixels", **YARDSTICK, **split_of}
    assert score_reference(asked, place=DataPlace())["knn_top1"] == pytest.approx(expected)


@pytest.mark.parametrize("probe", [{"linear_probe": "ridge", "probe_l2": 1e-3},
                                   SGD, {**SGD, "probe_views": "augmented"}],
                         ids=["ridge", "sgd", "augmented"])  # fmt: skip
def test_an_untrained_encoder_scores_as_a_trial_of_no_epochs(probe):
    encoder = {"encoder": "conv4", "width": 4, "seed": 3, "view_size": 8, **YARDSTICK, **probe}
    encoder["knn_k"] = 20
    scores = score_reference({"reference": "untrained", **encoder}, place=DataPlace())
    trial = train_trial(
        {**encoder, "epochs": 0, "tsne_points": 0, "linear_every": "last"}, lambda _: None
    )
    assert scores == {name: trial[name] for name in scores}
    labelled = {"knn_top1", "knn_top5", "linear_top1", "linear_top5"}
    assert labelled | {"rankme", "alpha_req"} == set(scores)


def test_raw_pixels_need_no_seed():
    probe = {**SGD, "probe_views": "augmented", "probe_epochs": 4}
    scores = score_reference({"reference": "raw_pixels", **YARDSTICK, **probe}, place=DataPlace())
    assert scores["linear_top1"] > 40
