"""Random streams from a trial's one seed, global generators included."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from functools import lru_cache

import numpy as np


@lru_cache(maxsize=256)
def derived_seed(seed: int, purpose: str) -> int:
    """Independent streams from one seed: initial weights are not how the data order begins."""
    return int(np.random.SeedSequence([seed, *purpose.encode()]).generate_state(1)[0])


def seed_draws(seed: int, purpose: str, number: int = 0) -> None:
    """Begin what is drawn from the generators that a process has, of `random`, numpy and torch.

    A trial seeds them before every step, for each of its parts. So they are no state of it: one
    that goes on draws what an undisturbed one does.
    """
    import torch  # training alone needs it

    mine = (derived_seed(seed, purpose) + number) % 2**32
    random.seed(mine)
    np.random.seed(mine)
    torch.default_generator.manual_seed(mine)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(mine)


@contextlib.contextmanager
def drawing(seed: int, purpose: str) -> Iterator[None]:
    """Draw from a seed inside, and leave the caller's generators on the CPU as they were."""
    import torch

    before = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        seed_draws(seed, purpose)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
