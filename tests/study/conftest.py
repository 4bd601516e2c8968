"""A study that resolves, and what is refused of it."""

from functools import partial

import pytest

from clsweep.errors import StudyError
from clsweep.study.document import read_document
from clsweep.study.resolve import load_study
from clsweep.study.settings import apply_setting
from tests.planted import study_at

BASE = {"encoder": "conv4", "epochs": 2, "batch_size": 32}
ONE = {"seeds": [0], "base": BASE, "space": {}, "objectives": {"a": {}}}  # see `parts`
GAUSSIAN = {
    "dataset": {"name": "gaussian_mi"},
    "metric": {"name": "mi_estimate"},
    "seeds": [0],
    "base": {},
    "space": {"batch_size": {"choices": [64, 128]}, "mutual_information": {"choices": [4, 10]}},
    "objectives": {"a": {"framework": "mi_critic", "loss": "eqco"}},
}
SEARCHED = {
    "seeds": [3, 5],
    "base": {"encoder": "conv4", "epochs": 6, "batch_size": 32},
    "space": {"tau": {"low": 0.05, "high": 0.8, "log": True, "grid": [0.1, 0.2, 0.4]}},
    "objectives": {
        "infonce": {"framework": "simclr", "loss": "infonce"},
        "DCL-w 2": {
            "framework": "simclr",
            "loss": "dclw",
            "space": {"sigma": {"low": 0.1, "high": 2, "grid": [0.5, 1]}},
        },
        "untrained": {"framework": "simclr", "loss": "infonce", "base": {"epochs": 0}},
    },
}
LEVELS = {
    "dataset": {"val_fraction": 0.2},
    "factors": {
        "dataset": [
            "cifar10",
            {"name": "cifar100", "label": "v1.5", "root": "there", "base": {"lr": 0.1}},
        ],
        "encoder": ["conv4", {"name": "conv4", "label": "wide", "width": 16}],
    },
    "seeds": [0, 1],
    "base": {"epochs": 2, "batch_size": 64, "knn_k": 10, "lr": 0.2},
    "space": {"tau": {"choices": [0.1, 0.2]}},
    "objectives": {
        "simclr": {"framework": "simclr", "loss": "infonce"},
        "dcl": {"framework": "simclr", "loss": "dcl", "base": {"lr": 0.3}},
    },
    "contrasts": {"small": {"of": ["simclr", "dcl"], "at": {"tau": 0.1}}},
    "presets": {
        "one": {"factors": {"dataset": [{"name": "stl10", "root": "here", "image_size": None}]}},
    },
}
PLAIN = {"factors": None, "base": BASE, "dataset": {"name": "digits"}, "contrasts": {}}

FINAL = "evaluation={train_on: all, score_on: test}"


@pytest.fixture
def read(tmp_path, request):
    """Read a text, or the one that a file calls `TEXT`, as `study.yaml`, with settings over it."""

    def read_text(text=None, *settings, **options):
        path = tmp_path / "study.yaml"
        path.write_text(request.module.TEXT if text is None else text, encoding="utf-8")
        document = read_document(path, **options)
        for setting in settings:
            apply_setting(document, setting)
        return document

    return read_text


@pytest.fixture
def load_tree(tmp_path):
    """Load `study_tree` with changes, with settings or a preset over it."""

    def loaded(*settings, preset=None, **changes):
        path = study_at(tmp_path / "study.yaml", **changes)
        return load_study(path, settings=settings, preset=preset)

    return loaded


@pytest.fixture
def load(load_tree, request):
    """The same with the changes that a file calls `TREE`."""
    return partial(load_tree, **getattr(request.module, "TREE", {}))


@pytest.fixture
def study(load):
    """The same with a method, a number of configurations and settings."""

    def searched(method="grid", num_configs=None, *settings):
        budget = {} if num_configs is None else {"trials_per_objective": num_configs}
        return load(*settings, search={"method": method, **budget})

    return searched


def parts(text):
    """The one objective of `ONE`, written as `simclr dcl views=core`, as a setting."""
    framework, loss, *others = text.split()
    others = [other.replace("=", ": ") for other in others]
    return f"objectives.a={{{', '.join([f'framework: {framework}', f'loss: {loss}', *others])}}}"


def refusals(load, *settings, **changes):
    with pytest.raises(StudyError) as caught:
        load(*settings, **changes)
    return str(caught.value).splitlines()
