"""Study data from results folders, and a paper's numbers with their trials."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.types import is_numeric_dtype

from clsweep.analysis.contrast import Contrast
from clsweep.analysis.image_intervals import IMAGES, NEW, TrialHits
from clsweep.analysis.reproduce import Printed
from clsweep.catalog import DATASET, DIAGNOSTICS, METRIC
from clsweep.catalog.ownership import contrasts_classes, evaluation_params, metric_params
from clsweep.display.numbers import setting
from clsweep.errors import RequestError, nearest
from clsweep.results.reading import StudyTables, to_frame
from clsweep.results.schemas import SPLIT_COLUMNS
from clsweep.study.document import clash
from clsweep.study.paper_tables import PaperTable, parse_paper_table
from clsweep.study.space import declared_axes, declared_spaces, only_swept
from clsweep.sweeps import study_data
from clsweep.sweeps.fresh_seeds import fresh_scores, on_fresh_seeds, top_of
from clsweep.sweeps.notes import CAPACITY, OF_A_LOSS, SCORED_ON_TEST, SIZES, WITH_LABELS
from clsweep.sweeps.per_image import hits_in
from clsweep.sweeps.study_data import LOSSES, Confirming, StudyData, contrasts_of
from clsweep.sweeps.tidy import LABEL_NAMES

T = TypeVar("T")
Named = Mapping[str, StudyTables]  # what stands before the names of a study's objectives -> it

ADVISED_FRESH = 3  # seeds
DATA_COLUMNS = ("dataset", *SPLIT_COLUMNS)

# What a trial is called, and what changes how its numbers are computed but not what they are of.
NOT_FIXED = frozenset(
    {"trial_id", "study", "objective", "config", "seed", "sampler", "images_digest"}
    | {"precision", "chunk_size", "eval_every", "tsne_points"}
)

# An image folder by its number of classes, as papers' tables name it.
FOLDERS = {100: "imagenet100", 1000: "imagenet1k"}


def of_studies(
    studies: Sequence[StudyTables],
    *,
    metric: str | None = None,
    mode: str | None = None,
    failed: str = "worst",
    images: str = "new",
) -> StudyData:
    """The trials of one or several results folders, read as `clsweep.open_results` says; of
    several, an objective is called `study/objective`.

    RequestError where no trial has ended, there is no such metric, the studies optimised different
    ones, or have different plug-ins of one name, or one of several has factors.
    """
    if images not in IMAGES:
        raise RequestError(f"images: expected {' or '.join(IMAGES)}, given {images!r}")
    _require_alike(studies)
    name, mode = _metric_of(studies, metric, mode)
    named = _named(studies)
    trials = _together(named, lambda study: study.trials)
    axes = _by_objective(named, lambda s: declared_axes(s.study, s.trials.columns))
    chance = study_data.chance_score(name, pd.Series([_num_classes(study) for study in studies]))
    scales, bounds = _ranges(studies)
    reading: dict[str, Any] = {"failed": failed, "chance": chance, "scales": scales}
    planned = _by_objective(named, _planned)
    reading |= {"bounds": bounds, "planned": {name: num for name, (num, _) in planned.items()}}
    swept = _together(named, lambda study: only_swept(study.study, study.trials))
    sweeps = study_data.sweeps_of(swept, studies[0].path, name, mode, axes, **reading)
    hits = TrialHits(lambda: _hits(named, name))
    contrasts = tuple(c for at, study in named.items() for c in _contrasts(study, at, name))
    metrics = {each.metric for each in contrasts if each.metric in METRIC and each.metric in trials}
    again = _by_objective(named, lambda s: fresh_scores(s, name))
    known: dict[str, Any] = {"hits": hits if images == NEW else None}
    sweeps = tuple(
        replace(s, planned_seeds=planned[n][1], fresh=again.get(n, {}), **known)
        for s in sweeps for n in [s.objective]
    )  # fmt: skip
    yardsticks = yardsticks_of(named, name)
    return StudyData(
        trials=trials,
        metric=name,
        unit=study_data.unit_of(name),
        params=tuple(n for n in trials.columns if n in {*sum(axes.values(), ())}),
        sweeps=sweeps,
        within=study_data.near_of(study_data.unit_of(name), sweeps, yardsticks),
        title=", ".join(dict.fromkeys(str(study.study["name"]) for study in studies)),
        question=" ".join(dict.fromkeys(map(_question_of, studies))).strip(),
        sources=tuple(study.path for study in studies),
        mode=mode,
        notes=tuple(_notes_on(named, name)),
        left=sum(study.num_left for study in studies if not study.search_end),
        on_test=all(study.score_on == "test" for study in studies),
        yardsticks=yardsticks,
        confirmable=_confirmable(named, name),
        confirming={study.path: _confirming(study) for study in studies},
        contrasts=contrasts,
        search_objectives=_search_objectives(studies),
        base=_base_of(named),
        hits={m: TrialHits(partial(_hits, named, m)) for m in metrics if images == NEW},
    )


def _search_objectives(studies: Sequence[StudyTables]) -> tuple[str, ...]:
    searches = [study.study.get("search") or {} for study in studies]
    return tuple(dict.fromkeys(name for each in searches for name in each.get("objectives") or ()))


def _question_of(study: StudyTables) -> str:
    """The study's own question in one line that ends as a sentence does."""
    text = " ".join(study.study.get("question", "").split())
    return f"{text}." if text and text[-1] not in ".?!" else text


