"""Batch norm over groups against torch's on each group alone."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from clsweep.model.grouped_norm import GroupedBatchNorm, group_norms

pytestmark = pytest.mark.usefixtures("one_thread")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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
