"""The kNN score against scikit-learn and a loop; scores without labels against numpy and scipy,
their invariances, and data without labels.

Shapes: N rows of the bank, M queries, D features.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from clsweep.model.encoders import conv4
from clsweep.train import evaluate, loop
from clsweep.train.evaluate import alpha_req, in_percent, lidar, rankme, spectrum_decay, top_hits
from clsweep.train.images import Images
from clsweep.train.loop import train_trial
from clsweep.train.scores import score_encoder
from tests.contracts.combinations import COMBINATIONS, few_images, small_config, some_digits

pytestmark = pytest.mark.usefixtures("one_thread")


def percent(score: Any) -> Any:
    return lambda *arrays, **options: in_percent(score(*arrays, **options))


knn_scores, uniform_knn_scores, classifier_scores = map(
    percent, (evaluate.knn_scores, evaluate.uniform_knn_scores, evaluate.classifier_scores)
)
Features = tuple[Tensor, Tensor, Tensor, Tensor]


def clusters(*, num_classes: int = 8) -> Features:
    """200 rows of a bank and 150 queries around one centre a class, so noisy that no score is 0 or
    100 %.
    """
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(num_classes, 6, generator=generator)

    def sample(num_rows: int) -> tuple[Tensor, Tensor]:
        labels = torch.randint(num_classes, (num_rows,), generator=generator)
        return 3 * (centres[labels] + 1.5 * torch.randn(num_rows, 6, generator=generator)), labels

    return *sample(200), *sample(150)


def loop_scores(
    features: Features, *, num_classes: int, k: int, temperature: float
) -> dict[str, float]:
    """Wu et al. (2018) query by query in float64. Needs five classes with votes, or the top five
    are not defined.
    """
    bank, bank_labels, queries, labels = (x.numpy() for x in features)
    top1 = top5 = 0
    for query, label in zip(queries.astype(np.float64), labels, strict=True):
        similarity = [
            row @ query / math.sqrt(row @ row * (query @ query)) for row in bank.astype(np.float64)
        ]
        votes = [0.0] * num_classes
        for row in sorted(range(len(bank)), key=similarity.__getitem__)[-k:]:
            votes[bank_labels[row]] += math.exp(similarity[row] / temperature)
        assert sum(vote > 0 for vote in votes) >= min(5, num_classes)
        ranked = sorted(range(num_classes), key=votes.__getitem__, reverse=True)
        top1 += ranked[0] == label
        top5 += label in ranked[:5]
    return {"knn_top1": 100 * top1 / len(labels), "knn_top5": 100 * top5 / len(labels)}


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.1), (7, 0.02), (80, 0.1), (200, 1.0)])
def test_top1_is_scikit_learns_and_both_are_those_of_a_loop(k, temperature):
    features = clusters()
    bank, bank_labels, queries, labels = (x.double().numpy() for x in features)
    classifier = KNeighborsClassifier(
        k,
        metric="cosine",
        algorithm="brute",
        weights=lambda distance: np.exp((1 - distance) / temperature),
    )
    top1 = 100 * classifier.fit(bank, bank_labels).score(queries, labels)
    assert 15 < top1 < 85, "the example must be neither trivial nor hopeless"
    scores = knn_scores(*features, num_classes=8, knn_k=k, knn_temperature=temperature)
    assert scores["knn_top1"] == pytest.approx(top1, abs=1e-9)
    if k >= 80 and temperature > 0.02:  # fewer are no five classes
        expected = loop_scores(features, num_classes=8, k=k, temperature=temperature)
        assert scores == pytest.approx(expected, abs=1e-9)
        assert scores["knn_top5"] < 100


def test_fewer_than_five_classes_make_top5_certain():
    scores = knn_scores(*clusters(num_classes=3), num_classes=3, knn_k=50)
    assert scores["knn_top1"] < 100
    assert scores["knn_top5"] == 100


@pytest.mark.parametrize("chunk_elements", [1, 200 * 7, 200 * 149])
def test_chunks_do_not_show(monkeypatch, chunk_elements):
    features = clusters()
    expected = knn_scores(*features, num_classes=8, knn_k=50)
    monkeypatch.setattr(evaluate, "CHUNK_ELEMENTS", chunk_elements)
    assert knn_scores(*features, num_classes=8, knn_k=50) == expected


def test_small_temperature_does_not_overflow():
    """exp(1 / 0.005) is infinite in float32; with so sharp votes the nearest neighbour decides
    alone.
    """
    features = clusters()
    nearest = knn_scores(*features, num_classes=8, knn_k=1)
    sharp = knn_scores(*features, num_classes=8, knn_k=50, knn_temperature=1e-5)
    assert sharp["knn_top1"] == nearest["knn_top1"]


@pytest.mark.parametrize("which", [0, 2])
def test_a_diverged_encoder_has_no_score(which):
    for value in (math.nan, math.inf, -math.inf):
        features = clusters()
        features[which][3, 1] = value
        with pytest.raises(ValueError, match="not finite"):
            knn_scores(*features, num_classes=8, knn_k=5)


def test_classes_without_a_vote_are_no_guesses():
    generator = torch.Generator().manual_seed(0)
    bank, queries = (torch.randn(n, 8, generator=generator) for n in (50, 200))
    labels = torch.arange(50) % 10
    scores = knn_scores(bank, labels, queries, torch.arange(200) % 10, num_classes=10, knn_k=1)
    assert scores["knn_top5"] == scores["knn_top1"]


def test_top_hits_are_those_of_a_sort():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(300, 12, generator=generator) - 5
    labels = torch.randint(12, (300,), generator=generator)
    ranked = scores.numpy().argsort(axis=1)[:, ::-1]
    at = [list(row).index(label) for row, label in zip(ranked, labels.tolist(), strict=True)]
    assert top_hits(scores, labels).tolist() == [[i < 1 for i in at], [i < 5 for i in at]]


@pytest.mark.parametrize("k", [1, 5])
def test_uniform_votes_with_ties_to_the_nearest_by_a_loop(k):
    bank, bank_labels, queries, labels = clusters()
    unit = [x.double().numpy() / x.double().norm(dim=1, keepdim=True).numpy()
            for x in (bank, queries)]  # fmt: skip
    top1 = top5 = ties = 0
    for query, label in zip(unit[1], labels.tolist(), strict=True):
        near = bank_labels.numpy()[np.argsort(-(unit[0] @ query), kind="stable")[:k]].tolist()
        ranked = sorted(set(near), key=lambda c: (-near.count(c), near.index(c)))
        ties += len(ranked) > 1 and near.count(ranked[0]) == near.count(ranked[1])
        top1 += ranked[0] == label
        top5 += label in ranked[:5]
    assert (ties > 0) == (k > 1), "the example must have ties"
    scores = uniform_knn_scores(bank, bank_labels, queries, labels, num_classes=8, knn_k=k)
    assert scores == pytest.approx(
        {"knn_top1": 100 * top1 / len(labels), "knn_top5": 100 * top5 / len(labels)}
    )


def test_a_classifier_is_scored_by_its_logits():
    logits = torch.tensor([[3.0, 1, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5.0], [0, 0, 9, 0, 0, 0]])
    scores = classifier_scores(logits, torch.tensor([0, 0, 2]))
    assert scores == pytest.approx({"classifier_top1": 200 / 3, "classifier_top5": 200 / 3})
    with pytest.raises(ValueError, match="diverged"):
        classifier_scores(logits / 0, torch.tensor([0, 0, 2]))


# Scores without labels.

CONFIG = {**small_config(COMBINATIONS["simclr-dcl-none-two"]), "lidar_views": 3}
WITHOUT_LABELS = ("rankme", "lidar", "alpha_req", "alignment", "uniformity")


def features(num: int = 200, dim: int = 60, seed: int = 0, decay: float = 0.6) -> Tensor:
    """Columns of falling size, rotated, with a mean."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num, dim)) * np.arange(1, dim + 1.0) ** -decay + 0.3
    return torch.from_numpy(x @ np.linalg.qr(rng.normal(size=(dim, dim)))[0])


