"""A race of seeds: against a plain version of its rule, over planted scores, in any order and cut
anywhere.
"""

import itertools
import math
import random
import statistics
from collections import Counter

import numpy as np
import pytest
from scipy import stats

import clsweep
from clsweep.cluster.runner import RunRequest, _Run, _tried_again
from clsweep.cluster.schedulers.racing import SKIPPED, SeedRacing, race_statistics
from clsweep.errors import StudyError
from clsweep.results.folder import ResultsFolder
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.extend import extension_errors
from clsweep.study.resolve import load_study
from tests.cluster.without_ray import without_ray
from tests.planted import study_at

METRIC = "knn_top1"
SEEDS = [7, 3, 5, 4, 9]


def raced(tmp_path, num_configs=12, **changes):
    space = {"tau": {"low": 0.05, "high": 1.0, "log": True}}
    changes = {
        "seeds": SEEDS,
        "space": space,
        "search": {"method": "qmc", "trials_per_objective": num_configs},
        "scheduler": {"name": "racing"},
        **changes,
    }
    return load_study(study_at(tmp_path / "study.yaml", **changes))


class Runner:
    """Runs a study's trials without Ray, some at once, each ending at a random time."""

    def __init__(self, study, scores, chance):
        self.study, self.scores, self.chance = study, scores, chance
        self.planned = plan_trials(study)
        self.rows = {}  # of trials that have ended
        self.order = []

    def run(self, *, at_once=3, ends=10**9):
        """Until nothing is left, or so many trials have ended; what then runs leaves no row."""
        race, running = self._race(), []
        for row in self.rows.values():
            race.tell(row, row["status"], row[METRIC])
        while len(self.rows) < ends:
            while len(running) < at_once and (trial := next(race, None)):
                self.order.append(trial.trial_id)
                running.append(trial)
            if not running:
                assert not race.awaits
                return
            trial = running.pop(self.chance.randrange(len(running)))
            row = self._row(
                trial, "finished", self.scores[trial.objective, trial.config, trial.seed]
            )
            if row[METRIC] is None:
                row["status"] = "failed"
            self.rows[trial.trial_id] = row
            race.tell(row, row["status"], row[METRIC])

    def _race(self):
        left = [trial for trial in self.planned if trial.trial_id not in self.rows]
        return SeedRacing(self.study.sections, self.planned, left, self._skip)

    def _skip(self, trial, reason):
        row = self._row(trial, SKIPPED, None)
        self.rows[trial.trial_id] = {**row, "skipped_because": reason}

    def _row(self, trial, status, score):
        names = ("trial_id", "objective", "config", "seed")
        return {**{name: getattr(trial, name) for name in names}, "status": status, METRIC: score}

    @property
    def skipped(self):
        return {name: row for name, row in self.rows.items() if row["status"] == SKIPPED}


def plain_race(scores, confidence):
    """Seeds that each configuration gets of a whole (n, S) table, written out."""
    num, num_seeds = scores.shape
    got, alive = [2] * num, list(range(num))
    for k in range(2, num_seeds):
        table = [[scores[i][j] for j in range(k)] for i in alive]
        rows = [statistics.mean(row) for row in table]
        columns = [statistics.mean(column) for column in zip(*table, strict=True)]
        grand, freedom = statistics.mean(rows), (len(alive) - 1) * (k - 1)
        if freedom:
            square = sum(
                (table[i][j] - rows[i] - columns[j] + grand) ** 2
                for i, j in itertools.product(range(len(alive)), range(k))
            )
            margin = stats.t.ppf(confidence, freedom) * math.sqrt(square / freedom * 2 / k)
            alive = [c for c, mean in zip(alive, rows, strict=True) if max(rows) - mean <= margin]
        for config in alive:
            got[config] += 1
    return got


def planted_scores(study, rng, noise=0.5):
    """Levels that differ and seeds that shift all."""
    configs = sorted({(trial.objective, trial.config) for trial in plan_trials(study)})
    levels = {key: rng.normal(80, 1.5) for key in configs}
    shifts = {seed: rng.normal(0, 2.0) for seed in study.sections.seeds}
    return {
        (*key, seed): level + shift + rng.normal(0, noise)
        for key, level in levels.items()
        for seed, shift in shifts.items()
    }


