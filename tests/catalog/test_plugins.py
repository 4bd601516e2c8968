"""A user's own rows of the catalog, from a file: through plan, trial and results."""

import os
import sys

import pytest
import torch

import clsweep
from clsweep.catalog import COMPONENT, METRIC, PARAM, Component
from clsweep.catalog.ownership import with_defaults
from clsweep.catalog.plugin_guard import PartError, guarded
from clsweep.catalog.plugin_import import PluginError
from clsweep.catalog.plugins import activate
from clsweep.cluster.error_causes import describe
from clsweep.cluster.trial import TrialContext
from clsweep.errors import RequestError, StudyError
from clsweep.results.folder import ResultsFolder
from clsweep.results.reading import StudyTables
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.extend import extension_errors
from clsweep.study.resolve import load_study
from clsweep.study.schema import ResourcesSection
from clsweep.train.checkpoints import identity_of
from clsweep.train.loop import train_trial
from tests.catalog.test_install import TREE
from tests.contracts.attempts import assert_same, attempt, chain
from tests.planted import study_at

pytestmark = pytest.mark.usefixtures("one_thread", "no_plugin_after")

MY_DCL = {"framework": "simclr", "loss": "my_dcl"}
OWN = TREE | {"plugins": ["mine.py"], "objectives": {"new": MY_DCL}}
MINE = """
import torch

from clsweep.catalog import Component, Metric, Param
from clsweep.objective.losses import dcl

TEXT = {"source": "this test", "doc": "own"}


def my_dcl(z1_ND, z2_ND, tau, my_scale, **memory):
    return my_scale * dcl(z1_ND, z2_ND, tau=tau, **memory)


def spread(bank_ND, bank_labels_N, query_MD, query_labels_M, *, num_classes):
    return {"spread": float(query_MD.std())}


ROWS = [
    Component(part="loss", name="my_dcl", impl="my_dcl", owns=("tau", "my_scale"),
              on=("simclr",), **TEXT),
    Param(name="my_scale", kind="float", default=1.0, low=0, symbol="s", **TEXT),
    Metric(name="spread", mode="min", unit="rad", impl="spread", every_epoch=True, doc="own"),
]
"""


MASK = """
import torch

from clsweep.catalog import Component, Param

TEXT = {"source": "this test", "doc": "own"}


def time_mask(x_NCHW, u_NK, *, mask_width, mask_level):
    place_W = torch.arange(x_NCHW.shape[3]) - (u_NK[:, :1] * x_NCHW.shape[3]).floor()
    is_masked_NW = (place_W >= 0) & (place_W < mask_width)
    return x_NCHW.masked_fill(is_masked_NW[:, None, None], mask_level)


def swap(x_NCHW, u_NK, other_NCHW, *, mask_width):
    return torch.where((u_NK < mask_width / 10)[..., None, None], other_NCHW, x_NCHW)


ROWS = [
    Component(part="augmentation", name="time_mask", impl="time_mask", num_draws=1,
              owns=("mask_width", "mask_level"), **TEXT),
    Component(part="augmentation", name="swap", impl="swap", num_draws=1, mixes=True,
              owns=("mask_width",), **TEXT),
    Param(name="mask_width", kind="int", default=2, low=0, **TEXT),
    Param(name="mask_level", kind="float", default=0.0, low=0, high=1,
          inert_when=(("mask_width", 0),), **TEXT),
    Component(part="recipe", name="masked", **TEXT,
              defaults={"augmentation": "time_mask, random_erasing", "mask_width": 3}),
]
"""
MASKED = (
    "objectives.new.loss=dcl", "base.augmentation=[swap, gaussian_noise, time_mask]",
    "space={mask_width: {grid: [0, 2]}, mask_level: {grid: [0, 1]}}",
)  # fmt: skip


@pytest.fixture
def study(tmp_path):
    def load(*settings, text=MINE):
        (tmp_path / "mine.py").write_text(text)
        return load_study(study_at(tmp_path / "study.yaml", **OWN), settings=settings)

    return load


def _forget(plugins):
    """As another process, which has not imported them."""
    for plugin in plugins:
        del sys.modules[plugin.module]


