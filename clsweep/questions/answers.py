"""Who answers questions, each table computed once; and what a report asks them by."""

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
from clsweep.errors import RequestError, UserError, nearest
from clsweep.findings.material import Material
from clsweep.findings.notes import worded
from clsweep.processes import is_parallel, shared, submit
from clsweep.questions.model import Sentences, Wording

if TYPE_CHECKING:
    from clsweep.analysis.reference import Printed

Ask = Callable[..., pd.DataFrame]  # (answers, what else is asked) -> a table
Expected = tuple[Ask, Mapping[str, Any]]
FEWEST_TRIALS = 200  # of fewer, the answers are there before other processes are


class Answers:
    """The tables on `material`, and what few of them need beside it; `levels`, factor -> label, of
    one cell of a study with factors.
    """

    levels: Mapping[str, str] = {}

    def __init__(
        self,
        material: Material,
        levels: Mapping[str, str] = levels,
        side_table: Callable[[str], pd.DataFrame] = lambda _: pd.DataFrame(),
    ) -> None:
        self._material, self.levels, self._side_table = material, levels, side_table

    @cached_property
    def _known(self) -> dict[str, pd.DataFrame]:
        return {}

    @cached_property
    def _expected(self) -> dict[str, Future[pd.DataFrame]]:
        return {}

    @property
    def material(self) -> Material:
        """The trials and all that is needed to read them."""
        return self._material

    @property
    def cells(self) -> Sequence[Answers]:
        """The cells of a study with factors, each with answers of its own; else none."""
        return ()

    def side_table(self, kind: str) -> pd.DataFrame:
        """What few statistics ask for: references, histograms, points, confirmation, or nothing."""
        return self._side_table(kind)

    def epochs_of(self, trials: Collection[str]) -> pd.DataFrame:
        """The rows of the epochs of these trials; may be empty."""
        return pd.DataFrame()

    def printed(self, within: float | None) -> Sequence[Printed]:
        """The papers' tables that the studies have, with the trials that may answer them."""
        return ()

    def near(self, within: float | None) -> float:
        """How far from the best still counts as good: as asked, or as the trials have it."""
        return self.material.within if within is None else within

    def ask(self, table: Ask, *args: object, **options: object) -> pd.DataFrame:
        """The table of a question, computed once, its notes as text; who asks gets a copy. Of a
        study with factors it has the answers of all cells. RequestError where the trials cannot
        answer.
        """
        answer = self._of_cells if self.cells else self._answer
        return self._remembered(answer, table, args, options)

    def ask_whole(self, table: Ask, *args: object, **options: object) -> pd.DataFrame:
        """The same of all cells together."""
        return self._remembered(self._answer, table, args, options)

    def _remembered(
        self,
        answer: Callable[..., pd.DataFrame],
        table: Ask,
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
        self, table: Ask, args: Sequence[object], options: Mapping[str, object]
    ) -> pd.DataFrame:
        """The answers of all cells, one under the other, with the factors first. A cell that cannot
        answer has no rows; where none can it is the first one's reason.
        """
        frames, errors = [], []
        for cell in self.cells:
            try:
                frames.append(in_cell(cell.ask(table, *args, **options), cell.levels))
            except RequestError as error:
                errors.append(error)
        if not frames:
            raise errors[0]
        return pd.concat([f for f in frames if len(f)] or frames[:1], ignore_index=True)

    def expect(
        self, table: Ask, options: Mapping[str, object], answer: Future[pd.DataFrame]
    ) -> None:
        """The answer to this is being computed elsewhere."""
        self._expected[_key(table, (), options)] = answer

    def _answer(
        self, table: Ask, args: Sequence[object], options: Mapping[str, object]
    ) -> pd.DataFrame:
        """The answer without signs of zeros; a complaint has the place in front."""
        sources = self.material.sources
        try:
            found = table(self, *args, **options)
        except UserError:
            raise
        except ValueError as error:
            raise RequestError(f"{', '.join(sources)}: {error}") from None
        floats = [str(name) for name in found if found[name].dtype.kind == "f"]
        return worded(found.assign(**{name: found[name] + 0.0 for name in floats}))


def _key(table: Ask, args: Sequence[object], options: Mapping[str, object]) -> str:
    given = {name: value for name, value in options.items() if value is not None}
    return f"{table.__module__}.{table.__name__}{tuple(args)}{sorted(given.items())}"


