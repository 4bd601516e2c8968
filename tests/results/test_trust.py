"""A results folder may be anybody's: no command executes, imports or resolves what one names,
unless its user trusts it.
"""

import hashlib
import importlib
import json
import sys

import pyarrow as pa
import pytest
import torch
import yaml

from clsweep.api import open_results
from clsweep.catalog.plugins import activate
from clsweep.cluster import runner
from clsweep.errors import UserError
from clsweep.objective.build import build_encoder
from clsweep.results.folder import ResultsFolder, encoder_file
from clsweep.results.integrity import STUDY_DIGEST as STUDY_KEY
from clsweep.results.integrity import decode_table, digest, encode_table
from clsweep.results.weights import about_encoder, pack_weights, unpack_weights
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.document import Document
from clsweep.study.resolve import load_study

STUDY = """\
name: small
plugins: [mine.py]
dataset: {name: digits}
metric: {name: knn_top1, mode: max}
seeds: [0, 1]
base: {encoder: mine, epochs: 2, batch_size: 32, my_text: plain}
space: {tau: {low: 0.05, high: 1.0, log: true, grid: [0.1, 0.9]}}
objectives:
  infonce: {framework: simclr, loss: infonce}
  dcl: {framework: simclr, loss: dcl}
search: {method: grid}
confirm: {top: 1, seeds: [7, 8]}
"""
PLUGIN = """\
from clsweep.catalog import Component, Param

TEXT = {"doc": "of one's own", "source": "-"}


def mine(my_text):
    from tests.model.own_encoders import of_three

    network = of_three()
    network.num_features = 6
    return network


ROWS = [
    Component(part="encoder", name="mine", impl="mine", owns=("my_text",), num_features=6, **TEXT),
    Param(name="my_text", kind="choice", default="plain", choices=("plain",), symbol="t",
          pattern="[a-z]+", **TEXT),
]
"""
TRIAL = "dcl-0000-s0"


@pytest.fixture(autouse=True)
def _none_after():
    yield
    activate(())


@pytest.fixture
def out(tmp_path):
    """Results of a study whose encoder is a plug-in's."""
    (tmp_path / "mine.py").write_text(PLUGIN)
    (tmp_path / "own.yaml").write_text(STUDY)
    study = load_study(tmp_path / "own.yaml")
    rows = [plan_row(study, trial) for trial in plan_trials(study)]
    folder = ResultsFolder(str(tmp_path / "out"))
    folder.create(study.document.dump(), rows, study.document.plugins)
    for row in rows:
        folder.add_trial({**row, "status": "finished", "knn_top1": 80.0 + row["seed"]})
    folder.compact()
    torch.manual_seed(0)
    row = next(row for row in rows if row["trial_id"] == TRIAL)
    weights = {name: tensor.numpy() for name, tensor in build_encoder(row).state_dict().items()}
    folder.write(
        encoder_file(TRIAL),
        pack_weights(weights, about_encoder(row, {"mean": [0.5], "std": [0.2]})),
    )
    activate(())
    return tmp_path / "out"


def _plugins(out, *, listed=False, **changes):
    """Other plug-ins in a folder, with digests that fit."""
    (packed,) = json.loads((out / "plugins.json").read_bytes())
    packed |= changes
    if not packed["is_package"]:
        packed["digest"] = hashlib.sha256(packed["files"]["mine.py"].encode()).hexdigest()[:16]
    (out / "plugins.json").write_text(json.dumps([] if listed else [packed]))
    tree = yaml.safe_load((out / "study.yaml").read_text())
    tree["plugins"] = [packed["name"]] if listed else {packed["name"]: packed["digest"]}
    _write(out, tree)


def _write(out, tree):
    """Another study, of which the plan says that it is its own."""
    (out / "study.yaml").write_text(Document("", tree).dump())  # 92e54 as a text
    plan = decode_table((out / "plan.parquet").read_bytes())
    marked = plan.replace_schema_metadata({STUDY_KEY: digest(tree)})
    (out / "plan.parquet").write_bytes(encode_table(marked))


def _with_values(out, column, value):
    for name in ("plan.parquet", "trials.parquet"):
        table = decode_table((out / name).read_bytes())
        at = table.column_names.index(column)
        values = pa.array([value] * table.num_rows)
        (out / name).write_bytes(encode_table(table.set_column(at, table.schema.field(at), values)))


def _rows_that_call(out, canary):
    """A shell command, the argument of a function of Python's own."""
    (packed,) = json.loads((out / "plugins.json").read_bytes())
    packed["rows"][0]["impl"] = "os:system"
    _plugins(out, rows=packed["rows"])
    _with_values(out, "my_text", f"touch {canary}")


def _text_that_writes(out, canary):
    _plugins(
        out, files={"mine.py": f"{PLUGIN}\nROWS.append(open({str(canary)!r}, 'w') and ROWS[0])\n"}
    )


def _file_that_writes(out, canary):
    (out / "evil.py").write_text(f"ROWS = [open({str(canary)!r}, 'w')]\n")
    _plugins(out, listed=True, name="evil.py")


def _package_that_writes(out, canary):
    (out / "evil_package.py").write_text(f"ROWS = [open({str(canary)!r}, 'w')]\n")
    _plugins(out, name="evil_package", module="evil_package", is_package=True, digest="0 abc")


def _module_that_others_look_for(out, canary):
    """Packages import modules that may be missing, and take what a finder has."""
    _plugins(out, module="sksparse", files={"mine.py": f"{PLUGIN}\nopen({str(canary)!r}, 'w')\n"})


