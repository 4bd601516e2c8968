"""Where the study file meets the catalog: every objective with exactly the hyperparameters that it
owns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from clsweep.catalog import (
    COMPONENT,
    DATASET,
    OBJECTIVE_PARTS,
    PARAM,
    SELECTED_PARTS,
    Dataset,
    Value,
)
from clsweep.catalog.open_encoders import NONE, stated
from clsweep.catalog.ownership import (
    aliases,
    default_of,
    owned_params,
    owners_of,
    refusal,
    trial_owns,
)
from clsweep.data.found import sized_dataset
from clsweep.errors import MAX_LINES, RequestError, StudyError, nearest
from clsweep.study.checks import Checks
from clsweep.study.design import Study, require_enumerable
from clsweep.study.document import Document, Keys, read_document
from clsweep.study.factors import Cell, cell_document, check_factors, told_of_cells
from clsweep.study.plugged import load_plugins, require_trusted
from clsweep.study.schema import MAX_OBJECTIVES, ObjectiveSection, StudySections, parse_sections
from clsweep.study.space import (
    DIMENSION_KEYS,
    Dimension,
    Objective,
    parse_dimension,
    slug,
    store_size_of,
)

T = TypeVar("T")


def load_study(
    path: str | Path,
    *,
    preset: str | None = None,
    settings: Sequence[str] = (),
    trust: bool = False,
) -> Study:
    """Read, merge and check a study file.

    Args:
        path: YAML file.
        preset: name of one of the file's presets, laid over it.
        settings: `KEY=VALUE` texts with dotted keys, laid over both.
        trust: execute the plug-ins and own encoders that the `study.yaml` of a results folder
            names. What a study file of the user's own names is executed.

    Raises:
        StudyError: one line per mistake: place, expected, given, nearest name.
    """
    document = read_document(path, preset=preset, settings=settings, trust=trust)
    return resolve_study(document, preset=preset)


def resolve_study(document: Document, *, preset: str | None = None) -> Study:
    """Check a merged study file, see `load_study`."""
    require_trusted(document)
    load_plugins(document)
    cells = check_factors(document)
    study = _crossed(document, cells, preset) if cells else _Cell(document).study({*()}, preset)
    require_enumerable(study)
    return study


class _Cell:
    """One study without factors, in two steps: its objectives, and what holds for all of them."""

    def __init__(self, document: Document):
        self.document, self.sections = document, parse_sections(document)
        self.resolver = _Resolver(document, self.sections)
        self.resolver.find_transferred()
        self.objectives = tuple(
            self.resolver.objective(name, section)
            for name, section in self.sections.objectives.items()
        )

    def study(self, taken: Set[tuple[str, str]], preset: str | None) -> Study:
        """The checked study; `taken` are shared parameters that objectives of other cells own.

        Raises:
            StudyError: one line per mistake.
        """
        resolver, sections = self.resolver, self.sections
        resolver.taken |= taken
        resolver.check_shared()
        resolver.raise_errors()
        resolver.size_store(self.objectives)
        checks = Checks(
            self.document, sections, resolver.dataset, resolver.transferred, resolver.error
        )
        for objective in self.objectives:
            checks.check(objective)
        checks.check_dataset()
        checks.check_gpus()
        checks.check_keys_in_use()
        checks.check_evaluation()
        checks.check_race()
        checks.check_cost()
        checks.check_names()
        resolver.raise_errors()
        return Study(
            sections=sections,
            dataset=resolver.dataset,
            objectives=self.objectives,
            notes=tuple(resolver.notes),
            document=self.document,
            preset=preset,
        )


def _crossed(document: Document, cells: Sequence[Cell], preset: str | None) -> Study:
    """The study of all cells, each checked as a study of its own."""
    opened = _of_each(cells, [partial(_Cell, cell_document(document, cell)) for cell in cells])
    taken = {each for cell in opened for each in cell.resolver.taken}
    plain = _of_each(cells, [partial(cell.study, taken, preset) for cell in opened])
    studies = tuple(_in_cell(study, cell) for study, cell in zip(plain, cells, strict=True))
    objectives = tuple(objective for study in studies for objective in study.objectives)
    _require_apart(document, objectives)
    notes = told_of_cells([(cell, study.notes) for cell, study in zip(cells, studies, strict=True)])
    return replace(studies[0], objectives=objectives, notes=notes, document=document, cells=studies)


def _in_cell(study: Study, cell: Cell) -> Study:
    objectives = (replace(o, name=cell.qualified(o.name), cell=cell.name) for o in study.objectives)
    return replace(study, objectives=tuple(objectives))


def _of_each(cells: Sequence[Cell], makers: Sequence[Callable[[], T]]) -> list[T]:
    """What is made of each cell; mistakes of several cells are told together.

    Raises:
        StudyError: one line per mistake, with its cell unless all have it.
    """
    made, errors = [], []
    for cell, make in zip(cells, makers, strict=True):
        try:
            made.append(make())
        except StudyError as error:
            errors.append((cell, str(error).splitlines()))
    if not errors:
        return made
    lines = told_of_cells(errors, num_cells=len(cells))
    raise StudyError("\n".join(lines[:MAX_LINES]))


def _require_apart(document: Document, objectives: Sequence[Objective]) -> None:
    """Refuse too many objectives, or two whose trials would have one name."""
    if len(objectives) > MAX_OBJECTIVES:
        given = f"{len(objectives):,} in all cells together"
        message = f"expected at most {MAX_OBJECTIVES} objectives, given {given}"
        raise StudyError(document.error(("factors",), message))
    slugs: dict[str, str] = {}
    for objective in objectives:
        other = slugs.setdefault(slug(objective.name), objective.name)
        if other != objective.name:
            message = f"'{other}' and '{objective.name}' would have one file name; give labels"
            raise StudyError(document.error(("factors",), message))


def _owns(name: str, owned: Collection[str]) -> str:
    """What an objective owns, for a message; what every trial does is not listed, so that the rest
    is found.
    """
    own = ", ".join(sorted(set(owned) - set(trial_owns())))
    return f"'{name}' owns: {own}, and what every trial owns (clsweep catalog params)"


class _Resolver:
    """Collects all mistakes of a file before it complains, so that a user mends them in one go."""

    def __init__(self, document: Document, sections: StudySections):
        self.document, self.sections = document, sections
        self.errors: list[str] = []
        self.notes: list[str] = []
        self.dataset = self._sized()
        self.transferred: dict[str, Dataset] = {}  # data sets in a folder of their own, by name
        self.taken: set[tuple[str, str]] = set()  # shared (section, name) that some objective took
        # shared base values that a space replaces, by objective
        self.replaced: dict[str, list[str]] = {}

    def error(self, keys: Keys, message: str) -> None:
        self.errors.append(self.document.error(keys, message))
        if len(self.errors) == MAX_LINES:
            self.raise_errors()

    def raise_errors(self) -> None:
        if self.errors:
            raise StudyError("\n".join(dict.fromkeys(self.errors)))

    # One objective.

    def objective(self, name: str, section: ObjectiveSection) -> Objective:
        at: Keys = ("objectives", name)
        parts, is_known = self._parts(at, section)
        selected = {part: str(self._lookup(part, section, parts)) for part in SELECTED_PARTS}
        swept = "epochs" in section.space or (
            "epochs" in self.sections.space and "epochs" not in section.base
        )
        # a sweep must not contain 0, see `check`
        trained = swept or self._lookup("epochs", section, parts) != 0
        encoders = self._swept_encoders(section) or [selected["encoder"]]
        each = [
            owned_params(
                parts, dataset=self.dataset, trained=trained, **selected | {"encoder": encoder}
            )
            for encoder in encoders
        ]
        owned = tuple(name for name in PARAM if any(name in own for own in each))
        raw_selected = [(part, self._raw(part, section, parts)) for part in SELECTED_PARTS]
        is_known &= all(isinstance(raw, str) and raw in COMPONENT[p] for p, raw in raw_selected)
        if not is_known:
            owned = tuple(PARAM)  # what it owns is not known either: no second error from the first
        skips: dict[str, tuple[str, ...]] = {}
        fixed: dict[str, Value] = {}
        space: dict[str, Dimension] = {}
        for keys, param, raw, shared in self._entries(at, section):
            if param not in PARAM:
                candidates = PARAM if shared or not trained else owned
                known = "Known: see clsweep catalog params" if shared else _owns(name, owned)
                hint = nearest(param, candidates, aliases())
                self.error(keys, f"unknown parameter '{param:.80}'.{hint} {known}")
            elif not shared and keys[-2] == "space" and param in section.base:
                self.error(
                    keys, "expected the parameter in base or in space of one objective, given both"
                )
            elif param not in owned:
                reason = self._reason_not_owned(param, trained)
                if shared or not trained:
                    skips[reason] = tuple(dict.fromkeys((*skips.get(reason, ()), param)))
                else:
                    owns = _owns(name, owned)
                    self.error(keys, f"'{name}' does not own this parameter: {reason}. {owns}")
            elif keys[-2] == "space" and is_known and not all(param in own for own in each):
                lacking = [e for e, own in zip(encoders, each, strict=True) if param not in own]
                self.error(
                    keys,
                    f"'{name}' sweeps {', '.join(lacking)} too, without {param}: expected an "
                    "objective for each encoder, or another space",
                )
            else:
                self._take(keys, param, raw, fixed, space, shared)
        for param in owned:
            if param not in space:
                fixed.setdefault(param, default_of(param, parts, **selected))
        if fixed.get("precision") == "auto":
            fixed["precision"] = self._precision()
        if fixed.get("init", NONE) != NONE:
            fixed["init"] = self._initial(name, str(fixed["init"]))
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

    def _parts(self, at: Keys, section: ObjectiveSection) -> tuple[dict[str, str], bool]:
        """The four parts, and whether they are in the catalog and go together."""
        parts: dict[str, str] = {}
        num_errors = len(self.errors)
        for part in OBJECTIVE_PARTS:
            name, known = getattr(section, part), COMPONENT[part]
            if name not in known:
                expected = f"Expected one of: {', '.join(known)}"
                self.error(
                    (*at, part), f"unknown {part} '{name:.80}'.{nearest(name, known)} {expected}"
                )
                name = next(iter(known))  # go on, to find the other mistakes too
            parts[part] = name
        if len(self.errors) == num_errors and (refused := refusal(parts, self.dataset)):
            part, reason = refused
            self.error((*at, part), reason)
        return parts, len(self.errors) == num_errors

    def _raw(self, param: str, section: ObjectiveSection, parts: Mapping[str, str]) -> object:
        """The fixed value of `param` in this objective as it was written, or the default."""
        default = default_of(param, parts, **self._selected(section))
        return section.base.get(param, self.sections.base.get(param, default))

    def _lookup(self, param: str, section: ObjectiveSection, parts: Mapping[str, str]) -> Value:
        """The fixed value of `param` in this objective; the default if it is wrong (reported where
        it is taken).
        """
        try:
            return PARAM[param].coerce(self._raw(param, section, parts))
        except ValueError:
            return default_of(param, parts, **self._selected(section))

    def _selected(self, section: ObjectiveSection) -> dict[str, str]:
        """The encoder, recipe and their like that the file names for this objective, if they are in
        the catalog.
        """
        named = {
            part: section.base.get(part, self.sections.base.get(part)) for part in SELECTED_PARTS
        }
        return {
            part: name
            for part, name in named.items()
            if isinstance(name, str) and name in COMPONENT[part]
        }

    def _swept_encoders(self, section: ObjectiveSection) -> list[str]:
        """The known encoders that this objective sweeps; none where one is fixed."""
        shared = {} if "encoder" in section.base else self.sections.space
        raw = section.space.get("encoder", shared.get("encoder"))
        given = raw.get("choices") if isinstance(raw, dict) else None
        known = [*COMPONENT["encoder"]]
        return [name for name in given if name in known] if isinstance(given, list) else []

    def _entries(
        self, at: Keys, section: ObjectiveSection
    ) -> Iterator[tuple[Keys, str, object, bool]]:
        """(keys, parameter, raw value, shared?), each overriding those before it: the objective's
        own come last.
        """
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
        raw: object,
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
            # a dimension says which of its keys it is about
            key, colon, message = str(error).partition(": ")
            if colon and key in DIMENSION_KEYS:
                self.error((*keys, key), message)
            else:
                self.error(keys, str(error))
        if shared:
            self.taken.add((str(keys[-2]), param))

    def _initial(self, name: str, path: str) -> str:
        """The file of weights with its digest: one that changes makes another trial."""
        try:
            return stated(Path(path).expanduser())
        except ValueError as error:
            own = "init" in self.sections.objectives[name].base
            self.error(
                ("objectives", name, "base", "init") if own else ("base", "init"), str(error)
            )
            return NONE

    def _precision(self) -> str:
        """What `auto` stands for. The study alone decides, never the machine that a trial is on:
        otherwise one configuration would have several precisions.
        """
        return "bf16" if self.sections.resources.gpus_per_worker else "fp32"

    def _reason_not_owned(self, param: str, trained: bool) -> str:
        if not trained:
            return "epochs is 0, and the untrained encoder depends on none of this"
        if self.dataset.kind == "pairs":
            return f"{self.dataset.name} is made of vectors, not of images"
        if PARAM[param].needs_rgb and (channels := self.dataset.channels) != 3:
            given = "one channel" if channels == 1 else f"{channels} channels, not red, green, blue"
            return f"the images of {self.dataset.name} have {given}"
        return "none of its parts uses it"

    def _sized(self) -> Dataset:
        """The data set with its sizes. Without those of a folder nothing else can be checked."""
        given = self.sections.dataset
        row = DATASET[given.name]
        if row.kind == "pairs":
            return row
        taken = [*row.options, "num_train", "fraction", *(["channels"] if row.files else [])]
        options = {name: getattr(given, name) for name in dict.fromkeys(taken)}
        try:
            dataset = sized_dataset(given.name, given.place, **options)
        except RequestError as error:
            key = "root" if row.files else "num_train" if given.num_train else "fraction"
            raise StudyError(self.document.error(("dataset", key), str(error))) from None
        if dataset.files and not dataset.images_digest:
            self.notes.append(f"{given.root} is not there: planned with the sizes stated for it")
        return dataset

    def find_transferred(self) -> None:
        """The data sets that scores are transferred to, where their files lie in a folder of their
        own. Their digest is that of the trials, too.
        """
        if self.sections.dataset.transfer_root is None:
            return
        bases = (self.sections.base, *(o.base for o in self.sections.objectives.values()))
        names = {str(base.get("transfer_dataset", "none")) for base in bases} & set(DATASET)
        place, at = self.sections.dataset.place.transferred, ("dataset", "transfer_root")
        if not names:
            self.error(at, "has no effect without base.transfer_dataset")
        for name in sorted(names):
            try:
                self.transferred[name] = found = sized_dataset(name, place)
            except RequestError as error:
                self.error(at, str(error))
                continue
            if found.images_digest:
                digests = (self.dataset.images_digest or "", found.images_digest)
                self.dataset = replace(self.dataset, images_digest="+".join(digests))

    def size_store(self, objectives: Sequence[Objective]) -> None:
        """As large as the smallest crop of any view needs its pictures, if it is not stated."""
        if self.dataset.keeps_whole:
            stated, size = self.sections.dataset.store_size, self.dataset.image_size
            needed = (store_size_of(objective, size) for objective in objectives)
            self.dataset = replace(self.dataset, store_size=stated or max(needed))

    # The study as a whole.

    def check_shared(self) -> None:
        """A shared parameter that no objective owns would look perfectly robust: refuse it."""
        untrained = self.sections.base.get("epochs") == 0
        for kind in ("base", "space"):
            for param in getattr(self.sections, kind):
                if param in PARAM and (kind, param) not in self.taken and not untrained:
                    reason = self._reason_not_owned(param, trained=True)
                    owners = f"it belongs to {owners_of(param)}"
                    self.error(
                        (kind, param),
                        f"no objective of this study owns '{param}': {reason}; {owners}",
                    )
        for param, names in self.replaced.items():
            self.notes.append(f"base.{param} is replaced by the space of {', '.join(names)}")
