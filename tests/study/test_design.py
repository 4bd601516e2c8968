"""The plan: the full grid, evenly spread draws, the order of the trials, and their ids."""

import itertools
import re
from dataclasses import replace

import pytest

from clsweep.catalog import PARAM
from clsweep.catalog.ownership import ALL_THERE_IS, trial_owns
from clsweep.cli.plan import plan_counts, plan_notes
from clsweep.study.design import distributions, placed_baselines, plan_row, plan_trials
from clsweep.study.schema import LIVE_METHODS
from tests.study.conftest import SEARCHED

TREE = SEARCHED | {"space": SEARCHED["space"] | {"proj_dim": {"choices": [16, 32, 64, 128]}}}
TAUS, DIMS, SIGMAS = (0.1, 0.2, 0.4), (16, 32, 64, 128), (0.5, 1.0)
DRAWN = ("qmc", "random")


def configs_of(study, objective, *names):
    """The swept values of an objective's configurations in their order, on the first seed."""
    seed = study.sections.seeds[0]
    trials = [t for t in plan_trials(study) if t.objective == objective and t.seed == seed]
    return [tuple(t.params[name] for name in names) for t in trials]


def points(study, method, num_configs, *settings):
    return configs_of(study(method, num_configs, *settings), "infonce", "tau", "proj_dim")


# Grid.


def test_a_grid_is_the_full_product_once_per_seed(study):
    trials = [t for t in plan_trials(study()) if t.objective == "DCL-w 2"]
    cells = [(*(t.params[n] for n in ("tau", "proj_dim", "sigma")), t.seed) for t in trials]
    assert sorted(cells) == [*itertools.product(TAUS, DIMS, SIGMAS, (3, 5))]


def test_another_search_seed_shuffles_a_grid_otherwise(study):
    first, second = (points(study, "grid", None, f"search.seed={seed}") for seed in (0, 1))
    assert first != second
    assert sorted(first) == sorted(second)


def test_a_grid_begins_with_points_of_ones_own(study):
    """What a point does not name has its base value or default: tau 0.1, proj_dim 128."""
    first = "search.first=[{tau: 0.4, proj_dim: 16}, {proj_dim: 32}, {}]"
    plain, led = points(study, "grid", None), points(study, "grid", None, first)
    begin = [(0.4, 16), (0.1, 32), (0.1, 128)]
    assert led == begin + [cell for cell in plain if cell not in begin]


# Drawn designs.


@pytest.mark.parametrize("method", DRAWN)
def test_drawn_values_are_inside_of_their_bounds_and_choices(study, method):
    drawn = points(study, method, 40)
    assert len(set(drawn)) == 40
    assert all(0.05 <= tau <= 0.8 for tau, _ in drawn)
    assert {dim for _, dim in drawn} == set(DIMS)


@pytest.mark.parametrize("method", DRAWN)
def test_the_same_seed_draws_the_same_plan_and_another_seed_another(study, method):
    assert plan_trials(study(method, 8)) == plan_trials(study(method, 8))
    assert points(study, method, 8) != points(study, method, 8, "search.seed=1")


@pytest.mark.parametrize("search_seed", [0, 1, 2])
@pytest.mark.parametrize("num_configs", [4, 8, 16, 32])
def test_qmc_puts_one_point_into_each_slice_of_a_log_range(study, num_configs, search_seed):
    taus = [tau for tau, _ in points(study, "qmc", num_configs, f"search.seed={search_seed}")]
    slices = [2 ** (4 * i / num_configs) * 0.05 for i in range(num_configs + 1)]  # 0.8 = 2^4 x 0.05
    counts = [sum(low <= tau < high for tau in taus) for low, high in itertools.pairwise(slices)]
    assert counts == [1] * num_configs


def test_a_longer_qmc_plan_begins_with_the_shorter_one(study):
    assert points(study, "qmc", 32)[:8] == points(study, "qmc", 8)


@pytest.mark.parametrize("method", LIVE_METHODS)
def test_a_live_search_leaves_the_swept_values_open(study, method):
    trials = [t for t in plan_trials(study(method, 5)) if t.objective == "DCL-w 2"]
    assert len(trials) == 5 * 2
    for trial in trials:
        left_open = {name for name, value in trial.params.items() if value is None}
        assert left_open == {"tau", "proj_dim", "sigma"}
        assert trial.sampler == method


@pytest.mark.parametrize("method", [*DRAWN, *LIVE_METHODS])
def test_a_space_smaller_than_its_budget_is_enumerated_once(study, method):
    small = study(method, 64, "space.tau={choices: [0.1, 0.2, 0.4]}")
    configs = configs_of(small, "infonce", "tau", "proj_dim")
    assert sorted(configs) == [*itertools.product(TAUS, DIMS)]
    samplers = {t.objective: t.sampler for t in plan_trials(small)}
    assert samplers == {"infonce": "grid", "DCL-w 2": method, "untrained": "grid"}
    only = "note: 'infonce' has only 12 configurations: each runs once per seed"
    assert only in plan_notes(small)


# Order and ids.


@pytest.mark.parametrize(
    ("method", "num_configs"), [("grid", None), ("qmc", 9), ("random", 9), ("tpe", 9), ("gp", 9)]
)
def test_every_beginning_of_the_plan_has_seen_the_objectives_equally_often(
    study, method, num_configs
):
    planned = study(method, num_configs)
    total = {row["objective"]: row["configs"] for row in plan_counts(planned)}
    seen = {name: set() for name in total}
    for trial in plan_trials(planned):
        seen[trial.objective].add(trial.config)
        unfinished = [len(configs) for name, configs in seen.items() if len(configs) < total[name]]
        assert max(len(configs) for configs in seen.values()) - min(unfinished, default=10**9) <= 1


