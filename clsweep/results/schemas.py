"""The schemas of the Parquet tables in a results folder.

Metrics are percent (`mi_*` nats), other units stand in the names. A hyperparameter has a column if
any objective of the study owns it; the column is null in the rows of objectives that do not.
"""

from __future__ import annotations

import functools
import hashlib
import json
import string
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from clsweep.catalog import DIAGNOSTICS, METRICS, PARAM, PARAMS
from clsweep.catalog.ownership import ALL_THERE_IS, baseline_params
from clsweep.catalog.rows import Row
from clsweep.results.tables import decode, distinct, schema_of, typed
from clsweep.study.extend import defining
from clsweep.study.space import declared_spaces

_REAL, _WHOLE, _TEXT = pa.float64(), pa.int64(), pa.string()
_PARAM_TYPES = {"float": _REAL, "int": _WHOLE, "bool": pa.bool_()}  # the others are texts


def _fields(kind: pa.DataType, *names: str) -> list[pa.Field]:
    return [pa.field(name, kind) for name in names]


_TRIAL_ID = pa.field("trial_id", _TEXT, nullable=False)
_SPLIT_FIELDS = (  # null for pairs of vectors
    *_fields(_TEXT, "score_on"),  # validation | test: the split that every metric is of
    *_fields(_REAL, "val_fraction"),  # null: trained on all training images
    *_fields(_WHOLE, "image_size"),  # pixels a side
    # shorter side of pictures that are kept whole, at most; null where images are squares
    *_fields(_WHOLE, "store_size"),
    *_fields(_WHOLE, "channels"),
    # with the validation split, which is taken from them, and unlabeled images
    *_fields(_WHOLE, "num_train"),
    *_fields(_WHOLE, "num_unlabeled"),  # of them, those without a class
    *_fields(_WHOLE, "num_classes"),
    *_fields(_TEXT, "images_digest"),  # names and sizes of the files of an image folder
)
SPLIT_COLUMNS = tuple(field.name for field in _SPLIT_FIELDS)
ID_FIELDS = (
    _TRIAL_ID,
    *_fields(_TEXT, "study", "objective", "framework", "loss", "regularizer", "views"),
    *_fields(_WHOLE, "config"),  # number of the configuration within its objective
    *_fields(_WHOLE, "seed"),
    # plugins: their names and digests; null without any
    *_fields(_TEXT, "sampler", "plugins", "dataset"),
    *_SPLIT_FIELDS,
)
_LOSS_FIELDS = (  # means over the epoch
    *_fields(_REAL, "train_loss"),
    *_fields(_REAL, "base_loss"),  # without the regularizer, mean over the pairs of views
    *_fields(_REAL, "regularizer_loss"),
)
_RUN_FIELDS = (
    *_fields(_REAL, "lr_peak"),  # after lr_rule
    *_fields(_WHOLE, "num_crop_only"),  # views that crop_only_share came to
    *_fields(_WHOLE, "pairs_per_image"),  # positive pairs of views (ECPP Table 1)
    *_fields(_REAL, "compute_per_image"),  # views, small ones by their share of the area
    *_fields(_REAL, "pairs_per_compute"),  # the ratio of these two (ECPP Fig. 1)
    *_fields(_WHOLE, "num_images"),  # images trained on, each with all its views
    *_fields(_WHOLE, "epochs_trained"),  # fewer than epochs if the trial was stopped
    # checkpoints that the trial went on from, after it was cut off
    *_fields(_WHOLE, "num_resumes"),
    *_fields(_REAL, "images_per_s", "wall_time_s", "peak_memory_gib"),
    *_fields(_TEXT, "skipped_because"),  # of a planned trial that a race left out
    *_fields(_TEXT, "error_class", "error_message", "error_traceback", "device"),
    *_fields(_WHOLE, "workers"),
    *_fields(_REAL, "gpus_per_worker"),
    *_fields(_WHOLE, "cpus_per_worker"),
    pa.field("started_at", pa.timestamp("ms", tz="UTC")),
    *_fields(_WHOLE, "search_seed"),
    *_fields(_TEXT, "clsweep_version", "torch_version", "ray_version", "optuna_version"),
    *_fields(_TEXT, "git_commit"),
)
_SIDE_FIELDS = {
    "histograms": (  # of q_B and its like, wherever an encoder is scored (DCL Fig. 1)
        *_fields(_WHOLE, "epoch"),
        *_fields(_TEXT, "diagnostic"),  # its row of the catalog
        *_fields(_REAL, "bin_low", "bin_high", "share"),  # of the anchors, 0 to 1
    ),
    "points": (  # of a t-SNE plot of the last epoch's features (DCL Fig. 4, DimCL Fig. 7-8)
        *_fields(_WHOLE, "index", "label"),  # index: of the image in the split that is scored
        *_fields(_REAL, "x", "y"),
    ),
    "hits": (  # which images the last scores have right: a row for each metric that says it
        *_fields(_TEXT, "metric", "split"),  # validation | test
        *_fields(_TEXT, "images"),  # digest of the images in their order
        *_fields(_WHOLE, "num_images"),
        *_fields(pa.binary(), "bits"),  # one an image, eight a byte, the first one highest
    ),
}
# The tables that grow with every trial, beside `trials`.
SIDE_TABLES = ("epochs", *_SIDE_FIELDS)
_KIND = b"kind"  # of a column, in its field's metadata: "param" is a hyperparameter


