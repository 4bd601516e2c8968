"""A results folder opened for reading: its tables as they stand, also while the study runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from clsweep.catalog.ownership import baseline_params
from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder
from clsweep.results.schemas import SPLIT_COLUMNS
from clsweep.study.factors import FactorCell, cell_document, factors_of, with_factors
from clsweep.version import VERSION_COLUMNS

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class StudyTables:
    """The tables of a results folder, read when first asked for; open it anew for newer ones."""

    folder: ResultsFolder

    @property
    def path(self) -> str:
        return self.folder.path

    @cached_property
    def study(self) -> dict[str, Any]:
        """The resolved study file as a plain tree."""
        return self.folder.study()

    @cached_property
    def factors(self) -> tuple[str, ...]:
        """Data set and encoder, where the study has several."""
        return factors_of(self.study)

    @property
    def is_confirmed(self) -> bool:
        """`clsweep confirm` has run."""
        return self.folder.confirmation.exists()

    def planned(self, columns: Sequence[str]) -> pa.Table:
        """These columns of the plan, those of them that it has."""
        return self.folder.plan(columns)

    @cached_property
    def plan_table(self) -> pa.Table:
        """The plan in Arrow's form, which needs no pandas."""
        return self.folder.plan()

    @cached_property
    def trials_table(self) -> pa.Table:
        """The trials in Arrow's form."""
        return self.folder.trials()

    @cached_property
    def num_left(self) -> int:
        """Planned trials that have not ended, of a cell those of its whole study."""
        return self.planned(["trial_id"]).num_rows - self.trials_table.num_rows

    @property
    def search_end(self) -> str:
        """The end of a search before its plan; empty while it goes on."""
        return self.folder.search_end(self.num_left)

    @property
    def versions(self) -> dict[str, list[str | None]]:
        """The versions that trained, in the confirmation too: a list for each of
        `VERSION_COLUMNS`.
        """
        again, names = self.folder.confirmation, list(VERSION_COLUMNS)
        tables = [self.trials_table.select(names)]
        if again.exists():
            tables.append(again.trials(names))
        return pa.concat_tables(tables).to_pydict()

    @cached_property
    def params(self) -> tuple[str, ...]:
        """The columns of plan and trials that are hyperparameters."""
        return tuple(self.folder.params())

    @cached_property
    def plan(self) -> pd.DataFrame:
        return with_factors(to_frame(self.plan_table), self.study)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial that has ended."""
        return with_factors(to_frame(self.trials_table), self.study)

    @cached_property
    def epochs(self) -> pd.DataFrame:
        """One row per trial and epoch; diagnostics where the encoder was scored. Status is the
        trial's: running while it is under way, interrupted if its run has ended without it.
        """
        return self._placed(self.epochs_table)

    @property
    def epochs_table(self) -> pa.Table:
        """The same in Arrow's form."""
        under_way = self.folder.running_epochs()  # first: whichever ends meanwhile has ended
        left = "running" if self.folder.is_running() else "interrupted"
        ended = self.folder.side_table("epochs")
        trials = self.folder.trials(["trial_id", "status"])
        names = trials["trial_id"].combine_chunks()
        under_way = under_way.filter(pc.invert(pc.is_in(under_way["trial_id"], names)))
        table = pa.concat_tables([ended, under_way])
        known = trials["status"].combine_chunks().take(pc.index_in(table["trial_id"], names))
        return table.add_column(1, "status", pc.fill_null(known, left))

    @cached_property
    def histograms(self) -> pd.DataFrame:
        """Histograms of q_B: one row per trial, scored epoch and bin."""
        return self._placed(self.folder.side_table("histograms"))

    @cached_property
    def points(self) -> pd.DataFrame:
        """t-SNE points of the last epoch's features: one row per trial and image."""
        return self._placed(self.folder.side_table("points"))

    @cached_property
    def hits(self) -> pd.DataFrame:
        """Which images the last scores of a trial have right: a row for each metric that says it.
        `numpy.unpackbits(numpy.frombuffer(bits, "uint8"), count=num_images)` are those of a row.
        """
        return self._placed(self.folder.side_table("hits"))

    @cached_property
    def references(self) -> pd.DataFrame:
        """Scores of raw pixels and of untrained encoders on the same yardstick."""
        return to_frame(self.folder.references())

    def _placed(self, table: pa.Table) -> pd.DataFrame:
        """A table of trials, with the study's factors as columns."""
        frame = to_frame(table)
        if not self.factors:
            return frame
        levels = self.plan.set_index("trial_id")[[*self.factors]]
        columns = {factor: frame["trial_id"].map(levels[factor]) for factor in self.factors}
        return frame.assign(**columns)[[*self.factors, *frame.columns]]

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


