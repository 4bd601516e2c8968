"""What stands in a report, section by section: sentences behind their gates, tables, figures.

Sections stand in the order of a reader's questions; one that has nothing to say is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pandas as pd

from clsweep.display.numbers import count
from clsweep.findings import reproduction as paper
from clsweep.findings import tables as shown
from clsweep.findings.ahead import ask_ahead
from clsweep.findings.statistics import Findings
from clsweep.report import cells, conduct, first
from clsweep.report.computed import Say, Tables, section, table_of, words_of
from clsweep.report.figures import configurations, curves, distributions, forests, maps
from clsweep.report.figures.encodings import slugs
from clsweep.report.model import Figure, Report, Section, Table
from clsweep.report.sentences import answer, objectives, pairs
from clsweep.report.sentences.glossary import terms_in

Made = Callable[[Sequence[Figure]], object]

TITLES = {
    "reproduction": "Does it agree with the paper?",
    "comparison": "Which objective is better, and where?",
    "robustness": "How much depends on the settings?",
    "sensitivity": "Which hyperparameter matters?",
    "recommendation": "What should be set?",
    "tuning": "How many tries does tuning take?",
    "mechanism": "What goes with the scores?",
    "picks": "What would be picked without labels?",
}


def build_report(
    findings: Findings,
    *,
    within: float | None = None,
    progress: Say | None = None,
    made: Made = lambda _: None,
) -> Report:
    """Everything that is to be said of `findings`.

    Args:
        findings: one or several studies.
        within: how far from the best still counts as good, as in `Findings.robustness`.
        progress: called with a word on what is computed next.
        made: called with figures of the report, as soon as they are there.
    """
    near = findings.material.within if within is None else within
    say = progress or (lambda _: None)
    tables = Tables(findings=findings, within=near, say=say)
    if findings.cells:
        each = [_report(Tables(findings=cell, within=near, say=say)) for cell in findings.cells]
        report = cells.of_cells(findings.cells, each, _reproduction(tables), first.board(tables))
    else:
        report = _report(tables, made)
    report = replace(
        report,
        title=tables.material.title,
        facts=_facts(tables),
        sources=tables.material.sources,
        on_test=tables.material.on_test,
    )
    return replace(report, terms=terms_in(_texts(report)))


def _report(tables: Tables, made: Made = lambda _: None) -> Report:
    """What is to be said of trials that are compared with each other."""
    made(())
    ask_ahead(tables.findings, tables.ahead())
    hero, sections = first.hero(tables), []
    made(hero)
    above = {figure.name for figure in hero}
    for name, make in _SECTIONS.items():
        if name in OF_THE_SPACE and not tables.says_of_space:
            continue
        tables.say(name)
        part = make(tables)
        part = replace(part, figures=tuple(f for f in part.figures if f.name not in above))
        made(part.figures)
        if not part.is_empty:
            sections.append(part)
    return Report(
        title=tables.material.title,
        question=answer.question(tables.material, tables.board, tables.printed),
        verdicts=first.verdicts(tables),
        notes=first.notes(tables),
        board=first.board(tables),
        hero=hero,
        steps=first.next_steps(tables),
        open=first.unresolved(tables, sections),
        sections=tuple(sections),
    )


def _texts(report: Report) -> Iterator[str]:
    """Whatever a reader may ask the meaning of."""
    yield from (*report.verdicts, *report.notes, *report.open)
    for part in report.sections:
        yield from (*part.sentences, *part.open)
    for table in report.tables:
        yield from (table.title, table.caption, *map(str, table.shown.columns))
        yield from map(str, table.shown.iloc[:, 0] if table.shown.shape[1] else ())
    yield from (figure.caption for figure in report.figures)


def _facts(tables: Tables) -> dict[str, str]:
    material = tables.material
    counts = material.trials["status"].value_counts()
    return {
        "Results": ", ".join(material.sources),
        "Metric": f"{material.metric} ({material.unit or 'no unit'}), {material.mode} is best"
        f"{', of the test split' if material.on_test else ''}",
        "Trials": ", ".join(f"{count(num)} {status}" for status, num in counts.items()),
        **({"Cells": cells.named(tables.findings.cells)} if tables.findings.cells else {}),
        "Near the best": f"within {words_of(tables).amount(tables.within)}",
        "Made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _reproduction(tables: Tables) -> Section:
    """A paper's tables; nothing where the studies have no printed numbers."""
    printed, measured = tables.printed, tables.measured_layouts
    if printed.empty:
        return section(id="reproduction", title=TITLES["reproduction"])
    names = slugs("paper", [f"{part.item} {part.title}" for part in measured])
    return section(
        id="reproduction",
        title=TITLES["reproduction"],
        said=(*answer.summary(printed), *answer.differing(printed)),
        notes=(*paper.remarks(printed), *paper.unmeasured(tables.layouts)),
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
        figures=tuple(curves.reproduction_figures(measured, tables.material)),
    )


