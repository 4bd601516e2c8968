"""The tables of the statistics on a screen: as wide as it is, the answer first, all where asked."""

import math
import re

import pandas as pd
import pytest

import clsweep
from clsweep.statistics import compare, recommend, robustness, sensitivity
from clsweep.statistics.statistic import filled
from tests.planted import planted

GRID = {"tau": [0.05, 0.1, 0.2, 0.4], "batch_size": [32, 64, 128]}
COMMANDS = {
    "robustness": robustness.ROBUSTNESS,
    "sensitivity": sensitivity.SENSITIVITY,
    "compare": compare.MEANS,
    "recommend": recommend.RECOMMEND,
}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A Parquet file of two objectives, a peak at tau 0.1 the higher."""

    def level(height):
        return lambda at: height - 3 * abs(math.log2(at["tau"] / 0.1))

    levels = {"simclr": level(80.0), "dcl": level(78.0)}
    frames = [planted(level, objective=name, grid=GRID) for name, level in levels.items()]
    path = tmp_path_factory.mktemp("tables") / "trials.parquet"
    pd.concat(frames, ignore_index=True).to_parquet(path)
    return str(path)


@pytest.mark.parametrize("width", [80, 110])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_table_is_no_wider_than_the_screen_and_names_what_it_leaves_out(
    cli_command, monkeypatch, file, command, width
):
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, _ = cli_command(command, file)
    lines = [line.rstrip() for line in out.splitlines() if not line.startswith("Next: ")]
    assert max(map(len, lines)) <= width
    _, wide, _ = cli_command(command, file, "--wide")
    heads = [next(x for x in text.splitlines() if x[:2] in ("ob", "a ")) for text in (out, wide)]
    missing = out.partition("--wide adds ")[2].partition(";")[0].replace("\n", " ")
    left_out = missing.split(", ") if missing else []
    assert all(name in heads[1] for name in left_out)
    assert len(heads[1].split()) == len(heads[0].split()) + len(" ".join(left_out).split())


@pytest.mark.parametrize("command", COMMANDS)
def test_what_columns_are_is_said_where_asked(cli_command, monkeypatch, file, command):
    monkeypatch.setenv("COLUMNS", "400")
    legend = next(filled(c.means, 1.0) for c in COMMANDS[command].columns if c.means)
    said = [cli_command(command, file, *words)[1] for words in ((), ("--explain",))]
    assert [" ".join(legend.split()) in " ".join(text.split()) for text in said] == [False, True]


ANSWERS = (
    "robustness", "robustness --by tau", "sensitivity", "compare", "compare --by tau", "pareto",
    "compare --stat std", "compare --stat within", "compare --tuned", "recommend",
)  # fmt: skip


@pytest.mark.parametrize("words", ANSWERS)
def test_the_answer_comes_first_and_what_to_type_next_last(cli_command, monkeypatch, file, words):
    monkeypatch.setenv("COLUMNS", "200")
    command, *options = words.split()
    _, out, _ = cli_command(command, file, *options, "--metric", "knn_top1")
    lines = out.splitlines()
    assert "simclr" in lines[0]
    following = "report" if words == "recommend" else "(sensitivity|recommend)"
    assert re.fullmatch(f"Next: clsweep {following} {file} --metric knn_top1", lines[-1])


@pytest.mark.parametrize("command", ["sensitivity", "importance", "optimum"])
def test_images_are_no_option_where_intervals_are_for_those_scored(cli_command, command):
    folder = "docs/results/tau-digits"
    code, _, error = cli_command(command, folder, "--images", "fixed")
    assert (code, "No such option: --images" in error) == (2, True)
    _, out, _ = cli_command("robustness", folder, "--images", "fixed", "--failed", "left-out")
    assert out.splitlines()[-1] == f"Next: clsweep sensitivity {folder} --failed left-out"


def test_a_table_of_another_metric_is_listed_as_it_is_analysed(cli_command, file, tmp_path):
    path = str(tmp_path / "own.parquet")
    pd.read_parquet(file).rename(columns={"knn_top1": "acc"}).to_parquet(path)
    asked = ("--metric", "acc", "--mode", "max", "--format", "csv")
    for command, column in (("trials", "acc"), ("status", "best acc")):
        assert "metric" in cli_command(command, path)[2]
        code, out, _ = cli_command(command, path, *asked)
        assert code == 0
        assert column in out.splitlines()[0].split(",")
    code, _, error = cli_command("status", "docs/results/quickstart", "--metric", "knn_top1")
    assert (code, "clsweep recommend docs/results/quickstart --metric" in error) == (2, True)


@pytest.mark.parametrize("command", ["status", "trials"])
def test_status_and_trials_explain_their_columns_and_have_all_of_them(
    cli_command, monkeypatch, command
):
    monkeypatch.setenv("COLUMNS", "80")
    folder = "docs/results/tau-digits"
    _, short, _ = cli_command(command, folder)
    (hint,) = re.findall(r"\(--wide adds (.*?); --explain says what the columns\s+are\)", short,
                         re.DOTALL)  # fmt: skip
    _, wide, _ = cli_command(command, folder, "--wide")
    head = wide.splitlines()[0]
    assert set(hint.replace("\n", " ").split(", ")) <= set(head.split())
    assert "(--explain says what the columns are)" in wide
    _, explained, _ = cli_command(command, folder, "--explain")
    lines = explained.replace("\n", " ")
    assert "--explain says" not in explained
    said = {"status": "when tuned: its level without", "trials": "lr: base learning rate, before"}
    assert said[command] in lines


def test_the_levels_of_status_are_those_of_its_headline_and_of_recommend(cli_command):
    """By their plain means dclw and simclr are 0.23 apart, when tuned 0.79."""
    folder = "docs/results/tau-digits"
    best = clsweep.open_results(folder).recommend().query("kind == 'best'")
    _, out, _ = cli_command("status", folder)
    rows = {line.split()[0]: line.split() for line in out.splitlines()[1:5]}
    at = out.splitlines()[0].replace("best linear_top1 %", "best").replace("when tuned", "tuned")
    place = at.split().index("tuned")
    for row in best.to_dict("records"):
        assert rows[row["objective"]][place] == f"{row['when_tuned']:.2f}"
    lead = float(rows["dclw"][place]) - float(rows["simclr"][place])
    assert f"dclw leads simclr by {lead:.2f} points, each at its best setting" in out.replace(
        "\n", " "
    )
