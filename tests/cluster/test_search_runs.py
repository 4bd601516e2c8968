"""Searches by `clsweep run`, from end to end but without Ray: at an end before their plan."""

import pytest

import clsweep
from tests.cluster.without_ray import without_ray

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("no_ray")
def test_a_run_ends_with_its_budget_and_says_so(tmp_path, write_study, cli_command):
    """One configuration begins, and gets both seeds. The same command then starts no Ray."""
    search = {"method": "random", "trials_per_objective": 5, "budget": {"hours": 0.0001}}
    space = {"tau": {"low": 0.05, "high": 1.0}}
    path, out = write_study(search=search, space=space), str(tmp_path / "out")
    code, printed, _ = cli_command("run", str(path), "--out", out)
    assert code == 0
    assert "Starting Ray" in printed
    assert "to run within 0.0001 hours" in printed
    assert "The budget of 0.0001 hours has no room for a further configuration." in printed
    trials = clsweep.open_results(out).trials
    assert trials.groupby("objective")["seed"].apply(list).tolist() == [[0, 1]]
    code, printed, _ = cli_command("run", str(path), "--out", out)
    assert code == 0
    assert "Starting Ray" not in printed
    assert "has no room" in printed
    said = " ".join(cli_command("status", out)[1].split())
    why = "The budget of 0.0001 hours has no room for a further configuration"
    end = f"the search ended with 18 trials left out. {why}"
    assert f"complete: {end}. With another search.budget the command that began it goes on." in said
    assert "are left" not in said
    assert clsweep.open_results(out).data.notes == (f"small: {end}",)


def test_a_search_that_ended_by_evidence_is_complete_until_more_is_asked_for(
    tmp_path, write_study, cli_command
):
    """One that is cut before has trials left."""
    search = {"method": "tpe", "trials_per_objective": 6, "budget": {"min_gain": 1000}}
    changes = {"space": {"tau": {"low": 0.05, "high": 1.0}}, "seeds": [0]}
    objectives = {"dcl": {"framework": "simclr", "loss": "dcl", "base": {"epochs": 1}}}
    path, out = write_study(search=search, objectives=objectives, **changes), str(tmp_path / "out")

    def run(*words):
        with without_ray(lambda row: {"status": "finished", "knn_top1": 50 + row["tau"]}):
            assert cli_command("run", str(path), "--out", out, *words)[0] == 0
        return " ".join(cli_command("status", out)[1].split())

    assert "not running; 3 trials are left (search.budget may" in run("--limit", "3")
    said = run()
    assert "complete: the search ended with 1 trials left out. dcl: 5 configurations are" in said
    assert "enough" in said
    assert "With another search.budget" in said
    search["budget"]["min_gain"] = 1e-9
    write_study(search=search, objectives=objectives, **changes)
    said = run()
    assert "complete" in said
    assert "left out" not in said
