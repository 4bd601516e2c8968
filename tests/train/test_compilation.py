"""`compile: true` trains the same trial, up to rounding, and tells its own time."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from tests.contracts.attempts import assert_same, attempt, chain
from tests.contracts.combinations import CASES

pytestmark = pytest.mark.usefixtures("one_thread", "few")

# Queue, drawn negatives, a regularizer that draws, batch statistics, chunks: what a step leaves.
LEAVES = {
    "simclr-eqco-none-two-num_negatives=7": {},
    "moco-dcl-dimcl-core": {"chunk_size": 8},
    "dino-soft_cross_entropy-sigreg-two-momentum_schedule=constant": {},
}


@pytest.mark.parametrize("name", LEAVES)
def test_compiling_ahead_leaves_no_trace(name, monkeypatch):
    """With a compiler that does nothing, numbers and weights are those of a plain trial."""
    compiled: list[Any] = []
    monkeypatch.setattr(nn.Module, "compile", lambda module, **_: compiled.append(module))
    config = CASES[name] | LEAVES[name]
    plain, ahead = attempt(config), attempt(config | {"compile": True})
    assert len(compiled) == 1
    assert plain.result["compile_s"] is None
    assert ahead.result["compile_s"] > 0
    assert_same(ahead, plain)
    kills = chain(config | {"compile": True}, kills=[1])
    assert len(compiled) == 3, "each attempt compiles"
    assert_same(kills[-1], plain)


@pytest.mark.slow
def test_a_compiled_trial_is_the_plain_one_up_to_rounding_and_goes_on_after_a_kill():
    config = CASES["simclr-dcl-none-two"]
    plain, compiled = attempt(config), attempt(config | {"compile": True})
    assert torch._dynamo.utils.counters["frames"]["ok"], "torch compiled something"
    for actual, expected in zip(compiled.rows, plain.rows, strict=True):
        assert actual["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-3)
    weights, wanted = compiled.result["encoder"], plain.result["encoder"]
    torch.testing.assert_close(weights, wanted, rtol=1e-2, atol=1e-3)
    assert compiled.result["compile_s"] > sum(row["time_s"] for row in compiled.rows)
    assert_same(chain(config | {"compile": True}, kills=[1])[-1], compiled)


TRIAL = """
from clsweep.train import loop
from tests.contracts.combinations import CASES, few_images
loop.load_splits = few_images
loop.train_trial(CASES["simclr-dcl-none-two"] | {"compile": True}, lambda row: True)
"""


@pytest.mark.slow
def test_without_a_compiler_it_is_refused_in_one_line(tmp_path):
    env = {**os.environ, "CXX": "no-such-compiler", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", TRIAL], capture_output=True, text=True, env=env)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("clsweep.errors.RequestError: compile: torch cannot compile"), (
        done.stderr
    )
    assert last.endswith("Expected: false, or a machine where it can")
