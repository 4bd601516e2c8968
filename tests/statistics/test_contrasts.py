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
from clsweep.statistics.contrast import CONTRASTS, contrasts_summary, outcome, sentence
from tests.planted import planted

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def batches():
    return clsweep.open_results(ROOT / "docs/results/batch-digits")


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
    # Five have their numbers in the table alone.
    assert verdicts.contrasts_verdict(results) == (first,)
    shown = CONTRASTS.shown(table, results.data, 1.0)
    assert shown["verdict"].tolist() == [outcome(row) for row in rows]


def test_the_page_of_claims_has_every_contrast_that_a_study_asked():
    claims = pd.read_csv(ROOT / "studies/claims.csv", dtype=str, keep_default_na=False)
    listed = set(zip(claims["study"], claims["contrast"], strict=True))
    paths = sorted((ROOT / "docs/results").glob("*/study.yaml"))
    studies = {path.parent.name: clsweep.load_study(path) for path in paths}
    asked = {(name, each) for name, one in studies.items() for each in one.sections.contrasts}
    assert len(asked) >= 45
    assert listed == asked


def test_every_claim_is_one_of_a_study_and_of_a_paper():
    claims = pd.read_csv(ROOT / "studies/claims.csv", dtype=str, keep_default_na=False)
    assert not claims.duplicated(["study", "contrast"]).any()
    page = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
    assert page.count("](gallery/") == len(claims)
    for study, rows in claims.groupby("study"):
        path = ROOT / "studies/measured" / f"{study.replace('-', '_')}.yaml"
        contrasts = clsweep.load_study(path).sections.contrasts
        for claim in rows.to_dict("records"):
            effect = contrasts[claim["contrast"]].published
            printed = "drawn" if claim["item"] else ""  # no paper's: asked beside its claims
            assert claim["effect"] == (printed if effect is None else f"{effect:g}")
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
def test_what_is_asked_later_is_checked_too(batches, change, message):
    with pytest.raises(UserError, match=message):
        batches.contrasts({"it": {"of": ["dcl", "simclr"]} | change})


def test_sides_that_cancel_take_nothing_from_the_others(batches):
    small, large = {"batch_size": 16}, {"batch_size": 256}
    rows = batches.contrasts({
        "same": {"of": "dcl", "at": small, "minus": {"batch_size": "16"}},
        "once": {"of": ["dcl", "untrained"], "at": small, "minus": large},
        "none": {"of": ["dcl", "simclr"], "at": {"batch_size": 32}},
        "dcl": {"of": "dcl", "at": small, "minus": large},
    }).set_index("contrast")  # fmt: skip
    assert rows.loc["once", "estimate"] == rows.loc["dcl", "estimate"]  # untrained has no batches
    assert rows["reason"].tolist() == ["same_settings", "", "no_setting", ""]


@pytest.mark.parametrize("failed", ["worst", "chance", "left out"])
def test_by_another_metric_failed_trials_count_as_where_it_is_the_metric(failed):
    """Of a diagnostic nothing says which values are bad, so its failed trials are left out."""
    frames = [
        planted(lambda at, y=y: y + 5 * at["tau"], objective=name, grid={"tau": [1, 2, 3]}, seed=y)
        for name, y in {"dcl": 60, "simclr": 62}.items()
    ]
    table = pd.concat(frames, ignore_index=True).assign(num_classes=10)
    failing = table.query("objective == 'dcl' and tau > 1 and seed == 0").index
    table.loc[failing, "status"] = "failed"
    scores = table["knn_top1"].where(table["status"] == "finished")
    table = table.assign(knn_top5=scores / 2 + 50, q_b_mean=scores / 100, train_loss=-scores)
    asked = {
        name: {"of": ["dcl", "simclr"], "metric": name}
        for name in ("knn_top5", "train_loss", "q_b_mean")
    }
    beside = clsweep.analyse(table, metric="knn_top1", failed=failed).contrasts(asked)
    beside = beside.set_index("contrast")
    for name in ("knn_top5", "train_loss"):
        how = "left out" if (failed, name) == ("chance", "train_loss") else failed
        alone = clsweep.analyse(table, metric=name, failed=how).contrasts(asked)
        columns = ["estimate", "low", "high", "shown", "note"]
        expected = alone.set_index("contrast").loc[name, columns].to_dict()
        assert beside.loc[name, columns].to_dict() == expected
    assert "dcl: 2 of 9 trials failed and are left out" in beside.loc["q_b_mean", "note"]
    assert beside.loc["q_b_mean", "estimate"] == pytest.approx(-0.02, abs=0.004)


def test_two_percentages_differ_by_no_more_than_100_points():
    frame = planted(lambda _: 50.0, grid={"tau": [1, 2]}, num_seeds=2, noise=0.0)
    frame["knn_top1"] = [10.0, 90.0, 80.0, 20.0]
    contrasts = {"it": {"of": "dcl", "at": {"tau": 1}, "minus": {"tau": 2}}}
    row = clsweep.analyse(frame).contrasts(contrasts).iloc[0]
    assert [row["low"], row["estimate"], row["high"]] == [-100, 0, 100]


@pytest.mark.parametrize(("best", "verdict"), [(92, "no room for the published"),
                                               (99, "less than published")])  # fmt: skip
def test_no_effect_is_less_than_published_where_none_of_that_size_fits(best, verdict):
    """simclr is at 90, dcl at 90.5; a third objective says how high a score can be, a fourth how
    low: 80.
    """
    levels = {"dcl": 90.5, "simclr": 90.0, "high": best, "low": 80.0}
    frames = [
        planted(lambda _, y=y: y, objective=name, grid={"tau": [1]}, num_seeds=9, seed=seed)
        for seed, (name, y) in enumerate(levels.items())
    ]
    table = pd.concat(frames, ignore_index=True)
    means = table.groupby("objective")["knn_top1"].mean()
    asked = {"gain": {"of": ["dcl", "simclr"], "published": 4.8},
             "loss": {"of": ["dcl", "simclr"], "published": -4.8}}  # fmt: skip
    rows = clsweep.analyse(table).contrasts(asked).set_index("contrast")
    assert rows["excluded"].all()
    assert rows.loc["gain", "room"] == pytest.approx(means["high"] - means["simclr"])
    assert rows.loc["loss", "room"] == pytest.approx(means["simclr"] - means["low"])
    assert outcome(rows.loc["gain"]).endswith(verdict)
    assert outcome(rows.loc["loss"]).endswith(("less than published", "the other way"))
    text = sentence(rows.loc["gain"].to_dict() | {"contrast": "gain"})
    assert ("no room" in text) == (best == 92)
