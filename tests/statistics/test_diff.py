"""Two planted studies side by side: facts that differ, answers that changed, and false alarms."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import clsweep
from clsweep.errors import RequestError
from clsweep.results.recorded_facts import facts_apart
from clsweep.statistics.contrast import outcome
from clsweep.statistics.diff import heading_data, headline
from clsweep.study.resolve import load_study
from clsweep.sweeps.notes import notes_of, records_of
from tests.planted import planted, recorded, study_at

USED = ("plan_table", "trials_table", "study", "params", "folder", "score_on")  # by `facts_apart`
LEVELS = {0.05: 80.0, 0.1: 85.0, 0.2: 90.0, 0.5: 84.0}


def folder(path, *, rng=0, shift=0.0, of="dcl", noise=0.3, by_seed=0.0, facts=None,
           lose=lambda _: False, **changes):  # fmt: skip
    """A recorded study of two objectives, whose scores have a part of each seed's own."""
    path.mkdir()
    space = {"tau": {"grid": [*LEVELS]}}
    given = {"space": space, "seeds": [0, 1, 2, 3], "metric": {"name": "knn_top1"}}
    study = load_study(study_at(path / "study.yaml", **given | changes))
    draws, effects = np.random.default_rng(rng), {}

    def outcome(row):
        effect = effects.setdefault(row["seed"], by_seed * draws.standard_normal())
        level = LEVELS[row["tau"]] + (shift if row["objective"] == of else 0.0)
        score = level + effect + noise * draws.standard_normal()
        versions = {"clsweep_version": "0.1.0", "torch_version": "2.8.0"}
        if lose(row):
            return {"status": "failed", **versions}
        return {"knn_top1": score, "alignment": 1.0 - score / 100, **versions, **(facts or {})}

    return recorded(path / "results", study, outcome)


def rows_of(a, b, **options):
    frame = clsweep.open_results(a, **options).diff(clsweep.open_results(b, **options))
    return frame, frame[frame["part"] == "answers"].set_index(["objective", "what"])


OTHER_TORCH = ["versions", "torch_version", "2.8.0", "2.9.0"]


@pytest.mark.parametrize(
    ("changes", "differing", "verdicts", "first"),
    [
        ({}, [], {"the same"}, "same versions: every answer is the same."),
        (
            {"rng": 1, "facts": {"torch_version": "2.9.0"}},
            [OTHER_TORCH],
            {"not resolved"},
            "other versions: no answer is shown to change.",
        ),
        ({"rng": 1, "shift": -3.0}, [], {"not resolved", "fell"}, "dcl's mean fell by"),
    ],
)
def test_the_first_line_says_what_differs(tmp_path, changes, differing, verdicts, first):
    frame, answers = rows_of(folder(tmp_path / "a"), folder(tmp_path / "b", **changes))
    facts = frame[frame["part"] != "answers"]
    assert facts[["part", "what", "first", "second"]].to_numpy().tolist() == differing
    assert {*answers.loc[[("dcl", "mean"), ("simclr", "mean")], "verdict"]} == verdicts
    assert first in headline(frame)


@pytest.mark.parametrize("seeds", [[0, 1, 2, 3], [4, 5, 6, 7, 8]])
def test_means_are_compared_by_the_t_test_of_their_seeds(tmp_path, seeds):
    """Paired at the same seeds, by Welch's at others: scipy's, of the means of each seed."""
    a = folder(tmp_path / "a", by_seed=1.0)
    b = folder(tmp_path / "b", rng=1, by_seed=1.0, seeds=seeds)
    _, answers = rows_of(a, b)
    dcl = [clsweep.open_results(x).trials.query("objective == 'dcl'") for x in (b, a)]
    by_seed = [trials.groupby("seed")["knn_top1"].mean() for trials in dcl]
    paired = seeds == [0, 1, 2, 3]
    expected = stats.ttest_rel(*by_seed) if paired else stats.ttest_ind(*by_seed, equal_var=False)
    row = answers.loc[("dcl", "mean")]
    assert row["p"] == pytest.approx(expected.pvalue, rel=1e-6)
    ends = expected.confidence_interval(0.95)
    assert row[["low", "high"]].tolist() == pytest.approx([ends.low, ends.high], rel=1e-6)


def test_settings_and_seeds_in_common_are_compared(tmp_path):
    b = folder(tmp_path / "b", seeds=[0, 1], space={"tau": {"grid": [0.1, 0.2]}})
    frame, answers = rows_of(folder(tmp_path / "a"), b)
    assert {"seeds", "tau"} <= {*frame["what"]}
    trials = clsweep.open_results(tmp_path / "a" / "results").trials
    common = trials.query("objective == 'dcl' and tau in (0.1, 0.2) and seed in (0, 1)")
    assert answers.loc[("dcl", "mean"), "first"] == pytest.approx(common["knn_top1"].mean())
    assert "over the 2 settings of both" in answers.loc[("dcl", "mean"), "note"]


