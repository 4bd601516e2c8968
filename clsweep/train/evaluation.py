"""Evaluation of an encoder: scores on the validation split, and diagnostics of its
representation; also on the images of another data set, and of data that no training has touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clsweep.catalog import COMPONENT, METRICS, Component, Metric, implementation
from clsweep.catalog.ownership import arguments
from clsweep.catalog.plugin_guard import PartError, value_text
from clsweep.catalog.rows import Row, parse_numbers
from clsweep.data.augment import Draws
from clsweep.data.datasets import Splits, load_splits, transferred_splits
from clsweep.data.locations import DataPlace
from clsweep.data.random_streams import derived_seed, seed_draws
from clsweep.model.encoders import layer_of
from clsweep.objective.build import build_encoder
from clsweep.objective.framework import Framework
from clsweep.objective.views import recipes
from clsweep.train.accuracy import Outcomes, hits_among, hits_row, in_percent
from clsweep.train.collectives import gather_features, worker_rows
from clsweep.train.device import trial_device
from clsweep.train.diagnostics import diagnostics_of, score_without_labels, tsne_points
from clsweep.train.finetune import Network, views_of
from clsweep.train.finite import DivergedError, are_finite
from clsweep.train.images import DRAWN_AT_ONCE, Images, scored_images
from clsweep.train.state import compute_in_float32, seeded, untrained_encoder

Of = Literal["features", "classifier", "transfer"]

EVAL_BATCH = 1024  # images at once, of 32 x 32 pixels; fewer of larger ones
DIAGNOSED_IMAGES = 1024  # at most, of the validation split, whose two views the diagnostics look at
LIDAR_IMAGES = 1000  # at most, of the same split (Thilak et al. 2024, 5.1)
DIAGNOSIS_SEED = 0  # the same views at every epoch and in every trial of the same augmentation


Transfer = Callable[[], tuple[Images, Images]]  # images of another data set: to fit on, to score


class Scores(NamedTuple):
    """The scores of an encoder.

    Attributes:
        values: by metric; where images are right or wrong, the share that is right, percent.
        features_MD: of the split that is scored.
        hits: by metric, which images are right: rows of the table `hits` without trial and split.
    """

    values: dict[str, float]
    features_MD: Tensor
    hits: list[Row]


def score_encoder(
    encoder: nn.Module,
    train: Images,
    val: Images,
    config: Mapping[str, Any],
    *,
    last: bool,
    objective: Framework | None = None,
    transfer: Transfer | None = None,
) -> Scores:
    """Scores of the features of `feature_layer`.

    The bank are the training images that have a label. At the `last` epoch all metrics are taken,
    also on another data set, if one is given. Images without a label have those scores alone that
    need none. An `objective` has trained what lies on top of the encoder.

    Raises:
        DivergedError: features are not finite.
    """
    seed_draws(config["seed"], "scores")
    projector = None if objective is None else objective.scored[1]
    classifier = getattr(objective, "classifier", None)
    layer = layer_of(encoder, projector, config["feature_layer"])
    bank = train.labelled()
    outcomes: Outcomes = {}
    if len(bank) and len(val.labelled()):
        outcomes, query_MD = _score_images(layer, encoder, bank, val, config, last=last)
    else:
        query_MD = _features(layer, val)
        _require_finite("the encoder's features are", config, query_MD)
    at_hand = {"features_ND": query_MD}
    if config.get("lidar_views"):
        at_hand["views_NVD"] = _several_views(layer, val, config["lidar_views"])
    outcomes |= score_without_labels(at_hand)
    if classifier is not None:
        logits_MC = _features(nn.Sequential(encoder, classifier), val)
        metrics = _metrics("classifier", config, last)
        outcomes |= take_scores(metrics, config, logits_MC, val.labels_N)
    values, hits = in_percent(outcomes), _packed(outcomes, val)
    if last and transfer is not None:
        bank, query = transfer()
        transferred, _ = _score_images(
            layer, encoder, bank, query, config, last=last, of="transfer"
        )
        values |= in_percent(transferred)
        hits += _packed(transferred, query)
    return Scores(values, query_MD, hits)


def _packed(outcomes: Outcomes, images: Images) -> list[Row]:
    """Which of the images are right, by metric."""
    rows: list[Row] = []
    for name, is_right in hits_among(outcomes).items():
        if len(is_right) != len(images):
            expected = f"expected an outcome of each of {len(images)} images"
            raise LookupError(f"{name}: {expected}, given {len(is_right)}")
        rows.append(hits_row(name, images.digest, is_right.numpy(force=True)))
    return rows


def _score_images(
    layer: nn.Module,
    encoder: nn.Module | None,
    bank: Images,
    query: Images,
    config: Mapping[str, Any],
    *,
    last: bool,
    of: Of = "features",
) -> tuple[Outcomes, Tensor]:
    """Scores of images, and the features of those that are scored; without an encoder there is no
    fine-tuning.
    """
    bank_ND, query_MD = (_features(layer, images) for images in (bank, query))
    _require_finite("the encoder's features are", config, bank_ND, query_MD)
    given = {**config, "redraw": lambda epoch: augmented_features(layer, bank, config, epoch)}
    if encoder is not None:
        copy = partial(_copy, encoder, config, bank.device)
        given["network"] = Network(copy=copy, bank=bank, query=query, at_once=_at_once(query))
    if of == "transfer":
        labels = [images.labels_N.max() for images in (bank, query)]
        given["num_classes"] = 1 + int(torch.stack(labels).max())
        if "finetune_labels" in config:  # it is scored with all labels, or not at all
            is_asked = 1.0 in parse_numbers(config["finetune_labels"])
            given |= {"finetune_labels": "1"} if is_asked else {"finetune": "none"}
    arrays = bank_ND, bank.labels_N, query_MD, query.labels_N
    metrics, num_classes = _metrics(of, given, last), given["num_classes"]
    return take_scores(metrics, given, *arrays, num_classes=num_classes), query_MD


def _metrics(of: Of, config: Mapping[str, Any], last: bool) -> list[Metric]:
    """Those of every epoch and, at the last one, all of them."""
    metrics = [m for m in METRICS if m.needs_labels and m.of == of]
    every_epoch = {"linear_probe"} if config["linear_every"] == "scored" else set()
    return [m for m in metrics if last or m.every_epoch or m.part in every_epoch]


def take_scores(
    metrics: Iterable[Metric], config: Mapping[str, Any], *given: Any, **named: Any
) -> Outcomes:
    """The scores of these metrics by name, each of its function, which is called with what is given
    and what its row owns.

    Raises:
        PartError: a function that does not give the metric whose row names it.
    """
    results: dict[str, dict[str, float | Tensor | None]] = {}  # several metrics of one function
    scores: Outcomes = {}
    for metric in metrics:
        row: Metric | Component = metric
        if metric.part:
            row = COMPONENT[metric.part][config[metric.part]]
            if "network" in row.takes and "network" not in config:
                continue
        if not row.impl:
            continue
        if row.impl not in results:
            if metric.part:
                owned = arguments(config, metric.part)
            else:
                owned = {name: config[name] for name in metric.owns}
            results[row.impl] = implementation(row)(*given, **named, **owned)
        name = metric.name.removeprefix("transfer_")
        if name not in results[row.impl]:
            others = ", ".join(results[row.impl])
            raise PartError(f"{name}: expected a score of this name, given {others}", row)
        score = results[row.impl][name]
        low, high = metric.limits
        if score is None:  # it was not asked for
            continue
        is_of_images = getattr(score, "ndim", 0) > 0
        if not (is_of_images or low <= float(score) <= high):
            expected = f"{name}: expected {low:g} to {high:g}, as its unit is {metric.unit}"
            raise PartError(f"{expected}, given {value_text(score)}", row)
        scores[metric.name] = score
    return scores


def diagnose(
    objective: Framework,
    val: Images,
    features_ND: Tensor,
    config: Mapping[str, Any],
    *,
    base_loss: float,
) -> dict[str, float]:
    """Diagnostics of two views of validation images, in evaluation mode, and of the epoch's loss,
    with the scores of these views; equal on all workers, without a word.
    """
    views = projections(objective, val, config)
    at_hand = {
        **views,
        "features_ND": features_ND,
        "num_classes": config["num_classes"],
        "base_loss": base_loss,
        "config": config,
    }
    if len(val.labelled()) == len(val):
        at_hand["labels_N"] = val.labels_N
    return diagnostics_of(at_hand) | score_without_labels(views)


@torch.no_grad()
def projections(objective: Framework, val: Images, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """`z1_ND` and `z2_ND` of two views of the first images."""
    rows = torch.arange(min(DIAGNOSED_IMAGES, len(val)))
    generator = torch.Generator().manual_seed(DIAGNOSIS_SEED)
    draws = val.draw(recipes(config)[:2], rows, generator)
    was_training = objective.training
    objective.eval()
    parts = []
    for chosen in rows.split(_at_once(val)):
        views = val.views(chosen, [view[chosen] for view in draws])
        parts.append([objective.represent(x)[0] for x in views])
    z1_ND, z2_ND = (torch.cat(part) for part in zip(*parts, strict=True))
    objective.train(was_training)
    _require_finite("the projections are", config, z1_ND, z2_ND)
    return {"z1_ND": z1_ND, "z2_ND": z2_ND}


def embed_in_plane(features_ND: Tensor, val: Images, config: Mapping[str, Any]) -> list[Row]:
    """The t-SNE points of the first `tsne_points` validation images."""
    if config["tsne_points"] == 0:
        return []
    return tsne_points(
        features_ND, val.labels_N, num_points=config["tsne_points"], seed=config["seed"]
    )


def _require_finite(what: str, config: Mapping[str, Any], *tensors: Tensor) -> None:
    if not are_finite(*tensors):
        raise DivergedError.of(f"{what} not finite", config)


@torch.no_grad()
def _features(network: nn.Module, images: Images, draws: Draws | None = None) -> Tensor:
    """Features (N, D) of images as they are, or of the drawn view of each of the first ones;
    float32, in evaluation mode. The workers share the work.
    """
    num = len(images) if draws is None else len(draws)
    was_training = network.training
    network.eval()
    mine = worker_rows(num)
    features = []
    # a share may be empty: then one empty chunk
    for chosen in torch.arange(mine.start, mine.stop).split(_at_once(images)):
        views = None if draws is None else images.views(chosen, [draws[chosen]])
        features.append(network(images.plain(chosen) if views is None else views[0]))
    network.train(was_training)
    return gather_features(torch.cat(features), num)


def _several_views(network: nn.Module, images: Images, num_views: int) -> Tensor:
    """Features (N, V, D) of views of the first images, cropped and flipped: the same at every epoch
    and in every trial, whatever augmentation it trains with.
    """
    generator = torch.Generator().manual_seed(DIAGNOSIS_SEED)
    rows, recipe = torch.arange(min(LIDAR_IMAGES, len(images))), views_of(images)
    draws = [images.draw([recipe], rows, generator)[0] for _ in range(num_views)]
    return torch.stack([_features(network, images, each) for each in draws], dim=1)


def augmented_features(
    network: nn.Module, images: Images, config: Mapping[str, Any], epoch: int
) -> Tensor:
    """Features (N, D) of one view of each image, cropped and flipped: others in every epoch, the
    same on any number of workers.
    """
    seed = derived_seed(config["seed"], f"probe views of epoch {epoch}")
    generator, recipe = torch.Generator().manual_seed(seed), views_of(images)
    blocks = torch.arange(len(images)).split(DRAWN_AT_ONCE)
    draws = [images.draw([recipe], rows, generator)[0] for rows in blocks]
    return _features(network, images, Draws.join(draws))


def _copy(encoder: nn.Module, config: Mapping[str, Any], device: torch.device) -> nn.Module:
    """The same encoder as built: without graphs or batch norms that ask other workers."""
    copied = seeded(build_encoder, {**config, "init": "none"})  # its weights are those of the other
    copied.load_state_dict(encoder.state_dict())
    return copied.to(device, memory_format=torch.channels_last)


def _at_once(images: Images) -> int:
    """Images that go through a network at once: a trial's memory is to be its training's."""
    return max(1, min(EVAL_BATCH, EVAL_BATCH * 32**2 // images.scored_size**2))


def transfer_of(
    config: Mapping[str, Any],
    splits: Splits,
    place: DataPlace,
    device: torch.device,
    *,
    test: bool = False,
) -> Transfer | None:
    """A function that reads `transfer_dataset`: labelled training images and those to score;
    None where the trial names no data set.

    They are normalised as the encoder was trained, with the statistics of `splits`, and resized to
    the trial's views. They are split as the trial's own images are.

    Args:
        splits: of the trial's own data set.
        test: score the test split of the other one.
    """
    name = config["transfer_dataset"]
    if name == "none":
        return None

    def read() -> tuple[Images, Images]:
        other = transferred_splits(config, place)
        bank, query = (
            scored_images(split, splits, config, device)
            for split in (other.train, other.test if test else other.val)
        )
        return bank.labelled(), query

    return read


def score_reference(
    config: Mapping[str, Any], *, place: DataPlace, device: str | torch.device = "cpu"
) -> dict[str, float]:
    """kNN and linear-probe scores on the validation split, percent.

    Args:
        config: reference ("raw_pixels": the normalised pixels themselves, "untrained": the features
            of the encoder as `seed` initialises it), dataset, val_fraction and the hyperparameters
            of encoder, kNN and linear probe.

    Raises:
        RequestError: the data set is not there.
    """
    compute_in_float32()
    config = {"linear_every": "last", **config}  # there is no other epoch
    splits, where = load_splits(config, place), trial_device(device)
    scored = (splits.train, splits.val)
    if config["reference"] == "untrained":
        train, val = (scored_images(split, splits, config, where) for split in scored)
        transfer = transfer_of(config, splits, place, where)
        encoder = untrained_encoder(config, where)
        return score_encoder(encoder, train, val, config, last=True, transfer=transfer).values
    # at their own size, whatever that of the views
    whole = {**config, "view_size": 0}
    train, val = (scored_images(split, splits, whole, where) for split in scored)
    bank = train.labelled()
    if not (len(bank) and len(val.labelled())):
        return {}  # every score of pixels needs labels
    config = {"seed": 0, **config}  # pixels have no seed; the shuffles of an SGD probe need one
    outcomes, _ = _score_images(_Pixels(bank), None, bank, val, config, last=True)
    return in_percent(outcomes)


class _Pixels(nn.Module):
    """The input of an encoder as features: its channels, which gray images repeat, once; images of
    more than 64 pixels a side averaged down to 32.
    """

    def __init__(self, images: Images):
        super().__init__()
        self.num_channels = images.mean_1C11.shape[1]

    def forward(self, x_NCHW: Tensor) -> Tensor:
        x_NCHW = x_NCHW[:, : self.num_channels]
        return (F.adaptive_avg_pool2d(x_NCHW, 32) if x_NCHW.shape[-1] > 64 else x_NCHW).flatten(1)
