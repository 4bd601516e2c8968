"""The design: which configurations are run, drawn before anything runs wherever the method allows
it.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from clsweep.catalog import PARAM, Dataset, Value
from clsweep.catalog.ownership import effective, reference_params, yardstick_params
from clsweep.study.document import Document
from clsweep.study.samplers import build_sampler
from clsweep.study.schema import LIVE_METHODS, StudySections
from clsweep.study.space import Dimension, Objective, slug

if TYPE_CHECKING:
    import optuna
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Study:
    """A validated study. `document` keeps the merged file, for messages and for `study.yaml` among
    the results.
    """

    sections: StudySections
    dataset: Dataset  # with the sizes that it has here
    objectives: tuple[Objective, ...]
    notes: tuple[str, ...]
    document: Document = field(repr=False)
    preset: str | None = None

    @property
    def name(self) -> str:
        return self.sections.name

    def plan(self) -> pd.DataFrame:
        """The planned trials, one row a trial; nothing has run."""
        return plan_frame(self)


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    """One row of the plan. `params` holds every owned hyperparameter; a live search fills the swept
    ones in later.
    """

    trial_id: str
    objective: str
    parts: Mapping[str, str]
    config: int
    seed: int
    sampler: str
    params: Mapping[str, Value | None]


def plan_trials(study: Study) -> list[PlannedTrial]:
    """All trials of a study in the order in which they start: objectives interleaved, seeds of one
    config together.

    An interrupted study has thereby seen every objective equally often. The order within an
    objective is that of the sampler; a grid is shuffled with `search.seed`, so that its first part
    already covers the space.
    """
    designs = [(objective, *_design(study, objective)) for objective in study.objectives]
    longest = max(len(configs) for _, _, configs in designs)
    return [
        PlannedTrial(
            trial_id=trial_id(objective.name, config, seed),
            objective=objective.name,
            parts=objective.parts,
            config=config,
            seed=seed,
            sampler=sampler,
            params={name: {**objective.fixed, **configs[config]}[name] for name in objective.owned},
        )
        for config in range(longest)
        for objective, sampler, configs in designs
        if config < len(configs)
        for seed in study.sections.seeds
    ]


def trial_id(objective: str, config: int, seed: int) -> str:
    """A trial's name, which is its files' name too."""
    return f"{slug(objective)}-{config:04d}-s{seed}"


def count_configs(study: Study, objective: Objective) -> int:
    """Number of configurations of one objective, without drawing them."""
    limit = study.sections.search.trials_per_objective
    if study.sections.search.method == "grid" or not objective.space:
        return objective.num_grid_configs
    assert limit is not None
    return min(limit, _num_distinct(objective) or limit)


def sampler_of(study: Study, objective: Objective) -> str:
    """How the configurations of one objective are chosen; a space smaller than its budget is simply
    enumerated.
    """
    method = study.sections.search.method
    limit = study.sections.search.trials_per_objective
    num_distinct = _num_distinct(objective)
    if not objective.space or (limit and num_distinct and num_distinct <= limit):
        return "grid"
    return method


def distributions(objective: Objective) -> dict[str, optuna.distributions.BaseDistribution]:
    """The swept space in Optuna's terms, values as they are."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    def of(dimension: Dimension) -> optuna.distributions.BaseDistribution:
        if dimension.choices or not dimension.is_range:
            return CategoricalDistribution(dimension.points)
        assert dimension.low is not None
        assert dimension.high is not None
        if dimension.param.kind == "int":
            return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
        return FloatDistribution(dimension.low, dimension.high, log=dimension.log)

    return {name: of(dimension) for name, dimension in objective.space.items()}


def plan_frame(study: Study) -> pd.DataFrame:
    """The plan as a table: ids, the four parts, seed, sampler and one column per hyperparameter in
    use.
    """
    import pandas as pd

    trials = plan_trials(study)
    used = [name for name in PARAM if any(name in t.params for t in trials)]
    rows = [plan_row(study, trial) for trial in trials]
    ids = [name for name in rows[0] if name not in PARAM]
    return pd.DataFrame(rows).reindex(columns=[*ids, *used])


def plan_row(
    study: Study, trial: PlannedTrial, chosen: Mapping[str, Value] | None = None
) -> dict[str, Any]:
    """One trial as a flat row; also the configuration that `train_trial` gets.

    `chosen` are the values that a live search has given to its swept hyperparameters.
    """
    return {
        "trial_id": trial.trial_id,
        "study": study.name,
        "objective": trial.objective,
        **trial.parts,
        "config": trial.config,
        "seed": trial.seed,
        "sampler": trial.sampler,
        **split_columns(study),
        **effective(trial.parts, {**trial.params, **(chosen or {})}, study.dataset),
    }


