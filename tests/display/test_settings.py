"""A hyperparameter's value has one text: in the plan, the trials, the status, tables, sentences and
figures.
"""

import itertools
import json

import numpy as np
import pytest

from clsweep.api import open_results
from clsweep.questions.charts import param_axis
from clsweep.study.resolve import load_study
from tests.planted import recorded

STUDY = """\
name: odd
dataset: {name: digits}
seeds: [0, 1]
base: {encoder: conv4, epochs: 2, batch_size: 32, num_negatives: 65536}
space:
  momentum: {grid: [0.996, 0.999]}
  lr: {grid: [3e-4, 65536.0]}
  sigma: {grid: [1024.0, 1e20]}
objectives:
  dclw: {framework: moco, loss: dclw}
search: {method: grid}
"""
TEXTS = {"sigma": ("1024", "1e20"), "momentum": ("0.996", "0.999"), "lr": ("0.0003", "65536")}
SETTINGS = set(itertools.product(*TEXTS.values()))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study file and the folder of its results, each trial with a score."""
    folder = tmp_path_factory.mktemp("odd")
    (folder / "odd.yaml").write_text(STUDY)
    number = itertools.count()

    def outcome(row):
        best = 10 * all(row[name] == float(texts[-1]) for name, texts in TEXTS.items())
        score = 60 + next(number) + row["seed"] / 8 + best
        return {"knn_top1": score, "train_loss": 1.5, "wall_time_s": 2.0}

    path = folder / "odd.yaml"
    return str(path), recorded(folder / "out", load_study(path), outcome)


def found_in(out, head):
    """Of every line of a printed table, the texts under the names of `TEXTS`."""
    lines = out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(head))
    names = lines[start].split()
    rows = [dict(zip(names, line.split(), strict=False)) for line in lines[start + 1 :]]
    return {tuple(row.get(name, "") for name in TEXTS) for row in rows if "dclw" in row.values()}


BEST = ", ".join(f"{name}={texts[-1]}" for name, texts in TEXTS.items())


def test_the_plan(cli_command, study):
    _, out, _ = cli_command("plan", study[0])
    fixed = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert fixed["num_negatives"] == ["65536"]
    for setting, text in {
        "space.sigma={choices: [1024.0, 1e20]}": "* {1024, 1e20}",
        "space.lr={choices: [3e-4, 65536.0]}": "* {0.0003, 65536}",
    }.items():
        _, out, _ = cli_command("plan", study[0], "--set", setting)
        assert text in out


@pytest.mark.parametrize("words", [("plan", "--trials"), ("trials",)], ids=" ".join)
def test_every_trial(cli_command, study, words):
    path = study[words[0] == "trials"]
    _, out, _ = cli_command(words[0], path, *words[1:])
    assert found_in(out, "trial_id") == SETTINGS


def test_markdown_says_the_same_and_programs_get_numbers(cli_command, study):
    _, out, _ = cli_command("trials", study[1], "--format", "md")
    cells = [[cell.strip() for cell in line.split("|")] for line in out.splitlines()]
    at = [cells[0].index(name) for name in TEXTS]
    assert {tuple(row[i] for i in at) for row in cells[2:]} == SETTINGS
    _, out, _ = cli_command("trials", study[1], "--format", "json")
    assert {row["sigma"] for row in json.loads(out)} == {1024.0, 1e20}


@pytest.mark.parametrize("command", ["status", "robustness"])
def test_the_best_setting(cli_command, study, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    _, out, _ = cli_command(command, study[1])
    assert f" {BEST} " in out.replace("\n", " ")


def test_axes_of_figures(study):
    material = open_results(study[1]).material
    for name, texts in TEXTS.items():
        axis = param_axis(material, name, np.array([float(text) for text in texts]), ticks=True)
        label = axis.to_dict()["axis"]["labelExpr"]
        assert json.loads(label[: label.index("]") + 1]) == list(texts)
