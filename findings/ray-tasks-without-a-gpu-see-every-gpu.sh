#!/usr/bin/env bash
# Ray 2.60.0: a task or actor that asks for no GPU sees every GPU of its node.
#
# Guess:     Ray hides GPUs from those that did not ask: CUDA_VISIBLE_DEVICES is empty for a task
#            with `num_gpus=0`, as it was for years, so that `torch.cuda.is_available()` is False.
# Behaviour: CUDA_VISIBLE_DEVICES is not set at all in such a process. CUDA then shows all devices.
#            A task beside them that picks its device by `torch.cuda.is_available()` opens a context on
#            GPU 0, beside the trial that Ray gave this GPU to. Tasks with GPUs see theirs alone.
# Where it meets this field: plug-ins, data loaders and evaluation code choose a device by that
#            very call. RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=1 where Ray starts brings the empty value
#            back; on a cluster that others started, set the variable before torch looks.
# Source:    ray/_private/accelerators/nvidia_gpu.py and ray/_private/worker.py.
# Seen:      num_gpus=0: None; num_gpus=1: '0'; with the override, num_gpus=0: ''.
#
# Installs ray into a temporary folder, needs no GPU (two are declared); fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check ray==2.60.0
cat >"$work/look.py" <<'PY'
import os

import ray


@ray.remote
def visible():
    return os.environ.get("CUDA_VISIBLE_DEVICES")


ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, logging_level="ERROR")
print(repr([ray.get(visible.options(num_gpus=number).remote()) for number in (0, 1)]))
ray.shutdown()
PY
look() { env -u CUDA_VISIBLE_DEVICES "$@" "$work/venv/bin/python" "$work/look.py" 2>/dev/null | tail -n 1; }
plain=$(look)
overridden=$(look RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=1)
echo "ray 2.60.0, num_gpus=0 and 1: $plain; with RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=1: $overridden"
[ "$plain" = "[None, '0']" ] || { echo "changed: a task without GPUs no longer sees all"; exit 1; }
[ "$overridden" = "['', '0']" ] || { echo "changed: the override no longer hides them"; exit 1; }
echo "as described"
