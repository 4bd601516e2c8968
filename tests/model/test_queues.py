"""The memory of earlier embeddings against a list."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clsweep.model.queues import FeatureQueue

pytestmark = pytest.mark.usefixtures("one_thread")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


DIM = 3


def queue(size: int) -> FeatureQueue:
    torch.manual_seed(0)
    return FeatureQueue(size, DIM)


def rows(num_rows: int, first: int = 0) -> Tensor:
    """Rows that tell their number."""
    return torch.arange(first, first + num_rows).float()[:, None].expand(-1, DIM).contiguous()


def numbers(memory: FeatureQueue) -> list[int]:
    return sorted(int(row[0]) for row in memory.rows_KD)


def test_a_new_memory_holds_random_unit_vectors():
    memory = queue(50)
    torch.testing.assert_close(memory.rows_KD.norm(dim=1), torch.ones(50))
    assert len({tuple(row) for row in memory.rows_KD.tolist()}) == 50
    assert (memory.rows_KD.mean(0).abs() < 0.5).all()


@pytest.mark.parametrize(("size", "batch"), [(1, 1), (4, 3), (5, 5), (7, 3), (12, 4), (12, 5)])
def test_the_latest_rows_are_kept(size, batch):
    """First in, first out, also where a batch goes round the end; a batch may be as large as the
    memory.
    """
    memory, latest, g = queue(size), list[int](), generator()
    memory.put(rows(size, -size), g)
    latest += range(-size, 0)
    for step in range(2 * size + 3):
        memory.put(rows(batch, step * batch), g)
        latest = [*latest, *range(step * batch, (step + 1) * batch)][-size:]
        assert numbers(memory) == latest
    assert torch.equal(g.get_state(), generator().get_state()), "nothing is drawn"


@pytest.mark.parametrize(("size", "batch", "needed"), [(6, 3, 2), (7, 3, 3), (2, 3, 1), (1, 1, 1)])
def test_it_is_full_when_the_last_random_row_is_gone(size, batch, needed):
    memory = queue(size)
    for step in range(needed + 3):
        assert memory.is_full == (step >= needed)
        memory.put(rows(batch), generator())
    other = queue(size)
    other.load_state_dict(memory.state_dict())
    assert other.is_full


def test_of_a_batch_larger_than_the_memory_random_distinct_rows_stay():
    """EqCo 2.3, K < N."""
    stayed = set()
    for seed in range(60):
        memory = queue(2)
        memory.put(rows(5), generator(seed))
        assert len(set(numbers(memory))) == 2
        stayed.add(tuple(numbers(memory)))
    assert len(stayed) == 10, "every two of five"


def test_rows_and_queries_of_another_type_are_taken_and_no_gradient():
    memory = queue(4)
    memory.put(rows(2).bfloat16().requires_grad_(), generator())
    nearest = memory.nearest(rows(2).bfloat16().requires_grad_())
    for x in (memory.rows_KD, nearest):
        assert (x.dtype, x.requires_grad) == (torch.float32, False)
    assert list(memory.parameters()) == []