def trained(found):
    row, epochs = plan_row(found, plan_trials(found)[0]), []
    return row, epochs, train_trial(row, epochs.append)


def test_a_copy_of_a_built_in_loss_gives_its_numbers(study):
    row, epochs, result = trained(study())
    assert row["my_scale"] == 1.0
    assert result["spread"] > 0
    _, plain, _ = trained(study("plugins=null", "objectives.new.loss=dcl"))
    assert "spread" not in plain[0]
    assert [e["train_loss"] for e in epochs] == [e["train_loss"] for e in plain]
    assert epochs[0]["knn_top1"] == plain[0]["knn_top1"]


def test_at_lam_1_what_belongs_to_a_loss_has_no_effect_and_is_planned_once(study):
    space = "space={lam: {grid: [0.5, 1]}, my_scale: {grid: [1, 2]}}"
    found = study("objectives.new.regularizer=dimcl", "seeds=[0]", space)
    planned = [plan_row(found, trial) for trial in plan_trials(found)]
    rows = {(row["lam"], row["my_scale"]): with_defaults(row) for row in planned}
    assert set(rows) == {(0.5, 1.0), (0.5, 2.0), (1.0, None)}
    one, two = (attempt(rows[1.0, None] | {"my_scale": scale}).result for scale in (1.0, 2.0))
    assert all(one[name] == two[name] for name in ("train_loss", "knn_top1", "spread"))


def test_an_augmentation_is_swept_and_resumed_as_if_nothing_had_been(study):
    """The width 0 masks and swaps nothing, so its level has no effect and is planned once."""
    found = study(*MASKED, "base.epochs=2", "base.eval_every=1", text=MASK)
    planned = [plan_row(found, trial) for trial in plan_trials(found)]
    assert {row["augmentation"] for row in planned} == {"swap, gaussian_noise, time_mask"}
    assert {row["noise_std"] for row in planned} == {0.1}
    rows = {(row["mask_width"], row["mask_level"]): with_defaults(row) for row in planned}
    assert set(rows) == {(0, None), (2, 0.0), (2, 1.0)}
    ends = {key: attempt(row) for key, row in rows.items()}
    assert len({made.result["train_loss"] for made in ends.values()}) == 3
    assert_same(chain(rows[2, 1.0], kills=[1])[-1], ends[2, 1.0])
    plain = attempt({**rows[0, None], "augmentation": "gaussian_noise"})
    assert plain.result["train_loss"] == ends[0, None].result["train_loss"]


def test_a_recipe_brings_augmentations_of_one_s_own(study):
    found = study("objectives.new.loss=dcl", "base.recipe=masked", "base.erase_prob=1", text=MASK)
    row = plan_row(found, plan_trials(found)[0])
    given = {name: row[name] for name in ("augmentation", "mask_width", "erase_prob")}
    both = "time_mask, random_erasing"
    assert given == {"augmentation": both, "mask_width": 3, "erase_prob": 1.0}
    with pytest.raises(StudyError, match="uses it; it belongs to augmentation time_mask"):
        study("objectives.new.loss=dcl", "base.mask_level=1", text=MASK)


def one_trial(found, path):
    """A results folder of a study's first trial."""
    row = plan_row(found, plan_trials(found)[0])
    folder = ResultsFolder(str(path))
    folder.create(found.document.dump(), [row], found.document.plugins)
    folder.add_trial(row | {"status": "finished", "spread": 0.5})
    return folder


def test_results_are_read_without_the_file_and_nothing_is_executed(study, tmp_path):
    executed = tmp_path / "executed"
    bomb = f"{MINE}\nopen({str(executed)!r}, 'w')\n"
    found = study("metric={name: spread, mode: min}", text=bomb)
    folder = one_trial(found, tmp_path / "results")
    activate(())
    assert "spread" not in METRIC
    (tmp_path / "mine.py").unlink()
    executed.unlink()
    _forget(found.document.plugins)
    results = StudyTables(ResultsFolder(folder.path))
    assert (results.metric, results.mode) == ("spread", "min")
    assert METRIC["spread"].unit == "rad"
    assert results.trials["spread"].tolist() == [0.5]
    assert "my_scale" in results.params
    assert PARAM["my_scale"].symbol == "s"
    assert not executed.exists()


