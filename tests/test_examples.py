"""The scripts of `examples/` run as they stand, and print what their results say."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
import torch.nn.functional as F

import clsweep
from clsweep.objective.losses import dcl, infonce

EXAMPLES = Path(__file__).parents[1] / "examples"


def printed_by(script, folder):
    """The standard output of an example that has ended well."""
    path = os.pathsep.join([str(EXAMPLES.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, EXAMPLES / script], capture_output=True, text=True, timeout=600,
        cwd=folder, env=os.environ | {"PYTHONPATH": path, "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_study_runs_from_its_question_to_its_report(tmp_path):
    output = printed_by("study.py", tmp_path)
    trials = clsweep.open_results(tmp_path / "results" / "example").trials
    assert (trials["status"] == "finished").all()
    assert trials.groupby(["objective", "tau"])["seed"].nunique().to_dict() == {
        (objective, tau): 3 for objective in ("simclr", "dcl", "half") for tau in (0.1, 0.5)
    }
    for words in ("half", "simclr"), ("raw_pixels",), ("resolved",):
        assert any(set(words) <= {*line.split()} for line in output.splitlines())
    for score in trials.loc[trials["objective"] == "half", "linear_top1"]:
        assert f"{score:.6f}" in output
    assert (tmp_path / "reports" / "example" / "index.html").is_file()
    assert output.splitlines()[-1].endswith("index.html")


def test_a_table_and_a_figure_are_made_of_results_that_lie_here(tmp_path):
    """Means as numpy has them; the intervals are those that the terminal shows."""
    printed_by("reading.py", tmp_path)
    trials = pd.read_parquet(EXAMPLES.parent / "docs/results/tau-digits/trials.parquet")
    names = ["dcl", "dclw", "simclr"]
    head, blank, *rows = (
        line.removesuffix(r" \\").split(" & ")
        for line in (tmp_path / "levels.tex").read_text().splitlines()
        if line.endswith(r" \\")
    )
    assert (head, blank[0]) == (["objective", *names], "label")
    assert [row[0] for row in rows] == ["0.05", "0.2", "1"]
    for row in rows:
        at = trials[trials["tau"] == float(row[0])].groupby("objective")["linear_top1"]
        scores = [at.get_group(name).to_numpy() for name in names]
        assert [cell.split()[0] for cell in row[1:]] == [f"{each.mean():.1f}" for each in scores]
    levels = clsweep.open_results(EXAMPLES.parent / "docs/results/tau-digits").marginals()
    first = levels.query("param == 'tau' and objective == 'dcl'").iloc[0]
    assert rows[0][1].endswith(f"[{first['low']:.1f}, {first['high']:.1f}]")
    svg = (tmp_path / "levels.svg").read_text(encoding="utf-8")
    assert all(f">{text}</text>" in svg for text in (*names, "0.05", "tau", "linear_top1"))


def test_the_own_loss_lies_between_the_two_it_is_made_of():
    loss = runpy.run_path(str(EXAMPLES / "own_loss.py"))["half_decoupled"]
    generator = torch.Generator().manual_seed(0)
    z1_ND, z2_ND = (F.normalize(torch.randn(8, 4, generator=generator)) for _ in range(2))
    ends = [loss_of(z1_ND, z2_ND, tau=0.2) for loss_of in (infonce, dcl)]
    between = [loss(z1_ND, z2_ND, tau=0.2, decoupling=w) for w in (0.0, 1.0, 0.25)]
    torch.testing.assert_close(between[:2], ends)
    torch.testing.assert_close(between[2], 0.75 * ends[0] + 0.25 * ends[1])


@pytest.mark.slow
@pytest.mark.usefixtures("no_ray")
def test_loops_of_torch_and_of_lightly_are_a_study(tmp_path):
    fewer = ["seeds=[0]", "base.epochs=1", "space.tau={grid: [0.5]}"]
    study = clsweep.load_study(EXAMPLES / "loops.yaml", settings=fewer)
    trials = clsweep.run(study, out=tmp_path / "out").trials.set_index("objective")
    assert (trials["status"] == "finished").all()
    assert (trials["knn_top1"] > 20).all()
    assert trials.loc["torch", "linear_top1"] > 40


def test_lightly_needs_at_most_thirty_lines_of_glue():
    lines = (EXAMPLES / "lightly_loop.py").read_text().splitlines()
    glue = [line for line in lines if line.endswith("# glue")]
    assert 0 < len(glue) <= 30
    assert sum("trial" in line for line in lines if line not in glue) <= 6