def _robustness(tables: Tables) -> Section:
    words, within = words_of(tables), tables.within
    near = shown.points(within)
    spread = tables.findings.robustness(within=within)
    return section(
        id="robustness",
        title=TITLES["robustness"],
        said=(
            *objectives.unmeasured(tables.material.sweeps),
            *pairs.spreads(tables.spreads, words),
            *objectives.bands(tables.robustness_by, words),
        ),
        notes=tuple(shown.notes(spread)),
        tables=[
            table_of(
                "robustness",
                f"Spread of {tables.material.metric} over the swept space",
                shown.ROBUSTNESS_LEGEND.format(within=near),
                spread,
                lambda frame: shown.robustness(frame, within=within),
            ),
            table_of(
                "robustness-more",
                "Regret, tolerance and worst settings",
                shown.MORE_LEGEND.format(within=near),
                spread,
                shown.robustness_more,
            ),
            table_of(
                "robustness-by-parameter",
                "Each hyperparameter alone, the others averaged over",
                shown.ROBUSTNESS_BY_LEGEND.format(within=near),
                tables.robustness_by,
                lambda frame: shown.robustness_by(frame, within=within),
            ),
        ],
        figures=[
            forests.robustness_forest(spread, tables.material),
            curves.tolerance_curves(tables.findings.tolerance(), tables.material),
        ],
    )


def _sensitivity(tables: Tables) -> Section:
    material = tables.material
    effects = tables.findings.sensitivity()
    return section(
        id="sensitivity",
        title=TITLES["sensitivity"],
        said=objectives.effects(effects),
        notes=tuple(shown.notes(effects)),
        tables=[
            table_of(
                "sensitivity",
                f"Shares of the variance of {material.metric}",
                shown.SENSITIVITY_LEGEND,
                effects,
                shown.sensitivity,
            )
        ],
        figures=[
            *forests.sensitivity_figures(effects, material),
            *curves.marginal_figures(tables.findings.marginals(), material),
            *maps.heatmap_figures(material, effects),
        ],
    )


def _comparison(tables: Tables) -> Section:
    words, material = words_of(tables), tables.material
    return section(
        id="comparison",
        title=TITLES["comparison"],
        said=(
            *pairs.means(tables.means, words),
            *objectives.best_regions(tables.winners, words),
        ),
        notes=tuple(dict.fromkeys([*shown.notes(tables.means), *shown.notes(tables.spreads)])),
        tables=[
            _comparison_table(tables, "mean", tables.means),
            _comparison_table(tables, "std", tables.spreads),
            _comparison_table(tables, "within", tables.shares),
            table_of(
                "winners",
                "Who is ahead at each value",
                "lead: over the next objective, with its 95 % interval; p adjusted by Holm.",
                tables.winners,
                shown.winners,
            ),
        ],
        figures=[
            forests.difference_forest(tables.means, material),
            forests.ratio_forest(tables.spreads, material),
            *maps.winner_figures(tables.winners, material),
        ],
    )


