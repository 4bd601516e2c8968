"""Optimiser and learning-rate schedule of a trial."""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from clsweep.catalog import COMPONENT, implementation
from clsweep.catalog.ownership import arguments, scaled_lr
from clsweep.catalog.rows import parse_numbers


class Moment(NamedTuple):
    """A step of a trial after its warm-up: what a schedule is asked of."""

    step: int
    num_steps: int
    num_warmup_steps: int = 0

    @property
    def progress(self) -> float:
        """Share of the steps after the warm-up that are done."""
        return (self.step - self.num_warmup_steps) / (self.num_steps - self.num_warmup_steps)


Schedule = Callable[[Moment], float]  # share of the peak rate
Groups = list[dict[str, Any]]  # of parameters, in torch's form: {"params", "weight_decay"}

_ROUNDING = 1e-6  # of a step: 0.55 x 20 is a little more than 11


def peak_lr(config: Mapping[str, Any]) -> float:
    """Learning rate after the warm-up, see `scaled_lr`."""
    return scaled_lr(config["lr"], config["batch_size"], config["lr_rule"])


def build_schedule(config: Mapping[str, Any]) -> Schedule:
    """The trial's schedule, for `lr_at`."""
    row = COMPONENT["lr_schedule"][config["lr_schedule"]]
    return partial(implementation(row), **arguments(config, "lr_schedule"))


def lr_at(
    step: int, *, peak: float, num_steps: int, num_warmup_steps: int, schedule: Schedule
) -> float:
    """Learning rate of step 0, 1, ...: linear warm-up to the peak, then the schedule's share."""
    if step < num_warmup_steps:
        return peak * (step + 1) / num_warmup_steps
    return peak * schedule(Moment(step, num_steps, num_warmup_steps))


def cosine(at: Moment) -> float:
    """(1 + cos(pi progress)) / 2 (Loshchilov & Hutter 2017)."""
    return 0.5 * (1 + math.cos(math.pi * at.progress))


def linear(at: Moment) -> float:
    """1 - progress."""
    return 1 - at.progress


def constant(_at: Moment) -> float:
    """1 at every step (ECPP Fig. 2)."""
    return 1.0


def milestones(at: Moment, *, lr_milestones: str, lr_gamma: float) -> float:
    """lr_gamma ^ (milestones passed), milestones as shares of all steps, the warm-up's included.

    A milestone m is passed from step m x num_steps on, rounded up: after whole epochs, where m x
    epochs is whole, as in torch's MultiStepLR.
    """
    passed = sum(
        at.step >= share * at.num_steps - _ROUNDING for share in parse_numbers(lr_milestones)
    )
    return lr_gamma**passed


def wsd(at: Moment, *, lr_decay_share: float) -> float:
    """1, and 1 - sqrt(d) where a share d of the decay is done, which takes the last lr_decay_share
    of all steps (Hägele et al. 2024; the decay of MiniCPM, Hu et al. 2024, is exponential).
    """
    num_decaying = at.num_steps * lr_decay_share
    return 1 - math.sqrt(max(0.0, 1 - (at.num_steps - at.step) / num_decaying))


