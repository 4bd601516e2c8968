"""The arguments and options that several commands take."""

from __future__ import annotations

import functools
import glob
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_origin, get_type_hints

import typer

from clsweep.cli.endings import command_line
from clsweep.display.printing import Format
from clsweep.display.text import say
from clsweep.errors import RequestError
from clsweep.version import VERSION

if TYPE_CHECKING:
    from clsweep.api import Results

Asked = TypeVar("Asked", str, list[str])

WITH_WORDS = ("confirm", "report")  # of their own, before they read


def print_version(asked: bool) -> None:
    """Of `--version`: the version of clsweep, and nothing else."""
    if asked:
        say(f"clsweep {VERSION}")
        raise typer.Exit


def say_reading(context: typer.Context, asked: Asked) -> Asked:
    """Say at once, to who looks on, what is being read: Parquet and statistics take seconds to
    load. A pipe and a file get nothing; a command that has words of its own says those.
    """
    silent = context.resilient_parsing or context.info_name in WITH_WORDS
    if asked and not silent and sys.stderr.isatty():
        first = asked if isinstance(asked, str) else asked[0]
        say(f"Reading {first} ...", file=sys.stderr)
    return asked


def scales_of(options: Sequence[str] | None) -> dict[str, str] | None:
    """The axes that `--scale tau=log` names; None where nothing is said."""
    if not options:
        return None
    pairs = [option.rpartition("=") for option in options]
    for option, (name, _, scale) in zip(options, pairs, strict=True):
        if not name or not scale:
            raise RequestError(f"--scale: expected COL=AXIS, as tau=log, given {option!r}")
    return {name: scale for name, _, scale in pairs}


def _studies(incomplete: str) -> list[str]:
    """What a shell offers for STUDY: the shipped ones, and files that begin so."""
    from clsweep.study.shipped import shipped_studies

    files = [str(path) for path in Path().glob(f"{glob.escape(incomplete)}*")]
    kept = [f"{name}/" if Path(name).is_dir() else name for name in files]
    return [name for name in [*shipped_studies(), *kept] if name.startswith(incomplete)]


def _entries(incomplete: str) -> list[str]:
    """What a shell offers for an entry of the catalog."""
    from clsweep.cli.plan import catalog_tables, entry_names

    return [name for name in entry_names(catalog_tables(None)) if name.startswith(incomplete)]


StudyPath = Annotated[
    Path,
    typer.Argument(
        metavar="STUDY",
        help="study file (YAML), or the name of a shipped one",
        autocompletion=_studies,
    ),
]
CatalogName = Annotated[
    str | None,
    typer.Argument(
        metavar="KIND",
        help="losses, params, ..., or an entry as tau; all by default",
        autocompletion=_entries,
    ),
]
ResultsPath = Annotated[
    str,
    typer.Argument(
        metavar="DIR",
        help="results folder, local or an object store's URI",
        callback=say_reading,
    ),
]
Preset = Annotated[str | None, typer.Option("--preset", "-p", help="preset of the study file")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="K=V", help="change a key, as in base.epochs=10"),
]
ResultsPaths = Annotated[
    list[str],
    typer.Argument(
        metavar="DIR...",
        help="results folders, or one Parquet file of trials",
        callback=say_reading,
    ),
]
Within = Annotated[
    float | None,
    typer.Option(
        "--within", min=0, help="how far from the best counts as good; 1 point by default"
    ),
]
MetricOption = Annotated[
    str | None, typer.Option("--metric", help="another column; the study's own by default")
]
ModeOption = Annotated[
    str | None, typer.Option("--mode", help="max or min is best, where nothing else says so")
]
ParamsOption = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="COL", help="hyperparameter of a Parquet file; several times"),
]
ScalesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--scale",
        metavar="COL=AXIS",
        help="log, linear or category, for a hyperparameter of a Parquet file; several times",
    ),
]


class Failed(StrEnum):
    """What failed trials count as."""

    worst = "worst"
    chance = "chance"
    left_out = "left-out"


FailedOption = Annotated[
    Failed,
    typer.Option("--failed", help="what failed trials count as: the worst score, a guess, nothing"),
]
WideOption = Annotated[bool, typer.Option("--wide", help="every column, however wide the screen")]
ExplainOption = Annotated[bool, typer.Option("--explain", help="say what each column is")]
FormatOption = Annotated[Format, typer.Option("--format", help="how tables are printed")]


Address = Annotated[
    str, typer.Option("--address", help="local, auto, or the address of a Ray cluster")
]
Trust = Annotated[
    bool, typer.Option("--trust", help="execute the plug-ins that a results folder names")
]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="run failed trials again")]
MixedVersions = Annotated[
    bool,
    typer.Option("--mixed-versions", help="go on with trials of another version of clsweep, torch"),
]
MaxConcurrent = Annotated[
    int | None, typer.Option("--max-concurrent", min=1, help="trials at once")
]


class Statistic(StrEnum):
    """What `clsweep compare` compares."""

    mean = "mean"
    std = "std"
    within = "within"


# Options that travel together: the fields that are annotated as options are asked for.


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How trials are read."""

    metric: MetricOption = None
    mode: ModeOption = None
    params: ParamsOption = None
    scales: list[str] | None = None
    failed: Failed = Failed.worst

    def opened(self, paths: Sequence[str]) -> Results:
        """The results, read so."""
        from clsweep.api import open_results

        return open_results(
            *paths,
            metric=self.metric,
            mode=self.mode,
            params=self.params,
            scales=scales_of(self.scales),
            failed=self.failed.value,
        )

    def command(self, name: str, paths: Sequence[str]) -> str:
        """Another command of the same trials, read in the same way."""
        lists = {"param": list(self.params or ()), "scale": list(self.scales or ())}
        failed = None if self.failed is Failed.worst else self.failed.value
        chosen = {"metric": self.metric, "mode": self.mode}
        return command_line(name, *paths, **chosen, **lists, failed=failed)


@dataclass(frozen=True, kw_only=True)
class FullReading(Reading):
    """The same where every option of it may be given."""

    scales: ScalesOption = None
    failed: FailedOption = Failed.worst


@dataclass(frozen=True, kw_only=True)
class Style:
    """How a table is asked for: in which format, with every column, with what its columns are.

    command: what has these options, where that is another one than was typed.
    """

    wide: WideOption = False
    explain: ExplainOption = False
    format: FormatOption = Format.table
    command: str = ""


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A command for Typer, which knows no groups: each is given as its options."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, list[inspect.Parameter]] = {}
    asked: list[inspect.Parameter] = []
    for each in inspect.signature(command).parameters.values():
        hint = hints[each.name]
        if is_dataclass(hint):
            groups[each.name] = _options_of(hint)
            asked += groups[each.name]
        else:
            asked.append(each.replace(annotation=hint, kind=each.KEYWORD_ONLY))

    @functools.wraps(command)
    def called(**given: Any) -> None:
        for name, options in groups.items():
            given[name] = hints[name](**{each.name: given.pop(each.name) for each in options})
        command(**given)

    called.__annotations__ = {each.name: each.annotation for each in asked}
    called.__signature__ = inspect.Signature(asked)  # type: ignore[attr-defined]
    return called


def _options_of(group: Any) -> list[inspect.Parameter]:
    hints, kind = get_type_hints(group, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(field.name, kind, default=field.default, annotation=hints[field.name])
        for field in fields(group)
        if get_origin(hints[field.name]) is Annotated
    ]
