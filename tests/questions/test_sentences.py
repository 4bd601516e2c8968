"""Sentences of a report: each gate on both sides, on planted tables."""

import math

import numpy as np
import pandas as pd
import pytest

from clsweep.analysis.reasons import Reason
from clsweep.analysis.robustness.table import robustness
from clsweep.analysis.sweep import read_sweeps
from clsweep.questions import health, mechanism, recommend, sensitivity, tuning, winners
from clsweep.questions import pairs as contrasts
from clsweep.questions import robustness as spreads
from clsweep.questions.model import Wording
from clsweep.questions.words import interval, known, listed, number
from tests.analysis.draws import drawing
from tests.planted import planted

WORDS = Wording(metric="knn_top1", unit="%")
NATS = Wording(metric="mi_estimate", unit="nats")
NAN, INF = math.nan, math.inf


def pairs(*rows):
    """Rows of `compare`; a resolved ratio in favour of dcl unless told otherwise."""
    blank = {
        "region": "", "num_pairs": 30, "num_seeds": 3, "p": 0.001, "p_holm": 0.002,
        "needs_seeds": NAN, "needs_configs": NAN, "resolved": True, "reason": "", "note": "",
    }  # fmt: skip
    return pd.DataFrame([{**blank, **row} for row in rows])


RATIO = {
    "a": "dcl", "b": "simclr", "stat": "std", "estimate": 0.52, "low": 0.35, "high": 0.78,
    "value_a": 0.98, "value_b": 1.87, "winner": "dcl",
}  # fmt: skip
LEAD = {
    "a": "dcl", "b": "simclr", "stat": "mean", "estimate": 1.8, "low": 1.2, "high": 2.4,
    "value_a": 90.0, "value_b": 88.2, "winner": "dcl",
}  # fmt: skip


def spread(**row):
    return contrasts.spreads(pairs({**RATIO, **row}), WORDS)


def mean(**row):
    return contrasts.means(pairs({**LEAD, **row}), WORDS)


# Numbers and words


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5234, "0.523"),
        (94.13, "94.1"),
        (0.0, "0"),
        (-0.0, "0"),
        (65536, "65,536"),
        (999.7, "1,000"),
        (-1.234, "-1.23"),
    ],
)
def test_numbers_have_three_digits_and_no_exponent(value, expected):
    assert number(value) == expected


def test_a_bound_next_to_its_gate_does_not_read_as_the_gate():
    assert number(0.99996, apart_from=1.0) == "0.99996"
    assert number(1.0, apart_from=1.0) == "1"
    assert interval(0.35, 0.9999, apart_from=1.0) == " [0.35, 0.9999]"


@pytest.mark.parametrize(
    "value", [NAN, INF, -INF, None, pd.NA, "1", True, np.bool_(True), np.float64(NAN)]
)
def test_what_is_no_finite_number_is_not_known(value):
    assert not known(value)


@pytest.mark.parametrize("value", [0, 1.5, np.float64(2), np.int64(3)])
def test_finite_numbers_are_known(value):
    assert known(value)


def test_units_and_lists():
    assert (WORDS.amount(1.0), WORDS.amount(1.8), WORDS.level(94.1)) == (
        "1 point",
        "1.8 points",
        "94.1 %",
    )
    assert (NATS.amount(1), NATS.amount(0.2), NATS.level(2.5)) == ("1 nat", "0.2 nats", "2.5 nats")
    assert Wording(metric="x").amount(0.02) == "0.02"
    assert (listed([]), listed(["a"]), listed(["a", "b", "c"])) == ("", "a", "a, b and c")


# Spread


def test_a_resolved_ratio_is_told_from_the_winner_s_side():
    expected = (
        "dcl is more robust than simclr: the spread of knn_top1 due to hyperparameters is 0.52 "
        "times as large [0.35, 0.78] (SD* 0.98 against 1.87 points)."
    )
    assert spread() == (expected,)
    swapped = {"a": "simclr", "b": "dcl", "estimate": 1 / 0.52, "low": 1 / 0.78, "high": 1 / 0.35}
    assert spread(**swapped, value_a=1.87, value_b=0.98) == (expected,)


