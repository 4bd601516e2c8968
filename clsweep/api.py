"""The Python face of clsweep: run a study, open its results, ask for its statistics."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

from clsweep.errors import RequestError
from clsweep.objective.catalog import DATASET
from clsweep.results.ranking import Ranked, Ranking, rank_configs
from clsweep.results.store import StudyResults, open_folder
from clsweep.results.tables import params_in
from clsweep.results.tally import describe_params, swept_params
from clsweep.study.resolve import Study
from clsweep.study.schema import ConfirmSection

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

_VOTES = {"knn_top1": 1, "knn_top5": 5, "linear_top1": 1, "linear_top5": 5}  # guesses that a metric allows


class Results(StudyResults):
    """The tables of one results folder, and the statistics on them."""

    def robustness(self, *, by: str | None = None, within: float = 1.0) -> pd.DataFrame:
        """One row per objective: spread of the metric over the swept space, with intervals.

        Args:
            by: one swept hyperparameter, for its marginal effect alone.
            within: percentage points from the best that still count as good.

        Raises:
            RequestError: nothing has finished yet, or no objective sweeps `by`.
        """
        from clsweep.analysis.robustness import robustness

        if self.trials.empty:
            raise RequestError(f"{self.path}: no trial has finished yet; see clsweep status {self.path}")
        try:
            return robustness(
                self._as_asked(),
                metric=self.metric,
                params=params_in(self.trials.columns),
                mode=self.mode,
                by=by,
                within=within,
                chance=self._chance(),
                planned={str(name): len(set(plan["config"])) for name, plan in self.plan.groupby("objective")},
            )
        except ValueError as error:
            raise RequestError(f"{self.path}: {error}") from None

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

    def _as_asked(self) -> pd.DataFrame:
        """The trials by what the study asked of them: `auto` is one configuration, whatever the devices made of it."""
        trials = self.trials
        if "precision" not in trials or "precision" not in self.plan:
            return trials
        asked = trials["trial_id"].map(self.plan.set_index("trial_id")["precision"])
        return trials.assign(precision=asked.fillna(trials["precision"]))

    @cached_property
    def _described(self) -> dict[tuple[str, int], str]:
        """The swept values of every configuration that has a row."""
        names = ["objective", "config", *params_in(self.plan.columns)]
        rows = self.folder.trials(names).to_pylist()
        swept = swept_params(self.folder.plan(names).to_pylist(), rows)
        return {(row["objective"], row["config"]): describe_params(row, swept) for row in rows}

    def _chance(self) -> float | None:
        """Metric of a guess, percent."""
        if self.metric not in _VOTES:
            return None
        if "num_classes" in self.plan:
            return 100 * _VOTES[self.metric] / float(self.plan["num_classes"].iloc[0])
        return 100 * _VOTES[self.metric] / DATASET[self.study["dataset"]["name"]].num_classes  # of an earlier version


def open_results(path: str | os.PathLike[str]) -> Results:
    """Open a results folder, `results/tau` or `s3://bucket/tau`, also while its study runs.

    Raises:
        RequestError: there are no results of clsweep at `path`.
    """
    return Results(open_folder(path))


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
