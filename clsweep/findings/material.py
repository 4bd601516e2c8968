"""Everything that a report is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from clsweep.analysis.sweep import Sweep


@dataclass(frozen=True, kw_only=True, eq=False)
class Material:
    """The trials of one or more studies, and what belongs to them. Frames other than `trials` may
    be empty.

    Attributes:
        sources: the folders or files, as given.
        trials: one row a trial; the names of objectives are final (with the study in front where
            there are several).
        metric: a column of `trials`, such as knn_top1.
        unit: "%", "nats" or "".
        on_test: every score is of the test split (`evaluation` of a study).
        mode: "max" or "min", which values of the metric are good.
        params: the columns that hold hyperparameters.
        diagnostics: the columns that say what a representation or its training looks like.
        symbols: param -> how axes call it ("tau" -> "τ").
        chance: value of the metric that chance reaches, in its own unit.
        defaults: objective -> param -> default value.
        confirmation: the best configurations once more on fresh seeds.
        confirmable: objective -> the results folder in which `clsweep confirm` runs its best by
            this metric again. It does so by a study's own metric alone.
        fresh_seeds: results folder -> seeds for `clsweep confirm`, where its study names none.
        within: how far from the best still counts as good, unless somebody says otherwise.
        yardsticks: objective -> what its scores depend on beside the encoder (data set, split, k of
            the kNN); scores of different yardsticks are not compared. Objectives that are not named
            share one.
        notes: what limits the report ("still running: 12 of 60 trials are left").
        left: planned trials that have not ended yet.
    """

    title: str
    sources: tuple[str, ...]
    trials: pd.DataFrame
    metric: str
    unit: str
    mode: str
    params: tuple[str, ...]
    symbols: Mapping[str, str]
    sweeps: tuple[Sweep, ...]
    chance: float | None
    defaults: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...]
    diagnostics: tuple[str, ...] = ()
    left: int = 0
    within: float = 1.0
    on_test: bool = False
    yardsticks: Mapping[str, str] = field(default_factory=dict)
    confirmable: Mapping[str, str] = field(default_factory=dict)
    fresh_seeds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    references: pd.DataFrame = field(default_factory=pd.DataFrame)
    histograms: pd.DataFrame = field(default_factory=pd.DataFrame)
    points: pd.DataFrame = field(default_factory=pd.DataFrame)
    confirmation: pd.DataFrame = field(default_factory=pd.DataFrame)

    @cached_property
    def spaces(self) -> tuple[Sweep, ...]:
        """The sweeps by what speaks for the space as a whole (`Sweep.of_space`)."""
        return tuple(sweep.of_space for sweep in self.sweeps)

    @property
    def metric_title(self) -> str:
        """The metric, its unit, and the split if it is the test split: `knn_top1 (%, test)`."""
        told = [part for part in (self.unit, "test split" if self.on_test else "") if part]
        return f"{self.metric} ({', '.join(told)})" if told else self.metric
