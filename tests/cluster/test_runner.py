"""`clsweep run` from end to end: what it writes, what it says, what it leaves when things go
wrong.
"""

import json
import os
import re
import shutil
from importlib.metadata import version
from pathlib import Path

import numpy as np
import optuna
import pandas as pd
import pytest
from optuna.trial import TrialState

import clsweep
from clsweep.results.folder import ResultsFolder
from clsweep.results.journal import open_storage
from tests.cluster.conftest import assert_on_loopback, start
from tests.cluster.conftest import clsweep as clsweep_command
from tests.cluster.test_encoders import stored
from tests.cluster.test_loggers import scalars_of

EXPORTERS = [("monitor.py", 44217), ("dashboard.py", 44227)]  # of metrics, at Ray's defaults


def test_a_study_ends_with_one_row_per_planned_trial(finished):
    out, output = finished.out, finished.output
    assert finished.code == 1, output
    assert "DivergedError" in output
    assert "OutOfMemoryError" in output
    results_line, following = output.rstrip().splitlines()[-2:]
    assert results_line == f"Results: {out}"
    assert following == f"Next: clsweep confirm {out} --seeds 2,3,4"
    assert "Robustness of knn_top1" in output
    assert "(raylet)" not in output

    results = clsweep.open_results(out)
    assert list(results.trials["trial_id"]) == list(results.plan["trial_id"])
    assert set(results.trials["optuna_version"]) == {version("optuna")}
    status = results.trials.set_index("trial_id")["status"]
    fails = status.index.str.startswith(("bad", "huge"))
    assert set(status[fails]) == {"failed"}
    assert set(status[~fails]) == {"finished"}
    diverged = results.trials.query("error_class == 'DivergedError'")
    assert set(diverged["objective"]) == {"bad"}
    assert diverged["error_message"].str.contains("loss is nan").all()
    scores = results.trials.query("objective == 'dcl'")["knn_top1"].tolist()
    assert [entry.value for entry in entries(out, "dcl")] == scores
    failures = output.partition("Failed trials")[2].splitlines()
    grouped = [line for line in failures if "DivergedError" in line]
    assert len(grouped) == diverged["error_message"].nunique()
    assert sum(int(line.split()[0]) for line in grouped) == len(diverged) == 4
    whole = results.trials.query("status == 'finished'")
    assert whole["knn_top1"].between(0, 100).all()
    assert_hits_are_the_scores(results)
    untrained = whole.query("objective == 'untrained'")
    assert untrained["tau"].isna().all()
    assert untrained["seed"].tolist() == [0, 1]
    counts = results.epochs.groupby("trial_id").size()
    assert (counts[whole.query("epochs == 2")["trial_id"]] == 2).all()
    assert sorted(p.name for p in out.iterdir() if p.is_file() and p.name[0] != ".") == [
        "epochs.parquet", "heartbeat.json", "histograms.parquet", "hits.parquet", "optuna.journal",
        "plan.parquet", "references.parquet", "study.yaml", "trials.parquet",
    ]  # fmt: skip
    stored = {path.name.split("-")[0] for path in (out / "encoders").iterdir()}
    assert stored == {"dcl", "untrained"}
    references = results.references.set_index("reference")
    assert references.loc["untrained", "seed"].tolist() == [0, 1]
    same_yardstick = references.loc["untrained", "knn_top1"].tolist()
    assert same_yardstick == untrained["knn_top1"].tolist()
    assert f"raw pixels {references.loc['raw_pixels', 'knn_top1']:.2f}" in output
    scored = whole.query("epochs == 2")[["q_b_mean", "alignment", "linear_top1"]]
    assert scored.notna().all(axis=None)


def assert_hits_are_the_scores(results):
    """Every finished trial has a bit for each image and metric, and their share is its score."""
    trials = results.trials.query("status == 'finished'").set_index("trial_id")
    hits = results.hits
    assert hits["images"].nunique() == 1
    assert {*hits["split"]} == {"validation"}
    for row in hits.itertuples():
        right = np.unpackbits(np.frombuffer(row.bits, "uint8"), count=row.num_images)
        assert 100 * right.mean() == pytest.approx(trials.loc[row.trial_id, row.metric], abs=1e-9)
    of_images = ["knn_top1", "knn_top5", "linear_top1", "linear_top5"]
    assert len(hits) == trials[of_images].notna().to_numpy().sum()


