"""The tables of statistics as their commands print them, and of which results."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
from rich.console import Console

from clsweep.cli.options import OutputOptions
from clsweep.display.printing import Format, print_hints, print_next, print_note, print_table, say
from clsweep.errors import RequestError
from clsweep.opened_results import Results
from clsweep.statistics import reproduce as paper
from clsweep.statistics.statistic import Statistic, filled, with_levels
from clsweep.sweeps.notes import notes_of, records_of, reference_notes, version_notes
from clsweep.sweeps.study_data import StudyData


def print_confirmation(results: Results, *, top: int | None, style: OutputOptions) -> None:
    """The best configurations on fresh seeds, after what that comes to."""
    from clsweep.cli.trials import confirm_notes
    from clsweep.statistics.recommend import CONFIRMATION
    from clsweep.statistics.verdicts import recommend_verdict

    verdict = partial(recommend_verdict, results)
    frame, notes = results.confirm(top=top), partial(confirm_notes, results, top=top)
    print_statistic(CONFIRMATION, frame, results.data, style=style, verdict=verdict, notes=notes)


def print_answer(results: Results) -> str:
    """The verdicts, as the report begins with them; returns the command to type next, or ""."""
    from clsweep.report.first_screen import answer_of

    verdicts, steps = answer_of(results)
    say()
    for sentence in verdicts:
        print_note(sentence)
    return next((step.command for step in steps if step.command), "")


def print_reproduction(results: Results, *, within: float | None, format: Format) -> None:
    """The tables of `clsweep reproduce`."""
    frame = results.reproduce(within=within)
    if format.is_exact:
        print_table(records_of(frame), list(map(str, frame)), format=format)
        return
    if frame.empty:
        say("The study has no printed numbers beside it.")
        return
    parts = paper.layouts(frame)
    for part in parts:
        if part.is_measured:
            title = f"\n{part.paper}, {part.item}\n{part.title}"
            if format is Format.md:
                say(f"{title}\n")
            print_table(records_of(part.shown), format=format, title=title)
    if len(apart := results.differences()):
        statistic = paper.DIFFERENCES
        shown = statistic.shown(apart, results.data, results.data.within)
        title = filled(f"\n{statistic.title}", 1, images=results.data.images)
        print_table(records_of(shown), format=format, title=title, spare=statistic.drop_order)
    if format is Format.latex:
        return
    lines = [*paper.remarks(frame), *paper.not_measured_items(parts), f"\n{paper.closing(frame)}"]
    if frame["measured"].notna().any():
        lines[:0] = [f"\n{paper.legend(frame)}", *version_notes(results.data.trials)]
    for line in lines:
        print_note(line)


def print_diff(first: Results, second: Results, *, style: OutputOptions) -> None:
    """The tables of `clsweep diff`, after the one line that says what they come to."""
    from clsweep.statistics.diff import ANSWERS, CHANGES, FACTS, heading_data, headline

    frame = first.diff(second)
    if style.format.is_exact:
        print_table(records_of(frame), list(map(str, frame)), format=style.format)
        return
    if style.format is Format.table:
        print_note(headline(frame))
    is_answer, data = frame["part"] == ANSWERS, heading_data(first.data, second.data)
    for statistic, rows in ((FACTS, frame[~is_answer]), (CHANGES, frame[is_answer])):
        if rows["first"].notna().any():
            say()
            print_statistic(statistic, rows, data, style=style, notes=tuple)


def print_statistic(
    statistic: Statistic,
    frame: pd.DataFrame,
    data: StudyData,
    *,
    style: OutputOptions,
    within: float | None = None,
    verdict: Callable[[], Sequence[str]] = tuple,
    notes: Callable[[], Sequence[str]] | None = None,
    then: str = "",
) -> None:
    """For programs the whole table. For eyes the shown one, with its notes, between the verdict and
    the command to type next.

    Scores of the test split have a column that says so where no title does.

    Args:
        notes: in place of those of the data and its versions.
    """
    format, near = style.format, data.within if within is None else within
    marked = {"score_on": "test"} if data.on_test and format is not Format.table else {}
    if format.is_exact:
        whole = frame.assign(**marked)
        print_table(records_of(whole), list(map(str, whole)), format=format)
        return
    sentences = verdict() if format is Format.table else ()
    for sentence in sentences:
        print_note(sentence)
    chosen = with_levels(statistic.rows(frame, data), statistic.shown(frame, data, near))
    chosen = chosen.assign(**marked)
    left_out = print_table(
        records_of(chosen),
        list(map(str, chosen)),
        format=format,
        title=f"{chr(10) * bool(sentences)}{statistic.heading(data, near)}",
        spare=statistic.drop_order,
        wide=style.wide,
    )
    if format is not Format.table:
        return
    for note in [
        *(notes() if notes else [*data.notes, *version_notes(data.trials)]),
        *notes_of(frame),
    ]:
        print_note(f"- {note}")
    meanings = statistic.explained(chosen, data, near)
    print_hints(left_out, meanings, explain=style.explain, command=style.command)
    print_next(then)


def print_robustness(
    results: Results, *, by: str | None = None, within: float | None = None, **how: Any
) -> None:
    """The table of `clsweep robustness`, beside what is reached without training; `how` as in
    `print_statistic`.
    """
    from clsweep.statistics.robustness import ROBUSTNESS, robustness_by

    def notes() -> list[str]:
        references = results.side_table("references")
        rows = records_of(references.astype(object).where(references.notna(), None))
        data = results.data
        of_data = [*data.notes, *version_notes(data.trials)]
        return [*reference_notes(rows, metric=data.metric), *of_data]

    frame = results.robustness(by=by, within=within)
    statistic = robustness_by(by, frame) if by else ROBUSTNESS
    print_statistic(statistic, frame, results.data, within=within, notes=notes, **how)


def print_pareto(results: Results, *, against: str | None = None, **how: Any) -> None:
    """The table of `clsweep pareto`; `how` as in `print_statistic`."""
    from clsweep.statistics.pareto import pareto_of

    frame = results.pareto(against=against)
    statistic = pareto_of(against or results.data.second_objective)
    print_statistic(statistic, frame, with_confirmation(results), **how)


def with_confirmation(results: Results) -> StudyData:
    """The data with what fresh seeds said; of cells each has its own."""
    if results.cells:
        return results.data
    return replace(results.data, confirmation=results.side_table("confirmation"))


def open_and_pair(
    arguments: Sequence[str], opened: Callable[[Sequence[str]], Results]
) -> tuple[Results, Sequence[str]]:
    """The results, as `opened` reads them, and the two objectives after them, if there are any.

    The last two arguments are objectives where they cannot be results, or where the results before
    them have such.
    """
    cannot_be = [text for text in arguments[1:] if not os.path.exists(text) and "://" not in text]
    if len(arguments) > 2:
        sources, pair = arguments[:-2], arguments[-2:]
        if set(cannot_be) & set(pair) and not set(cannot_be) - set(pair):
            return opened(sources), pair
        if not cannot_be:
            results = opened(sources)
            if set(pair) <= {sweep.objective for sweep in results.data.sweeps}:
                return results, pair
    if cannot_be:
        raise RequestError(
            "compare: expected results folders and then two objectives, or none for every pair; "
            f"neither a file nor a folder: {', '.join(cannot_be)}"
        )
    return opened(arguments), ()


def default_report(paths: Sequence[str]) -> str:
    """`reports/NAME`, by the names of the results folders."""
    whole = [path if "://" in path else os.path.abspath(path) for path in paths]
    names = [path.rstrip("/").rpartition("/")[2].removesuffix(".parquet") for path in whole]
    return os.path.join("reports", "-".join(names[:3]))


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Says on one line of the terminal what is being done; silent where nobody looks."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("") as status:
        yield lambda text: status.update(text)
