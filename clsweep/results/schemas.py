"""The schemas of the Parquet tables in a results folder.

Metrics are percent (`mi_*` nats), other units stand in the names. A hyperparameter has a column if
any objective of the study owns it; the column is null in the rows of objectives that do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from clsweep.catalog import DIAGNOSTICS, METRICS, PARAM, PARAMS, Param
from clsweep.catalog.ownership import reference_params
from clsweep.catalog.rows import Row

_PARAM_TYPES = {
    "float": pa.float64(),
    "int": pa.int64(),
    "choice": pa.string(),
    "bool": pa.bool_(),
    "numbers": pa.string(),
}

_SPLIT_FIELDS = (  # null for pairs of vectors
    pa.field("score_on", pa.string()),  # validation | test: the split that every metric is of
    pa.field("val_fraction", pa.float64()),  # null: trained on all training images
    pa.field("image_size", pa.int64()),  # pixels a side
    # shorter side of pictures that are kept whole, at most; null where images are squares
    pa.field("store_size", pa.int64()),
    pa.field("channels", pa.int64()),
    # with the validation split, which is taken from them, and unlabeled images
    pa.field("num_train", pa.int64()),
    pa.field("num_unlabeled", pa.int64()),  # of them, those without a class
    pa.field("num_classes", pa.int64()),
    pa.field("images_digest", pa.string()),  # names and sizes of the files of an image folder
)
SPLIT_COLUMNS = tuple(field.name for field in _SPLIT_FIELDS)
ID_FIELDS = (
    pa.field("trial_id", pa.string(), nullable=False),
    pa.field("study", pa.string()),
    pa.field("objective", pa.string()),
    pa.field("framework", pa.string()),
    pa.field("loss", pa.string()),
    pa.field("regularizer", pa.string()),
    pa.field("views", pa.string()),
    pa.field("config", pa.int64()),  # number of the configuration within its objective
    pa.field("seed", pa.int64()),
    pa.field("sampler", pa.string()),
    pa.field("plugins", pa.string()),  # their names and digests; null without any
    pa.field("dataset", pa.string()),
    *_SPLIT_FIELDS,
)
_LOSS_FIELDS = (
    pa.field("train_loss", pa.float64()),  # mean over the epoch
    pa.field("base_loss", pa.float64()),  # without the regularizer, mean over the pairs of views
    pa.field("regularizer_loss", pa.float64()),
)
_RUN_FIELDS = (
    pa.field("lr_peak", pa.float64()),  # after lr_rule
    pa.field("num_crop_only", pa.int64()),  # views that crop_only_share came to
    pa.field("pairs_per_image", pa.int64()),  # positive pairs of views (ECPP Table 1)
    pa.field("compute_per_image", pa.float64()),  # views, small ones by their share of the area
    pa.field("pairs_per_compute", pa.float64()),  # the ratio of these two (ECPP Fig. 1)
    pa.field("num_images", pa.int64()),  # images trained on, each with all its views
    pa.field("epochs_trained", pa.int64()),  # fewer than epochs if the trial was stopped
    # checkpoints that the trial went on from, after it was cut off
    pa.field("num_resumes", pa.int64()),
    pa.field("images_per_s", pa.float64()),
    pa.field("wall_time_s", pa.float64()),
    pa.field("peak_memory_gib", pa.float64()),
    pa.field("skipped_because", pa.string()),  # of a planned trial that a race left out
    pa.field("error_class", pa.string()),
    pa.field("error_message", pa.string()),
    pa.field("error_traceback", pa.string()),
    pa.field("device", pa.string()),
    pa.field("workers", pa.int64()),
    pa.field("gpus_per_worker", pa.float64()),
    pa.field("cpus_per_worker", pa.int64()),
    pa.field("started_at", pa.timestamp("ms", tz="UTC")),
    pa.field("search_seed", pa.int64()),
    pa.field("sampler_options", pa.string()),  # arguments of Optuna's sampler, as JSON
    pa.field("clsweep_version", pa.string()),
    pa.field("torch_version", pa.string()),
    pa.field("ray_version", pa.string()),
    pa.field("optuna_version", pa.string()),
    pa.field("git_commit", pa.string()),
)
HISTOGRAMS_SCHEMA = pa.schema(  # of q_B, wherever an encoder is scored (DCL Fig. 1)
    [
        pa.field("trial_id", pa.string(), nullable=False),
        pa.field("epoch", pa.int64()),
        pa.field("bin_low", pa.float64()),
        pa.field("bin_high", pa.float64()),
        pa.field("share", pa.float64()),  # of the anchors, 0 to 1
    ]
)
# of a t-SNE plot of the last epoch's features (DCL Fig. 4, DimCL Fig. 7-8)
POINTS_SCHEMA = pa.schema(
    [
        pa.field("trial_id", pa.string(), nullable=False),
        pa.field("index", pa.int64()),  # of the image in the split that is scored
        pa.field("label", pa.int64()),
        pa.field("x", pa.float64()),
        pa.field("y", pa.float64()),
    ]
)
_FIXED = {"histograms": HISTOGRAMS_SCHEMA, "points": POINTS_SCHEMA}
# The tables that grow with every trial, beside `trials`.
SIDE_TABLES = ("epochs", "histograms", "points")
_KIND = b"kind"  # of a column, in its field's metadata: "param" is a hyperparameter


def metric_fields() -> list[pa.Field]:
    return [pa.field(metric.name, pa.float64()) for metric in METRICS]


def test_fields() -> list[pa.Field]:
    """The same on the test split, which `clsweep confirm` alone reads."""
    return [pa.field(f"test_{m.name}", pa.float64()) for m in METRICS if m.kind == "images"]


def diagnostic_fields() -> list[pa.Field]:
    """How a representation came about and looks, wherever an encoder is scored; null where an
    objective has no such thing.
    """
    return [pa.field(diagnostic.name, pa.float64()) for diagnostic in DIAGNOSTICS]


def outcome_fields() -> list[pa.Field]:
    return [
        pa.field("status", pa.string()),  # finished | stopped | skipped (by the scheduler) | failed
        *metric_fields(),
        *test_fields(),
        *_LOSS_FIELDS,
        *diagnostic_fields(),
        *_RUN_FIELDS,
    ]


def side_schema(name: str) -> pa.Schema:
    """The schema of one of the `SIDE_TABLES`."""
    return epochs_schema() if name == "epochs" else _FIXED[name]


def epochs_schema() -> pa.Schema:
    return pa.schema(
        [
            pa.field("trial_id", pa.string(), nullable=False),
            pa.field("epoch", pa.int64()),
            *_LOSS_FIELDS,
            pa.field("lr", pa.float64()),
            pa.field("time_s", pa.float64()),
            pa.field("images_per_s", pa.float64()),
            *metric_fields(),
            *diagnostic_fields(),
        ]
    )


def references_schema() -> pa.Schema:
    """What is reached without training: the lines that every score is read against."""
    return pa.schema(
        [
            pa.field("reference", pa.string(), nullable=False),  # raw_pixels | untrained
            pa.field("dataset", pa.string()),
            *_SPLIT_FIELDS,
            pa.field("seed", pa.int64()),
            *param_fields(reference_params()),
            *metric_fields(),
        ]
    )


def param_fields(names: Iterable[str]) -> list[pa.Field]:
    """Typed columns of these hyperparameters, in catalog order; the metadata says what they are, so
    that a reader needs no catalog that knows them.
    """
    wanted = set(names)
    return [_param_field(param) for param in PARAMS if param.name in wanted]


def _param_field(param: Param) -> pa.Field:
    about = {_KIND: b"param", b"symbol": param.symbol.encode(), b"doc": param.doc.encode()}
    return pa.field(param.name, _PARAM_TYPES[param.kind], metadata=about)


def params_of(schema: pa.Schema) -> list[pa.Field]:
    """The columns of a table that are hyperparameters, of this version or another: its metadata
    says which; where it says nothing, as of earlier versions, the catalog does.
    """
    told = [field for field in schema if (field.metadata or {}).get(_KIND) == b"param"]
    return told or param_fields(schema.names)


def params_in(columns: Iterable[str]) -> list[str]:
    """Those of the columns that are hyperparameters of the catalog."""
    return [name for name in columns if name in PARAM]


def plan_schema(params: Iterable[pa.Field]) -> pa.Schema:
    return pa.schema([*ID_FIELDS, *params])


# Of a row, beside its hyperparameters, what its plan says. A study may be renamed.
PLANNED = tuple(field.name for field in ID_FIELDS if field.name not in ("trial_id", "study"))


def trials_schema(params: Iterable[pa.Field]) -> pa.Schema:
    return pa.schema([*ID_FIELDS, *params, *outcome_fields()])


def to_table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Rows as a table of exactly this schema; a missing value is null, an unknown column is a
    mistake of ours.
    """
    for row in rows:
        unknown = set(row) - set(schema.names)
        assert not unknown, f"columns without a place in the schema: {sorted(unknown)}"
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
