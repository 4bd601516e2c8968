"""Planted sweeps with gaps and uneven noise, whose statistics are known, and the cells of the page:
(space, seeds, noise, trials).
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy import special

from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.cluster.schedulers.racing import race_statistics
from clsweep.study.schema import FIRST_SEEDS


def unit(theta):
    return theta / theta.std(ddof=1)


# Every other value of the DCL paper's Table 18.
CURVE = unit(np.array([88.3, 90.8, 89.6, 89.6, 88.5, 87.7]))
ROUGH = unit(np.array([-1.6, -0.5, 0.3, 1.2, 0.9, -0.3]))
PLANE = unit(
    (-2 * (np.linspace(-1, 1, 11)[:, None] - 0.2) ** 2 + 0.8 * np.linspace(-1, 1, 5)).ravel()
)
SURFACES = {
    "peak": lambda u: -8 * (u[:, 0] - 0.6) ** 2 + 1.5 * u[:, 1],
    "additive": lambda u: u.sum(axis=1),
    "cliff": lambda u: u.sum(axis=1) - 3 * (u[:, 0] < 0.03),
}
NOISE = 0.3
SEEDS = (2, 3, 5, 10)
SPACES = {"grid of 6": 6, "grid of 11 x 5": 55, "random 64": 64}
# Its worst setting dominates the spread: these levels with a noise of 0.5, in units of 0.6.
CLIFF, FALL = "grid of 6 with a cliff", 0.6 * np.array([60.0, 72.0, 74.0, 80.0, 76.0, 74.0])
FLAT = "a grid of 6 on which nothing matters"
SAMPLED_CLIFF = "random 64 with a cliff at an end"
ONE = "one setting"
EVEN, HEAVY = "even", "t3"
WORST3, WORST5, WORST_TWO = "x3 at the worst", "x5 at the worst", "x5 at the two worst"
# A part of the variance is a shift that a seed gives to all settings: each objective has its own,
# or all have one in common.
OWN = [f"{share} shared" for share in (0.25, 0.5, 0.75, 0.9)]
COMMON = [f"{each}, common" for each in OWN]
HALF = OWN[1]
NOISES = (EVEN, WORST3, WORST5, HEAVY, *OWN)
COMPLETE = "complete"
GAPS = (MISSING, RERUN, APART, CUT) = (
    *("20 % missing", "two best rerun", "own seeds", "last seed at a third"),
)
RERUNS = 7
RACED, KEPT_AT = "raced", 0.95  # a race of all seeds, at the confidence that a study has by itself
RACES = [(space, 5, noise, RACED) for space in SPACES for noise in (EVEN, WORST3, HALF)]
SAMPLE = {name: SURFACES[name](np.random.default_rng(5).random((100_000, 2))) for name in SURFACES}
SPACE = {name: np.sort(each / each.std()) for name, each in SAMPLE.items()}


def cells(spaces, noises, gaps=(), seeds=SEEDS, more=()):
    """Every noise in complete tables; gaps with even noise, and with noises `more` at 3 seeds."""
    return [
        *itertools.product(spaces, seeds, noises, [COMPLETE]),
        *itertools.product(spaces, seeds, [EVEN], gaps),
        # Trials with seeds of their own share no shift.
        *[x for x in itertools.product(spaces, [3], more, gaps) if x[2:] != (HALF, APART)],
    ]


LEVELS = cells(SPACES, NOISES, GAPS, more=(WORST3, HALF))
CELLS = [*LEVELS, *itertools.product([CLIFF], SEEDS, [WORST5], [COMPLETE]), *RACES]
CELLS += itertools.product([SAMPLED_CLIFF], SEEDS, [EVEN], [COMPLETE])
FEWER = [
    *cells(SPACES, (EVEN, WORST5, HEAVY, HALF)),
    *cells(SPACES, (WORST3,), GAPS, [3]),
    *itertools.product(["grid of 6"], SEEDS, [WORST_TWO], [COMPLETE]),
    *[(CLIFF, 3, WORST5, COMPLETE), *RACES],
]
BEST = "x3 at the best"  # of objectives at their best settings, what matters is noise there
PLANS = (*((seeds, COMPLETE) for seeds in SEEDS), (5, RACED))
TUNED = [
    (space, seeds, noise, gap)
    for space in ("grid of 6", "random 64", FLAT)
    for seeds, gap in PLANS
    for noise in (EVEN, BEST, HEAVY, HALF)
]
SIDES = {"grid of 3 x 2": 3, "grid of 12 x 2": 12}
CONTRASTS = cells(SIDES, (EVEN, WORST5, HEAVY, *OWN, *COMMON), (MISSING, CUT), more=(HALF,))
OTHER = ", other settings"
PAIRS = cells(
    (ONE, *SPACES, f"grid of 6{OTHER}", f"random 64{OTHER}"),
    (EVEN, WORST5, HEAVY, *OWN[:2], OWN[-1], COMMON[1]),
)
PAIRS += cells(("grid of 6", "random 64"), (), (MISSING, CUT), more=(HALF,))
EQUAL = cells((ONE, "grid of 6", FLAT), (EVEN, WORST5, HEAVY, HALF, OWN[-1]))
EQUAL += cells(("random 64",), (EVEN, HALF)) + cells(("grid of 6",), (), [MISSING])
BY = "grid of 6 x 4"
LOST = ("4 of 24 settings missing", "4 of 24 settings failed")
MARGINALS = cells([BY], (EVEN, WORST5, HEAVY, HALF, OWN[-1]), LOST, more=(HALF,))
REGIONS = cells(("grid of 6", BY), (EVEN, WORST5, HEAVY, HALF), [MISSING])
SIZES = SPACES | {CLIFF: len(FALL), FLAT: 6}


def share_of(noise):
    """The part of the variance that a seed shares."""
    return float(noise.split()[0]) if " shared" in noise else 0.0


def surface(space, which):
    """The name of a sample's surface, and its spread."""
    if space == SAMPLED_CLIFF:
        return "cliff", 1.0
    return ("peak", 1.0) if which == 0 else ("additive", 0.7)


