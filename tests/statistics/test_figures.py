"""Charts: what their specs hold and leave out, and that every one of them renders."""

import itertools
import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import clsweep
from clsweep.analysis.regions import cut
from clsweep.display.theme import DARK, LIGHT, svg_to_png, themed, to_svg
from clsweep.statistics import charts
from clsweep.statistics.charts import slugs
from tests.planted import planted
from tests.statistics.given import QUESTIONS, Given, figures_of

NAN, INF = math.nan, math.inf
TAUS, SIZES = [0.05, 0.1, 0.2, 1.0], [32, 128, 512]
PARAMS = ("tau", "batch_size", "optimizer")
WICKED = "a.b[0]:'x' </script><script>alert(1)</script>"
NOTHING = pd.DataFrame()
KINDS = {
    "tolerance", "robustness", "sd-ratios", "mean-differences", "marginal", "heatmap",
    "sensitivity", "winners", "best-of-k", "coupling", "map", "trials", "confirmation",
    "history",
}  # fmt: skip


def trials_of(objectives=("simclr", "dcl"), *, seeds=2, sampler="grid", lost=()):
    """Trials over tau, batch_size and a category; at the values `lost` of tau every one fails."""
    space = {"grid": {"tau": TAUS, "batch_size": SIZES}}
    if sampler != "grid":
        space = {"ranges": {"tau": (0.05, 1.0), "batch_size": (32, 512)}, "num_configs": 40}
    frames = [
        planted(
            lambda at, o=o: 90 - o * np.log10(at["tau"] / 0.1) ** 2 + np.log2(at["batch_size"]) / 5,
            objective=name,
            num_seeds=seeds,
            noise=0.2,
            seed=o,
            fail=lambda at: at["tau"] in lost,
            **space,
        )
        for o, name in enumerate(objectives)
    ]
    trials = pd.concat(frames, ignore_index=True).assign(sampler=sampler)
    return trials.assign(optimizer=np.where(trials["config"] % 2, "lars", "sgd"))


def given(trials=None, *, params=PARAMS, mode=None, failed="worst", **tables):
    """The answers of trials, some of whose tables are given."""
    trials = trials_of() if trials is None else trials
    found = clsweep.analyse(trials, metric="knn_top1", params=params, failed=failed)
    if mode:
        trials = trials.rename(columns={"knn_top1": "err"})
        found = clsweep.analyse(trials, metric="err", mode=mode, params=params)
    return Given(found.data, tables)


def sides_of(trials):
    """Histograms of two epochs, t-SNE points, confirmation and references."""
    ids, names = trials["trial_id"], trials["objective"].unique()
    rng, edges = np.random.default_rng(0), np.arange(20) / 20
    at = pd.MultiIndex.from_product([ids, (0, 1), edges], names=["trial_id", "epoch", "bin_low"])
    histograms = at.to_frame(index=False)
    first = trials.groupby("objective")["trial_id"].first()
    points = {"index": range(1200), "label": np.arange(1200) % 10}
    xy = [rng.normal(size=(1200, 2)) for _ in first]
    search = {"search": 91.0, "fresh": 90.5, "fresh_low": 90.0, "fresh_high": 91.0}
    return {
        "histograms": histograms.assign(
            bin_high=histograms["bin_low"] + 0.05, share=0.05 * histograms["epoch"]
        ),
        "points": pd.concat(
            pd.DataFrame(points | {"trial_id": trial, "x": at[:, 0], "y": at[:, 1]})
            for trial, at in zip(first, xy, strict=True)
        ),
        "confirmation": pd.DataFrame({"objective": names, "config": 0, "rank": 1, "at": "tau=0.1"})
        .assign(**search, test=NAN, test_low=NAN, test_high=NAN),
        "references": pd.DataFrame(
            {"reference": ["raw_pixels", "untrained", "untrained"], "encoder": "conv4",
             "seed": [0, 0, 1], "knn_top1": [91.0, 30.0, 40.0]}
        ),
    }  # fmt: skip


def every_figure(answers):
    return {name: figure for question in QUESTIONS for name, figure in
            figures_of(question, answers).items()}  # fmt: skip


@pytest.fixture(scope="module")
def answers():
    trials = trials_of(("simclr", "dcl", WICKED), lost=(1.0,))
    return given(trials, **sides_of(trials))


@pytest.fixture(scope="module")
def drawn(answers):
    return every_figure(answers)


