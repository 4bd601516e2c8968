"""The sigmoid loss, whose temperature and bias are trained with the encoder."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clsweep.objective.contrastive import check_positive, check_views, no_autocast, wide


class Sigmoid(nn.Module):
    """The sigmoid loss between the two views of the global batch (Zhai et al. 2023, Algorithm 1):
    l = -1/N sum_ij log sigmoid(y_ij (t s_ij + b)), y_ij = 1 for i = j and -1 otherwise.

    s_ij is the cosine of view 1 of sample i with view 2 of sample j, where the paper has image and
    text. t = exp(log_scale) and b are trained. The sign of b is that of the algorithm: in the
    paper's equation it is the opposite, at which b = -10 would begin far from the truth.

    Args:
        sigmoid_scale: t at the beginning, > 0. sigmoid_bias: b there.
    """

    def __init__(self, *, sigmoid_scale: float = 10.0, sigmoid_bias: float = -10.0):
        super().__init__()
        check_positive(sigmoid_scale=sigmoid_scale)
        begins = math.log(sigmoid_scale), float(sigmoid_bias)
        self.log_scale, self.bias = (nn.Parameter(torch.tensor(value)) for value in begins)
        # what float32 rounds off of both: of views in float64 t is what was asked for
        self._rest = [x - p.item() for x, p in zip(begins, self.parameters(), strict=True)]

    def forward(self, z1_ND: Tensor, z2_ND: Tensor) -> Tensor:
        """The loss, a scalar in float32 or wider, of views (N, D), L2-normalised, N >= 2; else
        ValueError.
        """
        check_views(z1_ND, z2_ND, 2, "negatives")
        z1_ND, z2_ND = wide(z1_ND), wide(z2_ND)
        with no_autocast(z1_ND):
            scale = (self.log_scale.to(z1_ND.dtype) + self._rest[0]).exp()
            bias = self.bias.to(z1_ND.dtype) + self._rest[1]
            logits_NN = scale * (z1_ND @ z2_ND.T) + bias
        signs_NN = 2 * torch.eye(len(z1_ND), dtype=z1_ND.dtype, device=z1_ND.device) - 1
        return -F.logsigmoid(signs_NN * logits_NN).sum() / len(z1_ND)
