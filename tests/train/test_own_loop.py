"""Trainers of the user's own in this process: what they declare, read, report and go on from."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from clsweep.errors import StudyError, UserError
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.json_schema import study_schema
from clsweep.study.resolve import load_study
from tests.contracts.attempts import MemoryStore, attempt

pytestmark = pytest.mark.usefixtures("no_plugin_after")

HEAD = """
import os
import torch
from clsweep.catalog import Metric, Param, trainer

TEXT = {"doc": "of a test", "source": "-"}
SCORES = [Metric(name="own_top1", mode="max", doc="share"),
          Metric(name="own_error", mode="min", unit="", doc="an error")]
PARAMS = [Param(name="gain", kind="float", default=2.0, low=0, **TEXT)]


"""
WALK = '''@trainer(params=PARAMS, uses=["lr"], metrics=SCORES)
def train(trial):
    """A walk."""
    file = trial.checkpoint_folder / "walk.pt"
    walk = torch.randn(3)
    if file.exists():
        walk = torch.load(file)
    for epoch in range(trial.epoch + 1, trial.config["epochs"] + 1):
        walk = walk + trial.config["gain"] * trial.config["lr"] * torch.rand(3)
        torch.save(walk, file)
        trial.report(epoch, {"own_error": walk.sum(), "own_top1": walk > walk.mean()})
'''


def one(body):
    """A trainer that owns `gain` and reports own_top1 and own_error."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"@trainer(params=PARAMS, metrics=SCORES)\ndef train(trial):\n{lines}\n"


READ = 'gain, epochs = trial.config["gain"], trial.config["epochs"]\n'


def study_of(folder, text=WALK, **changes):
    (folder / "loop.py").write_text(HEAD + text)
    study = {
        "name": "own",
        "dataset": {"name": "own"},
        "metric": {"name": "own_error", "mode": "min"},
        "seeds": [0],
        "base": {"epochs": 3},
        "objectives": {"mine": {"trainer": "loop.py:train"}},
        "search": {"method": "grid"},
        **changes,
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    return load_study(folder / "study.yaml")


def first_row(study, **changes):
    return plan_row(study, plan_trials(study)[0]) | changes


def trained(row, *, store=None, kill_at=0, stop_at=0, test=False):
    made = attempt(row, store, kill_at=kill_at, stop_at=stop_at, test=test)
    return made.result, made.rows


def test_what_it_declares_is_planned_and_in_the_schema(tmp_path):
    study = study_of(tmp_path, space={"gain": {"grid": [1, 2]}})
    assert study.plan()[["objective", "framework", "gain", "lr", "epochs"]].to_dict("list") == {
        "objective": ["mine"] * 2, "framework": ["loop.train"] * 2, "gain": [1.0, 2.0],
        "lr": [0.03] * 2, "epochs": [3] * 2,
    }  # fmt: skip
    schema = study_schema(closed=True)
    assert "gain" in schema["$defs"]["base"]["properties"]
    assert "own_error" in schema["$defs"]["MetricSection"]["properties"]["name"]["enum"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base": {"tau": 0.1}}, "base.tau: no objective of this study owns 'tau'"),
        ({"objectives": {"mine": {"trainer": "loop.py:trian"}}}, "Did you mean 'loop.train'"),
        ({"objectives": {"mine": {"trainer": "loop.py"}}}, "expected FILE.py:FUNCTION"),
        ({"objectives": {"mine": {"trainer": "loop.py:train", "loss": "dcl"}}}, "given it and"),
        ({"objectives": {"mine": {"trainer": "none.py:train"}}}, "none.py: this plug-in cannot be"),
        ({"base": {"gain": -1}}, "base.gain: expected a value in [0, inf), given -1"),
        ({"base": {"epochs": 0}}, "epochs: expected at least 1 of a trainer, given 0"),
        ({"dataset": {"name": "digits"}}, "reads data of its own. Expected a dataset of"),
        ({"metric": {"name": "knn_top1"}}, "own_top1, own_error; given knn_top1"),
        ({"base": {"gian": 1}}, "Did you mean 'gain'?"),
    ],
)  # fmt: skip
def test_a_study_that_does_not_fit_is_refused(tmp_path, changes, message):
    with pytest.raises(StudyError) as refusal:
        study_of(tmp_path, **changes)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def train(trial):\n    pass\n", "loop.py:1: expected a list ROWS of rows of"),
        (WALK.replace('uses=["lr"]', 'uses=["lrr"]'), "owns: no parameter 'lrr'"),
        (WALK.replace('uses=["lr"]', 'uses=["optimizer"]'), "given 'optimizer', a part of ours"),
        (WALK.replace("train(trial)", "train(trial, more)"), "missing a required argument: 'more'"),
        (WALK.replace("metrics=", 'gives=["score"], metrics='), "gives.0: "),
    ],
)  # fmt: skip
def test_a_trainer_that_cannot_be_is_refused(tmp_path, text, message):
    with pytest.raises(StudyError) as refusal:
        study_of(tmp_path, text)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return trial.config['epochs']", "'gain' was never read"),
        (READ + "trial.report(4, 1)", "given 4"),
        (READ + "trial.report(1, {'own_tpo1': 1})", "Did you mean 'own_top1'?"),
        (READ + "trial.report(1, {'own_top1': 101})", "expected 0 to 100"),
        (READ + "trial.report(1, {'own_top1': [1, 2]})", "expected a number, or a boolean of each"),
        (READ + "trial.report(1, {'own_error': float('nan')})", "own_error is nan in epoch 1"),
        (READ, "expected trial.report(epoch, metrics), or a returned score"),
        ("trial.config['gian']", "declares no 'gian'. Did you mean 'gain'?"),
        ("trial.config.get('tau', 0.1)", "declares no 'tau'"),
        (READ + "trial.score(None)", "expected gives=['scores', ...]"),
        ("trial.config['gain'] = 1", "does not support item assignment"),
    ],
)
def test_a_loop_that_does_what_it_does_not_say_fails_in_one_line(tmp_path, body, message):
    row = first_row(study_of(tmp_path, one(body)))
    with pytest.raises((UserError, ArithmeticError, TypeError)) as error:
        trained(row)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("returned", "own_top1"),
    [("40.0", 40.0), ("{'own_top1': 40}", 40.0), ("torch.tensor([True, False] * 5)", 50.0)],
)
@pytest.mark.parametrize("reports", [False, True])
def test_it_may_return_its_score(tmp_path, returned, own_top1, reports):
    body = READ + ("trial.report(3, {'own_error': 7})\n" if reports else "") + f"return {returned}"
    result, rows = trained(first_row(study_of(tmp_path, one(body))))
    assert (result["status"], result["own_top1"], result["epochs_trained"]) == (
        "finished", own_top1, 3
    )  # fmt: skip
    assert [row["epoch"] for row in rows] == [3]
    if "torch" in returned:
        [hits] = result["hits"]
        bits = np.unpackbits(np.frombuffer(hits["bits"], np.uint8), count=hits["num_images"])
        assert bits.tolist() == [1, 0] * 5


