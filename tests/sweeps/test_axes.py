"""The axes of an analysis: those that a study declares, and of a table from elsewhere those that no
other settles.
"""

import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import clsweep
from clsweep.errors import RequestError
from clsweep.study.document import preset_names
from clsweep.study.resolve import load_study
from tests.planted import planted
from tests.planted import recorded as written

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))
PRESETS = [(path, preset) for path in STUDIES for preset in (None, *preset_names(path))]

BASE = """
name: planted
dataset: {name: cifar10}
seeds: [0, 1]
base: {encoder: conv4, epochs: 2, batch_size: 64}
"""
GRID = "search: {method: grid}\nresources: {workers: 1}\n"
TWO = """
objectives:
  simclr: {framework: simclr, loss: infonce}
  dcl: {framework: simclr, loss: dcl}
"""


def score(row):
    """Known effects of what these studies sweep, on the scale of the metric."""
    level = 70.0 + 3 * math.log2(row.get("batch_size") or 64) - 2 * (row.get("num_views") or 2)
    return level - 5 * math.log10((row.get("tau") or 0.1) / 0.1) ** 2


def recorded(study, path):
    """The folder of a whole study of which no trial was trained; a live search chooses by number of
    the configuration.
    """
    spaces = {objective.name: objective.space for objective in study.objectives}
    rng = np.random.default_rng(0)

    def outcome(row):
        chosen = {}
        for name, dimension in spaces[row["objective"]].items():
            if row.get(name) is None:
                points = dimension.points or (dimension.low, dimension.high)
                chosen[name] = points[row["config"] % len(points)]
        level = score(row | chosen) + 0.1 * rng.standard_normal()
        return chosen | {study.sections.metric.name: level}

    return written(path, study, outcome)


def study_of(tmp_path, text):
    path = tmp_path / "study.yaml"
    path.write_text(BASE + text)
    return load_study(path)


def found_in(results):
    return {sweep.objective: set(sweep.params) for sweep in results.data.sweeps}


def declared_in(study):
    """As the planner has it: the swept space of each objective, less what has one value."""
    spaces = {objective.name: objective.space.items() for objective in study.objectives}
    return {
        objective: {name for name, at in space if at.is_range or len(at.points) > 1}
        for objective, space in spaces.items()
    }


# Studies


@pytest.mark.parametrize(
    ("path", "preset"), PRESETS, ids=[f"{path.stem}-{preset}" for path, preset in PRESETS]
)
def test_the_axes_of_a_shipped_study_are_those_that_it_declares(path, preset, tmp_path):
    study = load_study(path, preset=preset)
    results = clsweep.open_results(recorded(study, tmp_path / "out"))
    assert found_in(results) == declared_in(study)
    assert all(sweep.is_grid for sweep in results.data.sweeps)


def test_a_full_grid_over_the_batch_size_has_exact_anova(tmp_path):
    space = "space: {batch_size: {choices: [32, 64, 128, 256]}, tau: {grid: [0.1, 0.5]}}\n"
    results = clsweep.open_results(recorded(study_of(tmp_path, space + TWO + GRID), tmp_path / "o"))
    table = results.sensitivity("dcl").set_index("term")
    assert set(table["method"]) == {"anova"}
    assert set(table.index) >= {"batch_size", "tau"}
    assert not any("chunk_size" in str(term) for term in table.index)
    steps = 3 * np.log2([32, 64, 128, 256])
    effect = 5 * np.log10([1, 5]) ** 2
    truth = steps.var() / (steps.var() + effect.var())
    assert table.loc["batch_size", "first"] == pytest.approx(truth, abs=0.03)
    assert set(results.marginals()["param"]) == {"batch_size", "tau"}
    assert set(results.recommend()["at"]) == {"tau=0.1, batch_size=256"}
    assert results.tuning_cost()["default_at"].str.contains("chunk_size").sum() == 0


