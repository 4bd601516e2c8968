"""A sweep: the trials of one objective as a (configurations x seeds) table of scores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clsweep.analysis.array_types import Array
from clsweep.analysis.image_intervals import ImageEffects, TrialHits
from clsweep.analysis.noise import Noise, noise_of
from clsweep.analysis.reasons import Note, Reason, note
from clsweep.analysis.score_table import adjusted_for_seeds, num_unconnected, row_means
from clsweep.display.numbers import setting_column
from clsweep.errors import nearest

ENDED_STATUSES = ("finished", "skipped", "stopped", "failed")  # the worst last
EVEN_SAMPLERS = ("grid", "qmc", "random")
ADAPTIVE_SAMPLERS = ("tpe", "gp", "confirm")  # the last: the best of a search once more
LABEL_KEYS = ("objective", "config", "seed")
NUM_THREADS = 2  # sweeps side by side: the interpreter's own work lets no more run at once
ANYWHERE = (-np.inf, np.inf)  # limits of a metric that has none
# What a failed trial counts as, in every statistic: the worst score of the objectives that are
# compared (`counted_alike`), the score of a guess, or nothing.
FAILED_AS = WORST, CHANCE, LEFT_OUT = "worst", "chance", "left out"
COUNTED_AS = {
    WORST: Reason.TRIALS_FAILED_AS_WORST,
    CHANCE: Reason.TRIALS_FAILED_AS_CHANCE,
    LEFT_OUT: Reason.TRIALS_FAILED,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Sweep:
    """The trials of one objective.

    Shape legend: n = configurations tried, sorted by number, S = seeds.

    Attributes:
        params: the swept hyperparameters, those that take two or more values here.
        scales: of every swept one: "log", "linear" or "category".
        bounds: (low, high) of the swept numeric ones whose range was declared; sensitivity's space
            ends there.
        possible: (low, high) of the hyperparameters of which no value beyond exists.
        settings: (n, params), the values; row i is that of configuration number `configs[i]`.
        scores: (n, S) float64, larger is better (`sign` times the metric), NaN = no score: the
            trial did not run, or belongs to a configuration of which a trial was stopped early. A
            failed trial counts at `failed_level`.
        failed: (n, S) bool, trials that failed, or finished without a finite metric.
        failed_as: one of `FAILED_AS`.
        failed_level: the score of a failed trial, as `scores` are; NaN: they are left out. The
            worst score is the objective's own, and of those compared that of `counted_alike`.
        samplers: how the configurations were chosen, usually one name.
        num_trials, num_stopped, num_skipped: trials that ran; of them stopped early; that a race
            left out.
        raced: the seeds that a race did not give to every configuration; `is_raced`: they have been
            left out.
        num_planned: configurations of the whole plan; more than n while it still runs.
        limits: the values that the metric can take, in its own sign: 0 to 100 of a percentage.
        constants: the hyperparameters of any objective that take one value here, with it.
        planned_seeds: seeds that the plan gives each configuration; 0 where no plan is known.
        fresh: config -> seed -> the metric, in its own sign, on seeds that took no part in the
            study; NaN of a trial that failed.
        hits: which images the trials have right; None: nobody knows.
    """

    objective: str
    sign: float
    params: tuple[str, ...]
    scales: Mapping[str, str]
    configs: NDArray[Any]
    seeds: NDArray[Any]
    settings: pd.DataFrame
    scores: Array
    failed: NDArray[np.bool_]
    samplers: tuple[str, ...]
    num_trials: int
    num_stopped: int
    num_planned: int
    num_skipped: int = 0
    raced: tuple[Any, ...] = ()
    is_raced: bool = False
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    possible: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    limits: tuple[float, float] = ANYWHERE
    failed_as: str = LEFT_OUT
    failed_level: float = np.nan
    constants: Mapping[str, Any] = field(default_factory=dict)
    planned_seeds: int = 0
    fresh: Mapping[Any, Mapping[Any, float]] = field(default_factory=dict)
    hits: TrialHits | None = None

    @cached_property
    def measured(self) -> Sweep:
        """The same with failed trials left out, as if they had not run; one object for all who ask,
        so that what hangs on it is computed once.
        """
        measured = np.where(self.failed, np.nan, self.scores)
        return replace(self, scores=measured, failed_as=LEFT_OUT, failed_level=np.nan)

    def counted_at(self, level: float) -> Sweep:
        """The same with failed trials at this score; where none has a score, or NaN, as it is."""
        if not self.alive.any() or np.isnan(level):
            return self
        return replace(self, scores=np.where(self.failed, level, self.scores), failed_level=level)

    @cached_property
    def of_space(self) -> Sweep:
        """The same by what speaks for the space: of a race the seeds that it gave to all. Further
        ones go to those that were lucky: a mean over all keeps the bad luck of the others.
        """
        is_even = ~np.isin(self.seeds, self.raced)
        if is_even.all() or not is_even.any():
            return self
        scores, failed = self.scores[:, is_even], self.failed[:, is_even]
        ran, seeds = int((np.isfinite(scores) | failed).sum()), self.seeds[is_even]
        even_seeds = replace(self, scores=scores, failed=failed, seeds=seeds, num_trials=ran)
        return replace(even_seeds, raced=(), is_raced=True)

    def at(self, rows: NDArray[Any], **changes: Any) -> Sweep:
        """Those configurations alone, in this order."""
        arrays = {name: getattr(self, name)[rows] for name in ("configs", "scores", "failed")}
        chosen = self.settings.iloc[rows].reset_index(drop=True)
        return replace(self, settings=chosen, **arrays, **changes)

    def renamed(self, name: str) -> Sweep:
        """The same by another name, with the images that it has right."""
        hits = self.hits and self.hits.renamed(self.objective, name)
        return replace(self, objective=name, hits=hits)

    def by_level(self) -> Sweep:
        """The same with configurations in the order of their means: what is drawn at random then
        does not hang on their numbers.
        """
        return self.at(self.means.argsort(kind="stable"))

    @property
    def num_failed(self) -> int:
        return int(self.failed.sum())

    @property
    def is_unfinished(self) -> bool:
        """True while planned configurations have no trial."""
        return len(self.configs) < self.num_planned

    @property
    def is_grid(self) -> bool:
        """True where the configurations are the whole space, and not a sample of it."""
        return self.samplers == ("grid",) and not self.is_unfinished

    @property
    def not_measured(self) -> Note | None:
        """Why these samples say nothing of the space as a whole; None if they were drawn evenly."""
        if adaptive := tuple(name for name in self.samplers if name in ADAPTIVE_SAMPLERS):
            return note(Reason.ADAPTIVE_SAMPLER, samplers=adaptive)
        if len(self.samplers) > 1:
            return note(Reason.MIXED_SAMPLERS, samplers=self.samplers)
        return next(iter(self.cut_short), None) if self.num_stopped or self.raced else None

    @property
    def cut_short(self) -> list[Note]:
        """Notes on trials that were stopped early and count in no score, or that a race skipped."""
        ran, stopped, skipped = self.num_trials, self.num_stopped, self.num_skipped
        notes = [note(Reason.TRIALS_STOPPED, stopped=stopped, trials=ran)] if stopped else []
        if self.is_raced:
            notes.append(note(Reason.RACED_SEEDS, seeds=len(self.seeds)))
        elif skipped:
            notes.append(note(Reason.TRIALS_SKIPPED, skipped=skipped, trials=ran + skipped))
        return notes

    @property
    def missing(self) -> tuple[Note, ...]:
        """Notes on trials of the plan without a score: failed, stopped, skipped, or not run yet."""
        notes = [*self.failures, *self.cut_short]
        return tuple(filter(None, (*notes, self.seeds_apart, self.too_few)))

    @property
    def failures(self) -> tuple[Note, ...]:
        """A note on failed trials, and what they count as; where all failed it is `nothing`."""
        if self.num_failed in (0, self.num_trials):
            return ()
        figures: dict[str, Any] = {"failed": self.num_failed, "trials": self.num_trials}
        if not np.isfinite(self.failed_level):  # also where no trial has a score to be worse than
            return (note(COUNTED_AS[LEFT_OUT], **figures),)
        level = self.sign * self.failed_level
        return (note(COUNTED_AS[self.failed_as], **figures, level=level),)

    @property
    def too_few(self) -> Note | None:
        """A note on configurations that are still to come; None where all have been tried."""
        figures = {"configs": len(self.configs), "planned": self.num_planned}
        return note(Reason.UNFINISHED, **figures) if self.is_unfinished else None

    @property
    def nothing(self) -> Note | None:
        """Why there is nothing to say of the space as a whole: no even samples, no score, or none
        that compares with the others.
        """
        return self.not_measured or self.no_score or self.seeds_apart

    @cached_property
    def seeds_apart(self) -> Note | None:
        """A note where parts of the settings ran on seeds of their own."""
        parts = num_unconnected(self.scores[self.alive & ~self.silent])
        return note(Reason.SEEDS_APART, parts=parts) if parts > 1 else None

    @property
    def no_score(self) -> Note | None:
        """Why no configuration has a score that was measured; None where one has."""
        if self.num_failed == self.num_trials > 0:
            return note(Reason.ALL_FAILED, trials=self.num_trials)
        return None if self.alive.any() else note(Reason.NO_SCORE)

    def lost(self, reason: str, **figures: Any) -> tuple[Note, ...]:
        """A note with this reason where configurations have no score."""
        lost = int((~self.alive).sum())
        return (note(reason, lost=lost, configs=len(self.alive), **figures),) if lost else ()

    @cached_property
    def alive(self) -> NDArray[np.bool_]:
        """(n,) bool, configurations with a score."""
        return np.asarray(np.isfinite(self.scores).any(axis=1))

    @cached_property
    def unknown(self) -> NDArray[np.bool_]:
        """(n,) bool, the silent that count as the worst score seen: they may be any lower."""
        return self.silent & (self.failed_as == WORST)

    @cached_property
    def silent(self) -> NDArray[np.bool_]:
        """(n,) bool, those that failed on every seed and count at one level, without noise."""
        return self.alive & (self.num_measured == 0)

    @cached_property
    def failing(self) -> NDArray[np.bool_]:
        """(n,) bool, configurations of whose trials more failed than have a score."""
        return np.asarray(self.failed.sum(axis=1) > self.num_measured)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """(n,) scores of each configuration."""
        return np.asarray(np.isfinite(self.scores).sum(axis=1))

    @cached_property
    def num_measured(self) -> NDArray[np.int64]:
        """(n,) scores of each configuration, without those that failed trials count as."""
        return np.asarray((np.isfinite(self.scores) & ~self.failed).sum(axis=1))

    @cached_property
    def has_repeats(self) -> bool:
        """True where a configuration has two scores, so that seed noise shows."""
        return bool((self.counts > 1).any())

    @cached_property
    def means(self) -> Array:
        """(n,) mean score over the seeds present, NaN for a configuration without any; where scores
        are missing, the least-squares mean beside the seeds (`score_table.adjusted_for_seeds`).
        """
        means = np.full(len(self.scores), np.nan)
        means[self.alive] = row_means(adjusted_for_seeds(self.scores[self.alive]))
        return means

    @cached_property
    def noise(self) -> Noise:
        """The noise of the configurations with a score."""
        return noise_of(self.scores[self.alive], self.silent[self.alive], by_seed=True)

    @cached_property
    def images(self) -> ImageEffects | None:
        """Those that the means are scored on; None where a score does not say which are right."""
        given = self.objective, self.sign, self.configs, self.counts, self.num_measured
        return self.hits.of(*given) if self.hits else None

    def limited(self, ends: Any) -> Any:
        """The ends of intervals of levels, in the metric's own sign, as far as the metric goes."""
        return np.clip(ends, *self.limits)

    def turned(self, low: Any, high: Any) -> tuple[Any, Any]:
        """An interval in which larger is better, or back, in the metric's own sign."""
        return (low, high) if self.sign > 0 else (-high, -low)

    def axis(self, param: str) -> Array:
        """(n,) the values of a numeric hyperparameter as they stand on its axis: log2 on a log
        scale, NaN if missing.
        """
        values = self._values[param]
        return np.log2(values) if self.scales[param] == "log" else values.copy()

    def label(self, row: int) -> str:
        """Text of one configuration's setting, as `tau=0.2, batch_size=64`; "" of the only one."""
        alike = np.arange(len(self.configs)) != row  # whose few digits may not tell them apart
        for name, values in self._values.items():
            near, own = values[alike], values[row]
            if self.scales[name] == "category":
                alike[alike] = near == own
            else:
                alike[alike] = np.isclose(near, own, rtol=1e-3, atol=0.0, equal_nan=True)
        rows = self.settings.iloc[[row, *np.flatnonzero(alike)]]
        texts = ((name, setting_column(rows[name].tolist())[0]) for name in self.params)
        at = ", ".join(f"{name}={text}" for name, text in texts if text)
        return at or f"config {self.configs[row]}" * (len(self.configs) > 1)

    @cached_property
    def _values(self) -> dict[str, NDArray[Any]]:
        """(n,) values of each hyperparameter: numbers, NaN if missing, or texts of categories."""
        return {
            name: self.settings[name].astype(str).to_numpy(dtype=str)
            if self.scales[name] == "category"
            else pd.to_numeric(self.settings[name]).to_numpy(dtype=float, na_value=np.nan)
            for name in self.params
        }


