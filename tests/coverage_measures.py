"""Which intervals of a planted table hold the truth, how wide they are, and which verdicts are
false: an `Answer` by the name of its statistic.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import optuna
from optuna.distributions import FloatDistribution

from clsweep.analysis import compare as comparison
from clsweep.analysis import importance, sensitivity, tuning
from clsweep.analysis.best_setting import best_setting
from clsweep.analysis.contrast import Contrast, contrast_table
from clsweep.analysis.image_intervals import TrialHits
from clsweep.analysis.marginals import marginal_levels
from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.analysis.recommend import config_levels
from clsweep.analysis.region_winners import region_winners
from clsweep.analysis.robustness import robustness
from clsweep.study.design import build_sampler
from clsweep.study.schema import FIRST_SEEDS
from tests import coverage_cells as planted
from tests.analysis.draws import drawing
from tests.coverage_cells import NOISE, RACED, scored, sweep_of

FIRST_VERDICTS = {"best when tuned": "tuned", "best without tuning": "mean", "most robust": "std"}
SURROGATES = 4  # a surrogate takes its time: one of so many sweeps of a sample has it
optuna.logging.set_verbosity(optuna.logging.WARNING)


class Answer(NamedTuple):
    """held: 1 where the interval holds the truth, or the share of several that do; NaN for none.
    width: of it, in the units of the scores. false: 1 for a verdict where there is no difference.
    """

    held: float = np.nan
    width: float = np.nan
    false: float = np.nan


def held(row, name, truth, **verdict):
    """The interval of a row's statistic against the truth."""
    low, high = (row[f"{name}_{end}" if name else end] for end in ("low", "high"))
    return of_ends(low, high, truth, **verdict)


def of_ends(low, high, truth, **verdict):
    """The mean over intervals (k,), without those that are not given."""
    low, high, truth = np.broadcast_arrays(np.atleast_1d(low).astype(float), high, truth)
    known = low <= high
    if not known.any():
        return Answer(**verdict)
    hits = (low - 1e-9 <= truth) & (truth <= high + 1e-9)
    return Answer(hits[known].mean(), np.median((high - low)[known]), **verdict)


def robust(cell, rng, seed):
    """Of one sweep the statistics of `robustness`."""
    space, seeds, noise, gap = cell
    theta, settings = planted.planted(space, 0, rng)
    scores, size = scored(theta, seeds, noise, gap, rng)
    with drawing(400, seed):
        row = robustness([sweep_of("a", scores, settings, space, gap)]).iloc[0]
    truth = planted.truths(space, 0, theta)
    if gap == RACED:
        scores = scores[:, :FIRST_SEEDS]
    counts, own = np.isfinite(scores).sum(axis=1), size**2 * (1.0 - planted.share_of(noise))
    truth["sd"] = np.sqrt(truth["sd_star"] ** 2 + np.mean(own / counts))
    truth["share_within"] = truth.pop("share")
    answers = {name: held(row, name.removesuffix("_within"), x) for name, x in truth.items()}
    if len(settings) == 1:
        at, x = np.log2(settings["x"]), settings["x"]
        answers["slope"] = held(row, "slope", np.polyfit(at, theta, 1)[0])
        sure = (x >= row["band_sure_low"]) & (x <= row["band_sure_high"])
        answers["band"] = Answer((theta[sure] >= theta.max() - 1.0).all() if sure.any() else np.nan)
    return answers


def level(cell, rng, _):
    """Of one sweep the level of each setting, and those along its first hyperparameter."""
    space, seeds, noise, gap = cell
    theta, settings = planted.planted(space, 0, rng)
    sweep = sweep_of("a", scored(theta, seeds, noise, gap, rng)[0], settings, space, gap)
    levels, worst = config_levels(sweep), theta.argmin()
    answers = {"level": of_ends(levels["low"], levels["high"], theta)}
    answers["level of the worst"] = of_ends(
        levels["low"][worst], levels["high"][worst], theta[worst]
    )
    if "x 5" in space:
        rows = marginal_levels([sweep]).query("param == 'x'")
        truth = theta.reshape(11, 5).mean(axis=1)
        answers["marginal level"] = of_ends(rows["low"], rows["high"], truth)
    return answers


def along(cell, rng, seed):
    """`robustness --by` of a grid whose hyperparameters add up, where settings may be missing."""
    _, seeds, noise, gap = cell
    theta, settings = planted.planted(planted.BY, 0, rng)
    scores, _ = scored(theta, seeds, noise, gap, rng)
    if gap in planted.LOST:
        scores[rng.choice(len(theta), 4, replace=False)] = np.nan
    with drawing(400, seed):
        sweep = sweep_of("a", scores, settings, planted.BY, gap)
        row = robustness([sweep], by="x").iloc[0]
    levels = theta.reshape(6, 4).mean(axis=1)
    truth = planted.truth_of(levels, levels.max(), 0.1, 1)
    answers = {name: held(row, name, truth[name]) for name in ("mean", "sd_star", "worst_10")}
    answers["slope"] = held(row, "slope", np.polyfit(np.arange(6), levels, 1)[0])
    return answers


