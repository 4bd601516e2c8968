"""Who owns which hyperparameter, which parts go together, and what a value comes down to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from clsweep.catalog import (
    COMPONENT,
    DATASET,
    FINETUNE_SHARES,
    METRIC,
    METRICS,
    OBJECTIVE_PARTS,
    PARAM,
    PARAMS,
    SELECTED_PARTS,
    Dataset,
    Kind,
    Metric,
    Part,
    Value,
)
from clsweep.catalog.open_encoders import ENCODER_PARAMS, ROWS, is_open, measured_width
from clsweep.catalog.rows import Component, names_in, parse_numbers
from clsweep.errors import listed

# Hyperparameters whose 0 says "what there is"; `effective` puts the number in its place.
ALL_THERE_IS = {
    "num_negatives": "all",
    "chunk_size": "batch_size",
    "whitening_size": "batch_size",
    "proj_hidden": "features",
    "view_size": "image_size",
    "small_view_size": "auto",
    "small_crop_scale": "crop_scale",
}
# What training itself brings to every objective, and what is left of a trial that does not train.
TRAINING_OWNS = (
    "batch_size", "chunk_size", "lr", "lr_rule", "weight_decay", "optimizer", "warmup_epochs",
    "lr_schedule", "precision", "weight_decay_schedule", "weight_decay_end", "compile"
)  # fmt: skip
TAU_OWNS = ("tau_schedule", "tau_end", "tau_period")  # and to every loss that owns tau
TRIAL_OWNS = ("epochs", "encoder", "init", "view_size", "eval_every", "linear_every", "tsne_points")
NEWER_COLUMNS = ("transfer_store_as",)  # which say what older versions did unsaid
HALF_TURN = 0.5 + 1e-9  # the furthest shift of a hue, with room for rounding
PAIRS_OWN = ("batch_size", "lr", "epochs")  # all that remains of both where there are no images


def metric_params(metric: str) -> tuple[str, ...]:
    """The hyperparameters of a score itself; none of one that the catalog does not know."""
    if metric not in METRIC:
        return ()
    part = METRIC[metric].part
    probes = COMPONENT[part].values() if part else ()
    names = (*METRIC[metric].owns, *([part] if part else ()), *(n for c in probes for n in c.owns))
    return tuple(dict.fromkeys(names))


def is_taken(metric: Metric, trial: Mapping[str, Any]) -> bool:
    """True if a trial has this score at its end; `trial` is a row of the plan."""
    framework = COMPONENT["framework"].get(str(trial.get("framework")))
    is_trainer = framework is not None and framework.is_trainer
    if metric.of == "trainer" or (is_trainer and metric not in trainer_scores(framework)):
        return framework is not None and metric.name in framework.metrics
    if metric.kind != DATASET[trial["dataset"]].kind:
        return False
    if metric.of == "features" and metric.needs_labels and trial.get("num_classes") == 0:
        return False
    if metric.part and not COMPONENT[metric.part][trial[metric.part]].impl:
        return False
    if "z1_ND" in metric.takes:
        return bool(trial["epochs"] > 0)  # there is a projector
    if "views_NVD" in metric.takes:
        return bool(trial["lidar_views"])
    if metric.of == "classifier":
        row = COMPONENT["framework"][trial["framework"]]
        return row.needs_labels and not row.pairs_views and trial["epochs"] > 0
    if metric.part == "finetune":
        shares = (
            FINETUNE_SHARES.get(share, "") for share in parse_numbers(trial["finetune_labels"])
        )
        if not any(f"finetune_{share}_" in metric.name for share in shares):
            return False
    return metric.of != "transfer" or trial["transfer_dataset"] != "none"


def trainer_scores(row: Component | None) -> list[Metric]:
    """The scores that a trainer lets us take: of features alone."""
    at_hand = {"features_ND", "views_NVD"}
    of_features = (m for m in METRICS if m.kind == "images" and m.of == "features")
    scored = [m for m in of_features if m.part != "finetune" and at_hand.issuperset(m.takes)]
    return scored if row and "scores" in row.gives else []


def trainer_owns(row: Component) -> dict[str, tuple[str, ...]]:
    """The hyperparameters of a trainer, by who reads them: itself, or what a trial gives it."""
    of_scores = (n for m in trainer_scores(row) for n in (*m.owns, *([m.part] if m.part else ())))
    of_views = (*COMPONENT["views"]["two"].owns, "batch_size", "view_size")
    return {
        "train": row.owns,
        "views": of_views if "views" in row.gives else (),
        "scores": ("view_size", "linear_every", *of_scores) if "scores" in row.gives else (),
    }


def evaluation_params() -> tuple[str, ...]:
    """Parameters of the scores of images, beside the features."""
    images = [m.name for m in METRICS if m.kind == "images" and m.of != "trainer"]
    return tuple(dict.fromkeys(name for metric in images for name in metric_params(metric)))


def baseline_params() -> tuple[str, ...]:
    """Parameters of the scores of an untrained encoder."""
    rows = (*COMPONENT["encoder"].values(), *ROWS)
    of_encoders = dict.fromkeys(n for c in rows for n in c.owns)
    return ("encoder", "init", "view_size", *of_encoders, *evaluation_params())


def trial_owns(kind: Kind = "images") -> tuple[str, ...]:
    """Parameters of every trial, trained or not: its own and those of its scores."""
    own = TRIAL_OWNS if kind == "images" else PAIRS_OWN
    of_scores = (
        name
        for metric in METRICS
        if metric.kind == kind
        for name in (*metric.owns, *([metric.part] if metric.part else ()))
    )
    return tuple(dict.fromkeys((*own, *of_scores)))


def owned_text(objective: str, owned: Collection[str]) -> str:
    """The first parameters of an objective, for a message, those of its loss, and where all are."""
    last = ("_schedule", "_end", "_period", *trial_owns(), *TRAINING_OWNS)
    first = sorted(owned, key=lambda param: param.endswith(last))
    return f"'{objective}' owns: {listed(first)}. clsweep catalog params says who owns which"


def losses_on(framework: str) -> tuple[str, ...]:
    """The losses that make sense on a framework: those that it lists, and those that list it."""
    own = COMPONENT["framework"][framework].losses
    others = (c.name for c in COMPONENT["loss"].values() if framework in c.on)
    return tuple(dict.fromkeys((*own, *others)))


def selected_rows(part: Part, value: str) -> list[Component]:
    """The components that a selecting hyperparameter's value names, of `augmentation` several."""
    return [COMPONENT[part][name] for name in names_in(value)]


