"""The shape of a study file, key by key; what the names in it mean is settled in `resolve.py`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from clsweep.catalog import DATASET, METRIC, OBJECTIVE_PARTS
from clsweep.catalog.other_names import OTHER_NAMES
from clsweep.catalog.rows import SECONDS
from clsweep.catalog.trainers import trainer_name
from clsweep.data.locations import DataPlace, secret_in
from clsweep.display.numbers import setting
from clsweep.errors import MAX_LINES, StudyError, mistake_lines, nearest
from clsweep.study.document import Document
from clsweep.study.factors import cell_document, check_factors
from clsweep.study.key_mistakes import explained


def _distinct(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if not seeds:
        raise ValueError("expected at least one seed, given none")
    twice, times = Counter(seeds).most_common(1)[0]
    if times > 1:
        raise ValueError(f"expected distinct seeds, given {twice} twice")
    return seeds


def _ascending(limits: tuple[float, float]) -> tuple[float, float]:
    low, high = map(float, limits)
    if not low < high:
        raise ValueError(f"expected [low, high], given [{setting(low)}, {setting(high)}]")
    return low, high


def _of_one_gpu(gpus: float) -> float:
    if gpus > 1:
        meant = f"workers: {math.ceil(gpus)}, gpus_per_worker: 1"
        raise ValueError(
            f"expected at most 1, as a worker trains on one GPU, given {setting(gpus)}. A trial on "
            f"several: {meant}"
        )
    return gpus


MAX_NAME = 128  # characters: the study's name is a folder's too
MAX_QUESTION = 400  # characters: it stands on the first screen of a report
MAX_OBJECTIVES = 256
MAX_CONTRASTS = 100
FIRST_SEEDS = 2  # that a race gives to every configuration: one has no noise to judge by
# What each scheduler goes by.
SCHEDULER_KEYS = {
    "fifo": (),
    "asha": ("grace_epochs", "reduction_factor"),
    "racing": ("confidence",),
}
LIVE_METHODS = ("tpe", "gp")  # these choose the next configuration from the finished ones
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
Seed = Annotated[StrictInt, Field(ge=0, lt=2**32)]
Seeds = Annotated[tuple[Seed, ...], AfterValidator(_distinct)]
_Number = Annotated[StrictFloat, Field(allow_inf_nan=False)]  # takes an integer too


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DatasetSection(_Section):
    name: Annotated[StrictStr, AfterValidator(lambda name: _choice("dataset", name, DATASET))]
    val_fraction: Annotated[_Number, Field(gt=0, le=0.5)] = 0.1
    # folder with torchvision's layout, or of the user's own files
    root: StrictStr = DataPlace.root
    cache: StrictStr = DataPlace.cache  # folder for what is decoded once
    download: StrictBool = False
    image_size: Annotated[StrictInt, Field(ge=8, le=512)] | None = None
    num_train: Annotated[StrictInt, Field(ge=100, le=10_000_000)] | None = None
    # of the user's own files: images of their test split
    num_test: Annotated[StrictInt, Field(ge=1, le=10_000_000)] | None = None
    fraction: Annotated[_Number, Field(gt=0, lt=1)] | None = None  # of the training images
    num_classes: Annotated[StrictInt, Field(ge=2, le=1000)] | None = None
    channels: Annotated[StrictInt, Field(ge=1, le=64)] | None = None
    # of pictures that are kept whole: pixels that the shorter side has at most
    store_size: Annotated[StrictInt, Field(ge=8, le=4096)] | None = None
    store_as: Literal["pixels", "jpeg"] | None = None  # the form in which they are kept
    # lowest and highest value of arrays whose type says none
    range: Annotated[tuple[_Number, _Number], AfterValidator(_ascending)] | None = None
    transfer_root: StrictStr | None = None  # of transfer_dataset; by default root

    @property
    def place(self) -> DataPlace:
        return DataPlace(
            root=self.root,
            cache=self.cache,
            download=self.download,
            value_range=", ".join(map(repr, self.range)) if self.range else None,
            transfer_root=self.transfer_root or "",
        ).absolute()

    @model_validator(mode="after")
    def _one_number(self) -> DatasetSection:
        if self.num_train is not None and self.fraction is not None:
            raise ValueError("expected num_train or fraction, given both")
        return self

    @model_validator(mode="after")
    def _from_a_bucket(self) -> DatasetSection:
        for uri in [place for place in (self.root, self.transfer_root or "") if "://" in place]:
            if reason := secret_in(uri):
                raise ValueError(
                    "expected no key in the place of the images, which results and messages name, "
                    f"given {reason}. Credentials belong into the environment of each machine, or "
                    "to its role"
                )
            if self.download:
                raise ValueError(
                    "expected download: false with images in a bucket, given true: nothing is "
                    "written there"
                )
        return self


class EvaluationSection(_Section):
    """Which images a trial trains on, and on which it is scored. All training images go with the
    test split: a published protocol repeated, with no image held back to choose by.
    """

    train_on: Literal["train", "all"] = "train"  # all: the validation split too
    score_on: Literal["validation", "test"] = "validation"

    @model_validator(mode="after")
    def _together(self) -> EvaluationSection:
        if (self.train_on == "all") != (self.score_on == "test"):
            raise ValueError(
                "expected train_on: train with score_on: validation, or train_on: all with "
                f"score_on: test, given train_on: {self.train_on} with score_on: {self.score_on}"
            )
        return self


class MetricSection(_Section):
    name: Annotated[StrictStr, AfterValidator(lambda name: _choice("metric", name, METRIC))] = (
        "knn_top1"
    )
    mode: Literal["max", "min"] = "max"

    @model_validator(mode="after")
    def _direction(self) -> MetricSection:
        if self.mode != METRIC[self.name].mode:
            raise ValueError(
                f"mode: expected {METRIC[self.name].mode} for {self.name}, given {self.mode}"
            )
        return self


class ObjectiveSection(_Section):
    trainer: StrictStr | None = None  # FILE.py:FUNCTION, a training loop in place of the parts
    framework: StrictStr
    loss: StrictStr
    regularizer: StrictStr = "none"
    views: StrictStr = "two"
    base: dict[StrictStr, object] = {}
    space: dict[StrictStr, object] = {}

    @model_validator(mode="before")
    @classmethod
    def _of_trainer(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "trainer" not in given:
            return given
        if beside := [part for part in OBJECTIVE_PARTS if part in given]:
            raise ValueError(f"expected trainer, or framework and loss; given it and {beside[0]}")
        name = trainer_name(str(given["trainer"]))
        return {**given, "framework": name, "loss": name}


def _gain(given: object) -> float | str:
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if given == "noise" or (is_number and 0 < float(str(given)) < math.inf):
        return given if isinstance(given, str) else float(str(given))
    raise ValueError(f"expected noise, or a number > 0 of the metric's points, given {given!r:.40}")


_Gain = Annotated[
    float | str,
    PlainValidator(_gain),
    WithJsonSchema({"anyOf": [{"const": "noise"}, {"type": "number", "exclusiveMinimum": 0}]}),
]


class BudgetSection(_Section):
    """By time in one of the two units: no configuration begins that would not end within. By what
    there is to gain: no configuration of an objective begins once it is less.
    """

    hours: Annotated[_Number, Field(gt=0)] | None = None  # by the clock, while trials run
    gpu_hours: Annotated[_Number, Field(gt=0)] | None = None  # of all GPUs of all trials
    # points of the metric; or the standard error of a configuration's mean over its seeds
    min_gain: _Gain | None = None

    @model_validator(mode="after")
    def _one_unit(self) -> BudgetSection:
        if self.hours is not None and self.gpu_hours is not None:
            raise ValueError("expected hours or gpu_hours, given both")
        if self.hours is self.gpu_hours is self.min_gain is None:
            raise ValueError("expected hours, gpu_hours or min_gain, given none of them")
        return self

    def __str__(self) -> str:
        if not (self.hours or self.gpu_hours):
            return ""
        hours = setting(self.hours or self.gpu_hours)
        return f"{hours} {'GPU ' if self.gpu_hours else ''}hour{'s' * (hours != '1')}"

    def ends(self) -> list[str]:
        """Where no further configuration begins, to be read behind these words."""
        ends = [f"that would end after {self}"] if str(self) else []
        if self.min_gain is not None:
            noise = self.min_gain == "noise"
            least = "the noise of a mean over its seeds" if noise else f"{self.min_gain:g}"
            ends.append(f"once the best of all is expected to be better by less than {least}")
        return ends


class SearchSection(_Section):
    method: Literal["grid", "qmc", "random", "tpe", "gp"]
    # configurations; each runs on every seed
    trials_per_objective: Annotated[StrictInt, Field(ge=1)] | None = None
    seed: Seed = 0
    # of tpe and gp: the study's metric, and another one or the seconds of a trial. They look for
    # configurations on the front of both
    objectives: Annotated[tuple[StrictStr, ...], Field(min_length=2, max_length=2)] = ()
    first: tuple[dict[StrictStr, object], ...] = ()  # points that are tried before all others
    from_: tuple[StrictStr, ...] = Field(default=(), alias="from")  # results folders to learn from
    budget: BudgetSection | None = None

    @property
    def second_objective(self) -> str:
        """Another metric, or `seconds`, that is weighed beside the study's; empty: nothing."""
        return self.objectives[1] if self.objectives else ""


