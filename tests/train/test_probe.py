"""The linear probes against scikit-learn.

Shapes: N rows of the bank, M queries, D features, C classes.
"""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.optim import lr_scheduler

from clsweep.train import probe
from clsweep.train.accuracy import in_percent, top_hits
from clsweep.train.optim import lars
from clsweep.train.probe import Standardiser, ridge_fit

pytestmark = pytest.mark.usefixtures("one_thread")

Features = tuple[Tensor, Tensor, Tensor, Tensor]
PROTOCOL: dict[str, Any] = {
    "probe_epochs": 20, "probe_schedule": "cosine", "probe_gamma": 0.1, "probe_optimizer": "sgd",
    "probe_momentum": 0.9, "probe_weight_decay": 0.0, "probe_batch_size": 256, "seed": 0,
}  # fmt: skip
SGD: dict[str, Any] = PROTOCOL | {"probe_lr": 0.25, "probe_views": "plain"}


def percent(score: Any) -> Any:
    return lambda *arrays, **options: in_percent(score(*arrays, **options))


ridge_probe, sgd_probe, sgd_grid_probe = map(
    percent, (probe.ridge_probe, probe.sgd_probe, probe.sgd_grid_probe)
)


def sgd_fit(*bank: Tensor, num_classes: int, **arguments: Any) -> tuple[Tensor, Tensor]:
    """The one fit of one learning rate."""
    arguments = dict(arguments)
    arguments.pop("probe_views", None)
    lrs = (arguments.pop("probe_lr"),)
    (fitted,) = probe.sgd_fit(*bank, num_classes=num_classes, probe_lrs=lrs, **arguments)
    return fitted


def clusters(
    *, noise: float = 1.5, num_bank: int = 600, num_classes: int = 8, dim: int = 10, seed: int = 0
) -> Features:
    """Bank and 400 queries around one centre a class; features of different means and scales."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(num_classes, dim, generator=generator)
    scale, mean = torch.rand(dim, generator=generator) + 0.5, torch.randn(dim, generator=generator)

    def sample(num_rows: int) -> tuple[Tensor, Tensor]:
        labels = torch.randint(num_classes, (num_rows,), generator=generator)
        return (
            centres[labels] + noise * torch.randn(num_rows, dim, generator=generator)
        ) * scale + mean, labels

    return *sample(num_bank), *sample(400)


class TestRidge:
    @pytest.mark.parametrize(("probe_l2", "block_rows"), [(1e-6, 8192), (1e-3, 7), (2.0, 8192)])
    def test_is_scikit_learns(self, monkeypatch, probe_l2, block_rows):
        monkeypatch.setattr(probe, "BLOCK_ROWS", block_rows)
        features = clusters()
        bank, bank_labels, queries, labels = (x.numpy() for x in features)
        scaler = StandardScaler().fit(bank.astype(np.float64))
        x, query = (scaler.transform(x.astype(np.float64)) for x in (bank, queries))
        expected = Ridge(alpha=probe_l2 * len(x)).fit(x, np.eye(8)[bank_labels])
        standardise = Standardiser.of(features[0])
        weight, bias = ridge_fit(
            *features[:2], standardise=standardise, num_classes=8, probe_l2=probe_l2
        )
        assert weight.dtype == bias.dtype == torch.float64
        np.testing.assert_allclose(weight.numpy(), expected.coef_.T, rtol=0, atol=1e-6)
        np.testing.assert_allclose(bias.numpy(), expected.intercept_, rtol=0, atol=1e-6)

        scores = ridge_probe(*features, num_classes=8, probe_l2=probe_l2)
        ranked = expected.predict(query).argsort(axis=1)[:, ::-1]
        top5 = 100 * np.mean([label in row[:5] for row, label in zip(ranked, labels, strict=True)])
        classifier = RidgeClassifier(alpha=probe_l2 * len(x)).fit(x, bank_labels)
        top1 = 100 * classifier.score(query, labels)
        assert 30 < top1 < top5 < 100, "the example must be neither trivial nor hopeless"
        assert scores == pytest.approx({"linear_top1": top1, "linear_top5": top5}, abs=1e-9)

    @pytest.mark.parametrize("constant", [0.3, 1e8 + 1 / 3])
    def test_constant_features_do_not_show(self, constant):
        """Not in float64 either, where the plain mean of many 0.3 is not 0.3, and whatever the
        queries have there.
        """
        bank, bank_labels, queries, labels = clusters()
        bank, queries = bank.double(), queries.double()
        expected = ridge_probe(bank, bank_labels, queries, labels, num_classes=8, probe_l2=1e-3)
        bank = torch.cat([bank, torch.full((len(bank), 2), constant, dtype=torch.float64)], dim=1)
        queries = torch.cat([queries, torch.randn(len(queries), 2)], dim=1)
        actual = ridge_probe(bank, bank_labels, queries, labels, num_classes=8, probe_l2=1e-3)
        assert actual == expected
        weight, _ = ridge_fit(
            bank, bank_labels, standardise=Standardiser.of(bank), num_classes=8, probe_l2=1e-3
        )
        assert (weight[-2:] == 0).all()

    def test_collapsed_features_give_the_most_frequent_class(self):
        x, y = torch.full((10, 4), 0.3), torch.tensor([2] * 6 + [0] * 4)
        scores = ridge_probe(x, y, x, y, num_classes=7, probe_l2=1e-3)
        assert scores == {"linear_top1": 60.0, "linear_top5": 100.0}

    def test_too_small_a_penalty_for_repeated_features(self):
        bank, bank_labels, queries, labels = clusters()
        bank, queries = bank.repeat(1, 3), queries.repeat(1, 3)
        with pytest.raises(ValueError, match="probe_l2: 1e-30 is too small"):
            ridge_probe(bank, bank_labels, queries, labels, num_classes=8, probe_l2=1e-30)


def zero_layer() -> nn.Linear:
    layer = nn.Linear(10, 8)
    for p in layer.parameters():
        nn.init.zeros_(p)
    return layer


def steps(
    layer: nn.Linear, optimizer: Any, labels: Tensor, epochs: list[Tensor], batch: int,
    schedule: Any = None, *, seed: int = 0,
) -> None:  # fmt: skip
    """Torch's, over the same batches."""
    generator = torch.Generator().manual_seed(seed)
    for bank in epochs:
        for rows in torch.randperm(len(bank), generator=generator).split(batch):
            optimizer.zero_grad()
            F.cross_entropy(layer(bank[rows]), labels[rows]).backward()
            optimizer.step()
            if schedule is not None:
                schedule.step()


