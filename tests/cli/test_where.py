"""`--where` selects by a condition of columns; what is none is said in one short line."""

from decimal import Decimal

import pandas as pd
import pytest

import clsweep
from clsweep.cli import where
from clsweep.cli.trials import selected, trial_rows
from clsweep.errors import RequestError

FRAME = pd.DataFrame(
    {
        "tau": [0.1, 0.2, None],
        "batch_size": [32, 64, 128],
        "status": ["finished", "failed", "finished"],
        "flag": [True, False, True],
        "optim/lr": [0.01, 0.1, 0.1],
        "train.lr": [1, 2, 3],
        "__import__('os').abort()": [1, 2, 3],
        "@pd.io": [1, 2, 3],
        "class": [1, 2, 3],
        "l`r #'x": [1, 2, 3],
        "method": ["sgd", None, "lars"],
        "kind": pd.Categorical(["a", None, "b"]),
        "day": pd.to_datetime(["2026-01-01", "2026-02-01", None]),
        "decay": [Decimal("0.1"), Decimal("0.2"), None],
        "digits": ["0.1", "0.2", None],
        "mixed": [0.1, "auto", None],
    }
)


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("tau > 0.05 & status == 'finished'", [0]),
        ("tau > 0.05 and not status == 'finished'", [1]),
        ("batch_size == 64 | tau < 0.15", [0, 1]),
        ("0.15 < tau < 0.3", [1]),
        ("status in ['failed', 'stopped']", [1]),
        ("status not in ['failed']", [0, 2]),
        ("tau not in [0.1]", [1]),
        ("not (tau in (0.1, 7))", [1]),
        ("not tau in [0.1]", [1]),
        ("tau in [0.1] or tau not in [0.1, 0.2]", [0]),
        ("`optim/lr` not in [0.01] & method in ['lars', 'adam']", [2]),
        ("method not in ['tau in [0.2]'] and kind not in ('a',)", [2]),
        ("day in ['2026-01-01']", [0]),
        ("day != '2026-01-01'", [1]),
        ("not day == '2026-01-01' and day > '2026-01-15'", [1]),
        ("tau < batch_size", [0, 1]),
        ("tau not in []", [0, 1, 2]),
        ("flag", [0, 2]),
        ("~flag", [1]),
        ("(batch_size - 32) ** 2 > 1000", [1, 2]),
        ("sqrt(-tau) > 1 or exp(tau * 1e9) > 1", [0, 1]),
        ("tau * 2 + 1 < 1.5 or batch_size // 3 == 42", [0, 1, 2]),
        ("-tau < -0.15", [1]),
        ("9 ** 64 < tau", []),
        ("tau.isna()", [2]),
        ("not tau.isnull() and status.notna()", [0, 1]),
        ("2 * abs(tau - 0.1) < 1e-9", [0]),
        ("log10(tau) < -0.9 or `batch_size` == 64", [0, 1]),
        ("`optim/lr` == 0.1 and `train.lr` < 3", [1]),
        ("status == '@x' or tau == 0.1", [0]),
        ("`__import__('os').abort()` > 2", [2]),
        ("`@pd.io` > 2", [2]),
        ("`class` > 2 or `l`r #'x` == 2", [1, 2]),
        ("status.isin(['failed'])", [1]),
        ("method != 'sgd'", [2]),
        ("not (kind == 'a')", [2]),
        ("day == '2026-01-01' or tau == '0.2'", [0, 1]),
        ("digits == '0.1'", [0]),
        ("mixed == 0.1 or mixed == 'auto'", [0, 1]),
        ("decay == 0.1 and method != 'kind == \"a\"'", [0]),
    ],
)
def test_a_condition_selects_rows(where, rows):
    assert list(FRAME.index[selected(FRAME, where)]) == rows


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("(" * 10_000 + "tau" + ")" * 10_000 + " < 1", "too many nested parentheses"),
        ("-" * 990 + "tau < 1", "recursion"),
        ("tau == None", "expected .isna() or .notna() of a column, as in 'tau.isna()'"),
        ("status is not None", "expected .isna() or .notna() of a column"),
        ("__import__('os').getpid() == 1", "no column '__import__'"),
        ("tau.map(print) == 1", "given 'tau.map(print)'"),
        ("tau.isna().values", "given 'tau.isna().values'"),
        ("method * 10 ** 9 == 1", "expected a number, given 'method'"),
        ("tau.__class__ == 1", "expected columns, values, comparisons"),
        ("tau in status", "expected a list of values after in, given 'status'"),
        ("[tau for x in tau]", "given '[tau for x in tau]'"),
        ("@tau < 1", "invalid syntax"),
        ("tau < @pd.io", "expected backticks, as in `@pd.io`"),
        ("pd.io.common == 1", "no column 'pd'"),
        ("selected == 1", "no column 'selected'"),
        ("", "empty"),
        ("tau <", "invalid syntax"),
        ("tua < 1", "no column 'tua'. Did you mean 'tau'? Columns: tau, batch_size, status, flag"),
        ("status == finished", "no column 'finished'. A text stands in quotes: \"finished\""),
        ("optim < 1", "no column 'optim'. Did you mean '`optim/lr`'?"),
        ("`optim/rl` < 1", "no column 'optim/rl'. Did you mean '`optim/lr`'?"),
        ("train.lr < 1", "expected backticks, as in `train.lr`"),
        ("class == 1", "expected backticks, as in `class`"),
        ("tau = 1", "invalid syntax"),
        ("tau == 'low'", "expected a number, given 'low'"),
        ("tau", "expected a condition"),
        ("9 ** 9 ** 9 ** 9 > 1", "expected numbers below 1e308"),
        ("batch_size == 10 ** 400", "expected numbers below 1e308"),
        ("tau < 'x' * 10 ** 10", "expected a number, given \"'x'\""),
        ("tau == b'a'", "given \"b'a'\""),
        ("f'{tau}' == 'a'", "given \"f'{tau}'\""),
        ("tau[0] == 1", "given 'tau[0]'"),
        ("lambda: tau", "given 'lambda: tau'"),
        ("tau if flag else tau", "given 'tau if flag else tau'"),
        ("(tau + 1).isna()", "expected a column, given 'tau + 1'"),
        ("log(tau, 2) > 1", "given 'log(tau, 2)'"),
        ("t\u0430u == 1", "no column 't\u0430u'. Did you mean 'tau'?"),
        ("tau\0 == 1", "null bytes"),
        ("tau < 1; tau", 'invalid syntax: expected a condition, as in "tau < 0.1 and'),
        ("tau <> 1", "expected a condition, as in"),
        ("flag == true", "no column 'true'. Did you mean True?"),
        ("flag == 'True'", "expected True or False, given 'True'"),
        ("tau != null", "no column 'null'. Did you mean .isna() or .notna() of a column?"),
        ("digits == 0.1", "expected a text in quotes, given 0.1"),
        ("0.1 != digits", "expected a text in quotes, given 0.1"),
        ("digits not in ['0.2', 0.1]", "expected a text in quotes, given 0.1"),
        ("digits == tau", "expected a text in quotes, given column 'tau'"),
        ("not status == True", "expected a text in quotes, given True"),
        ("day > 2026", "expected a date in quotes, given 2026"),
        ("tau < `tau", "invalid syntax"),
    ],
)
def test_anything_else_is_one_short_line(where, said):
    with pytest.raises(RequestError) as caught:
        selected(FRAME, where)
    message = str(caught.value)
    assert message.startswith("--where ")
    assert said in message
    assert len(message.splitlines()) == 1
    assert len(message) < 400


