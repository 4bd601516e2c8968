"""The results of a study, of several or of a table: their tables and every statistic."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder
from clsweep.results.reading import StudyTables
from clsweep.statistics.computed import Statistics
from clsweep.study.factors import factor_cells, with_factors
from clsweep.sweeps import from_studies
from clsweep.sweeps.fresh_seeds import on_fresh_seeds
from clsweep.sweeps.from_table import epochs_beside
from clsweep.sweeps.study_cells import CellData, cells_of_study, whole_data

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
    from torch import nn

    from clsweep.analysis.reproduce import Printed
    from clsweep.sweeps.study_data import StudyData


class Results(Statistics):
    """The statistics of `open_results` and `analyse`, and the tables that they rest on.

    The statistics, `trials`, `figures` and `report` are the same for one results folder, several,
    and a table of trials. The columns of a statistic's table are explained by `formulas` in its
    file of `clsweep.statistics`. It raises RequestError where the trials cannot answer: none has
    ended, an unknown objective or parameter.

    What only a study's folder has needs exactly one: the other tables (`plan`, `epochs`,
    `references`, ...), `study`, `confirm`, `encoder` and `checkpoint`. Of several folders each
    stands in `studies`; a table of trials has none, and asking raises RequestError.
    """

    def __init__(
        self,
        *studies: StudyTables,
        data: StudyData | None = None,
        cells: Sequence[Results] = (),
        levels: Mapping[str, str] | None = None,
        **reading: Any,
    ) -> None:
        self._studies, self._given, self._cells = studies, data, tuple(cells)
        self.levels = levels or {}
        self._reading = reading  # metric, mode, failed and images, as `open_results` has them

    def __repr__(self) -> str:
        levels = [f"{name}={label}" for name, label in self.levels.items()]
        return f"Results({', '.join([*self.sources, *levels])})"

    @property
    def sources(self) -> tuple[str, ...]:
        """The folders, or the file, as messages name them."""
        return self._given.sources if self._given else tuple(each.path for each in self._studies)

    @cached_property
    def studies(self) -> tuple[Results, ...]:
        """The results of each folder by itself; empty for a table of trials."""
        if len(self._studies) == 1:
            return (self,)
        return tuple(Results(study, **self._reading) for study in self._studies)

    @property
    def tables(self) -> StudyTables:
        """The tables of the results folder.

        Raises:
            RequestError: there are several folders, or none.
        """
        if len(self._studies) != 1:
            which = "a table of trials" if self._given else "several: ask one of `studies`"
            expected = f"expected one results folder for this, given {which}"
            raise RequestError(f"{', '.join(self.sources)}: {expected}")
        return self._studies[0]

    @property
    def folder(self) -> ResultsFolder:
        """The results folder."""
        return self.tables.folder

    @property
    def path(self) -> str:
        """Where the results folder is."""
        return self.tables.path

    @property
    def study(self) -> dict[str, Any]:
        """The resolved study file as a plain tree."""
        return self.tables.study

    @property
    def metric(self) -> str:
        """Name of the metric that the study optimises."""
        return self.tables.metric

    @property
    def mode(self) -> str:
        """Which of its values are best, "max" or "min"."""
        return self.tables.mode

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial that has ended."""
        return self.tables.trials if len(self._studies) == 1 else self.data.trials

    @property
    def plan(self) -> pd.DataFrame:
        """One row per trial of the plan."""
        return self.tables.plan

    @property
    def epochs(self) -> pd.DataFrame:
        """One row per trial and epoch; diagnostics where the encoder was scored. Its `lr` is the
        rate of the epoch's last step; the setting of this name stands in `trials`.
        """
        return self.tables.epochs

    @property
    def histograms(self) -> pd.DataFrame:
        """Histograms of q_B: one row per trial, scored epoch and bin."""
        return self.tables.histograms

    @property
    def points(self) -> pd.DataFrame:
        """t-SNE points of the last epoch's features: one row per trial and image."""
        return self.tables.points

    @property
    def hits(self) -> pd.DataFrame:
        """Which images the last scores of a trial have right: a row for each metric that says it.
        `numpy.unpackbits(numpy.frombuffer(bits, "uint8"), count=num_images)` are those of a row.
        """
        return self.tables.hits

    @property
    def references(self) -> pd.DataFrame:
        """Scores of raw pixels and of untrained encoders on the same yardstick."""
        return self.tables.references

    @cached_property
    def cells(self) -> tuple[Results, ...]:
        """The cells of a study with factors, each with statistics of its own; else none."""
        if self._given or len(self._studies) != 1 or not self.tables.factors:
            return self._cells
        return tuple(map(of_cell, cells_of_study(self.tables, **self._reading)))

    @cached_property
    def data(self) -> StudyData:
        """The trials and all that is needed to read them."""
        if self._given:
            return self._given
        if self.cells:
            parts = [(cell.levels, cell.data) for cell in self.cells]
            return whole_data(parts, self.trials, factor_cells(self.study))
        return from_studies.of_studies(self._studies, **self._reading)

    def side_table(self, kind: str) -> pd.DataFrame:
        return from_studies.side_table(self._studies, kind, self.data)

    def epochs_of(self, trials: Collection[str]) -> pd.DataFrame:
        if self._given:
            return epochs_beside(self._given, trials)
        return from_studies.epochs_of(self._studies, trials, metric=self.data.metric)

    def printed(self, within: float | None) -> list[Printed]:
        printed_of = from_studies.printed_of
        return [table for study in self._studies for table in printed_of(study, within=within)]

    def robustness(self, *, by: str | None = None, within: float | None = None) -> pd.DataFrame:
        """One row per objective: spread of the metric over the swept space, with intervals
        (`analysis.robustness`).

        Args:
            by: one swept hyperparameter, for its marginal effect alone.
            within: how far from the best still counts as good: 1 point by default, for a metric
                that is not percent about a twentieth of the range seen.
        """
        from clsweep.statistics.robustness import robustness

        return self.compute(robustness, by=by, within=self.near(within))

    def tolerance(self) -> pd.DataFrame:
        """Share of the space within delta points of the best, a row per objective and delta."""
        from clsweep.statistics.robustness import tolerance

        return self.compute(tolerance)

    def sensitivity(self, *objectives: str) -> pd.DataFrame:
        """Which hyperparameter matters, per objective: ANOVA shares of a grid, Sobol indices of a
        sampled design.

        An objective whose effects are not told from seed noise, or whose surrogate predicts too
        little, has one row that says so (`analysis.sensitivity`).
        """
        from clsweep.statistics.sensitivity import sensitivity

        return self.compute(sensitivity, *objectives)

    def marginals(self, *objectives: str) -> pd.DataFrame:
        """The metric at each value of each swept hyperparameter, the others averaged over."""
        from clsweep.statistics.marginals import marginals

        return self.compute(marginals, *objectives)

    def optimum(self, *, of: str | None = None, by: str | None = None) -> pd.DataFrame:
        """The shift of the best value of one hyperparameter along another one, with an interval and
        the law that it may follow; every pair by default (`analysis.optimum`).
        """
        from clsweep.statistics.optimum import optimum

        return self.compute(optimum, param=of, by=by)

    def optima(self, *, of: str | None = None, by: str | None = None) -> pd.DataFrame:
        """The best value of one hyperparameter at each level of another one, with an interval."""
        from clsweep.statistics.optimum import optima

        return self.compute(optima, param=of, by=by)

    def compare(
        self,
        a: str | None = None,
        b: str | None = None,
        *,
        stat: str = "mean",
        by: str | None = None,
        within: float | None = None,
        tuned: bool = False,
    ) -> pd.DataFrame:
        """Objective `a` against `b`, or every pair: difference or ratio, interval, p, what could
        have been seen.

        Args:
            tuned: each objective at its best setting, without the luck of the pick, in place of
                `stat`; on fresh seeds where `clsweep confirm` has run (`analysis.best_setting`).
            stat: "mean" (difference of the metric), "std" (ratio of the noise-corrected spreads) or
                "within" (difference of the shares of the space near the best).
            by: a hyperparameter: one row per value of it.
            within: how far from the best counts as near, of stat "within"; as in `robustness` by
                default.
        """
        from clsweep.statistics.compare import compare

        pair = [each for each in (a, b) if each is not None]
        stat = "tuned" if tuned else stat
        return self.compute(compare, *pair, stat=stat, by=by, within=within)

    def contrasts(self, more: Mapping[str, Mapping[str, Any]] | None = None) -> pd.DataFrame:
        """Named differences with interval, p and verdicts: those of the study's `contrasts`.

        Args:
            more: others beside them, by name, as in a study file: {"small": {"of": ["dcl",
                "simclr"], "at": {"batch_size": 16}, "margin": 1}}. They say that they came later.
        """
        from clsweep.statistics.contrast import contrasts

        return self.compute(contrasts, more=more)

    def winners(self, by: str) -> pd.DataFrame:
        """The best objective at each value of one hyperparameter, where its lead is resolved."""
        from clsweep.statistics.winners import winners

        return self.compute(winners, by=by)

    def best_of_k(self) -> pd.DataFrame:
        """Expected score of the best of k configurations tried at random, with intervals."""
        from clsweep.statistics.tuning import best_of_k

        return self.compute(best_of_k)

    def tuning_cost(self, *, within: float | None = None) -> pd.DataFrame:
        """Tries until within so many points of the best, and what tuning gains over the default."""
        from clsweep.statistics.tuning import tuning_cost

        return self.compute(tuning_cost, within=self.near(within))

    def ablation(self) -> pd.DataFrame:
        """The gain of each change from the default to the best setting (`analysis.ablation`)."""
        from clsweep.statistics.ablation import ablation

        return self.compute(ablation)

    def recommend(self) -> pd.DataFrame:
        """The best configuration of each objective, and the one whose worst neighbour is best."""
        from clsweep.statistics.recommend import recommend

        return self.compute(recommend)

    def pareto(self, *, against: str | None = None) -> pd.DataFrame:
        """Score against worker seconds, or another metric, of every configuration, and which no
        other beats in both; by default against what the study's search has weighed.
        """
        from clsweep.statistics.pareto import pareto

        return self.compute(pareto, against=against or self.data.second_objective)

    def leaderboard(self, *, within: float | None = None) -> pd.DataFrame:
        """Each objective at its best setting, with spread and cost; and without training."""
        from clsweep.statistics.leaderboard import leaderboard

        return self.compute(leaderboard, within=self.near(within))

    def top(self, num: int = 5) -> pd.DataFrame:
        """The best configurations of each objective with the score of every seed."""
        from clsweep.statistics.search_history import top

        return self.compute(top, num)

    def history(self) -> pd.DataFrame:
        """Every configuration in the order of the plan, with the best score so far."""
        from clsweep.statistics.search_history import history

        return self.compute(history)

    def importance(self, *, within: float | None = None) -> pd.DataFrame:
        """Which hyperparameter matters to a search, and where it may be set, by a surrogate through
        what was tried (`analysis.importance`). Of an even design ask `sensitivity`.
        """
        from clsweep.statistics.search_history import importance

        return self.compute(importance, within=self.near(within))

    def saved(self) -> pd.DataFrame:
        """Epochs that stopping trials early saved; none where none was stopped."""
        from clsweep.statistics.search_history import saved

        return self.compute(saved)

    def learning(self) -> pd.DataFrame:
        """The metric at every scored epoch in the best configuration of each objective, against
        epochs, images, pairs of views and seconds.
        """
        from clsweep.statistics.learning import learning

        return self.compute(learning)

    def fidelity(self, *, within: float | None = None) -> pd.DataFrame:
        """Early epochs as judges of the last one: rank correlation, the loss of choosing by them,
        and whether it is surely `within` so many points (`analysis.fidelity`).
        """
        from clsweep.statistics.fidelity import fidelity

        return self.compute(fidelity, within=self.near(within))

    def health(self) -> pd.DataFrame:
        """Trials, failures, hours, devices and versions per objective."""
        from clsweep.statistics.health import health

        return self.compute(health)

    def failure_regions(self) -> pd.DataFrame:
        """Where in the swept space trials fail more often than elsewhere."""
        from clsweep.statistics.health import failure_regions

        return self.compute(failure_regions)

    def mechanism(self, *, by: str | None = None) -> pd.DataFrame:
        """The metric beside the diagnostics: q_B, gradient variation and the like."""
        from clsweep.statistics.mechanism import mechanism

        return self.compute(mechanism, by=by)

    def links(self) -> pd.DataFrame:
        """Rank correlation of each diagnostic with the metric: association, not cause."""
        from clsweep.statistics.mechanism import links

        return self.compute(links)

    def picks(self) -> pd.DataFrame:
        """Picks of each score without labels, and their loss against the best by the metric, per
        objective and over all of them. Empty where the metric needs no labels itself.
        """
        from clsweep.statistics.picks import picks

        return self.compute(picks)

    def reproduce(self, *, within: float | None = None) -> pd.DataFrame:
        """A paper's numbers beside what was measured: one row per printed number
        (`analysis.reproduce`); none where no study has such numbers.

        Args:
            within: the largest difference that still agrees: 1 point by default, for a metric that
                is not percent about a twentieth of the range that was printed.
        """
        from clsweep.statistics.reproduce import reproduce

        return self.compute_whole(reproduce, within=within)

    def differences(self) -> pd.DataFrame:
        """The differences between a paper's numbers beside those of a run at another scale."""
        from clsweep.statistics.reproduce import differences

        return self.compute_whole(differences)

    def diff(self, other: Results) -> pd.DataFrame:
        """The settings, versions and data in which two results folders differ, and the changes of
        their answers, a row each (`statistics.diff`).

        Raises:
            RequestError: either is no single results folder, or has no trial that has ended.
        """
        from clsweep.statistics.diff import diff

        return diff(self, other)

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
        from clsweep.report.report_folder import write_report

        return write_report(self, out, within=within, progress=progress)[1]

    def confirm(self, *, top: int | None = None) -> pd.DataFrame:
        """The best configurations on fresh seeds: one row per objective and configuration, best
        first.

        Of the configurations that are the best now, those that `clsweep confirm` has run:
        objective, config, rank and its swept values `at`, search and search_seeds (the mean over
        the study's seeds), and the columns of `analysis.confirmation.FRESH_COLUMNS`.

        Args:
            top: so many of each objective; as asked of `clsweep confirm` by default.

        Raises:
            RequestError: nothing has been confirmed yet.
        """
        data = self.data
        how: dict[str, Any] = {"new_images": data.images == "new images", "top": top}
        fresh = on_fresh_seeds(self.tables, by=(data.metric, data.mode), **how)
        return with_factors(fresh, self.study)

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


def of_cell(cell: CellData) -> Results:
    """The results of one cell of a study or a table with factors."""
    tables = () if cell.tables is None else (cell.tables,)
    return Results(*tables, data=cell.data, levels=cell.levels)
