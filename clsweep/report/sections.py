"""What stands in a report, section by section: sentences behind their gates, tables, figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import pandas as pd

from clsweep.analysis import (
    confirmation,
    health,
    mechanism,
    picks,
    reasons,
    recommend,
    reference,
    tuning,
)
from clsweep.analysis.comparison import table as comparison
from clsweep.analysis.comparison import winners
from clsweep.analysis.robustness import marginals, tolerance
from clsweep.analysis.robustness import table as robustness
from clsweep.analysis.sensitivity import table as sensitivity
from clsweep.display.numbers import count
from clsweep.findings import reproduction as paper
from clsweep.findings import tables as shown
from clsweep.findings.statistics import CellFindings, Findings
from clsweep.report.cells import cell_name, side_by_side, told
from clsweep.report.computed import Say, Tables
from clsweep.report.figures import all as figures
from clsweep.report.figures.encodings import slugs
from clsweep.report.model import Figure, Report, Section, Table
from clsweep.report.sentences import objectives, pairs, reproduction
from clsweep.report.sentences.words import Wording, listed

# What the appendix explains: the name of a table -> its columns.
FORMULAS: Mapping[str, Mapping[str, str]] = {
    "most tables": reasons.COLUMNS,
    "robustness": robustness.COLUMNS,
    "tolerance": tolerance.COLUMNS,
    "sensitivity": sensitivity.COLUMNS,
    "marginals": marginals.COLUMNS,
    "comparison": comparison.COLUMNS,
    "winners": winners.COLUMNS,
    "best of k": tuning.COLUMNS,
    "tuning cost": tuning.COST_COLUMNS,
    "recommendation": recommend.COLUMNS,
    "confirmation": confirmation.FRESH_COLUMNS,
    "health": health.COLUMNS,
    "failure regions": health.REGION_COLUMNS,
    "reproduction": reference.COLUMNS,
    "mechanism": mechanism.COLUMNS,
    "links": mechanism.LINK_COLUMNS,
    "picks": picks.COLUMNS,
}

Sections = Mapping[str, Callable[[Tables], Section | None]]
KEYS = ("objective", "config")  # of a configuration
HEADLINES = 4  # sentences on one question at the top of the report
# What a reader came for, in this order, by the section that has the rest of the sentences.
QUESTIONS = (
    "Robustness",
    "Robustness",
    "Comparison",
    "Sensitivity",
    "Robustness",
    "Health",
    "Recommendation",
)


def build_report(
    findings: Findings, *, within: float | None = None, progress: Say | None = None
) -> Report:
    """Everything that is to be said of `findings`.

    Args:
        findings: one or several studies.
        within: how far from the best still counts as good, as in `Findings.robustness`.
        progress: called with a word on what is computed next.
    """
    near = findings.material.within if within is None else within
    say = progress or (lambda _: None)
    tables = Tables(findings=findings, within=near, say=say)
    material = tables.material
    cells = [Tables(findings=cell, within=near, say=say) for cell in findings.cells]
    names = [cell_name(cell) for cell in findings.cells]
    sections = _made({"reproduction": _reproduction} if cells else _SECTIONS, tables)
    if cells:
        found = [_made(_SECTIONS, cell) for cell in cells]
        sections = (*sections, *side_by_side(findings.cells, found))
    answers = (
        _answers(tables)
        if not cells
        else [
            told(dict(zip(names, said, strict=True)))
            for said in zip(*map(_answers, cells), strict=True)
        ]
    )
    most = max(HEADLINES, len(cells))
    return Report(
        title=material.title,
        facts=_facts(tables),
        verdicts=(
            *material.notes,
            *reproduction.summary(tables.printed),
            *(
                line
                for section, said in zip(QUESTIONS, answers, strict=True)
                for line in _first(said, section, most)
            ),
        ),
        sections=sections,
        sources=material.sources,
        on_test=material.on_test,
    )


def _made(sections: Sections, tables: Tables) -> tuple[Section, ...]:
    """The sections that there is something to say in."""
    made = []
    for name, section in sections.items():
        tables.say(name)
        made.append(section(tables))
    return tuple(section for section in made if section)


def _facts(tables: Tables) -> dict[str, str]:
    material = tables.material
    counts = material.trials["status"].value_counts()
    samplers = dict.fromkeys(name for sweep in material.sweeps for name in sweep.samplers)
    return {
        "Results": ", ".join(material.sources),
        "Metric": f"{material.metric} ({material.unit or 'no unit'}), {material.mode} is best"
        f"{', of the test split' if material.on_test else ''}",
        "Objectives": str(len({sweep.objective for sweep in material.sweeps})),
        **({"Cells": _cells(tables.findings.cells)} if tables.findings.cells else {}),
        "Trials": ", ".join(f"{count(num)} {status}" for status, num in counts.items()),
        "Design": ", ".join(samplers),
        "Near the best": f"within {_words(tables).amount(tables.within)}",
        "Made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _cells(cells: Sequence[CellFindings]) -> str:
    """`4 of dataset and encoder: digits, conv4; ...`."""
    return f"{len(cells)} of {' and '.join(cells[0].levels)}: {'; '.join(map(cell_name, cells))}"


def _answers(tables: Tables) -> list[tuple[str, ...]]:
    """The sentences on each of the `QUESTIONS`."""
    words = _words(tables)
    return [
        objectives.unmeasured(tables.material.sweeps),
        pairs.spreads(tables.spreads, words),
        pairs.means(tables.means, words),
        objectives.effects(tables.findings.sensitivity()),
        objectives.bands(tables.robustness_by, words),
        objectives.failures(tables.findings.failure_regions()),
        objectives.confirmed(tables.material.confirmation, words),
    ]


def _first(sentences: tuple[str, ...], section: str, most: int) -> tuple[str, ...]:
    if len(sentences) <= most + 1:
        return sentences
    return (
        *sentences[:most],
        f"{len(sentences) - most} further sentences on this stand under {section}.",
    )


def _reproduction(tables: Tables) -> Section | None:
    """A paper's tables; nothing where the studies have no printed numbers."""
    printed = tables.printed
    if printed.empty:
        return None
    parts = paper.layouts(printed)
    measured = [part for part in parts if part.is_measured]
    names = slugs("paper", [f"{part.item} {part.title}" for part in measured])
    return Section(
        id="reproduction",
        title="Reproduction: the paper's numbers beside what was measured",
        sentences=(*reproduction.summary(printed), *reproduction.differing(printed)),
        notes=(*paper.remarks(printed), *paper.unmeasured(parts)),
        tables=tuple(
            Table(
                name=name,
                title=f"{part.paper}, {part.item}: {part.title}",
                caption=paper.legend(part.rows),
                frame=part.rows,
                shown=part.shown,
            )
            for name, part in zip(names, measured, strict=True)
        ),
        figures=tuple(figures.reproduction_figures(measured, tables.material)),
    )


