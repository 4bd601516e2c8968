"""An Optuna storage: the SQLite file of `RDBStorage`, or the journal file of `JournalStorage`. Both
are read as they lie, so no lock is taken and no table is made.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clsweep.errors import RequestError, nearest
from clsweep.foreign.sweep import ForeignSweep, ForeignTrial, is_sqlite, opened

STATUS = {"COMPLETE": "finished", "PRUNED": "stopped", "FAIL": "failed"}  # others: running
STATES = ("RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING")  # by a journal's numbers
DIRECTIONS = {1: "min", 2: "max", "MINIMIZE": "min", "MAXIMIZE": "max"}

Trial = dict[str, Any]  # state, params [(name, value, distribution)], values, labels
Study = dict[str, Any]  # name, directions, metrics (their names), trials


def read_optuna(source: Path, study: str | None) -> ForeignSweep:
    """The trials of a storage, a group for each study.

    Args:
        study: read this one alone.

    Raises:
        RequestError: no storage, an unknown study, studies of several directions or of more than
            one metric.
    """
    try:
        studies = _from_sqlite(source) if is_sqlite(source) else _from_journal(source)
    except (ValueError, LookupError, TypeError, sqlite3.DatabaseError) as error:
        reason = str(error).splitlines()[0]
        raise RequestError(f"{source}: cannot be read as an Optuna storage: {reason}") from None
    chosen = _chosen(studies, study, source)
    modes = {DIRECTIONS.get(s["directions"][0], "") for s in chosen.values()}
    names = {s["metrics"][0] if s["metrics"] else "value" for s in chosen.values()}
    if len(modes) > 1 or len(names) > 1:
        raise RequestError(f"{source}: {len(chosen)} studies of several metrics. {_one(chosen)}")
    sweep = ForeignSweep(trials=[], metric=names.pop(), mode=modes.pop())
    for name, found in chosen.items():
        for trial in found["trials"]:
            sweep.trials.append(_trial(name, trial, sweep))
    return sweep


def _chosen(studies: Mapping[str, Study], study: str | None, source: Path) -> dict[str, Study]:
    if study is not None and study not in studies:
        raise RequestError(
            f"{source}: no study {study!r}.{nearest(study, studies)} Studies: {', '.join(studies)}"
        )
    chosen = {n: s for n, s in studies.items() if study in (None, n)}
    if not chosen:
        raise RequestError(f"{source}: expected a study of Optuna, found none")
    for name, found in chosen.items():
        if len(found["directions"]) != 1:
            raise RequestError(f"{source}: study {name!r}: expected one metric, found several")
    return chosen


def _one(studies: Iterable[str]) -> str:
    return f"Name one with --study: {', '.join(studies)}"


def _trial(group: str, trial: Trial, sweep: ForeignSweep) -> ForeignTrial:
    settings = {}
    for name, value, distribution in trial["params"]:
        about = json.loads(distribution)
        kind, of = about["name"], about["attributes"]
        if kind == "CategoricalDistribution":
            settings[name] = of["choices"][int(value)]
            continue
        if of.get("log") or kind.startswith(("LogUniform", "IntLogUniform")):
            sweep.scales[name] = "log"
        is_int = kind.startswith("Int")
        if not is_int and not (of.get("step") or of.get("q")):
            sweep.continuous.add(name)
        settings[name] = int(value) if is_int else value
    results = {sweep.metric: trial["values"][0]} if trial["values"] else {}
    status = STATUS.get(trial["state"], "running")
    return ForeignTrial(
        group=group, status=status, settings=settings, results=results, labels=trial["labels"]
    )


def _from_sqlite(source: Path) -> dict[str, Study]:
    with opened(source) as rows:
        studies: dict[int, Study] = {}
        for number, name in rows("SELECT study_id, study_name FROM studies ORDER BY study_id"):
            studies[number] = {"name": name, "directions": [], "metrics": [], "trials": []}
        for number, direction in rows(
            "SELECT study_id, direction FROM study_directions ORDER BY study_id, objective"
        ):
            studies[number]["directions"].append(direction)
        for number, key, value in rows(
            "SELECT study_id, key, value_json FROM study_system_attributes"
        ):
            if key == "study:metric_names":
                studies[number]["metrics"] = json.loads(value)
        trials: dict[int, Trial] = {}
        for trial, number, state in rows(
            "SELECT trial_id, study_id, state FROM trials ORDER BY study_id, number"
        ):
            trials[trial] = {"state": state, "params": [], "values": [], "labels": {}}
            studies[number]["trials"].append(trials[trial])
        for trial, *param in rows(
            "SELECT trial_id, param_name, param_value, distribution_json FROM trial_params "
            "ORDER BY param_id"
        ):
            trials[trial]["params"].append(param)
        for trial, key, value in rows(
            "SELECT trial_id, key, value_json FROM trial_user_attributes"
        ):
            trials[trial]["labels"][key] = json.loads(value)
        for trial, value, kind in rows(
            "SELECT trial_id, value, value_type FROM trial_values ORDER BY trial_id, objective"
        ):
            infinite = {"INF_POS": math.inf, "INF_NEG": -math.inf}
            trials[trial]["values"].append(infinite.get(kind, value))
        return {study["name"]: study for study in studies.values()}


def _from_journal(source: Path) -> dict[str, Study]:
    """Optuna's journal is a line of JSON for each change, in the order of the ids."""
    studies: list[Study] = []
    trials: list[Trial] = []
    deleted: set[int] = set()
    with source.open(encoding="utf-8") as lines:
        for line in lines:
            with contextlib.suppress(json.JSONDecodeError):  # the last one may be half written
                _apply(json.loads(line), studies, trials, deleted)
    return {s["name"]: s for number, s in enumerate(studies) if number not in deleted}


def _apply(entry: Any, studies: list[Study], trials: list[Trial], deleted: set[int]) -> None:
    kind = entry["op_code"]
    if kind == 0:
        names = {"name": entry["study_name"], "directions": entry["directions"]}
        studies.append({**names, "metrics": [], "trials": []})
    elif kind == 1:
        deleted.add(entry["study_id"])
    elif kind == 3 and "study:metric_names" in entry["system_attr"]:
        studies[entry["study_id"]]["metrics"] = entry["system_attr"]["study:metric_names"]
    elif kind == 4:
        trials.append(_created(entry))
        studies[entry["study_id"]]["trials"].append(trials[-1])
    elif kind == 5:
        param = (entry["param_name"], entry["param_value_internal"], entry["distribution"])
        _settle(trials[entry["trial_id"]], [param])
    elif kind == 6:
        trial = trials[entry["trial_id"]]
        trial["state"], trial["values"] = STATES[entry["state"]], entry["values"] or []
    elif kind == 8:
        trials[entry["trial_id"]]["labels"] |= entry["user_attr"]


def _created(entry: Mapping[str, Any]) -> Trial:
    """A trial as it began; one that was copied from elsewhere has everything."""
    values = entry.get("values") or ([entry["value"]] if entry.get("value") is not None else [])
    trial: Trial = {"state": STATES[entry.get("state", 0)], "params": [], "values": values}
    trial["labels"] = dict(entry.get("user_attrs", {}))
    kinds, given = entry.get("distributions", {}), entry.get("params", {})
    _settle(trial, [(name, given[name], kinds[name]) for name in given])
    return trial


def _settle(trial: Trial, params: Sequence[tuple[str, float, str]]) -> None:
    names = {name for name, *_ in params}
    trial["params"] = [p for p in trial["params"] if p[0] not in names] + list(params)