def planted(space, which, rng):
    """Noise-free levels of objective 0 or 1, and their settings."""
    if space != BY and "grid of 6" in space:
        first = {CLIFF: FALL, FLAT: 0 * CURVE}.get(space, CURVE)
        return (first, 0.7 * ROUGH)[which], {"x": 2.0 ** np.arange(6)}
    if space == BY:  # both hyperparameters add up, so that any of the settings tell of all
        x, y = np.indices((6, 4)).reshape(2, -1)
        return (CURVE[:, None] + np.linspace(-1, 1, 4)).ravel(), {"x": 2.0**x, "y": y + 1}
    if space == "grid of 11 x 5":
        x, y = np.indices((11, 5)).reshape(2, -1)
        return (PLANE, 0.7 * PLANE[::-1])[which], {"x": x + 1, "y": y + 1}
    u, (name, spread) = rng.random((64, 2)), surface(space, which)
    return spread * SURFACES[name](u) / SAMPLE[name].std(), {"x": u[:, 0], "y": u[:, 1]}


def equal_means(space, seed):
    """Two objectives of equal means, paired by their settings or not: levels and settings of each.
    In a sample it is the means of the space that are equal.
    """
    if space == ONE:
        return [(np.zeros(1), {})] * 2
    pair = []
    for which in (0, 1):
        apart = OTHER in space and which == 1
        theta, at = planted(space, which, np.random.default_rng((seed, apart)))
        mean = theta.mean()
        if "random" in space:
            name, spread = surface(space, which)
            mean = spread * SPACE[name].mean()
        elif apart:
            at = {name: 3 * values for name, values in at.items()}
        pair.append((theta - mean, at))
    return pair


