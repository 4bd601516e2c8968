"""Whole trials on a GPU: scored in every way, killed and resumed, with images that do not fit."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.contracts.attempts import assert_same
from tests.contracts.combinations import COMBINATIONS, CRITIC, PAIR_CASES, Config, small_config
from tests.pretended.trials import assert_near, cut_trial, own_trial, trial
from tests.train.test_own_trials import pictures, row_of, study

pytestmark = pytest.mark.usefixtures("one_thread", "nothing_loaded")

PARTS = COMBINATIONS["simclr-dcl-none-two"]
PLAIN = small_config(PARTS)
PROBE = {"probe_epochs": 2, "probe_batch_size": 16}
# Where the host waits in a trial, and why.
BEGINNING = {
    ("copy to the device", "train/images.py:_moved"): "the images, once for all trials",
    ("copy to the device", "train/images.py:_placed"): "their labels and statistics",
    ("copy to the device", "train/state.py:to_trial_device"): "the networks",
}
EPOCH = {("tolist", "train/loop.py:train_epoch"): "its mean losses, after the last step"}
SCORES = {
    ("copy from the device", "train/images.py:Images.labelled"): "which images have a label",
    ("item", "train/finite.py:are_finite"): "whether a score can be had at all",
    ("copy from the device", "train/accuracy.py:named_hits"): "which images are right",
    ("svd", "train/spectrum.py:rankme"): "whether it has converged",
    ("svd", "train/spectrum.py:centred_svdvals"): "the same",
    ("index by booleans", "train/spectrum.py:spectrum_decay"): "how many values are left",
    ("tolist", "train/diagnostics.py:_Sums.moments"): "the numbers of the epoch's row",
    ("tolist", "train/diagnostics.py:StepStatistics.histogram"): "its bars",
    ("tolist", "train/diagnostics.py:_taken"): "the diagnostics of the representation",
}
RIDGE = {("item", "train/probe.py:ridge_fit"): "whether the system could be solved"}
END = {
    ("copy from the device", "train/loop.py:_train_encoder"): "the encoder's weights",
    ("tolist", "train/loop.py:_train_encoder"): "mean and deviation of the channels",
}
ALWAYS = BEGINNING | EPOCH | SCORES | END
# Ways to score: what is changed, and where the host waits beside.
WAYS: dict[str, tuple[Config, dict[tuple[str, str], str]]] = {
    "ridge": ({}, RIDGE),
    "uniform": ({"knn_weights": "uniform"}, RIDGE),
    "projector": ({"feature_layer": "projector"}, RIDGE),
    "none": ({"linear_probe": "none"}, {}),
    "sgd": ({"linear_probe": "sgd", **PROBE}, {}),
    "sgd-augmented": ({"linear_probe": "sgd", "probe_views": "augmented", **PROBE}, {}),
    "sgd-lars": ({"linear_probe": "sgd", "probe_optimizer": "lars", **PROBE}, {}),
    "sgd_grid": (
        {"linear_probe": "sgd_grid", "probe_lr_grid": "0.1, 1", **PROBE},
        {
            ("copy from the device", "train/probe.py:sgd_grid_probe"): "labels, to hold out by",
            ("copy to the device", "train/probe.py:sgd_grid_probe"): "which rows are held out",
            ("item", "train/probe.py:sgd_grid_probe"): "which rate is the best",
        },
    ),
    "fine-tuned": (
        {"finetune": "sgd", "finetune_labels": "0.1, 1", "finetune_epochs": 1,
         "finetune_batch_size": 32},
        RIDGE | {
            ("copy from the device", "train/finetune.py:labelled_rows"): "labels, to choose by",
            ("copy from the device", "train/evaluation.py:_copy"): "weights, for a new encoder",
            ("copy to the device", "train/evaluation.py:_copy"): "the encoder that is tuned",
            ("copy to the device", "train/finetune.py:fine_tuned"): "the classifier on top",
            ("copy from the device", "train/finetune.py:_top1"): "which images are right",
        },
    ),
    "transfer": (
        {"transfer_dataset": "digits"},
        RIDGE | {("item", "train/evaluation.py:_score_images"): "how many classes there are"},
    ),
    "lidar": (
        {"lidar_views": 3},
        RIDGE | {
            ("linalg", "train/spectrum.py:lidar"): "whether it could be factored",
            ("svd", "train/spectrum.py:lidar"): "whether it has converged",
        },
    ),
    "t-SNE": (
        {"tsne_points": 12},
        RIDGE | {
            ("copy from the device", "train/diagnostics.py:tsne_points"): "the CPU computes it",
            ("tolist", "train/diagnostics.py:tsne_points"): "the points' classes",
        },
    ),
    "chunked": ({"chunk_size": 8}, RIDGE),
}  # fmt: skip
FAST = ("ridge", "sgd_grid")
CASES = [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in WAYS]


@pytest.mark.parametrize("way", CASES)
def test_a_trial_is_scored_as_on_a_cpu_and_waits_where_it_must(way, device):
    changes, beside = WAYS[way]
    config, num = small_config(PARTS, **changes), 120 if way in ("sgd_grid", "fine-tuned") else 40
    actual = device.call(trial, config, "cuda:0", num_images=num)
    assert_near(actual.made, trial(config, "cpu", num_images=num).made)
    assert {*actual.log.waits} == {*ALWAYS, *beside}
    assert actual.log.waits["tolist", "train/loop.py:train_epoch"] == config["epochs"]
    num_tuned = 2 if way == "fine-tuned" else 0  # of two shares; weight and bias
    assert actual.log.waits["copy to the device", "train/finetune.py:fine_tuned"] == 2 * num_tuned
    assert actual.log.draws == actual.log.pageable == Counter()


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_no_feature_is_rounded_to_tf32_whatever_the_trial_trains_with(precision, device):
    config = small_config(PARTS, precision=precision)
    actual = device.call(trial, config, "cuda:0", test=True)
    assert actual.rounds == {False}
    assert actual.made.result["status"] == "finished"
    plain = trial(PLAIN, "cpu", test=True).made
    assert actual.made.result.keys() == plain.result.keys()
    assert actual.made.rows[-1]["train_loss"] == pytest.approx(
        plain.rows[-1]["train_loss"], rel=0.05
    )
    scale = {("item", "train/loop.py:_train")} if precision == "fp16" else set()
    assert {*actual.log.waits} == {*ALWAYS, *RIDGE, *scale}


# Killed within an epoch, and gone on.

FIRST = "moco-dcl-dimcl-core"
CUT = {name: small_config(COMBINATIONS[name]) for name in (
    FIRST, "byol-cosine-dimcl-all_pairs", "swav-soft_cross_entropy-none-multicrop",
    "dino-soft_cross_entropy-none-two", "lejepa-mse-sigreg-two", "nnclr-infonce-barlow-two",
)} | {str(changes): small_config(PARTS, **changes) for changes in (
    {"precision": "bf16"}, {"precision": "fp16"}, {"optimizer": "lars"},
    {"optimizer": "lars", "precision": "fp16"}, {"optimizer": "adamw"}, {"chunk_size": 8},
)}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "at"),
    [(FIRST, (1, 1)), *(pytest.param(name, (2, 1), marks=pytest.mark.slow) for name in CUT)],
)
def test_a_trial_that_is_cut_within_an_epoch_ends_undisturbed(name, at, device):
    expected = device.call(trial, CUT[name], "cuda:0").made
    assert_same(device.call(cut_trial, CUT[name], "cuda:0", at).made, expected)


# Images.


@pytest.mark.parametrize("changes", [
    {}, pytest.param({"chunk_size": 8}, marks=pytest.mark.slow),
], ids=str)  # fmt: skip
def test_images_that_do_not_fit_give_the_same(changes, device):
    """They lie on the host: a thread reads them into pinned memory while the device computes."""
    config = small_config(PARTS, **changes)
    fitting, read = (device.call(trial, config, "cuda:0", fits=fits) for fits in (True, False))
    assert_same(read.made, fitting.made)
    images = ("copy to the device", "train/images.py:_moved")
    assert {*fitting.log.waits} - {*read.log.waits} == {images}
    assert read.log.pageable == Counter()


@pytest.mark.slow
def test_images_of_different_sizes(tmp_path, device):
    resolved = study(tmp_path, pictures(tmp_path), {"precision": "fp32"})
    given: dict[str, Any] = {"place": resolved.sections.dataset.place, "num_images": 0}
    config = row_of(resolved)
    actual = device.call(trial, config, "cuda:0", **given)
    assert_near(actual.made, trial(config, "cpu", **given).made)
    colours = ("copy to the device", "data/jitter.py:_channels")  # once for all trials
    assert {*actual.log.waits} - {colours} <= {*ALWAYS, *RIDGE}
    assert actual.log.draws == actual.log.pageable == Counter()


# Parts of the user's own.


@pytest.mark.slow
def test_a_loss_of_ones_own(tmp_path, device):
    rest = "(z1_ND - z2_ND).square().mean()"
    actual = device.call(own_trial, tmp_path, rest, "cuda:0")
    assert_near(actual.made, own_trial(tmp_path, rest, "cpu").made)
    assert {*actual.log.waits} <= {*ALWAYS, *RIDGE}


# Pairs of vectors.


@pytest.mark.parametrize("name", [
    "critic", *(pytest.param(name, marks=pytest.mark.slow) for name in PAIR_CASES),
])  # fmt: skip
def test_mutual_information(name, device):
    config = CRITIC if name == "critic" else PAIR_CASES[name] | {"estimate_batches": 5}
    actual = device.call(trial, config, "cuda:0")
    assert_near(actual.made, trial(config, "cpu").made)
    assert {*actual.log.waits} == {
        ("copy to the device", "train/mutual_information.py:_begun"),  # the critic
        ("item", "train/mutual_information.py:train_critic"),  # an epoch's mean loss
        ("item", "train/mutual_information.py:mi_estimate"),
    }
    assert actual.log.draws == actual.log.pageable == Counter()
