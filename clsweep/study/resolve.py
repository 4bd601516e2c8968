"""Where the study file meets the catalog: objectives with exactly the hyperparameters they own."""

from __future__ import annotations

import contextlib
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
from clsweep.catalog.open_encoders import NONE, with_digest
from clsweep.catalog.other_names import OTHER_NAMES
from clsweep.catalog.ownership import (
    aliases,
    default_of,
    owned_params,
    owned_text,
    owners_of,
    refusal,
)
from clsweep.data.locations import AbsentError, DataPlace
from clsweep.data.sources import files_notes, sized_dataset, transfer_note
from clsweep.errors import MAX_LINES, RequestError, StudyError, nearest
from clsweep.study.cautions import setting_notes
from clsweep.study.check_training import Draft
from clsweep.study.checks import check_study
from clsweep.study.design import Study, require_enumerable
from clsweep.study.document import Document, Keys, load_plugins, read_document, require_trusted
from clsweep.study.factors import FactorCell, cell_document, check_factors, merged_lines
from clsweep.study.first_points import first_points
from clsweep.study.schema import MAX_OBJECTIVES, ObjectiveSection, parse_sections
from clsweep.study.settings import apply_setting, require_used
from clsweep.study.space import (
    DIMENSION_KEYS,
    Dimension,
    Objective,
    file_slug,
    parse_dimension,
    store_size_of,
)

T = TypeVar("T")


def load_study(
    path: str | Path,
    *,
    preset: str | None = None,
    settings: Sequence[str] = (),
    trust: bool = False,
    has_contrasts: bool = True,
) -> Study:
    """Read, merge and check a study file.

    Args:
        path: YAML file.
        preset: name of one of the file's presets, laid over it.
        settings: `KEY=VALUE` texts with dotted keys, laid over both.
        trust: execute the plug-ins and own encoders that the `study.yaml` of a results folder
            names. What a study file of the user's own names is executed.
        has_contrasts: with the study's contrasts, which a single trial does not need.

    Raises:
        StudyError: one line per mistake: place, expected, given, nearest name.
    """
    document = read_document(path, preset=preset, trust=trust)
    for setting in settings:
        apply_setting(document, setting)
    if not has_contrasts:
        document.tree.pop("contrasts", None)
    return resolve_study(document, preset=preset)


def resolve_study(document: Document, *, preset: str | None = None) -> Study:
    """Check a merged study file, see `load_study`."""
    require_trusted(document)
    load_plugins(document)
    cells = check_factors(document)
    opened = _of_each(cells, [partial(_Cell, cell_document(document, cell)) for cell in cells])
    drafts = opened or [_Cell(document)]
    _choose_forms(drafts)
    study = _crossed(document, cells, opened, preset) if cells else drafts[0].study({*()}, preset)
    notes = require_used(document, drafts, cells or [None])
    require_enumerable(study)
    return replace(study, notes=(*study.notes, *notes))


# What others mean by these names.
_OTHER_MEANINGS = {
    "momentum": " (that of SGD is sgd_momentum)",
    "tau": " (the rate of a momentum encoder is momentum)",
}


