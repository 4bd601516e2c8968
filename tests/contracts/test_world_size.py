"""Any number of workers train as one: loss, gradient, parameters and memories, through real process groups.

In float64, so that what is left between them is rounding and nothing else: 1e-8 of the largest number of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clsweep.data.augment import apply
from clsweep.objective.views import draw_views, recipes
from clsweep.train.collectives import gather, rank, world_size
from clsweep.train.images import batches
from clsweep.train.state import new_state
from tests.contracts.combinations import BATCH, CASES, Config, some_digits

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS = 3
SIZES = (2, 4)
# Every framework, loss, regularizer, kind of views, memory and batch norm; whatever draws or counts over the batch.
NAMES = (
    "simclr-infonce-dimcl-two",
    "simclr-dcl-abscl-ecpp",
    "simclr-dclw-none-two",
    "simclr-align_uniform-barlow-core",
    "simclr-eqco-none-all_pairs-num_negatives=7",
    "moco-infonce-none-two-num_negatives=6-symmetric=True",
    "moco-dclw-dimcl-multicrop",
    "moco-eqco-barlow-two",
    "moco-align_uniform-barlow-all_pairs-symmetric=True",
    "simo-eqco-none-two-num_negatives=7",
    "simo-dcl-abscl-core",
    "byol-cosine-dimcl-all_pairs",
    "byol-cosine-none-two",
    "simsiam-cosine-abscl-two",
    "simsiam-cosine-barlow-multicrop",
    "barlow_twins-barlow-none-two",
    "barlow_twins-barlow-dimcl-ecpp",
    "nnclr-dclw-dimcl-two",
    "nnclr-infonce-none-core",
    "nnclr-eqco-barlow-two",
    "supervised-cross_entropy-dimcl-two",
    "supervised-decoupled_cross_entropy-none-two",
)
Run = dict[str, Any]


def work() -> Run:
    """What one worker knows of each objective after some steps, and its share of some batches."""
    return {name: train(CASES[name]) for name in NAMES} | {"batches": my_batches()}


def my_batches() -> list[tuple[list[Tensor], Tensor]]:
    generator = torch.Generator().manual_seed(5)
    return list(batches(some_digits(3 * BATCH), CASES["simclr-dcl-none-ecpp"], 0, generator))


def train(config: Config) -> Run:
    """Some steps as `train_epoch` takes them, in float64."""
    state = new_state(config, torch.device("cpu"))
    objective = state.objective.double().train()
    model = nn.parallel.DistributedDataParallel(objective, broadcast_buffers=False) if world_size() > 1 else objective
    share = BATCH // world_size()
    mine = slice(rank() * share, (rank() + 1) * share)
    images, transforms = some_digits(STEPS * BATCH), recipes(config)
    run: Run = {"loss": []}
    for step in range(STEPS):
        rows = torch.randperm(len(images), generator=state.view_generator)[:BATCH]
        draws = draw_views(transforms, BATCH, 8, state.view_generator)
        x_NCHW = images.pixels_NCHW[rows[mine]].double() / 255
        embeddings = model([images.normalise(apply(x_NCHW, view[mine])) for view in draws])
        gathered = {kind: {view: gather(x) for view, x in views.items()} for kind, views in embeddings.items()}
        prepared = objective.prepare(gathered, state.draw_generator)
        losses = objective.loss(prepared, images.labels_N[rows])
        state.optimizer.zero_grad()
        losses.total.backward()
        run["loss"].append(losses.total.detach())
        if step == 0:
            run["gradient"] = {n: p.grad.clone() for n, p in objective.named_parameters() if p.grad is not None}
        state.optimizer.step()
        objective.after_step(prepared, (step + 1) / STEPS, state.draw_generator)
    run["state"] = {n: x for n, x in objective.state_dict().items() if isinstance(x, Tensor)}
    run["position"] = {n: x for n, x in objective.state_dict().items() if not isinstance(x, Tensor)}
    return run


@pytest.fixture(scope="module")
def alone() -> dict[str, Run]:
    """What a single process gets."""
    return {name: train(CASES[name]) for name in NAMES}


@pytest.fixture(scope="module")
def together(run_workers: Callable[..., list[Any]]) -> dict[int, list[Run]]:
    """What each worker of two and of four gets."""
    return {size: run_workers(__file__, "work", size) for size in SIZES}


def assert_equal(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    largest = max(float(x.abs().max()) for x in expected.values() if x.is_floating_point())
    for name, x in expected.items():
        torch.testing.assert_close(
            actual[name], x, rtol=1e-8, atol=1e-8 * max(largest, 1.0), msg=lambda m, n=name: n + m
        )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_workers_train_as_one(
    alone: dict[str, Run], together: dict[int, list[Run]], name: str, size: int
) -> None:
    expected = alone[name]
    for worker in together[size]:
        run = worker[name]
        torch.testing.assert_close(run["loss"], expected["loss"], rtol=1e-8, atol=1e-10)
        assert_equal(run["gradient"], expected["gradient"])
        assert_equal(run["state"], expected["state"])
        assert run["position"] == expected["position"]


def test_every_framework_loss_and_regularizer_is_among_them() -> None:
    for part in ("framework", "loss", "regularizer", "views"):
        assert {CASES[name][part] for name in NAMES} == {config[part] for config in CASES.values()}


@pytest.mark.parametrize("name", NAMES)
def test_the_comparison_could_fail(alone: dict[str, Run], name: str) -> None:
    """Each step moves what is compared, by far more than the tolerance."""
    first, second, third = alone[name]["loss"]
    assert min(abs(first - second), abs(second - third)) > 1e-4
    initial = new_state(CASES[name], torch.device("cpu")).objective.state_dict()
    weight = "encoder.layers.0.weight"
    assert (alone[name]["state"][weight] - initial[weight]).abs().max() > 1e-4


def test_workers_share_the_batch_of_one(together: dict[int, list[Run]]) -> None:
    """Each makes its rows of the same views; the labels are those of the whole batch."""
    for workers in together.values():
        for step, (views, labels_N) in enumerate(my_batches()):
            mine = [worker["batches"][step] for worker in workers]
            for view, x in enumerate(views):
                torch.testing.assert_close(torch.cat([its_views[view] for its_views, _ in mine]), x)
            assert all(torch.equal(its_labels_N, labels_N) for _, its_labels_N in mine)
