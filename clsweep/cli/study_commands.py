"""The commands of study files and of plug-ins, and those that run trials."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from clsweep.cli.options import (
    FormatOption,
    Settings,
    StudyOptions,
    StudyPath,
    argument,
    option,
    require_exclusive,
    with_groups,
)
from clsweep.display.printing import (
    Format,
    json_text,
    print_next,
    print_note,
    print_table,
    print_tables,
    say,
)
from clsweep.errors import RequestError

if TYPE_CHECKING:
    from clsweep.study.design import Study


SLOW_S = 5.0  # of a contract, from which on its time is said


def _entries(incomplete: str) -> list[str]:
    """Completions of a shell for an entry of the catalog."""
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
    """Components and the hyperparameters they own, bounds, defaults, paper and equation."""
    from clsweep.cli.plan import CATALOG_SPARE, catalog_tables

    if plugins:
        from clsweep.catalog.plugins import activate, read_plugins

        activate(read_plugins(plugins, Path()))
    tables, left_out = catalog_tables(kind, for_eyes=not format.is_exact), dict[str, None]()
    if format is Format.json and len(tables) > 1:
        print_tables(tables)
        return
    for title, rows in tables.items():
        left_out |= dict.fromkeys(
            print_table(rows, format=format, title=title, spare=CATALOG_SPARE)
        )
    if left_out:
        print_note(f"\n(clsweep catalog NAME adds {', '.join(left_out)} of an entry)")


@with_groups
def plan(
    path: StudyPath,
    *,
    options: StudyOptions,
    trials: Annotated[bool, option("--trials", "list every planned trial")] = False,
    estimate: Annotated[
        bool, option("--estimate", "time a few steps: hours and memory of the study")
    ] = False,
    gpu: Annotated[
        str | None, option("--gpu NAME", "estimate for a GPU that is not here, as a10g")
    ] = None,
    price: Annotated[
        float | None, option("--price EUR", "an hour of this machine, or of the --gpu", min=0)
    ] = None,
    noise: Annotated[
        float | None,
        option("--noise SD", "of one seed's score: what contrasts will find", min=0),
    ] = None,
    pilot: Annotated[str | None, option("--pilot DIR", "results to take that noise from")] = None,
    format: FormatOption = Format.table,
) -> None:
    """The plan of a study: who owns what, configurations and seeds, skips. Nothing is started."""
    from clsweep.cli import plan as planned
    from clsweep.cli.gpu_memory import memory_notes

    contrasts = {"--noise": noise, "--pilot": pilot}
    for name, given in {"--estimate": estimate, "--price": price, "--gpu": gpu}.items():
        require_exclusive({"--trials": trials, name: given, **contrasts})
    for name, given in {"--price": price, **contrasts}.items():  # which no program's table has
        require_exclusive({f"--format {format}": format is not Format.table, name: given})
    study = options.of(path)
    if trials:
        for_eyes = not format.is_exact
        print_table(planned.plan_trial_rows(study, for_eyes=for_eyes), format=format)
        return
    if estimate or gpu is not None or price is not None:
        _print_estimate(study, gpu, price, format)
        if format is Format.table:
            print_next(options.command("run", path))
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
    for note in [*planned.plan_notes(study), *memory_notes(study), *missing]:
        print_note(note)
    print_next(options.command("plan", path, **planned.estimate_here(study)))


def _print_estimate(study: Study, gpu: str | None, price: float | None, format: Format) -> None:
    if gpu is not None:
        from clsweep.cli.gpu_estimate import print_gpu_estimate

        print_gpu_estimate(study, gpu, price=price, format=format)
        return
    from clsweep.cli.estimate import print_estimate

    print_estimate(study, price=price, format=format)


def noises_in(path: str) -> dict[str, tuple[float, float]]:
    """Of each objective the squares of the noise of one seed's score, and degrees of freedom."""
    from clsweep.cli.options import ResultsOptions

    noises = {s.objective: s.measured.noise for s in ResultsOptions().opened([path]).data.sweeps}
    if not any(noise.freedom for noise in noises.values()):
        raise RequestError(f"--pilot {path}: expected a configuration with two seeds, found none")
    return {
        name: (float(noise.squares.sum()), float(noise.freedoms.sum()))
        for name, noise in noises.items()
    }


def check(
    plugin: Annotated[str, argument("PLUGIN", "a file NAME.py, or a package")],
    settings: Settings = None,
) -> None:
    """Try a plug-in of yours: does each row do what every trial relies on? Trains small
    trials of each row.
    """
    from clsweep.cli.check import check_plugin
    from clsweep.cli.statistic_tables import progress

    say(f"Trying {plugin}: small trials of each row ...")
    broken, begin = 0, monotonic()
    with progress() as tell:
        for row, contract, failure in check_plugin(plugin, settings or (), tell):
            broken += bool(failure)
            took, begin = monotonic() - begin, monotonic()
            line = f"{'FAILED' if failure else 'ok':6}  {row}: {contract}"
            line += f" ({took:.0f} s)" * (took >= SLOW_S)
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
    """Print the effects that each contrast of the study would find, if it has any."""
    from clsweep.cli import plan as planned

    if rows := planned.contrast_rows(study, noises, noise):
        print_table(rows, title="\nContrasts: the effects that they find, and rule out")
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
