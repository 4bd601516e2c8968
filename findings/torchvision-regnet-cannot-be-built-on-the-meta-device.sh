#!/usr/bin/env bash
# torchvision 0.29.2: every RegNet fails under `torch.device("meta")`, all other classifiers do not.
#
# Guess:     a network can be built on the meta device, without memory for its weights, to learn the
#            width of its features: constructors do their arithmetic in Python's numbers.
# Behaviour: `BlockParams.from_init_params` computes the widths and depths of RegNet's stages with
#            torch.arange, pow and round, then asks for `.int().tolist()`. Under the meta device
#            these tensors have no values: NotImplementedError, "Cannot copy out of meta tensor".
#            All 15 RegNets fail, and none of the other 65 models of image classes.
# Where it meets this field: tools that size projection heads, estimate memory or shard weights
#            build a blueprint first. RegNet-Y is SEER's encoder, and common for probes on a budget.
# Source:    torchvision/models/regnet.py (`BlockParams.from_init_params`). Way out: build it on the
#            CPU, then `.to("meta")`.
# Seen:      80 models, 15 fail, all of them regnet_*; regnet_y_400mf on the CPU moves to meta.
#
# Installs torch and torchvision into a temporary folder, downloads no weights; fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check \
    torch==2.15.0 torchvision==0.29.2 numpy==2.4.6
"$work/venv/bin/python" -W ignore - <<'PY'
import torch
from torchvision import models

names, failed = models.list_models(module=models), []
for name in names:
    try:
        with torch.device("meta"):
            models.get_model(name, weights=None)
    except NotImplementedError:
        failed.append(name)
print(f"{len(names)} models, {len(failed)} fail on the meta device: {', '.join(failed)}")
assert failed == [name for name in names if name.startswith("regnet_")], "changed"
assert failed, "changed: RegNet can be built there"
assert next(models.regnet_y_400mf().to("meta").parameters()).is_meta
print("as described")
PY
