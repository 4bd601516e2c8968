"""The encoders: torchvision's own networks where they claim to be, and the shapes that a study
relies on.
"""

from functools import partial

import pytest
import torch
import torchvision
from torch import Tensor, nn

from clsweep.model.encoders import (
    SpatialMean,
    conv4,
    resnet18,
    resnet20,
    resnet50,
    resnet50_2x,
    small_alexnet,
)

pytestmark = pytest.mark.usefixtures("one_thread")

RESNETS = {
    "resnet18": (resnet18, torchvision.models.resnet18, 512),
    "resnet50": (resnet50, torchvision.models.resnet50, 2048),
}


def images(num_images: int, size: int) -> Tensor:
    return torch.randn(num_images, 3, size, size, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def shapes_alone():
    """Networks without values, which take no time to be drawn."""
    with torch.device("meta"):
        yield


def features_before_fc(network: nn.Module, x_NCHW: Tensor) -> Tensor:
    """What torchvision's classifier is given."""
    seen = []
    handle = network.fc.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    network(x_NCHW)
    handle.remove()
    return seen[0]


@pytest.mark.parametrize("name", RESNETS)
def test_standard_stem_is_torchvisions_network(name):
    ours, theirs, num_features = RESNETS[name]
    torch.manual_seed(0)
    encoder, network = ours(stem="standard"), theirs(weights=None)
    assert encoder.num_features == num_features
    keys = network.load_state_dict(encoder.state_dict(), strict=False)
    assert sorted(keys.missing_keys) == ["fc.bias", "fc.weight"]
    assert keys.unexpected_keys == []
    x_NCHW = images(2, 32)
    with torch.no_grad():
        for mode in (True, False):  # the running statistics of the first take part in the second
            encoder.train(mode), network.train(mode)
            assert torch.equal(encoder(x_NCHW), features_before_fc(network, x_NCHW))


@pytest.mark.parametrize("name", RESNETS)
def test_small_stem_changes_the_shape_of_conv1_alone(name):
    ours, theirs, _ = RESNETS[name]
    with torch.device("meta"):
        small, network = ours(stem="small").state_dict(), theirs(weights=None).state_dict()
    assert list(small) == [key for key in network if not key.startswith("fc.")]
    assert [key for key in small if small[key].shape != network[key].shape] == ["conv1.weight"]
    assert small["conv1.weight"].shape == (64, 3, 3, 3)


@pytest.mark.usefixtures("shapes_alone")
def test_small_stem_keeps_the_resolution():
    """The first stage sees all 32 x 32 pixels with the small stem and 8 x 8 with torchvision's."""
    for stem, side in (("small", 32), ("standard", 8)):
        encoder, seen = resnet18(stem=stem), []
        encoder.layer1.register_forward_hook(
            lambda _, args, out, seen=seen: seen.append((args[0].shape, out.shape))
        )
        encoder(torch.empty(2, 3, 32, 32))
        assert seen == [((2, 64, side, side), (2, 64, side, side))]


@pytest.mark.parametrize("size", [8, 28])
@pytest.mark.parametrize(
    ("build", "num_features"),
    [
        (partial(resnet18, stem="small"), 512),
        (partial(resnet18, stem="standard"), 512),
        (partial(conv4, width=4), 16),
    ],
)
def test_the_catalogs_image_sizes_are_taken(build, num_features, size):
    encoder = build()
    with torch.no_grad():
        features = encoder(images(2, size))
    assert features.shape == (2, num_features) == (2, encoder.num_features)
    assert torch.isfinite(features).all()


def test_conv4_is_four_convolutions_on_a_quarter_of_the_resolution():
    encoder, sides = conv4(width=6), []
    convolutions = [module for module in encoder.modules() if isinstance(module, nn.Conv2d)]
    for convolution in convolutions:
        convolution.register_forward_hook(
            lambda _, args, out: sides.append((*out.shape[1:], args[0].shape[1]))
        )
    encoder(images(2, 32))
    assert [tuple(convolution.kernel_size) for convolution in convolutions] == [(3, 3)] * 4
    assert sides == [(6, 16, 16, 3), (12, 16, 16, 6), (12, 8, 8, 12), (24, 8, 8, 12)]


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_spatial_mean_gives_a_gradient_in_the_layout_of_its_input(memory_format):
    x_NCHW = torch.randn(3, 5, 4, 6).contiguous(memory_format=memory_format).requires_grad_()
    grads = []
    maps = x_NCHW * 1
    maps.register_hook(grads.append)
    features = SpatialMean()(maps)
    torch.testing.assert_close(features, x_NCHW.mean(dim=(2, 3)))
    features.backward(torch.arange(15.0).reshape(3, 5))
    torch.testing.assert_close(
        x_NCHW.grad, (torch.arange(15.0) / 24).reshape(3, 5, 1, 1).expand(3, 5, 4, 6)
    )
    if memory_format is torch.channels_last:
        assert grads[0].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.usefixtures("shapes_alone")
def test_small_alexnet_has_the_layers_of_its_paper():
    """At 64 pixels nothing is averaged: the maps before fc6 are 7 x 7 of themselves."""
    encoder, before = small_alexnet(), []
    convolutions = [m for m in encoder.modules() if isinstance(m, nn.Conv2d)]
    assert [(m.in_channels, m.out_channels, m.kernel_size) for m in convolutions] == [
        (3, 96, (3, 3)), (96, 192, (3, 3)), (192, 384, (3, 3)), (384, 384, (3, 3)),
        (384, 192, (3, 3)),
    ]  # fmt: skip
    linear = [m for m in encoder.modules() if isinstance(m, nn.Linear)]
    assert [(m.in_features, m.out_features) for m in linear] == [(192 * 49, 4096), (4096, 4096)]
    pool = next(m for m in encoder.modules() if isinstance(m, nn.AdaptiveAvgPool2d))
    pool.register_forward_hook(lambda _, given, out: before.append((given[0].shape, out.shape)))
    for size in (64, 16):
        assert encoder(torch.empty(2, 3, size, size)).shape == (2, encoder.num_features)
    assert before[0] == ((2, 192, 7, 7), (2, 192, 7, 7))
    assert encoder.num_features == 4096


def test_resnet20_is_that_of_its_paper():
    """20 layers with weights and 0.27 million parameters with its classifier (He et al., Table 6);
    maps of 32, 16 and 8; and a block is its formula.
    """
    encoder, sides = resnet20(), list[tuple[int, ...]]()
    convolutions = [m for m in encoder.modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) + 1 == 20
    assert round((sum(p.numel() for p in encoder.parameters()) + 65 * 10) / 1e6, 2) == 0.27
    for layer in (encoder.layer1, encoder.layer2, encoder.layer3):
        layer.register_forward_hook(lambda _, __, out: sides.append(tuple(out.shape[1:])))
    assert encoder(images(2, 32)).shape == (2, encoder.num_features)
    assert sides == [(16, 32, 32), (32, 16, 16), (64, 8, 8)]
    block, x_NCHW = encoder.layer2[0].eval(), torch.rand(2, 16, 8, 8)
    with torch.no_grad():
        residual = block.bn2(block.conv2(block.bn1(block.conv1(x_NCHW)).relu()))
        shortcut = torch.zeros(2, 32, 4, 4)
        shortcut[:, :16] = x_NCHW[:, :, ::2, ::2]
        torch.testing.assert_close(block(x_NCHW), (residual + shortcut).relu())


@pytest.mark.usefixtures("shapes_alone")
@pytest.mark.parametrize("stem", ["small", "standard"])
def test_a_wide_resnet50_has_every_channel_twice(stem):
    plain, wide = resnet50(stem=stem), resnet50_2x(stem=stem)
    shapes, wider = (
        {name: tuple(weights.shape) for name, weights in network.state_dict().items()}
        for network in (plain, wide)
    )
    assert list(shapes) == list(wider)
    for name, shape in shapes.items():
        expected = tuple(side if side in (1, 3, 7) else 2 * side for side in shape)
        assert wider[name] == expected, name
    assert wide.num_features == 4096
    assert wide(torch.empty(2, 3, 32, 32)).shape == (2, 4096)
