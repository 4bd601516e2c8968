"""What is reached without training, in a sentence."""

from __future__ import annotations

import pandas as pd

from clsweep.catalog.ownership import metric_params, reference_params, yardstick_params
from clsweep.display.numbers import fixed, setting


def reference_notes(references: pd.DataFrame, *, metric: str) -> list[str]:
    """What is reached without training, one line; told apart by what the metric depends on."""
    frame = references.dropna(subset=[metric]) if metric in references else pd.DataFrame()
    if frame.empty:
        return []
    others = set(yardstick_params()) - set(metric_params(metric))  # of the other metrics
    by = [
        n for n in reference_params() if n not in others and n in frame and frame[n].notna().any()
    ]
    by = ["dataset", *by] if frame["dataset"].nunique() > 1 else by
    frame = frame.drop_duplicates(["reference", "seed", *by])
    parts = []
    for kind, group in frame.groupby("reference", sort=True):
        differing = [n for n in by if n != "encoder" and group[n].nunique(dropna=False) > 1]
        for _, seeds in group.groupby(by, dropna=False):
            values = seeds[differing].iloc[0].dropna()
            named = ", ".join(f"{n} {setting(value)}" for n, value in values.items())
            encoder = f" {seeds['encoder'].iloc[0]}" if kind == "untrained" else ""
            spread = (
                f" (sd {fixed(seeds[metric].std())}, {len(seeds)} seeds)" if len(seeds) > 1 else ""
            )
            label = f"{str(kind).replace('_', ' ')}{encoder}{f' ({named})' if named else ''}"
            parts.append(f"{label} {fixed(seeds[metric].mean())}{spread}")
    return [f"without training, {metric}: {'; '.join(parts)}"]
