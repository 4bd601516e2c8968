"""What exists: every component and every hyperparameter, as rows that need neither torch nor Ray.

The study file is checked against these rows, `clsweep catalog` prints them, and the Parquet columns are typed by them.
To add a loss: a row in `COMPONENTS` here, the function in `losses.py`, its name in `build.py`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Value = bool | int | float | str
Part = Literal[
    "framework", "loss", "regularizer", "views", "recipe", "encoder", "linear_probe", "weighting", "optimizer"
]

# The four parts that make an objective, in the order in which they are always listed.
OBJECTIVE_PARTS: tuple[Part, ...] = ("framework", "loss", "regularizer", "views")
# Parts that a hyperparameter of the same name selects.
SELECTED_PARTS: tuple[Part, ...] = ("recipe", "encoder", "linear_probe", "weighting", "optimizer")


@dataclass(frozen=True, kw_only=True)
class Param:
    """One hyperparameter. `low` and `high` are closed bounds; `low_open` excludes `low` itself."""

    name: str
    kind: Literal["float", "int", "choice", "bool"]
    default: Value
    doc: str
    source: str
    symbol: str = ""
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    choices: tuple[str, ...] = ()
    sweepable: bool = True
    needs_rgb: bool = False  # without effect on one-channel images, hence not owned there
    inert_when: tuple[tuple[str, Value], ...] = ()  # values of others at which this one has no effect

    @property
    def bounds(self) -> str:
        """The valid values as a reader writes them: `(0, inf)`, `[1, 100]`, `none | linear`."""
        if self.kind == "choice":
            return " | ".join(self.choices)
        if self.kind == "bool":
            return "true | false"
        left = "(" if self.low_open or self.low == -math.inf else "["
        right = ")" if self.high == math.inf else "]"
        return f"{left}{self.low:g}, {self.high:g}{right}"

    def coerce(self, value: object) -> Value:
        """`value` in the parameter's own type.

        Raises:
            ValueError: wrong type or out of bounds; the message is "expected ..., given ...".
        """
        if self.kind == "choice":
            if value in self.choices and isinstance(value, str):
                return value
            raise ValueError(f"expected {self.bounds}, given {value!r:.80}")
        if self.kind == "bool":
            if isinstance(value, bool):
                return value
            raise ValueError(f"expected {self.bounds}, given {value!r:.80}")
        number = _number(value, integer=self.kind == "int")
        if number is None:
            raise ValueError(f"expected {'an integer' if self.kind == 'int' else 'a number'}, given {value!r:.80}")
        if not self.low <= number <= self.high or (self.low_open and number == self.low):
            raise ValueError(f"expected a value in {self.bounds}, given {value!r:.80}")
        return number


@dataclass(frozen=True, kw_only=True)
class Component:
    """One framework, loss, regularizer, views, encoder, ... with the hyperparameters that it brings.

    `losses` of a framework are those that make sense on it; `owns_with` names what it owns beside one of them only.
    `defaults` replace those of the hyperparameters' own rows.
    """

    part: Part
    name: str
    owns: tuple[str, ...] = ()
    owns_with: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Value] = field(default_factory=dict)
    losses: tuple[str, ...] = ()
    doc: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set as a plan needs to know it: images of `image_size` pixels a side, or pairs of random vectors.

    A 0 in the rows of `DATASETS` is a number that the user's files have. `num_train` counts the images with a class.
    """

    name: str
    kind: Literal["images", "pairs"] = "images"
    num_train: int
    num_test: int
    image_size: int
    channels: int
    num_classes: int
    num_unlabeled: int = 0  # trained on beside those with a class
    images_digest: str | None = None  # of names and sizes of the files, where these are the user's own
    options: tuple[str, ...] = ()  # of the numbers above: those that a study may choose
    doc: str

    def split_sizes(self, val_fraction: float) -> tuple[int, int]:
        """Images to train on, unlabeled ones included, and images of the validation split: labelled ones alone."""
        num_val = round(self.num_train * val_fraction)
        return self.num_train - num_val + self.num_unlabeled, num_val


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A score of a finished trial, taken at the last epoch on the validation split (images) or on fresh pairs."""

    name: str
    mode: Literal["max", "min"]
    kind: Literal["images", "pairs"] = "images"
    unit: str = "%"
    doc: str


METRICS = (
    Metric(name="knn_top1", mode="max", doc="weighted k-nearest-neighbour accuracy of the encoder's features"),
    Metric(name="knn_top5", mode="max", doc="share of images whose class is among the five with the most kNN votes"),
    Metric(name="linear_top1", mode="max", doc="accuracy of a linear classifier on the frozen features (linear_probe)"),
    Metric(name="linear_top5", mode="max", doc="share of images whose class is among the classifier's five best"),
    Metric(name="mi_estimate", mode="max", kind="pairs", unit="nats",
           doc="lower bound of the mutual information: log(1 + K) - l, with eqco log(1 + alpha) - l (EqCo Fig. 1)"),
)  # fmt: skip

DATASETS = (
    Dataset(name="digits", num_train=1437, num_test=360, image_size=8, channels=1, num_classes=10,
            doc="handwritten digits embedded in scikit-learn; needs no download"),
    Dataset(name="fashion_mnist", num_train=60_000, num_test=10_000, image_size=28, channels=1, num_classes=10,
            doc="Fashion-MNIST, torchvision's folder layout"),
    Dataset(name="cifar10", num_train=50_000, num_test=10_000, image_size=32, channels=3, num_classes=10,
            doc="CIFAR-10, torchvision's folder layout"),
    Dataset(name="cifar100", num_train=50_000, num_test=10_000, image_size=32, channels=3, num_classes=100,
            doc="CIFAR-100, torchvision's folder layout"),
    Dataset(name="stl10", num_train=5_000, num_unlabeled=100_000, num_test=8_000, image_size=96, channels=3,
            num_classes=10, doc="STL-10, torchvision's folder layout; 100,000 more images without a class"),
    Dataset(name="imagefolder", num_train=0, num_test=0, image_size=224, channels=3, num_classes=0,
            options=("image_size",), doc="your own images: ROOT/train/CLASS/*.jpg and ROOT/val or ROOT/test"),
    Dataset(name="synthetic", num_train=10_000, num_test=2_000, image_size=32, channels=3, num_classes=10,
            options=("image_size", "num_train", "num_classes"), doc="textures from a fixed seed; needs no download"),
    Dataset(name="gaussian_mi", kind="pairs", num_train=0, num_test=0, image_size=0, channels=0, num_classes=0,
            doc="correlated Gaussian vectors of known mutual information, drawn afresh at every step (EqCo C)"),
)  # fmt: skip

# What the losses on a framework compare: samples with each other, predictions with targets, or logits with labels.
_CONTRASTIVE = ("infonce", "dcl", "dclw", "eqco")
_PROJECTOR = ("proj_dim", "proj_hidden", "proj_layers")
_AUGMENTATION = ("recipe", "crop_scale", "flip_prob", "jitter_strength", "jitter_saturation", "jitter_prob",
                 "gray_prob", "blur_prob", "solarize_prob")  # fmt: skip
_MULTI_VIEW = ("num_views", "pair_reduction", "crop_only_share", "small_view_size", "small_crop_scale",
               "small_crop_max", *_AUGMENTATION)  # fmt: skip
_BOTH_WAYS: dict[str, Value] = {"symmetric": True}  # every pair of more than two views (ECPP Eq. 2)

COMPONENTS = (
    Component(part="framework", name="simclr", owns=_PROJECTOR, owns_with={"eqco": ("num_negatives",)},
              losses=(*_CONTRASTIVE, "align_uniform"), source="DCL Fig. 2; SimCLR (2020)",
              doc="one encoder and projector; the other samples of the batch are the negatives"),
    Component(part="framework", name="moco", owns=("num_negatives", "momentum", "momentum_schedule", "symmetric",
                                                   *_PROJECTOR),
              losses=(*_CONTRASTIVE, "align_uniform"),
              defaults={"num_negatives": 65536, "alpha": 65536.0}, source="EqCo 2.3; MoCo v2 (2020)",
              doc="queries against their momentum keys and a queue of num_negatives earlier keys"),
    Component(part="framework", name="simo", owns=("num_negatives", "momentum", "momentum_schedule", "symmetric",
                                                   *_PROJECTOR),
              losses=(*_CONTRASTIVE, "align_uniform"), defaults={"alpha": 65536.0}, source="EqCo 3",
              doc="momentum keys of the current batch, no queue; batch norm after every linear layer"),
    Component(part="framework", name="byol", owns=("momentum", "momentum_schedule", "pred_hidden", *_PROJECTOR),
              losses=("cosine",), defaults={"proj_dim": 256, "proj_hidden": 4096, "pred_hidden": 4096,
                                            "momentum": 0.996, "momentum_schedule": "cosine"},
              source="ECPP 6.1; BYOL (2020)", doc="predictions of one view against momentum targets of the other"),
    Component(part="framework", name="simsiam", owns=("pred_hidden", *_PROJECTOR), losses=("cosine",),
              defaults={"proj_dim": 2048, "proj_hidden": 2048, "proj_layers": 3, "pred_hidden": 512},
              source="DimCL Table 1; SimSiam (2021)", doc="predictions of one view against the stopped other"),
    Component(part="framework", name="barlow_twins", owns=_PROJECTOR, losses=("barlow",),
              defaults={"proj_dim": 8192, "proj_hidden": 8192, "proj_layers": 3},
              source="DimCL Table 8; Barlow Twins (2021)", doc="cross-correlation of two views' projections"),
    Component(part="framework", name="nnclr", owns=("support_size", "pred_hidden", *_PROJECTOR), losses=_CONTRASTIVE,
              defaults={"proj_dim": 256, "proj_hidden": 2048, "proj_layers": 3, "pred_hidden": 4096},
              source="DCL Table 10; NNCLR (2021)",
              doc="nearest neighbours in a support set of earlier projections against predictions of the other view"),
    Component(part="framework", name="supervised", losses=("cross_entropy", "decoupled_cross_entropy"),
              source="DimCL Table 10; DCL A.7",
              doc="encoder and linear classifier, trained with labels: the upper reference"),
    Component(part="framework", name="mi_critic", owns=("mutual_information", "critic_hidden", "critic_dim",
                                                        "estimate_batches"),
              losses=("infonce", "eqco"), defaults={"tau": 1.0, "alpha": 512.0, "lr": 5e-4, "epochs": 20},
              source="EqCo Appendix C", doc="two MLPs, dot product: estimates the mutual information of gaussian_mi"),
    Component(part="loss", name="infonce", owns=("tau",), source="DCL Eq. 1-2",
              doc="l = -s_pos/tau + log(exp(s_pos/tau) + U)"),
    Component(part="loss", name="dcl", owns=("tau",), source="DCL Eq. 6",
              doc="l = -s_pos/tau + log U: the positive leaves the denominator"),
    Component(part="loss", name="dclw", owns=("tau", "sigma", "weighting", "dclw_detach"), source="DCL Eq. 7",
              doc="l = -w s_pos/tau + log U: hard positives weigh more"),
    Component(part="loss", name="eqco", owns=("tau", "alpha"), source="EqCo Eq. 5, 10",
              doc="l = -s_pos/tau + log(exp(s_pos/tau) + alpha/K U): the margin makes K irrelevant"),
    Component(part="loss", name="align_uniform", owns=("align_weight", "align_alpha", "uniform_t"), source="DCL A.5",
              doc="l = w mean |z1 - z2|^a + log mean exp(-t |zi - zj|^2)"),
    Component(part="loss", name="cosine", source="BYOL (2020); SimSiam (2021)", doc="l = -cos(p, z)"),
    Component(part="loss", name="barlow", owns=("off_diag",), source="Barlow Twins (2021) Eq. 1",
              doc="l = sum (1 - C_ii)^2 + off_diag sum C_ij^2"),
    Component(part="loss", name="cross_entropy", source="DCL A.7", doc="l = -logit_y + log sum exp(logits)"),
    Component(part="loss", name="decoupled_cross_entropy", source="DCL A.7",
              doc="l = -logit_y + log sum over the other classes"),
    Component(part="regularizer", name="none", source="-", doc="the loss alone"),
    Component(part="regularizer", name="dimcl", owns=("lam", "dim_tau", "dim_standardize"), source="DimCL Eq. 5-6",
              doc="lam x InfoNCE over the columns of the batch + (1 - lam) x loss"),
    Component(part="regularizer", name="abscl", owns=("lam", "dim_tau", "dim_standardize"), source="DimCL Eq. 4",
              doc="as dimcl, with |s| of the negatives"),
    Component(part="regularizer", name="barlow", owns=("lam", "off_diag"), source="DimCL Table 9",
              doc="lam x the loss of Barlow Twins + (1 - lam) x loss"),
    Component(part="views", name="two", owns=_AUGMENTATION, source="DCL A.4; SimCLR (2020)",
              doc="two random views of every image, one pair of positives"),
    Component(part="views", name="core", owns=_MULTI_VIEW, defaults=_BOTH_WAYS, source="ECPP Table 1; CMC (2020)",
              doc="the first view with each other one: K - 1 pairs"),
    Component(part="views", name="multicrop", owns=_MULTI_VIEW,
              defaults=_BOTH_WAYS | {"small_crop_scale": 0.05, "small_crop_max": 0.14},
              source="ECPP Table 1; SwAV (2020)",
              doc="the first two views with each other and every small one: 2K - 3 pairs"),
    Component(part="views", name="all_pairs", owns=_MULTI_VIEW, defaults=_BOTH_WAYS, source="ECPP Eq. 3; CMC (2020)",
              doc="every pair of views: K(K - 1)/2 pairs"),
    Component(part="views", name="ecpp", owns=_MULTI_VIEW,
              defaults=_BOTH_WAYS | {"crop_only_share": 0.5, "crop_scale": 0.2}, source="ECPP 4, Eq. 4",
              doc="every pair of views, half of the views crop-only, no positive in the denominator"),
    Component(part="recipe", name="simclr", source="DCL A.4; SimCLR (2020)",
              doc="crop, flip, colour jitter, grayscale and blur, at the defaults of hyperparameters and views"),
    Component(part="recipe", name="simclr_cifar", defaults={"jitter_strength": 0.5, "blur_prob": 0.0},
              source="SimCLR (2020) B.9", doc="for images of 32 x 32: half the jitter, no blur"),
    Component(part="recipe", name="moco_v2", defaults={"crop_scale": 0.2, "jitter_strength": 0.5},
              source="MoCo v2 (2020)", doc="larger crops, half the jitter"),
    Component(part="recipe", name="byol", owns=("second_blur_prob", "second_solarize_prob"),
              defaults={"crop_scale": 0.08, "jitter_strength": 0.5, "jitter_saturation": 0.4, "blur_prob": 1.0},
              source="BYOL (2020) B; DCL A.4, strong",
              doc="blur of the first view, seldom of the second, which is solarized instead; so on in turns"),
    Component(part="recipe", name="ecpp_cifar",
              defaults={"crop_scale": 0.2, "jitter_strength": 0.5, "blur_prob": 0.0}, source="ECPP A",
              doc="for images of 32 x 32: larger crops, half the jitter, no blur"),
    Component(part="recipe", name="ecpp_imagenet", defaults={"crop_scale": 0.2, "solarize_prob": 0.1}, source="ECPP A",
              doc="larger crops, some views solarized; small views likewise"),
    Component(part="encoder", name="conv4", owns=("width",), source="engineering choice",
              doc="four 3 x 3 convolutions, stride-2 stem: made for a CPU"),
    Component(part="encoder", name="resnet18", owns=("stem",), source="DCL 4.1; torchvision",
              doc="ResNet-18, 512 features"),
    Component(part="encoder", name="resnet50", owns=("stem",), source="DCL Table 4; torchvision",
              doc="ResNet-50, 2048 features"),
    Component(part="linear_probe", name="none", source="-", doc="no linear classification"),
    Component(part="linear_probe", name="ridge", owns=("probe_l2",), source="engineering choice",
              doc="ridge regression on one-hot classes, solved exactly"),
    Component(part="linear_probe", name="sgd", owns=("probe_lr", "probe_epochs", "probe_schedule"),
              source="DCL A.4; ECPP A", doc="softmax regression by SGD: batch 256, momentum 0.9, no weight decay"),
    Component(part="weighting", name="vmf", source="DCL Eq. 7",
              doc="w = 2 - exp(s_pos/sigma) / mean exp(s_pos/sigma), the mean over the global batch"),
    Component(part="weighting", name="exponential", owns=("delta",), source="DCL Eq. 10",
              doc="w = delta exp(-sigma s_pos)"),
    Component(part="optimizer", name="sgd", owns=("sgd_momentum",), source="DCL A.4", doc="SGD with momentum"),
    Component(part="optimizer", name="lars", owns=("sgd_momentum", "lars_trust"),
              defaults={"lr": 0.3, "weight_decay": 1e-6},
              source="SimCLR (2020); You et al. (2017)",
              doc="SGD whose steps are scaled to the norm of each weight: for large batches"),
    Component(part="optimizer", name="adamw", owns=("adam_beta1", "adam_beta2"),
              defaults={"lr": 1e-3, "weight_decay": 1e-2}, source="Loshchilov & Hutter (2019)",
              doc="Adam with decoupled weight decay"),
)  # fmt: skip


def _names(part: Part) -> tuple[str, ...]:
    return tuple(c.name for c in COMPONENTS if c.part == part)


MIN_TSNE_POINTS = 5  # with fewer there is no neighbourhood to keep
_ALL_LOSS = (("lam", 1.0),)  # the regularizer alone remains
PARAMS = (
    Param(name="tau", symbol="τ", kind="float", default=0.1, low=0, low_open=True, source="DCL Eq. 1",
          inert_when=_ALL_LOSS, doc="temperature of the loss"),
    Param(name="sigma", symbol="σ", kind="float", default=0.5, low=1e-3, source="DCL Eq. 7, 10",
          inert_when=_ALL_LOSS, doc="width (vmf; the larger, the closer to dcl) or rate (exponential) of weights"),
    Param(name="weighting", kind="choice", default="vmf", choices=_names("weighting"), sweepable=False,
          source="DCL Eq. 7, 10", doc="how hard positives are weighed"),
    Param(name="delta", symbol="δ", kind="float", default=3.0, low=0, low_open=True, source="DCL Eq. 10",
          inert_when=_ALL_LOSS, doc="height of the exponential weighting"),
    Param(name="dclw_detach", kind="bool", default=True, source="the paper is silent",
          inert_when=_ALL_LOSS, doc="the weight is a constant; false: the gradient passes through it"),
    Param(name="alpha", symbol="α", kind="float", default=256.0, low=0, low_open=True, source="EqCo Eq. 5",
          inert_when=_ALL_LOSS, doc="number of negatives that eqco mimics"),
    Param(name="num_negatives", symbol="K", kind="int", default=0, low=0, source="EqCo 2.3",
          inert_when=_ALL_LOSS, doc="negatives per query; moco: length of the queue; 0: all of the batch"),
    Param(name="align_weight", kind="float", default=1.0, low=0, source="Wang & Isola (2020)",
          inert_when=_ALL_LOSS, doc="weight of the alignment"),
    Param(name="align_alpha", kind="float", default=2.0, low=1, source="Wang & Isola (2020)",
          inert_when=(("align_weight", 0.0), *_ALL_LOSS), doc="power of the distance in the alignment"),
    Param(name="uniform_t", symbol="t", kind="float", default=2.0, low=0, low_open=True, source="Wang & Isola (2020)",
          inert_when=_ALL_LOSS, doc="sharpness of the uniformity's Gaussian kernel"),
    Param(name="off_diag", kind="float", default=0.0051, low=0, source="Barlow Twins (2021)",
          doc="weight of the cross-correlations off the diagonal"),
    Param(name="lam", symbol="λ", kind="float", default=0.1, low=0, high=1, source="DimCL Eq. 6",
          doc="weight of the regularizer; the loss has 1 - lam"),
    Param(name="dim_tau", symbol="τ", kind="float", default=0.1, low=0, low_open=True, source="DimCL Eq. 5",
          inert_when=(("lam", 0.0),), doc="temperature of the regularizer"),
    Param(name="dim_standardize", kind="bool", default=True, source="DimCL's released code",
          inert_when=(("lam", 0.0),), doc="columns are standardised over the batch before they are normalised"),
    Param(name="num_views", symbol="K", kind="int", default=4, low=2, high=8, source="ECPP Table 1",
          doc="views of an image"),
    Param(name="pair_reduction", kind="choice", default="mean", choices=("mean", "sum"), source="ECPP Eq. 3",
          inert_when=(("num_views", 2),), doc="over the pairs of views; the mean keeps lr comparable, Fig. 2 sums"),
    Param(name="crop_only_share", kind="float", default=0.0, low=0, high=1, source="ECPP 4.1",
          inert_when=(("num_views", 2),), doc="share of all views that are only cropped, rounded down; not the first"),
    Param(name="small_view_size", kind="int", default=0, low=0, source="ECPP 4.2",
          inert_when=(("num_views", 2),), doc="side of views 3 to K, pixels; 0: 3/7 of images from 128 on, else all"),
    Param(name="small_crop_scale", kind="float", default=0.0, low=0, high=1, source="ECPP Table 4",
          inert_when=(("num_views", 2),), doc="smallest crop of views 3 to K, share of the area; 0: crop_scale"),
    Param(name="small_crop_max", kind="float", default=1.0, low=0, high=1, low_open=True, source="ECPP Table 4",
          inert_when=(("num_views", 2),), doc="largest crop of views 3 to K, as a share of the image's area"),
    Param(name="momentum", symbol="β", kind="float", default=0.999, low=0, high=1, source="EqCo B.1",
          doc="share of itself that the momentum encoder keeps at every step"),
    Param(name="momentum_schedule", kind="choice", default="constant", choices=("constant", "cosine"),
          source="BYOL (2020)", inert_when=(("momentum", 1.0),), doc="cosine: the momentum rises to 1 at the end"),
    Param(name="symmetric", kind="bool", default=False, source="DimCL Table 1",
          inert_when=_ALL_LOSS, doc="each view of a pair is once the query; false: only the first"),
    Param(name="support_size", kind="int", default=98304, low=1, source="NNCLR (2021)",
          inert_when=_ALL_LOSS, doc="earlier projections among which nearest neighbours are sought"),
    Param(name="proj_dim", symbol="D", kind="int", default=128, low=2, source="DCL 4.1",
          doc="width of the projector's output"),
    Param(name="proj_hidden", kind="int", default=0, low=0, source="ECPP A",
          doc="width of the projector's hidden layers; 0: that of the features"),
    Param(name="proj_layers", kind="int", default=2, low=2, high=5, source="ECPP A",
          doc="linear layers of the projector"),
    Param(name="pred_hidden", kind="int", default=4096, low=1, source="BYOL (2020)",
          inert_when=_ALL_LOSS, doc="width of the predictor's hidden layer"),
    Param(name="batch_size", symbol="N", kind="int", default=256, low=2, source="DCL Table 1",
          doc="images in a step, summed over the workers"),
    Param(name="lr", kind="float", default=0.03, low=0, low_open=True, source="DCL 4.1",
          doc="base learning rate, before lr_rule"),
    Param(name="lr_rule", kind="choice", inert_when=(("batch_size", 256),),
          default="linear", choices=("none", "sqrt", "linear"), source="DCL 4.1",
          doc="peak rate = lr x (batch_size / 256) ^ 0, 1/2 or 1"),
    Param(name="weight_decay", kind="float", default=5e-4, low=0, source="DCL 4.1 (benchmark of [35])",
          doc="L2 penalty, of adamw decoupled; not on biases and normalisation"),
    Param(name="optimizer", kind="choice", default="sgd", choices=_names("optimizer"), sweepable=False,
          source="DCL A.4", doc="how the weights follow their gradients"),
    Param(name="sgd_momentum", kind="float", default=0.9, low=0, high=0.9999, source="DCL A.4",
          doc="momentum of SGD and LARS"),
    Param(name="lars_trust", symbol="η", kind="float", default=1e-3, low=0, low_open=True,
          source="You et al. (2017)", doc="a step's share of the norm of the weight that it changes, times lr"),
    Param(name="adam_beta1", kind="float", default=0.9, low=0, high=0.9999, source="Kingma & Ba (2015)",
          doc="decay of AdamW's mean of the gradients"),
    Param(name="adam_beta2", kind="float", default=0.999, low=0, high=0.9999999, source="Kingma & Ba (2015)",
          doc="decay of AdamW's mean of their squares"),
    Param(name="chunk_size", kind="int", default=0, low=0, source="GradCache (2021)",
          doc="images of a batch that go through the networks at once, and that batch norm sees; 0: all"),
    Param(name="precision", kind="choice", default="auto", choices=("auto", "fp32", "bf16", "fp16"),
          source="engineering choice", doc="of the networks; auto: the fastest half type of the device, or fp32"),
    Param(name="warmup_epochs", kind="int", default=0, low=0, source="SimCLR (2020)",
          doc="epochs of linear warm-up before the cosine; fewer than epochs"),
    Param(name="epochs", kind="int", default=200, low=0, source="DCL 4.1",
          doc="passes over the training split, 250 steps on gaussian_mi; 0 scores the untrained encoder"),
    Param(name="recipe", kind="choice", default="simclr", choices=_names("recipe"), sweepable=False,
          source="DCL A.4", doc="named defaults of the views' augmentation; what is given beside it counts"),
    Param(name="crop_scale", kind="float", default=0.08, low=0, high=1, low_open=True, source="DCL A.4",
          doc="smallest crop, as a share of the image's area"),
    Param(name="flip_prob", kind="float", default=0.5, low=0, high=1, source="DCL A.4",
          doc="probability of a horizontal flip"),
    Param(name="jitter_strength", kind="float", inert_when=(("jitter_prob", 0.0),),
          default=1.0, low=0, high=2.5, source="DCL A.4",
          doc="strength s of the colour jitter (0.8 s, 0.8 s, jitter_saturation s, 0.2 s)"),
    Param(name="jitter_saturation", kind="float", inert_when=(("jitter_strength", 0.0), ("jitter_prob", 0.0)),
          default=0.8, low=0, high=1, needs_rgb=True, source="BYOL (2020) B",
          doc="range of the jitter's saturation at strength 1; colour images only"),
    Param(name="jitter_prob", kind="float", inert_when=(("jitter_strength", 0.0),),
          default=0.8, low=0, high=1, source="DCL A.4",
          doc="probability of the colour jitter"),
    Param(name="gray_prob", kind="float", default=0.2, low=0, high=1, needs_rgb=True, source="DCL A.4",
          doc="probability of grayscale; colour images only"),
    Param(name="blur_prob", kind="float", default=0.5, low=0, high=1, source="DCL A.4",
          doc="probability of Gaussian blur"),
    Param(name="solarize_prob", kind="float", default=0.0, low=0, high=1, source="ECPP A",
          doc="probability of solarization: pixels from 1/2 on are inverted"),
    Param(name="second_blur_prob", kind="float", default=0.1, low=0, high=1, source="BYOL (2020) B",
          doc="blur_prob of the second view, and of every second one"),
    Param(name="second_solarize_prob", kind="float", default=0.2, low=0, high=1, source="BYOL (2020) B",
          doc="solarize_prob of the second view, and of every second one"),
    Param(name="encoder", kind="choice", default="resnet18", choices=_names("encoder"), sweepable=False,
          source="DCL 4.1", doc="network that is trained and kept"),
    Param(name="width", kind="int", default=32, low=4, source="engineering choice",
          doc="channels of the first convolution; features = 4 x width"),
    Param(name="stem", kind="choice", default="small", choices=("small", "standard"), source="DCL 4.1",
          doc="small: 3 x 3 stride 1, no pooling (32 x 32 images); standard: 7 x 7 stride 2 and pooling"),
    Param(name="mutual_information", symbol="I", kind="float", default=4.0, low=0, low_open=True, source="EqCo Eq. 15",
          doc="true mutual information of the two Gaussian vectors, nats"),
    Param(name="critic_hidden", kind="int", default=256, low=1, source="EqCo Appendix C",
          doc="hidden units of each of the critic's two networks"),
    Param(name="critic_dim", kind="int", default=32, low=1, source="EqCo Appendix C",
          doc="width of the critic's embeddings, whose dot product scores a pair"),
    Param(name="estimate_batches", kind="int", default=1000, low=1, sweepable=False, source="EqCo Appendix C",
          doc="fresh batches that the final estimate averages"),
    Param(name="eval_every", kind="int", default=10, low=1, sweepable=False, source="engineering choice",
          doc="epochs between validation scores; the last epoch is always scored"),
    Param(name="knn_k", kind="int", default=200, low=1, sweepable=False, source="DCL 4.1; Wu et al. (2018)",
          doc="neighbours that vote"),
    Param(name="knn_temperature", kind="float", default=0.1, low=0, low_open=True, sweepable=False,
          source="Wu et al. (2018)", doc="temperature of the votes; apart from tau, whatever is swept"),
    Param(name="linear_probe", kind="choice", default="ridge", choices=_names("linear_probe"), sweepable=False,
          source="DCL A.4; ECPP A", doc="linear classifier of the last epoch's frozen features"),
    Param(name="probe_l2", kind="float", default=1e-3, low=0, low_open=True, sweepable=False,
          source="engineering choice", doc="penalty per image of the ridge regression on standardised features"),
    Param(name="probe_lr", kind="float", default=0.25, low=0, low_open=True, sweepable=False, source="ECPP A; DCL A.4",
          doc="learning rate of the probe; ECPP 0.25 on CIFAR, DCL 30 on ImageNet"),
    Param(name="probe_epochs", kind="int", default=100, low=1, sweepable=False, source="ECPP A; DCL A.4",
          doc="epochs of the probe"),
    Param(name="probe_schedule", kind="choice", default="cosine", choices=("cosine", "step"), sweepable=False,
          source="ECPP A; DCL A.4", doc="cosine to 0 (ECPP), or x 0.1 at 60 % and 80 % (DCL)"),
    Param(name="tsne_points", kind="int", default=0, low=0, sweepable=False, source="DCL Fig. 4; DimCL Fig. 7-8",
          doc="validation images whose features are embedded in the plane at the last epoch; 0: none"),
)  # fmt: skip

PARAM = {p.name: p for p in PARAMS}
DATASET = {d.name: d for d in DATASETS}
METRIC = {m.name: m for m in METRICS}
COMPONENT: dict[str, dict[str, Component]] = {}
for _component in COMPONENTS:
    COMPONENT.setdefault(_component.part, {})[_component.name] = _component


def _number(value: object, *, integer: bool) -> int | float | None:
    """A finite number from a YAML scalar, or None. Booleans are no numbers; 64.0 is an integer, of 64 bits at most."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not abs(value) < (2**63 if integer else sys.float_info.max):  # infinity and nan fail too
        return None
    if not integer:
        return float(value)
    return int(value) if float(value).is_integer() else None
