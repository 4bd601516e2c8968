"""Regions of a hyperparameter: hand-made columns."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from clsweep.analysis.regions import cut
from tests.analysis.truths import sweep

NAN = float("nan")


def sampled(values, *, sampler="random", scores=None):
    scores = np.zeros((len(values), 1)) if scores is None else scores
    return sweep(scores, {"tau": np.asarray(values)}, sampler=sampler)


def placed(values, *, sampler="random", **options):
    """The regions of one sweep, and the region of each of its values."""
    one = sampled(values, sampler=sampler)
    regions = cut("tau", [one], **options)
    return regions, regions.place(one.settings["tau"]).tolist()


def spans(regions):
    return list(zip(regions.low.tolist(), regions.high.tolist(), strict=True))


def test_numbers_that_hardly_repeat_are_cut_into_bins_of_equal_count():
    regions, codes = placed(np.arange(12.0)[::-1])
    assert codes == [5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0]
    assert regions.labels == ("0..1", "2..3", "4..5", "6..7", "8..9", "10..11")
    assert regions.named[0] == "tau=0..1"
    assert (regions.is_binned, len(regions.starts), len(regions)) == (True, 6, 6)
    assert spans(regions)[:2] == [(0, 1), (2, 3)]
    assert np.bincount(placed(np.arange(40.0))[1]).tolist() == [7, 7, 6, 7, 7, 6]
    assert np.bincount(placed(np.arange(40.0), max_bins=8)[1]).tolist() == [5] * 8
    assert np.bincount(placed(np.arange(40.0), per_bin=10)[1]).tolist() == [10] * 4
    assert placed(np.arange(15.0), per_bin=10)[0].labels == ("0..14",)
    assert placed([3.0, 1.0, 2.0])[0].labels == ("1..3",)  # 2 in a bin at least, so one bin


def test_when_numbers_are_cut():
    few, many = (np.tile(np.arange(num), 3) for num in (12.0, 13.0))
    assert not placed(few)[0].is_binned  # 12 values, each three times
    assert placed(many)[0].is_binned
    assert not placed(many, sampler="grid")[0].is_binned
    assert placed([1.0, 2.0, 3.0, 1.0, 5.0])[0].is_binned  # 4 of 5 differ
    assert not placed([1.0, 2.0, 1.0, 2.0])[0].is_binned  # no more than half do


def test_a_grid_keeps_its_values_in_ascending_order():
    regions, codes = placed([0.5, 0.1, 0.2, 0.1, 100.0], sampler="grid")
    assert regions.labels == ("0.1", "0.2", "0.5", "100")
    assert codes == [2, 0, 1, 0, 3]
    assert spans(regions) == [(x, x) for x in (0.1, 0.2, 0.5, 100.0)]
    assert placed([64, 32, 64], sampler="grid")[0].named == ("tau=32", "tau=64")


def test_equal_values_are_in_one_bin_and_no_bin_is_short():
    regions, codes = placed(
        [5.0] * 10 + [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], max_bins=4
    )
    assert len(set(codes[:10])) == 1
    assert (regions.low[1:] > regions.high[:-1]).all()
    # Of 24 those below rank 6, 12 and 18: 14, 4, 6.
    assert regions.labels == ("1..5", "6..9", "10..15")
    regions, codes = placed([0.0, *[1.0] * 20, *range(2, 15)], per_bin=5)
    assert min(np.bincount(codes)) >= 5
    regions, _ = placed([*range(1, 14), *[50.0] * 20, 99.0], per_bin=5)
    assert regions.labels == ("1..6", "7..12", "13..99")  # 99 alone would be one of five


def test_the_last_bits_do_not_tell_values_apart():
    first = sampled([0.3, 0.1, 0.3], sampler="grid")
    second = sampled([0.1 + 0.2, 0.1, 0.7], sampler="grid")
    regions = cut("tau", [first, second])
    assert regions.labels == ("0.1", "0.3", "0.7")
    assert regions.place(second.settings["tau"]).tolist() == [1, 0, 2]
    assert spans(regions)[1] == (0.3, 0.3)
    regions, codes = placed([0.3, 0.1 + 0.2] * 2 + [0.1, 0.2, 0.4, 0.5, 0.6, 0.7])
    assert len(set(codes[:4])) == 1


def test_missing_values_are_the_last_region():
    regions, codes = placed([1.0, NAN, 2.0, 3.0, 4.0])
    assert (codes, regions.labels) == ([0, 2, 0, 1, 1], ("1..2", "3..4", "nan"))
    assert (len(regions.starts), len(regions)) == (2, 3)
    assert np.isnan([regions.low[2], regions.high[2]]).all()
    regions, codes = placed([2.0, NAN, 1.0, NAN], sampler="grid")
    assert (codes, regions.named) == ([1, 2, 0, 2], ("tau=1", "tau=2", "tau=nan"))
    regions, codes = placed(np.array([None, "b", "a"], dtype=object))
    assert (codes, regions.labels) == ([2, 0, 1], ("b", "a", "nan"))


def test_categories_and_truth_values_come_as_they_first_appear():
    regions, codes = placed(["b", "a", "b"])
    assert (codes, regions.labels) == ([0, 1, 0], ("b", "a"))
    assert np.isnan(regions.low).all()
    assert not regions.is_binned
    assert len(regions.starts) == 0
    regions, codes = placed([True, False, True])
    assert (codes, regions.labels) == ([0, 1, 0], ("true", "false"))
    one = replace(sampled([64, 32, 64]), scales={"tau": "category"})
    other = replace(sampled([32.0, 0.5, 64.0]), scales={"tau": "category"})
    regions = cut("tau", [one, other])
    assert regions.labels == ("64", "32", "0.5")
    assert regions.place(other.settings["tau"]).tolist() == [1, 2, 0]


def test_labels_are_short_unless_two_would_be_alike():
    assert placed([0.12345678, 0.5], sampler="grid")[0].labels == ("0.1235", "0.5")
    assert placed([0.123456, 0.123457], sampler="grid")[0].labels == ("0.123456", "0.123457")
    one = replace(sampled([0.123456, 0.123457]), scales={"tau": "category"})
    assert cut("tau", [one]).labels == ("0.123456", "0.123457")


def test_several_objectives_have_the_same_bins():
    rng = np.random.default_rng(0)
    sweeps = [sampled(rng.random(num)) for num in (60, 25)]
    regions = cut("tau", sweeps, per_bin=10)
    assert len(regions) == 2  # 25 configurations fill two bins of ten
    whole = np.concatenate([regions.place(one.settings["tau"]) for one in sweeps])
    assert np.bincount(whole).tolist() == [43, 42]
    values = np.concatenate([one.settings["tau"] for one in sweeps])
    for code in range(2):
        assert spans(regions)[code] == (values[whole == code].min(), values[whole == code].max())
    grid = sampled([0.1, 0.9] * 10, sampler="grid")
    assert cut("tau", [grid, sweeps[0]]).is_binned
    assert cut("tau", [grid, grid]).labels == ("0.1", "0.9")


def test_bins_of_those_with_a_score():
    tau = np.arange(20.0)
    scores = np.where(tau < 8, NAN, 90.0)[:, None]
    one = sampled(tau, scores=scores)
    regions = cut("tau", [one], max_bins=3, scored=True)
    assert spans(regions) == [(0, 11), (12, 15), (16, 19)]  # four with a score in each
    assert spans(cut("tau", [one], max_bins=2)) == [(0, 9), (10, 19)]
    counted = sweep(scores, {"tau": tau}, sampler="random", failed_as="worst")
    assert len(cut("tau", [counted], max_bins=3, scored=True)) == 3
    assert cut("tau", [counted], max_bins=3, scored=True).high[0] == 6  # failures are scores
    none = sampled(tau, scores=np.full((20, 1), NAN))
    assert spans(cut("tau", [none], max_bins=2, scored=True)) == [(0, 9), (10, 19)]


def test_a_value_that_is_in_no_region():
    grid, _ = placed([0.1, 0.5], sampler="grid")
    for value in (0.05, 0.3, 0.9, NAN):
        with pytest.raises(ValueError, match=r"^tau: .* is none of the values 0.1, 0.5$"):
            grid.place(pd.Series([0.1, value]))
    with pytest.raises(ValueError, match="c is none"):
        placed(["a", "b"])[0].place(pd.Series(["a", "c"]))
    bins, _ = placed(np.arange(12.0))
    assert bins.place(pd.Series([-5.0, 1.5, 99.0])).tolist() == [0, 0, 5]
    with pytest.raises(ValueError, match="nan is none"):
        bins.place(pd.Series([1.0, NAN]))
