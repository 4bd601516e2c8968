"""What the speed of training is measured on: configurations, images, and the loops compared."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torchvision.transforms import v2

from clsweep.data.datasets import Split
from clsweep.objective.build import build_objective
from clsweep.train.collectives import distributed
from clsweep.train.images import Images, on_device
from clsweep.train.loop import train_epoch
from clsweep.train.state import Precision, new_state
from studies.records.plain import plain_config

Row = dict[str, Any]
MEAN_3, STD_3 = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
ENCODERS: dict[str, Row] = {
    "conv4-16": {"encoder": "conv4", "width": 16},
    "conv4-32": {"encoder": "conv4", "width": 32},
    "resnet18": {"encoder": "resnet18"},
    "resnet50": {"encoder": "resnet50"},
}


def config_of(encoder: str, size: int, batch: int, precision: str, **given: Any) -> Row:
    """A trial of SimCLR, unless another objective is given."""
    # epochs long enough that their beginning counts for little; the small network is for CPUs
    rows = 8 * batch if encoder == "conv4-16" else max(4096, 4 * batch)
    shape = {"image_size": size, "num_train": rows}
    how = {"batch_size": batch, "precision": precision, "epochs": 1000, "lr": 0.06}
    return plain_config("synthetic", **{**ENCODERS[encoder], **shape, **how, **given})


def random_split(config: Row) -> Split:
    """Random bytes: nothing is learned here, and nothing has to be read."""
    size, count = config["image_size"], config["num_train"]
    pixels = np.random.default_rng(0).integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    return Split.whole(pixels, np.arange(count) % 10)


def random_images(config: Row, device: torch.device) -> Images:
    split = random_split(config)
    return on_device(split, split, device)


def ours(config: Row, device: torch.device) -> Iterator[int]:
    """Epochs of clsweep's loop, of this worker or with all; yields the images of each."""
    torch.backends.cudnn.benchmark = device.type == "cuda"  # as train_trial sets it
    state, images = new_state(config, device), random_images(config, device)
    model = distributed(state.objective) if dist.is_initialized() else state.objective
    while True:
        train_epoch(state, model, images, config)
        yield len(images) // config["batch_size"] * config["batch_size"]


def peer(config: Row, device: torch.device, num_loaders: int) -> Iterator[int]:
    """The loop that one writes without a library of batched views; yields the images of each step.

    lightly's documented one, with its transform and loss, where lightly is installed. Otherwise
    torchvision's v2 transforms in loader processes, and the loss as the paper has it.
    """
    transform, criterion = _peer_parts(config["image_size"], config["blur_prob"])
    split = random_split(config)

    class Pictures(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(split)

        def __getitem__(self, i: int) -> Any:
            return transform(split.images[split.rows[i]])

    objective = build_objective(config)
    model = nn.Sequential(objective.encoder, objective.projector).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.06)
    loader = torch.utils.data.DataLoader(
        Pictures(),
        batch_size=config["batch_size"],
        shuffle=True,
        drop_last=True,
        num_workers=num_loaders,
        persistent_workers=num_loaders > 0,
        pin_memory=device.type == "cuda",
    )
    precision = Precision.on(device, config["precision"])
    while True:
        for x0, x1 in loader:
            with precision.autocast():
                z0, z1 = (model(x.to(device, non_blocking=True)) for x in (x0, x1))
            criterion(z0.float(), z1.float()).backward()
            optimizer.step()
            optimizer.zero_grad()
            yield config["batch_size"]


def simclr_network(config: Row) -> nn.Module:
    """Encoder and projector of a trial, as lightly's documented model has them in turn."""
    objective = build_objective(config)
    return nn.Sequential(objective.encoder, objective.projector)


def lightly_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, precision: Precision | None = None
) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """A step of lightly's documented SimCLR on two views; ImportError where it is not installed."""
    from lightly.loss import NTXentLoss

    criterion = NTXentLoss()

    def step(x0: torch.Tensor, x1: torch.Tensor) -> None:
        with precision.autocast() if precision else contextlib.nullcontext():
            z0, z1 = model(x0), model(x1)
            loss = criterion(z0, z1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def peer_name() -> str:
    try:
        import lightly
    except ImportError:
        return "torchvision v2"
    return f"lightly {lightly.__version__}"


def _peer_parts(size: int, blur: float) -> tuple[Any, Any]:
    """Transform of one image (H, W, C) to two views, and loss of two batches of projections."""
    try:
        from lightly.loss import NTXentLoss
        from lightly.transforms.simclr_transform import SimCLRTransform
    except ImportError:
        one = torchvision_recipe(size, blur)
        return (lambda x: (one(torch.from_numpy(x).permute(2, 0, 1)),
                           one(torch.from_numpy(x).permute(2, 0, 1)))), nt_xent  # fmt: skip
    from PIL import Image

    two = SimCLRTransform(input_size=size, gaussian_blur=blur)
    return (lambda x: two(Image.fromarray(x))), NTXentLoss()


def torchvision_recipe(size: int, blur: float, *first: nn.Module) -> v2.Compose:
    """SimCLR's transform of one image, as its users write it, with `first` before floats."""
    return v2.Compose(
        [
            v2.RandomResizedCrop(size, scale=(0.08, 1.0)),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
            v2.RandomGrayscale(p=0.2),
            v2.RandomApply([v2.GaussianBlur(max(3, 2 * (size // 20) + 1), (0.1, 2.0))], p=blur),
            *first,
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN_3, STD_3),
        ]
    )


def nt_xent(z0_ND: torch.Tensor, z1_ND: torch.Tensor, tau: float = 0.5) -> torch.Tensor:
    """SimCLR's loss in a few lines of torch."""
    z = nn.functional.normalize(torch.cat([z0_ND, z1_ND]))
    similarity = (z @ z.T / tau).fill_diagonal_(float("-inf"))
    partner = torch.arange(len(z), device=z.device).roll(len(z0_ND))
    return nn.functional.cross_entropy(similarity, partner)
