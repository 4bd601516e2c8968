"""Which of the other samples are a sample's negatives, where a few of them are drawn."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from clsweep.model.transfer import to_device

NUM_SUBSETS = 8  # of a step: two samples with the same one may share more rows


def draw_others(
    num_samples: int,
    num_views: int,
    num_drawn: int,
    generator: Generator,
    device: torch.device,
    num_draws: int = 1,
) -> Tensor:
    """For each of N samples, K of the M = V (N - 1) rows that are no view of it, without repeats:
    int64 (num_draws, N, K) on the device. Sample n itself has the V rows n, n + N, ...

    Eight uniform K-subsets of the numbers 0 to M - 1 are drawn; then, for each sample and draw, one
    of these and a uniform shift. A sample has the rows whose numbers are the subset's, moved around
    by the shift. So each has a uniform K-subset, as if drawn for it alone. Of two samples, each has
    a row independently of whether the other has it. But all samples of a step share the eight
    subsets up to shifts: the number of rows that two have in common varies a little more.

    The generator is the CPU's, as every worker must draw the same. The host sends some numbers for
    each sample, of which the device makes all rows.

    Shapes: V views, A = num_draws x N anchors, B subsets.
    """
    num_others, num_anchors = num_views * (num_samples - 1), num_draws * num_samples
    subsets_BK = torch.stack(
        [torch.randperm(num_others, generator=generator)[:num_drawn] for _ in range(NUM_SUBSETS)]
    )
    # Each subset twice, one after the other, in a span of its own on a line of 2 M B numbers. Any M
    # that follow each other in a span hold K: no number is brought back by a division.
    span = 2 * num_others
    spans_B1 = span * torch.arange(NUM_SUBSETS)[:, None]
    twice = [subsets_BK, subsets_BK + num_others]
    line = (torch.cat(twice, dim=1).sort(dim=1).values + spans_B1).flatten()
    place_A = torch.randint(NUM_SUBSETS * num_others, (num_anchors,), generator=generator)
    place_A += num_others * (place_A // num_others)  # in the first half of a span
    first_A = torch.searchsorted(line, place_A)

    at_AV, change_AV = _spared(num_samples, num_views, line, place_A, first_A)
    parts = line, first_A, place_A, at_AV, change_AV
    packed = to_device(torch.cat([part.flatten() for part in parts]), device)  # in one message
    line, first_A, place_A, at, change = packed.split([part.numel() for part in parts])
    rows_AK = line.unfold(0, num_drawn, 1).index_select(0, first_A).sub_(place_A[:, None])
    rows_AK.scatter_add_(1, at.view(-1, num_views), change.view(-1, num_views))
    return rows_AK.view(num_draws, num_samples, num_drawn)


def _spared(
    num_samples: int, num_views: int, line: Tensor, place_A: Tensor, first_A: Tensor
) -> tuple[Tensor, Tensor]:
    """Where among its K numbers an anchor has rows of its own, and what leads from there to others;
    (A, V) each, zeros where it has none.

    The first M rows have their own numbers. The V last ones are spare: they have the numbers of the
    sample's own rows, but for one that is its own.
    """
    num_draws, num_others = len(place_A) // num_samples, num_views * (num_samples - 1)
    views = torch.arange(num_views)
    own_NV = torch.arange(num_samples)[:, None] + num_samples * views
    spare_NV = (num_others + views).expand(num_samples, -1)
    spare_NV = torch.where(spare_NV == own_NV[:, -1:], num_samples * num_views - 1, spare_NV)
    own_AV, spare_AV = own_NV.repeat(num_draws, 1), spare_NV.repeat(num_draws, 1)
    # where on the line each number is, or -1: faster than to search for it
    where = torch.full((2 * num_others * (NUM_SUBSETS + 1),), -1)
    where[line] = torch.arange(len(line))
    at_AV = where[place_A[:, None] + own_AV]
    has_AV = (at_AV >= 0) & (own_AV < num_others)
    return (at_AV - first_A[:, None]) * has_AV, (spare_AV - own_AV) * has_AV