class SchedulerSection(_Section):
    name: Literal["fifo", "asha", "racing"] = "fifo"
    # Of asha: a configuration meets the others first at this epoch, and then at every so many times
    # as many.
    grace_epochs: Annotated[StrictInt, Field(ge=1)] = 1
    reduction_factor: Annotated[StrictInt, Field(ge=2)] = 3  # one in so many goes on
    # Of racing: of each comparison with the leader by which a configuration gets no further seed.
    confidence: Annotated[_Number, Field(gt=0.5, lt=1)] = 0.95


class ConfirmSection(_Section):
    top: Annotated[StrictInt, Field(ge=1)] = 3
    seeds: Seeds


_NAMES = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2}
ONE_OR_TWO: dict[str, Any] = {"anyOf": [{"type": "string"}, _NAMES]}


class ContrastSection(_Section):
    """A named difference between objectives, or between settings, asked before anything runs.

        small_batch:
          of: [dcl, simclr]              # dcl - simclr
          at: {batch_size: 16, tau: 0.07}
          minus: {batch_size: 128, tau: 0.07}   # less the same difference there
          margin: 1.0                    # what is smaller counts as none
          published: 2.6                 # what a paper found

    A side is the mean over all configurations of an objective that have these values. `at` alone
    compares two objectives there, `minus` beside it one objective with itself, or two differences.
    """

    # the first less the second, or one objective less itself
    of: Annotated[
        tuple[StrictStr, ...],
        BeforeValidator(lambda of: (of,) if isinstance(of, str) else of),
        Field(min_length=1, max_length=2),
        WithJsonSchema(ONE_OR_TWO),
    ]
    at: dict[StrictStr, object] = {}  # settings; of others both sides are means
    minus: dict[StrictStr, object] | None = None  # settings of what is subtracted
    metric: StrictStr | None = None  # by default the study's
    margin: Annotated[_Number, Field(gt=0)] | None = None  # a smaller effect counts as none
    published: _Number | None = None  # the effect that a paper found
    # trials that had ended when it was asked: clsweep writes it
    added_after: Annotated[StrictInt, Field(ge=0)] | None = None

    @property
    def sides(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.of))


