"""`clsweep confirm`: which configurations run again, exactly as the search had them, and what comes
out.
"""

import json
import math

import pytest

import clsweep
from clsweep.cli.status import best_when_tuned, confirm_headline, status_rows
from clsweep.cli.trials import confirm_notes
from clsweep.cluster.confirm import confirming_study, plan_confirmation
from clsweep.cluster.schedulers.asha import AshaConfig
from clsweep.errors import RequestError, UserError
from clsweep.report import first_screen
from clsweep.results.folder import ResultsFolder
from clsweep.statistics import verdicts
from clsweep.statistics.recommend import CONFIRMATION
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from clsweep.train.loop import train_trial

SMALL = {"encoder": "conv4", "width": 8, "epochs": 4, "eval_every": 1}
IDS = {"trial_id", "seed", "sampler"}
CHOSEN = {  # its values are known once it runs
    "space": {
        "batch_size": {"choices": [32, 64, 128]},
        "tau": {"low": 0.05, "high": 1.0, "log": True},
    },
    "objectives": {"eqco": {"framework": "simclr", "loss": "eqco", "regularizer": "dimcl"}},
    "search": {"method": "tpe", "trials_per_objective": 3},
}


def score(trial):
    """Configuration 1 is best, 0 second; the seeds differ."""
    return 80.0 + {0: 5, 1: 8}.get(trial.config, 0) + trial.seed % 10 / 10


def search_in(folder, study, *, chosen=None, **of):
    """Results of a search that never ran; `of` are outcomes of some trials by id, with `_` for
    `-`.
    """
    results = ResultsFolder(str(folder))
    planned = plan_trials(study)
    results.create(study.document.dump(), [plan_row(study, trial) for trial in planned])
    for trial in planned:
        row = plan_row(study, trial, (chosen or {}).get(trial.config))
        row |= {"precision": "fp32", "status": "finished", "knn_top1": score(trial)}
        row["wall_time_s"] = 1.0 + trial.config
        results.add_trial(row | of.get(trial.trial_id.replace("-", "_"), {}))
    results.compact()
    return results


@pytest.fixture
def searched(write_study, tmp_path):
    """Of a study with changes, the results that `search_in` makes."""

    def search(*, outcomes=None, **changes):
        study = load_study(write_study(**changes))
        return search_in(tmp_path / "out", study, **(outcomes or {}))

    return search


def confirmed_in(folder, study, *, lift=0.0, has_test=True):
    """A confirmation that never ran; the fresh scores are those of the search, `lift` higher."""
    planned, results = plan_confirmation(study, folder), folder.confirmation
    known = results.plan().to_pylist() if results.exists() else []
    rows = {row["trial_id"]: row for row in known}
    rows |= {trial.trial_id: plan_row(study, trial) for trial in planned}
    results.create(study.document.dump(), list(rows.values()))
    for trial in planned:
        scores = {"knn_top1": score(trial) + lift}
        scores |= {"test_knn_top1": score(trial) - 10} if has_test else {}
        results.add_trial(plan_row(study, trial) | {"status": "finished", **scores})


def test_the_best_of_each_objective_on_each_seed_best_first(searched):
    folder = searched(confirm={"top": 1, "seeds": [10, 11]})
    planned = plan_confirmation(confirming_study(folder), folder)
    ids = ["simclr-0001-s10", "simclr-0001-s11", "dcl-0001-s10", "dcl-0001-s11"]
    assert [trial.trial_id for trial in planned] == ids
    assert {trial.sampler for trial in planned} == {"confirm"}
    chosen = plan_confirmation(confirming_study(folder, top=5, seeds=[7]), folder)
    assert [trial.trial_id for trial in chosen] == [
        "simclr-0001-s7", "dcl-0001-s7", "simclr-0000-s7", "dcl-0000-s7",
    ]  # fmt: skip


