"""What the page of the statistics says in words: of each, its column, what it takes for granted,
and where it breaks. The formulas are those of the tables.
"""

from clsweep.statistics.registry import formulas

ROBUSTNESS, COMPARISON, CONTRAST, WINNER, MARGINAL, RECOMMEND, SENSITIVITY, SEARCHED, BEST, COST = (
    formulas()[table]
    for table in (
        "robustness", "comparison", "contrasts", "winners", "marginals", "recommendation",
        "sensitivity", "importance", "best of k", "tuning cost",
    )
)  # fmt: skip

HEAD = """# The statistics: coverage, formulas, assumptions

This page is written by `make coverage`, which plants sweeps of known truth and measures them. Do
not edit it. The formulas come from the code's own tables.

A number is the percentage of 95 % intervals that hold the truth, in the worst cell of its column:
a space, and a kind of noise. The four numbers are of 2, 3, 5 and 10 seeds. A dash has no cell.
Bold ones are below {least:g} by more than chance. `coverage.csv` beside this page has every cell,
with the median width of its intervals (in units of the noise, but for shares, ratios, counts and
images). `python tests/coverage.py --only NAME --cells TEXT` measures some cells again: the draws
are fixed.

A cell is {repeats} sweeps; half of these for spreads, shares and tuning, an eighth for searches.
One in {sampled} of a sample has a surrogate. Chance moves a number near 95 by about {chance:.1f},
and the lowest of many by two to three times that.

Scores are x_is = theta_i + e_is, the level of configuration i and noise. The levels have a spread
of 1 and the noise a standard deviation of 0.3.

- *Even*: noise alone. *Heavy tails*: that of t with 3 degrees of freedom.
- *Seed shift*: a quarter to nine tenths of the variance is a shift of all settings at a seed. Each
  objective has its own, or ("common") all share one.
- *Uneven*: 3 or 5 times the noise at the worst tenth of the settings, at the two worst, or (x3) at
  the best.
- *Gaps*: a fifth of the trials is missing; the two best ran on more seeds; every trial has a seed
  of its own; the last seed ran at a third of the settings; a race left out seeds (`scheduler:
  racing`); or 4 of 24 settings are missing, or failed.
- *Cliff*: one setting of a grid, or the end of an axis of a sample, lies far below all others.
- *New images*: images are easy and hard, also for a setting alone, or seeds shift all. "Seeds" in
  brackets are intervals by the seeds alone.
"""

THIRD = """## What a third seed buys

The median width of intervals, in units of the noise, at 2, 3, 5 and 10 seeds:
"""

COMMON = """## What all have in common

- Seeds are noise. Which seeds a configuration has, and what they are called, does not matter.
- A grid is the whole space, so its intervals carry the seeds' noise alone. A random or qmc design
  is a sample of the space, and its configurations count as well. tpe, gp and asha favour good
  settings, so levels of the space are withheld.
- One seed of a grid shows no noise, so there is no interval, and the note says so.
- Scored images are a sample, where trials say which ones they have right (0 or 1: h_ism, of seed s
  and image m). Their variance in a mean of S seeds and M images: Var_m(mean_s h_ism) / M - MS_e /
  (S M), MS_e of the two-way table h_ism. Half widths add up as their squares do. Shares of the
  variance know of no images. Nine tenths of the images pick, and the last tenth scores.
- Failed trials count as the worst score of their objective, in a comparison as the worst of those
  compared. Intervals of `robustness` reach to those without them,
  and are open where configurations that failed on every seed may be any worse.
- Copies of a row are left out with a note. A repeated trial with another value is an error.
"""

