"""What the page of the statistics says in words: of each, its column, what it takes for granted,
and what happens where that does not hold. The formulas are those of the tables' COLUMNS.
"""

from clsweep.analysis import tuning
from clsweep.analysis.compare import COMPARISON_COLUMNS as COMPARISON
from clsweep.analysis.importance import IMPORTANCE_COLUMNS as SEARCHED
from clsweep.analysis.robustness import ROBUSTNESS_COLUMNS as ROBUSTNESS
from clsweep.analysis.sensitivity import SENSITIVITY_COLUMNS as SENSITIVITY

HEAD = """# The statistics: formulas, assumptions, coverage

This page is written by `make coverage`, which plants sweeps of known truth and measures them.
Do not edit it. The formulas come from the code's own tables.

Every number of `robustness` and `compare --tuned` rests on {repeats} planted sweeps with fixed
seeds. The others rest on half as many, and every {sampled}th of these has a surrogate. Searches
are an eighth as many. "Coverage" is the percentage of 95 % intervals that hold the truth. Bold
numbers lie outside {least:g} to {most:g}, and the end of this page says why. Chance moves a number
near 95 by about {chance:.1f}. An empty cell has no interval.

The scores are x_is = theta_i + e_is: the level of configuration i, and noise. In the planted sweeps
theta has a spread of 1, and the noise a standard deviation of 0.3. "x3 at the worst" has three
times that noise at the worst tenth of the settings, one setting at least. "t3" has heavy tails.
"x3 at the best" has it at the best tenth.
"Half shared by a seed" gives half of the variance to a shift of all settings at a seed.
"Raced" studies left seeds out as `scheduler: racing` does. Each objective has shifts of its own.
For new images, hits are planted: images are easy and hard, also for a setting alone, or seeds shift
all images. "Seeds" in brackets are intervals by the seeds alone. Both objectives are equal, so "no
winner" is how often none is named.
The grid "with a cliff" has one setting far below the others, so its noise dominates the spread.

What every statistic has in common:

- Scored images are a sample, where trials say which ones they have right (0 or 1: h_ism, of seed s
  and image m). Beside the noise of the seeds, a mean of S seeds and M images then varies over new
  images.
  Formula: Var_m(mean_s h_ism) / M - MS_e / (S M), MS_e of the two-way table h_ism.
  Half widths of both add up as their squares do. Shares of the variance (sensitivity, importance)
  know of no images. What is picked on images is too good on these, so nine tenths of them pick and
  the last tenth scores. The best of 16 equal settings, on 300 images, is then 0.7 points too good,
  and 1.4 without.
- Seeds are noise. Which seeds a configuration has, and what they are called, does not matter. Where
  scores are missing, the likely part of a seed's shift is in no mean m_i: b_s as expected given
  the scores, shrunk the more the less is seen of it (BLUP).
- A grid is the whole space, so its intervals carry the seeds' noise alone.
- A random or qmc design is a sample of the space. Its configurations are resampled as well.
- tpe, gp and asha samples favour good settings, so levels of the space are withheld.
- One seed of a grid shows no noise, so there is no interval, and the note says so.
- Failed trials count as the worst score of their objective, in a comparison as the worst of those
  compared. Intervals of `robustness` reach to those without them.
- Few scores cannot show that the worst setting is noisier. A fifth of all tables hides so many
  times the noise there: {blind}. A note gives this factor where it is {said:g} or
  more.
- Configurations that failed on every seed may be any worse than the worst score seen. Intervals are
  open at the end that they could move.
- Copies of a row are left out with a note. A repeated trial with another value is an error.

## Statistics
"""

