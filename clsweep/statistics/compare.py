"""Which objective is better, and which depends less on its settings."""

from __future__ import annotations

import numpy as np
import pandas as pd

from clsweep.analysis import compare as analysis
from clsweep.analysis.reasons import Reason, note
from clsweep.statistics import charts
from clsweep.statistics.charts import alt
from clsweep.statistics.computed import ReportContext, Statistics
from clsweep.statistics.pair_sentences import NEEDS, compared, needed
from clsweep.statistics.report_objects import Figure, described
from clsweep.statistics.statistic import Column, Statistic, between, half, level_cell, p_of
from clsweep.sweeps.notes import doubt_of, records_of, status_text, winner_or_status
from clsweep.sweeps.study_data import StudyData

_ENDS = ("x", "low", "high")
MAX_PAIRS = 45  # those of ten objectives; of more the ones that are told apart best


def compare(
    of: Statistics,
    a: str | None = None,
    b: str | None = None,
    *,
    stat: str = "mean",
    by: str | None = None,
    within: float | None = None,
) -> pd.DataFrame:
    """One row per pair, or per pair and value of `by`, see `analysis.compare`; of stat "tuned"
    each objective stands at its best setting, which rests on all seeds of a race. Pairs whose
    scores come from different yardsticks have no numbers.
    """
    near = of.near(within)
    sweeps = of.data.sweeps if stat == "tuned" else of.data.spaces
    yardstick_of = of.data.yardsticks
    pairs = analysis.compare(sweeps, a, b, stat=stat, by=by, within=near, yardsticks=yardstick_of)
    yardsticks = [pairs[side].map(lambda name: yardstick_of.get(name, "")) for side in ("a", "b")]
    apart = yardsticks[0] != yardsticks[1]
    measured = pairs.columns[pairs.columns.get_loc("value_a") : pairs.columns.get_loc("winner")]
    pairs.loc[apart, measured] = float("nan")
    pairs.loc[apart, ["winner", "resolved", "reason"]] = "", False, Reason.YARDSTICKS
    notes = [
        (note(Reason.YARDSTICKS, a=a, b=b),) if a != b else notes
        for a, b, notes in zip(*yardsticks, pairs["note"], strict=True)
    ]
    return pairs.assign(note=pd.Series(notes, index=pairs.index, dtype=object))


def means(context: ReportContext) -> pd.DataFrame:
    """Every pair by its means."""
    return context.compute(compare, stat="mean")


def tuned(context: ReportContext) -> pd.DataFrame:
    """Every pair at its best settings."""
    return context.compute(compare, stat="tuned")


def spreads(context: ReportContext) -> pd.DataFrame:
    """Every pair by its spreads."""
    return _of_sweeping(context, context.compute(compare, stat="std"))


def _shares(context: ReportContext) -> pd.DataFrame:
    return _of_sweeping(context, context.compute(compare, stat="within", within=context.within))


def _of_sweeping(context: ReportContext, pairs: pd.DataFrame) -> pd.DataFrame:
    """Without the pairs of a baseline that sweeps nothing, which has no spread to compare."""
    names = [sweep.objective for sweep in context.statistics.data.sweeps if sweep.params]
    return pairs[pairs["a"].isin(names) & pairs["b"].isin(names)].reset_index(drop=True)


def ratio_forest(pairs: pd.DataFrame, data: StudyData) -> Figure | None:
    """Ratio of the SD* of every pair of objectives, from `compare` of stat "std"."""
    frame = _pairs(pairs, "/", 1.0)
    drawn = frame[list(_ENDS)].where(frame[list(_ENDS)] > 0)
    if pairs["estimate"].isna().all() or drawn.isna().all(axis=None):
        return None
    # 0 and infinity have no place: an end there is drawn at the edge of the others, with an arrow
    # that points on, which is the ratio itself where that is one of them.
    edges = {"low": np.nanmin(drawn) / 1.5, "high": np.nanmax(drawn) * 1.5}
    one_end = drawn["low"].notna() ^ drawn["high"].notna()
    for end, edge in edges.items():
        frame[f"{end}_open"] = one_end & drawn[end].isna()
        frame[end] = drawn[end].where(~frame[f"{end}_open"], edge)
    frame["x"], frame["missing"] = drawn["x"], frame["missing"].where(~one_end, "")
    beyond = " An arrow points on to 0 or infinity, which the axis does not have."
    axis = alt.Axis(grid=False, format=".3~r", labelOverlap="greedy", tickCount=6)
    scale = alt.Scale(type="log", nice=False, padding=8)
    x = alt.X("x:Q", title="SD* of the first / SD* of the second", scale=scale, axis=axis)
    return Figure(
        name="sd-ratios",
        title="Which objective is more robust",
        caption="Left of 1 the first of the pair is more robust. "
        f"{_pair_text(frame, pairs, data)}{beyond * any(one_end)}",
        chart=charts.forest(frame, data, x, line=1.0),
        data=_pair_data(pairs),
        is_resolved=bool(frame["resolved"].any()),
    )


