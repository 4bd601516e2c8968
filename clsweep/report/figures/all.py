"""Every figure of a report: tables of `clsweep.analysis` -> `Figure`s, or None where there is
nothing to draw.

A figure has no theme of its own; `themed` gives it one, `to_svg` makes a picture of it.
"""

from clsweep.report.figures.costs import pareto_figure
from clsweep.report.figures.curves import best_of_k_curves, marginal_figures, tolerance_curves
from clsweep.report.figures.distributions import (
    histogram_figures,
    pairing_figure,
    point_figures,
    scatter_figures,
)
from clsweep.report.figures.forests import (
    confirmation_figure,
    difference_forest,
    ratio_forest,
    robustness_forest,
    sensitivity_figures,
)
from clsweep.report.figures.learning import learning_figures, under_way_figure
from clsweep.report.figures.maps import heatmap_figures, winner_figures
from clsweep.report.figures.reproduction import reproduction_figures
from clsweep.report.figures.searches import history_figure, parallel_figures
from clsweep.report.figures.theme import svg_to_png, themed, to_svg

__all__ = [
    "best_of_k_curves", "confirmation_figure", "difference_forest", "heatmap_figures",
    "histogram_figures", "history_figure", "learning_figures", "marginal_figures", "pairing_figure",
    "parallel_figures", "pareto_figure", "point_figures", "ratio_forest", "reproduction_figures",
    "robustness_forest", "scatter_figures", "sensitivity_figures", "svg_to_png", "themed", "to_svg",
    "tolerance_curves", "under_way_figure", "winner_figures",
]  # fmt: skip
