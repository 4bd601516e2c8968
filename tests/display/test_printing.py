"""One list of rows in five formats: exact for programs, quiet for eyes, and text is never
markup.
"""

import csv
import io
import json
import math
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from rich.cells import cell_len

from clsweep.display.printing import Format, cell, is_numeric, laid_out, print_table

ODD = "[bold]<script>|`*_\\|[/]"
ROWS = [
    {"name": ODD, "value": 0.1 + 0.2, "count": 12, "flag": True, "note": None},
    {"name": '"quoted", commas', "value": math.nan, "count": -3, "flag": False, "note": "a\nb"},
    {"name": "τ ≥ 0", "value": 1e-300, "count": 2**53 + 1, "flag": True, "note": ""},
    {"name": "numpy", "value": np.float64(1 / 3), "count": np.int64(7), "flag": np.bool_(True),
     "note": -math.inf},
]  # fmt: skip


@pytest.fixture
def printed(capsys):
    """What `print_table` prints."""

    def text(rows, **options):
        print_table(rows, **options)
        return capsys.readouterr().out

    return text


def test_programs_read_every_digit_and_type(printed):
    own = {"value": 1 / 3, "count": 7, "flag": True, "note": "-Infinity"}
    rows = json.loads(printed(ROWS, format=Format.json))
    assert rows == [ROWS[0], ROWS[1] | {"value": None}, ROWS[2], ROWS[3] | own]
    assert [list(row) for row in rows] == [list(row) for row in ROWS]
    texts = [{n: "" if v is None else str(v) for n, v in row.items()} for row in rows]
    texts[3]["note"] = "-inf"
    read = csv.DictReader(io.StringIO(printed(ROWS, format=Format.csv, digits=1), newline=""))
    assert list(read) == texts


def test_pandas_reads_an_infinite_number_of_either_format_and_tells_it_from_a_missing_one(printed):
    values = [1.5, math.inf, None, -math.inf]
    text = {
        each: printed([{"x": x} for x in values], format=Format[each]) for each in ("json", "csv")
    }
    for frame in (pd.read_json(io.StringIO(text["json"])), pd.read_csv(io.StringIO(text["csv"]))):
        assert frame["x"].tolist() == pytest.approx(
            [1.5, math.inf, math.nan, -math.inf], nan_ok=True
        )


def test_text_is_no_markup(printed):
    rows = [{"[red]a|b": ODD, "n": 0.123456}, {"[red]a|b": "two\nlines", "n": 1000.5}]
    lines = printed(rows, title="Title", digits=4).splitlines()
    assert lines[0].strip() == "Title"
    assert lines[1].split() == ["[red]a|b", "n"]
    assert lines[2].split() == [ODD, "0.1235"]
    assert lines[2].rstrip().index("0.1235") == lines[3].index("1000.5000") + 3
    assert printed(rows, format=Format.md).splitlines() == [
        "| [red]a\\|b | n |",
        "| --- | ---: |",
        "| [bold]\\<script>\\|\\`\\*\\_\\\\\\|[/] | 0.12 |",
        "| two lines | 1000.50 |",
    ]


# What each mark of LaTeX shows, read by the rules of LaTeX and not by ours.
SHOWN = {
    r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^",
    r"\textless{}": "<", r"\textgreater{}": ">", r"\textbar{}": "|", r"\textasciigrave{}": "`",
    r"\textquotedbl{}": '"', r"$\tau$": "τ", r"$\geq$": "≥", "-{}-": "--", "$-$": "-",
}  # fmt: skip


def read_latex(text):
    """Caption, alignment and cells of a table as it is typeset."""
    caption = re.search(r"\\caption\{(.*)\}\n", text)
    aligned, body = re.search(
        r"\\begin\{tabular\}\{(\w+)\}\n(.*)\\end\{tabular\}\n\\end\{table\}", text, re.DOTALL
    ).groups()
    head, rows = re.fullmatch(
        r"\\toprule\n(.*)\\midrule\n(.*)\\bottomrule\n", body, re.DOTALL
    ).groups()
    return caption and typeset(caption[1]), aligned, [
        [typeset(cell) for cell in re.split(r"(?<!\\) ?& ?", line.removesuffix(" \\\\"))]
        for line in [*head.splitlines(), *rows.splitlines()]
    ]  # fmt: skip


