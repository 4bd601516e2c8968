"""Charts: what holds of each one, and cases whose specs are read in tests/pages/figures.md."""

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
from clsweep.display.theme import DARK, LIGHT, themed, to_svg
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
    options = {"num_seeds": seeds, "noise": 0.2, "fail": lambda at: at["tau"] in lost, **space}
    frames = [
        planted(
            lambda at, o=o: 90 - o * np.log10(at["tau"] / 0.1) ** 2 + np.log2(at["batch_size"]) / 5,
            objective=name, seed=o, **options,
        )
        for o, name in enumerate(objectives)
    ]  # fmt: skip
    trials = pd.concat(frames, ignore_index=True).assign(sampler=sampler)
    return trials.assign(optimizer=np.where(trials["config"] % 2, "lars", "sgd"))


def given(trials=None, *, params=PARAMS, failed="worst", **tables):
    """The answers of trials, some of whose tables are given."""
    trials = trials_of() if trials is None else trials
    answers = clsweep.analyse(trials, metric="knn_top1", params=params, failed=failed)
    return Given(answers.data, {"sensitivity": NOTHING} | tables)


def sides_of(trials):
    """Histograms of two epochs, t-SNE points, confirmation and references."""
    ids, names = trials["trial_id"], trials["objective"].unique()
    rng, edges = np.random.default_rng(0), np.arange(20) / 20
    at = pd.MultiIndex.from_product([ids, (0, 1), edges], names=["trial_id", "epoch", "bin_low"])
    bars = at.to_frame(index=False)
    first = trials.groupby("objective")["trial_id"].first()
    points = {"index": range(1200), "label": np.arange(1200) % 10}
    xy = [rng.normal(size=(1200, 2)) for _ in first]
    search = {"search": 91.0, "fresh": 90.5, "fresh_low": 90.0, "fresh_high": 91.0}
    return {
        "histograms": bars.assign(bin_high=bars["bin_low"] + 0.05, share=0.05 * bars["epoch"]),
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


def every_figure():
    """Of a study with an objective of a wicked name, that failed at one value, with side tables."""
    trials = trials_of(("simclr", "dcl", WICKED), lost=(1.0,))
    answers = given(trials, **sides_of(trials))
    del answers._tables["sensitivity"]
    return {k: figure for name in QUESTIONS for k, figure in figures_of(name, answers).items()}


@pytest.fixture(scope="module")
def drawn():
    return every_figure()


def spec_of(figure, **options):
    return themed(figure.spec, **{"dark": False, **options})


def rows_of(spec):
    """The rows of every data set of a spec."""
    return [row for rows in spec.get("datasets", {}).values() for row in rows]


# Of all of them.


def test_every_kind_is_there_described_finite_and_as_wide_as_its_place(drawn):
    ends = r"-(simclr|dcl|a-b-0-x-script.*|tau|batch-size|optimizer)$"
    assert {re.sub(ends, "", name) for name in drawn} == KINDS
    size = 0
    for number, (name, figure) in enumerate(drawn.items()):
        assert re.fullmatch(r"[a-z0-9-]+", name)
        spec = spec_of(figure, dark=number % 2 == 0)
        text = json.dumps(spec, allow_nan=False)
        size += len(text)
        # Names that look like code are only values.
        assert WICKED not in {key for row in rows_of(spec) for key in row}
        code = re.findall(r'"(?:field|filter|test|expr)": "[^"]*"', text)
        assert "script" not in "".join(code)
        assert spec["width"] == "container"
        assert spec["height"] > 0
        assert not {"facet", "hconcat", "vconcat", "concat", "repeat"} & set(spec)
        assert figure.spec["description"] == figure.title
        assert figure.caption.endswith(".")
        assert len(figure.data)
        if not name.endswith("dcl"):  # as the others of its kind
            assert 'width="340"' in (svg := to_svg(spec, width=340))
            assert "NaN" not in svg
        assert_colours_are_objectives(spec)
    assert size < 700_000
    png = drawn["tolerance"].picture.result().png
    assert png[:4] == b"\x89PNG"
    assert int.from_bytes(png[16:20], "big") == 1280


def assert_colours_are_objectives(spec):
    own = {colour.lower() for palette in (LIGHT, DARK) for colour in palette.category}
    for layer in spec.get("layer", []):
        hue = layer.get("encoding", {}).get("color", {})
        hue = hue.get("condition", hue)
        if not isinstance(hue, dict) or hue.get("type") != "nominal":
            continue
        if hue["field"] == "objective":
            assert hue["scale"]["domain"][:2] == ["simclr", "dcl"]
        else:
            colours = set(map(str.lower, hue["scale"].get("range", ())))
            assert "scheme" in hue["scale"] or not own & colours


def test_symbols_and_names_of_figures_are_of_one_line(monkeypatch):
    monkeypatch.setattr(charts, "PARAM", {"tau": SimpleNamespace(symbol="two\nlines")})
    to_svg(spec_of(figures_of("marginals", given())["marginal-tau"]))
    assert slugs("x", ["A b", "a.b", "", "<>"]) == ["x-a-b", "x-a-b-2", "x-unnamed", "x-unnamed-2"]


# Cases whose specs are read.

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
GONE = {"objective": ["gone", "dcl", "simclr"], "sd_star": [1.0, NAN, 2.0],
        "sd_star_low": [0.5, NAN, 1.0], "sd_star_high": [2.0, NAN, 3.0]}  # fmt: skip
BANDS = {"low": [0.1, 0.1], "high": [95.0, 95.0]}
TABLES = {  # of a question: the table that it draws, and its rows
    "tolerance": ("tolerance", CURVE), "best-of-k": ("best_of_k", CURVE),
    "marginals": ("marginals", LEVEL), "robustness": ("robustness", SPREAD),
    "comparison-std": ("compare std", PAIR), "comparison-mean": ("compare mean", PAIR),
    "sensitivity": ("sensitivity", EFFECT),
}  # fmt: skip
WON = PAIR | {"by": "tau", "objective": "simclr", "mean": 90.0, "runner_up": "dcl", "lead": 0.7}
WINNERS = [WON | {"region": f"tau={tau:g}", "resolved": tau < 1} for tau in TAUS]
LEARNING = {"objective": ["simclr", "simclr", "dcl", "dcl"], "config": 0, "epoch": [1, 2] * 2,
            "images": [100, 200] * 2, "pairs": [100, 200, 600, 1200], "num_seeds": 3,
            "seconds": [1.0, 2.0, 1.01, 2.02], "mean": [50.0, 60, 55, 65], "low": 45.0,
            "high": 70.0}  # fmt: skip


def of_rows(question, **change):
    """The figures of a question whose table is given."""
    table, row = TABLES[question]
    row = {"objective": "simclr", "note": "", "low": NAN, "high": NAN} | row | change
    frame = pd.DataFrame(row, index=None if any(map(np.ndim, row.values())) else [0])
    figures = figures_of(question, given(trials_of(seeds=1), **{table: frame}))
    return {name: figure for name, figure in figures.items() if "heatmap" not in name}


def learning(**columns):
    frame = pd.DataFrame(LEARNING).assign(**columns).query("mean == mean")
    return figures_of("learning", given(learning=frame))


def heatmaps(trials, **options):
    figures = figures_of("marginals", given(trials, marginals=NOTHING, **options))
    return {name: figure for name, figure in figures.items() if name.startswith("heatmap")}


def cases():
    """Title of a case -> its figures, whose whole specs are read."""
    drawn = every_figure()
    yield "a study", {k: v for k, v in drawn.items() if not k.endswith(("simclr", "script"))}
    for question in ("tolerance", "best-of-k", "marginals"):
        yield f"{question} without intervals", of_rows(question)
        yield f"{question} with intervals", of_rows(question, **BANDS)
    for ends in ({"low": 0.0}, {"high": INF}, {}, {"low": NAN, "high": NAN}):
        yield f"a ratio with ends {ends}", of_rows("comparison-std", **ends)
    yield "an objective that was not measured, one without a sweep", of_rows("robustness", **GONE)
    yield "winners", figures_of("winners", given(winners=pd.DataFrame(WINNERS)))
    failed = figures_of("marginals", given(trials_of(lost=(1.0,)), failed="left out"))
    yield "failed trials left out", {"marginal-tau": failed["marginal-tau"]}
    tried = clsweep.analyse(trials_of(), params=PARAMS).history().assign(state="stopped")
    yield "a search that stopped trials", figures_of("history", given(history=tried))
    yield "learning of two seeds", learning(num_seeds=2)


def brief_cases():
    """Title of a case -> its figures, whose titles, captions and rows are read."""
    yield "learning", learning()  # on the other axes all curves are stretched alike
    yield "slow learning", learning(seconds=[1.0, 2.0, 3.0, 6.0])
    yield "learning without pairs", learning(pairs=NAN)
    names = [f"o{i}" for i in range(12)]
    pairs = pd.DataFrame([PAIR | {"a": a, "b": b} for a, b in itertools.combinations(names, 2)])
    pairs["p_holm"] = np.linspace(1, 0, len(pairs))
    many = given(trials_of(names, seeds=1), **{"compare mean": pairs})
    yield "more pairs than are drawn", figures_of("comparison-mean", many)
    bare = trials_of().assign(tau=0.1)
    bare["weight_decay"] = bare["config"] % 3 / 10
    effect = EFFECT | {"term": "batch_size x optimizer", "order": 2, "first": 0.4}
    params = ("batch_size", "weight_decay", "optimizer")
    hanging = bare["optimizer"].where(bare["weight_decay"] == 0.1)
    yield "heatmaps without tau", heatmaps(bare, params=params)
    strongest = pd.DataFrame([effect])
    yield "heatmaps of an interaction", heatmaps(bare, params=params, sensitivity=strongest)
    nested = bare.assign(optimizer=hanging)
    yield "heatmaps of what hangs on another", heatmaps(nested, params=(*params[1:], params[0]))
    yield "heatmaps of a search", heatmaps(trials_of(sampler="tpe"))
    trials = trials_of(("dcl",), seeds=1)
    points = sides_of(trials)["points"]
    points = pd.concat([points, points.assign(trial_id=trials["trial_id"].iloc[-1])])
    maps = figures_of("trials", given(trials, points=points))
    yield "points of two trials", {"map-dcl": maps["map-dcl"]}
    yield "more trials than are drawn", figures_of("trials", given(trials_of(seeds=60)))
    effects = [EFFECT | {"term": name, "total": size, "resolved": True}
               for name, size in {"tau": 0.6, "optimizer": 0.9}.items()]  # fmt: skip
    ordered = given(sensitivity=pd.DataFrame(effects))
    yield "what matters most comes first", figures_of("trials", ordered)


def lines_of_specs():
    """Of all cases, for tests/test_pages.py."""
    whole = [*cases()]
    for number, (title, figures) in enumerate([*whole, *brief_cases()]):
        yield f"# {title}"
        for name, figure in figures.items():
            yield f"## {name}: {figure.title}"
            yield figure.caption
            yield f"{len(figure.data)} rows: {summary(figure.data)}"
            spec = figure.chart.to_dict()
            for rows in spec.pop("datasets", {}).values():
                yield f"drawn, {len(rows)} rows: {summary(pd.DataFrame(rows))}"
            yield from map(text_of, spec.get("layer", ()) if number < len(whole) else ())


def summary(frame):
    """Each column of a table by what its values add up to."""
    texts = []
    for name, values in frame.items():
        numbers = pd.to_numeric(values, errors="coerce")
        total, distinct = round(float(numbers.sum()), 6), {*values.map(str)}
        texts.append(f"{name} {total:.5g}" if numbers.notna().any() else f"{len(distinct)} {name}")
    return ", ".join(texts)


def text_of(layer):
    """A layer on one line, without its data and what a mouse shows."""
    for channel in ("tooltip", "href"):
        layer.get("encoding", {}).pop(channel, None)
    layer.pop("data", None)
    return json.dumps(layer, ensure_ascii=False, sort_keys=True)


# What is not seen in a spec.


def test_tables_without_rows_or_numbers_have_no_figure():
    for question, without in (
        ("tolerance", {"share": NAN}), ("robustness", {"sd_star": NAN}),
        ("comparison-std", {"estimate": 0.0, "low": 0.0, "high": 0.0}),
        ("comparison-std", {"estimate": INF, "low": NAN, "high": INF}),
        ("comparison-std", {"estimate": NAN}),
        ("comparison-mean", {"estimate": NAN}), ("marginals", {"mean": NAN}),
        ("sensitivity", {"term": ""}),
    ):  # fmt: skip
        assert of_rows(question, **without) == {}, question
        empty = given(trials_of(seeds=1), **{TABLES[question][0]: pd.DataFrame(columns=[*PAIR])})
        assert [name for name in figures_of(question, empty) if "heatmap" not in name] == []
    for question in ("mechanism", "recommendation"):
        assert figures_of(question, given(trials_of(seeds=1))) == {}
    lost = trials_of(lost=TAUS)
    for question in ("mechanism", "trials", "marginals"):
        assert figures_of(question, given(lost, marginals=NOTHING, **sides_of(lost))) == {}
    assert learning(mean=[NAN, 60, NAN, 65]) == {}  # one scored epoch is no curve


def test_heatmaps_have_the_means_of_the_statistics_on_one_scale():
    figures, sweep = heatmaps(trials_of()), given().data.sweeps[0]
    data = figures["heatmap-simclr"].data
    cell = (sweep.settings["tau"] == 0.1) & (sweep.settings["batch_size"] == 128)
    row = data.query("`tau (across)` == '0.1' and `batch_size (up)` == '128'")
    assert row["mean"].item() == pytest.approx(sweep.means[cell.to_numpy()].mean())
    domain = re.compile(r'"scale": {"domain": (\[[0-9., ]+\])')
    assert len({domain.findall(json.dumps(spec_of(each)))[0] for each in figures.values()}) == 1


def test_heatmaps_bin_sampled_values_as_the_statistics():
    sampled = trials_of(sampler="qmc").assign(batch_size=lambda t: t["config"] * 7 % 30 + 1)
    figures = heatmaps(sampled, params=["tau", "batch_size"])
    sweeps = given(sampled, params=["tau", "batch_size"]).data.sweeps
    for figure, sweep in zip(figures.values(), sweeps, strict=True):
        assert figure.data["tau (across)"].nunique() == 6
        regions = cut("batch_size", [sweep])
        assert set(figure.data["batch_size (up)"]) == set(regions.labels)
        edges = zip(regions.low, regions.high, strict=True)
        assert all(a[1] < b[0] for a, b in itertools.pairwise(edges))  # no value is in two regions


def test_a_sample_of_trials_is_the_same_in_every_figure_and_again():
    both = [figures_of("trials", given(trials_of(seeds=60))) for _ in range(2)]
    first, *rest = (figure for name, figure in both[0].items() if name.startswith("trials"))
    assert all(set(figure.data["trial_id"]) == set(first.data["trial_id"]) for figure in rest)
    pd.testing.assert_frame_equal(first.data, both[1][first.name].data)
