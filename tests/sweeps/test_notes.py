"""Reasons and their texts: every cause has one."""

import ast
import string
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import clsweep
from clsweep.analysis.compare import COMPARISON_COLUMNS
from clsweep.analysis.reasons import TEXTS, UNRESOLVED, Reason, note, noted
from clsweep.sweeps.notes import (
    as_text,
    is_measured,
    note_text,
    status_text,
    winner_or_status,
    worded,
)


def fields_of(text):
    """The figures of a text; how a number reads is no matter of it."""
    fields = [(name, form) for _, name, form, _ in string.Formatter().parse(text) if name]
    assert not any(form for _, form in fields)
    return {name for name, _ in fields}


def test_every_reason_has_a_text():
    assert all(TEXTS.values())
    assert len(set(TEXTS.values())) == len(TEXTS)
    assert all(reason == reason.name.lower() for reason in Reason)
    assert set(Reason) >= UNRESOLVED


def test_a_note_has_the_figures_of_its_text():
    """Read off every `note(Reason.X, figure=...)` and `lost(Reason.X, ...)` of the package."""
    seen = set()
    for path in Path(clsweep.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and node.args):
                continue
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            reason = ast.unparse(node.args[0]).removeprefix("Reason.")
            if called not in ("note", "lost") or reason not in Reason.__members__:
                continue
            seen.add(reason)
            given = {keyword.arg for keyword in node.keywords}
            given |= {"lost", "configs"} if called == "lost" else set()
            if None not in given:  # **figures are seen in the tests of the table
                assert given == fields_of(TEXTS[reason]), f"{path}:{node.lineno}"
    assert len(seen) > 50


def test_what_a_comparison_says_of_an_unresolved_row_is_in_the_row():
    """A report words the reason of a row from the row alone."""
    measured = {Reason.NO_DIFFERENCE, Reason.FAILURES_DECIDE, Reason.ONE_SEED, Reason.NO_NOISE}
    measured |= {Reason.NO_NOISE_OF_SETTINGS, Reason.ONE_SEED_NO_SPREAD}
    assert measured <= UNRESOLVED
    for reason in measured:
        assert fields_of(TEXTS[reason.name]) <= set(COMPARISON_COLUMNS), reason


def test_texts():
    lost = as_text(Reason.LOST_TRIES, {"lost": np.int64(12_345), "configs": 20_000})
    assert lost.startswith("12,345 of 20,000")
    seeds = as_text(Reason.SEEDS_LEFT_OUT, {"seeds": (3, 0.5, "s1")})
    assert seeds == "seeds without a partner are left out: 3, 0.5, s1"
    adaptive = note(Reason.ADAPTIVE_SAMPLER, samplers=("tpe", "gp"))
    assert note_text(adaptive.of("dcl"), note(Reason.SAME_AS_BEST)) == (
        "dcl: tpe, gp samples favour good configurations; same as the best"
    )


def test_what_a_row_without_a_claim_is():
    assert (is_measured(""), status_text("")) == (True, "not resolved")
    assert status_text(Reason.NO_DIFFERENCE) == status_text("no_difference") == "not resolved"
    assert status_text(Reason.NO_SCORE) == status_text("no_score") == "not measured"
    assert winner_or_status({"winner": "dcl", "reason": ""}) == "dcl"
    assert winner_or_status({"winner": "", "reason": Reason.NO_PAIR}) == "not measured"


def test_a_table_is_worded():
    why, also = note(Reason.NO_SCORE), note(Reason.TRIALS_FAILED, failed=1, trials=2)
    rows = [{"x": 1.0} | noted(also, why, why=why), {"x": np.nan} | noted()]
    frame = pd.DataFrame(rows)
    assert worded(frame).to_dict("records") == [
        {
            "x": 1.0,
            "reason": "no_score",
            "note": "no finished trial has a score; 1 of 2 trials failed and are left out",
        },
        {"x": pytest.approx(np.nan, nan_ok=True), "reason": "", "note": ""},
    ]
    assert frame["note"].iloc[0] == (why, also)
    assert worded(frame[["x"]]).equals(frame[["x"]])
