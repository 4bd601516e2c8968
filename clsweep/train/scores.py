"""What an encoder is worth: scores on the validation split, and diagnostics of its
representation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from clsweep.catalog import COMPONENT, METRICS, Component, Metric, implementation
from clsweep.catalog.ownership import arguments
from clsweep.catalog.rows import Row
from clsweep.objective.frameworks import Framework
from clsweep.objective.views import draw_views, recipes
from clsweep.train.collectives import gather_features, share
from clsweep.train.diagnostics import diagnostics_of, tsne_points
from clsweep.train.images import Images, make_views

EVAL_BATCH = 1024  # images at once, of 32 x 32 pixels; fewer of larger ones
DIAGNOSED_IMAGES = 1024  # at most, of the validation split, whose two views the diagnostics look at
DIAGNOSIS_SEED = 0  # the same views at every epoch and in every trial of the same augmentation


class DivergedError(ArithmeticError):
    """The loss or the features of a trial are no longer finite."""


def score_encoder(
    encoder: nn.Module, train: Images, val: Images, config: Mapping[str, Any], *, last: bool
) -> tuple[dict[str, float], Tensor]:
    """Scores of the encoder's features, and the features of the validation split; a linear probe at
    the `last` epoch.

    The bank are the training images that have a label.

    Raises:
        DivergedError: features are not finite.
    """
    bank = train.labelled()
    bank_ND, query_MD = (_features(encoder, images) for images in (bank, val))
    _require_finite("encoder's features", bank_ND, query_MD)
    return score_features(
        bank_ND, bank.labels_N, query_MD, val.labels_N, config, last=last
    ), query_MD


def score_features(
    bank_ND: Tensor,
    bank_labels_N: Tensor,
    query_MD: Tensor,
    query_labels_M: Tensor,
    config: Mapping[str, Any],
    *,
    last: bool,
) -> dict[str, float]:
    """The metrics of images: those of every epoch and, at the `last` one, all of them."""
    arrays = bank_ND, bank_labels_N, query_MD, query_labels_M
    metrics = [m for m in METRICS if m.kind == "images" and (last or m.every_epoch)]
    return take_scores(metrics, config, *arrays, num_classes=config["num_classes"])


def take_scores(
    metrics: Iterable[Metric], config: Mapping[str, Any], *given: Any, **named: Any
) -> dict[str, float]:
    """The scores of these metrics by name, each of its function, which is called with what is given
    and what its row owns.

    Raises:
        LookupError: a function that does not give the metric whose row names it.
    """
    found: dict[str, dict[str, float]] = {}  # several metrics may come of one function
    scores: dict[str, float] = {}
    for metric in metrics:
        row: Metric | Component = metric
        owned = {name: config[name] for name in metric.owns}
        if metric.part:
            row, owned = COMPONENT[metric.part][config[metric.part]], arguments(config, metric.part)
        if not row.impl:
            continue
        if row.impl not in found:
            found[row.impl] = implementation(row)(*given, **named, **owned)
        if metric.name not in found[row.impl]:
            raise LookupError(
                f"{row.impl}: expected a score {metric.name}, given {', '.join(found[row.impl])}"
            )
        scores[metric.name] = found[row.impl][metric.name]
    return scores


@torch.no_grad()
def diagnose(
    objective: Framework,
    val: Images,
    features_ND: Tensor,
    config: Mapping[str, Any],
    *,
    base_loss: float,
) -> dict[str, float]:
    """Diagnostics of two views of validation images, in evaluation mode, and of the epoch's loss;
    equal on all workers, without a word.
    """
    rows = torch.arange(min(DIAGNOSED_IMAGES, len(val)))
    generator = torch.Generator().manual_seed(DIAGNOSIS_SEED)
    draws = draw_views(recipes(config)[:2], len(rows), val.size, generator)
    was_training = objective.training
    objective.eval()
    parts = []
    for chosen in rows.split(_at_once(val)):
        views = make_views(val.take(chosen), [view[chosen] for view in draws], val)
        parts.append([objective.represent(x)[0] for x in views])
    z1_ND, z2_ND = (torch.cat(part) for part in zip(*parts, strict=True))
    objective.train(was_training)
    _require_finite("projections", z1_ND, z2_ND)
    return diagnostics_of(
        {
            "z1_ND": z1_ND,
            "z2_ND": z2_ND,
            "features_ND": features_ND,
            "labels_N": val.labels_N,
            "num_classes": config["num_classes"],
            "base_loss": base_loss,
            "config": config,
        }
    )


def embed_in_plane(features_ND: Tensor, val: Images, config: Mapping[str, Any]) -> list[Row]:
    """The t-SNE points of the first `tsne_points` validation images."""
    if config["tsne_points"] == 0:
        return []
    return tsne_points(
        features_ND, val.labels_N, num_points=config["tsne_points"], seed=config["seed"]
    )


def _require_finite(what: str, *tensors: Tensor) -> None:
    if not all(torch.isfinite(x).all() for x in tensors):
        raise DivergedError(f"the {what} are not finite; a smaller lr or a larger tau may help")


@torch.no_grad()
def _features(encoder: nn.Module, images: Images) -> Tensor:
    """Features (N, D) of unaugmented images, float32, in evaluation mode; the workers share the
    work.
    """
    was_training = encoder.training
    encoder.eval()
    mine = share(len(images))
    # a share may be empty: then one empty chunk
    chunks = torch.arange(mine.start, mine.stop).split(_at_once(images))
    features = [encoder(images.plain(chosen)) for chosen in chunks]
    encoder.train(was_training)
    return gather_features(torch.cat(features), len(images))


def _at_once(images: Images) -> int:
    """Images that go through a network at once: a trial's memory is to be its training's."""
    return max(1, min(EVAL_BATCH, EVAL_BATCH * 32**2 // images.size**2))