def views(num: int = 90, per_image: int = 4, dim: int = 12, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(num, 1, dim)) @ rng.normal(size=(dim, dim)) + 5
    return torch.from_numpy(means + rng.normal(size=(num, per_image, dim)) * np.arange(1, dim + 1))


def smooth_rank(values: Any) -> float:
    p = values / values.sum() + 1e-7
    return float(np.exp(-(p * np.log(p)).sum()))


@pytest.mark.parametrize("num", [200, 20])
def test_rankme_is_the_paper_s(num):
    x = features(num).float()
    expected = smooth_rank(scipy.linalg.svdvals(x.double().numpy()))
    assert rankme(x).item() == pytest.approx(expected, rel=1e-9)
    assert 1 < expected < min(num, 60)


def test_lidar_is_the_paper_s():
    """By the symmetric root of S_w and sums over images and views, one by one."""
    x = views().numpy()
    mean = x.mean(axis=(0, 1))
    between, within = np.zeros((12, 12)), 1e-4 * np.eye(12)
    for image in x:
        off = image.mean(axis=0) - mean
        between += np.outer(off, off) / len(x)
        for view in image:
            within += np.outer(*[view - image.mean(axis=0)] * 2) / (len(x) * len(image))
    root = np.linalg.inv(scipy.linalg.sqrtm(within)).real
    expected = smooth_rank(np.clip(np.linalg.eigvalsh(root @ between @ root), 0, None))
    assert lidar(views()).item() == pytest.approx(expected, rel=1e-9)
    assert 1 < expected < 12


