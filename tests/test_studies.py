"""The shipped studies: every one plans at the paper's scale, and its `cpu` preset runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import clsweep
from clsweep.study.document import preset_names
from tests.cluster.conftest import clsweep as command

STUDIES = sorted((Path(__file__).parents[1] / "studies").glob("*.yaml"))
PAPER_STUDIES = [path for path in STUDIES if "cpu" in preset_names(path)]


def tables(path: Path, preset: str | None = None) -> dict[str, set[object]]:
    """Values of each swept hyperparameter in the plan."""
    study = clsweep.load_study(path, preset=preset)
    plan = study.plan()
    return {
        name: set(plan[name].dropna()) for objective in study.objectives for name in objective.space
    }


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_study_and_preset_plans(path: Path) -> None:
    for preset in (None, *preset_names(path)):
        study = clsweep.load_study(path, preset=preset)
        assert len(study.plan()) >= len(study.objectives) * len(study.sections.seeds)


def test_the_paper_studies_sweep_what_the_paper_swept() -> None:
    by_name = {path.stem: path for path in PAPER_STUDIES}
    temperatures = {0.07, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0}
    assert tables(by_name["dcl_temperature"]) == {"tau": temperatures}  # DCL Table 18
    assert tables(by_name["dcl_batch_size"]) == {
        "batch_size": {32, 64, 128, 256, 512}
    }  # DCL Table 1
    assert tables(by_name["dimcl_frameworks"]) == {
        "lam": {0.03, 0.1, 0.3}
    }  # DimCL Fig. 5, around its 0.1
    assert tables(by_name["ecpp_views"]) == {"num_views": {2, 4, 6, 8}}  # ECPP Fig. 2
    queue, batch = (
        {16, 64, 256, 4096, 65536},
        {16, 64, 255},
    )  # EqCo Fig. 2-3; 255: all others of the batch
    assert tables(by_name["eqco_negatives"]) == {"num_negatives": queue | batch}


def test_the_toy_sweeps_table_9_of_eqco() -> None:
    [path] = [path for path in STUDIES if path.stem == "eqco_mutual_information"]
    pairs = {64, 128, 256, 512}
    assert tables(path) == {"batch_size": pairs, "mutual_information": {2, 4, 6, 8, 10}}
    assert tables(path, "short") == {"batch_size": pairs, "mutual_information": {4, 10}}


@pytest.mark.parametrize(
    "num_seeds",
    [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.soak)],
)
@pytest.mark.parametrize("path", PAPER_STUDIES, ids=lambda path: path.stem)
def test_the_cpu_preset_runs(path: Path, tmp_path: Path, num_seeds: int) -> None:
    seeds = f"seeds={[*range(num_seeds)]}"
    code, output = command("run", path, "-p", "cpu", "--out", tmp_path / "out", "--set", seeds)
    assert code == 0, output
    results = clsweep.open_results(tmp_path / "out")
    assert (results.trials["status"] == "finished").all()
    assert len(results.trials) == len(results.plan)
    scores = results.trials.groupby("objective")[["knn_top1", "linear_top1"]].mean()
    assert (scores > (65, 90)).all(axis=None), (
        scores
    )  # untrained: about 76 and 94 with this split; collapsed: 10
    assert len(results.references) == 1 + num_seeds
