"""Trials that are told to stop after an epoch. Those that are killed then are of
`tests/contracts/test_resuming.py`.
"""

import pytest

from clsweep.train.loop import train_trial
from tests.contracts.attempts import assert_same, attempt, unmeasured
from tests.contracts.combinations import CASES, CRITIC

pytestmark = pytest.mark.usefixtures("one_thread", "few")

CONFIG = {**CASES["moco-dcl-dimcl-core"], "epochs": 3}


@pytest.mark.parametrize("config", [CONFIG, CRITIC], ids=["encoder", "critic"])
def test_told_to_stop_a_trial_ends_with_that_epoch(config):
    """At its last one it is finished."""
    undisturbed, stopped = attempt(config), attempt(config, stop_at=2)
    assert unmeasured(stopped.rows) == unmeasured(undisturbed.rows[:2])
    result = stopped.result
    assert (result["status"], result["epochs_trained"]) == ("stopped", 2)
    assert result["num_images"] * 3 == undisturbed.result["num_images"] * 2
    names = set(stopped.rows[-1]) - {"epoch", "lr", "time_s", "images_per_s"}
    assert all(result[name] == stopped.rows[-1][name] for name in names)
    assert not {"linear_top1", "mi_estimate"} & {*result}
    assert_same(attempt(config, stop_at=3), undisturbed)


def test_only_false_stops():
    for answer in (None, True, 0, ""):
        result = train_trial(CRITIC, lambda _, answer=answer: answer)
        assert result["status"] == "finished"
