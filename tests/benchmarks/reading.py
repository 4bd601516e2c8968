"""Reading pictures: crops of a folder of JPEG files a second, beside torchvision's `ImageFolder`.

Both sides make two views of each picture with the same transform, `RandomResizedCrop` and a flip,
on one thread a process; clsweep from its cache, torchvision from the files. `first` finds no cache,
and decodes on all cores first. `cold` finds no page of the files in memory and counts from opening
the folder to the end of an epoch; `warm` is an epoch after it. torchvision's `first` is its `cold`.
Sides take turns, in rounds, with one process and with two that read the same pictures. By the
clock, a machine with other work on its cores says little; the last column is by processor time.

    python tests/benchmarks/reading.py [--pictures 800] [--size 224] [--rounds 3] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from _machine import machine

from clsweep.data.datasets import load_splits
from clsweep.display.printing import print_table
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from clsweep.train.images import batches, scored_images

STUDY = """
name: reading
dataset: {{name: imagefolder, root: {root}, cache: {cache}, val_fraction: 0.1}}
seeds: [0]
base: {{encoder: resnet18, epochs: 2, batch_size: {batch}, view_size: {size}, crop_scale: 0.08,
       jitter_prob: 0, gray_prob: 0, blur_prob: 0, flip_prob: 0.5, knn_k: 20}}
objectives:
  simclr: {{framework: simclr, loss: infonce}}
search: {{method: grid}}
"""
BATCH, NUM_CLASSES = 32, 4
SHAPES = ((500, 375), (375, 500), (640, 480), (500, 333))  # as ImageNet's
Row = dict[str, Any]


def make_pictures(root: Path, count: int) -> None:
    """JPEG files of noise at several scales, of 100 KB or so."""
    from PIL import Image

    generator = torch.Generator().manual_seed(0)
    for part, each in (("train", count // NUM_CLASSES), ("val", 2)):
        for number in range(NUM_CLASSES * each):
            folder = root / part / f"class{number % NUM_CLASSES}"
            folder.mkdir(parents=True, exist_ok=True)
            width, height = SHAPES[number % len(SHAPES)]
            x = torch.zeros(1, 3, height, width)
            for scale in (2, 8, 32):
                noise = torch.randn(1, 3, height // scale, width // scale, generator=generator)
                x += torch.nn.functional.interpolate(noise, (height, width), mode="bilinear")
            pixels = (128 + 30 * x[0]).clamp(0, 255).byte().permute(1, 2, 0).numpy()
            Image.fromarray(pixels).save(folder / f"{number}.jpg", quality=90)


def ours(arguments: argparse.Namespace) -> Iterator[int]:
    """Epochs of views as a trial reads them; yields the pictures of each."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.yaml"
        root, cache = arguments.folder / "pictures", arguments.folder / "cache"
        path.write_text(STUDY.format(root=root, cache=cache, size=arguments.size, batch=BATCH))
        study = load_study(path)
    config = plan_row(study, plan_trials(study)[0])
    splits = load_splits(config, study.sections.dataset.place)
    images = scored_images(splits.train, splits, config, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    for epoch in (0, 1):
        made = [len(batch.chunks[0]()[0]) for batch in batches(images, config, epoch, generator)]
        yield sum(made)


def torchvisions(arguments: argparse.Namespace) -> Iterator[int]:
    """Epochs of a loader over `ImageFolder`; yields the pictures of each."""
    from torchvision import datasets, transforms

    view = transforms.Compose(
        [
            transforms.RandomResizedCrop(arguments.size, scale=(0.08, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    pictures = datasets.ImageFolder(
        arguments.folder / "pictures" / "train", transform=lambda x: (view(x), view(x))
    )
    loader = torch.utils.data.DataLoader(pictures, batch_size=BATCH, shuffle=True, drop_last=True)
    for _ in range(2):
        yield sum(len(x0) for (x0, _), _ in loader)


SIDES: dict[str, Callable[[argparse.Namespace], Iterator[int]]] = {
    "clsweep": ours,
    "torchvision": torchvisions,
}


def child(side: str, arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    print("ready", flush=True)
    sys.stdin.readline()
    found, start = [], (time.perf_counter(), time.process_time())
    for pictures in SIDES[side](arguments):
        now = time.perf_counter(), time.process_time()
        found.append([pictures / (b - a) for a, b in zip(start, now, strict=True)])
        start = now
    print(json.dumps(found))


def forget(folder: Path) -> None:
    """Have no page of the files in memory."""
    os.sync()  # only what is on the disk can be forgotten
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


Speed = tuple[float, float]  # pictures a second: by the clock, by processor time


def speeds(side: str, num_processes: int, arguments: argparse.Namespace) -> list[Speed]:
    """Of all processes together: from a cold start, and of the epoch after it."""
    words = [f"--folder={arguments.folder}", f"--size={arguments.size}", f"--child={side}"]
    started = [
        subprocess.Popen(
            [sys.executable, __file__, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(num_processes)
    ]  # fmt: skip
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    forget(arguments.folder)
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    printed = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit(f"{side}: a process failed")
    by_state = zip(*map(json.loads, printed), strict=True)
    return [(sum(a for a, _ in each), sum(b for _, b in each)) for each in by_state]


def compared(num_processes: int, arguments: argparse.Namespace) -> list[Row]:
    found: dict[str, list[tuple[Speed, Speed]]] = {"first": [], "cold": [], "warm": []}
    for _ in range(arguments.rounds):
        shutil.rmtree(arguments.folder / "cache", ignore_errors=True)
        first, _ = speeds("clsweep", num_processes, arguments)
        cold, warm = speeds("clsweep", num_processes, arguments)
        peer_cold, peer_warm = speeds("torchvision", num_processes, arguments)
        found["first"].append((first, peer_cold))
        found["cold"].append((cold, peer_cold))
        found["warm"].append((warm, peer_warm))
    rows = []
    for state, pairs in found.items():
        by_clock, by_cpu = ([mine[i] / peer[i] for mine, peer in pairs] for i in (0, 1))
        rows.append(
            {
                "processes": num_processes, "state": state,
                "clsweep": statistics.median(mine[0] for mine, _ in pairs),
                "torchvision": statistics.median(peer[0] for _, peer in pairs),
                "times": statistics.median(by_clock), "least": min(by_clock),
                "most": max(by_clock), "by CPU time": statistics.median(by_cpu),
            }
        )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=800)
    parser.add_argument("--size", type=int, default=224, help="pixels a side of a view")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to make the pictures, on a real disk")
    parser.add_argument("--child", choices=SIDES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child, given)
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        given.folder = Path(folder)
        make_pictures(given.folder / "pictures", given.pictures)
        rows = [row for number in (1, 2) for row in compared(number, given)]
        kept = sum(path.stat().st_size for path in (given.folder / "cache").rglob("*.npy"))
        files = sum(path.stat().st_size for path in (given.folder / "pictures").rglob("*.jpg"))
    print_table(rows, title=f"\nPictures a second, two views of each, on {machine()}")
    print(f"The files have {files / 1e6:.0f} MB, the cache {kept / 1e6:.0f} MB.")


if __name__ == "__main__":
    main()