UNEVEN = (
    "Where a configuration seems to have more noise than others, its own variance counts by the "
    "chance of that. The interval widens. From five seeds on, where the noise differs beyond doubt "
    "(Bartlett's test, p < 0.0001), each configuration has its own."
)
SHIFT = (
    "Shifts are looked for by an F test (p < 0.25). Where one is seen, the interval widens, and a "
    "note says so."
)
BEST = (
    "The best is picked without the score that scores it. With one seed it cannot be, and the note "
    "calls the number pessimistic."
)
PAIRED = (
    "Scores of both objectives at one setting and seed are pairs, and settings are independent."
)
LEVELS = "Noise is independent between configurations. A shift that a seed gives to all is found."
STATISTICS = {
    "mean": (ROBUSTNESS, "mean", LEVELS, f"{SHIFT} {UNEVEN}"),
    "sd": (ROBUSTNESS, "sd", LEVELS, f"A shift of a seed is taken out. {UNEVEN}"),
    "sd_star": (
        ROBUSTNESS,
        "sd_star",
        "The noise of each mean is known from the repeats of all configurations.",
        f"{UNEVEN} With one seed there is no sd_star.",
    ),
    "regret": (
        ROBUSTNESS,
        "regret",
        "The best is one of the configurations tried.",
        f"{BEST} In a sample a better one may lie between those tried.",
    ),
    "share_within": (
        ROBUSTNESS,
        "share_within",
        "The best is one of the configurations tried. The number is a count.",
        f"{BEST} The interval of a count holds both errors of the best, so it covers too often.",
    ),
    "tolerance_area": (
        ROBUSTNESS,
        "tolerance_area",
        "As share_within, for all distances from 0 to D.",
        BEST,
    ),
    "iqm": (
        ROBUSTNESS,
        "iqm",
        LEVELS,
        "Where noisy means are trimmed at a cliff, the interval moves by the bias, and still holds "
        f"the estimate. {SHIFT}",
    ),
    "worst_10": (
        ROBUSTNESS,
        "worst_10",
        "The worst tenth shows itself on the scores that pick it.",
        f"It is picked without the score that scores it. {UNEVEN}",
    ),
    "band": (
        ROBUSTNESS,
        "band_sure_low",
        "Noise is even over the values of the hyperparameter.",
        "Every value of the band is shown to be within, at once, so the band is cautious. Where "
        "the noise is larger than `within`, there is none.",
    ),
    "slope": (
        ROBUSTNESS,
        "slope",
        "The noise about the levels is even. The line need not be the response.",
        "Noise that most likely stands out counts as its own. Values that are not positive have no "
        "doubling, so there is no slope.",
    ),
    "compare mean": (
        COMPARISON,
        "estimate",
        PAIRED,
        "Where a seed seems to shift all differences, the seeds are the draws. More noise in a "
        "part of the grid counts by its chance. Without pairs the objectives count as independent.",
    ),
    "compare std": (
        COMPARISON,
        "estimate",
        PAIRED,
        "A spread that does not exceed the noise counts as 0, and a note says so.",
    ),
    "compare within": (
        COMPARISON,
        "estimate",
        f"{PAIRED} Each objective has its own best.",
        "The interval of a count covers too often. Fewer than three settings have no interval.",
    ),
    "compare tuned": (
        COMPARISON,
        "estimate",
        "The best of both are among the configurations tried. Noise at them is that of the others. "
        'In the table "best" asks for the difference of the truly best. "Named" asks for that of '
        "the settings that the row names.",
        "On fresh seeds nothing is taken from the study but which settings ran again. Where two "
        "objectives are as good as each other, a verdict is false as often as the interval misses. "
        "Where a setting that lacks seeds scores higher than the one named, the interval reaches "
        "to the difference with that one too.",
    ),
    "best_of_k": (
        tuning.BEST_OF_K_COLUMNS,
        "expected",
        "Tries are drawn evenly, and picked by one score less than there are.",
        "Of a sample, k above half of the configurations has no interval.",
    ),
    "tuning_cost": (
        tuning.COST_COLUMNS,
        "k_within",
        "As best_of_k.",
        "The interval is of whole numbers, so it covers too often.",
    ),
    "sensitivity": (
        SENSITIVITY,
        "first",
        "A whole grid is decomposed. A sample needs a surrogate that predicts unseen settings.",
        "A term must pass its test against the noise. A surrogate that predicts too little is "
        "withheld, and the note gives its R2.",
    ),
    "importance": (
        SEARCHED,
        "importance",
        "A surrogate must predict what was left out of the search.",
        'In the table "not resolved" is how often an inert parameter was not called resolved.',
    ),
}
# Why numbers lie outside, as far as it is known.
LIMITS = """## Known limits

- Intervals of seeds alone are for the scored images, as those of `--images fixed`. For new ones
  they cover too seldom, and equal objectives win too often.
- What is tuned, and what is equal, wins less often than one in 20 by design. Of equal settings SD*
  is 0, where its interval mostly begins.
- share_within, compare within and tuning_cost are counts, which move by steps. Their intervals
  cover too often.
- The band promises all of its values at once, so it is right more often than 95 %.
- Where noise is uneven or has heavy tails, intervals widen, and those that do not rest on the noisy
  settings cover too often.
- What compare std and best_of_k take for noise at every setting is that of the noisy ones, so they
  cover too often.
- No inert parameter of a search was called resolved: that test is cautious.
- Few sweeps have a surrogate, so by chance all of its intervals may hold.
- Of 6 settings, 2 to 5 scores each cannot show that one of them is noisier. What rests on that one
  covers too seldom.
- With 2 or 3 seeds the F test often misses a shift that they share, and levels of a race have 2.
  Levels then cover too seldom. Of 2 seeds, those by the t of the seeds alone would cover 95 %, and
  be 3 times as wide where nothing is shifted.
- Of 6 settings, 2 or 3 scores each cannot show that the best one is noisier. What compare --tuned
  says of it on the study's seeds is then too sure: `clsweep confirm` tells.
- The slope and the shares of sensitivity take the noise as even and normal. Elsewhere they cover
  too seldom.
- Other bold numbers have no known reason. Among so many, some are so by chance.
"""
TRIED = """## Tried, and not taken

The levels of a race rest on its first two seeds, so a shift that these share leaves a wide
interval. The shifts of the further seeds can be estimated from the settings that ran on them. Each
is compared with what its scores so far let expect, as who runs on was lucky before. Shifts were
looked for at p < 0.05. In 600 planted races of 5 seeds, half of the variance shared by a seed, 95 %
intervals of the mean held the truth:

| space | two seeds | mean width | all seeds | mean width |
|---|---|---|---|---|
| grid of 6 | 77 % | 0.87 | 81 % | 0.61 |
| grid of 11 x 5 | 80 % | 1.07 | 86 % | 0.51 |
| random 64 | 94 % | 1.19 | 93 % | 0.74 |

They are narrower, but in grids they still cover too seldom: most of what is missing lies where no
shift is seen. Without any shift one is then seen in 14 % of the races of 11 x 5 settings, and not
in 3 %. A plain additive fit, without that expectation, is off by half as much again. So levels stay
with the first two seeds.
"""
