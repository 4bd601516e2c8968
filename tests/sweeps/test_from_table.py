"""Tables of trials that come from anywhere: what is read as what, and that it is said."""

import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import clsweep
from clsweep.catalog import PARAM
from clsweep.errors import RequestError
from clsweep.results.schemas import ID_FIELDS, outcome_fields, param_fields
from clsweep.sweeps.tidy import LABEL_NAMES
from tests.planted import planted


def sampled(**columns):
    """64 configurations of dropout, drawn evenly, and of what `columns` make of a generator."""
    rng = np.random.default_rng(5)
    made = {name: make(rng, 64) for name, make in columns.items()}
    frame = planted(lambda _: 0.0, ranges={"dropout": (0, 1)}, num_configs=64, noise=0.3)
    return frame.assign(**{name: np.repeat(values, 3) for name, values in made.items()})


# Axes


def test_an_even_sample_is_read_on_a_linear_axis_and_said_so():
    frame = sampled(
        lr=lambda rng, num: 10 ** rng.uniform(-4, -1, num),
        kind=lambda rng, num: rng.choice(["a", "b"], num),
    )
    frame["knn_top1"] += 70 + 10 * frame["dropout"] + 4 * (frame["kind"] == "a")
    found = clsweep.analyse(frame)
    assert found.data.sweeps[0].scales == {"dropout": "linear", "lr": "log", "kind": "category"}
    assert found.data.notes == ("read on a log axis: lr; linear: dropout",)
    effects = found.sensitivity().set_index("term")
    share = 4.0 / (100 / 12 + 4.0)  # variances of the category and of the uniform
    assert effects.loc["kind", "first"] == pytest.approx(share, abs=0.08)


def test_the_axis_can_be_told(tmp_path, cli_command):
    frame = sampled()
    frame["knn_top1"] += 70
    asked = clsweep.analyse(frame, scales={"dropout": "log"})
    assert asked.data.sweeps[0].scales == {"dropout": "log"}
    assert asked.data.notes == ()
    for scales, why in {
        ("dropout", "logg"): "dropout: expected 'log' or .* given 'logg'. Did you mean 'log'",
        ("dropuot", "log"): "given 'dropuot'. Did you mean 'dropout'",
    }.items():
        with pytest.raises(RequestError, match=why):
            clsweep.analyse(frame, scales=dict([scales]))
    with pytest.raises(RequestError, match="expected positive numbers for 'log', given -"):
        clsweep.analyse(frame.assign(dropout=-frame["dropout"]), scales={"dropout": "log"})
    text = frame.assign(dropout=frame["dropout"].map(str))
    with pytest.raises(RequestError, match="expected 'category' for texts"):
        clsweep.analyse(text, scales={"dropout": "log"})
    file = str(tmp_path / "trials.parquet")
    frame.to_parquet(file)
    code, _, err = cli_command("sensitivity", file, "--scale", "dropout")
    assert (code, err.strip()) == (2, "--scale: expected COL=AXIS, as tau=log, given 'dropout'")
    code, out, _ = cli_command("robustness", file, "--scale", "dropout=category")
    assert code == 0
    assert "read on" not in out
    code, out, _ = cli_command("robustness", file)
    assert "read on a linear axis: dropout" in out


# Columns that mean something to clsweep

GRID = {"tau": [0.1, 0.2, 0.4], "swept": [1, 2]}
NAMES = [
    "loss", "views", "framework", "regularizer", "dataset", "image_size", "num_train",
    "num_classes", "images_digest", "val_fraction", "workers", "cpus_per_worker",
]  # fmt: skip


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_swept_column_is_used_whatever_its_name(seeds):
    frame = planted(lambda s: 70 + 9 * s["swept"], grid=GRID, num_seeds=seeds)
    for name in NAMES:
        named = frame.drop(columns=["swept"]).assign(**{name: frame["swept"]})
        assert set(clsweep.analyse(named).data.params) == {"tau", name}


FIELDS = {field.name for field in [*ID_FIELDS, *outcome_fields(), *param_fields(PARAM)]}
OURS = sorted(FIELDS - {*LABEL_NAMES})
SWEPT = [f"swept_{i}" for i in range(4)]
SAMPLES = (
    {"grid": dict.fromkeys(SWEPT, (1, 2))},
    {"ranges": dict.fromkeys(SWEPT, (1, 2)), "num_seeds": 1, "num_configs": 9},
)


