"""The arguments and options that several commands take."""

from __future__ import annotations

import functools
import glob
import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_origin, get_type_hints

import typer

from clsweep.display.printing import Format, say
from clsweep.errors import RequestError
from clsweep.version import VERSION

EXIT_SOME_FAILED, EXIT_INVALID, EXIT_INTERRUPTED = 1, 2, 130

if TYPE_CHECKING:
    from clsweep.opened_results import Results
    from clsweep.study.design import Study


def option(names: str, help: str, **more: Any) -> Any:
    """An option as it is typed: `--objective -o COL` has two names and a placeholder."""
    words = names.split()
    metavar = None if words[-1].startswith("-") else words.pop()
    return typer.Option(*words, metavar=metavar, help=help, **more)


def argument(metavar: str, help: str, **more: Any) -> Any:
    """An argument, by its placeholder."""
    return typer.Argument(metavar=metavar, help=help, **more)


def print_version(is_given: bool) -> None:
    """Of `--version`: the version of clsweep, and nothing else."""
    if is_given:
        say(f"clsweep {VERSION}")
        raise typer.Exit


def _studies(incomplete: str) -> list[str]:
    """Completions of a shell for STUDY: the shipped ones, and files that begin so."""
    from clsweep.study.document import shipped_studies

    files = [str(path) for path in Path().glob(f"{glob.escape(incomplete)}*")]
    names = [f"{name}/" if Path(name).is_dir() else name for name in files]
    return [name for name in [*shipped_studies(), *names] if name.startswith(incomplete)]


StudyPath = Annotated[
    Path,
    argument("STUDY", "study file (YAML), or the name of a shipped one", autocompletion=_studies),
]
ResultsPath = Annotated[str, argument("DIR", "results folder, local or an object store's URI")]
ResultsPaths = Annotated[
    list[str], argument("DIR...", "results folders, or Parquet files of trials")
]
Settings = Annotated[list[str] | None, option("--set K=V", "change a key, as in base.epochs=10")]
Within = Annotated[
    float | None,
    option("--within", "how far from the best counts as good; 1 point by default", min=0),
]
FormatOption = Annotated[Format, option("--format", "how tables are printed")]
Trust = Annotated[bool, option("--trust", "execute the plug-ins that a results folder names")]


Failed = Literal["worst", "chance", "left-out"]  # what failed trials count as
ImagesFor = Literal["new", "fixed"]  # which images intervals are for


