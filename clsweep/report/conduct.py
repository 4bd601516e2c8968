"""How the study went, section by section: the search, learning curves, trials, cost, formulas."""

from __future__ import annotations

import pandas as pd

from clsweep.analysis import reasons
from clsweep.findings import tables as shown
from clsweep.report.computed import Tables, section, table_of, words_of
from clsweep.report.figures import configurations, curves, distributions
from clsweep.report.figures.distributions import drawn_trials
from clsweep.report.formulas import FORMULAS
from clsweep.report.model import Section, Table, trial_anchor
from clsweep.report.sentences import objectives

MAX_LISTED = 1000  # rows of the table of trials
TRIAL_COLUMNS = ("trial_id", "objective", "config", "seed", "status")
TRIAL_OUTCOMES = ("epochs_trained", "wall_time_s")


def search(tables: Tables) -> Section:
    """What an adaptive search tried, found and stopped; nothing of another study."""
    title = "What did the search try and find?"
    if not tables.is_search:
        return section(id="search", title=title)
    findings, words = tables.findings, words_of(tables)
    history, importance, saved = findings.history(), findings.importance(), findings.saved()
    return section(
        id="search",
        title=title,
        said=(
            *objectives.course(history, words),
            *objectives.importances(importance),
            *objectives.savings(saved),
        ),
        notes=tuple(shown.notes(importance)),
        tables=[
            table_of(
                "search-top",
                "The best configurations of each objective",
                shown.TOP_LEGEND,
                findings.top(),
                shown.top,
            ),
            table_of(
                "importance",
                "Which hyperparameter goes with the score, among what was tried",
                shown.IMPORTANCE_LEGEND,
                importance,
                shown.importance,
            ),
            table_of(
                "stopped-early",
                "What stopping early saved",
                shown.SAVED_LEGEND,
                saved,
                shown.saved,
            ),
        ],
        figures=[
            configurations.history_figure(history, tables.material),
            *configurations.parallel_figures(tables.material, history),
        ],
    )


def learning(tables: Tables) -> Section:
    """How training went."""
    return section(
        id="learning",
        title="How did training go?",
        figures=[
            *curves.learning_figures(tables.findings.learning(), tables.material),
            curves.under_way_figure(tables.findings.under_way(), tables.material),
        ],
    )


def trials(tables: Tables) -> Section:
    """Every trial: slices, and a table that each point links to."""
    material, findings = tables.material, tables.findings
    effects, lines = findings.sensitivity(), []
    if not tables.is_search:
        lines = configurations.parallel_figures(material, findings.history())
    return section(
        id="trials",
        title="What did every trial give?",
        tables=[_trial_table(tables)],
        figures=[
            *distributions.scatter_figures(material, effects),
            *lines,
            *distributions.point_figures(material),
        ],
    )


def _trial_table(tables: Tables) -> Table:
    """The trials, best first: all, or those that are drawn and the best ones."""
    material = tables.material
    outcomes = [name for name in TRIAL_OUTCOMES if name in material.trials]
    names = [name for name in TRIAL_COLUMNS if name in material.trials]
    frame = material.trials[[*names, *tables.swept, material.metric, *outcomes]]
    frame = frame.sort_values(
        material.metric, ascending=material.mode == "min", kind="stable", ignore_index=True
    )
    listed = frame
    if len(frame) > MAX_LISTED:
        drawn = set(drawn_trials(material)["trial_id"])
        is_shown = frame["trial_id"].isin(drawn)
        is_shown.iloc[: MAX_LISTED - len(drawn)] = True
        listed = frame[is_shown]
    return Table(
        name="trials",
        title="All trials, the best first" if len(listed) == len(frame) else "Trials, best first",
        caption="Click a heading to sort.",
        frame=frame,
        shown=shown.trials(listed, tables.swept),
        anchors=tuple(trial_anchor(str(name)) for name in listed["trial_id"]),
        limit=MAX_LISTED,
        more=len(frame) - len(listed),
    )


def health(tables: Tables) -> Section:
    """What it cost, and what failed."""
    regions = tables.findings.failure_regions()
    condition = tables.findings.health()
    return section(
        id="health",
        title="What did it cost, and what failed?",
        said=objectives.failures(regions),
        notes=tuple(shown.notes(condition)),
        tables=[
            table_of(
                "health",
                "Trials, hours and versions",
                "One row per objective. hours: worker hours of all its trials.",
                condition,
                shown.cost,
            ),
            table_of(
                "failures",
                "Failed trials by error",
                "Most frequent first.",
                tables.failures,
                shown.plain,
            ),
            table_of(
                "failure-regions",
                "Failed trials by region of the space",
                "Rates with 95 % intervals; p: against the rest of the objective's trials, "
                "adjusted by Holm.",
                regions,
                shown.failures,
            ),
        ],
    )


def appendix(tables: Tables) -> Section:
    """Numbers of trials, and every formula."""
    rows = [
        {"table": table, "column": column, "meaning": meaning}
        for table, columns in FORMULAS.items()
        for column, meaning in columns.items()
        if meaning and (columns is reasons.COLUMNS or meaning != reasons.COLUMNS.get(column))
    ]
    is_raced = any(sweep.num_skipped for sweep in tables.material.sweeps)
    counts = [
        {
            "objective": sweep.objective,
            "design": ", ".join(sweep.samplers),
            "configurations": len(sweep.configs),
            "of planned": sweep.num_planned,
            "seeds": len(sweep.seeds),
            "trials": sweep.num_trials,
            "failed": sweep.num_failed,
            "stopped": sweep.num_stopped,
            **({"skipped": sweep.num_skipped} if is_raced else {}),
            "scores": int(pd.notna(sweep.without_failed().scores).sum()),
            "swept": ", ".join(f"{name} ({sweep.scales[name]})" for name in sweep.params),
        }
        for sweep in tables.material.sweeps
    ]
    return section(
        id="appendix",
        title="How is every number computed?",
        notes=(
            "Scores are modelled as level of the configuration + noise of the seed, with one "
            "variance of the noise in an objective. A grid is the whole space: its uncertainty is "
            "the seeds'. A qmc or random design is a sample of the space: its configurations are "
            "resampled too. Intervals are 95 %.",
        ),
        tables=[
            table_of(
                "samples",
                "What was measured",
                "One row per objective.",
                pd.DataFrame(counts),
                shown.plain,
            ),
            table_of("formulas", "Columns of the tables", "", pd.DataFrame(rows), shown.plain),
        ],
    )