def arguments(config: Mapping[str, Any], part: Part) -> dict[str, Any]:
    """Named arguments of the implementation of one part of a trial, out of the trial's
    configuration: what it owns, what its choices own, and what it takes beside.
    """
    component = COMPONENT[part][config[part]]
    names = [*component.owns, *component.owns_with.get(config.get("loss", ""), ())]
    for selected in SELECTED_PARTS:
        if selected in names:
            names += [
                name for row in selected_rows(selected, config[selected]) for name in row.owns
            ]
    return {name: config[name] for name in (*names, *component.takes)}


def refusal(parts: Mapping[str, str], dataset: str | Dataset) -> tuple[Part, str] | None:
    """Why these four parts make no objective on this data set, with the part that is wrong; None if
    they do. A data set by name is as the catalog has it.
    """
    framework, loss, regularizer, views = (parts[part] for part in OBJECTIVE_PARTS)
    data = DATASET[dataset] if isinstance(dataset, str) else dataset
    row, name, losses = COMPONENT["framework"][framework], data.name, losses_on(framework)
    fitting = [each for each in COMPONENT["framework"].values() if each.kind == data.kind]
    if row.is_trainer and row.kind != data.kind:
        reads = "the study's images" if row.kind == "images" else "data of its own"
        known = "images" if row.kind == "images" else "{name: own}"
        return "framework", f"'{framework}' reads {reads}. Expected a dataset of {known}"
    if row.kind != data.kind:
        known = ", ".join(each.name for each in fitting)
        return "framework", f"'{framework}' does not work on {name}. Expected one of: {known}"
    if row.needs_labels and data.num_unlabeled:
        known = ", ".join(each.name for each in fitting if not each.needs_labels)
        reason = f"trains on the classes of the images, and {data.num_unlabeled:,} of {name}"
        return "framework", f"'{framework}' {reason} have none. Expected one of: {known}"
    if loss not in losses:
        reason = f"makes no sense on framework {framework}"
        its = ", ".join(each.name for each in fitting if loss in losses_on(each.name))
        expected = f"Expected one of: {', '.join(losses)}" + (
            f"; or framework {its}" if its else ""
        )
        return "loss", f"'{loss}' {reason}. {expected}"
    if views != "two" and not row.pairs_views:
        return "views", f"'{views}': framework {framework} pairs no views. Expected: two"
    if framework == "supcon" and views not in ("two", "all_pairs"):
        reason = "supcon compares all views with each other. Expected: two or all_pairs"
        return "views", f"'{views}': {reason}"
    if views == "ecpp" and loss in ("infonce", "eqco"):
        reason = f"takes the positive out of the denominator (ECPP Eq. 4), where {loss} has it"
        return "views", f"'ecpp' {reason}. Expected loss dcl or dclw, or views all_pairs"
    if regularizer != "none" and row.kind == "pairs":
        reason = f"has no columns to work on in framework {framework}"
        return "regularizer", f"'{regularizer}' {reason}. Expected: none"
    if framework == "lejepa" and regularizer == "none":
        reason = "keeps lejepa from making all projections one"
        others = ", ".join(each for each in COMPONENT["regularizer"] if each != "none")
        return "regularizer", f"'none': nothing {reason}. Expected one of: {others}"
    if regularizer == loss == "barlow":
        own = "is the loss of barlow_twins itself: lam would have no effect"
        return "regularizer", f"'barlow' {own}"
    return None


