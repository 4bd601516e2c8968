"""One trial from its configuration to its scores, readable from top to bottom."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clsweep.data.augment import apply
from clsweep.data.datasets import Split, channel_stats, load_splits
from clsweep.objective.build import VIEWS, build_encoder, build_objective
from clsweep.objective.catalog import DATASET
from clsweep.objective.frameworks import SimCLR
from clsweep.objective.views import recipe
from clsweep.train.collectives import ModuleT, gather, gather_features, rank, share, sync_batch_norm, world_size
from clsweep.train.evaluate import knn_scores
from clsweep.train.memory import PeakMemory
from clsweep.train.optim import build_sgd, lr_at, peak_lr

Row = dict[str, Any]
EVAL_BATCH = 1024


class DivergedError(ArithmeticError):
    """The loss or the features of a trial are no longer finite."""


@dataclass(frozen=True)
class Images:
    """The images of one split on the trial's device: uint8 (N, C, H, W), and how to normalise them."""

    pixels_NCHW: Tensor
    labels_N: Tensor
    mean_1C11: Tensor
    std_1C11: Tensor

    def normalise(self, x_NCHW: Tensor) -> Tensor:
        """Images in [0, 1] -> what an encoder takes: standardised, three channels."""
        x = (x_NCHW - self.mean_1C11) / self.std_1C11
        return x.expand(-1, 3, -1, -1)


def train_trial(
    config: Mapping[str, Any],
    report: Callable[[Row], None],
    *,
    data_root: str = "data",
    download: bool = False,
    device: str | torch.device = "cpu",
) -> Row:
    """Pre-train one encoder and score it; in a process group, as one of its workers.

    Args:
        config: a row of the plan: framework, loss, regularizer, views, dataset, val_fraction, seed and every
            hyperparameter that the objective owns, by catalog name.
        report: called after every epoch with its row: epoch, train_loss, lr, time_s, images_per_s and, where the
            encoder was scored, the metrics. `epochs: 0` reports the one row of epoch 0.
        data_root, download: where torchvision's data sets lie, and whether to fetch them.
        device: where to train.

    Returns:
        The trial's results: metrics of the last epoch (percent), final loss, images_per_s, peak_memory_gib, ...

    Raises:
        DivergedError: loss or features are not finite.
        RequestError: the data set is not there.
    """
    device, memory = torch.device(device), PeakMemory(torch.device(device))
    train, val, _ = load_splits(
        config["dataset"], val_fraction=config["val_fraction"], root=data_root, download=download
    )
    train_images, val_images = _on_device(train, train, device), _on_device(val, train, device)
    if config["epochs"] == 0:
        encoder = _seeded(build_encoder, config).to(device)
        score = _evaluate(encoder, train_images, val_images, config)
        report({"epoch": 0, **score})
        return {**score, "num_images": 0, "peak_memory_gib": memory.peak_gib()}

    objective = sync_batch_norm(_seeded(build_objective, config).to(device), device)
    model = nn.parallel.DistributedDataParallel(objective) if world_size() > 1 else objective
    optimizer = build_sgd(objective, config)
    generator = torch.Generator().manual_seed(_derived_seed(config["seed"], "data"))
    num_images, train_time_s, row, score = 0, 0.0, {}, {}
    for epoch in range(1, config["epochs"] + 1):
        start = time.perf_counter()
        loss, lr = _train_epoch(epoch, model, objective, optimizer, train_images, config, generator)
        epoch_time_s = time.perf_counter() - start
        if not math.isfinite(loss):
            raise DivergedError(f"the loss is {loss} in epoch {epoch}; a smaller lr or a larger tau may help")
        epoch_images = _steps_per_epoch(train_images, config) * config["batch_size"]
        num_images, train_time_s = num_images + epoch_images, train_time_s + epoch_time_s
        row = {"epoch": epoch, "train_loss": loss, "lr": lr, "time_s": epoch_time_s}
        row["images_per_s"] = epoch_images / epoch_time_s
        if epoch % config["eval_every"] == 0 or epoch == config["epochs"]:
            score = _evaluate(objective.encoder, train_images, val_images, config)
            row |= score
        report(row)
    return {
        **score,
        "train_loss": row["train_loss"],
        "lr_peak": peak_lr(config),
        "num_images": num_images,
        "images_per_s": num_images / train_time_s,
        "peak_memory_gib": memory.peak_gib(),
    }


