"""Every statistic of one or several studies as a DataFrame.

The analysis itself is in `clsweep.analysis`; here it meets the study: its metric, chance level,
plan and defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from clsweep.analysis.reasons import Reason, note
from clsweep.errors import RequestError, UserError, nearest
from clsweep.findings.notes import worded

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pandas as pd

    from clsweep.analysis.reference import Printed
    from clsweep.analysis.sweep import Sweep
    from clsweep.findings.material import Material

P = ParamSpec("P")


def _remembered(
    method: Callable[Concatenate[Findings, P], pd.DataFrame],
) -> Callable[Concatenate[Findings, P], pd.DataFrame]:
    """The table of each question is computed once; who asks gets a copy. Of a study with factors it
    has the answers of all cells, one under the other.
    """

    @wraps(method)
    def answer(self: Findings, /, *args: P.args, **kwargs: P.kwargs) -> pd.DataFrame:
        question = _question(method.__name__, args, kwargs)
        known, expected = self._answers, self._expected
        if question in expected:
            with suppress(CancelledError):  # of a report that was interrupted
                known[question] = expected.pop(question).result()
        if question not in known:
            cells = self.cells
            known[question] = (
                side_by_side(cells, lambda cell: getattr(cell, method.__name__)(*args, **kwargs))
                if cells
                else method(self, *args, **kwargs)
            )
        table: pd.DataFrame = known[question]
        return table.copy()

    return answer


def _question(name: str, args: Sequence[object], options: Mapping[str, object]) -> str:
    return f"{name}{args}{sorted(options.items())}"


class Findings:
    """The statistics on `material`. What a table's columns mean stands in the `COLUMNS` of the
    module that makes it.

    Every method raises RequestError where the trials cannot answer: none has ended, an unknown
    objective or parameter.
    """

    @cached_property
    def _answers(self) -> dict[str, pd.DataFrame]:
        return {}

    @cached_property
    def _expected(self) -> dict[str, Future[pd.DataFrame]]:
        return {}

    def expect(
        self, name: str, options: Mapping[str, object], answer: Future[pd.DataFrame]
    ) -> None:
        """The answer of the method of this name to these options is being computed elsewhere."""
        self._expected[_question(name, (), options)] = answer

    @property
    def cells(self) -> Sequence[CellFindings]:
        """The cells of a study with factors, each with statistics of its own; else none."""
        return ()

    @property
    def material(self) -> Material:
        """The trials and all that is needed to read them."""
        raise NotImplementedError

    def side_table(self, kind: str) -> pd.DataFrame:
        """What few statistics ask for: references, histograms, points or confirmation; may be
        empty.
        """
        import pandas as pd

        return pd.DataFrame()

    def epochs_of(self, trials: Collection[str]) -> pd.DataFrame:
        """The rows of the epochs of these trials; may be empty."""
        import pandas as pd

        return pd.DataFrame()

    def under_way(self) -> pd.DataFrame:
        """The epochs of trials that have not ended; may be empty. No statistic counts them."""
        import pandas as pd

        return pd.DataFrame()

    @_remembered
    def robustness(self, *, by: str | None = None, within: float | None = None) -> pd.DataFrame:
        """One row per objective: spread of the metric over the swept space, with intervals
        (`analysis.robustness`).

        Args:
            by: one swept hyperparameter, for its marginal effect alone.
            within: how far from the best still counts as good: 1 point by default, for a metric
                that is not percent about a twentieth of the range seen.
        """
        from clsweep.analysis.robustness.table import robustness

        return self._ask(lambda m: robustness(m.sweeps, by=by, within=_within(within, m)))

    @_remembered
    def tolerance(self) -> pd.DataFrame:
        """Share of the space within delta points of the best, one row per objective and delta, with
        intervals.
        """
        from clsweep.analysis.robustness.table import tolerance_curve

        return self._ask(lambda m: tolerance_curve(m.sweeps, within=m.within))

    @_remembered
    def sensitivity(self, *objectives: str) -> pd.DataFrame:
        """Which hyperparameter matters, per objective: ANOVA shares of a grid, Sobol indices of a
        sampled design.

        An objective whose effects are not told from seed noise, or whose surrogate predicts too
        little, has one row that says so (`analysis.sensitivity`).
        """
        from clsweep.analysis.sensitivity.table import sensitivity

        return self._ask(lambda m: sensitivity(_chosen(m.sweeps, objectives)))

    @_remembered
    def marginals(self, *objectives: str) -> pd.DataFrame:
        """The metric at each value of each swept hyperparameter, averaged over the others, with
        bands.
        """
        from clsweep.analysis.robustness.marginals import marginals

        return self._ask(lambda m: marginals(_chosen(m.sweeps, objectives)))

    @_remembered
    def compare(
        self,
        a: str | None = None,
        b: str | None = None,
        *,
        stat: str = "mean",
        by: str | None = None,
        within: float | None = None,
    ) -> pd.DataFrame:
        """Objective `a` against `b`, or every pair: difference or ratio, interval, p, what could
        have been seen.

        Args:
            stat: "mean" (difference of the metric), "std" (ratio of the noise-corrected spreads) or
                "within" (difference of the shares of the space near the best).
            by: a hyperparameter: one row per value of it.
            within: how far from the best counts as near, of stat "within"; as in `robustness` by
                default.
        """
        from clsweep.analysis.comparison.table import compare

        near = _within(within, self.material)
        return self._ask(
            lambda m: _comparable(compare(m.sweeps, a, b, stat=stat, by=by, within=near), m)
        )

    @_remembered
    def winners(self, by: str) -> pd.DataFrame:
        """The best objective at each value of one hyperparameter, where its lead is resolved."""
        from clsweep.analysis.comparison.winners import winners

        def ask(material: Material) -> pd.DataFrame:
            groups: dict[str, list[Sweep]] = {}
            for sweep in material.sweeps:
                groups.setdefault(material.yardsticks.get(sweep.objective, ""), []).append(sweep)
            competing = [
                group for group in groups.values() if sum(by in sweep.params for sweep in group) > 1
            ]
            frames = [winners(group, by=by) for group in competing or groups.values()]
            return pd.concat(frames, ignore_index=True)

        import pandas as pd

        return self._ask(ask)

    @_remembered
    def best_of_k(self) -> pd.DataFrame:
        """Expected score of the best of k configurations tried at random, with intervals."""
        from clsweep.analysis.tuning import best_of_k

        return self._ask(lambda m: best_of_k(m.sweeps))

    @_remembered
    def tuning_cost(self, *, within: float | None = None) -> pd.DataFrame:
        """Tries until within so many points of the best, and what tuning gains over the default."""
        from clsweep.analysis.tuning import tuning_cost

        return self._ask(
            lambda m: tuning_cost(m.sweeps, defaults=m.defaults, within=_within(within, m))
        )

    @_remembered
    def recommend(self) -> pd.DataFrame:
        """The best configuration of each objective, and the one whose worst neighbour is best."""
        from clsweep.analysis.recommend import recommend

        return self._ask(lambda m: recommend(m.sweeps))

    @_remembered
    def pareto(self) -> pd.DataFrame:
        """Score against worker seconds of every configuration, and which of them no other one beats
        in both.
        """
        from clsweep.analysis.pareto import pareto

        return self._ask(lambda m: pareto(m.trials, m.sweeps, yardsticks=m.yardsticks))

    @_remembered
    def leaderboard(self, *, within: float | None = None) -> pd.DataFrame:
        """Each objective at its best setting, with its spread and cost, and what is reached without
        training; the best first (`findings.leaderboard`).
        """
        from clsweep.findings.leaderboard import leaderboard

        return leaderboard(
            self.material,
            recommended=self.recommend(),
            robustness=self.robustness(within=_within(within, self.material)),
            health=self.health(),
            confirmation=self.side_table("confirmation"),
            references=self.side_table("references"),
        )

    @_remembered
    def top(self, num: int = 5) -> pd.DataFrame:
        """The best configurations of each objective with the score of every seed."""
        from clsweep.analysis.searching import top

        return self._ask(lambda m: top(m.sweeps, num))

    @_remembered
    def history(self) -> pd.DataFrame:
        """Every configuration in the order of the plan, with the best score so far."""
        from clsweep.analysis.searching import history

        return self._ask(lambda m: history(m.sweeps, m.trials, m.metric))

    @_remembered
    def importance(self) -> pd.DataFrame:
        """Which hyperparameters go with good scores among those that a search tried."""
        from clsweep.analysis.searching import importance

        return self._ask(lambda m: importance([s for s in m.sweeps if s.not_measured]))

    @_remembered
    def saved(self) -> pd.DataFrame:
        """What stopping trials early saved; none where none was stopped."""
        from clsweep.analysis.searching import SAVED_COLUMNS, saved

        if not {"epochs", "epochs_trained"} <= set(self.material.trials.columns):
            import pandas as pd

            return pd.DataFrame(columns=list(SAVED_COLUMNS))
        return self._ask(lambda m: saved(m.trials, m.trials["epochs"].astype(float)))

    @_remembered
    def learning(self) -> pd.DataFrame:
        """The metric at every scored epoch in the best configuration of each objective, against
        epochs, images, pairs of views and seconds.
        """
        from clsweep.findings.leaderboard import learning_of

        return learning_of(self.material, self.epochs_of, self.recommend())

    @_remembered
    def health(self) -> pd.DataFrame:
        """Trials, failures, hours, devices and versions per objective."""
        from clsweep.analysis.health import health

        return self._ask(lambda m: health(m.trials))

    @_remembered
    def failure_regions(self) -> pd.DataFrame:
        """Where in the swept space trials fail more often than elsewhere."""
        from clsweep.analysis.health import failure_regions

        return self._ask(lambda m: failure_regions(m.sweeps))

    @_remembered
    def mechanism(self, *, by: str | None = None) -> pd.DataFrame:
        """The metric beside the diagnostics: q_B, gradient variation, feature diversity and the
        like.
        """
        from clsweep.analysis.mechanism import mechanism

        return self._ask(
            lambda m: mechanism(
                m.trials, m.sweeps, metric=m.metric, diagnostics=m.diagnostics, by=by
            )
        )

    @_remembered
    def links(self) -> pd.DataFrame:
        """Rank correlation of each diagnostic with the metric over the configurations: association,
        not cause.
        """
        from clsweep.analysis.mechanism import links

        return self._ask(
            lambda m: links(m.trials, m.sweeps, metric=m.metric, diagnostics=m.diagnostics)
        )

    @_remembered
    def picks(self) -> pd.DataFrame:
        """What each score without labels would have picked, and what that loses against the best by
        the metric, per objective and over all of them. Empty where the metric needs no labels
        itself.
        """
        from clsweep.analysis.picks import picks
        from clsweep.findings.reading_rules import label_free_scores

        return self._ask(
            lambda m: picks(
                m.trials,
                m.sweeps,
                metric=m.metric,
                scores=label_free_scores(m.metric),
                yardsticks=m.yardsticks,
            )
        )

    def reproduce(self, *, within: float | None = None) -> pd.DataFrame:
        """A paper's numbers beside what was measured: one row per printed number
        (`analysis.reference`); none where no study has such numbers.

        Args:
            within: the largest difference that still agrees: 1 point by default, for a metric that
                is not percent about a twentieth of the range that was printed.
        """
        from clsweep.analysis.reference import reproduce

        return worded(reproduce(self.printed(within)))

    def printed(self, within: float | None) -> Sequence[Printed]:
        """The papers' tables that the studies have, with the trials that may answer them."""
        return ()

    def _ask(self, question: Callable[[Material], pd.DataFrame]) -> pd.DataFrame:
        """The answer, its notes as text; a complaint has the place in front."""
        material = self.material
        try:
            return worded(_signless(question(material)))
        except UserError:
            raise
        except ValueError as error:
            raise RequestError(f"{', '.join(material.sources)}: {error}") from None