@pytest.mark.parametrize(
    "row",
    [
        {"winner": "", "resolved": False},
        {"p_holm": 0.06},
        {"p_holm": NAN},
        {"high": 1.0},
        {"high": NAN},
        {"winner": "simclr"},  # the interval says dcl
        {"estimate": NAN},
        {"estimate": INF},
        {"value_a": NAN},
        {"value_b": 0.0},
        {"winner": NAN, "resolved": NAN},
    ],
)
def test_a_ratio_that_any_part_of_the_gate_stops_is_not_resolved(row):
    (sentence,) = spread(**row)
    assert sentence.startswith("Whether dcl or simclr is more robust is not resolved")
    assert "nan" not in sentence
    assert "inf" not in sentence


def test_an_unresolved_ratio_says_what_is_seen_and_how_many_seeds_it_takes():
    row = {
        "estimate": 0.8, "low": 0.4, "high": 1.9, "p_holm": 0.4, "winner": "", "resolved": False,
        "needs_seeds": 7.2,
    }  # fmt: skip
    assert spread(**row) == (
        "Whether dcl or simclr is more robust is not resolved (SD* ratio dcl / simclr 0.8 [0.4, "
        "1.9]); it needs about 8 seeds.",
    )
    row["note"] = "10 sampled settings: intervals may be too narrow"
    assert spread(**row | {"needs_seeds": NAN})[0].endswith("[0.4, 1.9]).")
    (sentence,) = spread(**row | {"needs_seeds": NAN, "needs_configs": 90.0})
    assert sentence.endswith("[0.4, 1.9]); it needs about 90 configurations.")
    unknown = {"low": NAN, "high": NAN, "needs_seeds": NAN, "reason": Reason.ONE_SEED_NO_SPREAD}
    assert spread(**row | unknown) == (
        "Whether dcl or simclr is more robust is not resolved: one seed: no std, which needs the "
        "seed noise.",
    )


def test_no_ratio_is_made_with_a_zero():
    (sentence,) = spread(estimate=0.0, low=0.0, value_a=0.0)
    assert sentence == (
        "dcl is more robust than simclr: its knn_top1 has no spread due to hyperparameters that "
        "shows above the seed noise, against SD* 1.87 points."
    )
    unresolved = {"winner": "", "resolved": False, "p_holm": 1.0}
    assert "ratio" not in spread(**unresolved, estimate=0.0, low=0.0, high=1.5, value_a=0.0)[0]
    assert "ratio" not in spread(**unresolved, estimate=INF, low=0.4, high=INF, value_b=0.0)[0]
    assert "ratio" not in spread(**unresolved, estimate=1.0, low=0.0, high=INF)[0]
    assert "0.8, at most 1.9)" in spread(**unresolved, estimate=0.8, low=0.0, high=1.9)[0]
    assert "0.8, at least 0.3)" in spread(**unresolved, estimate=0.8, low=0.3, high=INF)[0]


def test_an_open_end_of_a_resolved_ratio_is_called_open():
    assert "0.52 times as large, at most 0.78 (SD*" in spread(low=0.0)[0]
    swapped = {
        "a": "simclr", "b": "dcl", "estimate": 2.0, "low": 1.25, "high": INF, "value_a": 2.0,
        "value_b": 1.0,
    }  # fmt: skip
    assert "0.5 times as large, at most 0.8 (SD* 1 against 2 points)" in spread(**swapped)[0]


def test_pairs_that_were_not_measured_share_a_sentence_for_each_reason():
    rows = [
        {**RATIO, "b": name, "winner": "", "resolved": False, "note": "dcl: tpe samples"}
        | {"reason": Reason.ADAPTIVE_SAMPLER}
        for name in ("simclr", "eqco")
    ]
    assert contrasts.spreads(pairs(*rows), WORDS) == (
        "The spreads of dcl and simclr; dcl and eqco are not compared: dcl: tpe samples.",
    )


