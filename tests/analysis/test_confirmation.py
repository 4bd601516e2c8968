"""What fresh seeds say, against values worked out by hand with the printed t table."""

import pandas as pd
import pytest

from clsweep.analysis.confirmation import FRESH_COLUMNS, confirmation

BEST = pd.DataFrame(
    {"objective": ["dcl", "dcl", "simclr"], "config": [4, 0, 4], "search": [92.0, 91.0, 90.0]}
)


def trial(objective, config, score, test, status="finished"):
    about = {"objective": objective, "config": config, "status": status}
    return about | {"knn_top1": score, "test_knn_top1": test}


@pytest.mark.parametrize("luck", [0.0, 1.5, -1.5])
def test_mean_interval_and_difference(luck):
    """The interval reaches further by what the images flatter, and is never narrower than by t."""
    fresh = pd.DataFrame([trial("dcl", 4, score, score - 10) for score in (88.0, 90.0, 92.0)])
    table = confirmation(BEST, fresh, metric="knn_top1", luck={"dcl": luck})
    assert list(table.columns) == [*BEST.columns, *FRESH_COLUMNS]
    (row,) = table.to_dict("records")
    half = 4.303 * 2 / 3**0.5  # t of 2 degrees of freedom, 97.5 %; the standard deviation is 2
    assert row["fresh"] == pytest.approx(90)
    ends = 90 - half - max(0, luck), 90 + half + max(0, -luck)
    assert (row["fresh_low"], row["fresh_high"]) == pytest.approx(ends, abs=1e-3)
    assert (row["test"], row["test_low"], row["test_high"]) == pytest.approx(
        (80, 80 - half, 80 + half), abs=1e-3
    )
    assert row["difference"] == pytest.approx(2)
    assert (row["fresh_seeds"], row["fresh_failed"]) == (3, 0)


@pytest.mark.parametrize("scores", [(99.0, 99.5, 100.0), (0.0, 0.1, 0.8)])
def test_the_intervals_end_where_the_metric_ends(scores):
    fresh = pd.DataFrame([trial("dcl", 4, score, score) for score in scores])
    (free,) = confirmation(BEST, fresh, metric="knn_top1").to_dict("records")
    (row,) = confirmation(BEST, fresh, metric="knn_top1", limits=(0, 100)).to_dict("records")
    for name in ("fresh", "test"):
        ends = free[f"{name}_low"], free[f"{name}_high"]
        assert ends[0] < 0 or ends[1] > 100
        assert row[f"{name}_low"] == max(0, ends[0])
        assert row[f"{name}_high"] == min(100, ends[1])
    assert row["difference"] == free["difference"]


def test_one_seed_has_no_interval_and_a_failed_one_no_part_in_the_mean():
    fresh = pd.DataFrame(
        [trial("dcl", 0, 85.0, 84.0), trial("dcl", 0, float("nan"), float("nan"), "failed")]
    )
    row = confirmation(BEST, fresh, metric="knn_top1").iloc[0]
    cells = row[["fresh", "test", "fresh_seeds", "fresh_failed"]]
    assert cells.tolist() == [85.0, 84.0, 1, 1]
    assert pd.isna([row["fresh_low"], row["fresh_high"], row["test_low"]]).all()


def test_the_order_is_that_of_the_best_and_what_is_best_no_longer_is_not_shown():
    fresh = pd.DataFrame(
        [trial(*key, 80.0, 79.0) for key in (("simclr", 4), ("dcl", 9), ("dcl", 0), ("dcl", 4))]
    )
    table = confirmation(BEST, fresh, metric="knn_top1")
    cells = list(zip(table["objective"], table["config"], strict=True))
    assert cells == [("dcl", 4), ("dcl", 0), ("simclr", 4)]


def test_where_there_is_no_test_split_there_is_no_test_score():
    fresh = pd.DataFrame([trial("dcl", 4, 3.1, 0.0)]).rename(columns={"knn_top1": "mi_estimate"})
    (row,) = confirmation(BEST, fresh, metric="mi_estimate").to_dict("records")
    assert row["fresh"] == 3.1
    assert pd.isna(row["test"])
