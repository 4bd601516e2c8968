"""Seed noise of a table of scores: one variance where it is even, one for each configuration where
it is not.

Shape legend: n = configurations, S_i = scores of one of them, d_i = S_i - 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]

LEVEL = 0.1  # significance at which the noise is seen to be uneven
NUM_TABLES = 999  # drawn for that test
CELLS = 1_000_000  # variances that they have together, at most
MANY = 5_000  # configurations above which their variances show by themselves how even they are
OUTLIER = 0.05  # significance at which a configuration's own variance is larger than the others'
PRIOR = 3.0  # degrees of freedom that it then takes from theirs at most
FEWEST = 3  # configurations with repeats, of which one may stand out
FLOOR = 0.01  # of the pooled variance: equal scores, as of a count, do not stand for no noise
EVEN = 100.0  # degrees of freedom of a prior that leaves nothing to a configuration's own variance


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The noise of the scores of each configuration, normal with variance[i], which is known as
    from `freedom[i]` degrees of freedom.

    Attributes:
        pooled: sum_is (x_is - m_i)^2 / sum_i d_i; NaN without a repeat.
        variance, freedom: (n,); NaN and 0 without a repeat.
        is_even: whether all rest on the pooled variance.
    """

    pooled: float
    variance: Array
    freedom: Array
    is_even: bool

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """(size, n) standard deviations as they may be, given what was seen:
        sqrt(freedom variance / chi2(freedom)); of even noise the same for all configurations.
        """
        if self.is_even:
            one = rng.chisquare(self.freedom[0], (size, 1))
            return np.broadcast_to(
                np.sqrt(self.freedom[0] * self.pooled / one), (size, len(self.variance))
            )
        chi2 = rng.chisquare(self.freedom, (size, len(self.variance)))
        return np.sqrt(self.freedom * self.variance / chi2)


def noise_of(values: Array) -> Noise:
    """The noise of a table (n, S), NaN = no score, of which each row has a score.

    Where a test sees that the noise is uneven (`unevenness`), a configuration's variance is
    moderated (Smyth 2004): as many degrees of freedom of a common prior join its own as the
    scatter of the variances allows. Where its own stands out (an F test against the others), that
    stands, with little help of the prior:

        variance_i = (d_0 s_0^2 + d_i s_i^2) / (d_0 + d_i),  freedom_i = min(d_0, n) + d_i;
        if it stands out:  max(s_i^2, that),  min(d_0, 3) + d_i
    """
    present = np.isfinite(values)
    counts = present.sum(axis=1)
    means = np.nansum(values, axis=1) / counts
    freedom = counts - 1
    squares = np.nansum(np.square(values - means[:, None]), axis=1)
    total, num = int(freedom.sum()), len(values)
    if not total:
        none = np.full(num, np.nan)
        return Noise(pooled=np.nan, variance=none, freedom=np.zeros(num), is_even=True)
    pooled = float(squares.sum() / total)
    even = Noise(
        pooled=pooled,
        variance=np.full(num, pooled),
        freedom=np.full(num, float(total)),
        is_even=True,
    )
    repeated = freedom > 0
    if not pooled > 0 or repeated.sum() < FEWEST:
        return even
    own = squares / pooled
    d, ratios = freedom[repeated].astype(float), own[repeated] / freedom[repeated]
    if unevenness(ratios, d, means[repeated]) > LEVEL:
        return even
    prior, location = _prior(np.maximum(ratios, FLOOR), d)
    if num > MANY and prior >= EVEN:
        return even
    return _uneven(pooled, own, freedom, prior, location)


def _uneven(
    pooled: float, own: Array, freedom: NDArray[np.int64], prior: float, location: float
) -> Noise:
    """The moderated variances; `own` are the sums of squares in units of `pooled`."""
    total, num = freedom.sum(), len(freedom)
    moderated = (prior * location + own) / (prior + freedom)
    alone, others = own / np.maximum(freedom, 1), total - freedom
    ratio = alone * others / np.maximum(total - own, FLOOR)
    stands_out = special.fdtrc(np.maximum(freedom, 1), np.maximum(others, 1), ratio) <= OUTLIER
    return Noise(
        pooled=pooled,
        variance=pooled * np.where(stands_out, np.maximum(moderated, alone), moderated),
        freedom=np.asarray(freedom + np.minimum(prior, np.where(stands_out, PRIOR, num)), float),
        is_even=False,
    )


def unevenness(ratios: Array, freedom: Array, levels: Array) -> float:
    """p-value of even noise, against any unevenness and against more noise where the level is low.

    The statistics are Bartlett's,  M = -sum_i d_i log r_i,  r_i = a row's variance over the pooled
    one, and the mean r_i of the lowest tenth, one row at least; p is twice the smaller of both, by
    tables drawn under even normal noise. 0 for more than `MANY` rows.

    Args:
        ratios, freedom, levels: (n,) r_i, d_i > 0, mean scores.
    """
    if len(ratios) > MANY:
        return 0.0
    rng = np.random.default_rng(0)
    num_tables = min(NUM_TABLES, CELLS // len(freedom))
    drawn = rng.chisquare(freedom, (num_tables, len(freedom))) / freedom
    drawn /= (drawn @ freedom / freedom.sum())[:, None]
    tables = np.concatenate([ratios[None], drawn])
    spread = -np.log(np.maximum(tables, FLOOR)) @ freedom
    lowest = levels.argsort()[: max(1, len(levels) // 10)]
    low = tables[:, lowest] @ freedom[lowest]
    ps = [float((stat >= stat[0]).mean()) for stat in (spread, low)]
    return min(1.0, 2.0 * min(ps))


def _prior(variances: Array, freedom: Array) -> tuple[float, float]:
    """Degrees of freedom d_0 and location s_0^2 of the scaled inverse chi2 that the variances come
    from, by the moments of their logarithms (Smyth 2004, section 6.2).
    """
    logs = np.log(variances) - special.digamma(freedom / 2) + np.log(freedom / 2)
    scatter = float(logs.var(ddof=1) - special.polygamma(1, freedom / 2).mean())
    if scatter <= special.polygamma(1, EVEN / 2):
        return EVEN, float(np.exp(logs.mean()))
    prior = 2.0 * _inverse_trigamma(scatter)
    return prior, float(np.exp(logs.mean() + special.digamma(prior / 2) - np.log(prior / 2)))


def _inverse_trigamma(value: float) -> float:
    """x with trigamma(x) = value > 0, by Newton's method on 1 / trigamma."""
    x = 0.5 + 1.0 / value
    for _ in range(20):
        tri = float(special.polygamma(1, x))
        x += tri * (1.0 - tri / value) / float(special.polygamma(2, x))
    return x