def reference_rows(study: Study, trials: Sequence[PlannedTrial]) -> list[dict[str, Any]]:
    """What is scored without training, once per study: raw pixels, and each untrained encoder on
    every seed.

    One row for every distinct encoder and yardstick of the plan; a width that a live search has yet
    to choose has none.
    """
    if study.dataset.kind == "pairs":
        return []
    common = split_columns(study)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    of_pixels = [name for name in yardstick_params() if name != "feature_layer"]
    params = {"raw_pixels": of_pixels, "untrained": reference_params()}
    for trial in trials:
        for reference, names in params.items():
            row = {name: trial.params[name] for name in names if name in trial.params}
            # a projector is nothing before it is trained
            is_there = reference != "untrained" or row.get("feature_layer") != "projector"
            if None not in row.values() and is_there:
                row |= {"seed": trial.seed} if reference == "untrained" else {}
                rows.setdefault(
                    (reference, *row.items()), {"reference": reference, **common, **row}
                )
    return sorted(rows.values(), key=lambda row: str(row["reference"]))


def split_columns(study: Study) -> dict[str, Any]:
    """The data set as `load_splits` needs to know it; pairs of vectors have none of its numbers."""
    dataset = study.dataset
    numbers = {
        "score_on": study.sections.evaluation.score_on,
        "val_fraction": study.sections.val_fraction,
        "image_size": dataset.image_size,
        "num_train": dataset.num_train + dataset.num_unlabeled,
        "num_classes": dataset.num_classes,
        "images_digest": dataset.images_digest,
    }
    return {
        "dataset": dataset.name,
        **(numbers if dataset.kind == "images" else dict.fromkeys(numbers)),
    }


def _design(study: Study, objective: Objective) -> tuple[str, list[dict[str, Value | None]]]:
    """Sampler and swept values of every configuration of one objective."""
    sampler = sampler_of(study, objective)
    num_configs, seed = count_configs(study, objective), study.sections.search.seed
    if sampler in LIVE_METHODS:
        return sampler, [dict.fromkeys(objective.space) for _ in range(num_configs)]
    if sampler == "grid":
        axes = [_values(study, dimension) for dimension in objective.space.values()]
        return sampler, list(_grid(objective, axes, seed))
    return sampler, _draw(objective, sampler, num_configs, seed)


def _values(study: Study, dimension: Dimension) -> Sequence[Value]:
    """The values of a dimension that is enumerated: the grid that was asked for, or all there
    are.
    """
    values = dimension.points if study.sections.search.method == "grid" else dimension.values
    assert values is not None
    return values


def _grid(
    objective: Objective, axes: Sequence[Sequence[Value]], seed: int
) -> Iterator[dict[str, Value | None]]:
    """The full product of the axes, shuffled.

    Not Optuna's GridSampler: it scans all finished cells for every new one, and a grid needs no
    sampler.
    """
    cells = list(itertools.product(*axes))
    random.Random(seed).shuffle(cells)
    for cell in cells:
        yield dict(zip(objective.space, cell, strict=True))


def _draw(
    objective: Objective, method: str, num_configs: int, seed: int
) -> list[dict[str, Value | None]]:
    """`num_configs` distinct points of Optuna's sampler.

    Choices are drawn as their index: a QMC sequence then covers them as evenly as it covers a
    range, where Optuna would fall back to independent random draws.
    """
    import optuna
    from optuna.distributions import IntDistribution

    space = {
        name: IntDistribution(0, len(objective.space[name].choices) - 1)
        if objective.space[name].choices
        else range_
        for name, range_ in distributions(objective).items()
    }
    # The first trial only tells this sampler its space; it is no point of the sequence.
    num_skipped = 1 if method == "qmc" else 0
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=build_sampler(method, seed))
    points: dict[tuple[Value, ...], dict[str, Value | None]] = {}
    # A point that is drawn again would be counted as a further configuration with the same scores.
    # There are more distinct points than are wanted: smaller spaces are enumerated.
    while len(points) < num_configs:
        trial = study.ask(space)
        # Its space is that of the others; each further one told would make all later ones slower.
        if trial.number == 0:
            study.tell(trial, 0.0)
        if trial.number >= num_skipped:
            point = {
                name: _value(objective.space[name], trial.params[name]) for name in objective.space
            }
            points.setdefault(tuple(point.values()), dict(point))
    return list(points.values())


def _value(dimension: Dimension, raw: Any) -> Value:
    return dimension.choices[raw] if dimension.choices else raw


def _num_distinct(objective: Objective) -> int | None:
    """Number of distinct configurations outside of a grid search; None if any dimension is a range
    of real numbers.
    """
    values = [dimension.values for dimension in objective.space.values()]
    return None if None in values else math.prod(len(v) for v in values if v is not None)
