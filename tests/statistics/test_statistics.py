"""The statistics as a user asks for them: from Python, of folders, files and tables, and from the
command line.
"""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import clsweep
from clsweep.analysis.reasons import Reason
from clsweep.cli.trials import confirm_notes
from clsweep.errors import RequestError
from clsweep.report import first_screen
from clsweep.report.report_folder import render_markdown, write_bundle
from clsweep.report.sections import build_report
from clsweep.results.folder import ResultsFolder
from clsweep.study.resolve import load_study
from clsweep.sweeps.study_data import near_of
from tests.planted import planted, recorded, three_objectives
from tests.statistics.given import figures_of

STUDY = Path(__file__).parents[1] / "taus.yaml"


def curve(depth):
    """Best at tau 0.2, `depth` points a decade squared below."""
    return lambda setting: 90 - depth * math.log10(setting["tau"] / 0.2) ** 2


@pytest.fixture(scope="module")
def trials():
    return three_objectives()


def make_study(path, *, name="taus", level=None, ended=10**9, settings=(), columns=None):
    """A results folder of the grid of temperatures, of which the first `ended` trials are over."""
    rng, number = np.random.default_rng(0), itertools.count()

    def outcome(row):
        if next(number) >= ended:
            return None
        score = (level or curve(5))(row) if row.get("tau") else 80.0
        return {"knn_top1": score + 0.2 * rng.standard_normal(), **(columns or {})}

    return recorded(path, load_study(STUDY, settings=[f"name={name}", *settings]), outcome)


# Python


def test_any_numbers_can_be_the_metric_and_any_names_the_parameters():
    ranges = {"x1": (0, 1), "x2": (0, 1)}
    frame = planted(lambda s: 4 * s["x1"] + s["x2"], ranges=ranges, metric="loss", noise=0.05)
    with pytest.raises(RequestError, match="expected 'max' or 'min' is best"):
        clsweep.analyse(frame, metric="loss")
    found = clsweep.analyse(frame, metric="loss", mode="min")
    assert found.data.within == 0.2  # a twentieth of the range of 5, as 1, 2 or 5
    assert found.data.params == ("x1", "x2")
    row = found.robustness().iloc[0]
    assert row["best"] < row["worst"]
    with pytest.raises(RequestError, match=r"none of the known metrics; name one. Columns: .*loss"):
        clsweep.analyse(frame)


def test_outcomes_are_no_hyperparameters(trials):
    rng = np.random.default_rng(0)
    more = trials.assign(top3=rng.random(len(trials)), features=[np.zeros(2)] * len(trials))
    found = clsweep.analyse(more)
    assert found.data.params == ("tau", "batch_size")
    assert found.data.notes == (
        "read as hyperparameters: tau, batch_size; not: top3, features; params names others",
        "read on a log axis: tau",
    )
    # One seed: `top3` has one value in each configuration.
    alone = clsweep.analyse(more[more["seed"] == 0])
    assert alone.data.params == ("tau", "batch_size")
    named = clsweep.analyse(more[more["seed"] == 0], params=["tau"])
    assert named.robustness(by="tau").shape[0] == 3
    with pytest.raises(RequestError, match="top3"):
        clsweep.analyse(more, params=["top3"])
    with pytest.raises(RequestError, match="'features': expected numbers or texts, given array"):
        clsweep.analyse(more, params=["features"])
    with pytest.raises(RequestError, match=r"from outcomes; name them\. Columns: top3, features"):
        clsweep.analyse(more[more["seed"] == 0].drop(columns=["tau", "batch_size"]))