def test_every_derived_value_stays_out(tmp_path):
    space = """
space: {width: {choices: [16, 32]}, crop_scale: {low: 0.2, high: 0.9}}
objectives:
  ecpp: {framework: simclr, loss: dcl, views: ecpp, space: {num_views: {choices: [2, 4]}}}
  fixed: {framework: simclr, loss: dcl, base: {width: 24}}
  eqco: {framework: simo, loss: eqco, space: {batch_size: {choices: [32, 64]}}}
  deep: {framework: simclr, loss: dcl, space: {proj_hidden: {choices: [64, 128]}}}
  untrained: {framework: simclr, loss: infonce, base: {epochs: 0}}
"""
    search = "search: {method: qmc, trials_per_objective: 8}\n"
    study = study_of(tmp_path, space + search)
    results = clsweep.open_results(recorded(study, tmp_path / "out"))
    axes = {
        "ecpp": {"width", "crop_scale", "num_views"},
        "fixed": {"crop_scale"},
        "eqco": {"width", "crop_scale", "batch_size"},
        "deep": {"width", "crop_scale", "proj_hidden"},
        "untrained": {"width"},
    }
    assert found_in(results) == declared_in(study) == axes
    columns = results.trials.groupby("objective")[["proj_hidden", "num_negatives", "chunk_size"]]
    assert columns.nunique().loc["eqco"].min() > 1  # they do vary


@pytest.mark.parametrize("method", ["qmc", "random", "tpe"])
def test_sampled_and_live_searches(method, tmp_path):
    space = "space: {batch_size: {choices: [32, 64, 128]}, tau: {low: 0.05, high: 1, log: true}}\n"
    search = f"search: {{method: {method}, trials_per_objective: 12}}\n"
    study = study_of(tmp_path, space + TWO + search)
    results = clsweep.open_results(recorded(study, tmp_path / "out"))
    assert found_in(results) == {name: {"batch_size", "tau"} for name in ("simclr", "dcl")}
    [sweep, _] = results.data.sweeps
    assert sweep.scales == {"tau": "log", "batch_size": "log"}
    assert sweep.bounds == {"tau": (0.05, 1.0)}
    assert (sweep.possible["tau"], sweep.possible["momentum_end"]) == ((0.0, math.inf), (0.0, 1.0))


def test_several_studies_and_one_with_further_objectives(tmp_path):
    batch = "space: {batch_size: {choices: [32, 64, 128]}}\n"
    further = TWO + "  dclw: {framework: simclr, loss: dclw, space: {sigma: {grid: [0.3, 1]}}}\n"
    tau = "space: {tau: {grid: [0.1, 0.5]}}\n"
    first = recorded(study_of(tmp_path, batch + TWO + GRID), tmp_path / "a")
    recorded(study_of(tmp_path, batch + further + GRID), tmp_path / "a")  # the third joins
    second = recorded(study_of(tmp_path, tau + TWO + GRID), tmp_path / "b")
    together = clsweep.open_results(first, second)
    axes = {"a/simclr": "batch_size", "a/dcl": "batch_size", "b/simclr": "tau", "b/dcl": "tau"}
    expected = {name: {axis} for name, axis in axes.items()}
    assert found_in(together) == expected | {"a/dclw": {"batch_size", "sigma"}}
    assert together.data.params == ("tau", "sigma", "batch_size")  # as the catalog has them


def test_a_folder_opens_where_its_study_cannot_be_resolved(tmp_path):
    study = study_of(tmp_path, "space: {batch_size: {choices: [32, 64]}}\n" + TWO + GRID)
    tree = study.document.tree
    tree["dataset"] = {"name": "imagefolder", "root": "nowhere"}
    tree["space"] = {"batch_size": {"choices": [32, 64]}, "gone": {"choices": [1, 2]}}
    out = recorded(study, tmp_path / "out")
    found = found_in(clsweep.open_results(out))
    assert found == {"simclr": {"batch_size"}, "dcl": {"batch_size"}}