def _module_beside(out, canary):
    (out / "evil_module.py").write_text(f"open({str(canary)!r}, 'w')\n")
    _instead_of_mine(out, "evil_module:build")


def _pythons_own(out, _):
    _instead_of_mine(out, "antigravity:geohash")


def _instead_of_mine(out, encoder):
    _with_values(out, "encoder", encoder)
    tree = yaml.safe_load((out / "study.yaml").read_text())
    tree["base"]["encoder"] = encoder
    _write(out, tree)
    folder = ResultsFolder(str(out))
    weights, _ = unpack_weights(folder.decoded(encoder_file(TRIAL), bytes), "")
    row = next(row for row in folder.trials().to_pylist() if row["trial_id"] == TRIAL)
    folder.write(
        encoder_file(TRIAL),
        pack_weights(weights, about_encoder(row, {"mean": [0.5], "std": [0.2]})),
    )


ATTACKS = [
    _rows_that_call, _text_that_writes, _file_that_writes, _package_that_writes,
    _module_that_others_look_for, _module_beside, _pythons_own,
]  # fmt: skip
READING = ("status", "trials", "robustness", "sensitivity", "compare", "recommend", "pareto",
           "picks", "reproduce", "report")  # fmt: skip
IN_TURN = READING[2:-1]  # they open a folder alike: all meet one attack, and each of the others one


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_command_executes_what_a_folder_names(out, tmp_path, cli_command, monkeypatch, attack):
    canary = tmp_path / "executed"
    attack(out, canary)
    monkeypatch.chdir(out)  # as somebody does who looks into what was downloaded
    monkeypatch.syspath_prepend(str(out))
    monkeypatch.setattr(runner._Run, "_session", lambda _: pytest.fail("it would run"))
    before = {*sys.modules}
    number = ATTACKS.index(attack)
    names = READING if attack is _rows_that_call else (*READING[:2], *IN_TURN[number::6])
    more = {"report": ("--out", str(tmp_path / "report"))}
    answers = {
        name: cli_command(name, str(out), *more.get(name, ("--format", "csv"))) for name in names
    }
    file = str(out / "study.yaml")
    refused = {
        "export": cli_command("export", f"{out}/{TRIAL}", "--out", str(tmp_path / "x.pt")),
        "confirm": cli_command("confirm", str(out)),
        "plan": cli_command("plan", file),
        "run": cli_command("run", file, "--out", str(tmp_path / "again")),
        "try": cli_command("try", file, "-o", "dcl"),
    }
    with pytest.raises(UserError):
        open_results(str(out)).encoder(TRIAL)
    assert not canary.exists()
    assert not {"evil_module", "evil_package", "evil", "antigravity"} & ({*sys.modules} - before)
    for name, (code, _, error) in (answers | refused).items():
        assert code == (2 if error or name in refused else 0), (name, error)
        assert "Traceback" not in error


def test_the_file_and_its_digest_are_told_and_trusted(out, tmp_path, cli_command, monkeypatch):
    (plugin,) = yaml.safe_load((out / "study.yaml").read_text())["plugins"].values()
    command = ("export", f"{out}/{TRIAL}", "--out", str(tmp_path / "x.safetensors"))
    code, _, error = cli_command(*command)
    assert code == 2
    assert f"plug-in mine.py ({plugin})" in error
    assert "--trust" in error
    assert cli_command(*command, "--trust")[0] == 0
    activate(())
    encoder = open_results(str(out)).encoder(TRIAL, trust=True)
    assert encoder(torch.zeros(1, 3, 8, 8)).shape == (1, 6)
    reached = []
    monkeypatch.setattr(runner._Run, "_session", lambda _: reached.append(1) or True)
    cli_command("confirm", str(out), "--trust")
    assert reached


def test_a_plug_in_that_its_user_has_loaded_needs_no_trust(out, tmp_path):
    load_study(tmp_path / "own.yaml")
    assert open_results(str(out)).encoder(TRIAL)(torch.zeros(1, 3, 8, 8)).shape == (1, 6)
    _text_that_writes(out, tmp_path / "executed")
    with pytest.raises(UserError, match=r"would have executed: plug-in mine\.py"):
        open_results(str(out)).encoder(TRIAL)


def test_a_module_that_others_look_for_is_not_that_of_a_folder(out):
    assert open_results(str(out)).trials["my_text"].tolist() == ["plain"] * 8
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("clsweep_plugin_mine")


def test_a_module_is_told_with_its_file(out, tmp_path, monkeypatch):
    _module_beside(out, tmp_path / "executed")
    monkeypatch.syspath_prepend(str(out))
    with pytest.raises(UserError) as caught:
        open_results(str(out)).encoder(TRIAL)
    digest = hashlib.sha256((out / "evil_module.py").read_bytes()).hexdigest()[:16]
    assert f"encoder evil_module:build, of {out}/evil_module.py ({digest})" in str(caught.value)


def test_a_pattern_that_never_ends_is_not_matched(out):
    (packed,) = json.loads((out / "plugins.json").read_bytes())
    packed["rows"][1]["pattern"] = "(a+)+b"
    _plugins(out, rows=packed["rows"])
    tree = yaml.safe_load((out / "study.yaml").read_text())
    tree["base"]["my_text"] = "a" * 60
    tree["space"]["my_text"] = {"choices": ["a" * 60]}
    _write(out, tree)
    assert len(open_results(str(out)).trials) == 8
