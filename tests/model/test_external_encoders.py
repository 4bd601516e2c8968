"""Encoders of other libraries and of one's own, and the weights that an encoder begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import Tensor

from clsweep.catalog import COMPONENT, PARAM
from clsweep.catalog.open_encoders import measured_width, with_digest
from clsweep.catalog.ownership import owned_params
from clsweep.model.initial_weights import load_initial
from clsweep.model.measure_encoders import measure
from clsweep.objective.build import build_encoder
from tests.model.test_encoders import features_before_fc

pytestmark = pytest.mark.usefixtures("one_thread")


def config(encoder: str, *, size: int = 32, channels: int = 3, **others: Any) -> dict[str, Any]:
    return {
        "encoder": encoder, "view_size": size, "image_size": 64, "channels": channels,
        "pooling": "model", "width": 4, "stem": "small", **others,
    }  # fmt: skip


def images(size: int, channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, channels, size, size, generator=generator)


@pytest.mark.parametrize(
    ("name", "size", "channels", "num_features"),
    [
        ("timm/vit_tiny_patch16_224", 96, 5, 192),
        ("timm/mobilenetv3_small_050", 32, 3, 1024),  # not its own num_features
        ("torchvision/shufflenet_v2_x0_5", 32, 5, 1024),
        ("torchvision/mobilenet_v3_small", 32, 3, 1024),
        ("torchvision/regnet_y_400mf", 32, 5, 440),  # of widths by values of tensors
        ("tests.model.own_encoders:pooled", 32, 5, 6),
        ("tests.model.own_encoders:of_three", 32, 5, 6),
        ("resnet20", 32, 2, 64),
    ],
)
def test_the_measured_width_is_that_of_the_features(name, size, channels, num_features):
    given = config(name, size=size, channels=channels)
    assert measure(given) == {"num_features": num_features}
    network = build_encoder(given).eval()
    with torch.no_grad():
        assert network(images(size, channels)).shape == (2, num_features)
    assert network.num_features == num_features
    assert not any(p.is_meta for p in network.parameters())


def test_a_model_of_timm_is_timms():
    timm = pytest.importorskip("timm")
    name = "test_vit"
    for pooling, expected in (("model", "token"), ("avg", "avg")):
        network = build_encoder(config(f"timm/{name}", pooling=pooling)).eval()
        theirs = timm.create_model(name, img_size=32, global_pool=expected, num_classes=0).eval()
        theirs.load_state_dict(network.state_dict())
        with torch.no_grad():
            assert torch.equal(network(images(32)), theirs(images(32)))


@pytest.mark.parametrize("name", ["mobilenetv3_small_050", "regnetx_002", "test_efficientnet_gn"])
def test_norms_with_an_activation_are_split_and_compute_the_same(name):
    timm = pytest.importorskip("timm")
    network = build_encoder(config(f"timm/{name}"))
    theirs = timm.create_model(name, num_classes=0)
    theirs.load_state_dict(network.state_dict())
    with torch.no_grad():
        for is_training in (True, False):  # running statistics take part in the second
            expected = theirs.train(is_training)(images(32))
            assert torch.equal(network.train(is_training)(images(32)), expected)
    assert list(theirs.state_dict()) == list(network.state_dict())


@pytest.mark.parametrize("name", ["torchvision/convnext_tiny", "timm/ghostnet_050"])
def test_a_network_gives_the_same_features_twice_in_training(name):
    network = build_encoder(config(name)).train()
    with torch.no_grad():
        assert torch.equal(network(images(32)), network(images(32)))


def test_positions_of_a_vit_serve_small_views_too():
    """Multi-crop gives one network views of two sizes."""
    network = build_encoder(config("timm/vit_tiny_patch16_224", size=64)).eval()
    assert network(images(32)).shape == network(images(64)).shape


def test_a_model_of_torchvision_gives_what_its_classifier_is_given():
    network = build_encoder(config("torchvision/shufflenet_v2_x0_5")).eval()
    theirs = torchvision.models.shufflenet_v2_x0_5().eval()
    theirs.load_state_dict(network.state_dict(), strict=False)
    with torch.no_grad():
        assert torch.equal(network(images(32)), features_before_fc(theirs, images(32)))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (config("timm/vit_tny_patch16_224"),
         "unknown model 'vit_tny_patch16_224' of timm. Did you mean 'vit_tiny_patch16_224'?"),
        (config("timm/vit_tiny_patch16_224", size=30),
         "timm/vit_tiny_patch16_224: does not take images of 30 x 30 pixels and 3 channels"),
        (config("timm/convnext_atto", pooling="token"), "token"),
        (config("torchvision/resnet81"), "unknown model 'resnet81' of torchvision. Did you mean "
                                         "'resnet18'?"),
        (config("torchvision/squeezenet1_0"), "expected a linear layer as its classifier"),
        (config("torchvision/vgg11", size=16), "does not take images of 16 x 16 pixels"),
        (config("nowhere:net"), "expected module:function, given 'nowhere:net'"),
        (config("tests.model.own_encoders:nothing"), "has no attribute 'nothing'"),
        (config("tests.model.own_encoders:dropping"), "1: expected no dropout"),
        (config("tests.model.own_encoders:number"), "expected a torch.nn.Module, given"),
        (config("tests.model.own_encoders:maps"), "expected features (2, D) of 2 images, given "
                                                  "(2, 6, 30, 30)"),
    ],
)  # fmt: skip
def test_what_cannot_be_an_encoder_is_said_in_one_line(given, says):
    actual = measure(given)
    assert says in actual["error"]
    assert len(actual["error"].splitlines()) == 1


@pytest.mark.slow
def test_the_width_is_asked_of_a_process_that_tells_what_is_wrong():
    assert measured_width(config("tests.model.own_encoders:pooled")) == 6
    with pytest.raises(ValueError, match="does not take images of 30 x 30"):
        measured_width(config("timm/vit_tiny_patch16_224", size=30))


def test_names_are_open_where_they_say_where_from():
    for name in ("timm/resnet50.a1_in1k", "torchvision/vit_b_16", "my.nets:small"):
        assert PARAM["encoder"].coerce(name) == name
        assert name in COMPONENT["encoder"]
        assert COMPONENT["encoder"][name].name == name
    for name in ("resnet81", "tim/resnet50", "torchvision/", "my nets:small", "timm/../x"):
        with pytest.raises(ValueError, match=r"expected conv4 \| .*timm/NAME"):
            PARAM["encoder"].coerce(name)
        assert name not in COMPONENT["encoder"]
    parts = {"framework": "simclr", "loss": "dcl", "regularizer": "none", "views": "two"}
    assert "pooling" in owned_params(parts, dataset="cifar10", encoder="timm/resnet50")
    assert "pooling" not in owned_params(parts, dataset="cifar10", encoder="resnet50")


# Weights to begin with.


@pytest.mark.parametrize("nested", ["", "state_dict", "model"])
def test_an_encoder_begins_with_the_weights_of_a_file(nested, tmp_path):
    trained = build_encoder(config("conv4"))
    for prefix in ("", "module.encoder_q."):
        state: Any = {prefix + name: tensor for name, tensor in trained.state_dict().items()}
        state["module.queue"] = torch.zeros(3)
        torch.save({nested: state} if nested else state, tmp_path / "a.pt")
        save_file(state, tmp_path / "a.safetensors")
        for name in ("a.pt", "a.safetensors"):
            network = build_encoder(config("conv4", init=with_digest(tmp_path / name)))
            for key, tensor in trained.state_dict().items():
                assert torch.equal(network.state_dict()[key], tensor)


def test_files_without_the_weights_are_refused_in_one_line(tmp_path):
    file = tmp_path / "a.pt"
    torch.save(build_encoder(config("conv4", width=8)).state_dict(), file)
    network = build_encoder(config("conv4"))
    with pytest.raises(ValueError, match=r"a\.pt: layers\.0\.weight: expected weights of shape "
                                         r"\(4, 3, 3, 3\), given \(8, 3, 3, 3\)"):  # fmt: skip
        load_initial(network, with_digest(file))
    given = measure(config("conv4", init=with_digest(file)))
    assert "expected weights of shape (4, 3, 3, 3)" in given["error"]
    before = with_digest(file)
    torch.save({"lr": 3}, file)
    with pytest.raises(ValueError, match="it has changed since the study was planned"):
        load_initial(network, before)
    with pytest.raises(ValueError, match="no weights by name"):
        load_initial(network, with_digest(file))
    for name in ("b.pt", "b.safetensors"):
        (tmp_path / name).write_bytes(b"no weights")
        with pytest.raises(ValueError, match="expected weights to begin with, given: ") as caught:
            load_initial(network, with_digest(tmp_path / name))
        assert len(str(caught.value).splitlines()) == 1


def test_a_pickle_of_objects_is_not_executed(tmp_path):
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"layers.0.weight": Evil()}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="expected weights to begin with"):
        load_initial(build_encoder(config("conv4")), with_digest(tmp_path / "a.pt"))
    assert not (tmp_path / "ran").exists()


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match="No such file"):
        with_digest(tmp_path / "none.pt")
    with pytest.raises(ValueError, match="no regular file"):
        with_digest(tmp_path)