def test_questions_that_the_trials_cannot_answer(trials):
    found = clsweep.analyse(trials)
    for compute, message in [
        (lambda: found.robustness(by="taus"), r"no objective sweeps 'taus'. Did you mean 'tau'"),
        (lambda: found.mechanism(by="taus"), r"^table: by: no objective sweeps 'taus'\. Did you"),
        (lambda: found.sensitivity("dlc"), r"no objective 'dlc'. Did you mean 'dcl'"),
        (lambda: found.compare("dcl", "simcrl"), "Did you mean 'simclr'"),
        (lambda: found.compare("dcl"), "expected two objectives"),
        (lambda: found.compare("dcl", "simclr", stat="median"), "median"),
    ]:
        with pytest.raises(RequestError, match=message):
            compute()


def test_several_studies_are_analysed_together(tmp_path):
    first = make_study(tmp_path / "a", name="first")
    second = make_study(tmp_path / "b", name="second", level=curve(15))
    found = clsweep.open_results(first, second)
    names = list(found.robustness()["objective"])
    assert names[:3] == ["first/simclr", "first/dcl", "first/dclw"]
    assert found.compare("first/dcl", "second/dcl", stat="std").iloc[0]["winner"] == "first/dcl"
    same = make_study(tmp_path / "c", name="first")
    assert {"a/dcl", "c/dcl"} <= set(clsweep.open_results(first, same).robustness()["objective"])
    with pytest.raises(RequestError, match="given twice"):
        clsweep.open_results(first, first)


FINAL = ["evaluation={train_on: all, score_on: test}", "dataset.val_fraction=null"]


@pytest.mark.parametrize(("settings", "is_marked"), [([], False), (FINAL, True)])
def test_scores_of_the_test_split_are_marked_wherever_they_are_shown(
    tmp_path, cli_command, settings, is_marked
):
    path = make_study(tmp_path / "out", settings=settings)
    data = clsweep.open_results(path).data
    assert ("test split" in data.metric_title) == is_marked
    assert any("on the test split" in note for note in data.notes) == is_marked
    assert ("test split" in cli_command("trials", path)[1]) == is_marked
    for line, kind in {"robustness": "md", "compare": "csv", "status": "json"}.items():
        assert ("test split" in cli_command(line, path)[1]) == is_marked, line
        assert ("score_on" in cli_command(line, path, "--format", kind)[1]) == is_marked, line
    for name in ("trials", "plan", "epochs"):
        metadata = pq.read_schema(f"{path}/{name}.parquet").metadata or {}
        assert (metadata.get(b"score_on") == b"test") == is_marked


@pytest.mark.slow
def test_a_report_on_the_test_split_says_so_and_its_scores_meet_no_others(tmp_path):
    plain, final = make_study(tmp_path / "a"), make_study(tmp_path / "b", settings=FINAL)
    page = render_markdown(build_report(clsweep.open_results(final)))
    assert "best, of the test split" in page
    assert "scored on the test split" in page
    write_bundle(build_report(clsweep.open_results(final)), tmp_path / "report")
    written = sorted((tmp_path / "report").glob("*/*.csv"))
    assert len(written) > 5
    for file in written:
        assert set(pd.read_csv(file)["score_on"]) <= {"test"}, file.name
    table = clsweep.open_results(f"{final}/trials.parquet").data
    assert table.on_test
    across = clsweep.open_results(plain, final).compare().query("reason == 'yardsticks'")
    assert across["note"].str.contains("score_on").all()
    assert len(across)


@pytest.mark.parametrize("settings", [[], FINAL], ids=["validation", "test"])
def test_a_confirmation_by_the_test_split_says_what_it_leaves_in(tmp_path, settings):
    path = make_study(tmp_path / "out", settings=settings)
    fresh = ["seeds=[10, 11]", "confirm={seeds: [12]}"]
    make_study(tmp_path / "out" / "confirm", settings=[*settings, *fresh])
    results = clsweep.open_results(path)
    says = [note for note in confirm_notes(results, top=1) if "both of the test split" in note]
    assert bool(says) == bool(settings)
    assert len(results.confirm(top=1))