def test_folders_with_different_plug_ins_of_one_name_are_not_read_together(study, tmp_path):
    paths = []
    for name, text in {"a": MINE, "b": MINE.replace('unit="rad"', 'unit="deg"'), "c": MINE}.items():
        found = study("metric={name: spread, mode: min}", f"name={name}", text=text)
        paths.append(one_trial(found, tmp_path / name).path)
    with pytest.raises(RequestError, match="have different versions of plug-in mine"):
        clsweep.open_results(paths[0], paths[1])
    assert len(clsweep.open_results(paths[0], paths[2]).trials) == 2
    for path, unit in zip(paths, ("rad", "deg", "rad"), strict=True):
        assert StudyTables(ResultsFolder(path)).metric == "spread"
        assert METRIC["spread"].unit == unit


def test_an_import_that_fails_on_a_worker_only_is_told_with_its_line(study, monkeypatch):
    text = MINE.replace("import torch\n", "import os\n\nos.environ['ONLY_HERE']\n")
    monkeypatch.setenv("ONLY_HERE", "1")
    found = study(text=text)
    monkeypatch.delenv("ONLY_HERE")
    activate(())
    _forget(found.document.plugins)
    context = TrialContext(
        places={}, resources=ResourcesSection(), results="", near=None,
        plugins=found.document.plugins,
    )  # fmt: skip
    with pytest.raises(PluginError) as caught:
        context.plug_in()
    assert describe(caught.value)["error_message"] == "mine.py:4: KeyError: 'ONLY_HERE'"


def test_a_changed_plug_in_is_another_study(study):
    old = study()
    rows = [plan_row(old, trial) for trial in plan_trials(old)]
    new = study(text=MINE + "# changed\n")
    changed = [plan_row(new, trial) for trial in plan_trials(new)]
    assert identity_of(rows[0]) != identity_of(changed[0])
    (reason,) = extension_errors(old.document.tree, rows, new, plan_trials(new))
    assert reason.startswith("plugins.mine.py: ")


def test_the_plug_ins_of_one_study_are_not_another_s(study):
    found = study()
    assert "my_dcl" in COMPONENT["loss"]
    with pytest.raises(StudyError, match="my_dcl"):
        study("plugins=null")
    assert plan_row(found, plan_trials(found)[0])["my_scale"] == 1.0


@pytest.mark.parametrize("loss", ["weigh", "my_dcl"])
def test_a_loss_may_take_what_a_framework_beside_it_gives(study, loss):
    own = """
from clsweep.objective.frameworks import SimCLR


class Weighing(SimCLR):
    def compare(self, e, i, j, criterion):
        return [value for value in super().compare(
            e, i, j, lambda *z, **named: criterion(*z, weight=0.5, **named))]


def weigh(z1_ND, z2_ND, weight, *, tau, **memory):
    return weight * dcl(z1_ND, z2_ND, tau=tau, **memory)


ROWS += [
    Component(part="loss", name="weigh", impl="weigh", owns=("tau",), **TEXT),
    Component(part="framework", name="weighing", impl="Weighing", losses=("weigh",),
              owns=("proj_dim", "proj_hidden", "proj_layers"), views_of_negatives=2, **TEXT),
]
"""
    text = MINE + own
    if loss == "weigh":
        named = "objectives.new.framework=weighing", "objectives.new.loss=weigh"
        _, epochs, _ = trained(study(*named, text=text))
        _, plain, _ = trained(study("plugins=null", "objectives.new.loss=dcl"))
        assert epochs[0]["train_loss"] != plain[0]["train_loss"]
    else:
        with pytest.raises(StudyError, match="missing a required argument: 'weight'"):
            study(text=text.replace('losses=("weigh",)', 'losses=("dcl",)'))