@pytest.mark.parametrize("names", [tuple(OURS[i : i + 4]) for i in range(0, len(OURS), 4)])
def test_no_swept_column_is_dropped_without_a_word(names):
    """A table that sweeps any name of ours, as a list or drawn, has it as an axis or says not."""
    for sample in SAMPLES:
        frame = planted(lambda s: s["swept_0"], **sample)
        if "trial_id" in names:  # one that is another in each trial is no axis
            frame[SWEPT] = (frame[SWEPT] * 3).round()
        frame = frame[[*LABEL_NAMES, "knn_top1", *SWEPT]].rename(
            columns={"knn_top1": "score", **dict(zip(SWEPT, names, strict=False))}
        )
        found = clsweep.analyse(frame, metric="score", mode="max").data
        said = re.findall(r"not: (.*?); params names others", "; ".join(found.notes))
        assert {*names} <= {*found.params, *", ".join(said).split(", ")}
    told = clsweep.analyse(frame, metric="score", mode="max", params=[*names])
    assert told.data.sweeps[0].params == names


@pytest.mark.parametrize("name", ["uniformity", "num_images", "train_loss", "device", "study"])
def test_an_outcome_that_is_plainly_swept_is_an_axis_and_an_origin_is_named(name):
    frame = planted(lambda s: 70 + 9 * s["swept"], grid=GRID)
    frame[name] = frame.pop("swept")
    found = clsweep.analyse(frame).data
    is_origin = name in ("device", "study")
    assert found.params == (("tau",) if is_origin else ("tau", name))
    said = f"read as hyperparameters: tau; not: {name}; params names others"
    assert (said in found.notes) == is_origin
    named = clsweep.analyse(frame, params=["tau", name])
    assert set(named.marginals()["param"]) == {"tau", name}
    ours = clsweep.analyse(frame.assign(clsweep_version="1.0")).data
    assert ours.params == ("tau",)
    assert is_origin or not any(name in said for said in ours.notes)  # its own are known


def test_what_makes_an_objective_is_no_hyperparameter_of_it():
    one = planted(lambda _: 70, grid={"tau": [0.1, 0.2]})
    other = planted(lambda _: 70, grid={"tau": [0.1, 0.2]}, objective="simclr").assign(loss="dcl")
    found = clsweep.analyse(pd.concat([one, other], ignore_index=True))
    assert found.data.params == ("tau",)
    assert found.data.notes == ()


# What cannot be read


def plain(objective="dcl", **options):
    return planted(
        lambda s: 70 + 10 * s["tau"] + s["width"] / 32,
        grid={"tau": [0.1, 0.2, 0.4], "width": [16, 32, 64]},
        objective=objective,
        **options,
    )


def by_config(frame, values):
    return frame["config"].map(lambda config: values[config % len(values)])


