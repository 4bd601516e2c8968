"""`clsweep import`: its folder, and the commands that read it."""

import csv
from pathlib import Path

import pytest

import clsweep
from clsweep.cli.import_sweep import import_
from clsweep.cli.statistic_commands import status, trials
from clsweep.display.printing import Format
from clsweep.errors import RequestError
from clsweep.results.reading import open_folder


@pytest.fixture
def export(tmp_path, monkeypatch):
    """A table whose accuracy is 80 less 10 lr, and 0.1 more with the second seed."""
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{lr},{opt},{seed},{80 - 10 * lr + 0.1 * seed:.1f}"
        for lr in (0.1, 0.2)
        for opt in ("sgd", "adam")
        for seed in (0, 1)
    ]
    path = tmp_path / "sweep.csv"
    path.write_text("\n".join(["lr,opt,seed,acc", *rows]))
    return path


def import_export(path, **options):
    import_("wandb", path, **{"metric": "acc", "mode": "max"} | options)


def test_every_statistic_reads_an_import(export):
    import_export(export)
    results = clsweep.open_results("results/sweep")
    row = results.robustness().iloc[0]
    assert (row["best"], row["range"]) == (pytest.approx(79.05), pytest.approx(1.0))
    shares = results.sensitivity().set_index("term")["first"]
    assert shares["lr"] == pytest.approx(1, abs=0.05)


def test_two_imports_are_analysed_together(export):
    """Trials whose seeds were not named share none with those of another table."""
    export.with_name("other.csv").write_text(export.read_text().replace(",seed,", ",lot,"))
    for name in ("sweep", "other"):
        import_export(export.with_name(f"{name}.csv"), params=["lr", "opt"])
    results = clsweep.open_results("results/sweep", "results/other")
    assert [*results.robustness()["objective"]] == ["sweep/wandb", "other/wandb"]
    assert results.robustness()["best"].tolist() == pytest.approx([79.05, 79.05])
    seeds = results.trials.groupby("objective")["seed"].unique()
    assert not {*seeds["sweep/wandb"]} & {*seeds["other/wandb"]}
    import_export(export, out="results/third", mode="min")
    with pytest.raises(RequestError, match="expected the mode 'max' of results/sweep, given 'min'"):
        clsweep.open_results("results/sweep", "results/third")


def test_commands_on_trials_read_an_import(export, capsys):
    export.write_text(export.read_text().replace("lr,", "optim/lr,", 1))
    import_export(export)
    capsys.readouterr()
    trials("results/sweep", where=["`optim/lr` == 0.1", "seed == 1"], columns=["optim/lr", "acc"])
    said = capsys.readouterr().out.split()
    assert said[:6] == ["optim/lr", "acc", "0.1", "79.10", "0.1", "79.10"]
    status("results/sweep")
    assert "79.05" in capsys.readouterr().out.split()
    with pytest.raises(RequestError, match="has no study to be run again"):
        open_folder("results/sweep")


def test_the_status_of_several_data_sets_has_the_best_of_each(export, capsys):
    """Of two data sets the second is harder by 30 points: no setting is the best of both."""
    head, *rows = export.read_text().splitlines()
    lines = [f"dataset,{head}", *(f"cifar10,{row}" for row in rows)]
    lines += [f"cifar100,{row.replace(',7', ',4')}" for row in rows]
    export.write_text("\n".join(lines))
    import_export(export)
    capsys.readouterr()
    status("results/sweep", format=Format.csv)
    shown = [*csv.DictReader(capsys.readouterr().out.splitlines())]
    assert [row["dataset"] for row in shown] == ["cifar10", "cifar100"]
    assert [float(row["best acc"]) for row in shown] == pytest.approx([79.05, 49.05])


def test_an_import_replaces_an_import_and_nothing_else(export):
    for _ in range(2):
        import_export(export)
    clsweep.open_results("results/sweep").trials.to_parquet("results/sweep/trials.parquet")
    with pytest.raises(RequestError, match="expected a new folder, found a table of trials"):
        import_export(export)
    Path("results/sweep/study.yaml").write_text("")
    with pytest.raises(RequestError, match="expected a new folder, found the results of a study"):
        import_export(export)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lr,acc\n\0,1\n", "column 'lr': expected a text without NUL"),
        ('[{"config": {"lr": "\\ud800"}, "summary": {"acc": 1}}]', "column 'lr': expected a text"),
        ('[{"config": {"l\\u0000": 1}, "summary": {"acc": 1}}]', "expected a text without NUL"),
        ("[" * 100_000, "maximum recursion depth exceeded"),
        ("[NaN]", "expected a run, given 'nan'"),
        ('[{"config": null, "summary": null}]', "no column 'acc'"),
        ("lr,acc\n0.1,abc\n", "acc: expected a number, given 'abc'"),
        ("", "expected trials that have ended, found none"),
    ],
)
def test_what_cannot_be_imported_is_refused_in_a_line_with_its_place(text, says, tmp_path):
    source = tmp_path / ("a.json" if text[:1] == "[" else "a.csv")
    source.write_text(text)
    with pytest.raises(RequestError) as refused:
        import_export(source, out=str(tmp_path / "out"))
    assert str(refused.value).startswith(f"{source}: ")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("number", ["1e999", "inf"])
def test_a_number_beyond_all_is_said(number, export, capsys):
    export.write_text(export.read_text().replace("0.2,", f"{number},"))
    import_export(export)
    assert f"lr is {number} in 4 of 8 trials, no number that is read" in capsys.readouterr().out
