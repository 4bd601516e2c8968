"""Encoders beyond the small one, and what is scored without training, on the pretended device."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from clsweep.data.locations import DataPlace
from clsweep.train import evaluation, state
from clsweep.train.evaluation import score_reference
from tests.contracts.combinations import COMBINATIONS, Config, few_images, small_config
from tests.pretended.trials import Trial, assert_near, trial
from tests.train.test_own_trials import row_of, study

pytestmark = pytest.mark.usefixtures("one_thread", "nothing_loaded")

ENCODERS = {
    "resnet18": {},
    "timm/convnext_atto": {"view_size": 32},
    "timm/vit_tiny_patch16_224": {"view_size": 32},
}
FINE_TUNED = {
    "finetune": "sgd", "finetune_labels": "1", "finetune_epochs": 1, "finetune_batch_size": 16,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_trains_and_is_fine_tuned_as_on_a_cpu(name, device, tmp_path):
    if name.startswith("timm/"):
        pytest.importorskip("timm")
    base = {"encoder": name, "precision": "fp32", "epochs": 1, "eval_every": 1}
    resolved = study(tmp_path, {"name": "digits"}, base | FINE_TUNED | ENCODERS[name])
    actual = device.call(trial, row_of(resolved), "cuda:0", num_images=16)
    assert_near(actual.made, _on_cpu(row_of(resolved)).made)
    assert not actual.log.draws
    assert not [at for _, at in actual.log.waits if at.startswith(("model/", "objective/"))]


def _on_cpu(config: Config) -> Trial:
    """Convolved as a GPU does: the CPU's own way rounds otherwise."""
    with mock.patch.object(state, "use_winograd", lambda module: module):
        return trial(config, "cpu", num_images=16)


def reference(kind: str, where: str) -> dict[str, Any]:
    """The scores of a reference on a few digits."""
    config = small_config(COMBINATIONS["simclr-dcl-none-two"]) | {"reference": kind}
    with mock.patch.object(evaluation, "load_splits", few_images):
        return score_reference(config, place=DataPlace(), device=where)


@pytest.mark.parametrize("where", ["cuda:0", "cuda"])
@pytest.mark.parametrize("kind", ["raw_pixels", "untrained"])
def test_references_score_as_on_a_cpu(kind, where, device):
    expected = reference(kind, "cpu")
    assert expected["knn_top1"] > 0
    assert device.call(reference, kind, where) == pytest.approx(expected, rel=1e-4)
