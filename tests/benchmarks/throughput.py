"""SimCLR pre-training beside lightly's documented loop: images per second, stage by stage, and the
share of the peak.

The same network, batch size, images (32 x 32 x 3), augmentation (lightly's for CIFAR: no blur) and
precision. On a CPU what counts are images per CPU second, loader processes included: trials share
the cores, so that is what a study costs. lightly's loop loads with two worker processes and, to its
advantage, one thread for the network, which wastes less than torch's default on a few cores. On a
GPU it is images per second of the clock, with as many loaders as cores. Rounds alternate; each is a
process of its own.

    python tests/benchmarks/throughput.py [--encoder conv4-16 conv4-32 resnet18] [--batch 64 256]
        [--device cpu|cuda] [--precision auto] [--seconds 15] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from _machine import machine, matmul_peak, milliseconds
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from clsweep.data.availability import DataPlace
from clsweep.data.datasets import load_splits
from clsweep.display.printing import print_table
from clsweep.objective.build import build_objective
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from clsweep.train.images import Images, batches, on_device
from clsweep.train.loop import train_epoch
from clsweep.train.memory import keep_freed_memory
from clsweep.train.scores import score_encoder
from clsweep.train.state import Precision, new_state

STUDY = """
name: throughput
dataset: {{name: synthetic, num_train: {num_train}, val_fraction: 0.1}}
seeds: [0]
base: {{{encoder}, epochs: 1000, batch_size: {batch}, lr: 0.06,
       precision: {precision}, blur_prob: 0}}
objectives:
  simclr: {{framework: simclr, loss: infonce}}
search: {{method: grid}}
resources: {{gpus_per_worker: {gpus}}}
"""
ENCODERS = {
    "conv4-16": "encoder: conv4, width: 16",
    "conv4-32": "encoder: conv4, width: 32",
    "resnet18": "encoder: resnet18",
    "resnet50": "encoder: resnet50",
}
Row = dict[str, Any]


def planned(arguments: argparse.Namespace, *, num_train: int = 10_000) -> Row:
    """The configuration of one trial, as a study makes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.yaml"
        words = {
            "encoder": ENCODERS[arguments.encoder],
            "batch": arguments.batch,
            "precision": arguments.precision,
            "gpus": int(arguments.device == "cuda"),
        }
        path.write_text(STUDY.format(num_train=num_train, **words))
        study = load_study(path)
        return plan_row(study, plan_trials(study)[0])