def test_the_seeds_of_a_configuration_stand_together(study):
    trials = plan_trials(study())
    for first, second in zip(trials[::2], trials[1::2], strict=True):
        same = {"seed": 3, "trial_id": first.trial_id}
        assert first == replace(second, **same)
        assert second.seed == 5


def test_trial_ids_are_unique_safe_and_readable(study):
    ids = [t.trial_id for t in plan_trials(study())]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[A-Za-z0-9_]+-\d{4}-s\d+", trial_id) for trial_id in ids)
    assert "DCL_w_2-0007-s3" in ids


# Values.


@pytest.mark.parametrize(("method", "num_configs"), [("grid", None), ("qmc", 4), ("random", 4)])
def test_every_owned_hyperparameter_has_a_valid_value(study, method, num_configs):
    planned = study(method, num_configs)
    owned = {objective.name: objective.owned for objective in planned.objectives}
    for trial in plan_trials(planned):
        assert tuple(trial.params) == owned[trial.objective]
        for name, value in trial.params.items():
            assert PARAM[name].coerce(value) == value


def test_an_untrained_objective_is_one_configuration_and_its_skips_are_said(study):
    planned = study()
    trials = [t for t in plan_trials(planned) if t.objective == "untrained"]
    assert [(t.config, t.seed, t.sampler) for t in trials] == [(0, 3, "grid"), (0, 5, "grid")]
    assert set(trials[0].params) == {
        *trial_owns(), "width", "probe_l2", "knn_k", "knn_temperature"
    }  # fmt: skip
    [skip] = [note for note in plan_notes(planned) if note.startswith("skip: ")]
    assert skip.startswith("skip: 'untrained' does not own batch_size, tau, proj_dim: epochs is 0")


def test_the_frame_has_ids_parts_and_every_hyperparameter_in_use(study):
    frame = study().plan()
    ids = [
        "trial_id", "study", "objective", "framework", "loss", "regularizer", "views", "config",
        "seed", "sampler",
    ]  # fmt: skip
    sizes = ["image_size", "store_size", "store_as", "channels", "num_train", "num_unlabeled"]
    sizes += ["num_classes", "images_digest"]
    assert list(frame.columns[:21]) == [*ids, "dataset", "score_on", "val_fraction", *sizes]
    assert {"tau", "sigma", "proj_dim", "lr", "width"} <= set(frame.columns[21:]) <= set(PARAM)
    assert "gray_prob" not in frame.columns
    assert "stem" not in frame.columns


def test_integer_ranges_are_drawn_without_repeats_or_enumerated(study):
    one = (
        "seeds=[0]",
        "base.lr_rule=none",
        "space={batch_size: {low: 2, high: 9}}",
        "objectives={dcl: {framework: simclr, loss: dcl}}",
    )
    drawn = [t.params["batch_size"] for t in plan_trials(study("random", 6, *one))]
    assert len(drawn) == len(set(drawn)) == 6
    everything = plan_trials(study("random", 20, *one))
    assert sorted(t.params["batch_size"] for t in everything) == list(range(2, 10))
    assert {t.sampler for t in everything} == {"grid"}


def test_references_are_every_yardstick_and_every_untrained_encoder_once(study):
    planned = study()
    rows = [row for row, _ in placed_baselines(planned, plan_trials(planned))]
    assert [(row["reference"], row.get("seed")) for row in rows] == [
        ("raw_pixels", None), ("untrained", 3), ("untrained", 5)
    ]  # fmt: skip
    assert "encoder" not in rows[0]
    names = "dataset score_on val_fraction image_size num_train num_classes encoder width knn_k"
    assert {*names.split(), "linear_probe", "probe_l2"} <= set(rows[1])


def test_a_live_search_changes_what_it_chooses_and_what_hangs_on_that(study):
    """Readers of results hold all else of a row to its plan."""
    found = study(
        "tpe",
        3,
        "space={batch_size: {choices: [16, 32]}}",
        "space.width={choices: [8, 16]}",
        "space.crop_scale={low: 0.2, high: 0.9}",
        "base.chunk_size=64",
        "objectives.simo={framework: simo, loss: eqco, base: {num_negatives: 0}}",
        "objectives.wmse={framework: wmse, loss: wmse, base: {proj_dim: 8, proj_hidden: 0}}",
        "objectives.ecpp={framework: simclr, loss: dcl, views: ecpp}",
        "objectives.byol={framework: byol, loss: cosine}",
    )
    changed = set()
    for trial in plan_trials(found):
        if trial.sampler not in LIVE_METHODS:
            continue
        planned = plan_row(found, trial)
        for pick in (0, -1):
            axes = distributions(next(o for o in found.objectives if o.name == trial.objective))
            chosen = {
                n: (a.choices[pick] if hasattr(a, "choices") else a.low) for n, a in axes.items()
            }
            row = plan_row(found, trial, chosen)
            assert {name for name in chosen if planned[name] is not None} == set()
            changed |= {n for n, v in planned.items() if v is not None and row[n] != v}
    assert {"chunk_size", "proj_hidden"} <= changed <= {*ALL_THERE_IS}
