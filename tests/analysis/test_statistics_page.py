"""The page of the statistics names what the tables have, and the command that writes it runs."""

import re
from dataclasses import replace

import numpy as np
import pytest

from clsweep.analysis import tuning
from clsweep.analysis.compare import COMPARISON_COLUMNS as COMPARISON
from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.robustness import ROBUSTNESS_COLUMNS as ROBUSTNESS
from clsweep.analysis.sensitivity import SENSITIVITY_COLUMNS as SENSITIVITY
from tests import coverage, coverage_cells
from tests.analysis.truths import ishigami
from tests.coverage_texts import LIMITS, STATISTICS

PAGE = coverage.PAGE.read_text(encoding="utf-8")


def with_intervals(columns):
    """The statistics of a table that have an interval, which stands behind them."""
    names = list(columns)
    lows = [at for at, name in enumerate(names) if name in ("low", f"{names[at - 1]}_low")]
    return {names[at - 1] for at in lows}


@pytest.mark.parametrize(
    ("columns", "num"),
    [(ROBUSTNESS, 8), (COMPARISON, 1), (tuning.BEST_OF_K_COLUMNS, 1)],
    ids=["robustness", "compare", "best"],
)
def test_every_statistic_with_an_interval_is_on_the_page(columns, num):
    stated = {key for table, key, *_ in STATISTICS.values() if table is columns}
    shown = with_intervals(columns)
    assert len(shown) >= num
    assert shown <= stated


def test_the_page_gives_every_formula_as_the_tables_do():
    for name, (columns, key, *texts) in STATISTICS.items():
        assert f"### {name}\n" in PAGE
        for text in (columns[key], *texts):
            assert text in PAGE, f"{name}: run `make coverage` again"
    assert LIMITS in PAGE
    assert STATISTICS["sensitivity"][0] is SENSITIVITY


def test_the_page_has_a_row_for_every_cell():
    for group, (_, cells, _) in coverage.GROUPS.items():
        table = PAGE.split(f"## Coverage: {group}\n")[1].split("\n## ")[0]
        rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
        names = (*rows[0][4:-1], rows[0][-1].removesuffix(" |"))
        assert names == coverage.ROWS[group]
        shown = [(row[0].removeprefix("| "), int(row[1]), *row[2:4]) for row in rows[1:]]
        assert shown == cells


@pytest.mark.parametrize("group", list(coverage.ROWS))
def test_a_run_of_few_repeats_gives_such_a_row(group):
    cells = coverage.GROUPS[group][1]
    cell = cells[-1] if cells in (coverage_cells.SEARCHES, coverage_cells.NEW_IMAGES) else cells[0]
    key, covered = coverage.measured(((group, cell), 3))
    names = coverage.ROWS[group]
    assert set(names) <= set(covered)
    assert all(0 <= value <= 100 for value in covered.values())
    row = coverage.line(key[1], covered, names)
    assert re.fullmatch(
        r"\| [a-z6 ]+ \| \d \| (even|seeds shift) \| [a-z0-9, ]+( \| (\*\*)?\d+(\*\*)?)+ \|", row
    )


def test_what_is_outside_the_limits_is_bold_and_what_was_withheld_is_empty():
    covered = {"mean": 89.9, "sd": 90.0, "iqm": 99.6, "regret": np.nan}
    row = coverage.line(("a", 2, "b", "c"), covered, list(covered))
    assert row == "| a | 2 | b | c | **90** | 90 | **100** |  |"


def test_the_planted_truths_are_those_of_other_formulas():
    """A grid's best of one is its mean; of all, with little noise, its best level."""
    cell = ("grid of 6", 5, "even", "complete")
    level = coverage_cells.planted("grid of 6", 0, None)[0]
    curve = coverage_cells.expected_best(cell, repeats=300)
    assert curve[0] == pytest.approx(level.mean())
    assert level.max() - 0.2 < curve[-1] < level.max()
    assert (np.diff(curve) > 0).all()
    # Var (u - 0.6)^2 = E (u - 0.6)^4 - (E (u - 0.6)^2)^2 of u uniform, by hand.
    part = 64 * ((0.4**5 + 0.6**5) / 5 - ((0.4**3 + 0.6**3) / 3) ** 2)
    shares = coverage_cells.variance_shares("random 64", 0.0)
    assert shares["x"] == pytest.approx(part / (part + 1.5**2 / 12), rel=1e-3)


def test_shares_by_quadrature_are_those_of_the_literature():
    first, total = coverage_cells.shares_of(ishigami, nodes=60)[0]
    assert first == pytest.approx([0.3139, 0.4424, 0.0], abs=1e-4)
    assert total == pytest.approx([0.5576, 0.4424, 0.2437], abs=1e-4)


def test_a_planted_race_is_told_of_where_its_seeds_are_left_out():
    theta, settings = coverage_cells.planted("grid of 6", 0, None)
    raced, rng = coverage_cells.RACED, np.random.default_rng(0)
    scores = coverage_cells.scored(theta, 5, "even", raced, rng)[0]
    sweep = coverage_cells.sweep_of("a", scores, settings, "grid of 6", raced)
    assert (sweep.num_skipped, sweep.raced) == (np.isnan(scores).sum(), (2, 3, 4))
    for each in (sweep, replace(sweep, num_skipped=0)):  # of the second it skipped none
        assert each.of_space.scores.shape == (6, 2)
        assert each.of_space.cut_short == [note(Reason.RACED_SEEDS, seeds=2)]