def typeset(text):
    parts = re.split("(" + "|".join(map(re.escape, SHOWN)) + ")", text.strip())
    plain = [re.sub(r"^\{(.)\}|\\([&%$#_{}])", r"\1\2", part) for part in parts[::2]]
    assert not re.search(r"(?<!\\)[&%$#_^~]|[<>|]", "".join(parts[::2])), text
    marks = [SHOWN[part] for part in parts[1::2]] + [""]
    return "".join(a + b for a, b in zip(plain, marks, strict=True))


LATEX_ROWS = [
    {"name": ODD, "of τ ≥ 0 %": "-0.19 [-1.17, 0.79]", "p": 1e-3, "cost_a": "12 % & more"},
    {"name": "[0.1, 1] #1", "of τ ≥ 0 %": "2.52 [1.12, 3.92]", "p": 1, "cost_a": "a~b^c --seeds"},
    {"name": "*tau", "of τ ≥ 0 %": "1.0e-03 [-inf, inf]", "p": None, "cost_a": '{x} $y$ "z"'},
]


def test_latex_shows_every_text_as_it_is(printed):
    out = printed(LATEX_ROWS, format=Format.latex, title="\nLead (95 %)", digits=3)
    caption, aligned, (head, *cells) = read_latex(out)
    assert (caption, aligned) == ("Lead (95 %)", "lrrl")
    assert head == list(LATEX_ROWS[0])
    texts = [[*row.values()] for row in LATEX_ROWS]
    texts = [[a, b, "" if p is None else p, c] for a, b, p, c in texts]
    assert cells == [[a, b, {1e-3: "0.001", 1: "1"}.get(p, p), c] for a, b, p, c in texts]
    assert "$-$0.19 [$-$1.17, 0.79]" in out
    assert "1.0e-03" in out


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="needs pdflatex")
def test_latex_compiles(printed, tmp_path):
    tables = printed(LATEX_ROWS, format=Format.latex, title="Lead (95 %) of a_b")
    tables += printed(ROWS, format=Format.latex)
    head = "\\documentclass{article}\n\\usepackage[T1]{fontenc}\n\\usepackage{booktabs}\n"
    text = f"{head}\\begin{{document}}\n{tables}\\end{{document}}\n"
    (tmp_path / "a.tex").write_text(text, encoding="utf-8")
    words = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "a.tex"]
    run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout[-2000:]


def test_no_text_is_a_formula_or_an_order_in_any_format(printed):
    texts = ["=HYPERLINK(1)", "+x", "-x", "@x", "\t=1", "\r=1", "\n=1", "-0.5", "a\x1b[31m"]
    texts += ["\x9b1m"]
    rows = [{"=head": text, "number": -1.5} for text in texts]
    read = list(csv.DictReader(io.StringIO(printed(rows, format=Format.csv), newline="")))
    assert [row["'=head"] for row in read] == [
        "'=HYPERLINK(1)", "'+x", "'-x", "'@x", "'\\t=1", "'\\r=1", "'\n=1", "-0.5", "a\\x1b[31m",
        "\\x9b1m",
    ]  # fmt: skip
    assert {row["number"] for row in read} == {"-1.5"}
    assert json.loads(printed(rows, format=Format.json)) == rows
    for form in Format:
        assert not set("\x1b\x9b\t\r") & set(printed(rows, format=form))


@pytest.mark.parametrize("form", [Format.table, Format.md, Format.latex])
def test_a_cell_for_eyes_is_of_bounded_length(printed, form):
    out = printed([{"text": "x" * 10**7}, {"text": "y"}], format=form)
    assert len(out) < 10_000
    assert "9,998,000 more" in " ".join(out.split())


def test_long_text_is_folded_not_cut(printed):
    words = " ".join(f"word{i}" for i in range(100))
    text = printed([{"name": "x", "text": words}])
    assert text.split()[2:] == ["x", *words.split()]


def test_a_long_name_is_broken_behind_a_mark():
    name = "simclr/very-long-objective-name_of_somebody"
    row = {"objective": name, "n": 1, "wide": "x" * 39}
    [block], _ = laid_out([row], room=64)
    folded = [line.split("  ")[0].split()[0] for line in block[1:]]
    assert folded == ["simclr/very-long-", "objective-name_of_", "somebody"]
    assert laid_out([row], room=math.inf)[0][0][1].startswith(name)


