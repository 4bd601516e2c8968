"""`clsweep run`, `try` and `confirm`: the commands that train."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from clsweep.cli.options import (
    EXIT_INTERRUPTED,
    EXIT_SOME_FAILED,
    OutputOptions,
    ResultsOptions,
    ResultsPath,
    RunOptions,
    StudyOptions,
    StudyPath,
    Trust,
    command_line,
    option,
    with_groups,
)
from clsweep.display.printing import Format, print_next, print_note, say

if TYPE_CHECKING:
    from clsweep.cluster.runner import RunSummary
    from clsweep.study.design import Study


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
    options: StudyOptions,
    config: Annotated[int, option("--config", "number of the planned configuration", min=0)] = 0,
    seed: Annotated[
        int | None, option("--seed", "the study's first seed by default", min=0)
    ] = None,
    device: Annotated[
        str | None, option("--device", "cpu, cuda, cuda:1; as the study asks")
    ] = None,
) -> None:
    """One trial in this process, without Ray: a row per epoch."""
    from clsweep.cli.try_trial import try_trial

    study = _noted(options.of(path, has_contrasts=False))
    try_trial(study, objective, config=config, seed=seed, device=device)


@with_groups
def run(
    path: StudyPath,
    out: Annotated[str | None, option("--out", "results folder; results/NAME by default")] = None,
    *,
    options: StudyOptions,
    resume: Annotated[
        bool, option("--resume/--no-resume", "continue the results in the folder")
    ] = True,
    limit: Annotated[int | None, option("--limit", "run at most so many trials now", min=1)] = None,
    log: Annotated[
        list[str] | None, option("--log LOGGER", "also to tensorboard, wandb or mlflow")
    ] = None,
    run_options: RunOptions,
) -> None:
    """Run a study, or what is left of it; ends with the robustness table and the results path."""
    from clsweep.cli.plan import plan_counts

    study = _noted(options.of(path))
    num = sum(row["trials"] for row in plan_counts(study))
    say(f"{study.name}: {num:,} trials. Loading Ray ...")
    from clsweep.cluster.runner import RunRequest, run_study
    from clsweep.study.design import default_out

    again = options.command("run", path, out=out, log=log, **asdict(run_options))
    request = RunRequest(resume=resume, limit=limit, log=tuple(log or ()), **asdict(run_options))
    with _resumable(again):
        summary = run_study(study, out or default_out(study), request)
    if not summary.ran and not summary.left:
        say("Nothing is left to run.")
    from clsweep.api import open_results  # which loads what no trial waits for
    from clsweep.cli.status import print_failures

    results, following = open_results(summary.path), ""
    if summary.finished:
        from clsweep.cli.statistic_tables import print_answer, print_pareto, print_robustness

        following, place = print_answer(results), summary.path
        say()
        print_robustness(results, style=OutputOptions(command=command_line("robustness", place)))
        if study.sections.search.objectives:
            say()
            print_pareto(results, style=OutputOptions(command=command_line("pareto", place)))
    print_failures(results.tables)
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
    run_options: RunOptions,
    trust: Trust = False,
    output: OutputOptions,
) -> None:
    """Run the best configurations of a search again, on fresh seeds and the test set: what are they
    worth?
    """
    for_eyes = output.format is Format.table
    say(f"The best of {path}, once more. Loading Ray ...", file=None if for_eyes else sys.stderr)
    from clsweep.cluster.confirm import confirm_study
    from clsweep.cluster.runner import RunRequest

    given = [seed.strip() for text in seeds or () for seed in text.split(",")]
    own = {"top": top, "seeds": ",".join(given), "set": settings, "trust": trust}
    again = command_line("confirm", path, **own, **asdict(run_options))
    quiet = contextlib.nullcontext() if for_eyes else contextlib.redirect_stdout(sys.stderr)
    with _resumable(again, file=sys.stderr), quiet:
        summary = confirm_study(
            path,
            RunRequest(**asdict(run_options)),
            top=top,
            seeds=[int(s) if s.isdecimal() and len(s) < 20 else s for s in given] or None,
            settings=settings or (),
            trust=trust,
        )
    if summary.finished or summary.failed:
        from clsweep.cli.statistic_tables import print_confirmation

        print_confirmation(ResultsOptions().opened([path]), top=top, style=output)
    if for_eyes:
        from clsweep.cli.status import print_failures

        print_failures(ResultsOptions().opened([summary.path]).tables)
        print_end(summary, again, command_line("report", path))
    exit_as(summary)


@contextlib.contextmanager
def _resumable(again: str, file: TextIO | None = None) -> Iterator[None]:
    """Say how to go on, should the user interrupt what runs."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"\nInterrupted. Resume with: {again}", file=file)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def print_end(summary: RunSummary, again: str, following: str) -> None:
    """The number of trials of each kind, and what to type next."""
    stopped = f"{summary.stopped} stopped, " if summary.stopped else ""
    stopped += f"{summary.skipped} skipped, " if summary.skipped else ""
    say(f"\n{summary.finished} finished, {stopped}{summary.failed} failed, {summary.left} left")
    if summary.open:
        trials = "1 trial was" if len(summary.open) == 1 else f"{len(summary.open)} trials were"
        why = ", ".join(sorted(set(summary.open.values())))
        say(f"{trials} lost with their machine ({why}) and stay open; the same command runs them")
    if summary.search_ends and not summary.interrupted:
        for sentence in (*summary.search_ends, "With another search.budget this command goes on."):
            print_note(sentence)
    elif summary.left or summary.interrupted:
        say(f"{'Interrupted. ' if summary.interrupted else ''}Resume with: {again}")
    say(f"Results: {summary.path}")
    print_next("" if summary.left and not summary.search_ends else following)


def exit_as(summary: RunSummary) -> None:
    if summary.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if summary.failed or summary.open:
        raise typer.Exit(EXIT_SOME_FAILED)