def owned_params(
    parts: Mapping[str, str], *, dataset: str | Dataset, trained: bool = True, **selected: str
) -> tuple[str, ...]:
    """Names of the hyperparameters that an objective owns, in catalog order.

    Args:
        parts: framework, loss, regularizer and views by name, all present in the catalog.
        dataset: the data set, by name as the catalog has it; images of other than three channels
            own no colour parameters.
        trained: False for `epochs: 0`: nothing but the encoder itself can then change the score.
        selected: values of `encoder`, `linear_probe` and `weighting`, where they are not the
            defaults.
    """
    objective = [COMPONENT[part][parts[part]] for part in OBJECTIVE_PARTS]
    data = DATASET[dataset] if isinstance(dataset, str) else dataset
    kind = data.kind
    names = {*trial_owns(kind), *data.owns}
    if objective[0].is_trainer:
        names = {name for own in trainer_owns(objective[0]).values() for name in own}
    elif kind == "pairs":
        names.update(objective[0].owns, objective[1].owns)
    elif trained:
        names.update(TRAINING_OWNS, *(c.owns for c in objective))
        names.update(TAU_OWNS if "tau" in objective[1].owns else ())
        names.update(*(c.owns_with.get(parts["loss"], ()) for c in objective))
    for part in SELECTED_PARTS:
        if part in names:
            rows = selected_rows(part, selected.get(part, str(PARAM[part].default)))
            names.update(*(row.owns for row in rows))
    rgb = data.channels == 3 or kind == "own"
    return tuple(p.name for p in PARAMS if p.name in names and (rgb or not p.needs_rgb))


def default_of(name: str, parts: Mapping[str, str], **selected: str) -> Value:
    """Default of a hyperparameter with these parts, and with what `recipe` and its like select."""
    for part in SELECTED_PARTS:
        for row in selected_rows(part, selected[part]) if part in selected else ():
            if name in row.defaults:
                return row.defaults[name]
    for part in reversed(OBJECTIVE_PARTS):
        if name in (defaults := COMPONENT[part][parts[part]].defaults):
            return defaults[name]
    return PARAM[name].default


def without_other_encoders(params: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters of one trial without those of encoders that it does not have, where the
    encoder is swept; of one that a live search has yet to choose, those of all are None.
    """
    if "encoder" not in params:
        return dict(params)
    known, encoder = COMPONENT["encoder"], params["encoder"]
    of_encoders = {name for row in (*known.values(), *ROWS) for name in row.owns}
    if encoder is None:
        return {name: None if name in of_encoders else value for name, value in params.items()}
    others = of_encoders.difference(known[encoder].owns)
    return {name: value for name, value in params.items() if name not in others}


def num_features(params: Mapping[str, Any]) -> int:
    """Width of the features of the encoder that these hyperparameters describe."""
    width = COMPONENT["encoder"][params["encoder"]].num_features
    if width == 0:
        return measured_width(params)
    if isinstance(width, int):
        return width
    factor, name = width
    return factor * int(params[name])


def effective(
    parts: Mapping[str, str], params: Mapping[str, Any], dataset: Dataset
) -> dict[str, Any]:
    """A trial's hyperparameters, with its number for every 0 that stands for "what there is".

    A value that a live search has not chosen yet is None, and what depends on it stays as it is.
    """
    values = without_other_encoders(params)
    needed = ENCODER_PARAMS if is_open(str(values.get("encoder"))) else ("encoder", "width")
    is_chosen = None not in (values.get(name, "") for name in needed)
    batch, chunk = values.get("batch_size"), values.get("chunk_size")
    if values.get("proj_hidden") == 0 and is_chosen:
        sizes = {"image_size": dataset.image_size, "channels": dataset.channels}
        values["proj_hidden"] = num_features(values | sizes)
    if batch is not None:
        if values.get("num_negatives") == 0:
            values["num_negatives"] = num_others(parts["framework"], batch)
        if chunk is not None:
            values["chunk_size"] = min(chunk or batch, batch)
        if values.get("whitening_size") == 0:
            values["whitening_size"] = batch
    if values.get("view_size") == 0:
        values["view_size"] = dataset.image_size
    size = values.get("view_size", dataset.image_size)
    if values.get("small_view_size") == 0 and size is not None:
        values["small_view_size"] = small_view_size(size)
    if values.get("small_crop_scale") == 0 and values["crop_scale"] is not None:
        values["small_crop_scale"] = values["crop_scale"]
    return values


def with_defaults(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the plan as a trial is built of it: what has no effect, None, has its default."""
    inert = [name for name, value in row.items() if value is None and name in PARAM]
    if not inert:
        return dict(row)
    parts: dict[str, str] = {part: row[part] for part in OBJECTIVE_PARTS}
    filled = {**row, **{name: default_of(name, parts) for name in inert}}
    sizes = {name: row[name] for name in ("image_size", "channels")}
    return effective(parts, filled, replace(DATASET[row["dataset"]], **sizes))


_BATCH_EXPONENT = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}