def spec_of(figure, **options):
    return themed(figure.chart, **{"dark": False, **options})


def text_of(figure):
    return json.dumps(spec_of(figure))


def svg_of(figure):
    return to_svg(spec_of(figure))


def rows_of(figure):
    """The rows of every data set of a spec."""
    return [row for rows in spec_of(figure).get("datasets", {}).values() for row in rows]


def layers_of(figure):
    return figure.chart.to_dict()["layer"]


def one(question, answers):
    (figure,) = figures_of(question, answers).values()
    return figure


# All of them


def test_every_kind_of_figure_is_there_described_finite_and_as_wide_as_its_place(drawn):
    ends = r"-(simclr|dcl|a-b-0-x-script.*|tau|batch-size|optimizer)$"
    assert {re.sub(ends, "", name) for name in drawn} == KINDS
    own = {colour.lower() for palette in (LIGHT, DARK) for colour in palette.category}
    size = 0
    for number, (name, figure) in enumerate(drawn.items()):
        assert re.fullmatch(r"[a-z0-9-]+", name)
        spec = spec_of(figure, dark=number % 2 == 0)
        # Names that look like code are only values.
        rows = [row for rows in spec.get("datasets", {}).values() for row in rows]
        assert WICKED not in {key for row in rows for key in row}
        text = json.dumps(spec, allow_nan=False)
        code = re.findall(r'"(?:field|filter|test|expr)": "[^"]*"', text)
        assert "script" not in "".join(code)
        size += len(text)
        assert spec["width"] == "container"
        assert spec["height"] > 0
        assert figure.spec["description"] == figure.title
        assert not {"facet", "hconcat", "vconcat", "concat", "repeat"} & set(spec)
        assert figure.caption.endswith(".")
        assert len(figure.data)
        if not name.endswith("dcl"):  # as the others of its kind
            svg = to_svg(spec, width=340)
            assert 'width="340"' in svg
            assert "NaN" not in svg
        for layer in spec.get("layer", []):  # a colour is an objective and nothing else
            hue = layer.get("encoding", {}).get("color", {})
            hue = hue.get("condition", hue)
            if isinstance(hue, dict) and hue.get("type") == "nominal":
                if hue["field"] == "objective":
                    assert hue["scale"]["domain"][:2] == ["simclr", "dcl"], figure.name
                else:
                    found = set(map(str.lower, hue["scale"].get("range", ())))
                    assert "scheme" in hue["scale"] or not own & found
    assert size < 700_000
    assert '"field": "objective"' in text_of(drawn["tolerance"])
    png = svg_to_png(to_svg(spec_of(drawn["tolerance"], background=None)))
    assert png[:4] == b"\x89PNG"
    assert int.from_bytes(png[16:20], "big") == 1280


def test_symbols_and_names_of_figures_are_of_one_line(monkeypatch):
    monkeypatch.setattr(charts, "PARAM", {"tau": SimpleNamespace(symbol="two\nlines")})
    svg_of(figures_of("marginals", given(sensitivity=NOTHING))["marginal-tau"])
    assert slugs("x", ["A b", "a.b", "", "<>"]) == ["x-a-b", "x-a-b-2", "x-unnamed", "x-unnamed-2"]


# Tables that leave little to draw


CURVE = {"delta": [0.0, 1.0], "k": [1, 2], "share": [0.1, 0.2], "expected": [89.0, 90.0]}
LEVEL = {"param": "tau", "position": [0.1, 0.2], "label": ["0.1", "0.2"], "mean": [89.0, 90.0],
         "value_low": [0.1, 0.2], "value_high": [0.1, 0.2], "num_configs": 3}  # fmt: skip
PAIR = {"a": "simclr", "b": "dcl", "winner": "simclr", "region": "", "p_holm": 0.01, "low": 0.3,
        "estimate": 0.5, "high": 0.8, "resolved": True, "reason": "", "note": ""}  # fmt: skip
SPREAD = {"objective": ["simclr", "dcl"], "sd_star": [1.0, 2.0], "sd_star_low": [0.5, 1.5],
          "sd_star_high": [2.0, 3.0], "reason": "", "note": ""}  # fmt: skip
EFFECT = {"objective": "simclr", "method": "sobol", "term": "tau", "order": 1, "first": NAN,
          "total": NAN, "first_low": NAN, "first_high": NAN, "null": 0.05, "resolved": False,
          "note": ""}  # fmt: skip