def test_only_an_objective_that_beats_every_other_one_is_a_champion():
    rows = [
        {**RATIO, "b": "simclr"},
        {**RATIO, "b": "eqco"},
        {**RATIO, "a": "simclr", "b": "eqco", "winner": "", "resolved": False},
    ]
    said = contrasts.spreads(pairs(*rows), WORDS)
    assert said[0] == "dcl is more robust than each of the 2 other objectives."
    rows[1] |= {"p_holm": 0.2}
    assert not any("each of" in sentence for sentence in contrasts.spreads(pairs(*rows), WORDS))
    assert not any("each of" in sentence for sentence in spread())  # of two there is no superlative


def test_many_unresolved_pairs_share_one_sentence():
    names = ["a", "b", "c", "d"]
    rows = [
        {**RATIO, "a": a, "b": b, "winner": "", "resolved": False, "needs_seeds": 5}
        for i, a in enumerate(names)
        for b in names[i + 1 :]
    ]
    (sentence,) = contrasts.spreads(pairs(*rows), WORDS)
    assert sentence.startswith(
        "Which objective is more robust is not resolved for 6 pairs: a and b, needs about 5 seeds;"
    )


# Mean


def test_a_resolved_mean_is_told_from_the_winner_s_side():
    expected = (
        "dcl scores 1.8 points higher than simclr on average over the shared space [1.2, 2.4]."
    )
    assert mean() == (expected,)
    assert mean(a="simclr", b="dcl", estimate=-1.8, low=-2.4, high=-1.2) == (expected,)
    low_is_good = Wording(metric="loss", mode="min")
    assert "1.8 lower than" in contrasts.means(pairs(LEAD), low_is_good)[0]


@pytest.mark.parametrize(
    "row",
    [
        {"low": 0.0},
        {"low": -0.1},
        {"p_holm": 0.051},
        {"winner": "simclr"},
        {"high": NAN},
        {"estimate": NAN},
    ],
)
def test_a_mean_that_any_part_of_the_gate_stops_is_not_resolved(row):
    (sentence,) = mean(**row)
    assert sentence.startswith("Whether dcl or simclr scores better on average is not resolved")


def test_an_unresolved_mean_shows_the_lead():
    row = {
        "estimate": 0.3, "low": -0.4, "high": 1.0, "winner": "", "resolved": False,
        "needs_seeds": 1.0,
    }  # fmt: skip
    assert mean(**row) == (
        "Whether dcl or simclr scores better on average is not resolved (lead of dcl: 0.3 points "
        "[-0.4, 1]); it needs about 1 seed.",
    )


@pytest.mark.parametrize("function", [contrasts.spreads, contrasts.means])
def test_one_objective_has_no_comparison(function):
    assert function(pd.DataFrame(columns=pairs(RATIO).columns), WORDS) == ()
    assert function(pd.DataFrame(), WORDS) == ()


def test_names_stand_as_they_are():
    assert mean(a="<b>.x[0]", winner="<b>.x[0]")[0].startswith("<b>.x[0] scores 1.8 points")


# Sensitivity


def effect(term, value, low, high, **row):
    return {
        "objective": "dcl", "method": "sobol", "term": term, "order": 1, "null": 0.05,
        "resolved": True, "reason": "", "note": "", "total": value, "total_low": low,
        "total_high": high, "first": 0.1, "first_low": 0.05, "first_high": 0.2, **row,
    }  # fmt: skip


def effects(*rows):
    return sensitivity.effects(pd.DataFrame(rows))


