"""Numbers of the printed tables, recomputed from their explanations with NumPy and SciPy alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats

import clsweep
from clsweep.analysis.evidence import Evidence
from tests.analysis.truths import least_squares
from tests.planted import planted

Array = NDArray[np.float64]
GRID = {"tau": [0.1, 0.3, 1.0], "width": [8, 16, 32, 64]}
MEASURED = Path(__file__).parents[2] / "docs/results/claims-batch-fashion"


@pytest.fixture(scope="module")
def trials() -> pd.DataFrame:
    """Two objectives on a grid of 3 x 4 and 4 seeds, which shift it; a sixth is missing."""
    rows = pd.concat(
        planted(lambda at, slope=slope: 80 + slope * at["tau"] + at["width"] / 64,
                objective=name, grid=GRID, num_seeds=4, seed=slope)
        for name, slope in (("dcl", 1), ("simclr", 3))
    )  # fmt: skip
    rng = np.random.default_rng(7)
    rows["knn_top1"] += np.array([0.0, 3.0, -2.0, 1.0])[rows["seed"]]
    rows["rankme"] = rng.permutation(len(rows)) + 10.0 * (rows["objective"] == "dcl")
    return rows[rng.random(len(rows)) > 1 / 6].reset_index(drop=True)


def statistics(trials: pd.DataFrame) -> Any:
    return clsweep.analyse(trials, metric="knn_top1", mode="max", params=list(GRID))


def cells(trials: pd.DataFrame, objective: str) -> Array:
    """(n, S) scores in the order of the configurations, NaN = none."""
    rows = trials[trials["objective"] == objective]
    return rows.pivot(index="config", columns="seed", values="knn_top1").to_numpy()


def test_means_and_spread_of_a_table_with_gaps_are_of_least_squares_means(trials):
    table = statistics(trials).robustness().set_index("objective")
    for objective in ("dcl", "simclr"):
        scores = cells(trials, objective)
        means, _, noise, *_ = least_squares(scores)
        unseen = noise * np.mean(1 / np.isfinite(scores).sum(axis=1))
        spread = means.std(ddof=1)
        expected = {"mean": means.mean(), "sd": spread, "sd_star": np.sqrt(spread**2 - unseen)}
        assert dict(table.loc[objective, list(expected)]) == pytest.approx(expected)


def test_the_values_of_a_comparison_are_apart_by_its_lead(trials):
    """With gaps all three are least-squares means, over the pairs that both objectives have."""
    tables = [cells(trials, name) for name in ("dcl", "simclr")]
    paired = np.isfinite(tables[0] - tables[1])
    means = [least_squares(np.where(paired, table, np.nan))[0] for table in tables]
    row = (results := statistics(trials)).compare().iloc[0]
    values = [float(each.mean()) for each in means]
    assert [row["value_a"], row["value_b"]] == pytest.approx(values)
    assert row["value_a"] - row["value_b"] == pytest.approx(row["estimate"])
    by_tau, apart = results.compare(by="tau"), means[0] - means[1]
    expected = [float(at_tau.mean()) for at_tau in apart.reshape(3, 4)]
    assert by_tau["estimate"].tolist() == pytest.approx(expected)
    assert (by_tau["value_a"] - by_tau["value_b"]).tolist() == pytest.approx(expected)


def test_shares_of_the_variance_with_gaps_know_of_no_seed_in_the_cell_means(trials):
    table = statistics(trials).sensitivity().set_index(["objective", "term"])
    for objective in ("dcl", "simclr"):
        scores = cells(trials, objective)
        counts = np.isfinite(scores).sum(axis=1)
        off = scores - np.nanmean(scores, axis=1, keepdims=True)
        of_trial = np.nansum(np.square(off)) / (counts - 1).sum()
        means, _, residual, *_ = least_squares(scores)
        grid, noise = means.reshape(3, 4), residual * np.mean(1 / counts)
        tau, width = grid.mean(axis=1) - grid.mean(), grid.mean(axis=0) - grid.mean()
        both = grid - grid.mean() - tau[:, None] - width
        squares = {"tau": (tau, 2), "width": (width, 3), "tau x width": (both, 6)}
        parts = {
            name: max(0.0, np.square(effect).mean() - df * noise / 12)
            for name, (effect, df) in squares.items()
        }
        total = sum(parts.values()) + of_trial
        for name, part in parts.items():
            assert table.loc[(objective, name), "first"] == pytest.approx(part / total)
        assert table.loc[(objective, "seed noise"), "first"] == pytest.approx(of_trial / total)


def test_a_pick_has_one_level_alone_and_among_all_objectives(trials):
    table = statistics(trials).picks().set_index("objective")
    own = table.loc[table.loc["all", "of"]]
    assert own["config"] == table.loc["all", "config"]
    assert own["picked"] == table.loc["all", "picked"]


def test_the_loss_of_a_pick_by_t_of_the_residual():
    """Seeds are blocks: (n - 1) (S - 1) degrees of freedom, of 3 settings and 2 seeds two."""
    grid = {"tau": [0.1, 0.3, 1.0]}
    rows = planted(lambda at: 80 + 9 * at["tau"], grid=grid, num_seeds=2, seed=1)
    rows["rankme"] = -rows["knn_top1"]
    row = statistics(rows.assign(width=8)).picks().iloc[0]
    means, _, noise, freedom, _ = least_squares(cells(rows, "dcl"))
    lead, error = means.max() - means.min(), np.sqrt(2 * noise / 2)
    assert freedom == 2
    assert row["high"] == pytest.approx(lead + stats.t.ppf(0.975, 2) * error)
    assert row["low"] == pytest.approx(max(0.0, lead + stats.t.ppf(0.025 / 6, 2) * error))


def test_corrected_intervals_for_new_images_add_up_squares_at_their_own_level():
    """Of a contrast's half width the seeds' part grows as their t does, the images' as theirs."""
    seeds, images = (
        clsweep.open_results(MEASURED, images=of).contrasts().set_index("contrast")
        for of in ("fixed", "new")
    )
    row, fixed = images.loc["training"], seeds.loc["training"]  # of 5 the smallest p
    halves = [(each["high"] - each["low"]) / 2 for each in (fixed, row)]
    freedoms, alpha = [5, 2999], 0.05 / 5
    parts = [halves[0] ** 2, halves[1] ** 2 - halves[0] ** 2]
    ratios = [stats.t.ppf(1 - alpha / 2, df) / stats.t.ppf(0.975, df) for df in freedoms]
    half = np.sqrt(sum(part * ratio**2 for part, ratio in zip(parts, ratios, strict=True)))
    assert (row["high_holm"] - row["low_holm"]) / 2 == pytest.approx(half)


def test_p_of_a_distance_is_the_level_of_the_interval_that_ends_there():
    evidence = Evidence.of_parts(1.0, [(0.3, 2)]).over_images(0.2, 299)
    for alpha in (0.2, 0.05, 0.05 / 7):
        assert evidence.p_beyond(evidence.half_at(alpha)) == pytest.approx(alpha)
    assert evidence.half_at(0.05) == pytest.approx((evidence.high - evidence.low) / 2)
    assert evidence.p == pytest.approx(evidence.p_beyond(1.0))
