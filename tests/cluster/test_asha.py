"""Successive halving against a plain version of its rule, over random scores in random order."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from optuna.distributions import FloatDistribution
from optuna.storages import JournalStorage
from optuna.trial import TrialState

from clsweep.cluster.schedulers.asha import _ATTRIBUTE, AshaConfig, AshaScheduler
from clsweep.results.journal import Journal, Outcome, open_storage
from clsweep.study.resolve import load_study
from tests.cluster.conftest import wait_until
from tests.planted import study_at, study_tree

SPACE = {"x": FloatDistribution(0, 1)}


class PlainAsha:
    """One objective. A rung lies at every grace * factor^k epochs; one in `factor` of those that
    reached it goes on.
    """

    def __init__(self, grace, factor, mode):
        self.grace, self.factor, self.sign = grace, factor, 1 if mode == "max" else -1
        self.rungs = {}  # by the rung's number: score of each configuration
        self.climbed = {}  # by configuration: rungs that it has passed

    def goes_on(self, config, epoch, score):
        number = self.climbed.get(config, 0)
        while epoch >= self.grace * self.factor**number:
            on_rung = self.rungs.setdefault(number, {})
            on_rung[config] = self.sign * score
            num_better = sum(other > on_rung[config] for other in on_rung.values())
            if num_better >= max(1, len(on_rung) // self.factor):
                return False
            number = self.climbed[config] = number + 1
        return True


def config_of(objectives=("a",), epochs=20, grace=1, factor=3, first_seed=5):
    last = dict.fromkeys(objectives, epochs)
    return AshaConfig(
        first_seed=first_seed, grace_epochs=grace, reduction_factor=factor, last_epochs=last
    )


def journals(path, objectives, num_configs, mode="max"):
    """The driver's side: every configuration runs."""
    storage = open_storage(str(path), alone=True)
    made = {name: Journal(storage, name, [mode], SPACE, key="config") for name in objectives}
    for journal in made.values():
        for config in range(num_configs):
            journal.start({"config": config}, {"x": 0.5})
    return made


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("seed", range(4))
def test_the_scheduler_decides_as_the_plain_rule(tmp_path, mode, seed):
    """In random order, some questions twice, a new scheduler now and then."""
    dice = random.Random(f"{seed} {mode}")
    objectives, num_configs, eval_every = ("a", "b"), 14, dice.choice([1, 2, 3])
    grace, factor = dice.choice([1, 2, 4]), dice.choice([2, 3, 4])
    own = config_of(objectives, grace=grace, factor=factor)
    made = journals(tmp_path / "journal", objectives, num_configs, mode)
    scheduler = AshaScheduler(str(tmp_path / "journal"), own)
    plain = {name: PlainAsha(grace, factor, mode) for name in objectives}
    running = {
        (name, config, s): 0 for name in objectives for config in range(num_configs) for s in (5, 6)
    }
    stopped, answers = {}, {}
    while running:
        name, config, s = key = dice.choice(sorted(running))
        epoch = running[key] = running[key] + eval_every
        is_last = epoch + eval_every > 20
        score = float(dice.randint(0, 30))  # with ties
        if dice.random() < 0.05:
            scheduler = AshaScheduler(str(tmp_path / "journal"), own)
        answer = scheduler.may_go_on(name, config, s, 20 if is_last else epoch, score)
        if is_last:
            expected = True
        elif s == 5:
            expected = plain[name].goes_on(config, epoch, score)
            stopped |= {} if expected else {(name, config): epoch}
        else:
            expected = epoch < stopped.get((name, config), 21)
        assert answer == expected
        if s == 5:
            answers[name, config, epoch] = answer
        if is_last or not answer:
            del running[key]
        if dice.random() < 0.2 and answers:
            (n, c, e), before = dice.choice(sorted(answers.items()))
            assert scheduler.may_go_on(n, c, 5, e, score) == before
    assert 0 < len(stopped) < 2 * num_configs
    for name, journal in made.items():
        for config in range(num_configs):
            entry = journal.entry(config)
            assert entry.user_attrs[_ATTRIBUTE]["stopped_at"] == stopped.get((name, config))
            assert entry.last_step == stopped.get((name, config), 20)


