"""The design: which configurations are run, drawn before anything runs where that can be."""

from __future__ import annotations

import itertools
import math
import os
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from clsweep.catalog import COMPONENT, DATASET, PARAM, Dataset, Value
from clsweep.catalog.ownership import (
    baseline_params,
    effective,
    evaluation_params,
    without_other_encoders,
)
from clsweep.catalog.plugins import activate
from clsweep.data.locations import DataPlace
from clsweep.errors import StudyError
from clsweep.study.document import Document
from clsweep.study.factors import with_factors
from clsweep.study.schema import LIVE_METHODS, StudySections
from clsweep.study.space import Dimension, Objective, file_slug, num_values

if TYPE_CHECKING:
    import optuna
    import pandas as pd

MAX_TRIALS = 1_000_000  # of one plan, which is drawn as a whole
MAX_REPEATS = 50_000  # draws in succession that give no further configuration


@dataclass(frozen=True, kw_only=True)
class Study:
    """A validated study. `document` keeps the merged file, for messages and for `study.yaml`."""

    sections: StudySections
    dataset: Dataset  # with the sizes that it has here
    objectives: tuple[Objective, ...]
    notes: tuple[str, ...]
    document: Document = field(repr=False)
    preset: str | None = None
    cells: tuple[Study, ...] = ()  # of a study with factors, whose objectives are all of theirs

    @property
    def name(self) -> str:
        return self.sections.name

    def of(self, objective: str) -> Study:
        """The study of the cell that has this objective; of a study without factors itself."""
        return self._cell_of.get(objective, self)

    def drawn(self) -> Study:
        """The study with random draws in place of a search, for trials that only try or time it."""
        if self.sections.search.method not in LIVE_METHODS:
            return self
        search = self.sections.search.model_copy(update={"method": "random"})
        return replace(self, sections=self.sections.model_copy(update={"search": search}))

    @cached_property
    def _cell_of(self) -> dict[str, Study]:
        return {o.name: cell for cell in self.cells for o in cell.objectives}

    def plan(self) -> pd.DataFrame:
        """The planned trials, one row a trial; nothing has run: ids, the four parts, seed, sampler
        and one column per hyperparameter in use.
        """
        import pandas as pd

        trials = plan_trials(self)
        used = [name for name in PARAM if any(name in t.params for t in trials)]
        rows = [plan_row(self, trial) for trial in trials]
        ids = [name for name in rows[0] if name not in PARAM]
        return with_factors(pd.DataFrame(rows).reindex(columns=[*ids, *used]), self.document.tree)


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    """One row of the plan. `params` holds what it owns; a live search fills swept ones in later."""

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
    activate(study.document.plugins)  # another study may have been read since
    designs = [_configs(study, objective) for objective in study.objectives]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*designs))
    return [
        replace(first, trial_id=trial_id(first.objective, first.config, seed), seed=seed)
        for first in turns
        if first is not None
        for seed in study.sections.seeds
    ]


def _configs(study: Study, objective: Objective) -> list[PlannedTrial]:
    """Every configuration of one objective, as its trial on the first seed."""
    sampler, owned, seed = sampler_of(study, objective), objective.owned, study.sections.seeds[0]
    return [
        PlannedTrial(
            trial_id=trial_id(objective.name, config, seed),
            objective=objective.name,
            parts=objective.parts,
            config=config,
            seed=seed,
            sampler=sampler,
            params={
                name: chosen[name] if name in chosen else objective.fixed[name] for name in owned
            },
        )
        for config, chosen in enumerate(_design(study, objective, sampler))
    ]


def require_enumerable(study: Study) -> None:
    """Refuse a plan that is too long, before any of it is drawn.

    Raises:
        StudyError: the search has more than `MAX_TRIALS` trials, or its confirmation has.
    """
    confirm = study.sections.confirm
    counts = {objective.name: count_configs(study, objective) for objective in study.objectives}
    plans = [("search", counts, len(study.sections.seeds))]
    if confirm:
        best = {name: min(count, confirm.top) for name, count in counts.items()}
        plans.append(("confirm", best, len(confirm.seeds)))
    for at, configs, num_seeds in plans:
        num_configs = sum(configs.values())
        if num_configs * num_seeds > MAX_TRIALS:
            largest = max(configs, key=lambda name: configs[name])
            message = (
                f"expected at most {MAX_TRIALS:,} trials, given {num_configs * num_seeds:,}: "
                f"{num_seeds:,} seeds of {num_configs:,} configurations, {configs[largest]:,} of "
                f"'{largest}'. Thin the grid, give fewer seeds, or draw fewer configurations with "
                "method qmc"
            )
            raise StudyError(study.document.error((at,), message))