def of_rows(question, table, row, **change):
    """The figures of a question whose table is given."""
    row = {"objective": "simclr", "note": "", "low": NAN, "high": NAN} | row | change
    frame = pd.DataFrame(row, index=None if any(map(np.ndim, row.values())) else [0])
    tables = {"sensitivity": NOTHING} | {table: frame}
    found = figures_of(question, given(trials_of(seeds=1), **tables))
    return {name: figure for name, figure in found.items() if "heatmap" not in name}


@pytest.mark.parametrize(
    ("question", "table", "row"),
    [("tolerance", "tolerance", CURVE), ("best-of-k", "best_of_k", CURVE),
     ("marginals", "marginals", LEVEL)],
)  # fmt: skip
def test_bands_are_drawn_only_where_there_are_intervals(question, table, row):
    (bare,) = of_rows(question, table, row).values()
    assert "No intervals" in bare.caption
    svg_of(bare)
    (banded,) = of_rows(question, table, row, low=[0.1, 0.1], high=[95.0, 95.0]).values()
    assert "95 % intervals" in banded.caption


def test_tables_without_rows_or_numbers_have_no_figure():
    for question, table, row, without in (
        ("tolerance", "tolerance", CURVE, {"share": NAN}),
        ("robustness", "robustness", SPREAD, {"sd_star": NAN}),
        ("comparison-std", "compare std", PAIR, {"estimate": 0.0}),
        ("comparison-std", "compare std", PAIR, {"estimate": INF}),
        ("comparison-mean", "compare mean", PAIR, {"estimate": NAN}),
        ("marginals", "marginals", LEVEL, {"mean": NAN}),
        ("sensitivity", "sensitivity", EFFECT, {"term": ""}),
    ):
        assert of_rows(question, table, row, **without) == {}, question
        empty = pd.DataFrame(columns=list(PAIR))
        assert of_rows(question, table, empty.to_dict("list")) == {}, question
    bare = given(trials_of(seeds=1))
    for question in ("mechanism", "recommendation"):
        assert figures_of(question, bare) == {}
    trials = trials_of(lost=TAUS)
    lost = given(trials, sensitivity=NOTHING, marginals=NOTHING, **sides_of(trials))
    for question in ("mechanism", "trials", "marginals"):
        assert figures_of(question, lost) == {}


def test_an_objective_that_was_not_measured_keeps_its_row_and_one_without_a_sweep_has_none():
    rows = {"objective": ["gone", "dcl", "simclr"], "sd_star": [1.0, NAN, 2.0],
            "sd_star_low": [0.5, NAN, 1.0], "sd_star_high": [2.0, NAN, 3.0]}  # fmt: skip
    (figure,) = of_rows("robustness", "robustness", SPREAD | rows).values()
    svg = svg_of(figure)
    assert "not measured" in svg
    assert "dcl" in svg
    assert '"domainMin": 0' in text_of(figure)
    assert list(dict.fromkeys(row["row"] for row in rows_of(figure))) == ["simclr", "dcl"]


@pytest.mark.parametrize("ends", [{"low": 0.0}, {"high": INF}, {}, {"low": NAN, "high": NAN}])
def test_an_end_of_a_ratio_at_zero_or_infinity_is_an_arrow(ends):
    (figure,) = of_rows("comparison-std", "compare std", PAIR, **ends).values()
    is_open = len(ends) == 1
    assert ("triangle-" in json.dumps(spec_of(figure)["layer"])) == is_open
    svg_of(figure)


def test_too_many_pairs_are_cut_to_the_clearest():
    names = [f"o{i}" for i in range(12)]
    table = pd.DataFrame([PAIR | {"a": a, "b": b} for a, b in itertools.combinations(names, 2)])
    table["p_holm"] = np.linspace(1, 0, len(table))
    figure = one("comparison-mean", given(trials_of(names, seeds=1), **{"compare mean": table}))
    shown = {row["row"] for row in rows_of(figure) if "row" in row}
    assert len(shown) == 45
    assert "o10 − o11" in shown
    assert "45 of 66" in figure.caption
    assert len(figure.data) == 66


# One by one


@pytest.mark.parametrize(("failed", "ticks"), [("worst", TAUS), ("left out", TAUS[:3])])
def test_grid_values_are_the_ticks_of_a_log_axis(failed, ticks):
    answers = given(trials_of(lost=(1.0,)), failed=failed, sensitivity=NOTHING)
    layers = layers_of(figures_of("marginals", answers)["marginal-tau"])
    x = next(
        at["x"] for at in (layer["encoding"] for layer in layers) if "scale" in at.get("x", {})
    )
    assert x["scale"]["type"] == "log"
    assert x["axis"]["values"] == ticks
    assert x["title"] == "τ (tau)"


