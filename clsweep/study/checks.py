"""Checks of several keys of a study together: sizes that fit, parameters that have an effect,
budgets.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clsweep.catalog import COMPONENT, DATASET, DIAGNOSTIC, METRIC, METRICS, PARAM, Value
from clsweep.catalog.open_encoders import ENCODER_PARAMS, NO_PATCHES, NONE, is_open, why_not
from clsweep.catalog.other_names import OTHER_NAMES
from clsweep.catalog.ownership import (
    ALL_THERE_IS,
    is_taken,
    small_view_size,
    switched_off_by,
    without_other_encoders,
)
from clsweep.catalog.rows import SECONDS
from clsweep.display.numbers import setting
from clsweep.errors import nearest
from clsweep.study.check_training import Draft, TrainingChecks
from clsweep.study.document import Keys
from clsweep.study.first_points import check_first
from clsweep.study.schema import FIRST_SEEDS, LIVE_METHODS, SCHEDULER_KEYS, ContrastSection
from clsweep.study.space import Objective, file_slug, num_values

MAX_OBJECTIVE_NAME = 64


def check_study(draft: Draft, objectives: Sequence[Objective]) -> None:
    """Note every mistake of the objectives, and of what holds for all of them."""
    for objective in objectives:
        _ObjectiveChecks(draft, objective).check()
    for check in (_check_dataset, _check_resources, _check_search, _check_names):
        check(draft)
    check_metric(draft, objectives)
    check_contrasts(draft, objectives)


class _ObjectiveChecks(TrainingChecks):
    def check(self) -> None:
        if self.is_trainer:
            self.check_trainer()
        elif self.dataset.kind == "images":
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
        check_first(self.draft, self.objective)
        metric = METRIC[self.sections.metric.name]
        is_of_kind = metric.of == "trainer" or metric.kind == self.dataset.kind
        if self.sections.scheduler.name == "asha" and is_of_kind:
            self.check_halving()

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
        configs = [
            without_other_encoders(dict(zip(given, each, strict=True))) | sizes
            for each in itertools.product(*given.values())
        ]
        measured = [
            config
            | {"freeze_patch_embed": self.freezes_patches(str(config["encoder"]))}
            | self.small_views(config)
            for config in configs
            if is_open(config["encoder"]) or init != NONE
        ]
        for reason in dict.fromkeys(why_not(measured)):
            key = "init" if init != NONE and init.partition("#")[0] in reason else "encoder"
            key = "small_view_size" if "Set small_view_size" in reason else key
            self.mistake("freeze_patch_embed" if reason.endswith(NO_PATCHES) else key, reason)
        sides = {"view_size": self.lowest("view_size") or self.dataset.image_size}
        for key, size in (sides | self.small_views(sides)).items():
            for name in self.objective.encoders:
                if size < (least := COMPONENT["encoder"][name].least_size):
                    advice = f"expected {key} {least} or more, or another encoder"
                    at = key if self.where(key)[-1] == key else "encoder"
                    self.mistake(at, f"{name} takes no views of {size} pixels a side: {advice}")
        for name in self.objective.encoders:
            is_built_in = COMPONENT["encoder"][name].impl.startswith("clsweep.")
            if is_built_in and not is_open(name) and self.freezes_patches(name):
                self.mistake("freeze_patch_embed", f"{name}: {NO_PATCHES}")

    def small_views(self, config: Mapping[str, Any]) -> dict[str, int]:
        """The side of the smaller views that this encoder sees too, if there are any."""
        if "small_view_size" not in self.owned or self.highest("num_views") == 2:
            return {}
        size = config.get("view_size") or config["image_size"]
        small = self.lowest("small_view_size") or small_view_size(size)
        return {"small_view_size": small} if small != size else {}

    def freezes_patches(self, encoder: str) -> bool:
        """True if some trial with this encoder has a frozen patch projection."""
        name = "freeze_patch_embed"
        swept = self.space.get(name)
        if swept and encoder not in dict(swept.when).get("encoder", (encoder,)):
            return bool(swept.otherwise)
        return True in self.points(name)[0]

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
        elif len(wanted) == num_values(known):
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
            known = [m.name for m in METRICS if m.every_epoch and m.kind == metric.kind]
            every_epoch = ", ".join(known) or "scheduler.name fifo"
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


def check_metric(draft: Draft, objectives: Sequence[Objective]) -> None:
    """A metric that an objective does not take would be missing from every trial of it."""
    dataset, second = draft.dataset, draft.sections.search.second_objective
    chosen: dict[Keys, str] = {("metric", "name"): draft.sections.metric.name}
    chosen |= {("search", "objectives", 1): second} if second in METRIC else {}
    of_data = {"dataset": dataset.name, "num_classes": dataset.num_classes}
    taken = {
        o.name: [
            m for m in METRICS
            if is_taken(m, {**o.fixed, **o.parts, **of_data, "epochs": o.extremes("epochs")[1]})
        ]
        for o in objectives
    }  # fmt: skip
    for at, metric in ((at, METRIC[name]) for at, name in chosen.items()):
        without = [name for name, each in taken.items() if metric not in each]
        if without:
            shared = [m.name for m in METRICS if all(m in each for each in taken.values())]
            by = ", ".join(["dataset", *metric.owns, metric.part or "framework", "epochs"])
            unread = f" (not read: {dataset.unread})" if dataset.unread else ""
            draft.error(
                at,
                f"expected one that every objective has: {', '.join(shared) or 'none'}; given "
                f"{metric.name}, which '{without[0]}' lacks by its {by}{unread}",
            )


def _check_dataset(draft: Draft) -> None:
    """Both parts of the training set need an image of every class; vectors have no parts."""
    dataset, section, written = draft.dataset, draft.sections.dataset, draft.document.tree
    name, fraction, classes = dataset.name, draft.sections.val_fraction, dataset.num_classes
    if dataset.kind != "images":
        is_own = dataset.kind == "own"
        how = "what a trainer reads by itself" if is_own else "drawn afresh at every step"
        afresh = f"{name} is {how}: no"
        for key in (key for key in written["dataset"] if key != "name"):
            draft.error(("dataset", key), f"{afresh} such key")
        if "evaluation" in written:
            draft.error(("evaluation",), f"{afresh} splits")
        return
    rows = DATASET.values()
    takers = {  # of a key, where not all data sets take it
        **{
            key: [r.name for r in rows if key in r.options]
            for key in ("image_size", "num_test", "num_classes")
        },
        "channels": [row.name for row in rows if row.files],
        "store_size": [row.name for row in rows if row.keeps_whole],
        "store_as": [row.name for row in rows if row.keeps_whole],
        "range": ["arrays"],
    }
    for key, names in takers.items():
        if getattr(section, key) is not None and name not in names:
            only = f"expected on {', '.join(names)} only, given on {name}"
            draft.error(("dataset", key), f"{only}; null removes a key")
    if dataset.keeps_whole and dataset.channels not in (1, 3):
        pictures = f"expected 1 or 3, as {name} is of pictures, given {dataset.channels}"
        draft.error(("dataset", "channels"), pictures)
    if section.download and dataset.files:
        own = f"expected false, as {name} is your own files, given true"
        draft.error(("dataset", "download"), own)
    if fraction is None and "val_fraction" in written["dataset"]:
        holds = "evaluation: {train_on: all}, which holds no images out"
        unused = f"has no effect with {holds}; null removes a key"
        draft.error(("dataset", "val_fraction"), unused)
    _, num_val = dataset.split_sizes(fraction)
    if num_val is not None and num_val < classes:
        each = f"at least {classes} images, one per class, in the validation split"
        draft.error(("dataset", "val_fraction"), f"expected {each}; given {num_val}")


def _check_resources(draft: Draft) -> None:
    """NCCL needs a GPU of its own for each worker. And a key that nothing reads would look as if it
    worked.
    """
    resources, checkpoints = draft.sections.resources, draft.sections.checkpoints
    scheduler, gpus = draft.sections.scheduler, draft.sections.resources.gpus_per_worker
    if 0 < gpus < 1 < resources.workers:
        whole = "0 or 1 (a part of one GPU goes with a single worker)"
        draft.error(("resources", "gpus_per_worker"), f"expected {whole}, given {setting(gpus)}")
    if resources.images_on != "auto" and not gpus:
        expected = f"expected auto, as the trials have no GPU, given {resources.images_on}"
        draft.error(("resources", "images_on"), f"{expected}; null removes a key")
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
    a second objective, of trials that ran to their end.
    """
    search, seeds = draft.sections.search, draft.sections.seeds
    method, scheduler = search.method, draft.sections.scheduler.name
    live = " or ".join(LIVE_METHODS)
    if draft.sections.evaluation.score_on == "test":
        refusal = (
            "would choose configurations by the test split. Expected grid, qmc or random with "
            "fifo, or no evaluation: {score_on: test}"
        )
        if method in LIVE_METHODS:
            draft.error(("search", "method"), f"{method} {refusal}")
        if scheduler != "fifo":
            draft.error(("scheduler", "name"), f"{scheduler} {refusal}")
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
    if search.from_ and method not in LIVE_METHODS:
        draft.error(
            ("search", "from"),
            f"{method} draws its plan before anything runs, and learns from nothing. Expected "
            f"search.method {live}",
        )
    if search.budget and scheduler == "racing":
        draft.error(
            ("search", "budget"),
            "a race gives each further seed to all configurations that may still lead, and would "
            "end between them. Expected scheduler fifo or asha, or no budget",
        )
    if search.budget and search.budget.gpu_hours and not draft.sections.resources.gpus_per_worker:
        draft.error(("search", "budget", "gpu_hours"), "the trials have no GPU. Expected hours")
    if search.budget and search.budget.min_gain is not None:
        _check_min_gain(draft, search.budget.min_gain)
    if search.objectives:
        _check_objectives(draft, search.objectives)