@pytest.mark.parametrize("seed", range(4))
def test_the_seeds_that_run_are_those_of_the_plain_rule(tmp_path, seed):
    study, rng = raced(tmp_path), np.random.default_rng(seed)
    scores = planted_scores(study, rng)
    runner = Runner(study, scores, random.Random(seed))
    runner.run()
    ran = Counter(
        (row["objective"], row["config"]) for row in runner.rows.values() if row[METRIC] is not None
    )
    for objective in ("simclr", "dcl"):
        table = np.array([[scores[objective, c, s] for s in SEEDS] for c in range(12)])
        assert [ran[objective, c] for c in range(12)] == plain_race(table, 0.95)
    assert len(runner.rows) == len(runner.planned)  # each has a row
    assert runner.skipped


@pytest.mark.parametrize("seed", range(4))
def test_order_and_interruptions_change_no_decision(tmp_path, seed):
    study, chance = raced(tmp_path), random.Random(seed)
    scores = planted_scores(study, np.random.default_rng(seed))
    whole, cut = Runner(study, scores, random.Random(1)), Runner(study, scores, chance)
    whole.run(at_once=1)
    for _ in range(6):
        cut.run(at_once=5, ends=len(cut.rows) + chance.randrange(20))
        for name in list(cut.skipped)[::2]:  # killed while it wrote them
            del cut.rows[name]
    cut.run(at_once=7)
    assert cut.rows == whole.rows


def test_of_two_equals_the_second_is_out_as_rarely_as_is_said():
    """Beside others that are far behind, and tell how large the noise is."""
    rng, repeats, confidence = np.random.default_rng(0), 2000, 0.9
    levels = np.array([0.0, 0.0, -50.0, -60.0])
    out = 0
    for _ in range(repeats):
        scores = levels[:, None] + rng.normal(size=(4, 3)) + rng.normal(0, 9, 3)
        _, gaps, margins = race_statistics(scores, confidence=confidence)
        beaten = gaps > margins
        assert beaten.tolist()[2:] == [True, True]
        out += bool(beaten[:2].any())
    interval = stats.binomtest(out, repeats).proportion_ci(0.999)
    assert interval.low <= 2 * (1 - confidence) <= interval.high  # either of both may lead


def test_where_less_is_better_the_least_leads(tmp_path):
    metric = {"name": "alignment", "mode": "min"}
    study = raced(tmp_path, num_configs=4, metric=metric)
    scores = {
        (t.objective, t.config, t.seed): 1.0 + t.config + 0.01 * t.seed * t.config
        for t in plan_trials(study)
    }
    runner = Runner(study, scores, random.Random(0))
    runner.run()
    assert 0 not in {row["config"] for row in runner.skipped.values()}


def test_a_failed_seed_is_no_score_and_one_without_any_is_out(tmp_path):
    study = raced(tmp_path, num_configs=5, scheduler={"name": "racing", "confidence": 0.9999})
    rng = np.random.default_rng(0)
    scores = {
        (t.objective, t.config, t.seed): rng.normal(80, 1.0) if t.config else None
        for t in plan_trials(study)
    }
    scores["dcl", 1, SEEDS[0]] = None
    runner = Runner(study, scores, random.Random(0))
    runner.run()
    reasons = {row["config"]: row["skipped_because"] for row in runner.skipped.values()}
    assert reasons == {0: "no score on its first 2 seeds"}


def test_failed_trials_are_tried_again_with_what_was_skipped_at_their_configurations():
    def row(config, seed, status):
        name = f"{config}-{seed}"
        return {"trial_id": name, "objective": "a", "config": config, "status": status}

    rows = [
        row(0, 0, "failed"), row(0, 1, "finished"), row(0, 2, SKIPPED),
        row(1, 0, "finished"), row(1, 1, "finished"), row(1, 2, SKIPPED),
    ]  # fmt: skip
    assert _tried_again(rows) == {"0-0", "0-2"}


