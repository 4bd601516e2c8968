"""`clsweep check` and `clsweep new`: a part of every kind keeps the contracts, and who breaks one
is named.
"""

from pathlib import Path

import numpy as np
import pytest

from clsweep.catalog import Component
from clsweep.catalog.plugins import activate, execute, read_plugins
from clsweep.cli import check
from clsweep.cli.check import check_plugin, witness
from clsweep.cli.new import STUDY_SKELETONS
from clsweep.cli.plan import catalog_tables
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from clsweep.train import contracts
from clsweep.train.contracts import BrokenContractError, check_contracts
from clsweep.train.loop import train_trial
from tests.catalog import own_rows

pytestmark = pytest.mark.usefixtures("one_thread", "no_plugin_after")

LOSS = """
import random
import numpy
import torch
from clsweep.catalog import Component
from clsweep.objective.losses import dcl

calls = []


def mine(z1_ND, z2_ND, tau, **memory):
    value = dcl(z1_ND, z2_ND, tau=tau, **memory)
    {body}


ROWS = [Component(part="loss", name="mine", impl="mine", owns=("tau",), on=("simclr",),
                  source="-", doc="-")]
"""
FIRST, REPEATED = "trains, and all numbers are finite", "the same trial gives the same numbers"
RESUMED = "killed and resumed it ends the same"
OWN_ROWS = Path(own_rows.__file__)


def witnessed(folder, plugin):
    """The trial by which a plug-in is checked, and the place of its data."""
    (folder / "mine.py").write_text(plugin)
    plugins = read_plugins(["mine.py"], folder)
    activate(plugins)
    execute(plugins)
    study = witness(plugins[0].rows[0], plugins)
    return plan_row(study, plan_trials(study)[0]), study.sections.dataset.place


def verdicts(folder, body):
    """What breaks, contract by contract, without those that need two workers."""
    return dict(check_contracts(*witnessed(folder, LOSS.format(body=body))))


def test_a_loss_may_draw_from_the_generators_of_the_process(tmp_path):
    draws = "torch.rand(()) * float(numpy.random.rand()) * random.random()"
    assert verdicts(tmp_path, f"return value * {draws}") == {FIRST: "", REPEATED: "", RESUMED: ""}


def test_a_loss_that_draws_beside_the_generators_is_found(tmp_path):
    body = "return value * float(numpy.random.default_rng().random())"
    assert "train_loss: expected" in verdicts(tmp_path, body)[REPEATED]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return value / 0", "mine.py:11: DivergedError: the loss is nan"),
        ("return value.item()", "mine.py:11: mine: expected a scalar tensor"),
        ("return value.detach()", "mine.py:11: mine: expected a scalar tensor of floating point"),
        ("raise OSError('my own')", "mine.py:13: OSError: my own"),
        ("z1_ND.data.mul_(2); return value", "mine.py:11: mine: expected to leave what it is"),
        ("z1_ND.detach().numpy()[0] = 1; return value", "expected to leave what it is given"),
        ("return value[None]", "mine.py:11: LossShapeError: the loss: expected a scalar"),
    ],
)
def test_what_cannot_train_is_told_once(tmp_path, body, message):
    failures = verdicts(tmp_path, body)
    assert list(failures) == [FIRST]
    assert message in failures[FIRST]


ENCODER = """
import torch
from torch import nn
from clsweep.catalog import Component, Diagnostic

TEXT = {{"source": "-", "doc": "-"}}


class Mine(nn.Module):
    num_features = 8

    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(192, 8), 0
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        y = self.linear(x.flatten(1))
        {body}
        return y


def mine(objective):
    {diagnosed}
    return torch.ones(1)


ROWS = [Component(part="encoder", name="mine", impl="Mine", num_features=8, **TEXT),
        Diagnostic(name="mine", impl="mine", takes=("objective",), summary="mean", **TEXT)]
"""
UNSEEN = "it changes nothing of the trial"
BUFFERED = "self.mean.lerp_(y.detach().mean(0), 0.1); y = y - self.mean"


