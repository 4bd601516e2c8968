"""Charts: what their specs hold and leave out, and that every one of them renders."""

import itertools
import json
import math
import re

import numpy as np
import pandas as pd
import pytest

from clsweep.analysis.regions import cut
from clsweep.analysis.searching import history
from clsweep.analysis.sweep import read_sweeps
from clsweep.display.theme import DARK, LIGHT, SHAPES, svg_to_png, themed, to_svg
from clsweep.findings.material import Material
from clsweep.questions.charts import in_order, numbers, param_title, slugs
from clsweep.questions.comparison import difference_forest, ratio_forest
from clsweep.questions.learning import learning_figures, under_way_figure
from clsweep.questions.marginals import heatmap_figures, marginal_figures
from clsweep.questions.mechanism import histogram_figures
from clsweep.questions.recommend import confirmation_figure
from clsweep.questions.robustness import robustness_forest, tolerance_curves
from clsweep.questions.search import history_figure
from clsweep.questions.sensitivity import sensitivity_figures
from clsweep.questions.trials import point_figures, scatter_figures
from clsweep.questions.tuning import best_of_k_curves
from clsweep.questions.winners import winner_figures

NAN, INF = math.nan, math.inf
TAUS, SIZES = [0.05, 0.1, 0.2, 1.0], [32, 128, 512]
WICKED = "a.b[0]:'x' </script><script>alert(1)</script>"


def make_trials(objectives=("simclr", "dcl"), *, seeds=2, sampler="grid", lost=()):
    """Trials over tau, batch_size and a category; `lost`: values of tau at which every trial
    fails.
    """
    rng, rows = np.random.default_rng(0), []
    settings = [(tau, size) for tau in TAUS for size in SIZES]
    if sampler == "qmc":
        settings = [(0.05 * 20**u, int(32 * 16**v)) for u, v in rng.random((40, 2))]
    for o, name in enumerate(objectives):
        for config, (tau, size) in enumerate(settings):
            for seed in range(seeds):
                failed = tau in lost
                score = 90 - o * np.log10(tau / 0.1) ** 2 + np.log2(size) / 5 + rng.normal(0, 0.2)
                rows.append(
                    {
                        "trial_id": f"{o}-{config}-{seed}",
                        "objective": name,
                        "config": config,
                        "seed": seed,
                    }
                    | {"status": "failed" if failed else "finished", "sampler": sampler, "tau": tau}
                    | {"batch_size": size, "optimizer": "lars" if config % 2 else "sgd"}
                    | {"knn_top1": NAN if failed else score}
                )
    return pd.DataFrame(rows)


def make_material(trials=None, **options):
    trials = make_trials() if trials is None else trials
    params = ("tau", "batch_size", "optimizer")
    return Material(
        **{
            "title": "t",
            "sources": ("results/t",),
            "trials": trials,
            "metric": "knn_top1",
            "unit": "%",
            "mode": "max",
            "params": params,
            "symbols": {"tau": "τ", "batch_size": "N"},
            "sweeps": tuple(read_sweeps(trials, metric="knn_top1", params=params)),
            "chance": 10.0,
            "defaults": {},
            "notes": (),
            **options,
        }
    )


def names_of(material):
    return [sweep.objective for sweep in material.sweeps]


def tolerance_of(material):
    rows = [
        {
            "objective": name,
            "delta": d,
            "share": d / 10,
            "low": d / 12,
            "high": min(1, d / 8),
            "note": "",
        }
        for name in names_of(material)
        for d in np.linspace(0, 10, 21)
    ]
    return pd.DataFrame(rows)


def robustness_of(material):
    rows = [
        {
            "objective": name,
            "sd_star": 1.0 + o,
            "sd_star_low": 0.5 + o,
            "sd_star_high": 2.0 + o,
            "reason": "",
            "note": "",
        }
        for o, name in enumerate(names_of(material))
    ]
    return pd.DataFrame(rows)


def pairs_of(material, **row):
    blank = {"region": "", "p_holm": 0.01, "estimate": 0.5, "low": 0.3, "high": 0.8}
    blank |= {"resolved": True, "reason": "", "note": ""}
    names = names_of(material)
    return pd.DataFrame(
        [
            {"a": a, "b": b, "winner": a, **blank, **row}
            for i, a in enumerate(names)
            for b in names[i + 1 :]
        ]
    )


