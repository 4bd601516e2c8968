"""Scores of a trained network on digits, each against a loop of its own."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torchvision.transforms.v2.functional import resize

from clsweep.catalog import DATASET, METRIC
from clsweep.data.augment import Recipe, apply, draw_views
from clsweep.data.datasets import load_splits
from clsweep.data.locations import DataPlace
from clsweep.model.encoders import conv4, layer_of, resnet18
from clsweep.train import evaluation, finetune, loop
from clsweep.train.accuracy import in_percent
from clsweep.train.checkpoints import unpack_checkpoint
from clsweep.train.evaluation import augmented_features, score_encoder, score_reference, transfer_of
from clsweep.train.finetune import Network, fine_tuned, labelled_rows
from clsweep.train.images import Images, on_device, scored_images
from clsweep.train.knn import uniform_knn_scores
from clsweep.train.loop import train_trial
from clsweep.train.probe import ridge_probe
from clsweep.train.state import derived_seed
from tests.contracts.attempts import MemoryStore, assert_same, attempt
from tests.contracts.combinations import CASES, COMBINATIONS, few_images, small_config, some_digits

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
CONFIG = small_config(COMBINATIONS["simclr-dcl-none-two"])
SUPERVISED = small_config(COMBINATIONS["supervised-cross_entropy-none-two"])
FINE = {"finetune": "sgd", "finetune_labels": "0.1, 1", "finetune_lr": 0.05, "finetune_epochs": 3,
        "finetune_batch_size": 32, "finetune_weight_decay": 0.0}  # fmt: skip


def encoder() -> Any:
    torch.manual_seed(0)
    return conv4(width=4).eval()


@torch.no_grad()
def on_pixels(network: nn.Module, images: Images) -> Tensor:
    """Features by torch alone, all images at once."""
    pixels = images.pixels_NHWC[images.rows_N].permute(0, 3, 1, 2).float() / 255
    x = (pixels - images.mean_1C11) / images.std_1C11
    return network.eval()(x.expand(-1, 3, -1, -1))


# Which images are right.


def test_hits_are_those_of_scikit_learn_image_by_image():
    network, train, val = encoder(), some_digits(400), some_digits(301)
    config = {**CONFIG, "knn_k": 5, "knn_temperature": 0.1, "probe_l2": 1e-3}
    values, _, rows = score_encoder(network, train, val, config, last=True)
    bank, query = (on_pixels(network, images).double().numpy() for images in (train, val))
    labels = train.labels_N.numpy(), val.labels_N.numpy()
    scaler = StandardScaler().fit(bank)
    ridge = RidgeClassifier(alpha=1e-3 * len(bank)).fit(scaler.transform(bank), labels[0])
    knn = KNeighborsClassifier(5, metric="cosine", weights=lambda d: np.exp((1 - d) / 0.1))
    knn.fit(bank, labels[0])
    expected = {
        "linear_top1": ridge.predict(scaler.transform(query)) == labels[1],
        "knn_top1": knn.predict(query) == labels[1],
    }
    hits = {row["metric"]: row for row in rows}
    assert {*expected} < {*hits}
    for name, row in hits.items():
        right = np.unpackbits(np.frombuffer(row["bits"], np.uint8))
        assert (row["num_images"], len(row["bits"])) == (301, 38)
        assert values[name] == pytest.approx(100 * right.sum() / 301, abs=1e-12)
        if name in expected:
            assert (right[:301] != expected[name]).sum() <= 1
            assert 40 < values[name] < 99


def test_images_have_a_digest_of_their_own_and_keep_it():
    splits = load_splits(few_config := {**CONFIG, "dataset": "digits"}, DataPlace())
    actual = [
        scored_images(split, splits, few_config | more, CPU).digest
        for split, more in ((splits.val, {}), (splits.val, {"view_size": 4}), (splits.test, {}))
    ]
    assert actual[0] == actual[1] != actual[2]
    other = {**few_config, "dataset": "synthetic"}
    assert scored_images(splits.val, splits, other, CPU).digest not in actual


def test_a_metric_of_ones_own_may_say_which_images_are_right(monkeypatch):
    def zeros(*arrays: Tensor, **_: Any) -> dict[str, Tensor]:
        return {"knn_top1": (arrays[3] == 0)[:num]}

    row = replace(METRIC["knn_top1"], part=None, impl="own", owns=())
    monkeypatch.setattr(evaluation, "METRICS", [row])
    monkeypatch.setattr(evaluation, "implementation", lambda _: zeros)
    num, images = 40, (some_digits(200), some_digits(40))
    actual = score_encoder(encoder(), *images, CONFIG, last=True)
    assert actual.values["knn_top1"] == 100 * int((images[1].labels_N == 0).sum()) / 40
    num = 1
    with pytest.raises(LookupError, match="outcome of each of 40 images, given 1"):
        score_encoder(encoder(), *images, CONFIG, last=True)


# Layers.


def test_layers_are_what_their_modules_give():
    network, x = resnet18(stem="small").eval(), torch.rand(2, 3, 16, 16)
    with torch.no_grad():
        maps = network.relu(network.bn1(network.conv1(x)))
        for name in ("layer1", "layer2", "layer3", "layer4"):
            maps = getattr(network, name)(maps)
            expected = maps.mean(dim=(2, 3))
            torch.testing.assert_close(layer_of(network, None, name)(x), expected)
        projector = nn.Linear(512, 5)
        torch.testing.assert_close(
            layer_of(network, projector, "projector")(x), projector(expected)
        )
    assert layer_of(network, projector, "encoder") is network
    with pytest.raises(LookupError, match="projector"):
        layer_of(network, None, "projector")


def test_scores_are_of_the_layer_that_is_asked_for():
    """5-NN of the output, as DCL Table 11 has it."""
    network, projector = encoder(), nn.Linear(16, 6)
    train, val = some_digits(200), some_digits(300)
    config = {**CONFIG, "feature_layer": "projector", "knn_weights": "uniform", "knn_k": 5}
    trained = SimpleNamespace(scored=(network, projector))
    scores, features, _ = score_encoder(
        network, train, val, config, last=False, objective=cast(Any, trained)
    )
    whole = nn.Sequential(network, projector)
    expected = [on_pixels(whole, images) for images in (train, val)]
    torch.testing.assert_close(features, expected[1], rtol=1e-4, atol=1e-5)
    arrays = expected[0], train.labels_N, expected[1], val.labels_N
    of_knn = in_percent(uniform_knn_scores(*arrays, num_classes=10, knn_k=5))
    assert {name: scores[name] for name in of_knn} == pytest.approx(of_knn, abs=0.4)


# The classifier of a supervised trial.


def test_a_supervised_trial_is_scored_by_its_own_classifier(monkeypatch):
    few = partial(few_images, num_images=300)
    monkeypatch.setattr(loop, "load_splits", few)
    store = MemoryStore()
    result = attempt({**SUPERVISED, "epochs": 6, "lr": 0.2}, store, keep_end=True).result
    state = unpack_checkpoint(store.saved[-1])["state"]["objective"]
    network, classifier = encoder(), nn.Linear(16, 10)
    network.load_state_dict(result["encoder"])
    classifier.load_state_dict({name: state[f"classifier.{name}"] for name in ("weight", "bias")})
    splits = few(SUPERVISED, DataPlace())
    val = on_device(splits.val, splits.train, CPU)
    guessed = on_pixels(nn.Sequential(network, classifier), val).argmax(dim=1)
    expected = 100 * (guessed == val.labels_N).double().mean().item()
    assert result["classifier_top1"] == pytest.approx(expected, abs=1e-6)
    assert 15 < expected < 100
    assert "classifier_top1" not in train_trial({**CONFIG, "epochs": 1}, lambda _: None)


# Augmented views.


def drawn_views(images: Images, rows: Tensor, generator: torch.Generator) -> Tensor:
    """Crops and flips of some images."""
    recipe = Recipe(crop_scale=0.08, jitter_prob=0, gray_prob=0, blur_prob=0, output_size=8)
    pixels = images.pixels_NHWC[images.rows_N].permute(0, 3, 1, 2).contiguous()
    views = apply(pixels[rows], draw_views(recipe, len(rows), 8, generator))
    return ((views - images.mean_1C11) / images.std_1C11).expand(-1, 3, -1, -1)


def test_augmented_features_are_of_crops_and_flips_drawn_anew():
    images, network = some_digits(60), encoder()
    first, again, other = (
        augmented_features(network, images, {"seed": 3}, epoch) for epoch in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    plain = on_pixels(network, images)
    generator = torch.Generator().manual_seed(derived_seed(3, "probe views of epoch 0"))
    x = drawn_views(images, torch.arange(60), generator)
    with torch.no_grad():
        torch.testing.assert_close(first, network.eval()(x), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(first, plain)


# Fine-tuning.


def test_shares_of_the_labels_are_stratified_and_always_the_same():
    labels = torch.from_numpy(load_digits().target)
    rows = labelled_rows(labels, 0.1)
    assert len(rows) == 180
    assert labels[rows].bincount().tolist() == pytest.approx(
        (labels.bincount() / 10).tolist(), abs=1
    )
    _, expected = train_test_split(
        np.arange(1797), test_size=180, stratify=labels.numpy(), random_state=0
    )
    assert rows.tolist() == sorted(expected)
    assert labelled_rows(labels, 1.0).tolist() == list(range(1797))


def test_steps_of_fine_tuning_by_a_loop():
    """Nesterov's on a cosine; a rest of one image makes no step."""
    images, network = some_digits(65), encoder()
    given = Network(copy=lambda: copy.deepcopy(network), bank=images, query=images, at_once=64)
    rows = torch.arange(65)
    tuned = fine_tuned(
        given, rows, num_classes=10, finetune_lr=0.1, finetune_epochs=2, finetune_batch_size=32,
        finetune_weight_decay=0.01, seed=4,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(derived_seed(4, "fine-tuning"))
    model = nn.Sequential(copy.deepcopy(network), nn.Linear(16, 10)).train()
    for p in model[1].parameters():
        nn.init.zeros_(p)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True
    )
    schedule = lr_scheduler.CosineAnnealingLR(optimizer, 4)
    for _ in range(2):
        order = torch.randperm(65, generator=generator)
        for chosen in (order[:32], order[32:64]):
            x = drawn_views(images, chosen, generator)
            optimizer.zero_grad()
            F.cross_entropy(model(x), images.labels_N[chosen]).backward()
            optimizer.step()
            schedule.step()
    for mine, theirs in zip(tuned.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(
        network.state_dict().values(), encoder().state_dict().values(), strict=True
    )), "the trial's own encoder stays as it is"  # fmt: skip


