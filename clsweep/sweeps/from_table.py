"""Study data from a table of trials that came from anywhere."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from clsweep.analysis.read_sweeps import followers, is_numeric_column
from clsweep.analysis.sweep import Sweep
from clsweep.catalog import METRIC, METRICS, PARAM
from clsweep.catalog.ownership import ALL_THERE_IS
from clsweep.errors import RequestError, first_line, nearest
from clsweep.results.disk import Disk
from clsweep.results.integrity import decode_table, schema_of
from clsweep.results.reading import to_frame
from clsweep.results.schemas import ID_FIELDS, outcome_fields
from clsweep.sweeps import study_data, tidy
from clsweep.sweeps.metric_limits import limits_by_name
from clsweep.sweeps.notes import SCORED_ON_TEST
from clsweep.sweeps.null_choices import name_empty_cells
from clsweep.sweeps.study_data import StudyData

RESOURCES = {"workers", "gpus_per_worker", "cpus_per_worker"}
# What clsweep holds fixed in an objective, but somebody else may sweep.
CHOSEN = {field.name for field in ID_FIELDS} - {
    *tidy.LABEL_NAMES,
    "trial_id",
    "study",
} | RESOURCES
# Where a trial came from: of its configuration it says nothing.
ORIGINS = {
    "trial_id", "study", "error_class", "error_message", "error_traceback", "device", "started_at",
    "search_seed", "clsweep_version", "torch_version", "ray_version", "optuna_version",
    "git_commit", "num_resumes", "sampler_options",  # the last in earlier versions
}  # fmt: skip
CONFIG = ["objective", "config"]
EPOCHS_FILE = "epochs.parquet"
# In a file's metadata and a frame's attributes: metric, mode, params and scales, as JSON.
OPTIONS_KEY = "clsweep.told"
OUTCOME_COLUMNS = {field.name for field in outcome_fields()} - RESOURCES - {"status"} | ORIGINS


def _limits(
    metric: str, mode: str, sweeps: Sequence[Sweep], trials: pd.DataFrame
) -> tuple[tuple[float, float] | None, str, float | None]:
    """The values that a metric can take, as the catalog or else its name says; a note where they
    are not those of a percentage that the catalog knows; and the metric of a guess, None where it
    is not known.
    """
    if metric not in METRIC:
        return *limits_by_name(metric, mode, sweeps), None
    whole, unlike = study_data.percent_of(metric, sweeps)
    if not whole or "num_classes" not in trials:
        return (0.0, whole) if whole else None, unlike, None
    guess = study_data.chance_score(metric, trials["num_classes"])
    return (0.0, whole), unlike, guess * whole / 100 if guess else None


def _axes(
    sweeps: Sequence[Sweep], swept: list[str], *, is_named: bool
) -> tuple[Mapping[str, Sequence[str]] | list[str], list[str], list[str]]:
    """The axes of each objective, those of any, and notes on what others settle."""
    settled = {}
    for sweep in sweeps:  # of two that settle each other it is what clsweep derives
        preferred = sorted(sweep.params, key=lambda name: name in ALL_THERE_IS)
        is_grid = sweep.samplers == ("grid",)
        settled[sweep.objective] = followers(sweep.settings[preferred], is_grid=is_grid)
    notes = _settled_notes(settled, sweeps, is_named=is_named)
    if is_named or not any(settled.values()):
        return swept, swept, notes
    axes = {s.objective: [n for n in s.params if n not in settled[s.objective]] for s in sweeps}
    gone = {n for each in settled.values() for n in each}.difference(*axes.values())
    return axes, [column for column in swept if column not in gone], notes


def _with_ids(trials: pd.DataFrame) -> pd.DataFrame:
    """The trials with names of their own."""
    if "trial_id" in trials:
        return trials
    ids = [trials[column].astype(str) for column in ("objective", "config", "seed")]
    return trials.assign(trial_id=ids[0] + "-" + ids[1] + "-s" + ids[2])


def of_trials(
    trials: pd.DataFrame,
    *,
    source: str = "table",
    metric: str | None = None,
    mode: str | None = None,
    params: Sequence[str] | None = None,
    scales: Mapping[str, str] | None = None,
    failed: str = "worst",
) -> StudyData:
    """A table of trials that came from anywhere, as `clsweep.analyse` takes it; `source` is what
    messages call it.

    Of hyperparameters that nobody named, what others settle is no axis of its objective
    (`analysis.read_sweeps.followers`). Of two that settle each other, the one stays that clsweep
    does not derive, or else the first. Those that are named all stay, and a note tells what settles
    what. Another tells on which axes numbers are read (`analysis.read_sweeps.scale_of`).
    RequestError where a column is missing, or says what it cannot.
    """
    trials, copied = tidy.without_copies(tidy.tidied(trials, source))
    name = _metric(trials, metric, source)
    trials = trials.assign(**{name: tidy.numeric(trials[name], source)})
    mode = study_data.mode_of(name, mode, None, source)
    chosen = (_named(params, trials, name, source), "") if params is not None else None
    swept, others = chosen or _settings(trials, name, source)
    words = [column for column in swept if tidy.is_numbers_as_text(trials[column])]
    trials = trials.assign(**{column: tidy.as_setting(trials[column], source) for column in swept})
    scales = tidy.checked_scales(scales, trials, swept, source)
    trials, empty = name_empty_cells(trials, swept, scales)

    def read(params: Mapping[str, Sequence[str]] | Sequence[str], **how: Any) -> tuple[Sweep, ...]:
        return study_data.sweeps_of(trials, source, name, mode, params, scales=scales, **how)

    sweeps = read(swept, failed="left out")
    trials, merged = tidy.with_settings_once(trials, swept, sweeps)
    sweeps = read(swept, failed="left out") if merged else sweeps
    for sweep in sweeps:
        tidy.check_sizes(sweep.scores, name, source)
    axes, swept, settled_notes = _axes(sweeps, swept, is_named=params is not None)
    limits, unlike, chance = _limits(name, mode, sweeps, trials)
    sweeps = read(axes, failed=failed, chance=chance, limits=limits)
    on_test = "score_on" in trials and bool((trials["score_on"] == "test").all())
    as_text = f"numbers given as text are read as categories: {', '.join(words)}" if words else ""
    notes = [SCORED_ON_TEST if on_test else "", unlike, others, copied, merged, *empty]
    notes += [*settled_notes, as_text]
    unit = "" if unlike else study_data.unit_of(name)
    return StudyData(
        trials=_with_ids(trials),
        metric=name,
        unit=unit,
        params=tuple(swept),
        sweeps=sweeps,
        within=study_data.near_of(unit, sweeps, {}),
        title=source,
        sources=(source,),
        mode=mode,
        notes=tuple(note for note in [*notes, _axes_note(sweeps, scales)] if note),
        on_test=on_test,
    )


def _metric(trials: pd.DataFrame, given: str | None, source: str) -> str:
    """The metric that is asked for, or the first known one, with a score if there is any."""
    columns = list(trials.columns)
    known = [m.name for m in METRICS if m.name in columns and not m.takes]
    scored = [m for m in known if trials[m].notna().any()]
    name = next(iter([*scored, *known]), "") if given is None else str(given)
    if name in columns and name not in tidy.LABEL_NAMES:
        return name
    why = "none of the known metrics; name one."
    if name:
        why = f"no column {name!r}.{nearest(name, columns)}"
    if name in tidy.LABEL_NAMES:
        why = f"expected a column of scores, given {name!r}."
    raise RequestError(f"{source}: metric: {why} Columns: {', '.join(columns)}")


def _named(params: Sequence[str], trials: pd.DataFrame, metric: str, source: str) -> list[str]:
    """The hyperparameters that were named, each once."""
    place = f"{source}: params"
    if isinstance(params, str) or not isinstance(params, Iterable):
        raise RequestError(f"{place}: expected a list of columns, given {params!r}")
    names = [str(name) for name in params]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise RequestError(f"{place}: expected every column once, given {name!r} twice")
        if name not in trials:
            hint, columns = nearest(name, trials.columns), ", ".join(trials.columns)
            raise RequestError(f"{place}: no column {name!r}.{hint} Columns: {columns}")
        if name in (*tidy.LABEL_NAMES, metric):
            role = "the metric" if name == metric else "a label of the trials"
            given = f"given {name!r}, which is {role}"
            raise RequestError(f"{place}: expected hyperparameters, {given}")
    return names


def _settings(trials: pd.DataFrame, metric: str, source: str) -> tuple[list[str], str]:
    """The columns that are read as hyperparameters, and a note if others are not.

    What clsweep calls an outcome is an axis if it has one value in each configuration and recurs in
    others. It is named if it differs between the configurations of an objective.
    """
    if not {*CONFIG} <= set(trials.columns):
        return [], ""  # what is missing is said elsewhere
    ours = OUTCOME_COLUMNS if {"trial_id", "clsweep_version"} <= set(trials.columns) else set()
    ids = {"trial_id"} if "trial_id" in trials and trials["trial_id"].is_unique else set()
    columns = [c for c in trials.columns if c not in {*tidy.LABEL_NAMES, *ours, *ids, metric}]
    others = [c for c in columns if c not in OUTCOME_COLUMNS | CHOSEN]
    groups = trials.groupby("objective")  # what takes two values in one, or cannot be told apart
    candidates = [
        c
        for c in columns
        if c in others
        or not tidy.is_plain(trials[c])
        or (groups[c].nunique(dropna=False) > 1).any()
    ]
    if trials.duplicated(CONFIG).any():
        configs = trials.drop_duplicates(CONFIG)
        rows = trials.groupby(CONFIG, dropna=False, sort=False).ngroup().to_numpy()
        first = np.unique(rows, return_index=True)[1]
        plain = [c for c in candidates if tidy.is_plain(trials[c])]
        settings = {c for c in plain if _is_setting(trials[c], rows, first)}
        # Each value stands in two configurations of an objective on average.
        recurring = {
            c
            for c in settings & OUTCOME_COLUMNS - ORIGINS
            if 2 * len(configs[["objective", c]].drop_duplicates()) <= len(configs)
        }
        candidates = [c for c in candidates if c in settings or c not in OUTCOME_COLUMNS]
        swept = [
            c for c in candidates if c in settings and (c not in OUTCOME_COLUMNS or c in recurring)
        ]
    else:  # an outcome looks like a setting
        swept = [c for c in candidates if c in CHOSEN or (c in others and c in PARAM)]
        if others and not swept:
            why = "with one trial in each configuration they cannot be told from outcomes"
            raise RequestError(f"{source}: params: {why}; name them. Columns: {', '.join(others)}")
    left_out = [column for column in candidates if column not in swept]
    note = f"read as hyperparameters: {', '.join(swept) or 'none'}; not: {', '.join(left_out)}"
    return swept, f"{note}; params names others" if left_out else ""


def _is_setting(column: pd.Series[Any], rows: NDArray[Any], first: NDArray[Any]) -> bool:
    """True for one value in each configuration; rows: (n,) configuration of each trial, `first` the
    first trial of each.
    """
    codes = column.factorize(use_na_sentinel=False)[0]
    return bool((codes == codes[first][rows]).all())


def _axes_note(sweeps: Sequence[Sweep], given: Mapping[str, str]) -> str:
    """On which axes numbers were read that could stand on either."""
    objectives_of: dict[str, dict[str, list[str]]] = {}  # hyperparameter -> axis -> objectives
    for sweep in sweeps:
        for name in sweep.params:
            column = sweep.settings[name]
            # It matters of three values or more, where all of them are positive.
            is_guess = is_numeric_column(column) and column.min() > 0 and column.nunique() > 2
            if name not in given and is_guess:
                read = objectives_of.setdefault(name, {})
                read.setdefault(sweep.scales[name], []).append(sweep.objective)
    parts: list[str] = []
    for axis in ("log", "linear"):
        names = [
            name + (f" ({', '.join(read[axis])})" if len(read) > 1 else "")
            for name, read in objectives_of.items()
            if axis in read
        ]
        if names:
            parts.append(f"{axis}{'' if parts else ' axis'}: {', '.join(names)}")
    return f"read on a {'; '.join(parts)}" if parts else ""


def _settled_notes(
    settled: Mapping[str, Mapping[str, tuple[str, ...]]], sweeps: Sequence[Sweep], *, is_named: bool
) -> list[str]:
    """One note on each axis that others settle, with the objectives if it is not so in all."""
    objectives: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for objective, columns in settled.items():
        for key in columns.items():
            objectives.setdefault(key, []).append(objective)
    notes = []
    for (name, leaders), where in objectives.items():
        sweeping = [sweep.objective for sweep in sweeps if name in sweep.params]
        place = "" if where == sweeping else f"{', '.join(where)}: "
        gone = f"{name} is left out; params keeps the axes that it names"
        what = "their effects cannot be told apart" if is_named else gone
        notes.append(f"{place}{name} has one value for each of {', '.join(leaders)}: {what}")
    return notes


def reading_options(trials: pd.DataFrame, **wanted: Any) -> dict[str, Any]:
    """Metric, mode, params and scales as given, else as the file itself says. It says nothing of
    another metric's mode.
    """
    options = dict(trials.attrs.pop(OPTIONS_KEY, {}))
    if wanted["metric"] not in (None, options.get("metric")):
        options.pop("mode", None)
    params = wanted["params"] if wanted["params"] is not None else options.get("params")
    if isinstance(options.get("scales"), dict) and params is not None:
        options["scales"] = {n: s for n, s in options["scales"].items() if n in params}
    return {name: options.get(name) if given is None else given for name, given in wanted.items()}


def _own_options(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Options in a file's own metadata. Raises ValueError for any but those of `clsweep import`."""
    options = json.loads(metadata.get(OPTIONS_KEY.encode(), b"{}"))
    kinds = {"metric": str, "mode": str, "params": list, "scales": dict, "seed": str}
    if not isinstance(options, dict) or any(
        not isinstance(options.get(name, kind()), kind) for name, kind in kinds.items()
    ):
        raise ValueError(f"its metadata {OPTIONS_KEY!r} is damaged")
    return {name: options[name] for name in kinds if name in options}