class _Cell(Draft):
    """One study without factors, in two steps: its objectives, and what holds for all of them."""

    def __init__(self, document: Document):
        self.document, self.sections = document, parse_sections(document)
        self.errors, self.notes = list[str](), list[str]()
        self.taken: set[tuple[str, str]] = set()  # shared (section, name) that some objective took
        self.sources = {}
        # shared base values that a space replaces, by objective
        self.replaced: dict[str, list[str]] = {}
        self.dataset = self._sized()
        self.transferred = {}
        if self.sections.dataset.transfer_root is not None:
            self._find_transferred()
        self.objectives = tuple(
            self._with_first(self._objective(name, section))
            for name, section in self.sections.objectives.items()
        )

    def study(self, taken: Set[tuple[str, str]], preset: str | None) -> Study:
        """The checked study; `taken` are shared parameters that objectives of other cells own."""
        self._check_shared(self.taken | taken)
        self.raise_errors()
        if self.dataset.keeps_whole:
            store_size = self.store_size(self.dataset.store_as)
            self.dataset = replace(self.dataset, store_size=store_size)
        check_study(self, self.objectives)
        self.raise_errors()
        self.notes += setting_notes(self, self.objectives)
        return Study(
            sections=self.sections, dataset=self.dataset, objectives=self.objectives,
            notes=tuple(self.notes), document=self.document, preset=preset,
        )  # fmt: skip

    def store_size(self, form: str) -> int:
        """Pixels that the shorter side of pictures has at most in a form."""
        needed = (store_size_of(each, self.dataset.image_size, form) for each in self.objectives)
        return self.sections.dataset.store_size or max(needed)

    def _objective(self, name: str, section: ObjectiveSection) -> Objective:
        at: Keys = ("objectives", name)
        parts, is_known = self._parts(at, section)
        written = self.sections.base | section.base
        swept = {k: v for k, v in self.sections.space.items() if k not in section.base}
        swept |= section.space
        named: dict[str, str] = {}
        for part in SELECTED_PARTS:
            with contextlib.suppress(ValueError, KeyError):
                named[part] = str(PARAM[part].coerce(written[part]))
        is_known &= all(part in named for part in SELECTED_PARTS if part in written)
        selected = {p: named.get(p, str(default_of(p, parts, **named))) for p in SELECTED_PARTS}
        # a sweep must not contain 0, see `TrainingChecks`
        is_trained = "epochs" in swept or written.get("epochs", 1) != 0
        per_encoder = {
            encoder: owned_params(
                parts, dataset=self.dataset, trained=is_trained, **selected | {"encoder": encoder}
            )
            for encoder in _known_encoders(swept.get("encoder")) or [selected["encoder"]]
        }
        owned = tuple(name for name in PARAM if any(name in own for own in per_encoder.values()))
        if not is_known:  # nor is what it owns: no second error from the first
            owned, per_encoder = tuple(PARAM), {}
        skips: dict[str, tuple[str, ...]] = {}
        fixed: dict[str, Value] = {}
        space: dict[str, Dimension] = {}
        sources = self.sources.setdefault(name, {})
        for keys, raw in self._entries(at, section):
            param, is_shared = str(keys[-1]), keys[0] != "objectives"
            encoders = _swept_with(raw, per_encoder) if keys[-2] == "space" else per_encoder
            if message := self._refused(name, keys, owned, encoders, is_trained):
                self.error(keys, message)
                self.taken.add((str(keys[-2]), param))  # one mistake, which is named
            elif param not in owned:
                reason = self._reason_not_owned(param, is_trained)
                skips[reason] = tuple(dict.fromkeys((*skips.get(reason, ()), param)))
            else:
                self._take(keys, raw, fixed, space)
                # of one that is swept under a condition also what it is elsewhere
                is_beside = param in space and space[param].when
                sources[param] = (*(sources.get(param, ()) if is_beside else ()), keys)
                if is_shared:
                    self.taken.add((str(keys[-2]), param))
        for param in owned:
            default = default_of(param, parts, **selected)
            if param not in space:
                fixed.setdefault(param, default)
            elif space[param].when and space[param].otherwise is None:
                space[param] = replace(space[param], otherwise=default)
            elif param in self.sections.base and not space[param].when:
                self.replaced.setdefault(param, []).append(name)
        self._decide(at, section, fixed)
        return Objective(
            name=name,
            parts=parts,
            fixed={param: fixed[param] for param in PARAM if param in fixed},
            space={param: space[param] for param in PARAM if param in space},
            skips=skips,
            is_gridded=self.sections.search.method == "grid",
        )

    def _with_first(self, objective: Objective) -> Objective:
        """The objective with the points that it tries first."""
        self.taken |= {("first", param) for param in objective.space}
        if not self.sections.search.first or self.errors:
            return objective
        written = self.sections.base | self.sections.objectives[objective.name].base
        selected = {p: str(objective.fixed[p]) for p in SELECTED_PARTS if p in objective.fixed}
        defaults = {
            name: written.get(name, default_of(name, objective.parts, **selected))
            for name in objective.space
        }
        return replace(objective, first=first_points(self, objective, defaults))

    def _parts(self, at: Keys, section: ObjectiveSection) -> tuple[dict[str, str], bool]:
        """The four parts, and whether they are in the catalog and go together."""
        parts: dict[str, str] = {}
        num_errors = len(self.errors)
        for part in OBJECTIVE_PARTS:
            name, known = getattr(section, part), COMPONENT[part]
            if name not in known and section.trainer:
                known = {n: row for n, row in COMPONENT["framework"].items() if row.is_trainer}
                hint = f"{nearest(name, known)} Known: {', '.join(known) or 'none'}"
                wrong = f"no function under @trainer(...) is '{section.trainer:.80}'.{hint}"
                self.error((*at, "trainer"), wrong)
                return {p: next(iter(COMPONENT[p])) for p in OBJECTIVE_PARTS}, False
            if name not in known:
                hint = f"{nearest(name, known, OTHER_NAMES)} Expected one of: {', '.join(known)}"
                self.error((*at, part), f"unknown {part} '{name:.80}'.{hint}")
                name = next(iter(known))  # go on, to find the other mistakes too
            parts[part] = name
        if len(self.errors) == num_errors and (refused := refusal(parts, self.dataset)):
            part, reason = refused
            self.error((*at, "trainer" if section.trainer else part), reason)
        return parts, len(self.errors) == num_errors

    def _entries(self, at: Keys, section: ObjectiveSection) -> Iterator[tuple[Keys, object]]:
        """Keys and value of each parameter, in the order in which they override others."""
        for root, part in (((), self.sections), (at, section)):
            for kind in ("base", "space"):
                for param, raw in getattr(part, kind).items():
                    yield (*root, kind, param), raw

    def _refused(
        self,
        name: str,
        keys: Keys,
        owned: Collection[str],
        per_encoder: Mapping[str, Collection[str]],
        is_trained: bool,
    ) -> str:
        """Why a parameter is a mistake in an objective; empty if it is taken, or passed over."""
        kind, param = str(keys[-2]), str(keys[-1])
        is_shared = keys[0] != "objectives"
        if param in OBJECTIVE_PARTS:
            return f"'{param}' is a part of an objective. Expected: objectives.NAME.{param}"
        if param not in PARAM:
            is_any = is_shared or not per_encoder  # of unknown parts nobody knows what they own
            candidates = PARAM if is_any or not is_trained else owned
            known = "Known: see clsweep catalog params" if is_any else owned_text(name, owned)
            hint = nearest(param, candidates, aliases())
            return f"unknown parameter '{param:.80}'.{hint} {known}"
        if not is_shared and kind == "space" and param in self.sections.objectives[name].base:
            return "expected the parameter in base or in space of one objective, given both"
        if param not in owned:
            if is_shared or not is_trained:
                return ""
            reason = self._reason_not_owned(param, is_trained)
            return f"'{name}' does not own this parameter: {reason}. {owned_text(name, owned)}"
        lacking = [encoder for encoder, own in per_encoder.items() if param not in own]
        if kind == "space" and lacking:
            return (
                f"'{name}' sweeps {', '.join(lacking)} too, without {param}: expected when: "
                "{encoder: ...} beside it, an objective for each encoder, or another space"
            )
        return ""

    def _take(
        self, keys: Keys, raw: object, fixed: dict[str, Value], space: dict[str, Dimension]
    ) -> None:
        param = PARAM[str(keys[-1])]
        try:
            if keys[-2] == "space":
                beside = fixed.pop(param.name, None)  # what it is where it is not swept
                dimension = parse_dimension(param, raw)
                space[param.name] = replace(dimension, otherwise=beside if dimension.when else None)
            else:
                fixed[param.name] = param.coerce(raw)
                space.pop(param.name, None)
        except ValueError as error:
            # a dimension says which of its keys it is about
            key, colon, message = str(error).partition(": ")
            is_of_key = colon and key in DIMENSION_KEYS
            self.error((*keys, key) if is_of_key else keys, message if is_of_key else str(error))

    def _decide(self, at: Keys, section: ObjectiveSection, fixed: dict[str, Value]) -> None:
        """Put in place what `auto` stands for, and the digest of a file of weights: one that
        changes makes another trial.
        """
        if fixed.get("precision") == "auto":
            # The study alone decides, never the machine that a trial is on: otherwise one
            # configuration would have several precisions.
            fixed["precision"] = "bf16" if self.sections.resources.gpus_per_worker else "fp32"
        if (init := str(fixed.get("init", NONE))) != NONE:
            try:
                fixed["init"] = with_digest(Path(init).expanduser())
            except ValueError as error:
                root = at if "init" in section.base else ()
                self.error((*root, "base", "init"), str(error))
                fixed["init"] = NONE

    def _reason_not_owned(self, param: str, is_trained: bool) -> str:
        if not is_trained:
            return "epochs is 0, and the untrained encoder depends on none of this"
        if self.dataset.kind != "images":
            what = "made of vectors" if self.dataset.kind == "pairs" else "a trainer's own data"
            return f"{self.dataset.name} is {what}, not of images"
        if PARAM[param].needs_rgb and (channels := self.dataset.channels) != 3:
            given = "one channel" if channels == 1 else f"{channels} channels, not red, green, blue"
            return f"the images of {self.dataset.name} have {given}"
        return "none of its parts uses it" + _OTHER_MEANINGS.get(param, "")

    def _sized(self) -> Dataset:
        """The data set with its sizes. Without those of a folder nothing else can be checked."""
        given = self.sections.dataset
        row = DATASET[given.name]
        if row.kind != "images":
            return row
        taken = [*row.options, "num_train", "fraction", *(["channels"] if row.files else [])]
        options = {name: getattr(given, name) for name in dict.fromkeys(taken)}
        try:
            dataset = sized_dataset(
                given.name, given.place, val_fraction=self.sections.val_fraction, **options
            )
            dataset = _identified(dataset, given.place)
        except RequestError as error:
            key = "root" if row.files else "num_train" if given.num_train else "fraction"
            raise StudyError(self.document.error(("dataset", key), str(error))) from None
        if given.place.is_remote and (dataset.files or dataset.folder):
            self._note_copy(dataset)
        elif dataset.files and not dataset.images_digest:
            self.notes.append(f"{given.root} is not there: planned with the sizes stated for it")
        self.notes += files_notes(dataset, given.root)
        return dataset

    def _note_copy(self, dataset: Dataset) -> None:
        """A note on the bytes that each machine copies, or why they are not known."""
        from clsweep.data.bucket_copy import copy_note

        try:
            note = copy_note(dataset, self.sections.dataset.place)
        except AbsentError as error:
            if not dataset.files:  # the trials' machines will say so
                return
            note = str(error)
        except RequestError as error:
            self.error(("dataset", "root"), str(error))
            return
        is_stated = dataset.files and not dataset.images_digest
        self.notes.append(f"{note}{'; planned with the sizes stated for it' * bool(is_stated)}")

    def _find_transferred(self) -> None:
        """The data sets that scores are transferred to, whose files lie in a folder of their own.
        Their digest is that of the trials, too.
        """
        bases = (self.sections.base, *(o.base for o in self.sections.objectives.values()))
        names = {str(base.get("transfer_dataset", "none")) for base in bases} & set(DATASET)
        place, at = self.sections.dataset.place.transferred, ("dataset", "transfer_root")
        if not names:
            self.error(at, "has no effect without base.transfer_dataset")
        for name in sorted(names):
            try:
                dataset = sized_dataset(name, place, val_fraction=self.sections.val_fraction)
                self.transferred[name] = dataset = _identified(dataset, place)
            except RequestError as error:
                self.error(at, str(error))
                continue
            self.notes += files_notes(dataset, place.root)
            if dataset.class_names:
                self.notes.append(transfer_note(dataset, place.root, self.sections.val_fraction))
            if dataset.images_digest:
                digests = (self.dataset.images_digest or "", dataset.images_digest)
                self.dataset = replace(self.dataset, images_digest="+".join(digests))

    def _check_shared(self, taken: Set[tuple[str, str]]) -> None:
        """A shared parameter that no objective owns would look perfectly robust: refuse it."""
        for kind in ("base", "space"):
            for param in getattr(self.sections, kind):
                is_free = param in PARAM and (kind, param) not in taken
                if is_free and self.sections.base.get("epochs") != 0:
                    reason = self._reason_not_owned(param, is_trained=True)
                    nobody = f"no objective of this study owns '{param}': {reason}"
                    self.error((kind, param), f"{nobody}; it belongs to {owners_of(param)}")
        swept = sorted({param for kind, param in taken if kind == "first"})
        for number, point in enumerate(self.sections.search.first):
            for param in point.keys() - {*swept}:
                message = f"no objective sweeps '{param:.80}'.{nearest(param, swept, aliases())}"
                at = ("search", "first", number, param)
                self.error(at, f"{message} Expected some of: {', '.join(swept) or 'none'}")
        for param, names in self.replaced.items():
            self.notes.append(f"base.{param} is replaced by the space of {', '.join(names)}")


