"""Malformed studies: every mistake is a line with its place, what was expected and given, and the
nearest name.
"""

import os

import pytest

from clsweep.errors import StudyError
from clsweep.study.resolve import load_study

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
METHODS = "expected 'grid', 'qmc', 'random', 'tpe' or 'gp'"
TPE = "{method: tpe, trials_per_objective: 4}"

# What stands in the study: what a mistake has in its place: the line, and what the message says, in
# this order.
MISTAKES = {
    "resources: {": {
        "extra: 1\nresources: {": "16: extra: unknown key ... Expected: name, dataset,",
    },
    "metric:": {"metrics:": "3: metrics: unknown key ... Did you mean 'metric'?"},
    "loss: dclw,": {
        "loss: dclx,": "13: objectives.dclw.loss: unknown loss",
        "loss: dclw, views: twoo,": "13: objectives.dclw.views: unknown views 'twoo'. ... 'two'?",
        "loss: dclw, bs: 32,": "13: objectives.dclw.bs: unknown key ... Did you mean "
        "'objectives.dclw.base.batch_size'?",
        "loss: dclw, base: {sigma: 1},": "13: objectives.dclw.space.sigma: expected the "
        "parameter in base or in space ... given both",
    },
    "name: small\n": {"": "1: name: this key is missing"},
    "{method: grid}": {
        "{}": "14: search.method: this key is missing",
        "{method: qmc, trials_per_objective: 4}": "13: objectives.dclw.space.sigma: "
        "search.method is qmc: expected low and high, or choices",
        "{method: grid, trials_per_objective: 3}": "14: search.trials_per_objective: the grid of "
        "'dclw' has 4 configurations ... 3 allowed ... thin the grid",
    },
    "epochs: 6": {
        "epochs: six": "7: base.epochs: expected an integer, given 'six'",
        "epochs: 1e30": "7: base.epochs: expected an integer, given 1e+30",
        "epochs: 010": "7: base.epochs: expected an integer, given '010'",
        "epochs: 1:30": "7: base.epochs: expected an integer, given '1:30'",
        "epochs: 6\n  lr: 1e999": "8: base.lr: expected a number, given inf",
        "knn_k: 5000": "7: base.knn_k: expected at most 1150 ... given 5000",
    },
    "val_fraction: 0.2": {
        "val_fraction: true": "2: ... expected a number, given True",
        "val_fraction: .nan": "2: ... val_fraction: expected a number, given '.nan'",
        "val_fraction: 0.005": "2: ... val_fraction: expected at least 10 images, one per class "
        "... given 7",
    },
    "workers: 1": {
        "gpus_per_worker: 4": "16: ... gpus_per_worker: expected at most 1, as a worker trains on "
        "one GPU, given 4. A trial on several: workers: 4, gpus_per_worker: 1",
        "gpus_per_worker: 1.5": "16: ... given 1.5. A trial on several: workers: 2, gpus",
        "images_on: device": "16: resources.images_on: expected 'auto', 'gpu' or 'host', given",
        "images_on: host": "16: resources.images_on: expected auto, as the trials have no GPU",
        "workers: 2, gpus_per_worker: 0.5": "16: ... gpus_per_worker: expected 0 or 1 (a part of "
        "one GPU goes with a single worker), given 0.5",
    },
    "mode: max": {
        "mode: min": "3: ... expected max for knn_top1, given min",
    },
    "space:\n": {
        "  jitter_strength: 0\nspace:\n  jitter_prob: {grid: [0.2, 0.8]}\n": "11: "
        "space.jitter_prob: has no effect while jitter_strength is 0",
    },
    "{name: digits, val_fraction: 0.2}": {"digits": "2: dataset: expected a mapping, given 'd"},
    "seeds: [0, 1]": {
        "seeds: 2": "4: seeds: expected a list, given 2",
        "seeds: [3, 3]": "4: seeds: expected distinct seeds, given 3 twice",
        "seeds: [0, -1]": "4: seeds.1: expected a value >= 0, given -1",
        "seeds: [4294967296]": "4: seeds.0: expected a value < 4294967296",
    },
    "{name: digits,": {"{name: digits, download: 1,": "2: ... expected true or false, given 1"},
    "name: small": {"name: a/b": "1: name: expected letters, digits, ... given 'a/b'"},
    STUDY[STUDY.index("  infonce") : STUDY.index("search")]: {
        "  {}\n": "11: objectives: expected at least one entry, given {}",
    },
    "seeds: [7, 8]": {
        "seeds: [1, 8]": "15: confirm.seeds: expected seeds that the search does not use, given "
        "1, in seeds too",
    },
    "method: grid": {
        "method: gird": f"14: search.method: {METHODS} ... Did you mean 'grid'?",
    },
    "resources:": {
        "checkpoints: {keep: none, every_s: 5}\nresources:": "16: checkpoints.every_s: expected "
        "with keep: last or best only, as none are made",
        "scheduler: {grace_epochs: 2}\nresources:": "16: scheduler.grace_epochs: expected with "
        "name: asha only, as fifo stops no trial",
        "scheduler: {name: asha}\nresources:": "16: scheduler.name: asha stops bad "
        "configurations early, and grid is there to measure how many ... Expected fifo, or "
        "search.method tpe or gp",
    },
    "search: {method: grid}": {
        "search: {method: grid, cost: seconds}": "14: search.cost: grid chooses nothing ... "
        "clsweep pareto shows the front",
    },
    "encoder: conv4": {"encoder: conv5": "6: base.encoder: expected conv4 | ... given 'conv5'"},
    "{sigma:": {
        "{sigmma:": "13: objectives.dclw.space.sigmma: unknown parameter 'sigmma'. ... 'sigma'? "
        "... 'dclw' owns: augmentation, batch_size, ... sigma, solarize_prob, tau, ",
        "{temperature: {grid: [0.1]}, sigma:": "13: objectives.dclw.space.temperature: unknown "
        "parameter ... Did you mean 'tau'?",
    },
    "batch_size: 32": {
        "learning_rate: 0.1": "8: base.learning_rate: unknown parameter ... Did you mean 'lr'?",
        "views: ecpp": "8: base.views: 'views' is a part of an objective ... objectives.NAME.views",
        "xyz: 32": "8: base.xyz: unknown parameter ... clsweep catalog params",
        "stem: small": "8: base.stem: no objective of this study owns 'stem' ... none of its "
        "parts uses it ... encoder resnet18",
        "gray_prob: 0.1": "8: ... no objective of this study owns 'gray_prob' ... digits have "
        "one channel",
        "batch_size: 1": "8: base.batch_size: expected a value in [2, inf)",
        "lr_rule: square": "8: base.lr_rule: expected none | sqrt | linear, given",
        "batch_size: 2000": "8: base.batch_size: expected at most 1150",
        "warmup_epochs: 6": "8: base.warmup_epochs: expected fewer warm-up epochs than the 6 "
        "epochs, given 6",
    },
    "loss: infonce}": {
        "loss: infonce, space: {sigma: {grid: [1]}}}": "12: objectives.infonce.space.sigma: "
        "'infonce' does not own this parameter ... none of its parts ... 'infonce' owns: ",
    },
    "low: 0.05": {
        "low: 2": "10: space.tau: expected low < high, given low 2 and high 1",
        "low: 0": "10: space.tau.low: expected a value in (0, inf), given 0",
    },
    ", high: 1.0, log: true": {"": "10: space.tau: expected both low and high, given only low"},
    f"tau: {TAU}": {
        "flip_prob: {low: 0.1, high: 2}": "10: space.flip_prob.high: expected a value in [0, 1]",
        "weight_decay: {low: 0, high: 1, log: true}": "10: space.weight_decay.low: a log scale "
        "needs low > 0, given 0",
        "lr_rule: {choices: [linear, cubic]}": "10: space.lr_rule.choices: expected none | sqrt "
        "| linear, given 'cubic'",
        "lr_rule: {low: 1, high: 2}": "10: ... expected choices out of none | sqrt",
        "knn_k: {choices: [5, 9]}": "10: space.knn_k: 'knn_k' cannot be swept",
        "epochs: {choices: [0, 9]}": "10: space.epochs: 0 cannot be swept ... base: {epochs: 0}",
    },
    "low: 0.05, high: 1.0, ": {"": "10: space.tau.log: expected low and high beside it"},
    "log: true": {
        "log: 10": "10: space.tau.log: expected true or false, given 10",
        "logg: true": "10: space.tau: unknown key 'logg'. ... 'log'? ... low, ",
    },
    "[0.1, 0.3]": {
        "[]": "10: space.tau.grid: expected a list of at least one value, given []",
        "[0.3, 0.3]": "10: space.tau.grid: 0.3 stands twice",
        "[0.1, 3]": "10: space.tau.grid: 3 lies outside of low 0.05 .. high 1",
        "[0.1, x]": "10: space.tau.grid: expected a number, given 'x'",
    },
    TAU: {
        "{}": "10: space.tau: expected low and high, grid or choices, given none of them",
        "[0.1]": "10: space.tau: expected {low, high} with an optional ... given [0.1]",
    },
    "log: true, grid": {"choices": "10: ... expected either choices or low, ... and low, high"},
    ", grid: [0.1, 0.3]": {
        "": "10: space.tau: search.method is grid: expected grid or choices, given only low and "
        "high",
    },
    "  dclw:": {
        "  INFONCE:": "13: objectives.INFONCE: too much like 'infonce'",
        f"  {'d' * 65}:": "13: ... expected a name of 1 to 64 printable",
    },
}


