"""A null that was chosen is a value of its setting at every door; an absent one is missing."""

from __future__ import annotations

import itertools
import json

import numpy as np
import optuna
import pandas as pd
import pytest

import clsweep
from clsweep.errors import RequestError
from clsweep.sweeps.from_optuna import read_optuna
from clsweep.sweeps.from_ray import read_ray
from clsweep.sweeps.from_wandb import read_wandb
from clsweep.sweeps.import_table import import_sweep
from tests.sweeps.test_from_ray import ray_trial

optuna.logging.set_verbosity(optuna.logging.ERROR)
LEVELS = {None: 0.0, 1.0: 6.0, 5.0: 3.0}  # of clip; of lr below
GRID = [
    {"lr": lr, "clip": clip, "seed": seed}
    for lr, clip, seed in itertools.product((0.01, 0.1, 1.0), LEVELS, (0, 1, 2))
]
NOISE = np.random.default_rng(0).normal(0, 0.3, len(GRID))
SCORES = [
    70 + LEVELS[at["clip"]] + {0.01: 0, 0.1: 5, 1.0: 0}[at["lr"]] + noise
    for at, noise in zip(GRID, NOISE, strict=True)
]


def as_json(path):
    runs = [{"config": at, "summary": {"acc": y}} for at, y in zip(GRID, SCORES, strict=True)]
    path.with_suffix(".json").write_text(json.dumps(runs))
    return read_wandb(path.with_suffix(".json"))


def as_csv(path):
    frame = pd.DataFrame(GRID).assign(acc=SCORES, State="finished")
    frame.to_csv(path.with_suffix(".csv"), index=False)
    return read_wandb(path.with_suffix(".csv"))


def as_folders(path):
    for number, (at, score) in enumerate(zip(GRID, SCORES, strict=True)):
        ray_trial(path, f"t{number}", at, [score])
    return read_ray(path)


def as_study(path):
    score_of = {tuple(at.values()): y for at, y in zip(GRID, SCORES, strict=True)}
    space = {"lr": [0.01, 0.1, 1.0], "clip": [None, 1.0, 5.0], "seed": [0, 1, 2]}
    storage = f"sqlite:///{path.with_suffix('.db')}"
    sampler = optuna.samplers.GridSampler(space)
    study = optuna.create_study(storage=storage, direction="maximize", sampler=sampler)

    def score(trial):
        return score_of[tuple(trial.suggest_categorical(n, space[n]) for n in space)]

    study.optimize(score, n_trials=len(GRID))
    return read_optuna(path.with_suffix(".db"), None)


def as_frame(path):
    """No import: a frame of which pandas makes NaN."""
    del path
    frame = pd.DataFrame(GRID).assign(acc=SCORES, objective="x", status="finished", sampler="grid")
    return frame.assign(config=np.repeat(np.arange(9), 3))


def analysed(source):
    if not isinstance(source, pd.DataFrame):
        table = import_sweep(source, metric=source.metric or "acc", mode="max")
        assert {row["sampler"] for row in table.rows} == {"grid"}
        source = pd.DataFrame(table.rows).rename(columns={"value": "acc"})
    return clsweep.analyse(source, metric="acc", mode="max", params=["lr", "clip"])


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("door", [as_json, as_csv, as_folders, as_study, as_frame])
def test_a_chosen_null_is_a_value(door, tmp_path):
    results = analysed(door(tmp_path / "sweep"))
    (sweep,) = results.data.sweeps
    assert (sweep.scales, sweep.is_grid) == ({"lr": "log", "clip": "category"}, True)
    # levels by hand, in a table that knows no clsweep
    by_clip = pd.Series(SCORES).groupby([str(at["clip"]) for at in GRID]).mean()
    table = results.marginals().query("param == 'clip'").set_index("label")["mean"]
    for region, clip in (("null", "None"), ("1", "1.0"), ("5", "5.0")):
        assert table[region] == pytest.approx(by_clip[clip])
    # planted variances: 6, of 0, 6 and 3; 50 / 9, of 0, 5 and 0; 0.09 of the noise
    shares = results.sensitivity().set_index("term")["first"]
    whole = 6 + 50 / 9 + 0.09
    assert shares["clip"] == pytest.approx(6 / whole, abs=0.03)
    assert shares["lr"] == pytest.approx(50 / 9 / whole, abs=0.03)
    best = results.recommend().query("kind == 'best'").iloc[0]
    assert best["at"] == "lr=0.1, clip=1"
    assert "edge" not in best["note"]
    spread = results.robustness(by="clip").iloc[0]
    assert spread["sd"] == pytest.approx(by_clip.std())
    assert spread["worst_at"] == "clip=null"


def runs(settings):
    return [{"config": at, "summary": {"acc": 70.0 + n}} for n, at in enumerate(settings)]


def imported(tmp_path, settings, **options):
    (tmp_path / "a.json").write_text(json.dumps(runs(settings)))
    return import_sweep(read_wandb(tmp_path / "a.json"), metric="acc", mode="max", **options)


def test_a_null_that_another_setting_decides_is_missing(tmp_path):
    """Of a schedule that is constant there is no end: null says no more than the schedule."""
    pairs = [("constant", None), ("cosine", 0.1), ("cosine", 0.2)]
    grid = [
        {"schedule": name, "end": end, "lr": lr, "seed": seed}
        for (name, end), lr, seed in itertools.product(pairs, (1, 2), (0, 1))
    ]
    table = imported(tmp_path, grid)
    assert [row["end"] for row in table.rows[:5]] == [None] * 4 + [0.1]
    assert not any("null" in note for note in table.notes)


