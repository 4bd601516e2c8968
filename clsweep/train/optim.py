"""Optimiser and learning-rate schedule of a trial."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from clsweep.catalog import COMPONENT, implementation
from clsweep.catalog.ownership import arguments

Groups = list[dict[str, Any]]  # of parameters, in torch's form: {"params", "weight_decay"}

REFERENCE_BATCH = 256  # the batch size at which lr is quoted (DCL 4.1)
_BATCH_EXPONENT = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}


def peak_lr(config: Mapping[str, Any]) -> float:
    """Learning rate after the warm-up: lr x (batch_size / 256) ^ 0, 1/2 or 1."""
    return float(
        config["lr"]
        * (config["batch_size"] / REFERENCE_BATCH) ** _BATCH_EXPONENT[config["lr_rule"]]
    )


def lr_at(step: int, *, peak: float, num_steps: int, num_warmup_steps: int) -> float:
    """Learning rate of step 0, 1, ...: linear warm-up that ends at the peak, then half a cosine
    towards 0.
    """
    if step < num_warmup_steps:
        return peak * (step + 1) / num_warmup_steps
    progress = (step - num_warmup_steps) / (num_steps - num_warmup_steps)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))


def build_optimizer(module: nn.Module, config: Mapping[str, Any]) -> torch.optim.Optimizer:
    """The trial's optimiser at its peak rate; biases and normalisation (one-dimensional parameters)
    are not decayed.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    groups: Groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": config["weight_decay"]},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    make = implementation(COMPONENT["optimizer"][config["optimizer"]])
    optimizer: torch.optim.Optimizer = make(
        groups, lr=peak_lr(config), **arguments(config, "optimizer")
    )
    return optimizer


def sgd(groups: Groups, *, lr: float, sgd_momentum: float) -> torch.optim.Optimizer:
    """torch's SGD with momentum, fused into one kernel."""
    return torch.optim.SGD(groups, lr=lr, momentum=sgd_momentum, fused=_has_fused(groups))


def adamw(
    groups: Groups, *, lr: float, adam_beta1: float, adam_beta2: float
) -> torch.optim.Optimizer:
    """torch's AdamW, fused into one kernel."""
    betas = (adam_beta1, adam_beta2)
    return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=_has_fused(groups))


def lars(
    groups: Groups, *, lr: float, sgd_momentum: float, lars_trust: float
) -> torch.optim.Optimizer:
    """pytorch-optimizer's LARS (You et al. 2017): it scales the step of each weight, decayed or
    not, by lars_trust x |w| / (|gradient| + weight_decay |w|), and leaves biases and normalisation
    alone.
    """
    from pytorch_optimizer import LARS  # takes most of a second

    return LARS(groups, lr=lr, momentum=sgd_momentum, trust_coefficient=lars_trust)


def _has_fused(groups: Groups) -> bool:
    return all(p.device.type in ("cpu", "cuda") for group in groups for p in group["params"])