def _check_objectives(draft: Draft, objectives: Sequence[str]) -> None:
    """Of a search: what it looks for the front of."""
    at, metric = ("search", "objectives"), draft.sections.metric.name
    method, scheduler = draft.sections.search.method, draft.sections.scheduler.name
    live = " or ".join(LIVE_METHODS)
    first, second = objectives
    known = [SECONDS, *METRIC]
    if first != metric:
        draft.error((*at, 0), f"expected {metric}, the study's metric, given {first!r:.80}")
    if second not in known or second == metric:
        expected = f"expected {SECONDS} or a metric beside {metric}"
        draft.error(
            (*at, 1), f"{expected}, given {second!r:.80}.{nearest(second, known, OTHER_NAMES)}"
        )
    if method not in LIVE_METHODS:
        draft.error(
            at,
            f"{method} chooses nothing by scores. Expected none, or search.method {live}; clsweep "
            "pareto shows the front of any study",
        )
    elif scheduler != "fifo":
        draft.error(
            ("scheduler", "name"),
            f"{scheduler} judges by the metric alone, and search.objectives has {second} too. "
            "Expected fifo, or no search.objectives",
        )


def _check_min_gain(draft: Draft, min_gain: float | str) -> None:
    at, search = ("search", "budget", "min_gain"), draft.sections.search
    if search.method not in LIVE_METHODS:
        draft.error(
            at,
            f"{search.method} tries its whole sample. Expected search.method "
            f"{' or '.join(LIVE_METHODS)}",
        )
    if second := search.second_objective:
        draft.error(at, f"what is gained in the metric and in {second} is no one number")
    if min_gain == "noise" and len(draft.sections.seeds) < 2:
        draft.error(at, "one seed does not show the noise. Expected a number, or 2 seeds")