def test_the_decay_is_a_weighted_line_through_the_spectrum():
    x = features(300)
    values = np.linalg.eigvalsh(np.cov(x.numpy().T))[::-1]
    j = np.arange(4, 51)
    line = np.polyfit(np.log(j), np.log(values[3:50]), 1, w=np.sqrt(1 / j))
    assert spectrum_decay(x).item() == pytest.approx(-line[0], rel=1e-9)
    assert alpha_req(x).item() == pytest.approx(abs(-line[0] - 1), rel=1e-8)


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_a_planted_decay_is_found(alpha):
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(300, 60)))[0]
    basis = np.linalg.qr(basis - basis.mean(axis=0))[0]  # the covariance is then exact
    x = torch.from_numpy(basis * np.arange(1, 61) ** (-alpha / 2))
    assert spectrum_decay(x).item() == pytest.approx(alpha, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_rotation_and_scale_change_nothing(scale):
    x = features()
    turned = x @ torch.linalg.qr(features(60, 60, seed=1))[0]
    for score in (rankme, spectrum_decay):
        assert score(scale * turned).item() == pytest.approx(score(x).item(), rel=1e-6)


def test_what_lidar_does_not_see():
    x = views()
    turned = x @ torch.linalg.qr(features(12, 12, seed=1))[0]
    assert lidar(turned).item() == pytest.approx(lidar(x).item(), rel=1e-9)
    assert lidar(1e3 * x + 7).item() == pytest.approx(lidar(x).item(), rel=1e-4)
    assert lidar(1e-4 * x).item() != pytest.approx(lidar(x).item(), rel=1e-2), "the ridge counts"


def test_a_collapse_is_finite_and_bad():
    """In one point, on a line, in a plane and all zeros, with float32's rounding on top."""
    noise = 1 + 1e-7 * features(100, 40).float().sign()
    point, line = torch.ones(100, 40) * noise, features(100, 40)[:, :1].float() * torch.ones(1, 40)
    for x in (point, line, torch.zeros(100, 40)):
        assert alpha_req(x).item() > 20
        assert rankme(x).item() < 1.01
    assert alpha_req(features(100, 40)[:, :1] @ torch.ones(1, 40).double()).item() > 20
    assert lidar(torch.ones(20, 3, 5)).item() == 0
    assert lidar(torch.ones(20, 1, 1) * views(1, 3, 5)).item() == 0, "no image differs"
    assert rankme(torch.zeros(5, 3)).item() == 0


# In a trial.


def without_labels(images: Images) -> Images:
    return replace(images, labels_N=torch.full_like(images.labels_N, -1))


def test_images_without_labels_have_the_scores_that_need_none():
    torch.manual_seed(0)
    encoder = conv4(width=4).eval()
    train, val = some_digits(200), some_digits(100)
    known, x, _ = score_encoder(encoder, train, val, CONFIG, last=True)
    scores, *_ = score_encoder(
        encoder, without_labels(train), without_labels(val), CONFIG, last=True
    )
    assert set(scores) == {"rankme", "lidar", "alpha_req"}
    assert scores == {name: known[name] for name in scores}
    assert scores["rankme"] == pytest.approx(
        smooth_rank(np.linalg.svd(x.double().numpy(), compute_uv=False)), rel=1e-9
    )


def test_a_trial_has_them_at_every_scored_epoch_and_of_the_test_split(monkeypatch):
    monkeypatch.setattr(loop, "load_splits", few_images)
    rows: list[dict[str, Any]] = []
    result = train_trial({**CONFIG, "epochs": 2}, rows.append, test=True)
    for row in (*rows, result):
        assert all(np.isfinite(row[name]) for name in WITHOUT_LABELS)
    assert all(np.isfinite(result[f"test_{name}"]) for name in WITHOUT_LABELS)
    assert result["test_alignment"] != result["alignment"]
    unasked = train_trial({**CONFIG, "epochs": 1, "lidar_views": 0}, lambda _: None)
    assert "lidar" not in unasked
    untrained = train_trial({**CONFIG, "epochs": 0}, lambda _: None)
    assert {"rankme", "lidar", "alpha_req"} <= set(untrained)
    assert "alignment" not in untrained
