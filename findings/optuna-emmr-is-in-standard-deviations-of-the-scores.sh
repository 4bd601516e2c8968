#!/usr/bin/env bash
# optuna 5.0.0: EMMREvaluator gives standard deviations of the scores, RegretBoundEvaluator scores.
#
# Guess:     the improvement evaluators of optuna.terminator speak of the objective's own units, so
#            that any of them may be set beside StaticErrorEvaluator(the noise of a score).
# Behaviour: both fit a Gaussian process to standardised scores. RegretBoundEvaluator multiplies its
#            bound by the standard deviation of the scores again; EMMREvaluator does not. With
#            scores as a fraction (0.7) or in percent (70) the first gives 0.012 and 1.2, the second
#            0.117 and 0.117. Beside a constant error the same search then ends in one of the two
#            units only.
# Where it meets this field: top-1 accuracy is logged as a fraction by some tools and in percent by
#            others, and the noise over seeds is known in those units.
# Source:    optuna/terminator/improvement/emmr.py and evaluator.py (`evaluate`). Way out:
#            MedianErrorEvaluator, which is paired with EMMREvaluator and has its units; or an error
#            divided by the standard deviation of the scores so far.
# Seen:      RegretBoundEvaluator: 0.01203 and 1.203, ends in both units. EMMREvaluator: 0.1170 and
#            0.1170; goes on where the error is 0.02 of 1, ends where it is 2 of 100.
#
# Installs optuna and torch (about 6 GB) into a temporary folder; fails if the behaviour changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check \
    optuna==5.0.0 torch==2.15.0 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" -W ignore - <<'PY'
import math

import optuna
from optuna.terminator import (
    EMMREvaluator,
    RegretBoundEvaluator,
    StaticErrorEvaluator,
    Terminator,
)

optuna.logging.set_verbosity(optuna.logging.ERROR)
print("optuna", optuna.__version__)
assert optuna.__version__ == "5.0.0"


def searched(unit):
    """25 random trials of one hill: its top is 0.7 of the unit."""

    def score(trial):
        lr, tau = trial.suggest_float("lr", 0, 1), trial.suggest_float("tau", 0, 1)
        return unit * (0.7 - (lr - 0.4) ** 2 - 0.1 * abs(tau - 0.6))

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=3))
    study.optimize(score, n_trials=25)
    return study


def ends(evaluator, unit):
    error = StaticErrorEvaluator(0.02 * unit)
    return Terminator(evaluator(seed=0), error, min_n_trials=20).should_terminate(searched(unit))


ratios = {}
for evaluator in (RegretBoundEvaluator, EMMREvaluator):
    name, values = evaluator.__name__, []
    for unit in (1, 100):
        study = searched(unit)
        values.append(evaluator(seed=0).evaluate(study.trials, study.direction))
    ratios[name] = values[1] / values[0]
    print(f"{name}: {values[0]:.4g} of 1, {values[1]:.4g} of 100; ends", ends(evaluator, 1),
          "and", ends(evaluator, 100))
assert math.isclose(ratios["RegretBoundEvaluator"], 100, rel_tol=1e-3), ratios
assert math.isclose(ratios["EMMREvaluator"], 1, rel_tol=1e-3), ratios
assert ends(RegretBoundEvaluator, 1) and ends(RegretBoundEvaluator, 100)
assert not ends(EMMREvaluator, 1) and ends(EMMREvaluator, 100)
print("as described")
PY
