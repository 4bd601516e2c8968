"""A folder whose version lacked a column goes on as it was: what it did unsaid is no change."""

import pytest

from clsweep.api import open_results
from clsweep.cluster.earlier_studies import earlier_notes
from clsweep.results.folder import ResultsFolder
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.extend import extension_errors
from clsweep.study.resolve import load_study
from tests.planted import record, study_at, study_tree

NEWER = {"score_network": "student", "transfer_store_as": "pixels"}
DINO = {"dino": {"framework": "dino", "loss": "soft_cross_entropy"}}


def study_of(folder, base=None, **search):
    search = {"method": "tpe", "trials_per_objective": 2, **search}
    space = {"lr": {"low": 0.01, "high": 1.0}}
    given = {"objectives": DINO, "seeds": [0], "space": space, "search": search}
    tree = study_tree()["base"] | (base or {})
    return load_study(study_at(folder / "study.yaml", base=tree, **given))


def rows_of(study):
    """Its plan as it would be with pictures to transfer to."""
    return [{**plan_row(study, t), "transfer_store_as": "pixels"} for t in plan_trials(study)]


@pytest.fixture
def older(tmp_path) -> ResultsFolder:
    """A finished study of a version that had neither column."""
    study, folder = study_of(tmp_path), ResultsFolder(str(tmp_path / "older"))
    plan = [{n: v for n, v in row.items() if n not in NEWER} for row in rows_of(study)]
    with folder.lock():
        folder.create(study.document.dump(), plan)
        ended = {"status": "finished", "knn_top1": 90.0, "lr": 0.1, "wall_time_s": 1.0}
        record(folder, [{**row, **ended} for row in plan])
    return folder


def test_more_trials_are_an_extension_and_the_folder_is_read(tmp_path, older):
    more = study_of(tmp_path, trials_per_objective=3)
    rows = older.plan().to_pylist()
    assert extension_errors(older.study(), rows, more, plan_trials(more)) == []
    with older.lock():
        older.create(more.document.dump(), rows_of(more))
    trials = open_results(older.path).trials
    assert trials[[*NEWER]].to_dict("records") == [NEWER] * 2


def test_another_value_is_a_change(tmp_path, older):
    other = study_of(tmp_path, {"score_network": "teacher"})
    reasons = extension_errors(older.study(), older.plan().to_pylist(), other, plan_trials(other))
    assert "score_network" in reasons[0]


def test_it_is_evidence(tmp_path, older):
    study = study_of(tmp_path, **{"from": [older.path, f"{older.path}/../older/"]})
    [note] = earlier_notes(study)
    assert note.endswith("dino: 2 configurations as evidence")
