"""The Python face of clsweep: run a study, open its results, ask for its statistics."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from clsweep.errors import RequestError
from clsweep.report.findings import Findings
from clsweep.results.ranking import Ranked, Ranking, rank_configs
from clsweep.results.store import StudyResults, open_folder
from clsweep.results.tables import params_in
from clsweep.results.tally import describe_params, swept_params
from clsweep.study.resolve import Study
from clsweep.study.schema import ConfirmSection

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from clsweep.report.material import Material


class Results(StudyResults, Findings):
    """The tables of one results folder, and the statistics on them."""

    @cached_property
    def material(self) -> Material:
        from clsweep.gathering import of_studies

        return of_studies([self])

    def side_table(self, kind: str) -> pd.DataFrame:
        from clsweep.gathering import side_table

        return side_table([self], kind, metric=self.metric)

    def confirm(self, *, top: int | None = None) -> pd.DataFrame:
        """What the best configurations are worth on fresh seeds: one row per objective and configuration, best first.

        Of the configurations that are the best now, those that `clsweep confirm` has run: objective, config, rank and
        its swept values `at`, search and search_seeds (the mean over the study's seeds), and the columns of
        `analysis.confirmation.FRESH_COLUMNS`.

        Args:
            top: so many of each objective; as asked of `clsweep confirm` by default.

        Raises:
            RequestError: nothing has been confirmed yet.
        """
        import pandas as pd

        from clsweep.analysis.confirmation import confirmation

        folder = self.folder.confirmation
        if not folder.exists():
            raise RequestError(f"{self.path}: nothing is confirmed yet; clsweep confirm {self.path} does it")
        columns = ["objective", "config", "rank", "at", "search", "search_seeds"]
        best = [
            (r.objective, r.config, r.rank, self._described[r.objective, r.config], r.score, r.num_seeds)
            for r in self.to_confirm(top)
        ]
        trials = Results(folder).trials
        fresh = trials[~trials["seed"].isin(self.plan["seed"])]  # one that joined the search since has picked too
        return confirmation(pd.DataFrame(best, columns=columns), fresh, metric=self.metric)

    def to_confirm(self, top: int | None = None) -> list[Ranked]:
        """The best configurations now, `top` of each objective, as asked of `clsweep confirm` by default."""
        asked = self.folder.confirmation.study()["confirm"].get("top", ConfirmSection.model_fields["top"].default)
        return [ranked for ranking in self.ranking for ranked in ranking.configs[: top or asked]]

    @cached_property
    def ranking(self) -> list[Ranking]:
        """The configurations of each objective that have finished on all their seeds, best first."""
        recorded = self.folder.trials(["trial_id", "status", self.metric]).to_pylist()
        planned = self.folder.plan(["trial_id", "objective", "config"]).to_pylist()
        return rank_configs(planned, recorded, metric=self.metric, mode=self.mode)

    def encoder(self, trial_id: str) -> nn.Module:
        """The trained encoder of a trial in eval mode, if the study kept it; images come normalised.

        Raises:
            RequestError: no such trial, or its encoder was not kept.
        """
        from clsweep.exporting import load_encoder

        return load_encoder(self.folder, trial_id)[0]

    def checkpoint(self, trial_id: str) -> dict[str, Any]:
        """The stored checkpoint of a trial: under "state" the state dicts of networks and optimiser, on the CPU.

        Raises:
            RequestError: there is none: it has ended and was not kept, or has not saved one yet.
        """
        from clsweep.train.checkpoint import unpack

        payload = self.folder.checkpoint(trial_id)
        if payload is None:
            stored = ", ".join(self.folder.checkpoints()[:5]) or "none"
            advice = "A study with checkpoints: {keep: best} keeps that of each objective's best trial"
            raise RequestError(f"{self.path}/{trial_id}: no checkpoint of this trial. Stored: {stored}. {advice}")
        return unpack(payload)

    @cached_property
    def _described(self) -> dict[tuple[str, int], str]:
        """The swept values of every configuration that has a row."""
        names = ["objective", "config", *params_in(self.plan.columns)]
        rows = self.folder.trials(names).to_pylist()
        swept = swept_params(self.folder.plan(names).to_pylist(), rows)
        return {(row["objective"], row["config"]): describe_params(row, swept) for row in rows}


class Gathered(Findings):
    """The statistics of several studies together, of a table of trials, or on another metric than a study's own."""

    def __init__(self, material: Material, studies: Sequence[Results] = ()) -> None:
        self._material, self._studies = material, studies

    @property
    def material(self) -> Material:
        return self._material

    def side_table(self, kind: str) -> pd.DataFrame:
        from clsweep.gathering import side_table

        if not self._studies:
            return super().side_table(kind)
        return side_table(self._studies, kind, metric=self.material.metric)

    @property
    def trials(self) -> pd.DataFrame:
        """One row per trial that has ended."""
        return self.material.trials


@overload
def open_results(source: str | os.PathLike[str], /) -> Results: ...
@overload
def open_results(
    *sources: str | os.PathLike[str],
    metric: str | None = None,
    mode: str | None = None,
    params: Sequence[str] | None = None,
) -> Findings: ...
def open_results(
    *sources: str | os.PathLike[str],
    metric: str | None = None,
    mode: str | None = None,
    params: Sequence[str] | None = None,
) -> Findings:
    """Open results folders, `results/tau` or `s3://bucket/tau`, also while their studies run.

    One folder has all its tables and statistics (`Results`). Several are analysed together, each objective under its
    study's name; a Parquet file of trials alone can be given as well, and has the statistics.

    Args:
        sources: folders, or one Parquet file.
        metric: a column of the trials to analyse instead of the metric that the studies optimised.
        mode: which of its values are best, "max" or "min", where nothing else says so.
        params: of a Parquet file, the columns of the hyperparameters; see `analyse`.

    Raises:
        RequestError: there are no results of clsweep at a source, or none that the statistics can be made from.
    """
    from clsweep import gathering

    if not sources:
        raise RequestError("open_results: expected a results folder, got none")
    paths = [os.fspath(source) for source in sources]
    if len(paths) == 1 and (file := gathering.trials_file(paths[0])):
        return Gathered(
            gathering.of_trials(gathering.read_trials(file), source=file, metric=metric, mode=mode, params=params)
        )
    if files := [path for path in paths if gathering.trials_file(path)]:
        raise RequestError(f"{files[0]}: a table of trials can only be analysed alone; with others, expected folders")
    if params is not None:
        raise RequestError(f"{paths[0]}: params: the hyperparameters of a study are known; expected none to be named")
    studies = [Results(open_folder(path)) for path in paths]
    if len(studies) == 1 and metric is None and mode is None:
        return studies[0]
    return Gathered(gathering.of_studies(studies, metric=metric, mode=mode), studies)


def analyse(
    trials: pd.DataFrame, *, metric: str | None = None, mode: str | None = None, params: Sequence[str] | None = None
) -> Findings:
    """The statistics on a table of trials that came from anywhere.

    Args:
        trials: one row a trial: objective, config (number of the configuration within its objective), seed, status
            ("finished" | "stopped" | "failed"), sampler ("grid" | "qmc" | "random" | "tpe" | "gp"), the metric, and
            the hyperparameters.
        metric: the metric's column; the first known metric by default.
        mode: whether "max" or "min" is best; to be said of a metric that clsweep does not know.
        params: the hyperparameters' columns; by default all that have no other meaning in a trials table and one value
            in each configuration, with a single seed those that clsweep knows.

    Raises:
        RequestError: a column is missing, or says what it cannot.
    """
    from clsweep.gathering import of_trials

    return Gathered(of_trials(trials, metric=metric, mode=mode, params=params))


def run(study: Study, *, out: str | os.PathLike[str] | None = None, **options: Any) -> Results:
    """Run what is left of a study, and open its results.

    Args:
        study: from `load_study`.
        out: results folder, `results/NAME` by default.
        options: address, resume, retry_failed, max_concurrent and limit, as in `clsweep run`.

    Raises:
        KeyboardInterrupt: the user interrupted; what has finished is kept.
        RequestError: the folder holds another study or another run, or the cluster can never hold a trial.
    """
    from clsweep.cluster.runner import run_study

    summary = run_study(study, out=out or default_out(study), **options)
    if summary.interrupted:
        raise KeyboardInterrupt
    return open_results(summary.path)


def default_out(study: Study) -> str:
    """`results/NAME`, with the preset's name where one was used."""
    return os.path.join("results", "-".join(part for part in (study.name, study.preset) if part))
