"""A study's mistakes: each is refused in one line with its place, what was expected and given, and
the nearest name; at once, however large.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest
import yaml

from clsweep.errors import StudyError
from clsweep.study import design
from clsweep.study.resolve import load_study
from tests.study.conftest import FINAL, GAUSSIAN, LEVELS, ONE, PLAIN, parts, refusals
from tests.study.test_conditions import SPACE
from tests.study.test_conditions import TREE as MOCO

STUDY = """\
name: small
dataset: {name: digits, val_fraction: 0.2}
metric: {name: knn_top1, mode: max}
seeds: [0, 1]
base:
  encoder: conv4
  epochs: 6
  batch_size: 32
space:
  tau: {low: 0.05, high: 1.0, log: true, grid: [0.1, 0.3]}
objectives:
  infonce: {framework: simclr, loss: infonce}
  dclw: {framework: simclr, loss: dclw, space: {sigma: {grid: [0.3, 0.5]}}}
search: {method: grid}
confirm: {top: 1, seeds: [7, 8]}
resources: {workers: 1}
presets:
  tiny: {base: {epochs: 2}}
"""
TAU = "{low: 0.05, high: 1.0, log: true, grid: [0.1, 0.3]}"
TPE = "{method: tpe, trials_per_objective: 4}"

CROSSED = ONE | {
    "factors": {"dataset": ["digits"], "encoder": ["resnet20", {"name": "conv4", "width": 16}]},
    "dataset": {},
    "base": {"epochs": 2, "batch_size": 32},
    "objectives": {"a": {"framework": "simclr", "loss": "dcl"}},
}
ASKED = {
    "space": {"tau": {"choices": [0.1, 0.5]}, "lr": {"low": 0.1, "high": 1.0, "grid": [0.1, 1]}},
    "contrasts": {"small": {"of": ["dcl", "simclr"], "at": {"tau": 0.1}}},
}
DECAY = {"weight_decay": {"grid": [0.001, 0.01]}}
CONDITIONED = {"objectives": MOCO["objectives"], "space": SPACE | DECAY}
WHOLE = yaml.safe_load(STUDY)
HALVING = (
    f"search={TPE}", "scheduler={name: asha}", "objectives.dclw.space=null", "base.eval_every=1",
)  # fmt: skip
STUDIES = {  # the study, settings that go first, and what each setting begins with
    "study": (WHOLE, (), ""), "halving": (WHOLE, HALVING, ""), "large": (WHOLE, (), ""),
    "data": (ONE, (parts("simclr dcl"),), "dataset={"), "pairs": (GAUSSIAN, (), ""),
    "factors": (CROSSED, (), ""), "contrasts": (ASKED, (), "contrasts.small."),
    "contrast": (ASKED, (), "contrasts.small="), "conditioned": (CONDITIONED, (), ""),
    "when": (CONDITIONED, (), "space.weight_decay.when="),
    "levels": (LEVELS, (), ""), "plain": (LEVELS | PLAIN, (), ""),
}  # fmt: skip


TABLES = Path(__file__).with_name("mistakes.txt").read_text(encoding="utf-8")
IN_TEXT, OF_PARTS, OF_SETTINGS = TABLES.split("%%\n")


def rows(table):
    """Header, left and right side of each row of a table."""
    header = ""
    for line in table.strip("\n").replace("\n    ", " ").replace("TAU", TAU).splitlines():
        if line.startswith("@ "):
            header = line[2:].replace("\\n", "\n")
        elif not line.startswith("#"):
            *own, left, right = (part.replace("\\n", "\n") for part in line.split(" => "))
            yield own[0] if own else header, left, right


def over_one(text):
    """`x=1` as a setting of base, `x=[1, 2]` as one of space; others as they are."""
    name, _, value = text.partition("=")
    if "." in name or value.startswith("{"):
        return text
    return f"space.{name}={{choices: {value}}}" if value[:1] == "[" else f"base.{name}={value}"


def over_studies():
    for which, left, words in rows(OF_PARTS):
        yield ONE, [parts(which), *map(over_one, filter(None, left.split(" & ")))], words
    for which, left, words in rows(OF_SETTINGS):
        tree, first, begin = STUDIES[which]
        own = f"{begin}{left}{'}' * begin.endswith('{')}".split(" & ")
        yield tree, [*first, *own], words


@pytest.fixture
def written(tmp_path):
    """Write `STUDY` with `old` replaced by `new`."""

    def write(old="small", new="small"):
        assert old in STUDY
        path = tmp_path / "study.yaml"
        path.write_text(STUDY.replace(old, new, 1), encoding="utf-8")
        return path

    return write


def lines_of(path, **options):
    with pytest.raises(StudyError) as caught:
        load_study(path, **options)
    return str(caught.value).splitlines()


def says(line, words):
    """True if the parts of `words`, which ` ... ` divides, stand in the line in their order."""
    at = 0
    for part in words.split(" ... "):
        if (at := line.find(part, at)) < 0:
            return False
        at += len(part)
    return True


CASES = [*rows(IN_TEXT)]


@pytest.mark.parametrize(("old", "new", "words"), CASES, ids=[words for *_, words in CASES])
def test_a_mistake_is_one_line_with_its_place_and_exit_code_2(
    written, cli_command, old, new, words
):
    path = written(old, new)
    code, printed, error = cli_command("plan", str(path))
    assert (code, printed) == (2, "")
    [line] = error.splitlines()
    assert line.startswith(f"{path}:{words.partition(':')[0]}: ")
    assert says(line, f"{path}:{words}"), line
    assert len(line) - len(str(path)) < 650


@pytest.mark.parametrize(("tree", "settings", "words"), over_studies())
def test_what_makes_no_sense_is_refused_in_a_line_with_its_place(load, tree, settings, words):
    lines = refusals(load, *settings, **tree)
    assert any(says(line, words) for line in lines), lines
    places = tuple(f"--set {setting:.70}" for setting in settings)
    assert all(line.startswith(places) for line in lines), lines


@pytest.mark.parametrize(
    "settings",
    [
        "space.precision={choices: [fp32, bf16]}",
        "base.precision=fp16 & resources.gpus_per_worker=1",
        "metric.name=linear_top1",
        "base.batch_size=256 & space.chunk_size={choices: [64, 128, 256]}",
        "objectives.a={framework: supervised, loss: cross_entropy}",
        f"{parts('moco infonce')} & base.norm_group=12",  # it is shuffled groups that must divide
        f"{FINAL}",
        "base.transfer_dataset=digits & dataset={name: synthetic, val_fraction: 0.007}",
        "dataset.name=stl10 & base.knn_k=4500 & base.batch_size=50000",
    ],
)
def test_what_is_near_to_that_is_accepted(load, settings):
    load(parts("simclr infonce"), *settings.split(" & "), **ONE)


DRAWN = "14: search: method {} needs trials_per_objective, a number of configurations"
UNEVEN = "8: base.batch_size: batch size {} does not divide among {} workers; nearest valid: {}"
WIDE = "10: space.batch_size: with 2 workers expected choices that 2 divides, given a range"
TWO = ["resources.workers=2"]
SEVERAL = [  # all lines, with settings over the study
    ("name: small", "nmae: small", [], [
        "1: name: this key is missing", "1: nmae: unknown key. Did you mean 'name'?"]),
    *(("method: grid", f"method: {method}", ["objectives.dclw.space=null"], [DRAWN.format(method)])
      for method in ("qmc", "random", "tpe", "gp")),
    *(("batch_size: 32", f"batch_size: {size}", [f"resources.workers={workers}"],
       [UNEVEN.format(size, workers, valid)])
      for size, workers, valid in ((10, 4, "8, 12"), (33, 2, "32, 34"), (4, 4, "8"), (2, 4, "8"))),
    (f"tau: {TAU}", "batch_size: {choices: [8, 10, 12, 14]}", ["resources.workers=4"], [
        "10: space.batch_size: batch size 10 does not", "10: space.batch_size: batch size 14 d"]),
    (f"tau: {TAU}", "batch_size: {low: 8, high: 64, grid: [8, 64]}", TWO, [WIDE]),
    (f"tau: {TAU}", "epochs: {choices: [3, 9]}\n  warmup_epochs: {choices: [1, 4]}", [],
     ["11: space.warmup_epochs: expected fewer warm-up epochs than the 3 epochs, given 4"]),
    (STUDY[STUDY.index("  infonce") : STUDY.index("search")], "  {}\n", [],
     ["11: objectives: expected at least one entry, given {}"]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "settings", "expected"), SEVERAL)
def test_mistakes_of_several_values(written, old, new, settings, expected):
    path = written(old, new)
    lines = lines_of(path, settings=settings)
    for line, begin in zip(lines, expected, strict=True):
        assert line.startswith(f"{path}:{begin}")


@pytest.mark.parametrize(
    ("grace", "eval_every", "first_met"),
    [(6, 1, 6), (1, 6, 6), (5, 4, 8), (1, 10, 10), (7, 1, 7), (4, 3, 6)],
)
def test_halving_that_would_stop_nothing_is_refused(written, grace, eval_every, first_met):
    own = [f"scheduler.grace_epochs={grace}", f"base.eval_every={eval_every}"]
    path, settings = written(), [*HALVING, *own]
    lines = lines_of(path, settings=settings)
    for line, name in zip(lines, ("infonce", "dclw"), strict=True):
        stops = f"scheduler.grace_epochs ... asha would stop no trial ... '{name}' trains 6 epochs"
        enough = f"expected epochs > {first_met}, or a smaller grace_epochs"
        assert says(line, f"{stops} ... is scored every {eval_every}; {enough}")
    load_study(path, settings=[*settings, f"base.epochs={first_met + 1}"])


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ("{bse: {epochs: 2}}", "bse: unknown key. Did you mean 'base'?"),
        ("{base: {epoch: 2}}", "base.epoch: unknown parameter 'epoch'. Did you mean 'epochs'?"),
        ("{resources: {gpus: 2}}", "resources.gpus: unknown key ... gpus_per_worker"),
        ("{seeds: [5, 5]}", "seeds: expected distinct seeds, given 5 twice"),
        ("{objectives: {new: {loss: dcl}}}",
         "objectives.new.framework: ... Expected one of: simclr, supcon, moco"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_preset_points_into_the_preset(written, patch, words):
    path = written("{base: {epochs: 2}}", patch)
    load_study(path)
    [line] = lines_of(path, preset="tiny")
    assert says(line, f"{path}:18: ... {words}")


def test_a_study_without_presets_says_so(written):
    [line] = lines_of(written(STUDY[STUDY.index("presets") :], ""), preset="tiny")
    assert line.endswith("presets: no preset 'tiny'. The study has no presets.")


# Files that are no studies.

NO_DATA = "expected a YAML text in UTF-8, given binary data."
LONG = "a" * 100_000
NO_STUDIES = [
    (b"", ": expected a mapping with the keys name, seeds, objectives, ..., given an empty file."),
    (b"# nothing\n", "given an empty file."),
    (b"- name: small\n", "given a list."),
    (b"hello\n", "given 'hello'."),
    (b"\x89PNG\r\n\x1a\n\x00\xff", NO_DATA),
    ("name: small".encode("utf-16"), NO_DATA),
    (b"name: \x01\n", "not valid YAML: unacceptable character"),
    *((STUDY.replace(old, new).encode(), f":{line}: not valid YAML: ") for old, new, line in [
        ("seeds: [0, 1]", "seeds: [0, 1", 5),
        ("  epochs: 6", "\tepochs: 6", 7),
        ("  epochs: 6", "   epochs: 6", 7),
        ("name: small", "name: small: er", 1),
        ("search: {method: grid}", "---\nsearch: {method: grid}", 14),
        ("{workers: 1}", "*nowhere", 16),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("content", "words"), NO_STUDIES)
def test_a_file_that_is_no_study_is_refused(tmp_path, content, words):
    path = tmp_path / "study.yaml"
    path.write_bytes(content)
    [line] = lines_of(path)
    assert line.startswith(f"{path}:")
    assert words in line


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("/stdy.yaml", "no such study file. Did you mean '{}/study.yaml'?"),
        ("/no/study.yaml", "no such study file."),
        ("", "expected a study file, given a folder. It holds: study.yaml."),
        ("/study.yaml/more", "cannot be read: Not a directory."),
    ],
)
def test_a_path_that_leads_to_no_study_is_refused(written, tmp_path, place, words):
    written()
    path = f"{tmp_path}{place}"
    assert lines_of(path) == [f"{path}: {words.format(tmp_path)}"]


def test_a_run_of_a_malformed_study_makes_no_folder(written, cli_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written("loss: infonce", "loss: infonse")
    code, printed, error = cli_command("run", str(path))
    assert (code, printed, error.splitlines()) == (2, "", lines_of(path))
    assert os.listdir(tmp_path) == ["study.yaml"]


# What no study needs is refused at once.


@pytest.fixture
def at_once():
    """Seconds of this process, and no memory to speak of."""
    begin, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.process_time() - begin < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 500_000  # KiB


THOUSAND = f"{{grid: {[round(i / 2000 + 0.1, 4) for i in range(1000)]}}}"
GRIDS = (
    f"tau: {THOUSAND}\n  lr: {THOUSAND}\n  weight_decay: {THOUSAND}\n  lr_rule: {{choices: [none]}}"
)
CONFIRM = f"{{top: 1000000000000, seeds: {[*range(10, 20)]}}}"
MILLIONS = "confirm: expected at most 1,000,000 trials, given 4,990,000: 10 seeds of 499,000 conf"
PLAIN, DEEP = "objectives.dclw.space=null", "not valid YAML: nested too deeply."
HUGE = [  # what stands in the study, what is there instead, settings, words of the one line
    (f"tau: {TAU}", GRIDS, [PLAIN], "search: expected at most 1,000,000 trials, given "
     "4,000,000,000: 2 seeds of 2,000,000,000 configurations, 1,000,000,000 of 'infonce'"),
    ("{method: grid}", "{method: qmc, trials_per_objective: 10000000}", [PLAIN],
     "14: search: expected at most 1,000,000 trials, given 40,000,000: 2 seeds of 20,000,000 "
     "configurations ... draw fewer configurations with method qmc"),
    ("{top: 1, seeds: [7, 8]}", CONFIRM, [PLAIN, "search={method: qmc, trials_per_objective: 2495"
     "00}"], MILLIONS),
    ("name: small\n", "name: small\n" + "# nothing\n" * 5_000_000, [],
     ": cannot be read: expected at most 2,000,000 bytes, given 50,000,"),
    ("epochs: 6", f"epochs: {'[' * 100_000}{']' * 100_000}", [], DEEP),
    ("epochs: 6", f"epochs: {'{a: ' * 10_000}{'}' * 10_000}", [], DEEP),
    ("epochs: 6", "epochs: " + "1" * 10_000, [], ":7: "),
    ("name: small", f"name: {LONG}", [], ":1: "),
    ("epochs: 6", f"init: {LONG}", [], ":7: "),
    ("name: digits", f"root: {LONG}, name: imagefolder", [], ":2: "),
    ("epochs: 6", f"? {LONG}\n  : 1", [], ":7: "),
    ("search:", "".join(f"  o{i}: {{framework: simclr, loss: infonce}}\n" for i in range(255))
     + "search:", [], ":11: objectives: expected at most 256 entries, given 257"),
]  # fmt: skip


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("old", "new", "settings", "words"), HUGE, ids=[w for *_, w in HUGE])
def test_what_is_too_large_is_one_line_at_once(written, old, new, settings, words):
    [line] = lines_of(written(old, new), settings=settings)
    assert says(line, words), line
    assert len(line) < 4_200


def test_of_many_mistakes_the_first_are_listed(written):
    for old, many in {
        "epochs: 6\n": "".join(f"  p{i}: 1\n" for i in range(100)),
        "name: small\n": "".join(f"k{i}: 1\n" for i in range(100)),
    }.items():
        *lines, last = lines_of(written(old, old + many))
        assert (len(lines), last) == (50, "These are the first 50 mistakes.")


def test_a_range_with_too_few_values_is_not_drawn_from_for_ever(load, monkeypatch):
    monkeypatch.setattr(design, "MAX_REPEATS", 500)
    few = "space.tau={low: 0.1, high: 0.10000000000000002}"
    drawn = "search={method: random, trials_per_objective: 64}"
    with pytest.raises(StudyError, match=r"trials_per_objective: expected at most \d, given 64: 5"):
        design.plan_trials(load(parts("simclr infonce"), few, drawn, **ONE))


@pytest.mark.parametrize("source", ["/dev/zero", "pipe"])
def test_what_has_no_end_is_no_study_file(tmp_path, source):
    path = tmp_path / "pipe" if source == "pipe" else Path(source)
    if source == "pipe":
        os.mkfifo(path)
    [line] = lines_of(path)
    assert line.startswith(f"{path}: cannot be read: expected a regular file, given a")
