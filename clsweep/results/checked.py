"""What the tables of a results folder must hold before anything is computed from them.

Every function raises ValueError, or an error of Arrow's, that says what was expected.
"""

from __future__ import annotations

import functools
import hashlib
import json
import string
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from clsweep.catalog import PARAM
from clsweep.catalog.ownership import ALL_THERE_IS
from clsweep.results.schemas import ID_FIELDS, outcome_fields, param_fields, params_of, plan_schema
from clsweep.results.tables import decode, distinct, schema_of, typed
from clsweep.study.continuation import defining
from clsweep.study.space import declared_spaces

KEYS = ("trial_id", "objective", "config", "seed")
STATUSES = ("finished", "stopped", "skipped", "failed")  # of a trial that has its row
STUDY = b"study"  # in the metadata of a plan: the digest of the study that it is of
FOLDER = b"folder"  # in that of every table: a number that the folder drew when it was made
SCORE_ON = b"score_on"  # there too: `test`, if that is the split that scores are of
_OF_IDS = (string.ascii_letters + string.digits + "._-").encode()  # they name files too


def digest(tree: Mapping[str, Any]) -> bytes:
    """Tells studies of different plans apart."""
    text = json.dumps(defining(tree), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest().encode()


class Plan(NamedTuple):
    """What every reader needs of `plan.parquet`.

    Attributes:
        keys: one row per planned trial: `KEYS`.
        schema: of the whole table, its hyperparameters marked as such.
    """

    keys: pa.Table
    schema: pa.Schema

    @property
    def folder(self) -> bytes | None:
        """The number of its folder; None in one of an earlier version."""
        return (self.schema.metadata or {}).get(FOLDER)


def checked_plan(data: bytes) -> Plan:
    """`plan.parquet`, without the columns that few ask for."""
    keys, schema = plan_columns(data, KEYS), _plan_schema(data)
    if not keys.num_rows:
        raise ValueError("expected the planned trials, found none")
    texts = [chunk.buffers()[2] for chunk in keys["trial_id"].chunks]
    if b"".join(text or b"" for text in texts).translate(None, _OF_IDS):
        raise ValueError("column 'trial_id': expected names of letters, digits, '.', '_' and '-'")
    distinct(keys, "trial_id")
    return Plan(keys, schema)


def plan_columns(data: bytes, columns: Collection[str]) -> pa.Table:
    """Those of these columns that `plan.parquet` has, in their types."""
    fields = [field for field in _plan_schema(data) if field.name in columns]
    table = decode(data, [field.name for field in fields])
    return typed(table, fields, filled=[f.name for f in fields if f.name in (*KEYS, "sampler")])


def _plan_schema(data: bytes) -> pa.Schema:
    found = schema_of(data)
    known = {field.name: field for field in param_fields(PARAM)}
    told = {field.name: field for field in params_of(found)}
    names = [*told, *(name for name in known if name in found.names and name not in told)]
    params = [known[name] if name in known else told[name] for name in names]
    taken = {field.name for field in (*ID_FIELDS, *outcome_fields())}
    if wrong := [field.name for field in params if field.name in taken]:
        raise ValueError(f"column {wrong[0]!r}: expected no hyperparameter")
    required = {*KEYS, "sampler"}
    fields = [f for f in plan_schema(params) if f.name in required or f.name in found.names]
    return pa.schema(fields, metadata=found.metadata)


def why_not_of(plan: Plan, tree: Mapping[str, Any]) -> str:
    """Why a plan is not that of a recorded study; empty if it is."""
    known = (plan.schema.metadata or {}).get(STUDY)
    if known not in (None, digest(tree)):
        return "study.yaml has changed since plan.parquet was made of it"
    others = set(plan.keys["objective"].unique().to_pylist()) - set(declared_spaces(tree))
    if others:
        return f"study.yaml has no objective '{min(others)}' of plan.parquet"
    swept = {name for space in declared_spaces(tree).values() for name in space if name in PARAM}
    missing = swept - set(plan.schema.names)
    if missing and tree.get("base", {}).get("epochs") != 0:  # else nothing is trained
        return f"study.yaml sweeps '{min(missing)}', which is not in plan.parquet"
    return ""


def checked_rows(
    data: bytes,
    fields: Sequence[pa.Field],
    folder: bytes | None,
    *,
    filled: Collection[str],
    present: Collection[str] = (),
) -> pa.Table:
    """These columns of a table that grows with the trials.

    Args:
        folder: that it is of, see `Plan`. Trials of two studies may have the same ids.
        filled: those that have a value in every row.
        present: those that are there, should there be any row.
    """
    if folder and (schema_of(data).metadata or {}).get(FOLDER, folder) != folder:
        raise ValueError("it is a table of another results folder")
    table = decode(data, [field.name for field in fields])
    return typed(table, fields, filled=filled, present=present if table.num_rows else ())


def of_one_trial(table: pa.Table, trial_id: str, *, is_row: bool) -> pa.Table:
    """A part, which holds rows of the trial of its name alone; `is_row`: one of them."""
    others = pc.not_equal(table["trial_id"], trial_id)
    if pc.any(others).as_py() or (is_row and table.num_rows != 1):
        raise ValueError(f"expected {'one row' if is_row else 'rows'} of trial {trial_id}")
    return table


def in_plan_order(trials: pa.Table, plan: pa.Table, params: Sequence[str]) -> pa.Table:
    """The trials' rows as they are planned.

    Args:
        trials: all of `KEYS`, status, and any other columns.
        plan: `KEYS` and `params`.
        params: columns; what the plan says of one, its trial says too.

    Raises:
        ValueError: they are not; behind its message the trial whose row is not as planned.
    """
    first = plan.slice(0, trials.num_rows)
    if trials["trial_id"].equals(first["trial_id"]):  # most often: all have ended
        plan = first
    else:
        ranks = pc.index_in(trials["trial_id"], plan["trial_id"].combine_chunks()).combine_chunks()
        if ranks.null_count:
            name = trials.filter(pc.is_null(ranks))["trial_id"][0].as_py()
            raise ValueError(f"trial {name} is not in plan.parquet", name)
        order = pc.array_sort_indices(ranks)
        trials, ranks = trials.take(order), ranks.take(order)
        if pc.any(pc.equal(ranks[1:], ranks[:-1])).as_py():
            distinct(trials, "trial_id")
        plan = plan.take(ranks)
    if unknown := set(trials["status"].unique().to_pylist()) - set(STATUSES):
        raise ValueError(f"status: expected {', '.join(STATUSES)}, found {min(unknown)!r}")
    for name in dict.fromkeys((*KEYS[1:], *params)):
        planned, found = plan[name], trials[name]
        if planned.equals(found):
            continue
        # a live search plans no value
        differs = pc.and_(pc.is_valid(planned), pc.fill_null(pc.not_equal(planned, found), True))
        if name in ALL_THERE_IS:  # it may hang on what a live search has chosen after the plan
            chosen = [pc.and_(pc.is_null(plan[n]), pc.is_valid(trials[n])) for n in params]
            differs = pc.and_not(differs, functools.reduce(pc.or_, chosen))
        if (at := pc.index(differs, True).as_py()) >= 0:
            trial = trials["trial_id"][at].as_py()
            what = f"expected {planned[at]} as planned, found {found[at]}"
            raise ValueError(f"trial {trial}: {name}: {what}", trial)
    return trials
