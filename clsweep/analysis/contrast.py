"""Differences that a study asks for by name: is there one, is it too small to matter, is it as
large as published?

Shape legend: n = configurations, S = seeds. A contrast is  c = sum_i w_i m_i  over the means of
configurations; a side's w_i are +-1 / (number of its configurations), so they add up to 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clsweep.analysis import CONFIDENCE, TAIL
from clsweep.analysis.array_types import Array
from clsweep.analysis.evidence import Evidence
from clsweep.analysis.holm import holm, holm_steps
from clsweep.analysis.image_intervals import TrialHits, stack_effects
from clsweep.analysis.mean_tests import difference_parts, noises_of_one_run
from clsweep.analysis.noise import Noise, Parts, noise_of, satterthwaite
from clsweep.analysis.read_sweeps import scores_and_failures
from clsweep.analysis.reasons import Note, Reason, note, noted, with_notes
from clsweep.analysis.score_table import rounding
from clsweep.analysis.sweep import ANYWHERE, LEFT_OUT, Sweep, counted_alike
from clsweep.display.numbers import setting_column

CONTRAST_COLUMNS = with_notes(
    "contrast objective metric what estimate low high low_holm high_holm num_seeds p p_holm margin "
    "p_margin published room p_published shown equivalent excluded detectable needs_seeds "
    "needs_configs needs_low needs_high added_after"
)
_LARGEST_P = 1.0 - CONFIDENCE
_VERDICTS = ("shown", "equivalent", "excluded")


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A contrast of a study: the first objective less the second at some settings, or either less
    itself at others.

    Attributes:
        of: one or two objectives.
        at, minus: values of hyperparameters; those that an objective does not sweep pass it over.
        added_after: trials that had ended when it was asked.
        family: with which others its p-values are corrected: those of one study.
    """

    name: str
    of: tuple[str, ...]
    metric: str
    at: Mapping[str, Any] = field(default_factory=dict)
    minus: Mapping[str, Any] | None = None
    margin: float = np.nan
    published: float = np.nan
    added_after: int = 0
    family: str = ""

    @property
    def sides(self) -> Iterator[tuple[float, str, Mapping[str, Any]]]:
        """Sign, objective and settings of each."""
        for sign, at in ((1.0, self.at), (-1.0, self.minus)):
            if at is not None:
                yield from ((sign * (-1) ** place, name, at) for place, name in enumerate(self.of))

    @property
    def what(self) -> str:
        """`dcl - simclr at batch_size=16, less that at batch_size=128`."""
        first = f"{' - '.join(self.of)}{_at(self.at)}"
        return first if self.minus is None else f"{first}, less that{_at(self.minus) or ' of all'}"


def scored_by(
    sweep: Sweep,
    trials: pd.DataFrame,
    metric: str,
    hits: TrialHits | None = None,
    *,
    sign: float = 1.0,
    limits: tuple[float, float] = ANYWHERE,
) -> Sweep:
    """The same configurations with another column of their trials as the score, failed ones left
    out. `hits` are those of that column, `sign` and `limits` as a `Sweep` has them.
    """
    own = trials[(trials["objective"] == sweep.objective) & trials["seed"].isin(sweep.seeds)]
    values = own.reindex(columns=[metric])[metric]
    rows = pd.Index(sweep.configs).get_indexer(own["config"])
    columns = pd.Index(sweep.seeds).get_indexer(own["seed"])
    how: dict[str, Any] = {"shape": sweep.scores.shape, "sign": sign, "limits": limits}
    read = scores_and_failures(values, own["status"], rows, columns, **how)
    left_out: dict[str, Any] = {"failed_as": LEFT_OUT, "failed_level": np.nan}
    return replace(sweep, sign=sign, hits=hits, fresh={}, **read, **left_out)


def _at(values: Mapping[str, Any]) -> str:
    texts = (f"{name}={setting_column([value])[0]}" for name, value in values.items())
    return f" at {', '.join(texts)}" if values else ""


