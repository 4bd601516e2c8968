"""What a reader wants to see first: who stands where, at which setting, how sure, at what cost; and
how training went there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from clsweep.catalog import COMPONENT, METRIC

if TYPE_CHECKING:
    import pandas as pd

    from clsweep.findings.material import Material

COLUMNS = {
    "objective": "name; of a reference what it is",
    "kind": '"objective", or "reference": what is reached without training',
    "at": "swept hyperparameters of its best configuration",
    "score": "mean of that configuration over the seeds; picked on its own noise, so optimistic. "
    "Of a reference the mean over its seeds",
    "low": "t-interval of score; none of a reference",
    "high": "",
    "num_seeds": "seeds that score rests on",
    "fresh": "mean of the same configuration on fresh seeds, where clsweep confirm has run it",
    "fresh_low": "its interval",
    "fresh_high": "",
    "sd_star": "spread over the swept space with seed noise taken out",
    "sd_star_low": "its interval",
    "sd_star_high": "",
    "share_within": "share of the swept space near the best",
    "share_low": "its interval",
    "share_high": "",
    "trials": "trials that ended",
    "hours": "worker hours of all its trials",
}


def leaderboard(
    material: Material,
    *,
    recommended: pd.DataFrame,
    robustness: pd.DataFrame,
    health: pd.DataFrame,
    confirmation: pd.DataFrame,
    references: pd.DataFrame,
) -> pd.DataFrame:
    """One row per objective and reference with the columns of `COLUMNS`, the best score first.

    The tables are those of `Findings` by these names, and two of its side tables.
    """
    import pandas as pd

    best = recommended.query("kind == 'best'").set_index("objective")
    spread, cost = robustness.set_index("objective"), health.set_index("objective")
    swept = {sweep.objective for sweep in material.sweeps if sweep.params}
    again = _confirmed(confirmation)
    rows = []
    for name in best.index:
        row: dict[str, Any] = {"objective": name, "kind": "objective", **best.loc[name].to_dict()}
        row |= spread.loc[name].to_dict() | cost.loc[name].to_dict()
        row |= again.get((name, best.loc[name, "config"]), {})
        row |= {"num_seeds": best.loc[name, "num_seeds"], "kind": "objective"}
        rows.append(row if name in swept else row | {"at": ""})
    rows += _references(references, material.metric)
    frame = pd.DataFrame(rows).reindex(columns=list(COLUMNS))
    numbers = [name for name in COLUMNS if name not in ("objective", "kind", "at")]
    frame[numbers] = frame[numbers].astype(float)
    return frame.sort_values(
        "score", ascending=material.mode == "min", kind="stable", ignore_index=True
    )


def _confirmed(table: pd.DataFrame) -> Mapping[tuple[str, Any], Mapping[str, Any]]:
    names = ("fresh", "fresh_low", "fresh_high")
    return {
        (row["objective"], row["config"]): {name: row[name] for name in names}
        for row in table.to_dict("records")
    }


def _references(table: pd.DataFrame, metric: str) -> list[dict[str, Any]]:
    """A row of each way to have features without training, and of each encoder."""
    if table.empty or metric not in table:
        return []
    known = table[table[metric].notna()]
    several = known.loc[known["reference"] != "raw_pixels", "encoder"].nunique() > 1
    by = ["reference", "encoder"] if several else ["reference"]
    rows = []
    for _, group in known.groupby(by, sort=False, dropna=False):
        first = group.iloc[0]
        name = str(first["reference"]).replace("_", " ")
        if is_encoder := first["reference"] != "raw_pixels":
            name += f" {first['encoder'] if several else 'encoder'}"
        seeds = group.drop_duplicates("seed") if is_encoder else group.head(1)
        rows.append(
            {
                "objective": name,
                "kind": "reference",
                "score": float(seeds[metric].mean()),
                "num_seeds": len(seeds),
            }
        )
    return rows


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