def _check_names(draft: Draft) -> None:
    names: dict[str, str] = {}
    for name in draft.sections.objectives:
        file, at = file_slug(name).lower(), ("objectives", name)
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


def check_contrasts(draft: Draft, objectives: Sequence[Objective]) -> None:
    """Note every mistake of the contrasts."""
    known = {objective.name: objective for objective in objectives}
    for name, contrast in draft.sections.contrasts.items():
        for keys, message in _mistakes(contrast, known):
            draft.error(("contrasts", name, *keys), message)


def _mistakes(
    contrast: ContrastSection, known: Mapping[str, Objective]
) -> Iterator[tuple[Keys, str]]:
    for name in contrast.sides:
        if name not in known:
            hint = f"{nearest(name, known)} Expected one of: {', '.join(known)}"
            yield ("of",), f"unknown objective '{name:.80}'.{hint}"
    if contrast.metric is not None and contrast.metric not in (*METRIC, *DIAGNOSTIC):
        meant = nearest(contrast.metric, [*METRIC, *DIAGNOSTIC], OTHER_NAMES)
        hint = f"{meant} See clsweep catalog metrics"
        yield ("metric",), f"unknown metric '{contrast.metric:.80}'.{hint}"
    if len(contrast.sides) == 1 and contrast.minus is None:
        nothing = f"nothing is subtracted from {contrast.sides[0]}"
        yield (), f"expected two objectives, or minus: {nothing}"
    if contrast.minus is not None and contrast.minus == contrast.at:
        yield ("minus",), "expected other settings than at, given the same"
    own = [known[name] for name in contrast.sides if name in known]
    for key in ("at", "minus"):
        for param, raw in (getattr(contrast, key) or {}).items():
            if own and (message := _mistake_at(param, raw, own)):
                yield (key, param), message
        for objective in own:
            if message := _never_together(getattr(contrast, key) or {}, objective):
                yield (key,), message


