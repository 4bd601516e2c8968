"""A search that ends once there is little to gain, on planted surfaces; also where it is cut."""

import math

import numpy as np
import pytest

from clsweep.cluster.search_budget import SearchBudget
from clsweep.study.resolve import load_study
from tests.cluster.test_search import run as session_of
from tests.planted import study_at

SPACE = {
    "tau": {"low": 0.05, "high": 1.0, "log": True},
    "lr": {"low": 0.01, "high": 1.0, "log": True},
    "weight_decay": {"choices": [0.0, 1e-4, 1e-3]},
}
NUM_CONFIGS, SEEDS, SD = 40, [0, 1, 2], 0.5
NOISE = SD / math.sqrt(len(SEEDS))  # of a mean


def study_of(folder, budget, **more):
    search = {"method": "tpe", "trials_per_objective": NUM_CONFIGS, "budget": budget}
    objectives = {"simclr": {"framework": "simclr", "loss": "infonce"}}
    sections = {"space": SPACE, "search": search, "seeds": SEEDS, "objectives": objectives} | more
    return load_study(study_at(folder / "study.yaml", **sections))


class Surface:
    """A hill of 8 to 20 points somewhere, or no hill; seeds shift all scores."""

    def __init__(self, seed):
        self._rng = rng = np.random.default_rng(seed)
        self._top, self._height = rng.uniform(0.15, 0.85, 3), rng.uniform(8, 20) * (seed % 4 > 0)
        self._steep = np.exp(rng.uniform(np.log(0.1), np.log(2.0), 3))
        self._of_seeds = rng.normal(scale=2.0, size=len(SEEDS))
        self.best = 60 + self._height

    def level(self, row):
        place = [
            math.log(row["tau"] / 0.05) / math.log(20),
            math.log(row["lr"] / 0.01) / math.log(100),
            self._top[2] + 0.15 * [1e-4, 0.0, 1e-3].index(row["weight_decay"]),
        ]
        off = np.square(np.array(place) - self._top) @ self._steep
        return 60 + self._height * math.exp(-off / (2 * 0.25**2))

    def outcome(self, row):
        number = [row["config"], row["seed"]]
        noise = np.random.default_rng([*number, int(self._top[0] * 1e9)]).normal(scale=SD)
        score = self.level(row) + noise + self._of_seeds[SEEDS.index(row["seed"])]
        return {"status": "finished", "knn_top1": score, "epochs_trained": 2, "wall_time_s": 1.0}


def run(study, journal, surface, rows=(), until=None):
    """The rows of a session, as in `test_search`, and why it ended."""
    budget = SearchBudget(study, rows, 1)
    rows = session_of(study, journal, rows, surface.outcome, until=until, budget=budget)
    return rows, budget.ends()


def regret(rows, surface):
    """Of the configuration with the best mean."""
    means = {}
    for row in rows:
        means.setdefault(row["config"], []).append(row)
    picked = max(means.values(), key=lambda of: sum(row["knn_top1"] for row in of))
    return surface.best - surface.level(picked[0])


@pytest.mark.slow
def test_it_ends_before_its_plan_and_says_why_and_goes_on_as_it_would_have(tmp_path):
    study, surface = study_of(tmp_path, {"min_gain": "noise"}), Surface(1)
    rows, ends = run(study, tmp_path / "whole", surface)
    assert 15 * len(SEEDS) < len(rows) < NUM_CONFIGS * len(SEEDS)
    assert len(rows) % len(SEEDS) == 0  # each on all its seeds
    assert len(ends) == 1
    assert f"{len(rows) // 3} configurations are enough" in ends[0]
    assert "less than 0." in ends[0]
    for until in (7, len(rows)):
        part, _ = run(study, tmp_path / f"{until}", surface, until=until)
        again, ends_again = run(study, tmp_path / f"{until}", surface, part)
        assert [row["tau"] for row in again] == [row["tau"] for row in rows]
        assert ends_again == ends


@pytest.mark.slow
def test_a_number_of_points_is_taken_at_its_word(tmp_path):
    """As few as a search may have where much is asked for, and all where next to nothing is."""
    surface = Surface(2)
    few, ends = run(study_of(tmp_path, {"min_gain": 1000}), tmp_path / "few", surface)
    assert len(few) == 15 * len(SEEDS)
    assert "less than 1000" in ends[0]
    every, ends = run(study_of(tmp_path, {"min_gain": 1e-9}), tmp_path / "all", surface)
    assert len(every) == NUM_CONFIGS * len(SEEDS)
    assert ends == []


@pytest.mark.slow
def test_a_metric_that_is_to_be_low_ends_alike(tmp_path):
    class Loss(Surface):
        def outcome(self, row):
            ended = super().outcome(row)
            return ended | {"alignment": -ended.pop("knn_top1")}

    metric = {"name": "alignment", "mode": "min"}
    high, _ = run(study_of(tmp_path, {"min_gain": "noise"}), tmp_path / "high", Surface(1))
    low_study = study_of(tmp_path, {"min_gain": "noise"}, metric=metric)
    low, ends = run(low_study, tmp_path / "low", Loss(1))
    assert [row["tau"] for row in low] == [row["tau"] for row in high]
    assert len(ends) == 1


@pytest.mark.soak
def test_a_third_of_the_trials_is_saved_and_nothing_beyond_the_noise_lost(tmp_path):
    saved, lost = [], []
    for seed in range(16):
        surface = Surface(seed)
        study = study_of(tmp_path, {"min_gain": "noise"})
        rows, _ = run(study, tmp_path / f"end{seed}", surface)
        every, _ = run(study_of(tmp_path, None), tmp_path / f"all{seed}", surface)
        assert [row["tau"] for row in rows] == [row["tau"] for row in every[: len(rows)]]
        saved.append(1 - len(rows) / len(every))
        lost.append((regret(rows, surface) - regret(every, surface)) / NOISE)
    print(f"saved {np.mean(saved):.2f}, lost {np.mean(lost):.2f} of the noise, {np.round(lost, 1)}")
    assert np.mean(saved) >= 0.3
    assert np.mean(lost) < 0.5
