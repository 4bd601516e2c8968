"""Whether a step waits for the GPU, and what a trial takes of its memory beside the plan's
estimate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from _speed import precision_on
from _work import config_of, random_images

from clsweep.train.diagnostics import StepStatistics
from clsweep.train.images import made_at_once
from clsweep.train.loop import train_epoch, train_trial
from clsweep.train.state import new_state

Row = dict[str, Any]
SCORED = "scored epoch"
NARROW_DINO = {"num_prototypes": 1024, "proj_hidden": 256}
STEPS: dict[str, Row] = {
    "simclr": {},
    "moco, dcl": {"framework": "moco", "loss": "dcl"},
    "barlow_twins": {"framework": "barlow_twins", "proj_hidden": 512, "proj_dim": 512},
    f"simclr, {SCORED}": {},
    "simclr, fp16": {"precision": "fp16"},
    "simclr, lars": {"optimizer": "lars"},
    "byol": {"framework": "byol", "proj_hidden": 256, "pred_hidden": 256},
    "simclr, eqco of drawn negatives": {"loss": "eqco", "num_negatives": 7},
    "vicreg": {"framework": "vicreg", "proj_hidden": 512, "proj_dim": 512},
    "wmse": {"framework": "wmse", "proj_dim": 12, "whitening_size": 32},
    "swav, multicrop": {"framework": "swav", "views": "multicrop", "proj_hidden": 256},
    "dino": {"framework": "dino", **NARROW_DINO},
    f"dino, fp16, lars, {SCORED}": {"framework": "dino", "precision": "fp16", "optimizer": "lars",
                                    **NARROW_DINO},
}  # fmt: skip
# encoder, pixels a side, batch
MEMORY = (("resnet18", 32, 256), ("resnet18", 32, 1024), ("resnet50", 224, 128))
SMALL_MEMORY = (("conv4-16", 32, 32),)


def never_waits(device: torch.device, small: bool) -> Iterator[Row]:
    """No step after the first waits for the GPU: torch raises where one does."""
    if device.type != "cuda":
        what = "waits: nothing to wait for on this device"
        yield {"what": what, "ok": None, "figure": None, "limit": None}
        return
    for name, parts in STEPS.items():
        wait = _wait_of(parts, device, is_scored=SCORED in name, small=small)
        what = f"{name}: steps that wait{wait and f': {wait}'}"
        yield {"what": what, "ok": not wait, "figure": float(bool(wait)), "limit": 0.0}


def _wait_of(parts: Row, device: torch.device, *, is_scored: bool, small: bool) -> str:
    """What torch says of the first wait in an epoch, but for its first step and its end."""
    # views are made for many batches at once: enough of them that a step makes some
    given, rows = {"precision": "bf16"} | parts, 3 * 32
    config = config_of("conv4-16", 32, 32, **given, num_train=rows)
    if not small:
        rows = 2 * made_at_once(random_images(config, device), config)
        config = config_of("conv4-16", 32, 32, **given, num_train=rows)
    state, images = new_state(config, device), random_images(config, device)
    last = rows // config["batch_size"]

    def after_step() -> float:
        step = state.under_way.step if state.under_way else 0
        torch.cuda.set_sync_debug_mode("error" if step < last else "default")
        return 0.0

    try:
        train_epoch(state, state.objective, images, config,
                    StepStatistics() if is_scored else None, after_step=after_step)  # fmt: skip
    except RuntimeError as error:
        return str(error).splitlines()[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return ""


def memory(device: torch.device, small: bool) -> Iterator[Row]:
    """Peak of a trial of two epochs, which is what `plan --estimate` takes, beside a longer one's
    and what the GPU has less meanwhile: that has the CUDA context too.
    """
    for encoder, size, batch in SMALL_MEMORY if small else MEMORY:
        shape = {"num_train": 8 * batch, "eval_every": 2, "knn_k": 20}
        config = config_of(encoder, size, batch, precision_on(device), **shape)
        estimate, _ = _peak_gib({**config, "epochs": 2, "eval_every": 1}, device)
        trial, taken = _peak_gib({**config, "epochs": 5}, device)
        what = f"{encoder}, {size} x {size}, batch {batch}: memory"
        row: Row = {"what": what, "ok": None, "figure": None, "limit": 1.1}
        if estimate and trial:
            row |= {"what": f"{what} of a trial, as a share of the estimate",
                    "figure": trial / estimate, "ok": trial <= 1.1 * estimate}  # fmt: skip
        yield row | {"estimate GiB": estimate, "trial GiB": trial, "GPU has less GiB": taken}


def _peak_gib(config: Row, device: torch.device) -> tuple[float | None, float | None]:
    """Of a trial, by its own account and by the GPU's."""
    if device.type != "cuda":
        return train_trial(config, lambda _: None, device=device)["peak_memory_gib"], None
    torch.cuda.empty_cache()
    least: list[int] = []
    result = train_trial(
        config, lambda _: least.append(torch.cuda.mem_get_info(device)[0]), device=device
    )
    total = torch.cuda.mem_get_info(device)[1]
    return result["peak_memory_gib"], (total - min(least)) / 2**30
