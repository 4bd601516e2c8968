"""Any number of workers train and score as one: loss, gradient, parameters, memories and scores,
through real process groups.

In float64, so that what is left between them is rounding and nothing else: 1e-8 of the largest
number of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from clsweep.model.encoders import conv4
from clsweep.train.collectives import (
    gather,
    gather_features,
    rank,
    sync_batch_norm,
    worker_rows,
    world_size,
)
from clsweep.train.diagnostics import StepStatistics
from clsweep.train.evaluation import augmented_features, score_encoder
from clsweep.train.images import Batch, batches
from clsweep.train.loop import accumulate_gradient, gather_all
from clsweep.train.schedules import Schedules, begin_step
from clsweep.train.state import new_state
from tests.contracts.combinations import BATCH, CASES, Config, some_digits

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS = 3
SIZES = (2, 4)
# partners are mixed in from the whole batch
AUGMENTED = "simclr-dcl-none-ecpp-augmentation=mixup, random_erasing, gaussian_noise"
SCHEDULED = "nnclr-dclw-dimcl-two-tau_schedule=cosine-weight_decay_schedule=cosine"
FROZEN = "swav-soft_cross_entropy-none-two-frozen"  # some parameters without a gradient
SUB_BATCHES = "wmse-wmse-none-two-sub_batches"  # which samples are whitened together is drawn
TIMM = "simclr-dcl-none-ecpp-timm"  # its norms have an activation behind them
# By two workers, in the fast tier: every framework, and each way to gather, to draw and to count.
# In two chunks a batch: what the workers of a chunk share, in which order they give it back.
FAST = (
    "simclr-dclw-none-two-chunked", "simclr-sigmoid-none-two-chunked", f"{AUGMENTED}-chunked",
    "simclr-eqco-none-all_pairs-num_negatives=7",
    "moco-infonce-none-two-num_negatives=6-symmetric=True", "moco-eqco-barlow-two-chunked",
    "moco-infonce-none-two-key_norm=shuffle-norm_group=4-chunked", "simo-dcl-abscl-core",
    "byol-cosine-dimcl-all_pairs", "moco_v3-infonce-dimcl-two-chunked", "simsiam-cosine-abscl-two",
    "supcon-supcon-dimcl-all_pairs-chunked",
    "barlow_twins-barlow-dimcl-ecpp-chunked", "vicreg-vicreg-none-two-chunked",
    "wmse-wmse-none-two-chunked", SUB_BATCHES, "lejepa-mse-sigreg-multicrop-chunked",
    "swav-soft_cross_entropy-none-multicrop-chunked",
    "dino-soft_cross_entropy-none-two-grad_clip=0.2", FROZEN,
    SCHEDULED, "supervised-cross_entropy-dimcl-two-chunked",
)  # fmt: skip
# With these every loss, regularizer, kind of views, memory and batch norm; whatever draws or counts
# over the batch.
SLOW = (
    "simclr-infonce-dimcl-two", "simclr-dcl-abscl-ecpp", "simclr-align_uniform-barlow-core",
    "simclr-sigmoid-dimcl-ecpp",
    "moco-dclw-dimcl-multicrop", "moco-align_uniform-barlow-all_pairs-symmetric=True",
    "simo-eqco-none-all_pairs-key_norm=shuffle-norm_group=8", "simo-eqco-none-two-num_negatives=7",
    "byol-cosine-none-two", "byol-cosine-dimcl-all_pairs-chunked",
    "simsiam-cosine-barlow-multicrop", "barlow_twins-barlow-none-two",
    "swav-soft_cross_entropy-sigreg-two",
    "dino-soft_cross_entropy-sigreg-multicrop-chunked", "nnclr-infonce-none-core",
    "nnclr-eqco-barlow-two", "supervised-decoupled_cross_entropy-none-two", TIMM,
)  # fmt: skip
OWN: dict[str, Config] = {
    FROZEN: {"freeze_epochs": 1},
    SUB_BATCHES: {"whitening_size": 8, "proj_dim": 5},
    TIMM: {"encoder": "timm/regnetx_002", "pooling": "model", "view_size": 16, "image_size": 8,
           "channels": 1},
}  # fmt: skip


def config_of(name: str) -> Config:
    chunks = {"chunk_size": BATCH // 2} if name.endswith("-chunked") else {}
    own = OWN.get(name, {})
    return CASES[name.rpartition("-")[0] if own or chunks else name] | chunks | own


RUNS = {name: config_of(name) for name in (*FAST, *SLOW)}
Run = dict[str, Any]


def work(names: tuple[str, ...]) -> Run:
    """What one worker knows of each objective after some steps, its share of some batches, and what
    it sends and gets.
    """
    runs = {name: train(RUNS[name]) for name in names}
    return runs | {"batches": my_batches(), "sent": messages(), "shared": shared()}


def my_batches() -> list[tuple[list[list[Tensor]], Tensor]]:
    """This worker's views of each chunk, and the labels of the whole batch."""
    config = RUNS[f"{AUGMENTED}-chunked"]
    made = batches(some_digits(3 * BATCH), config, 0, torch.Generator().manual_seed(5))
    return [([make() for make in batch.chunks], batch.labels_N) for batch in made]


