"""A training loop of one's own: SimCLR in plain torch, on clsweep's views and with its scores.

`loops.yaml` sweeps it. `clsweep check examples/torch_loop.py` tries what a trial relies on.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clsweep.catalog import Param, trainer


def nt_xent(z_2ND: Tensor, tau: float) -> Tensor:
    """SimCLR's loss of N images, whose views are rows n and N + n."""
    z_2ND = F.normalize(z_2ND, dim=1)
    similarity = (z_2ND @ z_2ND.T / tau).fill_diagonal_(-torch.inf)
    positives = torch.arange(len(z_2ND), device=z_2ND.device).roll(len(z_2ND) // 2)
    return F.cross_entropy(similarity, positives)


@trainer(
    params=[
        Param(
            name="channels_1", kind="int", default=32, low=1,
            doc="channels of the first convolution", source="an example",
        )
    ],
    uses=["tau", "lr"],
    gives=["views", "scores"],
)  # fmt: skip
def train(trial: Any) -> None:
    """SimCLR in plain torch."""
    width = trial.config["channels_1"]
    encoder = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip
    head = nn.Sequential(nn.Linear(2 * width, 64), nn.ReLU(), nn.Linear(64, 32))
    model: nn.Module = nn.Sequential(encoder, head).to(trial.device)
    if trial.world_size > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=trial.config["lr"], momentum=0.9)
    file = trial.checkpoint_folder / "state.pt"
    if file.exists():  # the trial goes on after a kill
        state = torch.load(file, map_location=trial.device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for epoch in range(trial.epoch + 1, trial.config["epochs"] + 1):
        losses = []
        for views, _ in trial.batches(epoch):
            loss = nt_xent(model(torch.cat(views)), trial.config["tau"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        trial.report(epoch, {"train_loss": torch.stack(losses).mean(), **trial.score(encoder)})
