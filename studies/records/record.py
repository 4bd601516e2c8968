"""How few seconds of training bring an encoder to a kNN target, without labels and on one device.

A recipe is fixed before it is run: its epochs too. Each seed trains anew and is scored on the test
split once, at its end, with all training images as the bank: nothing is chosen by these scores. The
clock runs over the epochs: views, steps and the wait for the device. Reading the data, one epoch to
warm up and the score itself are not counted; the log has the time of the whole attempt too.

The target is reached if the mean over the seeds is above it by a one-sided t test at 5 percent. It
is missed if the mean is below it by the same test, and otherwise not resolved.

    python -m studies.records.record fashion_mnist [--root data] [--seeds 0 1 2 3 4] [--target 88]
        [--set epochs=10 lr=1.0] [--device cuda] [--log records.jsonl]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from scipy import stats

from clsweep.data.locations import DataPlace
from clsweep.train.loop import train_trial
from clsweep.version import VERSION
from studies.records.plain import plain_config

Row = dict[str, Any]
# goals, not results: what was reached stands in the log alone
TARGETS = {"fashion_mnist": 88.0, "cifar10": 80.0, "digits": 90.0}
_MILD = {"crop_scale": 0.5, "jitter_strength": 0.4, "blur_prob": 0.0, "tau": 0.2, "knn_k": 20}
RECIPES: dict[str, Row] = {
    "fashion_mnist": {**_MILD, "encoder": "resnet18", "batch_size": 512, "lr": 0.5, "epochs": 20},
    "cifar10": {
        "encoder": "resnet18",
        "batch_size": 512,
        "lr": 0.06,
        "epochs": 100,
        "blur_prob": 0.0,
        "tau": 0.2,
    },
    "digits": {**_MILD, "encoder": "conv4", "width": 8, "batch_size": 64, "lr": 0.1, "epochs": 2},
}


def config_of(dataset: str, seed: int, precision: str, changes: Mapping[str, Any]) -> Row:
    """A trial that holds nothing out and is scored on the test split, at its end alone."""
    recipe = {**RECIPES[dataset], **changes}
    return plain_config(
        dataset,
        seed=seed,
        val_fraction=None,
        eval_every=recipe["epochs"],
        precision=precision,
        **recipe,
    )


def attempt(config: Row, place: DataPlace, device: str) -> Row:
    """One seed: seconds of its epochs and of everything, and its score."""
    epochs: list[Row] = []
    start = time.perf_counter()
    result = train_trial(config, epochs.append, place=place, device=device)
    return {
        "seed": config["seed"],
        "train_s": math.fsum(row["time_s"] for row in epochs),
        "whole_s": time.perf_counter() - start,
        "knn_top1": result["knn_top1"],
    }


def verdict(scores: Sequence[float], target: float) -> str:
    """reached, missed or not resolved."""
    if len(scores) < 2:
        return "not resolved: one seed has no spread"
    error = statistics.stdev(scores) / math.sqrt(len(scores))
    margin = float(stats.t.ppf(0.95, len(scores) - 1)) * error
    above = statistics.fmean(scores) - target
    return "reached" if above >= margin else "missed" if above <= -margin else "not resolved"


def summary(attempts: Sequence[Row], target: float) -> Row:
    """Mean and SD over the seeds, and whether the target is reached."""
    found: Row = {"seeds": len(attempts), "target": target}
    for name in ("train_s", "whole_s", "knn_top1"):
        values = [row[name] for row in attempts]
        found[f"{name}_mean"] = statistics.fmean(values)
        found[f"{name}_sd"] = statistics.stdev(values) if len(values) > 1 else None
    return found | {"verdict": verdict([row["knn_top1"] for row in attempts], target)}


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device.startswith("cuda") else "CPU"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    has_gpu = torch.cuda.is_available()
    parser.add_argument("dataset", choices=sorted(RECIPES))
    parser.add_argument("--root", default="data", help="folder of torchvision's files")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--target", type=float, help="kNN score, percent")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--device", default="cuda" if has_gpu else "cpu")
    parser.add_argument("--precision", default="bf16" if has_gpu else "fp32")
    parser.add_argument("--log", type=Path, default=Path("results/records.jsonl"))
    given = parser.parse_args(words)
    target = TARGETS[given.dataset] if given.target is None else given.target
    changes = {name: _value(text) for name, _, text in (word.partition("=") for word in given.set)}
    place = DataPlace(root=given.root)
    configs = [config_of(given.dataset, s, given.precision, changes) for s in given.seeds]
    head = {"device": device_name(given.device), "torch": torch.__version__}
    head |= {"clsweep": VERSION, "config": configs[0]}
    _log(given.log, head)
    warm_up = configs[0] | {"epochs": 1, "eval_every": 1, "warmup_epochs": 0}
    attempt(warm_up, place, given.device)
    attempts = []
    for config in configs:
        attempts.append(attempt(config, place, given.device))
        _log(given.log, attempts[-1])
    _log(given.log, summary(attempts, target))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _log(path: Path, row: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps({name: value for name, value in row.items() if name != "config"}), flush=True)


if __name__ == "__main__":
    main()
