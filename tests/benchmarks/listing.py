"""How long the commands that look at a large study take, and what recording it costs: plans and
results of many trials.

The results are made up, with every column filled that a real trial fills, and an `epochs` row for
each of its epochs.

    python tests/benchmarks/listing.py [--trials 10000] [--epochs 10] [--parts 400] [--repeats 3]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from _machine import CLSWEEP, in_turn, machine, python_seconds, seconds, spreads

sys.path.insert(0, str(Path(__file__).parents[2]))

from clsweep.display.printing import print_table
from clsweep.results.folder import ResultsFolder
from clsweep.study.design import Study, plan_row, plan_trials
from clsweep.study.resolve import load_study
from tests.planted import record

Row = dict[str, Any]

STUDY = {
    "name": "large",
    "dataset": {"name": "digits"},
    "seeds": [0, 1],
    "base": {"encoder": "conv4", "epochs": 10},
    "objectives": {
        "simclr": {"framework": "simclr", "loss": "infonce"},
        "dcl": {"framework": "simclr", "loss": "dcl"},
    },
}


def write_study(path: Path, method: str, num_trials: int) -> None:
    """A study of about `num_trials` trials, by a grid or by a sampler."""
    per_objective = num_trials // 4
    tau: Row = {"low": 0.01, "high": 1.0, "log": True}
    lr: Row = {"low": 0.01, "high": 1.0, "log": True}
    search: Row = {"method": method}
    if method == "grid":
        side = round(per_objective**0.5)
        values = [round(0.01 + 0.99 * i / side, 6) for i in range(side)]
        tau, lr = tau | {"grid": values}, lr | {"grid": values}
    else:
        search |= {"trials_per_objective": per_objective}
    path.write_text(yaml.safe_dump({**STUDY, "space": {"tau": tau, "lr": lr}, "search": search}))


def finished(row: Row, i: int) -> Row:
    """What a trial that has finished, or one in a hundred that has failed, says of itself."""
    if i % 100 == 99:
        return {
            **row,
            "status": "failed",
            "error_class": "RuntimeError",
            "error_message": "x" * 200,
        }
    measured = dict.fromkeys(
        ("train_loss", "wall_time_s", "images_per_s", "uniformity", "q_b_mean"), 0.5 + i % 977
    )
    scores = {"knn_top1": 50.0 + i % 49, "knn_top5": 90.0, "linear_top1": 60.0}
    return {
        **row,
        "status": "finished",
        **measured,
        **scores,
        "git_commit": "0" * 40,
        "device": "cpu",
        "workers": 1,
    }


def make_results(study: Study, folder: ResultsFolder, num_epochs: int, num_parts: int) -> None:
    """All trials of a study as ended: the last `num_parts` not compacted yet."""
    rows = [plan_row(study, trial) for trial in plan_trials(study)]
    folder.create(study.document.dump(), rows)
    ended = [finished(row, i) for i, row in enumerate(rows)]
    epochs = [
        {"epoch": epoch, "train_loss": 5.0 / epoch, "lr": 0.1, "time_s": 1.0}
        for epoch in range(1, num_epochs + 1)
    ]
    num_compacted = len(ended) - num_parts
    record(folder, ended[:num_compacted], epochs=epochs)
    for row in ended[num_compacted:]:
        folder.add_trial(row, epochs=epochs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--parts", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for method in ("grid", "qmc"):
            write_study(root / f"{method}.yaml", method, arguments.trials)
        study = load_study(root / "grid.yaml")
        folders = {"compacted": 0, f"{arguments.parts} parts": arguments.parts}
        for label, num_parts in folders.items():
            make_results(study, ResultsFolder(str(root / label)), arguments.epochs, num_parts)
        words: dict[str, Sequence[object]] = {}
        for method in ("grid", "qmc"):
            words[f"plan, {method}"] = ["plan", root / f"{method}.yaml"]
            words[f"plan --trials, {method}"] = ["plan", root / f"{method}.yaml", "--trials"]
        for label in folders:
            for command in ("status", "trials"):
                words[f"{command}, {label}"] = [command, root / label]
            words[f"trials --format csv, {label}"] = ["trials", root / label, "--format", "csv"]
        rounds: dict[str, Callable[[], float]] = {
            f"clsweep {name}": lambda words=words: python_seconds(*CLSWEEP, *words)
            for name, words in words.items()
        }
        rounds["in a run: the plan as rows"] = lambda: seconds(
            lambda: [plan_row(study, trial) for trial in plan_trials(study)]
        )
        folder = ResultsFolder(str(root / f"{arguments.parts} parts"))
        rows = folder.trials().slice(0, arguments.parts).to_pylist()
        rounds[f"in a run: {arguments.parts} rows recorded"] = lambda: seconds(
            lambda: [folder.add_trial(row, epochs=[{"epoch": 1}]) for row in rows]
        )
        rounds["in a run: compaction"] = lambda: seconds(folder.compact)
        times = in_turn(rounds, arguments.repeats)
        num_trials = folder.plan().num_rows
    size = f"{num_trials:,} trials of {arguments.epochs} epochs"
    title = f"\n{size} on {machine()}, {arguments.repeats} runs each"
    print_table(spreads("what", times), title=title)


if __name__ == "__main__":
    main()
