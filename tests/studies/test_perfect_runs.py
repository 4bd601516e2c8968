"""A run at the paper's scale that measured exactly what is printed agrees with every number that
its study can give.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clsweep
from clsweep.analysis.reproduce import Verdict
from clsweep.statistics.reproduce import layouts
from clsweep.study.document import preset_names
from clsweep.study.factors import split_name
from clsweep.study.resolve import load_study
from tests.planted import recorded
from tests.studies.references import REFERENCES, STUDIES, Reference

NOISE = 1e-4  # of a seed, as a share of the score
FOLDERS = {100: "imagenet100", 1000: "imagenet1k"}
BESIDE: dict[Path, list[Reference]] = {}
for each in REFERENCES:
    if each.study and (each.rows["value"] != "").any():
        BESIDE.setdefault(each.study, []).append(each)


def is_one(text: str, value: Any) -> bool:
    """Whether a setting is the printed one; nothing printed means any."""
    try:
        return not text or float(text) == float(value)
    except (TypeError, ValueError):
        return text == value


def scores(row: Mapping[str, Any], printed: list[Reference]) -> dict[str, float]:
    """What is printed of a trial, by metric; where it is printed twice, the first."""
    is_folder = row["dataset"] == "imagefolder"
    place = FOLDERS[row["num_classes"]] if is_folder else row["dataset"]
    scores_by_name: dict[str, float] = {}
    for reference in printed:
        table = reference.table
        for each in table.rows:
            if (each["objective"], each["dataset"]) != (row["objective"], place):
                continue
            own = {name: each[name] for name in table.settings}
            own["encoder"] = table.stand_ins.get(each["encoder"], each["encoder"])
            if each["value"] and all(is_one(text, row.get(name)) for name, text in own.items()):
                scores_by_name.setdefault(each["metric"], float(each["value"]))
    return scores_by_name


@pytest.mark.parametrize("study", BESIDE, ids=lambda path: path.relative_to(STUDIES).as_posix())
def test_perfect_data_agree_with_every_printed_number(study, tmp_path):
    rng = np.random.default_rng(0)
    tree: Mapping[str, Any] = {}

    def outcome(row: Mapping[str, Any]) -> dict[str, float]:
        scored = scores({**row, **split_name(tree, row["objective"])}, BESIDE[study])
        return {name: x * (1 + NOISE * rng.standard_normal()) for name, x in scored.items()}

    missing: set[str] = set()
    for preset in [None, *(name for name in reversed(preset_names(study)) if name != "cpu")]:
        planned = load_study(study, preset=preset, settings=["seeds=[0, 1]"])
        tree = planned.document.tree
        for each in BESIDE[study]:
            assert not each.table.reference_only & tree["objectives"].keys()
        folder = recorded(tmp_path / f"{preset}", planned, outcome, printed=study)
        table = clsweep.open_results(folder).reproduce()
        shown = [part.shown for part in layouts(table)]
        papers = [part[part[""] == "paper"].iloc[:, 2:] for part in shown]
        filled = sum(int((cells != "").sum().sum()) for cells in papers)
        assert filled == sum((each.rows["value"] != "").sum() for each in BESIDE[study]), "a cell"
        table = table[table["value"].notna() & (table["verdict"] != Verdict.REFERENCE_ONLY)]
        assert not table["verdict"].isin([Verdict.DIFFERS, Verdict.NOT_RESOLVED]).any(), table
        keys = table.columns[: table.columns.get_loc("metric") + 1]
        numbers = [str(row) for row in table[keys].itertuples(index=False)]
        agreed = zip(numbers, table["verdict"] == Verdict.AGREES, strict=True)
        missing = (missing or set(numbers)) - {name for name, agrees in agreed if agrees}
        if not missing:
            return
    raise AssertionError(f"no preset answers {sorted(missing)}")
