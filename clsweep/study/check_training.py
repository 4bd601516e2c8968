"""Checks of what a trial on images trains and scores: parts of a batch that fit it, views that fit
the images and each other, what happens over the epochs, what the scores need.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clsweep.catalog import COMPONENT, DATASET, FINETUNE_SHARES, MIN_TSNE_POINTS, Dataset
from clsweep.catalog.ownership import HALF_TURN, num_crop_only, num_others
from clsweep.catalog.rows import numbers
from clsweep.display.numbers import setting
from clsweep.study.document import Document, Keys
from clsweep.study.schema import StudySections
from clsweep.study.space import Objective

MAX_BATCH = 10**8  # beyond it no data set has images, which is an error of its own
MIN_VIEW_SIZE = 8  # pixels a side, as of the images


@dataclass(frozen=True)
class TrainingChecks:
    """Calls `error` once per mistake: where it stands; expected, given."""

    document: Document
    sections: StudySections
    dataset: Dataset
    transferred: Mapping[str, Dataset]  # data sets in a folder of their own
    error: Callable[[Keys, str], None]

    def _where(self, objective: Objective, param: str) -> Keys:
        """The keys under which `param` was written for this objective."""
        own: Mapping[str, Any] = self.document.tree["objectives"][objective.name]
        for kind in ("space", "base"):
            if param in (own.get(kind) or {}):
                return ("objectives", objective.name, kind, param)
        for kind in ("space", "base"):
            if param in getattr(self.sections, kind):
                return (kind, param)
        return ("objectives", objective.name)

    def _mistake(self, objective: Objective, param: str, message: str) -> None:
        """An error where `param` was written for this objective."""
        self.error(self._where(objective, param), message)

    def _points(self, objective: Objective, name: str) -> tuple[Any, ...]:
        """All values that a hyperparameter takes; none if it has a range, or is not owned."""
        if name not in objective.owned:
            return ()
        if name in objective.fixed:
            return (objective.fixed[name],)
        return () if objective.space[name].is_range else objective.space[name].points

    def _ends(self, objective: Objective, name: str) -> tuple[Any, ...]:
        """All values that a swept hyperparameter takes, of a range its ends; none if it is
        fixed.
        """
        swept = objective.space.get(name)
        return () if swept is None else swept.points or swept.extremes

    def _require_at_most(self, objective: Objective, name: str, bound: str) -> None:
        """No value of one hyperparameter lies above one of another."""
        (_, highest), (lowest, _) = objective.extremes(name), objective.extremes(bound)
        if highest > lowest:
            message = f"expected at most {bound}, {setting(lowest)}, given {setting(highest)}"
            self._mistake(objective, name, message)

    def _check_training(self, objective: Objective) -> None:
        num_train, num_val = self.dataset.split_sizes(self.sections.val_fraction)
        available = f"{num_train}, the images that {self.dataset.name} trains on"
        _, knn_k = objective.extremes("knn_k")
        num_labelled = num_train - self.dataset.num_unlabeled
        if self.dataset.num_classes and knn_k > num_labelled:
            voters = f"{num_labelled}, the images with a class that {self.dataset.name} trains on"
            message = (
                f"expected at most {voters if self.dataset.num_unlabeled else available}, "
                f"given {knn_k}"
            )
            keys = self._where(objective, "knn_k")
            is_default = keys[-1] != "knn_k"
            self.error(
                keys, f"knn_k: {message}, the default; set base.knn_k" if is_default else message
            )
        self._check_scores(objective, max(0, num_labelled))
        points = objective.fixed["tsne_points"]
        assert isinstance(points, int)
        if points and not MIN_TSNE_POINTS <= points <= num_val:
            split = self.sections.evaluation.score_on
            expected = f"expected 0, or {MIN_TSNE_POINTS} to {num_val}, the images of the {split}"
            self._mistake(objective, "tsne_points", f"{expected} split, given {points}")
        fewest_epochs, _ = objective.extremes("epochs")
        if "epochs" in objective.space and fewest_epochs == 0:
            message = "0 cannot be swept: add an objective of its own with base: {epochs: 0}"
            self._mistake(objective, "epochs", message)
        if "batch_size" not in objective.owned:
            return
        _, largest = objective.extremes("batch_size")
        if largest > num_train:
            self._mistake(objective, "batch_size", f"expected at most {available}, given {largest}")
        of_owned = {
            "num_negatives": self._check_negatives,
            "momentum_end": self._check_momentum,
            "whitening_size": self._check_whitening,
            "crop_scale": lambda each: self._require_at_most(each, "crop_scale", "crop_max"),
            "jitter_hue": self._check_hue,
            "proj_norm": self._check_projector,
            "small_view_size": self._check_small_views,
        }
        for name, check in of_owned.items():
            if name in objective.owned:
                check(objective)
        self._check_first_epochs(objective)
        _, warmup = objective.extremes("warmup_epochs")
        if warmup >= fewest_epochs > 0:
            message = (
                f"expected fewer warm-up epochs than the {fewest_epochs} epochs, given {warmup}"
            )
            self._mistake(objective, "warmup_epochs", message)
        self._check_workers(objective)
        self._check_chunks(objective)
        self._check_norm_groups(objective)
        self._check_precision(objective)

    # A batch.

    def _check_negatives(self, objective: Objective) -> None:
        """A queue may have any length; negatives of the batch are as many as the batch has."""
        framework = objective.parts["framework"]
        fewest, most = objective.extremes("num_negatives")
        if framework == "moco":
            if fewest == 0:
                message = "expected a queue of at least 1 key, given 0"
                self._mistake(objective, "num_negatives", message)
            return
        smallest, _ = objective.extremes("batch_size")
        available = num_others(framework, smallest)
        if most > available:
            message = (
                f"expected at most {available}, what a batch of {smallest} has for a query "
                f"in {framework}; given {most}. 0 takes all, whatever the batch size"
            )
            self._mistake(objective, "num_negatives", message)

    def _check_whitening(self, objective: Objective) -> None:
        """A sub-batch has more samples than dimensions, and the batch is made of such."""
        keys = self._where(objective, "whitening_size")
        sizes, batches = (self._points(objective, n) for n in ("whitening_size", "batch_size"))
        if not sizes or not batches:
            self.error(keys, "expected fixed values or choices of it and of batch_size")
        _, dim = objective.extremes("proj_dim")
        for size, batch in itertools.product(sizes, batches):
            together = size or batch
            if batch % together:
                message = f"groups of {together} do not make a batch of {batch}; it must divide it"
                self.error(keys, message)
            elif together <= dim:
                message = f"expected more than {dim}, the dimensions of proj_dim, given {together}"
                self.error(keys, message)

    def _check_workers(self, objective: Objective) -> None:
        workers = self.sections.resources.workers
        if workers == 1:
            return
        dimension = objective.space.get("batch_size")
        if dimension and dimension.is_range:
            message = f"with {workers} workers expected choices that {workers} divides, given a"
            self._mistake(objective, "batch_size", f"{message} range")
            return
        for size in self._points(objective, "batch_size"):
            if size % workers or size // workers < 2:
                below, above = size // workers * workers, -(-size // workers) * workers
                valid = sorted({max(below, 2 * workers), max(above, 2 * workers)})
                message = (
                    f"batch size {size} does not divide among {workers} workers; nearest valid: "
                    f"{', '.join(map(str, valid))}"
                )
                self._mistake(objective, "batch_size", message)

    def _check_chunks(self, objective: Objective) -> None:
        """Batch norm must see equally many images in every chunk, and in every worker's part of
        one.
        """
        keys, workers = self._where(objective, "chunk_size"), self.sections.resources.workers
        chunks, batches = (self._points(objective, name) for name in ("chunk_size", "batch_size"))
        if chunks == (0,):
            return
        if not chunks or not batches:
            self.error(
                keys,
                "expected fixed values or choices of both chunk_size and batch_size, given a range",
            )
        elif len(chunks) > 1 and sum(chunk >= min(batches) for chunk in chunks) > 1:
            message = (
                f"expected at most one of the chunks to be a whole batch of {min(batches)}, given"
            )
            self.error(keys, f"{message} {', '.join(map(str, chunks))}: these would train alike")
        for chunk, batch in itertools.product(chunks, batches):
            is_part = 0 < chunk < batch
            if is_part and (batch % chunk or chunk % workers or chunk < 2 * workers):
                nearest_valid = ", ".join(map(str, _nearest_chunks(chunk, batch, workers)))
                among = f" on {workers} workers" if workers > 1 else ""
                message = (
                    f"chunks of {chunk} do not make a batch of {batch}{among}; nearest "
                    f"valid: {nearest_valid}"
                )
                self.error(keys, message)

    def _check_norm_groups(self, objective: Objective) -> None:
        if "shuffle" not in self._points(objective, "key_norm"):
            return
        keys = self._where(objective, "norm_group")
        names = ("norm_group", "batch_size", "chunk_size")
        groups, batches, chunks = (self._points(objective, name) for name in names)
        if not groups or not batches or not chunks:
            self.error(keys, "expected fixed values or choices of it, batch_size and chunk_size")
        for group, batch, chunk in itertools.product(groups, batches, chunks):
            together = min(chunk or batch, batch)
            if together % group:
                what = "a chunk" if together < batch else "a batch"
                self.error(
                    keys, f"groups of {group} do not make {what} of {together}; it must divide it"
                )

    def _check_precision(self, objective: Objective) -> None:
        keys, wanted = self._where(objective, "precision"), self._points(objective, "precision")
        if "auto" in wanted:  # swept: a fixed one has been decided
            self.error(keys, "auto stands for one of the others and cannot be swept: give that one")
        if "fp16" in wanted and not self.sections.resources.gpus_per_worker:
            self.error(
                keys,
                "fp16 needs a GPU, and resources.gpus_per_worker is 0. Expected: auto, fp32 or "
                "bf16",
            )

    def _check_projector(self, objective: Objective) -> None:
        """A single layer is none of the hidden ones."""
        if "proj_norm" not in objective.space or objective.extremes("proj_layers")[0] > 1:
            return
        if {"none", "hidden"} <= {*self._points(objective, "proj_norm")}:
            message = "none and hidden train alike while proj_layers is 1"
            self._mistake(objective, "proj_norm", message)

    # Views.

    def _check_hue(self, objective: Objective) -> None:
        _, strongest = objective.extremes("jitter_strength")
        _, furthest = objective.extremes("jitter_hue")
        if strongest * furthest > HALF_TURN:
            message = (
                f"expected at most half a turn, 0.5, of jitter_strength x jitter_hue, given "
                f"{setting(strongest)} x {setting(furthest)}"
            )
            self._mistake(objective, "jitter_hue", message)

    def _check_small_views(self, objective: Objective) -> None:
        if "num_global_views" in objective.owned:
            self._check_global_views(objective)
        _, size = objective.extremes("small_view_size")
        large, _ = objective.extremes("view_size")
        large = large or self.dataset.image_size
        if size > large:
            message = f"expected at most {large}, the side of the other views, given {size}"
            self._mistake(objective, "small_view_size", message)
        name = "crop_scale" if objective.fixed.get("small_crop_scale") == 0 else "small_crop_scale"
        self._require_at_most(objective, name, "small_crop_max")
        if (shares := objective.space.get("crop_only_share")) and "num_views" in objective.fixed:
            num_views = objective.fixed["num_views"]
            assert isinstance(num_views, int)
            counts = [num_crop_only(float(share), num_views) for share in shares.points]
            if len(set(counts)) < len(counts):
                listed = ", ".join(map(str, counts))
                message = (
                    f"expected shares that differ in effect, given {listed} crop-only "
                    f"views of {num_views}"
                )
                self._mistake(objective, "crop_only_share", message)

    def _check_global_views(self, objective: Objective) -> None:
        fewest, most = objective.extremes("num_views")
        fewest_global, most_global = objective.extremes("num_global_views")
        if most_global > fewest:
            self._require_at_most(objective, "num_global_views", "num_views")
        elif most == fewest_global > 2:
            for name in ("small_view_size", "small_crop_scale", "small_crop_max"):
                if name in objective.space:
                    message = f"has no effect while all {most} views are global"
                    self._mistake(objective, name, message)

    # Epochs.

    def _check_momentum(self, objective: Objective) -> None:
        """The momentum rises, and where it stays its end would be read by nothing."""
        keys = self._where(objective, "momentum_end")
        _, start = objective.extremes("momentum")
        lowest_end, _ = objective.extremes("momentum_end")
        is_constant = self._points(objective, "momentum_schedule") == ("constant",)
        if is_constant and keys[-2:] == ("base", "momentum_end"):
            self.error(keys, "has no effect while momentum_schedule is constant")
        elif start > lowest_end:
            message = f"expected at least momentum, {setting(start)}, given {setting(lowest_end)}"
            self.error(keys, message)

    def _check_first_epochs(self, objective: Objective) -> None:
        """Values that differ only beyond the last epoch train alike."""
        _, epochs = objective.extremes("epochs")
        if "swav_queue" in objective.owned:
            self._check_queue(objective, epochs)
        for name in ("freeze_epochs", "swav_queue_start"):
            late = [value for value in self._ends(objective, name) if value >= epochs]
            if len(late) > 1:
                listed = ", ".join(map(str, late))
                message = f"expected at most one value from {epochs} on, the epochs of a trial"
                self._mistake(objective, name, f"{message}; {listed} train alike")
        is_first = epochs == 1 and "teacher_tau" in objective.space
        if is_first and objective.extremes("teacher_tau_epochs")[0] > 0:
            message = "has no effect in 1 epoch, whose temperature is teacher_tau_start"
            self._mistake(objective, "teacher_tau", message)

    def _check_queue(self, objective: Objective, epochs: int) -> None:
        """A queue that begins too late, or that is never full, is none."""
        start, _ = objective.extremes("swav_queue_start")
        num_train, _ = self.dataset.split_sizes(self.sections.val_fraction)
        queued = max(0, epochs - start) * num_train
        sizes = self._ends(objective, "swav_queue") or objective.extremes("swav_queue")
        unused = [size for size in sizes if size == 0 or size >= queued]
        if "swav_queue" in objective.space and len(unused) > 1:
            self._mistake(
                objective,
                "swav_queue",
                f"has no effect in {epochs} epochs while swav_queue_start is {start}"
                if not queued
                else f"expected at most one of {', '.join(map(str, unused))}: in {epochs} epochs "
                f"from {start} on a queue of {queued} is never full, and is none",
            )
        if "swav_queue_start" in objective.space and len(unused) == len(sizes) and any(sizes):
            message = f"has no effect while a queue of {min(filter(None, sizes))} is never full"
            self._mistake(objective, "swav_queue_start", message)

    # Scores.

    def _check_scores(self, objective: Objective, num_labelled: int) -> None:
        """What the scores of images need; both data sets hold out the same `val_fraction`."""
        fixed, classes = objective.fixed, self.dataset.num_classes
        self._check_layer(objective)
        if fixed["lidar_views"] == 1:
            self._mistake(objective, "lidar_views", "expected 0, or 2 views and more, given 1")
        if fixed["linear_every"] == "scored" and fixed["linear_probe"] == "none":
            self._mistake(objective, "linear_every", "has no effect while linear_probe is none")
        share = fixed.get("probe_val_share")
        if share is not None and round(float(share) * num_labelled) < classes:
            message = f"expected a share with an image of each of the {classes} classes, of "
            message += f"{num_labelled} labelled images; given {setting(share)}"
            self._mistake(objective, "probe_val_share", message)
        if "finetune_labels" in fixed:
            self._check_finetuning(objective, num_labelled)
        transfer = str(fixed["transfer_dataset"])
        if transfer != "none" and (message := self._wrong_transfer(DATASET[transfer])):
            self._mistake(objective, "transfer_dataset", message)
        smallest, _ = objective.extremes("view_size")
        if 0 < smallest < MIN_VIEW_SIZE:
            message = f"expected 0 or at least {MIN_VIEW_SIZE} pixels, given {smallest}"
            self._mistake(objective, "view_size", message)

    def _wrong_transfer(self, row: Dataset) -> str:
        """Why scores cannot be transferred to a data set; empty if they can."""
        name, dataset, found = row.name, self.dataset, self.transferred.get(row.name)
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
                f"expected images of {dataset.channels} channels, as {dataset.name} has, given "
                f"{name} of {other.channels}"
            )
        _, num_val = other.split_sizes(self.sections.val_fraction)
        if num_val < other.num_classes:
            return (
                f"expected a val_fraction with an image of each of the {other.num_classes} classes "
                f"of {name}, given {num_val} images"
            )
        return ""

    def _check_layer(self, objective: Objective) -> None:
        layer = objective.fixed["feature_layer"]
        projector = ("projector",) if "proj_dim" in objective.owned else ()
        each = [COMPONENT["encoder"][name].blocks for name in objective.encoders]
        blocks = [name for name in each[0] if all(name in own for own in each)]
        if layer not in (known := ("encoder", *projector, *blocks)):
            expected = f"expected one of what '{objective.name}' has: {', '.join(known)}"
            self._mistake(objective, "feature_layer", f"{expected}; given {layer}")

    def _check_finetuning(self, objective: Objective, num_labelled: int) -> None:
        shares = numbers(str(objective.fixed["finetune_labels"]))
        classes, message = self.dataset.num_classes, ""
        if not set(shares) <= set(FINETUNE_SHARES):
            known, given = (", ".join(map(setting, each)) for each in (FINETUNE_SHARES, shares))
            message = f"expected some of {known}, given {given}"
        elif round(shares[0] * num_labelled) < classes:
            message = f"{setting(shares[0])} of {num_labelled} labelled images are fewer than the"
            message += f" {classes} classes: expected larger shares"
        if message:
            self._mistake(objective, "finetune_labels", message)


def _nearest_chunks(chunk: int, batch: int, workers: int) -> list[int]:
    """The two sizes nearest to `chunk` that divide a batch among the workers."""
    small = [c for c in range(1, math.isqrt(min(batch, MAX_BATCH)) + 1) if batch % c == 0]
    divisors = {*small, *(batch // c for c in small)}
    valid = [c for c in divisors if c % workers == 0 and c >= 2 * workers]
    return sorted(sorted(valid, key=lambda c: abs(c - chunk))[:2])
