"""The study file as a JSON Schema (draft 2020-12), from the models and the catalog: an editor then
completes names, shows their texts, and marks what is wrong.

It never refuses a study that `load_study` takes. What it cannot say is left to `clsweep plan`: what
a value means beside another, and whether a shared parameter belongs to any objective.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from clsweep.catalog import COMPONENT, DATASET, METRIC, OBJECTIVE_PARTS, PARAM, Param
from clsweep.catalog.ownership import (
    PAIRS_OWN,
    TRAINING_OWNS,
    losses_on,
    trial_owns,
)
from clsweep.study.schema import ObjectiveSection, StudySections

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def study_schema(*, closed: bool = False) -> Schema:
    """The schema of a whole study file, presets included.

    Args:
        closed: check studies with plug-ins too, which have the rows of this process and no others.
    """
    schema = StudySections.model_json_schema()
    sections: Schema = schema.pop("$defs")
    _name_choices(schema, sections)
    for section in (schema, sections["ObjectiveSection"]):
        for key in ("base", "space"):
            section["properties"][key] = {"$ref": f"#/$defs/{key}"}
    sections["ObjectiveSection"]["allOf"] = [*_losses(), *_ownership()]
    whole = _inlined(schema, sections)
    _allow_factors(whole)
    whole["properties"]["plugins"] = PLUGINS
    whole["properties"]["presets"] = {
        "type": "object",
        "description": "parts of a study, laid over it by --preset; null removes a key",
        "additionalProperties": _partial(whole),
    }
    shared = {
        "base": _mapping({p.name: {**_about(p), **_type(p)} for p in PARAM.values()}),
        "space": _mapping({p.name: _dimension(p) for p in PARAM.values() if p.sweepable}),
    }
    whole["$defs"] = shared | {f"preset_{key}": _partial(part) for key, part in shared.items()}
    whole = {"type": "object", **whole} if closed else _opened(whole)
    return {"$schema": DIALECT, **whole, "title": "A study of clsweep"}


PLUGINS: Schema = {
    "description": "files of rows of your own, relative to the study, and packages",
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "additionalProperties": {"type": "string"}},  # as results keep it
    ],
}


def _opened(whole: Schema) -> Schema:
    """Of a study with plug-ins only their list is checked: their rows have names of their own."""
    defs = {"$defs": whole.pop("$defs")}
    own = {"properties": {"plugins": PLUGINS}}
    return {"type": "object", **defs, "if": {"required": ["plugins"]}, "then": own, "else": whole}


def _name_choices(schema: Schema, sections: Mapping[str, Schema]) -> None:
    """The names that the catalog knows, and what pydantic's validators say beside the types."""
    named: list[tuple[str, str, Mapping[str, Any]]] = [
        *(("ObjectiveSection", part, COMPONENT[part]) for part in OBJECTIVE_PARTS),
        ("DatasetSection", "name", DATASET),
        ("MetricSection", "name", METRIC),
    ]
    for section, key, rows in named:
        docs = [row.doc for row in rows.values()]  # a text that editors show beside each
        choices = {"enum": list(rows), "markdownEnumDescriptions": docs}
        sections[section]["properties"][key] |= choices
    metric = sections["MetricSection"]
    lowest = [name for name, row in METRIC.items() if row.mode == "min"]
    is_low = {"properties": {"name": {"enum": lowest}}, "required": ["name"]}
    mode = {"properties": {"mode": {"const": "min"}}, "required": ["mode"]}
    metric |= {"if": is_low, "then": mode, "else": {"properties": {"mode": {"const": "max"}}}}
    for seeds in (schema["properties"], sections["ConfirmSection"]["properties"]):
        seeds["seeds"] |= {"minItems": 1, "uniqueItems": True}
    sections["EvaluationSection"]["oneOf"] = [
        {"properties": {"train_on": {"const": "train"}, "score_on": {"const": "validation"}}},
        {
            "properties": {"train_on": {"const": "all"}, "score_on": {"const": "test"}},
            "required": ["train_on", "score_on"],
        },
    ]


def _allow_factors(whole: Schema) -> None:
    """A study names its data set, or has it as a factor."""
    data = whole["properties"]["dataset"]
    data["required"].remove("name")
    whole["required"].remove("dataset")
    levels = {
        "dataset": data["properties"]["name"],
        "encoder": {"type": "string"},
    }
    whole["properties"]["factors"] = {
        "description": "the study on several data sets and with several encoders, cell by cell",
        **_mapping({name: _points(_level(level)) for name, level in levels.items()}),
        "minProperties": 1,
    }
    named = {"properties": {"dataset": {"required": ["name"]}}, "required": ["dataset"]}
    is_factor = {"properties": {"factors": {"required": ["dataset"]}}, "required": ["factors"]}
    whole |= {"if": is_factor, "else": named}


