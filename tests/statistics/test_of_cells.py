"""The results of a study with factors: every cell has the statistics of a study of its own."""

import math
import re

import numpy as np
import pandas as pd
import pytest

import clsweep
from clsweep.analysis.reproduce import Verdict
from clsweep.errors import RequestError
from clsweep.report.content import NAME
from clsweep.report.sections import build_report
from clsweep.study.resolve import load_study
from tests.planted import planted, recorded, study_at

TREE = {
    "name": "crossed",
    "factors": {"dataset": ["digits", "fashion_mnist"]},
    "dataset": {},
    "seeds": [0, 1, 2],
    "base": {"epochs": 2, "encoder": "conv4"},
    "space": {"tau": {"choices": [0.1, 0.2, 0.5, 1.0]}, "batch_size": {"choices": [64, 256]}},
}
SMALL = {"tau": {"choices": [0.1, 0.2, 0.5, 1.0]}}
# Of each data set: its level, the depth of the curve of tau, and by what dcl is ahead.
TRUTH = {"digits": (90, 8, 3), "fashion_mnist": (60, 2, -3)}
STATISTICS = {
    "robustness": {}, "tolerance": {}, "sensitivity": {}, "marginals": {}, "compare": {},
    "winners": {"by": "tau"}, "best_of_k": {}, "tuning_cost": {}, "recommend": {},
    "failure_regions": {}, "mechanism": {"by": "tau"}, "links": {},
}  # fmt: skip


def score(row):
    """A truth of each data set and its noise, which the trial alone decides."""
    level, depth, lead = TRUTH[row["dataset"]]
    tau, objective = row["tau"], row["objective"].rpartition("/")[2]
    mean = level - depth * math.log10(tau / 0.2) ** 2 + lead * (objective == "dcl")
    key = [row["seed"], round(1000 * tau), row["batch_size"], len(objective), round(level)]
    return mean + 0.3 * np.random.default_rng(key).standard_normal()


def make_study(folder, *, ended=lambda _: True, outcome=lambda _: {}, printed="", **changes):
    folder.mkdir(exist_ok=True)
    path = study_at(folder / "study.yaml", **{**TREE, **changes})
    if printed:
        (folder / "table.csv").write_text(printed)

    def scored(row):
        return {"knn_top1": score(row), "wall_time_s": 2.0, **outcome(row)} if ended(row) else None

    options = {"printed": path if printed else None, "epochs": [{"epoch": 1, "train_loss": 2.0}]}
    return recorded(folder / "out", load_study(path), scored, **options)


@pytest.fixture(scope="module")
def crossed(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("crossed"))