def test_a_hyperparameter_matters_most_only_above_all_other_intervals():
    tau = effect("tau", 0.71, 0.6, 0.8)
    said = "dcl: tau matters most (total effect 0.71 [0.6, 0.8], an inert one reaches 0.05)."
    assert effects(tau, effect("lr", 0.3, 0.2, 0.4)) == (
        said,
        "dcl: lr (total effect 0.3 [0.2, 0.4], an inert one reaches 0.05) matters too.",
    )
    assert effects(tau, effect("lr", 0.02, 0.0, 0.1, resolved=False)) == (said,)
    assert (
        "which of them matters most is not resolved"
        in effects(tau, effect("lr", 0.5, 0.4, 0.61))[1]
    )
    assert (
        "that the others matter less is not resolved"
        in effects(tau, effect("lr", 0.5, NAN, NAN))[1]
    )
    assert (
        "that the others matter less is not resolved"
        in effects(tau, effect("lr", 0.5, 0.0, INF))[1]
    )
    assert effects(tau) == (
        "dcl: tau matters (total effect 0.71 [0.6, 0.8], an inert one reaches 0.05).",
    )


def test_a_small_effect_is_called_small():
    tau, small = (
        effect("tau", 0.71, 0.6, 0.8),
        {"null": 0.001, "method": "anova", "first_low": 0.003},
    )
    lr = effect("lr", NAN, NAN, NAN, first=0.005, first_high=0.008, **small)
    said = (
        "dcl: lr (share of the variance 0.005 [0.003, 0.008], an inert one reaches 0.001) has "
        "a small effect."
    )
    assert (
        effects({**tau, "method": "anova", "first": 0.7, "first_low": 0.6, "first_high": 0.8}, lr)[
            1
        ]
        == said
    )
    assert effects(lr) == (said,)
    pair = effects(
        effect("tau x lr", NAN, NAN, NAN, order=2, first=0.005, first_high=0.008, **small), lr
    )
    assert "depend on each other a little (share" in pair[1]


@pytest.mark.parametrize(
    "row",
    [
        {"resolved": False},
        {"resolved": NAN},
        {"null": 0.8},
        {"null": NAN},
        {"total_low": NAN},
        {"resolved": None},
    ],
)
def test_an_effect_behind_its_gate_is_not_resolved(row):
    (sentence,) = effects(
        effect("tau", 0.71, 0.6, 0.8, **row), effect("lr", 0.01, 0.0, 0.02, resolved=False)
    )
    assert sentence.startswith(
        "dcl: no hyperparameter's effect is resolved; an inert one reaches 0."
    )


def test_shares_of_an_anova_are_of_each_on_its_own():
    rows = [
        effect("tau", NAN, NAN, NAN, method="anova", first=0.5, first_low=0.4, first_high=0.6),
        effect("lr", 0.9, 0.8, 1.0, method="anova", first=0.2, first_low=0.1, first_high=0.3),
        effect(
            "tau x lr",
            NAN,
            NAN,
            NAN,
            method="anova",
            order=2,
            first=0.2,
            first_low=0.1,
            first_high=0.3,
        ),
        effect("seed noise", NAN, NAN, NAN, method="anova", order=0, first=0.9, resolved=False),
    ]
    first, *_, second = effects(*rows)
    assert first.startswith(
        "dcl: tau matters most on its own (share of the variance 0.5 [0.4, 0.6], an inert one"
    )
    assert second.startswith(
        "dcl: the effects of tau and lr depend on each other (share of the variance 0.2"
    )


def test_an_effect_whose_interval_holds_none_is_not_claimed():
    (sentence,) = effects(effect("tau", 0.45, 0.0, 0.73))
    assert "no hyperparameter's effect" in sentence
    assert "tau" not in sentence


def test_an_objective_below_the_gate_has_its_note():
    row = {**effect("", NAN, NAN, NAN, resolved=False), "first": NAN}
    note = "the surrogate predicts too little, needs about 80 configurations"
    assert effects({**row, "reason": Reason.SURROGATE_WEAK, "note": note}) == (
        f"What matters for dcl is not resolved: {note}.",
    )
    assert effects({**row, "reason": Reason.ADAPTIVE_SAMPLER, "note": "tpe samples"}) == (
        "What matters for dcl is not measured: tpe samples.",
    )
    assert effects({**row, "reason": Reason.NOTHING_SWEPT, "note": "x"}) == ()
    assert effects({**row, "note": NAN}) == ("What matters for dcl is not resolved.",)
    assert sensitivity.effects(pd.DataFrame()) == ()


