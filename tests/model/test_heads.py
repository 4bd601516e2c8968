"""The multi-layer perceptrons against their own list of layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from clsweep.model.layers import mlp


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


def test_value_is_that_of_the_formula():
    torch.manual_seed(0)
    head, x = mlp(3, 5, 4, layers=3), torch.randn(6, 3)
    w1, b1, w2, b2, w3, b3 = head.parameters()
    expected = ((x @ w1.T + b1).clamp(min=0) @ w2.T + b2).clamp(min=0) @ w3.T + b3
    torch.testing.assert_close(head(x), expected)
