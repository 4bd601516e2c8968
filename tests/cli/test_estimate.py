"""`clsweep plan --estimate`: what a study would take, from the paces of a few of its trials."""

import csv
import io
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clsweep.cli import estimate
from clsweep.cli.estimate import Pace
from clsweep.cluster import resources
from clsweep.cluster.resources import Cluster
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study

STUDY = """\
name: small
dataset: {{name: digits}}
seeds: [0, 1]
base: {{encoder: conv4, epochs: 3, eval_every: 1}}
objectives:
  simclr: {{framework: simclr, loss: infonce, space: {space}}}
  untrained: {{framework: simclr, loss: infonce, base: {{epochs: 0}}}}
search: {search}
{more}
"""
GRID = "{method: grid}"


@pytest.fixture
def study(tmp_path):
    def write(space="{batch_size: {grid: [64, 128]}}", search=GRID, more=""):
        path = tmp_path / "study.yaml"
        path.write_text(STUDY.format(space=space, search=search, more=more))
        return str(path)

    return write


@pytest.fixture
def asked(monkeypatch):
    """The trials that are timed. One of batch size B takes B seconds; there are two CPUs."""
    found = []

    def timed(_study, wanted, _num_processes):
        found.extend(wanted)
        zero = {"epoch_s": 0.0, "scored_s": 0.0, "last_s": 0.0, "peak_gib": 0.5}
        return {row["trial_id"]: [Pace(begin_s=_size(row), **zero)] for row in wanted}

    two = Cluster(up=[{"CPU": 2, "GPU": 0}], is_here=True)
    monkeypatch.setattr(estimate, "_timed", timed)
    monkeypatch.setattr(estimate, "this_machine", lambda: two)
    monkeypatch.setattr(estimate, "has_amx", lambda: False)  # whatever this machine's have
    return found


def _size(row):
    return row.get("batch_size") or 1


def test_a_trial_takes_its_epochs_and_its_scores():
    pace = Pace(begin_s=1.0, epoch_s=10.0, scored_s=100.0, last_s=1000.0, peak_gib=None)
    # epochs 1 to 7, of which 3, 6 and the last are scored
    assert pace.trial_s({"epochs": 7, "eval_every": 3}) == 1 + 7 * 10 + 3 * 100 + 1000
    assert pace.trial_s({"epochs": 0, "eval_every": 1}) == 1 + 1000
    unscored = Pace(begin_s=1.0, epoch_s=10.0, scored_s=0.0, last_s=5.0, peak_gib=None)
    assert unscored.trial_s({"epochs": 7}) == 1 + 7 * 10 + 5  # of pairs of vectors


def test_sizes_are_timed_and_trials_take_places_in_turn(cli_command, asked, study):
    code, out, err = cli_command("plan", study(), "--estimate", "--format", "csv")
    assert (code, err) == (0, "")
    rows = {row["objective"]: row for row in csv.DictReader(io.StringIO(out))}
    assert [row["batch_size"] for row in asked if row["objective"] == "simclr"] == [64, 128]
    assert rows["simclr"]["trials"] == "4"
    assert float(rows["simclr"]["trial_s"]) == (64 + 128) / 2
    assert float(rows["simclr"]["cpu_hours"]) == pytest.approx((64 + 128) * 2 / 3600)
    _, shown, _ = cli_command("plan", study(), "--estimate", "--price", "3600")
    # two at once, in the order of the plan
    ends = [0.0, 0.0]
    for trial in plan_trials(load_study(study())):
        row = plan_row(load_study(study()), trial)
        ends = sorted(ends)
        ends[0] += _size(row)
    money = f"{max(ends):.0f} EUR"
    assert money in shown
    assert " of memory: 2 processes of up to 510 MiB" in shown
    assert shown.rstrip().splitlines()[-1].startswith("Next: clsweep run ")
    assert max(len(line) for line in shown.splitlines() if "Next" not in line) <= 80


def test_of_many_sizes_the_outer_ones_and_one_between_are_timed(cli_command, asked, study):
    """A temperature is no size."""
    sizes = "{batch_size: {grid: [16, 32, 64, 128, 256]}, tau: {grid: [0.1, 0.5]}}"
    _, out, _ = cli_command("plan", study(space=sizes), "--estimate")
    assert [row["batch_size"] for row in asked if row["objective"] == "simclr"] == [16, 64, 256]
    assert "simclr: 3 of its 5 sizes were timed" in out


