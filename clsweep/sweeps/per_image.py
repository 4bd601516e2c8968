"""Which images trials have right, as the analysis takes it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from clsweep.analysis.image_intervals import TrialHits, image_parts
from clsweep.analysis.score_table import adjusted_for_seeds, drop_nan_columns, selection_bias
from clsweep.results.folder import ResultsFolder
from clsweep.results.reading import StudyTables, to_frame

_COLUMNS = ["objective", "config", "score", "images", "num_images", "bits"]


def hits_in(
    folder: ResultsFolder, trials: pd.DataFrame, metric: str, *, split: str, column: str
) -> pd.DataFrame:
    """One row a finished trial that says which images it has right by a metric on a split:
    `COLUMNS`; none where one does not, as intervals of a table are for the same images. `column` of
    the trials has the score.
    """
    table = folder.side_table("hits")
    is_asked = pc.and_(pc.equal(table["metric"], metric), pc.equal(table["split"], split))
    rows = to_frame(table.filter(is_asked).drop_columns(["metric", "split"]))
    if rows.empty or column not in trials:
        return pd.DataFrame(columns=_COLUMNS)
    finished = trials[trials["status"] == "finished"]
    known = finished[["trial_id", "objective", "config", column]].rename(columns={column: "score"})
    known = known.dropna(subset="score")
    merged = rows.merge(known, on="trial_id")
    return merged.loc[:, _COLUMNS] if len(merged) == len(known) else merged.loc[[], _COLUMNS]


def lucky(study: StudyTables, metric: str, mode: str) -> dict[str, float]:
    """Objective -> by how much its best look too high, or too low where the lowest is best, as the
    scored images helped to pick them. An estimate: one the other way is noise, and 0.
    """
    sign = 1.0 if mode == "max" else -1.0
    place = {"split": study.score_on, "column": metric}
    ended = to_frame(study.trials_table)  # objectives with their cell, as confirmed ones have it
    hits = TrialHits(partial(hits_in, study.folder, ended, metric, **place))
    finished = ended[ended["status"] == "finished"].dropna(subset=metric)
    bias = {}
    for name, trials in finished.groupby("objective"):
        table = trials.pivot(index="config", columns="seed", values=metric)
        scores = table.to_numpy(dtype=float)
        counts = np.isfinite(scores).sum(axis=1)
        images = hits.of(str(name), sign, table.index.to_numpy(), counts, counts)
        values = drop_nan_columns(adjusted_for_seeds(sign * scores))
        bias[str(name)] = sign * max(0.0, selection_bias(values, image_parts(images)))
    return bias
