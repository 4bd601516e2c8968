"""Perceptrons against their own list of layers, batch norm over groups against torch's on each
group alone, and the memory of earlier embeddings against a list.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from clsweep.model.queues import FeatureQueue; from clsweep.model.grouped_norm import GroupedBatchNorm, group_norms; from clsweep.model.heads import mlp

pytestmark = pytest.mark.usefixtures("one_thread")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Perceptrons.


def layers(head: nn.Sequential) -> list[str]:
    """One word a module: widths and bias of a linear map, width and affine of a batch norm."""
    words = []
    for module in head:
        if isinstance(module, nn.Linear):
            words.append(
                f"{module.in_features}-{module.out_features}{'' if module.bias is None else '+b'}"
            )
        elif isinstance(module, nn.BatchNorm1d):
            words.append(f"norm{module.num_features}{'*' if module.affine else ''}")
        else:
            assert isinstance(module, nn.ReLU)
            words.append("relu")
    return words


@pytest.mark.parametrize(
    ("norm", "num_layers", "expected"),
    [
        ("none", 1, "3-4+b"),
        ("none", 3, "3-5+b relu 5-5+b relu 5-4+b"),
        ("hidden", 3, "3-5 norm5* relu 5-5 norm5* relu 5-4+b"),
        ("all", 1, "3-4 norm4*"),
        ("all", 3, "3-5 norm5* relu 5-5 norm5* relu 5-4 norm4*"),
        ("bare", 2, "3-5 norm5* relu 5-4 norm4"),
    ],
)
def test_layers(norm, num_layers, expected):
    assert layers(mlp(3, 5, 4, layers=num_layers, norm=norm)) == expected.split()
    assert layers(mlp(3, 5, 4)) == ["3-5+b", "relu", "5-4+b"], "the default"


# Batch norm over groups.

N, SIZE = 12, 3
GROUPS = {
    False: [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]],
    True: [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]],
}


def network(*, affine: bool = True) -> nn.Sequential:
    """A batch norm of each kind."""
    torch.manual_seed(0)
    made = nn.Sequential(
        nn.Conv2d(2, 3, 2),
        nn.BatchNorm2d(3, affine=affine),
        nn.Flatten(),
        nn.Linear(3 * 4, 5),
        nn.BatchNorm1d(5, affine=affine),
    ).double()
    with torch.no_grad():
        for p in made.parameters():
            p.add_(torch.rand(p.shape))
    return made


def images() -> Tensor:
    return torch.randn(N, 2, 3, 3, generator=generator(1), dtype=torch.float64)


@pytest.mark.parametrize(
    ("is_strided", "channels_last", "affine"),
    [(False, False, True), (True, False, False), (True, True, True)],
)
def test_every_group_has_the_statistics_of_its_own(is_strided, channels_last, affine):
    """Values, gradients, and running statistics that follow the mean of the groups'."""
    plain, grouped = network(affine=affine), network(affine=affine)
    group_norms(grouped, SIZE, is_strided=is_strided)
    x = images()
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    apart = [copy.deepcopy(plain) for _ in GROUPS[is_strided]]
    weight = torch.randn(N, 5, dtype=torch.float64)
    out = grouped(x)
    (out * weight).sum().backward()
    for rows, own in zip(GROUPS[is_strided], apart, strict=True):
        expected = own(x[rows])
        torch.testing.assert_close(out[rows], expected)
        (expected * weight[rows]).sum().backward()
    for name, p in grouped.named_parameters():
        expected = sum(own.get_parameter(name).grad for own in apart)
        torch.testing.assert_close(p.grad, expected)
    for name, buffer in grouped.named_buffers():
        if buffer.is_floating_point():
            mean = torch.stack([own.get_buffer(name) for own in apart]).mean(0)
            torch.testing.assert_close(buffer, mean)
    assert int(grouped[1].num_batches_tracked) == 1


def test_evaluation_is_that_of_the_running_statistics():
    plain, grouped = network().eval(), network().eval()
    group_norms(grouped, SIZE, is_strided=True)
    assert torch.equal(plain(images()[:5]), grouped(images()[:5]))
    assert plain.state_dict().keys() == grouped.state_dict().keys()


def test_statistics_may_stay_as_they_are_in_training():
    norm = nn.Sequential(nn.BatchNorm1d(3))
    group_norms(norm, 2, is_strided=False)
    assert type(norm[0]) is GroupedBatchNorm
    norm[0].track_running_stats = False
    norm(torch.randn(4, 3))
    assert torch.equal(norm[0].running_mean, torch.zeros(3))


@pytest.mark.parametrize("is_strided", [False, True])
def test_half_types_are_normalised_as_torch_does(is_strided):
    x = (torch.randn(8, 4, generator=generator()) + 10).bfloat16()
    norm = nn.Sequential(nn.BatchNorm1d(4))
    group_norms(norm, 8, is_strided=is_strided)  # one group: torch's own
    expected = nn.BatchNorm1d(4)(x)
    assert norm(x).dtype == torch.bfloat16
    torch.testing.assert_close(norm(x), expected, rtol=0.02, atol=0.02)


# Memories.

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
