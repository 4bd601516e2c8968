"""The images that are scored are a sample too: what other images like them would have given.

Shape legend: n = configurations, S = seeds, M = images, B = draws.

h_ism says whether encoder (i, s) has image m right; its score is the mean over m. All encoders of a
study are scored on the same images, so no spread between seeds shows what hangs on these. In

    h_ism = theta_i + b_is + a_im + e_ism

a mean over seeds and images varies by  Var b / S + Var a / M + Var e / (S M). The scores of the
seeds show the first and the last. The middle one is the spread of c_im = mean_s h_ism over the
images, less what e adds to it:

    Var a / M = Var_m(c_im) / M - MS_e / (S M),   MS_e of the two-way table of each configuration.

Two encoders that differ in none of these images may differ in others, so half an image a pair is
added (after Agresti & Min 2005): Var of a mean + 1 / (2 M)^2. Of sums of means sum_i w_i c_im takes
the place of c_im. `ImageEffects.draws` are means over other samples of images, the same samples for
all configurations.

What is picked on some images is too good on these. So the images stand in parts: nine pick, the
tenth scores (`ImageEffects.parts`, `cross_fit_folds`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clsweep.analysis.array_types import Array
from clsweep.analysis.noise import half_width
from clsweep.errors import RequestError

IMAGES = NEW, FIXED = "new", "fixed"  # which ones intervals are for: others like them, or these
NUM_IMAGE_DRAWS = 512  # of images; of so many images or fewer, variances of sums are exact
_DRAWN_SCORES = 2**21  # scores of drawn tables held together
_CACHE_SIZE = 256
NUM_PARTS = 10  # of the images, of which one scores what the others pick
FEWEST_IMAGES = 2
OF_ROWS = ("draws", "own", "grain", "moves")
MATCH = 1e-6  # percent: how far a score may lie from the share of its own hits


@dataclass(frozen=True, eq=False)
class ImageEffects:
    """Effects of the scored images on the means of some rows.

    Attributes:
        digest: of which images they are.
        num: of them.
        draws: (n, B) by how much a mean over other images differs, larger is better.
        own: (n,) variance of these that is of seed and image together, which is in the noise of the
            seeds already.
        grain: (n,) variance that no difference between these images can show.
        moves: (n, K) by how much the mean over each part of the images differs.
    """

    digest: str
    num: int
    draws: Array
    own: Array
    grain: Array
    moves: Array

    def rows(self, chosen: Any) -> ImageEffects:
        """Those of some rows."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in OF_ROWS})

    def averaged(self, groups: NDArray[Any], num: int) -> ImageEffects:
        """Those of the means over the rows of each of `num` groups; 0 where one has none."""
        scaled = self.scaled(1.0 / np.bincount(groups, minlength=num)[groups])
        means: dict[str, Any] = {}
        for name in OF_ROWS:
            parts = getattr(scaled, name)
            means[name] = np.zeros((num, *parts.shape[1:]))
            np.add.at(means[name], groups, parts)
        return replace(self, **means)

    def scaled(self, factor: Array) -> ImageEffects:
        """Those of the means times a factor each."""
        columns, squares = factor[:, None], np.square(factor)
        draws, moves = self.draws * columns, self.moves * columns
        own, grain = self.own * squares, self.grain * squares
        return replace(self, draws=draws, own=own, grain=grain, moves=moves)

    @property
    def parts(self) -> Array:
        """(n, K) `moves`; what the rows differ by has the noise of seeds taken out. Then the
        mean over the other parts is independent of them, whatever seeds and images do; what images
        do to all rows alike picks none of them.
        """
        if len(self.moves) < 2:
            return self.moves
        apart = self.draws - self.draws.mean(axis=0)
        moved = float(np.square(apart).sum() / (len(apart) - 1) / apart.shape[1])
        share = max(0.0, 1.0 - float(self.own.mean()) / moved) ** 0.5 if moved > 0 else 0.0
        common = self.moves.mean(axis=0)
        return np.asarray(common + share * (self.moves - common))

    def variance(self, weights: Array) -> Array:
        """Of sum_i w_i m_i over new images, beside the noise of the seeds; w is (..., n)."""
        moved, squares = np.square(weights @ self.draws).mean(axis=-1), np.square(weights)
        beyond = np.maximum(0.0, moved - squares @ self.own)
        return np.asarray(beyond + squares @ self.grain)

    def against(self, row: int) -> Array:
        """(n,) `variance` of each mean less that of one row."""
        moved = np.square(self.draws - self.draws[row]).mean(axis=1)
        beyond = np.maximum(0.0, moved - self.own - self.own[row]) + self.grain + self.grain[row]
        beyond[row] = 0.0
        return beyond

    @property
    def of_each(self) -> Array:
        """(n,) `variance` of each mean alone."""
        return np.maximum(0.0, np.square(self.draws).mean(axis=1) - self.own) + self.grain

    @property
    def spread(self) -> float:
        """Part of the images in the variance of the means, (n - 1) in the denominator."""
        if len(self.draws) < 2:
            return 0.0
        return max(0.0, float(self.draws.var(axis=0, ddof=1).mean() - self.own.mean()))

    @property
    def beyond_seeds(self) -> Array:
        """(n, B) the draws, less what is in the noise of the seeds: of variance `of_each`."""
        moved = np.square(self.draws).mean(axis=1)
        return self.draws * np.sqrt(self.of_each / np.where(moved > 0, moved, 1.0))[:, None]

    def variance_of(
        self, statistic: Callable[[Array], Mapping[str, Array]], scores: Array
    ) -> dict[str, Any]:
        """The same of a statistic of tables (B, n, S), by name: how it varies when all scores of a
        row move by a draw, less how it does by the part that is in the seeds' noise already.
        """
        return variances_of(lambda tables: statistic(*tables), [(self, scores)])

    def half_width(self, variance: Any) -> Any:
        """Of an interval by the images alone."""
        return half_width(variance, self.num - 1.0)