def trial_id(objective: str, config: int, seed: int) -> str:
    """A trial's name, which is its files' name too."""
    return f"{file_slug(objective)}-{config:04d}-s{seed}"


def count_configs(study: Study, objective: Objective) -> int:
    """Number of configurations of one objective, without drawing them."""
    limit = study.sections.search.trials_per_objective
    if study.sections.search.method == "grid" or not objective.space:
        return objective.num_configs or 0
    assert limit is not None
    return min(limit, objective.num_configs or limit)


def sampler_of(study: Study, objective: Objective) -> str:
    """Sampler of an objective's configurations; a space within its budget is enumerated."""
    method = study.sections.search.method
    limit = study.sections.search.trials_per_objective
    num_distinct = objective.num_configs
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


def plan_row(
    study: Study, trial: PlannedTrial, chosen: Mapping[str, Value | None] | None = None
) -> dict[str, Any]:
    """One trial as a flat row; also the configuration that `train_trial` gets.

    `chosen` are the values that a live search has given to its swept hyperparameters.
    """
    cell = study.of(trial.objective)
    # their digests decide the numbers too
    plugins = "; ".join(f"{name} {digest}" for name, digest in study.sections.plugins.items())
    params = effective(trial.parts, {**trial.params, **(chosen or {})}, cell.dataset)
    other = DATASET.get(str(params.get("transfer_dataset")))
    # pictures that scores are transferred to have the form of the trial's own
    form = cell.dataset.store_as or "pixels" if other and other.keeps_whole else None
    return {
        "trial_id": trial.trial_id,
        "study": study.name,
        "objective": trial.objective,
        **trial.parts,
        "config": trial.config,
        "seed": trial.seed,
        "sampler": trial.sampler,
        **({"plugins": plugins} if plugins else {}),
        **split_columns(cell),
        **({"transfer_store_as": form} if form else {}),
        **params,
    }


def placed_baselines(
    study: Study, trials: Sequence[PlannedTrial]
) -> list[tuple[dict[str, Any], DataPlace]]:
    """Rows scored without training, once per study: raw pixels, and each untrained encoder on every
    seed; each with the place of its data set.

    One row for every distinct encoder and yardstick of the plan; a width that a live search has yet
    to choose has none.
    """
    rows: dict[tuple[Any, ...], tuple[dict[str, Any], DataPlace]] = {}
    of_pixels = [name for name in evaluation_params() if name != "feature_layer"]
    params = {"raw_pixels": of_pixels, "untrained": baseline_params()}
    for trial in trials:
        cell = study.of(trial.objective)
        is_trainer = COMPONENT["framework"][trial.parts["framework"]].is_trainer
        if cell.dataset.kind != "images" or is_trainer:  # whose encoder nobody else can build
            continue
        trial_params = without_other_encoders(trial.params)
        for reference, names in params.items():
            row = {name: trial_params[name] for name in names if name in trial_params}
            # a projector is nothing before it is trained
            is_there = reference != "untrained" or row.get("feature_layer") != "projector"
            if None not in row.values() and is_there:
                row |= {"seed": trial.seed} if reference == "untrained" else {}
                row = {"reference": reference, **split_columns(cell), **row}
                rows.setdefault(tuple(row.items()), (row, cell.sections.dataset.place))
    return sorted(rows.values(), key=lambda each: str(each[0]["reference"]))


def split_columns(study: Study) -> dict[str, Any]:
    """The data set as `load_splits` needs to know it; pairs of vectors have none of its numbers."""
    dataset = study.dataset
    numbers = {
        "score_on": study.sections.evaluation.score_on,
        "val_fraction": study.sections.val_fraction,
        "image_size": dataset.image_size,
        "store_size": dataset.store_size or None,
        "store_as": dataset.store_as or None,
        "channels": dataset.channels,
        "num_train": dataset.num_train + dataset.num_unlabeled,
        "num_unlabeled": dataset.num_unlabeled,
        "num_classes": dataset.num_classes,
        "images_digest": dataset.images_digest,
    }
    return {
        "dataset": dataset.name,
        **(numbers if dataset.kind == "images" else dict.fromkeys(numbers)),
    }