@pytest.mark.parametrize("keys", [("a", "b"), ("a", "b", "region")])
def test_every_block_has_the_columns_that_tell_its_rows_apart(keys):
    """Names that take more than half of the room leave some for one column beside them."""
    pairs = [("simclr_of_24_characters_", b, r) for b in ("b" * 20, "c" * 20) for r in ("1", "2")]
    rows = [dict(zip(("a", "b", "region"), pair, strict=True)) for pair in pairs]
    rows = [{key: row[key] for key in keys} for row in rows[:: 4 - len(keys)]]
    for name in ("lead", "needs seeds", "verdict"):
        rows = [row | {name: "x" * 17} for row in rows]
    blocks, left_out = laid_out(rows, room=80)
    assert (len(blocks), left_out) == (3, [])
    for block in blocks:
        assert block[0].split()[: len(keys)] == [*keys]
        told = [tuple(line.split()[: len(keys)]) for line in block[1:]]
        assert told == [tuple(row[key] for key in keys) for row in rows]


def test_no_table_is_wider_than_the_screen_and_no_number_is_broken(printed, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    at = [f"teacher_momentum=0.{i}9995, lr=日" for i in range(3)]
    row = {"name": "a", **{f"number {i}": 1000.5 for i in range(9)}}
    text = printed([row | {"at": each} for each in at], title="A title " * 9)
    assert max(map(cell_len, text.splitlines())) <= 40
    assert all(each.split()[0] in text for each in at)
    assert text.count("1000.50") == 27


@pytest.mark.parametrize(
    ("value", "text"),
    [(math.nan, ""), (0.0, "0.00"), (91.256, "91.26"), (-0.004, "-4.0e-03"), (True, "True")],
)
def test_a_cell_for_eyes(value, text):
    assert cell(value) == text


def test_control_characters_are_shown_not_obeyed(printed):
    controls = "a\x1b[31m\x07\r\t\x9b\x7f\udcff\u202eb\u2066"
    shown = controls.encode("unicode_escape").decode()
    rows = [{f"head{controls}": controls, "n": 1}]
    assert printed(rows, title=controls).split() == [shown, f"head{shown}", "n", shown, "1"]
    assert printed(rows, format=Format.md).count("\\\\x1b[31m\\\\x07") == 2


def test_texts_that_are_numbers_stand_to_the_right_and_are_never_folded(printed):
    texts = ["-1.23e-07 [-2.34e-07, -1.00e-08]", "5.00e-08 [-inf, inf]", ""]
    assert texts[0] in printed([{"name": "a" * 300, "n": texts[0]}]).splitlines()[1]
    lines = printed([{"n": text, "z": "x"} for text in texts]).splitlines()
    assert [line.index("x") for line in lines[1:]] == [34] * 3
    assert lines[2].startswith(" " * 12 + texts[1])


@pytest.mark.parametrize(
    ("texts", "numeric"),
    [
        (["0.48 [0.40, 0.55]", ""], True),
        (["1.2e-05 [1.0e-05, inf]", "-inf"], True),
        (["< 0.001", "12 %"], True),
        (["1", "one"], False),
        (["infonce"], False),
        (["1e", "e5"], False),
        ([""], False),
    ],
)
def test_which_columns_are_numeric(texts, numeric):
    assert is_numeric(texts) is numeric


WIDE = [{"name": "a" * 20, **{f"column {i}": i + 0.125 for i in range(6)}}]


@pytest.mark.parametrize("width", ["40", "52", "64", "200"])
def test_columns_that_may_be_spared_leave_in_their_order(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    spare = ("column 5", "no such", ("column 0", "column 1"), "column 3")
    left_out = print_table(WIDE, spare=spare)
    out = capsys.readouterr().out
    line = out.splitlines()[0]
    assert len(line.rstrip()) <= int(width) or len(left_out) == 4
    known = ["column 5", "column 0", "column 1", "column 3"]
    assert left_out == known[: len(left_out)]
    assert ("column 0" in left_out) == ("column 1" in left_out)  # both, or neither
    assert [name for name in WIDE[0] if name in out] == [n for n in WIDE[0] if n not in left_out]
    if left_out:  # none was left out for nothing
        last = left_out[-2:] if left_out[-1] == "column 1" else left_out[-1:]
        assert len(line.rstrip()) + sum(2 + len(name) for name in last) > int(width)


@pytest.mark.parametrize("format", Format)
def test_nothing_is_spared_where_all_is_asked_for_or_a_program_reads(capsys, monkeypatch, format):
    monkeypatch.setenv("COLUMNS", "30")
    options = {"wide": True} if format is Format.table else {}
    assert print_table(WIDE, spare=tuple(WIDE[0]), format=format, **options) == []
    assert all(name in capsys.readouterr().out.replace("\n", " ") for name in ["column 5"])