def variances_of(
    statistic: Callable[[list[Array]], Mapping[str, Array]], sides: list[tuple[ImageEffects, Array]]
) -> dict[str, Any]:
    """`ImageEffects.variance_of` of a statistic of several tables. Other images have other
    draws.
    """
    rng = np.random.default_rng(0)
    step = max(1, _DRAWN_SCORES // sum(scores.size for _, scores in sides))
    of_seeds = [np.sqrt(i.own)[:, None] * rng.standard_normal(i.draws.shape) for i, _ in sides]
    grains = [np.sqrt(i.grain)[:, None] * rng.standard_normal(i.draws.shape) for i, _ in sides]
    of_images = [i.draws + grain for (i, _), grain in zip(sides, grains, strict=True)]
    moved_by: list[dict[str, Array]] = []
    for moves in (of_images, of_seeds):
        parts = [
            statistic([
                scores + move.T[start : start + step, :, None]
                for move, (_, scores) in zip(moves, sides, strict=True)
            ])
            for start in range(0, NUM_IMAGE_DRAWS, step)
        ]  # fmt: skip
        moved_by.append({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    return {
        name: np.maximum(0.0, np.var(moved, axis=0) - np.var(moved_by[1][name], axis=0))
        for name, moved in moved_by[0].items()
        if np.isfinite(moved).all() and np.isfinite(moved_by[1][name]).all()
    }


def stack_effects(parts: Sequence[ImageEffects | None]) -> ImageEffects | None:
    """The rows of several tables one below the other; None where one has no images."""
    known = [part for part in parts if part]
    if len(known) < len(parts):
        return None
    rows = {name: np.concatenate([getattr(part, name) for part in known]) for name in OF_ROWS}
    digest, num = "+".join({part.digest: 0 for part in known}), min(part.num for part in known)
    return ImageEffects(digest, num, **rows)


def image_parts(images: ImageEffects | None, rows: Any = slice(None)) -> Array | None:
    """`ImageEffects.parts` of some rows; None where nobody knows them."""
    return images.rows(rows).parts if images else None


def variance_of_difference(
    a: ImageEffects | None, b: ImageEffects | None, wa: Array, wb: Array
) -> tuple[float, float]:
    """Variance of  wa m_a - wb m_b  over new images, of two tables; and its degrees of freedom. 0
    where one of both does not say which images it has right.
    """
    if a is None or b is None:
        return 0.0, np.inf
    if a.digest != b.digest:  # each has images of its own
        return float(a.variance(wa) + b.variance(wb)), min(a.num, b.num) - 1.0
    moved = float(np.square(wa @ a.draws - wb @ b.draws).mean())
    own = float(np.square(wa) @ a.own + np.square(wb) @ b.own)
    grain = float(np.square(wa) @ a.grain + np.square(wb) @ b.grain)
    return max(0.0, moved - own) + grain, a.num - 1.0


def spread_of(images: ImageEffects | None, rows: Any = slice(None)) -> float:
    """`ImageEffects.spread` of some rows; 0 where nobody knows them."""
    return images.rows(rows).spread if images else 0.0


def spread_without(spread: Any, variance: float) -> Any:
    """sqrt(max(0, spread^2 - variance)): a spread without a part of its variance."""
    return np.sqrt(np.maximum(0.0, np.square(spread) - variance))


def widened(low: Any, high: Any, more: Any) -> tuple[Any, Any]:
    """An interval, with the half width of what it does not know of yet: both are independent."""
    middle, half = (low + high) / 2, np.hypot((high - low) / 2, more)
    return middle - half, middle + half


@dataclass(frozen=True, eq=False)
class TrialHits:
    """Which images the trials of some objectives have right.

    Attributes:
        read: gives one row a trial: objective, config, score (percent), images (their digest),
            num_images and bits. Asked for once, when it is needed.
    """

    read: Callable[[], pd.DataFrame]

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which has nowhere to read it."""
        return {"known": self.known}

    @cached_property
    def known(self) -> dict[str, tuple[pd.Series[int], ImageEffects]]:
        """By objective: the number of trials of each configuration, and their images, with draws
        of the score; nothing where an objective was scored on several sets of images.
        """
        table = self.read()
        groups = {} if table.empty else dict(iter(table.groupby("objective")))
        every = {str(name): _images_in(group) for name, group in groups.items()}
        known = {name: each for name, each in every.items() if each}
        return known if len(known) == len(every) else {}

    def renamed(self, objective: str, name: str) -> TrialHits:
        """Those of one objective, by another name."""
        one = TrialHits(self.read)
        vars(one)["known"] = {name: self.known[objective]} if objective in self.known else {}
        return one

    def of(
        self,
        objective: str,
        sign: float,
        configs: NDArray[Any],
        counts: NDArray[np.int64],
        measured: NDArray[np.int64],
    ) -> ImageEffects | None:
        """Those of the means of configurations over `counts` scores, of which so many are
        `measured`, larger is better; None where one does not say which images it has right.
        """
        known = self.known.get(objective)
        if known is None:
            return None
        trials, images = known
        if (trials.reindex(configs, fill_value=0).to_numpy() < measured).any():
            return None
        rows = trials.index.get_indexer(pd.Index(configs))
        # what failed trials count as hangs on no image; without any hits all of them failed
        share = np.where(rows < 0, 0.0, measured / np.maximum(counts, 1))
        return images.rows(rows).scaled(sign * share)

    def half_width(self, objective: str, config: Any) -> float:
        """Of the interval of a configuration's mean over its trials, by the images alone; 0 where
        they are not known.
        """
        counts, images = self.known.get(objective, (pd.Series(dtype=int), None))
        if images is None or config not in counts.index:
            return 0.0
        at = counts.index.get_loc(config)
        return float(images.half_width(images.of_each[at]))


def _images_in(trials: pd.DataFrame) -> tuple[pd.Series[int], ImageEffects] | None:
    places = trials[["images", "num_images"]].drop_duplicates()
    if len(places) != 1 or places["num_images"].iloc[0] < FEWEST_IMAGES:
        return None
    digest, num = str(places["images"].iloc[0]), int(places["num_images"].iloc[0])
    trials = trials.sort_values("config", kind="stable")
    counts = trials.groupby("config").size()
    starts = np.concatenate([[0], np.cumsum(counts)])
    weights, parts = _samples(digest, num), _parts(digest, num)
    draws, own, moves = [], [], []
    for config in range(len(counts)):
        some = trials.iloc[starts[config] : starts[config + 1]]
        hits = np.stack([_unpacked(bits, num) for bits in some["bits"]])
        shares = hits.mean(axis=1)
        if not np.allclose(100 * shares, some["score"], atol=MATCH, rtol=0):
            return None  # the bits of another score
        of_image = hits.mean(axis=0)
        off = of_image - of_image.mean()
        draws.append(100 * (off.astype(np.float32) @ weights))
        in_parts = 100 * (off @ parts)
        moves.append(in_parts - in_parts.mean())
        rest = np.square(hits - shares[:, None] - of_image + of_image.mean()).sum()
        own.append(100**2 * rest / (len(hits) - 1) / (num - 1) if len(hits) > 1 else np.nan)
    pooled = np.nanmean(own) if np.isfinite(own).any() else 0.0
    alone = np.where(np.isfinite(own), own, pooled) / counts.to_numpy() / num
    grain = np.full(len(counts), (50.0 / num) ** 2)
    return counts, ImageEffects(digest, num, np.array(draws), alone, grain, np.array(moves))


def _unpacked(bits: bytes, num: int) -> Array:
    if len(bits) != -(-num // 8):
        raise RequestError(f"hits: expected {num} images, found {len(bits)} bytes of them")
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=num).astype(np.float64)


@lru_cache(_CACHE_SIZE)
def _parts(digest: str, num: int) -> Array:
    """(M, K) weights of the mean over each of K parts, which an image falls into by chance."""
    if num < NUM_PARTS:
        return np.zeros((num, NUM_PARTS))
    part = np.random.default_rng([*digest.encode(), num]).permutation(num) % NUM_PARTS
    inside = np.equal.outer(part, np.arange(NUM_PARTS))
    return np.asarray(inside / inside.sum(axis=0))


@lru_cache(_CACHE_SIZE)
def _samples(digest: str, num: int) -> NDArray[np.float32]:
    """(M, B) weights whose sums over centred outcomes are how much other samples of images move
    their mean: of variance 1 / M (M - 1), and uncorrelated, exactly where M <= B.
    """
    rng = np.random.default_rng([*digest.encode(), num])
    weights = rng.standard_normal((num, NUM_IMAGE_DRAWS))
    if num <= NUM_IMAGE_DRAWS:
        weights = np.sqrt(NUM_IMAGE_DRAWS) * np.linalg.qr(weights.T)[0].T
    return np.asarray(weights / np.sqrt(num * (num - 1.0)), np.float32)