class CellFindings(Findings):
    """The statistics of one cell of a study with factors.

    Attributes:
        levels: factor -> label.
    """

    def __init__(
        self,
        levels: Mapping[str, str],
        material: Material,
        side_table: Callable[[str], pd.DataFrame],
    ) -> None:
        self.levels, self._material, self._side_table = levels, material, side_table

    def __repr__(self) -> str:
        return f"CellFindings({', '.join(f'{name}={at}' for name, at in self.levels.items())})"

    @property
    def material(self) -> Material:
        return self._material

    def side_table(self, kind: str) -> pd.DataFrame:
        return self._side_table(kind)


def side_by_side(
    cells: Sequence[CellFindings], ask: Callable[[CellFindings], pd.DataFrame]
) -> pd.DataFrame:
    """The tables of all cells, one under the other, with the factors as first columns.

    A cell that cannot answer, as without one of the objectives, has no rows.

    Raises:
        RequestError: none of the cells can answer; the first one's reason.
    """
    import pandas as pd

    frames, errors = [], []
    for cell in cells:
        try:
            frames.append(in_cell(ask(cell), cell.levels))
        except RequestError as error:
            errors.append(error)
    if not frames:
        raise errors[0]
    return pd.concat([f for f in frames if len(f)] or frames[:1], ignore_index=True)


