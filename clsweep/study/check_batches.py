"""Parts of a batch that fit it: negatives, sub-batches, workers, chunks, groups of batch norm."""

from __future__ import annotations

import itertools
import math

from clsweep.catalog.ownership import num_others
from clsweep.study.check_base import CheckBase
from clsweep.study.space import Objective

MAX_BATCH = 10**8  # beyond it no data set has images, which is an error of its own


class BatchChecks(CheckBase):
    def _check_negatives(self, objective: Objective) -> None:
        """A queue may have any length; negatives of the batch are as many as the batch has."""
        if "num_negatives" not in objective.owned:
            return
        framework, keys = objective.parts["framework"], self._where(objective, "num_negatives")
        fewest, most = objective.extremes("num_negatives")
        if framework == "moco":
            if fewest == 0:
                self.error(keys, "expected a queue of at least 1 key, given 0")
            return
        smallest, _ = objective.extremes("batch_size")
        available = num_others(framework, smallest)
        if most > available:
            message = (
                f"expected at most {available}, what a batch of {smallest} has for a query "
                f"in {framework}; "
            )
            self.error(keys, f"{message}given {most}. 0 takes all, whatever the batch size")

    def _check_whitening(self, objective: Objective) -> None:
        """A sub-batch has more samples than dimensions, and the batch is made of such."""
        if "whitening_size" not in objective.owned:
            return
        keys = self._where(objective, "whitening_size")
        sizes, batches = (self._points(objective, n) for n in ("whitening_size", "batch_size"))
        if not sizes or not batches:
            self.error(keys, "expected fixed values or choices of it and of batch_size")
        _, dim = objective.extremes("proj_dim")
        for size, batch in itertools.product(sizes, batches):
            together = size or batch
            if batch % together:
                message = f"groups of {together} do not make a batch of {batch}; it must divide it"
                self.error(keys, message)
            elif together <= dim:
                message = f"expected more than {dim}, the dimensions of proj_dim, given {together}"
                self.error(keys, message)

    def _check_workers(self, objective: Objective) -> None:
        workers = self.sections.resources.workers
        if workers == 1:
            return
        keys = self._where(objective, "batch_size")
        dimension = objective.space.get("batch_size")
        if dimension and dimension.is_range:
            self.error(
                keys,
                f"with {workers} workers expected choices that {workers} divides, given a range",
            )
            return
        for size in dimension.points if dimension else (objective.fixed["batch_size"],):
            assert isinstance(size, int)
            if size % workers or size // workers < 2:
                below, above = size // workers * workers, -(-size // workers) * workers
                valid = ", ".join(
                    str(v) for v in sorted({max(below, 2 * workers), max(above, 2 * workers)})
                )
                self.error(
                    keys,
                    f"batch size {size} does not divide among {workers} workers; nearest valid: "
                    f"{valid}",
                )

    def _check_chunks(self, objective: Objective) -> None:
        """Batch norm must see equally many images in every chunk, and in every worker's part of
        one.
        """
        keys, workers = self._where(objective, "chunk_size"), self.sections.resources.workers
        chunks, batches = (self._points(objective, name) for name in ("chunk_size", "batch_size"))
        if chunks == (0,):
            return
        if not chunks or not batches:
            self.error(
                keys,
                "expected fixed values or choices of both chunk_size and batch_size, given a range",
            )
        elif len(chunks) > 1 and sum(chunk >= min(batches) for chunk in chunks) > 1:
            message = (
                f"expected at most one of the chunks to be a whole batch of {min(batches)}, given"
            )
            self.error(keys, f"{message} {', '.join(map(str, chunks))}: these would train alike")
        for chunk, batch in itertools.product(chunks, batches):
            if (
                chunk
                and chunk < batch
                and (batch % chunk or chunk % workers or chunk < 2 * workers)
            ):
                nearest_valid = ", ".join(map(str, _nearest_chunks(chunk, batch, workers)))
                among = f" on {workers} workers" if workers > 1 else ""
                message = (
                    f"chunks of {chunk} do not make a batch of {batch}{among}; nearest "
                    f"valid: {nearest_valid}"
                )
                self.error(keys, message)

    def _check_norm_groups(self, objective: Objective) -> None:
        if "shuffle" not in self._points(objective, "key_norm"):
            return
        keys = self._where(objective, "norm_group")
        names = ("norm_group", "batch_size", "chunk_size")
        groups, batches, chunks = (self._points(objective, name) for name in names)
        if not groups or not batches or not chunks:
            self.error(keys, "expected fixed values or choices of it, batch_size and chunk_size")
        for group, batch, chunk in itertools.product(groups, batches, chunks):
            together = min(chunk or batch, batch)
            if together % group:
                what = "a chunk" if together < batch else "a batch"
                self.error(
                    keys, f"groups of {group} do not make {what} of {together}; it must divide it"
                )


def _nearest_chunks(chunk: int, batch: int, workers: int) -> list[int]:
    """The two sizes nearest to `chunk` that divide a batch among the workers."""
    small = [c for c in range(1, math.isqrt(min(batch, MAX_BATCH)) + 1) if batch % c == 0]
    divisors = {*small, *(batch // c for c in small)}
    valid = [c for c in divisors if c % workers == 0 and c >= 2 * workers]
    return sorted(sorted(valid, key=lambda c: abs(c - chunk))[:2])
