"""How training went in the best configuration of each objective."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from clsweep.catalog import COMPONENT, METRIC

if TYPE_CHECKING:
    import pandas as pd

    from clsweep.findings.material import Material


def learning_of(
    material: Material,
    epochs_of: Callable[[Collection[str]], pd.DataFrame],
    recommended: pd.DataFrame,
) -> pd.DataFrame:
    """`analysis.learning` of the best configuration of each objective; epochs_of: trial ids ->
    their epochs.
    """
    from clsweep.analysis.learning import learning_curves

    best = recommended[recommended["kind"] == "best"]
    keys = set(zip(best["objective"], best["config"], strict=True))
    trials = material.trials
    chosen = trials[trials["status"] == "finished"]
    picked = [key in keys for key in zip(chosen["objective"], chosen["config"], strict=True)]
    chosen = chosen.loc[picked]  # of no trial, an empty list would choose among columns
    known = METRIC.get(material.metric)
    return learning_curves(
        epochs_of(set(chosen["trial_id"])),
        chosen,
        metric=material.metric,
        pairs={row["trial_id"]: pairs_of_views(row) for row in chosen.to_dict("records")},
        limits=known.limits if known else (-float("inf"), float("inf")),
    )


def pairs_of_views(trial: Mapping[Any, Any]) -> float:
    """Pairs of views of an image that a trial compares: t (V - 1) - t (t - 1) / 2 for t target
    views of V (ECPP Table 1); NaN where the catalog does not know.
    """
    views = COMPONENT["views"].get(str(trial.get("views")))
    if views is None:
        return float("nan")
    num = _count(trial.get("num_views"), 2) if views.name != "two" else 2
    num_targets = {"all": num, "first": 1, "global": _count(trial.get("num_global_views"), 2)}
    targets = num_targets[views.targets]
    return targets * (num - 1) - targets * (targets - 1) / 2


def _count(value: Any, otherwise: int) -> int:
    return int(value) if value is not None and value == value else otherwise