def test_the_numbers_beside_a_study_travel_with_its_results(finished):
    printed = (finished.path.parent / "table.csv").read_text()
    assert (finished.out / "references" / "table.csv").read_text() == printed
    table = clsweep.open_results(finished.out).reproduce()
    trials = clsweep.open_results(finished.out).trials
    mine = trials[(trials["objective"] == "dcl") & (trials["tau"] == 0.1)]
    assert table["measured"][0] == pytest.approx(mine["knn_top1"].mean())
    assert table["verdict"][0] in ("agrees", "differs", "not resolved")
    assert table["verdict"][1] == "not measured"


def test_a_local_run_listens_on_loopback_alone_and_offers_no_metrics(finished):
    titles = ("gcs_server", "raylet", "ray::ImplicitFunc", "ray::RuntimeEnvAgent")
    assert_on_loopback(finished.listeners, *titles)
    for listener in finished.listeners:  # others may draw such a port
        assert "ray::DashboardAgent" not in listener.title, "it takes jobs"
        assert all(name not in listener.title for name, p in EXPORTERS if p == listener.port)


def test_a_run_that_has_ended_leaves_nothing_of_ray(finished):
    [session] = {
        match[0]
        for listener in finished.listeners
        for match in re.finditer(r"/\S*/session_[0-9_-]+(?=/)", listener.title)
    }
    assert not os.path.exists(Path(session).parent.parent), "the folder that was made for it"


@pytest.mark.slow
def test_report_and_status_follow_a_run_until_it_has_ended(finished, tmp_path):
    out = shutil.copytree(finished.out, tmp_path / "out")
    with ResultsFolder(str(out)).lock():  # as a run does
        status = start("status", out, "--follow")
        process = start("report", out, "--follow", "--out", tmp_path / "report")
        written = next(line for line in process.stdout if "trials have ended" in line)
        for _ in range(2):
            next(line for line in status.stdout if line.startswith("running:"))
        assert process.poll() is status.poll() is None
    assert "complete" in status.communicate(timeout=300)[0]
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    page = tmp_path / "report" / "index.html"
    assert f"{page}: {len(clsweep.open_results(out).trials)} trials have ended" in written
    assert output.count("trials have ended") == 1  # once more, now that all is known
    assert f"Report: {page}" in output
    assert page.stat().st_size > 100_000


def test_a_finished_study_can_be_run_again_and_looked_at(finished, tmp_path, cli_command):
    path, out = str(finished.path), str(shutil.copytree(finished.out, tmp_path / "out"))
    before = (tmp_path / "out" / "trials.parquet").read_bytes()
    code, output, _ = cli_command("run", path, "--out", out)
    assert code == 1
    assert "Nothing is left" in output
    assert (tmp_path / "out" / "trials.parquet").read_bytes() == before

    code, output, _ = cli_command("status", out, "--format", "json")
    assert code == 0
    assert {row["objective"]: row["failed"] for row in json.loads(output)}["bad"] == 4
    where = "tau > 0.3 and status == 'finished'"
    code, output, _ = cli_command("trials", out, "--where", where, "--format", "json")
    assert {row["tau"] for row in json.loads(output)} == {0.5}
    code, output, _ = cli_command("run", path, "--out", out, "--set", "resources.workers=8")
    assert code == 1
    assert "Nothing is left" in output, "where it runs may change"
    code, _, message = cli_command("run", path, "--out", out, "--set", "base.epochs=3")
    assert code == 2
    assert "base.epochs: 2 -> 3" in message


@pytest.mark.slow
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
    command = ("run", path, "--out", out, *log)
    code, output = clsweep_command(*command, "--limit", 5)
    assert code == 0, output
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
    code, output = clsweep_command(*command)
    assert code == 0, output
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


def entries(out, objective):
    """What Optuna has of an objective of these results."""
    storage = open_storage(str(out / "optuna.journal"))
    return optuna.load_study(study_name=objective, storage=storage).trials


def test_missing_data_is_refused_before_anything_starts(write_study, tmp_path, cli_command):
    dataset = {"name": "cifar10", "root": str(tmp_path / "nothing")}
    path = write_study(dataset=dataset, base={"encoder": "conv4"})
    code, _, output = cli_command("run", str(path), "--out", str(tmp_path / "out"))
    assert code == 2
    assert not (tmp_path / "out" / "study.yaml").exists()
    assert str(tmp_path / "nothing") in output
    assert "--set dataset.download=true" in output
