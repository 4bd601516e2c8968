#!/usr/bin/env bash
# lightly 1.6.0: four of six losses select by a mask, so the host waits for the device in each step.
#
# Guess:     losses of SimCLR's family are dense algebra of static shapes. They run on the `meta`
#            device, where host time and memory of a step are measured, and under CUDA graphs.
# Behaviour: NTXentLoss drops the diagonal by a boolean mask, twice; DCLLoss and DCLWLoss select so
#            six times, VICRegLoss twice. Each counts the mask's ones first: the host waits for the
#            GPU, and `meta` tensors are refused. BarlowTwinsLoss and NegativeCosineSimilarity do
#            not. So a comparison of objectives by lightly's speed compares waits, too.
# Source:    lightly/loss/ntx_ent_loss.py, dcl_loss.py, vicreg_loss.py (`[~diag_mask]` and such).
# Seen:      see `expected` below; on meta those with masks raise NotImplementedError of nonzero.
#
# Installs lightly and torch (about 6 GB) into a temporary folder; fails if the behaviour changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check \
    lightly==1.6.0 torch==2.15.0 torchvision==0.29.2 numpy==2.4.6
"$work/venv/bin/python" -W ignore - <<'PY'
import lightly
import torch
from lightly import loss as losses
from torch.utils._python_dispatch import TorchDispatchMode

print("lightly", lightly.__version__, "torch", torch.__version__)
expected = {
    "NTXentLoss": 2, "DCLLoss": 6, "DCLWLoss": 6, "VICRegLoss": 2,
    "BarlowTwinsLoss": 0, "NegativeCosineSimilarity": 0,
}


class Selections(TorchDispatchMode):
    """Counts operations whose result has a shape that only the values tell."""

    number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.number += func is torch.ops.aten.index.Tensor and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        return func(*args, **(kwargs or {}))


for name, number in expected.items():
    views = [torch.ones(8, 4, requires_grad=True) for _ in range(2)]
    with Selections() as selections:
        getattr(losses, name)()(*views)
    try:
        getattr(losses, name)()(*(view.detach().to("meta") for view in views))
        on_meta = "runs"
    except NotImplementedError as error:
        on_meta = f"refused ({str(error)[:60]}...)"
    print(f"{name}: {selections.number} selections by mask, meta: {on_meta}")
    assert selections.number == number, f"{name}: expected {number}"
    assert (on_meta == "runs") == (number == 0), name
PY
echo "as described"