def test_categories_stand_side_by_side_and_references_near_the_scores(drawn):
    assert "xOffset" in text_of(drawn["marginal-optimizer"])
    assert '"title": "optimizer"' in text_of(drawn["marginal-optimizer"])
    figure = drawn["marginal-tau"]
    assert "raw pixels 91" in [row.get("name") for row in rows_of(figure)]
    assert "Off the axis: untrained 35." in figure.caption
    assert "Dashed: without training." in figure.caption


def heatmaps(answers):
    drawn = figures_of("marginals", answers)
    return [figure for name, figure in drawn.items() if name.startswith("heatmap")]


def test_heatmaps_share_one_scale_and_show_what_failed(answers, drawn):
    first, second = drawn["heatmap-simclr"], drawn["heatmap-dcl"]
    domain = re.compile(r'"scale": {"domain": (\[[0-9., ]+\])')
    domains = [domain.findall(text_of(figure))[0] for figure in (first, second)]
    assert domains[0] == domains[1]
    assert "failed" in svg_of(first)
    assert first.data["mean"].isna().sum() == len(SIZES)
    sweep = answers.data.sweeps[0]
    cell = (sweep.settings["tau"] == 0.1) & (sweep.settings["batch_size"] == 128)
    row = first.data.query("`tau (across)` == '0.1' and `batch_size (up)` == '128'")
    assert row["mean"].item() == pytest.approx(sweep.means[cell.to_numpy()].mean())


def test_heatmaps_take_the_largest_interaction_where_tau_is_not_swept():
    trials = trials_of().assign(tau=0.1)
    trials["weight_decay"] = trials["config"] % 3 / 10
    params = ("batch_size", "weight_decay", "optimizer")
    effect = EFFECT | {"term": "batch_size x optimizer", "order": 2, "first": 0.4}
    for table, names in ((NOTHING, params[:2]), (pd.DataFrame([effect]), params[::2])):
        first, *_ = heatmaps(given(trials, params=params, sensitivity=table))
        assert f"over {' and '.join(names)}" in first.title


def test_heatmaps_do_not_pair_a_hyperparameter_with_the_one_it_hangs_on():
    """The optimizer is swept at one value of the weight decay alone."""
    trials = trials_of().assign(tau=0.1)
    trials["weight_decay"] = trials["config"] % 3 / 10
    trials["optimizer"] = trials["optimizer"].where(trials["weight_decay"] == 0.1)
    params = ("weight_decay", "optimizer", "batch_size")
    first, *_ = heatmaps(given(trials, params=params, sensitivity=NOTHING))
    assert "over weight_decay and batch_size" in first.title


def test_heatmaps_bin_sampled_values_as_the_statistics_and_skip_adaptive_designs():
    sampled = trials_of(sampler="qmc").assign(batch_size=lambda t: t["config"] * 7 % 30 + 1)
    answers = given(sampled, params=["tau", "batch_size"], sensitivity=NOTHING, marginals=NOTHING)
    for figure, sweep in zip(heatmaps(answers), answers.data.sweeps, strict=True):
        assert figure.data["tau (across)"].nunique() == 6
        regions = cut("batch_size", [sweep])
        assert set(figure.data["batch_size (up)"]) == set(regions.labels)
        edges = zip(regions.low, regions.high, strict=True)
        assert all(a[1] < b[0] for a, b in itertools.pairwise(edges))  # no value is in two regions
    tpe = given(trials_of(sampler="tpe"), sensitivity=NOTHING, marginals=NOTHING)
    assert heatmaps(tpe) == []


def test_winners_are_named_and_what_is_not_resolved_says_so():
    row = PAIR | {"by": "tau", "objective": "simclr", "mean": 90.0, "runner_up": "dcl", "lead": 0.7}
    rows = [row | {"region": f"tau={tau:g}", "resolved": tau < 1} for tau in TAUS]
    svg = svg_of(figures_of("winners", given(winners=pd.DataFrame(rows)))["winners-tau"])
    assert svg.count("simclr, by 0.7 points") >= 3
    assert "not resolved" in svg