def test_scores_of_different_yardsticks_are_not_compared(tmp_path):
    first = make_study(tmp_path / "a", name="first")
    others = ["base.knn_k=20", "base.batch_size=64"]
    second = make_study(tmp_path / "b", name="second", settings=others)
    found = clsweep.open_results(first, second)
    differing = "batch_size (32, 64), chunk_size (32, 64), knn_k (200, 20)"
    said = f"objectives differ in what they hold fixed: {differing}"
    assert found.data.notes == (said,)
    row = found.compare("first/dcl", "second/dcl").iloc[0]
    assert (row["reason"], row["resolved"]) == (Reason.YARDSTICKS, False)
    assert row["note"] == "scored by different yardsticks: knn_k 200 against knn_k 20"
    assert math.isnan(row["estimate"])
    within = found.compare("first/dcl", "first/simclr").iloc[0]
    assert np.isfinite(within["estimate"])
    assert set(found.winners("tau")["objective"].str.partition("/")[0]) == {"first", "second"}
    pairs = found.compare(stat="std")
    across = pairs["a"].str.startswith("first") & pairs["b"].str.startswith("second")
    assert set(pairs.loc[across, "reason"]) == {Reason.YARDSTICKS}
    ranked = found.leaderboard()
    assert {*ranked["yardstick"]} == {"knn_k 200", "knn_k 20"}
    for _, rows in ranked.groupby("yardstick"):
        assert rows["objective"].str.partition("/")[0].nunique() == 1
        assert rows["score"].is_monotonic_decreasing
    said, _ = first_screen.answer_of(found)
    assert [sentence.partition(":")[0] for sentence in said[:4]] == [
        f"For {name}" for name in dict.fromkeys(ranked["yardstick"]) for _ in ("tuned", "untuned")
    ]
    drawn = [f for name, f in figures_of("marginals", found).items() if "marginal-tau" in name]
    assert [len(set(f.data["objective"].str.partition("/")[0])) for f in drawn] == [1, 1]


def test_losses_of_different_objectives_are_not_compared(tmp_path):
    # An objective that nobody shares the hyperparameter with stands alone, and is no obstacle.
    path = make_study(tmp_path / "a", columns={"train_loss": 2.0})
    found = clsweep.open_results(path, metric="train_loss")
    pairs = pd.concat([found.compare(), found.compare(stat="tuned"), found.compare(by="tau")])
    assert set(pairs["reason"]) == {Reason.YARDSTICKS}
    assert "loss of simclr" in pairs["note"].iloc[0]
    assert set(found.winners("tau")["reason"]) == {Reason.NOBODY_ELSE}
    assert "A lower loss need not be a better encoder" in found.data.notes[0]
    assert first_screen.answer_of(found)[0]


def test_near_the_best_knows_the_ranges_of_each_yardstick_alone(trials):
    first, *_, last = clsweep.analyse(trials).data.sweeps
    narrow = replace(first, scores=100.0 + first.scores / 1000.0)
    assert near_of("", (narrow, last), {first.objective: "its own"}) == near_of("", (last,), {})
    assert near_of("", (narrow, last), {}) > near_of("", (last,), {})


def test_another_metric_than_the_study_s_own(tmp_path):
    path = make_study(tmp_path / "a", columns={"images_per_s": 2.0})
    with pytest.raises(RequestError, match="expected 'max' or 'min' is best"):
        clsweep.open_results(path, metric="images_per_s")
    for given in ({}, {"metric": "knn_top1"}, {"metric": "linear_top1"}):
        with pytest.raises(RequestError, match="expected 'max', which is best, got 'min'"):
            clsweep.open_results(path, mode="min", **given)
    found = clsweep.open_results(path, metric="images_per_s", mode="min")
    assert found.robustness()["mean"].tolist() == [2.0] * 4
    said = r"no column 'knn_topp'. Did you mean 'knn_top[15]'\? Known metrics: knn_top1"
    for mode in (None, "max"):
        with pytest.raises(RequestError, match=said):
            clsweep.open_results(path, metric="knn_topp", mode=mode)
    empty = clsweep.open_results(path, metric="q_b_mean", mode="max").robustness()
    assert empty["note"].str.contains("no finished trial has a score").all()
    assert (empty["num_failed"] == 0).all()