def _uncompiled(kind: type[torch.optim.Optimizer]) -> Any:
    """One of torch's optimisers with its methods as they are written.

    Around them torch says to its compiler that this is not to be compiled, and loads the compiler
    for that: more than a second of every process. Nothing here is compiled.
    """
    names = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in names}
    methods["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), methods)


_SGD: Any = _uncompiled(torch.optim.SGD)
_Adam = _uncompiled(torch.optim.Adam)
_AdamW = _uncompiled(torch.optim.AdamW)


def build_optimizer(module: nn.Module, config: Mapping[str, Any]) -> torch.optim.Optimizer:
    """The trial's optimiser at its peak rate; biases and normalisation (one-dimensional parameters)
    are not decayed unless `decay_exclude` is "none"; one of a single number never is. Its steps
    clip the gradient to `grad_clip`, which the loop has unscaled before and which is the same on
    all workers.
    """
    owned = arguments(config, "optimizer")
    longest = owned.pop("grad_clip", 0.0)
    least = 1 if owned.pop("decay_exclude", "norm_bias") == "none" else 2  # dimensions
    parameters = defaultdict[float, list[nn.Parameter]](list)
    for p in module.parameters():
        if p.requires_grad:
            decays = p.ndim >= least and p.numel() > 1  # a scale alone never does
            parameters[config["weight_decay"] if decays else 0.0].append(p)
    groups: Groups = [{"params": p, "weight_decay": decay} for decay, p in parameters.items()]
    for group in groups if config.get("weight_decay_schedule") == "cosine" else ():
        group["scheduled"] = "weight_decay" if group["weight_decay"] else ""
    make = implementation(COMPONENT["optimizer"][config["optimizer"]])
    optimizer: torch.optim.Optimizer = make(groups, lr=peak_lr(config), **owned)
    if longest:
        every = [p for each in parameters.values() for p in each]
        optimizer.register_step_pre_hook(lambda *_: _clip(every, longest))
    return optimizer


def _clip(parameters: list[nn.Parameter], longest: float) -> None:
    """Scale the gradient of all parameters together to a norm of at most `longest`."""
    torch.nn.utils.clip_grad_norm_(parameters, longest, foreach=True)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the rate of the next step. Fused kernels of a GPU read it there: then no step differs
    from another by a number of the host's, and can be replayed (CUDA graphs).
    """
    groups, rate = optimizer.param_groups, cast(Any, lr)
    device = groups[0]["params"][0].device
    if device.type == "cuda" and all(group.get("fused") for group in groups):
        rate = groups[0]["lr"]
        if isinstance(rate, Tensor) and rate.device == device:  # a checkpoint's lies elsewhere
            rate.fill_(lr)
        else:
            rate = torch.full((), lr, device=device)
    for group in groups:
        group["lr"] = rate


def set_weight_decay(optimizer: torch.optim.Optimizer, decay: float) -> None:
    """Set the weight decay of the next step, of the groups that have a schedule of it."""
    for group in optimizer.param_groups:
        if name := group.get("scheduled"):
            group[name] = decay


def sgd(groups: Groups, *, lr: float, sgd_momentum: float) -> torch.optim.Optimizer:
    """torch's SGD with momentum, fused into one kernel."""
    made: torch.optim.Optimizer = _SGD(groups, lr=lr, momentum=sgd_momentum, fused=_lie_on(groups))
    if sgd_momentum:
        made.register_step_pre_hook(_begin_at_rest)
    return made


def _begin_at_rest(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Momentum of zeros where there is none. A first step that is skipped, as one of fp16 that
    overflows, would leave what was in memory: torch's fused kernel (2.15) does not clear it. And it
    wants all of a group to begin together, where prototypes that are frozen at first begin later.
    """
    buffers = []
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None and optimizer.state[p].get("momentum_buffer") is None:
                # in the weight's own order of memory, by which fused kernels go
                buffers.append(torch.empty_like(p))
                optimizer.state[p]["momentum_buffer"] = buffers[-1]
    if buffers:
        torch._foreach_zero_(buffers)


def adamw(
    groups: Groups, *, lr: float, adam_beta1: float, adam_beta2: float
) -> torch.optim.Optimizer:
    """torch's AdamW, fused into one kernel."""
    return _AdamW(groups, lr=lr, betas=(adam_beta1, adam_beta2), fused=_lie_on(groups))


def adam(
    groups: Groups, *, lr: float, adam_beta1: float, adam_beta2: float
) -> torch.optim.Optimizer:
    """torch's Adam, whose L2 penalty joins the gradient, fused into one kernel."""
    return _Adam(groups, lr=lr, betas=(adam_beta1, adam_beta2), fused=_lie_on(groups))


def lars(
    groups: Groups, *, lr: float, sgd_momentum: float, lars_trust: float, lars_clip: bool = False
) -> torch.optim.Optimizer:
    """LARS (You et al. 2017), as pytorch-optimizer has it. It scales the step of each weight by
    lars_trust x |w| / (|gradient| + weight_decay |w|), also where nothing decays. Biases and
    normalisation are left alone.

    With `lars_clip` it multiplies the step by min(that / lr, 1) instead, as solo-learn: no step is
    longer than SGD's.
    """
    return _LARS(groups, lr, sgd_momentum, lars_trust, lars_clip)


class _LARS(_SGD):
    """SGD with momentum whose gradients are those of LARS."""

    def __init__(self, groups: Groups, lr: float, momentum: float, trust: float, clip: bool):
        rest = [
            {"params": g["params"], "lars_decay": g["weight_decay"],
             "scheduled": "lars_decay" if g.get("scheduled") else ""}
            for g in groups
        ]  # fmt: skip
        # on a GPU one kernel, which skips a step of fp16 that overflows by itself
        fused = _lie_on(groups, ("cuda",))
        super().__init__(rest, lr=lr, momentum=momentum, fused=fused)
        self.trust, self.clip = trust, clip
        self.register_step_pre_hook(lambda *_: self._scale_gradients())
        if fused and momentum:
            self.register_step_pre_hook(_begin_at_rest)

    @torch.no_grad()
    def _scale_gradients(self) -> None:
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None and p.ndim >= 2]
            if not weights:
                continue
            gradients = [cast(Tensor, p.grad) for p in weights]
            scales = self._scales(weights, gradients, group["lars_decay"], group["lr"])
            torch._foreach_add_(gradients, weights, alpha=group["lars_decay"])
            torch._foreach_mul_(gradients, scales.unbind())

    def _scales(
        self, weights: list[Tensor], gradients: list[Tensor], decay: float, lr: Any
    ) -> Tensor:
        """Of each weight's decayed gradient, (number of weights,)."""
        norms, lengths = (torch.stack(torch._foreach_norm(x)) for x in (weights, gradients))
        bounds = lengths + decay * norms
        scales = self.trust * norms / bounds
        if self.clip:
            scales = (scales / lr).clamp(max=1.0)
        # a weight of zeros moves as in SGD; one without a gradient does not move
        scales = torch.where((lengths if self.clip else bounds) == 0, 0.0, scales)
        return torch.where(norms == 0, 1.0, scales)


def _lie_on(groups: Groups, devices: tuple[str, ...] = ("cpu", "cuda")) -> bool:
    return all(p.device.type in devices for group in groups for p in group["params"])
