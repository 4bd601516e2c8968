"""The record script: what it counts, what it scores on, and when it calls a target reached."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parents[2] / "studies" / "records" / "record.py"
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def record():
    spec = importlib.util.spec_from_file_location("record", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_logs_each_seed_and_what_they_say_together(record, tmp_path):
    log = tmp_path / "log.jsonl"
    words = ["--set", "epochs=1", "width=4", "--target", "5", "--log", str(log), "--device", "cpu"]
    record.main(["digits", "--seeds", "0", "1", *words, "--precision", "fp32"])
    head, *seeds, together = map(json.loads, log.read_text().splitlines())
    assert (head["config"]["val_fraction"], head["config"]["epochs"]) == (None, 1)
    assert [row["seed"] for row in seeds] == [0, 1]
    assert all(0 < row["train_s"] < row["whole_s"] for row in seeds)
    scores = [row["knn_top1"] for row in seeds]
    assert together["knn_top1_mean"] == pytest.approx(np.mean(scores))
    assert together["knn_top1_sd"] == pytest.approx(np.std(scores, ddof=1))
    assert scores[0] != scores[1]
    assert together["verdict"] == record.verdict(scores, 5)


def test_a_target_at_the_true_mean_is_rarely_called_reached(record):
    """At the level that it names, either way; one that lies far below or above is told."""
    rng = np.random.default_rng(0)
    verdicts = [record.verdict(list(rng.normal(88, 0.3, 5)), 88) for _ in range(2000)]
    for word in ("reached", "missed"):
        assert 0.035 < verdicts.count(word) / len(verdicts) < 0.065  # 0.05, three standard errors
    assert record.verdict([88.1, 88.3, 88.2], 80) == "reached"
    assert record.verdict([88.1, 88.3, 88.2], 90) == "missed"
    assert record.verdict([99.0], 80).startswith("not resolved")


@pytest.mark.parametrize("dataset", ["fashion_mnist", "cifar10"])
def test_each_recipe_is_a_trial(record, dataset):
    config = record.config_of(dataset, 3, "bf16", {"epochs": 7})
    assert (config["seed"], config["eval_every"], config["precision"]) == (3, 7, "bf16")
