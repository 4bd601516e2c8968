#!/usr/bin/env bash
# torch 2.15.0: a real tensor that is changed in place by a fake one stays as it was, without an error.
#
# Guess:     a fake tensor, which has a shape and no values, makes a fake result wherever it is used,
#            also after its mode has ended; or torch refuses the mixture, as the default mode does.
# Behaviour: with `FakeTensorMode(allow_non_fake_inputs=True)` results of other operations are fake. An
#            operation in place returns the real tensor, unchanged: its work is lost, also outside of
#            the mode, long after it.
# Where it meets this field: operations and memory of a step are counted with fake tensors. Losses keep
#            small tensors from step to step, such as the mask that takes an anchor's own similarity
#            out of its negatives. One that is made while a step is counted is fake; later the mask
#            does nothing, and the loss of training is finite, falls, and is another one.
# Source:    torch/_subclasses/fake_tensor.py (`FakeTensorMode`, `allow_non_fake_inputs`).
#            Way out: keep nothing where `torch._guards.active_fake_mode()` is set.
# Seen:      scatter_, index_put_ and add_ left zeros as they were; scatter and add were fake; without
#            allow_non_fake_inputs an AssertionError. NT-Xent of 8 pairs with a mask that a count left:
#            5.5562 for 3.4324.
#
# Installs torch into a temporary folder; fails if the behaviour changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.4.6
"$work/venv/bin/python" -W ignore - <<'PY'
import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode


def index_in(mode):
    with mode:
        return torch.tensor([[0], [1]])


fake = index_in(FakeTensorMode(allow_non_fake_inputs=True))
in_place = {
    "scatter_": torch.zeros(2, 2).scatter_(1, fake, 1.0),
    "index_put_": torch.zeros(2, 2).index_put_((fake.flatten(),), torch.ones(2, 2)),
    "add_": torch.zeros(2, 1).add_(fake + 1),
}
others = {"scatter": torch.zeros(2, 2).scatter(1, fake, 1.0), "add": torch.zeros(2, 1) + fake}
for name, result in in_place.items():
    print(name, type(result).__name__, result.tolist())
    assert type(result) is torch.Tensor and not result.any(), f"changed: {name}"
assert all(isinstance(result, FakeTensor) for result in others.values()), "changed: the others"
try:
    torch.zeros(2, 2).scatter_(1, index_in(FakeTensorMode()), 1.0)
except AssertionError:
    print("without allow_non_fake_inputs: AssertionError")
else:
    raise SystemExit("changed: the default mode takes real tensors")


@lru_cache
def own(num):
    return torch.arange(num)[:, None]


def nt_xent(z_2ND):
    z_2ND = F.normalize(z_2ND, dim=1)
    similarity = (z_2ND @ z_2ND.T / 0.2).scatter_(1, own(len(z_2ND)), -math.inf)
    positive = (torch.arange(len(z_2ND)) + len(z_2ND) // 2) % len(z_2ND)
    return F.cross_entropy(similarity, positive)


z_2ND = torch.randn(16, 32, generator=torch.Generator().manual_seed(0))
right = nt_xent(z_2ND).item()
own.cache_clear()
with FakeTensorMode(allow_non_fake_inputs=True):
    nt_xent(z_2ND)  # counted
wrong = nt_xent(z_2ND).item()
print(f"NT-Xent {right:.4f}, after a step was counted {wrong:.4f}")
assert math.isfinite(wrong) and abs(wrong - right) > 0.1, "changed: the loss"
print("as described")
PY