def scaled_lr(lr: float, batch_size: int, rule: str) -> float:
    """The learning rate of an `lr_rule`: lr x (batch_size / 256) ^ 0, 1/2 or 1 (DCL 4.1)."""
    return float(lr * (batch_size / 256) ** _BATCH_EXPONENT[rule])


def small_view_size(view_size: int) -> int:
    """Side of the views after the global ones where none is given, pixels."""
    return round(view_size * 3 / 7) if view_size >= 128 else view_size


def num_crop_only(share: float, num_views: int) -> int:
    """Views that are only cropped: so many of the last, never one of the first two (ECPP 4.1)."""
    return min(int(share * num_views + 1e-9), num_views - 2)


def switched_off_by(
    name: str, parts: Mapping[str, str], fixed: Mapping[str, Value]
) -> tuple[tuple[str, Value], ...]:
    """Other hyperparameters' values at which this one has no effect with these parts and values."""
    conditions = PARAM[name].inert_when
    owners = [part for part in OBJECTIVE_PARTS if name in COMPONENT[part][parts[part]].owns]
    if owners == ["loss"] or (owners == ["regularizer"] and name != "lam"):
        conditions += (("lam", float(owners == ["loss"])),)
    # With one direction the regularizer sees the momentum encoder's projections, otherwise only the
    # loss does.
    all_online = parts["framework"] in ("byol", "moco_v3") or fixed.get("symmetric") is True
    if name in ("momentum", "momentum_schedule", "momentum_end") and (
        all_online or (parts["framework"] == "dino" and parts["views"] != "core")
    ):
        conditions += (("lam", 1.0),)
    return conditions


def contrasts_classes(framework: object) -> bool:
    """True if views are contrasted by the classes of their images: no score of it is label-free."""
    row = COMPONENT["framework"].get(str(framework))
    return row is not None and row.needs_labels and row.pairs_views


def num_others(framework: str, batch_size: int) -> int:
    """Negatives that a batch has for a query: the other samples, in simclr in both their views."""
    return COMPONENT["framework"][framework].views_of_negatives * (batch_size - 1)


def owners_of(name: str) -> str:
    """Who owns the hyperparameter `name`, for a reader: `loss dclw`, `training`, `views two`."""
    if name in TRAINING_OWNS or name in trial_owns():
        return "training" if name in TRAINING_OWNS else "every trial"
    if name in TAU_OWNS:
        return "every loss that owns tau"
    by_part: dict[str, list[str]] = {}
    for part, components in COMPONENT.items():
        for c in (*components.values(), *(ROWS if part == "encoder" else ())):
            conditional = [
                f"{c.name} with {loss}" for loss, owns in c.owns_with.items() if name in owns
            ]
            if names := [c.name] * (name in c.owns) + conditional:
                by_part.setdefault(part, []).extend(names)
    if names := [row.name for row in DATASET.values() if name in row.owns]:
        by_part["dataset"] = names
    if names := [row.name for row in METRICS if name in row.owns]:
        by_part["metric"] = names
    return "; ".join(f"{part} {', '.join(names)}" for part, names in by_part.items())


def is_as_planned(name: str, recorded: object, planned: object) -> bool:
    """True if a value of a recorded plan or trial is that of a plan as it is made now; also where
    its version had no such column, and did the same.
    """
    if recorded is not None or planned is None:
        return recorded == planned
    return name in NEWER_COLUMNS or (name in PARAM and PARAM[name].implied == planned)


def aliases() -> dict[str, list[str]]:
    """Other names of hyperparameters -> their names here, of which an objective has one."""
    names: dict[str, list[str]] = {}
    for param in PARAMS:
        for alias in param.aliases:
            names.setdefault(alias, []).append(param.name)
    return names