def marginals_of(material):
    rows = []
    for sweep in material.sweeps:
        for param in sweep.params:
            for value, group in sweep.settings.groupby(param):
                number = NAN if isinstance(value, str) else float(value)
                alive = sweep.means[group.index][sweep.alive[group.index]]
                mean = float(alive.mean()) if len(alive) else NAN
                place = {
                    "objective": sweep.objective,
                    "param": param,
                    "position": number,
                    "label": f"{value}",
                }
                edges = {"value_low": number, "value_high": number, "num_configs": len(group)}
                rows.append(
                    place
                    | edges
                    | {"mean": mean, "low": mean - 0.2, "high": mean + 0.2, "note": ""}
                )
    return pd.DataFrame(rows)


def sensitivity_of(material, **row):
    terms = {
        "tau": 1,
        "batch_size": 1,
        "optimizer": 1,
        "batch_size x optimizer": 2,
        "seed noise": 0,
    }
    return pd.DataFrame(
        [
            {"objective": name, "method": "sobol", "term": term, "order": order}
            | {
                "first": 0.4,
                "first_low": 0.3,
                "first_high": 0.5,
                "total": 0.6 if order == 1 else NAN,
            }
            | {
                "total_low": 0.5,
                "total_high": 0.7,
                "null": 0.05,
                "resolved": True,
                "note": "",
                **row,
            }
            for name in names_of(material)
            for term, order in terms.items()
        ]
    )


def winners_of(material):
    first, last = names_of(material)[0], names_of(material)[-1]
    row = {
        "by": "tau",
        "objective": first,
        "mean": 90.0,
        "runner_up": last,
        "lead": 0.7,
        "low": 0.1,
        "high": 1.3,
    }
    regions = [f"tau={tau:g}" for tau in TAUS]
    return pd.DataFrame(
        [
            {
                **row,
                "region": at,
                "p_holm": 0.01,
                "winner": "" if at == "tau=1" else first,
                "resolved": at != "tau=1",
                "reason": "",
                "note": "",
            }
            for at in regions
        ]
    )


def best_of_k_of(material):
    return pd.DataFrame(
        [
            {
                "objective": name,
                "k": k,
                "expected": 90 - 1 / k,
                "low": 89.9 - 1 / k,
                "high": 90.1 - 1 / k,
            }
            for name in names_of(material)
            for k in (1, 2, 4, 8)
        ]
    )


def sides_of(trials):
    """Histograms of two epochs, t-SNE points, confirmation and references."""
    edges = np.arange(20) / 20
    histograms = [
        {
            "trial_id": trial,
            "epoch": epoch,
            "bin_low": e,
            "bin_high": e + 0.05,
            "share": 0.05 * epoch,
        }
        for trial in trials["trial_id"]
        for epoch in (0, 1)
        for e in edges
    ]
    rng = np.random.default_rng(0)
    points = [
        {"trial_id": trial, "index": i, "label": i % 10, "x": x, "y": y}
        for trial in trials.groupby("objective")["trial_id"].first()
        for i, (x, y) in enumerate(rng.normal(size=(1200, 2)))
    ]
    confirmation = [
        {
            "objective": name,
            "config": 0,
            "rank": 1,
            "at": "tau=0.1",
            "search": 91.0,
            "fresh": 90.5,
            "fresh_low": 90.0,
        }
        | {"fresh_high": 91.0, "test": NAN, "test_low": NAN, "test_high": NAN}
        for name in trials["objective"].unique()
    ]
    references = [
        {"reference": "raw_pixels", "knn_top1": 91.0},
        {"reference": "untrained", "knn_top1": 30.0},
        {"reference": "untrained", "knn_top1": 40.0},
    ]
    frames = (histograms, points, confirmation, references)
    names = ("histograms", "points", "confirmation", "references")
    return {name: pd.DataFrame(rows) for name, rows in zip(names, frames, strict=True)}


def every_figure(material):
    sensitivity, pairs = sensitivity_of(material), pairs_of(material)
    found = [
        tolerance_curves(tolerance_of(material), material),
        robustness_forest(robustness_of(material), material),
        ratio_forest(pairs, material),
        difference_forest(pairs, material),
        *marginal_figures(marginals_of(material), material),
        *heatmap_figures(material, sensitivity),
        *sensitivity_figures(sensitivity, material),
        *winner_figures(winners_of(material), material),
        best_of_k_curves(best_of_k_of(material), material),
        *histogram_figures(material),
        *point_figures(material),
        *scatter_figures(material, sensitivity),
        confirmation_figure(material),
    ]
    return [figure for figure in found if figure is not None]