def assert_fitted(fitted: tuple[Tensor, Tensor], layer: nn.Linear) -> None:
    expected = layer.weight.detach().T, layer.bias.detach()
    torch.testing.assert_close(fitted, expected, rtol=1e-4, atol=1e-5)


def lars_of_training(parameters: Any) -> torch.optim.Optimizer:
    weight, bias = parameters
    groups = [{"params": [weight], "weight_decay": 0.01}, {"params": [bias], "weight_decay": 0.0}]
    return lars(groups, lr=1.2, sgd_momentum=0.9, lars_trust=1e-3)


STEPWISE = {"probe_schedule": "step", "probe_gamma": 0.2, "probe_weight_decay": 0.01}
LONG = {"probe_lr": 0.02, "probe_momentum": 0.995, "probe_weight_decay": 0.01,
        "probe_batch_size": 100, "probe_schedule": "constant"}  # fmt: skip
LONG_SGD = partial(torch.optim.SGD, lr=0.02, momentum=0.995, weight_decay=0.01)


class TestSgd:
    @pytest.mark.parametrize(
        ("make", "given"),
        [
            (partial(torch.optim.SGD, lr=0.25, momentum=0.9), {}),
            (
                lars_of_training,
                {"probe_lr": 1.2, "probe_optimizer": "lars", "probe_weight_decay": 0.01},
            ),
            (  # as Wang & Isola (2020) evaluate: beta1 0.5, x 0.2 at 60 and 80 % of the epochs
                partial(torch.optim.Adam, lr=0.01, betas=(0.5, 0.999), weight_decay=0.01),
                STEPWISE | {"probe_lr": 0.01, "probe_optimizer": "adam", "probe_momentum": 0.5},
            ),
            (LONG_SGD, LONG),
            (LONG_SGD, LONG | {"probe_views": "augmented"}),
        ],
        ids=["sgd", "lars", "adam", "constant", "augmented"],
    )
    def test_settings_and_steps_are_those_of_the_optimisers(self, make, given):
        """A linear layer, autograd, torch's optimisers and schedulers, and the LARS of training;
        the last of an epoch's batches is smaller.
        """
        bank, bank_labels, queries, labels = clusters()
        given = SGD | {"probe_epochs": 10, "seed": 5} | given
        num_batches = math.ceil(600 / given["probe_batch_size"])
        layer = zero_layer()
        optimizer = make(layer.parameters())
        follows = {
            "step": lr_scheduler.MultiStepLR(optimizer, [6 * num_batches, 8 * num_batches], 0.2),
            "cosine": lr_scheduler.CosineAnnealingLR(optimizer, 10 * num_batches),
            "constant": None,
        }[given["probe_schedule"]]
        is_redrawn = given["probe_views"] == "augmented"
        moved = [bank + epoch if is_redrawn else bank for epoch in range(10)]
        steps(layer, optimizer, bank_labels, moved, given["probe_batch_size"], follows, seed=5)
        redraw = {"redraw": lambda epoch: moved[epoch]}
        fitted = sgd_fit(
            bank, bank_labels, num_classes=8, **given, **(redraw if is_redrawn else {})
        )
        assert_fitted(fitted, layer)
        hits = top_hits(layer(queries).detach(), labels).sum(dim=1)
        scores = sgd_probe(bank, bank_labels, queries, labels, num_classes=8, **given, **redraw)
        assert list(scores.values()) == pytest.approx((100 * hits / 400).tolist(), abs=1e-4)

    def test_overflow_names_the_learning_rate(self):
        bank, bank_labels, queries, labels = clusters()
        with pytest.raises(ValueError, match=r"probe_lr 30\.0; a smaller probe_lr"):
            sgd_probe(
                1e25 * bank, bank_labels, queries, labels, num_classes=8, **SGD | {"probe_lr": 30.0}
            )