def test_what_one_study_sweeps_and_the_other_holds_fixed_has_a_setting_in_common(tmp_path):
    fixed = {
        name: {"framework": "simclr", "loss": name, "base": {"tau": 0.2}}
        for name in ("simclr", "dcl")
    }
    fixed["simclr"]["loss"] = "infonce"
    sides = {"space": {"lr": {"grid": [0.1, 0.2]}}, "objectives": fixed}
    b = folder(tmp_path / "b", **sides)
    swept = {"space": {"tau": {"grid": [0.1, 0.2]}}, "base": {"epochs": 1, "lr": 0.2}}
    _, answers = rows_of(folder(tmp_path / "a", **swept), b)
    row = answers.loc[("dcl", "mean")]
    trials = clsweep.open_results(tmp_path / "a" / "results").trials
    common = trials.query("objective == 'dcl' and tau == 0.2")
    assert row["first"] == pytest.approx(common["knn_top1"].mean())
    assert row["note"] == "over the 1 settings of both, of 2 and 2"
    assert answers.loc[("dcl", "SD*"), "verdict"] == "not measured"


def test_an_older_folder_ran_at_what_is_the_default_since(tmp_path):
    folder(tmp_path / "a")
    tables = clsweep.open_results(tmp_path / "a" / "results").tables
    without = tables.plan_table.drop_columns(["grad_clip"])
    used = {name: getattr(tables, name) for name in USED}
    older = SimpleNamespace(**used | {"plan_table": without})
    assert facts_apart(older, tables) == []
    clipped = folder(tmp_path / "b", base={"epochs": 1, "grad_clip": 0.5})
    rows = facts_apart(older, clsweep.open_results(clipped).tables)
    assert [(x["first"], x["second"]) for x in rows if x["what"] == "grad_clip"] == [("0", "0.5")]


def test_another_data_set_or_metric_is_refused_for_answers(tmp_path):
    a = folder(tmp_path / "a")
    other = folder(tmp_path / "b", dataset={"name": "digits", "val_fraction": 0.3})
    frame, answers = rows_of(a, other)
    assert {*answers["verdict"]} == {"not compared"}
    assert answers["difference"].isna().all()
    assert "val_fraction" in headline(frame) or "num_train" in headline(frame)
    linear = folder(tmp_path / "c", metric={"name": "linear_top1"}, facts={"linear_top1": 1.0})
    frame, answers = rows_of(a, linear)
    assert {*answers["verdict"]} == {"not compared"}
    assert "linear_top1" in headline(frame)


def test_no_objective_in_common_is_said(tmp_path):
    other = {"dclw": {"framework": "simclr", "loss": "dclw"}}
    frame, _ = rows_of(folder(tmp_path / "a"), folder(tmp_path / "b", objectives=other))
    assert "no objective is in both studies" in headline(frame)


def test_contrasts_of_both_are_compared(tmp_path):
    asked = {"contrasts": {"gain": {"of": ["dcl", "simclr"]}}}
    a, b = folder(tmp_path / "a", **asked), folder(tmp_path / "b", rng=1, shift=4.0, **asked)
    _, answers = rows_of(a, b)
    row = answers.loc[("", "gain")]
    assert (row["verdict"], row["at_second"]) == ("rose", "shown")
    assert row["difference"] == pytest.approx(row["second"] - row["first"])


def with_images(path, *, rng, shift=0.0, **changes):
    """A recorded study that says which of 300 images, some easier than others, each trial has
    right.
    """
    path.mkdir()
    given = {"space": {"tau": {"grid": [*LEVELS]}}, "seeds": [0, 1, 2, 3]} | changes
    study = load_study(study_at(path / "study.yaml", **given))
    draws, easy = np.random.default_rng(rng), np.random.default_rng(99).standard_normal(300)
    right = {}

    def outcome(row):
        level = np.log(LEVELS[row["tau"]] / (100 - LEVELS[row["tau"]])) + shift
        right[row["trial_id"]] = draws.random(300) < 1 / (1 + np.exp(-level - 2 * easy))
        return {"knn_top1": 100 * right[row["trial_id"]].mean()}

    def hits(row):
        bits = np.packbits(right[row["trial_id"]]).tobytes()
        which = {"metric": "knn_top1", "split": "validation", "images": "these"}
        return [{**which, "num_images": 300, "bits": bits}]

    return recorded(path / "results", study, outcome, hits=hits)


