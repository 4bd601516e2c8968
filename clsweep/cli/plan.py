"""The rows that `clsweep catalog` and `clsweep plan` print, at once: without a table library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clsweep.analysis import MIN_SAMPLED
from clsweep.catalog import (
    COMPONENT,
    DATASET,
    DATASETS,
    DIAGNOSTICS,
    METRIC,
    METRICS,
    OBJECTIVE_PARTS,
    PARAM,
    PARAMS,
    Part,
)
from clsweep.catalog.open_encoders import ROWS
from clsweep.catalog.ownership import ALL_THERE_IS, aliases, losses_on, owners_of
from clsweep.catalog.rows import Row
from clsweep.cli.image_storage import room_notes, store_lines
from clsweep.cluster.resources import require_capacity, require_files, this_machine
from clsweep.data.locations import AbsentError
from clsweep.display.numbers import count, number, setting, setting_column
from clsweep.errors import RequestError, listed, nearest
from clsweep.study.cautions import asha_notes, rate_notes
from clsweep.study.design import Study, count_configs, num_saved, plan_row, plan_trials, sampler_of
from clsweep.study.document import shipped_studies, study_question
from clsweep.study.factors import FactorCell, factor_cells, factors_of, merged_lines, split_name
from clsweep.study.paper_tables import checked_files, parse_paper_table
from clsweep.study.schema import FIRST_SEEDS, LIVE_METHODS
from clsweep.sweeps.notes import CAPACITY, SCORED_ON_TEST, SIZES

_PLURAL: dict[Part, str] = {
    "framework": "frameworks", "loss": "losses", "regularizer": "regularizers", "views": "views",
    "recipe": "recipes", "augmentation": "augmentations", "encoder": "encoders",
    "linear_probe": "probes", "weighting": "weightings", "optimizer": "optimizers",
    "lr_schedule": "schedules", "knn_weights": "neighbours", "finetune": "finetuning",
}  # fmt: skip

MOST_LISTED = 50_000  # images; of more no plan reads the names again
COARSE_POINTS = 0.5  # an image that is worth more hides differences that one would care about
# Columns of the catalog that a screen without room does without.
CATALOG_SPARE = ("symbol", "swept", "unlabeled", "channels", "owned by", "source", "defaults")


def catalog_tables(kind: str | None, *, for_eyes: bool = True) -> dict[str, list[Row]]:
    """The tables of the catalog, the one of this kind, or the entries of this name, by title;
    `for_eyes`: numbers as a reader writes them.
    """
    tables = {plural: _component_rows(part) for part, plural in _PLURAL.items()}
    tables["datasets"] = [
        {"dataset": d.name, "kind": d.kind, "train": d.num_train or None,
         "unlabeled": d.num_unlabeled or None,
         "test": d.num_test or None, "size": d.image_size or None, "channels": d.channels or None,
         # no number: the study's own files or options say
         "classes": d.num_classes or None, "what": d.doc}
        for d in DATASETS
    ]  # fmt: skip
    tables["metrics"] = [
        {"metric": m.name, "unit": m.unit, "mode": m.mode, "what": m.doc} for m in METRICS
    ]
    tables["diagnostics"] = [
        {"diagnostic": d.name, "unit": d.unit, "what": d.doc, "source": d.source}
        for d in DIAGNOSTICS
    ]
    tables["params"] = [
        {"param": p.name, "symbol": p.symbol, "owned by": owners_of(p.name), "bounds": p.bounds,
         "default": setting(p.default) if for_eyes else p.default,
         "swept": "yes" if p.sweepable else "no", "what": p.doc, "source": p.source}
        for p in PARAMS
    ]  # fmt: skip
    tables["studies"] = [
        {"study": name, "what": study_question(path)} for name, path in shipped_studies().items()
    ]
    if kind is None:
        return tables
    return {kind: tables[kind]} if kind in tables else entry_tables(kind, tables)


def entry_tables(name: str, tables: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """The rows of this name in all tables, each as a table of what is known and its value; by
    title.

    Raises:
        RequestError: there is no such entry, and no table of that name.
    """
    known, others = entry_names(tables), aliases()
    meant = [name] if name in known else others.get(name.lower().replace("-", "_"), [])
    matches = {
        f"{entry} ({kind})": [
            {"about": key, "value": value}
            for key, value in [*row.items()][1:]
            if value not in (None, "", ())
        ]
        for kind, rows in tables.items()
        for row in rows
        if (entry := str(next(iter(row.values())))) in meant
    }
    if not matches:
        raise RequestError(
            f"catalog: unknown kind '{name:.80}'.{nearest(name, [*tables, *known], others)} "
            f"Expected: {', '.join(tables)}, or an entry of one of them"
        )
    return matches


def contrast_rows(
    study: Study, pilot: Mapping[str, tuple[float, float]], noise: float | None = None
) -> list[Row]:
    """Effects that the study will resolve, contrast by contrast: the smallest that it finds,
    and that it rules out where there is none; `unforeseen` without them.

    Args:
        pilot: objective -> squares of one seed's noise, and degrees of freedom; of one that is
            not there those of all.
        noise: the standard deviation, if given; without any the effects are in units of it.
    """
    contrasts = study.sections.contrasts
    table: dict[str, Row] = {
        n: {"contrast": n, "margin": c.margin, "published": c.published}
        for n, c in contrasts.items()
    }
    if not table or unforeseen(study):
        return [*table.values()]
    from clsweep.analysis.power import smallest_effects

    first = (study.cells or (study,))[0]
    labels = {objective.name: objective.label for objective in first.objectives}
    plan = [plan_row(first, t) | {"objective": labels[t.objective]} for t in plan_trials(first)]
    rows = {(row["objective"], row["config"]): row for row in plan}
    for name, each in contrasts.items():
        sizes = [
            size
            for at in (each.at, each.minus)
            for objective in each.sides
            if at is not None and (size := sum(_has(r, objective, at) for r in rows.values()))
        ]
        within = each.minus is not None and len(each.sides) == 1
        seeds = len(study.sections.seeds)
        effects = smallest_effects(sizes, seeds, len(contrasts), within=within)
        scale, unit = 1.0, " SD"
        if each.metric in (None, study.sections.metric.name) and (pilot or noise is not None):
            own = [pilot[side] for side in each.sides if side in pilot] or [*pilot.values()]
            squares, freedom = map(sum, zip(*own, strict=True)) if own else (0.0, 0.0)
            scale, unit = noise if noise is not None else (squares / max(freedom, 1)) ** 0.5, ""
        finds, rules_out = (f"{number(x * scale)}{unit}" for x in effects)
        table[name] |= {"finds from": finds, "rules out from": rules_out}
    return [*table.values()]


def unforeseen(study: Study) -> str:
    """Why it is not known what the contrasts of a study will find."""
    if len(study.sections.seeds) < 2:
        return "(one seed: contrasts will have no interval and no verdict)"
    if study.sections.search.method != "grid":
        return "(what they find depends on how the sampled settings spread, which no plan knows)"
    return ""


def _has(row: Row, objective: str, at: Mapping[str, object]) -> bool:
    """True if a planned trial is of a side of a contrast."""
    if row["objective"] != objective:
        return False
    values = {name: PARAM[name].coerce(raw) for name, raw in at.items()}
    return all(row.get(name, value) == value for name, value in values.items())  # none: not its own


def entry_names(tables: Mapping[str, Sequence[Row]]) -> list[str]:
    """Everything that `clsweep catalog` can be asked for."""
    names = (str(next(iter(row.values()))) for rows in tables.values() for row in rows)
    return list(dict.fromkeys([*tables, *names]))


def plan_matrix(study: Study) -> list[Row]:
    """One row per hyperparameter in use, one column per objective: swept (*), fixed, or not owned
    (-). With factors the rows of each cell, under one another.
    """
    if study.cells:
        names = {o.label: "" for o in study.objectives}
        return [
            {**cell.levels, "param": row["param"], **names, **row}
            for cell, rows in cell_matrices(study)
            for row in rows
        ]
    used = [p.name for p in PARAMS if any(p.name in o.owned for o in study.objectives)]
    return [
        {"param": part, **{o.name: o.parts[part] for o in study.objectives}}
        for part in OBJECTIVE_PARTS
    ] + [
        {"param": name, **{o.name: _matrix_cell(o, name) for o in study.objectives}}
        for name in used
    ]


def cell_matrices(study: Study) -> list[tuple[FactorCell, list[Row]]]:
    """The matrix of each cell of a study with factors, under the names of the study file."""
    matrices = []
    for cell, part in zip(factor_cells(study.document.tree), study.cells, strict=True):
        names = {o.name: o.label for o in part.objectives}
        rows = [{names.get(key, key): v for key, v in row.items()} for row in plan_matrix(part)]
        matrices.append((cell, rows))
    return matrices


def plan_data(study: Study) -> list[str]:
    """The question; the images that trials are trained and scored on, and what one is worth."""
    cells: dict[Any, Study] = {}  # of each data set, at each size, one
    for objective in study.objectives:
        cell, levels = study.of(objective.name), split_name(study.document.tree, objective.name)
        form = cell.dataset.store_as, cell.dataset.store_size
        cells.setdefault((levels.get("dataset", ""), *form), cell)
    lines = {f"Question: {own}": None for own in [" ".join(study.sections.question.split())] if own}
    for (level, *_), cell in cells.items():
        if cell.dataset.kind == "images":
            lines |= dict.fromkeys(_data_lines(cell, level))
    lines |= dict.fromkeys(room_notes(cell for cell in cells.values() if cell.dataset.keeps_whole))
    return sorted(lines, key=lambda line: line.startswith("note: "))


def _data_lines(study: Study, level: str) -> list[str]:
    num_train, num_scored = study.dataset.split_sizes(study.sections.val_fraction)
    metric, split = METRIC[study.sections.metric.name], study.sections.evaluation.score_on
    unlabeled = study.dataset.num_unlabeled
    without = f" ({count(unlabeled)} without a class)" if unlabeled else ""
    part = f"to score ({split} split)"
    known = f", {count(num_scored)} {part}" if num_scored is not None else ""
    known = known or f"; {part}: unknown until the files are here"
    if is_transferred := metric.name.startswith("transfer"):
        known = "; those of transfer_dataset are scored"
    name = level or study.dataset.name
    lines = [f"Data: {name}: {count(num_train)} images to train{without}{known}"]
    if by := study.dataset.parts_by:
        whole, num_test = study.dataset.num_train + unlabeled, study.dataset.num_test
        lines.append(f"Parts by {by}: {count(whole)} images to train on, {count(num_test)} to test")
    lines += store_lines(study) if study.dataset.keeps_whole else []
    if names := study.dataset.class_names:
        lines.append(f"{count(len(names))} classes: {listed(names)}")
    unit = f" in {metric.unit}" * bool(metric.unit)
    lines.append(f"Metric: {metric.name}{unit}, {metric.mode} is best")
    if metric.unit == "%" and num_scored and not is_transferred:
        worth = 100 / num_scored
        lines[-1] += f"; one scored image is {number(worth)} points"
        others = 100 * 1.96 * (0.9 * 0.1 / num_scored) ** 0.5
        lines.append(f"Other images would move a score of 90 % by up to {number(others)} points")
        if worth > COARSE_POINTS:
            lines.append(
                f"note: one trial on {study.dataset.name} cannot show a difference below "
                f"{number(worth)} points, which is one image"
                + ". To score more images: a larger dataset.val_fraction, up to 0.5"
                * (split == "validation")
            )
    return [*lines, *_copy_notes(study)]


def _copy_notes(study: Study) -> list[str]:
    """Notes on the user's own images that stand on both sides of the split, as far as compared."""
    known, place = study.dataset, study.sections.dataset.place
    row, num_images = DATASET[known.name], known.num_train + known.num_unlabeled
    is_here = row.files and known.images_digest and not place.is_remote
    if not is_here or num_images > MOST_LISTED:
        return []
    from clsweep.data.near_copies import copies_between  # needs numpy
    from clsweep.data.sources import dataset_layout

    layout = dataset_layout(row, place)
    copies = copies_between(layout, is_validated=study.sections.val_fraction is not None)
    names, root = {"test": "test", "train": "training"}, f"{layout.root}/"
    return [
        f"note: of {count(num_tested)} {names[part]} images that were compared, "
        f"{count(len(pairs))} {are}, first {' and '.join(n.removeprefix(root) for n in pairs[0])}"
        for part, ((num_tested, _), exact, near) in copies.items()
        for pairs, are in (
            (exact, "repeat training images, byte for byte"),
            (near, "look like other training images (nearly the same small grey image)"),
        )
        if pairs
    ]


