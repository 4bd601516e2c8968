"""Every built-in row, as literal tables.

The study file is checked against these rows, `clsweep catalog` prints them, the Parquet columns are
typed by them, and a trial calls the functions that they name.
"""

from clsweep.catalog.builtin.components import COMPONENTS
from clsweep.catalog.builtin.datasets import DATASETS
from clsweep.catalog.builtin.parameters import MIN_TSNE_POINTS, PARAMS
from clsweep.catalog.builtin.scores import DIAGNOSTICS, FINETUNE_SHARES, METRICS

__all__ = [
    "COMPONENTS", "DATASETS", "DIAGNOSTICS", "FINETUNE_SHARES", "METRICS", "MIN_TSNE_POINTS",
    "PARAMS",
]  # fmt: skip
