"""A hyperparameter's value has one text: in the plan, the trials, tables and figures."""

import itertools
import json

import numpy as np

from clsweep.api import open_results
from clsweep.statistics.charts import param_axis
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


def outcome(row):
    score = 60 + row["seed"] + 10 * all(row[name] == float(TEXTS[name][-1]) for name in TEXTS)
    return {"knn_top1": score + row["config"] / 8}


def test_a_setting_reads_the_same_everywhere(cli_command, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "odd.yaml"
    path.write_text(STUDY)
    out = recorded(tmp_path / "out", load_study(path), outcome)
    for words in (("plan", str(path), "--trials"), ("trials", out)):
        lines = [line.split() for line in cli_command(*words)[1].splitlines()]
        names = next(line for line in lines if line[:1] == ["trial_id"])
        rows = [dict(zip(names, line, strict=False)) for line in lines if "dclw" in line]
        assert {tuple(row[name] for name in TEXTS) for row in rows} == SETTINGS
    best = ", ".join(f"{name}={texts[-1]}" for name, texts in TEXTS.items())
    assert f" {best} " in cli_command("robustness", out)[1].replace("\n", " ")
    for name, texts in TEXTS.items():
        values = np.array([float(text) for text in texts])
        axis = param_axis(open_results(out).data, name, values, ticks=True)
        label = axis.to_dict()["axis"]["labelExpr"]
        assert json.loads(label[: label.index("]") + 1]) == list(texts)