def test_by_another_metric_what_is_not_confirmed_is_of_its_own_best(searched):
    """By the linear probe the first configurations are the best, which were not run again."""
    linear = {
        f"{o}_000{c}_s{s}": 90.0 - c for o in ("simclr", "dcl") for c in (0, 1) for s in (0, 1)
    }
    outcomes = {name: {"knn_top1": 50.0 - y, "linear_top1": y} for name, y in linear.items()}
    folder = searched(outcomes=outcomes, confirm={"top": 1, "seeds": [10]})
    confirmed_in(folder, confirming_study(folder))
    assert not any(
        "not confirmed" in x for x in confirm_notes(clsweep.open_results(folder.path), top=None)
    )
    results = clsweep.open_results(folder.path, metric="linear_top1")
    missing = "not confirmed yet: 2 of the configurations that are the best now"
    assert missing in confirm_notes(results, top=None)


def test_a_configuration_runs_again_as_it_was_planned(searched):
    objectives = {"ecpp": {"framework": "simclr", "loss": "dcl", "views": "ecpp"}}
    folder = searched(objectives=objectives)
    search = {row["config"]: row for row in folder.plan().to_pylist()}
    again = confirming_study(folder, top=9, seeds=[5])
    rows = [plan_row(again, trial) for trial in plan_confirmation(again, folder)]
    assert len(rows) == len(search) == 2
    for row in rows:
        assert row["precision"] == "fp32"
        expected = {name: value for name, value in search[row["config"]].items() if name not in IDS}
        assert {name: row.get(name) for name in expected} == expected


def test_what_a_live_search_chose_is_taken_from_its_trials(searched):
    chosen = {config: {"batch_size": 32 << config, "tau": 0.1 + config / 7} for config in range(3)}
    live = {**CHOSEN, "scheduler": {"name": "asha"}, "base": SMALL}
    folder = searched(outcomes={"chosen": chosen}, **live)
    again = confirming_study(folder, top=3, seeds=[5])
    planned = plan_confirmation(again, folder)
    rows = {trial.config: plan_row(again, trial) for trial in planned}
    sizes = ("batch_size", "num_negatives", "chunk_size")
    values = [[rows[config][name] for name in sizes] for config in range(3)]
    assert values == [[32, 62, 32], [64, 126, 64], [128, 254, 128]]
    for row in folder.trials().to_pylist():
        again_row = rows[row["config"]]
        assert {name for name, value in again_row.items() if value != row[name]} == IDS
    assert AshaConfig.of(again) is None, "a confirmation stops no trial"


def test_on_gpus_a_search_is_confirmed_in_its_own_precision(searched):
    folder = searched()
    again = confirming_study(folder, seeds=[5], settings=["resources.gpus_per_worker=1"])
    assert {trial.params["precision"] for trial in plan_confirmation(again, folder)} == {"fp32"}


def test_failed_and_unfinished_configurations_are_left_out_and_counted(searched):
    failed = {"dcl_0001_s1": {"status": "failed", "knn_top1": None}}
    folder = searched(outcomes=failed, confirm={"top": 1, "seeds": [10]})
    again = confirming_study(folder)
    planned = [trial.trial_id for trial in plan_confirmation(again, folder)]
    assert planned == ["simclr-0001-s10", "dcl-0000-s10"]
    confirmed_in(folder, again)
    notes = confirm_notes(clsweep.open_results(folder.path), top=None)
    assert any(note.startswith("dcl: 1 of 2 configurations left out") for note in notes)
    assert not any(note.startswith("simclr") for note in notes)


@pytest.mark.parametrize("has_test", [True, False])
def test_a_test_split_without_classes_is_said_to_have_no_score(searched, has_test):
    folder = searched(confirm={"top": 1, "seeds": [10]})
    confirmed_in(folder, confirming_study(folder), has_test=has_test)
    notes = confirm_notes(clsweep.open_results(folder.path), top=None)
    says = "no score on the test split: none of its images has a class"
    assert (says in notes) == (not has_test)


