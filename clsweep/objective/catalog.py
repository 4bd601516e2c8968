"""What exists: every component and every hyperparameter, as rows that need neither torch nor Ray.

The study file is checked against these rows, `clsweep catalog` prints them, and the Parquet columns are typed by them.
To add a loss: a row in `COMPONENTS` here, the function in `losses.py`, its name in `build.py`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Value = bool | int | float | str
Part = Literal["framework", "loss", "regularizer", "views", "encoder"]

# The four parts that make an objective, in the order in which they are always listed.
OBJECTIVE_PARTS: tuple[Part, ...] = ("framework", "loss", "regularizer", "views")


@dataclass(frozen=True, kw_only=True)
class Param:
    """One hyperparameter. `low` and `high` are closed bounds; `low_open` excludes `low` itself."""

    name: str
    kind: Literal["float", "int", "choice"]
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
    inert_when: tuple[tuple[str, float], ...] = ()  # values of others at which this one has no effect

    @property
    def bounds(self) -> str:
        """The valid values as a reader writes them: `(0, inf)`, `[1, 100]`, `none | linear`."""
        if self.kind == "choice":
            return " | ".join(self.choices)
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
        number = _number(value, integer=self.kind == "int")
        if number is None:
            raise ValueError(f"expected {'an integer' if self.kind == 'int' else 'a number'}, given {value!r:.80}")
        if not self.low <= number <= self.high or (self.low_open and number == self.low):
            raise ValueError(f"expected a value in {self.bounds}, given {value!r:.80}")
        return number


@dataclass(frozen=True, kw_only=True)
class Component:
    """One framework, loss, regularizer, views or encoder, with the hyperparameters that it alone brings."""

    part: Part
    name: str
    owns: tuple[str, ...] = ()
    doc: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set as a plan needs to know it. `image_size` is the side in pixels."""

    name: str
    num_train: int
    num_test: int
    image_size: int
    channels: int
    num_classes: int
    doc: str

    def split_sizes(self, val_fraction: float) -> tuple[int, int]:
        """Images to train on and images of the validation split that is taken from them."""
        num_val = round(self.num_train * val_fraction)
        return self.num_train - num_val, num_val


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A score of a finished trial, in percent, taken on the validation split at the last epoch."""

    name: str
    mode: Literal["max", "min"]
    doc: str


METRICS = (
    Metric(name="knn_top1", mode="max", doc="weighted k-nearest-neighbour accuracy of the encoder's features"),
    Metric(name="knn_top5", mode="max", doc="share of images whose class is among the five with the most kNN votes"),
)

DATASETS = (
    Dataset(name="digits", num_train=1437, num_test=360, image_size=8, channels=1, num_classes=10,
            doc="handwritten digits embedded in scikit-learn; needs no download"),
    Dataset(name="fashion_mnist", num_train=60_000, num_test=10_000, image_size=28, channels=1, num_classes=10,
            doc="Fashion-MNIST, torchvision's folder layout"),
    Dataset(name="cifar10", num_train=50_000, num_test=10_000, image_size=32, channels=3, num_classes=10,
            doc="CIFAR-10, torchvision's folder layout"),
    Dataset(name="cifar100", num_train=50_000, num_test=10_000, image_size=32, channels=3, num_classes=100,
            doc="CIFAR-100, torchvision's folder layout"),
)  # fmt: skip

COMPONENTS = (
    Component(part="framework", name="simclr", owns=("proj_dim",), source="DCL Fig. 2; SimCLR (2020)",
              doc="one encoder and projector; the other samples of the batch are the negatives"),
    Component(part="loss", name="infonce", owns=("tau",), source="DCL Eq. 1-2",
              doc="l = -s_pos/tau + log(exp(s_pos/tau) + U)"),
    Component(part="loss", name="dcl", owns=("tau",), source="DCL Eq. 6",
              doc="l = -s_pos/tau + log U: the positive leaves the denominator"),
    Component(part="loss", name="dclw", owns=("tau", "sigma"), source="DCL Eq. 7",
              doc="l = -w s_pos/tau + log U, w = 2 - exp(s_pos/sigma) / mean exp(s_pos/sigma)"),
    Component(part="regularizer", name="none", source="-", doc="the loss alone"),
    Component(part="views", name="two", source="DCL A.4; SimCLR (2020)",
              owns=("crop_scale", "flip_prob", "jitter_strength", "jitter_prob", "gray_prob", "blur_prob"),
              doc="two random views of every image, one pair of positives"),
    Component(part="encoder", name="conv4", owns=("width",), source="engineering choice",
              doc="four 3 x 3 convolutions, stride-2 stem: made for a CPU"),
    Component(part="encoder", name="resnet18", owns=("stem",), source="DCL 4.1; torchvision",
              doc="ResNet-18, 512 features"),
    Component(part="encoder", name="resnet50", owns=("stem",), source="DCL Table 4; torchvision",
              doc="ResNet-50, 2048 features"),
)  # fmt: skip

PARAMS = (
    Param(name="tau", symbol="τ", kind="float", default=0.1, low=0, low_open=True, source="DCL Eq. 1",
          doc="temperature of the loss"),
    Param(name="sigma", symbol="σ", kind="float", default=0.5, low=1e-3, source="DCL Eq. 7",
          doc="width of the positive weighting; the larger, the closer to dcl"),
    Param(name="batch_size", symbol="N", kind="int", default=256, low=2, source="DCL Table 1",
          doc="images in a step, summed over the workers"),
    Param(name="lr", kind="float", default=0.03, low=0, low_open=True, source="DCL 4.1",
          doc="base learning rate, before lr_rule"),
    Param(name="lr_rule", kind="choice", inert_when=(("batch_size", 256),),
          default="linear", choices=("none", "sqrt", "linear"), source="DCL 4.1",
          doc="peak rate = lr x (batch_size / 256) ^ 0, 1/2 or 1"),
    Param(name="weight_decay", kind="float", default=5e-4, low=0, source="DCL 4.1 (benchmark of [35])",
          doc="L2 penalty; not on biases and normalisation"),
    Param(name="sgd_momentum", kind="float", default=0.9, low=0, high=1, source="DCL A.4", doc="momentum of SGD"),
    Param(name="warmup_epochs", kind="int", default=0, low=0, source="SimCLR (2020)",
          doc="epochs of linear warm-up before the cosine; fewer than epochs"),
    Param(name="epochs", kind="int", default=200, low=0, source="DCL 4.1",
          doc="passes over the training split; 0 scores the untrained encoder"),
    Param(name="proj_dim", symbol="D", kind="int", default=128, low=2, source="DCL 4.1",
          doc="width of the projector's output"),
    Param(name="crop_scale", kind="float", default=0.08, low=0, high=1, low_open=True, source="DCL A.4",
          doc="smallest crop, as a share of the image's area"),
    Param(name="flip_prob", kind="float", default=0.5, low=0, high=1, source="DCL A.4",
          doc="probability of a horizontal flip"),
    Param(name="jitter_strength", kind="float", inert_when=(("jitter_prob", 0),),
          default=1.0, low=0, high=2.5, source="DCL A.4",
          doc="strength s of the colour jitter (0.8 s, 0.8 s, 0.8 s, 0.2 s)"),
    Param(name="jitter_prob", kind="float", inert_when=(("jitter_strength", 0),),
          default=0.8, low=0, high=1, source="DCL A.4",
          doc="probability of the colour jitter"),
    Param(name="gray_prob", kind="float", default=0.2, low=0, high=1, needs_rgb=True, source="DCL A.4",
          doc="probability of grayscale; colour images only"),
    Param(name="blur_prob", kind="float", default=0.5, low=0, high=1, source="DCL A.4",
          doc="probability of Gaussian blur"),
    Param(name="encoder", kind="choice", default="resnet18",
          choices=tuple(c.name for c in COMPONENTS if c.part == "encoder"), sweepable=False, source="DCL 4.1",
          doc="network that is trained and kept"),
    Param(name="width", kind="int", default=32, low=4, source="engineering choice",
          doc="channels of the first convolution; features = 4 x width"),
    Param(name="stem", kind="choice", default="small", choices=("small", "standard"), source="DCL 4.1",
          doc="small: 3 x 3 stride 1, no pooling (32 x 32 images); standard: 7 x 7 stride 2 and pooling"),
    Param(name="eval_every", kind="int", default=10, low=1, sweepable=False, source="engineering choice",
          doc="epochs between validation scores; the last epoch is always scored"),
    Param(name="knn_k", kind="int", default=200, low=1, sweepable=False, source="DCL 4.1; Wu et al. (2018)",
          doc="neighbours that vote"),
    Param(name="knn_temperature", kind="float", default=0.1, low=0, low_open=True, sweepable=False,
          source="Wu et al. (2018)", doc="temperature of the votes; apart from tau, whatever is swept"),
)  # fmt: skip

PARAM = {p.name: p for p in PARAMS}
DATASET = {d.name: d for d in DATASETS}
METRIC = {m.name: m for m in METRICS}
COMPONENT: dict[str, dict[str, Component]] = {}
for _component in COMPONENTS:
    COMPONENT.setdefault(_component.part, {})[_component.name] = _component

# What training itself brings to every objective, and what is left of a trial that does not train.
TRAINING_OWNS = ("batch_size", "lr", "lr_rule", "weight_decay", "sgd_momentum", "warmup_epochs")
TRIAL_OWNS = ("epochs", "encoder", "eval_every", "knn_k", "knn_temperature")


def owned_params(parts: Mapping[str, str], *, encoder: str, dataset: str, trained: bool = True) -> tuple[str, ...]:
    """Names of the hyperparameters that an objective owns, in catalog order.

    Args:
        parts: framework, loss, regularizer and views by name, all present in the catalog.
        encoder: name of the encoder.
        dataset: name of the data set; one-channel images own no colour parameters.
        trained: False for `epochs: 0`: nothing but the encoder itself can then change the score.
    """
    owners = [COMPONENT["encoder"][encoder]]
    names = set(TRIAL_OWNS)
    if trained:
        owners += [COMPONENT[part][parts[part]] for part in OBJECTIVE_PARTS]
        names.update(TRAINING_OWNS)
    names.update(name for owner in owners for name in owner.owns)
    rgb = DATASET[dataset].channels == 3
    return tuple(p.name for p in PARAMS if p.name in names and (rgb or not p.needs_rgb))


def owners_of(name: str) -> str:
    """Who owns the hyperparameter `name`, for a reader: `loss dclw`, `training`, `views two`."""
    if name in TRAINING_OWNS or name in TRIAL_OWNS:
        return "training" if name in TRAINING_OWNS else "every trial"
    owners = [c for c in COMPONENTS if name in c.owns]
    by_part: dict[str, list[str]] = {}
    for owner in owners:
        by_part.setdefault(owner.part, []).append(owner.name)
    return "; ".join(f"{part} {', '.join(names)}" for part, names in by_part.items())


def _number(value: object, *, integer: bool) -> int | float | None:
    """A finite number from a YAML scalar, or None. Booleans are no numbers; 64.0 is an integer, of 64 bits at most."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not abs(value) < (2**63 if integer else sys.float_info.max):  # infinity and nan fail too
        return None
    if not integer:
        return float(value)
    return int(value) if float(value).is_integer() else None
