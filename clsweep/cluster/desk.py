"""What trials and their run tell each other: small files in a folder of the driver's machine, and
for other machines the driver's desk, an actor beside that folder.

The results folder may be a folder of that machine alone, or an object store that lets in that
machine alone: trials elsewhere reach it through the desk. A trial beside the driver uses the folder
directly.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from clsweep.catalog.rows import Row
from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder, checkpoint_file, encoder_file
from clsweep.results.journal import latest_entries, open_storage
from clsweep.results.weights import about_encoder, pack_weights
from clsweep.study.design import Study, sampler_of
from clsweep.study.schema import LIVE_METHODS
from clsweep.train.save_request import SaveRequest

FOLDER, ASKED, EPOCHS = "said", "asked", "epochs"
LEAVE_S = 10.0  # of the time that a signal leaves, what a run gives its trials
NAMESPACE = "clsweep"


# What trials say and are asked, in the folder `scratch`. Writing raises OSError.


def say(scratch: str, trial_id: str, state: Row, saved: str = "") -> str:
    """Replace what a trial said before; what the run asks.

    Args:
        saved: the latest demand for which the trial has saved a checkpoint.
    """
    _write(f"{scratch}/{FOLDER}/{trial_id}", json.dumps({"state": state, "saved": saved}))
    return asked(scratch)


def heard(scratch: str, running: Collection[str]) -> dict[str, Row]:
    """What each of these trials last said, if it did; what others said is forgotten."""
    found = _read(scratch)
    for name in found.keys() - set(running):
        forget(scratch, name)
    return {name: found[name]["state"] for name in running if name in found}


def forget(scratch: str, trial_id: str) -> None:
    """Drop what a trial said before it was lost, or ended."""
    with contextlib.suppress(OSError):
        os.unlink(f"{scratch}/{FOLDER}/{trial_id}")


def report(scratch: str, trial_id: str, epoch: Row, is_first: bool) -> None:
    """Add the row of an epoch to those of the trial, or begin them anew."""
    os.makedirs(f"{scratch}/{EPOCHS}", exist_ok=True)
    with open(f"{scratch}/{EPOCHS}/{trial_id}", "w" if is_first else "a", encoding="utf-8") as file:
        file.write(json.dumps(epoch, default=float) + "\n")


def reported(scratch: str, running: Collection[str]) -> dict[str, list[Row]]:
    """The rows of these trials' epochs; those of others are forgotten."""
    rows: dict[str, list[Row]] = {}
    for path in _files(f"{scratch}/{EPOCHS}"):
        with contextlib.suppress(OSError, ValueError):
            if path.name not in running:
                path.unlink()
                continue
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            # the last one may be half written
            rows[path.name] = [json.loads(line) for line in lines if line.endswith("\n")]
    return rows


def ask_to_save(scratch: str, demand: str) -> None:
    """Ask all trials that speak for a checkpoint, once for every demand."""
    _write(f"{scratch}/{ASKED}", demand)


def asked(scratch: str) -> str:
    """The run's latest demand, empty if there is none."""
    with contextlib.suppress(OSError):
        return Path(scratch, ASKED).read_text(encoding="utf-8")
    return ""


def let_save(scratch: str, running: Collection[str], timeout_s: float = LEAVE_S) -> None:
    """Ask for checkpoints, and wait until those of these trials have one that have spoken."""
    demand, end = f"leaving {time.time_ns()}", time.monotonic() + timeout_s
    with contextlib.suppress(OSError):
        ask_to_save(scratch, demand)
        while time.monotonic() < end:
            said = _read(scratch)
            if all(said[name]["saved"] == demand for name in said.keys() & set(running)):
                break
            time.sleep(0.05)


def _read(scratch: str) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for path in _files(f"{scratch}/{FOLDER}"):
        with contextlib.suppress(OSError, ValueError):
            found[path.name] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _files(folder: str) -> list[Path]:
    with contextlib.suppress(FileNotFoundError):
        return [path for path in Path(folder).iterdir() if path.suffix != ".new"]
    return []


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(f"{path}.new").write_text(text, encoding="utf-8")
    os.replace(f"{path}.new", path)


class FolderUnreachableError(RequestError):
    """A trial's file could not be written or read: the study stops, as for a row that cannot be."""


class Desk:
    """What the actor does."""

    def __init__(self, path: str, run: str | None, journal: str, rules: Rules | None, scratch: str):
        self._folder, self._scratch = ResultsFolder(path, run), scratch
        self._judge = Judge(journal, rules) if rules else None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A function of this module, in the folder of the driver's machine."""
        return function(self._scratch, *arguments)

    def file(self, method: str, *arguments: Any) -> Any:
        """A method of the results folder."""
        return getattr(self._folder, method)(*arguments)

    def may_go_on(self, objective: str, config: int, seed: int, epoch: int, score: float) -> bool:
        return self._judge is None or self._judge.may_go_on(objective, config, seed, epoch, score)


