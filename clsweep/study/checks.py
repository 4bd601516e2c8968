"""What follows from several keys of a study together: sizes that fit, parameters that have an
effect, budgets.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from clsweep.catalog import COMPONENT, DATASET, FINETUNE_SHARES, METRIC, METRICS, Value
from clsweep.catalog.open_encoders import ENCODER_PARAMS, NONE, is_open, why_not
from clsweep.catalog.ownership import ALL_THERE_IS, switched_off_by, without_other_encoders
from clsweep.catalog.rows import numbers
from clsweep.display.numbers import setting
from clsweep.study.check_training import Draft, TrainingChecks
from clsweep.study.contrasts import check_contrasts
from clsweep.study.schema import FIRST_SEEDS, LIVE_METHODS, SCHEDULER_KEYS
from clsweep.study.space import Objective, size_of, slug

MAX_OBJECTIVE_NAME = 64


def check_study(draft: Draft, objectives: Sequence[Objective]) -> None:
    """Note every mistake of the objectives, and of what holds for all of them."""
    for objective in objectives:
        _ObjectiveChecks(draft, objective).check()
    for check in (_check_dataset, _check_resources, _check_search, _check_names):
        check(draft)
    check_contrasts(draft, objectives)


class _ObjectiveChecks(TrainingChecks):
    def check(self) -> None:
        self.check_metric()
        if self.dataset.kind == "images":
            self.check_encoder()
            self.check_training()
        else:
            name = self.dataset.name
            if self.workers > 1:
                only = f"a trial on {name} has 1 worker, given {self.workers}"
                self.error(("resources", "workers"), only)
            if self.lowest("epochs") == 0:
                self.mistake("epochs", f"expected at least 1 on {name}, given 0")
        self.check_inert()
        self.check_when()
        self.check_search()
        if self.sections.scheduler.name == "asha":
            self.check_halving()

    def check_metric(self) -> None:
        """A metric that an objective does not take would be missing from every trial of it."""
        metric, dataset, fixed = METRIC[self.sections.metric.name], self.dataset, self.fixed
        says = f"the metric is {metric.name}: expected "
        if metric.kind != dataset.kind:
            fitting = ", ".join(m.name for m in METRICS if m.kind == dataset.kind)
            expected = f"expected a metric of {dataset.name}: {fitting}"
            self.error(("metric",), f"{expected}; given {metric.name}")
        if metric.part and (chosen := fixed.get(metric.part)):
            probes = COMPONENT[metric.part]
            if not probes[str(chosen)].impl:
                scoring = " or ".join(c.name for c in probes.values() if c.impl)
                self.mistake(metric.part, says + scoring)
        if metric.of != "transfer" and metric.needs_labels and not dataset.num_classes:
            able = [m for m in METRICS if m.of == "transfer" or not m.needs_labels]
            names = ", ".join(m.name for m in able if m.kind == dataset.kind)
            unread = f" (not read: {dataset.unread})" if dataset.unread else ""
            needs = f"{metric.name} needs classes, and {dataset.name} has none here{unread}"
            self.error(("metric", "name"), f"{needs}: expected {names}")
            return
        framework = COMPONENT["framework"][self.objective.parts["framework"]]
        is_trained = "batch_size" in self.owned
        if metric.of == "classifier" and not (framework.needs_labels and is_trained):
            classifying = "a framework that trains a classifier, as supervised, and epochs above 0"
            self.error(("objectives", self.objective.name, "framework"), says + classifying)
        if "z1_ND" in metric.takes and not is_trained:
            self.mistake("epochs", f"{says}epochs above 0, as it looks at projections")
        if "views_NVD" in metric.takes and fixed["lidar_views"] == 0:
            self.mistake("lidar_views", f"{says}lidar_views of 2 or more, as 10; given 0")
        if metric.of == "transfer" and fixed.get("transfer_dataset") == "none":
            self.mistake("transfer_dataset", f"{says}a transfer_dataset, given none")
        if metric.part == "finetune" and "finetune_labels" in fixed:
            given = str(fixed["finetune_labels"])
            shares = (FINETUNE_SHARES.get(share, "") for share in numbers(given))
            if not any(f"finetune_{share}_" in metric.name for share in shares):
                of_labels = f"its share of the labels, given {given}"
                self.mistake("finetune_labels", says + of_labels)

    def check_encoder(self) -> None:
        """Another library's encoder is built once, on no device, before anything runs; and so is
        one that begins with the weights of a file.
        """
        init = str(self.fixed.get("init", NONE))
        for name in ("encoder", "width") if init != NONE else ():
            if name in self.space:
                self.mistake(name, "expected one value with init, given more")
                return
        sizes = {"image_size": self.dataset.image_size, "channels": self.dataset.channels}
        values = {name: self.points(name)[0] or self.ends(name) for name in ENCODER_PARAMS}
        given = {name: each for name, each in values.items() if each}
        configs = (
            without_other_encoders(dict(zip(given, each, strict=True))) | sizes
            for each in itertools.product(*given.values())
        )
        asked = [config for config in configs if is_open(config["encoder"]) or init != NONE]
        for reason in dict.fromkeys(why_not(asked)):
            key = "init" if init != NONE and init.partition("#")[0] in reason else "encoder"
            self.mistake(key, reason)

    def check_inert(self) -> None:
        """A swept parameter that another one switches off would look perfectly robust."""
        for name, dimension in self.space.items():
            if name in ALL_THERE_IS and dimension.extremes[0] == 0:
                meaning = f"0 stands for another number ({ALL_THERE_IS[name]})"
                self.mistake(name, f"{meaning} and cannot be swept: give that number")
            for other, value in switched_off_by(name, self.objective.parts, self.fixed):
                if other in self.owned and self.objective.extremes(other) == (value, value):
                    self.mistake(name, f"has no effect while {other} is {setting(value)}")

    def check_when(self) -> None:
        """Every condition of a space holds in some configurations, and not in all."""
        conditions, values = self.objective.conditions, self.objective.values
        num_errors = len(self.draft.errors)
        for name, dimension in self.space.items():
            for other, wanted in dimension.when:
                self.check_condition(name, other, wanted, values.get(other))
        listed = {name: each or (self.space[name].low or 0.0,) for name, each in values.items()}
        for name in self.space if len(self.draft.errors) == num_errors else ():
            if all(name not in taken for taken, _ in conditions.classes(listed)):
                self.mistake(name, "takes part in no configuration: its conditions never hold")
        if self.sections.search.method == "gp" and conditions.names:
            some = ", ".join(sorted(conditions.names))
            needs = f"gp needs every hyperparameter in all configurations, and some lack {some}"
            self.error(("search", "method"), f"{needs}. Expected tpe")

    def check_condition(
        self, name: str, other: str, wanted: Sequence[Value], known: Sequence[Value] | None
    ) -> None:
        at = (*self.where(name), "when")
        if other not in self.space:
            given = "is fixed" if other in self.owned else f"is not '{self.objective.name}' own"
            swept = ", ".join(each for each in self.space if each != name) or "none"
            self.error(at, f"{other} {given}: expected one that is swept beside it: {swept}")
        elif self.objective.conditions.hangs_on(other, name):
            self.error(at, f"{other} hangs on {name} itself: expected no circle")
        elif known is None:
            needs = "expected one with choices, as a range meets no value"
            self.error(at, f"{other}: {needs}, given {self.space[other].describe()}")
        elif never := [value for value in wanted if value not in known]:
            listed = self.space[other].describe() if isinstance(known, range) else known
            listed = listed if isinstance(listed, str) else ", ".join(map(setting, listed))
            self.error(at, f"{other} is never {setting(never[0])}. Expected some of: {listed}")
        elif len(wanted) == size_of(known):
            self.error(at, f"{other} is always one of these: expected fewer values, or no when")

    def check_search(self) -> None:
        method, budget = self.sections.search.method, self.sections.search.trials_per_objective
        for name, dimension in self.space.items():
            if method == "grid" and not dimension.points:
                expected = "expected grid or choices, given only low and high"
                self.mistake(name, f"search.method is grid: {expected}")
            if method != "grid" and not dimension.choices and not dimension.is_range:
                self.mistake(name, f"search.method is {method}: expected low and high, or choices")
        if method != "grid" and budget is None:
            needs = "needs trials_per_objective, a number of configurations"
            self.error(("search",), f"method {method} {needs}")
        elif method == "grid" and budget and (size := self.objective.num_configs or 0) > budget:
            self.error(
                ("search", "trials_per_objective"),
                f"the grid of '{self.objective.name}' has {size} configurations, more than the "
                f"{budget} allowed; thin the grid, raise this number, or use method qmc",
            )

    def check_halving(self) -> None:
        """Successive halving compares scores of the same epochs, in a search that may be biased."""
        scheduler, method = self.sections.scheduler, self.sections.search.method
        if method not in LIVE_METHODS:
            self.error(
                ("scheduler", "name"),
                f"asha stops bad configurations early, and {method} is there to measure how many "
                f"of them are bad. Expected fifo, or search.method {' or '.join(LIVE_METHODS)}",
            )
            return
        metric = METRIC[self.sections.metric.name]
        is_probed = metric.part == "linear_probe" and metric.of == "features"
        if not metric.every_epoch and not (is_probed and self.fixed["linear_every"] == "scored"):
            every_epoch = ", ".join(m.name for m in METRICS if m.every_epoch)
            advice = ", or set linear_every: scored" if is_probed else ""
            self.error(
                ("metric", "name"),
                f"asha compares scores before the last epoch, expected {every_epoch}; "
                f"{metric.name} is scored at the last epoch only{advice}",
            )
            return
        if "epochs" in self.space:
            fixed = "fix epochs in base, or use fifo"
            self.mistake("epochs", f"asha compares configurations of equally many epochs: {fixed}")
            return
        epochs: Any = self.fixed["epochs"]
        every: Any = self.fixed.get("eval_every", 1)  # none without training, which just runs
        first_met = -(-scheduler.grace_epochs // every) * every  # the first scored epoch it sees
        if 0 < epochs <= first_met:
            scored = f"'{self.objective.name}' trains {epochs} epochs and is scored every {every}"
            enough = f"expected epochs > {first_met}, or a smaller grace_epochs or eval_every"
            is_given = "grace_epochs" in scheduler.model_fields_set
            at = ("scheduler", "grace_epochs" if is_given else "name")
            self.error(at, f"asha would stop no trial: {scored}; {enough}")


def _check_dataset(draft: Draft) -> None:
    """Both parts of the training set need an image of every class; vectors have no parts."""
    dataset, section, written = draft.dataset, draft.sections.dataset, draft.document.tree
    name, fraction, classes = dataset.name, draft.sections.val_fraction, dataset.num_classes
    if dataset.kind == "pairs":
        afresh = f"{name} is drawn afresh at every step: no"
        for key in (key for key in written["dataset"] if key != "name"):
            draft.error(("dataset", key), f"{afresh} such key")
        if "evaluation" in written:
            draft.error(("evaluation",), f"{afresh} splits")
        return
    rows = DATASET.values()
    takers = {  # of a key, where not all data sets take it
        **{
            key: [r.name for r in rows if key in r.options] for key in ("image_size", "num_classes")
        },
        "channels": [row.name for row in rows if row.files],
        "store_size": [row.name for row in rows if row.keeps_whole],
        "range": ["arrays"],
    }
    for key, names in takers.items():
        if getattr(section, key) is not None and name not in names:
            only = f"expected on {', '.join(names)} only, given on {name}"
            draft.error(("dataset", key), f"{only}; null removes a key")
    if section.download and dataset.files:
        own = f"expected false, as {name} is your own files, given true"
        draft.error(("dataset", "download"), own)
    if fraction is None and "val_fraction" in written["dataset"]:
        holds = "evaluation: {train_on: all}, which holds no images out"
        unused = f"has no effect with {holds}; null removes a key"
        draft.error(("dataset", "val_fraction"), unused)
    _, num_val = dataset.split_sizes(fraction)
    if num_val < classes:
        each = f"at least {classes} images, one per class, in the validation split"
        draft.error(("dataset", "val_fraction"), f"expected {each}; given {num_val}")


def _check_resources(draft: Draft) -> None:
    """Ray gives out parts of one GPU or whole GPUs; NCCL needs a GPU of its own for each worker.
    And a key that nothing reads would look as if it worked.
    """
    resources, checkpoints = draft.sections.resources, draft.sections.checkpoints
    scheduler, gpus = draft.sections.scheduler, draft.sections.resources.gpus_per_worker
    if gpus != int(gpus) and (gpus > 1 or resources.workers > 1):
        whole = "a whole number (a part of one GPU goes with a single worker)"
        draft.error(("resources", "gpus_per_worker"), f"expected {whole}, given {setting(gpus)}")
    for key in sorted(scheduler.model_fields_set - {"name", *SCHEDULER_KEYS[scheduler.name]}):
        [owner] = [name for name, keys in SCHEDULER_KEYS.items() if key in keys]
        why = ", as fifo stops no trial" if scheduler.name == "fifo" else ""
        draft.error(("scheduler", key), f"expected with name: {owner} only{why}")
    if checkpoints.keep == "none" and "every_s" in checkpoints.model_fields_set:
        expected = "expected with keep: last or best only, as none are made"
        draft.error(("checkpoints", "every_s"), expected)


def _check_search(draft: Draft) -> None:
    """A search that learns from its scores would choose by the test images, and its best score
    would be no test score any more. A race leaves out seeds of bad configurations: there must be
    some to leave out, and no sampler that goes by their means. Only a search that chooses can weigh
    the cost, of trials that ran to their end.
    """
    search, seeds = draft.sections.search, draft.sections.seeds
    method, scheduler = search.method, draft.sections.scheduler.name
    live = " or ".join(LIVE_METHODS)
    if draft.sections.evaluation.score_on == "test":
        said = (
            "would choose configurations by the test split. Expected grid, qmc or random with "
            "fifo, or no evaluation: {score_on: test}"
        )
        if method in LIVE_METHODS:
            draft.error(("search", "method"), f"{method} {said}")
        if scheduler != "fifo":
            draft.error(("scheduler", "name"), f"{scheduler} {said}")
    if scheduler == "racing" and method in LIVE_METHODS:
        draft.error(
            ("scheduler", "name"),
            f"racing gives configurations unequal numbers of seeds, and {method} goes by their "
            "means. Expected fifo or asha, or search.method grid, qmc or random",
        )
    if scheduler == "racing" and len(seeds) <= FIRST_SEEDS:
        draft.error(
            ("seeds",),
            f"racing runs {FIRST_SEEDS} seeds of every configuration and skips further ones: "
            f"expected {FIRST_SEEDS + 1} seeds or more, given {len(seeds)}",
        )
    if search.cost != "none" and method not in LIVE_METHODS:
        draft.error(
            ("search", "cost"),
            f"{method} chooses nothing by scores or costs. Expected none, or search.method {live}; "
            "clsweep pareto shows the front of any study",
        )
    elif search.cost != "none" and scheduler != "fifo":
        draft.error(
            ("scheduler", "name"),
            f"{scheduler} judges by the metric alone, and search.cost is {search.cost}. Expected "
            "fifo, or search.cost none",
        )


def _check_names(draft: Draft) -> None:
    names: dict[str, str] = {}
    for name in draft.sections.objectives:
        file, at = slug(name).lower(), ("objectives", name)
        if not name.strip() or len(name) > MAX_OBJECTIVE_NAME or not name.isprintable():
            expected = f"expected a name of 1 to {MAX_OBJECTIVE_NAME} printable characters"
            draft.error(at, f"{expected}, given {name!r:.80}")
        if file in names:
            draft.error(at, f"too much like '{names[file]}': their files would have the same names")
        names[file] = name
    confirm = draft.sections.confirm
    if confirm and (shared := {*draft.sections.seeds} & {*confirm.seeds}):
        given = f"given {', '.join(map(str, sorted(shared)))}, in seeds too"
        unused = "expected seeds that the search does not use"
        draft.error(("confirm", "seeds"), f"{unused}, {given}")
