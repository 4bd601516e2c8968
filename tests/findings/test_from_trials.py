"""Tables of trials that come from anywhere: what is read as what, and that it is said."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import clsweep
from clsweep.errors import RequestError
from tests.planted import planted


def sampled(**columns):
    """64 configurations of dropout, drawn evenly, and of what `columns` make of a generator."""
    rng = np.random.default_rng(5)
    made = {name: make(rng, 64) for name, make in columns.items()}
    frame = planted(lambda _: 0.0, ranges={"dropout": (0, 1)}, num_configs=64, noise=0.3)
    return frame.assign(**{name: np.repeat(values, 3) for name, values in made.items()})


# Axes


def test_an_even_sample_is_read_on_a_linear_axis_and_said_so():
    frame = sampled(
        lr=lambda rng, num: 10 ** rng.uniform(-4, -1, num),
        kind=lambda rng, num: rng.choice(["a", "b"], num),
    )
    frame["knn_top1"] += 70 + 10 * frame["dropout"] + 4 * (frame["kind"] == "a")
    found = clsweep.analyse(frame)
    assert found.material.sweeps[0].scales == {"dropout": "linear", "lr": "log", "kind": "category"}
    assert found.material.notes == ("read on a log axis: lr; linear: dropout",)
    effects = found.sensitivity().set_index("term")
    share = 4.0 / (100 / 12 + 4.0)  # variances of the category and of the uniform
    assert effects.loc["kind", "first"] == pytest.approx(share, abs=0.08)


def test_the_axis_can_be_told(tmp_path, cli_command):
    frame = sampled()
    frame["knn_top1"] += 70
    asked = clsweep.analyse(frame, scales={"dropout": "log"})
    assert asked.material.sweeps[0].scales == {"dropout": "log"}
    assert asked.material.notes == ()
    for scales, why in {
        ("dropout", "logg"): "dropout: expected 'log' or .* given 'logg'. Did you mean 'log'",
        ("dropuot", "log"): "given 'dropuot'. Did you mean 'dropout'",
    }.items():
        with pytest.raises(RequestError, match=why):
            clsweep.analyse(frame, scales=dict([scales]))
    with pytest.raises(RequestError, match="expected positive numbers for 'log', given -"):
        clsweep.analyse(frame.assign(dropout=-frame["dropout"]), scales={"dropout": "log"})
    text = frame.assign(dropout=frame["dropout"].map(str))
    with pytest.raises(RequestError, match="expected 'category' for texts"):
        clsweep.analyse(text, scales={"dropout": "log"})
    file = str(tmp_path / "trials.parquet")
    frame.to_parquet(file)
    for command in ("robustness", "sensitivity", "compare", "report"):
        code, _, err = cli_command(command, file, "--scale", "dropout")
        assert (code, err.strip()) == (
            2, "--scale: expected COL=AXIS, as tau=log, given 'dropout'",
        )  # fmt: skip
    code, out, _ = cli_command("robustness", file, "--scale", "dropout=category")
    assert code == 0
    assert "read on" not in out
    code, out, _ = cli_command("robustness", file)
    assert "read on a linear axis: dropout" in out


# Columns that mean something to clsweep

GRID = {"tau": [0.1, 0.2, 0.4], "swept": [1, 2]}
NAMES = [
    "loss", "views", "framework", "regularizer", "dataset", "image_size", "num_train",
    "num_classes", "images_digest", "val_fraction", "workers", "cpus_per_worker",
]  # fmt: skip


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_a_swept_column_is_used_whatever_its_name(name, seeds):
    frame = planted(lambda s: 70 + 9 * s["swept"], grid=GRID, num_seeds=seeds)
    frame[name] = frame.pop("swept")
    assert set(clsweep.analyse(frame).material.params) == {"tau", name}


@pytest.mark.parametrize("name", ["lr_peak", "device", "train_loss", "study", "torch_version"])
def test_an_outcome_that_looks_swept_is_named(name):
    frame = planted(lambda s: 70 + 9 * s["swept"], grid=GRID)
    frame[name] = frame.pop("swept")
    found = clsweep.analyse(frame)
    assert found.material.params == ("tau",)
    assert f"read as hyperparameters: tau; not: {name}" in found.material.notes
    assert set(clsweep.analyse(frame, params=["tau", name]).marginals()["param"]) == {"tau", name}


def test_what_makes_an_objective_is_no_hyperparameter_of_it():
    one = planted(lambda _: 70, grid={"tau": [0.1, 0.2]})
    other = planted(lambda _: 70, grid={"tau": [0.1, 0.2]}, objective="simclr").assign(loss="dcl")
    found = clsweep.analyse(pd.concat([one, other], ignore_index=True))
    assert found.material.params == ("tau",)
    assert found.material.notes == ()