def _base_of(named: Named) -> dict[str, dict[str, Any]]:
    """Objective -> what its study sets, which may be swept too."""
    return {
        f"{before}{name}": {**(tree.get("base") or {}), **((own or {}).get("base") or {})}
        for before, study in named.items()
        for tree in [study.study]
        for name, own in tree["objectives"].items()
    }


def _require_alike(studies: Sequence[StudyTables]) -> None:
    """Raises RequestError where studies cannot be analysed together."""
    for study in studies if len(studies) > 1 else ():
        if study.factors:
            expected = f"a study with factors ({', '.join(study.factors)}) is analysed alone"
            raise RequestError(f"{study.path}: {expected}, given {len(studies)} folders")
    for first, second in itertools.combinations(studies, 2):
        if ours := clash(first.folder.document().plugins, second.folder.document().plugins):
            why = f"have different versions of {ours}; analyse them apart"
            raise RequestError(f"{first.path} and {second.path} {why}")


def _hits(named: Mapping[str, StudyTables], metric: str) -> pd.DataFrame:
    """Those of all studies; none where one has none."""
    tables = {
        study.path: hits_in(study.folder, study.trials, metric, split=study.score_on, column=metric)
        for study in named.values()
    }
    table = _together(named, lambda study: tables[study.path])
    return table if all(map(len, tables.values())) else table.iloc[:0]


def epochs_of(
    studies: Sequence[StudyTables], trials: Collection[str], *, metric: str
) -> pd.DataFrame:
    """trial_id, epoch, time_s and the metric of some trials, whose rows alone become pandas'."""
    named = _named(studies)
    bare = dict.fromkeys(name.removeprefix(p) for name in trials for p in ("", *named))
    ids = pa.array(bare, pa.string())

    def read(study: StudyTables) -> pd.DataFrame:
        table = study.folder.side_table("epochs")
        names = [n for n in ("trial_id", "epoch", "time_s", metric) if n in table.column_names]
        return to_frame(table.select(names).filter(pc.is_in(table["trial_id"], ids)))

    return _together(named, read)


def side_table(studies: Sequence[StudyTables], kind: str, data: StudyData) -> pd.DataFrame:
    """A table that only a report needs: references, histograms (of the last scored epoch), points,
    confirmation, versions. `data` has the metric, and which images intervals are for.
    """
    named, metric = _named(studies), data.metric

    def read(study: StudyTables) -> pd.DataFrame:
        if kind == "confirmation":
            if not study.is_confirmed:
                return pd.DataFrame()
            new = data.images == "new images"
            return on_fresh_seeds(study, new_images=new, by=(metric, data.mode))
        if kind == "versions":
            return pd.DataFrame(study.versions)
        table: pd.DataFrame = getattr(study, kind)
        if kind == "histograms" and not table.empty:
            table = table[table["epoch"] == table.groupby("trial_id")["epoch"].transform("max")]
        if kind == "references":
            own = [name for name, each in named.items() if each is study]
            yardstick = (text for at, text in yardsticks.items() if at.startswith(own[0]))
            table = table.assign(yardstick=next(yardstick, ""))
        return table

    yardsticks = yardsticks_of(named, metric) if kind == "references" else {}
    return _together(named, read)