def _choose_forms(cells: Sequence[_Cell]) -> None:
    """Give pictures their form. Where none is stated it is one for all cells of a folder, by the
    cell that needs most bytes: scores in two forms could not be compared.
    """
    of_folder: dict[tuple[str, str, int], list[_Cell]] = {}
    for cell in cells:
        data, section = cell.dataset, cell.sections.dataset
        if data.keeps_whole and section.store_as:
            cell.dataset = replace(data, store_as=section.store_as)
        elif data.keeps_whole and not cell.errors:
            key = data.name, section.place.root.rstrip("/"), data.channels
            of_folder.setdefault(key, []).append(cell)
    for group in of_folder.values():
        from clsweep.data.store_form import automatic_form  # needs numpy

        forms = {automatic_form(cell.dataset, cell.store_size("pixels")) for cell in group}
        for cell in group:
            cell.dataset = replace(cell.dataset, store_as="jpeg" if "jpeg" in forms else "pixels")


def _identified(dataset: Dataset, place: DataPlace) -> Dataset:
    """The data set; one of a plug-in, which is read for it, with the digest of its images."""
    if not dataset.is_own or place.is_remote:
        return dataset
    from clsweep.data.identity import identified  # needs numpy

    return identified(dataset, place)


def _known_encoders(space: object) -> list[str]:
    """The encoders that a space sweeps."""
    given = space.get("choices") if isinstance(space, dict) else None
    return [n for n in given if n in COMPONENT["encoder"]] if isinstance(given, list) else []