def _level(name: Schema) -> Schema:
    """A level: a name, or a name with what goes with it."""
    parts = {key: {"type": "object"} for key in ("base", "space", "objectives")}
    label = {"name": name, "label": {"type": "string"}, **parts}
    return {"anyOf": [name, {"type": "object", "properties": label, "required": ["name"]}]}


def _mapping(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}


def _about(param: Param) -> Schema:
    return {"description": f"{param.doc} ({param.source}). Default: {param.default}"}


def _type(param: Param) -> Schema:
    if param.kind == "choice":
        return {"enum": list(param.choices)}
    if param.kind == "bool":
        return {"type": "boolean"}
    number: Schema = {"type": "integer" if param.kind == "int" else "number"}
    if param.low > -math.inf:
        number["exclusiveMinimum" if param.low_open else "minimum"] = param.low
    if param.high < math.inf:
        number["maximum"] = param.high
    if param.kind == "numbers":
        return {"anyOf": [number, {"type": "string"}, _points(number)]}
    return number


def _points(of: Schema) -> Schema:
    return {"type": "array", "items": of, "minItems": 1, "uniqueItems": True}


def _dimension(param: Param) -> Schema:
    """What a hyperparameter is swept over: a range, a grid of points, or choices."""
    of = _type(param)
    choices = {"choices": _points(of)}
    if param.kind in ("choice", "bool"):
        return {**_about(param), **_mapping(choices), "required": ["choices"]}
    ends = {"low": of, "high": of, "log": {"type": "boolean"}, "grid": _points(of)}
    return {
        **_about(param),
        **_mapping(ends | choices),
        "oneOf": [
            {"required": ["choices"], "maxProperties": 1},
            {"required": ["grid"], "maxProperties": 1},
            {"required": ["low", "high"], "not": {"required": ["choices"]}},
        ],
    }


def _losses() -> list[Schema]:
    """The losses that make sense on each framework."""
    return [
        {
            "if": {"properties": {"framework": {"const": name}}, "required": ["framework"]},
            "then": {"properties": {"loss": {"enum": list(losses_on(name))}}},
        }
        for name in COMPONENT["framework"]
    ]


def _ownership() -> list[Schema]:
    """A hyperparameter in an objective's own base or space has an owner among its four parts. Of
    one that something else may own, an encoder or a recipe, nothing is said.
    """
    others = {*TRAINING_OWNS, *PAIRS_OWN, *trial_owns(), *trial_owns("pairs")}
    others |= {name for data in DATASET.values() for name in data.owns}
    for part, rows in COMPONENT.items():
        if part not in OBJECTIVE_PARTS:
            others |= {name for row in rows.values() for name in row.owns} | {part}
    names = [param.name for param in PARAM.values() if param.name not in others]
    return [rule for name in names for rule in _owned(name)]


def _owned(name: str) -> list[Schema]:
    where = [
        {"properties": {key: {"required": [name]}}, "required": [key]} for key in ("base", "space")
    ]
    owners: list[Schema] = []
    for part in OBJECTIVE_PARTS:
        rows = COMPONENT[part].values()
        if names := [row.name for row in rows if name in row.owns]:
            is_default = ObjectiveSection.model_fields[part].default in names
            required = [] if is_default else [part]
            owners.append({"properties": {part: {"enum": names}}, "required": required})
        for row in rows:
            losses = [loss for loss, owned in row.owns_with.items() if name in owned]
            if losses:
                both = {part: {"enum": [row.name]}, "loss": {"enum": losses}}
                owners.append({"properties": both, "required": [part]})
    return [{"if": {"anyOf": where}, "then": {"anyOf": owners}}] if owners else []


def _inlined(schema: Any, sections: Mapping[str, Schema]) -> Any:
    """Without references, so that what a part of a study may leave out can be said of each."""
    if isinstance(schema, list):
        return [_inlined(each, sections) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("$ref", "").rpartition("/")[2] in sections:
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        target = sections[schema["$ref"].rpartition("/")[2]]
        return {**_inlined(target, sections), **beside}
    return {key: _inlined(value, sections) for key, value in schema.items()}


def _partial(schema: Schema) -> Schema:
    """The same for a preset: no key is needed, and null takes one away."""
    if "$ref" in schema:
        return {"$ref": schema["$ref"].replace("$defs/", "$defs/preset_")}
    rules = ("required", "minProperties", "oneOf", "if", "then", "else", "allOf", "anyOf")
    kept = {key: value for key, value in schema.items() if key not in rules}
    if "anyOf" in schema and schema.get("type") != "object":
        kept["anyOf"] = [_partial(each) for each in schema["anyOf"]]
    if schema.get("type") != "object":
        return {"anyOf": [kept, {"type": "null"}]} if kept else {}
    if "properties" in schema:
        kept["properties"] = {k: _partial(v) for k, v in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), dict):
        kept["additionalProperties"] = _partial(schema["additionalProperties"])
    return {**kept, "type": ["object", "null"]}