def contrast_table(
    contrasts: Sequence[Contrast], sweeps: Mapping[str, Sequence[Sweep]]
) -> pd.DataFrame:
    """One row per contrast with the columns of `CONTRAST_COLUMNS`, in their order; sweeps: metric
    -> the sweeps that have it as their score.

    Failed trials count as in every statistic. Where they do not count at all the verdict must be
    the same, or it is not resolved (`Reason.FAILURES_DECIDE`); an interval is the union of both.
    """
    estimates = [_evidence(each, sweeps[each.metric]) for each in contrasts]
    rows = _judged(contrasts, estimates)
    measured = {m: [x.measured for x in each] for m, each in sweeps.items()}
    if any(x.num_failed for each in sweeps.values() for x in each):
        without = _judged(contrasts, [_evidence(each, measured[each.metric]) for each in contrasts])
        for row, other in zip(rows, without, strict=True):
            row |= {end: np.fmin(row[end], other[end]) for end in ("low", "low_holm")}
            row |= {end: np.fmax(row[end], other[end]) for end in ("high", "high_holm")}
            if any(row[name] != other[name] for name in _VERDICTS):
                row |= dict.fromkeys(_VERDICTS, False)
                row |= noted(*row["note"], why=note(Reason.FAILURES_DECIDE))
    return pd.DataFrame(rows, columns=list(CONTRAST_COLUMNS))


@dataclass(frozen=True)
class _Estimate:
    evidence: Evidence
    num_seeds: int = 0
    why: Note | None = None
    notes: tuple[Note, ...] = ()
    configs: int = 0  # of the objective with fewest, where they are a sample
    room: tuple[float, float] = (np.nan, np.nan)  # down and up, in the metric's own sign


def _judged(contrasts: Sequence[Contrast], estimates: Sequence[_Estimate]) -> list[dict[str, Any]]:
    """The rows, with p-values corrected for all that are asked."""
    pairs = list(zip((x.evidence for x in estimates), contrasts, strict=True))
    tests = {"p": [evidence.p for evidence, _ in pairs]}
    tests["p_margin"] = [_p_margin(evidence, each.margin) for evidence, each in pairs]
    tests["p_published"] = [_p_published(evidence, each.published) for evidence, each in pairs]
    rows: dict[int, dict[str, Any]] = {}
    for later, family in dict.fromkeys((bool(each.added_after), each.family) for each in contrasts):
        # One that comes later takes no answer away, and is one of all itself.
        among = [
            at for at, each in enumerate(contrasts)
            if each.family == family and (later or not each.added_after)
        ]  # fmt: skip
        own = {name: np.array([p[at] for at in among], dtype=float) for name, p in tests.items()}
        num = int(np.isfinite(own["p"]).sum())
        corrected = {name: holm(p) for name, p in own.items()}
        corrected["steps"] = holm_steps(own["p"], _LARGEST_P)
        for place, at in enumerate(among):
            if bool(contrasts[at].added_after) == later:
                mine = {name: float(p[place]) for name, p in corrected.items()}
                rows[at] = _row(contrasts[at], estimates[at], mine, num)
    return [rows[at] for at in sorted(rows)]


