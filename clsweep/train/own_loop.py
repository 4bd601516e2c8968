"""A training loop of the user's own as a trial: what it is given, what it reports, and how it goes
on after a kill.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from clsweep.catalog import COMPONENT, DATASET, DIAGNOSTIC, METRIC, PARAM, named
from clsweep.catalog.ownership import trainer_scores
from clsweep.catalog.plugin_guard import LARGEST_SCORE, PartError, value_text
from clsweep.catalog.rows import Row
from clsweep.data.datasets import Split, Splits, load_splits
from clsweep.data.locations import DataPlace
from clsweep.data.random_streams import derived_seed, drawing, seed_draws
from clsweep.errors import nearest
from clsweep.train.accuracy import hits_row
from clsweep.train.checkpoints import TrialCheckpointer
from clsweep.train.collectives import rank, world_size
from clsweep.train.diagnostics import diagnostics_of
from clsweep.train.evaluation import Scores, score_encoder
from clsweep.train.finite import DivergedError
from clsweep.train.images import Images, batches, scored_images, steps_per_epoch
from clsweep.train.memory import PeakMemory
from clsweep.train.progress_reporter import ReportProgress

# Columns of an epoch that any trainer may report, beside its metrics.
_OF_EPOCHS = ("train_loss", "base_loss", "regularizer_loss", "lr", "images_per_s")


def is_of_trainer(config: Mapping[str, Any]) -> bool:
    """True of a trial of a loop of the user's own; what is only scored has no framework at all."""
    row = COMPONENT["framework"].get(config.get("framework", ""))
    return row is not None and row.is_trainer


class ReadConfig(Mapping[str, Any]):
    """The hyperparameters of a trial, read-only. `reads` are those that somebody has looked at."""

    def __init__(self, values: Row, on_epochs: Callable[[], object]):
        self._values, self.reads, self._on_epochs = values, set[str](), on_epochs

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:  # no KeyError: what is not declared has no default either
            row = COMPONENT["framework"][self._values["framework"]]
            given = f"the trainer declares no '{name}'.{nearest(name, self._values)}"
            raise PartError(f"config: {given}", row)
        if name == "epochs" and name not in self.reads:  # mostly where a loop begins
            self._on_epochs()
        self.reads.add(name)
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class StoppedError(BaseException):
    """Ends a loop that reports again after it was told to stop; not for anybody to catch."""