def in_cell(frame: pd.DataFrame, levels: Mapping[str, str]) -> pd.DataFrame:
    """A table of one cell with the factors in front."""
    others = [name for name in frame if name not in levels]
    return frame.assign(**levels)[[*levels, *others]]


def _signless(table: pd.DataFrame) -> pd.DataFrame:
    """Without the sign of a zero, which a metric of which low values are good has."""
    floats = [str(name) for name in table if table[name].dtype.kind == "f"]
    return table.assign(**{name: table[name] + 0.0 for name in floats})


def _within(within: float | None, material: Material) -> float:
    return material.within if within is None else within


def _comparable(pairs: pd.DataFrame, material: Material) -> pd.DataFrame:
    """Pairs whose scores come from different yardsticks lose their numbers."""
    import pandas as pd

    yardsticks = [
        pairs[side].map(lambda name: material.yardsticks.get(name, "")) for side in ("a", "b")
    ]
    apart = yardsticks[0] != yardsticks[1]
    measured = pairs.columns[pairs.columns.get_loc("value_a") : pairs.columns.get_loc("winner")]
    pairs.loc[apart, measured] = float("nan")
    pairs.loc[apart, ["winner", "resolved", "reason"]] = "", False, Reason.YARDSTICKS
    notes = [
        (note(Reason.YARDSTICKS, a=a, b=b),) if a != b else notes
        for a, b, notes in zip(*yardsticks, pairs["note"], strict=True)
    ]
    return pairs.assign(note=pd.Series(notes, index=pairs.index, dtype=object))


def _chosen(sweeps: Sequence[Sweep], objectives: Sequence[str]) -> Sequence[Sweep]:
    names = [sweep.objective for sweep in sweeps]
    for name in objectives:
        if name not in names:
            raise ValueError(
                f"no objective {name!r}.{nearest(name, names)} Objectives: {', '.join(names)}"
            )
    return [sweep for sweep in sweeps if not objectives or sweep.objective in objectives]
