"""The commands that look and do not run: what they print, in which format, and how they refuse."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

from clsweep.catalog import COMPONENT, DATASETS, DIAGNOSTICS, METRICS, PARAMS
from clsweep.catalog.open_encoders import ROWS as OPEN_ENCODERS
from clsweep.catalog.plugins import activate
from clsweep.cli.main import app
from clsweep.data.datasets import load_splits
from clsweep.data.locations import DataPlace
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.document import shipped_studies
from clsweep.study.resolve import load_study

STUDY = str(Path(__file__).parents[2] / "studies" / "quickstart.yaml")
SMALL = """\
name: small
dataset: {name: digits}
seeds: [0, 1, 2]
base: {encoder: conv4, epochs: 6, batch_size: 32}
space:
  tau: {grid: [0.05, 0.1, 0.3, 1.0]}
objectives:
  simclr: {framework: simclr, loss: infonce}
  dcl: {framework: simclr, loss: dcl}
  dclw: {framework: simclr, loss: dclw}
  untrained: {framework: simclr, loss: infonce, base: {epochs: 0}}
search: {method: grid}
"""
KINDS = {
    "frameworks": COMPONENT["framework"],
    "losses": COMPONENT["loss"],
    "regularizers": COMPONENT["regularizer"],
    "views": COMPONENT["views"],
    "encoders": [*COMPONENT["encoder"], *(row.name for row in OPEN_ENCODERS)],
    "datasets": [d.name for d in DATASETS],
    "metrics": [m.name for m in METRICS],
    "diagnostics": [d.name for d in DIAGNOSTICS],
    "params": [p.name for p in PARAMS],
    "studies": shipped_studies(),
}


@pytest.fixture
def small(tmp_path):
    """Path of the study `SMALL`."""
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return str(path)


# catalog


def test_catalog_lists_every_row_of_every_kind(cli_command):
    for kind, names in KINDS.items():
        code, out, err = cli_command("catalog", kind, "--format", "json")
        assert (code, err) == (0, "")
        assert [next(iter(row.values())) for row in json.loads(out)] == list(names)
    code, out, _ = cli_command("catalog")
    assert code == 0
    titles = [line.strip() for line in out.splitlines() if line.strip() in KINDS]
    assert list(dict.fromkeys(titles)) == list(KINDS)  # a line of a long text may be one word


# plan


def test_plan_opens_with_what_is_scored_and_what_an_image_is_worth(cli_command):
    for fraction, is_coarse in ((0.2, False), (0.05, True)):
        setting = f"dataset.val_fraction={fraction}"
        code, out, err = cli_command("plan", STUDY, "--set", setting)
        assert (code, err) == (0, "")
        study = load_study(STUDY, settings=[setting])
        assert f"\n{len(plan_trials(study))} trials in all\n" in out
        splits = load_splits(plan_row(study, plan_trials(study)[0]), DataPlace())
        num = len(splits.val)
        told = f"Data: digits: {len(splits.train):,} images to train, {num} to score"
        assert out.startswith(told)
        assert f"one scored image is {100 / num:.3g} points" in out
        assert ("cannot show a difference" in out) == is_coarse


def test_plan_shows_matrix_counts_total_and_skips(cli_command, small):
    code, out, err = cli_command("plan", small)
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert (code, err) == (0, "")
    assert rows["loss"] == ["infonce", "dcl", "dclw", "infonce"]
    assert rows["tau"] == ["*", "4", "points"] * 3 + ["-"]
    assert rows["sigma"] == ["-", "-", "0.5", "-"]
    assert rows["dclw"] == ["grid", "4", "3", "12"]
    assert rows["untrained"] == ["grid", "1", "3", "3"]
    assert "39 trials in all" in out
    assert "skip: 'untrained' does not own batch_size," in out


def test_plan_says_what_a_search_looks_for(cli_command, small):
    search = "search={method: tpe, trials_per_objective: 2, objectives: [knn_top1, linear_top1]}"
    settings = ("--set", search, "--set", "space.tau={choices: [0.05, 0.1, 0.3, 1.0]}")
    code, out, err = cli_command("plan", small, *settings, "--set", "seeds=[1]")
    assert (code, err) == (0, "")
    assert "note: one seed: the results will carry no intervals" in out
    assert "note: search.objectives: the front of knn_top1 (max) and linear_top1 (max)" in out
    _, out, _ = cli_command("plan", small)
    assert "search.objectives" not in out


def test_plan_as_json_and_csv_is_the_matrix_alone(cli_command, small):
    _, as_json, _ = cli_command("plan", small, "--format", "json")
    _, as_csv, _ = cli_command("plan", small, "--format", "csv")
    rows = json.loads(as_json)
    assert rows == list(csv.DictReader(io.StringIO(as_csv)))
    assert {"param": "sigma", "simclr": "-", "dcl": "-", "dclw": "0.5", "untrained": "-"} in rows


@pytest.mark.parametrize(
    "settings",
    [[], ["search={method: qmc, trials_per_objective: 4}", "space.tau={low: 0.1, high: 1}"]],
)
def test_plan_trials_lists_the_plan_with_every_digit(cli_command, small, settings):
    words = [word for setting in settings for word in ("--set", setting)]
    _, out, _ = cli_command("plan", small, "--trials", "--format", "json", *words)
    found = [(row["trial_id"], row["seed"], row["tau"]) for row in json.loads(out)]
    planned = plan_trials(load_study(small, settings=settings))
    assert found == [(trial.trial_id, trial.seed, trial.params.get("tau")) for trial in planned]


TRIALS = "docs/results/quickstart/trials.parquet"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("plan STUDY --trials --estimate --noise 0", "--trials: expected without --estimate and"),
        ("plan STUDY --trials --price 0", "--trials: expected without --price,"),
        ("plan STUDY --estimate --pilot x", "--estimate: expected without --pilot,"),
        ("plan STUDY --noise 1 --pilot x", "--noise: expected without --pilot,"),
        ("plan STUDY --noise 1 --format csv", "--format csv: expected without --noise,"),
        ("plan STUDY --price 1 --format json", "--format json: expected without --price,"),
        (f"status {TRIALS} --follow", f"{TRIALS}: expected without --follow,"),
        (f"compare {TRIALS} --tuned --by tau", "--tuned: expected without --by,"),
    ],
)
def test_an_option_that_another_one_would_silence_is_refused(cli_command, monkeypatch, words, said):
    monkeypatch.chdir(Path(STUDY).parents[1])
    code, out, err = cli_command(*words.replace("STUDY", STUDY).split())
    assert (code, out) == (2, "")
    assert err.startswith(said)
    assert err.endswith(", given together\n")
    assert err.count("\n") == 1


# try, refused before anything is trained


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-o dlc", "--objective dlc: no such objective. Did you mean 'dcl'? Expected one of: simc"),
        ("-o dcl --config 9", "--config 9: 'dcl' has the configurations 0 to 3"),
    ],
)
def test_try_refuses_what_is_not_planned(cli_command, small, words, message):
    code, out, err = cli_command("try", small, *words.split())
    assert (code, out) == (2, "")
    assert err.startswith(message)


DIAGNOSTIC = """
import torch
from clsweep.catalog import Diagnostic