@pytest.fixture(scope="module")
def material():
    trials = make_trials(lost=(1.0,))
    return make_material(trials, **sides_of(trials))


@pytest.fixture(scope="module")
def drawn(material):
    return every_figure(material)


def spec_of(figure, **options):
    return themed(figure.chart, **{"dark": False, **options})


def rows_of(spec):
    """The rows of every data set of a spec."""
    return [row for rows in spec.get("datasets", {}).values() for row in rows]


def by_name(drawn, name):
    return next(figure for figure in drawn if figure.name == name)


# All of them


def test_every_kind_of_figure_is_there(drawn):
    names = [figure.name for figure in drawn]
    assert len(set(names)) == len(names)
    assert {re.sub(r"-(simclr|dcl|tau|batch-size|optimizer)$", "", name) for name in names} == {
        *(
            "tolerance",
            "robustness",
            "sd-ratios",
            "mean-differences",
            "marginal",
            "heatmap",
            "sensitivity",
            "winners",
        ),
        *("best-of-k", "coupling", "map", "trials", "confirmation"),
    }


def test_charts_are_as_wide_as_their_place(drawn):
    for figure in drawn:
        spec = figure.chart.to_dict()
        assert spec["width"] == "container"
        assert spec["height"] > 0
        assert not {"facet", "hconcat", "vconcat", "concat", "repeat"} & set(spec)
        assert figure.caption.endswith(".")
        assert len(figure.data)


def test_every_figure_renders(drawn):
    for number, figure in enumerate(drawn):
        svg = to_svg(spec_of(figure, dark=number % 2 == 0), width=340)
        assert 'width="340"' in svg
        assert "NaN" not in svg
    png = svg_to_png(to_svg(spec_of(drawn[0], background=None)))
    assert png[:4] == b"\x89PNG"
    assert int.from_bytes(png[16:20], "big") == 1280


def test_a_theme_is_light_or_dark_and_leaves_the_chart_alone(drawn):
    before = drawn[0].chart.to_dict()
    light, dark = spec_of(drawn[0]), spec_of(drawn[0], dark=True)
    assert light["background"] == dark["background"] == "transparent"
    assert spec_of(drawn[0], background=None)["background"] == "#ffffff"
    assert spec_of(drawn[0], dark=True, background=None)["background"] == DARK.page
    assert light["config"]["range"]["category"] == list(LIGHT.category)
    assert dark["config"]["range"]["category"] == list(DARK.category)
    assert themed(light, dark=True) == dark
    assert drawn[0].chart.to_dict() == before


SIGHT = {  # linear RGB as it is seen (Machado, Oliveira and Fernandes 2009)
    "normal": np.eye(3),
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
}


