"""Perceptrons against their own list of layers."""

from __future__ import annotations

import pytest
from torch import nn

from clsweep.model.heads import mlp

pytestmark = pytest.mark.usefixtures("one_thread")


def layers(head: nn.Sequential) -> list[str]:
    """One word a module: widths and bias of a linear map, width and affine of a batch norm."""
    words = []
    for module in head:
        if isinstance(module, nn.Linear):
            words.append(
                f"{module.in_features}-{module.out_features}{'' if module.bias is None else '+b'}"
            )
        elif isinstance(module, nn.BatchNorm1d):
            words.append(f"norm{module.num_features}{'*' if module.affine else ''}")
        else:
            assert isinstance(module, nn.ReLU)
            words.append("relu")
    return words


@pytest.mark.parametrize(
    ("norm", "num_layers", "expected"),
    [
        ("none", 1, "3-4+b"),
        ("none", 3, "3-5+b relu 5-5+b relu 5-4+b"),
        ("hidden", 3, "3-5 norm5* relu 5-5 norm5* relu 5-4+b"),
        ("all", 1, "3-4 norm4*"),
        ("all", 3, "3-5 norm5* relu 5-5 norm5* relu 5-4 norm4*"),
        ("bare", 2, "3-5 norm5* relu 5-4 norm4"),
    ],
)
def test_layers(norm, num_layers, expected):
    assert layers(mlp(3, 5, 4, layers=num_layers, norm=norm)) == expected.split()
    assert layers(mlp(3, 5, 4)) == ["3-5+b", "relu", "5-4+b"], "the default"
