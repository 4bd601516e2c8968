"""The commands of results: how they stand, what they answer to each question, report and export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from time import strftime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console

from clsweep.cli.options import (
    FormatOption,
    FullResultsOptions,
    OutputOptions,
    ResultsOptions,
    ResultsPath,
    ResultsPaths,
    ScoredImagesOptions,
    Trust,
    Within,
    argument,
    option,
    require_exclusive,
    with_groups,
)
from clsweep.display.numbers import count
from clsweep.display.printing import Format, print_hints, print_next, print_note, print_table, say
from clsweep.errors import RequestError

if TYPE_CHECKING:
    from clsweep.opened_results import Results


@with_groups
def status(
    path: ResultsPath,
    follow: Annotated[
        bool, option("--follow", "repeat every two seconds, until the run ends")
    ] = False,
    *,
    reading: ResultsOptions,
    style: OutputOptions,
) -> None:
    """Progress of a study: per objective finished, running, failed and best; failures grouped by
    message.
    """
    import time

    from clsweep.cli import status as now
    from clsweep.results.reading import StudyTables, open_folder, trials_file
    from clsweep.sweeps.notes import reference_notes

    if trials_file(path):
        require_exclusive({path: True, "--follow": follow})
        from clsweep.cli.trials import table_status

        now.print_status(table_status(reading.opened([path])), style)
        return
    if reading != ResultsOptions():
        raise RequestError(
            f"{path}: a study's status is by its own metric; by another one: "
            f"{reading.command('recommend', [path])}"
        )
    while True:
        goes_on = follow and now.is_any_running([path])
        results = StudyTables(open_folder(path))
        rows, is_table = now.status_rows(results), style.format is Format.table
        if results.score_on == "test" and not is_table:  # where no note says so
            rows = [{**row, "score_on": "test"} for row in rows]
        if follow and is_table:
            Console().clear()
        now.print_status(now.tuned_rows(results, rows) if is_table else rows, style)
        if is_table:
            if running := now.running_rows(results):
                say()
                print_table(running, digits=3)
            now.print_failures(results)
            for note in [
                *now.study_notes(results),
                *now.best_notes(rows),
                *reference_notes(results.folder.references().to_pylist(), metric=results.metric),
                *now.best_when_tuned(results, rows),
                *now.confirm_headline(results),
                now.status_headline(results, rows),
            ]:
                print_note(note)
        if not goes_on:
            return
        time.sleep(2)


@with_groups
def trials(
    path: ResultsPath,
    where: Annotated[
        list[str] | None, option("--where EXPR", "a condition: tau < 0.1; of several all must hold")
    ] = None,
    sort: Annotated[str | None, option("--sort COL", "-COL: largest first")] = None,
    top: Annotated[
        int | None, option("--top", "only the first N rows: the best, without --sort", min=1)
    ] = None,
    columns: Annotated[list[str] | None, option("--columns A,B", "these columns alone")] = None,
    *,
    reading: ResultsOptions,
    style: OutputOptions,
) -> None:
    """Trial rows; csv and json have every column."""
    from clsweep.cli.status import study_notes
    from clsweep.cli.trials import trial_rows, trials_spare
    from clsweep.statistics.trial_table import meanings_of
    from clsweep.sweeps.notes import reference_notes

    every_column, results = style.format.is_exact, reading.opened([path])
    names_given = [name.strip() for each in columns or () for name in each.split(",")]
    rows, names = trial_rows(
        results, where or (), sort, top, columns=names_given, every_column=every_column
    )
    spare = () if names_given else trials_spare(results)
    left_out = print_table(rows, names, format=style.format, spare=spare, wide=style.wide)
    if style.format is not Format.table:
        return
    if results.studies:
        references = reference_notes(
            results.folder.references().to_pylist(), metric=results.tables.metric
        )
        for note in [*study_notes(results.tables), *references]:
            print_note(f"- {note}")
    print_hints(left_out, meanings_of(names), explain=style.explain)


@with_groups
def robustness(
    paths: ResultsPaths,
    by: Annotated[str | None, option("--by PARAM", "marginal effect of one parameter")] = None,
    within: Within = None,
    *,
    reading: FullResultsOptions,
    style: OutputOptions,
) -> None:
    """The dependence of each objective on its hyperparameters: one row per objective, with
    intervals.
    """
    from clsweep.cli.statistic_tables import print_robustness
    from clsweep.statistics.verdicts import robustness_verdict

    results = reading.opened(paths)
    verdict = partial(robustness_verdict, results, by=by, within=within)
    then = _next(results, reading, paths, "sensitivity")
    print_robustness(results, style=style, by=by, within=within, verdict=verdict, then=then)


@with_groups
def sensitivity(
    paths: ResultsPaths,
    objectives: Annotated[list[str] | None, option("--objective -o", "only these")] = None,
    *,
    reading: ScoredImagesOptions,
    style: OutputOptions,
) -> None:
    """Which hyperparameter matters: shares of the variance with intervals, or "not resolved"."""
    from clsweep.cli.statistic_tables import print_statistic
    from clsweep.statistics.sensitivity import SENSITIVITY
    from clsweep.statistics.verdicts import sensitivity_verdict

    results, names = reading.opened(paths), objectives or ()
    frame, verdict = results.sensitivity(*names), partial(sensitivity_verdict, results, *names)
    then = _next(results, reading, paths, "recommend")
    print_statistic(SENSITIVITY, frame, results.data, style=style, verdict=verdict, then=then)


def _next(results: Results, reading: ResultsOptions, paths: Sequence[str], name: str) -> str:
    """The command to type next, of the scored images: of a search its importances, as it says
    nothing of the space.
    """
    reading = replace(reading, images="new")
    return reading.command("importance" if results.data.unmeasured else name, paths)


@with_groups
def importance(
    paths: ResultsPaths,
    within: Within = None,
    *,
    reading: ScoredImagesOptions,
    style: OutputOptions,
) -> None:
    """Which hyperparameter matters to a search (tpe, gp, asha), and where it may be set."""
    from clsweep.cli.statistic_tables import print_statistic
    from clsweep.statistics.search_history import IMPORTANCE
    from clsweep.statistics.verdicts import importance_verdict

    results = reading.opened(paths)
    frame = results.importance(within=within)
    if style.format is Format.table and frame.empty:
        other = reading.command("sensitivity", paths)
        print_note(f"No search: {other} says which hyperparameter matters.")
        return
    how: dict[str, Any] = {"style": style, "then": reading.command("recommend", paths)}
    verdict = partial(importance_verdict, results, within=within)
    print_statistic(IMPORTANCE, frame, results.data, within=within, verdict=verdict, **how)


@with_groups
def fidelity(
    paths: ResultsPaths, within: Within = None, *, reading: ResultsOptions, style: OutputOptions
) -> None:
    """Can settings be chosen early? What choosing by an early epoch loses."""
    from clsweep.cli.statistic_tables import print_statistic
    from clsweep.statistics.computed import of_each
    from clsweep.statistics.fidelity import FIDELITY

    results = reading.opened(paths)
    frame = results.fidelity(within=within)
    how: dict[str, Any] = {"style": style, "then": reading.command("recommend", paths)}
    verdict = partial(of_each, results, FIDELITY.sentences, within)
    print_statistic(FIDELITY, frame, results.data, within=within, verdict=verdict, **how)


@with_groups
def ablation(paths: ResultsPaths, *, reading: ResultsOptions, style: OutputOptions) -> None:
    """From the default to the best setting: what each change gains, the largest first."""
    from clsweep.cli.statistic_tables import print_statistic
    from clsweep.statistics.ablation import ABLATION
    from clsweep.statistics.computed import of_each

    results, then = reading.opened(paths), reading.command("recommend", paths)
    frame, verdict = results.ablation(), partial(of_each, results, ABLATION.sentences)
    print_statistic(ABLATION, frame, results.data, style=style, verdict=verdict, then=then)


@with_groups
def optimum(
    paths: ResultsPaths,
    of: Annotated[str | None, option("--of PARAM", "the one whose best value may move")] = None,
    by: Annotated[str | None, option("--by PARAM", "the one along which it may")] = None,
    *,
    reading: ScoredImagesOptions,
    style: OutputOptions,
) -> None:
    """Does the best value of a hyperparameter move with another one: the shift, with an interval.
    With --of and --by also the best value at each level.
    """
    from clsweep.cli.statistic_tables import print_statistic
    from clsweep.statistics.optimum import OPTIMA, OPTIMUM, moves

    results = reading.opened(paths)
    frame, then = results.optimum(of=of, by=by), reading.command("recommend", paths)
    if style.format is Format.table and frame.empty:
        say("No two hyperparameters, one of them with three values, are swept together.")
        return
    if of and by and not style.format.is_exact:
        print_statistic(OPTIMA, results.optima(of=of, by=by), results.data, style=style)
        say()
    verdict = partial(moves, frame)
    print_statistic(OPTIMUM, frame, results.data, style=style, verdict=verdict, then=then)


@with_groups
def picks(paths: ResultsPaths, *, reading: ResultsOptions, style: OutputOptions) -> None:
    """The picks of scores without labels, and their loss by the metric."""
    from clsweep.cli.statistic_tables import print_statistic
    from clsweep.statistics.picks import PICKS
    from clsweep.sweeps.study_data import label_free_modes

    results = reading.opened(paths)
    frame = results.picks()
    if style.format is Format.table and frame.empty:
        data = results.data
        needed = "" if label_free_modes(data.metric) else "; give a --metric of labels"
        say(f"The trials have no score without labels beside {data.metric_title}{needed}.")
        return
    then = reading.command("recommend", paths)
    print_statistic(PICKS, frame, results.data, style=style, then=then)


@with_groups
def compare(
    paths: Annotated[list[str], argument("DIR... [A B]", "results folders, then two objectives")],
    stat: Annotated[
        Literal["mean", "std", "within"],
        option("--stat", "mean, ratio of spreads, or share near the best"),
    ] = "mean",
    by: Annotated[str | None, option("--by PARAM", "a row for each value of it")] = None,
    tuned: Annotated[
        bool, option("--tuned", "each at its best setting, without the pick's luck")
    ] = False,
    within: Within = None,
    *,
    reading: FullResultsOptions,
    style: OutputOptions,
) -> None:
    """Objective A against B, or every pair: difference, interval, p, and what could have been
    seen.
    """
    from clsweep.cli.statistic_tables import open_and_pair, print_statistic
    from clsweep.statistics.compare import BY_STAT
    from clsweep.statistics.verdicts import compare_verdict

    require_exclusive({"--tuned": tuned, "--stat": stat != "mean"})
    require_exclusive({"--tuned": tuned, "--by": by})
    shown = "tuned" if tuned else stat
    results, pair = open_and_pair(paths, reading.opened)
    then = reading.command("recommend", [path for path in paths if path not in pair])
    if not tuned and results.data.unmeasured:
        then = f"{reading.command('compare', paths)} --tuned"
    options: dict[str, Any] = {"stat": shown, "by": by, "within": within}
    how: dict[str, Any] = {"style": style, "within": within, "then": then}
    frame = results.compare(*pair, **options)
    verdict = partial(compare_verdict, results, *pair, **options)
    print_statistic(BY_STAT[shown], frame, results.data, verdict=verdict, **how)


@with_groups
def diff(
    first: Annotated[str, argument("A", "results folder, as the former one")],
    second: Annotated[str, argument("B", "the other one")],
    *,
    reading: FullResultsOptions,
    style: OutputOptions,
) -> None:
    """Two studies side by side: the settings, versions and data that differ, and the answers that
    changed.
    """
    from clsweep.cli.statistic_tables import print_diff

    print_diff(reading.opened([first]), reading.opened([second]), style=style)


@with_groups
def contrast(
    paths: ResultsPaths,
    study: Annotated[
        str | None, option("--study FILE", "also those of a study file, marked as asked later")
    ] = None,
    *,
    reading: FullResultsOptions,
    style: OutputOptions,
) -> None:
    """The questions of the study by name, under contrasts: is there an effect, is it too small to
    matter, is it as large as published?
    """
    from clsweep.cli.statistic_tables import print_statistic
    from clsweep.statistics.contrast import CONTRASTS
    from clsweep.statistics.verdicts import contrasts_verdict
    from clsweep.study.document import read_document

    results = reading.opened(paths)
    more = (read_document(study).tree.get("contrasts") if study else None) or None
    if style.format is Format.table and not (more or results.data.contrasts):
        say("Nothing was asked: give contrasts in the study file, or --study FILE with some.")
        return
    frame, verdict = results.contrasts(more), partial(contrasts_verdict, results, more=more)
    then = reading.command("report", paths)
    print_statistic(CONTRASTS, frame, results.data, style=style, verdict=verdict, then=then)


@with_groups
def pareto(
    paths: ResultsPaths,
    against: Annotated[
        str | None,
        option(
            "--against METRIC",
            "seconds, or another metric; by default what the study's search has weighed",
        ),
    ] = None,
    *,
    reading: ResultsOptions,
    style: OutputOptions,
) -> None:
    """Accuracy against cost, or against another metric: the settings that no other one beats in
    both.
    """
    from clsweep.cli.statistic_tables import print_pareto
    from clsweep.statistics.verdicts import pareto_verdict

    results, then = reading.opened(paths), reading.command("recommend", paths)
    verdict = partial(pareto_verdict, results)
    print_pareto(results, against=against, style=style, verdict=verdict, then=then)


@with_groups
def recommend(paths: ResultsPaths, *, reading: FullResultsOptions, style: OutputOptions) -> None:
    """Which setting to use: of each objective the best one, and the one whose worst neighbour is
    best.
    """
    from clsweep.cli.statistic_tables import print_statistic, with_confirmation
    from clsweep.statistics.recommend import RECOMMEND
    from clsweep.statistics.verdicts import recommend_verdict

    results, then = reading.opened(paths), reading.command("report", paths)
    frame, data = results.recommend(), with_confirmation(results)
    verdict = partial(recommend_verdict, results)
    print_statistic(RECOMMEND, frame, data, style=style, verdict=verdict, then=then)


@with_groups
def reproduce(
    paths: ResultsPaths,
    within: Annotated[
        float | None,
        option("--within", "largest difference that agrees; 1 point by default", min=0),
    ] = None,
    format: FormatOption = Format.table,
    *,
    reading: ResultsOptions,
) -> None:
    """The numbers that a paper printed beside what was measured, in the paper's layout: agrees,
    differs, not resolved, or at another scale.
    """
    from clsweep.cli.statistic_tables import print_reproduction

    print_reproduction(reading.opened(paths), within=within, format=format)


@with_groups
def report(
    paths: ResultsPaths,
    out: Annotated[str | None, option("--out DIR", "folder; reports/NAME by default")] = None,
    follow: Annotated[
        bool, option("--follow", "write it again as trials end, until the run ends")
    ] = False,
    within: Within = None,
    *,
    reading: FullResultsOptions,
) -> None:
    """Write a report: one page that works offline, figures, tables; prints its verdicts and the
    page's path.
    """
    from clsweep.cli.statistic_tables import default_report, progress
    from clsweep.cli.status import followed, is_any_running
    from clsweep.report.report_folder import report_target, write_report

    target = out or default_report(paths)
    report_target(target, is_made=False)
    say(f"Reading {', '.join(paths)} ...")
    read = partial(reading.opened, paths)
    for findings in followed(lambda: is_any_running(paths), read) if follow else [read()]:
        with progress() as show:
            content, page = write_report(findings, target, within=within, progress=show)
        if follow:
            say(f"{strftime('%H:%M:%S')}  {page}: {count(len(findings.trials))} trials have ended")
    print_note(content.question)
    for sentence in (*content.verdicts, *content.notes):
        print_note(f"- {sentence}")
    say(f"\nReport: {page}")
    print_next(next((step.command for step in content.steps if step.command), ""))


def export(
    trial: Annotated[str, argument("TRIAL", "DIR/TRIAL_ID, as clsweep trials DIR prints it")],
    out: Annotated[str, option("--out FILE", "a .safetensors, .pt or .pt2 file")],
    trust: Trust = False,
) -> None:
    """A trial's encoder: a state dict, of a resnet torchvision's, or a .pt2 program."""
    from clsweep.cli.export import export_encoder

    export_encoder(trial, out, trust=trust)
