"""A study with factors: its cells are the studies that a user would have written one by one."""

import itertools
import re
from functools import partial
from pathlib import Path

import pytest

from clsweep.cli.plan import plan_counts, plan_matrix, plan_notes, plan_trial_rows
from clsweep.data.locations import missing_data_message
from clsweep.study.design import placed_baselines, plan_row, plan_trials
from clsweep.study.extend import extension_errors
from clsweep.study.factors import factor_cells, split_name
from tests.study.conftest import refusals

SYNTHETIC = {"name": "synthetic", "image_size": 16, "num_train": 500, "num_classes": 5}
WIDE = {"name": "conv4", "label": "wide", "width": 16}
OPTIONS = {"synthetic": SYNTHETIC, "digits": {"name": "digits"}}
NETWORKS = {"resnet20": {"encoder": "resnet20"}, "wide": {"encoder": "conv4", "width": 16}}
TREE = {
    "factors": {"dataset": ["digits", SYNTHETIC], "encoder": ["resnet20", WIDE]},
    "dataset": {"val_fraction": 0.2},
    "seeds": [3, 4],
    "base": {"epochs": 2, "batch_size": 64, "knn_k": 10},
    "space": {"tau": {"choices": [0.1, 0.2, 0.5]}},
    "objectives": {
        "simclr": {"framework": "simclr", "loss": "infonce"},
        "dclw": {"framework": "simclr", "loss": "dclw", "space": {"sigma": {"choices": [0.3, 1]}}},
    },
    "presets": {"one": {"factors": {"dataset": ["digits"]}}},
}


def rows_of(study, cell=""):
    """The plan by trial, without what only names it."""
    rows = [plan_row(study, trial) for trial in plan_trials(study)]
    names = ("trial_id", "objective", "config", "seed")
    return {
        (row["objective"].removeprefix(cell), row["config"], row["seed"]): {
            key: value for key, value in row.items() if key not in names
        }
        for row in rows
        if row["objective"].startswith(cell)
    }


@pytest.mark.parametrize("method", ["grid", "qmc", "tpe"])
def test_a_cell_is_planned_as_the_study_of_it_alone(load, method):
    search = [f"search={{method: {method}, trials_per_objective: 4, seed: 7}}"] * (method != "grid")
    crossed = load(*search)
    for dataset, encoder in itertools.product(OPTIONS, NETWORKS):
        data = {"val_fraction": 0.2, **OPTIONS[dataset]}
        base = {**TREE["base"], **NETWORKS[encoder]}
        alone = load(*search, factors=None, dataset=data, base=base)
        assert rows_of(alone)
        assert rows_of(crossed, f"{dataset}/{encoder}/") == rows_of(alone)


def test_the_plan_has_the_factors_as_columns(load):
    study = load()
    plan = study.plan()
    assert len(plan) == 4 * (3 + 6) * 2
    assert plan["trial_id"].is_unique
    assert set(plan["objective"]) == {"simclr", "dclw"}
    counts = plan.groupby(["dataset", "encoder"]).size().to_dict()
    assert counts == {(d, e): 18 for d in ("digits", "synthetic") for e in ("resnet20", "wide")}
    encoders = [row["encoder"] for row in plan_counts(study)]
    assert encoders == ["resnet20", "resnet20", "wide", "wide"] * 2
    assert {row["dataset"] for row in plan_trial_rows(study)} == {"digits", "synthetic"}
    widths = {row["encoder"]: row["dclw"] for row in plan_matrix(study) if row["param"] == "width"}
    assert widths == {"wide": "16"}


def test_every_cell_begins_early(load):
    """The objectives of all cells take turns, as those of one study do."""
    first = [trial.objective for trial in plan_trials(load()) if trial.seed == 3][:8]
    assert len(set(first)) == 8


def test_the_order_of_levels_changes_no_trial(load):
    turned = {name: levels[::-1] for name, levels in TREE["factors"].items()}
    assert rows_of(load(factors=turned)) == rows_of(load())