def _row(named: Contrast, x: _Estimate, p: Mapping[str, float], num: int) -> dict[str, Any]:
    """One of `num` that are tested, with its corrected p-values."""
    evidence, notes = x.evidence, x.notes
    row: dict[str, Any] = dict.fromkeys(CONTRAST_COLUMNS, np.nan)
    row |= {n: getattr(named, n) for n in ("metric", "what", "margin", "published", "added_after")}
    row |= evidence.columns
    half = evidence.half_at(2 * TAIL / p["steps"])  # at level 1 - .05 / steps
    low, high = evidence.estimate - half, evidence.estimate + half
    row |= {"low_holm": low, "high_holm": high}
    sought = named.published if abs(named.published) > 0 else evidence.estimate
    row["room"] = x.room[sought > 0]
    row |= {"contrast": named.name, "objective": named.of[0], "num_seeds": x.num_seeds}
    row |= {"p_holm": p["p"], "p_margin": p["p_margin"], "p_published": p["p_published"]}
    # no verdict against what stands beside it
    row["shown"] = p["p"] <= _LARGEST_P and (low > 0 or high < 0)
    within, holds = max(-low, high) < named.margin, low <= named.published <= high
    row |= {"equivalent": p["p_margin"] <= _LARGEST_P and within}
    row |= {"excluded": p["p_published"] <= _LARGEST_P and not holds}
    if named.added_after:
        notes = (note(Reason.ASKED_LATER, trials=named.added_after), *notes)
    if x.why is None and not row["shown"] and evidence.p <= _LARGEST_P:
        notes = (*notes, note(Reason.RESOLVED_ALONE, tests=num))
    if x.why is None and not any(row[name] for name in _VERDICTS):
        # In a sample its configurations are the noise, whatever the number of seeds.
        of, repeats = ("needs_configs", x.configs) if x.configs else ("needs_seeds", x.num_seeds)
        needs = evidence.repeats_needed(float(repeats))
        row |= dict(zip((of, "needs_low", "needs_high"), needs, strict=True))
        if not x.configs and (images := evidence.images_deciding(float(repeats))):
            notes = (*notes, note(Reason.IMAGES_DECIDE, images=images))
    return row | noted(*notes, why=x.why)


def _p_margin(evidence: Evidence, margin: float) -> float:
    """Of an effect of the margin or more: the larger of two one-sided tests (Schuirmann 1987),
    doubled, so that it agrees with the interval.
    """
    if not np.isfinite(evidence.se * margin):
        return np.nan
    return evidence.p_beyond(margin - abs(evidence.estimate))


def _p_published(evidence: Evidence, published: float) -> float:
    """Of an effect as large as published, or larger, doubled likewise; none of one that was 0."""
    if not np.isfinite(evidence.se * published) or published == 0:
        return np.nan
    return evidence.p_beyond(float(np.sign(published)) * (published - evidence.estimate))


def _evidence(named_contrast: Contrast, sweeps: Sequence[Sweep]) -> _Estimate:
    """Estimate and standard error of one contrast, or the reason why there are none."""
    those = counted_alike(*(x for x in sweeps if x.objective in named_contrast.of))
    named, weights = {x.objective: x for x in those}, dict[str, Array]()
    for sign, name, at in named_contrast.sides:
        sweep = named.get(name)
        if sweep is None:
            return _nothing(note(Reason.NO_SCORE).of(name))
        if not sweep.alive.any() and sweep.num_trials > sweep.num_failed:
            return _nothing(note(Reason.NO_VALUE, metric=named_contrast.metric).of(name))
        if why := sweep.nothing or (sweep.too_few if sweep.samplers == ("grid",) else None):
            return _nothing(why.of(name))
        rows = _having(sweep, at)
        if not rows.any():
            return _nothing(note(Reason.NO_SETTING, at=_at(at).removeprefix(" at ")).of(name))
        if lost := int((rows & ~sweep.alive).sum()):
            why = note(Reason.OPEN_SETTINGS, lost=lost, configs=int(rows.sum())).of(name)
            return _Estimate(Evidence(np.nan), 0, why, tuple(x.of(name) for x in sweep.failures))
        own = weights.setdefault(name, np.zeros(len(rows)))
        own += np.where(rows, sign / rows.sum(), 0.0)
    rows_of = {name: np.flatnonzero(own) for name, own in weights.items() if own.any()}
    parts = [_Part(named[name], rows, weights[name][rows]) for name, rows in rows_of.items()]
    if not parts:
        return _nothing(note(Reason.SAME_SETTINGS))
    is_grid = all(part.sweep.is_grid for part in parts)
    estimate, variances, num_seeds = _of_grid(parts) if is_grid else _of_sample(parts)
    notes = tuple(each.of(p.sweep.objective) for p in parts for each in p.sweep.failures)
    scale = max(float(rounding(part.scores.reshape(-1))) for part in parts)
    estimate *= parts[0].sweep.sign
    room = _room(named_contrast, named, sweeps, estimate)
    if not sum(variance for variance, _ in variances) ** 0.5 > scale:
        why = Reason.ONE_SEED if is_grid and num_seeds < 2 else Reason.NO_NOISE
        why = Reason.NO_DIFFERENCE if variances and abs(estimate) <= scale else why
        return _Estimate(Evidence(estimate), num_seeds, note(why), notes, room=room)
    evidence = Evidence.of_parts(estimate, variances)
    if images := stack_effects([p.sweep.images and p.sweep.images.rows(p.rows) for p in parts]):
        every = np.concatenate([part.weights for part in parts])
        evidence = evidence.over_images(float(images.variance(every)), images.num - 1.0)
    configs = 0 if is_grid else min(len(part.rows) for part in parts)
    return _Estimate(evidence, num_seeds, None, notes, configs, room)


