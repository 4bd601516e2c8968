"""The planted faults of `make test-mutations`."""

import pytest

from tests import mutations


@pytest.mark.parametrize("fault", mutations.FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_still_has_its_place(fault):
    """Code that moves on takes its fault along: `make test-mutations` is too slow to say so."""
    assert (mutations.ROOT / "clsweep" / fault.file).read_text().count(fault.old) == 1