def test_a_level_lays_its_own_settings_over_the_study(load):
    levels = [
        {"name": "digits", "base": {"lr": 0.25}, "objectives": {"dclw": None}},
        {**SYNTHETIC, "val_fraction": 0.1, "space": {"tau": {"choices": [0.7]}}},
    ]
    plan = load(factors={"dataset": levels}, base={**TREE["base"], "encoder": "conv4"}).plan()
    digits, others = (plan[plan["dataset"] == name] for name in ("digits", "synthetic"))
    assert set(digits["objective"]) == {"simclr"}
    assert set(others["objective"]) == {"simclr", "dclw"}
    assert (digits["lr"] == 0.25).all()
    assert (others["lr"] != 0.25).all()
    assert (digits["val_fraction"] == 0.2).all()
    assert (others["val_fraction"] == 0.1).all()
    assert set(others["tau"]) == {0.7}


def test_a_preset_replaces_the_levels_and_null_removes_the_factors(load):
    cells = factor_cells(load(preset="one").document.tree)
    assert [cell.name for cell in cells] == ["digits/resnet20", "digits/wide"]
    single = load("factors=null", "dataset.name=digits", "base.encoder=conv4")
    assert not single.cells
    assert set(single.plan()["encoder"]) == {"conv4"}


def test_what_missing_data_hint_at_is_taken_where_data_sets_are_a_factor(load):
    message = missing_data_message("cifar10", Path("data"), "no such folder")
    [setting] = re.findall(r"--set '(.*?)'", message)
    cells = factor_cells(load(setting).document.tree)
    assert {cell.levels["dataset"] for cell in cells} == {"digits"}


def test_names_split_where_the_cell_ends(load):
    tree = load().document.tree
    name = {"dataset": "digits", "encoder": "wide", "objective": "a/b"}
    assert split_name(tree, "digits/wide/a/b") == name
    assert split_name({}, "a/b") == {"objective": "a/b"}


def test_references_are_scored_once_for_each_data_set_and_network(load):
    study = load()
    rows = [row for row, _ in placed_baselines(study, plan_trials(study))]
    raw = [row["dataset"] for row in rows if row["reference"] == "raw_pixels"]
    assert sorted(raw) == ["digits", "synthetic"]
    untrained = [(row["dataset"], row["encoder"], row["seed"]) for row in rows if "seed" in row]
    assert len(untrained) == len(set(untrained)) == 8


def test_what_one_cell_alone_owns_is_skipped_elsewhere(load):
    """Gray images have no colours; that is no mistake of the study."""
    study = load("base.gray_prob=0.1")
    [skip] = {note for note in plan_notes(study) if note.startswith("skip: 'simclr'")}
    assert skip.endswith("(in digits/resnet20, digits/wide)")
    assert "gray_prob" in skip
    alone = {"factors": {"dataset": ["digits"]}, "base": {"encoder": "conv4"}}
    [line] = refusals(load, "base.gray_prob=0.1", **alone)
    assert "no objective of this study owns 'gray_prob'" in line


@pytest.mark.parametrize("labels", ["A, a", "v1.5, v1_5"])
def test_files_of_two_cells_have_two_names_on_any_disk(load, labels):
    levels = [f"{{name: digits, label: {label}}}" for label in labels.split(", ")]
    [line] = refusals(load, f"factors.dataset=[{', '.join(levels)}]")
    assert "would have one file name; give labels" in line


def test_a_mistake_of_some_cells_names_them(load):
    """Of 500 images no batch has 450, with a fifth of them held out; of the digits it has."""
    [line] = refusals(load, "base.batch_size=450")
    assert "base.batch_size" in line
    assert line.endswith("(in synthetic/resnet20, synthetic/wide)")


# Further sessions


def why_not(load, later, **changes):
    """Why a study, changed so, does not go on with the results of `TREE`."""
    first = load()
    rows = [plan_row(first, trial) for trial in plan_trials(first)]
    now = load(**later, **changes)
    return extension_errors(first.document.tree, rows, now, plan_trials(now))


