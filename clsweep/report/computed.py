"""What a report puts together from several statistics, each once, when a section first asks, and
the small parts that every section is made of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from clsweep.analysis.sweep import ADAPTIVE_SAMPLERS
from clsweep.findings.ahead import Question
from clsweep.findings.material import Material
from clsweep.findings.notes import is_measured
from clsweep.findings.reproduction import Layout, layouts
from clsweep.findings.statistics import Findings
from clsweep.report.model import Figure, Section, Table
from clsweep.report.sentences.words import Sentences, Wording, left_open, told

Say = Callable[[str], None]

ERROR_COLUMNS = ("objective", "error_class", "error_message")


@dataclass(frozen=True, kw_only=True)
class Tables:
    """What `findings` has no single table of; `say` is called with a word on what comes next.

    Attributes:
        within: points from the best that count as good.
    """

    findings: Findings
    within: float
    say: Say

    def ahead(self) -> Iterator[Question]:
        """What takes time, roughly in the order in which a report asks; the longest early."""
        near = {"within": self.within}
        if self.says_of_space:
            yield "robustness", near
            yield "compare", {"stat": "mean"}
            yield "sensitivity", {}
            yield "tuning_cost", near
            yield "compare", {"stat": "std"}
            yield from (("winners", {"by": name}) for name in self.shared)
            yield "compare", {"stat": "within", **near}
            yield from (("robustness", {"by": name, **near}) for name in self.swept)
            yield "tolerance", {}
            yield "best_of_k", {}
        yield "recommend", {}
        yield "picks", {}
        yield "pareto", {}
        yield "mechanism", {"by": self.mechanism_by}
        yield "links", {}

    @cached_property
    def material(self) -> Material:
        """With the side tables, which the statistics do not need."""
        self.say("reading")
        return dataclasses.replace(
            self.findings.material,
            references=self.findings.side_table("references"),
            histograms=self.findings.side_table("histograms"),
            points=self.findings.side_table("points"),
            confirmation=self.findings.side_table("confirmation"),
        )

    @cached_property
    def swept(self) -> list[str]:
        """Hyperparameters that any objective sweeps, those that most of them share first."""
        names = [name for sweep in self.material.sweeps for name in sweep.params]
        return sorted(dict.fromkeys(names), key=lambda name: -names.count(name))

    @cached_property
    def shared(self) -> list[str]:
        """Those that at least two objectives sweep."""
        return [
            name for name in self.swept if sum(name in s.params for s in self.material.sweeps) > 1
        ]

    @cached_property
    def failures(self) -> pd.DataFrame:
        """Failed trials by objective and error, most frequent first."""
        trials = self.material.trials
        failed = trials[trials["status"] == "failed"]
        known = [name for name in ERROR_COLUMNS if name in failed]
        counts = (
            failed.assign(trials=1)
            .groupby(known, dropna=False, sort=False)["trials"]
            .sum()
            .reset_index()
        )
        return counts.sort_values("trials", ascending=False, kind="stable", ignore_index=True)

    @cached_property
    def robustness_by(self) -> pd.DataFrame:
        """The marginal robustness to each hyperparameter, with a column `by` in front."""
        frames = []
        for name in self.swept:
            self.say(f"robustness by {name}")
            frame = self.findings.robustness(by=name, within=self.within)
            sweeping = {sweep.objective for sweep in self.material.sweeps if name in sweep.params}
            frame = frame[frame["objective"].isin(sweeping)]
            frame.insert(0, "by", name)
            frames.append(frame)
        return (
            pd.concat(frames, ignore_index=True)
            if frames
            else self.findings.robustness(within=self.within).iloc[:0].assign(by="")
        )

    @cached_property
    def printed(self) -> pd.DataFrame:
        """A paper's numbers beside what was measured; may be empty."""
        return self.findings.reproduce()

    @cached_property
    def layouts(self) -> list[Layout]:
        """The parts of the paper's tables; none where nothing is printed."""
        return [] if self.printed.empty else layouts(self.printed)

    @cached_property
    def measured_layouts(self) -> list[Layout]:
        return [part for part in self.layouts if part.is_measured]

    @cached_property
    def board(self) -> pd.DataFrame:
        self.say("leaderboard")
        return self.findings.leaderboard(within=self.within)

    @property
    def says_of_space(self) -> bool:
        """Whether any objective's samples say something of the space as a whole."""
        return any(sweep.not_measured is None for sweep in self.material.sweeps)

    @property
    def is_search(self) -> bool:
        """Whether any objective was searched, and not swept evenly."""
        return any(set(sweep.samplers) & set(ADAPTIVE_SAMPLERS) for sweep in self.material.sweeps)

    @cached_property
    def means(self) -> pd.DataFrame:
        self.say("comparison of means")
        return self.findings.compare(stat="mean")

    @cached_property
    def spreads(self) -> pd.DataFrame:
        self.say("comparison of spreads")
        return self._of_sweeping(self.findings.compare(stat="std"))

    @cached_property
    def shares(self) -> pd.DataFrame:
        self.say("comparison of shares near the best")
        return self._of_sweeping(self.findings.compare(stat="within", within=self.within))

    def _of_sweeping(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """Without the pairs of a baseline that sweeps nothing, which has no spread to compare."""
        names = [sweep.objective for sweep in self.material.sweeps if sweep.params]
        return pairs[pairs["a"].isin(names) & pairs["b"].isin(names)].reset_index(drop=True)

    @cached_property
    def winners(self) -> pd.DataFrame:
        frames = []
        for name in self.shared:
            self.say(f"winners by {name}")
            frames.append(self.findings.winners(by=name))
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    @cached_property
    def mechanism_by(self) -> str | None:
        """The hyperparameter that the mechanism is shown against: the batch size, or the one that
        most share.
        """
        return "batch_size" if "batch_size" in self.swept else next(iter(self.swept), None)


def words_of(tables: Tables) -> Wording:
    material = tables.material
    return Wording(
        metric=material.metric, unit=material.unit, mode=material.mode, within=tables.within
    )


def table_of(
    name: str,
    title: str,
    caption: str,
    frame: pd.DataFrame,
    show: Callable[[pd.DataFrame], pd.DataFrame],
) -> Table | None:
    """A table; None where it has no rows, or none that was measured."""
    if frame.empty or ("reason" in frame and not frame["reason"].map(is_measured).any()):
        return None
    return Table(name=name, title=title, caption=caption, frame=frame, shown=show(frame))


def section(
    *,
    id: str,
    title: str,
    said: Sentences = (),
    notes: tuple[str, ...] = (),
    tables: Sequence[Table | None] = (),
    figures: Sequence[Figure | None] = (),
) -> Section:
    """A section of the tables and figures that there are, whose sentences are parted into what is
    told and what stays open.
    """
    return Section(
        id=id,
        title=title,
        sentences=told(said),
        open=left_open(said),
        notes=notes,
        tables=tuple(table for table in tables if table is not None),
        figures=tuple(figure for figure in figures if figure is not None),
    )