@pytest.mark.parametrize(
    "whole", ["dict(trial.config)", "dict(trial.config.items())", "{**trial.config}"]
)
def test_a_copy_of_the_configuration_reads_all_of_it(tmp_path, whole):
    body = f"config = {whole}\nreturn config['gain'] + config['epochs']"
    assert trained(first_row(study_of(tmp_path, one(body))))[0]["own_top1"] == 5


def test_kills_change_nothing(tmp_path):
    row = first_row(study_of(tmp_path))
    undisturbed, rows = trained(row)
    for kill_at in (1, 2, 3):
        store = MemoryStore()
        _, before = trained(row, store=store, kill_at=kill_at)
        result, after = trained(row, store=store)
        assert [r["own_error"] for r in after] == [r["own_error"] for r in rows]
        assert before == after[:kill_at] or kill_at == 3  # behind its end a trial begins again
        assert result["own_error"] == undisturbed["own_error"]
        assert result["hits"] == undisturbed["hits"]


def test_one_without_files_begins_again(tmp_path):
    text = WALK.replace("        torch.save(walk, file)\n", "")
    row, store = first_row(study_of(tmp_path, text)), MemoryStore()
    undisturbed, _ = trained(row)
    trained(row, store=store, kill_at=2)
    assert store.payload is None
    result, rows = trained(row, store=store)
    assert result["own_error"] == undisturbed["own_error"]
    assert (len(rows), result["num_resumes"]) == (3, 0)


def test_no_link_leaves_its_folder(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"of somebody else")
    link = f"\n    os.symlink({str(secret)!r}, trial.checkpoint_folder / 'link')"
    text = WALK.replace("    walk = torch.randn(3)", "    walk = torch.randn(3)" + link)
    store = MemoryStore()
    trained(first_row(study_of(tmp_path, text)), store=store, kill_at=2)
    assert b"walk.pt" in store.payload
    assert b"somebody" not in store.payload


@pytest.mark.parametrize("heeds", [True, False])
def test_a_scheduler_stops_it(tmp_path, heeds):
    text = WALK + "        if trial.should_stop:\n            return\n" * heeds
    result, rows = trained(first_row(study_of(tmp_path, text), epochs=50), stop_at=2)
    assert (result["status"], result["epochs_trained"], len(rows)) == ("stopped", 2, 2)


def test_what_has_no_effect_need_not_be_read(tmp_path):
    text = one(
        'config = trial.config\nconfig["way"] == "b" and config["gain"]\nreturn config["epochs"]'
    )
    more = 'Param(name="way", kind="choice", choices=("a", "b"), default="a", **TEXT)'
    gain = 'Param(name="gain", kind="float", default=2.0, inert_when=(("way", "a"),), **TEXT)'
    text = text.replace("PARAMS", f"[{gain}, {more}]")
    study = study_of(tmp_path, text)
    assert trained(first_row(study))[0]["own_top1"] == 3