@pytest.fixture
def broken(tmp_path):
    """Write `STUDY` with `old` replaced by `new`."""

    def write(old, new):
        assert old in STUDY
        path = tmp_path / "study.yaml"
        path.write_text(STUDY.replace(old, new, 1), encoding="utf-8")
        return path

    return write


def lines_of_refusal(path, **options):
    with pytest.raises(StudyError) as caught:
        load_study(path, **options)
    return str(caught.value).splitlines()


def assert_says(line, said):
    """The parts of `said`, which ` ... ` divides, stand in the line in their order."""
    rest = line
    for word in said.split(" ... "):
        assert word in rest, f"{word!r} is missing, or out of order, in: {line}"
        rest = rest[rest.index(word) + len(word) :]


def test_the_study_without_a_mistake_is_accepted(broken):
    assert load_study(broken("small", "sound")).name == "sound"


CASES = [(old, new, said) for old, changes in MISTAKES.items() for new, said in changes.items()]


@pytest.mark.parametrize(("old", "new", "said"), CASES, ids=[said for *_, said in CASES])
def test_a_mistake_is_one_line_with_its_place_and_exit_code_2(broken, cli_command, old, new, said):
    path = broken(old, new)
    code, printed, error = cli_command("plan", str(path))
    assert (code, printed) == (2, "")
    [line] = error.splitlines()
    assert line.startswith(f"{path}:{said.partition(':')[0]}: ")
    assert_says(line, f"{path}:{said}")
    assert len(line) - len(str(path)) < 650