def _metric_of(
    studies: Sequence[StudyTables], metric: str | None, mode: str | None
) -> tuple[str, str]:
    """The metric, which all studies have, and its mode."""
    for study in studies:
        if study.trials.empty:
            see = f"see clsweep status {study.path}"
            raise RequestError(f"{study.path}: no trial has finished yet; {see}")
    own_metrics = list(dict.fromkeys((s.metric, s.mode) for s in studies))
    if metric is None and len(own_metrics) > 1:
        names = ", ".join(name for name, _ in own_metrics)
        raise RequestError(f"the studies optimised different metrics: {names}; choose one metric")
    name = metric or own_metrics[0][0]
    for study in studies:
        trials, place = study.trials, f"{study.path}: metric"
        is_there = name in trials
        if name in (*LABEL_NAMES, *study.params) or (
            is_there and not is_numeric_dtype(trials[name])
        ):
            raise RequestError(f"{place}: expected a column of scores, given {name!r}")
        if not is_there:
            scored = ", ".join(m for m in METRIC if m in trials and trials[m].notna().any())
            hint = nearest(name, map(str, trials.columns))
            raise RequestError(
                f"{place}: no column {name!r}.{hint} Known metrics: {scored or 'none'}; any other "
                "column needs a mode"
            )
    return name, study_data.mode_of(name, mode, dict(own_metrics).get(name), studies[0].path)


def _named(studies: Sequence[StudyTables]) -> dict[str, StudyTables]:
    """Prefix of objectives that tells several studies apart: the study's name, or its folder's."""
    if len(studies) == 1:
        return {"": studies[0]}
    paths = [study.path.rstrip("/") for study in studies]
    names = [str(study.study["name"]) for study in studies]
    for others in ([path.rpartition("/")[2] for path in paths], paths):
        if len(set(names)) < len(names):
            names = others
    if len(set(names)) < len(names):
        raise RequestError(f"the same results folder is given twice: {', '.join(names)}")
    return {f"{name}/": study for name, study in zip(names, studies, strict=True)}


def _together(named: Named, table_of: Callable[[StudyTables], pd.DataFrame]) -> pd.DataFrame:
    frames = []
    for prefix, study in named.items():
        table = table_of(study)
        names = [column for column in ("objective", "trial_id") if prefix and column in table]
        frames.append(table.assign(**{n: prefix + table[n].astype(str) for n in names}))
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else [*frames, pd.DataFrame()][0]


def _by_objective(named: Named, read: Callable[[StudyTables], Mapping[str, T]]) -> dict[str, T]:
    """Values of each objective of a study, under its name among all of them."""
    return {
        prefix + objective: value
        for prefix, study in named.items()
        for objective, value in read(study).items()
    }


def _planned(study: StudyTables) -> dict[str, tuple[int, int]]:
    """Configurations of the plan, and seeds of one, by objective."""
    plan = study.planned(["objective", "config"]).to_pandas()
    counts = {str(n): each.value_counts() for n, each in plan.groupby("objective")["config"]}
    return {name: (len(each), int(each.max())) for name, each in counts.items()}


def _ranges(
    studies: Sequence[StudyTables],
) -> tuple[dict[str, str], dict[str, tuple[float, float]]]:
    """The axes of the ranges, and the ends of those that were sampled alike everywhere."""
    scales: dict[str, str] = {}
    ends: dict[str, set[tuple[float, float] | None]] = {}
    for study in studies:
        is_grid = (study.study.get("search") or {}).get("method", "grid") == "grid"
        for space in declared_spaces(study.study).values():
            for name, dimension in space.items():
                if isinstance(dimension, Mapping) and "low" in dimension:
                    scales[name] = "log" if dimension.get("log") else "linear"
                    both = float(dimension["low"]), float(dimension["high"])
                    ends.setdefault(name, set()).add(None if is_grid else both)
    single = {name: next(iter(values)) for name, values in ends.items() if len(values) == 1}
    return scales, {name: values for name, values in single.items() if values is not None}


