"""Who owns which hyperparameter, which parts go together, and what a hyperparameter's value comes down to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clsweep.objective.catalog import (
    COMPONENT,
    COMPONENTS,
    DATASET,
    OBJECTIVE_PARTS,
    PARAM,
    PARAMS,
    SELECTED_PARTS,
    Dataset,
    Part,
    Value,
)

# Hyperparameters whose 0 says "what there is"; `effective` puts the number in its place.
ALL_THERE_IS = {
    "num_negatives": "all",
    "chunk_size": "batch_size",
    "proj_hidden": "features",
    "small_view_size": "auto",
    "small_crop_scale": "crop_scale",
}
_UNSUPERVISED = tuple(name for name in COMPONENT["framework"] if name not in ("supervised", "mi_critic"))
_NUM_FEATURES = {"resnet18": 512, "resnet50": 2048}

# What training itself brings to every objective, and what is left of a trial that does not train.
TRAINING_OWNS = (
    "batch_size", "chunk_size", "lr", "lr_rule", "weight_decay", "optimizer", "warmup_epochs", "precision"
)  # fmt: skip
TRIAL_OWNS = ("epochs", "encoder", "eval_every", "knn_k", "knn_temperature", "linear_probe", "tsne_points")
# What the score of an untrained encoder depends on, and that of the raw pixels.
YARDSTICK_PARAMS = (
    "knn_k",
    "knn_temperature",
    "linear_probe",
    *(name for c in COMPONENT["linear_probe"].values() for name in c.owns),
)
_OF_ENCODERS = dict.fromkeys(name for c in COMPONENT["encoder"].values() for name in c.owns)
REFERENCE_PARAMS = ("encoder", *_OF_ENCODERS, *YARDSTICK_PARAMS)
PAIRS_OWN = ("batch_size", "lr", "epochs")  # all that remains of both where there are no images


def refusal(parts: Mapping[str, str], dataset: str) -> tuple[Part, str] | None:
    """Why these four parts make no objective on this data set, with the part that is wrong; None if they do."""
    framework, loss, regularizer, views = (parts[part] for part in OBJECTIVE_PARTS)
    on_pairs = DATASET[dataset].kind == "pairs"
    if on_pairs != (framework == "mi_critic"):
        fitting = [n for n in COMPONENT["framework"] if (n == "mi_critic") == on_pairs]
        return "framework", f"'{framework}' does not work on {dataset}. Expected one of: {', '.join(fitting)}"
    if framework == "supervised" and (num_unlabeled := DATASET[dataset].num_unlabeled):
        reason = f"trains on the classes of the images, and {num_unlabeled:,} of {dataset} have none"
        return "framework", f"'supervised' {reason}. Expected one of: {', '.join(_UNSUPERVISED)}"
    losses = COMPONENT["framework"][framework].losses
    if loss not in losses:
        return "loss", f"'{loss}' makes no sense on framework {framework}. Expected one of: {', '.join(losses)}"
    if views != "two" and framework in ("supervised", "mi_critic"):
        return "views", f"'{views}': framework {framework} pairs no views. Expected: two"
    if views == "ecpp" and loss in ("infonce", "eqco"):
        reason = f"takes the positive out of the denominator (ECPP Eq. 4), where {loss} has it"
        return "views", f"'ecpp' {reason}. Expected loss dcl or dclw, or views all_pairs"
    if regularizer != "none" and framework == "mi_critic":
        return "regularizer", f"'{regularizer}' has no columns to work on in framework mi_critic. Expected: none"
    if regularizer == loss == "barlow":
        return "regularizer", "'barlow' is the loss of barlow_twins itself: lam would have no effect"
    return None


def owned_params(parts: Mapping[str, str], *, dataset: str, trained: bool = True, **selected: str) -> tuple[str, ...]:
    """Names of the hyperparameters that an objective owns, in catalog order.

    Args:
        parts: framework, loss, regularizer and views by name, all present in the catalog.
        dataset: name of the data set; one-channel images own no colour parameters.
        trained: False for `epochs: 0`: nothing but the encoder itself can then change the score.
        selected: values of `encoder`, `linear_probe` and `weighting`, where they are not the defaults.
    """
    objective = [COMPONENT[part][parts[part]] for part in OBJECTIVE_PARTS]
    if DATASET[dataset].kind == "pairs":
        names = {*PAIRS_OWN, *objective[0].owns, *objective[1].owns}
    else:
        names = set(TRIAL_OWNS)
        if trained:
            names.update(TRAINING_OWNS, *(c.owns for c in objective))
            names.update(*(c.owns_with.get(parts["loss"], ()) for c in objective))
    for part in SELECTED_PARTS:
        if part in names:
            names.update(COMPONENT[part][selected.get(part, str(PARAM[part].default))].owns)
    rgb = DATASET[dataset].channels == 3
    return tuple(p.name for p in PARAMS if p.name in names and (rgb or not p.needs_rgb))


def default_of(name: str, parts: Mapping[str, str], **selected: str) -> Value:
    """Default of a hyperparameter in an objective of these parts, and of what it selects: `recipe` and its like."""
    for part in SELECTED_PARTS:
        if part in selected and name in (defaults := COMPONENT[part][selected[part]].defaults):
            return defaults[name]
    for part in reversed(OBJECTIVE_PARTS):
        if name in (defaults := COMPONENT[part][parts[part]].defaults):
            return defaults[name]
    return PARAM[name].default


def num_features(params: Mapping[str, Any]) -> int:
    """Width of the features of the encoder that these hyperparameters describe."""
    return 4 * params["width"] if params["encoder"] == "conv4" else _NUM_FEATURES[params["encoder"]]


def effective(parts: Mapping[str, str], params: Mapping[str, Any], dataset: Dataset) -> dict[str, Any]:
    """The hyperparameters of one trial with every 0 that stands for "what there is" replaced by its number.

    A value that a live search has not chosen yet is None, and what depends on it stays as it is.
    """
    values = dict(params)
    if values.get("proj_hidden") == 0 and values.get("width", 0) is not None:
        values["proj_hidden"] = num_features(values)
    if values.get("num_negatives") == 0 and values["batch_size"] is not None:
        values["num_negatives"] = num_others(parts["framework"], values["batch_size"])
    if "chunk_size" in values and None not in (values["chunk_size"], values["batch_size"]):
        values["chunk_size"] = min(values["chunk_size"] or values["batch_size"], values["batch_size"])
    if values.get("small_view_size") == 0:
        size = dataset.image_size
        values["small_view_size"] = round(size * 3 / 7) if size >= 128 else size
    if values.get("small_crop_scale") == 0 and values["crop_scale"] is not None:
        values["small_crop_scale"] = values["crop_scale"]
    return values


def num_crop_only(share: float, num_views: int) -> int:
    """Views that are only cropped: so many of the last ones, but never one of the first two (ECPP 4.1)."""
    return min(int(share * num_views + 1e-9), num_views - 2)


def switched_off_by(name: str, parts: Mapping[str, str], fixed: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
    """Other hyperparameters' values at which this one has no effect in an objective of these parts and fixed values."""
    conditions = PARAM[name].inert_when
    if name == "off_diag":
        conditions += (("lam", 0.0 if parts["regularizer"] == "barlow" else 1.0),)
    # With one direction the regularizer sees the momentum encoder's projections, otherwise only the loss does.
    if name in ("momentum", "momentum_schedule") and (parts["framework"] == "byol" or fixed.get("symmetric") is True):
        conditions += (("lam", 1.0),)
    return conditions


def num_others(framework: str, batch_size: int) -> int:
    """Negatives that a batch has for one query: the other samples, in simclr in both of their views."""
    return (2 if framework == "simclr" else 1) * (batch_size - 1)


def owners_of(name: str) -> str:
    """Who owns the hyperparameter `name`, for a reader: `loss dclw`, `training`, `views two`."""
    if name in TRAINING_OWNS or name in TRIAL_OWNS:
        return "training" if name in TRAINING_OWNS else "every trial"
    by_part: dict[str, list[str]] = {}
    for c in COMPONENTS:
        conditional = [f"{c.name} with {loss}" for loss, owns in c.owns_with.items() if name in owns]
        if names := [c.name] * (name in c.owns) + conditional:
            by_part.setdefault(c.part, []).extend(names)
    return "; ".join(f"{part} {', '.join(names)}" for part, names in by_part.items())
