"""What commands of statistics share: what they are asked of, and how their tables are printed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rich.console import Console

from clsweep.cli.endings import print_next
from clsweep.cli.options import OutputOptions
from clsweep.display.cells import records_of
from clsweep.display.printing import Format, print_note, print_table
from clsweep.display.text import say
from clsweep.errors import RequestError
from clsweep.findings.notes import is_measured, reference_notes, version_notes
from clsweep.findings.notes import notes as notes_of
from clsweep.questions import reproduction as paper
from clsweep.questions.column import Question, filled, with_levels

if TYPE_CHECKING:
    import pandas as pd

    from clsweep.api import Results
    from clsweep.findings.material import Material
    from clsweep.questions.findings import Findings


def print_statistic(
    findings: Findings,
    name: str,
    *given: str,
    style: OutputOptions,
    following: str = "",
    question: Question | None = None,
    is_told: bool = True,
    **asked: Any,
) -> None:
    """The table of the statistic `name` of `Findings`, asked by `given` and `asked`; if `is_told`,
    after what it comes to.
    """
    from clsweep.report import told

    material, notes = findings.material, findings.material.notes
    question = question or import_module(f"clsweep.questions.{name}").QUESTION
    found = getattr(findings, name)(*given, **asked)
    if name == "robustness":
        if asked.get("by") and any(map(is_measured, found["reason"])):
            question = replace(question, heading=f"{question.heading}, by {asked['by']}")
        frame = findings.side_table("references")
        references = records_of(frame.astype(object).where(frame.notna(), None))
        notes = (*reference_notes(references, metric=material.metric), *notes)
    if name in ("recommend", "pareto") and not findings.cells:
        material = replace(material, confirmation=findings.side_table("confirmation"))
    tell = getattr(told, name, None) if is_told else None
    print_question(
        question,
        found,
        material=material,
        style=style,
        within=asked.get("within"),
        said=partial(tell, findings, *given, **asked) if tell else tuple,
        notes=notes,
        following=following,
    )


def print_confirmation(results: Results, *, top: int | None, style: OutputOptions) -> None:
    """The best configurations on fresh seeds, after what that comes to."""
    from clsweep.cli.trials import confirm_notes
    from clsweep.questions.recommend import CONFIRMATION
    from clsweep.report.told import recommend

    print_question(
        CONFIRMATION,
        results.confirm(top=top),
        material=results.material,
        style=style,
        said=partial(recommend, results),
        notes=confirm_notes(results, top=top),
    )


def print_answer(findings: Findings) -> str:
    """The verdicts, as the report begins with them; returns the command to type next, or ""."""
    from clsweep.report.told import answer_of

    verdicts, steps = answer_of(findings)
    say()
    for sentence in verdicts:
        print_note(sentence)
    return next((step.command for step in steps if step.command), "")


def print_reproduction(findings: Findings, *, within: float | None, format: Format) -> None:
    """The tables of `clsweep reproduce`."""
    frame = findings.reproduce(within=within)
    if format in (Format.csv, Format.json):
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
    if len(apart := findings.differences()):
        asked = paper.DIFFERENCES
        shown = asked.shown(apart, findings.material, findings.material.within)
        title = filled(f"\n{asked.title}", 1, images=findings.material.images)
        print_table(records_of(shown), format=format, title=title, spare=asked.spare)
    lines = [*paper.remarks(frame), *paper.unmeasured(parts), f"\n{paper.closing(frame)}"]
    if frame["measured"].notna().any():
        lines[:0] = [f"\n{paper.legend(frame)}", *version_notes(findings.material.trials)]
    for line in lines:
        print_note(line)


def print_question(
    question: Question,
    frame: pd.DataFrame,
    *,
    material: Material,
    style: OutputOptions,
    within: float | None = None,
    said: Callable[[], Sequence[str]] = tuple,
    notes: Sequence[str] = (),
    following: str = "",
) -> None:
    """For programs the whole table. For eyes the shown one, with its notes, between what it comes
    to and the command to type next.

    Scores of the test split have a column that says so where no title does.
    """
    format, near = style.format, material.within if within is None else within
    sentences = said() if format is Format.table else ()
    for sentence in sentences:
        print_note(sentence)
    chosen = frame
    if format not in (Format.csv, Format.json):
        rows = question.rows(frame, material)
        chosen = with_levels(rows, question.shown(frame, material, near))
    if material.on_test and format is not Format.table:
        chosen = chosen.assign(score_on="test")
    heading = filled(
        question.heading or str(question.title), near, material.metric_title, material.images
    )
    left_out = print_table(
        records_of(chosen),
        list(map(str, chosen)),
        format=format,
        title=f"{chr(10) * bool(sentences)}{heading}",
        spare=question.spare,
        wide=style.wide,
    )
    if format is not Format.table:
        return
    for note in [*notes, *version_notes(material.trials), *notes_of(frame)]:
        print_note(f"- {note}")
    if style.explain:
        say()
        for line in question.explained(near):
            print_note(line)
    more = [f"--wide adds {', '.join(left_out)}"] if left_out else []
    more += [] if style.explain else ["--explain says what the columns are"]
    if more:
        print_note(f"({' '.join([style.command, '; '.join(more)]).strip()})")
    print_next(following)


def open_and_pair(
    arguments: Sequence[str], opened: Callable[[Sequence[str]], Findings]
) -> tuple[Findings, Sequence[str]]:
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
            findings = opened(sources)
            if set(pair) <= {sweep.objective for sweep in findings.material.sweeps}:
                return findings, pair
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
