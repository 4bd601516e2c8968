"""What a report is made of, gathered from results folders or from a table of trials."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from clsweep.errors import RequestError, nearest
from clsweep.objective.catalog import DATASET, METRIC, METRICS, OBJECTIVE_PARTS, PARAM, SELECTED_PARTS
from clsweep.objective.ownership import YARDSTICK_PARAMS, default_of
from clsweep.report.material import Material
from clsweep.results.tables import ID_FIELDS, OUTCOME_FIELDS, params_in

if TYPE_CHECKING:
    import pandas as pd

    from clsweep.analysis.sweep import Sweep
    from clsweep.api import Results

_VOTES = {"knn_top1": 1, "knn_top5": 5, "linear_top1": 1, "linear_top5": 5}  # guesses that a metric allows
SPLIT_COLUMNS = ("dataset", "val_fraction", "image_size", "num_train", "num_classes", "images_digest")
_SYMBOLS = {name: param.symbol or name for name, param in PARAM.items()}


def of_studies(studies: Sequence[Results], *, metric: str | None = None, mode: str | None = None) -> Material:
    """The trials of one or several results folders; of several, an objective is called `study/objective`.

    Args:
        studies: opened results folders.
        metric: a column of the trials; by default the one that the studies optimised.
        mode: "max" or "min", to be said of a metric that is neither the catalog's nor the studies' own.

    Raises:
        RequestError: no trial has ended, there is no such metric, or the studies optimised different ones.
    """
    for study in studies:
        if study.trials.empty:
            raise RequestError(f"{study.path}: no trial has finished yet; see clsweep status {study.path}")
    asked = list(dict.fromkeys((s.metric, s.mode) for s in studies))
    if metric is None and len(asked) > 1:
        raise RequestError(f"the studies optimised different metrics: {', '.join(m for m, _ in asked)}; choose one")
    name = metric or asked[0][0]
    mode = _mode(name, mode, dict(asked).get(name), studies[0].path)
    prefixes = _prefixes(studies)
    trials = _together(studies, prefixes, _as_asked)
    planned = {
        prefix + objective: count
        for study, prefix in zip(studies, prefixes, strict=True)
        for objective, count in _planned(study).items()
    }
    params = tuple(params_in(trials.columns))
    scales = {name: scale for study in studies for name, scale in _scales(study.study).items()}
    sweeps = _sweeps(trials, studies[0].path, name, mode, params, planned, scales, _bounds(studies))
    return Material(
        title=", ".join(dict.fromkeys(str(study.study["name"]) for study in studies)),
        sources=tuple(study.path for study in studies),
        metric=name,
        unit=METRIC[name].unit if name in METRIC else "",
        mode=mode,
        params=params,
        symbols=_SYMBOLS,
        sweeps=sweeps,
        chance=_chance(studies, name),
        defaults=_defaults(trials, params),
        notes=(*(note for study in studies for note in _notes(study)), *_differences(studies)),
        within=_within(name, sweeps),
        yardsticks=_yardsticks(studies, prefixes, name),
        trials=trials,
    )


def side_table(studies: Sequence[Results], kind: str, *, metric: str) -> pd.DataFrame:
    """What only a report asks for: references, histograms (of the last scored epoch), points, confirmation."""
    return _together(studies, _prefixes(studies), partial(_side_table, kind=kind, metric=metric))


def of_trials(
    trials: pd.DataFrame,
    *,
    source: str = "table",
    metric: str | None = None,
    mode: str | None = None,
    params: Sequence[str] | None = None,
) -> Material:
    """A table of trials that came from anywhere, with the columns that `analysis.sweep.read_sweeps` asks for.

    Args:
        trials: one row a trial.
        source: what messages call it.
        metric: by default the first of the known metrics that it has.
        mode: "max" or "min", to be said of a metric that is not the catalog's.
        params: the hyperparameters; by default every column that a trials table does not have for something else and
            that has one value in each configuration; with one seed, where an outcome has that too, the known ones.

    Raises:
        RequestError: a column is missing, or says what it cannot.
    """
    columns = [str(column) for column in trials.columns]
    known = [m.name for m in METRICS if m.name in columns]
    scored = [m for m in known if trials[m].notna().any()]
    name = metric or next(iter([*scored, *known]), "")
    if name not in columns:
        asked = f"no column {name!r}.{nearest(name, columns)}" if name else "none of the known metrics; name one."
        raise RequestError(f"{source}: metric: {asked} Columns: {', '.join(columns)}")
    taken = {field.name for field in (*ID_FIELDS, *OUTCOME_FIELDS)} | {name}
    others = [column for column in columns if column not in taken]
    swept = tuple(others if params is None else params)
    if params is None and _has_repeats(trials):
        swept = tuple(column for column in others if _is_setting(trials, column))
    elif params is None:
        swept = tuple(params_in(others))
        if others and not swept:
            why = "with one trial in each configuration they cannot be told from outcomes"
            raise RequestError(f"{source}: params: {why}; name them. Columns: {', '.join(others)}")
    left_out = [column for column in others if params is None and column not in swept]
    mode = _mode(name, mode, None, source)
    sweeps = _sweeps(trials, source, name, mode, swept)
    if "trial_id" not in trials:
        ids = [trials[column].astype(str) for column in ("objective", "config", "seed")]
        trials = trials.assign(trial_id=ids[0] + "-" + ids[1] + "-s" + ids[2])
    return Material(
        title=source,
        sources=(source,),
        trials=trials,
        metric=name,
        unit=METRIC[name].unit if name in METRIC else "",
        mode=mode,
        params=swept,
        symbols=_SYMBOLS,
        sweeps=sweeps,
        chance=_chance_of(name, trials["num_classes"]) if "num_classes" in trials else None,
        defaults=_defaults(trials, swept),
        notes=(f"read as hyperparameters: {', '.join(swept)}; not: {', '.join(left_out)}",) if left_out else (),
        within=_within(name, sweeps),
    )


def _mode(metric: str, asked: str | None, known: str | None, source: str) -> str:
    """Which values of a metric are best: as the study or the catalog knows, else as asked."""
    known = known or (METRIC[metric].mode if metric in METRIC else None)
    if asked is not None and known is not None and asked != known:
        raise RequestError(f"{source}: mode of metric {metric!r}: expected {known!r}, which is best, got {asked!r}")
    if asked is None and known is None:
        raise RequestError(f"{source}: mode of metric {metric!r}: expected 'max' or 'min' is best, nothing says which")
    return str(asked or known)


def _within(metric: str, sweeps: Sequence[Sweep]) -> float:
    """One point of a percentage; of another metric a twentieth of the range of its levels, rounded to 1, 2 or 5."""
    import numpy as np

    if metric in METRIC and METRIC[metric].unit == "%":
        return 1.0
    levels = np.concatenate([sweep.means[sweep.alive] for sweep in sweeps])
    part = float(np.ptp(levels)) / 20 if len(levels) else 0.0
    if part <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(part))
    return float(f"{max(step for step in (1, 2, 5) if step * power <= part * (1 + 1e-9)) * power:.1g}")


def _has_repeats(trials: pd.DataFrame) -> bool:
    """Whether any configuration has two trials; without, an outcome looks like a setting."""
    keys = ["objective", "config"]
    return not set(keys) <= set(trials.columns) or bool(trials.duplicated(keys).any())


def _is_setting(trials: pd.DataFrame, column: str) -> bool:
    """Whether a column has one value in each configuration."""
    keys = ["objective", "config"]
    if not set(keys) <= set(trials.columns):
        return True  # what is missing is said elsewhere
    try:
        return len(trials[[*keys, column]].drop_duplicates()) == len(trials[keys].drop_duplicates())
    except TypeError:  # lists and the like
        return False


def trials_file(path: str) -> str:
    """The Parquet file of trials that `path` is, or that a folder which is no study's holds; empty if there is none."""
    if path.endswith(".parquet"):
        return path
    table = os.path.join(path, "trials.parquet")
    return table if os.path.isfile(table) and not os.path.exists(os.path.join(path, "study.yaml")) else ""