def in_float64(batch: Batch) -> Batch:
    return Batch(
        batch.labels_N, [lambda make=make: [x.double() for x in make()] for make in batch.chunks]
    )


def train(config: Config) -> Run:
    """Some steps as `train_epoch` takes them, in float64."""
    state = new_state(config, torch.device("cpu"))
    objective = state.objective.double().train()
    model = (
        nn.parallel.DistributedDataParallel(objective, broadcast_buffers=False)
        if world_size() > 1
        else objective
    )
    run: Run = {"loss": []}
    statistics = StepStatistics()
    objective.begin_epoch(0)
    for step, batch in enumerate(
        batches(some_digits(STEPS * BATCH), config, 0, state.view_generator)
    ):
        begin_step(state, Schedules(config, STEPS).at(step))
        state.optimizer.zero_grad()
        prepared, losses = accumulate_gradient(state, model, in_float64(batch))
        run["loss"].append(losses.total.detach())
        at_hand = {"objective": objective, "prepared": prepared, "watched": [], "config": config}
        statistics.add_step(at_hand)
        if step == 0:
            run["gradient"] = {
                n: p.grad.clone() for n, p in objective.named_parameters() if p.grad is not None
            }
        state.optimizer.step()
        objective.after_step(prepared, (step + 1) / STEPS, state.draw_generator)
    assert len(run["loss"]) == STEPS
    run["diagnostics"] = statistics.summary()
    run["state"] = {n: x for n, x in objective.state_dict().items() if isinstance(x, Tensor)}
    run["position"] = {n: x for n, x in objective.state_dict().items() if not isinstance(x, Tensor)}
    return run


@cache
def alone(name: str) -> Run:
    """What a single process gets."""
    return train(RUNS[name])


Together = Callable[[int, tuple[str, ...]], list[Run]]


@pytest.fixture(scope="module")
def together(run_workers):
    """What each worker of a group gets, by their number and the objectives; computed once."""
    return cache(lambda size, names: run_workers(__file__, "work", size, names))


def assert_equal(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    largest = max(float(x.abs().max()) for x in expected.values() if x.is_floating_point())
    for name, x in expected.items():
        torch.testing.assert_close(
            actual[name], x, rtol=1e-8, atol=1e-8 * max(largest, 1.0), msg=lambda m, n=name: n + m
        )


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param(name, size, marks=() if name in FAST and size == 2 else pytest.mark.slow)
        for name in RUNS
        for size in SIZES
    ],
)
def test_any_number_of_workers_train_as_one(together, name, size):
    expected = alone(name)
    for worker in together(size, FAST if name in FAST else SLOW):
        run = worker[name]
        torch.testing.assert_close(run["loss"], expected["loss"], rtol=1e-8, atol=1e-10)
        assert run["diagnostics"] == pytest.approx(expected["diagnostics"], rel=1e-8)
        assert_equal(run["gradient"], expected["gradient"])
        assert_equal(run["state"], expected["state"])
        assert run["position"] == expected["position"]


def test_every_framework_loss_and_regularizer_is_among_them():
    for part in ("framework", "loss", "regularizer", "views"):
        every = {config[part] for config in CASES.values()}
        assert {config[part] for config in RUNS.values()} == every


