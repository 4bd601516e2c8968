"""`clsweep check`: the contracts of a plug-in, row by row; and `clsweep try`, one trial."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clsweep.catalog import (
    COMPONENT,
    DATASET,
    METRICS,
    OBJECTIVE_PARTS,
    PARAM,
    SELECTED_PARTS,
    Diagnostic,
    Metric,
    Param,
)
from clsweep.catalog.ownership import is_taken, owners_of, refusal
from clsweep.catalog.plugins import Plugin, activate, error_line, execute, read_plugins
from clsweep.catalog.rows import CatalogRow, Component, Dataset, Row, Value
from clsweep.display.numbers import byte_size, count, fixed, mentioned, setting
from clsweep.display.printing import print_note, screen_width
from clsweep.display.text import say
from clsweep.errors import RequestError, StudyError, UserError, first_line, nearest
from clsweep.study.design import PlannedTrial, Study, plan_row, plan_trials
from clsweep.study.document import Document, apply_setting, digests
from clsweep.study.resolve import resolve_study

if TYPE_CHECKING:
    import torch


def check_plugin(name: str, settings: Sequence[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Try every contract of every row of a plug-in, on the smallest study that uses it.

    Args:
        name: a file NAME.py, or an installed package.
        settings: `KEY=VALUE` texts laid over these studies.

    Yields:
        Which row, what is expected of it, and why it is not so; empty if it is.

    Raises:
        PluginError: it cannot be read, or executed.
    """
    path = Path(name)
    plugins = read_plugins([path.name if path.suffix == ".py" else name], path.parent)
    activate(plugins)
    execute(plugins)
    for row in plugins[0].rows:
        noun = row.part if isinstance(row, Component) else type(row).__name__.lower()
        for contract, failure in _verdicts(row, plugins, settings):
            if failure and not re.match(r"\S+\.py:\d+: ", failure):
                failure = f"{plugins[0].line_of(row.name)}: {failure}"
            yield f"{noun} {row.name}", contract, failure


def _of_param(
    param: Param, plugins: Sequence[Plugin], settings: Sequence[str]
) -> Iterator[tuple[str, str]]:
    from clsweep.train.contracts import counts

    owner = owners_of(param.name)
    yield "something owns it", "" if owner else "expected its name in `owns` of another row"
    owning = [r for r in plugins[0].rows if isinstance(r, Component) and param.name in r.owns]
    other = another_value(param)
    if not owning or other is None or param.inert_when:
        return
    try:
        study = witness(owning[0], plugins, settings)
    except UserError:
        return  # what its owner's own verdict says
    config = plan_row(study, plan_trials(study)[0])
    place = study.sections.dataset.place
    yield "another value of it gives other numbers", counts(config, place, param.name, other)


def another_value(param: Param) -> Value | None:
    """A valid value that is not the default; None if there is none at hand."""
    base, tried = param.default, list[Any](param.choices)
    if param.kind == "bool":
        tried = [not base]
    elif param.kind in ("int", "float") and isinstance(base, int | float):
        step = abs(base) or 1
        ends = [end for end in (param.high, param.low) if math.isfinite(end)]
        tried = [base + step, base - step / 2, *ends]
        tried = [round(value) for value in tried] if param.kind == "int" else tried
    for value in tried:
        with contextlib.suppress(ValueError):
            if param.coerce(value) != base:
                return param.coerce(value)
    return None


def _verdicts(
    row: CatalogRow, plugins: Sequence[Plugin], settings: Sequence[str]
) -> Iterator[tuple[str, str]]:
    from clsweep.train.contracts import check_contracts, counts

    if isinstance(row, Param):
        yield from _of_param(row, plugins, settings)
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
    for contract, failure in check_contracts(
        config,
        place,
        column=row.name if isinstance(row, Metric | Diagnostic) else "",
        of_steps=isinstance(row, Component) and study.dataset.kind == "images",
    ):
        yield contract, failure
        is_sound &= not failure
    own = {known.name for known in plugins[0].rows if isinstance(known, Param)}  # have verdicts
    for name, other in _others(row, config, own).items() if is_sound else ():
        yield f"another {name} gives other numbers", counts(config, place, name, other)


def _others(row: CatalogRow, config: Row, without: Collection[str]) -> dict[str, Value]:
    """Another value of each hyperparameter that an objective or optimiser is to heed."""
    if not isinstance(row, Component) or row.part not in ("optimizer", "loss", "regularizer"):
        return {}
    owned = [PARAM[name] for name in row.owns if name in config and name not in without]
    found = {
        param.name: another_value(param)
        for param in owned
        if not any(config.get(name) == value for name, value in param.inert_when)
    }
    if row.part == "optimizer":  # its groups have both
        found |= {"lr": config["lr"] / 2, "weight_decay": config["weight_decay"] + 0.1}
    return {name: value for name, value in found.items() if value is not None}


# The smallest study that uses a row.

_IMAGES: dict[str, Any] = {
    "encoder": "conv4", "linear_probe": "none", "epochs": 2, "batch_size": 64, "knn_k": 5
}  # fmt: skip
_PAIRS: dict[str, Any] = {"epochs": 2, "batch_size": 64}
# What is used where a row leaves the choice; of the others the first that fits.
_PREFERRED = {"framework": "simclr", "loss": "infonce", "regularizer": "none", "views": "two"}