def _comparison_table(tables: Tables, stat: str, frame: pd.DataFrame) -> Table | None:
    title = shown.COMPARISON_TITLES[stat].format(
        metric=tables.material.metric, within=shown.points(tables.within)
    )
    legend = shown.COMPARISON_LEGENDS[stat].format(within=shown.points(tables.within))
    return table_of(f"comparison-{stat}", title, legend, frame, shown.comparison)


def _tuning(tables: Tables) -> Section:
    cost = tables.findings.tuning_cost(within=tables.within)
    return section(
        id="tuning",
        title=TITLES["tuning"],
        said=objectives.tuning(cost, words_of(tables)),
        notes=tuple(shown.notes(cost)),
        tables=[
            table_of(
                "tuning-cost",
                "Tries to come near the best, and the gain over the default",
                "Tries are random configurations of the space; the best of them is picked on other "
                "seeds than it is scored on.",
                cost,
                lambda frame: shown.tuning_cost(frame, within=tables.within),
            )
        ],
        figures=[curves.best_of_k_curves(tables.findings.best_of_k(), tables.material)],
    )


def _mechanism(tables: Tables) -> Section:
    by = tables.mechanism_by
    measured = tables.findings.mechanism(by=by)
    linked = tables.findings.links()
    return section(
        id="mechanism",
        title=TITLES["mechanism"],
        said=objectives.associations(linked, words_of(tables)),
        notes=tuple(dict.fromkeys([*shown.notes(measured), *shown.notes(linked)])),
        tables=[
            table_of(
                "mechanism",
                f"{tables.material.metric} and the diagnostics{f' by {by}' if by else ''}",
                "Means over the configurations, each the mean of its finished trials.",
                measured,
                shown.plain,
            ),
            table_of(
                "links",
                "Diagnostics that rise or fall with the metric",
                "Spearman's rank correlation over the configurations, with 95 % intervals: "
                "association, not cause.",
                linked,
                shown.links,
            ),
        ],
        figures=[*distributions.histogram_figures(tables.material)],
    )


def _picks(tables: Tables) -> Section:
    """Scores without labels; nothing where the trials have none."""
    picked = tables.findings.picks()
    return section(
        id="picks",
        title=TITLES["picks"],
        notes=tuple(shown.notes(picked)),
        tables=[
            table_of(
                "picks",
                f"Scores without labels as judges of {tables.material.metric}",
                f"With 95 % intervals. {shown.PICKS_LEGEND}.",
                picked,
                shown.picks,
            )
        ],
    )


def _recommendation(tables: Tables) -> Section:
    confirmed = tables.material.confirmation
    recommended = tables.findings.recommend()
    costs = tables.findings.pareto()
    return section(
        id="recommendation",
        title=TITLES["recommendation"],
        said=objectives.confirmed(confirmed, words_of(tables)),
        notes=tuple(shown.notes(recommended)),
        tables=[
            table_of(
                "recommendation",
                "The best setting, and the one whose worst neighbour is best",
                shown.RECOMMENDATION_LEGEND,
                recommended,
                lambda frame: shown.recommendation(frame[frame["config"].notna()], confirmed),
            ),
            table_of(
                "pareto",
                "Accuracy against cost",
                f"{shown.PARETO_LEGEND}. With 95 % intervals.",
                costs,
                shown.pareto,
            ),
            table_of("confirmation", "On fresh seeds and the test set", "", confirmed, shown.plain),
        ],
        figures=[
            forests.confirmation_figure(tables.material),
            configurations.pareto_figure(costs, tables.material),
        ],
    )


OF_THE_SPACE = ("comparison", "robustness", "sensitivity", "tuning cost")
# In the order of a reader's questions.
_SECTIONS: Mapping[str, Callable[[Tables], Section]] = {
    "reproduction": _reproduction,
    "comparison": _comparison,
    "robustness": _robustness,
    "sensitivity": _sensitivity,
    "recommendation": _recommendation,
    "search": conduct.search,
    "tuning cost": _tuning,
    "learning curves": conduct.learning,
    "mechanism": _mechanism,
    "without labels": _picks,
    "trials": conduct.trials,
    "cost and failures": conduct.health,
    "formulas": conduct.appendix,
}
