"""Rows of several versions of what trains: every reader is told, and a run asks first."""

import pyarrow as pa
import pytest

import clsweep
from clsweep.cli.trials import confirm_notes
from clsweep.cluster import runner
from clsweep.results.folder import ResultsFolder
from clsweep.results.integrity import decode_table, encode_table

NOTE = "trials of several versions"


def with_versions(file, **columns):
    """Give the first rows of a table the versions that are named, and the others the last one."""
    table = decode_table(file.read_bytes())
    for name, values in columns.items():
        column = values + values[-1:] * (table.num_rows - len(values))
        table = table.set_column(table.column_names.index(name), name, pa.array(column))
    file.write_bytes(encode_table(table))


@pytest.mark.parametrize("column", ["clsweep_version", "torch_version"])
def test_every_table_says_so(column, out, cli_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    told = f"{NOTE}, whose scores may differ: {column[:-8]} 1.0 (1 trials), 1.1 (9 trials)"
    builds = {column: ["1.1+cu128", "1.1"]}
    for versions, is_said in ((builds, False), ({column: ["1.0", "1.1"]}, True)):
        with_versions(out / "trials.parquet", **versions)
        is_whole = is_said and column == "clsweep_version"
        for name in ("status", "trials", "compare") if is_whole else ("status",):
            said = " ".join(cli_command(name, str(out))[1].split())
            assert (told in said) == is_said, (name, said)
    if column == "torch_version":
        return
    _, said, _ = cli_command("report", str(out), "--out", str(out.parent / "report"))
    assert told in " ".join(said.split())
    assert told in (out.parent / "report" / "report.md").read_text().replace("\\", "")


@pytest.mark.parametrize("name", ["run", "confirm"])
def test_a_run_asks_before_it_goes_on(name, made, out, cli_command, monkeypatch):
    monkeypatch.setattr(runner._Run, "_session", lambda self: self.lay_out() or True)
    study = str(made.parent / "small.yaml")
    words = {"run": ["run", study, "--out", str(out)], "confirm": ["confirm", str(out)]}[name]
    assert cli_command(*words)[0] == 130  # as far as Ray, of which this session has none
    file = out / ("confirm" if name == "confirm" else ".") / "trials.parquet"
    with_versions(file, clsweep_version=["0.0.1"], torch_version=["1.9.0+cpu"])
    code, _, said = cli_command(*words)
    assert code == 2
    assert f"{file.parent}: expected trials of clsweep " in said
    assert "found clsweep 0.0.1, torch 1.9.0. " in said
    assert "--mixed-versions" in said
    code, shown, said = cli_command(*words, "--mixed-versions")
    assert code == 130, said
    again = next(line for line in shown.splitlines() if "Resume with: " in line)
    assert again.endswith(" --mixed-versions")


@pytest.mark.slow
def test_a_confirmation_is_no_other_versions_in_silence(out, cli_command, monkeypatch):
    """Those of its search count as well as its own."""
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(runner._Run, "_session", lambda self: self.lay_out() or True)
    with_versions(out / "trials.parquet", clsweep_version=["0.0.1"])
    code, _, said = cli_command("confirm", str(out))
    assert code == 2
    assert f"{out}: expected trials of clsweep " in said
    assert "found clsweep 0.0.1" in said
    assert cli_command("confirm", str(out), "--mixed-versions")[0] == 130
    note = f"{NOTE}, whose scores may differ: clsweep 0.0.1 (10 trials)"
    assert NOTE not in cli_command("status", str(out))[1]
    again = ResultsFolder(str(out)).confirmation
    [metric, first] = [clsweep.open_results(out).tables.metric, again.plan().to_pylist()[0]]
    again.add_trial(
        first
        | {"status": "finished", metric: 90.0, f"test_{metric}": 89.0}
        | {"clsweep_version": "0.0.2", "torch_version": "2.0"}
    )
    told = f"{note}, 0.0.2 (1 trials)"
    assert told in " ".join(cli_command("status", str(out))[1].split())
    assert any(told in line for line in confirm_notes(clsweep.open_results(out), top=None))
    assert cli_command("report", str(out), "--out", str(out.parent / "page"))[0] == 0
    assert told in (out.parent / "page" / "report.md").read_text().replace("\\", "")
