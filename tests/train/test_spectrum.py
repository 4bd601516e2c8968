"""Scores without labels against numpy and scipy, their invariances, and data without labels."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from clsweep.model.encoders import conv4
from clsweep.train import loop
from clsweep.train.evaluation import score_encoder
from clsweep.train.images import Images
from clsweep.train.loop import train_trial
from clsweep.train.spectrum import alpha_req, lidar, rankme, spectrum_decay
from tests.contracts.combinations import COMBINATIONS, few_images, small_config, some_digits

pytestmark = pytest.mark.usefixtures("one_thread")

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
