"""The commands of study files and of plug-ins, and those that run trials."""

from __future__ import annotations

import contextlib
import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from clsweep.catalog import COMPONENT, DATASET, DIAGNOSTIC, METRIC, PARAM
from clsweep.cli.endings import (
    EXIT_INTERRUPTED,
    command_line,
    exit_as,
    print_end,
    print_failures,
    print_next,
    require_exclusive,
)
from clsweep.cli.options import (
    FormatOption,
    OutputOptions,
    ResultsOptions,
    ResultsPath,
    RunOptions,
    Settings,
    StudyOptions,
    StudyPath,
    Trust,
    argument,
    option,
    with_groups,
)
from clsweep.display.printing import Format, print_note, print_table
from clsweep.display.text import json_text, say
from clsweep.errors import RequestError

if TYPE_CHECKING:
    from clsweep.api import Results
    from clsweep.study.design import Study


def _entries(incomplete: str) -> list[str]:
    """What a shell offers for an entry of the catalog."""
    from clsweep.cli.plan import catalog_tables, entry_names

    return [name for name in entry_names(catalog_tables(None)) if name.startswith(incomplete)]


def catalog(
    kind: Annotated[
        str | None,
        argument(
            "KIND",
            "losses, params, ..., or an entry as tau; all by default",
            autocompletion=_entries,
        ),
    ] = None,
    plugins: Annotated[list[str] | None, option("--plugin FILE", "with a plug-in's rows")] = None,
    format: FormatOption = Format.table,
) -> None:
    """What exists: components and the hyperparameters they own, bounds, defaults, paper and
    equation.
    """
    from clsweep.cli.plan import CATALOG_SPARE, catalog_tables

    if plugins:
        from clsweep.catalog.plugins import activate, read_plugins

        activate(read_plugins(plugins, Path()))
    for_eyes = format in (Format.table, Format.md)
    left_out: dict[str, None] = {}
    for title, rows in catalog_tables(kind, for_eyes=for_eyes).items():
        left_out |= dict.fromkeys(
            print_table(rows, format=format, title=title, spare=CATALOG_SPARE)
        )
    if left_out:
        print_note(f"\n(clsweep catalog NAME adds {', '.join(left_out)} of an entry)")


@with_groups
def plan(
    path: StudyPath,
    *,
    version: StudyOptions,
    trials: Annotated[bool, option("--trials", "list every planned trial")] = False,
    estimate: Annotated[
        bool, option("--estimate", "time a few steps: hours and memory of the study")
    ] = False,
    price: Annotated[
        float | None, option("--price EUR", "an hour of this machine; with money", min=0)
    ] = None,
    noise: Annotated[
        float | None,
        option("--noise SD", "of one seed's score: what contrasts will find", min=0),
    ] = None,
    pilot: Annotated[str | None, option("--pilot DIR", "results to take that noise from")] = None,
    format: FormatOption = Format.table,
) -> None:
    """What a study would run: who owns what, configurations and seeds, skips. Nothing is
    started.
    """
    from clsweep.cli import plan as planned

    contrasts = {"--noise": noise, "--pilot": pilot}
    require_exclusive({"--trials": trials, "--estimate": estimate, **contrasts})
    require_exclusive({"--trials": trials, "--price": price, **contrasts})
    for name, given in {"--price": price, **contrasts}.items():  # which no program's table has
        require_exclusive({f"--format {format}": format is not Format.table, name: given})
    study = version.of(path)
    if trials:
        for_eyes = format in (Format.table, Format.md)
        print_table(planned.plan_trial_rows(study, for_eyes=for_eyes), format=format)
        return
    if estimate or price is not None:
        from clsweep.cli.estimate import print_estimate

        print_estimate(study, price=price, format=format)
        if format is Format.table:
            print_next(version.command("run", path))
        return
    missing = planned.missing_notes(study)
    if format is Format.table:
        for line in planned.plan_data(study):
            print_note(line)
        say()
    title = "Hyperparameters (* swept, - not owned)"
    if format is not Format.table or not study.cells:
        print_table(planned.plan_matrix(study), format=format, title=title)
    if format is not Format.table:
        return
    if study.cells:
        say(title)
        _print_cells(study)
    counts = planned.plan_counts(study)
    print_table(counts, title="\nTrials")
    say(f"\n{sum(row['trials'] for row in counts)} trials in all")
    _print_contrasts(study, noises_in(pilot) if pilot else {}, noise)
    for note in [*planned.plan_notes(study), *missing]:
        print_note(note)
    print_next(version.command("plan", path, estimate=True))