def test_a_scheduler_that_dies_before_its_verdict_is_noted_decides_again(tmp_path, monkeypatch):
    journals(tmp_path / "journal", ["a"], 2)
    scheduler = AshaScheduler(str(tmp_path / "journal"), config_of())
    assert scheduler.may_go_on("a", 0, 5, 1, 50.0)

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(JournalStorage, "set_trial_user_attr", die)
        for config in (0, 1):
            with pytest.raises(KeyboardInterrupt):
                scheduler.may_go_on("a", config, 5, 3 if config == 0 else 1, 40.0)
    scheduler = AshaScheduler(str(tmp_path / "journal"), config_of())
    assert not scheduler.may_go_on("a", 1, 5, 1, 40.0)
    assert scheduler.may_go_on("a", 0, 5, 3, 40.0)  # alone on its rung: not with itself


def test_a_configuration_that_has_ended_is_left_as_it_is(tmp_path):
    """A process that was given up goes on asking."""
    journal = journals(tmp_path / "journal", ["a"], 2)["a"]
    scheduler = AshaScheduler(str(tmp_path / "journal"), config_of())
    journal.finish({"config": 0}, {"x": 0.5}, Outcome(status="failed"))
    assert scheduler.may_go_on("a", 0, 5, 1, 50.0)
    assert (journal.entry(0).state, journal.entry(0).intermediate_values) == (TrialState.FAIL, {})


def test_a_configuration_that_is_run_again_keeps_its_verdict_and_one_place(tmp_path):
    journal = journals(tmp_path / "journal", ["a"], 3)["a"]
    scheduler = AshaScheduler(str(tmp_path / "journal"), config_of(factor=2))
    assert scheduler.may_go_on("a", 0, 5, 1, 50.0)
    assert not scheduler.may_go_on("a", 1, 5, 1, 40.0)
    journal.finish({"config": 0}, {"x": 0.5}, Outcome(status="failed"))
    journal.start({"config": 0}, {"x": 0.5})
    assert scheduler.may_go_on("a", 0, 5, 1, 50.0)
    assert journal.entry(0).intermediate_values == {1: 50.0}
    # second of three; were the failed entry there too, of four
    assert not scheduler.may_go_on("a", 2, 5, 1, 45.0)


def test_the_config_names_the_objectives_that_are_judged(tmp_path):
    tree, infonce = study_tree(), {"framework": "simclr", "loss": "infonce"}
    tree["base"]["epochs"] = 9
    tree["search"] = {"method": "tpe", "trials_per_objective": 12}
    tree["objectives"]["enumerated"] = {**infonce, "space": {"tau": {"choices": [0.1, 0.2]}}}
    tree["objectives"]["untrained"] = {**infonce, "base": {"epochs": 0}}
    asha = {"name": "asha", "grace_epochs": 1, "reduction_factor": 4}
    config = AshaConfig.of(load_study(study_at(tmp_path / "a.yaml", **tree, scheduler=asha)))
    assert config == config_of(("simclr", "dcl"), epochs=9, factor=4, first_seed=0)
    assert AshaConfig.of(load_study(study_at(tmp_path / "a.yaml", **tree))) is None


SCHEDULER = """
import sys
from clsweep.cluster.schedulers.asha import AshaConfig, AshaScheduler
config = AshaConfig(first_seed=5, grace_epochs=1, reduction_factor=3, last_epochs={"a": 20})
scheduler = AshaScheduler(sys.argv[1], config)
for number in range(20):
    for epoch in range(1, 10):
        scheduler.may_go_on("a", number, 5, epoch, float(number))
"""


def test_driver_and_scheduler_write_to_one_journal(tmp_path):
    """While the scheduler decides, the driver ends other configurations; each sees the other's."""
    path = tmp_path / "journal"
    journal = journals(path, ["a"], 60)["a"]
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", SCHEDULER, str(path)], cwd=root) as scheduling:
        wait_until(
            lambda: scheduling.poll() or journal.entry(0).intermediate_values, "the first score"
        )
        for config in range(20, 60):
            ended = Outcome(status="finished", score=float(config))
            journal.finish({"config": config}, {"x": 0.5}, ended)
    assert scheduling.returncode == 0
    operations = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert len(operations) == 1 + 60 + 40 + 20 * 9 * 2
    entries = journal.entries()
    assert [entries[config].value for config in range(20, 60)] == list(range(20, 60))
    for config in range(20):  # each was the best so far
        assert entries[config].last_step == entries[config].user_attrs[_ATTRIBUTE]["epoch"] == 9