def _mistake_at(param: str, raw: object, own: Sequence[Objective]) -> str:
    """Why no configuration of some objective would be meant by this value."""
    swept = list(dict.fromkeys(name for objective in own for name in objective.space))
    if param not in swept:
        names = " and ".join(objective.name for objective in own)
        hint = nearest(param, swept)
        return f"{names} sweep no '{param:.80}'.{hint} Swept: {', '.join(swept) or 'nothing'}"
    try:
        value = PARAM[param].coerce(raw)
    except ValueError as error:
        return str(error)
    for objective in (each for each in own if param in each.owned):  # others are without it
        values = _values(objective, param)
        if values is None:
            return "expected a hyperparameter with choices: of a range no setting has one value"
        if value not in values:
            has = f"{objective.name} has: {', '.join(map(setting, values)) or 'nothing'}"
            return f"expected a value that {has}; given {setting(value)}"
    return ""


def _never_together(at: Mapping[str, object], objective: Objective) -> str:
    """Why no configuration has these values of a space whose dimensions hang on each other."""
    known = {name: raw for name, raw in at.items() if name in objective.space}
    for name, conditions in objective.conditions.of.items():
        if name not in known or known[name] == objective.space[name].otherwise:
            continue
        for condition in conditions:
            other = known.get(condition.other)
            if other is not None and (other in condition.values) != condition.needed:
                values = f"{name}={setting(known[name])} at {condition.other}={setting(other)}"
                return f"expected values that {objective.name} has together: it tries no {values}"
    return ""


def _values(objective: Objective, param: str) -> list[Value] | None:
    """Those that it takes; None of a range."""
    if param not in objective.space:
        return [objective.fixed[param]]
    values, dimension = objective.values[param], objective.space[param]
    if values is None:
        return None
    beside = [] if dimension.otherwise is None else [dimension.otherwise]
    return [*values, *beside]
