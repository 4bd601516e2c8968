"""The smallest study that uses a row of the catalog: what its contracts are tried on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from clsweep.catalog import COMPONENT, DATASET, OBJECTIVE_PARTS, SELECTED_PARTS, Metric
from clsweep.catalog.ownership import refusal
from clsweep.catalog.plugins import Plugin
from clsweep.catalog.rows import CatalogRow, Component, Dataset
from clsweep.errors import StudyError
from clsweep.study.design import Study
from clsweep.study.document import Document, apply_setting
from clsweep.study.plugged import digests
from clsweep.study.resolve import resolve_study

IMAGES: dict[str, Any] = {"encoder": "conv4", "epochs": 2, "batch_size": 64, "knn_k": 5}
PAIRS: dict[str, Any] = {"epochs": 2, "batch_size": 64}
# What is used where a row leaves the choice; of the others the first that fits.
PREFERRED = {"framework": "simclr", "loss": "infonce", "regularizer": "none", "views": "two"}


def witness(row: CatalogRow, plugins: Sequence[Plugin], settings: Sequence[str] = ()) -> Study:
    """A study of one trial with a row of these plug-ins, which are those of this process.

    Args:
        settings: `KEY=VALUE` texts laid over it, for what a row needs, such as dataset.root=FOLDER.

    Raises:
        StudyError: there is none: one line per mistake.
    """
    kind = _kind(row)
    data = (
        row if isinstance(row, Dataset) else DATASET["gaussian_mi" if kind == "pairs" else "digits"]
    )
    base = dict(PAIRS if kind == "pairs" else IMAGES)
    if isinstance(row, Component) and row.part in SELECTED_PARTS:
        base[row.part] = row.name
    if kind == "images":
        base.setdefault("linear_probe", "none")
    if base.get("encoder") == "conv4":
        base["width"] = 4
    tree: dict[str, Any] = {
        "name": "check",
        "plugins": digests(plugins),
        "dataset": {"name": data.name},
        "seeds": [0],
        "base": base,
        "objectives": {"check": _parts(row, data)},
        "search": {"method": "grid"},
    }
    if isinstance(row, Metric):
        tree["metric"] = {"name": row.name, "mode": row.mode}
    elif kind == "pairs":
        tree["metric"] = {"name": "mi_estimate", "mode": "max"}
    document = Document("check", tree, plugins=tuple(plugins))
    for setting in settings:
        apply_setting(document, setting)
    return resolve_study(document)


def _kind(row: CatalogRow) -> str:
    if isinstance(row, Dataset | Metric):
        return row.kind
    is_framework = isinstance(row, Component) and row.part == "framework"
    return row.kind if is_framework else "images"  # type: ignore[union-attr]


def _parts(row: CatalogRow, data: Dataset) -> dict[str, str]:
    """The first objective with this row that the data set admits."""
    fixed: dict[str, str] = {row.part: row.name} if isinstance(row, Component) else {}
    if fixed.get("weighting"):
        fixed["loss"] = "dclw"
    parts: tuple[str, ...] = OBJECTIVE_PARTS
    names = [
        [fixed[part]] if part in fixed else list(dict.fromkeys((PREFERRED[part], *COMPONENT[part])))
        for part in parts
    ]
    every = (dict(zip(parts, chosen, strict=True)) for chosen in itertools.product(*names))
    found = next((parts for parts in every if refusal(parts, data) is None), None)
    if found is None:
        raise StudyError("no objective takes it: name it in `losses` or `on`")
    return found
