"""One trial from its configuration to its scores, readable from top to bottom."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from clsweep.catalog import COMPONENT, DATASET
from clsweep.catalog.ownership import num_crop_only, with_defaults
from clsweep.catalog.plugins import forget_folders
from clsweep.catalog.rows import Row
from clsweep.data.datasets import load_splits
from clsweep.data.locations import DataPlace
from clsweep.data.preparation import told_to
from clsweep.data.random_streams import drawing
from clsweep.objective.contrastive import wide
from clsweep.objective.framework import Embeddings, Losses, PairFramework
from clsweep.objective.views import pairs_and_compute
from clsweep.train.checkpoints import Checkpoints, ReportEpoch, TrialCheckpointer
from clsweep.train.collectives import distributed, gather, rank, world_size
from clsweep.train.compilation import compile_ahead
from clsweep.train.device import trial_device
from clsweep.train.diagnostics import StepStatistics, score_without_labels, watched_parameters
from clsweep.train.evaluation import (
    Scores,
    diagnose,
    embed_in_plane,
    projections,
    score_encoder,
    transfer_of,
)
from clsweep.train.finite import DivergedError
from clsweep.train.images import Batch, Chunks, Images, batches, scored_images, steps_per_epoch
from clsweep.train.lost_gradients import require_trained
from clsweep.train.memory import PeakMemory
from clsweep.train.mutual_information import train_critic
from clsweep.train.optim import peak_lr
from clsweep.train.own_loop import Trial, is_of_trainer, run_trainer
from clsweep.train.progress_reporter import ProgressReporter, ReportProgress
from clsweep.train.schedules import Schedules, begin_step
from clsweep.train.state import (
    AfterStep,
    EpochUnderWay,
    TrialState,
    compute_in_float32,
    new_state,
    untrained_encoder,
)

HERE = DataPlace()
# Of fp16's loss: below it a gradient of 1 vanishes. A scale that is still too large leaves out the
# step and halves; one of a gradient that is NaN would do so to the end, and nothing would train.
LEAST_SCALE = 2.0**-24


def train_trial(
    config: Mapping[str, Any],
    report: ReportEpoch,
    *,
    place: DataPlace = HERE,
    device: str | torch.device = "cpu",
    checkpoints: Checkpoints | None = None,
    test: bool = False,
    tell: ReportProgress | None = None,
    folder: Callable[[], TemporaryDirectory[str]] = TemporaryDirectory,
) -> Row:
    """Pre-train one encoder and score it; in a process group, as one of its workers.

    Args:
        config: a row of the plan: framework, loss, regularizer, views, dataset, val_fraction, seed
            and every hyperparameter that the objective owns, by catalog name.
        report: called after every epoch with its row: epoch, train_loss, lr, time_s, images_per_s
            and, where the encoder was scored, metrics and diagnostics. `epochs: 0` reports the one
            row of epoch 0. An answer of False ends the trial with this epoch; the first worker's
            holds for all.
        place, device: where the data sets lie, and where to train.
        checkpoints: the trial goes on from the latest, and reports the rows of the epochs before it
            again, in order. What comes out is what an undisturbed trial gives: on a CPU bit for
            bit. The first worker's count.
        test: score the test split too, once, at the end. Pairs of vectors have none, and a trial
            that is scored on the test split anyway has its scores already.
        tell: what hears every few seconds how far the trial is, see `ProgressReporter`.
        folder: makes the folder in which a trainer of the user's own keeps what it goes on from.

    Returns:
        The trial's results: metrics of the last epoch, final losses, diagnostics, images_per_s,
        peak_memory_gib, ... status ("finished", or "stopped" before its last epoch by an answer),
        epochs_trained, num_resumes (checkpoints gone on from), earlier_s (time of the attempts
        before the last of them), `test_knn_top1` and so on if asked for, under "histograms",
        "points" and "hits" rows of the side tables, under "encoder" the encoder's state dict on the
        CPU, and under "normalisation" the mean and standard deviation of each channel that its
        inputs are scaled by.

    Raises:
        DivergedError, RequestError: loss or features are not finite; the data set is not there.
    """
    forget_folders()
    planned, device = config, trial_device(device)
    config = MappingProxyType(with_defaults(config))  # own parts have it too, and may not write
    checkpointer = TrialCheckpointer(config, report, checkpoints, device)
    reporter = ProgressReporter(config, tell)
    compute_in_float32()
    try:
        with drawing(config["seed"], "trial"):
            if is_of_trainer(config):
                own = Trial(config, planned, place, device, tell)
                return run_trainer(own, checkpointer, folder, test=test)
            if DATASET[config["dataset"]].kind == "pairs":
                return train_critic(config, checkpointer, device, reporter)
            return _train_encoder(config, checkpointer, reporter, place, device, test=test)
    except (SystemExit, GeneratorExit) as error:  # nobody else would say where
        kind = type(error).__name__
        what = f"sys.exit({error.code!r})" if isinstance(error, SystemExit) else kind
        words = f"{what} would end the process without a word"
        raise RuntimeError(words).with_traceback(error.__traceback__) from None


def _train_encoder(
    config: Mapping[str, Any],
    checkpointer: TrialCheckpointer,
    reporter: ProgressReporter,
    place: DataPlace,
    device: torch.device,
    *,
    test: bool,
) -> Row:
    memory = PeakMemory(device)
    # all steps have one shape: worth trying what is fastest
    torch.backends.cudnn.benchmark = device.type == "cuda"
    with told_to(reporter.prepare):
        splits = load_splits(config, place)
    train, val = (scored_images(s, splits, config, device) for s in (splits.train, splits.val))
    score = partial(score_encoder, train=train, config=config)
    on_val = partial(score, val=val, transfer=transfer_of(config, splits, place, device))
    if config["epochs"] == 0:
        encoder, objective = untrained_encoder(config, device), None
        scores = on_val(encoder, last=True)
        points = embed_in_plane(scores.features_MD, val, config)
        checkpointer.end_epoch({"epoch": 0, **scores.values}, points=points, hits=scores.hits)
        result = checkpointer.result(0)
    else:
        state = new_state(config, device)
        objective, (encoder, _) = state.objective, state.objective.scored
        result = _train(state, config, train, val, on_val, checkpointer, reporter)
    split = "test" if config["val_fraction"] is None else "validation"
    result["hits"] = [{**row, "split": split} for row in checkpointer.hits]
    if test and config["val_fraction"] is not None:
        last = result["status"] == "finished"
        tested = scored_images(splits.test, splits, config, device)
        transfer = transfer_of(config, splits, place, device, test=True)
        scores = score(encoder, val=tested, objective=objective, last=last, transfer=transfer)
        values = dict(scores.values)
        if objective is not None:
            values |= score_without_labels(projections(objective, tested, config))
        result |= {f"test_{name}": score for name, score in values.items()}
        result["hits"] += [{**row, "split": "test"} for row in scores.hits]
    return result | {
        "peak_memory_gib": memory.peak_gib(),
        "encoder": {name: value.detach().cpu() for name, value in encoder.state_dict().items()},
        "normalisation": {
            "mean": train.mean_1C11.flatten().tolist(),
            "std": train.std_1C11.flatten().tolist(),
        },
    }


Score = Callable[..., Scores]  # encoder, last=, objective=


def _train(
    state: TrialState,
    config: Mapping[str, Any],
    train: Images,
    val: Images,
    score: Score,
    checkpointer: TrialCheckpointer,
    reporter: ProgressReporter,
) -> Row:
    checkpointer.resume(state)
    objective = state.objective
    model = distributed(objective) if world_size() > 1 else objective
    epoch_images = steps_per_epoch(train, config) * config["batch_size"]
    while checkpointer.goes_on:
        epoch = state.epoch + 1
        is_last = epoch == config["epochs"]
        is_scored = is_last or epoch % config["eval_every"] == 0
        so_far = begin_epoch(state, train, StepStatistics() if is_scored else None)
        statistics = so_far.statistics
        row: Row = {"epoch": epoch}
        row |= train_epoch(
            state, model, train, config, statistics, reporter, checkpointer.after_step
        )
        row["time_s"] = so_far.time_s
        if not math.isfinite(row["train_loss"]):
            raise DivergedError.of(f"the loss is {row['train_loss']} in epoch {epoch}", config)
        if state.scaler.is_enabled() and state.scaler.get_scale() < LEAST_SCALE:
            raise DivergedError.of(f"fp16 has no number for the gradient in epoch {epoch}", config)
        row["images_per_s"] = epoch_images / row["time_s"]
        histogram, points, hits = list[Row](), list[Row](), None
        if statistics is not None:
            with reporter.scoring():
                scores = score(objective.scored[0], last=is_last, objective=objective)
                features, hits = scores.features_MD, scores.hits
                row |= scores.values | statistics.summary()
                row |= diagnose(objective, val, features, config, base_loss=row["base_loss"])
                histogram = [{"epoch": epoch, **bar} for bar in statistics.histogram()]
                points = embed_in_plane(features, val, config) if is_last else []
        checkpointer.end_epoch(row, histogram, points, hits)
    more = {"precision": state.precision.name, "lr_peak": peak_lr(config)}
    result = checkpointer.result(epoch_images) | more
    result["compile_s"] = state.compile_s
    if COMPONENT["framework"][config["framework"]].pairs_views:
        pairs = cast(PairFramework, objective).comparison.pairs
        result |= pairs_and_compute(config, pairs, train.size)
    if config["views"] != "two":
        result["num_crop_only"] = num_crop_only(config["crop_only_share"], config["num_views"])
    return result


def begin_epoch(
    state: TrialState, images: Images, statistics: StepStatistics | None
) -> EpochUnderWay:
    """The epoch under way, which is a new one with these statistics where there was none."""
    if state.under_way is None:
        totals = torch.zeros(3, device=images.device)
        state.under_way = EpochUnderWay(totals, statistics, state.view_generator.get_state())
    return state.under_way


def train_epoch(
    state: TrialState,
    model: nn.Module,
    images: Images,
    config: Mapping[str, Any],
    statistics: StepStatistics | None = None,
    reporter: ProgressReporter | None = None,
    after_step: AfterStep | None = None,
) -> Row:
    """One pass over the training split, or what is left of the one under way: mean losses, and of
    the last step the learning rate, and weight decay and tau where they have a schedule.

    Args:
        state: advanced to the end of the epoch.
        model: the state's objective, or what distributes it.
        statistics: collects the diagnostics of every step, if given.
        reporter: looks at every step, if given.
        after_step: called after every step, and returns the seconds that it took.

    Raises:
        DivergedError: the loss is not finite, as the reporter sees.
    """
    so_far = begin_epoch(state, images, statistics)
    per_epoch = steps_per_epoch(images, config)
    if reporter is not None:
        reporter.begin_epoch(state.epoch + 1, per_epoch, so_far.step)
    model.train()
    if not so_far.step:
        state.begin_epoch()
    schedules, num_steps = Schedules(config, per_epoch), config["epochs"] * per_epoch
    of_steps: dict[str, Any] = {
        "config": config,
        "watched": watched_parameters(state.objective.encoder),
    }
    epoch_batches = batches(images, config, state.epoch, state.view_generator, so_far.step)
    for step, batch in enumerate(epoch_batches, start=state.epoch * per_epoch + so_far.step):
        values = schedules.at(step)
        so_far.lr = values["lr"]
        if "tau" in values:
            of_steps["config"] = MappingProxyType({**config, "tau": values["tau"]})
        begin_step(state, values)
        if config.get("compile") and state.compile_s is None:
            state.compile_s = compile_ahead(
                state, partial(accumulate_gradient, state, model, batch)
            )
            so_far.leave_out(state.compile_s)
        _take_step(state, model, batch, (step + 1) / num_steps, of_steps)
        if reporter is not None:
            reporter.step(so_far.step + 1, so_far.totals[0])
        so_far.end_step(after_step)
    state.epoch, state.under_way = state.epoch + 1, None
    total, base, regularizer = (so_far.totals / per_epoch).tolist()
    row = {"train_loss": total, "base_loss": base, **schedules.at(state.epoch * per_epoch - 1)}
    return row | {"regularizer_loss": regularizer} if so_far.is_regularized else row


def _take_step(
    state: TrialState, model: nn.Module, batch: Batch, progress: float, of_steps: Mapping[str, Any]
) -> None:
    """One step of the epoch under way, after which `progress` is the share of all steps that are
    done; `of_steps`: what diagnostics take that all steps share.
    """
    assert state.under_way is not None
    so_far = state.under_way
    state.objective.begin_step(progress)
    state.optimizer.zero_grad(set_to_none=True)
    prepared, losses = accumulate_gradient(state, model, batch)
    state.scaler.unscale_(state.optimizer)
    if so_far.statistics is not None:
        step_of = {"objective": state.objective, "prepared": prepared, **of_steps}
        # With a scaler, a step whose gradient overflows is not taken.
        so_far.statistics.add_step(step_of, finite_only=state.scaler.is_enabled())
    state.scaler.step(state.optimizer)
    state.scaler.update()
    state.objective.after_step(prepared, progress, state.draw_generator)
    parts = [part.detach() for part in losses if part is not None]
    so_far.totals[: len(parts)].add_(torch.stack(parts))
    so_far.is_regularized = losses.regularizer is not None


def accumulate_gradient(
    state: TrialState, model: nn.Module, batch: Batch
) -> tuple[Embeddings, Losses]:
    """Add the gradient of a batch's loss, as the state's scaler scales it, to the parameters'
    `grad`; returns what the loss was made of, and its parts.

    A batch of several chunks takes two passes (gradient caching: Gao et al. 2021, GradCache): the
    first, without graphs, collects all embeddings; the loss is taken of them and gives each its
    gradient; the second makes the graph of one chunk at a time, for its embeddings' gradients to
    pass through. So the memory is that of a chunk, and every sample has the whole batch to be
    compared with. Batch norm sees one chunk at a time: the gradient is exactly that of a batch in
    one pass whose batch norms take the statistics of each chunk apart. Both passes of a chunk draw
    the same from the global generators; each chunk of each worker draws otherwise. The loss draws
    alike on all workers.

    Args:
        state: of the trial, whose generator draws negatives.
        model: the state's objective, or what distributes it.
    """
    is_whole = len(batch.chunks) == 1
    if is_whole:
        embeddings = gather_all(embed(state, model, batch.chunks))
    else:
        embeddings = _collect(state, batch.chunks)
    state.draw_for("loss")
    prepared = state.objective.prepare(embeddings, state.draw_generator)
    losses = state.objective.loss(prepared, batch.labels_N)
    outputs = [z for views in embeddings.values() for z in views.values()]
    require_trained(state, [losses.total], ("loss", "regularizer", "framework"), outputs)
    if is_whole:
        require_trained(state, outputs, ("encoder", "framework"))
    state.scaler.scale(losses.total).backward()
    if not is_whole:
        _pass_on(state, model, batch.chunks, embeddings)
        state.draw_for("end")
    return prepared, losses


def gather_all(embeddings: Embeddings) -> Embeddings:
    """The embeddings of the global batch, in one message."""
    if world_size() == 1:
        return embeddings
    mine = [(kind, view, z) for kind, views in embeddings.items() for view, z in views.items()]
    packed = gather(torch.cat([z for _, _, z in mine], dim=1))
    gathered: Embeddings = {kind: {} for kind in embeddings}
    parts = packed.split([z.shape[1] for _, _, z in mine], dim=1)
    for (kind, view, z), part in zip(mine, parts, strict=True):
        # the targets of momentum encoders came without a graph
        gathered[kind][view] = part if z.requires_grad else part.detach()
    return gathered


def embed(state: TrialState, model: nn.Module, chunks: Chunks, number: int = 0) -> Embeddings:
    """This worker's embeddings of its views of a chunk; half types end here."""
    views = chunks[number]()
    state.draw_for(f"chunk {number} of worker {rank()}")
    with state.precision.autocast():
        embeddings: Embeddings = model(views)
    return {
        kind: {view: wide(z) for view, z in views.items()} for kind, views in embeddings.items()
    }


