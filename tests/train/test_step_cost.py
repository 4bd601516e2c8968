"""Operations, bytes and memory of a step, beside what others have measured and published."""

import pytest
import torch

from clsweep.catalog.known_gpus import GPUS, known_gpu
from clsweep.errors import RequestError
from clsweep.objective.distribution import sigreg
from clsweep.objective.losses import dcl
from clsweep.train.step_cost import features_cost, step_cost, views_cost
from studies.records.plain import plain_config
from tests.operations import Operations


def config(**given):
    usual = {"encoder": "conv4", "image_size": 32, "num_train": 8192, "lr": 0.1}
    return plain_config("synthetic", **{"precision": "bf16", "batch_size": 64, **usual, **given})


def supervised(encoder, num_images, precision="bf16"):
    """A step of as many images with labels at 224 pixels, each half of them one of two views."""
    parts = {"framework": "supervised", "loss": "cross_entropy", "encoder": encoder}
    shape = {"stem": "standard", "image_size": 224, "batch_size": num_images // 2}
    return step_cost(config(**parts, **shape, precision=precision))


# Images a second of training in channels last, with a half type or float32: NVIDIA's
# DeepLearningExamples (ResNet-50 v1.5, PyTorch, one GPU) and timm's results (2022, RTX 3090).
@pytest.mark.parametrize(
    ("gpu", "encoder", "num_images", "precision", "rate"),
    [("v100", "resnet50", 256, "bf16", 1200), ("v100", "resnet50", 128, "fp32", 367),
     ("a100-80", "resnet50", 256, "bf16", 2470), ("rtx3090", "resnet50", 512, "bf16", 1218),
     ("rtx3090", "resnet18", 512, "bf16", 3482)],
)  # fmt: skip
def test_published_rates_are_met_within_a_fifth(gpu, encoder, num_images, precision, rate):
    given = num_images / supervised(encoder, num_images, precision).seconds_on(GPUS[gpu])
    assert rate / 1.2 < given < rate * 1.2


def test_resnet50_takes_the_operations_that_its_authors_count():
    """4.09 products of an image forward, of two operations each, and twice that backward, but for
    the gradient of the image, which the first convolution of 0.118 would give.
    """
    cost = supervised("resnet50", 256)
    flops = sum(each.flops * num for each, num in cost.operations.items()) / 256
    assert flops == pytest.approx(2 * (3 * 4.089e9 - 0.118e9), rel=0.01)
    halves = sum(each.flops * n for each, n in cost.operations.items() if each.is_half) / 256
    assert halves / flops > 0.99


def test_resnet50_fits_a_gpu_on_which_it_was_trained():
    """timm trains 512 images of 224 pixels at once on 24 GiB."""
    assert 0.8 * 24 * 2**30 < supervised("resnet50", 512).peak < 24 * 2**30


def test_memory_is_that_of_a_measured_step():
    """docs/performance.md: 2.9 GiB on a CPU in one piece, 0.28 in chunks, a process's other memory
    included.
    """
    given = {"width": 32, "batch_size": 4096, "precision": "fp32"}
    whole, chunked = (step_cost(config(**given, chunk_size=n)).peak / 2**30 for n in (0, 256))
    assert whole == pytest.approx(2.9, rel=0.1)
    assert 0.14 < chunked < 0.28


def test_workers_share_the_step():
    whole, half = (step_cost(config(batch_size=512, width=32), workers) for workers in (1, 2))
    assert half.peak == pytest.approx(whole.peak / 2, rel=0.05)
    assert half.seconds_on(GPUS["t4"]) == pytest.approx(whole.seconds_on(GPUS["t4"]) / 2, rel=0.1)


@pytest.mark.parametrize("framework", ["moco", "byol", "dino", "swav", "simsiam"])
def test_a_step_of_any_framework_is_counted_as_it_is_dispatched(framework):
    """As many operations as the same step on real tensors has."""
    from clsweep.train import step_cost as module

    parts, real = config(framework=framework, precision="fp32", batch_size=16), Operations()
    counted = step_cost(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_faked", lambda objective, _: objective)
        patch.setattr(module, "FakeTensorMode", lambda **_: real)
        patch.setattr(module, "_steps", {})
        computed = step_cost(parts)
    assert real.names
    assert counted.launches == pytest.approx(computed.launches, rel=0.02)
    assert counted.peak == pytest.approx(computed.peak, rel=0.05)


def test_views_and_features_are_counted_by_their_size():
    small, large = (config(image_size=side) for side in (32, 64))
    for cost in (views_cost, features_cost):
        moved = [sum(each.moved * num for each, num in cost(c).operations.items())
                 for c in (small, large)]  # fmt: skip
        assert 3 < moved[1] / moved[0] < 5
    assert not any(each.is_half for each in features_cost(small).operations)


def test_a_gpu_is_known_by_its_name():
    assert known_gpu("H100 PCIe".replace(" ", "-")) is GPUS["h100-pcie"]
    with pytest.raises(RequestError, match="Did you mean 'a100-40'"):
        known_gpu("a100")
    assert GPUS["a10g"].seconds(0, 600e9, is_half=True) > 1
    assert GPUS["a10g"].holds(22e9)
    assert not GPUS["a10g"].holds(23e9)


def test_a_step_is_counted_once_for_all_data_of_its_shapes():
    plain, other = config(), {"num_train": 9000, "num_classes": 20, "seed": 1, "trial_id": "b"}
    assert step_cost({**plain, **other}) is step_cost(plain)
    assert features_cost({**plain, **other, "batch_size": 32}) is features_cost(plain)
    assert step_cost({**plain, "batch_size": 32}) is not step_cost(plain)
    assert features_cost({**plain, "view_size": 64}) is not features_cost(plain)
    classes = config(framework="supervised", loss="cross_entropy")
    assert step_cost({**classes, "num_classes": 1000}) is not step_cost(classes)


@pytest.mark.parametrize("context", ["counted", "inference"])
def test_losses_are_those_of_a_process_that_has_counted_no_step(context):
    """What is kept for later steps has values, and takes part in training."""
    generator = torch.Generator().manual_seed(0)
    z1_ND, z2_ND = (torch.randn(26, 128, generator=generator) / 11 for _ in range(2))

    def value_and_grad(points, **dtype):
        inputs = [z.to(**dtype).requires_grad_() for z in (z1_ND, z2_ND)]
        drawn = torch.Generator().manual_seed(1)
        loss = dcl(*inputs, tau=0.2) + sigreg(inputs[0], sigreg_points=points, generator=drawn)
        return loss.detach(), *torch.autograd.grad(loss, inputs)

    points = {"counted": 5, "inference": 6}[context]  # kept by no other test
    if context == "counted":
        step_cost(config(batch_size=26, regularizer="sigreg", sigreg_points=points))
    else:
        with torch.inference_mode():
            sigreg(z1_ND, sigreg_points=points)
    exact = value_and_grad(points, dtype=torch.float64)
    for actual, expected in zip(value_and_grad(points), exact, strict=True):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-6)
