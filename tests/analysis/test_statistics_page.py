"""The page of the statistics is that of its table, and names what the tables have."""

import numpy as np
import pandas as pd
import pytest

import clsweep
from clsweep.analysis.compare import compare
from tests import coverage, coverage_measures
from tests import coverage_cells as planted
from tests.analysis.truths import ishigami
from tests.coverage_texts import BEST, COMPARISON, CONTRAST, ROBUSTNESS, STATISTICS

TABLE = pd.read_csv(coverage.TABLE)


def with_intervals(columns):
    """The statistics of a table that have an interval, which stands behind them."""
    names = list(columns)
    lows = [at for at, name in enumerate(names) if name in ("low", f"{names[at - 1]}_low")]
    return {names[at - 1] for at in lows}


@pytest.mark.parametrize(
    ("columns", "num"),
    [(ROBUSTNESS, 8), (COMPARISON, 1), (BEST, 1)],
    ids=["robustness", "compare", "best"],
)
def test_every_statistic_with_an_interval_is_on_the_page(columns, num):
    every = [each for group in STATISTICS.values() for each in group.values()]
    stated = {key for table, key, *_ in every if table is columns}
    shown = with_intervals(columns)
    assert len(shown) >= num
    assert shown <= stated
    assert any(table is CONTRAST for table, *_ in every)


def test_the_page_is_that_of_its_table():
    text = coverage.page(TABLE)
    assert coverage.PAGE.read_text(encoding="utf-8") == text, "python tests/coverage.py --page"


def test_the_table_has_every_cell_and_width():
    cells = {(name, *cell) for name, group in coverage.GROUPS.items() for cell in group.cells}
    assert set(TABLE[coverage.CELL].itertuples(index=False, name=None)) == cells
    assert not TABLE.duplicated([*coverage.CELL, "statistic"]).any()
    has = TABLE["covers"].notna() & (TABLE["statistic"] != "band")
    assert (TABLE.loc[has, "width"] >= 0).all()
    assert TABLE[["covers", "false"]].stack().dropna().between(0, 100).all()


def row_of(**given):
    of = {"group": "levels", "space": "a", "seeds": 2, "noise": "even", "trials": "complete"}
    return of | {"statistic": "level", "repeats": 200, "covers": 95.0, "false": np.nan} | given


def test_the_summary_has_the_worst_cell_of_each_kind_and_names_it():
    rows = [
        row_of(),
        row_of(space="b", covers=89.9),
        row_of(seeds=5, noise="0.5 shared"),
        row_of(seeds=5, noise="0.9 shared", trials=planted.MISSING, covers=94.0),
        row_of(seeds=10, noise=planted.WORST_TWO, covers=np.nan),
        row_of(group="compare", statistic="compare", false=3.0),
        row_of(group="compare", statistic="compare", noise="t3", false=14.0),
    ]
    table = pd.DataFrame(rows)
    lines = coverage.summary(table, "covers", "min").splitlines()
    assert lines[0] == "| | even | seed shift | uneven | heavy tails | gaps |"
    assert lines[2] == "| levels: level | **90** - - - | - - 95 - | - - - - | - - - - | - - 94 - |"
    lines = coverage.summary(table, "false", "max").splitlines()
    assert lines[2:] == ["| compare | 3 - - - | - - - - | - - - - | **14** - - - | - - - - |"]
    assert list(coverage.worst_cells(table)) == [
        "- levels: level covers 90: b, 2 seeds, even, complete.",
        "- compare is false in 14: a, 2 seeds, t3, complete.",
    ]


def test_the_third_seed_s_worth_is_the_median_widths_of_the_table():
    line = next(x for x in coverage.widths(TABLE).splitlines() if x.startswith("| levels: level"))
    own = TABLE.query("group == 'levels' and statistic == 'level' and space == 'grid of 6'")
    even = own.query("noise == 'even' and trials == 'complete'").sort_values("seeds")["width"]
    assert line.split(" | ")[1].split() == [f"{each:.1f}" for each in even]


