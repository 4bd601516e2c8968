"""What follows from several keys of a study together: sizes that fit, parameters that have an
effect, budgets.
"""

from __future__ import annotations

from clsweep.catalog import COMPONENT, DATASET, METRIC, METRICS, MIN_TSNE_POINTS
from clsweep.catalog.initial import NONE
from clsweep.catalog.open_encoders import is_open, measured
from clsweep.catalog.ownership import ALL_THERE_IS, switched_off_by
from clsweep.display.numbers import setting
from clsweep.study.check_batches import BatchChecks
from clsweep.study.check_epochs import EpochChecks
from clsweep.study.check_search import SearchChecks
from clsweep.study.check_views import ViewChecks
from clsweep.study.document import Keys
from clsweep.study.schema import SCHEDULER_KEYS
from clsweep.study.score_checks import check_metric, check_scores
from clsweep.study.space import Objective, slug

MAX_OBJECTIVE_NAME = 64


class Checks(ViewChecks, BatchChecks, EpochChecks, SearchChecks):
    """All of them: those of the whole study, and `check` for each objective."""

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
        for key in sorted(scheduler.model_fields_set - {"name", *SCHEDULER_KEYS[scheduler.name]}):
            [owner] = [name for name, keys in SCHEDULER_KEYS.items() if key in keys]
            why = ", as fifo stops no trial" if scheduler.name == "fifo" else ""
            self.error(("scheduler", key), f"expected with name: {owner} only{why}")
        if checkpoints.keep == "none" and "every_s" in checkpoints.model_fields_set:
            self.error(
                ("checkpoints", "every_s"),
                "expected with keep: last or best only, as none are made",
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
        if self.dataset.kind == "images":
            self._check_encoder(objective)
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

    def _check_encoder(self, objective: Objective) -> None:
        """Another library's encoder is built once, on no device, before anything runs; and so is
        one that begins with the weights of a file.
        """
        if "encoder" in objective.space:  # their choices are the catalog's own
            if objective.fixed.get("init", NONE) != NONE:
                self.error(self._where(objective, "init"), "expected one encoder with init")
            return
        encoder, init = str(objective.fixed["encoder"]), str(objective.fixed["init"])
        if not is_open(encoder) and init == NONE:
            return
        sizes = {"image_size": self.dataset.image_size, "channels": self.dataset.channels}
        if "width" in objective.space:
            self.error(self._where(objective, "width"), "expected one value with init, given more")
            return
        for view_size in dict.fromkeys(objective.extremes("view_size")):
            try:
                measured({**objective.fixed, **sizes, "view_size": view_size})
            except ValueError as error:
                key = "init" if init != NONE and init.partition("#")[0] in str(error) else "encoder"
                self.error(self._where(objective, key), str(error))
                return

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
        self._check_momentum(objective)
        self._check_whitening(objective)
        self._check_crops(objective)
        self._check_hue(objective)
        self._check_projector(objective)
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

    def _check_projector(self, objective: Objective) -> None:
        """A single layer is none of the hidden ones."""
        if "proj_norm" not in objective.space or objective.extremes("proj_layers")[0] > 1:
            return
        if {"none", "hidden"} <= {*self._points(objective, "proj_norm")}:
            message = "none and hidden train alike while proj_layers is 1"
            self.error(self._where(objective, "proj_norm"), message)

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