def noises_in(path: str) -> dict[str, tuple[float, float]]:
    """Of each objective the squares of the noise of one seed's score, and degrees of freedom."""
    from clsweep.cli.options import ResultsOptions

    found = {s.objective: s.measured.noise for s in ResultsOptions().opened([path]).material.sweeps}
    if not any(noise.freedom for noise in found.values()):
        raise RequestError(f"--pilot {path}: expected a configuration with two seeds, found none")
    return {name: (noise.total, noise.freedom) for name, noise in found.items()}


def _noted(study: Study) -> Study:
    """The same, after what its file does not say of it: images that are not read."""
    for note in study.notes:
        print_note(f"note: {note}")
    return study


@with_groups
def try_(
    path: StudyPath,
    objective: Annotated[str, option("--objective -o", "objective of the study")],
    *,
    version: StudyOptions,
    config: Annotated[int, option("--config", "number of the planned configuration", min=0)] = 0,
    seed: Annotated[
        int | None, option("--seed", "the study's first seed by default", min=0)
    ] = None,
    device: Annotated[
        str | None, option("--device", "cpu, cuda, cuda:1; as the study asks")
    ] = None,
) -> None:
    """One trial in this process, without Ray: a row per epoch."""
    from clsweep.cli.check import try_trial

    try_trial(_noted(version.of(path)), objective, config=config, seed=seed, device=device)


@with_groups
def run(
    path: StudyPath,
    out: Annotated[str | None, option("--out", "results folder; results/NAME by default")] = None,
    *,
    version: StudyOptions,
    resume: Annotated[
        bool, option("--resume/--no-resume", "continue the results in the folder")
    ] = True,
    limit: Annotated[int | None, option("--limit", "run at most so many trials now", min=1)] = None,
    log: Annotated[
        list[str] | None, option("--log LOGGER", "also to tensorboard, wandb or mlflow")
    ] = None,
    session: RunOptions,
) -> None:
    """Run a study, or what is left of it; ends with the robustness table and the results path."""
    from clsweep.cli.plan import plan_counts

    study = _noted(version.of(path))
    num = sum(row["trials"] for row in plan_counts(study))
    say(f"{study.name}: {num:,} trials. Loading Ray ...")
    from clsweep.cluster.runner import Request, run_study
    from clsweep.study.design import default_out

    again = version.command("run", path, out=out, log=log, **asdict(session))
    asked = Request(resume=resume, limit=limit, log=tuple(log or ()), **asdict(session))
    with _resumable(again):
        summary = run_study(study, out or default_out(study), asked)
    if not summary.ran and not summary.left:
        say("Nothing is left to run.")
    from clsweep.api import open_results  # which loads what no trial waits for

    results = open_results(summary.path)
    following = _print_answer(study, results, summary.path) if summary.finished else ""
    print_failures(results)
    print_end(summary, again, following)
    exit_as(summary)


@with_groups
def confirm(
    path: ResultsPath,
    top: Annotated[
        int | None, option("--top", "so many configurations of each objective", min=1)
    ] = None,
    seeds: Annotated[list[str] | None, option("--seeds 10,11,12", "fresh seeds")] = None,
    settings: Annotated[list[str] | None, option("--set K=V", "as resources.workers=2")] = None,
    *,
    session: RunOptions,
    trust: Trust = False,
    style: OutputOptions,
) -> None:
    """Run the best configurations of a search again, on fresh seeds and the test set: what are they
    worth?
    """
    for_eyes = style.format is Format.table
    say(f"The best of {path}, once more. Loading Ray ...", file=None if for_eyes else sys.stderr)
    from clsweep.cluster.confirm import confirm_study
    from clsweep.cluster.runner import Request

    given = [seed.strip() for text in seeds or () for seed in text.split(",")]
    kept = {"top": top, "seeds": ",".join(given), "set": settings, "trust": trust}
    again = command_line("confirm", path, **kept, **asdict(session))
    quiet = contextlib.nullcontext() if for_eyes else contextlib.redirect_stdout(sys.stderr)
    with _resumable(again, file=sys.stderr), quiet:
        summary = confirm_study(
            path,
            Request(**asdict(session)),
            top=top,
            seeds=[int(s) if s.isdecimal() and len(s) < 20 else s for s in given] or None,
            settings=settings or (),
            trust=trust,
        )
    if summary.finished or summary.failed:
        from clsweep.cli.statistics import print_confirmation

        print_confirmation(ResultsOptions().opened([path]), top=top, style=style)
    if for_eyes:
        print_failures(ResultsOptions().opened([summary.path]))
        print_end(summary, again, command_line("report", path))
    exit_as(summary)


