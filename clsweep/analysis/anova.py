"""Shares of the variance over a full grid: main effects, two-way interactions, the rest, and seed
noise.

Shape legend: n = cells = product of the levels L_p of the parameters, S = seeds. The grid is the
space: every cell has the same weight, so the decomposition of the cell means into effects is
orthogonal and exact.

    V_u     = mean over the cells of effect_u^2,  sum_u V_u = Var(cell means)
    df_u    = prod_{p in u} (L_p - 1)
    c       = s_w^2 mean_i(1 / S_i), the noise variance of a cell mean
    V*_u    = max(0, V_u - df_u c / n)
    share_u = V*_u / (sum_u V*_u + s_w^2),  that of the seed noise = s_w^2 / (sum_u V*_u + s_w^2)

So the shares are of the variance of one trial (one cell, one seed), as those of omega^2, and do not
depend on S.

Cells that are copies of each other (`copies`) carry one draw of the noise. With G_ij = 1 where i
and j are copies, and P_u the projection on effect u, n V_u / c has the moments of a quadratic form
under no effect (Box 1954): with t = tr(P_u G) and t2 = tr((P_u G)^2), it is t2 / t times a
chi-square of t^2 / t2 degrees of freedom. Those take the place of 1 and df_u in all of the above.

Where the noise differs between cells (`is_even` at `UNEVEN`), G_ii is s_i^2 / s_w^2, and s_w^2 has
as many degrees of freedom as its own moments say (Satterthwaite 1946).

Seeds are blocks (`score_table.seed_blocks`), and cell means with gaps least-squares ones: what a
seed gives to all cells is in s_w^2, the noise of one trial, but not in c, as it moves no cell mean
against another.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from clsweep.analysis import CONFIDENCE, POWER, TAIL, bootstrap
from clsweep.analysis.array_types import Array
from clsweep.analysis.holm import holm
from clsweep.analysis.reasons import Note, Reason, note
from clsweep.analysis.score_table import adjusted_for_seeds, noise_variance, row_means, seed_blocks
from clsweep.analysis.sweep import Sweep

NOISE, HIGHER = "seed noise", "higher interactions"
_UNEVEN_LEVEL = 0.1  # level of the test whether noise differs between cells
MAX_SEEDS = 1000  # an effect that needs more is as good as none
OUTSIDE = 0.1  # chance that an effect needs fewer seeds than the range says, or more
# An evenly spread set: 256 of its points tell a quantile as well as thousands of random ones.
LOG2_DRAWS = 8
LARGE = 2e3  # above it the square root of a noncentral chi-square is as good as normal


def grid_of(sweep: Sweep) -> tuple[Array, NDArray[np.intp]] | None:
    """Scores as an array (L_1, ..., L_d, S) where the configurations with a score are a complete
    grid, and which of these each cell is; else None.

    Values of which every trial failed are no level: what is left may still be complete.
    """
    settings = sweep.settings.loc[sweep.alive, list(sweep.params)]
    codes = [settings[name].factorize(use_na_sentinel=False)[0] for name in sweep.params]
    shape = tuple(int(code.max()) + 1 for code in codes)
    if np.prod([float(size) for size in shape]) != len(settings):
        return None
    place = np.ravel_multi_index(codes, shape)
    if len(np.unique(place)) != len(place):
        return None
    order = np.argsort(place)
    return sweep.scores[sweep.alive][order].reshape(*shape, -1), order


@dataclass(frozen=True)
class Effect:
    """V_u of an effect, and the moments of n V_u / c where there is none: `inflation` times a
    chi-square of `freedom`.
    """

    variance: float
    freedom: float
    inflation: float = 1.0

    @property
    def expected(self) -> float:
        """Of n V_u / c where there is no effect."""
        return self.inflation * self.freedom

    def without(self, other: "Effect") -> "Effect":
        """The rest of the whole when an effect is taken out."""
        freedom = max(self.freedom - other.freedom, 0.0)
        inflation = max(self.expected - other.expected, 0.0) / freedom if freedom > 0 else 1.0
        return Effect(max(self.variance - other.variance, 0.0), freedom, inflation)


def effects_of(means: Array, noise: "CellNoise") -> dict[tuple[int, ...], Effect]:
    """The main effects and two-way interactions of cell means (L_1, ..., L_d); () holds the rest.

    effect_u = the means averaged over the axes not in u, centred along every axis of u.
    """
    moments, num_axes = dict[tuple[int, ...], tuple[float, int]](), means.ndim
    for term in [u for order in (1, 2) for u in combinations(range(num_axes), order)]:
        if freedom := int(np.prod([means.shape[axis] - 1 for axis in term])):
            squares = np.square(effect_of(means, term, num_axes))
            moments[term] = float(np.mean(squares)), freedom
    rest = means.size - 1 - sum(freedom for _, freedom in moments.values())
    if num_axes > 2 and rest > 0:
        left = float(np.var(means)) - sum(variance for variance, _ in moments.values())
        moments[()] = max(left, 0.0), rest
    if noise.roots is None:
        return {term: Effect(*each) for term, each in moments.items()}
    roots = noise.roots.reshape(*means.shape, -1)
    return {
        term: noise.part(variance, effect_of(roots, term, num_axes))
        for term, (variance, _) in moments.items()
    }


def effect_of(means: Array, term: tuple[int, ...], num_axes: int) -> Array:
    """Means averaged over the axes not in `term`, centred along every axis of it; further axes are
    kept. An empty term: what main effects and pairs leave.
    """
    if not term:
        pairs = [u for order in (1, 2) for u in combinations(range(num_axes), order)]
        centred = means - means.mean(axis=tuple(range(num_axes)), keepdims=True)
        return np.asarray(centred - sum(effect_of(means, u, num_axes) for u in pairs))
    others = tuple(axis for axis in range(num_axes) if axis not in term)
    effect = means.mean(axis=others, keepdims=True)
    for axis in term:
        effect = effect - effect.mean(axis=axis, keepdims=True)
    return np.broadcast_to(effect, means.shape)


def anova(
    cells: Array,
    names: Sequence[str],
    *,
    groups: NDArray[np.intp] | None = None,
    silent: NDArray[np.bool_] | None = None,
) -> tuple[list[dict[str, Any]], list[Note]]:
    """Rows of the sensitivity table for a complete grid (L_1, ..., L_d, S), and notes.

    F_u = (n V_u / df_u) / c on df_u and the residual's degrees of freedom; `resolved` = p < 1 -
    confidence after Holm over all effects. Shares and intervals (`_share_interval`) stand whether
    an effect passes or not. Unequal seeds: c is the mean over the cells, so F is approximate.
    `null` is the share at which a single test just passes. One seed: the shares are of the variance
    of the means.

    groups: (n,) of copies among the cells, each has its own by default. silent: (n,) cells whose
    scores are the level of failed trials, without noise.
    """
    values = cells.reshape(-1, cells.shape[-1])
    groups = np.arange(len(values)) if groups is None else groups
    silent = np.zeros(len(values), dtype=bool) if silent is None else silent
    even = values.copy()
    even[~silent] = adjusted_for_seeds(values[~silent])
    means = row_means(even).reshape(cells.shape[:-1])
    noise = cell_noise(values, groups, silent, float(means.var()))
    effects = effects_of(means, noise)
    named = {
        term: {"term": " x ".join(names[axis] for axis in term) or HIGHER, "order": len(term) or 3}
        for term in effects
    }
    rows: list[dict[str, Any]] = []
    if not noise.freedom:
        for term, part in effects.items():
            row = named[term] | {"first": part.variance / means.var(), "resolved": False}
            if len(term) == 1:
                row["total"] = 1.0 - float(means.mean(axis=term[0]).var() / means.var())
            rows.append(row)
        return rows, [note(Reason.SHARES_WITH_NOISE)]

    p_values = np.array([noise.p_value(part) for part in effects.values()])
    rows = _shares(means, effects, noise)  # the last is of the seed noise
    num_seeds = float(np.mean(np.isfinite(values).sum(axis=1)))
    level = (1.0 - CONFIDENCE) / max(sum(part.freedom > 0 for part in effects.values()), 1)
    num_cells = sum(means.shape[u[0]] * means.shape[u[1]] for u in effects if len(u) == 2)
    alone, tests = [], int(np.isfinite(p_values).sum())
    ps = zip(p_values, holm(p_values), strict=True)
    for (term, part), row, (own, p) in zip(effects.items(), rows, ps, strict=False):
        row |= named[term] | {"resolved": bool(p < 1.0 - CONFIDENCE)}
        if own < 1.0 - CONFIDENCE <= p:
            alone.append(note(Reason.RESOLVED_ALONE, tests=tests).of(str(row["term"])))
        if not row["resolved"] and part.freedom:
            row |= _needed(part, noise, num_seeds, level)
        if len(term) == 2:
            row |= _largest(means, term, noise, num_cells)
    return rows, [*noise.notes, *alone]


def _shares(
    means: Array, effects: Mapping[tuple[int, ...], Effect], noise: "CellNoise"
) -> list[dict[str, Any]]:
    """The shares of the effects and their intervals, then those of the seed noise."""
    rows: list[dict[str, Any]] = []
    total = sum(noise.corrected(part) for part in effects.values()) + noise.variance
    everything = _everything(means, noise)

    def with_interval(column: str, value: float, part: Effect) -> dict[str, float]:
        low, high = _share_interval(part, everything.without(part), noise)
        return {column: value, f"{column}_low": min(low, value), f"{column}_high": max(high, value)}

    for term, effect in effects.items():
        first = noise.corrected(effect) / total
        row = with_interval("first", first, effect)
        if len(term) == 1:
            part = everything.without(_everything(means, noise, term[0]))
            row |= with_interval("total", max(first, min(1.0, noise.corrected(part) / total)), part)
            for end in ("low", "high"):
                row[f"total_{end}"] = max(row[f"total_{end}"], row[f"first_{end}"])
        passing = effect
        if effect.freedom:
            f = float(special.fdtri(effect.freedom, noise.freedom, CONFIDENCE))
            variance = f * effect.expected * noise.per_mean / noise.num_cells
            passing = replace(effect, variance=variance)
        row["null"] = min(1.0, noise.corrected(passing) / total)
        rows.append(row)
    low, high = _share_interval(everything, Effect(0.0, 0.0), noise)
    share = noise.variance / total
    ends = {"first_low": min(1.0 - high, share), "first_high": max(1.0 - low, share)}
    return [*rows, {"term": NOISE, "order": 0, "first": share, "resolved": False} | ends]


@dataclass(frozen=True)
class CellNoise:
    """The noise of a trial, that of a cell mean, and how well they are known.

    Attributes:
        variance: s_w^2, of one trial, 0 in cells that are silent.
        residual: of one trial elsewhere, without the seeds' effects, on `freedom` degrees.
        per_mean: c.
        shift: mean square of the seeds on `shift_freedom`; 0 where they are no blocks.
        num_rows: cells that this is of; of seeds with gaps as many as a whole table would have.
        roots: (n, groups) the root of G, a column for each group of copies; None where noise is
            even and no cell a copy or silent.
    """

    variance: float
    residual: float
    per_mean: float
    freedom: float
    num_cells: int
    shift: float = 0.0
    shift_freedom: float = 0
    num_rows: float = 1
    roots: Array | None = None
    notes: tuple[Note, ...] = ()

    def part(self, variance: float, shares: Array) -> Effect:
        """An effect whose P_u times `roots` is (L_1, ..., L_d, groups)."""
        shares = shares.reshape(self.num_cells, -1)
        gram = shares.T @ shares
        trace, square = float(np.trace(gram)), float(np.square(gram).sum())
        if trace <= 1e-9:  # what is equal in all copies: nothing is seen of it, not even noise
            return Effect(variance, 0.0)
        return Effect(variance, trace**2 / square, square / trace)

    def corrected(self, part: Effect) -> float:
        """V* = max(0, V - df c / n)."""
        return max(0.0, part.variance - part.expected * self.per_mean / self.num_cells)

    def p_value(self, part: Effect) -> float:
        """Of no effect, by F = (n V / df) / c."""
        if not part.freedom:
            return 1.0
        test = self.num_cells * part.variance / (part.expected * self.per_mean)
        return float(special.fdtrc(part.freedom, self.freedom, test))

    def drawn(self, points: Array) -> tuple[Array, Array]:
        """Draws of the residual as a share of the one that was seen, and of the variance."""
        scale = self.freedom / special.chdtri(self.freedom, points[:, 2])
        if not self.shift_freedom:
            return scale, self.variance * scale
        of_seeds = self.shift * self.shift_freedom
        of_seeds = of_seeds / special.chdtri(self.shift_freedom, points[:, 3])
        residual = self.residual * scale
        return scale, residual + np.maximum(of_seeds - residual, 0.0) / self.num_rows


def cell_noise(
    values: Array, groups: NDArray[np.intp], silent: NDArray[np.bool_], spread: float
) -> CellNoise:
    """The noise of cells (n, S), of which copies count once and silent ones not; spread: the
    variance of their means.

    Scores that repeat to the last bit have no noise to test against: then every effect that is seen
    is one.
    """
    rows = np.flatnonzero(~silent)
    firsts, codes = np.unique(groups[rows], return_index=True, return_inverse=True)[1:]
    own, least = values[rows[firsts]], 1e-12 * spread
    counts = np.isfinite(own).sum(axis=1)
    freedom = int((counts - 1).sum())
    num = len(values)
    if not freedom:
        return CellNoise(0.0, 0.0, 0.0, 0, num)
    mean_count = float(np.mean(1.0 / counts[codes]))
    blocks = seed_blocks(own) if len(own) > 1 else None
    still = blocks.without(own) if blocks else own
    variance, residual = (max(float(noise_variance(x)), least) for x in (own, still))
    plain = CellNoise(
        variance=variance * len(rows) / num,
        residual=residual,
        per_mean=residual * mean_count,
        freedom=freedom - (blocks.freedom if blocks else 0),
        num_cells=num,
        shift=blocks.mean_square if blocks else 0.0,
        shift_freedom=blocks.freedom if blocks else 0,
        num_rows=blocks.rows if blocks else len(own),
    )
    squares, known = noise_variance(still[:, None, :]), counts > 1
    is_uneven = not is_even(squares[known], counts[known] - 1)
    variances = np.where(known & is_uneven, squares, residual)
    if is_uneven or len(own) < num:
        roots = np.zeros((num, len(own)))
        roots[rows, codes] = np.sqrt(variances / residual)[codes]
        plain = replace(plain, roots=roots)
    if is_uneven:
        sums = variances * (counts - 1)
        left = float(sums.sum() ** 2 / (np.square(sums) / np.maximum(counts - 1, 1)).sum())
        return replace(plain, freedom=left, notes=(note(Reason.UNEVEN_CELLS),))
    return plain


def is_even(squares: Array, freedom: Array) -> bool:
    """True where variances on so many degrees of freedom may all be the same, by the largest share
    of their sum (Cochran 1941), p by Bonferroni.
    """
    sums = squares * freedom
    if len(sums) < 2 or not sums.sum() > 0:
        return True
    rest = freedom.sum() - freedom
    p_values = special.betaincc(freedom / 2, rest / 2, sums / sums.sum())
    return bool(p_values.min() * len(sums) >= _UNEVEN_LEVEL)


def _everything(means: Array, noise: CellNoise, without: int | None = None) -> Effect:
    """All effects, or all that do not involve one parameter: the means averaged over it."""
    averaged = means if without is None else means.mean(axis=without)
    if noise.roots is None:
        return Effect(float(averaged.var()), averaged.size - 1)
    shares = noise.roots.reshape(*means.shape, -1)
    shares = shares - shares.mean(axis=tuple(range(means.ndim)), keepdims=True)
    if without is not None:
        shares = np.broadcast_to(shares.mean(axis=without, keepdims=True), shares.shape)
    return noise.part(float(averaged.var()), shares)


def _share_interval(part: Effect, rest: Effect, noise: CellNoise) -> tuple[float, float]:
    """Generalised confidence interval of V_part / (V_part + V_rest + sigma^2) (Weerahandi 1993).

    Given sigma^2, n V / c is noncentral chi-square, so its noncentrality n V_true / c has an exact
    confidence distribution: the one that puts the observed value at a uniform quantile. Draws of it
    for the part and for the rest, and sigma^2 = df s_w^2 / chi2(df), give draws of the share.

    V* is 0 for all V <= df c / n, so all have the interval of the largest: what lies far below
    shows noise that was low by chance, and not that there is no effect.
    """
    from scipy.stats import qmc

    least = part.expected * noise.per_mean / noise.num_cells
    part = replace(part, variance=max(part.variance, least))
    dimensions = 4 if noise.shift_freedom else 3
    points = qmc.Sobol(dimensions, scramble=False).random_base2(LOG2_DRAWS)
    points = (points + np.random.default_rng(bootstrap.DRAWS_SEED).random(dimensions)) % 1.0
    scale, variance = noise.drawn(points)
    num_over_c = noise.num_cells / (noise.per_mean * scale)
    drawn = []
    for each, quantile in zip((part, rest), points[:, :2].T, strict=True):
        seen = np.full(len(points), each.variance)
        if each.expected > 0:
            observed = each.variance * num_over_c / each.inflation
            true = _noncentrality(observed, each.freedom, quantile)
            seen = true * each.inflation / num_over_c
        drawn.append(seen)
    shares = drawn[0] / (drawn[0] + drawn[1] + variance)
    low, high = np.quantile(shares, [TAIL, 1.0 - TAIL])
    return float(low), float(high)


def _noncentrality(observed: Array, freedom: float, quantile: Array) -> Array:
    """The noncentrality at which `observed` is that quantile of its chi-square; 0 for none."""
    root = np.sqrt(np.maximum(observed - freedom + 1, 0.0)) - special.ndtri(quantile)
    is_some = special.chdtr(freedom, observed) > quantile
    noncentrality = np.where(is_some, np.square(np.maximum(root, 0.0)), 0.0)
    is_small = is_some & (observed <= LARGE)
    special.chndtrinc(observed, freedom, quantile, out=noncentrality, where=is_small)
    return np.nan_to_num(noncentrality)


def _needed(part: Effect, noise: CellNoise, num_seeds: float, level: float) -> dict[str, float]:
    """Seeds per cell for 80 % power at this level: for the effect as it was seen, and for the ends
    of its one-sided 90 % intervals (inf: more than `MAX_SEEDS`).

    F is noncentral with n V_true / c; the ends are those at which the F seen is its 10 % and its
    90 % quantile (`scipy.special.ncfdtrinc`).
    """
    from scipy.stats import ncf

    per_mean = noise.per_mean * part.inflation / noise.num_cells
    f = part.variance / (per_mean * part.freedom)
    candidates = range(int(num_seeds) + 1, MAX_SEEDS + 1)
    known = noise.freedom / max(num_seeds - 1, 1)  # degrees of freedom of one more seed

    def seeds(noncentrality: float) -> float:
        def power(seeds: int) -> float:
            freedom = known * (seeds - 1)
            quantile = special.fdtri(part.freedom, freedom, 1.0 - level)
            centre = noncentrality * seeds / num_seeds
            return float(ncf.sf(quantile, part.freedom, freedom, centre))

        if noncentrality <= 0 or power(MAX_SEEDS) < POWER:
            return np.inf
        return float(candidates[bisect_left(candidates, POWER, key=power)])

    def end(quantile: float) -> float:
        if special.fdtr(part.freedom, noise.freedom, f) <= quantile:
            return 0.0
        return float(special.ncfdtrinc(part.freedom, noise.freedom, quantile, f))

    low, high = seeds(end(OUTSIDE)), seeds(end(1.0 - OUTSIDE))
    seen = seeds(noise.corrected(part) / per_mean)
    return {"needs_seeds": seen, "needs_low": low, "needs_high": high}


def _largest(
    means: Array, term: tuple[int, ...], noise: CellNoise, num_looks: int
) -> dict[str, float]:
    """The largest interaction effect of a pair: its cell (as flat index), and its t-interval that
    allows for a look at `num_looks` cells (Bonferroni).

    Var(effect_i) = c (P G P)_ii, P the projection on the pair's interaction: without copies and
    uneven noise c df / n. Where two cells deviate alike, as in two columns, it is the one whose
    mean lies furthest out.
    """
    effect = effect_of(means, term, means.ndim).ravel()
    others = tuple(axis for axis in range(means.ndim) if axis not in term)
    level = np.broadcast_to(means.mean(axis=others, keepdims=True), means.shape).ravel()
    size = np.abs(effect)
    ties = np.flatnonzero(size >= size.max() * (1 - 1e-9))
    at = int(ties[np.abs(level[ties] - np.median(level)).argmax()])
    if noise.roots is None:
        freedom = np.prod([means.shape[axis] - 1 for axis in term])
        share = float(freedom) / means.size
    else:
        roots = effect_of(noise.roots.reshape(*means.shape, -1), term, means.ndim)
        share = float(np.square(roots.reshape(means.size, -1)[at]).sum())
    reach = -special.stdtrit(noise.freedom, TAIL / num_looks) * np.sqrt(noise.per_mean * share)
    row = {"cell": at, "effect": effect[at], "effect_low": effect[at] - reach}
    return row | {"effect_high": effect[at] + reach}
