"""From a results folder with a paper's numbers to the paper's table, in Python, on the command line
and in the report.
"""

import numpy as np
import pytest

import clsweep
from clsweep.analysis.reproduce import Verdict
from clsweep.api import open_results
from clsweep.report.sections import build_report, section_of
from clsweep.statistics import registry
from clsweep.statistics.computed import context_of
from clsweep.statistics.reproduce import closing, layouts, remarks
from clsweep.study.resolve import load_study
from tests.planted import planted, recorded

STUDY = """\
name: mine
dataset: {name: digits}
seeds: [0, 1, 2]
base: {encoder: conv4, epochs: 50}
space: {tau: {choices: [0.1, 0.2, 0.5, 1.0]}}
objectives:
  simclr: {framework: simclr, loss: infonce}
  dcl: {framework: simclr, loss: dcl}
search: {method: grid}
presets:
  cpu: {base: {epochs: 2}}
"""
HEADER = """\
# paper: A paper (2020)
# item: Table 7
# study: mine.yaml
# reference only: PIRL
objective,dataset,encoder,tau,metric,value,spread,note
"""
ROWS = [
    "simclr,digits,conv4,0.1,knn_top1,90.0,,",
    "simclr,digits,conv4,0.2,knn_top1,94.0,,misprint: 90.4 in the text",
    "simclr,digits,conv4,0.5,knn_top1,90.60,,", "dcl,digits,conv4,0.1,knn_top1,90.2,,",
    "dcl,digits,conv4,0.7,knn_top1,80.0,,", "dcl,digits,conv4,,knn_top1,,1.4,over tau",
    "PIRL,digits,conv4,,knn_top1,99.0,,", "simclr,stl10,conv4,0.1,knn_top1,70.0,,",
    "simclr,digits,conv4,0.1,linear_top1,95.0,,",
]  # fmt: skip


def make_folder(tmp_path, *, preset=None, seeds=3, rows=ROWS):
    source = tmp_path / "mine.yaml"
    source.write_text(STUDY)
    (tmp_path / "table.csv").write_text(HEADER + "\n".join(rows) + "\n")
    rng = np.random.default_rng(0)

    def outcome(row):
        is_over = row["seed"] < seeds
        return {"knn_top1": 90.0 + 0.1 * rng.standard_normal()} if is_over else None

    path = recorded(tmp_path / "out", load_study(source, preset=preset), outcome, printed=source)
    source.unlink()  # what is told is told by the folder alone
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("printed"))


