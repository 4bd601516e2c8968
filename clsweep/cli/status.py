"""The tables and notes of `clsweep status`. Until every objective has a best setting it
needs no statistics, and imports none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from clsweep.catalog.rows import Row
from clsweep.cli.options import OutputOptions
from clsweep.display.numbers import Number, duration, is_number, texts_of
from clsweep.display.printing import Format, print_hints, print_table
from clsweep.results.reading import StudyTables, open_folder
from clsweep.results.schemas import TRIAL_STATUSES
from clsweep.results.standings import TrialCounts, drop_order
from clsweep.study.factors import FACTORS, split_name
from clsweep.study.space import declared_axes, only_swept_rows
from clsweep.sweeps.fresh_seeds import unconfirmed
from clsweep.sweeps.notes import SCORED_ON_TEST, version_notes

if TYPE_CHECKING:
    from clsweep.opened_results import Results
    from clsweep.statistics.report_objects import Sentences

TUNED = "when tuned"  # of a column, as in `recommend`
MOST_RUNNING = 8  # trials under way that `clsweep status` lists
MOST_OF_ERROR = 300  # characters of an error that a table shows
FOLLOW_PAUSE_S = 5.0  # between two looks at a running study
WORK_SHARE = 0.2  # of the time that the command's own work may take
STATUS_COLUMNS = {  # `best` stands for itself with the metric
    "planned": "trials of the plan",
    "finished": "trials with a score",
    "stopped": "trials that a scheduler ended early",
    "skipped": "planned trials that a race left out",
    "failed": "trials that ended with an error",
    "best": "mean of the best setting over the seeds. It was picked by it, which is optimistic",
    TUNED: "its level without the luck of the pick, of which the lead is said",
    "seeds": "that the best rests on",
    "at": "the best setting",
}


def print_status(rows: Sequence[Row], style: OutputOptions) -> None:
    """The table of objectives, and for eyes the options that say more."""
    if style.format is not Format.table:
        print_table(rows, format=style.format)
        return
    levels = {name for row in rows for name in row if name.startswith("best ") or name == TUNED}
    texts = {name: _levels([row.get(name) for row in rows]) for name in levels}
    shown = [{**row, **{n: texts[n][i] for n in row if n in texts}} for i, row in enumerate(rows)]
    left_out = print_table(shown, spare=drop_order(rows), wide=style.wide)
    names = {name.partition(" ")[0] if name != TUNED else name for row in rows for name in row}
    meanings = [f"{name}: {text}" for name, text in STATUS_COLUMNS.items() if name in names]
    print_hints(left_out, meanings, explain=style.explain)


def _levels(values: Sequence[float | None]) -> list[str]:
    """Scores as the other tables have them."""
    numbers = [None if x is None else Number.of(x, spread=x / 100) for x in values]
    return texts_of(numbers, is_fine=max((n.size for n in numbers if n), default=2) <= 1)


def status_rows(results: StudyTables) -> list[Row]:
    """Planned, finished, running, failed and the best configuration per objective."""
    tree, folder = results.study, results.folder
    axes = declared_axes(tree, results.plan_table.column_names)
    swept = [name for each in axes.values() for name in each]
    names = dict.fromkeys(["trial_id", "objective", "config", "status", results.metric, *swept])
    plan, trials = (
        table.select([name for name in names if name in table.column_names]).to_pylist()
        for table in (results.plan_table, results.trials_table)
    )
    trials = only_swept_rows(tree, trials)
    tally = TrialCounts(plan, trials, metric=results.metric, mode=results.mode, axes=axes)
    objective_of = {row["trial_id"]: row["objective"] for row in plan}
    for trial_id in folder.heartbeat().get("running", ()) if folder.is_running() else ():
        if trial_id in objective_of:  # else of an extension that is newer than this plan
            tally.objectives[objective_of[trial_id]]["running"] += 1
    rows = tally.rows()
    if results.is_confirmed and len(trials):
        rows = [row | _on_fresh(_opened(results), row) for row in rows]
    # the study's factors as columns in front of the objective
    return [{**(own := split_name(tree, row["objective"])), **row, **own} for row in rows]


@lru_cache(maxsize=1)
def _opened(results: StudyTables) -> Results:
    """Their statistics, which several parts of the command ask for."""
    from clsweep.opened_results import Results

    return Results(results)


def _on_fresh(results: Results, row: Row) -> Row:
    """An objective's row as fresh seeds change it: its best setting, where they overturn it."""
    pick = _pick(results, split_name(results.study, row["objective"]))
    if not pick or not is_number(pick["config"]) or row["seeds"] is None:
        return {}
    best = next(name for name in row if name.startswith("best "))
    return {best: pick["score"], "seeds": int(pick["num_seeds"]), "at": pick["at"]}


def _pick(results: Results, own: Row) -> Row:
    """The row of `recommend` with the best setting of an objective, of its cell if it has one."""
    from clsweep.sweeps.notes import records_of

    picked = records_of(results.recommend().query("kind == 'best'"))
    names = [name for name in (*FACTORS, "objective") if name in own]
    return next((row for row in picked if all(row[n] == own[n] for n in names)), {})


def tuned_rows(results: StudyTables, rows: list[Row]) -> list[Row]:
    """The rows with the levels of which `best_when_tuned` tells the lead, where it does."""
    levels = [_pick(_opened(results), row)["when_tuned"] for row in rows if _is_compared(rows)]
    if not any(map(is_number, levels)):
        return rows
    place = 1 + next(i for i, name in enumerate(rows[0]) if name.startswith("best "))
    columns = [[*row.items()] for row in rows]
    return [
        dict([*each[:place], (TUNED, level), *each[place:]])
        for each, level in zip(columns, levels, strict=True)
    ]


