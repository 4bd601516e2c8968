"""What is refused of a study: settings over it, and what the line then says."""

import pytest

from tests.study.conftest import FINAL, GAUSSIAN, ONE, parts, refusals

# Settings over `ONE` by the parts of its objective. `x=1` stands in base, `x=[1, 2]` is swept.
OF_PARTS = {
    "simclr infonce": [
        ("base.recipe=bylo", "base.recipe: "),
        ("second_blur_prob=0.5", "it belongs to recipe byol"),
        ("recipe=[byol, simclr]", "space.recipe: "),
        ("dataset.name=cifar10 & jitter_strength=0 & jitter_saturation=[0.2, 0.8]",
         "while jitter_strength is 0"),
        ("dataset.name=cifar10 & jitter_strength=1.5 & jitter_hue=0.4", "at most half a turn"),
        ("dataset.name=cifar10 & jitter_strength=2 & "
         "space.jitter_hue={low: 0.1, high: 0.3, grid: [0.1, 0.3]}", "at most half a turn"),
        ("jitter_saturation=0.4", "the images of digits have one channel"),
        ("proj_layers=1 & proj_norm=[none, hidden]", "none and hidden train alike"),
        ("batch_size=256 & chunk_size=60",
         "base.chunk_size: chunks of 60 do not make a batch of 256; nearest valid: 32, 64"),
        ("batch_size=96 & chunk_size=16 & resources.workers=3",
         "chunks of 16 do not make a batch of 96 on 3 workers; nearest valid: 12, 24"),
        ("batch_size=[64, 100] & chunk_size=32",
         "base.chunk_size: chunks of 32 do not make a batch of 100; nearest"),
        ("space.batch_size={low: 32, high: 64, grid: [32, 64]} & chunk_size=16", "given a range"),
        ("batch_size=256 & chunk_size=[128, 256, 512]",
         "to be a whole batch of 256, given 128, 256, 512: these would train alike"),
        ("optimizer=adamw & objectives.a.base.sgd_momentum=0.5",
         "objectives.a.base.sgd_momentum: 'a' does not own this parameter"),
        ("precision=[auto, fp32]", "auto stands for one of the others and cannot be"),
        ("precision=fp16",
         "fp16 needs a GPU, and resources.gpus_per_worker is 0. Expected: auto, fp32 or bf16"),
        ("evaluation={train_on: all}", "evaluation: expected train_on: train with score_on: valid"),
        ("evaluation={score_on: test}", "given train_on: train with score_on: test"),
        (f"{FINAL} & dataset.val_fraction=0.2", "dataset.val_fraction: has no effect with"),
        (f"{FINAL} & search={{method: tpe, trials_per_objective: 2}} & tau=[0.1, 1]",
         "search.method: tpe would choose configurations by the test split"),
        ("metric.name=classifier_top1", "given classifier_top1, which 'a' lacks by its"),
        ("metric.name=transfer_linear_top1", "lacks by its dataset, transfer_dataset, feature"),
        ("metric.name=finetune_1pct_top1", "given finetune_1pct_top1, which 'a' lacks"),
        ("metric.name=finetune_1pct_top1 & finetune=sgd & base.finetune_labels=[0.1, 1]",
         "alignment, uniformity; given finetune_1pct_top1, which"),
        ("metric.name=linear_top1 & linear_probe=none",
         "given linear_top1, which 'a' lacks by its dataset, feature_layer, linear_"),
    ],
    "simclr infonce views=ecpp": [("", "'ecpp' takes the positive out of the denominator")],
    "simclr dclw": [("delta=[1, 2]", "no objective of this study owns 'delta'")],
    "simclr eqco": [("num_negatives=63", "expected at most 62, what a batch of 32 has for a qu")],
    "simo dcl": [
        ("num_negatives=32", "expected at most 31, what a batch of 32 has for a query"),
        ("num_negatives=[0, 8]", "0 stands for another number (all)"),
    ],
    "simclr dcl": [
        ("crop_max=0.05", "expected at most crop_max, 0.05, given 0.08"),
        ("tsne_points=3", "expected 0, or 5 to 144, the images of the validation split"),
        ("feature_layer=layer4", "expected one of what 'a' has: encoder, projector; given layer4"),
        ("linear_every=scored & linear_probe=none", "has no effect while linear_probe is none"),
        ("linear_probe=sgd & probe_gamma=0.2", "has no effect unless probe_schedule is step"),
        ("linear_probe=sgd_grid & probe_val_share=0.005",
         "expected a share with an image of each of the 10 classes"),
        ("finetune=sgd & base.finetune_labels=[0.5]", "expected some of 0.01, 0.1, 1, given 0.5"),
        ("knn_weights=uniform & knn_temperature=0.5", "study owns 'knn_temperature'"),
        ("transfer_dataset=digits", "given digits, the study's own"),
        ("view_size=4", "expected 0 or at least 8 pixels, given 4"),
    ],
    "simclr dcl regularizer=dimcl": [("lam=1 & tau=[0.1, 1]", "has no effect while lam is 1")],
    "simclr dcl views=ecpp": [
        ("small_view_size=9", "expected at most 8, the side of the other views"),
        ("num_views=2 & crop_only_share=[0, 1]", "has no effect while num_views is 2"),
        ("crop_only_share=[0.5, 0.75]",
         "expected shares that differ in effect, given 2, 2 crop-only views of 4"),
        ("num_views=[2, 3, 4] & crop_only_share=[0, 0.25]",
         "expected shares that differ in effect, given 0, 0 crop-only views of 3"),
    ],
    "simclr dcl views=core": [
        ("small_crop_max=0.05", "expected at most small_crop_max, 0.05"),
        ("num_views=[2] & pair_reduction=[mean, sum]", "has no effect while num_views is 2"),
        ("num_views=17", "expected a value in [2, 16], given 17"),
    ],
    "moco dcl": [
        ("num_negatives=0", "expected a queue of at least 1 key, given 0"),
        ("space.symmetric={low: 0, high: 1}", "expected choices out of true | false"),
    ],
    "moco infonce": [
        ("proj_layers=1 & proj_hidden=[8, 16]", "has no effect while proj_layers is 1"),
        ("key_norm=shuffle & norm_group=12", "groups of 12 do not make a batch of 32; it must div"),
        ("key_norm=shuffle & norm_group=16 & chunk_size=8",
         "groups of 16 do not make a chunk of 8; it must divide it"),
        ("key_norm=[sync, shuffle] & batch_size=[32, 48]",
         "groups of 32 do not make a batch of 48"),
        ("key_norm=sync & norm_group=[8, 16]", "has no effect while key_norm is sync"),
    ],
    "byol infonce": [
        ("", "'infonce' makes no sense on framework byol. Expected one of: cosine; or framework"),
    ],
    "byol cosine": [
        ("momentum_schedule=constant & momentum_end=0.999",
         "has no effect while momentum_schedule is constant"),
    ],
    "byol cosine regularizer=dimcl": [("lam=1 & momentum=[0.9, 1]", "no effect while lam is 1")],
    "byol cosine regularizer=barlow": [("lam=0 & off_diag=[0.1, 1]", "no effect while lam is 0")],
    "lejepa mse": [("", "'none': nothing keeps lejepa from making all projections one")],
    "mi_critic infonce": [("", "'mi_critic' does not work on digits")],
    "wmse wmse": [
        ("", "expected more than 64, the dimensions of proj_dim, given 32"),
        ("whitening_size=16 & proj_dim=16",
         "expected more than 16, the dimensions of proj_dim, given 16"),
        ("whitening_size=12 & proj_dim=8", "groups of 12 do not make a batch of 32; it must div"),
    ],
    "supervised cross_entropy": [
        ("feature_layer=projector", "expected one of what 'a' has: encoder; given projector"),
        ("dataset={name: stl10}", "the classes of the images, and 100,000 of stl10 have none"),
    ],
    "dino soft_cross_entropy": [
        ("freeze_epochs=[1, 2, 5]",
         "expected at most one value from 2 on, the epochs of a trial; 2, 5 train alike"),
        ("epochs=1 & teacher_tau=[0.04, 0.07]",
         "has no effect in 1 epoch, whose temperature is teacher_tau_start"),
        ("teacher_tau_epochs=0 & teacher_tau_start=[0.02, 0.04]",
         "has no effect while teacher_tau_epochs is 0"),
        ("momentum_end=0.99", "expected at least momentum, 0.996, given 0.99"),
    ],
    "swav soft_cross_entropy views=multicrop": [
        ("num_global_views=5", "expected at most num_views, 4, given 5"),
        ("num_global_views=4 & small_crop_max=[0.2, 0.5]", "while all 4 views are global"),
    ],
    "swav soft_cross_entropy": [
        ("swav_queue=[0, 64]", "has no effect in 2 epochs while swav_queue_start is 15"),
        ("swav_queue=0 & swav_queue_start=[0, 1]", "has no effect while swav_queue is 0"),
        ("swav_queue=9999 & swav_queue_start=[0, 1]", "while a queue of 9999 is never full"),
        ("swav_queue=64 & swav_queue_start=[0, 2, 3]",
         "expected at most one value from 2 on, the epochs of a trial; 2, 3 train alike"),
        ("swav_queue_start=1 & swav_queue=[0, 64, 1293]",
         "expected at most one of 0, 1293: in 2 epochs from 1 on a queue of 1293 is never full"),
    ],
}  # fmt: skip
FILES = "imagefiles, arrays, huggingface, webdataset"
OF_DATA = [
    ("name: digits, image_size: 32",
     f"dataset.image_size: expected on imagefolder, {FILES}, synthetic only, given on digits; "
     "null removes a key"),
    ("name: digits, channels: 3",
     f"dataset.channels: expected on imagefolder, {FILES} only, given on digits"),
    ("name: cifar10, num_classes: 5",
     f"dataset.num_classes: expected on imagefolder, {FILES}, synthetic only, given on cifar10"),
    ("name: digits, num_train: 1500",
     "dataset.num_train: expected at most 1437, the images of digits, given 1500"),
    ("name: digits, num_train: 500, fraction: 0.5",
     "expected num_train or fraction, given both"),
    ("name: digits, fraction: 1.5", "dataset.fraction: expected a value < 1, given 1.5"),
    ("name: digits, range: [1, 0]", "dataset.range: expected [low, high], given [1, 0]"),
    ("name: digits, transfer_root: x",
     "dataset.transfer_root: has no effect without base.transfer_dataset"),
    ("name: synthetic, image_size: 4", "dataset.image_size: expected a value >= 8, given 4"),
    ("name: synthetic, image_size: 32.5", "dataset.image_size: expected an integer, given 32.5"),
    ("name: synthetic, num_classes: 400, num_train: 1000",
     "expected at least 400 images, one per class"),
    ("name: digits, cache: 3", "dataset.cache: expected a text, given 3"),
    ("name: digits, imagesize: 3", "dataset.imagesize: unknown key. Did you mean 'image_size'?"),
]  # fmt: skip
ASHA = "search={method: tpe, trials_per_objective: 2} & scheduler.name=asha"
ON_PAIRS = [
    ("dataset.val_fraction=0.2", "dataset.val_fraction: gaussian_mi is drawn afresh at every step"),
    *((f"metric.name={name}{more}", f"that every objective has: mi_estimate; given {name}")
      for name, more in (("knn_top1", ""), ("lidar", ""), ("linear_top1", f" & {ASHA}"))),
    (f"metric.name=mi_estimate & {ASHA}", "expected scheduler.name fifo; mi_estimate is scored at"),
    ("resources.workers=2", "a trial on gaussian_mi has 1 worker, given 2"),
    ("objectives.a.base.epochs=0", "expected at least 1 on gaussian_mi, given 0"),
    ("objectives.a.base.crop_scale=0.5", "gaussian_mi is made of vectors, not of images"),
    ("objectives.a.framework=simclr",
     "'simclr' does not work on gaussian_mi. Expected one of: mi_critic"),
]  # fmt: skip
CROSSED = ONE | {
    "factors": {"dataset": ["digits"], "encoder": ["resnet20", {"name": "conv4", "width": 16}]},
    "dataset": {},
    "base": {"epochs": 2, "batch_size": 32},
    "objectives": {"a": {"framework": "simclr", "loss": "dcl"}},
}
OF_FACTORS = [
    ("dataset=3", "dataset: expected a mapping, given 3"),
    ("factors=3", "factors: expected a list of levels for dataset or encoder, given 3"),
    ("factors={datset: [digits]}", "factors.datset: unknown factor. Did you mean 'data"),
    ("factors={tau: [1]}", "Sweep other things in space"),
    ("factors.dataset=[]", "factors.dataset: expected a list of levels, given []"),
    ("factors.dataset=[3]", "factors.dataset.0: expected a name or {name: ...}"),
    ("factors.dataset=[cifar]", "unknown dataset 'cifar'. Did you mean 'cifar10'?"),
    ("factors.encoder=[conv5]", "given 'conv5'"),
    ("factors.dataset=[digits, digits]", "factors.dataset.1: digits stands twice"),
    ("factors.dataset=[{name: digits, label: a b}]", "label: expected letters"),
    ("factors.encoder=[{name: conv4, stem: small}]",
     "factors.encoder.0.stem: unknown key. 'conv4' owns: width"),
    ("factors.dataset=[{name: digits, imagesize: 3}]", "dataset.imagesize: unknown key"),
    ("factors.dataset=[{name: digits, val_fraction: 3}]",
     "dataset.val_fraction: expected a value <= 0.5, given 3"),
    ("factors.dataset=[{name: digits, base: 3}]", "base: expected a mapping"),
    ("base.encoder=conv4", "base.encoder: expected in factors.encoder alone"),
    ("space.encoder={choices: [conv4]}", "space.encoder: expected in factors.encoder alone"),
    ("space.width={choices: [8, 16]}", "space.width: expected in factors.encoder alone"),
    ("dataset={name: digits}", "dataset.name: expected in factors.dataset alone"),
]  # fmt: skip
ASKED = {
    "space": {"tau": {"choices": [0.1, 0.5]}, "lr": {"low": 0.1, "high": 1.0, "grid": [0.1, 1]}},
    "contrasts": {"small": {"of": ["dcl", "simclr"], "at": {"tau": 0.1}}},
}
OF_CONTRASTS = [
    ("off=dcl", "off: unknown key. Did you mean 'of'?"),
    ("of=[dlc, simclr]",
     "of: unknown objective 'dlc'. Did you mean 'dcl'? Expected one of: simclr, dcl"),
    ("of=[a, b, c]", "of: expected at most 2 entries, given 3"),
    ("minus={tau: 0.1}", "minus: expected other settings than at, given the same"),
    ("at={batch_size: 16}", "at.batch_size: dcl and simclr sweep no 'batch_size'. Swept: tau, lr"),
    ("at={tau: 0.2}", "at.tau: expected a value that dcl has: 0.1, 0.5; given 0.2"),
    ("at={tau: warm}", "at.tau: expected"),
    ("metric=q_b", "metric: unknown metric 'q_b'. Did you mean 'q_b_cv'?"),
    ("margin=0", "margin: expected a value > 0, given 0"),
    ("published=2.5 points", "published: expected a number"),
]  # fmt: skip
CONDITIONED = {
    "objectives": {"moco": {"framework": "moco", "loss": "infonce"}},
    "space": {
        "tau": {"grid": [0.1, 0.5]},
        "momentum_schedule": {"choices": ["constant", "cosine"]},
        "momentum_end": {"grid": [0.999, 1.0]},
        "weight_decay": {"grid": [0.001, 0.01]},
    },
}
CIRCLE = "space.sgd_momentum={grid: [0.5, 0.9], when: {weight_decay: 0.001}}"
OF_WHEN = [
    ("{momentum_schedul: cosine}", "unknown parameter 'momentum_schedul'. Did you mean"),
    ("{momentum_schedule: cosin}", "expected constant | cosine, given 'cosin'"),
    ("{tau: 0.3}", "tau is never 0.3. Expected some of: 0.1, 0.5"),
    ("{tau: [0.1, 0.5]}", "tau is always one of these"),
    ("{lr: 0.1}", "lr is fixed: expected one that is swept beside it"),
    (f"{{sgd_momentum: 0.5}} & {CIRCLE}", "sgd_momentum hangs on weight_decay itself"),
    ("[]", "expected {hyperparameter: value or list of values}"),
]


