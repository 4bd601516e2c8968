"""The best configurations of a search, run again on fresh seeds and scored on the test split.

The best of many is picked on its own noise, so its score in the search is too good. Seeds that took
no part in the picking say what it is worth, and the test split, which nothing else reads, says it
on images that chose nothing.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from clsweep.catalog.rows import Row
from clsweep.cluster.runner import RunRequest, RunSummary, run_trials
from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder
from clsweep.results.reading import open_folder
from clsweep.results.standings import Ranked, Standings
from clsweep.study.design import PlannedTrial, Study, plan_row, trial_id
from clsweep.study.extend import changed_values, defining, tree_difference
from clsweep.study.resolve import resolve_study
from clsweep.study.settings import apply_setting

SAMPLER = "confirm"  # of the planned trials: how their configurations were chosen


def confirm_study(
    path: str | os.PathLike[str],
    request: RunRequest,
    *,
    top: int | None = None,
    seeds: Sequence[object] | None = None,
    settings: Sequence[str] = (),
    trust: bool = False,
) -> RunSummary:
    """Run the best configurations of each objective on fresh seeds, into the folder `confirm` among
    the results.

    Args:
        path: results folder of a search that does not run any more.
        top: so many of each objective; by default as the study's `confirm` says.
        seeds: fresh ones; by default as the study's `confirm` says.
        settings: `K=V` texts for what may change between two sessions of a study: resources, places
            of data.
        trust: execute the plug-ins and encoders `module:function` that the folder names.

    Raises:
        UserError: the search runs, has no configuration that is finished, or was planned
            differently; no seeds are given, or they are the search's own.
    """
    folder = open_folder(path)
    if SAMPLER in folder.plan(["sampler"])["sampler"].to_pylist():
        raise RequestError(
            f"{path}: expected the results of a search, given the fresh seeds of one: "
            f"{os.path.dirname(folder.path) or '..'}"
        )
    if folder.is_running():
        raise RequestError(
            f"{path}: the search still runs; confirm it once it has ended. See clsweep status "
            f"{path}"
        )
    study = confirming_study(folder, top=top, seeds=seeds, settings=settings, trust=trust)
    planned, confirmation = plan_confirmation(study, folder), folder.confirmation
    with confirmation.lock():
        known = confirmation.plan().to_pylist() if confirmation.exists() else []
        now = {trial.trial_id: plan_row(study, trial) for trial in planned}
        for row in known:  # what has been confirmed already must have been of this search
            if changed := changed_values(row, now.get(row["trial_id"], row)):
                reason = f"holds trials of another search; move it away: {row['trial_id']}"
                raise RequestError(f"{confirmation.path}: {reason}: {changed}")
        return run_trials(study, planned, confirmation, request, searched=folder)


def confirming_study(
    folder: ResultsFolder,
    *,
    top: int | None = None,
    seeds: Sequence[object] | None = None,
    settings: Sequence[str] = (),
    trust: bool = False,
) -> Study:
    """The search's study with what `confirm` asks; it stops none early and keeps no encoders."""
    document = folder.document()
    document.is_trusted = trust
    for setting in settings:
        apply_setting(document, setting)
    options = {key: value for key, value in (("top", top), ("seeds", seeds)) if value is not None}
    section = document.tree.get("confirm") or {}
    if isinstance(section, dict):
        rounds = folder.confirmation.study() if folder.confirmation.exists() else {}
        section = {**(rounds.get("confirm") or {}), **section, **options}  # the last goes on
        document.tree["confirm"] = section
        if "seeds" not in section:
            raise RequestError(
                f"{folder.path}: expected fresh seeds to confirm on, given none: give --seeds "
                "10,11,12, or confirm: {top: 3, seeds: [10, 11, 12]} in "
                f"{document.source}"
            )
    for key, value in options.items():
        shown = ",".join(map(str, value)) if isinstance(value, Sequence) else value
        document.places["confirm", key] = f"--{key} {shown}"
    document.tree.pop("scheduler", None)
    document.tree["search"].pop("budget", None)
    document.tree["encoders"] = {"keep": "none"}
    study = resolve_study(document)
    # what defines the scores of one configuration and seed
    ours, theirs = (
        {key: value for key, value in defining(tree).items() if key != "scheduler"}
        for tree in (document.tree, folder.study())
    )
    if changed := tree_difference(theirs, ours):
        reason = (
            "expected a change of where it runs (resources, dataset.root), as the search's "
            "scores have the former"
        )
        raise RequestError("\n".join(f"--set {line}: {reason}" for line in changed))
    return study


def plan_confirmation(study: Study, folder: ResultsFolder) -> list[PlannedTrial]:
    """The best configurations of the search in `folder` on the seeds of `study`, best first,
    objectives interleaved.

    Raises:
        RequestError: no configuration has finished, or one of the best would not be the same here
            and now.
    """
    assert study.sections.confirm is not None
    metric, plan = study.sections.metric, folder.plan()
    rows, num_seeds = plan.to_pylist(), len(study.sections.seeds)
    recorded = folder.trials(["trial_id", "status", metric.name]).to_pylist()
    rankings = Standings(rows, recorded, metric=metric.name, mode=metric.mode).rankings()
    if not any(ranking.configs for ranking in rankings):
        seeds = "its seed" if num_seeds == 1 else f"all its {num_seeds} seeds"
        raise RequestError(
            f"{folder.path}: no configuration has finished on {seeds} yet; see clsweep status "
            f"{folder.path}"
        )
    planned, chosen = (
        {(row["objective"], row["config"]): row for row in each}
        for each in (rows, folder.trials(plan.column_names).to_pylist())
    )
    best = itertools.zip_longest(
        *(ranking.configs[: study.sections.confirm.top] for ranking in rankings)
    )
    return [
        trial
        for ranked in itertools.chain.from_iterable(best)
        if ranked is not None and (key := (ranked.objective, ranked.config))
        for trial in _trials(study, ranked, planned[key], chosen[key], at=folder.path)
    ]


def _trials(
    study: Study, ranked: Ranked, planned: Row, chosen: Row, *, at: str
) -> Iterator[PlannedTrial]:
    """A configuration on each fresh seed, exactly as the search had it.

    Its values are those of the plan; what a live search chose stands in the trials alone.
    """
    assert study.sections.confirm is not None
    objective = next(o for o in study.objectives if o.name == ranked.objective)
    trial = PlannedTrial(
        trial_id=planned["trial_id"],
        objective=objective.name,
        parts=objective.parts,
        config=ranked.config,
        seed=planned["seed"],
        sampler=planned["sampler"],
        params={name: planned.get(name, objective.fixed.get(name)) for name in objective.owned},
    )
    if changed := changed_values(planned, plan_row(study, trial)):
        reason = "this would not be the configuration that the search has scored"
        raise RequestError(
            f"{at}: configuration {ranked.config} of '{objective.name}': {changed}: {reason}"
        )
    params = {
        name: chosen[name] if value is None else value for name, value in trial.params.items()
    }
    for seed in study.sections.confirm.seeds:
        identity = trial_id(objective.name, ranked.config, seed)
        yield replace(trial, trial_id=identity, seed=seed, sampler=SAMPLER, params=params)