class ResourcesSection(_Section):
    workers: Annotated[StrictInt, Field(ge=1)] = 1
    gpus_per_worker: Annotated[
        _Number, Field(ge=0, json_schema_extra={"maximum": 1}), AfterValidator(_of_one_gpu)
    ] = 0
    cpus_per_worker: Annotated[StrictInt, Field(ge=1)] = 1
    # where the images of a trial on a GPU lie; auto: there, if half of its free memory holds a
    # split. Changes times alone, no number
    images_on: Literal["auto", "gpu", "host"] = "auto"
    # times a trial may lose its process or machine and go on
    max_restarts: Annotated[StrictInt, Field(ge=0)] = 3
    # seconds, or 20 usual steps: a trial that says nothing for longer is ended
    stall_s: Annotated[_Number, Field(ge=1)] = 600.0


class EncodersSection(_Section):
    # which trained encoders stay; best: those of each objective's best configuration
    keep: Literal["best", "all", "none"] = "best"


class CheckpointsSection(_Section):
    # of a trial under way; best: also of each objective's best configuration
    keep: Literal["last", "best", "none"] = "last"
    # seconds; at most one in so many, within an epoch too; 0: after every epoch
    every_s: Annotated[_Number, Field(ge=0)] = 60.0


# The loggers, and the options of each.
LOGGERS = {
    "tensorboard": ("path",),
    "wandb": ("path", "project", "entity"),
    "mlflow": ("uri", "experiment"),
}