def test_further_seeds_and_configurations_go_on_with_what_was_decided(tmp_path):
    longer = raced(tmp_path, num_configs=16, seeds=[*SEEDS, 11, 12])
    scores = planted_scores(longer, np.random.default_rng(3))
    first = raced(tmp_path)
    runner = Runner(first, scores, random.Random(0))
    runner.run()
    before = dict(runner.rows)
    tree, rows = first.document.tree, [plan_row(first, t) for t in plan_trials(first)]
    longer = raced(tmp_path, num_configs=16, seeds=[*SEEDS, 11, 12])
    assert extension_errors(tree, rows, longer, plan_trials(longer)) == []
    runner.study, runner.planned = longer, plan_trials(longer)
    runner.run()
    assert {name: runner.rows[name] for name in before} == before
    out = {(row["objective"], row["config"]) for row in before.values() if row["status"] == SKIPPED}
    later = [row for row in runner.rows.values() if row["seed"] in (11, 12)]
    assert {row["status"] for row in later if (row["objective"], row["config"]) in out} == {SKIPPED}
    assert "finished" in {row["status"] for row in later}
    turned = raced(tmp_path, seeds=[11, *SEEDS])
    [reason] = extension_errors(tree, rows, turned, plan_trials(turned))
    assert "add further ones at the end" in reason


def test_what_a_race_leaves_out_does_not_count_against_a_limit(tmp_path):
    """After Ray was lost: 4 trials have run, and 6 were left out."""
    study = raced(tmp_path)
    planned, folder = plan_trials(study), ResultsFolder(str(tmp_path / "out"))
    folder.create(study.document.dump(), [plan_row(study, trial) for trial in planned], ())
    run = _Run(study, planned, folder, RunRequest(limit=5), False)
    for trial in planned[:10]:
        ended = {"status": "finished" if len(run.ran) < 4 else SKIPPED, METRIC: 50.0}
        folder.add_trial({**plan_row(study, trial), **ended})
        run.ran.add(trial.trial_id)
    assert len(run.left()) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": [0, 1]}, "expected 3 seeds or more, given 2"),
        ({"search": {"method": "tpe", "trials_per_objective": 9}}, "tpe goes by their means"),
        ({"scheduler": {"name": "racing", "grace_epochs": 3}}, "expected with name: asha only"),
        ({"scheduler": {"name": "fifo", "confidence": 0.9}}, "expected with name: racing only"),
        ({"scheduler": {"name": "racing", "confidence": 1.0}}, "expected a value < 1"),
    ],
)
def test_what_no_race_can_be_is_refused(tmp_path, changes, message):
    with pytest.raises(StudyError, match=message):
        raced(tmp_path, **changes)


@pytest.mark.slow
def test_a_raced_study_runs_and_is_read(tmp_path, write_study, cli_command):
    """What learns nothing gets two seeds, what learns all of them."""
    path = write_study(
        seeds=[0, 1, 2, 3],
        space={"lr": {"grid": [1e-6, 1e-5, 1e-4, 1.0]}},
        objectives={"simclr": {"framework": "simclr", "loss": "infonce"}},
        scheduler={"name": "racing", "confidence": 0.9},
        metric={"name": "linear_top1"},
    )
    out = str(tmp_path / "out")

    def outcome(row):
        return {"status": "finished", "linear_top1": 50 + 30 * row["lr"] + row["seed"] % 2}

    with without_ray(outcome):
        code, output, _ = cli_command("run", str(path), "--out", out)
    assert code == 0
    assert "10 finished, 6 skipped, 0 failed, 0 left" in output
    trials = clsweep.open_results(out).trials
    skipped = trials[trials["status"] == "skipped"]
    assert set(skipped["lr"]) == {1e-6, 1e-5, 1e-4}
    assert set(skipped["seed"]) == {2, 3}
    assert skipped["skipped_because"].str.contains("behind configuration").all()
    assert skipped["linear_top1"].isna().all()
    assert clsweep.open_results(out).recommend()["note"].str.contains("racing").all()
