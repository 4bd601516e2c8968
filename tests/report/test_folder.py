"""The files of a report: all of them, whole, and nothing of anybody else's."""

import hashlib
import io
import json

import numpy as np
import pandas as pd
import pytest

from clsweep.errors import RequestError
from clsweep.report import report_folder as bundle
from clsweep.report.page import to_csv, to_parquet
from clsweep.report.report_folder import write_bundle
from tests.report.samples import CONTROL, EVIL, figure, report, report_full_of, section

ENDS = ("parquet", "csv", "svg", "png", "vl.json")
FILES = {
    *("index.html", "formulas.html", "report.md", "manifest.json"),
    *(f"tables/{name}.{end}" for name in ("leaderboard", "robustness") for end in ENDS[:2]),
    *(f"figures/{name}.{end}" for name in ("hero", "tolerance") for end in ENDS[1:]),
}


def files_in(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_all_files_are_written_and_listed_and_the_same_again(tmp_path):
    steps = []
    page = write_bundle(report(), tmp_path / "new" / "report", progress=steps.append)
    folder = tmp_path / "new" / "report"
    assert page == folder / "index.html"
    assert files_in(folder) == FILES
    tables, figures = ["tables/leaderboard", "tables/robustness"], ["hero", "tolerance"]
    assert steps == ["index.html", *tables, *(f"figures/{name}" for name in figures)]
    write_bundle(report(), tmp_path / "again")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert set(manifest["files"]) == FILES - {"manifest.json"}
    for name, entry in manifest["files"].items():
        data = (folder / name).read_bytes()
        assert entry == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        assert data == (tmp_path / "again" / name).read_bytes()
    assert manifest["sources"] == ["runs/tau"]
    assert manifest["libraries"].keys() >= {"pandas", "altair", "vega-lite"}
    assert (folder / "figures/tolerance.png").read_bytes().startswith(b"\x89PNG")
    assert pd.read_csv(folder / "tables/robustness.csv")["sd"].tolist() == [0.512345] * 2


def test_what_an_earlier_report_left_is_removed_and_nothing_else(tmp_path):
    write_bundle(report(section(figures=(figure("old"),))), tmp_path)
    (tmp_path / "figures" / "mine.svg").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    write_bundle(report(), tmp_path)
    assert files_in(tmp_path) == FILES | {"figures/mine.svg", "notes.txt"}


def test_a_manifest_cannot_name_files_of_others(tmp_path):
    folder = tmp_path / "report"
    write_bundle(report(), folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    others = ("../mine.csv", "figures/../../mine.csv", str(tmp_path / "mine.csv"), "a.txt")
    manifest["files"] |= {key: {} for key in others}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for path in (tmp_path / "mine.csv", folder / "a.txt"):
        path.write_text("mine")
    write_bundle(report(), folder)
    assert (tmp_path / "mine.csv").exists()
    assert (folder / "a.txt").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [("index.html", "mine"), ("manifest.json", "[]"), ("manifest.json", '{"files": {}}')],
)
def test_a_file_that_no_report_wrote_is_not_replaced(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(RequestError, match=f"{name}: expected .*, given .* Nearest: "):
        write_bundle(report(), tmp_path)
    assert files_in(tmp_path) == {name}
    assert (tmp_path / name).read_text() == content


def test_a_report_that_was_interrupted_can_be_written_again(tmp_path, monkeypatch):
    write_bundle(report(section(figures=(figure("old"),))), tmp_path)
    whole = bundle.Disk.write

    def torn(disk, name, data, **options):
        if name.endswith(".png"):
            raise RequestError("disk full")
        whole(disk, name, data, **options)

    with monkeypatch.context() as patch:
        patch.setattr(bundle.Disk, "write", torn)
        with pytest.raises(RequestError, match="disk full"):
            write_bundle(report(), tmp_path)
    write_bundle(report(), tmp_path)
    assert files_in(tmp_path) == FILES


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("file", "file: expected a folder for the report, given a file"),
        ("file/below", "expected a folder that can be made, given: Not a directory"),
        ("s3://bucket/report", "expected a folder of this machine"),
        ("a/" * 3000 + "x", "expected a folder that can be made, given: File name too long"),
        ("results", "a folder beside the results, given the results. Nearest: results/report"),
    ],
)
def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch, place, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "results").mkdir()
    for name in ("study.yaml", "plan.parquet"):
        (tmp_path / "results" / name).write_text("")
    with pytest.raises(RequestError, match=says) as error:
        write_bundle(report(), place)
    assert len(str(error.value)) < 400
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == [
        "file", "results", "plan.parquet", "study.yaml"
    ]  # fmt: skip


def test_no_text_is_a_formula_in_csv():
    mixed = pd.Series([-1, "=x", None], dtype=object)
    frame = pd.DataFrame({"=head": ["=1", "-0.5", "\tx"], "number": -1.0, "mixed": mixed})
    read = pd.read_csv(io.BytesIO(to_csv(frame)), dtype={"'=head": str})
    assert read["'=head"].tolist() == ["'=1", "-0.5", "'\\tx"]
    assert read["number"].tolist() == [-1.0] * 3
    assert read["mixed"].tolist()[:2] == ["-1", "'=x"]


def test_parquet_takes_columns_of_any_kind():
    frame = pd.DataFrame(
        {
            "mixed": pd.Series([1, "a", None], dtype=object),
            "lists": [[1], (2,), None],
            "text": ["a", None, "b"],
            "whole": pd.Series([1, 2, None], dtype=object),
            "number": [0.1, np.nan, -np.inf],
            3: [True, False, True],
        }
    )
    read = pd.read_parquet(io.BytesIO(to_parquet(frame)))
    assert list(read) == ["mixed", "lists", "text", "whole", "number", "3"]
    assert read["mixed"].tolist()[:2] == ["1", "a"]
    assert read["mixed"].isna().tolist() == [False, False, True]
    assert read["lists"].tolist()[:2] == ["[1]", "(2,)"]
    assert read["whole"].tolist()[:2] == [1, 2]
    np.testing.assert_array_equal(read["number"], [0.1, np.nan, -np.inf])


def test_names_with_control_characters_do_not_end_the_process(tmp_path):
    """And text stays text in pictures."""
    write_bundle(report_full_of(EVIL), tmp_path)
    assert "<script" not in (tmp_path / "figures/tolerance.svg").read_text()
    page = write_bundle(report_full_of(CONTROL), tmp_path / "report")
    svg = (page.parent / "figures" / "tolerance.svg").read_text(encoding="utf-8")
    assert "a\ufffd[31m" in svg
    assert "\x1b" not in page.read_text(encoding="utf-8")
    table = pd.read_csv(page.parent / "tables" / "robustness.csv")
    assert "a\\x1b[31m" in table["objective"].iloc[0]