@pytest.mark.parametrize(
    ("body", "diagnosed", "expected"),
    [
        ("self.calls += self.training; y = y + self.calls", "pass", [RESUMED]),
        (BUFFERED, "pass", []),
        ("pass", "[p.grad.data.mul_(2) for p in objective.parameters()]", [UNSEEN]),
    ],
)
def test_what_is_lost_or_changed_beside_is_found(tmp_path, body, diagnosed, expected):
    trial = witnessed(tmp_path, ENCODER.format(body=body, diagnosed=diagnosed))
    assert [name for name, why in check_contracts(*trial, column="mine") if why] == expected


def test_what_differs_in_the_second_pass_of_a_chunk_is_found(tmp_path):
    contracts._goes_in_chunks(*witnessed(tmp_path, ENCODER.format(body=BUFFERED, diagnosed="pass")))
    counted = ENCODER.format(body="self.calls += 1; y = y * (1 + self.calls)", diagnosed="pass")
    with pytest.raises(BrokenContractError, match=r"gradient of encoder\.linear"):
        contracts._goes_in_chunks(*witnessed(tmp_path, counted))


@pytest.mark.parametrize("kind", STUDY_SKELETONS)
def test_a_skeleton_s_study_is_planned_trained_and_in_the_catalog(kind, tmp_path, cli_command):
    code, output, _ = cli_command("new", kind, "my_own", "--out", str(tmp_path))
    assert (code, "clsweep check" in output) == (0, True)
    study = load_study(tmp_path / "my_own.yaml")
    assert [plugin.name for plugin in study.document.plugins] == ["my_own.py"]
    rows = [plan_row(study, trial) for trial in plan_trials(study)]
    assert rows[0]["plugins"].startswith("my_own.py ")
    train_trial(rows[0], [].append, place=study.sections.dataset.place)
    tables = catalog_tables(None).values()
    listed = {name for table in tables for row in table for name in row.values()}
    assert {row.name for row in study.document.plugins[0].rows} <= listed
    activate(())
    code, _, error = cli_command("new", kind, "my_own", "--out", str(tmp_path))
    assert (code, "exists already" in error) == (2, True)


@pytest.mark.parametrize(("name", "message"), [("dcl", "has this name"), ("My-1", "small letters")])
def test_a_name_that_cannot_be(name, message, tmp_path, cli_command):
    code, _, error = cli_command("new", "loss", name, "--out", str(tmp_path))
    assert (code, message in error) == (2, True)
    assert not list(tmp_path.iterdir())


def test_a_kind_without_a_skeleton_stands_in_the_docs(cli_command):
    code, _, error = cli_command("new", "encoder", "my_own")
    assert (code, error) == (2, (
        "new encoder: expected one of cluster, loss, framework, metric, dataset, trainer; "
        "clsweep/catalog/rows.py says of every other part how its function is called\n"
    ))  # fmt: skip
    assert "clsweep/catalog/rows.py says" in " ".join(cli_command("new", "--help")[1].split())


