"""Notes on settings that do what is written, and hardly what is meant."""

import pytest

from clsweep.cli.plan import plan_notes
from clsweep.errors import StudyError

IMAGES = {"name": "synthetic", "num_train": 1000, "image_size": 32, "num_classes": 4}
SIMCLR = {"framework": "simclr", "loss": "infonce"}
SWAV = {"framework": "swav", "loss": "soft_cross_entropy"}
NNCLR = {"framework": "nnclr", "loss": "infonce"}
MOCO = {"framework": "moco", "loss": "infonce"}


@pytest.fixture
def study(load_tree):
    def load(objective, *, base=None, space=None, more=None, **changes):
        given = {"encoder": "conv4", "epochs": 10, "batch_size": 64, **(base or {})}
        tree = {
            "name": "notes", "dataset": IMAGES, "seeds": [0, 1], "base": given,
            "space": space or {}, "objectives": {"it": objective, **(more or {})},
            "search": {"method": "qmc", "trials_per_objective": 4},
        }  # fmt: skip
        return load_tree(**tree | changes)

    return load


@pytest.mark.parametrize(
    ("objective", "base", "note"),
    [
        (SWAV, {"freeze_epochs": 10}, "freeze_epochs is 10 of 10 epochs: what it freezes"),
        (SWAV, {"freeze_epochs": 9}, None),
        (SWAV, {"swav_queue": 100, "swav_queue_start": 10}, "puts in 0 rows: it is not used"),
        (SWAV, {"swav_queue": 100, "swav_queue_start": 9}, None),
        (MOCO, {"num_negatives": 9001}, "num_negatives is 9,001, and a trial puts in 9,000 rows"),
        (MOCO, {"num_negatives": 9000}, None),
        (MOCO, {"num_negatives": 9001, "symmetric": True}, None),
        (NNCLR, {"support_size": 18001}, "support_size is 18,001"),
        (SIMCLR, {"encoder": "resnet18", "view_size": 96}, "stem is small, its default, made for"),
        (SIMCLR, {"encoder": "resnet18", "view_size": 96, "stem": "small"}, None),
        (SIMCLR, {"encoder": "resnet18", "view_size": 64}, None),
    ],
)
def test_what_is_hardly_meant_has_a_note(study, objective, base, note):
    objective = objective if objective is not SWAV else {**SWAV, "base": {"swav_queue": 0}}
    base = {"freeze_epochs": 1} | base if objective.get("framework") == "swav" else base
    own = {**objective, "base": {**objective.get("base", {}), **base}}
    notes = study(own).notes
    assert len(notes) == (note is not None), notes
    assert note is None or note in notes[0]


def test_a_note_names_its_objectives_unless_all_have_it(study):
    late = {**SWAV, "base": {"freeze_epochs": 10, "swav_queue": 0}}
    [note] = study(late, more={"other": SIMCLR}).notes
    assert note.startswith("'it': freeze_epochs")
    [note] = study(SIMCLR, more={"other": NNCLR | {"base": {"support_size": 64}}},
                   resources={"workers": 2}).notes  # fmt: skip
    assert note == "batch_size is that of all 2 workers together"


def test_a_log_range_of_numbers_near_each_other_is_all_but_linear(study):
    near = {"momentum": {"low": 0.9, "high": 0.9999, "log": True}}
    [note] = study({"framework": "byol", "loss": "cosine"}, space=near).notes
    assert note == "momentum: a log range from 0.9 to 0.9999 is all but linear, unlike a grid"
    assert study(SIMCLR, space={"tau": {"low": 0.1, "high": 0.2, "log": True}}).notes == ()


def test_what_others_mean_by_a_name_is_said_where_nobody_owns_it(study):
    with pytest.raises(StudyError, match=r"SGD is sgd_momentum"):
        study(SIMCLR, base={"momentum": 0.9})


def test_smaller_views_must_fit_the_encoder_too(study):
    fixed = {"encoder": "torchvision/vit_b_16", "view_size": 224}
    with pytest.raises(StudyError, match=r"images of 96 x 96 .* Set small_view_size"):
        study({**SIMCLR, "views": "multicrop"}, base=fixed)


@pytest.mark.parametrize(
    ("base", "note"),
    [
        ({"lr": 0.4}, "note: the largest learning rate of a trial is 0.1 (lr_rule linear)"),
        ({"lr": 0.4, "lr_rule": "sqrt"}, "is 0.2 (lr_rule sqrt)"),
        ({"lr": 0.4, "lr_rule": "none"}, None),
        ({"lr": 0.4, "batch_size": 256}, None),
    ],
)
def test_a_scaled_rate_is_said(study, base, note):
    notes = [each for each in plan_notes(study(SIMCLR, base=base)) if "learning rate" in each]
    assert len(notes) == (note is not None)
    assert note is None or notes[0].endswith(note)


@pytest.mark.parametrize(
    ("grace", "every", "looks"),
    [
        (
            1,
            1,
            "one in 3 at epoch 1, one in 3 at epoch 3, one in 3 at epoch 9, one in 3 at epoch 27",
        ),
        (3, 10, "one in 9 at epoch 10, one in 3 at epoch 30, one in 3 at epoch 90"),
        (10, 50, "one in 9 at epoch 50"),
    ],
)
def test_asha_says_where_it_decides(study, grace, every, looks):
    """A trial that is scored every 10 epochs reaches the rungs 3 and 9 at once."""
    notes = plan_notes(
        study(
            SIMCLR, base={"epochs": 100 if every > 1 else 81, "eval_every": every},
            space={"tau": {"low": 0.1, "high": 0.9}},
            search={"method": "tpe", "trials_per_objective": 4},
            scheduler={"name": "asha", "grace_epochs": grace},
        )
    )  # fmt: skip
    [note] = [each for each in notes if each.startswith("note: asha")]
    assert note == f"note: asha: of configurations {looks} goes on; seed 0 decides"