@contextlib.contextmanager
def desk_here(folder: ResultsFolder, rules: Rules | None, *, needed: bool) -> Iterator[str | None]:
    """The name of this run's desk for the time of the run; None if nobody will come to it."""
    if not needed:
        yield None
        return
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(node_id(), soft=False)
    kept = {"max_restarts": -1, "max_task_retries": 3, "scheduling_strategy": here}
    name = f"clsweep-run-{uuid.uuid4().hex}"
    desk = ray.remote(num_cpus=0, **kept)(Desk).options(name=name, namespace=NAMESPACE)
    place = folder.local_path or folder.path
    actor = desk.remote(place, folder.held.run, folder.journal_path, rules, folder.scratch)
    try:
        yield name
    finally:
        ray.kill(actor)  # nobody writes to the folder once its run has ended


def node_id() -> str:
    """Ray's id of this machine."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def ask(desk: str, question: str, *arguments: Any) -> Any:
    """The answer of a run's desk to one of its methods.

    Raises:
        FolderUnreachableError: the desk, or what it does with the folder, failed.
    """
    import ray

    try:
        actor = ray.get_actor(desk, namespace=NAMESPACE)
        return ray.get(getattr(actor, question).remote(*arguments))
    except (ray.exceptions.RayError, ValueError) as error:  # ValueError: no such actor
        raise FolderUnreachableError(_reason(error)) from None


@dataclass(frozen=True)
class TrialFiles:
    """A trial's files in the results folder; the checkpoints' side is what `train_trial` takes.

    Args:
        path: the results folder.
        run: which holds it.
        desk: of the run, where the folder is on another machine; else None.
    """

    path: str
    run: str | None
    desk: str | None
    trial_id: str

    def load(self) -> bytes | None:
        payload: bytes | None = self._do("checkpoint", self.trial_id)
        return payload

    def save(self, payload: bytes) -> None:
        self._do("write", checkpoint_file(self.trial_id), payload)

    def keep_encoder(self, row: Row, weights: Mapping[str, Any], normalisation: Row) -> None:
        """Keep an encoder, a state dict on the CPU; on the disk when this returns."""
        arrays = {name: tensor.numpy() for name, tensor in weights.items()}
        payload = pack_weights(arrays, about_encoder(row, normalisation))
        self._do("write", encoder_file(self.trial_id), payload)

    def _do(self, method: str, *arguments: Any) -> Any:
        if self.desk is not None:
            return ask(self.desk, "file", method, *arguments)
        try:
            return getattr(ResultsFolder(self.path, self.run), method)(*arguments)
        except RequestError as error:
            raise FolderUnreachableError(_reason(error)) from None


def _reason(error: BaseException) -> str:
    return str(getattr(error, "cause", None) or error).strip().splitlines()[0]


# A trial's line to its run: how far it is, and whether it is to save now. SIGTERM to its process
# asks for that, too.

RELAY_S = 6.0  # for the first worker to hear and to save


class Line:
    """Of one worker.

    Args:
        tell: lets the run know how far the trial is, and the latest demand that it has met; returns
            what the run asks, if it could be told.
        relay: asks all trials for a checkpoint: of a worker that is not the first of its group,
            which alone tells and saves.
    """

    def __init__(
        self, tell: Callable[[Row, str], str | None], relay: Callable[[str], object] | None = None
    ):
        self._tell = tell
        self._state: Row = {}
        self._asked = self._saved = ""
        self.notice = SaveRequest(self._answer) if relay is None else _Relayed(relay)

    def tell(self, state: Row) -> None:
        """Say how far the trial is; a demand that was not heard before gives notice."""
        self._state = state
        asked = self._tell(state, self._saved)
        if asked and asked != self._asked:
            self._asked = asked
            self.notice.give()

    def _answer(self) -> None:
        self._saved = self._asked
        if self._state:
            self._tell(self._state, self._saved)


class _Relayed(SaveRequest):
    """Of a worker that saves nothing: it asks the first one, by way of the run."""

    def __init__(self, relay: Callable[[str], object]):
        super().__init__()
        self._relay = relay

    def give(self) -> None:
        self._relay(f"worker {os.getpid()} {time.time_ns()}")

    def wait(self, timeout_s: float) -> bool:
        time.sleep(min(timeout_s, RELAY_S))
        return True


TERM_S = 25.0  # Slurm, Kubernetes and spot markets leave 30 s and more

_notice: SaveRequest | None = None  # of the trial that this process works on
_previous: Any = signal.SIG_DFL  # Ray's own handler


@contextlib.contextmanager
def saved_on_term(notice: SaveRequest) -> Iterator[None]:
    """Meanwhile SIGTERM gives notice, and takes effect once that is answered."""
    global _notice
    _notice = notice
    if threading.current_thread() is threading.main_thread():
        _install()
    else:  # the main thread alone may set handlers, and Ray works in another
        ctypes.pythonapi.Py_AddPendingCall(_PENDING, None)
    try:
        yield
    finally:
        _notice = None


def _install() -> int:
    global _previous
    if signal.getsignal(signal.SIGTERM) is not _on_term:
        _previous = signal.signal(signal.SIGTERM, _on_term)
    return 0


_PENDING = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: _install())


def _on_term(number: int, frame: Any) -> None:
    global _notice
    notice, _notice = _notice, None  # a second signal takes effect at once
    if notice is not None:
        threading.Thread(target=_leave, args=(notice,), daemon=True).start()
    elif callable(_previous):
        _previous(number, frame)
    else:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


def _leave(notice: SaveRequest) -> None:
    notice.give()
    notice.wait(TERM_S)
    os.kill(os.getpid(), signal.SIGTERM)


# Which configurations are worth more epochs: asynchronous successive halving (ASHA) of what tpe
# and gp try.
#
# The first seed stands for its configuration. Its scores and what was decided are in the
# configuration's entry of the Optuna journal, which the driver has open too; a judge that is
# started again goes on from there.


VERDICT = "asha"  # the user attribute


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a study's scheduler goes by."""

    first_seed: int  # its scores stand for the configuration
    grace_epochs: int
    reduction_factor: int
    # of the objectives that are judged; an enumerated space just runs
    last_epochs: Mapping[str, int]

    @classmethod
    def of(cls, study: Study) -> Rules | None:
        """None if the study's scheduler stops nothing."""
        scheduler = study.sections.scheduler
        live: dict[str, Any] = {
            objective.name: objective.fixed["epochs"]
            for objective in study.objectives
            if scheduler.name == "asha" and sampler_of(study, objective) in LIVE_METHODS
        }
        if not live:
            return None
        return cls(
            first_seed=study.sections.seeds[0],
            grace_epochs=scheduler.grace_epochs,
            reduction_factor=scheduler.reduction_factor,
            last_epochs=live,
        )


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What has been decided about a configuration so far."""

    epoch: int = 0  # up to which it is judged
    rungs: tuple[float, ...] = ()  # its scores on the rungs that it has reached
    stopped_at: int | None = None  # epoch

    @classmethod
    def of(cls, entry: FrozenTrial) -> Verdict:
        noted = entry.user_attrs.get(VERDICT, {})
        return cls(**{**noted, "rungs": tuple(noted.get("rungs", ()))})


class Judge:
    """Decides at every scored epoch whether a trial goes on.

    Args:
        journal: path of the Optuna journal.
        rules: the study's.
    """

    def __init__(self, journal: str, rules: Rules):
        self._storage, self._rules = open_storage(journal), rules

    def may_go_on(self, objective: str, config: int, seed: int, epoch: int, score: float) -> bool:
        """Whether a trial that has just been scored trains on; at its last epoch it has finished in
        any case.

        Asked again about an epoch it answers the same. The seeds after the first stop where the
        first has stopped, or later; they wait for no decision.
        """
        if objective not in self._rules.last_epochs:
            return True
        study_id = self._storage.get_study_id_from_name(objective)
        entries = latest_entries(self._storage, study_id, "config")
        entry = entries[config]
        verdict, is_last = Verdict.of(entry), epoch >= self._rules.last_epochs[objective]
        if seed == self._rules.first_seed and epoch > verdict.epoch and verdict.stopped_at is None:
            if not is_last:
                [direction] = self._storage.get_study_directions(study_id)
                others = [Verdict.of(each) for number, each in entries.items() if number != config]
                is_max = direction == StudyDirection.MAXIMIZE
                verdict = self._decide(verdict, others, epoch, score, is_max)
            self._note(entry, verdict, epoch, score)
        return is_last or verdict.stopped_at is None or epoch < verdict.stopped_at

    def _decide(
        self, verdict: Verdict, others: Sequence[Verdict], epoch: int, score: float, is_max: bool
    ) -> Verdict:
        """ASHA's rule (Li et al. 2020, Algorithm 2), as Optuna's pruner has it: a rung lies at
        every grace x factor^k epochs, and one in `factor` of those that reached it goes on, the
        best at least.
        """
        rungs = list(verdict.rungs)
        while epoch >= self._rules.grace_epochs * self._rules.reduction_factor ** len(rungs):
            there = [other.rungs[len(rungs)] for other in others if len(other.rungs) > len(rungs)]
            num_better = sum(other > score if is_max else other < score for other in there)
            if math.isnan(score):  # no rung has such a one
                return Verdict(epoch=epoch, rungs=tuple(rungs), stopped_at=epoch)
            rungs.append(score)
            if num_better >= max(1, (len(there) + 1) // self._rules.reduction_factor):
                return Verdict(epoch=epoch, rungs=tuple(rungs), stopped_at=epoch)
        return Verdict(epoch=epoch, rungs=tuple(rungs))

    def _note(self, entry: FrozenTrial, verdict: Verdict, epoch: int, score: float) -> None:
        """The score first: a judge that is killed in between is asked again and writes the same."""
        try:
            self._storage.set_trial_intermediate_value(entry._trial_id, epoch, score)
            if verdict.epoch == epoch:
                self._storage.set_trial_user_attr(entry._trial_id, VERDICT, asdict(verdict))
        except UpdateFinishedTrialError:
            pass  # a process that the driver holds for dead still asks: whatever it is told