def read_together(paths: Sequence[str], files: Sequence[str]) -> pd.DataFrame:
    """Several tables as one, each objective under its table's name. RequestError where one cannot
    be read, or what they say of metric and mode differs.
    """
    names = [os.path.basename(path.rstrip("/")).removesuffix(".parquet") for path in paths]
    frames: list[pd.DataFrame] = []
    about: dict[str, Any] = {}
    for path, frame in zip(paths, map(read_trials, files), strict=True):
        options = frame.attrs.pop(OPTIONS_KEY)
        for key in ("metric", "mode"):
            if about.setdefault(key, options.get(key)) != options.get(key):
                expected = f"expected the {key} {about[key]!r} of {paths[0]}"
                given = f"given {options.get(key)!r}: these are not analysed together"
                raise RequestError(f"{path}: {expected}, {given}")
        name = names[len(frames)]
        name = path if names.count(name) > 1 else name
        is_numbered = options.get("seed") == ""  # no seed was named: tables share none
        for label in ("objective", "seed") if is_numbered else ("objective",):
            if label in frame:
                frame[label] = [f"{name}/{value}" for value in frame[label]]
        about["params"] = [*dict.fromkeys([*about.get("params", ()), *options.get("params", ())])]
        about["scales"] = options.get("scales", {}) | about.get("scales", {})
        frames.append(frame)
    table = pd.concat(frames, ignore_index=True)
    table.attrs = {OPTIONS_KEY: {key: value for key, value in about.items() if value}}
    return table


