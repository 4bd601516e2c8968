"""The smallest study of a trainer, with which `clsweep check` tries it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clsweep.catalog import METRIC, PARAM, Component, Param
from clsweep.catalog.ownership import evaluation_params, trainer_owns
from clsweep.catalog.plugins import Plugin
from clsweep.catalog.rows import Row
from clsweep.study.design import Study
from clsweep.study.document import Document, digests
from clsweep.study.resolve import resolve_study
from clsweep.study.settings import apply_setting

# Of what it owns; the rest has its default.
_BASE: dict[str, Any] = {"epochs": 2, "batch_size": 32, "knn_k": 5, "linear_probe": "none"}
_FEW_IMAGES = {"name": "digits", "fraction": 0.1}


def trainer_study(row: Component, plugins: Sequence[Plugin], settings: Sequence[str]) -> Study:
    """A study of one trial of a trainer; errors as of `check.witness`."""
    owned = {name for names in trainer_owns(row).values() for name in names}
    owned.update(evaluation_params() if "scores" in row.gives else ())
    metric = METRIC[next(iter(row.metrics), "knn_top1")]
    tree: dict[str, Any] = {
        "name": "check",
        "plugins": digests(plugins),
        "dataset": dict(_FEW_IMAGES) if row.gives else {"name": "own"},
        "metric": {"name": metric.name, "mode": metric.mode},
        "seeds": [0],
        "base": {name: value for name, value in _BASE.items() if name in owned},
        "objectives": {"check": {"framework": row.name, "loss": row.name}},
        "search": {"method": "grid"},
    }
    document = Document("check", tree, plugins=tuple(plugins))
    for text in settings:
        apply_setting(document, text)
    document.settings.clear()
    return resolve_study(document)


def params_to_change(row: Component, config: Row) -> list[Param]:
    """The hyperparameters that a trainer is to heed, with their values here as defaults."""
    changed = (PARAM[name] for name in row.owns if name != "epochs")
    return [replace(param, default=config[param.name]) for param in changed]
