#!/usr/bin/env bash
# timm 1.0.31: `num_features` is not the width of what a model with `num_classes=0` returns.
#
# Guess:     `create_model(name, num_classes=0)` returns (N, num_features), by which a projection head is
#            built: so it is for ResNets and ViTs.
# Behaviour: families whose classifier has a hidden layer keep it without classes. `num_features` is the
#            width before it; `head_hidden_size` is the width that comes. In VGG and MambaOut a head
#            cut to `num_features` fails in its first multiplication; one built by `LazyLinear` trains
#            on an untrained layer that is no part of the paper's encoder.
#            Image encoders of language models return tokens, (N, T, D), and do not pool.
# Where it meets this field: objectives put a projection head on any encoder of timm, by its name.
# Source:    timm/models/vgg.py, mobilenetv3.py, ghostnet.py, efficientvit_mit.py, mambaout.py
#            (`num_features`, `head_hidden_size`, `forward_head`).
#            Way out: measure with one input on the meta device; `forward_features` and a pooling of
#            one's own where the hidden layer is not wanted.
# Seen:      resnet18 512 512; vgg11 512 4096; mobilenetv3_small_050 288 1024; ghostnet_100 960 1280;
#            efficientvit_b0 128 1280; mambaout_base 768 3072 (num_features, width).
#
# Installs timm and torch into a temporary folder; builds without weights; fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check \
    timm==1.0.31 torch==2.15.0 torchvision==0.29.2 numpy==2.4.6
"$work/venv/bin/python" -W ignore - <<'PY'
import timm
import torch

EXPECTED = {
    "resnet18": (512, 512),
    "vgg11": (512, 4096),
    "mobilenetv3_small_050": (288, 1024),
    "ghostnet_100": (960, 1280),
    "efficientvit_b0": (128, 1280),
    "mambaout_base": (768, 3072),
}
seen = {}
for name in EXPECTED:
    with torch.device("meta"):
        model = timm.create_model(name, num_classes=0).eval()
        width = model(torch.empty(2, 3, 224, 224)).shape[1]
    seen[name] = model.num_features, width
    assert model.head_hidden_size == width, f"changed: head_hidden_size of {name}"
    print(name, *seen[name])
assert seen == EXPECTED, "changed"
print("as described")
PY