def _room(
    contrast: Contrast, named: Mapping[str, Sweep], every: Sequence[Sweep], estimate: float
) -> tuple[float, float]:
    """Distances down and up to the ends of the means of all configurations of its study, from where
    the first side is without the effect.
    """
    _, name, at = next(contrast.sides)
    first = named[name]
    own = [sweep.means for sweep in every if sweep.objective.startswith(contrast.family)]
    levels = first.sign * np.concatenate(own or [sweep.means for sweep in every])
    base = first.sign * float(first.means[_having(first, at)].mean()) - estimate
    return base - float(np.nanmin(levels)), float(np.nanmax(levels)) - base


def _nothing(why: Note) -> _Estimate:
    return _Estimate(Evidence(np.nan), 0, why)


@dataclass(frozen=True, eq=False)
class _Part:
    """The configurations of one objective that count: rows (k,) of the sweep, and weights (k,)."""

    sweep: Sweep
    rows: NDArray[np.intp]
    weights: Array

    @property
    def scores(self) -> Array:
        """(k, S)"""
        return self.sweep.scores[self.rows]


def _having(sweep: Sweep, at: Mapping[str, Any]) -> NDArray[np.bool_]:
    """(n,) bool, the configurations with these values; what is not swept passes them over."""
    rows = np.ones(len(sweep.configs), dtype=bool)
    for name, value in at.items():
        if name in sweep.params:
            rows &= _equal(sweep.settings[name], value)
        elif name in sweep.constants:
            rows &= _equal(pd.Series([sweep.constants[name]]), value)[0]
    return rows


def _equal(column: pd.Series[Any], value: Any) -> NDArray[np.bool_]:
    """(n,) bool, whether a cell says the same: 0.1, "1e-1", and of 0 and 1 also false and true."""
    with suppress(TypeError, ValueError):
        numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
        if np.isfinite(numbers).any():
            return np.asarray(np.isclose(numbers, float(value), rtol=1e-9, atol=0.0))
    return np.asarray(column.astype(str).str.lower() == str(value).lower())


def _of_grid(parts: Sequence[_Part]) -> tuple[float, Parts, int]:
    """A contrast, larger is better, the parts of its variance, and the seeds that it rests on. Of a
    whole space seeds are blocks.

    Within one objective, what a seed does to all cancels: the variance is that of the residual of
    the configurations compared (`Noise.of_sum`), with (k - 1) (S - 1) degrees of freedom. Between
    objectives, whose scores at one seed may go together, the contrasts at each seed vary by s^2,
    and their mean by s^2 / S, with S - 1. Objectives of other seeds add up. Where scores are
    missing the means are least-squares means (`score_table.adjusted_for_seeds`).
    """
    by_seeds: dict[tuple[Any, ...], list[_Part]] = {}
    for part in parts:
        by_seeds.setdefault(tuple(part.sweep.seeds.tolist()), []).append(part)
    estimate, fewest = 0.0, np.inf
    terms: list[Parts] = []
    for group in by_seeds.values():
        weights = [part.weights for part in group]
        tables = _comparable([part.scores for part in group])
        if len(group) == 2:
            noises = [*noises_of_one_run(*tables)]
        else:
            noises = [noise_of(table, by_seed=True) for table in tables]
        estimate += sum(float(w @ x.means) for w, x in zip(weights, noises, strict=True))
        fewest = min(fewest, *(float(np.median(noise.counts)) for noise in noises))
        terms.append(_parts_of(noises, weights))
    merged = [satterthwaite(part[at : at + 1][0] for part in terms if part[at:]) for at in (0, 1)]
    return estimate, [each for each in merged if each[1] > 0], int(fewest)


