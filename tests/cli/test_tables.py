"""The tables of the statistics on a screen: as wide as it is, the answer first, all where asked."""

import math
import re

import pandas as pd
import pytest

from clsweep.statistics import compare, recommend, robustness, sensitivity
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
    legend = COMMANDS[command].explained(1.0)[-1]
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
