"""On which axis numbers are read where nothing says so."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import qmc

from clsweep.analysis.read_sweeps import scale_of

LISTS = {
    "linear": [
        [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
        [0.01, 0.25, 0.5, 0.75, 1.0],
        [100, 200, 300],
        [0, 1, 10, 100],
        [-1.0, 0.01, 1.0],
    ],
    "log": [[0.01, 0.1, 1], [1, 2, 4, 8], [0.05, 0.1, 0.2, 0.5, 1], [32, 64, 128, 256], [1, 10]],
    "category": [["sgd", "lars"], [True, False]],
}


@pytest.mark.parametrize(
    ("scale", "values"), [(scale, values) for scale, each in LISTS.items() for values in each]
)
def test_a_list_stands_on_the_axis_of_equal_gaps(scale, values):
    assert scale_of(pd.Series(values), ("grid",)) == scale
    drawn = np.random.default_rng(0).choice(values, 50)
    assert scale_of(pd.Series(drawn), ("random",)) == scale


@pytest.mark.parametrize("sampler", ["random", "qmc"])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.1, 0.9), (1e-4, 1e-1), (1, 1000)])
def test_a_sample_stands_on_the_axis_that_it_was_drawn_on(low, high, sampler):
    by_scale = {"linear": [], "log": []}
    for seed in range(100):
        rng = np.random.default_rng(seed)
        unit = rng.random(64) if sampler == "random" else qmc.Sobol(1, rng=rng).random(64)[:, 0]
        by_scale["linear"].append(scale_of(pd.Series(low + (high - low) * unit), (sampler,)))
        if low > 0:
            by_scale["log"].append(scale_of(pd.Series(low * (high / low) ** unit), (sampler,)))
    for scale, read in by_scale.items():
        assert read.count(scale) >= 0.95 * len(read)


def test_what_cannot_be_told_is_read_by_its_range():
    rng = np.random.default_rng(0)
    favoured = pd.Series(rng.uniform(0.02, 1.0, 60))
    assert scale_of(favoured, ("tpe",)) == "log"  # its values say what is good, and no more
    assert scale_of(favoured + 1, ("tpe",)) == "linear"
    assert scale_of(pd.Series([1e-320, 0.5, 1e100]), ("random",)) == "log"  # nothing overflows
