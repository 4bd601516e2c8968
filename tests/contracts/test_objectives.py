"""What every objective keeps, whatever its framework, loss, regularizer and views.

The fast tier runs them over all pairs of parts, and those that train over one case or two of each
framework; the full tier all over pairs and variants; the soak over every combination.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections import UserDict
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from clsweep.catalog import COMPONENT, OBJECTIVE_PARTS, PARAM, SELECTED_PARTS
from clsweep.catalog.ownership import owned_params
from clsweep.objective.views import recipes
from clsweep.train import loop, mutual_information
from clsweep.train.loop import train_trial
from clsweep.train.state import TrialState, new_state
from tests.contracts.attempts import assert_same, attempt
from tests.contracts.combinations import (
    BATCH,
    CASES,
    COMBINATIONS,
    PAIR_CASES,
    PAIRS,
    REPRESENTATIVES,
    VARIANTS,
    Config,
    few_images,
    small_config,
    some_digits,
)
from tests.tiers import in_tiers

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
FULL = (*REPRESENTATIVES, *PAIRS, *VARIANTS)


def start(config: Config) -> TrialState:
    state = new_state(config, CPU)
    state.objective.train()
    return state


def batch(config: Config) -> tuple[list[Tensor], Tensor]:
    """The views of sixteen digits and their labels."""
    multi_view = (
        "num_views", "num_global_views", "small_crop_scale", "small_crop_max", "crop_only_share",
        "crop_scale",
    )  # fmt: skip
    given = tuple((name, config[name]) for name in multi_view if name in config)
    return list(_views(config["views"], given)), some_digits(BATCH).labels_N


@cache
def _views(kind: str, params: tuple[tuple[str, Any], ...]) -> tuple[Tensor, ...]:
    config = small_config(
        {"framework": "simclr", "loss": "dcl", "regularizer": "none", "views": kind}, **dict(params)
    )
    generator = torch.Generator().manual_seed(3)
    images = some_digits(BATCH)
    rows = torch.arange(BATCH)
    return tuple(images.views(rows, images.draw(recipes(config), rows, generator)))


@dataclass(frozen=True, kw_only=True)
class Forward:
    """Of a batch: embeddings by kind and view, as they came and as prepared, and their losses."""

    embeddings: Any
    prepared: Any
    losses: Any


def forward(state: TrialState, config: Config) -> Forward:
    """In the objective's own precision."""
    views, labels_N = batch(config)
    dtype = next(state.objective.parameters()).dtype
    embeddings = state.objective([x.to(dtype) for x in views])
    with torch.autocast("cpu", enabled=False):
        prepared = state.objective.prepare(embeddings, state.draw_generator)
        losses = state.objective.loss(prepared, labels_N)
    return Forward(embeddings=embeddings, prepared=prepared, losses=losses)


def num_views(config: Config) -> int:
    return 2 if config["views"] == "two" else config["num_views"]


def test_every_part_of_the_catalog_occurs():
    for part in OBJECTIVE_PARTS:
        names = {config[part] for config in (*CASES.values(), *PAIR_CASES.values())}
        assert names == set(COMPONENT[part])
    frameworks = {CASES[name]["framework"] for name in REPRESENTATIVES}
    assert frameworks == {config["framework"] for config in CASES.values()}


def test_a_few_cases_cover_all_pairs_of_parts():
    """Each choice of two parts that is valid with any others, against a plain search."""
    few = [COMBINATIONS[name] for name in PAIRS]
    for kinds in itertools.combinations(OBJECTIVE_PARTS, 2):
        valid = {tuple(case[kind] for kind in kinds) for case in COMBINATIONS.values()}
        assert {tuple(case[kind] for kind in kinds) for case in few} == valid
    assert len(set(PAIRS)) == len(PAIRS) < 0.2 * len(COMBINATIONS)


# Embeddings and loss.


def expected_views(config: Config) -> dict[str, set[int]]:
    """The views of each kind of embeddings, from what the pairs of the four kinds of views are."""
    count, framework = num_views(config), config["framework"]
    every = set(range(count))
    first = {"core": {0}, "multicrop": {0, 1} if count > 2 else {0}}.get(
        config["views"], every - {count - 1}
    )
    if framework == "dino":
        num_global = config.get("num_global_views", 2)
        targets = {"core": {0}, "multicrop": set(range(num_global))}.get(config["views"], every)
        return {"online": every - (targets if len(targets) == 1 else set()), "target": targets}
    if framework in ("moco", "simo"):
        both_ways = config.get("symmetric", False)
        queries = every if both_ways else first
        return {"online": queries, "target": every if both_ways else every - {0}}
    more = {
        "byol": ("predicted", "target"),
        "moco_v3": ("predicted", "target"),
        "simsiam": ("predicted",),
        "nnclr": ("predicted",),
        "supervised": ("logits",),
    }
    return dict.fromkeys(("online", *more.get(framework, ())), every)


