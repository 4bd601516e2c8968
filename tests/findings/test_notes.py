"""Reasons and their texts: every cause has one, and no other module tells a reader."""

import ast
import re
import string
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import clsweep
from clsweep.analysis.comparison.table import COLUMNS
from clsweep.analysis.reasons import TEXTS, UNRESOLVED, Reason, note, noted
from clsweep.findings.notes import is_measured, said, status, text_of, verdict, worded

PACKAGE = Path(clsweep.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
CAUSES = PACKAGE / "analysis" / "reasons.py"  # the one table of them, with their words
ANALYSIS = [path for path in MODULES if (PACKAGE / "analysis") in path.parents and path != CAUSES]
MEANINGS = re.compile(r"\w*COLUMNS|DIAGNOSTICS")  # tables of a name and what it means
MOST_WORDS = 2


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def words_in(node):
    """Words of a text or an f-string, 0 of any other node."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    texts = [
        part.value
        for part in parts
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
    return sum(bool(re.search("[A-Za-z]{2}", word)) for word in " ".join(texts).split())


def prose(tree):
    """Lines with a text of several words that is no docstring, no meaning and no error."""
    waiting, found = [tree], []
    while waiting:
        node = waiting.pop()
        names = node.targets if isinstance(node, ast.Assign) else []
        if (
            isinstance(node, ast.Raise)
            or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
            or any(MEANINGS.fullmatch(getattr(name, "id", "")) for name in names)
        ):
            continue
        if words_in(node) > MOST_WORDS:
            found.append(node.lineno)
        elif not isinstance(node, ast.JoinedStr):
            waiting += ast.iter_child_nodes(node)
    return found


def compared_sentences(tree):
    """Lines that ask whether a text is, begins with or contains a text of several words."""
    for node in ast.walk(tree):
        asked = []
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            asked = node.args if node.func.attr in ("startswith", "endswith", "contains") else []
        elif isinstance(node, ast.match_case):
            asked = [node.pattern]
        inside = [part for each in asked for part in ast.walk(each)]
        if any(words_in(part) > 1 and " " in str(getattr(part, "value", "")) for part in inside):
            yield node.lineno


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('"""A docstring of some words."""\nCOLUMNS = {"a": "what the column means"}', []),
        ('def f(x):\n    raise ValueError(f"expected {x} and some words")', []),
        ('def f(n):\n    return f"{n} of {n} trials did fail"', [2]),
        ('why = "no trial has finished"', [1]),
        ('term = "seed noise"', []),
    ],
)
def test_prose_is_found(source, lines):
    assert prose(ast.parse(source)) == lines


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ('row["verdict"] == "not resolved"', True),
        ('note.startswith(("needs about", "x"))', True),
        ('"no difference" in note', True),
        ('row["reason"] == Reason.NO_SCORE', False),
        ('stat == "mean" and names in ("a", "b")', False),
    ],
)
def test_a_compared_sentence_is_found(source, is_found):
    assert bool(list(compared_sentences(ast.parse(source)))) == is_found


@pytest.mark.parametrize("path", ANALYSIS, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_the_analysis_makes_no_sentence(path):
    assert prose(parsed(path)) == []


@pytest.mark.parametrize("room", ["report", "display", "questions", "findings", "cli", "analysis"])
def test_nobody_reads_a_sentence(room):
    for path in (PACKAGE / room).rglob("*.py"):
        assert list(compared_sentences(parsed(path))) == [], path


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
    for path in MODULES:
        for node in ast.walk(parsed(path)):
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
        assert fields_of(TEXTS[reason.name]) <= set(COLUMNS), reason


def test_texts():
    assert said(Reason.TRIALS_FAILED, {"failed": 3, "trials": 60}) == (
        "3 of 60 trials failed and are left out"
    )
    counted = {"failed": 3, "trials": 60, "level": 45.1389}
    assert said(Reason.TRIALS_FAILED_AS_WORST, counted) == (
        "3 of 60 trials failed and count as the worst score seen (45.1)"
    )
    assert said(Reason.TRIALS_FAILED_AS_CHANCE, counted | {"level": 10.0}) == (
        "3 of 60 trials failed and count as chance (10)"
    )
    floor = said(Reason.P_FLOOR, {"draws": np.int64(12_345), "unit": "pairs", "p_min": 2**-11})
    assert floor == "12,345 pairs can give no p below 0.000488"
    seeds = said(Reason.SEEDS_LEFT_OUT, {"seeds": (3, 0.5, "s1")})
    assert seeds == "seeds without a partner are left out: 3, 0.5, s1"
    adaptive = note(Reason.ADAPTIVE_SAMPLER, samplers=("tpe", "gp"))
    assert text_of(adaptive.of("dcl"), note(Reason.SAME_AS_BEST)) == (
        "dcl: tpe, gp samples favour good configurations; same as the best"
    )
    assert text_of() == ""


def test_what_a_row_without_a_claim_is():
    assert (is_measured(""), status("")) == (True, "not resolved")
    assert status(Reason.NO_DIFFERENCE) == status("no_difference") == "not resolved"
    assert status(Reason.NO_SCORE) == status("no_score") == "not measured"
    assert verdict({"winner": "dcl", "reason": ""}) == "dcl"
    assert verdict({"winner": "", "reason": Reason.NO_PAIR}) == "not measured"


def test_a_table_is_worded():
    why, also = note(Reason.NO_SCORE), note(Reason.TRIALS_FAILED, failed=1, trials=2)
    rows = [{"x": 1.0} | noted(also, why, why=why), {"x": np.nan} | noted()]
    frame = pd.DataFrame(rows)
    assert worded(frame).to_dict("records") == [
        {
            "x": 1.0,
            "reason": "no_score",
            "note": "no finished trial; 1 of 2 trials failed and are left out",
        },
        {"x": pytest.approx(np.nan, nan_ok=True), "reason": "", "note": ""},
    ]
    assert frame["note"].iloc[0] == (why, also)
    assert worded(frame[["x"]]).equals(frame[["x"]])
