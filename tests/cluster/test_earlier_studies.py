"""A search that learns from earlier studies: what it takes of them, and what that saves."""

import math

import pytest
import yaml

from clsweep.cluster.earlier_studies import earlier_notes
from clsweep.errors import RequestError, StudyError
from clsweep.study.resolve import load_study
from tests.cluster.test_search import ONE, SPACE, entries, finished, run, session
from tests.planted import recorded, study_at, study_tree

BASE = study_tree()["base"]


@pytest.fixture
def earlier(tmp_path):
    """The folder of 30 random configurations on another seed, and what changes in the study."""

    def make(name="earlier", **changes):
        search = {"method": "random", "trials_per_objective": 30}
        given = {"space": SPACE, "seeds": [5], "search": search, **changes}
        study = load_study(study_at(tmp_path / f"{name}.yaml", **given))
        return recorded(tmp_path / name, study, timed)

    return make


def timed(row):
    """How a trial of an earlier study ended; every tenth failed."""
    if row["config"] % 10 == 9:
        return {"status": "failed", "error_message": "it diverged", "error_class": "DivergedError"}
    return {**finished(row), "wall_time_s": 3.0, "workers": 1}


def study_from(folder, tmp_path, number=0, num_configs=20, **changes):
    search = {"method": "tpe", "trials_per_objective": num_configs, "seed": number}
    search |= {"from": [folder]} if folder else {}
    given = {"space": SPACE, "seeds": [0], "search": search, **changes}
    return load_study(study_at(tmp_path / "study.yaml", **given))


def regret(rows):
    """Distance of the best tried configuration from the planted optimum."""
    return min(
        math.log(row["tau"] / 0.2) ** 2
        + abs(row["proj_dim"] - 40) / 50
        + (row["lr_rule"] == "none")
        for row in rows
    )


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({}, "27 configurations as evidence"),
        ({"base": BASE | {"epochs": 3}}, "27 configurations by their ranks alone, as epochs: 2 ->"),
        ({"base": BASE | {"lr": 0.1}}, "by their ranks alone, as lr: 0.03 -> 0.1"),
        ({"space": SPACE | {"tau": {"low": 0.001, "high": 0.002}}},
         "no configuration: none lies in its space"),
        ({"space": SPACE | {"lr": {"low": 0.02, "high": 1.0}}}, "27 configurations as evidence"),
        ({"objectives": {"other": {"framework": "simclr", "loss": "dcl"}}},
         "other: no configuration: it has none of this name and metric"),
        ({"metric": {"name": "linear_top1"}}, "it has none of this name and metric"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)  # fmt: skip
def test_what_is_taken_of_an_earlier_study_is_said(tmp_path, earlier, changes, note):
    folder = earlier()
    notes = earlier_notes(study_from(folder, tmp_path, **changes))
    assert all(line.startswith(f"note: search.from: {folder}: ") for line in notes)
    assert note in notes[-1]


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    study = study_from(str(tmp_path / "nothing"), tmp_path)
    with pytest.raises(RequestError, match=r"search.from: .*nothing: expected a results folder"):
        earlier_notes(study)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "share"),
    [(BASE, 1 / 3), pytest.param(BASE | {"epochs": 3}, 0.6, marks=pytest.mark.soak)],
    ids=["alike", "of other epochs"],
)
def test_earlier_studies_save_most_of_the_regret_of_twenty_trials(tmp_path, earlier, base, share):
    """40 planted searches with them, of eight earlier studies, and without."""
    with_them = without = 0.0
    for number in range(40):
        if number % 5 == 0:
            search = {"method": "random", "trials_per_objective": 30, "seed": number}
            folder = earlier(f"{number}", search=search, **ONE | {"seeds": [number]})
        study = study_from(folder, tmp_path, number, base=base, **ONE)
        with_them += regret(run(study, tmp_path / f"with {number}.journal"))
        study = study_from(None, tmp_path, number, base=base, **ONE)
        without += regret(run(study, tmp_path / f"without {number}.journal"))
    assert with_them < share * without


@pytest.mark.parametrize("base", [BASE, BASE | {"epochs": 3}], ids=["alike", "of other epochs"])
def test_a_search_that_is_cut_needs_the_earlier_study_no_more(tmp_path, earlier, base):
    folder = earlier()
    study = study_from(folder, tmp_path, num_configs=13, base=base)
    whole, part = run(study, tmp_path / "whole.journal"), []
    for _ in session(study, tmp_path / "cut.journal", part):
        if len(part) == 9:
            break
    (tmp_path / "earlier" / "trials.parquet").unlink()
    assert run(study, tmp_path / "cut.journal", part) == whole
    assert entries(tmp_path / "cut.journal", "dcl") == entries(tmp_path / "whole.journal", "dcl")


def test_other_methods_learn_from_nothing(tmp_path):
    tree = study_tree(search={"method": "grid", "from": ["results/a"]})
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(StudyError, match=r"search.from: grid draws its plan before"):
        load_study(path)
