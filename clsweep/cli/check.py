"""`clsweep check`: the contracts of a plug-in, row by row."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clsweep.catalog import Diagnostic, Metric, Param
from clsweep.catalog.ownership import owners_of
from clsweep.catalog.plugins import Plugin, activate, execute, read_plugins
from clsweep.catalog.rows import CatalogRow, Component, Value
from clsweep.errors import UserError
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.witness import witness

if TYPE_CHECKING:
    from clsweep.train.contracts import TwoWorkers


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
    from clsweep.train.contracts import TwoWorkers

    path = Path(name)
    plugins = read_plugins([path.name if path.suffix == ".py" else name], path.parent)
    activate(plugins)
    execute(plugins)

    with TwoWorkers() as workers:
        for row in plugins[0].rows:
            noun = row.part if isinstance(row, Component) else type(row).__name__.lower()
            for contract, failure in _verdicts(row, plugins, settings, workers):
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
    base = param.default
    step = abs(base) or 1 if isinstance(base, int | float) else 1
    ends = [end for end in (param.high, param.low) if math.isfinite(end)]
    numbers = [base + step, base - step / 2, *ends] if isinstance(base, int | float) else []
    tried: dict[str, list[Any]] = {
        "choice": list(param.choices),
        "bool": [not base],
        "int": [round(number) for number in numbers],
        "float": numbers,
        "numbers": [],
    }
    for value in tried[param.kind]:
        with contextlib.suppress(ValueError):
            if param.coerce(value) != base:
                return param.coerce(value)
    return None


def _verdicts(
    row: CatalogRow, plugins: Sequence[Plugin], settings: Sequence[str], workers: TwoWorkers
) -> Iterator[tuple[str, str]]:
    from clsweep.train.contracts import check_contracts

    if isinstance(row, Param):
        yield from _of_param(row, plugins, settings)
        return
    try:
        study = witness(row, plugins, settings)
        (trial,) = plan_trials(study)
        config = plan_row(study, trial)
    except UserError as error:
        yield "a study can use it", str(error).splitlines()[0]
        return
    yield "a study can use it", ""

    of_training = isinstance(row, Component) and study.dataset.kind == "images"
    for verdict in check_contracts(
        config,
        study.sections.dataset.place,
        column=row.name if isinstance(row, Metric | Diagnostic) else "",
        workers=workers if of_training else None,
    ):
        yield verdict.contract, verdict.failure
