"""The statistics of trials, each table computed once; and what a report reads them by."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import pandas as pd

from clsweep.analysis.sweep import ADAPTIVE_SAMPLERS, Sweep
from clsweep.catalog.plugins import Plugin, active, declare
from clsweep.display.numbers import Wording
from clsweep.errors import RequestError, UserError, nearest
from clsweep.processes import is_parallel, shared, submit
from clsweep.statistics.report_objects import Sentences
from clsweep.sweeps.notes import in_cell, worded
from clsweep.sweeps.study_data import StudyData

if TYPE_CHECKING:
    from clsweep.analysis.reproduce import Printed

TableFunction = Callable[..., pd.DataFrame]  # (answers, what else is asked) -> a table
TableRequest = tuple[TableFunction, Mapping[str, Any]]
FEWEST_TRIALS = 200  # of fewer, the answers are there before other processes are


class Statistics:
    """The tables on `data`, each computed once, and what few of them need beside it.

    Args:
        data: the trials and all that is needed to read them.
        levels: factor -> label, of one cell of a study with factors.
        side_table: references, histograms, points or confirmation by that name; may be empty.
    """

    levels: Mapping[str, str] = {}

    def __init__(
        self,
        data: StudyData,
        levels: Mapping[str, str] = levels,
        side_table: Callable[[str], pd.DataFrame] = lambda _: pd.DataFrame(),
    ) -> None:
        self._data, self.levels, self._side_table = data, levels, side_table

    @cached_property
    def _known(self) -> dict[str, pd.DataFrame]:
        return {}

    @cached_property
    def _expected(self) -> dict[str, Future[pd.DataFrame]]:
        return {}

    @property
    def data(self) -> StudyData:
        """The trials and all that is needed to read them."""
        return self._data

    @property
    def cells(self) -> Sequence[Statistics]:
        """The cells of a study with factors, each with answers of its own; else none."""
        return ()

    def side_table(self, kind: str) -> pd.DataFrame:
        """Rows that few statistics need: references, histograms, points or confirmation; versions
        of what trained.
        """
        return self._side_table(kind)

    def epochs_of(self, trials: Collection[str]) -> pd.DataFrame:
        """The rows of the epochs of these trials; may be empty."""
        return pd.DataFrame()

    def printed(self, within: float | None) -> Sequence[Printed]:
        """The papers' tables that the studies have, with the trials that may answer them."""
        return ()

    def near(self, within: float | None) -> float:
        """Points from the best that still count as good: as given, or as the trials have it."""
        return self.data.within if within is None else within

    def compute(self, table: TableFunction, *args: object, **options: object) -> pd.DataFrame:
        """A statistic's table, computed once, its notes as text; every caller gets a copy. Of a
        study with factors it has the rows of all cells. RequestError where the trials cannot
        answer.
        """
        answer = self._of_cells if self.cells else self._answer
        return self._remembered(answer, table, args, options)

    def compute_whole(self, table: TableFunction, *args: object, **options: object) -> pd.DataFrame:
        """The same of all cells together."""
        return self._remembered(self._answer, table, args, options)

    def _remembered(
        self,
        answer: Callable[..., pd.DataFrame],
        table: TableFunction,
        args: Sequence[object],
        options: Mapping[str, object],
    ) -> pd.DataFrame:
        key = _key(table, args, options)
        if key in self._expected:
            with suppress(CancelledError):  # of a report that was interrupted
                self._known[key] = self._expected.pop(key).result()
        if key not in self._known:
            self._known[key] = answer(table, args, options)
        return self._known[key].copy()

    def _of_cells(
        self, table: TableFunction, args: Sequence[object], options: Mapping[str, object]
    ) -> pd.DataFrame:
        """The answers of all cells, one under the other, with the factors first. A cell that cannot
        answer has no rows; where none can it is the first one's reason.
        """
        frames, errors = [], []
        for cell in self.cells:
            try:
                frames.append(in_cell(cell.compute(table, *args, **options), cell.levels))
            except RequestError as error:
                errors.append(error)
        if not frames:
            raise errors[0]
        return pd.concat([f for f in frames if len(f)] or frames[:1], ignore_index=True)

    def expect(
        self, table: TableFunction, options: Mapping[str, object], answer: Future[pd.DataFrame]
    ) -> None:
        """The answer to this is being computed elsewhere."""
        self._expected[_key(table, (), options)] = answer

    def _answer(
        self, table: TableFunction, args: Sequence[object], options: Mapping[str, object]
    ) -> pd.DataFrame:
        """The answer without signs of zeros; a complaint has the place in front."""
        sources = self.data.sources
        try:
            frame = table(self, *args, **options)
        except UserError:
            raise
        except ValueError as error:
            raise RequestError(f"{', '.join(sources)}: {error}") from None
        floats = [str(name) for name in frame if frame[name].dtype.kind == "f"]
        return worded(frame.assign(**{name: frame[name] + 0.0 for name in floats}))


