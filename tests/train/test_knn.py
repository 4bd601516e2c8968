"""The kNN score against scikit-learn, and equal votes against a loop.

Shapes: N rows of the bank, M queries, D features.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from clsweep.train import accuracy, knn
from clsweep.train.accuracy import in_percent, top_hits

pytestmark = pytest.mark.usefixtures("one_thread")


def percent(score: Any) -> Any:
    return lambda *arrays, **options: in_percent(score(*arrays, **options))


knn_scores, uniform_knn_scores, classifier_scores = map(
    percent, (knn.knn_scores, knn.uniform_knn_scores, accuracy.classifier_scores)
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


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.1), (7, 0.02), (80, 0.1), (200, 1.0)])
def test_scores_are_those_of_scikit_learns_votes(k, temperature):
    features = clusters()
    bank, bank_labels, queries, labels = (x.double().numpy() for x in features)
    classifier = KNeighborsClassifier(
        k,
        metric="cosine",
        algorithm="brute",
        weights=lambda distance: np.exp((1 - distance) / temperature),
    )
    votes = classifier.fit(bank, bank_labels).predict_proba(queries)
    ranked = votes.argsort(axis=1)[:, :-6:-1]  # those without a vote are no guesses
    is_right = (ranked == labels[:, None]) & (np.take_along_axis(votes, ranked, axis=1) > 0)
    top1, top5 = 100 * is_right[:, 0].mean(), 100 * is_right.any(axis=1).mean()
    assert 15 < top1 < 85, "the example must be neither trivial nor hopeless"
    assert top5 < 100
    scores = knn_scores(*features, num_classes=8, knn_k=k, knn_temperature=temperature)
    assert scores == pytest.approx({"knn_top1": top1, "knn_top5": top5}, abs=1e-9)


def test_fewer_than_five_classes_make_top5_certain():
    scores = knn_scores(*clusters(num_classes=3), num_classes=3, knn_k=50)
    assert scores["knn_top1"] < 100
    assert scores["knn_top5"] == 100


@pytest.mark.parametrize("chunk_elements", [1, 200 * 7, 200 * 149])
def test_chunks_do_not_show(monkeypatch, chunk_elements):
    features = clusters()
    expected = knn_scores(*features, num_classes=8, knn_k=50)
    monkeypatch.setattr(knn, "CHUNK_ELEMENTS", chunk_elements)
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


@pytest.mark.parametrize("nearer", [50, 51])
def test_a_tie_goes_to_the_nearest_however_many_vote(nearer):
    """100 classes have one vote each, and then two classes two, whose nearest is the 101st."""
    farther = 101 - nearer
    ranked = [*(n for n in range(102) if n not in (nearer, farther)), nearer, farther]
    bank_labels = torch.tensor([*ranked, nearer, farther])
    angles = torch.linspace(0, 1.5, len(bank_labels))
    bank = torch.stack([angles.cos(), angles.sin()], dim=1)
    expected = {"knn_top1": 100.0, "knn_top5": 100.0}
    arrays = bank, bank_labels, bank[:1], torch.tensor([nearer])
    assert uniform_knn_scores(*arrays, num_classes=102, knn_k=len(bank)) == expected


def test_a_classifier_is_scored_by_its_logits():
    logits = torch.tensor([[3.0, 1, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5.0], [0, 0, 9, 0, 0, 0]])
    scores = classifier_scores(logits, torch.tensor([0, 0, 2]))
    assert scores == pytest.approx({"classifier_top1": 200 / 3, "classifier_top5": 200 / 3})
    with pytest.raises(ValueError, match="diverged"):
        classifier_scores(logits / 0, torch.tensor([0, 0, 2]))