def _is_compared(rows: Sequence[Row]) -> bool:
    """True once every objective of several has a best setting."""
    return len(rows) > 1 and all(row["seeds"] is not None for row in rows)


def best_when_tuned(results: StudyTables, rows: Sequence[Row]) -> Sentences:
    """Who is best when tuned, once every objective has a best setting."""
    if not _is_compared(rows):
        return ()
    from clsweep.statistics.verdicts import pareto_verdict

    return pareto_verdict(_opened(results))


def best_notes(rows: Sequence[Row]) -> list[str]:
    """Which objectives have no best configuration yet, though trials have finished."""
    names = [
        "/".join(row[name] for name in (*FACTORS, "objective") if name in row)
        for row in rows
        if row["finished"] and row["seeds"] is None
    ]
    note = f"no best yet: {', '.join(names)}: no configuration has finished on all seeds"
    return [note] if names else []


def study_notes(results: StudyTables) -> list[str]:
    """Notes on scores of the test split or of several versions."""
    on_test = [SCORED_ON_TEST] if results.score_on == "test" else []
    return [*on_test, *version_notes(results.versions)]


def status_headline(results: StudyTables, rows: Sequence[Row]) -> str:
    """One sentence: running and how long still, finished, or interrupted."""
    ended = sum(row.get(status, 0) for row in rows for status in TRIAL_STATUSES)
    left = sum(row["planned"] for row in rows) - ended
    if results.folder.is_running():
        return f"running: {results.folder.heartbeat().get('headline', '')}"
    if end := results.folder.search_end(left):
        return f"complete: {end}. With another search.budget the command that began it goes on."
    if left:
        budget = " (search.budget may have no room for them)" * bool(
            (results.study.get("search") or {}).get("budget")
        )
        again = "Continue with the clsweep command that began it."
        return f"not running; {left} trials are left{budget}. {again}"
    return "complete"


def running_rows(results: StudyTables) -> list[Row]:
    """The trials under way with what they last said; none where they are too many to be read."""
    folder = results.folder
    states = folder.heartbeat().get("trials", {}) if folder.is_running() else {}
    if len(states) > MOST_RUNNING:
        return []
    return [
        {
            "running": trial_id,
            "epoch": f"{state['epoch']}/{state['epochs']}" if "epoch" in state else None,
            "step": f"{state['step']}/{state['steps']}" if "epoch" in state else None,
            "loss": state.get("loss"),
            "images/s": f"silent for {duration(state['silent_s'])}"
            if "silent_s" in state
            else state.get("preparing", round(state.get("images_per_s", 0))),
        }
        for trial_id, state in states.items()
    ]


def failure_rows(results: StudyTables) -> list[Row]:
    """Failed trials grouped by error, most frequent first."""
    trials = results.trials_table
    if "failed" not in trials["status"].unique().to_pylist():
        return []  # without pandas, which `pc.equal` loads
    failed = trials.filter(pc.equal(trials["status"], "failed"))
    errors: dict[tuple[str, ...], list[str]] = {}
    texts = [  # what a screen has of them, whatever their lengths
        pc.utf8_slice_codeunits(failed[name], 0, MOST_OF_ERROR).to_pylist()
        for name in ("error_class", "error_message")
    ]
    for *error, trial_id in zip(*texts, failed["trial_id"].to_pylist(), strict=True):
        errors.setdefault(tuple(text or "" for text in error), []).append(trial_id)
    rows = [
        {"trials": len(ids), "error": error, "message": message, "first": ids[0]}
        for (error, message), ids in errors.items()
    ]
    return sorted(rows, key=lambda row: -row["trials"])


def print_failures(results: StudyTables) -> None:
    """The failed trials, if there are any."""
    if failures := failure_rows(results):
        print_table(failures, title="\nFailed trials")


def confirm_headline(results: StudyTables) -> list[str]:
    """One line on how far the confirmation is, if there is one."""
    folder = results.folder.confirmation
    if not folder.exists():
        return []
    done, planned = folder.trials().num_rows, folder.plan().num_rows
    lines = [f"confirmed: {done} of {planned} trials; see clsweep confirm {results.path}"]
    if missing := unconfirmed(results):
        lines.append(f"not confirmed yet: {missing} of the configurations that are the best now")
    return lines


# What a command does once more whenever a running study knows more.


def followed(
    is_running: Callable[[], bool],
    read: Callable[[], Results],
    *,
    wait: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Results]:
    """Results as they grow: at once, if a trial has ended, and after every further trial or epoch.
    The last ones were read after the end of the run.
    """
    seen, pause, goes_on = (0, 0), FOLLOW_PAUSE_S, is_running()
    while True:
        results = read()
        now = len(results.trials), sum(x.tables.epochs_table.num_rows for x in results.studies)
        if (now[0] and now != seen) or not goes_on:
            seen, start = now, clock()
            yield results
            pause = max(FOLLOW_PAUSE_S, (clock() - start) * (1.0 / WORK_SHARE - 1.0))
        if not goes_on:
            return
        for step in range(math.ceil(pause / FOLLOW_PAUSE_S)):
            wait(min(pause - step * FOLLOW_PAUSE_S, FOLLOW_PAUSE_S))
            if not (goes_on := is_running()):
                break  # nobody waits for the last ones


def is_any_running(paths: Sequence[str]) -> bool:
    """True if a run is under way in any of these results folders."""
    return any(open_folder(path).is_running() for path in paths)
