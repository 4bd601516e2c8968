"""`--where` selects by comparisons and arithmetic of columns; whatever else is said in a moment."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pandas as pd
import pytest

from clsweep.cli.where import selected
from clsweep.errors import RequestError

FRAME = pd.DataFrame(
    {
        "tau": [0.1, 0.2, None],
        "batch_size": [32, 64, 128],
        "status": ["finished", "failed", "finished"],
        "flag": [True, False, True],
    }
)


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    begin = time.process_time()
    yield
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("tau < 0.15", [0]),
        ("tau > 0.05 & status == 'finished'", [0]),
        ("tau > 0.05 and not status == 'finished'", [1]),
        ("batch_size == 64 | tau < 0.15", [0, 1]),
        ("0.15 < tau < 0.3", [1]),
        ("status in ['failed', 'stopped']", [1]),
        ("status not in ['failed']", [0, 2]),
        ("flag", [0, 2]),
        ("~flag", [1]),
        ("(batch_size - 32) ** 2 > 1000", [1, 2]),
        ("tau * 2 + 1 < 1.5 or batch_size // 3 == 42", [0, 1, 2]),
        ("-tau < -0.15", [1]),
        ("9 ** 64 < tau", []),
        ("tau.isna()", [2]),
        ("not tau.isnull() and status.notna()", [0, 1]),
        ("abs(tau - 0.1) < 1e-9", [0]),
        ("2 * abs(tau - 0.1) < 1e-9", [0]),
        ("log10(tau) < -0.9 or `batch_size` == 64", [0, 1]),
    ],
)
def test_a_condition_selects_rows(where: str, rows: list[int]) -> None:
    assert list(FRAME.index[selected(FRAME, where)]) == rows


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("10**10**10 > tau", "expected a number of at most 64 as exponent, given '10 ** 10'"),
        ("tau ** 65 > 1", "expected a number of at most 64 as exponent, given '65'"),
        ("batch_size ** batch_size > 1", "as exponent, given 'batch_size'"),
        ("((9**64)**64)**64 > tau", "expected no power of a power"),
        ("'a'*10**10 == status", "expected numbers in"),
        ("status * 10**9 == 'x'", "expected numbers in 'status * 10 ** 9', given status"),
        ("'%999999999d' % 1 == status", "expected numbers in"),
        ("(" * 10_000 + "tau" + ")" * 10_000 + " < 1", "at most 1,000 characters, given 20,007"),
        ("(" * 400 + "tau" + ")" * 400 + " < 1", "too many nested parentheses"),
        ("-" * 990 + "tau < 1", "recursion"),
        ("status.str.contains('(a+)+$')", "clsweep.open_results(...).trials.query(...) in Python"),
        ("status.isin(['failed'])", "The same is: tau in [0.1, 0.2]"),
        ("tau.between(0.1, 0.2)", "The same is: 0.1 <= tau <= 0.2"),
        ("tau == None", "expected .isna() or .notna() of a column, as in 'tau.isna()'"),
        ("status is not None", "expected .isna() or .notna() of a column"),
        ("abs(10 ** 64) ** 64 < tau", "expected no power of a power"),
        ("abs('x' * 10**9) == tau", "expected numbers in"),
        ("tau.isna.__class__()", "expected comparisons and arithmetic of columns"),
        ("__import__('os').getpid() == 1", "expected comparisons and arithmetic of columns"),
        ("1 << 10**9 < tau", "expected comparisons and arithmetic of columns"),
        ("[tau for x in tau]", "expected comparisons and arithmetic of columns"),
        ("@tau < 1", "invalid syntax"),
        ("", "invalid syntax"),
        ("tua < 1", "no column 'tua'. Did you mean 'tau'? Columns: tau, batch_size, status, flag"),
        ("tau", "expected a condition"),
    ],
)
def test_anything_else_is_one_short_line(where: str, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        selected(FRAME, where)
    message = str(caught.value)
    assert message.startswith("--where ")
    assert said in message
    assert len(message.splitlines()) == 1
    assert len(message) < 400