# Bands, regions, tuning


BAND = {
    "objective": "dcl", "band_param": "tau", "band_low": 0.07, "band_high": 0.5, "band_ratio": 7.14,
    "band_sure_low": 0.07, "band_sure_high": 0.5, "band_end": "", "band_bins": NAN,
    "level_noise": 0.1, "noise_of": "seeds",
}  # fmt: skip


def band(*rows):
    return spreads.bands(pd.DataFrame([{**BAND, **row} for row in rows]), WORDS)


def test_the_usable_band():
    alone = {"objective": "simclr", "band_high": 0.07, "band_sure_high": 0.07, "band_ratio": 1.0}
    assert band({}, alone, {"band_param": "lr"}) == (
        "Usable band of tau, within 1 point of the best: dcl from 0.07 to 0.5 (a factor of 7.14); "
        "simclr at 0.07 alone.",
        "Usable band of lr, within 1 point of the best: dcl from 0.07 to 0.5 (a factor of 7.14).",
    )
    assert band({"band_ratio": NAN}) == (
        "Usable band of tau, within 1 point of the best: dcl from 0.07 to 0.5.",
    )


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"band_sure_low": 0.1}, "at least from 0.1 to 0.5"),  # no factor: it may be larger
        ({"band_sure_low": 0.1, "band_sure_high": 0.1}, "at least at 0.1"),
        ({"band_end": "low"}, "from 0.07, the lowest swept value, to 0.5"),
        ({"band_end": "high"}, "from 0.07 to 0.5, the highest swept value"),
        ({"band_end": "both"}, "at every swept value, 0.07 to 0.5"),
        (
            {"band_end": "both", "band_sure_low": 0.1},
            "at least from 0.1 to 0.5, the highest swept value",
        ),
        ({"band_end": "low", "band_sure_low": 0.1}, "at least from 0.1 to 0.5"),
        (
            {"band_bins": 6, "band_sure_low": 0.1, "band_sure_high": 0.3},
            "at least from 0.1 to 0.3, the middles of bins",
        ),
        (
            {"band_bins": 6, "band_sure_low": 0.1, "band_sure_high": 0.1},
            "at least at 0.1, the middle of a bin",
        ),
    ],
)
def test_a_band_is_named_as_far_as_it_is_shown(row, said):
    assert band(row) == (f"Usable band of tau, within 1 point of the best: dcl {said}.",)


def test_a_band_whose_levels_are_noisy_is_not_claimed():
    noisy = {"band_sure_low": NAN, "band_sure_high": NAN, "level_noise": 0.44}
    assert band(noisy, {**noisy, "objective": "simclr"}) == (
        "The usable band of tau is not resolved for dcl and simclr: the seeds' noise is too large "
        "to tell levels 1 point apart.",
    )
    assert band({**noisy, "noise_of": "configurations"}) == (
        "The usable band of tau is not resolved for dcl: the configurations that share a value or "
        "bin differ too much "
        "to tell levels 1 point apart, which more of them would mend, not more seeds.",
    )


@pytest.mark.parametrize(
    "row",
    [
        {"level_noise": NAN},
        {"band_low": NAN},
        {"band_high": INF},
        {"band_param": ""},
        {"band_param": NAN},
    ],
)
def test_no_band_without_its_numbers(row):
    assert band(row) == ()


def planted_bands(level, grid, *, failed_as="worst", **options):
    """Sentences of a planted grid, for each of 100 draws of the noise."""
    for seed in range(100):
        trials = planted(level, grid=grid, seed=seed, **options)
        sweeps = read_sweeps(trials, metric="knn_top1", params=list(grid), failed_as=failed_as)
        with drawing(2):
            found = robustness(sweeps, by=next(iter(grid)))
        yield spreads.bands(found, WORDS)