def witness(row: CatalogRow, plugins: Sequence[Plugin], settings: Sequence[str] = ()) -> Study:
    """A study of one trial with a row of these plug-ins, which are those of this process.

    Args:
        settings: `KEY=VALUE` texts laid over it, for what a row needs, such as dataset.root=FOLDER.

    Raises:
        StudyError: there is none: one line per mistake.
    """
    has_kind = isinstance(row, Dataset | Metric) or getattr(row, "part", "") == "framework"
    is_pairs = has_kind and getattr(row, "kind", "") == "pairs"
    data = row if isinstance(row, Dataset) else DATASET["gaussian_mi" if is_pairs else "digits"]
    base = dict(_PAIRS if is_pairs else _IMAGES)
    if isinstance(row, Component) and row.part in SELECTED_PARTS:
        base[row.part] = row.name
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
    elif is_pairs:
        tree["metric"] = {"name": "mi_estimate", "mode": "max"}
    document = Document("check", tree, plugins=tuple(plugins))
    for text in settings:
        apply_setting(document, text)
    return resolve_study(document)


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


# `clsweep try`: one planned trial in this process, a row per epoch.

_COLUMNS: dict[str, Callable[[Any], str]] = {
    "epoch": str,
    "train_loss": partial(fixed, digits=4),
    "lr": mentioned,
    "images_per_s": count,
    "time_s": fixed,
}
_LEAST = 9  # characters of a column


def try_trial(
    study: Study, objective: str, *, config: int, seed: int | None, device: str | None
) -> Row:
    """Run one trial of the plan here and print it; returns its results.

    Raises:
        RequestError: unknown objective, configuration or device.
    """
    if (tried := study.drawn()) is not study:
        method = study.sections.search.method
        print_note(f"{method} chooses its settings as it runs. This one is drawn at random.")
    study = tried
    trial = planned_trial(study, objective, config)
    row = plan_row(study, trial) | {"seed": trial.seed if seed is None else seed}
    owned = [f"{name}={setting(row[name])}" for name in trial.params if name in row]
    print_note(f"{objective}, configuration {config}, seed {row['seed']}: {', '.join(owned)}")
    import torch

    from clsweep.train.loop import train_trial
    from clsweep.train.memory import keep_freed_memory, limited_memory

    resources = study.sections.resources
    on = _device(device or ("cuda" if resources.gpus_per_worker else "cpu"))
    keep_freed_memory()
    torch.set_num_threads(resources.cpus_per_worker)
    metrics = [m for m in METRICS if is_taken(m, row)]
    first = study.sections.metric.name
    names = sorted((metric.name for metric in metrics), key=lambda name: name != first)
    widths = {name: max(len(name), _LEAST) + 2 for name in [*_COLUMNS, *names]}
    ends = dict(zip(widths, accumulate(widths.values()), strict=True))
    forms = {n: _COLUMNS.get(n, fixed) for n in widths if ends[n] <= screen_width()}
    say("".join(f"{name:>{widths[name]}}" for name in forms))

    def print_epoch(epoch: Row) -> None:
        cells = {n: form(epoch[n]) if epoch.get(n) is not None else "" for n, form in forms.items()}
        say("".join(f"{cell:>{widths[name]}}" for name, cell in cells.items()))

    place = study.of(objective).sections.dataset.place
    try:
        with limited_memory(on, resources.gpus_per_worker or 1.0, resources.images_on):
            result = train_trial(row, print_epoch, place=place, device=on)
    except RequestError:
        raise
    except Exception as error:  # `clsweep run` makes a failed row of it
        raise RequestError(f"{objective} failed: {error_line(error, row['loss'])}") from error
    peak = result["peak_memory_gib"] or 0
    memory = f", peak memory {byte_size(peak * 2**30, 3)}" if peak else ""
    precision = f", trained in {result['precision']}" if "precision" in result else ""
    scores = ", ".join(
        f"{m.name} {fixed(result[m.name])} {m.unit}".rstrip() for m in metrics if m.name in result
    )
    split = f"the {study.sections.evaluation.score_on} split"
    where = split if study.of(objective).dataset.kind == "images" else "fresh pairs"
    print_note(f"{scores} on {where}{memory}{precision}")
    return result


def _device(name: str) -> torch.device:
    import torch

    from clsweep.train.device import trial_device

    try:
        device = trial_device(name)
        torch.empty(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = f"not usable here: {first_line(error)}"
        raise RequestError(f"--device {name}: {reason}. Expected: cpu, or a GPU as cuda") from None
    return device


def planned_trial(study: Study, objective: str, config: int) -> PlannedTrial:
    """The planned trial of one objective and configuration, on the study's first seed."""
    names = [o.name for o in study.objectives]
    if objective not in names:
        expected = f"Expected one of: {', '.join(names)}"
        raise RequestError(
            f"--objective {objective}: no such objective.{nearest(objective, names)} {expected}"
        )
    configs = {t.config: t for t in reversed(plan_trials(study)) if t.objective == objective}
    if config not in configs:
        raise RequestError(
            f"--config {config}: '{objective}' has the configurations 0 to {max(configs)}"
        )
    return configs[config]
