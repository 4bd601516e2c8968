"""The words of a command line, and the end of a command: its exit code, its mistakes."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from errno import ENOSPC
from typing import TYPE_CHECKING

import typer

from clsweep.display.printing import print_next, say
from clsweep.errors import RequestError, UserError

if TYPE_CHECKING:
    from clsweep.cluster.runner import RunSummary


EXIT_SOME_FAILED, EXIT_INVALID, EXIT_INTERRUPTED = 1, 2, 130

# What running, training and drawing need, and the light installation leaves out.
HEAVY_PACKAGES = (
    "filelock", "grpc", "optuna", "PIL", "ray", "safetensors", "tensorboardX", "torch",
    "torchvision",
)  # fmt: skip


def require_words(argv: Sequence[str]) -> None:
    """Refuse `--out ""`: no argument may be empty; a path would be the working folder."""
    for before, word in zip(["clsweep", *argv], argv, strict=False):
        if not word or (word.startswith("--") and word.endswith("=")):
            raise RequestError(f"expected a value after {(word or before)!r:.80}, given none")


def expand_user(word: str) -> str:
    """A word as a shell gives it that expands every `~`: most leave that of `--out=~/x`."""
    match = re.fullmatch(r"(--[a-z-]+=)?(~(/.*)?)", word, re.DOTALL)
    return (match[1] or "") + os.path.expanduser(match[2]) if match else word


def require_exclusive(options: Mapping[str, object]) -> None:
    """Refuse options of which one would be ignored beside another that is given."""
    given = [name for name, value in options.items() if value is not None and value is not False]
    if len(given) > 1:
        raise RequestError(
            f"{given[0]}: expected without {' and '.join(given[1:])}, given together"
        )


def mistake(error: UserError | OSError | MemoryError) -> str:
    """The text of an error that no command has worded, as of a working folder that is gone."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"expected more memory than there is: {str(error) or 'no more is given'}"
    if isinstance(error, FileNotFoundError) and error.filename is None:
        return "the working folder has been removed: expected to be called in one that is there"
    place = error.filename or ("clsweep" if error.errno != ENOSPC else tempfile.gettempdir())
    return f"{place!s:.200}: {error.strerror or error}"


def missing_extra(error: ModuleNotFoundError, argv: Sequence[str]) -> str:
    """One line for a command that needs more than is installed; empty for another package."""
    package = str(error.name).partition(".")[0]
    if package not in HEAVY_PACKAGES:
        return ""
    command = " ".join(["clsweep", *argv[1:2]])
    return f"{command}: needs {package}, which is not installed here: pip install clsweep"


def print_end(summary: RunSummary, again: str, following: str) -> None:
    """The number of trials of each kind, and what to type next."""
    stopped = f"{summary.stopped} stopped, " if summary.stopped else ""
    stopped += f"{summary.skipped} skipped, " if summary.skipped else ""
    say(f"\n{summary.finished} finished, {stopped}{summary.failed} failed, {summary.left} left")
    if summary.open:
        trials = "1 trial was" if len(summary.open) == 1 else f"{len(summary.open)} trials were"
        why = ", ".join(sorted(set(summary.open.values())))
        say(f"{trials} lost with their machine ({why}) and stay open; the same command runs them")
    if summary.budget and not summary.interrupted:
        say(f"The budget of {summary.budget} has no room for a further configuration.")
        say("With a larger search.budget the same command goes on.")
    elif summary.left or summary.interrupted:
        say(f"{'Interrupted. ' if summary.interrupted else ''}Resume with: {again}")
    say(f"Results: {summary.path}")
    print_next("" if summary.left and not summary.budget else following)


def exit_as(summary: RunSummary) -> None:
    if summary.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if summary.failed or summary.open:
        raise typer.Exit(EXIT_SOME_FAILED)
