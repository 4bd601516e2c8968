"""What stands in a report, section by section: sentences behind their gates, tables, figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pandas as pd

from clsweep.analysis import (
    compare,
    confirmation,
    health,
    marginals,
    mechanism,
    recommend,
    robustness,
    sensitivity,
    tolerance,
    tuning,
    winners,
)
from clsweep.report import contrasts, figures, shown, verdicts
from clsweep.report.parts import Figure, Report, Section, Table
from clsweep.report.tables import Say, Tables
from clsweep.report.wording import Wording

if TYPE_CHECKING:
    from clsweep.report.findings import Findings

FORMULAS: Mapping[str, Mapping[str, str]] = {  # what the appendix explains: the name of a table -> its columns
    "robustness": robustness.COLUMNS,
    "tolerance": tolerance.COLUMNS,
    "sensitivity": sensitivity.COLUMNS,
    "marginals": marginals.COLUMNS,
    "comparison": compare.COLUMNS,
    "winners": winners.COLUMNS,
    "best of k": tuning.COLUMNS,
    "tuning cost": tuning.COST_COLUMNS,
    "recommendation": recommend.COLUMNS,
    "confirmation": confirmation.FRESH_COLUMNS,
    "health": health.COLUMNS,
    "failure regions": health.REGION_COLUMNS,
    "mechanism": mechanism.COLUMNS,
    "links": mechanism.LINK_COLUMNS,
}

HEADLINES = 4  # sentences on one question at the top of the report


def build_report(findings: Findings, *, within: float | None = None, progress: Say | None = None) -> Report:
    """Everything that is to be said of `findings`.

    Args:
        findings: one or several studies.
        within: how far from the best still counts as good, as in `Findings.robustness`.
        progress: called with a word on what is computed next.
    """
    near = findings.material.within if within is None else within
    tables = Tables(findings=findings, within=near, say=progress or (lambda _: None))
    material = tables.material
    return Report(
        title=material.title,
        facts=_facts(tables),
        verdicts=(*material.notes, *_headlines(tables)),
        sections=tuple(section(tables) for section in _SECTIONS),
        sources=material.sources,
    )


def _facts(tables: Tables) -> dict[str, str]:
    material = tables.material
    counts = material.trials["status"].value_counts()
    samplers = dict.fromkeys(name for sweep in material.sweeps for name in sweep.samplers)
    return {
        "Results": ", ".join(material.sources),
        "Metric": f"{material.metric} ({material.unit or 'no unit'}), {material.mode} is best",
        "Objectives": str(len(material.sweeps)),
        "Trials": ", ".join(f"{count:,} {status}" for status, count in counts.items()),
        "Design": ", ".join(samplers),
        "Near the best": f"within {_words(tables).amount(tables.within)}",
        "Made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _headlines(tables: Tables) -> tuple[str, ...]:
    """The sentences at the top: what a reader came for, in the order of the questions, a few on each."""
    words = _words(tables)
    return (
        *verdicts.unmeasured(tables.material.sweeps),
        *_first(contrasts.spreads(tables.spreads, words), "Robustness"),
        *_first(contrasts.means(tables.means, words), "Comparison"),
        *_first(verdicts.effects(tables.sensitivity), "Sensitivity"),
        *_first(verdicts.bands(tables.robustness_by, words), "Robustness"),
        *_first(verdicts.failures(tables.failure_regions), "Health"),
        *_first(verdicts.confirmed(tables.material.confirmation, words), "Recommendation"),
    )


def _first(sentences: tuple[str, ...], section: str) -> tuple[str, ...]:
    if len(sentences) <= HEADLINES + 1:
        return sentences
    return (*sentences[:HEADLINES], f"{len(sentences) - HEADLINES} further sentences on this stand under {section}.")


def _health(tables: Tables) -> Section:
    return Section(
        id="health",
        title="Health of the study",
        sentences=verdicts.failures(tables.failure_regions),
        notes=tuple(shown.notes(tables.health)),
        tables=_tables(
            _table("health", "Trials, hours and versions", "One row per objective.", tables.health, shown.plain),
            _table("failures", "Failed trials by error", "Most frequent first.", tables.failures, shown.plain),
            _table(
                "failure-regions",
                "Failed trials by region of the space",
                "Rates with 95 % intervals; p: against the rest of the objective's trials, adjusted by Holm.",
                tables.failure_regions,
                shown.failures,
            ),
        ),
        figures=(),
    )


def _robustness(tables: Tables) -> Section:
    words, within = _words(tables), tables.within
    legend = shown.ROBUSTNESS_LEGEND.format(within=shown.points(within))
    return Section(
        id="robustness",
        title="Robustness: how much depends on the hyperparameters",
        sentences=(
            *verdicts.unmeasured(tables.material.sweeps),
            *contrasts.spreads(tables.spreads, words),
            *verdicts.bands(tables.robustness_by, words),
        ),
        notes=tuple(shown.notes(tables.robustness)),
        tables=_tables(
            _table(
                "robustness",
                f"Spread of {tables.material.metric} over the swept space",
                legend,
                tables.robustness,
                lambda frame: shown.robustness(frame, within=within),
            ),
            _table(
                "robustness-more",
                "Regret, tolerance and worst settings",
                shown.MORE_LEGEND,
                tables.robustness,
                shown.robustness_more,
            ),
            _table(
                "robustness-by-parameter",
                "Each hyperparameter alone, the others averaged over",
                shown.ROBUSTNESS_BY_LEGEND,
                tables.robustness_by,
                lambda frame: shown.robustness_by(frame, within=within),
            ),
        ),
        figures=_figures(
            figures.robustness_forest(tables.robustness, tables.material),
            figures.tolerance_curves(tables.tolerance, tables.material),
        ),
    )


def _sensitivity(tables: Tables) -> Section:
    material = tables.material
    return Section(
        id="sensitivity",
        title="Sensitivity: which hyperparameter matters",
        sentences=verdicts.effects(tables.sensitivity),
        notes=tuple(shown.notes(tables.sensitivity)),
        tables=_tables(
            _table(
                "sensitivity",
                f"Shares of the variance of {material.metric}",
                shown.SENSITIVITY_LEGEND,
                tables.sensitivity,
                shown.sensitivity,
            ),
        ),
        figures=_figures(
            *figures.sensitivity_figures(tables.sensitivity, material),
            *figures.marginal_figures(tables.marginals, material),
            *figures.heatmap_figures(material, tables.sensitivity),
        ),
    )


def _comparison(tables: Tables) -> Section:
    words, material = _words(tables), tables.material
    return Section(
        id="comparison",
        title="Comparison: which objective is better, and where",
        sentences=(
            *contrasts.means(tables.means, words),
            *verdicts.best_regions(tables.winners, words),
        ),
        notes=tuple(dict.fromkeys([*shown.notes(tables.means), *shown.notes(tables.spreads)])),
        tables=_tables(
            *(_comparison_table(tables, stat, frame) for stat, frame in _pairs(tables)),
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


def _pairs(tables: Tables) -> Iterable[tuple[str, pd.DataFrame]]:
    return {"mean": tables.means, "std": tables.spreads, "within": tables.shares}.items()


def _comparison_table(tables: Tables, stat: str, frame: pd.DataFrame) -> Table | None:
    title = shown.COMPARISON_TITLES[stat].format(metric=tables.material.metric, within=shown.points(tables.within))
    legend = shown.COMPARISON_LEGENDS[stat].format(within=shown.points(tables.within))
    return _table(f"comparison-{stat}", title, legend, frame, shown.comparison)


def _tuning(tables: Tables) -> Section:
    return Section(
        id="tuning",
        title="Tuning cost: how many tries it takes",
        sentences=verdicts.tuning(tables.tuning_cost, _words(tables)),
        notes=tuple(shown.notes(tables.tuning_cost)),
        tables=_tables(
            _table(
                "tuning-cost",
                "Tries to come near the best, and the gain over the default",
                "Tries are random configurations of the space; the best of them is picked on other seeds than it is "
                "scored on.",
                tables.tuning_cost,
                lambda frame: shown.tuning_cost(frame, within=tables.within),
            ),
        ),
        figures=_figures(figures.best_of_k_curves(tables.best_of_k, tables.material)),
    )


def _mechanism(tables: Tables) -> Section:
    by = tables.mechanism_by
    return Section(
        id="mechanism",
        title="Mechanism: what goes with the scores",
        sentences=verdicts.associations(tables.links, _words(tables)),
        notes=tuple(dict.fromkeys([*shown.notes(tables.mechanism), *shown.notes(tables.links)])),
        tables=_tables(
            _table(
                "mechanism",
                f"{tables.material.metric} and the diagnostics{f' by {by}' if by else ''}",
                "Means over the configurations, each the mean of its finished trials.",
                tables.mechanism,
                shown.plain,
            ),
            _table(
                "links",
                "Diagnostics that rise or fall with the metric",
                "Spearman's rank correlation over the configurations, with 95 % intervals: association, not cause.",
                tables.links,
                shown.links,
            ),
        ),
        figures=_figures(*figures.histogram_figures(tables.material)),
    )


def _recommendation(tables: Tables) -> Section:
    confirmed = tables.material.confirmation
    advice = () if len(confirmed) else ("What they keep on fresh seeds and on the test set: run clsweep confirm.",)
    return Section(
        id="recommendation",
        title="Recommendation: which setting to use",
        sentences=verdicts.confirmed(confirmed, _words(tables)),
        notes=(*advice, *shown.notes(tables.recommendation)),
        tables=_tables(
            _table(
                "recommendation",
                "The best setting, and the one whose worst neighbour is best",
                shown.RECOMMENDATION_LEGEND,
                tables.recommendation,
                lambda frame: shown.recommendation(frame, confirmed),
            ),
            _table("confirmation", "On fresh seeds and the test set", "", confirmed, shown.plain),
        ),
        figures=_figures(figures.confirmation_figure(tables.material)),
    )


def _trials(tables: Tables) -> Section:
    return Section(
        id="trials",
        title="The trials",
        sentences=(),
        notes=(),
        tables=(),
        figures=_figures(
            *figures.scatter_figures(tables.material, tables.sensitivity), *figures.point_figures(tables.material)
        ),
    )


def _appendix(tables: Tables) -> Section:
    rows = [
        {"table": table, "column": column, "meaning": meaning}
        for table, columns in FORMULAS.items()
        for column, meaning in columns.items()
        if meaning
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
            "scores": int(pd.notna(sweep.scores).sum()),
            "swept": ", ".join(f"{name} ({sweep.scales[name]})" for name in sweep.params),
        }
        for sweep in tables.material.sweeps
    ]
    return Section(
        id="appendix",
        title="Appendix: numbers of trials, and every formula",
        sentences=(),
        notes=(
            "Scores are modelled as level of the configuration + noise of the seed, with one variance of the noise in "
            "an objective. A grid is the whole space: its uncertainty is the seeds'. A qmc or random design is a "
            "sample of the space: its configurations are resampled too. Intervals are 95 %.",
        ),
        tables=_tables(
            _table("samples", "What was measured", "One row per objective.", pd.DataFrame(counts), shown.plain),
            _table("formulas", "Columns of the tables", "", pd.DataFrame(rows), shown.plain),
        ),
        figures=(),
    )


_SECTIONS: tuple[Callable[[Tables], Section], ...] = (
    _robustness,
    _sensitivity,
    _comparison,
    _tuning,
    _mechanism,
    _recommendation,
    _trials,
    _health,
    _appendix,
)


def _words(tables: Tables) -> Wording:
    material = tables.material
    return Wording(metric=material.metric, unit=material.unit, mode=material.mode, within=tables.within)


def _table(
    name: str, title: str, caption: str, frame: pd.DataFrame, show: Callable[[pd.DataFrame], pd.DataFrame]
) -> Table | None:
    return None if frame.empty else Table(name=name, title=title, caption=caption, frame=frame, shown=show(frame))


def _tables(*tables: Table | None) -> tuple[Table, ...]:
    return tuple(table for table in tables if table is not None)


def _figures(*figures: Figure | None) -> tuple[Figure, ...]:
    return tuple(figure for figure in figures if figure is not None)