@dataclass(frozen=True)
class CellTables(StudyTables):
    """One cell of a study with factors, as a study of its own; objectives as in the study file."""

    whole: StudyTables
    cell: FactorCell

    @cached_property
    def study(self) -> dict[str, Any]:
        return cell_document(self.folder.document(), self.cell).tree

    @cached_property
    def num_left(self) -> int:
        return self.whole.num_left

    def planned(self, columns: Sequence[str]) -> pa.Table:
        table = self._here(self.folder.plan(list(dict.fromkeys([*columns, "objective"]))))
        return table.select([name for name in columns if name in table.column_names])

    @cached_property
    def plan_table(self) -> pa.Table:
        return self._here(self.whole.plan_table)

    @cached_property
    def trials_table(self) -> pa.Table:
        return self._here(self.whole.trials_table)

    @cached_property
    def references(self) -> pd.DataFrame:
        """Those of the cell's data set, and of its encoders."""
        rows = self.whole.references
        for name in ("dataset", *SPLIT_COLUMNS, *baseline_params()):
            if name in rows and name in self.plan_table.column_names:
                here = self.plan_table[name].unique().to_pylist()
                rows = rows[rows[name].isin(here) | rows[name].isna()]
        return rows.reset_index(drop=True)

    def frame_here(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The cell's rows of a table in which objectives have the cell in front."""
        start = self.cell.qualified("")
        rows = frame[frame["objective"].str.startswith(start)]
        names = rows["objective"].str.removeprefix(start)
        return rows.assign(objective=names).reset_index(drop=True)

    def _here(self, table: pa.Table) -> pa.Table:
        start = self.cell.qualified("")
        rows = table.filter(pc.starts_with(table["objective"], start))
        names = pc.utf8_slice_codeunits(rows["objective"], len(start))
        at = rows.column_names.index("objective")
        return rows.set_column(at, rows.schema.field("objective"), names)

    def _placed(self, table: pa.Table) -> pd.DataFrame:
        here = self.plan_table["trial_id"].combine_chunks()
        return to_frame(table.filter(pc.is_in(table["trial_id"], here)))


def to_frame(table: pa.Table) -> pd.DataFrame:
    """A table as pandas; an integer column with gaps stays integer (batch size 64, not 64.0)."""
    import pandas as pd

    frame: pd.DataFrame = table.replace_schema_metadata().to_pandas()
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_integer(column.type) and column.null_count:
            frame[name] = column.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    return frame


def trials_file(path: str) -> str:
    """The Parquet file of trials that `path` is or, being no study's folder, holds; or ""."""
    if path.endswith(".parquet"):
        return path
    table = os.path.join(path, "trials.parquet")
    is_study = os.path.exists(os.path.join(path, "study.yaml"))
    return table if os.path.isfile(table) and not is_study else ""


def open_folder(path: str | os.PathLike[str]) -> ResultsFolder:
    """The results folder at `path`, local or an object store's URI; RequestError where there are no
    results of clsweep, or damaged ones.
    """
    folder = ResultsFolder(str(path))
    if not folder.exists():
        below = [] if folder.local_path is None else Path(folder.local_path).glob("*/study.yaml")
        names = sorted(file.parent.name for file in below if file.is_file())[:5]
        hint = f" It holds: {', '.join(names)}." if names else ""
        if Path(str(path)).suffix in (".csv", ".tsv", ".json", ".jsonl", ".gz"):
            hint = f" Of a table of another tool, clsweep import wandb {path} makes one."
        expected = "expected a results folder (it has a study.yaml), found none."
        raise RequestError(f"{path}: {expected}{hint}")
    folder.check()
    return folder