def worst_score(sweeps: Sequence[Sweep]) -> float:
    """The worst that was measured in any of them; NaN where nothing was."""
    measured = (sweep.measured for sweep in sweeps)
    return float(min((np.nanmin(x.scores) for x in measured if x.alive.any()), default=np.nan))


def counted_alike(*sweeps: Sweep) -> list[Sweep]:
    """The sweeps that a difference is of, failed trials at the worst score of any of these. Those
    that count as chance, or are left out, stay so.
    """
    if not any(sweep.num_failed and sweep.failed_as == WORST for sweep in sweeps):
        return [*sweeps]
    level = worst_score(sweeps)
    return [x.counted_at(level) if x.num_failed and x.failed_as == WORST else x for x in sweeps]


def check_by(by: str | None, sweeps: Sequence[Sweep], *, option: str = "by") -> None:
    """Raises ValueError where no objective sweeps `by`, which this option names."""
    swept = list(dict.fromkeys(name for sweep in sweeps for name in sweep.params))
    if by is not None and by not in swept:
        raise ValueError(
            f"{option}: no objective sweeps {by!r}.{nearest(by, swept)} Swept: "
            f"{', '.join(swept) or 'nothing'}"
        )


def as_far_as_levels(differences: pd.DataFrame, sweeps: Sequence[Sweep]) -> pd.DataFrame:
    """Intervals `low`, `high` of differences of levels, no further than two levels can differ."""
    return no_further(differences, max((np.ptp(x.limits) for x in sweeps), default=np.inf))


def no_further(differences: pd.DataFrame, most: float) -> pd.DataFrame:
    """Intervals `low`, `high` of differences that end at the largest there can be: 1 of shares."""
    return differences.assign(**{n: differences[n].clip(-most, most) for n in ("low", "high")})


def in_threads(work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """`work` of each sweep or pair of sweeps, in their order: the arrays are large, and numpy lets
    go of the interpreter.
    """
    # The matrices are small: a thread of the linear algebra mostly waits.
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1), ThreadPoolExecutor(min(NUM_THREADS, os.cpu_count() or 1)) as pool:
        return list(pool.map(work, items))