class LoggerSection(_Section):
    """`tensorboard`, or with options `{mlflow: {uri: http://...}}`."""

    name: StrictStr
    options: dict[StrictStr, StrictStr] = {}

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"name": given}
        if isinstance(given, dict) and len(given) == 1 and "name" not in given:
            [(name, options)] = given.items()
            return {"name": name, "options": {} if options is None else options}
        return given

    @model_validator(mode="after")
    def _known(self) -> LoggerSection:
        known = LOGGERS[_choice("logger", self.name, LOGGERS)]
        for option in self.options:
            _choice(f"option of {self.name}", option, known)
        return self


class StudySections(_Section):
    name: Annotated[StrictStr, Field(pattern=NAME_PATTERN, max_length=MAX_NAME)]
    dataset: DatasetSection
    factors: None = None  # see `factors.py`: each cell is a study without
    evaluation: EvaluationSection = EvaluationSection()
    metric: MetricSection = MetricSection()
    question: Annotated[StrictStr, Field(max_length=MAX_QUESTION)] = ""  # in the author's own words
    seeds: Seeds
    base: dict[StrictStr, object] = {}
    space: dict[StrictStr, object] = {}
    objectives: Annotated[
        dict[StrictStr, ObjectiveSection], Field(min_length=1, max_length=MAX_OBJECTIVES)
    ]
    search: SearchSection
    scheduler: SchedulerSection = SchedulerSection()
    confirm: ConfirmSection | None = None
    contrasts: Annotated[
        dict[Annotated[StrictStr, Field(pattern=NAME_PATTERN)], ContrastSection],
        Field(max_length=MAX_CONTRASTS),
    ] = {}
    resources: ResourcesSection = ResourcesSection()
    encoders: EncodersSection = EncodersSection()
    checkpoints: CheckpointsSection = CheckpointsSection()
    loggers: tuple[LoggerSection, ...] = ()
    plugins: dict[StrictStr, StrictStr] = {}  # digests, by name

    @property
    def goals(self) -> dict[str, str]:
        """Metric -> mode of what a search looks for, or `seconds`; the study's metric first."""
        second = self.search.second_objective
        modes = {m.name: m.mode for m in METRIC.values()} | {SECONDS: "min"}
        return {name: modes[name] for name in (self.metric.name, second) if name}

    @property
    def scores(self) -> list[str]:
        """Columns of a trial that a search goes by, beside its seconds; the metric first."""
        return [name for name in self.goals if name != SECONDS]

    @property
    def val_fraction(self) -> float | None:
        """Share of the training images held out to be scored; None: the test split is scored."""
        is_test = self.evaluation.score_on == "test"
        return None if is_test else float(self.dataset.val_fraction)


def parse_sections(document: Document) -> StudySections:
    """The document's sections in their types; of a study with factors those of its first cell.

    Raises:
        StudyError: one line per mistake: place, dotted key, expected, given, nearest name.
    """
    if cells := check_factors(document):
        sections = [parse_sections(cell_document(document, cell)) for cell in cells]
        return sections[0]
    try:
        return StudySections.model_validate(document.tree)
    except ValidationError as error:
        errors = islice(error.errors(), MAX_LINES)
        mistakes = (explained(each, StudySections) for each in errors)
        lines = [document.error(keys, message) for keys, message in mistakes]
        raise StudyError(mistake_lines(lines)) from None


def _choice(part: str, name: str, known: Collection[str]) -> str:
    if name not in known:
        hint = f"{nearest(name, known, OTHER_NAMES)} Expected one of: {', '.join(known)}"
        raise ValueError(f"unknown {part} '{name:.80}'.{hint}")
    return name
