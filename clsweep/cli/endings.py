"""The end of commands: what they print, the exit code, what to type next; and their streams."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from errno import ENOSPC
from typing import TYPE_CHECKING, Any

import typer

from clsweep.display.printing import print_note
from clsweep.display.text import say
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


def print_hints(
    left_out: Sequence[str], meanings: Sequence[str], *, explain: bool, command: str = ""
) -> None:
    """Under a table: what its columns are, and which options say more. `command` has these options,
    where that is another one than was typed.
    """
    if explain:
        say()
        for line in meanings:
            print_note(line)
    more = [f"--wide adds {', '.join(left_out)}"] if left_out else []
    more += [] if explain else ["--explain says what the columns are"]
    if more:
        print_note(f"({' '.join([command, '; '.join(more)]).strip()})")


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


# The standard streams of a command: who reads them may leave, a disk may be full, an encoding may
# lack a letter, and they may not be there at all.


class _Stream(io.FileIO):
    """A standard stream that fails once: from then on it takes all and shows nothing."""

    failure = ""

    def __init__(self, descriptor: int, *, patient: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._patient = patient

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self.fileno())
            if not isinstance(error, BrokenPipeError):
                self.failure = f"standard output cannot be written: {error.strerror}"
            if not self._patient:  # else `clsweep trials DIR | head`
                raise RequestError(self.failure) if self.failure else SystemExit(0) from None
        return super().write(data)  # type: ignore[arg-type]


@contextlib.contextmanager
def robust_streams(*, patient: bool) -> Iterator[None]:
    """Standard streams that end no command with a traceback; others, as a notebook's, stay. Where
    the reader has left, it ends with 0; `patient`: it goes on, as no trial is lost with a pager.

    Raises:
        RequestError: the output could not be written.
    """
    for descriptor in range(3):  # else the next file that is opened would be standard output
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    out = None
    for descriptor, name in ((2, "stderr"), (1, "stdout")):
        if (old := getattr(sys, name)) is getattr(sys, f"__{name}__"):
            out = _Stream(descriptor, patient=patient or name == "stderr")
            how: dict[str, Any] = {
                "encoding": "utf-8",
                "line_buffering": True,
                "write_through": False,
            }
            how = {key: getattr(old, key, value) for key, value in how.items()}
            setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(out), errors="replace", **how))
    try:
        yield
    finally:
        sys.stdout.flush()
        if out and out.failure:
            raise RequestError(out.failure)