@pytest.mark.slow
def test_a_part_of_every_kind_keeps_every_contract():
    checked = [*check_plugin(str(OWN_ROWS))]
    assert {row for row, _, _ in checked} >= {
        f"{row.part} {row.name}" for row in own_rows.ROWS if isinstance(row, Component)
    }
    assert not [each for each in checked if each[2]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", STUDY_SKELETONS)
def test_a_skeleton_keeps_every_contract(kind, tmp_path, cli_command):
    cli_command("new", kind, "my_own", "--out", str(tmp_path))
    code, output, _ = cli_command("check", str(tmp_path / "my_own.py"))
    assert (code, "FAILED" in output) == (0, False), output


METRIC = """
from clsweep.catalog import Component, Metric, Param
from clsweep.objective.losses import dcl

TEXT = {{"source": "-", "doc": "-"}}


def mine(bank_ND, bank_labels_N, query_MD, query_labels_M, *, num_classes, my_a, knn_k):
    return {{"mine": {body}}}


def own(z1_ND, z2_ND, tau, my_a, **memory):
    return {loss} * dcl(z1_ND, z2_ND, tau=tau, **memory)


ROWS = [
    Metric(name="mine", mode="max", impl="mine", every_epoch=True, owns=("my_a", "knn_k"), unit="",
           doc="-"),
    Component(part="loss", name="own", impl="own", owns=("tau", "my_a"), on=("simclr",), **TEXT),
    Param(name="my_a", kind="float", default=1.0, low=0, high=8, **TEXT),
]
"""


@pytest.mark.parametrize(
    ("body", "loss", "ignored"),
    [
        ("my_a * knn_k", "my_a", []),
        ("my_a // 1e9 + knn_k", "my_a", ["my_a of mine"]),
        ("my_a + 0 * knn_k", "my_a", ["knn_k"]),
        ("my_a * knn_k", "1", ["my_a of own"]),
    ],
)
def test_a_hyperparameter_that_its_owner_ignores_is_found(body, loss, ignored, tmp_path):
    """Also where another score heeds it, or of a loss and a score only one."""
    (tmp_path / "mine.py").write_text(METRIC.format(body=body, loss=loss))
    plugins = read_plugins(["mine.py"], tmp_path)
    activate(plugins)
    metric, _, param = plugins[0].rows
    study = witness(metric, plugins, ["base.batch_size=512"])
    config, place = plan_row(study, plan_trials(study)[0]), study.sections.dataset.place
    others = check._others(metric, config, {"my_a"})["knn_k"]
    tried = {"knn_k": contracts.counts(config, place, "knn_k", others, "mine")}
    tried |= check._verdicts(param, plugins, ["base.batch_size=512"], str)
    words = "another value of it gives other numbers"
    assert [name.replace(words, "my_a") for name, failure in tried.items() if failure] == ignored
    assert all("expected other numbers" in failure for failure in tried.values() if failure)


DATASET = """
import numpy as np
from clsweep.catalog import Dataset
from clsweep.data.datasets import Split


def mine(dataset, place):
    images = np.load(place.root_folder / "images.npy")
    return tuple(Split.whole(images, np.arange(len(images)) % 2) for _ in range(2))


ROWS = [Dataset(name="mine", impl="mine", num_train=100, num_test=100, image_size=8, channels=3,
                num_classes=2, doc="-")]
"""


def test_the_folder_of_a_data_set_is_said_and_can_be_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(DATASET)
    tried = []
    *_, (_, _, failure) = check_plugin("mine.py", tell=tried.append)
    assert failure.endswith(
        f"; files are sought in {tmp_path}/data: --set dataset.root=FOLDER names another"
    )
    assert tried == [f"dataset mine: {FIRST}"]
    images = np.random.default_rng(0).integers(0, 255, (100, 8, 8, 3), dtype=np.uint8)
    np.save(tmp_path / "images.npy", images)
    checked = [*check_plugin("mine.py", ["dataset.root=."])]
    assert len(checked) > 1
    assert not [each for each in checked if each[2]]


OPTIMIZER = """
import torch
from clsweep.catalog import Component


class Mine(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            {body}
        return super().step(closure)


def mine(groups, *, lr, sgd_momentum):
    return Mine(groups, lr=lr, momentum=sgd_momentum)


ROWS = [Component(part="optimizer", name="mine", impl="mine", owns=("sgd_momentum",),
                  source="-", doc="-")]
"""


@pytest.mark.slow
@pytest.mark.parametrize("ignored", ["", "lr", "momentum", "weight_decay"])
def test_an_optimizer_that_ignores_a_hyperparameter_is_found(tmp_path, ignored):
    path = tmp_path / "mine.py"
    path.write_text(OPTIMIZER.format(body=f"group['{ignored}'] = 0.01" if ignored else "pass"))
    broken = [failure for _, _, failure in check_plugin(str(path)) if failure]
    assert len(broken) == bool(ignored)
    words = f"given the same with {'sgd_' * (ignored == 'momentum')}{ignored} ="
    assert all(words in failure for failure in broken)


@pytest.mark.slow
def test_an_encoder_that_mixes_the_batch_of_a_worker_is_found(tmp_path, cli_command):
    path, text = tmp_path / "mine.py", OWN_ROWS.read_text()
    mixed = text.replace("self.layers(x_NCHW)", "self.layers(x_NCHW - x_NCHW.mean(0))")
    assert mixed != text
    rows = "ROWS = [row for row in ROWS if row.name == 'own_encoder']\n"
    path.write_text(mixed + rows)
    failures = {contract: why for _, contract, why in check_plugin(str(path)) if why}
    assert [*failures] == ["two workers train as one"]
    assert "of two workers too" in failures["two workers train as one"]
    code, output, _ = cli_command("check", str(path))
    assert (code, "FAILED  encoder own_encoder: two workers" in output) == (1, True)