def over_one(text):
    """`x=1` as a setting of base, `x=[1, 2]` as one of space; others as they are."""
    name, _, value = text.partition("=")
    if "." in name or value.startswith("{"):
        return text
    return f"space.{name}={{choices: {value}}}" if value[:1] == "[" else f"base.{name}={value}"


def split(text):
    return [each for each in text.split(" & ") if each]


@pytest.mark.parametrize(
    ("tree", "settings", "says"),
    [
        *((ONE, [parts(which), *map(over_one, split(given))], says)
          for which, rows in OF_PARTS.items() for given, says in rows),
        *((ONE, [parts("simclr dcl"), f"dataset={{{given}}}"], says) for given, says in OF_DATA),
        *((GAUSSIAN, split(given), says) for given, says in ON_PAIRS),
        *((CROSSED, [given], says) for given, says in OF_FACTORS),
        *((ASKED, [f"contrasts.small.{given}"], f"contrasts.small.{says}")
          for given, says in OF_CONTRASTS),
        (ASKED, ["contrasts.small={of: dcl}"],
         "contrasts.small: expected two objectives, or minus: nothing is subtracted from dcl"),
        *((CONDITIONED, split(f"space.weight_decay.when={given}"), says)
          for given, says in OF_WHEN),
        (CONDITIONED,
         ["space.weight_decay={grid: [0.1], when: {momentum_schedule: constant, momentum_end: 1}}"],
         "takes part in no configuration"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_a_line_with_its_place(load, tree, settings, says):
    lines = refusals(load, *settings, **tree)
    assert any(says in line for line in lines), lines
    places = tuple(f"--set {setting:.70}" for setting in settings)
    assert all(line.startswith(places) for line in lines), lines


@pytest.mark.parametrize(
    "settings",
    [
        "space.precision={choices: [fp32, bf16]}",
        "base.precision=fp16 & resources.gpus_per_worker=1",
        "metric.name=linear_top1",
        "base.batch_size=256 & space.chunk_size={choices: [64, 128, 256]}",
        "objectives.a={framework: supervised, loss: cross_entropy}",
        f"{parts('moco infonce')} & base.norm_group=12",  # it is shuffled groups that must divide
    ],
)
def test_what_is_near_to_that_is_accepted(load, settings):
    load(parts("simclr infonce"), *settings.split(" & "), **ONE)
