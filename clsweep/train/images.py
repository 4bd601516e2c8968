"""The images of a trial on its device, and their batches of views.

Shape suffixes: N images of a split or batch, M some of them, C channels, H = W pixels.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from clsweep.data.augment import (
    FULL_SCALE,
    VALUES_AT_ONCE,
    Draws,
    Recipe,
    apply,
    change,
    draw_views,
)
from clsweep.data.datasets import Split, Splits
from clsweep.data.image_files import Pictures
from clsweep.data.random_streams import derived_seed
from clsweep.model.transfer import to_device
from clsweep.objective.views import recipes
from clsweep.train.collectives import rank, world_size
from clsweep.train.crops import as_tensor, cut_crops, cut_middles

# Images whose views are drawn at once: small batches share the cost of many short operations. Part
# of a trial's random stream, hence the same on every device; how many views are then made at once
# is the device's own matter, see `made_at_once`.
DRAWN_AT_ONCE = 1024
MADE_AT_ONCE = 256  # on a CPU
LARGEST_SHARE = 0.5  # of a GPU's free memory that a split may take; a larger one stays on the host


Pixels = Tensor | list[Tensor]  # whole images, or of images of different sizes the crops of views


@dataclass(frozen=True, eq=False)
class Images:
    """One split: pixels where they are read from, and how to normalise them on the trial's device.

    pixels_NHWC, uint8 or uint16, lies on the device if it fits there. On the host it is the array
    that all splits of a file and all trials of a process share, of which rows_N are this split's.
    Images of different sizes lie there as `pictures`, and are cropped and resized there.
    """

    pixels_NHWC: Tensor
    rows_N: Tensor | None
    labels_N: Tensor
    mean_1C11: Tensor
    std_1C11: Tensor
    view_size: int = 0  # pixels a side at which images are scored; 0: their own
    digest: str = ""  # of which images of a data set these are, if they are a whole split
    pictures: Pictures | None = None

    def __len__(self) -> int:
        return len(self.labels_N)

    @property
    def device(self) -> torch.device:
        return self.labels_N.device

    @property
    def size(self) -> int:
        """Pixels a side; of images of different sizes, at which they are scored."""
        return self.view_size if self.pictures else self.pixels_NHWC.shape[1]

    @property
    def scored_size(self) -> int:
        """Pixels a side of what `plain` gives."""
        return self.view_size or self.size

    def draw(
        self,
        transforms: Sequence[Recipe],
        chosen_M: Tensor,
        generator: torch.Generator,
        batch_size: int = 0,
    ) -> tuple[Draws, ...]:
        """Independent views of each of the chosen images (DCL A.4), for `views` and `fetch`, as
        `data.augment.draw_views` draws them.
        """
        size: int | Tensor = self.size
        if self.pictures is not None:
            assert self.rows_N is not None
            transforms = [replace(t, output_size=t.output_size or self.size) for t in transforms]
            size = torch.from_numpy(self.pictures.sizes[self.rows_N[chosen_M].numpy()].T)
        drawn = [draw_views(t, len(chosen_M), size, generator, batch_size) for t in transforms]
        return tuple(
            replace(view, partners=view.partners and (chosen_M[view.partners[0]], view.partners[1]))
            for view in drawn
        )

    def views(self, chosen_M: Tensor, draws: Sequence[Draws]) -> list[Tensor]:
        """The drawn views of the chosen images, as an encoder takes them: (M, C, V, V) each."""
        return make_views(self.fetch(chosen_M, draws)(), draws, self)

    def fetch(self, chosen_M: Tensor, draws: Sequence[Draws] = ()) -> Callable[[], list[Pixels]]:
        """Read the chosen images, chosen_M: int64 on the CPU, then the partners of each of the
        `draws` that has some. What is returned moves them to the device; the reading needs none.
        """
        partners = ((rows_M, [view]) for rows_M, view in (d.partners for d in draws if d.partners))
        reads = [self._read(*wanted) for wanted in ((chosen_M, draws), *partners)]
        return lambda: [moved() for moved in reads]

    def _read(self, chosen_M: Tensor, draws: Sequence[Draws]) -> Callable[[], Pixels]:
        """(M, C, H, W) in channels_last; of images of different sizes the crops of each view."""
        if self.pictures is not None:
            assert self.rows_N is not None
            crops = cut_crops(self.pictures, self.rows_N[chosen_M], draws, pin=self._pins)
            return lambda: [self._moved(crop).contiguous() for crop in crops]
        if self.rows_N is None:
            return lambda: self.pixels_NHWC[to_device(chosen_M, self.device)].permute(0, 3, 1, 2)
        pixels_MHWC = self.pixels_NHWC[self.rows_N[chosen_M]]
        if self._pins:
            pixels_MHWC = pixels_MHWC.pin_memory()
        return lambda: self._moved(pixels_MHWC.permute(0, 3, 1, 2))

    @property
    def _pins(self) -> bool:
        """A thread reads into page-locked memory, from which a GPU takes it."""
        return self.device.type == "cuda"

    def _moved(self, pixels_MCHW: Tensor) -> Tensor:
        return pixels_MCHW.to(self.device, non_blocking=True)

    def normalise(self, x_NCHW: Tensor) -> Tensor:
        """Images in [0, 1] -> what an encoder takes: standardised, gray as three, channels_last."""
        x_NCHW = (x_NCHW - self.mean_1C11).div_(self.std_1C11)
        if x_NCHW.shape[1] == 1:
            x_NCHW = x_NCHW.expand(-1, 3, -1, -1)
        return x_NCHW.contiguous(memory_format=torch.channels_last)

    def plain(self, chosen_M: Tensor) -> Tensor:
        """Unaugmented images as an encoder takes them, of scored_size; chosen_M: int64 on the CPU.

        Squares are resized whole. Of images of different sizes the shorter side is resized to 8/7
        of that, and the middle is cut out, as the papers do (256 -> 224).
        """
        if self.pictures is not None:
            assert self.rows_N is not None
            rows, side = self.rows_N[chosen_M], self.scored_size
            middles = cut_middles(self.pictures, rows, side, pin=self._pins)
            return self.normalise(_in_unit(self._moved(middles)))
        pixels = self._read(chosen_M, ())()
        assert isinstance(pixels, Tensor)
        x_MCHW = _in_unit(pixels)
        if self.scored_size != self.size:
            side = self.scored_size
            x_MCHW = F.interpolate(x_MCHW, (side, side), mode="bilinear", antialias=True)
        return self.normalise(x_MCHW)

    def labelled(self) -> Images:
        """Those images that have a label."""
        chosen_M = (self.labels_N.cpu() >= 0).nonzero()[:, 0]
        if len(chosen_M) == len(self):
            return self
        on_device_M = chosen_M.to(self.device)
        if self.rows_N is None:
            where: dict[str, Any] = {"pixels_NHWC": self.pixels_NHWC[on_device_M]}
        else:
            where = {"rows_N": self.rows_N[chosen_M]}
        return replace(self, **where, labels_N=self.labels_N[on_device_M], digest="")


_where: ContextVar[str] = ContextVar("images_on", default="auto")
_Place = tuple[Split, torch.device, str]
_held: dict[_Place, dict[Split, Images]] = {}  # of one place, for all trials of a process that fit


@contextlib.contextmanager
def images_on(where: str) -> Iterator[None]:
    """Meanwhile splits lie on the `gpu`, on the `host`, or where `on_device` finds room: `auto`."""
    token = _where.set(where)
    try:
        yield
    finally:
        _where.reset(token)


def are_resident() -> bool:
    """The latest trial has images on a GPU."""
    return any(each.rows_N is None for held in _held.values() for each in held.values())


def on_device(split: Split, statistics: Split, device: torch.device) -> Images:
    """A split on a device, normalised with another's channel statistics, the training split's.

    It stays for later trials. What lies there by other statistics, thus of another data set, goes
    before: its memory is this trial's.
    """
    place = (statistics, device, _where.get())
    if place not in _held:
        _held.clear()
    held = _held.setdefault(place, {})
    if split not in held:
        held[split] = _placed(split, *place)
    return held[split]


def _placed(split: Split, statistics: Split, device: torch.device, where: str) -> Images:
    mean_C, std_C = statistics.channel_stats
    pictures = split.images if isinstance(split.images, Pictures) else None
    pixels = as_tensor(pictures.content if pictures else split.images)
    rows = torch.from_numpy(split.rows)
    fits = device.type != "cpu" and pictures is None and where != "host"
    if fits and where == "auto":
        num_bytes = len(split) * pixels[0].numel() * pixels.element_size()
        fits = num_bytes <= LARGEST_SHARE * _free_memory(device)
    return Images(
        pixels_NHWC=_moved(pixels, rows, device) if fits else pixels,
        rows_N=None if fits else rows,
        labels_N=torch.from_numpy(split.labels).to(device),
        mean_1C11=torch.from_numpy(mean_C)[None, :, None, None].to(device),
        std_1C11=torch.from_numpy(std_C)[None, :, None, None].to(device),
        pictures=pictures,
    )


def scored_images(
    split: Split, splits: Splits, config: Mapping[str, Any], device: torch.device
) -> Images:
    """A split on a device as a trial takes it: by the statistics of the training split of `splits`,
    at the size of the trial's views.
    """
    size = config["view_size"] or config["image_size"]
    digest = hashlib.sha256(f"{config['dataset']} {config.get('images_digest')}".encode())
    for places in (split.rows, split.labels):
        digest.update(np.ascontiguousarray(places).tobytes())
    about = {"view_size": size, "digest": digest.hexdigest()[:16]}
    return replace(on_device(split, splits.train, device), **about)


def steps_per_epoch(images: Images, config: Mapping[str, Any]) -> int:
    """Full batches only: a rest would change the number of negatives."""
    return int(len(images) // config["batch_size"])


Chunks = Sequence[Callable[[], list[Tensor]]]


@dataclass(frozen=True)
class Batch:
    """A global batch: the labels of all its images, and this worker's share of views, in chunks.

    Each of the chunks makes its views when it is called, again when it is called again.
    """

    labels_N: Tensor
    chunks: Chunks


def batches(
    images: Images,
    config: Mapping[str, Any],
    epoch: int,
    generator: torch.Generator,
    first: int = 0,
) -> Iterator[Batch]:
    """The global batches of an epoch, from the one numbered `first` on.

    Order and views are drawn for the global batch by every worker alike: what a sample looks like
    does not depend on the number of workers. The order depends on seed and epoch alone, so trials
    with more views see the same batches.
    """
    batch_size = config["batch_size"]
    by_epoch = torch.Generator().manual_seed(
        derived_seed(config["seed"], f"order of epoch {epoch}")
    )
    used = steps_per_epoch(images, config) * batch_size
    order = torch.randperm(len(images), generator=by_epoch)[:used]
    is_chunked = config["chunk_size"] < batch_size
    together = 1 if is_chunked else max(1, made_at_once(images, config) // batch_size)
    of_block = _batches_at_once(batch_size)
    num_blocks = max(1, together // of_block)
    num_skipped, rest = divmod(first, num_blocks * of_block)
    blocks = islice(_drawn(order, images, config, generator), num_skipped * num_blocks, None)
    drawn = _joined(blocks, num_blocks)
    made = (
        _in_chunks(images, drawn, config)
        if is_chunked
        else _whole(images, drawn, batch_size, together)
    )
    return islice(made, rest, None)  # views are made together, as in an epoch that was not cut


def _batches_at_once(batch_size: int) -> int:
    """Batches of a block whose views are drawn at once."""
    return max(1, DRAWN_AT_ONCE // batch_size)


def made_at_once(images: Images, config: Mapping[str, Any]) -> int:
    """The number of images whose views are made at once, unless a batch has more: on a GPU as
    many as fit into a number of values, so that views take the same memory at every size.
    """
    if images.device.type == "cpu":
        return MADE_AT_ONCE
    read = 0 if images.pictures else images.size  # of pictures crops are read, no larger than views
    sides = [(max(read, t.output_size or images.size), t.mixes) for t in recipes(config)]
    channels = max(3, images.mean_1C11.shape[1])  # gray becomes three
    return VALUES_AT_ONCE["cuda"] // (channels * sum(side**2 * (1 + two) for side, two in sides))


@dataclass(frozen=True)
class _Drawn:
    """Consecutive images of an epoch's order, with their views' draws."""

    rows: Tensor
    draws: Sequence[Draws]

    def __getitem__(self, chosen: Tensor) -> _Drawn:
        return _Drawn(self.rows[chosen], [view[chosen] for view in self.draws])


Labelled = tuple[_Drawn, Sequence[Tensor]]  # and the labels of each batch


def _drawn(
    order: Tensor, images: Images, config: Mapping[str, Any], generator: torch.Generator
) -> Iterator[Labelled]:
    """Whole batches in blocks, and the labels of each batch."""
    batch_size, transforms = config["batch_size"], recipes(config)
    for rows in order.split(batch_size * _batches_at_once(batch_size)):
        labels = images.labels_N[to_device(rows, images.device)].split(batch_size)
        yield _Drawn(rows, images.draw(transforms, rows, generator, batch_size)), labels


def _joined(blocks: Iterator[Labelled], num_blocks: int) -> Iterator[Labelled]:
    """Several blocks as one, whose views can then be made at once."""
    while some := list(islice(blocks, num_blocks)):
        if len(some) == 1:
            yield some[0]
            continue
        parts, labels = zip(*some, strict=True)
        views = zip(*(part.draws for part in parts), strict=True)
        whole = _Drawn(torch.cat([d.rows for d in parts]), [Draws.of_blocks(v) for v in views])
        yield whole, [labels_N for each in labels for labels_N in each]


def _in_chunks(
    images: Images, drawn: Iterable[Labelled], config: Mapping[str, Any]
) -> Iterator[Batch]:
    """Batches whose chunks read their images and make their views whenever they are called."""
    batch_size, chunk_size = config["batch_size"], config["chunk_size"]
    for block, labels in drawn:
        for batch, labels_N in enumerate(labels):
            firsts = range(batch * batch_size, (batch + 1) * batch_size, chunk_size)
            chunks = [block[_share(first, 1, chunk_size)] for first in firsts]
            yield Batch(labels_N, [partial(images.views, one.rows, one.draws) for one in chunks])


def _whole(
    images: Images, drawn: Iterable[Labelled], batch_size: int, together: int
) -> Iterator[Batch]:
    """Batches of one chunk, the views of several of them made together: in fewer operations."""
    groups = (
        (block[_share(first * batch_size, len(labels[first : first + together]), batch_size)],
         labels[first : first + together])
        for block, labels in drawn
        for first in range(0, len(labels), together)
    )  # fmt: skip
    for (group, labels), read in _ahead(images, groups):
        views = make_views(read(), group.draws, images)
        parts = zip(
            labels, *(view.split(batch_size // world_size()) for view in views), strict=True
        )
        del views  # with the last batch of the group the views go, before the next are made
        for labels_N, *one in parts:
            yield Batch(labels_N, [partial(list, one)])


def make_views(pixels: Sequence[Pixels], draws: Sequence[Draws], images: Images) -> list[Tensor]:
    """The drawn views of images on the device, as an encoder takes them: (M, C, V, V) each; pixels
    as `Images.fetch` gives them.
    """
    own, *others = pixels
    views = _as_drawn(own, draws)
    for place, view in enumerate(draws):
        partner = _as_drawn(others.pop(0), [view.partners[1]])[0] if view.partners else None
        views[place] = change(views[place], view, partner)
    return [images.normalise(x_MCVV) for x_MCVV in views]


def _as_drawn(pixels: Pixels, draws: Sequence[Draws]) -> list[Tensor]:
    """The views that `apply` makes, those of one size together: fewer and longer operations."""
    if isinstance(pixels, list):
        return [apply(crop, view.of_crops()) for crop, view in zip(pixels, draws, strict=True)]
    of_size: dict[int, list[int]] = {}
    for view, drawn in enumerate(draws):
        of_size.setdefault(drawn.output_size, []).append(view)
    views: dict[int, Tensor] = {}
    for same in of_size.values():
        repeated = torch.cat([pixels] * len(same))
        made = apply(repeated, Draws.join([draws[view] for view in same]))
        views.update(zip(same, made.chunk(len(same)), strict=True))
    return [views[view] for view in range(len(draws))]


def _share(first: int, num_units: int, unit: int) -> Tensor:
    """This worker's rows of consecutive units, batches or chunks, that all workers share."""
    part = unit // world_size()
    starts = first + torch.arange(num_units)[:, None] * unit + rank() * part
    return (starts + torch.arange(part)).flatten()


