"""A study with factors on Ray: its trials are those of a study for each cell, digit for digit."""

from pathlib import Path

import pytest
import yaml

import clsweep
from clsweep.cli.try_one import try_trial
from clsweep.study.resolve import load_study
from tests.cluster.conftest import clsweep as command
from tests.cluster.conftest import study_tree

DATA = {
    "digits": {"name": "digits", "val_fraction": 0.2},
    "synthetic": {"name": "synthetic", "image_size": 8, "num_train": 200, "num_classes": 4},
}
BASE = {"encoder": "conv4", "width": 8, "epochs": 1, "batch_size": 64, "knn_k": 10}


def write(path: Path, **changes: object) -> Path:
    tree = study_tree(base=BASE, seeds=[0], **changes)
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return path


def run(study: Path, out: Path) -> clsweep.Results:
    code, output = command("run", study, "--out", out)
    assert code == 0, output
    return clsweep.open_results(out)


@pytest.mark.slow
def test_the_trials_of_a_cell_are_those_of_its_study_alone(tmp_path: Path) -> None:
    """The second data set joins a finished study."""
    levels = list(DATA.values())
    study, out = tmp_path / "study.yaml", tmp_path / "out"
    first = run(write(study, dataset={}, factors={"dataset": levels[:1]}), out)
    assert set(first.trials["dataset"]) == {"digits"}
    both = run(write(study, dataset={}, factors={"dataset": levels}), out)
    assert both.trials["dataset"].value_counts().to_dict() == dict.fromkeys(DATA, 4)
    for row in both.trials.to_dict("records"):
        alone = load_study(write(tmp_path / "alone.yaml", dataset=DATA[row["dataset"]]))
        found = try_trial(alone, row["objective"], config=row["config"], seed=0, device="cpu")
        for name in ("knn_top1", "linear_top1", "train_loss"):
            assert found[name] == row[name], (row["trial_id"], name)
    kept = both.folder.stored("encoders")
    assert len(kept) == 4  # the best of each objective on each data set
    assert all(both.encoder(trial_id).num_features == 32 for trial_id in kept)
