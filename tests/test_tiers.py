"""What keeps the fast tier fast."""

import time
from typing import Any

import pytest

from tests import conftest, mutations


class Item:
    name = "test_something"

    def __init__(self, *marks: str):
        self.marks = marks

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


def call(monkeypatch: pytest.MonkeyPatch, item: Any, *, limit_s: float) -> Any:
    """What the guard makes of a test that uses 0.05 s of the processor and returns 7."""
    guard = conftest.pytest_runtest_call(item)
    next(guard)
    end_s = time.process_time() + 0.05
    while time.process_time() < end_s:
        pass
    with monkeypatch.context() as patch:
        patch.setattr(conftest, "FAST_CPU_S", limit_s)
        with pytest.raises(StopIteration) as returned:
            guard.send(7)
    return returned.value.value


def test_a_fast_test_that_is_not_fast_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"test_something used 0\.\d s.*mark it slow"):
        call(monkeypatch, Item(), limit_s=0.02)
    assert call(monkeypatch, Item(), limit_s=5) == 7


@pytest.mark.parametrize("mark", ["slow", "soak"])
def test_a_test_of_a_slower_tier_may_take_its_time(
    monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    assert call(monkeypatch, Item(mark), limit_s=0.02) == 7


def test_the_clock_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sleep uses nothing, and neither does the work of others."""
    guard = conftest.pytest_runtest_call(Item())
    next(guard)
    time.sleep(0.1)
    monkeypatch.setattr(conftest, "FAST_CPU_S", 0.05)
    with pytest.raises(StopIteration):
        guard.send(None)


@pytest.mark.parametrize("fault", mutations.FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_still_has_its_place(fault: mutations.Fault) -> None:
    """Code that moves on takes its fault along: `make test-mutations` is too slow to say so."""
    assert (mutations.ROOT / "clsweep" / fault.file).read_text().count(fault.old) == 1
