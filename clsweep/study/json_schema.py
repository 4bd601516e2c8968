"""The study file as a JSON Schema (draft 2020-12), from the models and the catalog: an editor then
completes names, shows their texts, and marks what is wrong.

It never refuses a study that `load_study` takes. What a value means beside another is left to
`clsweep plan`, which also says whose a hyperparameter is; and so is what a preset holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from clsweep.catalog import COMPONENT, DATASET, METRIC, OBJECTIVE_PARTS, PARAM, Param
from clsweep.catalog.rows import SECONDS
from clsweep.study.schema import StudySections

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def study_schema(*, closed: bool = False) -> Schema:
    """The schema of a whole study file; of a preset it says that it is a mapping.

    Args:
        closed: check studies with plug-ins too, which have the rows of this process and no others.
    """
    schema = StudySections.model_json_schema()
    sections: Schema = schema.pop("$defs")
    _name_choices(schema, sections)
    for section in (schema, sections["ObjectiveSection"]):
        for key in ("base", "space"):
            section["properties"][key] = {"$ref": f"#/$defs/{key}"}
    _allow_factors(schema, sections["DatasetSection"])
    schema["properties"]["plugins"] = PLUGINS
    schema["properties"]["presets"] = {
        "type": "object",
        "description": "parts of a study, laid over it by --preset; null removes a key",
        "additionalProperties": {"type": "object"},
    }
    listed = {p.name: {"anyOf": [_type(p), _points(_type(p))]} for p in PARAM.values()}
    defs = sections | {
        "when": {**_mapping(listed), "minProperties": 1},
        "base": _mapping({p.name: {**_about(p), **_type(p)} for p in PARAM.values()}),
        "space": _mapping({p.name: _dimension(p) for p in PARAM.values() if p.sweepable}),
    }
    if not closed:
        # of a study with plug-ins only their list is checked: their rows have names of their own
        named, own = {"anyOf": [{"required": ["plugins"]}, HAS_TRAINER]}, {"plugins": PLUGINS}
        schema = {"if": named, "then": {"properties": own}, "else": schema}
    whole = {"$schema": DIALECT, "type": "object", "$defs": defs, **schema}
    return whole | {"title": "A study of clsweep"}


PLUGINS: Schema = {
    "description": "files of rows of your own, relative to the study, and packages",
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "additionalProperties": {"type": "string"}},  # as results keep it
    ],
}


# Not every objective is without.
HAS_TRAINER: Schema = {
    "properties": {"objectives": {
        "type": "object", "not": {"additionalProperties": {"not": {"required": ["trainer"]}}}
    }},
    "required": ["objectives"],
}  # fmt: skip


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
    searched = sections["SearchSection"]["properties"]["objectives"]
    searched["items"] = {"enum": [*METRIC, SECONDS]}
    parts = sections["ObjectiveSection"].pop("required")
    ways = [{"required": parts, "properties": {"trainer": False}}, {"required": ["trainer"]}]
    sections["ObjectiveSection"]["oneOf"] = ways
    for seeds in (schema["properties"], sections["ConfirmSection"]["properties"]):
        seeds["seeds"] |= {"minItems": 1, "uniqueItems": True}


def _allow_factors(whole: Schema, data: Schema) -> None:
    """A study names its data set, or has it as a factor."""
    data["required"].remove("name")
    whole["required"].remove("dataset")
    parts = {key: {"type": "object"} for key in ("base", "space", "objectives")}
    levels = {}
    for factor, name in (("dataset", data["properties"]["name"]), ("encoder", {"type": "string"})):
        options = {"name": name, "label": {"type": "string"}, **parts}
        level = {"type": "object", "properties": options, "required": ["name"]}
        levels[factor] = _points({"anyOf": [name, level]})
    whole["properties"]["factors"] = {
        "description": "the study on several data sets and with several encoders, cell by cell",
        **_mapping(levels),
        "minProperties": 1,
    }
    named = {"properties": {"dataset": {"required": ["name"]}}, "required": ["dataset"]}
    is_factor = {"properties": {"factors": {"required": ["dataset"]}}, "required": ["factors"]}
    whole |= {"if": is_factor, "else": named}


def _mapping(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}


def _about(param: Param) -> Schema:
    return {"description": f"{param.doc} ({param.source}). Default: {param.default}"}


def _type(param: Param) -> Schema:
    if param.kind == "choice":
        return {"enum": list(param.choices)}
    if param.kind == "names":
        return {"anyOf": [{"type": "string"}, _points({"enum": list(param.choices)})]}
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
    """The dimension of a hyperparameter: a range, a grid of points, or choices."""
    of = _type(param)
    choices = {"choices": _points(of), "when": {"$ref": "#/$defs/when"}}
    if param.kind in ("choice", "bool"):
        return {**_about(param), **_mapping(choices), "required": ["choices"]}
    ends = {"low": of, "high": of, "log": {"type": "boolean"}, "grid": _points(of)}
    return {**_about(param), **_mapping(ends | choices), "minProperties": 1}