def _ahead(
    images: Images, groups: Iterable[Labelled]
) -> Iterator[tuple[Labelled, Callable[[], list[Pixels]]]]:
    """Each group with `images.fetch` of its rows; for a GPU, a thread reads the next meanwhile."""
    if images.rows_N is None or images.device.type != "cuda":
        for group in groups:
            yield group, images.fetch(group[0].rows, group[0].draws)
        return
    with ThreadPoolExecutor(max_workers=1) as pool:
        begun: Iterator[Any] = (
            (group, pool.submit(images.fetch, group[0].rows, group[0].draws)) for group in groups
        )
        for (group, reading), _ in pairwise(chain(begun, [None])):  # the next one has begun, too
            yield group, reading.result()


def _moved(pixels_AHWC: Tensor, rows_N: Tensor, device: torch.device) -> Tensor:
    """The rows on the device, copied in blocks: the host never holds a second whole."""
    shape = (len(rows_N), *pixels_AHWC.shape[1:])
    moved = torch.empty(shape, dtype=pixels_AHWC.dtype, device=device)
    for out, rows in zip(moved.split(DRAWN_AT_ONCE), rows_N.split(DRAWN_AT_ONCE), strict=True):
        out.copy_(pixels_AHWC[rows])
    return moved


def _in_unit(pixels: Tensor) -> Tensor:
    """Whole numbers as float32 in [0, 1]."""
    return pixels.float() / FULL_SCALE[pixels.dtype]


def _free_memory(device: torch.device) -> int:
    """Bytes that a device has left for this process, whose share of it may be limited."""
    if device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    share = torch.cuda.get_per_process_memory_fraction(device) * total
    return int(min(free, share - torch.cuda.memory_reserved(device)))