@pytest.mark.parametrize("name", FAST)
def test_the_comparison_could_fail(name):
    """Each step moves what is compared, by far more than the tolerance."""
    run = alone(name)
    first, second, third = run["loss"]
    assert min(abs(first - second), abs(second - third)) > 1e-4
    initial = new_state(RUNS[name], torch.device("cpu")).objective.state_dict()
    weight = next(n for n in initial if n.startswith("encoder.") and n.endswith("weight"))
    assert (run["state"][weight] - initial[weight]).abs().max() > 1e-4


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_workers_share_the_batch_of_one(together, size):
    """Each makes its rows of the same views of each chunk; the labels are those of the whole
    batch.
    """
    workers = together(size, FAST)
    for step, (chunks, labels_N) in enumerate(my_batches()):
        mine = [worker["batches"][step] for worker in workers]
        for chunk, views in enumerate(chunks):
            for view, x in enumerate(views):
                torch.testing.assert_close(
                    torch.cat([its_chunks[chunk][view] for its_chunks, _ in mine]), x
                )
        assert all(torch.equal(its_labels_N, labels_N) for _, its_labels_N in mine)


# What is sent.

NUM_ROWS = (1, 3, 4, 9)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def messages_of(run: Callable[[], Any]) -> tuple[int, Any]:
    """How many messages a worker sends, and what it runs gives."""
    sent = []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("all_reduce", "all_gather", "all_gather_into_tensor"):
            send = getattr(dist, name)
            patch.setattr(dist, name, lambda *a, send=send, **k: (sent.append(1), send(*a, **k))[1])
        actual = run()
    return len(sent), actual


def messages() -> list[int]:
    """Of a batch norm, forward and backward, and of the embeddings of a step."""
    norm = sync_batch_norm(nn.BatchNorm2d(3), torch.device("cpu"))
    forward, y = messages_of(lambda: norm(random(2, 3, 4, 4)))
    backward, _ = messages_of(y.square().sum().backward)
    kinds = {"online": {0: random(2, 3), 1: random(2, 3)}, "target": {0: random(2, 5)}}
    gathered, _ = messages_of(lambda: gather_all(kinds))
    return [forward, backward, gathered]


def shared() -> tuple[Tensor, dict[int, slice], dict[int, Tensor]]:
    """Gathered rows, which do not lie in order, and this worker's share of so many rows."""
    shares = {num: worker_rows(num) for num in NUM_ROWS}
    features = {num: gather_features(random(num, 3)[shares[num]], num) for num in NUM_ROWS}
    return gather(torch.arange(6.0).reshape(2, 3).T + 10 * rank()), shares, features


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_rows_come_back_in_the_workers_order_and_in_one_message_each_way(together, size):
    workers = together(size, FAST)
    rows = torch.cat([torch.arange(6.0).reshape(2, 3).T + 10 * r for r in range(size)])
    for worker in workers:
        gathered, _, features = worker["shared"]
        assert torch.equal(gathered, rows)
        assert all(torch.equal(features[num], random(num, 3)) for num in NUM_ROWS)
        assert worker["sent"] == [1, 1, 1]
    for num in NUM_ROWS:
        taken = [row for worker in workers for row in range(num)[worker["shared"][1][num]]]
        assert taken == list(range(num)), "a partition"


# Scores.

PROBE: Config = {
    "linear_probe": "sgd", "probe_lr": 0.25, "probe_epochs": 2, "probe_views": "augmented",
    "probe_schedule": "cosine", "probe_gamma": 0.1, "probe_optimizer": "sgd", "probe_momentum": 0.9,
    "probe_weight_decay": 0.0, "probe_batch_size": 64, "finetune": "sgd",
    "finetune_labels": "0.1, 1", "finetune_lr": 0.05, "finetune_epochs": 1,
    "finetune_batch_size": 32, "finetune_weight_decay": 0.0, "lidar_views": 3,
}  # fmt: skip


def every_score() -> tuple[Tensor, dict[str, float]]:
    """Augmented features and all scores of one encoder, on each worker."""
    config = CASES["simclr-dcl-none-two"] | PROBE
    torch.manual_seed(0)
    network = conv4(width=4).eval()
    scores, *_ = score_encoder(network, some_digits(201), some_digits(301), config, last=True)
    return augmented_features(network, some_digits(201), config, 1), scores


def test_workers_share_the_work_of_scoring_and_agree(run_workers):
    """Up to one image that is guessed otherwise."""
    features, scores = every_score()
    without_labels = ("rankme", "lidar", "alpha_req")
    for shared, of_worker in run_workers(__file__, "every_score", 2):
        torch.testing.assert_close(shared, features, rtol=1e-5, atol=1e-6)
        assert of_worker == pytest.approx(scores, abs=100 / 301 + 1e-6)
        for name in without_labels:
            assert of_worker[name] == pytest.approx(scores[name], rel=1e-4)