def _swept_with(raw: object, per_encoder: Mapping[str, T]) -> Mapping[str, T]:
    """Hyperparameters of the encoders at which a space sweeps a dimension."""
    when = raw.get("when") if isinstance(raw, dict) else None
    given = when.get("encoder") if isinstance(when, dict) else None
    named = given if isinstance(given, list) else [given]
    return {e: own for e, own in per_encoder.items() if given is None or e in named}


def _crossed(
    document: Document, cells: Sequence[FactorCell], opened: Sequence[_Cell], preset: str | None
) -> Study:
    """The study of all cells, each checked as a study of its own."""
    taken = {each for cell in opened for each in cell.taken}
    plain = _of_each(cells, [partial(cell.study, taken, preset) for cell in opened])
    studies = []
    for study, cell in zip(plain, cells, strict=True):
        named = (replace(o, name=cell.qualified(o.name), cell=cell.name) for o in study.objectives)
        studies.append(replace(study, objectives=tuple(named)))
    objectives = tuple(objective for study in studies for objective in study.objectives)
    if len(objectives) > MAX_OBJECTIVES:
        given = f"{len(objectives):,} in all cells together"
        message = f"expected at most {MAX_OBJECTIVES} objectives, given {given}"
        raise StudyError(document.error(("factors",), message))
    slugs: dict[str, str] = {}
    for objective in objectives:
        other = slugs.setdefault(file_slug(objective.name).lower(), objective.name)
        if other != objective.name:
            message = f"'{other}' and '{objective.name}' would have one file name; give labels"
            raise StudyError(document.error(("factors",), message))
    return replace(
        studies[0],
        objectives=objectives,
        notes=merged_lines([(c, s.notes) for c, s in zip(cells, studies, strict=True)]),
        document=document,
        cells=tuple(studies),
    )


def _of_each(cells: Sequence[FactorCell], makers: Sequence[Callable[[], T]]) -> list[T]:
    """The value of a function at each cell. StudyError has the mistakes of all, a line each, with
    their cells unless all have it.
    """
    made, errors = [], []
    for cell, make in zip(cells, makers, strict=True):
        try:
            made.append(make())
        except StudyError as error:
            errors.append((cell, str(error).splitlines()))
    if not errors:
        return made
    lines = merged_lines(errors, num_cells=len(cells))
    raise StudyError("\n".join(lines[:MAX_LINES]))