def in_cell(frame: pd.DataFrame, levels: Mapping[str, str | Sequence[str]]) -> pd.DataFrame:
    """A table with the factors in front: those of one cell, or of each row."""
    others = [name for name in frame if name not in levels]
    return frame.assign(**levels)[[*levels, *others]]


def cell_name(cell: Answers) -> str:
    """`stl10, resnet18`."""
    return ", ".join(cell.levels.values())


# Ahead


def ask_ahead(answers: Answers, questions: Iterable[Expected]) -> None:
    """Have questions of the material alone answered beside each other, the first ones first, where
    there are processes for that and trials enough to be worth it.
    """
    if not is_parallel() or len(answers.material.trials) < FEWEST_TRIALS:
        return
    try:
        at_hand = shared(answers.material), shared(active())
    except (pickle.PickleError, TypeError, AttributeError):  # a table of anything at all
        return
    for table, options in questions:
        answers.expect(table, options, submit(_answered, *at_hand, table, options))


def chosen(sweeps: Sequence[Sweep], objectives: Sequence[str]) -> Sequence[Sweep]:
    """The sweeps of these objectives, all where none is named; ValueError for an unknown one."""
    names = [sweep.objective for sweep in sweeps]
    for name in objectives:
        if name not in names:
            hint = f"{nearest(name, names)} Objectives: {', '.join(names)}"
            raise ValueError(f"no objective {name!r}.{hint}")
    return [sweep for sweep in sweeps if not objectives or sweep.objective in objectives]


def _answered(
    material: Material, plugins: Sequence[Plugin], table: Ask, options: Mapping[str, Any]
) -> pd.DataFrame:
    declare(plugins)  # the scores are rows of the catalog
    return _of(material).ask(table, **options)


_of = lru_cache(maxsize=1)(Answers)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a report asks, of whom, `within` how many points of the best; `say` is called with a
    word on what comes next.
    """

    answers: Answers
    within: float
    say: Callable[[str], None] = lambda _: None

    def ask(self, table: Ask, *args: object, **options: object) -> pd.DataFrame:
        """`Answers.ask`."""
        return self.answers.ask(table, *args, **options)

    @cached_property
    def material(self) -> Material:
        """With the side tables, which the statistics do not need."""
        self.say("reading")
        kinds = ("references", "histograms", "points", "confirmation")
        side: dict[str, Any] = {kind: self.answers.side_table(kind) for kind in kinds}
        return dataclasses.replace(self.answers.material, **side)

    @cached_property
    def words(self) -> Wording:
        """What the sentences call things."""
        found = self.answers.material
        return Wording(
            metric=found.metric,
            unit=found.unit,
            mode=found.mode,
            within=self.within,
            swept=bool(self.swept),
        )

    @cached_property
    def swept(self) -> list[str]:
        """Hyperparameters that any objective sweeps, those that most of them share first."""
        names = [name for sweep in self.answers.material.sweeps for name in sweep.params]
        return sorted(dict.fromkeys(names), key=lambda name: -names.count(name))

    @cached_property
    def shared(self) -> list[str]:
        """Those that at least two objectives sweep."""
        sweeps = self.answers.material.sweeps
        return [name for name in self.swept if sum(name in s.params for s in sweeps) > 1]

    @property
    def says_of_space(self) -> bool:
        """Whether any objective's samples say something of the space as a whole."""
        return any(sweep.not_measured is None for sweep in self.answers.material.spaces)

    @property
    def is_search(self) -> bool:
        """Whether any objective was searched, and not swept evenly."""
        sweeps = self.answers.material.sweeps
        return any(set(sweep.samplers) & set(ADAPTIVE_SAMPLERS) for sweep in sweeps)


def asked_of(answers: Answers, within: float | None = None) -> Asked:
    """What is asked of the answers; `within` is that of the trials by default."""
    return Asked(answers=answers, within=answers.near(within))


def of_each(
    answers: Answers, say: Callable[[Asked], Sentences], within: float | None = None
) -> Sentences:
    """What is said of all trials, or of each cell of a study with factors."""
    if not answers.cells:
        return say(asked_of(answers, within))
    return told_of({cell_name(cell): say(asked_of(cell, within)) for cell in answers.cells})


def told_of(said: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Every line with the cells that say it in front, unless all do."""
    about: dict[str, list[str]] = {}
    for name, lines in said.items():
        for line in lines:
            about.setdefault(line, []).append(name)
    return tuple(
        line if len(names) == len(said) else f"{'; '.join(names)}: {line}"
        for line, names in about.items()
    )
