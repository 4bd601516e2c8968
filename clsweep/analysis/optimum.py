"""The best value of a hyperparameter at each level of another one, and how it moves.

At level k of y the means are a curve in x, on both axes, by least squares

    f_k(x) = a_k + b_k x + c_k x^2 + d x^3,   t_k(x) = f_k'(x) / its standard error,

with one d for all. The best x may lie where |t_k| is small (Fieller 1954; Box and Hunter 1954) and
f_k is not surely below its largest value. It may lie at or beyond an end of the range where the
slope does not surely turn back there. For a line x_k = a + s (y_k - mean y) of best values,
Q(a, s) = sum_k t_k(x_k)^2; beyond an end only what speaks against it counts. The interval of the
shift s is by the profile min_a Q, against its least value, with F(1, df) (Bates and Watts 1988,
Nonlinear Regression Analysis, section 6.1).

A grid is fitted at each level by itself, where its other hyperparameters are averaged over. A
sample is fitted as a whole where its levels are too small, with b and c linear in y. Where the
curve does not fit a sample, the values furthest from the best are left out, until it does.

A grid that the curve does not fit, by the F test for lack of fit against the noise of the seeds, is
taken to have one peak and no form: it rises up to the values before the best x, and falls after
it. Against an x is then t of the best mean over that of the nearer value between them, so the best
x lies between the neighbours of values that may be the best one (Hsu 1984).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from clsweep.analysis import CONFIDENCE
from clsweep.analysis.array_types import Array, Codes
from clsweep.analysis.nested import conditional
from clsweep.analysis.reasons import Note, Reason, note
from clsweep.analysis.regions import rounded
from clsweep.analysis.sweep import Sweep
from clsweep.display.numbers import setting_column

FEWEST_VALUES = 3  # values of x at a level, which a parabola takes
FIT_LEVEL = 0.1  # of the test for lack of fit; from DOUBT on a closer look widens no interval
DOUBT = 0.5
LAW_LEVEL = 0.01  # of the test that the best values lie on one line
OFFSETS = tuple(np.linspace(-3.0, 3.0, 9).tolist())  # errors of d that evidence is looked for at
PLACES = 401  # of x that an interval is searched at
_STEPS = 41  # of the shift in a first search, and of a in a closer one
_FIRST_STEPS = 201  # of a in a first one


@dataclass(frozen=True, eq=False)
class Curves:
    """Evidence against each x as the best one, at K levels.

    Attributes:
        at, labels: (K,) the levels on their axis, and as text.
        x: (K, P) places from one end of the fitted values to the other.
        t: (K, P) slopes there over their errors, or what the curve is below its best over that,
            where that is more; ends: (2, K) the same of all beyond the low and the high end.
        best: (K,) the best x of each curve.
        level: (K, P) the curve there.
        freedom: of the noise.
        closer: where the curve may not fit all values, the same of fewer.
        fits: whether it has the form of a parabola or a cubic.
        given: how many errors each of some values of d is from the estimate, with t and ends for
            it; the levels are independent given d.
    """

    at: Array
    labels: tuple[str, ...]
    x: Array
    t: Array
    ends: Array
    best: Array
    level: Array
    freedom: float
    closer: Curves | None = None
    fits: bool = True
    given: tuple[tuple[float, Array, Array], ...] = ()

    def evidence(self, x: Array) -> Array:
        """(A,) Q of best values x (K, A)."""
        first, step = self.x[:, :1], np.diff(self.x[:, :2], axis=1)
        place = (x - first) / step
        at = np.clip(place.astype(int), 0, PLACES - 2)
        share, rows = np.clip(place - at, 0.0, 1.0), np.arange(len(x))[:, None]
        least = np.full(x.shape[1], np.inf)
        for offset, t, (low, high) in self.given or ((0.0, self.t, self.ends),):
            t = t[rows, at] * (1.0 - share) + t[rows, at + 1] * share
            t = np.where(place < 0, low[:, None], np.where(place > PLACES - 1, high[:, None], t))
            least = np.minimum(least, offset**2 + np.einsum("ka,ka->a", t, t))
        return least

    @property
    def intervals(self) -> Array:
        """(2, K) ends of where the best x may lie, infinite where it may lie beyond."""
        reach = special.stdtrit(self.freedom, (1.0 + CONFIDENCE) / 2.0)
        inside, (below, above) = np.abs(self.t) <= reach, np.abs(self.ends) <= reach
        low = np.where(inside, self.x, self.x[:, -1:]).min(axis=1)
        high = np.where(inside, self.x, self.x[:, :1]).max(axis=1)
        lost = ~inside.any(axis=1) & ~below & ~above  # narrower than the places are apart
        low, high = np.where(lost, self.best, low), np.where(lost, self.best, high)
        low, high = np.where(below, -np.inf, low), np.where(above, np.inf, high)
        more = self.closer.intervals if self.closer else np.stack([low, high])
        return np.stack([np.minimum(low, more[0]), np.maximum(high, more[1])])


def _curves(
    at: Array, labels: Sequence[str], low: Array, high: Array, coefs: Array, covariances: Array,
    middle: Array, centre: float, freedom: float,
) -> Curves:  # fmt: skip
    """Of the coefficients (K, q) of x, x^2 and x^3, where those are, of x less the centre, and of
    the curves (K,) there.
    """
    x = np.linspace(low, high, PLACES, axis=1)
    powers = np.arange(1, coefs.shape[1] + 1)
    slopes, values = powers * x[..., None] ** (powers - 1), x[..., None] ** powers
    level = np.einsum("kpq,kq->kp", values, coefs)
    rows, top = np.arange(len(at)), level.argmax(axis=1)

    def over_error(takes: Array) -> Array:
        error = np.einsum("kpq,kqr,kpr->kp", takes, covariances, takes)
        return np.asarray(
            np.einsum("kpq,kq->kp", takes, coefs) / np.sqrt(np.maximum(error, 1e-300))
        )

    t, lack = over_error(slopes), over_error(values[rows, top][:, None] - values)
    ends = np.stack([np.maximum(t[:, 0], 0.0), np.minimum(t[:, -1], 0.0)])
    ends = np.stack([np.maximum(ends[0], lack[:, 0]), np.minimum(ends[1], -lack[:, -1])])
    side = np.where(x < x[rows, top][:, None], 1.0, -1.0)  # the slope there leads to the best
    t = np.where(np.abs(t) >= lack, t, side * lack)
    best, level = centre + x[rows, top], middle[:, None] + level
    return Curves(at, tuple(labels), centre + x, t, ends, best, level, freedom)


@dataclass(frozen=True)
class Shift:
    """By how much the best x moves where y goes up by 1 on its axis.

    Attributes:
        low, high: its interval, infinite where the best values lie beyond the ends.
        start: the best x at the mean of the levels.
        p: of no shift; of categories, of the same best value at all.
        is_line: whether the best values may lie on one line.
    """

    estimate: float
    low: float
    high: float
    start: float
    p: float
    is_line: bool


def shift_of(curves: Curves) -> Shift:
    """The shift along the levels."""
    y = curves.at - curves.at.mean()
    width = float(np.ptp(curves.x))
    steepest = 2.0 * width / float(np.ptp(y))

    def fitted(shift: float) -> tuple[float, float]:
        ends, least = (curves.x.min() - 1.5 * width, curves.x.max() + 1.5 * width), np.inf
        for steps in (_FIRST_STEPS, _STEPS, _STEPS):
            a = np.linspace(*ends, steps)
            q = curves.evidence(a + shift * y[:, None])
            place, step = float(a[_middle_of_least(q)]), 2.0 * (a[1] - a[0])
            least, ends = min(least, float(q.min())), (place - step, place + step)
        return least, place

    def profile(shift: float) -> float:
        return fitted(shift)[0]

    from scipy import optimize  # takes 0.15 s of every command that has statistics

    tried = np.linspace(-steepest, steepest, _STEPS)
    values = np.array([profile(shift) for shift in tried])
    near = _middle_of_least(values)
    around = tuple(tried[np.clip([near - 1, near + 1], 0, _STEPS - 1)])
    fine = optimize.minimize_scalar(
        profile, bounds=around, method="bounded", options={"xatol": 1e-6}
    )
    best, least = min([(float(fine.x), float(fine.fun)), (float(tried[near]), float(values[near]))],
                      key=lambda each: each[1])  # fmt: skip
    freedom, scale, left = curves.freedom, 1.0, len(y) - 2
    is_line = not left or float(special.fdtrc(left, freedom, least / left)) >= LAW_LEVEL
    if not is_line:  # as much wider as the line fits badly (Birge 1932)
        freedom, scale = float(left), least / left
    most = least + scale * float(special.stdtrit(freedom, (1.0 + CONFIDENCE) / 2.0)) ** 2
    ends = []
    for sign, last in ((-1, 0), (1, _STEPS - 1)):
        inside = [shift for shift, q in zip(tried, values, strict=True) if q <= most]
        start = sign * max([sign * best, *(sign * shift for shift in inside)])
        beyond = [shift for shift in tried if sign * shift > sign * start]
        if values[last] <= most or not beyond:
            ends.append(sign * np.inf)
            continue
        stop = min(beyond, key=lambda shift: sign * shift)
        ends.append(float(optimize.brentq(lambda s: profile(s) - most, start, stop, xtol=1e-5)))
    lead = max(0.0, profile(0.0) - least) / scale
    low, high = ends
    start = fitted(best)[1]
    return Shift(best, low, high, start, float(special.fdtrc(1.0, freedom, lead)), is_line)


def _middle_of_least(values: Array) -> int:
    """The index of the smallest value, of several equal ones that in the middle."""
    least = np.flatnonzero(values <= values.min())
    return int(least[len(least) // 2])


def p_of_one_best(curves: Curves) -> float:
    """P-value of one best value at all levels, which need no order."""
    x = np.linspace(curves.x.min(), curves.x.max(), PLACES)
    least = float(curves.evidence(np.tile(x, (len(curves.at), 1))).min())
    return float(special.fdtrc(len(curves.at) - 1, curves.freedom, least / (len(curves.at) - 1)))


@lru_cache(256)
def curves_of(whole: Sweep, of: str, by: str) -> Curves | Note:
    """The parabolas of `of` at the levels of `by`, or why there are none; failed trials are left
    out.
    """
    sweep = conditional(conditional(whole.measured, of), by)
    is_named = sweep.scales[by] == "category"
    if why := sweep.no_score or sweep.seeds_apart:
        return why
    lacking = note(Reason.NO_CURVE, param=of, by=by, least=FEWEST_VALUES)
    if not {of, by} <= {*sweep.params}:  # one of two that are nested, which varies nowhere with it
        return lacking
    x = sweep.axis(of)
    known = sweep.alive & np.isfinite(x)
    if not is_named:
        known &= np.isfinite(sweep.axis(by))
    if known.sum() <= FEWEST_VALUES:
        return lacking
    used = sweep.at(known)
    fit = _Fit.of(used, of, by)
    if fit is None or len(fit.at) < 2:
        return lacking
    return fit.curves()


@dataclass(eq=False)
class _Fit:
    """Least squares of the means (n,), each weighted by its number of scores (n,)."""

    sweep: Sweep
    x: Array
    codes: Codes  # (n,) level of each configuration, or none where b and c are linear in y
    y: Array
    at: Array  # (K,) levels
    labels: tuple[str, ...]
    others: Array  # (n, q) columns of the other hyperparameters
    is_smooth: bool

    @classmethod
    def of(cls, sweep: Sweep, of: str, by: str) -> _Fit | None:
        """The levels that have values enough; of a sample that is too small for that, two."""
        texts = np.array(setting_column(sweep.settings[by].tolist()))
        is_named = sweep.scales[by] == "category"
        y = np.zeros(len(texts)) if is_named else sweep.axis(by)
        x = rounded(sweep.axis(of))
        labels = list(dict.fromkeys(texts[y.argsort(kind="stable")]))
        wide = [each for each in labels if len(np.unique(x[texts == each])) >= FEWEST_VALUES]
        rows = np.isin(texts, wide)
        # A parabola at each level, those of the others, and as many again to see the noise by.
        others = _others(sweep, of, by)
        needed = 2 * (3 * len(wide) + others.shape[1])
        if sweep.samplers == ("grid",) or (len(wide) > 1 and rows.sum() >= max(needed, len(x) / 2)):
            codes = np.array([wide.index(each) if each in wide else -1 for each in texts])
            at = np.array([y[codes == k].mean() for k in range(len(wide))])
            at = np.arange(len(wide), dtype=float) if is_named else at
            own, used = others[rows], sweep.at(rows)
            return cls(used, x[rows], codes[rows], y[rows], at, tuple(wide), own, False)
        if is_named or len(np.unique(y)) < 2 or len(x) < 2 * (9 + others.shape[1]):
            return None
        at = y.mean() + np.array([-1.0, 1.0]) * y.std()  # whose slopes are as good as independent
        shown = np.exp2(at) if sweep.scales[by] == "log" else at
        labels = setting_column([float(f"{each:.3g}") for each in shown])
        return cls(sweep, x, np.zeros(len(x), np.int64), y, at, tuple(labels), others, True)

    def curves(self) -> Curves | Note:
        """The parabolas of the values that one fits, or what a grid shows without."""
        used, is_narrowed = np.ones(len(self.x), dtype=bool), False
        while True:
            curves, p = self._fitted(used)
            narrower = None if isinstance(curves, Note) else self._narrowed(used, curves)
            if isinstance(curves, Note) or narrower is None:
                return curves
            if p < FIT_LEVEL and self.sweep.samplers == ("grid",) and self.sweep.noise.pooled > 0:
                return self._of_one_peak(curves)
            if p >= FIT_LEVEL:
                closer = self._fitted(narrower)[0] if is_narrowed or p < DOUBT else None
                return replace(curves, closer=closer) if isinstance(closer, Curves) else curves
            used, is_narrowed = narrower, True

    def _of_one_peak(self, curves: Curves) -> Curves:
        """The evidence of the means of each value by themselves, of a grid."""
        sweep, weights = self.sweep, np.sqrt(self.sweep.counts)
        keys = np.column_stack([self.codes, self.x])
        keys, cells = np.unique(keys, axis=0, return_inverse=True)
        others = self.others - self.others.mean(axis=0)
        design = np.column_stack([np.eye(len(keys))[cells.ravel()], others])
        inverse = np.linalg.pinv(design * weights[:, None])[: len(keys)]
        means = inverse @ (weights * sweep.means)
        noise = sweep.noise.of_each(1.0 / sweep.counts)[0] * sweep.counts
        covariance, parts = (inverse * noise) @ inverse.T, []
        for k in range(len(self.at)):
            own = np.flatnonzero(keys[:, 0] == k)
            values, each, top = keys[own, 1], means[own], int(means[own].argmax())
            errors = covariance[np.ix_(own, own)]
            error = errors[top, top] + errors.diagonal() - 2.0 * errors[top]
            t = (each[top] - each) / np.sqrt(np.maximum(error, 1e-300))
            x = np.linspace(values[0], values[-1], PLACES)
            after = np.clip(np.searchsorted(values, x, side="right"), 1, len(values) - 1)
            against = np.where(after < top, t[after], np.where(after > top + 1, -t[after - 1], 0.0))
            parts.append((x, against, np.interp(x, values, each), values[top], t[0], -t[-1]))
        x, t, level, best, low, high = map(np.array, zip(*parts, strict=True))
        ends, freedom = np.stack([low, high]), sweep.noise.freedom
        return Curves(self.at, self.labels, x, t, ends, best, level, freedom, fits=False)

    def _bases(self, codes: Codes, y: Array) -> tuple[Array, Array]:
        """Columns that b and c are sums of, and those of a: of each level, or powers of y."""
        if self.is_smooth:
            powers = np.column_stack([(y - self.y.mean()) ** power for power in range(4)])
            return powers[:, :2], powers
        levels = np.eye(len(self.at))[codes]
        return levels, levels

    def _columns(self, x: Array, used: NDArray[np.bool_], common: Sequence[int]) -> Array:
        """The design (n, columns): of x and of x^2 those of b and c, those of the powers that
        levels have in common, and those of a and of the other hyperparameters.
        """
        own, levels = self._bases(self.codes[used], self.y[used])
        more = [x[:, None] ** power * own for power in (1, 2)]
        more += [x[:, None] ** power for power in common]
        return np.column_stack([*more, levels, self.others[used]])

    def _fitted(self, used: NDArray[np.bool_]) -> tuple[Curves | Note, float]:
        """The curves of these configurations, and the p-value that they fit."""
        sweep, num = self.sweep.at(used), len(self.at)
        centre = float((self.x[used].min() + self.x[used].max()) / 2.0)
        x, weights = self.x[used] - centre, np.sqrt(sweep.counts)
        parts = [x] * num if self.is_smooth else [x[self.codes[used] == k] for k in range(num)]
        common = (3,) * (min(len(np.unique(part)) for part in parts) > FEWEST_VALUES)
        design = self._columns(x, used, common) * weights[:, None]
        inverse = np.linalg.pinv(design)
        coefs = inverse @ (weights * sweep.means)
        residual = weights * sweep.means - design @ coefs
        scale, freedom, p = self._noise(sweep, x, used, residual, design, common)
        if not freedom:
            return note(Reason.ONE_SEED), 1.0
        if not scale.max() > 1e-20 * np.square(sweep.means).max():
            return note(Reason.NO_NOISE), 1.0
        own, levels = self._bases(np.arange(num), self.at)
        takes, column = np.zeros((num, 2 + len(common), len(coefs))), 2 * own.shape[1]
        takes[:, 0, : column // 2] = takes[:, 1, column // 2 : column] = own
        takes[:, 2:, column : column + len(common)] = 1.0
        covariance = (inverse * scale) @ inverse.T
        covariances = takes @ covariance @ takes.transpose(0, 2, 1)
        low, high = (np.array([end(part) for part in parts]) for end in (np.min, np.max))
        # at the centre of x, and at the mean of the other hyperparameters
        a, of_others = np.split(coefs[column + len(common) :], [levels.shape[1]])
        middle = levels @ a + self.others[used].mean(axis=0) @ of_others
        of = (self.at, self.labels, low, high, takes @ coefs, covariances)
        if not common:
            return _curves(*of, middle, centre, freedom), p
        own = takes @ (covariance[:, column] / np.sqrt(covariance[column, column]))
        rest, given = covariances - own[:, :, None] * own[:, None, :], []
        for offset in OFFSETS:
            moved = takes @ coefs + offset * own
            each = _curves(*of[:4], moved, rest, middle, centre, freedom)
            given.append((offset, each.t, each.ends))
        return replace(_curves(*of, middle, centre, freedom), given=tuple(given)), p

    def _noise(
        self,
        sweep: Sweep,
        x: Array,
        used: NDArray[np.bool_],
        residual: Array,
        design: Array,
        common: Sequence[int],
    ) -> tuple[Array, float, float]:
        """(n,) variances of the weighted means, their degrees of freedom, and the p-value of the
        fit: of a grid by the noise of its seeds, where it is known, else by what is left over.
        """
        rank, noise = int(np.linalg.matrix_rank(design)), sweep.noise
        if sweep.samplers == ("grid",) and noise.freedom > 0 and noise.pooled > 0:
            each = noise.of_each(1.0 / sweep.counts)[0] * sweep.counts
            cells = pd.factorize(self.codes[used] * len(x) + pd.factorize(x)[0])[0]
            sums = np.bincount(cells, np.sqrt(sweep.counts) * residual)
            squares = float((sums**2 / np.bincount(cells, sweep.counts)).sum())
            left = len(sums) - 3 * len(self.at) - len(common)
            if left <= 0:
                return each, noise.freedom, 1.0
            p = float(special.fdtrc(left, noise.freedom, squares / left / noise.pooled))
            own, freedom = squares / left, float(left)
            if p >= FIT_LEVEL:
                freedom = left + noise.freedom
                own = max(noise.pooled, (squares + noise.freedom * noise.pooled) / freedom)
            return each * own / noise.pooled, freedom, p
        left = len(x) - rank
        if left < FEWEST_VALUES:
            return np.zeros(len(x)), 0.0, 1.0
        squares = float(residual @ residual)
        more = self._columns(x, used, (3, 4, 5)) * np.sqrt(sweep.counts)[:, None]
        further = int(np.linalg.matrix_rank(more)) - rank
        better = residual - more @ (np.linalg.pinv(more) @ residual)
        rest, p = left - further, 1.0
        if further and rest >= FEWEST_VALUES:
            smaller = float(better @ better)
            ratio = (squares - smaller) / further / max(smaller / rest, 1e-300)
            p = float(special.fdtrc(further, rest, ratio))
        return np.full(len(x), squares / left), float(left), p

    def _narrowed(self, used: NDArray[np.bool_], curves: Curves) -> NDArray[np.bool_] | None:
        """Without the furthest value of each level, of a sample the furthest eighth; None where no
        more can go.
        """
        narrower = used.copy()
        if self.is_smooth:
            off = np.abs(self.x - curves.best.mean())
            narrower &= off <= np.quantile(off[used], 0.875)
            return narrower if narrower.sum() >= 2 * (9 + self.others.shape[1]) else None
        for k, best in enumerate(curves.best):
            own = used & (self.codes == k)
            values = np.unique(self.x[own])
            if len(values) > FEWEST_VALUES:
                furthest = values[np.abs(values - best).argmax()]
                narrower &= ~(own & (self.x == furthest))
        return narrower if narrower.sum() < used.sum() else None


def _others(sweep: Sweep, of: str, by: str) -> Array:
    """(n, q) columns of the other hyperparameters: parabolas, or a column for each value."""
    columns: list[Array] = [np.empty((len(sweep.configs), 0))]
    for name in sweep.params:
        values = sweep.settings[name]
        if name in (of, by) or values.nunique(dropna=False) < 2:
            continue
        axis = None if sweep.scales[name] == "category" else sweep.axis(name)
        if axis is None or sweep.samplers == ("grid",) or not np.isfinite(axis).all():
            codes = pd.factorize(values.astype(str))[0]
            columns.append(np.eye(codes.max() + 1)[codes][:, 1:])
        else:
            unit = (axis - axis.mean()) / axis.std()
            columns.append(np.column_stack([unit, unit**2]))
    return np.concatenate(columns, axis=1)


def pairs_of(sweep: Sweep, of: str | None, by: str | None) -> Iterator[tuple[str, str]]:
    """Pairs of swept hyperparameters: a number of three values, and another one."""
    for x in sweep.params if of is None else [of] * (of in sweep.params):
        if sweep.scales[x] == "category" or sweep.settings[x].nunique() < FEWEST_VALUES:
            continue
        for y in sweep.params if by is None else [by] * (by in sweep.params):
            if x != y and (by is not None or sweep.scales[y] != "category"):
                yield x, y
