"""Searches by `clsweep run`, from end to end but without Ray: cut and gone on with, logged, and at
an end before their plan.
"""

import pandas as pd
import pytest
from optuna.trial import TrialState

import clsweep
from tests.cluster.test_encoders import stored
from tests.cluster.test_loggers import scalars_of
from tests.cluster.test_runner import entries
from tests.cluster.without_ray import without_ray

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("no_ray")
def test_a_live_search_goes_on_after_a_stop_and_logs_what_it_records(
    tmp_path, write_study, cli_command
):
    """Six configurations for two objectives. The first session ends after five of twelve trials,
    within a configuration, keeps all encoders and has a logger that fails; the second keeps no
    further ones.
    """
    search = {"method": "tpe", "trials_per_objective": 3, "objectives": ["knn_top1", "rankme"]}
    nowhere, log = {"mlflow": {"uri": "sqlite:////dev/null/none.db"}}, ("--log", "tensorboard")
    path = write_study(search=search, encoders={"keep": "all"}, loggers=[nowhere])
    out = tmp_path / "out"
    command = ("run", str(path), "--out", str(out), *log)
    code, output, _ = cli_command(*command, "--limit", "5")
    assert code == 0
    assert output.count("mlflow logs no more, the study goes on: ") == 1
    assert "not running; 7 trials are left" in cli_command("status", str(out))[1]
    first = clsweep.open_results(out)
    recorded, references = first.trials, first.references
    assert len(references) == 3
    assert len(stored(out)) == 5
    (out / "encoders" / "dcl-9999-s0.safetensors").write_bytes(b"of a trial that has no row")
    (out / "encoders" / ".0123.tmp").write_bytes(b"half an encoder")
    (out / "references.parquet").unlink()
    write_study(search=search, encoders={"keep": "none"})
    code, output, _ = cli_command(*command)
    assert code == 0
    assert "not measured: " in output
    assert "logs no more" not in output
    assert len(stored(out)) == 5

    results = clsweep.open_results(out)
    assert list(results.trials["trial_id"]) == list(results.plan["trial_id"])
    assert results.plan["tau"].isna().all()
    assert results.references.equals(references), "lost in between, and scored again"
    again = results.trials.set_index("trial_id").loc[recorded["trial_id"]].reset_index()
    pd.testing.assert_frame_equal(again, recorded)
    for objective in ("simclr", "dcl"):
        rows = results.trials.query("objective == @objective")
        assert (rows.groupby("config")["tau"].nunique() == 1).all()
        trials = entries(out, objective)
        assert [t.state for t in trials] == [TrialState.COMPLETE] * 3
        for trial in trials:
            scores = rows[rows["config"] == trial.user_attrs["config"]]
            assert scores["tau"].unique().tolist() == [trial.params["tau"]]
            assert trial.values == pytest.approx(scores[["knn_top1", "rankme"]].mean().tolist())
    for row in results.trials.to_dict("records"):
        places = (row["objective"], f"config-{row['config']}", f"seed-{row['seed']}")
        scalars = scalars_of(out.joinpath("tensorboard", *places))
        for name in ("knn_top1", "train_loss", "rankme"):
            epochs = results.epochs.query("trial_id == @row['trial_id']")
            logged = [(step, value) for tag, step, value in scalars if tag == name]
            assert [step for step, _ in logged] == epochs["epoch"].tolist()
            assert [value for _, value in logged] == pytest.approx(epochs[name].tolist(), rel=1e-6)


@pytest.mark.usefixtures("no_ray")
def test_a_run_ends_with_its_budget_and_says_so(tmp_path, write_study, cli_command):
    """One configuration begins, and gets both seeds. The same command then starts no Ray."""
    search = {"method": "random", "trials_per_objective": 5, "budget": {"hours": 0.0001}}
    space = {"tau": {"low": 0.05, "high": 1.0}}
    path, out = write_study(search=search, space=space), str(tmp_path / "out")
    code, printed, _ = cli_command("run", str(path), "--out", out)
    assert code == 0
    assert "Starting Ray" in printed
    assert "to run within 0.0001 hours" in printed
    assert "The budget of 0.0001 hours has no room for a further configuration." in printed
    trials = clsweep.open_results(out).trials
    assert trials.groupby("objective")["seed"].apply(list).tolist() == [[0, 1]]
    code, printed, _ = cli_command("run", str(path), "--out", out)
    assert code == 0
    assert "Starting Ray" not in printed
    assert "has no room" in printed
    said = " ".join(cli_command("status", out)[1].split())
    why = "The budget of 0.0001 hours has no room for a further configuration"
    end = f"the search ended with 18 trials left out. {why}"
    assert f"complete: {end}. With another search.budget the command that began it goes on." in said
    assert "are left" not in said
    assert clsweep.open_results(out).data.notes == (f"small: {end}",)


def test_a_search_that_ended_by_evidence_is_complete_until_more_is_asked_for(
    tmp_path, write_study, cli_command
):
    """One that is cut before has trials left."""
    search = {"method": "tpe", "trials_per_objective": 6, "budget": {"min_gain": 1000}}
    changes = {"space": {"tau": {"low": 0.05, "high": 1.0}}, "seeds": [0]}
    objectives = {"dcl": {"framework": "simclr", "loss": "dcl", "base": {"epochs": 1}}}
    path, out = write_study(search=search, objectives=objectives, **changes), str(tmp_path / "out")

    def run(*words):
        with without_ray(lambda row: {"status": "finished", "knn_top1": 50 + row["tau"]}):
            assert cli_command("run", str(path), "--out", out, *words)[0] == 0
        return " ".join(cli_command("status", out)[1].split())

    assert "not running; 3 trials are left (search.budget may" in run("--limit", "3")
    said = run()
    assert "complete: the search ended with 1 trials left out. dcl: 5 configurations are" in said
    assert "enough" in said
    assert "With another search.budget" in said
    search["budget"]["min_gain"] = 1e-9
    write_study(search=search, objectives=objectives, **changes)
    said = run()
    assert "complete" in said
    assert "left out" not in said
