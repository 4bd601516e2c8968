"""Followers and readers beside a run that appends and compacts until each of them has read."""

import itertools
import os
import select
import subprocess
import sys
import traceback

import pytest

from clsweep.results.folder import ResultsFolder
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from tests.cluster.conftest import wait_until
from tests.planted import study_at

COMMANDS = {  # and what each says once it has read
    "status {out} --follow": (6, "running:"),
    "report {out} --follow --out {out}-report": (1, "trials have ended"),
    "trials {out} --format csv": (5, ""),
    "robustness {out}": (4, ""),
    "open_results {out}": (4, ""),
}
READERS = [words for words, (num, _) in COMMANDS.items() for _ in range(num)]
SPACE = {"tau": {"low": 0.05, "high": 1.0, "log": True}, "lr": {"low": 0.01, "high": 1.0}}
SEARCH = {"method": "random", "trials_per_objective": 1000}
OBJECTIVES = {"dcl": {"framework": "simclr", "loss": "dcl"}}
PARTS = 25  # before a compaction


def score(row):
    return 50.0 + row["config"] % 40 + row["seed"]


def write(out):
    """The writer's process: rows of a plan, over again at its end, until nobody holds its input."""
    study = load_study(f"{out}.yaml")
    rows = [plan_row(study, trial) for trial in plan_trials(study)]
    folder, epochs = ResultsFolder(out), [{"epoch": 1, "train_loss": 2.0}, {"epoch": 2}]
    with folder.lock():
        folder.create(study.document.dump(), rows)
        for num, row in enumerate(itertools.cycle(rows), 1):
            folder.add_trial(
                row | {"status": "finished", "knn_top1": score(row), "wall_time_s": 1.0},
                epochs=epochs,
            )
            if num % PARTS == 0:
                folder.compact()
                print(num, flush=True)
            if select.select([sys.stdin], [], [], 0)[0]:
                break


def read(out):
    """The process of which all readers are copies. What each says is in a file of its number, with
    its exit code as the last line.
    """
    import clsweep.cli.statistic_tables
    import clsweep.statistics.verdicts  # noqa: F401

    for number, words in enumerate(READERS):
        if os.fork() == 0:
            with open(f"{out}-{number}.txt", "w", buffering=1) as said:
                sys.stdout = sys.stderr = said
                print(f"\nended {exit_code(words.format(out=out).split(), out)}")
            os._exit(0)
    for _ in READERS:
        os.wait()


def exit_code(words, out):
    from clsweep.cli.main import run_app

    sys.argv, os.nice = ["clsweep", *words], lambda _: 0  # whoever yields reads last
    try:
        look(out) if words[0] == "open_results" else run_app()
    except SystemExit as end:
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 70
    return 0


def look(out):
    """Tables that are whole, until three of them differ or no further trial can come."""
    import clsweep

    seen = set()
    while len(seen) < 3:
        results = clsweep.open_results(out)
        trials = results.trials
        assert trials["trial_id"].is_unique
        assert (trials["knn_top1"] == [score(row) for row in trials.to_dict("records")]).all()
        ended = results.epochs["trial_id"].value_counts()
        assert (ended[trials["trial_id"]] == 2).all()
        assert len(trials) >= max(seen, default=0)
        seen.add(len(trials))
        if len(trials) == len(results.plan):
            return


def process(function, out):
    code = f"from tests.cli import test_readers; test_readers.{function.__name__}({str(out)!r})"
    options = {"text": True, "bufsize": 1, "env": os.environ | {"COLUMNS": "100"}}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", code], **pipes, **options)


@pytest.mark.slow
def test_nobody_who_reads_beside_a_run_ends_before_it_or_fails(tmp_path):
    out = tmp_path / "out"
    study_at(tmp_path / "out.yaml", space=SPACE, search=SEARCH, objectives=OBJECTIVES)
    writer = process(write, out)
    assert writer.stdout.readline() == f"{PARTS}\n"
    readers, files = process(read, out), [tmp_path / f"out-{n}.txt" for n in range(len(READERS))]
    marks = [COMMANDS[words][1] for words in READERS]

    def has_read(file, mark):
        said = file.read_text() if file.exists() else ""
        return "\nended " in said or (mark and mark in said)

    wait_until(lambda: all(map(has_read, files, marks)), "all have read")
    early = [f for f, words in zip(files, READERS, strict=True)
             if "--follow" in words and "\nended " in f.read_text()]  # fmt: skip
    writer.stdin.close()
    written = [int(line) for line in writer.stdout]
    assert writer.wait() == readers.wait() == 0
    said = [file.read_text() for file in files]
    assert [text[-500:] for text in said if not text.endswith("\nended 0\n")] == []
    assert early == []
    assert all("not running; " in said[n] for n, words in enumerate(READERS) if "status" in words)
    assert len(written) >= 3, "compactions while they read"
