"""Factors: one study on several data sets and with several encoders, cell by cell.

    factors:
      dataset: [cifar10, {name: stl10, val_fraction: 0.2}]
      encoder: [resnet18, {name: conv4, width: 64, label: wide}]

A cell is one level of each factor. It is a study of its own: the file without `factors`, with what
its levels say laid over it. In the plan and its tables an objective of a cell is called
`stl10/wide/dcl`; everything that is counted, searched or compared by objective stays in its cell.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from clsweep.catalog import COMPONENT
from clsweep.errors import StudyError, nearest
from clsweep.study.document import Document, Keys, overlay

if TYPE_CHECKING:
    import pandas as pd

FACTORS = ("dataset", "encoder")
PARTIAL = ("base", "space", "objectives")  # of the study: what a level may lay over it
MAX_CELLS = 256
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class FactorCell:
    """One combination of levels: factor -> label, in the order of `FACTORS`."""

    levels: Mapping[str, str]

    @property
    def name(self) -> str:
        """`stl10/wide`."""
        return "/".join(self.levels.values())

    def qualified(self, objective: str) -> str:
        """`stl10/wide/dcl`."""
        return f"{self.name}/{objective}"


def factor_cells(tree: Mapping[str, Any]) -> list[FactorCell]:
    """The cells of a study that `check_factors` accepts, in its order; none without factors."""
    if not (names := factors_of(tree)):
        return []
    labels = [[level_label(level) for level in tree["factors"][name]] for name in names]
    return [
        FactorCell(dict(zip(names, chosen, strict=True))) for chosen in itertools.product(*labels)
    ]


def factors_of(tree: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of a study's factors."""
    return tuple(name for name in FACTORS if name in (tree.get("factors") or {}))


def split_name(tree: Mapping[str, Any], objective: str) -> dict[str, str]:
    """`stl10/wide/dcl` as {dataset: stl10, encoder: wide, objective: dcl}; of a study without
    factors {objective: dcl}.
    """
    names = factors_of(tree)
    return dict(zip((*names, "objective"), objective.split("/", len(names)), strict=True))


def with_factors(frame: pd.DataFrame, tree: Mapping[str, Any]) -> pd.DataFrame:
    """A table with the study's factors as columns, and its objectives as the file calls them.

    A factor that the table does not have yet comes first; one that it has says the label.
    """
    factors = factors_of(tree)
    if not factors or "objective" not in frame:
        return frame
    split = {name: split_name(tree, name) for name in frame["objective"].unique()}
    columns = {
        key: frame["objective"].map({name: parts[key] for name, parts in split.items()})
        for key in (*factors, "objective")
    }
    new = [name for name in factors if name not in frame]
    return frame.assign(**columns)[[*new, *frame.columns]]


def cell_document(document: Document, cell: FactorCell) -> Document:
    """The study of one cell, with the places of what its levels say."""
    study = replace(document, tree=copy.deepcopy(document.tree), places=dict(document.places))
    factors = study.tree.pop("factors")
    for factor, label in cell.levels.items():
        number = [level_label(level) for level in factors[factor]].index(label)
        at: Keys = ("factors", factor, number)
        level = factors[factor][number]
        options = {"name": level} if isinstance(level, str) else dict(level)
        options.pop("label", None)
        partial = {key: options.pop(key) for key in PARTIAL if key in options}
        overlay(study, partial, origin=at)
        # the rest is about the data set or the encoder itself
        kind = "dataset" if factor == "dataset" else "base"
        for key, value in options.items():
            name = "encoder" if (factor, key) == ("encoder", "name") else key
            study.tree.setdefault(kind, {})[name] = value
            study.places[kind, name] = study.place((*at, key))
    return study


def merged_lines(
    lines_of: Sequence[tuple[FactorCell, Sequence[str]]], *, num_cells: int | None = None
) -> tuple[str, ...]:
    """The lines that cells say, each once: with the cells that say it, unless all do."""
    about: dict[str, list[str]] = {}
    for cell, lines in lines_of:
        for line in dict.fromkeys(lines):
            about.setdefault(line, []).append(cell.name)
    everywhere = num_cells or len(lines_of)
    return tuple(
        line if len(names) == everywhere else f"{line} (in {', '.join(names)})"
        for line, names in about.items()
    )


def check_factors(document: Document) -> list[FactorCell]:
    """The cells of a merged study file; none without factors.

    Raises:
        StudyError: one line per mistake: a factor or level that is none, a label that stands twice,
            what a factor decides given elsewhere too.
    """
    if document.tree.get("factors") is None:
        document.tree.pop("factors", None)
        return []
    errors = list(_shape_errors(document)) or [*_level_errors(document), *_conflicts(document)]
    if errors:
        raise StudyError("\n".join(errors))
    cells = factor_cells(document.tree)
    if len(cells) > MAX_CELLS:
        given = f"expected at most {MAX_CELLS} cells, given {len(cells):,}"
        raise StudyError(document.error(("factors",), given))
    return cells


