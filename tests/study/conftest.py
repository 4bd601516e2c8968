"""A study that resolves, and what is refused of it."""

from functools import partial

import pytest

from clsweep.errors import StudyError
from clsweep.study.resolve import load_study
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
FINAL = "evaluation={train_on: all, score_on: test}"


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


def parts(text):
    """The one objective of `ONE`, written as `simclr dcl views=core`, as a setting."""
    framework, loss, *others = text.split()
    others = [other.replace("=", ": ") for other in others]
    return f"objectives.a={{{', '.join([f'framework: {framework}', f'loss: {loss}', *others])}}}"


def refusals(load, *settings, **changes):
    with pytest.raises(StudyError) as caught:
        load(*settings, **changes)
    return str(caught.value).splitlines()