def _health(tables: Tables) -> Section:
    regions = tables.findings.failure_regions()
    condition = tables.findings.health()
    return Section(
        id="health",
        title="Health of the study",
        sentences=objectives.failures(regions),
        notes=tuple(shown.notes(condition)),
        tables=_tables(
            _table(
                "health",
                "Trials, hours and versions",
                "One row per objective.",
                condition,
                shown.plain,
            ),
            _table(
                "failures",
                "Failed trials by error",
                "Most frequent first.",
                tables.failures,
                shown.plain,
            ),
            _table(
                "failure-regions",
                "Failed trials by region of the space",
                "Rates with 95 % intervals; p: against the rest of the objective's trials, "
                "adjusted by Holm.",
                regions,
                shown.failures,
            ),
        ),
        figures=(),
    )


def _robustness(tables: Tables) -> Section:
    words, within = _words(tables), tables.within
    near = shown.points(within)
    spread = tables.findings.robustness(within=within)
    return Section(
        id="robustness",
        title="Robustness: how much depends on the hyperparameters",
        sentences=(
            *objectives.unmeasured(tables.material.sweeps),
            *pairs.spreads(tables.spreads, words),
            *objectives.bands(tables.robustness_by, words),
        ),
        notes=tuple(shown.notes(spread)),
        tables=_tables(
            _table(
                "robustness",
                f"Spread of {tables.material.metric} over the swept space",
                shown.ROBUSTNESS_LEGEND.format(within=near),
                spread,
                lambda frame: shown.robustness(frame, within=within),
            ),
            _table(
                "robustness-more",
                "Regret, tolerance and worst settings",
                shown.MORE_LEGEND.format(within=near),
                spread,
                shown.robustness_more,
            ),
            _table(
                "robustness-by-parameter",
                "Each hyperparameter alone, the others averaged over",
                shown.ROBUSTNESS_BY_LEGEND.format(within=near),
                tables.robustness_by,
                lambda frame: shown.robustness_by(frame, within=within),
            ),
        ),
        figures=_figures(
            figures.robustness_forest(spread, tables.material),
            figures.tolerance_curves(tables.findings.tolerance(), tables.material),
        ),
    )