def _key(table: TableFunction, args: Sequence[object], options: Mapping[str, object]) -> str:
    given = {name: value for name, value in options.items() if value is not None}
    return f"{table.__module__}.{table.__name__}{tuple(args)}{sorted(given.items())}"


def cell_name(cell: Statistics) -> str:
    """`stl10, resnet18`."""
    return ", ".join(cell.levels.values())


# Ahead


def prefetch(statistics: Statistics, requests: Iterable[TableRequest]) -> None:
    """Have tables that need nothing but the data computed beside each other, the first ones first,
    where there are processes for that and trials enough to be worth it.
    """
    if not is_parallel() or len(statistics.data.trials) < FEWEST_TRIALS:
        return
    try:
        at_hand = shared(statistics.data), shared(active())
    except (pickle.PickleError, TypeError, AttributeError):  # a table of anything at all
        return
    for table, options in requests:
        statistics.expect(table, options, submit(_answered, *at_hand, table, options))


def chosen_sweeps(sweeps: Sequence[Sweep], objectives: Sequence[str]) -> Sequence[Sweep]:
    """The sweeps of these objectives, all where none is named; ValueError for an unknown one."""
    names = [sweep.objective for sweep in sweeps]
    for name in objectives:
        if name not in names:
            hint = f"{nearest(name, names)} Objectives: {', '.join(names)}"
            raise ValueError(f"no objective {name!r}.{hint}")
    return [sweep for sweep in sweeps if not objectives or sweep.objective in objectives]


def _answered(
    data: StudyData, plugins: Sequence[Plugin], table: TableFunction, options: Mapping[str, Any]
) -> pd.DataFrame:
    declare(plugins)  # the scores are rows of the catalog
    return _of(data).compute(table, **options)


_of = lru_cache(maxsize=1)(Statistics)


@dataclass(frozen=True, kw_only=True)
class ReportContext:
    """The statistics that a report is made of, and how it reads them.

    Args:
        within: points from the best that still count as good.
        say: called with a word on what comes next.
    """

    statistics: Statistics
    within: float
    say: Callable[[str], None] = lambda _: None

    def compute(self, table: TableFunction, *args: object, **options: object) -> pd.DataFrame:
        """`Statistics.compute`."""
        return self.statistics.compute(table, *args, **options)

    @cached_property
    def data(self) -> StudyData:
        """With the side tables, which the statistics do not need."""
        self.say("reading")
        kinds = ("references", "histograms", "points", "confirmation")
        side: dict[str, Any] = {kind: self.statistics.side_table(kind) for kind in kinds}
        return dataclasses.replace(self.statistics.data, **side)

    @cached_property
    def words(self) -> Wording:
        """Names and units of the sentences."""
        data = self.statistics.data
        return Wording(
            metric=data.metric,
            unit=data.unit,
            mode=data.mode,
            within=self.within,
            swept=bool(self.swept),
        )

    @cached_property
    def swept(self) -> list[str]:
        """Hyperparameters that any objective sweeps, those that most of them share first."""
        names = [name for sweep in self.statistics.data.sweeps for name in sweep.params]
        return sorted(dict.fromkeys(names), key=lambda name: -names.count(name))

    @cached_property
    def shared(self) -> list[str]:
        """Those that at least two objectives sweep."""
        sweeps = self.statistics.data.sweeps
        return [name for name in self.swept if sum(name in s.params for s in sweeps) > 1]

    @property
    def says_of_space(self) -> bool:
        """True if any objective's samples say something of the space as a whole."""
        data = self.statistics.data
        return len(data.unmeasured) < len(data.spaces)

    @property
    def is_search(self) -> bool:
        """True if any objective was searched, and not swept evenly."""
        sweeps = self.statistics.data.sweeps
        return any(set(sweep.samplers) & set(ADAPTIVE_SAMPLERS) for sweep in sweeps)


def context_of(statistics: Statistics, within: float | None = None) -> ReportContext:
    """A context of the statistics; `within` is that of the trials by default."""
    return ReportContext(statistics=statistics, within=statistics.near(within))


def of_each(
    statistics: Statistics, say: Callable[[ReportContext], Sentences], within: float | None = None
) -> Sentences:
    """Sentences on all trials, or on each cell of a study with factors."""
    if not statistics.cells:
        return say(context_of(statistics, within))
    cells = statistics.cells
    return merged_cells({cell_name(cell): say(context_of(cell, within)) for cell in cells})


def merged_cells(lines_of: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Every line with the cells that say it in front, unless all do."""
    about: dict[str, list[str]] = {}
    for name, lines in lines_of.items():
        for line in lines:
            about.setdefault(line, []).append(name)
    return tuple(
        line if len(names) == len(lines_of) else f"{'; '.join(names)}: {line}"
        for line, names in about.items()
    )
