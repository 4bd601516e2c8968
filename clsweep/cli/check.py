"""`clsweep check`: the contracts of a plug-in, row by row."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from clsweep.catalog import (
    COMPONENT,
    DATASET,
    METRIC,
    OBJECTIVE_PARTS,
    PARAM,
    SELECTED_PARTS,
    Diagnostic,
    Metric,
    Param,
)
from clsweep.catalog.ownership import evaluation_params, owners_of, refusal, trainer_owns
from clsweep.catalog.plugins import Plugin, activate, execute, read_plugins
from clsweep.catalog.rows import CatalogRow, Component, Dataset, Row, Value
from clsweep.errors import StudyError, UserError, first_line
from clsweep.study.design import Study, plan_row, plan_trials
from clsweep.study.document import Document, digests
from clsweep.study.resolve import resolve_study
from clsweep.study.settings import apply_setting

Tell = Callable[[str], object]


def check_plugin(
    name: str, settings: Sequence[str] = (), tell: Tell = str
) -> Iterator[tuple[str, str, str]]:
    """Try every contract of every row of a plug-in, on the smallest study that uses it.

    Args:
        name: a file NAME.py, or an installed package.
        settings: `KEY=VALUE` texts laid over these studies.
        tell: hears what is being tried.

    Yields:
        Which row, what is expected of it, and why it is not so; empty if it is.

    Raises:
        PluginError: it cannot be read, or executed.
    """
    path = Path(name)
    plugins = read_plugins([path.name if path.suffix == ".py" else name], path.parent)
    activate(plugins)
    execute(plugins)
    import torch

    from clsweep.train.contracts import start_forks

    torch.set_num_threads(1)  # the trials are small: threads would wait for each other
    if any(isinstance(row, Component) for row in plugins[0].rows):
        start_forks()
    for row in plugins[0].rows:
        is_of_trainer = isinstance(row, Component) and row.part == "loss" and not row.impl
        if is_of_trainer or (isinstance(row, Metric) and row.of == "trainer"):
            continue  # the trainer's own verdict says it
        noun = row.part if isinstance(row, Component) else type(row).__name__.lower()
        named = f"{noun} {row.name}"

        def tell_of_row(contract: str, named: str = named) -> None:
            tell(f"{named}: {contract}")

        for contract, failure in _verdicts(row, plugins, settings, tell_of_row):
            if failure and not re.match(r"\S+\.py:\d+: ", failure):
                failure = f"{plugins[0].line_of(row.name)}: {failure}"
            yield named, contract, failure


def _of_param(
    param: Param, plugins: Sequence[Plugin], settings: Sequence[str], tell: Tell
) -> Iterator[tuple[str, str]]:
    from clsweep.train.contracts import counts

    owner = owners_of(param.name)
    yield "something owns it", "" if owner else "expected its name in `owns` of another row"
    owning = [row for row in plugins[0].rows if param.name in getattr(row, "owns", ())]
    for row in owning:
        try:
            study = witness(row, plugins, settings)
        except UserError:
            continue  # what its owner's own verdict says
        config, place = plan_row(study, plan_trials(study)[0]), study.sections.dataset.place
        contract = "another value of it gives other numbers"
        contract += f" of {row.name}" * (len(owning) > 1)
        tell(contract)
        if others := _others_of(param, row, config):
            yield contract, counts(config, place, param.name, others, _column(row))


def _column(row: CatalogRow) -> str:
    """The column of a score or diagnostic; of another row none."""
    return row.name if isinstance(row, Metric | Diagnostic) else ""


def _others_of(param: Param, row: CatalogRow, config: Row) -> list[Value]:
    """Other values to try of what a row owns; of a score, which may change in steps, all at hand;
    none of what has no effect in this trial.
    """
    if any(config.get(name) == value for name, value in param.inert_when):
        return []
    base = config.get(param.name)
    others = other_values(param, param.default if base is None else base)
    return others if isinstance(row, Metric) else others[:1]


def other_values(param: Param, base: Value) -> list[Value]:
    """Valid values beside `base`, as far as some are at hand."""
    tried = list[Any](param.choices)
    if param.kind == "bool":
        tried = [not base]
    elif param.kind in ("int", "float") and isinstance(base, int | float):
        step = abs(base) or 1
        ends = [end for end in (param.high, param.low) if math.isfinite(end)]
        tried = [base + step, base - step / 2, *ends]
        tried = [round(value) for value in tried] if param.kind == "int" else tried
    values: dict[Value, None] = {}
    for value in tried:
        with contextlib.suppress(ValueError):
            values[param.coerce(value)] = None
    return [value for value in values if value != base]


def _verdicts(
    row: CatalogRow, plugins: Sequence[Plugin], settings: Sequence[str], tell: Tell
) -> Iterator[tuple[str, str]]:
    from clsweep.train.contracts import check_contracts, counts

    if isinstance(row, Param):
        yield from _of_param(row, plugins, settings, tell)
        return
    try:
        study = witness(row, plugins, settings)
        (trial,) = plan_trials(study)
        config = plan_row(study, trial)
    except UserError as error:
        yield "a study can use it", first_line(error)
        return
    yield "a study can use it", ""

    place, is_sound = study.sections.dataset.place, True
    where = f"; files are sought in {place.root_folder}: --set dataset.root=FOLDER names another"
    for contract, failure in check_contracts(
        config,
        place,
        column=_column(row),
        of_steps=isinstance(row, Component)
        and study.dataset.kind == "images"
        and not row.is_trainer,
        tell=tell,
    ):
        yield contract, failure and failure + where * isinstance(row, Dataset)
        is_sound &= not failure
    own = {known.name for known in plugins[0].rows if isinstance(known, Param)}  # have verdicts
    for name, others in _others(row, config, own).items() if is_sound else ():
        tell(contract := f"another {name} gives other numbers")
        yield contract, counts(config, place, name, others, _column(row))


def _others(row: CatalogRow, config: Row, without: Collection[str]) -> dict[str, list[Value]]:
    """Other values of each hyperparameter that an objective, optimiser or score is to heed."""
    if isinstance(row, Component) and row.is_trainer:
        params = [PARAM[name] for name in row.owns if name not in {"epochs", *without}]
        return {p.name: others[:1] for p in params if (others := other_values(p, config[p.name]))}
    part = row.part if isinstance(row, Component) else ""
    if isinstance(row, Param | Diagnostic) or not (
        isinstance(row, Metric) or part in ("optimizer", "loss", "regularizer")
    ):
        return {}
    owned = [PARAM[name] for name in row.owns if name in config and name not in without]
    changed = {param.name: _others_of(param, row, config) for param in owned}
    if part == "optimizer":  # its groups have both
        changed |= {"lr": [config["lr"] / 2], "weight_decay": [config["weight_decay"] + 0.1]}
    return {name: values for name, values in changed.items() if values}


# The smallest study that uses a row.

_IMAGES: dict[str, Any] = {
    "encoder": "conv4", "linear_probe": "none", "epochs": 2, "batch_size": 64, "knn_k": 5
}  # fmt: skip
_PAIRS: dict[str, Any] = {"epochs": 2, "batch_size": 64}
# Of what a trainer owns; the rest has its default.
_OF_TRAINER: dict[str, Any] = {"epochs": 2, "batch_size": 32, "knn_k": 5, "linear_probe": "none"}
# What is used where a row leaves the choice; of the others the first that fits.
_PREFERRED = {"framework": "simclr", "loss": "infonce", "regularizer": "none", "views": "two"}


def witness(row: CatalogRow, plugins: Sequence[Plugin], settings: Sequence[str] = ()) -> Study:
    """A study of one trial with a row of these plug-ins, which are those of this process.

    Args:
        settings: `KEY=VALUE` texts laid over it, for what a row needs, such as dataset.root=FOLDER.

    Raises:
        StudyError: there is none: one line per mistake.
    """
    is_trainer = isinstance(row, Component) and row.is_trainer
    tree = {"name": "check", "plugins": digests(plugins), "seeds": [0]}
    tree |= {**(_with_trainer if is_trainer else _with_part)(row), "search": {"method": "grid"}}
    document = Document("check", tree, plugins=tuple(plugins))
    for text in settings:
        apply_setting(document, text)
    document.settings.clear()  # a row need not use what another of the plug-in needs
    return resolve_study(document)


def _with_trainer(row: Any) -> dict[str, Any]:
    """The keys of a study of a trainer."""
    owned = {name for names in trainer_owns(row).values() for name in names}
    owned.update(evaluation_params() if "scores" in row.gives else ())
    metric = METRIC[next(iter(row.metrics), "knn_top1")]
    return {
        "dataset": {"name": "digits", "fraction": 0.1} if row.gives else {"name": "own"},
        "metric": {"name": metric.name, "mode": metric.mode},
        "base": {name: value for name, value in _OF_TRAINER.items() if name in owned},
        "objectives": {"check": {"framework": row.name, "loss": row.name}},
    }


def _with_part(row: Any) -> dict[str, Any]:
    """The same of any other row."""
    has_kind = isinstance(row, Dataset | Metric) or getattr(row, "part", "") == "framework"
    is_pairs = has_kind and getattr(row, "kind", "") == "pairs"
    data = row if isinstance(row, Dataset) else DATASET["gaussian_mi" if is_pairs else "digits"]
    base = dict(_PAIRS if is_pairs else _IMAGES)
    if isinstance(row, Component) and row.part in SELECTED_PARTS:
        base[row.part] = row.name
    if base.get("encoder") == "conv4":
        base["width"] = 4
    metric = row if isinstance(row, Metric) else METRIC["mi_estimate" if is_pairs else "knn_top1"]
    return {
        "dataset": {"name": data.name},
        "metric": {"name": metric.name, "mode": metric.mode},
        "base": base,
        "objectives": {"check": _parts(row, data)},
    }


def _parts(row: CatalogRow, data: Dataset) -> dict[str, str]:
    """The first objective with this row that the data set admits."""
    fixed: dict[str, str] = {row.part: row.name} if isinstance(row, Component) else {}
    if fixed.get("weighting"):
        fixed["loss"] = "dclw"
    names = [
        [fixed[part]] if part in fixed else dict.fromkeys((_PREFERRED[part], *COMPONENT[part]))
        for part in OBJECTIVE_PARTS
    ]
    for chosen in itertools.product(*names):
        parts: dict[str, str] = dict(zip(OBJECTIVE_PARTS, chosen, strict=True))
        if refusal(parts, data) is None:
            return parts
    raise StudyError("no objective takes it: name it in `losses` or `on`")
