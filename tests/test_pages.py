"""What reports say of planted studies, and of rows that no planted study has, word for word; and
the specs of their figures.

    python -m tests.test_pages    # write tests/pages anew, and print what differs

The numbers have tests of their own; a changed page is read, as a changed sentence is.
"""

import difflib
import re
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import clsweep
from clsweep.display.numbers import Wording
from clsweep.report.report_folder import render_markdown
from clsweep.report.sections import build_report
from clsweep.statistics import contrast, pair_sentences
from clsweep.statistics.leaderboard import cautions
from clsweep.statistics.report_objects import Unresolved
from clsweep.sweeps.notes import notes_of
from tests.golden import _planted_sweeps
from tests.statistics import rows
from tests.statistics.test_answer import CAUTIONS, VERDICTS, verdict
from tests.statistics.test_figures import lines_of_specs
from tests.statistics.test_registry import assert_whole

PAGES = Path(__file__).parent / "pages"
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
SWEEPS = _planted_sweeps()
GIVEN = ("rows", "figures")  # pages of given tables
OTHERS = (  # of the full tier
    "grid of ten seeds", "random", "random, few", "most failed", "another metric",
    "one objective", "figures",
)  # fmt: skip


def page_of(name):
    """What is said of a planted study, without its tables and figures."""
    if name == "rows":
        return "".join(
            f"- {'open: ' * isinstance(each, Unresolved)}{each}\n" for each in sentences()
        )
    if name == "figures":
        return "".join(f"{line}\n" for line in lines_of_specs())
    report = build_report(clsweep.analyse(SWEEPS[name]))
    assert_whole(report)
    parts = [part for part in report.sections if part.sentences or part.notes]
    bare = [replace(part, tables=(), figures=()) for part in parts if part.id != "appendix"]
    return render_markdown(
        replace(report, sections=tuple(bare), board=None, hero=(), terms={}, facts={})
    )


def sentences():
    for question, *changes in rows.RARE:
        yield from rows.sentences(question, *changes)
    for changes, stat in rows.ALONG:
        table = [row | {"region": f"tau={2**i}"} for i, row in enumerate(changes)]
        yield from pair_sentences.by_value(
            pd.DataFrame(table), "tau", stat, Wording(metric="knn_top1")
        )
    for case in VERDICTS:
        yield from verdict(*case)
    for about, question, change in rows.RARE_OF:
        yield from rows.sentences(question, change, about=about)
    for title, (table, words, is_search) in CAUTIONS.items():
        yield f"{title}: {'; '.join(cautions(table, words, is_search=is_search))}"
    for title, frame in rows.NOTES.items():
        yield f"note {title}: {'; '.join(notes_of(frame))}"
    for change in rows.CONTRASTS:
        row = rows.CONTRAST | change
        yield contrast.outcome(row)
        yield contrast.sentence(row)


def path_of(name):
    return PAGES / f"{name.replace(',', '').replace(' ', '-')}.md"


def differing(name):
    path, now = path_of(name), page_of(name)
    before = (path.read_text() if path.exists() else "").splitlines()
    after = now.splitlines()
    if len(after) == len(before):
        after = [a if alike(a, b) else b for a, b in zip(before, after, strict=True)]
    lines = difflib.unified_diff(before, after, n=0, lineterm="")
    return now, [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def alike(*lines):
    """The same words, and numbers as near as other processors round them: the end of a surrogate's
    small share is 0.0651 on an Intel Xeon and 0.0658 on an AMD EPYC.
    """
    words = {NUMBER.sub("0", line) for line in lines}
    numbers = [[float(each) for each in NUMBER.findall(line)] for line in lines]
    return len(words) == 1 and numbers[0] == pytest.approx(numbers[1], rel=0.02)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in OTHERS)) for n in (*SWEEPS, *GIVEN)]
)
def test_a_page_says_what_it_said(name):
    _, lines = differing(name)
    assert not lines, "\n".join(["python -m tests.test_pages", *lines])


if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    for name in [each for each in (*SWEEPS, *GIVEN) if all(word in each for word in sys.argv[1:])]:
        text, lines = differing(name)
        print(f"{name}:", *lines, sep="\n  ") if lines else None
        path_of(name).write_text(text)