# Options that travel together: the fields that are annotated as options are asked for.


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """Options of commands that read a study file: which version of it is meant."""

    preset: Annotated[
        str | None, option("--preset -p", "preset of the study file; several as A,B")
    ] = None
    settings: Settings = None
    trust: Trust = False

    def of(self, path: Path, *, has_contrasts: bool = True) -> Study:
        """The study of a file."""
        from clsweep.study.resolve import load_study

        return load_study(
            path, preset=self.preset, settings=self.settings or (), trust=self.trust,
            has_contrasts=has_contrasts,
        )  # fmt: skip

    def command(self, name: str, path: Path, **further: object) -> str:
        """Another command of the same study."""
        chosen = {"preset": self.preset, "set": self.settings, "trust": self.trust}
        return command_line(name, path, **{**further, **chosen})


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of commands that run trials."""

    address: Annotated[str, option("--address", "local, auto, or the address of a Ray cluster")] = (
        "local"
    )
    retry_failed: Annotated[bool, option("--retry-failed", "run failed trials again")] = False
    max_concurrent: Annotated[int | None, option("--max-concurrent", "trials at once", min=1)] = (
        None
    )
    mixed_versions: Annotated[
        bool, option("--mixed-versions", "go on with trials of another version of clsweep, torch")
    ] = False


@dataclass(frozen=True, kw_only=True)
class ResultsOptions:
    """Options of commands that read trials."""

    metric: Annotated[
        str | None, option("--metric", "another column; the study's own by default")
    ] = None
    mode: Annotated[
        str | None, option("--mode", "max or min is best, where nothing else says so")
    ] = None
    params: Annotated[
        list[str] | None, option("--param COL", "hyperparameter of a Parquet file; several times")
    ] = None
    scales: list[str] | None = None
    failed: Failed = "worst"
    images: ImagesFor = "new"

    def opened(self, paths: Sequence[str]) -> Results:
        """The results, read so."""
        from clsweep.api import open_results

        axes: dict[str, str] = {}
        for option in self.scales or ():
            name, _, axes[name] = option.rpartition("=")
            if not name or not axes[name]:
                raise RequestError(f"--scale: expected COL=AXIS, as tau=log, given {option!r}")
        return open_results(*paths, **vars(self) | {"scales": axes or None})

    def command(self, name: str, paths: Sequence[str]) -> str:
        """Another command of the same trials, read in the same way."""
        lists = {"param": list(self.params or ()), "scale": list(self.scales or ())}
        failed = None if self.failed == "worst" else self.failed
        images = None if self.images == "new" else self.images
        chosen = {"metric": self.metric, "mode": self.mode, "images": images}
        return command_line(name, *paths, **chosen, **lists, failed=failed)


@dataclass(frozen=True, kw_only=True)
class ScoredImagesOptions(ResultsOptions):
    """The same with axes and failed trials, of commands whose intervals are for the scored images
    whatever is asked.
    """

    scales: Annotated[
        list[str] | None,
        option(
            "--scale COL=AXIS",
            "log, linear or category, for a hyperparameter of a Parquet file; several times",
        ),
    ] = None
    failed: Annotated[
        Failed, option("--failed", "what failed trials count as: the worst score, a guess, nothing")
    ] = "worst"


@dataclass(frozen=True, kw_only=True)
class FullResultsOptions(ScoredImagesOptions):
    """The same where every option of it may be given."""

    images: Annotated[
        ImagesFor, option("--images", "intervals for new images, or for the ones that were scored")
    ] = "new"


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Options of a table: its format, every column, what its columns are.

    command: what has these options, where that is another one than was typed.
    """

    wide: Annotated[bool, option("--wide", "every column, however wide the screen")] = False
    explain: Annotated[bool, option("--explain", "say what each column is")] = False
    format: FormatOption = Format.table
    command: str = ""


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A command for Typer, which knows no groups: each is given as its options."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, list[inspect.Parameter]] = {}
    parameters: list[inspect.Parameter] = []
    for each in inspect.signature(command).parameters.values():
        hint = hints[each.name]
        if is_dataclass(hint):
            own = get_type_hints(hint, include_extras=True)
            groups[each.name] = [
                each.replace(name=field.name, default=field.default, annotation=own[field.name])
                for field in fields(hint)
                if get_origin(own[field.name]) is Annotated
            ]
            parameters += groups[each.name]
        else:
            parameters.append(each.replace(annotation=hint, kind=each.KEYWORD_ONLY))

    @functools.wraps(command)
    def called(*words: Any, **given: Any) -> None:
        for name, options in groups.items():
            names = {each.name for each in options} & given.keys()
            given[name] = hints[name](**{each: given.pop(each) for each in names})
        command(*words, **given)

    called.__annotations__ = {each.name: each.annotation for each in parameters}
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called


def command_line(*words: object, **options: object) -> str:
    """A command line to be typed again, without options of None, False or the default."""
    line = ["clsweep", *map(str, words)]
    for name, given in options.items():
        values = given if isinstance(given, list) else [given]
        for value in values:
            if value not in (None, "", False) and (name, value) != ("address", "local"):
                line += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(line)


def require_exclusive(options: Mapping[str, object]) -> None:
    """Refuse options of which one would be ignored beside another that is given."""
    given = [name for name, value in options.items() if value is not None and value is not False]
    if len(given) > 1:
        raise RequestError(
            f"{given[0]}: expected without {' and '.join(given[1:])}, given together"
        )
