"""Planted sweeps: functions of the unit cube whose shares are known, and trials of them."""

import numpy as np
import pandas as pd

from clsweep.analysis.read_sweeps import read_sweeps


def ishigami(u):
    """a = 7, b = 0.1 on [-pi, pi]^3: first 0.3139, 0.4424, 0; total 0.5576, 0.4424, 0.2437;
    variance 13.84.
    """
    x = (2 * u - 1) * np.pi
    return np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])


def additive(u):
    """4 u0 + 2 u1: variances 16 / 12 and 4 / 12, so shares 0.8 and 0.2; every other parameter is
    inert.
    """
    return 4 * u[:, 0] + 2 * u[:, 1]


def planted(function, u, *, num_seeds=2, noise=0.1, rng, sampler="random", bounds=None, **columns):
    """A sweep over x0, x1, ... = 1 + u (n, d), or over `columns` instead of some of them."""
    num = len(u)
    at = {f"x{p}": 1 + u[:, p] for p in range(u.shape[1])} | columns
    scores = function(u)[:, None] + noise * rng.normal(size=(num, num_seeds))
    return sweep(scores, at, sampler=sampler, bounds=bounds)


def trials_of(scores, *, objective="dcl", sampler="grid", status=None, seeds=None, **columns):
    """Trials of scores (n, S), NaN or None = failed; columns: (n,) or (n, S); seeds: (S,)."""
    scores = np.asarray(scores, dtype=float)
    num, num_seeds = scores.shape
    rows = {
        name: np.broadcast_to(np.asarray(values).reshape(num, -1), scores.shape).ravel()
        for name, values in columns.items()
    }
    rows |= {
        "config": np.repeat(np.arange(num), num_seeds),
        "seed": np.tile(np.arange(num_seeds) if seeds is None else seeds, num),
        "acc": scores.ravel(),
        "status": np.where(np.isnan(scores.ravel()), "failed", "finished"),
    }
    trials = pd.DataFrame(rows).assign(objective=objective, sampler=sampler)
    return trials if status is None else trials.assign(status=status)


def trials_by(tables, **given):
    """`trials_of` objectives from {name: scores (n, S)}; tau is the number of a setting."""
    frames = [
        trials_of(x, objective=name, **{"tau": range(len(x)), **given})
        for name, x in tables.items()
    ]
    return pd.concat(frames, ignore_index=True)


def sweep(scores, at, *, sampler="grid", status=None, failed_as="left out", **options):
    """A sweep of scores (n, S), NaN = failed (and left out), at the settings name -> (n,)."""
    trials = trials_of(scores, sampler=sampler, status=status, **at)
    return read_sweeps(trials, metric="acc", params=list(at), failed_as=failed_as, **options)[0]


def sweep_of(scores, *, mode="max", planned=None, scales=None, chance=None, **given):
    """`sweep` of its own options and of the columns beside them."""
    own = given.keys() & {"sampler", "status", "failed_as"}
    options = {name: given.pop(name) for name in own} | {"mode": mode, "chance": chance}
    return sweep(scores, given, planned=planned and {"dcl": planned}, scales=scales, **options)


def grid(*sizes):
    """Settings a, b, ... of a full grid with values 0, 1, ..."""
    cells = np.indices(sizes).reshape(len(sizes), -1)
    return dict(zip("abcdef", cells, strict=False))


def least_squares(table):
    """m, b (of sum zero), s_e^2, its degrees of freedom, and (X'X)^-1 of m, by dummy variables."""
    row, seed = np.nonzero(np.isfinite(table))
    num, seeds = table.shape
    # the last effect is minus the sum of the others
    of_seeds = np.vstack([np.eye(seeds - 1), -np.ones(seeds - 1)])
    design = np.hstack([np.eye(num)[row], of_seeds[seed]])
    fit = np.linalg.lstsq(design, table[row, seed])[0]
    squares = np.square(table[row, seed] - design @ fit).sum()
    freedom = len(row) - num - seeds + 1
    inverse = np.linalg.inv(design.T @ design)[:num, :num]
    return fit[:num], of_seeds @ fit[num:], squares / freedom, freedom, inverse
