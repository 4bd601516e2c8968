"""Everything that a report is made from, and how a table of trials becomes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis.contrast import Contrast
from clsweep.analysis.image_intervals import TrialHits
from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.analysis.sweep import Sweep
from clsweep.catalog import (
    DIAGNOSTIC,
    METRIC,
    METRICS,
    OBJECTIVE_PARTS,
    PARAM,
    PARAMS,
    SELECTED_PARTS,
)
from clsweep.catalog.ownership import default_of
from clsweep.catalog.rows import SECONDS
from clsweep.display.numbers import mentioned
from clsweep.errors import RequestError, nearest
from clsweep.study.extend import ADDED, parse_contrasts

LOSSES = ("train_loss", "base_loss", "regularizer_loss")


@dataclass(frozen=True, kw_only=True)
class Confirming:
    """The best `top` configurations of each objective on fresh seeds, which a study may name."""

    top: int
    seeds: tuple[int, ...]
    is_named: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class StudyData:
    """The trials of one or more studies, and what belongs to them. Frames other than `trials` may
    be empty.
    """

    title: str
    sources: tuple[str, ...]  # the folders or files, as given
    trials: pd.DataFrame  # one row a trial; of several studies, objectives have theirs in front
    metric: str  # a column of `trials`, such as knn_top1
    unit: str  # "%", "nats" or ""
    mode: str  # "max" or "min", which values of the metric are good
    params: tuple[str, ...]  # the columns that hold hyperparameters
    sweeps: tuple[Sweep, ...]
    question: str = ""  # of the studies, in their authors' own words, in one line
    notes: tuple[str, ...] = ()  # what limits the report, as that 12 of 60 trials are left
    left: int = 0  # planned trials that have not ended yet
    within: float = 1.0  # how far from the best counts as good, unless somebody says otherwise
    on_test: bool = False  # every score is of the test split (`evaluation` of a study)
    # Objective -> what its scores depend on beside the encoder (data set, split, k of the kNN):
    # those of different yardsticks are not compared. Objectives that are not named share one.
    yardsticks: Mapping[str, str] = field(default_factory=dict)
    # Objective -> what its study sets, also of what it sweeps.
    base: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    contrasts: tuple[Contrast, ...] = ()  # what the studies ask by name
    hits: Mapping[str, TrialHits] = field(default_factory=dict)  # metric -> which images are right
    # Objective -> the results folder in which `clsweep confirm` runs its best by this metric again.
    # It does so by a study's own metric alone.
    confirmable: Mapping[str, str] = field(default_factory=dict)
    # Results folder -> what `clsweep confirm` would run in it.
    confirming: Mapping[str, Confirming] = field(default_factory=dict)
    search_objectives: tuple[str, ...] = ()  # what searches looked for the front of
    references: pd.DataFrame = field(default_factory=pd.DataFrame)
    histograms: pd.DataFrame = field(default_factory=pd.DataFrame)
    points: pd.DataFrame = field(default_factory=pd.DataFrame)
    # The best configurations once more on fresh seeds.
    confirmation: pd.DataFrame = field(default_factory=pd.DataFrame)

    @cached_property
    def spaces(self) -> tuple[Sweep, ...]:
        """The sweeps by what speaks for the space as a whole (`Sweep.of_space`)."""
        return tuple(sweep.of_space for sweep in self.sweeps)

    @property
    def second_objective(self) -> str:
        """Another metric that a search has weighed beside this one; else `seconds`."""
        return next((name for name in self.search_objectives if name != self.metric), SECONDS)

    @cached_property
    def unmeasured(self) -> tuple[Sweep, ...]:
        """Those whose samples say nothing of the space as a whole."""
        return tuple(space for space in self.spaces if space.not_measured)

    @cached_property
    def diagnostics(self) -> tuple[str, ...]:
        """The columns on a representation or its training, and scores without labels beside it."""
        others = (m.name for m in METRICS if m.takes and m.name != self.metric)
        return tuple(name for name in (*DIAGNOSTIC, *others) if name in self.trials)

    @cached_property
    def untrained(self) -> set[str]:
        """The objectives whose encoders are scored as they were initialised, at 0 epochs."""
        if "epochs" not in self.trials:
            return set()
        most = self.trials.groupby("objective")["epochs"].max()
        return {str(name) for name in most.index[most == 0]}

    @cached_property
    def defaults(self) -> dict[str, dict[str, Any]]:
        """Objective -> hyperparameter -> its value in the study's base, or the catalog's default as
        the objective has it.
        """
        if not {"objective", *OBJECTIVE_PARTS} <= set(self.trials.columns):
            return {}
        names = [name for name in self.params if name in PARAM]
        defaults_of = {}
        for row in self.trials.drop_duplicates("objective").to_dict("records"):
            parts: dict[str, str] = {part: str(row[part]) for part in OBJECTIVE_PARTS}
            chosen = {n: str(row[n]) for n in SELECTED_PARTS if isinstance(row.get(n), str)}
            with suppress(KeyError):  # a part that this version does not know
                own: dict[str, Any] = {n: default_of(n, parts, **chosen) for n in names}
                name = str(row["objective"])
                defaults_of[name] = {**own, **self.base.get(name, {})}
        return defaults_of

    def scored_alike(self, sweeps: Sequence[Sweep]) -> dict[str, list[Sweep]]:
        """Yardstick -> those of the sweeps that it has scored."""
        return by_yardstick(sweeps, self.yardsticks)

    @cached_property
    def images(self) -> str:
        """The images that intervals are for: "new images" where all trials say which ones they have
        right, "these images" of other scores, "the data scored" of another tool's; empty where it
        is of no data.
        """
        if self.metric not in METRIC or METRIC[self.metric].kind != "images":
            return "" if "framework" in self.trials else "the data scored"
        scored = [sweep for sweep in self.sweeps if sweep.measured.alive.any()]
        is_known = scored and all(sweep.images for sweep in scored)
        return "new images" if is_known else "these images"

    @property
    def metric_title(self) -> str:
        """The metric, its unit, and the split if it is the test split: `knn_top1 (%, test)`."""
        parts = [part for part in (self.unit, "test split" if self.on_test else "") if part]
        return f"{self.metric} ({', '.join(parts)})" if parts else self.metric


def worker_seconds(trials: pd.DataFrame) -> pd.Series[float]:
    """wall_time_s x workers of each trial, NaN where one is missing; one worker where no trial says
    how many.
    """
    recorded = trials.reindex(columns=["wall_time_s", "workers"]).apply(pd.to_numeric).astype(float)
    spent = recorded["wall_time_s"]
    return spent * recorded["workers"] if recorded["workers"].notna().any() else spent


def known_mode(metric: str) -> str | None:
    """Which values of a metric are best, as the catalog says; None where it does not."""
    own = METRIC[metric].mode if metric in METRIC else None
    return "min" if metric in LOSSES else own


def mode_of(metric: str, given: str | None, known: str | None, source: str) -> str:
    """Which values of a metric are best: as the study or the catalog knows, else as asked."""
    known = known or known_mode(metric)
    wrong = "expected 'max' or 'min' is best, nothing says which: give a mode"
    if given is not None and known not in (given, None):
        wrong = f"expected {known!r}, which is best, got {given!r}"
    elif given or known:
        return str(given or known)
    raise RequestError(f"{source}: mode of metric {metric!r}: {wrong}")


def unit_of(metric: str) -> str:
    return METRIC[metric].unit if metric in METRIC else ""


def tolerance_of(unit: str, width: float) -> float:
    """One point of percent; of another metric a twentieth of its range, as 1, 2 or 5."""
    part = width / 20
    if unit == "%" or not part > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(part))
    step = max(step for step in (1, 2, 5) if step * power <= part * (1 + 1e-9))
    return float(f"{step * power:.1g}")


def sweeps_of(
    trials: pd.DataFrame,
    source: str,
    metric: str,
    mode: str,
    params: Sequence[str] | Mapping[str, Sequence[str]],
    *,
    failed: str = "worst",
    **space: Any,
) -> tuple[Sweep, ...]:
    """The sweeps of `read_sweeps`, which takes `space`, with `source` in front of a complaint and
    the catalog's limits of the metric. `failed` is one of `FAILED_AS`, as `left-out` too.
    """
    space |= {"failed_as": str(failed).replace("-", " ")}
    if metric in METRIC and not space.get("limits"):
        space["limits"] = METRIC[metric].limits
    options = {name: value for name, value in space.items() if value is not None}
    possible = {p.name: (p.low, p.high) for p in PARAMS if p.kind in ("float", "int")}
    try:
        sweeps = read_sweeps(trials, metric=metric, params=params, mode=mode, **options)
        return tuple(replace(sweep, possible=possible) for sweep in sweeps)
    except (ValueError, TypeError) as error:  # a TypeError: of a column of lists and the like
        raise RequestError(f"{source}: {error}") from None


def by_yardstick(sweeps: Sequence[Sweep], yardsticks: Mapping[str, str]) -> dict[str, list[Sweep]]:
    """Yardstick -> the sweeps that it has scored."""
    groups: dict[str, list[Sweep]] = {}
    for sweep in sweeps:
        groups.setdefault(yardsticks.get(sweep.objective, ""), []).append(sweep)
    return groups


def near_of(unit: str, sweeps: Sequence[Sweep], yardsticks: Mapping[str, str]) -> float:
    """Points near the best: `tolerance_of` the widest range of levels of one yardstick."""
    width = 0.0
    for group in by_yardstick([sweep.measured for sweep in sweeps], yardsticks).values():
        levels = np.concatenate([x.means[x.alive] for x in group])
        width = max(width, float(np.ptp(levels)) if len(levels) else 0.0)
    return tolerance_of(unit, width)


def percent_of(metric: str, sweeps: Sequence[Sweep]) -> tuple[float | None, str]:
    """The value that a table calls 100 %, and a note unless it is 100: 1 of a percentage of which
    all scores are fractions, between 0 and 1 and not these ends alone; None of scores that no
    percentage has.
    """
    if unit_of(metric) != "%":
        return None, ""
    scores_of = {s.objective: s.sign * s.scores[np.isfinite(s.scores)] for s in sweeps}
    scores = np.concatenate(list(scores_of.values()))
    low, high = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    expected = f"{metric} is expected in percent, given {mentioned(low)} to {mentioned(high)}"
    if len(scores) and (low < 0 or high > 100):
        return None, f"{expected}: read as numbers without a unit or limits"
    fractions = [
        name
        for name, own in scores_of.items()
        if len(own) and own.max() <= 1 and not np.isin(own, (0, 1)).all()
    ]
    if not fractions:
        return 100.0, ""
    if high <= 1:
        how = "read as fractions of 1; for percent multiply the column by 100"
        return 1.0, f"{expected}: {how}"
    names = ", ".join(fractions)
    return 100.0, f"{expected}: that of {names} is read as percent too, not as fractions of 1"


def chance_score(metric: str, num_classes: pd.Series[Any]) -> float | None:
    """Metric of a guess, percent; none where the numbers of classes differ."""
    guesses = METRIC[metric].guesses if metric in METRIC else 0
    if not guesses or num_classes.nunique(dropna=False) != 1 or not num_classes.min() >= guesses:
        return None
    return 100 * guesses / float(num_classes.iloc[0])


def label_free_modes(metric: str) -> dict[str, str]:
    """Scores that need no labels -> which of their values are best; none beside one of them."""
    if metric in METRIC and METRIC[metric].takes:
        return {}
    return {row.name: row.mode for row in METRICS if row.takes}


_NUMBERS = ("margin", "published")


def contrasts_with(more: Mapping[str, Any], data: StudyData) -> tuple[Contrast, ...]:
    """The contrasts of the studies, and those that are asked once there are trials, which say so.
    StudyError has a line for each mistake of shape; RequestError names what the study has
    otherwise.
    """
    parsed = parse_contrasts(more, lambda keys, what: f"{'.'.join(map(str, keys))}: {what}")
    tree = {"contrasts": parsed, "metric": {"name": data.metric}}
    for each in contrasts_of(tree):
        at = f"contrasts.{each.name}"
        if len(set(each.of)) == 1 and each.minus is None:
            raise RequestError(f"{at}: expected two objectives, or minus: nothing is subtracted")
        for name in (*each.at, *(each.minus or ())):
            if name not in (params := data.params):
                hint = f"{nearest(name, params)} Swept: {', '.join(params) or 'nothing'}"
                raise RequestError(f"{at}: no objective sweeps '{name:.80}'.{hint}")
    known = {each.name: replace(each, added_after=0) for each in data.contrasts}
    new = [each for each in contrasts_of(tree) if known.get(each.name) != each]
    if twice := [each.name for each in new if each.name in known]:
        raise RequestError(f"contrasts.{twice[0]}: the study asks another by this name: rename it")
    return (*data.contrasts, *(replace(c, added_after=len(data.trials)) for c in new))


def contrasts_of(tree: Mapping[str, Any], before: str = "") -> list[Contrast]:
    """Those of a checked study; `before` stands before the names of its objectives."""
    contrasts = []
    for name, entry in (tree.get("contrasts") or {}).items():
        of = dict.fromkeys([entry["of"]] if isinstance(entry["of"], str) else entry["of"])
        values = {key: value for key, value in entry.items() if value is not None}
        given: dict[str, Any] = {key: dict(values[key]) for key in ("at", "minus") if key in values}
        for side in given.values():  # as the tables have them
            for key in set(side) & set(PARAM):
                with suppress(ValueError):  # no value of it: that of no setting
                    side[key] = PARAM[key].coerce(side[key])
        given |= {key: float(values[key]) for key in _NUMBERS if key in values}
        given["metric"] = values.get("metric") or (tree.get("metric") or {}).get("name", "knn_top1")
        given |= {"added_after": values.get(ADDED, 0), "family": before}
        parts = tuple(f"{before}{each}" for each in of)
        contrasts.append(Contrast(name=f"{before}{name}", of=parts, **given))
    return contrasts
