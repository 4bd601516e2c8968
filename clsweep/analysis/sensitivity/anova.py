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
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy import special, stats
from scipy.stats import qmc

from clsweep.analysis import resample
from clsweep.analysis.holm import holm
from clsweep.analysis.reasons import Note, Reason, note
from clsweep.analysis.sweep import Array, Sweep

NOISE, HIGHER = "seed noise", "higher interactions"
POWER = 0.8
MAX_SEEDS = 1000  # an effect that needs more is as good as none
# An evenly spread set: 256 of its points tell a quantile as well as thousands of random ones.
LOG2_DRAWS = 8
LARGE = 2e3  # above it the square root of a noncentral chi-square is as good as normal


def cells_of(sweep: Sweep) -> Array | None:
    """Scores as an array (L_1, ..., L_d, S) where the configurations with a score are a complete
    grid, else None.

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
    table = np.empty((len(place), sweep.scores.shape[1]))
    table[place] = sweep.scores[sweep.alive]
    return table.reshape(*shape, -1)


def decompose(means: Array) -> dict[tuple[int, ...], tuple[float, int]]:
    """(V_u, df_u) of the main effects and two-way interactions of cell means (L_1, ..., L_d); ()
    holds the rest.

    effect_u = the means averaged over the axes not in u, centred along every axis of u.
    """
    axes, out = range(means.ndim), {}
    for term in [u for order in (1, 2) for u in combinations(axes, order)]:
        effect = means.mean(axis=tuple(a for a in axes if a not in term), keepdims=True)
        for axis in term:
            effect = effect - effect.mean(axis=axis, keepdims=True)
        freedom = int(np.prod([means.shape[axis] - 1 for axis in term]))
        if freedom:
            out[term] = float(np.mean(np.square(effect))), freedom
    if means.ndim > 2:
        rest = float(np.var(means)) - sum(share for share, _ in out.values())
        out[()] = max(rest, 0.0), means.size - 1 - sum(freedom for _, freedom in out.values())
    return {term: value for term, value in out.items() if value[1] > 0}


def anova(
    cells: Array, names: Sequence[str], *, confidence: float, seed: int
) -> tuple[list[dict[str, Any]], list[Note]]:
    """Rows of the sensitivity table for a complete grid (L_1, ..., L_d, S), and notes.

    No rows where no effect passes its F test against the seed noise: the notes then say what it
    would take.

    F_u = (n V_u / df_u) / c on df_u and sum_i (S_i - 1) degrees of freedom; `resolved` = p < 1 -
    confidence after Holm over all effects. Unequal seeds: c is the mean over the cells, so F is
    approximate. `null` is the share at which a single test just passes. One seed: the noise is not
    known, so the shares are of the variance of the means. Intervals: see `_share_interval`.
    """
    values = cells.reshape(-1, cells.shape[-1])
    means = resample.row_means(values).reshape(cells.shape[:-1])
    effects = decompose(means)
    texts = {term: " x ".join(names[axis] for axis in term) or HIGHER for term in effects}
    orders = {term: len(term) or 3 for term in effects}
    rows: list[dict[str, Any]]
    if not (np.isfinite(values).sum(axis=1) > 1).any():
        shares = {term: share / means.var() for term, (share, _) in effects.items()}
        rows = [
            {"term": texts[u], "order": orders[u], "first": x, "resolved": False}
            for u, x in shares.items()
        ]
        for term, row in zip(effects, rows, strict=True):
            if len(term) == 1:
                row["total"] = 1.0 - _without(means, term[0])[0] / means.var()
        return rows, [note(Reason.SHARES_WITH_NOISE)]

    counts = np.isfinite(values).sum(axis=1)
    noise, freedom = float(resample.noise_variance(values)), int((counts - 1).sum())
    # Scores that repeat to the last bit have no noise to test against: then every effect that is
    # seen is one.
    noise = max(noise, 1e-12 * float(means.var()))
    per_mean = noise * float(np.mean(1.0 / counts))
    cell_noise = _CellNoise(noise, per_mean, freedom, means.size)
    tests = {u: means.size * share / df / per_mean for u, (share, df) in effects.items()}
    p_values = np.array([float(stats.f.sf(tests[u], effects[u][1], freedom)) for u in effects])
    p_holm = dict(zip(effects, holm(p_values).tolist(), strict=True))
    if min(p_holm.values()) >= 1.0 - confidence:
        needed = _needed(effects, cell_noise, float(np.mean(counts)), confidence)
        return [], [note(Reason.NO_EFFECT_PASSES), needed]

    corrected = {u: cell_noise.corrected(*part) for u, part in effects.items()}
    total, everything = sum(corrected.values()) + noise, (float(means.var()), means.size - 1)

    def with_interval(column: str, value: float, part: tuple[float, int]) -> dict[str, float]:
        low, high = _share_interval(
            part, _difference(everything, part), cell_noise, confidence, seed
        )
        return {column: value, f"{column}_low": min(low, value), f"{column}_high": max(high, value)}

    rows = []
    for term, (share, df) in effects.items():
        first = corrected[term] / total
        row = {
            "term": texts[term],
            "order": orders[term],
            **with_interval("first", first, (share, df)),
        }
        if len(term) == 1:
            part = _difference(everything, _without(means, term[0]))
            row |= with_interval(
                "total", max(first, min(1.0, cell_noise.corrected(*part) / total)), part
            )
        passing = float(stats.f.ppf(confidence, df, freedom))
        row["null"] = cell_noise.corrected(passing * df * per_mean / means.size, df) / total
        rows.append(row | {"resolved": p_holm[term] < 1.0 - confidence})
    low, high = _share_interval(everything, (0.0, 0), cell_noise, confidence, seed)
    rows.append({"term": NOISE, "order": 0, "first": noise / total, "resolved": False})
    rows[-1] |= {
        "first_low": min(1.0 - high, noise / total),
        "first_high": max(1.0 - low, noise / total),
    }
    return rows, []


@dataclass(frozen=True)
class _CellNoise:
    """s_w^2, the noise c of a cell mean, the degrees of freedom of both, and the number of
    cells.
    """

    variance: float
    per_mean: float
    freedom: int
    num_cells: int

    def corrected(self, share: float, freedom: int) -> float:
        """V* = max(0, V - df c / n)."""
        return max(0.0, share - freedom * self.per_mean / self.num_cells)


def _without(means: Array, axis: int) -> tuple[float, int]:
    """(V, df) of everything that does not involve one parameter: the means averaged over it."""
    averaged = means.mean(axis=axis)
    return float(averaged.var()), averaged.size - 1


def _difference(whole: tuple[float, int], part: tuple[float, int]) -> tuple[float, int]:
    return max(whole[0] - part[0], 0.0), whole[1] - part[1]


def _share_interval(
    part: tuple[float, int],
    rest: tuple[float, int],
    noise: _CellNoise,
    confidence: float,
    seed: int,
) -> tuple[float, float]:
    """Generalised confidence interval of V_part / (V_part + V_rest + sigma^2) (Weerahandi 1993).

    Given sigma^2, n V / c is noncentral chi-square, so its noncentrality n V_true / c has an exact
    confidence distribution: the one that puts the observed value at a uniform quantile. Draws of it
    for the part and for the rest, and sigma^2 = df s_w^2 / chi2(df), give draws of the share.
    """
    points = (
        qmc.Sobol(3, scramble=False).random_base2(LOG2_DRAWS)
        + np.random.default_rng(seed).random(3)
    ) % 1.0
    scale = noise.freedom / special.chdtri(noise.freedom, points[:, 2])
    num_over_c = noise.num_cells / (noise.per_mean * scale)
    drawn = [
        _noncentrality(share * num_over_c, df, quantile) / num_over_c
        if df
        else np.zeros(len(points))
        for (share, df), quantile in zip((part, rest), points[:, :2].T, strict=True)
    ]
    shares = drawn[0] / (drawn[0] + drawn[1] + noise.variance * scale)
    tail = (1.0 - confidence) / 2.0
    return float(np.quantile(shares, tail)), float(np.quantile(shares, 1.0 - tail))


def _noncentrality(observed: Array, freedom: int, quantile: Array) -> Array:
    """The noncentrality at which `observed` is that quantile of a noncentral chi-square; 0 where
    there is none.
    """
    large = np.square(
        np.maximum(np.sqrt(np.maximum(observed - freedom + 1, 0.0)) - stats.norm.ppf(quantile), 0.0)
    )
    exact = special.chndtrinc(np.minimum(observed, LARGE), freedom, quantile)
    found = np.where(observed > LARGE, large, np.nan_to_num(exact))
    return np.where(special.chdtr(freedom, observed) > quantile, found, 0.0)


def _needed(
    effects: Mapping[tuple[int, ...], tuple[float, int]],
    noise: _CellNoise,
    num_seeds: float,
    confidence: float,
) -> Note:
    """What it would take to resolve the largest effect that was seen: seeds per cell for 80 % power
    after Holm.
    """
    level = 1.0 - (1.0 - confidence) / len(effects)
    candidates, needed = range(int(num_seeds) + 1, MAX_SEEDS + 1), []
    for share, df in ((noise.corrected(*part), part[1]) for part in effects.values()):

        def power(seeds: int, share: float = share, df: int = df) -> float:
            freedom = noise.num_cells * (seeds - 1)
            centre = noise.num_cells * share * seeds / noise.variance
            return float(stats.ncf.sf(stats.f.ppf(level, df, freedom), df, freedom, centre))

        if share > 0 and power(MAX_SEEDS) >= POWER:
            needed.append(candidates[bisect_left(candidates, POWER, key=power)])
    if not needed:
        return note(Reason.NO_EFFECT_SEEN)
    return note(Reason.NEEDS_SEEDS_FOR_POWER, needs_seeds=min(needed))