def test_a_null_and_an_absent_key_are_two_things(tmp_path):
    grid = [{"clip": clip, "lr": lr} for lr in (1, 2) for clip in (None, 1.0, 1.5)]
    table = imported(tmp_path, [*grid, {"lr": 3}])
    assert [row["clip"] for row in table.rows] == ["null", "1", "1.5"] * 2 + [None]
    assert "null is a value of clip: numbers beside it are categories" in table.notes


def test_a_null_that_the_objective_decides_on_is_missing(tmp_path):
    """As all keys of a config are there, also those of other methods."""
    pairs = [("simclr", 0.1), ("simclr", 0.5), ("byol", None)]
    grid = [
        {"method": method, "tau": tau, "lr": lr, "seed": seed}
        for (method, tau), lr, seed in itertools.product(pairs, (1, 2), (0, 1))
    ]
    table = imported(tmp_path, grid, objective="method")
    assert [row["tau"] for row in table.rows] == [0.1] * 4 + [0.5] * 4 + [None] * 4
    assert not any("null" in note for note in table.notes)


def test_null_beside_many_numbers_makes_no_categories(tmp_path):
    drawn = [*np.random.default_rng(0).random(20), None, None]
    table = imported(tmp_path, [{"clip": clip, "lr": 0.1} for clip in drawn])
    assert [row["clip"] for row in table.rows] == drawn
    assert "null beside many numbers is read as missing: clip" in table.notes


CELLS = [(lr, clip, seed) for lr in ("0.01", "0.1") for clip in ("", "1") for seed in "01"]


@pytest.mark.parametrize(
    ("cells", "values", "says"),
    [
        (CELLS, ["null", "null", "1", "1"] * 2, "clip is empty in 4 of 8 trials: the grid"),
        # a setting less, or one with more trials than others: nobody knows what was lost there
        (CELLS[:6], [1, 1], "clip is empty in 4 of 6 trials, which are left out"),
        ([*CELLS, ("0.1", "", "2")], [1] * 4, "clip is empty in 5 of 9 trials, which are left out"),
    ],
)  # fmt: skip
def test_empty_cells_of_a_csv(cells, values, says, tmp_path):
    lines = ["lr,clip,seed,acc", *(f"{','.join(at)},{70 + n}" for n, at in enumerate(cells))]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    sweep = read_wandb(tmp_path / "a.csv")
    table = import_sweep(sweep, metric="acc", mode="max", params=["lr", "clip"])
    assert any(note.startswith(says) for note in table.notes)
    assert [row["clip"] for row in table.rows] == values


@pytest.mark.parametrize("word", ["NA", "N/A", "n/a", "#N/A", "<NA>"])
def test_what_pandas_reads_as_empty_is_empty(word, tmp_path):
    lines = ["method;tau;seed;acc", *(f"simclr;0,1;{n};7{n},5" for n in range(3))]
    lines += [f"byol;{word};{n};{word if n else '60,5'}" for n in range(3)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    sweep = read_wandb(tmp_path / "a.csv")
    table = import_sweep(sweep, metric="acc", mode="max", objective="method", params=["tau"])
    assert [row["tau"] for row in table.rows] == [0.1] * 3 + [None] * 3
    assert [row["acc"] for row in table.rows] == [70.5, 71.5, 72.5, 60.5, None, None]


def test_a_column_that_is_empty_throughout_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("lr,seed,acc\n,0,70\n,1,71\n,0,80\n,1,81\n")
    sweep = read_wandb(tmp_path / "a.csv")
    assert sweep.notes == ["lr is empty in all trials"]
    with pytest.raises(RequestError, match=r"several trials .* \(lr is empty in all trials\)"):
        import_sweep(sweep, metric="acc", mode="max")
    with pytest.raises(RequestError, match="lr: expected numbers, given a column that is empty"):
        import_sweep(sweep, metric="lr", mode="max")


def test_a_trial_whose_objective_is_empty_is_told(tmp_path):
    cells = ("simclr,0.1", "simclr,0.2", ",0.1", ",0.2", ",0.3")
    lines = [f"{cell},{seed},{70 + seed}" for cell in cells for seed in (0, 1)]
    (tmp_path / "a.csv").write_text("\n".join(["objective,lr,seed,acc", *lines]))
    table = import_sweep(read_wandb(tmp_path / "a.csv"), metric="acc", mode="max")
    assert "objective is empty in 6 of 10 trials, which are of 'wandb'" in table.notes


def test_a_table_with_an_empty_column_says_so():
    rows = {"objective": "a", "config": [0, 0, 1, 1], "seed": [0, 1] * 2, "status": "finished"}
    table = pd.DataFrame(rows | {"sampler": "grid", "tau": None, "acc": [1.0, 2.0, 3.0, 4.0]})
    results = clsweep.analyse(table, metric="acc", mode="max", params=["tau"])
    assert "tau is empty in all trials" in results.data.notes
    with pytest.raises(RequestError, match="params: expected a list of columns, given 5"):
        clsweep.analyse(table, metric="acc", mode="max", params=5)