@pytest.mark.parametrize("group", list(coverage.GROUPS))
def test_a_run_of_few_repeats_gives_such_rows(group):
    cells = coverage.GROUPS[group].cells
    rows = pd.DataFrame(coverage.measured(((group, cells[-1]), 3)))
    assert list(rows.columns) == coverage.COLUMNS
    assert set(STATISTICS[group]) & set(rows["statistic"]) or group == "contrast"
    assert rows[["covers", "false"]].stack().dropna().between(0, 100).all()
    assert rows[["covers", "false"]].notna().any(axis=1).any()


def test_what_is_asked_for_by_name_is_few_cells_and_by_text_all_of_it():
    def names(*words):
        options = coverage.parser().parse_args(words)
        return [key for key, _ in coverage.jobs_of(options)]

    few = names("--only", "contrast")
    assert {group for group, _ in few} == {"contrast"}
    assert 10 <= len(few) < len(planted.CONTRASTS) / 2
    assert {group for group, _ in names("--only", "mean")} == {"robustness", "robustness --by"}
    (only,) = names("--only", "levels", "--cells", "grid of 6, 10 seeds, 0.75 shared")
    assert only[1] == ("grid of 6", 10, "0.75 shared", "complete")
    assert len(names()) == sum(len(group.cells) for group in coverage.GROUPS.values())


@pytest.mark.parametrize("apart", [0.0, 2.0])
def test_the_first_verdicts_are_those_of_the_results(apart):
    """Of the table of all trials: the same comparisons, resolved or not."""
    levels, at = planted.planted("grid of 6", 0, None)
    cell, rng = ("grid of 6", 3, "even", "complete"), np.random.default_rng(0)
    sweeps = planted.objectives(cell, [(levels + apart * k, at) for k in range(3)], rng)
    trials = [planted.trials_of(x.objective, x.scores, at, "grid of 6") for x in sweeps]
    results = clsweep.analyse(pd.concat(trials), metric="acc", mode="max", params=["x"])
    for stat in coverage_measures.FIRST_VERDICTS.values():
        shown = results.compare(stat=stat)["resolved"]
        assert shown.tolist() == compare(sweeps, stat=stat)["resolved"].tolist()
        assert shown.all() == (apart > 0 and stat != "std")


@pytest.mark.parametrize("noise", [planted.HALF, planted.COMMON[1]])
def test_a_seed_shares_so_much_of_the_noise(noise):
    """The part of the variance that all settings of a seed share, of both objectives or of one."""
    rng, cell = np.random.default_rng(0), ("grid of 6", 400, noise, "complete")
    pair = planted.objectives(cell, planted.equal_means("grid of 6", 0), rng)
    seeds = np.concatenate([sweep.scores for sweep in pair])
    related = np.corrcoef(seeds)
    within, between = related[0, 1:6].mean(), related[:6, 6:].mean()
    assert within == pytest.approx(0.5, abs=0.08)
    assert between == pytest.approx(0.5 * (noise in planted.COMMON), abs=0.08)
    assert seeds.std(axis=1) == pytest.approx(planted.NOISE, rel=0.15)


def test_the_planted_truths_are_those_of_other_formulas():
    """A grid's best of one is its mean; of all, with little noise, its best level."""
    cell = ("grid of 6", 5, "even", "complete")
    level = planted.planted("grid of 6", 0, None)[0]
    curve = planted.expected_best(cell, repeats=300)
    assert curve[0] == pytest.approx(level.mean())
    assert level.max() - 0.2 < curve[-1] < level.max()
    assert (np.diff(curve) > 0).all()
    # Var (u - 0.6)^2 = E (u - 0.6)^4 - (E (u - 0.6)^2)^2 of u uniform, by hand.
    part = 64 * ((0.4**5 + 0.6**5) / 5 - ((0.4**3 + 0.6**3) / 3) ** 2)
    shares = planted.variance_shares("random 64", 0.0)
    assert shares["x"] == pytest.approx(part / (part + 1.5**2 / 12), rel=1e-3)
    a, b = (theta for theta, _ in planted.equal_means("grid of 11 x 5", 0))
    assert a.mean() == pytest.approx(b.mean())


def test_shares_by_quadrature_are_those_of_the_literature():
    first, total = coverage_measures.shares_of(ishigami, nodes=60)[0]
    assert first == pytest.approx([0.3139, 0.4424, 0.0], abs=1e-4)
    assert total == pytest.approx([0.5576, 0.4424, 0.2437], abs=1e-4)
