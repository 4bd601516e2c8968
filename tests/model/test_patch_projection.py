"""The frozen patch projection of a vision transformer: which layer it is, that no step moves it,
and that a trial which goes on has it.
"""

from __future__ import annotations

import copy

import pytest
import torch

from clsweep.catalog.open_encoders import NO_PATCHES
from clsweep.model.external_encoders import timm_encoder, torchvision_encoder
from clsweep.model.patch_projection import freeze_patch_projection
from clsweep.train.loop import train_epoch
from clsweep.train.state import new_state
from tests.contracts.combinations import COMBINATIONS, small_config, some_digits

pytestmark = pytest.mark.usefixtures("one_thread")
SIZED = {"view_size": 32, "image_size": 8, "channels": 1}
PARTS = COMBINATIONS["moco_v3-infonce-none-two"]


@pytest.mark.parametrize(
    ("encoder", "layer"),
    [
        ("torchvision/vit_b_32", "conv_proj"),
        ("timm/test_vit", "patch_embed.proj"),
        ("timm/swin_tiny_patch4_window7_224", "patch_embed.proj"),
    ],
)
def test_weight_and_bias_of_the_patch_projection_alone_are_frozen(encoder, layer):
    pytest.importorskip("timm")
    is_timm = encoder.startswith("timm/")
    with torch.device("meta"):
        given = {"encoder": encoder, **SIZED}
        network = (
            timm_encoder(pooling="model", **given) if is_timm else torchvision_encoder(**given)
        )
    freeze_patch_projection(network)
    frozen = {name for name, p in network.named_parameters() if not p.requires_grad}
    assert frozen == {f"{layer}.weight", f"{layer}.bias"}


@pytest.mark.parametrize("encoder", ["timm/resnet18", "timm/xcit_nano_12_p8_224"])
def test_others_have_none(encoder):
    """A stem of several layers is no projection."""
    pytest.importorskip("timm")
    with torch.device("meta"):
        network = timm_encoder(encoder=encoder, pooling="model", **SIZED)
    with pytest.raises(ValueError, match="there is nothing to freeze") as raised:
        freeze_patch_projection(network)
    assert str(raised.value) == NO_PATCHES


def vit(**changes):
    pytest.importorskip("timm")
    config = small_config(
        PARTS, encoder="timm/test_vit", view_size=32, optimizer="adamw", weight_decay=0.3,
        freeze_patch_embed=True, **changes,
    )  # fmt: skip
    return config | {"channels": 1}


def parts_of(objective):
    """(patch projection, its momentum copy, the rest of the encoder) by name."""
    own, copied = (
        {n: p.detach().clone() for n, p in network.named_parameters()}
        for network in (objective.encoder, objective.target[0])
    )
    names = ["patch_embed.proj.weight", "patch_embed.proj.bias"]
    rest = {n: p for n, p in own.items() if n not in names}
    return {n: own[n] for n in names}, {n: copied[n] for n in names}, rest


def test_no_step_moves_it_and_a_trial_that_goes_on_has_it():
    config, images = vit(), some_digits(32)
    state = new_state(config, torch.device("cpu"))
    patches, copied, rest = parts_of(state.objective)
    in_optimizer = {id(p) for group in state.optimizer.param_groups for p in group["params"]}
    own = dict(state.objective.encoder.named_parameters())
    assert {n for n, p in own.items() if id(p) not in in_optimizer} == set(patches)
    train_epoch(state, state.objective, images, config)
    saved = copy.deepcopy(state.state_dict())
    after, copied_after, rest_after = parts_of(state.objective)
    for name, value in patches.items():
        assert torch.equal(value, after[name])
        assert torch.equal(copied[name], copied_after[name])
    assert not any(torch.equal(value, rest_after[name]) for name, value in rest.items())

    train_epoch(state, state.objective, images, config)
    resumed = new_state(config | {"seed": 5}, torch.device("cpu"))  # begins with other weights
    assert not torch.equal(parts_of(resumed.objective)[0]["patch_embed.proj.weight"],
                           patches["patch_embed.proj.weight"])  # fmt: skip
    resumed.seed = config["seed"]
    resumed.load_state_dict(saved)
    train_epoch(resumed, resumed.objective, images, config)
    expected, actual = state.objective.state_dict(), resumed.objective.state_dict()
    assert all(torch.equal(value, actual[name]) for name, value in expected.items())