SCORED = """
from torch import nn


@trainer(uses=["lr"], gives=["data", "views", "scores"])
def train(trial):
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(192, 16))
    images = trial.images("train")
    image, label = images[5]
    assert image.shape == (8, 8, 1) and label == images.labels[5]
    optimizer = torch.optim.SGD(encoder.parameters(), lr=trial.config["lr"])
    for epoch in range(1, trial.config["epochs"] + 1):
        seen = 0
        for (x1, x2), labels in trial.batches(epoch):
            assert x1.shape == x2.shape == (64, 3, 8, 8) and len(labels) == 64
            seen += len(x1)
        trial.report(epoch, {"train_loss": seen, **trial.score(encoder)})
"""


def test_our_views_and_scores_are_there(tmp_path):
    """An encoder that is never changed has the scores of the linear map of its pixels."""
    study = study_of(
        tmp_path, SCORED, dataset={"name": "digits"}, metric={"name": "knn_top1"},
        base={"epochs": 2, "batch_size": 64, "knn_k": 5},
    )  # fmt: skip
    row = first_row(study)
    result, rows = trained(row, test=True)
    assert [each["train_loss"] for each in rows] == [1280, 1280]
    assert rows[0]["knn_top1"] == rows[1]["knn_top1"] > 50
    assert ["linear_top1" in each for each in rows] == [False, True]
    assert {"test_knn_top1", "test_linear_top1", "intra_class_distance"} <= result.keys()
    splits = {(hits["metric"], hits["split"]): hits for hits in result["hits"]}
    assert {("knn_top1", "validation"), ("linear_top1", "test")} <= splits.keys()
    bits = np.frombuffer(splits["knn_top1", "validation"]["bits"], np.uint8)
    right = np.unpackbits(bits, count=splits["knn_top1", "validation"]["num_images"])
    assert 100 * right.mean() == pytest.approx(result["knn_top1"])


def test_two_files_may_share_a_score(tmp_path):
    (tmp_path / "other.py").write_text(HEAD + WALK)
    both = {name: {"trainer": f"{name}.py:train"} for name in ("loop", "other")}
    study = study_of(tmp_path, objectives=both)
    assert [o.parts["framework"] for o in study.objectives] == ["loop.train", "other.train"]
    results = [trained(plan_row(study, trial))[0]["own_error"] for trial in plan_trials(study)]
    assert results[0] == results[1]


def test_the_temporary_folder_is_gone(tmp_path):
    said = f"    open({str(tmp_path / 'at')!r}, 'w').write(str(file))\n    walk ="
    trained(first_row(study_of(tmp_path, WALK.replace("    walk =", said, 1))))
    assert not Path((tmp_path / "at").read_text()).parent.exists()


SIMCLR = """
import torch.nn.functional as F
from clsweep.objective.build import build_encoder


@trainer(uses=["lr", "tau"], gives=["views", "scores"])
def train(trial):
    settings = {"encoder": "conv4", "width": 8, "init": "none", "channels": 1, "image_size": 8}
    encoder = build_encoder({**trial.settings, **settings})
    head = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=trial.config["lr"], momentum=0.9)
    for epoch in range(1, trial.config["epochs"] + 1):
        for views, _ in trial.batches(epoch):
            z = F.normalize(head(encoder(torch.cat(views))), dim=1)
            logits = (z @ z.T / trial.config["tau"]).fill_diagonal_(-torch.inf)
            loss = F.cross_entropy(logits, torch.arange(len(z)).roll(len(z) // 2))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        trial.report(epoch, trial.score(encoder))
"""


@pytest.mark.slow
def test_ours_and_a_loop_of_equal_settings_agree_within_their_interval(tmp_path):
    """SimCLR as somebody writes it down, on the same views: a paired t interval of ten seeds."""
    shared = {"epochs": 4, "batch_size": 64, "lr": 0.05, "tau": 0.2, "knn_k": 5, "blur_prob": 0}
    ours = {"encoder": "conv4", "width": 8, "proj_hidden": 64, "proj_dim": 32, "weight_decay": 0.0,
            "warmup_epochs": 0, "lr_schedule": "constant"}  # fmt: skip
    study = study_of(
        tmp_path, SIMCLR, dataset={"name": "digits"}, metric={"name": "knn_top1"},
        seeds=[*range(10)], base=shared,
        objectives={
            "ours": {"framework": "simclr", "loss": "infonce", "base": ours},
            "mine": {"trainer": "loop.py:train"},
        },
    )  # fmt: skip
    scores = {"ours": [], "mine": []}
    for trial in plan_trials(study):
        scores[trial.objective].append(trained(plan_row(study, trial))[0]["knn_top1"])
    difference = np.subtract(scores["ours"], scores["mine"])
    half = 2.262 * difference.std(ddof=1) / np.sqrt(10)  # t of 9 degrees of freedom
    assert abs(difference.mean()) < half
    assert half < 5, "too wide to say anything"
    assert min(scores["mine"]) > 60
