"""Levels of the best configurations of a search on seeds that took no part in picking them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd
from scipy import special

from clsweep.analysis.image_intervals import TrialHits

FRESH_COLUMNS = (
    "fresh",
    "fresh_low",
    "fresh_high",
    "fresh_seeds",
    "fresh_failed",
    "test",
    "test_low",
    "test_high",
    "difference",
)


def confirmation(
    best: pd.DataFrame,
    fresh: pd.DataFrame,
    *,
    metric: str,
    limits: tuple[float, float] = (-math.inf, math.inf),
    hits: Mapping[str, TrialHits] | None = None,
    luck: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """`best` with the columns of `FRESH_COLUMNS`, without the configurations that no fresh seed has
    ended for.

    The 95 % interval is that of a mean of normal values: mean +- t_{n-1} sd / sqrt(n); where the
    hits are known, with that of new images.

    Args:
        best: one row a configuration: objective, config and search, its score there.
        fresh: one row a trial on a fresh seed: objective, config, status, `metric` and, unless
            there is no test split, `test_<metric>`.
        metric: name of the metric.
        limits: the values that it can take; the intervals end there.
        hits: of the trials on fresh seeds, by column of `fresh`.
        luck: objective -> by how much the images that picked make its best look too high, below 0
            too low; the test split has others.
    """
    trials = dict(iter(fresh.groupby(["objective", "config"])))
    rows = []
    for row in best.to_dict("records"):
        group = trials.get((row["objective"], row["config"]))
        if group is None:
            continue
        finished = group[group["status"] == "finished"]
        for name, column in {"fresh": metric, "test": f"test_{metric}"}.items():
            scores = finished.get(column, pd.Series(dtype="float64")).dropna()
            num = len(scores)
            mean, half = scores.mean() if num else math.nan, math.nan
            if num > 1:
                half = special.stdtrit(num - 1, 0.975) * scores.std(ddof=1) / math.sqrt(num)
                if hits and column in hits:
                    of_images = hits[column].half_width(row["objective"], row["config"])
                    half = math.hypot(half, of_images)
            lucky = (luck or {}).get(row["objective"], 0.0) if name == "fresh" else 0.0
            low = max(mean - half - max(0.0, lucky), limits[0])
            high = min(mean + half - min(0.0, lucky), limits[1])
            row |= {name: float(mean), f"{name}_low": float(low), f"{name}_high": float(high)}
        row["fresh_seeds"] = len(finished)
        row["fresh_failed"] = int((group["status"] == "failed").sum())
        rows.append({**row, "difference": row["search"] - row["fresh"]})
    return pd.DataFrame(rows, columns=[*best.columns, *FRESH_COLUMNS])
