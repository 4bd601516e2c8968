#!/usr/bin/env bash
# torch 2.15.0: fused optimizers pair weights and gradients by memory order, not by index.
#
# Guess:     optimizers are functions of values. `fused=True` changes speed and rounding, no more.
# Behaviour: where a gradient has other strides than its weight (a channels_last convolution whose
#            gradient was made contiguous), SGD and AdamW with `fused=True` on a CPU apply the
#            gradient of one element to another. No error, no warning. `fused=False` is right.
# Where it meets this field: networks are trained in channels_last. Autograd itself gives a leaf a
#            gradient of the weight's strides, so a plain loop is safe. What writes `.grad` by hand
#            (gradient caching, averaging over flat buffers, LARS that replaces gradients) is not.
# Source:    torch/optim/sgd.py and adamw.py (`_fused_sgd_`, `_fused_adamw_`); kernels in
#            ATen/native/cpu/FusedSGDKernel.cpp walk data pointers from 0 to numel.
# Seen:      SGD: largest error 0.0 without fused, 3.46 with it. AdamW: other signs of the step.
#
# Installs torch (about 6 GB) into a temporary folder; fails if the behaviour changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import torch

print("torch", torch.__version__)
assert torch.__version__.split("+")[0] == "2.15.0"
generator = torch.Generator().manual_seed(0)
weight = torch.randn(4, 3, 3, 3, generator=generator).contiguous(memory_format=torch.channels_last)
gradient = torch.randn(4, 3, 3, 3, generator=generator)  # the same shape, another order of memory


def stepped(kind, gradient, **options):
    leaf = weight.clone(memory_format=torch.preserve_format).requires_grad_()
    leaf.grad = gradient.clone(memory_format=torch.preserve_format)
    kind([leaf], lr=1.0, **options).step()
    return leaf.detach()


for kind in (torch.optim.SGD, torch.optim.AdamW):
    like_weight = gradient.contiguous(memory_format=torch.channels_last)
    expected = stepped(kind, like_weight, fused=False)
    errors = {
        "plain, other strides": stepped(kind, gradient, fused=False) - expected,
        "fused, same strides": stepped(kind, like_weight, fused=True) - expected,
        "fused, other strides": stepped(kind, gradient, fused=True) - expected,
    }
    largest = {name: float(error.abs().max()) for name, error in errors.items()}
    print(kind.__name__, {name: round(value, 6) for name, value in largest.items()})
    assert largest["plain, other strides"] < 1e-5
    assert largest["fused, same strides"] < 1e-5
    assert largest["fused, other strides"] > 1.0, "fused optimizers look at strides now"
PY
echo "as described"
