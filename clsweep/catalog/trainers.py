"""Training loops of the user's own: a function `train(trial)`, with what it says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, Literal, TypeVar

from clsweep.catalog.rows import CatalogRow, Component, Metric, Param, Value

Train = TypeVar("Train", bound=Callable[..., Any])
_MARK = "clsweep_trainer"  # attribute of a function


def trainer(
    *,
    params: Sequence[Param] = (),
    uses: Sequence[str] = (),
    defaults: Mapping[str, Value] | None = None,
    metrics: Sequence[Metric] = (),
    gives: Sequence[Literal["data", "views", "scores"]] = (),
) -> Callable[[Train], Train]:
    """Mark a function `train(trial)`, which a study names: `trainer: my_loop.py:train`.

    Args:
        params: hyperparameters of its own.
        uses: names of those of the catalog that it reads. It has `epochs` anyway.
        defaults: of any of these, in place of their rows' own.
        metrics: scores that it reports; `of` and `every_epoch` are filled in.
        gives: what it takes of the study's images: `data`, the images themselves, `views`, batches
            of augmented views, `scores`, those of `trial.score`. With none of them it reads data of
            its own, and the study's data set is `own`. What makes views and scores is then a
            hyperparameter of the trial, too.
    """
    row = Component(
        part="framework", name="", doc="", source="", is_trainer=True, pairs_views=False,
        owns=("epochs", *uses, *(param.name for param in params)), defaults=dict(defaults or {}),
        metrics=tuple(metric.name for metric in metrics), gives=tuple(gives),
        kind="images" if gives else "own", views_of_negatives=0,
    )  # fmt: skip
    reported = [replace(metric, of="trainer", every_epoch=True) for metric in metrics]

    def mark(function: Train) -> Train:
        setattr(function, _MARK, (row, [*params, *reported]))
        return function

    return mark


def trainer_rows(module: ModuleType, plugin: str) -> list[CatalogRow]:
    """Rows of the trainers of a plug-in's module. Each is a framework with a loss of its own."""
    rows: list[CatalogRow] = []
    for function in vars(module).values():
        if not hasattr(function, _MARK) or function.__module__ != module.__name__:
            continue  # of a module beside
        row, beside = getattr(function, _MARK)
        name, impl = trainer_name(f"{plugin}:{function.__name__}"), function.__name__
        doc = next(iter((function.__doc__ or "").strip().splitlines()), "a training loop")
        rows += [each for each in beside if each not in rows]
        rows.append(Component(part="loss", name=name, doc=doc, source=plugin))
        rows.append(replace(row, name=name, impl=impl, losses=(name,), doc=doc, source=plugin))
    return rows


def trainer_name(place: str) -> str:
    """The framework of `loops/my_loop.py:train`, as tables have it: `my_loop.train`.

    Raises:
        ValueError: it is no such text.
    """
    plugin, colon, function = place.rpartition(":")
    if not (colon and plugin and function.isidentifier()):
        raise ValueError(f"expected FILE.py:FUNCTION or MODULE:FUNCTION, given {place!r:.80}")
    return f"{plugin.rpartition('/')[2].removesuffix('.py')}.{function}"
