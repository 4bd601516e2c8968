#!/usr/bin/env bash
# torch 2.15.0: a skipped first step of fused SGD leaves the momentum buffer with old memory.
#
# Guess:     a step that a gradient scaler skips (an overflow of fp16) leaves the optimizer as it
#            was: no momentum yet, or zeros.
# Behaviour: `SGD(momentum=..., fused=True)` makes the momentum buffer by `empty_like`, and counts
#            on its kernel to fill it in the first step. With `found_inf` set the kernel returns
#            early. What lay in that memory then is the momentum of every later step: silently.
# Where it meets this field: the first step of fp16 training overflows by design (the scale begins
#            at 65536), so the skipped first step is the usual case, not a rare one.
# Source:    torch/optim/sgd.py (`_init_group`, `_fused_sgd`), ATen/native/cpu/FusedSGDKernel.cpp
#            and cuda/FusedSgdKernel.cu (`found_inf`). Way out: a step pre-hook that sets buffers of
#            zeros.
# Seen:      of five runs: NaN, 1e36, 1e36, 7.0, 7.0; tensors of 7.0 had been freed before.
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


def momentum_after_a_skipped_first_step():
    freed = [torch.full((1000,), 7.0) for _ in range(100)]
    del freed  # the allocator hands this memory out again
    weight = torch.zeros(1000, requires_grad=True)
    weight.grad = torch.full((1000,), float("inf"))
    optimizer = torch.optim.SGD([weight], lr=1.0, momentum=0.9, fused=True)
    # what torch.amp.GradScaler.step hands to an optimizer that can skip by itself
    optimizer.grad_scale, optimizer.found_inf = None, torch.ones(())
    optimizer.step()
    assert bool((weight == 0).all()), "the step was not skipped"
    return optimizer.state[weight]["momentum_buffer"]


buffers = [momentum_after_a_skipped_first_step() for _ in range(5)]
print("largest momentum after no step:", [float(buffer.abs().max()) for buffer in buffers])
assert any(bool((buffer != 0).any()) for buffer in buffers), "the buffer is cleared now"
PY
echo "as described"
