"""How long commands take: those that need neither torch nor Ray, beside a bare interpreter and
`import torch`; `clsweep run` to the first row of a study of short trials; and those that look at a
large study.

Its results are made up, with every column filled that a real trial fills, and an `epochs` row for
each of its epochs.

    python tests/benchmarks/commands.py [--trials 10000] [--epochs 10] [--parts 400] [--repeats 3]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from _machine import CLSWEEP, in_turn, machine, options, python_seconds, spreads

sys.path.insert(0, str(Path(__file__).parents[2]))

from clsweep.display.printing import print_table
from clsweep.results.folder import ResultsFolder
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from tests.planted import record

Row = dict[str, Any]
QUICKSTART = Path(__file__).parents[2] / "studies" / "quickstart.yaml"
OBJECTIVES = {
    "simclr": {"framework": "simclr", "loss": "infonce"},
    "dcl": {"framework": "simclr", "loss": "dcl"},
}
SHORT = {
    "name": "short",
    "dataset": {"name": "digits"},
    "base": {"encoder": "conv4", "width": 16, "epochs": 1},
    "seeds": [0, 1],
    "space": {},
    "objectives": OBJECTIVES,
    "search": {"method": "grid"},
}


def large_study(path: Path, method: str, num_trials: int) -> Any:
    """A study of about `num_trials` trials, by a grid or by a sampler."""
    per_objective = num_trials // 4
    tau: Row = {"low": 0.01, "high": 1.0, "log": True}
    lr, search = dict(tau), {"method": method, "trials_per_objective": per_objective}
    if method == "grid":
        side = round(per_objective**0.5)
        values = [round(0.01 + 0.99 * i / side, 6) for i in range(side)]
        tau, lr, search = tau | {"grid": values}, lr | {"grid": values}, {"method": method}
    changes = {"name": "large", "space": {"tau": tau, "lr": lr}, "search": search}
    path.write_text(yaml.safe_dump({**SHORT, **changes}))
    return load_study(path)


def finished(row: Row, i: int) -> Row:
    """What a trial that has finished, or one in a hundred that has failed, says of itself."""
    if i % 100 == 99:
        failure = {"error_class": "RuntimeError", "error_message": "x" * 200}
        return {**row, "status": "failed", **failure}
    names = ("train_loss", "wall_time_s", "images_per_s", "uniformity", "q_b_mean")
    scores = {"knn_top1": 50.0 + i % 49, "knn_top5": 90.0, "linear_top1": 60.0}
    about = {"git_commit": "0" * 40, "device": "cpu", "workers": 1}
    return {**row, "status": "finished", **dict.fromkeys(names, 0.5 + i % 977), **scores, **about}


def epochs_of(num_epochs: int) -> list[Row]:
    return [
        {"epoch": epoch, "train_loss": 5.0 / epoch, "lr": 0.1, "time_s": 1.0}
        for epoch in range(1, num_epochs + 1)
    ]


def make_results(study: Any, folder: ResultsFolder, num_epochs: int, num_parts: int) -> None:
    """All trials of a study as ended: the last `num_parts` not compacted yet."""
    rows = [plan_row(study, trial) for trial in plan_trials(study)]
    folder.create(study.document.dump(), rows)
    ended, epochs = [finished(row, i) for i, row in enumerate(rows)], epochs_of(num_epochs)
    num_compacted = len(ended) - num_parts
    record(folder, ended[:num_compacted], epochs=epochs)
    for row in ended[num_compacted:]:
        folder.add_trial(row, epochs=epochs)


def first_row_s() -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "study.yaml").write_text(yaml.safe_dump(SHORT))
        command = [sys.executable, *CLSWEEP, "run", "study.yaml", "--out", "out"]
        start = time.perf_counter()
        run = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
        while run.poll() is None and not any((folder / "out" / "parts").glob("trials/*")):
            time.sleep(0.02)
        waited_s = time.perf_counter() - start
        assert run.wait() == 0
        return waited_s


def main() -> None:
    given = options(__doc__, trials=10_000, epochs=10, parts=400, repeats=3)
    words: dict[str, tuple[object, ...]] = {
        "python -c pass": ("-c", "pass"),
        "import torch": ("-c", "import torch"),
        "import ray.tune": ("-c", "import ray.tune"),
        "clsweep catalog": (*CLSWEEP, "catalog"),
        "clsweep plan quickstart": (*CLSWEEP, "plan", QUICKSTART),
    }
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for method in ("grid", "qmc"):
            path = root / f"{method}.yaml"
            study = large_study(path, method, given.trials)
            words[f"clsweep plan, {method}"] = (*CLSWEEP, "plan", path)
            words[f"clsweep plan --trials, {method}"] = (*CLSWEEP, "plan", path, "--trials")
        for label, parts in {"compacted": 0, f"{given.parts} parts": given.parts}.items():
            make_results(study, ResultsFolder(str(root / label)), given.epochs, parts)
            for command in (["status"], ["trials"], ["trials", "--format", "csv"]):
                what = f"clsweep {' '.join(command)}, {label}"
                words[what] = (*CLSWEEP, command[0], root / label, *command[1:])
        sides = {what: lambda line=line: python_seconds(*line) for what, line in words.items()}
        sides["clsweep run, to the first row"] = first_row_s
        times = in_turn(sides, given.repeats)
    title = f"\nAbout {given.trials:,} trials of {given.epochs} epochs on {machine()}"
    print_table(spreads("command", times), title=f"{title}, {given.repeats} runs each")


if __name__ == "__main__":
    main()