class Trial:
    """A trial, as a trainer is given it.

    Attributes:
        config: its hyperparameters by name, read-only.
        seed: of the trial. `random`, numpy's global generator and torch's are seeded by it, anew
            after every report. A trial that goes on seeds them as its loop looks at `epoch` or
            `checkpoint_folder`, so that it then draws what an undisturbed one does.
        device, rank, world_size: of this worker, whose process group is there if it has others.
        checkpoint_folder: of this worker. The files that the first one has in it at a report come
            back to all when the trial goes on after a kill; one without files begins again.
        epoch: the last one that is reported, 0 at the beginning. A trial goes on behind it.
        should_stop: the scheduler ends the trial here. Another report does not return.
    """

    under_way = None  # as part of a checkpoint: nothing is saved within an epoch

    def __init__(
        self,
        config: Mapping[str, Any],
        planned: Mapping[str, Any],
        place: DataPlace,
        device: torch.device,
        tell: ReportProgress | None,
    ):
        self.row = COMPONENT["framework"][config["framework"]]
        self.settings = Row(config)
        self.config = ReadConfig(self.settings, self._seed)
        self.seed: int = config["seed"]
        self.device, self.rank, self.world_size = device, rank(), world_size()
        self.planned, self._place, self._tell = planned, place, tell
        self._epoch, self.should_stop, self.epoch_images = 0, False, 0
        self.used, self._hits = set[str](), list[Row]()  # of ours; of the latest scores
        self._encoder = nn.Module()  # that was scored last
        self._began_at = self._slowest_s = 0.0  # epochs
        self._begins = True  # it has reported nothing yet

    @property
    def epoch(self) -> int:
        self._seed()
        return self._epoch

    @property
    def checkpoint_folder(self) -> Path:
        self._seed()
        return self._folder

    def _seed(self) -> None:
        """Forget what has been drawn so far by a loop that goes on: a model that is then loaded."""
        if self._begins and self._epoch:
            seed_draws(self.seed, "trainer after an epoch", self._epoch)

    def report(self, epoch: int, metrics: Any) -> None:
        """Report an epoch: to be called by all workers alike, of which the first one's count.

        Args:
            epoch: 1, 2, ..., at most `epochs`.
            metrics: scores by name, numbers, or whether each scored image is right: of the same
                images in the same order in all trials. A single score needs no name. Beside them
                train_loss, lr and images_per_s, which tables show.

        Raises:
            DivergedError: a number is not finite.
        """
        if self.should_stop:
            raise StoppedError
        epochs: int = self.settings["epochs"]
        if not self._epoch < epoch <= epochs:
            expected = f"expected an epoch behind trial.epoch, {self._epoch}, and up to {epochs}"
            raise PartError(f"report: {expected}; given {epoch}", self.row)
        values, hits = self.values_of(metrics, epoch)
        time_s = monotonic() - self._began_at
        self._slowest_s = max(self._slowest_s, time_s)
        if self._tell:
            place = {"epoch": epoch, "epochs": epochs, "step": 1, "steps": 1}
            self._tell({**place, "epoch_s": self._slowest_s})
        self._checkpointer.has_state = bool(self.files())
        row = {"epoch": epoch, **values, "time_s": time_s}
        self._checkpointer.end_epoch(row, hits=hits or None)
        self._go_on()
        self._begins = False

    def resume(self, checkpointer: TrialCheckpointer, folder: str) -> None:
        """Take up the log of the attempts before, and put their files into a folder."""
        self._checkpointer, self._folder = checkpointer, Path(folder)
        checkpointer.resume(self)  # type: ignore[arg-type]  # it has what a state needs
        self._slowest_s = max((row["time_s"] for row in checkpointer.rows), default=0.0)
        self._go_on()

    def _go_on(self) -> None:
        self._epoch, self._begins = self._checkpointer.epochs_trained, True
        self.should_stop = not self._checkpointer.goes_on and self._epoch < self.settings["epochs"]
        self._seed()
        self._began_at = monotonic()

    def files(self) -> dict[str, Path]:
        """Those of its folder, by their path from there; no links."""
        paths = {path.relative_to(self._folder).as_posix(): path
                 for path in self._folder.rglob("*")}  # fmt: skip
        return {n: path for n, path in paths.items() if path.is_file() and not path.is_symlink()}

    def state_dict(self) -> Row:
        return {n: torch.from_numpy(np.fromfile(f, np.uint8)) for n, f in self.files().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, content in state.items():
            file = self._folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            content.numpy().tofile(file)

    # What is there to be used: `gives` of the trainer names it.

    def images(self, name: str = "train") -> Split:
        """The study's images, of the split `train` or `val`: arrays (H, W, C), each with its class,
        as torch's loaders take them.
        """
        self._use("data")
        return {"train": self._splits.train, "val": self._splits.val}[name]

    def batches(self, epoch: int) -> Iterator[tuple[list[Tensor], Tensor]]:
        """The batches of an epoch, 1, 2, ...: two views (N, 3, H, W) of this worker's share of the
        images, as our own loop makes them, and their classes. They hang on seed and epoch alone.
        """
        self._use("views")
        train = self._normalised(self._splits.train)
        config = {**self.settings, "chunk_size": self.settings["batch_size"]}
        self.epoch_images = steps_per_epoch(train, config) * config["batch_size"]
        seed = derived_seed(self.seed, f"views of epoch {epoch}")
        generator = torch.Generator().manual_seed(seed)
        for batch in batches(train, config, epoch - 1, generator):
            [views] = [make() for make in batch.chunks]
            first = self.rank * len(views[0])
            yield views, batch.labels_N[first : first + len(views[0])]

    def score(self, encoder: nn.Module) -> dict[str, float]:
        """The scores and diagnostics of an encoder, to be reported: it maps images (N, 3, H, W) to
        features (N, D). All workers call it, at the last epoch before its report.
        """
        self._use("scores")
        is_wrapped = isinstance(encoder, DistributedDataParallel)
        self._encoder = encoder.module if is_wrapped else encoder  # type: ignore[assignment]
        val = self._normalised(self._splits.val)
        scores = self._score(val, is_last=self._epoch + 1 >= self.settings["epochs"])
        self._hits = scores.hits
        at_hand = {"features_ND": scores.features_MD, "num_classes": self.settings["num_classes"]}
        if len(val.labelled()) == len(val):
            at_hand["labels_N"] = val.labels_N
        return scores.values | diagnostics_of(at_hand)

    def score_test(self) -> Row:
        """The scores of the encoder that was scored last, on the test split, with hits."""
        scores = self._score(self._normalised(self._splits.test), is_last=not self.should_stop)
        hits = [{**row, "split": "test"} for row in scores.hits]
        return {f"test_{name}": x for name, x in scores.values.items()} | {"hits": hits}

    def _score(self, images: Images, *, is_last: bool) -> Scores:
        alone = {"finetune": "none", "transfer_dataset": "none"}  # these need an encoder of ours
        train, config = self._normalised(self._splits.train), {**self.settings, **alone}
        with drawing(self.seed, "scores"):
            return score_encoder(self._encoder, train, images, config, last=is_last)

    def _use(self, what: str) -> None:
        if what not in self.row.gives:
            raise PartError(f"expected gives=['{what}', ...] in @trainer, to use it", self.row)
        self.used.add(what)

    @cached_property
    def _splits(self) -> Splits:
        return load_splits(self.settings, self._place)

    def _normalised(self, split: Split) -> Images:
        return scored_images(split, self._splits, self.settings, self.device)

    # What it gives.

    def values_of(self, metrics: Any, epoch: int) -> tuple[Row, list[Row]]:
        """Reported values as columns, and which images are right."""
        if not isinstance(metrics, Mapping):
            metrics = {next(iter(self.row.metrics), "score"): metrics}
        known = [*_OF_EPOCHS, *self.row.metrics, *(m.name for m in trainer_scores(self.row))]
        values, hits = Row(), [row for row in self._hits if row["metric"] in metrics]
        for name, given in metrics.items():
            if name not in known and not (self._hits and name in DIAGNOSTIC):
                hint = f"{nearest(str(name), known)} Expected some of: {', '.join(known)}"
                raise PartError(f"report: '{name}' is not declared.{hint}", self.row)
            array = given.numpy(force=True) if isinstance(given, Tensor) else np.asarray(given)
            if array.dtype == bool and array.ndim == 1 and len(array):
                hits.append(self._hits_row(name, array))
                array = 100 * array.mean()
            if array.ndim or array.dtype.kind not in "iuf":
                expected = "expected a number, or a boolean of each image"
                raise PartError(f"{name}: {expected}; given {value_text(given)}", self.row)
            values[name] = float(array)
            if not abs(values[name]) <= LARGEST_SCORE:
                raise DivergedError.of(f"{name} is {array} in epoch {epoch}", self.settings)
            if name in METRIC and not METRIC[name].limits[0] <= array <= METRIC[name].limits[1]:
                expected = f"expected 0 to 100, as its unit is {METRIC[name].unit}"
                raise PartError(f"{name}: {expected}; given {array:g}", self.row)
        return values, hits

    def _hits_row(self, metric: str, is_right: np.ndarray) -> Row:
        module = self.row.impl.partition(":")[0]  # which has scored the same ones in all trials
        digest = hashlib.sha256(f"{module} {len(is_right)}".encode())
        return hits_row(metric, digest.hexdigest()[:16], is_right)


def run_trainer(
    trial: Trial,
    log: TrialCheckpointer,
    folder: Callable[[], TemporaryDirectory[str]],
    *,
    test: bool,
) -> Row:
    """Train by the user's own function, which has a folder meanwhile; results as of `train_trial`.

    Raises:
        PartError: it reports what it does not declare, or declares what it does not use.
    """
    memory, returned, planned = PeakMemory(trial.device), None, trial.planned
    with folder() as name, contextlib.suppress(StoppedError):
        trial.resume(log, name)
        returned = None if trial.should_stop else named(trial.row.impl)(trial)
        if returned is not None and not log.rows:
            trial.report(planned["epochs"], returned)
    if not log.rows:
        raise PartError("expected trial.report(epoch, metrics), or a returned score", trial.row)
    if returned is not None:
        values, hits = trial.values_of(returned, log.epochs_trained)
        log.rows[-1] |= values
        log.hits = hits or log.hits
    if not trial.should_stop and not log.num_resumes:
        _require_read(trial)
    result = log.result(trial.epoch_images)
    is_test = DATASET[planned["dataset"]].kind == "images" and planned["val_fraction"] is None
    hits = [{**row, "split": "test" if is_test else "validation"} for row in log.hits]
    if test and not is_test and "scores" in trial.used:
        result |= (tested := trial.score_test())
        hits += tested["hits"]
    status = "stopped" if trial.should_stop else "finished"
    result |= {"hits": hits, "status": status, "peak_memory_gib": memory.peak_gib()}
    return result | {"num_images": result["num_images"] or None}


def _require_read(trial: Trial) -> None:
    """Refuse hyperparameters that nobody has looked at: a sweep of one would say nothing."""
    unread = [
        name for name in trial.row.owns
        if trial.planned.get(name) is not None and name not in trial.config.reads
        and not any(trial.settings.get(at) == value for at, value in PARAM[name].inert_when)
    ]  # fmt: skip
    unread += [f"gives: {what}" for what in trial.row.gives if what not in trial.used]
    if unread:
        many = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
        advice = f"expected trial.config['{unread[0]}'] in train(trial), or not to declare it"
        if unread[0].startswith("gives"):
            advice = "expected its use in train(trial), or not to declare it"
        raise PartError(f"'{unread[0]}'{many} was never read: {advice}", trial.row)
