"""A budget of hours ends a search between two configurations, also where it is cut and goes on."""

from datetime import UTC, datetime

import pytest

from clsweep.cluster import search_budget
from clsweep.cluster.search import PlanSearch
from clsweep.cluster.search_budget import SearchBudget
from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder
from clsweep.results.journal import Journal, open_storage
from clsweep.study.design import plan_trials
from clsweep.study.resolve import load_study
from tests.cluster.test_search import run as session_of
from tests.planted import study_at

SPACE = {"tau": {"low": 0.05, "high": 1.0}}


class Clock:
    now = 1e9

    def time(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(search_budget, "time", clock := Clock())
    return clock


def study_of(folder, budget, method="tpe", **resources):
    search = {"method": method, "trials_per_objective": 50, "budget": budget}
    path = study_at(folder / "study.yaml", space=SPACE, search=search, resources=resources)
    return load_study(path)


def run(study, journal, clock, rows, until=None):
    """The rows of a session, as in `test_search`, and its budget."""

    def end(row):
        outcome = {"status": "finished", "knn_top1": 90 - row["tau"], "epochs_trained": 2}
        begin = datetime.fromtimestamp(clock.now, UTC)
        clock.now += 360.0
        return outcome | {"wall_time_s": 360.0, "workers": 1, "started_at": begin}

    budget = SearchBudget(study, rows, 1)
    return session_of(study, journal, rows, end, until=until, budget=budget), budget


def configs(rows):
    """The seeds of each configuration that has begun."""
    seeds = {}
    for row in rows:
        seeds.setdefault((row["objective"], row["config"]), []).append(row["seed"])
    return seeds


@pytest.mark.parametrize("method", ["tpe", "random"])
@pytest.mark.parametrize(
    ("budget", "resources", "num_configs"),
    [
        ({"hours": 1.0}, {}, 5),  # of 0.1 hours a trial on each of two seeds
        ({"hours": 1.19}, {}, 5),
        ({"gpu_hours": 3.0}, {"workers": 2, "gpus_per_worker": 1}, 7),
        ({"gpu_hours": 0.5}, {"gpus_per_worker": 0.25}, 10),
        ({"hours": 0.01}, {}, 1),  # one begins, however long it takes
    ],
    ids=str,
)
def test_a_budget_holds_whole_configurations(
    tmp_path, clock, method, budget, resources, num_configs
):
    study = study_of(tmp_path, budget, method, **resources)
    whole, left = run(study, tmp_path / "whole", clock, [])
    assert list(configs(whole).values()) == [[0, 1]] * num_configs
    assert left.is_spent
    for until in (1, 2, len(whole) - 1, len(whole)):
        part, _ = run(study, tmp_path / f"{until}", clock, [], until=min(until, len(whole)))
        clock.now += 5e5  # no trial runs in the meantime
        again, _ = run(study, tmp_path / f"{until}", clock, part)
        assert configs(again) == configs(whole)


def test_a_larger_budget_goes_on_in_the_same_plan(tmp_path, clock):
    rows, _ = run(study_of(tmp_path, {"hours": 0.5}), tmp_path / "journal", clock, [])
    more, _ = run(study_of(tmp_path, {"hours": 1.0}), tmp_path / "journal", clock, rows)
    at_once, _ = run(study_of(tmp_path, {"hours": 1.0}), tmp_path / "other", clock, [])
    assert [row["tau"] for row in more] == [row["tau"] for row in at_once]
    assert len(more) > len(rows)


def begin(budget, trial):
    """The row of a trial that begins."""
    row = {name: getattr(trial, name) for name in ("trial_id", "objective", "config")}
    budget.start(row)
    return row


def test_trials_at_once_share_the_hours_and_not_those_of_gpus(tmp_path, clock):
    """Four trials of 0.1 hours at once: in an hour by the clock 40 trials, of two seeds each."""
    for budget, num_trials in (({"hours": 1.0}, 40), ({"gpu_hours": 1.0}, 10)):
        budget = SearchBudget(study_of(tmp_path, budget, gpus_per_worker=1), (), 4)
        begun = []
        for trial in plan_trials(study_of(tmp_path, {"hours": 1.0})):
            if not budget.admits(trial):
                break
            begun.append(begin(budget, trial))
            if len(begun) % 4 == 0:
                clock.now += 360.0
                for row in begun[-4:]:
                    budget.end(row, {"wall_time_s": 360.0})
        assert len(begun) == num_trials


def test_seconds_left_are_those_of_the_budget(tmp_path, clock):
    budget = SearchBudget(study_of(tmp_path, {"hours": 0.5}), (), 2)
    first, second = plan_trials(study_of(tmp_path, {"hours": 0.5}))[:2]
    assert budget.seconds_left() == 1800
    for trial in (first, second):
        begin(budget, trial)
    clock.now += 600
    assert budget.seconds_left() == 1200


def test_hours_between_trials_count_in_the_next_run_too(tmp_path, clock):
    """A trial says 6 minutes, and takes 12 by the clock, of which its process needs the rest."""
    study, folder = study_of(tmp_path, {"hours": 1.0}), ResultsFolder(str(tmp_path / "out"))
    trials = iter(plan_trials(study))
    with folder.lock():
        budget = SearchBudget(study, (), 1, folder)
        rows = []
        for trial in trials:
            if not budget.admits(trial):
                break
            row = begin(budget, trial)
            clock.now += 720.0
            budget.end(row, {"wall_time_s": 360.0})
            rows.append(row | {"wall_time_s": 360.0, "started_at": datetime.fromtimestamp(1, UTC)})
        assert len(rows) == 6  # a third configuration is to take 12 of the last 12 minutes
        again = SearchBudget(study, rows, 1, ResultsFolder(str(tmp_path / "out")))
        assert not again.admits(trial)
        assert again.seconds_left() == 0
        assert ResultsFolder(str(tmp_path / "out")).clock_s() == pytest.approx(6 * 720)


def test_what_fails_as_a_trial_ends_is_raised_again_as_it_was(tmp_path, monkeypatch):
    """Tune tells of an end once more where that has raised."""
    study = study_of(tmp_path, {"hours": 1.0}, "random")
    search = PlanSearch(study, plan_trials(study), [], open_storage(str(tmp_path / "journal")))
    row = search.next_row()

    def full(*_):
        raise RequestError("the disk is full")

    monkeypatch.setattr(Journal, "finish", full)
    for _ in range(2):
        with pytest.raises(RequestError, match="the disk is full"):
            search.tell(row, {"status": "finished", "knn_top1": 1.0, "wall_time_s": 1.0})


def test_a_trial_that_stays_open_is_no_longer_reckoned_with(tmp_path, clock):
    study = study_of(tmp_path, {"gpu_hours": 1.0}, gpus_per_worker=1)
    budget = SearchBudget(study)
    search = PlanSearch(study, plan_trials(study), [], open_storage(str(tmp_path / "journal")),
                        budget=budget)  # fmt: skip
    row = search.next_row()
    clock.now += 600
    search.leave_open(row)
    clock.now += 6000
    assert budget.seconds_left() == 3000
