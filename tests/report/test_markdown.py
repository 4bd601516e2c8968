"""The report as Markdown."""

import re
from dataclasses import replace

import pandas as pd

from clsweep.report.report_folder import escaped, render_markdown
from tests.report.samples import CONTROL, EVIL, report, report_full_of, section, table


def test_everything_of_the_page_is_in_the_text():
    words = render_markdown(report())
    assert words.startswith(
        "# A study\n\nWhich of 2 objectives is best? digits, 2 seeds.\n\n## Answer\n\n- DCL is"
    )
    assert "\n\n## Who is robust?\n\n- DCL is.\n\n> 3 trials failed.\n\n" in words
    assert "- Run the best on fresh seeds: clsweep confirm runs/tau\n- Add seeds.\n" in words
    assert "\n\n## Not resolved\n\n- Whether DCL is better" in words
    assert "- Studies: tau\n- Metric: knn_top1 (%)\n" in words
    assert "\n\n![Tolerance](figures/tolerance.svg)\n\n**Tolerance** Share of the space." in words
    assert (
        "| objective | sd | at |\n| --- | ---: | --- |\n| simclr | 0.51 [0.40, 0.63] | tau=0.1 |\n"
        in words
    )


def test_text_that_looks_like_markup_stays_text():
    words = render_markdown(report_full_of(EVIL))
    assert not re.search(r"(?<!\\)<", words)
    assert not re.search(r"(?<!\\)&", words)
    assert "[a](javascript" not in words
    own = r"\]\((figures|tables)/[a-z]+\.(svg|csv)\)"
    assert not re.search(r"(?<!\\)\]\(", re.sub(own, "", words))
    assert "|\\[a\\](javascript:alert(3))" in next(
        line for line in words.splitlines() if line.startswith("![")
    )


def test_no_control_character_is_left():
    words = render_markdown(report_full_of(CONTROL))
    assert not set(CONTROL) & set(words) - set("a[31mb")
    assert words.startswith("# a\ufffd[31m")


def test_every_row_has_as_many_cells():
    shown = pd.DataFrame({"a|b": ["x|y", "two\nlines", "back\\slash\\|"], "n": [1, 2, 3]})
    part = section(sentences=(), notes=(), tables=(replace(table(), shown=shown),), figures=())
    lines = [x for x in render_markdown(report(part)).splitlines() if x[:1] == "|"][-5:]
    unescaped = [line.replace("\\\\", "").replace("\\|", "") for line in lines]
    assert [line.count("|") for line in unescaped] == [3] * 5


def test_what_would_begin_a_block_is_escaped():
    for begun in ("# 1", "- x", "> x"):
        assert escaped(begun) == f"\\{begun}"
    assert [escaped("1. first"), escaped("0.1.0")] == ["1\\. first", "0.1.0"]
    assert escaped("_x_ batch_size") == "\\_x\\_ batch_size"
    assert escaped("0.5 [0.4, 0.6] a*b") == "0.5 [0.4, 0.6] a\\*b"


def test_a_long_table_says_where_the_rest_is():
    long = section(tables=(table(objectives=[f"o{i}" for i in range(207)]),))
    assert "7 more in [tables/robustness.csv](tables/robustness.csv)." in render_markdown(
        report(long)
    )
