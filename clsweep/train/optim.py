"""Optimiser and learning-rate schedule of a trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

REFERENCE_BATCH = 256  # the batch size at which lr is quoted (DCL 4.1)
_BATCH_EXPONENT = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}


def peak_lr(config: Mapping[str, Any]) -> float:
    """Learning rate after the warm-up: lr x (batch_size / 256) ^ 0, 1/2 or 1."""
    return float(config["lr"] * (config["batch_size"] / REFERENCE_BATCH) ** _BATCH_EXPONENT[config["lr_rule"]])


def lr_at(step: int, *, peak: float, num_steps: int, num_warmup_steps: int) -> float:
    """Learning rate of step 0, 1, ...: linear warm-up that ends at the peak, then half a cosine towards 0."""
    if step < num_warmup_steps:
        return peak * (step + 1) / num_warmup_steps
    progress = (step - num_warmup_steps) / (num_steps - num_warmup_steps)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))


def build_optimizer(module: nn.Module, config: Mapping[str, Any]) -> torch.optim.Optimizer:
    """SGD with momentum, LARS or AdamW; biases and normalisation (one-dimensional parameters) are not decayed.

    LARS (You et al. 2017) is pytorch-optimizer's: it scales the step of each weight, decayed or not, by
    lars_trust x |w| / (|gradient| + weight_decay |w|), and leaves biases and normalisation alone. The others are
    torch's, fused into one kernel.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": config["weight_decay"]},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    lr = peak_lr(config)
    if config["optimizer"] == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=config["sgd_momentum"], fused=_has_fused(parameters))
    if config["optimizer"] == "adamw":
        betas = (config["adam_beta1"], config["adam_beta2"])
        return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=_has_fused(parameters))
    from pytorch_optimizer import LARS  # takes most of a second

    return LARS(groups, lr=lr, momentum=config["sgd_momentum"], trust_coefficient=config["lars_trust"])


def _has_fused(parameters: Sequence[nn.Parameter]) -> bool:
    return all(p.device.type in ("cpu", "cuda") for p in parameters)