def _train_epoch(
    epoch: int,
    model: nn.Module,
    objective: SimCLR,
    optimizer: torch.optim.Optimizer,
    images: Images,
    config: Mapping[str, Any],
    generator: torch.Generator,
) -> tuple[float, float]:
    """One pass over the training split; mean loss and the last learning rate."""
    model.train()
    steps_per_epoch = _steps_per_epoch(images, config)
    lr, total_loss = 0.0, torch.zeros((), device=images.pixels_NCHW.device)
    for step, views in enumerate(_batches(images, config, generator), start=(epoch - 1) * steps_per_epoch):
        lr = lr_at(
            step,
            peak=peak_lr(config),
            num_steps=config["epochs"] * steps_per_epoch,
            num_warmup_steps=config["warmup_epochs"] * steps_per_epoch,
        )
        for group in optimizer.param_groups:
            group["lr"] = lr
        loss = objective.loss([gather(z_ND) for z_ND in model(views)])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total_loss += loss.detach()
    return total_loss.item() / steps_per_epoch, lr


def _batches(images: Images, config: Mapping[str, Any], generator: torch.Generator) -> Iterator[list[Tensor]]:
    """This worker's share of the views of every global batch of an epoch.

    Order and views are drawn for the global batch by every worker alike: what a sample looks like does not depend on
    the number of workers.
    """
    pixels, transform, batch_size = images.pixels_NCHW, recipe(config), config["batch_size"]
    per_worker = batch_size // world_size()
    mine = slice(rank() * per_worker, (rank() + 1) * per_worker)
    order = torch.randperm(len(pixels), generator=generator)
    for batch in range(_steps_per_epoch(images, config)):
        rows = order[batch * batch_size : (batch + 1) * batch_size]
        draws = VIEWS[config["views"]](transform, batch_size, pixels.shape[-1], generator)
        x_NCHW = pixels[rows[mine].to(pixels.device)].float() / 255
        yield [images.normalise(apply(x_NCHW, view[mine])) for view in draws]


def _steps_per_epoch(images: Images, config: Mapping[str, Any]) -> int:
    """Full batches only: a rest would change the number of negatives."""
    return int(len(images.pixels_NCHW) // config["batch_size"])


def _evaluate(encoder: nn.Module, train: Images, val: Images, config: Mapping[str, Any]) -> dict[str, float]:
    bank_ND, query_MD = _features(encoder, train), _features(encoder, val)
    if not (torch.isfinite(bank_ND).all() and torch.isfinite(query_MD).all()):
        raise DivergedError("the encoder's features are not finite; a smaller lr or a larger tau may help")
    return knn_scores(
        bank_ND,
        train.labels_N,
        query_MD,
        val.labels_N,
        num_classes=DATASET[config["dataset"]].num_classes,
        k=config["knn_k"],
        temperature=config["knn_temperature"],
    )


@torch.no_grad()
def _features(encoder: nn.Module, images: Images) -> Tensor:
    """Features (N, D) of unaugmented images, in evaluation mode; the workers share the work."""
    was_training = encoder.training
    encoder.eval()
    batches = images.pixels_NCHW[share(len(images.pixels_NCHW))].split(EVAL_BATCH)
    features = torch.cat([encoder(images.normalise(x.float() / 255)) for x in batches])
    encoder.train(was_training)
    return gather_features(features, len(images.pixels_NCHW))


def _on_device(split: Split, statistics: Split, device: torch.device) -> Images:
    mean_C, std_C = channel_stats(statistics)
    return Images(
        pixels_NCHW=torch.from_numpy(split.images).permute(0, 3, 1, 2).contiguous().to(device),
        labels_N=torch.from_numpy(split.labels).to(device),
        mean_1C11=torch.from_numpy(mean_C)[None, :, None, None].to(device),
        std_1C11=torch.from_numpy(std_C)[None, :, None, None].to(device),
    )


def _seeded(build: Callable[[Mapping[str, Any]], ModuleT], config: Mapping[str, Any]) -> ModuleT:
    """A module with the initial weights of the trial's seed; the caller's random state stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_derived_seed(config["seed"], "model"))
        return build(config)


def _derived_seed(seed: int, purpose: str) -> int:
    """Independent streams from one seed: initial weights are not the beginning of the data order."""
    return int(np.random.SeedSequence([seed, *purpose.encode()]).generate_state(1)[0])
