"""Planted sweeps with gaps and uneven noise, and which intervals of one hold the truth."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import optuna
import pandas as pd
from optuna.distributions import FloatDistribution
from scipy import special

from clsweep.analysis import tuned, tuning
from clsweep.analysis.comparison import table as comparison
from clsweep.analysis.images import Hits
from clsweep.analysis.reading import read_sweeps
from clsweep.analysis.recommend import levels_of
from clsweep.analysis.robustness.table import robustness
from clsweep.analysis.sensitivity import searched
from clsweep.analysis.sensitivity import table as sensitivity
from clsweep.analysis.tuned import pick
from clsweep.analysis.tuning import best_of_k
from clsweep.cluster.search import standing
from clsweep.study.design import build_sampler
from clsweep.study.schema import FIRST_SEEDS
from tests.analysis.draws import drawing


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
}
SURROGATES = 4  # a surrogate takes its time: one of so many sweeps of a sample has it
NOISE = 0.3
SPACES = {"grid of 6": 6, "grid of 11 x 5": 55, "random 64": 64}
# Its worst setting dominates the spread: these levels with a noise of 0.5, in units of 0.6.
CLIFF, FALL = "grid of 6 with a cliff", 0.6 * np.array([60.0, 72.0, 74.0, 80.0, 76.0, 74.0])
NOISES = ("even", "x3 at the worst", "x5 at the worst", "t3", "half shared by a seed")
GAPS = ("complete", "20 % missing", "two best rerun", "own seeds")
RACED, KEPT_AT = "raced", 0.95  # a race of all seeds, at the confidence that a study has by itself
# Every noise in complete tables, every gap with even noise, and gaps with the two worst noises.
# Trials with seeds of their own share no shift.
BOTH = (NOISES[1], NOISES[4])
CELLS = [
    (space, seeds, noise, gap)
    for space, seeds, noise, gap in itertools.product(SPACES, (2, 3, 5), NOISES, GAPS)
    if gap == "complete"
    or noise == "even"
    or (seeds == 3 and noise in BOTH and (noise, gap) != (NOISES[4], GAPS[3]))
] + [(CLIFF, seeds, NOISES[2], GAPS[0]) for seeds in (2, 3, 5)]
RACES = [(space, 5, noise, RACED) for space in SPACES for noise in ("even", *BOTH)]
CELLS += RACES
# Of objectives at their best settings, what matters is noise there.
BEST = "x3 at the best"
PLANS = ((2, GAPS[0]), (3, GAPS[0]), (5, GAPS[0]), (5, RACED))
TUNED = [
    (space, seeds, noise, gap)
    for space in ("grid of 6", "random 64")
    for seeds, gap in PLANS
    for noise in (NOISES[0], BEST, NOISES[4])
]
SPACES |= {CLIFF: len(FALL)}
FLAT = "a grid of 6 on which nothing matters"
TUNED += [(FLAT, seeds, NOISES[0], gap) for seeds, gap in PLANS]
# Where the statistics are measured that take longer, on half as many sweeps.
FEWER = [cell for cell in CELLS if cell[1] == 3 and (cell[2] == "even" or cell[3] == "complete")]
FEWER += RACES
SAMPLE = {name: SURFACES[name](np.random.default_rng(5).random((100_000, 2))) for name in SURFACES}
SPACE = {name: np.sort(each / (each.std() or 1.0)) for name, each in SAMPLE.items()}
SCALE = {name: each.std() or 1.0 for name, each in SAMPLE.items()}


def planted(space, which, rng):
    """Noise-free levels of objective 0 or 1, and their settings."""
    if space in ("grid of 6", CLIFF, FLAT):
        first = {CLIFF: FALL, FLAT: 0 * CURVE}.get(space, CURVE)
        return (first, 0.7 * ROUGH)[which], {"x": 2.0 ** np.arange(6)}
    if space == "grid of 11 x 5":
        x, y = np.indices((11, 5)).reshape(2, -1)
        return (PLANE, 0.7 * PLANE[::-1])[which], {"x": x + 1, "y": y + 1}
    u, name = rng.random((64, 2)), ("peak", "additive")[which]
    level = SURFACES[name](u) / SCALE[name] * (1.0, 0.7)[which]
    return level, {"x": u[:, 0], "y": u[:, 1]}


def scored(theta, seeds, noise, gap, rng):
    """Scores (n, columns), NaN = no trial, and the SD of each row's noise."""
    num, size = len(theta), np.full(len(theta), NOISE)
    if noise.startswith("x"):
        sign = -1 if noise.endswith("best") else 1
        size[np.argsort(sign * theta)[: max(1, num // 10)]] *= float(noise[1])
    columns = seeds + 7 * (gap == "two best rerun")
    drawn = rng.normal(size=(num, columns))
    if noise == "t3":
        drawn = rng.standard_t(3, size=(num, columns)) / np.sqrt(3)
    if noise == NOISES[-1]:
        drawn = np.sqrt(0.5) * (drawn + rng.normal(size=columns))
    scores = theta[:, None] + size[:, None] * drawn
    if gap == "20 % missing":
        lost = rng.random(scores.shape) < 0.2
        lost[np.arange(num), rng.integers(columns, size=num)] = False  # one is left at least
        scores[lost] = np.nan
    if gap == "two best rerun":
        scores[np.argsort(theta)[:-2], seeds:] = np.nan
    if gap == "own seeds":
        wide = np.full((num, num * seeds), np.nan)
        wide[np.repeat(np.arange(num), seeds), np.arange(num * seeds)] = scores.ravel()
        scores = wide
    if gap == RACED:
        for turn in range(FIRST_SEEDS, seeds):
            alive = np.flatnonzero(np.isfinite(scores[:, turn]))
            _, behind, margins = standing(scores[alive, :turn], confidence=KEPT_AT)
            scores[alive[behind > margins], turn:] = np.nan
    return scores, size


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


def sweep_of(name, scores, settings, space, gap=GAPS[0]):
    config, seed = np.nonzero(np.isfinite(scores) | (gap == RACED))
    trials = pd.DataFrame({"config": config, "seed": seed, "acc": scores[config, seed]})
    trials = trials.assign(**{param: values[config] for param, values in settings.items()})
    sampler = next((name for name in ("random", "tpe") if name in space), "grid")
    status = np.where(trials["acc"].isna(), "skipped", "finished")
    trials = trials.assign(objective=name, status=status, sampler=sampler)
    scales = dict.fromkeys(settings, "log" if len(settings) == 1 else "linear")
    return read_sweeps(trials, metric="acc", params=list(settings), scales=scales)[0]


def truths(space, which, theta):
    """The statistics of the noise-free space; the best is that of the configurations tried."""
    if "random" not in space:
        return truth_of(theta, theta.max(), 0.1, 1)
    name, factor = (("peak", 1.0), ("additive", 0.7))[which]
    return truth_of(factor * SPACE[name], theta.max(), 6 / 64, 1)


def robust(cell, rng, seed):
    """Which intervals of one sweep hold their truth: statistic -> bool, without those withheld."""
    space, seeds, noise, gap = cell
    theta, settings = planted(space, 0, rng)
    scores, size = scored(theta, seeds, noise, gap, rng)
    with drawing(400, seed):
        row = robustness([sweep_of("a", scores, settings, space, gap)]).iloc[0]
    truth = truths(space, 0, theta)
    if gap == RACED:
        scores = scores[:, :FIRST_SEEDS]
    counts, own = np.isfinite(scores).sum(axis=1), size**2 * (0.5 if noise == NOISES[-1] else 1.0)
    truth["sd"] = np.sqrt(truth["sd_star"] ** 2 + np.mean(own / counts))
    truth["share_within"] = truth.pop("share")
    holds = {name: held(row, name.removesuffix("_within"), x) for name, x in truth.items()}
    if len(settings) == 1:
        at, x = np.log2(settings["x"]), settings["x"]
        holds["slope"] = held(row, "slope", np.polyfit(at, theta, 1)[0])
        sure = (x >= row["band_sure_low"]) & (x <= row["band_sure_high"])
        holds["band"] = bool((theta[sure] >= theta.max() - 1.0).all()) if sure.any() else None
    return holds


def held(row, name, truth):
    """Whether the interval holds the truth; None where there is no interval."""
    low, high = (row[f"{name}_{end}" if name else end] for end in ("low", "high"))
    return bool(low - 1e-9 <= truth <= high + 1e-9) if low <= high else None


def other(cell, rng, seed):
    """The same of the statistics that are not of `robustness`."""
    space, seeds, noise, gap = cell
    sweeps, levels = [], []
    for which, name in enumerate("ab"):
        theta, settings = planted(space, which, rng)
        scores, size = scored(theta, seeds, noise, gap, rng)
        sweeps.append(sweep_of(name, scores, settings, space, gap).of_space)
        levels.append(truths(space, which, theta))
    holds = {}
    for stat, name in {"mean": "mean", "std": "sd_star", "within": "share"}.items():
        a, b = (level[name] for level in levels)
        with drawing(400, seed):
            row = comparison.compare(sweeps, stat=stat).iloc[0]
        holds[f"compare {stat}"] = held(row, "", a / b if stat == "std" else a - b)
    curve = expected_best(cell)
    with drawing(300, seed):
        best = tuning.best_of_k(sweeps[:1]).set_index("k").loc[3]
        cost = tuning.tuning_cost(sweeps[:1]).iloc[0]
    holds["best_of_k"] = held(best, "", curve[2])
    holds["tuning_cost"] = held(cost, "k", int((curve >= curve[-1] - 1.0).argmax()) + 1)
    if "random" not in space or seed % SURROGATES == 0:
        with drawing(seed=seed):
            frame = sensitivity.sensitivity(sweeps[:1])
        rows = frame[frame["term"].isin(["x", "y"])].to_dict("records")
        shares = variance_shares(space, np.mean(size**2))
        hits = [held(row, "first", shares[row["term"]]) for row in rows]
        holds["sensitivity"] = np.mean(hits) if hits and None not in hits else None
    return holds


def best(cell, rng, seed):
    """Of two objectives at their best settings, on the study's seeds and on fresh ones: whether the
    interval holds the difference of their best levels, or of the settings that it names.
    """
    space, seeds, noise, gap = cell
    sweeps, levels, holds = [], [], {}
    for which, name in enumerate("ab"):
        theta, settings = planted(space, which, rng)
        scores, size = scored(theta, seeds, noise, gap, rng)
        sweep = sweep_of(name, scores, settings, space, gap)
        sweeps.append(replace(sweep, fresh=confirmed(theta, scores, size, noise, rng)))
        levels.append(theta)
    a, b = levels
    for at, pair in {"": [replace(x, fresh={}) for x in sweeps], "fresh, ": sweeps}.items():
        with drawing(400, seed):
            row = comparison.compare(pair, stat="tuned").iloc[0]
        first, second = (tuned.pick(sweep).row for sweep in pair)
        holds[f"{at}best"] = held(row, "", a.max() - b.max())
        holds[f"{at}named"] = held(row, "", a[first] - b[second])
    return holds


def confirmed(theta, scores, size, noise, rng, top=3, seeds=3):
    """Scores of the best settings on fresh seeds, as `Sweep.fresh` has them."""
    whole = np.isfinite(scores).sum(axis=1)
    rows = np.flatnonzero(whole == whole.max())
    rows = rows[np.argsort(-np.nanmean(scores[rows], axis=1))[:top]]
    drawn = rng.normal(size=(top, seeds))
    if noise == NOISES[-1]:
        drawn = np.sqrt(0.5) * (drawn + rng.normal(size=seeds))
    fresh = (theta[rows, None] + size[rows, None] * drawn[: len(rows)]).tolist()
    scores_by_row = zip(rows.tolist(), fresh, strict=True)
    return {row: dict(enumerate(each, 100)) for row, each in scores_by_row}


# Of images: how many are scored, and what beside their difficulty makes one right or wrong.
ITEMS = {
    "easy and hard": (0.0, 1.0, 0.0),  # spread of seeds, images, and images of a setting
    "own to a setting": (0.05, 1.0, 1.0),
    "seeds shift": (0.2, 1.0, 0.5),
}
SCORED = ("80 images", "300 images", "2000 images")
NEW_IMAGES = [
    (space, seeds, items, scored)
    for space in ("one setting", "6 settings", "6 equal settings")
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
            columns = {"images": "0f", "num_images": num, "bits": np.packbits(hits).tobytes()}
            rows.append({**place, **columns, "score": 100 * hits.mean()})
    return pd.DataFrame(rows).assign(status="finished", sampler="grid"), 100 * levels


def seen(cell, rng, seed):
    """Which intervals hold the truth of new images, with the hits and by the seeds alone; and
    whether nobody wins, as both objectives are equal.
    """
    trials, levels = planted_hits(cell, rng)
    params = ["lr"] if len(levels) > 1 else []
    sweeps = read_sweeps(trials, metric="score", params=params, limits=(0.0, 100.0))
    known, holds = [replace(x, hits=Hits(lambda: trials)) for x in sweeps], {}
    with drawing(400, seed):
        for at, pair in {"": known, " (seeds)": sweeps}.items():
            table = levels_of(pair[0])
            row = {name: values[0] for name, values in table.items()}
            holds[f"level{at}"] = held(row, "", levels[0])
            row = comparison.compare(pair).iloc[0]
            holds[f"lead{at}"] = held(row, "", 0.0)
            holds[f"no winner{at}"] = not row["winner"]
            row = comparison.compare(pair, stat="tuned").iloc[0]
            holds[f"tuned{at}"] = not row["winner"]
        row = best_of_k([known[0]]).iloc[-1]
        holds["best_of_k"] = held(row, "", levels[pick(known[0]).row])
        row = robustness([known[0]]).iloc[0]
        named = {"mean": levels.mean(), "worst_10": levels.min()}
        for name, truth in (named | {"sd_star": np.std(levels, ddof=1)} if params else {}).items():
            holds[name] = held(row, name, truth)
    return holds


def variance_shares(space, noise):
    """Shares of the variance: of one trial in a grid, of the response in a sample."""
    if "random" in space:
        parts = {"x": 8**2 * np.var((np.linspace(0, 1, 9999) - 0.6) ** 2), "y": 1.5**2 / 12}
        return {name: part / sum(parts.values()) for name, part in parts.items()}
    level = planted(space, 0, None)[0].reshape(-1, 5 if "x" in space else 1)
    parts = {"x": level.mean(axis=1).var(), "y": level.mean(axis=0).var()}
    return {name: part / (sum(parts.values()) + noise) for name, part in parts.items()}


# Shares of the variance, with all interactions: 0.81, 0.17, 0.02; 0.85, 0.54, 0.07; 0.75, 0.25, 0.
SEARCHED = {
    "additive": lambda u: -8 * (u[:, 0] - 0.6) ** 2 + 1.2 * u[:, 1] + 0.4 * u[:, 2],
    "interaction": lambda u: -6 * (u[:, 0] + 0.6 * u[:, 1] - 0.7) ** 2 + 0.8 * u[:, 2],
    "one inert": lambda u: -8 * (u[:, 0] - 0.6) ** 2 + 1.5 * u[:, 1],
}
TRIED = "tpe, 60 configurations"
SEARCHES = [(name, seeds, NOISES[0], TRIED) for name in SEARCHED for seeds in (1, 2)]
optuna.logging.set_verbosity(optuna.logging.WARNING)


def shares_of(function, nodes=24):
    """First-order and total Sobol indices of a function of three parameters, by quadrature, (2, 3),
    and the standard deviation of its values.
    """
    at, weights = np.polynomial.legendre.leggauss(nodes)
    at, weights = (at + 1) / 2, weights / 2
    u = np.stack(np.meshgrid(at, at, at, indexing="ij"), axis=-1).reshape(-1, 3)
    level = function(u).reshape((nodes,) * 3)

    def mean(values, axes):
        for axis in sorted(axes, reverse=True):
            values = np.tensordot(values, weights, (axis, 0))
        return values

    total = mean(level**2, (0, 1, 2)) - mean(level, (0, 1, 2)) ** 2
    indices = np.empty((2, 3))
    for axis in range(3):
        others = [each for each in range(3) if each != axis]
        alone = mean(level, others)
        indices[0, axis] = (weights @ alone**2 - (weights @ alone) ** 2) / total
        indices[1, axis] = mean(mean(level**2, [axis]) - mean(level, [axis]) ** 2, (0, 1)) / total
    return indices, np.sqrt(total)


def search(cell, rng, seed):
    """What is said of a search: whether the intervals of `importance` hold the shares, and whether
    an inert parameter is left alone.
    """
    name, seeds, _, _ = cell
    (_, total), scale = shares_of(SEARCHED[name])
    table = searching(lambda u: SEARCHED[name](u) / scale, seeds, rng, seed)
    with drawing(seed=seed):
        rows = searched.importance([table], within=1.0).set_index("param")
    if rows["importance"].isna().any():
        return {}
    rows, inert = rows.loc[["x0", "x1", "x2"]], total < 1e-9
    hits = [held(row, "", x) for row, x in zip(rows.to_dict("records"), total, strict=True)]
    unresolved = not rows["resolved"][inert].any() if inert.any() else None
    return {"importance": np.mean(hits), "not resolved": unresolved}


def searching(function, seeds, rng, seed, num=60):
    """The sweep of the trials of an Optuna study with clsweep's sampler."""
    study = optuna.create_study(direction="maximize", sampler=build_sampler("tpe", seed))
    space = {f"x{p}": FloatDistribution(0.0, 1.0) for p in range(3)}
    tried, scores = [], []
    for _ in range(num):
        trial = study.ask(space)
        tried.append(list(trial.params.values()))
        scores.append(function(np.array(tried[-1:])) + NOISE * rng.normal(size=seeds))
        study.tell(trial, float(scores[-1].mean()))
    at = dict(zip(space, np.array(tried).T, strict=True))
    sweep = sweep_of("a", np.array(scores), at, "tpe")
    return replace(sweep, bounds=dict.fromkeys(space, (0.0, 1.0)))


CURVES = {}


def expected_best(cell, repeats=2000):
    """(n,) level of the one that looks best of k = 1, 2, ... n, picked on a score less."""
    if cell not in CURVES:
        rng, (space, seeds, noise, gap) = np.random.default_rng(3), cell
        seeds, num, levels = FIRST_SEEDS if gap == RACED else seeds, SPACES[space], []
        for _ in range(repeats):
            theta = planted(space, 0, rng)[0]
            looks = scored(theta, seeds, noise, "complete", rng)[0][:, 1:].mean(axis=1)
            levels.append(theta[np.argsort(looks)])
        rank, k = np.arange(1, num + 1)[:, None], np.arange(1, num + 1)
        chances = special.comb(rank - 1, k - 1) / special.comb(num, k)
        CURVES[cell] = np.mean(levels, axis=0) @ chances
    return CURVES[cell]
