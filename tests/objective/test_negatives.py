"""Drawn negatives against draws of each sample for itself, by their counts, their overlaps and the
spread of the loss.

Shapes: T draws, N samples, V views, D features, K negatives of a sample, M to choose from.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from functools import partial
from time import process_time

import pytest
import torch
from torch import Tensor

from clsweep.objective.negatives import draw_others
from tests.objective.built import generator

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
OTHERS = partial(draw_others, device=CPU)


def steps(T: int, N: int, V: int, K: int) -> Tensor:
    """The draws of T steps, (T, N, K)."""
    g = generator()
    return torch.cat([OTHERS(N, V, K, g) for _ in range(T)])


def independent(T: int, N: int, V: int, K: int) -> Tensor:
    """The same from random keys of all rows, for every sample apart."""
    keys_TNR = torch.rand(T, N, V * N, generator=generator(7))
    own_NR = torch.eye(N, dtype=torch.bool).repeat(1, V)
    return keys_TNR.masked_fill(own_NR, -1).topk(K, dim=2).indices


def test_no_sample_has_a_view_of_its_own_or_any_row_twice():
    """For every number of views, samples and negatives, all others taken included."""
    for V, N in itertools.product((1, 2, 3), range(3, 8)):
        for K in range(1, V * (N - 1) + 1):
            index_TNK = OTHERS(N, V, K, generator(K), num_draws=4)
            assert index_TNK.shape == (4, N, K)
            assert index_TNK.dtype == torch.int64
            for n, row in itertools.product(range(N), index_TNK):
                rows = set(row[n].tolist())
                assert len(rows) == K
                assert rows <= {r for r in range(V * N) if r % N != n}


@pytest.mark.parametrize(("N", "V", "K"), [(5, 2, 3), (2, 2, 1), (6, 1, 2)])
def test_every_set_of_other_rows_is_drawn_equally_often(N, V, K):
    """And with the sets each row, and each pair of rows. Pearson's chi-square of every sample, of
    which 5 standard deviations are allowed.
    """
    num_sets = math.comb(V * (N - 1), K)
    T = 60 * num_sets
    index_TNK = steps(T, N, V, K)
    for n in range(N):
        counts = Counter(map(tuple, index_TNK[:, n].sort().values.tolist()))
        off = sum((count - 60) ** 2 for count in counts.values())
        chi_square = (off + (num_sets - len(counts)) * 60**2) / 60
        assert abs(chi_square - (num_sets - 1)) < 5 * math.sqrt(2 * (num_sets - 1)), n


@pytest.mark.parametrize(("V", "K"), [(2, 16), (2, 1), (1, 7)])
def test_two_samples_share_as_many_rows_as_if_drawn_apart(V, K):
    """The number is hypergeometric, of the rows that both may have. It varies up to an eighth more:
    two samples in so many have the same subset.
    """
    N, T = 20, 2000
    M = V * (N - 1)
    shared = []
    for index_TNK in (steps(T, N, V, K), independent(T, N, V, K)):
        has_TNR = torch.zeros(T, N, V * N).scatter_(2, index_TNK, 1.0)
        first, second = torch.triu_indices(N, N, 1)
        shared.append((has_TNR[:, first] * has_TNR[:, second]).sum(2))
    mean = (M - V) * (K / M) ** 2
    ours, (var, wanted) = shared[0], [x.var().item() for x in shared]
    assert abs(ours.mean() - mean) < 5 * (ours.mean(1).std() / math.sqrt(T)) + 1e-6
    assert 0.97 < var / wanted < 1.16
    each = (ours.mean(0) - mean).abs() / math.sqrt(wanted / T)
    assert each.max() < 5, "no two samples share more than others"


def test_a_large_batch_is_drawn_in_milliseconds():
    """The best of some: what another process takes is no time of this one, but it slows memory."""
    times = []
    for seed in range(8):
        before = process_time()
        OTHERS(4096, 2, 256, generator(seed), num_draws=2)
        times.append(process_time() - before)
    assert min(times) < 0.02
