"""What is refused of a study: settings over it, and what a line then says."""

import pytest

from tests.study.conftest import FINAL, GAUSSIAN, STUDY, refusals

NARROW = "space.tau={low: 0.1, high: 1} & space.sigma={low: 0.1, high: 1}"
WIDE_BATCH = "space.batch_size={low: 32, high: 64, grid: [32, 64]}"
REFUSED = [
    ("base.recipe=bylo", "base.recipe"),
    ("base.second_blur_prob=0.5", "it belongs to recipe byol"),
    ("space.recipe={choices: [byol, simclr]}", "space.recipe"),
    ("base.jitter_strength=0 & space.jitter_saturation={grid: [0.2, 0.8]}",
     "while jitter_strength is 0"),
    ("base={jitter_strength: 1.5, jitter_hue: 0.4}", "at most half a turn"),
    ("base.jitter_strength=2 & space.jitter_hue={low: 0.1, high: 0.3, grid: [0.1, 0.3]}",
     "at most half a turn"),
    ("base.proj_layers=1 & space.proj_norm={choices: [none, hidden]}",
     "none and hidden train alike"),
    ("dataset.name=digits & base.jitter_saturation=0.4", "the images of digits have one channel"),
    ("base.batch_size=256 & base.chunk_size=60",
     "base.chunk_size: chunks of 60 do not make a batch of 256; nearest valid: 32, 64"),
    ("base.batch_size=96 & base.chunk_size=16 & resources.workers=3",
     "chunks of 16 do not make a batch of 96 on 3 workers; nearest valid: 12, 24"),
    ("space.batch_size={choices: [64, 100]} & base.chunk_size=32",
     "base.chunk_size: chunks of 32 do not make a batch of 100; nearest"),
    (f"{WIDE_BATCH} & base.chunk_size=16", "given a range"),
    ("base.optimizer=adamw & objectives.infonce.base.sgd_momentum=0.5",
     "objectives.infonce.base.sgd_momentum: 'infonce' does not own this parameter"),
    ("space.precision={choices: [auto, fp32]}", "auto stands for one of the others and cannot be"),
    ("base.precision=fp16",
     "fp16 needs a GPU, and resources.gpus_per_worker is 0. Expected: auto, fp32 or bf16"),
    ("evaluation={train_on: all}", "evaluation: expected train_on: train with score_on: valid"),
    ("evaluation={score_on: test}", "given train_on: train with score_on: test"),
    (f"{FINAL} & dataset.val_fraction=0.2", "dataset.val_fraction: has no effect with"),
    (f"{FINAL} & search={{method: tpe, trials_per_objective: 2}} & {NARROW}",
     "search.method: tpe would choose configurations by the test split"),
    ("metric.name=classifier_top1", "given classifier_top1, which 'infonce' lacks by its"),
    ("metric.name=transfer_linear_top1", "lacks by its dataset, transfer_dataset, feature"),
    ("metric.name=finetune_1pct_top1", "given finetune_1pct_top1, which 'infonce' lacks"),
    ("metric.name=finetune_1pct_top1 & base.finetune=sgd & base.finetune_labels=[0.1, 1]",
     "alignment, uniformity; given finetune_1pct_top1, which"),
    ("metric.name=linear_top1 & base.linear_probe=none",
     "given linear_top1, which 'infonce' lacks by its dataset, feature_layer, linear_"),
]  # fmt: skip
ASHA = "search={method: tpe, trials_per_objective: 2} & scheduler.name=asha"
REFUSED_ON_PAIRS = [
    ("dataset.val_fraction=0.2", "dataset.val_fraction: gaussian_mi is drawn afresh at every step"),
    *((f"metric.name={name}{more}", f"that every objective has: mi_estimate; given {name}")
      for name, more in (("knn_top1", ""), ("lidar", ""), ("linear_top1", f" & {ASHA}"))),
    (f"metric.name=mi_estimate & {ASHA}", "expected scheduler.name fifo; mi_estimate is scored at"),
    ("resources.workers=2", "a trial on gaussian_mi has 1 worker, given 2"),
    ("objectives.eqco.base.epochs=0", "expected at least 1 on gaussian_mi, given 0"),
    ("objectives.eqco.base.crop_scale=0.5", "gaussian_mi is made of vectors, not of images"),
    ("objectives.eqco.framework=simclr",
     "'simclr' does not work on gaussian_mi. Expected one of: mi_critic"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "settings", "says"),
    [
        *((STUDY, *each) for each in REFUSED),
        *((GAUSSIAN, *each) for each in REFUSED_ON_PAIRS),
    ],
)
def test_what_makes_no_sense_is_refused(load, text, settings, says):
    lines = refusals(load, *settings.split(" & "), text=text)
    assert any(says in line for line in lines), lines


@pytest.mark.parametrize(
    "settings",
    [
        "space.precision={choices: [fp32, bf16]}",
        "base.precision=fp16 & resources.gpus_per_worker=1",
        "metric.name=linear_top1",
    ],
)
def test_what_is_near_to_that_is_accepted(load, settings):
    load(*settings.split(" & "))
