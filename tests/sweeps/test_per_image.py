"""What tables say for new images, and for these alone, of a folder that keeps hits."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

import clsweep
from clsweep.sweeps.from_studies import of_studies
from tests.test_agreement import make
from tests.test_docs import DOCS

KEPT = DOCS / "results" / "quickstart"
ASKED = ("recommend", "compare", "robustness", "leaderboard", "best_of_k", "pareto")


def copied(folder: Path) -> Path:
    """A folder whose hits lack the first row."""
    shutil.copytree(KEPT, folder)
    table = pq.read_table(folder / "hits.parquet")
    pq.write_table(table.slice(1), folder / "hits.parquet")
    return folder


def test_one_trial_without_hits_leaves_every_table_to_these_images(tmp_path):
    """A table of intervals of both kinds could not be compared with itself."""
    metric = pq.read_table(KEPT / "hits.parquet")["metric"][0].as_py()
    some = clsweep.open_results(copied(tmp_path / "some"), metric=metric)
    fixed = clsweep.open_results(KEPT, metric=metric, images="fixed")
    assert some.data.images == fixed.data.images == "these images"
    for name in ASKED:
        pd.testing.assert_frame_equal(getattr(some, name)(), getattr(fixed, name)())


def test_studies_that_all_keep_hits_are_for_new_images():
    both = [
        clsweep.open_results(DOCS / "results" / at).tables for at in ("quickstart", "tau-digits")
    ]
    assert of_studies(both).images == "new images"


def test_intervals_for_new_images_hold_those_of_the_seeds():
    """Points are the same, but SD*, of which images make a part."""
    new, fixed = (clsweep.open_results(KEPT, images=images) for images in ("new", "fixed"))
    assert new.data.images == "new images"
    for name in ("recommend", "compare", "leaderboard", "best_of_k", "marginals"):
        ours, theirs = getattr(new, name)(), getattr(fixed, name)()
        scored = ours["low"].notna()
        assert (ours["low"] <= theirs["low"] + 1e-9)[scored].all()
        assert (ours["high"] >= theirs["high"] - 1e-9)[scored].all()
        assert ((ours["high"] - ours["low"]) > (theirs["high"] - theirs["low"]))[scored].all()
    assert (new.robustness()["sd_star"] <= fixed.robustness()["sd_star"]).all()


def test_fresh_seeds_are_for_the_images_that_the_table_is_for(tmp_path):
    """As `--images fixed` and a study without hits have it."""
    made = make(tmp_path / "study", "confirmed, with hits")
    new, fixed = (clsweep.open_results(made, images=images) for images in ("new", "fixed"))
    ours, theirs = new.confirm(), fixed.confirm()
    pd.testing.assert_series_equal(ours["fresh"], theirs["fresh"])
    assert (
        ours["fresh_high"] - ours["fresh_low"] > theirs["fresh_high"] - theirs["fresh_low"]
    ).all()
    board = fixed.leaderboard().query("kind == 'objective'")
    assert len(board) == 2
    assert board["fresh_low"].isin(theirs["fresh_low"]).all()


def test_each_of_several_studies_is_read_as_all_of_them_are():
    places = [DOCS / "results" / at for at in ("tau-digits", "batch-digits")]
    both = clsweep.open_results(*places, images="fixed", metric="knn_top1")
    for one, place in zip(both.studies, places, strict=True):
        alone = clsweep.open_results(place, images="fixed", metric="knn_top1")
        pd.testing.assert_frame_equal(one.robustness(), alone.robustness())