DRAWN = "14: search: method {} needs trials_per_objective, a number of configurations"
UNEVEN = "batch size {} does not divide among {} workers; nearest valid: {}"
WIDE = "with 2 workers expected choices that 2 divides, given a range"
# As above, with settings over the study; all lines.
SEVERAL = [
    ("name: small", "nmae: small", [], [
        "1: name: this key is missing", "1: nmae: unknown key. Did you mean 'name'?"]),
    *(("method: grid", f"method: {method}", ["objectives.dclw.space=null"], [DRAWN.format(method)])
      for method in ("qmc", "random", "tpe", "gp")),
    *(("batch_size: 32", f"batch_size: {size}", [f"resources.workers={workers}"],
       [f"8: base.batch_size: {UNEVEN.format(size, workers, valid)}"])
      for size, workers, valid in ((10, 4, "8, 12"), (33, 2, "32, 34"), (4, 4, "8"), (2, 4, "8"))),
    (f"tau: {TAU}", "batch_size: {choices: [8, 10, 12, 14]}", ["resources.workers=4"], [
        "10: space.batch_size: batch size 10 does not", "10: space.batch_size: batch size 14 d"]),
    (f"tau: {TAU}", "batch_size: {low: 8, high: 64, grid: [8, 64]}", ["resources.workers=2"],
     [f"10: space.batch_size: {WIDE}"]),
    (f"tau: {TAU}", "epochs: {choices: [3, 9]}\n  warmup_epochs: {choices: [1, 4]}", [],
     ["11: space.warmup_epochs: expected fewer warm-up epochs than the 3 epochs, given 4"]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "settings", "said"), SEVERAL)
