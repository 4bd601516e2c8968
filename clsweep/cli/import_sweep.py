"""`clsweep import`: the sweep of another tool as a results folder that every statistic reads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clsweep.catalog import named
from clsweep.cli.options import argument, option, with_groups
from clsweep.display.printing import say
from clsweep.errors import RequestError

if TYPE_CHECKING:
    import pyarrow as pa

    from clsweep.sweeps.foreign_sweep import ForeignSweep
    from clsweep.sweeps.import_table import ImportedTable

Tool = Literal["optuna", "wandb", "trackio", "mlflow", "ray"]  # whose sweeps can be read
_WITH_STUDIES = ("optuna", "mlflow", "trackio")


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The columns of a sweep that are objective, seed, metric and hyperparameters."""

    objective: Annotated[str | None, option("--objective COL", "what tells objectives apart")] = (
        None
    )
    seed: Annotated[str | None, option("--seed COL", "the seed")] = None
    metric: Annotated[str | None, option("--metric COL", "which result is analysed")] = None
    mode: Annotated[str | None, option("--mode", "max or min is best")] = None
    params: Annotated[
        list[str] | None, option("--param COL", "a hyperparameter; several times")
    ] = None
    sampler: Annotated[
        str | None, option("--sampler", "grid, qmc, random, tpe or gp: how it searched")
    ] = None


@with_groups
def import_(
    tool: Annotated[Tool, typer.Argument(help="which tool ran the sweep")],
    source: Annotated[Path, argument("SOURCE", "its storage: a file or folder")],
    out: Annotated[str | None, option("--out DIR", "folder; results/NAME by default")] = None,
    study: Annotated[str | None, option("--study NAME", "one study, experiment or project")] = None,
    *,
    roles: Roles,
) -> None:
    """Read a sweep that Optuna, W&B, trackio, MLflow or Ray Tune ran, for report, robustness and
    the like. Nothing is executed.
    """
    from clsweep.sweeps.import_table import import_sweep
    from clsweep.sweeps.source_files import refuse_damaged

    with refuse_damaged(source, f"a sweep of {tool}"):
        sweep = _read(tool, source, study)
        try:
            imported = import_sweep(sweep, **vars(roles))
        except RequestError as error:
            raise RequestError(f"{source}: {error}") from None
    folder = out or os.path.join("results", source.absolute().name.partition(".")[0] or tool)
    _write(folder, imported)
    for note in imported.notes:
        say(note)
    say(f"\nImported: {folder}. Next: clsweep robustness {folder}")


def _read(tool: Tool, source: Path, study: str | None) -> ForeignSweep:
    if not source.exists():
        raise RequestError(f"{source}: expected a file or folder of {tool}, found none")
    for path in (source, *source.rglob("*")):
        if path.exists() and not (path.is_file() or path.is_dir()):  # it would be waited for
            raise RequestError(f"{path}: expected a file, given a pipe or a device")
    if study is not None and tool not in _WITH_STUDIES:
        tools = ", ".join(_WITH_STUDIES)
        raise RequestError(f"--study: expected with one of {tools}, given with {tool}")
    read = named(f"clsweep.sweeps.from_{tool}:read_{tool}")  # which alone is imported
    return read(source, study) if tool in _WITH_STUDIES else read(source)


def _write(folder: str, imported: ImportedTable) -> None:
    """`trials.parquet` with what it says of itself; only an earlier import is replaced."""
    import json

    from clsweep.results.disk import Disk
    from clsweep.results.integrity import encode_table, schema_of
    from clsweep.sweeps.from_table import EPOCHS_FILE, OPTIONS_KEY

    disk = Disk(folder)
    if disk.is_file("study.yaml"):
        raise RequestError(f"{folder}: expected a new folder, found the results of a study")
    if disk.is_file("trials.parquet"):
        metadata = schema_of(disk.read("trials.parquet")).metadata or {}
        if OPTIONS_KEY.encode() not in metadata:
            raise RequestError(f"{folder}: expected a new folder, found a table of trials")
    options = {OPTIONS_KEY: json.dumps(imported.options)}
    table = _table(imported.rows).replace_schema_metadata(options)
    disk.write("trials.parquet", encode_table(table))
    if imported.epochs:
        disk.write(EPOCHS_FILE, encode_table(_table(imported.epochs)))
    elif disk.is_file(EPOCHS_FILE):  # of an earlier import
        disk.remove(EPOCHS_FILE)


def _table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The rows as columns."""
    import pyarrow as pa

    columns = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):  # of several types: as texts
            columns[name] = pa.array([None if v is None else str(v) for v in values])
    return pa.table(columns)