def contrast(cell, rng, _):
    """Five contrasts of equal sides: one cell or all settings; of one objective or between two; and
    what two objectives differ by in one half, less that in the other.
    """
    num = planted.SIDES[cell[0]]
    theta, y = np.linspace(-1.5, 1.5, num), np.tile([1, 2], num)
    settings = {"x": np.repeat(np.arange(num) + 1, 2), "y": y}
    other = np.append(theta[0], theta[:0:-1])  # the same at the first value, and on average
    levels = [(np.repeat(each, 2), settings) for each in (theta, other)]
    sweeps = {"acc": planted.objectives(cell, levels, rng)}
    one, both = ({"x": 1, "y": 1}, {"x": 1, "y": 2}), ({"y": 1}, {"y": 2})
    asked = {
        "one cell, within": (("a",), *one),
        "all, within": (("a",), *both),
        "one cell, between": (("a", "b"), one[0], None),
        "all, between": (("a", "b"), {}, None),
        "interaction": (("a", "b"), *both),
    }
    contrasts = [
        Contrast(name=name, of=of, metric="acc", at=at, minus=minus, family=name)
        for name, (of, at, minus) in asked.items()
    ]
    rows = contrast_table(contrasts, sweeps).to_dict("records")
    return {row["contrast"]: held(row, "", 0.0, false=float(row["shown"])) for row in rows}


def means(cell, rng, seed):
    """`compare` of two objectives of equal means."""
    sweeps = planted.objectives(cell, planted.equal_means(cell[0], seed), rng)
    with drawing(400, seed):
        row = comparison.compare(sweeps).iloc[0]
    return {"compare": held(row, "", 0.0, false=float(row["resolved"]))}


def regions(cell, rng, seed):
    """`winners` by x of two objectives that are equal everywhere."""
    sweeps = planted.objectives(cell, [planted.planted(cell[0], 0, rng)] * 2, rng)
    with drawing(400, seed):
        rows = region_winners(sweeps, by="x")
    answer = of_ends(rows["low"], rows["high"], 0.0, false=float(rows["resolved"].any()))
    return {"lead": answer}


def first_screen(cell, rng, seed):
    """The comparisons that the report's first verdicts rest on, of three objectives of equal means,
    spreads and best levels.
    """
    space = cell[0]
    theta, at = (np.zeros(1), {}) if space == planted.ONE else planted.planted(space, 0, rng)
    orders = [np.arange(len(theta))] * 3
    if "random" not in space:
        orders = [orders[0], orders[0][::-1], np.roll(orders[0], 2)]
    sweeps = planted.objectives(cell, [(theta[order], at) for order in orders], rng)
    with drawing(400, seed):
        false = {
            name: comparison.compare(sweeps, stat=stat)["resolved"].any()
            for name, stat in FIRST_VERDICTS.items()
        }
    false["any"] = any(false.values())
    return {name: Answer(false=float(each)) for name, each in false.items()}


def other(cell, rng, seed):
    """Spreads and shares of two objectives, tuning of one, and its sensitivity."""
    space, seeds, noise, gap = cell
    sweeps, levels = [], []
    for which, name in enumerate("ab"):
        theta, settings = planted.planted(space, which, rng)
        scores, size = scored(theta, seeds, noise, gap, rng)
        sweeps.append(sweep_of(name, scores, settings, space, gap).of_space)
        levels.append(planted.truths(space, which, theta))
    answers = {}
    for stat, name in {"std": "sd_star", "within": "share"}.items():
        a, b = (each[name] for each in levels)
        with drawing(400, seed):
            row = comparison.compare(sweeps, stat=stat).iloc[0]
        answers[f"compare {stat}"] = held(row, "", a / b if stat == "std" else a - b)
    curve = planted.expected_best(cell)
    with drawing(300, seed):
        rows = tuning.expected_best_of_k(sweeps[:1])
        cost = tuning.cost_of_tuning(sweeps[:1]).iloc[0]
    answers["best_of_k"] = held(rows.set_index("k").loc[3], "", curve[2])
    if noise == planted.WORST_TWO:  # more tries are no worse
        falls = (np.diff(rows["expected"]) < -1e-9).any()
        answers["best_of_k"] = answers["best_of_k"]._replace(false=float(falls))
    answers["tuning_cost"] = held(cost, "k", int((curve >= curve[-1] - 1.0).argmax()) + 1)
    if "random" not in space or seed % SURROGATES == 0:
        with drawing(seed=seed):
            frame = sensitivity.sensitivity(sweeps[:1])
        rows = frame[frame["term"].isin(["x", "y"])]
        shares = planted.variance_shares(space, np.mean(size**2))
        ends = rows["first_low"], rows["first_high"]
        answers["sensitivity"] = of_ends(*ends, rows["term"].map(shares))
    return answers