def test_mistakes_of_several_values(broken, old, new, settings, said):
    path = broken(old, new)
    lines = lines_of_refusal(path, settings=settings)
    for line, expected in zip(lines, said, strict=True):
        assert line.startswith(f"{path}:{expected}")


# Successive halving.


def asha(broken, *settings):
    """A live search with asha; six epochs."""
    path = broken("search: {method: grid}", f"search: {TPE}\nscheduler: {{name: asha}}")
    fitting = ["objectives.dclw.space=null", "base.eval_every=1"]
    return path, [*fitting, *settings]


STOPS_BAD = "15: scheduler.name: asha stops bad ... and {} is there to measure ... tpe or gp"
EVERY_EPOCH = (
    "metric.name: asha compares scores before the last epoch, expected knn_top1, knn_top5, "
    "classifier_top1, classifier_top5, rankme, lidar, alpha_req, alignment, uniformity; "
    "linear_top1 is scored at the"
)
EQUAL = "space.epochs: asha compares configurations of equally many epochs ... fix epochs in base"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("search.method=qmc", STOPS_BAD.format("qmc")),
        ("search.method=random", STOPS_BAD.format("random")),
        ("metric.name=linear_top1", EVERY_EPOCH),
        ("space.epochs={choices: [4, 6]}", EQUAL),
    ],
)
def test_what_does_not_go_with_asha_is_refused(broken, setting, said):
    path, settings = asha(broken, setting)
    [line] = lines_of_refusal(path, settings=settings)
    assert_says(line, said)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            "metric.name=lidar",
            "given lidar, which 'infonce' lacks by its dataset, feature_layer, lidar_views",
        ),
        ("base.lidar_views=1", "expected 0, or 2 views and more, given 1"),
        (
            "metric={name: alignment, mode: min} & base.epochs=0",
            "given alignment, which 'infonce' lacks by its dataset, framework, epochs",
        ),
        ("metric.name=alpha_req", "expected min for alpha_req, given max"),
    ],
)
def test_a_score_without_labels_needs_what_it_looks_at(broken, settings, words):
    lines = lines_of_refusal(broken("small", "small"), settings=settings.split(" & "))
    assert any(words in line for line in lines), lines


@pytest.mark.parametrize(
    ("grace", "eval_every", "first_met"),
    [(6, 1, 6), (1, 6, 6), (5, 4, 8), (1, 10, 10), (7, 1, 7), (4, 3, 6)],
)
def test_asha_that_would_stop_nothing_is_refused(broken, grace, eval_every, first_met):
    path, settings = asha(
        broken, f"scheduler.grace_epochs={grace}", f"base.eval_every={eval_every}"
    )
    lines = lines_of_refusal(path, settings=settings)
    assert len(lines) == 2, lines
    for line, name in zip(lines, ("infonce", "dclw"), strict=True):
        stops = f"asha would stop no trial ... '{name}' trains 6 epochs"
        assert_says(line, f"scheduler.grace_epochs ... {stops}")
        expected = f"expected epochs > {first_met}, or a smaller grace_epochs"
        assert_says(line, f"is scored every {eval_every}; {expected}")
    load_study(path, settings=[*settings, f"base.epochs={first_met + 1}"])


# Presets and settings.


