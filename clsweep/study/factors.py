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
from collections import Counter
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
class Cell:
    """One combination of levels: factor -> label, in the order of `FACTORS`."""

    levels: Mapping[str, str]

    @property
    def name(self) -> str:
        """`stl10/wide`."""
        return "/".join(self.levels.values())

    def qualified(self, objective: str) -> str:
        """`stl10/wide/dcl`."""
        return f"{self.name}/{objective}"


def cells_of(tree: Mapping[str, Any]) -> list[Cell]:
    """The cells of a study that `check_factors` accepts, in its order; none without factors."""
    if not (names := factors_of(tree)):
        return []
    labels = [[_label(level) for level in tree["factors"][name]] for name in names]
    return [Cell(dict(zip(names, chosen, strict=True))) for chosen in itertools.product(*labels)]


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


def cell_document(document: Document, cell: Cell) -> Document:
    """The study of one cell, with the places of what its levels say."""
    tree, places = copy.deepcopy(document.tree), dict(document.places)
    found = replace(document, tree=tree, places=places)
    factors = found.tree.pop("factors")
    for factor, label in cell.levels.items():
        number = [_label(level) for level in factors[factor]].index(label)
        at: Keys = ("factors", factor, number)
        level = factors[factor][number]
        options = {"name": level} if isinstance(level, str) else dict(level)
        partial = {key: options.pop(key) for key in PARTIAL if key in options}
        options.pop("label", None)
        overlay(found, partial, origin=at)
        _lay_options(found, factor, options, at)
    return found


def told_of_cells(
    said: Sequence[tuple[Cell, Sequence[str]]], *, num_cells: int | None = None
) -> tuple[str, ...]:
    """The lines that cells say, each once: with the cells that say it, unless all do."""
    about: dict[str, list[str]] = {}
    for cell, lines in said:
        for line in dict.fromkeys(lines):
            about.setdefault(line, []).append(cell.name)
    everywhere = num_cells or len(said)
    return tuple(
        line if len(names) == everywhere else f"{line} (in {', '.join(names)})"
        for line, names in about.items()
    )


def _lay_options(document: Document, factor: str, options: dict[str, Any], at: Keys) -> None:
    """What a level says of the data set or of the encoder itself."""
    section = document.tree.setdefault("dataset" if factor == "dataset" else "base", {})
    for key, value in options.items():
        target: Keys = ("dataset", key)
        if factor == "encoder":
            target = ("base", "encoder" if key == "name" else key)
        section[target[1]] = value
        document.places[target] = document.place((*at, key))


def check_factors(document: Document) -> list[Cell]:
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
    cells = cells_of(document.tree)
    if len(cells) > MAX_CELLS:
        given = f"expected at most {MAX_CELLS} cells, given {len(cells):,}"
        raise StudyError(document.error(("factors",), given))
    return cells


def _shape_errors(document: Document) -> Iterator[str]:
    factors = document.tree["factors"]
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
        at: Keys = ("factors", name)
        labels = [_label(level) for level in levels]
        for number, label in enumerate(labels):
            if not isinstance(label, str) or not _LABEL.fullmatch(label):
                expected = "letters, digits, '.', '_' and '-' only"
                yield document.error((*at, number), f"label: expected {expected}, given {label!r}")
        label, times = Counter(map(str, labels)).most_common(1)[0]
        if times > 1:
            second = [number for number, given in enumerate(labels) if given == label][1]
            yield document.error((*at, second), f"{label} stands twice; give each a label")
        for number, level in enumerate(levels):
            yield from _option_errors(document, (*at, number), level)


def _option_errors(document: Document, at: Keys, level: object) -> Iterator[str]:
    """Of an encoder, what it owns may stand beside its name. What a data set takes is checked with
    the study.
    """
    if not isinstance(level, dict):
        return
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
    """What a factor decides stands nowhere else."""
    tree = document.tree
    levels = [level for level in tree["factors"].get("encoder", ()) if isinstance(level, dict)]
    options = {key for level in levels for key in level} - {"name", "label", *PARTIAL}
    for at, section in _sections(tree) if "encoder" in tree["factors"] else ():
        decided = {"encoder", *(options if at[-1] == "space" else ())}
        for name in decided & {*(section if isinstance(section, dict) else ())}:
            said = "expected in factors.encoder alone, given here too; null removes a key"
            yield document.error((*at, name), said)
    if "dataset" in tree["factors"] and "name" in (tree.get("dataset") or {}):
        said = "expected in factors.dataset alone, given here too; null removes a key"
        yield document.error(("dataset", "name"), said)


def _sections(tree: Mapping[str, Any]) -> Iterator[tuple[Keys, Any]]:
    """Every mapping of hyperparameters in the file, those of levels included."""
    levels = [
        (("factors", factor, number), level)
        for factor, each in tree["factors"].items()
        for number, level in enumerate(each)
        if isinstance(level, dict)
    ]
    partial: list[tuple[Keys, Any]] = [((), tree), *levels]
    for at, part in partial:
        yield from (((*at, key), part.get(key)) for key in ("base", "space"))
        objectives = part.get("objectives")
        for name, own in (objectives if isinstance(objectives, dict) else {}).items():
            if isinstance(own, dict):
                keys = (*at, "objectives", name)
                yield from (((*keys, key), own.get(key)) for key in ("base", "space"))


def _label(level: Any) -> Any:
    return level if isinstance(level, str) else level.get("label", level["name"])
