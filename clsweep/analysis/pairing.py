"""Two objectives side by side: which of their configurations and seeds belong together.

Shape legend: C = settings, S = seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clsweep.analysis.array_types import Array, Codes
from clsweep.analysis.image_intervals import ImageEffects
from clsweep.analysis.reasons import Note, Reason, note
from clsweep.analysis.regions import Regions, numbers_in, rounded
from clsweep.analysis.sweep import Sweep
from clsweep.display.numbers import mentioned

_ALL = slice(None)

# fewer pairs could not be told apart by flipping signs, 2^-9, once several bins are looked at
PAIRS_PER_BIN = 10
_CACHE_SIZE = 64  # pairs of sweeps: each statistic of a report asks for them again


@dataclass(frozen=True, eq=False)
class Side:
    """One objective's part of a comparison: scores (C, S), larger is better, the settings of the C
    rows, which of these failed at every seed, and the images that they are scored on.
    """

    scores: Array
    settings: pd.DataFrame
    silent: NDArray[np.bool_]
    images: ImageEffects | None

    def at(self, rows: Codes, columns: Codes | slice = _ALL) -> Side:
        """The part of it that these rows are, with these columns of scores."""
        images = self.images and self.images.rows(rows)
        scores, settings = self.scores[rows][:, columns], self.settings.iloc[rows]
        return Side(scores, settings, self.silent[rows], images)


@dataclass(frozen=True, eq=False)
class Pairing:
    """Two objectives made comparable.

    Attributes:
        a, b: the two sides.
        paired: whether row i of one side belongs to row i of the other: the same settings.
        crossed: whether seed s does too; then a cell has a score on both sides or on neither.
        fixed: the settings are all there are (a grid), so that the uncertainty is the seeds';
            otherwise a sample.
        notes: what was averaged and left out.
        same_seeds: whether column s of both sides is one seed; so of all that are crossed.
        rows: of a part, those of both sides that it is of.
    """

    a: Side
    b: Side
    paired: bool
    crossed: bool
    fixed: bool
    notes: tuple[Note, ...]
    same_seeds: bool
    rows: tuple[Codes, Codes]

    @property
    def num_pairs(self) -> int:
        """Pairs of a score of each side at a setting; 0 where settings are not paired."""
        counts = [np.isfinite(side.scores).sum(axis=1) for side in (self.a, self.b)]
        return int(np.minimum(*counts).sum()) if self.paired else 0

    def split(self, regions: Regions | None) -> dict[str, Pairing]:
        """The regions in which both sides have a score, each by its label; all of it where there
        are none.
        """
        if not len(self.a.scores) or not len(self.b.scores):
            return {}
        if regions is None:
            return {"": self}
        places = [regions.place(side.settings[regions.param]) for side in (self.a, self.b)]
        parts = {}
        for k, label in enumerate(regions.named):
            rows = [np.flatnonzero(at == k) for at in places]
            if all(map(len, rows)):
                a, b = self.a.at(rows[0]), self.b.at(rows[1])
                parts[label] = replace(self, a=a, b=b, rows=(rows[0], rows[1]))
        return parts


def unmatched(a: Sweep, b: Sweep) -> Note | None:
    """A note that an objective with scores at one setting alone has no counterpart: the other
    sweeps hyperparameters that both have, and has no score at that setting.

    Its score against the other's mean would tell settings apart, not objectives.
    """
    shared, settings, codes = _matched(a, b)
    at_a, at_b = np.unique(codes[0][a.alive]), np.unique(codes[1][b.alive])
    if not shared or min(len(at_a), len(at_b)) > 1 or np.isin(at_a, at_b).any():
        return None
    at, lone, other = (0, a, b) if len(at_a) == 1 else (1, b, a)
    row = settings[at][lone.alive].iloc[0]
    text = ", ".join(f"{name}={mentioned(row[name])}" for name in shared)
    return note(Reason.NO_COUNTERPART, a=lone.objective, at=text, b=other.objective)


@lru_cache(_CACHE_SIZE)
def pair(a: Sweep, b: Sweep) -> Pairing:
    """Pairs two objectives over the settings of the hyperparameters that both sweep, and over their
    common seeds.

    Configurations that share such a setting are averaged seed by seed. Unpaired where fewer than
    half of the smaller side's settings have a partner: then each side keeps its own configurations
    and seeds. An objective of one configuration is paired with the setting of the other that has
    its values. Seeds are paired by label, those with other labels in their order. Where less than
    half of the pairs that could be have a label in common, none are: the scores of a setting are
    noise of each side's own.
    """
    shared, (settings, _), (codes_a, codes_b) = _matched(a, b)
    fixed = a.is_grid and b.is_grid
    common = np.intersect1d(codes_a, codes_b)
    num_a, num_b = len(np.unique(codes_a)), len(np.unique(codes_b))
    is_lone = not a.params and not b.params
    is_apart = not (is_lone or shared) or 2 * len(common) < min(num_a, num_b)
    if is_apart:
        why = Reason.UNPAIRED_FEW_MATCH if shared else Reason.UNPAIRED_NONE_SHARED
        unpaired = note(why, a=int(a.alive.sum()), b=int(b.alive.sum()))
        notes = (unpaired, *_lost(a), *_lost(b))
        return _apart(a, b, fixed, notes)
    averaged = []
    for sweep in (a, b):
        if further := tuple(name for name in sweep.params if name not in shared):
            about = note(Reason.AVERAGED, params=further).of(sweep.objective)
            averaged += [about, *_lost(sweep)]
    if num_a != len(common) or num_b != len(common):
        averaged.append(note(Reason.COMMON_SETTINGS, common=len(common), a=num_a, b=num_b))
    scores_a, scores_b = _averages(a.scores, codes_a, common), _averages(b.scores, codes_b, common)
    scores_a, scores_b, crossed, seed_notes = _common_seeds(a, b, scores_a, scores_b)
    has_scores = np.isfinite(scores_a).any(axis=1) & np.isfinite(scores_b).any(axis=1)
    if crossed:
        both = np.isfinite(scores_a) & np.isfinite(scores_b)
        if missing := int((~both).sum()):
            averaged.append(note(Reason.PAIRS_LEFT_OUT, lost=missing, pairs=both.size))
        scores_a, scores_b = (np.where(both, scores, np.nan) for scores in (scores_a, scores_b))
        has_scores = both.any(axis=1)
    # Rows and seeds in an order that the scores alone make, so that no random draw hangs on the
    # order of trials or the labels of seeds.
    first = np.unique(codes_a, return_index=True)[1][np.searchsorted(np.unique(codes_a), common)]
    settings = settings.iloc[first[has_scores]].reset_index(drop=True)
    tables = [scores_a[has_scores], scores_b[has_scores]]
    rows, by_seed = _order(*tables), [table.T for table in tables]
    scored, sides = common[has_scores], []
    for sweep, table, codes in zip((a, b), tables, (codes_a, codes_b), strict=True):
        silent = ~np.isin(scored, codes[sweep.alive & ~sweep.silent])
        side = Side(table, settings, silent, _images(sweep, codes, scored))
        sides.append(side.at(rows, _order(*(by_seed if crossed else [table.T]))))
    notes, every = (*averaged, *seed_notes), np.arange(len(rows))
    is_fixed = fixed or len(common) == 1
    return Pairing(sides[0], sides[1], True, crossed, is_fixed, notes, crossed, (every, every))


def _apart(a: Sweep, b: Sweep, fixed: bool, notes: tuple[Note, ...]) -> Pairing:
    """All that each side has a score of; columns that are the same seeds stay side by side."""
    same = np.array_equal(a.seeds, b.seeds)
    sides = [_alone(sweep, in_order=not same) for sweep in (a, b)]
    rows = tuple(np.arange(len(side.scores)) for side in sides)
    return Pairing(sides[0], sides[1], False, False, fixed, notes, same, (rows[0], rows[1]))


@lru_cache(_CACHE_SIZE)
def _alone(sweep: Sweep, *, in_order: bool) -> Side:
    """All that an objective has a score of, its rows, and its columns where asked, in an order of
    its own.
    """
    table, images = sweep.scores[sweep.alive], sweep.images
    images = images and images.rows(sweep.alive)
    columns = _order(table.T) if in_order else _ALL
    side = Side(table, sweep.settings[sweep.alive], sweep.silent[sweep.alive], images)
    return side.at(_order(table), columns)


def _images(sweep: Sweep, codes: Codes, settings: Codes) -> ImageEffects | None:
    """Those of the settings, over the configurations that share one."""
    if (images := sweep.images) is None:
        return None
    rows = np.flatnonzero(sweep.alive & np.isin(codes, settings))
    return images.rows(rows).averaged(np.searchsorted(settings, codes[rows]), len(settings))


def _order(*tables: Array) -> Codes:
    """Rows by their means, then by their spread, which no unit of the scores turns round."""
    keys = []
    for table in tables:
        present = np.isfinite(table)
        count = np.maximum(present.sum(axis=1), 1)
        # Sorted, so that the sums are the same to the last digit.
        means = np.sort(np.where(present, table, 0.0), axis=1).sum(axis=1) / count
        left = np.where(present, table - means[:, None], 0.0)
        keys += [np.sort(np.square(left), axis=1).sum(axis=1), means]
    return np.lexsort(keys).astype(np.int64)


@lru_cache(_CACHE_SIZE)
def _matched(
    a: Sweep, b: Sweep
) -> tuple[list[str], tuple[pd.DataFrame, pd.DataFrame], tuple[Codes, Codes]]:
    """The hyperparameters by which two sweeps are paired, the settings of both, and a number per
    row, equal where all settings are equal; a missing value equals a missing value.

    They are those that both sweep, or, of one configuration, those that the other sweeps.
    """
    known = [
        list(sweep.params) or [name for name in other.params if name in sweep.constants]
        for sweep, other in ((a, b), (b, a))
    ]
    shared = [name for name in known[0] if name in known[1]]
    settings_a, settings_b = (
        sweep.settings[shared]
        if sweep.params
        else pd.DataFrame({name: sweep.constants[name] for name in shared}, sweep.settings.index)
        for sweep in (a, b)
    )
    codes = np.zeros(len(settings_a) + len(settings_b), dtype=np.int64)
    for name in shared:
        sides = [settings_a[name], settings_b[name]]
        column = pd.concat(sides, ignore_index=True)
        is_numeric = all(map(pd.api.types.is_numeric_dtype, sides))
        keys = pd.Series(rounded(numbers_in(column))) if is_numeric else column.map(str)
        level, uniques = pd.factorize(keys, use_na_sentinel=False)
        codes = pd.factorize(codes * len(uniques) + level)[0].astype(np.int64)
    num = len(settings_a)
    return shared, (settings_a, settings_b), (codes[:num], codes[num:])


def _averages(scores: Array, codes: Codes, common: Codes) -> Array:
    """Scores (C, S) of the common settings: the average over the configurations of each, seed by
    seed.

    cell_s = mean_k m_k + mean over the k present at s of (x_ks - m_k), m_k = mean of configuration
    k over its seeds, so that a missing score does not let the other configurations stand for the
    average. A configuration without any score is left out.
    """
    present = np.isfinite(scores)
    alive = present.any(axis=1)
    is_used = alive & np.isin(codes, common)
    rows, present = np.searchsorted(common, codes[is_used]), present[is_used]
    filled = scores[is_used]
    means = np.where(present, filled, 0.0).sum(axis=1) / present.sum(axis=1)
    level, size = np.zeros(len(common)), np.zeros(len(common))
    np.add.at(level, rows, means)
    np.add.at(size, rows, 1.0)
    noise, num = np.zeros((len(common), scores.shape[1])), np.zeros((len(common), scores.shape[1]))
    np.add.at(noise, rows, np.where(present, filled - means[:, None], 0.0))
    np.add.at(num, rows, present.astype(float))
    cells = (level / np.maximum(size, 1))[:, None] + noise / np.maximum(num, 1)
    return np.where(num > 0, cells, np.nan)


def _common_seeds(
    a: Sweep, b: Sweep, scores_a: Array, scores_b: Array
) -> tuple[Array, Array, bool, list[Note]]:
    """The seeds of both, by label, and whether they are paired: not where hardly any is in both.

    Those that either side alone has are paired in their order: so no score is lost to its label.
    """
    common, at_a, at_b = np.intersect1d(a.seeds, b.seeds, return_indices=True)
    has_a, has_b = np.isfinite(scores_a), np.isfinite(scores_b)
    possible = np.minimum(has_a.sum(axis=1), has_b.sum(axis=1)).sum()
    if 2 * (has_a[:, at_a] & has_b[:, at_b]).sum() < possible:
        return scores_a, scores_b, False, [note(Reason.SEEDS_BY_ORDER)]
    alone = [np.flatnonzero(~np.isin(sweep.seeds, common)) for sweep in (a, b)]
    num = min(map(len, alone))
    paired, left = ([some[at] for some in alone] for at in (slice(num), slice(num, None)))
    named = [tuple(x.seeds[at].tolist()) for x, at in zip((a, b, a, b), paired + left, strict=True)]
    notes = [note(Reason.SEEDS_IN_ORDER, a=named[0], b=named[1])] if num else []
    for sweep, seeds in zip((a, b), named[2:], strict=True):
        notes += [note(Reason.SEEDS_LEFT_OUT, seeds=seeds).of(sweep.objective)] if seeds else []
    at_a, at_b = np.append(at_a, paired[0]), np.append(at_b, paired[1])
    return scores_a[:, at_a], scores_b[:, at_b], True, notes


def _lost(sweep: Sweep) -> list[Note]:
    return [each.of(sweep.objective) for each in sweep.lost(Reason.LEFT_OUT)]
