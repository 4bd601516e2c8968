"""The state of a trial between two steps, and all that a checkpoint has to hold of it: random
streams from its one seed, the number format of its networks, its epoch under way.

A trial trains in the precision that its plan names, or fails. No device chooses one: the numbers of
a study must not depend on the machine that computes them. Losses, statistics and scores are in
float32 or wider whatever it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from clsweep.data.random_streams import derived_seed, drawing, seed_draws
from clsweep.errors import RequestError
from clsweep.model.winograd import use_winograd
from clsweep.objective.build import build_encoder, build_objective
from clsweep.objective.framework import Framework
from clsweep.train.collectives import ModuleT, sync_batch_norm, world_size
from clsweep.train.diagnostics import StepStatistics
from clsweep.train.optim import build_optimizer


def seeded(build: Callable[[Mapping[str, Any]], ModuleT], config: Mapping[str, Any]) -> ModuleT:
    """A module with the initial weights of the trial's seed; the caller's random state stays."""
    with drawing(config["seed"], "model"):
        return build(config)


_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """fp32, or a half type for the products inside of networks (autocast; weights stay float32)."""

    name: str
    device: torch.device

    @classmethod
    def on(cls, device: torch.device, wanted: str) -> Precision:
        """The wanted precision: fp32, bf16 or fp16.

        A CPU computes bf16 with or without instructions for it. With AMX it is faster than fp32;
        AVX-512 alone multiplies bf16 at half the speed.

        Raises:
            RequestError: the device cannot train with it, or it is still `auto`.
        """
        if wanted != "fp32" and wanted not in _HALF:
            raise RequestError(
                f"precision: expected fp32, bf16 or fp16, given {wanted!r}: auto is decided by the "
                "study's plan"
            )
        if wanted == "fp16" and device.type == "cpu":
            raise RequestError("precision: fp16 needs a GPU. Expected on a CPU: fp32 or bf16")
        # emulated it is slower than fp32
        has_bf16 = partial(torch.cuda.is_bf16_supported, including_emulation=False)
        if wanted == "bf16" and device.type == "cuda" and not has_bf16():
            raise RequestError(
                "precision: this GPU has no bf16 arithmetic. Expected: fp16 or fp32, as in --set "
                "base.precision=fp16"
            )
        return cls(wanted, device)

    def autocast(self) -> torch.autocast:
        """The context of a forward pass."""
        # No cache of the cast weights: one that was made without gradients would have none later.
        dtype = _HALF.get(self.name)
        return torch.autocast(
            self.device.type, dtype=dtype, enabled=dtype is not None, cache_enabled=False
        )

    def scaler(self) -> torch.amp.GradScaler:
        """Keeps the gradients of fp16 from vanishing; passes everything through otherwise."""
        return torch.amp.GradScaler(self.device.type, enabled=self.name == "fp16")


def compute_in_float32() -> None:
    """Keep convolutions and products of this process from rounding to TF32, as torch or its
    environment may let them: they would lose 13 bits without a word, in scores of a trial of
    whatever precision. In a half type's training autocast decides before that.
    """
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


@dataclass
class TrialState:
    """Objective (with momentum copies, queue and support set), optimiser, random generators,
    finished epochs and the one under way.

    The views come from one generator, drawn negatives from another: an objective that draws more
    negatives still sees the same views. The order of the images needs none: it follows from seed
    and epoch.
    """

    objective: Framework
    optimizer: torch.optim.Optimizer
    view_generator: torch.Generator
    draw_generator: torch.Generator
    scaler: torch.amp.GradScaler
    precision: Precision
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    epoch: int = 0
    under_way: EpochUnderWay | None = None
    compile_s: float | None = None  # of this attempt, once it has compiled

    def draw_for(self, part: str) -> None:
        """Seed the global generators for a part of the step under way."""
        step = self.under_way.step if self.under_way else 0
        seed_draws(self.seed, f"{part} of epoch {self.epoch}", step)

    def begin_epoch(self) -> None:
        """Have the objective begin the epoch, as often as a trial goes on within it."""
        self.draw_for("beginning")
        seed = derived_seed(self.seed, f"regularizer of epoch {self.epoch}")
        self.objective.begin_epoch(self.epoch, seed)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values only: `torch.load(weights_only=True)` reads it back."""
        so_far, draws = self.under_way, self.objective.epoch_draws
        return {
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "view_generator": self.view_generator.get_state() if not so_far else so_far.began_at,
            "draw_generator": self.draw_generator.get_state(),
            "epoch_draws": draws.get_state() if draws else None,
            "epoch": self.epoch,
            "under_way": so_far.state_dict() if so_far else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.view_generator.set_state(state["view_generator"])
        self.draw_generator.set_state(state["draw_generator"])
        self.epoch = state["epoch"]
        so_far, draws = state["under_way"], self.objective.epoch_draws
        if so_far is not None:
            device = next(self.objective.parameters()).device
            self.under_way = EpochUnderWay.of_state(so_far, device, self.view_generator)
            self.begin_epoch()
            if draws is not None:
                draws.set_state(state["epoch_draws"])


def untrained_encoder(config: Mapping[str, Any], device: torch.device) -> nn.Module:
    """The encoder alone, as the trial's seed initialises it, for scores in fp32."""
    encoder = seeded(build_encoder, config).to(device, memory_format=torch.channels_last)
    return cast(nn.Module, encoder)


def new_state(config: Mapping[str, Any], device: torch.device) -> TrialState:
    """A trial at its beginning, from its seed."""
    precision = Precision.on(device, config["precision"])
    compute_in_float32()
    objective = use_winograd(to_trial_device(seeded(build_objective, config), device))
    objective = sync_batch_norm(objective, device)
    if device.type == "cpu" and precision.name == "bf16":
        _refuse_unset_gradients(objective)
    return state_of(objective, config, precision)


def state_of(objective: Framework, config: Mapping[str, Any], precision: Precision) -> TrialState:
    """A trial at its beginning, of an objective that is on its device."""
    return TrialState(
        objective=objective,
        optimizer=build_optimizer(objective, config),
        view_generator=torch.Generator().manual_seed(derived_seed(config["seed"], "views")),
        draw_generator=torch.Generator().manual_seed(derived_seed(config["seed"], "negatives")),
        scaler=precision.scaler(),
        precision=precision,
        seed=config["seed"],
        config=config,
    )


def _refuse_unset_gradients(module: nn.Module) -> None:
    """Have the convolutions of a module refuse images smaller than their stride. In bf16 on a CPU
    with AVX-512 torch (2.15) leaves the gradient of some of their weights as memory was.
    """

    def refuse(conv: nn.Conv2d, given: tuple[Tensor, ...]) -> None:
        sides = tuple(given[0].shape[2:])
        if any(side < step for side, step in zip(sides, conv.stride, strict=True)):
            pixels, steps = (" x ".join(map(str, each)) for each in (sides, conv.stride))
            raise RequestError(
                f"precision: bf16 on a CPU has no gradient of a convolution of stride {steps} over "
                f"{pixels} pixels. Expected fp32, as in --set base.precision=fp32, or larger images"
            )

    for conv in module.modules():
        if isinstance(conv, nn.Conv2d) and max(conv.kernel_size) > 1 < max(conv.stride):
            conv.register_forward_pre_hook(refuse)


def to_trial_device(objective: ModuleT, device: torch.device) -> ModuleT:
    """`objective` there, channels last, but for the numbers of batches that its batch norms have
    seen. On a GPU to count each is a launch, and only a norm without momentum needs it.
    """
    norms = [m for m in objective.modules() if isinstance(m, _BatchNorm) and m.momentum is not None]
    counts = [norm.num_batches_tracked for norm in norms]
    objective = objective.to(device).to(memory_format=torch.channels_last)
    if world_size() == 1:  # workers send each other the buffers of their device
        for norm, count in zip(norms, counts, strict=True):
            norm.num_batches_tracked = count
    return objective


AfterStep = Callable[[], float]


@dataclass
class EpochUnderWay:
    """Between two steps of an epoch.

    Attributes:
        totals: sums of the steps' losses, on the trial's device.
        statistics: the diagnostics of the steps, if the epoch is scored.
        began_at: the state of the views' generator before the first step. A checkpoint has this
            one: views are drawn ahead, in blocks, and are drawn again up to where it goes on.
        step: steps that are done.
        lr, is_regularized: of the last of them.
    """

    totals: Tensor
    statistics: StepStatistics | None = None
    began_at: Tensor | None = None
    step: int = 0
    lr: float = 0.0
    is_regularized: bool = False
    _start: float = field(default_factory=perf_counter)

    @property
    def time_s(self) -> float:
        """Time of the steps, those of earlier attempts included and saving left out."""
        return perf_counter() - self._start

    def end_step(self, after_step: AfterStep | None) -> None:
        """Count a step, and let `after_step` look, which returns the seconds that it took."""
        self.step += 1
        if after_step is not None:
            self.leave_out(after_step())

    def leave_out(self, seconds: float) -> None:
        """Count them to no step."""
        self._start += seconds

    def state_dict(self) -> dict[str, Any]:
        plain = {
            name: getattr(self, name)
            for name in ("totals", "step", "lr", "is_regularized", "time_s")
        }
        return plain | {"statistics": self.statistics.state_dict() if self.statistics else None}

    @classmethod
    def of_state(
        cls, state: Mapping[str, Any], device: torch.device, began_at: torch.Generator
    ) -> EpochUnderWay:
        """The epoch that `state_dict` describes; the generator is back at its beginning."""
        parts = dict(state)
        start, totals = perf_counter() - parts.pop("time_s"), parts.pop("totals").to(device)
        statistics = None
        if (sums := parts.pop("statistics")) is not None:
            statistics = StepStatistics()
            statistics.load_state_dict(sums, device)
        return cls(totals, statistics, began_at.get_state(), **parts, _start=start)