def test_a_study_without_presets_says_so(broken):
    [line] = lines_of_refusal(broken(STUDY[STUDY.index("presets") :], ""), preset="tiny")
    assert line.endswith("presets: no preset 'tiny'. The study has no presets.")


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ("{bse: {epochs: 2}}", "bse: unknown key. Did you mean 'base'?"),
        ("{base: {epoch: 2}}", "base.epoch: unknown parameter 'epoch'. Did you mean 'epochs'?"),
        ("{resources: {gpus: 2}}", "resources.gpus: unknown key ... gpus_per_worker"),
        ("{seeds: [5, 5]}", "seeds: expected distinct seeds, given 5 twice"),
        (
            "{objectives: {new: {loss: dcl}}}",
            "objectives.new.framework: ... Expected one of: simclr, moco",
        ),
    ],
)
def test_a_mistake_in_a_preset_points_into_the_preset(broken, patch, said):
    path = broken("{base: {epochs: 2}}", patch)
    load_study(path)
    [line] = lines_of_refusal(path, preset="tiny")
    assert_says(line, f"{path}:18: ... {said}")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("base.epoch=3", "base.epoch: unknown parameter ... 'epochs'?"),
        ("epochs=3", "epochs: unknown key. Did you mean 'base.epochs'? Expected: name,"),
        ("learning_rate=3", "learning_rate: unknown key. Did you mean 'base.lr'?"),
        ("metric.name=rank_me", "unknown metric 'rank_me' ... Expected one of: knn_top1, knn_top5"),
        ("loggers=[tensorbord]", "loggers.0: unknown logger ... 'tensorboard'? ... mlflow"),
        ("loggers=[{wandb: {projct: a}}]", "unknown option of wandb 'projct' ... 'project'?"),
        ("loggers=tensorboard", "loggers: expected a list, given 'tensorboard'"),
        ("loggers=[{mlflow: {uri: 3}}]", "loggers.0.options.uri: expected a text, given 3"),
        ("seeds=[1, a]", "seeds.1: expected an integer, given 'a'"),
        ("objectives.infonce.loss=infonse", "unknown loss 'infonse' ... 'infonce'?"),
        ("name=null", "name: this key is missing"),
        ("presets.tiny=3", "presets: unknown key"),
        ("space.tau.grid=[7]", "space.tau.grid: 7 lies outside of low 0.05 .. high 1"),
    ],
)
def test_a_mistake_in_a_setting_names_the_setting(broken, setting, said):
    [line] = lines_of_refusal(broken("small", "small"), settings=[setting])
    assert_says(line, f"--set {setting}: ... {said}")


# Files that are no studies: what stands in the file, and what is said of it.

NO_DATA = "expected a YAML text in UTF-8, given binary data."
FILES = [
    (b"", ": expected a mapping with the keys name, seeds, objectives, ..., given an empty file."),
    (b"# nothing\n", "given an empty file."),
    (b"- name: small\n", "given a list."),
    (b"hello\n", "given 'hello'."),
    (b"\x89PNG\r\n\x1a\n\x00\xff", NO_DATA),
    ("name: small".encode("utf-16"), NO_DATA),
    (b"name: \x01\n", "not valid YAML: unacceptable character"),
    *(
        (STUDY.replace(old, new).encode(), f":{line}: not valid YAML: ")
        for old, new, line in [
            ("seeds: [0, 1]", "seeds: [0, 1", 5),
            ("  epochs: 6", "\tepochs: 6", 7),
            ("  epochs: 6", "   epochs: 6", 7),
            ("name: small", "name: small: er", 1),
            ("search: {method: grid}", "---\nsearch: {method: grid}", 14),
            ("{workers: 1}", "*nowhere", 16),
        ]
    ),
]


@pytest.mark.parametrize(("content", "said"), FILES)
def test_a_file_that_is_no_study_is_refused(tmp_path, content, said):
    path = tmp_path / "study.yaml"
    path.write_bytes(content)
    [line] = lines_of_refusal(path)
    assert line.startswith(f"{path}:")
    assert said in line


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("/stdy.yaml", "no such study file. Did you mean '{}/study.yaml'?"),
        ("/no/study.yaml", "no such study file."),
        ("", "expected a study file, given a folder. It holds: study.yaml."),
        ("/study.yaml/more", "cannot be read: Not a directory."),
    ],
)
def test_a_path_that_leads_to_no_study_is_refused(broken, tmp_path, place, said):
    broken("small", "small")
    path = f"{tmp_path}{place}"
    assert lines_of_refusal(path) == [f"{path}: {said.format(tmp_path)}"]


def test_a_run_of_a_malformed_study_makes_no_folder(broken, cli_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = broken("loss: infonce", "loss: infonse")
    code, printed, error = cli_command("run", str(path))
    assert (code, printed) == (2, "")
    assert error.splitlines() == lines_of_refusal(path)
    assert os.listdir(tmp_path) == ["study.yaml"]