def half(num_classes):
    return torch.tensor(num_classes / 2)


ROWS = [Diagnostic(name="my_half", impl="half", takes=("num_classes",), doc="-", source="-")]
"""


@pytest.mark.usefixtures("one_thread")
def test_try_shows_own_diagnostics(cli_command, tmp_path):
    (tmp_path / "mine.py").write_text(DIAGNOSTIC)
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nplugins: [mine.py]\ndataset: {name: digits}\nseeds: [0]\n"
        "base: {encoder: conv4, width: 4, epochs: 1, batch_size: 512, linear_probe: none}\n"
        "objectives: {a: {framework: simclr, loss: dcl}}\nsearch: {method: grid}\n"
    )
    code, out, err = cli_command("try", str(tmp_path / "mine.yaml"), "-o", "a")
    activate(())
    assert code == 0, err
    head, values = (line.split() for line in out.splitlines() if re.match(" +(epoch|1) ", line))
    assert values[head.index("my_half")] == "5.00"
    assert "my_half 5.00" in " ".join((out + err).split())


def test_try_needs_no_contrasts(cli_command, small):
    """One over a swept value holds no more where that is fixed to try it."""
    contrast = "contrasts={small: {of: [dcl, simclr], at: {tau: 0.1}}}"
    words = ("try", small, "-o", "dcl", "--config", "9", "--set", "space.tau.grid=[0.5]", "--set")
    code, _, err = cli_command(*words, contrast)
    assert (code, "contrasts.small.of: has no effect: it is not here" in err) == (2, True)
    Path(small).write_text(f"{SMALL}{contrast.replace('=', ': ', 1)}\n")
    code, _, err = cli_command(*words[:-1])
    assert (code, err) == (2, "--config 9: 'dcl' has the configurations 0 to 0\n")


@pytest.mark.parametrize("words", [("try", "-o", "dcl", "--config", "9"), ("run", "--out", STUDY)])
def test_what_a_study_does_not_use_is_said_where_it_is_not_planned_first(words, cli_command, small):
    Path(small).write_text(SMALL.replace("base: {", "base: {tau: 0.2, "))
    code, out, _ = cli_command(words[0], small, *words[1:])
    assert (code, out.splitlines()[0]) == (
        2,
        "note: base.tau is replaced by the space of simclr, dcl, dclw",
    )


# The words of a command


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plann", STUDY], "No such command 'plann'"),
        (["plan"], "Missing argument 'STUDY'"),
        (["plan", STUDY, "--fromat", "json"], "No such option: --fromat"),
        (["plan", STUDY, "--format", "xml"], "'xml' is not one of 'table', 'md', 'latex',"),
        (["run", STUDY, "--limit", "0"], "Invalid value for '--limit'"),
        (["try", STUDY], "Missing option '--objective'"),
    ],
)
def test_a_wrong_word_exits_with_2_and_a_usage(cli_command, words, message):
    code, out, err = cli_command(*words)
    assert (code, out) == (2, "")
    assert err.startswith("Usage: ")
    assert message in err
    assert "Traceback" not in err


def test_help_names_every_command(cli_command):
    _, overview, _ = cli_command("--help")
    for command in (each.name for each in app.registered_commands):
        code, out, _ = cli_command(command, "--help")
        assert code == 0
        assert out.startswith("Usage: ")
        assert f"  {command} " in overview


# Folders without results


@pytest.mark.parametrize("command", ["trials", "status", "picks", "report", "confirm"])
@pytest.mark.parametrize("kind", ["missing", "empty", "file"])
def test_a_folder_without_results_is_refused(cli_command, tmp_path, command, kind):
    folder = tmp_path / "results"
    if kind == "empty":
        folder.mkdir()
    if kind == "file":
        folder.write_text("no folder")
    code, out, err = cli_command(command, str(folder))
    assert code == 2
    assert out == "" or re.fullmatch(r".+ \.\.\.\n", out)  # what takes its time has spoken
    assert err.startswith(f"{folder}: ")
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err


def test_a_table_of_another_tool_has_a_command(cli_command, tmp_path):
    (tmp_path / "runs.csv").write_text("lr,seed,acc\n0.1,0,0.5\n")
    code, _, err = cli_command("robustness", str(tmp_path / "runs.csv"))
    assert code == 2
    assert f"clsweep import wandb {tmp_path / 'runs.csv'}" in " ".join(err.split())


def test_check_says_how_long_a_slow_contract_took(cli_command, monkeypatch):
    rows = [("loss mine", "a study can use it", ""), ("loss mine", "it learns", "it does not")]
    monkeypatch.setattr("clsweep.cli.check.check_plugin", lambda *_: iter(rows))
    clock = iter([0.0, 1.0, 1.0, 13.0, 13.0])
    monkeypatch.setattr("clsweep.cli.study_commands.monotonic", clock.__next__)
    code, output, _ = cli_command("check", "mine.py")
    assert code == 1
    assert output.splitlines()[1:3] == [
        "ok      loss mine: a study can use it",
        "FAILED  loss mine: it learns (12 s): it does not",
    ]