def _collect(state: TrialState, chunks: Chunks) -> Embeddings:
    """The first pass: the embeddings of all chunks, as leaves that take a gradient."""
    with torch.no_grad(), frozen_statistics(state.objective):
        numbers = range(len(chunks))
        parts = [gather_all(embed(state, state.objective, chunks, each)) for each in numbers]
    return {
        kind: {
            view: torch.cat([part[kind][view] for part in parts]).requires_grad_() for view in views
        }
        for kind, views in parts[0].items()
    }


def _pass_on(state: TrialState, model: Any, chunks: Chunks, leaves: Embeddings) -> None:
    """The second pass: the leaves' gradients, chunk by chunk, to the parameters."""
    for number in range(len(chunks)):
        is_last = number == len(chunks) - 1
        with contextlib.nullcontext() if world_size() == 1 or is_last else model.no_sync():
            embeddings = embed(state, model, chunks, number)
            outputs, grads = [], []
            for kind, views in embeddings.items():
                for view, z_ND in views.items():
                    grad = leaves[kind][view].grad
                    if z_ND.requires_grad and grad is not None:  # not the targets'
                        first = (number * world_size() + rank()) * len(z_ND)
                        outputs.append(z_ND)
                        # every worker has the whole loss: what they average is to be its gradient
                        grads.append(grad[first : first + len(z_ND)] * world_size())
            require_trained(state, outputs, ("encoder", "framework"))
            torch.autograd.backward(outputs, grads)


@contextlib.contextmanager
def frozen_statistics(module: nn.Module) -> Iterator[None]:
    """Batch norms take the statistics of their batch, as in training, but leave the running ones
    alone; buffers of modules of the user's own are afterwards what they were.
    """
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    # ours change none as they are called
    others = [m for m in module.modules() if not type(m).__module__.startswith("clsweep.")]
    before = [
        (m._buffers, {name: x if x is None else x.clone() for name, x in m._buffers.items()})
        for m in others
        if m._buffers and not isinstance(m, _BatchNorm)
    ]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
        for buffers, copies in before:
            buffers.update(copies)
