"""The JSON Schema of study files: what is shipped is valid, what is malformed is not."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from clsweep.catalog.plugins import activate
from clsweep.cli.study_commands import schema
from clsweep.errors import RequestError, StudyError
from clsweep.study.document import parse_document, shipped_studies, study_question
from clsweep.study.json_schema import study_schema
from tests.study.test_mistakes import CASES, STUDY

# What a schema cannot say: these need the meaning of one value beside another, or of a file.
BEYOND = {
    "epochs: 1e30", "images_on: host", "workers: 2, gpus_per_worker: 0.5",
    "val_fraction: 0.005", "epochs: 6\n  lr: 1e999", "seeds: [1, 8]",
    "  jitter_strength: 0\nspace:\n  jitter_prob: {grid: [0.2, 0.8]}\n",
    "checkpoints: {keep: none, every_s: 5}\nresources:",
    "scheduler: {grace_epochs: 2}\nresources:",
    "scheduler: {name: asha}\nresources:", "stem: small",
    "search: {method: grid, objectives: [knn_top1, seconds]}",
    "gray_prob: 0.1", "loss: dclw, base: {sigma: 1},", "low: 2", "[0.1, 3]",
    "weight_decay: {low: 0, high: 1, log: true}", "epochs: {choices: [0, 9]}", ", grid: [0.1, 0.3]",
    "{method: qmc, trials_per_objective: 4}", "{method: grid, trials_per_objective: 3}",
    "mode: min", "loss: infonce, space: {sigma: {grid: [1]}}}", "choices",
    ", high: 1.0, log: true", "low: 0.05, high: 1.0, ",
    "batch_size: 2000", "knn_k: 5000", "warmup_epochs: 6", "  INFONCE:", f"  {'d' * 65}:",
}  # fmt: skip


@cache
def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(study_schema())


def tree(text: str) -> dict[str, Any]:
    return parse_document(text.encode(), "study.yaml").tree


def test_it_is_a_json_schema_itself():
    jsonschema.Draft202012Validator.check_schema(study_schema())


@pytest.mark.parametrize("path", shipped_studies().values(), ids=shipped_studies())
def test_a_shipped_study_is_valid_and_names_the_schema(path):
    text = path.read_text()
    assert not list(validator().iter_errors(tree(text)))
    if named := re.match(r"# yaml-language-server: \$schema=(\S+)\n", text):
        assert (path.parent / named[1]).resolve() == Path(shipped_file()).resolve()
    assert "yaml-language-server" not in study_question(path)


def shipped_file() -> Path:
    return shipped_studies()["quickstart"].parent / "study.schema.json"


def test_the_shipped_schema_is_that_of_this_catalog():
    advice = "write it anew: clsweep schema --out studies/study.schema.json"
    assert json.loads(shipped_file().read_text()) == study_schema(), advice


def test_malformed_studies_are_invalid():
    assert validator().is_valid(tree(STUDY))
    accepted = set()
    for old, new, _ in CASES:
        assert old in STUDY
        try:
            given = tree(STUDY.replace(old, new, 1))
        except StudyError:  # no YAML: an editor says so itself
            continue
        accepted |= {new or old} if validator().is_valid(given) else set()
    assert accepted == BEYOND


def test_it_is_written_beside_a_study(tmp_path, capsys):
    schema(tmp_path / "s.json")
    assert json.loads((tmp_path / "s.json").read_text()) == study_schema()
    assert capsys.readouterr().out.endswith("\n# yaml-language-server: $schema=s.json\n")
    with pytest.raises(RequestError, match="cannot be written: No such file"):
        schema(tmp_path / "none" / "s.json")


def test_with_a_plug_in_its_rows_are_known_and_others_are_not(tmp_path, cli_command):
    cli_command("new", "loss", "my_own", "--out", str(tmp_path))
    path = tmp_path / "own.json"
    assert (
        cli_command("schema", "--plugin", str(tmp_path / "my_own.py"), "--out", str(path))[0] == 0
    )
    validator = jsonschema.Draft202012Validator(json.loads(path.read_text()))
    study = yaml.safe_load((tmp_path / "my_own.yaml").read_text())
    validator.validate(study)
    study["objectives"]["my_own"]["loss"] = "my_won"
    assert not validator.is_valid(study)
    activate(())
