"""A study on Ray: what is left of the plan, run by one Tuner, recorded trial by trial."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from clsweep.catalog.plugins import activate, execute
from clsweep.catalog.rows import Row
from clsweep.cluster.driver_actor import started_actor
from clsweep.cluster.failures import MOST_ALONE, FailurePolicy
from clsweep.cluster.gpus import look_at_nodes, require_gpus
from clsweep.cluster.leftovers import end_all_of, remove_leftovers
from clsweep.cluster.loggers import Loggers, sink_place, wanted_loggers
from clsweep.cluster.mailbox import LEAVE_S, checkpoint_all
from clsweep.cluster.progress import Estimate, RunProgress
from clsweep.cluster.ray_session import RayLostError, ray_session
from clsweep.cluster.recorder import Recorder
from clsweep.cluster.resources import prepare_files, require_capacity, running_cluster
from clsweep.cluster.run_heartbeat import RunHeartbeat
from clsweep.cluster.schedulers.asha import AshaConfig
from clsweep.cluster.schedulers.racing import SKIPPED, SeedRacing, racing_order
from clsweep.cluster.search_budget import SearchBudget
from clsweep.cluster.trial import TrialContext, keep_references, score_references
from clsweep.cluster.watchdog import CONTINUES, ECHO_S, Watchdog
from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder
from clsweep.results.journal import entries_running, open_storage
from clsweep.results.retention import Retention
from clsweep.results.standings import TrialCounts
from clsweep.study.design import (
    PlannedTrial,
    Study,
    placed_baselines,
    plan_row,
    plan_trials,
    split_columns,
)
from clsweep.study.extend import (
    extension_errors,
    form_advice,
    numbered_as,
    tree_difference,
    with_added,
)
from clsweep.study.paper_tables import checked_files, paper_cells
from clsweep.version import VERSION, VERSION_COLUMNS, public_version

if TYPE_CHECKING:
    from optuna.storages import JournalStorage

# What a plan says of the user's own images.
_OF_FILES = ("num_train", "num_unlabeled", "num_classes", "images_digest")
_OF_PICTURES = ("store_size", "store_as")
_BEFORE = {"store_as": "pixels"}  # of plans that do not say it


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """Options of a run, beside study and folder: the arguments of `clsweep.run`."""

    address: str = "local"
    resume: bool = True
    retry_failed: bool = False
    max_concurrent: int | None = None
    limit: int | None = None
    log: tuple[str, ...] = ()
    mixed_versions: bool = False


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """The end of a run. `ran` counts the trials of this run, `left` the planned ones that have no
    row yet, `open` those of them that were lost too often with their machines, and why.
    """

    path: str
    ran: int
    finished: int
    stopped: int
    skipped: int
    failed: int
    left: int
    interrupted: bool = False
    search_ends: Sequence[str] = ()  # sentences: why trials are left out
    open: Mapping[str, str] = field(default_factory=dict)


def run_study(study: Study, out: str | os.PathLike[str], request: RunRequest) -> RunSummary:
    """Run what is left of a study and record it in `out`; an existing folder is continued, or
    extended where that is sound.

    Args:
        study: a validated study.
        out: results folder, local or an object store's URI.

    Raises:
        RequestError: the folder holds another study or another run, or the cluster can never hold a
            trial.
    """
    wanted_loggers(study, request.log)
    folder, planned = ResultsFolder(str(out)), plan_trials(study)
    with folder.lock():
        if folder.exists():
            planned = numbered_as(folder.plan().to_pylist(), study, planned)
            _require_same(folder, study, planned, request)
        return run_trials(study, planned, folder, request)


def run_trials(
    study: Study,
    planned: Sequence[PlannedTrial],
    folder: ResultsFolder,
    request: RunRequest,
    *,
    searched: ResultsFolder | None = None,
) -> RunSummary:
    """Run those of the planned trials that have no row yet. The caller holds the folder.

    Args:
        searched: results of the search that they confirm; they are scored on the test split too.
    """
    remove_leftovers()
    run = _Run(study, planned, folder, request, searched is not None)
    left, interrupted = run.left(), False
    if left and not request.mixed_versions:
        if searched:
            _require_one_version(searched, searched.trials(VERSION_COLUMNS).to_pylist())
        _require_one_version(folder, run.recorded())
    if left or run.owes_references():
        activate(study.document.plugins)
        execute(study.document.plugins)
        if request.address == "local":  # on a cluster each node does so itself
            prepare_files(study)
        folder.keep_search_end([], 0)  # this run may find room
        try:
            interrupted = run.work()
        except BaseException:
            with contextlib.suppress(RequestError):  # the first error is the one to tell
                folder.keep_journal()
            raise
        folder.keep_journal()
    if folder.exists():
        if not left:
            run.settle_journal()
        run.lay_out()
        if left or folder.has_parts():
            folder.compact()
        run.retention().apply()
    status = {row["trial_id"]: row["status"] for row in run.rows()}
    nums = Counter(status.get(trial.trial_id, "left") for trial in planned)
    if nums["left"] and not any(run.budget.admits(t) for t in planned if t.trial_id not in status):
        folder.keep_search_end(run.budget.ends(), nums["left"])
    return RunSummary(
        path=folder.path,
        ran=len(run.ran),
        interrupted=interrupted,
        search_ends=run.budget.ends(),
        open=run.failures.open,
        **{name: nums[name] for name in ("finished", "stopped", SKIPPED, "failed", "left")},
    )


class _Run:
    """One session of a study: what it has to do, and doing it."""

    def __init__(
        self,
        study: Study,
        planned: Sequence[PlannedTrial],
        folder: ResultsFolder,
        request: RunRequest,
        test: bool,
    ):
        self._study, self._planned, self._folder = study, planned, folder
        self._request, self._test = request, test
        self._retried = _tried_again(self.rows()) if request.retry_failed else set()
        self.failures = FailurePolicy(study.sections.resources.max_restarts)
        self._printed = {} if test else checked_files(study.document.source)
        self.ran: set[str] = set()  # trials that have a row of this session
        self.budget = SearchBudget(study, self.recorded(), folder=folder)

    def left(self) -> list[PlannedTrial]:
        """The trials to run, in order."""
        recorded = {row["trial_id"]: row["status"] for row in self.recorded()}
        done, limit = recorded.keys() | self.failures.open.keys(), self._request.limit
        if limit is not None:  # what a race has left out did not run
            limit -= sum(recorded[trial_id] != SKIPPED for trial_id in self.ran)
        left = [trial for trial in self._planned if trial.trial_id not in done]
        if self._study.sections.scheduler.name == "racing":
            left = racing_order(left, self._study.sections.seeds)
        return [*filter(self.budget.admits, left)][:limit]

    def recorded(self) -> list[Row]:
        """The rows that stand; those of failed trials that are tried again do not."""
        open_again = self._retried - self.ran
        return [row for row in self.rows() if row["trial_id"] not in open_again]

    def rows(self) -> list[Row]:
        """All rows so far, with what the rest of a study depends on."""
        if not self._folder.exists():
            return []
        names = ["trial_id", "objective", "config", "seed", "sampler", "status"]
        names += ["epochs_trained", "started_at", "wall_time_s", "workers", "skipped_because"]
        names += [*VERSION_COLUMNS, *self._study.sections.scores, *self._folder.params()]
        return list[Row](self._folder.trials(names).to_pylist())

    def settle_journal(self) -> None:
        """Note how trials ended whose run was killed between their rows and the journal."""
        from clsweep.cluster.search import PlanSearch

        journal = open_storage(self._folder.journal_path, alone=True)
        if any(entries_running(journal)):
            PlanSearch(self._study, [], self.rows(), journal)
            self._folder.keep_journal()

    def retention(self) -> Retention:
        sections = self._study.sections
        return Retention(
            self._folder,
            self._folder.plan(["trial_id", "objective", "config"]).to_pylist(),
            self.recorded(),
            encoders=sections.encoders.keep,
            checkpoints=sections.checkpoints.keep,
            metric=sections.metric.name,
            mode=sections.metric.mode,
        )

    def owes_references(self) -> bool:
        """True if they must yet be scored: the study is new, was cut off, or extended."""
        num_recorded = self._folder.references().num_rows if self._folder.exists() else 0
        owed = [] if self._test else placed_baselines(self._study, self._planned)
        return len(owed) > num_recorded

    def work(self) -> bool:
        """Run the trials; whether the user interrupted. A lost Ray of our own is started anew."""
        for is_again in (False, True):
            try:
                return self._session()
            except RayLostError as error:
                if error.folder:
                    end_all_of(error.folder)
                if is_again or self._request.address != "local":
                    logs = f" Ray's logs: {error.folder}/ray/session_latest/logs."
                    raise RequestError(f"{error}.{logs * bool(error.folder)} {CONTINUES}") from None
                print(f"{error}. Starting Ray once more.", flush=True)
                shutil.rmtree(error.folder, ignore_errors=True)
        raise AssertionError

    def _session(self) -> bool:
        """Run the trials on one session of Ray, which has let go of everything when this ends.

        Raises:
            RayLostError: in the middle of it.
        """
        resources = self._study.sections.resources
        with contextlib.ExitStack() as stack:
            watchdog = stack.enter_context(Watchdog(self._folder.scratch))
            ray_folder = stack.enter_context(
                ray_session(self._request.address, dashboard=resources.workers > 1)
            )
            watchdog.begin(ray_folder)
            self.failures.is_ray_lost = watchdog.look
            try:
                return self._on_ray(stack, is_alone=ray_folder is not None)
            except BaseException as error:
                patience_s = 0.0 if isinstance(error, KeyboardInterrupt) else ECHO_S
                if lost := watchdog.stop(patience_s):  # whatever was raised is its echo
                    raise RayLostError(lost, ray_folder or "") from None
                raise
            finally:
                watchdog.stop()

    def _on_ray(self, stack: contextlib.ExitStack, *, is_alone: bool) -> bool:
        """Run the trials on the Ray that there is."""
        from clsweep.cluster.tune_bridge import errors_passed_on

        study, folder = self._study, self._folder
        asha = AshaConfig.of(study)
        capacity = require_capacity(study, running_cluster(), self._request.max_concurrent)
        if study.sections.resources.gpus_per_worker:
            require_gpus(study, self.left(), look_at_nodes())
        self.lay_out()
        retention = self.retention()
        retention.apply()
        limit = self._request.max_concurrent or capacity
        concurrent = max(1, min(limit, capacity, len(self.left())))
        self.budget = SearchBudget(study, self.recorded(), concurrent, folder)
        progress = stack.enter_context(self._progress(concurrent, is_alone=is_alone))
        progress.announce(len(self.left()))
        journal = open_storage(folder.journal_path, alone=True)  # before the actor opens it too
        driver = stack.enter_context(
            started_actor(folder, asha, needed=asha is not None or not is_alone)
        )
        # What is confirmed is a study from a folder, which shall not say where to write.
        wanted = [] if self._test else wanted_loggers(study, self._request.log)
        place = folder.local_path or sink_place(folder.path, study.sections.name)
        loggers = stack.enter_context(Loggers(wanted, study, place, progress.say))
        heartbeat = RunHeartbeat(folder, progress, loggers, self.failures, is_alone=is_alone)
        stack.enter_context(heartbeat)
        stack.enter_context(errors_passed_on())
        recorder = Recorder(study, folder, progress, retention, loggers)
        context = TrialContext.of(
            study, folder, driver=driver, one_machine=is_alone, test=self._test
        )
        try:
            owed = self.owes_references()
            references = score_references(study, self._planned, context) if owed else None
            if references and is_alone and study.sections.resources.workers > 1:
                # Else a trial may wait in silence for what they hold, as if it had stalled.
                keep_references(folder, references)
                references = None
            self._run_all(concurrent, context, journal, recorder, progress)
            if self.failures.is_hopeless:
                num_open = len(self.left()) + len(self.failures.open)
                progress.say(
                    f"Memory was missing for {MOST_ALONE} trials in a row, each of which ran "
                    f"alone: the run ends with {num_open} open. With more memory the same command "
                    "goes on."
                )
            if references:
                keep_references(folder, references)
        except KeyboardInterrupt:
            if self.failures.is_ray_lost():  # it is not the user's
                raise
            self._let_trials_save(progress)
            return True
        return False

    def _let_trials_save(self, progress: RunProgress) -> None:
        """Wait for the checkpoints of the trials under way, unless the user interrupts again."""
        if self._study.sections.checkpoints.keep != "none":
            with contextlib.suppress(KeyboardInterrupt):
                progress.say(
                    "\nInterrupted: trials under way save where they are, for up to "
                    f"{LEAVE_S:.0f} s.\nA second Ctrl-C does not wait."
                )
                checkpoint_all(self._folder.scratch, progress.running)

    def _progress(self, concurrent: int, *, is_alone: bool) -> RunProgress:
        sections = self._study.sections
        planned, recorded = self._folder.plan().to_pylist(), self.recorded()
        tally = TrialCounts(
            planned,
            recorded,
            metric=sections.metric.name,
            mode=sections.metric.mode,
            axes={objective.name: tuple(objective.space) for objective in self._study.objectives},
        )
        return RunProgress(
            tally,
            Estimate(planned, recorded),
            concurrent=concurrent,
            stall_s=sections.resources.stall_s,
            may_wait=not is_alone and sections.resources.workers > 1,
            budget=self.budget,
        )

    def _run_all(
        self,
        concurrent: int,
        context: TrialContext,
        journal: JournalStorage,
        recorder: Recorder,
        progress: RunProgress,
    ) -> None:
        """Let Tune run trials until none is left."""
        from ray import tune

        from clsweep.cluster.search import PlanSearch
        from clsweep.cluster.tune_bridge import PlanSearcher, tuner

        if not (left := self.left()):
            return
        study, race = self._study, None

        def skip(trial: PlannedTrial, reason: str) -> None:
            recorder.skipped(plan_row(study, trial), reason)

        if study.sections.scheduler.name == "racing":
            race = SeedRacing(study.sections, self._planned, left, skip)
        plan = PlanSearch(study, left, self.rows(), journal, race, self.budget)
        for note in plan.notes:
            progress.say(note)
        searcher = PlanSearcher(plan, context, self.failures, scores=study.sections.scores)
        try:
            tuner(study, self._folder.scratch, searcher, recorder, concurrent).fit()
        except (tune.TuneError, RequestError) as error:
            # a callback's comes wrapped
            reason = error if isinstance(error, RequestError) else error.__context__
            if not isinstance(reason, RequestError):
                raise
            raise RequestError(f"{reason}\nThe study stopped. {CONTINUES}") from None
        finally:
            self.ran |= recorder.trial_ids

    def lay_out(self) -> None:
        """Write plan and study where they are new, extended, or changed in what may change; and the
        paper's numbers that lie beside the study: the folder then has all that they are compared
        with.

        Only once the cluster can hold the trials: a refused request leaves no folder that would
        refuse a corrected one.
        """
        folder, rows = self._folder, [plan_row(self._study, trial) for trial in self._planned]
        document, known = self._study.document, list[Row]()
        if folder.exists():
            if folder.has_parts():
                folder.compact()
            known = folder.plan().to_pylist()
            contrasts, ended = folder.study().get("contrasts") or {}, folder.trials(["trial_id"])
            contrasts = with_added(document.tree.get("contrasts") or {}, contrasts, ended.num_rows)
            document.tree |= {"contrasts": contrasts} if contrasts else {}
        new_ids = {row["trial_id"] for row in rows}
        others = [row for row in known if row["trial_id"] not in new_ids]  # once the best
        if len(known) != len(rows) + len(others) or folder.study() != document.tree:
            folder.create(document.dump(), [*rows, *others], document.plugins)
        files, self._printed = self._printed, {}
        if files:
            folder.add_paper_tables(files, paper_cells(document.source))


def _tried_again(rows: Sequence[Row]) -> set[str]:
    """Ids of the trials that failed, and of those that a race left out at their configurations."""
    failed = {(row["objective"], row["config"]) for row in rows if row["status"] == "failed"}
    return {
        row["trial_id"]
        for row in rows
        if row["status"] == "failed"
        or (row["status"] == SKIPPED and (row["objective"], row["config"]) in failed)
    }


def _require_same(
    folder: ResultsFolder, study: Study, planned: Sequence[PlannedTrial], request: RunRequest
) -> None:
    """Only the study that the folder holds, or a sound extension of it, goes on there."""
    if not request.resume:
        raise RequestError(
            f"{folder.path}: holds results already. Continue them with --resume, or give another "
            "--out."
        )
    reasons = (
        _changed_images(folder, study, _OF_FILES)
        or extension_errors(folder.study(), folder.plan().to_pylist(), study, planned)
        # follows from the crops of all trials: an extension may change it, too
        or _changed_images(folder, study, _OF_PICTURES, before=_BEFORE)
    )
    if reasons:
        shown = "\n".join(f"  {reason}" for reason in reasons[:10])
        raise RequestError(
            f"{folder.path}: holds results of another version of this study. It may gain seeds, "
            "objectives, levels of factors, values of a grid and trials of a search. Else give "
            f"another --out (clsweep report reads both), or undo:\n{shown}"
        )


def _require_one_version(folder: ResultsFolder, recorded: Sequence[Row]) -> None:
    """Refuse trials of other versions of what trains; a trial that crashed may not know its own."""
    here = {"clsweep": VERSION, "torch": public_version(version("torch"))}
    there = {
        name: {public_version(row[f"{name}_version"] or of_here)[:40] for row in recorded}
        for name, of_here in here.items()
    }
    if other := [name for name in here if there[name] - {here[name]}]:
        known = ", ".join(f"{name} {' and '.join(sorted(there[name])[:4])}" for name in other)
        raise RequestError(
            f"{folder.path}: expected trials of {', '.join(f'{n} {here[n]}' for n in other)}, as "
            f"installed here, found {known}. Scores may differ: install what they are of, give "
            "another folder, or go on with --mixed-versions"
        )


def _changed_images(
    folder: ResultsFolder, study: Study, names: Sequence[str], before: Row | None = None
) -> list[str]:
    """Text on the user's own images that have changed since the plan. `before`: of pictures alone,
    what plans mean that do not say it.
    """
    plan = folder.plan(["objective", *names])
    first = {row["objective"]: row for row in reversed(plan.to_pylist())}
    changed: list[str] = []
    for cell in study.cells or (study,):
        if before is not None and not cell.dataset.keeps_whole:
            continue
        if planned := first.get(cell.objectives[0].name):
            now, at = split_columns(cell), f"images in {cell.dataset.name}"
            sizes = {name: now[name] for name in names}
            stated = {name: value for name, value in planned.items() if value is not None}
            then = {**(before or {}), **stated}
            changed += tree_difference({name: then.get(name) for name in names}, sizes, at=at)
            if advice := form_advice(study, planned["objective"], then, now):
                changed[-1] += f". {advice}"
    return list(dict.fromkeys(changed))
