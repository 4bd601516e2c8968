"""lightly's SimCLR in clsweep: its transform, head and loss, in a loop as its documentation has it.

`loops.yaml` compares it with a loop in plain torch. The lines that end in `# glue` are what the
loop needs to be a trial.
"""

from __future__ import annotations

from typing import Any

import torch
import torchvision
from lightly.loss import NTXentLoss
from lightly.models.modules import SimCLRProjectionHead
from lightly.transforms import SimCLRTransform
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, default_collate

from clsweep.catalog import trainer  # glue


@trainer(uses=["tau", "lr", "batch_size"], gives=["data", "scores"])  # glue
def train(trial: Any) -> None:  # glue
    """SimCLR of lightly: ResNet-18, its own views."""
    images, config = trial.images("train"), trial.config  # glue
    mean, std = (channel.repeat(3).tolist() for channel in images.channel_stats)  # glue
    transform = SimCLRTransform(
        input_size=8, gaussian_blur=0.0, normalize={"mean": mean, "std": std}
    )

    def views_of(batch: list[Any]) -> Any:  # glue
        pictures = [Image.fromarray(image.squeeze()).convert("RGB") for image, _ in batch]  # glue
        return default_collate([transform(picture) for picture in pictures])  # glue

    loader = DataLoader(
        images, batch_size=config["batch_size"], shuffle=True, drop_last=True, collate_fn=views_of
    )
    resnet = torchvision.models.resnet18()
    backbone = nn.Sequential(*list(resnet.children())[:-1], nn.Flatten())
    model = nn.Sequential(backbone, SimCLRProjectionHead(512, 512, 128)).to(trial.device)
    criterion = NTXentLoss(temperature=config["tau"])
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    file = trial.checkpoint_folder / "state.pt"  # glue
    if file.exists():  # glue
        state = torch.load(file, map_location=trial.device)  # glue
        model.load_state_dict(state["model"])  # glue
        optimizer.load_state_dict(state["optimizer"])  # glue
    for epoch in range(trial.epoch + 1, config["epochs"] + 1):
        total = torch.zeros((), device=trial.device)
        for x0, x1 in loader:
            loss = criterion(model(x0.to(trial.device)), model(x1.to(trial.device)))
            total += loss.detach()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)  # glue
        scores = trial.score(backbone)  # glue
        trial.report(epoch, {"train_loss": total / len(loader), **scores})  # glue
