"""The Python face of clsweep: run a study, open its results, ask for its statistics."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clsweep.errors import RequestError
from clsweep.opened_results import Results, of_cell
from clsweep.results.reading import StudyTables, open_folder, trials_file
from clsweep.study.design import Study, default_out
from clsweep.sweeps.study_cells import cells_of_table, whole_data

if TYPE_CHECKING:
    import pandas as pd

    from clsweep.sweeps.study_data import StudyData


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
        failed: what failed trials count as in every statistic: "worst", the worst score of
            the objectives that are compared; "chance", the score of a guess; or "left out".
        images: which ones intervals are for: "new", others like the ones that were scored; or
            "fixed", those. A Parquet file does not say which it has right, so its are for those.

    Raises:
        RequestError: there are no results of clsweep at a source, or none that the statistics can
            be made from.
    """
    from clsweep.sweeps.from_table import read_together, read_trials, reading_options

    if not sources:
        raise RequestError("open_results: expected a results folder, got none")
    paths = [os.fspath(source) for source in sources]
    files = [file for path in paths if (file := trials_file(path))]
    if files and len(files) == len(paths):
        table = read_together(paths, files) if len(paths) > 1 else read_trials(files[0])
        options = reading_options(table, metric=metric, mode=mode, params=params, scales=scales)
        return _of_table(table, None, source=", ".join(files), failed=failed, **options)
    if files:
        what = "a table of trials can only be analysed with other tables"
        raise RequestError(f"{files[0]}: {what}, given folders of studies beside it")
    for option, value in {"params": params, "scales": scales}.items():
        if value is not None:
            why = "the hyperparameters of a study are known; expected none to be named"
            raise RequestError(f"{paths[0]}: {option}: {why}")
    options = {"metric": metric, "mode": mode, "failed": failed, "images": images}
    results = Results(*(StudyTables(open_folder(path)) for path in paths), **options)
    if len(paths) > 1 or (metric, mode, failed, images) != (None, None, "worst", "new"):
        results.data  # noqa: B018  # what does not fit together is said at once
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
    if factors is None and isinstance(params, list | tuple) and "dataset" in params:
        factors = ()
    return _of_table(trials, factors, source="table", failed=failed, **options)


def _of_table(
    trials: pd.DataFrame, factors: Sequence[str] | None, *, source: str, **options: Any
) -> Results:
    """The results of a table of trials, cell by cell where it has factors."""
    from clsweep.sweeps.from_table import of_trials

    def read(rows: pd.DataFrame) -> StudyData:
        return of_trials(rows, source=source, **options)

    cells = tuple(map(of_cell, cells_of_table(trials, factors, source, read)))
    parts = [(cell.levels, cell.data) for cell in cells]
    return Results(data=whole_data(parts, trials) if cells else read(trials), cells=cells)


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
    from clsweep.cluster.runner import RunRequest, run_study

    request = RunRequest(
        address=address,
        resume=resume,
        retry_failed=retry_failed,
        max_concurrent=max_concurrent,
        limit=limit,
        log=tuple(log),
        mixed_versions=mixed_versions,
    )
    summary = run_study(study, out or default_out(study), request)
    if summary.interrupted:
        raise KeyboardInterrupt
    return open_results(summary.path)
