"""The figure and the section of a best value that moves, on planted tables."""

import numpy as np
import pandas as pd
import pytest

from clsweep.report.sections import build_report
from clsweep.statistics.computed import context_of
from tests.analysis.test_optimum import BATCHES, LRS, answers, table
from tests.statistics.given import figures_of


def layers_of(figure):
    """The rows of each layer of a figure, by its mark."""
    spec = figure.chart.to_dict(validate=False)
    return {
        layer["mark"]["type"] + "-" * ("strokeDash" in layer["mark"])
        + str(layer["mark"].get("size", "")): pd.DataFrame(spec["datasets"][layer["data"]["name"]])
        for layer in spec["layer"]
    }  # fmt: skip


def test_a_shift_is_drawn_with_the_curves_it_comes_from():
    trials = table(0, 0.5)
    figure = figures_of("optimum", answers(trials))["optimum-dcl-lr-by-batch-size"]
    drawn = layers_of(figure)
    curves, points, best, dashed = (drawn[key] for key in ("line", "point40", "rule", "line-"))
    assert [*best["level"]] == [str(size) for size in BATCHES]
    truth = 2.0 ** (-2.5 + 0.5 * (np.log2(BATCHES) - 7.5))
    assert ((best["low"] <= truth) & (truth <= best["high"])).all()
    means = trials.groupby(["batch_size", "lr"])["knn_top1"].mean()
    for point in points.itertuples():
        assert point.y == pytest.approx(means[int(point.level), point.x])
    for level, curve in curves.groupby("level"):
        own = means[int(level)]
        cubic = np.polynomial.Polynomial.fit(np.log2(own.index), own.to_numpy(), 3)
        assert np.abs(cubic(np.log2(curve["x"])) - curve["score"]).max() < 2.0
        top = best.set_index("level").loc[level]
        assert top["y"] == pytest.approx(curve["score"].max(), abs=0.01)
        assert [curve["x"].min(), curve["x"].max()] == pytest.approx([LRS[0], LRS[-1]])
    shift = answers(trials).optimum(of="lr", by="batch_size").iloc[0]
    slope = np.polyfit(np.log2(BATCHES), np.log2(dashed["on_line"]), 1)[0]
    assert slope == pytest.approx(shift["shift"], abs=1e-6)
    assert np.exp2(np.log2(dashed["on_line"]).mean()) == pytest.approx(shift["start"])
    assert "(square root law)" in figure.caption


def test_an_open_end_is_that_of_the_range_and_nothing_is_drawn_of_both():
    answer = answers(table(0, 0.5, best=-0.5))
    best = layers_of(figures_of("optimum", answer)["optimum-dcl-lr-by-batch-size"])["rule"]
    assert best["high"].iloc[-1] == LRS[-1]
    across = layers_of(figures_of("optimum", answer)["optimum-dcl-batch-size-by-lr"])["rule"]
    levels = answer.optima(of="batch_size", by="lr").set_index("level")
    both = levels["is_low_end"].astype(bool) & levels["is_high_end"].astype(bool)
    assert both.any()
    assert not both.all()
    assert [*across["x"].isna()] == [*both]


def test_a_sample_has_curves_and_no_means():
    figures = figures_of("optimum", answers(table(0, 0.5, num=60)))
    assert "point40" not in layers_of(figures["optimum-dcl-lr-by-batch-size"])


@pytest.mark.parametrize(("slope", "is_there"), [(1.0, True), (0.0, False)])
def test_a_section_is_there_where_a_shift_is_resolved(slope, is_there):
    report = build_report(answers(table(0, slope)))
    parts = [part for part in report.sections if part.id == "optimum"]
    assert bool(parts) == is_there
    assert not any("best value" in line for line in report.open)
    if is_there:
        assert "moves by x" in parts[0].sentences[0]
        assert [len(parts[0].own_tables), len(parts[0].own_figures)] == [1, 1]


def test_a_chart_is_of_its_own_objective():
    pair = pd.concat([table(0, 1.0), table(1, 0.0, best=-1.0).assign(objective="simclr")])
    context = context_of(answers(pair.reset_index(drop=True)))
    resolved = context.statistics.optimum().query("resolved")
    names = figures_of("optimum", context.statistics)
    assert len(names) == len(resolved)
    assert {name.split("-")[1] for name in names} == {*resolved["objective"]}