def _sensitivity(tables: Tables) -> Section:
    material = tables.material
    effects = tables.findings.sensitivity()
    return Section(
        id="sensitivity",
        title="Sensitivity: which hyperparameter matters",
        sentences=objectives.effects(effects),
        notes=tuple(shown.notes(effects)),
        tables=_tables(
            _table(
                "sensitivity",
                f"Shares of the variance of {material.metric}",
                shown.SENSITIVITY_LEGEND,
                effects,
                shown.sensitivity,
            )
        ),
        figures=_figures(
            *figures.sensitivity_figures(effects, material),
            *figures.marginal_figures(tables.findings.marginals(), material),
            *figures.heatmap_figures(material, effects),
        ),
    )


def _comparison(tables: Tables) -> Section:
    words, material = _words(tables), tables.material
    return Section(
        id="comparison",
        title="Comparison: which objective is better, and where",
        sentences=(
            *pairs.means(tables.means, words),
            *objectives.best_regions(tables.winners, words),
        ),
        notes=tuple(dict.fromkeys([*shown.notes(tables.means), *shown.notes(tables.spreads)])),
        tables=_tables(
            _comparison_table(tables, "mean", tables.means),
            _comparison_table(tables, "std", tables.spreads),
            _comparison_table(tables, "within", tables.shares),
            _table(
                "winners",
                "Who is ahead at each value",
                "lead: over the next objective, with its 95 % interval; p adjusted by Holm.",
                tables.winners,
                shown.winners,
            ),
        ),
        figures=_figures(
            figures.difference_forest(tables.means, material),
            figures.ratio_forest(tables.spreads, material),
            *figures.winner_figures(tables.winners, material),
        ),
    )


def _comparison_table(tables: Tables, stat: str, frame: pd.DataFrame) -> Table | None:
    title = shown.COMPARISON_TITLES[stat].format(
        metric=tables.material.metric, within=shown.points(tables.within)
    )
    legend = shown.COMPARISON_LEGENDS[stat].format(within=shown.points(tables.within))
    return _table(f"comparison-{stat}", title, legend, frame, shown.comparison)


def _tuning(tables: Tables) -> Section:
    cost = tables.findings.tuning_cost(within=tables.within)
    return Section(
        id="tuning",
        title="Tuning cost: how many tries it takes",
        sentences=objectives.tuning(cost, _words(tables)),
        notes=tuple(shown.notes(cost)),
        tables=_tables(
            _table(
                "tuning-cost",
                "Tries to come near the best, and the gain over the default",
                "Tries are random configurations of the space; the best of them is picked on other "
                "seeds than it is scored on.",
                cost,
                lambda frame: shown.tuning_cost(frame, within=tables.within),
            )
        ),
        figures=_figures(figures.best_of_k_curves(tables.findings.best_of_k(), tables.material)),
    )


def _mechanism(tables: Tables) -> Section:
    by = tables.mechanism_by
    measured = tables.findings.mechanism(by=by)
    linked = tables.findings.links()
    return Section(
        id="mechanism",
        title="Mechanism: what goes with the scores",
        sentences=objectives.associations(linked, _words(tables)),
        notes=tuple(dict.fromkeys([*shown.notes(measured), *shown.notes(linked)])),
        tables=_tables(
            _table(
                "mechanism",
                f"{tables.material.metric} and the diagnostics{f' by {by}' if by else ''}",
                "Means over the configurations, each the mean of its finished trials.",
                measured,
                shown.plain,
            ),
            _table(
                "links",
                "Diagnostics that rise or fall with the metric",
                "Spearman's rank correlation over the configurations, with 95 % intervals: "
                "association, not cause.",
                linked,
                shown.links,
            ),
        ),
        figures=_figures(*figures.histogram_figures(tables.material)),
    )


def _picks(tables: Tables) -> Section | None:
    """Scores without labels; nothing where the trials have none."""
    picked = tables.findings.picks()
    if picked.empty:
        return None
    return Section(
        id="picks",
        title="Without labels: what other scores would have picked",
        sentences=(),
        notes=tuple(shown.notes(picked)),
        tables=_tables(
            _table(
                "picks",
                f"Scores without labels as judges of {tables.material.metric}",
                f"With 95 % intervals. {shown.PICKS_LEGEND}.",
                picked,
                shown.picks,
            )
        ),
        figures=(),
    )


