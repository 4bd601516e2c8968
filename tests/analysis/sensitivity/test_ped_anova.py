"""PED-ANOVA: against Optuna's, and its null line under pure noise."""

import numpy as np
import pytest

from clsweep.analysis.sensitivity import ped_anova as top
from clsweep.analysis.sensitivity import surrogate
from tests.analysis.truths import sweep

optuna = pytest.importorskip("optuna")


def study_of(at, scores):
    """The same trials in Optuna."""
    ranges = {
        name: optuna.distributions.CategoricalDistribution(sorted(set(values)))
        if values.dtype.kind == "U"
        else optuna.distributions.FloatDistribution(values.min(), values.max(), log=name == "tau")
        for name, values in at.items()
    }
    study = optuna.create_study(direction="maximize")
    for row, score in enumerate(scores):
        params = {name: values[row].item() for name, values in at.items()}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=ranges, value=score))
    return study


def test_against_optuna():
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    rng = np.random.default_rng(0)
    at = {
        "x": 1 + rng.random(150),
        "tau": 10 ** rng.uniform(-2, 0, 150),
        "loss": rng.choice(["a", "b", "c"], 150),
    }
    scores = -((at["x"] - 1.3) ** 2) * 3 + np.log10(at["tau"]) * 0.2 + 0.2 * (at["loss"] == "a")
    importances = optuna.importance.PedAnovaImportanceEvaluator().evaluate(study_of(at, scores))
    total = sum(importances.values())
    swept = sweep(scores[:, None], at, sampler="random")
    space, inputs = surrogate.read_space(swept)
    own, null = top.ped_anova(space, inputs, swept.means, confidence=0.95, rng=rng)
    np.testing.assert_allclose(own, [importances[name] / total for name in at], rtol=1e-6)
    assert ((null > 1 / 3) & (null < 1)).all()


@pytest.mark.slow
def test_pure_noise_stays_below_the_null_line():
    rng, above, largest = np.random.default_rng(1), [], []
    for _ in range(40):
        at = {name: rng.random(100) for name in "abc"}
        swept = sweep(rng.normal(size=(100, 1)), at, sampler="random")
        own, null = top.ped_anova(
            *surrogate.read_space(swept), swept.means, confidence=0.95, rng=rng
        )
        above.append(own > null)
        largest.append(own.max())
    assert np.mean(above) < 0.1
    assert 0.5 < np.mean(largest) < 0.7  # what makes the null line necessary


def test_too_few_to_tell():
    rng = np.random.default_rng(2)
    swept = sweep(
        rng.normal(size=(20, 1)), {"a": rng.random(20), "b": rng.random(20)}, sampler="random"
    )
    own, null = top.ped_anova(*surrogate.read_space(swept), swept.means, confidence=0.95, rng=rng)
    assert np.isnan([*own, *null]).all()
