"""The schemas of the Parquet tables in a results folder.

Metrics are percent (`mi_*` nats), other units stand in the names. A hyperparameter has a column if any objective of the
study owns it; the column is null in the rows of objectives that do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from clsweep.objective.catalog import METRICS, PARAM, PARAMS
from clsweep.objective.ownership import REFERENCE_PARAMS

_PARAM_TYPES = {"float": pa.float64(), "int": pa.int64(), "choice": pa.string(), "bool": pa.bool_()}

_SPLIT_FIELDS = (  # null for pairs of vectors
    pa.field("val_fraction", pa.float64()),
    pa.field("image_size", pa.int64()),  # pixels a side
    pa.field("num_train", pa.int64()),  # with the validation split, which is taken from them, and unlabeled images
    pa.field("num_classes", pa.int64()),
    pa.field("images_digest", pa.string()),  # names and sizes of the files of an image folder
)
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
    pa.field("dataset", pa.string()),
    *_SPLIT_FIELDS,
)
# How a representation came about and looks, wherever an encoder is scored; null where an objective has no such thing.
DIAGNOSTIC_FIELDS = tuple(
    pa.field(name, pa.float64())
    for name in (
        "q_b_mean",  # negative-positive coupling multiplier of the epoch's anchors (DCL Eq. 4)
        "q_b_cv",
        "grad_norm_mean",  # of the last two blocks, over the epoch's steps (DCL A.9)
        "grad_norm_cv",
        "mi_bound",  # nats (EqCo Eq. 4)
        "alignment",  # of two views of validation images (DCL A.5)
        "uniformity",
        "feature_diversity",  # DimCL Eq. 7, 0 to 1
        "effective_rank",
        "std_per_dim",  # 1 isotropic, 0 collapsed
        "intra_class_distance",  # DimCL Table 12
        "inter_class_distance",
    )
)
_LOSS_FIELDS = (
    pa.field("train_loss", pa.float64()),  # mean over the epoch
    pa.field("base_loss", pa.float64()),  # without the regularizer, mean over the pairs of views
    pa.field("regularizer_loss", pa.float64()),
)
METRIC_FIELDS = tuple(pa.field(metric.name, pa.float64()) for metric in METRICS)
TEST_FIELDS = tuple(  # the same on the test split, which `clsweep confirm` alone reads
    pa.field(f"test_{metric.name}", pa.float64()) for metric in METRICS if metric.kind == "images"
)
OUTCOME_FIELDS = (
    pa.field("status", pa.string()),  # finished | stopped (by the scheduler) | failed
    *METRIC_FIELDS,
    *TEST_FIELDS,
    *_LOSS_FIELDS,
    *DIAGNOSTIC_FIELDS,
    pa.field("lr_peak", pa.float64()),  # after lr_rule
    pa.field("num_crop_only", pa.int64()),  # views that crop_only_share came to
    pa.field("num_images", pa.int64()),  # images trained on, each with all its views
    pa.field("epochs_trained", pa.int64()),  # fewer than epochs if the trial was stopped
    pa.field("num_resumes", pa.int64()),  # checkpoints that the trial went on from, after it was cut off
    pa.field("images_per_s", pa.float64()),
    pa.field("wall_time_s", pa.float64()),
    pa.field("peak_memory_gib", pa.float64()),
    pa.field("error_class", pa.string()),
    pa.field("error_message", pa.string()),
    pa.field("error_traceback", pa.string()),
    pa.field("device", pa.string()),
    pa.field("workers", pa.int64()),
    pa.field("gpus_per_worker", pa.float64()),
    pa.field("cpus_per_worker", pa.int64()),
    pa.field("started_at", pa.timestamp("ms", tz="UTC")),
    pa.field("search_seed", pa.int64()),
    pa.field("clsweep_version", pa.string()),
    pa.field("torch_version", pa.string()),
    pa.field("ray_version", pa.string()),
    pa.field("optuna_version", pa.string()),
    pa.field("git_commit", pa.string()),
)
EPOCHS_SCHEMA = pa.schema(
    [
        pa.field("trial_id", pa.string(), nullable=False),
        pa.field("epoch", pa.int64()),
        *_LOSS_FIELDS,
        pa.field("lr", pa.float64()),
        pa.field("time_s", pa.float64()),
        pa.field("images_per_s", pa.float64()),
        *METRIC_FIELDS,
        *DIAGNOSTIC_FIELDS,
    ]
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
POINTS_SCHEMA = pa.schema(  # of a t-SNE plot of the last epoch's features (DCL Fig. 4, DimCL Fig. 7-8)
    [
        pa.field("trial_id", pa.string(), nullable=False),
        pa.field("index", pa.int64()),  # of the image in the validation split
        pa.field("label", pa.int64()),
        pa.field("x", pa.float64()),
        pa.field("y", pa.float64()),
    ]
)
# The tables that grow with every trial, beside `trials`.
SIDE_SCHEMAS = {"epochs": EPOCHS_SCHEMA, "histograms": HISTOGRAMS_SCHEMA, "points": POINTS_SCHEMA}
REFERENCES_SCHEMA = pa.schema(  # what is reached without training: the lines that every score is read against
    [
        pa.field("reference", pa.string(), nullable=False),  # raw_pixels | untrained
        pa.field("dataset", pa.string()),
        *_SPLIT_FIELDS,
        pa.field("seed", pa.int64()),
        *(pa.field(p.name, _PARAM_TYPES[p.kind]) for p in PARAMS if p.name in REFERENCE_PARAMS),
        *METRIC_FIELDS,
    ]
)


def param_fields(names: Iterable[str]) -> list[pa.Field]:
    """Typed columns of these hyperparameters, in catalog order."""
    wanted = set(names)
    return [pa.field(p.name, _PARAM_TYPES[p.kind]) for p in PARAMS if p.name in wanted]


def plan_schema(params: Iterable[str]) -> pa.Schema:
    return pa.schema([*ID_FIELDS, *param_fields(params)])


def trials_schema(params: Iterable[str]) -> pa.Schema:
    return pa.schema([*ID_FIELDS, *param_fields(params), *OUTCOME_FIELDS])


def params_in(columns: Iterable[str]) -> list[str]:
    """Those of the columns that are hyperparameters."""
    return [name for name in columns if name in PARAM]


def to_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as a table of exactly this schema; a missing value is null, an unknown column is a mistake of ours."""
    for row in rows:
        unknown = set(row) - set(schema.names)
        assert not unknown, f"columns without a place in the schema: {sorted(unknown)}"
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