@pytest.mark.slow
def test_noise_that_hides_an_effect_makes_no_band():
    said = planted_bands(lambda at: 70 + 3 * at["w"], {"w": [0.0, 1.0]}, noise=3.0)
    assert sum("Usable" in " ".join(each) for each in said) <= 5
    said = planted_bands(lambda at: 70 + 0 * at["w"], {"w": [0.0, 0.25, 0.5, 0.75, 1.0]}, noise=1.0)
    assert sum("Usable" in " ".join(each) for each in said) <= 5


def test_a_band_holds_no_value_that_is_truly_worse():
    """One value of 5 is the best, the others are just outside; the claims that name one of them are
    at most 5 %.
    """
    said = planted_bands(
        lambda at: 70.0 if at["w"] == 0.5 else 68.99, {"w": [0.0, 0.25, 0.5, 0.75, 1.0]}, noise=0.3
    )
    right = ("dcl at 0.5 alone.", "dcl at least at 0.5.")
    claims = [sentence for each in said for sentence in each if "Usable" in sentence]
    assert len(claims) >= 90
    assert sum(not sentence.endswith(right) for sentence in claims) <= 5


@pytest.mark.parametrize(
    ("failed_as", "bands"),
    [
        ("left out", {"at every swept value, 32 to 256"}),
        ("worst", {"at 32 alone", "from 128 to 256, the highest swept value"}),  # 4 points less
    ],
)
def test_a_configuration_that_failed_makes_no_band_of_the_others(failed_as, bands):
    """The batch size has no effect; that of 64 failed at the best tau, and the plain averages say 3
    points less.
    """
    grid = {"batch_size": [32, 64, 128, 256], "tau": [0.05, 0.1, 0.2, 0.5, 1.0]}
    level = dict(zip(grid["tau"], [80.0, 92.0, 80.0, 75.0, 70.0], strict=True))
    said = planted_bands(
        lambda at: level[at["tau"]],
        grid,
        noise=0.1,
        fail=lambda at: at["tau"] == 0.1 and at["batch_size"] == 64,
        failed_as=failed_as,
    )
    start = "Usable band of batch_size, within 1 point of the best: dcl "
    assert set(said) == {(f"{start}{each}, with 3 failed trials.",) for each in bands}


def test_no_band_in_a_table_without_one():
    assert spreads.bands(pd.DataFrame([{"objective": "dcl", "num_seeds": 3}]), WORDS) == ()


def region(at, name, **row):
    return {
        "by": "tau", "region": f"tau={at}", "objective": name, "winner": name, "resolved": True,
        "reason": "", "runner_up": "simclr", "mean": 90.0, "lead": 1.0, "low": 0.4, "high": 1.6,
        "p_holm": 0.01, "note": "", **row,
    }  # fmt: skip


def regions(*rows):
    return winners.best_regions(pd.DataFrame(rows), WORDS)


def test_winners_along_a_hyperparameter():
    assert regions(region(0.1, "dcl"), region(0.2, "dcl", lead=1.5)) == (
        "dcl is best at every value of tau, 1 to 1.5 points ahead of the next.",
    )
    assert regions(
        region(0.1, "dcl"), region(0.2, "dcl"), region(0.5, "simclr"), region(1, "dcl", p_holm=0.3)
    ) == (
        "Along tau, dcl is best at 0.1 and 0.2 and simclr is best at 0.5; at 1 it is not resolved.",
    )


@pytest.mark.parametrize(
    "row",
    [
        {"winner": "", "resolved": False},
        {"low": 0.0},
        {"low": NAN},
        {"p_holm": NAN},
        {"lead": NAN},
        {"lead": -1.0},
    ],
)
def test_a_region_behind_its_gate_has_no_winner(row):
    said = regions(region(0.1, "dcl", **row), region(0.2, "dcl", **row))
    assert said == ("Which objective is best is not resolved at any value of tau.",)
    (mixed,) = regions(region(0.1, "dcl"), region(0.2, "dcl", **row))
    assert mixed == "Along tau, dcl is best at 0.1; at 0.2 it is not resolved."


