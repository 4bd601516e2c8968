"""The command line: each command parses, calls one function, prints."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from clsweep.cli.endings import (
    EXIT_INTERRUPTED,
    EXIT_INVALID,
    command_line,
    exit_as,
    left_out,
    mistake,
    print_confirmation,
    print_end,
    print_failures,
    print_next,
    require_words,
)
from clsweep.cli.import_sweep import import_
from clsweep.cli.new import new
from clsweep.cli.options import (
    Address,
    CatalogName,
    ExplainOption,
    Failed,
    FailedOption,
    FormatOption,
    MaxConcurrent,
    MetricOption,
    MixedVersions,
    ModeOption,
    ParamsOption,
    Preset,
    ResultsPath,
    ResultsPaths,
    RetryFailed,
    ScalesOption,
    Settings,
    Statistic,
    StudyPath,
    Trust,
    WideOption,
    Within,
    print_version,
    say_reading,
    scales_of,
)
from clsweep.cli.schema import schema
from clsweep.cli.streams import lasting_streams
from clsweep.display.printing import Format, print_table
from clsweep.display.text import say
from clsweep.errors import UserError

if TYPE_CHECKING:
    from clsweep.api import Results
    from clsweep.study.design import Study

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
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="what is installed"),
    ] = False,
) -> None:
    pass


@app.command()
def catalog(
    kind: CatalogName = None,
    plugins: Annotated[
        list[str] | None, typer.Option("--plugin", metavar="FILE", help="with a plug-in's rows")
    ] = None,
    format: FormatOption = Format.table,
) -> None:
    """What exists: components and the hyperparameters they own, bounds, defaults, paper and
    equation.
    """
    from clsweep.cli.plan import catalog_tables

    if plugins:
        from clsweep.catalog.plugins import activate, read_plugins

        activate(read_plugins(plugins, Path()))
    for_eyes = format in (Format.table, Format.md)
    for title, rows in catalog_tables(kind, for_eyes=for_eyes).items():
        print_table(rows, format=format, title=title)


@app.command()
def plan(
    path: StudyPath,
    preset: Preset = None,
    settings: Settings = None,
    trials: Annotated[bool, typer.Option("--trials", help="list every planned trial")] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="time a few steps: hours and memory of the study")
    ] = False,
    price: Annotated[
        float | None,
        typer.Option("--price", metavar="EUR", min=0, help="an hour of this machine; with money"),
    ] = None,
    trust: Trust = False,
    format: FormatOption = Format.table,
) -> None:
    """What a study would run: who owns what, configurations and seeds, skips. Nothing is
    started.
    """
    from clsweep.cli.plan import (
        cell_matrices,
        missing_notes,
        plan_counts,
        plan_matrix,
        plan_notes,
        plan_trial_rows,
    )

    study = _study(path, preset, settings, trust)
    if trials:
        for_eyes = format in (Format.table, Format.md)
        print_table(plan_trial_rows(study, for_eyes=for_eyes), format=format)
        return
    same = {"preset": preset, "set": settings}
    if estimate or price is not None:
        from clsweep.cli.estimate import print_estimate

        print_estimate(study, price=price, format=format)
        if format is Format.table:
            print_next(command_line("run", path, **same))
        return
    title = "Hyperparameters (* swept, - not owned)"
    if format is not Format.table or not study.cells:
        print_table(plan_matrix(study), format=format, title=title)
    if format is not Format.table:
        return
    if study.cells:
        say(title)
    known: list[dict[str, object]] = []
    for cell, rows in cell_matrices(study):
        differing = [row for row in rows if row not in known]
        say(f"\n{cell.name}{', where it differs from the first cell' if known else ''}")
        print_table(differing, format=format)
        known = known or rows
    counts = plan_counts(study)
    print_table(counts, title="\nTrials")
    say(f"\n{sum(row['trials'] for row in counts)} trials in all")
    for note in [*plan_notes(study), *missing_notes(study)]:
        say(note)
    print_next(command_line("plan", path, **same, estimate=True))


@app.command(name="try")
def try_(
    path: StudyPath,
    objective: Annotated[str, typer.Option("--objective", "-o", help="objective of the study")],
    preset: Preset = None,
    settings: Settings = None,
    config: Annotated[
        int, typer.Option("--config", min=0, help="number of the planned configuration")
    ] = 0,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="the study's first seed by default")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="cpu, cuda, cuda:1; as the study asks")
    ] = None,
    trust: Trust = False,
) -> None:
    """One trial in this process, without Ray: a row per epoch."""
    from clsweep.cli.try_one import try_trial

    study = _study(path, preset, settings, trust)
    try_trial(study, objective, config=config, seed=seed, device=device)


@app.command()
def run(
    path: StudyPath,
    out: Annotated[
        str | None, typer.Option("--out", help="results folder; results/NAME by default")
    ] = None,
    preset: Preset = None,
    settings: Settings = None,
    address: Address = "local",
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="continue the results in the folder")
    ] = True,
    retry_failed: RetryFailed = False,
    max_concurrent: MaxConcurrent = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="run at most so many trials now")
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="LOGGER", help="also to tensorboard, wandb or mlflow"),
    ] = None,
    trust: Trust = False,
    mixed_versions: MixedVersions = False,
) -> None:
    """Run a study, or what is left of it; ends with the robustness table and the results path."""
    from clsweep.cli.plan import plan_counts

    study = _study(path, preset, settings, trust)
    num = sum(row["trials"] for row in plan_counts(study))
    say(f"{study.name}: {num:,} trials. Loading Ray ...")
    from clsweep.api import default_out, open_results
    from clsweep.cli.statistics import Style, print_answer, print_question, print_robustness
    from clsweep.cluster.runner import Request, run_study
    from clsweep.questions.pareto import QUESTION

    kept = {"retry_failed": retry_failed, "max_concurrent": max_concurrent}
    kept |= {"mixed_versions": mixed_versions, "trust": trust}
    again = command_line(
        "run", path, out=out, preset=preset, address=address, set=settings, log=log, **kept
    )
    asked = Request(
        address=address,
        resume=resume,
        retry_failed=retry_failed,
        max_concurrent=max_concurrent,
        limit=limit,
        log=tuple(log or ()),
        mixed_versions=mixed_versions,
    )
    try:
        summary = run_study(study, out or default_out(study), asked)
    except KeyboardInterrupt:
        say(f"\nInterrupted. Resume with: {again}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if not summary.ran and not summary.left:
        say("Nothing is left to run.")
    results, following = open_results(summary.path), ""
    if summary.finished:
        following = print_answer(results)
        style = Style(command=command_line("robustness", summary.path))
        print_robustness(results, style=style)
        if study.sections.search.cost == "seconds":
            style = Style(command=command_line("pareto", summary.path))
            print_question(QUESTION, results.pareto(), material=results.material, style=style)
    print_failures(results)
    print_end(summary, again)
    print_next("" if summary.left else following)
    exit_as(summary)


@app.command()
def status(
    path: ResultsPath,
    follow: Annotated[
        bool, typer.Option("--follow", help="repeat every two seconds, until the run ends")
    ] = False,
    format: FormatOption = Format.table,
) -> None:
    """How far a study is: per objective finished, running, failed and best; failures grouped by
    message.
    """
    import time

    from clsweep.cli.status import (
        best_notes,
        confirm_headline,
        is_any_running,
        running_rows,
        split_marked,
        status_headline,
        status_rows,
        study_notes,
    )
    from clsweep.display.printing import print_note
    from clsweep.findings.notes import reference_notes

    while True:
        goes_on = follow and is_any_running([path])
        results = _opened([path])
        rows = split_marked(status_rows(results), results, format)
        if follow and format is Format.table:
            Console().clear()
        print_table(rows, format=format)
        if format is Format.table:
            if running := running_rows(results):
                say()
                print_table(running, digits=3)
            print_failures(results)
            for note in [
                *study_notes(results),
                *best_notes(rows),
                *reference_notes(results.references, metric=results.metric),
                *confirm_headline(results),
                status_headline(results, rows),
            ]:
                print_note(note)
        if not goes_on:
            return
        time.sleep(2)


@app.command()
def trials(
    path: ResultsPath,
    where: Annotated[
        str | None, typer.Option("--where", metavar="EXPR", help="a condition: tau < 0.1")
    ] = None,
    sort: Annotated[
        str | None, typer.Option("--sort", metavar="COL", help="-COL: largest first")
    ] = None,
    top: Annotated[int | None, typer.Option("--top", min=1, help="only the first N rows")] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="A,B", help="these columns alone")
    ] = None,
    wide: WideOption = False,
    format: FormatOption = Format.table,
) -> None:
    """Trial rows; csv and json have every column."""
    from clsweep.cli.status import TRIALS_SPARE, study_notes, trial_rows
    from clsweep.display.printing import print_note
    from clsweep.findings.notes import reference_notes

    every_column, results = format in (Format.csv, Format.json), _opened([path])
    asked = [name.strip() for name in columns.split(",")] if columns else None
    rows, names = trial_rows(results, where, sort, top, columns=asked, every_column=every_column)
    spare = () if asked else TRIALS_SPARE
    left_out = print_table(rows, names, format=format, spare=spare, wide=wide)
    if format is Format.table:
        references = reference_notes(results.references, metric=results.metric)
        for note in [*study_notes(results), *references]:
            print_note(f"- {note}")
    if left_out:
        print_note(f"(--wide adds {', '.join(left_out)})")


@app.command()
def robustness(
    paths: ResultsPaths,
    by: Annotated[
        str | None, typer.Option("--by", metavar="PARAM", help="marginal effect of one parameter")
    ] = None,
    within: Within = None,
    metric: MetricOption = None,
    mode: ModeOption = None,
    params: ParamsOption = None,
    scales: ScalesOption = None,
    failed: FailedOption = Failed.worst,
    wide: WideOption = False,
    explain: ExplainOption = False,
    format: FormatOption = Format.table,
) -> None:
    """How much each objective depends on its hyperparameters: one row per objective, with
    intervals.
    """
    from clsweep.cli.statistics import Style, print_robustness
    from clsweep.report import told

    findings = _opened(paths, metric, mode, params, scales, failed)
    print_robustness(
        findings,
        by=by,
        within=within,
        style=Style(format=format, wide=wide, explain=explain),
        said=lambda: told.robustness(findings, by=by, within=within),
        following=_same_of("sensitivity", paths, metric, mode, params, scales, failed),
    )


@app.command()
def sensitivity(
    paths: ResultsPaths,
    objectives: Annotated[
        list[str] | None, typer.Option("--objective", "-o", help="only these")
    ] = None,
    metric: MetricOption = None,
    mode: ModeOption = None,
    params: ParamsOption = None,
    scales: ScalesOption = None,
    failed: FailedOption = Failed.worst,
    wide: WideOption = False,
    explain: ExplainOption = False,
    format: FormatOption = Format.table,
) -> None:
    """Which hyperparameter matters: shares of the variance with intervals, or "not resolved"."""
    from clsweep.cli.statistics import Style, print_question
    from clsweep.questions.sensitivity import QUESTION
    from clsweep.report import told

    findings = _opened(paths, metric, mode, params, scales, failed)
    print_question(
        QUESTION,
        findings.sensitivity(*objectives or ()),
        material=findings.material,
        style=Style(format=format, wide=wide, explain=explain),
        said=lambda: told.sensitivity(findings, *objectives or ()),
        following=_same_of("recommend", paths, metric, mode, params, scales, failed),
    )


@app.command()
def picks(
    paths: ResultsPaths,
    metric: MetricOption = None,
    mode: ModeOption = None,
    params: ParamsOption = None,
    wide: WideOption = False,
    explain: ExplainOption = False,
    format: FormatOption = Format.table,
) -> None:
    """What scores without labels would have picked, and what that loses by the metric."""
    from clsweep.cli.statistics import Style, print_question
    from clsweep.findings.reading_rules import label_free_scores
    from clsweep.questions.picks import QUESTION

    findings = _opened(paths, metric, mode, params)
    frame, material = findings.picks(), findings.material
    if frame.empty and format is Format.table:
        needed = "" if label_free_scores(material.metric) else "; give a --metric of labels"
        say(f"The trials have no score without labels beside {material.metric_title}{needed}.")
        return
    print_question(
        QUESTION,
        frame,
        material=material,
        style=Style(format=format, wide=wide, explain=explain),
        following=_same_of("recommend", paths, metric, mode, params),
    )


@app.command()
def compare(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR... [A B]",
            help="results folders, then two objectives",
            callback=say_reading,
        ),
    ],
    stat: Annotated[
        Statistic, typer.Option("--stat", help="mean, ratio of spreads, or share near the best")
    ] = (Statistic.mean),
    by: Annotated[
        str | None, typer.Option("--by", metavar="PARAM", help="a row for each value of it")
    ] = None,
    within: Within = None,
    metric: MetricOption = None,
    mode: ModeOption = None,
    params: ParamsOption = None,
    scales: ScalesOption = None,
    failed: FailedOption = Failed.worst,
    wide: WideOption = False,
    explain: ExplainOption = False,
    format: FormatOption = Format.table,
) -> None:
    """Objective A against B, or every pair: difference, interval, p, and what could have been
    seen.
    """
    from clsweep.cli.statistics import Style, open_and_pair, print_question
    from clsweep.questions.comparison import BY_STAT
    from clsweep.report import told

    findings, pair = open_and_pair(
        paths, lambda sources: _opened(sources, metric, mode, params, scales, failed)
    )
    print_question(
        BY_STAT[stat.value],
        findings.compare(*pair, stat=stat.value, by=by, within=within),
        material=findings.material,
        within=within,
        style=Style(format=format, wide=wide, explain=explain),
        said=lambda: told.comparison(findings, *pair, stat=stat.value, by=by, within=within),
        following=_same_of(
            "recommend", [p for p in paths if p not in pair], metric, mode, params, scales, failed
        ),
    )


@app.command()
def pareto(
    paths: ResultsPaths,
    metric: MetricOption = None,
    mode: ModeOption = None,
    params: ParamsOption = None,
    explain: ExplainOption = False,
    format: FormatOption = Format.table,
) -> None:
    """Accuracy against cost: the settings that no other one beats in both."""
    from clsweep.cli.statistics import Style, print_question
    from clsweep.questions.pareto import QUESTION

    findings = _opened(paths, metric, mode, params)
    print_question(
        QUESTION,
        findings.pareto(),
        material=findings.material,
        style=Style(format=format, explain=explain),
        following=_same_of("recommend", paths, metric, mode, params),
    )


@app.command()
def recommend(
    paths: ResultsPaths,
    metric: MetricOption = None,
    mode: ModeOption = None,
    params: ParamsOption = None,
    scales: ScalesOption = None,
    failed: FailedOption = Failed.worst,
    wide: WideOption = False,
    explain: ExplainOption = False,
    format: FormatOption = Format.table,
) -> None:
    """Which setting to use: of each objective the best one, and the one whose worst neighbour is
    best.
    """
    from clsweep.cli.statistics import Style, print_question
    from clsweep.questions.recommend import QUESTION
    from clsweep.report import told

    findings = _opened(paths, metric, mode, params, scales, failed)
    print_question(
        QUESTION,
        findings.recommend(),
        material=findings.material,
        style=Style(format=format, wide=wide, explain=explain),
        said=lambda: told.recommendation(findings),
        following=_same_of("report", paths, metric, mode, params, scales, failed),
    )


@app.command()
def reproduce(
    paths: ResultsPaths,
    within: Annotated[
        float | None,
        typer.Option("--within", min=0, help="largest difference that agrees; 1 point by default"),
    ] = None,
    format: FormatOption = Format.table,
) -> None:
    """The numbers that a paper printed beside what was measured, in the paper's layout: agrees,
    differs, not resolved, or at another scale.
    """
    from clsweep.cli.statistics import print_reproduction

    print_reproduction(_opened(paths), within=within, format=format)


@app.command()
def report(
    paths: ResultsPaths,
    out: Annotated[
        str | None, typer.Option("--out", metavar="DIR", help="folder; reports/NAME by default")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="write it again as trials end, until the run ends")
    ] = False,
    within: Within = None,
    metric: MetricOption = None,
    mode: ModeOption = None,
    params: ParamsOption = None,
    scales: ScalesOption = None,
    failed: FailedOption = Failed.worst,
) -> None:
    """Write a report: one page that works offline, figures, tables; prints its verdicts and the
    page's path.
    """
    say(f"Reading {', '.join(paths)} ...")
    from clsweep.cli.statistics import default_report, progress
    from clsweep.cli.status import followed, is_any_running, told_at
    from clsweep.report.formats.folder import write_report

    def read() -> Results:
        return _opened(paths, metric, mode, params, scales, failed)

    target = out or default_report(paths)
    for findings in followed(lambda: is_any_running(paths), read) if follow else [read()]:
        with progress() as show:
            content, page = write_report(findings, target, within=within, progress=show)
        if follow:
            say(told_at(findings, page))
    for sentence in (*content.verdicts, *content.notes):
        say(f"- {sentence}")
    say(f"\nReport: {page}")
    print_next(next((step.command for step in content.steps if step.command), ""))


@app.command()
def check(
    plugin: Annotated[str, typer.Argument(metavar="PLUGIN", help="a file NAME.py, or a package")],
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


app.command(name="import")(import_)
app.command()(schema)
app.add_typer(new, name="new")


@app.command()
def confirm(
    path: ResultsPath,
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="so many configurations of each objective")
    ] = None,
    seeds: Annotated[
        list[str] | None, typer.Option("--seeds", metavar="10,11,12", help="fresh seeds")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="K=V", help="as resources.workers=2")
    ] = None,
    address: Address = "local",
    retry_failed: RetryFailed = False,
    max_concurrent: MaxConcurrent = None,
    trust: Trust = False,
    mixed_versions: MixedVersions = False,
    format: FormatOption = Format.table,
) -> None:
    """Run the best configurations of a search again, on fresh seeds and the test set: what are they
    worth?
    """
    for_eyes = format is Format.table
    say(f"The best of {path}, once more. Loading Ray ...", file=None if for_eyes else sys.stderr)
    sys.stdout.flush()
    from clsweep.cluster.confirm import confirm_study
    from clsweep.cluster.runner import Request

    given = [seed.strip() for text in seeds or () for seed in text.split(",")]
    kept = {"retry_failed": retry_failed, "max_concurrent": max_concurrent}
    kept |= {"mixed_versions": mixed_versions, "trust": trust}
    again = command_line(
        "confirm", path, top=top, seeds=",".join(given), address=address, set=settings, **kept
    )
    asked = Request(
        address=address,
        retry_failed=retry_failed,
        max_concurrent=max_concurrent,
        mixed_versions=mixed_versions,
    )
    try:
        with contextlib.nullcontext() if for_eyes else contextlib.redirect_stdout(sys.stderr):
            summary = confirm_study(
                path,
                asked,
                top=top,
                seeds=[int(s) if s.isdecimal() and len(s) < 20 else s for s in given] or None,
                settings=settings or (),
                trust=trust,
            )
    except KeyboardInterrupt:
        say(f"\nInterrupted. Resume with: {again}", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if summary.finished or summary.failed:
        print_confirmation(_opened([path]), top=top, format=format)
    if for_eyes:
        print_failures(_opened([summary.path]))
        print_end(summary, again)
        print_next("" if summary.left else command_line("report", path))
    exit_as(summary)


@app.command()
def export(
    trial: Annotated[
        str,
        typer.Argument(
            metavar="TRIAL",
            help="DIR/TRIAL_ID, as clsweep trials DIR prints it",
            callback=say_reading,
        ),
    ],
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="a .safetensors or .pt file")],
    trust: Trust = False,
) -> None:
    """The trained encoder of a trial as a state dict; a resnet is torchvision's."""
    from clsweep.cli.export import export_encoder

    export_encoder(trial, out, trust=trust)


