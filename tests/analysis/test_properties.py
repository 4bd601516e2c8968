"""What must not change a number, and what must change it in a known way, of every statistic."""

import itertools
from functools import cache

import numpy as np
import pandas as pd
import pytest

import clsweep
from clsweep.errors import RequestError
from tests.planted import planted

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # NaN where a number should be
W = 1.0  # within
QUESTIONS = {
    "robustness": lambda results, within: results.robustness(within=within),
    "robustness by": lambda results, within: results.robustness(by="tau", within=within),
    "tolerance": lambda results, _: results.tolerance(),
    "compare mean": lambda results, _: results.compare(),
    "compare std": lambda results, _: results.compare(stat="std"),
    "compare within": lambda results, within: results.compare(stat="within", within=within),
    "compare by": lambda results, _: results.compare(by="tau"),
    "winners": lambda results, _: results.winners("tau"),
    "marginals": lambda results, _: results.marginals(),
    "sensitivity": lambda results, _: results.sensitivity(),
    "best_of_k": lambda results, _: results.best_of_k(),
    "tuning_cost": lambda results, within: results.tuning_cost(within=within),
    "recommend": lambda results, _: results.recommend(),
    "failure_regions": lambda results, _: results.failure_regions(),
    "mechanism": lambda results, _: results.mechanism(by="tau"),
    "links": lambda results, _: results.links(),
}
# Stems of the columns in the unit of the metric, of which `x`, `x_low` and `x_high` are. "" is the
# interval alone, `low` and `high`.
OF_ALL = ("robustness", "robustness by")
LEVELS = {
    **dict.fromkeys(OF_ALL, ("mean", "iqm", "worst_10", "best", "best_level", "worst")),
    "compare mean": ("value_a", "value_b"),
    "compare by": ("value_a", "value_b"),
    "winners": ("mean",),
    "marginals": ("mean", ""),
    "best_of_k": ("expected", ""),
    "tuning_cost": ("best_level", "default"),
    "recommend": ("score", "", "when_tuned", "neighbourhood_worst"),
    "mechanism": ("score",),
}
SPREADS = {
    **dict.fromkeys(OF_ALL, ("sd", "sd_star", "regret", "range", "level_noise")),
    "tolerance": ("delta",),
    "compare mean": ("estimate", "", "detectable"),
    "compare std": ("value_a", "value_b"),
    "compare by": ("estimate", "", "detectable"),
    "winners": ("lead", ""),
    "tuning_cost": ("tunability",),
}
SLOPES = {**dict.fromkeys(OF_ALL, ("slope",)), "sensitivity": ("effect",)}  # turn with the sign
SIGNED = {"links": ("rho", "")}  # have its sign, and no unit
ALONE = ("compare mean", "compare std", "compare within", "compare by", "winners")


def bump(setting):
    return 80 - 2 * (np.log2(setting["tau"]) + 2.5) ** 2 + 0.4 * setting.get("width", 0)


def lower(setting):
    return 79 - np.abs(np.log2(setting["tau"]) + 2.5) + 0.2 * setting.get("width", 0)


def smooth(setting):
    return 80 - 9 * (setting["tau"] - 0.4) ** 2 + 3 * setting["width"]


TAUS = [0.05, 0.1, 0.2, 0.4]


def one(level, **options):
    trials = planted(level, metric="score", **{"noise": 0.5, **options})
    return trials.drop(columns="trial_id")


