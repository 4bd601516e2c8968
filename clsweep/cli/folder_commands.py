"""The commands that show a results folder as it stands, and export what it keeps."""

from __future__ import annotations

from typing import Annotated

from rich.console import Console

from clsweep.cli.endings import print_failures
from clsweep.cli.options import (
    FormatOption,
    Reading,
    ResultsPath,
    Trust,
    WideOption,
    argument,
    option,
    say_reading,
)
from clsweep.cli.streams import paged
from clsweep.display.printing import Format, print_note, print_table
from clsweep.display.text import say


def status(
    path: ResultsPath,
    follow: Annotated[
        bool, option("--follow", "repeat every two seconds, until the run ends")
    ] = False,
    format: FormatOption = Format.table,
) -> None:
    """How far a study is: per objective finished, running, failed and best; failures grouped by
    message.
    """
    import time

    from clsweep.cli import status as now
    from clsweep.findings.notes import reference_notes
    from clsweep.results.ranking import spare_of

    while True:
        goes_on = follow and now.is_any_running([path])
        results = Reading().opened([path])
        rows = now.split_marked(now.status_rows(results), results, format)
        if follow and format is Format.table:
            Console().clear()
        print_table(rows, format=format, spare=spare_of(rows))
        if format is Format.table:
            if running := now.running_rows(results):
                say()
                print_table(running, digits=3)
            print_failures(results)
            for note in [
                *now.study_notes(results),
                *now.best_notes(rows),
                *reference_notes(results.references, metric=results.metric),
                *now.best_when_tuned(results, rows),
                *now.confirm_headline(results),
                now.status_headline(results, rows),
            ]:
                print_note(note)
        if not goes_on:
            return
        time.sleep(2)


def trials(
    path: ResultsPath,
    where: Annotated[str | None, option("--where EXPR", "a condition: tau < 0.1")] = None,
    sort: Annotated[str | None, option("--sort COL", "-COL: largest first")] = None,
    top: Annotated[int | None, option("--top", "only the first N rows", min=1)] = None,
    columns: Annotated[str | None, option("--columns A,B", "these columns alone")] = None,
    wide: WideOption = False,
    format: FormatOption = Format.table,
) -> None:
    """Trial rows; csv and json have every column."""
    from clsweep.cli.status import study_notes, trial_rows, trials_spare
    from clsweep.findings.notes import reference_notes

    every_column, results = format in (Format.csv, Format.json), Reading().opened([path])
    asked = [name.strip() for name in columns.split(",")] if columns else None
    rows, names = trial_rows(results, where, sort, top, columns=asked, every_column=every_column)
    spare = () if asked else trials_spare(results)
    with paged():
        left_out = print_table(rows, names, format=format, spare=spare, wide=wide)
        if format is Format.table:
            references = reference_notes(results.references, metric=results.metric)
            for note in [*study_notes(results), *references]:
                print_note(f"- {note}")
        if left_out:
            print_note(f"(--wide adds {', '.join(left_out)})")


def export(
    trial: Annotated[
        str,
        argument("TRIAL", "DIR/TRIAL_ID, as clsweep trials DIR prints it", callback=say_reading),
    ],
    out: Annotated[str, option("--out FILE", "a .safetensors or .pt file")],
    trust: Trust = False,
) -> None:
    """The trained encoder of a trial as a state dict; a resnet is torchvision's."""
    from clsweep.cli.export import export_encoder

    export_encoder(trial, out, trust=trust)
