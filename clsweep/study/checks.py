"""What follows from several keys of a study together: sizes that fit, parameters that have an
effect, budgets.
"""

from __future__ import annotations

from clsweep.catalog import COMPONENT, DATASET, FINETUNE_SHARES, METRIC, METRICS
from clsweep.catalog.open_encoders import NONE, is_open, measured
from clsweep.catalog.ownership import ALL_THERE_IS, switched_off_by
from clsweep.catalog.rows import numbers
from clsweep.display.numbers import setting
from clsweep.study.check_training import TrainingChecks
from clsweep.study.document import Keys
from clsweep.study.schema import FIRST_SEEDS, LIVE_METHODS, SCHEDULER_KEYS
from clsweep.study.space import Objective, slug

MAX_OBJECTIVE_NAME = 64


class Checks(TrainingChecks):
    """All of them: those of the whole study, and `check` for each objective."""

    def check_dataset(self) -> None:
        """Both parts of the training set need at least one image of every class; pairs of vectors
        have no parts.
        """
        name, section = self.dataset.name, self.sections.dataset
        if self.dataset.kind == "pairs":
            afresh = f"{name} is drawn afresh at every step: no"
            for key in (key for key in self.document.tree["dataset"] if key != "name"):
                self.error(("dataset", key), f"{afresh} such key")
            if "evaluation" in self.document.tree:
                self.error(("evaluation",), f"{afresh} splits")
            return
        for key, takers in self._takers().items():
            if getattr(section, key) is not None and name not in takers:
                only = f"expected on {', '.join(takers)} only, given on {name}"
                self.error(("dataset", key), f"{only}; null removes a key")
        if section.download and self.dataset.files:
            message = f"expected false, as {name} is your own files, given true"
            self.error(("dataset", "download"), message)
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
        """A metric that an objective does not take would be missing from every trial of it."""
        metric, dataset, fixed = METRIC[self.sections.metric.name], self.dataset, objective.fixed
        says = f"the metric is {metric.name}: expected "
        if metric.kind != dataset.kind:
            fitting = ", ".join(m.name for m in METRICS if m.kind == dataset.kind)
            message = f"expected a metric of {dataset.name}: {fitting}; given {metric.name}"
            self.error(("metric",), message)
        if metric.part and (chosen := fixed.get(metric.part)):
            probes = COMPONENT[metric.part]
            if not probes[str(chosen)].impl:
                scoring = " or ".join(c.name for c in probes.values() if c.impl)
                self._mistake(objective, metric.part, f"{says}{scoring}")
        if metric.of != "transfer" and metric.needs_labels and not dataset.num_classes:
            able = [m for m in METRICS if m.of == "transfer" or not m.needs_labels]
            names = ", ".join(m.name for m in able if m.kind == dataset.kind)
            message = f"{metric.name} needs classes, and {dataset.name} has none here: expected"
            self.error(("metric", "name"), f"{message} {names}")
            return
        framework = COMPONENT["framework"][objective.parts["framework"]]
        is_trained = "batch_size" in objective.owned
        if metric.of == "classifier" and not (framework.needs_labels and is_trained):
            self.error(
                ("objectives", objective.name, "framework"),
                f"{says}a framework that trains a classifier, as supervised, and epochs above 0",
            )
        wanted = {}
        if "z1_ND" in metric.takes and not is_trained:
            wanted["epochs"] = "epochs above 0, as it looks at projections"
        if "views_NVD" in metric.takes and fixed["lidar_views"] == 0:
            wanted["lidar_views"] = "lidar_views of 2 or more, as 10; given 0"
        if metric.of == "transfer" and fixed.get("transfer_dataset") == "none":
            wanted["transfer_dataset"] = "a transfer_dataset, given none"
        if metric.part == "finetune" and "finetune_labels" in fixed:
            shares = (FINETUNE_SHARES.get(s, "") for s in numbers(str(fixed["finetune_labels"])))
            if not any(f"finetune_{share}_" in metric.name for share in shares):
                given = fixed["finetune_labels"]
                wanted["finetune_labels"] = f"its share of the labels, given {given}"
        for name, expected in wanted.items():
            self._mistake(objective, name, says + expected)

    def _check_encoder(self, objective: Objective) -> None:
        """Another library's encoder is built once, on no device, before anything runs; and so is
        one that begins with the weights of a file.
        """
        if "encoder" in objective.space:  # their choices are the catalog's own
            if objective.fixed.get("init", NONE) != NONE:
                self._mistake(objective, "init", "expected one encoder with init")
            return
        encoder, init = str(objective.fixed["encoder"]), str(objective.fixed["init"])
        if not is_open(encoder) and init == NONE:
            return
        sizes = {"image_size": self.dataset.image_size, "channels": self.dataset.channels}
        if "width" in objective.space:
            self._mistake(objective, "width", "expected one value with init, given more")
            return
        for view_size in dict.fromkeys(objective.extremes("view_size")):
            try:
                measured({**objective.fixed, **sizes, "view_size": view_size})
            except ValueError as error:
                key = "init" if init != NONE and init.partition("#")[0] in str(error) else "encoder"
                self._mistake(objective, key, str(error))
                return

    def _check_pairs(self, objective: Objective) -> None:
        name, workers = self.dataset.name, self.sections.resources.workers
        if workers > 1:
            message = f"a trial on {name} has 1 worker, given {workers}"
            self.error(("resources", "workers"), message)
        if objective.extremes("epochs")[0] == 0:
            self._mistake(objective, "epochs", f"expected at least 1 on {name}, given 0")

    def _check_inert(self, objective: Objective) -> None:
        """A swept parameter that another one switches off would look perfectly robust."""
        for name, dimension in objective.space.items():
            if name in ALL_THERE_IS and dimension.extremes[0] == 0:
                message = (
                    f"0 stands for another number ({ALL_THERE_IS[name]}) and cannot be "
                    "swept: give that number"
                )
                self._mistake(objective, name, message)
            for other, value in switched_off_by(name, objective.parts, objective.fixed):
                if other in objective.owned and objective.extremes(other) == (value, value):
                    message = f"has no effect while {other} is {setting(value)}"
                    self._mistake(objective, name, message)

    def check_evaluation(self) -> None:
        """A search that learns from its scores would choose by the test images, and its best score
        would be no test score any more.
        """
        if self.sections.evaluation.score_on != "test":
            return
        method, scheduler = self.sections.search.method, self.sections.scheduler.name
        said = (
            "would choose configurations by the test split. Expected grid, qmc or random with "
            "fifo, or no evaluation: {score_on: test}"
        )
        if method in LIVE_METHODS:
            self.error(("search", "method"), f"{method} {said}")
        if scheduler != "fifo":
            self.error(("scheduler", "name"), f"{scheduler} {said}")

    def _check_search(self, objective: Objective) -> None:
        search = self.sections.search
        method, budget = search.method, search.trials_per_objective
        for name, dimension in objective.space.items():
            if method == "grid" and not dimension.points:
                message = "search.method is grid: expected grid or choices, given only low and high"
                self._mistake(objective, name, message)
            if method != "grid" and not dimension.choices and not dimension.is_range:
                message = f"search.method is {method}: expected low and high, or choices"
                self._mistake(objective, name, message)
        if method != "grid" and budget is None:
            message = f"method {method} needs trials_per_objective, a number of configurations"
            self.error(("search",), message)
        elif method == "grid" and budget and (size := objective.num_grid_configs) > budget:
            self.error(
                ("search", "trials_per_objective"),
                f"the grid of '{objective.name}' has {size} configurations, more than the {budget} "
                "allowed; thin the grid, raise this number, or use method qmc",
            )

    def check_cost(self) -> None:
        """Only a search that chooses can weigh the cost, of trials that ran to their end."""
        search, scheduler = self.sections.search, self.sections.scheduler.name
        if search.cost == "none":
            return
        if search.method not in LIVE_METHODS:
            self.error(
                ("search", "cost"),
                f"{search.method} chooses nothing by scores or costs. Expected none, or "
                f"search.method {' or '.join(LIVE_METHODS)}; clsweep pareto shows the front of any "
                "study",
            )
        elif scheduler != "fifo":
            self.error(
                ("scheduler", "name"),
                f"{scheduler} judges by the metric alone, and search.cost is {search.cost}. "
                "Expected fifo, or search.cost none",
            )

    def check_race(self) -> None:
        """A race leaves out seeds of bad configurations: there must be some to leave out, and no
        sampler that goes by their means.
        """
        method, seeds = self.sections.search.method, self.sections.seeds
        if self.sections.scheduler.name != "racing":
            return
        if method in LIVE_METHODS:
            self.error(
                ("scheduler", "name"),
                f"racing gives configurations unequal numbers of seeds, and {method} goes by their "
                "means. Expected fifo or asha, or search.method grid, qmc or random",
            )
        if len(seeds) <= FIRST_SEEDS:
            self.error(
                ("seeds",),
                f"racing runs {FIRST_SEEDS} seeds of every configuration and skips further ones: "
                f"expected {FIRST_SEEDS + 1} seeds or more, given {len(seeds)}",
            )

    def _check_scheduler(self, objective: Objective) -> None:
        """Successive halving compares scores of the same epochs, before the last, of a search that
        may be biased.
        """
        scheduler, method = self.sections.scheduler, self.sections.search.method
        if scheduler.name != "asha":
            return
        if method not in LIVE_METHODS:
            self.error(
                ("scheduler", "name"),
                f"asha stops bad configurations early, and {method} is there to measure how many "
                f"of them are bad. Expected fifo, or search.method {' or '.join(LIVE_METHODS)}",
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
            message = "asha compares configurations of equally many epochs: fix epochs in base, or"
            self._mistake(objective, "epochs", f"{message} use fifo")
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