def plan_counts(study: Study) -> list[Row]:
    """Configurations and trials per objective; counted, not drawn."""
    num_seeds = len(study.sections.seeds)
    return [
        {**split_name(study.document.tree, o.name), "sampler": sampler_of(study, o),
         "configs": (n := count_configs(study, o)),
         "seeds": num_seeds, "trials": n * num_seeds}
        for o in study.objectives
    ]  # fmt: skip


def _objective_notes(study: Study) -> list[str]:
    """Notes on the objectives of one cell."""
    notes = [
        f"skip: '{objective.label}' does not own {', '.join(names)}: {reason}"
        for objective in study.objectives
        for reason, names in objective.skips.items()
    ]
    for objective in study.objectives:
        if study.sections.metric.name == "mi_estimate" and objective.parts["loss"] == "eqco":
            notes.append(
                f"note: '{objective.label}' may estimate more than the mutual information, as the "
                "margin of eqco gives no lower bound: the highest mi_estimate need not be the best"
            )
        if "teacher_tau" in objective.owned:
            (fewest, _), (_, rise) = map(objective.extremes, ("epochs", "teacher_tau_epochs"))
            share = (fewest - 1) / max(1, rise - 1)
            if fewest <= rise and share != 1:
                notes.append(
                    f"note: '{objective.label}' does not reach teacher_tau: it trains {fewest} of "
                    f"the {rise} teacher_tau_epochs, which is {share:.0%} of the way from "
                    "teacher_tau_start"
                )
    return [*notes, *_condition_notes(study)]