COST = {
    "objective": "dcl", "best_level": 90.0, "k_within": 4.0, "k_low": 2.0, "k_high": 7.0,
    "default_at": "tau=0.1",
}  # fmt: skip
GAIN = {
    "default": 88.0, "tunability": 2.1, "tunability_low": 1.5, "tunability_high": 2.7, "reason": "",
    "note": "",
}  # fmt: skip


def test_what_tuning_costs_and_gains():
    rows = [
        {**COST, **GAIN},
        {**COST, **GAIN, "objective": "eqco", "k_within": 1.0, "k_low": 1.0, "k_high": 1.0},
    ]
    tries, *gains = tuning.tuning(pd.DataFrame(rows), WORDS)
    assert tries == (
        "Configurations tried at random come within 1 point of the objective's best: dcl after "
        "about 4 tries [2, 7]; eqco after about 1 try [1, 1]."
    )
    assert gains[0] == "Tuning dcl gains 2.1 points [1.5, 2.7] over its default (tau=0.1)."


def test_one_configuration_has_nothing_to_tune():
    alone = {
        **COST, "k_within": NAN, "k_low": NAN, "k_high": NAN, "tunability": NAN,
        "reason": Reason.ONE_CONFIG,
    }  # fmt: skip
    assert tuning.tuning(pd.DataFrame([alone]), WORDS) == ()


def test_tuning_that_is_not_resolved():
    lost = {**COST, "k_high": NAN, **GAIN, "tunability_low": -0.1}
    assert tuning.tuning(pd.DataFrame([lost]), WORDS) == (
        "How many tries it takes to come within 1 point of the objective's best is not resolved "
        "for dcl.",
        "Whether tuning dcl gains anything over its default (tau=0.1) is not resolved (2.1 points "
        "[-0.1, 2.7]).",
    )
    no_default = {**COST, **GAIN, "tunability": NAN}
    assert len(tuning.tuning(pd.DataFrame([no_default]), WORDS)) == 1
    assert tuning.tuning(pd.DataFrame(), WORDS) == ()


# Failures, links, fresh seeds, samples


FAILURE = {
    "objective": "simclr", "param": "tau", "region": "tau=0.05", "trials": 30, "failed": 12,
    "rate": 0.4, "low": 0.23, "high": 0.59, "p_holm": 0.001, "resolved": True,
}  # fmt: skip


def test_regions_of_failure():
    assert health.failures(pd.DataFrame([FAILURE])) == (
        "simclr fails more often at tau=0.05 than elsewhere: 12 of 30 trials (40 % [23, 59]).",
    )
    for row in (
        {"resolved": False},
        {"p_holm": 0.2},
        {"p_holm": NAN},
        {"rate": NAN},
        {"failed": 0},
    ):
        assert health.failures(pd.DataFrame([{**FAILURE, **row}])) == ()
    assert health.failures(pd.DataFrame()) == ()


LINK = {
    "objective": "dcl", "diagnostic": "q_b_mean", "rho": -0.7, "low": -0.8, "high": -0.5,
    "p_holm": 0.01, "resolved": True, "reason": "",
}  # fmt: skip


def test_links_are_called_associations():
    other = {**LINK, "diagnostic": "effective_rank", "rho": 0.5, "low": 0.2, "high": 0.7}
    assert mechanism.associations(pd.DataFrame([LINK]), WORDS) == (
        "Over the settings of dcl, q_b_mean is lower (Spearman -0.7 [-0.8, -0.5]) where knn_top1 "
        "is higher: an association, not a cause.",
    )
    (both,) = mechanism.associations(pd.DataFrame([LINK, other]), WORDS)
    assert both.endswith("associations, not causes.")
    assert mechanism.associations(pd.DataFrame(), WORDS) == ()


