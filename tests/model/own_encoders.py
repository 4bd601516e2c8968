"""Encoders as a user writes them, for tests."""

from torch import Tensor, nn


class Pooled(nn.Module):
    """One convolution, averaged."""

    def __init__(self, channels: int = 3):
        super().__init__()
        self.conv = nn.Conv2d(channels, 6, 3, 2)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        features: Tensor = self.conv(x_NCHW).relu().mean((2, 3))
        return features


def pooled(channels: int) -> nn.Module:
    return Pooled(channels)


def of_three() -> nn.Module:
    return Pooled()


def maps(channels: int) -> nn.Module:
    return nn.Conv2d(channels, 6, 3)


def dropping() -> nn.Module:
    return nn.Sequential(Pooled(), nn.Dropout(0.5))


def number() -> int:
    return 3