def scored(theta, seeds, noise, gap, rng, shifts=None):
    """Scores (n, columns), NaN = no trial, and the SD of each row's noise; `shifts` of the seeds,
    where objectives have them in common.
    """
    num, size = len(theta), np.full(len(theta), NOISE)
    if noise.startswith("x"):
        sign, two = (-1 if noise.endswith("best") else 1), noise == WORST_TWO
        size[np.argsort(sign * theta, kind="stable")[: max(1 + two, num // 10)]] *= float(noise[1])
    columns = seeds + RERUNS * (gap == RERUN)
    drawn = rng.normal(size=(num, columns))
    if noise == HEAVY:
        drawn = rng.standard_t(3, size=(num, columns)) / np.sqrt(3)
    if share := share_of(noise):
        shifts = rng.normal(size=columns) if shifts is None else shifts[:columns]
        drawn = np.sqrt(1 - share) * drawn + np.sqrt(share) * shifts
    scores = theta[:, None] + size[:, None] * drawn
    if gap == MISSING:
        lost = rng.random(scores.shape) < 0.2
        lost[np.arange(num), rng.integers(columns, size=num)] = False  # one is left at least
        scores[lost] = np.nan
    if gap == RERUN:
        scores[np.argsort(theta)[:-2], seeds:] = np.nan
    if gap == CUT:
        scores[rng.permutation(num)[max(1, num // 3) :], -1] = np.nan
    if gap == APART:
        wide = np.full((num, num * seeds), np.nan)
        wide[np.repeat(np.arange(num), seeds), np.arange(num * seeds)] = scores.ravel()
        scores = wide
    if gap == RACED:
        for turn in range(FIRST_SEEDS, seeds):
            alive = np.flatnonzero(np.isfinite(scores[:, turn]))
            _, behind, margins = race_statistics(scores[alive, :turn], confidence=KEPT_AT)
            scores[alive[behind > margins], turn:] = np.nan
    return scores, size


def objectives(cell, levels, rng):
    """The sweeps of objectives a, b, ... of these (levels, settings), on the same seeds."""
    space, seeds, noise, gap = cell
    shifts = rng.normal(size=seeds + RERUNS) if noise in COMMON else None
    return [
        sweep_of(name, scored(theta, seeds, noise, gap, rng, shifts)[0], at, space, gap)
        for name, (theta, at) in zip("abcdef", levels, strict=False)
    ]


GRIDS = {}  # of complete tables: reading one takes longer than most statistics


def sweep_of(name, scores, settings, space, gap=COMPLETE):
    """The sweep of objective `name`, as a table of its trials is read."""
    key = (name, space, scores.shape) if gap == COMPLETE and space in (*SIZES, *SIDES) else None
    key = None if "random" in space else key
    if key in GRIDS:
        return replace(GRIDS[key], scores=scores)
    trials = trials_of(name, scores, settings, space, gap)
    scales = dict.fromkeys(settings, "log" if len(settings) == 1 else "linear")
    scales |= {"x": "log"} if space == BY else {}
    failed = {"failed_as": "left out"} if gap in LOST else {}
    read = {"metric": "acc", "params": list(settings), "scales": scales} | failed
    sweep = read_sweeps(trials, **read)[0]
    if key:
        GRIDS[key] = sweep
    return sweep


def trials_of(name, scores, settings, space, gap=COMPLETE):
    """A row a trial; what a race left out was skipped."""
    config, seed = np.nonzero(np.isfinite(scores) | (gap in (RACED, LOST[1])))
    trials = pd.DataFrame({"config": config, "seed": seed, "acc": scores[config, seed]})
    trials = trials.assign(**{param: values[config] for param, values in settings.items()})
    sampler = next((name for name in ("random", "tpe") if name in space), "grid")
    ended = "skipped" if gap == RACED else "failed"
    status = np.where(trials["acc"].isna(), ended, "finished")
    return trials.assign(objective=name, status=status, sampler=sampler)


def truth_of(space, best, tenth, num_seeds):
    """The statistics of a noise-free space, as loops would have them; `tenth` = its worst part, as
    a share.
    """
    ordered = np.sort(space)
    cut = len(space) / 4
    place = np.arange(1, len(space) + 1)
    weights = np.clip(np.minimum(place, len(space) + 1 - place) - cut, 0, 1)
    deltas = (np.arange(2000) + 0.5) / 200
    ddof = 1 if len(space) < 1000 else 0
    return {
        "mean": space.mean(),
        "sd": np.sqrt(space.var(ddof=ddof) + NOISE**2 / num_seeds),
        "sd_star": space.std(ddof=ddof),
        "regret": best - space.mean(),
        "share": 1 - np.searchsorted(ordered, best - 1 - 1e-12) / len(space),
        "tolerance_area": 1 - np.searchsorted(ordered, best - deltas).mean() / len(space),
        "iqm": ordered @ weights / weights.sum(),
        "worst_10": ordered[: max(1, int(len(space) * tenth))].mean(),
    }


def truths(space, which, theta):
    """The statistics of the noise-free space; the best is that of the configurations tried."""
    if "random" not in space:
        return truth_of(theta, theta.max(), 0.1, 1)
    name, factor = surface(space, which)
    return truth_of(factor * SPACE[name], theta.max(), 6 / 64, 1)


def variance_shares(space, noise):
    """Shares of the variance: of one trial in a grid, of the response in a sample."""
    if "random" in space:
        parts = {"x": 8**2 * np.var((np.linspace(0, 1, 9999) - 0.6) ** 2), "y": 1.5**2 / 12}
        return {name: part / sum(parts.values()) for name, part in parts.items()}
    level = planted(space, 0, None)[0].reshape(-1, 5 if "x" in space else 1)
    parts = {"x": level.mean(axis=1).var(), "y": level.mean(axis=0).var()}
    return {name: part / (sum(parts.values()) + noise) for name, part in parts.items()}


CURVES = {}


def expected_best(cell, repeats=2000):
    """(n,) level of the one that looks best of k = 1, 2, ... n, picked on a score less."""
    if cell not in CURVES:
        rng, (space, seeds, noise, gap) = np.random.default_rng(3), cell
        seeds, num, levels = FIRST_SEEDS if gap == RACED else seeds, SIZES[space], []
        for _ in range(repeats):
            theta = planted(space, 0, rng)[0]
            looks = scored(theta, seeds, noise, COMPLETE, rng)[0][:, 1:].mean(axis=1)
            levels.append(theta[np.argsort(looks)])
        rank, k = np.arange(1, num + 1)[:, None], np.arange(1, num + 1)
        chances = special.comb(rank - 1, k - 1) / special.comb(num, k)
        CURVES[cell] = np.mean(levels, axis=0) @ chances
    return CURVES[cell]


# Of images: how many are scored, and what beside their difficulty makes one right or wrong.
ITEMS = {
    "easy and hard": (0.0, 1.0, 0.0),  # spread of seeds, images, and images of a setting
    "own to a setting": (0.05, 1.0, 1.0),
    "seeds shift": (0.2, 1.0, 0.5),
}
SCORED = ("80 images", "300 images", "2000 images")
NEW_IMAGES = [
    (space, seeds, items, scored)
    for space in (ONE, "6 settings", "6 equal settings")
    for seeds in (2, 3, 5)
    for items in ITEMS
    for scored in SCORED
    if scored == SCORED[1] or (seeds == 5 and items == "own to a setting")
]


def planted_hits(cell, rng):
    """Trials of two objectives of equal levels with their hits; the levels, percent.

    An image is right where  q_i + a_m + c_im + b_s + b_is + e_ism > 0,  all normal, so that the
    level is Phi(q_i / sqrt(1 + the variances)).
    """
    space, seeds, items, scored = cell
    num, of_seeds = int(scored.split()[0]), ITEMS[items][0]
    _, of_items, own = ITEMS[items]
    settings = 1 if "one" in space else 6
    levels = 0.85 + (0.0 if "equal" in space else 0.1) * np.linspace(-0.5, 0.5, settings)
    scale = np.sqrt(1 + of_seeds**2 + of_items**2 + own**2)
    items_M, shifts = rng.normal(0, of_items, num), rng.normal(0, of_seeds / 2, seeds)
    rows = []
    for name, config in itertools.product("ab", range(settings)):
        base = special.ndtri(levels[config]) * scale + items_M + rng.normal(0, own, num)
        for seed in range(seeds):
            shift = shifts[seed] + rng.normal(0, of_seeds * np.sqrt(0.75))
            hits = base + shift + rng.normal(size=num) > 0
            place = {"objective": name, "config": config, "seed": seed, "lr": config + 1.0}
            pairs = {"images": "0f", "num_images": num, "bits": np.packbits(hits).tobytes()}
            rows.append({**place, **pairs, "score": 100 * hits.mean()})
    return pd.DataFrame(rows).assign(status="finished", sampler="grid"), 100 * levels


# Shares of the variance, with all interactions: 0.81, 0.17, 0.02; 0.85, 0.54, 0.07; 0.75, 0.25, 0.
SEARCHED = {
    "additive": lambda u: -8 * (u[:, 0] - 0.6) ** 2 + 1.2 * u[:, 1] + 0.4 * u[:, 2],
    "interaction": lambda u: -6 * (u[:, 0] + 0.6 * u[:, 1] - 0.7) ** 2 + 0.8 * u[:, 2],
    "one inert": lambda u: -8 * (u[:, 0] - 0.6) ** 2 + 1.5 * u[:, 1],
}
TRIED = "tpe, 60 configurations"
SEARCHES = [(name, seeds, EVEN, TRIED) for name in SEARCHED for seeds in (1, 2)]