@pytest.mark.parametrize(
    ("score", "arguments"),
    [(ridge_probe, {"probe_l2": 1e-3}), (sgd_probe, SGD)],
    ids=["ridge", "sgd"],
)
class TestBoth:
    def test_dtype_does_not_show_and_of_few_classes_top5_is_certain(self, score, arguments):
        for num_classes in (8, 3):
            actual = []
            for dtype in (torch.float32, torch.float64):
                bank, bank_labels, queries, labels = clusters(num_classes=num_classes)
                given = bank.to(dtype), bank_labels, queries.to(dtype), labels
                actual.append(score(*given, num_classes=num_classes, **arguments))
            assert actual[0] == actual[1]
            assert actual[0]["linear_top1"] < actual[0]["linear_top5"]
            assert (actual[0]["linear_top5"] == 100) == (num_classes == 3)

    @pytest.mark.parametrize("which", [0, 2])
    def test_a_diverged_encoder_has_no_score(self, score, arguments, which):
        for value, dtype in ((math.nan, torch.float32), (math.inf, torch.float64)):
            features = [x.to(dtype) if x.is_floating_point() else x for x in clusters()]
            features[which][3, 1] = value
            with pytest.raises(ValueError, match="not finite: it has diverged"):
                score(*features, num_classes=8, **arguments)


class TestGrid:
    GRID: dict[str, Any] = PROTOCOL | {"probe_views": "plain", "probe_val_share": 0.2}

    def chosen(self, features: Features, grid: str, **changes: Any) -> dict[str, float]:
        return sgd_grid_probe(*features, num_classes=8, probe_lr_grid=grid, **self.GRID | changes)

    def test_best_rate_on_a_held_out_part_is_fitted_on_all(self):
        """Against scikit-learn's split and a loop over the rates."""
        features = clusters(num_bank=200)
        bank, bank_labels = features[:2]
        fitted, judged = train_test_split(
            np.arange(200), test_size=40, stratify=bank_labels.numpy(), random_state=0
        )
        fitted, judged = np.sort(fitted), np.sort(judged)
        lrs, right = (1e-6, 0.01, 0.3), []
        for lr in lrs:
            arguments = SGD | {"probe_lr": lr}
            weight, bias = sgd_fit(bank[fitted], bank_labels[fitted], num_classes=8, **arguments)
            guessed = (bank[judged] @ weight + bias).argmax(dim=1)
            right.append(int((guessed == bank_labels[judged]).sum()))
        assert right[0] < max(right), "one rate must be too small"
        best = lrs[int(np.argmax(right))]
        expected = sgd_probe(*features, num_classes=8, **SGD | {"probe_lr": best})
        assert self.chosen(features, "1e-6, 0.01, 0.3") == expected

    def test_queries_take_no_part_in_choosing(self):
        """Labels of the queries turned round: the fit, hence the guesses, must stay."""
        bank, bank_labels, queries, labels = clusters(num_bank=200)
        grid = "0.0001, 0.001, 0.01, 0.1, 1"
        scores = [
            self.chosen((bank, bank_labels, queries, (labels + turn) % 8), grid)["linear_top1"]
            for turn in range(8)
        ]
        assert sum(scores) == pytest.approx(100), "each query has one guess, the same every time"

    def test_one_that_overflows_is_not_chosen(self):
        features = clusters(num_bank=200)
        features = (1e25 * features[0], features[1], 1e25 * features[2], features[3])
        with pytest.raises(ValueError, match="overflowed"):
            self.chosen(features, "30")
        assert self.chosen(features, "1e-28, 30")["linear_top1"] > 30