def _comparable(tables: Sequence[Array]) -> list[Array]:
    """The tables without scores at a seed of one configuration alone, which compare with none."""
    present = [np.isfinite(table) for table in tables]
    alone = sum(each.sum(axis=0) for each in present) == 1
    if sum(map(len, tables)) < 2 or any((~each[:, ~alone].any(axis=1)).any() for each in present):
        return list(tables)
    return [np.where(alone, np.nan, table) for table in tables]


def _parts_of(noises: Sequence[Noise], weights: Sequence[Array]) -> Parts:
    """The parts of the variance of one or two objectives that ran on the same seeds."""
    if len(noises) == 1 and abs(weights[0].sum()) < 1e-9:
        return [noises[0].of_sum(weights[0])]
    table = np.concatenate([noise.values for noise in noises])
    if np.isfinite(table).all():
        at, num = np.concatenate(weights) @ table, table.shape[1]
        return [(float(at.var(ddof=1)) / num, num - 1.0)] if num > 1 else []
    if len(noises) == 1:
        return noises[0].parts(weights[0])
    if all(abs(w.sum()) < 1e-9 for w in weights):
        return [satterthwaite(x.of_sum(w) for x, w in zip(noises, weights, strict=True))]
    return difference_parts(noises[0], noises[1], weights[0], weights[1])


def _of_sample(parts: Sequence[_Part]) -> tuple[float, Parts, int]:
    """The same of a sample of the space: its configurations are noise too, beside what a seed does
    to all. Objectives that tried the same settings are paired by them.
    """
    estimate, variances, num_seeds = _of_grid(parts)
    is_within = all(abs(part.weights.sum()) < 1e-9 for part in parts)
    by_seeds = [] if is_within else variances[:1]  # the settings' spread holds the residual
    return estimate, [*_settings_parts(parts), *by_seeds], num_seeds


def _settings_parts(parts: Sequence[_Part]) -> Parts:
    """The parts of a sample's variance that are of its configurations."""
    if (sums := _paired(parts)) is not None:
        return [(len(sums) * float(sums.var(ddof=1)), len(sums) - 1.0)]
    terms: Parts = []
    for part in parts:
        for weight in np.unique(part.weights):
            means = part.sweep.means[part.rows][part.weights == weight]
            if len(means) > 1:
                size = weight**2 * len(means) * float(means.var(ddof=1))
                terms.append((size, len(means) - 1.0))
    return [satterthwaite(terms)] if terms else []


def _paired(parts: Sequence[_Part]) -> Array | None:
    """(K,) what each setting adds to the contrast, where all objectives tried the same ones."""
    names = [name for name in parts[0].sweep.params if all(name in p.sweep.params for p in parts)]
    if len(parts) < 2 or not names:
        return None
    sums = [
        pd.Series(
            part.weights * part.sweep.means[part.rows],
            index=pd.MultiIndex.from_frame(part.sweep.settings.iloc[part.rows][names].astype(str)),
        )
        for part in parts
    ]
    if not all(each.index.is_unique and each.index.sort_values().equals(sums[0].index.sort_values())
               for each in sums) or len(sums[0]) < 2:  # fmt: skip
        return None
    return np.asarray(sum(sums[1:], start=sums[0]).to_numpy(dtype=float))
