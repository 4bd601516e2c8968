"""What a search hands out and notes, trial by trial without Ray, however often it is cut off and
continued.
"""

import copy
import hashlib
import itertools
import math
import random

import optuna
import pytest
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.trial import TrialState

from clsweep.catalog import METRIC as METRICS
from clsweep.cluster.search import PlanSearch
from clsweep.results.journal import open_storage
from clsweep.study.design import plan_trials
from clsweep.study.resolve import load_study
from tests.planted import study_at

METRIC = "knn_top1"
STATES = {"finished": TrialState.COMPLETE, "stopped": TrialState.PRUNED, "failed": TrialState.FAIL}
SPACE = {
    "tau": {"low": 0.05, "high": 1.0, "log": True, "grid": [0.1, 0.5]},
    "lr_rule": {"choices": ["none", "sqrt"]},
    "proj_dim": {"low": 8, "high": 64, "grid": [8, 64]},
}
ONE = {"seeds": [0], "objectives": {"dcl": {"framework": "simclr", "loss": "dcl"}}}


@pytest.fixture
def study(tmp_path):
    def load(method="tpe", num_configs=13, **changes):
        search = {"method": method, "seed": changes.pop("search_seed", 0)}
        names = {"goals": "objectives", "first": "first"}
        search |= {names[key]: changes.pop(key) for key in [*names] if key in changes}
        if method != "grid":
            search["trials_per_objective"] = num_configs
        path = study_at(tmp_path / "study.yaml", search=search, **{"space": SPACE, **changes})
        return load_study(path)

    return load


def finished(row):
    """How a trial ends: a score that its values and its seed decide, never a plain number."""
    distance = math.log(row["tau"] / 0.2) ** 2 + abs(row["proj_dim"] - 40) / 50
    distance += row["lr_rule"] == "none"
    noise = int.from_bytes(hashlib.sha256(row["trial_id"].encode()).digest()[:4], "big") / 2**32
    score = 90 - 10 * distance + noise + (3 if row["objective"] == "dcl" else 0)
    return {"status": "finished", METRIC: score, "epochs_trained": 2}


def timed(row):
    """As above; a wide projector is expensive, and more so on some seeds. It aligns less, and a
    linear probe likes a high temperature.
    """
    ended = {**finished(row), "wall_time_s": row["proj_dim"] / 10 + row["seed"], "workers": 2}
    return ended | {"alignment": row["proj_dim"] / 40, "linear_top1": 50 + 40 * row["tau"]}


def failed(_):
    return {"status": "failed", METRIC: None, "epochs_trained": None}


def partly_stopped(row):
    """As above, but some configurations are stopped, on all seeds."""
    is_stopped = row["config"] % 3 == 1
    return finished(row) | ({"status": "stopped", "epochs_trained": 1} if is_stopped else {})


def mixed(row):
    """As above, but every fifth trial fails."""
    return failed(row) if random.Random(row["trial_id"]).random() < 0.2 else partly_stopped(row)


def session(study, journal, rows, end=finished, budget=None):
    """One session of a run with one trial at a time; yields wherever it could be cut off, three
    times a trial.
    """
    ended = {row["trial_id"] for row in rows}
    left = [trial for trial in plan_trials(study) if trial.trial_id not in ended]
    storage = open_storage(str(journal), alone=True)
    search = PlanSearch(study, left, rows, storage, budget=budget)
    while (row := search.next_row()) is not None:
        yield
        outcome = end(row)
        rows.append({**row, **outcome})
        yield
        search.tell(row, outcome)
        yield


def run(study, journal, rows=(), end=finished, *, until=None, budget=None):
    """The rows of a session to the end, or to that of so many trials."""
    rows = list(rows)
    num_steps = until and 3 * (until - len(rows))
    for _ in itertools.islice(session(study, journal, rows, end, budget), num_steps):
        pass
    return rows


def entries(journal, objective):
    """What Optuna has of an objective: everything but the time."""
    trials = optuna.load_study(study_name=objective, storage=open_storage(str(journal))).trials
    return [(t.number, t.params, t.state, t.value, t.user_attrs) for t in trials]


def moments(study, folder, end=finished):
    """The journal's bytes and the rows wherever a session could be cut off, and at its end."""
    rows, journal = [], folder / "undisturbed.journal"
    stops = itertools.chain(session(study, journal, rows, end), [None])
    return [(journal.read_bytes(), copy.deepcopy(rows)) for _ in stops]


