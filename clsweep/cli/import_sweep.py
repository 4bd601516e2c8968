"""`clsweep import`: the sweep of another tool as a results folder that every statistic reads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clsweep.cli.options import argument, option, with_groups
from clsweep.display.text import say
from clsweep.errors import RequestError

if TYPE_CHECKING:
    from clsweep.foreign.sweep import ForeignSweep, Imported


class Tool(StrEnum):
    """Whose sweeps can be read."""

    optuna = "optuna"
    wandb = "wandb"
    mlflow = "mlflow"
    ray = "ray"


READERS = {
    Tool.optuna: "optuna_storage",
    Tool.wandb: "wandb_runs",
    Tool.mlflow: "mlflow_store",
    Tool.ray: "ray_results",
}
HAS_STUDIES = (Tool.optuna, Tool.mlflow)


@dataclass(frozen=True, kw_only=True)
class Labels:
    """What of a sweep is what."""

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
    study: Annotated[str | None, option("--study NAME", "one Optuna study or experiment")] = None,
    *,
    labels: Labels,
) -> None:
    """Read a sweep that Optuna, W&B, MLflow or Ray Tune ran, for report, robustness and the like.
    Nothing is executed.
    """
    from clsweep.foreign.reading import told
    from clsweep.foreign.sweep import import_sweep

    with told(source, f"a sweep of {tool.value}"):
        sweep = _read(tool, source, study)
        try:
            found = import_sweep(sweep, **vars(labels))
        except RequestError as error:
            raise RequestError(f"{source}: {error}") from None
    folder = out or os.path.join("results", source.absolute().name.partition(".")[0] or tool.value)
    _write(folder, found)
    for note in found.notes:
        say(note)
    say(f"\nImported: {folder}. Next: clsweep robustness {folder}")


def _read(tool: Tool, source: Path, study: str | None) -> ForeignSweep:
    if not source.exists():
        raise RequestError(f"{source}: expected a file or folder of {tool.value}, found none")
    for path in (source, *source.rglob("*")):
        if path.exists() and not (path.is_file() or path.is_dir()):  # it would be waited for
            raise RequestError(f"{path}: expected a file, given a pipe or a device")
    if study is not None and tool not in HAS_STUDIES:
        raise RequestError(f"--study: expected with optuna or mlflow, given with {tool.value}")
    read = getattr(import_module(f"clsweep.foreign.{READERS[tool]}"), f"read_{tool.value}")
    found: ForeignSweep = read(source, study) if tool in HAS_STUDIES else read(source)
    return found


def _write(folder: str, found: Imported) -> None:
    """`trials.parquet` with what it says of itself; only an earlier import is replaced."""
    import json

    import pyarrow as pa

    from clsweep.findings.from_trials import TOLD
    from clsweep.results.disk import Disk
    from clsweep.results.tables import encode, schema_of

    disk = Disk(folder)
    if disk.is_file("study.yaml"):
        raise RequestError(f"{folder}: expected a new folder, found the results of a study")
    if disk.is_file("trials.parquet"):
        metadata = schema_of(disk.read("trials.parquet")).metadata or {}
        if TOLD.encode() not in metadata:
            raise RequestError(f"{folder}: expected a new folder, found a table of trials")
    columns = {}
    for name in found.rows[0]:
        values = [row[name] for row in found.rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):  # of several types: as texts
            columns[name] = pa.array([None if v is None else str(v) for v in values])
    table = pa.table(columns).replace_schema_metadata({TOLD: json.dumps(found.told)})
    disk.write("trials.parquet", encode(table))
