"""The Python face of clsweep: run a study, open its results, ask for its statistics."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clsweep.errors import RequestError
from clsweep.findings import from_studies
from clsweep.findings.confirmed import confirmed
from clsweep.questions.findings import Findings, cells_of_study, cells_of_table, whole_material
from clsweep.results.folder import ResultsFolder
from clsweep.results.reading import StudyResults, open_folder, trials_file
from clsweep.study.design import Study, default_out
from clsweep.study.factors import factor_cells, with_factors

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
    from torch import nn

    from clsweep.analysis.reference import Printed
    from clsweep.findings.material import Material


class Results(StudyResults, Findings):
    """What `open_results` and `analyse` return: the statistics, and the tables that they rest on.

    The statistics (`robustness`, `compare` and the other methods of `Findings`), `trials`,
    `figures` and `report` are the same for one results folder, several, and a table of trials.
    What only a study's folder has needs exactly one: the other tables (`plan`, `epochs`,
    `references`, ...), `study`, `confirm`, `encoder` and `checkpoint`. Of several folders each
    stands in `studies`; a table of trials has none, and asking raises RequestError.
    """

    def __init__(
        self,
        *folders: ResultsFolder,
        table: Material | None = None,
        cells: Sequence[Findings] = (),
        **reading: Any,
    ) -> None:
        self._folders, self._table, self._cells = folders, table, tuple(cells)
        self._reading = reading  # metric, mode, failed and images, as `open_results` has them

    @classmethod
    def of(cls, study: StudyResults) -> Results:
        """The results of a folder whose trials have been read: they are not read again."""
        results = cls(study.folder)
        vars(results)["trials_table"] = study.trials_table
        return results

    def __repr__(self) -> str:
        return f"Results({', '.join(self.sources)})"

    __eq__, __hash__ = object.__eq__, object.__hash__

    @property
    def sources(self) -> tuple[str, ...]:
        """The folders, or the file, as messages name them."""
        return self._table.sources if self._table else tuple(f.path for f in self._folders)

    @cached_property
    def studies(self) -> tuple[Results, ...]:
        """The results of each folder by itself; empty for a table of trials."""
        if len(self._folders) == 1:
            return (self,)
        return tuple(Results(folder) for folder in self._folders)

    @property
    def folder(self) -> ResultsFolder:
        """The results folder.

        Raises:
            RequestError: there are several, or none.
        """
        if len(self._folders) != 1:
            which = "a table of trials" if self._table else "several: ask one of `studies`"
            expected = f"expected one results folder for this, given {which}"
            raise RequestError(f"{', '.join(self.sources)}: {expected}")
        return self._folders[0]

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial that has ended."""
        return super().trials if len(self._folders) == 1 else self.material.trials

    @cached_property
    def cells(self) -> tuple[Findings, ...]:
        """The cells of a study with factors, each with statistics of its own; else none."""
        if self._table or len(self._folders) != 1:
            return self._cells
        return cells_of_study(self, **self._reading)

    @cached_property
    def material(self) -> Material:
        if self._table:
            return self._table
        if self.cells:
            return whole_material(self.cells, self.trials, factor_cells(self.study))
        return from_studies.of_studies(self.studies, **self._reading)

    def side_table(self, kind: str) -> pd.DataFrame:
        return from_studies.side_table(self.studies, kind, self.material)

    def epochs_of(self, trials: Collection[str]) -> pd.DataFrame:
        return from_studies.epochs_of(self.studies, trials, metric=self.material.metric)

    def printed(self, within: float | None) -> list[Printed]:
        printed_of = from_studies.printed_of
        return [table for study in self.studies for table in printed_of(study, within=within)]

    def figures(self, *, within: float | None = None) -> dict[str, alt.TopLevelMixin]:
        """Every figure of the report as an Altair chart, by name."""
        from clsweep.report.sections import build_report

        return {figure.name: figure.chart for figure in build_report(self, within=within).figures}

    def report(
        self,
        out: str | os.PathLike[str],
        *,
        within: float | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Path:
        """Write the report: index.html, report.md, figures and tables, and return the page's path.

        Args:
            out: a folder of this machine; an earlier report in it is replaced, other files stay.
            within: points from the best that still count as good.
            progress: called with a word on what is done next.
        """
        from clsweep.report.formats.folder import write_report

        return write_report(self, out, within=within, progress=progress)[1]

    def confirm(self, *, top: int | None = None) -> pd.DataFrame:
        """What the best configurations are worth on fresh seeds: one row per objective and
        configuration, best first.

        Of the configurations that are the best now, those that `clsweep confirm` has run:
        objective, config, rank and its swept values `at`, search and search_seeds (the mean over
        the study's seeds), and the columns of `analysis.confirmation.FRESH_COLUMNS`.

        Args:
            top: so many of each objective; as asked of `clsweep confirm` by default.

        Raises:
            RequestError: nothing has been confirmed yet.
        """
        new_images = self.material.images == "new images"
        return with_factors(confirmed(self, top=top, new_images=new_images), self.study)

    def encoder(self, trial_id: str, *, trust: bool = False) -> nn.Module:
        """The trained encoder of a trial in eval mode, if the study kept it; images come
        normalised.

        Args:
            trust: execute the folder's plug-in, or the function `module:function`, that makes it.

        Raises:
            RequestError: no such trial, or its encoder was not kept.
            StudyError: code of the folder would be executed, which is not trusted.
        """
        from clsweep.trained import load_encoder

        return load_encoder(self.folder, trial_id, trust=trust)[0]

    def checkpoint(self, trial_id: str) -> dict[str, Any]:
        """The stored checkpoint of a trial: under "state" the state dicts of networks and
        optimiser, on the CPU.

        Raises:
            RequestError: there is none: it has ended and was not kept, or has not saved one yet.
        """
        from clsweep.trained import load_checkpoint

        return load_checkpoint(self.folder, trial_id)


def open_results(
    *sources: str | os.PathLike[str],
    metric: str | None = None,
    mode: str | None = None,
    params: Sequence[str] | None = None,
    scales: Mapping[str, str] | None = None,
    failed: str = "worst",
    images: str = "new",
) -> Results:
    """Open results folders, `results/tau` or `s3://bucket/tau`, also while their studies run.

    Several are analysed together, each objective under its study's name; Parquet files of trials
    can be given too, by themselves. All have the same statistics; what only a folder has, see
    `Results`.

    Args:
        sources: folders, or Parquet files.
        metric: a column of the trials to analyse instead of the metric that the studies optimised.
        mode: which of its values are best, "max" or "min", where nothing else says so.
        params: of a Parquet file, the columns of the hyperparameters; see `analyse`.
        scales: of a Parquet file, on which axes they stand; see `analyse`.
        failed: what failed trials count as in every statistic: "worst", the worst score of all
            objectives; "chance", the score of a guess; or "left out".
        images: which ones intervals are for: "new", others like the ones that were scored; or
            "fixed", those. A Parquet file does not say which it has right, so its are for those.

    Raises:
        RequestError: there are no results of clsweep at a source, or none that the statistics can
            be made from.
    """
    from clsweep.findings.from_trials import as_told, read_together, read_trials

    if not sources:
        raise RequestError("open_results: expected a results folder, got none")
    paths = [os.fspath(source) for source in sources]
    files = [file for path in paths if (file := trials_file(path))]
    if files and len(files) == len(paths):
        found = read_together(paths, files) if len(paths) > 1 else read_trials(files[0])
        told = as_told(found, metric=metric, mode=mode, params=params, scales=scales)
        return _of_table(found, None, source=", ".join(files), failed=failed, **told)
    if files:
        what = "a table of trials can only be analysed with other tables"
        raise RequestError(f"{files[0]}: {what}, given folders of studies beside it")
    for option, asked in {"params": params, "scales": scales}.items():
        if asked is not None:
            why = "the hyperparameters of a study are known; expected none to be named"
            raise RequestError(f"{paths[0]}: {option}: {why}")
    told = {"metric": metric, "mode": mode, "failed": failed, "images": images}
    results = Results(*map(open_folder, paths), **told)
    if len(paths) > 1 or told != {"metric": None, "mode": None, "failed": "worst", "images": "new"}:
        results.material  # noqa: B018  # what does not fit together is said at once
    return results


def analyse(
    trials: pd.DataFrame,
    *,
    metric: str | None = None,
    mode: str | None = None,
    params: Sequence[str] | None = None,
    scales: Mapping[str, str] | None = None,
    failed: str = "worst",
    factors: Sequence[str] | None = None,
) -> Results:
    """The statistics on a table of trials that came from anywhere.

    Args:
        trials: one row a trial: objective, config (number of the configuration within its
            objective), seed, status ("finished" | "stopped" | "skipped" | "failed"), sampler
            ("grid" | "qmc" | "random" | "tpe" | "gp"), the metric, and the hyperparameters.
        metric: the metric's column; the first known metric by default.
        mode: whether "max" or "min" is best; to be said of a metric that clsweep does not know.
        params: the hyperparameters' columns. By default all that have one value in each
            configuration, with a single seed those that clsweep knows; a column that clsweep calls
            an outcome is one where its values recur. One that follows from others, as chunk_size
            from batch_size, is left out. A note names what is left out; what is named here stays.
        scales: the axes of some of them, as {"tau": "log", "dropout": "linear", "layers":
            "category"}. By default text is a category, and numbers stand on the axis that spreads
            them evenly, which a note names.
        failed: what failed trials count as, "worst", "chance" or "left out"; see `open_results`.
            Chance is known of a known metric with a column `num_classes`.
        factors: which of the columns "dataset" and "encoder" are factors: each combination of their
            values has statistics of its own. By default "dataset", where it has several names and
            `params` does not have it.

    Raises:
        RequestError: a column is missing, or says what it cannot.
    """
    options = {"metric": metric, "mode": mode, "params": params, "scales": scales}
    if factors is None and "dataset" in (params or ()):
        factors = ()
    return _of_table(trials, factors, source="table", failed=failed, **options)


def _of_table(
    trials: pd.DataFrame, factors: Sequence[str] | None, *, source: str, **options: Any
) -> Results:
    """The results of a table of trials, cell by cell where it has factors."""
    from clsweep.findings.from_trials import of_trials

    def read(rows: pd.DataFrame) -> Material:
        return of_trials(rows, source=source, **options)

    cells = cells_of_table(trials, factors, source, read)
    table = whole_material(cells, trials) if cells else read(trials)
    return Results(table=table, cells=cells)


def run(
    study: Study,
    *,
    out: str | os.PathLike[str] | None = None,
    address: str = "local",
    resume: bool = True,
    retry_failed: bool = False,
    max_concurrent: int | None = None,
    limit: int | None = None,
    log: Sequence[str] = (),
    mixed_versions: bool = False,
) -> Results:
    """Run what is left of a study, and open its results.

    Args:
        study: from `load_study`.
        out: results folder, local or an object store's URI; `results/NAME` by default.
        address: "local" starts Ray in this process, "auto" or HOST:PORT joins a cluster.
        resume: False refuses a folder that already has results.
        retry_failed: run failed trials again, from their checkpoints.
        max_concurrent: at most so many trials at once; as many as the cluster holds by default.
        limit: at most so many trials now.
        log: loggers by name beside those of the study: tensorboard, wandb, mlflow.
        mixed_versions: go on in a folder with trials of another version of clsweep or torch.

    Raises:
        KeyboardInterrupt: the user interrupted; what has finished is kept.
        RequestError: the folder holds another study or another run, or the cluster can never hold a
            trial.
    """
    from clsweep.cluster.runner import Request, run_study

    asked = Request(
        address=address,
        resume=resume,
        retry_failed=retry_failed,
        max_concurrent=max_concurrent,
        limit=limit,
        log=tuple(log),
        mixed_versions=mixed_versions,
    )
    summary = run_study(study, out or default_out(study), asked)
    if summary.interrupted:
        raise KeyboardInterrupt
    return open_results(summary.path)