@dataclass(frozen=True, kw_only=True)
class Made:
    """What one model of a case gives; several contracts look at it."""

    config: Config
    exact: Forward  # in float32
    half: Forward  # the same batch and draws under autocast to bfloat16
    half_gradient: dict[str, Tensor | None]
    # In float64, so that zero is zero: gradient, and what is stopped before a step of the
    # optimizer, after it, and after what the objective does then.
    gradient: dict[str, Tensor | None]
    trainable: set[str]
    in_optimizer: set[str]
    stopped: tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]
    followers_require_grad: bool


@pytest.fixture(scope="module", params=in_tiers(CASES, fast=(*PAIRS, *REPRESENTATIVES), full=FULL))
def made(request):
    request.getfixturevalue("one_thread")
    config = CASES[request.param]
    state = start(config)
    objective, drawn = state.objective, state.draw_generator.get_state()
    exact = forward(state, config)
    with torch.autocast("cpu", torch.bfloat16):
        state.draw_generator.set_state(drawn)
        half = forward(state, config)
    half.losses.total.backward()
    half_gradient = _gradient(objective)

    objective.double().zero_grad()
    state.draw_generator.set_state(drawn)
    embeddings = forward(state, config)
    embeddings.losses.total.backward()
    before = copy.deepcopy(stopped_tensors(objective))
    gradient = _gradient(objective)
    state.optimizer.step()
    stepped = copy.deepcopy(stopped_tensors(objective))
    objective.after_step(embeddings.prepared, 0.5, state.draw_generator)
    in_optimizer = {id(p) for group in state.optimizer.param_groups for p in group["params"]}
    return Made(
        config=config,
        exact=exact,
        half=half,
        half_gradient=half_gradient,
        gradient=gradient,
        trainable={n for n, p in objective.named_parameters() if p.requires_grad},
        in_optimizer={n for n, p in objective.named_parameters() if id(p) in in_optimizer},
        stopped=(before, stepped, stopped_tensors(objective)),
        followers_require_grad=any(x.requires_grad for x in stopped_tensors(objective).values()),
    )


def _gradient(objective: Any) -> dict[str, Tensor | None]:
    return {n: None if p.grad is None else p.grad.clone() for n, p in objective.named_parameters()}


def test_shapes_of_embeddings_and_a_finite_scalar_loss(made):
    config, embeddings, losses = made.config, made.exact.embeddings, made.exact.losses
    views, _ = batch(config)
    num_global = config.get("num_global_views", 2)
    sizes = [8] * num_global + [6] * (num_views(config) - num_global)
    assert [view.shape[-1] for view in views] == sizes
    assert {kind: set(by_view) for kind, by_view in embeddings.items()} == expected_views(config)
    widths = {
        "logits": 10,
        "online": 16 if config["framework"] == "supervised" else 10,
        "target": 10,
        "predicted": 10,
    }
    for kind, by_view in embeddings.items():
        assert all(x.shape == (BATCH, widths[kind]) for x in by_view.values())
        assert all(torch.isfinite(x).all() for x in by_view.values())
        assert all(x.requires_grad == (kind != "target") for x in by_view.values())
    assert losses.total.shape == losses.base.shape == ()
    assert torch.isfinite(losses.total)
    assert losses.total.requires_grad
    assert (losses.regularizer is None) == (config["regularizer"] == "none")
    if losses.regularizer is not None:
        mixed = config["lam"] * losses.regularizer + (1 - config["lam"]) * losses.base
        torch.testing.assert_close(losses.total / num_summed(config), mixed)
    else:
        torch.testing.assert_close(losses.total / num_summed(config), losses.base)


def num_summed(config: Config) -> int:
    """Pairs over which the total is a sum and not a mean; `core` is the one that occurs."""
    return config["num_views"] - 1 if config.get("pair_reduction") == "sum" else 1


# Gradients.


def without_gradient(config: Config) -> set[str]:
    """Parameters whose gradient is zero whatever the data: biases whose addition is undone by what
    follows.

    The projector's last bias: barlow_twins, vicreg and wmse centre the columns, lejepa takes the
    distance of views; in byol the
    predictor begins with a linear map and a batch norm. A regularizer that does not centre the
    columns sees it.
    """
    if (
        config["framework"] not in ("barlow_twins", "vicreg", "wmse", "lejepa", "byol")
        or config["regularizer"] == "sigreg"
        or config.get("dim_standardize") is False
    ):
        return set()
    last = 3 * (config["proj_layers"] - 1)  # linear, batch norm and ReLU for each hidden layer
    return {f"projector.{last}.bias"}


def test_gradients_reach_every_parameter_that_trains_and_no_other(made):
    largest = {n: None if g is None else float(g.abs().max()) for n, g in made.gradient.items()}
    trainable = {n for n in largest if not n.startswith("target.")}
    assert made.trainable == made.in_optimizer == trainable
    assert {n for n, value in largest.items() if value is None} == set(largest) - trainable
    values = {n: value for n, value in largest.items() if value is not None}
    assert all(math.isfinite(value) for value in values.values())
    scale = max(values.values())
    zero = {n for n, value in values.items() if value < 1e-14 * scale}
    assert zero == without_gradient(made.config)