@pytest.mark.parametrize(
    ("method", "seeds", "early", "late"),
    [("tpe", [0, 1], range(0, 120, 23), 1), pytest.param("gp", [0], (), 4, marks=pytest.mark.slow)],
)
def test_a_search_that_is_cut_tries_what_it_would_have_tried(
    tmp_path, study, method, seeds, early, late
):
    """`early`: cuts among the ten configurations that a sampler begins with at random; `late`: one
    in so many after. What is written next may have begun.
    """
    chosen = study(method, 12, seeds=seeds, search_seed=7)
    cuts = moments(chosen, tmp_path)
    whole, rows = cuts[-1]
    expected = {name: entries(tmp_path / "undisturbed.journal", name) for name in ("simclr", "dcl")}
    dice = random.Random(7)
    for number in [*early, *range(3 * 2 * 10 * len(seeds), len(cuts) - 1, late)]:
        (content, known), (later, _) = cuts[number], cuts[number + 1]
        journal = tmp_path / f"{number}.journal"
        journal.write_bytes(later[: dice.randint(len(content), max(len(content), len(later) - 1))])
        assert run(chosen, journal, known) == rows, f"cut {number}"
        assert {name: entries(journal, name) for name in expected} == expected, f"cut {number}"
    assert len(whole.splitlines()) == 2 + 2 * 2 * 12  # nothing is written twice


@pytest.mark.parametrize("method", ["grid", "qmc", "tpe"])
def test_a_lost_journal_is_written_again_as_it_was(tmp_path, study, method):
    chosen = study(method, 12)
    rows = run(chosen, tmp_path / "first.journal", end=mixed)
    assert {row["status"] for row in rows} == set(STATES)
    run(chosen, tmp_path / "second.journal", rows, end=mixed)
    for name in ("simclr", "dcl"):
        first, second = (entries(tmp_path / f"{at}.journal", name) for at in ("first", "second"))
        assert {state for _, _, state, _, _ in first} == set(STATES.values())
        assert second == first


FIRST = [
    {"tau": 0.2, "lr_rule": "none", "proj_dim": 40},
    {"lr_rule": "sqrt", "proj_dim": 64, "sigma": 0.5},
]


def test_points_of_ones_own_are_tried_first_and_seen_by_the_search(tmp_path, study):
    """What a point does not name has its default; an objective takes what it sweeps. A search that
    is cut tries them as it would have.
    """
    weighted = {"framework": "simclr", "loss": "dclw", "space": {"sigma": {"low": 0.1, "high": 1}}}
    objectives = {"simclr": {"framework": "simclr", "loss": "infonce"}, "dcl": weighted}
    chosen = study("tpe", 12, seeds=[0], first=FIRST, objectives=objectives)
    rows = run(chosen, tmp_path / "whole.journal")
    for objective in ("simclr", "dcl"):
        own = [row for row in rows if row["objective"] == objective]
        tried = [(row["tau"], row["lr_rule"], row["proj_dim"]) for row in own]
        assert tried[:2] == [(0.2, "none", 40), (0.1, "sqrt", 64)]
        assert len({*tried}) == 12
        assert entries(tmp_path / "whole.journal", objective)[0][1]["tau"] == 0.2
    assert [row["sigma"] for row in rows if row["objective"] == "dcl"][1] == 0.5
    for num_known in (0, 1, 3, 5):
        assert run(chosen, tmp_path / f"{num_known}.journal", rows[:num_known]) == rows


@pytest.mark.parametrize("method", ["tpe", "gp"])
def test_seed_objective_and_number_decide_a_suggestion(tmp_path, study, method):
    def taus(search_seed):
        journal = tmp_path / f"{search_seed}.journal"
        rows = run(study(method, 4, seeds=[0], search_seed=search_seed), journal)
        return [row["tau"] for row in rows]

    first, second = taus(0), taus(1)
    assert len({*first, *second}) == 16
    (tmp_path / "0.journal").unlink()
    assert taus(0) == first


@pytest.mark.parametrize(
    ("method", "second"),
    [("tpe", None), ("tpe", "seconds"), pytest.param("gp", None, marks=pytest.mark.slow)],
)
def test_nothing_is_tried_twice(tmp_path, study, method, second):
    space = {"width": {"choices": [4, 8, 16, 32]}, "batch_size": {"choices": [16, 64, 256]}}
    weighed = {"goals": [METRIC, second]} if second else {}

    def score(row):
        ended = {"status": "finished", METRIC: row["width"] - row["batch_size"] / 100}
        return {**ended, "epochs_trained": 2, "wall_time_s": row["width"], "workers": 1}

    rows = run(study(method, 11, space=space, **weighed), tmp_path / "journal", end=score)
    for objective in ("simclr", "dcl"):
        own = [row for row in rows if row["objective"] == objective]
        tried = {row["config"]: (row["width"], row["batch_size"]) for row in own}
        assert len(tried) == len(set(tried.values())) == 11


