"""The papers' numbers: the differences and spreads that a paper prints follow from its own rows,
unless the row says that they do not. That studies plan every cell is seen in `test_perfect_runs`.
"""

from __future__ import annotations

import pandas as pd
import pytest

from clsweep.catalog import DIAGNOSTICS, METRICS, PARAM
from clsweep.study.paper_tables import ID_COLUMNS
from tests.studies.references import REFERENCES, STUDIES, Reference, planned

KEYS = {"paper", "item", "study", "refused", "protocol", "encoder", "reference only"} | {
    "drawn, not printed"
}
SCORES = {row.name for row in (*METRICS, *DIAGNOSTICS)} | {"classifier_top1"}
LAYERS = ("encoder", "projector")  # of DCL Table 11
TRAINED = [reference for reference in REFERENCES if reference.study]
# What a plan says beside the protocol.
BESIDE = {"trial_id", "config", "study", "eval_every", "linear_every", "tsne_points"}
BESIDE |= {"store_size", "store_as"}


def name(reference: Reference) -> str:
    return f"{reference.path.parent.name}/{reference.path.stem}"


def differs(printed: str, computed: float) -> bool:
    """Whether a printed number is not the computed one at its own precision."""
    decimals = len(printed.partition(".")[2])
    return abs(float(printed) - computed) > 0.5 * 10**-decimals + 1e-9


def test_there_are_references_of_all_papers():
    assert {r.path.parent.name for r in REFERENCES} == {
        path.name
        for path in STUDIES.iterdir()
        if path.is_dir() and path.name not in ("measured", "records")
    }


@pytest.mark.parametrize("reference", REFERENCES, ids=name)
def test_a_file_says_where_its_numbers_come_from(reference):
    header, rows = reference.table.header, reference.rows
    assert header.keys() <= KEYS
    assert [len(header.get(key, ())) for key in ("paper", "item")] == [1, 1]
    assert ("study" in header) != ("refused" in header)
    assert 1 <= len(header["protocol"]) <= 3
    assert len(rows) or "drawn, not printed" in header
    assert not rows.duplicated([*ID_COLUMNS, *reference.table.settings, "metric"]).any()
    assert set(reference.table.reference_only) <= set(rows["objective"])


@pytest.mark.parametrize("reference", TRAINED, ids=name)
def test_rows_speak_the_catalog(reference):
    rows = reference.rows
    assert set(rows["metric"]) <= SCORES
    for setting in reference.table.settings:
        values = set(rows[setting]) - {""}
        if setting == "feature_layer":
            assert values <= set(LAYERS)
            continue
        for value in values:
            PARAM[setting].coerce(float(value))
    for row in rows.to_dict("records"):
        assert row["value"] or row["spread"], row
        for key in ("value", "spread", "delta"):
            assert not row[key] or abs(float(row[key])) <= 100, row
        assert bool(row["delta"]) == bool(row["delta_to"]), row


def base_of(reference: Reference, row: dict[str, str]) -> float:
    """The value that a printed difference starts from: at the same settings, or the only one."""
    rows = reference.rows
    same = (rows["objective"] == row["delta_to"]) & (rows["value"] != "")
    for key in ("dataset", "encoder", "metric"):
        same &= rows[key] == row[key]
    exact = same.copy()
    for setting in reference.table.settings:
        exact &= rows[setting] == row[setting]
    matching = rows[exact] if exact.any() else rows[same]
    assert len(matching) == 1, row
    return float(matching["value"].iloc[0])


@pytest.mark.parametrize("reference", REFERENCES, ids=name)
def test_printed_differences_follow_from_the_rows(reference):
    for row in reference.rows[reference.rows["delta"] != ""].to_dict("records"):
        computed = float(row["value"]) - base_of(reference, row)
        assert differs(row["delta"], computed) == ("misprint" in row["note"]), (row, computed)


@pytest.mark.parametrize("reference", REFERENCES, ids=name)
def test_printed_spreads_over_a_setting_follow_from_the_rows(reference):
    rows = reference.rows
    for row in rows[rows["value"] == ""].to_dict("records"):
        scored = rows[(rows["objective"] == row["objective"]) & (rows["value"] != "")]
        computed = pd.to_numeric(scored["value"]).std()
        misprint = "misprint" in row["note"]
        assert differs(row["spread"], computed) == misprint, (row, computed)
        assert not misprint or f"{computed:.2f}" in row["note"]


def test_a_number_that_dimcl_prints_twice_is_of_one_protocol():
    """Its tables share their baselines, which several studies plan."""
    columns: dict[tuple[str, ...], dict[str, pd.Series]] = {}
    for reference in (r for r in TRAINED if r.path.parent.name == "dimcl"):
        assert reference.study
        cells = planned(reference.study)
        rows = reference.rows[~reference.rows["objective"].isin(reference.table.reference_only)]
        for row in rows[rows["metric"] == "linear_top1"].to_dict("records"):
            fits = cells["objective"] == row["objective"]
            settings = [n for n in reference.table.settings if row[n] and n in cells]
            for key in ("dataset", "encoder", *settings):
                fits &= cells[key] == (float(row[key]) if key in settings else row[key])
            protocol = cells[fits].iloc[0].drop(list(BESIDE), errors="ignore").dropna()
            key = tuple(row[name] for name in (*ID_COLUMNS, "value"))
            columns.setdefault(key, {})[name(reference)] = protocol
    twice = {key: each for key, each in columns.items() if len(each) > 1}
    assert len(twice) > 10
    for key, protocols in twice.items():
        first, *others = protocols.values()
        assert all(first.to_dict() == each.to_dict() for each in others), (key, protocols)