# What stands in the plug-in, what is there instead, and words of the one line.
WRONG = [
    ("import torch\n", "import torch as\n", "mine.py:2: not valid Python"),
    ("import torch\n", "from . import x\n", "mine.py:2: ImportError: attempted relative"),
    ('name="my_dcl"', 'name="dcl"', "mine.py:19: loss 'dcl': expected a new name"),
    ('name="my_dcl"', 'name=["my_dcl"]', "mine.py:18: ['my_dcl']: name: Input should be"),
    ("tau, my_scale, **memory", "tau", "mine.py:10: my_dcl: got an unexpected keyword"),
    ("tau, my_scale, **", "tau, my_scale, more, **", "mine.py:10: my_dcl: missing a required"),
    ('"my_scale")', '"my_skale")', "mine.py:10: my_dcl: missing a required"),
    ('impl="spread"', 'impl="spred"', "mine.py:22: spread: impl: no function 'spred'"),
    ('impl="my_dcl"', 'impl="no_such:x"', "mine.py:19: my_dcl: impl: expected module:function"),
    ("default=1.0", "default=-1.0", "mine.py:21: my_scale: default: expected a value in"),
    ("default=1.0", "default=[1]", "mine.py:21: my_scale: default: expected bool or int or"),
    ("default=1.0, ", "", "mine.py:21: TypeError: Param.__init__() missing 1 required"),
    ('owns=("tau", "my_scale")', 'owns="tau"', "mine.py:19: my_dcl: owns"),
    ('name="my_scale"', "name={}", "mine.py:18: {}: name: Input should be"),
    ('name="spread"', 'name="trial_id"', "mine.py:22: metric 'trial_id': expected a new name"),
    ('"doc": "own"}', '"doc": 1 / 0}', "mine.py:7: ZeroDivisionError"),
    ("ROWS = [", "ROWS = [7,", "mine.py:18: ROWS: expected a Param"),
    ("ROWS = [", "ROWS_ = [", "mine.py:1: expected a list ROWS"),
    ("ROWS = [", "import sys; sys.exit(0)\nROWS = [", "mine.py:18: SystemExit: 0"),
    ("ROWS = [", "raise GeneratorExit\nROWS = [", "mine.py:18: GeneratorExit"),
    (
        "ROWS = [",
        "raise type('Mute', (Exception,), {'__str__': None})\nROWS = [",
        "mine.py:18: Mute",
    ),
    ("ROWS = [", "def f(): return f()\nf()\nROWS = [", "mine.py:18: RecursionError"),
]


@pytest.mark.parametrize(("old", "new", "words"), WRONG, ids=[words for *_, words in WRONG])
def test_a_wrong_plug_in_is_one_line_with_its_place(study, old, new, words):
    assert old in MINE
    with pytest.raises(StudyError) as caught:
        study(text=MINE.replace(old, new))
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_parameter_that_is_owned_may_come_with_others(study):
    assert study(text=MINE.replace("tau, my_scale, **", "tau, **"))


@pytest.mark.parametrize(
    ("part", "given", "found", "expected"),
    [
        ("lr_schedule", (None,), -0.5, "a finite number from 0 on, given float -0.5"),
        ("views", (2,), [(0, 0)], r"pairs \(i, j\) of two of the views"),
        ("augmentation", (torch.rand(2, 3, 8, 8), torch.rand(2, 0)), None, "a tensor of views"),
    ],
)
def test_what_a_part_may_not_give_is_refused(part, given, found, expected):
    row = Component(part=part, name="mine", impl="a:b", source="-", doc="-")
    with pytest.raises(PartError, match=f"mine: expected {expected}"):
        guarded(row, lambda *_: found)(*given)


def test_files_that_are_none(study, tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "huge.py").write_text("#" * 300_000)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.py").write_text(MINE)
    for name, message in {
        "gone.py": "cannot be read: no such file",
        "pipe.py": "expected a regular file",
        "huge.py": "expected at most 256,000 bytes",
        "no_such_package": "expected a file NAME.py or an installed package",
        "mine.py, sub/mine.py": "two plug-ins of this name",
    }.items():
        with pytest.raises(StudyError, match=message) as caught:
            study(f"plugins=[{name}]")
        assert len(str(caught.value).splitlines()) == 1