# What is weighed beside the metric, with its sign where less is better.
SECOND = {
    "seconds": lambda row: 2 * row["wall_time_s"],
    "alignment": lambda row: row["alignment"],
    "linear_top1": lambda row: -row["linear_top1"],
}


@pytest.mark.parametrize("second", [*SECOND])
@pytest.mark.parametrize("method", ["tpe", pytest.param("gp", marks=pytest.mark.slow)])
def test_a_search_of_two_objectives_has_the_front_of_both(tmp_path, study, method, second):
    assert second == "seconds" or METRICS[second].mode == ("max" if "top1" in second else "min")
    chosen = study(method, 14, goals=[METRIC, second])
    rows = run(chosen, tmp_path / "journal", end=timed)
    for name in ("simclr", "dcl"):
        storage = open_storage(str(tmp_path / "journal"))
        front_trials = optuna.load_study(study_name=name, storage=storage).best_trials
        points = {}
        for config in range(14):
            seeds = [r for r in rows if (r["objective"], r["config"]) == (name, config)]
            score = sum(row[METRIC] for row in seeds) / len(seeds)
            points[config] = score, sum(map(SECOND[second], seeds)) / len(seeds)
        front = {
            config
            for config, (score, cost) in points.items()
            if sum(s >= score and c <= cost for s, c in points.values()) == 1  # itself
        }
        assert 1 < len(front) < 14
        assert {trial.user_attrs["config"] for trial in front_trials} == front
        for trial in front_trials:
            score, cost = points[trial.user_attrs["config"]]
            expected = score, abs(cost)
            assert trial.values == pytest.approx(expected, rel=1e-12)


def test_a_trial_without_the_second_objective_has_none_of_both(tmp_path, study):
    def end(row):
        return timed(row) | ({"alignment": math.nan} if row["config"] == 1 else {})

    run(study("tpe", 4, goals=[METRIC, "alignment"], **ONE), tmp_path / "journal", end=end)
    storage = open_storage(str(tmp_path / "journal"))
    trials = optuna.load_study(study_name="dcl", storage=storage).trials
    states = {trial.user_attrs["config"]: trial.state for trial in trials}
    assert states == {c: TrialState.FAIL if c == 1 else TrialState.COMPLETE for c in range(4)}


def test_two_objectives_are_searched_on_after_a_cut(tmp_path, study):
    chosen = study("tpe", 7, goals=[METRIC, "linear_top1"], **ONE)
    rows = run(chosen, tmp_path / "whole.journal", end=timed)
    for num_known in (0, 2, 5):
        assert run(chosen, tmp_path / f"{num_known}.journal", rows[:num_known], end=timed) == rows


def test_gp_learns_from_what_was_stopped(tmp_path, study):
    """Ten stopped configurations and no finished one are ten scores."""
    chosen = study("gp", 11, **ONE)

    def last(sign):
        def end(row):
            return {"status": "stopped", METRIC: sign * row["tau"], "epochs_trained": 1}

        return run(chosen, tmp_path / f"{sign}.journal", end=end)[-1]["tau"]

    assert last(1) > 2 * last(-1)


@pytest.mark.parametrize("method", ["tpe", pytest.param("gp", marks=pytest.mark.slow)])
def test_a_search_keeps_away_from_where_trials_fail(tmp_path, study, method):
    """Scores rise with tau up to 0.3, and above that every trial fails."""
    chosen = study(method, 40, **ONE)

    def end(row):
        return failed(row) if row["tau"] > 0.3 else finished(row) | {METRIC: 100 * row["tau"]}

    rows = run(chosen, tmp_path / "journal", end=end)
    # of 12 such searches that looked at no failure 21 to 25 of these 25 failed
    assert sum(row["status"] == "failed" for row in rows[15:]) < 15


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("method", ["qmc", "tpe"])
def test_a_failed_trial_that_is_run_again_is_a_new_entry(tmp_path, study, method):
    chosen, journal = study(method, 12), tmp_path / "journal"
    first = run(chosen, journal, end=mixed)
    before = entries(journal, "dcl")
    recorded = [row for row in first if row["status"] != "failed"]
    rows = run(chosen, journal, recorded, end=partly_stopped)
    by_id = {row["trial_id"]: row for row in rows}
    for row in first:
        assert by_id[row["trial_id"]]["tau"] == row["tau"]
    trials = optuna.load_study(study_name="dcl", storage=open_storage(str(journal))).trials
    assert entries(journal, "dcl")[: len(before)] == before
    again = trials[len(before) :]
    assert len(again) == sum(state == TrialState.FAIL for _, _, state, _, _ in before) > 0
    for trial in again:
        [number] = RetryHeartbeatStaleTrialCallback.retry_history(trial)
        assert RetryHeartbeatStaleTrialCallback.retried_trial_number(trial) == number
        assert trials[number].params == trial.params
        assert trials[number].user_attrs == trial.user_attrs
        assert trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
    assert_agree(chosen, journal, rows)