@pytest.mark.parametrize("failed", ["worst", "chance", "left-out"])
def test_failures_of_an_objective_without_the_metric_are_left_out(failed):
    grid = {"tau": [0.1, 0.5]}
    frames = [planted(lambda _: 80.0, objective=name, grid=grid) for name in ("dcl", "byol")]
    table = pd.concat(frames, ignore_index=True).assign(num_classes=10)
    lacks = table["objective"] == "byol"
    table.loc[lacks, "knn_top1"] = None
    table.loc[table["seed"] == 1, "status"] = "failed"
    results = clsweep.analyse(table, metric="knn_top1", failed=failed)
    for frame in (results.robustness(), results.robustness(by="tau"), results.recommend()):
        note = frame.set_index("objective")["note"]["byol"]
        texts = [note] if isinstance(note, str) else note.tolist()
        assert "2 of 6 trials failed and are left out" in texts[0]


def test_what_a_running_study_says(tmp_path):
    path = make_study(tmp_path / "a", ended=20)
    found = clsweep.open_results(path)
    assert found.data.notes == ("taus: not finished; 28 of 48 trials are left",)
    assert "planned configurations so far" in found.robustness()["note"].iloc[0]
    folder = ResultsFolder(path)
    with folder.lock():
        folder.keep_search_end(["dcl: 5 are enough", "The budget is spent."], 27)  # once
    assert clsweep.open_results(path).data.notes == found.data.notes
    with folder.lock():
        folder.keep_search_end(["dcl: 5 are enough", "The budget is spent."], 28)
    ended = clsweep.open_results(path).data
    end = "the search ended with 28 trials left out. dcl: 5 are enough; The budget is spent"
    assert (ended.notes, ended.left) == ((f"taus: {end}",), 0)
    for damaged in (b"", b"[]", b'{"left": 28}', b'{"left": 28, "ends": 3}'):
        (tmp_path / "a" / "search_end.json").write_bytes(damaged)
        assert clsweep.open_results(path).data.left == 28
    with folder.lock():
        folder.keep_search_end([], 0)
    assert not (tmp_path / "a" / "search_end.json").exists()
    with pytest.raises(RequestError, match="no trial has finished yet"):
        clsweep.open_results(make_study(tmp_path / "b", ended=0)).sensitivity()


def test_the_report_writes_its_page(trials, tmp_path):
    folder, said = tmp_path / "report", []
    few = trials[trials["batch_size"] == 64].drop(columns="batch_size")
    page = clsweep.analyse(few).report(folder, progress=said.append)
    assert page == folder / "index.html"
    assert "robustness" in said
    text = page.read_text(encoding="utf-8")
    assert "<b>x</b>" not in text
    assert "dcl is more robust than simclr" in text
    assert (folder / "report.md").read_text(encoding="utf-8").count("dcl is more robust")
    assert pd.read_parquet(folder / "tables" / "robustness.parquet").shape[0] == 3


# The command line


def test_compare_takes_two_names_after_the_folders(cli_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where a folder is called like an objective
    path = make_study(tmp_path / "a")
    (tmp_path / "dcl").mkdir()
    code, out, _ = cli_command("compare", path, "dcl", "simclr", "--format", "json")
    assert code == 0
    assert [(row["a"], row["b"]) for row in json.loads(out)] == [("dcl", "simclr")]
    code, _, err = cli_command("compare", path, "dcll", "simclr")
    assert code == 2
    assert "no objective 'dcll'. Did you mean 'dcl'?" in err
    for words in (["dcll"], ["dcll", "simclr", "dclw"]):
        code, _, err = cli_command("compare", path, *words)
        assert code == 2
        assert "expected results folders and then two objectives" in err
