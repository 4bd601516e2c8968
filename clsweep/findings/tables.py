"""The tables of the analysis for eyes: an interval stands beside its number, what is empty
everywhere is left out.

Frames come from `clsweep.analysis`; what is returned has texts and numbers under headings. The
command line prints it, the report sets it. Whatever is in the unit of the metric is text already,
with as many decimals as its column needs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from clsweep.catalog.rows import Row
from clsweep.display.cells import records_of, texts_of_values
from clsweep.display.numbers import Number, count, is_number, setting, settings, texts_of, work
from clsweep.findings.notes import NOTES_APART, status, verdict
from clsweep.study.factors import FACTORS

MANY_NAMES = 4  # in front of one note

_BAND_COLUMNS = ("usable band", "by the means", "hi/lo", "per doubling")
_BANDS = (
    "usable band: values around the best that are shown to lose no more than {within}; by the "
    "means: that do so as measured; hi/lo: ratio of those ends; per doubling: slope on log2 of the "
    "hyperparameter"
)
# {within} is what `points` makes of it. Columns that are named here are in the tables below.
ROBUSTNESS_LEGEND = (
    "best: the best mean of a configuration. It was picked by that mean, so it is optimistic; "
    "worst 10 %: level of that tenth of the space; within {within}: share of the space that loses "
    "no more than that against the best. As for the worst 10 %, one part of the seeds picks and "
    "another scores; sd*: spread over the swept configurations without the seeds' noise; sd: with "
    "it; range: best - worst mean, optimistic as best is"
)
MORE_LEGEND = (
    "worst: the worst mean of a configuration. It was picked by that mean, so it is pessimistic; "
    "regret: mean loss against the best. One part of the seeds picks the best, another scores it; "
    "tolerance area: mean share of the space that loses no more than 0 to D points, D = 10 x "
    "within; IQM: mean of the middle half; " + _BANDS
)
ROBUSTNESS_BY_LEGEND = (
    "sd: spread over the values of this hyperparameter; sd*: without the seeds' noise; range: best "
    "- worst value; within {within}: share of the values that lose no more than that against the "
    "best; " + _BANDS
)
SENSITIVITY_LEGEND = (
    "alone: first-order share; in all: with its interactions; null line: what a parameter without "
    "any effect reaches; R2: what the surrogate predicts of unseen configurations. All that seed "
    "noise leaves to predict counts as 1"
)
COMPARISON_TITLES = {
    "mean": "Lead of a over b in {metric}, over what both sweep, with 95 % intervals",
    "std": "Ratio of the spreads of {metric} due to hyperparameters (sd* of a / sd* of b), with "
    "95 % intervals",
    "within": "Difference of the shares of the space within {within} of the best of {metric}, "
    "with 95 % intervals",
}
_TESTED = (
    "p: by flipping signs, least p: the least it could be; detectable: what would be found "
    "in four of five studies"
)
COMPARISON_LEGENDS = {
    "mean": "lead: by how much a is better than b, in the direction that is good. Below 0, b is "
    f"better; P(a > b): a's chance to be ahead in a pair; {_TESTED}",
    "std": "below 1: a depends less on its hyperparameters",
    "within": "positive: more of a's space is within {within} of a's own best",
}
PICKS_LEGEND = (
    "picks: the configuration with the best mean of the score; loses: best - picked, among the "
    "configurations that were tried; rank correlation: of score and metric. It is 1 where better "
    "by the one is better by the other"
)
PICKS_SPARE = ("picked", "best", "configs")  # what `--wide` adds
RECOMMENDATION_LEGEND = (
    "score: mean over the study's seeds. The setting was picked by it, so it is optimistic; worst "
    "neighbour: the worst level among the setting and its neighbours. Each level is drawn towards "
    "the mean around it, by as much as seed noise explains; neighbours: one step "
    "away on a grid, else the nearest"
)
PARETO_LEGEND = (
    "Settings that no other one beats in both cost and score; seconds: worker seconds of a trial. "
    "A near tie is no finding; score: mean over the seeds. These were picked by it, so it is "
    "optimistic"
)

LEADERBOARD_LEGEND = (
    "Each at its best setting, with 95 % intervals. A best that was picked by its score is a "
    "little too good. Near the best: within {within}. In italics: without training."
)
TOP_LEGEND = (
    "score: mean over the seeds, with its 95 % interval. These were picked by it, so it is "
    "optimistic; seeds: the score of each"
)
IMPORTANCE_LEGEND = (
    "importance: share of the variance of the scores' ranks that lies between its values. Numbers "
    "are put into five bins of equal count; null line: what chance reaches in 95 % of shuffles. "
    "All this is of what was tried. Good scores drew the search there, so it is not of the space"
)
SAVED_LEGEND = (
    "saved: share of the epochs that were not trained; hours saved: the epochs that each stopped "
    "trial had left, times its time per epoch"
)
# Columns that a screen without room for all of them does without, the first to go first.
ROBUSTNESS_SPARE = ("failed", "configs", "range", "mean", "sd", "seeds", "sd*")
SENSITIVITY_SPARE = ("configs", "of possible", "null line", "R2")
COMPARISON_SPARE = (
    "least p", "detectable", "P(a > b)", "p", "needs configs", "seeds", "value b", "value a"
)  # fmt: skip
RECOMMENDATION_SPARE = ("neighbours", "config", "test", "worst neighbour")


def points(within: float) -> str:
    """`1 point`, `2.5 points`."""
    return f"{setting(within)} point{'' if within == 1 else 's'}"


def robustness(frame: pd.DataFrame, *, within: float) -> pd.DataFrame:
    """One row per objective: the spread, and what it costs."""
    unit = _unit(frame["best"])
    return _shown(
        {
            "objective": row["objective"],
            "best": unit.level(row, "best", row["sd"]),
            "at": row["best_at"],
            "worst 10 %": unit.interval(row, "worst_10", least=1),
            f"within {setting(within)}": _share(row, "share_within", "share"),
            "sd*": unit.interval(row, "sd_star"),
            "sd": unit.interval(row, "sd"),
            "mean": unit.level(row, "mean", row["sd"]),
            "range": unit.level(row, "range", row["sd"]),
            "configs": row["num_configs"],
            "seeds": row["num_seeds"],
            "failed": row["num_failed"],
        }
        for row in records_of(frame)
    )


def leaderboard(frame: pd.DataFrame, *, metric: str) -> pd.DataFrame:
    """One row per objective and reference, the best first."""
    unit = _unit(frame["score"])
    return _shown(
        (
            {
                "objective": row["objective"],
                "best setting": row["at"] if isinstance(row["at"], str) else "",
                f"best {metric}": unit.interval(row, "score", "")
                if is_number(row["low"])
                else unit.level(row, "score"),
                "fresh seeds": unit.interval(row, "fresh"),
                "SD*": unit.interval(row, "sd_star"),
                "near the best": _share(row, "share_within", "share", most=2),
                "cost": work(row["hours"]) if is_number(row["hours"]) else "",
            }
            for row in records_of(frame)
        ),
        droppable=("best setting", "fresh seeds", "SD*", "near the best", "cost"),
    )


def top(frame: pd.DataFrame) -> pd.DataFrame:
    """The best configurations of each objective with their seeds."""
    unit = _unit(frame["score"])
    return _shown(
        {
            "objective": row["objective"],
            "rank": row["rank"],
            "at": row["at"],
            "score": unit.interval(row, "score", ""),
            "seeds": "  ".join(texts_of_values(list(row["seeds"]), 2)),
        }
        for row in records_of(frame)
    )


def importance(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per objective and hyperparameter of a search."""
    return _shown(
        {
            "objective": row["objective"],
            "hyperparameter": row["param"],
            "importance": _share(row, "importance", most=2),
            "null line": row["null"],
            "p Holm": row["p_holm"],
            "verdict": "goes with the score" if row["resolved"] else status(row["reason"]),
        }
        for row in records_of(frame)
    )