def test_more_labels_and_a_trial_beside(monkeypatch):
    few = partial(few_images, num_images=300)
    monkeypatch.setattr(loop, "load_splits", few)
    plain = train_trial({**CONFIG, "epochs": 1}, lambda _: None)
    tuned = train_trial({**CONFIG, **FINE, "epochs": 1, "finetune_epochs": 12}, lambda _: None)
    assert "finetune_1pct_top1" not in tuned
    assert tuned["finetune_100pct_top1"] > tuned["finetune_10pct_top1"] + 5
    assert tuned["finetune_100pct_top1"] > 40
    same = ("knn_top1", "linear_top1", "train_loss")
    assert {name: tuned[name] for name in same} == {name: plain[name] for name in same}
    assert all(torch.equal(tuned["encoder"][n], x) for n, x in plain["encoder"].items())


# Another data set.


@pytest.fixture
def small_transfer(monkeypatch):
    """A trial that is scored on another data set, of 300 images; its splits."""
    monkeypatch.setitem(DATASET, "synthetic", replace(DATASET["synthetic"], num_train=300))
    config = {**CONFIG, "transfer_dataset": "synthetic"}
    return config, load_splits(config, DataPlace())


@pytest.mark.parametrize("test", [False, True])
def test_transfer_is_the_probe_on_the_other_data_set(test, small_transfer):
    """Images of 32 pixels and three channels, resized to the trial's 8 and normalised as its own,
    by torchvision and a call of the probe.
    """
    config, splits = small_transfer
    transfer = transfer_of(config, splits, DataPlace(), CPU, test=test)
    train, val = (on_device(s, splits.train, CPU) for s in (splits.train, splits.val))
    network = encoder()
    scores, *_ = score_encoder(network, train, val, config, last=True, transfer=transfer)

    sizes = {"image_size": 32, "num_train": 300, "num_classes": 10}
    other = load_splits({**config, **sizes, "dataset": "synthetic"}, DataPlace())
    scored = other.test if test else other.val

    @torch.no_grad()
    def features(split: Any) -> Tensor:
        pixels = torch.from_numpy(split.images[split.rows]).permute(0, 3, 1, 2).float() / 255
        small = resize(pixels, [8, 8], antialias=True)
        return network.eval()((small - train.mean_1C11) / train.std_1C11)

    expected = in_percent(ridge_probe(
        features(other.train), torch.from_numpy(other.train.labels),
        features(scored), torch.from_numpy(scored.labels), num_classes=10, probe_l2=1e-3,
    ))  # fmt: skip
    assert scores["transfer_linear_top1"] == pytest.approx(expected["linear_top1"], abs=1e-6)
    assert scores["transfer_linear_top1"] != scores["linear_top1"]
    assert transfer_of(CONFIG, splits, DataPlace(), CPU) is None


