"""Where the study file meets the catalog: every objective with exactly the hyperparameters that it owns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clsweep.data.folders import sized_dataset
from clsweep.errors import RequestError, StudyError, nearest
from clsweep.objective.catalog import (
    COMPONENT,
    DATASET,
    METRIC,
    METRICS,
    MIN_TSNE_POINTS,
    OBJECTIVE_PARTS,
    PARAM,
    SELECTED_PARTS,
    Dataset,
    Value,
)
from clsweep.objective.ownership import (
    ALL_THERE_IS,
    default_of,
    num_crop_only,
    num_others,
    owned_params,
    owners_of,
    refusal,
    switched_off_by,
)
from clsweep.study.document import Document, Keys, read_document
from clsweep.study.schema import ObjectiveSection, StudySections, parse_sections
from clsweep.study.space import DIMENSION_KEYS, Dimension, Objective, parse_dimension, slug

MAX_OBJECTIVE_NAME = 64


@dataclass(frozen=True, kw_only=True)
class Study:
    """A validated study. `document` keeps the merged file, for messages and for `study.yaml` among the results."""

    sections: StudySections
    dataset: Dataset  # with the sizes that it has here
    objectives: tuple[Objective, ...]
    notes: tuple[str, ...]
    document: Document = field(repr=False)
    preset: str | None = None

    @property
    def name(self) -> str:
        return self.sections.name

    def plan(self) -> Any:
        """The planned trials as a DataFrame, one row a trial; nothing has run."""
        from clsweep.study.design import plan_frame

        return plan_frame(self)


def load_study(path: str | Path, *, preset: str | None = None, settings: Sequence[str] = ()) -> Study:
    """Read, merge and check a study file.

    Args:
        path: YAML file.
        preset: name of one of the file's presets, laid over it.
        settings: `KEY=VALUE` texts with dotted keys, laid over both.

    Raises:
        StudyError: one line per mistake: place, expected, given, nearest name.
    """
    document = read_document(path, preset=preset, settings=settings)
    sections = parse_sections(document)
    resolver = _Resolver(document, sections)
    objectives = tuple(resolver.objective(name, section) for name, section in sections.objectives.items())
    resolver.check_shared()
    resolver.raise_errors()
    for objective in objectives:
        resolver.check(objective)
    resolver.check_dataset()
    resolver.check_gpus()
    resolver.check_names()
    resolver.raise_errors()
    return Study(
        sections=sections,
        dataset=resolver.dataset,
        objectives=objectives,
        notes=tuple(resolver.notes),
        document=document,
        preset=preset,
    )


class _Resolver:
    """Collects all mistakes of a file before it complains, so that a user mends them in one go."""

    def __init__(self, document: Document, sections: StudySections):
        self.document, self.sections = document, sections
        self.dataset = self._sized()
        self.errors: list[str] = []
        self.notes: list[str] = []
        self.taken: set[tuple[str, str]] = set()  # shared (section, name) that some objective took
        self.replaced: dict[str, list[str]] = {}  # shared base values that a space replaces, by objective

    def error(self, keys: Keys, message: str) -> None:
        self.errors.append(self.document.error(keys, message))

    def raise_errors(self) -> None:
        if self.errors:
            raise StudyError("\n".join(dict.fromkeys(self.errors)))

    # One objective.

    def objective(self, name: str, section: ObjectiveSection) -> Objective:
        at: Keys = ("objectives", name)
        parts = self._parts(at, section)
        selected = {part: str(self._lookup(part, section, parts)) for part in SELECTED_PARTS}
        swept = "epochs" in section.space or ("epochs" in self.sections.space and "epochs" not in section.base)
        trained = swept or self._lookup("epochs", section, parts) != 0  # a sweep must not contain 0, see `check`
        owned = owned_params(parts, dataset=self.dataset.name, trained=trained, **selected)
        if not self._is_known(section):
            owned = tuple(PARAM)  # what it owns is not known either: no second error from the first
        skips: dict[str, tuple[str, ...]] = {}
        fixed: dict[str, Value] = {}
        space: dict[str, Dimension] = {}
        for keys, param, raw, shared in self._entries(at, section):
            if param not in PARAM:
                candidates = PARAM if shared or not trained else owned
                known = "Known: see clsweep catalog params" if shared else f"'{name}' owns: {', '.join(sorted(owned))}"
                self.error(keys, f"unknown parameter '{param}'.{nearest(param, candidates)} {known}")
            elif not shared and keys[-2] == "space" and param in section.base:
                self.error(keys, "expected the parameter in base or in space of one objective, given both")
            elif param not in owned:
                reason = self._reason_not_owned(param, trained)
                if shared or not trained:
                    skips[reason] = tuple(dict.fromkeys((*skips.get(reason, ()), param)))
                else:
                    owns = f"'{name}' owns: {', '.join(sorted(owned))}"
                    self.error(keys, f"'{name}' does not own this parameter: {reason}. {owns}")
            else:
                self._take(keys, param, raw, fixed, space, shared)
        for param in owned:
            if param not in space:
                fixed.setdefault(param, default_of(param, parts, **selected))
        for param in space:
            if param in self.sections.base:
                self.replaced.setdefault(param, []).append(name)
        order = {param: i for i, param in enumerate(PARAM)}
        return Objective(
            name=name,
            parts=parts,
            fixed=dict(sorted(fixed.items(), key=lambda item: order[item[0]])),
            space=dict(sorted(space.items(), key=lambda item: order[item[0]])),
            skips=skips,
        )

    def _parts(self, at: Keys, section: ObjectiveSection) -> dict[str, str]:
        parts: dict[str, str] = {}
        for part in OBJECTIVE_PARTS:
            name, known = getattr(section, part), COMPONENT[part]
            if name not in known:
                expected = f"Expected one of: {', '.join(known)}"
                self.error((*at, part), f"unknown {part} '{name}'.{nearest(name, known)} {expected}")
                name = next(iter(known))  # go on, to find the other mistakes too
            parts[part] = name
        refused = refusal(parts, self.dataset.name) if self._are_known(section) else None
        if refused:
            part, reason = refused
            self.error((*at, part), reason)
        return parts

    def _are_known(self, section: ObjectiveSection) -> bool:
        """Whether the four parts are in the catalog."""
        return all(getattr(section, part) in COMPONENT[part] for part in OBJECTIVE_PARTS)

    def _is_known(self, section: ObjectiveSection) -> bool:
        """Whether the four parts are in the catalog and go together, and the encoder and its like are there too."""
        if not self._are_known(section):
            return False
        parts: dict[str, str] = {part: getattr(section, part) for part in OBJECTIVE_PARTS}
        selected = all(self._raw(part, section, parts) in [*COMPONENT[part]] for part in SELECTED_PARTS)  # or a list
        return selected and refusal(parts, self.dataset.name) is None

    def _raw(self, param: str, section: ObjectiveSection, parts: Mapping[str, str]) -> Any:
        """The fixed value of `param` in this objective as it was written, or the default."""
        default = default_of(param, parts, **self._selected(section))
        return section.base.get(param, self.sections.base.get(param, default))

    def _lookup(self, param: str, section: ObjectiveSection, parts: Mapping[str, str]) -> Value:
        """The fixed value of `param` in this objective; the default if it is wrong (reported where it is taken)."""
        try:
            return PARAM[param].coerce(self._raw(param, section, parts))
        except ValueError:
            return default_of(param, parts, **self._selected(section))

    def _selected(self, section: ObjectiveSection) -> dict[str, str]:
        """The encoder, recipe and their like that the file names for this objective, if they are in the catalog."""
        named = {part: section.base.get(part, self.sections.base.get(part)) for part in SELECTED_PARTS}
        return {part: name for part, name in named.items() if isinstance(name, str) and name in COMPONENT[part]}

    def _entries(self, at: Keys, section: ObjectiveSection) -> Iterator[tuple[Keys, str, Any, bool]]:
        """(keys, parameter, raw value, shared?), each overriding those before it: the objective's own come last."""
        root: Keys
        for shared, root, values in (
            (True, ("base",), self.sections.base),
            (True, ("space",), self.sections.space),
            (False, (*at, "base"), section.base),
            (False, (*at, "space"), section.space),
        ):
            for param, raw in values.items():
                yield (*root, param), param, raw, shared

    def _take(
        self,
        keys: Keys,
        param: str,
        raw: Any,
        fixed: dict[str, Value],
        space: dict[str, Dimension],
        shared: bool,
    ) -> None:
        try:
            if keys[-2] == "space":
                space[param] = parse_dimension(PARAM[param], raw)
                fixed.pop(param, None)
            else:
                fixed[param] = PARAM[param].coerce(raw)
                space.pop(param, None)
        except ValueError as error:
            key, colon, message = str(error).partition(": ")  # a dimension says which of its keys it is about
            if colon and key in DIMENSION_KEYS:
                self.error((*keys, key), message)
            else:
                self.error(keys, str(error))
        if shared:
            self.taken.add((str(keys[-2]), param))

    def _reason_not_owned(self, param: str, trained: bool) -> str:
        if not trained:
            return "epochs is 0, and the untrained encoder depends on none of this"
        if self.dataset.kind == "pairs":
            return f"{self.dataset.name} is made of vectors, not of images"
        if PARAM[param].needs_rgb and self.dataset.channels == 1:
            return f"the images of {self.dataset.name} have one channel"
        return "none of its parts uses it"

    def _sized(self) -> Dataset:
        """The data set with its sizes. Without those of a folder nothing else can be checked."""
        given = self.sections.dataset
        options = {name: getattr(given, name) for name in DATASET[given.name].options}
        try:
            return sized_dataset(given.name, given.place, **options)
        except RequestError as error:
            raise StudyError(self.document.error(("dataset", "root"), str(error))) from None

    # The study as a whole.

    def check_shared(self) -> None:
        """A shared parameter that no objective owns would look perfectly robust: refuse it."""
        untrained = self.sections.base.get("epochs") == 0
        for kind in ("base", "space"):
            for param in getattr(self.sections, kind):
                if param in PARAM and (kind, param) not in self.taken and not untrained:
                    reason = self._reason_not_owned(param, trained=True)
                    owners = f"it belongs to {owners_of(param)}"
                    self.error((kind, param), f"no objective of this study owns '{param}': {reason}; {owners}")
        for param, names in self.replaced.items():
            self.notes.append(f"base.{param} is replaced by the space of {', '.join(names)}")

    def check_dataset(self) -> None:
        """Both parts of the training set need at least one image of every class; pairs of vectors have no parts."""
        if self.dataset.kind == "pairs":
            for key in self.document.tree["dataset"]:
                if key != "name":
                    self.error(("dataset", key), f"{self.dataset.name} is drawn afresh at every step: no such key")
            return
        for key in ("image_size", "num_train", "num_classes"):
            if key in self.document.tree["dataset"] and key not in self.dataset.options:
                takers = ", ".join(row.name for row in DATASET.values() if key in row.options)
                message = f"expected on {takers} only, given on {self.dataset.name}; null removes a key"
                self.error(("dataset", key), message)
        if self.sections.dataset.download and self.dataset.name == "imagefolder":
            self.error(("dataset", "download"), "expected false, as imagefolder is your own files, given true")
        fraction, classes = self.sections.dataset.val_fraction, self.dataset.num_classes
        _, num_val = self.dataset.split_sizes(fraction)
        if num_val < classes:
            message = f"expected at least {classes} images, one per class, in the validation split; given {num_val}"
            self.error(("dataset", "val_fraction"), message)

    def check_gpus(self) -> None:
        """Ray gives out parts of one GPU or whole GPUs; NCCL needs a GPU of its own for each worker."""
        resources = self.sections.resources
        gpus = resources.gpus_per_worker
        if gpus != int(gpus) and (gpus > 1 or resources.workers > 1):
            single = "a part of one GPU goes with a single worker"
            self.error(("resources", "gpus_per_worker"), f"expected a whole number ({single}), given {gpus:g}")

    def check_names(self) -> None:
        slugs: dict[str, str] = {}
        for name in self.sections.objectives:
            at: Keys = ("objectives", name)
            if not name.strip() or len(name) > MAX_OBJECTIVE_NAME or not name.isprintable():
                self.error(at, f"expected a name of 1 to {MAX_OBJECTIVE_NAME} printable characters, given {name!r:.80}")
            if slug(name).lower() in slugs:
                self.error(at, f"too much like '{slugs[slug(name).lower()]}': their files would have the same names")
            slugs[slug(name).lower()] = name
        confirm = self.sections.confirm
        shared_seeds = set(self.sections.seeds) & set(confirm.seeds) if confirm else set()
        if shared_seeds:
            given = ", ".join(map(str, sorted(shared_seeds)))
            self.error(
                ("confirm", "seeds"), f"expected seeds that the search does not use, given {given}, in seeds too"
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

    def _check_metric(self, objective: Objective) -> None:
        metric = METRIC[self.sections.metric.name]
        if metric.kind != self.dataset.kind:
            fitting = ", ".join(m.name for m in METRICS if m.kind == self.dataset.kind)
            self.error(("metric",), f"expected a metric of {self.dataset.name}: {fitting}; given {metric.name}")
        if metric.name.startswith("linear") and objective.fixed.get("linear_probe") == "none":
            self.error(self._where(objective, "linear_probe"), f"the metric is {metric.name}: expected ridge or sgd")

    def _check_pairs(self, objective: Objective) -> None:
        if self.sections.resources.workers > 1:
            given = self.sections.resources.workers
            self.error(("resources", "workers"), f"a trial on {self.dataset.name} has 1 worker, given {given}")
        if objective.extremes("epochs")[0] == 0:
            self.error(self._where(objective, "epochs"), f"expected at least 1 on {self.dataset.name}, given 0")

    def _check_training(self, objective: Objective) -> None:
        num_train, _ = self.dataset.split_sizes(self.sections.dataset.val_fraction)
        available = f"{num_train}, the images that {self.dataset.name} trains on"
        _, knn_k = objective.extremes("knn_k")
        num_labelled = num_train - self.dataset.num_unlabeled
        if knn_k > num_labelled:
            voters = f"{num_labelled}, the images with a class that {self.dataset.name} trains on"
            message = f"expected at most {voters if self.dataset.num_unlabeled else available}, given {knn_k}"
            self.error(self._where(objective, "knn_k"), message)
        points: Any = objective.fixed["tsne_points"]
        _, num_val = self.dataset.split_sizes(self.sections.dataset.val_fraction)
        if points and not MIN_TSNE_POINTS <= points <= num_val:
            expected = f"expected 0, or {MIN_TSNE_POINTS} to {num_val}, the images of the validation split"
            self.error(self._where(objective, "tsne_points"), f"{expected}, given {points}")
        fewest_epochs, _ = objective.extremes("epochs")
        if "epochs" in objective.space and fewest_epochs == 0:
            keys = self._where(objective, "epochs")
            self.error(keys, "0 cannot be swept: add an objective of its own with base: {epochs: 0}")
        if "batch_size" not in objective.owned:
            return
        _, largest = objective.extremes("batch_size")
        if largest > num_train:
            self.error(self._where(objective, "batch_size"), f"expected at most {available}, given {largest}")
        self._check_negatives(objective)
        self._check_small_views(objective)
        _, warmup = objective.extremes("warmup_epochs")
        if warmup >= fewest_epochs > 0:
            message = f"expected fewer warm-up epochs than the {fewest_epochs} epochs, given {warmup}"
            self.error(self._where(objective, "warmup_epochs"), message)
        self._check_workers(objective)
        self._check_chunks(objective)

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
            message = f"expected at most {available}, what a batch of {smallest} has for a query in {framework}; "
            self.error(keys, f"{message}given {most}. 0 takes all, whatever the batch size")

    def _check_small_views(self, objective: Objective) -> None:
        if "small_view_size" not in objective.owned:
            return
        _, size = objective.extremes("small_view_size")
        if size > self.dataset.image_size:
            expected = f"expected at most {self.dataset.image_size}, the side of the images"
            self.error(self._where(objective, "small_view_size"), f"{expected}, given {size}")
        name = "crop_scale" if objective.fixed.get("small_crop_scale") == 0 else "small_crop_scale"
        _, lowest = objective.extremes(name)
        highest, _ = objective.extremes("small_crop_max")
        if lowest > highest:
            message = f"expected at most small_crop_max, {highest:g}, given {lowest:g}"
            self.error(self._where(objective, name), message)
        if (shares := objective.space.get("crop_only_share")) and "num_views" in objective.fixed:
            num_views: Any = objective.fixed["num_views"]
            counts = [num_crop_only(float(share), num_views) for share in shares.points]
            if len(set(counts)) < len(counts):
                listed = ", ".join(map(str, counts))
                message = f"expected shares that differ in effect, given {listed} crop-only views of {num_views}"
                self.error(self._where(objective, "crop_only_share"), message)

    def _check_inert(self, objective: Objective) -> None:
        """A swept parameter that another one switches off would look perfectly robust."""
        for name, dimension in objective.space.items():
            if name in ALL_THERE_IS and dimension.extremes[0] == 0:
                message = f"0 stands for another number ({ALL_THERE_IS[name]}) and cannot be swept: give that number"
                self.error(self._where(objective, name), message)
            for other, value in switched_off_by(name, objective.parts, objective.fixed):
                if other in objective.owned and objective.extremes(other) == (value, value):
                    shown = f"{value:g}" if isinstance(value, float) else value
                    self.error(self._where(objective, name), f"has no effect while {other} is {shown}")

    def _check_workers(self, objective: Objective) -> None:
        workers = self.sections.resources.workers
        if workers == 1:
            return
        keys = self._where(objective, "batch_size")
        dimension = objective.space.get("batch_size")
        if dimension and dimension.is_range:
            self.error(keys, f"with {workers} workers expected choices that {workers} divides, given a range")
            return
        for size in dimension.points if dimension else (objective.fixed["batch_size"],):
            assert isinstance(size, int)
            if size % workers or size // workers < 2:
                below, above = size // workers * workers, -(-size // workers) * workers
                valid = ", ".join(str(v) for v in sorted({max(below, 2 * workers), max(above, 2 * workers)}))
                self.error(keys, f"batch size {size} does not divide among {workers} workers; nearest valid: {valid}")

    def _check_chunks(self, objective: Objective) -> None:
        """Batch norm must see equally many images in every chunk, and in every worker's part of one."""
        keys, workers = self._where(objective, "chunk_size"), self.sections.resources.workers
        chunks, batches = (self._points(objective, name) for name in ("chunk_size", "batch_size"))
        if chunks == (0,):
            return
        if not chunks or not batches:
            self.error(keys, "expected fixed values or choices of both chunk_size and batch_size, given a range")
        for chunk, batch in itertools.product(chunks, batches):
            if chunk and chunk < batch and (batch % chunk or chunk % workers or chunk < 2 * workers):
                valid = [c for c in range(2 * workers, batch + 1, workers) if batch % c == 0]
                nearest_valid = ", ".join(map(str, sorted(sorted(valid, key=lambda c: abs(c - chunk))[:2])))
                among = f" on {workers} workers" if workers > 1 else ""
                message = f"chunks of {chunk} do not make a batch of {batch}{among}; nearest valid: {nearest_valid}"
                self.error(keys, message)

    def _points(self, objective: Objective, name: str) -> tuple[Any, ...]:
        """All values that a hyperparameter takes; none if it has a range."""
        if name in objective.fixed:
            return (objective.fixed[name],)
        return () if objective.space[name].is_range else objective.space[name].points

    def _check_search(self, objective: Objective) -> None:
        search = self.sections.search
        for name, dimension in objective.space.items():
            keys = self._where(objective, name)
            if search.method == "grid" and not dimension.points:
                self.error(keys, "search.method is grid: expected grid or choices, given only low and high")
            if search.method != "grid" and not dimension.choices and not dimension.is_range:
                self.error(keys, f"search.method is {search.method}: expected low and high, or choices")
        if search.method != "grid":
            if search.trials_per_objective is None:
                self.error(
                    ("search",), f"method {search.method} needs trials_per_objective, a number of configurations"
                )
        elif search.trials_per_objective and objective.num_grid_configs > search.trials_per_objective:
            message = f"the grid of '{objective.name}' has {objective.num_grid_configs} configurations, more than the "
            message += f"{search.trials_per_objective} allowed; thin the grid, raise this number, or use method qmc"
            self.error(("search", "trials_per_objective"), message)

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