def _design(study: Study, objective: Objective, sampler: str) -> list[dict[str, Value | None]]:
    """The swept values of every configuration of one objective."""
    num_configs, search = count_configs(study, objective), study.sections.search
    if sampler in LIVE_METHODS:
        open_ones = num_configs - len(objective.first)
        return [*map(dict, objective.first), *(dict.fromkeys(objective.space),) * open_ones]
    if sampler == "grid":
        # Not by Optuna's GridSampler: it scans all finished cells for every new one.
        cells = list(dict.fromkeys(_cells(objective)))
        random.Random(search.seed).shuffle(cells)
        first = [tuple(point.values()) for point in objective.first]
        cells.sort(key=lambda cell: first.index(cell) if cell in first else len(first))
        return [dict(zip(objective.space, cell, strict=True)) for cell in cells]
    points = _draw(objective, sampler, num_configs, search.seed)
    if len(points) < num_configs:
        message = (
            f"expected at most {len(points):,}, given {num_configs:,}: {MAX_REPEATS:,} draws of "
            f"'{objective.name}' gave no further configuration. Widen its ranges, or search "
            "by method grid"
        )
        raise StudyError(study.document.error(("search", "trials_per_objective"), message))
    return points


def _cells(objective: Objective) -> Iterator[tuple[Value | None, ...]]:
    """The cells of a grid; some come repeatedly where hyperparameters hang on others."""
    cells = itertools.product(*(values or () for values in objective.values.values()))
    if not objective.conditions.names:
        return cells
    named = (dict(zip(objective.space, cell, strict=True)) for cell in cells)
    return (tuple(objective.conditions.settled(cell).values()) for cell in named)


def _draw(
    objective: Objective, method: str, num_configs: int, seed: int
) -> list[dict[str, Value | None]]:
    """`num_configs` distinct points of Optuna's sampler; fewer where no further ones come.

    Choices are drawn as their index: a QMC sequence then covers them as evenly as it covers a
    range.
    """
    from optuna.distributions import IntDistribution

    choices = {name: d.choices for name, d in objective.space.items() if d.choices}
    indices = {name: IntDistribution(0, len(values) - 1) for name, values in choices.items()}
    space = distributions(objective) | indices
    points: dict[tuple[Value | None, ...], dict[str, Value | None]] = {}
    # A point that is drawn again would be counted as a further configuration with the same scores.
    # There are mostly more distinct points than are wanted: smaller spaces are enumerated. Yet a
    # range of real numbers may hold two of them, and the last of many integers come rarely.
    repeats = 0
    for drawn in points_of(space, method, seed):
        point = {n: choices[n][drawn[n]] if n in choices else drawn[n] for n in space}
        point = objective.conditions.settled(point)
        key = tuple(point.values())
        repeats = repeats + 1 if key in points else 0
        points.setdefault(key, point)
        if len(points) == num_configs or repeats == MAX_REPEATS:
            break
    return list(points.values())


def points_of(space: Mapping[str, Any], method: str, seed: int) -> Iterator[dict[str, Any]]:
    """The points of Optuna's random or QMC sampler, without end: of a space of its distributions of
    numbers.

    Optuna itself looks among all trials for each point, and makes its sequence anew: that takes
    time that grows with the square of their number.
    """
    import numpy as np
    from optuna._transform import _SearchSpaceTransform

    if method == "qmc":
        from scipy.stats import qmc

        whole = _SearchSpaceTransform(dict(space), transform_0_1=True)
        sequence = qmc.Sobol(len(space), seed=seed, scramble=True)
        while True:
            yield whole.untransform(sequence.random(1)[0])
    random_state = np.random.RandomState(seed)
    drawn = {n: _SearchSpaceTransform({n: d}) for n, d in space.items() if not d.single()}
    single = {n: d.to_external_repr(d.low) for n, d in space.items() if n not in drawn}
    while True:
        each = {n: t.untransform(random_state.uniform(*t.bounds.T))[n] for n, t in drawn.items()}
        yield {n: single[n] if n in single else each[n] for n in space}


def num_saved(study: Study, objective: Objective) -> int:
    """Configurations that are not planned, as they would differ from planned ones in what has no
    effect there alone; 0 of a space that is not enumerated.
    """
    if sampler_of(study, objective) != "grid":
        return 0
    sizes = [num_values(values or ()) for values in objective.values.values()]
    return math.prod(sizes) - count_configs(study, objective)


def build_sampler(method: str, seed: int) -> optuna.samplers.BaseSampler:
    """Optuna's sampler of a search that chooses its configurations, or random; what it draws
    independently of the others is random, from the same seed.
    """
    from optuna import samplers

    independent = samplers.RandomSampler(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some are marked experimental
        if method == "gp":
            return samplers.GPSampler(seed=seed, independent_sampler=independent)
        if method == "tpe":  # as version 5 takes them by itself, and version 4 did not
            return samplers.TPESampler(
                multivariate=True, group=False, constant_liar=True, seed=seed
            )
    return independent


def default_out(study: Study) -> str:
    """`results/NAME`, with the preset's name where one was used."""
    presets = study.preset.split(",") if study.preset else []
    return os.path.join("results", "-".join([study.name, *presets]))