BLOCKS = "Seeds are blocks: a shift that a seed gives to all settings, or to all of an objective."
UNEVEN = "Few scores cannot show that one setting is noisier. What rests on that one is too narrow."
PICKED = "The best is picked without the score that scores it. With one seed it cannot be."
NEAR = "Counts move by steps, so it covers too often."
PAIRED = (
    "Scores of both objectives at one setting and seed are pairs, and settings are independent."
)
STATISTICS = {
    "contrast": {
        "contrast": (
            CONTRAST,
            "low",
            "Normal noise of the contrasts at each seed. Sides of one objective, or of two.",
            "Seeds that lack one of its settings are left out.",
        ),
    },
    "compare": {
        "compare": (COMPARISON, "estimate", f"{PAIRED} {BLOCKS}", "Without pairs it is wider."),
    },
    "winners": {
        "lead": (
            WINNER,
            "lead",
            "As compare. A verdict must hold against every other objective.",
            "The best is picked on these scores, so the lead is optimistic. Verdicts are not.",
        ),
    },
    "first screen": {
        "any": (
            COMPARISON,
            "winner",
            "Three equal objectives. Verdicts when tuned, without tuning and of spreads are each "
            "corrected for their pairs (Holm), not for each other.",
            '"Any" may come to three times a single one.',
        ),
    },
    "levels": {
        "level": (RECOMMEND, "low", BLOCKS, UNEVEN),
        "marginal level": (MARGINAL, "low", BLOCKS, UNEVEN),
    },
    "robustness": {
        "mean": (ROBUSTNESS, "mean", BLOCKS, "In a sample, a cliff that no configuration is on."),
        "sd": (ROBUSTNESS, "sd", "A shift of a seed is no part of it.", UNEVEN),
        "sd_star": (
            ROBUSTNESS,
            "sd_star",
            "The noise of each mean is known from the repeats of all configurations.",
            f"{UNEVEN} A sample with a cliff.",
        ),
        "regret": (
            ROBUSTNESS,
            "regret",
            "The best is one of the configurations tried.",
            f"{PICKED} In a sample a better one may lie between those tried.",
        ),
        "share_within": (ROBUSTNESS, "share_within", "As regret.", f"{PICKED} {NEAR}"),
        "tolerance_area": (ROBUSTNESS, "tolerance_area", "As regret, for all distances.", PICKED),
        "iqm": (ROBUSTNESS, "iqm", BLOCKS, "Noisy means that are trimmed at a cliff bias it."),
        "worst_10": (
            ROBUSTNESS,
            "worst_10",
            "The worst tenth shows itself on the scores that pick it.",
            f"{UNEVEN} In a sample, a cliff that few configurations are on.",
        ),
        "band": (
            ROBUSTNESS,
            "band_sure_low",
            "Noise is even over the values of the hyperparameter.",
            "All values are shown to be within at once, so it is cautious. There is none where the "
            "noise is larger than `within`.",
        ),
        "slope": (
            ROBUSTNESS,
            "slope",
            "The noise about the levels is even. The line need not be the response.",
            f"{UNEVEN} None where values are not positive.",
        ),
    },
    "robustness --by": {
        "mean": (
            ROBUSTNESS,
            "mean",
            "The hyperparameters add up, where settings are missing.",
            "Where they do not, averages over other settings differ by what is missing.",
        ),
    },
    "others": {
        "compare std": (
            COMPARISON,
            "estimate",
            PAIRED,
            "A spread that does not exceed the noise counts as 0, and a note says so.",
        ),
        "compare within": (COMPARISON, "estimate", f"{PAIRED} Each has its own best.", NEAR),
        "best_of_k": (
            BEST,
            "expected",
            "Tries are drawn evenly, and picked by one score less than there are. False: the curve "
            "falls with k.",
            "In a sample, k above half of the configurations has no interval.",
        ),
        "tuning_cost": (COST, "k_within", "As best_of_k.", NEAR),
        "sensitivity": (
            SENSITIVITY,
            "first",
            "A grid is decomposed. A sample needs a surrogate that predicts unseen settings.",
            "Noise that is uneven or has heavy tails. A surrogate that predicts too little is "
            "withheld.",
        ),
    },
    "compare tuned": {
        "best": (
            COMPARISON,
            "estimate",
            'Noise at the best is that of the others. "Best" is the difference of the truly best, '
            '"named" of the settings that the row names.',
            "More noise at the best settings, which 2 or 3 scores cannot show: `clsweep confirm` "
            "tells. Fresh seeds take nothing from the study but which settings ran again.",
        ),
    },
    "importance": {
        "importance": (
            SEARCHED,
            "importance",
            "A surrogate predicts what was left out of the search. False: an inert parameter is "
            "called resolved.",
            "Little was tried where the parameter matters.",
        ),
    },
    "new images": {
        "level": (
            RECOMMEND,
            "low",
            "Hits are known, and new images are like the scored ones.",
            "Intervals by the seeds alone are for the scored images.",
        ),
    },
}
# Why numbers lie outside, as far as it is known.
LIMITS = """## Known limits

- Of 6 settings, 2 to 5 scores each cannot show that one of them is noisier. What rests on that one
  covers too seldom: levels of the worst, slopes, shares of the sensitivity, what is best when
  tuned.
- A race has two seeds at all settings, and levels rest on these.
- In a sample, no interval knows of a cliff that no configuration is on.
- What is tuned, and what is equal, wins less often than one in 20 by design. Of equal settings SD*
  is 0, where its interval mostly begins.
- Where noise is uneven or has heavy tails, intervals widen, and those that do not rest on the
  noisy settings cover too often. So do those of counts, and the band.
- Other bold numbers have no known reason. Among so many, some are so by chance.
"""
TRIED = """## Tried, and not taken

The levels of a race rest on its first two seeds. The shifts of the further seeds can be estimated
from the settings that ran on them: each against what its scores so far let expect, as who runs on
was lucky before. In 600 planted races of 5 seeds, half of the variance shared by a seed, 95 %
intervals of the mean held the truth:

| space | two seeds | mean width | all seeds | mean width |
|---|---|---|---|---|
| grid of 6 | 77 % | 0.87 | 81 % | 0.61 |
| grid of 11 x 5 | 80 % | 1.07 | 86 % | 0.51 |
| random 64 | 94 % | 1.19 | 93 % | 0.74 |

They are narrower, but in grids they still cover too seldom. Without any shift one is then seen in
14 % of the races of 11 x 5 settings, and not in 3 %. So levels stay with the first two seeds.
"""
# By tests/analysis/test_fidelity.py and test_ablation.py, which plant tables of their own.
CROSS_FITTED = """## Choosing early, and the way from the default

300 planted tables a cell, with a noise of 0.3: `pytest -m slow -s` of the files test_fidelity.py
and test_ablation.py in tests/analysis. A table has settings and seeds, levels of a spread, a part
of the noise that a seed shares, and trials without a score ("missing").

How often the 95 % intervals of `fidelity` held the expected loss, the expected rank correlation
("rho"), and the loss of a choice without noise. Levels come with their correlation, early with
last:

| settings, seeds | levels | shared, missing | loss | rho | loss without noise |
|---|---|---|---|---|---|
| 6, 3 | 1, 0.8 | 0, 0 | 98.7 | 98.7 | 99.0 |
| 6, 5 | 1, 0.8 | 0, 0 | 98.0 | 98.7 | 96.0 |
| 12, 3 | 1, 0.8 | 0.5, 0 | 98.3 | 99.0 | 98.3 |
| 12, 5 | 1, 0.8 | 0.5, 0 | 98.0 | 99.3 | 98.3 |
| 12, 3 | 1, 0.8 | 0.5, 0.2 | 97.3 | 99.3 | 96.3 |
| 12, 5 | 0.3, 0.9 | 0, 0.2 | 99.3 | 98.3 | 99.3 |
| 6, 3 | 3, 0.9 | 0.5, 0 | 97.7 | 98.0 | 98.7 |
| 6, 3 | 0, 0 | 0, 0 | 99.7 | 97.3 | 99.7 |
| 4, 5 | 1, 0.5 | 0.5, 0.1 | 97.0 | 96.7 | 96.7 |
| 24, 10 | 0.5, 0.9 | 0.5, 0 | 97.0 | 99.3 | 95.7 |

Of `ablation` on grids, the gains on the path without noise, those on the path that is named, and
the whole gain:

| grid, seeds | levels | shared, missing | without noise | named | whole gain |
|---|---|---|---|---|---|
| 3 x 2 x 2, 3 | 1 | 0, 0 | 98.9 | 99.4 | 100 |
| 3 x 2 x 2, 5 | 1 | 0.5, 0 | 98.2 | 98.9 | 98.3 |
| 4 x 3, 3 | 1 | 0.5, 0 | 98.5 | 99.3 | 99.3 |
| 4 x 3, 5 | 1 | 0, 0.1 | 98.3 | 98.8 | 98.7 |
| 4 x 3, 3 | 0.3 | 0, 0.1 | 99.3 | 99.7 | 99.3 |
| 5 x 4, 3 | 3 | 0.5, 0.2 | 99.4 | 99.7 | 99.3 |
| 3 x 3 x 3, 5 | 0.5 | 0.5, 0 | 98.4 | 99.7 | 98.3 |

By a surrogate of 64 sampled settings of three hyperparameters, on the path that is named, 100
tables: 97.8 of one seed, 98.5 of three seeds that share half of the noise.

Intervals are the wider one of t over the seeds and of resamples, and cover too often. By t alone
those of the loss held it in 34 to 89 of 100 (150 tables in each of 15 cells): where all seeds pick
alike it sees no noise.
"""