# The size of the views.


@pytest.mark.parametrize(("labels", "shares"), [("0.01, 0.1", []), ("0.1, 1", [1.0])])
def test_fine_tuning_elsewhere_takes_all_labels_or_does_not_run(
    labels, shares, small_transfer, monkeypatch
):
    tuned: list[float] = []

    def fine_tuned(network: Any, rows_R: Tensor, **_: Any) -> nn.Module:
        if len(network.bank) != len(train):
            tuned.append(len(rows_R) / len(network.bank))
        return nn.Sequential(network.copy(), nn.Linear(16, 10)).eval()

    monkeypatch.setattr(finetune, "fine_tuned", fine_tuned)
    config, splits = small_transfer
    config |= FINE | {"finetune_labels": labels}
    train, val = (on_device(s, splits.train, CPU) for s in (splits.train, splits.val))
    transfer = transfer_of(config, splits, DataPlace(), CPU)
    scores, *_ = score_encoder(encoder(), train, val, config, last=True, transfer=transfer)
    assert tuned == shares
    assert ("transfer_finetune_100pct_top1" in scores) == bool(shares)


@pytest.mark.parametrize("size", [5, 20])
def test_images_are_scored_at_the_size_of_the_views(size):
    images = some_digits(20)
    large = replace(images, view_size=size)
    pixels = images.pixels_NHWC[images.rows_N].permute(0, 3, 1, 2).float() / 255
    expected = (resize(pixels, [size, size], antialias=True) - images.mean_1C11) / images.std_1C11
    actual = large.plain(torch.arange(20))
    torch.testing.assert_close(actual, expected.expand(-1, 3, -1, -1), rtol=1e-4, atol=1e-5)
    assert torch.equal(
        replace(images, view_size=8).plain(torch.arange(20)), images.plain(torch.arange(20))
    )