def _num_classes(study: StudyTables) -> float:
    plan = study.planned(["num_classes"])
    if plan.num_columns:
        return float(plan["num_classes"][0].as_py() or math.nan)
    return float(DATASET[study.study["dataset"]["name"]].num_classes)  # of an earlier version


def yardsticks_of(named: Named, metric: str) -> dict[str, str]:
    """The evaluation that each objective's scores depend on, where studies differ in that."""
    own = ["loss of"] if metric in LOSSES else []
    names = [*DATA_COLUMNS, *metric_params(metric), *own]
    protocols: dict[str, dict[str, Any]] = {}
    for prefix, study in named.items():
        trials = study.trials
        for objective, row in trials.drop_duplicates("objective").set_index("objective").iterrows():
            protocols[prefix + str(objective)] = {
                "score_on": study.score_on,  # no column in earlier versions
                "loss of": objective,
                # a column that is empty says as little as one that is not there
                **{n: row[n] for n in names if n in trials and not pd.isna(row[n])},
            }
    differing = [n for n in names if len({str(values.get(n)) for values in protocols.values()}) > 1]

    def texts_by(num: int) -> dict[str, str]:
        return {
            objective: ", ".join(f"{n} {values.get(n, 'unknown')}" for n in differing[:num])
            for objective, values in protocols.items()
        }

    every = len(set(texts_by(len(differing)).values()))  # by the first names that tell them apart
    fewest = (texts_by(num) for num in range(len(differing) + 1))
    return next(texts for texts in fewest if len(set(texts.values())) == every or not texts)


def _differences(named: Named) -> list[str]:
    """Notes on values that objectives hold fixed, each at another: a cause of other differences."""
    fixed: dict[str, dict[str, None]] = {}  # hyperparameter -> its values, in their order
    for study in named.values():
        names = [n for n in dict.fromkeys((*DATA_COLUMNS, *study.params)) if n in study.trials]
        for _, own in study.trials.groupby("objective", sort=False):
            is_trained = "epochs" not in own or own["epochs"].ne(0).any()
            for name in names if is_trained else ():
                values = own[name].dropna().unique()
                if len(values) == 1:
                    fixed.setdefault(name, {})[setting(values[0])] = None
    listed = [f"{name} ({', '.join(each)})" for name, each in fixed.items() if len(each) > 1]
    return [f"objectives differ in what they hold fixed: {', '.join(listed)}"] * bool(listed)


def _is_again(study: StudyTables) -> bool:
    """True if it is the folder inside another, of what `clsweep confirm` ran."""
    return "confirm" in study.planned(["sampler"])["sampler"].unique().to_pylist()


def _confirmable(named: Named, metric: str) -> dict[str, str]:
    """Objective -> the folder in which its best by the metric can be run again."""
    return {
        prefix + objective: study.path
        for prefix, study in named.items()
        if study.metric == metric and not _is_again(study)
        for objective in study.study["objectives"]
    }


def _confirming(study: StudyTables) -> Confirming:
    """The seeds that the study names, or as many as it has, three or more, after the last of
    them: the interval of two is 13 standard errors wide.
    """
    named, seeds = (study.study.get("confirm") or {}).get("seeds"), study.study["seeds"]
    first, num = max(seeds) + 1, max(len(seeds), ADVISED_FRESH)
    fresh = tuple(named or range(first, first + num))
    return Confirming(top=top_of(study.study), seeds=fresh, is_named=bool(named))


def _contrasts(study: StudyTables, before: str, metric: str) -> Iterator[Contrast]:
    """Those of a study; by another metric than its own they are asked later, and no paper's. By a
    loss none is of two objectives, each of which has a scale of its own.
    """
    for each in contrasts_of(study.study, before):
        if metric in LOSSES and each.metric == study.metric != metric and len(each.of) > 1:
            continue
        if each.metric == study.metric != metric:
            later: dict[str, Any] = {"published": math.nan, "added_after": len(study.trials)}
            if study_data.unit_of(metric) != study_data.unit_of(study.metric):
                later["margin"] = math.nan
            each = replace(each, metric=metric, **later)
        yield each