@pytest.fixture(scope="module")
def numbers(folder):
    return open_results(folder).reproduce()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The folder of the preset, which has another scale."""
    return make_folder(tmp_path_factory.mktemp("small"), preset="cpu")


def verdicts(frame):
    return {
        (row["objective"], row["dataset"], row["metric"], row["tau"]): row["verdict"]
        for row in frame[frame["value"].notna()].fillna({"tau": 0.0}).to_dict("records")
    }


def test_a_folder_answers_the_numbers_that_lay_beside_its_study(numbers):
    assert verdicts(numbers) == {
        ("simclr", "digits", "knn_top1", 0.1): Verdict.AGREES,
        ("simclr", "digits", "knn_top1", 0.2): Verdict.DIFFERS,
        ("simclr", "digits", "knn_top1", 0.5): Verdict.AGREES,
        ("dcl", "digits", "knn_top1", 0.1): Verdict.AGREES,
        ("dcl", "digits", "knn_top1", 0.7): Verdict.NOT_MEASURED,
        ("PIRL", "digits", "knn_top1", 0.0): Verdict.REFERENCE_ONLY,
        ("simclr", "stl10", "knn_top1", 0.1): Verdict.NOT_MEASURED,
        ("simclr", "digits", "linear_top1", 0.1): Verdict.NOT_MEASURED,
    }
    assert closing(numbers) == (
        "3 of 4 numbers agree, 1 differs, 0 not resolved; 3 not measured; 1 for reference only"
    )


def test_a_preset_of_another_scale_is_never_said_to_differ(small):
    numbers = open_results(small).reproduce()
    measured = numbers[numbers["measured"].notna()]
    assert set(measured["verdict"]) == {Verdict.OTHER_SCALE}
    assert set(measured["differs_in"]) == {"epochs"}
    assert set(measured["here"] + measured["there"]) == {"epochs=2epochs=50"}
    assert closing(numbers).startswith("no number is measured at the paper's scale; 4 at another")


def test_two_runs_answer_together_and_within_decides_what_agrees(folder, small, numbers):
    both = open_results(small, folder).reproduce()
    assert verdicts(both) == verdicts(numbers)
    assert len(both) == len(numbers)
    results = open_results(folder)
    assert (results.reproduce(within=0.01)["verdict"] != Verdict.AGREES).all()
    assert (results.reproduce(within=9)["verdict"] != Verdict.DIFFERS).all()


def test_a_folder_or_table_without_printed_numbers_has_none():
    results = clsweep.analyse(planted(lambda at: at["tau"], grid={"tau": [0.1, 0.2]}))
    assert results.reproduce().empty


def test_a_table_has_the_papers_layout(numbers):
    parts = layouts(numbers)
    assert [part.title for part in parts] == [
        "digits, conv4, knn_top1, by tau",
        "stl10, conv4, knn_top1, by tau",
        "digits, conv4, linear_top1, by tau",
    ]
    assert [part.is_measured for part in parts] == [True, False, False]
    shown = parts[0].shown
    assert list(shown) == ["objective", "", "0.1", "0.2", "0.5", "0.7", "-"]
    assert shown["objective"].tolist() == ["simclr", "", "", "dcl", "", "", "PIRL", "", ""]
    assert shown[""].tolist() == ["measured", "paper", "verdict"] * 3
    simclr = shown.iloc[:3]
    row = numbers.iloc[0]
    half = row["high"] - row["measured"]
    assert simclr["0.1"].tolist() == [f"{row['measured']:.2f} +-{half:.2f}", "90.0", "agrees"]
    assert simclr["0.2"].tolist()[1:] == ["94.0", "differs"]
    assert simclr["0.7"].tolist() == ["", "", ""]  # the paper has no such number
    assert shown["0.7"].tolist()[3:6] == ["-", "80.0", ""]


def test_misprints_and_scales_are_remarked(numbers, small):
    lines = remarks(numbers)
    assert "simclr, tau=0.2, digits: misprint: 90.4 in the text" in lines
    assert "dcl, digits: over tau" in lines
    lines = remarks(open_results(small).reproduce())
    assert "other scale: here epochs=2; in the paper epochs=50" in lines


def test_one_seed_says_why_nothing_is_resolved(tmp_path):
    numbers = open_results(make_folder(tmp_path, seeds=1)).reproduce()
    assert "not resolved: one seed: no interval" in " ".join(remarks(numbers))
    assert closing(numbers).startswith("0 of 4 numbers agree, 0 differ, 4 not resolved")


def test_the_command_fits_a_terminal_and_ends_with_the_count(folder, cli_command):
    code, output, _ = cli_command("reproduce", folder)
    assert code == 0
    lines = output.rstrip().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-2].startswith("3 of 4 numbers agree")
    assert "A paper (2020), Table 7" in output
    assert "not measured: Table 7, stl10, conv4, knn_top1, by tau" in output.replace("\n", " ")


PAIRS = [
    "simclr,cifar10,,0.1,knn_top1,90.0,,,", "simclr,cifar10,,0.2,knn_top1,91.0,,,",
    "dcl,cifar10,,0.1,knn_top1,92.5,,2.5,simclr", "dcl,cifar10,,0.2,knn_top1,89.0,,-2,simclr",
    "dcl,cifar10,conv4,0.1,knn_top1,71.0,,1,simclr", "simclr,cifar10,conv4,0.1,knn_top1,70.0,,,",
    "dcl,cifar10,,0.5,linear_top1,92.5,,,", "dcl,cifar10,,1.0,linear_top1,92.0,,,",
]  # fmt: skip


def paired(tmp_path, preset, rows=PAIRS, lead=2.0):
    """dcl leads by as much at each seed, whatever a seed gives to all; less at a larger tau."""
    source = tmp_path / "mine.yaml"
    small = "cpu: {dataset: {name: digits}, base"
    source.write_text(STUDY.replace("digits", "cifar10").replace("cpu: {base", small))
    head = HEADER.replace("spread,note", "spread,delta,delta_to").replace("# reference", "# ref")
    (tmp_path / "table.csv").write_text(head + "\n".join(rows) + "\n")

    def outcome(row):
        dcl, seed = row["objective"] == "dcl", row["seed"]
        noise = 0.1 * (seed * (1 + dcl + (row["tau"] == 0.5)) % 3)
        score = 80 + (3, -2, 5)[seed] + lead * dcl + noise
        return {"knn_top1": score, "linear_top1": score - 10 * row["tau"]}

    return recorded(tmp_path / "out", load_study(source, preset=preset), outcome, printed=source)


def test_at_another_scale_the_differences_are_told(tmp_path, cli_command):
    path = paired(tmp_path, "cpu")
    results = open_results(path)
    numbers = results.differences().set_index(["what", "encoder"])
    rows = zip(numbers["published"].round(6), numbers["verdict"], strict=True)
    assert dict(zip(numbers.index, rows, strict=True)) == {
        ("dcl - simclr at tau=0.1", ""): (2.5, "same sign"),
        ("dcl - simclr at tau=0.2", ""): (-2.0, "other sign"),
        ("dcl - simclr at tau=0.1", "conv4"): (1.0, "same sign"),
        ("dcl at tau=1, less that at tau=0.5", ""): (-0.5, "same sign"),
    }
    trials = results.trials[results.trials["tau"] == 0.1].pivot(
        index="seed", columns="objective", values="knn_top1"
    )
    leads = trials["dcl"] - trials["simclr"]
    row = numbers.loc[("dcl - simclr at tau=0.1", "")]
    assert row["estimate"] == pytest.approx(leads.mean())
    assert row["low"] < leads.mean() < row["high"]
    assert row["high"] - row["low"] < 2  # the seeds' shifts, of up to 7 points, cancel
    output = cli_command("reproduce", path)[1]
    assert "differences, measured at another scale" in output
    assert "1 to 2.5" in output
    chapter = section_of(registry.SECTIONS[0], context_of(results))
    (told,) = [s for s in chapter.sentences if "differences" in s]
    assert "Of 3 differences of the paper, at another scale: 2 same sign, 1 other sign." in told


def test_differences_of_one_noise_are_not_resolved_and_none_are_told_at_the_papers_scale(tmp_path):
    numbers = open_results(paired(tmp_path, "cpu", PAIRS[:4], lead=0.0)).differences()
    assert numbers["verdict"].tolist() == ["not resolved"] * 2
    (tmp_path / "paper").mkdir()
    assert open_results(paired(tmp_path / "paper", None)).differences().empty


def test_the_report_shows_the_table_and_the_papers_points(folder):
    report = build_report(open_results(folder))
    section = report.sections[0]
    assert section.id == "reproduction"
    assert any("3 of 4 numbers agree" in text for text in report.verdicts)
    assert any("printed 94, a difference of -4" in text for text in section.sentences)
    (table,), (figure,) = section.tables, report.hero
    assert not section.figures  # it stands on the first screen
    assert "differs" in table.shown["0.2"].tolist()
    data = figure.data
    assert data["printed"].dropna().tolist().count(94.0) == 1


def test_studies_of_different_metrics_are_asked_for_one(tmp_path, cli_command):
    folder = make_folder(tmp_path)
    (tmp_path / "other").mkdir()
    study = tmp_path / "other" / "theirs.yaml"
    study.write_text(STUDY.replace("mine", "theirs") + "metric: {name: linear_top1, mode: max}\n")
    scores = {"knn_top1": 80.0, "linear_top1": 85.0}
    other = recorded(tmp_path / "other" / "out", load_study(study), lambda _: scores)
    code, _, error = cli_command("reproduce", folder, other)
    assert (code, "different metrics: knn_top1, linear_top1" in error) == (2, True)
    code, output, _ = cli_command("reproduce", folder, other, "--metric", "knn_top1")
    alone = cli_command("reproduce", folder)
    assert (code, output.splitlines()[-1]) == (0, alone[1].splitlines()[-1])