@pytest.mark.parametrize(("has_amx", "half_s"), [(True, 2.5), (True, 9.5), (False, 2.5)])
def test_bf16_is_named_where_it_is_faster(cli_command, monkeypatch, study, has_amx, half_s):
    def timed(_study, wanted, _num_processes):
        def pace(row):
            return Pace(epoch_s=half_s if row.get("precision") == "bf16" else 10.0)

        return {row["trial_id"]: [pace(row)] for row in wanted}

    monkeypatch.setattr(estimate, "_timed", timed)
    monkeypatch.setattr(estimate, "has_amx", lambda: has_amx)
    _, out, _ = cli_command("plan", study(), "--estimate")
    assert ("bf16 is 4 times as fast" in out) == (has_amx and half_s < 9)
    # what was timed stands beside what --gpu would say of this CPU
    check = re.search(
        r"an epoch of simclr takes ([\d.e-]+) s; 10 s were timed", " ".join(out.split())
    )
    assert 0 < float(check[1]) < 10


def test_what_stops_early_takes_at_most_so_long(cli_command, asked, study):
    """Values yet to be drawn are drawn at random."""
    more = "scheduler: {name: asha, grace_epochs: 1}"
    space = "{tau: {low: 0.05, high: 1.0, log: true}}"
    search = "{method: tpe, trials_per_objective: 5}"
    code, out, err = cli_command("plan", study(space=space, search=search, more=more), "--estimate")
    assert (code, err) == (0, "")
    assert all(0.05 <= row["tau"] <= 1 for row in asked if row["objective"] == "simclr")
    assert "at most" in out
    assert "asha stops trials early" in out
    _, out, _ = cli_command("plan", study(space=space, search=search, more=more))
    assert "needs 10 configurations of full length" in " ".join(out.split())
    for given, at_most in (({"space": space, "search": search, "more": more}, True), ({}, False)):
        _, out, _ = cli_command("plan", study(**given), "--estimate", "--format", "json")
        assert [row["is_at_most"] for row in json.loads(out)] == [at_most] * 2


def test_what_this_machine_lacks_is_said_by_the_plan(cli_command, monkeypatch, study):
    monkeypatch.setattr(resources, "_gpus_here", lambda: 0)
    path = study(more="resources: {gpus_per_worker: 1}")
    code, out, _ = cli_command("plan", path)
    assert code == 0
    assert "a trial needs 1 GPU" in out.replace("1 CPU and ", "").replace("\n", " ")
    code, _, err = cli_command("plan", path, "--estimate")
    assert code == 2
    assert "this machine has" in err
    assert len(err.splitlines()) == 1


def test_missing_images_are_said_by_the_plan(cli_command, study, tmp_path):
    place = str(tmp_path / "nowhere")
    text = Path(study()).read_text().replace("{name: digits}", f"{{name: cifar10, root: {place}}}")
    (tmp_path / "study.yaml").write_text(text)
    code, out, _ = cli_command("plan", str(tmp_path / "study.yaml"))
    assert code == 0
    assert "cifar10" in out.partition("note:")[2]
    (tmp_path / "nowhere" / "cifar-10-batches-py").mkdir(parents=True)
    code, _, err = cli_command("plan", str(tmp_path / "study.yaml"))
    assert code == 2
    assert "data_batch_1: no such file. They are data_batch_1, " in err


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_an_estimate_holds_within_a_factor_of_two(study, monkeypatch):
    """By the time of the processor, as the machine may be busy."""
    import torch

    from clsweep.train.loop import train_trial

    loaded = load_study(study(space="{}"))
    rows = [plan_row(loaded, trial) for trial in plan_trials(loaded)]
    row = next(row for row in rows if row["objective"] == "simclr")
    place, device = loaded.sections.dataset.place, torch.device("cpu")
    train_trial({**row, "epochs": 1}, lambda _: None)
    start = time.process_time()
    train_trial(row, lambda _: None)
    took = time.process_time() - start
    monkeypatch.setattr(estimate, "perf_counter", time.process_time)
    assert took / 2 < estimate.pace_of(row, place, device).trial_s(row) < took * 2


@pytest.mark.slow
def test_real_processes_time_a_study(study):
    """By the program itself, as nothing of a test's own process may help it."""
    argv = [sys.executable, "-m", "clsweep", "plan", study(), "--estimate"]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=True)
    told = ended.stdout.partition("Estimate for this machine")[2]
    assert re.search(r"^simclr +4 .* MiB$", told, re.MULTILINE), ended
    assert re.search(r"^6 trials, \d+ at once: about ", told, re.MULTILINE), ended