def test_what_is_stopped_stays_until_after_the_step_and_then_follows(made):
    before, stepped, after = made.stopped
    assert all(torch.equal(x, before[n]) for n, x in stepped.items())
    changed = {n.split(".")[0] for n, x in after.items() if not torch.equal(x, before[n])}
    followers = {
        "moco": {"target", "queue"},
        "simo": {"target"},
        "byol": {"target"},
        "moco_v3": {"target"},
        "nnclr": {"support"},
        "swav": {"queues"} if made.config.get("swav_queue") else set(),
        "dino": {"target", "centre_K"},
    }
    assert changed == followers.get(made.config["framework"], set())
    assert not made.followers_require_grad


def stopped_tensors(objective: Any) -> dict[str, Tensor]:
    """Momentum copies, queues, support set and centre; without batch statistics, which every
    forward pass moves.
    """
    parameters = {n: p for n, p in objective.named_parameters() if n.startswith("target.")}
    return parameters | {
        n: b for n, b in objective.named_buffers() if n.endswith(("rows_KD", "centre_K"))
    }


# Half precision.

# bfloat16 keeps 8 bits. Through five layers and their batch norms the projections of 16 digits are
# off by a few percent of their length; at tau = 0.1 so are the losses.
BF16 = {"rtol": 0.05, "atol": 0.05}


def test_half_precision_gives_the_loss_of_float32(made):
    embeddings = [x for by_view in made.half.embeddings.values() for x in by_view.values()]
    assert any(x.dtype == torch.bfloat16 for x in embeddings)
    assert made.half.losses.total.dtype == torch.float32
    torch.testing.assert_close(made.half.losses.total, made.exact.losses.total, **BF16)
    for gradient in made.half_gradient.values():
        assert gradient is None or (
            gradient.dtype == torch.float32 and torch.isfinite(gradient).all()
        )


# Regularizers.

REGULARIZED = [n for n in REPRESENTATIVES if CASES[n]["framework"] != "lejepa"]  # which needs one


@pytest.mark.parametrize(
    ("name", "regularizer"), zip(REGULARIZED, itertools.cycle(("sigreg", "dimcl", "barlow")))
)
def test_a_regularizer_of_no_weight_is_the_baseline_bit_for_bit(name, regularizer, monkeypatch):
    """DimCL Fig. 5: lam = 0. No regularizer may change what the base method sees, batch statistics
    included.
    """
    monkeypatch.setattr(loop, "load_splits", few_images)
    parts = {part: CASES[name][part] for part in ("framework", "loss", "views")}
    if regularizer == parts["loss"]:
        regularizer = "dimcl"
    drawn = {n: CASES[name][n] for n in ("num_negatives", "symmetric") if n in CASES[name]}
    drawn |= {"eval_every": 2}
    plain = attempt(small_config(parts | {"regularizer": "none"}, **drawn))
    mixed = attempt(small_config(parts | {"regularizer": regularizer}, lam=0.0, **drawn))
    for row in (*mixed.rows, mixed.result):
        assert row.pop("regularizer_loss") != 0
    assert_same(mixed, plain)


# Hyperparameters.


class Recording(UserDict[str, Any]):
    """A configuration that remembers which keys were read; whether one is there is not a
    reading.
    """

    def __init__(self, config: Config):
        super().__init__(config)
        self.read = set[str]()

    def __getitem__(self, name: str) -> Any:
        value = self.data[name]
        self.read.add(name)
        return value


def owned(config: Config) -> set[str]:
    selected = {name: config[name] for name in SELECTED_PARTS if name in config}
    return set(owned_params(config, dataset=config["dataset"], **selected))


READERS = CASES | PAIR_CASES


@pytest.mark.parametrize("name", in_tiers(READERS, fast=(*REPRESENTATIVES, *PAIR_CASES), full=FULL))
def test_exactly_the_owned_hyperparameters_are_read(name, monkeypatch):
    monkeypatch.setattr(loop, "load_splits", few_images)
    monkeypatch.setattr(mutual_information, "STEPS_PER_EPOCH", 5)
    case = READERS[name]
    short = {"epochs": 1, "probe_epochs": 1, "estimate_batches": 5, "critic_hidden": 8}
    config = Recording(case | {n: value for n, value in short.items() if n in case})
    result = train_trial(config, lambda _: None)
    assert config.read & set(PARAM) == owned(case)
    assert {"seed", "dataset", "framework", "loss"} <= config.read
    assert name in PAIR_CASES or {"val_fraction", *OBJECTIVE_PARTS} <= config.read
    assert math.isfinite(result["mi_estimate" if name in PAIR_CASES else "knn_top1"])
