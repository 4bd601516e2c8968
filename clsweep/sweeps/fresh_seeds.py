"""The best configurations of a study, and what they are worth on fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from clsweep.catalog import METRIC
from clsweep.errors import RequestError
from clsweep.results.reading import CellTables, StudyTables, to_frame
from clsweep.results.standings import Ranking, Standings, describe_params
from clsweep.study.schema import ConfirmSection
from clsweep.study.space import declared_axes, only_swept_rows

if TYPE_CHECKING:
    import pandas as pd


def on_fresh_seeds(
    study: StudyTables,
    *,
    top: int | None = None,
    new_images: bool = True,
    by: tuple[str, str] | None = None,
) -> pd.DataFrame:
    """Scores of the best configurations on fresh seeds, see `Results.confirm`; with intervals
    for new images, or for those that were scored; by the study's metric and its mode, or another.
    RequestError where nothing has been confirmed.
    """
    import pandas as pd

    from clsweep.analysis.confirmation import confirmation
    from clsweep.analysis.image_intervals import TrialHits
    from clsweep.sweeps.per_image import hits_in, lucky

    if isinstance(study, CellTables):
        return study.frame_here(on_fresh_seeds(study.whole, top=top, new_images=new_images, by=by))
    if not study.is_confirmed:
        how = f"clsweep confirm {study.path} does it"
        raise RequestError(f"{study.path}: nothing is confirmed yet; {how}")
    metric, mode = by or (study.metric, study.mode)
    axes = declared_axes(study.study, study.params)
    names = dict.fromkeys(name for each in axes.values() for name in each)
    rows = study.folder.trials(["objective", "config", *names]).to_pylist()
    at = {  # the swept values of every configuration that has a row
        (row["objective"], row["config"]): describe_params(row, axes.get(row["objective"], ()))
        for row in only_swept_rows(study.study, rows)
    }
    best = [
        (r.objective, r.config, r.rank, at[r.objective, r.config], r.score, r.num_seeds)
        for each in ranking(study, metric, mode)
        for r in each.configs[:top]
    ]
    columns = ["objective", "config", "rank", "at", "search", "search_seeds"]
    limits = METRIC[metric].limits if metric in METRIC else (-math.inf, math.inf)
    picked = pd.DataFrame(best, columns=columns)
    fresh, splits = _fresh_trials(study), {metric: study.score_on}
    hits = {
        column: TrialHits(partial(hits_in, study.folder.confirmation, fresh, metric, **place))
        for column, split in (splits | {f"test_{metric}": "test"}).items()
        if (place := {"split": split, "column": column})
    }
    more: dict[str, Any] = {"hits": hits, "luck": lucky(study, metric, mode)} if new_images else {}
    return confirmation(picked, fresh, metric=metric, limits=limits, **more)


def _fresh_trials(study: StudyTables) -> pd.DataFrame:
    """The trials of all rounds of `clsweep confirm`, without seeds that joined the search since."""
    trials = to_frame(study.folder.confirmation.trials())
    return trials[~trials["seed"].isin(study.plan["seed"])]


def fresh_scores(study: StudyTables, metric: str) -> dict[str, dict[int, dict[int, float]]]:
    """Objective -> configuration -> fresh seed -> the metric, NaN of a failed trial."""
    if not study.is_confirmed:
        return {}
    whole = study.whole if isinstance(study, CellTables) else study
    trials = _fresh_trials(whole)
    if isinstance(study, CellTables):
        trials = study.frame_here(trials)
    scores_of: dict[str, dict[int, dict[int, float]]] = {}
    if metric not in trials:
        return scores_of
    scores = trials[metric].where(trials["status"] == "finished").astype(float)
    for row in zip(trials["objective"], trials["config"], trials["seed"], scores, strict=True):
        scores_of.setdefault(row[0], {}).setdefault(row[1], {})[row[2]] = row[3]
    return scores_of


def unconfirmed(
    study: StudyTables, top: int | None = None, *, by: tuple[str, str] | None = None
) -> int:
    """Number of the best configurations now that no fresh seed has ended of: among the first `top`
    of each objective, by default as many as the study asks for; `by` as in `on_fresh_seeds`.
    """
    num = top or top_of(study.folder.confirmation.study())
    metric, mode = by or (study.metric, study.mode)
    fresh, rankings = fresh_scores(study, metric), ranking(study, metric, mode)
    best = (ranked for each in rankings for ranked in each.configs[:num])
    return sum(r.config not in fresh.get(r.objective, {}) for r in best)


def top_of(study: Mapping[str, Any]) -> int:
    """Number of each objective that the study file has confirmed."""
    default = ConfirmSection.model_fields["top"].default
    return int((study.get("confirm") or {}).get("top", default))


def ranking(study: StudyTables, metric: str, mode: str) -> list[Ranking]:
    """The configurations of each objective that have finished on all their seeds, best first."""
    recorded = study.folder.trials(["trial_id", "status", metric]).to_pylist()
    planned = study.folder.plan(["trial_id", "objective", "config"]).to_pylist()
    return Standings(planned, recorded, metric=metric, mode=mode).rankings()