def best(cell, rng, seed):
    """Of two objectives at their best settings, on the study's seeds and on fresh ones: the
    interval against the difference of their best levels, or of the settings that it names.
    """
    space, seeds, noise, gap = cell
    sweeps, levels, answers = [], [], {}
    for which, name in enumerate("ab"):
        theta, settings = planted.planted(space, which, rng)
        theta = 0 * theta if space == planted.FLAT else theta
        scores, size = scored(theta, seeds, noise, gap, rng)
        sweep = sweep_of(name, scores, settings, space, gap)
        sweeps.append(replace(sweep, fresh=confirmed(theta, scores, size, noise, rng)))
        levels.append(theta)
    a, b = levels
    for at, pair in {"": [replace(x, fresh={}) for x in sweeps], "fresh, ": sweeps}.items():
        with drawing(400, seed):
            row = comparison.compare(pair, stat="tuned").iloc[0]
        first, second = (best_setting(sweep).row for sweep in pair)
        verdict = {"false": float(row["resolved"])} if a.max() == b.max() else {}
        answers[f"{at}best"] = held(row, "", a.max() - b.max(), **verdict)
        answers[f"{at}named"] = held(row, "", a[first] - b[second])
    return answers


def confirmed(theta, scores, size, noise, rng, top=3, seeds=3):
    """Scores of the best settings on fresh seeds, as `Sweep.fresh` has them."""
    whole = np.isfinite(scores).sum(axis=1)
    rows = np.flatnonzero(whole == whole.max())
    rows = rows[np.argsort(-np.nanmean(scores[rows], axis=1))[:top]]
    share, drawn = planted.share_of(noise), rng.normal(size=(top, seeds))
    drawn = np.sqrt(1 - share) * drawn + np.sqrt(share) * rng.normal(size=seeds)
    fresh = (theta[rows, None] + size[rows, None] * drawn[: len(rows)]).tolist()
    pairs = zip(rows.tolist(), fresh, strict=True)
    return {row: dict(enumerate(each, 100)) for row, each in pairs}


def seen(cell, rng, seed):
    """Intervals for new images, with the hits and by the seeds alone; both objectives are equal."""
    trials, levels = planted.planted_hits(cell, rng)
    params = ["lr"] if len(levels) > 1 else []
    sweeps = read_sweeps(trials, metric="score", params=params, limits=(0.0, 100.0))
    known, answers = [replace(x, hits=TrialHits(lambda: trials)) for x in sweeps], {}
    with drawing(400, seed):
        for at, pair in {"": known, " (seeds)": sweeps}.items():
            table = config_levels(pair[0])
            row = {name: values[0] for name, values in table.items()}
            answers[f"level{at}"] = held(row, "", levels[0])
            row = comparison.compare(pair).iloc[0]
            answers[f"lead{at}"] = held(row, "", 0.0, false=float(row["resolved"]))
            row = comparison.compare(pair, stat="tuned").iloc[0]
            answers[f"tuned{at}"] = Answer(false=float(row["resolved"]))
        row = tuning.expected_best_of_k([known[0]]).iloc[-1]
        answers["best_of_k"] = held(row, "", levels[best_setting(known[0]).row])
        row = robustness([known[0]]).iloc[0]
        named = {"mean": levels.mean(), "worst_10": levels.min()}
        for name, truth in (named | {"sd_star": np.std(levels, ddof=1)} if params else {}).items():
            answers[name] = held(row, name, truth)
    return answers


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
    shares = np.empty((2, 3))
    for axis in range(3):
        others = [each for each in range(3) if each != axis]
        alone = mean(level, others)
        shares[0, axis] = (weights @ alone**2 - (weights @ alone) ** 2) / total
        shares[1, axis] = mean(mean(level**2, [axis]) - mean(level, [axis]) ** 2, (0, 1)) / total
    return shares, np.sqrt(total)


def search(cell, rng, seed):
    """Of a search the shares of `importance`, and whether an inert parameter is left alone."""
    name, seeds, _, _ = cell
    (_, total), scale = shares_of(planted.SEARCHED[name])
    table = searching(lambda u: planted.SEARCHED[name](u) / scale, seeds, rng, seed)
    with drawing(seed=seed):
        rows = importance.importance([table], within=1.0).set_index("param")
    if rows["importance"].isna().any():
        return {"importance": Answer()}
    rows, inert = rows.loc[["x0", "x1", "x2"]], total < 1e-9
    verdict = {"false": float(rows["resolved"][inert].any())} if inert.any() else {}
    return {"importance": of_ends(rows["low"], rows["high"], total, **verdict)}


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
