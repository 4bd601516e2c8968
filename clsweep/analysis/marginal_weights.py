"""Weights of the configurations of a grid in the levels along one hyperparameter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from clsweep.analysis.array_types import Array, Codes
from clsweep.analysis.nested import others_of
from clsweep.analysis.noise import Parts
from clsweep.analysis.reasons import Note, Reason, note
from clsweep.analysis.sweep import Sweep


@dataclass(frozen=True, eq=False)
class MarginalWeights:
    """Weights of the configurations with a score (n) in levels (values).

    Attributes:
        table: (values, n) the weights.
        balanced: whether the levels compare.
        notes: of what is missing.
        even: (values, n) those of a whole grid.
        lost: (values,) sum of the squared weights that missing configurations had there.
        interaction, freedom: mean square of what the additive model leaves of the means, and its
            degrees of freedom; 0 of a whole grid.
    """

    table: sparse.csr_array
    balanced: bool = True
    notes: tuple[Note, ...] = ()
    even: sparse.csr_array | None = None
    lost: Array | None = None
    interaction: float = 0.0
    freedom: float = 0.0

    def parts(self, sweep: Sweep, of_levels: Array) -> Parts:
        """The parts of the variance of a weighted sum of levels: those of the noise, and what the
        missing configurations may be off the additive model.
        """
        weights = of_levels @ self.table
        parts = sweep.noise.parts(weights)
        if self.even is None or self.lost is None:
            return parts
        off = float(np.square(weights - of_levels @ self.even).sum())
        off += float(np.square(of_levels) @ self.lost)
        return [*parts, (self.interaction * off, self.freedom)]


def marginal_weights(sweep: Sweep, param: str, levels: Codes, num: int) -> MarginalWeights:
    """Those of the `num` values of a hyperparameter, of which `levels` says each configuration's.

    Each value has the mean of its configurations. Where some are missing it has the least-squares
    mean of  m = a_value + b_settings of the others  (Searle, Speed and Milliken 1980): as if every
    value had been tried at all of these settings. That compares unless values share none of them.
    What the missing ones are off that model is taken as random as it is for the others.
    """
    at, every = levels[sweep.alive], np.arange(int(sweep.alive.sum()))
    sizes = np.bincount(at, minlength=num)
    plain = sparse.csr_array((1.0 / sizes[at], (at, every)), shape=(num, len(at)))
    others = others_of(sweep, param)
    if not sweep.alive.any() or not others:
        return MarginalWeights(plain)
    groups = sweep.settings[sweep.alive].groupby(others, dropna=False, sort=False)
    blocks = groups.ngroup().to_numpy()
    cells = np.zeros((int(blocks.max()) + 1, num))
    np.add.at(cells, (blocks, at), 1.0)
    has_score = sizes > 0
    if (cells[:, has_score] > 0).all():
        return MarginalWeights(plain)
    in_block = cells.sum(axis=1)
    shares = cells / in_block[:, None]
    design = np.diag(cells.sum(axis=0)) - cells.T @ shares
    if np.linalg.matrix_rank(design, hermitian=True) < has_score.sum() - 1:
        return MarginalWeights(plain, balanced=False, notes=(note(Reason.UNBALANCED, param=param),))
    own = np.zeros((num, len(at)))
    own[at, every] = 1.0
    effects = np.linalg.pinv(design, hermitian=True) @ (own - shares[blocks].T)
    level = 1.0 / (len(cells) * in_block[blocks]) - shares.mean(axis=0) @ effects
    weights = np.where(has_score[:, None], effects + level, 0.0)
    left = sweep.means[sweep.alive] - (effects @ sweep.means[sweep.alive])[at]
    left -= (np.bincount(blocks, left) / in_block)[blocks]
    freedom = float(len(at) - len(cells) - has_score.sum() + 1)
    missing = int((cells[:, has_score] == 0).sum())
    return MarginalWeights(
        sparse.csr_array(weights),
        notes=(note(Reason.LEAST_SQUARES, param=param, lost=missing),),
        even=sparse.csr_array(own / len(cells)),
        lost=(cells == 0).sum(axis=0) / len(cells) ** 2,
        interaction=float(np.square(left).sum()) / max(freedom, 1.0),
        freedom=max(freedom, 1.0),
    )