def test_q_b_is_that_of_the_last_scored_epoch(drawn):
    data = drawn["coupling-simclr"].data
    assert data["share"].tolist() == pytest.approx([0.05] * len(data))
    assert sorted(data["batch_size"].unique()) == SIZES
    assert (data["num"] == 6).all()  # three values of tau, two seeds


def test_maps_are_sampled_and_show_the_best_trial_that_has_points(drawn):
    figure = drawn["map-dcl"]
    assert len(figure.data) == 1000
    assert "1,000 of 1,200 images" in figure.caption
    assert figure.data[["x", "y"]].abs().max().max() <= 1
    trials = trials_of(("dcl",), seeds=1)
    points = sides_of(trials)["points"]
    more = points.assign(trial_id=trials["trial_id"].iloc[-1])
    best = trials.iloc[[0, -1]].sort_values("knn_top1")["trial_id"].iloc[-1]
    tables = {"sensitivity": NOTHING, "points": pd.concat([points, more])}
    assert best in figures_of("trials", given(trials, **tables))["map-dcl"].caption


def test_scatter_shows_every_trial_or_says_that_it_is_a_sample(drawn):
    figure = drawn["trials-tau"]
    assert len(figure.data) == 54
    assert "18 without a score are not shown" in figure.caption
    trials = trials_of(seeds=60)
    both = [figures_of("trials", given(trials, sensitivity=NOTHING)) for _ in range(2)]
    first, *rest = (figure for name, figure in both[0].items() if name.startswith("trials"))
    assert len(first.data) == 750
    assert "750 of 1,440 trials, drawn at random with a fixed seed" in first.caption
    assert all(set(figure.data["trial_id"]) == set(first.data["trial_id"]) for figure in rest)
    pd.testing.assert_frame_equal(first.data, both[1][first.name].data)
    effects = [EFFECT | {"term": name, "total": size, "resolved": True}
               for name, size in {"tau": 0.6, "optimizer": 0.9}.items()]  # fmt: skip
    ordered = figures_of("trials", given(sensitivity=pd.DataFrame(effects)))
    assert next(iter(ordered)) == "trials-optimizer"  # what matters most


# A search, and learning curves


def test_the_history_has_a_step_line_of_the_best_so_far(answers, drawn):
    figure = drawn["history"]
    line, *points = layers_of(figure)
    assert line["mark"]["interpolate"] == "step-after"
    assert line["encoding"]["y"]["field"] == "best"
    assert len(points) == 1  # nothing was stopped
    best = figure.data.groupby("objective")["best"]
    assert best.apply(lambda values: values.dropna().is_monotonic_increasing).all()
    tried = clsweep.analyse(answers.data.trials, params=PARAMS).history()
    stopped = given(history=tried.assign(state="stopped"))
    layers = layers_of(figures_of("history", stopped)["history"])
    assert [layer["mark"].get("filled") for layer in layers[1:]] == [True, False]


def learning(**columns):
    frame = pd.DataFrame({"objective": ["simclr", "simclr", "dcl", "dcl"], "config": 0,
                          "epoch": [1, 2] * 2, "images": [100, 200] * 2,
                          "pairs": [100, 200, 600, 1200], "seconds": [1.0, 2.0, 1.01, 2.02],
                          "mean": [50.0, 60, 55, 65], "low": 45.0, "high": 70.0,
                          "num_seeds": 3})  # fmt: skip
    return given(learning=frame.assign(**columns).query("mean == mean"))


@pytest.mark.parametrize(
    ("change", "axes"),
    [
        ({}, ["epochs", "pairs"]),  # all curves are stretched alike on the others
        ({"seconds": [1.0, 2.0, 3.0, 6.0]}, ["epochs", "pairs", "seconds"]),
        ({"pairs": NAN}, ["epochs"]),
        ({"mean": [NAN, 60, NAN, 65]}, []),  # one scored epoch is no curve
    ],
)
def test_an_axis_of_learning_curves_is_drawn_where_it_tells_them_apart(change, axes):
    assert list(figures_of("learning", learning(**change))) == [f"learning-{at}" for at in axes]


@pytest.mark.parametrize("num", [2, 3])
def test_two_seeds_have_no_band(num):
    figure = figures_of("learning", learning(num_seeds=num))["learning-epochs"]
    assert ("Bands need 3 seeds" in figure.caption) == (num < 3)
    assert ("area" in [layer["mark"]["type"] for layer in layers_of(figure)]) == (num > 2)