@pytest.mark.parametrize(
    "row",
    [
        {"resolved": False},
        {"p_holm": 0.06},
        {"high": 0.0},
        {"rho": NAN},
        {"rho": 0.7},  # the interval says lower
    ],
)
def test_a_link_behind_its_gate_is_not_resolved(row):
    said = mechanism.associations(pd.DataFrame([{**LINK, **row}]), WORDS)
    assert said == ("Which diagnostics go with knn_top1 is not resolved for dcl.",)


FRESH = {
    "objective": "dcl", "rank": 1, "search": 94.9, "fresh": 94.1, "fresh_low": 93.8,
    "fresh_high": 94.4, "fresh_seeds": 5, "fresh_failed": 0, "search_seeds": 3, "test": 93.5,
    "test_low": 93.1, "test_high": 93.9,
}  # fmt: skip


def fresh(words=WORDS, **row):
    return recommend.confirmed(pd.DataFrame([{**FRESH, **row}]), words)


def test_what_the_best_setting_keeps():
    assert fresh() == (
        "The best dcl setting keeps 94.1 % [93.8, 94.4] on 5 fresh seeds; the search said 94.9 %, "
        "0.8 points too good [0.31, 1.29]; the test split says 93.5 % [93.1, 93.9].",
    )
    assert (
        "too good" not in fresh(search=94.5)[0]
    )  # outside the fresh interval, but three seeds are noisy too
    assert "too good" not in fresh(search_seeds=NAN)[0]
    assert "too good" not in fresh(fresh_low=NAN, fresh_high=NAN)[0]
    # An end at 100 % is no shorter interval: 3.4 points on the other side explain the excess.
    assert "too good" not in fresh(fresh=98.6, fresh_low=95.2, fresh_high=100, search=99.9)[0]
    assert fresh(test=NAN, fresh_seeds=1, fresh_low=NAN, fresh_high=NAN) == (
        "The best dcl setting keeps 94.1 % on 1 fresh seed; the search said 94.9 %.",
    )
    low_is_good = Wording(metric="loss", mode="min")
    assert "too good" not in fresh(low_is_good)[0]
    assert "1 too good [0.51, 1.49]" in fresh(low_is_good, search=93.1)[0]


def test_no_score_on_fresh_seeds_is_no_claim():
    assert fresh(fresh=NAN, fresh_seeds=0, fresh_failed=5) == (
        "The best dcl setting failed on every fresh seed.",
    )
    assert fresh(fresh=NAN) == ()
    assert recommend.confirmed(pd.DataFrame(), WORDS) == ()


def test_only_the_first_of_each_objective_is_told():
    rows = [{**FRESH, "rank": 2, "fresh": 50.0}, FRESH, {**FRESH, "objective": "eqco"}]
    said = recommend.confirmed(pd.DataFrame(rows), WORDS)
    assert [sentence[:30] for sentence in said] == [
        "The best dcl setting keeps 94.",
        "The best eqco setting keeps 94",
    ]


def test_designs_that_do_not_measure_robustness():
    trials = pd.DataFrame(
        [
            {
                "objective": name,
                "config": c,
                "seed": 0,
                "status": "finished",
                "sampler": sampler,
                "acc": 1.0 * c,
                "tau": c,
            }
            for name, sampler in (("dcl", "tpe"), ("simclr", "tpe"), ("eqco", "grid"))
            for c in range(3)
        ]
    )
    assert spreads.unmeasured(read_sweeps(trials, metric="acc", params=["tau"])) == (
        "The robustness of dcl and simclr is not measured: tpe samples favour good configurations.",
    )


def test_failures_that_decide_are_told_and_no_seeds_are_asked_for():
    row = RATIO | {"resolved": False, "winner": "", "reason": Reason.FAILURES_DECIDE}
    (said,) = contrasts.spreads(pairs(row | {"needs_seeds": 8.0}), WORDS)
    assert said.endswith(": counted or left out, the failed trials give different winners.")
