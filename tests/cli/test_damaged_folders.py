"""Files of a results folder, damaged in many ways, under every command: one line that names
the file, or the very output of the undamaged folder.
"""

import random
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from clsweep.api import open_results
from clsweep.cluster import runner
from clsweep.cluster.search import PlanSearch
from clsweep.errors import RequestError, UserError
from clsweep.results.folder import ResultsFolder, encoder_file
from clsweep.results.journal import open_storage
from clsweep.results.weights import pack_weights, unpack_weights
from tests.damage import KEPT, damages

LONGEST_S = 30


@pytest.fixture
def commands(made, tmp_path, cli_command, monkeypatch):
    """By name; those that write get a folder of their own. Runs go as far as Ray."""

    def session(self):
        self.lay_out()
        self.retention().apply()
        storage = open_storage(self._folder.journal_path, alone=True)
        search = PlanSearch(self._study, self.left(), self.rows(), storage)
        while row := search.next_row():
            print(row["trial_id"])
        return True

    def printed(name, *words):
        return lambda out: cli_command(name, str(out), *words)

    def tables(out):
        results = open_results(out)
        shown = [
            getattr(results, name)
            for name in ("epochs", "histograms", "points", "hits", "references")
        ]
        return 0, "\n".join(table.to_csv() for table in shown), ""

    def checkpoint(out):
        return 0, str(open_results(out).checkpoint(KEPT)), ""

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner._Run, "_session", session)
    study, file = str(made.parent / "small.yaml"), str(tmp_path / "encoder.safetensors")
    names, csv = ("status", "trials", "robustness", "sensitivity", "compare"), ("--format", "csv")
    found = {name: printed(name, *csv) for name in names}
    found["status as shown"] = printed("status")
    found["export"] = lambda out: cli_command("export", f"{out}/{KEPT}", "--out", file)
    found |= {"tables": tables, "checkpoint": checkpoint}
    found["run"] = lambda out: cli_command("run", study, "--out", str(out))
    found["confirm"] = printed("confirm", *csv)
    return found


def run(command, out):
    def late(*_):
        raise TimeoutError(f"no answer in {LONGEST_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LONGEST_S)
    try:
        return command(out)
    except UserError as error:
        return 2, "", str(error)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fault(answer, expected, damage):
    """What is wrong with an answer; empty if nothing is."""
    code, _, err = answer
    if answer == expected:
        return ""
    if code == 2:
        names = [Path(damage.file).name, Path(damage.file).stem]
        if damage.file.startswith(("parts/", "confirm/")):
            names += ["trials.parquet or a part", "confirm"]
        if not any(name in err for name in names) and not damage.is_fine:
            return f"does not name the file: {err}"
        if len(err.splitlines()) > 12 or "Traceback" in err or "secret" in err:
            return f"is no clear message: {err}"
        return ""
    return "" if damage.is_fine else f"another answer without an error:\n{answer[1]}{err}"


def check(chosen, commands, made, tmp_path):
    out, faults, expected = tmp_path / "out", [], {}
    for damage in (None, *chosen):
        for name, command in commands.items():
            if name in (next(iter(commands)), "run", "confirm"):  # others change nothing
                shutil.rmtree(out, ignore_errors=True)  # a copy always has the same name
                shutil.copytree(made, out)
                if damage:
                    damage.change(out / damage.file)
            if damage is None:
                expected[name] = run(command, out)
                assert expected[name][0] in (0, 130), expected[name]
                continue
            try:
                wrong = fault(run(command, out), expected[name], damage)
            except BaseException as error:
                wrong = f"{type(error).__name__}: {error}"
            if wrong:
                faults.append(f"{damage.file}, {damage.name}, {name}: {wrong}")
    return faults


def test_a_file_with_another_encoder_is_refused(out):
    file = out / encoder_file(KEPT)
    weights, about = unpack_weights(file.read_bytes(), file.name)
    first = min(weights)
    for wrong, edited, told in (
        (first, {**weights, first: weights[first].astype(np.float16)}, about),
        (first, {**weights, first: np.zeros((1, 2), np.float32)}, about),
        (first, {name: array for name, array in weights.items() if name != first}, about),
        ("../x", {**weights, "../x": weights[first]}, about),
        ("width", weights, {**about, "width": 10**12}),
        ("lr", weights, {**about, "lr": 2 * about["lr"]}),  # of another study's trial
        ("normalisation", weights, {**about, "normalisation": {"mean": ["x"], "std": [1]}}),
    ):
        file.write_bytes(pack_weights(edited, told))
        with pytest.raises(RequestError, match=f"of this trial: .*{wrong}: expected .*, given"):
            open_results(out).encoder(KEPT)


@pytest.mark.parametrize(
    "said",
    ["[]", "1" * 9999, "[" * 99_999, '{"running": "x"}', '{"pid": -1}', '{"trials": {"x": []}}'],
)
def test_a_heartbeat_of_no_run_says_nothing(out, said):
    assert ResultsFolder(str(out)).heartbeat()
    (out / "heartbeat.json").write_text(said)
    assert ResultsFolder(str(out)).heartbeat() == {}


@pytest.mark.slow
def test_a_sample_of_all_damages(made, commands, tmp_path):
    chosen = random.Random(0).sample(list(damages(made)), 12)
    faults = check(chosen, commands, made, tmp_path)
    assert not faults, "\n".join(faults)
