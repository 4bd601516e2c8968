"""The diagnostics against numpy, scipy and loops, and on representations whose values are known.

Shapes: N samples, D dimensions.
"""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from torch import Tensor, nn
from torchvision.models.resnet import Bottleneck, ResNet

from clsweep.catalog import DIAGNOSTIC
from clsweep.model.encoders import conv4, resnet18, resnet50
from clsweep.train import diagnostics
from clsweep.train.diagnostics import (
    StepStatistics,
    alignment,
    diagnostics_of,
    effective_rank,
    feature_diversity,
    grad_norm,
    inter_class_distance,
    intra_class_distance,
    score_without_labels,
    std_per_dim,
    tsne_points,
    uniformity,
    watched_parameters,
)
from tests.operations import Operations

pytestmark = pytest.mark.usefixtures("one_thread")

Array = NDArray[np.float64]
Q_B, GRAD_NORM = DIAGNOSTIC["q_b_mean"].impl, DIAGNOSTIC["grad_norm_mean"].impl
KEYS = {
    "alignment", "uniformity", "feature_diversity", "effective_rank", "std_per_dim",
    "intra_class_distance", "inter_class_distance",
}  # fmt: skip


def class_distances(x: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    arguments = x, labels, num_classes
    return intra_class_distance(*arguments), inter_class_distance(*arguments)


def representation_diagnostics(
    z1: Tensor, z2: Tensor, features: Tensor, labels: Tensor, num_classes: int
) -> dict[str, float]:
    names = ("z1_ND", "z2_ND", "features_ND", "labels_N", "num_classes")
    values = (z1, z2, features, labels, num_classes)
    at_hand = dict(zip(names, values, strict=True))
    actual = diagnostics_of(at_hand) | score_without_labels(at_hand)
    return {name: actual[name] for name in sorted(KEYS)}


def two_views(num: int = 60, dim: int = 7, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Correlated views, correlated dimensions, rows of different lengths and a mean that is not
    0.
    """
    generator = torch.Generator().manual_seed(seed)
    z1 = torch.randn(num, dim, generator=generator) @ torch.randn(dim, dim, generator=generator) + 1
    z2 = z1 + 0.5 * torch.randn(num, dim, generator=generator)
    lengths = torch.rand(num, 1, generator=generator) + 0.1
    return z1 * lengths, z2


def unit(z: Tensor) -> Array:
    z_ND = z.numpy().astype(np.float64)
    return np.asarray(z_ND / np.linalg.norm(z_ND, axis=1, keepdims=True))


class TestAgainstReferences:
    def test_alignment(self):
        z1, z2 = two_views()
        expected = np.mean([np.sum((a - b) ** 2) for a, b in zip(unit(z1), unit(z2), strict=True)])
        assert alignment(z1, z2).item() == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize("block_elements", [1, 60 * 59, 10**6])
    def test_uniformity(self, monkeypatch, block_elements):
        monkeypatch.setattr(diagnostics, "_BLOCK_ELEMENTS", block_elements)
        z, _ = two_views()
        expected = np.log(np.mean(np.exp(-2 * pdist(unit(z), "sqeuclidean"))))
        assert uniformity(z).item() == pytest.approx(expected, rel=1e-12)

    def test_feature_diversity(self):
        z1, z2 = two_views()
        g, h = z1.double().numpy().T, z2.double().numpy().T
        total = 0.0
        for i in range(7):
            for j in range(7):
                if j != i:
                    total += abs(g[i] @ h[j]) / math.sqrt((g[i] @ g[i]) * (h[j] @ h[j]))
        assert feature_diversity(z1, z2).item() == pytest.approx(1 - total / (7 * 6), rel=1e-12)

    @pytest.mark.parametrize("num", [60, 5])
    def test_effective_rank(self, num):
        z, _ = two_views(num)
        z_ND = z.double().numpy()
        values = np.linalg.svd(z_ND - z_ND.mean(axis=0), compute_uv=False)
        p = values / values.sum()
        expected = math.exp(-sum(p_k * math.log(p_k) for p_k in p if p_k > 1e-14))
        assert effective_rank(z).item() == pytest.approx(expected, rel=1e-9)
        assert 1 - 1e-9 <= expected <= min(num - 1, 7)

    def test_std_per_dim(self):
        z, _ = two_views()
        assert std_per_dim(z).item() == pytest.approx(
            math.sqrt(7) * unit(z).std(axis=0).mean(), rel=1e-12
        )

    def test_class_distances(self):
        """Classes 0 and 5 of six have no sample."""
        x, _ = two_views()
        labels = 1 + torch.arange(60) % 4
        x_ND, y_N = unit(x), labels.numpy()
        centroids = {y: x_ND[y_N == y].mean(axis=0) for y in range(1, 5)}
        intra, inter = class_distances(x, labels, 6)
        expected = np.mean(
            [np.linalg.norm(row - centroids[y]) for row, y in zip(x_ND, y_N, strict=True)]
        )
        assert intra.item() == pytest.approx(expected, rel=1e-12)
        assert inter.item() == pytest.approx(pdist(list(centroids.values())).mean(), rel=1e-12)

    def test_each_is_given_its_own(self):
        (z1, z2), (x, _) = two_views(), two_views(dim=9, seed=1)
        labels = torch.arange(60) % 4
        actual = representation_diagnostics(z1.requires_grad_(), z2, x, labels, 4)
        expected = {m.__name__: m(z1).item() for m in (uniformity, effective_rank, std_per_dim)}
        expected |= {m.__name__: m(z1, z2).item() for m in (alignment, feature_diversity)}
        distances = class_distances(x, labels, 4)
        names = ("intra_class_distance", "inter_class_distance")
        assert actual == expected | dict(zip(names, map(float, distances), strict=True))
        assert all(type(value) is float for value in actual.values())


class TestKnownValues:
    def test_feature_diversity(self):
        """Columns are compared across the views, as they are: a shared mean is similarity; columns
        of zeros are similar to none.
        """
        eye, ones, zero = torch.eye(3), torch.ones(5, 3), torch.ones(5, 3)
        zero[:, 2] = 0
        # cos(g_0, h_1) = 1 and cos(g_1, h_0) = 0.
        g, h = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 2.0], [0.0, 0.0]])
        pairs = ((eye, eye, 1), (ones, ones, 0), (ones, -ones, 0), (g, h, 0.5), (zero, zero, 2 / 3))
        for first, second, expected in pairs:
            assert feature_diversity(first, second).item() == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize("scale", [1e-25, 1e25])
    def test_scale_changes_nothing(self, scale):
        (z1, z2), labels = two_views(), torch.arange(60) % 3
        expected = representation_diagnostics(z1, z2, z2, labels, 3)
        scaled = scale * z1, scale * z2, scale * z2
        actual = representation_diagnostics(*scaled, labels, 3)
        assert actual == pytest.approx(expected, rel=1e-6)


class TestDegenerate:
    @pytest.mark.parametrize("value", [0.0, 0.1, -1e20])
    def test_collapsed_to_a_point(self, value):
        z = torch.full((50, 6), value)
        expected = dict.fromkeys(KEYS, 0.0) | {"feature_diversity": float(value == 0)}
        actual = representation_diagnostics(z, z, z, torch.arange(50) % 3, 3)
        assert actual == pytest.approx(expected, abs=1e-7)

    def test_rounding_around_a_point_is_no_rank(self):
        """What an encoder that ignores its images gives out in float32."""
        generator = torch.Generator().manual_seed(0)
        noise = (
            torch.randn(500, 16, generator=generator).sign() * torch.finfo(torch.float32).eps / 2
        )
        z = torch.randn(16, generator=generator) * (1 + noise)
        assert (z != z[0]).any()
        assert effective_rank(z).item() == 0
        assert effective_rank(z.double()).item() > 10

    def test_collapsed_to_a_line(self):
        direction = torch.randn(6, generator=torch.Generator().manual_seed(0))
        z = torch.linspace(-1, 1, 51)[:, None] * direction
        assert effective_rank(z).item() == pytest.approx(1, rel=1e-6)
        assert math.isfinite(uniformity(z).item()), "the row in the middle is 0"


class TestStepStatistics:
    def test_is_numpys_over_all_steps(self):
        generator = torch.Generator().manual_seed(0)
        shapes = [(2, 64), (128,), (3, 4, 5), (1,)]
        steps = [torch.rand(shape, generator=generator) ** 2 for shape in shapes]
        norms = torch.rand(4, generator=generator)
        statistics = StepStatistics()
        for q_b, norm in zip(steps, norms, strict=True):
            statistics.add(Q_B, q_b)
            statistics.add(GRAD_NORM, norm)
        values = torch.cat([q_b.flatten() for q_b in steps]).double().numpy()
        expected = {}
        for name, x in (("q_b", values), ("grad_norm", norms.double().numpy())):
            expected |= {f"{name}_mean": x.mean(), f"{name}_cv": x.std() / x.mean()}
        assert statistics.summary() == pytest.approx(expected, rel=1e-12)
        counts, edges = np.histogram(values, bins=20, range=(0, 1))
        rows = statistics.histogram()
        assert [row["share"] for row in rows] == pytest.approx(counts / len(values), abs=1e-15)
        assert [row["bin_low"] for row in rows] == pytest.approx(edges[:-1], abs=1e-15)
        assert [row["bin_high"] for row in rows] == pytest.approx(edges[1:], abs=1e-15)

    def test_small_spread_is_not_cancelled(self):
        drawn = torch.randn(300, generator=torch.Generator().manual_seed(0)).double()
        values = 1e8 * (1 + 1e-12 * drawn)
        statistics = StepStatistics()
        for value in values:
            statistics.add(GRAD_NORM, value)
        expected = values.numpy().std() / 1e8
        assert statistics.summary()["grad_norm_cv"] == pytest.approx(expected, rel=1e-2)

    @pytest.mark.parametrize("value", [0.0, 0.1])
    def test_equal_values_have_no_spread(self, value):
        statistics = StepStatistics()
        for _ in range(7):
            statistics.add(Q_B, torch.full((10,), value))
            statistics.add(GRAD_NORM, torch.tensor(value))
        means = {"q_b_mean": value, "grad_norm_mean": value}
        expected = means | {"q_b_cv": 0, "grad_norm_cv": 0}
        assert statistics.summary() == pytest.approx(expected, abs=1e-7)
        [bar] = [row for row in statistics.histogram() if row["share"]]
        assert (bar["share"], bar["bin_low"] <= value) == (1.0, True)

    @pytest.mark.parametrize("held", [1, 9, 100])
    def test_blocks_checkpoints_and_changes_in_place_leave_no_trace(self, monkeypatch, held):
        """Steps are summed up in blocks; what a diagnostic gave may be overwritten later."""
        steps = torch.rand(11, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        expected = StepStatistics()
        for step in steps:
            expected.add(Q_B, step)
        monkeypatch.setattr(diagnostics, "HELD", held)
        statistics, given = StepStatistics(), torch.empty(4, dtype=torch.float64)
        for number, step in enumerate(steps):
            if number in (3, 4):
                state, statistics = statistics.state_dict(), StepStatistics()
                statistics.load_state_dict(state, torch.device("cpu"))
                num, mean, _ = state["moments"][Q_B]
                assert (num, mean.shape, mean.dtype) == (4 * number, (), torch.float64)
            statistics.add(Q_B, given.copy_(step))
        assert statistics.summary() == expected.summary()
        assert statistics.histogram() == expected.histogram()

    def test_a_step_is_joined_without_the_device(self):
        """Sums of many steps take as many operations as those of one."""
        statistics = StepStatistics()
        with Operations() as seen:
            for _ in range(50):
                statistics.add(Q_B, torch.rand(8))
        assert Counter(seen.names) == {"aten::rand": 50, "aten::_to_copy": 50}
        with Operations() as seen:
            statistics.summary()
        assert len(seen.names) < 50

    def test_what_was_not_added_is_missing(self):
        statistics = StepStatistics()
        statistics.add(Q_B, torch.zeros(0))
        assert statistics.summary() == {}
        assert statistics.histogram() == []
        statistics.add(GRAD_NORM, torch.tensor(2.0))
        assert statistics.summary() == {"grad_norm_mean": 2, "grad_norm_cv": 0}
        assert statistics.histogram() == []


class TestGradients:
    @pytest.mark.parametrize(
        ("encoder", "expected"),
        [
            (resnet18(stem="small"), ["layer4.0.conv2.weight", "layer4.1.conv2.weight"]),
            (resnet50(stem="standard"), ["layer4.1.conv3.weight", "layer4.2.conv3.weight"]),
            # one block a stage: each of the last two has a downsampling convolution, defined last
            (ResNet(Bottleneck, [1, 1, 1, 1]), ["layer3.0.conv3.weight", "layer4.0.conv3.weight"]),
            (conv4(width=4), ["layers.6.weight", "layers.9.weight"]),
            (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), ["0.weight"]),
            (nn.Linear(3, 4), []),
        ],
        ids=["basic", "bottleneck", "shortcut", "plain", "one", "none"],
    )
    def test_the_last_convolutions_are_watched(self, encoder, expected):
        names = {id(parameter): name for name, parameter in encoder.named_parameters()}
        assert [names[id(parameter)] for parameter in watched_parameters(encoder)] == expected

    def test_norm_is_the_mean_over_parameters(self):
        parameters = [nn.Parameter(torch.zeros(2, 2)) for _ in range(3)]
        parameters[0].grad = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
        parameters[2].grad = torch.ones(2, 2)
        assert grad_norm(parameters).item() == pytest.approx((5 + 2) / 2)
        assert grad_norm(parameters[1:2]).numel() == 0  # none has a gradient: no value
        assert grad_norm([]).numel() == 0


class TestTsne:
    def clusters(self, num: int) -> tuple[Tensor, Tensor]:
        generator, labels = torch.Generator().manual_seed(0), torch.arange(num) % 3
        return 10 * torch.eye(3, 12)[labels] + torch.randn(num, 12, generator=generator), labels

    def test_rows_of_clusters_stay_apart(self):
        features, labels = self.clusters(60)
        rows = tsne_points(features, labels, num_points=45, seed=0)
        assert [row["index"] for row in rows] == list(range(45))
        assert [row["label"] for row in rows] == labels[:45].tolist()
        assert {type(row[key]) for row in rows for key in ("x", "y")} == {float}
        assert {type(row[key]) for row in rows for key in ("index", "label")} == {int}
        points, y_N = np.array([[row["x"], row["y"]] for row in rows]), labels[:45].numpy()
        centres = np.array([points[y_N == y].mean(axis=0) for y in range(3)])
        nearest = np.linalg.norm(points[:, None] - centres, axis=2).argmin(axis=1)
        assert (nearest == y_N).all()

    def test_does_not_see_later_rows_or_lengths(self):
        features, labels = self.clusters(40)
        expected = tsne_points(features, labels, num_points=30, seed=0)
        lengths = 2.0 ** (torch.arange(30) % 5)[:, None]
        assert tsne_points(lengths * features[:30], labels[:30], num_points=100, seed=0) == expected

    @pytest.mark.parametrize(("num", "num_points"), [(4, 100), (100, 4), (100, 0), (0, 100)])
    def test_fewer_than_five_points(self, num, num_points):
        assert tsne_points(*self.clusters(num), num_points=num_points, seed=0) == []
        assert len(tsne_points(*self.clusters(5), num_points=5, seed=0)) == 5


def test_a_step_that_is_not_finite_counts_for_nothing_and_nobody_waits_for_it(monkeypatch):
    """As fp16 has them where the scale is too large yet; the sums go through a checkpoint."""
    steps = [torch.tensor([0.5, math.inf]), *torch.rand(4, 7), torch.full((3,), math.nan)]
    impl = DIAGNOSTIC["q_b_mean"].impl
    monkeypatch.setattr(diagnostics, "implementation", lambda _: lambda *values: values[0])
    rows = [row for row in diagnostics.DIAGNOSTICS if row.impl == impl]
    monkeypatch.setattr(diagnostics, "DIAGNOSTICS", rows)
    expected, statistics = StepStatistics(), StepStatistics()
    for step in steps[1:5]:
        expected.add(impl, step)
    for number, step in enumerate(steps):
        if number == 3:
            state, statistics = statistics.state_dict(), StepStatistics()
            statistics.load_state_dict(state, torch.device("cpu"))
        with Operations() as seen:
            statistics.add_step(dict.fromkeys(rows[0].takes, step), finite_only=True)
        assert "aten::_local_scalar_dense" not in seen.names
    assert statistics.summary() == expected.summary()
    assert statistics.histogram() == expected.histogram()
    nothing = StepStatistics()
    nothing.add(impl, steps[0], finite_only=True)
    assert nothing.summary() == {}
    assert nothing.histogram() == []