def epochs_beside(data: StudyData, trials: Iterable[str]) -> pd.DataFrame:
    """trial_id, epoch, time_s and the metric of some trials, as `epochs.parquet` beside their table
    has them; empty without one. It has a trial_id, or the objective, config and seed of the table.
    """
    file = os.path.join(os.path.dirname(data.sources[0]), EPOCHS_FILE)
    if not data.sources[0].endswith(".parquet") or not os.path.isfile(file):
        return pd.DataFrame()
    frame = read_trials(file)
    if "trial_id" not in frame and {*CONFIG, "seed"} <= {*frame}:
        frame = frame.merge(data.trials[[*CONFIG, "seed", "trial_id"]], on=[*CONFIG, "seed"])
    if missing := {"trial_id", "epoch", data.metric} - {*frame}:
        raise RequestError(f"{file}: expected columns {', '.join(sorted(missing))}, found none")
    own = frame[frame["trial_id"].isin({*trials})]
    return own[["trial_id", "epoch", data.metric]].assign(time_s=np.nan)


def read_trials(file: str) -> pd.DataFrame:
    """A Parquet file, of this machine or an object store; RequestError where it cannot be read."""
    try:
        if "://" in file or os.path.isdir(file):  # of which each part has pages with checksums
            table = pq.read_table(file, page_checksum_verification=True)
            metadata = table.schema.metadata
        else:
            folder, name = os.path.split(os.path.realpath(file))
            data = Disk(folder).read(name)
            table, metadata = decode_table(data, of_others=True), schema_of(data).metadata
        # Where pandas keeps an index without a name: the number of a row is no setting.
        index = [n for n in table.column_names if re.fullmatch(r"__index_level_\d+__", n)]
        frame = to_frame(table.drop_columns(index))
        frame.attrs = {OPTIONS_KEY: _own_options(metadata or {})}
        return frame
    except FileNotFoundError:
        raise RequestError(f"{file}: expected a Parquet file of trials, found none") from None
    except RequestError:
        raise
    except (OSError, ValueError, LookupError, TypeError, pa.ArrowException) as error:
        expected = "cannot be read as a table of trials"
        raise RequestError(f"{file}: {expected}: {first_line(error)}") from None
