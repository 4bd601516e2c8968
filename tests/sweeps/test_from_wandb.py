"""Offline runs of W&B, and tables that were exported from it, as people keep them."""

import gzip
import json
import sys

import pandas as pd
import pytest

from clsweep.errors import RequestError
from clsweep.sweeps.foreign_sweep import ForeignTrial
from clsweep.sweeps.from_wandb import read_wandb
from clsweep.sweeps.import_table import import_sweep
from tests.sweeps.recorded import unpack, wandb_log

OWN = {"trial_id": "a", "objective": "dcl", "config": 0}


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        # the second was cut off
        ([("finished", {"seed": i}, {"_step": n}) for i, n in enumerate((99, 30, 99))],
         ["finished", "stopped", "finished"]),
        ([("finished", {"seed": i}, {"_step": n}) for i, n in enumerate((999, 998, 992))],
         ["finished", "finished", "finished"]),
        # a batch of half the size takes twice as many steps; but not where epochs are told
        ([("finished", {"batch_size": 2**i, "seed": 0}, {"_step": 100 // 2**i}) for i in range(2)],
         ["finished", "finished"]),
        ([("finished", {"batch_size": i, "seed": 0}, {"_step": 9, "epoch": i}) for i in (1, 9)],
         ["stopped", "finished"]),
        ([("finished", {"epochs": i, "seed": 0}, {"_step": 10 * i - 1}) for i in (1, 4)],
         ["finished", "finished"]),
        ([("finished", {"seed": 0}, {"acc": "NaN"}), ("finished", {"seed": 1}, {})],
         ["failed", "finished"]),
        # clsweep's own say themselves how they ended
        ([("finished", OWN | {"seed": i}, {"status": s, "_step": i})
          for i, s in enumerate(("stopped", "finished", "failed"))],
         ["stopped", "finished", "failed"]),
    ],
)  # fmt: skip
def test_how_runs_of_wandb_ended(runs, expected, tmp_path):
    listed = [{"state": s, "config": c, "summary": {"acc": 1.0} | r} for s, c, r in runs]
    (tmp_path / "a.json").write_text(json.dumps(listed))
    imported = import_sweep(read_wandb(tmp_path / "a.json"), metric="acc", mode="max")
    assert [row["status"] for row in imported.rows] == expected


def test_a_run_of_wandb_that_was_resumed_is_one(tmp_path):
    data = unpack("run.wandb.gz", tmp_path).read_bytes()
    for name, size in (("offline-run-1-x", 71000), ("offline-run-2-x", len(data))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run-x.wandb").write_bytes(data[:size])
    sweep = read_wandb(tmp_path)
    # the second file begins to count anew, or goes on: how many reports there were is not known
    ended = [(t.status, t.results["acc"], t.length) for t in sweep.trials]
    assert ended == [("finished", 80.5, None)]
    assert sweep.notes == ["left out: 1 earlier rows or files of runs that come again"]


def test_an_offline_run(tmp_path):
    """A setting of 70,000 letters spans its blocks."""
    data = unpack("run.wandb.gz", tmp_path).read_bytes()
    file = tmp_path / "wandb" / "offline-run-1" / "run-1.wandb"
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    (trial,) = read_wandb(tmp_path / "wandb").trials  # as W&B calls the folder
    assert trial == ForeignTrial(
        group="p",
        status="finished",
        settings={"lr": 0.1, "net.width": 16, "seed": 0, "opt": "sgd", "text": "x" * 70000},
        results={"acc": 80.5, "epoch": 2, "best": 81},
        labels={"id": "1", "name": "first", "group": "dcl"},
        length=3,
        reports=[{"acc": 78.5 + epoch, "epoch": epoch} for epoch in range(3)],
    )
    file.write_bytes(data[:71000])
    (trial,) = read_wandb(tmp_path).trials
    assert (trial.status, trial.settings["opt"], trial.results["acc"]) == ("running", "sgd", 79.5)
    for damaged, says in (
        (b"else" + data, "runs of W&B: expected a file that begins with :W&B"),
        (data[:14] + b"\xff" * 9 + data[23:], "runs of W&B: expected a record of W&B"),
    ):
        file.write_bytes(damaged)
        with pytest.raises(RequestError, match=f"cannot be read as {says}"):
            read_wandb(tmp_path)


def test_the_maximum_in_a_summary_stands_beside_the_last_value(tmp_path):
    """As `define_metric("acc", summary="max")` has it: .7, .9 and .8 were logged."""
    from wandb.proto.wandb_internal_pb2 import Record

    records = [Record(), Record()]
    records[0].history.item.add(key="acc", value_json="0.8")
    records[1].summary.update.add(key="acc", value_json='{"max": 0.9}')
    for order in (records, records[::-1]):
        (tmp_path / "run-1.wandb").write_bytes(wandb_log(order))
        (trial,) = read_wandb(tmp_path).trials
        assert trial.results == {"acc": 0.8, "acc.max": 0.9}


@pytest.mark.parametrize("step", ["epoch", "_step", "trainer/global_step", "training_iteration"])
def test_rows_that_are_steps_are_joined_to_runs(step, tmp_path):
    """The accuracy is taken every second step, the third run was cut off."""
    rows = [
        {
            "Name": f"r{run}",
            step: n,
            "lr": lr,
            "loss": 9 - n + run / 9,
            "acc": 70 + n + run if n % 2 else "",
        }
        for run, (lr, size) in enumerate(((0.1, 6), (0.1, 6), (0.2, 4), (0.2, 6)))
        for n in range(1, size + 1)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "a.csv")
    table = import_sweep(read_wandb(tmp_path / "a.csv"), metric="acc", mode="max")
    note = f"22 rows are the steps of 4 runs, as {step} counts them: of each the last value"
    assert table.notes[0] == note
    assert [row["acc"] for row in table.rows] == [75, 76, 75, 78]
    assert [row["status"] for row in table.rows] == ["finished"] * 2 + ["stopped", "finished"]
    assert (table.options["params"], table.options["seed"]) == (["lr"], "")
    assert [row["epoch"] for row in table.epochs] == [1, 2, 3] * 3


@pytest.mark.parametrize(
    "lines",
    [
        # the last epoch of each run, which a setting decides, or how the run went
        ["lr,epochs,epoch,acc", *(f"{lr},{n},{n - 1},{n + lr}" for lr in (1, 2) for n in (5, 9))],
        ["lr,batch,_step,acc", *(f"{lr},{n},{90 // n},{n}" for lr in (1, 2) for n in (9, 5))],
        ["lr,seed,epoch,acc", *(f"{lr},{n},{9 + n},{n}" for lr in (1, 2) for n in (5, 9))],
        ["lr,epoch,acc", "0.1,37,70", "0.2,52,71", "0.1,40,72", "0.2,41,73"],
    ],
)
def test_the_last_step_of_each_run_does_not_join_them(lines, tmp_path):
    (tmp_path / "a.csv").write_text("\n".join(lines))
    assert len(read_wandb(tmp_path / "a.csv").trials) == 4


def test_a_table_of_tune_has_no_bookkeeping_among_its_settings(tmp_path):
    """`ResultGrid.get_dataframe()`: two of six trials were stopped after 3 of 10 iterations."""
    rows = [
        (70 + n, n != 2, 3 if n % 3 == 1 else 10, f"a_{n}", 0.1 + n, f"2026-01-0{n + 1}", lr, n % 3)
        for n, lr in enumerate((0.1, 0.1, 0.1, 0.2, 0.2, 0.2))
    ]  # fmt: skip
    names = "acc,done,training_iteration,trial_id,time_this_iter_s,date,config/lr,config/seed"
    lines = [names, *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    table = import_sweep(read_wandb(tmp_path / "a.csv"), metric="acc", mode="max")
    assert [row["status"] for row in table.rows] == ["finished", "stopped", "finished"] * 2
    assert (table.options["params"], table.options["seed"]) == (["config/lr"], "config/seed")
    assert not any("not read" in note for note in table.notes)


def test_an_offline_run_without_the_package_names_its_extra(tmp_path, monkeypatch):
    unpack("run.wandb.gz", tmp_path)
    monkeypatch.setitem(sys.modules, "wandb.proto.wandb_internal_pb2", None)
    with pytest.raises(RequestError) as refused:
        read_wandb(tmp_path / "run.wandb")
    assert "run.wandb: " in str(refused.value)
    assert str(refused.value).endswith("pip install 'clsweep[wandb]'")


def test_exports_of_wandb(tmp_path):
    (tmp_path / "a.csv").write_text(
        '"Name","State","lr","opt","acc","_runtime"\n"one","finished","0.1","sgd","80.5","3"\n'
        '"two","crashed","0.2","adam","","9"\n"three","running","0.2","adam","1","9"\n'
    )
    sweep = read_wandb(tmp_path / "a.csv")
    assert sweep.mixed
    assert [t.status for t in sweep.trials] == ["finished", "failed", "running"]
    assert sweep.trials[0].settings == {"lr": 0.1, "opt": "sgd", "acc": 80.5}
    assert "acc" not in sweep.trials[1].settings  # its cell is empty
    (tmp_path / "a.csv").write_text("status;net;size;acc\nFAILED;a;64,64;1\nnew;b;128;2,5\n")
    sweep = read_wandb(tmp_path / "a.csv")
    assert [trial.status for trial in sweep.trials] == ["failed", "finished"]
    assert [trial.settings.get("status") for trial in sweep.trials] == [None, "new"]
    assert sweep.notes == ["read with a comma as the point: size, acc"]
    runs = [{"state": "finished", "config": {"lr": 0.1}, "summary": {"acc": 80.5, "_step": 3}}]
    (tmp_path / "a.json").write_text(json.dumps(runs))
    sweep = read_wandb(tmp_path / "a.json")
    assert not sweep.mixed
    assert (sweep.trials[0].settings, sweep.trials[0].results) == ({"lr": 0.1}, {"acc": 80.5})


WITH_TABLES = (
    "config,summary\n\"{'lr': 0.1, 'net': {'w': 4}, 'm': None}\",\"{'acc': 80.5, 'x': -inf}\"\n"
)


@pytest.mark.parametrize(
    ("name", "text", "settings"),
    [
        ("guide.csv", WITH_TABLES, {"lr": 0.1, "net.w": 4, "m": None}),
        ("raw.json", json.dumps([{"config": json.dumps({
            "lr": {"desc": None, "value": 0.1}, "_wandb": {"value": {}}, "k": {"value": {"a": [1]}}
        }), "summary": '{"acc": 80.5}'}]), {"lr": 0.1, "k.a": "[1]"}),
        ("excel.csv", "State;lr;size;acc\nfinished;0,1;64_64;80,5\n",
         {"lr": 0.1, "size": "64_64", "acc": 80.5}),
        ("point.csv", "lr;size;acc\n0.1;64,64;80.5\n", {"lr": 0.1, "size": "64,64", "acc": 80.5}),
        ("pandas.csv", ",Unnamed: 0,lr,acc\n0,0,0.1,80.5\n", {"lr": 0.1, "acc": 80.5}),
        ("blank.csv", "\nlr, net, acc\n0.1, a, 80.5\n", {"lr": 0.1, "net": "a", "acc": 80.5}),
        ("tabs.tsv", "lr\tacc\n0.1\t80.5\n", {"lr": 0.1, "acc": 80.5}),
        ("lines.jsonl", '{"config": {"lr": 0.1}, "summary": {"acc": 80.5}}\n\n', {"lr": 0.1}),
        ("page.csv", "config,acc\nbase.yaml,80.5\n", {"config": "base.yaml", "acc": 80.5}),
        ("told.csv", '"sep=|"\nState | lr | acc\nFinished | 0.1 | 80.5\n',
         {"lr": 0.1, "acc": 80.5}),
        ("utf16.csv", "lr,acc\n0.1,80.5\n".encode("utf-16"), {"lr": 0.1, "acc": 80.5}),
        ("packed.csv.gz", gzip.compress(b"lr,acc\n0.1,80.5\n", mtime=0), {"lr": 0.1, "acc": 80.5}),
        ("one.ndjson", '{"json_config": {"lr": 0.1}, "summaryMetrics": {"acc": "80.5"}}',
         {"lr": 0.1}),
        ("text.json", '[{"config": {"lr": "1e-1"}, "summary": {"acc": 80.5}}]', {"lr": 0.1}),
    ],
)  # fmt: skip
def test_other_layouts_of_an_export(name, text, settings, tmp_path):
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    (trial,) = read_wandb(tmp_path / name).trials
    assert (trial.settings, trial.results["acc"]) == (settings, 80.5)


CUT_SHORT = gzip.compress(b"lr,acc\n" * 99, mtime=0)[:-9]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "lr,acc\n0.1,80\n0.1,80,x\n", "a.csv:3: expected 2 cells, given 3"),
        ("a.csv", "lr,acc\n0.1\n", "a.csv:2: expected 2 cells, given 1"),
        ("a.csv", "config,summary\nopen('x'),{}\n",
         "a.csv:2: config: expected a table of names and values, given \"open('x')\""),
        ("a.json", '[{"config": {}}, {"config": [1]}]', "run 2: config: expected a table"),
        ("a.json", '{"config": {}}', "expected a list of runs"),
        ("a.csv", "lr,acc,acc\n0.1,80,81\n", "a.csv:1: the column 'acc' stands twice"),
        ("a.csv", "layers;lr\n64,64;0,1\n128;0,1\n64,640;0,1\n",
         "a.csv:4: layers: 64,64 and 64,640 would be one number"),
        ("a.json", '[{"config": {"a.b": 5, "a": {"b": 1}}}]', "two values are called a.b"),
        ("a.csv", "ID,acc\nx,80\nx,81\n", "a.csv:3: the run x stands twice, with different"),
        ("a.csv", "run_id,_step,acc\nx,0,80\nx,1,81\n", "a.csv:3: the run x stands twice"),
        ("a.csv", "_step,acc\n0,80\n5,81\n", "expected a row for each run, given each step"),
        ("a.csv", "Step,x - acc,x - acc__MIN\n0,80,80\n", "given the steps of a chart"),
        ("a.csv", b"lr,acc\n\xe9,80\n", "a.csv:2: expected UTF-8, given the byte 0xe9"),
        ("a.csv.gz", CUT_SHORT, "a.csv.gz: cannot be read as runs of"),
        ("a.jsonl", '{"config": {}}\n{"config": {', "a.jsonl:2: cannot be read as a run of W&B"),
        ("a.json", '{"config": {}}\n{"config": {}}\n[1]', "a.json:3: expected a run, given '[1]'"),
        ("a.txt", "lr,acc\n", "a.txt: expected an exported .csv, .tsv, .json"),
    ],
)  # fmt: skip
def test_a_damaged_export_is_refused_at_its_place(name, text, says, tmp_path):
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(RequestError) as refused:
        read_wandb(tmp_path / name)
    assert says in str(refused.value)