# Tables from elsewhere


def told(found):
    """The notes but for the one on the axes."""
    return [note for note in found.data.notes if not note.startswith("read on a")]


def grid(**more):
    """A full grid of tau and batch_size, with further columns made of them."""
    values = {"tau": [0.1, 0.2, 0.5], "batch_size": [32, 64, 128, 256]}
    frame = planted(lambda s: 80 - 5 * s["tau"] + s["batch_size"] / 64, grid=values)
    return frame.assign(**{name: make(frame) for name, make in more.items()})


def test_an_alias_is_named_and_left_out_whichever_stands_first():
    found = clsweep.analyse(grid(chunk_size=lambda f: f["batch_size"]))
    note = (
        "chunk_size has one value for each of batch_size: chunk_size is left out; params keeps the "
        "axes that it names"
    )
    assert told(found) == [note]
    assert found.data.params == ("tau", "batch_size")
    assert set(found.sensitivity()["method"]) == {"anova"}
    turned = grid(chunk_size=lambda f: f["batch_size"])
    turned.insert(0, "chunk_size", turned.pop("chunk_size"))
    assert told(clsweep.analyse(turned)) == [note]  # as clsweep derives it
    unknown = grid(workers_batch=lambda f: f["batch_size"] // 2)
    unknown.insert(0, "workers_batch", unknown.pop("workers_batch"))
    assert clsweep.analyse(unknown).data.params == ("workers_batch", "tau")  # the first


def test_axes_that_are_named_are_kept_and_their_alias_is_told():
    table = grid(chunk_size=lambda f: f["batch_size"])
    found = clsweep.analyse(table, params=["tau", "batch_size", "chunk_size"])
    assert found.data.sweeps[0].params == ("tau", "batch_size", "chunk_size")
    assert told(found) == [
        "chunk_size has one value for each of batch_size: their effects cannot be told apart"
    ]
    assert told(clsweep.analyse(table, params=["tau", "chunk_size"])) == []


BOTH = "tau, batch_size"
FOLLOWING = {
    "steps of one": (lambda f: f["batch_size"] // 64, "batch_size"),
    "a word": (lambda f: f["batch_size"].map(hex), "batch_size"),
    "a product": (lambda f: f["tau"] * f["batch_size"], BOTH),
    "a label": (lambda f: f["tau"].astype(str) + f["batch_size"].astype(str), BOTH),
}


@pytest.mark.parametrize("num", [2, 3])
def test_of_a_grid_whose_two_axes_move_as_one_the_first_is_left(num):
    """Two axes would have been crossed; few settings of a sample rise together by chance."""
    frame = planted(lambda s: s["tau"], grid={"tau": [0.5, 0.1, 0.2][:num]})
    frame = frame.assign(width=frame["tau"].map({0.1: 64, 0.2: 16, 0.5: 32}))
    assert clsweep.analyse(frame).data.params == ("tau",)
    assert clsweep.analyse(frame.assign(sampler="random")).data.params == ("tau", "width")


@pytest.mark.parametrize(("make", "leaders"), FOLLOWING.values(), ids=FOLLOWING)
def test_what_follows_from_others_is_left_out(make, leaders):
    found = clsweep.analyse(grid(other=make))
    assert found.data.params == ("tau", "batch_size")
    assert found.data.notes[0].startswith(f"other has one value for each of {leaders}: ")


def test_an_axis_may_follow_in_one_objective_and_not_in_another():
    tied = grid(rate=lambda f: f["batch_size"] / 256)
    axes = {"tau": [0.1, 0.2], "batch_size": [32, 64], "rate": [0.1, 0.2]}
    free = planted(lambda _: 80.0, objective="simclr", grid=axes)
    found = clsweep.analyse(pd.concat([tied, free], ignore_index=True))
    both = {"tau", "batch_size"}
    assert found_in(found) == {"dcl": both, "simclr": {*both, "rate"}}
    assert found.data.params == ("tau", "batch_size", "rate")
    assert found.data.notes[0].startswith("dcl: rate has one value for each of batch_size")


def test_a_sample_of_a_continuous_space_keeps_its_axes():
    ranges = {"tau": (0.05, 1.0), "lr": (0.01, 1.0), "crop": (0.1, 1.0)}
    for number in (0, 5, 59):
        frame = planted(lambda s: 80 - s["tau"], ranges=ranges, num_configs=5 + number, seed=number)
        found = clsweep.analyse(frame)
        assert found.data.params == ("tau", "lr", "crop")
        assert told(found) == []
    copied = frame.assign(small=frame["crop"], scale=1 / frame["lr"])
    found = clsweep.analyse(copied)
    assert found.data.params == ("tau", "lr", "crop")
    assert [note.split(":")[0] for note in told(found)] == [
        "small has one value for each of crop",
        "scale has one value for each of lr",
    ]


def test_designs_that_are_no_full_grid_keep_their_axes():
    values = list(itertools.product(range(4), range(4)))
    latin = [{"a": a, "b": b, "c": (a + b) % 4} for a, b in values]
    halved = [
        {"a": a, "b": b, "c": c, "d": a ^ b ^ c} for a, b, c in itertools.product((0, 1), repeat=3)
    ]
    sobol = [{"a": a, "b": b, "tau": 0.1 + i / 16} for i, (a, b) in enumerate(values)]
    for settings, sampler in ((latin, "grid"), (halved, "grid"), (sobol, "qmc")):
        rows = [
            {"objective": "dcl", "config": config, "seed": seed, "status": "finished", **setting}
            for config, setting in enumerate(settings)
            for seed in (0, 1)
        ]
        frame = pd.DataFrame(rows).assign(sampler=sampler, knn_top1=80.0)
        found = clsweep.analyse(frame)
        assert found.data.params == tuple(settings[0])
        assert told(found) == []


# One kind of results


def test_every_source_gives_the_same_kind_of_results(tmp_path):
    study = study_of(tmp_path, "space: {tau: {grid: [0.1, 0.5]}}\n" + TWO + GRID)
    a, b = recorded(study, tmp_path / "a"), recorded(study, tmp_path / "b")
    one, several = clsweep.open_results(a), clsweep.open_results(a, b)
    other = clsweep.open_results(a, metric="train_loss", mode="min")
    file, table = clsweep.open_results(f"{a}/trials.parquet"), clsweep.analyse(one.trials)
    for results in (one, several, other, file, table):
        assert type(results) is clsweep.Results
        assert len(results.health()) == len(results.trials["objective"].unique())
        assert repr(results).startswith("Results(")
    assert one.studies == (one,)
    assert [study.path for study in several.studies] == [a, b]
    assert several.studies[0].plan.equals(one.plan)
    assert other.study["name"] == "planted"
    assert other.metric == "knn_top1"  # the study's own
    assert file.studies == table.studies == ()
    for results, why in ((several, r"several: ask one of `studies`"), (table, "a table of trials")):
        for compute in ("plan", "epochs", "study", "path", "metric"):
            with pytest.raises(RequestError, match=f"expected one results folder.* given {why}"):
                getattr(results, compute)
        with pytest.raises(RequestError, match="expected one results folder"):
            results.confirm()


def test_a_table_is_computed_once_and_its_reader_may_change_it(monkeypatch):
    from clsweep.analysis import robustness

    calls = []
    original = robustness.robustness
    monkeypatch.setattr(
        robustness, "robustness", lambda *a, **k: calls.append(k) or original(*a, **k)
    )
    found = clsweep.analyse(grid())
    first = found.robustness()
    first["mean"] = 0.0
    assert found.robustness()["mean"].iloc[0] > 70
    assert len(calls) == 1
    found.robustness(by="tau")
    assert len(calls) == 2