def test_a_search_without_a_finished_configuration_cannot_be_confirmed(write_study, tmp_path):
    study = load_study(write_study())
    folder = ResultsFolder(str(tmp_path / "out"))
    folder.create(study.document.dump(), [plan_row(study, trial) for trial in plan_trials(study)])
    with pytest.raises(RequestError, match="no configuration has finished on all its 2 seeds"):
        plan_confirmation(confirming_study(folder, seeds=[5]), folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give --seeds 10,11,12, or confirm: {top: 3, seeds: "),
        ({"top": 2}, "give --seeds 10,11,12, or confirm: {top: 3, seeds: "),
        (
            {"seeds": [5, 1]},
            "--seeds 5,1: confirm.seeds: expected seeds that the search does not use, given 1",
        ),
        ({"seeds": [5, 5]}, "--seeds 5,5: confirm.seeds: expected distinct seeds, given 5 twice"),
        ({"seeds": ["x"]}, "--seeds x: confirm.seeds.0: expected an integer, given 'x'"),
        (
            {"seeds": [5], "settings": ["base.lr=0.5"]},
            "--set base.lr: '(absent)' -> 0.5: expected a change of where",
        ),
        (
            {"seeds": [5], "settings": ["scheduler.name=asha"]},
            "--set scheduler.name=asha: scheduler.name: has no effect: it is not here",
        ),
        (
            {"seeds": [5], "settings": ["encoders.keep=all"]},
            "--set encoders.keep=all: encoders.keep: has no effect: it is 'none' here",
        ),
    ],
)
def test_a_wrong_request_is_refused(searched, options, message):
    folder = searched(base={"encoder": "conv4", "epochs": 2, "batch_size": 128})
    with pytest.raises(UserError) as error:
        confirming_study(folder, **options)
    assert message in str(error.value)


def test_the_table_shows_what_is_best_now(write_study, tmp_path):
    path = write_study(confirm={"top": 1, "seeds": [10, 11]})
    folder = search_in(tmp_path / "out", load_study(path))
    confirmed_in(folder, confirming_study(folder), lift=-2)
    table = clsweep.open_results(folder.path).confirm()
    shown = table[["objective", "config", "fresh_seeds"]].values.tolist()
    assert shown == [["simclr", 1, 2], ["dcl", 1, 2]]
    assert table["search"].tolist() == pytest.approx([88.05, 88.05])
    assert table["difference"].tolist() == pytest.approx([2, 2])
    assert table["test"].tolist() == pytest.approx([78.05, 78.05])

    # The search goes on: two further seeds turn the order around, and one of them has been a fresh
    # one.
    names = [f"{name}_0000_s{seed}" for name in ("simclr", "dcl") for seed in (2, 11)]
    study = load_study(path, settings=["seeds=[0, 1, 2, 11]", "confirm.seeds=[10]"])
    search_in(tmp_path / "out", study, **{name: {"knn_top1": 99.0} for name in names})
    results = clsweep.open_results(folder.path)
    assert results.confirm()["rank"].tolist() == [2, 2], "of an earlier round"
    assert results.confirm(top=1).empty
    missing = "not confirmed yet: 2 of the configurations that are the best now"
    assert missing in confirm_notes(results, top=None)
    assert confirm_headline(results.tables)[1:] == [missing]
    confirmed_in(folder, confirming_study(folder), lift=-2)
    results = clsweep.open_results(folder.path)
    assert results.confirm(top=1)["config"].tolist() == [0, 0]
    both = results.confirm()
    assert both[["rank", "config", "fresh_seeds"]].values.tolist() == [[1, 0, 1], [2, 1, 1]] * 2
    shown = CONFIRMATION.shown(results.confirm(top=1), results.data, 1)
    assert shown["fresh"].tolist() == ["83.00", "83.00"], "one seed: no interval"
    headline = f"confirmed: 6 of 6 trials; see clsweep confirm {folder.path}"
    assert confirm_headline(results.tables) == [headline]


