"""Every built-in row, as literal tables.

The study file is checked against these rows, `clsweep catalog` prints them, the Parquet columns are
typed by them, and a trial calls the functions that they name.
"""

from clsweep.catalog.builtin.component_rows import COMPONENTS
from clsweep.catalog.builtin.dataset_rows import DATASETS
from clsweep.catalog.builtin.param_rows import MIN_TSNE_POINTS, PARAMS
from clsweep.catalog.builtin.score_rows import DIAGNOSTICS, FINETUNE_SHARES, METRICS

__all__ = [
    "COMPONENTS", "DATASETS", "DIAGNOSTICS", "FINETUNE_SHARES", "METRICS", "MIN_TSNE_POINTS",
    "PARAMS",
]  # fmt: skip
