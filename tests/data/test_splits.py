"""Which images are held out, against scikit-learn."""

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from clsweep.data.splits import stratified


@pytest.mark.parametrize("seed", range(12))
def test_the_rows_are_scikit_learns(seed):
    rng = np.random.default_rng(seed)
    num_classes = int(rng.integers(1, 30))
    # even and uneven classes, so that remainders are equal and not
    sizes = np.full(num_classes, 7) if seed % 2 else rng.integers(2, 40, num_classes)
    labels = rng.permutation(np.repeat(3 * np.arange(num_classes) - 1, sizes))
    num = int(rng.integers(num_classes, len(labels) - num_classes + 1))
    expected = train_test_split(
        np.arange(len(labels)), test_size=num, stratify=labels, random_state=seed
    )
    for rows, others in zip(stratified(labels, num, seed), expected, strict=True):
        np.testing.assert_array_equal(rows, np.sort(others))


@pytest.mark.parametrize(
    ("labels", "num", "said"),
    [
        ([0, 0, 1], 1, "one image alone is of class 1"),
        ([0, 0, 1, 1], 1, "3 and 1 images, of 2 classes"),
        ([0, 0, 1, 1], 3, "1 and 3 images, of 2 classes"),
    ],
)
def test_each_side_has_each_class(labels, num, said):
    with pytest.raises(ValueError, match=said):
        stratified(np.array(labels), num, 0)
