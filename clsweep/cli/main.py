"""The command line: each command parses, calls one function, prints."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Sequence
from errno import ENOSPC
from typing import Annotated

import typer

from clsweep.cli import run
from clsweep.cli import statistic_commands as on_results
from clsweep.cli import study_commands as on_study
from clsweep.cli.import_sweep import import_
from clsweep.cli.new import new
from clsweep.cli.options import EXIT_INTERRUPTED, EXIT_INVALID, option, print_version
from clsweep.display.printing import print_note, robust_streams, say
from clsweep.errors import RequestError, UserError

# What running, training and drawing need, and the light installation leaves out.
HEAVY_PACKAGES = (
    "filelock", "grpc", "optuna", "PIL", "ray", "safetensors", "tensorboardX", "torch",
    "torchvision",
)  # fmt: skip

app = typer.Typer(
    name="clsweep",
    help="Hyperparameter studies for contrastive and self-supervised learning, distributed on Ray.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def _every_command(
    _version: Annotated[
        bool, option("--version", "what is installed", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    pass


COMMANDS = (  # in the order of the help
    *(on_study.catalog, on_study.plan, run.try_, run.run),
    *(on_results.status, on_results.trials),
    *(on_results.robustness, on_results.sensitivity, on_results.importance),
    *(on_results.fidelity, on_results.ablation, on_results.optimum),
    *(on_results.picks, on_results.compare, on_results.diff, on_results.contrast),
    *(on_results.pareto, on_results.recommend, on_results.reproduce, on_results.report),
    *(on_study.check, import_, on_study.schema, run.confirm, on_results.export),
)
for _command in COMMANDS:
    app.command(_command.__name__.rstrip("_"))(_command)
app.add_typer(new, name="new")


def run_app() -> None:
    """Entry point: a user's mistake is a message and exit code 2, never a traceback."""
    if os.path.expanduser("~") == "~":  # a user without a name, as in a container
        os.environ["HOME"] = "/"
    for size in ("COLUMNS", "LINES"):
        if not os.environ.get(size, "1").strip("0"):  # 0: of a terminal that does not say
            del os.environ[size]
    try:
        with robust_streams(patient=sys.argv[1:2] in (["run"], ["confirm"])):
            require_words(sys.argv[1:])
            if sys.flags.optimize > 1:
                raise RequestError(
                    "PYTHONOPTIMIZE, or -O: expected at most 1, as Ray, Altair and the help of "
                    f"commands read docstrings; given {sys.flags.optimize}"
                )
            app(args=[*map(expand_user, sys.argv[1:])], prog_name="clsweep")
    except (UserError, OSError, MemoryError) as error:
        (print_note if sys.stderr.isatty() else say)(mistake(error), file=sys.stderr)
        sys.exit(EXIT_INVALID)
    except ModuleNotFoundError as error:
        if not (message := missing_extra(error, sys.argv)):
            raise
        say(message, file=sys.stderr)
        sys.exit(EXIT_INVALID)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def require_words(argv: Sequence[str]) -> None:
    """Refuse `--out ""`: no argument may be empty; a path would be the working folder."""
    for before, word in zip(["clsweep", *argv], argv, strict=False):
        if not word or (word.startswith("--") and word.endswith("=")):
            raise RequestError(f"expected a value after {(word or before)!r:.80}, given none")


def expand_user(word: str) -> str:
    """A word as a shell gives it that expands every `~`: most leave that of `--out=~/x`."""
    match = re.fullmatch(r"(--[a-z-]+=)?(~(/.*)?)", word, re.DOTALL)
    return (match[1] or "") + os.path.expanduser(match[2]) if match else word


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