@pytest.mark.parametrize("palette", [LIGHT, DARK])
@pytest.mark.parametrize("sight", SIGHT)
def test_colours_stay_apart_for_the_colour_blind(palette, sight):
    rgb = np.array(
        [[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in palette.category]
    )
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ np.transpose(
        SIGHT[sight]
    )
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.clip(linear, 0, 1) @ np.transpose(to_xyz) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    lab = np.stack(
        [116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1
    )
    apart = np.linalg.norm(lab[:, None] - lab[None], axis=2)
    assert apart[~np.eye(len(lab), dtype=bool)].min() > 20  # a just noticeable difference is 2.3


def test_colours_are_legible_on_their_page_and_distinct_with_shapes():
    def luminance(colour):
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    for palette in (LIGHT, DARK):
        page = luminance(palette.page)
        for colour in (*palette.category, palette.text, palette.soft):
            bright, dim = sorted((luminance(colour), page), reverse=True)
            assert (bright + 0.05) / (dim + 0.05) >= 3  # WCAG, for graphics
    assert math.gcd(len(LIGHT.category), len(SHAPES)) == 1
    assert len(LIGHT.category) == len(DARK.category)


def test_names_that_look_like_code_are_only_values():
    trials = make_trials((WICKED, "dcl"))
    wicked = make_material(trials, **sides_of(trials))
    for figure in every_figure(wicked):
        spec = spec_of(figure)
        to_svg(spec)
        assert WICKED not in {key for row in rows_of(spec) for key in row}
        assert "script" not in "".join(
            re.findall(r'"(?:field|filter|test|expr)": "[^"]*"', json.dumps(spec))
        )
        assert re.fullmatch(r"[a-z0-9-]+", figure.name)


def test_titles_are_one_line():
    material = make_material(symbols={"tau": "a\nb"})
    for figure in marginal_figures(marginals_of(material), material):
        to_svg(spec_of(figure))


def test_slugs_are_unique():
    assert slugs("x", ["A b", "a.b", "", "<>"]) == ["x-a-b", "x-a-b-2", "x-unnamed", "x-unnamed-2"]


def test_an_objective_has_one_colour_and_shape_in_every_figure(drawn):
    for figure in drawn:
        found = re.findall(
            r'"field": "objective", [^{}]*"scale": {"domain": (\[[^]]*\])',
            json.dumps(spec_of(figure)),
        )
        assert set(found) <= {'["simclr", "dcl"]'}
    assert "objective" in json.dumps(spec_of(by_name(drawn, "tolerance")))


def test_unknown_and_infinite_numbers_are_left_out(drawn):
    assert np.isnan(numbers(pd.DataFrame({"x": [1.0, INF, None, "?"]}), "x")).tolist() == [
        False,
        True,
        True,
        True,
    ]
    for figure in drawn:
        json.dumps(spec_of(figure), allow_nan=False)


# One by one


@pytest.mark.parametrize("name", ["tolerance", "best-of-k", "marginal-tau"])
def test_bands_are_drawn_only_where_there_are_intervals(material, name):
    tables = {
        "tolerance": (tolerance_of, tolerance_curves),
        "best-of-k": (best_of_k_of, best_of_k_curves),
        "marginal-tau": (marginals_of, lambda table, m: marginal_figures(table, m)[0]),
    }
    table, draw = tables[name]
    assert "95 % intervals" in draw(table(material), material).caption
    bare = table(material).assign(low=NAN, high=NAN)
    assert "No intervals" in draw(bare, material).caption
    to_svg(spec_of(draw(bare, material)))


def test_tables_without_rows_have_no_figure(material):
    empty = pd.DataFrame()
    single = (
        tolerance_curves,
        robustness_forest,
        ratio_forest,
        difference_forest,
        best_of_k_curves,
    )
    assert [draw(empty, material) for draw in single] == [None] * 5
    assert marginal_figures(empty, material) == []
    assert sensitivity_figures(empty, material) == []
    assert winner_figures(empty, material) == []
    bare = make_material()
    assert histogram_figures(bare) == point_figures(bare) == []
    assert confirmation_figure(bare) is None


def test_tables_without_numbers_have_no_figure(material):
    assert tolerance_curves(tolerance_of(material).assign(share=NAN), material) is None
    assert robustness_forest(robustness_of(material).assign(sd_star=NAN), material) is None
    assert ratio_forest(pairs_of(material, estimate=0.0), material) is None
    assert ratio_forest(pairs_of(material, estimate=INF), material) is None
    assert difference_forest(pairs_of(material, estimate=NAN), material) is None
    assert marginal_figures(marginals_of(material).assign(mean=NAN), material) == []
    below_gate = sensitivity_of(material, term="", first=NAN, total=NAN)
    assert sensitivity_figures(below_gate, material) == []


def test_an_objective_that_was_not_measured_keeps_its_row(material):
    table = robustness_of(material)
    table.loc[1, ["sd_star", "sd_star_low", "sd_star_high"]] = NAN
    svg = to_svg(spec_of(robustness_forest(table, material)))
    assert "not measured" in svg
    assert "dcl" in svg


def test_an_end_of_a_ratio_at_zero_or_infinity_is_an_arrow(material):
    for ends in ({"low": 0.0}, {"high": INF}):
        spec = spec_of(ratio_forest(pairs_of(material, **ends), material))
        assert "triangle-" in json.dumps(spec["layer"])
        to_svg(spec)
    closed = spec_of(ratio_forest(pairs_of(material), material))
    assert "triangle-" not in json.dumps(closed["layer"])
    no_interval = spec_of(ratio_forest(pairs_of(material, low=NAN, high=NAN), material))
    assert "triangle-" not in json.dumps(no_interval["layer"])


def test_too_many_pairs_are_cut_to_the_clearest():
    many = make_material(make_trials(tuple(f"o{i}" for i in range(12)), seeds=1))
    table = pairs_of(many)
    table["p_holm"] = np.linspace(1, 0, len(table))
    figure = difference_forest(table, many)
    shown = {row["row"] for row in rows_of(spec_of(figure)) if "row" in row}
    assert len(shown) == 45
    assert "o10 − o11" in shown
    assert "45 of 66" in figure.caption
    assert len(figure.data) == 66


@pytest.mark.parametrize(("failed_as", "ticks"), [("worst", TAUS), ("left out", TAUS[:3])])
def test_grid_values_are_the_ticks_of_a_log_axis(material, failed_as, ticks):
    params = ("tau", "batch_size", "optimizer")
    trials = material.trials  # every one at 1.0 failed
    sweeps = read_sweeps(trials, metric="knn_top1", params=params, failed_as=failed_as)
    read = make_material(trials, sweeps=tuple(sweeps))
    spec = spec_of(by_name(marginal_figures(marginals_of(read), read), "marginal-tau"))
    x = next(
        layer["encoding"]["x"]
        for layer in spec["layer"]
        if "scale" in layer["encoding"].get("x", {})
    )
    assert x["scale"]["type"] == "log"
    assert x["axis"]["values"] == ticks
    assert x["title"] == "τ (tau)"


def test_a_parameter_without_a_symbol_goes_by_its_name(material):
    assert param_title(material, "optimizer") == "optimizer"


def test_categories_stand_side_by_side(drawn):
    assert "xOffset" in json.dumps(spec_of(by_name(drawn, "marginal-optimizer")))


def test_references_are_drawn_near_the_scores_and_told_elsewhere(drawn):
    figure = by_name(drawn, "marginal-tau")
    assert "raw pixels 91" in [row.get("name") for row in rows_of(spec_of(figure))]
    assert "Off the axis: untrained 35." in figure.caption
    assert "Dashed: without training." in figure.caption


def test_heatmaps_share_one_scale_and_show_what_failed(material):
    first, second = heatmap_figures(material, pd.DataFrame())
    domains = [
        re.findall(r'"scale": {"domain": (\[[0-9., ]+\])', json.dumps(spec_of(f)))[0]
        for f in (first, second)
    ]
    assert domains[0] == domains[1]
    assert first.name == "heatmap-simclr"
    assert "failed" in to_svg(spec_of(first))
    means = first.data["mean"]
    assert means.isna().sum() == len(SIZES)
    assert [np.nanmin(means), np.nanmax(means)] >= json.loads(domains[0])[:1]
    sweep = material.sweeps[0]
    cell = (sweep.settings["tau"] == 0.1) & (sweep.settings["batch_size"] == 128)
    row = first.data[
        (first.data["tau (across)"] == "0.1") & (first.data["batch_size (up)"] == "128")
    ]
    assert row["mean"].item() == pytest.approx(sweep.means[cell.to_numpy()].mean())


def test_heatmaps_take_the_largest_interaction_where_tau_is_not_swept():
    trials = make_trials().assign(tau=0.1)
    trials["weight_decay"] = trials["config"] % 3 / 10
    params = ("batch_size", "weight_decay", "optimizer")
    sweeps = tuple(read_sweeps(trials, metric="knn_top1", params=params))
    other = make_material(trials, sweeps=sweeps)
    assert "over batch_size and weight_decay" in heatmap_figures(other, pd.DataFrame())[0].title
    assert "over batch_size and optimizer" in heatmap_figures(other, sensitivity_of(other))[0].title


def test_heatmaps_bin_sampled_values_and_skip_adaptive_designs():
    sampled = make_material(make_trials(sampler="qmc"))
    assert heatmap_figures(sampled, pd.DataFrame())[0].data["tau (across)"].nunique() == 6
    assert heatmap_figures(make_material(make_trials(sampler="tpe")), pd.DataFrame()) == []


def test_the_regions_of_heatmaps_are_those_of_the_statistics():
    sampled = make_trials(sampler="qmc").assign(batch_size=lambda t: t["config"] * 7 % 30 + 1)
    sweeps = tuple(read_sweeps(sampled, metric="knn_top1", params=("tau", "batch_size")))
    for figure, sweep in zip(
        heatmap_figures(make_material(sampled, sweeps=sweeps), pd.DataFrame()), sweeps, strict=True
    ):
        regions = cut("batch_size", [sweep])
        assert set(figure.data["batch_size (up)"]) == set(regions.labels)
        edges = zip(regions.low, regions.high, strict=True)
        assert all(a[1] < b[0] for a, b in itertools.pairwise(edges))  # no value is in two regions


def test_a_spread_begins_at_zero(drawn):
    assert '"domainMin": 0' in json.dumps(spec_of(by_name(drawn, "robustness")))


def test_a_metric_to_be_small_keeps_its_sign():
    trials = make_trials().assign(knn_top1=lambda t: 100 - t["knn_top1"])
    sweeps = tuple(read_sweeps(trials, metric="knn_top1", params=["tau", "batch_size"], mode="min"))
    figure = heatmap_figures(make_material(trials, sweeps=sweeps, mode="min"), pd.DataFrame())[0]
    assert figure.data["mean"].between(5, 15).all()


def test_winners_are_named_and_what_is_not_resolved_says_so(drawn):
    svg = to_svg(spec_of(by_name(drawn, "winners-tau")))
    assert svg.count("simclr, by 0.7 points") >= 3
    assert "not resolved" in svg


def test_q_b_is_that_of_the_last_scored_epoch(drawn):
    data = by_name(drawn, "coupling-simclr").data
    assert data["share"].tolist() == pytest.approx([0.05] * len(data))
    assert sorted(data["batch_size"].unique()) == SIZES
    assert (data["num"] == 6).all()  # three values of tau, two seeds


def test_maps_are_sampled_and_say_so(drawn):
    figure = by_name(drawn, "map-dcl")
    assert len(figure.data) == 1000
    assert "1,000 of 1,200 images" in figure.caption
    assert figure.data[["x", "y"]].abs().max().max() <= 1


def test_maps_show_the_best_trial_that_has_points():
    trials = make_trials(("dcl",))
    sides = sides_of(trials)
    more = sides["points"].assign(trial_id=trials["trial_id"].iloc[-1])
    best = trials[
        trials["trial_id"].isin([trials["trial_id"].iloc[0], trials["trial_id"].iloc[-1]])
    ]
    best = best.sort_values("knn_top1")["trial_id"].iloc[-1]
    both = make_material(trials, points=pd.concat([sides["points"], more]))
    assert best in point_figures(both)[0].caption


def test_scatter_shows_every_trial_or_says_that_it_is_a_sample(drawn):
    figure = by_name(drawn, "trials-tau")
    assert len(figure.data) == 36
    assert "12 without a score are not shown" in figure.caption
    trials = make_trials(seeds=60)
    first, *rest = scatter_figures(make_material(trials), pd.DataFrame())
    assert len(first.data) == 750
    assert "750 of 1,440 trials, drawn at random with a fixed seed" in first.caption
    assert all(set(figure.data["trial_id"]) == set(first.data["trial_id"]) for figure in rest)
    again = scatter_figures(make_material(trials), pd.DataFrame())[0]
    pd.testing.assert_frame_equal(first.data, again.data)


def test_scatter_begins_with_what_matters_most(material):
    table = sensitivity_of(material)
    table.loc[table["term"] == "optimizer", "total"] = 0.9
    assert scatter_figures(material, table)[0].name == "trials-optimizer"


def test_confirmation_leaves_out_a_split_that_was_not_read(drawn):
    svg = to_svg(spec_of(by_name(drawn, "confirmation")))
    assert ">fresh seeds<" in svg
    assert ">test split<" not in svg


def test_nothing_is_drawn_where_nothing_finished():
    trials = make_trials(lost=TAUS)
    lost = make_material(trials, **sides_of(trials))
    assert heatmap_figures(lost, pd.DataFrame()) == scatter_figures(lost, pd.DataFrame()) == []
    assert histogram_figures(lost) == point_figures(lost) == []


def test_objectives_without_a_sweep_are_left_out(material):
    frame = pd.DataFrame({"objective": ["dcl", "gone", "simclr"], "x": [1, 2, 3]})
    assert in_order(frame, material)["objective"].tolist() == ["simclr", "dcl"]


def test_specs_stay_small(drawn):
    assert sum(len(json.dumps(spec_of(figure))) for figure in drawn) < 400_000


# A search, and learning curves


def searched(material):
    return history(material.sweeps, material.trials, "knn_top1")


def test_the_history_has_a_step_line_of_the_best_so_far(material):
    figure = history_figure(searched(material), material)
    chart = figure.chart.to_dict()
    line, *points = chart["layer"]
    assert line["mark"]["interpolate"] == "step-after"
    assert line["encoding"]["y"]["field"] == "best"
    assert len(points) == 1  # nothing was stopped
    best = figure.data.groupby("objective")["best"]
    assert best.apply(lambda values: values.dropna().is_monotonic_increasing).all()


def test_stopped_configurations_are_open_points(material):
    stopped = searched(material).assign(state="stopped")
    layers = history_figure(stopped, material).chart.to_dict()["layer"]
    assert [layer["mark"].get("filled") for layer in layers[1:]] == [True, False]


def learning_of(**columns):
    frame = pd.DataFrame(
        {
            "objective": ["simclr", "simclr", "dcl", "dcl"],
            "config": 0,
            "epoch": [1, 2, 1, 2],
            "images": [100, 200, 100, 200],
            "pairs": [100, 200, 600, 1200],
            "seconds": [1.0, 2.0, 1.01, 2.02],
            "mean": [50.0, 60, 55, 65],
            "low": 45.0,
            "high": 70.0,
            "num_seeds": 3,
        }
    )
    return frame.assign(**columns)


def test_an_axis_on_which_all_curves_are_stretched_alike_is_left_out(material):
    drawn = learning_figures(learning_of(), material)
    assert [figure.name for figure in drawn] == ["learning-epochs", "learning-pairs"]
    slow = learning_of(seconds=[1.0, 2.0, 3.0, 6.0])
    names = [figure.name for figure in learning_figures(slow, material)]
    assert names == ["learning-epochs", "learning-pairs", "learning-seconds"]
    unknown = learning_of(pairs=NAN)
    assert len(learning_figures(unknown, material)) == 1


def test_two_seeds_have_no_band(material):
    (figure, _) = learning_figures(learning_of(num_seeds=2), material)
    assert "Bands need 3 seeds" in figure.caption
    marks = [layer["mark"]["type"] for layer in figure.chart.to_dict()["layer"]]
    assert "area" not in marks
    assert "area" in [
        layer["mark"]["type"]
        for layer in learning_figures(learning_of(), material)[0].chart.to_dict()["layer"]
    ]


def under_way(**columns):
    frame = pd.DataFrame(
        {
            "trial_id": ["simclr-0-s9", "simclr-0-s9", "dcl-0-s9"],
            "objective": ["simclr", "simclr", "dcl"],
            "status": "running",
            "epoch": [1, 2, 1],
            "train_loss": [3.0, 2.0, 4.0],
            "knn_top1": [NAN, 50.0, NAN],
        }
    )
    return frame.assign(**columns)


def test_trials_under_way_are_drawn_by_their_score_or_else_by_their_loss(material):
    figure = under_way_figure(under_way(), material)
    scored = [(row["x"], row["y"]) for row in rows_of(spec_of(figure)) if "y" in row]
    assert set(scored) == {(2, 50.0)}
    assert "Not drawn: 1," in figure.caption
    unscored = under_way_figure(under_way(knn_top1=NAN), material)
    assert "Not drawn" not in unscored.caption
    assert "Training loss of 2 trials" in unscored.caption
    drawn = {(row["trial_id"], row["x"], row["y"]) for row in rows_of(spec_of(unscored))}
    assert drawn == {("simclr-0-s9", 1, 3.0), ("simclr-0-s9", 2, 2.0), ("dcl-0-s9", 1, 4.0)}
    assert to_svg(spec_of(unscored))
    assert under_way_figure(pd.DataFrame(), material) is None


def test_one_scored_epoch_is_no_curve(material):
    assert learning_figures(learning_of().query("epoch == 2"), material) == []


def test_a_colour_is_an_objective_and_nothing_else(drawn):
    """Every scale of colours is that of the objectives, or has colours of its own."""
    own = {colour.lower() for palette in (LIGHT, DARK) for colour in palette.category}
    for figure in drawn:
        for layer in figure.chart.to_dict().get("layer", []):
            hue = layer.get("encoding", {}).get("color", {})
            hue = hue.get("condition", hue)
            if not isinstance(hue, dict) or hue.get("type") != "nominal":
                continue
            scale = hue["scale"]
            if hue["field"] == "objective":
                assert scale["domain"][:2] == ["simclr", "dcl"], figure.name
            else:
                assert "scheme" in scale or not own & set(map(str.lower, scale["range"]))
