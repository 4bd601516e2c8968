"""Rows of the catalog: a hyperparameter, a component, a data set, a metric, a diagnostic.

Plain data, no torch, no Ray. A row names the function behind it as "module:function" in `impl`;
`implementation` imports it when a trial needs it.
"""

from __future__ import annotations

import importlib
import itertools
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast

from clsweep.catalog.other_names import OTHER_NAMES
from clsweep.catalog.plugin_guard import guarded
from clsweep.display.numbers import setting
from clsweep.errors import UserError, nearest

Value = bool | int | float | str
SECONDS = "seconds"  # what a trial takes, all workers added: weighed like a metric
Row: TypeAlias = dict[str, Any]  # of a table, by column: the plan, the trials, the epochs, ...
# what a trial looks at: the study's images, pairs of random vectors, what a trainer itself reads
Kind = Literal["images", "pairs", "own"]
Part = Literal[
    "framework", "loss", "regularizer", "views", "recipe", "augmentation", "encoder",
    "linear_probe", "weighting", "optimizer", "lr_schedule", "knn_weights", "finetune",
]  # fmt: skip

# The four parts that make an objective, in the order in which they are always listed.
OBJECTIVE_PARTS: tuple[Part, ...] = ("framework", "loss", "regularizer", "views")
# Parts that a hyperparameter of the same name selects.
SELECTED_PARTS: tuple[Part, ...] = (
    "recipe", "augmentation", "encoder", "linear_probe", "weighting", "optimizer", "lr_schedule",
    "knn_weights", "finetune"
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Param:
    """One hyperparameter. `low` and `high` are closed bounds; `low_open` excludes `low` itself.

    `aliases` are what others call it: a study that uses one is told the name. `inert_when` are
    values of other hyperparameters at which this one has no effect. One that `needs_rgb` has none
    on images of other than three channels, and is not owned there. `implied` is what studies did
    that are older than the hyperparameter. A choice may also be any text of
    the regular expression `pattern`, which a reader knows as `beyond`. The value of kind "numbers"
    is a text, such as `0.6, 0.8`, of ascending numbers; a study file may give a list. That of kind
    "names" is likewise one of `choices`, or several of them in any order; "none" stands alone.
    """

    name: str
    kind: Literal["float", "int", "choice", "bool", "numbers", "names"]
    default: Value
    doc: str
    source: str
    symbol: str = ""
    aliases: tuple[str, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    choices: tuple[str, ...] = ()
    pattern: str = ""
    beyond: tuple[str, ...] = ()
    sweepable: bool = True
    needs_rgb: bool = False
    inert_when: tuple[tuple[str, Value], ...] = ()
    implied: Value | None = None

    @property
    def bounds(self) -> str:
        """The valid values as a reader writes them: `(0, inf)`, `[1, 100]`, `none | linear`."""
        if self.kind in ("choice", "names"):
            several = ", or several: [a, b]" if self.kind == "names" else ""
            return " | ".join((*self.choices, *self.beyond)) + several
        if self.kind == "bool":
            return "true | false"
        left = "(" if self.low_open or self.low == -math.inf else "["
        right = ")" if self.high == math.inf else "]"
        return f"{left}{setting(self.low)}, {setting(self.high)}{right}"

    def coerce(self, value: object) -> Value:
        """`value` in the parameter's own type.

        Raises:
            ValueError: wrong type or out of bounds; the message is "expected ..., given ...".
        """
        if self.kind in ("choice", "bool"):
            is_choice = isinstance(value, str) and (
                value in self.choices or (self.pattern and re.fullmatch(self.pattern, value))
            )
            if isinstance(value, bool) if self.kind == "bool" else is_choice:
                return cast(Value, value)
            raise ValueError(f"expected {self.bounds}, given {value!r:.80}{self._meant(value)}")
        if self.kind == "numbers":
            return self._numbers(value)
        if self.kind == "names":
            return self._names(value)
        number = _number(value, integer=self.kind == "int")
        if number is None:
            expected = "an integer" if self.kind == "int" else "a number"
            raise ValueError(f"expected {expected}, given {value!r:.80}")
        if not self.low <= number <= self.high or (self.low_open and number == self.low):
            raise ValueError(f"expected a value in {self.bounds}, given {value!r:.80}")
        return number

    def _numbers(self, value: object) -> str:
        single = replace(self, kind="float")
        try:
            given = value if isinstance(value, list) else parse_numbers(str(value))
            values = [single.coerce(number) for number in given]
        except ValueError:
            values = []
        if not values or any(a >= b for a, b in itertools.pairwise(values)):  # type: ignore[operator]
            raise ValueError(f"expected ascending numbers in {self.bounds}, given {value!r:.80}")
        return ", ".join(setting(number) for number in values)

    def _names(self, value: object) -> str:
        given = value if isinstance(value, list) else names_in(str(value))
        are_known = all(name in self.choices and given.count(name) == 1 for name in given)
        if not given or not are_known or ("none" in given and len(given) > 1):
            unknown = next((name for name in given if name not in self.choices), "")
            raise ValueError(f"expected {self.bounds}, given {value!r:.80}{self._meant(unknown)}")
        return ", ".join(given)

    def _meant(self, value: object) -> str:
        """Sentences on what is meant: the nearest choice, or a name of another library."""
        hint = nearest(f"{value!s:.80}", self.choices, OTHER_NAMES)
        names = [text.replace("NAME", str(value)) for text in self.beyond if "/NAME" in text]
        if fit := [name for name in names if re.fullmatch(self.pattern, name)]:
            hint += f" Of another library: {', '.join(fit)}"
        return f".{hint}" if hint else ""


def names_in(text: str) -> list[str]:
    """The value of a hyperparameter of kind "names": `a, b` as [a, b]."""
    return [part.strip() for part in text.split(",")]


def parse_numbers(text: str) -> tuple[float, ...]:
    """The value of a hyperparameter of kind "numbers": `0.6, 0.8` as (0.6, 0.8).

    Raises:
        ValueError: something between the commas is no number.
    """
    return tuple(float(part) for part in text.split(","))


@dataclass(frozen=True, kw_only=True)
class Component:
    """One framework, loss, regularizer, views, encoder, ... with the hyperparameters it brings.

    Attributes:
        owns: hyperparameters, which `impl` is called with by name.
        owns_with: what it owns beside one loss only, by the loss.
        takes: what else of a trial's configuration `impl` is called with by name: num_classes,
            seed.
        defaults: replace those of the hyperparameters' own rows.
        losses: of a framework, those that make sense on it.
        on: of a loss, frameworks that it makes sense on beside those that list it.
        kind: of a framework, what it trains on.
        needs_labels: of a framework: it trains on the classes of the images.
        pairs_views: of a framework: it compares views, so that `views` matters.
        views_of_negatives: of a framework, views of every other sample that a query meets; 0: it
            contrasts no samples.
        targets: of views, those that others predict, where a framework has targets: all of them,
            the global ones, or the first.
        of_all_views: of a regularizer: it takes all views of a sample at once.
        num_features: of an encoder, the width of its output; (4, "width") is 4 x `width`.
        least_size: of an encoder, pixels a side that an image has at least.
        layout: of an encoder, whose names its state dict has.
        blocks: of an encoder, those of its modules by name that `feature_layer` may score.
        is_trainer: of a framework: it is a training loop of the user's own, see `trainers.trainer`.
        gives: of a trainer, what it takes of a trial beside the configuration.
        metrics: of a trainer, the scores that it reports, the first one where it names none.
        num_draws: of an augmentation, random numbers that it needs for a view of an image.
        mixes: of an augmentation: it takes another image of the batch for each.
        impl: "module:function" or "module:Class"; empty where there is nothing to call.

    What `impl` is called with, beside the names above, and gives:

    - framework of images: encoder and comparison, by name; an `objective.framework.Framework`.
      One that pairs views is a `PairFramework`, of which `compare` is enough to write.
    - framework that is a trainer: a `train.own_loop.Trial`; None, or scores.
    - framework of pairs: dim and criterion, by name; a module that maps x_ND and y_ND to the loss.
    - loss: what the framework compares, see `objective.framework`. Mostly z1_ND and z2_ND of unit
      length, with negatives, index_NK and skip_own by name where the framework has them: see
      `objective.losses.infonce`. Of `supervised` logits_NC and labels_N, of `byol` and `simsiam`
      p_ND and z_ND, of `barlow_twins` and `vicreg` z1_ND and z2_ND, of `wmse` these and order_N
      by name, all raw. Of `swav` and `dino` scores_NK and targets_NK, of `lejepa` z_ND and its
      target. It gives a scalar. One that owns weighting is called with the names that weightings
      own, too. It may be a class, as a regularizer may: made of what it owns, its instance called
      with the rest. The parameters of an `nn.Module` are trained.
    - regularizer: z1_ND and z2_ND, raw projections of two views; a scalar. `lam`, which it owns, is
      applied outside. One `of_all_views` has z_VND, all views, and by name the step's generator.
    - views: the number of views, 2 of `two`; the pairs (i, j) of positives. Others than `two` own
      what `all_pairs` owns, which is applied outside; the rest of what they own comes by name.
    - encoder: nothing else; a module with `num_features` that maps (N, 3, H, W) to features.
    - optimizer: parameter groups in torch's form, then lr by name; a `torch.optim.Optimizer`. Of
      what it owns, `decay_exclude` is applied outside, to the groups, and `grad_clip` to the
      gradients.
    - lr_schedule: a `train.optim.Moment`; the share of the peak rate at that step.
    - linear_probe: as the `impl` of a metric of images; gives linear_top1 and linear_top5. It may
      take `redraw`, which maps an epoch 0, 1, ... to the bank's features of views, cropped and
      flipped anew.
    - knn_weights: as the `impl` of a metric of images; gives knn_top1 and knn_top5.
    - finetune: as the `impl` of a metric of images; gives finetune_1pct_top1 and its like, None
      where a share was not asked for. It takes `network`, a `Network` of fine-tuning.
    - augmentation: x_NCHW, the views of a batch after the crops and colours of the recipe, float in
      [0, 1]; u_NK, of each its `num_draws` numbers, uniform in [0, 1), on the same device; views of
      the same shape. One that `mixes` is called with other_NCHW too: for each image the view of
      another one, as the recipe makes it. What it gives an image depends on that image's rows
      alone, and it draws nothing itself: so batches may be cut and shared in any way.
    - recipe, weighting: no `impl`. A recipe has defaults, of `augmentation` too, and may own
      second_X for an X of `data.augment.Recipe`; a weighting is a name that the loss knows.
    """

    part: Part
    name: str
    impl: str = ""
    owns: tuple[str, ...] = ()
    owns_with: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    takes: tuple[str, ...] = ()
    defaults: Mapping[str, Value] = field(default_factory=dict)
    losses: tuple[str, ...] = ()
    on: tuple[str, ...] = ()
    kind: Kind = "images"
    needs_labels: bool = False
    pairs_views: bool = True
    views_of_negatives: int = 1
    targets: Literal["all", "global", "first"] = "all"
    of_all_views: bool = False
    num_features: int | tuple[int, str] = 0
    least_size: int = 1
    layout: Literal["own", "torchvision"] = "own"
    blocks: tuple[str, ...] = ()
    is_trainer: bool = False
    gives: tuple[Literal["data", "views", "scores"], ...] = ()
    metrics: tuple[str, ...] = ()
    num_draws: int = 0
    mixes: bool = False
    doc: str
    source: str


@dataclass(frozen=True)
class PictureSample:
    """Some of a folder's pictures as their files have them, and the number of all. Of a bucket no
    file is read: `are_jpegs` is what the names say of most, None where they say nothing.
    """

    num_files: int
    pictures: tuple[bytes, ...] = ()
    are_jpegs: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set as a plan needs to know it: images of `image_size` pixels a side, or pairs of
    random vectors.

    A 0 in the rows of `DATASETS` is a number that the user's files have. `num_train` counts the
    images with a class.

    Attributes:
        impl: "module:function". Of images: (Dataset, DataPlace) -> training and test split, each a
            `data.datasets.Split`. Of pairs: the count, and by name generator and what it owns ->
            x_ND and y_ND, D being `train.mutual_information.DIM`.
        owns: of pairs, hyperparameters of the data.
        num_unlabeled: images without a class, trained on beside the others.
        images_digest: of names and sizes of the files, where these are the user's own; of images
            that are made, their version. Behind a + that of the data set that scores are
            transferred to.
        unread: what the user's own files hold beside images and classes, or empty.
        class_names: of the user's own files; untested: those that no held-out image has.
        parts_by: what says which of them are held out, where no folder does.
        store_size: of pictures that are kept whole, pixels that the shorter side has at most.
        store_as: the form in which they are kept: `pixels` or `jpeg`.
        sample: some of the user's own pictures; None where their files are not there.
        options: those of the numbers that a study may choose or, of the user's own files, state.
        keeps_whole: whether images are pictures of any size, of which views are crops.
        files: "module:function": DataPlace -> a `data.sources.DataLayout`, of the user's own files.
        folder: of its files below `dataset.root`; empty if it needs none there.
        layout: the files in that folder; an IDX file may be packed, as NAME.gz.
        reader: torchvision's class that reads and fetches it, if there is one.
        arrays: "module:function": (Dataset, DataPlace) -> what its arrays in the cache are made of,
            if it is too large to be read by every process.
    """

    name: str
    impl: str
    kind: Kind = "images"
    owns: tuple[str, ...] = ()
    num_train: int
    num_test: int
    image_size: int
    channels: int
    num_classes: int
    num_unlabeled: int = 0
    images_digest: str | None = None
    unread: str = ""
    class_names: tuple[str, ...] = ()
    untested: tuple[str, ...] = ()
    parts_by: str = ""
    store_size: int = 0
    store_as: str = ""
    sample: PictureSample | None = field(default=None, compare=False, repr=False)
    keeps_whole: bool = False
    files: str = ""
    options: tuple[str, ...] = ()
    folder: str = ""
    layout: tuple[str, ...] = ()
    reader: str = ""
    arrays: str = ""
    doc: str

    @property
    def is_own(self) -> bool:
        """True if only a function of the user's own knows its images."""
        is_ours = self.impl.startswith("clsweep.") or bool(self.files)
        return self.kind == "images" and not is_ours

    @property
    def makes_images(self) -> bool:
        """True if there are as many images as are asked for."""
        return not self.files and bool(self.num_train) and "num_train" in self.options

    def split_sizes(self, val_fraction: float | None) -> tuple[int, int | None]:
        """Images to train on, unlabeled ones included, and images that are scored: of the
        validation split, labelled ones alone if there are any. Without a fraction all are trained
        on and the test split is scored, of which None says that only its files know the number.
        """
        if val_fraction is None:
            return self.num_train + self.num_unlabeled, self.num_test or None
        num_val = round((self.num_train or self.num_unlabeled) * val_fraction)
        return self.num_train - num_val + self.num_unlabeled, num_val


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A score of a finished trial, taken at the last epoch on the validation split (images) or on
    fresh pairs.

    Attributes:
        impl: "module:function", which gives {name of the metric: score}: a number, or whether each
            image that is scored is right, bool (M,), of which the percentage is the score. Only
            such scores have intervals for new images. Of images it is called
            with bank_ND, bank_labels_N, query_MD and query_labels_M, and by name with num_classes
            and what it owns. The bank is the training split, the query the split that is scored. Of
            pairs it is called with a function that draws a loss of fresh pairs, with the
            configuration, and by name with what it owns. Rows of one function share one call, and
            own the same. With `takes` it is called with that alone and gives a scalar.
        takes: of a score that needs no labels: names of `LABEL_FREE`, in the order in which `impl`
            is called with them.
        part: instead of `impl`: the trial's component of this part takes the score.
        owns: hyperparameters of the score: where they differ, scores are not compared.
        every_epoch: taken wherever an encoder is scored, not at the last epoch alone.
        of: what is scored: features of the data set's images, the trial's own classifier (called
            with logits_MC and query_labels_M), or features of another data set (`transfer_X` is X
            there). That of a trainer has no `impl`: the trainer reports it.
        guesses: classes that may be named for an image; 0: chance has no score.
    """

    name: str
    mode: Literal["max", "min"]
    impl: str = ""
    part: Part | None = None
    takes: tuple[str, ...] = ()
    owns: tuple[str, ...] = ()
    every_epoch: bool = False
    of: Literal["features", "classifier", "transfer", "trainer"] = "features"
    guesses: int = 0
    kind: Kind = "images"
    unit: str = "%"
    doc: str

    @property
    def needs_labels(self) -> bool:
        """True if it compares with the classes of the images."""
        return self.kind == "images" and not self.takes

    @property
    def limits(self) -> tuple[float, float]:
        """The values that it can take: no interval of a level leaves them."""
        return (0.0, 100.0) if self.unit == "%" else (-math.inf, math.inf)


# Features of the split that is scored; of its first images those of `lidar_views` views (N, V, D);
# and projections of two views. All in evaluation mode.
LABEL_FREE = ("features_ND", "views_NVD", "z1_ND", "z2_ND")
# Projections of two views, in evaluation mode; features and classes of the validation split; the
# mean loss of the epoch; and the trial's configuration.
DIAGNOSED_ENCODER = (
    "z1_ND", "z2_ND", "features_ND", "labels_N", "num_classes", "base_loss", "config"
)  # fmt: skip
# The framework, its prepared embeddings of the global batch, the parameters of the last two blocks
# with their gradients, and the trial's configuration.
DIAGNOSED_STEP = ("objective", "prepared", "watched", "config")


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """A property of a representation or its training, in a column beside the score.

    Attributes:
        name: of its column in trials and epochs.
        impl: "module:function", called with what it `takes` in this order; gives a scalar, or None
            where a trial has no such thing. With a `summary` it gives a tensor of any shape.
        takes: names of `DIAGNOSED_ENCODER`, where an encoder is scored; with a `summary` names of
            `DIAGNOSED_STEP`, at every step of such an epoch. On pairs of vectors there are
            base_loss and config alone.
        summary: of all values of all steps of the epoch: their mean, or their coefficient of
            variation. Rows of one function share one call, and take the same.
        histogram: the table `histograms` shows the values of the steps, which lie in [0, 1].
    """

    name: str
    impl: str
    takes: tuple[str, ...]
    summary: Literal["", "mean", "cv"] = ""
    histogram: bool = False
    unit: str = ""
    doc: str
    source: str


CatalogRow = Param | Component | Dataset | Metric | Diagnostic


def implementation(row: Component | Dataset | Metric | Diagnostic) -> Any:
    """The function or class behind a row, imported when it is asked for; one of the user's own is
    watched.

    Raises:
        LookupError: the row names none, or one that is not there.
    """
    function = named(row.impl)
    return function if row.impl.startswith("clsweep.") else guarded(row, function)


SEALED = "of a results folder"  # no module: stands for that of a recorded plug-in


def named(place: str) -> Any:
    """The function or class that "module:function" names.

    Raises:
        LookupError: there is no such module, or no such name in it.
        UserError: it is of a recorded plug-in, of which nothing is executed.
    """
    module, _, name = place.partition(":")
    if module == SEALED:
        raise UserError(f"{name}: a plug-in that a results folder names is not executed")
    try:
        return getattr(importlib.import_module(module), name)
    except UserError:  # a plug-in's, with its place
        raise
    except (ImportError, AttributeError, ValueError) as error:
        raise LookupError(f"expected module:function, given {place!r}: {error}") from error


def _number(value: object, *, integer: bool) -> int | float | None:
    """A finite number from a YAML scalar, no boolean, or None; 64.0 is an integer, of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not abs(value) < (2**63 if integer else sys.float_info.max):  # infinity and nan fail too
        return None
    if not integer:
        return float(value)
    return int(value) if float(value).is_integer() else None