def read_trials(file: str) -> pd.DataFrame:
    """A Parquet file, of this machine or an object store.

    Raises:
        RequestError: it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from clsweep.results.store import to_frame

    try:
        return to_frame(pq.read_table(file))
    except FileNotFoundError:
        raise RequestError(f"{file}: expected a Parquet file of trials, found none") from None
    except (OSError, pa.ArrowException) as error:
        raise RequestError(f"{file}: cannot be read as a table of trials: {str(error).splitlines()[0]}") from None


def _sweeps(
    trials: pd.DataFrame,
    source: str,
    metric: str,
    mode: str,
    params: Sequence[str],
    planned: Mapping[str, int] | None = None,
    scales: Mapping[str, str] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
) -> tuple[Sweep, ...]:
    from clsweep.analysis.sweep import read_sweeps

    space: dict[str, Any] = {"planned": planned, "scales": scales, "bounds": bounds}
    try:
        return tuple(read_sweeps(trials, metric=metric, params=params, mode=mode, **space))
    except (ValueError, TypeError) as error:  # a TypeError: of a column of lists and the like
        raise RequestError(f"{source}: {error}") from None


def _prefixes(studies: Sequence[Results]) -> list[str]:
    """What tells the objectives of several studies apart: the study's name, or its folder's where names are equal."""
    if len(studies) == 1:
        return [""]
    names = [str(study.study["name"]) for study in studies]
    if len(set(names)) < len(names):
        names = [study.path.rstrip("/").rpartition("/")[2] for study in studies]
    if len(set(names)) < len(names):
        names = [study.path.rstrip("/") for study in studies]
    if len(set(names)) < len(names):
        raise RequestError(f"the same results folder is given twice: {', '.join(names)}")
    return [f"{name}/" for name in names]


def _together(
    studies: Sequence[Results], prefixes: Sequence[str], table_of: Callable[[Results], pd.DataFrame]
) -> pd.DataFrame:
    import pandas as pd

    frames = [_named(table_of(study), prefix) for study, prefix in zip(studies, prefixes, strict=True)]
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def _side_table(study: Results, kind: str, metric: str) -> pd.DataFrame:
    import pandas as pd

    if kind == "confirmation":  # by the study's own metric; of another one nothing was confirmed
        is_asked = study.folder.confirmation.exists() and metric == study.metric
        return study.confirm() if is_asked else pd.DataFrame()
    table: pd.DataFrame = getattr(study, kind)
    if kind == "histograms" and not table.empty:  # of the last epoch that was scored
        table = table[table["epoch"] == table.groupby("trial_id")["epoch"].transform("max")]
    return table


def _named(table: pd.DataFrame, prefix: str) -> pd.DataFrame:
    names = [column for column in ("objective", "trial_id") if prefix and column in table]
    return table.assign(**{column: prefix + table[column].astype(str) for column in names})


def _planned(study: Results) -> dict[str, int]:
    """Configurations of the plan, by objective."""
    plan = study.folder.plan(["objective", "config"])
    counts = plan.group_by("objective").aggregate([("config", "count_distinct")])
    return dict(zip(counts["objective"].to_pylist(), counts["config_count_distinct"].to_pylist(), strict=True))


def _as_asked(study: Results) -> pd.DataFrame:
    """The trials by what the study asked of them: `auto` is one configuration, whatever the devices made of it."""
    trials = study.trials
    plan = study.folder.plan(["trial_id", "precision"])
    if "precision" not in trials or "precision" not in plan.column_names:
        return trials
    if "auto" not in plan["precision"].unique().to_pylist():
        return trials
    asked = trials["trial_id"].map(plan.to_pandas().set_index("trial_id")["precision"])
    return trials.assign(precision=asked.fillna(trials["precision"]))


def _ranges(study: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The hyperparameters that a study draws from a range, in the shared space and in those of the objectives."""
    spaces = [study.get("space") or {}, *((spec or {}).get("space") or {} for spec in study["objectives"].values())]
    return [
        (name, dimension)
        for space in spaces
        for name, dimension in space.items()
        if isinstance(dimension, Mapping) and "low" in dimension
    ]