def main() -> None:
    """Entry point: a user's mistake is a message and exit code 2, never a traceback."""
    if os.path.expanduser("~") == "~":  # a user without a name, as in a container
        os.environ["HOME"] = "/"
    try:
        with lasting_streams(patient=sys.argv[1:2] in (["run"], ["confirm"])):
            require_words(sys.argv[1:])
            app(prog_name="clsweep")
    except (UserError, OSError, MemoryError) as error:
        say(mistake(error), file=sys.stderr)
        sys.exit(EXIT_INVALID)
    except ModuleNotFoundError as error:
        if not (said := left_out(error, sys.argv)):
            raise
        say(said, file=sys.stderr)
        sys.exit(EXIT_INVALID)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _study(
    path: Path, preset: str | None, settings: Sequence[str] | None, trust: bool = False
) -> Study:
    from clsweep.study.resolve import load_study

    return load_study(path, preset=preset, settings=settings or (), trust=trust)


def _opened(
    paths: Sequence[str],
    metric: str | None = None,
    mode: str | None = None,
    params: Sequence[str] | None = None,
    scales: Sequence[str] | None = None,
    failed: Failed = Failed.worst,
) -> Results:
    """The results, read as the options of a command say."""
    from clsweep.api import open_results

    return open_results(
        *paths,
        metric=metric,
        mode=mode,
        params=params,
        scales=scales_of(scales),
        failed=failed.value,
    )


def _same_of(
    command: str,
    paths: Sequence[str],
    metric: str | None = None,
    mode: str | None = None,
    params: Sequence[str] | None = None,
    scales: Sequence[str] | None = None,
    failed: Failed = Failed.worst,
) -> str:
    """Another command of the same trials, read in the same way."""
    lists = {"param": list(params or ()), "scale": list(scales or ())}
    counted = None if failed is Failed.worst else failed.value
    return command_line(command, *paths, metric=metric, mode=mode, **lists, failed=counted)