def _condition_notes(study: Study) -> list[str]:
    """Parameters without effect, where, and how many trials are not planned for it."""
    places: dict[str, dict[str, None]] = {}
    for objective in study.objectives:
        for name, conditions in objective.conditions.of.items():
            for other, [value] in ((c.other, c.values) for c in conditions if not c.needed):
                places.setdefault(f"{other} is {setting(value)}", {})[name] = None
    if not places:
        return []
    saved = sum(num_saved(study, o) for o in study.objectives) * len(study.sections.seeds)
    listed = ", ".join(f"{' and '.join(names)} where {at}" for at, names in places.items())
    each = (c for o in study.objectives for of in o.conditions.of.values() for c in of)
    also = ", with what `when` leaves out" * any(c.needed for c in each)
    fewer = f". Planned once there{also}, that is {saved} trials fewer" if saved else ""
    return [f"note: without effect: {listed}{fewer}"]


def plan_notes(study: Study) -> list[str]:
    """Notes before anything runs: skips, replaced values, small spaces, missing intervals."""
    notes = [f"note: {note}" for note in study.notes]
    if study.sections.evaluation.score_on == "test":
        notes.append(f"note: every trial is {SCORED_ON_TEST}")
    cells = zip(
        factor_cells(study.document.tree) or [FactorCell({})], study.cells or [study], strict=True
    )
    notes += merged_lines([(cell, _objective_notes(part)) for cell, part in cells])
    capacity = [name for name in SIZES if any(name in o.space for o in study.objectives)]
    notes += [f"note: {CAPACITY.format(names=' and '.join(capacity))}"] if capacity else []
    limit = study.sections.search.trials_per_objective
    for objective, row in zip(study.objectives, plan_counts(study), strict=True):
        if limit and row["configs"] < limit:
            num = row["configs"]
            number = "one configuration" if num == 1 else f"{num} configurations"
            notes.append(f"note: '{objective.name}' has only {number}: each runs once per seed")
    if first := max((len(objective.first) for objective in study.objectives), default=0):
        given = len(study.sections.search.first)
        points = "1 point" if first == 1 else f"{first} points"
        points += f" of the {given} given" * (given > first)
        notes.append(f"note: search.first: tried before all others: {points}")
    if study.sections.search.from_:
        from clsweep.cluster.earlier_studies import earlier_notes  # which reads tables

        notes += earlier_notes(study)
    if budget := study.sections.search.budget:
        notes += [f"note: search.budget: no configuration begins {when}" for when in budget.ends()]
    scheduler = study.sections.scheduler
    if scheduler.name == "asha":
        notes += asha_notes(study)
    if scheduler.name == "racing":
        notes.append(
            f"note: racing: every configuration runs on the first {FIRST_SEEDS} seeds, and on each "
            f"further one unless it is behind the leader with {scheduler.confidence:.4g} confidence"
        )
    notes += rate_notes(study)
    if len(study.sections.seeds) == 1:
        notes.append("note: one seed: the results will carry no intervals")
    files = checked_files(study.document.source)
    tables = [parse_paper_table(text, name) for name, text in files.items()]
    if printed := [f"{t.first('item') or 'a paper'} ({len(t.rows)})" for t in tables if t.rows]:
        notes.append(f"printed numbers for clsweep reproduce: {', '.join(printed)}")
    return [*notes, *_unanswered(study)]


