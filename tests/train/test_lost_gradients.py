"""Parts with parameters of their own: a loss that is a module trains them, and one whose gradient
ends beside the optimizer ends the trial.
"""

import re

import pytest
import torch

from clsweep.catalog.plugin_guard import PartError
from clsweep.catalog.plugin_import import PluginError
from clsweep.catalog.plugins import activate, error_line, execute, read_plugins
from clsweep.cli.check import witness
from clsweep.objective.build import build_objective
from clsweep.study.design import plan_row, plan_trials
from clsweep.train.checkpoints import unpack_unverified
from clsweep.train.optim import build_optimizer
from clsweep.train.state import seeded
from tests.contracts.attempts import MemoryStore, assert_same, attempt, chain
from tests.contracts.combinations import CRITIC

pytestmark = pytest.mark.usefixtures("one_thread", "nothing_loaded", "no_plugin_after")

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
from clsweep.catalog import Component, Param
from clsweep.objective.losses import infonce

TEXT = {"source": "-", "doc": "-"}
SCALE = nn.Parameter(torch.tensor(2.0))
"""
ROWS = """
ROWS = [Component(part="loss", name="mine", impl="{0}", owns=("my_scale",), on=("{1}",), **TEXT),
        Param(name="my_scale", kind="float", default=4.0, low=0, low_open=True, **TEXT)]
"""
MODULE = """
class Mine(nn.Module):
    def __init__(self, my_scale):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([my_scale]).log())
        self.map = nn.Linear(128, 128)
        self.register_buffer("mean", torch.zeros(128))

    def forward(self, z1_ND, z2_ND):
        self.mean = self.mean.lerp(z1_ND.detach().mean(0), 0.5)
        logits_NN = self.scale.exp() * self.map(z1_ND - self.mean) @ z2_ND.T
        return F.cross_entropy(logits_NN, torch.arange(len(z1_ND)))
"""
STRAY = """
def mine(z1_ND, z2_ND, my_scale, **memory):
    return my_scale * SCALE * infonce(z1_ND, z2_ND, tau=0.1, **memory)
"""
ENCODER = """
class Mine(nn.Module):
    num_features = 8

    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(192, 8)]

    def forward(self, x):
        return self.layers[0](x.flatten(1))


ROWS = [Component(part="encoder", name="mine", impl="Mine", num_features=8, **TEXT)]
"""


def config_of(folder, text):
    (folder / "mine.py").write_text(HEAD + text)
    plugins = read_plugins(["mine.py"], folder)
    activate(plugins)
    execute(plugins)
    study = witness(plugins[0].rows[0], plugins, ["base.batch_size=512"])
    return plan_row(study, plan_trials(study)[0])


@pytest.fixture
def module(tmp_path):
    return config_of(tmp_path, MODULE + ROWS.format("Mine", "simclr"))


def test_the_parameters_of_a_loss_are_trained_and_survive_kills(module):
    whole, store = attempt(module), MemoryStore()
    assert_same(attempt(module, store, keep_end=True), whole)
    first, last = (unpack_unverified(x)["state"]["objective"] for x in store.saved[:2])
    names = "criterion.scale", "criterion.map.weight", "criterion.mean"
    assert all(not torch.equal(first[name], last[name]) for name in names)
    assert_same(chain(module, kills=[1])[-1], whole)


def test_what_a_loss_draws_as_it_is_made_changes_no_other_part(module):
    objective = seeded(build_objective, module)
    plain = seeded(build_objective, {**module, "loss": "dcl", "tau": 0.1})
    own = plain.state_dict()
    assert own.keys() < objective.state_dict().keys()
    assert all(torch.equal(objective.state_dict()[name], x) for name, x in own.items())


@pytest.mark.parametrize("exclude", ["norm_bias", "none"])
def test_a_single_number_has_no_weight_decay(module, exclude):
    objective = seeded(build_objective, module)
    groups = build_optimizer(objective, {**module, "decay_exclude": exclude}).param_groups
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert len(decay) == len([*objective.parameters()])
    assert decay[id(objective.criterion.scale)] == 0
    assert decay[id(objective.criterion.map.weight)] == module["weight_decay"] > 0
    assert (decay[id(objective.criterion.map.bias)] > 0) == (exclude == "none")


@pytest.mark.parametrize("chunk_size", [512, 256])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            STRAY + ROWS.format("mine", "simclr"),
            r"mine.py:\d+: mine: expected the optimizer to have",
        ),
        (ENCODER, r"mine.py:\d+: mine: .* float32 of shape \(8"),
    ],
)
def test_a_gradient_beside_the_optimizer_ends_the_trial(text, message, chunk_size, tmp_path):
    config = config_of(tmp_path, text)
    with pytest.raises(PartError) as caught:
        attempt({**config, "chunk_size": chunk_size})
    assert re.search(message, error_line(caught.value))


def test_a_critic_s_too(tmp_path):
    config_of(tmp_path, STRAY + ROWS.format("mine", "simclr"))
    with pytest.raises(PartError, match=r"make the loss an nn\.Module with this"):
        attempt({**CRITIC, "loss": "mine", "my_scale": 4.0})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MODULE.replace("my_scale)", "other)", 1), "a required argument: 'other'"),
        (MODULE.replace("z1_ND, z2_ND)", "z1_ND)", 1), "too many positional arguments"),
        (MODULE.replace("forward(", "loss("), 'missing the required "forward" function'),
    ],
)
def test_a_class_that_does_not_fit_is_told(text, message, tmp_path):
    with pytest.raises((PluginError, NotImplementedError), match=message):
        attempt(config_of(tmp_path, text + ROWS.format("Mine", "simclr")))


def test_a_class_without_parameters_is_a_loss_too(tmp_path):
    text = MODULE.replace("nn.Module", "").replace("super().__init__()", "self.my = my_scale")
    body = "self.my * infonce(z1_ND, z2_ND, tau=0.1)"
    text = text[: text.index("        self.scale")] + (
        f"    def __call__(self, z1_ND, z2_ND):\n        return {body}\n"
    )
    assert attempt(config_of(tmp_path, text + ROWS.format("Mine", "simclr"))).result["train_loss"]
