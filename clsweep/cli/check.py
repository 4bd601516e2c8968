"""`clsweep check`: the contracts of a plug-in, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clsweep.catalog import Diagnostic, Metric, Param
from clsweep.catalog.ownership import owners_of
from clsweep.catalog.plugins import Plugin, activate, execute, read_plugins
from clsweep.catalog.rows import CatalogRow, Component
from clsweep.errors import UserError
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.witness import witness

if TYPE_CHECKING:
    from clsweep.train.worlds import TwoWorkers


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
    from clsweep.train.worlds import TwoWorkers

    path = Path(name)
    plugins = read_plugins([path.name if path.suffix == ".py" else name], path.parent)
    activate(plugins)
    execute(plugins)

    with TwoWorkers() as workers:
        for row in plugins[0].rows:
            noun = row.part if isinstance(row, Component) else type(row).__name__.lower()
            for contract, failure in _verdicts(row, plugins, settings, workers):
                yield f"{noun} {row.name}", contract, failure


def _verdicts(
    row: CatalogRow, plugins: Sequence[Plugin], settings: Sequence[str], workers: TwoWorkers
) -> Iterator[tuple[str, str]]:
    from clsweep.train.contracts import check_contracts

    if isinstance(row, Param):
        owner = owners_of(row.name)
        yield "something owns it", "" if owner else "expected its name in `owns` of another row"
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
