"""A results folder opened for reading: its tables as they stand, also while the study runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class StudyResults:
    """The tables of one results folder, read when first asked for; open the folder again to see
    what came since.
    """

    folder: ResultsFolder

    @property
    def path(self) -> str:
        return self.folder.path

    @cached_property
    def study(self) -> dict[str, Any]:
        """The resolved study file as a plain tree."""
        return self.folder.study()

    @cached_property
    def plan_table(self) -> pa.Table:
        """The plan in Arrow's form, which needs no pandas."""
        return self.folder.plan()

    @cached_property
    def trials_table(self) -> pa.Table:
        """The trials in Arrow's form."""
        return self.folder.trials()

    @cached_property
    def params(self) -> tuple[str, ...]:
        """The columns of plan and trials that are hyperparameters."""
        return tuple(self.folder.params())

    @cached_property
    def plan(self) -> pd.DataFrame:
        return to_frame(self.plan_table)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial that has ended."""
        return to_frame(self.trials_table)

    @cached_property
    def epochs(self) -> pd.DataFrame:
        """One row per trial and epoch; diagnostics where the encoder was scored."""
        return to_frame(self.folder.side_table("epochs"))

    @cached_property
    def histograms(self) -> pd.DataFrame:
        """Histograms of q_B: one row per trial, scored epoch and bin."""
        return to_frame(self.folder.side_table("histograms"))

    @cached_property
    def points(self) -> pd.DataFrame:
        """t-SNE points of the last epoch's features: one row per trial and image."""
        return to_frame(self.folder.side_table("points"))

    @cached_property
    def references(self) -> pd.DataFrame:
        """Scores of raw pixels and of untrained encoders on the same yardstick."""
        return to_frame(self.folder.references())

    @property
    def metric(self) -> str:
        """Name of the metric that the study optimises."""
        self.folder.declare()
        return str(self.study.get("metric", {}).get("name", "knn_top1"))

    @property
    def mode(self) -> str:
        return str(self.study.get("metric", {}).get("mode", "max"))

    @property
    def score_on(self) -> str:
        """The split that the scores are of: "validation" or "test"."""
        return str(self.study.get("evaluation", {}).get("score_on", "validation"))


def to_frame(table: pa.Table) -> pd.DataFrame:
    """A table as pandas; an integer column with gaps stays integer (batch size 64, not 64.0)."""
    import pandas as pd

    frame: pd.DataFrame = table.to_pandas()
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_integer(column.type) and column.null_count:
            frame[name] = column.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    return frame


def open_folder(path: str | os.PathLike[str]) -> ResultsFolder:
    """The results folder at `path`, local or an object store's URI.

    Raises:
        RequestError: there are no results of clsweep, or damaged ones.
    """
    folder = ResultsFolder(str(path))
    if not folder.exists():
        hint = f" It holds: {', '.join(found)}." if (found := _result_folders_below(folder)) else ""
        raise RequestError(
            f"{path}: expected a results folder (it has a study.yaml), found none.{hint}"
        )
    folder.check()
    return folder


def _result_folders_below(folder: ResultsFolder) -> list[str]:
    if folder.local_path is None or not os.path.isdir(folder.local_path):
        return []
    names = sorted(os.listdir(folder.local_path))
    return [
        name
        for name in names
        if os.path.isfile(os.path.join(folder.local_path, name, "study.yaml"))
    ][:5]
