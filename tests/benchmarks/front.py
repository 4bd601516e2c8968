"""What a search that weighs the cost finds of the front of accuracy and cost, on planted surfaces.
No Ray.

Accuracy rises with the width and the epochs, and has its best tau anywhere; seconds rise with both.
Each trial has noise of its own. Compared are `qmc`, `tpe` by accuracy alone, and `tpe` with
`search.cost: seconds`, after as many configurations. A user with a budget of seconds takes the best
score seen among those that cost no more. Regret is how far that one truly lies below what the
budget allows, in points: the mean over budgets from the cheapest to the dearest configuration.

    python tests/benchmarks/front.py [--repeats 20]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from _machine import interval, machine
from numpy.typing import NDArray

from clsweep.catalog.rows import Row
from clsweep.cluster.search import PlanSearch
from clsweep.display.printing import print_table
from clsweep.results.journal import open_storage
from clsweep.study.design import plan_trials
from clsweep.study.resolve import load_study

Array = NDArray[np.float64]
SIZES = (20, 40, 80)  # configurations tried
NUM_BUDGETS, NOISE, NOISE_OF_TIME = 20, 0.5, 0.1  # points; share of the seconds
SPACE = {
    "tau": {"low": 0.05, "high": 1.0, "log": True},
    "width": {"low": 4, "high": 64, "log": True},
    "epochs": {"low": 1, "high": 100, "log": True},
}
SEARCHES = {
    "qmc": {"method": "qmc"},
    "tpe": {"method": "tpe"},
    "tpe, cost: seconds": {"method": "tpe", "cost": "seconds"},
}


@dataclass(frozen=True)
class Surface:
    """tau_best, and what is gained by width and epochs."""

    tau_best: float
    gain: float
    steep: float
    rate: float

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Surface:
        return cls(*rng.uniform([0.08, 1.0, 5.0, 5.0], [0.6, 4.0, 25.0, 30.0]))

    def level(self, tau: Array, width: Array, epochs: Array) -> Array:
        trained = 30.0 * (1.0 - np.exp(-epochs / self.rate))
        off = self.steep * np.log10(tau / self.tau_best) ** 2
        return np.asarray(40.0 + trained + self.gain * np.log2(width / 4.0) - off)

    def seconds(self, width: Array, epochs: Array) -> Array:
        return np.asarray(epochs * (1.0 + (width / 16.0) ** 2))

    def reachable(self, budgets: Array) -> Array:
        """The best level for each budget."""
        width, epochs = np.meshgrid(np.arange(4, 65), np.arange(1, 101))
        level = self.level(np.full(width.shape, self.tau_best), width, epochs)
        cost = self.seconds(width, epochs)
        return np.array([level[cost <= budget].max() for budget in budgets])


def run(surface: Surface, search: Row, folder: Path, seed: int) -> list[Row]:
    """The configurations of a search, one after the other, each with `score`, `seconds` and
    `level`.
    """
    tree = {
        "name": "front",
        "dataset": {"name": "digits"},
        "seeds": [0],
        "base": {"encoder": "conv4"},
        "objectives": {"simclr": {"framework": "simclr", "loss": "infonce"}},
        "space": SPACE,
        "search": {**search, "trials_per_objective": max(SIZES), "seed": seed},
    }
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(tree))
    study = load_study(path)
    plan = PlanSearch(study, plan_trials(study), [], open_storage(str(folder / "journal")))
    rng, rows = np.random.default_rng(seed), []
    while row := plan.next_row():
        level = float(surface.level(row["tau"], row["width"], row["epochs"]))
        seconds = float(surface.seconds(row["width"], row["epochs"]))
        score = level + rng.normal(0.0, NOISE)
        seconds *= float(np.exp(rng.normal(0.0, NOISE_OF_TIME)))
        plan.tell(row, {"status": "finished", "knn_top1": score, "wall_time_s": seconds})
        rows.append({"score": score, "seconds": seconds, "level": level})
    return rows


def regret(surface: Surface, rows: list[Row]) -> float:
    """Mean over the budgets; nothing that costs so little counts as the worst that was seen."""
    budgets = np.geomspace(2.0, float(surface.seconds(np.array(64), np.array(100))), NUM_BUDGETS)
    score, seconds, level = (np.array([r[k] for r in rows]) for k in ("score", "seconds", "level"))
    found = []
    for budget in budgets:
        affordable = np.flatnonzero(seconds <= budget)
        taken = affordable[score[affordable].argmax()] if affordable.size else level.argmin()
        found.append(level[taken])
    return float((surface.reachable(budgets) - np.array(found)).mean())


def measured(repeats: int, say: Callable[[str], None]) -> list[Row]:
    regrets: dict[str, list[list[float]]] = {name: [] for name in SEARCHES}
    for repeat in range(repeats):
        say(f"{repeat + 1} of {repeats}")
        surface = Surface.drawn(np.random.default_rng(repeat))
        for name, search in SEARCHES.items():
            with tempfile.TemporaryDirectory() as folder:
                rows = run(surface, search, Path(folder), repeat)
            regrets[name].append([regret(surface, rows[:size]) for size in SIZES])
    known = {name: np.array(values) for name, values in regrets.items()}
    weighed = known["tpe, cost: seconds"]
    return [
        {
            "configurations": size,
            "search": name,
            "regret": interval(known[name][:, at], 2),
            "more regret": "" if values is weighed else interval((values - weighed)[:, at], 2),
        }
        for at, size in enumerate(SIZES)
        for name, values in known.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=20)
    asked = parser.parse_args()
    os.fsync = lambda _: None  # no test of disks
    print(machine())
    rows = measured(asked.repeats, lambda word: print(word, flush=True))
    print_table(rows, title=f"Regret along the front, points; {asked.repeats} surfaces, 95 %")


if __name__ == "__main__":
    main()
