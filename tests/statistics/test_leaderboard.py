"""Who stands where, beside what is reached without training; and pairs of views."""

import pandas as pd
import pytest

from clsweep.objective import views as drawn
from clsweep.statistics.leaderboard import leaderboard
from clsweep.statistics.learning import pairs_of_views
from tests.statistics.given import Given, data_of

REFERENCES = pd.DataFrame(
    {
        "reference": ["raw_pixels", "untrained", "untrained"],
        "encoder": [None, "conv4", "conv4"],
        "seed": [0, 0, 1],
        "knn_top1": [91.0, 60.0, 70.0],
    }
)


def board(*, mode="max", references=REFERENCES, confirmation=None):
    names, scores = ["simclr", "dcl"], [90.0, 92.0]
    common = {"objective": names}
    recommended = pd.DataFrame(
        common
        | {"kind": "best", "config": [3, 5], "at": ["tau=0.1", "tau=0.2"], "score": scores}
        | {"low": [89.0, 91.0], "high": [91.0, 93.0], "num_seeds": 3}
    )
    spread = {"sd_star": [1.0, 2.0], "sd_star_low": 0.5, "sd_star_high": 3.0, "num_seeds": 9}
    share = {"share_within": 0.5, "share_low": 0.2, "share_high": 0.8}
    tables = {
        "recommend": recommended,
        "robustness": pd.DataFrame(common | spread | share),
        "health": pd.DataFrame(common | {"trials": 12, "hours": [0.5, 1.5]}),
        "confirmation": pd.DataFrame() if confirmation is None else confirmation,
        "references": references,
    }
    return leaderboard(Given(data_of(mode=mode), tables))


def test_the_best_comes_first_and_references_take_part():
    table = board()
    assert table["objective"].tolist() == ["dcl", "raw pixels", "simclr", "untrained encoder"]
    assert table["score"].tolist() == [92, 91, 90, 65]
    assert table["num_seeds"].tolist() == [3, 1, 3, 2]  # of the score, not of the sweep
    assert table.loc[0, ["sd_star", "share_within", "hours"]].tolist() == [2, 0.5, 1.5]
    assert table.loc[table["kind"] == "reference", "hours"].isna().all()
    assert board(mode="min")["score"].tolist() == [65, 90, 91, 92]
    assert board(references=pd.DataFrame())["objective"].tolist() == ["dcl", "simclr"]
    widths = board(references=REFERENCES.assign(width=[None, 8, 16])).set_index("objective")
    own = [f"untrained encoder (width {width})" for width in (8, 16)]
    assert widths.loc[own, "score"].tolist() == [60, 70]


def test_encoders_that_lack_what_others_have_are_references_too():
    """As a results folder has them: a resnet20 has no width."""
    widths = pd.array([None, 8, None], dtype="Int64")
    encoders = [None, "conv4", "resnet20"]
    scores = board(references=REFERENCES.assign(width=widths, encoder=encoders))
    of = scores.set_index("objective")["score"]
    assert of["untrained conv4 (width 8)"] == 60
    assert of["untrained resnet20"] == 70


def test_fresh_seeds_belong_to_the_configuration_that_is_best_now():
    again = pd.DataFrame(
        {"objective": ["dcl", "simclr"], "config": [5, 7], "fresh": [91.5, 80.0]}
    ).assign(fresh_low=90.0, fresh_high=92.0)
    table = board(confirmation=again).set_index("objective")
    assert table.loc["dcl", "fresh"] == 91.5
    assert pd.isna(table.loc["simclr", "fresh"])


@pytest.mark.parametrize("num", [2, 3, 5, 8])
def test_pairs_of_views_are_those_that_a_trial_makes(num):
    trial = {"num_views": num, "num_global_views": 2}
    counts = {
        "core": drawn.core_pairs(num),
        "multicrop": drawn.multicrop_pairs(num, 2),
        "all_pairs": drawn.all_pairs(num),
        "ecpp": drawn.all_pairs(num),
    }
    for views, pairs in counts.items():
        assert pairs_of_views(trial | {"views": views}) == len(pairs)
    assert pairs_of_views({"views": "two", "num_views": float("nan")}) == 1
    assert pd.isna(pairs_of_views({"views": "unknown"}))