def ours(arguments: argparse.Namespace) -> Iterator[int]:
    """Epochs of clsweep's loop; yields the images of each."""
    keep_freed_memory()  # as train_trial does
    config, device = planned(arguments), torch.device(arguments.device)
    splits = load_splits(config, DataPlace())
    # an epoch of a few steps, so that a slow network does not run for minutes beyond its time
    steps = max(2, min(len(splits.train) // arguments.batch, 1024 // arguments.batch))
    train = on_device(
        splits.train.take(torch.arange(steps * arguments.batch).numpy()), splits.train, device
    )
    state = new_state(config, device)
    while True:
        train_epoch(state, state.objective, train, config)
        yield steps * arguments.batch


def lightlys(arguments: argparse.Namespace) -> Iterator[int]:
    """lightly's example loop; yields the images of each step."""
    from lightly.loss import NTXentLoss
    from lightly.transforms.simclr_transform import SimCLRTransform
    from PIL import Image

    config, device = planned(arguments), torch.device(arguments.device)
    split = load_splits(config, DataPlace()).train
    transform = SimCLRTransform(input_size=32, gaussian_blur=0.0)

    class Pictures(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(split)

        def __getitem__(self, i: int) -> Any:
            return transform(Image.fromarray(split.images[split.rows[i]]))

    model = simclr_network(config).to(device)
    criterion, optimizer = NTXentLoss(), torch.optim.SGD(model.parameters(), lr=0.06)
    num_workers = 2 if device.type == "cpu" else os.cpu_count() or 1
    loader = torch.utils.data.DataLoader(
        Pictures(),
        batch_size=arguments.batch,
        shuffle=True,
        drop_last=True,
        num_workers=num_workers,
    )
    precision = Precision.on(device, config["precision"])
    while True:
        for x0, x1 in loader:
            with precision.autocast():
                z0, z1 = model(x0.to(device)), model(x1.to(device))
            loss = criterion(z0.float(), z1.float())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item() if device.type == "cpu" else None
            yield arguments.batch


def simclr_network(config: Row) -> nn.Module:
    """Encoder and projector as clsweep initialises them, in torch's own layout and operations."""
    objective = build_objective(config)
    return nn.Sequential(objective.encoder, objective.projector)


SIDES: dict[str, Callable[[argparse.Namespace], Iterator[int]]] = {
    "ours": ours,
    "lightly": lightlys,
}


def child(side: str, arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    running = SIDES[side](arguments)
    next(running)  # what happens once: loading, first allocations, the start of the loaders
    start, cpu_start, images = time.perf_counter(), cpu_seconds(), 0
    while time.perf_counter() - start < arguments.seconds:
        images += next(running)
    if arguments.device == "cuda":
        torch.cuda.synchronize()
    wall_s = time.perf_counter() - start
    running.close()  # ends the loaders, whose time counts only then
    print(json.dumps({"images": images, "wall_s": wall_s, "cpu_s": cpu_seconds() - cpu_start}))


def cpu_seconds() -> float:
    """Of this process and of those of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def throughput(arguments: argparse.Namespace) -> Row:
    """Median images per (CPU) second of both sides."""
    found: dict[str, list[float]] = {side: [] for side in SIDES}
    per = "wall_s" if arguments.device == "cuda" else "cpu_s"
    for _ in range(arguments.rounds):
        for side, values in found.items():
            names = ("encoder", "batch", "device", "precision", "seconds")
            words = [f"--{name}={getattr(arguments, name)}" for name in names]
            result = subprocess.run(
                [sys.executable, __file__, "--child", side, *words],
                capture_output=True,
                text=True,
                check=True,
            )
            measured = json.loads(result.stdout.splitlines()[-1])
            values.append(measured["images"] / measured[per])
    ratios = [a / b for a, b in zip(found["ours"], found["lightly"], strict=True)]
    medians = {side: statistics.median(values) for side, values in found.items()}
    return {
        "encoder": arguments.encoder,
        "batch": arguments.batch,
        "ours": medians["ours"],
        "lightly": medians["lightly"],
        "times": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
    }


def stages(arguments: argparse.Namespace) -> list[Row]:
    """Milliseconds of a step's stages on both sides, and what share of the matmul peak the networks
    reach.
    """
    torch.set_num_threads(1)
    keep_freed_memory()  # here the other side profits too
    config, device = planned(arguments, num_train=4_000), torch.device(arguments.device)
    splits = load_splits(config, DataPlace())
    train, val = (on_device(split, splits.train, device) for split in (splits.train, splits.val))
    state = new_state(config, device)
    views = next(batches(train, config, 0, state.view_generator)).chunks[0]()
    objective, batch = state.objective.train(), arguments.batch
    peer = simclr_network(config).to(device)
    z = [torch.randn(batch, 128, device=device, requires_grad=True) for _ in range(2)]

    def networks() -> None:
        with state.precision.autocast():
            online = objective(views)["online"]
        torch.cat(list(online.values())).float().square().mean().backward()

    def peer_networks() -> None:
        with state.precision.autocast():
            out = [peer(x.contiguous()) for x in views]
        torch.cat(out).float().square().mean().backward()

    from lightly.loss import NTXentLoss

    peer_loss, scored = NTXentLoss(), {"last": False}

    def own_loss():
        prepared = objective.prepare({"online": dict(enumerate(z))}, state.draw_generator)
        objective.loss(prepared).total.backward()

    work = {
        "views": (lambda: make_steps(train, config), peer_views(batch)),
        "networks, forward + backward": (networks, peer_networks),
        "loss, forward + backward": (own_loss, lambda: peer_loss(*z).backward()),
        "evaluation of 4,000 images": (
            lambda: score_encoder(objective.encoder, train, val, config, **scored),
            None,
        ),
    }
    rows = []
    for name, (mine, theirs) in work.items():
        per = 1 if name != "views" else max(1, 1024 // batch)
        row = {
            "encoder": arguments.encoder,
            "batch": batch,
            "stage": name,
            "ours ms": milliseconds(mine, device) / per,
        }
        row |= {
            "lightly ms": milliseconds(theirs, device) if theirs else None,
            "share of peak %": None,
        }
        if name.startswith("networks"):
            with FlopCounterMode(display=False) as counter:  # of plain convolutions
                peer_networks()
            peak = matmul_peak(device, state.precision.name)
            row["share of peak %"] = (
                100 * counter.get_total_flops() / (row["ours ms"] / 1000) / peak
            )
        rows.append(row)
    return rows


def make_steps(train: Images, config: Row) -> None:
    """The views of as many batches as are drawn at once."""
    generator = torch.Generator().manual_seed(0)
    steps = max(1, 1024 // config["batch_size"])
    for step, batch in enumerate(batches(train, config, 0, generator), start=1):
        batch.chunks[0]()
        if step == steps:
            return


def peer_views(batch: int) -> Callable[[], None]:
    import numpy as np
    from lightly.transforms.simclr_transform import SimCLRTransform
    from PIL import Image

    transform = SimCLRTransform(input_size=32, gaussian_blur=0.0)
    pixels = np.random.default_rng(0).integers(0, 256, (batch, 32, 32, 3), dtype=np.uint8)

    def make() -> None:
        for x in pixels:
            transform(Image.fromarray(x))

    return make


def busy(arguments: argparse.Namespace) -> Row:
    """Share of the time in which the GPU computes, over an epoch of clsweep's loop; its trace goes
    to a file.
    """
    running = ours(arguments)
    next(running)
    torch.cuda.synchronize()
    start = time.perf_counter()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        next(running)
        torch.cuda.synchronize()
    wall_us = 1e6 * (time.perf_counter() - start)
    trace = f"trace-{arguments.encoder}-{arguments.batch}.json"
    recorded.export_chrome_trace(trace)
    computing_us = sum(event.self_device_time_total for event in recorded.key_averages())
    return {
        "encoder": arguments.encoder,
        "batch": arguments.batch,
        "busy %": 100 * computing_us / wall_us,
        "trace": trace,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--encoder", nargs="+", choices=ENCODERS, default=["conv4-16", "conv4-32", "resnet18"]
    )
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", choices=SIDES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    cases = [
        argparse.Namespace(**{**vars(given), "encoder": encoder, "batch": batch})
        for encoder in given.encoder
        for batch in given.batch
    ]
    if given.child:
        child(given.child, cases[0])
        return
    unit = "images / s" if given.device == "cuda" else "images / CPU s"
    print_table([throughput(case) for case in cases], title=f"\nSimCLR, {unit}, on {machine()}")
    rows = [row for case in cases for row in stages(case)]
    print_table(rows, title="\nStages of a step, one thread")
    if given.device == "cuda":
        print_table([busy(case) for case in cases], title="\nThe GPU while clsweep trains")


if __name__ == "__main__":
    main()
