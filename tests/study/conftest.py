"""A study that resolves, and what is refused of it."""

import pytest

from clsweep.errors import StudyError
from clsweep.study.resolve import load_study

STUDY = """\
name: resolve
dataset: {name: cifar10}
seeds: [0]
base: {encoder: conv4, epochs: 20, lr: 0.5}
space:
  tau: {low: 0.05, high: 1.0, log: true, grid: [0.1, 0.2]}
  sigma: {grid: [0.5, 1.0]}
objectives:
  infonce: {framework: simclr, loss: infonce}
  dclw: {framework: simclr, loss: dclw}
search: {method: grid}
presets:
  quick: {base: {epochs: 2, lr: 1e-2}, seeds: [4, 5]}
"""


@pytest.fixture
def load(tmp_path):
    """Load `STUDY` with settings, its objectives by name."""

    def load_text(*settings, text=STUDY, preset=None):
        path = tmp_path / "study.yaml"
        path.write_text(text)
        return load_study(path, settings=settings, preset=preset)

    return load_text


def refusals(load, *settings, text=STUDY):
    with pytest.raises(StudyError) as caught:
        load(*settings, text=text)
    return str(caught.value).splitlines()


GAUSSIAN = """\
name: toy
dataset: {name: gaussian_mi}
metric: {name: mi_estimate}
seeds: [0]
space: {batch_size: {choices: [64, 128]}, mutual_information: {choices: [4, 10]}}
objectives:
  eqco: {framework: mi_critic, loss: eqco}
search: {method: grid}
"""


FINAL = "evaluation={train_on: all, score_on: test}"
