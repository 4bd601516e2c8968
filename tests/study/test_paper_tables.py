"""Files of printed numbers: which belong to a study, what they hold, and the paper's scale."""

import pytest

from clsweep.errors import StudyError
from clsweep.study.paper_tables import checked_files, paper_cells, parse_paper_table
from tests.planted import study_at

TABLE = """\
# paper: A paper
# item: Table 1
# study: mine.yaml
# encoder: small_alexnet; the study has conv4
# reference only: CMC; PIRL
objective,dataset,encoder,tau,metric,value,spread,note
dcl,digits,small_alexnet,0.1,knn_top1,90.60,0.2,"one, two"
CMC,digits,small_alexnet,,knn_top1,91.0,,
"""
PRESETS = {
    "cpu": {"base": {"epochs": 2}},
    "long": {"base": {"epochs": 90}, "space": {"tau": {"choices": [0.2]}}},
    "lost": {"dataset": {"name": "imagefolder", "root": "nowhere"}},
}


@pytest.fixture
def study(tmp_path):
    return study_at(
        tmp_path / "mine.yaml",
        base={"encoder": "conv4", "epochs": 50},
        space={"tau": {"choices": [0.1, 0.5]}},
        objectives={"dcl": {"framework": "simclr", "loss": "dcl"}},
        presets=PRESETS,
    )


def test_a_file_is_read_with_its_header():
    table = parse_paper_table(TABLE, "t.csv")
    assert table.first("paper") == "A paper"
    assert table.reference_only == {"CMC", "PIRL"}
    assert table.stand_ins == {"small_alexnet": "conv4"}
    assert table.settings == ("tau",)
    assert [row["value"] for row in table.rows] == ["90.60", "91.0"]
    assert table.rows[0]["note"] == "one, two"
    (cell, _) = parse_paper_table(TABLE.replace("one, two", "one,\n two"), "t.csv").rows
    assert cell["note"] == "one, two"
    assert table.rows[0]["delta"] == ""  # a column that is not there


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("metric,", "metrik,", r"^t.csv: no column 'metric'. Did you mean 'metrik'\?"),
        ("91.0", "91.0 %", r"^t.csv:8: value: expected a number, given '91.0 %'"),
        (
            'two"\nCMC,digits,small_alexnet,,knn_top1,91.0',
            '\n"\nCMC,digits,small_alexnet,,knn_top1,x',
            "^t.csv:9: value: expected",
        ),
        ("91.0", "nan", r"^t.csv:8: value: expected a number"),
        (",metric,", ",tau,metric,", r"^t.csv:6: column 'tau' stands twice"),
        ("91.0,,", "91.0,", r"^t.csv:8: expected 8 cells, given 7"),
        ("90.60,0.2", ",", r"^t.csv:7: expected a value or a spread, given neither"),
    ],
)
def test_a_mistake_names_its_line(old, new, message):
    with pytest.raises(StudyError, match=message):
        parse_paper_table(TABLE.replace(old, new), "t.csv")


def test_the_files_beside_a_study_that_name_it_are_its_own(study):
    (study.parent / "a.csv").write_text(TABLE)
    (study.parent / "b.csv").write_text(TABLE.replace("mine.yaml", "other.yaml"))
    (study.parent / "c.csv").write_bytes(b"\xff\xfe no text of ours")
    assert checked_files(study) == {"a.csv": TABLE}
    assert checked_files("no such file") == {}
    (study.parent / "a.csv").write_text(TABLE.replace("91.0", "x"))
    with pytest.raises(StudyError, match=r"a.csv:8: value"):
        checked_files(study)


def test_the_papers_scale_is_the_study_and_its_presets_but_cpu(study):
    cells = [(row["epochs"], row["tau"]) for row in paper_cells(study)]
    assert sorted(cells[:2]) == [(50, 0.1), (50, 0.5)]  # once each, whatever the seeds
    assert cells[2:] == [(90, 0.2)]  # and `lost` cannot be planned here