def _recommendation(tables: Tables) -> Section:
    confirmed = tables.material.confirmation
    recommended = tables.findings.recommend()
    return Section(
        id="recommendation",
        title="Recommendation: which setting to use",
        sentences=objectives.confirmed(confirmed, _words(tables)),
        notes=(*_to_confirm(tables, recommended), *shown.notes(recommended)),
        tables=_tables(
            _table(
                "recommendation",
                "The best setting, and the one whose worst neighbour is best",
                shown.RECOMMENDATION_LEGEND,
                recommended,
                lambda frame: shown.recommendation(frame, confirmed),
            ),
            _table("confirmation", "On fresh seeds and the test set", "", confirmed, shown.plain),
        ),
        figures=_figures(figures.confirmation_figure(tables.material)),
    )


def _to_confirm(tables: Tables, recommended: pd.DataFrame) -> list[str]:
    """What is left to confirm, a sentence a folder: the best configurations that have finished on
    all seeds and have not run again on fresh ones.
    """
    confirmed, sweeps = tables.material.confirmation, tables.material.sweeps
    known = set() if confirmed.empty else set(zip(*(confirmed[key] for key in KEYS), strict=True))
    num_seeds = {sweep.objective: len(sweep.seeds) for sweep in sweeps}
    best = recommended.query("kind == 'best'")
    left: dict[str, list[str]] = {}
    for row in best.to_dict("records"):
        name, folder = row["objective"], tables.material.confirmable.get(row["objective"])
        is_whole = row["num_seeds"] == num_seeds[name]
        if folder and is_whole and tuple(row[key] for key in KEYS) not in known:
            left.setdefault(folder, []).append(name)
    return [
        f"The best of {listed(names)} on fresh seeds and on the test set: clsweep confirm {folder}."
        for folder, names in left.items()
    ]


def _trials(tables: Tables) -> Section:
    return Section(
        id="trials",
        title="The trials",
        sentences=(),
        notes=(),
        tables=(),
        figures=_figures(
            *figures.scatter_figures(tables.material, tables.findings.sensitivity()),
            figures.pairing_figure(tables.material),
            *figures.point_figures(tables.material),
        ),
    )


def _appendix(tables: Tables) -> Section:
    rows = [
        {"table": table, "column": column, "meaning": meaning}
        for table, columns in FORMULAS.items()
        for column, meaning in columns.items()
        if meaning and (columns is reasons.COLUMNS or meaning != reasons.COLUMNS.get(column))
    ]
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
            "scores": int(pd.notna(sweep.without_failed().scores).sum()),
            "swept": ", ".join(f"{name} ({sweep.scales[name]})" for name in sweep.params),
        }
        for sweep in tables.material.sweeps
    ]
    return Section(
        id="appendix",
        title="Appendix: numbers of trials, and every formula",
        sentences=(),
        notes=(
            "Scores are modelled as level of the configuration + noise of the seed, with one "
            "variance of the noise in an objective. A grid is the whole space: its uncertainty is "
            "the seeds'. A qmc or random design is a sample of the space: its configurations are "
            "resampled too. Intervals are 95 %.",
        ),
        tables=_tables(
            _table(
                "samples",
                "What was measured",
                "One row per objective.",
                pd.DataFrame(counts),
                shown.plain,
            ),
            _table("formulas", "Columns of the tables", "", pd.DataFrame(rows), shown.plain),
        ),
        figures=(),
    )


_SECTIONS: Sections = {
    "reproduction": _reproduction,
    "robustness": _robustness,
    "sensitivity": _sensitivity,
    "comparison": _comparison,
    "tuning cost": _tuning,
    "mechanism": _mechanism,
    "without labels": _picks,
    "recommendation": _recommendation,
    "trials": _trials,
    "health": _health,
    "appendix": _appendix,
}


def _words(tables: Tables) -> Wording:
    material = tables.material
    return Wording(
        metric=material.metric, unit=material.unit, mode=material.mode, within=tables.within
    )


def _table(
    name: str,
    title: str,
    caption: str,
    frame: pd.DataFrame,
    show: Callable[[pd.DataFrame], pd.DataFrame],
) -> Table | None:
    return (
        None
        if frame.empty
        else Table(name=name, title=title, caption=caption, frame=frame, shown=show(frame))
    )


def _tables(*tables: Table | None) -> tuple[Table, ...]:
    return tuple(table for table in tables if table is not None)


def _figures(*figures: Figure | None) -> tuple[Figure, ...]:
    return tuple(figure for figure in figures if figure is not None)