def saved(frame: pd.DataFrame) -> pd.DataFrame:
    """What stopping early saved."""
    return _shown(
        (
            {
                "objective": row["objective"],
                "stopped": f"{count(row['stopped'])} of {count(row['trials'])} trials",
                "epochs": f"{count(row['epochs'])} of {count(row['planned_epochs'])}",
                "saved": _share(row, "saved", most=2),
                "hours": row["hours"],
                "hours saved": row["saved_hours"],
            }
            for row in records_of(frame)
        ),
        droppable=("hours", "hours saved"),
    )


def robustness_more(frame: pd.DataFrame) -> pd.DataFrame:
    """The further statistics of the same table."""
    unit = _unit(frame["best"])
    return _shown(
        (
            {
                "objective": row["objective"],
                "worst": unit.level(row, "worst", row["sd"]),
                "at": row["worst_at"],
                "regret": unit.interval(row, "regret"),
                "tolerance area": _share(row, "tolerance_area"),
                "IQM": unit.interval(row, "iqm"),
                **_band_columns(row, unit, named=True),
            }
            for row in records_of(frame)
        ),
        droppable=_BAND_COLUMNS,
    )


def robustness_by(frame: pd.DataFrame, *, within: float) -> pd.DataFrame:
    """One row per hyperparameter and objective, over its values alone."""
    unit = _unit(frame["best"])
    return _shown(
        (
            {
                "by": row["by"],
                "objective": row["objective"],
                "sd": unit.interval(row, "sd"),
                "sd*": unit.interval(row, "sd_star"),
                "range": unit.level(row, "range", row["sd"]),
                "best at": row["best_at"],
                "worst at": row["worst_at"],
                f"within {setting(within)}": _share(row, "share_within", "share"),
                **_band_columns(row, unit, named=False),
            }
            for row in records_of(frame)
        ),
        droppable=_BAND_COLUMNS,
    )