def _shape_errors(document: Document) -> Iterator[str]:
    factors = document.tree["factors"]
    for key in ("dataset", "base"):  # what levels are laid over
        if not isinstance(given := document.tree.get(key, {}), dict):
            yield document.error((key,), f"expected a mapping, given {given!r:.80}")
    if not isinstance(factors, dict) or not factors:
        expected = f"expected a list of levels for {' or '.join(FACTORS)}, given {factors!r:.80}"
        yield document.error(("factors",), expected)
        return
    for name, levels in factors.items():
        at: Keys = ("factors", name)
        if name not in FACTORS:
            advice = f"{nearest(name, FACTORS)} Expected: {', '.join(FACTORS)}"
            yield document.error(at, f"unknown factor.{advice}. Sweep other things in space")
        elif not isinstance(levels, list) or not levels:
            yield document.error(at, f"expected a list of levels, given {levels!r:.80}")
        else:
            for number, level in enumerate(levels):
                given = level.get("name") if isinstance(level, dict) else level
                if not isinstance(given, str):
                    expected = f"expected a name or {{name: ...}}, given {level!r:.80}"
                    yield document.error((*at, number), expected)


def _level_errors(document: Document) -> Iterator[str]:
    for name, levels in document.tree["factors"].items():
        labels = [level_label(level) for level in levels]
        for number, (label, level) in enumerate(zip(labels, levels, strict=True)):
            at: Keys = ("factors", name, number)
            if not isinstance(label, str) or not _LABEL.fullmatch(label):
                expected = f"expected letters, digits, '.', '_' and '-' only, given {label!r}"
                yield document.error(at, f"label: {expected}{_label_hint(level, label)}")
            elif label in labels[:number]:
                yield document.error(at, f"{label} stands twice; give each a label")
            if isinstance(level, dict):
                yield from _option_errors(document, at, level)


def _label_hint(level: Any, label: Any) -> str:
    """A level with a label that it may have, as one of an encoder of another library."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", str(label)).lstrip("._-")
    if not (isinstance(label, str) and slug):
        return ""
    name = level if isinstance(level, str) else level["name"]
    return f". Give it one: {{name: {name}, label: {slug}}}"


def _option_errors(document: Document, at: Keys, level: Mapping[str, Any]) -> Iterator[str]:
    """Lines on keys beside an encoder's name that it does not own. Others are checked elsewhere."""
    for key in PARTIAL:
        if key in level and not isinstance(level[key], dict):
            yield document.error((*at, key), f"expected a mapping, given {level[key]!r:.80}")
    known = COMPONENT["encoder"].get(level["name"])
    if at[1] != "encoder" or known is None:
        return
    for key in level:
        if key not in ("name", "label", *PARTIAL, *known.owns):
            owned = ", ".join(known.owns) or "nothing"
            advice = f"'{known.name}' owns: {owned}. Other hyperparameters stand in base"
            yield document.error((*at, key), f"unknown key.{nearest(key, known.owns)} {advice}")


def _conflicts(document: Document) -> Iterator[str]:
    """Lines on keys that a factor decides and the file gives elsewhere too."""
    tree, factors = document.tree, document.tree["factors"]
    alone = "alone, given here too; null removes a key"
    levels: dict[Keys, Any] = {
        ("factors", name, number): level
        for name, each in factors.items()
        for number, level in enumerate(each)
        if isinstance(level, dict)
    }
    options = {key for at, level in levels.items() if at[1] == "encoder" for key in level}
    options -= {"name", "label", *PARTIAL}
    parts: dict[Keys, Any] = {(): tree, **levels}
    for at, part in list(parts.items()):
        objectives = part.get("objectives")
        for name, own in (objectives if isinstance(objectives, dict) else {}).items():
            parts[*at, "objectives", name] = own if isinstance(own, dict) else {}
    for at, part in parts.items() if "encoder" in factors else ():
        for kind, decided in (("base", {"encoder"}), ("space", {"encoder", *options})):
            section = part.get(kind)
            for name in decided & {*(section if isinstance(section, dict) else ())}:
                yield document.error((*at, kind, name), f"expected in factors.encoder {alone}")
    if "dataset" in factors and "name" in tree.get("dataset", {}):
        name = tree["dataset"]["name"]
        advice = f"{alone}. Of {name!s:.80} alone: factors.dataset=[{name!s:.80}]"
        yield document.error(("dataset", "name"), f"expected in factors.dataset {advice}")


def level_label(level: Any) -> Any:
    """The name of a level in plans and tables; None of what is no level."""
    if isinstance(level, dict):
        return level.get("label", level.get("name"))
    return level if isinstance(level, str) else None
