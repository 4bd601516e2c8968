"""What is said, shown and drawn of contrasts, of kept studies that asked for some."""

from pathlib import Path

import pandas as pd
import pytest

import clsweep
from clsweep.catalog import DIAGNOSTIC, METRIC
from clsweep.errors import UserError
from clsweep.report import first_screen
from clsweep.report.sections import SECTIONS, section_of
from clsweep.statistics import verdicts
from clsweep.statistics.computed import context_of
from clsweep.statistics.contrast import CONTRASTS, contrasts_summary, outcome
from tests.planted import planted

ROOT = Path(__file__).parents[2]


def test_a_report_begins_with_how_many_are_answered():
    results = clsweep.open_results(ROOT / "docs/results/claims-views")
    table = results.contrasts()
    rows = table.to_dict("records")
    answered = sum(row["shown"] or row["equivalent"] or row["excluded"] for row in rows)
    asked = context_of(results)
    [first] = contrasts_summary(rows)
    assert first_screen.answer_of(results)[0][0] == first
    assert first.startswith(f"Of 5 contrasts asked beforehand {answered} are answered: ")
    begun = next(part for c in SECTIONS if not (part := section_of(c, asked)).is_empty)
    assert begun.title == "What was asked beforehand?"
    assert [figure.name for figure in begun.figures] == ["contrasts"]
    assert verdicts.contrasts_verdict(results) == (
        first,
    )  # five have their numbers in the table alone
    shown = CONTRASTS.shown(table, results.data, 1.0)
    assert shown["verdict"].tolist() == [outcome(row) for row in rows]


def test_every_claim_is_one_of_a_study_and_of_a_paper():
    claims = pd.read_csv(ROOT / "studies/claims.csv", dtype=str, keep_default_na=False)
    assert not claims.duplicated(["study", "contrast"]).any()
    for study, rows in claims.groupby("study"):
        path = ROOT / "studies/measured" / f"{study.replace('-', '_')}.yaml"
        contrasts = clsweep.load_study(path).sections.contrasts
        assert set(rows["contrast"]) <= set(contrasts)
        for claim in rows.to_dict("records"):
            effect = contrasts[claim["contrast"]].published
            assert claim["effect"] == ("drawn" if effect is None else f"{effect:g}")
            metric = contrasts[claim["contrast"]].metric
            assert metric is None or metric in (*METRIC, *DIAGNOSTIC)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"at": {"batch_sizes": 16}}, r"no objective sweeps 'batch_sizes'\. Did you mean"),
        ({"at": {"tau": 0.5}}, "no objective sweeps 'tau'.* Swept: "),  # it is fixed
        ({"of": "dcl"}, "expected two objectives, or minus"),
        ({"of": ["dcl", "dcl"]}, "expected two objectives, or minus"),
        ({"of": ["dcl", "dlc"]}, "unknown objective 'dlc'"),
        ({"metric": "q_b"}, "unknown metric 'q_b'"),
        ({"off": 1}, r"contrasts\.it\.off: unknown key"),
    ],
)
def test_what_is_asked_later_is_checked_too(change, message):
    results = clsweep.open_results(ROOT / "docs/results/batch-digits")
    with pytest.raises(UserError, match=message):
        results.contrasts({"it": {"of": ["dcl", "simclr"]} | change})


def test_sides_that_cancel_take_nothing_from_the_others():
    results = clsweep.open_results(ROOT / "docs/results/batch-digits")
    small, large = {"batch_size": 16}, {"batch_size": 256}
    rows = results.contrasts({
        "same": {"of": "dcl", "at": small, "minus": {"batch_size": "16"}},
        "once": {"of": ["dcl", "untrained"], "at": small, "minus": large},
        "none": {"of": ["dcl", "simclr"], "at": {"batch_size": 32}},
        "dcl": {"of": "dcl", "at": small, "minus": large},
    }).set_index("contrast")  # fmt: skip
    assert rows.loc["once", "estimate"] == rows.loc["dcl", "estimate"]  # untrained has no batches
    assert rows["reason"].tolist() == ["same_settings", "", "no_setting", ""]


def test_two_percentages_differ_by_no_more_than_100_points():
    frame = planted(lambda _: 50.0, grid={"tau": [1, 2]}, num_seeds=2, noise=0.0)
    frame["knn_top1"] = [10.0, 90.0, 80.0, 20.0]
    contrasts = {"it": {"of": "dcl", "at": {"tau": 1}, "minus": {"tau": 2}}}
    row = clsweep.analyse(frame).contrasts(contrasts).iloc[0]
    assert [row["low"], row["estimate"], row["high"]] == [-100, 0, 100]
