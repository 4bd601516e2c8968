"""The trial on pairs of Gaussian vectors: how well a loss estimates a mutual information that is
known (EqCo C).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from clsweep.catalog import DATASET, METRICS, implementation
from clsweep.catalog.rows import Row
from clsweep.data.random_streams import derived_seed
from clsweep.model.transfer import to_device
from clsweep.objective.build import build_critic
from clsweep.train.accuracy import in_percent
from clsweep.train.checkpoints import TrialCheckpointer
from clsweep.train.diagnostics import diagnostics_of, mi_bound
from clsweep.train.evaluation import take_scores
from clsweep.train.finite import DivergedError
from clsweep.train.lost_gradients import require_trained
from clsweep.train.memory import PeakMemory
from clsweep.train.progress_reporter import ProgressReporter
from clsweep.train.state import EpochUnderWay, Precision, TrialState, seeded

DIM = 20  # of each vector (EqCo Eq. 15)
STEPS_PER_EPOCH = 250


def correlation(mutual_information: float) -> float:
    """rho of EqCo Eq. 14 for a mutual information in nats: I = -d/2 log(1 - rho^2) (Eq. 15)."""
    return math.sqrt(-math.expm1(-2 * mutual_information / DIM))


def draw_pairs(
    num_pairs: int, mutual_information: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """X, Y (num_pairs, DIM), standard normal; Y = rho X + sqrt(1 - rho^2) noise (EqCo Eq. 14)."""
    rho = correlation(mutual_information)
    x_ND, noise_ND = (torch.randn(num_pairs, DIM, generator=generator) for _ in range(2))
    return x_ND, rho * x_ND + math.sqrt(1 - rho**2) * noise_ND


@torch.no_grad()
def mi_estimate(
    draw_loss: Callable[[], Tensor], config: Mapping[str, Any], *, estimate_batches: int
) -> dict[str, float]:
    """The bound of the mutual information, nats, by the mean loss of so many fresh batches.

    Raises:
        ValueError: the loss gives no bound.
    """
    fresh = torch.stack([draw_loss() for _ in range(estimate_batches)]).mean().item()
    bound = mi_bound(config, fresh)
    if bound is None:
        raise ValueError(f"mi_estimate: loss {config['loss']} gives no bound")
    return {"mi_estimate": bound}


def _begun(config: Mapping[str, Any], device: torch.device) -> TrialState:
    """The trial before its first step."""
    critic = seeded(lambda c: build_critic(c, DIM), config).to(device)
    precision = Precision.on(device, "fp32")
    return TrialState(
        objective=critic, optimizer=torch.optim.Adam(critic.parameters(), lr=config["lr"]),
        view_generator=torch.Generator(), scaler=precision.scaler(), precision=precision,
        draw_generator=torch.Generator().manual_seed(derived_seed(config["seed"], "data")),
        seed=config["seed"], config=config,
    )  # fmt: skip


def train_critic(
    config: Mapping[str, Any],
    checkpointer: TrialCheckpointer,
    device: torch.device,
    reporter: ProgressReporter,
) -> Row:
    """Train a critic by Adam on fresh pairs, freeze it, and estimate the mutual information.

    `batch_size` is the number of pairs in a step, of which each x has batch_size - 1 negatives.
    Reports and results as in `train_trial`; the metrics are those of pairs, taken at the end.

    Raises:
        DivergedError: the loss is not finite.
    """
    memory, state = PeakMemory(device), _begun(config, device)
    critic, optimizer, generator = state.objective, state.optimizer, state.draw_generator
    checkpointer.resume(state)
    dataset = DATASET[config["dataset"]]
    draw, owned = implementation(dataset), {name: config[name] for name in dataset.owns}

    def loss_of_fresh_pairs() -> Tensor:
        pairs = draw(config["batch_size"], generator=generator, **owned)
        loss: Tensor = critic(*(to_device(each_ND, device) for each_ND in pairs))
        return loss

    num_pairs_per_epoch = STEPS_PER_EPOCH * config["batch_size"]
    while checkpointer.goes_on:
        if state.under_way is None:
            no_views = state.view_generator.get_state()
            state.under_way = EpochUnderWay(torch.zeros((), device=device), began_at=no_views)
        so_far = state.under_way
        reporter.begin_epoch(state.epoch + 1, STEPS_PER_EPOCH, so_far.step)
        for step in range(so_far.step, STEPS_PER_EPOCH):
            state.draw_for("step")
            loss = loss_of_fresh_pairs()
            require_trained(state, [loss], ("loss", "framework"))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            so_far.totals += loss.detach()
            reporter.step(step + 1, so_far.totals)
            so_far.end_step(checkpointer.after_step)
        state.epoch, state.under_way = state.epoch + 1, None
        mean, time_s = so_far.totals.item() / STEPS_PER_EPOCH, so_far.time_s
        if not math.isfinite(mean):
            raise DivergedError.of(f"the loss is {mean} in epoch {state.epoch}", config)
        row = {
            "epoch": state.epoch, "train_loss": mean, "base_loss": mean, "lr": config["lr"],
            "time_s": time_s, "images_per_s": num_pairs_per_epoch / time_s,
        }  # fmt: skip
        row |= diagnostics_of({"config": config, "base_loss": mean})
        if state.epoch == config["epochs"]:
            state.draw_for("scores")
            metrics = [metric for metric in METRICS if metric.kind == "pairs"]
            row |= in_percent(take_scores(metrics, config, loss_of_fresh_pairs, config))
        checkpointer.end_epoch(row)
    return checkpointer.result(num_pairs_per_epoch) | {
        "lr_peak": config["lr"],
        "peak_memory_gib": memory.peak_gib(),
    }
