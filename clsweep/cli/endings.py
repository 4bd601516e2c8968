"""How the commands that run trials end: what they print, the exit code, and what to type next."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from errno import ENOSPC
from typing import TYPE_CHECKING

import typer

from clsweep.display.printing import Format, print_note, print_table
from clsweep.display.text import say
from clsweep.errors import RequestError, UserError

if TYPE_CHECKING:
    from clsweep.api import Results
    from clsweep.cluster.runner import RunSummary
    from clsweep.results.reading import StudyResults

EXIT_SOME_FAILED, EXIT_INVALID, EXIT_INTERRUPTED = 1, 2, 130

# What running, training and drawing need, and the light installation leaves out.
LEFT_OUT = (
    "filelock", "grpc", "optuna", "PIL", "pytorch_optimizer", "ray", "safetensors",
    "tensorboardX", "torch", "torchvision",
)  # fmt: skip


def require_words(argv: Sequence[str]) -> None:
    """Refuse `--out ""`: no argument may be empty; a path would be the working folder."""
    for before, word in zip(["clsweep", *argv], argv, strict=False):
        if not word or (word.startswith("--") and word.endswith("=")):
            raise RequestError(f"expected a value after {(word or before)!r:.80}, given none")


def mistake(error: UserError | OSError | MemoryError) -> str:
    """What is said of an error that no command has worded, as of a working folder that is gone."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"expected more memory than there is: {str(error) or 'no more is given'}"
    if isinstance(error, FileNotFoundError) and error.filename is None:
        return "the working folder has been removed: expected to be called in one that is there"
    place = error.filename or ("clsweep" if error.errno != ENOSPC else tempfile.gettempdir())
    return f"{place!s:.200}: {error.strerror or error}"


def left_out(error: ModuleNotFoundError, argv: Sequence[str]) -> str:
    """One line for a command that needs more than is installed; empty for another package."""
    package = str(error.name).partition(".")[0]
    if package not in LEFT_OUT:
        return ""
    command = " ".join(["clsweep", *argv[1:2]])
    return f"{command}: needs {package}, which is not installed here: pip install clsweep"


def print_failures(results: StudyResults) -> None:
    from clsweep.cli.status import failure_rows

    if failures := failure_rows(results):
        print_table(failures, title="\nFailed trials")


def print_confirmation(results: Results, *, top: int | None, format: Format) -> None:
    from clsweep.catalog import METRIC
    from clsweep.cli.status import split_marked
    from clsweep.cli.trials import CONFIRM_SPARE, confirm_notes, confirm_rows
    from clsweep.report.told import recommend

    rows = confirm_rows(results, top=top, intervals_apart=format in (Format.csv, Format.json))
    rows = split_marked(rows, results, format)
    split = ", test split" if results.score_on == "test" else ""
    title = f"\nThe best by {results.metric} ({METRIC[results.metric].unit}{split}), once more"
    left_out = print_table(rows, format=format, title=title, spare=CONFIRM_SPARE)
    if format is Format.table:
        if left_out:
            print_note(f"(a wider screen adds {', '.join(left_out)})")
        for note in confirm_notes(results, top=top):
            print_note(f"- {note}")
        for sentence in recommend(results):
            print_note(sentence)


def print_end(summary: RunSummary, again: str, following: str) -> None:
    """How many trials there are of each kind, and what to type next."""
    stopped = f"{summary.stopped} stopped, " if summary.stopped else ""
    stopped += f"{summary.skipped} skipped, " if summary.skipped else ""
    say(f"\n{summary.finished} finished, {stopped}{summary.failed} failed, {summary.left} left")
    if summary.open:
        trials = "1 trial was" if len(summary.open) == 1 else f"{len(summary.open)} trials were"
        why = ", ".join(sorted(set(summary.open.values())))
        say(f"{trials} lost with their machine ({why}) and stay open; the same command runs them")
    if summary.left or summary.interrupted:
        say(f"{'Interrupted. ' if summary.interrupted else ''}Resume with: {again}")
    say(f"Results: {summary.path}")
    print_next("" if summary.left else following)


def print_next(command: str) -> None:
    """The last line: what to type next, never broken; nothing where nothing is to be done."""
    if command:
        say(f"Next: {command}")


def exit_as(summary: RunSummary) -> None:
    if summary.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if summary.failed or summary.open:
        raise typer.Exit(EXIT_SOME_FAILED)


def command_line(*words: object, **options: object) -> str:
    """A command line to be typed again, without options of None, False or the default."""
    line = ["clsweep", *map(str, words)]
    for name, given in options.items():
        values = given if isinstance(given, list) else [given]
        for value in values:
            if value not in (None, "", False) and (name, value) != ("address", "local"):
                line += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(line)