# Scores without training.

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
    config = {"reference": "raw_pixels", **YARDSTICK, **split_of}
    assert score_reference(config, place=DataPlace())["knn_top1"] == pytest.approx(expected)


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


@pytest.mark.parametrize("epochs", [0, 2])
def test_the_test_split_is_scored_with_the_same_yardstick(monkeypatch, epochs):
    """As a validation split it has the same scores; and it changes nothing else."""
    config = {**CASES["simclr-dcl-none-two"], "epochs": epochs}
    monkeypatch.setattr(loop, "load_splits", few_images)
    plain, scored = attempt(config), attempt(config, test=True)
    tests = {name: value for name, value in scored.result.items() if name.startswith("test_")}
    scored.result = {name: value for name, value in scored.result.items() if name not in tests}
    hits = scored.result["hits"]
    scored.result["hits"] = [row for row in hits if row["split"] == "validation"]
    assert_same(scored, plain)

    test = few_images(config, DataPlace()).test
    monkeypatch.setattr(loop, "load_splits", lambda *args: replace(few_images(*args), val=test))
    result = attempt(config).result
    assert [row for row in hits if row["split"] == "test"] == [
        {**row, "split": "test"} for row in result["hits"]
    ]
    metrics = [name.removeprefix("test_") for name in tests]
    assert {"knn_top1", "knn_top5", "linear_top1", "linear_top5"} <= {*metrics}
    assert tests == {f"test_{name}": result[name] for name in metrics}
    assert tests != {f"test_{name}": plain.result[name] for name in metrics}
