"""Every statistic as a DataFrame, and the cells of a study with factors as studies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import pandas as pd

from clsweep.errors import RequestError
from clsweep.findings.from_studies import of_studies, side_table
from clsweep.findings.material import Material
from clsweep.questions.answers import Answers
from clsweep.results.reading import CellResults, StudyResults
from clsweep.study.factors import FACTORS, FactorCell, factor_cells, merged_lines


class _Questions:
    """The modules of the questions, each loaded once something is asked of it."""

    def __getattr__(self, name: str) -> Any:
        return import_module(f"clsweep.questions.{name}")


questions = _Questions()


class Findings(Answers):
    """The statistics on `material`. What a table's columns mean stands in the `formulas` of its
    question.

    Every method raises RequestError where the trials cannot answer: none has ended, an unknown
    objective or parameter.
    """

    def __repr__(self) -> str:
        return f"Findings({', '.join(f'{name}={at}' for name, at in self.levels.items())})"

    def robustness(self, *, by: str | None = None, within: float | None = None) -> pd.DataFrame:
        """One row per objective: spread of the metric over the swept space, with intervals
        (`analysis.robustness`).

        Args:
            by: one swept hyperparameter, for its marginal effect alone.
            within: how far from the best still counts as good: 1 point by default, for a metric
                that is not percent about a twentieth of the range seen.
        """
        return self.ask(questions.robustness.robustness, by=by, within=self.near(within))

    def tolerance(self) -> pd.DataFrame:
        """Share of the space within delta points of the best, a row per objective and delta."""
        return self.ask(questions.robustness.tolerance)

    def sensitivity(self, *objectives: str) -> pd.DataFrame:
        """Which hyperparameter matters, per objective: ANOVA shares of a grid, Sobol indices of a
        sampled design.

        An objective whose effects are not told from seed noise, or whose surrogate predicts too
        little, has one row that says so (`analysis.sensitivity`).
        """
        return self.ask(questions.sensitivity.sensitivity, *objectives)

    def marginals(self, *objectives: str) -> pd.DataFrame:
        """The metric at each value of each swept hyperparameter, the others averaged over."""
        return self.ask(questions.marginals.marginals, *objectives)

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
                `stat`; on fresh seeds where `clsweep confirm` has run (`analysis.tuned`).
            stat: "mean" (difference of the metric), "std" (ratio of the noise-corrected spreads) or
                "within" (difference of the shares of the space near the best).
            by: a hyperparameter: one row per value of it.
            within: how far from the best counts as near, of stat "within"; as in `robustness` by
                default.
        """
        pair = [each for each in (a, b) if each is not None]
        stat = "tuned" if tuned else stat
        return self.ask(questions.comparison.compare, *pair, stat=stat, by=by, within=within)

    def contrasts(self, asked: Mapping[str, Mapping[str, Any]] | None = None) -> pd.DataFrame:
        """Named differences with interval, p and verdicts: those of the study's `contrasts`.

        Args:
            asked: others beside them, by name, as in a study file: {"small": {"of": ["dcl",
                "simclr"], "at": {"batch_size": 16}, "margin": 1}}. They say that they came later.
        """
        return self.ask(questions.contrasts.contrasts, asked=asked)

    def winners(self, by: str) -> pd.DataFrame:
        """The best objective at each value of one hyperparameter, where its lead is resolved."""
        return self.ask(questions.winners.winners, by=by)

    def best_of_k(self) -> pd.DataFrame:
        """Expected score of the best of k configurations tried at random, with intervals."""
        return self.ask(questions.tuning.best_of_k)

    def tuning_cost(self, *, within: float | None = None) -> pd.DataFrame:
        """Tries until within so many points of the best, and what tuning gains over the default."""
        return self.ask(questions.tuning.tuning_cost, within=self.near(within))

    def recommend(self) -> pd.DataFrame:
        """The best configuration of each objective, and the one whose worst neighbour is best."""
        return self.ask(questions.recommend.recommend)

    def pareto(self) -> pd.DataFrame:
        """Score against worker seconds of every configuration, and which no other beats in both."""
        return self.ask(questions.pareto.pareto)

    def leaderboard(self, *, within: float | None = None) -> pd.DataFrame:
        """Each objective at its best setting, with spread and cost; and without training."""
        return self.ask(questions.leaderboard.leaderboard, within=self.near(within))

    def top(self, num: int = 5) -> pd.DataFrame:
        """The best configurations of each objective with the score of every seed."""
        return self.ask(questions.search.top, num)

    def history(self) -> pd.DataFrame:
        """Every configuration in the order of the plan, with the best score so far."""
        return self.ask(questions.search.history)

    def importance(self, *, within: float | None = None) -> pd.DataFrame:
        """Which hyperparameter matters to a search, and where it may be set, by a surrogate through
        what was tried (`analysis.sensitivity.searched`). Of an even design ask `sensitivity`.
        """
        return self.ask(questions.search.importance, within=self.near(within))

    def saved(self) -> pd.DataFrame:
        """What stopping trials early saved; none where none was stopped."""
        return self.ask(questions.search.saved)

    def learning(self) -> pd.DataFrame:
        """The metric at every scored epoch in the best configuration of each objective, against
        epochs, images, pairs of views and seconds.
        """
        return self.ask(questions.learning.learning)

    def health(self) -> pd.DataFrame:
        """Trials, failures, hours, devices and versions per objective."""
        return self.ask(questions.health.health)

    def failure_regions(self) -> pd.DataFrame:
        """Where in the swept space trials fail more often than elsewhere."""
        return self.ask(questions.health.failure_regions)

    def mechanism(self, *, by: str | None = None) -> pd.DataFrame:
        """The metric beside the diagnostics: q_B, gradient variation and the like."""
        return self.ask(questions.mechanism.mechanism, by=by)

    def links(self) -> pd.DataFrame:
        """Rank correlation of each diagnostic with the metric: association, not cause."""
        return self.ask(questions.mechanism.links)

    def picks(self) -> pd.DataFrame:
        """What each score without labels would have picked, and what that loses against the best by
        the metric, per objective and over all of them. Empty where the metric needs no labels
        itself.
        """
        return self.ask(questions.picks.picks)

    def reproduce(self, *, within: float | None = None) -> pd.DataFrame:
        """A paper's numbers beside what was measured: one row per printed number
        (`analysis.reference`); none where no study has such numbers.

        Args:
            within: the largest difference that still agrees: 1 point by default, for a metric that
                is not percent about a twentieth of the range that was printed.
        """
        return self.ask_whole(questions.reproduction.reproduce, within=within)

    def differences(self) -> pd.DataFrame:
        """The differences between a paper's numbers beside those of a run at another scale."""
        return self.ask_whole(questions.reproduction.differences)


