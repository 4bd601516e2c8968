"""What the scores of an objective need of its hyperparameters and its data."""

from __future__ import annotations

from collections.abc import Callable

from clsweep.catalog import COMPONENT, DATASET, FINETUNE_SHARES, METRIC, METRICS, Dataset, Metric
from clsweep.catalog.rows import numbers
from clsweep.display.numbers import setting
from clsweep.study.document import Keys
from clsweep.study.space import Objective

Where = Callable[[Objective, str], Keys]  # where a hyperparameter of an objective was written
Complain = Callable[[Keys, str], None]

MIN_VIEW_SIZE = 8  # pixels a side, as of the images


def check_metric(
    objective: Objective, metric: Metric, dataset: Dataset, where: Where, error: Complain
) -> None:
    """A metric that an objective does not take would be missing from every trial of it."""
    if metric.of != "transfer" and metric.needs_labels and not dataset.num_classes:
        fitting = [m.name for m in METRICS if m.of == "transfer" or not m.needs_labels]
        names = ", ".join(name for name in fitting if METRIC[name].kind == dataset.kind)
        message = f"{metric.name} needs classes, and {dataset.name} has none here: expected {names}"
        error(("metric", "name"), message)
        return
    says, fixed = f"the metric is {metric.name}: expected ", objective.fixed
    framework = COMPONENT["framework"][objective.parts["framework"]]
    is_trained = "batch_size" in objective.owned
    if metric.of == "classifier" and not (framework.needs_labels and is_trained):
        error(
            ("objectives", objective.name, "framework"),
            f"{says}a framework that trains a classifier, as supervised, and epochs above 0",
        )
    if "z1_ND" in metric.takes and not is_trained:
        error(where(objective, "epochs"), f"{says}epochs above 0, as it looks at projections")
    if "views_NVD" in metric.takes and fixed["lidar_views"] == 0:
        error(where(objective, "lidar_views"), f"{says}lidar_views of 2 or more, as 10; given 0")
    if metric.of == "transfer" and fixed.get("transfer_dataset") == "none":
        error(where(objective, "transfer_dataset"), f"{says}a transfer_dataset, given none")
    if metric.part == "finetune" and "finetune_labels" in fixed:
        shares = (FINETUNE_SHARES.get(s, "") for s in numbers(str(fixed["finetune_labels"])))
        if not any(f"finetune_{share}_" in metric.name for share in shares):
            message = f"{says}its share of the labels, given {fixed['finetune_labels']}"
            error(where(objective, "finetune_labels"), message)


def check_scores(
    objective: Objective,
    dataset: Dataset,
    val_fraction: float | None,
    where: Where,
    error: Complain,
    other: Dataset | None = None,
) -> None:
    """What the scores of images need; both data sets hold out the same `val_fraction`.

    other: the data set that scores are transferred to, where its files lie in a folder of its own.
    """
    num_labelled = max(0, dataset.split_sizes(val_fraction)[0] - dataset.num_unlabeled)
    fixed, classes = objective.fixed, dataset.num_classes
    _check_layer(objective, where, error)
    if fixed["lidar_views"] == 1:
        error(where(objective, "lidar_views"), "expected 0, or 2 views and more, given 1")
    if fixed["linear_every"] == "scored" and fixed["linear_probe"] == "none":
        error(where(objective, "linear_every"), "has no effect while linear_probe is none")
    share = fixed.get("probe_val_share")
    if share is not None and round(float(share) * num_labelled) < classes:
        message = f"expected a share with an image of each of the {classes} classes, of "
        message += f"{num_labelled} labelled images; given {setting(share)}"
        error(where(objective, "probe_val_share"), message)
    if "finetune_labels" in fixed:
        _check_finetuning(objective, classes, num_labelled, where, error)
    transfer = str(fixed["transfer_dataset"])
    if transfer != "none" and (
        message := _wrong_transfer(dataset, other, DATASET[transfer], val_fraction)
    ):
        error(where(objective, "transfer_dataset"), message)
    smallest, _ = objective.extremes("view_size")
    if 0 < smallest < MIN_VIEW_SIZE:
        message = f"expected 0 or at least {MIN_VIEW_SIZE} pixels, given {smallest}"
        error(where(objective, "view_size"), message)


def _wrong_transfer(
    dataset: Dataset, found: Dataset | None, row: Dataset, val_fraction: float | None
) -> str:
    """Why scores cannot be transferred to a data set, `found` in a folder of its own; empty if they
    can.
    """
    name = row.name
    if found is None and (row.files or name == dataset.name):
        reason = "the study's own" if name == dataset.name else "your own files"
        return (
            f"expected another data set of the catalog, given {name}, {reason}: these need "
            "dataset.transfer_root, a folder of their own"
        )
    other = found or row
    if not other.num_classes:
        return f"expected a data set with classes, given {name}, which has none"
    channels = {other.channels, dataset.channels}
    if len(channels) > 1 and not channels <= {1, 3}:
        return (
            f"expected images of {dataset.channels} channels, as {dataset.name} has, given {name} "
            f"of {other.channels}"
        )
    _, num_val = other.split_sizes(val_fraction)
    if num_val < other.num_classes:
        return (
            f"expected a val_fraction with an image of each of the {other.num_classes} classes of "
            f"{name}, given {num_val} images"
        )
    return ""


def _check_layer(objective: Objective, where: Where, error: Complain) -> None:
    layer = objective.fixed["feature_layer"]
    projector = ("projector",) if "proj_dim" in objective.owned else ()
    each = [COMPONENT["encoder"][name].blocks for name in objective.encoders]
    blocks = [name for name in each[0] if all(name in own for own in each)]
    if layer not in (known := ("encoder", *projector, *blocks)):
        message = f"expected one of what '{objective.name}' has: {', '.join(known)}; given {layer}"
        error(where(objective, "feature_layer"), message)


def _check_finetuning(
    objective: Objective, num_classes: int, num_labelled: int, where: Where, error: Complain
) -> None:
    keys, shares = (
        where(objective, "finetune_labels"),
        numbers(str(objective.fixed["finetune_labels"])),
    )
    if not set(shares) <= set(FINETUNE_SHARES):
        known, given = (", ".join(map(setting, each)) for each in (FINETUNE_SHARES, shares))
        error(keys, f"expected some of {known}, given {given}")
    elif round(shares[0] * num_labelled) < num_classes:
        message = f"{setting(shares[0])} of {num_labelled} labelled images are fewer than the"
        error(keys, f"{message} {num_classes} classes: expected larger shares")