def difference_forest(pairs: pd.DataFrame, data: StudyData) -> Figure | None:
    """Difference of the means of every pair of objectives, from `compare` of stat "mean"."""
    frame = _pairs(pairs, "−", 0.0)
    if frame["x"].isna().all():
        return None
    title = charts.in_points("lead of the first over the second", data)
    x = charts.plain_x(title, zero=True, padding=8)
    return Figure(
        name="mean-differences",
        title="Which objective is better on average",
        caption=f"Mean {data.metric} over the space that both sweep. Right of 0 the first of "
        f"the pair is better. {_pair_text(frame, pairs, data)}",
        chart=charts.forest(frame, data, x, line=0.0),
        data=_pair_data(pairs),
        is_resolved=bool(frame["resolved"].any()),
    )


def _pair_text(frame: pd.DataFrame, pairs: pd.DataFrame, data: StudyData) -> str:
    cut = f" Shown are the {len(frame)} of {len(pairs)} pairs that differ most clearly."
    return (
        "A coloured row is resolved, in favour of the objective of that colour. A grey one is not. "
        f"{charts.bands_text(frame, data, 'Bars')}{cut if len(frame) < len(pairs) else ''}"
    )


def _pairs(pairs: pd.DataFrame, sign: str, null: float) -> pd.DataFrame:
    """A row a pair, in the table's order; `objective` is the one it is resolved for. An interval
    without `null` that resolves nothing has its reason beside its name.
    """
    if pairs.empty:
        return pd.DataFrame(columns=["objective", *_ENDS, "row", "resolved", "note", "p"])
    frame = charts.ends_frame(pairs.assign(objective=pairs["winner"]), "estimate", "low", "high")
    frame["p"] = charts.float_column(pairs, "p_holm")
    frame["row"] = [f"{a} {sign} {b}" for a, b in zip(pairs["a"], pairs["b"], strict=True)]
    frame["resolved"] = pairs["resolved"].to_numpy(dtype=bool)
    is_off = ~frame["resolved"] & ((frame["low"] > null) | (frame["high"] < null))
    rows = zip(records_of(pairs), is_off, strict=True)
    whys = [doubt_of(row) if off else "" for row, off in rows]
    frame["row"] += [f": {why}" * bool(why) for why in whys]
    frame["missing"] = pairs["reason"].map(status_text).to_numpy()  # in place of what is not known
    clearest = frame["p"].sort_values(kind="stable").index[:MAX_PAIRS]
    return frame.loc[clearest].sort_index(ignore_index=True)


def _pair_data(pairs: pd.DataFrame) -> pd.DataFrame:
    names = ["a", "b", "estimate", "low", "high", "p_holm", "winner", "reason", "note"]
    return pairs[names].reset_index(drop=True)


def _columns(stat: str, header: str, means: str, called: str = "") -> tuple[Column, ...]:
    of_means, is_tuned = stat == "mean", stat == "tuned"
    value_a, value_b = (
        level_cell(name, half("estimate", ""))
        if of_means or is_tuned
        else between(name, is_fine=True if stat == "std" else None)
        for name in ("value_a", "value_b")
    )
    return (
        Column("a"),
        Column("b"),
        Column("region"),
        Column("a at", "at_a", drop_order=8),
        Column("b at", "at_b", drop_order=8),
        Column("value a", value_a, drop_order=7),
        Column("value b", value_b, drop_order=7),
        Column(header, between("estimate", ""), means, called=called),
        Column("p", p_of("p"), "by t" * of_means, drop_order=4),
        Column("p Holm", p_of("p_holm")),
        Column("least p", "p_min", drop_order=1),
        Column(
            "P(a > b)",
            lambda row: row["superiority"] if of_means else None,
            "a's chance to be ahead in a pair" * of_means,
            drop_order=3,
        ),
        Column(
            "detectable",
            between("detectable"),
            "what would be found in four of five studies" * of_means,
            drop_order=2,
        ),
        Column("seeds", lambda row: row["num_seeds"] or None, drop_order=6),
        Column("needs seeds", lambda row: needed(row, "needs_seeds"), NEEDS),
        Column("needs configs", lambda row: needed(row, "needs_configs"), drop_order=5),
        Column("verdict", winner_or_status),
    )


