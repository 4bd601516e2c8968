"""The command line: each command parses, calls one function, prints."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from clsweep.cli import run
from clsweep.cli import statistic_commands as on_results
from clsweep.cli import study_commands as on_study
from clsweep.cli.endings import (
    EXIT_INTERRUPTED,
    EXIT_INVALID,
    expand_user,
    missing_extra,
    mistake,
    require_words,
)
from clsweep.cli.import_sweep import import_
from clsweep.cli.new import new
from clsweep.cli.options import option, print_version
from clsweep.display.printing import print_note, robust_streams, say
from clsweep.errors import RequestError, UserError

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
    *(on_results.picks, on_results.compare, on_results.contrast),
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
