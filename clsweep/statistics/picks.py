"""Which configuration a score without labels would have picked, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from clsweep.analysis import TAIL
from clsweep.analysis.array_types import Array
from clsweep.analysis.image_intervals import ImageEffects, image_parts, stack_effects
from clsweep.analysis.noise import Noise, noise_of
from clsweep.analysis.reasons import Note, Reason, note, noted
from clsweep.analysis.score_table import adjusted_for_seeds, best_level, row_means, without_gaps
from clsweep.analysis.sweep import Sweep
from clsweep.catalog.ownership import contrasts_classes
from clsweep.catalog.rows import Row
from clsweep.display.numbers import is_number
from clsweep.statistics.computed import Statistics
from clsweep.statistics.mechanism import config_means, rank_correlation
from clsweep.statistics.report_objects import REASON_COLUMNS
from clsweep.statistics.statistic import (
    Column,
    Statistic,
    between,
    fraction,
    half,
    level_cell,
    whole_number,
)
from clsweep.sweeps.study_data import label_free_modes

PICK_COLUMNS = {
    "objective": 'name, in order of first appearance; "all": the configurations of all objectives '
    "that are scored alike, pooled",
    "score": "the score without labels",
    "num_configs": "configurations with a mean of this score and of the metric",
    "config": "the one it picks: its best mean over the seeds",
    "at": 'its swept hyperparameters, such as "tau=0.2"',
    "of": "the objective that this configuration is of",
    "best": "level of the best configuration by the metric, picked on other seeds than it is "
    "scored on, and no worse than the pick; with one seed the best score. Of all objectives that "
    "of the one whose level is best",
    "picked": "the metric's mean of the configuration that the score picks",
    "regret": "what the pick loses: best - picked, turned so that a loss is positive; from 0 to "
    "the plain difference of the means",
    "low": "interval of the true regret, max_j theta_j - theta_p for the pick p: max_j of t-"
    "intervals of theta_j - theta_p, the lower ends corrected for all p and j (Bonferroni); the "
    "maximum is what keeps the upper one safe",
    "high": "",
    "rho": "Spearman's rank correlation of the score with the metric over the configurations, both "
    "turned so that better is higher",
    "rho_low": "its interval, as in the table of links",
    "rho_high": "",
    **REASON_COLUMNS,
}
OVERALL = "all"


def picks(of: Statistics) -> pd.DataFrame:
    """A row of `PICK_COLUMNS` for each objective and score without labels, then for all that are
    scored alike together; none where the metric needs no labels itself, and none of objectives that
    contrast by labels.

    The regret is among the configurations that were tried. Its interval is that of the seeds' noise
    and covers a pick that the same noise has favoured; with one seed there is none. Failed trials
    are left out.
    """
    data, trials = of.data, of.data.trials
    modes = label_free_modes(data.metric)
    scores = {n: mode for n, mode in modes.items() if n in trials and trials[n].notna().any()}
    by_labels = set[Any]()
    if "framework" in trials:
        frameworks = trials.groupby("objective")["framework"].first()
        by_labels = {name for name, each in frameworks.items() if contrasts_classes(each)}
    measured = [each.measured for each in data.spaces if each.objective not in by_labels]
    groups = [(sweep.objective, [sweep]) for sweep in measured]
    for yardstick, group in data.scored_alike(measured).items():
        if len(group) > 1:
            groups.append((f"{OVERALL}, {yardstick}" if yardstick else OVERALL, group))
    rows = [
        {"objective": name} | row
        for name, group in groups
        for row in _rows(trials, group, data.metric, scores)
    ]
    return pd.DataFrame(rows, columns=list(PICK_COLUMNS))


def _rows(
    trials: pd.DataFrame, sweeps: Sequence[Sweep], metric: str, scores: Mapping[str, str]
) -> list[dict[str, Any]]:
    """A row for each score, of the configurations of one or several objectives together."""
    width = max(sweep.scores.shape[1] for sweep in sweeps)
    tables, frames = [], []
    for sweep in sweeps:
        table, configs = sweep.scores[sweep.alive], sweep.configs[sweep.alive]
        drop_order = [(0, 0), (0, width - table.shape[1])]
        tables.append(np.pad(adjusted_for_seeds(table), drop_order, constant_values=np.nan))
        frame = config_means(trials, sweep, metric, list(scores)).reindex(configs)
        frames.append(frame.assign(objective=sweep.objective, config=configs))
    of_all, places = np.concatenate(tables), pd.concat(frames, ignore_index=True)
    # What a seed gives to all cancels in a loss; columns of other seeds have no such part.
    is_shared = all(np.array_equal(sweep.seeds, sweeps[0].seeds) for sweep in sweeps)
    seen = ((sweep.images, sweep.alive) for sweep in sweeps)
    images = stack_effects([each and each.rows(alive) for each, alive in seen])
    notes = sweeps[0].missing if len(sweeps) == 1 else ()  # of several, each has its own row
    withheld = next((sweep.not_measured for sweep in sweeps if sweep.not_measured), None)
    sign, rows = sweeps[0].sign, []
    for name, mode in scores.items():
        score = places[name].to_numpy(dtype=float) * (1.0 if mode == "max" else -1.0)
        known = np.isfinite(score)
        score, num = score[known], int(known.sum())
        row: dict[str, Any] = {"score": name, "num_configs": num}
        if num < 2:
            rows += [row | noted(*notes, why=note(Reason.ONE_SCORED))] if num else []
            continue
        values = of_all[known]
        means, pick = row_means(values), int(score.argmax())
        place = places[known].iloc[pick]
        own = zip(sweeps, np.split(known, np.cumsum(list(map(len, tables)))[:-1]), strict=True)
        loss = max(_best_level(*each) for each in own) - means[pick]
        regret = float(np.clip(loss, 0.0, means.max() - means[pick]))
        seen_in = images and images.rows(known)
        low, high, why = _interval(noise_of(values, by_seed=is_shared), means, pick, seen_in)
        link = rank_correlation(np.column_stack([score, means]), withheld)
        [sweep] = [each for each in sweeps if each.objective == place["objective"]]
        at = sweep.label(int(np.flatnonzero(sweep.configs == place["config"])[0]))
        row |= {"config": place["config"], "at": at, "of": sweep.objective, "regret": regret}
        row |= {"best": sign * (means[pick] + regret), "picked": sign * means[pick]}
        row |= {"low": min(low, regret), "high": max(high, regret)}
        names = {"rho": "rho", "rho_low": "low", "rho_high": "high"}
        row |= {column: link.get(of, np.nan) for column, of in names.items()}
        rows.append(row | noted(*link["note"], *notes, why=why))
    return rows


def _best_level(sweep: Sweep, known: NDArray[np.bool_]) -> float:
    """Of one objective alone: level of the best of its configurations that are `known`, of those
    with a score of the metric.
    """
    rows = np.flatnonzero(sweep.alive)[known]
    if not rows.size:
        return -np.inf
    values = without_gaps(sweep.scores[rows])
    return float(best_level(values, image_parts(sweep.images, rows)))


def _interval(
    noise: Noise, means: Array, pick: int, images: ImageEffects | None
) -> tuple[float, float, Note | None]:
    """Of max_j theta_j - theta_p; NaN and the reason where the seeds show no noise."""
    counts = noise.counts
    if not noise.freedom:
        return np.nan, np.nan, note(Reason.ONE_SEED)
    if not noise.pooled > 0:
        return np.nan, np.nan, note(Reason.NO_NOISE)
    lead = np.delete(means - means[pick], pick)
    own = noise.doubt
    even, alone = (1 - own) * noise.pooled / counts, own * noise.own / counts
    variance = np.delete(even + even[pick] + alone + alone[pick], pick)
    loss = (even + even[pick]) ** 2 / noise.freedom
    loss += alone**2 / noise.own_freedom + alone[pick] ** 2 / noise.own_freedom[pick]
    freedom = variance**2 / np.delete(loss, pick)
    if images:
        variance = variance + np.delete(images.against(pick), pick)
    error = np.sqrt(variance)
    low = np.max(lead + special.stdtrit(freedom, TAIL / (len(lead) * len(means))) * error)
    high = np.max(lead - special.stdtrit(freedom, TAIL) * error)
    return max(0.0, float(low)), max(0.0, float(high)), None


def _pick(row: Row) -> str:
    """The setting of a configuration, behind its objective where it is one of several."""
    if not is_number(row["config"]):
        return ""
    return " ".join([row["of"]] * (row["of"] != row["objective"]) + [row["at"]])


PICKS = Statistic(
    name="picks",
    title="Scores without labels as judges of {metric}",
    header="What scores without labels would have picked, by {metric}, with 95 % intervals{images}",
    table=picks,
    ahead=True,
    columns=(
        Column("objective"),
        Column("score"),
        Column("configs", "num_configs", drop_order=3),
        Column("config", whole_number("config"), drop_order=4),
        Column("picks", _pick, "the setting with the best mean of the score"),
        Column(
            "best or picked",
            level_cell("best", half("regret", "")),
            "the higher level of both, the best without the luck of its own pick",
            drop_order=2,
        ),
        Column("picked", level_cell("picked", half("regret", "")), drop_order=1),
        Column(
            "loses",
            between("regret", ""),
            "what the best is above picked, among the configurations that were tried",
        ),
        Column(
            "rank correlation",
            fraction("rho", "rho", most=2),
            "of score and metric on the scored images. It is 1 where better by the one is better "
            "by the other",
            drop_order=5,
        ),
    ),
    levels="picked",
    caption="Intervals: 95 %{images}. {columns}.",
    formulas={"picks": PICK_COLUMNS},
)