def test_fresh_seeds_that_overturn_the_pick_are_followed_everywhere(write_study, tmp_path):
    """Configuration 1 is the search's best; on fresh seeds 0 is, by ten points."""
    study = load_study(write_study(confirm={"top": 2, "seeds": [10, 11, 12]}))
    folder = search_in(tmp_path / "out", study)
    confirmed_in(folder, confirming_study(folder))
    for trial in plan_confirmation(confirming_study(folder), folder):
        if trial.config == 0 and trial.objective == "dcl":
            row = plan_row(confirming_study(folder), trial) | {"status": "finished"}
            folder.confirmation.add_trial(row | {"knn_top1": score(trial) + 10 + trial.seed % 3})
    results = clsweep.open_results(folder.path)
    best = results.recommend().query("kind == 'best'").set_index("objective")
    assert best["config"].to_dict() == {"simclr": 1, "dcl": 0}
    at = best.loc["dcl", "at"]
    pair = results.compare("dcl", "simclr", tuned=True).iloc[0]
    assert (pair["at_a"], pair["winner"]) == (at, "dcl")
    assert "3 fresh seeds" in pair["note"]
    assert {row["objective"]: row["at"] for row in status_rows(results.tables)}["dcl"] == at
    assert results.leaderboard()["objective"].tolist()[0] == "dcl"
    told_there = [*first_screen.answer_of(results)[0][:1], *verdicts.recommend_verdict(results)]
    assert all(text.startswith("dcl is best when tuned: it scores") for text in told_there[:2])
    overturned = f"Fresh seeds overturn the pick of dcl: {at} is"
    assert any(text.startswith(overturned) for text in told_there)
    assert list(best_when_tuned(results.tables, status_rows(results.tables))) == told_there[:1]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "no_ray")
def test_a_search_is_confirmed_by_trials_of_their_own(write_study, tmp_path, cli_command):
    objectives = {
        "dcl": {"framework": "simclr", "loss": "dcl"},
        "untrained": {"framework": "simclr", "loss": "dcl", "base": {"epochs": 0}},
    }
    space, live = {"tau": {"low": 0.05, "high": 1.0}}, {"method": "tpe", "trials_per_objective": 2}
    out = tmp_path / "out"
    path = write_study(seeds=[0], objectives=objectives, space=space, search=live)
    search_in(out, load_study(path), chosen={0: {"tau": 0.7}, 1: {"tau": 0.3}})
    confirm = ("confirm", str(out), "--top", "1", "--seeds", "10,11", "--seeds", "12")

    code, output, _ = cli_command(*confirm, "--format", "json")
    assert code == 0, output
    table = json.loads(output[output.index("[\n") :])
    trials = clsweep.open_results(out / "confirm").trials
    assert sorted(trials["seed"]) == [10, 10, 11, 11, 12, 12]
    assert set(trials["status"]) == {"finished"}
    assert [row["objective"] for row in table] == ["dcl", "untrained"]
    for row in table:
        fresh = trials[trials["objective"] == row["objective"]]
        assert row["fresh"] == pytest.approx(math.fsum(fresh["knn_top1"]) / 3)
        assert row["test"] == pytest.approx(math.fsum(fresh["test_knn_top1"]) / 3)
    names = {entry.name for entry in (out / "confirm").iterdir()}
    assert not names & {"encoders", "references.parquet"}
    # what the search chose, not a further choice
    assert set(trials.query("objective == 'dcl'")["tau"]) == {0.3}

    plan = clsweep.open_results(out / "confirm").plan
    row = plan.query("seed == 11 and objective == 'dcl'").iloc[0].dropna().to_dict()
    alone = train_trial(row, lambda _: None, test=True)
    recorded = trials.set_index("trial_id").loc[row["trial_id"]]
    assert alone["test_knn_top1"] == recorded["test_knn_top1"]
    assert alone["knn_top1"] == recorded["knn_top1"]

    code, output, _ = cli_command(*confirm)
    assert code == 0
    assert "6 finished, 0 failed, 0 left" in output