@cache
def table(name):
    if name == "grid":
        return one(bump, grid={"tau": [*TAUS, 0.7, 1.0]})
    if name == "gaps":
        gaps = [4, 9, 10, 15, 29, 34]
        return one(bump, grid={"tau": TAUS, "width": [1, 2, 3]}).drop(gaps)
    if name == "random":
        return one(smooth, ranges={"tau": (0.0, 1.0), "width": (0.0, 1.0)}, num_configs=40)
    grid = {"tau": TAUS, "width": [1, 2]}
    both = [one(bump, grid=grid), one(lower, grid=grid, objective="byol", seed=1)]
    both = pd.concat(both, ignore_index=True)
    if name in ("failures", "left out"):
        bad = (both["objective"] == "byol") & (both["tau"] == 0.05) & (both["seed"] > 0)
        bad |= (both["objective"] == "dcl") & (both["config"] == 7) & (both["seed"] == 1)
        both.loc[bad, "score"], both.loc[bad, "status"] = np.nan, "failed"
    return both


# A grid with gaps, and two objectives with failures, have all that those without them have.
TABLES = ("gaps", "random", "failures", "left out")
SLOW = ("left out", "huge")
CASES = [
    (name, question)
    for name in TABLES
    for question in QUESTIONS
    if name in ("failures", "left out") or question not in ALONE
]


# Changes of a table, each several that say nothing, or what is known, at once.


def renumbered(trials):
    """Every configuration under another number, which its text does not show, in another order.
    Objectives stand in order of first appearance, so the first row stays.
    """
    trials = trials.assign(config=trials["config"].map(new_number))
    return pd.concat([trials.iloc[:1], trials.iloc[1:].sample(frac=1, random_state=2)])


def new_number(config):
    return 500 + (config * 17 + 5) % 41


def doubled(trials):
    """Other names of the seeds, in two exports that overlap in a third of the rows."""
    trials = trials.assign(seed=trials["seed"].map(dict(enumerate("cab"))))
    return pd.concat([trials, trials.iloc[::3]])


def scaled(factor, offset=0.0):
    return lambda trials: trials.assign(score=factor * trials["score"] + offset)


AFFINE = {"mirrored": (-1e-9, 1e-4), "huge": (1e9, 0.0)}
CHANGES = {
    "none": lambda trials: trials,
    "renumbered": renumbered,
    "doubled": doubled,
    **{name: scaled(*by) for name, by in AFFINE.items()},
}


@cache
def findings(name, change="none"):
    mode = "min" if change == "mirrored" else "max"
    failed = "left out" if name == "left out" else "worst"
    return clsweep.analyse(CHANGES[change](table(name)), metric="score", mode=mode, failed=failed)


@cache
def known(name, question, change, within):
    return QUESTIONS[question](findings(name, change), within)


def answer(name, question, change="none", within=W):
    return known(name, question, change, within).copy()


# Comparisons.


def columns_of(stems):
    ends = [("low", "high") if not stem else (f"{stem}_low", f"{stem}_high") for stem in stems]
    return [*filter(None, stems), *itertools.chain(*ends)]


def mapped(frame, question, *, factor, offset=0.0):
    """What a table must be after the metric x has become factor x + offset; a negative factor goes
    with the other mode.
    """
    for stems, unit, turns, moves in (
        (LEVELS.get(question, ()), factor, True, True),
        (SLOPES.get(question, ()), factor, True, False),
        (SIGNED.get(question, ()), np.sign(factor), True, False),
        (SPREADS.get(question, ()), factor, False, False),
    ):
        for name in set(columns_of(stems)) & set(frame):
            by = unit if turns else abs(unit)
            frame[name] = by * frame[name] + (offset if moves else 0.0)
        if turns and factor < 0:
            for stem in stems:
                low, high = columns_of([stem])[-2:]
                if low in frame:
                    frame[[low, high]] = frame[[high, low]].to_numpy()
    return frame


def assert_same(results, expected, *, rtol=1e-9, atol=0.0, without=()):
    """Equal text, and numbers equal relative to the largest of their column."""
    assert list(results) == list(expected)
    assert len(results) == len(expected)
    for name in expected if len(expected) else ():
        if name in without:
            continue
        one, other = results[name], expected[name]
        if pd.api.types.is_numeric_dtype(other) and other.dtype != bool:
            one, other = one.to_numpy(dtype=float), other.to_numpy(dtype=float)
            size = np.nanmax(np.abs(other[~np.isinf(other)]), initial=0.0)
            np.testing.assert_allclose(
                one, other, rtol=0, atol=rtol * size + atol, err_msg=name, equal_nan=True
            )
        else:
            assert one.tolist() == other.tolist(), name


