"""A folder of JPEGs of ImageNet's sizes, made here: views a second of one core from the cache of
compressed pictures, and its bytes, beside torchvision's ImageFolder, RandomResizedCrop and
DataLoader and the cache of pixels.

Both sides make one crop of 224 pixels of every picture as uint8 in random order, in batches of
256: ours on as many threads as the loader has processes. Passes are in turn, and rates medians of
these, without the first. Seconds are those of a CPU: others may be at work here, too.

The pictures are made of random fields with the spectrum of photos (amplitude 1/f) and grain, of
quality 90: of 500 x 375 pixels they take about 110 KB, as ImageNet's do.

    python tests/benchmarks/decode.py [--pictures 2000] [--cores 1] [--passes 3] [--folder PATH]

The last line is `bytes X, rate Y`: how many times as many bytes the pixels take, and how many times
as many views a core makes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import torch
from _machine import in_turn, machine, options
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

from clsweep.data.augment import Recipe, draw_views
from clsweep.data.cache import cached
from clsweep.data.image_files import Jpegs
from clsweep.data.locations import DataPlace
from clsweep.data.sources import image_source, sized_dataset
from clsweep.data.store_form import pixel_bytes
from clsweep.display.numbers import byte_size
from clsweep.train.crops import cut_crops
from clsweep.train.memory import keep_freed_memory

# Width and height of ImageNet's most frequent sizes, and their shares here.
SIZES = [(500, 375), (375, 500), (500, 333), (333, 500)]
SHARES = [0.55, 0.2, 0.15, 0.1]
VIEW, CROP_SCALE, BATCH = 224, 0.08, 256
PIXELS, JPEGS = 792, 256  # what a study with such views keeps of the shorter side, at most
QUALITY, FIELDS, FIELD = 90, 16, 1024


def field(rng: np.random.Generator, power: float) -> np.ndarray:
    """A random field of unit variance whose amplitude falls with the frequency: (F, F)."""
    distance = np.hypot(np.fft.fftfreq(FIELD)[:, None], np.fft.rfftfreq(FIELD)[None])
    distance[0, 0] = 1
    wave = np.fft.rfft2(rng.standard_normal((FIELD, FIELD))) / distance**power
    made: np.ndarray = np.fft.irfft2(wave, (FIELD, FIELD))
    return made / made.std()


def scenes(rng: np.random.Generator) -> list[Image.Image]:
    """Large scenes of which pictures are parts."""
    made = []
    for _ in range(FIELDS):
        light = 120 + 48 * field(rng, 1.0) + 6 * rng.standard_normal((FIELD, FIELD))
        colours = [128 + 14 * field(rng, 1.5) for _ in range(2)]
        levels = np.stack([light, *colours], axis=-1).clip(0, 255).astype(np.uint8)
        made.append(Image.fromarray(levels, "YCbCr").convert("RGB"))
    return made


def write_pictures(root: Path, num_pictures: int) -> None:
    """A folder of two classes, and some pictures of each for a test."""
    rng = np.random.default_rng(0)
    large = scenes(rng)
    for number in range(num_pictures + 4):
        part = "train" if number < num_pictures else "val"
        folder = root / part / f"c{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        width, height = SIZES[rng.choice(len(SIZES), p=SHARES)]
        left, top = rng.integers(0, FIELD - 500, 2)
        picture = large[rng.integers(FIELDS)].crop((left, top, left + width, top + height))
        if rng.random() < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        picture.save(folder / f"{number:06}.jpg", quality=QUALITY)


def ours(pictures: Jpegs) -> Iterator[int]:
    """Passes over all pictures; the views that each has made."""
    recipe, generator = Recipe(output_size=VIEW, crop_scale=CROP_SCALE), torch.Generator()
    sizes, epoch = torch.from_numpy(pictures.sizes), 0
    while True:
        epoch += 1
        generator.manual_seed(epoch)
        for rows in torch.randperm(len(pictures), generator=generator).split(BATCH):
            draws = draw_views(recipe, len(rows), sizes[rows].T, generator)
            [views] = cut_crops(pictures, rows, [draws])
            assert views.shape == (len(rows), 3, VIEW, VIEW)
        yield len(pictures)


def torchvisions(root: Path, cores: int) -> Iterator[int]:
    """The same of a loader of that many processes."""
    crop = transforms.RandomResizedCrop(VIEW, (CROP_SCALE, 1.0))
    folder = ImageFolder(root, transforms.Compose([crop, transforms.PILToTensor()]))
    torch.manual_seed(0)
    loader = DataLoader(
        folder, BATCH, shuffle=True, num_workers=cores, persistent_workers=True, prefetch_factor=2
    )
    while True:
        yield sum(len(views) for views, _ in loader)


def cpu_s() -> float:
    """CPU seconds of this process and of those that it has started."""
    processes = [psutil.Process(), *psutil.Process().children()]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def rate_of(passes: Iterator[int]) -> Callable[[], float]:
    """Views a CPU second in a pass: those of one core that does nothing else."""

    def rate() -> float:
        start = cpu_s()
        num_views = next(passes)
        return num_views / (cpu_s() - start)

    return rate


def measure(root: Path, cache: Path, cores: int, passes: int) -> None:
    """Print bytes and rates of the folder."""
    place = DataPlace(root=str(root), cache=str(cache))
    row = replace(
        sized_dataset("imagefolder", place, image_size=VIEW), store_size=JPEGS, store_as="jpeg"
    )
    start = time.perf_counter()
    pictures, _ = cached(image_source(row, place), cache)["train"]
    built_s = time.perf_counter() - start
    assert isinstance(pictures, Jpegs)
    files = [path.stat().st_size for path in root.rglob("*.jpg")]
    of_files, of_pixels = sum(files) / len(files), pixel_bytes(row, PIXELS) / len(files)
    of_cache = float(pictures.lengths.mean())
    print(f"{len(files):,} files of {byte_size(int(of_files), 3)}; as pixels", end=" ")
    print(f"{byte_size(int(of_pixels), 3)}, in the cache {byte_size(int(of_cache), 3)} each")
    print(f"cache built in {built_s:.1f} s: {len(files) / built_s:.0f} pictures a second")
    torch.set_num_threads(cores)
    keep_freed_memory()  # as trials do
    rates = in_turn(
        {
            "torchvision": rate_of(torchvisions(root / "train", cores)),
            "cache": rate_of(ours(pictures)),
        },
        passes + 1,
    )
    medians = {side: statistics.median(each[1:]) for side, each in rates.items()}
    for side, rate in medians.items():
        spread = f"{min(rates[side][1:]):.0f} to {max(rates[side][1:]):.0f}"
        print(f"{side}: {rate:.0f} views a second a core ({spread}), {cores} at work")
    times = medians["cache"] / medians["torchvision"]
    print(f"bytes {of_pixels / of_cache:.1f}, rate {times:.2f}")


def main() -> None:
    given = options(__doc__, pictures=2000, cores=1, passes=3, folder="")
    print(f"Decoding on {machine()}")
    with tempfile.TemporaryDirectory(dir=given.folder or None) as name:
        root, cache = Path(name) / "pictures", Path(name) / "cache"
        start = time.perf_counter()
        write_pictures(root, given.pictures)
        print(f"{given.pictures:,} pictures made in {time.perf_counter() - start:.0f} s")
        measure(root, cache, given.cores, given.passes)


if __name__ == "__main__":
    main()