def cells_of_study(study: StudyResults, **reading: Any) -> tuple[Findings, ...]:
    """The cells in which a trial has ended, read as `of_studies` does; none of a study without
    factors. All have the largest tolerance. RequestError where no trial has ended or scored so.
    """
    cells = [CellResults(study.folder, study, cell) for cell in factor_cells(study.study)]
    begun = [results for results in cells if results.trials_table.num_rows]
    begun = begun or cells  # whose complaint is the one to tell
    found = []
    for results in begun:
        material = of_studies([results], **reading)
        side = partial(side_table, [results], material=material)
        found.append(Findings(material, results.cell.levels, side))
    return _alike(found)


def cells_of_table(
    trials: Any, factors: Sequence[str] | None, source: str, read: Callable[[Any], Material]
) -> tuple[Findings, ...]:
    """The cells of a table of trials; none where it has no factor, by default `dataset` if it has
    several names. `read` makes the material of one. RequestError for a column that is no factor, or
    a trial without a level.
    """
    if not isinstance(trials, pd.DataFrame):
        return ()  # `read` refuses it
    for name in factors or ():
        if name not in FACTORS or name not in trials:
            known = [name for name in FACTORS if name in trials]
            expected = f"expected of its columns {' or '.join(known) or 'none'}, given {name!r}"
            raise RequestError(f"{source}: factors: {expected}")
    if factors is None:  # numbers may be what a table swept
        given = list(trials["dataset"].dropna()) if "dataset" in trials else []
        is_factor = all(isinstance(value, str) for value in given) and len(set(given)) > 1
        factors = ["dataset"] if is_factor else []
    names = [name for name in FACTORS if name in factors]
    if not names:
        return ()
    for name in names:
        if trials[name].isna().any():
            row = int(trials[name].isna().to_numpy().argmax()) + 1
            raise RequestError(f"{source}: {name} of trial {row}: expected a name, given nothing")
    found = []
    factor = trials[names].astype(str).reset_index(drop=True)  # of tables put together they recur
    for values, rows in factor.groupby(names, sort=False):
        levels = dict(zip(names, map(str, values), strict=True))
        found.append(Findings(read(trials.iloc[rows.index]), levels))
    return _alike(found)


def _alike(cells: Sequence[Findings]) -> tuple[Findings, ...]:
    """The cells with one tolerance."""
    within = max((cell.material.within for cell in cells), default=1.0)
    return tuple(
        Findings(replace(cell.material, within=within), cell.levels, cell.side_table)
        for cell in cells
    )


def whole_material(
    cells: Sequence[Findings], trials: pd.DataFrame, planned: Sequence[FactorCell] = ()
) -> Material:
    """All cells in which a trial has ended together, of those that are planned, for what is said of
    them as a whole; no statistic is made of it.
    """
    materials = [cell.material for cell in cells]
    begun = [FactorCell(cell.levels) for cell in cells]
    waiting = [cell.name for cell in planned if cell not in begun]
    notes = [f"no trial has ended yet: {', '.join(waiting)}"] if waiting else []
    said = [(cell, each.notes) for cell, each in zip(begun, materials, strict=True)]
    return replace(
        materials[0],
        trials=trials,
        params=tuple(dict.fromkeys(name for each in materials for name in each.params)),
        sweeps=tuple(sweep for each in materials for sweep in each.sweeps),
        yardsticks={},
        confirmable={},
        notes=(*merged_lines(said), *notes),
    )