def cases(*changes):
    """(change, table, question) of each."""
    return [
        pytest.param(change, *case, marks=[pytest.mark.slow] if {change, case[0]} & {*SLOW} else [])
        for change, case in itertools.product(changes, CASES)
    ]


@pytest.mark.parametrize("question", QUESTIONS)
def test_each_question_has_an_answer_that_could_change(question):
    """A table of no rows, or of one that says nothing, would pass everything below."""
    names = ("random",) if question == "links" else ("grid", "failures")
    frames = [answer(name, question) for name in names]
    numbers = [frame.select_dtypes("number").notna().to_numpy().sum() for frame in frames]
    assert max(numbers) >= 4


@pytest.mark.parametrize(("change", "name", "question"), cases("renumbered"))
def test_order_of_rows_and_numbers_of_configurations_say_nothing(change, name, question):
    results, expected = answer(name, question, change), answer(name, question)
    if "config" in expected:
        expected["config"] = expected["config"].map(new_number)
    assert_same(results, expected)


# A fit that iterates makes more of the last bits, which the order of a sum moves.
FITTED = {"sensitivity": 5e-4}


@pytest.mark.parametrize(("change", "name", "question"), cases("doubled"))
def test_names_of_seeds_and_copies_of_rows_change_no_number(change, name, question):
    results, expected = answer(name, question, change), answer(name, question)
    assert_same(results, expected, rtol=FITTED.get(question, 1e-9), without=("note",))
    notes = findings(name, change).data.notes
    assert any("are copies of others and are left out" in each for each in notes)


@pytest.mark.parametrize(("change", "name", "question"), cases(*AFFINE))
def test_an_affine_metric_moves_the_numbers_along(change, name, question):
    factor, offset = AFFINE[change]
    results = answer(name, question, change, within=abs(factor) * W)
    expected = mapped(answer(name, question), question, factor=factor, offset=offset)
    # Beside 1e5 a score has fewer digits left.
    rtol = FITTED.get(question, 1e-7 if offset else 1e-9)
    assert_same(results, expected, rtol=rtol, without=("note",))


def test_copies_of_rows_do_not_count_as_trials():
    assert_same(findings("two", "doubled").health(), findings("two").health())


def test_copies_of_rows_make_no_outcome_a_hyperparameter():
    """With one trial in each configuration an outcome looks like a setting."""
    trials = table("grid").query("seed == 0").assign(seconds=lambda x: 3.0 * x["score"])
    both = pd.concat([trials, trials.iloc[:2]])
    for each in (trials, both):
        results = clsweep.analyse(each, metric="score", mode="max")
        assert results.data.params == ("tau",)


@pytest.mark.parametrize("column", ["score", "status"])
def test_a_repeated_trial_with_another_value_is_a_mistake(column):
    trials = table("grid")
    again = trials.iloc[[4]].assign(**{column: 1.0 if column == "score" else "failed"})
    with pytest.raises(RequestError, match=r"config 1, seed 1 appears more than once"):
        clsweep.analyse(pd.concat([trials, again]), metric="score", mode="max").robustness()


def test_compare_and_robustness_say_the_same_where_a_trial_of_the_best_is_missing():
    trials = table("two").assign(
        score=lambda x: x.groupby(["objective", "config"]).score.transform("mean")
    )
    best = trials[trials["objective"] == "dcl"]["score"].idxmax()
    results = clsweep.analyse(trials.drop(best), metric="score", mode="max")
    pair, rows = results.compare(stat="within", within=W), results.robustness(within=W)
    assert pair[["value_a", "value_b"]].iloc[0].tolist() == rows["share_within"].tolist()
