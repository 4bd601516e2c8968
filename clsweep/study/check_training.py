"""Checks of what a trial on images trains and scores: parts of a batch that fit it, views that fit
the images and each other, what happens over the epochs, what the scores need.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from typing import Any

from clsweep.catalog import COMPONENT, DATASET, FINETUNE_SHARES, MIN_TSNE_POINTS, Dataset
from clsweep.catalog.ownership import HALF_TURN, num_crop_only, num_features, num_others
from clsweep.catalog.rows import parse_numbers
from clsweep.display.numbers import setting
from clsweep.errors import MAX_LINES, StudyError, mistake_lines
from clsweep.study.document import Document, Keys
from clsweep.study.schema import StudySections
from clsweep.study.space import Objective

MAX_BATCH = 10**8  # beyond it no data set has images, which is an error of its own
MIN_VIEW_SIZE = 8  # pixels a side, as of the images


class Draft:
    """A study without factors while it is checked. It collects all mistakes of a file before it
    complains, so that a user mends them in one go.
    """

    document: Document
    sections: StudySections
    dataset: Dataset  # with its sizes
    transferred: dict[str, Dataset]  # data sets in a folder of their own, by name
    objectives: tuple[Objective, ...]
    # objective -> hyperparameter -> the keys whose values it has
    sources: dict[str, dict[str, tuple[Keys, ...]]]
    errors: list[str]

    def error(self, keys: Keys, message: str) -> None:
        self.errors.append(self.document.error(keys, message))
        if len(self.errors) == MAX_LINES:
            self.raise_errors()

    def raise_errors(self) -> None:
        if self.errors:
            raise StudyError(mistake_lines(self.errors))


class TrainingChecks:
    """Of one objective. Each mistake is one line: where it stands; expected, given."""

    def __init__(self, draft: Draft, objective: Objective):
        self.draft, self.objective = draft, objective
        self.sections, self.dataset, self.error = draft.sections, draft.dataset, draft.error
        self.workers = draft.sections.resources.workers
        self.fixed, self.space, self.owned = objective.fixed, objective.space, objective.owned
        self.is_trainer = COMPONENT["framework"][objective.parts["framework"]].is_trainer

    def mistake(self, param: str, message: str) -> None:
        """An error where `param` was written for this objective."""
        self.error(self.where(param), message)

    def where(self, param: str) -> Keys:
        """The keys under which `param` was written for this objective."""
        at: Keys = ("objectives", self.objective.name)
        own = self.sections.objectives[self.objective.name]
        for keys, section in ((at, own), ((), self.sections)):
            for kind in ("space", "base"):
                if param in getattr(section, kind):
                    return (*keys, kind, param)
        return at

    def lowest(self, param: str) -> Any:
        """The smallest value that a hyperparameter takes, fixed or swept."""
        return self.objective.extremes(param)[0]

    def highest(self, param: str) -> Any:
        return self.objective.extremes(param)[1]

    def points(self, *names: str) -> list[tuple[Any, ...]]:
        """Of each hyperparameter all its values; none if it has a range, or is not owned."""
        fixed = {name: (value,) for name, value in self.fixed.items()}
        beside = {
            name: (d.otherwise,) * (d.otherwise is not None) for name, d in self.space.items()
        }
        listed = {n: d.points + beside[n] for n, d in self.space.items() if not d.is_range}
        return [(fixed | listed).get(name, ()) for name in names]

    def ends(self, name: str) -> tuple[Any, ...]:
        """All values of a swept hyperparameter, of a range its ends; none if it is fixed."""
        swept = self.space.get(name)
        return () if swept is None else swept.points or swept.extremes

    def require_at_most(self, name: str, bound: str) -> None:
        """No value of one hyperparameter lies above one of another."""
        if (given := self.highest(name)) > (most := self.lowest(bound)):
            self.mistake(name, f"expected at most {bound}, {setting(most)}, given {setting(given)}")

    def check_training(self) -> None:
        name, unlabeled = self.dataset.name, self.dataset.num_unlabeled
        num_train, num_val = self.dataset.split_sizes(self.sections.val_fraction)
        available = f"{num_train}, the images that {name} trains on"
        num_labelled = num_train - unlabeled
        if self.dataset.num_classes and (neighbours := self.highest("knn_k")) > num_labelled:
            with_class = f"{num_labelled}, the images with a class that {name} trains on"
            message = f"expected at most {with_class if unlabeled else available}"
            message += f", given {neighbours}"
            if self.where("knn_k")[-1] != "knn_k":
                message = f"knn_k: {message}, the default; set base.knn_k"
            self.mistake("knn_k", message)
        self.check_scores(max(0, num_labelled))
        points: Any = self.fixed["tsne_points"]
        if points and num_val is not None and not MIN_TSNE_POINTS <= points <= num_val:
            images = f"the images of the {self.sections.evaluation.score_on} split"
            expected = f"expected 0, or {MIN_TSNE_POINTS} to {num_val}, {images}, given {points}"
            self.mistake("tsne_points", expected)
        fewest_epochs = self.lowest("epochs")
        if "epochs" in self.space and fewest_epochs == 0:
            advice = "add an objective of its own with base: {epochs: 0}"
            self.mistake("epochs", f"0 cannot be swept: {advice}")
        if "batch_size" not in self.owned:
            return
        if (largest := self.highest("batch_size")) > num_train:
            self.mistake("batch_size", f"expected at most {available}, given {largest}")
        of_owned = {
            "num_negatives": self.check_negatives,
            "momentum_end": lambda: self.check_end("momentum_end", "momentum_schedule"),
            "weight_decay_end": self.check_decay,
            "tau_end": lambda: self.check_end("tau_end", "tau_schedule"),
            "tau_period": lambda: self.check_end("tau_period", "tau_schedule"),
            "whitening_size": self.check_whitening,
            "crop_scale": lambda: self.require_at_most("crop_scale", "crop_max"),
            "jitter_hue": self.check_hue,
            "proj_norm": self.check_projector,
            "small_view_size": self.check_small_views,
        }
        for param, check in of_owned.items():
            if param in self.owned:
                check()
        self.check_first_epochs(num_train)
        if (warmup := self.highest("warmup_epochs")) >= fewest_epochs > 0:
            fewer = f"fewer warm-up epochs than the {fewest_epochs} epochs"
            self.mistake("warmup_epochs", f"expected {fewer}, given {warmup}")
        if "lr_decay_share" in self.owned and fewest_epochs > 0:
            most = 1 - warmup / fewest_epochs
            if (share := self.highest("lr_decay_share")) > most:
                left = f"at most {setting(most)}, what {warmup} warm-up epochs leave"
                self.mistake("lr_decay_share", f"expected {left}, given {setting(share)}")
        self.check_workers()
        self.check_chunks()
        self.check_norm_groups()
        self.check_precision()

    def check_trainer(self) -> None:
        """Needs of what a trial gives to a trainer; what it does with it is its own."""
        if self.lowest("epochs") == 0:
            self.mistake("epochs", "expected at least 1 of a trainer, given 0")
        num_train, _ = self.dataset.split_sizes(self.sections.val_fraction)
        if "knn_k" in self.owned and (given := self.highest("knn_k")) > num_train:
            self.mistake("knn_k", f"expected at most {num_train} training images, given {given}")
        if self.fixed.get("feature_layer", "encoder") != "encoder":
            self.mistake("feature_layer", "expected encoder, what the trainer lets be scored")

    # A batch.

    def check_negatives(self) -> None:
        """A queue may have any length; negatives of the batch are as many as the batch has."""
        framework, name = self.objective.parts["framework"], "num_negatives"
        if framework == "moco":
            if self.lowest(name) == 0:
                self.mistake(name, "expected a queue of at least 1 key, given 0")
            return
        batch = self.lowest("batch_size")
        available = num_others(framework, batch)
        if (most := self.highest(name)) > available:
            self.mistake(
                name,
                f"expected at most {available}, what a batch of {batch} has for a query in "
                f"{framework}; given {most}. 0 takes all, whatever the batch size",
            )

    def check_whitening(self) -> None:
        """A sub-batch has more samples than dimensions, and the batch is made of such."""
        name, dim = "whitening_size", self.highest("proj_dim")
        sizes, batches = self.points(name, "batch_size")
        if not sizes or not batches:
            self.mistake(name, "expected fixed values or choices of it and of batch_size")
        for size, batch in itertools.product(sizes, batches):
            together = size or batch
            self.require_groups(name, together, batch, "a batch")
            if not batch % together and together <= dim:
                more = f"expected more than {dim}, the dimensions of proj_dim"
                self.mistake(name, f"{more}, given {together}")
        hidden = self.lowest("proj_hidden")
        if self.highest("proj_layers") > 1 and hidden:
            self._require_span(dim, hidden, "proj_hidden")
        is_narrow = self.lowest("proj_layers") == 1 or not hidden
        if is_narrow and {"encoder", "width"}.isdisjoint(self.space):
            given = {"image_size": self.dataset.image_size, "channels": self.dataset.channels}
            with contextlib.suppress(ValueError):  # an encoder that cannot be built, see `checks`
                width = num_features(given | dict(self.fixed))
                self._require_span(dim, width, "the features of the encoder")

    def _require_span(self, dim: int, width: int, of: str) -> None:
        """A linear layer from `width` dimensions spans no more."""
        if dim > width:
            expected = f"expected at most {of}, {width}: no more dimensions can be whitened"
            self.mistake("proj_dim", f"{expected}, given {dim}")

    def require_groups(self, name: str, group: int, whole: int, what: str) -> None:
        if whole % group:
            wrong = f"groups of {group} do not make {what} of {whole}; it must divide it"
            self.mistake(name, wrong)

    def check_workers(self) -> None:
        workers, dimension = self.workers, self.space.get("batch_size")
        if workers == 1:
            return
        if dimension and dimension.is_range:
            expected = f"expected choices that {workers} divides, given a range"
            self.mistake("batch_size", f"with {workers} workers {expected}")
        for size in self.points("batch_size")[0]:
            if size % workers or size // workers < 2:
                below, above = size // workers * workers, -(-size // workers) * workers
                valid = sorted({max(below, 2 * workers), max(above, 2 * workers)})
                self.mistake(
                    "batch_size",
                    f"batch size {size} does not divide among {workers} workers; nearest valid: "
                    f"{', '.join(map(str, valid))}",
                )

    def check_chunks(self) -> None:
        """Batch norm must see as many images in every chunk, and in every worker's part of it."""
        name, workers = "chunk_size", self.workers
        chunks, batches = self.points(name, "batch_size")
        if chunks == (0,):
            return
        if not chunks or not batches:
            both = "fixed values or choices of both chunk_size and batch_size"
            self.mistake(name, f"expected {both}, given a range")
        elif len(chunks) > 1 and sum(chunk >= min(batches) for chunk in chunks) > 1:
            whole = f"expected at most one of the chunks to be a whole batch of {min(batches)}"
            given = ", ".join(map(str, chunks))
            self.mistake(name, f"{whole}, given {given}: these would train alike")
        for chunk, batch in itertools.product(chunks, batches):
            is_part = 0 < chunk < batch
            if is_part and (batch % chunk or chunk % workers or chunk < 2 * workers):
                among = f" on {workers} workers" if workers > 1 else ""
                valid = ", ".join(map(str, _nearest_chunks(chunk, batch, workers)))
                wrong = f"chunks of {chunk} do not make a batch of {batch}{among}"
                self.mistake(name, f"{wrong}; nearest valid: {valid}")

    def check_norm_groups(self) -> None:
        if "shuffle" not in self.points("key_norm")[0]:
            return
        name = "norm_group"
        groups, batches, chunks = self.points(name, "batch_size", "chunk_size")
        if not groups or not batches or not chunks:
            expected = "expected fixed values or choices of it, batch_size and chunk_size"
            self.mistake(name, expected)
        for group, batch, chunk in itertools.product(groups, batches, chunks):
            together = min(chunk or batch, batch)
            what = "a chunk" if together < batch else "a batch"
            self.require_groups(name, group, together, what)

    def check_precision(self) -> None:
        [wanted] = self.points("precision")
        if "auto" in wanted:  # swept: a fixed one has been decided
            advice = "auto stands for one of the others and cannot be swept: give that one"
            self.mistake("precision", advice)
        if "fp16" in wanted and not self.sections.resources.gpus_per_worker:
            needs = "fp16 needs a GPU, and resources.gpus_per_worker is 0"
            self.mistake("precision", f"{needs}. Expected: auto, fp32 or bf16")

    def check_projector(self) -> None:
        """A single layer is none of the hidden ones."""
        is_alike = {"none", "hidden"} <= {*self.ends("proj_norm")}
        if is_alike and self.lowest("proj_layers") == 1:
            self.mistake("proj_norm", "none and hidden train alike while proj_layers is 1")

    # Views.

    def check_hue(self) -> None:
        strongest, furthest = self.highest("jitter_strength"), self.highest("jitter_hue")
        if strongest * furthest > HALF_TURN:
            product = f"{setting(strongest)} x {setting(furthest)}"
            most = "at most half a turn, 0.5, of jitter_strength x jitter_hue"
            self.mistake("jitter_hue", f"expected {most}, given {product}")

    def check_small_views(self) -> None:
        if "num_global_views" in self.owned:
            self.check_global_views()
        size, large = self.highest("small_view_size"), self.lowest("view_size")
        large = large or self.dataset.image_size
        if size > large:
            most = f"{large}, the side of the other views"
            self.mistake("small_view_size", f"expected at most {most}, given {size}")
        is_same = self.fixed.get("small_crop_scale") == 0
        self.require_at_most("crop_scale" if is_same else "small_crop_scale", "small_crop_max")
        shares = self.space.get("crop_only_share")
        every: tuple[Any, ...] = dict(shares.when).get("num_views", ()) if shares else (2,)
        for num_views in {*(every or self.points("num_views")[0])} - {2}:
            counts = [
                num_crop_only(float(share), num_views) for share in self.ends("crop_only_share")
            ]
            if len(set(counts)) < len(counts):
                given = f"{', '.join(map(str, counts))} crop-only views of {num_views}"
                expected = "expected shares that differ in effect"
                self.mistake("crop_only_share", f"{expected}, given {given}")

    def check_global_views(self) -> None:
        most = self.highest("num_views")
        if self.highest("num_global_views") > self.lowest("num_views"):
            self.require_at_most("num_global_views", "num_views")
        elif most == self.lowest("num_global_views") > 2:
            for name in ("small_view_size", "small_crop_scale", "small_crop_max"):
                if name in self.space:
                    self.mistake(name, f"has no effect while all {most} views are global")

    # Epochs.

    def check_end(self, name: str, schedule: str) -> None:
        """Refuse the end of a schedule that is constant, and a momentum that falls."""
        is_constant = self.points(schedule) == [("constant",)]
        if is_constant and self.where(name)[-2:] == ("base", name):
            self.mistake(name, f"has no effect while {schedule} is constant")
        elif name == "momentum_end" and (start := self.highest("momentum")) > self.lowest(name):
            least = f"expected at least momentum, {setting(start)}"
            self.mistake(name, f"{least}, given {setting(self.lowest(name))}")

    def check_decay(self) -> None:
        """A weight decay of 0 says that nothing decays."""
        self.check_end("weight_decay_end", "weight_decay_schedule")
        if "cosine" in self.points("weight_decay_schedule")[0] and not self.lowest("weight_decay"):
            begins = "expected more than 0, where weight_decay_schedule begins, given 0"
            self.mistake("weight_decay", begins)

    def check_first_epochs(self, num_train: int) -> None:
        """Values that differ only beyond the last epoch train alike."""
        epochs = self.highest("epochs")
        if "swav_queue" in self.owned:
            self.check_queue(epochs, num_train)
        for name in ("freeze_epochs", "swav_queue_start"):
            late = [value for value in self.ends(name) if value >= epochs]
            if len(late) > 1:
                most = f"expected at most one value from {epochs} on, the epochs of a trial"
                self.mistake(name, f"{most}; {', '.join(map(str, late))} train alike")
        is_first = epochs == 1 and "teacher_tau" in self.space
        if is_first and self.lowest("teacher_tau_epochs") > 0:
            only = "has no effect in 1 epoch, whose temperature is teacher_tau_start"
            self.mistake("teacher_tau", only)

    def check_queue(self, epochs: int, num_train: int) -> None:
        """A queue that begins too late, or that is never full, is none."""
        start = self.highest("swav_queue_start")
        queued = max(0, epochs - start) * num_train
        sizes = self.ends("swav_queue") or self.objective.extremes("swav_queue")
        unused = [size for size in sizes if size == 0 or size >= queued]
        if "swav_queue" in self.space and len(unused) > 1:
            message = f"has no effect in {epochs} epochs while swav_queue_start is {start}"
            if queued:
                message = f"expected at most one of {', '.join(map(str, unused))}: in {epochs} "
                message += f"epochs from {start} on a queue of {queued} is never full, and is none"
            self.mistake("swav_queue", message)
        if "swav_queue_start" in self.space and len(unused) == len(sizes) and any(sizes):
            smallest = min(filter(None, sizes))
            message = f"has no effect while a queue of {smallest} is never full"
            self.mistake("swav_queue_start", message)

    # Scores.

    def check_scores(self, num_labelled: int) -> None:
        """Needs of the scores of images; both data sets hold out the same `val_fraction`."""
        fixed, classes = self.fixed, self.dataset.num_classes
        self.check_layer()
        if fixed["lidar_views"] == 1:
            self.mistake("lidar_views", "expected 0, or 2 views and more, given 1")
        if fixed["linear_every"] == "scored" and fixed["linear_probe"] == "none":
            self.mistake("linear_every", "has no effect while linear_probe is none")
        if fixed.get("probe_schedule") != "step" and self.where("probe_gamma")[-1] == "probe_gamma":
            self.mistake("probe_gamma", "has no effect unless probe_schedule is step")
        share = fixed.get("probe_val_share")
        if share is not None and round(float(share) * num_labelled) < classes:
            expected = f"expected a share with an image of each of the {classes} classes"
            given = f"of {num_labelled} labelled images; given {setting(share)}"
            self.mistake("probe_val_share", f"{expected}, {given}")
        if "finetune_labels" in fixed:
            self.check_finetuning(num_labelled)
        transfer = str(fixed["transfer_dataset"])
        if transfer != "none" and (message := self.wrong_transfer(DATASET[transfer])):
            self.mistake("transfer_dataset", message)
        if 0 < (smallest := self.lowest("view_size")) < MIN_VIEW_SIZE:
            least = f"expected 0 or at least {MIN_VIEW_SIZE} pixels"
            self.mistake("view_size", f"{least}, given {smallest}")

    def wrong_transfer(self, row: Dataset) -> str:
        """Why scores cannot be transferred to a data set; empty if they can."""
        name, dataset, known_set = row.name, self.dataset, self.draft.transferred.get(row.name)
        if known_set is None and (row.files or name == dataset.name):
            reason = "the study's own" if name == dataset.name else "your own files"
            return (
                f"expected another data set of the catalog, given {name}, {reason}: these need "
                "dataset.transfer_root, a folder of their own"
            )
        other = known_set or row
        if not other.num_classes:
            return f"expected a data set with classes, given {name}, which has none"
        channels = {other.channels, dataset.channels}
        if len(channels) > 1 and not channels <= {1, 3}:
            expected = f"images of {dataset.channels} channels, as {dataset.name} has"
            return f"expected {expected}, given {name} of {other.channels}"
        _, num_val = other.split_sizes(self.sections.val_fraction)
        if num_val is not None and num_val < other.num_classes:
            each = f"an image of each of the {other.num_classes} classes of {name}"
            return f"expected a val_fraction with {each}, given {num_val} images"
        return ""

    def check_layer(self) -> None:
        layer = self.fixed["feature_layer"]
        projector = ("projector",) if "proj_dim" in self.owned else ()
        each = [COMPONENT["encoder"][name].blocks for name in self.objective.encoders]
        blocks = [name for name in each[0] if all(name in own for own in each)]
        if layer not in (known := ("encoder", *projector, *blocks)):
            expected = f"expected one of what '{self.objective.name}' has: {', '.join(known)}"
            self.mistake("feature_layer", f"{expected}; given {layer}")

    def check_finetuning(self, num_labelled: int) -> None:
        shares = parse_numbers(str(self.fixed["finetune_labels"]))
        classes = self.dataset.num_classes
        if not set(shares) <= set(FINETUNE_SHARES):
            known, given = (", ".join(map(setting, each)) for each in (FINETUNE_SHARES, shares))
            self.mistake("finetune_labels", f"expected some of {known}, given {given}")
        elif round(shares[0] * num_labelled) < classes:
            few = f"{setting(shares[0])} of {num_labelled} labelled images are fewer"
            fewer = f"{few} than the {classes} classes: expected larger shares"
            self.mistake("finetune_labels", fewer)


def _nearest_chunks(chunk: int, batch: int, workers: int) -> list[int]:
    """The two sizes nearest to `chunk` that divide a batch among the workers."""
    small = [c for c in range(1, math.isqrt(min(batch, MAX_BATCH)) + 1) if batch % c == 0]
    divisors = {*small, *(batch // c for c in small)}
    valid = [c for c in divisors if c % workers == 0 and c >= 2 * workers]
    return sorted(sorted(valid, key=lambda c: abs(c - chunk))[:2])