def test_a_failed_configuration_is_run_again_with_its_values_even_without_the_journal(
    tmp_path, study
):
    chosen = study("tpe", 3, seeds=[0])
    first = run(chosen, tmp_path / "first", end=failed)
    search = PlanSearch(chosen, plan_trials(chosen), first, open_storage(str(tmp_path / "second")))
    again = [search.next_row()["tau"] for _ in range(6)]
    assert again == [row["tau"] for row in first]


def test_a_configuration_has_the_mean_of_its_seeds_in_whatever_order_they_end(tmp_path, study):
    chosen = study("tpe", 1, **{**ONE, "seeds": [0, 1, 2]})
    scores = {0: 0.1, 1: 0.2, 2: 0.3}  # whose sum depends on the order
    values = set()
    for number, order in enumerate(itertools.permutations(scores)):
        journal = tmp_path / f"{number}.journal"
        search = PlanSearch(chosen, plan_trials(chosen), [], open_storage(str(journal)))
        seeds = {row["seed"]: row for row in iter(search.next_row, None)}
        for seed in order:
            search.tell(seeds[seed], {"status": "finished", METRIC: scores[seed]})
        [(_, _, state, value, _)] = entries(journal, "dcl")
        assert state == TrialState.COMPLETE
        values.add(value)
    assert len(values) == 1
    assert values.pop() == pytest.approx(0.2)


def assert_agree(study, journal, rows):
    """The latest entry of each trial, or of each configuration, says what the rows say."""
    for name in ("simclr", "dcl"):
        latest = {}
        for _, _, state, value, attributes in entries(journal, name):
            latest[attributes.get("trial_id", attributes["config"])] = (state, value)
        own = sorted((row for row in rows if row["objective"] == name), key=lambda row: row["seed"])
        if own[0]["sampler"] not in ("tpe", "gp"):
            assert latest == {row["trial_id"]: (STATES[row["status"]], row[METRIC]) for row in own}
            continue
        for config, (state, value) in latest.items():
            ends = [(row["status"], row[METRIC]) for row in own if row["config"] == config]
            assert len(ends) == len(study.sections.seeds)
            if "failed" in dict(ends):
                assert (state, value) == (TrialState.FAIL, None)
            elif ends[0][0] == "stopped":
                assert (state, value) == (TrialState.PRUNED, ends[0][1])
            else:
                mean = sum(score for _, score in ends) / len(ends)
                assert (state, value) == (TrialState.COMPLETE, pytest.approx(mean, rel=1e-12))


def test_a_live_search_of_a_cell_is_that_of_its_study_alone(study, tmp_path):
    """Each cell learns from its own scores, whatever the others reach."""

    def chosen_by(loaded, journal):
        storage = open_storage(str(tmp_path / journal), alone=True)
        search = PlanSearch(loaded, plan_trials(loaded), [], storage)
        chosen = {}
        while (row := search.next_row()) is not None:
            best = {"digits": 0.1, "fashion_mnist": 0.8}[row["dataset"]]
            score = 90 - 10 * math.log(row["tau"] / best) ** 2
            search.tell(row, {"status": "finished", METRIC: score, "epochs_trained": 2})
            values = [row[name] for name in ("config", "seed", *SPACE)]
            chosen.setdefault((row["dataset"], row["objective"].split("/")[-1]), []).append(values)
        return chosen

    names = ["digits", "fashion_mnist"]
    crossed = chosen_by(study(dataset={}, factors={"dataset": names}), "crossed")
    assert crossed["digits", "dcl"] != crossed["fashion_mnist", "dcl"]
    for name in names:
        alone = chosen_by(study(dataset={"name": name}), name)
        assert {key: crossed[key] for key in alone} == alone
