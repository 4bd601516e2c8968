"""What racing the seeds of a search saves on planted surfaces, where the truth is known. No Ray.

A surface is a smooth hill in two hyperparameters; every seed shifts all scores, and each trial has
noise of its own. Compared are the plain search with all seeds, the race, the plain search of
fewer seeds, and random subsets of the configurations that cost as many trials as the race at 0.95.
Regret is the level of the truly best configuration less that of the one picked; more regret, that
against the search with all seeds on the same surface.

    python tests/benchmarks/racing.py [--repeats 20] [--surfaces 25]
"""

from __future__ import annotations

import argparse

import numpy as np
from _machine import interval, machine
from numpy.typing import NDArray

from clsweep.cluster.search import standing
from clsweep.display.printing import print_table
from clsweep.study.schema import FIRST_SEEDS

Array = NDArray[np.float64]
SIDE, NUM_SEEDS, SHIFT = 7, 5, 0.5  # 49 configurations; SD of a seed's shift in points
CONFIDENCES = (0.9, 0.95, 0.99)
NOISES = (0.3, 1.0, 3.0)  # SD of a trial in points


def surface(rng: np.random.Generator) -> Array:
    """(49,) true levels: a hill of 3 to 12 points with its top anywhere, in percent."""
    x, y = np.meshgrid(np.linspace(0, 1, SIDE), np.linspace(0, 1, SIDE))
    (a, b), steep = rng.uniform(0, 1, 2), rng.uniform(3, 12)
    return np.asarray(80 - steep * ((x - a) ** 2 + (y - b) ** 2).ravel())


def race(scores: Array, confidence: float) -> tuple[int, int]:
    """The configuration that a race picks, and its trials."""
    num, num_seeds = scores.shape
    alive, trials = np.arange(num), FIRST_SEEDS * num
    for seeds in range(FIRST_SEEDS, num_seeds):
        _, gaps, margins = standing(scores[alive, :seeds], confidence=confidence)
        alive = alive[gaps <= margins]
        trials += len(alive)
    return int(alive[scores[alive].mean(axis=1).argmax()]), trials


def subset(scores: Array, trials: int, rng: np.random.Generator) -> tuple[int, int]:
    """The best of as many configurations, with all seeds, as these trials pay for."""
    num = max(1, trials // scores.shape[1])
    tried = rng.choice(len(scores), num, replace=False)
    return int(tried[scores[tried].mean(axis=1).argmax()]), num * scores.shape[1]


def fewer(scores: Array, seeds: int) -> tuple[int, int]:
    return int(scores[:, :seeds].mean(axis=1).argmax()), seeds * len(scores)


def measure(noise: float, repeats: int, surfaces: int) -> list[dict[str, object]]:
    """One row per strategy: means over the repeats, each of so many surfaces."""
    found: dict[str, list[list[tuple[float, ...]]]] = {}
    for repeat in range(repeats):
        rng = np.random.default_rng(repeat)
        for _ in range(surfaces):
            level = surface(rng)
            shift = rng.normal(0, SHIFT, NUM_SEEDS)
            scores = level[:, None] + shift + rng.normal(0, noise, (len(level), NUM_SEEDS))
            raced = {confidence: race(scores, confidence) for confidence in CONFIDENCES}
            picks = {
                f"all {NUM_SEEDS} seeds": fewer(scores, NUM_SEEDS),
                **{f"race, {confidence:.2f}": pick for confidence, pick in raced.items()},
                **{f"{seeds} seeds": fewer(scores, seeds) for seeds in (2, 3)},
                "random subset": subset(scores, raced[0.95][1], rng),
            }
            whole = picks[f"all {NUM_SEEDS} seeds"][0]
            for name, (pick, trials) in picks.items():
                runs = found.setdefault(name, [])
                runs += [[]] if len(runs) == repeat else []
                worse = level[whole] - level[pick]
                runs[repeat].append((trials, level.max() - level[pick], pick == whole, worse))
    rows: list[dict[str, object]] = []
    for name, runs in found.items():
        trials, regret, same, worse = np.mean(runs, axis=1).T  # a mean per repeat
        rows.append(
            {
                "noise SD": noise,
                "search": name,
                "trials": interval(trials, 1),
                "saved %": interval(100 * (1 - trials / (SIDE**2 * NUM_SEEDS)), 1),
                "regret": interval(regret, 3),
                "more regret": interval(worse, 3),
                "same pick %": interval(100 * same, 1, most=100.0),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--surfaces", type=int, default=25)
    asked = parser.parse_args()
    print(machine())
    rows = [row for noise in NOISES for row in measure(noise, asked.repeats, asked.surfaces)]
    title = (
        f"{SIDE**2} configurations x {NUM_SEEDS} seeds; {asked.repeats} repeats of "
        f"{asked.surfaces} surfaces, 95 % intervals"
    )
    print_table(rows, title=title)


if __name__ == "__main__":
    main()
