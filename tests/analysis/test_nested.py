"""A hyperparameter that some configurations lack: planted effects, and what is made of them."""

import itertools

import numpy as np
import pandas as pd
import pytest

from clsweep.analysis.marginals import marginal_levels
from clsweep.analysis.nested import nested_as_factor, parents_of
from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.analysis.recommend import recommend
from clsweep.analysis.region_winners import region_winners
from clsweep.analysis.sensitivity import sensitivity
from clsweep.api import analyse

ENDS = {0.99: -2.0, 0.996: 0.0, 1.0: 2.0}
BRANCHES = [("constant", None), *(("cosine", end) for end in ENDS)]


def sweeps():
    rng = np.random.default_rng(0)
    cells = list(itertools.product((0.1, 0.2, 0.5), BRANCHES, range(4)))
    rows = [
        {"objective": name, "config": i // 4, "seed": seed, "status": "finished", "tau": tau,
         "schedule": schedule, "end": end, "sampler": "grid",
         "acc": 80.0 + lead + 4 * (schedule == "cosine") + ENDS.get(end, 0.0) + 0.1 * rng.normal()}
        for name, lead in (("a", 0.0), ("b", 2.0))
        for i, (tau, (schedule, end), seed) in enumerate(cells)
    ]  # fmt: skip
    return read_sweeps(pd.DataFrame(rows), metric="acc", params=["tau", "schedule", "end"])


def test_a_marginal_is_taken_within_its_branch():
    table = marginal_levels(sweeps()[:1])
    assert parents_of(sweeps()[0]) == {"end": ("schedule",)}
    levels = table.set_index(["param", "label"])["mean"]
    assert levels["end"].tolist() == pytest.approx([82, 84, 86], abs=0.2)
    assert levels["schedule"].to_dict() == pytest.approx({"constant": 80, "cosine": 84}, abs=0.2)
    names = [str(note.reason.name) for note in table.set_index("param").loc["end", "note"].iloc[0]]
    assert names == ["WITHIN_BRANCH"]


def test_what_is_nested_is_one_factor_with_its_parent():
    table = sensitivity(sweeps()[:1]).set_index("term")
    means = np.array([80, 82, 84, 86])  # of the four settings, which all count alike
    share = means.var() / (means.var() + 0.1**2)
    assert table.loc["schedule/end", "first"] == pytest.approx(share, abs=0.01)
    assert table.loc["tau", "first"] < 0.01
    assert [note.reason.name for note in table["note"].iloc[0]][-1] == "NESTED"
    levels = nested_as_factor(sweeps()[0])[0].settings["schedule/end"]
    assert {*levels} == {"constant/none", "cosine/0.99", "cosine/0.996", "cosine/1"}


def test_winners_and_neighbours_of_a_branch():
    table = region_winners(
        sweeps(), by="schedule"
    )  # the values hold unequal numbers of configurations
    assert table["winner"].tolist() == ["b", "b"]
    assert len(region_winners(sweeps(), by="end")) == 3
    assert (recommend(sweeps())["at"].str.contains("schedule=cosine, end=1")).all()


@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_the_best_of_a_branch_is_one_of_it(sampler):
    """Also where the best of all is none: it has no end."""
    scores = {None: 90.0, 0.99: 80.0, 0.996: 82.0, 1.0: 81.0}
    trials = pd.DataFrame(
        {"objective": "a", "config": i // 2, "seed": seed, "status": "finished", "end": end,
         "acc": scores[end] + seed, "schedule": "cosine" if end else "constant", "sampler": sampler}
        for i, (end, seed) in enumerate(itertools.product((0.99, 0.996, 1.0, None), range(2)))
    )  # fmt: skip
    of = analyse(trials, metric="acc", mode="max", params=["schedule", "end"])
    row = of.robustness(by="end").iloc[0]
    assert (row["best"], row["best_at"]) == (82.5, "end=0.996")


def test_two_that_no_configuration_has_together_have_no_common_optimum():
    """Each is swept in a branch of its own."""
    numbers = [0.1, 0.2, 0.5, 1.0]
    branches = [("constant", None, warm) for warm in numbers]
    branches += [("cosine", end, None) for end in numbers]
    cells = itertools.product((0.1, 0.2, 0.5), branches, range(2))
    trials = pd.DataFrame(
        {"objective": "a", "config": i // 2, "seed": seed, "status": "finished", "sampler": "grid",
         "acc": 80.0 + seed + tau, "tau": tau, "schedule": schedule, "end": end, "warm": warm}
        for i, (tau, (schedule, end, warm), seed) in enumerate(cells)
    )  # fmt: skip
    of = analyse(trials, metric="acc", mode="max", params=["tau", "schedule", "end", "warm"])
    table = of.optimum().set_index(["of", "by"])
    assert table.loc[("end", "warm"), "reason"] == "no_curve"
    assert table.loc[("tau", "end"), "reason"] != "no_curve"