def metric_fields() -> list[pa.Field]:
    return _fields(_REAL, *(metric.name for metric in METRICS))


def test_fields() -> list[pa.Field]:
    """The same on the test split, which `clsweep confirm` alone reads."""
    return _fields(_REAL, *(f"test_{m.name}" for m in METRICS if m.kind == "images"))


def outcome_fields() -> list[pa.Field]:
    return [
        *_fields(_TEXT, "status"),  # finished | stopped | skipped (by the scheduler) | failed
        *metric_fields(),
        *test_fields(),
        *_LOSS_FIELDS,
        *_fields(_REAL, *(row.name for row in DIAGNOSTICS)),  # null where there is no such thing
        *_RUN_FIELDS,
    ]


def side_schema(name: str) -> pa.Schema:
    """The schema of one of the `SIDE_TABLES`."""
    of_epochs = (
        *_fields(_WHOLE, "epoch"),
        *_LOSS_FIELDS,
        *_fields(_REAL, "lr", "time_s", "images_per_s"),
        *metric_fields(),
        *_fields(_REAL, *(row.name for row in DIAGNOSTICS)),  # where the encoder was scored
    )
    return pa.schema([_TRIAL_ID, *_SIDE_FIELDS.get(name, of_epochs)])


def references_schema() -> pa.Schema:
    """What is reached without training: the lines that every score is read against."""
    fields = [
        pa.field("reference", pa.string(), nullable=False),  # raw_pixels | untrained
        *_fields(_TEXT, "dataset"),
        *_SPLIT_FIELDS,
        *_fields(_WHOLE, "seed"),
        *param_fields(baseline_params()),
        *metric_fields(),
    ]
    return pa.schema(fields)


def param_fields(names: Iterable[str]) -> list[pa.Field]:
    """Typed columns of these hyperparameters, in catalog order; their metadata say what each is."""
    wanted = set(names)
    return [
        pa.field(p.name, _PARAM_TYPES.get(p.kind, _TEXT), metadata={
            _KIND: b"param", b"symbol": p.symbol.encode(), b"doc": p.doc.encode()
        })
        for p in PARAMS if p.name in wanted
    ]  # fmt: skip


def params_of(schema: pa.Schema) -> list[pa.Field]:
    """The columns of a table that are hyperparameters, of this version or another: its metadata
    says which; where it says nothing, as of earlier versions, the catalog does.
    """
    told = [field for field in schema if (field.metadata or {}).get(_KIND) == b"param"]
    return told or param_fields(schema.names)


def plan_schema(params: Iterable[pa.Field]) -> pa.Schema:
    return pa.schema([*ID_FIELDS, *params])


# Of a row, beside its hyperparameters, what its plan says. A study may be renamed.
PLANNED = tuple(field.name for field in ID_FIELDS if field.name not in ("trial_id", "study"))


def trials_schema(params: Iterable[pa.Field]) -> pa.Schema:
    return pa.schema([*ID_FIELDS, *params, *outcome_fields()])


def to_table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Rows as a table of exactly this schema: null where missing, and no unknown column."""
    for row in rows:
        unknown = set(row) - set(schema.names)
        assert not unknown, f"columns without a place in the schema: {sorted(unknown)}"
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


# What the tables of a results folder must hold before anything is computed from them. Every
# function raises ValueError, or an error of Arrow's, that says what was expected.


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
    """What every reader needs of `plan.parquet`: `KEYS` of each trial, and the schema of the whole
    table, its hyperparameters marked as such.
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


def empty(schema: pa.Schema) -> pa.Table:
    """A table without rows. `schema.empty_table` makes one too, and loads pandas for it."""
    return pa.Table.from_batches([], schema=schema)


def checked_rows(
    data: bytes,
    fields: Sequence[pa.Field],
    folder: bytes | None,
    *,
    filled: Collection[str],
    present: Collection[str] = (),
) -> pa.Table:
    """These columns of a table that grows with the trials, of this `folder`, see `Plan`: trials of
    two studies may have the same ids. Those `filled` have a value in every row, `present` ones are
    there, should there be any row.
    """
    table = decode(data, [field.name for field in fields])
    if folder and (table.schema.metadata or {}).get(FOLDER, folder) != folder:
        raise ValueError("it is a table of another results folder")
    return typed(table, fields, filled=filled, present=present if table.num_rows else ())


def of_one_trial(table: pa.Table, trial_id: str, *, is_row: bool) -> pa.Table:
    """A part, which holds rows of the trial of its name alone; `is_row`: one of them."""
    others = pc.not_equal(table["trial_id"], trial_id)
    if pc.any(others).as_py() or (is_row and table.num_rows != 1):
        raise ValueError(f"expected {'one row' if is_row else 'rows'} of trial {trial_id}")
    return table


def in_plan_order(trials: pa.Table, plan: pa.Table, params: Sequence[str]) -> pa.Table:
    """The trials' rows as they are planned; what the plan says of one of `params`, its trial says
    too. ValueError where it does not; behind its message the trial.
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