@pytest.mark.parametrize(
    ("mode", "sort", "expected"),
    [("max", None, [90.0, 80.0]), ("min", None, [70.0, 75.0]), ("max", "config", [70.0, 90.0])],
)
def test_the_top_ones_are_the_best_unless_they_are_sorted(mode, sort, expected):
    table = pd.DataFrame({"config": [0, 1, 2, 3], "score": [70.0, 90.0, 80.0, 75.0]})
    of_all = {"objective": "a", "seed": 0, "status": "finished", "sampler": "grid"}
    table = table.assign(**of_all, tau=[0.1, 0.2, 0.3, 0.4])
    results = clsweep.analyse(table, params=["tau"], metric="score", mode=mode)
    rows, _ = trial_rows(results, (), sort, 2, every_column=True)
    assert [row["score"] for row in rows] == expected


@pytest.mark.parametrize("given", [{"columns": ["nope"]}, {"sort": "-nope"}])
def test_a_column_to_show_or_sort_by_that_is_none_is_told_where_all_are(given):
    results = clsweep.open_results("docs/results/quickstart")
    said = "no column 'nope'. Expected some of: trial_id, .* more \\(--format csv has all\\)"
    with pytest.raises(RequestError, match=said):
        trial_rows(results, (), given.get("sort"), None, columns=given.get("columns", ()),
                   every_column=True)  # fmt: skip


def test_a_column_is_read_once_however_often_it_is_named(monkeypatch):
    reads, typed = [], where._typed
    monkeypatch.setattr(where, "_typed", lambda column: reads.append(1) or typed(column))
    frame = pd.DataFrame({"tau": [0.1, 0.2, None]})
    many = " and ".join(["tau < 0.15"] * 200)
    assert selected(frame, many).tolist() == [True, False, False]
    assert len(reads) == 1


def test_a_condition_of_thousands_of_comparisons_is_one_line():
    frame = pd.DataFrame({"tau": [0.1]})
    said = r"at most 4,000 columns and values, given 10,000$"
    with pytest.raises(RequestError, match=said):
        selected(frame, " and ".join(["tau < 0.15"] * 5000))