def check(
    plugin: Annotated[str, argument("PLUGIN", "a file NAME.py, or a package")],
    settings: Settings = None,
) -> None:
    """Try a plug-in of yours: does each row do what every trial relies on? Takes some seconds a
    row.
    """
    from clsweep.cli.check import check_plugin

    say(f"Trying {plugin}: some seconds a row ...")
    broken = 0
    for row, contract, failure in check_plugin(plugin, settings or ()):
        broken += bool(failure)
        line = f"{'FAILED' if failure else 'ok':6}  {row}: {contract}"
        say(f"{line}: {failure}" if failure else line)
    if broken:
        say(f"\n{plugin}: {broken} of these are not so")
        raise typer.Exit(1)
    say(f"\n{plugin}: all of these are so")


def schema(
    out: Annotated[Path | None, option("--out FILE", "write it to a file")] = None,
    plugins: Annotated[
        list[str] | None, option("--plugin FILE", "with the rows of this plug-in, or several")
    ] = None,
) -> None:
    """The JSON Schema of study files: an editor completes names, shows what they mean and marks
    mistakes.
    """
    import json

    from clsweep.catalog.plugins import activate, read_plugins
    from clsweep.study.document import EDITOR
    from clsweep.study.json_schema import study_schema

    activate(read_plugins(plugins or (), Path()))
    text = json.dumps(study_schema(closed=bool(plugins)), ensure_ascii=False, separators=(",", ":"))
    if out is None:
        say(json_text(text))
        return
    try:
        out.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise RequestError(f"--out {out}: cannot be written: {error.strerror}") from None
    say(f"{out}: put this line at the head of a study beside it:")
    say(f"{EDITOR} $schema={out.name}")


def _print_contrasts(
    study: Study, noises: Mapping[str, tuple[float, float]], noise: float | None
) -> None:
    """What each contrast of the study would find, if it has any."""
    from clsweep.cli import plan as planned

    if asked := planned.contrast_rows(study, noises, noise):
        print_table(asked, title="\nContrasts: the effects that they find, and rule out")
        print_note(
            planned.unforeseen(study)
            or "(in four of five such studies, corrected for all of them. The noise of the images "
            "comes on top. SD: of one seed's score, as --noise or --pilot says)"
        )


def _print_cells(study: Study) -> None:
    """The matrix of the first cell of a study with factors, and what differs in the others."""
    from clsweep.cli.plan import cell_matrices

    known: list[dict[str, object]] = []
    for cell, rows in cell_matrices(study):
        say(f"\n{cell.name}{', where it differs from the first cell' if known else ''}")
        print_table([row for row in rows if row not in known])
        known = known or rows


def _print_answer(study: Study, results: Results, path: str) -> str:
    """What a study has come to; returns the command to type next, or ""."""
    from clsweep.cli.statistics import print_answer, print_statistic

    following = print_answer(results)
    costly = ["pareto"] if study.sections.search.cost == "seconds" else []
    for name in ("robustness", *costly):
        style = OutputOptions(command=command_line(name, path))
        say()
        print_statistic(results, name, style=style, is_told=False)
    return following