def _unanswered(study: Study) -> list[str]:
    """Questions that a search or a race leaves unanswered."""
    method, scheduler = study.sections.search.method, study.sections.scheduler.name
    if scheduler == "racing":
        return [
            f"note: racing: robustness, sensitivity and compare rest on the first {FIRST_SEEDS} "
            "seeds, or on more where all ran on them; only the best rests on all"
        ]
    live = [row["configs"] for row in plan_counts(study) if row["sampler"] in LIVE_METHODS]
    if not live:
        return []
    is_asha = scheduler == "asha"
    needed = f", and needs {MIN_SAMPLED} configurations{' of full length' * is_asha}"
    goals = [f"{name} ({mode})" for name, mode in study.sections.goals.items()]
    front = [f"note: search.objectives: the front of {' and '.join(goals)}"] * (len(goals) > 1)
    return [
        *front,
        f"note: {method}: finds a good setting; robustness and compare will not be measured. "
        f"clsweep importance says what mattered{needed * (is_asha or min(live) < MIN_SAMPLED)}",
    ]


def missing_notes(study: Study) -> list[str]:
    """Notes on what this machine lacks: data sets, GPUs, CPUs. Another one may have them.

    Raises:
        RequestError: a data set is here and cannot be read.
    """
    here, notes = this_machine(), []
    try:
        require_files(study)
    except AbsentError as error:
        notes.append(f"note: {error}")
    try:
        if here:
            require_capacity(study, here)
    except RequestError as error:
        notes.append(f"note: {error}")
    return notes


