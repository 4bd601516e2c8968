"""A study's own question, in its author's words: kept with the results, and shown as it is."""

import pytest

import clsweep
from clsweep.errors import StudyError
from clsweep.report.page import render_page
from clsweep.report.report_folder import render_markdown
from clsweep.report.sections import build_report
from clsweep.study.resolve import load_study
from tests.planted import recorded, study_at

ASKED = "Is <b>dcl</b> less *sensitive*\n  to tau? We think so"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("asked")
    study = load_study(study_at(path / "study.yaml", question=ASKED))
    return recorded(
        path / "results", study, lambda row: {"knn_top1": 80.0 + row["seed"] + row["tau"]}
    )


@pytest.mark.slow
def test_the_report_begins_with_it_and_with_what_was_run(folder, cli_command, tmp_path):
    results = clsweep.open_results(folder)
    assert results.study["question"] == ASKED
    report = build_report(results)
    start = "Is <b>dcl</b> less *sensitive* to tau? We think so. digits, conv4, 2 epochs, 2 seeds, "
    assert report.question.startswith(start)
    page = render_page(report)
    assert "Is &lt;b&gt;dcl&lt;/b&gt; less *sensitive* to tau? We think so. digits" in page
    assert "<b>dcl</b>" not in page
    assert "Is \\<b>dcl\\</b> less \\*sensitive\\* to tau?" in render_markdown(report)
    code, out, _ = cli_command("report", folder, "--out", str(tmp_path / "report"))
    assert code == 0
    lines = " ".join(out.split())
    assert lines.index(start) < lines.index("Report: ")


def test_the_plan_says_it(folder, cli_command):
    _, out, _ = cli_command("plan", f"{folder}/study.yaml")
    assert out.startswith("Question: Is <b>dcl</b> less *sensitive* to tau? We think so\n")


def test_of_several_studies_each_question_stands_once(folder, tmp_path):
    other = load_study(study_at(tmp_path / "b.yaml", name="other", question="And here?"))
    second = recorded(tmp_path / "b", other, lambda row: {"knn_top1": 70.0 + row["seed"]})
    data = clsweep.open_results(folder, second).data
    assert data.question == "Is <b>dcl</b> less *sensitive* to tau? We think so. And here?"


@pytest.mark.parametrize(
    ("given", "says"),
    [(7, "question: expected a text, given 7"), ("x" * 401, "at most 400 characters, given 401")],
)
def test_what_is_no_question_is_refused(tmp_path, given, says):
    with pytest.raises(StudyError, match=says):
        load_study(study_at(tmp_path / "study.yaml", question=given))