REFUSED = {
    "a parameter twice": (lambda f: f, {"params": ["tau", "tau"]}, "params: .* 'tau' twice"),
    "a text of parameters": (lambda f: f, {"params": "tau"}, "params: expected a list"),
    "the metric": (lambda f: f, {"params": ["knn_top1"]}, "'knn_top1', which is the metric"),
    "a column twice": (lambda f: pd.concat([f, f["tau"]], axis=1), {}, "given tau twice"),
    "huge scores": (lambda f: f.assign(knn_top1=f["knn_top1"] * 1e100), {}, "from 1e-60 to 1e"),
    "complex scores": (lambda f: f.assign(knn_top1=f["knn_top1"] + 0j), {}, "expected numbers"),
    "truth values": (lambda f: f.assign(knn_top1=f["knn_top1"] > 72), {}, "expected numbers"),
    "a word among scores": (
        lambda f: f.assign(knn_top1=["x", *f["knn_top1"][1:]]), {}, "numbers, given 'x'"),
    "NUL in a setting": (lambda f: f.assign(tau="a\0b"), {}, "'tau': expected a text without NUL"),
    "half a character": (
        lambda f: f.assign(objective=pd.Series(["\ud800"] * len(f), dtype=object)),
        {},
        "'objective': expected a text without NUL",
    ),
    "NUL in a name": (lambda f: f.rename(columns={"tau": "t\0"}), {}, "expected a text without"),
    "a complex setting": (lambda f: f.assign(tau=f["tau"] + 1j), {}, "'tau': expected numbers or"),
    "an infinite setting": (
        lambda f: f.assign(tau=by_config(f, [np.inf, 1.0])), {}, "'tau': .*finite.* given inf"),
    "no objective": (lambda f: f.assign(objective=np.nan), {}, "missing values in objective"),
    "a list for a seed": (lambda f: f.assign(seed=[[1]] * len(f)), {}, "'seed': expected a number"),
    "no table": (lambda _: [1], {}, "expected a pandas DataFrame, given list"),
    "scales that are no mapping": (lambda f: f, {"scales": ["tau"]}, "scales: expected {'tau'"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "asked", "why"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_by_name(make, asked, why):
    with pytest.raises(RequestError, match=why):
        clsweep.analyse(make(plain()), **asked)


READ = {
    "whole numbers as names": (lambda f: f.rename(columns={"tau": 0, "width": 1}), {0, 1}),
    "a mixture": (lambda f: f.assign(depth=by_config(f, [1, "all"])), {"depth"}),
    "numbers as objects": (lambda f: f.assign(depth=by_config(f, [1, 2.5]).astype(object)), {}),
    "dates": (lambda f: f.assign(day=pd.Timestamp(0) + pd.to_timedelta(f["config"] % 2, "D")), {}),
    "no text": (lambda f: f.assign(kind=by_config(f, ["", "a"])), {"kind"}),
    "truth values with gaps": (lambda f: f.assign(on=by_config(f, [True, None])), {"on"}),
    "nullable numbers": (lambda f: f.astype({"tau": "Float64", "knn_top1": "Float64"}), {"tau"}),
    "objectives that are numbers": (lambda f: f.assign(objective=f["objective"].map(len)), {}),
    "seeds that are words": (lambda f: f.assign(seed=f["seed"].map("s{}".format)), {}),
    "an index with repeats": (lambda f: f.set_index(pd.Index([0] * len(f))), {"tau"}),
    "short floats": (lambda f: f.astype({"tau": "float16", "width": "float32"}), {"tau"}),
    "categories": (lambda f: f.astype(dict.fromkeys(["tau", "seed", "status"], "category")), {}),
    "decimals": (lambda f: f.assign(knn_top1=f["knn_top1"].map(Decimal)), {"tau"}),
    "bytes": (lambda f: f.assign(kind=by_config(f, [b"a", b"b"])), {"kind"}),
    "types of arrow": (lambda f: f.convert_dtypes(dtype_backend="pyarrow"), {"tau"}),
    "lines and orders in names": (lambda f: f.rename(columns={"tau": "a\nb\x1b[31m"}), {}),
    "a conditional": (lambda f: f.assign(s=by_config(f, [1, 2, 2, 1]).where(f["tau"] > 0.1)), {}),
    "devices in lists": (lambda f: f.assign(device=[["cpu"]] * len(f)), {}),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("make", "names"), READ.values(), ids=READ)
def test_odd_tables_have_every_statistic(make, names):
    frame = pd.concat([plain(), plain("simclr", seed=1)], ignore_index=True)
    found = clsweep.analyse(make(frame))
    assert set(map(str, names)) <= set(found.data.params)
    rows = pd.DataFrame({"at": frame["config"], "who": frame["objective"] == "dcl"})
    levels = rows.assign(score=frame["knn_top1"]).groupby(["who", "at"])["score"].mean()
    for row, who in zip(found.robustness().to_dict("records"), (True, False), strict=True):
        expected = levels[who].agg(["mean", "max", "min"]).tolist()
        assert [row[name] for name in ("mean", "best", "worst")] == pytest.approx(expected)
    for compute in ("sensitivity", "marginals", "compare", "recommend", "health", "failure_regions",
                "mechanism", "links"):  # fmt: skip
        getattr(found, compute)()
    found.robustness(by=found.data.params[-1])
    found.winners(found.data.params[-1])


def test_fractions_are_read_in_their_own_unit_and_said_so():
    percent = plain()
    fractions = percent.assign(knn_top1=percent["knn_top1"] / 100)
    one, other = (clsweep.analyse(frame.assign(num_classes=10)) for frame in (percent, fractions))
    assert other.data.notes[0].startswith("knn_top1 is expected in percent, given 0.7")
    guess = clsweep.analyse(fractions.assign(num_classes=10), failed="chance")
    assert guess.data.sweeps[0].failed_level == pytest.approx(0.1)
    assert other.data.unit == ""
    assert other.data.within < 0.01
    shares = [
        found.robustness(within=near)["share_within"].iloc[0]
        for found, near in ((one, 1.0), (other, 0.01))
    ]
    assert shares[0] == pytest.approx(shares[1])
    assert other.robustness()["share_within"].iloc[0] < 0.5
    assert other.data.sweeps[0].limits == (0, 1)
    zeros = clsweep.analyse(percent.assign(knn_top1=(percent["knn_top1"] > 72).astype(int)))
    assert zeros.data.unit == "%"


def test_fractions_of_one_objective_among_percent_are_named():
    frame = pd.concat([plain(), plain("simclr").assign(knn_top1=0.7 + 0.01 * plain()["tau"])])
    (said, *_) = clsweep.analyse(frame).data.notes
    assert "that of simclr is read as percent too, not as fractions of 1" in said


def test_a_percentage_beyond_100_is_none_and_said_so():
    found = clsweep.analyse(plain().assign(knn_top1=plain()["knn_top1"] + 50))
    assert "read as numbers without a unit or limits" in found.data.notes[0]
    assert found.data.unit == ""


# Failed trials


def test_what_failed_trials_count_as(tmp_path, cli_command):
    frame = plain(fail=lambda s: s["tau"] == 0.4).assign(num_classes=10)
    found = {
        failed: clsweep.analyse(frame, failed=failed).robustness().iloc[0]
        for failed in ("worst", "chance", "left out")
    }
    scores = frame["knn_top1"].dropna()
    assert found["chance"]["worst"] == pytest.approx(10)
    assert found["worst"]["worst_10"] == pytest.approx(scores.min())
    assert found["left out"]["worst"] > scores.min()
    assert found["worst"][["worst", "range"]].isna().all()  # it is no better than that
    with pytest.raises(RequestError, match="the chance level is not known"):
        clsweep.analyse(frame.drop(columns="num_classes"), failed="chance")
    with pytest.raises(RequestError, match="failed: expected one of worst, chance, left out; got"):
        clsweep.analyse(frame, failed="lost")
    file = str(tmp_path / "trials.parquet")
    frame.to_parquet(file)
    for failed, level in (("chance", "10"), ("left-out", "left out"), ("worst", "worst")):
        code, out, _ = cli_command("robustness", file, "--failed", failed)
        assert code == 0
        assert level in out
    assert cli_command("sensitivity", file, "--failed", "lost")[0] == 2


# What is shown


@pytest.mark.parametrize("kinds", [str, float, lambda seed: 2**70 + seed, lambda seed: f"s{seed}"])
def test_seeds_are_told_apart_whatever_they_are(kinds):
    one, other = plain(), plain(objective="simclr", seed=1)
    expected = clsweep.analyse(pd.concat([one, other])).compare()
    named = one.assign(seed=one["seed"].map(kinds).astype(object))
    also = other.assign(seed=other["seed"].map(kinds).astype(object))
    pd.testing.assert_frame_equal(clsweep.analyse(pd.concat([named, also])).compare(), expected)
    if kinds in (str, float):  # 1, 1.0 and "1" are one seed
        mixed = pd.concat([one.astype({"seed": object}), also])
        pd.testing.assert_frame_equal(clsweep.analyse(mixed).compare(), expected)


def test_the_index_of_a_table_is_no_setting(tmp_path):
    frame = planted(lambda at: 90 - at["tau"], grid={"tau": [0.1, 0.2, 0.5]}, num_seeds=2)
    pd.concat([part.reset_index(drop=True) for _, part in frame.groupby("seed")]).to_parquet(
        tmp_path / "trials.parquet"
    )
    found = clsweep.open_results(tmp_path / "trials.parquet")
    assert found.data.params == ("tau",)


@pytest.mark.parametrize("place", ["file", "uri", "folder"])
def test_integers_with_gaps_stay_in_their_rows_whatever_the_index(tmp_path, place):
    frame = planted(lambda at: 90 - at["tau"], grid={"tau": [0.1, 0.2, 0.5]}, num_seeds=2)
    given = [64, 64, 32, 32, None, None]
    frame = frame.assign(batch_size=pd.array(given, "Int64")).set_index(pd.RangeIndex(3, 9))
    folder = tmp_path / "trials.parquet"
    folder.mkdir()
    frame.to_parquet(file := folder / "part.parquet")
    asked = {"file": str(file), "uri": file.as_uri(), "folder": str(folder)}[place]
    read = clsweep.open_results(asked).data.trials["batch_size"]
    assert read.astype(object).where(read.notna(), None).tolist() == given


def test_a_setting_under_several_ids_is_one():
    """An id for each trial, as another tool's export has, in place of one for each setting."""
    rng = np.random.default_rng(1)
    cells = [(lr, wd, seed) for lr in (0.1, 0.2, 0.4) for wd in (0, 1) for seed in range(3)]
    frame = pd.DataFrame(cells, columns=["lr", "wd", "seed"])
    frame["score"] = 70 + 20 * frame["lr"] + 2 * frame["wd"] + rng.normal(0, 0.3, len(frame))
    frame = frame.assign(objective="x", status="finished", sampler="grid", config=frame.index // 3)
    options = {"metric": "score", "mode": "max", "params": ["lr", "wd"]}
    whole = clsweep.analyse(frame, **options)
    apart = clsweep.analyse(frame.assign(config=np.arange(18) * 7), **options)
    says = "12 configurations have the setting of another: they are read as one with it"
    assert says in apart.data.notes
    assert says not in whole.data.notes
    for table in ("robustness", "sensitivity", "marginals"):
        pd.testing.assert_frame_equal(getattr(apart, table)(), getattr(whole, table)())
    assert apart.data.sweeps[0].configs.tolist() == [0, 21, 42, 63, 84, 105]
    # Without wd its two settings look like one, but have each seed twice: they stay apart.
    only = clsweep.analyse(frame, **options | {"params": ["lr"]})
    assert len(only.data.sweeps[0].configs) == 6
    assert not any("configurations have" in note for note in only.data.notes)