def test_answers_are_for_new_images_as_those_of_both_studies_together_are(tmp_path):
    asked = {"contrasts": {"gain": {"of": ["dcl", "simclr"]}}}
    a = with_images(tmp_path / "a", rng=0, name="one", **asked)
    b = with_images(tmp_path / "b", rng=1, name="two", shift=0.4, **asked)
    _, answers = rows_of(a, b)
    together = clsweep.open_results(a, b)
    for what, stat in (("SD*", "std"), ("best", "tuned")):
        [expected] = together.compare("two/dcl", "one/dcl", stat=stat).to_dict("records")
        row = answers.loc[("dcl", what)]
        names = {"first": "value_b", "second": "value_a", "difference": "estimate"}
        for ours, theirs in names.items():
            assert row[ours] == pytest.approx(expected[theirs], rel=1e-9), (what, ours)
        for end in ("low", "high"):  # by other random numbers
            near = 0.1 * (expected["high"] - expected["low"])
            assert row[end] == pytest.approx(expected[end], abs=near), (what, end)
    _, fixed = rows_of(a, b, images="fixed")
    widths, of_seeds = (x["high"] - x["low"] for x in (answers, fixed))
    is_mean = widths.index.get_level_values("what") != "SD*"
    assert (widths >= of_seeds - 1e-9)[is_mean].all()  # what images give to both cancels
    assert (widths > 1.02 * of_seeds)[is_mean].any()


def test_where_one_study_keeps_no_hits_both_are_for_these_images(tmp_path):
    a = with_images(tmp_path / "a", rng=0)
    b = shutil.copytree(a, tmp_path / "bare")
    (b / "hits.parquet").unlink()
    for part in b.glob("parts/hits/*"):
        part.unlink()
    _, answers = rows_of(a, b)
    assert set(answers["verdict"]) == {"the same"}
    assert answers["first"].equals(answers["second"])
    both = [clsweep.open_results(x).data for x in (a, b)]
    assert heading_data(*both).images == heading_data(*both[::-1]).images == "these images"


def test_a_contrasts_verdict_is_that_of_its_study():
    """Corrected for all of them, and with the room of all its objectives."""
    kept = clsweep.open_results("docs/results/claims-negatives")
    rows = kept.diff(kept).query("part == 'answers'").set_index("what")
    for row in records_of(kept.contrasts()):
        assert rows.loc[row["contrast"], "at_first"] == outcome(row)


def test_what_is_no_study_with_trials_is_refused(tmp_path):
    a = clsweep.open_results(folder(tmp_path / "a"))
    empty = recorded(tmp_path / "empty", load_study(tmp_path / "a" / "study.yaml"), lambda _: None)
    with pytest.raises(RequestError, match="no trial has finished"):
        a.diff(clsweep.open_results(empty))
    table = planted(lambda _: 80.0, grid={"tau": [0.1, 0.2]})
    with pytest.raises(RequestError, match="expected one results folder"):
        a.diff(clsweep.analyse(table, metric="knn_top1", params=["tau"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds", [[0, 1, 2, 3], pytest.param([4, 5, 6, 7], marks=pytest.mark.soak)]
)
def test_false_alarms_are_as_rare_as_promised(tmp_path, seeds):
    """Of null pairs whose seeds have effects, at most 5 % show any change, within chance."""
    num = 80
    alarms = 0
    for i in range(num):
        a = folder(tmp_path / f"a{i}", rng=2 * i, by_seed=1.0)
        b = folder(tmp_path / f"b{i}", rng=2 * i + 1, by_seed=1.0, seeds=seeds)
        alarms += not rows_of(a, b)[1]["verdict"].isin(["not resolved"]).all()
    assert alarms <= stats.binom.ppf(0.999, num, 0.05)


def test_with_failed_trials_a_change_is_that_of_the_levels_beside_it(tmp_path):
    """Both studies count them at the worst score of both, so that a level is not its study's."""
    asked = {
        "gain": {"of": ["dcl", "simclr"]},
        "cold": {"of": "dcl", "at": {"tau": 0.1}, "minus": {"tau": 0.5}},
        "apart": {"of": ["dcl", "simclr"], "metric": "alignment"},
    }
    lose = lambda row: (row["objective"], row["seed"]) == ("dcl", 1) and row["tau"] > 0.1  # noqa: E731
    a, b = (
        folder(tmp_path / name, rng=ord(name), shift=shift, contrasts=asked, lose=lose)
        for name, shift in {"a": 0.0, "b": -4.0}.items()
    )
    frame, answers = rows_of(a, b)
    for (_, what), row in answers.iterrows():
        change = row["second"] / row["first"] if what == "SD*" else row["second"] - row["first"]
        assert row["difference"] == pytest.approx(change), what
    notes = [note for note in notes_of(frame) if "failed" in note]
    named = {name for note in notes for name in note.partition(": ")[0].split(", ")}
    assert named == {"dcl", "gain", "cold", "apart"}
