"""The shipped studies: every one plans at the paper's scale and under each preset, and its `cpu`
preset runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import clsweep
from clsweep.study.document import preset_names
from tests.cluster.conftest import clsweep as command

FOLDER = Path(__file__).parents[1] / "studies"
STUDIES = {
    path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in FOLDER.rglob("*.yaml")
}
PAPER_STUDIES = sorted(name for name, path in STUDIES.items() if "cpu" in preset_names(path))
OFTEN = ("dimcl/table_01", "ecpp/table_05", "eqco/figure_02")


def tables(name: str, preset: str | None = None) -> dict[str, set[object]]:
    """Values of each swept hyperparameter in the plan, of the objectives that sweep it."""
    study = clsweep.load_study(STUDIES[name], preset=preset)
    plan = study.plan()
    swept: dict[str, set[object]] = {}
    for objective in study.objectives:
        rows = plan[plan["objective"] == objective.label]
        for param in objective.space:
            swept[param] = swept.get(param, set()) | set(rows[param])
    return swept


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_study_and_preset_plans(name: str) -> None:
    for preset in (None, *preset_names(STUDIES[name])):
        study = clsweep.load_study(STUDIES[name], preset=preset)
        assert len(study.plan()) >= len(study.objectives) * len(study.sections.seeds)


def test_every_study_has_a_name_of_its_own() -> None:
    """It names the folder of the results."""
    names = [clsweep.load_study(path).name for path in STUDIES.values()]
    assert len(set(names)) == len(names)


def test_the_paper_studies_sweep_what_the_paper_swept() -> None:
    temperatures = {0.07, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0}
    assert tables("dcl/table_18") == {"tau": temperatures}
    assert tables("dcl/table_01") == {"batch_size": {32, 64, 128, 256, 512}}
    assert tables("dimcl/table_06") == {"proj_dim": {64, 128, 256, 512, 1024, 2048, 8192}}
    assert tables("dimcl/table_11") == {"dim_tau": {0.01, 0.05, 0.1, 0.2, 0.5, 1.0}}
    assert tables("ecpp/table_07") == {"num_views": {2, 4, 6, 8}}
    crops, temperatures = {0.08, 0.2}, {0.1, 0.15, 0.2, 0.25, 0.3}
    assert tables("ecpp/table_08") == {"crop_scale": crops, "tau": temperatures}
    queue = {4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144}  # EqCo Table 6, and below
    assert tables("eqco/figure_02") == {"num_negatives": queue}
    assert tables("eqco/table_02") == {
        "num_negatives": {4, 16, 64, 255},  # 255: all others of the batch
        "alpha": {256, 1024, 4096, 16384, 65536, 262144},
    }


@pytest.mark.parametrize(("preset", "information"), [(None, {2, 4, 6, 8, 10}), ("cpu", {4, 10})])
def test_the_toy_sweeps_table_9_of_eqco(preset: str | None, information: set[object]) -> None:
    pairs = {64, 128, 256, 512}
    swept = tables("eqco/table_09", preset)
    assert swept == {"batch_size": pairs, "mutual_information": information}


@pytest.mark.parametrize(
    ("name", "num_seeds"),
    [
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in OFTEN),
        *(pytest.param(name, 2, marks=pytest.mark.soak) for name in PAPER_STUDIES),
    ],
)
def test_the_cpu_preset_runs(name: str, num_seeds: int, tmp_path: Path) -> None:
    seeds = f"seeds={[*range(num_seeds)]}"
    path, out = STUDIES[name], tmp_path / "out"
    code, output = command("run", path, "-p", "cpu", "--out", out, "--set", seeds)
    assert code == 0, output
    results = clsweep.open_results(out)
    assert (results.trials["status"] == "finished").all()
    assert len(results.trials) == len(results.plan)
    metric = clsweep.load_study(path, preset="cpu").sections.metric.name
    assert results.trials[metric].notna().all()
    if metric != "mi_estimate":
        # untrained: about 76 and 94 with this split; collapsed: 10
        scores = results.trials.groupby("objective")[["knn_top1", "linear_top1"]].mean()
        reached = scores if name in OFTEN else scores.max().to_frame().T
        assert (reached > (65, 90)).all(axis=None), scores
        assert len(results.references) == 1 + num_seeds