def test_a_study_grows_by_levels(load):
    levels = ["digits", SYNTHETIC, {"name": "synthetic", "label": "big", "image_size": 32}]
    networks = [WIDE, "resnet20", {"name": "conv4", "width": 8}]
    assert not why_not(load, {"factors": {"dataset": levels, "encoder": networks}})


def test_files_may_move_and_levels_be_written_otherwise(load):
    levels = [{"name": "digits", "root": "/elsewhere"}, {**SYNTHETIC, "cache": "/tmp"}]
    assert not why_not(load, {"factors": {**TREE["factors"], "dataset": levels}})


def test_a_level_that_went_or_changed_is_another_study(load):
    for change, expected in (
        ({"dataset": ["digits"]}, "factors.dataset.synthetic"),
        ({"encoder": ["resnet20", {**WIDE, "width": 32}]}, "factors.encoder.wide.width: 16 -> 32"),
    ):
        [reason, *_] = why_not(load, {"factors": TREE["factors"] | change})
        assert reason.startswith(expected)


# The encoder as a hyperparameter


def swept(load, *settings):
    encoders = "space.encoder={choices: [conv4, resnet20, resnet18]}"
    return load("factors=null", "dataset.name=digits", encoders, *settings)


def test_an_encoder_is_swept_and_owns_what_it_has(load):
    plan = swept(load, "base.width=16", "base.stem=standard").plan()
    sizes = plan.groupby("encoder").size()
    assert set(sizes) == {(3 + 6) * 2}
    rows = plan.set_index("encoder")
    assert (rows.loc["conv4", "width"] == 16).all()
    assert rows.loc["conv4", "stem"].isna().all()
    assert (rows.loc["resnet18", "stem"] == "standard").all()
    assert rows.loc[["resnet18", "resnet20"], "width"].isna().all()
    assert rows.loc["resnet20", "stem"].isna().all()
    features = rows["proj_hidden"].groupby("encoder").unique().map(list).to_dict()
    assert features == {"conv4": [64], "resnet18": [512], "resnet20": [64]}


def test_a_live_search_leaves_open_what_its_encoder_has(load):
    plan = swept(load, "base.width=16", "search={method: tpe, trials_per_objective: 4}").plan()
    assert plan["encoder"].isna().all()
    assert "width" not in plan or plan["width"].isna().all()


def test_what_some_swept_encoders_lack_is_swept_at_the_others_alone(load):
    lines = refusals(partial(swept, load), "space.width={choices: [8, 16]}")
    assert "space.width: 'simclr' sweeps resnet20, resnet18 too, without width" in lines[0]
    assert all("too, without width: expected when: {encoder: ...} beside it" in x for x in lines)
    width = "space.width={choices: [8, 16], when: {encoder: conv4}}"
    stem = "space.stem={choices: [small, standard], when: {encoder: [resnet18]}}"
    study = swept(load, width, stem)
    rows = [plan_row(study, t) for t in plan_trials(study) if t.seed == study.sections.seeds[0]]
    own = [row for row in rows if row["objective"] == "simclr"]
    configs = [(row["encoder"], row.get("width"), row.get("stem")) for row in own]
    expected = [
        ("conv4", 16, None), ("conv4", 8, None), ("resnet18", None, "small"),
        ("resnet18", None, "standard"), ("resnet20", None, None),
    ]  # fmt: skip
    assert sorted(configs, key=str) == sorted(3 * expected, key=str)


def test_a_layer_is_one_that_every_swept_encoder_has(load):
    line, *_ = refusals(partial(swept, load), "base.feature_layer=layer1")
    assert "expected one of what 'simclr' has: encoder, projector; given layer1" in line
    assert swept(load, "base.feature_layer=layer1", "space.encoder={choices: [resnet20, resnet18]}")


def test_a_sweep_of_networks_says_that_they_differ_in_size(load):
    said = "encoder swept: the networks differ in capacity"
    assert any(said in note for note in plan_notes(swept(load)))
    assert not any("capacity" in note for note in plan_notes(load()))