def _notes_on(named: Named, metric: str) -> Iterator[str]:
    """Notes that stand before the numbers, as that more is to come."""
    if metric in LOSSES:
        yield OF_A_LOSS.format(metric=metric)
    for study in named.values():
        name, left = study.study["name"], study.num_left
        if _is_again(study):
            search = os.path.dirname(study.path) or ".."
            yield f"{name}: fresh seeds alone; with those of the search: clsweep report {search}"
        if study.score_on == "test":
            yield f"{name}: {SCORED_ON_TEST}"
        sections = study.study["objectives"].items()
        if names := [n for n, section in sections if contrasts_classes(section.get("framework"))]:
            yield WITH_LABELS.format(names=" and ".join(names))
        swept = {name for space in declared_spaces(study.study).values() for name in space}
        if sizes := [size for size in SIZES if size in swept]:
            yield CAPACITY.format(names=" and ".join(sizes))
        if end := study.search_end:
            yield f"{name}: {end}"
        elif left > 0:
            state = "still running" if study.folder.is_running() else "not finished"
            planned = study.folder.plan(["trial_id"]).num_rows
            yield f"{name}: {state}; {left} of {planned} trials are left"
    yield from _differences(named)


# A paper's numbers


def printed_of(study: StudyTables, *, within: float | None = None) -> list[Printed]:
    """The tables of a folder's `references`, none where it has none. `within` is the largest
    difference that agrees: 1 point by default, of another unit about a twentieth of the range that
    was printed, or its last decimal.
    """
    if not (files := study.folder.paper_tables()):
        return []
    cells = _with_folders(to_frame(study.folder.paper_cells()))
    trials = _with_folders(study.trials)
    tables = [parse_paper_table(text, study.folder.place(name)) for name, text in files.items()]
    return [printed_table(table, trials, cells, within) for table in tables if table.rows]


def printed_table(
    table: PaperTable, trials: pd.DataFrame, cells: pd.DataFrame, within: float | None = None
) -> Printed:
    """One table with the trials of a run and the cells at the paper's scale."""
    rows = pd.DataFrame(list(table.rows))
    decimals = rows["value"].str.partition(".")[2].str.len()
    numbers = {name: pd.to_numeric(rows[name]).astype(float) for name in ("value", "spread")}
    for name in table.settings:  # numbers, empty cells NaN; texts where one is no number
        given = rows[name].where(rows[name] != "")
        values = pd.to_numeric(given, errors="coerce")
        if values.notna().equals(given.notna()):
            numbers[name] = values.astype(float)
    rows = rows.assign(**numbers, rounding=10.0**-decimals)
    units = {row.name: row.unit for row in METRIC.values()}
    units |= {row.name: row.unit for row in DIAGNOSTICS}
    fixed, allowed = {}, {}
    for name in rows["metric"].unique():
        own = rows[rows["metric"] == name]
        # The columns of a plan that the numbers of a metric depend on.
        others = set(evaluation_params())
        if name in METRIC:
            others -= set(metric_params(name))
        fixed[name] = tuple(c for c in map(str, cells.columns) if c not in NOT_FIXED | others)
        width = float(own["value"].max() - own["value"].min())
        least = max(
            study_data.tolerance_of(units.get(name, "%"), width), float(own["rounding"].max())
        )
        allowed[name] = least if within is None else within
    return Printed(
        paper=table.first("paper"),
        item=table.first("item"),
        rows=rows,
        settings=table.settings,
        trials=trials,
        cells=cells,
        fixed=fixed,
        within=allowed,
        reference_only=table.reference_only,
        stand_ins=table.stand_ins,
    )


def _with_folders(table: pd.DataFrame) -> pd.DataFrame:
    """With the image folders under the names of the papers' tables."""
    folders = table["num_classes"].map(FOLDERS)
    is_folder = (table["dataset"] == "imagefolder") & folders.notna()
    return table.assign(dataset=table["dataset"].where(~is_folder, folders))
