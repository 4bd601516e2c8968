"""Images on their device: shared, read by rows, and batches whose views do not depend on how many
are made at once.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as tv

from clsweep.data.augment import Recipe
from clsweep.data.datasets import Split
from clsweep.data.image_files import Pictures
from clsweep.train import images as module
from clsweep.train.device import trial_device
from clsweep.train.images import (
    Images,
    are_resident,
    batches,
    images_on,
    on_device,
    steps_per_epoch,
)
from clsweep.train.memory import limited_memory
from tests.cluster.conftest import wait_until
from tests.contracts.combinations import CASES, some_digits
from tests.driver import GIB, Driver

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
DEVICES = [CPU, *([torch.device("cuda")] if torch.cuda.is_available() else [])]
CONFIG = CASES["simclr-dcl-none-ecpp"] | {"batch_size": 12, "chunk_size": 12}


def some_split(num_images: int = 50, *, channels: int = 3, unlabeled: int = 0) -> Split:
    rng = np.random.default_rng(0)
    array = rng.integers(0, 256, (2 * num_images, 8, 8, channels), dtype=np.uint8)
    labels = rng.integers(0, 10, num_images)
    labels[:unlabeled] = -1
    return Split(array, rng.permutation(2 * num_images)[:num_images], labels)


def all_views(
    images: Images, config: dict[str, Any], seed: int = 4
) -> list[tuple[list[Tensor], Tensor]]:
    all_batches = batches(images, config, 0, torch.Generator().manual_seed(seed))
    return [
        ([torch.cat(view) for view in zip(*(make() for make in b.chunks), strict=True)], b.labels_N)
        for b in all_batches
    ]


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize("fits", [True, False])
def test_rows_are_the_splits(device, fits, monkeypatch):
    monkeypatch.setattr(module, "LARGEST_SHARE", 1.0 if fits else 0.0)
    split = some_split(unlabeled=5)
    images = on_device(split, split, device)
    chosen = torch.tensor([3, 0, 49])
    expected = torch.from_numpy(split.images[split.rows[chosen]]).permute(0, 3, 1, 2)
    (taken,) = images.fetch(chosen)()
    assert torch.equal(taken.cpu(), expected)
    assert taken.is_contiguous(memory_format=torch.channels_last)
    assert len(images) == 50
    labelled = images.labelled()
    assert torch.equal(labelled.labels_N.cpu(), torch.from_numpy(split.labels[5:]))
    some, same = labelled.fetch(torch.arange(45))()[0], images.fetch(torch.arange(5, 50))()[0]
    assert torch.equal(some.cpu(), same.cpu())


META = torch.device("meta")  # stands for a GPU: its tensors are made, and hold nothing


@pytest.mark.parametrize(
    ("where", "room", "is_there"),
    [("auto", 2.0, True), ("auto", 1.9, False), ("gpu", 0.0, True), ("host", 2.0, False)],
)
def test_images_lie_where_the_study_says(where, room, is_there, monkeypatch):
    """`room`: times the split that the GPU has free. The labels are there in any case."""
    split = some_split()
    num_bytes = split.images[split.rows].nbytes
    monkeypatch.setattr(module, "_free_memory", lambda _: room * num_bytes)
    with limited_memory("cpu", 0, where):
        images = on_device(split, split, META)
        assert images.pixels_NHWC.is_meta == are_resident() == is_there
    assert images.labels_N.is_meta
    assert on_device(split, split, CPU).pixels_NHWC.data_ptr() == split.images.ctypes.data


def test_only_the_images_of_one_trial_stay(monkeypatch):
    """Its training, validation and test split, and others by its statistics; another data set finds
    their memory free.
    """
    train, val, transferred, other = (some_split() for _ in range(4))
    with images_on("gpu"):
        first = [on_device(split, train, META) for split in (train, val, transferred)]
        assert [on_device(split, train, META) for split in (train, val, transferred)] == first
        pixels = [weakref.ref(images.pixels_NHWC) for images in first]
        del first
        assert all(ref() is not None for ref in pixels)
        monkeypatch.setattr(
            module, "_moved", lambda *_: torch.tensor([r() is None for r in pixels])
        )
        assert on_device(other, other, META).pixels_NHWC.tolist() == [True] * 3


def test_what_is_normalised_has_mean_0_and_std_1_in_every_channel():
    split = some_split(200, channels=1)
    x_NCHW = on_device(split, split, CPU).plain(torch.arange(200))
    assert torch.equal(x_NCHW, x_NCHW[:, :1].expand(-1, 3, -1, -1)), "one becomes three equal ones"
    split = some_split(200)
    x_NCHW = on_device(split, split, CPU).plain(torch.arange(200))
    assert x_NCHW.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(x_NCHW.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(x_NCHW.std((0, 2, 3)), torch.ones(3), atol=1e-3, rtol=0)


def same(a: list[tuple[list[Tensor], Tensor]], b: list[tuple[list[Tensor], Tensor]]) -> None:
    assert len(a) == len(b) > 1
    for (views, labels), (other_views, other_labels) in zip(a, b, strict=True):
        assert torch.equal(labels, other_labels)
        torch.testing.assert_close(views, other_views, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("chunk_size", "together"), [(2, 1), (6, 24), (12, 1), (6, 10_000)])
def test_views_do_not_depend_on_chunks_or_on_how_many_are_made_at_once(
    together, chunk_size, monkeypatch
):
    expected = all_views(some_digits(100), CONFIG)
    monkeypatch.setattr(module, "MADE_AT_ONCE", together)
    same(all_views(some_digits(100), CONFIG | {"chunk_size": chunk_size}), expected)


@pytest.mark.parametrize("blocks", [1, 2, 3, 9])
def test_views_of_several_blocks_of_draws_may_be_made_at_once(blocks, monkeypatch):
    """With partners of their own batches, and all that follows a recipe."""
    monkeypatch.setattr(module, "DRAWN_AT_ONCE", 24)
    monkeypatch.setattr(module, "MADE_AT_ONCE", 12)
    config = CASES[next(name for name in CASES if "mixup" in name)]
    config |= {"batch_size": 12, "chunk_size": 12}
    expected = all_views(some_digits(110), config)
    monkeypatch.setattr(module, "MADE_AT_ONCE", blocks * 24)
    sizes, make_views = [], module.make_views
    monkeypatch.setattr(
        module, "make_views", lambda p, d, i: sizes.append(len(d[0])) or make_views(p, d, i)
    )
    same(all_views(some_digits(110), config), expected)
    assert sizes[0] == min(blocks * 24, 108)
    assert sum(sizes) == 108


class OnAGPU(Images):
    device = torch.device("cuda")  # what is asked before anything moves


@pytest.mark.parametrize("size", [8, 32, 96, 224])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_gpu_makes_as_many_views_at_once_as_take_the_same_memory(size, channels):
    pixels_NHWC = torch.empty(1, 1, 1, channels, dtype=torch.uint8).expand(1, size, size, -1)
    nothing, one = torch.empty(0), torch.ones(1, channels, 1, 1)
    images = OnAGPU(pixels_NHWC, None, nothing, one, one)
    plain = CASES["simclr-dcl-none-two"]
    of_one = 2 * 3 * size**2
    assert module.made_at_once(images, plain) == 2**25 // of_one
    assert size > 32 or module.made_at_once(images, plain) >= 4096
    mixed = plain | {"augmentation": "mixup", "mixup_min": 0.6}
    assert module.made_at_once(images, mixed) == 2**25 // (2 * of_one)
    larger = plain | {"view_size": 2 * size}
    assert module.made_at_once(images, larger) == 2**25 // (4 * of_one)
    cropped = replace(images, pictures=pictures(np.random.default_rng(0), [(9, 9)], 3)[1].images)
    assert module.made_at_once(cropped, plain | {"view_size": 16}) == 2**25 // (2 * 3 * 16**2)


def test_the_views_of_a_batch_are_those_of_its_own_images():
    """Every image once an epoch, and its label with it: told by views that change nothing."""
    images = some_digits(100)
    untouched = {"crop_scale": 1.0, "small_crop_scale": 1.0}
    untouched |= dict.fromkeys(("flip_prob", "jitter_prob", "blur_prob"), 0.0)
    config = CONFIG | untouched | {"small_view_size": 8}
    plain, seen = images.plain(torch.arange(100)), []
    for views, labels in all_views(images, config):
        rows = torch.cdist(views[0].flatten(1), plain.flatten(1)).argmin(dim=1)
        for view in views:
            torch.testing.assert_close(view, plain[rows], atol=1e-4, rtol=0)
        assert torch.equal(labels, images.labels_N[rows])
        seen += rows.tolist()
    assert len(set(seen)) == len(seen) == 96 == 12 * steps_per_epoch(images, config)


def test_the_next_images_are_read_while_these_are_used(monkeypatch):
    """From the host to a GPU, also across the blocks that are drawn at once."""
    monkeypatch.setattr(module, "DRAWN_AT_ONCE", 24)
    monkeypatch.setattr(module, "MADE_AT_ONCE", 12)
    images, config = some_digits(100), CONFIG
    expected, events = all_views(images, config), []

    class OnTheHost(Images):
        device = type("Device", (), {"type": "cuda"})()  # what is asked before anything is read

        def fetch(self, chosen_M: Tensor, draws: Any = ()) -> Callable[[], Any]:
            events.append("read")
            return images.fetch(chosen_M, draws)

    groups = [(module._Drawn(rows, []), []) for rows in torch.arange(96).split(12)]
    for number, (group, read) in enumerate(module._ahead(OnTheHost(**vars(images)), groups)):
        assert torch.equal(read()[0], images.fetch(group[0].rows)()[0])
        if number < len(groups) - 1:
            wait_until(lambda n=number: len(events) >= n + 2, "the next group to be read")
    assert len(events) == len(groups) == len(expected) == number + 1


@pytest.mark.parametrize(
    ("share", "reserved", "fits"),
    [(1.0, 0, True), (0.25, 0, False), (0.5, 0, True), (1.0, 60, False)],
)
def test_a_split_lies_on_a_gpu_if_half_of_the_trials_share_of_it_is_enough(
    monkeypatch, share, reserved, fits
):
    """18 GiB of images on a GPU of 80 GiB, which other trials use too."""
    Driver(reserved=reserved * GIB, shares=[share]).install(monkeypatch)
    free = module._free_memory(trial_device("cuda"))
    assert (module.LARGEST_SHARE * free >= 18 * GIB) is fits


def pictures(rng: np.random.Generator, sizes: Any, channels: int) -> tuple[list[Any], Split]:
    """Pictures of these sizes, each and as a split."""
    each = [rng.integers(0, 256, (h, w, channels), dtype=np.uint8) for h, w in sizes]
    whole = Pictures(np.concatenate([x.ravel() for x in each]), sizes, channels)
    return each, Split(whole, np.arange(len(each)), np.arange(len(each)))


def test_views_of_a_picture_are_torchvisions_of_the_whole():
    """Cropped out of the picture as it is kept, then resized: never cut to a square before."""
    rng = np.random.default_rng(0)
    sizes = np.array([(40, 60), (90, 30), (25, 25), (61, 200)])
    each, split = pictures(rng, sizes, 3)
    images = replace(on_device(split, split, CPU), view_size=24)
    rows = torch.tensor([3, 1, 0, 2, 1])
    transforms = (Recipe(), replace(Recipe(crop_scale=0.5), output_size=12))
    draws = images.draw(transforms, rows, torch.Generator().manual_seed(1))
    plain = [replace(d, jitter=d.jitter & False, gray=d.gray & False, blur=d.blur & False)
             for d in draws]  # fmt: skip
    for drawn, view, pixels in zip(plain, images.views(rows, plain), (24, 12), strict=True):
        assert view.shape == (5, 3, pixels, pixels)
        for n, row in enumerate(rows):
            box = [int(getattr(drawn, name)[n]) for name in "ijhw"]
            x = torch.from_numpy(each[row]).permute(2, 0, 1)
            expected = tv.resized_crop(x, *box, [pixels] * 2, antialias=True)
            if drawn.flip[n]:
                expected = expected.flip(2)
            actual = view[n] * images.std_1C11[0] + images.mean_1C11[0]
            assert torch.allclose(actual, expected.float() / 255, atol=1e-5)


def test_the_statistics_of_pictures_are_those_of_all_their_pixels():
    rng = np.random.default_rng(0)
    each, split = pictures(rng, np.array([(4, 6), (9, 3)]), 2)
    mean, std = split.channel_stats
    pixels = np.concatenate([x.reshape(-1, 2) for x in each]) / 255
    assert np.allclose(mean, pixels.mean(axis=0))
    assert np.allclose(std, pixels.std(axis=0))