@contextlib.contextmanager
def _resumable(again: str, file: TextIO | None = None) -> Iterator[None]:
    """Say how to go on, should the user interrupt what runs."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"\nInterrupted. Resume with: {again}", file=file)
        raise typer.Exit(EXIT_INTERRUPTED) from None


# `clsweep new`: files to start from, one function for each kind.

new = typer.Typer(help="Write files to start from.", no_args_is_help=True)


# What can start the nodes of a cluster; on AWS Ray itself does, with `cluster.yaml`.
Scheduler = Literal["slurm", "kuberay", "skypilot"]
FILES: dict[Scheduler, str] = {
    "slurm": "slurm.sbatch",
    "kuberay": "kuberay.yaml",
    "skypilot": "skypilot.yaml",
}
KINDS = (
    "loss", "regularizer", "framework", "views", "augmentation", "recipe", "encoder", "optimizer",
    "schedule", "probe", "dataset", "decoder", "metric", "diagnostic",
)  # fmt: skip
SKELETONS = Path(__file__).parent / "skeletons"
STUDY = """\
name: example
plugins: [example.py]
dataset: {dataset}
seeds: [0, 1]
{more}base: {{{encoder}width: 16, epochs: 5, batch_size: 256}}
objectives:
  plain: {{framework: simclr, loss: dcl}}
{objective}search: {{method: grid}}
"""
PLAIN = {"dataset": "{name: digits}", "encoder": "encoder: conv4, ", "more": ""}
OBJECTIVES = {  # the one with a row of each kind, beside the plain one
    "loss": "framework: simclr, loss: example, space: {example_scale: {grid: [0.5, 1, 2]}}",
    "regularizer": "framework: simclr, loss: dcl, regularizer: example",
    "framework": "framework: example, loss: dcl",
    "views": "framework: simclr, loss: dcl, views: example",
    "augmentation": "framework: simclr, loss: dcl, base: {augmentation: example}, "
    "space: {example_width: {grid: [0.125, 0.25, 0.5]}}",
    "recipe": "framework: simclr, loss: dcl, base: {recipe: example}",
    "optimizer": "framework: simclr, loss: dcl, base: {optimizer: example}",
    "schedule": "framework: simclr, loss: dcl, base: {lr_schedule: example}, "
    "space: {example_power: {grid: [1, 2, 4]}}",
    "probe": "framework: simclr, loss: dcl, base: {linear_probe: example}",
}
WITH_ROW = {  # what else a study says
    "encoder": {"encoder": "", "more": "factors: {encoder: [conv4, example]}\n"},
    "dataset": {"dataset": "{name: example}"},
    "decoder": {"dataset": "{name: example}"},
    "metric": {"more": "metric: {name: example, mode: max}\n"},
}
TEMPLATES = Path(__file__).parent / "clusters"


@new.command()
def cluster(
    scheduler: Annotated[Scheduler, typer.Argument(help="what starts the nodes")],
    out: Annotated[Path | None, option("--out FILE", "here, under its own name")] = None,
) -> None:
    """A file that runs studies on the nodes of SLURM, KubeRay or SkyPilot."""
    target = out or Path(FILES[scheduler])
    _write(target, (TEMPLATES / FILES[scheduler]).read_text(encoding="utf-8"))
    say(f"{target}: its head says how to use it, and what is yours to fill in")


def _write(target: Path, text: str) -> None:
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise RequestError(f"{target}: exists already; name another file with --out") from None
    except OSError as error:
        raise RequestError(f"{target}: cannot be written: {error.strerror}") from None


def _command(kind: str) -> None:
    noun = "pairing of views" if kind == "views" else kind
    article = "An" if noun[0] in "aeiou" else "A"

    def write(
        name: Annotated[str, argument("NAME", "what it shall be called")],
        out: Annotated[Path, option("--out FOLDER", "here, unless another is named")] = Path(),
    ) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
            raise RequestError(f"{name}: expected small letters, digits and '_', a letter first")
        components = (component for table in COMPONENT.values() for component in table)
        if name in {*PARAM, *METRIC, *DIAGNOSTIC, *DATASET, *components}:
            raise RequestError(f"{name}: the catalog has this name already; give another one")
        head = f'"""{article} {noun} of my own: `clsweep check example.py` tries it."""\n\n'
        text = head + (SKELETONS / f"{kind}.py.in").read_text(encoding="utf-8")
        own = f"  example: {{{OBJECTIVES[kind]}}}\n" if kind in OBJECTIVES else ""
        study = STUDY.format(**PLAIN | WITH_ROW.get(kind, {}), objective=own)
        camel, path = "".join(word.capitalize() for word in name.split("_")), out / name
        files = {out / f"{name}.py": text, out / f"{name}.yaml": study}
        if existing := [file for file in files if file.exists()]:
            raise RequestError(f"{existing[0]}: exists already; give another name or --out")
        for file, content in files.items():
            _write(file, content.replace("Example", camel).replace("example", name))
        say(f"{path}.py, {path}.yaml: written. Then:")
        for line in (f"check {path}.py", f"plan {path}.yaml", f"run {path}.yaml"):
            say(f"  clsweep {line}")

    new.command(kind, help=f"{article} {noun} of yours: a plug-in that works, and its study.")(
        write
    )


for _kind in KINDS:
    _command(_kind)