def _band_columns(row: Mapping[str, Any], unit: _Unit, *, named: bool) -> Row:
    values = (
        _band(row, "band_sure", named=named),
        _band(row, "band", named=named),
        row["band_ratio"],
        unit.interval(row, "slope"),
    )
    return dict(zip(_BAND_COLUMNS, values, strict=True))


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """As it is, without columns that have no value, and without the notes, which stand apart."""
    apart = ("reason", "note")
    kept = frame[[name for name in frame if name not in apart and frame[name].notna().any()]]
    return kept.apply(
        lambda column: texts_of_values(column.tolist()) if column.dtype.kind == "f" else column
    )


def sensitivity(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per objective and term; an objective that is not resolved has its note in the place
    of numbers.
    """
    return _shown(
        (
            {
                "objective": row["objective"],
                "term": row["term"] or status(row["reason"]),
                "alone": _share(row, "first", most=2),
                "in all": _share(row, "total", most=2),
                "null line": row["null"],
                "resolved": {True: "yes", False: "no"}.get(row["resolved"], "")
                if row["term"]
                else "",
                "R2": row["r2"],
                "of possible": row["r2_ceiling"] if is_number(row["r2"]) else None,
                "configs": row["num_configs"],
            }
            for row in records_of(frame)
        ),
        droppable=("alone", "in all", "null line", "R2", "of possible"),
    )


def comparison(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per pair or region."""
    stat = frame["stat"].iloc[0] if len(frame) else "mean"
    name = {"mean": "lead", "std": "ratio of sd*", "within": "difference of shares"}[stat]
    unit = _unit(frame["value_a"] if stat == "mean" else ())
    values = _Unit(is_fine=True) if stat == "std" else unit

    def level(row: Row, side: str) -> Number | None:
        return values.level(row, side, _spread(row, "estimate", "") if stat == "mean" else None)

    return _shown(
        (
            {
                "a": row["a"],
                "b": row["b"],
                "region": row["region"],
                "value a": level(row, "value_a"),
                "value b": level(row, "value_b"),
                name: unit.interval(row, "estimate", ""),
                "p": row["p"],
                "p Holm": row["p_holm"],
                "least p": row["p_min"],
                "P(a > b)": row["superiority"] if stat == "mean" else None,
                "detectable": unit.level(row, "detectable", None),
                "seeds": row["num_seeds"],
                "needs seeds": _whole(row["needs_seeds"]),
                "needs configs": _whole(row["needs_configs"]),
                "verdict": verdict(row),
            }
            for row in records_of(frame)
        ),
        droppable=(
            "region",
            "p",
            "p Holm",
            "least p",
            "P(a > b)",
            "detectable",
            "needs seeds",
            "needs configs",
        ),
    )


def winners(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per region: who is ahead, by how much, and whether that is resolved."""
    unit = _unit(frame["mean"])
    return _shown(
        {
            "region": row["region"],
            "ahead": row["objective"],
            "mean": unit.level(row, "mean", _spread(row, "lead", "")),
            "next": row["runner_up"],
            "lead": unit.interval(row, "lead", ""),
            "p Holm": row["p_holm"],
            "verdict": verdict(row),
        }
        for row in records_of(frame)
    )


def tuning_cost(frame: pd.DataFrame, *, within: float) -> pd.DataFrame:
    """One row per objective: tries, and the gain over the default, if any has one."""
    unit = _unit(frame["best_level"])
    return _shown(
        (
            {
                "objective": row["objective"],
                "best level": unit.level(row, "best_level", _spread(row, "tunability")),
                f"tries to within {setting(within)}": _tries(row),
                "default at": row["default_at"],
                "default": unit.level(row, "default", _spread(row, "tunability")),
                "gain over it": unit.interval(row, "tunability"),
            }
            for row in records_of(frame)
        ),
        droppable=("default at", "default", "gain over it"),
    )


def recommendation(frame: pd.DataFrame, confirmation: pd.DataFrame) -> pd.DataFrame:
    """Two rows per objective: the best, and the best worst neighbour; beside them what fresh seeds
    and the test say.
    """
    confirmed = {(row["objective"], row["config"]): row for row in records_of(confirmation)}
    unit = _unit(frame["score"])
    rows = []
    for row in records_of(frame):
        again: Mapping[str, Any] = confirmed.get((row["objective"], row["config"]), {})
        rows.append(
            {
                "objective": row["objective"],
                "pick": row["kind"],
                "config": _whole(row["config"]),
                "at": row["at"],
                "score": unit.interval(row, "score", ""),
                "worst neighbour": unit.level(
                    row, "neighbourhood_worst", _spread(row, "score", "")
                ),
                "neighbours": row["num_neighbours"],
                "fresh seeds": unit.interval(again, "fresh"),
                "test": unit.interval(again, "test"),
            }
        )
    return _shown(rows, droppable=("fresh seeds", "test", "worst neighbour", "neighbours"))


def pareto(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration on a front, the cheapest first."""
    front = frame[frame["on_front"].astype(bool)]
    unit = _unit(front["score"])
    return _shown(
        {
            "objective": row["objective"],
            "config": _whole(row["config"]),
            "at": row["at"],
            "seconds": row["seconds"],
            "score": unit.interval(row, "score", ""),
            "seeds": _whole(row["num_seeds"]),
        }
        for row in records_of(front)
    )


def cost(frame: pd.DataFrame) -> pd.DataFrame:
    """Trials, hours, devices and versions, with the total of all objectives."""
    if not frame["skipped"].any():
        frame = frame.drop(columns="skipped")
    found = plain(frame)
    if len(frame) < 2:
        return found
    counted = ("trials", "finished", "stopped", "skipped", "failed")
    sums = {name: frame[name].sum() for name in counted if name in frame}
    hours = frame["hours"].sum(min_count=1)
    total = {"objective": "all", **sums, "hours": hours if is_number(hours) else None}
    numbered = plain(pd.concat([frame, pd.DataFrame([total])], ignore_index=True))
    return numbered.fillna({name: "" for name in ("device", "versions") if name in numbered})


def trials(frame: pd.DataFrame, swept: Sequence[str]) -> pd.DataFrame:
    """Trials as they are, the values of hyperparameters as everywhere."""
    found = frame.rename(columns={"trial_id": "trial", "epochs_trained": "epochs trained",
                                  "wall_time_s": "seconds"})  # fmt: skip
    return found.assign(**{name: settings(frame[name].tolist()) for name in swept})


def failures(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per region with failures."""
    return _shown(
        {
            "objective": row["objective"],
            "region": row["region"],
            "trials": row["trials"],
            "failed": row["failed"],
            "rate": _share(row, "rate", ""),
            "p Holm": row["p_holm"],
            "verdict": "more failures here" if row["resolved"] else "",
        }
        for row in records_of(frame)
    )


def picks(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per objective and score without labels."""
    unit = _unit(frame["picked"])
    return _shown(
        {
            "objective": row["objective"],
            "score": row["score"],
            "configs": row["num_configs"],
            "picks": _pick(row),
            "best": unit.level(row, "best", _spread(row, "regret", "")),
            "picked": unit.level(row, "picked", _spread(row, "regret", "")),
            "loses": unit.interval(row, "regret", ""),
            "rank correlation": _share(row, "rho", "rho", most=2),
        }
        for row in records_of(frame)
    )


def _pick(row: Mapping[str, Any]) -> str:
    """The number of a configuration, behind its objective where it is one of several."""
    if not is_number(row["config"]):
        return ""
    return " ".join([row["of"]] * (row["of"] != row["objective"]) + [f"{row['config']:.0f}"])


def links(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per objective and diagnostic."""
    return _shown(
        {
            "objective": row["objective"],
            "diagnostic": row["diagnostic"],
            "configs": row["num_configs"],
            "rank correlation": _share(row, "rho", "", most=2),
            "p Holm": row["p_holm"],
            "verdict": _direction(row),
        }
        for row in records_of(frame)
    )


def levels_of(frame: pd.DataFrame) -> list[str]:
    """The factors whose levels a table has side by side: its first columns."""
    return list(itertools.takewhile(lambda name: name in FACTORS, map(str, frame)))


def with_levels(frame: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """What one of the functions above makes of `frame`, with the factors of `frame` in front."""
    others = [name for name in table if name not in levels_of(frame)]
    levels = {name: frame[name].tolist() for name in levels_of(frame)}
    return table.assign(**levels)[[*levels, *others]]


def notes(frame: pd.DataFrame) -> list[str]:
    """The notes of a table, each once, with the objectives or pairs that it is about unless that is
    all of them.
    """
    if "note" not in frame:
        return []
    about: dict[str, list[str]] = {}
    levels = levels_of(frame)
    for row in records_of(frame):
        texts = row["note"].split(NOTES_APART) if isinstance(row["note"], str) else []
        if texts and texts[0] and (reason := row.get("reason", "")):
            texts[0] = f"{status(reason)}: {texts[0]}"
        cell = "/".join(row[name] for name in levels)
        who = f"{cell}/{_about(row)}" if cell else _about(row)
        for text in filter(None, texts):
            about.setdefault(text, []).append(who)
    return [_note(text, list(dict.fromkeys(who)), len(frame)) for text, who in about.items()]


def _direction(row: Mapping[str, Any]) -> str:
    """Whether a diagnostic rises or falls with the metric."""
    if not row["resolved"]:
        return status(row["reason"])
    return f"{'higher' if row['rho'] > 0 else 'lower'} with the metric"


def _about(row: Mapping[str, Any]) -> str:
    if "a" in row:
        return f"{row['a']} - {row['b']}"
    name = str(row.get("objective") or row.get("region", ""))
    # The best may well be known where the robust one is not.
    return f"{name} ({row['kind']})" if row.get("kind") and row["reason"] else name


def _note(text: str, who: Sequence[str], num_rows: int) -> str:
    if len(who) > MANY_NAMES:
        return f"{', '.join(who[:MANY_NAMES])} and {len(who) - MANY_NAMES} more: {text}"
    return text if len(who) == num_rows > 1 else f"{', '.join(who)}: {text}"


@dataclass(frozen=True, kw_only=True)
class _Unit:
    """How numbers in the unit of the metric are shown.

    Attributes:
        is_fine: two digits of what resolves them; of percent and the like, two decimals do as long
            as they show it.
    """

    is_fine: bool

    def interval(
        self, row: Mapping[str, Any], name: str, stem: str | None = None, least: int = 2
    ) -> Number | None:
        """A value with its interval, in the columns that `_ends` says."""
        low, high = _ends(row, name, stem)
        return Number.of(row.get(name), low=low, high=high, is_fine=self.is_fine, least=least)

    def level(
        self, row: Mapping[str, Any], name: str, spread: float | None = math.nan
    ) -> Number | None:
        """A value alone. `spread` says how fine it is; where that is not known, a hundredth of it,
        None: all of it.
        """
        value = row[name]
        if spread is not None and is_number(value) and not (is_number(spread) and spread):
            spread = value / 100
        return Number.of(value, spread=math.nan if spread is None else spread, is_fine=self.is_fine)


def _unit(levels: Iterable[float]) -> _Unit:
    sizes = [abs(level) for level in levels if is_number(level)]
    return _Unit(is_fine=bool(sizes) and max(sizes) <= 1)


def _share(
    row: Mapping[str, Any], name: str, stem: str | None = None, most: int = 4
) -> Number | None:
    """A number between 0 and 1, or -1 and 1, with its interval."""
    low, high = _ends(row, name, stem)
    return Number.of(row[name], low=low, high=high, most=most)


def _ends(row: Mapping[str, Any], name: str, stem: str | None = None) -> tuple[float, float]:
    """The interval of a value: columns `<stem>_low` and `<stem>_high`, of `name` itself by default;
    `low` and `high` for stem "".
    """
    before = name if stem is None else stem
    low, high = (row.get(f"{before}_{end}" if before else end, math.nan) for end in ("low", "high"))
    return (low, high) if is_number(low) and is_number(high) else (math.nan, math.nan)


def _spread(row: Mapping[str, Any], name: str, stem: str | None = None) -> float:
    """What a value is resolved to: half its interval, or its own size."""
    low, high = _ends(row, name, stem)
    return (
        Number(value=row[name], low=low, high=high).resolution if is_number(row[name]) else math.nan
    )


def _tries(row: Mapping[str, Any]) -> str:
    tries = row["k_within"], *_ends(row, "k_within", "k")
    if not is_number(tries[0]):
        return ""
    value, low, high = (count(end) if is_number(end) else "" for end in tries)
    return f"{value} [{low}, {high}]" if low else value


def _band(row: Mapping[str, Any], name: str, *, named: bool) -> str:
    if not is_number(row[f"{name}_low"]):
        return ""
    low, high = settings([row[f"{name}_low"], row[f"{name}_high"]])
    return f"{row['band_param'] + ' ' if named else ''}{low} to {high}"


def _whole(value: float) -> int | None:
    return math.ceil(value) if is_number(value) and math.isfinite(value) else None


def _shown(rows: Any, droppable: Sequence[str] = ()) -> pd.DataFrame:
    """Rows as a frame, the numbers with intervals as texts; without those of `droppable` that have
    no value.
    """
    frame = pd.DataFrame(list(rows), dtype=object)
    for name in frame:
        values = frame[name].tolist()
        if any(isinstance(value, Number) for value in values):
            frame[name] = texts_of(
                [value if isinstance(value, Number) else None for value in values]
            )
    empty = [
        name
        for name in droppable
        if name in frame and (frame[name].isna() | frame[name].isin([""])).all()
    ]
    return frame.drop(columns=empty)