# A pair is a setting of the hyperparameters that both objectives sweep, and a seed. d_cs = the
# scores' difference.
_FORMULAS = described(
    analysis.COMPARISON_COLUMNS,
    a="first objective",
    b="second objective",
    region='where: "" for everywhere, or a value or bin of `by`, such as "tau=0.1"',
    stat="mean, std (SD*, the spread due to hyperparameters), within (share of settings near each "
    "one's best) or tuned (each at its best setting, without the luck of the pick)",
    at_a="of tuned, the best setting of a",
    at_b="that of b",
    num_pairs="(setting, seed) pairs with a score on both sides; 0 = unpaired",
    num_seeds="seeds of both; unpaired: of the objective with fewer",
    fresh_seeds="of tuned: how many of them are of `clsweep confirm`, which decide alone",
    value_a="the statistic of a over what is compared, in the metric's own sign",
    value_b="that of b",
    estimate="mean, within, tuned: a - b, oriented so that positive = a is better; std: the ratio "
    "a / b, below 1 = a varies less",
    low="interval of the estimate: t for mean and tuned, bootstrap percentiles for std and within; "
    "wider by what other images give, where trials keep which they have right",
    p="two-sided p-value: of t, or the tail of the bootstrap",
    p_min="smallest p-value that this test could give: 0 of t",
    p_holm="p, corrected for all rows of the table (Holm), and for the three questions that a page "
    "asks of them: best when tuned, on average, and most robust (Bonferroni). By regions, and "
    "where nothing is swept, for the rows alone",
    superiority="P(A > B): share of pairs in which a scores better, ties half",
    detectable="smallest true difference (for std: ratio above 1) found with 80 % power: (t_.975 + "
    "t_.8) SE",
    needs_seeds="so many seeds would find a difference as large as seen with 80 % power; NaN when "
    "resolved, or when seeds alone do not help",
    needs_configs="so many configurations would, of a sample of the space",
    needs_low="the same for the difference at the far end of its 80 % interval",
    needs_high="and at the near end; inf: more than 10,000, or it holds no difference",
    winner="the better objective (std: the more robust), where the interval excludes no difference "
    "and p_holm <= 1 - confidence; else empty",
    resolved="whether there is one",
)
MEANS = Statistic(
    name="comparison-mean",
    title="Lead of a over b in {metric}, over what both sweep, with 95 % intervals{images}",
    frame=lambda context: means(context).sort_values("p", kind="stable", ignore_index=True),
    ahead=lambda _: [(compare, {"stat": "mean"})],
    columns=_columns(
        "mean",
        "lead",
        "by how much a is better than b, in the direction that is good. Below 0, b is better",
    ),
    levels="value_a",
    sentences=lambda context: compared(means(context), "mean", context.words),
    figures=lambda context: [difference_forest(means(context), context.data)],
    formulas={"comparison": _FORMULAS},
)
LEADS_TUNED = Statistic(
    name="comparison-tuned",
    title="Lead of a over b in {metric} when tuned, with 95 % intervals{images}",
    columns=_columns(
        "tuned",
        "lead",
        "by how much a is better than b, each at its best setting. That is picked on other seeds "
        "than it is scored on, so no luck of its seeds is in it",
    ),
    levels="value_a",
)
SPREADS = Statistic(
    name="comparison-std",
    is_apart=True,
    title="Ratio of the spreads of {metric} due to hyperparameters (sd* of a / sd* of b), with 95 "
    "% intervals{images}",
    frame=spreads,
    ahead=lambda _: [(compare, {"stat": "std"})],
    columns=_columns(
        "std", "ratio of sd*", "a depends less on its hyperparameters", called="below 1"
    ),
    figures=lambda context: [ratio_forest(spreads(context), context.data)],
)
SHARES = Statistic(
    name="comparison-within",
    is_apart=True,
    title="Difference of the shares of the space within {points} of the best of {metric}, with 95 "
    "% intervals{images}",
    frame=_shares,
    ahead=lambda context: [(compare, {"stat": "within", "within": context.within})],
    columns=_columns(
        "within",
        "difference of shares",
        "more of a's space is within {points} of a's own best",
        called="positive",
    ),
    has_notes=False,
)
BY_STAT = {"tuned": LEADS_TUNED, "mean": MEANS, "std": SPREADS, "within": SHARES}