def _scales(study: Mapping[str, Any]) -> dict[str, str]:
    """The axes of the ranges of a study; other dimensions show theirs by their values."""
    return {name: "log" if dimension.get("log") else "linear" for name, dimension in _ranges(study)}


def _bounds(studies: Sequence[Results]) -> dict[str, tuple[float, float]]:
    """Ends of the ranges that were sampled; none where objectives or studies have different ones, or of a grid."""
    ends: dict[str, set[tuple[float, float] | None]] = {}
    for study in studies:
        is_grid = (study.study.get("search") or {}).get("method", "grid") == "grid"
        for name, dimension in _ranges(study.study):
            ends.setdefault(name, set()).add(None if is_grid else (float(dimension["low"]), float(dimension["high"])))
    single = {name: next(iter(found)) for name, found in ends.items() if len(found) == 1}
    return {name: found for name, found in single.items() if found is not None}


def _chance(studies: Sequence[Results], metric: str) -> float | None:
    """Metric of a guess, percent; none where the studies differ."""
    import pandas as pd

    counts = [_num_classes(study) for study in studies]
    return _chance_of(metric, pd.Series(counts))


def _chance_of(metric: str, num_classes: pd.Series[Any]) -> float | None:
    if metric not in _VOTES or num_classes.nunique(dropna=False) != 1 or num_classes.isna().any():
        return None
    return 100 * _VOTES[metric] / float(num_classes.iloc[0])