def estimate_here(study: Study) -> dict[str, Any]:
    """Options of `plan` for the estimate that this machine can make: of a GPU that it lacks by the
    GPU's name.
    """
    here, gpus = this_machine(), study.sections.resources.gpus_per_worker
    is_counted = all(cell.dataset.kind == "images" for cell in study.cells or (study,))
    lacks = gpus and here and not here.up[0]["GPU"] and is_counted
    return {"gpu": "a10g"} if lacks else {"estimate": True}


def plan_trial_rows(study: Study, *, for_eyes: bool = True) -> list[Row]:
    """Every planned trial with the parameters that differ somewhere; `for_eyes`: as texts that tell
    the trials apart.
    """
    rows = [plan_row(study, trial) for trial in plan_trials(study)]
    swept = [p.name for p in PARAMS if any(p.name in o.space for o in study.objectives)]
    tree = study.document.tree
    names = ("trial_id", *factors_of(tree), "objective", "config", "seed", "sampler", *swept)
    rows = [{**row, **split_name(tree, row["objective"])} for row in rows]
    columns: dict[str, list[Any]] = {name: [row.get(name) for row in rows] for name in names}
    if for_eyes:
        columns |= {name: setting_column(columns[name]) for name in swept}
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _component_rows(part: Part) -> list[Row]:
    """Components of one part; columns that none of them fills are left out."""
    rows = []
    for component in (*COMPONENT[part].values(), *(ROWS if part == "encoder" else ())):
        with_loss = component.owns_with.items()
        owned = [f"{name} (with {loss})" for loss, names in with_loss for name in names]
        defaults = [f"{name} {setting(value)}" for name, value in component.defaults.items()]
        losses = losses_on(component.name) if part == "framework" else ()
        rows.append(
            {
                part: component.name,
                "losses": ", ".join(losses),
                "owns": ", ".join([*component.owns, *owned]),
                "defaults": ", ".join(defaults),  # where it departs from the parameters' own
                "what": component.doc,
                "source": component.source,
            }
        )
    empty = {name for name in ("losses", "owns", "defaults") if not any(row[name] for row in rows)}
    return [{name: value for name, value in row.items() if name not in empty} for row in rows]


def _matrix_cell(objective: Any, name: str) -> str:
    if name in objective.space:
        return f"* {objective.space[name].describe()}"
    if name not in objective.fixed:
        return "-"
    value = objective.fixed[name]
    return ALL_THERE_IS[name] if name in ALL_THERE_IS and value == 0 else setting(value)