@pytest.fixture(scope="module")
def results(crossed):
    return clsweep.open_results(crossed)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same trials as a study for each data set."""
    paths = {
        name: make_study(tmp_path_factory.mktemp(name), factors=None, dataset={"name": name})
        for name in TRUTH
    }
    return {name: clsweep.open_results(path) for name, path in paths.items()}


@pytest.mark.parametrize("statistic", STATISTICS)
def test_every_statistic_of_a_cell_is_that_of_its_study_alone(results, alone, statistic):
    """Digit for digit, and none is left out."""
    options = STATISTICS[statistic]
    table = getattr(results, statistic)(**options)
    expected = [
        getattr(study, statistic)(**options).assign(dataset=name) for name, study in alone.items()
    ]
    expected = pd.concat([frame for frame in expected if len(frame)] or expected)
    assert table.columns[0] == "dataset"
    pd.testing.assert_frame_equal(
        table, expected[table.columns].reset_index(drop=True), check_exact=True, check_dtype=False
    )


def test_frames_have_the_factor_and_the_names_of_the_file(results):
    for frame in (results.trials, results.plan):
        assert set(frame["objective"]) == {"simclr", "dcl"}
        assert frame["dataset"].value_counts().to_dict() == dict.fromkeys(TRUTH, 48)
    epochs = results.epochs
    assert next(iter(epochs)) == "dataset"
    assert epochs["dataset"].value_counts().to_dict() == dict.fromkeys(TRUTH, 48)
    assert [cell.levels for cell in results.cells] == [{"dataset": name} for name in TRUTH]


def test_a_failure_counts_as_the_worst_of_its_own_data_set(tmp_path):
    """On the digits no trial falls to the scores of the other data set."""

    def fails(row):
        hit = (row["dataset"], row["tau"], row["seed"]) == ("digits", 1.0, 0)
        return {"status": "failed", "knn_top1": None} if hit else {}

    table = clsweep.open_results(make_study(tmp_path, outcome=fails, space=SMALL)).robustness()
    digits = table[table["dataset"] == "digits"]
    assert (digits["num_failed"] == 1).all()
    assert (digits["mean"] > 85).all()


def test_a_cell_without_an_objective_has_no_rows_of_it(tmp_path):
    levels = ["digits", {"name": "fashion_mnist", "objectives": {"dcl": None}}]
    results = clsweep.open_results(make_study(tmp_path, factors={"dataset": levels}, space=SMALL))
    assert results.compare("dcl", "simclr")["dataset"].tolist() == ["digits"]
    assert len(results.robustness()) == 3
    with pytest.raises(RequestError, match=r"no objective 'dclw'\. Did you mean 'dcl'\?"):
        results.compare("dclw", "simclr")


def test_a_data_set_that_has_not_begun_is_named(tmp_path):
    path = make_study(tmp_path, ended=lambda row: row["dataset"] == "digits", space=SMALL)
    found = clsweep.open_results(path)
    assert set(found.robustness()["dataset"]) == {"digits"}
    assert "no trial has ended yet: fashion_mnist" in found.data.notes
    with pytest.raises(RequestError, match="no trial has finished yet"):
        clsweep.open_results(make_study(tmp_path / "b", ended=lambda _: False)).robustness()


def test_the_trials_that_are_left_are_those_of_the_study(tmp_path, cli_command):
    """Of each data set 8 of 24: every command, the report and its question count 16 of 48."""
    path = make_study(tmp_path, ended=lambda row: row["seed"] < 2, space=SMALL)
    left = "crossed: not finished; 16 of 48 trials are left"
    results = clsweep.open_results(path)
    assert results.data.notes == (left,)
    assert all(cell.data.notes == (left,) and cell.data.left == 16 for cell in results.cells)
    report = build_report(results)
    assert report.notes == (left,)
    assert report.steps[0].sentence.startswith("16 trials are left")
    assert "a grid of 16 configurations, 32 trials, " in report.question
    assert "Which of 2 objectives" in report.question
    assert "not running; 16 trials are left" in cli_command("status", path)[1].replace("\n", " ")
    assert f"- {left}\n" in cli_command("compare", path)[1]


def test_a_study_with_factors_is_analysed_alone(crossed, alone):
    with pytest.raises(RequestError, match=r"factors \(dataset\) is analysed alone, given 2"):
        clsweep.open_results(crossed, alone["digits"].path)


def test_labels_tell_levels_of_one_name_apart(tmp_path):
    levels = [{"name": "conv4", "width": 8}, {"name": "conv4", "width": 64, "label": "wide"}]
    factors = {"dataset": [*TRUTH], "encoder": levels}
    space = {"tau": {"choices": [0.1, 0.5]}}
    path = make_study(tmp_path, factors=factors, base={"epochs": 2}, space=space, seeds=[0, 1])
    results = clsweep.open_results(path)
    cells = results.robustness()[["dataset", "encoder"]].drop_duplicates().to_numpy().tolist()
    assert cells == [[name, label] for name in TRUTH for label in ("conv4", "wide")]
    widths = results.trials.groupby("encoder")["width"].unique().map(list).to_dict()
    assert widths == {"conv4": [8], "wide": [64]}


# The papers' numbers

PRINTED = """\
# paper: A paper (2020)
# item: Table 7
# study: study.yaml
objective,dataset,encoder,tau,batch_size,metric,value
dcl,digits,conv4,0.2,64,knn_top1,93.0
dcl,fashion_mnist,conv4,0.2,64,knn_top1,57.0
dcl,fashion_mnist,conv4,0.5,64,knn_top1,60.0
"""


def test_a_printed_number_is_answered_by_its_own_data_set(tmp_path, alone):
    """Configurations of one number are not mixed, nor is the noise of the data sets."""
    numbers = clsweep.open_results(make_study(tmp_path, printed=PRINTED)).reproduce()
    for row in numbers.to_dict("records"):
        of_cell = alone[row["dataset"]].trials.query(
            f"objective == 'dcl' and tau == {row['tau']} and batch_size == 64"
        )
        assert row["measured"] == pytest.approx(of_cell["knn_top1"].mean(), abs=1e-12)
        assert row["num_seeds"] == 3
        assert 0 < row["high"] - row["low"] < 2
    assert numbers["verdict"].map(Verdict.DIFFERS.__eq__).tolist() == [False, False, True]


# The report and the command line


def test_the_report_has_the_cells_side_by_side(results):
    """And a point of any cell leads to the row of its trial."""
    report = build_report(results)
    tables = {table.name: table for section in report.sections for table in section.tables}
    for name, table in tables.items():
        if name != "formulas":
            assert list(table.frame["dataset"].unique()) == list(TRUTH), name
            assert table.shown.columns[0] == "dataset"
    assert report.facts["Cells"] == "2 of dataset: digits; fashion_mnist"
    assert all(name in report.question for name in TRUTH)
    assert list(report.board.shown.columns[:2]) == ["dataset", "objective"]
    assert [figure.title.partition(":")[0] for figure in report.hero] == list(TRUTH)
    figures = [figure for section in report.sections for figure in section.figures]
    for name in TRUTH:
        assert sum(figure.title.startswith(f"{name}: ") for figure in figures) == len(figures) / 2
    for sense in ("when tuned", "without tuning"):
        leads = [line for line in report.verdicts if f"{sense}: it scores" in line]
        assert leads[0].startswith("digits: dcl is best")
        assert leads[1].startswith("fashion_mnist: simclr is best")
    for named in (report.figures, report.tables):
        names = [each.name for each in named]
        assert len(set(names)) == len(names)
        assert all(re.fullmatch(NAME, name) for name in names)
    assert {*tables["trials"].frame["trial_id"]} == {*results.trials["trial_id"]}


@pytest.mark.parametrize("command", ["status", "trials", "compare", "pareto"])
def test_the_tables_of_commands_have_the_factor(cli_command, crossed, command):
    code, output, errors = cli_command(command, crossed, "--format", "csv")
    assert code == 0, errors
    head, *rows = output.splitlines()
    at = head.split(",").index("dataset")
    assert {row.split(",")[at] for row in rows} == set(TRUTH)
    _, output, _ = cli_command(command, crossed)
    assert "fashion_mnist" in output


# Tables from anywhere


def table(*, encoders=("conv4",)):
    return pd.concat(
        [
            planted(
                lambda setting, lead=lead, level=level: level + lead * (1 - setting["tau"]),
                objective=objective,
                grid={"tau": [0.1, 0.2, 0.5]},
                seed=round(level + lead),
            ).assign(dataset=dataset, encoder=encoder)
            for dataset, (level, _, ahead) in TRUTH.items()
            for encoder in encoders
            for objective, lead in (("simclr", 0), ("dcl", ahead))
        ],
        ignore_index=True,
    )


def test_a_table_of_several_data_sets_is_read_cell_by_cell_whatever_its_index():
    """Once their scores were levels of one axis."""
    parts = {n: part.reset_index(drop=True) for n, part in table().groupby("dataset", sort=False)}
    parts["digits"] = parts["digits"].assign(config=parts["digits"]["config"] + 3)
    whole = clsweep.analyse(pd.concat(parts.values())).robustness()
    for name, part in parts.items():
        both = whole[whole["dataset"] == name].drop(columns="dataset").reset_index(drop=True)
        pd.testing.assert_frame_equal(both, clsweep.analyse(part).robustness())


def test_other_factors_of_a_table_are_named():
    trials = table(encoders=("conv4", "resnet18"))
    rows = clsweep.analyse(trials, factors=["encoder", "dataset"]).robustness()
    assert len(rows[["dataset", "encoder"]].drop_duplicates()) == 4
    with pytest.raises(RequestError, match="factors: expected of its columns dataset or encoder"):
        clsweep.analyse(trials, factors=["tau"])


@pytest.mark.parametrize("factor", ["dataset", "encoder"])
@pytest.mark.parametrize("empty", [None, math.nan, pd.NA])
def test_a_trial_without_a_level_is_refused_and_not_left_out(factor, empty):
    trials = table()
    trials.loc[trials.index[3:], factor] = trials.loc[trials.index[3:], factor].where(
        trials["objective"] != "dcl", empty
    )
    place = f"table: {factor} of trial {1 + trials[factor].isna().argmax()}"
    with pytest.raises(RequestError, match=f"{place}: expected a name, given nothing"):
        clsweep.analyse(trials, factors=None if factor == "dataset" else [factor])


def test_a_data_set_that_is_named_as_a_hyperparameter_is_one():
    trials = table().assign(config=lambda t: t["config"] + 3 * (t["dataset"] == "digits"))
    found = clsweep.analyse(trials, params=["tau", "dataset"])
    assert found.data.params == ("tau", "dataset")
    assert not found.cells
