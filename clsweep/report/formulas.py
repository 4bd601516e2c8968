"""The formula of every column of every statistic, for the appendix and the documentation."""

from __future__ import annotations

from collections.abc import Mapping

from clsweep.analysis import (
    confirmation,
    health,
    learning,
    mechanism,
    pareto,
    picks,
    reasons,
    recommend,
    reference,
    searching,
    tuning,
)
from clsweep.analysis.comparison import table as comparison
from clsweep.analysis.comparison import winners
from clsweep.analysis.robustness import marginals
from clsweep.analysis.robustness import table as robustness
from clsweep.analysis.sensitivity import table as sensitivity
from clsweep.findings import leaderboard

# What the appendix explains: the name of a table -> its columns.
FORMULAS: Mapping[str, Mapping[str, str]] = {
    "most tables": reasons.COLUMNS,
    "leaderboard": leaderboard.COLUMNS,
    "robustness": robustness.COLUMNS,
    "tolerance": robustness.TOLERANCE_COLUMNS,
    "sensitivity": sensitivity.COLUMNS,
    "marginals": marginals.COLUMNS,
    "comparison": comparison.COLUMNS,
    "winners": winners.COLUMNS,
    "search history": searching.HISTORY_COLUMNS,
    "best of a search": searching.TOP_COLUMNS,
    "importance": searching.IMPORTANCE_COLUMNS,
    "stopped early": searching.SAVED_COLUMNS,
    "best of k": tuning.COLUMNS,
    "tuning cost": tuning.COST_COLUMNS,
    "recommendation": recommend.COLUMNS,
    "confirmation": confirmation.FRESH_COLUMNS,
    "learning curves": learning.COLUMNS,
    "health": health.COLUMNS,
    "failure regions": health.REGION_COLUMNS,
    "reproduction": reference.COLUMNS,
    "mechanism": mechanism.COLUMNS,
    "links": mechanism.LINK_COLUMNS,
    "picks": picks.COLUMNS,
    "accuracy against cost": pareto.COLUMNS,
}
