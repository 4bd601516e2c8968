"""Where the study file meets the catalog: every objective with exactly the hyperparameters that it
owns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from clsweep.catalog import (
    COMPONENT,
    DATASET,
    OBJECTIVE_PARTS,
    PARAM,
    SELECTED_PARTS,
    Dataset,
    Value,
)
from clsweep.catalog.ownership import (
    aliases,
    default_of,
    owned_params,
    owners_of,
    refusal,
    trial_owns,
)
from clsweep.data.folders import sized_dataset
from clsweep.errors import MAX_LINES, RequestError, StudyError, nearest
from clsweep.study.checks import Checks
from clsweep.study.design import Study, require_enumerable
from clsweep.study.document import Document, Keys, read_document
from clsweep.study.plugged import load_plugins
from clsweep.study.schema import ObjectiveSection, StudySections, parse_sections
from clsweep.study.space import DIMENSION_KEYS, Dimension, Objective, parse_dimension


def load_study(
    path: str | Path, *, preset: str | None = None, settings: Sequence[str] = ()
) -> Study:
    """Read, merge and check a study file.

    Args:
        path: YAML file.
        preset: name of one of the file's presets, laid over it.
        settings: `KEY=VALUE` texts with dotted keys, laid over both.

    Raises:
        StudyError: one line per mistake: place, expected, given, nearest name.
    """
    return resolve_study(read_document(path, preset=preset, settings=settings), preset=preset)


def resolve_study(document: Document, *, preset: str | None = None) -> Study:
    """Check a merged study file, see `load_study`."""
    load_plugins(document)
    sections = parse_sections(document)
    resolver = _Resolver(document, sections)
    objectives = tuple(
        resolver.objective(name, section) for name, section in sections.objectives.items()
    )
    resolver.check_shared()
    resolver.raise_errors()
    checks = Checks(document, sections, resolver.dataset, resolver.error)
    for objective in objectives:
        checks.check(objective)
    checks.check_dataset()
    checks.check_gpus()
    checks.check_keys_in_use()
    checks.check_evaluation()
    checks.check_names()
    resolver.raise_errors()
    study = Study(
        sections=sections,
        dataset=resolver.dataset,
        objectives=objectives,
        notes=tuple(resolver.notes),
        document=document,
        preset=preset,
    )
    require_enumerable(study)
    return study


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
        parts = self._parts(at, section)
        selected = {part: str(self._lookup(part, section, parts)) for part in SELECTED_PARTS}
        swept = "epochs" in section.space or (
            "epochs" in self.sections.space and "epochs" not in section.base
        )
        # a sweep must not contain 0, see `check`
        trained = swept or self._lookup("epochs", section, parts) != 0
        owned = owned_params(parts, dataset=self.dataset.name, trained=trained, **selected)
        if not self._is_known(section):
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
            else:
                self._take(keys, param, raw, fixed, space, shared)
        for param in owned:
            if param not in space:
                fixed.setdefault(param, default_of(param, parts, **selected))
        if fixed.get("precision") == "auto":
            fixed["precision"] = self._precision()
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
                self.error(
                    (*at, part), f"unknown {part} '{name:.80}'.{nearest(name, known)} {expected}"
                )
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
        """Whether the four parts are in the catalog and go together, and the encoder and its like
        are there too.
        """
        if not self._are_known(section):
            return False
        parts: dict[str, str] = {part: getattr(section, part) for part in OBJECTIVE_PARTS}
        selected = all(
            self._raw(part, section, parts) in [*COMPONENT[part]] for part in SELECTED_PARTS
        )  # or a list
        return selected and refusal(parts, self.dataset.name) is None

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
        if PARAM[param].needs_rgb and self.dataset.channels == 1:
            return f"the images of {self.dataset.name} have one channel"
        return "none of its parts uses it"

    def _sized(self) -> Dataset:
        """The data set with its sizes. Without those of a folder nothing else can be checked."""
        given = self.sections.dataset
        options = {name: getattr(given, name) for name in DATASET[given.name].options}
        try:
            dataset = sized_dataset(given.name, given.place, **options)
        except RequestError as error:
            raise StudyError(self.document.error(("dataset", "root"), str(error))) from None
        if dataset.name == "imagefolder" and not dataset.images_digest:
            self.notes.append(f"{given.root} is not there: planned with the sizes stated for it")
        return dataset

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