def _num_classes(study: Results) -> float:
    plan = study.folder.plan(["num_classes"])
    if plan.num_columns:
        return float(plan["num_classes"][0].as_py() or math.nan)
    return float(DATASET[study.study["dataset"]["name"]].num_classes)  # of an earlier version


def _defaults(trials: pd.DataFrame, params: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The catalog's default of every hyperparameter in each objective, as its parts and selections have it."""
    if not {"objective", *OBJECTIVE_PARTS} <= set(trials.columns):
        return {}
    names = [name for name in params if name in PARAM]
    defaults = {}
    for objective, row in trials.drop_duplicates("objective").set_index("objective").iterrows():
        parts: dict[str, str] = {part: str(row[part]) for part in OBJECTIVE_PARTS}
        selected: dict[str, str] = {part: str(row[part]) for part in SELECTED_PARTS if isinstance(row.get(part), str)}
        try:
            defaults[str(objective)] = {name: default_of(name, parts, **selected) for name in names}
        except KeyError:  # a part that this version does not know
            continue
    return defaults


def _yardsticks(studies: Sequence[Results], prefixes: Sequence[str], metric: str) -> dict[str, str]:
    """What the scores of each objective depend on beside its encoder, where the studies differ in that."""
    names = [*SPLIT_COLUMNS, *_yardstick_params(metric)]
    found: dict[str, dict[str, Any]] = {}
    for study, prefix in zip(studies, prefixes, strict=True):
        trials = study.trials
        for objective, row in trials.drop_duplicates("objective").set_index("objective").iterrows():
            found[prefix + str(objective)] = {name: row[name] for name in names if name in trials}
    differing = [name for name in names if len({str(values.get(name)) for values in found.values()}) > 1]
    return {
        objective: ", ".join(f"{name} {values.get(name, 'unknown')}" for name in differing)
        for objective, values in found.items()
    }


def _yardstick_params(metric: str) -> list[str]:
    """The hyperparameters of the score itself."""
    probed = metric.startswith("linear")
    return [name for name in YARDSTICK_PARAMS if name.startswith("knn") != probed]


def _differences(studies: Sequence[Results]) -> list[str]:
    """What is fixed in each of several studies and differs between them: a reader may take it for the objective's."""
    fixed = []
    for study in studies:
        trials = study.trials
        names = [name for name in (*SPLIT_COLUMNS, *params_in(trials.columns)) if name in trials]
        values = {name: trials[name].dropna().unique() for name in names}
        fixed.append({name: str(each[0]) for name, each in values.items() if len(each) == 1})
    shared = [name for name in fixed[0] if all(name in values for values in fixed)] if fixed else []
    differing = [name for name in shared if len({values[name] for values in fixed}) > 1]
    listed = [f"{name} ({' / '.join(values[name] for values in fixed)})" for name in differing]
    return [f"the studies differ in what each of them holds fixed: {', '.join(listed)}"] if listed else []


def _notes(study: Results) -> list[str]:
    """What a reader must know before the numbers: that more is to come, or that devices differed."""
    num_planned = study.folder.plan(["trial_id"]).num_rows
    left = num_planned - len(study.trials)
    notes = []
    if left > 0:
        state = "still running" if study.folder.is_running() else "not finished"
        notes.append(f"{study.study['name']}: {state}; {left} of {num_planned} trials are left")
    if "precision" in study.trials:
        finished = study.trials.loc[study.trials["status"] == "finished", ["objective", "config", "precision"]]
        different = finished.drop_duplicates().duplicated(["objective", "config"])
        if names := list(dict.fromkeys(finished.drop_duplicates()["objective"][different])):
            advice = "one configuration in several precisions; set base.precision to have one"
            notes.append(f"{', '.join(names)}: {advice}")
    return notes
