"""The schemas of the Parquet tables in a results folder.

Metrics are percent (`mi_*` nats), other units stand in the names. A hyperparameter has a column if
any objective of the study owns it; the column is null in the rows of objectives that do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from clsweep.catalog import DIAGNOSTICS, METRICS, PARAMS
from clsweep.catalog.ownership import baseline_params
from clsweep.catalog.rows import Row

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
    *_fields(_TEXT, "store_as"),  # the form in which these are kept: pixels, or jpeg
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
    *_fields(_TEXT, "transfer_store_as"),  # store_as of pictures that scores are transferred to
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
    # compile_s: torch.compile's part of wall_time_s, of which images_per_s knows nothing
    *_fields(_REAL, "images_per_s", "wall_time_s", "compile_s", "peak_memory_gib"),
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
        # lr: the rate of the last step; in `trials` it is the setting, before lr_rule and schedule
        # the same of weight_decay and tau, which are null where they have no schedule
        *_fields(_REAL, "lr", "weight_decay", "tau", "time_s", "images_per_s"),
        *metric_fields(),
        *_fields(_REAL, *(row.name for row in DIAGNOSTICS)),  # where the encoder was scored
    )
    return pa.schema([_TRIAL_ID, *_SIDE_FIELDS.get(name, of_epochs)])


def references_schema() -> pa.Schema:
    """Scores reached without training, which every score is read against."""
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
    params = [field for field in schema if (field.metadata or {}).get(_KIND) == b"param"]
    return params or param_fields(schema.names)


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


TRIAL_KEYS = ("trial_id", "objective", "config", "seed")
TRIAL_STATUSES = ("finished", "stopped", "skipped", "failed")  # of a trial that has its row
