"""What follows from several keys of a study together: sizes that fit, parameters that have an
effect, budgets.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clsweep.catalog import (
    COMPONENT,
    DATASET,
    METRIC,
    METRICS,
    MIN_TSNE_POINTS,
    Dataset,
)
from clsweep.catalog.ownership import ALL_THERE_IS, num_crop_only, num_others, switched_off_by
from clsweep.display.numbers import setting
from clsweep.study.document import Document, Keys
from clsweep.study.schema import LIVE_METHODS, StudySections
from clsweep.study.score_checks import check_metric, check_scores
from clsweep.study.space import Objective, slug

MAX_OBJECTIVE_NAME = 64
MAX_BATCH = 10**8  # beyond it no data set has images, which is an error of its own


@dataclass(frozen=True)
class Checks:
    """Calls `error` once per mistake: where it stands; expected, given."""

    document: Document
    sections: StudySections
    dataset: Dataset
    transferred: Mapping[str, Dataset]  # data sets in a folder of their own
    error: Callable[[Keys, str], None]

    def check_dataset(self) -> None:
        """Both parts of the training set need at least one image of every class; pairs of vectors
        have no parts.
        """
        if self.dataset.kind == "pairs":
            for key in self.document.tree["dataset"]:
                if key != "name":
                    self.error(
                        ("dataset", key),
                        f"{self.dataset.name} is drawn afresh at every step: no such key",
                    )
            if "evaluation" in self.document.tree:
                self.error(
                    ("evaluation",), f"{self.dataset.name} is drawn afresh at every step: no splits"
                )
            return
        for key, takers in self._takers().items():
            if getattr(self.sections.dataset, key) is not None and self.dataset.name not in takers:
                only = f"expected on {', '.join(takers)} only"
                self.error(
                    ("dataset", key), f"{only}, given on {self.dataset.name}; null removes a key"
                )
        if self.sections.dataset.download and self.dataset.files:
            self.error(
                ("dataset", "download"),
                f"expected false, as {self.dataset.name} is your own files, given true",
            )
        fraction, classes = self.sections.val_fraction, self.dataset.num_classes
        if fraction is None and "val_fraction" in self.document.tree["dataset"]:
            self.error(
                ("dataset", "val_fraction"),
                "has no effect with evaluation: {train_on: all}, which holds no images out; null "
                "removes a key",
            )
        _, num_val = self.dataset.split_sizes(fraction)
        if num_val < classes:
            message = (
                f"expected at least {classes} images, one per class, in the validation "
                f"split; given {num_val}"
            )
            self.error(("dataset", "val_fraction"), message)

    def _takers(self) -> dict[str, list[str]]:
        """The data sets that take a key, where not all do."""
        own = [row.name for row in DATASET.values() if row.files]
        whole = [row.name for row in DATASET.values() if row.keeps_whole]
        by_option = {
            key: [row.name for row in DATASET.values() if key in row.options]
            for key in ("image_size", "num_classes")
        }
        return {**by_option, "channels": own, "store_size": whole, "range": ["arrays"]}

    def check_gpus(self) -> None:
        """Ray gives out parts of one GPU or whole GPUs; NCCL needs a GPU of its own for each
        worker.
        """
        resources = self.sections.resources
        gpus = resources.gpus_per_worker
        if gpus != int(gpus) and (gpus > 1 or resources.workers > 1):
            single = "a part of one GPU goes with a single worker"
            self.error(
                ("resources", "gpus_per_worker"),
                f"expected a whole number ({single}), given {setting(gpus)}",
            )

    def check_keys_in_use(self) -> None:
        """A key that nothing reads would look as if it worked."""
        scheduler, checkpoints = self.sections.scheduler, self.sections.checkpoints
        if scheduler.name == "fifo":
            for key in sorted(scheduler.model_fields_set - {"name"}):
                self.error(
                    ("scheduler", key), "expected with name: asha only, as fifo stops no trial"
                )
        if checkpoints.keep == "none" and "every_s" in checkpoints.model_fields_set:
            self.error(
                ("checkpoints", "every_s"),
                "expected with keep: last or best only, as none are made",
            )

    def check_evaluation(self) -> None:
        """A search that learns from its scores would choose by the test images, and its best score
        would be no test score any more.
        """
        method, scheduler = self.sections.search.method, self.sections.scheduler.name
        for keys, chooses in (
            (("search", "method"), method if method in LIVE_METHODS else ""),
            (("scheduler", "name"), scheduler if scheduler != "fifo" else ""),
        ):
            if chooses and self.sections.evaluation.score_on == "test":
                self.error(
                    keys,
                    f"{chooses} would choose configurations by the test split. Expected grid, qmc "
                    "or random with fifo, or no evaluation: {score_on: test}",
                )

    def check_names(self) -> None:
        slugs: dict[str, str] = {}
        for name in self.sections.objectives:
            at: Keys = ("objectives", name)
            if not name.strip() or len(name) > MAX_OBJECTIVE_NAME or not name.isprintable():
                self.error(
                    at,
                    f"expected a name of 1 to {MAX_OBJECTIVE_NAME} printable characters, given "
                    f"{name!r:.80}",
                )
            if slug(name).lower() in slugs:
                self.error(
                    at,
                    f"too much like '{slugs[slug(name).lower()]}': their files would have the "
                    "same names",
                )
            slugs[slug(name).lower()] = name
        confirm = self.sections.confirm
        shared_seeds = set(self.sections.seeds) & set(confirm.seeds) if confirm else set()
        if shared_seeds:
            given = ", ".join(map(str, sorted(shared_seeds)))
            self.error(
                ("confirm", "seeds"),
                f"expected seeds that the search does not use, given {given}, in seeds too",
            )

    def check(self, objective: Objective) -> None:
        """What follows from several keys together."""
        self._check_metric(objective)
        if self.dataset.kind == "pairs":
            self._check_pairs(objective)
        else:
            self._check_training(objective)
        self._check_inert(objective)
        self._check_search(objective)
        self._check_scheduler(objective)

    def _check_metric(self, objective: Objective) -> None:
        metric = METRIC[self.sections.metric.name]
        if metric.kind != self.dataset.kind:
            fitting = ", ".join(m.name for m in METRICS if m.kind == self.dataset.kind)
            self.error(
                ("metric",),
                f"expected a metric of {self.dataset.name}: {fitting}; given {metric.name}",
            )
        if metric.part and (chosen := objective.fixed.get(metric.part)):
            probes = COMPONENT[metric.part]
            if not probes[str(chosen)].impl:
                scoring = " or ".join(c.name for c in probes.values() if c.impl)
                self.error(
                    self._where(objective, metric.part),
                    f"the metric is {metric.name}: expected {scoring}",
                )

        check_metric(objective, metric, self.dataset, self._where, self.error)

    def _check_pairs(self, objective: Objective) -> None:
        if self.sections.resources.workers > 1:
            given = self.sections.resources.workers
            self.error(
                ("resources", "workers"),
                f"a trial on {self.dataset.name} has 1 worker, given {given}",
            )
        if objective.extremes("epochs")[0] == 0:
            self.error(
                self._where(objective, "epochs"),
                f"expected at least 1 on {self.dataset.name}, given 0",
            )

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
        check_scores(
            objective,
            self.dataset,
            self.sections.val_fraction,
            self._where,
            self.error,
            other=self.transferred.get(str(objective.fixed["transfer_dataset"])),
        )
        points = objective.fixed["tsne_points"]
        assert isinstance(points, int)
        if points and not MIN_TSNE_POINTS <= points <= num_val:
            split = self.sections.evaluation.score_on
            expected = f"expected 0, or {MIN_TSNE_POINTS} to {num_val}, the images of the {split}"
            expected += " split"
            self.error(self._where(objective, "tsne_points"), f"{expected}, given {points}")
        fewest_epochs, _ = objective.extremes("epochs")
        if "epochs" in objective.space and fewest_epochs == 0:
            keys = self._where(objective, "epochs")
            self.error(
                keys, "0 cannot be swept: add an objective of its own with base: {epochs: 0}"
            )
        if "batch_size" not in objective.owned:
            return
        _, largest = objective.extremes("batch_size")
        if largest > num_train:
            self.error(
                self._where(objective, "batch_size"),
                f"expected at most {available}, given {largest}",
            )
        self._check_negatives(objective)
        self._check_crops(objective)
        self._check_small_views(objective)
        self._check_first_epochs(objective)
        _, warmup = objective.extremes("warmup_epochs")
        if warmup >= fewest_epochs > 0:
            message = (
                f"expected fewer warm-up epochs than the {fewest_epochs} epochs, given {warmup}"
            )
            self.error(self._where(objective, "warmup_epochs"), message)
        self._check_workers(objective)
        self._check_chunks(objective)
        self._check_norm_groups(objective)
        self._check_precision(objective)

    def _check_negatives(self, objective: Objective) -> None:
        """A queue may have any length; negatives of the batch are as many as the batch has."""
        if "num_negatives" not in objective.owned:
            return
        framework, keys = objective.parts["framework"], self._where(objective, "num_negatives")
        fewest, most = objective.extremes("num_negatives")
        if framework == "moco":
            if fewest == 0:
                self.error(keys, "expected a queue of at least 1 key, given 0")
            return
        smallest, _ = objective.extremes("batch_size")
        available = num_others(framework, smallest)
        if most > available:
            message = (
                f"expected at most {available}, what a batch of {smallest} has for a query "
                f"in {framework}; "
            )
            self.error(keys, f"{message}given {most}. 0 takes all, whatever the batch size")

    def _check_crops(self, objective: Objective) -> None:
        _, lowest = objective.extremes("crop_scale")
        highest, _ = objective.extremes("crop_max")
        if lowest > highest:
            message = f"expected at most crop_max, {setting(highest)}, given {setting(lowest)}"
            self.error(self._where(objective, "crop_scale"), message)

    def _check_small_views(self, objective: Objective) -> None:
        if "small_view_size" not in objective.owned:
            return
        self._check_global_views(objective)
        _, size = objective.extremes("small_view_size")
        large, _ = objective.extremes("view_size")
        large = large or self.dataset.image_size
        if size > large:
            expected = f"expected at most {large}, the side of the other views"
            self.error(self._where(objective, "small_view_size"), f"{expected}, given {size}")
        name = "crop_scale" if objective.fixed.get("small_crop_scale") == 0 else "small_crop_scale"
        _, lowest = objective.extremes(name)
        highest, _ = objective.extremes("small_crop_max")
        if lowest > highest:
            message = (
                f"expected at most small_crop_max, {setting(highest)}, given {setting(lowest)}"
            )
            self.error(self._where(objective, name), message)
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
                self.error(self._where(objective, "crop_only_share"), message)

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
                self.error(self._where(objective, name), f"{message}; {listed} train alike")
        is_first = epochs == 1 and "teacher_tau" in objective.space
        if is_first and objective.extremes("teacher_tau_epochs")[0] > 0:
            message = "has no effect in 1 epoch, whose temperature is teacher_tau_start"
            self.error(self._where(objective, "teacher_tau"), message)

    def _check_queue(self, objective: Objective, epochs: int) -> None:
        """A queue that begins too late, or that is never full, is none."""
        start, _ = objective.extremes("swav_queue_start")
        num_train, _ = self.dataset.split_sizes(self.sections.val_fraction)
        queued = max(0, epochs - start) * num_train
        sizes = self._ends(objective, "swav_queue") or objective.extremes("swav_queue")
        unused = [size for size in sizes if size == 0 or size >= queued]
        if "swav_queue" in objective.space and len(unused) > 1:
            self.error(
                self._where(objective, "swav_queue"),
                f"has no effect in {epochs} epochs while swav_queue_start is {start}"
                if not queued
                else f"expected at most one of {', '.join(map(str, unused))}: in {epochs} epochs "
                f"from {start} on a queue of {queued} is never full, and is none",
            )
        if "swav_queue_start" in objective.space and len(unused) == len(sizes) and any(sizes):
            message = f"has no effect while a queue of {min(filter(None, sizes))} is never full"
            self.error(self._where(objective, "swav_queue_start"), message)

    def _ends(self, objective: Objective, name: str) -> tuple[Any, ...]:
        """All values that a swept hyperparameter takes, of a range its ends; none if it is
        fixed.
        """
        swept = objective.space.get(name)
        return () if swept is None else swept.points or swept.extremes

    def _check_global_views(self, objective: Objective) -> None:
        if "num_global_views" not in objective.owned:
            return
        fewest, most = objective.extremes("num_views")
        fewest_global, most_global = objective.extremes("num_global_views")
        if most_global > fewest:
            message = f"expected at most num_views, {fewest}, given {most_global}"
            self.error(self._where(objective, "num_global_views"), message)
        elif most == fewest_global > 2:
            for name in ("small_view_size", "small_crop_scale", "small_crop_max"):
                if name in objective.space:
                    message = f"has no effect while all {most} views are global"
                    self.error(self._where(objective, name), message)

    def _check_inert(self, objective: Objective) -> None:
        """A swept parameter that another one switches off would look perfectly robust."""
        for name, dimension in objective.space.items():
            if name in ALL_THERE_IS and dimension.extremes[0] == 0:
                message = (
                    f"0 stands for another number ({ALL_THERE_IS[name]}) and cannot be "
                    "swept: give that number"
                )
                self.error(self._where(objective, name), message)
            for other, value in switched_off_by(name, objective.parts, objective.fixed):
                if other in objective.owned and objective.extremes(other) == (value, value):
                    message = f"has no effect while {other} is {setting(value)}"
                    self.error(self._where(objective, name), message)

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

    def _check_workers(self, objective: Objective) -> None:
        workers = self.sections.resources.workers
        if workers == 1:
            return
        keys = self._where(objective, "batch_size")
        dimension = objective.space.get("batch_size")
        if dimension and dimension.is_range:
            self.error(
                keys,
                f"with {workers} workers expected choices that {workers} divides, given a range",
            )
            return
        for size in dimension.points if dimension else (objective.fixed["batch_size"],):
            assert isinstance(size, int)
            if size % workers or size // workers < 2:
                below, above = size // workers * workers, -(-size // workers) * workers
                valid = ", ".join(
                    str(v) for v in sorted({max(below, 2 * workers), max(above, 2 * workers)})
                )
                self.error(
                    keys,
                    f"batch size {size} does not divide among {workers} workers; nearest valid: "
                    f"{valid}",
                )

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
            if (
                chunk
                and chunk < batch
                and (batch % chunk or chunk % workers or chunk < 2 * workers)
            ):
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

    def _points(self, objective: Objective, name: str) -> tuple[Any, ...]:
        """All values that a hyperparameter takes; none if it has a range, or is not owned."""
        if name not in objective.owned:
            return ()
        if name in objective.fixed:
            return (objective.fixed[name],)
        return () if objective.space[name].is_range else objective.space[name].points

    def _check_search(self, objective: Objective) -> None:
        search = self.sections.search
        for name, dimension in objective.space.items():
            keys = self._where(objective, name)
            if search.method == "grid" and not dimension.points:
                self.error(
                    keys, "search.method is grid: expected grid or choices, given only low and high"
                )
            if search.method != "grid" and not dimension.choices and not dimension.is_range:
                self.error(
                    keys, f"search.method is {search.method}: expected low and high, or choices"
                )
        if search.method != "grid":
            if search.trials_per_objective is None:
                self.error(
                    ("search",),
                    f"method {search.method} needs trials_per_objective, a number of "
                    "configurations",
                )
        elif (
            search.trials_per_objective and objective.num_grid_configs > search.trials_per_objective
        ):
            message = (
                f"the grid of '{objective.name}' has {objective.num_grid_configs} "
                "configurations, more than the "
            )
            message += (
                f"{search.trials_per_objective} allowed; thin the grid, raise this "
                "number, or use method qmc"
            )
            self.error(("search", "trials_per_objective"), message)

    def _check_scheduler(self, objective: Objective) -> None:
        """Successive halving compares scores of the same epochs, before the last, of a search that
        may be biased.
        """
        scheduler, method = self.sections.scheduler, self.sections.search.method
        if scheduler.name == "fifo":
            return
        if method not in LIVE_METHODS:
            reason = (
                f"asha stops bad configurations early, and {method} is there to measure how "
                "many of them are bad"
            )
            self.error(
                ("scheduler", "name"),
                f"{reason}. Expected fifo, or search.method {' or '.join(LIVE_METHODS)}",
            )
            return
        metric = METRIC[self.sections.metric.name]
        is_probed = metric.part == "linear_probe" and metric.of == "features"
        if not metric.every_epoch and not (
            is_probed and objective.fixed["linear_every"] == "scored"
        ):
            every_epoch = ", ".join(m.name for m in METRICS if m.every_epoch)
            message = f"asha compares scores before the last epoch, expected {every_epoch}"
            advice = ", or set linear_every: scored" if is_probed else ""
            self.error(
                ("metric", "name"),
                f"{message}; {metric.name} is scored at the last epoch only{advice}",
            )
            return
        if "epochs" in objective.space:
            keys = self._where(objective, "epochs")
            self.error(
                keys,
                "asha compares configurations of equally many epochs: fix epochs in base, or use "
                "fifo",
            )
            return
        epochs = objective.fixed["epochs"]
        eval_every = objective.fixed.get("eval_every", 1)  # none without training, which just runs
        assert isinstance(epochs, int)
        assert isinstance(eval_every, int)
        # the first scored epoch it looks at
        first_met = -(-scheduler.grace_epochs // eval_every) * eval_every
        if 0 < epochs <= first_met:
            scored = f"'{objective.name}' trains {epochs} epochs and is scored every {eval_every}"
            enough = f"expected epochs > {first_met}, or a smaller grace_epochs or eval_every"
            at: Keys = (
                "scheduler",
                "grace_epochs" if "grace_epochs" in scheduler.model_fields_set else "name",
            )
            self.error(at, f"asha would stop no trial: {scored}; {enough}")

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


def _nearest_chunks(chunk: int, batch: int, workers: int) -> list[int]:
    """The two sizes nearest to `chunk` that divide a batch among the workers."""
    small = [c for c in range(1, math.isqrt(min(batch, MAX_BATCH)) + 1) if batch % c == 0]
    divisors = {*small, *(batch // c for c in small)}
    valid = [c for c in divisors if c % workers == 0 and c >= 2 * workers]
    return sorted(sorted(valid, key=lambda c: abs(c - chunk))[:2])
