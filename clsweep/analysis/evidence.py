"""Evidence for one effect: interval, p-value, and the repeats that would find it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from clsweep.analysis import CONFIDENCE, POWER, TAIL
from clsweep.analysis.array_types import Array
from clsweep.analysis.noise import half_width, square_and_add
from clsweep.analysis.score_table import EPSILON

MAX_SEEDS, FEW_SEEDS = 10_000, 100
LEAST_P = 1e-12


@dataclass(frozen=True)
class Evidence:
    """One effect with its interval, p-value and standard error.

    Attributes:
        estimate, low, high: the effect and its interval; NaN where there is no estimate of the
            noise.
        p, p_min: p-value, two-sided, and the smallest that this test could give.
        se, freedom: standard error (of the log for a ratio) and its degrees of freedom.
        of_images, images: the part of se that no seed makes smaller, and of how many images.
        parts: of the variance, each with its degrees of freedom; none of resamples.
    """

    estimate: float
    low: float = np.nan
    high: float = np.nan
    p: float = np.nan
    p_min: float = np.nan
    se: float = np.nan
    freedom: float = np.nan
    of_images: float = 0.0
    images: int = 0
    parts: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of_values(cls, values: Array) -> Evidence:
        """Of the mean of values (F,), by t."""
        num, estimate = len(values), float(values.mean())
        if num < 2:
            return cls(estimate)
        se = float(values.std(ddof=1)) / num**0.5
        return cls.of_parts(estimate, [(se**2, num - 1)])

    @classmethod
    def of_parts(cls, estimate: float, parts: Sequence[tuple[float, float]]) -> Evidence:
        """Of independent parts of the variance, each with its degrees of freedom: an interval by
        `square_and_add`, and p that agrees with it; the estimate alone where the error is no more
        than rounding.
        """
        variance = sum(each for each, _ in parts)
        if not variance**0.5 > EPSILON * max(1.0, abs(estimate)):
            return cls(estimate)
        parts = tuple(part for part in parts if part[0] > 0)
        freedom = variance**2 / sum(each**2 / df for each, df in parts)
        half, p = square_and_add(parts), _tail(estimate, *parts)
        low, high = estimate - half, estimate + half
        return cls(estimate, low, high, p, 0.0, variance**0.5, freedom, parts=parts)

    @property
    def columns(self) -> dict[str, Any]:
        """Those of a row about it; side: 1 where the interval lies above 0, -1 below, else 0."""
        names = ("estimate", "low", "high", "p", "detectable")
        side = int(self.low > 0) - int(self.high < 0)
        return {name: getattr(self, name) for name in names} | {"side": side}

    def with_needs(self, repeats: float, *, fixed: bool = True) -> dict[str, Any]:
        """`columns`, and what it takes to find it; fixed: the repeats are seeds, not settings."""
        images = self.images_deciding(repeats) if fixed else 0
        is_over, needed = bool(self.images) and fixed, self.repeats_needed(repeats)
        return self.columns | {"images": images, "over_images": is_over, "needed": needed}

    @property
    def turned(self) -> Evidence:
        """The same of the effect's negative."""
        return replace(self, estimate=-self.estimate, low=-self.high, high=-self.low)

    def over_images(self, variance: float, freedom: float, *, too_good: float = 0.0) -> Evidence:
        """The same for new images, of a variance beside the noise of the seeds: the interval is
        wider, and p no smaller than one less the level of an interval that ends at 0.

        too_good: by how much the estimate may be too high, or too low where it is negative: the
            interval holds that of the estimate without it too, and p is the larger one.
        """
        if too_good and np.isfinite(self.se):
            low, high, at = (x - too_good for x in (self.low, self.high, self.estimate))
            p = float(2 * special.stdtr(self.freedom, -abs(at) / self.se))
            without = replace(self, estimate=at, low=low, high=high, p=p)
            wider, other = (each.over_images(variance, freedom) for each in (self, without))
            p = max(wider.p, other.p) if wider.estimate * at > 0 else 1.0
            low, high = min(wider.low, other.low), max(wider.high, other.high)
            return replace(wider, low=low, high=high, p=p)
        if not variance > 0 or not np.isfinite(self.se):
            return self
        more, towards = half_width(variance, freedom), self.low if self.estimate > 0 else self.high
        below, above = self.estimate - self.low, self.high - self.estimate
        low, high = self.estimate - np.hypot(below, more), self.estimate + np.hypot(above, more)
        whole = self.se**2 + variance
        left = whole**2 / (self.se**4 / self.freedom + variance**2 / freedom)
        of_seeds = ((self.estimate - towards) / special.stdtrit(self.freedom, TAIL)) ** 2
        seeds = self.parts or ((of_seeds, self.freedom),)
        p = max(self.p, _tail(self.estimate, *seeds, (variance, freedom)))
        parts = (*seeds, (variance, freedom)) if self.parts else ()
        wider = replace(self, low=float(low), high=float(high), p=p, freedom=left, parts=parts)
        of_images, se = float(np.sqrt(variance)), float(np.sqrt(whole))
        return replace(wider, se=se, of_images=of_images, images=int(freedom) + 1)

    def half_at(self, alpha: float) -> float:
        """Half width of the interval of level 1 - alpha by `square_and_add`; NaN without parts."""
        squares = (v * special.stdtrit(freedom, alpha / 2) ** 2 for v, freedom in self.parts)
        return float(np.sqrt(sum(squares))) if self.parts else np.nan

    def p_beyond(self, distance: float) -> float:
        """Two-sided p of an effect so far from the estimate, where the interval of `half_at` ends
        with alpha = p; 1 of a distance that is not above 0.
        """
        return _tail(distance, *self.parts) if distance > 0 else 1.0

    @property
    def detectable(self) -> float:
        """Smallest true effect found with 80 % power: (t_{1 - alpha/2, df} + t_{.8, df}) SE."""
        reach = special.stdtrit(self.freedom, (1.0 + CONFIDENCE) / 2.0)
        return float((reach + special.stdtrit(self.freedom, POWER)) * self.se)

    def repeats_needed(self, num_repeats: float) -> Array:
        """(3,) repeats (seeds of a grid, configurations of a sample) at which the effect would be
        found with 80 % power: as it was seen, and at the far and the near end of its 80 % interval,
        |estimate| +- t_{.9} SE. More than there are: these have not found it.

        The smallest N up to 10,000 with  (t_{1 - alpha/2} + t_{.8}) SE sqrt(R / N) <= |effect|,
        R = repeats now, the degrees of freedom grown likewise; what is of images stays. inf where
        none is enough, NaN without SE.
        """
        if not np.isfinite(self.se) or self.freedom <= 0 or num_repeats < 2:
            return np.full(3, np.nan)
        half = special.stdtrit(self.freedom, 0.9) * self.se
        effects = abs(self.estimate) + np.array([0.0, half, -half])
        # What N repeats find more find too.
        few, enough_repeats = np.ones(3), np.full(3, MAX_SEEDS + 1.0)
        while (enough_repeats - few > 1).any():
            num = np.maximum(np.floor((few + enough_repeats) / 2), 2.0)  # one has no freedom
            freedom = self.freedom * (num - 1.0) / (num_repeats - 1.0)
            reach = special.stdtrit(freedom, (1.0 + CONFIDENCE) / 2.0)
            reach += special.stdtrit(freedom, POWER)
            of_seeds = (self.se**2 - self.of_images**2) * num_repeats / num
            enough = reach * np.sqrt(of_seeds + self.of_images**2) <= effects
            few, enough_repeats = np.where(enough, few, num), np.where(enough, num, enough_repeats)
        needed = np.where(enough_repeats > MAX_SEEDS, np.inf, enough_repeats)
        return np.maximum(needed, np.floor(num_repeats) + 1)

    def images_deciding(self, num_seeds: float) -> int:
        """Of how many images the variance is that keeps any number of seeds from finding an effect
        as large as seen, which a few would find without it; 0 of none.
        """
        alone = np.sqrt(max(0.0, self.se**2 - self.of_images**2))
        seeds = replace(self, se=float(alone), of_images=0.0).repeats_needed(num_seeds)[0]
        is_so = np.isinf(self.repeats_needed(num_seeds)[0]) and seeds <= FEW_SEEDS
        return self.images if is_so else 0


def _tail(estimate: float, *parts: tuple[float, float]) -> float:
    """p at which the root of the squared half widths, each of a variance and its degrees of
    freedom, is the estimate.
    """
    if len(parts) == 1:
        [(variance, freedom)] = parts
        return float(2 * special.stdtr(freedom, -abs(estimate) / variance**0.5))

    def beyond(p: float) -> float:
        return sum(v * special.stdtrit(freedom, p / 2.0) ** 2 for v, freedom in parts) - estimate**2

    from scipy import optimize  # takes 0.15 s of every command that has statistics

    if beyond(LEAST_P) <= 0:
        return LEAST_P
    return 1.0 if not estimate else float(optimize.brentq(beyond, LEAST_P, 1.0))
