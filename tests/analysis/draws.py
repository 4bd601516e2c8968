"""Fewer draws than the product takes, for speed, or other ones, as a coverage needs."""

from contextlib import contextmanager

import pytest

from clsweep.analysis import bootstrap


@contextmanager
def drawing(num=None, seed=0):
    """What is asked for in here rests on `num` resamples, drawn from this seed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap, "DRAWS_SEED", seed)
        if num:
            patch.setattr(bootstrap, "NUM_RESAMPLES", num)
        yield
