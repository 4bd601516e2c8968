"""The encoders, and the layer of one that is scored. Each maps images (N, 3, H, W) to features
(N, num_features).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Literal, cast

import torch.nn.functional as F
from torch import Tensor, nn

Stem = Literal["small", "standard"]


class SpatialMean(nn.Module):
    """(N, C, H, W) -> (N, C), with a gradient that is channels_last where the maps are.

    That of torch's own mean and pooling is not, and on a CPU the ReLU before them then takes ten
    times as long.
    """

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return x_NCHW.permute(0, 2, 3, 1).flatten(1, 2).mean(dim=1)


def _in_turn(num_features: int, **parts: nn.Module) -> nn.Module:
    network: Any = nn.Sequential(OrderedDict(parts))
    network.num_features = num_features
    return cast(nn.Module, network)


def conv4(*, width: int) -> nn.Module:
    """Four 3 x 3 convolutions with batch norm and ReLU, then the spatial mean: made for a CPU.

    Features (N, 4 * width); `width` is the number of channels of the first convolution.
    """
    widths = (3, width, 2 * width, 2 * width, 4 * width)
    layers: list[nn.Module] = []
    for num_in, num_out, stride in zip(widths[:-1], widths[1:], (2, 1, 2, 1), strict=True):
        layers += [
            nn.Conv2d(num_in, num_out, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(num_out),
            nn.ReLU(inplace=True),
        ]
    return _in_turn(widths[-1], layers=nn.Sequential(*layers), pool=SpatialMean())


def small_alexnet() -> nn.Module:
    """Five 3 x 3 convolutions, fc6 and fc7, each with batch norm and ReLU (Wang & Isola 2020).

    Features (N, 4096) are fc7's; their fc8 is a projector of one layer. Maps are averaged to 7 x 7,
    which they are where images have 64 pixels a side, as theirs; 15 pixels are the least.
    """
    widths, pooled = (3, 96, 192, 384, 384, 192), (True, True, False, False, True)
    layers: list[nn.Module] = []
    for num_in, num_out, is_pooled in zip(widths[:-1], widths[1:], pooled, strict=True):
        layers += [
            nn.Conv2d(num_in, num_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(num_out),
            nn.ReLU(inplace=True),
            *([nn.MaxPool2d(3, 2)] if is_pooled else []),
        ]
    convolutions = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(7), nn.Flatten())
    num = 4096
    fc6, fc7 = (
        nn.Sequential(
            nn.Linear(num_in, num, bias=False), nn.BatchNorm1d(num), nn.ReLU(inplace=True)
        )
        for num_in in (widths[-1] * 7 * 7, num)
    )
    return _in_turn(num, convolutions=convolutions, fc6=fc6, fc7=fc7)


class ThinBlock(nn.Module):
    """Two 3 x 3 convolutions with batch norm around a shortcut without weights: where the maps
    shrink, every second pixel, with channels of zeros behind (He et al. 2016, option A).
    """

    def __init__(self, num_in: int, num_out: int):
        super().__init__()
        self.stride, self.num_new = num_out // num_in, num_out - num_in
        self.conv1 = nn.Conv2d(num_in, num_out, 3, stride=self.stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(num_out)
        self.conv2 = nn.Conv2d(num_out, num_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(num_out)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        shortcut = F.pad(
            x_NCHW[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.num_new)
        )
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x_NCHW))))) + shortcut)


def resnet20() -> nn.Module:
    """ResNet of 20 layers for 32 x 32 pixels, widths 16, 32, 64 (He et al. 2016, 4.2): (N, 64)."""
    parts = {"conv1": nn.Conv2d(3, 16, 3, padding=1, bias=False), "bn1": nn.BatchNorm2d(16)}
    stages = {
        f"layer{i}": nn.Sequential(*(ThinBlock(num_in, width) for num_in in (first, width, width)))
        for i, (first, width) in enumerate(((16, 16), (16, 32), (32, 64)), start=1)
    }
    return _in_turn(64, **parts, relu=nn.ReLU(), **stages, pool=SpatialMean())


def resnet18(*, stem: Stem) -> nn.Module:
    """Features (N, 512)."""
    return _resnet("resnet18", stem)


def resnet50(*, stem: Stem) -> nn.Module:
    """Features (N, 2048)."""
    return _resnet("resnet50", stem)


def resnet50_2x(*, stem: Stem) -> nn.Module:
    """Features (N, 4096): every channel of ResNet-50 twice (EqCo B.4)."""
    return _wide_resnet50(2, stem)


def resnet50_4x(*, stem: Stem) -> nn.Module:
    """Features (N, 8192): every channel of ResNet-50 four times (EqCo B.4)."""
    return _wide_resnet50(4, stem)


def _wide_resnet50(factor: int, stem: Stem) -> nn.Module:
    """torchvision's ResNet-50 with `factor` times as many channels in stem and blocks, which its
    `wide_resnet50_2`, wide inside of a block alone, has not.
    """
    from torchvision.models.resnet import Bottleneck, ResNet

    class Wide(ResNet):
        def _make_layer(self, block: Any, planes: int, *rest: Any, **named: Any) -> nn.Sequential:
            if planes == 64:  # the first stage follows the stem
                self.inplanes = 64 * factor
                self.conv1 = nn.Conv2d(3, self.inplanes, 7, stride=2, padding=3, bias=False)
                self.bn1 = nn.BatchNorm2d(self.inplanes)
            return super()._make_layer(block, factor * planes, *rest, **named)

    network: Any = Wide(Bottleneck, [3, 4, 6, 3])
    network.num_features = 512 * factor * Bottleneck.expansion
    return _headless(network, stem)


def _resnet(name: str, stem: Stem) -> nn.Module:
    """torchvision's network without its classifier, every parameter under torchvision's own name.

    The small stem (3 x 3, stride 1, no pooling) keeps the resolution of 32 x 32 images, as in the
    CIFAR experiments of DCL 4.1; only `conv1.weight` then has another shape than torchvision's.
    """
    # deferred: it brings torch's compiler along, seconds and 90 MB in every process of a trial
    import torchvision

    network: Any = getattr(torchvision.models, name)(weights=None)
    network.num_features = network.fc.in_features
    return _headless(network, stem)


def _headless(network: Any, stem: Stem) -> nn.Module:
    """A ResNet of torchvision without classifier, with the stem asked for."""
    network.avgpool, network.fc = SpatialMean(), nn.Identity()
    if stem == "small":
        width = network.conv1.out_channels
        network.conv1 = nn.Conv2d(3, width, 3, stride=1, padding=1, bias=False)
        nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
        network.maxpool = nn.Identity()
    return cast(nn.Module, network)


class BlockFeatures(nn.Module):
    """The output of one of an encoder's modules, by name: (N, C), maps (N, C, H, W) averaged."""

    def __init__(self, encoder: nn.Module, block: str):
        super().__init__()
        self.encoder, self.block, self.pool = encoder, block, SpatialMean()

    def forward(self, x_NCHW: Tensor) -> Tensor:
        outputs: list[Tensor] = []
        block = self.encoder.get_submodule(self.block)
        hook = block.register_forward_hook(lambda _, _inputs, output: outputs.append(output))
        try:
            self.encoder(x_NCHW)
        finally:
            hook.remove()
        return self.pool(outputs[0]) if outputs[0].ndim == 4 else outputs[0]


def layer_of(encoder: nn.Module, projector: nn.Module | None, layer: str) -> nn.Module:
    """The network up to a layer of features: "encoder", "projector" (its raw output) or the
    name of one of the encoder's modules.

    Raises:
        LookupError: there is no projector.
        AttributeError: the encoder has no module of that name.
    """
    if layer == "encoder":
        return encoder
    if layer != "projector":
        return BlockFeatures(encoder, layer)
    if projector is None:
        raise LookupError("feature_layer: expected a trained projector, given none")
    return nn.Sequential(encoder, projector)
